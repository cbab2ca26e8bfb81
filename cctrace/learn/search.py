"""Gradient ascent on the mean utility of one bin: which (k, beta) to try next, from what was tried.

The search has no state but its history, so it is resumed by reading that back. For each k the utility's slope is taken
from both sides of the start; the ascent follows it with growing steps until the utility falls, and a parabola through
the best point and its neighbours gives the last candidate [Chung18] §III-A, Fig. 1: one maximum.
"""

from dataclasses import dataclass, field

from cctrace.errors import ArgumentError

FIRST_K, FIRST_BETA = 4, 0.45  # [Chung18] §III-A
STEP, GROWTH = 0.15, 1.5  # of beta; the paper gives none
LEAST_BETA, MOST_BETA = 0.05, 1.5
NEAR = 0.04  # of beta: nearer candidates are the same
GROWS = 0.005  # relative growth of the optimum below which a further k is not worth it
MOST_K = 12


@dataclass
class Search:
    """The search in one bin.

    Attributes
    ----------
    tried : list of (int, float, float)
        k, beta, mean utility, in the order in which they were asked for.

    Examples
    --------
    A utility with its maximum at beta 0.7, which does not gain from a larger k:

    >>> search = Search()
    >>> while (wanted := search.wanted()) is not None:
    ...     k, beta = wanted
    ...     search.note(1 - (beta - 0.7) ** 2 - 0.1 * (k - 4))
    >>> k, beta = search.elected()
    >>> k, round(beta, 2), len(search.tried) <= 15
    (4, 0.7, True)
    """

    tried: list = field(default_factory=list)

    def wanted(self):
        """Return the (k, beta) to try next, None when the search is over."""
        k, start = FIRST_K, FIRST_BETA
        before = None
        while k <= MOST_K:
            points = {beta: utility for tried_k, beta, utility in self.tried if tried_k == k}
            if (beta := _next_beta(points, start)) is not None:
                return k, beta
            best = max(points, key=points.get)
            if before is not None and points[best] <= before + GROWS * abs(before):
                return None
            before, start, k = points[best], best, k + 1
        return None

    def note(self, utility):
        """Take the mean utility of what was `wanted`.

        Raises
        ------
        ArgumentError
            If the search is over, or the utility is no finite number.
        """
        wanted = self.wanted()
        if wanted is None or not abs(utility) < float("inf"):
            raise ArgumentError(f"utility={utility!r}: {'the search is over' if wanted is None else 'not finite'}")
        self.tried.append((*wanted, float(utility)))

    def elected(self):
        """Return the (k, beta) with the best utility of the k before the optimum stopped growing, so far."""
        best = {}
        for k, beta, utility in self.tried:
            if k not in best or utility > best[k][1]:
                best[k] = beta, utility
        elected = FIRST_K
        for k in sorted(best)[1:]:
            if best[k][1] <= best[elected][1] + GROWS * abs(best[elected][1]):
                break
            elected = k
        return (elected, best[elected][0]) if best else (FIRST_K, FIRST_BETA)


def _next_beta(points, start):
    """Return the next beta for one k, None when its optimum is found."""
    for beta in (start, _clipped(start + STEP), _clipped(start - STEP)):
        if beta not in points:
            return beta
    above, below = _clipped(start + STEP), _clipped(start - STEP)
    if points[start] < max(points[above], points[below]):
        sign = 1 if points[above] >= points[below] else -1
        last, step = (above if sign > 0 else below), STEP
        while True:  # along the slope, until the utility falls or the range ends
            step *= GROWTH
            beta = _clipped(last + sign * step)
            if beta == last:
                return None
            if beta not in points:
                return beta
            if points[beta] <= points[last]:
                break
            last = beta
    return _vertex(points)


def _vertex(points):
    """Return the vertex of the parabola through the best point and its neighbours, if nothing near it was tried."""
    best = max(points, key=points.get)
    lower, upper = [b for b in points if b < best], [b for b in points if b > best]
    if not lower or not upper:
        return None
    a, b, c = max(lower), best, min(upper)
    left, right = (b - a) * (points[b] - points[c]), (b - c) * (points[b] - points[a])
    if left == right:
        return None
    vertex = round(b - 0.5 * ((b - a) * left - (b - c) * right) / (left - right), 4)
    return vertex if a < vertex < c and min(abs(vertex - p) for p in points) >= NEAR else None


def _clipped(beta):
    return round(min(max(beta, LEAST_BETA), MOST_BETA), 4)
