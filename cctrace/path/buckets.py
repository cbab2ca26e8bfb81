r"""Token buckets: policers, which drop what exceeds them, and shapers, which let it wait.

A policer of rate r and bucket B is a drop-tail queue that nobody waits in: with its *deficit* V, the tokens that are
missing in the bucket, V grows by every packet that passes and falls at r, and a packet is dropped where V and its size
exceed B. So V is Lindley's recursion again, of what passed, and r and B are those for which what was lost met a larger
V than what passed: at another rate V drifts away between losses. A queue would have delayed packets by V / r, a policer
does not; that tells the two apart. A shaper delays, but only what exceeds V = B.

Bytes are those of `cctrace.Path` (payload and 66 a segment). Which bytes a router counts cannot be told from flows of
full segments alone, where every layer differs by a constant factor; that of the captures of `benchmarks/fit.py
policers`, whose rate is known, counts Ethernet frames with their check sequence: 1518 where 1514 stand here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.estimates import Z95, Estimate
from cctrace.path.arrays import Floats
from cctrace.path.bottleneck import backlog, constant, delivered_rate, departures, left_at, work_done
from cctrace.path.constants import (
    EXPLAINED,
    FULL_DEFICIT,
    LEAST_POLICED,
    MOST_PLATEAU,
    POLICED_PARTS,
    SPARED,
    SPENT,
    UNDELAYED,
)
from cctrace.path.least import least_of, least_within
from cctrace.path.transmissions import LOST
from cctrace.tcp.wire import PACKET_BYTES

if TYPE_CHECKING:
    from cctrace.path.bottleneck import Sent, Steps
    from cctrace.path.transmissions import Transmissions


class Bucket(NamedTuple):
    """A token bucket: rate in bytes/us, bytes, and the share of losses that it explains."""

    rate: Estimate
    size_bytes: Estimate
    explained: np.ndarray | None

    def as_estimates(self) -> dict[str, Estimate]:
        """Return {"rate_bps", "bucket_bytes"}."""
        return {"rate_bps": self.rate.scaled(8e6), "bucket_bytes": self.size_bytes}


class _Tried(NamedTuple):
    """Everything that came to a policer, in the order of sending."""

    time_us: np.ndarray
    size: np.ndarray
    lost: np.ndarray

    def met(self, rate: float) -> Floats:
        """Return the deficit that each packet met, itself included."""
        passed = ~self.lost
        time, size = self.time_us[passed], self.size[passed]
        level = backlog(time, size, constant(rate))
        met = np.empty(len(self.lost))
        met[passed] = level
        before = np.searchsorted(time, self.time_us[self.lost], "right") - 1
        since = self.time_us[self.lost] - time[np.maximum(before, 0)]
        left = np.where(before >= 0, np.maximum(level[np.maximum(before, 0)] - since * rate, 0.0), 0.0)
        met[self.lost] = left + self.size[self.lost]
        return met

    def cost(self, rate: float, bucket: float | None = None) -> tuple[float, float]:
        """Return how badly lost and passed packets are told apart, and the bucket that does it best."""
        met = self.met(rate)
        lost, passed = met[self.lost], met[~self.lost]
        best = (np.inf, 0.0)
        for size in [bucket] if bucket else np.quantile(lost, np.linspace(0.05, 0.95, 13)) - PACKET_BYTES / 2:
            early = np.log1p(np.maximum(size - lost, 0.0) / PACKET_BYTES).mean()
            if early <= best[0]:  # else no size can make up for it
                late = np.log1p((passed[passed > size] - size) / PACKET_BYTES).sum() / len(passed)
                best = min(best, (early + late, size))
        return best

    def misjudged(self, rate: float) -> int:
        """Return how many packets are on the wrong side of the deficit that tells lost and passed apart best."""
        met = self.met(rate)
        lost = self.lost[np.argsort(met, kind="stable")]
        below = np.concatenate([[0], np.cumsum(lost)])  # lost though they met less
        above = np.concatenate([[0], np.cumsum(~lost)])
        return int((below + above[-1] - above).min())


def policer_of(tables: list[Transmissions], start_ns: int, base_us: float) -> Bucket | None:
    """Return the policer that explains the losses, a `Bucket`, or None.

    Parameters
    ----------
    tables : list of Transmissions
        The flow, and others of the capture that pass the same policer.
    start_ns : int
    base_us : float
        RTT without queue.
    """
    time = np.concatenate([(table.sent_ns - start_ns) / 1e3 for table in tables])
    order = np.argsort(time, kind="stable")
    size = np.concatenate([table.wire_bytes for table in tables])[order]
    lost = np.concatenate([table.state == LOST for table in tables])[order]
    tried = _Tried(time[order], size, lost)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    place = place[: len(tables[0])]
    if lost.sum() < LEAST_POLICED or _queued(tables[0], base_us):
        return None
    judged = sorted((_judged(tried, rate) for rate in _candidates(tried)), key=lambda found: -found.score)
    fit = (found for found in judged if found.explained.mean() >= EXPLAINED and found.spared <= SPARED)
    best = next((found for found in fit if not _delayed(tables[0], found.met[place], found, base_us)), None)
    if best is None:
        return None
    plateau = _plateau(tried, best.rate)
    if plateau is None:
        return None
    low, high = plateau
    best = _judged(tried, np.sqrt(low * high))
    rate, bucket = best.rate, best.bucket
    errors = _errors(tried, best)
    own = tables[0].state == LOST
    whose = np.zeros(len(order), bool)
    whose[np.flatnonzero(lost)[best.explained]] = True
    mask = own & whose[place]
    size_bytes = Estimate.around(bucket, max(errors[1], PACKET_BYTES / 2), PACKET_BYTES)
    _, least, most = Estimate.around(rate, max(errors[0], 5e-4 * rate)).sides()
    return Bucket(Estimate(rate, min(least, low), max(most, high)), size_bytes, mask)


def _plateau(tried: _Tried, rate: float) -> tuple[float, float] | None:
    """Return the bounds of the rates that tell lost and passed apart as well as this one does; None if any rate does.

    A bucket of a few packets is full again in milliseconds: the losses then say little of how fast. Counts of what is
    misjudged wander by their root. Where ten times and a tenth of the rate do as well, bursts alone decide what is
    lost, as in a short queue.
    """
    most = tried.misjudged(rate)
    most += Z95 * np.sqrt(max(most, 1.0))
    if all(tried.misjudged(rate * np.exp(side * MOST_PLATEAU)) <= most for side in (-1, 1)):
        return None
    bounds = []
    for side in (-1, 1):
        inside, step = 0.0, 1e-4
        while step < MOST_PLATEAU and tried.misjudged(rate * np.exp(side * step)) <= most:
            inside, step = step, 2 * step
        outside = min(step, MOST_PLATEAU)
        while outside - inside > max(1e-5, 0.02 * outside):
            middle = (inside + outside) / 2
            inside, outside = (
                (middle, outside) if tried.misjudged(rate * np.exp(side * middle)) <= most else (inside, middle)
            )
        bounds.append(rate * np.exp(side * inside))
    return tuple(bounds)


def _queued(table: Transmissions, base_us: float) -> bool:
    """Return whether what was sent about the time of losses waited: a queue dropped, no policer.

    The losses of an RTT count once: those of a flow's start, its most, may overflow a queue elsewhere.
    """
    known = np.flatnonzero(np.isfinite(table.rtt_us) & ~table.again)
    lost = np.flatnonzero(table.state == LOST)
    if not len(lost) or not len(known):
        return True
    lost = lost[np.unique((table.sent_ns[lost] / (base_us * 1e3)).astype(np.int64), return_index=True)[1]]
    before = known[np.maximum(np.searchsorted(known, lost) - 1, 0)]
    return float(np.median(table.rtt_us[before])) - base_us > max(5e3, 0.2 * base_us)


class _Judged(NamedTuple):
    """A policer that was tried: rate, bucket, the deficit each packet met, which losses it explains, what it spared."""

    rate: float
    bucket: float
    met: np.ndarray
    explained: np.ndarray
    spared: float

    @property
    def score(self) -> float:
        return self.explained.mean() - 3 * self.spared


def _judged(tried: _Tried, rate: float) -> _Judged:
    """Return how well a policer of this rate explains what was lost and what passed.

    At a loss the bucket is empty, whatever went before: the deficit is set to the bucket's size there, so that a packet
    that was miscounted (a duplicate, one of a flow that the capture does not show) is forgotten at the next loss.
    """
    met = tried.met(rate)
    first = np.flatnonzero(tried.lost)
    episode = tried.time_us[first] < tried.time_us[first[0]] + 1e6
    bucket = float(np.median(met[first][episode][:32])) - PACKET_BYTES / 2
    time, size, lost = tried.time_us.tolist(), tried.size.tolist(), tried.lost.tolist()
    level, before, levels = 0.0, time[0], np.empty(len(time))
    for k in range(len(time)):
        level = max(level - (time[k] - before) * rate, 0.0) + size[k]
        before, levels[k] = time[k], level
        if lost[k]:
            level = bucket if level > bucket / 2 else level - size[k]
    explained = levels[tried.lost] > bucket - 3 * PACKET_BYTES
    spared = float(np.mean(levels[~tried.lost] > bucket + 2 * PACKET_BYTES))
    return _Judged(rate, bucket, levels, explained, spared)


def _candidates(tried: _Tried) -> list[float]:
    """Return rates to judge: of what passed between losses, and of how well lost and passed are told apart."""
    mean = tried.size[~tried.lost].sum() / (tried.time_us[-1] - tried.time_us[0])
    places = [(mean / 3, mean * 30, 90), *((*bounds, 25) for bounds in _guesses(tried))]
    found = [min((least_of(lambda x: tried.cost(x)[0], *place, 1e-4) for place in places), key=lambda one: one[1])[0]]
    for span_us in (5e5, 2e6, 8e6):
        passed, span = _between(tried, span_us)
        if len(span) >= LEAST_POLICED:
            rates = passed / span
            found.append(
                least_of(
                    lambda x, passed=passed, span=span: float(
                        np.mean(np.log1p(np.abs(passed - x * span) / PACKET_BYTES))
                    ),
                    max(np.quantile(rates, 0.05), 1e-9),
                    np.quantile(rates, 0.98) * 1.01,
                    400,
                    1e-5,
                )[0]
            )
    return found


def _between(tried: _Tried, span_us: float) -> tuple[Floats, Floats]:
    """Return the bytes that passed between losses that lie so far apart, and the time between them."""
    losses = np.flatnonzero(tried.lost)
    passed = np.concatenate([[0.0], np.cumsum(np.where(tried.lost, 0.0, tried.size))])
    time = tried.time_us[losses]
    later = np.searchsorted(time, time + span_us)
    inside = later < len(losses)
    a, b = losses[inside], losses[later[inside]]
    return passed[b] - passed[a], tried.time_us[b] - tried.time_us[a]


def _guesses(tried: _Tried) -> list[tuple[float, float]]:
    """Return intervals of rates to look at: of what passed between losses, where the bucket was empty at both."""
    losses = np.flatnonzero(tried.lost)
    passed = np.concatenate([[0.0], np.cumsum(np.where(tried.lost, 0.0, tried.size))])
    each = []
    for lag in (4, 16, 64, 256):
        a, b = losses[:-lag], losses[lag:]
        span = tried.time_us[b] - tried.time_us[a]
        each.append((passed[b] - passed[a])[span > 2e5] / span[span > 2e5])
    rates = np.concatenate(each)
    rates = rates[rates > 0]
    if not len(rates):
        return []
    # Where most of them agree, and everything there is.
    counts, edges = np.histogram(np.log(rates), bins=max(int(np.ptp(np.log(rates)) / 0.02), 1))
    often = np.argsort(counts)[-6:]
    return [(np.exp(edges[k] - 0.02), np.exp(edges[k + 1] + 0.02)) for k in often if counts[k]]


def _delayed(table: Transmissions, met: Floats, best: _Judged, base_us: float) -> bool:
    """Return whether packets waited where the bucket was short of tokens, as they would in a queue."""
    rtt = table.rtt_us
    known = np.isfinite(rtt) & ~table.again
    wait = met / best.rate
    high = known & (wait > FULL_DEFICIT * best.bucket / best.rate) & (wait > 1e3)
    if high.sum() < 10:
        return True
    late = np.maximum(rtt[high] - base_us, 0.0)
    return float(np.median(late / wait[high])) > UNDELAYED


def _errors(tried: _Tried, best: _Judged) -> tuple[float, float]:
    """Return standard errors of rate and bucket: of rates between losses in parts of the flow, and of the deficits."""
    passed, span = _between(tried, 2e6)
    rates = passed / np.maximum(span, 1.0)
    near = np.abs(rates / best.rate - 1) < 0.05
    parts = [np.median(part) for part in np.array_split(rates[near], POLICED_PARTS) if len(part)]
    rate = float(np.std(parts) / np.sqrt(len(parts))) if len(parts) > 2 else 0.02 * best.rate
    at_loss = best.met[tried.lost][best.explained]
    return rate, float(np.std(np.clip(at_loss, *np.quantile(at_loss, [0.05, 0.95])))) / 2


# --- shapers ---------------------------------------------------------------------------------------------------------
def shaper_of(flow: Sent, steps: Steps) -> Bucket | None:
    """Return the shaper that delayed the packets, a `Bucket`, or None.

    With a bucket in its way a queue of the same rate is as much shorter as the bucket is large: once it is empty, every
    packet comes by bucket / rate sooner than from the queue alone, which is sooner than the least RTT allows.
    """
    if len(steps.rate) > 1:
        return None
    rate, known = float(steps.rate[0]), flow.known
    rest = (flow.told_us - departures(flow.sent_us, flow.wire_bytes, steps))[known]
    least = float(np.median(np.sort(flow.rtt_us[known])[:10])) - PACKET_BYTES / rate
    margin = max(500.0, 3 * PACKET_BYTES / rate, 0.03 * least)
    if np.quantile(rest, 0.6) > least - margin:
        return None

    def cost(rate: float, bucket: float) -> float:
        gone = departures(flow.sent_us, flow.wire_bytes, constant(rate), bucket)
        return float(np.mean(np.log1p(np.abs((flow.told_us - gone)[known] - least) / 200.0)))

    bucket = (least - float(np.median(rest))) * rate
    for _ in range(2):
        bucket = least_of(lambda b, r=rate: cost(r, b), bucket / 1.3, bucket * 1.3, 41, 1e-4)[0]
        rate = least_of(lambda x, b=bucket: cost(x, b), rate * 0.998, rate * 1.002, 21, 1e-6)[0]
    error = max(PACKET_BYTES / 2, 0.5 * float(np.subtract(*np.quantile(rest, [0.6, 0.4]))) * rate)
    return Bucket(Estimate.around(rate, 5e-4 * rate), Estimate.around(bucket, error, PACKET_BYTES), None)


def refilled_shaper(flow: Sent, rate: float) -> Bucket | None:
    """Return the shaper that delayed packets at a lower rate than the one that explains their delays best, or None.

    Where a sender pauses or slows down, tokens come back, and the link's own rate shows while they last; a single rate
    then explains either. The shaper's is near what was delivered while delays were long; with its bucket the path
    alone is left of nearly all of them, while tokens last as well as when they are spent.

    Parameters
    ----------
    flow : Sent
    rate : float
        The rate that explains the delays best, bytes/us.
    """
    known = flow.known
    least = float(np.median(np.sort(flow.rtt_us[known])[:10])) - PACKET_BYTES / rate
    margin = max(500.0, 3 * PACKET_BYTES / rate, 0.03 * least)

    def with_bucket(rate: float) -> tuple[float, Floats]:
        """Return the bucket, and what is left of the delays; without it where it is none.

        By so much sooner than from the queue alone packets come, once the bucket is empty.
        """
        clock, behind = work_done(flow.sent_us, flow.wire_bytes, constant(rate))
        left = (flow.told_us - left_at(flow.sent_us, clock, behind, constant(rate), 0.0))[known] - least
        bucket = -float(np.quantile(left, SPENT)) * rate
        if bucket > 0:
            left = (flow.told_us - left_at(flow.sent_us, clock, behind, constant(rate), bucket))[known] - least
        return bucket, left

    def cost(rate: float, most: float) -> float:
        return flow.deviation_with_bucket(rate, most, SPENT, least)

    rest = (flow.told_us - departures(flow.sent_us, flow.wire_bytes, constant(rate)))[known]
    if np.quantile(rest - least, 0.8) < margin:
        return None
    _, delivered, delay = delivered_rate(flow, max(3e5, 2 * least))
    long = (delivered > 0) & (delay > (least + np.quantile(delay[delivered > 0], 0.9)) / 2)
    if long.sum() < 3:
        return None
    middle = float(np.median(delivered[long]))
    slow = least_within(cost, middle * 0.9, middle * 1.1, 80, 1e-4)[0]
    bucket, left = with_bucket(slow)
    if not bucket > 0 or slow > 0.95 * rate:
        return None
    near = np.abs(left) < margin
    spent = backlog(flow.sent_us, flow.wire_bytes, constant(slow))[known] > bucket
    refills = int((np.diff(spent.astype(np.int8)) < 0).sum())
    if refills < 2 or spent.all() or min(near.mean(), near[spent].mean(), near[~spent].mean()) < EXPLAINED:
        return None
    return Bucket(Estimate.around(slow, 5e-4 * slow), Estimate.around(bucket, margin * slow, PACKET_BYTES), None)
