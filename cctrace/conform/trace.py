"""A run of a controller as columns: a row per call, with its inputs and its state before and after.

A simulation is replayed over its own trace, which reproduces it exactly and records every field. Fields of the BBR
family are renamed to the draft's (`bbr_names`), those of CUBIC to the RFC's (`cubic_names`); of other controllers
the window, the pacing rate, ssthresh, and their own fields are available.
"""

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from cctrace import schema
from cctrace.cc.base import Controller
from cctrace.columns import Columns, Values
from cctrace.conform import bbr_names, cubic_names
from cctrace.errors import ArgumentError
from cctrace.flows.flow import Flow
from cctrace.flows.views import View
from cctrace.lang.fields import RETURNED

P = ParamSpec("P")
T = TypeVar("T")


class NoColumnError(KeyError):
    """The sender, or its trace, has no such column."""


class State(Columns):
    """Columns of a sender's state by name; to ask for another one raises `NoColumnError`."""

    def __missing__(self, name: str) -> Values:
        raise NoColumnError(name)


def once(derive: Callable[Concatenate["Trace", P], T]) -> Callable[Concatenate["Trace", P], T]:
    """Let a function derive something from a trace once, a column read-only, because many requirements need it."""

    @functools.wraps(derive)
    def derived(r: "Trace", *args: P.args, **kwargs: P.kwargs) -> T:
        key = (derive, args, tuple(sorted(kwargs.items())))
        if key not in r.derived:
            r.derived[key] = found = derive(r, *args, **kwargs)
            if isinstance(found, np.ndarray):
                found.flags.writeable = False
        return r.derived[key]  # type: ignore[no-any-return]

    return derived


@dataclass(frozen=True, eq=False)
class Trace:
    """Columns of one run."""

    cls: type[Controller]  # the controller
    view: View  # its inputs, a row per call
    # after, before: its state after and before each call, under the draft's names for the BBR family
    after: State
    before: State
    # parameters, ``mss``, ``tick_us``; of a simulated case ``rate_Bps`` (of payload)
    facts: dict[str, float] = field(default_factory=dict)
    flow: Flow | None = None  # of a capture: the source of the columns
    derived: dict[Hashable, Any] = field(default_factory=dict, repr=False)  # by `once`

    def __len__(self) -> int:
        return len(self.view)

    def has(self, *names: str) -> bool:
        """Whether there are such columns, of its state or of what it read."""
        return all(name in self.after or name in self.view.columns for name in names)

    def ack(self, name: str) -> Values:
        """Return a column of what it read."""
        return self.view.columns[name]

    @once
    def is_call(self, name: str, arg: int | None = None) -> Values:
        """Return the mask of the calls of an entry point, of those with this argument if one is given."""
        calls = self.view.event == schema.EVENT_CODES[name]
        return calls if arg is None else calls & (self.ack("arg") == arg)

    @property
    def acks(self) -> Values:
        """The mask of the calls of `on_ack`."""
        return self.is_call("on_ack")

    @once
    def is_set(self, flag: str) -> Values:
        """Return a flag after each call."""
        return self.after[flag].astype(bool)

    @once
    def was_set(self, flag: str) -> Values:
        """Return a flag before each call."""
        return self.before[flag].astype(bool)

    @property
    def captured(self) -> Flow:
        """The flow of a capture; raises `ArgumentError` if the columns were made otherwise."""
        if self.flow is None:
            raise ArgumentError("single packets are needed: give a flow of a capture")
        return self.flow

    @property
    @once
    def time_s(self) -> Values:
        """Seconds since the first call."""
        time_ns = self.view.time_ns
        return (time_ns - (time_ns[0] if len(time_ns) else 0)) / 1e9

    @property
    def mss(self) -> float:
        """Payload of a segment, bytes."""
        return self.facts["mss"]

    @property
    @once
    def inflight(self) -> Values:
        """C.inflight at each call, segments."""
        out, sacked, lost, retransmitted = map(self.ack, ("packets_out", "sacked_out", "lost_out", "retrans_out"))
        return out - sacked - lost + retransmitted

    @property
    @once
    def delivery_rate(self) -> Values:
        """RS.delivery_rate of each call, bytes/s; 0 where there is no sample."""
        delivered, interval = self.ack("rs_delivered"), self.ack("rs_interval_us")
        rate = delivered * self.ack("mss") * 1e6 / np.maximum(interval, 1)
        return np.where((interval > 0) & (delivered > 0), rate, 0.0)


def trace_of(view: View, cls: type[Controller], params: dict[str, Any], facts: dict[str, float]) -> Trace:
    """Return the `Trace` of a view: a replay over it, all fields recorded.

    `view` holds the controller's own calls (`Simulation.flow`), with what it and the stack wrote before each.
    """
    from cctrace.replaying.player import Player
    from cctrace.replaying.run import recorded_names

    player = Player(view, cls, record=[*recorded_names(cls, "all"), RETURNED], **params)
    first = player.state
    player.run()
    after_call, before = player.recorded, {}
    for name, values in after_call.items():
        key, _, place = name.partition("[")
        start = first.get(key, 0)
        column = np.concatenate([[start[int(place[:-1])] if place else start], values]).astype(values.dtype, copy=False)
        # One column for both: the state after a call is the state before the next.
        after_call[name], before[name] = column[1:], view.carried.get(name, column[:-1])
    mss = float(facts["mss"])
    hz = float(params.get("hz", 1000))
    clock = view.columns.get("now_us"), view.columns.get("jiffies")
    facts = params | {"tick_us": 1e6 / hz} | facts
    after, before = (
        State(bbr_names.named(cls, cubic_names.named(cls, state, hz, clock), mss, hz, clock))
        for state in (after_call, before)
    )
    return Trace(cls, view, after, before, facts)
