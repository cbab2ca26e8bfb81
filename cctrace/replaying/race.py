"""Hypotheses about what holds from a flow's first row on, judged by more and more rows (`trying.together`)."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cctrace.lang.machine import Machine
from cctrace.lang.threads import cores, each
from cctrace.replaying import book as bk
from cctrace.replaying import stack as sk
from cctrace.replaying.follow import Follower
from cctrace.replaying.trying import NOTHING_LESS, OUT, RUNS, together

Hypothesis: TypeAlias = tuple[int, int]
ROUNDING = 1e-3  # of likelihoods that are compared
LANES, MANY = 2, 50_000  # threads, where so many rows are run in all (1 ms)
_together = Machine(together)


class _Lane:
    """A part of the hypotheses, run by one thread: with a controller's view and a likelihood of its own."""

    def __init__(self, marks: NDArray[np.uint8], state: tuple[NDArray[np.generic], ...], follower: Follower) -> None:
        self._asked, self._book, ack = follower.book, follower.book.copy(), np.zeros_like(follower.ack)
        self._book[bk.ACK] = self._own = ack.ctypes.data
        self._which, self._least = np.zeros(len(marks), np.int64), np.zeros(1)
        rest = np.full((1, 5), -1, np.int64), self._which, *state, ack, np.zeros_like(follower.likelihood), self._least
        self._run_on = _together.bind(self._book, follower.stream.tables, follower.sends, marks, *rest)

    def run(self, places: Sequence[int], least: float) -> None:
        """Run hypotheses as the follower's book asks; see `trying.together`."""
        self._book[:] = self._asked
        self._book[bk.ACK], self._book[bk.HYPOTHESES] = self._own, len(places)
        self._which[: len(places)], self._least[0] = places, least
        self._run_on()


class Race:
    """Up to `most` hypotheses over the rows of a compiled follower, which is at row 0 and stays there.

    `score`: what their likelihood is of: `bk.FULL_FLIGHTS` or `bk.PACED_SENDS`. What a hypothesis reached is kept, so
    that each row is run once.
    """

    def __init__(self, follower: Follower, score: int, most: int) -> None:
        self._follower, self._score = follower, score
        self._states = np.zeros((most, follower.slots.size), np.int64)
        self._stacks = np.zeros((most, follower.stack.size), np.int64)
        self._marks = np.tile(follower.marks, (most, 1))
        self._ends, self._totals = np.zeros(most, np.int64), np.zeros(most)
        state = self._states, self._stacks, self._ends, self._totals
        self._lanes = [_Lane(self._marks, state, follower) for _ in range(min(cores(), LANES))]
        self._places: dict[Hypothesis, int] = {}
        self._rows = [0] * most  # that each has reached
        self._passed: list[dict[int, float]] = [{} for _ in range(most)]  # the likelihoods on its way

    def likelihoods(
        self, hypotheses: Mapping[Hypothesis, Mapping[int, int]], rows: int, margin: float | None = None
    ) -> NDArray[np.float64]:
        """Return the log likelihoods of the first `rows` rows under each of some hypotheses.

        `hypotheses`: what each changes, as in `Follower.trials`. `margin`: of those that miss the greatest likelihood
        by more, it need not be known how much more; there are none without one, and no row adds to a likelihood.
        """
        rows = min(rows, len(self._follower.rows))
        places = [self._place(hypothesis, changes, rows) for hypothesis, changes in hypotheses.items()]
        left = [k for k in places if rows not in self._passed[k]]
        least = NOTHING_LESS
        if margin is not None and left:
            left.sort(key=lambda k: (self._rows[k], self._totals[k]), reverse=True)
            self._run(left[:1], rows, least)  # presumably the likeliest one
            least = max(self._passed[k][rows] for k in places if rows in self._passed[k]) - margin - ROUNDING
        for first in sorted({self._rows[k] for k in left}):
            self._run([k for k in left if self._rows[k] == first and rows not in self._passed[k]], rows, least)
        return np.array([self._passed[k].get(rows, self._totals[k]) for k in places])

    def _place(self, hypothesis: Hypothesis, changes: Mapping[int, int], rows: int) -> int:
        """Return where a hypothesis has its state; let it begin, if it has none from which `rows` can be reached."""
        known = hypothesis in self._places
        k = self._places.setdefault(hypothesis, len(self._places))
        if not known or (rows not in self._passed[k] and (self._ends[k] == OUT or self._rows[k] > rows)):
            follower = self._follower
            self._states[k], self._stacks[k] = follower.slots, follower.stack
            for slot, value in changes.items():
                if slot >= 0:
                    self._states[k, slot] += value
                else:
                    self._stacks[k, -1 - slot] += value
            self._stacks[k, [sk.NEXT_DRAW, sk.STATE]] = 0, self._states[k].ctypes.data
            self._ends[k], self._totals[k], self._rows[k] = RUNS, 0.0, 0
        return k

    def _run(self, places: Sequence[int], rows: int, least: float) -> None:
        """Run hypotheses that have reached one row on to another, where those that are not out of it have passed."""
        if not places:
            return
        first = self._rows[places[0]]
        self._follower.ask(first, rows, self._score)
        many = min(len(self._lanes), len(places)) if (rows - first) * len(places) > MANY else 1
        part = -(-len(places) // many)  # neighbours, which have lines of memory in common
        parts = [(self._lanes[k], sorted(places)[k * part : (k + 1) * part]) for k in range(many)]
        each(lambda lane: lane[0].run(lane[1], least), parts)
        self._follower.check()
        for k in places:
            self._rows[k] = rows
            if self._ends[k] != OUT:
                self._passed[k][rows] = float(self._totals[k])
