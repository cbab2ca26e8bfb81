"""Hypotheses about the tick phase of the sender's kernel, run side by side, and as one while they do not differ.

A hypothesis is an offset of the kernel's ticks: jiffies = (time + offset) * HZ. Hypotheses of one HZ whose states are
equal form a *group*; they differ only in when the next tick comes. `run_group` calls a row once for the whole group,
unless its members read different jiffies there: then once for each value, and those left with different states form
groups of their own. Every few rows, neighbouring groups whose states have become equal are merged: in slow start no
call depends on jiffies, and later many offsets lead to the same window.

Plain functions, with the arguments that `loop` describes. In addition:

    which    the hypotheses to run, in order of their offsets; a group is a range of places in it
    groups   (OFFSET, END, LOW, HIGH) of each place: its offset, us; and, at a group's first place, the place after its
             last, and the least and greatest offset of its members that go on (the least is greater if none does)
    states, stacks
             slots and stack of each hypothesis; of a group, only those of its first member are kept up to date
    ends     RUNS, DREW or OUT, of each hypothesis
    totals   its log likelihood so far
"""

from cctrace.cc.linux import USEC_PER_SEC
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.loop import call_row
from cctrace.schema import CLOCK_START_US

RUNS, DREW, OUT = range(3)  # a hypothesis goes on; took an unknown random number; cannot be the likeliest
MERGE_ROWS = 16  # rows between comparisons of neighbouring groups
OFFSET, END, LOW, HIGH = range(4)


def are_same(slots, stack, other_slots, other_stack):
    """Whether two states are equal but for their tick offset."""
    for k in range(slots.size):
        if slots[k] != other_slots[k]:
            return False
    for k in range(stack.size):
        if stack[k] != other_stack[k] and k != sk.SLOTS_ADDRESS and k != sk.TICK_US:
            return False
    return True


def copy_state(slots, stack, other_slots, other_stack):
    """Copy another state to `slots` and `stack`."""
    own = stack[sk.SLOTS_ADDRESS]
    slots[:] = other_slots
    stack[:] = other_stack
    stack[sk.SLOTS_ADDRESS] = own


def set_range(which, groups, ends, first):
    """Set the least and greatest offset of the members that go on of the group that begins at a place."""
    groups[LOW, first], groups[HIGH, first] = 1, 0
    for n in range(first, groups[END, first]):
        if ends[which[n]] == RUNS:
            if groups[LOW, first] > groups[HIGH, first]:
                groups[LOW, first] = groups[OFFSET, n]
            groups[HIGH, first] = groups[OFFSET, n]


def begin(number, which, groups, stacks, ends, totals, least):
    """Make a group of each hypothesis; those whose log likelihood is below ``least[0]`` do not go on."""
    for n in range(number):
        h = which[n]
        if ends[h] == RUNS and totals[h] < least[0]:
            ends[h] = OUT
        groups[OFFSET, n], groups[END, n] = stacks[h, sk.TICK_US], n + 1
        set_range(which, groups, ends, n)


def merge(number, which, groups, states, stacks, ends):
    """Merge neighbouring groups whose states are equal; a group of which no member goes on joins the one before it."""
    first = 0
    while groups[END, first] < number:
        later = groups[END, first]
        h, other = which[first], which[later]
        ended = groups[LOW, later] > groups[HIGH, later]
        if ended or are_same(states[h], stacks[h], states[other], stacks[other]):
            groups[END, first] = groups[END, later]
            set_range(which, groups, ends, first)
        else:
            first = later


def next_tick(now_us, offset_us, hz):
    """Return the least offset with which the clock reads one tick more than with a given one."""
    ticks = (now_us + offset_us) * hz // USEC_PER_SEC + 1
    return (ticks * USEC_PER_SEC + hz - 1) // hz - now_us


def next_offset(ctx, rows, i, offset_us, high_us, hz):
    """Return the least greater offset with which the call of row `i` reads other jiffies; HIGH + 1 if none does."""
    calls, states, _ = rows
    event, found = calls[i].event, high_us + 1
    row = states[calls[i].of]
    if ctx[cx.READ_NOW] >> event & 1:
        now_us = (row.time_ns - ctx[cx.START_NS] + CLOCK_START_US * 1000) // 1000
        if (now_us + offset_us) * hz // USEC_PER_SEC != (now_us + high_us) * hz // USEC_PER_SEC:
            found = next_tick(now_us, offset_us, hz)
    if ctx[cx.READ_LSNDTIME] >> event & 1:
        sent_us = row.lsndtime_us
        if (sent_us + offset_us) * hz // USEC_PER_SEC != (sent_us + high_us) * hz // USEC_PER_SEC:
            found = min(found, next_tick(sent_us, offset_us, hz))
    return found


def run_group(replay, draws, i, first, which, groups, states, stacks, before, ends, totals, least):
    """Call row `i` for the group that begins at place `first`, once for each value of jiffies that its members read.

    `before`: room for slots and stack before the row. Each call uses the state of the first member that reads its
    value, and makes a group only if it leaves another state than the call before. LLVM inlines `call_row` here, as this
    is its only call.
    """
    ctx, rows, _, _, _, likelihood = replay
    slots, stack = before
    h, offset_us, high_us, last = which[first], groups[LOW, first], groups[HIGH, first], groups[END, first]
    hz, group, place = sk.tcp_of(stacks[h]).hz, first, first
    next_us = next_offset(ctx, rows, i, offset_us, high_us, hz) if offset_us < high_us else high_us + 1
    if next_us <= high_us:
        copy_state(slots, stack, states[h], stacks[h])
    while offset_us <= high_us:
        h, other = which[place], which[group]
        if place > first:
            copy_state(states[h], stacks[h], slots, stack)
        stacks[h, sk.TICK_US], likelihood[0] = offset_us, 0.0
        call_row(replay, draws, i, states[h], stacks[h])
        if place > group and not are_same(states[other], stacks[other], states[h], stacks[h]):
            groups[END, group], groups[END, place], group = place, last, place
        offset_us = next_us
        if offset_us <= high_us:
            next_us = next_offset(ctx, rows, i, offset_us, high_us, hz)
            while groups[OFFSET, place] < offset_us:
                place += 1
    gain = likelihood[0]  # of the data in flight before the call, so it is the same for all members
    group = first
    while group < last:
        drew = states[which[group], sk.DRAWS] > 0
        if gain != 0.0 or drew or groups[END, first] < last:
            for n in range(group, groups[END, group]):
                h = which[n]
                if ends[h] == RUNS:
                    totals[h] += gain
                    ends[h] = DREW if drew else OUT if totals[h] < least[0] else RUNS
            set_range(which, groups, ends, group)
        group = groups[END, group]


def together(replay, draws, which, groups, states, stacks, before, ends, totals, least):
    """Run HYPOTHESES `which` over rows FIRST to before LAST; end those whose log likelihood falls below ``least[0]``.

    ``replay``'s marks have a row for each hypothesis if the controller reads them: then no group has two members, as
    states with different marks are not compared. Otherwise they have one row for all.
    """
    ctx, rows, sends, marks, acks, likelihood = replay
    number, own_marks = ctx[cx.HYPOTHESES], marks.shape[0] > 1
    begin(number, which, groups, stacks, ends, totals, least)
    for i in range(ctx[cx.FIRST], ctx[cx.LAST]):
        if not own_marks and (i - ctx[cx.FIRST]) % MERGE_ROWS == 0:
            merge(number, which, groups, states, stacks, ends)
        first = 0
        while first < number:
            after = groups[END, first]
            if groups[LOW, first] <= groups[HIGH, first]:
                own = (ctx, rows, sends, marks[which[first] if own_marks else 0], acks, likelihood)
                run_group(own, draws, i, first, which, groups, states, stacks, before, ends, totals, least)
            first = after
    first = 0
    while first < number:
        for n in range(first, groups[END, first]):
            if n > first and ends[which[n]] == RUNS:
                copy_state(states[which[n]], stacks[which[n]], states[which[first]], stacks[which[first]])
            stacks[which[n], sk.TICK_US] = groups[OFFSET, n]
        first = groups[END, first]
