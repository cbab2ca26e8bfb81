"""What `cctrace analyze` finds out about the bulk flows of captures, before anything is printed or drawn."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from cctrace.cc import KERNEL_NAMES
from cctrace.cc import controller as resolve
from cctrace.errors import ArgumentError, FitError, StreamError
from cctrace.explain.diagnose import Diagnosis, diagnose
from cctrace.explain.flow_view import FlowView
from cctrace.explain.identify import UNKNOWN, Identification, identify
from cctrace.flows.align import Alignment
from cctrace.flows.capture import Capture, read
from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow
from cctrace.flows.large import LARGE_FILE, bulk_flows
from cctrace.io import is_capture
from cctrace.io.tcpinfo import TcpInfo
from cctrace.replaying.model import model_fields, model_of
from cctrace.replaying.run import replay

FORECASTS = 20  # flows, of a second each
NO_PACKETS = "the kernel's counters alone show no packets: a capture at the sender is needed"


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
    diagnosis : cctrace.explain.diagnose.Diagnosis or None
        What limited the flow; None if it has no event stream.
    model : DataFrame or None
        What a controller replayed over counters held after each call, see `replaying.model.model_table`.
    flow : Flow or None
        The flow itself; None of a file so large that its packets are not all held at a time.
    identification : cctrace.explain.identify.Identification or None
        Who sent the flow, by what it shows; None if that cannot be told.
    paced : bool
        Whether the socket paced although the controller that was replayed sets no rate.
    packets : object
        What `keep` returned, of a flow of such a file.
    collapse : cctrace.fit.Collapse or str or None
        Forecast of BBR's minRTT collapse on the flow's path; why there is none; None of counters alone.
    whatif : cctrace.explain.whatif.WhatIf or str or None
        What another controller or path would have changed; why that is not known; None if it was not asked.
    """

    file: str
    row: dict
    controller: str | None = None
    replayed: str | None = None
    agreement: dict | None = None
    polls: pd.DataFrame | None = None
    view: FlowView | None = None
    notes: list[str] = field(default_factory=list)
    counters: CounterFlow | None = None
    clock: Alignment | None = None
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
        ends = ((self.row["src"], self.row["sport"]), (self.row["dst"], self.row["dport"]))
        return " → ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in ends)

    @property
    def retransmitted_share(self):
        """Return retransmitted over sent segments, NaN if none was sent."""
        return self.row["retransmitted_segments"] / (self.row["segments_sent"] or np.nan)


def analyze(files, tcpinfo=(), controller=None, say=lambda text: None, what_if=None, keep=None, **options):
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
    polls = [_polls(file, say, options) for file in tcpinfo]
    unused = {id(table): f"{table.source}: no flow of the captures has these addresses" for table in polls}
    analyses = []
    for file, data in inputs:
        if isinstance(data, TcpInfo):
            analyses += [
                replace(one, whatif=NO_PACKETS if what_if else None) for one in _of_counters(file, data, controller)
            ]
            continue
        for flow in data if isinstance(data, Iterator) else _bulk_flows(file, data):
            say(f"{file}: {flow!r}")
            analyses.append(_analyze_flow(file, flow, polls, controller, unused))
            if isinstance(data, Iterator):
                analyses[-1].packets = keep(flow) if keep and analyses[-1].view is not None else None
            else:
                analyses[-1].flow = flow
            if analyses[-1].view is not None:
                analyses[-1].collapse = _forecast(flow, len(analyses), say)
                analyses[-1].whatif = _asked(what_if, flow, analyses[-1], len(analyses), say) if what_if else None
    if analyses and all(analysis.view is None and analysis.counters is None for analysis in analyses):
        raise StreamError(analyses[0].notes[0])
    if unused:
        raise ArgumentError(next(iter(unused.values())))
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
    for index, connection in enumerate(table.connections):
        counters = CounterFlow(table, index)
        row = counters.row()
        found.append(FlowAnalysis(file, row, connection.get("cc"), notes=row["warnings"], counters=counters))
        if found[-1].controller is None and counters.modes() is not None:
            found[-1].controller = "bbr"
    found.sort(key=lambda analysis: -np.nan_to_num(analysis.row["bytes_sent"]))
    bulk = [analysis for analysis in found if analysis.row["bytes_sent"] >= 100_000] or found[:1]
    for analysis in bulk:
        analysis.identification = _identified(analysis.counters)
        analysis.notes = [*analysis.notes, *_contradiction(analysis)]
        with contextlib.suppress(StreamError):  # no stream, no diagnosis: the figures are there all the same
            analysis.diagnosis = diagnose(analysis.counters, analysis.controller)
        if controller:
            _replay_counters(analysis, controller)
    return bulk


def _replay_counters(analysis, controller):
    counters = analysis.counters
    try:
        run = replay(counters, controller, record=_recorded(controller))
    except StreamError as error:
        analysis.notes = [*analysis.notes, str(error)]
        return
    analysis.replayed, analysis.notes = controller, [*analysis.notes, *counters.caveats]
    analysis.model = model_of(run)
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


def _analyze_flow(file, flow, polls, controller, unused):
    """Return the analysis of one flow; take its counters out of `unused`, note there why others are not its."""
    analysis = FlowAnalysis(file, flow.summary)
    for table in polls:
        try:
            flow = flow.attach(table)
        except ArgumentError as error:
            if id(table) in unused:
                unused[id(table)] = str(error)
            continue
        unused.pop(id(table), None)
    analysis.clock = flow.alignment
    analysis.controller = controller_name(flow.tcpinfo)
    try:
        quality = flow.quality()
        analysis.identification = _identified(flow, KERNEL_NAMES.get(analysis.controller))
        analysis.replayed = controller or KERNEL_NAMES.get(analysis.controller) or _named(analysis.identification)
        run = replay(flow, analysis.replayed, record=_recorded(analysis.replayed)) if analysis.replayed else None
    except StreamError as error:
        analysis.notes = [str(error)]
        return analysis
    analysis.notes = [*quality["warnings"], *_assumptions(quality)]
    if flow.alignment is not None and (flow.alignment.offset_ns or flow.alignment.drift_ppm):
        analysis.notes.append(flow.alignment.text)
    analysis.notes += _contradiction(analysis)
    analysis.view = FlowView.of(flow, run)
    analysis.paced = run is not None and run.params.get("paced", 0) == 1
    sender = analysis.controller or kernel_name(_named(analysis.identification))
    analysis.diagnosis = diagnose(flow, sender, analysis.paced)
    if run is not None and flow.tcpinfo is not None:
        _compare(analysis, run)
    return analysis


def _identified(flow, check=None):
    """Return who sent a flow, None if that cannot be told; `check` is whom counters name."""
    try:
        return identify(flow, check)
    except StreamError:
        return None


def _named(identification):
    """Return the candidate that an identification names, None if it names nobody."""
    if identification is None or identification.name == UNKNOWN:
        return None
    return identification.name


def kernel_name(variant):
    """Return the kernel's name of the congestion control that a variant is a generation of; None for None.

    Examples
    --------
    >>> kernel_name("bbr2019"), kernel_name("cubic6")
    ('bbr', 'cubic')
    """
    if variant is None:
        return None
    generations = {"bbr2016": "bbr", "bbr2019": "bbr", "bbr2022": "bbr", "bbr2plus": "bbr2", "cubic6": "cubic"}
    return generations.get(variant, variant)


def _contradiction(analysis):
    """Yield a note if what was sent does not look like the controller that the counters name."""
    found, told = analysis.identification, analysis.controller
    if found is None or found.name == UNKNOWN or told not in KERNEL_NAMES or told in map(kernel_name, found.group):
        return
    share = sum(candidate.probability for candidate in found.candidates if candidate.name in found.group)
    yield f"the counters name {told}, but what was sent looks like {' or '.join(found.group)} (probability {share:.2f})"


def _forecast(flow, number, say):
    """Return the forecast of minRTT collapse for the flow analysed as `number`, or why there is none."""
    from cctrace.fit.collapse import Collapse

    if number > FORECASTS:
        return f"only looked at for the first {FORECASTS} flows; `cctrace fit collapse` does it for all"
    say("forecast of minRTT collapse")
    try:
        return Collapse(quick=True).fit(flow)
    except (FitError, StreamError) as refusal:
        return str(refusal)


def _asked(what_if, flow, analysis, number, say):
    """Return what another controller or path would have changed, or why that is not known."""
    if number > FORECASTS:
        return f"only asked of the first {FORECASTS} flows; `cctrace whatif` does it for all"
    try:
        if callable(what_if):
            return what_if(flow, say)
        from cctrace.explain.whatif import what_would_help

        return what_would_help(flow, analysis.diagnosis, _sender(analysis), say=say)
    except (FitError, StreamError) as refusal:
        return str(refusal)


def _sender(analysis):
    """Return the variant that sent a flow: as identified, unless the counters name another; None if nothing tells."""
    found, told = _named(analysis.identification), analysis.controller
    if told not in (None, kernel_name(found)):
        found = KERNEL_NAMES.get(told)
    may_pace = found is not None and "max_pacing_rate" in resolve(found)[0].params
    return f"{found}:paced=1" if may_pace and analysis.paced else found


def _recorded(controller):
    return model_fields(resolve(controller)[0])


def _compare(analysis, run):
    try:
        comparison = run.compare()
    except ArgumentError as error:
        analysis.notes.append(str(error))
        return
    analysis.agreement, analysis.polls = comparison.summary(), comparison.frame()


def _assumptions(quality):
    if quality["unexplained_retransmissions"]:
        yield f"retransmissions that no rule of Linux TCP explains: {quality['unexplained_retransmissions']}"
    guessed = [name for name in quality["inferred"] if name != "hz"]
    if guessed:
        yield f"guessed, because the capture does not show it: {', '.join(guessed)}"


def controller_name(tcpinfo):
    """Return the kernel's name of a connection's congestion control, None if its counters do not tell.

    Parameters
    ----------
    tcpinfo : TcpInfo or None
        Polls of one connection.
    """
    if tcpinfo is None:
        return None
    if tcpinfo.connections[0].get("cc"):
        return tcpinfo.connections[0]["cc"]
    return "bbr" if tcpinfo.frame()["bbr_bw_Bps"].notna().any() else None
