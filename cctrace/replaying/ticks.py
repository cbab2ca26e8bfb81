"""Tick rate and phase of the sender's kernel: CUBIC measures time in jiffies.

A capture does not show the ticks: at HZ = 250 a step of CUBIC's curve may come up to 4 ms early or late, and cwnd
be one segment off, which the next ssthresh inherits. But a cwnd-limited sender fills its window: before each ACK in
Open or Disorder, in flight = cwnd (`likelihood.full_flight`). If the recorded sender ran another controller, no
ticks are better than others.

Through fq, TCP Small Queues and longer super-packets mostly keep the flight below cwnd. But there the stack paces by
cwnd, so that the times of departure show each of its steps.
"""

import math
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cctrace import schema
from cctrace.cc.linux import CA_DISORDER
from cctrace.flows.events import Events
from cctrace.replaying import book as bk
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import FALSE_ALARM
from cctrace.replaying.likelihood import NOT_FULL
from cctrace.replaying.race import Race
from cctrace.replaying.stack import HZ, TICK_US

TICKS = 40  # tick phases that are tried, 100 us apart at HZ = 250
FIRST_ROWS = 2_000  # of the stream, tried first
CLEARLY = 3 * math.log(TICKS / FALSE_ALARM)  # less likely ones are dropped; a wrong flight stays wrong for a round
MANY_ROWS, FEW = 8_000, 4  # for the first choice; and flights without which it is open
NEAR = 4  # refinement factor of the last choice
LAST_ROWS = 16_000  # for the last choice, that of HZ, and the first through fq: a step changes the rate by a hundredth
MOST_ROWS = 64_000  # for a choice that fewer leave open
ALMOST = 0.01  # of the flights may not fill the window of the right ticks
FOREIGN = 1.4  # times as unlikely, if all flights were: another controller sent them
ENOUGH = 100  # flights, for that conclusion
_flights_of: weakref.WeakKeyDictionary[Events, NDArray[np.int64]] = weakref.WeakKeyDictionary()
CONFIG_HZ = (250, 1000, 300, 100)  # [Linux618] kernel/Kconfig.hz, by frequency of use


def is_paced_by_fq(follower: Follower) -> bool:
    """Return whether the stack paces the sender's packets by cwnd, which it hands to fq."""
    return follower.hands_over and bool(follower.params.get("paced"))


def limited_flights(follower: Follower) -> NDArray[np.int64]:
    """Return how many rows before each row, and in all, show a flight that cwnd limited: ACKs in Open or Disorder."""
    known = _flights_of.get(follower.events)
    if known is not None:
        return known
    rows = follower.rows
    limited = (rows["event"] == schema.LINUX_EVENTS["on_ack"]) & (rows["ca_state"] <= CA_DISORDER)
    return _flights_of.setdefault(follower.events, np.append(0, np.cumsum(limited & (rows["is_cwnd_limited"] != 0))))


def likeliest_ticks(follower: Follower, rates: Sequence[int]) -> tuple[int, int]:
    """Return the tick rate of the sender's kernel, and the lead of its ticks over the connection's clock.

    If the flights are uninformative, the first rate is kept.

    `follower`: compiled, at row 0; it is left there. `rates`: possible HZ, the most likely first.
    """
    given = follower.params["hz"]
    flights = limited_flights(follower)
    best, most = (rates[0], 0), -math.inf
    for rate in rates:
        follower.set_ticks(given, 0)
        tick_us = tick(follower, rate, flights, most + CLEARLY)
        if tick_us is None:
            continue
        if len(rates) == 1:
            return rate, tick_us
        follower.set_ticks(rate, tick_us)
        (likelihood,), _, _ = follower.trials(LAST_ROWS, changes=[{}], score=bk.FULL_FLIGHTS)
        if likelihood > most + CLEARLY:
            best, most = (rate, tick_us), float(likelihood)
        number = int(flights[min(LAST_ROWS, len(follower.rows))])
        if most / math.log(NOT_FULL) <= ALMOST * number or is_foreign(most, number):
            break
    follower.set_ticks(given, 0)
    return best


def is_foreign(likelihood: float, flights: int) -> bool:
    """Return whether so many flights are so unlikely that another controller must have sent them."""
    return flights >= ENOUGH and likelihood / math.log(NOT_FULL) > FOREIGN * flights


def tick(follower: Follower, hz: int, flights: NDArray[np.int64], enough: float = -math.inf) -> int | None:
    """Return the lead of the kernel's ticks over the connection's clock, us, at `hz` ticks per second.

    `flights` has the cumulative number of rows with cwnd-limited flights. None: with whatever lead could be chosen, the
    first `LAST_ROWS` rows are no likelier than `enough`.
    """
    flown = _Flights(follower)
    left = [(hz, k * 1_000_000 // (hz * TICKS)) for k in range(TICKS)]
    apart = len(left) // FEW
    rows = FIRST_ROWS
    while rows < len(follower.rows):
        if rows <= MANY_ROWS:
            flown.likelihoods(left, rows)  # most are one by then, and have to be tried anyway
        if np.ptp(likelihood := flown.likelihoods(left[::apart], rows)) != 0:
            break
        if is_foreign(likelihood[0], flights[rows]):
            return 0
        rows *= 2
    many = LAST_ROWS if is_paced_by_fq(follower) else MANY_ROWS
    likeliest, left, reached = _likeliest(flown, left, rows, many, LAST_ROWS)
    if enough > -math.inf and flown.most(_near(left)) <= enough:
        return None
    if len(left) > 1 and reached < MOST_ROWS:
        likeliest, _, _ = _likeliest(flown, left, 2 * reached, many, MOST_ROWS)
    likeliest, _, _ = _likeliest(flown, _near([likeliest]), max(rows, many), LAST_ROWS, MOST_ROWS)
    return likeliest[1] % (1_000_000 // hz)


def _near(hypotheses: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return hypotheses about a tick rate, with the leads around those of some, for the last choice."""
    step = 1_000_000 // (hypotheses[0][0] * TICKS)
    around = range(-2 * NEAR, 2 * NEAR + 1)
    return list(dict.fromkeys((hz, lead + k * step // NEAR) for hz, lead in hypotheses for k in around))


class _Flights:
    """The flights of a follower at row 0, and the times of its sends where they show cwnd, under several ticks."""

    def __init__(self, follower: Follower) -> None:
        self.follower, most = follower, TICKS + 4 * NEAR + 1
        self.full = Race(follower, bk.FULL_FLIGHTS, most)
        self.timed = Race(follower, bk.PACED_SENDS, most) if is_paced_by_fq(follower) else None

    def likelihoods(
        self, hypotheses: Sequence[tuple[int, int]], rows: int, margin: float | None = None
    ) -> NDArray[np.float64]:
        """Return the log likelihoods of the first rows under ticks of some rates and leads, see `Race.likelihoods`."""
        changes = self._changes(hypotheses)
        if self.timed is None:
            return self.full.likelihoods(changes, rows, margin)
        return self.full.likelihoods(changes, rows) + self.timed.likelihoods(changes, rows)

    def most(self, hypotheses: Sequence[tuple[int, int]]) -> float:
        """Return the greatest log likelihood of the flights in the first `LAST_ROWS` rows."""
        race = Race(self.follower, bk.FULL_FLIGHTS, len(hypotheses))
        return float(race.likelihoods(self._changes(hypotheses), LAST_ROWS, 0.0).max())

    def _changes(self, hypotheses: Sequence[tuple[int, int]]) -> dict[tuple[int, int], dict[int, int]]:
        given, of_hz = self.follower.params["hz"], self.follower.slot("hz")
        return {
            (rate, lead): {of_hz: rate - given, -1 - HZ: rate - given, -1 - TICK_US: lead} for rate, lead in hypotheses
        }


def _likeliest(
    flown: _Flights, left: list[tuple[int, int]], rows: int, least: int, most: int
) -> tuple[tuple[int, int], list[tuple[int, int]], int]:
    """Return the likeliest hypothesis after as many rows as decide, up to `most`; what is left then; and the rows.

    Clearly less likely ones are dropped. If only equally likely ones are left after `least` rows, nothing came between
    their ticks, and more rows would hardly tell them apart: one is left.
    """
    while True:
        likelihood = flown.likelihoods(left, rows, CLEARLY)
        best = np.flatnonzero(likelihood == likelihood.max())
        kept = np.flatnonzero(likelihood >= likelihood.max() - CLEARLY)
        likeliest = left[best[len(best) // 2]]  # the middle of the equally likely ones
        if len(kept) == 1 or (rows >= least and len(kept) == len(best)) or rows >= len(flown.follower.rows):
            return likeliest, [likeliest], rows
        left = [left[k] for k in kept]
        if rows >= most:
            return likeliest, left, rows
        rows *= 2
