"""Closed loop: controllers drive simulated senders over a modelled path.

`simulate` sets up the memory (`sim.world`), runs the event loop (`sim.loop`, compiled by `sim.build`) in two pieces, the
first third and the rest, and turns the counters into results. A simulation says what *would have happened* on this
path; `replay` says what a controller would have *decided* on recorded ACKs.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cctrace.engine.path import Path
from cctrace.engine.sim.layout import QUIC
from cctrace.engine.sim.world import FIRST_NS, PROFILES, World
from cctrace.errors import ArgumentError
from cctrace.units import parse_size_bytes, parse_time_ns

_COUNTERS = ("n_sent", "n_retx", "goodput_segs", "rtt_sum_us", "rtt_count", "qdelay_sum_ns", "qdelay_count")


@dataclass(frozen=True)
class Flow:
    """One sender of a simulation.

    Parameters
    ----------
    cc : str or class
        Controller, ``"bbr2022"``, ``"obbr:mu=0.5"`` or a class of your own.
    start, stop : str
        When it starts and stops, from the beginning of the simulation.
    rtt : str, optional
        Base RTT of this flow, if it is not the path's.
    bytes : str, optional
        Size of the transfer; unlimited if not given.
    ack_every : int
        Segments per ACK (1: each; 2: delayed ACKs).
    ack_slot : str, optional
        ACKs leave in batches at the ends of such slots (aggregation).
    rwnd : str
        Receive window.
    profile : {"linux", "reference"}
        The stack around a Linux controller; QUIC controllers have their own.
    hz : int
        Ticks per second of the sender's kernel.
    """

    cc: object
    start: str = "0s"
    stop: str | None = None
    rtt: str | None = None
    bytes: str | None = None
    ack_every: int = 1
    ack_slot: str | None = None
    rwnd: str = "64MB"
    profile: str = "linux"
    hz: int = 1000
    push_late: str = "0ms"

    def __post_init__(self):
        if self.profile not in PROFILES:
            raise ArgumentError(f"profile={self.profile!r}: use {' or '.join(PROFILES)}")
        if not isinstance(self.ack_every, int) or self.ack_every < 1:
            raise ArgumentError(f"ack_every={self.ack_every!r} must be a positive integer")

    @property
    def start_ns(self):
        """Start, ns."""
        return parse_time_ns(self.start)

    @property
    def stop_ns(self):
        """Stop, ns, or None."""
        return None if self.stop is None else parse_time_ns(self.stop)

    @property
    def rtt_ns(self):
        """Base RTT, ns, or None for the path's."""
        return None if self.rtt is None else parse_time_ns(self.rtt)

    @property
    def rwnd_bytes(self):
        """Receive window, bytes."""
        return parse_size_bytes(self.rwnd)

    @property
    def ack_delay_ns(self):
        """How long the receiver holds a lone ACK back, ns."""
        return 40_000_000

    @property
    def ack_slot_ns(self):
        """Aggregation slot, ns, 0 for none."""
        return 0 if self.ack_slot is None else parse_time_ns(self.ack_slot)

    @property
    def push_late_ns(self):
        """How late a QUIC push timer may fire, ns."""
        return parse_time_ns(self.push_late)

    def app_segments(self, mss, unlimited):
        """Return the size of the transfer in segments."""
        return unlimited if self.bytes is None else -(-parse_size_bytes(self.bytes) // mss)


@dataclass
class Simulation:
    """The result of `simulate`.

    Attributes
    ----------
    flows : DataFrame
        One row per flow: cc, goodput_bps, retransmit_ratio, rtt_mean_us, queue_delay_mean_us, ... and the same for the
        last two thirds of the run as ``tail_*``.
    path : Path
    duration_s : float
    """

    flows: pd.DataFrame
    path: Path
    duration_s: float


def simulate(path, flows, duration="60s", seed=1, *, compiled=True, **common):
    """Run controllers over a path.

    Parameters
    ----------
    path : Path
    flows : str, class, Flow or sequence of these
    duration : str
    seed : int
    compiled : bool
        False runs the same code interpreted (for debugging; about a thousand times slower).
    **common
        Fields of `Flow` that hold for all flows, for example ``ack_every=2``.

    Returns
    -------
    Simulation

    Raises
    ------
    ArgumentError
        For a wrong quantity, an unknown controller or parameter.
    """
    duration_ns = parse_time_ns(duration)
    if duration_ns <= 0:
        raise ArgumentError(f"duration={duration!r} must be positive")
    flows = [flows] if isinstance(flows, str | Flow | type) else list(flows)
    flows = [replace(f, **common) if isinstance(f, Flow) else Flow(f, **common) for f in flows]
    world = World(path, flows, seed, compiled)
    try:
        tail_ns = FIRST_NS + duration_ns // 3
        run = _runner(compiled)
        run(world.worlds, tail_ns)
        first = _counters(world)
        run(world.worlds, FIRST_NS + duration_ns)
        whole = _counters(world)
        table = pd.DataFrame(
            [_row(flow, f, k, first, whole, duration_ns) for k, (flow, f) in enumerate(zip(flows, world.flows))]
        )
    finally:
        world.close()
    return Simulation(table, path, duration_ns / 1e9)


def _runner(compiled):
    if compiled:
        from cctrace.engine.sim.build import compiled_run

        return compiled_run()
    from cctrace.engine.sim.loop import run

    return lambda worlds, until: run(worlds[0], until)


def _counters(world):
    return {name: world.flows[name].copy() for name in _COUNTERS}


def _row(flow, f, k, first, whole, duration_ns):
    row = {"cc": flow.cc if isinstance(flow.cc, str) else flow.cc.__name__, "profile": f.profile}
    tail = {name: whole[name][k] - first[name][k] for name in _COUNTERS}
    for prefix, counted, span in (
        ("", {name: whole[name][k] for name in _COUNTERS}, duration_ns),
        ("tail_", tail, duration_ns - duration_ns // 3),
    ):
        row[prefix + "goodput_bps"] = counted["goodput_segs"] * int(f.mss) * 8e9 / span
        row[prefix + "retransmit_ratio"] = _ratio(counted["n_retx"], counted["n_sent"])
        row[prefix + "rtt_mean_us"] = _ratio(counted["rtt_sum_us"], counted["rtt_count"])
        row[prefix + "queue_delay_mean_us"] = _ratio(counted["qdelay_sum_ns"], counted["qdelay_count"]) / 1e3
    row["profile"] = "quic" if f.profile == QUIC else flow.profile
    return row | {name: int(getattr(f, name)) for name in ("n_sent", "n_retx", "n_rto", "n_undo")}


def _ratio(a, b):
    return float(a) / float(b) if b else np.nan
