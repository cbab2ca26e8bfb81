"""Changes and variation of a path's rate.

While a queue stands, the rate of deliveries is the path's. Jumps of the delivered rate divide a flow into periods; two
periods of different rates are a change of the path if the path was full at the lower rate.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.columns import Bools
from cctrace.path.arrays import Parts
from cctrace.path.constants import MIN_WINDOWS, MOSTLY_QUEUED, QUEUED_ALIKE, RATE_DIFFERS, RATE_VARIES, STEADY_RATE
from cctrace.tcp.wire import PACKET_BYTES

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence


class Change(NamedTuple):
    """A change of the path's rate."""

    at_s: float
    before_bps: float
    after_bps: float
    until_s: float  # end of the second rate
    is_least: bool = (
        False  # whether the higher rate is only what was delivered: the path was not full, and may be faster
    )

    @property
    def fell(self) -> bool:
        """Whether the rate fell."""
        return self.after_bps < self.before_bps


def rate_changes(path: PathEvidence) -> list[Change]:
    """Return the rate changes of a flow's path, a list of `Change`.

    A change is attributed to the path if the path was full at the lower of the two rates, so that the higher rate was
    not available then.
    """
    middle, _, _ = path.delivered
    if not len(path.rate_jumps_s):
        return []
    gap = max(0.6, 6 * (middle[1] - middle[0])) if len(middle) > 1 else 0.6
    edges = [0.0]
    for at in path.rate_jumps_s:
        if at - edges[-1] >= gap or len(edges) == 1:
            edges.append(float(at))
    edges.append(float(middle[-1]) + 1.0)
    stretches = [found for a, b in itertools.pairwise(edges) if (found := _stretch(path, a, b))]
    changes: list[Change] = []
    for one, two in itertools.pairwise(stretches):
        is_change = abs(np.log(two.rate / one.rate)) > max(np.log(RATE_DIFFERS), 3 * (one.spread + two.spread))
        slower, faster = sorted((one, two), key=lambda stretch: stretch.rate)
        if is_change and slower.full:
            at = _when(path, two.begin_s, one.rate, two.rate)
            changes.append(Change(at, one.rate * 8e6, two.rate * 8e6, two.end_s, not faster.full))
    return changes


def _when(path: PathEvidence, near_s: float, before: float, after: float) -> float:
    """Return from when, in the second before a jump was detected, every window was closer to the new rate; seconds."""
    middle, rate, _ = path.delivered
    window = middle[1] - middle[0]
    rows = np.flatnonzero((middle > near_s - 1.0) & (middle < near_s + 2 * window))
    new = (rate[rows] - np.sqrt(before * after)) * (after - before) > 0
    if not len(rows) or not new[-1]:
        return near_s
    old = np.flatnonzero(~new)
    return float(middle[rows[old[-1] + 1 if len(old) else 0]] - window / 2)


class _Stretch(NamedTuple):
    """A period of one rate."""

    begin_s: float
    end_s: float
    rate: float  # bytes/us
    spread: float  # relative deviation
    full: bool  # whether the path was


def _stretch(path: PathEvidence, begin_s: float, end_s: float) -> _Stretch | None:
    """Return the rate delivered between two jumps, or None if it was not constant.

    The path was full if the rate is the bottleneck's, or if a queue stood that the bottleneck's rate does not explain.
    """
    middle, rate, rtt = path.delivered
    inside = (middle > begin_s) & (middle < end_s) & (rate > 0)
    if inside.sum() < MIN_WINDOWS:
        return None
    queued, overall = inside & _waited(path), float(np.median(rate[inside]))
    # A queue that drains at the rate that also holds afterwards reveals that rate.
    enough = queued.sum() >= MIN_WINDOWS
    full = enough and (
        queued.sum() >= MOSTLY_QUEUED * inside.sum() or abs(np.median(rate[queued]) / overall - 1) < QUEUED_ALIKE
    )
    # A packet that waits at that rate waits for at least one other packet and itself; late ACKs of a small window add
    # less.
    full = full and np.median(rtt[queued]) - path.uncongested[0] > 2 * PACKET_BYTES / np.median(rate[queued])
    typical = float(np.median(rate[queued])) if full else overall
    spread = float(np.median(np.abs(rate[inside] - typical))) / typical
    bottleneck = path.require_bottleneck
    own = bottleneck.is_measured and typical > 0.9 * bottleneck.rate
    return _Stretch(begin_s, end_s, typical, spread, bool(full or own)) if spread < STEADY_RATE else None


def _waited(path: PathEvidence) -> Bools:
    """Return in which windows of `delivered` packets left for a queue that one bottleneck rate does not explain.

    A delayed ACK makes a few RTTs long, and a packet that overtook others a few short; a queue makes most of them long.
    """
    middle, bottleneck = path.delivered[0], path.require_bottleneck
    place = np.clip(np.searchsorted(middle, bottleneck.sent_us / 1e6), 0, len(middle) - 1)
    windows, many = np.unique(place, return_counts=True)
    rest = np.zeros(len(middle))
    means = np.bincount(place, bottleneck.rest_us)[windows] / many
    rest[windows] = np.minimum(means, Parts(bottleneck.rest_us[np.argsort(place, kind="stable")], many).medians)
    return path.standing & (rest > path.queued_us)


def variation(path: PathEvidence) -> tuple[float, float] | None:
    """Return (10th, 90th percentile) of the rate while a queue stood, bit/s, over half a second; None if too short."""
    middle, rate, _ = path.delivered
    size = MIN_WINDOWS
    if len(middle) < 6 * size:
        return None
    waited = _waited(path)
    full = rate[waited]
    if len(full) < 6 * size or waited.mean() < 0.4:
        return None
    smooth = np.convolve(full, np.ones(size) / size, "valid")
    low, high = np.quantile(smooth, [0.1, 0.9]) * 8e6
    return (float(low), float(high)) if high > RATE_VARIES * low else None
