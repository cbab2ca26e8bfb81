"""Rules on the ends: receive window, application, send buffer, socket pacing, short transfers."""

import math
from collections.abc import Iterator

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import PACKETS, Facts
from cctrace.diagnosis.findings import ENDS, Finding, Findings, between, partly
from cctrace.diagnosis.groups import ReceiverPauses

NOT_WAITING = {"competition", "reordering", "random_loss", "collapse"}  # they explain a rate below the estimate


def receiver_limited(facts: Facts, found: Findings) -> Iterator[Finding]:
    """The receive window was the limit for half of the time with data, or was full."""
    window = facts.window
    if window is None:
        return
    sure = between(const.DOUBTFUL_CONFIDENCE, const.MAX_CONFIDENCE, window.receiver_share)
    pauses = facts.receiver_pauses
    if pauses is not None and _was_shut(pauses, facts):  # a larger window would have filled, too
        yield facts.finding("receiver_limited", sure, window._asdict() | pauses._asdict(), "shut")
    elif facts.stalls is not None and facts.stalls.stalled_share >= const.MOST_OF_TIME:
        return  # whatever the window left: the sender waited for its timer
    elif reads_slowly(facts):
        sure = between(const.DOUBTFUL_CONFIDENCE, const.MAX_CONFIDENCE, window.unread_share)
        yield facts.finding("receiver_limited", sure, window, "slow")
    elif window.receiver_share >= const.MOST_OF_TIME:
        yield facts.finding("receiver_limited", sure, window).saying(held_share=window.receiver_share)
    elif window.window_used >= const.NEARLY_ALL_SHARE:
        yield facts.finding("receiver_limited", const.LIKELY_CONFIDENCE, window).saying(used_share=window.window_used)
    elif window.window_average >= const.NEARLY_ALL_SHARE and window.receiver_share > 0:
        yield facts.finding("receiver_limited", const.EXPLAINING_CONFIDENCE, window).saying(
            average_share=window.window_average
        )


def reads_slowly(facts: Facts) -> bool:
    """Return whether data mostly waited for the receiving application, and the window that this left held some back."""
    window = facts.window
    return (
        window is not None
        and window.unread_share >= const.MOST_OF_TIME
        and (window.receiver_share >= const.NOTABLE_SHARE)
    )


def _was_shut(pauses: ReceiverPauses, facts: Facts) -> bool:
    """Return whether the receiver advertised a zero window for most of the time."""
    return pauses.shut_s >= const.MOST_OF_TIME * facts.end_s


def slow_start_only(facts: Facts, found: Findings) -> Iterator[Finding]:
    """A transfer without losses that ended while its window was still growing."""
    start = facts.short_transfer
    if start is not None and start.is_growing and start.rounds <= const.SHORT_ROUNDS:
        yield facts.finding(
            "slow_start_only", const.CLEAR_CONFIDENCE if start.is_complete else const.EXPLAINING_CONFIDENCE, start
        )


def send_buffer_limited(facts: Facts, found: Findings) -> Iterator[Finding]:
    """The kernel counted a full send buffer for a quarter of the time with data, or at all while data were lacking."""
    buffer = facts.send_buffer
    if buffer is None:
        return
    if buffer.send_buffer_share >= const.MUCH_OF_TIME:
        sure = between(const.DOUBTFUL_CONFIDENCE, const.MAX_CONFIDENCE, buffer.send_buffer_share)
        yield facts.finding("send_buffer_limited", sure, buffer)
    elif buffer.send_buffer_share >= const.NEGLIGIBLE_SHARE and buffer.waited_share >= const.MUCH_OF_TIME:
        sure = between(const.DOUBTFUL_CONFIDENCE, const.CLEAR_CONFIDENCE, buffer.waited_share)
        yield facts.finding("send_buffer_limited", sure, buffer, "counted")


def receiver_pauses(facts: Facts, found: Findings) -> Iterator[Finding]:
    """The receiver closed its window."""
    pauses = facts.receiver_pauses
    if pauses is not None and pauses.shut_s >= const.NEGLIGIBLE_SHARE * facts.end_s and not _was_shut(pauses, facts):
        yield facts.finding("receiver_pauses", const.CLEAR_CONFIDENCE, pauses)


def stalls(facts: Facts, found: Findings) -> Iterator[Finding]:
    """For a quarter of the time, no ACKs arrived until the retransmission timer fired."""
    if facts.stalls is not None and facts.stalls.stalled_share >= const.MUCH_OF_TIME:
        sure = between(const.DOUBTFUL_CONFIDENCE, const.MEASURED_CONFIDENCE, facts.stalls.stalled_share)
        yield facts.finding("stalls", sure, facts.stalls)


def pacing_limited(facts: Facts, found: Findings) -> Iterator[Finding]:
    """The socket's own limit: its pacing rate and its sending rate equal it, and no queue stood."""
    limit = facts.socket_limit
    if limit is None or "receiver_limited" in found.names:
        return
    if limit.limited_share >= const.MOST_OF_TIME and limit.is_at_limit and not limit.is_queued:
        yield facts.finding("pacing_limited", const.MEASURED_CONFIDENCE, limit)


def paced_at_times(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Counters beside a capture show the socket at its pacing limit at times, whatever else limited the flow."""
    limit = facts.socket_limit
    if limit is None or facts.kind != PACKETS or "pacing_limited" in found.names:
        return
    if limit.limited_share > 0:
        yield facts.finding(
            "pacing_limited", min(partly(limit.limited_share), const.UNSURE_CONFIDENCE), limit, "partly"
        )


def application_limited(facts: Facts, found: Findings) -> Iterator[Finding]:
    """There was less data to send than the path could carry, or writes on a clock, or data waited for a send buffer."""
    idle, writes = facts.idle, facts.writes
    if idle is None or found.names & {"slow_start_only", "pacing_limited"}:
        return
    share = idle.application_share
    on_clock = idle.every_us > 0 and "send_buffer_limited" not in found.names
    if not (share >= const.MUCH_OF_TIME or on_clock):
        return
    mostly = share >= const.MOST_OF_TIME
    sure = between(const.DOUBTFUL_CONFIDENCE, const.MAX_CONFIDENCE, share) if mostly else partly(share)
    if writes is not None and writes.is_by_acks:  # batched ACKs cause pauses, too, but for less time
        sure, counted = min(sure, const.LIKELY_CONFIDENCE), facts.send_buffer is not None
        yield facts.finding("send_buffer_limited", sure, writes, "writes").saying(
            waited_share=share, has_counters=counted
        )
        return
    level = {}
    if on_clock:  # pauses may be short where others' queues, losses or a lower rate delay each write's data
        sure = max(sure, const.DOUBTFUL_CONFIDENCE)
    if writes is not None:
        sure, level = min(sure, const.EXPLAINING_CONFIDENCE), {"level_segments": writes.level_segments}
    yield facts.finding("application_limited", sure, idle).saying(**level)


def waiting(facts: Facts, found: Findings) -> Iterator[Finding]:
    """In a single poll no data wait to be sent, and the rate was less than half of the path's estimated rate."""
    poll = facts.single_poll_use
    if poll is None or found.names & NOT_WAITING or found.sure & ENDS:
        return
    if poll.used_share < const.MOST_OF_TIME and (
        poll.is_waiting or (poll.has_model and poll.cwnd_used < const.MOST_OF_TIME)
    ):
        yield facts.finding("application_limited", const.EXPLAINING_CONFIDENCE, poll)


def nothing_to_send(facts: Facts, found: Findings) -> Iterator[Finding]:
    """In a single poll no data wait to be sent, and nothing else explains the rate."""
    poll = facts.single_poll_use
    if poll is not None and poll.is_waiting and not found.names:
        yield facts.finding("application_limited", const.UNSURE_CONFIDENCE, poll)


def app_limited_samples(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Bandwidth samples of a model that reflect the application, not the path."""
    samples = facts.app_limited_samples
    if samples is None or not facts.is_model_based or found.names & {"slow_start_only", "pacing_limited"}:
        return
    if samples.limited_share > const.NOTABLE_SHARE and samples.application_share < const.MOST_OF_TIME:
        yield facts.finding("app_limited_samples", const.EXPLAINING_CONFIDENCE, samples)


def _behind_losses(facts: Facts) -> bool:
    """Return whether packets were lost before the capture point."""
    again = facts.retransmissions
    return again is not None and again.is_before_capture and again.retransmitted_segments >= const.MIN_OBSERVATIONS


def paced_evenly(facts: Facts, found: Findings) -> Iterator[Finding]:
    """Packets were sent at one rate below the path's: a sender with data waiting sends full segments.

    Nothing exceeds a limit but bursts after a pause, while BBR starts and probes faster for a round trip or more.
    With losses or competitors, the rate may at times be below the limit. If ACKs arrive as often as the pacing timer
    fires, they hide it; then nearly all must be even, which neither a reduced window nor others' traffic allows.
    Where nobody else is, marks need a queue of the flow's own, which a limit below the path's rate does not build.
    A model that measured its rate while the receive window was closed at times paces at what fills that window.
    Counters say whether there is a limit.
    """
    even = facts.even_sends
    others = found.sure & {"competition", "fair_queueing", "policer"}
    if even is None or found.sure & ENDS or ("ecn_marking" in found.sure and not others):
        return
    lossy, is_ceiling = even.lost_share > 0, even.faster_rtts < const.PROBE_RTTS
    is_by_timer = is_ceiling and even.by_timer_share >= const.MOST_OF_TIME
    if not even.even_share >= (const.MUCH_OF_TIME if is_by_timer else const.NEARLY_ALL_SHARE) or (
        others and not is_by_timer
    ):
        return
    if even.window_share >= const.NEARLY_ALL_SHARE and facts.window is not None and facts.window.receiver_share > 0:
        share = min(even.window_share, 1.0)
        yield facts.finding("receiver_limited", const.EXPLAINING_CONFIDENCE, facts.window).saying(average_share=share)
    elif not lossy and even.partly_filled_share > const.NOTABLE_SHARE:
        yield facts.finding("application_limited", const.LIKELY_CONFIDENCE, even, "evenly")
    elif _behind_losses(facts):
        return  # what passes a link that drops packets comes at its rate
    elif is_ceiling and (facts.socket_limit is None or not math.isnan(facts.socket_limit.limit_bps)):
        sure = const.EXPLAINING_CONFIDENCE if is_by_timer else const.DOUBTFUL_CONFIDENCE
        if even.even_share < const.MOST_OF_TIME:
            sure = partly(even.even_share)
        limit = {"limit_bps": even.limit_bps, "limited_share": even.even_share}
        yield facts.finding("pacing_limited", sure, limit, "evenly").saying(**even._asdict())
