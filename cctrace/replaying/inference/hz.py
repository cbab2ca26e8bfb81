"""HZ of the kernel of a recorded BBR, from its sends around PROBE_RTT.

bbr_update_min_rtt measures the age of the minimum RTT, and how long PROBE_RTT lasts, in jiffies: at HZ = 250 PROBE_RTT
begins and ends up to 4 ms later than at 1000. Nothing else that a BBR does depends on HZ (but for the gain cycle of the
BBR of 2016). `TickTest` therefore replays the flow once more with a clock of 1 us, which no kernel's jiffies precede,
up to where the minimum RTT expires by that clock. From there on, through PROBE_RTT and until what follows is visible in
the sends, it tries each HZ, with several phases of the ticks, and adds up the log likelihoods of the sends. Then it
goes on from where PROBE_RTT ended in the replay whose draws are known (`probe_rtts`).

A rate, averaged over its phases, is believed if it makes the sends clearly likelier (`hypotheses.FALSE_ALARM`) than the
other; later PROBE_RTTs are not examined then. This is no more error-prone than a decision at the end: the likelihood
ratio is a martingale, so the right rate is as unlikely ever to fall behind by that factor as to be behind at the end.
If PROBE_RTT never came, or hardly shows, both rates remain possible.

The test runs as soon as the draws are inferred up to where a PROBE_RTT shows. If another rate or phase is likelier,
only what was inferred since the first PROBE_RTT that tells them apart is dropped (`WrongTicksError`).
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
from cctrace.replaying.inference.hypotheses import DECIMALS, FALSE_ALARM, Progress, State
from cctrace.replaying.inference.one_pass import Leader
from cctrace.replaying.inference.probe_rtts import NotInferredError, PacketReplay, ProbeRtts, RowReplay
from cctrace.replaying.inference.probes import RENEWED
from cctrace.replaying.inference.ticks import CONFIG_HZ
from cctrace.replaying.inference.timed import timed

RATES = CONFIG_HZ[:2]  # HZ of nearly all kernels; with 100 or 300, PROBE_RTT mostly ends at the same ACK as with 250
SURE = math.log(1 / FALSE_ALARM)
PHASE_STEP_US = 1000  # between the phases that are tried
MAX_CHANGES = 2  # how often the draws of a flow are inferred anew with other ticks


class Ticking(NamedTuple):
    """The likeliest HZ and phase of the kernel's ticks, and the rates that are possible."""

    hz: int
    tick_us: int
    possible: tuple[int, ...]


class WrongTicksError(Exception):
    """Draws were inferred with some ticks, and others turned out to be likelier: `ticking`, from `row` on."""

    def __init__(self, ticking: Ticking, row: int) -> None:
        super().__init__(ticking)
        self.ticking, self.row = ticking, row


class _Examined(NamedTuple):
    """A PROBE_RTT: the row at which it may begin, the state there, and the log likelihood of its sends by ticks."""

    row: int
    before: Any
    likelihoods: Floats


class TickTest:
    """A test of which ticks let a BBR explain the sends of a flow best.

    `captured`: the flow as captured if it was sent through fq: its hand-over depends on HZ. `progress`: what was
    inferred with wrong ticks and remains valid.
    """

    def __init__(self, source: Streamed, captured: Flow | None, cls: type[Controller]) -> None:
        self._source, self._captured, self._cls = source, captured, cls
        self._probe_rtts: ProbeRtts | None = None
        self._ticks: list[tuple[int, int]] = []
        self._examined: list[_Examined] = []
        self._needs = 0  # rows whose draws must be inferred before the test can go on
        self._changes = MAX_CHANGES
        self._settled: Ticking | None = None
        self._visited: Sequence[State] = ()  # states of the replay that is being inferred, see `so_far`
        self.progress: Progress | None = None

    def so_far(self, follower: Follower, script: Script, visited: Sequence[State], last_probe_rtt: int) -> bool:
        """Test the ticks of a replay by its rows so far; return whether the test is over.

        Raises `WrongTicksError` if others are likelier. `visited`: some states of the replay on its way.
        `last_probe_rtt`: the row of its last draw that ended PROBE_RTT.
        """
        if self._captured is not None:  # a pass through fq, whose rows are packets, is tested at its end
            return True
        self._visited = visited
        return self._test(follower, script, follower.row, last_probe_rtt) is not None

    def at_end(self, follower: Follower, script: Script) -> Ticking:
        """Return the ticks of a follower that has been replayed to its end with a script.

        Raises `WrongTicksError` if others are clearly likelier.
        """
        rows = len(self._source.events)
        last_probe_rtt = _last_probe_rtt(follower) if self._captured is None else rows
        ticking = self._test(follower, script, rows, last_probe_rtt, at_end=True)
        assert ticking is not None
        return ticking

    def _test(
        self, follower: Follower, script: Script, known: int, last_probe_rtt: int, at_end: bool = False
    ) -> Ticking | None:
        """Test the ticks by the rows before `known`, whose draws are known; return None if these do not decide.

        After row `last_probe_rtt` the replay has not come to another PROBE_RTT (`at_end`: there is none).
        """
        if self._settled is not None or known < self._needs:
            return self._settled
        if self._probe_rtts is None and not self._begin(follower.params, script):
            return self._settled
        assert self._probe_rtts is not None
        if "cycle_jiffies" in follower.fields and follower.get("cycle_jiffies"):
            # BBR of 2016 times its gain cycle in jiffies, too: with a clock of 1 us, its states on the way differ.
            self._visited, last_probe_rtt = (), known
        if self._probe_rtts.subject.row >= last_probe_rtt and not at_end:
            return None
        self._probe_rtts.learn(script, known, self._visited, follower.marks)
        self._needs = 0
        try:
            self._examine(self._probe_rtts, last_probe_rtt)
        except NotInferredError as more:
            self._needs = more.row
        likeliest, assumed = self._likeliest(), self._probe_rtts.assumed
        best, own = self._ticks.index((likeliest.hz, likeliest.tick_us)), self._ticks.index(assumed)
        gains = [examined.likelihoods[best] - examined.likelihoods[own] for examined in self._examined]
        if self._changes and (sum(gains) > SURE or assumed[0] not in likeliest.possible):
            self._changes, self._visited = self._changes - 1, ()
            raise WrongTicksError(likeliest, self._go_back(self._probe_rtts, self._ticks[best], gains))
        if not self._needs and (at_end or self._probe_rtts.is_over or abs(self._ratio) > SURE):
            rates = sorted(likeliest.possible, key=lambda rate: rate != assumed[0])
            self._settled = Ticking(*assumed, tuple(rates))
        return self._settled

    def _begin(self, params: dict[str, Any], script: Script) -> bool:
        """Prepare the test; return False if HZ cannot be determined."""
        source, cls, own = self._source, self._cls, params["hz"]
        other = next(rate for rate in RATES if rate != own)
        follower = None
        if {"mode", "min_rtt_stamp"} <= set(fields_of(cls)) and "PROBE_RTT" in cls.states:
            follower = Follower(source.events, source.events.sends, cls, params, ("mode",), in_runs=True)
        renewed = any(edit.field == RENEWED for edit in script.edits)  # at a time in ticks of the assumed rate
        if follower is None or renewed or not (follower.counts_ticks and follower.times_probe_rtt):
            self._settled = Ticking(own, 0, (own, other))
            return False
        replay: RowReplay | PacketReplay
        if self._captured is None:
            replay = RowReplay(follower, script)
        else:
            replay = PacketReplay(Leader(self._captured.by_echoes(), cls, params, timed(script, follower)))
        self._probe_rtts = ProbeRtts(replay, (own, 0))
        self._ticks = [
            (rate, tick_us)
            for rate in (own, other)
            for tick_us in (0, *range(PHASE_STEP_US // 2, USEC_PER_SEC // rate, PHASE_STEP_US))
        ]
        return True

    def _examine(self, probe_rtts: ProbeRtts, last_probe_rtt: int) -> None:
        """Try the ticks in one PROBE_RTT after the other, until that decides."""
        subject = probe_rtts.subject
        while abs(self._ratio) <= SURE and subject.row < last_probe_rtt and (found := probe_rtts.next()):
            end, ended_us = found
            likelihoods = probe_rtts.likelihoods(end, self._ticks)
            self._examined.append(_Examined(subject.row, subject.save(), likelihoods))
            probe_rtts.leave(ended_us)

    def _go_back(self, probe_rtts: ProbeRtts, ticks: tuple[int, int], gains: Sequence[float]) -> int:
        """Go back to the first PROBE_RTT in which the sends tell `ticks` from the assumed ones, and return its row."""
        first = next(k for k, gain in enumerate(gains) if abs(gain) > 10**-DECIMALS)
        examined = self._examined[first]
        probe_rtts.subject.restore(examined.before)
        del self._examined[first:]
        probe_rtts.assumed, probe_rtts.is_over, self._needs = ticks, False, 0
        return examined.row

    @property
    def _total(self) -> Floats:
        """Log likelihood of the sends with each of the ticks."""
        return np.sum([np.zeros(len(self._ticks)), *(examined.likelihoods for examined in self._examined)], axis=0)

    @property
    def _is_own(self) -> Bools:
        """Which of the ticks have the rate that the replay began with."""
        return np.array([rate == self._ticks[0][0] for rate, _ in self._ticks])

    @property
    def _ratio(self) -> float:
        """Log likelihood ratio of the other rate to that one."""
        return _mean(self._total[~self._is_own]) - _mean(self._total[self._is_own])

    def _likeliest(self) -> Ticking:
        """Return the likeliest ticks: those that the replay began with, unless others are clearly likelier."""
        total, is_own, ratio, (own, _) = self._total, self._is_own, self._ratio, self._ticks[0]
        other = next(rate for rate in RATES if rate != own)
        if max(ratio, total.max() - total[0]) <= SURE:
            return Ticking(own, 0, (own,) if ratio < -SURE else (own, other))
        likely = ~is_own if ratio > 0 else is_own
        first, best = int(np.argmax(likely)), int(np.argmax(np.where(likely, total, -np.inf)))
        hz, tick_us = self._ticks[best if total[best] > total[first] + SURE else first]
        return Ticking(hz, tick_us, (hz,) if abs(ratio) > SURE else (hz, *(rate for rate in RATES if rate != hz)))


def _last_probe_rtt(follower: Follower) -> int:
    """Return the row after the last one in PROBE_RTT; the number of rows if modes are not recorded in runs."""
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
