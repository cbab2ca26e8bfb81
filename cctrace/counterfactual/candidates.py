"""Causes whose removal is simulated: those of the verdicts, and others that may matter although no verdict names them.

    held(scene, diagnosis)          host limits found by the time accounting or the kernel's counters
    beside(scene, diagnosis)        causes that may matter although other causes explain as much
    removals(verdicts, scene)       which removals can be simulated, and why the others cannot

A verdict names what explains a flow best, and a rule stays silent if an earlier one has explained as much. The
joint effect of two causes shows only if each is removed.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from cctrace.counterfactual.interventions import INTERVENTIONS, NOT_SIMULATED, Intervention, varies
from cctrace.counterfactual.scene import Scene
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.diagnose import Diagnosis
from cctrace.diagnosis.findings import Finding, Verdict, partly, shares
from cctrace.diagnosis.order import verdict
from cctrace.diagnosis.rules.losses import SHALLOW, are_open
from cctrace.diagnosis.rules.rates import changed
from cctrace.path.changes import Change
from cctrace.path.constants import RATE_DIFFERS
from cctrace.sim.path import Path
from cctrace.units import format_rate

_SAYS_AS_MUCH = {"receiver_limited": "window_limited"}
FULL_QUEUE = {"shallow_buffer", "congestive_loss", "poor_pacing", "aqm", "competition", "fair_queueing"}  # say why
NO_SUCH_PART = "the inferred path has none, so that no simulation can leave it out"
A_FULL_QUEUE = "over the path that explains the recording best, a full queue dropped these packets"
ACKS_AS_DUE = "over the path that explains the recording best, ACKs come as they are due"
DELAYED = {"jitter", "collapse", "reordering"}  # their removal leaves constant delays, or none that reorder
Removals = dict[str, tuple[Intervention, Verdict]]


def held(scene: Scene, diagnosis: Diagnosis) -> list[Verdict]:
    """Return verdicts on host limits found by the time accounting, unless a verdict names them already."""
    named, by, account = set(diagnosis.causes), scene.held, shares(diagnosis.limits)
    waited = account.get("application", 0.0) + account.get("send_buffer", 0.0)  # a capture shows pauses, not buffers
    found = (
        ("application_limited", by.app, account.get("application", 0.0), "application_share"),
        ("receiver_limited", by.window_bytes, account.get("receive_window", 0.0), "receiver_share"),
        ("send_buffer_limited", by.send_buffer_bytes, waited, "send_buffer_share"),
    )
    span = 0.0, diagnosis.limits[-1].end_s
    return [
        verdict(Finding(cause, partly(share), span, {number: share}, {"held_share": share, "per_rtt": "per RTT"}))
        for cause, is_held, share, number in found
        if is_held is not None and share > 0 and not named & {cause, _SAYS_AS_MUCH.get(cause)}
    ]


def beside(scene: Scene, diagnosis: Diagnosis) -> list[Verdict]:
    """Return verdicts on causes that may matter although others explain as much, limited to those that do matter."""
    return [*diagnosis.explained_away, *map(verdict, _doubtful(scene, diagnosis))]


def _doubtful(scene: Scene, diagnosis: Diagnosis) -> Iterator[Finding]:
    """Yield what the scene has and no verdict names."""
    others, names = len(scene.others), set(diagnosis.causes)
    window, full_span = scene.held.window_bytes, (0.0, diagnosis.limits[-1].end_s)
    if window is not None and not shares(diagnosis.limits).get("receive_window") and "window_limited" not in names:
        kept = {"kept_bytes": window}  # a stricter limit may hide it
        yield Finding("receiver_limited", const.DOUBTFUL, full_span, kept, kept)
    if others and not names & {"competition", "fair_queueing"}:
        words = {"others": f"{others} other flow{'s' if others > 1 else ''}", "link_bps": scene.path.max_rate_bps()}
        span = scene.others[0].start_ns / 1e9, full_span[1]
        form = "hypothetical" if scene.are_hypothetical else "beside"
        words |= {"from_s": span[0]}
        yield Finding("competition", const.DOUBTFUL, span, {"flows": 1 + others}, words, form)
    names |= {one.name for one in diagnosis.explained_away}
    if (loss := _by_chance(scene, diagnosis)) and not names & {"random_loss", "fair_queueing"}:
        said = {"whatever": "beside those that a queue dropped", "answers_losses": False}
        yield Finding("random_loss", const.DOUBTFUL, full_span, loss, said)
    if not scene.are_hypothetical and (varied := _varied(scene)) and not names & DELAYED:  # their queues vary delays
        yield Finding("jitter", const.DOUBTFUL, full_span, varied)
    if not others and (steps := _steps(scene)) and not names & {"rate_change", "stale_bandwidth", "fair_queueing"}:
        yield changed(steps, const.DOUBTFUL)
    if not others and (full := _overflowed(scene)) and not names & FULL_QUEUE:
        cause = "shallow_buffer" if full["buffer_bdp"] < SHALLOW else "congestive_loss"
        form = "overflow" if cause == "congestive_loss" else ""
        yield Finding(cause, const.DOUBTFUL, full_span, full, form=form)


def _varied(scene: Scene) -> dict[str, float]:
    """Return the numbers of the inferred path's jitter; none of a path with hardly any, or one that reorders."""
    path, jitter = scene.path, scene.path.estimates.get("jitter")
    if jitter is None or any(one is not None and one.reorder for one in path.jitter_steps(path.jitters_before)[1]):
        return {}
    spread, base = jitter["sd_us"].value, path.rtt_ns / 1e3
    return {"jitter_sd_us": spread, "uncongested_rtt_us": base} if spread > const.NO_JITTER * base else {}


def _steps(scene: Scene) -> list[Change]:
    """Return the steps of the inferred path's rate; what holds for less than an RTT concerns a few packets."""
    rows = scene.path.estimates["rate_bps"]
    ends_s = [*(row["start_s"] for row in rows[2:]), math.inf]
    steps = [
        Change(after["start_s"], before["value"], after["value"], end_s)
        for before, after, end_s in zip(rows, rows[1:], ends_s, strict=False)
    ]
    begins_s = [row["start_s"] for row in rows]
    return [
        one
        for one, begin_s in zip(steps, begins_s, strict=False)
        if abs(math.log(one.after_bps / one.before_bps)) > math.log(RATE_DIFFERS)
        and one.at_s - begin_s > scene.path.rtt_ns / 1e9
    ]


def _overflowed(scene: Scene) -> dict[str, float]:
    """Return the numbers of the inferred path's full queue, as far as it is certain; none of a path without."""
    path, dropped = scene.path, scene.path.estimates["loss"].get("congestive", 0)
    buffer = path.estimates["buffer_bytes"].value
    if buffer is None or dropped < const.FEWEST:
        return {}
    bdp = path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    return {"buffer_bytes": buffer, "buffer_bdp": buffer / bdp, "lost": dropped}


def _by_chance(scene: Scene, diagnosis: Diagnosis) -> dict[str, float]:
    """Return the inferred path's random losses where these are certain, else none."""
    loss = scene.path.estimates["loss"]
    share, chance = loss["share"], loss.get("random", 0)
    late = next((one.evidence for one in diagnosis.verdicts if one.name == "reordering"), {})
    if late and are_open(chance, late["spurious_retransmissions"]):
        return {}
    if scene.path.aqm == "droptail":  # the drops of an AQM that no fit models, such as PIE, are random losses there
        chance -= sum(one.evidence["lost"] for one in diagnosis.verdicts if one.name == "aqm")
    if loss["model"] == "none" or not share.low or chance < const.FEWEST:
        return {}
    return {"loss_share": share.value, "lost": loss["random"], "share_low": share.low, "share_high": share.high}


def _one_rate_words(path: Path, verdict: Verdict) -> str:
    """Return how a path with one rate differs where that is not the first one, or not the highest; empty otherwise."""
    if varies(verdict):
        return "the path's mean rate all the time"
    first, *later = path.rate_steps()[1]
    higher = max(later, default=first)
    return f"the path's first rate all the time, also when it had {format_rate(higher)}" if higher > first else ""


def _alone_in_fair_queue(removal: Intervention, one: Verdict, scene: Scene) -> Intervention:
    """Return the removal of the other flows, with the drops of the flow's own queue by CoDel (fq_codel, cake).

    The path has them as random losses, which would come as often however few they need be with the entire link.
    """
    if scene.path.estimates["loss"]["model"] == "none":
        return removal
    drops = INTERVENTIONS["random_loss"].and_also(INTERVENTIONS["self_induced_queue"], one)
    return replace(removal.and_also(drops, one), words=removal.words)


def removals(verdicts: list[Verdict], scene: Scene) -> tuple[Removals, dict[str, str]]:
    """Return the causes whose removal can be simulated, and why the others cannot."""
    known = {one.name: (INTERVENTIONS[one.name], one) for one in verdicts if one.name in INTERVENTIONS}
    unanswered = {one.name: NOT_SIMULATED[one.name] for one in verdicts if one.name not in known}
    for cause in [cause for cause, (removal, _) in known.items() if removal.is_alone and not scene.others]:
        unanswered[cause] = "the flows that competed are not part of what was inferred"
        del known[cause]
    if "fair_queueing" in known:
        removal, one = known["fair_queueing"]
        if "random_loss" not in known:
            removal = _alone_in_fair_queue(removal, one, scene)
        known["fair_queueing"] = replace(removal, is_alone=bool(scene.others)), one  # all share one queue
    for cause in known.keys() & {"rate_change", "stale_bandwidth"}:
        removal, one = known[cause]
        known[cause] = replace(removal, words=_one_rate_words(scene.path, one) or removal.words), one
    path, lost = scene.path, scene.path.estimates["loss"]
    if "aqm" in known and path.aqm == "droptail":
        if lost["model"] != "none" and "random_loss" not in known:  # what models the drops of an AQM that none fits
            plain = replace(INTERVENTIONS["random_loss"], words=INTERVENTIONS["aqm"].words, is_longer=True)
            known["aqm"] = (plain, known["aqm"][1])
        else:
            full = path.estimates["aqm"] == "droptail"
            unanswered["aqm"] = A_FULL_QUEUE if full else NO_SUCH_PART
            del known["aqm"]
    if "policer" in known and path.policer is None:
        unanswered["policer"] = NO_SUCH_PART
        del known["policer"]
    if "ecn_marking" in known and not scene.marking:
        why = "which AQM marks is unknown, so that no simulation can leave it out"
        unanswered["ecn_marking"] = why
        del known["ecn_marking"]
    for cause in known.keys() & {"shallow_buffer", "congestive_loss"}:
        if lost.get("congestive") == 0 and lost.get("random", 0) > 0:  # `weighing` attributed all losses to chance
            unanswered[cause] = "over the path that explains the recording best, no packet is lost to a full queue"
            del known[cause]
    return known, unanswered
