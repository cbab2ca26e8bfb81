"""Many roots at once: one bracketed solver for every threshold of this package."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from cctrace.columns import Floats, Ints
from cctrace.errors import ArgumentError


def first_root(
    f: Callable[[Floats], Floats], low: ArrayLike, high: ArrayLike, name: str, quantity: str = "the function"
) -> Floats:
    """Return, elementwise, the smallest root of `f` between `low` and `high`; `ArgumentError` if there is none.

    `f` takes an array whose *last* axes have the broadcast shape of `low` and `high`, and returns the same shape. The
    bracket, whose ends are positive, is searched at 48 points, evenly spaced in the logarithm. `name`, `quantity`: what
    is searched, and what f compares with its target, for the error.

    >>> first_root(lambda x: x * x - [4.0, 9.0], 1.0, [10.0, 10.0], "x").round(12)
    array([2., 3.])
    """
    low, high = np.broadcast_arrays(np.asarray(low, dtype=float), np.asarray(high, dtype=float))
    grid = np.geomspace(low, high, 48)
    sign = np.sign(f(grid))
    crossing = (sign[1:] != sign[0]) | (sign[1:] == 0)
    if not crossing.any(axis=0).all():
        bad = np.argwhere(~np.atleast_1d(crossing.any(axis=0)))[0]
        ends = f"[{np.atleast_1d(low)[tuple(bad)]:g}, {np.atleast_1d(high)[tuple(bad)]:g}]"
        side = "above" if np.atleast_1d(sign[0])[tuple(bad)] > 0 else "below"
        raise ArgumentError(f"{name} has no threshold in {ends}: {quantity} stays {side} its target on all of it")
    at = np.argmax(crossing, axis=0)[None]
    left, right = np.take_along_axis(grid, at, 0)[0], np.take_along_axis(grid, at + 1, 0)[0]
    return _bracketed(f, left, right)


def _bracketed(f: Callable[[Floats], Floats], left: Floats, right: Floats) -> Floats:
    """Return the roots between `left` and `right`, where `f` changes sign, to double precision (Chandrupatla)."""
    flat = np.arange(left.size).reshape(left.shape)

    # find_root drops elements that have converged; `flat` carries which ones are left.
    def g(x: Floats, index: Ints) -> Floats:
        full = np.array(right, dtype=float)
        full.flat[index] = x
        return f(full).flat[index]

    from scipy.optimize import elementwise  # late: it takes a tenth of a second

    return elementwise.find_root(g, (left, right), args=(flat,), maxiter=200).x


def fixed_point(f: Callable[[float], float], least: float) -> float:
    """Return the largest k up to 3 with f(k) = k, at least the overestimate that pacing allows.

    There can be a second, smaller one, but it repels: below it the estimate would sink, and the probing gain of 1.25
    lifts it out every eight rounds. The two can lie as close as 1.06 and 1.09, so points are dense near `least`.
    """
    low, most = least * 1.003, 3.0
    grid = least + np.geomspace(low - least, most - least, 24)
    above = next((i for i in range(len(grid) - 1, -1, -1) if f(grid[i]) > grid[i]), None)
    if above is None:
        return low
    if above == len(grid) - 1:
        return most
    from scipy import optimize  # late: it takes a tenth of a second

    return float(optimize.brentq(lambda k: f(k) - k, grid[above], grid[above + 1], xtol=1e-3))
