"""When each wait that BBR v2, v2+ or v3 may have drawn would end, for all of them in about the time of one run.

bbr2_pick_probe_wait draws how long to wait for the next bandwidth probe, in rounds and by the clock. Until a wait ends,
its draw changes nothing but how much of the wait is left. So of two waits, the one that ends later need not be run from
its beginning: it goes on from a saved state of the other one, with the difference added to what is left. `Waits` does
this for rows of a `Follower`, `LedWaits` for packets of a `Leader`.

The plain functions have the arguments that `loop` describes. In addition:

    fields   slots of what is left of a wait, and the direction in which each makes it longer; shape (n, 2)
    waits    (drawn, saved, results), each with a row for each possible wait:
      drawn    the state (slots, stack) after the draw
      saved    a later state, before the end of the wait
      results  END: the row after the last one called, 0 before the wait has been run; IS_PROBE: whether a probe ended
               it, not the next draw; SAVED: the row of `saved`, 0: none; ALIKE: whether `drawn` differs from that of
               the first wait in nothing but `fields`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.lang.machine import Machine
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.branches import load_state, save_state
from cctrace.replaying.engine.follow import Follower, Watch
from cctrace.replaying.engine.loop import CHECKPOINT_ROWS, call_row, record

if TYPE_CHECKING:
    from cctrace.replaying.engine.script import Passed
    from cctrace.replaying.inference.one_pass import Leader

SAVE_PACKETS = 256  # packets of a pass through fq between saved states; saving one takes as long as some 50 packets
MANY_PACKETS = 1_000  # to the end of the longest wait; for fewer, saving states takes as long as it spares
END, IS_PROBE, SAVED, ALIKE = range(4)


def ends(replay, draws, fields, start_slots, start_stack, slots, stack, waits, recording):
    """Run the possible waits from row FIRST to their ends, or to LAST, and fill `waits`; return the longest one.

    `start_slots`, `start_stack`: the state before row FIRST, whose call draws. There are twice HYPOTHESES `draws`:
    those with the longest wait by the clock, and the same with the shortest. Of the latter only two are needed and run:
    the one that ends soonest, if it is known which, and the one of the longest wait. Rows before any wait has ended are
    recorded, as they are the same for all.
    """
    ctx, _, _, _, _, _ = replay
    drawn, _, results = waits
    number = ctx[cx.HYPOTHESES]
    for h in range(2 * number):
        slots[:] = start_slots
        own = stack[sk.SLOTS_ADDRESS]
        stack[:] = start_stack
        stack[sk.SLOTS_ADDRESS] = own
        for k in range(results.shape[1]):
            results[h, k] = 0
        run_rows(replay, draws, ctx[cx.FIRST], 1, slots, stack, waits, recording, h)
        save_state(drawn[h], slots, stack)
        results[h, ALIKE] = 1 if is_alike(drawn[0], drawn[h], fields, slots.size) else 0
    for h in range(number, 2 * number):
        if results[h, END] == 0 and is_soonest(fields, waits, h, 2 * number):
            finish(replay, draws, fields, slots, stack, waits, recording, h)
    longest = 0
    for _ in range(number):
        for h in range(number):
            if is_next(fields, waits, h, number):
                finish(replay, draws, fields, slots, stack, waits, recording, h)
    for h in range(number):
        if results[h, END] > results[longest, END]:
            longest = h
    if results[number + longest, END] == 0:
        finish(replay, draws, fields, slots, stack, waits, recording, number + longest)
    return longest


def run_rows(replay, draws, first, number, slots, stack, waits, recording, h):
    """Run wait `h` over so many rows, or to its end. LLVM inlines `call_row` here, as this is its only call."""
    ctx, _, _, _, _, _ = replay
    _, saved, results = waits
    for i in range(first, first + number):
        if i > ctx[cx.FIRST] and (i - first) % CHECKPOINT_ROWS == 0:
            save_state(saved[h], slots, stack)
            results[h, SAVED] = i
        drew = call_row(replay, draws[h], i, slots, stack)
        if drew or slots[ctx[cx.WATCH_SLOT]] == ctx[cx.WATCH_VALUE]:
            results[h, END], results[h, IS_PROBE] = i + 1, 0 if drew else 1
            return
        if results[h, ALIKE] != 0:
            record(ctx, i, slots, recording)


def finish(replay, draws, fields, slots, stack, waits, recording, h):
    """Run wait `h` to its end, from the latest saved state of a wait that ends no later."""
    ctx, _, _, _, _, _ = replay
    drawn, saved, results = waits
    parent, first = h, ctx[cx.FIRST] + 1
    for g in range(results.shape[0]):
        if results[g, SAVED] > first and ends_no_later(fields, waits, g, h):
            parent, first = g, results[g, SAVED]
    load_state(drawn[h] if parent == h else saved[parent], slots, stack)
    for k in range(fields.shape[0]):
        slot = fields[k, 0]
        slots[slot] += drawn[h, slot] - drawn[parent, slot]
    results[h, END] = ctx[cx.LAST]
    run_rows(replay, draws, first, ctx[cx.LAST] - first, slots, stack, waits, recording, h)


def is_alike(state, other, fields, size):
    """Whether two states differ in nothing but `fields`, and their own address and place in the draws."""
    for k in range(state.size):
        if state[k] != other[k] and k != size + sk.SLOTS_ADDRESS and k != size + sk.NEXT_DRAW:
            is_field = False
            for j in range(fields.shape[0]):
                is_field = is_field or fields[j, 0] == k
            if not is_field:
                return False
    return True


def ends_no_later(fields, waits, g, h):
    """Whether wait `g` ends no later than wait `h`."""
    drawn, _, results = waits
    return results[g, ALIKE] != 0 and results[h, ALIKE] != 0 and is_as_long(drawn[g], drawn[h], fields)


def is_as_long(state, other, fields):
    """Whether at least as much is left of the wait of `other`, in all `fields`, as of the one of `state`."""
    for k in range(fields.shape[0]):
        more = other[fields[k, 0]] - state[fields[k, 0]]
        if (more < 0) if fields[k, 1] > 0 else (more > 0):
            return False
    return True


def is_soonest(fields, waits, h, number):
    """Whether wait `h` ends no later than each of the first so many."""
    for g in range(number):  # noqa: SIM110 - compiled
        if not ends_no_later(fields, waits, h, g):
            return False
    return True


def is_next(fields, waits, h, number):
    """Whether wait `h` has not been run, but all of the first so many that end sooner have."""
    _, _, results = waits
    for g in range(number):
        not_later = results[g, END] == 0 and ends_no_later(fields, waits, g, h)
        if not_later and not ends_no_later(fields, waits, h, g):
            return False
    return results[h, END] == 0


def resume(fields, waits, slots, stack, asked, drawn_now, state):
    """Find the latest saved state before row ``asked[0]``, or at it, of a wait that ends no later than the current one.

    The current wait has just been drawn. Fills `state` with the saved state, changed to that of the current wait or, if
    ``asked[1]``, to that of one that never ends; and `drawn_now` with slots and stack. Returns the row of the state; 0
    if there is none, or if the current wait differs from others in more than `fields`.
    """
    drawn, saved, results = waits
    size, parent, row = slots.size, -1, 0
    save_state(drawn_now, slots, stack)
    for h in range(results.shape[0]):
        if not is_alike(drawn[h], drawn_now, fields, size):
            return 0
        if row < results[h, SAVED] <= asked[0] and is_as_long(drawn[h], drawn_now, fields):
            parent, row = h, results[h, SAVED]
    if parent >= 0:
        state[:] = saved[parent]
        for k in range(fields.shape[0]):
            slot = fields[k, 0]
            state[slot] += drawn_now[slot] - drawn[parent, slot] + (fields[k, 1] if asked[1] != 0 else 0)
        state[size + sk.SLOTS_ADDRESS], state[size + sk.NEXT_DRAW] = stack[sk.SLOTS_ADDRESS], stack[sk.NEXT_DRAW]
    return row


_ends, _resume = Machine(ends), Machine(resume)


class Waits:
    """The waits that a compiled follower's next call may draw.

    `numbers`: the random numbers of each, with the longest wait by the clock; `clock`: which of the numbers that is.
    `never`: fields of what is left of a wait, and what to add to them so that it never ends.
    """

    def __init__(
        self, follower: Follower, numbers: Sequence[Sequence[int]], clock: int, never: Mapping[str, int]
    ) -> None:
        self._follower, self._number = follower, len(numbers)
        self._draws = np.zeros((2 * len(numbers), 1, 5), np.int64)
        for row, some in zip(self._draws[:, 0, 1:], draws_of(numbers, clock), strict=True):
            row[: len(some)] = some
        words = follower.slots.size + follower.stack.size
        fields = np.array([[follower.slot(name), value] for name, value in never.items()]).reshape(-1, 2)
        drawn, saved = (np.zeros((len(self._draws), words), np.int64) for _ in range(2))
        self._results = np.zeros((len(self._draws), 4), np.int64)
        waits, recording = (drawn, saved, self._results), (follower.record_slots, follower.out)
        self._start_stack, self._slots, self._stack = (
            np.zeros_like(a) for a in (follower.stack, follower.slots, follower.stack)
        )
        start = follower.slots, self._start_stack
        self._ends = _ends.bind(
            follower.replay_arrays, self._draws, fields, *start, self._slots, self._stack, waits, recording
        )
        self._asked, drawn_now, self._state = (
            np.zeros(2, np.int64),
            np.zeros(words, np.int64),
            np.zeros(words, np.int64),
        )
        self._resume = _resume.bind(fields, waits, follower.slots, follower.stack, self._asked, drawn_now, self._state)
        self._are_recorded = not np.isin(follower.record_slots, fields[:, 0]).any()

    def ends(self, last: int, watch: Watch) -> tuple[np.ndarray, np.ndarray]:
        """Run each wait from here to its end, or to row `last`, without changing the state.

        `watch`: the field and value that show that a probe begins. Returns the row after each wait's last one, and
        whether a probe ended it: for each of the numbers, and after these for the longest of them with the shortest
        wait by the clock.
        """
        follower = self._follower
        self._start_stack[:] = follower.stack
        self._start_stack[sk.NEXT_DRAW] = 0
        self._stack[sk.SLOTS_ADDRESS] = self._slots.ctypes.data
        self._draws[:, 0, 0] = follower.row
        last = min(last, len(follower.rows))
        self._room = follower.room(follower.row, last)
        follower.ask(follower.row, last, cx.NOTHING, self._number, watch)
        longest = int(self._ends())
        asked_for = [*range(self._number), self._number + longest]
        return self._results[asked_for, END], self._results[asked_for, IS_PROBE] > 0

    def passed(self, row: int) -> list[Passed]:
        """Return the latest saved state up to a row, with a wait that never ends; nothing if there is none.

        It is for `Follower.restore`, after the follower has drawn one of the waits.
        """
        follower, size, (row, state) = self._follower, self._follower.slots.size, self._saved(row, 1)
        draws = follower.draws[: follower.drawn].copy()
        return [((row, state[:size], state[size:], draws), 0.0)] if row else []

    def skip(self) -> None:
        """Go to the latest saved state of the wait that has just been drawn, if all rows until there are recorded."""
        follower, size = self._follower, self._follower.slots.size
        row, state = self._saved(self._room, 0)
        if row and self._are_recorded:
            follower.row, follower.slots[:], follower.stack[:] = row, state[:size], state[size:]

    def _saved(self, row: int, never: int) -> tuple[int, np.ndarray]:
        """Return the row and the state that `resume` finds up to a row."""
        self._asked[:] = row, never
        return int(self._resume()), self._state


def draws_of(numbers: Sequence[Sequence[int]], clock: int) -> list[list[int]]:
    """Return the random numbers of all waits, and then the same with the shortest wait by the clock."""
    return [*map(list, numbers), *([*some[:clock], 0, *some[clock + 1 :]] for some in numbers)]


class LedWaits:
    """The waits that the next draw of a pass through fq may give, whose rows are packets; see `Waits`."""

    def __init__(self, leader: Leader, numbers: Sequence[Sequence[int]], clock: int, never: Mapping[str, int]) -> None:
        self._leader, self._number, self._draws = leader, len(numbers), draws_of(numbers, clock)
        self._fields, self._never = list(never), np.array(list(never.values()), np.int64)
        self._saved: dict[int, tuple[Any, float]] = {}  # of each wait: a state before its end, and the log likelihood

    def ends(self, last: int, watch: Watch) -> tuple[np.ndarray, np.ndarray]:
        """Run each wait from here to its end, or to packet `last`; see `Waits.ends`."""
        leader, every, number = self._leader, range(len(self._draws)), self._number
        self._before, self._first_rows, self._last, self._watch = leader.save(), leader.written()[1][0], last, watch
        self._results: list[tuple[int, bool] | None] = [None for _ in every]  # packet after the end, whether by a probe
        self._saved.clear()
        self._slots = np.array([leader.control.slot(name) for name in self._fields])
        self._drawn, self._draws_made = np.zeros((0, 0), np.int64), []
        self._no_later = np.zeros((len(every), len(every)), bool)  # [g, h]: wait g ends no later than wait h
        if last - leader.row >= MANY_PACKETS:
            begun = [self._begin(h) for h in every]
            self._drawn, self._draws_made = np.array([words for words, _ in begun]), [made for _, made in begun]
            self._no_later = np.array([self._end_no_later(words) for words in self._drawn]).T
            for h in np.flatnonzero(self._no_later[number:].all(axis=1))[:1]:
                self._finish(number + int(h))
        while waiting := [h for h in every[:number] if self._results[h] is None]:
            no_later = self._no_later[np.ix_(waiting, waiting)]
            self._finish(waiting[int(np.argmax(np.all(no_later | ~no_later.T, axis=1)))])
        soonest = number + int(np.argmax([result[0] for result in self._results[:number] if result]))
        self._finish(soonest)
        leader.restore(self._before)
        asked_for = [result for result in (*self._results[:number], self._results[soonest]) if result]
        return np.array([end for end, _ in asked_for]), np.array([is_probe for _, is_probe in asked_for])

    def passed(self, row: int) -> list[Passed]:
        """Return the latest saved state up to a packet, with a wait that never ends; see `Waits.passed`."""
        if not self._saved:
            return []
        drawn, made = self._words(), self._leader.drew()
        parents = [h for h in self._parents(self._end_no_later(drawn)) if self._saved[h][0][0] <= row]
        return [(self._state_of(h, drawn, made, self._never), self._saved[h][1]) for h in parents[-1:]]

    def skip(self) -> None:
        """Go to the latest saved state of the wait that has just been drawn, if there is one."""
        leader = self._leader
        if self._saved and (parents := self._parents(self._end_no_later(drawn := self._words()))):
            was_full = leader.control.tcp.cwnd_was_full
            leader.restore(self._state_of(parents[-1], drawn, leader.drew()))
            leader.control.tcp.cwnd_was_full = was_full  # which is set only where sends are scored

    def _begin(self, h: int) -> tuple[np.ndarray, Any]:
        """Draw wait `h`; return slots and stack then, and the draws."""
        leader = self._leader
        leader.restore(self._before)
        leader.draw(self._draws[h])
        self._results[h] = leader.watch(leader.row + 1, self._watch)
        return self._words(), leader.drew()

    def _words(self) -> np.ndarray:
        """Return slots and stack."""
        return np.concatenate([self._leader.control.slots, self._leader.control.stack])

    def _finish(self, h: int) -> None:
        """Run wait `h` to its end, from the latest saved state of a wait that ends no later."""
        if self._results[h] is not None:
            return
        leader, step = self._leader, SAVE_PACKETS if len(self._drawn) else self._last
        if parents := self._parents(self._no_later[:, h]):
            leader.restore(self._state_of(parents[-1], self._drawn[h], self._draws_made[h]))
            leader.likelihood[0] = self._saved[parents[-1]][1]
        else:
            self._begin(h)
            leader.likelihood[0] = 0.0
        saved = None
        while self._results[h] is None:
            self._results[h] = leader.watch(min(leader.row + step, self._last), self._watch, cx.PACED_SENDS)
            if self._results[h] is None and leader.row >= self._last:
                self._results[h] = self._last, False
            elif self._results[h] is None:
                saved = leader.save(), leader.written()[1][1], float(leader.likelihood[0])
        if saved is not None:
            self._saved[h] = leader.with_tables(saved[0], self._first_rows, saved[1]), saved[2]

    def _parents(self, no_later: np.ndarray) -> list[int]:
        """Return those waits of `no_later` of which a state is saved, the latest state last."""
        return sorted((h for h in self._saved if no_later[h]), key=lambda h: int(self._saved[h][0][0]))

    def _state_of(self, h: int, drawn: np.ndarray, made: Any, more: Any = 0) -> Any:
        """Return the saved state of wait `h` as that of another wait, of which `more` is left."""
        slots = self._slots
        return self._leader.as_drawn(self._saved[h][0], made, slots, drawn[slots] - self._drawn[h, slots] + more)

    def _end_no_later(self, drawn: np.ndarray) -> np.ndarray:
        """Return which waits differ from the one of state `drawn` in nothing but `fields`, and end no later."""
        more = drawn - self._drawn
        waits = more[:, self._slots] * np.sign(self._never)
        more[:, self._slots] = 0
        return np.asarray(np.all(waits >= 0, axis=1) & ~more.any(axis=1))
