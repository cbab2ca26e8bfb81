"""What a replay has to find out, because no record shows it: numbers that the sender drew, and where its ticks lay.

BBR v1 enters PROBE_BW at a random phase of its gain cycle; v2, v2+ and v3 wait at random, in rounds and by the clock,
before they probe; CUBIC counts time in jiffies. No counter tells; what was sent does. Each is found by the same means:
hypotheses are run over the same rows (`Follower.trials`, `Follower.scan`), and the one under which the sends are
likeliest (`likelihood`) is kept. What the kernel logged of its state is not looked at: it is what a comparison is
made with.

A gain cycle that runs may end a phase upon another ACK than it did in the kernel (microseconds decide, and ACKs come in
clumps), and would be out of step until the next draw. At each cycle it is tried whether the cycle, shifted, explains
the sends better; it is shifted if the likelihood ratio exceeds shifts / FALSE_ALARM: by Markov's inequality a cycle
that is right is then shifted with a probability of at most FALSE_ALARM, as far as the likelihood is the sender's.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np

from cctrace import schema
from cctrace.replaying import loop, midflow
from cctrace.replaying.follow import TICK, Edit, Script
from cctrace.replaying.likelihood import NOT_FULL
from cctrace.replaying.stack import DISORDER, HZ, TICK_US

FALSE_ALARM = 1e-3
CYCLE_PHASES = 8
DRAW_CYCLES = 3  # over which a drawn phase is judged: a phase lasts about a min_rtt, and the replay errs over more
MIN_SPAN_US, MAX_SPAN_US = 100_000, 4_000_000
SHIFTS = (-1.0, -0.5, 0.5, 1.0)  # minimum RTTs by which a running cycle may be late
LONGEST = 0xFFFFFFFF  # raw draw of the longest wait
NEVER = {"rounds_since_probe": -(1 << 20), "probe_wait_us": 1 << 40, "probe_wait_round": 1 << 20}
AT_ONCE = {"rounds_since_probe": 1 << 21}
REFILL = 3  # cycle_idx in which a probe of v2, v2+ and v3 begins
PROBE_RTTS = 5  # after the wait, in which a probe shows
GRID, ZOOM = 24, 8  # moments that are tried first; by how much each later grid is finer
LAST_ZOOM_US = 50
TICKS = 40  # phases of a tick that are tried, 100 us apart at HZ = 250
TICK_ROWS = 2_000  # of the stream, that are looked at first
CLEARLY = 3 * math.log(TICKS / FALSE_ALARM)  # less likely: dropped; a flight that is wrong stays so for a round
MANY_ROWS, FEW = 16_000, 4  # on which it is made; by how many is seen whether the flights tell at all
NEAR = 4  # by how much finer the last choice is
TICK_SPAN_US = 500_000  # for which a tick may lie elsewhere
TICK_SHIFTS_US = (-50, 50, -100, 100, -200, 200, -400, 400, -800, 800)
FOREIGN = 0.9  # of the flights do not fill the window: another controller sent them
HZ_ROWS = 60_000  # of the stream, on which the last choice of ticks rests
CONFIG_HZ = (250, 1000, 300, 100)  # [Linux618] kernel/Kconfig.hz, by how common they are


class Phase(NamedTuple):
    """One inference: at which row, what, its log likelihood and that of the next best.

    `choice` is what was drawn (the phase; the wait in us), or None where a running cycle was shifted by `shift` minimum
    RTTs.
    """

    row: int
    choice: int | None
    likelihood: float
    runner_up: float
    shift: float = 0.0


class Inferred(NamedTuple):
    """What was found out: how to replay it, what it was, and the share of gain cycles in step (NaN: none seen)."""

    script: Script
    phases: list
    in_step: float

    @classmethod
    def nothing(cls):
        """Return that of a replay in which nothing was hidden."""
        return cls(Script([], []), [], math.nan)


def infer(follower, expiry=-1, hz_known=True):
    """Run a follower over all its rows, and find out on the way what it needs.

    Parameters
    ----------
    follower : Follower
        Compiled, at row 0.
    expiry : int
        Row at which the minimum RTT expires, whatever its age in the replay (`midflow`); -1 for none.
    hz_known : bool
        Whether the follower's HZ is more than a guess.
    """
    cls = follower.cls
    hz, tick_us = follower.params["hz"], 0
    work = None
    if not hasattr(cls, "on_ack") and follower.counts_ticks:
        rates = (hz,) if hz_known else (hz, *(rate for rate in CONFIG_HZ if rate != hz))
        hz, tick_us = likeliest_ticks(follower, rates)
        follower.set_ticks(hz, tick_us)
        work = _Ticks(follower)
    elif len(follower.sends):
        work = _Cycle(follower, expiry) if cls.phase_choices else _Probes(follower) if cls.probe_draws else None
    if work is None:
        while follower.run() < len(follower.rows):
            follower.draw([0])
        return Inferred(Script(follower.draws.tolist(), [], hz, tick_us), [], math.nan)
    work.run()
    in_step = work.right / work.judged if work.judged else math.nan
    return Inferred(Script(follower.draws.tolist(), work.edits, hz, tick_us), work.found, in_step)


def raw_draw(choice, choices):
    """Return a 32-bit draw that prandom_u32_max(choices) maps to `choice`."""
    return ((2 * choice + 1) << 31) // choices


class _Inference:
    def __init__(self, follower):
        self.follower = follower
        self.now_us = np.asarray(follower.now_us)
        self.found, self.edits = [], []
        self.judged, self.right = 0, 0

    def after(self, span_us, row=None):
        """Return the first row later than `span_us` from a row (default: now), at least the next, at most the end."""
        row = self.follower.row if row is None else row
        end = int(np.searchsorted(self.now_us, self.now_us[row] + span_us))
        return min(max(end, row + 1), len(self.now_us))


class _Cycle(_Inference):
    """The gain cycle of BBR v1."""

    def __init__(self, follower, expiry):
        super().__init__(follower)
        self.choices, self.expiry = follower.cls.phase_choices, expiry
        self.probe_bw = follower.cls.states.index("PROBE_BW")

    def run(self):
        """Run to the end, in step with the sends."""
        follower, rows = self.follower, len(self.follower.rows)
        while follower.row < rows:
            stop = rows
            if follower.get("mode") == self.probe_bw:
                self.keep_in_step()
                stop = self.after(CYCLE_PHASES * follower.get("min_rtt_us"))
            else:
                stop = self.after(MIN_SPAN_US)
            if follower.row < self.expiry:
                stop = min(stop, self.expiry)
            elif follower.row == self.expiry:
                self.edit("min_rtt_stamp", midflow.age(follower))
            if follower.run(stop) < stop:
                self.choose_draw()

    def edit(self, field, value):
        """Add to a field, and note it."""
        self.edits.append(Edit(self.follower.row, field, value))
        self.follower.edit(self.edits[-1])

    def choose_draw(self):
        """The next call draws the phase: take the likeliest."""
        follower, row = self.follower, self.follower.row
        span_us = min(max(DRAW_CYCLES * CYCLE_PHASES * follower.get("min_rtt_us"), MIN_SPAN_US), MAX_SPAN_US)
        draws = [(raw_draw(choice, self.choices),) for choice in range(self.choices)]
        likelihood, _, _ = follower.trials(self.after(span_us), draws=draws)
        best, second = np.argsort(-likelihood, kind="stable")[:2]
        follower.draw(draws[best])
        follower.run(row + 1)
        self.found.append(Phase(row, int(best), float(likelihood[best]), float(likelihood[second])))

    def keep_in_step(self):
        """Shift the running cycle if that explains the sends of the next one clearly better."""
        follower = self.follower
        min_rtt_us = follower.get("min_rtt_us")
        later = [0, *(int(shift * min_rtt_us) for shift in SHIFTS)]
        span = self.after(2 * CYCLE_PHASES * min_rtt_us)
        likelihood, ends, _ = follower.trials(span, changes=[{"cycle_mstamp": us} for us in later])
        if ends.min() < ends.max():  # they draw anew at different times: too short to compare
            return
        best = int(np.argmax(likelihood))
        self.judged += 1
        if likelihood[best] - likelihood[0] > math.log(len(SHIFTS) / FALSE_ALARM):
            self.found.append(
                Phase(follower.row, None, float(likelihood[best]), float(likelihood[0]), SHIFTS[best - 1])
            )
            self.edit("cycle_mstamp", later[best])
        else:
            self.right += 1


class _Probes(_Inference):
    """The waits of BBR v2, v2+ and v3."""

    def __init__(self, follower):
        super().__init__(follower)
        params = follower.params
        kinds = [params[n] if isinstance(n, str) else n for n in follower.cls.probe_draws]
        self.clock = kinds.index(0)
        self.base_us, self.random_us = params["bw_probe_base_us"], max(params["bw_probe_rand_us"], 1)
        values = [[LONGEST] if n == 0 else [raw_draw(k, n) for k in range(n)] for n in kinds]
        self.numbers = list(itertools.product(*values))
        self.never = {name: value for name, value in NEVER.items() if name in follower.fields}
        self.is_ack = follower.rows.event == schema.LINUX_EVENTS["on_ack"]
        self.acks = np.flatnonzero(self.is_ack)

    def run(self):
        """Run to the end, each wait as long as the sends say."""
        while self.follower.run() < len(self.follower.rows):
            self.choose_wait()

    def choose_wait(self):
        """The next call draws a wait: find the ACK that ends it."""
        follower, row = self.follower, self.follower.row
        numbers, first, last = self.choices()
        if len(numbers) + (last > first) < 2:
            follower.draw(next(iter(numbers.values())) if numbers else self.numbers[-1])
            follower.run(row + 1)
            return
        before = follower.save()
        follower.draw(self.numbers[-1])
        follower.run(row + 1)
        rtt_us = max(int(follower.rows.srtt_us8[row]) >> 3, 1)
        tried = self.scan(sorted(numbers), rtt_us) if numbers else {}
        if last > first:
            tried |= self.zoom(first, last, rtt_us)
        follower.restore(before)
        # Of rows that the sends do not tell apart, those at which rounds end the wait.
        best, second = sorted(tried, key=lambda end: (round(tried[end], 6), end in numbers), reverse=True)[:2]
        chosen = numbers.get(best) or self.timed(row, best, max(numbers) if numbers else None, numbers)
        follower.draw(chosen)
        follower.run(row + 1)
        wait_us = int(self.now_us[best] - self.now_us[row])
        self.found.append(Phase(row, wait_us, tried[best], tried[second]))

    def choices(self):
        """Return the rows at which counts of rounds end the wait, {row: numbers}, and those at which the clock may."""
        follower, row = self.follower, self.follower.row
        horizon = self.after(self.base_us + self.random_us + MIN_SPAN_US)
        soonest = [(*n[: self.clock], 0, *n[self.clock + 1 :]) for n in self.numbers]
        watch = ("cycle_idx", REFILL)
        _, ends, watched = follower.trials(horizon, draws=self.numbers + soonest, score=loop.NOTHING, watch=watch)
        some = len(self.numbers)
        found = {int(ends[k]) - 1: self.numbers[k] for k in range(some) if watched[k]}
        latest = int(np.argmax(ends[:some]))
        last, first = int(ends[latest]) - 1, int(ends[some + latest]) - 1
        return found, first if watched[some + latest] else last, last

    def scan(self, starts, rtt_us):
        """Return {row: log likelihood ratio} of a wait that ends at a row to one that does not end."""
        starts = np.unique(np.maximum(starts, self.follower.row))
        ends = np.array([self.after(PROBE_RTTS * rtt_us, row) for row in starts])
        likelihood, _ = self.follower.scan(starts, ends, int(ends.max()), self.never, AT_ONCE)
        return dict(zip(starts.tolist(), likelihood.tolist(), strict=True))

    def zoom(self, first, last, rtt_us):
        """Return {row: log likelihood ratio} of moments in [first, last], denser where they are likelier."""
        low, high = self.now_us[first], self.now_us[last]
        number = int(max(GRID, 4 * (high - low) / rtt_us))
        tried = {}
        while True:
            step = max((high - low) / number, 1)
            rows = self.ack_rows(np.arange(low, high + 1, step))
            new = [row for row in rows if row not in tried]
            if new:
                tried |= self.scan(new, rtt_us)
            if step <= LAST_ZOOM_US or not new:
                return tried
            middle = self.now_us[max(tried, key=tried.get)]
            low, high = max(middle - step, self.now_us[first]), min(middle + step, self.now_us[last])
            number = 2 * ZOOM

    def ack_rows(self, times_us):
        """Return the rows of the first ACKs at or after some times."""
        places = np.searchsorted(self.now_us[self.acks], times_us)
        return np.unique(self.acks[np.minimum(places, len(self.acks) - 1)]).tolist()

    def timed(self, row, end, latest, numbers):
        """Return the numbers of a wait that the clock ends at row `end`."""
        wait_us = int(self.now_us[end] - self.now_us[row]) - 1
        raw = -(-(max(wait_us - self.base_us, 0) << 32) // self.random_us)
        others = numbers[latest] if latest is not None else self.numbers[-1]
        return (*others[: self.clock], min(raw, LONGEST), *others[self.clock + 1 :])


class _Ticks(_Inference):
    """CUBIC's clock: an ACK that the capture has some microseconds off may fall into another tick."""

    def __init__(self, follower):
        super().__init__(follower)
        rows = follower.rows
        limited = (rows.event == schema.LINUX_EVENTS["on_ack"]) & (rows.ca_state <= DISORDER)
        self.flights = np.append(0, np.cumsum(limited & (rows.is_cwnd_limited != 0)))
        tick_us = 1_000_000 // follower.params["hz"]
        self.shifts = [shift for shift in TICK_SHIFTS_US if abs(shift) < tick_us / 2]
        self.likelihood = 0.0  # of the flights

    def run(self, rows=None):
        """Run on (to the end); where the flights do not fill the window, look whether another tick lets them."""
        follower = self.follower
        rows = len(follower.rows) if rows is None else rows
        while follower.row < rows:
            stop, last = self.after(TICK_SPAN_US), self.after(2 * TICK_SPAN_US)
            shift = self.shift(last)
            if shift:
                self.edit(shift)
            follower.run(stop)
            if shift:
                self.edit(-shift)

    def edit(self, shift_us):
        """Let the ticks be earlier from here on, and note it."""
        self.edits.append(Edit(self.follower.row, TICK, shift_us))
        self.follower.edit(self.edits[-1])

    def shift(self, last):
        """Return by how much earlier ticks, us, explain the flights up to row `last` clearly better; 0 for none."""
        follower = self.follower
        (now,), _, _ = follower.trials(last, changes=[{}], score=loop.FULL_FLIGHTS)
        flights = self.flights[last] - self.flights[follower.row]
        self.likelihood += now
        wrong = now / math.log(NOT_FULL)
        if wrong * -math.log(NOT_FULL) < CLEARLY or wrong > FOREIGN * flights:
            return 0
        changes = [{-1 - TICK_US: shift} for shift in self.shifts]
        likelihood, _, _ = follower.trials(last, changes=changes, score=loop.FULL_FLIGHTS)
        best = int(np.argmax(likelihood))
        if likelihood[best] - now <= math.log(len(changes) / FALSE_ALARM):
            return 0
        self.likelihood += float(likelihood[best]) - now
        self.found.append(Phase(follower.row, self.shifts[best], float(likelihood[best]), float(now)))
        return self.shifts[best]


def likeliest_ticks(follower, rates):
    """Return the ticks that the sender's kernel counted: how many a second, and how far ahead of the connection's clock.

    CUBIC counts in jiffies, of which a capture shows no edge: at HZ = 250 a step of its curve may come up to 4 ms early
    or late, and cwnd be one segment off, which the next ssthresh then inherits. But a sender that cwnd limits fills its
    window: before each ACK in Open or Disorder, in flight = cwnd (`likelihood.full_flight`). If the flights never tell,
    the first rate is kept.

    Parameters
    ----------
    follower : Follower
        Compiled, at row 0; it is left there.
    rates : sequence of int
        The HZ that it may be, the likeliest beforehand first.
    """
    found = [(rate, tick(follower, rate)) for rate in rates]
    if len(found) == 1:
        return found[0]
    before, given = follower.save(), follower.params["hz"]
    best, most = None, 0.0
    for ticks in found:
        follower.set_ticks(*ticks)
        work = _Ticks(follower)
        work.run(min(HZ_ROWS, len(follower.rows)))
        follower.restore(before)
        if best is None or work.likelihood > most + CLEARLY:
            best, most = ticks, work.likelihood
    follower.set_ticks(given, 0)
    return best


def tick(follower, hz):
    """Return how far the kernel's ticks are ahead of the connection's clock, us, if it counts `hz` a second."""
    left = [(hz, k * 1_000_000 // (hz * TICKS)) for k in range(TICKS)]
    few = left[:: len(left) // FEW]
    rows = TICK_ROWS
    while rows < len(follower.rows) and np.ptp(_flights(follower, few, rows)) == 0:
        rows *= 2
    _, best_us = _likeliest(follower, left, rows, MANY_ROWS)
    step = 1_000_000 // (hz * TICKS)
    near = [(hz, best_us + k * step // NEAR) for k in range(-2 * NEAR, 2 * NEAR + 1)]
    _, best_us = _likeliest(follower, near, rows, HZ_ROWS)
    return best_us % (1_000_000 // hz)


def _likeliest(follower, left, rows, most):
    """Return the likeliest hypothesis after `most` rows, dropping clearly less likely ones before."""
    while True:
        likelihood = _flights(follower, left, rows)
        order = np.argsort(-likelihood, kind="stable")
        if rows >= min(most, len(follower.rows)) or len(left) == 1:
            return left[order[0]]
        kept = order[likelihood[order] >= likelihood[order[0]] - CLEARLY]
        left = [left[k] for k in sorted(kept)]
        rows *= 2


def _flights(follower, hypotheses, rows):
    hz = follower.params["hz"]
    changes = [{"hz": rate - hz, -1 - HZ: rate - hz, -1 - TICK_US: phase} for rate, phase in hypotheses]
    return follower.trials(rows, changes=changes, score=loop.FULL_FLIGHTS)[0]
