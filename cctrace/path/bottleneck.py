r"""The rate of the bottleneck over time: the one that explains the delays of a flow by its own queue.

What was sent when and how large it was is in the capture, so the queue at a bottleneck of rate C follows by Lindley's
recursion, :math:`d_i = \max(s_i, d_{i-1}) + x_i / C`, for any C. The RTT less that departure is what the rest of the
path took. Where C is right that is a constant and jitter; where it is not, the queue is left in it: a rate one per cent
off shifts the RTTs at the end of a second of standing queue by ten milliseconds. The rate is therefore taken at which
what is left deviates least (`deviation`), and its error from how much of the remaining wander, in blocks, a change of
the rate could explain.

Times are microseconds since the flow's first packet, rates bytes per microsecond (Mbyte/s) of the wire.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cctrace.path.arrays import Floats, Ints
from cctrace.path.blocks import block_sizes, blocked
from cctrace.path.constants import (
    LEAST_BENT,
    LEAST_RTTS,
    MOST_RATE_STEPS,
    PAIR_AGREE,
    PAIR_EXACT,
    RATE_JUMP,
    SMALL_US,
    WINDOW_US,
)
from cctrace.path.least import least_within
from cctrace.path.lindley import deviation_by_bucket, deviation_by_queue, left_by_queue
from cctrace.path.pairs import pair_rate
from cctrace.path.transmissions import DELIVERED, LOST

if TYPE_CHECKING:
    from cctrace.path.transmissions import Transmissions


@dataclass(frozen=True)
class Sent:
    """What the queue sees and what became of it; times in us since the first packet of the flow."""

    sent_us: np.ndarray  # of what was not lost, ascending
    wire_bytes: np.ndarray
    told_us: np.ndarray  # NaN: not known when it arrived
    row: np.ndarray  # which ACK told of it
    first: np.ndarray  # bool: sent for the first time
    prompt: np.ndarray  # bool: told of at once

    @functools.cached_property
    def known(self) -> Ints:
        """Rows of which it is known when they arrived."""
        return np.flatnonzero(np.isfinite(self.told_us))

    @functools.cached_property
    def shown(self) -> Ints:
        """Rows of which it is known to the clock when they arrived: the last that a prompt ACK told of."""
        known = self.known[np.argsort(self.row[self.known], kind="stable")]
        last = np.append(np.diff(self.row[known]) != 0, True)
        rows = np.sort(known[last & self.prompt[known]])
        return rows if len(rows) >= LEAST_RTTS else self.known

    @functools.cached_property
    def rtt_us(self) -> Floats:
        """RTTs, NaN where unknown."""
        return self.told_us - self.sent_us

    @functools.cached_property
    def least_rtt_us(self) -> float:
        """The RTT that one in fifty is below."""
        return float(np.nanquantile(self.rtt_us, 0.02))

    @functools.cached_property
    def _work(self) -> tuple[Floats, Floats, Floats]:
        """(when each packet came, bytes that came before it, and with it)."""
        total = np.cumsum(self.wire_bytes)
        return np.maximum(self.sent_us, 0.0), total - self.wire_bytes, total

    def unexplained(self, steps: Steps) -> Floats:
        """Return what the queue at `steps` leaves of the delays of `shown`: arrivals less `departures`, us.

        Of one rate, of which searches ask hundreds of times, without the bytes that were served at any time.
        """
        if len(steps.rate) > 1:
            return self.told_us[self.shown] - departures(self.sent_us, self.wire_bytes, steps)[self.shown]
        found = np.empty(len(self.shown))
        left_by_queue(*self._work, self.told_us, self.shown, float(steps.rate[0]), found)
        return found

    def deviation_at(self, rate: float, most: float, whole: bool = False) -> float:
        """Return `deviation` with one rate, but for rounding, or infinity where it exceeds `most`."""
        size = len(self.shown) if whole else _window_rows(self)
        delays = *self._work, self.told_us, self.shown
        return deviation_by_queue(*delays, float(rate), size, SMALL_US, float(most), *self._rooms)

    def deviation_with_bucket(self, rate: float, most: float, share: float, least_us: float) -> float:
        """Return what `buckets.refilled_shaper` seeks the least of, or infinity where it exceeds `most`."""
        delays = *self._work, self.told_us, self.known
        return deviation_by_bucket(*delays, float(rate), share, least_us, SMALL_US, float(most), *self._rooms)

    @functools.cached_property
    def _rooms(self) -> tuple[Floats, Floats]:
        """Two arrays for what compiled code works with."""
        return np.empty(len(self.known)), np.empty(len(self.known))


class Steps(NamedTuple):
    """A rate over time: from start_us[k] on it is rate[k] bytes/us; start_us[0] is 0."""

    start_us: np.ndarray
    rate: np.ndarray

    def served(self, time_us: Floats) -> Floats:
        """Return how many bytes a busy server would have sent by a time."""
        if len(self.rate) == 1:
            return np.maximum(time_us, 0.0) * self.rate[0]
        return np.interp(time_us, self._knots_us, self._knots_bytes) + self.rate[-1] * np.maximum(
            time_us - self.start_us[-1], 0
        )

    def when(self, served_bytes: Floats) -> Floats:
        """Return by when a busy server has sent so much: the inverse of `served`."""
        if len(self.rate) == 1:
            return np.maximum(served_bytes, 0.0) / self.rate[0]
        inside = np.interp(served_bytes, self._knots_bytes, self._knots_us)
        return inside + np.maximum(served_bytes - self._knots_bytes[-1], 0) / self.rate[-1]

    @property
    def _knots_us(self) -> Floats:
        return self.start_us

    @property
    def _knots_bytes(self) -> Floats:
        return np.concatenate([[0.0], np.cumsum(np.diff(self.start_us) * self.rate[:-1])])


def constant(rate: float) -> Steps:
    """Return the `Steps` of a constant rate."""
    return Steps(np.zeros(1), np.array([float(rate)]))


def sent(table: Transmissions) -> Sent:
    """Return the `Sent` of a table of transmissions."""
    rows = np.flatnonzero(table.state != LOST)
    known = (table.state[rows] == DELIVERED) & table.exact[rows]
    return Sent(
        (table.sent_ns[rows] - table.start_ns) / 1e3,
        table.wire_bytes[rows],
        np.where(known, (table.told_ns[rows] - table.start_ns) / 1e3, np.nan),
        table.ack_row[rows],
        ~table.again[rows],
        table.prompt[rows],
    )


def departures(sent_us: Floats, wire_bytes: Floats, steps: Steps, bucket_bytes: float = 0.0) -> Floats:
    """Return when each packet has left a queue that is served at `steps`.

    Parameters
    ----------
    sent_us, wire_bytes : ndarray
        Arrivals, ascending.
    steps : Steps
    bucket_bytes : float
        Of a token bucket at that rate: so much leaves at once after a pause.
    """
    clock, behind = work_done(sent_us, wire_bytes, steps)
    return left_at(sent_us, clock, behind, steps, bucket_bytes)


def work_done(sent_us: Floats, wire_bytes: Floats, steps: Steps) -> tuple[Floats, Floats]:
    """Return what a busy server has sent, in bytes, when each packet comes, and when it has left."""
    clock = steps.served(sent_us)
    total = np.cumsum(wire_bytes)
    return clock, total + np.maximum.accumulate(clock - (total - wire_bytes))


def left_at(sent_us: Floats, clock: Floats, behind: Floats, steps: Steps, bucket_bytes: float) -> Floats:
    """Return `departures` of what `work_done` returned."""
    if bucket_bytes:
        return np.where(behind - bucket_bytes > clock, steps.when(behind - bucket_bytes), sent_us)
    return steps.when(behind)


def backlog(sent_us: Floats, wire_bytes: Floats, steps: Steps) -> Floats:
    """Return the bytes in the queue just after each packet came, itself included."""
    clock, behind = work_done(sent_us, wire_bytes, steps)
    return behind - clock


def deviation(flow: Sent, steps: Steps, whole: bool = False) -> float:
    """Return the deviation of the delays that the queue does not explain: mean of log(1 + |x - median| / SMALL_US).

    The median is that of a second or ten RTTs: a backlog that others or a stalled host left in the queue stays until
    the queue empties, and is no fault of the rate. The logarithm lets a rate that explains most packets closely win
    over one that explains all of them badly. With `whole` the median is that of the whole flow.
    """
    left = flow.unexplained(steps)
    if whole:
        return float(np.mean(np.log1p(np.abs(left - np.median(left)) / SMALL_US)))
    size = _window_rows(flow)
    return float(np.mean(np.log1p(np.abs(_around(left[: len(left) // size * size], size)) / SMALL_US)))


def bend(flow: Sent, steps: Steps) -> float:
    """Return the `deviation` around the median of `WINDOW_US`.

    A wrong rate bends the delays of such a stretch wherever a queue stands; a host that stalled shifts them, and may
    make a second of them look as if another rate were right.
    """
    known, left = flow.shown, flow.unexplained(steps)
    span_us = flow.sent_us[-1] - flow.sent_us[0] + 1
    window_us = max(WINDOW_US, LEAST_BENT * span_us / len(known))
    stretch = (flow.sent_us[known] / window_us).astype(np.int64)
    order = np.lexsort((left, stretch))
    begin = np.flatnonzero(np.diff(stretch[order], prepend=-1))
    count = np.diff(begin, append=len(order))
    medians = (left[order[begin + (count - 1) // 2]] + left[order[begin + count // 2]]) / 2
    return float(np.mean(np.log1p(np.abs(left[order] - np.repeat(medians, count)) / SMALL_US)))


def _window_rows(flow: Sent) -> int:
    """Return how many rows of `shown` a second or ten RTTs have."""
    window_us, span_us = max(1e6, 10 * flow.least_rtt_us), flow.sent_us[-1] - flow.sent_us[0] + 1
    return min(max(int(len(flow.shown) * window_us / span_us), 20), len(flow.shown))


# --- constant rate ---------------------------------------------------------------------------------------------------
def delivered_rate(flow: Sent, window_us: float) -> tuple[Floats, Floats, Floats]:
    """Return the middles and rates of windows in which something was delivered, and their mean excess of RTT."""
    known = np.isfinite(flow.told_us)
    told, size, rtt = flow.told_us[known], flow.wire_bytes[known], flow.rtt_us[known]
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
    """How closely a rate is sought, of all and near what is delivered: points of a grid, relative tolerance."""

    wide: tuple[int, float]
    near: tuple[int, float]


# Where a queue stands for long, a rate a quarter of a per cent too high already has it drain: near the delivered rate
# the search goes in steps of a thousandth.
CLOSELY = Search((40, 1e-4), (80, 1e-5))
ROUGHLY = Search((28, 3e-3), (24, 1e-3))  # to half a per cent, in a third of the time


def constant_rate(flow: Sent, search: Search = CLOSELY) -> tuple[float, float]:
    """Return the constant rate that explains the delays best, and their deviation with it."""

    paired = pair_rate(flow) if search is CLOSELY else None
    if paired is not None and (paired[1] < PAIR_EXACT or not stands(flow, constant(paired[0]))):
        return paired[0], deviation(flow, constant(paired[0]))
    most, plateau = _bounds(flow)
    wide = least_within(flow.deviation_at, most / 2, most * 8, *search.wide)
    near = least_within(flow.deviation_at, plateau * 0.97, plateau * 1.05, *search.near)
    rate = min(wide, near, key=lambda found: found[1])[0]
    if (
        search is CLOSELY
    ):  # within its error, the rate at which delays do not drift from one end of the flow to the other
        drift = functools.partial(flow.deviation_at, whole=True)
        rate = least_within(drift, rate * 0.998, rate * 1.002, 41, 2e-6)[0]
    return rate, deviation(flow, constant(rate))


def _bounds(flow: Sent) -> tuple[float, float]:
    """Return the largest rate that was delivered, and that at which most was delivered while a queue stood.

    Where others' packets go through the queue, of which it is not known when they arrived, what was sent stands for
    what was delivered.
    """
    low, span_us = flow.least_rtt_us, flow.sent_us[-1] - flow.sent_us[0]
    window_us = max(WINDOW_US, 4 * low)
    if span_us < 4 * window_us:
        window_us = max(span_us / 4, 1.0)
    _, rate, mean_rtt = delivered_rate(flow, window_us)
    if len(flow.known) > 0.9 * len(flow.sent_us):
        some, standing = rate[rate > 0], rate[(mean_rtt > 1.05 * low) & (rate > 0)]
    else:
        place = np.maximum(flow.sent_us / window_us, 0).astype(np.int64)  # others may have begun before
        rate = np.bincount(place, flow.wire_bytes)[:-1] / window_us
        some = standing = rate[rate > 0]
    plateau = float(np.median(standing)) if len(standing) else float(np.quantile(some, 0.9))
    return float(np.quantile(some, 0.98)), plateau


def lever(flow: Sent, steps: Steps) -> float:
    """Return by how many us delays move per unit of the logarithm of the rates: for how long a queue stood."""
    up = departures(flow.sent_us, flow.wire_bytes, Steps(steps.start_us, steps.rate * 1.0001))
    moved = np.abs(up - departures(flow.sent_us, flow.wire_bytes, steps))[flow.shown]
    return float(np.quantile(moved, 0.9)) / 1e-4


def stands(flow: Any, steps: Any) -> Any:
    """Return whether a queue stood for so long that delays by themselves tell the rate better than neighbours do."""
    left = flow.unexplained(steps)
    return lever(flow, steps) * PAIR_AGREE > float(np.subtract(*np.quantile(left, [0.84, 0.16]))) / 2


# --- where it may change ---------------------------------------------------------------------------------------------
def candidate_steps(flow: Sent, most: int = MOST_RATE_STEPS, reach: int = 5) -> Floats:
    """Return the times at which the delivered rate changes while a queue stands, us, ascending.

    A change is where the medians of `reach` windows before and after differ most, and by more than they wander.
    """
    low = flow.least_rtt_us
    middle, rate, mean_rtt = delivered_rate(flow, max(WINDOW_US, low))
    queue = (mean_rtt > low + max(0.02 * low, 1000.0)) & (rate > 0)
    return jumps(middle[queue], np.log(rate[queue]), most, reach)


def jumps(times: Floats, values: Floats, most: int = MOST_RATE_STEPS, reach: int = 5) -> Floats:
    """Return the times at which the level of a series of logarithms changes, ascending; see `candidate_steps`."""
    if len(values) < 2 * reach + 2:
        return np.zeros(0)
    windows = np.lib.stride_tricks.sliding_window_view(values, reach)
    medians = np.median(windows, axis=1)
    wander = np.median(np.abs(windows - medians[:, None]), axis=1)
    before, after = medians[:-reach], medians[reach:]
    jump = np.abs(after - before)
    clear = jump > np.maximum(RATE_JUMP, 3 * np.maximum(wander[:-reach], wander[reach:]))
    found: list[float] = []
    while clear.any() and len(found) < most:
        k = int(np.argmax(np.where(clear, jump, -1)))
        # The jump is between the windows whose difference is largest near there.
        near = np.arange(max(k + reach - 2, 1), min(k + reach + 3, len(values)))
        at = near[np.argmax(np.abs(values[near] - values[near - 1]))]
        found.append((times[at - 1] + times[at]) / 2)
        clear[max(k - reach + 1, 0) : k + reach] = False
    return np.unique(found)


# --- errors ----------------------------------------------------------------------------------------------------------
def rate_errors(flow: Sent, steps: Steps) -> Floats:
    r"""Return the standard error of every rate, relative to it.

    The delays left over are regressed on their derivatives by the rates, :math:`\partial d_i / \partial \log C_k`, with
    blocks as long as the delays hang together (sandwich).
    """
    known = flow.shown
    base = departures(flow.sent_us, flow.wire_bytes, steps)
    columns = []
    for k in range(len(steps.rate)):
        up = Steps(steps.start_us, np.where(np.arange(len(steps.rate)) == k, steps.rate * 1.0005, steps.rate))
        columns.append((departures(flow.sent_us, flow.wire_bytes, up) - base)[known] / 5e-4)
    size = _window_rows(flow)
    rows = len(known) // size * size
    noise, x = _around(flow.told_us[known][:rows] - base[known][:rows], size), np.column_stack(columns)[:rows]
    x = np.column_stack([_around(column, size, np.mean) for column in x.T])
    weight = 1 / ((np.abs(noise) + SMALL_US / 10) * (SMALL_US + np.abs(noise)))  # of the deviation's logarithm
    scores = blocked(x * (noise * weight)[:, None], max(block_sizes(noise), size))
    bread = np.linalg.pinv((x * weight[:, None]).T @ x)
    return np.sqrt(np.diag(bread @ (scores.T @ scores) @ bread))


def _around(values: Floats, size: int, middle: Callable[..., Any] = np.median) -> Floats:
    """Return values less the middle of the `size` around them."""
    parts = values.reshape(-1, size)
    return (parts - middle(parts, axis=1)[:, None]).ravel()
