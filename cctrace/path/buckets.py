r"""Token buckets: policers, which drop excess packets, and shapers, which delay them.

A policer of rate r and bucket B acts like a drop-tail queue without waiting. Its *deficit* V, the tokens missing from
the bucket, grows with every packet that passes and falls at r; a packet is dropped if V plus its size exceeds B. V thus
follows Lindley's recursion over the packets that passed, and r and B are the values that best separate the deficits met
by lost and by passed packets: at another rate, V drifts between losses. A queue would have delayed packets by V / r, a
policer does not. A shaper delays packets, but only by the part of V above B.

Bytes are those of `cctrace.Path` (payload plus 66 per segment). Which bytes a router counts cannot be inferred from
full-sized segments, where layers differ by a constant factor; the policer of the captures of `benchmarks/fit.py
policers` counts Ethernet frames with their check sequence (1518 instead of 1514).
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
    """A token bucket: rate in bytes/us, size in bytes, and which losses it explains."""

    rate: Estimate
    size_bytes: Estimate
    explained: np.ndarray | None

    def as_estimates(self) -> dict[str, Estimate]:
        """Return {"rate_bps", "bucket_bytes"}."""
        return {"rate_bps": self.rate.scaled(8e6), "bucket_bytes": self.size_bytes}


class _Tried(NamedTuple):
    """All packets that reached a policer, in order of sending."""

    time_us: np.ndarray
    size: np.ndarray
    lost: np.ndarray

    def met(self, rate: float) -> Floats:
        """Return the deficit at each packet, itself included."""
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
        """Return how badly the deficit separates lost and passed packets, and the best bucket size."""
        met = self.met(rate)
        lost, passed = met[self.lost], met[~self.lost]
        best = (np.inf, 0.0)
        for size in [bucket] if bucket else np.quantile(lost, np.linspace(0.05, 0.95, 13)) - PACKET_BYTES / 2:
            early = np.log1p(np.maximum(size - lost, 0.0) / PACKET_BYTES).mean()
            if early <= best[0]:  # otherwise no size can compensate
                late = np.log1p((passed[passed > size] - size) / PACKET_BYTES).sum() / len(passed)
                best = min(best, (early + late, size))
        return best

    def misjudged(self, rate: float) -> int:
        """Return the number of packets on the wrong side of the best deficit threshold between lost and passed."""
        met = self.met(rate)
        lost = self.lost[np.argsort(met, kind="stable")]
        below = np.concatenate([[0], np.cumsum(lost)])  # lost at a smaller deficit
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
    """Return the range of rates that separate lost and passed packets as well as this one; None if any rate does.

    A small bucket refills within milliseconds, so its losses say little about the rate. The tolerance is the Poisson
    scatter of misjudged packets. If ten times and a tenth of the rate fit as well, bursts alone decide what is lost, as
    in a short queue.
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
    """Return whether packets sent around the losses waited: then a queue dropped them, not a policer.

    All losses within an RTT count once: the many at a flow's start may overflow a queue elsewhere.
    """
    known = np.flatnonzero(np.isfinite(table.rtt_us) & ~table.again)
    lost = np.flatnonzero(table.state == LOST)
    if not len(lost) or not len(known):
        return True
    lost = lost[np.unique((table.sent_ns[lost] / (base_us * 1e3)).astype(np.int64), return_index=True)[1]]
    before = known[np.maximum(np.searchsorted(known, lost) - 1, 0)]
    return float(np.median(table.rtt_us[before])) - base_us > max(5e3, 0.2 * base_us)


class _Judged(NamedTuple):
    """A policer hypothesis: rate, bucket, deficit at each packet, explained losses, share of packets wrongly spared."""

    rate: float
    bucket: float
    met: np.ndarray
    explained: np.ndarray
    spared: float

    @property
    def score(self) -> float:
        return self.explained.mean() - 3 * self.spared


def _judged(tried: _Tried, rate: float) -> _Judged:
    """Return how well a policer of this rate explains which packets were lost and which passed.

    At a loss the bucket must be empty, so the deficit is reset to the bucket's size; a miscounted packet (a duplicate,
    or one of a flow outside the capture) is thus forgotten at the next loss.
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
    """Return candidate rates: from bytes passed between losses, and from the separation of lost and passed packets."""
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
    """Return the bytes passed between losses at least this far apart, and the time between them."""
    losses = np.flatnonzero(tried.lost)
    passed = np.concatenate([[0.0], np.cumsum(np.where(tried.lost, 0.0, tried.size))])
    time = tried.time_us[losses]
    later = np.searchsorted(time, time + span_us)
    inside = later < len(losses)
    a, b = losses[inside], losses[later[inside]]
    return passed[b] - passed[a], tried.time_us[b] - tried.time_us[a]


def _guesses(tried: _Tried) -> list[tuple[float, float]]:
    """Return candidate rate intervals, from bytes passed between losses, both of which found the bucket empty."""
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
    # The most frequent rates, and the full range.
    counts, edges = np.histogram(np.log(rates), bins=max(int(np.ptp(np.log(rates)) / 0.02), 1))
    often = np.argsort(counts)[-6:]
    return [(np.exp(edges[k] - 0.02), np.exp(edges[k + 1] + 0.02)) for k in often if counts[k]]


def _delayed(table: Transmissions, met: Floats, best: _Judged, base_us: float) -> bool:
    """Return whether packets waited when the bucket was short of tokens, as they would in a queue."""
    rtt = table.rtt_us
    known = np.isfinite(rtt) & ~table.again
    wait = met / best.rate
    high = known & (wait > FULL_DEFICIT * best.bucket / best.rate) & (wait > 1e3)
    if high.sum() < 10:
        return True
    late = np.maximum(rtt[high] - base_us, 0.0)
    return float(np.median(late / wait[high])) > UNDELAYED


def _errors(tried: _Tried, best: _Judged) -> tuple[float, float]:
    """Return standard errors of rate and bucket: scatter of rates over parts of the flow, of deficits at losses."""
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

    A bucket shortens the queue at the same rate by its size: once it is empty, every packet arrives bucket / rate
    earlier than from the queue alone, which is earlier than the minimum RTT allows.
    """
    if len(steps.rate) > 1:
        return None
    rate, known = float(steps.rate[0]), flow.acked
    rest = (flow.acked_us - departures(flow.sent_us, flow.wire_bytes, steps))[known]
    least = float(np.median(np.sort(flow.rtt_us[known])[:10])) - PACKET_BYTES / rate
    margin = max(500.0, 3 * PACKET_BYTES / rate, 0.03 * least)
    if np.quantile(rest, 0.6) > least - margin:
        return None

    def cost(rate: float, bucket: float) -> float:
        gone = departures(flow.sent_us, flow.wire_bytes, constant(rate), bucket)
        return float(np.mean(np.log1p(np.abs((flow.acked_us - gone)[known] - least) / 200.0)))

    bucket = (least - float(np.median(rest))) * rate
    for _ in range(2):
        bucket = least_of(lambda b, r=rate: cost(r, b), bucket / 1.3, bucket * 1.3, 41, 1e-4)[0]
        rate = least_of(lambda x, b=bucket: cost(x, b), rate * 0.998, rate * 1.002, 21, 1e-6)[0]
    error = max(PACKET_BYTES / 2, 0.5 * float(np.subtract(*np.quantile(rest, [0.6, 0.4]))) * rate)
    return Bucket(Estimate.around(rate, 5e-4 * rate), Estimate.around(bucket, error, PACKET_BYTES), None)


def refilled_shaper(flow: Sent, rate: float) -> Bucket | None:
    """Return a shaper with a lower rate than the one that explains the delays best, or None.

    When a sender pauses or slows down, tokens accumulate, and the link's own rate is visible while they last; a single
    rate then fits either phase. The shaper's rate is close to the rate delivered while delays were long; with its
    bucket, nearly all residual delays equal the base RTT, both with and without tokens.

    Parameters
    ----------
    flow : Sent
    rate : float
        The rate that explains the delays best, bytes/us.
    """
    known = flow.acked
    least = float(np.median(np.sort(flow.rtt_us[known])[:10])) - PACKET_BYTES / rate
    margin = max(500.0, 3 * PACKET_BYTES / rate, 0.03 * least)

    def with_bucket(rate: float) -> tuple[float, Floats]:
        """Return the bucket and the residual delays with it, or without if there is none.

        Once the bucket is empty, packets arrive that much earlier than from the queue alone.
        """
        clock, behind = work_done(flow.sent_us, flow.wire_bytes, constant(rate))
        left = (flow.acked_us - left_at(flow.sent_us, clock, behind, constant(rate), 0.0))[known] - least
        bucket = -float(np.quantile(left, SPENT)) * rate
        if bucket > 0:
            left = (flow.acked_us - left_at(flow.sent_us, clock, behind, constant(rate), bucket))[known] - least
        return bucket, left

    def cost(rate: float, most: float) -> float:
        return flow.deviation_with_bucket(rate, most, SPENT, least)

    rest = (flow.acked_us - departures(flow.sent_us, flow.wire_bytes, constant(rate)))[known]
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
