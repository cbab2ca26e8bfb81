"""Groups of facts (see `facts`), named as in a verdict's evidence, units last; NaN: the record lacks the number."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from cctrace.path.changes import Change
from cctrace.path.markers import Marker

NAN = float("nan")
Span = tuple[float, float]  # start and end, seconds since the first packet or poll


# --- the ends of the connection --------------------------------------------------------------------------------------
class ReceiverWindow(NamedTuple):
    """The receive window: share of the time with data in which it was the limit, and how much of it was used."""

    receiver_share: float = NAN
    window_used: float = NAN  # share in flight, typical
    window_average: float = NAN  # share that the mean rate uses per RTT
    window_bytes: float = NAN  # in flight, typical
    advertised_bytes: float = NAN
    rtt_us: float = NAN
    unread_share: float = NAN  # of all the time, in which data waited for the receiving application
    span: Span | None = None


class ReceiverPauses(NamedTuple):
    """How often the receiver closed its window, and for how long in total."""

    pauses: int
    shut_s: float
    span: Span


class ShortTransfer(NamedTuple):
    """A short transfer without losses: whether its window was still growing at the end."""

    rounds: float
    bytes: float
    rtt_us: float
    is_growing: bool
    is_complete: bool


class SocketLimit(NamedTuple):
    """SO_MAX_PACING_RATE: share of the time in which the socket paced at it, and the sending rate."""

    limit_bps: float
    limited_share: float
    goodput_bps: float
    is_at_limit: bool  # the sending rate
    is_queued: bool = False
    carried_bps: float = NAN  # carried by the path, if more


class EvenSends(NamedTuple):
    """The commonest sending rate, on the wire and in payload, while the flow's own queue was short."""

    rate_bps: float
    limit_bps: float
    even_share: float  # of the time
    partly_filled_share: float  # of the segments
    goodput_bps: float
    by_timer_share: float  # of the even sends, not released by ACKs
    carried_bps: float = NAN
    faster_rtts: float = 0.0  # longest time above that rate; NaN if neither a start nor a probe was captured
    lost_share: float = 0.0  # of the packets
    window_share: float = NAN  # of the receive window, in flight at that rate over the least RTT


class Idle(NamedTuple):
    """Time with less data to send than the path could carry."""

    application_share: float
    goodput_bps: float
    write_bytes: float = NAN  # of writes on a clock
    every_us: float = NAN  # period of that clock


class Writes(NamedTuple):
    """Constant data in flight at the application's writes; `is_by_acks`: because of a full send buffer."""

    level_segments: float
    in_flight_at_writes_bytes: float
    in_flight_bytes: float
    is_by_acks: bool


class SendBuffer(NamedTuple):
    """Share of the time with data in which the kernel counted a full send buffer."""

    send_buffer_share: float  # counted only while a write has been refused and all data are sent
    waited_share: float = 0.0  # in which more could have been sent


class SinglePollUse(NamedTuple):
    """A single poll: how much of the window and the estimated rate is used, and whether data wait to be sent."""

    is_idle: bool  # nothing outstanding, no unsent data
    is_waiting: bool  # idle, or the latest rate sample was application-limited
    used_share: float  # of the estimated rate, mean while it had data
    cwnd_used: float
    cwnd_segments: float
    has_model: bool  # BBR's counters are present


class AppLimitedSamples(NamedTuple):
    """Share of the bandwidth samples, and of the time, that was application-limited."""

    limited_share: float
    application_share: float


class Stalls(NamedTuple):
    """Periods without ACKs that only the retransmission timer ended."""

    stalled_share: float
    timeouts: int
    lost: int
    span: Span
    segment_bytes: float = NAN  # if none was ever acknowledged


# --- others ----------------------------------------------------------------------------------------------------------
class Sharing(NamedTuple):
    """Concurrent flows: rates of this one and of the others, and the evidence for a shared queue."""

    flows: int
    share: float
    mine_bps: float
    their_rate_bps: float
    best: str
    best_bps: float
    span: Span
    link_bps: float = NAN
    explained_better_by: float = NAN  # gain of the joint queue over its own
    rtt_correlation: float = NAN
    filled: bool = True  # the link, by all flows together, while this one had data
    by_time: bool = False  # single poll: active at the same time, nothing else known
    same_destination: bool = True


class FairQueueing(NamedTuple):
    """Flows served in turn, from separate queues: their shares while all had data."""

    flows: int
    share: float
    share_deviation: float
    link_bps: float
    deviation: float
    solo_bps: float  # while it was alone; 0: never
    is_own: bool  # whether this flow's delays are those of its own queue, otherwise the largest other flow's
    span: Span


# --- the rate --------------------------------------------------------------------------------------------------------
class StaleBandwidth(NamedTuple):
    """A drop of the rate after which a ten-round bandwidth estimate was too high for some time."""

    before_bps: float
    after_bps: float
    stale_s: float
    longest_rtt_us: float
    lost: int
    at_s: float
    is_paced: bool  # by what leaves, where the controller is not known


class RateChanges(NamedTuple):
    """Steps of the path's rate, or the range over which it varied."""

    changes: list[Change]
    rate_p10_bps: float = NAN
    rate_p90_bps: float = NAN
    rtt_us: float = NAN
    least_rtt_us: float = NAN
    stale_bandwidth: StaleBandwidth | None = None


class Queue(NamedTuple):
    """RTTs, and what is known of the bottleneck's rate and the flow's own queue."""

    rtt_us: float
    least_rtt_us: float  # 0.1 % quantile
    base_rtt_us: float = NAN  # mean RTT without the flow's own queue
    spread_us: float = 0.0  # its standard deviation
    rate_bps: float = NAN
    used_share: float = NAN  # of the rate, if a queue or its overflow determined it
    queue_us: float = NAN
    queued_share: float = NAN  # of the time
    explained: float = NAN  # of the delays' deviation, by the flow's own queue
    lost: float = NAN
    is_steady: bool = False  # rate, from polls
    retransmitted: float = NAN


class FirstRtts(NamedTuple):
    """RTTs of the first packets, compared with later ones without a queue."""

    first_rtt_us: float
    least_rtt_us: float
    own_queue_us: float
    spread_us: float


class Shaper(NamedTuple):
    """A token bucket that passes bursts."""

    rate_bps: float
    bucket_bytes: float
    bucket_rtts: float


class Policer(NamedTuple):
    """A token bucket that drops excess packets."""

    rate_bps: float
    bucket_bytes: float
    was_full: bool  # as the capture began, with the connection: otherwise it is larger by what was missing then
    explained_share: float
    lost: int
    span: Span
    losses_elsewhere: int = 0  # met tokens, and cut the window at another time than the bucket's losses did


class GrowingWindow(NamedTuple):
    """Data in flight after slow start, of a window that grew to the end without another loss."""

    began_s: float  # when slow start ended
    lost_at_start: float
    first_bytes: float
    last_bytes: float
    per_rtt_segments: float
    cwnd_share: float  # of the time in which an ACK released what was sent
    saw_start: bool = True  # otherwise the capture began in mid-connection


class LargestFlights(NamedTuple):
    """The largest data in flight per round, and its scatter between rounds."""

    window_bytes: float
    rtt_us: float
    spread: float
    has_counters: bool
    partly_filled_share: float  # of the segments


# --- losses ----------------------------------------------------------------------------------------------------------
class LossBacklogs(NamedTuple):
    """How long the flow's own queue was at losses: how many overflowed it, and at what lengths it was at the others."""

    overflow_losses: int
    overflow_episodes: int
    other_losses: int
    other_episodes: int
    other_share: float  # of the packets that did not overflow the queue; with its interval
    share_low: float
    share_high: float
    chance: float  # probability that random losses avoid short queues as much
    rtt_rank: float
    rtt_episodes: int
    buffer_bytes: float
    buffer_bdp: float
    is_managed_length: bool  # whether the queue is longer than a few packets, and not a shaper's
    early_share: float  # of the overflows, that began before the queue was longest
    avoids_short: bool  # whether the queue was long at every loss
    waits_us: tuple[float, float, float, float]  # queueing delay at other losses: 10, 50, 90 %; longest of all packets
    is_gathered: Callable[[], bool]  # whether the other losses cluster in time more than random ones would


class Losses(NamedTuple):
    """Losses: number, time, and mean rank (0 to 1) of the RTTs before them."""

    lost: int
    sent: float
    loss_share: float
    span: Span
    rtt_rank: float
    episodes: int
    room_us: float  # largest rise of the RTT above the minimum
    least_rtt_us: float
    is_gathered: Callable[[], bool]
    backlogs: LossBacklogs | None = None
    clear_rank: float = 0.0  # rank from which the queue was long
    can_be_chance: bool = True
    was_empty: bool = True  # whether the queue was empty at some time: otherwise it is longer than what showed
    of_polls: Mapping[str, float] = MappingProxyType({})  # dispersion of retransmissions


class EcnMarks(NamedTuple):
    """ECN marks: how often they reduced the window, and at which queue."""

    reported: int  # segments delivered by ACKs with ECE, or by AccECN's counter
    marked: float  # segments; NaN with classic feedback, which repeats until the sender responds
    marked_share: float
    reductions: int
    loss_episodes: int
    longest_pause_share: float  # of the time, without a reduction by a mark
    queue_us: float  # typical, at such marks
    is_l4s: bool  # most packets were sent as ECT(1)
    span: Span
    is_heeded: bool = True  # the controller reduces its window
    likely_marker: Marker | None = None  # the AQMs that may mark so; None if not examined
    threshold_us: float = NAN  # marking threshold with its 95 % interval
    threshold_us_low: float = NAN
    threshold_us_high: float = NAN
    ramp_s: float = NAN  # longest growth of the window after a reduction, without another one or a loss
    ramp_end_s: float = NAN


class Bursts(NamedTuple):
    """Bytes sent before lost packets within the same burst, and the burst size of a sender that paces."""

    burst_bytes: float
    paced_bytes: float
    own_share_of_queue: float
    bursts_with_losses: int
    rank_in_burst: float
    lost: int
    loss_share: float
    span: Span


class Retransmissions(NamedTuple):
    """Retransmitted segments, and how many of them had arrived."""

    retransmitted_share: float
    retransmitted_segments: int
    segments: int
    needless: int
    is_before_capture: bool  # captured beyond the sender, where the originals were missing


# --- delays and ACKs -------------------------------------------------------------------------------------------------
class Reordering(NamedTuple):
    """Packets that arrived after packets sent later; spurious retransmissions."""

    reordered_share: float
    reordered: float
    spurious_retransmissions: float
    lost: float = NAN
    retransmitted: float = NAN
    is_kernels: bool = False  # from the kernel's counter
    is_once: bool = False  # all within an RTT of a longer flow: a route got shorter


class MinRtt(NamedTuple):
    """BBR's min_rtt (or what it would be), compared with the RTT without a queue."""

    min_rtt_us: float
    uncongested_rtt_us: float
    jitter_sd_us: float
    used_share: float  # of the bottleneck's rate, or of BBR's estimate
    goodput_bps: float
    acts_as_bbr: bool
    rate_bps: float = NAN
    are_probes_short: bool = False  # paced, and neither a queue nor a loss is visible


class Jitter(NamedTuple):
    """Scatter of RTTs within an RTT that the flow's own queue does not cause, and mean RTT without a queue."""

    jitter_sd_us: float
    uncongested_rtt_us: float


class InflatedMinRtt(NamedTuple):
    """Ten-second minimum of the RTT, exceeded for three quarters of the time."""

    min_rtt_us: float
    base_rtt_us: float
    span: Span


class AckBunches(NamedTuple):
    """ACKs sent one by one, by the receiver's time stamps, that arrived together."""

    bunched_share: float
    acks_per_bunch: float
    sent_over_us: float
    came_within_us: float
    span: Span


class AckBatches(NamedTuple):
    """ACKs that arrive at fixed times, covering whatever has arrived."""

    interval_us: float
    segments_per_batch: float
    base_rtt_us: float


class AckCounts(NamedTuple):
    """Segments per ACK, and per captured packet; `is_jittered`: delays merged packets."""

    segments_per_ack: float
    segments_per_ack_p95: float
    per_packet: float
    is_jittered: bool
