"""A simulable model of a recorded flow: inferred path, sender, limits at the hosts, receiver, competing flows.

    model = model_of(flow)       inferred once per flow
    runs = Runs(model, ...)      simulates it, see `cctrace.counterfactual.runs`

The path is fitted (`fit.path`), the controller identified, and the other flows of the capture through the same
bottleneck become simulated senders. If another explanation of the losses, or a competitor outside the capture, makes
the recording clearly likelier, that is simulated instead (`cctrace.counterfactual.path_likelihood`).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cctrace.columns import give_back
from cctrace.counterfactual import constants as const
from cctrace.counterfactual.figures import recorded_figures
from cctrace.counterfactual.host_limits import HostLimits, host_limits_of, shut_window_bytes
from cctrace.counterfactual.path_likelihood import likeliest_path, trajectory_of, uncaptured_competitor
from cctrace.diagnosis.diagnose import Diagnosis, of_record
from cctrace.diagnosis.record import Record
from cctrace.display import Progress
from cctrace.errors import StreamError
from cctrace.fit.fitted_path import FittedPath, path_of
from cctrace.flows.flow import Flow
from cctrace.identification.identify import UNKNOWN, identified
from cctrace.path.evidence import PathEvidence
from cctrace.path.markers import Marker, likely_marker
from cctrace.path.sent import backlog_at
from cctrace.sim.aqm import red_burst
from cctrace.sim.sender import Sender
from cctrace.tcp.wire import PACKET_BYTES

Controller = str | type

AT_SENDER = ("sender", "unknown")  # vantage points before which no packet can have been lost
OPEN_QUESTIONS = {
    "rate": "a faster path: no queue ever grew, so what it could have carried is not known",
    "buffer": "a longer queue: it never overflowed; its longest backlog to ten times that, or ten BDP, are tried",
    "base_rtt": "a shorter base RTT: others' packets stood in the queue all the time",
}
# The evidence of a verdict on ACKs that gives the interval at which a simulated receiver releases them.
_ACK_SLOT_US = {"ack_aggregation": "interval_us", "ack_compression": "sent_over_us"}


@dataclass(frozen=True)
class FlowModel:
    """A recorded flow, with all that a simulation of it needs."""

    path: FittedPath
    controller: Controller | None  # the sender's; None if unknown
    host_limits: HostLimits
    recorded: dict[str, float]  # {figure: value} of the recording, see `figures.FIGURES`
    duration_s: float  # from the first packet to the last ACK
    ack_policies: tuple[dict[str, Any], ...]  # those the receiver may have: options of a `cctrace.Sender`
    hz: int  # ticks per second of the sender's kernel
    other_senders: tuple[Sender, ...]  # of the other flows through the same bottleneck
    losses_captured: bool  # whether lost packets are in the capture
    not_excluded: tuple[str, ...]  # what the capture cannot exclude, in words
    others_hypothetical: bool = False  # whether `other_senders` are assumed, not in the capture
    # the AQM that marks, as changes of the path (`path_changes.changed`); empty if nothing marked, or it is unknown
    marking: Mapping[str, str] = field(default_factory=dict)
    ecn: bool | str = False  # the flow's ECN feedback, as `cctrace.Sender` takes it; False if `marking` is empty
    head_start_s: float = 0.0  # for how long the other flows are simulated before this one begins

    @property
    def simulated_s(self) -> float:
        """Duration of a simulation, from the start of the first flow."""
        return self.head_start_s + self.duration_s


def model_of(
    flow: Flow, own: Controller | None, diagnosis: Diagnosis | None, progress: Progress, quick: bool = False
) -> FlowModel:
    """Return the `FlowModel` of a captured flow.

    `own`: the sender's controller; None: identify it. `diagnosis`: of the flow, if available. `quick`: use a
    quickly fitted path, see `fit.fitted_path.path_of`. Raises `FitError` if the path cannot be inferred, or if the
    application limited the flow without a pattern; `StreamError` if the capture lacks one direction.
    """
    record = Record(flow)
    evidence, table = record.path, record.table
    diagnosis = diagnosis or of_record(record)
    host_limits = host_limits_of(record, diagnosis)
    progress("the path")
    path = path_of(evidence, progress, quick)
    progress("the sender")
    controller, sender_doubt = (own, "") if own else _identified(flow)
    rtts, acked = flow.rtt_samples, table.acked_ns[table.acked_ns >= 0]
    head_start_s = _head_start_s(record)
    model = FlowModel(
        path=path,
        controller=controller,
        host_limits=host_limits,
        recorded=recorded_figures(rtts["rtt_us"], table),
        duration_s=round((int(acked.max()) - table.start_ns) / 1e9, 3),
        ack_policies=_ack_policies(evidence, diagnosis),
        hz=flow.hz,
        other_senders=_other_senders(record, path, head_start_s),
        losses_captured=flow.taken_at in AT_SENDER,
        not_excluded=(),
        head_start_s=head_start_s,
    )
    give_back(len(table))
    progress("which path reproduces the recording")
    recorded = trajectory_of(rtts, table)
    path = likeliest_path(model, recorded, evidence)
    if evidence.is_long:
        evidence.put_away("backlogs")
    rival = uncaptured_competitor(replace(model, path=path), recorded, diagnosis)
    if rival is not None:
        model = replace(model, other_senders=(rival,), others_hypothetical=True)
    marking = _marking(likely_marker(evidence), path) if flow.ecn.delivered_ce else {}
    ecn = flow.ecn.feedback if marking else False
    not_excluded = *host_limits.not_excluded, *_not_excluded(flow, path, sender_doubt, rival)
    return replace(model, path=path, not_excluded=not_excluded, marking=marking, ecn=ecn)


def _not_excluded(flow: Flow, path: FittedPath, sender_doubt: str, rival: Sender | None) -> Iterator[str]:
    """Yield what the capture cannot exclude of path, sender and competitors."""
    if flow.taken_at not in AT_SENDER:
        yield f"what was lost before the capture, taken at the {flow.taken_at}: more may have been retransmitted"
    yield from (OPEN_QUESTIONS[name] for name in path.estimates["undetermined"] if name in OPEN_QUESTIONS)
    if sender_doubt:
        yield sender_doubt
    if rival is not None:
        yield f"a kind of competitor other than {rival.name}: the capture does not show it"


def _marking(marker: Marker, path: FittedPath) -> dict[str, str]:
    """Return the changes that make a path's queue mark packets as the recorded one did."""
    if marker.law is None or len(marker.names) > 1 or not np.isfinite(marker.law.threshold_us):
        return {}
    name, law, bytes_per_us = marker.names[0], marker.law, path.max_rate_bps() / 8e6
    if name == "step":
        return {"ecn_threshold": f"{law.threshold_us * bytes_per_us:.0f}B"}
    if name == "red":
        min_bytes = max(law.threshold_us * bytes_per_us, 2 * PACKET_BYTES)  # below it, no `burst` gives the weight
        max_bytes = law.upper_us / law.threshold_us * min_bytes
        burst = red_burst(law.weight_log, min_bytes / PACKET_BYTES)
        average = f"burst={burst},avpkt={PACKET_BYTES}B,probability={law.most:.0%}"
        return {"aqm": f"red:min={min_bytes:.0f}B,max={max_bytes:.0f}B,{average}"}
    return {"aqm": f"{name}:target={law.threshold_us:.0f}us"} if name in ("codel", "pie") else {}


def _ack_policies(evidence: PathEvidence, diagnosis: Diagnosis) -> tuple[dict[str, Any], ...]:
    """Return the possible ACK policies: every segment or every second one, and those of verdicts on ACKs.

    Linux acknowledges every segment while data are missing, so in a flow with frequent losses only the ACKs of data in
    order show a receiver that otherwise acknowledges every second segment.
    """
    table = evidence.transmissions
    acks = np.count_nonzero(np.bincount(table.ack_row[table.ack_row >= 0]))
    segments_per_ack = np.count_nonzero(table.acked_ns >= 0) / max(int(acks), 1)
    in_order = evidence.acks.every.number if evidence.acks else segments_per_ack
    plain: dict[str, Any] = {"ack_every": 1 if max(segments_per_ack, in_order) < 1.5 else 2}
    grouped: dict[str, Any] = {}
    for verdict in diagnosis.verdicts:
        if verdict.name == "ack_thinning":
            grouped["ack_every"] = round(verdict.evidence["segments_per_ack"])
        elif verdict.name in _ACK_SLOT_US:
            grouped["ack_slot"] = f"{verdict.evidence[_ACK_SLOT_US[verdict.name]]:.0f}us"
    return (plain, plain | grouped) if grouped else (plain,)


def _identified(flow: Flow) -> tuple[Controller | None, str]:
    """Return a flow's controller (None if unknown), and in words what the identification leaves open."""
    try:
        identification = identified(flow)
    except StreamError as error:
        return None, f"which controller sent it: {error}"
    if identification.name == UNKNOWN:
        return None, "which controller sent it: no candidate explains what was sent; own=NAME says it"
    if len(identification.group) > 1:
        others = " or ".join(name for name in identification.group if name != identification.name)
        return identification.spec, f"that it was {others} that sent it"
    return identification.spec, ""


def _head_start_s(record: Record) -> float:
    """Return for how long other flows are simulated before this one begins, a multiple of the grid of trajectories."""
    earlier_s = max((-_start_s(record, index) for index in record.path.traffic.others), default=0.0)
    return math.floor(min(max(earlier_s, 0.0), const.MAX_HEAD_START_S) / const.GRID_S) * const.GRID_S


def _start_s(record: Record, index: int) -> float:
    """Return when another flow of the capture began, s after this one's start (negative: before)."""
    return float(record.path.capture.flow(index).row["start_ns"] - record.flow.row["start_ns"]) / 1e9


def _other_senders(record: Record, path: FittedPath, head_start_s: float) -> tuple[Sender, ...]:
    """Return the senders of the other flows through the same bottleneck; this one begins after `head_start_s`."""
    evidence, senders = record.path, []
    base_us = _base_rtt_us(evidence, evidence.index) if evidence.traffic.others else 0.0
    for index in evidence.traffic.others:
        other = evidence.capture.flow(index)
        start = head_start_s + _start_s(record, index)
        rtt_us = path.rtt_ns / 1e3 + np.nan_to_num(_base_rtt_us(evidence, index) - base_us)  # equal, if unknown
        begin, stop = f"{max(start, 0):.3f}s", f"{start + other.row['duration_s']:.3f}s"
        cc = _identified(other)[0] or "cubic"  # Linux's default
        window = shut_window_bytes(Record(other))
        sender = Sender(cc, rtt=f"{max(rtt_us, 100.0):.0f}us", start=begin, stop=stop)
        senders.append(sender if window is None else replace(sender, rwnd=f"{window:.0f}B"))
    return tuple(senders)


def _base_rtt_us(evidence: PathEvidence, index: int) -> float:
    """Return a flow's median RTT without the time in the shared queue; NaN if no RTT is known.

    Its minimum would include a queue that a flow which joins late never sees empty.
    """
    part, traffic = evidence.sent_by_flow[index], evidence.traffic
    if not len(part.acked):
        return math.nan
    served_bytes = traffic.steps.served(part.sent_us) + backlog_at(traffic.sent, traffic.steps, part.sent_us)
    return float(np.nanmedian(part.acked_us - traffic.steps.when(served_bytes)))
