"""Hypotheses about what holds from a flow's first row on, judged by more and more rows (`together`)."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from cctrace.columns import Floats
from cctrace.lang.machine import Machine
from cctrace.replaying import stack as sk
from cctrace.replaying.follow import Follower
from cctrace.replaying.together import OUT, RUNS, together
from cctrace.replaying.trying import NOTHING_LESS

Hypothesis: TypeAlias = tuple[int, int]
NOT_BEGUN = 1 << 62  # more rows than any
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
        self._marks = np.zeros((most if own_marks else 1, follower.marks.size), np.uint8)  # touched where one begins
        self._marks[0] = follower.marks
        self._ends, self._totals = np.zeros(most, np.int64), np.zeros(most)
        self._which, self._least = np.zeros(most, np.int64), np.zeros(1)
        kept = np.zeros((2, follower.slots.size), np.int64), np.zeros((2, follower.stack.size), np.int64)
        kept[1][:, sk.STATE] = [slots.ctypes.data for slots in kept[0]]
        hypotheses = self._which, np.zeros((4, most), np.int64), self._states, self._stacks, kept
        self._run_on = _together.bind(
            *(follower.book, follower.stream.tables, follower.sends, self._marks, np.full((1, 5), -1, np.int64)),
            *(*hypotheses, self._ends, self._totals, follower.ack, np.zeros_like(follower.likelihood), self._least),
        )
        self._places: dict[Hypothesis, int] = {}
        self._rows = [NOT_BEGUN] * most  # that each has reached
        self._passed: list[dict[int, float]] = [{} for _ in range(most)]  # the likelihoods on its way

    def likelihoods(
        self,
        hypotheses: Mapping[Hypothesis, Mapping[int, int]],
        rows: int,
        margin: float | None = None,
        least: float = NOTHING_LESS,
    ) -> Floats:
        """Return the log likelihoods of the first `rows` rows under each of some hypotheses.

        `hypotheses`: what each changes, as in `Follower.trials`. `margin`, `least`: one that falls short of the
        greatest likelihood by more than `margin`, or falls below `least`, need not be run to the end; what it had
        reached is returned, which bounds its likelihood where no row adds to one (give neither where rows do).
        """
        rows = min(rows, len(self._follower.rows))
        changes = {self._places.setdefault(one, len(self._places)): change for one, change in hypotheses.items()}
        left = [k for k in changes if rows not in self._passed[k]]
        if margin is not None and left:
            likeliest = max(
                left, key=lambda k: (self._rows[k], self._totals[k]) if self._goes_on(k, rows) else (0, 0.0)
            )
            self._go({likeliest: changes[likeliest]}, rows, least)
            known = [self._passed[k][rows] for k in changes if rows in self._passed[k]]
            least = max(least, max(known, default=NOTHING_LESS) - margin - ROUNDING)
        self._go({k: changes[k] for k in left}, rows, least)
        return np.array([self._passed[k].get(rows, self._totals[k]) for k in changes])

    def _goes_on(self, k: int, rows: int) -> bool:
        """Return whether a hypothesis has a state from which `rows` can be reached."""
        return bool(self._ends[k] != OUT and self._rows[k] <= rows)

    def _go(self, hypotheses: Mapping[int, Mapping[int, int]], rows: int, least: float) -> None:
        """Run hypotheses up to a row, except those that are known to be less likely than `least` before it.

        `hypotheses`: by the places of their states, what they change.
        """
        left = [k for k in hypotheses if self._ends[k] != OUT or self._totals[k] >= least]
        left = [k for k in left if rows not in self._passed[k]]
        self._begin({k: hypotheses[k] for k in left if not self._goes_on(k, rows)})
        for first in sorted({self._rows[k] for k in left}):
            self._run([k for k in left if self._rows[k] == first], rows, least)

    def _begin(self, hypotheses: Mapping[int, Mapping[int, int]]) -> None:
        """Start hypotheses: by the places of their states, what they change, all the same words."""
        if not hypotheses:
            return
        follower, places = self._follower, np.array([*hypotheses])
        self._states[places], self._stacks[places] = follower.slots, follower.stack
        for slot in next(iter(hypotheses.values())):
            words, word = (self._states, slot) if slot >= 0 else (self._stacks, -1 - slot)
            words[places, word] += np.array([change[slot] for change in hypotheses.values()])
        self._stacks[places, sk.NEXT_DRAW] = 0
        self._stacks[places, sk.STATE] = self._states.ctypes.data + places * self._states.strides[0]
        self._ends[places], self._totals[places] = RUNS, 0.0
        if len(self._marks) > 1:
            self._marks[places] = follower.marks
        for k in hypotheses:
            self._rows[k] = 0

    def _run(self, places: Sequence[int], rows: int, least: float) -> None:
        """Run hypotheses on from the row that all of them have reached; note the likelihoods of those not ruled out."""
        self._follower.ask(self._rows[places[0]], rows, self._score, len(places))
        order = np.lexsort((self._stacks[places, sk.TICK_US], self._stacks[places, sk.HZ]))
        self._which[: len(places)], self._least[0] = np.array(places)[order], least
        self._run_on()
        self._follower.check()
        for k in places:
            self._rows[k] = rows
            if self._ends[k] != OUT:
                self._passed[k][rows] = float(self._totals[k])
