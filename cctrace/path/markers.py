"""Identification of the AQM that marked a flow's packets, by the likelihood of the marks under each AQM's law.

    step       every packet queued for longer than a threshold red        at random, in proportion to the excess of
    the average queue over a threshold; evenly spread [Floyd93] codel      one packet after the delay exceeded the
    target for an interval, then every interval / sqrt(n) [RFC8289] pie        at random, with a probability set by
    a PI controller [RFC8033] dualpi2    with the square of such a probability; ECT(1) by a step, or coupled to the
    classic queue [RFC9332]

Each law gives the marking probability of every packet, given the delays and marks before it; its parameters
maximise the likelihood. fq_codel marks each flow as CoDel does. If several laws explain the marks about equally
well, or none does better than an arbitrary dependence on the delay, the marker remains unknown.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cctrace.path import constants as const
from cctrace.path.arrays import Bools, Floats, Ints
from cctrace.path.marking import Marking, marking_of, smoothed
from cctrace.path.pi_chance import dualpi2_log_likelihood, pie_log_likelihood
from cctrace.special import special

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence

NAMES = ("step", "red", "codel", "pie", "dualpi2")


@dataclass(frozen=True)
class Law:
    """A marking law with its maximum-likelihood parameters.

    Attributes
    ----------
    name : str
        One of `NAMES`, or `by_wait` or `by_chance`, which identify no AQM.
    score : float
        Log likelihood, minus half the log of the number of packets per parameter [Schwarz78].
    threshold_us : float
        Delay from which it marks (target of codel, pie and dualpi2, lower threshold of red), us.
    low_us, high_us : float
        Its 95 % interval, from the profile likelihood.
    """

    name: str
    score: float
    threshold_us: float = math.nan
    low_us: float = math.nan
    high_us: float = math.nan


@dataclass(frozen=True)
class Marker:
    """The AQM that marked a flow's packets.

    Attributes
    ----------
    names : tuple of str
        Candidates, the likeliest first: a single name is an identification; empty if no law explains the marks.
    law : Law or None
        The likeliest law.
    """

    names: tuple[str, ...] = ()
    law: Law | None = None


def marker_of(path: PathEvidence) -> Marker:
    """Return which AQMs may have marked a flow's packets.

    Raises
    ------
    StreamError
        If the capture lacks the data or the acknowledgements.
    """
    return judged(marking_of(path))


def judged(marking: Marking) -> Marker:
    """Return the laws that explain the marks about as well as the best one."""
    if marking.counts[1].sum() < const.LEAST_MARKS:
        return Marker()
    laws = sorted((law(marking) for law in LAWS), key=lambda law: -law.score)
    best = laws[0]
    if best.name == "by_chance" and marking.is_l4s and np.median(marking.wait_us) < const.LOW_LATENCY_US:
        best = replace(best, name="dualpi2")  # independent of the flow's own delay: coupled to the other queue
        laws = [best, *(law for law in laws[1:] if law.name != "dualpi2")]
    near = [law for law in laws if law.score > best.score - const.LAWS_APART]
    if any(law.name not in NAMES for law in near):
        return Marker()
    names = [law.name for law in near]
    if (
        marking.is_l4s and names[0] == "step" and "dualpi2" in names
    ):  # dualpi2 includes the step, and nothing reveals the rest
        names.remove("dualpi2")
    return Marker(tuple(names), best)


def _log_likelihood(chance: Floats, packets: Floats, marked: Floats) -> Floats:
    """Return the log likelihood of marks under each packet's probability, summed along the last axis."""
    chance = np.clip(chance, const.RAREST_MARK, 1 - const.RAREST_MARK)
    total: Floats = (marked * np.log(chance) + (packets - marked) * np.log1p(-chance)).sum(-1)
    return total


def _scored(name: str, scores: Floats, thresholds: Floats, parameters: int, packets: float) -> Law:
    """Return a law from the likelihoods along a grid of its threshold."""
    order = np.argsort(thresholds, kind="stable")
    scores, thresholds = scores[order], thresholds[order]
    best = int(np.argmax(scores))
    near = thresholds[scores >= scores[best] - const.PROFILE_DROP]
    low = np.max(
        thresholds, initial=0.0, where=thresholds < near[0]
    )  # the true value may lie up to the next grid point
    high = np.min(thresholds, initial=np.inf, where=thresholds > near[-1])
    low, high = (low if low > 0 else near[0]), (high if high < np.inf else near[-1])
    score = float(scores[best]) - parameters / 2 * math.log(packets)
    return Law(name, score, float(thresholds[best]), float(low), float(high))


def _sums(part: Ints, column: Floats, parts: int) -> Floats:
    """Return the sum of a column over each part."""
    total: Floats = np.bincount(part, column, parts).astype(np.float64)
    return total


def _grouped(marking: Marking) -> tuple[Floats, Floats, Ints]:
    """Return packets and marks of groups of neighbouring ACKs, and the last ACK of each group."""
    rows = len(marking)
    first = np.unique(np.linspace(0, rows, min(rows, const.GROUPS), endpoint=False).astype(int))
    packets, marked = (np.add.reduceat(column, first) for column in marking.counts)
    return packets, marked, np.append(first[1:], rows) - 1


# --- laws ------------------------------------------------------------------------------------------------------------
def step(marking: Marking) -> Law:
    """Every packet queued for longer than a threshold, hardly any other; jitter blurs the edge."""
    packets, marked = marking.counts
    edges = np.unique(np.quantile(marking.wait_us, np.linspace(0, 1, const.WAITS + 1)))
    part = np.clip(np.searchsorted(edges, marking.wait_us, side="right") - 1, 0, len(edges) - 1)
    n, k, total = (_sums(part, column, len(edges)) for column in (packets, marked, marking.wait_us))
    wait = total / np.maximum(np.bincount(part, minlength=len(edges)), 1)
    low, high = np.quantile(marking.wait_us[marked > 0], [0, 0.9])
    thresholds = np.linspace(low, high, const.STEPS)
    finest = float(np.median(np.diff(edges))) / 2 if len(edges) > 1 else 1.0
    found = []
    for width in (finest, *const.BLURS_US):
        above = special.expit((wait - thresholds[:, None]) / width)
        blurred = width > np.maximum(thresholds * const.LARGEST_BLUR, finest)
        for rest, most in itertools.product(const.REST_MARKED, const.STEP_MARKED):
            found.append(np.where(blurred, -np.inf, _log_likelihood(rest + (most - rest) * above, n, k)))
    law = _scored("step", np.max(found, axis=0), thresholds, 3, n.sum())
    # Any law that marks long delays more often resembles a step a little.
    one_rate = float(_log_likelihood(np.full(len(n), k.sum() / n.sum()), n, k))
    return law if law.score > (1 - const.STEP_EXPLAINS) * one_rate else replace(law, score=-math.inf)


def codel(marking: Marking) -> Law:
    """One packet at a time, once the delay has exceeded the target for an interval."""
    packets, marked = marking.counts
    waits = smoothed(marking.wait_us)  # or unsmoothed: jitter spoils them, and a single packet may end an interval
    top = max(float(np.quantile(waits, 0.999)), 2 * const.LEAST_TARGET_US)
    targets = np.geomspace(max(top / 50, const.LEAST_TARGET_US), top, const.TARGETS)
    scores = np.full(len(targets), -np.inf)
    for interval_s, wait in itertools.product(const.CODEL_INTERVALS_S, (waits, marking.wait_us)):
        for i, target in enumerate(targets):
            due = _due(marking, wait >= target, interval_s)
            scores[i] = max(scores[i], _two_rates(due, packets, marked))
    return _scored("codel", scores, targets, 4, packets.sum())


def _two_rates(due: Bools, packets: Floats, marked: Floats) -> float:
    """Return the maximum log likelihood with one probability where a mark is due and a small one elsewhere."""
    n, k = float(packets[due].sum()), float(marked[due].sum())
    score = 0.0
    rest = (packets.sum() - n, marked.sum() - k, const.RAREST_MARK, const.SPURIOUS_MARKS)
    for size, count, low, high in ((n, k, const.LEAST_DUE, 1 - const.RAREST_MARK), rest):
        rate = min(max(count / max(size, 1.0), low), high)
        score += count * math.log(rate) + (size - count) * math.log1p(-rate)
    return score


def _due(marking: Marking, above: Bools, interval_s: float) -> Bools:
    """Return at which ACKs CoDel is about to mark, given the marks before: [RFC8289] §5, as implemented in Linux."""
    # Marks due while the receiver repeats one count as set.
    time, hits = marking.time_s, np.flatnonzero((marking.marked > 0) | ~marking.is_known)
    due = np.zeros(len(time), bool)
    edges = np.flatnonzero(np.diff(above.astype(np.int8), prepend=0, append=0))
    begin, end = edges[::2], edges[1::2]
    is_long = time[end - 1] - time[begin] >= interval_s - const.CODEL_EARLY_S
    count, last_count, next_s = 0, 0, -math.inf
    for first, stop in zip(begin[is_long], end[is_long], strict=True):
        place = int(np.searchsorted(time[:stop], time[first] + interval_s - const.CODEL_EARLY_S))
        dropping = False
        while place < stop:
            hit = np.searchsorted(hits, place)
            until = int(hits[hit]) if hit < len(hits) and hits[hit] < stop else int(stop)
            due[place : until + 1 if until < stop else stop] = True
            if until == stop:
                break
            now = float(time[until])
            if dropping:
                count += 1
            else:
                dropping, delta = True, count - last_count
                count = delta if delta > 1 and now - next_s < const.CODEL_RESUMES * interval_s else 1
                last_count = count
            next_s = now + interval_s / math.sqrt(count)
            place = max(int(np.searchsorted(time[:stop], next_s - const.CODEL_EARLY_S)), until + 1)
    return due


def red(marking: Marking) -> Law:
    """At random, in proportion to the excess of the average queue over a threshold, evenly spread."""
    from scipy.signal import lfilter  # imported late: with scipy.stats, it takes a second of CPU time

    n, k, last = _grouped(marking)
    every = np.repeat(marking.wait_us, marking.packets)
    place = (np.cumsum(marking.packets) - 1)[last]
    slopes = np.geomspace(*const.RED_SLOPES, const.SLOPES)[:, None]
    scores, thresholds = [], []
    for shift in const.RED_SHIFTS:
        average = lfilter([0.5**shift], [1, 0.5**shift - 1], every)[place]
        for least in np.quantile(average, np.linspace(0, 0.95, const.LEASTS)):
            excess = np.maximum(average - least, 0.0)
            since = _since(excess * n, k > 0)
            chance = slopes * excess / np.maximum(1 - slopes * since, const.LEAST_LEFT)
            for most in const.RED_MOST:  # above this probability every packet is marked
                forced = np.where(slopes * excess > most, 1.0, chance)
                scores.append(float(_log_likelihood(forced, n, k).max()))
                thresholds.append(least)
    return _scored("red", np.array(scores), np.array(thresholds), 4, n.sum())


def _since(amounts: Floats, hit: Bools) -> Floats:
    """Return the sum of amounts since the last hit, excluding the row itself."""
    total = np.cumsum(amounts)
    base = np.maximum.accumulate(np.where(hit, total, 0.0))
    return total - amounts - np.concatenate([[0.0], base[:-1]])


def pie(marking: Marking) -> Law:
    """At random, with the probability of a PI controller."""
    scores, targets_us = pie_log_likelihood(marking)
    return _scored("pie", scores, targets_us, 2, marking.counts[0].sum())


def dualpi2(marking: Marking) -> Law:
    """With the square of a PI controller's probability; ECT(1) by a step and, below it, at a slowly changing rate."""
    if not marking.is_l4s:
        scores, targets_us = dualpi2_log_likelihood(marking)
        return _scored("dualpi2", scores, targets_us, 2, marking.counts[0].sum())
    n, k = marking.counts
    ends = np.minimum(np.quantile(marking.wait_us[k > 0], [0, 0.9]), const.LONGEST_L4S_STEP_US)
    thresholds = np.linspace(ends[0], ends[1], const.COUPLED_STEPS)
    found = []
    for threshold in thresholds:
        is_below = marking.wait_us <= threshold
        rest = _slow_rate(n * is_below, k * is_below)
        blurs = (width for width in const.BLURS_US if width <= max(threshold * const.LARGEST_BLUR, const.BLURS_US[0]))
        above = [special.expit((marking.wait_us - threshold) / width) for width in blurs]
        found.append(max(float(_log_likelihood(rest + (1 - rest) * part, n, k)) for part in above))
    return _scored("dualpi2", np.array(found), thresholds, 3, n.sum())


# --- what says nothing of a queue's management -----------------------------------------------------------------------
def by_wait(marking: Marking) -> Law:
    """Any dependence on the delay: one probability per decile of the delays."""
    packets, marked = marking.counts
    part = np.searchsorted(np.quantile(marking.wait_us, np.linspace(0.1, 0.9, 9)), marking.wait_us)
    n, k = _sums(part, packets, 10), _sums(part, marked, 10)
    return Law("by_wait", float(_log_likelihood(k / np.maximum(n, 1), n, k)) - 5 * math.log(k.sum()))


def by_chance(marking: Marking) -> Law:
    """At a slowly changing rate."""
    n, k, _ = _grouped(marking)
    return Law("by_chance", float(_log_likelihood(_slow_rate(n, k), n, k)) - math.log(k.sum()) / 2)


def _slow_rate(packets: Floats, marked: Floats) -> Floats:
    """Return the share of marks among the packets before each row."""
    from scipy.signal import lfilter  # imported late, as above

    fade = math.exp(-packets.sum() / max(len(packets), 1) / const.CHANCE_PACKETS)
    hits, size = (np.concatenate([[0.0], lfilter([1], [1, -fade], column)[:-1]]) for column in (marked, packets))
    few = const.CHANCE_PACKETS / 4
    rate: Floats = (hits + marked.sum() / max(packets.sum(), 1.0) * few) / (size + few)
    return rate


LAWS: tuple[Callable[[Marking], Law], ...] = (step, red, codel, pie, dualpi2, by_wait, by_chance)
