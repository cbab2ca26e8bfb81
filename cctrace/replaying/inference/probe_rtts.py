"""A replay of a BBR with a clock of 1 us, in place of jiffies, which stops at each PROBE_RTT to try ticks (`hz`).

`RowReplay` is such a replay over the rows of an event stream, `PacketReplay` one over the packets of a pass through fq.
"""

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
from cctrace.replaying.engine.stack import SLOTS_ADDRESS
from cctrace.replaying.inference.hypotheses import Inference, State
from cctrace.replaying.inference.one_pass import Leader
from cctrace.replaying.inference.probes import PROBE_RTTS, PROBING
from cctrace.schema import JIFFIES_START

STAMPS = ("probe_rtt_min_stamp", "min_rtt_stamp", "probe_rtt_done_stamp", "cycle_jiffies")  # in jiffies, 0: not set
PROBE_RTT_US = 300_000  # longer than PROBE_RTT lasts on most paths


class NotInferredError(Exception):
    """The draws before this row have not been inferred yet."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class RowReplay(Inference):
    """A replay of a script over the rows of an event stream, in steps."""

    follower: Follower

    def __init__(self, follower: Follower, script: Script) -> None:
        super().__init__(follower)
        follower.ctx[cx.USUAL_GAP_US] = follower.stream.usual_gap_us
        self.learn(script, len(follower.rows))

    def learn(self, script: Script, known: int) -> None:
        """Take over a script in which the draws of the rows before `known` are known."""
        self.follower.begin(script)
        self._known, self._draws = known, len(script.draws)
        # Times in jiffies become microseconds; LONG_AGO would overflow there, and any time before the lifetime will do.
        tick_us, oldest = USEC_PER_SEC // script.hz, -2 * midflow.lifetime_us(self.follower.params)
        self._edits = [
            edit._replace(value=max(edit.value * tick_us, oldest)) if edit.field in STAMPS else edit
            for edit in script.edits
        ]

    @property
    def control(self) -> Follower:
        """The controller."""
        return self.follower

    @property
    def called(self) -> int:
        """Number of calls made."""
        return self.follower.row

    def run(self, stop: int, score: int = cx.NOTHING) -> float:
        """Call rows up to `stop`; return the log likelihood of the sends."""
        if stop > self._known:
            raise NotInferredError(stop)
        self.follower.likelihood[0] = 0.0
        self.follower.replay(self._edits, stop, score)
        if self._known < len(self.now_us) and len(self.follower.draws) > self._draws:  # a draw that is not known
            raise NotInferredError(self._known + 1)
        return float(self.follower.likelihood[0])

    def go_to(self, state: State, marks: NDArray[np.uint8]) -> None:
        """Go to a state of another replay of the same script; `marks`: of its sends."""
        follower, own = self.follower, int(self.follower.stack[SLOTS_ADDRESS])
        follower.row, follower.slots[:], follower.stack[:] = state
        follower.stack[SLOTS_ADDRESS], follower.marks[:] = own, marks

    def probing(self, first: int) -> tuple[Ints, Bools]:
        """Return the times of the calls from the `first` on, us, and whether they left the controller in PROBE_RTT."""
        follower = self.follower
        modes = follower.held.part(first, follower.row)["mode"]
        return self.now_us[first : follower.row], modes == follower.cls.states.index("PROBE_RTT")


class PacketReplay(Inference):
    """The same over the packets of a pass through fq."""

    follower: Leader

    @property
    def control(self) -> Follower:
        """The controller."""
        return self.follower.control

    @property
    def called(self) -> int:
        """Number of calls made."""
        return len(self.follower.decided)

    def run(self, stop: int, score: int = cx.NOTHING) -> float:
        """Process packets up to `stop`; return the log likelihood of those that had left by then."""
        return self.follower.score(stop, score)

    def probing(self, first: int) -> tuple[Ints, Bools]:
        """Return the times of the calls from the `first` on, us, and whether they left the controller in PROBE_RTT."""
        decided = self.follower.decided[first:]
        return self.follower.clock_us(decided[:, 0]), decided[:, 3] != 0


class ProbeRtts:
    """A replay that goes from one PROBE_RTT to the next with a clock of 1 us, and tries ticks from there on.

    `assumed`: the ticks (HZ, offset in us) with which the draws were inferred.
    """

    def __init__(self, replay: RowReplay | PacketReplay, assumed: tuple[int, int]) -> None:
        self._replay, self.subject, self._control = replay, replay.follower, replay.control
        self.assumed, self._score = assumed, cx.PACED_SENDS if isinstance(replay, PacketReplay) else cx.ALL_SENDS
        control = self._control
        self._stamps = [name for name in STAMPS if name in control.fields]
        self._life_us = midflow.lifetime_us(control.params)
        self._probing = control.cls.states.index("PROBE_RTT")
        self._visited: Sequence[State] = ()  # states of the replay in which the draws were inferred
        self._marks = control.marks  # of its sends
        self.is_over = False  # no other PROBE_RTT follows
        control.set_ticks(USEC_PER_SEC, 0)

    def learn(self, script: Script, known: int, visited: Sequence[State], marks: NDArray[np.uint8]) -> None:
        """Take over a script in which the draws of the rows before `known` are known, and states of its replay."""
        self._visited, self._marks = visited, marks
        if isinstance(self._replay, RowReplay):
            self._replay.learn(script, known)
            self._control.set_ticks(USEC_PER_SEC, 0)

    def next(self) -> tuple[int, int] | None:
        """Run up to the next PROBE_RTT; return the row up to which its sends count, and when it ends, us."""
        subject, now_us = self.subject, self._replay.now_us
        rows = len(now_us)
        while subject.row < rows:
            stamp = self._control.get(self._stamps[0])
            start = int(now_us.searchsorted(stamp - JIFFIES_START + self._life_us, "right"))
            if start == rows:  # the flow ends before the minimum RTT can expire
                break
            if start > subject.row:
                self._skip(start)
                self._replay.run(start)
                if self._control.get(self._stamps[0]) != stamp:  # it was renewed on the way
                    continue
            if found := self._probe_rtt():
                return found
        self.is_over = True
        return None

    def _skip(self, start: int) -> None:
        """Go to the last visited state before row `start`, rather than to run until there.

        With a clock of 1 us only its stamps differ. They are set no later than in the jiffy that they name, so this
        replay need only be run until that is over.
        """
        replay, control, (hz, tick_us) = self._replay, self._control, self.assumed
        state = next((state for state in reversed(self._visited) if state.row <= start), None)
        if not isinstance(replay, RowReplay) or state is None:
            return
        ticks = [int(state.slots[control.slot(name)]) for name in self._stamps]
        last_us = (max(ticks) + 1 - JIFFIES_START) * USEC_PER_SEC // hz - tick_us
        row = max(int(replay.now_us.searchsorted(last_us, "right")), replay.follower.row)
        if row >= state.row:
            return
        replay.run(row)
        stamps = {name: control.get(name) for name in self._stamps}
        if ticks == [stamp and ticks_of(stamp, hz, tick_us) for stamp in stamps.values()]:
            replay.go_to(state, self._marks)
            for name, stamp in stamps.items():
                control.set(name, stamp)
            control.set_ticks(USEC_PER_SEC, 0)

    def _probe_rtt(self) -> tuple[int, int] | None:
        """Return what `next` does if PROBE_RTT begins about here with the assumed ticks; else go on."""
        before = self.subject.save()
        try:
            return self._probe_rtt_from(before)
        except NotInferredError:
            self.subject.restore(before)
            raise

    def _probe_rtt_from(self, before: Any) -> tuple[int, int] | None:
        subject, replay, rows = self.subject, self._replay, len(self._replay.now_us)
        called, rtt_us = replay.called, max(subject.srtt_us(subject.row), 1)
        self.tick(*self.assumed)
        replay.run(replay.after(PROBE_RTT_US + 2 * rtt_us))
        while self._control.get("mode") == self._probing and subject.row < rows:
            replay.run(replay.after(PROBE_RTT_US))
        time_us, probing = replay.probing(called)
        left = np.flatnonzero(~probing[int(np.argmax(probing)) :]) + int(np.argmax(probing))
        if not probing.any() or not len(left):
            self._reset_clock(None)
            return None
        ended_us = int(time_us[left[0]])
        subject.restore(before)
        self.tick(*self.assumed)
        end = self._last_row(ended_us, rtt_us)
        subject.restore(before)
        return end, ended_us

    def _last_row(self, ended_us: int, rtt_us: int) -> int:
        """Return the row up to which sends show when PROBE_RTT ended: before the next probe for bandwidth.

        That probe was inferred with the assumed ticks, so what it does must not speak for them.
        """
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

    def likelihoods(self, end: int, ticks: list[tuple[int, int]]) -> Floats:
        """Return the log likelihood of the sends from here up to a row, with each of some ticks."""
        before, found = self.subject.save(), []
        for hz, tick_us in ticks:
            self.tick(hz, tick_us)
            try:
                found.append(self._replay.run(end, self._score))
            finally:
                self.subject.restore(before)
        return np.array(found)

    def leave(self, ended_us: int) -> None:
        """Go on to the end of PROBE_RTT with the assumed ticks, and from there with a clock of 1 us."""
        self.tick(*self.assumed)
        self._run_to(ended_us)
        self._reset_clock(ended_us)

    def tick(self, hz: int, tick_us: int) -> None:
        """Give the controller, which has a clock of 1 us, ticks."""
        for name in self._stamps:
            if stamp := self._control.get(name):
                self._control.set(name, ticks_of(stamp, hz, tick_us))
        self._control.set_ticks(hz, tick_us)

    def _reset_clock(self, renewed_us: int | None) -> None:
        """Give the controller a clock of 1 us again; `renewed_us`: when it renewed its minimum RTT, if known."""
        control = self._control
        hz, tick_us = self.assumed
        for name in self._stamps:
            if stamp := control.get(name):
                control.set(name, JIFFIES_START + (stamp - JIFFIES_START) * USEC_PER_SEC // hz - tick_us)
        if renewed_us is not None:
            control.set(self._stamps[0], JIFFIES_START + renewed_us)
        control.set_ticks(USEC_PER_SEC, 0)


def ticks_of(stamp_us: int, hz: int, tick_us: int) -> int:
    """Return a time stamp of a clock of 1 us in jiffies."""
    return JIFFIES_START + (stamp_us - JIFFIES_START + tick_us) * hz // USEC_PER_SEC
