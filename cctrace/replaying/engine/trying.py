"""Trials of a replay: runs over copies of its state that return only likelihoods.

A likelihood is how well the recorded sends agree with what the controller would have allowed. Plain functions as those
of `loop`; `follow` calls them.
"""

from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.loop import call_row

NOTHING_LESS = -1e300  # no log likelihood is


def trial(ctx, rows, sends, marks, draws, first, last, slots, stack, ack, likelihood, least):
    """Replay rows [first, last) for their likelihood; end where it must end below `least`.

    Returns the end row, which an unknown draw or the watched field may bring forward, and whether the latter did.
    """
    for i in range(first, last):
        if call_row(ctx, rows, sends, marks, draws, i, slots, stack, ack, likelihood):
            return i + 1, 0
        if ctx[cx.WATCH_SLOT] >= 0 and slots[ctx[cx.WATCH_SLOT]] == ctx[cx.WATCH_VALUE]:
            return i + 1, 1
        if least > NOTHING_LESS and likelihood[0] + likelihood[1 + stack[sk.NEXT_SEND]] < least:
            likelihood[0] += likelihood[1 + stack[sk.NEXT_SEND]]
            return last, 0
    return last, 0


def trials(ctx, rows, sends, marks, draws, start, memory, changes, work, stack, ack, likelihood, out):
    """Try several hypotheses over rows FIRST to before LAST, from one state; fill a row of `out` for each.

    Its columns are the log likelihood, the end row, and whether the watched field ended it. `start` and `memory`
    are slots and stack before the first row. `draws` has shape (hypotheses, draws, 5); `changes` (hypotheses,
    changes, 2) holds slots and increments: see `change`.

    With MARGIN, a hypothesis ends where all later sends could not make up for what it lacks, as they would if it went
    on to LAST; its likelihood is then the most that it could reach. ``likelihood[1 + k]`` is what sends from `k` on can
    add. Where the first hypothesis ends before LAST, all are run to their ends. If KNOWN, another one stands for the
    first: ``likelihood[0]`` is its own, and what sends can add is known.
    """
    margin, paced = ctx[cx.MARGIN], ctx[cx.SCORE] == cx.PACED_SENDS and ctx[cx.KNOWN] == 0
    least = NOTHING_LESS
    if ctx[cx.KNOWN] != 0:
        least = likelihood[0] + margin / 1000.0
    for h in range(ctx[cx.HYPOTHESES]):
        begin(start, memory, changes[h], work, stack)
        likelihood[0] = 0.0
        ctx[cx.KEEPS] = 1 if h == 0 and margin < cx.NO_MARGIN and paced else 0
        end, watched = trial(
            ctx, rows, sends, marks, draws[h], ctx[cx.FIRST], ctx[cx.LAST], work, stack, ack, likelihood, least
        )
        ctx[cx.KEEPS] = 0
        out[h, 0], out[h, 1], out[h, 2] = likelihood[0], end, watched
        if margin < cx.NO_MARGIN and h == 0 and end == ctx[cx.LAST] and ctx[cx.KNOWN] == 0:
            least = likelihood[0] + margin / 1000.0
            add_up(memory[sk.NEXT_SEND], stack[sk.NEXT_SEND], likelihood)
        elif least > NOTHING_LESS:
            least = max(least, likelihood[0] + min(margin, 0) / 1000.0)


def add_up(first, last, likelihood):
    """Turn what each of the sends [first, last) can add at most into what all from there on can."""
    likelihood[1 + last] = 0.0
    for k in range(last - 1, first - 1, -1):
        likelihood[1 + k] += likelihood[2 + k]


def begin(start, memory, changes, work, stack):
    """Start a hypothesis with changed copies of slots and stack."""
    work[:] = start
    own = stack[sk.STATE]
    stack[:] = memory
    stack[sk.STATE] = own
    change(changes, work, stack)


def change(changes, slots, stack):
    """Apply changes: rows of (slot, increment); a negative slot -1 - k is element k of the stack."""
    for k in range(changes.shape[0]):
        slot = changes[k, 0]
        if slot >= 0:
            slots[slot] += changes[k, 1]
        else:
            stack[-1 - slot] += changes[k, 1]
