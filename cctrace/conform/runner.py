"""Where a specification's cases run: one controller, one path, and the runs made so far."""

from dataclasses import dataclass, field
from typing import Any

from cctrace.cc import called, controller
from cctrace.cc.base import Controller, checked_params
from cctrace.conform.trace import Trace, trace_of
from cctrace.errors import ArgumentError, own_code
from cctrace.sim.path import Path
from cctrace.sim.result import Simulation
from cctrace.sim.scenario import Scenario
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate
from cctrace.tcp.wire import HEADER_BYTES
from cctrace.units import parse_rate_bps, parse_time_ns

MIN_RWND = 1_000_000  # bytes; the receiver must not be the limit
MIN_BUFFER_PACKETS = 20
RATE_OF_TRAINS, TRAIN = 1e9, 8948  # bit/s from which a segment of this size, bytes, stands for a train of packets
BUFFER_BDPS = 3.0  # a queue that Startup does not overflow


@dataclass(frozen=True)
class Cell:
    """A rate and an RTT at which cases run; a large `mss` represents trains of packets where the rate is high."""

    rate: str
    rtt: str
    mss: int = 1448
    ack_every: int = 1

    @property
    def rate_bps(self) -> float:
        """Rate on the wire."""
        return parse_rate_bps(self.rate, "rate")

    @property
    def rtt_s(self) -> float:
        """Base RTT."""
        return parse_time_ns(self.rtt, "rtt") / 1e9

    @property
    def payload_Bps(self) -> float:
        """Rate of payload, bytes/s."""
        return self.rate_bps / 8 * self.mss / (self.mss + HEADER_BYTES)

    @property
    def bdp(self) -> float:
        """Segments that fill the path."""
        return self.payload_Bps * self.rtt_s / self.mss

    def __str__(self) -> str:
        return f"{self.rate}/{self.rtt}"


@dataclass
class Runner:
    """One controller on one cell: `trace` runs it, and caches the runs that several cases look at."""

    subject: str | type[Controller]
    cell: Cell
    seed: int = 1
    traces: dict[Any, Trace] = field(default_factory=dict)

    @property
    def settled_s(self) -> float:
        """Seconds after which a bulk flow has filled the pipe and left Drain, generously."""
        round_s = max(self.cell.rtt_s, 16 * 8 * self.cell.mss / self.cell.rate_bps)  # a window of some packets is least
        return 40 * round_s + 0.5

    @property
    def plain_s(self) -> float:
        """Seconds of a run that reaches every state: filled, two waits for a probe, ProbeRTT."""
        return self.settled_s + 9 + 12 * self.cell.rtt_s

    @property
    def plain(self) -> Trace:
        """The run of a bulk flow on the bare path."""
        return self.trace(self.plain_s, keep=True)

    def trace(
        self,
        seconds: float,
        *,
        path: dict[str, Any] | None = None,
        sender: dict[str, Any] | None = None,
        keep: bool = False,
    ) -> Trace:
        """Return the trace of a run of `seconds`, with fields of `Path` and `Sender` changed.

        A trace is large (a kilobyte per call): `keep` only those that another case needs, too.
        """
        key = (round(seconds, 6), repr(path), repr(sender))
        if key in self.traces:
            return self.traces[key]
        cell, (cls, given) = self.cell, controller(self.subject)
        run = self._simulated(seconds, path, sender)
        facts = {"mss": float(cell.mss), "rate_Bps": cell.payload_Bps}
        r = trace_of(run.flow(0), cls, checked_params(cls, given), facts)
        if keep:
            self.traces[key] = r
        return r

    def on_the_wire(
        self, seconds: float, *, path: dict[str, Any] | None = None, sender: dict[str, Any] | None = None
    ) -> Trace:
        """Return the trace of a capture of such a run, at the sender."""
        from cctrace.conform.wire import trace_of_flow

        return trace_of_flow(self._simulated(seconds, path, sender, packets=True).capture(0).flow(0))

    def _simulated(
        self, seconds: float, path: dict[str, Any] | None, sender: dict[str, Any] | None, packets: bool = False
    ) -> Simulation:
        cell = self.cell
        packet = cell.mss + HEADER_BYTES
        buffer = max(BUFFER_BDPS * cell.rate_bps / 8 * cell.rtt_s, MIN_BUFFER_PACKETS * packet)
        base = {"rate": cell.rate, "rtt": cell.rtt, "buffer": f"{int(buffer)}B"}
        common: dict[str, Any] = {}
        if controller(self.subject)[0].view == "linux":  # the QUIC stack has its own datagrams, ACKs and limits
            rwnd = int(max(MIN_RWND, 40 * cell.rate_bps / 8 * cell.rtt_s))
            common = {"mss": cell.mss, "ack_every": cell.ack_every, "rwnd": f"{rwnd}B"}
        senders = (Sender(self.subject, **(common | (sender or {}))),)
        scenario = Scenario(Path(**(base | (path or {}))), senders, f"{seconds:.6f}s", self.seed)
        return simulated(f"{called(self.subject)} on {cell}", scenario, packets)


def simulated(what: str, scenario: Scenario, packets: bool, sender: int = 0) -> Simulation:
    """Return the simulation of a scenario, with packets or with a trace of each controller's calls.

    Raises `ArgumentError`, which begins with `what`, if a controller raises, or if the `sender` sends nothing.
    """
    cls, _ = controller(scenario.senders[sender].cc)
    # With every ACK the stack calls both: half the rows, where a class decides in `on_ack` only.
    untraced = ("pkts_acked",) if cls.has_on_ack and not hasattr(cls, "pkts_acked") else ()
    with own_code(what):
        given = scenario.path, scenario.senders, scenario.duration, scenario.seed
        run = simulate(*given, trace=not packets, untraced=untraced, packets=packets)
    if not int(run.flows["sent"].iloc[sender]):
        raise ArgumentError(f"{what} sent nothing in {run.duration_s:.3g} s: does it set snd_cwnd and pacing_rate?")
    return run
