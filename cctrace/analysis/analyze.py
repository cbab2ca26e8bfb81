"""Analysis of the bulk flows of captures, as in `cctrace analyze`, before printing or drawing."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cctrace.analysis.flow_analysis import FlowAnalysis
from cctrace.analysis.inputs import Counters, Input
from cctrace.analysis.one_flow import of_capture, of_counters, sender_to_simulate, senders_to_simulate
from cctrace.arguments import MAX_WORKERS, check_argument, check_choice, check_progress, paths_of, whole
from cctrace.cc import controller as resolve
from cctrace.cc import is_model_based
from cctrace.columns import give_back
from cctrace.diagnosis import GOALS
from cctrace.display import Progress, silent
from cctrace.errors import ArgumentError, StreamError
from cctrace.fit.collapse import Collapse
from cctrace.fit.fitted_path import path_of
from cctrace.flows.counters import CounterFlow, title_of
from cctrace.flows.flow import Flow
from cctrace.flows.large import FLOWS_PER_PROCESS, after_long, is_long
from cctrace.lang.threads import ahead, cores
from cctrace.path.evidence import PathEvidence, evidence_of, forget
from cctrace.refusals import KILLED, Attempt, Refusal
from cctrace.units import format_rate, format_share

if TYPE_CHECKING:
    from cctrace.counterfactual.whatif import WhatIf
    from cctrace.identification.identify import Identification

    File = str | os.PathLike[str]
    Key = tuple[str, int, str, int]  # src, sport, dst, dport

FORECASTS = 20  # flows, a second each
SIMULATED = 8  # flows whose causes are simulated, two seconds each
NO_PACKETS = Refusal("what-if", "the kernel's counters alone show no packets: a capture at the sender is needed")
COLLAPSE = "forecast of minRTT collapse"
EFFECTS = "effect of each cause"
IDLE = 0.01  # of the path's rate: no controller with data to send gets less


@dataclass(frozen=True)
class _Request:
    """Options for every flow, see `analyze`."""

    controller: str | None
    what_if: bool | Callable[[Flow, Progress], WhatIf] | None
    keep: Callable[[Flow], object] | None
    identifications: Mapping[Key, Identification | None] | None
    goal: str | None
    progress: Progress
    workers: int
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


def analyze(
    files: File | Sequence[File],
    tcpinfo: File | Iterable[File] = (),
    controller: str | None = None,
    progress: Progress = silent,
    what_if: bool | Callable[[Flow, Progress], WhatIf] | None = None,
    keep: Callable[[Flow], object] | None = None,
    identifications: Mapping[Key, Identification | None] | None = None,
    effects: bool = True,
    goal: str = "goodput",
    workers: int | None = None,
    **options: Any,
) -> list[FlowAnalysis]:
    """Analyse the bulk flows of captures, or of counters alone.

    Parameters
    ----------
    files : sequence of path
        Captures, taken at the sender; or counters of connections without a capture.
    tcpinfo : sequence of path
        The kernel's counters for any of the flows.
    controller : str, optional
        The controller to replay over every flow; by default the one named by a flow's counters, if any, and none
        over counters alone.
    progress : callable
        Receives lines of progress.
    what_if : bool or callable, optional
        True: quantify the first verdict's advice (some seconds a flow); or ``function(flow, progress)``, which
        returns a `WhatIf`.
    keep : callable, optional
        Receives each flow of a file too large to hold all its packets, and returns what to keep of them.
    identifications : dict of (str, int, str, int) to Identification or None, optional
        Analyse only these flows of captures, by (src, sport, dst, dport), without a forecast; known identifications
        are reused. Counters that belong to none of them are not an error.
    effects : bool
        Simulate the cost of each cause, and order the verdicts by it (a second or two a flow, for the first 8).
    goal : {"goodput", "delay", "loss"}
        Primary objective of the order of verdicts.
    workers : int, optional
        Processes that share the flows of a file after the first 8, if they are many; default: one per core. The
        results are the same.
    options
        `limit`, `decapsulate` of `cctrace.io.read_file`.

    Returns
    -------
    list of FlowAnalysis
        Per capture, its flows of at least 100 kB, largest first; its largest flow if none is that large.

    Raises
    ------
    FormatError
        If a file cannot be read.
    ArgumentError
        If captures and counters are interchanged, counters belong to no flow, the controller is unknown or not a
        Linux one, or there is no such goal.
    StreamError
        If no flow at all can be reconstructed; one among others only gets a note.

    Examples
    --------
    >>> import cctrace as cct
    >>> recording = cct.datasets.path("loss_cubic_1pct")
    >>> (flow,) = analyze(recording / "sender.pcap.zst", [recording / "tcpinfo.csv.zst"], effects=False)
    >>> flow.diagnosis.cause, flow.identification.name
    ('random_loss', 'cubic6')
    """
    if controller is not None:
        _require_replayable(controller)
    check_choice("goal", goal, GOALS)
    asked = what_if is None or isinstance(what_if, bool) or callable(what_if)
    check_argument(asked, "what_if", what_if, "True, False or a function")
    check_argument(isinstance(effects, bool), "effects", effects, "True or False")
    chosen = identifications is None or isinstance(identifications, Mapping)
    check_argument(chosen, "identifications", identifications, "a dict of connections, or None")
    check_progress(progress)
    workers = cores() if workers is None else whole("workers", workers, 1, MAX_WORKERS)
    request = _Request(controller, what_if, keep, identifications, goal if effects else None, progress, workers)
    inputs = [Input(file, progress, options) for file in paths_of("files", files)]
    counters = Counters.of_files(paths_of("tcpinfo", tcpinfo), progress, options)
    if identifications is None and all(source.is_held for source in inputs):  # before minutes of work would be lost
        flows = itertools.chain.from_iterable(itertools.chain.from_iterable(source.batches for source in inputs))
        counters.require_used_by(flow for flow in flows if isinstance(flow, Flow))
    analyses = [analysis for source in inputs for analysis in _analyses(source, counters, request)]
    if analyses and all(a.view is None and a.diagnosis is None and a.counters is None for a in analyses):
        raise StreamError(analyses[0].notes[0])
    if identifications is None:
        counters.require_used()
    return analyses


def _analyses(source: Input, counters: Counters, request: _Request) -> Iterator[FlowAnalysis]:
    chosen = request.identifications
    for flows in source.batches:
        wanted = [flow for flow in flows if isinstance(flow, CounterFlow) or chosen is None or flow.key in chosen]
        # What is simulated uses all cores by itself, and only one long flow at a time fits into the memory.
        first = max(SIMULATED, after_long(wanted))
        for flow in wanted[:first]:
            yield _analysis(source, flow, counters, request, next(request.numbers))
        yield from _shared(source, wanted[first:], counters, request)
        for flow in flows if source.is_held else ():
            if isinstance(flow, Flow):
                flow.capture.forget()
    give_back()


def _shared(
    source: Input, flows: Sequence[Flow | CounterFlow], counters: Counters, request: _Request
) -> Iterator[FlowAnalysis]:
    """Yield the analyses of flows, which several processes share if they are many."""
    numbers = [next(request.numbers) for _ in flows]
    workers = min(request.workers, len(flows) // FLOWS_PER_PROCESS)
    if workers <= 1:
        for flow, number in zip(flows, numbers, strict=True):
            yield _analysis(source, flow, counters, request, number)
        return
    from cctrace.lang.processes import BrokenProcessPool, made_in_order  # 20 ms, which one flow need not wait for

    quiet = replace(request, progress=silent, keep=None)

    def made(k: int) -> FlowAnalysis:
        return replace(_analysis(source, flows[k], counters, quiet, numbers[k]), flow=None, counters=None)

    with contextlib.closing(made_in_order(made, len(flows), workers)) as analyses:
        for flow, analysis in zip(flows, analyses, strict=True):
            request.progress(_doing(source, flow))
            if isinstance(analysis, BrokenProcessPool):
                analysis = FlowAnalysis(source.file, flow.row, (KILLED,))
            if isinstance(flow, CounterFlow):
                yield replace(analysis, counters=flow)
            else:
                yield _whole(source, counters.attach(flow)[0], analysis, request)


def _analysis(
    source: Input, flow: Flow | CounterFlow, counters: Counters, request: _Request, number: int
) -> FlowAnalysis:
    """Return the analysis of a flow, the `number`-th of all; what fails is a note."""
    request.progress(_doing(source, flow))
    with Attempt("analysis") as part:
        if isinstance(flow, CounterFlow):
            return _of_counters(source, flow, request, number)
        return _of_capture(source, flow, counters, request, number)
    return FlowAnalysis(source.file, flow.row, (part.refused.note,))


def _doing(source: Input, flow: Flow | CounterFlow) -> str:
    return f"analysing {title_of(flow)} of {source.file}"


def _of_counters(source: Input, flow: CounterFlow, request: _Request, number: int) -> FlowAnalysis:
    analysis = of_counters(source.file, flow, request.controller)
    if request.goal:
        analysis = _with_effects(flow, analysis, number, request.goal, request.progress)
    return replace(analysis, whatif=NO_PACKETS) if request.what_if else analysis


def _of_capture(source: Input, flow: Flow, counters: Counters, request: _Request, number: int) -> FlowAnalysis:
    chosen, forecast = request.identifications, None
    attached, others = counters.attach(flow)
    if source.is_single and is_long(flow):
        flow.capture.pack(read=False)
    simulates = request.goal is not None and chosen is None and number <= SIMULATED
    early = simulates and not is_long(flow)  # else evidence and replay take too much memory together
    with ahead(_look_ahead, evidence_of(attached)) if early else contextlib.nullcontext():
        analysis = of_capture(source.file, attached, others, request.controller, (chosen or {}).get(flow.key))
        evidence_of(attached).put_away("sent_s", "rtt_us")  # which only a diagnosis asks for again and again
        give_back(flow.row["packets"])
        if analysis.view is not None and chosen is None:
            forecast = _forecast(flow, analysis.variant, number, request.progress)
    analysis = _whole(source, attached, analysis, request)
    if analysis.view is not None:
        whatif = _what_if(flow, analysis, number, request) if request.what_if else None
        analysis = replace(analysis, collapse=forecast, whatif=whatif)
        if request.goal is not None and chosen is None:
            analysis = _with_effects(attached, analysis, number, request.goal, request.progress)
        forget(attached)
    return analysis


def _whole(source: Input, flow: Flow, analysis: FlowAnalysis, request: _Request) -> FlowAnalysis:
    """Return an analysis with its flow or, of a file too large for that, with the packets kept of it."""
    if source.is_held:
        return replace(analysis, flow=flow)
    return _with_packets(analysis, request.keep, flow) if request.keep else analysis


def _look_ahead(evidence: PathEvidence) -> None:
    """Compute what diagnosis and simulations will ask of a flow's evidence, whoever sent it; the evidence keeps it."""
    if evidence.bottleneck is not None:
        path_of(evidence, quick=True)


def _with_packets(analysis: FlowAnalysis, keep: Callable[[Flow], object], flow: Flow) -> FlowAnalysis:
    """Return an analysis with the packets kept of its flow, or with a note on why there are none."""
    with Attempt("packets") as part:
        return replace(analysis, packets=keep(flow))
    return replace(analysis, notes=(*analysis.notes, part.refused.note))


def _require_replayable(controller: str) -> None:
    cls, _ = resolve(controller)
    if cls.view != "linux":
        raise ArgumentError(
            f"controller {controller!r} is of the QUIC stack; analyze explains TCP flows by Linux controllers "
            "(`cctrace replay` runs the others over them)"
        )


def _forecast(flow: Flow, variant: str | None, number: int, progress: Progress) -> Collapse | Refusal | None:
    """Return the minRTT collapse forecast for the flow analysed as `number`, or the `Refusal`; None if not BBR."""
    if not is_model_based(variant):
        return None
    if number > FORECASTS:
        reason = f"only looked at for the first {FORECASTS} flows; `cctrace fit collapse` does it for all"
        return Refusal(COLLAPSE, reason)
    progress(COLLAPSE)
    with Attempt(COLLAPSE) as part:
        forecast = Collapse(quick=True).fit(flow)
        rate_bps = forecast.rate_bps_.value
        if rate_bps and flow.row["goodput_bps"] < IDLE * rate_bps:
            used = format_share(flow.row["goodput_bps"] / rate_bps)
            return Refusal(COLLAPSE, f"the flow used {used} of its path's {format_rate(rate_bps)}")
        return forecast
    return part.refused


def _what_if(flow: Flow, analysis: FlowAnalysis, number: int, request: _Request) -> WhatIf | Refusal:
    """Return the effect of another controller or path, or the `Refusal`."""
    if number > FORECASTS:
        reason = f"only asked of the first {FORECASTS} flows; `cctrace whatif` does it for all"
        return Refusal(NO_PACKETS.part, reason)
    with Attempt(NO_PACKETS.part) as part:
        if callable(request.what_if):
            return request.what_if(flow, request.progress)
        if analysis.diagnosis is None:
            return Refusal(NO_PACKETS.part, "nothing is known of what limited the flow")
        from cctrace.counterfactual.whatif import what_would_help

        return what_would_help(flow, analysis.diagnosis, sender_to_simulate(analysis), progress=request.progress)
    return part.refused


def _with_effects(
    flow: Flow | CounterFlow, analysis: FlowAnalysis, number: int, goal: str, progress: Progress
) -> FlowAnalysis:
    """Return the analysis with the effect of each cause, and the verdicts ordered by it; or with the `Refusal`."""
    if (diagnosis := analysis.diagnosis) is None:
        return analysis
    if number > SIMULATED:
        return replace(analysis, effects=Refusal(EFFECTS, f"only simulated for the first {SIMULATED} flows"))
    from cctrace.counterfactual.effects import effects_of

    with Attempt(EFFECTS) as part:
        simulated = effects_of(flow, diagnosis, senders_to_simulate(analysis), progress=progress)
        joined = simulated.joined(diagnosis, goal)
        effects = Refusal(EFFECTS, simulated.unlike) if simulated.unlike else simulated.ordered(joined.verdicts)
        return replace(analysis, effects=effects, diagnosis=joined)
    return replace(analysis, effects=part.refused)
