"""Tick rate of the kernel of a recorded BBR, from its sends.

BBR times PROBE_RTT and the age of its minimum RTT in jiffies: at HZ = 250 the window of PROBE_RTT opens and closes up
to 4 ms later than at 1000, and what follows moves with it. Both rates are replayed with their own hidden draws, and
the other one is believed only if it makes the sends clearly likelier (`hypotheses.FALSE_ALARM`), whatever the phase of
the ticks. Where PROBE_RTT never came, or hardly shows, the sends refute neither.
"""

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.base import Controller
from cctrace.columns import Runs
from cctrace.flows.flow import Flow
from cctrace.flows.source import Streamed
from cctrace.lang.threads import each
from cctrace.replaying import book as bk
from cctrace.replaying import midflow
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import FALSE_ALARM, Begun, Inferred
from cctrace.replaying.infer import infer
from cctrace.replaying.paced import gso_choices, may_heed_marks
from cctrace.replaying.stack import TOTAL, TOTAL_WAS_FULL, WAS_FULL
from cctrace.replaying.through_fq import handed_over_at
from cctrace.replaying.ticks import CONFIG_HZ

RATES = CONFIG_HZ[:2]  # of nearly all kernels; 100 and 300 mostly end PROBE_RTT with the same ACK as 250
SURE = math.log(1 / FALSE_ALARM)
TOUCHED = ("mode", "min_rtt_us")  # fields of BBR v1 by which ticks change what it does
PART = 1 << 14  # rows after which it is looked whether ticks have made a difference, and how likely they are by then
APART_US = 1000  # between the phases of the ticks that are tried before a rate is refuted


class Ticking(NamedTuple):
    """The likeliest ticks, the stream that their sender made, the rates that are not refuted, and what was inferred."""

    hz: int
    tick_us: int
    source: Streamed
    possible: tuple[int, ...]
    inferred: Inferred


class _Tried(NamedTuple):
    """An inference with some ticks: the likelihood of the sends, and what the ticks may change directly."""

    likelihood: float
    tick_us: int
    inferred: Inferred
    touched: Mapping[str, Runs]
    same: Mapping[int, int] = {}  # the first row from which on it differs from each that was tried before
    totals: NDArray[np.float64] | None = None  # log likelihoods of the sends before each PART of the rows

    def first_apart(self, touched: Mapping[str, Runs]) -> int | None:
        """Return the first row after which that differs from another replay's; None if none does."""
        found = (runs.first_apart(touched[name]) for name, runs in self.touched.items())
        return min((row for row in found if row is not None), default=None)


class Refuted(Exception):
    """The ticks of a `Scoring` follower are far less likely than others."""


class Scoring(Follower):
    """A follower whose committed run scores the sends on the way, as `score` does; trials do not notice.

    Not through fq, where `score` takes other times of sends than inference does (`loop.take_sends`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.totals = np.zeros(len(self.rows) // PART + 1)
        self.rivals: NDArray[np.float64] | None = None  # the totals with other ticks

    @property
    def is_scored(self) -> bool:
        """Whether it does."""
        return bool(self.cls.sets_pacing_rate and not self.hands_over)

    @property
    def total(self) -> float:
        """The log likelihood of the sends so far."""
        return float(self.stack[TOTAL : TOTAL + 1].view(np.float64)[0])

    def run(self, stop: int | None = None, score: int = bk.NOTHING, way: str = "run") -> int:
        """Call rows as any follower does."""
        if way != "run" or not self.is_scored:
            return super().run(stop, score, way)
        stop = len(self.rows) if stop is None else min(stop, len(self.rows))
        self.book[bk.USUAL_GAP_US] = self.stream.usual_gap_us
        while True:
            last = min(stop, (self.row // PART + 1) * PART)
            self.likelihood[0], self.stack[WAS_FULL] = self.total, self.stack[TOTAL_WAS_FULL]
            row = super().run(last, bk.TIMED_SENDS)
            self.stack[TOTAL : TOTAL + 1].view(np.float64)[0] = self.likelihood[0]
            self.stack[TOTAL_WAS_FULL], self.stack[WAS_FULL] = self.stack[WAS_FULL], 0
            if row % PART == 0:
                self.totals[row // PART] = self.total
            if row < last or row == stop:
                return row

    def draw(self, numbers: Sequence[int]) -> None:
        """Prescribe random numbers as any follower does, unless its ticks are refuted by then.

        That they are less likely by SURE than others at any time is as unlikely as at the end, if they are right: their
        likelihood ratio is a martingale.
        """
        part = self.row // PART
        if self.rivals is not None and self.totals[part] < self.rivals[part] - SURE:
            raise Refuted
        super().draw(numbers)


class _Ticks:
    """Inferences over one stream with various ticks.

    Those of the gain cycle of BBR v1 begin where the ticks first make a difference: no step before looks beyond.
    """

    def __init__(self, stream: Streamed, cls: type[Controller], params: dict[str, Any], given: Container[str]) -> None:
        self._asked = stream, cls, params, given
        self.given, events = given, stream.events
        self.expiry = midflow.expiry(events, cls)
        self.shares = bool(cls.phase_choices) and self.expiry < 0
        self.follower = Scoring(events, events.sends, cls, params, TOUCHED if self.shares else (), in_runs=True)
        self.begin, self.rows = self.follower.save(), len(self.follower.rows)
        # Without choices of which only one is likely.
        is_single = not may_heed_marks(self.follower) and len(gso_choices(self.follower)) < 2
        self.may_give_up = self.follower.is_scored and is_single and not self.shares
        self.tried: list[_Tried] = []

    def score(self, inferred: Inferred, rate: int, tick_us: int) -> _Tried:
        """Replay inferred values with these ticks, for their likelihood."""
        inferred = with_ticks(inferred, rate, tick_us)
        self.follower.restore(self.begin)
        # Through fq, TIMED_SENDS would replay another schedule than the one inferred, and with it BBR's packets in net.
        kind = bk.PACED_SENDS if self.follower.hands_over else bk.TIMED_SENDS
        parts = self.follower.score(inferred.script, [*range(PART, self.rows, PART), self.rows], kind)
        totals = np.cumsum(np.append(0.0, parts))
        return _Tried(float(totals[-1]), tick_us, inferred, self.follower.held.runs, totals=totals)

    def same_until(self, before: _Tried, rate: int, tick_us: int) -> int:
        """Return the first row at which these ticks change what was inferred with others; the number of rows if none.

        The replay ends soon after it.
        """
        follower, script = self.follower, with_ticks(before.inferred, rate, tick_us).script
        follower.restore(self.begin)
        pauses, nothing = [*range(PART, self.rows, PART), self.rows], (np.array([self.rows]), np.zeros(1))
        for _ in follower.scoring(script, pauses, bk.NOTHING, *nothing):
            apart = before.first_apart(follower.held.runs)
            if apart is not None and apart < follower.row:
                return apart
        return self.rows

    def infer(self, rate: int, tick_us: int, rival: _Tried | None = None) -> _Tried:
        """Infer hidden values with these ticks; give up where the rival's are surely likelier."""
        same: dict[int, int] = {}  # of each that was tried: the first row from which on this one differs
        for k in reversed(range(len(self.tried) if self.shares else 0)):
            before = self.tried[k]
            # Of three, the two that agree longest differ from the third in the same row.
            known = [min(same[j], self.tried[j].same[k]) for j in same if same[j] != self.tried[j].same[k]]
            same[k] = known[0] if known else self.same_until(before, rate, tick_us)
            if same[k] == self.rows:
                return before._replace(tick_us=tick_us, inferred=with_ticks(before.inferred, rate, tick_us))
        nearest = max(same, key=same.__getitem__, default=None)
        begun = None if nearest is None else Begun(self.tried[nearest].inferred, same[nearest])
        self.follower.restore(self.begin)
        self.follower.set_ticks(rate, tick_us)
        self.follower.rivals = rival.totals if rival and self.may_give_up else None
        try:
            inferred = infer(self.follower, self.expiry, True, self.given, begun)
        except Refuted:
            return _Tried(-math.inf, tick_us, Inferred.nothing(), {})
        if self.follower.is_scored:
            totals = self.follower.totals.copy()
            tried = _Tried(self.follower.total, tick_us, inferred, self.follower.held.runs, totals=totals)
        else:
            tried = self.score(inferred, rate, tick_us)
        self.tried.append(tried._replace(same=same))
        return self.tried[-1]

    def infer_all(self, rate: int, phases_us: Sequence[int], rival: _Tried) -> list[_Tried]:
        """Infer them at some phases of the ticks of a rate."""
        return [self.infer(rate, tick_us, rival) for tick_us in phases_us]

    def best_phase(self, rate: int, rival: _Tried) -> _Tried:
        """Infer them at the likeliest phase of the ticks of a rate."""
        phases_us = range(APART_US // 2, 1_000_000 // rate, APART_US)
        if self.shares or len(phases_us) < 2:
            tried = self.infer_all(rate, phases_us, rival)
        else:  # each from the beginning
            halves = (self, phases_us[::2]), (_Ticks(*self._asked), phases_us[1::2])
            first, second = each(lambda half: half[0].infer_all(rate, half[1], rival), halves)
            tried = first + second
        return max(tried, key=lambda one: one[:2])


def with_ticks(inferred: Inferred, rate: int, tick_us: int) -> Inferred:
    """Return inferred values, with these ticks."""
    return inferred._replace(script=inferred.script._replace(hz=rate, tick_us=tick_us))


def likeliest_hz(
    source: Streamed,
    captured: Flow | None,
    cls: type[Controller],
    params: dict[str, Any],
    inferred: Inferred,
    given: Container[str],
) -> Ticking:
    """Return with which ticks a BBR explains the sends of a flow best.

    `captured`: the flow as captured if it was sent through fq: at another HZ its sender hands it over otherwise.
    `params`: with the HZ of `inferred`, which is kept unless another is clearly likelier. `given`: see `infer`.
    """
    own, ticks = params["hz"], _Ticks(source, cls, params, given)
    other = next(rate for rate in RATES if rate != own)
    usual = ticks.score(inferred, own, 0)
    if ticks.score(inferred, other, 0).likelihood == usual.likelihood:  # the ticks decided nothing
        return Ticking(own, 0, source, (own, other), inferred)
    ticks.tried.append(usual)
    # Streams differ by more than the ticks: one rate must do better than the other over either, and over its own than
    # the other at any phase of its ticks over that one's.
    stream = handed_over_at(captured, cls, other) if captured is not None else source
    elsewhere = ticks if stream is source else _Ticks(stream, cls, params, given)
    rivals = each(lambda one: one.infer(other, 0, usual), [elsewhere] + ([ticks] if stream is not source else []))
    rival, likelihoods = rivals[0], [one.likelihood for one in rivals]
    least, most = min(likelihoods), max(likelihoods)
    if least > usual.likelihood and rival.likelihood > usual.likelihood + SURE:
        shifted = ticks.best_phase(own, rival)
        if rival.likelihood > shifted.likelihood + SURE:
            return Ticking(other, 0, stream, (other,), rival.inferred)
        best = shifted if shifted.likelihood > usual.likelihood + SURE else usual
        return Ticking(own, best.tick_us, source, (own, other), best.inferred)
    refuted = most < usual.likelihood - SURE
    refuted = refuted and elsewhere.best_phase(other, usual).likelihood < usual.likelihood - SURE
    return Ticking(own, 0, source, (own,) if refuted else (own, other), inferred)
