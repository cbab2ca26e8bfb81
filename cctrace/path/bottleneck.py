r"""Bottleneck rate over time: the rate at which the flow's own queue explains its delays.

The capture has the departure time and size of every packet, so Lindley's recursion, :math:`d_i = \max(s_i, d_{i-1}) +
x_i / C`, gives the queue for any bottleneck rate C. The residual delay, arrival minus departure from the queue, is
constant plus jitter if C is right. Otherwise it contains part of the queue: an error of one per cent shifts the RTT by
ten milliseconds after a second of standing queue. The estimate is the rate with the least residual deviation
(`deviation`); its error follows from how much of the residuals' block-wise wander a change of the rate could explain.

Times are microseconds since the flow's first packet; rates are bytes per microsecond on the wire.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from cctrace.path import constants as const
from cctrace.path.arrays import Bools, Floats, Ints, central_sd, last_of_each
from cctrace.path.blocks import block_sizes, blocked
from cctrace.path.least import least_within
from cctrace.path.lindley import IDLE, deviation_by_bucket, deviation_by_queue, residual_delays
from cctrace.path.pairs import pair_rate
from cctrace.path.transmissions import DELIVERED, LOST, Transmissions


@dataclass(frozen=True)
class Sent:
    """Packets that pass the bottleneck, and when they were acknowledged; times in us since the flow's first packet."""

    sent_us: np.ndarray  # of packets that were not dropped before or in the queue, ascending
    wire_bytes: np.ndarray
    acked_us: np.ndarray  # when an ACK reported the delivery; NaN: unknown
    row: np.ndarray  # packet number of that ACK
    first: np.ndarray  # bool: first transmission
    prompt: np.ndarray  # bool: reported without delay

    @property
    def lasts(self) -> bool:
        """Whether packets were sent at different times: one time stamp for all tells no rate."""
        return len(self.sent_us) > 0 and bool(self.sent_us[-1] > self.sent_us[0])

    @functools.cached_property
    def acked(self) -> Ints:
        """Rows whose delivery time is known."""
        return np.flatnonzero(np.isfinite(self.acked_us))

    @functools.cached_property
    def timed(self) -> Ints:
        """Rows whose delivery time is exact: the last packet reported by each prompt ACK."""
        rows = self.acked[last_of_each(self.row[self.acked])]
        rows = rows[self.prompt[rows]]
        return rows if len(rows) >= const.LEAST_RTTS else self.acked

    @functools.cached_property
    def rtt_us(self) -> Floats:
        """RTTs, NaN where unknown."""
        return self.acked_us - self.sent_us

    @functools.cached_property
    def least_rtt_us(self) -> float:
        """2 % quantile of the RTTs, us."""
        return float(np.nanquantile(self.rtt_us, 0.02))

    @functools.cached_property
    def _work(self) -> tuple[Floats, Floats, Floats]:
        """Arrival time, and cumulative bytes before and after each packet."""
        total = np.cumsum(self.wire_bytes)
        return self.sent_us, total - self.wire_bytes, total

    def part(self, begin_us: float, end_us: float) -> Sent:
        """Return the packets sent from `begin_us` to `end_us`."""
        rows = (self.sent_us >= begin_us) & (self.sent_us < end_us)
        return Sent(*(getattr(self, each.name)[rows] for each in fields(Sent)))

    def unexplained(self, steps: Steps) -> Floats:
        """Return the residual delays of the `timed` rows: acknowledgement time minus `departures`, us.

        A single rate, which searches evaluate hundreds of times, takes a compiled path.
        """
        if len(steps.rate) > 1:
            return self.acked_us[self.timed] - departures(self.sent_us, self.wire_bytes, steps)[self.timed]
        found = np.empty(len(self.timed))
        delays = *self._work, self.acked_us, self.timed
        residual_delays(*delays, float(steps.rate[0]), found, 0, len(found), IDLE)
        return found

    def deviation_at(self, rate: float, most: float, all_rows: bool = False) -> float:
        """Return `deviation` at one rate, up to rounding, or infinity where it exceeds `most`."""
        size = len(self.timed) if all_rows else _window_rows(self)
        delays = *self._work, self.acked_us, self.timed
        return deviation_by_queue(*delays, float(rate), size, const.SMALL_US, float(most), *self._rooms)

    def deviation_with_bucket(self, rate: float, most: float, share: float, least_us: float) -> float:
        """Return the cost that `shapers.refilled_shaper` minimises, or infinity where it exceeds `most`."""
        delays = *self._work, self.acked_us, self.acked
        return deviation_by_bucket(*delays, float(rate), share, least_us, const.SMALL_US, float(most), *self._rooms)

    @functools.cached_property
    def _kept(self) -> dict[int, tuple[Floats, Floats]]:
        return {}

    @property
    def _rooms(self) -> tuple[Floats, Floats]:
        """Scratch arrays for compiled code, of this thread."""
        thread = threading.get_ident()
        if thread not in self._kept:
            self._kept[thread] = np.empty(len(self.acked)), np.empty(len(self.acked))
        return self._kept[thread]


class Steps(NamedTuple):
    """A piecewise constant rate: rate[k] bytes/us from start_us[k] on; start_us[0] is 0.

    The first rate holds before 0 as well, when flows that share the bottleneck may have begun.
    """

    start_us: np.ndarray
    rate: np.ndarray

    def served(self, time_us: Floats) -> Floats:
        """Return the bytes that a busy server has sent since time 0; negative before."""
        if len(self.rate) == 1:
            return time_us * self.rate[0]
        outside = self.rate[-1] * np.maximum(time_us - self.start_us[-1], 0) + self.rate[0] * np.minimum(time_us, 0)
        return np.interp(time_us, self.start_us, self._served_at_starts) + outside

    def when(self, served_bytes: Floats) -> Floats:
        """Return when a busy server has sent so many bytes: the inverse of `served`."""
        if len(self.rate) == 1:
            return served_bytes / self.rate[0]
        at_starts = self._served_at_starts
        inside = np.interp(served_bytes, at_starts, self.start_us)
        after = np.maximum(served_bytes - at_starts[-1], 0) / self.rate[-1]
        return inside + after + np.minimum(served_bytes, 0) / self.rate[0]

    def with_rate(self, k: int, rate: float) -> Steps:
        """Return them with another `k`-th rate, bytes/us."""
        return self._replace(rate=np.where(np.arange(len(self.rate)) == k, rate, self.rate))

    @property
    def _served_at_starts(self) -> Floats:
        return np.concatenate([[0.0], np.cumsum(np.diff(self.start_us) * self.rate[:-1])])


def constant(rate: float) -> Steps:
    """Return the `Steps` of a constant rate."""
    return Steps(np.zeros(1), np.array([float(rate)]))


def sent(table: Transmissions, passed: Bools | None = None) -> Sent:
    """Return the `Sent` of a table of transmissions: of what arrived, and of what was lost after it had `passed`."""
    rows = np.flatnonzero((table.state != LOST) | (False if passed is None else passed))
    known = (table.state[rows] == DELIVERED) & table.exact[rows]
    return Sent(
        (table.sent_ns[rows] - table.start_ns) / 1e3,
        table.wire_bytes[rows],
        np.where(known, (table.acked_ns[rows] - table.start_ns) / 1e3, np.nan),
        table.ack_row[rows],
        ~table.retransmitted[rows],
        table.prompt[rows],
    )


def sent_behind(table: Transmissions) -> Sent:
    """Return the `Sent` of a table, with what was lost behind the queue, if that explains the delays better.

    What a link loses behind its queue has taken the queue's time, unlike what the queue had no room for. A loss that
    met less than half of the longest queue was not due to a full one; what was dropped before the queue, by a policer
    or an AQM, left no trace in later delays.
    """
    arrived, lost = sent(table), table.state == LOST
    if lost.sum() < const.LEAST_LOST or len(arrived.acked) < const.LEAST_RTTS or not arrived.lasts:
        return arrived
    rate, cost = constant_rate(arrived)
    met = backlog_met(arrived, constant(rate), (table.sent_ns - table.start_ns) / 1e3)
    behind = sent(table, lost & (met < met[~lost].max() / 2))
    if len(behind.sent_us) == len(arrived.sent_us):
        return arrived
    return behind if constant_rate(behind)[1] < const.BEHIND * cost else arrived


def departures(sent_us: Floats, wire_bytes: Floats, steps: Steps, bucket_bytes: float = 0.0) -> Floats:
    """Return when each packet leaves a queue served at `steps`.

    `sent_us`, `wire_bytes`: arrivals, ascending. `bucket_bytes`: size of a token bucket at that rate, which passes
    bursts after a pause.
    """
    clock, behind = work_done(sent_us, wire_bytes, steps)
    return left_at(sent_us, clock, behind, steps, bucket_bytes)


def work_done(sent_us: Floats, wire_bytes: Floats, steps: Steps) -> tuple[Floats, Floats]:
    """Return the bytes that a busy server has sent when each packet arrives, and when it has left."""
    clock = steps.served(sent_us)
    total = np.cumsum(wire_bytes)
    return clock, total + np.maximum.accumulate(clock - (total - wire_bytes))


def left_at(sent_us: Floats, clock: Floats, behind: Floats, steps: Steps, bucket_bytes: float) -> Floats:
    """Return `departures` from the results of `work_done`."""
    if bucket_bytes:
        return np.where(behind - bucket_bytes > clock, steps.when(behind - bucket_bytes), sent_us)
    return steps.when(behind)


def backlog(sent_us: Floats, wire_bytes: Floats, steps: Steps) -> Floats:
    """Return the bytes in the queue just after each arrival, itself included."""
    clock, behind = work_done(sent_us, wire_bytes, steps)
    return behind - clock


def backlog_met(flow: Sent, steps: Steps, time_us: Floats) -> Floats:
    """Return the bytes in the queue at the given times, before that instant's arrivals."""
    level = backlog(flow.sent_us, flow.wire_bytes, steps)
    before = np.searchsorted(flow.sent_us, time_us, "right") - 1
    served = steps.served(time_us) - steps.served(flow.sent_us[np.maximum(before, 0)])
    return np.where(before >= 0, np.maximum(level[np.maximum(before, 0)] - served, 0.0), 0.0)


def deviation(flow: Sent, steps: Steps, all_rows: bool = False) -> float:
    """Return the deviation of the residual delays: mean of log(1 + |x - median| / SMALL_US).

    The median is a running one over a second or ten RTTs: a backlog left by other flows or a stalled host stays until
    the queue empties, and must not count against the rate. The logarithm prefers a rate that explains most packets
    closely to one that explains all of them badly. With `all_rows` the median is that of the entire flow.
    """
    left = flow.unexplained(steps)
    if all_rows:
        return float(np.mean(np.log1p(np.abs(left - np.median(left)) / const.SMALL_US)))
    size = _window_rows(flow)
    return float(np.mean(np.log1p(np.abs(_around(left[: len(left) // size * size], size)) / const.SMALL_US)))


def bend(flow: Sent, steps: Steps) -> float:
    """Return the `deviation` around a running median over `WINDOW_US`.

    A wrong rate bends the residual delays within such a window wherever a queue stands. A stalled host only shifts
    them, which over a second may look like another rate.
    """
    known, left = flow.timed, flow.unexplained(steps)
    span_us = flow.sent_us[-1] - flow.sent_us[0] + 1
    window_us = max(const.WINDOW_US, const.LEAST_BENT * span_us / len(known))
    stretch = (flow.sent_us[known] / window_us).astype(np.int64)
    order = np.lexsort((left, stretch))
    begin = np.flatnonzero(np.diff(stretch[order], prepend=-1))
    count = np.diff(begin, append=len(order))
    medians = (left[order[begin + (count - 1) // 2]] + left[order[begin + count // 2]]) / 2
    return float(np.mean(np.log1p(np.abs(left[order] - np.repeat(medians, count)) / const.SMALL_US)))


def _window_rows(flow: Sent) -> int:
    """Return the number of `timed` rows in a second or ten RTTs."""
    window_us, span_us = max(1e6, 10 * flow.least_rtt_us), flow.sent_us[-1] - flow.sent_us[0] + 1
    return min(max(int(len(flow.timed) * window_us / span_us), 20), len(flow.timed))


# --- constant rate ---------------------------------------------------------------------------------------------------
def delivered_rate(flow: Sent, window_us: float) -> tuple[Floats, Floats, Floats]:
    """Return the centres, rates and mean excess RTTs of the windows with deliveries."""
    known = np.isfinite(flow.acked_us)
    told, size, rtt = flow.acked_us[known], flow.wire_bytes[known], flow.rtt_us[known]
    order = np.argsort(told, kind="stable")
    told, size, rtt = told[order], size[order], rtt[order]
    place = (told / window_us).astype(np.int64)
    edges = np.arange(place[-1] + 2)
    begin = np.searchsorted(place, edges)
    total = np.concatenate([[0.0], np.cumsum(size)])
    rate = (total[begin[1:]] - total[begin[:-1]]) / window_us
    many = np.diff(begin)
    waits = np.concatenate([[0.0], np.cumsum(rtt)])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_rtt = (waits[begin[1:]] - waits[begin[:-1]]) / many
    return (edges[:-1] + 0.5) * window_us, rate, mean_rtt


class Search(NamedTuple):
    """Search effort: (grid points, relative tolerance) over the full range and near the delivered rate."""

    wide: tuple[int, float]
    near: tuple[int, float]


# Where a queue stands for long, a rate a quarter of a per cent too high already drains it: near the delivered rate the
# grid step is a thousandth.
CLOSELY = Search((40, 1e-4), (80, 1e-5))
ROUGHLY = Search((28, 3e-3), (24, 1e-3))  # to half a per cent, in a third of the time
AROUND = 0.97, 1.05  # of the delivered rate: how far the search near it goes


def constant_rate(flow: Sent, search: Search = CLOSELY) -> tuple[float, float]:
    """Return the constant rate that explains the delays best, and their deviation at that rate."""
    paired = pair_rate(flow) if search is CLOSELY else None
    if paired is not None and (paired[1] < const.PAIR_EXACT or not stands(flow, constant(paired[0]))):
        return paired[0], deviation(flow, constant(paired[0]))
    most, plateaus = _bounds(flow)
    rate, cost = least_within(flow.deviation_at, most / 2, most * 8, *search.wide)
    for plateau in plateaus:
        near = least_within(flow.deviation_at, plateau * AROUND[0], plateau * AROUND[1], *search.near)
        rate, cost = min((rate, cost), near, key=lambda found: found[1])
    if search is CLOSELY:  # within its error, prefer the rate at which residual delays do not drift over the flow
        drift = functools.partial(flow.deviation_at, all_rows=True)
        rate = least_within(drift, rate * 0.998, rate * 1.002, 41, 2e-6)[0]
    return rate, deviation(flow, constant(rate))


def _bounds(flow: Sent) -> tuple[float, list[float]]:
    """Return the largest delivered rate, and the rates delivered most often while a queue stood.

    Where the queue also serves many packets whose delivery times are unknown, sent bytes replace delivered ones; few
    may be lost ones or another flow's, and either rate may be the queue's.
    """
    low, span_us = flow.least_rtt_us, flow.sent_us[-1] - flow.sent_us[0]
    window_us = max(const.WINDOW_US, 4 * low)
    if span_us < 4 * window_us:
        window_us = max(span_us / 4, 1.0)
    _, rate, mean_rtt = delivered_rate(flow, window_us)
    place = np.maximum(flow.sent_us / window_us, 0).astype(np.int64)  # other flows may have started earlier
    sent = np.bincount(place, flow.wire_bytes)[:-1] / window_us
    sent, rate, queued = sent[sent > 0], rate[rate > 0], rate[(mean_rtt > 1.05 * low) & (rate > 0)]
    unknown = 1 - len(flow.acked) / len(flow.sent_us)
    if unknown >= 0.1:
        return float(np.quantile(sent, 0.98)), [float(np.median(sent))]
    delivered = float(np.median(queued)) if len(queued) else float(np.quantile(rate, 0.9))
    usual = float(np.median(sent)) if len(sent) else delivered
    is_near = AROUND[0] < usual / delivered < AROUND[1]
    return float(np.quantile(rate, 0.98)), [delivered] if is_near else [delivered, usual]


def lever(flow: Sent, steps: Steps) -> float:
    """Return how much the delays change (us) per unit of log rate: the duration of standing queues."""
    up = departures(flow.sent_us, flow.wire_bytes, Steps(steps.start_us, steps.rate * 1.0001))
    moved = np.abs(up - departures(flow.sent_us, flow.wire_bytes, steps))[flow.timed]
    return float(np.quantile(moved, 0.9)) / 1e-4


def stands(flow: Sent, steps: Steps) -> bool:
    """Return whether a queue stood long enough for delays to determine the rate better than packet pairs do."""
    left = flow.unexplained(steps)
    return lever(flow, steps) * const.PAIR_AGREE > central_sd(left)


# --- errors ----------------------------------------------------------------------------------------------------------
def rate_errors(flow: Sent, steps: Steps) -> Floats:
    r"""Return the relative standard error of every rate.

    The residual delays are regressed on their derivatives by the rates, :math:`\partial d_i / \partial \log C_k`, with
    blocks as long as their autocorrelation (sandwich estimator).
    """
    known = flow.timed
    base = departures(flow.sent_us, flow.wire_bytes, steps)
    columns = []
    for k in range(len(steps.rate)):
        up = steps.with_rate(k, steps.rate[k] * 1.0005)
        columns.append((departures(flow.sent_us, flow.wire_bytes, up) - base)[known] / 5e-4)
    size = _window_rows(flow)
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
