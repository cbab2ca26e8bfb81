"""The descent of Nelder and Mead: step for step that of scipy."""

import numpy as np
import pytest
from scipy import optimize

from cctrace.fit.nelder_mead import nelder_mead


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [1, 5, 50, 400])
def test_a_descent_ends_where_scipys_does_to_the_last_bit(dimensions, steps):
    rng = np.random.default_rng([dimensions, steps])
    for wavy in (False, True):
        matrix, middle = rng.normal(size=(dimensions, dimensions)), 3 * rng.normal(size=dimensions)

        def cost(x, matrix=matrix, middle=middle, wavy=wavy):
            off = matrix @ (x - middle)
            beyond = 1e15 if x[0] < -4 else 0.0  # as the fits refuse parameters that a family does not have
            return float(np.sum(np.abs(off) ** 1.3) + wavy * np.sin(5 * off).sum() + beyond)

        simplex = np.vstack([np.zeros(dimensions), rng.uniform(0.2, 3) * np.eye(dimensions)])
        options = {"initial_simplex": simplex, "maxiter": steps, "fatol": 0.05, "xatol": 1e-2}
        theirs = optimize.minimize(cost, simplex[0], method="Nelder-Mead", options=options)
        place, value = nelder_mead(cost, simplex, 0.05, 1e-2, steps)
        assert place.tolist() == theirs.x.tolist()
        assert value == theirs.fun
