"""Closed loop: controllers drive simulated senders over a modelled path.

`simulate` sets up the memory (`sim.core.world`), runs the event loop (`sim.core.loop`, compiled by `lang.machine`) from
one instant of interest to the next, and turns the counters into results (`sim.result`). A simulation says what *would
have happened* on this path; `replay` says what a controller would have *decided* on recorded ACKs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import as_list, check_argument, check_choice, flag, short_repr, whole
from cctrace.cc import controller
from cctrace.columns import frame_of
from cctrace.errors import ArgumentError
from cctrace.lang.fields import MODES, fields_of
from cctrace.sim.capture import ends
from cctrace.sim.core.structs import QUIC
from cctrace.sim.core.view import CWND, PACING, Q_PACING
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.path import Path
from cctrace.sim.result import Simulation, counters, link_figures, notes, table, tail_start_ns
from cctrace.sim.runner import Runner
from cctrace.sim.sender import Sender
from cctrace.sim.state import columns_of, field_of
from cctrace.units import parse_size_bytes, parse_time_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from cctrace.cc.base import Controller
    from cctrace.columns import Floats, Values

_SAMPLED = (  # fields of a flow that a sample needs
    "profile", "mss", "nxt", "una", "sacked_out", "lost_out", "retrans_out", "q_in_flight", "goodput_bytes",
    "q_avg_rtt", "srtt", "rtt_sum_us", "n_sent", "n_retx",
)  # fmt: skip
_SLOTS = max(CWND, PACING, Q_PACING) + 1  # of a controller's record, which the stack knows


class _Sample:
    """What holds at an instant, as it lies in memory: thousands are taken, and made into columns together."""

    def __init__(self, world: World, at_ns: int) -> None:
        self.at_ns, self.queue_delay_ns = at_ns, world.queue_delay_ns(at_ns)
        self.counters = np.array([world.columns[name] for name in _SAMPLED])
        self.states = [world.state_bytes(k) for k in range(len(world.columns))]  # the controllers' records


def simulate(
    path: Path,
    flows: str | type[Controller] | Sender | Sequence[str | type[Controller] | Sender],
    duration: str = "60s",
    seed: int = 1,
    *,
    until: str | None = None,
    mode: str = "compiled",
    sample: str | None = None,
    watch: str | Sequence[str] = (),
    trace: bool = False,
    untraced: Sequence[str] = (),
    packets: bool = False,
    exact: bool = False,
    **common: Any,
) -> Simulation:
    """Run controllers over a path.

    Parameters
    ----------
    path : Path
    flows : str, class, Sender or sequence of these
    duration : str
    seed : int
        The same seed gives the same numbers, whatever the mode.
    until : str, optional
        Ends earlier, as soon as one flow has delivered so much in order: ``"1GB"``. `Simulation.flows` then has no
        columns ``tail_*``.
    mode : "compiled", "interpreted" or "debug"
        Interpreted obeys breakpoints and is about a thousand times slower; debug also checks after every event that
        what was sent is delivered, lost or in flight.
    sample : str, optional
        Period at which to note the queue, the flows' windows and what their controllers hold: ``"10ms"``.
    watch : sequence of str
        With `sample`: fields of the controllers to note too, for example ``("min_rtt_us", "bw_v")``; of an array its
        first element (of a filter: the best), NaN for a controller without such a field.
    trace : bool
        Keep every call into the controllers, for `Simulation.flow`; takes some 500 bytes per ACK.
    untraced : sequence of str
        With `trace`: calls left out, by their names in `schema.EVENT_CODES`.
    packets : bool
        Keep what captures at both ends would see, for `Simulation.to_pcap`; takes some 100 bytes per segment.
    exact : bool
        Clocks of several flows over a path without jitter are exact, so that they may lock each other out; by default
        a sender takes up each ACK late, by up to the time the bottleneck needs for a packet [Floyd92], and a QUIC
        push timer fires up to 1 ms late. Profile reference is always exact, and so is a flow that is alone.
    **common
        Fields of `Sender` that hold for all flows, for example ``ack_every=2``.

    Returns
    -------
    Simulation
        `flows` has a row per sender; `timeline`, traces and packets are kept if asked for.

    Raises
    ------
    ArgumentError
        For a wrong quantity, an unknown controller or parameter.

    Examples
    --------
    >>> from cctrace.sim.path import Path
    >>> path = Path(rate="1Mbit", rtt="40ms", buffer="2bdp")
    >>> one = simulate(path, "reno", duration="1s", mode="interpreted")
    >>> one.flows.cc[0], bool(one.flows.goodput_bps[0] < 1e6)
    ('reno', True)
    """
    duration_ns, sample_ns, until_bytes = _lengths(duration, sample, until)
    check_choice("mode", mode, MODES)
    check_argument(isinstance(path, Path), "path", path, "a cctrace.Path, for example cctrace.Path(rate='40Mbit')")
    given = as_list(flows)
    if not given:
        raise ArgumentError("flows is empty; give at least one controller")
    watch = as_list(watch)
    senders = [replace(f, **common) if isinstance(f, Sender) else Sender(f, **common) for f in given]
    if watch:
        _check_watched(watch, senders, sample)
    trace, packets = flag("trace", trace), flag("packets", packets)
    exact = flag("exact", exact) or len(senders) == 1 or path.has_jitter
    world = World(path, senders, whole("seed", seed), mode == "compiled", exact)
    try:
        run = Runner(world, mode, trace, packets, untraced=untraced)
        if until_bytes is not None:
            world.flows.awaited = until_bytes
        tail_ns = tail_start_ns(duration_ns)
        first, samples = None, []
        for at in stops(duration_ns, tail_ns, sample_ns):
            reached_ns = run.to(FIRST_NS + at) - FIRST_NS
            if reached_ns < at:
                duration_ns = reached_ns
                break
            if at == tail_ns and until is None:
                first = counters(world)
            if sample_ns and at % sample_ns == 0:
                samples.append(_Sample(world, at))
        totals = counters(world)
        missed = [f"until={until!r} was not delivered in {duration!r}"] if until is not None and not run.there() else []
        return Simulation(
            table(senders, world, first, totals, duration_ns),
            link_figures(world, totals, path, duration_ns),
            _timeline(samples, watch, senders, world) if samples else None,
            path,
            duration_ns / 1e9,
            [recorder.view() for recorder in run.recorders],
            notes(path, senders, world) + missed,
            [ends(f, rows) for f, rows in zip(world.flows, run.packets, strict=False)],
        )
    finally:
        world.close()


def _lengths(duration: str, sample: str | None, until: str | None) -> tuple[int, int, int | None]:
    """Return how long a run lasts and the period of its samples (0: none), ns, and what it has to deliver, bytes."""
    duration_ns = parse_time_ns(duration, "duration")
    sample_ns = 0 if sample is None else parse_time_ns(sample, "sample")
    if duration_ns <= 0 or (sample is not None and sample_ns <= 0):
        raise ArgumentError(f"duration={duration!r} and sample={sample!r} must be positive")
    until_bytes = None if until is None else parse_size_bytes(until, name="until")
    if until_bytes is not None and until_bytes <= 0:
        raise ArgumentError(f"until={until!r} must be positive")
    return duration_ns, sample_ns, until_bytes


def stops(duration_ns: int, tail_ns: int, sample_ns: int) -> list[int]:
    """Return the instants at which a run is looked at, ns: the end, where its tail begins, and each sample."""
    found = {tail_ns, duration_ns}
    if sample_ns:
        found.update(range(0, duration_ns + 1, sample_ns))
    return sorted(found)


def _check_watched(watch: Sequence[str], flows: Sequence[Sender], sample: str | None) -> None:
    known = set().union(*(fields_of(controller(flow.cc)[0]) for flow in flows))
    for name in watch:
        if not isinstance(name, str) or name not in known:
            raise ArgumentError(
                f"watch={short_repr(name)} is a field of no controller here; there are: {', '.join(sorted(known))}"
            )
    if sample is None:
        raise ArgumentError("watch needs sample, the period at which to look")


def _timeline(samples: Sequence[_Sample], watch: Sequence[str], flows: Sequence[Sender], world: World) -> pd.DataFrame:
    """Return the samples as a table: a row per instant and flow."""
    f = dict(zip(_SAMPLED, np.stack([sample.counters for sample in samples], axis=1), strict=True))
    quic = f["profile"] == QUIC
    out = f["nxt"] - f["una"] - f["sacked_out"] - f["lost_out"] + f["retrans_out"]
    states = [[sample.states[k] for sample in samples] for k in range(len(flows))]
    slots = np.stack(
        [np.frombuffer(b"".join(one), np.int64).reshape(len(samples), -1)[:, :_SLOTS] for one in states], 1
    )
    cwnd = slots[:, :, CWND]  # in bytes for a QUIC controller
    table = {
        "time_s": _of_all([sample.at_ns / 1e9 for sample in samples], flows),
        "flow": np.broadcast_to(np.arange(len(flows)), quic.shape),
        "queue_delay_us": _of_all([sample.queue_delay_ns / 1e3 for sample in samples], flows),
        "cwnd_segments": np.where(quic, cwnd // f["mss"], cwnd),
        "pacing_rate_Bps": np.where(quic, slots[:, :, Q_PACING], slots[:, :, PACING]),
        "in_flight_segments": np.where(quic, f["q_in_flight"] // f["mss"], out),
        **counts_of(f),
        **{
            name: np.stack([field_of(flow.cc, one, name) for flow, one in zip(flows, states, strict=True)], 1)
            for name in watch
        },
    }
    parts = [
        columns_of(flow.cc, one, int(world.flows[k].mss))
        for k, (flow, one) in enumerate(zip(flows, states, strict=True))
    ]
    state = {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0] if name not in table}
    return frame_of({name: values.ravel() for name, values in (table | state).items()})


def _of_all(values: Sequence[float], flows: Sequence[Sender]) -> Floats:
    """Return values of instants, the same for each flow."""
    return np.repeat(np.array(values)[:, None], len(flows), axis=1)


def counts_of(f: Mapping[str, Values] | NDArray[np.void]) -> dict[str, Values]:
    """Return what was delivered and sent so far, and the RTTs, of columns of FLOW records: {column: one per flow}."""
    return {
        "delivered_segments": f["goodput_bytes"] // f["mss"],
        "srtt_us": np.where(f["profile"] == QUIC, f["q_avg_rtt"] * 1000, f["srtt"] // 8),
        "rtt_sum_us": f["rtt_sum_us"].copy(),
        "sent_segments": f["n_sent"].copy(),
        "retransmitted_segments": f["n_retx"].copy(),
    }
