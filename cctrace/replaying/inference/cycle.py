"""The gain cycle of BBR v1: the drawn phase, and whether the cycle stays in step with the sends.

BBR v1 enters PROBE_BW at a random phase of its gain cycle. A replayed cycle may end a phase upon another ACK than
in the kernel (microseconds decide, and ACKs arrive in bursts), and would stay out of step until the next draw. At
each cycle it is therefore tested whether a shifted cycle explains the sends better.
"""

import math

import numpy as np

from cctrace.cc.bbr1_model import CYCLE_LEN
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.branches import TIE
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Edit
from cctrace.replaying.inference.ahead import FULL, LEFT, SHIFTED, Ahead
from cctrace.replaying.inference.hypotheses import FALSE_ALARM, Inference, Phase, likeliest, raw_draw
from cctrace.replaying.inference.policed import POLICED, POLICED_BW, SPAN_RTTS, Policers
from cctrace.replaying.inference.startup import stay_in_startup

DRAW_CYCLES = 3  # over which a drawn phase is judged: a phase lasts about a min_rtt, replay errors last longer
MIN_SPAN_US, MAX_SPAN_US = 100_000, 4_000_000
SHIFTS = (-1.0, -0.5, 0.5, 1.0)  # minimum RTTs by which a running cycle may be late
SURE = math.log(len(SHIFTS) / FALSE_ALARM)


class Cycle(Inference):
    """The gain cycle of BBR v1."""

    follower: Follower

    def __init__(self, follower: Follower, expiry: int) -> None:
        super().__init__(follower)
        self.choices, self.expiry = follower.cls.phase_choices, expiry
        self.probe_bw = follower.cls.states.index("PROBE_BW")
        policed = [POLICED] if POLICED in follower.fields else []
        fields = ("mode", "min_rtt_us", "cycle_mstamp", *policed)
        self.ahead = Ahead(follower, SHIFTS, SURE, fields, self.probe_bw)

    def run(self) -> None:
        """Run to the end, keeping the cycle in step with the sends."""
        follower, rows = self.follower, len(self.follower.rows)
        policers = Policers(self, follower)
        if not follower.row:
            stay_in_startup(self)
            policers.look()
        while follower.row < rows:
            if self.expiry < 0 and policers.next_row == rows:
                judged, right = self.ahead.judged
                self.note(self.judged + judged, self.right + right)
            if follower.row == policers.next_row:
                for field, more in policers.likeliest().items():
                    self.edit(field, more)
            may_go_on = follower.row > self.expiry and policers.next_row == rows
            ended = self.ahead.run() if may_go_on else LEFT
            if self.judge is not None and may_go_on:
                self.passed += self.ahead.passed
            if follower.row == rows:
                break
            if ended == FULL:
                continue
            if ended == SHIFTED:
                self.shift(*self.ahead.best)
            stop = min(self.next_stop(), policers.next_row) if ended == LEFT else self.ahead.stop
            if self.run_on(stop) < stop:
                self.drawing()
                self.choose_draw()
        judged, right = self.ahead.judged
        self.judged, self.right = self.judged + judged, self.right + right

    def next_stop(self) -> int:
        """Judge the cycle that begins here, if one does; return the row up to which to go on."""
        follower, stop = self.follower, len(self.follower.rows)
        if follower.get("mode") == self.probe_bw:
            stop = self.after(CYCLE_LEN * follower.get("min_rtt_us"))
            self.keep_in_step()
        else:
            stop = self.after(MIN_SPAN_US)
        if follower.row < self.expiry:
            return min(stop, self.expiry)
        if follower.row == self.expiry:
            self.edit("min_rtt_stamp", midflow.age(follower))
        return stop

    def run_on(self, stop: int) -> int:
        """Run up to `stop`; where BBR v1 takes a rate for a policer's, ask the sends whether it did.

        An application-limited sample ends its sampling, which the capture may not show (see `startup`).
        """
        follower = self.follower
        if POLICED not in follower.fields or follower.get(POLICED):
            return follower.run(stop)
        before = follower.save()
        end = follower.run(stop)
        if not follower.get(POLICED):
            return end
        follower.restore(before)
        _, ends, _ = follower.trials(end, changes=[{}], score=cx.NOTHING, watch=(POLICED, 1))
        follower.run(int(ends[0]) - 1)
        span, forget = self.after(SPAN_RTTS * follower.get("min_rtt_us")), -follower.get(POLICED_BW)
        likelihood, _, _ = follower.trials(span, changes=[{}, {POLICED_BW: forget}])
        if likelihood[1] - likelihood[0] <= math.log(1 / FALSE_ALARM):
            return follower.run(stop)
        self.edit(POLICED_BW, forget)
        follower.run(follower.row + 1)
        return self.run_on(stop)

    def edit(self, field: str, value: int) -> None:
        """Add to a field, and record the edit."""
        self.edits.append(Edit(self.follower.row, field, value))
        self.follower.edit(self.edits[-1])

    def choose_draw(self) -> None:
        """The next call draws the phase: choose the likeliest one."""
        follower, row = self.follower, self.follower.row
        span_us = min(max(DRAW_CYCLES * CYCLE_LEN * follower.get("min_rtt_us"), MIN_SPAN_US), MAX_SPAN_US)
        draws = [(raw_draw(choice, self.choices),) for choice in range(self.choices)]
        likelihood, _, _ = follower.trials(self.after(span_us), draws=draws, margin=-TIE)
        best = likeliest(dict(enumerate(likelihood.tolist())))
        follower.draw(draws[best])
        follower.run(row + 1)
        self.found.append(Phase(row, best, float(likelihood[best])))

    def keep_in_step(self) -> None:
        """Shift the running cycle if that explains the sends up to the next one's end clearly better.

        Where a call on the way draws a number, which is not inferred yet; elsewhere `ahead` compares them.
        """
        follower = self.follower
        min_rtt_us = follower.get("min_rtt_us")
        changes = [{"cycle_mstamp": int(shift * min_rtt_us)} for shift in (0, *SHIFTS)]
        span = self.after(2 * CYCLE_LEN * min_rtt_us)
        likelihood, ends, _ = follower.trials(span, changes=changes, margin=SURE)
        if ends.min() < ends.max():  # they draw again at different times: too short to compare
            return
        best = int(np.argmax(likelihood))
        self.judged += 1
        if likelihood[best] - likelihood[0] > SURE:
            self.shift(SHIFTS[best - 1], float(likelihood[best]))
        else:
            self.right += 1

    def shift(self, shift: float, likelihood: float) -> None:
        """Shift the running cycle by so many minimum RTTs."""
        self.found.append(Phase(self.follower.row, None, likelihood, shift))
        self.edit("cycle_mstamp", int(shift * self.follower.get("min_rtt_us")))
