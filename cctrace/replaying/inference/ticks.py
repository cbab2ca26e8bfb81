"""HZ and the phase of jiffies of the kernel of a recorded CUBIC, which measures time in jiffies (bictcp_update).

No capture contains them. At HZ = 250 a step of CUBIC's curve may come up to 4 ms early or late, and cwnd be one segment
off, which the next ssthresh inherits. But a cwnd-limited sender fills its window: before each ACK in Open or Disorder,
the data in flight equal cwnd (`likelihood.full_flight`), with the right ticks. If the recorded sender ran another
controller, no ticks are better than others.

Through fq, TCP Small Queues and longer super-packets mostly keep the data in flight below cwnd. But there the stack
paces by cwnd, so that departure times show each of its steps (`likelihood.paced_send`).
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Sequence

import numpy as np

from cctrace import schema
from cctrace.cc.linux import CA_DISORDER
from cctrace.columns import Floats
from cctrace.lang.threads import Guess
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.likelihood import NOT_FULL
from cctrace.replaying.engine.trying import LOWEST
from cctrace.replaying.inference.hypotheses import FALSE_ALARM
from cctrace.replaying.inference.tick_offsets import TickOffsets

PHASES = 40  # that are tried first, 100 us apart at HZ = 250
FIRST_ROWS = 2_000  # of the stream, with which the search begins
# Log likelihood ratio by which a phase must be less likely to be dropped; times 3, as a wrong window stays wrong for a
# round trip.
CLEARLY = 3 * math.log(PHASES / FALSE_ALARM)
MANY_ROWS = 8_000  # after which equally likely phases are not told apart any more
FEW = 4  # phases that are compared first: if they are equal, more rows are needed
NEAR = 4  # refinement of the phases that are tried last
LAST_ROWS = 16_000  # by which HZ is chosen; through fq also the phase, as a step changes the rate by only a hundredth
MAX_ROWS = 64_000  # by which a phase is chosen if fewer do not decide
ALMOST = 0.01  # share of the ACKs before which the window may not be full with the right ticks
FOREIGN = 1.4  # times as unlikely as if the window was never full: another controller sent the flow
ENOUGH = 100  # ACKs, at least, for that conclusion
CONFIG_HZ = (250, 1000, 300, 100)  # [Linux618] kernel/Kconfig.hz, by frequency of use


def is_paced_by_fq(follower: Follower) -> bool:
    """Return whether the stack paces the sender's packets by cwnd, which it hands to fq."""
    return follower.hands_over and bool(follower.params.get("paced"))


def limited_flights(follower: Follower, rows: int) -> int:
    """Return how many of the first rows are ACKs in Open or Disorder before which cwnd limited the data in flight."""
    some = follower.events.stream.part(0, rows, ("event", "ca_state", "is_cwnd_limited"))
    acks = (some["event"] == schema.ON_ACK) & (some["ca_state"] <= CA_DISORDER)
    return int(np.count_nonzero(acks & (some["is_cwnd_limited"] != 0)))


def likeliest_ticks(follower: Follower, rates: Sequence[int]) -> tuple[int, int]:
    """Return HZ of the sender's kernel, and the offset of its ticks from the connection's clock, us.

    If the data in flight do not tell, it is the first rate.

    `follower`: compiled, at row 0; it is left there. `rates`: possible HZ, the most likely first.
    """
    follower.set_ticks(follower.params["hz"], 0)
    if len(rates) == 1:
        return rates[0], Phases(follower, rates[0]).chosen()
    number = limited_flights(follower, LAST_ROWS)
    first, *others = [Phases(follower, rate) for rate in rates]
    first.begin(number, others)
    best, last = first, others[-1]
    with Guess(functools.partial(last.is_likelier, first)) as is_last:  # mostly the first rate remains the best
        if len(others) > 1 and not first.fits(number) and len(follower.rows) > LAST_ROWS:
            is_last.begin()
        for phases in others:
            if best.fits(number):
                break
            if is_last.result() if phases is last and best is first else phases.is_likelier(best):
                best = phases
                is_last.stop()  # it compares with another
    return best.hz, best.chosen()


def _fits(likelihood: float, flights: int) -> bool:
    """Return whether the log likelihood of so many ACKs is so high, or so low, that no other rate need be tried."""
    return likelihood / math.log(NOT_FULL) <= ALMOST * flights or is_foreign(likelihood, flights)


def is_foreign(likelihood: float, flights: int) -> bool:
    """Return whether the log likelihood of so many ACKs is so low that another controller must have sent the flow."""
    return flights >= ENOUGH and likelihood / math.log(NOT_FULL) > FOREIGN * flights


def _near(offsets: Sequence[int], hz: int) -> tuple[int, ...]:
    """Return the offsets around given ones, which are tried last."""
    return _around(tuple(offsets), 1_000_000 // (hz * PHASES))


@functools.lru_cache(maxsize=64)
def _around(offsets: tuple[int, ...], step: int) -> tuple[int, ...]:
    around = np.arange(-2 * NEAR, 2 * NEAR + 1) * step // NEAR
    return tuple(dict.fromkeys(np.add.outer(offsets, around).ravel().tolist()))


class _RefutedError(Exception):
    """No phase at a tick rate is likely enough."""


class Phases:
    """The phases of ticks at one rate, for a follower at row 0, which is left there.

    `low`, `high`: bounds of the log likelihood of the first `LAST_ROWS` rows with the phase that will be chosen.
    """

    def __init__(self, follower: Follower, hz: int) -> None:
        self.follower, self.hz = follower, hz
        self._left = [k * 1_000_000 // (hz * PHASES) for k in range(PHASES)]
        self._rows, self._reached = FIRST_ROWS, 0  # rows that first told phases apart, and rows looked at so far
        self._likeliest = self._left[0]
        self._chosen: int | None = None
        self._enough, self._roughly = -math.inf, False
        self._is_short = len(follower.rows) <= FIRST_ROWS
        self.low = self.high = -math.inf
        self.is_settled = False
        self._settling = threading.Lock()  # two threads may compare rates with this one

    @functools.cached_property
    def _full(self) -> TickOffsets:
        return self._offsets(cx.FULL_FLIGHTS)

    @functools.cached_property
    def _timed(self) -> TickOffsets | None:
        return self._offsets(cx.PACED_SENDS) if is_paced_by_fq(self.follower) else None

    def _offsets(self, score: int) -> TickOffsets:
        """Return likelihoods of all offsets that may be tried: those around every phase, as such and within a tick."""
        return TickOffsets(self.follower, self.hz, score, 2 * (2 * NEAR * 2 + 1) * PHASES)

    def likelihoods(self, offsets: Sequence[int], rows: int, margin: float | None = None) -> Floats:
        """Return the log likelihoods of the first rows with some offsets, see `TickOffsets.likelihoods`.

        They count the data in flight and, if fq paces by cwnd, departure times.
        """
        if self._timed is None:  # with a margin, one offset is run first, which in so few rows takes longer
            return self._full.likelihoods(offsets, rows, None if self._is_short else margin)
        return self._full.likelihoods(offsets, rows) + self._timed.likelihoods(offsets, rows)

    def chosen(self) -> int:
        """Return the offset of the kernel's ticks from the connection's clock, us."""
        self._narrow()
        if self._chosen is None:
            self._choose()
        assert self._chosen is not None
        return self._chosen

    def begin(self, flights: int, others: Sequence[Phases]) -> None:
        """Find the likelihood of this rate, of so many ACKs; only its bounds if another rate seems likelier.

        To choose a phase may take many rows, which are not needed if the other rate is likelier whatever the choice.
        """
        self._narrow()
        if self._chosen is None and len(self._left) > 1 and self._reached < min(MAX_ROWS, len(self.follower.rows)):
            enough = self._most(self._left, LAST_ROWS) + CLEARLY
            if any(other._seems_likelier(enough) for other in others):
                period = 1_000_000 // self.hz
                choices = [offset % period for offset in _near(self._left, self.hz)]
                likelihoods = self._full.likelihoods(choices, LAST_ROWS)
                self.low, self.high = float(likelihoods.min()), float(likelihoods.max())
                if not _fits(self.high, flights) and not _fits(self.low, flights):
                    return
        self.settle()

    def _seems_likelier(self, enough: float) -> bool:
        """Return whether one of the phases, without those around them, is likelier than `enough`."""
        if not self._narrow(enough, roughly=True) or self._chosen is not None:
            return False
        return self._most(self._left, LAST_ROWS, enough) > enough

    def settle(self) -> None:
        """Choose a phase; `low` and `high` are both its likelihood then."""
        with self._settling:
            if not self.is_settled:
                self.low = self.high = self._most([self.chosen()], LAST_ROWS)
                self.is_settled = True

    def fits(self, flights: int) -> bool:
        """Return whether a phase is chosen, and no other rate need be tried.

        `begin` leaves it open only where no phase between its bounds fits, so it does not matter when it is settled.
        """
        return self.is_settled and _fits(self.low, flights)

    def is_likelier(self, other: Phases) -> bool:
        """Return whether this rate is clearly likelier than another, whose phase is chosen if that matters."""
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

    def _most(self, offsets: Sequence[int], rows: int, least: float = LOWEST) -> float:
        """Return the greatest log likelihood of the data in flight in the first rows; below `least`, an upper bound."""
        return float(self._full.likelihoods(offsets, rows, least=least).max())

    def _narrow(self, enough: float = -math.inf, roughly: bool = False) -> bool:
        """Find the phases that the first `LAST_ROWS` rows do not rule out.

        Returns False as soon as it shows that no offset that could be chosen (`roughly`: none of the phases themselves)
        is likelier than `enough`.
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
        """Find the phases that the first `LAST_ROWS` rows do not rule out; for another controller, any will do."""
        left, rows = self._left, FIRST_ROWS
        if self._is_short and self._enough > -math.inf:  # to try all that may be chosen at once mostly decides
            tried = left if self._roughly else _near(left, self.hz)
            if self._most(tried, rows, self._enough) <= self._enough:
                raise _RefutedError
        apart = len(left) // FEW
        while rows < len(self.follower.rows):
            if rows <= MANY_ROWS:
                self.likelihoods(left, rows)  # by then most form one group (`together`), and they are needed anyway
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
        """Raise `_RefutedError` if the first rows rule out the phases that are left: no later row adds likelihood."""
        enough = self._enough
        if enough == -math.inf or self._most(left, rows) > enough:
            return
        if self._roughly or self._most(_near(left, self.hz), rows, enough) <= enough:
            raise _RefutedError

    def _choose(self) -> None:
        """Choose among the phases that are left, and then among offsets around the best one."""
        likeliest, many = self._likeliest, LAST_ROWS if self._timed else MANY_ROWS
        if len(self._left) > 1 and self._reached < MAX_ROWS:
            likeliest, _, _ = _likeliest(self, self._left, 2 * self._reached, many, MAX_ROWS)
        around = list(_near([likeliest], self.hz))
        likeliest, _, _ = _likeliest(self, around, max(self._rows, many), LAST_ROWS, MAX_ROWS)
        self._chosen = likeliest % (1_000_000 // self.hz)


def _likeliest(phases: Phases, left: list[int], rows: int, least: int, most: int) -> tuple[int, list[int], int]:
    """Return the likeliest offset after as many rows as decide, up to `most`; the offsets left then; and the rows.

    Clearly less likely ones are dropped. If those left after `least` rows are equally likely, no call came between
    their ticks, and more rows would hardly tell them apart: the middle one is returned.
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
