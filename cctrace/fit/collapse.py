r"""Will BBR collapse on this path? From a capture to the jitter at which it would, and the jitter there is.

The path of the flow (rate, delay without queue, distribution and process of the jitter) goes into the closed loop's
model of minRTT collapse (`cctrace.analytic.closedloop`: Eqs. 9 to 11 of [Kumar19] with what a flow really samples).
Nothing is typed in: the queueing delay :math:`\delta` follows from the window at the fitted rate, min_rtt's samples
from the fitted process and the receiver's ACKs. The threshold is the sd, all else unchanged, at which a flow is below
half the link with probability one half.

Errors: of the fit (its intervals), and of the model, whose thresholds are off by MODEL_ERROR (root mean square over the
eight kinds of jitter of docs/models.md, against simulated flows).
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from cctrace.analytic import closedloop
from cctrace.analytic.distributions import Affine, TruncatedNormal
from cctrace.analytic.jittered import SENDERS, Link
from cctrace.display import of_summary
from cctrace.errors import ArgumentError, FitError
from cctrace.fit.bottleneck import constant, delivered_rate, deviation, rate_errors, rate_steps, sent
from cctrace.fit.delays import LEAST_SAMPLES, delays_of
from cctrace.fit.jitter import Jitter
from cctrace.fit.results import Z95, Estimate, plain
from cctrace.fit.transmissions import as_flow, transmissions

CONTROLLERS = ("bbr2016", "bbr2019", "bbr2022")
MODEL_ERROR = 0.06
LIFETIMES_PER_HOUR = 360  # of the min_rtt filter, 10 s each
LEAST_SHARE, MOST_SHARE = 1e-2, 1.0  # of the mean delay, between which the threshold is looked for


class Forecast(NamedTuple):
    """What awaits a controller: threshold and present sd, chance of being collapsed now and within an hour, domain."""

    threshold_sd_us: Estimate
    sd_us: Estimate
    probability: Estimate
    probability_hour: Estimate
    queue_delay_us: float
    domain: str

    @property
    def verdict(self):
        """Collapses: "yes", "no", or "close" where the interval does not decide."""
        if self.threshold_sd_us.low is None or self.sd_us.high < self.threshold_sd_us.low:
            return "no"
        return "yes" if self.sd_us.low > (self.threshold_sd_us.high or np.inf) else "close"


class Collapse:
    """Estimator of minRTT collapse.

    Parameters
    ----------
    controllers : sequence of str
        Some of `cctrace.analytic.jittered.SENDERS`.

    Attributes
    ----------
    forecasts_ : dict of str to Forecast
    sd_us_ : Estimate
        The jitter's sd.
    process_ : str
        As `Jitter.process_`; "unknown" where the jitter is too small to tell: then every process is considered.

    Examples
    --------
    >>> Collapse().fit(flow).forecasts_["bbr2022"].verdict           # doctest: +SKIP
    'no'
    """

    def __init__(self, controllers=CONTROLLERS):
        if unknown := set(controllers) - set(SENDERS):
            raise ArgumentError(f"controllers has {sorted(unknown)}; it may have {', '.join(SENDERS)}")
        self.controllers = tuple(controllers)

    def fit(self, source, say=lambda text: None):
        """Fit to a flow of a capture, or a simulation with ``packets=True``.

        Raises
        ------
        FitError
            If the flow never showed the path's rate, or too few RTTs; says what would be needed.
        """
        flow = as_flow(source)
        table = transmissions(flow)
        its = sent(table)
        if len(its.known) < LEAST_SAMPLES:
            raise FitError(f"only {len(its.known)} RTTs are known; at least {LEAST_SAMPLES} are needed")
        say("rate of the bottleneck")
        steps, _ = rate_steps(its, say)
        if len(steps.rate) > 1:
            raise FitError("the rate of the path changed; the model is of one rate: cut the capture where it changes")
        error = float(rate_errors(its, steps)[0])
        without = deviation(its, constant(1e6))
        if error > 0.2 or without - deviation(its, steps) < 0.01 * without:
            _, rate, _ = delivered_rate(its, max(2e5, its.least_rtt_us))
            most = np.quantile(rate[rate > 0], 0.99) * 8
            raise FitError(
                f"the flow never filled the path, whose rate is at least {most:.3g} Mbit/s: a bulk flow is needed"
            )
        self.rate_bps_ = Estimate.around(steps.rate[0] * 8e6, steps.rate[0] * 8e6 * error)
        delays = delays_of(table, its, steps)
        self._describe(delays, say)
        say("thresholds")
        self.ack_every_ = 2 if delays.segments_per_ack > 1.2 else 1
        self.queue_us_ = float(np.mean(delays.queue_us))
        by_sender = {}  # releases that the model does not tell apart are looked at once
        for name in self.controllers:
            sender = SENDERS[name]
            by_sender[sender] = by_sender.get(sender) or self._forecast(sender)
        self.forecasts_ = {name: by_sender[SENDERS[name]] for name in self.controllers}
        return self

    def _describe(self, delays, say):
        """Take what the model needs of the jitter; none at all is none."""
        try:
            fit = Jitter().fit(delays, say)
        except FitError:
            fit = None
        if fit is None:
            middle = float(np.median(delays.rtt_us))
            self.process_, self.slot_us_, self.mean_us_ = "unknown", 5000.0, middle
            self.sd_us_ = Estimate(0.0, 0.0, max(float(np.std(np.clip(delays.rtt_us, 0, 2 * middle))), 1.0))
            self._shape = None
            return
        self.process_, self.sd_us_ = fit.process_.name, fit.sd_us_
        self.slot_us_ = fit.slot_us_.value if fit.slot_us_ else 5000.0
        self.mean_us_ = fit.delay_us_.value
        self._shape = None if self.process_ == "unknown" else _distribution(fit)

    def delay(self, sd_us):
        """Return the distribution of the delay without queue if its sd were another."""
        if self._shape is None or isinstance(self._shape, TruncatedNormal):
            return TruncatedNormal(self.mean_us_, sd_us)
        return Affine(self._shape, sd_us / self._shape.std())

    def path(self, sd_us, process=None):
        """Return the `cctrace.analytic.Link` that was fitted, with another sd of the jitter."""
        process = process or ("packet" if self.process_ == "unknown" else self.process_)
        return Link(
            self.rate_bps_.value,
            self.delay(sd_us),
            draws="packet" if process == "reorder" else process,
            ordered=process != "reorder",
            slot_us=self.slot_us_,
            ack_every=self.ack_every_,
        )

    def _threshold(self, sender, process):
        low, high = LEAST_SHARE * self.mean_us_, MOST_SHARE * self.mean_us_
        try:
            return closedloop.threshold(lambda sd: self.path(sd, process), sender, low, high)
        except ArgumentError:
            return None

    def _forecast(self, sender):
        processes = [self.process_] if self.process_ != "unknown" else ["packet", "slot"]
        found = [self._threshold(sender, process) for process in processes]
        known = [value for value in found if value is not None]
        sd = max(self.sd_us_.value, LEAST_SHARE * self.mean_us_)
        here = self.path(sd, processes[0])
        factor = np.exp(Z95 * MODEL_ERROR)
        if known:
            threshold = Estimate(
                found[0] if found[0] is not None else known[0],
                min(known) / factor,
                max(known) * factor if None not in found else None,
            )
        else:
            threshold = Estimate(None, MOST_SHARE * self.mean_us_, None)
        low, now, high = (self._probability(sender, threshold, *case) for case in self._cases(threshold))
        chance = Estimate(now, min(low, now), max(high, now))
        hour = Estimate(*(float(-np.expm1(LIFETIMES_PER_HOUR * np.log1p(-min(p, 1 - 1e-12)))) for p in chance))
        least = float(here.delay.ppf(1e-4))
        queue = float(closedloop.queue_delay_us(here, sender, least))
        return Forecast(threshold, self.sd_us_, chance, hour, queue, closedloop.domain(here, sender).text)

    def _cases(self, threshold):
        """Return (sd, threshold) at the lower end of the chance, as fitted, and at its upper end."""
        if threshold.value is None:
            return [(None, None)] * 3
        high = threshold.high or threshold.value * np.exp(Z95 * MODEL_ERROR)
        return [
            (self.sd_us_.low, high),
            (self.sd_us_.value, threshold.value),
            (self.sd_us_.high, threshold.low),
        ]

    def _probability(self, sender, threshold, sd, at):
        """Return the chance of being collapsed for a jitter `sd` where the threshold lies `at`."""
        if sd is None:
            return 0.0
        scaled = sd * threshold.value / at
        if scaled < LEAST_SHARE * self.mean_us_:
            return 0.0
        process = "packet" if self.process_ == "unknown" else self.process_
        return closedloop.collapse_probability(self.path(scaled, process), sender)

    def predict(self, sd_us, controller=CONTROLLERS[-1]):
        """Return the chance that `controller` is collapsed on this path were the jitter's sd `sd_us`."""
        return closedloop.collapse_probability(self.path(sd_us), SENDERS[controller])

    def as_object(self):
        """Return what `cctrace fit collapse --json` prints."""
        controllers = {
            name: {**forecast._asdict(), "collapses": forecast.verdict} for name, forecast in self.forecasts_.items()
        }
        return plain({"controllers": controllers, "process": self.process_, "queue_us": self.queue_us_})

    def _repr_html_(self):
        if not hasattr(self, "sd_us_"):
            return of_summary("minRTT collapse, not fitted yet", "")
        return of_summary("minRTT collapse, fitted", self.summary())

    def summary(self):
        """Return what was found, as text."""
        lines = [f"jitter: sd {self.sd_us_.text('{:.0f}')} us, process {self.process_}"]
        for name, f in self.forecasts_.items():
            lines.append(
                f"{name}: collapses: {f.verdict}; threshold {f.threshold_sd_us.text('{:.0f}')} us, "
                f"{100 * f.probability.value:.3g} % now, {100 * f.probability_hour.value:.3g} % within an hour; "
                f"the model is {f.domain}"
            )
        return "\n".join(lines)


def _distribution(fit):
    """Return the fitted distribution of the delay without queue, as the models take it."""
    p = fit._best.p
    if fit.distribution_ == "normal":
        return TruncatedNormal(p[0], np.exp(p[1]))
    return _Shape(fit.distribution_, p, *fit._best.moments)


class _Shape(NamedTuple):
    """A fitted distribution with what the models ask of one; SciPy's are ten times slower."""

    family: str
    p: np.ndarray
    mean_us: float
    sd_us: float

    def logsf(self, x):
        """Return log P(X > x)."""
        beyond, p = np.maximum(np.asarray(x, float) - self.p[0], 0.0), self.p
        with np.errstate(divide="ignore"):
            if self.family == "gamma":
                return np.log(special.gammaincc(np.exp(p[1]), beyond / np.exp(p[2])))
            if self.family == "lognormal":
                return special.log_ndtr(-(np.log(beyond) - p[1]) / np.exp(p[2]))
            if self.family == "weibull":
                return -((beyond / np.exp(p[2])) ** np.exp(p[1]))
            return -beyond / np.exp(p[1])

    def ppf(self, q):
        """Return the delay of probability `q`."""
        p, q = self.p, np.asarray(q, float)
        if self.family == "gamma":
            return p[0] + np.exp(p[2]) * special.gammaincinv(np.exp(p[1]), q)
        if self.family == "lognormal":
            return p[0] + np.exp(p[1] + np.exp(p[2]) * special.ndtri(q))
        if self.family == "weibull":
            return p[0] + np.exp(p[2]) * (-np.log1p(-q)) ** np.exp(-p[1])
        return p[0] - np.exp(p[1]) * np.log1p(-q)

    def mean(self):
        """Return the mean."""
        return self.mean_us

    def std(self):
        """Return the standard deviation."""
        return self.sd_us
