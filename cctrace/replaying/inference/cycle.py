"""The gain cycle of BBR v1: the phase drawn for its beginning, and whether it stays in step with the sends.

bbr_reset_probe_bw_mode enters PROBE_BW at a random phase of the gain cycle. A replayed phase may end at another ACK
than in the kernel (microseconds decide, and ACKs arrive in bursts); the cycle would then stay out of step until the
next draw. So for each cycle of eight phases it is tested whether a shifted one explains the sends clearly better.
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

DRAW_CYCLES = 3  # whose sends tell which phase was drawn; with one, an error of the replay might
MIN_SPAN_US, MAX_SPAN_US = 100_000, 4_000_000
SHIFTS = (-1.0, -0.5, 0.5, 1.0)  # minimum RTTs by which a running cycle may be late
SURE = math.log(len(SHIFTS) / FALSE_ALARM)


class Cycle(Inference):
    """Inference along a replay of BBR v1; `expiry`: row at which the minimum RTT expires (`midflow`), -1: none."""

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
                self.save_progress(*self.counts())
            if follower.row == policers.next_row:
                for field, increment in policers.likeliest().items():
                    self.edit(field, increment)
            may_go_on = follower.row > self.expiry and policers.next_row == rows
            ended = self.ahead.run() if may_go_on else LEFT
            if self.tick_test is not None and may_go_on:
                self.visited += self.ahead.visited
            if follower.row == rows:
                break
            if ended == FULL:
                continue
            if ended == SHIFTED:
                self.shift(*self.ahead.best)
            stop = min(self.next_stop(), policers.next_row) if ended == LEFT else self.ahead.stop
            if self.run_on(stop) < stop:
                self.before_draw()
                self.choose_draw()
        self.compared, self.in_step = self.counts()

    def counts(self) -> tuple[int, int]:
        """Return how many cycles were compared with shifted ones so far, and how many needed no shift."""
        compared, in_step = self.ahead.counts
        return self.compared + compared, self.in_step + in_step

    def next_stop(self) -> int:
        """Shift the cycle that begins here, if one does, as needed; return the row up to which to go on."""
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
        """Run up to `stop`; where the replay takes a rate for a policer's (lt_use_bw), ask the sends whether BBR did.

        An application-limited sample resets its sampling of loss intervals, and the capture may not show that it was
        (see `startup`).
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
        self.phases.append(Phase(row, best, float(likelihood[best])))

    def keep_in_step(self) -> None:
        """Shift the running cycle if that explains the sends up to the next one's end clearly better.

        `ahead` does the same faster, but not where a call on the way needs a draw.
        """
        follower = self.follower
        min_rtt_us = follower.get("min_rtt_us")
        changes = [{"cycle_mstamp": int(shift * min_rtt_us)} for shift in (0, *SHIFTS)]
        span = self.after(2 * CYCLE_LEN * min_rtt_us)
        likelihood, ends, _ = follower.trials(span, changes=changes, margin=SURE)
        if ends.min() < ends.max():  # the trials end at different draws: too short to compare
            return
        best = int(np.argmax(likelihood))
        self.compared += 1
        if likelihood[best] - likelihood[0] > SURE:
            self.shift(SHIFTS[best - 1], float(likelihood[best]))
        else:
            self.in_step += 1

    def shift(self, shift: float, likelihood: float) -> None:
        """Shift the running cycle by so many minimum RTTs."""
        self.phases.append(Phase(self.follower.row, None, likelihood, shift))
        self.edit("cycle_mstamp", int(shift * self.follower.get("min_rtt_us")))
