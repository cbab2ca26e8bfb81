"""Results of a simulation: tables from counters, percentiles, traces and time series."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace import schema
from cctrace.analytic.metrics import jain
from cctrace.arguments import whole
from cctrace.cc import controller
from cctrace.cc.base import checked_params
from cctrace.display import Gridded
from cctrace.errors import ArgumentError
from cctrace.files import write_parquet
from cctrace.flows.views import View
from cctrace.sim.core.structs import QUIC, TALLY_SIZE
from cctrace.sim.core.view import LINUX_SLOTS, QUIC_SLOTS
from cctrace.sim.path import Path
from cctrace.units import format_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from cctrace.columns import Ints, Values
    from cctrace.flows.capture import Capture
    from cctrace.io.captures.packets import Packets
    from cctrace.sim.capture import Ends
    from cctrace.sim.core.world import World
    from cctrace.sim.sender import Sender

    Counters = dict[str, Values]  # over flows

_COUNTERS = (
    "n_sent", "n_retx", "n_rto", "n_undo", "drops_queue", "drops_random", "n_marked", "goodput_bytes", "rtt_sum_us",
    "rtt_count", "qdelay_sum_ns", "qdelay_count",
)  # fmt: skip
_TALLIES = ("rtt_tally", "queue_tally")
TALLY_VALUES = np.ldexp(1.0 + (np.arange(TALLY_SIZE) % 64 + 0.5) / 64, np.arange(TALLY_SIZE) // 64 - 1)


@dataclass(frozen=True)
class Simulation(Gridded):
    """The result of `simulate`.

    Attributes
    ----------
    flows : DataFrame
        One row per flow: ``cc, profile, goodput_bps, retransmit_ratio, rtt_mean_us, rtt_p95_us, queue_delay_mean_us,
        queue_delay_p95_us`` for the run, ``tail_*`` for its last 67 %, and counts: segments ``sent`` and
        ``retransmitted``, ``timeouts``, ``undos``, ``dropped`` by the queue, ``lost`` at random, ``marked`` by ECN.
    link : dict
        ``jain`` (fairness of the goodputs), ``utilisation`` (share of the rate that left the bottleneck, 0 to 1),
        ``queue_delay_mean_us``.
    timeline : DataFrame or None
        With ``sample=``: one row per instant and flow.
    path : Path
    duration_s : float
    notes : list of str
        What a reader of the figures should know: flows that may have locked each other out, marks that nobody answers.

    Examples
    --------
    >>> import cctrace as cct
    >>> path = cct.Path(rate="5Mbit", rtt="20ms", buffer="1bdp")
    >>> sim = cct.simulate(path, ["reno", "cubic6"], "2s", seed=1, sample="100ms")
    >>> list(sim.flows["cc"]), len(sim.timeline)
    (['reno', 'cubic6'], 42)
    """

    flows: pd.DataFrame
    link: dict[str, float]
    timeline: pd.DataFrame | None
    path: Path
    duration_s: float
    traces: list[View] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)
    ends: list[Ends] = field(default_factory=list, repr=False)

    def __repr__(self) -> str:
        return f"<Simulation of {', '.join(self.flows['cc'])}: {self.duration_s:g} s over {self.path!r}>"

    def _grid(self) -> tuple[str, tuple[str, ...], list[tuple[object, ...]], list[str]]:
        figures = self.flows.to_dict("records")
        rows: list[tuple[object, ...]] = [
            (
                row["cc"],
                f"{row['tail_goodput_bps'] / 1e6:.3f} Mbit/s",
                format_percent(row["tail_retransmit_ratio"], 3),
                f"{row['tail_rtt_mean_us'] / 1000:.2f} ms",
                f"{row['tail_queue_delay_mean_us'] / 1000:.2f} ms",
            )
            for row in figures
        ]
        fair = f"fairness {jain(self.flows['tail_goodput_bps']):.3f}"
        used = f"utilisation over the whole run {format_percent(self.link['utilisation'], 1)}"
        columns = ("controller", "goodput", "retransmitted", "RTT", "queue")
        return f"Simulation: last 67 % of {self.duration_s:g} s; {fair}; {used}", columns, rows, self.notes

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the timeline, or `flows` where there is none, as Parquet; returns the rows written."""
        return write_parquet(path, self.flows if self.timeline is None else self.timeline)

    def flow(self, index: int = 0) -> View:
        """Return the trace of a flow (of a simulation with ``trace=True``), for `replay` and analysis."""
        if not self.traces:
            raise ArgumentError("this simulation kept no events; run simulate(..., trace=True)")
        if whole("index", index) >= len(self.traces):
            raise ArgumentError(f"flow {index}: the simulation has {len(self.traces)}")
        return self.traces[index]

    def to_pcap(
        self, file: str | os.PathLike[str], side: str = "sender", flow: int | None = None, tso: bool = False
    ) -> int:
        """Write what a capture at one end would hold (of a simulation with ``packets=True``).

        A nanosecond pcap of raw IP, headers without payload but with the lengths of what was sent; time begins at one
        second. Flow k is 10.0.0.(k+1) port 50000+k to 10.1.0.1 port 5201. Segments are as on the wire, unless `tso`.

        Parameters
        ----------
        file : str or os.PathLike
        side : "sender" or "receiver"
            Of all flows: each sender's own packets, or what reached the receivers.
        flow : int, optional
            Only this one.
        tso : bool
            The sender's device cuts segments: each super-packet is one packet, as a capture at the host shows it.

        Returns
        -------
        int
            Packets written.

        Raises
        ------
        ArgumentError
            If packets were not kept, a flow is QUIC, or `tso` is asked for at the receiver.
        """
        from cctrace.io.write import write_pcap

        return write_pcap([self._packets(side, flow, tso)], file)

    def capture(self, flow: int | None = None, side: str = "sender") -> Capture:
        """Return the capture that `to_pcap` would write (of a simulation with ``packets=True``), as a `Capture`.

        Raises
        ------
        ArgumentError
            As `to_pcap`.
        """
        from cctrace.flows.capture import Capture

        return Capture(self._packets(side, flow))

    def _packets(self, side: str, flow: int | None, tso: bool = False) -> Packets:
        from cctrace.sim.capture import packets

        if not self.ends:
            raise ArgumentError("this simulation kept no packets; run simulate(..., packets=True)")
        return packets(self.ends, side, flow, tso)


class Recorder:
    """Collects the calls of one flow in pieces, while the simulation runs."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.names = schema.names(schema.LINUX_VIEW if kind == "linux" else schema.QUIC_VIEW)
        self.slots = LINUX_SLOTS if kind == "linux" else QUIC_SLOTS
        self.pieces: list[Ints] = []

    def take(self, rows: Ints) -> None:
        """Keep a copy of rows of the trace buffer."""
        self.pieces.append(rows[:, : 1 + self.slots + len(self.names)].T.copy())

    def view(self) -> View:
        """Return what was collected as a `View`."""
        rows = np.concatenate(self.pieces, axis=1)
        columns = dict(zip(self.names, rows[1 + self.slots :], strict=True))
        if self.kind == "linux":
            carried = dict(zip(schema.LINUX_CARRIED.values(), rows[1:], strict=False))
        else:
            carried = {"app_limited": rows[3]}
        return View(self.kind, rows[0], columns, carried)


def tail_start_ns(duration_ns: int) -> int:
    """Where the figures `tail_*` begin: at 33 % of the duration, as in the golden vectors' tables."""
    return duration_ns * 33 // 100


def counters(world: World) -> Counters:
    """Return a copy of all counters: {name: array over flows}."""
    f = world.columns
    taken = {name: f[name].copy() for name in _COUNTERS}
    return taken | {name: np.array([world.array(address) for address in f[name].tolist()]) for name in _TALLIES}


def table(
    flows: Sequence[Sender], world: World, first: Counters | None, totals: Counters, duration_ns: int
) -> pd.DataFrame:
    """Return the table `Simulation.flows`; see `rows_of`."""
    import pandas as pd

    return pd.DataFrame(rows_of(flows, world, first, totals, duration_ns))


def rows_of(
    flows: Sequence[Sender], world: World, first: Counters | None, totals: Counters, duration_ns: int
) -> list[dict[str, Any]]:
    """Return the rows of `Simulation.flows` from the counters where the tail begins (None: without it) and at the end.

    Numbers as `table` has them, for which pandas is not imported.
    """
    rows = []
    for k, flow in enumerate(flows):
        is_quic = world.columns["profile"][k] == QUIC
        row: dict[str, Any] = {"cc": flow.name, "profile": "quic" if is_quic else flow.profile}
        row |= _figures({n: c[k] for n, c in totals.items()}, duration_ns)
        if first is not None:
            tail = _figures(
                {n: c[k] - first[n][k] for n, c in totals.items()}, duration_ns - tail_start_ns(duration_ns)
            )
            row |= {f"tail_{name}": value for name, value in tail.items()}
        counts = ("n_sent", "n_retx", "n_rto", "n_undo", "drops_queue", "drops_random", "n_marked")
        names = ("sent", "retransmitted", "timeouts", "undos", "dropped", "lost", "marked")
        rows.append(row | {name: int(totals[c][k]) for name, c in zip(names, counts, strict=True)})
    return rows


def notes(path: Path, flows: Sequence[Sender], world: World) -> list[str]:
    """Return the list `Simulation.notes`."""
    found = path.notes()
    exact = [k for k, f in enumerate(world.flows) if f.ack_late_ns == 0 and f.q_late_ns == 0]
    if len(exact) > 1 and not path.has_jitter:
        found.append(
            f"{len(exact)} flows on exact clocks and a path without jitter: they may lock each other out of the queue, "
            "which says nothing about their controllers; give the path jitter, for example 'normal:sd=0.1ms'"
        )
    for k, flow in enumerate(flows):
        if flow.ecn and (why := _unanswered(flow, path)):
            found.append(f"flow {k} ({flow.name}) does not answer ECN marks: {why}")
    return found


def _unanswered(flow: Sender, path: Path) -> str:
    """Return why a flow with ECN does not answer marks, or an empty text."""
    cls, params = controller(flow.cc)
    if "ecn_enable" not in cls.params and cls.ecn_echo == "classic":
        return "its controller sets the window itself, and reads no marks" if cls.has_on_ack else ""
    values = checked_params(cls, params)
    if "ecn_enable" not in values:
        return ""
    if not values["ecn_enable"]:
        return "its parameter ecn_enable is off"
    limit_us = values["ecn_max_rtt_us"]
    rtt_us = (path.rtt_ns if flow.rtt_ns is None else flow.rtt_ns) // 1000
    return f"its RTT of {rtt_us} us is above ecn_max_rtt_us={limit_us}" if 0 < limit_us < rtt_us else ""


def link_figures(world: World, totals: Counters, path: Path, duration_ns: int) -> dict[str, float]:
    """Return the dict `Simulation.link`."""
    goodput = totals["goodput_bytes"]
    times, rates = path.rate_steps()
    spans = np.diff(np.minimum(np.append(times, duration_ns), duration_ns))
    capacity_bytes = float(np.dot(spans, rates)) / 8e9
    passed = np.dot(totals["qdelay_count"], world.flows.wire_bytes)
    return {
        "jain": _ratio(float(goodput.sum()) ** 2, len(goodput) * float(np.square(goodput, dtype=float).sum())),
        "utilisation": min(_ratio(float(passed), capacity_bytes), 1.0),
        "queue_delay_mean_us": _ratio(totals["qdelay_sum_ns"].sum(), totals["qdelay_count"].sum()) / 1e3,
    }


def _figures(counted: dict[str, Any], span_ns: int) -> dict[str, float]:
    return {
        "goodput_bps": counted["goodput_bytes"] * 8e9 / span_ns,
        "retransmit_ratio": _ratio(counted["n_retx"], counted["n_sent"]),
        "rtt_mean_us": _ratio(counted["rtt_sum_us"], counted["rtt_count"]),
        "rtt_p95_us": _p95(counted["rtt_tally"]),
        "queue_delay_mean_us": _ratio(counted["qdelay_sum_ns"], counted["qdelay_count"]) / 1e3,
        "queue_delay_p95_us": _p95(counted["queue_tally"]) / 1e3,
    }


def _p95(tally: Ints) -> float:
    """Return the value below which 95 % of a tally lies, to within half a step (0.8 %)."""
    total = tally.sum()
    if total == 0:
        return np.nan
    place = int(np.searchsorted(np.cumsum(tally), 0.95 * total))
    return 0.0 if place == 0 else float(TALLY_VALUES[place])


def _ratio(a: float, b: float) -> float:
    return float(a) / float(b) if b else np.nan
