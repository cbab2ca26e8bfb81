"""Re-enactment of a flow and replay of its controller in one pass, as in the sender's kernel.

What TCP hands to fq depends on cwnd and pacing rate, which the controller computes from rate samples, which depend
on what was handed over. The controller therefore leads: whenever the re-enactment (`flows.reenact`) has added rows
and TCP may hand over data, the controller is called with them (`loop.call_row`), and its decision determines what
is handed over.

Unrecorded values (random draws, ticks) are given by time, if inferred from a stream with other rows (`hand_over`),
or inferred on the way: a `Leader` supports trials as a `Follower` does.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.base import Controller
from cctrace.flows.flow import Flow
from cctrace.flows.reenact import ASKS, FINALS, OUT, PAUSED, RING, SCRATCH, SENDS, decide, enlarge, reenact
from cctrace.flows.state import ACK, CLOCK_START_US, NEVER, THROUGH_FQ
from cctrace.lang.fields import fields_of
from cctrace.lang.machine import Machine
from cctrace.replaying import book as bk
from cctrace.replaying.follow import Follower, of_sends
from cctrace.replaying.hypotheses import LONGEST
from cctrace.replaying.loop import call_row
from cctrace.replaying.probes import Probes
from cctrace.replaying.script import BEST, Best, Changes, Edit, Passed, Script
from cctrace.replaying.stack import CWND, DRAWS, NEXT_DRAW, PACING, usual_burst
from cctrace.replaying.timed import Timed
from cctrace.tcp.small_queue import SKB_OVERHEAD_BYTES, SKB_OVERHEAD_BYTES_6_1, TIMER_SLACK_NS

NOT_YET = 1 << 60  # row of a packet that has not been sent
# State of `lead`: whether the controller paces, the slot of its mode (-1: none), that mode's PROBE_RTT; the next of the
# draws and edits given by time; whether the next draw is given, and whether a missing one stops the pass; the slot
# whose value stops it (-1: none); the status with which `reenact` had stopped before; what an skb of its kernel takes
# besides its data
PACES, MODE_SLOT, PROBE_RTT, DRAW, EDIT, GIVEN, STOPS, WATCH_SLOT, WATCH_VALUE, STATUS, OVERHEAD, NOTES = range(12)
NOTES_SAVED = 6  # where `Leader.save` has that state
DRAWN, WATCHED = PAUSED + 1, PAUSED + 2  # statuses of `lead`, besides those of `reenact`


def give_draw(draws: Any, notes: Any, i: int, time_ns: int, one: Any) -> None:
    """Let row `i` draw the numbers given for the next draw, or those drawn closest to its time."""
    one[0, 0] = i if notes[GIVEN] != 0 else -1
    if draws.shape[0] == 0:
        return
    k = notes[DRAW]
    while k + 1 < draws.shape[0] and abs(draws[k + 1, 0] - time_ns) <= abs(draws[k, 0] - time_ns):
        k += 1
    notes[DRAW] = k
    one[0, 0] = i
    for j in range(1, 5):
        one[0, j] = draws[k, j]


def make_edits(edits: Any, notes: Any, time_ns: int, slots: Any, stack: Any) -> None:
    """Make the edits that are due before a row of this time."""
    while notes[EDIT] < edits.shape[0] and edits[notes[EDIT], 0] <= time_ns:
        slot, value = edits[notes[EDIT], 1], edits[notes[EDIT], 2]
        if slot >= 0:
            slots[slot] += value
        else:
            stack[-1 - slot] += value
        notes[EDIT] += 1


def decide_rows(
    at: Any, tp: Any, out: Any, sent: Any, controller: Any, script: Any, notes: Any, marks: Any, decided: Any
) -> int:
    """Call the controller with the new rows; return DRAWN or WATCHED if that stops, else 0."""
    book, slots, stack, ack, likelihood, saved = controller
    draws, edits, one = script
    calls, states = out
    size = slots.size
    if tp.sent < sent.size:
        # What will be handed over next is not known, whatever an earlier trial left there.
        sent[tp.sent].row, sent[tp.sent].begins = NOT_YET, 1
        sent[tp.sent].retransmitted, sent[tp.sent].ends_write = 0, 0
    for i in range(at.led_rows, tp.rows):
        if notes[STOPS] != 0 and book[bk.ENTRIES] >> np.int64(calls[i].event) & 1:  # other rows draw nothing
            saved[:size] = slots
            saved[size:] = stack
        time_ns = states[calls[i].of].time_ns
        make_edits(edits, notes, time_ns, slots, stack)
        give_draw(draws, notes, i, time_ns, one)
        stack[NEXT_DRAW] = 0
        if call_row(book, out, sent, marks, one, i, slots, stack, ack, likelihood) and notes[STOPS] != 0:
            slots[:] = saved[:size]
            stack[:] = saved[size:]
            at.led_rows = i
            return DRAWN
        if slots[DRAWS] > 0:
            notes[GIVEN] = 0
        decided[i, 0], decided[i, 2] = time_ns, slots[CWND]
        decided[i, 1] = max(slots[PACING], 0) if notes[PACES] != 0 else 0
        probing = notes[MODE_SLOT] >= 0 and slots[notes[MODE_SLOT]] == notes[PROBE_RTT]
        decided[i, 3] = 1 if probing else 0
        decided[i, 4] = usual_burst(slots, stack, book[bk.OWN_MIN_RTT], book[bk.SLOW_BURST])
        decided[i, 5] = notes[OVERHEAD]
        decide(tp, decided, i)
        if notes[WATCH_SLOT] >= 0 and slots[notes[WATCH_SLOT]] == notes[WATCH_VALUE]:
            at.led_rows = i + 1
            return WATCHED
    at.led_rows = tp.rows
    return 0


def lead(given: Any, tables: Any, controller: Any, script: Any, notes: Any, marks: Any, decided: Any) -> int:
    """Re-enact the single connection of a pass, led by a controller; fill `decided`, one row per row of the stream.

    Returns as `reenact` does, but never ASKS; or DRAWN, if an unknown number is drawn, or WATCHED. Called again, it
    continues from there.
    """
    packets, sacks, order, first, params, polls, nothing, marked, place = given
    out, _, sent, _, _, _, finals, _, _ = tables
    at, tp = place[0], finals[0]
    status = notes[STATUS]
    going = 1
    stopped = 0
    while going != 0:
        stopped = decide_rows(at, tp, out, sent, controller, script, notes, marks, decided)
        if stopped != 0 or status != ASKS:
            going = 0
        else:
            status = reenact(packets, sacks, order, first, params, polls, nothing, marked, place, tables)
    if stopped != 0:
        notes[STATUS] = status
        return stopped
    notes[STATUS] = ASKS
    return status


_lead = Machine(lead)


class Leader:
    """A controller that leads the re-enactment of a flow sent through fq.

    Inference uses it like a `Follower`, except that its rows are packets in order of capture. `flow`: as captured.
    `cls`: a Linux controller, which compiles. `script`: unrecorded values; without it, draws stop the pass.
    """

    def __init__(
        self,
        flow: Flow,
        cls: type[Controller],
        params: dict[str, Any],
        script: Timed | None = None,
        marks: NDArray[np.uint8] | None = None,
    ) -> None:
        follower = self._follower = Follower(flow.events, flow.events.sends, cls, params, (), marks=marks)
        if script:
            follower.begin(Script([], [], script.hz, script.tick_us, script.paced))
        self.cls, self.params, self.fields = cls, follower.params, follower.fields
        follower.book[bk.HANDS_OVER] = 1
        self._work = flow.reenactment(THROUGH_FQ)
        self._work.at["led"] = 1
        self._notes = np.zeros(NOTES, np.int64)
        self._notes[PACES] = bool(cls.sets_pacing_rate or self.params.get("paced", 0))
        has_mode = "mode" in fields_of(cls)
        self._notes[MODE_SLOT] = follower.slot("mode") if has_mode else -1
        self._notes[PROBE_RTT] = cls.states.index("PROBE_RTT") if has_mode else 0
        self._notes[WATCH_SLOT], self._notes[STATUS], self._notes[STOPS] = -1, ASKS, script is None
        # No kernel of BBRv2's is of 6.3 or later.
        self._notes[OVERHEAD] = SKB_OVERHEAD_BYTES_6_1 if cls.parts_as_v2 else SKB_OVERHEAD_BYTES
        self._one = np.full((1, 5), -1, np.int64)
        no_draws, no_edits = np.zeros((0, 5), np.int64), np.zeros((0, 3), np.int64)
        self._script = (*(script[:2] if script else (no_draws, no_edits)), self._one)
        saved = np.zeros(follower.slots.size + follower.stack.size, np.int64)
        self.likelihood = follower.likelihood
        self._controller = follower.book, follower.slots, follower.stack, follower.ack, self.likelihood, saved
        self._marks = of_sends(marks, len(self._work.tables[SENDS]))
        self._decided = np.zeros((self._work.room, 6), np.int64)
        self._drawn: list[list[int]] = []
        self._made: list[Edit] = []
        self._passed: list[Passed] = []
        self.row = 0
        self._lead = self._bound()

    def _bound(self) -> Callable[[], Any]:
        arrays = self._controller, self._script, self._notes, self._marks, self._decided
        return _lead.bind(self._work.given, self._work.tables, *arrays)

    # ---- what it goes by --------------------------------------------------------------------------------------------
    @property
    def decided(self) -> NDArray[np.int64]:
        """The decisions so far, as `Flow.paced_by` takes them: one row per row of the stream."""
        return self._decided[: int(self._work.at["led_rows"][0])]

    @property
    def script(self) -> Script:
        """The inferred values: what was drawn and changed, by rows of the stream that results."""
        return Script(self._drawn, self._made, self.params["hz"])

    @property
    def _sequence(self) -> NDArray[np.int64]:
        return self._work.given[2]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The packets in their order."""
        return self._sequence

    @property
    def is_ack(self) -> NDArray[np.bool_]:
        """Which of them are ACKs."""
        (_, direction, flags, *_), params = self._work.given[0], self._work.given[4]
        packets = self._sequence
        return (direction[packets] != params["sender"][0]) & (flags[packets] & ACK != 0)

    @functools.cached_property
    def now_us(self) -> NDArray[np.int64]:
        """Time of each packet on the connection's clock, us."""
        time_ns, params = self._work.given[0][0], self._work.given[4]
        return np.maximum.accumulate((time_ns[self._sequence] - params["start_ns"][0]) // 1000 + CLOCK_START_US)

    @property
    def times_probe_rtt(self) -> bool:
        """Whether PROBE_RTT starts when the replayed min_rtt expires: a flow through fq was captured at its sender."""
        return True

    @property
    def hands_over(self) -> bool:
        """Whether TCP hands packets to fq: always."""
        return True

    def srtt_us(self, row: int) -> int:
        """Return the smoothed RTT at a packet, as without fq: it hardly depends on the hand-over times."""
        place = int(self._rows_ns.searchsorted(self._work.given[0][0][self._sequence[row]]))
        return self._follower.srtt_us(min(place, len(self._follower.rows) - 1))

    @functools.cached_property
    def _rows_ns(self) -> NDArray[np.int64]:
        """Time of each row of the flow without fq, in one piece: a search would copy the column each time."""
        return np.ascontiguousarray(self._follower.rows["time_ns"])

    def get(self, name: str) -> Any:
        """Return the value of a field."""
        return self._follower.get(name)

    def set(self, name: str, value: int) -> None:
        """Change a field."""
        self._made.append(Edit(int(self._work.at["led_rows"][0]), name, value - self.get(name)))
        self._follower.set(name, value)

    # ---- the run ----------------------------------------------------------------------------------------------------
    def run(self, stop: int | None = None) -> int:
        """Process packets up to `stop` (default: all), or up to the first one with an unknown draw."""
        self._go(len(self.rows) if stop is None else stop)
        return self.row

    def _go(self, stop: int, score: int = bk.NOTHING) -> int:
        """Process packets up to `stop`; return `lead`'s status."""
        at, work = self._work.at, self._work
        at["until"] = stop if stop < len(self.rows) else NEVER
        self._follower.book[bk.SCORE] = score
        while True:
            ended = self._lead()
            if not OUT <= ended < ASKS:
                break
            work.grow(ended)
            enlarge(self._marks, len(work.tables[SENDS]))
            enlarge(self._decided, work.room)
            self._lead = self._bound()
        self._follower.check()
        if ended in (DRAWN, WATCHED):
            self.row = int(at["packet"][0]) - (self._notes[STATUS] != ASKS)
        else:
            self.row = min(stop, len(self.rows))
        return ended

    def _score_until(self, packet: int) -> None:
        """Score what has left by a packet: branches that hand over more by then are not to be judged by more sends."""
        last_us = int(self.now_us[min(packet, len(self.rows) - 1)])
        self._follower.book[bk.UNTIL_NS] = last_us * 1000 - TIMER_SLACK_NS

    def draw(self, numbers: Sequence[int]) -> None:
        """Prescribe up to four raw numbers for the next draw."""
        self._one[0] = 0
        self._one[0, 1 : 1 + len(numbers)] = numbers
        self._notes[GIVEN] = 1
        self._drawn.append([int(self._work.at["led_rows"][0]), *self._one[0, 1:].tolist()])

    def save(self) -> tuple[Any, ...]:
        """Return position and state, for `restore`."""
        ring, places = self._ring()
        return self.row, list(self._drawn), list(self._made), ring[places], *(array.copy() for array in self._state())

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to where `save` was called."""
        self.row, drawn, made, segments, *state = saved
        self._drawn, self._made = list(drawn), list(made)
        for array, before in zip(self._state(), state, strict=True):
            array[:] = before
        ring, places = self._ring()
        ring[places] = segments

    def _state(self) -> tuple[NDArray[Any], ...]:
        """Return what changes besides the segments; records as bytes, which are copied much faster than by field."""
        follower, tables = self._follower, self._work.tables
        records = (array.view(np.uint8) for array in (self._work.at, tables[FINALS], tables[SCRATCH]))
        return follower.slots, follower.stack, self._notes, self._one, *records

    def _ring(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ring of segments, as bytes, and the places that are in use."""
        tables = self._work.tables
        ring, tp = tables[RING], tables[FINALS][0]
        return ring.view(f"V{ring.itemsize}"), np.arange(tp["head"], tp["tail"]) & (len(ring) - 1)

    # ---- trials -----------------------------------------------------------------------------------------------------
    def trials(
        self, last: int, draws: Sequence[Sequence[int]], score: int, watch: tuple[str, int]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Try several draws from here up to packet `last`, without changing the state. See `Follower.trials`."""
        before = self.save()
        found = []
        self._score_until(last)
        for numbers in draws:
            self.draw(numbers)
            self._notes[WATCH_SLOT], self._notes[WATCH_VALUE] = self._follower.slot(watch[0]), watch[1]
            self.likelihood[0] = 0.0
            ended = self._go(last, score)
            found.append((self.likelihood[0], self.row + (ended in (DRAWN, WATCHED)), ended == WATCHED))
            self.restore(before)
        likelihood, ends, watched = (np.array(column) for column in zip(*found, strict=True))
        return likelihood, ends, watched

    def scan(
        self,
        starts: NDArray[np.int64],
        end: int,
        base: Changes,
        change: Changes,
        total: float = 0.0,
        best: Best = BEST,
    ) -> NDArray[np.float64]:
        """Make `change` at each of the packets `starts` and go on up to packet `end`. See `Follower.scan`."""
        before = self.save()
        self._score_until(end)
        self._notes[STOPS], self._follower.book[bk.UNKNOWN_DRAW] = 0, LONGEST
        self._add(base)
        branches, totals = {}, {}
        self.likelihood[0] = total
        for place in np.unique(np.append(starts, end)):
            self._go(int(place), bk.PACED_SENDS)
            totals[int(place)] = float(self.likelihood[0])
            if place in starts:
                branches[int(place)] = self.save()
        found = []
        for start in starts.tolist():
            self.restore(branches[start])
            self._add(change)
            self.likelihood[0] = 0.0
            self._go(end, bk.PACED_SENDS)
            found.append(float(self.likelihood[0]) - totals[end] + totals[start])
        self._follower.book[bk.UNKNOWN_DRAW] = 0
        self.restore(before)
        self._passed = [(branches[start], totals[start]) for start in starts.tolist()]
        for state, _ in self._passed:
            state[NOTES_SAVED][STOPS] = self._notes[STOPS]
        return np.array(found)

    def passed(self) -> list[Passed]:
        """Return the base before each of the last scan's starts. See `Follower.passed`."""
        return self._passed

    def _add(self, change: Changes) -> None:
        for name, value in change.items():
            self._follower.slots[self._follower.slot(name)] += value


def hand_over(
    flow: Flow,
    cls: type[Controller],
    params: dict[str, Any],
    script: Timed,
    marks: NDArray[np.uint8] | None = None,
) -> tuple[NDArray[np.int64], Script | None]:
    """Return a controller's decisions over a flow sent through fq, as `Flow.paced_by` takes them, and what it inferred.

    See `Leader` for the arguments. `script` has the unrecorded values, except when BBRv2 and v3 probe, which the
    pass infers: it depends on when BBR fills the pipe, and thus on what is handed over.
    """
    if cls.probe_draws:
        leader = Leader(flow, cls, params, marks=marks)
        Probes(leader).run()
        return leader.decided, leader.script
    leader = Leader(flow, cls, params, script, marks)
    leader.run()
    return leader.decided, None
