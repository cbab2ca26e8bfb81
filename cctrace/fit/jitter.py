"""Jitter: the distribution of one draw, and the process by which draws reach packets.

    fit = cct.fit.Jitter().fit(flow)
    fit.summary()                      # distribution, process, intervals, the families that were compared
    fit.jitter()                       # a cct.Jitter, which cct.Path takes

The process comes first (`process`), because it says what a draw is: a packet's, a burst's or a slot's, seen or hidden
by the packet before it. Then each family is fitted by maximum likelihood to what was seen of draws (`families`), and
the one with the least AIC is kept (the first of those that are as good). Errors are those of a block bootstrap of the
likelihood's scores, with blocks as long as delays hang together (`blocks`): 100,000 RTTs of one flow are far fewer
facts.
"""

import numpy as np

from cctrace.display import of_summary
from cctrace.errors import ArgumentError, FitError
from cctrace.fit.blocks import block_sizes
from cctrace.fit.blocks import effective_samples as effective
from cctrace.fit.delays import Delays, uncongested_rtt
from cctrace.fit.families import FAMILIES, Censored, curvature, fit_family, without_stalls
from cctrace.fit.process import Process, process_of
from cctrace.fit.results import Estimate, plain

MOST_EVENTS = 6000  # used of a long flow: blocks of groups, evenly spread
LEAST_EVENTS = 30
DRAWS = 400
AS_GOOD = 6.0  # difference of AIC
NEAR = 5e-4  # and of it: no path draws exactly from a family, and a hundred thousand samples would tell
PIECE = 200  # groups taken together where not all are used


class Jitter:
    """Estimator of a path's jitter.

    Parameters
    ----------
    families : sequence of str
        Which distributions to compare: normal (cut at zero delay), gamma, lognormal, weibull, exponential (all but the
        normal beyond a least delay that is fitted too).
    seed : int
        Of the bootstrap.

    Attributes
    ----------
    distribution_ : str
        The family with the least AIC, or the first that is as good.
    process_ : Process
        ``name`` packet, burst, slot (with ``slot_us``) or reorder, as `cctrace.Jitter` has them; unknown.
    sd_us_, mean_us_ : Estimate
        Of one draw. The mean is counted as `cctrace.Path` does: 0 for a normal jitter, what exceeds the least delay
        for the others.
    delay_us_ : Estimate
        Mean delay without queue, jitter's mean included: the base RTT of the path.
    stalls_ : float
        Share of delays that no jitter of the family explains (of a host that stopped), left out of the sd.
    aic_ : dict of str to float
        Of every family, less the least.
    effective_samples_ : float
    events_ : int
        Draws that were seen, not merely bounded.

    Examples
    --------
    >>> delays = np.random.default_rng(1).normal(20_000, 500, 2_000)      # us, as `ping` would give them
    >>> fit = Jitter().fit(delays)
    >>> fit.distribution_, bool(fit.sd_us_.low < 500 < fit.sd_us_.high)
    ('normal', True)
    """

    def __init__(self, families=tuple(FAMILIES), seed=1):
        if unknown := set(families) - set(FAMILIES):
            raise ArgumentError(f"families has {sorted(unknown)}; it may have {', '.join(FAMILIES)}")
        self.families, self.seed = tuple(families), seed

    def fit(self, source, say=lambda text: None):
        """Fit to a flow, a simulation with ``packets=True``, `Delays`, or delays of independent draws (us).

        Raises
        ------
        FitError
            If the delays do not tell; says what would be needed.
        """
        if isinstance(source, Delays):
            delays = source
        elif isinstance(source, np.ndarray | list | tuple):
            return self._fit_draws(np.asarray(source, float))
        else:
            delays = uncongested_rtt(source, say=say)
        spread = float(np.subtract(*np.quantile(delays.rtt_us, [0.99, 0.01])))
        if spread <= 2.0:
            raise FitError(
                f"the RTT without queue is constant (98 % within {spread:.1f} us): there is no jitter to be fitted"
            )
        self.process_ = process_of(delays)
        data = _censored(delays, self.process_)
        self._delays = delays
        return self._fit(data, delays.effective_samples, say)

    def _fit_draws(self, draws):
        if draws.ndim != 1 or len(draws) < LEAST_EVENTS or not np.all(np.isfinite(draws)):
            raise FitError(f"{draws.size} delays; at least {LEAST_EVENTS} finite ones are needed")
        if np.ptp(draws) <= 0:
            raise FitError("all delays are equal: there is no jitter to be fitted")
        self.process_ = Process("packet", None, Estimate(0.0), 0.0, "given as independent draws")
        data = Censored(draws, np.arange(len(draws)), np.ones(len(draws), bool), ordered=False)
        return self._fit(data, effective(draws))

    def _fit(self, data, effective_samples, say=lambda text: None):
        self.events_ = int(data.event.sum()) if data.ordered else len(data.delay_us)
        if self.events_ < LEAST_EVENTS:
            raise FitError(
                f"only {self.events_} delays were seen, all others hid behind the packet before; at least "
                f"{LEAST_EVENTS} are needed: a longer flow, or one with pauses"
            )
        self.effective_samples_ = effective_samples
        fits = []
        for name in self.families:
            say(f"jitter: {name}")
            fits.append(fit_family(data, FAMILIES[name]))
        least = min(fitted.aic for fitted in fits)
        # Of those that explain the delays as well the first: a far-off gamma, too, looks like a normal.
        self._best = next(fitted for fitted in fits if fitted.aic <= least + max(AS_GOOD, NEAR * abs(least)))
        self._best, self._data = without_stalls(data, self._best), data
        self.distribution_, self.stalls_ = self._best.family.name, self._best.stalls
        self.aic_ = {f.family.name: f.aic - least for f in sorted(fits, key=lambda fitted: fitted.aic)}
        self._errors()
        return self

    def _errors(self):
        """Bootstrap blocks of scores: one Newton step from the maximum for every resampled sum."""
        best = self._best
        scores, information = curvature(self._data, best)
        size = block_sizes(np.abs(scores[:, min(1, scores.shape[1] - 1)]))
        edges = np.arange(0, len(scores), size)
        sums = np.add.reduceat(scores, edges, axis=0)
        sums = sums - sums.mean(axis=0)
        if not (np.all(np.isfinite(information)) and np.isfinite(best.moments).all()):
            raise FitError("no family of distributions describes the delays; they may be a queue that others fill")
        values, vectors = np.linalg.eigh((information + information.T) / 2)
        keep = values > 1e-9 * values.max()
        inverse = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T
        weights = np.random.default_rng(self.seed).poisson(1.0, (DRAWS, len(sums))) - 1
        steps = weights @ sums @ inverse
        mean, sd = best.moments
        gradient = np.array([self._changes(k) for k in range(len(best.p))])
        moved = steps @ gradient  # of the mean, log sd and log of the mean beyond the least
        self.delay_us_ = Estimate.of_draws(mean, mean + moved[:, 0])
        self.sd_us_ = Estimate.of_draws(sd, sd * np.exp(np.clip(moved[:, 1], -5, 5)))
        beyond = self._beyond(best.p)
        self.mean_us_ = Estimate.of_draws(beyond, beyond * np.exp(np.clip(moved[:, 2], -5, 5)))
        self.covariance_ = np.cov(steps.T)

    def _changes(self, k):
        """Return derivatives by parameter k of the mean, the log of the sd, and that of the mean beyond the least."""
        p, family = self._best.p, self._best.family
        if k == len(p) - 1:
            return np.zeros(3)
        step = 1e-3 * (self._best.moments[1] if k == 0 else 1.0)
        up, down = p.copy(), p.copy()
        up[k], down[k] = p[k] + step, p[k] - step
        (mean_up, sd_up), (mean_down, sd_down) = family.moments(up[:-1]), family.moments(down[:-1])
        beyond = np.log(self._beyond(up) / self._beyond(down)) if family.located else 0.0
        return np.array([mean_up - mean_down, np.log(sd_up / sd_down), beyond]) / (2 * step)

    def _beyond(self, p):
        family = self._best.family
        return family.moments(p[:-1])[0] - p[0] if family.located else 0.0

    @property
    def slot_us_(self):
        """Length of a slot, an `Estimate`; None of another process."""
        return self.process_.slot_us

    def predict(self, shares):
        """Return the delays (us, queue excluded) below which the given shares of draws lie."""
        grid, log_cdf = self._data.grid, self._best.family.log_cdf(self._data.grid, self._best.p[:-1])
        return np.interp(np.asarray(shares, float), np.exp(log_cdf), grid)

    def score(self, source):
        """Return the mean log likelihood of another flow's (or other) delays, per ACK."""
        if isinstance(source, np.ndarray | list | tuple):
            draws = np.asarray(source, float)
            data = Censored(draws, np.arange(len(draws)), np.ones(len(draws), bool), ordered=False)
        else:
            delays = source if isinstance(source, Delays) else uncongested_rtt(source)
            data = _censored(delays, self.process_)
        best = self._best
        return data.log_likelihood(best.family, best.p[:-1], best.stalls) / len(data.event)

    def jitter(self):
        """Return the `cctrace.Jitter` that `cctrace.Path` takes.

        A Weibull one becomes a thousand of its quantiles.
        """
        from cctrace.sim.jitter import Jitter as Simulated

        name = self.process_.name
        per = {"burst": "burst", "slot": f"slot:{self.slot_us_.value:.1f}us" if self.slot_us_ else ""}.get(
            name, "packet"
        )
        common = {"per": per, "reorder": name == "reorder"}
        mean, sd = f"{self.mean_us_.value:.2f}us", f"{self.sd_us_.value:.2f}us"
        if self.distribution_ == "normal":
            return Simulated("normal", sd=f"{np.exp(self._best.p[1]):.2f}us", **common)
        if self.distribution_ in ("gamma", "lognormal"):
            return Simulated(self.distribution_, sd=sd, mean=mean, **common)
        if self.distribution_ == "exponential":
            return Simulated("gamma", sd=mean, mean=mean, **common)
        shape, scale = np.exp(self._best.p[1:3])
        shares = (np.arange(1000) + 0.5) / 1000
        return Simulated("empirical", samples_ns=1e3 * scale * (-np.log1p(-shares)) ** (1 / shape), **common)

    def as_object(self):
        """Return what `cctrace fit jitter --json` prints."""
        return plain(self.as_estimates())

    def as_estimates(self):
        """Return the same with `Estimate`s."""
        return {
            "distribution": self.distribution_,
            "process": self.process_.name,
            "slot_us": self.slot_us_,
            "sd_us": self.sd_us_,
            "mean_us": self.mean_us_,
            "delay_us": self.delay_us_,
            "correlation_time_us": self.process_.correlation_time_us,
            "effective_samples": self.effective_samples_,
            "stalls_share": self.stalls_,
            "aic": self.aic_,
            "why": self.process_.why,
        }

    def _repr_html_(self):
        if not hasattr(self, "sd_us_"):
            return of_summary("Jitter, not fitted yet", "")
        return of_summary("Jitter, fitted", self.summary())

    def summary(self):
        """Return what was found, as text."""
        slot = f" of {self.slot_us_.text('{:.0f}')} us" if self.slot_us_ else ""
        others = ", ".join(f"{name} {value:.0f}" for name, value in self.aic_.items())
        return "\n".join(
            [
                f"jitter: {self.distribution_}, sd {self.sd_us_.text('{:.0f}')} us, 95 % intervals",
                f"process: {self.process_.name}{slot} ({self.process_.why})",
                f"mean delay without queue: {self.delay_us_.text('{:.0f}')} us",
                f"{self.events_} draws seen, {self.effective_samples_:.0f} effective samples, "
                f"{100 * self.stalls_:.2g} % stalls",
                f"AIC beyond the least: {others}",
            ]
        )


def _censored(delays, process):
    """Return what a flow shows of draws: of packets, or of the slots or bursts that share one."""
    if process.name == "slot" and process.slot_us is not None:
        return _of_units(delays, _slots(delays, process.slot_us.value))
    if process.name == "burst":
        return _of_units(delays, np.cumsum(delays.burst))
    if process.name == "reorder":
        group = np.arange(len(delays))
        return _thinned(Censored(delays.delay_us, group, np.ones(len(group), bool), ordered=False))
    # What came within the clock's reach of the packet before is known to have come no later than that.
    slack = np.where(delays.event, 0.0, delays.tie_us - np.maximum(delays.gap_us, 0.0))
    return _thinned(Censored(delays.delay_us + slack[delays.group], delays.group, delays.event))


def _slots(delays, slot_us):
    """Return the slot of every packet: the grid is where the delays change."""
    departed, rtt = delays.departed_us[delays.last], delays.rtt_us
    both = delays.event[1:] & delays.event[:-1] & (np.abs(np.diff(rtt)) > delays.tie_us)
    middle = (departed[1:] + departed[:-1])[both] / 2
    phase = np.angle(np.exp(2j * np.pi * middle / slot_us).mean()) / (2 * np.pi) * slot_us
    return np.floor((delays.departed_us - phase) / slot_us).astype(np.int64)


def _of_units(delays, unit):
    """Return one delay per slot or burst: what its packets showed, or the bound that the last of them gives."""
    last = delays.last
    unit, value, event = unit[last], delays.rtt_us, delays.event
    new = np.diff(unit, prepend=unit[0] - 1) != 0
    begin = np.flatnonzero(new)
    # A packet that comes apart from the one before shows its draw; the first of a unit may still belong to the queue.
    shown = np.where(event, value, np.inf)
    least = np.minimum.reduceat(np.where(np.isfinite(shown), shown, np.inf), begin)
    bound = np.minimum.reduceat(value, begin)
    seen = np.isfinite(least)
    delay = np.where(seen, np.where(seen, least, 0.0), bound)
    return Censored(delay, np.arange(len(delay)), seen)


def _thinned(data):
    """Return part of the groups of long data: whole pieces, evenly spread."""
    count = int(data.event.sum()) if data.ordered else len(data.event) // 2
    keep = count / MOST_EVENTS
    if keep <= 1.2:
        return data
    pieces = np.arange(len(data.event)) // PIECE
    taken = np.floor(np.arange(pieces[-1] + 1) / keep) != np.floor((np.arange(pieces[-1] + 1) - 1) / keep)
    of_group = taken[pieces]
    rows = of_group[data.group]
    group = np.unique(data.group[rows], return_inverse=True)[1].reshape(-1)
    return Censored(data.delay_us[rows], group, data.event[of_group], data.ordered)
