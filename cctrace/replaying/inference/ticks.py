"""Tick rate and phase of the sender's kernel: CUBIC measures time in jiffies.

A capture does not show the ticks: at HZ = 250 a step of CUBIC's curve may come up to 4 ms early or late, and cwnd
be one segment off, which the next ssthresh inherits. But a cwnd-limited sender fills its window: before each ACK in
Open or Disorder, in flight = cwnd (`likelihood.full_flight`). If the recorded sender ran another controller, no
ticks are better than others.

Through fq, TCP Small Queues and longer super-packets mostly keep the flight below cwnd. But there the stack paces by
cwnd, so that the times of departure show each of its steps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from cctrace import schema
from cctrace.cc.linux import CA_DISORDER
from cctrace.columns import Floats
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.likelihood import NOT_FULL
from cctrace.replaying.engine.trying import LOWEST
from cctrace.replaying.inference.hypotheses import FALSE_ALARM
from cctrace.replaying.inference.tick_offsets import TickOffsets

TICKS = 40  # tick phases that are tried, 100 us apart at HZ = 250
FIRST_ROWS = 2_000  # of the stream, tried first
CLEARLY = 3 * math.log(TICKS / FALSE_ALARM)  # less likely ones are dropped; a wrong flight stays wrong for a round
MANY_ROWS, FEW = 8_000, 4  # for the first choice; and flights without which it is open
NEAR = 4  # refinement factor of the last choice
LAST_ROWS = 16_000  # for the last choice, that of HZ, and the first through fq: a step changes the rate by a hundredth
MAX_ROWS = 64_000  # for a choice that fewer leave open
ALMOST = 0.01  # of the flights may not fill the window of the right ticks
FOREIGN = 1.4  # times as unlikely, if all flights were: another controller sent them
ENOUGH = 100  # flights, for that conclusion
CONFIG_HZ = (250, 1000, 300, 100)  # [Linux618] kernel/Kconfig.hz, by frequency of use


def is_paced_by_fq(follower: Follower) -> bool:
    """Return whether the stack paces the sender's packets by cwnd, which it hands to fq."""
    return follower.hands_over and bool(follower.params.get("paced"))


def limited_flights(follower: Follower, rows: int) -> int:
    """Return how many of the first rows show a flight that cwnd limited: ACKs in Open or Disorder."""
    some = follower.events.stream.part(0, rows, ("event", "ca_state", "is_cwnd_limited"))
    acks = (some["event"] == schema.ON_ACK) & (some["ca_state"] <= CA_DISORDER)
    return int(np.count_nonzero(acks & (some["is_cwnd_limited"] != 0)))


def likeliest_ticks(follower: Follower, rates: Sequence[int]) -> tuple[int, int]:
    """Return the tick rate of the sender's kernel, and the lead of its ticks over the connection's clock.

    If the flights are uninformative, the first rate is kept.

    `follower`: compiled, at row 0; it is left there. `rates`: possible HZ, the most likely first.
    """
    follower.set_ticks(follower.params["hz"], 0)
    if len(rates) == 1:
        return rates[0], Phases(follower, rates[0]).chosen()
    number = limited_flights(follower, LAST_ROWS)
    first, *others = [Phases(follower, rate) for rate in rates]
    first.begin(number, others)
    best = first
    for phases in others:
        if best.is_settled and _fits(best.low, number):
            break
        if phases.is_likelier(best):
            best = phases
    return best.hz, best.chosen()


def _fits(likelihood: float, flights: int) -> bool:
    """Return whether so many flights are so likely, or so unlikely, that no other tick rate is to be tried."""
    return likelihood / math.log(NOT_FULL) <= ALMOST * flights or is_foreign(likelihood, flights)


def is_foreign(likelihood: float, flights: int) -> bool:
    """Return whether so many flights are so unlikely that another controller must have sent them."""
    return flights >= ENOUGH and likelihood / math.log(NOT_FULL) > FOREIGN * flights


def _near(leads: Sequence[int], hz: int) -> tuple[int, ...]:
    """Return the leads around some of ticks at a rate, for the last choice."""
    return _around(tuple(leads), 1_000_000 // (hz * TICKS))


@functools.lru_cache(maxsize=64)
def _around(leads: tuple[int, ...], step: int) -> tuple[int, ...]:
    around = np.arange(-2 * NEAR, 2 * NEAR + 1) * step // NEAR
    return tuple(dict.fromkeys(np.add.outer(leads, around).ravel().tolist()))


class _RefutedError(Exception):
    """No phase of ticks at a rate is likely enough."""


class Phases:
    """The phases of ticks at a rate, of a follower at row 0, which is left there.

    `low`, `high`: bounds of the log likelihood of the flights in the first `LAST_ROWS` rows with the phase that is
    chosen.
    """

    def __init__(self, follower: Follower, hz: int) -> None:
        self.follower, self.hz = follower, hz
        self._left = [k * 1_000_000 // (hz * TICKS) for k in range(TICKS)]
        self._rows, self._reached = FIRST_ROWS, 0  # that told the phases apart, and that were looked at
        self._likeliest = self._left[0]
        self._chosen: int | None = None
        self._enough, self._roughly = -math.inf, False
        self._is_short = len(follower.rows) <= FIRST_ROWS
        self.low = self.high = -math.inf
        self.is_settled = False

    @functools.cached_property
    def _full(self) -> TickOffsets:
        return self._race(cx.FULL_FLIGHTS)

    @functools.cached_property
    def _timed(self) -> TickOffsets | None:
        return self._race(cx.PACED_SENDS) if is_paced_by_fq(self.follower) else None

    def _race(self, score: int) -> TickOffsets:
        """Return a race of all that may be tried: leads around those of every phase, and the same within a tick."""
        return TickOffsets(self.follower, self.hz, score, 2 * (2 * NEAR * 2 + 1) * TICKS)

    def likelihoods(self, leads: Sequence[int], rows: int, margin: float | None = None) -> Floats:
        """Return the log likelihoods of the first rows under ticks of some leads, see `TickOffsets.likelihoods`.

        Of the flights and, where they show cwnd, of the times of sends.
        """
        if self._timed is None:  # to run the likeliest first, as a margin does, takes longer than these few rows
            return self._full.likelihoods(leads, rows, None if self._is_short else margin)
        return self._full.likelihoods(leads, rows) + self._timed.likelihoods(leads, rows)

    def chosen(self) -> int:
        """Return the lead of the kernel's ticks over the connection's clock, us."""
        self._narrow()
        if self._chosen is None:
            self._choose()
        assert self._chosen is not None
        return self._chosen

    def begin(self, flights: int, others: Sequence[Phases]) -> None:
        """Settle the likelihood, of so many flights, or only bound it where another rate seems likelier.

        To choose a phase may take many rows, which are not needed if the other rate is likelier with any choice.
        """
        self._narrow()
        if self._chosen is None and len(self._left) > 1 and self._reached < min(MAX_ROWS, len(self.follower.rows)):
            much = self._most(self._left, LAST_ROWS) + CLEARLY
            if any(other._seems_likelier(much) for other in others):
                period = 1_000_000 // self.hz
                choices = [lead % period for lead in _near(self._left, self.hz)]
                found = self._full.likelihoods(choices, LAST_ROWS)
                self.low, self.high = float(found.min()), float(found.max())
                if not _fits(self.high, flights) and not _fits(self.low, flights):
                    return
        self.settle()

    def _seems_likelier(self, enough: float) -> bool:
        """Return whether a phase is likelier than `enough`, those around it left aside."""
        if not self._narrow(enough, roughly=True) or self._chosen is not None:
            return False
        return self._most(self._left, LAST_ROWS, enough) > enough

    def settle(self) -> None:
        """Choose a phase; `low` and `high` are then its likelihood."""
        if not self.is_settled:
            self.low = self.high = self._most([self.chosen()], LAST_ROWS)
            self.is_settled = True

    def is_likelier(self, other: Phases) -> bool:
        """Return whether this rate is clearly likelier than another, which is settled if that matters."""
        if not self._narrow(other.low + CLEARLY):
            return False
        if self._chosen is None:
            most = self._most(_near(self._left, self.hz), LAST_ROWS, other.low + CLEARLY)
            if other.low + CLEARLY < most <= other.high + CLEARLY:
                other.settle()
            if most <= other.high + CLEARLY:
                return False
        self.settle()
        if other.low + CLEARLY < self.low <= other.high + CLEARLY:
            other.settle()
        return self.low > other.high + CLEARLY

    def _most(self, leads: Sequence[int], rows: int, least: float = LOWEST) -> float:
        """Return the greatest log likelihood of the flights in the first rows; below `least`, an upper bound of it."""
        return float(self._full.likelihoods(leads, rows, least=least).max())

    def _narrow(self, enough: float = -math.inf, roughly: bool = False) -> bool:
        """Find the phases that the first `LAST_ROWS` rows leave.

        Return False, as soon as it shows, where no lead that could still be chosen is likelier than `enough`, or
        `roughly`, none of the phases.
        """
        self._enough, self._roughly = enough, roughly
        try:
            if not self._reached and self._chosen is None:
                self._find()
        except _RefutedError:
            return False
        finally:
            self._enough = -math.inf
        return True

    def _find(self) -> None:
        """Find the phases that the first `LAST_ROWS` rows leave; any will do for the flights of another controller."""
        left, rows = self._left, FIRST_ROWS
        if self._is_short and self._enough > -math.inf:  # one look at all that may be chosen mostly decides
            looked_at = left if self._roughly else _near(left, self.hz)
            if self._most(looked_at, rows, self._enough) <= self._enough:
                raise _RefutedError
        apart = len(left) // FEW
        while rows < len(self.follower.rows):
            if rows <= MANY_ROWS:
                self.likelihoods(left, rows)  # most are one by then, and have to be tried anyway
                self.refute(left, rows)
            if np.ptp(likelihood := self.likelihoods(left[::apart], rows)) != 0:
                break
            if is_foreign(likelihood[0], limited_flights(self.follower, rows)):
                self._chosen = 0
                return
            rows *= 2
        self._rows, many = rows, LAST_ROWS if self._timed else MANY_ROWS
        self._likeliest, self._left, self._reached = _likeliest(self, left, rows, many, LAST_ROWS)

    def refute(self, left: Sequence[int], rows: int) -> None:
        """Raise `_RefutedError` if the first rows, which no later one makes likelier, refute what is left."""
        enough = self._enough
        if enough == -math.inf or self._most(left, rows) > enough:
            return
        if self._roughly or self._most(_near(left, self.hz), rows, enough) <= enough:
            raise _RefutedError

    def _choose(self) -> None:
        """Choose among the phases that are left, and those around them."""
        likeliest, many = self._likeliest, LAST_ROWS if self._timed else MANY_ROWS
        if len(self._left) > 1 and self._reached < MAX_ROWS:
            likeliest, _, _ = _likeliest(self, self._left, 2 * self._reached, many, MAX_ROWS)
        around = list(_near([likeliest], self.hz))
        likeliest, _, _ = _likeliest(self, around, max(self._rows, many), LAST_ROWS, MAX_ROWS)
        self._chosen = likeliest % (1_000_000 // self.hz)


def _likeliest(phases: Phases, left: list[int], rows: int, least: int, most: int) -> tuple[int, list[int], int]:
    """Return the likeliest lead after as many rows as decide, up to `most`; what is left then; and the rows.

    Clearly less likely ones are dropped. If only equally likely ones are left after `least` rows, nothing came between
    their ticks, and more rows would hardly tell them apart: one is left.
    """
    while True:
        likelihood = phases.likelihoods(left, rows, CLEARLY)
        best = np.flatnonzero(likelihood == likelihood.max())
        kept = np.flatnonzero(likelihood >= likelihood.max() - CLEARLY)
        phases.refute([left[k] for k in kept], rows)
        likeliest = left[best[len(best) // 2]]  # the middle of the equally likely ones
        if len(kept) == 1 or (rows >= least and len(kept) == len(best)) or rows >= len(phases.follower.rows):
            return likeliest, [likeliest], rows
        left = [left[k] for k in kept]
        if rows >= most:
            return likeliest, left, rows
        rows *= 2
