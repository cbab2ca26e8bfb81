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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace import schema
from cctrace.cc.linux import CA_DISORDER
from cctrace.flows.events import Events
from cctrace.replaying import book as bk
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import FALSE_ALARM, Inference, Phase
from cctrace.replaying.likelihood import NOT_FULL
from cctrace.replaying.race import Race
from cctrace.replaying.script import TICK, Edit
from cctrace.replaying.stack import HZ, TICK_US, WAS_FULL

TICKS = 40  # tick phases that are tried, 100 us apart at HZ = 250
FIRST_ROWS = 2_000  # of the stream, tried first
CLEARLY = 3 * math.log(TICKS / FALSE_ALARM)  # less likely ones are dropped; a wrong flight stays wrong for a round
MANY_ROWS, FEW = 8_000, 4  # for the first choice; and flights without which it is open
NEAR = 4  # refinement factor of the last choice
LAST_ROWS = 16_000  # for the last choice, that of HZ, and the first through fq: a step changes the rate by a hundredth
MOST_ROWS = 64_000  # for a choice that fewer leave open
SPAN_US = 500_000  # for which a tick may lie elsewhere
MORE = 1.1  # times as unlikely as usual
SHIFTS_US = (-50, 50, -100, 100, -200, 200, -400, 400, -800, 800)
ALMOST = 0.01  # of the flights may not fill the window of the right ticks
FOREIGN = 1.4  # times as unlikely, if all flights were: another controller sent them
ENOUGH = 100  # flights, for that conclusion
_flights_of: weakref.WeakKeyDictionary[Events, NDArray[np.int64]] = weakref.WeakKeyDictionary()
CONFIG_HZ = (250, 1000, 300, 100)  # [Linux618] kernel/Kconfig.hz, by frequency of use


class Ticks(Inference):
    """CUBIC's clock: an ACK whose time is some microseconds off may fall into another tick."""

    follower: Follower

    def __init__(self, follower: Follower, flights: NDArray[np.int64] | None = None) -> None:
        super().__init__(follower)
        self.flights = limited_flights(follower) if flights is None else flights
        tick_us = 1_000_000 // follower.params["hz"]
        self.shifts = [shift for shift in SHIFTS_US if abs(shift) < tick_us / 2]
        self.likelihood = 0.0  # of the flights
        self.usual = -1e9  # the best mean of a span so far

    def run(self, rows: int | None = None, least: float = -math.inf) -> None:
        """Run on (to the end); if flights do not fill the window, test whether another tick lets them.

        Stop if the likelihood falls below `least`.
        """
        follower = self.follower
        rows = len(follower.rows) if rows is None else rows
        row = follower.row
        ways = {
            row: (0.0, follower.save())
        }  # likelihood until, and state at, rows that are passed without another tick
        while row < rows and self.likelihood >= least:
            stop, last = self.after(SPAN_US, row), self.after(2 * SPAN_US, row)
            for further in (stop, last):
                self.pass_to(further, ways)
            now, flights = ways[last][0] - ways[row][0], self.flights[last] - self.flights[row]
            if self.is_usual(now, flights):
                self.note(now, flights)
                ways = {k: way for k, way in ways.items() if k >= stop}
            else:
                follower.restore(ways[row][1])
                shift = self.shift(last)
                if shift:
                    self.edit(shift)
                follower.run(stop)
                if shift:
                    self.edit(-shift)
                ways = {stop: (0.0, follower.save())}
            row = stop
        follower.restore(ways[row][1])

    def pass_to(self, row: int, ways: dict[int, tuple[float, tuple[Any, ...]]]) -> None:
        """Run on to a row, if it was not passed; add the likelihood of the flights until there, and the state."""
        follower, was_full = self.follower, int(self.follower.stack[WAS_FULL])
        if row not in ways:
            before, follower.likelihood[0] = ways[follower.row][0], 0.0
            follower.run(row, bk.FULL_FLIGHTS)
            follower.stack[WAS_FULL] = was_full  # of scores of sends only
            ways[row] = before + float(follower.likelihood[0]), follower.save()

    def is_usual(self, likelihood: float, flights: int) -> bool:
        """Return whether no more flights fail to fill the window than in other spans.

        Some never do (delayed ACKs, bursts); more of them than usual indicate a wrong tick.
        """
        return likelihood >= self.usual * MORE * flights - CLEARLY or is_foreign(likelihood, flights)

    def note(self, likelihood: float, flights: int) -> None:
        """Note the flights of a span."""
        self.likelihood += likelihood
        self.usual = max(self.usual, likelihood / max(flights, 1))

    def edit(self, shift_us: int) -> None:
        """Move the ticks earlier from here on, and record the edit."""
        self.edits.append(Edit(self.follower.row, TICK, shift_us))
        self.follower.edit(self.edits[-1])

    def shift(self, last: int) -> int:
        """Return the lead of ticks, us, that explains the flights up to row `last` clearly better; 0 for none."""
        follower = self.follower
        (now,), _, _ = follower.trials(last, changes=[{}], score=bk.FULL_FLIGHTS)
        flights = self.flights[last] - self.flights[follower.row]
        usual = self.is_usual(now, flights)
        self.note(now, flights)
        if usual:
            return 0
        changes = [{-1 - TICK_US: shift} for shift in self.shifts]
        likelihood, _, _ = follower.trials(last, changes=changes, score=bk.FULL_FLIGHTS)
        best = int(np.argmax(likelihood))
        sure = math.log(len(changes) / FALSE_ALARM)
        if likelihood[best] - now <= sure:
            return 0
        if is_paced_by_fq(follower):
            sent, _, _ = follower.trials(last, changes=[{}, changes[best]], score=bk.PACED_SENDS)
            if sent[1] - sent[0] <= sure:
                return 0
        self.likelihood += float(likelihood[best]) - now
        self.usual = max(self.usual, float(likelihood[best]) / max(flights, 1))
        self.found.append(Phase(follower.row, self.shifts[best], float(likelihood[best])))
        return self.shifts[best]


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
    before, given = follower.save(), follower.params["hz"]
    flights = limited_flights(follower)
    best, most = (rates[0], 0), -math.inf
    for rate in rates:
        follower.set_ticks(given, 0)
        ticks = rate, tick(follower, rate, flights)
        if len(rates) == 1:
            return ticks
        follower.set_ticks(*ticks)
        work = Ticks(follower, flights)
        work.run(min(LAST_ROWS, len(follower.rows)), most + CLEARLY)
        follower.restore(before)
        if work.likelihood > most + CLEARLY:
            best, most = ticks, work.likelihood
        weight = 2 * flights[min(LAST_ROWS, len(follower.rows))]  # each twice
        if most / math.log(NOT_FULL) <= ALMOST * weight or is_foreign(most, weight):
            break
    follower.set_ticks(given, 0)
    return best


def is_foreign(likelihood: float, flights: int) -> bool:
    """Return whether so many flights are so unlikely that another controller must have sent them."""
    return flights >= ENOUGH and likelihood / math.log(NOT_FULL) > FOREIGN * flights


def tick(follower: Follower, hz: int, flights: NDArray[np.int64]) -> int:
    """Return the lead of the kernel's ticks over the connection's clock, us, at `hz` ticks per second.

    `flights` has the cumulative number of rows with cwnd-limited flights.
    """
    flown = _Flights(follower)
    left = [(hz, k * 1_000_000 // (hz * TICKS)) for k in range(TICKS)]
    few = left[:: len(left) // FEW]
    rows = FIRST_ROWS
    while rows < len(follower.rows) and np.ptp(likelihood := flown.likelihoods(few, rows)) == 0:
        if is_foreign(likelihood[0], flights[rows]):
            return 0
        rows *= 2
    many = LAST_ROWS if is_paced_by_fq(follower) else MANY_ROWS
    best_us = _likeliest(flown, left, rows, many)
    step = 1_000_000 // (hz * TICKS)
    near = [(hz, best_us + k * step // NEAR) for k in range(-2 * NEAR, 2 * NEAR + 1)]
    return _likeliest(flown, near, max(rows, many), LAST_ROWS) % (1_000_000 // hz)


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
        given = self.follower.params["hz"]
        of_hz = self.follower.slot("hz")
        changes = {
            (rate, lead): {of_hz: rate - given, -1 - HZ: rate - given, -1 - TICK_US: lead} for rate, lead in hypotheses
        }
        if self.timed is None:
            return self.full.likelihoods(changes, rows, margin)
        return self.full.likelihoods(changes, rows) + self.timed.likelihoods(changes, rows)


def _likeliest(flown: _Flights, left: list[tuple[int, int]], rows: int, least: int) -> int:
    """Return the lead of the likeliest hypothesis, us, after as many rows as decide, up to `MOST_ROWS`.

    Clearly less likely ones are dropped. If only equally likely ones are left after `least` rows, nothing came between
    their ticks, and more rows would hardly tell them apart.
    """
    while True:
        likelihood = flown.likelihoods(left, rows, CLEARLY)
        best = np.flatnonzero(likelihood == likelihood.max())
        kept = np.flatnonzero(likelihood >= likelihood.max() - CLEARLY)
        is_decided = len(kept) == 1 or (rows >= least and len(kept) == len(best))
        if is_decided or rows >= min(MOST_ROWS, len(flown.follower.rows)):
            return left[best[len(best) // 2]][1]  # the middle of the equally likely ones
        left = [left[k] for k in kept]
        rows *= 2
