"""Gain cycles of BBR v1 that are in step with the sends, one after the other, in compiled code (`cycle`).

At each cycle of eight phases, the replay as it is (the base) is compared with shifted ones: how likely do they make the
sends up to the end of the next cycle? Most cycles need no shift. The base is run only once: where it is left as it is,
the comparison of the next cycle goes on from where this one's ended. `keep_on` is a plain function, with the arguments
that `loop` describes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cctrace.cc.bbr1_model import CYCLE_LEN
from cctrace.columns import Ints
from cctrace.lang.machine import Machine
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.branches import save_state
from cctrace.replaying.engine.follow import CHANGES, Follower
from cctrace.replaying.engine.loop import run
from cctrace.replaying.engine.stack import SLOTS_ADDRESS, tcp_of
from cctrace.replaying.engine.trying import sum_bounds, trials
from cctrace.replaying.inference.hypotheses import State
from cctrace.tcp.sequence import first_not_below

# State of `keep_on`, `at`.
(
    ROW,  # where the cycle begins
    STOP,  # where it ends
    END,  # where the next one ends
    ROOM,  # row up to which there is memory to record
    NEXT,  # row at which the last comparison's second cycle began, up to whose end the base has been run; -1: none
    RAN,  # that end
    MODE,  # slots of the mode,
    MIN_RTT,  # of the minimum RTT,
    CYCLE,  # of the cycle's beginning,
    POLICED,  # and of whether BBR believes in a policer, -1: it has no such field
    PROBE_BW,  # the mode
    COMPARED,  # cycles compared
    IN_STEP,  # and those that needed no shift
    BEST,  # number of the likeliest shift
    SAVED,  # states saved on the way
    NEXT_SAVE,  # row from which on the next one is
    AT_SIZE,
) = range(17)
# Log likelihoods, `sums`: of the base up to STOP, and up to RAN; by how much a shift must exceed it; the likeliest.
BEFORE, TOTAL, SURE, LIKELIEST, SUMS = range(5)
MOST_SAVED, SAVE_ROWS = 8, 1 << 13  # states that are saved, and rows between them
LEFT, FULL, SHIFTED, COMPARED_ONLY = range(4)  # why it ended, see `Ahead.run`


def row_after(now_us: Any, row: int, span_us: int) -> int:
    """Return the first row later than `span_us` from a row, at least the next, at most the end."""
    end = first_not_below(now_us, now_us.size, now_us[row] + span_us)
    return min(max(end, row + 1), int(now_us.size))


def keep_on(
    at: Any,
    sums: Any,
    now_us: Any,
    base: Any,
    tried: Any,
    replay: Any,
    draws: Any,
    state: Any,
    recording: Any,
    saved: Any,
) -> int:
    """Replay cycles as long as none is clearly likelier if shifted; return why it ended.

    `base`: (start, stop, bounds, marks), of the cycle that is compared: slots and stack where it begins and where it
    ends; the most that each send could add to a shifted cycle's likelihood; and the base's marks of packets. `tried`:
    arguments of `trials` for the shifted ones. `state`: (slots, stack, checkpoint). `saved`: (rows, states), some on
    the way.
    """
    slots, stack, _ = state
    start = base[0]
    copy_state(slots, stack, start)
    why = FULL
    at[NEXT] = -1
    while why == FULL:
        row, min_rtt_us = at[ROW], start[0][at[MIN_RTT]]
        if row == now_us.size or start[0][at[MODE]] != at[PROBE_BW]:
            why = LEFT
            break
        if row >= at[NEXT_SAVE] and at[SAVED] < MOST_SAVED:
            saved[0][at[SAVED]], at[NEXT_SAVE] = row, row + SAVE_ROWS
            save_state(saved[1][at[SAVED]], start[0], start[1])
            at[SAVED] += 1
        at[STOP] = row_after(now_us, row, CYCLE_LEN * min_rtt_us)
        at[END] = row_after(now_us, row, 2 * CYCLE_LEN * min_rtt_us)
        if at[END] > at[ROOM]:
            break
        if run_base(at, sums, base, replay, draws, state, recording):
            why = compare(at, sums, base, tried, replay, state)
        else:
            why = LEFT
    copy_state(start[0], start[1], state)
    return why


def copy_state(slots: Any, stack: Any, to: Any) -> None:
    """Copy slots and stack to those of `to`."""
    to[0][:] = slots
    to[1][:] = stack


def run_base(at: Any, sums: Any, base: Any, replay: Any, draws: Any, state: Any, recording: Any) -> int:
    """Run the replay as it is to the next cycle's end; return 0 where a call on the way needs a draw, else 1."""
    ctx, _, _, marks, _, likelihood = replay
    slots, stack, checkpoint = state
    start, stop, bounds, base_marks = base
    if at[NEXT] != at[ROW] or at[RAN] > at[STOP]:
        copy_state(start[0], start[1], state)
        at[RAN], sums[BEFORE], sums[TOTAL] = at[ROW], 0.0, 0.0
    first, sent = tcp_of(start[1]).next_send, tcp_of(stack).next_send
    likelihood[0] = sums[TOTAL]
    ctx[cx.STORES_BOUNDS], ctx[cx.SCORE] = 1, cx.PACED_SENDS
    ctx[cx.FIRST], ctx[cx.LAST] = at[RAN], at[STOP]
    reached = run(replay, draws, slots, stack, checkpoint, recording)
    at_stop = likelihood[0]
    if reached == at[STOP]:
        copy_state(slots, stack, stop)
        ctx[cx.FIRST], ctx[cx.LAST] = at[STOP], at[END]
        reached = run(replay, draws, slots, stack, checkpoint, recording)
    ctx[cx.STORES_BOUNDS] = 0
    if reached < at[END]:
        return 0
    last = tcp_of(stack).next_send
    bounds[sent:last] = likelihood[1 + sent : 1 + last]
    base_marks[first:last] = marks[first:last]
    of_base = likelihood[0] - sums[BEFORE]
    sums[BEFORE], sums[TOTAL] = at_stop, likelihood[0]
    at[NEXT], at[RAN] = at[STOP], at[END]
    likelihood[0] = of_base
    likelihood[1 + first : 1 + last] = bounds[first:last]
    sum_bounds(first, last, likelihood)
    return 1


def compare(at: Any, sums: Any, base: Any, tried: Any, replay: Any, state: Any) -> int:
    """Compare the base's cycle with shifted ones; go on to its end, and return FULL, or why not."""
    ctx, _, _, marks, _, likelihood = replay
    shifts, no_draws, start_stack, changes, trial_slots, trial_stack, results = tried
    start, stop, _, base_marks = base
    of_base, likeliest, best = likelihood[0], likelihood[0], -1
    start_stack[:] = start[1]
    tcp_of(start_stack).next_draw = 0
    for h in range(shifts.size):
        changes[h, 0, 0], changes[h, 0, 1] = at[CYCLE], np.int64(shifts[h] * start[0][at[MIN_RTT]])
    ctx[cx.FIRST], ctx[cx.LAST] = at[ROW], at[END]
    trials(replay, no_draws, start[0], start_stack, changes, trial_slots, trial_stack, results)
    first, last = tcp_of(start[1]).next_send, tcp_of(state[1]).next_send
    marks[first:last] = base_marks[first:last]
    comparable = 1
    for h in range(shifts.size):
        if np.int64(results[h, 1]) != at[END]:  # a shifted cycle needs a draw before the end
            comparable = 0
        if results[h, 0] > likeliest:
            likeliest, best = results[h, 0], h
    if comparable != 0:
        at[COMPARED] += 1
        if likeliest - of_base > sums[SURE]:
            at[BEST], sums[LIKELIEST] = best, likeliest
            return SHIFTED
        at[IN_STEP] += 1
    if at[POLICED] >= 0 and start[0][at[POLICED]] == 0 and stop[0][at[POLICED]] != 0:
        return COMPARED_ONLY
    copy_state(stop[0], stop[1], start)
    at[ROW] = at[STOP]
    return FULL


_keep_on = Machine(keep_on)


class Ahead:
    """A compiled follower whose cycles are replayed as long as none needs a shift.

    `shifts`: by how many minimum RTTs a cycle may be late; `sure`: the log likelihood ratio that a shift must exceed;
    `fields`: the names of the mode, of the minimum RTT, of the cycle's beginning and, if there is one, of the belief in
    a policer; `probe_bw`: the mode.
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
        start, stop = ((np.zeros_like(follower.slots), np.zeros_like(follower.stack)) for _ in range(2))
        base = start, stop, np.zeros(len(follower.sends)), np.zeros(len(follower.sends), np.uint8)
        slots, stack = np.zeros_like(follower.slots), np.zeros_like(follower.stack)
        stack[SLOTS_ADDRESS] = slots.ctypes.data
        no_draws, changes = np.full((many, 1, 5), -1, np.int64), np.zeros((many, CHANGES, 2), np.int64)
        tried = np.array(self.shifts), no_draws, np.zeros_like(stack), changes, slots, stack, np.zeros((many, 3))
        state = follower.slots, follower.stack, follower.checkpoint
        self._saved = np.zeros(MOST_SAVED, np.int64), np.zeros((MOST_SAVED, slots.size + stack.size), np.int64)
        now_us, recording = np.ascontiguousarray(follower.now_us), (follower.record_slots, follower.out)
        replay, self._draws = follower.replay_arrays, follower.draws
        self._run = _keep_on.bind(
            self._at, self._sums, now_us, base, tried, replay, self._draws, state, recording, self._saved
        )

    def run(self) -> int:
        """Run as far as no shift or draw is needed, and return why it ended.

        FULL: no memory is left to record in. LEFT: the cycle at the follower's row, if there is one, must be compared
        elsewhere. COMPARED_ONLY: it has been compared, but must be run, up to `stop`. SHIFTED: it is clearly likelier
        if shifted (`best`).
        """
        follower, at, row = self._follower, self._at, self._follower.row
        if self._draws is not follower.draws:
            self._bind()
        at[ROW], at[END], at[SAVED], at[NEXT_SAVE] = row, max(at[END], row), 0, row + SAVE_ROWS
        follower.ask(row, row, cx.PACED_SENDS, len(self.shifts))
        at[ROOM] = follower.room(row, int(at[END]))
        if at[END] > at[ROOM]:
            return LEFT
        follower.ctx[cx.MARGIN], follower.ctx[cx.BASE_KNOWN] = self._margin, 1
        ended = int(self._run())
        follower.check()
        follower.row = int(at[ROW])
        return ended

    @property
    def stop(self) -> int:
        """The row at which the cycle that begins at the follower's row ends."""
        return int(self._at[STOP])

    @property
    def visited(self) -> list[State]:
        """Some states on the way of the last `run`."""
        number, size = int(self._at[SAVED]), self._follower.slots.size
        rows, states = self._saved[0][:number].tolist(), self._saved[1][:number].copy()
        return [State(row, state[:size], state[size:]) for row, state in zip(rows, states, strict=True)]

    @property
    def best(self) -> tuple[float, float]:
        """The likeliest shift, and its log likelihood."""
        return self.shifts[self._at[BEST]], float(self._sums[LIKELIEST])

    @property
    def counts(self) -> tuple[int, int]:
        """How many cycles were compared, and how many of them needed no shift."""
        return int(self._at[COMPARED]), int(self._at[IN_STEP])
