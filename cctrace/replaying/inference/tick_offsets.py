"""Log likelihoods of many phases of the kernel's ticks, at one HZ, over more and more rows of a flow.

A phase is the offset of the ticks from the connection's clock: jiffies = (time + offset) * HZ. All offsets are run side
by side (`engine.together`) from the first row, and each row only once: where the likelihoods of further rows are asked
for, they go on from where they had come to.
"""

from collections.abc import Iterable

import numpy as np

from cctrace.columns import Bools, Floats, Ints
from cctrace.lang.machine import Machine
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.together import OUT, RUNS, together
from cctrace.replaying.engine.trying import LOWEST

NOT_BEGUN = 1 << 62  # more rows than any flow has
ROUNDING = 1e-3  # of log likelihoods that are compared
MARK_COLUMNS = {"rs_is_app_limited", "skb_tx_app_limited"}  # by which a controller reads marks of sends
_together = Machine(together)


class TickOffsets:
    """Up to `most` offsets at a tick rate, over the rows of a compiled follower, which is at row 0 and stays there.

    `score`: which sends count, `cx.FULL_FLIGHTS` or `cx.PACED_SENDS`.
    """

    def __init__(self, follower: Follower, hz: int, score: int, most: int) -> None:
        self._follower, self._hz = follower, hz
        self._states = np.empty((most, follower.slots.size), np.int64)
        self._stacks = np.empty((most, follower.stack.size), np.int64)
        own_marks = any(MARK_COLUMNS.intersection(columns) for columns in follower.reads.values())
        self._marks = np.empty((most if own_marks else 1, follower.marks.size), np.uint8)
        self._marks[0] = follower.marks
        self._ends, self._totals = np.zeros(most, np.int64), np.zeros(most)
        self._which, self._least = np.zeros(most, np.int64), np.zeros(1)
        before = np.zeros_like(follower.slots), np.zeros_like(follower.stack)
        likelihood = np.zeros_like(follower.likelihood)
        # Its own context and record, as another thread may run the offsets of another rate.
        self._ctx, ack = follower.ctx.copy(), follower.ack.copy()
        self._ctx[[cx.ACK, cx.SCORE, cx.WATCH_SLOT, cx.UNKNOWN_DRAW]] = ack.ctypes.data, score, -1, 0
        replay = self._ctx, follower.stream.tables, follower.sends, self._marks, ack, likelihood
        no_draws, groups = np.full((1, 5), -1, np.int64), np.empty((4, most), np.int64)
        self._call = _together.bind(
            replay, no_draws, self._which, groups, self._states, self._stacks, before,
            self._ends, self._totals, self._least,
        )  # fmt: skip
        self._places: dict[int, int] = {}  # of each offset in these arrays
        self._rows = np.full(most, NOT_BEGUN)  # that each has reached
        self._known: dict[int, Floats] = {}  # {rows: log likelihoods of these, NaN where not known}

    def likelihoods(
        self, offsets: Iterable[int], rows: int, margin: float | None = None, least: float = LOWEST
    ) -> Floats:
        """Return the log likelihoods of the first `rows` rows with ticks of some offsets, us.

        `margin`, `least`: an offset whose log likelihood misses the greatest one by more than `margin`, or falls below
        `least`, need not be run to the end; the result is then what it had reached. That is an upper bound if no row
        adds to a likelihood; otherwise, do not give these.
        """
        rows, all_places = min(rows, len(self._follower.rows)), self._places
        places = np.array([all_places.setdefault(offset, len(all_places)) for offset in offsets])
        known = self._known.setdefault(rows, np.full(len(self._rows), np.nan))
        left = places[np.isnan(known[places])]
        if margin is not None and len(left):
            can_go_on = self._can_reach(left, rows)
            reached, total = np.where(can_go_on, self._rows[left], 0), np.where(can_go_on, self._totals[left], 0.0)
            furthest = reached == reached.max()
            self._run_to(left[furthest][[np.argmax(total[furthest])]], rows, least)
            best = np.fmax.reduce(known[places], initial=LOWEST)
            least = max(least, float(best) - margin - ROUNDING)
        self._run_to(left, rows, least)
        likelihoods = known[places]
        return np.where(np.isnan(likelihoods), self._totals[places], likelihoods)

    def _can_reach(self, places: Ints, rows: int) -> Bools:
        """Return which offsets have a state before row `rows`, from which they can go on."""
        return (self._ends[places] != OUT) & (self._rows[places] <= rows)

    def _run_to(self, places: Ints, rows: int, least: float) -> None:
        """Run offsets up to a row, but for those that are known to be less likely than `least` before it."""
        left = places[(self._ends[places] != OUT) | (self._totals[places] >= least)]
        left = left[np.isnan(self._known[rows][left])]
        self._begin(left[~self._can_reach(left, rows)])
        reached = self._rows[left]
        for first in sorted(set(reached.tolist())):
            self._run(left[reached == first], first, rows, least)

    def _begin(self, places: Ints) -> None:
        """Start offsets at row 0."""
        if not len(places):
            return
        follower = self._follower
        self._states[places], self._stacks[places] = follower.slots, follower.stack
        self._states[places, follower.slot("hz")] = self._hz
        tcp = self._stacks.view(sk.STACK)[:, 0]
        tcp["hz"][places] = self._hz
        tcp["tick_us"][places] += np.fromiter(self._places, np.int64, len(self._places))[places]
        tcp["next_draw"][places] = 0
        tcp["slots_address"][places] = self._states.ctypes.data + places * self._states.strides[0]
        self._ends[places], self._totals[places] = RUNS, 0.0
        if len(self._marks) > 1:
            self._marks[places] = follower.marks
        self._rows[places] = 0

    def _run(self, places: Ints, first: int, rows: int, least: float) -> None:
        """Run offsets on from row `first`; store the log likelihoods of those not ruled out."""
        self._ctx[[cx.FIRST, cx.LAST, cx.HYPOTHESES]] = first, rows, len(places)
        self._which[: len(places)] = places[np.argsort(self._stacks[places, sk.TICK_US], kind="stable")]
        self._least[0] = least
        self._call()
        self._rows[places] = rows
        through = places[self._ends[places] != OUT]
        self._known[rows][through] = self._totals[through]
        self._follower.check()
