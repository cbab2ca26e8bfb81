"""Identification of the AQM that marked a flow's packets, by the likelihood of the marks under each AQM's law.

    step       every packet queued for longer than a threshold
    red        at random, in proportion to the excess of the average queue over a threshold, evenly spread [Floyd93]
    codel      one packet after the delay exceeded the target for an interval, then every interval / sqrt(n) [RFC8289]
    pie        at random, with a probability set by a PI controller [RFC8033]
    dualpi2    with the square of such a probability; ECT(1) by a step, or coupled to the classic queue [RFC9332]

Each law gives the marking probability of every packet, given the delays and marks before it. Laws are compared by
their likelihoods averaged over their parameters [Kass95]. fq_codel marks each flow as CoDel does. If several laws
explain the marks about equally well, or none does better than an arbitrary dependence on the delay, or than evenly
spread random marks, the marker remains unknown.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cctrace.columns import Bools, Floats, Ints, runs_of_true
from cctrace.path import constants as const
from cctrace.path.marking import Marking, marking_of, smoothed
from cctrace.path.pi_likelihood import dualpi2_log_likelihood, pie_log_likelihood
from cctrace.special import special

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence

NAMES = ("step", "red", "codel", "pie", "dualpi2")


@dataclass(frozen=True)
class Law:
    """A marking law and its most likely threshold."""

    name: str  # one of `NAMES`, or `by_wait` or `by_chance`, which identify no AQM
    score: float  # log of the likelihood averaged over the law's parameters
    # delay from which it marks (target of codel, pie and dualpi2, lower threshold of red), us
    threshold_us: float = math.nan
    # low_us, high_us: its 95 % interval, from the profile likelihood; of the best law, wider by the delays' errors
    low_us: float = math.nan
    high_us: float = math.nan
    # of red: its upper threshold (us), the probability there, and log2 of the packets that its average spans
    upper_us: float = math.nan
    most: float = math.nan
    weight_log: int = 0


@dataclass(frozen=True)
class Marker:
    """The AQM that marked a flow's packets."""

    # candidates, the likeliest first: a single name is an identification; empty if no law explains the marks
    names: tuple[str, ...] = ()
    law: Law | None = None  # the likeliest law


def likely_marker(path: PathEvidence) -> Marker:
    """Return which AQMs may have marked a flow's packets; `StreamError` without its data or its ACKs."""
    return judged(marking_of(path))


def judged(marking: Marking) -> Marker:
    """Return the laws that explain the marks about as well as the best one."""
    if marking.counts[1].sum() < const.MIN_MARKS:
        return Marker()
    error_us, marking = marking.error_us, marking.until(const.MAX_MARKS)
    laws = sorted((law(marking) for law in LAWS), key=lambda law: -law.score)
    if marking.is_l4s and any(law.name == "step" and law.score > -math.inf for law in laws):
        laws = [law for law in laws if law.name != "dualpi2"]  # it includes the step, which explains most marks
    best = laws[0]
    if best.name == "red" and marking.is_l4s and best.threshold_us < const.LOW_LATENCY_US:
        return Marker()  # behind jitter a low-latency queue's step looks like a threshold of the average
    if best.name == "by_chance" and marking.is_l4s and np.median(marking.wait_us) < const.LOW_LATENCY_US:
        best = replace(best, name="dualpi2")  # independent of the flow's own delay: coupled to the other queue
        laws = [best, *(law for law in laws[1:] if law.name != "dualpi2")]
    near = [law for law in laws if law.score > best.score - const.LAWS_APART]
    if any(law.name not in NAMES for law in near):
        return Marker()
    low_us, high_us = max(best.low_us - error_us, 0.0), best.high_us + error_us
    return Marker(tuple(law.name for law in near), replace(best, low_us=low_us, high_us=high_us))


def _log_likelihood(chance: Floats, packets: Floats, marked: Floats) -> Floats:
    """Return the log likelihood of marks under each packet's probability, summed along the last axis."""
    chance = np.clip(chance, const.RAREST_MARK, 1 - const.RAREST_MARK)
    return (marked * np.log(chance) + (packets - marked) * np.log1p(-chance)).sum(-1)


def _averaged(name: str, scores: Floats, thresholds: Floats) -> Law:
    """Return a law from its log likelihoods over a grid: thresholds on the first axis, other parameters after."""
    scores = scores.reshape(len(thresholds), -1)
    best = float(scores.max())
    if best == -math.inf:
        return Law(name, best)
    score = best + math.log(np.mean(np.exp(scores - best)))
    order = np.argsort(thresholds, kind="stable")
    profile, thresholds = scores.max(axis=1)[order], thresholds[order]
    near = thresholds[profile >= best - const.PROFILE_DROP]
    # The true value may lie up to the next grid point.
    low = np.max(thresholds, initial=0.0, where=thresholds < near[0])
    high = np.min(thresholds, initial=np.inf, where=thresholds > near[-1])
    low, high = (low if low > 0 else near[0]), (high if high < np.inf else near[-1])
    return Law(name, score, float(thresholds[np.argmax(profile)]), float(low), float(high))


def _sums(part: Ints, column: Floats, parts: int) -> Floats:
    return np.bincount(part, column, parts).astype(np.float64)


# --- laws ------------------------------------------------------------------------------------------------------------
def step(marking: Marking) -> Law:
    """Every packet queued for longer than a threshold, hardly any other; jitter blurs the edge."""
    packets, marked = marking.counts
    edges = np.unique(np.quantile(marking.wait_us, np.linspace(0, 1, const.WAIT_BINS + 1)))
    part = np.clip(np.searchsorted(edges, marking.wait_us, side="right") - 1, 0, len(edges) - 1)
    n, k, total = (_sums(part, column, len(edges)) for column in (packets, marked, marking.wait_us))
    wait = total / np.maximum(np.bincount(part, minlength=len(edges)), 1)
    low, high = np.quantile(marking.wait_us[marked > 0], [0, 0.9])
    thresholds = np.linspace(low, high, const.STEP_THRESHOLDS)
    finest = float(np.median(np.diff(edges))) / 2 if len(edges) > 1 else 1.0
    found = []
    for width in (finest, *const.BLURS_US):
        above = special.expit((wait - thresholds[:, None]) / width)
        blurred = width > np.maximum(thresholds * const.MAX_BLUR, finest)
        for rest, most in itertools.product(const.REST_MARKED, const.STEP_MARKED):
            found.append(np.where(blurred, -np.inf, _log_likelihood(rest + (most - rest) * above, n, k)))
    law = _averaged("step", np.transpose(found), thresholds)
    # Any law by which long waits are marked more often resembles a step a little.
    one_rate = float(_log_likelihood(np.full(len(n), k.sum() / n.sum()), n, k))
    return law if law.score > (1 - const.STEP_EXPLAINS) * one_rate else replace(law, score=-math.inf)


def codel(marking: Marking) -> Law:
    """One packet at a time, once the delay has exceeded the target for an interval."""
    found = []
    for interval_s in const.CODEL_INTERVALS_S:
        for wait in (smoothed(marking.wait_us), marking.wait_us):  # unsmoothed too: one short wait ends an episode
            targets = _targets_us(marking, wait, interval_s)
            scores = [_two_rates(_due(marking, wait >= target, interval_s), *marking.counts) for target in targets]
            found.append(_averaged("codel", np.array(scores), targets))
    best = max(found, key=lambda law: law.score)
    return replace(best, score=best.score + math.log(np.mean(np.exp([law.score - best.score for law in found]))))


def _targets_us(marking: Marking, wait_us: Floats, interval_s: float) -> Floats:
    """Return targets that CoDel may have, from the least delays in the interval before marks that follow a pause."""
    time, marks = marking.time_s, np.flatnonzero(marking.counts[1] > 0)
    first = marks[np.diff(time[marks], prepend=-math.inf) > const.CODEL_PAUSE * interval_s]
    begin = np.minimum(np.searchsorted(time, time[first] - interval_s + const.CODEL_EARLY_S), first)
    least = [wait_us[start : stop + 1].min() for start, stop in zip(begin, first, strict=True)]
    low, high = np.maximum(np.quantile(least, const.CODEL_MIDDLE), const.MIN_TARGET_US)
    return np.geomspace(low * const.CODEL_WIDER[0], high * const.CODEL_WIDER[1], const.TARGETS)


def _two_rates(due: Bools, packets: Floats, marked: Floats) -> float:
    """Return the log likelihood with one probability where a mark is due and a small one elsewhere."""
    n, k = float(packets[due].sum()), float(marked[due].sum())
    rest = _unknown_chance(packets.sum() - n, marked.sum() - k, const.SPURIOUS_MARKS)
    return float(_unknown_chance(n, k, const.DUE_MARKED) + rest)


def _unknown_chance(packets: Floats | float, marked: Floats | float, about: float) -> Floats | float:
    """Return the log likelihood of marks with a probability that has a beta prior of mean `about`."""
    a, b = 0.5, 0.5 / about - 0.5
    found: Floats | float = special.betaln(a + marked, b + packets - marked) - special.betaln(a, b)
    return found


def _due(marking: Marking, above: Bools, interval_s: float) -> Bools:
    """Return at which ACKs CoDel is about to mark, given the marks before: [RFC8289] §5, as implemented in Linux."""
    time, stops = marking.time_s, len(marking)
    marks = np.append(np.flatnonzero(marking.counts[1] > 0), stops)
    repeats = np.append(np.flatnonzero(~marking.is_known), stops)  # where what is due counts as marked
    due = np.zeros(stops, bool)
    begin, end = runs_of_true(above)
    is_long = time[end - 1] - time[begin] >= interval_s - const.CODEL_EARLY_S
    count, last_count, root, next_s = 0, 0, 1.0, -math.inf  # root: Linux's approximation of 1 / sqrt(count)
    for first, stop in zip(begin[is_long], end[is_long], strict=True):
        place = after = int(np.searchsorted(time[:stop], time[first] + interval_s - const.CODEL_EARLY_S))
        is_marking = False
        while True:
            until = int(min(marks[np.searchsorted(marks, after)], repeats[np.searchsorted(repeats, place)], stop))
            due[place : until + 1 if until < stop else stop] = True
            if until == stop:
                break
            now, pause = float(time[until]), interval_s * root
            if is_marking:
                count += 1
                next_s = max(next_s, now - min(const.CODEL_EARLY_S, pause / 4))
                if marking.is_known[until]:
                    next_s = min(next_s, now)
            else:
                is_marking, delta = True, count - last_count
                count = delta if delta > 1 and now - next_s < const.CODEL_RESUMES * interval_s else 1
                last_count, next_s = count, now
            root = root * (3 - count * root**2) / 2 if count > 1 else 1.0  # Newton's method, one step a mark
            next_s += interval_s * root
            early_s = min(const.CODEL_EARLY_S, interval_s * root / 4)
            after = until + 1
            place = max(int(np.searchsorted(time[:stop], next_s - early_s)), after)
    return due


def red(marking: Marking) -> Law:
    """At random, in proportion to the average queue's excess over a threshold, evenly spread; always above another."""
    from scipy.signal import lfilter  # late: it takes a second of CPU time, with scipy.stats

    every = np.repeat(marking.wait_us, marking.packets)
    marking = marking.grouped()
    place = np.cumsum(marking.packets) - 1
    scores, thresholds = [], []
    for shift in const.RED_SHIFTS:
        average = lfilter([0.5**shift], [1, 0.5**shift - 1], every)[place]
        for least in np.maximum(
            np.quantile(average, np.linspace(0, 0.95, const.RED_LOWER_THRESHOLDS)), const.MIN_TARGET_US
        ):
            found = [_red_log_likelihood(marking, average - least, least * width) for width in const.RED_WIDTHS]
            scores.append(np.concatenate(found))
            thresholds.append(least)
    row, cell = divmod(int(np.argmax(scores)), len(scores[0]))
    width, most = divmod(cell, len(const.RED_MAX))
    law = _averaged("red", np.array(scores), np.array(thresholds))
    upper_us, shift = (
        thresholds[row] * (1 + const.RED_WIDTHS[width]),
        const.RED_SHIFTS[row // const.RED_LOWER_THRESHOLDS],
    )
    return replace(law, upper_us=float(upper_us), most=const.RED_MAX[most], weight_log=shift)


def _red_log_likelihood(marking: Marking, excess: Floats, width: float) -> Floats:
    """Return the log likelihood of marks for each of RED's maximum probabilities, given the average's excess.

    [Linux618] red_action: the `n`th packet after a mark is marked if `n` times the probability exceeds a random number,
    which is drawn at every mark and whenever the average rises above the lower threshold. Hence the largest product
    since then decides. All packets are marked if the excess is `width` or more.
    """
    packets, marked = marking.counts
    is_forced = excess >= width
    counts = (excess > 0) & ~is_forced & marking.is_known
    begins = np.ones(len(excess), bool)
    begins[1:] = (marked[:-1] > 0) | ~counts[:-1]
    stretch, first = np.cumsum(begins) - 1, np.flatnonzero(begins)
    since = np.cumsum(np.where(counts, marking.packets, 0))
    since = since - np.concatenate([[0], since])[first][stretch]
    product = np.where(counts, excess * since, 0.0)
    above_all = product.max() + 1.0  # separates the stretches in one running maximum
    reached = np.maximum.accumulate(product + stretch * above_all) - stretch * above_all
    before = np.where(begins, 0.0, np.concatenate([[0.0], reached[:-1]]))

    slopes = np.array(const.RED_MAX)[:, None] / width
    hit = (marked > 0) & ~is_forced
    still, passed = _log_unmarked(slopes * before[hit]), _log_unmarked(slopes * reached[hit])
    chance = np.exp(still) * -np.expm1(passed - still)
    # For the packet among those that the ACK delivers.
    score = np.log(np.maximum(chance / packets[hit], const.RAREST_MARK)).sum(1)
    more = np.clip(slopes * excess[hit], const.RAREST_MARK, 1 - const.RAREST_MARK)
    score += (np.log(more) * (marked[hit] - 1)).sum(1)
    last = np.append(first[1:], len(excess)) - 1
    score += _log_unmarked(slopes * reached[last[~hit[last]]]).sum(1)
    forced = _log_likelihood(np.array([const.RED_FORCED]), packets[is_forced], marked[is_forced])
    return score + forced


def _log_unmarked(product: Floats) -> Floats:
    """Return the log probability that RED has not marked yet, not 0 beyond 1, as RTTs give its queue with errors."""
    rest = const.RED_LEFT
    return np.where(
        product < 1 - rest, np.log1p(-np.minimum(product, 1 - rest)), math.log(rest) - (product - 1 + rest) / rest
    )


def pie(marking: Marking) -> Law:
    """At random, with the probability of a PI controller."""
    scores, targets_us = pie_log_likelihood(marking)
    return _averaged("pie", scores, targets_us)


def dualpi2(marking: Marking) -> Law:
    """With the square of a PI controller's probability; ECT(1) by a step and, below it, at a slowly changing rate."""
    if not marking.is_l4s:
        scores, targets_us = dualpi2_log_likelihood(marking)
        return _averaged("dualpi2", scores, targets_us)
    n, k = marking.counts
    ends = np.minimum(np.quantile(marking.wait_us[k > 0], [0, 0.9]), const.LONGEST_L4S_STEP_US)
    thresholds = np.linspace(ends[0], ends[1], const.COUPLED_STEPS)
    found = []
    for threshold in thresholds:
        is_below = marking.wait_us <= threshold
        rest = _slow_rate(n * is_below, k * is_below)
        blurs = (width for width in const.BLURS_US if width <= max(threshold * const.MAX_BLUR, const.BLURS_US[0]))
        above = [special.expit((marking.wait_us - threshold) / width) for width in blurs]
        found.append(max(float(_log_likelihood(rest + (1 - rest) * part, n, k)) for part in above))
    return _averaged("dualpi2", np.array(found), thresholds)


# --- laws that identify no AQM ---------------------------------------------------------------------------------------
def by_wait(marking: Marking) -> Law:
    """Any dependence on the delay: one probability per decile of the delays."""
    packets, marked = marking.counts
    part = np.searchsorted(np.quantile(marking.wait_us, np.linspace(0.1, 0.9, 9)), marking.wait_us)
    n, k = _sums(part, packets, 10), _sums(part, marked, 10)
    return Law("by_wait", float(np.sum(_unknown_chance(n, k, float(k.sum() / n.sum())))))


def by_chance(marking: Marking) -> Law:
    """At a slowly changing rate, randomly or evenly spread, independent of the delay."""
    n, k = marking.grouped().counts
    rate = np.clip(_slow_rate(n, k), const.RAREST_MARK, 1 - const.RAREST_MARK)
    hit = k > 0
    passed = np.cumsum(n * rate)
    since = np.maximum(np.diff(passed[hit], prepend=0.0), const.MIN_SINCE)  # expected marks since the last one
    scores = [float(_log_likelihood(rate, n, k))]
    for shape in const.EVEN_SHAPES:
        gaps = shape * math.log(shape) + (shape - 1) * np.log(since) - shape * since - special.gammaln(shape)
        rest = special.gammaincc(shape, shape * (passed[-1] - passed[hit][-1]))
        scores.append(float((gaps + k[hit] * np.log(rate[hit])).sum() + math.log(max(rest, 1e-300))))
    best = max(scores)
    score = best + math.log(np.mean(np.exp(np.array(scores) - best)))
    return Law("by_chance", score - math.log(k.sum()) / 2)


def _slow_rate(packets: Floats, marked: Floats) -> Floats:
    """Return the share of marks among the packets before each row."""
    from scipy.signal import lfilter  # late, as above

    fade = math.exp(-packets.sum() / max(len(packets), 1) / const.CHANCE_PACKETS)
    hits, size = (np.concatenate([[0.0], lfilter([1], [1, -fade], column)[:-1]]) for column in (marked, packets))
    few = const.CHANCE_PACKETS / 4
    return (hits + marked.sum() / max(packets.sum(), 1.0) * few) / (size + few)


LAWS: tuple[Callable[[Marking], Law], ...] = (step, red, codel, pie, dualpi2, by_wait, by_chance)
