"""Gain cycles of BBR v1 that need no shift: compiled code runs one after the other.

Shifted cycles are compared with the replay as it is, up to the next cycle's end. It is run once: where it stays as it
is, the next cycle's comparison goes on from where it ended. `keep_on` is a plain function as those of `loop`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cctrace.cc.bbr1_model import CYCLE_LEN
from cctrace.columns import Ints
from cctrace.lang.machine import Machine
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.branches import keep
from cctrace.replaying.engine.follow import CHANGES, Follower
from cctrace.replaying.engine.loop import run
from cctrace.replaying.engine.stack import NEXT_DRAW, NEXT_SEND, STATE
from cctrace.replaying.engine.trying import add_up, trials
from cctrace.replaying.inference.hypotheses import State
from cctrace.tcp.sequence import first_not_below

# State of `keep_on`: where the cycle begins and ends, and with the next one; rows for which there is room to record;
# the cycle that would go on from where the last comparison ended, and that row; slots of the mode, of the minimum RTT,
# of the cycle's beginning and of whether a policer is believed in (-1: it cannot be); PROBE_BW; cycles judged, and
# right; the likeliest shift; how many states are noted, and the row from which on another one is.
(
    ROW, STOP, END, ROOM, NEXT, RAN, MODE, MIN_RTT, CYCLE, POLICED, PROBE_BW, JUDGED, RIGHT, BEST, NOTED, NEXT_NOTE,
    AT_SIZE,
) = range(17)  # fmt: skip
# Log likelihoods: of the replay up to the cycle, and up to where it ran; by how much a shift must exceed it; its own.
BEFORE, TOTAL, SURE, LIKELIEST, SUMS = range(5)
MANY, OFTEN = 8, 1 << 13  # states that are noted, and rows between them
LEFT, FULL, SHIFTED, JUDGED_ONLY = range(4)  # why it ended, see `Ahead.run`


def row_after(now_us: Any, row: int, span_us: int) -> int:
    """Return the first row later than `span_us` from a row, at least the next, at most the end."""
    end = first_not_below(now_us, now_us.size, now_us[row] + span_us)
    return min(max(end, row + 1), int(now_us.size))


def keep_on(
    at: Any,
    sums: Any,
    now_us: Any,
    here: Any,
    passed: Any,
    most: Any,
    known_marks: Any,
    tried: Any,
    stream: Any,
    draws: Any,
    state: Any,
    likelihood: Any,
    recorded: Any,
    noted: Any,
) -> int:
    """Replay cycles as long as none is likelier if shifted; return why it ended.

    `here` and `passed` hold slots and stack where the cycle begins and ends; `most` is what each send could add to a
    shifted cycle's likelihood; `known_marks` are the packets' marks of a cycle that is not shifted; `noted` takes some
    rows on the way, and slots and stack before them.
    """
    slots, stack = state[0], state[1]
    copy_state(slots, stack, here)
    why = FULL
    at[NEXT] = -1
    while why == FULL:
        row, min_rtt_us = at[ROW], here[0][at[MIN_RTT]]
        if row == now_us.size or here[0][at[MODE]] != at[PROBE_BW]:
            why = LEFT
            break
        if row >= at[NEXT_NOTE] and at[NOTED] < MANY:
            noted[0][at[NOTED]], at[NEXT_NOTE] = row, row + OFTEN
            keep(noted[1][at[NOTED]], here[0], here[1])
            at[NOTED] += 1
        at[STOP] = row_after(now_us, row, CYCLE_LEN * min_rtt_us)
        at[END] = row_after(now_us, row, 2 * CYCLE_LEN * min_rtt_us)
        if at[END] > at[ROOM]:
            break
        if run_on(at, sums, here, passed, most, known_marks, stream, draws, state, likelihood, recorded):
            why = judge(at, sums, here, passed, known_marks, tried, stream, state, likelihood)
        else:
            why = LEFT
    copy_state(here[0], here[1], state)
    return why


def copy_state(slots: Any, stack: Any, other: Any) -> None:
    """Copy slots and stack to where `other` has them."""
    other[0][:] = slots
    other[1][:] = stack


def run_on(
    at: Any,
    sums: Any,
    here: Any,
    passed: Any,
    most: Any,
    known_marks: Any,
    stream: Any,
    draws: Any,
    state: Any,
    likelihood: Any,
    recorded: Any,
) -> int:
    """Run the replay as it is to the next cycle's end; return 0 where a call on the way draws a number, else 1."""
    ctx, rows, sends, marks = stream
    slots, stack, saved, ack = state
    wanted, out = recorded
    if at[NEXT] != at[ROW] or at[RAN] > at[STOP]:
        copy_state(here[0], here[1], state)
        at[RAN], sums[BEFORE], sums[TOTAL] = at[ROW], 0.0, 0.0
    first, sent = here[1][NEXT_SEND], stack[NEXT_SEND]
    likelihood[0] = sums[TOTAL]
    ctx[cx.KEEPS], ctx[cx.SCORE] = 1, cx.PACED_SENDS
    ctx[cx.FIRST], ctx[cx.LAST] = at[RAN], at[STOP]
    reached = run(ctx, rows, sends, marks, draws, slots, stack, saved, ack, likelihood, wanted, out)
    at_stop = likelihood[0]
    if reached == at[STOP]:
        copy_state(slots, stack, passed)
        ctx[cx.FIRST], ctx[cx.LAST] = at[STOP], at[END]
        reached = run(ctx, rows, sends, marks, draws, slots, stack, saved, ack, likelihood, wanted, out)
    ctx[cx.KEEPS] = 0
    if reached < at[END]:
        return 0
    last = stack[NEXT_SEND]
    most[sent:last] = likelihood[1 + sent : 1 + last]
    known_marks[first:last] = marks[first:last]
    known = likelihood[0] - sums[BEFORE]
    sums[BEFORE], sums[TOTAL] = at_stop, likelihood[0]
    at[NEXT], at[RAN] = at[STOP], at[END]
    likelihood[0] = known
    likelihood[1 + first : 1 + last] = most[first:last]
    add_up(first, last, likelihood)
    return 1


def judge(
    at: Any, sums: Any, here: Any, passed: Any, known_marks: Any, tried: Any, stream: Any, state: Any, likelihood: Any
) -> int:
    """Compare the cycle with shifted ones; go on to its end, and return FULL, or why not."""
    ctx, rows, sends, marks = stream
    shifts, no_draws, changes, memory, work, work_stack, found = tried
    known, likeliest, best = likelihood[0], likelihood[0], -1
    memory[:] = here[1]
    memory[NEXT_DRAW] = 0
    for h in range(shifts.size):
        changes[h, 0, 0], changes[h, 0, 1] = at[CYCLE], np.int64(shifts[h] * here[0][at[MIN_RTT]])
    ctx[cx.FIRST], ctx[cx.LAST] = at[ROW], at[END]
    trials(ctx, rows, sends, marks, no_draws, here[0], memory, changes, work, work_stack, state[3], likelihood, found)
    first, last = here[1][NEXT_SEND], state[1][NEXT_SEND]
    marks[first:last] = known_marks[first:last]
    alike = 1
    for h in range(shifts.size):
        if np.int64(found[h, 1]) != at[END]:  # it draws again at another time: too short to compare
            alike = 0
        if found[h, 0] > likeliest:
            likeliest, best = found[h, 0], h
    if alike != 0:
        at[JUDGED] += 1
        if likeliest - known > sums[SURE]:
            at[BEST], sums[LIKELIEST] = best, likeliest
            return SHIFTED
        at[RIGHT] += 1
    if at[POLICED] >= 0 and here[0][at[POLICED]] == 0 and passed[0][at[POLICED]] != 0:
        return JUDGED_ONLY
    copy_state(passed[0], passed[1], here)
    at[ROW] = at[STOP]
    return FULL


_keep_on = Machine(keep_on)


class Ahead:
    """A compiled follower whose cycles go on as long as they need no change.

    `shifts`: minimum RTTs by which a cycle may be late; `sure`: the log likelihood ratio that one must exceed;
    `fields`: those of the mode, of the minimum RTT, of the cycle's beginning and, if there is one, of a policer;
    `probe_bw`: the mode.
    """

    def __init__(
        self, follower: Follower, shifts: Sequence[float], sure: float, fields: Sequence[str], probe_bw: int
    ) -> None:
        self._follower, self.shifts = follower, shifts
        self._at, self._sums = np.zeros(AT_SIZE, np.int64), np.zeros(SUMS)
        self._at[POLICED], self._at[PROBE_BW], self._sums[SURE] = -1, probe_bw, sure
        self._at[MODE : MODE + len(fields)] = [follower.slot(name) for name in fields]
        self._margin = cx.thousandths(sure)
        self._draws: Ints | None = None
        self._run: Callable[[], Any]

    def _bind(self) -> None:
        follower, many = self._follower, len(self.shifts)
        here, passed = ((np.zeros_like(follower.slots), np.zeros_like(follower.stack)) for _ in range(2))
        work, stack = np.zeros_like(follower.slots), np.zeros_like(follower.stack)
        own = np.zeros((many, CHANGES, 2), np.int64), np.zeros_like(stack), work, stack, np.zeros((many, 3))
        stack[STATE] = work.ctypes.data
        tried = np.array(self.shifts), np.full((many, 1, 5), -1, np.int64), *own
        stream = follower.ctx, follower.stream.tables, follower.sends, follower.marks
        state = follower.slots, follower.stack, follower.saved, follower.ack
        self._rows, self._states = np.zeros(MANY, np.int64), np.zeros((MANY, work.size + stack.size), np.int64)
        known = here, passed, np.zeros(len(follower.sends)), np.zeros(len(follower.sends), np.uint8)
        now_us = np.ascontiguousarray(follower.now_us)
        rest = tried, stream, follower.draws, state, follower.likelihood, (follower.wanted, follower.out)
        noted = self._rows, self._states
        self._run, self._draws = _keep_on.bind(self._at, self._sums, now_us, *known, *rest, noted), follower.draws

    def run(self) -> int:
        """Run on as far as nothing is to be changed or drawn, and return why it ended.

        FULL: there was no more room to record; LEFT: the cycle at the follower's row, if there is one, is to be judged
        elsewhere; JUDGED_ONLY: not judged, but run, up to `stop`; SHIFTED: it is likelier by the shift `best`.
        """
        follower, at, row = self._follower, self._at, self._follower.row
        if self._draws is not follower.draws:
            self._bind()
        at[ROW], at[END], at[NOTED], at[NEXT_NOTE] = row, max(at[END], row), 0, row + OFTEN
        follower.ask(row, row, cx.PACED_SENDS, len(self.shifts))
        at[ROOM] = follower.room(row, int(at[END]))
        if at[END] > at[ROOM]:
            return LEFT
        follower.ctx[cx.MARGIN], follower.ctx[cx.KNOWN] = self._margin, 1
        ended = int(self._run())
        follower.check()
        follower.row = int(at[ROW])
        return ended

    @property
    def stop(self) -> int:
        """The row at which the cycle at the follower's row ends."""
        return int(self._at[STOP])

    @property
    def passed(self) -> list[State]:
        """Some states on the way, of the last time that this ran."""
        number, size = int(self._at[NOTED]), self._follower.slots.size
        states = self._states[:number].copy()
        return [State(int(row), state[:size], state[size:]) for row, state in zip(self._rows, states, strict=False)]

    @property
    def best(self) -> tuple[float, float]:
        """The likeliest shift, and its log likelihood."""
        return self.shifts[self._at[BEST]], float(self._sums[LIKELIEST])

    @property
    def judged(self) -> tuple[int, int]:
        """How many cycles were judged, and how many of them were right."""
        return int(self._at[JUDGED]), int(self._at[RIGHT])
