"""Tick rate of the kernel of a recorded BBR, from its sends around PROBE_RTT.

BBR times PROBE_RTT and the age of its minimum RTT in jiffies: at HZ = 250 PROBE_RTT begins and ends up to 4 ms later
than at 1000. All else that it does is the same. So the replay is run once more, with a clock of 1 us, up to where the
minimum RTT expires by that clock, which no kernel's ticks precede; from there on through PROBE_RTT, and until what
follows is visible, it is run with each tick rate and phase, and judged by the sends. It goes on where PROBE_RTT ended
in the replay of which the hidden draws are known.

A rate, of unknown phase, is believed if it makes the sends clearly likelier (`hypotheses.FALSE_ALARM`) than another
does, and no later PROBE_RTT is examined then. That is no more error-prone than a decision at the end: the likelihood
ratio is a martingale, so the right rate is as unlikely ever to fall behind by that factor as to be behind at the end.
Where PROBE_RTT never came, or hardly shows, the sends refute neither.

Ticks are judged as soon as what is hidden is inferred up to where a PROBE_RTT shows. If others are likelier, rate or
phase, only what was inferred since the first PROBE_RTT that told them apart is dropped (`WrongTicksError`): before it,
ticks matter to nothing.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cctrace.cc.base import Controller
from cctrace.cc.linux import USEC_PER_SEC
from cctrace.columns import Bools, Floats, Ints
from cctrace.flows.flow import Flow
from cctrace.flows.source import Streamed
from cctrace.lang.fields import fields_of
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Script
from cctrace.replaying.inference.hypotheses import ALIKE, FALSE_ALARM, Inference, Known
from cctrace.replaying.inference.one_pass import Leader
from cctrace.replaying.inference.probes import PROBE_RTTS, PROBING, RENEWED
from cctrace.replaying.inference.ticks import CONFIG_HZ
from cctrace.replaying.inference.timed import timed
from cctrace.schema import JIFFIES_START

RATES = CONFIG_HZ[:2]  # of nearly all kernels; 100 and 300 mostly end PROBE_RTT with the same ACK as 250
SURE = math.log(1 / FALSE_ALARM)
APART_US = 1000  # between the phases of the ticks that are tried
STAMPS = ("probe_rtt_min_stamp", "min_rtt_stamp", "probe_rtt_done_stamp", "cycle_jiffies")  # in ticks, if not 0
MAX_CHANGES = 2  # of the ticks with which a flow is inferred
HELD_US = 300_000  # longer than PROBE_RTT lasts on most paths


class Ticking(NamedTuple):
    """The likeliest ticks, and the rates that are not refuted."""

    hz: int
    tick_us: int
    possible: tuple[int, ...]


class WrongTicksError(Exception):
    """While what is hidden was inferred with some ticks, others turned out to be likelier: `ticking`, from `row` on."""

    def __init__(self, ticking: Ticking, row: int) -> None:
        super().__init__(ticking)
        self.ticking, self.row = ticking, row


class _Look(NamedTuple):
    """A PROBE_RTT: the row at which it may begin, the state there, and the log likelihoods of its sends with ticks."""

    row: int
    before: Any
    likelihoods: Floats


class _NotInferredError(Exception):
    """What is hidden is not inferred up to this row yet."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class _Plain(Inference):
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
            raise _NotInferredError(stop)
        self.follower.likelihood[0] = 0.0
        self.follower.replay(self._edits, stop, score)
        if self._known < len(self.now_us) and len(self.follower.draws) > self._draws:  # one more, with other ticks
            raise _NotInferredError(self._known + 1)
        return float(self.follower.likelihood[0])

    def probing(self, first: int) -> tuple[Ints, Bools]:
        """Return the times of the calls from the `first` on, us, and whether they left the controller in PROBE_RTT."""
        follower = self.follower
        modes = follower.held.part(first, follower.row)["mode"]
        return self.now_us[first : follower.row], modes == follower.cls.states.index("PROBE_RTT")


class _Led(Inference):
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


class _Dips:
    """A replay that comes to each PROBE_RTT with a clock of 1 us, and tries ticks from there on."""

    def __init__(self, replay: _Plain | _Led, usual: tuple[int, int]) -> None:
        self._replay, self.subject, self._control = replay, replay.follower, replay.control
        self.usual, self._score = usual, cx.PACED_SENDS if isinstance(replay, _Led) else cx.ALL_SENDS
        control = self._control
        self._stamps = [name for name in STAMPS if name in control.fields]
        self._life_us = midflow.lifetime_us(control.params)
        self._probing = control.cls.states.index("PROBE_RTT")
        control.set_ticks(USEC_PER_SEC, 0)

    def learn(self, script: Script, known: int) -> None:
        """Take what is inferred of the rows before `known`, where this goes on."""
        if isinstance(self._replay, _Plain):
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
                return None
            if start > subject.row:
                self._replay.run(start)
                if self._control.get(self._stamps[0]) != stamp:
                    continue
            if found := self._seen():
                return found
        return None

    def _seen(self) -> tuple[int, int] | None:
        """Return what `next` does, if PROBE_RTT begins about here; else go on without it."""
        before = self.subject.save()
        try:
            return self._seen_from(before)
        except _NotInferredError:
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
                self._control.set(name, JIFFIES_START + (stamp - JIFFIES_START + tick_us) * hz // USEC_PER_SEC)
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


class Judge:
    """Judges with which ticks a BBR explains the sends of a flow best.

    `captured`: the flow as captured if it was sent through fq: at another HZ its sender hands it over otherwise.
    `known`: what stands of an inference whose ticks were wrong.
    """

    def __init__(self, source: Streamed, captured: Flow | None, cls: type[Controller]) -> None:
        self._source, self._captured, self._cls = source, captured, cls
        self._dips: _Dips | None = None
        self._ticks: list[tuple[int, int]] = []
        self._looks: list[_Look] = []
        self._needs = 0  # rows that must be inferred before more can be judged
        self._changes = MAX_CHANGES
        self._settled: Ticking | None = None
        self.known: Known | None = None

    def so_far(self, follower: Follower, script: Script) -> bool:
        """Return whether the ticks are those of a replay at its row; raise `WrongTicksError` if others are likelier."""
        if self._captured is not None:  # rows are packets there
            return True
        return self._judge(follower.params, script, follower.row) is not None

    def at_end(self, follower: Follower, script: Script) -> Ticking:
        """Return the ticks that explain the sends best; `follower` has been replayed to its end with a script.

        They are kept unless others are clearly likelier; where those are found now, `WrongTicksError` is raised.
        """
        found = self._judge(follower.params, script, len(self._source.events))
        assert found is not None
        return found

    def _judge(self, params: dict[str, Any], script: Script, known: int) -> Ticking | None:
        """Judge by what is inferred of the rows before `known`; return None if that does not decide."""
        if self._settled is not None or known < self._needs:
            return self._settled
        if self._dips is None and not self._begin(params, script):
            return self._settled
        assert self._dips is not None
        self._dips.learn(script, known)
        self._needs = 0
        try:
            self._look(self._dips)
        except _NotInferredError as more:
            self._needs = more.row
        likeliest, usual = self._likeliest(), self._dips.usual
        found = self._ticks.index((likeliest.hz, likeliest.tick_us))
        apart = [look.likelihoods[found] - look.likelihoods[self._ticks.index(usual)] for look in self._looks]
        if self._changes and (sum(apart) > SURE or usual[0] not in likeliest.possible):
            self._changes -= 1
            raise WrongTicksError(likeliest, self._back(self._dips, self._ticks[found], apart))
        if not self._needs:
            rates = sorted(likeliest.possible, key=lambda rate: rate != usual[0])
            self._settled = Ticking(*usual, tuple(rates))
        return self._settled

    def _begin(self, params: dict[str, Any], script: Script) -> bool:
        """Come to the first row; return False if ticks cannot be determined."""
        source, cls, own = self._source, self._cls, params["hz"]
        other = next(rate for rate in RATES if rate != own)
        follower = None
        if {"mode", "min_rtt_stamp"} <= set(fields_of(cls)) and "PROBE_RTT" in cls.states:
            follower = Follower(source.events, source.events.sends, cls, params, ("mode",), in_runs=True)
        renewed = any(one.field == RENEWED for one in script.edits)  # when is known to a tick of this rate only
        if follower is None or renewed or not (follower.counts_ticks and follower.times_probe_rtt):
            self._settled = Ticking(own, 0, (own, other))
            return False
        replay: _Plain | _Led
        if self._captured is None:
            replay = _Plain(follower, script)
        else:
            replay = _Led(Leader(self._captured.by_echoes(), cls, params, timed(script, follower)))
        self._dips = _Dips(replay, (own, 0))
        self._ticks = [
            (rate, tick_us)
            for rate in (own, other)
            for tick_us in (0, *range(APART_US // 2, USEC_PER_SEC // rate, APART_US))
        ]
        return True

    def _look(self, dips: _Dips) -> None:
        """Judge by one PROBE_RTT after the other, until that decides."""
        while abs(self._ratio) <= SURE and (found := dips.next()):
            end, ended_us = found
            self._looks.append(_Look(dips.subject.row, dips.subject.save(), dips.tried(end, self._ticks)))
            dips.leave(ended_us)

    def _back(self, dips: _Dips, ticks: tuple[int, int], apart: Sequence[float]) -> int:
        """Go back to the first PROBE_RTT in which the sends tell ticks from the usual ones, and return its row."""
        first = next(k for k, more in enumerate(apart) if abs(more) > 10**-ALIKE)
        look = self._looks[first]
        dips.subject.restore(look.before)
        del self._looks[first:]
        dips.usual, self._needs = ticks, 0
        return look.row

    @property
    def _total(self) -> Floats:
        """The log likelihoods with each of the ticks."""
        return np.sum([np.zeros(len(self._ticks)), *(look.likelihoods for look in self._looks)], axis=0)

    @property
    def _is_own(self) -> Bools:
        """Which ticks are of the rate that the replay has."""
        return np.array([rate == self._ticks[0][0] for rate, _ in self._ticks])

    @property
    def _ratio(self) -> float:
        """The log likelihood ratio of the other rate to this one."""
        return _mean(self._total[~self._is_own]) - _mean(self._total[self._is_own])

    def _likeliest(self) -> Ticking:
        """Return the likeliest ticks: the first ones unless others are clearly likelier."""
        total, is_own, ratio, (own, _) = self._total, self._is_own, self._ratio, self._ticks[0]
        other = next(rate for rate in RATES if rate != own)
        if max(ratio, total.max() - total[0]) <= SURE:
            return Ticking(own, 0, (own,) if ratio < -SURE else (own, other))
        likely = ~is_own if ratio > 0 else is_own
        first, best = int(np.argmax(likely)), int(np.argmax(np.where(likely, total, -np.inf)))
        hz, tick_us = self._ticks[best if total[best] > total[first] + SURE else first]
        return Ticking(hz, tick_us, (hz,) if abs(ratio) > SURE else (hz, *(rate for rate in RATES if rate != hz)))


def _mean(likelihoods: Floats) -> float:
    """Return the log of the mean of some likelihoods, from their logs."""
    most = likelihoods.max()
    return float(most + np.log(np.mean(np.exp(likelihoods - most))))
