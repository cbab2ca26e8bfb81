"""Re-enactment of a flow sent through fq and replay of its controller in one pass, as in the sender's kernel.

When TCP handed a packet to fq is not in the capture. It depends on cwnd and pacing rate, which the controller computes
from rate samples, which depend on what was handed over. So the two run in turns: whenever the re-enactment
(`flows.sender.reenact`) has added rows to the event stream and TCP may hand over data, the controller is called with
them and decides what is handed over (`engine.leading`).

The values that no capture contains (random draws, ticks) are given by time if they were inferred from a stream with
other rows (`timed`), or inferred on the way: a `Leader` supports trials as a `Follower` does.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.base import Controller
from cctrace.flows.flow import Flow
from cctrace.flows.sender.reenact import FINALS, OUT, RING, SCRATCH, SENDS, UNDECIDED, enlarge
from cctrace.flows.state import NEVER, THROUGH_FQ
from cctrace.lang.fields import fields_of
from cctrace.lang.machine import Machine
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.branches import BEGIN, TIE, TRIED, next_start
from cctrace.replaying.engine.follow import Follower, of_sends
from cctrace.replaying.engine.leading import (
    DRAWN,
    ENDED,
    IS_GIVEN,
    LEAST,
    MODE_SLOT,
    OVERHEAD,
    PASS_SIZE,
    PROBE_RTT,
    SETS_RATE,
    STATUS,
    STOPS,
    WATCH_SLOT,
    WATCH_VALUE,
    WATCHED,
    lead,
)
from cctrace.replaying.engine.script import BEST, Best, Changes, Edit, Passed, Script
from cctrace.replaying.inference.hypotheses import LARGEST_DRAW
from cctrace.replaying.inference.timed import Timed
from cctrace.schema import CLOCK_START_US, ON_ACK
from cctrace.tcp.flags import ACK
from cctrace.tcp.small_queue import SKB_OVERHEAD_BYTES, SKB_OVERHEAD_BYTES_6_1, TIMER_SLACK_NS

# Places in what `Leader.save` returns: draws, rows of tables, slots, the state of the pass (`leading`), the next draw.
DRAWS, WRITTEN, SLOTS, STATE, NEXT = 1, 3, 5, 7, 8
_lead, _next_start = Machine(lead), Machine(next_start)


class Leader:
    """A Linux controller that decides what the re-enactment of a flow hands over to fq.

    Inference uses it like a `Follower`, but its rows are packets in order of capture. `flow`: as captured. `script`:
    random draws, edits and ticks; without it, the pass stops at each draw. `marks`: see `Follower`.
    """

    def __init__(
        self,
        flow: Flow,
        cls: type[Controller],
        params: dict[str, Any],
        script: Timed | None = None,
        marks: NDArray[np.uint8] | None = None,
    ) -> None:
        follower = self.control = Follower(flow.events, flow.events.sends, cls, params, (), marks=marks)
        if script:
            follower.begin(Script([], [], script.hz, script.tick_us, script.paced))
        self.cls, self.params, self.fields = cls, follower.params, follower.fields
        follower.ctx[cx.HANDS_OVER] = 1
        self._reenactment = flow.reenactment(THROUGH_FQ)
        self._reenactment.at["awaits_decisions"] = 1
        self._pass = np.zeros(PASS_SIZE, np.int64)
        self._pass[SETS_RATE] = bool(cls.sets_pacing_rate or self.params.get("paced", 0))
        has_mode = "mode" in fields_of(cls)
        self._pass[MODE_SLOT] = follower.slot("mode") if has_mode else -1
        self._pass[PROBE_RTT] = cls.states.index("PROBE_RTT") if has_mode else 0
        self._pass[WATCH_SLOT], self._pass[STATUS], self._pass[STOPS] = -1, UNDECIDED, script is None
        self._pass[LEAST] = -cx.NO_MARGIN
        # All kernels of BBRv2 are older than 6.3, in which an skb became smaller.
        self._pass[OVERHEAD] = SKB_OVERHEAD_BYTES_6_1 if cls.parts_as_v2 else SKB_OVERHEAD_BYTES
        self._next_draw = np.full((1, 5), -1, np.int64)
        no_draws, no_edits = np.zeros((0, 5), np.int64), np.zeros((0, 3), np.int64)
        self._script = (*(script[:2] if script else (no_draws, no_edits)), self._next_draw)
        checkpoint = np.zeros(follower.slots.size + follower.stack.size, np.int64)
        self.likelihood = np.zeros(2 + len(self._sequence))
        self._controller = follower.ctx, follower.slots, follower.stack, follower.ack, self.likelihood, checkpoint
        self._marks = of_sends(marks, len(self._reenactment.tables[SENDS]))
        self._decided = np.zeros((self._reenactment.room, 6), np.int64)
        self._drawn: list[list[int]] = []
        self._edits: list[Edit] = []
        self._passed: list[Passed] = []
        self.row = 0
        self._lead = self._bound()

    def _bound(self) -> Callable[[], Any]:
        follower, tables = self.control, self._reenactment.tables
        out, sent, ring = tables[OUT], tables[SENDS], tables[RING]
        # As bytes, which are copied much faster than by field.
        records = (array.view(np.uint8) for array in (self._reenactment.at, tables[FINALS], tables[SCRATCH]))
        self._state = follower.slots, follower.stack, self._pass, self._next_draw, *records
        *rows, self._segments = (table.view(f"V{table.itemsize}") for table in (*out, sent, ring))
        self._tables, self._final = [*rows, self._marks, self._decided], tables[FINALS]
        arrays = self._controller, self._script, self._pass, self._marks, self._decided
        return _lead.bind(self._reenactment.given, self._reenactment.tables, *arrays)

    # ---- inputs and results ----------------------------------------------------------------------------------------
    @property
    def decided(self) -> NDArray[np.int64]:
        """The decisions so far, as `Flow.paced_by` takes them: one row per row of the stream."""
        return self._decided[: int(self._reenactment.at["decided_rows"][0])]

    @property
    def script(self) -> Script:
        """The inferred values: what was drawn and changed, by rows of the stream that results."""
        return Script(self._drawn, self._edits, self.params["hz"])

    @property
    def _sequence(self) -> NDArray[np.int64]:
        return self._reenactment.given[2]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The packets in their order."""
        return self._sequence

    @functools.cached_property
    def is_ack(self) -> NDArray[np.bool_]:
        """Which of them are ACKs."""
        (_, direction, flags, *_), params = self._reenactment.given[0], self._reenactment.given[4]
        packets = self._sequence
        return (direction[packets] != params["sender"][0]) & (flags[packets] & ACK != 0)

    @functools.cached_property
    def now_us(self) -> NDArray[np.int64]:
        """Time of each packet on the connection's clock, us."""
        return np.maximum.accumulate(self.clock_us(self._reenactment.given[0][0][self._sequence]))

    def clock_us(self, time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return capture times on the connection's clock, us."""
        return (time_ns - self._reenactment.given[4]["start_ns"][0]) // 1000 + CLOCK_START_US

    @property
    def times_probe_rtt(self) -> bool:
        """Whether PROBE_RTT starts when the replayed min_rtt expires: a flow through fq was captured at its sender."""
        return True

    @property
    def hands_over(self) -> bool:
        """Whether TCP hands packets to fq: always."""
        return True

    def srtt_us(self, packets: int | NDArray[np.int64]) -> int:
        """Return the smoothed RTT at a packet, or the longest of several, us: as captured, without the hand-over."""
        places = self._rows_ns.searchsorted(self._reenactment.given[0][0][self._sequence[packets]])
        return self.control.srtt_us(np.minimum(places, len(self.control.rows) - 1))

    @functools.cached_property
    def _rows_ns(self) -> NDArray[np.int64]:
        """Time of each row of the flow as captured, contiguous, as a search would otherwise copy the column."""
        return np.ascontiguousarray(self.control.rows["time_ns"])

    def get(self, name: str) -> Any:
        """Return the value of a field."""
        return self.control.get(name)

    def set(self, name: str, value: int) -> None:
        """Change a field."""
        self._edits.append(Edit(int(self._reenactment.at["decided_rows"][0]), name, value - self.get(name)))
        self.control.set(name, value)

    # ---- the run ----------------------------------------------------------------------------------------------------
    def run(self, stop: int | None = None) -> int:
        """Process packets up to `stop` (default: all), or up to the first one with an unknown draw."""
        self._go(len(self.rows) if stop is None else stop)
        return self.row

    def _go(self, stop: int, score: int = cx.NOTHING) -> int:
        """Process packets up to `stop`; return `lead`'s status."""
        at, work = self._reenactment.at, self._reenactment
        at["until"] = stop if stop < len(self.rows) else NEVER
        self.control.ctx[cx.SCORE] = score
        while True:
            ended = self._lead()
            if not OUT <= ended < UNDECIDED:
                break
            work.grow(ended)
            enlarge(self._marks, len(work.tables[SENDS]))
            enlarge(self._decided, work.room)
            self._lead = self._bound()
        self.control.check()
        if ended in (DRAWN, WATCHED, ENDED):
            self.row = int(at["packet"][0]) - (self._pass[STATUS] != UNDECIDED)
        else:
            self.row = min(stop, len(self.rows))
        return ended

    def score(self, stop: int, score: int) -> float:
        """Process packets up to `stop`; return the log likelihood of those that had left by then."""
        self._score_until(stop)
        self.likelihood[0] = 0.0
        self._go(stop, score)
        return float(self.likelihood[0])

    def _score_until(self, packet: int) -> None:
        """Score only what leaves by the time of a packet: a branch that hands over more must not score more sends."""
        last_us = int(self.now_us[min(packet, len(self.rows) - 1)])
        self.control.ctx[cx.UNTIL_NS] = last_us * 1000 - TIMER_SLACK_NS

    def draw(self, numbers: Sequence[int]) -> None:
        """Prescribe up to four raw numbers for the next draw."""
        self._next_draw[0] = 0
        self._next_draw[0, 1 : 1 + len(numbers)] = numbers
        self._pass[IS_GIVEN] = 1
        self._drawn.append([int(self._reenactment.at["decided_rows"][0]), *self._next_draw[0, 1:].tolist()])

    def save(self) -> tuple[Any, ...]:
        """Return position and state, for `restore`."""
        ring, places = self._ring()
        position = self.row, list(self._drawn), list(self._edits), None
        return *position, ring[places], *(array.copy() for array in self._state)

    def restore(self, saved: Sequence[Any]) -> None:
        """Go back to where `save` was called."""
        self.row, drawn, edits, written, segments, *state = saved
        self._drawn, self._edits = list(drawn), list(edits)
        if written is not None:
            for table, first, rows in zip(self.written()[0], *written, strict=True):
                table[first : first + len(rows)] = rows
        for array, before in zip(self._state, state, strict=True):
            array[:] = before
        ring, places = self._ring()
        ring[places] = segments

    def samples(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return when ACKs were processed, on the connection's clock, and their RTT samples (-1: none), us."""
        calls, states, _ = self._reenactment.tables[OUT]
        acks = states[calls["of"][: len(self.decided)][calls["event"][: len(self.decided)] == ON_ACK]]
        return self.clock_us(acks["time_ns"]), acks["rs_rtt_us"].astype(np.int64)

    def _ring(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the ring of segments and the places that are in use."""
        tp, ring = self._final[0], self._segments
        return ring, np.arange(tp["head"], tp["tail"]) & (len(ring) - 1)

    def written(self) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
        """Return the tables that the pass writes, as bytes; which row it next writes of each, and how many rows.

        The controller marks packets, and decides, after they were handed over, or after the rows were added.
        """
        tp = self._final[0]
        ends = [tp["rows"], tp["states"], tp["steady"], tp["sent"], tp["sent"], tp["rows"]]
        nexts = [*ends[:4], self.control.tcp.next_send, self._reenactment.at["decided_rows"][0]]
        return self._tables, np.array([nexts, ends], np.int64)

    # ---- trials -----------------------------------------------------------------------------------------------------
    def watch(self, stop: int, watch: tuple[str, int], score: int = cx.NOTHING) -> tuple[int, bool] | None:
        """Process packets up to `stop`, or up to one at which a draw is needed or a field gets a value (`watch`).

        Return the packet after that, and whether the field got the value; None if neither happened.
        """
        self.control.ctx[cx.UNTIL_NS] = 0
        self._pass[WATCH_SLOT], self._pass[WATCH_VALUE] = self.control.slot(watch[0]), watch[1]
        ended = self._go(stop, score)
        self._pass[WATCH_SLOT] = -1
        return (self.row + 1, ended == WATCHED) if ended in (DRAWN, WATCHED) else None

    def with_tables(self, saved: Any, firsts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[Any, ...]:
        """Return a saved state with copies of the tables' rows [firsts, ends), which other trials may overwrite."""
        rows = [table[first:end].copy() for table, first, end in zip(self.written()[0], firsts, ends, strict=True)]
        return *saved[:WRITTEN], (firsts, rows), *saved[WRITTEN + 1 :]

    def drew(self) -> tuple[Any, ...]:
        """Return the draws so far, and the next one."""
        return list(self._drawn), self._next_draw.copy()

    def as_drawn(self, saved: Any, drew: Any, slots: NDArray[np.int64], more: NDArray[np.int64]) -> list[Any]:
        """Return a saved state with other draws (of `drew`), and with `more` added to some slots."""
        state = list(saved)
        state[DRAWS], state[SLOTS], state[NEXT] = drew[0], saved[SLOTS].copy(), drew[1]
        state[SLOTS][slots] += more
        return state

    def trials(
        self, last: int, draws: Sequence[Sequence[int]], score: int, watch: tuple[str, int]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Try several draws from here up to packet `last`, without changing the state. See `Follower.trials`."""
        before = self.save()
        found = []
        self._score_until(last)
        for numbers in draws:
            self.draw(numbers)
            self._pass[WATCH_SLOT], self._pass[WATCH_VALUE] = self.control.slot(watch[0]), watch[1]
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
        before, ctx = self.save(), self.control.ctx
        self._score_until(end)
        self._pass[STOPS], ctx[cx.UNKNOWN_DRAW] = 0, LARGEST_DRAW
        self._change(base)
        branches, written, totals = {}, {}, {}
        self.likelihood[0], ctx[cx.STORES_BOUNDS] = total, 1
        sent, firsts = int(self.control.tcp.next_send), self.written()[1][0]
        for place in np.unique(np.append(starts, end)).tolist():
            self._go(place, cx.PACED_SENDS)
            totals[place] = float(self.likelihood[0])
            if place in starts:
                branches[place], written[place] = self.save(), self.written()[1]
        ctx[cx.STORES_BOUNDS] = 0
        self._sum_bounds(sent, end)
        tables, (_, ends) = self.written()
        base_rows = [table[first:last].copy() for table, first, last in zip(tables, firsts, ends, strict=True)]

        def rewrite(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
            """Write the base's rows [begins, ends) over what branches have written."""
            for table, rows, first, begin, last in zip(self.written()[0], base_rows, firsts, begins, ends, strict=True):
                table[begin:last] = rows[begin - first : last - first]

        ratios, most = np.zeros(len(starts)), best.reached
        order, stride, near, here = np.zeros((2, len(starts)), np.int64), 1, -1, end
        order[0], order[1, np.argmin(np.abs(starts - best.near))] = starts, BEGIN
        for _ in starts:
            k, stride = _next_start(order, len(starts), near, stride)
            start, order[1, k] = int(starts[k]), TRIED
            if start > here:  # rows before its start must be the base's
                rewrite(written[here][0], written[start][1])
            here = start
            self.restore(branches[start])
            self._change(change)
            beyond = totals[end] - totals[start]
            self._pass[LEAST] = cx.thousandths(min(most * best.lower, most / best.lower) - TIE + beyond)
            self.likelihood[0] = 0.0
            ended = self._go(end, cx.PACED_SENDS) == ENDED
            rest = self.likelihood[1 + self.control.tcp.next_send] if ended else 0.0
            ratios[k] = self.likelihood[0] + rest - beyond
            near = k if near < 0 or ratios[k] > ratios[near] else near
            most = max(most, float(ratios[k]))
        ctx[cx.UNKNOWN_DRAW] = 0
        rewrite(firsts, ends)  # so that the states of `passed` can go on
        self.restore(before)
        self._passed = [(branches[start], totals[start]) for start in starts.tolist()]
        for state, _ in self._passed:
            state[STATE][STOPS] = self._pass[STOPS]
        return ratios

    def _sum_bounds(self, first: int, end: int) -> None:
        """Turn the most that each send from `first` on can add into the most that it and all later ones can.

        What leaves after the last ACK before packet `end` adds nothing to the bounds: how much of it a branch scores
        depends on what the branch handed over by then.
        """
        last = int(self.control.tcp.next_send)
        acks = np.flatnonzero(self.is_ack[:end])
        until_ns = int(self.now_us[acks[-1]]) * 1000 - TIMER_SLACK_NS if len(acks) else 0
        most = self.likelihood[1 + first : 1 + last]
        most[self._reenactment.tables[SENDS]["tx_ns"][first:last] >= until_ns] = 0.0
        most[:] = np.cumsum(most[::-1])[::-1]
        self.likelihood[1 + last :] = 0.0

    def passed(self) -> list[Passed]:
        """Return the base's state before each start of the last scan. See `Follower.passed`."""
        return self._passed

    def _change(self, change: Changes) -> None:
        for name, value in change.items():
            self.control.slots[self.control.slot(name)] += value
