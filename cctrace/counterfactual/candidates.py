"""Which causes are asked about: those of the verdicts, and those that no verdict names although they may matter.

    held(scene, diagnosis)          what the account of time, or the kernel, shows to have held the flow back
    beside(scene, diagnosis)        what may matter although other causes explain as much
    removals(verdicts, scene)       whose removal can be simulated, and why not of the others

A verdict says what explains a flow best; a rule says nothing where an earlier one has explained as much. What two
causes did together shows only where each of them is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cctrace.counterfactual.interventions import INTERVENTIONS, NOT_SIMULATED, Intervention
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Finding, Verdict
from cctrace.diagnosis.limits import shares
from cctrace.diagnosis.order import verdict

if TYPE_CHECKING:
    from cctrace.counterfactual.scene import Scene
    from cctrace.diagnosis.diagnose import Diagnosis

FROM_LIMITS = 0.2, 0.5  # confidence of what only the account shows: so much, and so much times its share of the time
_SAYS_AS_MUCH = {"receiver_limited": "window_limited"}
Removals = dict[str, tuple[Intervention, Verdict]]


def held(scene: Scene, diagnosis: Diagnosis) -> list[Verdict]:
    """Return the verdicts of what held the flow back by the account of time, where none says so yet."""
    named, by, account = {one.name for one in diagnosis.verdicts}, scene.held, shares(diagnosis.limits)
    found = []
    waited = account.get("application", 0.0) + account.get("send_buffer", 0.0)  # a capture shows no buffer, but pauses
    for cause, is_held, share, number, words in (
        ("application_limited", by.app, account.get("application", 0.0), "application_share", {}),
        ("receiver_limited", by.window_bytes, account.get("receive_window", 0.0), "receiver_share", {}),
        ("send_buffer_limited", by.send_buffer_bytes, waited, "send_buffer_share", {}),
        ("pacing_limited", by.pacing_bps, by.paced_share, "limited_share", {"limit_bps": by.pacing_bps}),
    ):
        if is_held is not None and share > 0 and not named & {cause, _SAYS_AS_MUCH.get(cause)}:
            least, times = FROM_LIMITS
            span = 0.0, diagnosis.limits[-1].end_s
            said: dict[str, Any] = {**words, "held_share": share, "per_rtt": "per RTT"}
            form = "partly" if cause == "pacing_limited" else ""
            found.append(verdict(Finding(cause, min(least + times * share, 0.99), span, {number: share}, said, form)))
    return found


def beside(scene: Scene, diagnosis: Diagnosis) -> list[Verdict]:
    """Return the verdicts of what may have mattered although others explain as much: for those that do matter."""
    found, others, names = list(diagnosis.explained_away), len(scene.others), {one.name for one in diagnosis.verdicts}
    window, full_span = scene.held.window_bytes, (0.0, diagnosis.limits[-1].end_s)
    if window is not None and not shares(diagnosis.limits).get("receive_window") and "window_limited" not in names:
        kept = {"kept_bytes": window}  # what holds back more may hide it
        found.append(verdict(Finding("receiver_limited", const.DOUBTFUL, full_span, kept, kept)))
    if others and not names & {"competition", "fair_queueing"}:
        words = {"others": f"{others} other flow{'s' if others > 1 else ''}", "link_bps": scene.path.max_rate_bps()}
        span = scene.others[0].start_ns / 1e9, full_span[1]
        form = "unshown" if scene.are_unshown else "beside"
        words |= {"from_s": span[0]}
        found.append(verdict(Finding("competition", const.DOUBTFUL, span, {"flows": 1 + others}, words, form)))
    if (loss := _by_chance(scene)) and "random_loss" not in {one.name for one in [*diagnosis.verdicts, *found]}:
        said = {"whatever": "beside those that a queue dropped", "answers_losses": False}
        found.append(verdict(Finding("random_loss", const.DOUBTFUL, full_span, loss, said)))
    return found


def _by_chance(scene: Scene) -> dict[str, float]:
    """Return the numbers of the inferred path's random losses, as far as these are certain; none of a path without."""
    loss = scene.path.estimates["loss"]
    share = loss["share"]
    if loss["model"] == "none" or not share.low or loss.get("random", 0) < const.LEAST_LOSSES:
        return {}
    return {"loss_share": share.value, "lost": loss["random"], "share_low": share.low, "share_high": share.high}


def removals(verdicts: list[Verdict], scene: Scene) -> tuple[Removals, dict[str, str]]:
    """Return the causes whose removal can be simulated, and why not of the others."""
    known = {one.name: (INTERVENTIONS[one.name], one) for one in verdicts if one.name in INTERVENTIONS}
    unanswered = {one.name: NOT_SIMULATED[one.name] for one in verdicts if one.name not in known}
    for cause in [cause for cause, (removal, _) in known.items() if removal.is_alone and not scene.others]:
        unanswered[cause] = "the flows that competed are not part of what was inferred"
        del known[cause]
    path = scene.path
    for cause, has_it in (("aqm", path.aqm != "droptail"), ("policer", path.policer is not None)):
        if cause in known and not has_it:  # RED and PIE, of which a fit knows none: to leave them out changes nothing
            unanswered[cause] = "the inferred path has none, so that no simulation can leave it out"
            del known[cause]
    if "ecn_marking" in known and not scene.marking:
        unanswered["ecn_marking"] = (
            "which queue management marks cannot be told, so that no simulation can leave it out"
        )
        del known["ecn_marking"]
    for cause in known.keys() & {"shallow_buffer", "congestive_loss"}:
        lost = path.estimates["loss"]
        if lost.get("congestive") == 0 and lost.get("random", 0) > 0:  # `weighing` took all losses for chance
            unanswered[cause] = "over the path that explains the recording best, no packet is lost to a full queue"
            del known[cause]
    return known, unanswered
