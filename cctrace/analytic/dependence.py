r"""What "independent samples" hides: the minimum of the RTTs that one flow samples on a path with jitter.

Model:  the path draws delays J with distribution F, one per packet, per burst or per time slot; tau is the time between
        two draws that the flow meets.

        reordering path          a packet's delay is its draw:     d_k = J_k
        order-preserving path    none overtakes its predecessor:   d_k = max(J_k, d_{k-1} - tau)

The second is a running maximum that decays with slope 1. It replaces F, and it makes low delays rare and clustered:

.. math:: F_d(x) = \prod_{i \ge 0} F(x + i\tau), \qquad P[d_{k+1} > x \mid d_k \le x] = 1 - F(x)

so a packet at low delay has the *distribution* F_d instead of F, and the *extremal index* of its minima (the share of
low delays that start a new cluster) is 1 - F(x). At 1 Gbit/s tau is 12 us per packet against a jitter of a
millisecond: the product has a hundred factors and the low tail is gone. Draws per 5 ms slot keep it. That is why the
same jitter makes one path collapse and not the other.

The minimum over n draws then follows from crossings (first-order Markov; exact for independent draws):

.. math:: P[\min > x] = (1 - F_d)\,(1 - h)^{n-1}, \qquad h = \frac{P[d_k > x,\; d_{k+1} \le x]}{1 - F_d}

Sources: the recursion is what an order-preserving delay line does (tests compare it with simulated ones); the
extremal index from a series is [Ferro03]_'s intervals estimator.
"""

from __future__ import annotations  # so that help() shows names of types

import numpy as np
from numpy.typing import ArrayLike

from cctrace.analytic.distributions import Delay
from cctrace.analytic.domain import checked, positive
from cctrace.columns import Floats
from cctrace.errors import ArgumentError
from cctrace.special import special

_DIRECT_TERMS = 128
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def log_cdf(delay: Delay, x: ArrayLike) -> Floats:
    """Return log F(x) of a distribution with `logsf`, with full precision in both tails.

    >>> from scipy import stats
    >>> float(log_cdf(stats.norm(100, 10), 90.0).round(4))
    -1.841
    """
    log_sf = np.asarray(delay.logsf(x))
    is_low = log_sf > -0.7
    out = np.empty(log_sf.shape)
    with np.errstate(divide="ignore"):
        out[is_low] = np.log(-np.expm1(log_sf[is_low]))
    out[~is_low] = np.log1p(-np.exp(log_sf[~is_low]))
    return out


def running_maximum_log_cdf(delay: Delay, x: ArrayLike, step_us: float) -> Floats:
    r"""Logarithm of the distribution of a delay that falls by `step_us` per draw unless a draw exceeds it.

    .. math:: \log F_d(x) = \sum_{i \ge 0} \log F(x + i\tau)

    `delay`: of one draw. `step_us`: tau times the slope of the decay, the time between draws on an order-preserving
    path; less for what is behind a pacer (see `closedloop`).

    Summed as it stands up to 128 terms; beyond, by Euler and Maclaurin,
    :math:`\frac1\tau\int_x^\infty \log F + \tfrac12\log F(x) - \tfrac{\tau}{12}(\log F)'(x)`, whose error is of the
    fourth order in the step over the spread, below 1e-6 relative.

    >>> from scipy import stats
    >>> float(running_maximum_log_cdf(stats.uniform(0, 1), 0.5, 0.25).round(6)) == float(np.log(0.5 * 0.75).round(6))
    True
    """
    x, step = np.asarray(x, dtype=float), float(positive("step_us", step_us))
    high = float(delay.ppf(1 - 1e-15))
    reach = np.maximum(high - x, 0)
    terms = int(np.ceil(reach.max(initial=0) / step)) + 1
    if terms <= _DIRECT_TERMS:
        return log_cdf(delay, x[..., None] + step * np.arange(terms)).sum(-1)
    at = log_cdf(delay, x[..., None] + reach[..., None] * (_NODES + 1) / 2)
    integral = reach / 2 * np.sum(np.maximum(at, -1e6) * _WEIGHTS, axis=-1)
    width = np.maximum(reach, step) * 1e-4
    slope = (log_cdf(delay, x + width) - log_cdf(delay, x - width)) / (2 * width)
    first = log_cdf(delay, x)
    finite = np.isfinite(first)
    correction = np.where(finite, first / 2 - step / 12 * np.where(finite, slope, 0), 0)
    return np.where(finite, integral / step + correction, -np.inf)


def ordered_log_cdf(
    delay: Delay, x: ArrayLike, step_us: float, rho: float = 0.0, gap_us: ArrayLike | None = None
) -> Floats:
    r"""Logarithm of the distribution of a delay on an order-preserving path whose draws may be autocorrelated.

    .. math:: \log F_d(x) = \log P[J_0 \le x,\; J_{-1} \le x + g,\; J_{-2} \le x + g + \tau,\; \dots]

    `delay`: of one draw. `step_us`: tau, time between draws. `rho`: in [0, 1), correlation of successive draws: their
    normal scores are an AR(1) series, as netem and `cctrace.Path` make them; a jitter with correlation time T drawn
    every tau has rho = exp(-tau / T). `gap_us`: g, time since the previous draw, default tau; g = 0 gives the
    probability that two successive delays are at most x, whose ratio to the default is what independent draws have as
    F(x): 1 minus the extremal index.

    For rho = 0 the product of `running_maximum_log_cdf`. Otherwise a discrete Markov chain in the score y: with
    :math:`v(y; z) = P[J_{-1} \le z, J_{-2} \le z + \tau, \dots \mid y]`, the kernel K and the score b of a level,
    :math:`v(y; z) = \int_{y' \le b(z)} K(y, y')\, v(y'; z + \tau)\,dy'` from the top down.

    >>> from scipy import stats
    >>> [float(np.exp(ordered_log_cdf(stats.norm(100, 10), 90.0, 2.0, rho)).round(2)) for rho in (0.0, 0.9)]
    [0.0, 0.09]
    """
    checked("rho", rho, 0, 1, open_high=True)
    x, gap = np.asarray(x, dtype=float), step_us if gap_us is None else gap_us
    if rho == 0:
        return log_cdf(delay, x) + running_maximum_log_cdf(delay, x + gap, step_us)
    levels, given = _autocorrelated_chain(delay, x, step_us, rho)
    edges = _score_edges(rho)
    now = _shares_below(edges, _scores(delay, x)) * np.diff(special.ndtr(edges))
    at = np.clip((x + gap - levels[0]) / (levels[1] - levels[0]), 0, len(levels) - 1.000001)
    index, part = at.astype(int), (at % 1)[..., None]
    before = given[index] * (1 - part) + given[index + 1] * part
    with np.errstate(divide="ignore"):
        return np.log((now * before).sum(-1))


def _score_edges(rho: float) -> Floats:
    """Cells of the normal score, fine against the innovation's deviation."""
    return np.linspace(-7.8, 7.8, 1 + int(np.clip(16 / (0.4 * np.sqrt(1 - rho**2)), 96, 480)))


def _scores(delay: Delay, x: ArrayLike) -> Floats:
    """Return the normal score of delays: b with Phi(b) = F(x)."""
    log_sf = delay.logsf(x)
    return np.where(log_sf > -0.7, special.ndtri_exp(log_cdf(delay, x)), -special.ndtri_exp(log_sf))


def _shares_below(edges: Floats, score: Floats) -> Floats:
    """Return, with the cells as last axis, the share of each cell's probability that lies below each score."""
    cdf = special.ndtr(edges)
    return np.clip((special.ndtr(score)[..., None] - cdf[:-1]) / np.diff(cdf), 0, 1)


def _autocorrelated_chain(delay: Delay, x: Floats, step_us: float, rho: float) -> tuple[Floats, Floats]:
    """Return levels z and v(y; z) of `ordered_log_cdf` for the cells of y."""
    edges, innovation = _score_edges(rho), np.sqrt(1 - rho**2)
    middle = (edges[:-1] + edges[1:]) / 2
    kernel = np.diff(special.ndtr((edges - rho * middle[:, None]) / innovation), axis=1)
    low, high = float(x.min()), float(delay.ppf(1 - 1e-12))
    phases = int(np.ceil(step_us / (max(high - low, step_us) / 64)))
    rounds = int(np.ceil(max(high - low, 0) / step_us)) + 2
    levels = low + step_us / phases * np.arange(phases * rounds, dtype=float)
    below = _shares_below(edges, _scores(delay, levels)).reshape(rounds, phases, -1)
    given, later = np.empty_like(below), np.ones(below.shape[1:])
    for i in range(rounds - 1, -1, -1):
        given[i] = later = (below[i] * later) @ kernel.T
    return levels, given.reshape(len(levels), -1)


def log_survival_of_minimum(log_cdf_delay: Floats, log_cdf_draw: Floats, draws: float, ordered: bool = True) -> Floats:
    r"""Log probability that the smallest delay over `draws` draws exceeds the level at which the two are given.

    .. math:: \log P[\min > x] = \log(1 - F_d) + (n-1)\log(1 - h),\quad
        h = \frac{F_d\,(1 - F)}{1 - F_d}

    `log_cdf_delay`, `log_cdf_draw`: log F_d(x) and log F(x), or what takes its place for autocorrelated draws (see
    `ordered_log_cdf`). `draws`: n, how many independent draws the flow meets. Not `ordered`: independent delays, F_d =
    F, and the result is n log(1 - F), the paper's.

    >>> level = np.log(0.01)
    >>> float(np.exp(log_survival_of_minimum(level, level, 100, ordered=False)).round(3))  # .99 ** 100
    0.366
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        survives = np.log1p(-np.exp(np.minimum(log_cdf_delay, 0.0)))
        if not ordered:
            return draws * survives
        crossing = np.exp(log_cdf_delay) * -np.expm1(log_cdf_draw)
        hazard = np.clip(crossing * np.exp(-survives), 0, 1)
        log_survival = min(draws, 1) * survives
        if draws > 1:
            log_survival = log_survival + (draws - 1) * np.log1p(-hazard)
    return np.where(np.isneginf(survives), -np.inf, log_survival)


def gaussian_crossing(z: ArrayLike, correlation: ArrayLike) -> Floats:
    r"""Probability that one of two neighbours of a Gaussian process lies above and the next below the level z.

    .. math:: P[X_k > z, X_{k+1} \le z] = 2\,T\Bigl(z, \sqrt{\tfrac{1-\rho}{1+\rho}}\Bigr)

    with Owen's T; z in standard deviations from the mean.

    >>> gaussian_crossing(-2.0, [0.0, 0.9]).round(4)
    array([0.0222, 0.0094])
    """
    rho = checked("correlation", correlation, -1, 1, open_low=True)
    return 2 * special.owens_t(z, np.sqrt((1 - rho) / (1 + rho)))


def gaussian_extremal_index(z: ArrayLike, correlation: ArrayLike) -> Floats:
    r"""Share of the values below the level z that start a new cluster, for an autocorrelated (AR(1)) jitter.

    .. math:: \theta(z) = P[X_k > z, X_{k+1} \le z] / \Phi(z)

    1 for independent values, near 0 where neighbours nearly agree.

    >>> gaussian_extremal_index(-2.0, [0.0, 0.9, 0.999]).round(3)
    array([0.977, 0.413, 0.042])
    """
    return gaussian_crossing(z, correlation) / special.ndtr(z)


def extremal_index(series: ArrayLike, level: float) -> float:
    r"""Extremal index of what falls below `level`, from a measured series.

    .. math:: \hat\theta = \frac{2\,(\sum_i (T_i - 1))^2}{(N-1)\sum_i (T_i-1)(T_i-2)}     \quad\text{Eq. (5) [Ferro03]_}

    with T_i the distances between successive samples below the level (and without the -1, -2 where none exceeds 2).
    Raises `ArgumentError` if fewer than three samples lie below it.

    >>> draws = np.random.default_rng(1).normal(size=20_000)
    >>> round(extremal_index(np.minimum(draws[1:], draws[:-1]), -2.5), 1)  # every low comes twice
    0.5
    """
    below = np.flatnonzero(np.asarray(series) < level)
    gaps = np.diff(below).astype(float)
    if len(gaps) < 2:
        raise ArgumentError(f"level is {level:g}; {len(below)} samples lie below it, at least 3 are needed")
    if gaps.max() <= 2:
        top, bottom = 2 * gaps.sum() ** 2, len(gaps) * (gaps**2).sum()
    else:
        top, bottom = 2 * (gaps - 1).sum() ** 2, len(gaps) * ((gaps - 1) * (gaps - 2)).sum()
    return float(min(1.0, top / bottom))


def effective_samples(series: ArrayLike, level: float | None = None) -> float:
    """Number of independent samples whose minimum would be distributed as that of `series`.

    It is the length times `extremal_index`. `series`: RTTs in the order of their ACKs, uncongested. `level`: what
    counts as low; default the 2 % quantile. Put the result into `collapse_probability` together with the *empirical*
    distribution of the same series, which already is that of the running maximum.

    >>> rng = np.random.default_rng(1)
    >>> round(effective_samples(rng.normal(40_000, 500, 5000)))  # independent: about as many as there are
    4822
    """
    series = np.asarray(series, dtype=float)
    level = np.quantile(series, 0.02) if level is None else level
    return len(series) * extremal_index(series, level)


def count_noise(rate: ArrayLike, sd_us: ArrayLike) -> Floats:
    r"""Standard deviation of the number of arrivals in a window much longer than the jitter, packets.

    .. math:: \mathrm{Var}\,N = \frac{2}{\sqrt\pi}\,\lambda\,\sigma

    Packets leave evenly at rate lambda and arrive after independent normal delays: only those within about sigma of
    the two edges may fall on either side. Under reordering jitter this is all the randomness of the delivery rate.

    >>> float(count_noise(0.002, 1000.0).round(2))  # 2 packets per ms, a standard deviation of 1 ms
    1.5
    """
    return np.sqrt(2 / np.sqrt(np.pi) * positive("rate", rate) * positive("sd_us", sd_us))
