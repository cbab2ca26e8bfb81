r"""Goodness of fit for censored, autocorrelated delays.

*Residuals.* Given the past, a group that arrives apart arrived between the previous one and t_k with probability
:math:`u_k = (G(t_k) - G(t_{k-1})) / (1 - G(t_{k-1}))`, :math:`G(t) = \prod_i F(t - d_i)`. If F is right, the u are
uniform; if draws are independent, so are they. (A host releases waiting packets one by one: gaps below a packet's
time are ignored, and the others counted from there.)

*Test.* The largest distance of the u's distribution from uniformity is compared with that of a multiplier block
bootstrap. Since the parameters were fitted to the same delays, which reduces the distance, each bootstrap sample
also moves them, by its scores. The test is thus valid under dependence and fitting, unlike Kolmogorov's tables.

*Without a family*, the maximum-likelihood distribution of left-censored delays is the product-limit estimate
counted from the top (Kaplan-Meier in reversed time).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Floats, Ints
from cctrace.fit.censored import Censored, Fitted
from cctrace.fit.constants import DRAWS, MAX_STALL_SHARE, TEST_POINTS, TEST_SHIFT
from cctrace.fit.families import Family
from cctrace.path.blocks import block_sizes
from cctrace.special import special

SHARES = (np.arange(401) + 0.5) / 401  # of the quantiles that describe a distribution without a family


class Goodness(NamedTuple):
    """Test of a fitted family by its residuals.

    Attributes
    ----------
    distance : float
        Largest distance of the residuals' distribution from uniformity, 0 to 1.
    probability : float
        p-value: probability of a distance as large if the family is right, whatever the autocorrelation of the delays.
    samples : int
        Number of uncensored delays.
    """

    distance: float
    probability: float
    samples: int


def residuals(data: Censored, family: Family, p: Floats, stalls: float) -> tuple[Floats, Ints]:
    """Return the u of the event groups, in order, and the rows of these groups; see the module's docstring."""
    log_cdf = data.tables(family, p, stalls)[1]

    def of(x: Floats) -> Floats:
        return np.interp(x, data.grid, log_cdf, left=-700.0)

    if not data.ordered:
        return np.exp(of(data.delay_us)), np.arange(len(data.delay_us))
    usable = np.isfinite(data.gap_us) & (data.gap_us > data.clock_us)
    rows = data.of_event[usable[data.group[data.of_event]]]
    groups, begin = np.unique(data.group[rows], return_index=True)
    now = np.add.reduceat(of(data.delay_us[rows]), begin)
    before = np.add.reduceat(of(data.delay_us[rows] - data.gap_us[data.group[rows]] + data.clock_us), begin)
    left = np.maximum(-np.expm1(before), 1e-12)
    return np.clip((np.exp(now) - np.exp(before)) / left, 0.0, 1.0), groups


def goodness(
    data: Censored, fitted: Fitted, scores: Floats, inverse: NDArray[np.floating[Any]], seed: int
) -> Goodness | None:
    """Return the `Goodness` of a fitted family, None if too few delays have residuals.

    `scores` and `inverse` come from `Jitter._errors`.
    """
    p, x = fitted.p, np.linspace(0, 1, TEST_POINTS + 2)[1:-1]

    def empirical(q: Floats) -> Floats:
        u = residuals(data, fitted.family, q[:-1], MAX_STALL_SHARE * special.expit(q[-1]))[0]
        return np.searchsorted(np.sort(u), x, "right") / max(len(u), 1)

    u, groups = residuals(data, fitted.family, p[:-1], fitted.stalls)
    if len(u) < 30:
        return None
    distance = empirical(p) - x
    scale = np.ones(scores.shape[1])
    scale[0] = fitted.moments[1]
    moves = np.column_stack(
        [
            (empirical(p + shift) - empirical(p - shift)) / (2 * TEST_SHIFT)
            for shift in TEST_SHIFT * np.pad(np.diag(scale), ((0, 0), (0, len(p) - len(scale))))
        ]
    )
    size = block_sizes(u) * max(len(scores) // len(u), 1)
    block = np.arange(len(scores)) // size
    sums = np.add.reduceat(scores, np.arange(0, len(scores), size), axis=0)
    counts = np.zeros((block[-1] + 1, TEST_POINTS))
    np.add.at(counts, block[groups], (u[:, None] <= x) - x)
    signs = np.random.default_rng(seed).standard_normal((DRAWS, len(sums)))
    drawn = signs @ counts / len(u) + (signs @ sums @ inverse) @ moves.T
    largest = float(np.abs(distance).max())
    return Goodness(largest, float(np.mean(np.abs(drawn).max(axis=1) >= largest)), len(u))


def product_limit(
    data: Censored, reverse_hazard: Callable[[Floats], Floats], weights: Floats | None = None
) -> tuple[Floats, float, float]:
    """Return quantiles (at `SHARES`), mean and sd of the maximum-likelihood distribution of censored delays.

    `reverse_hazard`: f/F of a family that fits roughly: weighs which of two delays of a group was the late one.
    `weights`: per group, of a bootstrap.
    """
    value = data.delay_us
    weight = np.ones(len(data.event)) if weights is None else weights
    at_risk = weight[data.group].astype(float)
    if not data.ordered:
        drop = at_risk
    else:
        rows = data.of_event
        hazard = np.maximum(reverse_hazard(value[rows]), 1e-12)
        total = np.bincount(data.group[rows], hazard, len(data.event))
        drop = np.zeros(len(value))
        drop[rows] = weight[data.group[rows]] * hazard / total[data.group[rows]]
    order = np.argsort(value, kind="stable")
    risk = np.cumsum(at_risk[order])
    with np.errstate(divide="ignore", invalid="ignore"):
        stays = np.log1p(-np.minimum(drop[order] / np.maximum(risk, 1e-12), 1.0))
    log_cdf = np.append(np.cumsum(stays[::-1])[::-1][1:], 0.0)  # at each value: the product over those above it
    cdf, value = np.exp(np.maximum(log_cdf, -700.0)), value[order]
    mass = np.diff(cdf, prepend=0.0)
    mean = float(mass @ value)
    return np.interp(SHARES, cdf, value), mean, float(np.sqrt(mass @ (value - mean) ** 2))
