"""Ascent on the mean utility of one bin: the next (k, beta) to try, given the trials so far.

`Ascent` is the paper's gradient ascent [Chung18] §III-A, as far as that is described. `Search`, the default, is ours.
It has no state but its history, so it resumes by reading that back. Utilities are noisy (a flow that loses more than
5 % has hardly any), so no single trial is trusted: for one k, a parabola is fitted to all trials, weighted towards the
best one and robust against outliers (one dumbbell that loses more than 5 % spoils its trial). The parabola is in the
square root of beta, because the utility falls faster below the maximum than above it. Its slope is followed with
growing steps until its maximum lies between trials; then the maximum is tried, too. When no further k is worthwhile,
the rest of `MAX_TRIALS` goes to either side of the maximum, and the maximum of the last fit is elected.
"""

import functools
from dataclasses import dataclass, field

import numpy as np

from cctrace.columns import Floats, Values
from cctrace.errors import ArgumentError

FIRST_K, FIRST_BETA = 4, 0.45  # [Chung18] §III-A
STEP, GROWTH = 1.5, 1.3  # the factor to either side of the start, its growth (an exponent); the paper gives none
MIN_BETA, MAX_BETA = 0.05, 1.5
NEAR = 0.08  # relative: nearer candidates are the same
BESIDE = (1.25, 0.8, 1.12, 0.89, 1.4, 0.7)  # times the top: where spare trials go
WIDTH = 0.3  # in the square root of beta: how far from the best trial others count
FITTED = 3  # trials that a parabola needs
FAR_OFF, ROUNDS = 1.5, 8  # standard deviations from which on a trial counts less [Huber64], and iterations of that
GROWS = 0.01  # relative growth of the optimum below which a further k is not worth its queue, nor below its error
MAX_K = 12
MAX_PER_K, MAX_TRIALS = 6, 15  # of one k; in all, a tenth of a grid of 30 betas and 5 k
RATE = 4.0  # of `Ascent`: growth of ln beta per relative growth of the utility in ln beta; the paper gives none


Points = dict[float, float]  # of one k: beta, mean utility
Fit = tuple[Floats, Floats, Floats, Values]


@dataclass
class Search:
    """The search in one bin.

    Attributes
    ----------
    tried : list of (int, float, float)
        k, beta, mean utility, in the order in which they were asked for.
    first : (int, float)
        What is elected before the first trial, which has this beta.

    Examples
    --------
    A utility with its maximum at beta 0.7, which does not gain from a larger k:

    >>> search = Search()
    >>> while (wanted := search.wanted()) is not None:
    ...     k, beta = wanted
    ...     search.note(1 - (beta - 0.7) ** 2 - 0.1 * (k - 4))
    >>> k, beta = search.elected()
    >>> k, round(beta, 1), len(search.tried) <= 15
    (4, 0.7, True)
    """

    tried: list[tuple[int, float, float]] = field(default_factory=list)
    first: tuple[int, float] = (FIRST_K, FIRST_BETA)

    def wanted(self) -> tuple[int, float] | None:
        """Return the (k, beta) to try next, None when the search is over."""
        if len(self.tried) >= MAX_TRIALS:
            return None
        k, start, before = FIRST_K, self.first[1], None
        while k <= MAX_K:
            points = self._points(k)
            start = next(iter(points), start)
            if (beta := self._next(points, start)) is not None:
                return k, beta
            if before is not None and not self._grows(before, points):
                break
            start, before, k = self._top(points)[0], points, k + 1
        k, beta = self.elected()
        beside = self._beside(self._points(k), beta)
        return None if beside is None else (k, beside)

    def note(self, utility: float) -> None:
        """Record the mean utility of what was `wanted`.

        Raises `ArgumentError` if the search is over, or the utility is not finite.
        """
        wanted = self.wanted()
        if wanted is None or not abs(utility) < float("inf"):
            raise ArgumentError(f"utility={utility!r}: {'the search is over' if wanted is None else 'not finite'}")
        self.tried.append((*wanted, float(utility)))

    def elected(self) -> tuple[int, float]:
        """Return the (k, beta) of the best utility of the k before the optimum stopped growing, so far."""
        if not self.tried:
            return self.first
        elected = FIRST_K
        while len(above := self._points(elected + 1)) >= FITTED and self._grows(self._points(elected), above):
            elected += 1
        return elected, self._top(self._points(elected))[0]

    def _points(self, k: int) -> Points:
        """Return {beta: utility} of what was tried with a k."""
        return {beta: utility for tried_k, beta, utility in self.tried if tried_k == k}

    def _next(self, points: Points, start: float) -> float | None:
        """Return the next beta for one k, None when its optimum is found."""
        if len(points) >= MAX_PER_K:
            return None
        for beta in (start, _clipped(start * STEP), _clipped(start / STEP)):
            if beta not in points:
                return beta
        top, _ = self._top(points)
        ends = sorted(points)[:: len(points) - 1]
        if top in ends:
            return _beyond(points, top)
        return top if min(abs(beta / top - 1) for beta in points) >= NEAR else None

    def _top(self, points: Points) -> tuple[float, float]:
        """Return (beta, utility) at the top of the parabola through what was tried, within that range."""
        betas = sorted(points)
        if len(betas) < FITTED:
            best = max(points, key=points.__getitem__)
            return best, points[best]
        x, y, _, (a, b, c) = _fit(points)
        if a >= 0:  # flat but for noise, or a valley: no slope to follow, so what does best with its neighbours
            means = [np.average(y, weights=_near(x, centre, WIDTH / 2)) for centre in x]
            return betas[int(np.argmax(means))], float(max(means))
        at = min(max(-b / (2 * a), x[0]), x[-1])
        beta = round(float(at**2), 4) if x[0] < at < x[-1] else betas[0 if at == x[0] else -1]
        return beta, float(np.polyval((a, b, c), at))

    def _grows(self, points: Points, above: Points) -> bool:
        """Say whether the optimum of a k is better than that of the k before, by more than the fits are known to."""
        tops = [self._top(points)[1], self._top(above)[1]]
        fitted = [trials for trials in (points, above) if len(trials) > FITTED]
        error = 0.0
        if fitted:
            variance = sum(map(_residuals, fitted)) / sum(len(trials) - FITTED for trials in fitted)
            error = np.sqrt(variance * FITTED * (1 / len(points) + 1 / len(above)))
        return tops[1] > tops[0] + max(GROWS * abs(tops[0]), error)

    def _beside(self, points: Points, top: float) -> float | None:
        """Return a beta beside the top with no trial near it, None if there is none."""
        for factor in BESIDE:
            beta = _clipped(top * factor)
            if min(abs(beta / tried - 1) for tried in points) >= NEAR / 2:
                return beta
        return None


@dataclass
class Ascent(Search):
    """Gradient ascent as the paper describes it: from the better of the last two trials along their slope.

    Parameters
    ----------
    tried, first
        As of `Search`.

    Examples
    --------
    >>> search = Ascent()
    >>> while (wanted := search.wanted()) is not None:
    ...     k, beta = wanted
    ...     search.note(1 - (beta - 0.7) ** 2 - 0.1 * (k - 4))
    >>> k, beta = search.elected()
    >>> k, round(beta, 1)
    (4, 0.7)
    """

    def _next(self, points: Points, start: float) -> float | None:
        betas = list(points)
        if len(betas) < 2:
            return _clipped(start * STEP) if betas else start
        (x, y), (before, at) = np.log(betas[-2:]), (points[beta] for beta in betas[-2:])
        slope = (at - before) / (y - x) / max(abs(at), abs(before), 1e-12)
        step = float(np.clip(RATE * slope, -np.log(STEP), np.log(STEP)))
        beta = _clipped(betas[-1 if at > before else -2] * float(np.exp(step)))
        is_near = min(abs(beta / tried - 1) for tried in points) < NEAR
        return None if is_near or len(points) >= MAX_PER_K else beta

    def _top(self, points: Points) -> tuple[float, float]:
        return max(points.items(), key=lambda point: point[1])

    def _grows(self, points: Points, above: Points) -> bool:
        before, after = (self._top(trials)[1] for trials in (points, above))
        return after > before + GROWS * abs(before)

    def _beside(self, points: Points, top: float) -> None:
        return None


METHODS = {"parabola": Search, "gradient": Ascent}


def _beyond(points: Points, end: float) -> float | None:
    """Return the next beta outside what was tried, a longer step away than the last; None at the range's end."""
    betas = sorted(points, reverse=end == min(points))
    beta = _clipped(end * (end / betas[-2]) ** GROWTH)
    return beta if beta not in points else None


def _fit(points: Points) -> Fit:
    """Return roots of the betas, utilities, weights, and the parabola's coefficients."""
    return _fitted(tuple(sorted(points.items())))


@functools.lru_cache(maxsize=256)
def _fitted(points: tuple[tuple[float, float], ...]) -> Fit:
    betas, utilities = np.array(points, dtype=np.float64).T
    x, y = np.sqrt(betas), utilities
    weights = near = _near(x, x[np.argmax(y)], WIDTH)
    powers = np.vander(x, 3)
    for _ in range(ROUNDS if len(points) > FITTED else 1):
        parabola = np.linalg.lstsq(powers * weights[:, None], y * weights, None)[0]
        off = near * np.abs(y - powers @ parabola)
        usual = FAR_OFF * 1.4826 * np.median(off) + 1e-9 * np.abs(y).max() + 1e-12
        weights = near * np.sqrt(usual / np.maximum(off, usual))
    return x, y, weights, parabola


def _near(x: Floats, centre: float, width: float) -> Floats:
    return np.exp(-0.5 * ((x - centre) / width) ** 2)


def _residuals(points: Points) -> float:
    """Return the weighted sum of the squares that the fit leaves."""
    x, y, weights, parabola = _fit(points)
    return float(np.sum((weights * (y - np.polyval(parabola, x))) ** 2))


def _clipped(beta: float) -> float:
    return round(min(max(beta, MIN_BETA), MAX_BETA), 4)
