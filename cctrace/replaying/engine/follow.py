"""A Linux controller replayed over a recorded flow: run, saved and restored, and tried with other values.

`Follower` owns the arrays that the functions of `loop` work on. Compiled, calls and trials are machine code.
Interpreted, the controller is an object of its class whose methods are called, so that breakpoints work; then there are
no trials, and the values that no capture contains (random numbers, ticks) are passed in as a `Script`.
"""

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.base import Controller
from cctrace.cc.cmath import U32_MAX
from cctrace.columns import Bools, Floats, Held, Ints, Values
from cctrace.flows.events import Events
from cctrace.lang.fields import fields_of, record_dtype, recordable
from cctrace.lang.machine import Machine, named
from cctrace.lang.memory import forget
from cctrace.replaying.engine import branches, loop, trying
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import stack as sk
from cctrace.replaying.engine.calls import CompiledCalls, InterpretedCalls, recorded_in, slots_of, state_of
from cctrace.replaying.engine.initial import first_window, restart_window
from cctrace.replaying.engine.new_context import new_context
from cctrace.replaying.engine.recording import Recording
from cctrace.replaying.engine.script import BEST, Best, Changes, Edit, Passed, Script
from cctrace.replaying.engine.stream import stream_of

_FUNCTIONS: dict[str, Any] = {"run": loop.run, "score": loop.score, "trials": trying.trials, "scan": branches.scan}
_MACHINES = {name: Machine(function) for name, function in _FUNCTIONS.items()}
MOST, CHANGES = branches.MOST, 6  # hypotheses at a time, and changes per hypothesis

Watch: TypeAlias = tuple[str, int]  # a field, and the value that ends a trial


def of_sends(marks: NDArray[np.uint8] | None, sends: int) -> NDArray[np.uint8]:
    """Return `marks` for so many sends: of a damaged capture, the hand-over to fq may have more or fewer."""
    padded = np.zeros(sends, np.uint8)
    if marks is not None:
        padded[: len(marks)] = marks[:sends]
    return padded


class Follower:
    """A Linux controller that has been replayed up to `row` of a recorded flow.

    `sends`: rows of `schema.SENDS`, None for counters. `record`: fields to record after every row, `in_runs` of equal
    values (`held`) or, to be read on the way, as columns (`recorded`). `mode`: "compiled", "interpreted" or "debug".
    `marks`: which sends were application-limited (`context`); None: not known.
    """

    def __init__(
        self,
        events: Events,
        sends: Values | None,
        cls: type[Controller],
        params: dict[str, Any],
        record: Sequence[str] = (),
        mode: str = "compiled",
        in_runs: bool = False,
        marks: NDArray[np.uint8] | None = None,
    ) -> None:
        self.cls, self.params, self.mode, self.events = cls, params, mode, events
        self.stream = stream_of(events, sends)
        self.rows, self.sends = events, self.stream.sends
        self.fields = fields_of(cls)
        self.dtype = record_dtype(cls)
        self._machine: CompiledCalls | InterpretedCalls
        self._machine = CompiledCalls(cls, params) if mode == "compiled" else InterpretedCalls(cls, params, mode)
        self.slots = self._machine.slots
        weakref.finalize(self, forget, [self._machine.address])
        self.row = 0
        self.warnings: list[str] = []
        self.draws, self.drawn = np.full((0, 5), -1, np.int64), 0
        self.is_marked = marks is not None
        self.marks = of_sends(marks, len(self.sends))
        self.may_draw = bool(cls.phase_choices or cls.probe_draws)
        self.ack = self._machine.ack
        self.likelihood = np.zeros(2 + (len(self.sends) if self.may_draw or not cls.has_on_ack else 0))
        self.stack = np.zeros(sk.STACK_WORDS, np.int64)
        self.tcp = sk.tcp_of(self.stack)
        self.tcp.mss, self.tcp.restart_cwnd = max(events.meta["mss"], 1), restart_window(events, sends)
        self.tcp.hz, self.tcp.gso_max_bytes = params["hz"], params.get("gso_max_bytes", 0)
        self.tcp.slots_address, self.slots[sk.CWND] = self.slots.ctypes.data, first_window(events, self.slots[sk.CWND])
        self.ctx = new_context(cls, params, events, self.sends, self._machine, self.slot)
        self.ctx[cx.MARKED] = self.is_marked
        # The argument `replay` of the functions of `loop`.
        self.replay_arrays = self.ctx, self.stream.tables, self.sends, self.marks, self.ack, self.likelihood
        self.counts_ticks = self._machine.counts_ticks  # the compiled controller reads the kernel's ticks
        self.reads = self._machine.reads  # columns that its entry points read
        self.may_pace = bool(self.ctx[cx.PACED_SLOT] >= 0)  # the socket, although the controller sets no rate
        # PROBE_RTT starts when the replayed min_rtt expires, not where the flight was seen to fall.
        self.times_probe_rtt = bool(self.ctx[cx.STAMP_SLOT] < 0)
        words = self.slots.size + self.stack.size
        self.checkpoint = np.zeros(words if self.may_draw else 0, np.int64)
        self.places = {name: recordable(cls, name) for name in record}
        self.record_slots = slots_of(self.places)
        self._recording = Recording(self.places, len(self.rows)) if record and in_runs else None
        self.out = self._recording.words if self._recording else np.zeros((len(record), len(self.rows)), np.int64)
        self._sums: tuple[Ints, Floats] = (np.zeros(0, np.int64), np.zeros(0))
        self._calls: dict[str, Callable[[], Any]] = {}
        # Of trials: the state that they work on, the one that they start from, and what they are given and return.
        self._trial_slots, self._trial_stack = np.zeros_like(self.slots), np.zeros_like(self.stack)
        self._start_slots, self._start_stack = np.zeros_like(self.slots), np.zeros_like(self.stack)
        self._trial_draws = np.full((MOST, 1, 5), -1, np.int64)
        self._changes, self._results = np.zeros((MOST, CHANGES, 2), np.int64), np.zeros((MOST, 3))
        self._starts, self._start_states, self._stored = branches.scratch(words, len(self.sends))

    # ---- the committed run ------------------------------------------------------------------------------------------
    def run(self, stop: int | None = None, score: int = cx.NOTHING, function: str = "run") -> int:
        """Call rows up to `stop` (default: all), or up to the first call that takes an unknown random number.

        With `score`, the log likelihood of the sends is added to ``likelihood[0]``. `function`: of `loop`.
        """
        stop = len(self.rows) if stop is None else min(stop, len(self.rows))
        while True:
            last = min(stop, self.room(self.row))
            self.ask(self.row, last, score)
            self.row = int(self._bound(function)())
            self.check()
            if self.row < last or last == stop:
                return self.row

    def room(self, row: int, end: int = 0) -> int:
        """Return the row up to which there is memory to record, from `row` on: at least `end`, if that is possible."""
        if not self._recording:
            return len(self.rows)
        last = self._recording.until(row, end)
        self.ctx[cx.RECORDED_FROM] = self._recording.first
        return last

    def check(self) -> None:
        """Raise the error of a failed call, if any."""
        self._machine.check()

    def ask(
        self, first: int, last: int, score: int, hypotheses: int = 0, watch: Watch | None = None, unknown: int = 0
    ) -> None:
        """Set which rows the next call of compiled code runs, what it scores, and how many hypotheses there are."""
        ctx = self.ctx
        ctx[cx.UNKNOWN_DRAW] = unknown
        ctx[cx.FIRST], ctx[cx.LAST], ctx[cx.SCORE], ctx[cx.HYPOTHESES] = first, last, score, hypotheses
        ctx[cx.WATCH_SLOT], ctx[cx.WATCH_VALUE] = (self.slot(watch[0]), watch[1]) if watch else (-1, 0)

    def _bound(self, name: str) -> Callable[[], Any]:
        """Return one of the compiled functions with its arrays bound."""
        if name not in self._calls:
            self._calls[name] = self._bind(name)
        return self._calls[name]

    def _bind(self, name: str) -> Callable[[], Any]:
        replay, trial = self.replay_arrays, (self._trial_slots, self._trial_stack, self._results)
        args: tuple[Any, ...]
        if name in ("run", "score"):
            state = self.slots, self.stack, self.checkpoint, (self.record_slots, self.out)
            args = (*(self._sums if name == "score" else ()), replay, self.draws, *state)
        elif name == "trials":
            args = (replay, self._trial_draws, self.slots, self._start_stack, self._changes, *trial)
        else:
            base = (self._start_slots, self._start_stack, self._changes[0], self._start_states, self._stored)
            args = (replay, self._trial_draws[0], self._starts, *base, *trial)
        if self.mode != "compiled":
            interpreted = named(args)
            return lambda: _FUNCTIONS[name](*interpreted)
        return _MACHINES[name].bind(*args)

    def play(self, script: Script, stop: int | None = None) -> bool:
        """Replay a script up to row `stop` (default: all); return False where a call takes a number that it lacks."""
        self.begin(script)
        for edit in script.edits:
            self.run(edit.row)
            self.edit(edit)
        return self.run(stop) == (len(self.rows) if stop is None else stop)

    def score(self, script: Script, stops: Sequence[int] | Ints, by: int = cx.ALL_SENDS) -> Floats:
        """Replay a script; return the log likelihood of the sends in each block of rows, which end at `stops`.

        `stops`: ascending rows, up to the number of rows. `by`: `cx.ALL_SENDS` (`likelihood.any_send`);
        `cx.TIMED_SENDS`: departure times without sizes (`timed_send`); or `cx.OWN_SENDS`: the same without sends that
        the application timed.
        """
        self.begin(script)
        self.ctx[cx.USUAL_GAP_US], self.ctx[cx.BLOCK], self.likelihood[0] = self.stream.usual_gap_us, 0, 0.0
        self._sums = np.array(stops, np.int64), np.zeros(len(stops))
        self._calls.pop("score", None)
        self.replay(script.edits, int(stops[-1]) if len(stops) else 0, by, "score")
        return self._sums[1]

    def replay(self, edits: Sequence[Edit], stop: int, score: int = cx.NOTHING, function: str = "run") -> None:
        """Call rows up to `stop`, as `run` does, and make the edits on the way."""
        for edit in edits:
            if self.row <= edit.row < stop:
                self._run_with_any_draws(edit.row, score, function)
                self.edit(edit)
        self._run_with_any_draws(stop, score, function)

    def _run_with_any_draws(self, stop: int, score: int, function: str) -> None:
        """Call rows up to `stop`; a draw in another row than inferred gets the next numbers.

        Through fq, `cx.TIMED_SENDS` stamps packets otherwise than inference does (`loop.process_sends`), so that a
        round of a BBRv2, which reads the stamps, may begin an ACK sooner or later.
        """
        while self.run(stop, score, function) < stop:
            k = int(self.tcp.next_draw)
            if k < len(self.draws):
                self.draws[k, 0] = self.row
            else:
                self._know(np.append(self.draws, [[self.row, *[U32_MAX] * 4]], axis=0))

    def begin(self, script: Script) -> None:
        """Apply the inferred values at row 0, except edits, which the caller makes."""
        self._know(np.array(script.draws, np.int64).reshape(-1, 5))
        self.set_ticks(script.hz or self.params["hz"], script.tick_us)
        if script.paced is not None:
            self.set_paced(script.paced)
        if script.gso_max_bytes is not None:
            self.set_gso(script.gso_max_bytes)
        if script.ecn_enable is not None:
            self.set_parameter("ecn_enable", script.ecn_enable)

    def set_parameter(self, name: str, value: int) -> None:
        """Set a parameter of the controller."""
        self.params = self.params | {name: value}
        self.set(name, value)

    def set_paced(self, paced: int) -> None:
        """Set whether the socket paces (1) or not (0)."""
        self.set_parameter("paced", paced)

    def set_gso(self, gso_max_bytes: int) -> None:
        """Set how long super-packets of BBRv2 would be at a min_rtt of 0."""
        self.set_parameter("gso_max_bytes", gso_max_bytes)
        self.tcp.gso_max_bytes = gso_max_bytes

    def set_ticks(self, hz: int, tick_us: int) -> None:
        """Set the kernel's tick rate, and the lead of its ticks over the connection's clock."""
        self.set_parameter("hz", hz)
        self.tcp.hz, self.tcp.tick_us = hz, tick_us

    def edit(self, edit: Edit) -> None:
        """Make an edit at its row."""
        self.set(edit.field, self.get(edit.field) + edit.value)

    def draw(self, numbers: Sequence[int]) -> None:
        """Prescribe up to four raw random numbers for the call at `row`."""
        if self.drawn == len(self.draws):
            self._know(np.concatenate([self.draws, np.full((max(16, self.drawn), 5), -1, np.int64)]), self.drawn)
        self.draws[self.drawn] = 0
        self.draws[self.drawn, : 1 + len(numbers)] = (self.row, *numbers)
        self.drawn += 1

    def _know(self, draws: Ints, drawn: int | None = None) -> None:
        self.draws, self.drawn = draws, len(draws) if drawn is None else drawn
        self._calls = {name: bound for name, bound in self._calls.items() if name not in ("run", "score")}

    def save(self) -> tuple[Any, ...]:
        """Return position and state, for `restore`."""
        return self.row, self.slots.copy(), self.stack.copy(), self.draws[: self.drawn].copy()

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to where `save` was called; rows recorded since then are overwritten by the next `run`."""
        self.row, slots, stack, draws = saved
        self.slots[:], self.stack[:] = slots, stack
        self.drawn = len(draws)
        self.draws[: self.drawn], self.draws[self.drawn :] = draws, -1

    def slot(self, name: str) -> int:
        """Return the slot of a scalar field."""
        places: Any = self.dtype.fields
        return int(places[name][1]) // 8

    def get(self, name: str) -> Any:
        """Return the value of a field."""
        return self._machine.get(name)

    def set(self, name: str, value: Any) -> None:
        """Change a field."""
        self._machine.set(name, value)

    # ---- trials -----------------------------------------------------------------------------------------------------
    def trials(
        self,
        last: int,
        draws: Sequence[Sequence[int]] | None = None,
        changes: Sequence[Mapping[Any, int]] | None = None,
        score: int = cx.PACED_SENDS,
        watch: Watch | None = None,
        margin: float = math.inf,
    ) -> tuple[Floats, Ints, Bools]:
        """Try up to MOST hypotheses from here up to row `last`, without changing the state.

        `draws`: the random numbers of the call at `row` under each hypothesis. `changes`: what each adds to fields (or,
        at -1 - k, to element k of the stack) before that call. `watch`: a field and the value with which a trial ends.
        `margin`: trials that cannot beat the first one's likelihood by so much (below 0: that miss the best one's by
        more) may stop early, with an upper bound. Returns, of each, the log likelihood of the sends; the row after the
        last one called, as a trial ends at its next draw; and whether the watched field ended it.
        """
        number = len(draws or changes or ())
        self._trial_draws[:number] = -1
        for k, numbers in enumerate(draws or ()):
            self._trial_draws[k, 0, : 1 + len(numbers)] = (self.row, *numbers)
            self._trial_draws[k, 0, 1 + len(numbers) :] = 0
        self._set_changes(changes or [{}] * number)
        self._start_stack[:] = self.stack
        self._start_stack[sk.NEXT_DRAW] = 0
        self._trial_stack[sk.SLOTS_ADDRESS] = self._trial_slots.ctypes.data
        self.ask(self.row, min(last, len(self.rows)), score, number, watch)
        self.ctx[cx.MARGIN], self.ctx[cx.BASE_KNOWN] = cx.thousandths(margin), 0
        self.likelihood[0] = 0.0
        self._bound("trials")()
        likelihood, end, watched = self._results[:number].T
        return likelihood.copy(), end.astype(np.int64), watched > 0

    def scan(
        self, starts: Values, end: int, base: Changes, change: Changes, total: float = 0.0, best: Best = BEST
    ) -> Floats:
        """Make `change` at each of the rows `starts` (ascending, up to MOST) and run it up to row `end`.

        `base` is applied at once; a run with it alone is the alternative to each branch. Draws on the way are the
        largest possible. Returns the log likelihood ratio of each branch to the base; ratios that do not reach the part
        `best.lower` of the best one are upper bounds. `total`: log likelihood of the base before this row (`passed`).
        """
        number = len(starts)
        self._start_slots[:], self._start_stack[:] = self.slots, self.stack
        self._start_stack[sk.SLOTS_ADDRESS], self._start_stack[sk.NEXT_DRAW] = self._start_slots.ctypes.data, 0
        self._trial_stack[sk.SLOTS_ADDRESS] = self._trial_slots.ctypes.data
        self._set_changes([base])
        trying.change(self._changes[0], self._start_slots, self._start_stack)
        self._set_changes([change])
        self._trial_draws[0] = -1
        checks = np.arange(starts[0], end, -(-(end - starts[0]) // branches.CHECKS))
        self._stored[0][: len(checks)], self._stored[0][len(checks) :] = checks, -1
        self._starts[0, :number] = starts
        self._starts[1, :number] = 0
        self._starts[1, np.argmin(np.abs(starts - best.near))] = branches.BEGIN
        self.ask(self.row, end, cx.PACED_SENDS, number, unknown=U32_MAX)
        self.ctx[cx.LOWER], self.ctx[cx.REACHED] = round(best.lower * 1000), cx.thousandths(best.reached)
        self.likelihood[0] = total
        self._bound("scan")()
        return self._results[:number, 0].copy()

    def passed(self) -> list[Passed]:
        """Return the base's state before each start of the last scan, and the `total` of a scan that begins there."""
        number, size = int(self.ctx[cx.HYPOTHESES]), self.slots.size
        states = self._start_states[:number].copy()
        states[:, [size + sk.SLOTS_ADDRESS, size + sk.NEXT_DRAW]] = self.stack[[sk.SLOTS_ADDRESS, sk.NEXT_DRAW]]
        rows, totals = self._starts[0, :number].tolist(), self._results[:number, 1].tolist()
        draws = self.draws[: self.drawn].copy()
        before = [(row, state[:size], state[size:], draws) for row, state in zip(rows, states, strict=True)]
        return list(zip(before, totals, strict=True))

    def _set_changes(self, changes: Sequence[Mapping[Any, int]]) -> None:
        self._changes[: len(changes)] = 0
        for row, change in zip(self._changes, changes, strict=False):
            for pair, (name, value) in zip(row, change.items(), strict=False):
                pair[:] = (self.slot(name) if isinstance(name, str) else name), value

    # ---- results ----------------------------------------------------------------------------------------------------
    @property
    def key(self) -> tuple[object, ...]:
        """What the calls depend on besides the events: the controller's code, parameters and ticks."""
        return self._machine.key, *sorted(self.params.items()), int(self.tcp.tick_us)

    @property
    def now_us(self) -> Ints:
        """Time of each row on the connection's clock, us."""
        return self.stream.now_us

    @property
    def is_ack(self) -> Bools:
        """Which rows are ACKs."""
        return self.stream.is_ack

    @property
    def hands_over(self) -> bool:
        """Whether TCP hands packets to fq, which paces."""
        return bool(self.ctx[cx.HANDS_OVER])

    def srtt_us(self, rows: int | Ints) -> int:
        """Return the smoothed RTT after a row, or the longest after several."""
        return self.stream.srtt_us(rows)

    @property
    def recorded(self) -> dict[str, Values]:
        """The recorded fields after each row called so far: {name: array of shape (n,)}."""
        return dict(self.held) if self._recording else recorded_in(self.out, self.places)

    @property
    def held(self) -> Held:
        """The same of a follower that records in runs."""
        return self._recording.columns(self.row, len(self.rows)) if self._recording else Held(len(self.rows), {}, {})

    @property
    def state(self) -> dict[str, Any]:
        """The current state: {field: value}, arrays as lists, parameters not included."""
        return state_of(self.get, self.cls)
