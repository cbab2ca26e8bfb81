"""What replays read of a flow's calls and sends: found once for all of them, and kept as long as one of them lasts."""

import functools
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace import schema
from cctrace.flows.events import Events, pointing
from cctrace.flows.state import CLOCK_START_US

_kept: weakref.WeakValueDictionary[tuple[int, ...], "Stream"] = weakref.WeakValueDictionary()


class Stream:
    """Rows of `schema.EVENTS` and of `schema.SENDS` as records, and columns of them in one piece.

    Records are slow to ask: a pass over one column of 400,000 takes as long as a replay of 50,000.
    """

    def __init__(self, events: Events, sends: NDArray[Any] | None) -> None:
        self._given = events.table, sends  # kept, since `stream_of` knows them by their addresses
        empty = np.zeros(0, [(c.name, c.dtype) for c in schema.SENDS])
        self.sends = (empty if sends is None else sends).view(np.recarray)
        self.rows = pointing(events.rows, len(self.sends)).view(np.recarray)
        self._start_ns = events.meta["start_ns"]

    @functools.cached_property
    def now_us(self) -> NDArray[np.int64]:
        """Time of each row on the connection's clock, us."""
        return (self.rows.time_ns - self._start_ns) // 1000 + CLOCK_START_US

    @functools.cached_property
    def is_ack(self) -> NDArray[np.bool_]:
        """Which rows are ACKs."""
        return self.rows.event == schema.LINUX_EVENTS["on_ack"]

    @functools.cached_property
    def srtt_us8(self) -> NDArray[np.int64]:
        """Eight times the smoothed RTT after each row, us; a view, for single rows."""
        return self.rows.view(np.ndarray)["srtt_us8"]

    @functools.cached_property
    def usual_gap_us(self) -> int:
        """Median time between super-packets, us."""
        gaps_us = np.diff(self.sends.tx_ns[self.sends.begins != 0]) / 1000
        return max(int(np.median(gaps_us)), 1) if len(gaps_us) else 1


def stream_of(events: Events, sends: NDArray[Any] | None) -> Stream:
    """Return the stream of some events and sends, which no one changes while it is in use."""
    key = id(events.table), id(sends), events.meta["start_ns"]
    stream = _kept.get(key)
    if stream is None:
        stream = _kept[key] = Stream(events, sends)
    return stream
