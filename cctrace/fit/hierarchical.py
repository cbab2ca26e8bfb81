r"""Hierarchical model of one quantity over many flows of a path: each flow has its own value, the path a mean and
spread.

Two levels, with known errors :math:`\sigma_k` of the single fits and an unknown spread :math:`\tau` between flows:

.. math:: \hat\theta_k \sim N(\theta_k, \sigma_k^2), \qquad \theta_k \sim N(\mu, \tau^2)

:math:`\tau^2` is the restricted-maximum-likelihood estimate [Viechtbauer05]_; its interval contains what Cochran's
Q does not reject [Viechtbauer07]_. A flow's value shrinks towards the mean by :math:`\sigma_k^2 / (\sigma_k^2 +
\tau^2)`. As few flows leave :math:`\tau` uncertain, the values are averaged over all :math:`\tau` by the same
likelihood [Gelman06]_. For the mean, that average is too cautious with few flows, while the
Hartung-Knapp-Sidik-Jonkman t interval [IntHout14]_ is too short if the flows' errors differ: the interval used is
half-way between the two (docs/fitting.md has the coverage of each).

statsmodels has the same as ``combine_effects``, but is larger than cctrace.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from cctrace.arguments import check_argument, check_progress
from cctrace.columns import Floats
from cctrace.display import Jsonable, Progress, Summarized, plain, silent
from cctrace.errors import ArgumentError, FitError
from cctrace.estimates import Z95, Estimate
from cctrace.fit.constants import BETWEEN_POINTS, MAX_BETWEEN, MIN_FLOWS
from cctrace.flows.flow import Flow
from cctrace.sim.result import Simulation
from cctrace.special import special

CONFIDENCE = 0.95


class Estimator(Protocol):
    """An estimator for single flows."""

    def fit(self, source: Flow | Simulation, /) -> object:
        """Return the fitted object."""


class Hierarchical(Summarized, Jsonable):
    """Partial pooling of an estimator's results over flows.

    Parameters
    ----------
    estimator : object with ``fit``, optional
        `fit` fits a fresh copy to each flow: ``Parameters("cubic6", ["beta"])``, ``Jitter()``.
    of : callable or str, optional
        Takes the fitted estimator and returns an `Estimate`; or the name of an attribute or parameter. Default: the
        only parameter of `Parameters`.

    Attributes
    ----------
    mean_ : Estimate
        Of the group.
    spread_ : Estimate
        Standard deviation between flows, without the errors of the fits.
    flows_ : list of Estimate
        Of each informative flow, shrunken towards the mean.
    single_ : list of Estimate
        The same before pooling.
    refused_ : dict of int to str
        Flow index to the reason why the flow has no value.

    Examples
    --------
    >>> flows = [Estimate.around(value, 0.1) for value in (1.0, 1.5, 0.8, 1.1)]
    >>> Hierarchical().pool(flows).mean_.text("{:.2f}")
    '1.10 (0.56 to 1.64)'
    """

    card_title, fitted_by = "Pooled over flows", "mean_"

    def __init__(
        self, estimator: Estimator | None = None, of: Callable[[Any], Estimate | None] | str | None = None
    ) -> None:
        self.estimator, self.of = estimator, of

    def fit(self, flows: Iterable[Flow | Simulation], progress: Progress = silent) -> Self:
        """Fit the estimator to each flow, and pool the results.

        Raises
        ------
        FitError
            If fewer than MIN_FLOWS flows determine the value; says why the others do not.
        """
        check_progress(progress)
        if self.estimator is None:
            raise ArgumentError("Hierarchical() was given no estimator; use pool(estimates)")
        flows = list(flows)
        if len(flows) < MIN_FLOWS:
            raise FitError(f"{len(flows)} flows; pooling needs at least {MIN_FLOWS} of a path")
        estimates, refused = [], {}
        for k, flow in enumerate(flows):
            progress(f"flow {k + 1} of {len(flows)}")
            try:
                estimate = self._value(copy.deepcopy(self.estimator).fit(flow))
            except FitError as refusal:
                refused[k] = str(refusal)
                continue
            if estimate is None or None in estimate:
                refused[k] = f"bounded from one side only: {estimate.text()}" if estimate else "no value"
                continue
            estimates.append(estimate)
        if len(estimates) < MIN_FLOWS:
            whys = "; ".join(f"flow {k}: {why}" for k, why in list(refused.items())[:3])
            raise FitError(f"{len(estimates)} of {len(flows)} flows yield a value, {MIN_FLOWS} are needed ({whys})")
        self.pool(estimates)
        self.refused_ = refused
        return self

    def _value(self, fitted: object) -> Estimate | None:
        if callable(self.of):
            return self.of(fitted)
        estimates = getattr(fitted, "estimates_", {})
        if self.of is None and len(estimates) != 1:
            raise ArgumentError(f"of=None: name what {type(fitted).__name__} is pooled for")
        name = next(iter(estimates)) if self.of is None else self.of
        if name not in estimates and not hasattr(fitted, name):
            raise ArgumentError(f"of={name!r} is neither a parameter nor an attribute of {type(fitted).__name__}")
        return estimates[name] if name in estimates else getattr(fitted, name)

    def pool(self, estimates: Iterable[Estimate]) -> Self:
        """Pool estimates of single flows, taking the errors from their intervals.

        Raises `FitError` if there are fewer than MIN_FLOWS, `ArgumentError` if one has no value, or an open
        interval.
        """
        check_argument(isinstance(estimates, Iterable), "estimates", estimates, "an iterable of estimates")
        estimates = list(estimates)
        if len(estimates) < MIN_FLOWS:
            raise FitError(f"{len(estimates)} flows; pooling needs at least {MIN_FLOWS} of a path")
        if any(None in estimate for estimate in estimates):
            raise ArgumentError("estimates: every one needs a value and both ends of its interval")
        values, errors = np.array([(estimate.number, estimate.error) for estimate in estimates]).T
        scale = max(float(np.ptp(values)), float(errors.max()), 1e-300)
        errors = np.maximum(errors, 1e-6 * scale)  # an interval of zero length must not get infinite weight
        tau = scale * spread(values / scale, errors / scale)
        weights = 1 / (errors**2 + tau**2)
        mean = float(weights @ values / weights.sum())
        low, high = spread_bounds(values / scale, errors / scale)
        self.spread_ = Estimate(tau, min(low * scale, tau), max(high * scale, tau))
        self.single_, self.refused_ = estimates, {}
        pooled, error, averaged = shrunken(values / scale, errors / scale)
        self.mean_ = Estimate.around(mean, (self._error(values, weights, mean) / Z95 + scale * averaged) / 2)
        self.flows_ = [Estimate.around(v * scale, e * scale) for v, e in zip(pooled, error, strict=True)]
        return self

    @staticmethod
    def _error(values: Floats, weights: Floats, mean: float) -> float:
        """Return half the length of the mean's interval [IntHout14]_."""
        degrees = len(values) - 1
        scatter = float(weights @ (values - mean) ** 2) / degrees
        return float(special.stdtrit(degrees, (1 + CONFIDENCE) / 2)) * np.sqrt(scatter / weights.sum())

    def predict(self) -> Estimate:
        """Return the 95 % prediction interval for another flow of the path."""
        half = float(special.stdtrit(max(len(self.single_) - 2, 1), (1 + CONFIDENCE) / 2))
        mean, _, high = self.mean_.sides()
        return Estimate.around(mean, half / Z95 * float(np.hypot(self.spread_.number, (high - mean) / Z95)))

    def summary(self) -> str:
        """Return the result as text."""
        lines = [f"mean of {len(self.single_)} flows: {self.mean_.text()}", f"sd between flows: {self.spread_.text()}"]
        lines += [f"flow: {s.text()}, pooled {p.text()}" for s, p in zip(self.single_, self.flows_, strict=True)]
        return "\n".join(lines + [f"flow {k} left out: {why}" for k, why in self.refused_.items()])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain objects."""
        keys = ("mean_", "spread_", "flows_", "single_", "refused_")
        return plain({key.rstrip("_"): getattr(self, key) for key in keys})


def shortfall(values: Floats, errors: Floats, taus: ArrayLike) -> Floats:
    """Return minus the restricted log likelihood of sds between flows [Viechtbauer05]_."""
    variances = errors**2 + np.asarray(taus)[..., None] ** 2
    weights = 1 / variances
    total = weights.sum(axis=-1)
    residuals = values - (weights @ values / total)[..., None]
    return 0.5 * (np.log(variances).sum(axis=-1) + np.log(total) + (weights * residuals**2).sum(axis=-1))


def spread(values: Floats, errors: Floats) -> float:
    """Return the maximum-likelihood sd between flows, for values of order one."""
    places = np.append(0.0, np.geomspace(1e-4, 10.0, 61))
    k = int(np.argmin(shortfall(values, errors, places)))
    if k == 0:
        return 0.0
    from scipy import optimize  # imported late: it takes a tenth of a second

    between = places[k - 1], places[min(k + 1, len(places) - 1)]
    return float(
        optimize.minimize_scalar(lambda t: float(shortfall(values, errors, t)), bounds=between, method="bounded").x
    )


def shrunken(values: Floats, errors: Floats) -> tuple[Floats, Floats, float]:
    """Return shrunken values, their errors and that of the mean, averaged over the sd between flows [Gelman06]_."""
    taus = np.linspace(0, MAX_BETWEEN, BETWEEN_POINTS)
    heights = shortfall(values, errors, taus)
    chances = np.exp(heights.min() - heights)
    chances /= chances.sum()
    weights = 1 / (errors**2 + taus[:, None] ** 2)
    means = weights @ values / weights.sum(axis=1)
    shrinkage = taus[:, None] ** 2 * weights
    pooled = means[:, None] + shrinkage * (values - means[:, None])
    variances = shrinkage * errors**2 + (1 - shrinkage) ** 2 / weights.sum(axis=1)[:, None]
    value = chances @ pooled
    of_mean = chances @ (1 / weights.sum(axis=1) + (means - chances @ means) ** 2)
    return value, np.sqrt(chances @ (variances + (pooled - value) ** 2)), float(np.sqrt(of_mean))


def spread_bounds(values: Floats, errors: Floats) -> tuple[float, float]:
    """Return the smallest and largest sd between flows that Cochran's Q does not reject [Viechtbauer07]_."""

    def q(tau: float) -> float:
        weights = 1 / (errors**2 + tau**2)
        return weights @ (values - weights @ values / weights.sum()) ** 2

    def where(point: float) -> float:
        level = special.chdtri(len(values) - 1, 1 - point)
        if q(0.0) <= level:
            return 0.0
        most = 1.0
        while q(most) > level:
            most *= 2
        from scipy import optimize  # late, as above

        return float(optimize.brentq(lambda tau: q(tau) - level, 0.0, most))

    return where((1 + CONFIDENCE) / 2), where((1 - CONFIDENCE) / 2)
