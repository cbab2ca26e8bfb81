"""Delay that is no queue of the flow's own: jitter and what it does to BBR's min_rtt, reordering, the ways of ACKs."""

from __future__ import annotations

from collections.abc import Iterator

from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import Finding
from cctrace.diagnosis.rules.found import ENDS, Found

FULL = 0.95  # of the bottleneck's rate: no collapse, whatever min_rtt says
FULL_OF_ESTIMATE = 0.8  # of BBR's own, a maximum, which is above what the path carries typically
HALF = 0.5  # of the mean RTT: a window of two of these is less than the path holds
SHORT_PROBES = 0.6  # of the mean RTT: min_rtts of 3/5 let probes end before half of what they sent is back
TAIL = 10.0  # standard deviations of jitter that a least RTT of some seconds may lie below the mean
NO_JITTER = 0.02  # of the mean RTT
JITTERED = 0.05  # of the mean RTT: delays that vary by so much within one put packets together
REORDERED, REORDERED_LEAST = 0.002, 10
INFLATED = 1.25
BUNCHED = 0.2  # share of the ACKs
BATCH = 0.15  # of the base RTT, for which the bottleneck would take for what ACKs tell of at once
SHORT = "slow_start_only"  # then nothing else is asked of delays
DELAYED_ACK = 2.0  # segments per ACK at most [RFC5681] 4.2


def reordering(facts: Facts, found: Found) -> Iterator[Finding]:
    """Two packets in a thousand arrived after one that was sent later."""
    late = facts.reordering
    if late is None or _is_short(found) or late.reordered < REORDERED_LEAST or not late.reordered_share >= REORDERED:
        return
    needless = late.spurious_retransmissions
    more = {"copies": needless, "again": late.sent_again} if needless > late.sent_again else {"needless": needless}
    counted = {"counted": late.reordered} if late.is_kernels else {}
    sure = 0.95 if late.reordered_share > 0.01 else 0.7
    yield facts.finding("reordering", sure, late).saying(**counted | (more if needless > 0 else {}))


def collapse(facts: Facts, found: Found) -> Iterator[Finding]:
    """BBR's min_rtt is below half of the RTT without a queue, by jitter, and its rate below the path's."""
    low = facts.min_rtt
    if low is None or not low.acts_as_bbr or found.sure & ENDS:
        return
    if found.sure & {"competition", "fair_queueing", "rate_change", "stale_bandwidth"}:
        return
    below, share = low.uncongested_rtt_us - low.min_rtt_us, low.min_rtt_us / low.uncongested_rtt_us
    by_jitter = below < TAIL * low.jitter_sd_us and low.jitter_sd_us > NO_JITTER * low.uncongested_rtt_us
    # A little above a half, probes that last for a min_rtt end before their ACKs are back: no growth without a queue.
    full = FULL if facts.kind == PACKETS else FULL_OF_ESTIMATE
    if not by_jitter or share > (SHORT_PROBES if low.are_probes_short else HALF) or low.used_share >= full:
        return
    sure = (0.9 if facts.is_model_based and facts.kind == PACKETS else 0.7) - (
        0 if share < 0.45 else 0.15 if share < HALF else 0.25
    )
    words = {"than": "less than" if share < HALF else "hardly more than", "is_guess": not facts.is_model_based}
    yield facts.finding("collapse", sure, low).saying(**words)


def ack_compression(facts: Facts, found: Found) -> Iterator[Finding]:
    """A fifth of the ACKs come in bunches that the receiver had sent over four times as long."""
    bunches = facts.bunches
    if bunches is not None and bunches.bunched_share >= BUNCHED and not _scattered(found):
        yield facts.finding("ack_compression", min(max(0.6 + bunches.bunched_share / 2, 0.6), 0.95), bunches)


def ack_aggregation(facts: Facts, found: Found) -> Iterator[Finding]:
    """ACKs come by a clock, with what there is."""
    batches = facts.batches
    if batches is None or "ack_compression" in found.names or _scattered(found):
        return
    share = batches.interval_us / batches.base_rtt_us
    sure = min(max(0.7 + 0.5 * (share - BATCH), 0.6), 0.95)
    yield facts.finding("ack_aggregation", sure, batches).saying(of_base_share=share)


def ack_thinning(facts: Facts, found: Found) -> Iterator[Finding]:
    """More than three segments per ACK, that did not arrive together."""
    acks = facts.ack_counts
    if acks is None or found.names & {"ack_compression", "ack_aggregation"} or _scattered(found):
        return
    if acks.segments_per_ack > 1.5 * max(DELAYED_ACK, acks.per_packet) and not acks.is_jittered:
        sure = min(max(0.5 + 0.1 * (acks.segments_per_ack - DELAYED_ACK), 0.5), 0.9)
        yield facts.finding("ack_thinning", sure, acks)


def _scattered(found: Found) -> bool:
    """Return whether ACKs come as what was sent, in parts or out of order, or are too few."""
    return "reordering" in found.names or bool(found.sure & {"application_limited", "send_buffer_limited", SHORT})


def _is_short(found: Found) -> bool:
    return SHORT in found.sure


def jitter(facts: Facts, found: Found) -> Iterator[Finding]:
    """Delays vary within an RTT, whatever the flow's own queue."""
    varied = facts.jitter
    if varied is None or _is_short(found) or found.names & {"collapse", "ack_aggregation", "reordering"}:
        return
    if varied.jitter_sd_us >= JITTERED * varied.uncongested_rtt_us:
        yield facts.finding("jitter", 0.6, varied)


def inflated_min_rtt(facts: Facts, found: Found) -> Iterator[Finding]:
    """For ten seconds at a time no RTT of a BBR flow came near the least."""
    high = facts.inflated
    if high is None or _is_short(found) or not facts.is_model_based:
        return
    if high.min_rtt_us >= INFLATED * high.base_rtt_us:
        yield facts.finding("inflated_min_rtt", 0.8, high)
