"""A flow's calls and sends as replays read them: made once for all replays, and kept as long as one of them lasts."""

import functools
import weakref
from typing import Any

import numpy as np

from cctrace import schema
from cctrace.columns import Bools, Ints, Values
from cctrace.flows.events import Events
from cctrace.lang.machine import Machine

_kept: weakref.WeakValueDictionary[tuple[int, ...], "Stream"] = weakref.WeakValueDictionary()


class Stream:
    """Rows of an event stream (`tables`: of `EventColumns`) and of `schema.SENDS` as records, and columns in one piece.

    Columns are kept because a pass over one field of 400,000 records takes as long as a replay of 50,000 calls.
    """

    def __init__(self, events: Events, sends: Values | None) -> None:
        self._given = events.stream, sends  # kept, since `stream_of` knows them by their addresses
        self.events = events
        empty = np.zeros(0, [(c.name, c.dtype) for c in schema.SENDS])
        self.sends = (empty if sends is None else sends).view(np.recarray)
        calls, states, steady = events.stream.tables
        beyond = states["rs_send"] >= len(self.sends)
        if beyond.any():  # a saved stream lacks its sends
            states = states.copy()
            states["rs_send"][beyond] = -1
        self.tables = tuple(table.view(np.recarray) for table in (calls, states, steady))

    @functools.cached_property
    def now_us(self) -> Ints:
        """Time of each row on the connection's clock, us."""
        found = np.empty(len(self.tables[0]), np.int64)
        _clock_us(self.tables, self.events.meta["start_ns"], found)
        return found

    @functools.cached_property
    def is_ack(self) -> Bools:
        """Which rows are ACKs."""
        return self.tables[0].event == schema.LINUX_EVENTS["on_ack"]

    def srtt_us(self, rows: int | Ints) -> int:
        """Return the smoothed RTT after a row, or the longest after several."""
        calls, states, _ = self._plain
        return int(np.max(states["srtt_us8"][calls["of"][rows]])) >> 3

    @functools.cached_property
    def _plain(self) -> tuple[Values, ...]:
        return tuple(table.view(np.ndarray) for table in self.tables)

    @functools.cached_property
    def usual_gap_us(self) -> int:
        """Median time between super-packets, us."""
        gaps_us = np.diff(self.sends.tx_ns[self.sends.begins != 0]) / 1000
        return max(int(np.median(gaps_us)), 1) if len(gaps_us) else 1


def clock_us(rows: Any, start_ns: int, found: Ints) -> None:
    """Fill in what `Events.now_us` returns, in one pass and without a temporary column of times."""
    calls, states, _ = rows
    for i in range(calls.size):
        found[i] = (states[calls[i].of].time_ns - start_ns) // 1000 + schema.CLOCK_START_US


_clock_us = Machine(clock_us)


def stream_of(events: Events, sends: Values | None) -> Stream:
    """Return the stream of events and sends, which must not change while it is in use."""
    key = id(events.stream), id(sends), events.meta["start_ns"]
    stream = _kept.get(key)
    if stream is None:
        stream = _kept[key] = Stream(events, sends)
    return stream
