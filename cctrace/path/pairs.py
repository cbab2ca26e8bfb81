"""Packet pairs: packets sent together arrive spaced by the bottleneck's service time, however long the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.path.arrays import central_sd
from cctrace.path.constants import MAX_SPACING_RATIO, MIN_AGREEING_PAIRS, MIN_PAIRS, PAIR_BYTES, PAIR_TOLERANCE

if TYPE_CHECKING:
    from cctrace.path.sent import SentPackets


class Pairs(NamedTuple):
    """Packet pairs: when the second one was acknowledged (us), and the log of the rate that their spacing implies."""

    acked_us: np.ndarray
    log_rate: np.ndarray


def pairs_of(flow: SentPackets) -> Pairs:
    """Return the packet `Pairs` of a flow."""
    rows = flow.timed
    total = np.cumsum(flow.wire_bytes)
    size, took, sent_apart = (np.diff(column[rows]) for column in (total, flow.acked_us, flow.sent_us))
    behind = (took > 0) & (sent_apart < MAX_SPACING_RATIO * took) & (size < PAIR_BYTES)
    return Pairs(flow.acked_us[rows][1:][behind], np.log(size[behind] / took[behind]))


def pair_rate(flow: SentPackets) -> tuple[float, float] | None:
    """Return the rate that packet pairs agree on, and its standard error; None if they do not agree.

    Without jitter, or if jitter changes in slots, neighbours share their delay and arrive spaced by their service time,
    so most spacings give the same rate. Those that a coarse clock rounds to one value agree, too, but only to its tick.
    """
    logs = np.sort(pairs_of(flow).log_rate)
    if len(logs) < MIN_PAIRS:
        return None
    inside = np.searchsorted(logs, logs + 2 * PAIR_TOLERANCE, "right") - np.arange(len(logs))
    best = int(np.argmax(inside))
    if inside[best] < max(MIN_PAIRS, MIN_AGREEING_PAIRS * len(logs)):
        return None
    agreed = logs[best : best + inside[best]]
    error = central_sd(agreed) / np.sqrt(len(agreed))
    rate = float(np.exp(np.median(agreed)))
    rounded = clock_tick_us(flow) * rate / float(np.median(flow.wire_bytes))
    return rate, max(error, rounded / 2) if rounded > 2 * PAIR_TOLERANCE else error


def clock_tick_us(flow: SentPackets) -> float:
    """Return the tick of the capture's clock, us: the largest time of which all between ACKs are multiples.

    At most one: formats have microseconds at the coarsest, and few packets may share a longer one by chance.
    """
    apart_ns = np.diff(np.rint(flow.acked_us[flow.timed] * 1e3).astype(np.int64))
    return min(float(np.gcd.reduce(apart_ns)) / 1e3, 1.0)
