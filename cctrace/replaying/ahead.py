"""A replay as it is, run ahead of where it is decided whether to change it: the alternative to all changes.

It is run once: where it stays as it is, it goes on from where it is, and its next alternative from where that ended.
"""

from typing import Any

import numpy as np

from cctrace.replaying import book as bk
from cctrace.replaying.follow import Follower
from cctrace.replaying.stack import NEXT_SEND

WORTH = 1000  # rows: to copy states, and to come back, takes longer than to run fewer twice more


class Ahead:
    """A compiled follower that goes on in spans, each of which is compared with changes made where it begins."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._most = np.zeros(len(follower.sends))  # what each send could add to a change's likelihood at most
        self._begin = -1  # row of the span that would go on from the last one
        self._before, self._total = 0.0, 0.0  # log likelihood up to there, and to the last one's end
        self._ended: tuple[Any, ...] = ()
        self._marks = 0, follower.marks[:0]  # of its sends, from the first on, which changes write anew
        self._passed: tuple[Any, ...] | None = None  # the follower's state at the last `stop`

    def run(self, stop: int, end: int) -> float | None:
        """Run a span up to row `end`, past `stop`; return the log likelihood of its sends.

        The follower stays where it is, and may try changes up to `end` with this as `known`, until `settle`. None, if a
        call on the way draws a number, or few rows would be spared.
        """
        follower = self._follower
        if stop - follower.row < WORTH:
            return None
        here, first = follower.save(), int(follower.stack[NEXT_SEND])
        self._passed = None
        if self._begin != follower.row or self._ended[0] > stop:
            self._before, self._total, self._ended = 0.0, 0.0, here
        follower.restore(self._ended)
        sent = int(follower.stack[NEXT_SEND])
        follower.likelihood[0], follower.book[bk.KEEPS] = self._total, 1
        passed, at_stop = None, 0.0
        if follower.run(stop, bk.PACED_SENDS) == stop:
            passed, at_stop = follower.save(), float(follower.likelihood[0])
        ran = passed is not None and follower.run(end, bk.PACED_SENDS) == end
        follower.book[bk.KEEPS] = 0
        begin, last = self._before, int(follower.stack[NEXT_SEND])
        if ran:
            self._most[sent:last] = follower.likelihood[1 + sent : 1 + last]
            self._total, self._ended = float(follower.likelihood[0]), follower.save()
            self._begin, self._before, self._passed = stop, at_stop, passed
            self._marks = first, follower.marks[first:last].copy()
            follower.likelihood[1 + first : 1 + last] = np.cumsum(self._most[first:last][::-1])[::-1]
            follower.likelihood[1 + last] = 0.0
        else:
            self._begin = -1
        follower.restore(here)
        return self._total - begin if ran else None

    def settle(self) -> None:
        """Changes were tried."""
        first, marks = self._marks
        self._follower.marks[first : first + len(marks)] = marks

    def go_on(self, *zero: str) -> bool:
        """Go on to the last span's `stop`, if the replay has not changed since; not if a field is not `zero` there."""
        passed, self._passed = self._passed, None
        if passed is None or any(passed[1][self._follower.slot(name)] for name in zero):
            self._begin = -1
            return False
        self._follower.restore(passed)
        return True

    def forget(self) -> None:
        """The replay was changed where the last span begins."""
        self._passed = None
