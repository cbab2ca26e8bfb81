"""Minimise a cost with many small local minima: a grid, then golden-section search around its best point."""

from collections.abc import Callable
from typing import Any

import numpy as np

_STRIDE = 8  # grid points between those that are evaluated first


def least_of(cost: Callable[..., Any], low: float, high: float, points: int, tolerance: float) -> tuple[float, float]:
    """Return (argument, cost) at the minimum between low and high: grid search, then golden section."""
    return least_within(lambda x, most: cost(x), low, high, points, tolerance)


def least_within(
    cost: Callable[[float, float], float], low: float, high: float, points: int, tolerance: float, upto: float = np.inf
) -> tuple[float, float]:
    """Like `least_of`, for a cost that receives the bound it has to stay below to matter.

    A cost above the bound may be any number above it. `upto`: if the minimum lies beyond, any place beyond will do.
    """
    grid = np.geomspace(low, high, points)
    values = np.full(points, np.inf)
    beyond = np.append(low, grid[:-1]) > upto  # as far as the search around a point goes
    sparse = np.arange(points) % _STRIDE
    for k in np.lexsort((sparse, beyond & (sparse > 0))):  # the first few soon bound all others
        best = int(np.argmin(values))
        if beyond[k] and sparse[k] and beyond[best]:
            return grid[best], values[best]
        values[k] = cost(grid[k], values[best])
    best = int(np.argmin(values))
    a, b = grid[max(best - 1, 0)], grid[min(best + 1, points - 1)]
    golden = (np.sqrt(5) - 1) / 2
    c, d = b - golden * (b - a), a + golden * (b - a)
    at_c = cost(c, np.inf)
    at_d = cost(d, at_c)
    while (b - a) > tolerance * b:
        if at_c < at_d:
            b, d, at_d = d, c, at_c
            c = b - golden * (b - a)
            at_c = cost(c, at_d)
        else:
            a, c, at_c = c, d, at_d
            d = a + golden * (b - a)
            at_d = cost(d, at_c)
    x, value = (c, at_c) if at_c < at_d else (d, at_d)
    return (x, value) if value <= values[best] else (grid[best], values[best])
