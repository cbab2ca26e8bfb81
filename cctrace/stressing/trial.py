"""One history under one controller: the flow's course over time.

A compiled run without its table, as in `cctrace.sim.batch`, that stops at every sample and records a few counters.
"""

import math
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from cctrace.cc import called
from cctrace.columns import Floats, Values
from cctrace.errors import own_code
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.path import Path
from cctrace.sim.runner import Runner
from cctrace.sim.sender import Sender
from cctrace.sim.state import columns_of
from cctrace.stressing.history import History


@dataclass(frozen=True)
class Setting:
    """Constant conditions: the path without disturbances, and the senders.

    Attributes
    ----------
    cc : str or class
        The controller under stress.
    rate_bps : float
    rtt_ns : int
    buffer : str
        As in `Path`.
    against : str or None
        A competitor from the start on.
    duration_s, sample_s : float

    Examples
    --------
    >>> Setting("bbr3", rate_bps=50e6, against="cubic6").buffer
    '1bdp'
    """

    cc: Any
    rate_bps: float = 10e6
    rtt_ns: int = 40_000_000
    buffer: str = "1bdp"
    against: str | None = None
    duration_s: float = 20.0
    sample_s: float = 0.08

    @property
    def name(self) -> str:
        """The controller's name."""
        return called(self.cc)

    def path(self, history: History) -> Path:
        """Return the path of a history."""
        rates = [(at, f"{self.rate_bps * value:.0f}bit") for at, value in history.steps("rate", 1.0)]
        rtts = [(at, f"{self.rtt_ns * value / 1e6:.12g}ms") for at, value in history.steps("rtt", 1.0)]
        losses = [(at, f"{100 * value:g}%") for at, value in history.steps("loss", 0.0)]
        return Path(rate=rates, rtt=rtts, loss=losses, buffer=f"{self.buffer_bytes}B")

    @property
    def buffer_bytes(self) -> int:
        """The buffer in bytes: a BDP is that of the undisturbed path."""
        return Path(rate=self.rate_bps, rtt=f"{self.rtt_ns}ns", buffer=self.buffer).buffer_bytes

    def chunk_bytes(self, seconds: float) -> int:
        """Return what an application writes at once: the data that the undisturbed path carries in `seconds`."""
        mss, wire = Sender(self.cc).sizes
        return math.ceil(self.rate_bps / 8 * seconds / wire) * mss

    def senders(self, history: History) -> tuple[Sender, ...]:
        """Return who sends under a history: the stressed controller first."""
        app = "bulk"
        if history.app is not None:
            app = f"chunks:size={self.chunk_bytes(history.app[0])}B,every={sum(history.app):g}s"
        slot = f"{1e3 * history.hold_s:g}ms" if history.hold_s else None
        stressed = Sender(self.cc, app=app, ack_slot=slot, ack_every=2)
        return (stressed,) if self.against is None else (stressed, Sender(self.against, ack_every=2))


@dataclass(frozen=True)
class Course:
    """What happened, sample by sample."""

    time_s: Floats  # from 0 on; shape (n + 1,)
    delivered: Floats  # bytes on the wire that arrived, each segment once; shape (flows, n + 1)
    offered: Floats  # bytes that the path would have carried; shape (n + 1,)
    rtt_s: Floats  # mean RTT of the stressed flow in each interval, NaN without a sample; shape (n,)
    modes: Values  # its controller's state at each instant


def run(setting: Setting, history: History, seed: int = 1, modes: bool = False) -> Course:
    """Return the course of one run; with `modes` the states, too."""
    path, senders = setting.path(history), setting.senders(history)
    world = World(path, senders, seed, True, len(senders) == 1)
    with closing(world), own_code(setting.name):
        runner = Runner(world, "compiled", trace=False, packets=False)
        time_s = np.arange(0, setting.duration_s + setting.sample_s / 2, setting.sample_s)
        counters, states = np.zeros((len(time_s), len(senders) + 2)), []
        for k, at in enumerate(time_s):
            runner.to(FIRST_NS + round(at * 1e9))
            f = world.flows
            counters[k] = [*f.goodput_bytes * f.wire_bytes // f.mss, f.rtt_sum_us[0], f.rtt_count[0]]
            if modes:
                states.append(world.state_bytes(0))
        mss = int(world.flows.mss[0])
    names = columns_of(setting.cc, states, mss)["mode"] if modes else np.zeros(0, object)
    sums, counts = np.diff(counters[:, -2]), np.diff(counters[:, -1])
    rtt = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0) / 1e6
    return Course(time_s, counters[:, :-2].T, offered(path, time_s, history.app), rtt, names)


def offered(path: Path, time_s: Floats, app: tuple[float, float] | None) -> Floats:
    """Return the cumulative bytes that a path would have carried: rate times the share not lost at random.

    Of a pausing application only the time counts that its data take on the path; it starts after the handshake.
    """
    (rate_ns, rates), (loss_ns, losses) = path.rate_steps(), path.loss_steps()
    edges = np.union1d(np.union1d(rate_ns, loss_ns) / 1e9, time_s)
    if app is not None:
        periods = path.rtt_ns / 1e9 + np.arange(0, time_s[-1], sum(app))
        edges = np.union1d(edges, np.concatenate([periods, periods + app[0]]))
    at = edges[:-1] + np.diff(edges) / 2
    rate = rates[np.searchsorted(rate_ns / 1e9, at, side="right") - 1]
    loss = losses[np.searchsorted(loss_ns / 1e9, at, side="right") - 1]
    if app is not None:
        rate = np.where((at - path.rtt_ns / 1e9) % sum(app) < app[0], rate, 0.0)
    carried = np.concatenate([[0.0], np.cumsum(np.diff(edges) * rate * (1 - loss) / 8)])
    return np.interp(time_s, edges, carried)
