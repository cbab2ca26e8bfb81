"""A replay that comes to each PROBE_RTT of a BBR with a clock of 1 us, which no kernel's ticks precede (`hz`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.linux import USEC_PER_SEC
from cctrace.columns import Bools, Floats, Ints
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Script
from cctrace.replaying.engine.stack import STATE
from cctrace.replaying.inference.hypotheses import Inference, State
from cctrace.replaying.inference.one_pass import Leader
from cctrace.replaying.inference.probes import PROBE_RTTS, PROBING
from cctrace.schema import JIFFIES_START

STAMPS = ("probe_rtt_min_stamp", "min_rtt_stamp", "probe_rtt_done_stamp", "cycle_jiffies")  # in ticks, if not 0
HELD_US = 300_000  # longer than PROBE_RTT lasts on most paths


class NotInferredError(Exception):
    """What is hidden is not inferred up to this row yet."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class Plain(Inference):
    """A replay with inferred values, in steps; its rows are those of the stream."""

    follower: Follower

    def __init__(self, follower: Follower, script: Script) -> None:
        super().__init__(follower)
        follower.ctx[cx.USUAL_GAP_US] = follower.stream.usual_gap_us
        self.learn(script, len(follower.rows))

    def learn(self, script: Script, known: int) -> None:
        """Take what is inferred of the rows before `known`."""
        self.follower.begin(script)
        self._known, self._draws = known, len(script.draws)
        # As long ago as LONG_AGO is by no clock of 1 us.
        of_us, oldest = USEC_PER_SEC // script.hz, -2 * midflow.lifetime_us(self.follower.params)
        self._edits = [e._replace(value=max(e.value * of_us, oldest)) if e.field in STAMPS else e for e in script.edits]

    @property
    def control(self) -> Follower:
        """The controller."""
        return self.follower

    @property
    def called(self) -> int:
        """How many calls were made."""
        return self.follower.row

    def run(self, stop: int, score: int = cx.NOTHING) -> float:
        """Call rows up to `stop`; return the log likelihood of the sends."""
        if stop > self._known:
            raise NotInferredError(stop)
        self.follower.likelihood[0] = 0.0
        self.follower.replay(self._edits, stop, score)
        if self._known < len(self.now_us) and len(self.follower.draws) > self._draws:  # one more, with other ticks
            raise NotInferredError(self._known + 1)
        return float(self.follower.likelihood[0])

    def take(self, state: State, marks: NDArray[np.uint8]) -> None:
        """Go to a state of another replay with these values; `marks`: its marks of sends."""
        follower, own = self.follower, int(self.follower.stack[STATE])
        follower.row, follower.slots[:], follower.stack[:] = state
        follower.stack[STATE], follower.marks[:] = own, marks

    def probing(self, first: int) -> tuple[Ints, Bools]:
        """Return the times of the calls from the `first` on, us, and whether they left the controller in PROBE_RTT."""
        follower = self.follower
        modes = follower.held.part(first, follower.row)["mode"]
        return self.now_us[first : follower.row], modes == follower.cls.states.index("PROBE_RTT")


class Led(Inference):
    """A replay that leads its flow's hand-over to fq; its rows are packets."""

    follower: Leader

    @property
    def control(self) -> Follower:
        """The controller."""
        return self.follower.control

    @property
    def called(self) -> int:
        """How many calls were made."""
        return len(self.follower.decided)

    def run(self, stop: int, score: int = cx.NOTHING) -> float:
        """Process packets up to `stop`; return the log likelihood of what had left by then."""
        return self.follower.score(stop, score)

    def probing(self, first: int) -> tuple[Ints, Bools]:
        """Return the times of the calls from the `first` on, us, and whether they left the controller in PROBE_RTT."""
        decided = self.follower.decided[first:]
        return self.follower.clock_us(decided[:, 0]), decided[:, 3] != 0


class Dips:
    """A replay that comes to each PROBE_RTT with a clock of 1 us, and tries ticks from there on."""

    def __init__(self, replay: Plain | Led, usual: tuple[int, int]) -> None:
        self._replay, self.subject, self._control = replay, replay.follower, replay.control
        self.usual, self._score = usual, cx.PACED_SENDS if isinstance(replay, Led) else cx.ALL_SENDS
        control = self._control
        self._stamps = [name for name in STAMPS if name in control.fields]
        self._life_us = midflow.lifetime_us(control.params)
        self._probing = control.cls.states.index("PROBE_RTT")
        self._passed: Sequence[State] = ()  # of the replay of which the hidden draws are known
        self._marks = control.marks  # of its sends
        self.is_over = False  # no other PROBE_RTT comes
        control.set_ticks(USEC_PER_SEC, 0)

    def learn(self, script: Script, known: int, passed: Sequence[State], marks: NDArray[np.uint8]) -> None:
        """Take what is inferred of the rows before `known`, where this goes on, and what the replay passed there."""
        self._passed, self._marks = passed, marks
        if isinstance(self._replay, Plain):
            self._replay.learn(script, known)
            self._control.set_ticks(USEC_PER_SEC, 0)

    def next(self) -> tuple[int, int] | None:
        """Run up to the next PROBE_RTT; return the row up to which its sends are judged, and when it ends, us."""
        subject, now_us = self.subject, self._replay.now_us
        rows = len(now_us)
        while subject.row < rows:
            stamp = self._control.get(self._stamps[0])
            start = int(now_us.searchsorted(stamp - JIFFIES_START + self._life_us, "right"))
            if start == rows:  # however often it is renewed until then
                break
            if start > subject.row:
                self._go_ahead(start)
                self._replay.run(start)
                if self._control.get(self._stamps[0]) != stamp:
                    continue
            if found := self._seen():
                return found
        self.is_over = True
        return None

    def _go_ahead(self, start: int) -> None:
        """Go to the last state before a row that the replay with these values passed.

        With a clock of 1 us it differs in its stamps alone, which are known once the ticks that they name are over.
        """
        replay, control, (hz, tick_us) = self._replay, self._control, self.usual
        state = next((state for state in reversed(self._passed) if state.row <= start), None)
        if not isinstance(replay, Plain) or state is None:
            return
        ticks = [int(state.slots[control.slot(name)]) for name in self._stamps]
        last_us = (max(ticks) + 1 - JIFFIES_START) * USEC_PER_SEC // hz - tick_us
        over = max(int(replay.now_us.searchsorted(last_us, "right")), replay.follower.row)
        if over >= state.row:
            return
        replay.run(over)
        stamps = {name: control.get(name) for name in self._stamps}
        if ticks == [stamp and ticks_of(stamp, hz, tick_us) for stamp in stamps.values()]:
            replay.take(state, self._marks)
            for name, stamp in stamps.items():
                control.set(name, stamp)
            control.set_ticks(USEC_PER_SEC, 0)

    def _seen(self) -> tuple[int, int] | None:
        """Return what `next` does, if PROBE_RTT begins about here; else go on without it."""
        before = self.subject.save()
        try:
            return self._seen_from(before)
        except NotInferredError:
            self.subject.restore(before)
            raise

    def _seen_from(self, before: Any) -> tuple[int, int] | None:
        subject, replay, rows = self.subject, self._replay, len(self._replay.now_us)
        called, rtt_us = replay.called, max(subject.srtt_us(subject.row), 1)
        self.tick(*self.usual)
        replay.run(replay.after(HELD_US + 2 * rtt_us))
        while self._control.get("mode") == self._probing and subject.row < rows:
            replay.run(replay.after(HELD_US))
        time_us, probing = replay.probing(called)
        left = np.flatnonzero(~probing[int(np.argmax(probing)) :]) + int(np.argmax(probing))
        if not probing.any() or not len(left):
            self._go_on(None)
            return None
        ended_us = int(time_us[left[0]])
        subject.restore(before)
        self.tick(*self.usual)
        end = self._visible(ended_us, rtt_us)
        subject.restore(before)
        return end, ended_us

    def _visible(self, ended_us: int, rtt_us: int) -> int:
        """Return the row by which it shows when PROBE_RTT ended: before the next probe, which the usual ticks time."""
        cls, ends = self._control.cls, []
        self._run_to(ended_us)
        for _ in range(PROBE_RTTS + 1):
            ends.append(self.subject.row)
            if ends[-1] == len(self._replay.now_us):
                break
            if cls.probe_draws and self._control.get("cycle_idx") in PROBING:
                return ends[max(len(ends) - 2, 0)]
            self._replay.run(self._replay.rounds_after(1, rtt_us, ends[-1]))
        return ends[-1]

    def _run_to(self, time_us: int) -> None:
        """Run up to the first row after a time."""
        self._replay.run(int(self._replay.now_us.searchsorted(time_us, "right")))

    def tried(self, end: int, ticks: list[tuple[int, int]]) -> Floats:
        """Return the log likelihoods of the sends from here up to a row, with each of some ticks."""
        before, found = self.subject.save(), []
        for hz, tick_us in ticks:
            self.tick(hz, tick_us)
            try:
                found.append(self._replay.run(end, self._score))
            finally:
                self.subject.restore(before)
        return np.array(found)

    def leave(self, ended_us: int) -> None:
        """Go on to the end of PROBE_RTT with the usual ticks, and from there with a clock of 1 us."""
        self.tick(*self.usual)
        self._run_to(ended_us)
        self._go_on(ended_us)

    def tick(self, hz: int, tick_us: int) -> None:
        """Give the controller, which has a clock of 1 us, another one."""
        for name in self._stamps:
            if stamp := self._control.get(name):
                self._control.set(name, ticks_of(stamp, hz, tick_us))
        self._control.set_ticks(hz, tick_us)

    def _go_on(self, stamp_us: int | None) -> None:
        """Give the controller back a clock of 1 us; `stamp_us`: when it renewed its minimum RTT, if that is known."""
        control = self._control
        hz, tick_us = self.usual
        for name in self._stamps:
            if stamp := control.get(name):
                control.set(name, JIFFIES_START + (stamp - JIFFIES_START) * USEC_PER_SEC // hz - tick_us)
        if stamp_us is not None:
            control.set(self._stamps[0], JIFFIES_START + stamp_us)
        control.set_ticks(USEC_PER_SEC, 0)


def ticks_of(stamp_us: int, hz: int, tick_us: int) -> int:
    """Return a stamp of a clock of 1 us in ticks."""
    return JIFFIES_START + (stamp_us - JIFFIES_START + tick_us) * hz // USEC_PER_SEC
