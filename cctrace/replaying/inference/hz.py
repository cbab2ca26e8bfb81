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
from cctrace.columns import Bools, Floats
from cctrace.flows.flow import Flow
from cctrace.flows.source import Streamed
from cctrace.lang.fields import fields_of
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Script
from cctrace.replaying.inference.dips import Dips, Led, NotInferredError, Plain
from cctrace.replaying.inference.hypotheses import ALIKE, FALSE_ALARM, Known, State
from cctrace.replaying.inference.one_pass import Leader
from cctrace.replaying.inference.probes import RENEWED
from cctrace.replaying.inference.ticks import CONFIG_HZ
from cctrace.replaying.inference.timed import timed

RATES = CONFIG_HZ[:2]  # of nearly all kernels; 100 and 300 mostly end PROBE_RTT with the same ACK as 250
SURE = math.log(1 / FALSE_ALARM)
APART_US = 1000  # between the phases of the ticks that are tried
MAX_CHANGES = 2  # of the ticks with which a flow is inferred


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


class Judge:
    """Judges with which ticks a BBR explains the sends of a flow best.

    `captured`: the flow as captured if it was sent through fq: at another HZ its sender hands it over otherwise.
    `known`: what stands of an inference whose ticks were wrong.
    """

    def __init__(self, source: Streamed, captured: Flow | None, cls: type[Controller]) -> None:
        self._source, self._captured, self._cls = source, captured, cls
        self._dips: Dips | None = None
        self._ticks: list[tuple[int, int]] = []
        self._looks: list[_Look] = []
        self._needs = 0  # rows that must be inferred before more can be judged
        self._changes = MAX_CHANGES
        self._settled: Ticking | None = None
        self._passed: Sequence[State] = ()  # of the replay that is being inferred, see `so_far`
        self.known: Known | None = None

    def so_far(self, follower: Follower, script: Script, passed: Sequence[State], dipped: int) -> bool:
        """Return whether the ticks are those of a replay at its row; raise `WrongTicksError` if others are likelier.

        `passed`: states of the replay. `dipped`: the row of its last draw that ended PROBE_RTT.
        """
        if self._captured is not None:  # rows are packets there
            return True
        self._passed = passed
        return self._judge(follower, script, follower.row, dipped) is not None

    def at_end(self, follower: Follower, script: Script) -> Ticking:
        """Return the ticks that explain the sends best; `follower` has been replayed to its end with a script.

        They are kept unless others are clearly likelier; where those are found now, `WrongTicksError` is raised.
        """
        rows = len(self._source.events)
        dipped = _last_dip(follower) if self._captured is None else rows
        found = self._judge(follower, script, rows, dipped, at_end=True)
        assert found is not None
        return found

    def _judge(
        self, follower: Follower, script: Script, known: int, dipped: int, at_end: bool = False
    ) -> Ticking | None:
        """Judge by what is inferred of the rows before `known`; return None if that does not decide.

        After row `dipped` the replay has come to no PROBE_RTT yet or, `at_end`, to none.
        """
        if self._settled is not None or known < self._needs:
            return self._settled
        if self._dips is None and not self._begin(follower.params, script):
            return self._settled
        assert self._dips is not None
        if "cycle_jiffies" in follower.fields and follower.get("cycle_jiffies"):
            # BBR of 2016 times its gain cycle, too, so that with a clock of 1 us it is another.
            self._passed, dipped = (), known
        if self._dips.subject.row >= dipped and not at_end:
            return None
        self._dips.learn(script, known, self._passed, follower.marks)
        self._needs = 0
        try:
            self._look(self._dips, dipped)
        except NotInferredError as more:
            self._needs = more.row
        likeliest, usual = self._likeliest(), self._dips.usual
        found = self._ticks.index((likeliest.hz, likeliest.tick_us))
        apart = [look.likelihoods[found] - look.likelihoods[self._ticks.index(usual)] for look in self._looks]
        if self._changes and (sum(apart) > SURE or usual[0] not in likeliest.possible):
            self._changes, self._passed = self._changes - 1, ()
            raise WrongTicksError(likeliest, self._back(self._dips, self._ticks[found], apart))
        if not self._needs and (at_end or self._dips.is_over or abs(self._ratio) > SURE):
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
        replay: Plain | Led
        if self._captured is None:
            replay = Plain(follower, script)
        else:
            replay = Led(Leader(self._captured.by_echoes(), cls, params, timed(script, follower)))
        self._dips = Dips(replay, (own, 0))
        self._ticks = [
            (rate, tick_us)
            for rate in (own, other)
            for tick_us in (0, *range(APART_US // 2, USEC_PER_SEC // rate, APART_US))
        ]
        return True

    def _look(self, dips: Dips, dipped: int) -> None:
        """Judge by one PROBE_RTT after the other, until that decides."""
        while abs(self._ratio) <= SURE and dips.subject.row < dipped and (found := dips.next()):
            end, ended_us = found
            self._looks.append(_Look(dips.subject.row, dips.subject.save(), dips.tried(end, self._ticks)))
            dips.leave(ended_us)

    def _back(self, dips: Dips, ticks: tuple[int, int], apart: Sequence[float]) -> int:
        """Go back to the first PROBE_RTT in which the sends tell ticks from the usual ones, and return its row."""
        first = next(k for k, more in enumerate(apart) if abs(more) > 10**-ALIKE)
        look = self._looks[first]
        dips.subject.restore(look.before)
        del self._looks[first:]
        dips.usual, dips.is_over, self._needs = ticks, False, 0
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


def _last_dip(follower: Follower) -> int:
    """Return the row after the last one that left a replay in PROBE_RTT; the last row where that is not recorded."""
    rows = len(follower.rows)
    if "mode" not in follower.held.runs:
        return rows
    begins, mode = follower.held.runs["mode"]
    ends = np.append(begins[1:], rows)[mode == follower.cls.states.index("PROBE_RTT")]
    return int(ends.max(initial=0))


def _mean(likelihoods: Floats) -> float:
    """Return the log of the mean of some likelihoods, from their logs."""
    most = likelihoods.max()
    return float(most + np.log(np.mean(np.exp(likelihoods - most))))
