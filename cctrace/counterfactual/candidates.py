"""Causes whose removal is simulated: those of the verdicts, and others that may matter although no verdict names them.

    host_limit_verdicts(model, diagnosis)   limits at the hosts, from the time accounting or the kernel's counters
    doubtful_verdicts(model, diagnosis)     causes that may matter although other causes explain as much
    removals(verdicts, model)               which removals can be simulated, and why the others cannot

A verdict names what explains a flow best, and a rule is silent if an earlier one has explained as much. That two causes
limit a flow about equally shows only if each of them is removed.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from cctrace.cc import is_model_based
from cctrace.counterfactual.flow_model import FlowModel
from cctrace.counterfactual.interventions import INTERVENTIONS, NOT_SIMULATED, Intervention, varies
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.diagnose import Diagnosis
from cctrace.diagnosis.findings import Finding, Verdict, partly, shares
from cctrace.diagnosis.order import verdict_of
from cctrace.diagnosis.rules.losses import SHALLOW, are_open
from cctrace.diagnosis.rules.rates import changed
from cctrace.path.changes import Change
from cctrace.path.constants import RATE_DIFFERS
from cctrace.sim.path import Path
from cctrace.units import format_rate

_EQUIVALENT = {"receiver_limited": "window_limited"}  # {cause: another one that states the same limit}
FULL_QUEUE = {
    "shallow_buffer",
    "congestive_loss",
    "poor_pacing",
    "aqm",
    "competition",
    "fair_queueing",
}  # explain drops
NO_SUCH_PART = "the inferred path has none, so that no simulation can leave it out"
A_FULL_QUEUE = "over the path that explains the recording best, a full queue dropped these packets"
ACKS_AS_DUE = "over the path that explains the recording best, ACKs come as they are due"
DELAYED = {"jitter", "collapse", "reordering"}  # verdicts whose removal makes the path's delay less variable
Removals = dict[str, tuple[Intervention, Verdict]]


def host_limit_verdicts(model: FlowModel, diagnosis: Diagnosis) -> list[Verdict]:
    """Return verdicts on host limits found by the time accounting, unless a verdict names them already."""
    named, limits, time_shares = set(diagnosis.causes), model.host_limits, shares(diagnosis.limits)
    application = time_shares.get("application", 0.0)
    waiting = application + time_shares.get("send_buffer", 0.0)  # a capture shows pauses, not buffers
    candidates = (
        ("application_limited", limits.app, application, "application_share"),
        ("receiver_limited", limits.window_bytes, time_shares.get("receive_window", 0.0), "receiver_share"),
        ("send_buffer_limited", limits.send_buffer_bytes, waiting, "send_buffer_share"),
    )
    span = 0.0, diagnosis.limits[-1].end_s
    return [
        verdict_of(Finding(cause, partly(share), span, {number: share}, {"held_share": share, "per_rtt": "per RTT"}))
        for cause, limit, share, number in candidates
        if limit is not None and share > 0 and not named & {cause, _EQUIVALENT.get(cause)}
    ]


def doubtful_verdicts(model: FlowModel, diagnosis: Diagnosis) -> list[Verdict]:
    """Return verdicts on causes that others may hide; `effects` keeps those whose removal changes something."""
    return [*diagnosis.explained_away, *map(verdict_of, _doubtful_findings(model, diagnosis))]


def _doubtful_findings(model: FlowModel, diagnosis: Diagnosis) -> Iterator[Finding]:
    """Yield the causes that the model contains and no verdict names."""
    others, names = len(model.other_senders), set(diagnosis.causes)
    if "competition" in names and not others:
        return  # what the competitors did is then in the model as a property of the path
    window, full_span = model.host_limits.window_bytes, (0.0, diagnosis.limits[-1].end_s)
    if window is not None and not shares(diagnosis.limits).get("receive_window") and "window_limited" not in names:
        numbers = {"kept_bytes": window}  # a stricter limit may hide it
        yield Finding("receiver_limited", const.DOUBTFUL_CONFIDENCE, full_span, numbers, numbers)
    if others and not names & {"competition", "fair_queueing"}:
        words = {"others": f"{others} other flow{'s' if others > 1 else ''}", "link_bps": model.path.max_rate_bps()}
        span = model.other_senders[0].start_ns / 1e9, full_span[1]
        form = "hypothetical" if model.others_hypothetical else "beside"
        words |= {"from_s": span[0]}
        yield Finding("competition", const.DOUBTFUL_CONFIDENCE, span, {"flows": 1 + others}, words, form)
    names |= {cause.name for cause in diagnosis.explained_away}
    if (loss := _random_losses(model, diagnosis)) and not names & {"random_loss", "fair_queueing"}:
        words = {"whatever": "beside those that a queue dropped", "answers_losses": False}
        yield Finding("random_loss", const.DOUBTFUL_CONFIDENCE, full_span, loss, words)
    # An assumed competitor's queue varies the delays, too, and so does a rate that varies all the time.
    unsteady = model.others_hypothetical or any(map(varies, diagnosis.verdicts))
    if not unsteady and (jitter := _jitter(model)) and not names & DELAYED:
        controller = model.controller if isinstance(model.controller, str) else None
        words = {"answers_losses": bool(controller) and not is_model_based(controller)}
        yield Finding("jitter", const.DOUBTFUL_CONFIDENCE, full_span, jitter, words)
    if not others and (steps := _rate_steps(model)) and not names & {"rate_change", "stale_bandwidth", "fair_queueing"}:
        yield changed(steps, const.DOUBTFUL_CONFIDENCE)
    if not others and (buffer := _full_queue(model)) and not names & FULL_QUEUE:
        cause = "shallow_buffer" if buffer["buffer_bdp"] < SHALLOW else "congestive_loss"
        form = "overflow" if cause == "congestive_loss" else ""
        yield Finding(cause, const.DOUBTFUL_CONFIDENCE, full_span, buffer, form=form)


def _jitter(model: FlowModel) -> dict[str, float]:
    """Return numbers of the inferred path's jitter; empty if it is negligible, or reorders packets."""
    path, jitter = model.path, model.path.estimates.get("jitter")
    if jitter is None or any(step is not None and step.reorder for step in path.jitter_steps(path.jitters_before)[1]):
        return {}
    sd_us, base_us = jitter["sd_us"].value, path.rtt_ns / 1e3
    return {"jitter_sd_us": sd_us, "uncongested_rtt_us": base_us} if sd_us > const.NO_JITTER * base_us else {}


def _rate_steps(model: FlowModel) -> list[Change]:
    """Return the steps of the inferred path's rate, without those from a rate that lasted less than an RTT."""
    rows = model.path.estimates["rate_bps"]
    ends_s = [*(row["start_s"] for row in rows[2:]), math.inf]
    return [
        Change(after["start_s"], before["value"], after["value"], end_s)
        for before, after, end_s in zip(rows, rows[1:], ends_s, strict=False)
        if abs(math.log(after["value"] / before["value"])) > math.log(RATE_DIFFERS)
        and after["start_s"] - before["start_s"] > model.path.rtt_ns / 1e9
    ]


def _full_queue(model: FlowModel) -> dict[str, float]:
    """Return numbers of the inferred path's buffer if it certainly overflowed, else none."""
    path, lost = model.path, model.path.estimates["loss"].get("congestive", 0)
    buffer = path.estimates["buffer_bytes"].value
    if buffer is None or lost < const.MIN_OBSERVATIONS:
        return {}
    bdp_bytes = path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    return {"buffer_bytes": buffer, "buffer_bdp": buffer / bdp_bytes, "lost": lost}


def _random_losses(model: FlowModel, diagnosis: Diagnosis) -> dict[str, float]:
    """Return numbers of the inferred path's random losses if it certainly has some, else none."""
    loss = model.path.estimates["loss"]
    share, lost = loss["share"], loss.get("random", 0)
    reordering = next((verdict.evidence for verdict in diagnosis.verdicts if verdict.name == "reordering"), {})
    if reordering and are_open(lost, reordering["spurious_retransmissions"]):
        return {}
    if model.path.aqm == "droptail":  # the fit takes drops of an AQM that it has no model of, such as PIE, for random
        lost -= sum(verdict.evidence["lost"] for verdict in diagnosis.verdicts if verdict.name == "aqm")
    if loss["model"] == "none" or not share.low or lost < const.MIN_OBSERVATIONS:
        return {}
    return {"loss_share": share.value, "lost": loss["random"], "share_low": share.low, "share_high": share.high}


def _one_rate_text(path: Path, verdict: Verdict) -> str:
    """Return in words which constant rate a path gets; "" where the intervention's own description says it."""
    if varies(verdict):
        return "the path's mean rate all the time"
    first, *later = path.rate_steps()[1]
    higher = max(later, default=first)
    return f"the path's first rate all the time, also when it had {format_rate(higher)}" if higher > first else ""


def _alone_in_fair_queue(removal: Intervention, verdict: Verdict, model: FlowModel) -> Intervention:
    """Return the removal of the other flows, with CoDel for the drops of the flow's own queue (fq_codel, cake).

    The inferred path has these drops as random losses, which would be as frequent with the entire link, when hardly any
    drops are needed.
    """
    if model.path.estimates["loss"]["model"] == "none":
        return removal
    drops = INTERVENTIONS["random_loss"].combined_with(INTERVENTIONS["self_induced_queue"], verdict)
    return replace(removal.combined_with(drops, verdict), description=removal.description)


def removals(verdicts: list[Verdict], model: FlowModel) -> tuple[Removals, dict[str, str]]:
    """Return the causes whose removal can be simulated, and why the others cannot."""
    causes = {verdict.name: verdict for verdict in verdicts}
    simulable = {name: (INTERVENTIONS[name], verdict) for name, verdict in causes.items() if name in INTERVENTIONS}
    unanswered = {name: NOT_SIMULATED[name] for name in causes if name not in simulable}
    for cause in [cause for cause, (removal, _) in simulable.items() if removal.is_alone and not model.other_senders]:
        unanswered[cause] = "the flows that competed are not part of what was inferred"
        del simulable[cause]
    if "fair_queueing" in simulable:
        removal, verdict = simulable["fair_queueing"]
        if "random_loss" not in simulable:
            removal = _alone_in_fair_queue(removal, verdict, model)
        removal = replace(removal, is_alone=bool(model.other_senders))  # all share one queue
        simulable["fair_queueing"] = removal, verdict
    for cause in simulable.keys() & {"rate_change", "stale_bandwidth"}:
        removal, verdict = simulable[cause]
        description = _one_rate_text(model.path, verdict) or removal.description
        simulable[cause] = replace(removal, description=description), verdict
    path, lost = model.path, model.path.estimates["loss"]
    if "aqm" in simulable and path.aqm == "droptail":
        if lost["model"] != "none" and "random_loss" not in simulable:  # random losses stand for the drops of this AQM
            plain = replace(INTERVENTIONS["random_loss"], description=INTERVENTIONS["aqm"].description, is_longer=True)
            simulable["aqm"] = (plain, simulable["aqm"][1])
        else:
            full = path.estimates["aqm"] == "droptail"
            unanswered["aqm"] = A_FULL_QUEUE if full else NO_SUCH_PART
            del simulable["aqm"]
    if "policer" in simulable and path.policer is None:
        unanswered["policer"] = NO_SUCH_PART
        del simulable["policer"]
    if "ecn_marking" in simulable and not model.marking:
        unanswered["ecn_marking"] = "which AQM marks is unknown, so that no simulation can leave it out"
        del simulable["ecn_marking"]
    for cause in simulable.keys() & {"shallow_buffer", "congestive_loss"}:
        if lost.get("congestive") == 0 and lost.get("random", 0) > 0:  # `likeliest_path` has all losses at random
            unanswered[cause] = "over the path that explains the recording best, no packet is lost to a full queue"
            del simulable[cause]
    return simulable, unanswered
