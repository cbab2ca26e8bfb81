"""Rules on other flows: a shared queue, fair queueing; and a policer, which drops from all."""

from collections.abc import Iterator

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import Finding, Findings, between
from cctrace.path.constants import COMMON_GAIN


def policer(facts: Facts, found: Findings) -> Iterator[Finding]:
    """A token bucket explains the losses."""
    if facts.policer is not None:
        sure = min(max(facts.policer.explained_share, const.DOUBTFUL_CONFIDENCE), const.MAX_CONFIDENCE)
        rest = facts.losses is not None and facts.losses.lost > facts.policer.lost  # a long flow's later ones
        words = {"least": not facts.policer.was_full, "is_part": rest}
        yield facts.finding("policer", sure, facts.policer).saying(**words)


def fair_queueing(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Flows were served in turn, from separate queues, and no other limit caused their shares."""
    queues = facts.fair_queueing
    if queues is None or found.sure & {"receiver_limited", "pacing_limited"}:
        return
    alone = {"alone_bps": queues.solo_bps} if queues.solo_bps > 0 else {"never_alone": True}
    sure = (
        const.MEASURED_CONFIDENCE
        if queues.solo_bps > (1 - const.EQUAL_WITHIN) * queues.link_bps
        else const.LIKELY_CONFIDENCE
    )
    whose = "its" if queues.is_own else "the largest other flow's"
    yield facts.finding("fair_queueing", sure, queues).saying(
        whose=whose, is_equal=queues.share_deviation <= const.STEADY_SCATTER, **alone
    )


def competition(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Other flows share this one's queue: by its delays, by correlated RTTs, or as far as a single poll reveals."""
    sharing = facts.sharing
    if sharing is None or "fair_queueing" in found.names or not sharing.filled:
        return
    if sharing.explained_better_by >= COMMON_GAIN:
        sure = const.LIKELY_CONFIDENCE + sharing.explained_better_by
    elif sharing.rtt_correlation > const.RTTS_ALIKE:
        sure = between(const.DOUBTFUL_CONFIDENCE, const.CLEAR_CONFIDENCE, sharing.rtt_correlation)
    elif sharing.by_time:
        # Whether they take the same path is unknown.
        sure = const.DOUBTFUL_CONFIDENCE if sharing.same_destination else const.UNSURE_CONFIDENCE
    else:
        return
    mine, total = sharing.mine_bps, sharing.mine_bps + sharing.their_rate_bps
    fair, won = total / sharing.flows, "about"
    if abs(mine / fair - 1) > const.EQUAL_WITHIN:
        won = "more than" if mine > fair else "less than"
    words = {
        "others": f"{sharing.flows - 1} other flow{'s' if sharing.flows > 2 else ''}",
        "record": "capture" if facts.kind == PACKETS else "file",
        "by_rtts": sharing.rtt_correlation > const.RTTS_ALIKE,
        "won": won,
        "all_flows": f"all {sharing.flows}" if sharing.flows > 2 else "both",
    }
    numbers = sharing._asdict() | {"fair_share": 1 / sharing.flows}
    yield facts.finding("competition", min(const.MAX_CONFIDENCE, sure), numbers, span=sharing.span).saying(**words)
