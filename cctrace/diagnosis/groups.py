"""Groups of facts, each about one thing that a record may tell of: see `facts`.

The names of the numbers are those of a verdict's evidence, units last; NaN is a number that the record does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cctrace.path.changes import Change
from cctrace.path.markers import Marker

NAN = float("nan")
Span = tuple[float, float]  # begin and end, seconds since the first packet or poll


# --- the ends of the connection --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ReceiverWindow:
    """The receiver's window: for which share of the time with data it kept some back, which part of it was in use."""

    receiver_share: float = NAN
    window_used: float = NAN  # in flight, typically
    window_average: float = NAN  # what the average rate takes per RTT
    window_bytes: float = NAN  # what is in flight, typically
    advertised_bytes: float = NAN
    rtt_us: float = NAN
    span: Span | None = None


@dataclass(frozen=True)
class Pauses:
    """How often the receiver shut its window altogether, and for how long in all."""

    pauses: int
    shut_s: float
    span: Span


@dataclass(frozen=True)
class Start:
    """A transfer that was short and lost nothing: whether its window still grew when it ended."""

    rounds: float
    bytes: float
    rtt_us: float
    is_growing: bool
    is_complete: bool


@dataclass(frozen=True)
class SocketLimit:
    """SO_MAX_PACING_RATE: for which share of the time the socket paced at it, and what it sent."""

    limit_bps: float
    limited_share: float
    goodput_bps: float
    is_at_limit: bool  # what was sent
    is_queued: bool = False
    carried_bps: float = NAN  # by the path, where that is more


@dataclass(frozen=True)
class EvenSends:
    """Packets that left at one rate after the start, while no queue stood."""

    rate_bps: float
    even_share: float  # of the time
    partly_filled_share: float  # of the segments
    goodput_bps: float
    is_by_timer: bool
    carried_bps: float = NAN
    faster_rtts: float = 0.0  # the longest time above that rate
    lost_share: float = 0.0  # of the packets


@dataclass(frozen=True)
class Idle:
    """Time in which there was less to send than could have been sent."""

    application_share: float
    goodput_bps: float


@dataclass(frozen=True)
class Writes:
    """What was in flight when data were written, the same each time; `is_by_acks`: a full send buffer made it so."""

    level_segments: float
    in_flight_at_writes_bytes: float
    in_flight_bytes: float
    is_by_acks: bool


@dataclass(frozen=True)
class SendBuffer:
    """The share of the time with data in which the send buffer was full, by the kernel's account.

    The kernel counts only while nothing unsent is left and the application has been refused; `waited_share` of the time
    more could have been sent, and all that had been written was in flight.
    """

    send_buffer_share: float
    waited_share: float = 0.0


@dataclass(frozen=True)
class Instant:
    """One look: how much of window and estimated rate is in use, and whether anything waits to be sent."""

    is_idle: bool  # nothing outstanding, nothing unsent
    is_waiting: bool  # idle, or the latest sample was taken while the application limited it
    used_share: float  # of the estimated rate, on average while it had data
    cwnd_used: float
    cwnd_segments: float
    has_model: bool  # BBR's counters are there


@dataclass(frozen=True)
class Samples:
    """The share of the bandwidth samples, and that of the time, in which the application limited the sender."""

    limited_share: float
    application_share: float


@dataclass(frozen=True)
class Stalls:
    """Silences that only the retransmission timer ended."""

    stalled_share: float
    timeouts: int
    lost: int
    span: Span


# --- others ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sharing:
    """Other flows at the same time: what this one and they got, and what speaks for one queue."""

    flows: int
    share: float
    mine_bps: float
    their_rate_bps: float
    best: str
    best_bps: float
    span: Span
    link_bps: float = NAN
    explained_better_by: float = NAN  # by the queue of all than by its own
    rtt_correlation: float = NAN
    filled: bool = True  # the link, by all together, where this one had data
    by_time: bool = False  # one look: they had data at the same time, and nothing else is known
    same_destination: bool = True


@dataclass(frozen=True)
class Turns:
    """Flows that got equal parts whenever all had data, out of queues of their own."""

    flows: int
    share: float
    share_deviation: float
    link_bps: float
    deviation: float
    solo_bps: float  # while it was alone; 0: never
    is_own: bool  # this one's delays are those of a queue of its own; else the largest other flow's are
    span: Span


# --- the rate --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stale:
    """A fall of the rate after which a bandwidth estimate over ten round trips was too high for some time."""

    before_bps: float
    after_bps: float
    stale_s: float
    longest_rtt_us: float
    lost: int
    at_s: float
    is_paced: bool  # by what leaves, where the controller is not known


@dataclass(frozen=True)
class RateChanges:
    """When the path's rate changed in steps; else between which two it varied."""

    changes: list[Change]
    rate_p10_bps: float = NAN
    rate_p90_bps: float = NAN
    rtt_us: float = NAN
    least_rtt_us: float = NAN
    stale: Stale | None = None


@dataclass(frozen=True)
class Queue:
    """RTTs, and what is known of the bottleneck's rate and of the queue that the flow put there."""

    rtt_us: float
    least_rtt_us: float  # the 0.1 % quantile
    base_rtt_us: float = NAN
    uncongested_us: float = NAN  # mean RTT without a queue
    spread_us: float = 0.0  # by which that varies
    rate_bps: float = NAN
    used_share: float = NAN  # of a rate that a queue or its overflow showed
    queue_us: float = NAN
    queued_share: float = NAN  # of the time
    explained: float = NAN  # of the delays' deviation, by its own queue
    lost: float = NAN
    is_steady: bool = False  # the rate, of polls
    retransmitted: float = NAN


@dataclass(frozen=True)
class Before:
    """What the first packets took, beside later ones without a queue."""

    first_rtt_us: float
    least_rtt_us: float
    own_queue_us: float
    spread_us: float


@dataclass(frozen=True)
class Shaper:
    """A token bucket that lets the beginnings of bursts pass at once."""

    rate_bps: float
    bucket_bytes: float
    bucket_rtts: float


@dataclass(frozen=True)
class Policer:
    """A token bucket that drops what exceeds it."""

    rate_bps: float
    bucket_bytes: float
    explained_share: float
    lost: int
    span: Span


@dataclass(frozen=True)
class HeldWindow:
    """The largest amount in flight of round after round, and by how much these differ."""

    window_bytes: float
    rtt_us: float
    spread: float
    has_counters: bool


# --- losses ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Met:
    """What lost packets met in the queue that the flow put there: which overflowed it, and how the rest fell."""

    overflowed: int
    overflows: int  # episodes of it
    rest: int
    rests: int
    rest_share: float
    share_low: float
    share_high: float
    chance: float  # with which the rest would leave short queues alone as much
    rtt_rank: float
    rtt_episodes: int
    buffer_bytes: float
    buffer_bdp: float
    is_managed_length: bool  # longer than a few packets, and no shaper's
    avoids_short: bool  # and so does each lost packet
    waits_us: tuple[float, float, float, float]  # of the rest, 10, 50 and 90 %; the longest of all
    is_gathered: Callable[[], bool]  # the rest came at some times, as by chance it would not


@dataclass(frozen=True)
class Losses:
    """How many packets were lost, when, and after which RTTs (mean rank among all, 0 to 1)."""

    lost: int
    sent: float
    loss_share: float
    span: Span
    rtt_rank: float
    episodes: int
    room_us: float  # by which RTTs rise above the least, at most
    least_rtt_us: float
    is_gathered: Callable[[], bool]
    met: Met | None = None
    clear_rank: float = 0.0  # from which on a rank tells of a long queue
    can_be_chance: bool = True
    of_polls: dict[str, float] = field(default_factory=dict)  # how unevenly segments were sent again


@dataclass(frozen=True)
class Marks:
    """What queues marked (ECN), how often that cut the window, and at which queue."""

    reported: int  # segments delivered by ACKs with ECE, or by the counter of AccECN
    marked: float  # segments; NaN with classic feedback, which goes on until the sender answers
    marked_share: float
    reductions: int
    loss_episodes: int
    longest_pause_share: float  # of the time, in which no mark cut the window
    queue_us: float  # when such a mark arrived, typically
    is_l4s: bool  # most packets left as ECT(1)
    span: Span
    who: Marker | None = None  # which queue management it may have been; None where that was not asked
    threshold_us: float = NAN  # from which it marks, and the 95 % interval of that
    threshold_us_low: float = NAN
    threshold_us_high: float = NAN


@dataclass(frozen=True)
class Bursts:
    """What left before lost packets in the same burst, and what a sender that paces lets out at a time."""

    burst_bytes: float
    paced_bytes: float
    own_share_of_queue: float
    bursts_with_losses: int
    rank_in_burst: float
    lost: int
    loss_share: float
    span: Span


@dataclass(frozen=True)
class SentAgain:
    """Segments that were sent again, and how many of these had arrived."""

    retransmitted_share: float
    retransmitted_segments: int
    segments: int
    needless: int
    is_before_capture: bool  # a capture beyond the sender had not seen them before


# --- delays and ACKs -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Reordering:
    """Packets that arrived after one that was sent later; segments that were sent again for nothing."""

    reordered_share: float
    reordered: float
    spurious_retransmissions: float
    lost: float = NAN
    sent_again: float = NAN
    is_kernels: bool = False  # the count


@dataclass(frozen=True)
class MinRtt:
    """BBR's min_rtt (or what it would be) beside the RTT that packets have without a queue."""

    min_rtt_us: float
    uncongested_rtt_us: float
    jitter_sd_us: float
    used_share: float  # of the bottleneck's rate, or of BBR's estimate of it
    goodput_bps: float
    acts_as_bbr: bool
    rate_bps: float = NAN
    are_probes_short: bool = False  # a timer lets packets out, and neither a queue nor a loss shows


@dataclass(frozen=True)
class Jitter:
    """By how much RTTs vary within an RTT, whatever the flow's own queue, and their mean without a queue."""

    jitter_sd_us: float
    uncongested_rtt_us: float


@dataclass(frozen=True)
class Inflated:
    """What no RTT was below for ten seconds, for three quarters of the time."""

    min_rtt_us: float
    base_rtt_us: float
    span: Span


@dataclass(frozen=True)
class AckBunches:
    """ACKs that left the receiver one after another, by its time stamps, and came together."""

    bunched_share: float
    acks_per_bunch: float
    sent_over_us: float
    came_within_us: float
    span: Span


@dataclass(frozen=True)
class AckBatches:
    """ACKs that come at fixed times, with what there is."""

    interval_us: float
    segments_per_batch: float
    base_rtt_us: float


@dataclass(frozen=True)
class AckCounts:
    """Segments per ACK, and per packet as captured; `is_jittered` where delays have put packets together."""

    segments_per_ack: float
    segments_per_ack_p95: float
    per_packet: float
    is_jittered: bool
