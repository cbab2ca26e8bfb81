"""Hypotheses about the ticks of a sender's kernel, run side by side, and as one where they are the same.

Hypotheses of one tick rate whose states are equal, a *group*, differ in nothing but when the next tick comes. A row is
run once for all of them, unless one reads another tick there than another; then once for each tick that they read, and
those left with different states go on apart. Every few rows, neighbours whose states have become equal are joined: in
slow start no call depends on ticks, and later many leads give one window. Plain functions as those of `trying`.
"""

from cctrace.cc.linux import USEC_PER_SEC
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.loop import call_row
from cctrace.schema import CLOCK_START_US

RUNS, DREW, OUT = range(3)  # a hypothesis goes on; ended with an unknown draw; cannot be the best
OFTEN = 16  # rows between looks at whether groups have become equal
LEADS, UNTIL, LOW, HIGH = range(4)  # of a hypothesis, of the group that begins with it: end, least and greatest lead


def are_same(slots, stack, others, other_stack):
    """Whether two states differ in no more than where they are, and in the lead of the ticks."""
    for k in range(slots.size):
        if slots[k] != others[k]:
            return False
    for k in range(stack.size):  # noqa: SIM110 - compiled
        if stack[k] != other_stack[k] and k != sk.STATE and k != sk.TICK_US:
            return False
    return True


def take(slots, stack, others, other_stack):
    """Make a state what another one is."""
    own = stack[sk.STATE]
    slots[:] = others
    stack[:] = other_stack
    stack[sk.STATE] = own


def span(which, groups, ends, first):
    """Find the least and the greatest lead of those of a group that go on; the least is greater if none does."""
    groups[LOW, first], groups[HIGH, first] = 1, 0
    for n in range(first, groups[UNTIL, first]):
        if ends[which[n]] == RUNS:
            if groups[LOW, first] > groups[HIGH, first]:
                groups[LOW, first] = groups[LEADS, n]
            groups[HIGH, first] = groups[LEADS, n]


def begin(number, which, groups, stacks, ends, totals, least):
    """Make a group of each hypothesis; those that are no longer likely enough do not go on."""
    for n in range(number):
        h = which[n]
        if ends[h] == RUNS and totals[h] < least[0]:
            ends[h] = OUT
        groups[LEADS, n], groups[UNTIL, n] = stacks[h, sk.TICK_US], n + 1
        span(which, groups, ends, n)


def join(number, which, groups, states, stacks, ends):
    """Join neighbouring groups whose states are equal; one of which no member goes on joins the one before it."""
    first = 0
    while groups[UNTIL, first] < number:
        later = groups[UNTIL, first]
        h, other = which[first], which[later]
        ended = groups[LOW, later] > groups[HIGH, later]
        if ended or are_same(states[h], stacks[h], states[other], stacks[other]):
            groups[UNTIL, first] = groups[UNTIL, later]
            span(which, groups, ends, first)
        else:
            first = later


def next_tick(now_us, lead_us, hz):
    """Return the least lead of the ticks with which the clock is one tick further than with a given one."""
    ticks = (now_us + lead_us) * hz // USEC_PER_SEC + 1
    return (ticks * USEC_PER_SEC + hz - 1) // hz - now_us


def next_lead(ctx, rows, i, lead_us, high_us, hz):
    """Return the least lead, beyond a given one, with which the call of row `i` reads another tick; or beyond HIGH."""
    calls, states, _ = rows
    event, found = calls[i].event, high_us + 1
    row = states[calls[i].of]
    if ctx[cx.READ_NOW] >> event & 1:
        now_us = (row.time_ns - ctx[cx.START_NS] + CLOCK_START_US * 1000) // 1000
        if (now_us + lead_us) * hz // USEC_PER_SEC != (now_us + high_us) * hz // USEC_PER_SEC:
            found = next_tick(now_us, lead_us, hz)
    if ctx[cx.READ_LSNDTIME] >> event & 1:
        sent_us = row.lsndtime_us
        if (sent_us + lead_us) * hz // USEC_PER_SEC != (sent_us + high_us) * hz // USEC_PER_SEC:
            found = min(found, next_tick(sent_us, lead_us, hz))
    return found


def run_group(
    ctx, rows, sends, mark, draws, i, first, which, groups, states, stacks, kept, ends, totals, ack, likelihood, least
):
    """Run row `i` for the group that begins with hypothesis `first` of `which`, with each tick that its members read.

    `kept`: room for the state before the row. It is run where the first member with a tick has its state, which is of
    use only if that differs from the one before. LLVM has `call_row` here, where alone it is called.
    """
    slots, stack = kept
    h, lead_us, high_us, last = which[first], groups[LOW, first], groups[HIGH, first], groups[UNTIL, first]
    hz, now, place = stacks[h, sk.HZ], first, first
    next_us = next_lead(ctx, rows, i, lead_us, high_us, hz) if lead_us < high_us else high_us + 1
    if next_us <= high_us:
        take(slots, stack, states[h], stacks[h])
    while lead_us <= high_us:
        h, other = which[place], which[now]
        if place > first:
            take(states[h], stacks[h], slots, stack)
        stacks[h, sk.TICK_US], likelihood[0] = lead_us, 0.0
        call_row(ctx, rows, sends, mark, draws, i, states[h], stacks[h], ack, likelihood)
        if place > now and not are_same(states[other], stacks[other], states[h], stacks[h]):
            groups[UNTIL, now], groups[UNTIL, place], now = place, last, place
        lead_us = next_us
        if lead_us <= high_us:
            next_us = next_lead(ctx, rows, i, lead_us, high_us, hz)
            while groups[LEADS, place] < lead_us:
                place += 1
    gain = likelihood[0]  # of what was before the call: the same for all
    now = first
    while now < last:
        drew = states[which[now], sk.DRAWS] > 0
        if gain != 0.0 or drew or groups[UNTIL, first] < last:
            for n in range(now, groups[UNTIL, now]):
                one = which[n]
                if ends[one] == RUNS:
                    totals[one] += gain
                    ends[one] = DREW if drew else OUT if totals[one] < least[0] else RUNS
            span(which, groups, ends, now)
        now = groups[UNTIL, now]


def together(ctx, rows, sends, marks, draws, which, groups, states, stacks, kept, ends, totals, ack, likelihood, least):
    """Run HYPOTHESES `which` over rows FIRST to before LAST; end those whose likelihood falls below ``least[0]``.

    `which` is in the order of tick rates and leads. A row of `states`, `stacks` and, where the controller reads them,
    `marks` is the state of a hypothesis; `totals` has its log likelihood so far, to which no send adds; `ends` what it
    does.
    """
    number, alone = ctx[cx.HYPOTHESES], marks.shape[0] > 1
    begin(number, which, groups, stacks, ends, totals, least)
    for i in range(ctx[cx.FIRST], ctx[cx.LAST]):
        if not alone and (i - ctx[cx.FIRST]) % OFTEN == 0:
            join(number, which, groups, states, stacks, ends)
        first = 0
        while first < number:
            after = groups[UNTIL, first]
            if groups[LOW, first] <= groups[HIGH, first]:
                mark = marks[which[first] if alone else 0]
                run_group(
                    ctx, rows, sends, mark, draws, i, first,
                    which, groups, states, stacks, kept, ends, totals, ack, likelihood, least,
                )  # fmt: skip
            first = after
    first = 0
    while first < number:
        for n in range(first, groups[UNTIL, first]):
            if n > first and ends[which[n]] == RUNS:
                take(states[which[n]], stacks[which[n]], states[which[first]], stacks[which[first]])
            stacks[which[n], sk.TICK_US] = groups[LEADS, n]
        first = groups[UNTIL, first]
