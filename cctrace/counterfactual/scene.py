"""Common inputs of a what-if's runs: path, senders, receiver, duration.

A scene is made once per flow:

    scene = scene_of(flow)       recording, path, senders and host limits
    runs = Runs(scene, ...)      simulates it, see `cctrace.counterfactual.runs`
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cctrace.columns import give_back
from cctrace.counterfactual import constants as const
from cctrace.counterfactual.figures import recorded_figures
from cctrace.counterfactual.held_back import HeldBack, held_back, shut_window_bytes
from cctrace.counterfactual.weighing import course_of, likeliest, uncaptured_competitor
from cctrace.diagnosis.diagnose import Diagnosis, of_record
from cctrace.diagnosis.record import Record
from cctrace.display import Progress
from cctrace.errors import StreamError
from cctrace.fit.fitted_path import FittedPath, path_of
from cctrace.flows.flow import Flow
from cctrace.identification.identify import UNKNOWN, identified
from cctrace.path.evidence import PathEvidence
from cctrace.path.markers import Marker, marker_of
from cctrace.path.sent import backlog_met
from cctrace.sim.aqm import red_burst
from cctrace.sim.sender import Sender
from cctrace.tcp.wire import PACKET_BYTES

Controller = str | type

AT_SENDER = ("sender", "unknown")  # where nothing had been lost before the capture
OPEN_QUESTIONS = {
    "rate": "a faster path: no queue ever grew, so what it could have carried is not known",
    "buffer": "a longer queue: it never overflowed; its longest backlog to ten times that, or ten BDP, are tried",
    "base_rtt": "a shorter base RTT: others' packets stood in the queue all the time",
}
_SLOTS = {"ack_aggregation": "interval_us", "ack_compression": "sent_over_us"}  # verdict: ACK aggregation slot


@dataclass(frozen=True)
class Scene:
    """A recorded flow as input of a simulation."""

    path: FittedPath  # the inferred path
    own: Controller | None  # the sender's controller; None if unknown
    held: HeldBack  # host limits
    recorded: dict[str, float]  # {figure: value}
    duration_s: float  # from the first packet to the last ACK
    acks: tuple[dict[str, Any], ...]  # possible ACK policies: options of a `cctrace.Sender`
    hz: int  # ticks per second of the sender's kernel
    others: tuple[Sender, ...]  # senders of the other flows through the same bottleneck
    complete: bool  # whether the capture includes lost packets
    not_excluded: tuple[str, ...]  # what the capture cannot exclude
    are_hypothetical: bool = False  # whether the other flows are not in the capture but hypothetical
    # AQM of the path, as changes of it (`questions.changed`); empty if nothing marked, or the marker is unknown
    marking: Mapping[str, str] = field(default_factory=dict)
    ecn: bool | str = False  # the flow's ECN feedback, as `cctrace.Sender` takes it; False if `marking` is empty
    ahead_s: float = 0.0  # for how long the other flows are simulated before this one begins

    @property
    def simulated_s(self) -> float:
        """Duration of a simulation."""
        return self.ahead_s + self.duration_s


def scene_of(
    flow: Flow, own: Controller | None, diagnosis: Diagnosis | None, progress: Progress, quick: bool = False
) -> Scene:
    """Return the `Scene` of a captured flow.

    `own`: the sender's controller; None: identify it. `diagnosis`: of the flow, if available. `quick`: use a
    quickly fitted path, see `fit.fitted_path.path_of`. Raises `FitError` if the path cannot be inferred, or if the
    application limited the flow without a pattern; `StreamError` if the capture lacks one direction.
    """
    record = Record(flow)
    evidence, table = record.path, record.table
    diagnosis = diagnosis or of_record(record)
    held = held_back(record, diagnosis)
    progress("the path")
    path = path_of(evidence, progress, quick)
    progress("the sender")
    sent_by, doubt = (own, "") if own else _identified(flow)
    rtts, acked = flow.rtt_samples, table.acked_ns[table.acked_ns >= 0]
    complete, ahead_s = flow.taken_at in AT_SENDER, _ahead_s(record)
    lost = f"what was lost before the capture, taken at the {flow.taken_at}: more may have been retransmitted"
    scene = Scene(
        path,
        sent_by,
        held,
        recorded_figures(rtts["rtt_us"], table),
        round((int(acked.max()) - table.start_ns) / 1e9, 3),
        _acks(evidence, diagnosis),
        flow.hz,
        _others(record, path, ahead_s),
        complete,
        (),
        ahead_s=ahead_s,
    )
    give_back(len(table))
    progress("which path reproduces the recording")
    recorded = course_of(rtts, table)
    path = likeliest(scene, recorded, evidence)
    if evidence.is_long:
        evidence.put_away("backlogs")
    rival = uncaptured_competitor(replace(scene, path=path), recorded, diagnosis)
    doubts = [OPEN_QUESTIONS[name] for name in path.estimates["undetermined"] if name in OPEN_QUESTIONS]
    not_excluded = (*held.not_excluded, *([] if complete else [lost]), *doubts, *([doubt] if doubt else []))
    if rival is not None:
        not_excluded = (*not_excluded, f"a kind of competitor other than {rival.name}: the capture does not show it")
        scene = replace(scene, others=(rival,), are_hypothetical=True)
    marking = _marking(marker_of(evidence), path) if flow.ecn.delivered_ce else {}
    ecn = flow.ecn.feedback if marking else False
    return replace(scene, path=path, not_excluded=not_excluded, marking=marking, ecn=ecn)


def _marking(marker: Marker, path: FittedPath) -> dict[str, str]:
    """Return the changes that make a path's queue mark as the flow's packets were."""
    if marker.law is None or len(marker.names) > 1 or not np.isfinite(marker.law.threshold_us):
        return {}
    name, law, bytes_per_us = marker.names[0], marker.law, path.max_rate_bps() / 8e6
    if name == "step":
        return {"ecn_threshold": f"{law.threshold_us * bytes_per_us:.0f}B"}
    if name == "red":
        least = max(law.threshold_us * bytes_per_us, 2 * PACKET_BYTES)  # less, and `burst` gives no weight
        most = law.upper_us / law.threshold_us * least
        burst = red_burst(law.weight_log, least / PACKET_BYTES)
        average = f"burst={burst},avpkt={PACKET_BYTES}B,probability={law.most:.0%}"
        return {"aqm": f"red:min={least:.0f}B,max={most:.0f}B,{average}"}
    return {"aqm": f"{name}:target={law.threshold_us:.0f}us"} if name in ("codel", "pie") else {}


def _acks(evidence: PathEvidence, diagnosis: Diagnosis) -> tuple[dict[str, Any], ...]:
    """Return the possible ACK policies: every segment or every second one, and those of verdicts on ACKs.

    During a loss or reordering, Linux acknowledges each segment: a flow that always has losses shows only by its
    ACKs in order that every second one is the rule.
    """
    table = evidence.transmissions
    acks = np.count_nonzero(np.bincount(table.ack_row[table.ack_row >= 0]))
    per_ack = np.count_nonzero(table.acked_ns >= 0) / max(int(acks), 1)
    in_order = evidence.acks.every.number if evidence.acks else per_ack
    plain: dict[str, Any] = {"ack_every": 1 if max(per_ack, in_order) < 1.5 else 2}
    grouped: dict[str, Any] = {}
    for verdict in diagnosis.verdicts:
        numbers = verdict.evidence
        if verdict.name == "ack_thinning":
            grouped["ack_every"] = round(numbers["segments_per_ack"])
        elif verdict.name in _SLOTS:
            grouped["ack_slot"] = f"{numbers[_SLOTS[verdict.name]]:.0f}us"
    return (plain, plain | grouped) if grouped else (plain,)


def _identified(flow: Flow) -> tuple[Controller | None, str]:
    """Return the sender or None, and what the identification leaves open ("" nothing)."""
    try:
        found = identified(flow)
    except StreamError as error:
        return None, f"which controller sent it: {error}"
    if found.name == UNKNOWN:
        return None, "which controller sent it: no candidate explains what was sent; own=NAME says it"
    if len(found.group) > 1:
        others = " or ".join(name for name in found.group if name != found.name)
        return found.spec, f"that it was {others} that sent it"
    return found.spec, ""


def _ahead_s(record: Record) -> float:
    """Return for how long other flows through the same bottleneck are simulated before this one begins, on the grid."""
    earlier_s = max((-_start_s(record, index) for index in record.path.through.others), default=0.0)
    return math.floor(min(max(earlier_s, 0.0), const.AHEAD_S) / const.GRID_S) * const.GRID_S


def _start_s(record: Record, index: int) -> float:
    """Return when another flow of the capture began, s since this one's start."""
    return float(record.path.capture.flow(index).row["start_ns"] - record.flow.row["start_ns"]) / 1e9


def _others(record: Record, path: FittedPath, ahead_s: float) -> tuple[Sender, ...]:
    """Return the senders of the other flows through the same bottleneck; this one begins after `ahead_s`."""
    evidence, senders = record.path, []
    base_us = _base_rtt_us(evidence, evidence.index) if evidence.through.others else 0.0
    for index in evidence.through.others:
        other = evidence.capture.flow(index)
        start = ahead_s + _start_s(record, index)
        rtt_us = path.rtt_ns / 1e3 + np.nan_to_num(_base_rtt_us(evidence, index) - base_us)  # equal, if unknown
        begin, stop = f"{max(start, 0):.3f}s", f"{start + other.row['duration_s']:.3f}s"
        cc = _identified(other)[0] or "cubic"
        window = shut_window_bytes(Record(other))
        sender = Sender(cc, rtt=f"{max(rtt_us, 100.0):.0f}us", start=begin, stop=stop)
        senders.append(sender if window is None else replace(sender, rwnd=f"{window:.0f}B"))
    return tuple(senders)


def _base_rtt_us(evidence: PathEvidence, index: int) -> float:
    """Return a flow's typical RTT beyond the joint queue: late flows never see it empty; NaN if no RTT is known."""
    part, through = evidence.parts[index], evidence.through
    if not len(part.acked):
        return math.nan
    met = through.steps.served(part.sent_us) + backlog_met(through.sent, through.steps, part.sent_us)
    return float(np.nanmedian(part.acked_us - through.steps.when(met)))
