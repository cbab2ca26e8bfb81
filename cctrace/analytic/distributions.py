"""RTT distributions: what the collapse model requires of one, and two that SciPy does not have in this form.

The model needs `logsf(x)` and `mean()`, broadcasting; any frozen `scipy.stats` distribution will do. The minimum of
M samples has the survival function S(x)^M, so everything is computed from log S: with M = 1e6 the relevant x has
S(x) = 1 - 1e-6, where 1 - F(x) would keep ten digits and S(x)^M six.
"""

from __future__ import annotations  # so that help() shows names of types

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from cctrace.analytic.domain import checked, not_negative, positive
from cctrace.columns import Floats
from cctrace.errors import ArgumentError
from cctrace.special import special


class Delay(Protocol):
    """What the models require of a distribution, under the names of `scipy.stats`.

    >>> from scipy import stats
    >>> delay: Delay = stats.norm(5000, 750)
    >>> float(delay.ppf(0.5)), float(delay.mean())
    (5000.0, 5000.0)
    """

    def logsf(self, x: ArrayLike, /) -> Floats:
        """Return log P(X > x)."""

    def ppf(self, q: ArrayLike, /) -> Floats:
        """Return the quantile of probability `q`."""

    def mean(self) -> Any:
        """Return the mean."""


class Distribution(Delay, Protocol):
    """A distribution that can also be shifted and scaled to other moments.

    >>> from scipy import stats
    >>> delay: Distribution = stats.gamma(4.0, scale=500)
    >>> float(delay.std()), float(delay.cdf(0.0))
    (1000.0, 0.0)
    """

    def cdf(self, x: ArrayLike, /) -> Floats:
        """Return P(X <= x)."""

    def std(self) -> Any:
        """Return the standard deviation."""


class TruncatedNormal:
    r"""The paper's RTT: a normal distribution cut off below the propagation delay.

    .. math:: X \sim \mathcal N(\mu, \sigma; \eta, \infty) \quad\text{Sec. III-E [Kumar19]_}

    Parameters
    ----------
    mean_us, sd_us : float or array_like
        Of the normal distribution before it is cut, as the paper (and netem) sets them.
    floor_us : float or array_like
        Eta, propagation and transmission delay.

    Notes
    -----
    Same law as ``scipy.stats.truncnorm``, an order of magnitude faster, because the root finders call it 1e6 times.

    Examples
    --------
    >>> float(TruncatedNormal(5000, 750, 75).cdf(2500).round(8))
    0.00042906
    """

    def __init__(self, mean_us: ArrayLike, sd_us: ArrayLike, floor_us: ArrayLike = 0.0) -> None:
        self.mean_us, self.sd_us = checked("mean_us", mean_us), positive("sd_us", sd_us)
        self.floor_us = not_negative("floor_us", floor_us)
        self._log_mass = special.log_ndtr((self.mean_us - self.floor_us) / self.sd_us)

    def logsf(self, x: ArrayLike) -> Floats:
        """Return log P(X > x)."""
        tail = special.log_ndtr((self.mean_us - np.maximum(x, self.floor_us)) / self.sd_us)
        return np.where(np.asarray(x) <= self.floor_us, 0.0, tail - self._log_mass)

    def cdf(self, x: ArrayLike) -> Floats:
        """Return P(X <= x)."""
        return -np.expm1(self.logsf(x))

    def ppf(self, q: ArrayLike) -> Floats:
        """Return the quantile of probability `q`."""
        log_upper = np.log1p(-np.asarray(q, dtype=float)) + self._log_mass
        return np.maximum(self.mean_us - self.sd_us * special.ndtri_exp(log_upper), self.floor_us)

    def mean(self) -> Any:
        """Return the mean after the cut."""
        return self.mean_us + self.sd_us * self._hazard()[0]

    def std(self) -> Any:
        """Return the standard deviation after the cut."""
        hazard, cut = self._hazard()
        return self.sd_us * np.sqrt(1 + cut * hazard - hazard**2)

    def _hazard(self) -> tuple[Floats, Floats]:
        cut = (self.floor_us - self.mean_us) / self.sd_us
        return np.exp(-(cut**2) / 2 - self._log_mass) / np.sqrt(2 * np.pi), cut


class Empirical:
    """The distribution of measured RTTs: every sample has the same mass, nothing lies outside them.

    Raises
    ------
    ArgumentError
        If there are no samples, or some are not finite.

    Examples
    --------
    >>> rtt = Empirical([10, 20, 30, 40])
    >>> float(rtt.cdf(20)), float(rtt.mean()), float(rtt.ppf(0.5))
    (0.5, 25.0, 20.0)
    """

    def __init__(self, samples_us: ArrayLike) -> None:
        self.samples_us = np.sort(checked("samples_us", samples_us).ravel())
        if not self.samples_us.size:
            raise ArgumentError("samples_us is empty; a distribution needs at least one RTT sample")

    def cdf(self, x: ArrayLike) -> Floats:
        """Return the share of the samples that are at most x."""
        return np.searchsorted(self.samples_us, x, side="right") / self.samples_us.size

    def logsf(self, x: ArrayLike) -> Floats:
        """Return the logarithm of the share of the samples above x, minus infinity above all of them."""
        with np.errstate(divide="ignore"):
            return np.log1p(-self.cdf(x))

    def ppf(self, q: ArrayLike) -> Floats:
        """Return the smallest sample at or below which the share `q` lies."""
        index = np.ceil(np.asarray(q) * self.samples_us.size).astype(int) - 1
        return self.samples_us[np.clip(index, 0, self.samples_us.size - 1)]

    def mean(self) -> Any:
        """Return the mean of the samples."""
        return self.samples_us.mean()

    def std(self) -> Any:
        """Return the standard deviation of the samples."""
        return self.samples_us.std()


class Affine:
    """A distribution shifted and scaled, of unchanged shape: x = origin + offset + scale * (X - origin).

    >>> float(Affine(Empirical([10, 20, 30, 40]), scale=2).mean())
    25.0
    """

    def __init__(self, base: Distribution, scale: ArrayLike = 1.0, offset_us: ArrayLike = 0.0) -> None:
        self.base, self.scale = base, positive("scale", scale)
        self.offset_us, self.origin_us = checked("offset_us", offset_us), base.mean()

    def _inside(self, x: ArrayLike) -> Floats:
        return self.origin_us + (np.asarray(x) - self.offset_us - self.origin_us) / self.scale

    def logsf(self, x: ArrayLike) -> Floats:
        """Return log P(X > x) of the shifted and scaled distribution."""
        return self.base.logsf(self._inside(x))

    def cdf(self, x: ArrayLike) -> Floats:
        """Return the probability of at most x."""
        return self.base.cdf(self._inside(x))

    def ppf(self, q: ArrayLike) -> Floats:
        """Return the quantile of probability `q`."""
        return self.origin_us + self.offset_us + self.scale * (self.base.ppf(q) - self.origin_us)

    def mean(self) -> Any:
        """Return the mean."""
        return self.origin_us + self.offset_us
