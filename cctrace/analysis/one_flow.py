"""Analysis of one flow: sender, replay of its controller, limits, and data to draw.

Each returns a `FlowAnalysis`:

    of_capture(file, flow)                  a captured flow, its kernel counters attached
    of_counters(file, connection)           a connection known from counters only
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cctrace.analysis.flow_analysis import FlowAnalysis
from cctrace.analysis.flow_view import FlowView
from cctrace.cc import KERNEL_NAMES, kernel_name
from cctrace.cc import controller as resolve
from cctrace.columns import Held, give_back
from cctrace.diagnosis.diagnose import diagnose
from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow
from cctrace.identification.identify import CANDIDATES, HEED_MARKS, UNKNOWN, Identification, identified
from cctrace.identification.named import controller_name, sender
from cctrace.identification.sender_text import believed, is_undecided
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.refusals import Attempt
from cctrace.replaying.inference.through_fq import SENT_THROUGH_FQ, at_hand_over
from cctrace.replaying.model import model_fields, model_of
from cctrace.replaying.run import Run, replay

PACKED = 300_000  # rows of an event stream that is packed when its sender has been replayed
# Guessed attributes that a reader should know of; for `start_ns` the note on the place of capture says so.
_GUESSED = {
    "isn": "initial sequence number",
    "wscale": "window scale",
    "sack_ok": "use of SACK",
    "ecn_ok": "use of ECN",
    "initial_cwnd": "initial window",
    "handshake_rtt_us": "RTT of the handshake",
    "mss": "segment size",
}
MIN_PROBABILITY = 0.05  # least probability of a possible sender
MAX_SENDERS = 2  # that are simulated if the sender is unknown
USUAL = ("cubic6", "bbr2022")  # simulated without any evidence


class _Sender(NamedTuple):
    """A flow's sender: the fields of `FlowAnalysis`, and the kernel's name according to counters and sends."""

    controller: str | None
    variant: str | None
    identification: Identification | None
    kernels: str | None


def of_capture(
    file: str,
    flow: Flow,
    others: Sequence[str] = (),
    controller: str | None = None,
    known: Identification | None = None,
) -> FlowAnalysis:
    """Return the analysis of a captured flow, without forecast and what-if.

    `others`: notes on counters of its receiver, see `Counters.attach`. `controller`: replayed instead of the sender's
    controller. `known`: the sender, if identified before.
    """
    row = flow.row
    named = controller_name(flow.tcpinfo)
    with Attempt("sender's view") as part:
        quality = flow.quality()
    if part.refusal is not None:
        return FlowAnalysis(file, row, (part.refusal.reason, *others), named, clock=flow.alignment)
    notes = [*quality["warnings"], *_assumptions(quality), *others]
    if flow.alignment is not None and (flow.alignment.offset_ns or flow.alignment.drift_ppm):
        notes.append(flow.alignment.text)
    flow = _handed_over(flow, notes)
    sent_by = _sender(flow, flow.tcpinfo, named, known, notes)
    if sent_by.identification is not None and sent_by.identification.misses_marks:
        flow = flow.missing_marks()
        notes.append("its sends fit only if its kernel counts marks late, as L4STeam's did in 2020; here it does")
    replayed = controller or (None if is_undecided(sent_by.identification) else sent_by.variant)
    run = _replayed(flow, replayed, notes)
    view = diagnosis = ecn = None
    with Attempt("sender's view", notes, once=True):
        view = _viewed(flow, run)
    if view is not None and view.taken_at != "sender":
        row = row | _sender_rtts(view)
    paced = run is not None and run.params.get("paced", 0) == 1
    differs: list[str] = []
    agreement, polls = _agreement(run, differs) if run is not None and flow.tcpinfo is not None else (None, None)
    replayed = replayed if run is not None else None
    if run is not None and not flow.account[1]:  # 100 bytes a call, for when the receive window held the flow
        run = dataclasses.replace(run, held=_modes(run.held), marked=None)
    with Attempt("diagnosis", notes, once=True):
        diagnosis = diagnose(flow, sent_by.kernels, run if replayed == sent_by.variant else None)
        notes += diagnosis.lacks
    with Attempt("ECN", notes, once=True):
        ecn = flow.ecn
        notes += ecn.tampering
    notes += differs
    return FlowAnalysis(
        file,
        row,
        tuple(notes),
        *sent_by[:3],
        through_fq=flow.through_fq,
        paced=paced,
        replayed=replayed,
        agreement=agreement,
        polled=polls,
        diagnosis=diagnosis,
        ecn=ecn.to_dict() if ecn else None,
        view=view,
        clock=flow.alignment,
    )


def _handed_over(flow: Flow, notes: list[str]) -> Flow:
    """Return a flow whose packets count from their hand-over by TCP; pack the packets of a long one."""
    if flow.capture.packets.is_packed:
        flow.capture.pack(read=True)  # of which only the beginning is re-enacted, unless it was sent through fq
        give_back(flow.row["packets"])
    with Attempt("hand-over to fq", notes, once=True):
        flow = at_hand_over(flow)
    if flow.through_fq:
        notes.append(SENT_THROUGH_FQ)
    give_back(flow.row["packets"])
    return flow


def _viewed(flow: Flow, run: Run | None) -> FlowView:
    """Return a flow's view, and pack a long flow's events, which no replay will read."""
    give_back()
    for seen in (flow, run.source if run is not None else None):
        if isinstance(seen, Flow) and len(seen.events) > PACKED:
            seen.events.pack()
    view = FlowView.of(flow, run)
    if view.events.is_packed:
        give_back()
    return view


def _sender_rtts(view: FlowView) -> dict[str, int]:
    """Return the sender's RTTs: elsewhere, a capture covers only the part of the path beyond it."""
    samples = view.acks["rs_rtt_us"]
    samples = samples[samples > 0]
    if not len(samples):
        return {}
    names = ("rtt_min_us", "rtt_median_us", "rtt_p95_us")
    return dict(zip(names, np.quantile(samples, (0.0, 0.5, 0.95)).round().astype(int).tolist(), strict=True))


def of_counters(file: str, connection: CounterFlow, controller: str | None = None) -> FlowAnalysis:
    """Return the analysis of a connection known from the kernel's counters only.

    A controller is replayed only on request: the kernel's own decisions are already there.
    """
    row = connection.row
    notes = list(row["warnings"])
    sent_by = _sender(connection, connection.polls, controller_name(connection.polls), None, notes)
    diagnosis = model = agreement = polls = None
    with Attempt("diagnosis", notes, once=True):
        diagnosis = diagnose(connection, sent_by.controller)
    run = _replayed(connection, controller, notes)
    if run is not None:
        notes += connection.caveats
        with Attempt("model", notes, once=True):
            model = model_of(run)
        agreement, polls = _agreement(run, notes)
    return FlowAnalysis(
        file,
        row,
        tuple(notes),
        *sent_by[:3],
        replayed=controller if run is not None else None,
        agreement=agreement,
        polled=polls,
        diagnosis=diagnosis,
        counters=connection,
        modelled=model,
    )


def sender_to_simulate(analysis: FlowAnalysis) -> str | None:
    """Return the variant that sent a flow, with ``paced=1`` if its socket paced; None if unknown."""
    may_pace = analysis.variant is not None and "max_pacing_rate" in resolve(analysis.variant)[0].params
    return f"{analysis.variant}:paced=1" if may_pace and analysis.paced else analysis.variant


def _sender(
    flow: Flow | CounterFlow, polls: TcpInfo | None, named: str | None, known: Identification | None, notes: list[str]
) -> _Sender:
    """Return a flow's sender; `named` is the controller named by its counters, `known` an earlier identification.

    A note is added if the counters leave the version of BBR open, or if the sends look like another controller's.
    """
    identification = known or _identified(flow, named)
    group = () if identification is None or identification.name == UNKNOWN else identification.group
    kernels, variant = sender(polls, named, *group)
    controller = named
    if named not in (None, kernels):
        controller = kernels
        notes.append(f"the counters do not tell which BBR it is; what was sent looks like {variant}")
    elif identification is not None and group and named in KERNEL_NAMES and named not in map(kernel_name, group):
        share = sum(candidate.probability for candidate in identification.candidates if candidate.name in group)
        looks = f"{' or '.join(group)} (probability {share:.2f})"
        notes.append(f"the counters name {named}, but what was sent looks like {looks}")
    return _Sender(controller, variant, believed(identification, controller), kernels)


def _identified(flow: Flow | CounterFlow, named: str | None) -> Identification | None:
    """Return the identified sender, None if unknown; limited to the variants of `named`, the counters' controller."""
    if named is not None and named not in map(kernel_name, (*CANDIDATES, *HEED_MARKS)):
        return None
    with Attempt("identification"):
        return identified(flow, KERNEL_NAMES.get(named) if named else None)
    return None


def _replayed(flow: Flow | CounterFlow, controller: str | None, notes: list[str]) -> Run | None:
    """Return the replay of a controller with the fields that a path model needs; None without a controller."""
    if controller is None:
        return None
    if isinstance(flow, Flow):
        give_back(flow.row["packets"])
    with Attempt("replay", notes, once=True):
        return replay(flow, controller, record=model_fields(resolve(controller)[0]))
    return None


def _modes(held: Held) -> Held:
    """Return the rows of a replay at which its mode changed, with nothing but that."""
    if "mode" not in held:
        return Held(0, {}, {})
    mode = held["mode"]
    changed = np.flatnonzero(np.diff(mode, prepend=mode[:1] - 1))
    return Held(len(changed), {"time_ns": held["time_ns"][changed], "mode": mode[changed]}, {})


def _agreement(run: Run, notes: list[str]) -> tuple[Any, Any]:
    """Return a replay's agreement with the kernel's counters, and the polls; (None, None) and a note without."""
    with Attempt("comparison with the kernel's counters") as part:
        comparison = run.compare()
        return comparison.to_dict(), comparison.table()
    notes.append(part.refused.reason)
    return None, None


def _assumptions(quality: dict[str, Any]) -> Iterator[str]:
    if quality["unexplained_retransmissions"]:
        yield f"retransmissions that no rule of Linux TCP explains: {quality['unexplained_retransmissions']}"
    if guessed := [_GUESSED[name] for name in quality["inferred"] if name in _GUESSED]:
        yield f"guessed, because the capture does not show it: {', '.join(guessed)}"


def senders_to_simulate(analysis: FlowAnalysis) -> list[str]:
    """Return the variant that sent a flow or, if unknown, the possible ones, the likeliest first."""
    if (known := sender_to_simulate(analysis)) is not None:
        return [known]
    candidates = analysis.identification.candidates if analysis.identification else []
    likely = [name for name, probability in candidates if probability >= MIN_PROBABILITY and name != UNKNOWN]
    return likely[:MAX_SENDERS] or list(USUAL)
