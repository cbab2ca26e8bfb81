"""The bottleneck as a flow's own queue shows it: the rate that explains its delays best, or at which losses met the
longest queues, and what every packet waited there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cctrace.path.arrays import Floats
from cctrace.path.bottleneck import ROUGHLY, Sent, constant, constant_rate, delivered_rate, departures, deviation
from cctrace.path.buckets import refilled_shaper, shaper_of
from cctrace.path.constants import (
    COARSE_PACKETS,
    LEAST_BASE,
    LEAST_LOST,
    LOSSES_SHOW,
    QUEUE_SHOWS,
    SHAPER_SHOWS,
    WINDOW_US,
)
from cctrace.path.losses import backlog_met

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence


@dataclass(frozen=True)
class Bottleneck:
    """The bottleneck of a flow, as far as its own queue shows it; rates in bytes of the wire per us.

    Attributes
    ----------
    rate : float
    base_us : float
        The least RTT without the flow's own queue (2 % quantile; the least RTT where that is less than half of it).
    queue_us : ndarray
        What each packet of known RTT waited in the flow's own queue.
    rest_us : ndarray
        Its RTT without that.
    sent_us : ndarray
        When it was sent, since the first packet.
    shown : float
        Share by which the queue lowers the deviation of the delays.
    by_losses : float
        Mean rank, 0 to 1, of the backlog that lost packets met among those of all; 0 where delays showed the rate.
    bucket_bytes : float
        Of the token bucket that lets the beginnings of bursts pass at once (a shaper); 0 for a plain queue.
    """

    rate: float
    base_us: float
    queue_us: np.ndarray
    rest_us: np.ndarray
    sent_us: np.ndarray
    explained: float
    by_losses: float = 0.0
    bucket_bytes: float = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether a queue or its overflow showed the rate; else it is no more than what was delivered."""
        return self.explained > QUEUE_SHOWS or self.by_losses > LOSSES_SHOW


class Uncongested(NamedTuple):
    """RTT without queue: its mean, and its standard deviation within a stretch of an RTT or more, us."""

    mean_us: float
    spread_us: float


class Delivered(NamedTuple):
    """What was delivered in windows of time: their middles (s), rate (bytes/us) and mean RTT (us), arrays."""

    middle_s: np.ndarray
    rate: np.ndarray
    rtt_us: np.ndarray


def uncongested_of(bottleneck: Bottleneck) -> Uncongested:
    """Return the `Uncongested` of stretches of an RTT or more.

    The mean is that of the stretches in which least stood before the flow's packets (lower decile of their means),
    the deviation what delays vary within a stretch: jitter does, a queue that others fill does not.
    """
    rest, time = bottleneck.rest_us, bottleneck.sent_us
    stretch = max(bottleneck.base_us, 5e3, 16 * (time[-1] - time[0]) / len(time))
    place = np.unique((time / stretch).astype(np.int64), return_inverse=True)[1].reshape(-1)
    many = np.bincount(place)
    means = np.bincount(place, rest) / many
    some = means[many >= 8]
    if len(some) < 5:
        return Uncongested(max(float(np.median(rest)), bottleneck.base_us), 0.0)
    inside = (rest - means[place])[many[place] >= 8]
    spread, least = float(np.subtract(*np.quantile(inside, [0.84, 0.16])) / 2), float(np.quantile(some, 0.1))
    # Where stretches differ by no more than jitter, their middle is the better mean.
    least, middle = max(least, bottleneck.base_us), max(float(np.median(some)), bottleneck.base_us)
    return Uncongested(middle if middle - least < spread else least, spread)


def delivered_of(flow: Sent | None) -> Delivered:
    """Return what was `Delivered` of a `Sent` (None: nothing is known) in windows of 100 ms or an RTT.

    What an ACK acknowledges came since the one before: ACKs in batches are no changes of the rate.
    """
    if flow is None:
        return Delivered(*(np.zeros(0),) * 3)
    window_us = max(WINDOW_US, flow.least_rtt_us)
    middle, rate, rtt = delivered_rate(flow, window_us)
    order = np.argsort(flow.told_us[flow.known], kind="stable")
    acked = flow.told_us[flow.known][order]
    total, last = np.cumsum(flow.wire_bytes[flow.known][order]), np.append(np.diff(acked) > 0, True)
    edges = np.append(middle - window_us / 2, middle[-1] + window_us / 2)
    even = np.diff(np.interp(edges, acked[last], total[last], left=0.0)) / window_us
    return Delivered(middle / 1e6, np.where(rate > 0, even, 0.0), rtt)


def coarser(sent: Sent, size: int) -> Sent:
    """Return a `Sent` in which `size` neighbours count as one packet, sent and told of when its last was."""
    if size <= 1:
        return sent
    last = np.arange(size - 1, len(sent.sent_us), size)
    total = np.add.reduceat(sent.wire_bytes, last - size + 1)[: len(last)]
    sent_us, told_us, first = sent.sent_us[last], sent.told_us[last], sent.first[last]
    # So many of one are told by ACKs of their own, and none of these rests on a millisecond.
    return Sent(sent_us, total, told_us, np.arange(len(last)), first, np.ones(len(last), bool))


def packets_per_unit(packets: int, most: int = COARSE_PACKETS) -> int:
    """Return how many neighbours are to count as one, so that about `most` remain."""
    return -(-packets // most)


def bottleneck_of(path: PathEvidence, flow: Sent) -> Bottleneck:
    """Return the `Bottleneck` of a flow as its `coarse` shows it."""
    found = _by_delays(flow)
    bucket = shaper_of(flow, constant(found.rate)) if found.explained > SHAPER_SHOWS else None
    bucket = bucket or refilled_shaper(flow, found.rate)
    # A bucket of a few packets that were put together is what putting them together makes.
    if bucket is not None and bucket.size_bytes.sides()[0] > 4 * float(np.median(flow.wire_bytes)):
        return _with_rate(flow, bucket.rate.sides()[0], found.explained, bucket_bytes=bucket.size_bytes.sides()[0])
    if not found.is_measured and path.lost.sum() >= LEAST_LOST:
        return _shown_by_losses(path, flow, found)
    return found


def _by_delays(flow: Sent) -> Bottleneck:
    rate, cost = constant_rate(flow, ROUGHLY)
    without = deviation(flow, constant(1e6))
    return _with_rate(flow, rate, float((without - cost) / without) if without > 0 else 0.0)


def _with_rate(
    flow: Sent, rate: float, explained: float, by_losses: float = 0.0, bucket_bytes: float = 0.0
) -> Bottleneck:
    left = departures(flow.sent_us, flow.wire_bytes, constant(rate), bucket_bytes)
    known = flow.known[flow.first[flow.known]]
    rest = flow.told_us[known] - left[known]
    queue = np.maximum(left - flow.sent_us - flow.wire_bytes / rate, 0.0)[known]
    # A bucket that let packets through sooner than a queue does leaves less than nothing: no RTT is as short.
    least, base = float(np.nanmin(flow.rtt_us)), float(np.quantile(rest, 0.02))
    base = max(base if base >= LEAST_BASE * least else least, 1.0)
    return Bottleneck(rate, base, queue, rest, flow.sent_us[known], explained, by_losses, bucket_bytes)


def _shown_by_losses(path: PathEvidence, flow: Sent, found: Bottleneck) -> Bottleneck:
    """Return the bottleneck at which losses met the longest queues, where delays showed none; else `found`."""
    at_us = path.sent_s[path.lost] * 1e6
    _, rate, _ = delivered_rate(flow, max(WINDOW_US, flow.least_rtt_us))
    plateau = float(np.quantile(rate[rate > 0], 0.9))
    ranked = [
        (mean_rank(backlog_met(flow, constant(value), flow.sent_us), backlog_met(flow, constant(value), at_us)), value)
        for value in plateau * np.linspace(0.9, 1.15, 26)
    ]
    rank, value = max(ranked)
    tried = _with_rate(flow, value, found.explained, rank)
    # Packets that had come before a queue of that rate let them go would refute it.
    return tried if rank > LOSSES_SHOW and tried.base_us > 0.9 * path.least_rtt_us else found


def mean_rank(among: Floats, values: Floats) -> float:
    """Return the mean rank, 0 to 1, of values among others; 0.5 where nothing tells them apart."""
    among = np.sort(among)
    low, high = (np.searchsorted(among, values, side) for side in ("left", "right"))
    return float(np.mean((low + high) / 2) / len(among))


def rolling_max(values: Any, size: Any) -> Any:
    """Return the maximum of each value and the `size` - 1 before it."""
    padded = np.concatenate([np.full(size - 1, -np.inf), values])
    return np.lib.stride_tricks.sliding_window_view(padded, size).max(axis=1)
