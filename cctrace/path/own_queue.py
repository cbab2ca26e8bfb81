"""The bottleneck as inferred from a flow's own packets, for a diagnosis: rate, base RTT, and every queueing delay.

The rate is the one at which a queue of the flow's packets explains its delays best (`bottleneck`). If the delays do not
depend on it, it is the rate at which the queue was longest when packets were lost, or else the delivered rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.columns import Floats, Ints
from cctrace.path import constants as const
from cctrace.path.arrays import central_sd, in_order
from cctrace.path.bottleneck import ROUGHLY, constant_rate, deviation
from cctrace.path.queue import Steps, constant
from cctrace.path.sent import SentPackets, backlog_at, delivered_rate
from cctrace.path.shapers import refilled_shaper, shaper_of

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence


@dataclass(frozen=True)
class Bottleneck:
    """The bottleneck of a flow, inferred from its own queue; rates in bytes/us on the wire."""

    rate: float
    # base RTT: 2 % quantile of the RTT minus the flow's own queueing delay, of packets that overtook none (the minimum
    # RTT if that is below half of it)
    base_us: float
    queue_us: np.ndarray  # delay of each packet of known RTT in the flow's own queue
    rest_us: np.ndarray  # its RTT minus that delay
    sent_us: np.ndarray  # when it was sent, since the first packet
    timed: np.ndarray  # whether it triggered its ACK: one that waited for the next packet includes its pause, too
    explained: float  # share by which the queue lowers the deviation of the delays
    # mean rank, 0 to 1, of the backlog at losses among that of all packets; 0 where delays determined the rate
    by_losses: float = 0.0
    bucket_bytes: float = 0.0  # size of the token bucket that passes bursts (a shaper); 0 for a plain queue

    @property
    def is_measured(self) -> bool:
        """Whether a queue or its overflow determined the rate; otherwise it is just the delivered rate."""
        return self.explained > const.QUEUE_GAIN or self.by_losses > const.LOSS_RANK

    @property
    def waited_us(self) -> float:
        """Delay of the first round trip's packets beyond their own queue: in what waited as a capture began."""
        first = self.rest_us[self.sent_us <= self.sent_us[0] + self.base_us]
        return max(float(np.median(first)) - self.base_us, 0.0)


class Uncongested(NamedTuple):
    """RTT without queue: mean, and standard deviation within periods of an RTT or more, us."""

    mean_us: float
    spread_us: float


class Delivered(NamedTuple):
    """Deliveries in time windows: centres (s), rates (bytes/us) and mean RTTs (us), arrays."""

    middle_s: np.ndarray
    rate: np.ndarray
    rtt_us: np.ndarray


def uncongested_of(bottleneck: Bottleneck) -> Uncongested:
    """Return the `Uncongested` RTT, from periods of an RTT or more.

    The mean is that of the periods with the shortest queue before the flow's packets (lower decile of their means); the
    deviation is that within a period, which jitter causes but the queue of other flows does not.
    """
    rest, sent_us, base = bottleneck.rest_us, bottleneck.sent_us, bottleneck.base_us
    place, many = _periods(sent_us, base)
    some = (np.bincount(place, rest) / many)[many >= 8]
    if len(some) < 5:
        return Uncongested(max(float(np.median(rest)), base), 0.0)
    least, middle = max(float(np.quantile(some, 0.1)), base), max(float(np.median(some)), base)
    # Where periods differ by no more than jitter and delayed ACKs, their median is the better mean.
    spread = _scatter(rest, place, many)
    mean, timed = middle if middle - least < spread else least, bottleneck.timed
    if timed.sum() >= const.LEAST_RTTS:
        spread = _scatter(rest[timed], *_periods(sent_us[timed], base))
    return Uncongested(mean, spread)


def _periods(sent_us: Floats, base_us: float) -> tuple[Ints, Ints]:
    """Return the period of each packet, of an RTT or more and 16 packets on average, and how many each period has."""
    stretch = max(base_us, 5e3, 16 * (sent_us[-1] - sent_us[0]) / len(sent_us))
    place = np.unique((sent_us / stretch).astype(np.int64), return_inverse=True)[1].reshape(-1)
    return place, np.bincount(place)


def _scatter(rest: Floats, place: Ints, many: Ints) -> float:
    """Return the deviation around medians of periods: a delayed ACK, 40 ms late, moves the mean of a short one."""
    medians = rest[np.lexsort((rest, place))][np.cumsum(many) - many + (many - 1) // 2]
    inside = (rest - medians[place])[many[place] >= 8]
    return central_sd(inside) if len(inside) else 0.0


def delivered_of(flow: SentPackets | None) -> Delivered:
    """Return the `Delivered` of a `SentPackets` (None: nothing is known) in windows of 100 ms or an RTT."""
    if flow is None:
        return Delivered(*(np.zeros(0),) * 3)
    window_us = max(const.WINDOW_US, flow.least_rtt_us)
    middle, rate, rtt = delivered_rate(flow, window_us)
    edges = np.append(middle - window_us / 2, middle[-1] + window_us / 2)
    return Delivered(middle / 1e6, np.where(rate > 0, acked_evenly(flow, edges) / window_us, 0.0), rtt)


def acked_evenly(flow: SentPackets, edges_us: Floats) -> Floats:
    """Return the bytes acknowledged in windows, each ACK's spread over the time since the one before.

    A packet whose arrival no ACK dates (one that filled a hole reports what arrived long before, too) counts with the
    next one sent that has a known arrival: the queue passes both in this order.
    """
    rows = flow.acked
    wire_bytes = np.diff(np.cumsum(flow.wire_bytes)[rows], prepend=0.0)
    order = np.argsort(flow.acked_us[rows], kind="stable")
    acked, total = flow.acked_us[rows][order], np.cumsum(wire_bytes[order])
    last = np.append(np.diff(acked) > 0, True)
    return np.diff(np.interp(edges_us, acked[last], total[last], left=0.0))


def coarser(sent: SentPackets, size: int) -> SentPackets:
    """Return a `SentPackets` in which `size` neighbours count as one packet, with the times of the last of them."""
    if size <= 1:
        return sent
    last = np.arange(size - 1, len(sent.sent_us), size)
    total = np.add.reduceat(sent.wire_bytes, last - size + 1)[: len(last)]
    sent_us, acked_us, first = sent.sent_us[last], sent.acked_us[last], sent.first[last]
    # Groups this large have ACKs of their own, and millisecond delays do not matter to them.
    return SentPackets(sent_us, total, acked_us, np.arange(len(last)), first, np.ones(len(last), bool))


def packets_per_unit(packets: int, most: int = const.COARSE_PACKETS) -> int:
    """Return how many neighbours to count as one, so that about `most` units remain."""
    return -(-packets // most)


def bottleneck_of(path: PathEvidence, flow: SentPackets) -> Bottleneck:
    """Return the `Bottleneck` of a flow from its `coarse` packets."""
    found = _by_delays(flow)
    if len(flow.sent_us) < len(path.sent.sent_us):
        exact = _by_delays(path.sent)
        # Neighbours that belong to different super-packets seem, once merged, to arrive and leave at another rate.
        if exact.explained > found.explained and abs(np.log(exact.rate / found.rate)) > const.DIFFERENT_RATE:
            flow, found = path.sent, exact
    bucket = shaper_of(flow, constant(found.rate)) if found.explained > const.COMMON_GAIN else None
    bucket = bucket or refilled_shaper(flow, found.rate)
    # A bucket of a few merged packets is an artefact of merging them.
    if bucket is not None and bucket.size_bytes.sides()[0] > 4 * float(np.median(flow.wire_bytes)):
        return _with_rate(flow, bucket.rate.sides()[0], found.explained, bucket_bytes=bucket.size_bytes.sides()[0])
    if not found.is_measured and path.lost.sum() >= const.MIN_LOST:
        return _shown_by_losses(path, flow, found)
    return found


def _by_delays(flow: SentPackets) -> Bottleneck:
    rate, cost = constant_rate(flow, ROUGHLY)
    without = deviation(flow, constant(1e6))
    return _with_rate(flow, rate, float((without - cost) / without) if without > 0 else 0.0)


def _with_rate(
    flow: SentPackets, rate: float, explained: float, by_losses: float = 0.0, bucket_bytes: float = 0.0
) -> Bottleneck:
    left = flow.departures(constant(rate), bucket_bytes)
    known = flow.acked[flow.first[flow.acked]]
    rest = flow.acked_us[known] - left[known]
    queue = np.maximum(left - flow.sent_us - flow.wire_bytes / rate, 0.0)[known]
    base_us, timed = _base_us(flow, rest, flow.acked_us[known]), np.isin(known, flow.timed)
    return Bottleneck(rate, base_us, queue, rest, flow.sent_us[known], timed, explained, by_losses, bucket_bytes)


def _base_us(flow: SentPackets, rest: Floats, arrived_us: Floats) -> float:
    # Packets that overtake others do not show the delay of those. A bucket that passes packets earlier than the queue
    # can leave negative residuals; no RTT is that short.
    least, base = float(np.nanmin(flow.rtt_us)), float(np.quantile(rest[in_order(arrived_us)], 0.02))
    return max(base if base >= const.MIN_BASE * least else least, 1.0)


def base_rtt_us(flow: SentPackets, steps: Steps) -> float:
    """Return the RTT without a queue that is served at these rates: `Bottleneck.base_us` of a rate that changed."""
    known = flow.acked[flow.first[flow.acked]]
    return _base_us(flow, flow.acked_us[known] - flow.departures(steps)[known], flow.acked_us[known])


def _shown_by_losses(path: PathEvidence, flow: SentPackets, found: Bottleneck) -> Bottleneck:
    """Return the bottleneck whose rate makes losses meet the longest queues, if that is clear; else `found`."""
    at_us = path.sent_us[path.lost]
    _, rate, _ = delivered_rate(flow, max(const.WINDOW_US, flow.least_rtt_us))
    plateau = float(np.quantile(rate[rate > 0], 0.9))
    ranked = [
        (mean_rank(backlog_at(flow, constant(value), flow.sent_us), backlog_at(flow, constant(value), at_us)), value)
        for value in plateau * np.linspace(0.9, 1.15, 26)
    ]
    rank, value = max(ranked)
    tried = _with_rate(flow, value, found.explained, rank)
    # Packets that arrived before a queue of that rate would have released them refute it.
    return tried if rank > const.LOSS_RANK and tried.base_us > 0.9 * path.least_rtt_us else found


def idle_us(path: PathEvidence, sent: SentPackets, steps: Steps) -> float:
    """Return how long a link with these rates was idle while it served `sent`, us; infinite if the SYN was captured.

    At zero or below, some of the queue may have stood all the time: then it was longer, and the base RTT shorter, than
    the capture shows. Packets already queued when the capture began leave the link idle in this reckoning for as long
    as they took to serve, which is subtracted.
    """
    if path.capture.params([path.index])[0]["has_syn"]:
        return np.inf
    idle = np.maximum(sent.sent_us[1:] - sent.departures(steps)[:-1], 0.0).sum()
    return float(idle - path.require_bottleneck.waited_us)


def mean_rank(among: Floats, values: Floats) -> float:
    """Return the mean rank, 0 to 1, of values among others; 0.5 if they do not differ."""
    return float(np.mean(ranks(among, values)))


def ranks(among: Floats, values: Floats) -> Floats:
    """Return the rank, 0 to 1, of each value among others; 0.5 if they do not differ."""
    among = np.sort(among)
    place = np.searchsorted(among, values, "left")
    place += np.searchsorted(among, values, "right")  # in place, as of a million packets each column has 8 MB
    found: Floats = place / 2
    found /= len(among)
    return found


def rolling_max(values: Floats, size: int) -> Floats:
    """Return the maximum of each value and the `size` - 1 before it."""
    padded = np.concatenate([np.full(size - 1, -np.inf), values])
    return np.lib.stride_tricks.sliding_window_view(padded, size).max(axis=1)
