"""One change made at each of several rows of a run, to find the row at which it explains the sends best.

For example: the ACK at which a BBRv2 begins to probe for bandwidth. Each row begins a branch of the run without the
change (the base). Only the likeliest branch is of use, so another one is stopped

* where even the most that later sends can add would not make it the likeliest, and
* where its state equals that of the base, or of the last branch that ran to the end, at the same row: from there on
  its likelihood is known. Whatever a BBRv2 did before PROBE_RTT, for example, is soon forgotten after it. States are
  stored and compared at CHECKS evenly spaced rows.

Plain functions, with the arguments that `loop` describes.
"""

from typing import Any

import numpy as np

from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.loop import call_row
from cctrace.replaying.engine.trying import LOWEST, change, sum_bounds

MOST = 512  # branches at a time
CHECKS = 128  # rows at which states are compared
BEGIN, TRIED = 1, 2  # of a start: try it first; tried
RUNS = 3  # of which states are stored: 0, the base; 1 and 2, this branch and the last one that ran to the end
UNKNOWN = 1e300  # above any log likelihood
TIE = 0.02  # log likelihoods that differ by less are equal, see `hypotheses.DECIMALS`


def scratch(words: int, sends: int) -> tuple[Any, ...]:
    """Return memory for `scan`: `starts`, `start_states` and `stored`, for states of so many words."""
    starts, start_states = np.zeros((2, MOST), np.int64), np.empty((MOST, words), np.int64)
    checks, states = np.full(CHECKS + 1, -1, np.int64), np.empty((RUNS * CHECKS, words), np.int64)
    return starts, start_states, (checks, states, np.zeros((RUNS, CHECKS + 1)), np.zeros((RUNS, sends), np.uint8))


def save_state(state, slots, stack):
    """Copy slots and stack to `state`."""
    size = slots.size
    state[:size] = slots
    state[size:] = stack


def load_state(state, slots, stack):
    """Copy slots and stack from `state`."""
    size, own = slots.size, stack[sk.SLOTS_ADDRESS]
    slots[:] = state[:size]
    stack[:] = state[size:]
    stack[sk.SLOTS_ADDRESS] = own


def is_state(state, slots, stack):
    """Whether slots and stack equal `state`."""
    size = slots.size
    for k in range(size):
        if state[k] != slots[k]:
            return False
    for k in range(stack.size):  # noqa: SIM110 - compiled
        if state[size + k] != stack[k] and k != sk.SLOTS_ADDRESS:
            return False
    return True


def are_equal(a, b, first, last):
    """Whether elements [first, last) of two arrays are equal."""
    for k in range(first, last):  # noqa: SIM110 - compiled
        if a[k] != b[k]:
            return False
    return True


def copy(to, source, first, last):
    """Copy elements [first, last) of an array."""
    to[first:last] = source[first:last]


def scan(replay, draws, starts, base_slots, base_stack, changes, start_states, stored, slots, stack, results):
    """Make `changes` (see `trying.change`) at each of several rows, and run each branch to row LAST.

    `starts`, shape (2, n): the rows, ascending; BEGIN for the one to try first, else 0. `base_slots`, `base_stack`: the
    state of the base before row FIRST; they are run to LAST. Fills `start_states` with the base's state before each
    start; the first column of `results` with the log likelihood ratio of the branch to the base, from its start to
    LAST; and the second with the base's log likelihood before the start.

    `stored`: the rows at which states are compared (-1: no more); at these, of each of the RUNS, the state and the log
    likelihood from there on; and its marks.

    A branch is stopped where it can no longer reach the part LOWER of the best ratio, which is REACHED or more; its
    result is then the most that it could reach.
    """
    ctx, _, _, marks, _, likelihood = replay
    _, _, rest, stored_marks = stored
    first_send = sk.tcp_of(base_stack).next_send
    total = run_base(replay, draws, starts, base_slots, base_stack, start_states, stored, results)
    last_send = sk.tcp_of(base_stack).next_send
    sum_bounds(first_send, last_send, likelihood)
    copy(stored_marks[0], marks, first_send, last_send)
    best, lower = ctx[cx.REACHED] / 1000.0, ctx[cx.LOWER] / 1000.0
    other = 0  # the stored branch: 1 or 2; 0: none yet
    number, stride, near, top = ctx[cx.HYPOTHESES], 1, -1, LOWEST
    for _ in range(number):
        h, stride = next_start(starts, number, near, stride)
        copy(marks, stored_marks[0], first_send, last_send)
        load_state(start_states[h], slots, stack)
        change(changes, slots, stack)
        likelihood[0] = 0.0
        least = min(best * lower, best / lower) - TIE + total - results[h, 1]
        own = 2 if other == 1 else 1
        if run_branch(replay, draws, starts[0, h], stored, other, own, first_send, slots, stack, least):
            for c in range(CHECKS):
                rest[own, c] = likelihood[0] - rest[own, c]
            copy(stored_marks[own], marks, first_send, last_send)
            other = own
        results[h, 0] = likelihood[0] + results[h, 1] - total
        starts[1, h] = TRIED
        if results[h, 0] > top:
            near, top = h, results[h, 0]
        best = max(best, results[h, 0])
    copy(marks, stored_marks[0], first_send, last_send)


def next_start(starts, number, near, stride):
    """Return which start to try next, and the new stride: a good one should be found soon, as it stops the others.

    `near` is the best one so far (-1: none has been tried). Starts `stride` away from it are tried, then half as far,
    and so on; at last those that are left, the closest first.
    """
    if near < 0:
        while 4 * stride < number:
            stride *= 2
        for h in range(number):
            if starts[1, h] == BEGIN:
                return h, stride
        return 0, stride
    while stride > 0:
        if is_untried(starts, number, near + stride):
            return near + stride, stride
        if is_untried(starts, number, near - stride):
            return near - stride, stride
        stride //= 2
    away = 1
    while not is_untried(starts, number, near + away) and not is_untried(starts, number, near - away):
        away += 1
    return near + away if is_untried(starts, number, near + away) else near - away, stride


def is_untried(starts, number, h):
    """Whether `h` is a start that has not been tried."""
    return 0 <= h < number and starts[1, h] != TRIED


def run_base(replay, draws, starts, slots, stack, start_states, stored, results):
    """Run the base, and store its states before the starts and at the checks; return its log likelihood."""
    ctx, _, _, _, _, likelihood = replay
    checks, states, rest, _ = stored
    h, c, i = 0, 0, ctx[cx.FIRST]
    ctx[cx.STORES_BOUNDS] = 1
    while i < ctx[cx.LAST]:
        if h < ctx[cx.HYPOTHESES] and starts[0, h] == i:
            save_state(start_states[h], slots, stack)
            results[h, 1] = likelihood[0]
            h += 1
        stop = next_check(ctx, checks, c)
        if checks[c] == i:
            save_state(states[c], slots, stack)
            rest[0, c] = likelihood[0]
            c += 1
            stop = next_check(ctx, checks, c)
        if h < ctx[cx.HYPOTHESES]:
            stop = min(stop, starts[0, h])
        run_rows(replay, draws, i, stop, slots, stack, LOWEST)
        i = stop
    ctx[cx.STORES_BOUNDS] = 0
    for k in range(c):
        rest[0, k] = likelihood[0] - rest[0, k]
    return likelihood[0]


def next_check(ctx, checks, c):
    """Return the row of check `c`, or LAST if there is none before."""
    return ctx[cx.LAST] if checks[c] < 0 else min(checks[c], ctx[cx.LAST])


def run_rows(replay, draws, first, last, slots, stack, least):
    """Run rows [first, last), or up to one after which the log likelihood cannot reach `least`: then return False.

    While bounds are stored, the sends of a row are summed before they are added to the total. LLVM inlines `call_row`
    here, as this is its only call.
    """
    ctx, _, _, _, _, likelihood = replay
    for i in range(first, last):
        before = likelihood[0]
        if ctx[cx.STORES_BOUNDS] != 0:
            likelihood[0] = 0.0
        call_row(replay, draws, i, slots, stack)
        if ctx[cx.STORES_BOUNDS] != 0:
            likelihood[0] += before
        elif likelihood[0] + likelihood[1 + sk.tcp_of(stack).next_send] < least:
            return False
    return True


def run_branch(replay, draws, first, stored, other, own, first_send, slots, stack, least):
    """Run a branch from row `first` on, and store its states as run `own`; return whether it went to LAST.

    It stops at a state that the base, or the stored branch `other` (0: none), had at the same row.
    """
    ctx, _, _, marks, _, likelihood = replay
    checks, states, rest, stored_marks = stored
    c, i = 0, first
    while checks[c] >= 0 and checks[c] < first:
        rest[own, c] = -UNKNOWN
        c += 1
    while i < ctx[cx.LAST]:
        if checks[c] == i:
            for n in range(2 if other > 0 else 1):
                known = n * other
                same = rest[known, c] < UNKNOWN and is_state(states[known * CHECKS + c], slots, stack)
                if same and are_equal(stored_marks[known], marks, first_send, sk.tcp_of(stack).next_send):
                    likelihood[0] += rest[known, c]
                    return False
            save_state(states[own * CHECKS + c], slots, stack)
            rest[own, c] = likelihood[0]
            c += 1
        stop = next_check(ctx, checks, c)
        if not run_rows(replay, draws, i, stop, slots, stack, least):
            likelihood[0] += likelihood[1 + sk.tcp_of(stack).next_send]
            return False
        i = stop
    return True
