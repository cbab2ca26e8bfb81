"""Rules on losses: random, congestive (full or shallow queue), by an AQM; and bursts."""

import math
from collections.abc import Iterator
from dataclasses import replace

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import Finding, Findings, between
from cctrace.diagnosis.groups import LossBacklogs, Losses, Policer
from cctrace.path.constants import CHANCE_PROBABILITY, LOSS_RANK, MAX_EARLY_SHARE, REORDERED_SHARE
from cctrace.special import special

NEVER_FULL = {"random_loss", "aqm"}  # causes of losses that no full queue explains, whoever filled it
FULL = {"congestive_loss", "shallow_buffer"}
SHALLOW = const.QUEUED_RTTS - 1  # bandwidth-delay products: a probe of BBR overflows it
SURE_ERRORS = float(-special.ndtri(CHANCE_PROBABILITY))  # standard errors of a mean rank, to be significant
QUANTIFIED = {"random_loss", "shallow_buffer"}  # causes whose sentences quantify the losses


def poor_pacing(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Bursts lose their ends in a queue that they filled themselves."""
    bursts = facts.bursts
    if bursts is None or found.sure & {"competition", "fair_queueing", "policer"}:
        return
    large = (
        bursts.burst_bytes >= const.LARGE_BURST_TIMES * bursts.paced_bytes
        and bursts.own_share_of_queue >= const.PREDOMINANT_SHARE
    )
    if large and bursts.rank_in_burst >= const.CLEAR_RANK and bursts.bursts_with_losses >= const.MIN_OBSERVATIONS:
        yield facts.finding("poor_pacing", min(bursts.rank_in_burst, const.MEASURED_CONFIDENCE), bursts)


def losses(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Cause of the losses that neither a policer nor others' full queue explains."""
    lost, is_shared = facts.losses, bool(found.names & {"competition", "fair_queueing"})
    if lost is None or (is_shared and lost.backlogs is None):
        return
    if facts.policer is not None:
        causes = _with_tokens_left(facts, lost, facts.policer)
    elif lost.backlogs is not None:
        causes = _placed(facts, lost, lost.backlogs)
    else:
        causes = _unplaced(facts, lost) if lost.lost >= const.MIN_OBSERVATIONS else iter(())
    bursts = "poor_pacing" in found.names  # their losses are neither random nor an AQM's
    hidden = NEVER_FULL if bursts else set()
    if is_shared:
        hidden = hidden | FULL
    late = facts.reordering
    if late is not None and late.reordered_share >= REORDERED_SHARE and late.reordered >= const.MIN_OBSERVATIONS:
        hidden = hidden | {"aqm"}  # which ones were lost, and when, is less sure than by how much their queues differ
    if late is not None and are_open(lost.lost, late.spurious_retransmissions):
        hidden = hidden | {"random_loss"}
    marks = facts.ecn_marks
    # A buffer that overflows once, as where the rate falls, does not limit what marks cut often.
    if marks is not None and "ecn_marking" in found.sure and marks.loss_episodes == 1:
        hidden = hidden | {"shallow_buffer"}
    some_late = late is not None and late.spurious_retransmissions > 0  # and not all of those are reported
    doubted = {"random_loss"} if late is not None and late.reordered_share >= const.NOTABLE_SHARE else set()
    for one in causes:
        if one.name not in hidden:  # where late packets are no exception, many of the lost ones may be such
            sure = min(one.confidence, const.UNSURE_CONFIDENCE) if one.name in doubted else one.confidence
            yield replace(one, confidence=sure).saying(is_bound=some_late)


def are_open(lost: float, spurious: float) -> bool:
    """Return whether losses may be packets that others overtook: many retransmissions proved spurious.

    A D-SACK is replaced by the next one while a compressed ACK waits [Linux] tcp_dsack_set: those of late packets that
    none reported look like losses.
    """
    return spurious >= max(lost / 2, const.MIN_PACKETS)


def _with_tokens_left(facts: Facts, lost: Losses, policer: Policer) -> Iterator[Finding]:
    """Losses that a policer does not explain: its bucket was not empty, then or shortly before or after."""
    if (count := policer.losses_elsewhere) >= const.MIN_OBSERVATIONS:
        sure = between(const.LIKELY_CONFIDENCE, const.MEASURED_CONFIDENCE, count / const.MIN_FOR_SHARES)
        numbers = {"loss_share": count / policer.lost * lost.loss_share, "lost": count}
        yield facts.finding("random_loss", sure, numbers, span=lost.span).saying(whatever="while tokens were left")


def _placed(facts: Facts, lost: Losses, backlogs: LossBacklogs) -> Iterator[Finding]:
    """Losses with known backlogs."""
    # Two losses may reveal an AQM: random ones rarely hit long queues only, a full queue drops at its longest.
    managed = (
        backlogs.other_episodes > 1
        and backlogs.chance < CHANCE_PROBABILITY
        and backlogs.is_managed_length
        and not _met_its_end(backlogs)
    )
    if lost.lost < const.MIN_OBSERVATIONS:
        if managed and backlogs.avoids_short:
            yield _aqm(facts, lost, backlogs)
        return
    overflowed, dropped = backlogs.overflow_losses, []
    # A full queue drops many at a time; random losses that cut the window as often are as much of a cause.
    often = (
        backlogs.other_losses >= (1 - const.NEARLY_ALL_SHARE) * lost.lost
        or backlogs.other_episodes >= backlogs.overflow_episodes
    )
    often &= backlogs.other_losses >= const.MIN_OBSERVATIONS
    if managed and (often or backlogs.avoids_short):
        dropped.append(_aqm(facts, lost, backlogs))
    elif often:
        after_long = (
            _errors(backlogs.rtt_rank, backlogs.rtt_episodes) > SURE_ERRORS and backlogs.rtt_rank > const.CLEAR_RANK
        )
        if backlogs.chance < CHANCE_PROBABILITY:
            overflowed = lost.lost
        elif backlogs.is_gathered() or after_long:
            dropped.append(_full(facts, lost, backlogs.other_losses, backlogs.rtt_rank))
        else:
            dropped.append(_chance(facts, lost, backlogs))
    if overflowed >= const.MIN_OBSERVATIONS:
        full = _overflow(facts, lost, backlogs, overflowed).saying(or_aqm=any(one.name == "aqm" for one in dropped))
        dropped = [one for one in dropped if one.name != full.name] + [full]
    yield from dropped


def _met_its_end(backlogs: LossBacklogs) -> bool:
    """Return whether the losses that did not overflow the queue met its longest, as a full one's do."""
    low, _, _, longest = backlogs.waits_us
    return low >= const.NEARLY_ALL_SHARE * longest and backlogs.early_share < MAX_EARLY_SHARE


def few_losses(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Losses too few to be sure of what dropped them, but each cut a window that nothing else is seen to limit."""
    lost = facts.losses
    if lost is None or lost.backlogs is None or facts.is_model_based or found.names:
        return
    if not 0 < lost.lost < const.MIN_OBSERVATIONS:
        return
    backlogs = lost.backlogs
    _, _, high, longest = backlogs.waits_us
    by_chance = backlogs.chance >= const.NEGLIGIBLE_SHARE
    if _met_its_end(backlogs) and not by_chance:
        one = _overflow(facts, lost, backlogs, lost.lost).saying(or_aqm=False)
    elif by_chance or high < longest / 2:
        one = _chance(facts, lost, backlogs)
    elif backlogs.early_share >= MAX_EARLY_SHARE:
        one = _aqm(facts, lost, backlogs)
    else:
        return  # perhaps of a policer
    yield replace(one, confidence=const.UNSURE_CONFIDENCE)


def _errors(rank: float, episodes: int) -> float:
    """Return by how many standard errors a mean rank exceeds 0.5: ranks of random losses are uniform from 0 to 1."""
    return (rank - 0.5) * math.sqrt(12 * episodes)


def _unplaced(facts: Facts, lost: Losses) -> Iterator[Finding]:
    """Losses with unknown backlogs: random, if nothing contradicts it."""
    clear = abs(_errors(lost.rtt_rank, lost.episodes)) > SURE_ERRORS and lost.rtt_rank > lost.clear_rank
    together = lost.rtt_rank > LOSS_RANK and lost.lost >= 2 * const.MIN_OBSERVATIONS * lost.episodes
    exact = facts.kind == PACKETS
    if together or clear or not lost.can_be_chance or lost.is_gathered():
        if lost.rtt_rank > 0.5 or not exact:
            yield _full(facts, lost, lost.lost, lost.rtt_rank)
        return
    sure = between(const.UNSURE_CONFIDENCE, const.LIKELY_CONFIDENCE, lost.episodes / const.MIN_FOR_SHARES)
    if not exact:  # a policer, or a short buffer, may drop as evenly
        sure = (
            const.DOUBTFUL_CONFIDENCE
            if facts.is_model_based
            else min(max(sure, const.DOUBTFUL_CONFIDENCE), const.EXPLAINING_CONFIDENCE)
        )
    numbers = {"loss_share": lost.loss_share, "lost": lost.lost, "rtt_rank": lost.rtt_rank} | dict(lost.of_polls)
    yield _by_chance(facts, lost, sure, numbers)


def _chance(facts: Facts, lost: Losses, backlogs: LossBacklogs) -> Finding:
    sure = between(const.LIKELY_CONFIDENCE, const.MEASURED_CONFIDENCE, backlogs.other_losses / const.MIN_FOR_SHARES)
    if backlogs.other_episodes < const.MIN_OBSERVATIONS:  # lost together: one event
        sure = const.UNSURE_CONFIDENCE
    numbers = {
        "loss_share": backlogs.other_share,
        "lost": backlogs.other_losses,
        "share_low": backlogs.share_low,
        "share_high": backlogs.share_high,
    }
    return _by_chance(facts, lost, sure, numbers | {"congestive": backlogs.overflow_losses, "chance": backlogs.chance})


def _by_chance(facts: Facts, lost: Losses, sure: float, numbers: dict[str, float]) -> Finding:
    queue = "whether the queue was long or empty"
    whatever = queue if facts.kind == PACKETS else "most of them while RTTs were no longer than usual"
    return facts.finding("random_loss", sure, numbers, span=lost.span).saying(whatever=whatever)


def _full(facts: Facts, lost: Losses, dropped: int, rank: float) -> Finding:
    """A full queue that this flow's own data do not explain, or of unknown length; or a shallow one."""
    numbers = {"lost": dropped, "rtt_rank": rank} | dict(lost.of_polls)
    exact, long = facts.kind == PACKETS, rank > 0.5
    if long and (exact or lost.can_be_chance) and lost.was_empty and lost.room_us < SHALLOW * lost.least_rtt_us:
        numbers |= {"buffer_us": lost.room_us, "buffer_bdp": lost.room_us / lost.least_rtt_us}
        return _shallow(facts, lost, const.LIKELY_CONFIDENCE if exact else const.EXPLAINING_CONFIDENCE, numbers)
    words = {
        "when": "when RTTs were long, or together" if long else "at some times only",
        "by_others": exact and lost.backlogs is not None,
        "is_unknown": exact and lost.backlogs is None,
        "perhaps_policer": not long,
    }
    sure = (const.EXPLAINING_CONFIDENCE if exact else const.DOUBTFUL_CONFIDENCE) if long else const.UNSURE_CONFIDENCE
    return facts.finding("congestive_loss", sure, numbers, span=lost.span).saying(**words)


def _overflow(facts: Facts, lost: Losses, backlogs: LossBacklogs, dropped: int) -> Finding:
    numbers = {"buffer_bytes": backlogs.buffer_bytes, "buffer_bdp": backlogs.buffer_bdp, "lost": dropped}
    if lost.was_empty and backlogs.buffer_bdp < SHALLOW:
        longer = (backlogs.buffer_bdp / SHALLOW - const.PREDOMINANT_SHARE) / (1 - const.PREDOMINANT_SHARE)
        sure = between(const.MEASURED_CONFIDENCE, const.DOUBTFUL_CONFIDENCE, longer)
        return _shallow(facts, lost, min(sure, 1 - backlogs.early_share), numbers)
    sure = min(const.CLEAR_CONFIDENCE, 1 - backlogs.early_share)
    return facts.finding("congestive_loss", sure, numbers, "overflow", span=lost.span).saying(least=not lost.was_empty)


def _shallow(facts: Facts, lost: Losses, sure: float, numbers: dict[str, float]) -> Finding:
    words = {"loss_share": numbers["lost"] / lost.sent, "perhaps_policer": facts.kind != PACKETS}
    return facts.finding("shallow_buffer", sure, numbers, span=lost.span).saying(**words)


def _aqm(facts: Facts, lost: Losses, backlogs: LossBacklogs) -> Finding:
    low, middle, high, longest = backlogs.waits_us
    numbers = {"lost": backlogs.other_losses, "wait_us_p10": low, "wait_us_p50": middle, "wait_us_p90": high}
    sure = between(
        const.EXPLAINING_CONFIDENCE,
        const.MEASURED_CONFIDENCE,
        math.log(backlogs.chance + 1e-12) / (2 * math.log(CHANCE_PROBABILITY)),
    )
    return facts.finding("aqm", sure, numbers | {"longest_wait_us": longest}, span=lost.span).saying(
        has_ecn=facts.has_ecn
    )


def retransmissions(facts: Facts, found: Findings) -> Iterator[Finding]:
    """A twentieth of the segments was retransmitted, and no other sentence says so; or losses before the capture."""
    again = facts.retransmissions
    if again is None:
        return
    share = again.retransmitted_share
    if again.is_before_capture and again.retransmitted_segments >= max(
        const.MIN_OBSERVATIONS, const.ACCIDENTAL_SHARE * again.segments
    ):
        yield facts.finding("lost_before_capture", const.EXPLAINING_CONFIDENCE, again)
        return
    likely = {finding.name for finding in found.findings if finding.confidence >= const.DOUBTFUL_CONFIDENCE}
    if share >= const.HEAVY_SHARE and not likely & QUANTIFIED:
        yield facts.finding("heavy_retransmission", const.CLEAR_CONFIDENCE, again).saying(vain=again.needless or None)
