"""Forecast of one controller on one path, and its wording."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cctrace.display import listed
from cctrace.estimates import Estimate
from cctrace.fit.constants import MIN_COLLAPSE_PROBABILITY
from cctrace.fit.threshold import Threshold
from cctrace.special import special
from cctrace.units import format_number, format_percent, format_time

_ANSWERS = {"yes": "yes", "close": "perhaps", "no": "no"}


class Forecast(NamedTuple):
    """Forecast of a collapse.

    Attributes
    ----------
    threshold_sd_us : Estimate
        Standard deviation of the jitter at which a flow gets half of the link, us.
    sd_us : Estimate
        That of the path's jitter, us.
    probability : Estimate
        Probability of getting less than half of the link over 40 s.
    probability_hour : Estimate
        The same over any 40 s within an hour.
    queue_delay_us : float
        Mean queueing delay in the run just below the threshold, us (delta of [Kumar19]_).
    spread : float
        Scatter of a single run's threshold, of log sd.
    runs : int
        Simulations behind the threshold.
    domain : str
        Whether the path is within the range for which the forecast was checked.
    trials : tuple[tuple[float, float], ...]
        All simulations of the search, including those at the path's jitter: sd (us) and share of the link.
    """

    threshold_sd_us: Estimate
    sd_us: Estimate
    probability: Estimate
    probability_hour: Estimate
    queue_delay_us: float
    spread: float
    runs: int
    domain: str
    trials: tuple[tuple[float, float], ...] = ()

    @property
    def verdict(self) -> str:
        """Whether it collapses: "yes", "no", or "close" if the interval or the seed decides."""
        if self.threshold_sd_us.low is None:
            return "yes"
        _, least, most = self.sd_us.sides()
        _, low, high = self.threshold_sd_us.sides()
        if most < low:
            return "no" if self.probability.number < MIN_COLLAPSE_PROBABILITY else "close"
        return "yes" if least > high else "close"


def chance_of(threshold: Estimate, sd_us: Estimate, spread: float) -> Estimate:
    """Return the probability that a run collapses at `sd_us`, an `Estimate`, given the threshold's."""

    def chance(sd: float, at: float | None) -> float:
        if at is None or sd <= 0:
            return 0.0
        return float(special.ndtr(np.log(sd / at) / spread))

    if threshold.value is None and threshold.low is None:
        return Estimate(1.0, 0.5, 1.0)  # collapsed at every sd tried
    sd, least, most = sd_us.sides()
    value = chance(sd, threshold.value)
    return Estimate(value, min(chance(least, threshold.high), value), max(chance(most, threshold.low), value))


def updated_chance(chance: Estimate, threshold: Threshold) -> Estimate:
    """Return the probability updated by the runs at the path's jitter, if only some of them collapse."""
    if not threshold.collapsed:
        return chance
    collapsed, tried = threshold.collapsed, threshold.tried
    low, high = special.betaincinv(collapsed + 0.5, tried - collapsed + 0.5, [0.025, 0.975])  # Jeffreys' interval
    _, least, most = chance.sides()
    return Estimate(collapsed / tried, min(least, float(low)), max(most, float(high)))


def answer_text(forecasts: Mapping[str, Forecast]) -> str:
    """Return which controllers would collapse: "No: bbr2016 would from 22 ± 3.4 ms of jitter on"."""
    parts = []
    for verdict, answer in _ANSWERS.items():
        alike: dict[str, list[str]] = {}
        for name, forecast in forecasts.items():
            if forecast.verdict == verdict:
                alike.setdefault(limit_text(forecast), []).append(name)
        limits = [f"{listed(names)} {limit}" for limit, names in alike.items()]
        parts += [f"{answer}: {', '.join(limits)}"] if limits else []
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def limit_text(forecast: Forecast) -> str:
    """Return at which jitter a controller collapses, in words, and how often it does at the path's jitter."""
    sd, chance = forecast.threshold_sd_us, forecast.probability.number
    now = f" ({format_percent(chance)} of the runs do now)" if chance >= MIN_COLLAPSE_PROBABILITY / 2 else ""
    if sd.value is None and sd.low is not None:
        return f"would not with up to {format_time(sd.low * 1e3)} of jitter{now}"
    if sd.value is None and sd.high is not None:
        return f"would with {format_time(sd.high * 1e3)} of jitter already{now}"
    return f"would from {milli_text(sd)} of jitter on{now}"


def milli_text(estimate: Estimate) -> str:
    """Return an estimate in us as text in ms.

    >>> milli_text(Estimate(22e3, 19e3, 25e3)), milli_text(Estimate(6248.0, 5165.0, None))
    ('22 ± 3 ms', 'about 6.25 ms (5.17 ms at least)')
    >>> milli_text(Estimate(0.1, 0.0, 16.0))
    'at most 0.016 ms'
    """
    value, low, high = estimate.scaled(1e-3).sides()
    if estimate.high is not None and 0 <= value < (high - low) / 2:
        return f"at most {format_number(high, 2)} ms"
    if estimate.low is not None and estimate.high is not None:
        return f"{format_number(value)} ± {format_number((high - low) / 2, 2)} ms"
    about = f"about {format_number(value)} ms"
    if estimate.high is not None:
        return f"{about} ({format_number(high)} ms at most)"
    return about if estimate.low is None else f"{about} ({format_number(low)} ms at least)"
