"""Delays in groups, of which some are only known not to be longer: `families` has their likelihood."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.fit.constants import GRID
from cctrace.fit.hazards import sums_of_groups
from cctrace.path.arrays import Bools, Floats, Ints
from cctrace.tcp.wire import DELAYED_ACK_SEGMENTS

if TYPE_CHECKING:
    from cctrace.fit.families import Family

_TINY = 1e-300


class Censored:
    """Grouped delays, some of them events (see `families`): the data of the likelihood.

    `delay_us`: t_k - d_i, in the order of the groups. `group` of each delay, ascending from 0. Per group: `event`,
    whether it arrived later than the previous group; `gap_us`, how much later than the packet it may have waited for
    (NaN unknown), for residuals (`goodness`), which use gaps above `clock_us` since hosts may cause shorter ones. If
    not `ordered`, packets overtake each other, and every delay is a draw.
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
        spread = np.quantile(np.sort(delay_us), np.linspace(0, 1, GRID // 2))  # sorted, many take half the time
        self.grid = np.unique(np.r_[spread, np.linspace(low, high, GRID // 2), high + 1.0])
        cell = np.clip(np.searchsorted(self.grid, delay_us, "right") - 1, 0, len(self.grid) - 2)
        self._cell, self._part = cell, (delay_us - self.grid[cell]) / (self.grid[cell + 1] - self.grid[cell])
        self._weights = np.bincount(cell, 1 - self._part, len(self.grid))
        self._weights += np.bincount(cell + 1, self._part, len(self.grid))
        place = np.arange(len(group)) - np.searchsorted(group, group)
        self._of_event = np.flatnonzero(event[group] & (place < DELAYED_ACK_SEGMENTS))
        members = group[self._of_event]
        self._begin = np.flatnonzero(np.diff(members, prepend=-1))
        part = self._part[self._of_event]
        self._places = self._cell[self._of_event], part, 1 - part, self._begin
        self._below = np.log(np.maximum(self.grid - low, 1e-6) / (high - low + 1.0))

    def tables(self, family: Family, p: Floats, stalls: float) -> tuple[Floats, Floats]:
        """Return log density and log distribution on the grid, `stalls` of them spread evenly over all delays."""
        log_pdf, log_cdf = family.log_pdf(self.grid, p), family.log_cdf(self.grid, p)
        span = self.high - self.low + 1.0
        even, below = np.log(stalls) - np.log(span), np.log(stalls) + self._below
        keep = np.log1p(-stalls)
        return np.logaddexp(log_pdf + keep, even), np.logaddexp(log_cdf + keep, below)

    def log_likelihood(self, family: Family, p: Floats, stalls: float) -> float:
        """Return log L."""
        log_pdf, log_cdf = self.tables(family, p, stalls)
        if not self.ordered:
            return float(self._weights @ log_pdf)
        return float(self._weights @ log_cdf + np.log(self._events(log_pdf, log_cdf) + _TINY).sum())

    def _events(self, log_pdf: Floats, log_cdf: Floats) -> Floats:
        """Return the sums of the hazard, f/F, over the delays of each event; overwritten by the next call."""
        hazard, found, sum_up = self._sums
        np.exp(np.minimum(log_pdf - log_cdf, 50.0), out=hazard)
        sum_up()
        return found

    @functools.cached_property
    def _sums(self) -> tuple[Floats, Floats, Callable[[], object]]:
        """The hazard on the grid, its sums over events, and the summation function."""
        hazard, found = np.empty(len(self.grid)), np.empty(len(self._begin))
        return hazard, found, sums_of_groups.bind(hazard, *self._places, found)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_sums"}  # functions cannot be pickled

    def per_group(self, family: Family, p: Floats, stalls: float) -> Floats:
        """Return log L per group."""
        log_pdf, log_cdf = self.tables(family, p, stalls)
        below = log_cdf if self.ordered else log_pdf
        below = below[self._cell] * (1 - self._part) + below[self._cell + 1] * self._part
        each = np.bincount(self.group, below, len(self.event)).astype(np.float64, copy=False)
        if not self.ordered:
            return each
        each[self.event] += np.log(self._events(log_pdf, log_cdf) + _TINY)
        return each
