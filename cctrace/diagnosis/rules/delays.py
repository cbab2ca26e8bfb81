"""Rules on delays other than the flow's own queue: jitter and its effect on BBR's min_rtt, reordering, ACKs."""

from collections.abc import Iterator

from cctrace.analytic.collapse import COLLAPSED
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import ENDS, Finding, Findings, between
from cctrace.diagnosis.rules.ends import reads_slowly
from cctrace.fit.constants import JITTERY_SHARE
from cctrace.path.constants import REORDERED_SHARE
from cctrace.tcp.wire import DELAYED_ACK_SEGMENTS

SHORT = "slow_start_only"  # then no other rule on delays applies


def reordering(facts: Facts, found: Findings) -> Iterator[Finding]:
    """A packet in a thousand arrived after packets sent later, and not all at the moment a route got shorter."""
    late = facts.reordering
    if (
        late is None
        or late.is_once
        or _is_short(found)
        or late.reordered < const.MIN_OBSERVATIONS
        or not late.reordered_share >= REORDERED_SHARE
    ):
        return
    needless = late.spurious_retransmissions
    words = {"counted": late.reordered} if late.is_kernels else {}
    if needless > late.retransmitted:
        words |= {"copies": needless, "retransmitted": late.retransmitted}
    elif needless > 0:
        words["needless"] = needless
    sure = const.MEASURED_CONFIDENCE if late.reordered_share > const.NEGLIGIBLE_SHARE else const.LIKELY_CONFIDENCE
    yield facts.finding("reordering", sure, late).saying(**words)


def collapse(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Because of jitter, BBR's min_rtt is below half of the RTT without a queue, and its rate below the path's."""
    low = facts.min_rtt
    if low is None or not low.acts_as_bbr or found.sure & ENDS:
        return
    if found.sure & {"competition", "fair_queueing", "rate_change", "stale_bandwidth"}:
        return
    below, share = low.uncongested_rtt_us - low.min_rtt_us, low.min_rtt_us / low.uncongested_rtt_us
    by_jitter = (
        below < const.JITTERS_TAIL * low.jitter_sd_us and low.jitter_sd_us > const.NO_JITTER * low.uncongested_rtt_us
    )
    # Slightly above one half, probes that last a min_rtt end before their ACKs return: no growth without a queue.
    full = const.SPARE_RATE if facts.kind == PACKETS else const.PREDOMINANT_SHARE
    if not by_jitter or share > (const.SHORT_PROBES if low.are_probes_short else COLLAPSED) or low.used_share >= full:
        return
    is_certain = facts.is_model_based and facts.kind == PACKETS
    if share < const.NEARLY_ALL_SHARE * COLLAPSED:
        sure = const.CLEAR_CONFIDENCE if is_certain else const.LIKELY_CONFIDENCE
    elif share < COLLAPSED:
        sure = const.LIKELY_CONFIDENCE if is_certain else const.DOUBTFUL_CONFIDENCE
    else:
        sure = const.EXPLAINING_CONFIDENCE if is_certain else const.UNSURE_CONFIDENCE
    words = {"than": "less than" if share < COLLAPSED else "hardly more than", "is_guess": not facts.is_model_based}
    yield facts.finding("collapse", sure, low).saying(**words)


def ack_path_full(facts: Facts, found: Findings) -> Iterator[Finding]:
    """ACKs queue on the return path: that, not the path of the data, makes most of what RTTs vary."""
    acks = facts.ack_path
    if acks is not None and not found.sure & (ENDS | {"competition", "fair_queueing"}):
        yield facts.finding(
            "ack_path_full", between(const.DOUBTFUL_CONFIDENCE, const.MEASURED_CONFIDENCE, acks.return_share), acks
        )


def ack_compression(facts: Facts, found: Findings) -> Iterator[Finding]:
    """A fifth of the ACKs arrive in bunches that the receiver sent over four times as long."""
    bunches = facts.bunches
    if bunches is not None and bunches.bunched_share >= 1 - const.PREDOMINANT_SHARE and not _scattered(facts, found):
        sure = between(const.EXPLAINING_CONFIDENCE, const.MEASURED_CONFIDENCE, bunches.bunched_share)
        yield facts.finding("ack_compression", sure, bunches).saying(at_once=bunches.came_within_us == 0)


def ack_aggregation(facts: Facts, found: Findings) -> Iterator[Finding]:
    """ACKs arrive on a clock, covering whatever has arrived."""
    batches = facts.batches
    if batches is None or "ack_compression" in found.names or _scattered(facts, found):
        return
    share = batches.interval_us / batches.base_rtt_us
    yield facts.finding(
        "ack_aggregation", between(const.LIKELY_CONFIDENCE, const.MEASURED_CONFIDENCE, share), batches
    ).saying(of_base_share=share)


def ack_thinning(facts: Facts, found: Findings) -> Iterator[Finding]:
    """More than three segments per ACK that did not arrive together.

    Where the capture cut the SACK blocks, it does not show which ACKs filled holes, and thus tell of much at once.
    """
    acks = facts.ack_counts
    if (
        acks is None
        or facts.lacks_sacks
        or found.names & {"ack_compression", "ack_aggregation"}
        or _scattered(facts, found)
    ):
        return
    if acks.segments_per_ack > 1.5 * max(DELAYED_ACK_SEGMENTS, acks.per_packet) and not acks.is_jittered:
        sure = between(
            const.DOUBTFUL_CONFIDENCE, const.CLEAR_CONFIDENCE, 1 - DELAYED_ACK_SEGMENTS / acks.segments_per_ack
        )  # share missing
        yield facts.finding("ack_thinning", sure, acks)


def _scattered(facts: Facts, found: Findings) -> bool:
    """Return whether ACKs reflect the sender's bursts, reordering, or what the receiving application reads.

    Where data wait for that, an ACK does until some have been read [Linux] __tcp_ack_snd_check.
    """
    if "reordering" in found.names or ("receiver_limited" in found.sure and reads_slowly(facts)):
        return True
    return bool(found.sure & {"application_limited", "send_buffer_limited", SHORT})


def _is_short(found: Findings) -> bool:
    return SHORT in found.sure


def jitter(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Delays vary within an RTT, independently of the flow's own queue."""
    varied = facts.jitter
    if varied is None or _is_short(found) or found.names & {"collapse", "ack_aggregation", "reordering"}:
        return
    if found.sure & {"competition", "fair_queueing"}:  # the others' packets vary them, too
        return
    if varied.jitter_sd_us >= JITTERY_SHARE * varied.uncongested_rtt_us:
        yield facts.finding("jitter", const.EXPLAINING_CONFIDENCE, varied)


def inflated_min_rtt(facts: Facts, found: Findings) -> Iterator[Finding]:
    """For ten seconds at a time no RTT of a BBR flow came near the minimum."""
    high = facts.inflated_min_rtt
    if high is None or _is_short(found) or not facts.is_model_based:
        return
    if high.min_rtt_us >= const.QUEUED_RTTS * high.base_rtt_us:
        yield facts.finding("inflated_min_rtt", const.CLEAR_CONFIDENCE, high)
