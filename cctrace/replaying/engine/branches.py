"""Branches of a run: a change at each of several rows, to find where it explains the sends better.

Of use is only the likeliest, so a branch ends where later sends cannot make it that. It also ends where it has come to
a state from which on the likelihood is known: that of the run without the change, or of an earlier branch. Whatever a
BBRv2 did before PROBE_RTT, for example, is soon forgotten after it. Plain functions as those of `trying`.
"""

from typing import Any

import numpy as np

from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.loop import call_row
from cctrace.replaying.engine.trying import NOTHING_LESS, add_up, change

MOST = 512  # branches at a time
CHECKS = 128  # evenly spaced rows at which a branch is checked for having come to a known state
BEGIN, TRIED = 1, 2  # of a start
WAYS = 3  # of which states are kept: the run without the change, an earlier branch, and this one
NOT_KNOWN = 1e300  # no log likelihood is
LESS = 0.02  # of log likelihoods that are not alike, see `hypotheses.ALIKE`


def scratch(state: int, sends: int) -> tuple[Any, ...]:
    """Return scratch memory of `scan`, for states of so many words: `starts`, `kept` and `ways`."""
    kept = (np.empty((words, state), np.int64) for words in (MOST, WAYS * CHECKS))
    starts, checks = np.zeros((2, MOST), np.int64), np.full(CHECKS + 1, -1, np.int64)
    rest, marks = np.zeros((WAYS, CHECKS + 1)), np.zeros((WAYS, sends), np.uint8)
    return starts, next(kept), (checks, next(kept), rest, marks)


def keep(place, slots, stack):
    """Copy slots and stack to a place."""
    size = slots.size
    place[:size] = slots
    place[size:] = stack


def fetch(place, slots, stack):
    """Copy slots and stack from a place."""
    size, own = slots.size, stack[sk.STATE]
    slots[:] = place[:size]
    stack[:] = place[size:]
    stack[sk.STATE] = own


def is_same(place, slots, stack):
    """Whether slots and stack are those of a place."""
    size = slots.size
    for k in range(size):
        if place[k] != slots[k]:
            return False
    for k in range(stack.size):  # noqa: SIM110 - compiled
        if place[size + k] != stack[k] and k != sk.STATE:
            return False
    return True


def are_equal(some, others, first, last):
    """Whether elements [first, last) of two arrays are the same."""
    for k in range(first, last):  # noqa: SIM110 - compiled
        if some[k] != others[k]:
            return False
    return True


def copy(some, others, first, last):
    """Make elements [first, last) of an array those of another one."""
    some[first:last] = others[first:last]


def scan(ctx, rows, sends, marks, draws, starts, base, memory, changes, kept, ways, work, stack, ack, likelihood, out):
    """Make one change at each of several rows, and run it to LAST.

    `starts`, shape (2, n), holds these rows, ascending, and BEGIN for the one to begin with, else 0. `base` and
    `memory` are slots and stack before row FIRST, without the change, and are run to LAST. A row of `kept` has them
    before each of the starts. Fills the first column of `out` with the log likelihood ratio to the base from a start to
    LAST, the second with the base's before it, beyond ``likelihood[0]``.

    `ways` has rows at which states are compared (-1: no more); states of the WAYS there; the log likelihood of each
    from there on; and its marks.

    A branch ends where later sends could not bring it to the part LOWER of the best ratio, which is REACHED or more;
    its own is then the most that it could reach. See `trying.trials`.
    """
    _, _, rest, known = ways
    sent = memory[sk.NEXT_SEND]
    total = run_base(ctx, rows, sends, marks, draws, starts, base, memory, kept, ways, ack, likelihood, out)
    until = memory[sk.NEXT_SEND]
    add_up(sent, until, likelihood)
    copy(known[0], marks, sent, until)
    best, lower = ctx[cx.REACHED] / 1000.0, ctx[cx.LOWER] / 1000.0
    other = 0  # the way of an earlier branch: 1 or 2; 0: there is none
    number, stride, near, top = ctx[cx.HYPOTHESES], 1, -1, NOTHING_LESS
    for _ in range(number):
        h, stride = next_start(starts, number, near, stride)
        copy(marks, known[0], sent, until)
        fetch(kept[h], work, stack)
        change(changes, work, stack)
        likelihood[0] = 0.0
        least = min(best * lower, best / lower) - LESS + total - out[h, 1]
        first, own = starts[0, h], 2 if other == 1 else 1
        if run_branch(
            ctx, rows, sends, marks, draws, first, ways, other, own, sent, work, stack, ack, likelihood, least
        ):
            for c in range(CHECKS):
                rest[own, c] = likelihood[0] - rest[own, c]
            copy(known[own], marks, sent, until)
            other = own
        out[h, 0] = likelihood[0] + out[h, 1] - total
        starts[1, h] = TRIED
        if out[h, 0] > top:
            near, top = h, out[h, 0]
        best = max(best, out[h, 0])
    copy(marks, known[0], sent, until)


def next_start(starts, number, near, stride):
    """Return which of the starts to try next, and how far apart: the best one yet, `near`, is to be found soon.

    What is `stride` away from it, then half as far, and so on; and the closest ones to it last.
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
    """Whether there is a start `h` that has not been tried."""
    return 0 <= h < number and starts[1, h] != TRIED


def run_base(ctx, rows, sends, marks, draws, starts, base, memory, kept, ways, ack, likelihood, out):
    """Run without the change, and keep states; return the log likelihood."""
    checks, states, rest, _ = ways
    h, c, i = 0, 0, ctx[cx.FIRST]
    ctx[cx.KEEPS] = 1
    while i < ctx[cx.LAST]:
        if h < ctx[cx.HYPOTHESES] and starts[0, h] == i:
            keep(kept[h], base, memory)
            out[h, 1] = likelihood[0]
            h += 1
        stop = next_check(ctx, checks, c)
        if checks[c] == i:
            keep(states[c], base, memory)
            rest[0, c] = likelihood[0]
            c += 1
            stop = next_check(ctx, checks, c)
        if h < ctx[cx.HYPOTHESES]:
            stop = min(stop, starts[0, h])
        run_rows(ctx, rows, sends, marks, draws, i, stop, base, memory, ack, likelihood, NOTHING_LESS)
        i = stop
    ctx[cx.KEEPS] = 0
    for k in range(c):
        rest[0, k] = likelihood[0] - rest[0, k]
    return likelihood[0]


def next_check(ctx, checks, c):
    """Return the row of check `c`, or LAST if there is none before."""
    return ctx[cx.LAST] if checks[c] < 0 else min(checks[c], ctx[cx.LAST])


def run_rows(ctx, rows, sends, marks, draws, first, last, slots, stack, ack, likelihood, least):
    """Run rows, or as many as can bring the likelihood to `least`; return whether all were run.

    With KEEPS, the likelihood of each row is added as a whole. LLVM has `call_row` here, where alone it is called.
    """
    for i in range(first, last):
        before = likelihood[0]
        if ctx[cx.KEEPS] != 0:
            likelihood[0] = 0.0
        call_row(ctx, rows, sends, marks, draws, i, slots, stack, ack, likelihood)
        if ctx[cx.KEEPS] != 0:
            likelihood[0] += before
        elif likelihood[0] + likelihood[1 + stack[sk.NEXT_SEND]] < least:
            return False
    return True


def run_branch(ctx, rows, sends, marks, draws, first, ways, other, own, sent, work, stack, ack, likelihood, least):
    """Run a branch from row `first` on, and keep states; return whether it went to LAST."""
    checks, states, rest, known = ways
    c, i = 0, first
    while checks[c] >= 0 and checks[c] < first:
        rest[own, c] = -NOT_KNOWN
        c += 1
    while i < ctx[cx.LAST]:
        if checks[c] == i:
            for n in range(2 if other > 0 else 1):
                way = n * other
                place = way * CHECKS + c
                same = rest[way, c] < NOT_KNOWN and is_same(states[place], work, stack)
                if same and are_equal(known[way], marks, sent, stack[sk.NEXT_SEND]):
                    likelihood[0] += rest[way, c]
                    return False
            keep(states[own * CHECKS + c], work, stack)
            rest[own, c] = likelihood[0]
            c += 1
        stop = next_check(ctx, checks, c)
        if not run_rows(ctx, rows, sends, marks, draws, i, stop, work, stack, ack, likelihood, least):
            likelihood[0] += likelihood[1 + stack[sk.NEXT_SEND]]
            return False
        i = stop
    return True
