"""Flows of captures, counters and simulations, in a common form for expectations.

`Subject.row` has the figures of `Capture.flows` for any kind of flow; costlier results are computed once, on first use.
"""

import functools
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from cctrace.analysis.flow_analysis import FlowAnalysis
from cctrace.analysis.one_flow import of_capture, of_counters
from cctrace.cc import controller
from cctrace.columns import Ints, Values
from cctrace.display import connection
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.capture import Capture, read
from cctrace.flows.counters import CounterFlow, CounterTable
from cctrace.flows.flow import Flow
from cctrace.flows.table import retransmitted_share
from cctrace.sim.result import Simulation
from cctrace.sim.scenario import Scenario
from cctrace.sim.simulate import simulate

Series = tuple[Ints, Values]  # ns, bytes (of a simulation segments) acknowledged until then
SCENARIO = ".toml"
SAMPLE = "100ms"  # of a simulation: `figures.BIN_NS`
NO_PACKETS = "the simulation kept no packets: use simulate(..., packets=True)"


@dataclass(frozen=True)
class Subject:
    """One flow."""

    file: str  # where it is from
    flow: Flow | CounterFlow | None  # None of a simulation that kept no packets
    simulated: tuple[Simulation, int] | None = None

    @property
    def ends(self) -> list[tuple[str | None, int | None]]:
        """Address and port of both ends; empty for a simulated flow without packets."""
        if self.flow is None:
            return []
        src, sport, dst, dport = self.flow.key
        return [(src, sport), (dst, dport)]

    @property
    def title(self) -> str:
        """What a table calls the flow."""
        if self.simulated is not None:
            simulation, k = self.simulated
            return f"{k}: {simulation.flows['cc'][k]}"
        return connection(*self.flow.key) if self.flow is not None else ""

    @functools.cached_property
    def row(self) -> dict[str, Any]:
        """``bytes_sent``, ``goodput_bps`` and ``retransmitted_share``, among others."""
        if self.simulated is not None:
            simulation, k = self.simulated
            found: dict[str, Any] = {str(name): value for name, value in simulation.flows.iloc[k].to_dict().items()}
            carried = found["goodput_bps"] * simulation.duration_s / 8
            return found | {"bytes_sent": carried, "retransmitted_share": found["retransmit_ratio"]}
        assert self.flow is not None
        return self.flow.row | {"retransmitted_share": float(retransmitted_share(self.flow.row))}

    @property
    def rtt_p95_us(self) -> Any:
        """The RTT's 95th percentile as the sender's TCP took it, also where the flow was captured elsewhere."""
        if isinstance(self.flow, Flow) and self.simulated is None and self.flow.taken_at != "sender":
            return self.analysis.row["rtt_p95_us"]
        return self.row["rtt_p95_us"]

    @functools.cached_property
    def analysis(self) -> FlowAnalysis:
        """Sender and limits of the flow: the result of `analyze`, without forecast and effects.

        Raises `StreamError` if no packets were kept.
        """
        if self.flow is None:
            raise StreamError(NO_PACKETS)
        if isinstance(self.flow, CounterFlow):
            return of_counters(self.file, self.flow)
        return of_capture(self.file, self.flow)

    def acked(self) -> Series:
        """Return when how many bytes were acknowledged, from the flow's first packet to its last progress.

        Raises `StreamError` if a simulation kept neither packets nor samples, or counters do not tell.
        """
        if isinstance(self.flow, CounterFlow):
            time_ns, acked = self.flow.acked()
            if len(time_ns) < 2 or not self.flow.is_timed:
                raise StreamError("the counters do not show when data were acknowledged")
        elif self.flow is not None:
            rows = self.flow.events
            time_ns = np.append(int(self.flow.row["start_ns"]), rows["time_ns"])
            acked = np.append(0, np.maximum.accumulate(np.maximum(rows["snd_una"] - 1, 0)))  # no byte: the SYN
        elif self.simulated is not None and (table := self.simulated[0].timeline) is not None:
            mine = table[table["flow"] == self.simulated[1]]
            time_ns, acked = (mine["time_s"].to_numpy() * 1e9).astype(np.int64), mine["delivered_segments"].to_numpy()
        else:
            raise StreamError("the simulation kept neither packets nor samples: use simulate(..., sample='100ms')")
        grows = np.flatnonzero(np.diff(acked) > 0)
        if not len(grows):
            raise StreamError("nothing was acknowledged")
        begin = int(grows[0]) if self.simulated is not None else 0
        return time_ns[begin : grows[-1] + 2], acked[begin : grows[-1] + 2]


def subjects_of(source: Any, name: str | None) -> list[Subject]:
    """Return the flows of a file, or of what `read` and `simulate` return.

    `source`: a path that ends in SCENARIO names a scenario to simulate (`cctrace.sim.scenario`). `name`: becomes the
    flows' `file`; None: the source's own name. Raises `FormatError` if a file cannot be read. Raises
    `ArgumentError` if it holds no flows.
    """
    if isinstance(source, str | os.PathLike):
        file = os.fspath(source)
        name, source = name or file, _of_scenario(file) if file.endswith(SCENARIO) else read(source)
    if isinstance(source, Simulation):
        return _simulated(source, name or "simulation")
    if isinstance(source, Flow | CounterFlow):
        return [Subject(name or _source(source), source)]
    if isinstance(source, Capture):
        return [Subject(name or _source(source.flow(k)), source.flow(k)) for k in range(len(source))]
    if isinstance(source, CounterTable):
        return [Subject(name or str(source.source), source.flow(k)) for k in range(len(source.connections))]
    kind = type(source).__name__
    raise ArgumentError(f"source={kind}: a capture, counters, a flow of one, a simulation, or a file or folder of them")


def _of_scenario(file: str) -> Simulation:
    """Return the simulation of a scenario, with packets of TCP and samples of QUIC."""
    one = Scenario.read(file)
    quic = any(controller(sender.cc)[0].view == "quic" for sender in one.senders)
    return simulate(one.path, one.senders, one.duration, one.seed, packets=not quic, sample=SAMPLE)


def _source(flow: Flow | CounterFlow) -> str:
    return str(flow.capture.packets.source if isinstance(flow, Flow) else flow.table.source)


def _simulated(simulation: Simulation, name: str) -> list[Subject]:
    """Return the flows of a simulation, with their packets where those were kept."""
    flows: list[Flow | None] = [None] * len(simulation.flows)
    for k, end in enumerate(simulation.ends):
        if end.rows is not None and len(end.rows):
            flows[k] = simulation.capture(k).flow(0)
    return [Subject(name, flow, (simulation, k)) for k, flow in enumerate(flows)]
