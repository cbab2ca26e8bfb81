"""What `cctrace analyze` finds out about the bulk flows of captures, before anything is printed or drawn."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from cctrace.analysis.attached import Counters
from cctrace.analysis.flow_view import FlowView
from cctrace.cc import KERNEL_NAMES
from cctrace.cc import controller as resolve
from cctrace.diagnosis.diagnose import Diagnosis, diagnose
from cctrace.display import connection
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.align import Alignment
from cctrace.flows.capture import Capture, read
from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow
from cctrace.flows.large import LARGE_FILE, bulk_flows
from cctrace.identification.identify import CANDIDATES, UNKNOWN, Identification, identify
from cctrace.identification.named import controller_name, kernel_name, sender
from cctrace.identification.words import believed
from cctrace.io import is_capture
from cctrace.io.tcpinfo import TcpInfo
from cctrace.path.evidence import forget
from cctrace.refusals import Refusal, attempt
from cctrace.replaying.model import model_fields, model_of
from cctrace.replaying.run import replay
from cctrace.replaying.through_fq import SENT_THROUGH_FQ, at_hand_over
from cctrace.units import format_rate, format_share

FORECASTS = 20  # flows, of a second each
NO_PACKETS = Refusal("what-if", "the kernel's counters alone show no packets: a capture at the sender is needed")
COLLAPSE = "forecast of minRTT collapse"
IDLE = 0.01  # of the path's rate: no controller with data to send gets less


@dataclass
class FlowAnalysis:
    """One bulk flow.

    Attributes
    ----------
    file : str
        The capture.
    row : dict
        The flow's row of `Capture.flows`.
    controller : str or None
        The sender's congestion control by the kernel's name, None if nothing tells.
    variant : str or None
        Which of its variants, by the counters and by what was sent, see `cctrace.identification.named`.
    replayed : str or None
        The controller that was replayed over the flow, None if none was.
    agreement : dict or None
        Its agreement with what the kernel logged, see `Comparison.summary`; None without counters.
    polls : DataFrame or None
        The kernel's and the replay's values at each poll.
    view : FlowView or None
        What can be drawn; None if the sender's view could not be reconstructed.
    notes : list of str
        What a reader of the numbers should know.
    counters : CounterFlow or None
        All that is known of a connection without a capture.
    clock : cctrace.flows.align.Alignment or None
        How the clock of the counters was related to the capture's.
    through_fq : bool or None
        Whether it was sent through fq; None where that is not known.
    diagnosis : cctrace.diagnosis.diagnose.Diagnosis or None
        What limited the flow; None if it has no event stream.
    model : DataFrame or None
        What a controller replayed over counters held after each call, see `replaying.model.model_table`.
    flow : Flow or None
        The flow itself; None of a file so large that its packets are not all held at a time.
    identification : cctrace.identification.identify.Identification or None
        Who sent the flow, by what it shows; of what counters name only its variants. None if that cannot be told.
    paced : bool
        Whether the socket paced although the controller that was replayed sets no rate.
    packets : object
        What `keep` returned, of a flow of such a file.
    collapse : cctrace.fit.Collapse or Refusal or None
        Forecast of minRTT collapse on the path of a BBR's flow; why there is none; None of others, and of counters.
    whatif : cctrace.counterfactual.whatif.WhatIf or Refusal or None
        What another controller or path would have changed; why that is not known; None if it was not asked.

    Of a part that could not be found out `notes` say why, see `explain.parts`.
    """

    file: str
    row: dict
    controller: str | None = None
    variant: str | None = None
    replayed: str | None = None
    agreement: dict | None = None
    polls: pd.DataFrame | None = None
    view: FlowView | None = None
    notes: list[str] = field(default_factory=list)
    counters: CounterFlow | None = None
    clock: Alignment | None = None
    through_fq: bool | None = None
    diagnosis: Diagnosis | None = None
    model: pd.DataFrame | None = None
    flow: Flow | None = None
    identification: Identification | None = None
    paced: bool = False
    collapse: object = None
    packets: object = None
    whatif: object = None

    @property
    def title(self):
        """Return "address:port → address:port", bulk sender first."""
        if self.row["src"] is None:
            known = self.counters.connection if self.counters else {}
            seen = f" ({known['vantage_point']})" if known.get("vantage_point") else ""
            return f"connection {known.get('group_id', known.get('flow_id', 'without a name'))}{seen}"
        return connection(*(self.row[name] for name in ("src", "sport", "dst", "dport")))

    def find(self, part, function, *arguments, **options):
        """Return what a function finds out of the flow; None, with a note that says why, of a part without a result."""
        found = attempt(part, function, *arguments, **options)
        if not isinstance(found, Refusal):
            return found
        if not any(found.reason in note for note in self.notes):
            self.notes = [*self.notes, found.note]
        return None

    @property
    def retransmitted_share(self):
        """Return retransmitted over sent segments, NaN if none was sent."""
        return self.row["retransmitted_segments"] / (self.row["segments_sent"] or np.nan)


def analyze(files, tcpinfo=(), controller=None, say=lambda text: None, what_if=None, keep=None, found=None, **options):
    """Analyse the bulk flows of captures, or of counters alone.

    Parameters
    ----------
    files : sequence of path
        Captures, taken at the sender; or counters of connections that no capture shows.
    tcpinfo : sequence of path
        The kernel's counters for any of the flows.
    controller : str, optional
        The controller to replay over every flow; by default the one that a flow's counters name, if any, and none over
        counters alone.
    say : callable
        Receives what is being done, for display.
    what_if : bool or callable, optional
        True: put numbers to the first verdict's advice (some seconds a flow); or `function(flow, say)`, a `WhatIf`.
    keep : callable, optional
        Receives each flow of a file so large that its packets are not all held at a time, and returns what of them is.
    found : dict of (str, int, str, int) to Identification or None, optional
        Only these flows of captures are analysed, by (src, sport, dst, dport), without a forecast; and of those whose
        identification is known already nobody asks again who sent them. Counters that are none's are no error.
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
        If a capture is given where counters should be or the reverse, counters belong to no flow, or the controller
        is unknown or not a Linux one.
    StreamError
        If no flow at all can be reconstructed; one among others only gets a note.
    """
    if controller is not None:
        _require_replayable(controller)
    files = [files] if isinstance(files, str | os.PathLike) else files
    inputs = [(str(file), _input(file, say, options)) for file in files]
    polls = Counters(_polls(file, say, options) for file in tcpinfo)
    analyses = []
    for file, data in inputs:
        if isinstance(data, TcpInfo):
            analyses += [
                replace(one, whatif=NO_PACKETS if what_if else None) for one in _of_counters(file, data, controller)
            ]
            continue
        for flow in data if isinstance(data, Iterator) else _bulk_flows(file, data):
            if found is not None and flow.key not in found:
                continue
            say(f"analysing {connection(*flow.key)} of {file}")
            analyses.append(_analyze_flow(file, flow, polls, controller, (found or {}).get(flow.key)))
            if isinstance(data, Iterator):
                analyses[-1].packets = analyses[-1].find("packets", keep, flow) if keep else None
            else:
                analyses[-1].flow = flow
            if analyses[-1].view is not None:
                if found is None:
                    analyses[-1].collapse = _forecast(flow, analyses[-1].variant, len(analyses), say)
                analyses[-1].whatif = _asked(what_if, flow, analyses[-1], len(analyses), say) if what_if else None
                forget(flow)
    if analyses and all(one.view is None and one.diagnosis is None and one.counters is None for one in analyses):
        raise StreamError(analyses[0].notes[0])
    if found is None:
        polls.require_used()
    return analyses


def _input(file, say, options):
    say(f"reading {file}")
    if os.path.isfile(file) and os.path.getsize(file) >= LARGE_FILE and is_capture(file, options.get("limit")):
        return bulk_flows(file, **options)
    data = read(file, **options)
    if not isinstance(data, Capture | TcpInfo):
        raise ArgumentError(f"{file}: holds neither packets nor counters of connections")
    return data


def _of_counters(file, table, controller):
    """Return the analyses of connections that carried at least 100 kB, largest first; of the largest if none did.

    A controller is replayed only if asked for: what the kernel itself decided is there already.
    """
    found = []
    for index in range(len(table.connections)):
        counters = CounterFlow(table, index)
        row = counters.row()
        told = controller_name(counters.polls)
        found.append(FlowAnalysis(file, row, told, notes=row["warnings"], counters=counters))
    found.sort(key=lambda analysis: -np.nan_to_num(analysis.row["bytes_sent"]))
    bulk = [analysis for analysis in found if analysis.row["bytes_sent"] >= 100_000] or found[:1]
    for analysis in bulk:
        analysis.identification = _identified(analysis.counters, analysis.controller)
        group = _group(analysis.identification)
        kernels, analysis.variant = sender(analysis.counters.polls, analysis.controller, *group)
        analysis.notes = [*analysis.notes, *_doubts(analysis, kernels)]
        analysis.identification = believed(analysis.identification, analysis.controller)
        analysis.diagnosis = analysis.find("diagnosis", diagnose, analysis.counters, analysis.controller)
        if controller:
            _replay_counters(analysis, controller)
    return bulk


def _replay_counters(analysis, controller):
    counters = analysis.counters
    run = analysis.find("replay", replay, counters, controller, record=_recorded(controller))
    if run is None:
        return
    analysis.replayed, analysis.notes = controller, [*analysis.notes, *counters.caveats]
    analysis.model = analysis.find("model", model_of, run)
    _compare(analysis, run)


def _polls(file, say, options):
    say(f"reading {file}")
    data = read(file, **options)
    if not isinstance(data, TcpInfo):
        raise ArgumentError(f"{file}: holds packets, not counters; give it as a capture, without --tcpinfo")
    return data


def _bulk_flows(file, capture):
    if not len(capture):
        raise StreamError(f"{file}: no TCP connection in this capture")
    return capture.bulk() or [capture.flow(int(capture.flows["bytes_sent"].argmax()))]


def _require_replayable(controller):
    cls, _ = resolve(controller)
    if cls.view != "linux":
        raise ArgumentError(
            f"controller {controller!r} is of the QUIC stack; analyze explains TCP flows by Linux controllers "
            "(`cctrace replay` runs the others over them)"
        )


def _analyze_flow(file, flow, polls, controller, identification=None):
    """Return the analysis of one flow, with those of the `Counters` that are its; who sent it may be known already."""
    analysis = FlowAnalysis(file, flow.summary)
    flow, others = polls.attach(flow)
    analysis.clock = flow.alignment
    analysis.controller = controller_name(flow.tcpinfo)
    quality = attempt("sender's view", flow.quality)
    if isinstance(quality, Refusal):
        analysis.notes = [quality.reason, *others]
        return analysis
    analysis.notes = [*quality["warnings"], *_assumptions(quality), *others]
    if flow.alignment is not None and (flow.alignment.offset_ns or flow.alignment.drift_ppm):
        analysis.notes.append(flow.alignment.text)
    flow = analysis.find("hand-over to fq", at_hand_over, flow) or flow
    analysis.through_fq = flow.through_fq
    if flow.through_fq:
        analysis.notes.append(SENT_THROUGH_FQ)
    analysis.identification = identification or _identified(flow, analysis.controller)
    kernels, analysis.variant = sender(flow.tcpinfo, analysis.controller, *_group(analysis.identification))
    analysis.notes += _doubts(analysis, kernels)
    analysis.identification = believed(analysis.identification, analysis.controller)
    asked = controller or analysis.variant
    run = analysis.find("replay", replay, flow, asked, record=_recorded(asked)) if asked else None
    analysis.replayed = asked if run is not None else None
    analysis.view = analysis.find("sender's view", FlowView.of, flow, run)
    analysis.paced = run is not None and run.params.get("paced", 0) == 1
    analysis.diagnosis = analysis.find("diagnosis", diagnose, flow, kernels, analysis.paced)
    analysis.notes += analysis.diagnosis.lacks if analysis.diagnosis else []
    if run is not None and flow.tcpinfo is not None:
        _compare(analysis, run)
    return analysis


def _identified(flow, told):
    """Return who sent a flow, None if that cannot be told; `told` is whom counters name: one of its variants."""
    if told is not None and told not in map(kernel_name, CANDIDATES):
        return None
    found = attempt("identification", identify, flow, KERNEL_NAMES.get(told))
    return None if isinstance(found, Refusal) else found


def _group(identification):
    """Return the candidates that an identification names; () if it names nobody."""
    return () if identification is None or identification.name == UNKNOWN else identification.group


def _doubts(analysis, kernels):
    """Return notes on a sender of which the counters leave open which BBR it is, or whose sends look like another's.

    In the first case `kernels`, as `sender` gives it, becomes the analysis's controller.
    """
    if analysis.controller not in (None, kernels):
        analysis.controller = kernels
        return [f"the counters do not tell which BBR it is; what was sent looks like {analysis.variant}"]
    found, told = analysis.identification, analysis.controller
    if found is None or found.name == UNKNOWN or told not in KERNEL_NAMES or told in map(kernel_name, found.group):
        return []
    share = sum(candidate.probability for candidate in found.candidates if candidate.name in found.group)
    looks = " or ".join(found.group)
    return [f"the counters name {told}, but what was sent looks like {looks} (probability {share:.2f})"]


def _forecast(flow, variant, number, say):
    """Return the forecast of minRTT collapse for the flow analysed as `number`, or the `Refusal`; None if no BBR's."""
    from cctrace.fit.collapse import Collapse

    if variant is None or not variant.startswith("bbr"):
        return None
    if number > FORECASTS:
        reason = f"only looked at for the first {FORECASTS} flows; `cctrace fit collapse` does it for all"
        return Refusal(COLLAPSE, reason)
    say(COLLAPSE)
    found = attempt(COLLAPSE, Collapse(quick=True).fit, flow)
    if isinstance(found, Collapse) and flow.summary["goodput_bps"] < IDLE * found.rate_bps_.value:
        used = format_share(flow.summary["goodput_bps"] / found.rate_bps_.value)
        return Refusal(COLLAPSE, f"the flow used {used} of its path's {format_rate(found.rate_bps_.value)}")
    return found


def _asked(what_if, flow, analysis, number, say):
    """Return what another controller or path would have changed, or the `Refusal`."""
    if number > FORECASTS:
        reason = f"only asked of the first {FORECASTS} flows; `cctrace whatif` does it for all"
        return Refusal(NO_PACKETS.part, reason)
    if callable(what_if):
        return attempt(NO_PACKETS.part, what_if, flow, say)
    if analysis.diagnosis is None:
        return Refusal(NO_PACKETS.part, "nothing is known of what limited the flow")
    from cctrace.counterfactual.whatif import what_would_help

    return attempt(NO_PACKETS.part, what_would_help, flow, analysis.diagnosis, _sender(analysis), say=say)


def _sender(analysis):
    """Return the variant that sent a flow, with ``paced=1`` where its socket paced; None if nothing tells."""
    may_pace = analysis.variant is not None and "max_pacing_rate" in resolve(analysis.variant)[0].params
    return f"{analysis.variant}:paced=1" if may_pace and analysis.paced else analysis.variant


def _recorded(controller):
    return model_fields(resolve(controller)[0])


def _compare(analysis, run):
    comparison = attempt("comparison with the kernel's counters", run.compare)
    if isinstance(comparison, Refusal):
        analysis.notes.append(comparison.reason)
        return
    analysis.agreement, analysis.polls = comparison.summary(), comparison.frame()


def _assumptions(quality):
    if quality["unexplained_retransmissions"]:
        yield f"retransmissions that no rule of Linux TCP explains: {quality['unexplained_retransmissions']}"
    guessed = [name for name in quality["inferred"] if name != "hz"]
    if guessed:
        yield f"guessed, because the capture does not show it: {', '.join(guessed)}"
