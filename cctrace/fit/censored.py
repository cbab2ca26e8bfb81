"""Delays in groups, some only known not to be longer, and the likeliest distribution of a family (`families`)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from cctrace.columns import Bools, Floats, Ints
from cctrace.fit.constants import GRID_POINTS, MAX_STALL_SHARE, MIN_STALL_GAIN
from cctrace.fit.families import TINY, Family
from cctrace.fit.hazards import sums_of_groups
from cctrace.fit.nelder_mead import nelder_mead
from cctrace.path.arrays import central_sd
from cctrace.special import special
from cctrace.tcp.wire import DELAYED_ACK_SEGMENTS

WITHOUT_STALLS = -20.0  # log-odds of stalls where there are none


class Fitted(NamedTuple):
    """A family at its maximum: parameters (the last one: log-odds of stalls), log L."""

    family: Family
    p: np.ndarray
    log_likelihood: float

    @property
    def stalls(self) -> float:
        """Share of the delays that are stalls."""
        return MAX_STALL_SHARE * special.expit(self.p[-1])

    @property
    def moments(self) -> tuple[float, float]:
        """(mean, sd), us."""
        return self.family.moments(self.p[:-1])

    @property
    def aic(self) -> float:
        """Akaike's information criterion; smaller is better."""
        return 2 * len(self.p) - 2 * self.log_likelihood


class Censored:
    """Grouped delays, some of them events (see `families`): the data of the likelihood.

    `delay_us`: t_k - d_i, in the order of the groups. `group` of each delay, ascending from 0. Per group: `event`,
    whether it arrived later than the previous group; `gap_us`, how much later than the packet it may have waited for
    (NaN unknown), for residuals (`goodness`), which use gaps above `clock_us` since hosts may cause shorter ones. If
    not `ordered`, packets overtake each other, and every delay is a draw. `of_event`: rows of the delays of events that
    may have been the late one.
    """

    def __init__(
        self,
        delay_us: Floats,
        group: Ints,
        event: Bools,
        ordered: bool = True,
        gap_us: Floats | None = None,
        clock_us: float = 0.0,
    ) -> None:
        self.delay_us, self.group, self.event, self.ordered = delay_us, group, event, ordered
        self.gap_us = np.full(len(event), np.nan) if gap_us is None else gap_us
        self.clock_us = clock_us
        low, high = float(delay_us.min()), float(delay_us.max())
        self.low, self.high = low, high
        # Half the points by quantile, half evenly.
        spread = np.quantile(np.sort(delay_us), np.linspace(0, 1, GRID_POINTS // 2))  # sorted, many take half the time
        self.grid = np.unique(np.r_[spread, np.linspace(low, high, GRID_POINTS // 2), high + 1.0])
        cell = np.clip(np.searchsorted(self.grid, delay_us, "right") - 1, 0, len(self.grid) - 2)
        self._cell, self._part = cell, (delay_us - self.grid[cell]) / (self.grid[cell + 1] - self.grid[cell])
        self._weights = np.bincount(cell, 1 - self._part, len(self.grid))
        self._weights += np.bincount(cell + 1, self._part, len(self.grid))
        place = np.arange(len(group)) - np.searchsorted(group, group)
        self.of_event = np.flatnonzero(event[group] & (place < DELAYED_ACK_SEGMENTS))
        members = group[self.of_event]
        self._begin = np.flatnonzero(np.diff(members, prepend=-1))
        part = self._part[self.of_event]
        self._places = self._cell[self.of_event], part, 1 - part, self._begin
        self._below = np.log(np.maximum(self.grid - low, 1e-6) / (high - low + 1.0))

    @classmethod
    def independent(cls, draws: Floats) -> Self:
        """Return the data of delays that were all observed, each a group of its own."""
        return cls(draws, np.arange(len(draws)), np.ones(len(draws), bool), ordered=False)

    def tables(self, family: Family, p: Floats, stalls: float) -> tuple[Floats, Floats]:
        """Return log density and log distribution on the grid, `stalls` of them spread evenly over all delays."""
        log_pdf, log_cdf = family.log_pdf_and_cdf(self.grid, p)
        share, keep = np.log(stalls), np.log1p(-stalls)
        even, below = share - np.log(self.high - self.low + 1.0), share + self._below
        return np.logaddexp(log_pdf + keep, even), np.logaddexp(log_cdf + keep, below)

    def log_likelihood(self, family: Family, p: Floats, stalls: float) -> float:
        """Return log L."""
        log_pdf, log_cdf = self.tables(family, p, stalls)
        if not self.ordered:
            return float(self._weights @ log_pdf)
        return float(self._weights @ log_cdf + np.log(self._events(log_pdf, log_cdf) + TINY).sum())

    def _events(self, log_pdf: Floats, log_cdf: Floats) -> Floats:
        """Return the sums of the hazard, f/F, over the delays of each event; overwritten by the next call."""
        hazard, sums, sum_up = self._sums
        np.subtract(log_pdf, log_cdf, out=hazard)
        np.exp(np.minimum(hazard, 50.0, out=hazard), out=hazard)
        sum_up()
        return sums

    @functools.cached_property
    def _sums(self) -> tuple[Floats, Floats, Callable[[], object]]:
        """The hazard on the grid, its sums over events, and the summation function."""
        hazard, sums = np.empty(len(self.grid)), np.empty(len(self._begin))
        return hazard, sums, sums_of_groups.bind(hazard, *self._places, sums)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_sums"}  # functions cannot be pickled

    def per_group(self, family: Family, p: Floats, stalls: float) -> Floats:
        """Return log L per group."""
        log_pdf, log_cdf = self.tables(family, p, stalls)
        below = log_cdf if self.ordered else log_pdf
        below = below[self._cell] * (1 - self._part) + below[self._cell + 1] * self._part
        log_likelihoods = np.bincount(self.group, below, len(self.event)).astype(np.float64, copy=False)
        if not self.ordered:
            return log_likelihoods
        log_likelihoods[self.event] += np.log(self._events(log_pdf, log_cdf) + TINY)
        return log_likelihoods

    def fit(self, family: Family, start: Floats | None = None, stalls: bool = True, quick: bool = False) -> Fitted:
        """Return the `Fitted` maximum of one family.

        `start`: initial parameters. `stalls`: whether some of the delays may be stalls. `quick`: one descent, to half a
        unit of log L.
        """
        event = self.event[self.group]
        observed = self.delay_us[event] if event.any() else self.delay_us
        sd = max(central_sd(observed), 1.0)
        if start is None:
            start = np.array([*family.guess(self.low, float(np.quantile(observed, 0.3)), sd), -3.0])
        start = np.array(start if stalls else start[:-1])  # do not modify the caller's array
        if family.has_minimum:
            start[0] = max(start[0], 0.0)

        def assembled(p: Floats) -> Floats:
            return p if stalls else np.append(p, WITHOUT_STALLS)

        def cost(p: Floats) -> float:
            p = assembled(p)
            if family.has_minimum and not 0 <= p[0] < self.low:
                return 1e15
            if not np.all(np.abs(p[1:]) < 40):
                return 1e15
            value = -self.log_likelihood(family, p[:-1], MAX_STALL_SHARE * special.expit(p[-1]))
            return value if np.isfinite(value) else 1e15

        steps = np.full(len(start), 0.3)
        steps[0] = sd / 3
        for _ in range(1 if quick else 2):  # a simplex may stop early: restart it where it stopped
            simplex = np.vstack([start, start + np.diag(steps)])
            start, least = nelder_mead(cost, simplex, 0.5 if quick else 0.05, 1e-2, 400)
        return Fitted(family, assembled(start), -least)

    def without_stalls(self, fitted: Fitted, quick: bool) -> Fitted:
        """Return the maximum without stalls if it is as good: draws of the family must not pass for stalls."""
        plain = self.fit(fitted.family, fitted.p, stalls=False, quick=quick)
        return plain if plain.log_likelihood > fitted.log_likelihood - MIN_STALL_GAIN else fitted

    def score_rows(self, fitted: Fitted) -> Floats:
        """Return the scores per group at the maximum, (n, parameters), by finite differences in comparable units.

        The first parameter is in units of the sd. The stalls' parameter is omitted if there are none.
        """
        p, family = fitted.p, fitted.family
        scale = np.full(len(p), 0.01)
        scale[0] = max(0.01 * fitted.moments[1], 1e-3)
        has_stalls = p[-1] >= 0.75 * WITHOUT_STALLS
        shifts = np.diag(scale) if has_stalls else np.diag(scale)[:-1]

        def of(q: Floats) -> Floats:
            return self.per_group(family, q[:-1], MAX_STALL_SHARE * special.expit(q[-1]))

        with np.errstate(invalid="ignore"):  # at the edge of a family's domain the result is NaN, and rejected
            return np.column_stack([(of(p + shift) - of(p - shift)) / 0.02 for shift in shifts])
