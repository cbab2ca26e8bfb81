"""Jitter: the distribution of a draw, and the process by which draws apply to packets.

    fit = cct.fit.Jitter().fit(flow)
    fit.summary()                      # distribution, process, intervals, compared families
    fit.jitter()                       # a cct.Jitter, which cct.Path takes

The process is determined first (`process`), since it defines a draw: per packet, burst or slot, observed or hidden
by the previous packet. Each family is then fitted by maximum likelihood to the observed draws (`families`), and the
one with the least AIC is kept (the first of those that are as good). Errors come from a block bootstrap of the
likelihood's scores, with blocks as long as the delays' autocorrelation (`blocks`): 100,000 RTTs of one flow are
worth far fewer independent ones.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cctrace.arguments import as_list, check_argument, check_progress, whole
from cctrace.columns import Floats, Values
from cctrace.display import Progress, plain, silent
from cctrace.errors import FitError
from cctrace.estimates import Estimate, Serialised
from cctrace.fit import constants as const
from cctrace.fit.censored import WITHOUT_STALLS, Censored, Fitted
from cctrace.fit.delays import of_counters, uncongested_rtt
from cctrace.fit.draws import simulated
from cctrace.fit.families import EMPIRICAL, FAMILIES
from cctrace.fit.goodness import Goodness, goodness, product_limit
from cctrace.fit.observed import observed_draws
from cctrace.fit.process import Process, process_of
from cctrace.flows.counters import CounterFlow
from cctrace.lang.threads import each
from cctrace.path.blocks import block_sizes, blocked, correlation_time, student
from cctrace.path.blocks import effective_samples as effective
from cctrace.path.delays import Delays
from cctrace.units import format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from cctrace.flows.flow import Flow
    from cctrace.sim.jitter import Jitter as Simulated
    from cctrace.sim.result import Simulation

    Source = Flow | Simulation | Delays | Values | list[float] | tuple[float, ...]


class Jitter(Serialised):
    """Estimator of a path's jitter.

    Parameters
    ----------
    families : sequence of str
        Distributions to compare: normal (truncated at zero delay), gamma, lognormal, weibull, exponential (all but
        the normal above a fitted minimum delay).
    seed : int
        Of the bootstrap.
    events : int
        Draws used of a long flow, in evenly spread blocks. With fewer than the default, descents are not repeated
        either.

    Attributes
    ----------
    distribution_ : str
        The family with the least AIC, or the first that is as good.
    process_ : Process
        ``name`` packet, burst, slot (with ``slot_us``) or reorder, as in `cctrace.Jitter`; or unknown.
    sd_us_, mean_us_ : Estimate
        Of one draw. The mean is defined as in `cctrace.Path`: 0 for a normal jitter, the excess over the minimum
        delay for the others.
    delay_us_ : Estimate
        Mean uncongested delay including the jitter's mean: the base RTT of the path.
    stalls_ : float
        Share of delays that no jitter of the family explains (host stalls), excluded from the sd.
    aic_ : dict of str to float
        Of every family, relative to the least.
    effective_samples_ : float
        Independent delays that all are worth, of which a fit uses `events` at most.
    events_ : int
        Uncensored draws that were used.

    Examples
    --------
    >>> delays = np.random.default_rng(1).normal(20_000, 500, 2_000)      # us, as `ping` would give them
    >>> fit = Jitter().fit(delays)
    >>> fit.distribution_, bool(fit.sd_us_.low < 500 < fit.sd_us_.high)
    ('normal', True)
    """

    card_title, fitted_by = "Jitter", "sd_us_"

    def __init__(
        self, families: Sequence[str] = tuple(FAMILIES), seed: int = 1, events: int = const.MAX_EVENTS
    ) -> None:
        known = [*FAMILIES, "empirical"]
        self.families = tuple(as_list(families))
        right = self.families and all(str(name) in known for name in self.families)
        check_argument(right, "families", families, f"a list of any of {', '.join(known)}")
        self.seed, self.events = whole("seed", seed), whole("events", events, 1)

    def fit(self, source: Source | CounterFlow, progress: Progress = silent) -> Self:
        """Fit to a flow, a simulation with ``packets=True``, `Delays`, or independent delays (us).

        Raises
        ------
        FitError
            If the delays do not determine the jitter; says what would be needed.
        """
        check_progress(progress)
        if isinstance(source, Delays):
            delays = source
        elif isinstance(source, np.ndarray | list | tuple):
            return self._fit_draws(_numbers(source))
        elif isinstance(source, CounterFlow):
            raise FitError(of_counters(source))
        else:
            delays = uncongested_rtt(source)
        spread = float(np.subtract(*np.quantile(delays.rtt_us, [0.99, 0.01])))
        if spread <= 2.0:
            raise FitError(
                f"the RTT without queue is constant (98 % within {spread:.1f} us): there is no jitter to be fitted"
            )
        self.process_, self.wander_us_ = process_of(delays), 0.0
        self._fit(observed_draws(delays, self.process_, self.events), delays.effective_samples, progress)
        if self.process_.name in ("packet", "reorder") and self.is_refuted(const.WANDER_DISTANCE):
            self._without_wander(delays, progress)
        return self

    def is_refuted(self, distance: float) -> bool:
        """Return whether the delays refute the distribution: residuals farther than this from uniform."""
        test = self.goodness_
        return test is not None and test.probability < const.MIN_FIT_PROBABILITY and test.distance > distance

    def _without_wander(self, delays: Delays, progress: Progress) -> None:
        """Remove shifts common to all packets within 50 ms (backlog, not jitter) if the family then fits."""
        steady, wander_us = delays.steady(const.WANDER_US)
        # Residues at the steps of the medians would pass for a second component.
        families = [name for name in self.families if name != "mixture"] or self.families
        try:
            fit = Jitter(families, self.seed, self.events)._fit(
                observed_draws(steady, self.process_, self.events), steady.effective_samples, progress
            )
        except FitError:
            return
        before, after = self.goodness_, fit.goodness_
        if before is not None and after is not None and after.distance < const.STEADIER_SHARE * before.distance:
            vars(self).update(vars(fit) | {"families": self.families, "wander_us_": wander_us})

    def _fit_draws(self, draws: Floats) -> Self:
        if draws.ndim != 1 or len(draws) < const.MIN_EVENTS or not np.all(np.isfinite(draws)):
            raise FitError(f"{draws.size} delays; at least {const.MIN_EVENTS} finite ones are needed")
        if np.ptp(draws) <= 0:
            raise FitError("all delays are equal: there is no jitter to be fitted")
        correlation = correlation_time(draws, 1.0)
        self.process_, self.wander_us_ = Process("packet", None, correlation, "independent draws"), 0.0
        return self._fit(Censored.independent(draws), effective(draws))

    def _fit(self, data: Censored, effective_samples: float, progress: Progress = silent) -> Self:
        self.events_ = int(data.event.sum()) if data.ordered else len(data.delay_us)
        if self.events_ < const.MIN_EVENTS:
            raise FitError(
                f"only {self.events_} delays were seen, all others hid behind the packet before; at least "
                f"{const.MIN_EVENTS} are needed: a longer flow, or one with pauses"
            )
        self.effective_samples_, self.range_us_ = effective_samples, (data.low, data.high)
        quick, names = self.events < const.MAX_EVENTS, [name for name in self.families if name != "empirical"]
        if data.ordered and data.event.mean() < const.MIN_SHARE and len(self.families) > 1:
            # Where most draws are censored, a second component is arbitrary.
            names = [name for name in names if name != "mixture"]
        names = names or ["normal"]
        progress(f"jitter: {', '.join(names)}")
        # A likelihood works in arrays of its own data: each descent has a copy.
        fits = each(lambda name: copy.copy(data).fit(FAMILIES[name], quick=quick), names)
        # If nearly all delays are equal, a family may take the few others for an endless tail.
        widest = data.high - data.low
        fits = [fit for fit in fits if fit.log_likelihood > -1e14 and not fit.moments[1] > widest] or fits[:1]
        least = min(fitted.aic for fitted in fits)
        # The first of those that explain the delays as well: a far-off gamma resembles a normal.
        as_good = [
            fitted for fitted in fits if fitted.aic <= least + max(const.AIC_TIE, const.AIC_TIE_SHARE * abs(least))
        ]
        self._best, self._data = data.without_stalls(as_good[0], quick), data
        self.aic_ = {f.family.name: f.aic - least for f in sorted(fits, key=lambda fitted: fitted.aic)}
        self.as_good_ = [fitted.family.name for fitted in as_good]
        self._errors()
        if "empirical" in self.families and (self.is_refuted(const.MAX_FIT_DISTANCE) or len(self.families) == 1):
            self._without_family()
        self.distribution_, self.stalls_ = self._best.family.name, self._best.stalls
        return self

    def _without_family(self) -> None:
        """Fit the maximum-likelihood distribution without a family; its errors come from a block bootstrap."""
        data = self._data
        table, mean, sd = product_limit(data, self._reverse_hazard)
        size = block_sizes(np.bincount(data.group, data.delay_us) / np.bincount(data.group))
        blocks = np.arange(len(data.event)) // size
        rng = np.random.default_rng(self.seed)
        drawn = []
        for _ in range(const.DRAWS):
            weights = rng.poisson(1.0, blocks[-1] + 1)[blocks].astype(float)
            quantiles, *moments = product_limit(data, self._reverse_hazard, weights)
            drawn.append([*moments, quantiles[0]])
        means, sds, leasts = np.array(drawn).T
        wider = student(blocks[-1])
        p = np.append(table, WITHOUT_STALLS)
        self._best = Fitted(EMPIRICAL, p, data.log_likelihood(EMPIRICAL, table, np.exp(WITHOUT_STALLS)))
        self.distribution_ = "empirical"
        self.delay_us_ = Estimate.around(mean, means.std() * wider)
        self.sd_us_ = Estimate.by_factor(sd, np.log(sds).std() * wider)
        self.mean_us_ = Estimate.around(mean - table[0], (means - leasts).std() * wider)
        ratios = [_ratio(least, mean, sd) for mean, sd, least in drawn]
        self.ratio_error_ = float(np.std(ratios)) * wider

    def _reverse_hazard(self, x: Floats) -> Floats:
        """Return f/F of the family at delays x."""
        best, data = self._best, self._data
        log_pdf, log_cdf = data.tables(best.family, best.p[:-1], best.stalls)
        return np.exp(np.minimum(np.interp(x, data.grid, log_pdf - log_cdf), 50.0))

    def _errors(self) -> None:
        """Compute the errors from block sums of the scores, with blocks as long as the autocorrelation (sandwich).

        The information is the outer product of the scores: second differences on a grid are noise in the direction
        in which minimum delay, shape and scale compensate each other. Blocks that happen to scatter less than
        independent draws are ignored.
        """
        best = self._best
        scores = self._data.score_rows(best)
        if not (np.all(np.isfinite(scores)) and np.isfinite(best.moments).all()):
            raise FitError("no family of distributions describes the delays; they may be a queue that others fill")
        size = block_sizes(np.abs(scores[:, min(1, scores.shape[1] - 1)]))
        sums = blocked(scores, size)
        sums = sums - sums.mean(axis=0)
        inverse = np.linalg.pinv(scores.T @ scores, rcond=1e-9, hermitian=True)
        self.goodness_ = goodness(self._data, best, scores, inverse, self.seed)
        wider = student(len(sums) - 1)
        by_blocks = inverse @ (sums.T @ sums) @ inverse * len(sums) / max(len(sums) - 1, 1) * wider**2
        changes = self._changes()[: scores.shape[1]]
        changes[0] *= max(best.moments[1], 0.1)  # in the units of `Censored.score_rows`
        errors = [np.sqrt(max(c @ by_blocks @ c, c @ inverse @ c)) for c in changes.T]
        (mean, sd), above_minimum = best.moments, self._mean_above_minimum(best.p)
        self.distribution_ = best.family.name
        self.delay_us_ = Estimate.around(mean, errors[0])
        self.sd_us_ = Estimate.by_factor(sd, errors[1])
        self.mean_us_ = Estimate.by_factor(above_minimum, errors[2])
        self.ratio_error_ = float(errors[3])

    def _changes(self) -> Floats:
        """Return derivatives of mean, log sd, log mean above the minimum, and `_ratio`, by each parameter."""
        p, family = self._best.p, self._best.family

        def of(q: Floats) -> Floats:
            mean, sd = family.moments(q[:-1])
            if not family.has_minimum:
                return np.array([mean, np.log(sd), 0.0, 0.0])
            return np.array([mean, np.log(sd), np.log(self._mean_above_minimum(q)), _ratio(q[0], mean, sd)])

        changes = np.zeros((len(p), 4))
        for k in range(len(p) - 1):
            step = np.where(np.arange(len(p)) == k, 1e-3 * (self._best.moments[1] if k == 0 else 1.0), 0.0)
            changes[k] = (of(p + step) - of(p - step)) / (2 * step[k])
        return changes

    def _mean_above_minimum(self, p: Floats) -> float:
        family = self._best.family
        return max(family.moments(p[:-1])[0] - p[0], 1e-9) if family.has_minimum else 0.0

    @property
    def base_us_(self) -> float:
        """RTT of a `cctrace.Path` with this jitter, us."""
        return float(self.predict(1e-4)) if self.distribution_ == "mixture" else float(self._best.p[0])

    @property
    def nominal_sd_us_(self) -> float:
        """The sd as `cctrace.Jitter` takes it, us: of a normal jitter before truncation at zero delay."""
        return float(np.exp(self._best.p[1])) if self.distribution_ == "normal" else self.sd_us_.number

    @property
    def slot_us_(self) -> Estimate | None:
        """Slot length; None for other processes."""
        return self.process_.slot_us

    def predict(self, shares: ArrayLike) -> Floats:
        """Return quantiles of the delay (us, without queue)."""
        low, high = self.range_us_
        grid = np.linspace(max(low - (high - low), 0.0), high + (high - low), 8192)
        _, log_cdf = self._best.family.log_pdf_and_cdf(grid, self._best.p[:-1])
        return np.interp(np.asarray(shares, float), np.exp(log_cdf), grid)

    def score(self, source: Source) -> float:
        """Return the mean log likelihood of another flow's (or other) delays, per ACK."""
        if isinstance(source, np.ndarray | list | tuple):
            data = Censored.independent(np.asarray(source, float))
        else:
            delays = source if isinstance(source, Delays) else uncongested_rtt(source)
            data = observed_draws(delays, self.process_, self.events)
        best = self._best
        return data.log_likelihood(best.family, best.p[:-1], best.stalls) / len(data.event)

    def jitter(self) -> Simulated:
        """Return the `cctrace.Jitter` for `cctrace.Path`.

        A Weibull jitter, a mixture and one without a family are converted to a thousand quantiles.
        """
        shares = (np.arange(1000) + 0.5) / 1000
        if self.distribution_ == "weibull":
            shape, scale = np.exp(self._best.p[1:3])
            beyond = scale * (-np.log1p(-shares)) ** (1 / shape)
        else:
            beyond = np.maximum(self.predict(shares) - self.base_us_, 0.0)
        return simulated(self.as_estimates() | {"sd_us": Estimate(self.nominal_sd_us_), "quantiles_us": beyond})

    def _restore(self) -> None:
        state = vars(self)
        best, (low, high), goodness_ = state["_best"], state["range_us_"], state["goodness_"]
        families = FAMILIES | {"empirical": EMPIRICAL}
        self._best = Fitted(families[best["family"]], np.array(best["p"]), best["log_likelihood"])
        self.families, self.range_us_ = tuple(state["families"]), (low, high)
        self.process_ = Process(**state["process_"])
        self.goodness_ = goodness_ and Goodness(**goodness_)

    def plot(self, axes: Sequence[Axes] | None = None) -> tuple[Axes, Axes]:
        """Draw the distribution with the fit, and quantiles against quantiles; see `cctrace.fit.plots`."""
        from cctrace.fit.plots import distribution

        return distribution(self, axes)

    def to_dict(self) -> dict[str, Any]:
        """Return the output of `cctrace fit jitter --json`."""
        return plain(self.as_estimates())

    def as_estimates(self) -> dict[str, Any]:
        """Return the same with each value as an `Estimate`."""
        return {
            "distribution": self.distribution_,
            "process": self.process_.name,
            "slot_us": self.slot_us_,
            "sd_us": self.sd_us_,
            "mean_us": self.mean_us_,
            "delay_us": self.delay_us_,
            "correlation_time_us": self.process_.correlation_time_us,
            "goodness": None if self.goodness_ is None else self.goodness_._asdict(),
            "as_good": self.as_good_,
            "wander_us": self.wander_us_,
            "effective_samples": self.effective_samples_,
            "stalls_share": self.stalls_,
            "aic": self.aic_,
            "why": self.process_.why,
        }

    def summary(self) -> str:
        """Return the result as text."""
        slot = f" of {self.slot_us_.text('{:.0f}')} us" if self.slot_us_ else ""
        others = ", ".join(f"{name} {value:.0f}" for name, value in self.aic_.items())
        return "\n".join(
            [
                f"jitter: {self.distribution_}, sd {self.sd_us_.text('{:.0f}')} us, 95 % intervals",
                f"process: {self.process_.name}{slot} ({self.process_.why})",
                f"mean delay without queue: {self.delay_us_.text('{:.0f}')} us",
                f"fitted to {self.events_} draws; all delays are worth {self.effective_samples_:.0f} independent ones; "
                f"{format_share(self.stalls_)} stalls",
                f"AIC beyond the least: {others}",
            ]
        )


def _numbers(delays: object) -> Floats:
    try:
        return np.asarray(delays, float)
    except (TypeError, ValueError):
        raise FitError("delays must be numbers, in microseconds") from None


def _ratio(base: float, mean: float, sd: float) -> float:
    """Return the log of what an sd threshold depends on: minimum delay, and sd over the mean above it."""
    return float(np.log(max(base, 1.0)) + np.log(sd) - np.log(max(mean - base, 1e-3)))
