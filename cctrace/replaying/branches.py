"""Branches of a run that does not probe, at close instants: each is run once, however often it is asked for."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.cmath import U32_MAX
from cctrace.lang.machine import Machine
from cctrace.replaying import book as bk
from cctrace.replaying import stack as sk
from cctrace.replaying.follow import CHANGES, Follower
from cctrace.replaying.script import Changes, Passed
from cctrace.replaying.trying import branch

PLACES = 64  # branches that are kept
_branch = Machine(branch)


class Branches:
    """Branches of a follower's run after it drew a wait, between rows that a scan has passed; see `Follower.scan`."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._base, self._work = np.zeros_like(follower.slots), np.zeros_like(follower.slots)
        self._memory, self._stack = np.zeros_like(follower.stack), np.zeros_like(follower.stack)
        self._starts, self._changes = np.zeros((PLACES, 3), np.int64), np.zeros((CHANGES, 2), np.int64)
        self._draws = np.full((1, 5), -1, np.int64)
        self._sums = np.zeros((PLACES, 0))
        self._places: dict[int, tuple[int, int]] = {}  # of each branch by its first row: that of its sums, its end
        self._run_on = self._bound()
        self.end = 0  # up to which row a scan has passed; 0: there was none

    def _bound(self) -> Callable[[], object]:
        follower = self._follower
        stream = follower.book, follower.stream.tables, follower.sends, follower.marks
        base, work = (self._base, self._memory), (self._work, self._stack)
        seen = follower.ack, follower.likelihood
        return _branch.bind(*stream, self._draws, self._starts, *base, self._changes, *work, *seen, self._sums)

    def begin(self, passed: Sequence[Passed], end: int) -> None:
        """Take over what a scan from here on to row `end` has passed."""
        (_, _, stack, _), _ = passed[-1]
        self._places.clear()
        self._first, self.end = int(self._follower.stack[sk.NEXT_SEND]), end
        self._marks = self._follower.marks[self._first : int(stack[sk.NEXT_SEND])].copy()

    def likelihoods(
        self, starts: Sequence[int], end: int, further: int, base: Changes, change: Changes
    ) -> NDArray[np.float64]:
        """Return what `Follower.scan` does for branches from `starts` (up to PLACES) to `end`.

        `further`: row up to which they will be asked for.
        """
        if any(self._places.get(start, (0, 0))[1] < end for start in starts):
            if len(self._places) + len(starts) > PLACES:
                self._places.clear()
            new = [start for start in starts if self._places.get(start, (0, 0))[1] < end]
            self._run(new, max(end, min(further, self.end)), base, change)
        totals = self._follower.totals
        sums = [self._sums[self._places[start][0], end - 1 - start] for start in starts]
        return np.array(sums) + totals[starts] - totals[end]

    def _run(self, starts: Sequence[int], end: int, base: Changes, change: Changes) -> None:
        """Run branches from some rows to `end`."""
        follower, number = self._follower, len(starts)
        if end - min(starts) > self._sums.shape[1]:
            sums, self._sums = self._sums, np.zeros((PLACES, 2 * (end - min(starts))))
            self._sums[:, : sums.shape[1]] = sums
            self._run_on = self._bound()
        free = iter(sorted(set(range(PLACES)) - {place for place, _ in self._places.values()}))
        for k, start in enumerate(starts):
            place = self._places[start][0] if start in self._places else next(free)
            self._places[start] = place, end
            self._starts[k] = start, end, place
        self._base[:], self._memory[:] = follower.slots, follower.stack
        self._memory[sk.STATE], self._memory[sk.NEXT_DRAW] = self._base.ctypes.data, 0
        self._stack[sk.STATE] = self._work.ctypes.data
        for name, value in base.items():
            self._base[follower.slot(name)] += value
        self._changes[: len(change)] = [(follower.slot(name), value) for name, value in change.items()]
        sent = int(follower.stack[sk.NEXT_SEND]) - self._first  # whose marks another branch may have changed
        follower.marks[self._first : self._first + sent] = self._marks[:sent]
        follower.ask(follower.row, end, bk.PACED_SENDS, number, unknown=U32_MAX)
        self._run_on()
