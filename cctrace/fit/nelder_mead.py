"""Nelder-Mead minimisation, step for step that of SciPy, without the import of `scipy.optimize`.

The import takes a tenth of a second, as long as the thousand steps of fitting one flow's jitter.
"""

from collections.abc import Callable

import numpy as np

from cctrace.columns import Floats


def nelder_mead(
    cost: Callable[[Floats], float], simplex: Floats, fatol: float, xatol: float, most: int
) -> tuple[Floats, float]:
    """Return the minimum of a function of n numbers near a simplex, and its value there [Nelder65]_.

    `simplex`: shape (n + 1, n), initial simplex. `fatol`, `xatol`: stop if no corner's value and coordinate differ by
    more than these from the best one's. `most`: maximum number of steps.

    >>> place, value = nelder_mead(lambda x: (x[0] - 3) ** 2 + 1, np.array([[0.0], [1.0]]), 1e-6, 1e-6, 100)
    >>> round(float(place[0]), 3), round(value, 6)
    (3.0, 1.0)
    """
    corners = np.array(simplex, float)
    values = np.array([cost(corner) for corner in corners], float)
    for _ in range(most - 1):
        order = np.argsort(values)
        corners, values = corners[order], values[order]
        if np.abs(corners[1:] - corners[0]).max() <= xatol and np.abs(values[0] - values[1:]).max() <= fatol:
            break
        worst = corners[-1]
        middle = np.add.reduce(corners[:-1], 0) / len(worst)
        mirrored = 2 * middle - worst
        value = cost(mirrored)
        if value < values[0]:
            farther = 3 * middle - 2 * worst
            at_farther = cost(farther)
            replacement = (farther, at_farther) if at_farther < value else (mirrored, value)
        elif value < values[-2]:
            replacement = mirrored, value
        else:
            outside = value < values[-1]
            nearer = 1.5 * middle - 0.5 * worst if outside else 0.5 * middle + 0.5 * worst
            at_nearer = cost(nearer)
            if at_nearer <= value if outside else at_nearer < values[-1]:
                replacement = nearer, at_nearer
            else:
                corners[1:] = corners[0] + 0.5 * (corners[1:] - corners[0])
                values[1:] = [cost(corner) for corner in corners[1:]]
                continue
        corners[-1], values[-1] = replacement
    best = int(np.argmin(values))
    return corners[best], float(values[best])
