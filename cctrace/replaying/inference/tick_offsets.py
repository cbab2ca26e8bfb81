"""Leads of a kernel's ticks, at one rate from a flow's first row on, judged by more and more rows (`together`)."""

from collections.abc import Iterable

import numpy as np

from cctrace.columns import Bools, Floats, Ints
from cctrace.lang.machine import Machine
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.together import OUT, RUNS, together
from cctrace.replaying.engine.trying import LOWEST

NOT_BEGUN = 1 << 62  # more rows than any
ROUNDING = 1e-3  # of likelihoods that are compared
MARKS = {"rs_is_app_limited", "skb_tx_app_limited"}  # columns by which a controller reads marks of sends
_together = Machine(together)


class TickOffsets:
    """Up to `most` leads of ticks at a rate, over the rows of a compiled follower, which is at row 0 and stays there.

    `score`: what their likelihood is of: `cx.FULL_FLIGHTS` or `cx.PACED_SENDS`. What a lead reached is kept, so that
    each row is run once.
    """

    def __init__(self, follower: Follower, hz: int, score: int, most: int) -> None:
        self._follower, self._hz, self._score = follower, hz, score
        self._states = np.empty((most, follower.slots.size), np.int64)
        self._stacks = np.empty((most, follower.stack.size), np.int64)
        own_marks = any(MARKS.intersection(columns) for columns in follower.reads.values())
        self._marks = np.empty((most if own_marks else 1, follower.marks.size), np.uint8)
        self._marks[0] = follower.marks
        self._ends, self._totals = np.zeros(most, np.int64), np.zeros(most)
        self._which, self._least = np.zeros(most, np.int64), np.zeros(1)
        kept = np.zeros_like(follower.slots), np.zeros_like(follower.stack)
        likelihood = np.zeros_like(follower.likelihood)
        replay = follower.ctx, follower.stream.tables, follower.sends, self._marks, follower.ack, likelihood
        no_draws, groups = np.full((1, 5), -1, np.int64), np.empty((4, most), np.int64)
        hypotheses = self._which, groups, self._states, self._stacks, kept
        self._run_on = _together.bind(replay, no_draws, *hypotheses, self._ends, self._totals, self._least)
        self._places: dict[int, int] = {}
        self._rows = np.full(most, NOT_BEGUN)  # that each has reached
        self._passed: dict[int, Floats] = {}  # the likelihoods of each on its way to it, NaN where it was not there

    def likelihoods(
        self, leads: Iterable[int], rows: int, margin: float | None = None, least: float = LOWEST
    ) -> Floats:
        """Return the log likelihoods of the first `rows` rows under ticks of some leads, us.

        `margin`, `least`: one that falls short of the greatest likelihood by more than `margin`, or falls below
        `least`, need not be run to the end; what it had reached is returned, which bounds its likelihood where no row
        adds to one (give neither where rows do).
        """
        rows, known = min(rows, len(self._follower.rows)), self._places
        places = np.array([known.setdefault(lead, len(known)) for lead in leads])
        passed = self._passed.setdefault(rows, np.full(len(self._rows), np.nan))
        left = places[np.isnan(passed[places])]
        if margin is not None and len(left):
            goes_on = self._go_on(left, rows)
            reached, total = np.where(goes_on, self._rows[left], 0), np.where(goes_on, self._totals[left], 0.0)
            furthest = reached == reached.max()
            self._go(left[furthest][[np.argmax(total[furthest])]], rows, least)
            best = np.fmax.reduce(passed[places], initial=LOWEST)
            least = max(least, float(best) - margin - ROUNDING)
        self._go(left, rows, least)
        found = passed[places]
        return np.where(np.isnan(found), self._totals[places], found)

    def _go_on(self, places: Ints, rows: int) -> Bools:
        """Return which leads have a state from which `rows` can be reached."""
        return (self._ends[places] != OUT) & (self._rows[places] <= rows)

    def _go(self, places: Ints, rows: int, least: float) -> None:
        """Run leads up to a row, except those that are known to be less likely than `least` before it, by place."""
        left = places[(self._ends[places] != OUT) | (self._totals[places] >= least)]
        left = left[np.isnan(self._passed[rows][left])]
        self._begin(left[~self._go_on(left, rows)])
        reached = self._rows[left]
        for first in sorted(set(reached.tolist())):
            self._run(left[reached == first], first, rows, least)

    def _begin(self, places: Ints) -> None:
        """Start leads, by place."""
        if not len(places):
            return
        follower = self._follower
        self._states[places], self._stacks[places] = follower.slots, follower.stack
        self._states[places, follower.slot("hz")] = self._stacks[places, sk.HZ] = self._hz
        self._stacks[places, sk.TICK_US] += np.fromiter(self._places, np.int64, len(self._places))[places]
        self._stacks[places, sk.NEXT_DRAW] = 0
        self._stacks[places, sk.STATE] = self._states.ctypes.data + places * self._states.strides[0]
        self._ends[places], self._totals[places] = RUNS, 0.0
        if len(self._marks) > 1:
            self._marks[places] = follower.marks
        self._rows[places] = 0

    def _run(self, places: Ints, first: int, rows: int, least: float) -> None:
        """Run leads on from the row that all of them have reached; note the likelihoods of those not ruled out."""
        self._follower.ask(first, rows, self._score, len(places))
        self._which[: len(places)] = places[np.argsort(self._stacks[places, sk.TICK_US], kind="stable")]
        self._least[0] = least
        self._run_on()
        self._follower.check()
        self._rows[places] = rows
        through = places[self._ends[places] != OUT]
        self._passed[rows][through] = self._totals[through]
