r"""Families of delay distributions, and their likelihood on an order-preserving path.

A packet that catches up with its predecessor waits for it, so its own draw is left-censored at its observed delay:
:math:`a_k = \max(a_{k-1}, d_k + J_k)`, with d the departure from the bottleneck. The packets i of group k, reported
by one ACK, arrived by :math:`t_k`, and at least one of them then, unless :math:`t_k = t_{k-1}`. Independent draws
with distribution F and density f have the likelihood

.. math:: \log L = \sum_i \log F(t_k - d_i) +
        \sum_{k:\,t_k > t_{k-1}} \log \sum_{i \in k, i \le 2} \frac{f}{F}(t_k - d_i)

which is that of left-censored data with known censoring. The inner sum covers the packets that may have been the
late one: a receiver waits for at most two segments, so the third and later ones of a group arrived behind one of
the first two. (Summing over the entire group underestimates the sd by a fifth.) On reordering paths nothing is
censored and every group is an event: the formula is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cctrace.columns import Floats
from cctrace.special import special

TINY = 1e-300
_LOG_ROOT_TAU = 0.918938533204673  # log of the square root of 2 pi
Params = Floats | tuple[float, ...]
Curves = Callable[[Floats, Params], tuple[Floats, Floats]]  # of (delays, parameters)


class Family(NamedTuple):
    """A family: log density and log distribution of the delay, mean and sd, as functions of (x, parameters)."""

    name: str
    log_pdf_and_cdf: Curves  # (log density, log distribution), which have terms in common
    moments: Callable[[Params], tuple[float, float]]
    guess: Callable[[float, float, float], tuple[float, ...]]  # from the minimum delay, a central one and the sd
    has_minimum: bool  # the first parameter is the minimum delay

    def __reduce__(self) -> tuple[Callable[[str], Family], tuple[str]]:
        # Functions made by functions cannot be pickled by name; a family can.
        return _family, (self.name,)


def _family(name: str) -> Family:
    return EMPIRICAL if name == EMPIRICAL.name else FAMILIES[name]


def _log_mass(p: Params) -> float:
    """Return the log of a normal distribution's mass above zero delay: values below are redrawn."""
    return special.log_ndtr(p[0] / np.exp(p[1]))


def _normal(x: Floats, p: Params) -> tuple[Floats, Floats]:
    sd, mass = np.exp(p[1]), _log_mass(p)
    z, cut = (x - p[0]) / sd, -p[0] / sd
    below = special.log_ndtr(z)
    if cut > -8:
        below = below + np.log1p(-np.exp(np.minimum(special.log_ndtr(cut) - below, -1e-12)))
    return z * z * -0.5 - p[1] - _LOG_ROOT_TAU - mass, below - mass


def _normal_moments(p: Params) -> tuple[float, float]:
    sd = np.exp(p[1])
    cut = max(-p[0] / sd, -30.0)
    if cut > 30:
        return np.nan, np.nan
    hazard = np.exp(-(cut**2) / 2 - _log_mass(p)) / np.sqrt(2 * np.pi)
    return p[0] + sd * hazard, sd * np.sqrt(max(1 + cut * hazard - hazard**2, 1e-12))


def _above_minimum(x: Floats, p: Params) -> Floats:
    return np.maximum(x - p[0], 1e-9)


def _gamma(x: Floats, p: Params) -> tuple[Floats, Floats]:
    shape, z = np.exp(p[1]), _above_minimum(x, p) / np.exp(p[2])
    log_pdf = (shape - 1) * np.log(z) - z - special.gammaln(shape) - p[2]
    return log_pdf, np.log(special.gammainc(shape, z) + TINY)


def _lognormal(x: Floats, p: Params) -> tuple[Floats, Floats]:
    logs = np.log(_above_minimum(x, p))
    z = (logs - p[1]) / np.exp(p[2])
    return z * z * -0.5 - p[2] - _LOG_ROOT_TAU - logs, special.log_ndtr(z)


def _weibull(x: Floats, p: Params) -> tuple[Floats, Floats]:
    shape, logs = np.exp(p[1]), np.log(_above_minimum(x, p) / np.exp(p[2]))
    power = np.exp(np.minimum(shape * logs, 700.0))
    return p[1] - p[2] + (shape - 1) * logs - power, np.log(-np.expm1(-power) + TINY)


def _exponential(x: Floats, p: Params) -> tuple[Floats, Floats]:
    return _weibull(x, (p[0], 0.0, p[1]))


def _lognormal_moments(p: Params) -> tuple[float, float]:
    variance = np.exp(2 * p[2])
    mean = np.exp(p[1] + variance / 2)
    return p[0] + mean, mean * np.sqrt(np.expm1(variance))


def _weibull_moments(p: Params) -> tuple[float, float]:
    shape, scale = np.exp(p[1]), np.exp(p[2])
    mean, square = special.gamma(1 + 1 / shape), special.gamma(1 + 2 / shape)
    return p[0] + scale * mean, scale * np.sqrt(max(square - mean**2, 0.0))


def _mixture(x: Floats, p: Params) -> tuple[Floats, Floats]:
    """Return a mixture of two normal components: the second starts exp(p[2]) later and has a share of expit(p[4])."""
    shares = -np.logaddexp(0.0, p[4]), -np.logaddexp(0.0, -p[4])
    (pdf, cdf), (other_pdf, other_cdf) = (
        [share + log for log in _normal(x, part)] for share, part in zip(shares, _components(p), strict=True)
    )
    return np.logaddexp(pdf, other_pdf), np.logaddexp(cdf, other_cdf)


def _components(p: Params) -> tuple[tuple[float, float], tuple[float, float]]:
    return (p[0], p[1]), (p[0] + np.exp(p[2]), p[3])


def _mixed_moments(p: Params) -> tuple[float, float]:
    share = special.expit(p[4])
    (mean, sd), (other, spread) = (_normal_moments(each) for each in _components(p))
    both = (1 - share) * mean + share * other
    square = (1 - share) * (sd**2 + mean**2) + share * (spread**2 + other**2)
    return both, np.sqrt(max(square - both**2, 1e-12))


# A distribution without a family is a table of quantiles at equally spaced shares.


def _table(x: Floats, p: Params) -> tuple[Floats, Floats]:
    steps = np.maximum(np.diff(p), 1e-3)
    cell = np.clip(np.searchsorted(p, x, "right") - 1, 0, len(steps) - 1)
    inside = (x >= p[0]) & (x <= p[-1])
    log_pdf = np.where(inside, -np.log(steps[cell] * len(p)), np.log(TINY))
    return log_pdf, np.log(np.interp(x, p, (np.arange(len(p)) + 0.5) / len(p), left=TINY, right=1.0))


EMPIRICAL = Family("empirical", _table, lambda p: (float(np.mean(p)), float(np.std(p))), lambda *_: (), True)
FAMILIES = {
    family.name: family
    for family in (
        Family("normal", _normal, _normal_moments, lambda low, mid, sd: (mid, np.log(sd)), False),
        Family(
            "gamma",
            _gamma,
            lambda p: (p[0] + np.exp(p[1] + p[2]), np.exp(p[1] / 2 + p[2])),
            lambda low, mid, sd: (low - sd / 3, np.log(2.0), np.log(sd / 1.4)),
            True,
        ),
        Family(
            "lognormal",
            _lognormal,
            _lognormal_moments,
            lambda low, mid, sd: (low - sd / 2, np.log(sd * 1.5), np.log(0.6)),
            True,
        ),
        Family(
            "weibull",
            _weibull,
            _weibull_moments,
            lambda low, mid, sd: (low - sd / 3, np.log(1.5), np.log(sd * 1.6)),
            True,
        ),
        Family(
            "exponential",
            _exponential,
            lambda p: (p[0] + np.exp(p[1]), np.exp(p[1])),
            lambda low, mid, sd: (low - sd / 10, np.log(sd)),
            True,
        ),
        Family(
            "mixture",
            _mixture,
            _mixed_moments,
            lambda low, mid, sd: (mid, np.log(sd / 2), np.log(2 * sd), np.log(sd), -1.5),
            False,
        ),
    )
}
