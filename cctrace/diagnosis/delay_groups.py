"""Groups of facts about delays and ACKs: see `groups`."""

from typing import NamedTuple

from cctrace.diagnosis.groups import NAN, Span


class Reordering(NamedTuple):
    """Packets that arrived after packets sent later; spurious retransmissions."""

    reordered_share: float
    reordered: float
    spurious_retransmissions: float
    lost: float = NAN
    sent_again: float = NAN
    is_kernels: bool = False  # from the kernel's counter


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


class Inflated(NamedTuple):
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
