"""Hypotheses about what holds from a flow's first row on, judged by more and more rows (`together`)."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cctrace.lang.machine import Machine
from cctrace.replaying import stack as sk
from cctrace.replaying.follow import Follower
from cctrace.replaying.together import OUT, RUNS, together
from cctrace.replaying.trying import NOTHING_LESS

Hypothesis: TypeAlias = tuple[int, int]
ROUNDING = 1e-3  # of likelihoods that are compared
MARKS = {"rs_is_app_limited", "skb_tx_app_limited"}  # columns by which a controller reads marks of sends
_together = Machine(together)


class Race:
    """Up to `most` hypotheses over the rows of a compiled follower, which is at row 0 and stays there.

    `score`: what their likelihood is of: `bk.FULL_FLIGHTS` or `bk.PACED_SENDS`. What a hypothesis reached is kept, so
    that each row is run once.
    """

    def __init__(self, follower: Follower, score: int, most: int) -> None:
        self._follower, self._score = follower, score
        self._states = np.zeros((most, follower.slots.size), np.int64)
        self._stacks = np.zeros((most, follower.stack.size), np.int64)
        own_marks = any(MARKS.intersection(columns) for columns in follower.reads.values())
        marks = np.tile(follower.marks, (most if own_marks else 1, 1))
        self._ends, self._totals = np.zeros(most, np.int64), np.zeros(most)
        self._which, self._least = np.zeros(most, np.int64), np.zeros(1)
        kept = np.zeros((2, follower.slots.size), np.int64), np.zeros((2, follower.stack.size), np.int64)
        kept[1][:, sk.STATE] = [slots.ctypes.data for slots in kept[0]]
        hypotheses = self._which, np.zeros((4, most), np.int64), self._states, self._stacks, kept
        self._run_on = _together.bind(
            *(follower.book, follower.stream.tables, follower.sends, marks, np.full((1, 5), -1, np.int64)),
            *(*hypotheses, self._ends, self._totals, follower.ack, np.zeros_like(follower.likelihood), self._least),
        )
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
        self._follower.ask(self._rows[places[0]], rows, self._score, len(places))
        order = np.lexsort((self._stacks[places, sk.TICK_US], self._stacks[places, sk.HZ]))
        self._which[: len(places)], self._least[0] = np.array(places)[order], least
        self._run_on()
        self._follower.check()
        for k in places:
            self._rows[k] = rows
            if self._ends[k] != OUT:
                self._passed[k][rows] = float(self._totals[k])
