"""Trials: hypotheses about unrecorded values, each run over the same rows from a copy of the replay's state.

The result of a trial is the log likelihood of the recorded sends (`likelihood`): how well they agree with what the
controller would have allowed under the hypothesis. Plain functions, with the arguments that `loop` describes; `follow`
calls them.
"""

from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.loop import call_row

LOWEST = -1e300  # below any log likelihood


def trial(replay, draws, first, last, slots, stack, least):
    """Run rows [first, last); stop where the log likelihood must end below `least`.

    Returns the row after the last one called, which an unknown draw or the watched field may bring forward, and whether
    the watched field did.
    """
    ctx, _, _, _, _, likelihood = replay
    for i in range(first, last):
        if call_row(replay, draws, i, slots, stack):
            return i + 1, 0
        if ctx[cx.WATCH_SLOT] >= 0 and slots[ctx[cx.WATCH_SLOT]] == ctx[cx.WATCH_VALUE]:
            return i + 1, 1
        if least > LOWEST and likelihood[0] + likelihood[1 + sk.tcp_of(stack).next_send] < least:
            likelihood[0] += likelihood[1 + sk.tcp_of(stack).next_send]
            return last, 0
    return last, 0


def trials(replay, draws, start_slots, start_stack, changes, slots, stack, results):
    """Run several hypotheses over rows FIRST to before LAST, all from one state, `start_slots` and `start_stack`.

    `draws`, shape (hypotheses, draws, 5), and `changes`, shape (hypotheses, changes, 2), see `change`, are what the
    hypotheses differ in. Fills a row of `results` for each: log likelihood, row after the last one called, and whether
    the watched field ended it.

    With MARGIN, the first hypothesis also stores the most that each later send could add to any likelihood. Another one
    stops where even these could not bring it to the first one's likelihood plus MARGIN; its result is then this upper
    bound. If BASE_KNOWN, the first hypothesis was run before: ``likelihood`` has its result and the bounds. If it ends
    before LAST, all are run to their ends.
    """
    ctx, _, _, _, _, likelihood = replay
    margin, paced = ctx[cx.MARGIN], ctx[cx.SCORE] == cx.PACED_SENDS and ctx[cx.BASE_KNOWN] == 0
    least = LOWEST
    if ctx[cx.BASE_KNOWN] != 0:
        least = likelihood[0] + margin / 1000.0
    for h in range(ctx[cx.HYPOTHESES]):
        begin(start_slots, start_stack, changes[h], slots, stack)
        likelihood[0] = 0.0
        ctx[cx.STORES_BOUNDS] = 1 if h == 0 and margin < cx.NO_MARGIN and paced else 0
        end, watched = trial(replay, draws[h], ctx[cx.FIRST], ctx[cx.LAST], slots, stack, least)
        ctx[cx.STORES_BOUNDS] = 0
        results[h, 0], results[h, 1], results[h, 2] = likelihood[0], end, watched
        if margin < cx.NO_MARGIN and h == 0 and end == ctx[cx.LAST] and ctx[cx.BASE_KNOWN] == 0:
            least = likelihood[0] + margin / 1000.0
            sum_bounds(sk.tcp_of(start_stack).next_send, sk.tcp_of(stack).next_send, likelihood)
        elif least > LOWEST:
            least = max(least, likelihood[0] + min(margin, 0) / 1000.0)


def sum_bounds(first, last, likelihood):
    """Turn the most that each of the sends [first, last) can add into the most that it and all later ones can."""
    likelihood[1 + last] = 0.0
    for k in range(last - 1, first - 1, -1):
        likelihood[1 + k] += likelihood[2 + k]


def begin(start_slots, start_stack, changes, slots, stack):
    """Start a hypothesis: copy a state and change it."""
    slots[:] = start_slots
    own = stack[sk.SLOTS_ADDRESS]
    stack[:] = start_stack
    stack[sk.SLOTS_ADDRESS] = own
    change(changes, slots, stack)


def change(changes, slots, stack):
    """Apply changes: rows of (slot, increment); a negative slot -1 - k is element k of the stack."""
    for k in range(changes.shape[0]):
        slot = changes[k, 0]
        if slot >= 0:
            slots[slot] += changes[k, 1]
        else:
            stack[-1 - slot] += changes[k, 1]
