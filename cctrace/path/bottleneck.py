r"""Bottleneck rate over time: the rate at which the flow's own queue explains its delays.

The capture has the departure time and size of every packet, so Lindley's recursion, :math:`d_i = \max(s_i, d_{i-1}) +
x_i / C`, gives the queue for any bottleneck rate C. The residual delay, arrival minus departure from the queue, is
constant plus jitter if C is right. Otherwise it contains part of the queue: an error of one per cent shifts the RTT by
ten milliseconds after a second of standing queue. The estimate is the rate with the least residual deviation
(`deviation`); its error follows from how much of the residuals' block-wise wander a change of the rate could explain.

Times are microseconds since the flow's first packet; rates are bytes per microsecond on the wire.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cctrace.columns import LONG, Floats
from cctrace.lang.threads import each
from cctrace.path import constants as const
from cctrace.path.arrays import central_sd
from cctrace.path.blocks import block_sizes, blocked
from cctrace.path.lindley import distances_from_medians
from cctrace.path.minimise import least_within
from cctrace.path.pairs import pair_rate
from cctrace.path.queue import Steps, constant
from cctrace.path.sent import SentPackets, backlog_at, delivered_rate, sent_packets
from cctrace.path.transmissions import LOST, Transmissions


def deviation(flow: SentPackets, steps: Steps) -> float:
    """Return the deviation of the residual delays: mean of log(1 + |x - median| / SMALL_US).

    The median is a running one over a second or ten RTTs: a backlog left by other flows or a stalled host stays until
    the queue empties, and must not count against the rate. The logarithm prefers a rate that explains most packets
    closely to one that explains all of them badly.
    """
    return deviation_of(flow, flow.unexplained(steps))


def deviation_of(flow: SentPackets, left: Floats, all_rows: bool = False) -> float:
    """Return the `deviation` of the residual delays `left`; with `all_rows` from the median of the entire flow."""
    size = len(left) if all_rows else flow.window_rows
    left = left[: len(left) // size * size]
    around = np.empty(len(left))
    distances_from_medians(left, size, const.SMALL_US, around, np.empty(size))
    np.log1p(around, out=around)  # in place, as of a million packets each column has 8 MB
    return float(np.add.reduce(around) / len(around))  # what `np.mean` returns, in a third of the time of a short flow


def bend(flow: SentPackets, steps: Steps) -> float:
    """Return the `deviation` around a running median over `WINDOW_US`.

    A wrong rate bends the residual delays within such a window wherever a queue stands. A stalled host only shifts
    them, which over a second may look like another rate.
    """
    known, left = flow.timed, flow.unexplained(steps)
    span_us = flow.sent_us[-1] - flow.sent_us[0] + 1
    window_us = max(const.WINDOW_US, const.MIN_BENT_RTTS * span_us / len(known))
    stretch = (flow.sent_us[known] / window_us).astype(np.int64)
    order = np.lexsort((left, stretch))
    begin = np.flatnonzero(np.diff(stretch[order], prepend=-1))
    count = np.diff(begin, append=len(order))
    medians = (left[order[begin + (count - 1) // 2]] + left[order[begin + count // 2]]) / 2
    return float(np.mean(np.log1p(np.abs(left[order] - np.repeat(medians, count)) / const.SMALL_US)))


# --- constant rate ---------------------------------------------------------------------------------------------------
class Search(NamedTuple):
    """Search effort: (grid points, relative tolerance) over the full range, near the delivered rate, and at pairs'."""

    wide: tuple[int, float]
    near: tuple[int, float]
    paired: tuple[int, float]


# Where a queue stands for long, a rate a quarter of a per cent too high already drains it: near the delivered rate the
# grid step is a thousandth. A queue that stands all the time, as behind a window, has no other rate within two parts in
# ten thousand, and explains no better at most of them than none does: only packet pairs come that near.
CLOSELY = Search((40, 1e-4), (80, 1e-5), (11, 1e-5))
ROUGHLY = Search((28, 3e-3), (24, 1e-3), (11, 1e-4))  # to half a per cent, in a third of the time
AROUND = 0.97, 1.05  # of the delivered rate: how far the search near it goes


def constant_rate(flow: SentPackets, search: Search = CLOSELY) -> tuple[float, float]:
    """Return the constant rate that explains the delays best, and their deviation at that rate."""
    paired, is_close, sure, bound = pair_rate(flow), search is CLOSELY, None, np.inf
    if (
        is_close
        and paired is not None
        and (paired[1] < const.PAIR_EXACT or not stands(flow, constant(paired[0]), paired[1]))
    ):
        sure = paired[0], deviation(flow, constant(paired[0]))
        # A token bucket of a packet or two lets the second of a pair pass sooner than a queue of its rate does.
        bound = (1 - const.COMMON_GAIN) * sure[1]
    most, plateaus = _bounds(flow)
    around = [(plateau * AROUND[0], plateau * AROUND[1], *search.near) for plateau in plateaus]
    if paired is not None:
        around.append((paired[0] * (1 - const.PAIR_TOLERANCE), paired[0] * (1 + const.PAIR_TOLERANCE), *search.paired))
    within = functools.partial(least_within, lambda rate, cost: flow.deviation_at(rate, min(cost, bound)))
    ranges = [(most / 2, most * 8, *search.wide), *around]
    # Of a long flow compiled code has the time, of a short one Python.
    found = (each if len(flow.sent_us) > LONG else map)(lambda one: within(*one), ranges)
    rate, cost = min(found, key=lambda one: one[1])
    if sure is not None and not (cost < bound and rate < sure[0]):
        return sure
    if is_close:  # within its error, prefer the rate at which residual delays do not drift over the flow
        drift = functools.partial(flow.deviation_at, all_rows=True)
        rate = least_within(drift, rate * 0.998, rate * 1.002, 41, 2e-6)[0]
    return rate, deviation(flow, constant(rate))


def _bounds(flow: SentPackets) -> tuple[float, list[float]]:
    """Return the largest delivered rate, and the rates delivered most often while a queue stood.

    Where the queue also serves many packets whose delivery times are unknown, sent bytes replace delivered ones; few
    may be lost ones or another flow's, and either rate may be the queue's.
    """
    low, span_us = flow.least_rtt_us, flow.sent_us[-1] - flow.sent_us[0]
    window_us = max(const.WINDOW_US, 4 * low)
    if span_us < 4 * window_us:
        window_us = max(span_us / 4, 1.0)
    _, rate, mean_rtt = delivered_rate(flow, window_us, every=False)
    place = np.maximum(flow.sent_us / window_us, 0).astype(np.int64)  # other flows may have started earlier
    sent = np.bincount(np.cumsum(np.diff(place, prepend=place[0]) > 0), flow.wire_bytes)[:-1] / window_us
    sent, rate, queued = sent[sent > 0], rate[rate > 0], rate[(mean_rtt > 1.05 * low) & (rate > 0)]
    unknown = 1 - len(flow.acked) / len(flow.sent_us)
    if unknown >= 0.1 and len(sent):
        return float(np.quantile(sent, 0.98)), [float(np.median(sent))]
    delivered = float(np.median(queued)) if len(queued) else float(np.quantile(rate, 0.9))
    usual = float(np.median(sent)) if len(sent) else delivered
    is_near = AROUND[0] < usual / delivered < AROUND[1]
    return float(np.quantile(rate, 0.98)), [delivered] if is_near else [delivered, usual]


def served_packets(table: Transmissions) -> tuple[SentPackets, tuple[float, float] | None]:
    """Return the packets that the bottleneck served, and their `constant_rate` if that had to be computed (else None).

    A packet that a link loses behind the queue has taken the queue's time; one that the queue had no room for, or that
    a policer or an AQM dropped before it, has left no trace in later delays. Losses at less than half of the longest
    backlog were not due to a full queue: they count as served if that explains the delays better.
    """
    arrived, lost = sent_packets(table), table.state == LOST
    if lost.sum() < const.MIN_LOST or len(arrived.acked) < const.LEAST_RTTS or not arrived.lasts:
        return arrived, None
    rate_and_deviation = constant_rate(arrived)
    backlog_bytes = backlog_at(arrived, constant(rate_and_deviation[0]), (table.sent_ns - table.start_ns) / 1e3)
    served = sent_packets(table, lost & (backlog_bytes < backlog_bytes[~lost].max() / 2))
    if len(served.sent_us) == len(arrived.sent_us):
        return arrived, rate_and_deviation
    with_losses = constant_rate(served)
    if with_losses[1] < const.BEHIND_DEVIATION * rate_and_deviation[1]:
        return served, with_losses
    return arrived, rate_and_deviation


def lever(flow: SentPackets, steps: Steps) -> float:
    """Return how much the delays change (us) per unit of log rate: the duration of standing queues."""
    up = flow.departures(Steps(steps.start_us, steps.rate * 1.0001))
    up -= flow.departures(steps)
    moved = np.abs(up[flow.timed])
    return float(np.quantile(moved, 0.9)) / 1e-4


def stands(flow: SentPackets, steps: Steps, pairs_error: float = 0.0) -> bool:
    """Return whether a queue stood long enough for delays to determine the rate better than packet pairs do."""
    left = flow.unexplained(steps)
    return lever(flow, steps) * max(const.PAIR_TOLERANCE, pairs_error) > central_sd(left)


# --- errors ----------------------------------------------------------------------------------------------------------
def rate_errors(flow: SentPackets, steps: Steps) -> Floats:
    r"""Return the relative standard error of every rate.

    The residual delays are regressed on their derivatives by the rates, :math:`\partial d_i / \partial \log C_k`, with
    blocks as long as their autocorrelation (sandwich estimator).
    """
    known = flow.timed
    base = flow.departures(steps)
    columns = []
    for k in range(len(steps.rate)):
        up = steps.with_rate(k, steps.rate[k] * 1.0005)
        columns.append((flow.departures(up) - base)[known] / 5e-4)
    size = flow.window_rows
    rows = len(known) // size * size
    noise, x = _around(flow.acked_us[known][:rows] - base[known][:rows], size), np.column_stack(columns)[:rows]
    x = np.column_stack([_around(column, size, np.mean) for column in x.T])
    weight = 1 / ((np.abs(noise) + const.SMALL_US / 10) * (const.SMALL_US + np.abs(noise)))  # of the log deviation
    scores = blocked(x * (noise * weight)[:, None], max(block_sizes(noise), size))
    bread = np.linalg.pinv((x * weight[:, None]).T @ x)
    return np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))


def _around(values: Floats, size: int, middle: Callable[..., Any] = np.median) -> Floats:
    """Return values minus the running median of `size` values."""
    parts = values.reshape(-1, size)
    return (parts - middle(parts, axis=1)[:, None]).ravel()
