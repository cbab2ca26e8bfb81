"""Rules on the path's rate: full, changed, overestimated; the queue that filling it caused; an unexplained window."""

import math
from collections.abc import Iterator, Sequence

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import PACKETS, SINGLE_POLL, Facts
from cctrace.diagnosis.findings import ENDS, Finding, Findings, between
from cctrace.diagnosis.groups import LargestFlights, Queue
from cctrace.path.changes import Change
from cctrace.path.constants import COMMON_GAIN, RATE_DIFFERS

# Causes that explain a steady amount in flight, however doubtful they are.
EXPLAINING = {
    "ecn_marking",
    "pacing_limited",
    "rate_change",
    "self_induced_queue",
    "congested_before",
    "shaper",
    "path_full",
}

WINDOWS = {"receiver_limited", "send_buffer_limited"}  # ends that hold an amount back, which may be more than the path


def _ends(found: Findings) -> bool:
    """Return whether an end, something that paced it, or the ACKs' path explains the rate."""
    return bool(found.sure & ENDS or found.names & {"pacing_limited", "ack_path_full"})


def rate_change(facts: Facts, found: Findings) -> Iterator[Finding]:
    """The path's rate changed in steps, or varied; and a bandwidth estimate was too high after a drop."""
    rates = facts.rates
    if rates is None or _ends(found) or found.sure & {"competition", "fair_queueing", "policer"}:
        return
    if not rates.changes:
        yield facts.finding("rate_change", const.LIKELY_CONFIDENCE, rates, "varied")
        return
    stale = rates.stale_bandwidth
    models = facts.is_model_based or (stale is not None and stale.is_paced)
    if stale is not None and models and stale.stale_s >= const.SEPARATE_RTTS * facts.rtt_us / 1e6:
        span = (stale.at_s, stale.at_s + stale.stale_s)
        sure = const.CLEAR_CONFIDENCE if facts.is_model_based else const.LIKELY_CONFIDENCE
        yield facts.finding("stale_bandwidth", sure, stale, span=span)
    about = None if facts.kind == PACKETS else "about "
    yield changed(rates.changes, const.CLEAR_CONFIDENCE if facts.kind == PACKETS else const.LIKELY_CONFIDENCE).saying(
        about=about
    )


def changed(changes: Sequence[Change], sure: float) -> Finding:
    """Return the finding of rate steps."""
    first, last, many = changes[0], changes[-1], len(changes)
    words = {
        "verb": "fell" if first.fell else "rose",
        "least_before": first.is_least and first.fell,
        "least_after": first.is_least and not first.fell,
        "more": None if many < 2 else "one more change follows" if many == 2 else f"{many - 1} more changes follow",
    }
    numbers = {"at_s": first.at_s, "before_bps": first.before_bps, "after_bps": first.after_bps, "changes": many}
    return Finding("rate_change", sure, (first.at_s, last.at_s), numbers, words)


def self_induced_queue(facts: Facts, found: Findings) -> Iterator[Finding]:
    """A typical queue of two base RTTs: the flow's own or, if unknown, of a sender that builds queues."""
    queue = facts.queue
    if queue is None or _ends(found) or "competition" in found.sure:
        return
    if not queue.queue_us >= const.BLOATED_RTTS * queue.base_rtt_us:
        return
    own = queue.explained > COMMON_GAIN
    if own or (math.isnan(queue.explained) and not facts.is_model_based):
        sure = between(const.EXPLAINING_CONFIDENCE, const.MAX_CONFIDENCE, queue.explained if own else 0.0)
        numbers = {
            "queue_us": queue.queue_us,
            "base_rtt_us": queue.base_rtt_us,
            "rate_bps": queue.rate_bps,
            "queue_bytes": queue.queue_us * queue.rate_bps / 8e6,
        }
        yield facts.finding("self_induced_queue", sure, numbers).saying(is_own=own, least=not facts.was_empty)


def congested_before(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Other flows' queue stood before the flow had sent much; packets do not overtake others where one empties."""
    rtts = facts.first_rtts
    if rtts is None or _ends(found) or "competition" in found.sure:
        return
    if facts.reordering is not None and facts.reordering.is_once:
        return
    longer = rtts.first_rtt_us >= const.CONGESTED_RTTS * rtts.least_rtt_us + 3 * rtts.spread_us
    if longer and rtts.own_queue_us <= (rtts.first_rtt_us - rtts.least_rtt_us) / 2:
        yield facts.finding("congested_before", const.LIKELY_CONFIDENCE, rtts)


def shaper(facts: Facts, found: Findings) -> Iterator[Finding]:
    """A token bucket passes bursts; more than a fair share while others were idle, or packets that overtake, do not."""
    if facts.shaper is not None and not _ends(found) and not {"fair_queueing", "reordering"} & found.sure:
        yield facts.finding("shaper", const.LIKELY_CONFIDENCE, facts.shaper)


def path_full(facts: Facts, found: Findings) -> Iterator[Finding]:
    """The bottleneck's rate is used, or RTTs (in a single poll: a window) show more in flight than the path holds."""
    queue = facts.queue
    if (
        queue is None
        or found.names & {"collapse", "policer", "ack_path_full"}
        or (_ends(found) and not _is_kept_full(facts, found))
    ):
        return  # a window then imitates a full path
    if facts.kind == SINGLE_POLL and found.names:
        return
    if facts.sharing is not None and facts.sharing.link_bps > RATE_DIFFERS * queue.rate_bps:
        return  # what others left of the path is not its rate
    numbers = {
        name: getattr(queue, name)
        for name in ("rate_bps", "used_share", "base_rtt_us", "queue_us", "queued_share", "lost")
    }
    if facts.kind != PACKETS:
        numbers["rtt_ratio"] = queue.rtt_us / queue.least_rtt_us
    least_us = queue.least_rtt_us
    if "reordering" in found.names and not math.isnan(queue.base_rtt_us):
        least_us = queue.base_rtt_us  # packets that overtake others have less than the delay of an empty queue
    if queue.used_share >= const.NEARLY_ALL_SHARE:
        is_known = not math.isnan(queue.explained)  # not from polls, which count the rate itself
        sure = between(
            const.EXPLAINING_CONFIDENCE,
            const.MEASURED_CONFIDENCE,
            queue.explained / (2 * COMMON_GAIN) if is_known else 1.0,
        )
        share = min(queue.used_share, 1.0)
        mostly = facts.goodput_bps < const.ALL_THE_TIME * share * queue.rate_bps
        words = {"of_rate_share": share, "mostly": mostly, "least": not facts.was_empty}
        yield facts.finding("path_full", sure, numbers, "rate").saying(**words)
    elif found.names & {"competition", "rate_change"}:
        return
    elif facts.kind == PACKETS and not math.isnan(queue.used_share):
        return  # the flow's bursts queue, but the link, whose rate is known, was idle between them
    elif queue.rtt_us > const.QUEUED_RTTS * least_us + 3 * queue.spread_us or _steady(facts):
        steady = queue.is_steady and queue.rtt_us > (1 + const.RTT_RISE) * least_us
        words = {"long_rtt_us": queue.rtt_us, "least_rtt_us": facts.least_rtt_us}
        sure = (
            const.LIKELY_CONFIDENCE
            if steady
            else const.EXPLAINING_CONFIDENCE
            if facts.kind == PACKETS
            else const.DOUBTFUL_CONFIDENCE
        )
        yield facts.finding("path_full", sure, numbers).saying(**words)
    elif facts.kind == SINGLE_POLL:
        yield from _at_one_poll(facts, numbers)


def _is_kept_full(facts: Facts, found: Findings) -> bool:
    """Return whether what a window at an end lets pass fills the path, and waits there all the time."""
    queue = facts.queue
    if queue is None or facts.kind != PACKETS or (found.sure & ENDS) - WINDOWS or "pacing_limited" in found.names:
        return False
    stands = (
        queue.explained > COMMON_GAIN and queue.rtt_us > const.QUEUED_RTTS * queue.base_rtt_us + 3 * queue.spread_us
    )
    return bool(queue.used_share >= const.NEARLY_ALL_SHARE and stands)


def _steady(facts: Facts) -> bool:
    """Return whether the polled rate is steady, and RTTs slightly above the minimum."""
    queue = facts.queue
    little = 1 + const.NO_JITTER if facts.is_model_based else 1 + const.RTT_RISE
    return queue is not None and queue.is_steady and queue.rtt_us > little * queue.least_rtt_us


def _at_one_poll(facts: Facts, numbers: dict[str, float]) -> Iterator[Finding]:
    poll, queue = facts.single_poll_use, facts.queue
    if poll is None or queue is None:
        return
    if poll.is_waiting and poll.has_model and poll.used_share >= const.PREDOMINANT_SHARE:
        yield facts.finding("path_full", const.DOUBTFUL_CONFIDENCE, numbers).saying(at_estimate=True)
    elif poll.cwnd_used >= const.NEARLY_ALL_SHARE:
        yield facts.finding("path_full", const.DOUBTFUL_CONFIDENCE, numbers).saying(cwnd_segments=poll.cwnd_segments)
    elif poll.is_idle and queue.retransmitted >= const.MIN_FOR_PATTERN:
        yield facts.finding("path_full", const.UNSURE_CONFIDENCE, numbers).saying(retransmitted=queue.retransmitted)


def window_limited(facts: Facts, found: Findings) -> Iterator[Finding]:
    """A steady amount in flight that no loss, queue or receiver explains, and that is less than the path holds."""
    flights = facts.largest_flights
    if flights is None or found.sure or found.names & EXPLAINING or not flights.spread <= const.IN_FLIGHT_STEADY:
        return
    if flights.partly_filled_share > const.NOTABLE_SHARE:  # with data waiting, a window is used up by full segments
        if "application_limited" not in found.names:
            yield facts.finding("application_limited", const.LIKELY_CONFIDENCE, flights, "short")
    elif not _carries_rate(flights, facts.queue):  # as a model's estimate of the path does
        yield facts.finding("window_limited", const.LIKELY_CONFIDENCE, flights)


def _carries_rate(flights: LargestFlights, queue: Queue | None) -> bool:
    """Return whether so much in flight carries the path's rate, if that is known."""
    if queue is None or math.isnan(queue.used_share):
        return False
    return flights.window_bytes * 8e6 / flights.rtt_us >= const.NEARLY_ALL_SHARE * queue.rate_bps


def window_growing(facts: Facts, found: Findings) -> Iterator[Finding]:
    """After an early end of slow start, a loss-based window grew to the end, and nothing else held the flow back."""
    growing = facts.growing_window
    if growing is None or facts.is_model_based or found.sure or found.names & EXPLAINING:
        return
    if growing.cwnd_share >= const.MOST_OF_TIME:
        sure = between(const.EXPLAINING_CONFIDENCE, const.CLEAR_CONFIDENCE, growing.cwnd_share)
        span, by_chance = (growing.began_s, facts.end_s), 0 < growing.lost_at_start < const.MIN_OBSERVATIONS
        yield facts.finding("window_growing", sure, growing, span=span).saying(by_chance=by_chance)
