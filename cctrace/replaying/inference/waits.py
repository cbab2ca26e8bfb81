"""When each possible wait of BBR v2, v2+ and v3 would end: the rows, or packets, of all draws, from one run.

Until a wait ends, its draw only changes how much of it is left. So a wait that ends no sooner than another one is run
from where that one ends, not from its beginning. Plain functions as those of `trying`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.lang.machine import Machine
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.branches import fetch, keep
from cctrace.replaying.engine.follow import Follower, Watch
from cctrace.replaying.engine.loop import KEEP, call_row, record

if TYPE_CHECKING:
    from cctrace.replaying.engine.script import Passed
    from cctrace.replaying.inference.one_pass import Leader

KEEP_PACKETS = 256  # packets between copies of a pass through fq, each of which takes as long as some 50 of them
MANY_PACKETS = 1_000  # up to the end of the longest wait; of fewer, copies take as long as what they save
END, WATCHED, AT, RELATED = range(4)  # columns of `found`; row of the state that is kept, whether only waits differ


def ends(
    ctx, rows, sends, marks, draws, fields, start, memory, work, stack, ack, likelihood, begun, kept, found, noted
):
    """Run twice HYPOTHESES waits from row FIRST up to LAST or to their ends: the longest by the clock, and the soonest.

    `start` and `memory` are slots and stack before the first row, in which `draws` are drawn. `fields`, shape (n, 2):
    slots, and the direction in which each lets a wait end later. Fills for each wait a row of `begun`, the state after
    the draw, of `kept`, one before its end, and of `found`. Of the soonest, those that nothing asks for are not run.
    `noted`: what is recorded, and where to, see `loop.run`: before a wait has ended it is that of all.
    Returns the number of the longest wait.
    """
    number = ctx[cx.HYPOTHESES]
    for h in range(2 * number):
        work[:] = start
        own = stack[sk.STATE]
        stack[:] = memory
        stack[sk.STATE] = own
        for k in range(found.shape[1]):
            found[h, k] = 0
        run_to(ctx, rows, sends, marks, draws, ctx[cx.FIRST], 1, work, stack, ack, likelihood, kept, found, noted, h)
        keep(begun[h], work, stack)
        found[h, RELATED] = 1 if is_related(begun[0], begun[h], fields, work.size) else 0
    for h in range(number, 2 * number):
        if found[h, END] == 0 and is_soonest(begun, fields, found, h, 2 * number):
            run_on(ctx, rows, sends, marks, draws, fields, work, stack, ack, likelihood, begun, kept, found, noted, h)
    longest = 0
    for _ in range(number):
        for h in range(number):
            if is_next(begun, fields, found, h, number):
                run_on(
                    ctx, rows, sends, marks, draws, fields, work, stack, ack, likelihood, begun, kept, found, noted, h
                )
    for h in range(number):
        if found[h, END] > found[longest, END]:
            longest = h
    if found[number + longest, END] == 0:
        h = number + longest
        run_on(ctx, rows, sends, marks, draws, fields, work, stack, ack, likelihood, begun, kept, found, noted, h)
    return longest


def run_to(ctx, rows, sends, marks, draws, first, number, work, stack, ack, likelihood, kept, found, noted, h):
    """Run wait `h` over so many rows, or to its end. LLVM has `call_row` here, where alone it is called."""
    for i in range(first, first + number):
        if i > ctx[cx.FIRST] and (i - first) % KEEP == 0:
            keep(kept[h], work, stack)
            found[h, AT] = i
        drew = call_row(ctx, rows, sends, marks, draws[h], i, work, stack, ack, likelihood)
        if drew or work[ctx[cx.WATCH_SLOT]] == ctx[cx.WATCH_VALUE]:
            found[h, END], found[h, WATCHED] = i + 1, 0 if drew else 1
            return
        if found[h, RELATED] != 0:
            record(ctx, i, work, noted[0], noted[1])


def run_on(ctx, rows, sends, marks, draws, fields, work, stack, ack, likelihood, begun, kept, found, noted, h):
    """Run wait `h` to its end, from where the latest of those that end no later than it had been before its end."""
    parent, at = h, ctx[cx.FIRST] + 1
    for g in range(found.shape[0]):
        if found[g, AT] > at and is_later(begun, fields, found, g, h):
            parent, at = g, found[g, AT]
    place = begun[h] if parent == h else kept[parent]
    fetch(place, work, stack)
    for k in range(fields.shape[0]):
        slot = fields[k, 0]
        work[slot] += begun[h, slot] - begun[parent, slot]
    found[h, END] = ctx[cx.LAST]
    number = ctx[cx.LAST] - at
    run_to(ctx, rows, sends, marks, draws, at, number, work, stack, ack, likelihood, kept, found, noted, h)


def is_related(state, other, fields, size):
    """Whether two states differ in nothing but the waits."""
    for k in range(state.size):
        if state[k] != other[k] and k != size + sk.STATE and k != size + sk.NEXT_DRAW:
            is_wait = False
            for j in range(fields.shape[0]):
                is_wait = is_wait or fields[j, 0] == k
            if not is_wait:
                return False
    return True


def is_later(begun, fields, found, sooner, later):
    """Whether a wait ends no sooner than another one, as all that is left of it is at least as much."""
    return found[sooner, RELATED] != 0 and found[later, RELATED] != 0 and lasts(begun[sooner], begun[later], fields)


def lasts(sooner, later, fields):
    """Whether of the wait that began as `later` at least as much is left, given that it differs in nothing else."""
    for k in range(fields.shape[0]):
        more = later[fields[k, 0]] - sooner[fields[k, 0]]
        if (more < 0) if fields[k, 1] > 0 else (more > 0):
            return False
    return True


def is_soonest(begun, fields, found, h, number):
    """Whether the first so many waits end no sooner than wait `h`."""
    for g in range(number):  # noqa: SIM110 - compiled
        if not is_later(begun, fields, found, h, g):
            return False
    return True


def is_next(begun, fields, found, h, number):
    """Whether wait `h` has not been run, but all of the first so many that end sooner."""
    for g in range(number):
        waits = found[g, END] == 0 and is_later(begun, fields, found, g, h)
        if waits and not is_later(begun, fields, found, h, g):
            return False
    return found[h, END] == 0


def resume(fields, begun, kept, found, slots, stack, asked, drawn, state):
    """Find the latest row, up to ``asked[0]``, before which a wait is known that ends no later than the one just drawn.

    Fills `state` with that before the row, changed to the wait just drawn or, if ``asked[1]``, to one that never ends;
    `drawn` with slots and stack. Returns the row, 0 if there is none: also if waits differ in more than what is left.
    """
    size, parent, at = slots.size, -1, 0
    keep(drawn, slots, stack)
    for h in range(found.shape[0]):
        if not is_related(begun[h], drawn, fields, size):
            return 0
        if at < found[h, AT] <= asked[0] and lasts(begun[h], drawn, fields):
            parent, at = h, found[h, AT]
    if parent >= 0:
        state[:] = kept[parent]
        for k in range(fields.shape[0]):
            slot = fields[k, 0]
            state[slot] += drawn[slot] - begun[parent, slot] + (fields[k, 1] if asked[1] != 0 else 0)
        state[size + sk.STATE], state[size + sk.NEXT_DRAW] = stack[sk.STATE], stack[sk.NEXT_DRAW]
    return at


_ends, _resume = Machine(ends), Machine(resume)


class Waits:
    """The possible waits of a compiled follower's next draw.

    `numbers`: the draws with the longest wait by the clock; `clock`: which of their numbers that is. `never`: fields,
    and what added to them lets a wait never end.
    """

    def __init__(
        self, follower: Follower, numbers: Sequence[Sequence[int]], clock: int, never: Mapping[str, int]
    ) -> None:
        self._follower, self._number = follower, len(numbers)
        self._draws = np.zeros((2 * len(numbers), 1, 5), np.int64)
        for draws, some in zip(self._draws[:, 0, 1:], draws_of(numbers, clock), strict=True):
            draws[: len(some)] = some
        words = follower.slots.size + follower.stack.size
        self._fields = np.array([[follower.slot(name), value] for name, value in never.items()]).reshape(-1, 2)
        self._begun, self._kept = (np.zeros((len(self._draws), words), np.int64) for _ in range(2))
        self._found = np.zeros((len(self._draws), 4), np.int64)
        self._memory, self._work, self._stack = (
            np.zeros_like(a) for a in (follower.stack, follower.slots, follower.stack)
        )
        stream = follower.ctx, follower.stream.tables, follower.sends, follower.marks
        state = follower.slots, self._memory, self._work, self._stack, follower.ack, follower.likelihood
        found = self._begun, self._kept, self._found, (follower.wanted, follower.out)
        self._ends = _ends.bind(*stream, self._draws, self._fields, *state, *found)
        self._asked, drawn, self._state = np.zeros(2, np.int64), np.zeros(words, np.int64), np.zeros(words, np.int64)
        own = follower.slots, follower.stack, self._asked, drawn, self._state
        self._resume = _resume.bind(self._fields, *found[:3], *own)
        self._are_recorded = not np.isin(follower.wanted, self._fields[:, 0]).any()

    def ends(self, last: int, watch: Watch) -> tuple[np.ndarray, np.ndarray]:
        """Run each wait from here up to row `last`, or to its end, which `watch` tells, without changing the state.

        Returns the rows after the last ones called, and whether the watched field ended them, for each of the numbers
        and, after these, for the longest of them with the soonest end by the clock.
        """
        follower = self._follower
        self._memory[:] = follower.stack
        self._memory[sk.NEXT_DRAW] = 0
        self._stack[sk.STATE] = self._work.ctypes.data
        self._draws[:, 0, 0] = follower.row
        last = min(last, len(follower.rows))
        self._room = follower.room(follower.row, last)
        follower.ask(follower.row, last, cx.NOTHING, self._number, watch)
        self._longest = int(self._ends())
        shown = [*range(self._number), self._number + self._longest]
        return self._found[shown, END], self._found[shown, WATCHED] > 0

    def passed(self, row: int) -> list[Passed]:
        """Return the last known state up to a row before waits end, changed to one that never ends, if there is one.

        It is for `Follower.restore`. The follower has just drawn a wait.
        """
        follower, size, (row, state) = self._follower, self._follower.slots.size, self._before(row, 1)
        draws = follower.draws[: follower.drawn].copy()
        return [((row, state[:size], state[size:], draws), 0.0)] if row else []

    def go_on(self) -> None:
        """Go to where the wait that has just been drawn had come to, if all until there is recorded."""
        follower, size = self._follower, self._follower.slots.size
        row, state = self._before(self._room, 0)
        if row and self._are_recorded:
            follower.row, follower.slots[:], follower.stack[:] = row, state[:size], state[size:]

    def _before(self, row: int, never: int) -> tuple[int, np.ndarray]:
        """Return a row up to this one, and the state before it; see `resume`."""
        self._asked[:] = row, never
        return int(self._resume()), self._state


def draws_of(numbers: Sequence[Sequence[int]], clock: int) -> list[list[int]]:
    """Return the draws of all waits, and after these those with the soonest end by the clock."""
    return [*map(list, numbers), *([*some[:clock], 0, *some[clock + 1 :]] for some in numbers)]


class LedWaits:
    """The possible waits of the next draw of a pass through fq, whose rows are packets. See `Waits`."""

    def __init__(self, leader: Leader, numbers: Sequence[Sequence[int]], clock: int, never: Mapping[str, int]) -> None:
        self._leader, self._number, self._draws = leader, len(numbers), draws_of(numbers, clock)
        self._fields, self._never = list(never), np.array(list(never.values()), np.int64)
        self._kept: dict[int, tuple[Any, float]] = {}

    def ends(self, last: int, watch: Watch) -> tuple[np.ndarray, np.ndarray]:
        """Run each wait from here up to packet `last`, or to its end. See `Waits.ends`."""
        leader, every, number = self._leader, range(len(self._draws)), self._number
        self._before, self._firsts, self._last, self._watch = leader.save(), leader.written()[1][0], last, watch
        self._found: list[tuple[int, bool] | None] = [None for _ in every]
        self._kept.clear()
        self._slots = np.array([leader.control.slot(name) for name in self._fields])
        self._begun, self._drew = np.zeros((0, 0), np.int64), []
        self._later = np.zeros((len(every), len(every)), bool)
        if last - leader.row >= MANY_PACKETS:
            begun = [self._begin(h) for h in every]
            self._begun, self._drew = np.array([words for words, _ in begun]), [drew for _, drew in begun]
            self._later = np.array([self._are_later(words) for words in self._begun]).T
            for h in np.flatnonzero(self._later[number:].all(axis=1))[:1]:
                self._run_on(number + int(h))
        while waiting := [h for h in every[:number] if self._found[h] is None]:
            later = self._later[np.ix_(waiting, waiting)]
            self._run_on(waiting[int(np.argmax(np.all(later | ~later.T, axis=1)))])
        soonest = number + int(np.argmax([found[0] for found in self._found[:number] if found]))
        self._run_on(soonest)
        leader.restore(self._before)
        shown = [found for found in (*self._found[:number], self._found[soonest]) if found]
        return np.array([end for end, _ in shown]), np.array([watched for _, watched in shown])

    def passed(self, row: int) -> list[Passed]:
        """Return the last known state up to a packet before waits end; see `Waits.passed`."""
        if not self._kept:
            return []
        begun, drew = self._words(), self._leader.drew()
        parents = [h for h in self._parents(self._are_later(begun)) if self._kept[h][0][0] <= row]
        return [(self._state_of(h, begun, drew, self._never), self._kept[h][1]) for h in parents[-1:]]

    def go_on(self) -> None:
        """Go to where the wait that has just been drawn had come to, if that is known."""
        leader = self._leader
        if self._kept and (parents := self._parents(self._are_later(begun := self._words()))):
            was_full = leader.control.stack[sk.WAS_FULL]
            leader.restore(self._state_of(parents[-1], begun, leader.drew()))
            leader.control.stack[sk.WAS_FULL] = was_full  # is noted where sends are scored

    def _begin(self, h: int) -> tuple[np.ndarray, Any]:
        """Draw wait `h`; return slots and stack then, and what was drawn."""
        leader = self._leader
        leader.restore(self._before)
        leader.draw(self._draws[h])
        self._found[h] = leader.watch(leader.row + 1, self._watch)
        return self._words(), leader.drew()

    def _words(self) -> np.ndarray:
        """Return slots and stack."""
        return np.concatenate([self._leader.control.slots, self._leader.control.stack])

    def _run_on(self, h: int) -> None:
        """Run wait `h` to its end, from where the latest of those that end no later had been before its end."""
        if self._found[h] is not None:
            return
        leader, few = self._leader, KEEP_PACKETS if len(self._begun) else self._last
        if parents := self._parents(self._later[:, h]):
            leader.restore(self._state_of(parents[-1], self._begun[h], self._drew[h]))
            leader.likelihood[0] = self._kept[parents[-1]][1]
        else:
            self._begin(h)
            leader.likelihood[0] = 0.0
        kept = None
        while self._found[h] is None:
            self._found[h] = leader.watch(min(leader.row + few, self._last), self._watch, cx.PACED_SENDS)
            if self._found[h] is None and leader.row >= self._last:
                self._found[h] = self._last, False
            elif self._found[h] is None:
                kept = leader.save(), leader.written()[1][1], float(leader.likelihood[0])
        if kept is not None:
            self._kept[h] = leader.with_tables(kept[0], self._firsts, kept[1]), kept[2]

    def _parents(self, later: np.ndarray) -> list[int]:
        """Return the waits of which a state is kept, of those that end no later, the latest last."""
        return sorted((h for h in self._kept if later[h]), key=lambda h: int(self._kept[h][0][0]))

    def _state_of(self, h: int, begun: np.ndarray, drew: Any, more: Any = 0) -> Any:
        """Return the kept state of a wait, changed to that of one that begins otherwise, with `more` left of it."""
        slots = self._slots
        return self._leader.as_drawn(self._kept[h][0], drew, slots, begun[slots] - self._begun[h, slots] + more)

    def _are_later(self, begun: np.ndarray) -> np.ndarray:
        """Return which waits end no later than the one that begins so.

        All else is equal, and no more is left of them.
        """
        more = begun - self._begun
        waits = more[:, self._slots] * np.sign(self._never)
        more[:, self._slots] = 0
        return np.asarray(np.all(waits >= 0, axis=1) & ~more.any(axis=1))
