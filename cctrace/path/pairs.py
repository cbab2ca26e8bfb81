"""Neighbours that left together: they arrive as far apart as the bottleneck takes for one, whatever its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.path.constants import LEAST_PAIRS, PAIR_AGREE, PAIR_BEHIND, PAIR_BYTES, PAIRS_AGREEING

if TYPE_CHECKING:
    from cctrace.path.bottleneck import Sent


class Pairs(NamedTuple):
    """Neighbours that left together and arrived one after the other: when (us), and the log of the rate they show."""

    told_us: np.ndarray
    log_rate: np.ndarray


def pairs_of(flow: Sent) -> Pairs:
    """Return the `Pairs` of a flow: whatever the queue, they come apart by the time in service."""
    rows = flow.shown
    total = np.cumsum(flow.wire_bytes)
    size, took, sent_apart = (np.diff(column[rows]) for column in (total, flow.told_us, flow.sent_us))
    behind = (took > 0) & (sent_apart < PAIR_BEHIND * took) & (size < PAIR_BYTES)
    return Pairs(flow.told_us[rows][1:][behind], np.log(size[behind] / took[behind]))


def pair_rate(flow: Sent) -> tuple[float, float] | None:
    """Return the rate at which packets that left together arrived, and its standard error; None if they do not agree.

    Neighbours that share their delay, as they do without jitter or where it changes in slots, come apart by their time
    in service: most of their distances give one rate.
    """
    logs = np.sort(pairs_of(flow).log_rate)
    if len(logs) < LEAST_PAIRS:
        return None
    inside = np.searchsorted(logs, logs + 2 * PAIR_AGREE, "right") - np.arange(len(logs))
    best = int(np.argmax(inside))
    if inside[best] < max(LEAST_PAIRS, PAIRS_AGREEING * len(logs)):
        return None
    agreed = logs[best : best + inside[best]]
    error = float(np.subtract(*np.quantile(agreed, [0.84, 0.16]))) / 2 / np.sqrt(len(agreed))
    return float(np.exp(np.median(agreed))), error
