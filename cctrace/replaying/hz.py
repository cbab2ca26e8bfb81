"""Tick rate of the kernel of a recorded BBR, from its sends.

BBR times PROBE_RTT and the age of its minimum RTT in jiffies: at HZ = 250 the window of PROBE_RTT opens and closes up
to 4 ms later than at 1000, and what follows moves with it. Both rates are replayed with their own hidden draws, and
the other one is believed only if it makes the sends clearly likelier (`hypotheses.FALSE_ALARM`) than the first does at
any phase of its ticks. Where PROBE_RTT never came, or hardly shows, the sends refute neither.
"""

import math
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.base import Controller
from cctrace.flows.flow import Flow
from cctrace.flows.source import Streamed
from cctrace.lang.threads import each
from cctrace.replaying import book as bk
from cctrace.replaying import midflow
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import FALSE_ALARM, Inferred
from cctrace.replaying.infer import infer
from cctrace.replaying.paced import gso_choices, may_heed_marks
from cctrace.replaying.stack import TOTAL, TOTAL_WAS_FULL, WAS_FULL
from cctrace.replaying.through_fq import handed_over_at
from cctrace.replaying.ticks import CONFIG_HZ

RATES = CONFIG_HZ[:2]  # of nearly all kernels; 100 and 300 mostly end PROBE_RTT with the same ACK as 250
SURE = math.log(1 / FALSE_ALARM)
PART = 1 << 14  # rows after which it is looked how likely ticks are by then
APART_US = 1000  # between the phases of the ticks that are tried before another rate is believed


class Ticking(NamedTuple):
    """The likeliest ticks, the stream that their sender made, the rates that are not refuted, and what was inferred."""

    hz: int
    tick_us: int
    source: Streamed
    possible: tuple[int, ...]
    inferred: Inferred


class _Tried(NamedTuple):
    """An inference with some ticks: log likelihood of the sends, in all and before each PART of the rows."""

    likelihood: float
    tick_us: int
    inferred: Inferred
    totals: NDArray[np.float64]


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
    """Inferences over one stream with various ticks."""

    def __init__(self, stream: Streamed, cls: type[Controller], params: dict[str, Any], given: Container[str]) -> None:
        self._asked = stream, cls, params, given
        self.given, events = given, stream.events
        self.expiry = midflow.expiry(events, cls)
        self.follower = Scoring(events, events.sends, cls, params)
        self.begin, self.rows = self.follower.save(), len(self.follower.rows)
        # Without choices of which only one is likely.
        is_single = not may_heed_marks(self.follower) and len(gso_choices(self.follower)) < 2
        self.may_give_up = self.follower.is_scored and is_single

    def score(self, inferred: Inferred, rate: int, tick_us: int) -> _Tried:
        """Replay inferred values with these ticks, for their likelihood."""
        inferred = inferred._replace(script=inferred.script._replace(hz=rate, tick_us=tick_us))
        self.follower.restore(self.begin)
        # Through fq, TIMED_SENDS would replay another schedule than the one inferred, and with it BBR's packets in net.
        kind = bk.PACED_SENDS if self.follower.hands_over else bk.TIMED_SENDS
        parts = self.follower.score(inferred.script, [*range(PART, self.rows, PART), self.rows], kind)
        totals = np.cumsum(np.append(0.0, parts))
        return _Tried(float(totals[-1]), tick_us, inferred, totals)

    def infer(self, rate: int, tick_us: int, rival: _Tried) -> _Tried:
        """Infer hidden values with these ticks; give up where the rival's are surely likelier."""
        follower = self.follower
        follower.restore(self.begin)
        follower.set_ticks(rate, tick_us)
        follower.rivals = rival.totals if self.may_give_up else None
        try:
            inferred = infer(follower, self.expiry, True, self.given)
        except Refuted:
            return _Tried(-math.inf, tick_us, Inferred.nothing(), np.zeros(0))
        if not follower.is_scored:
            return self.score(inferred, rate, tick_us)
        return _Tried(follower.total, tick_us, inferred, follower.totals.copy())

    def best_phase(self, rate: int, rival: _Tried) -> _Tried:
        """Infer them at the likeliest phase of the ticks of a rate."""

        def tried(half: tuple[_Ticks, Sequence[int]]) -> list[_Tried]:
            return [half[0].infer(rate, tick_us, rival) for tick_us in half[1]]

        phases_us = range(APART_US // 2, 1_000_000 // rate, APART_US)
        halves = (self, phases_us[::2]), (_Ticks(*self._asked), phases_us[1::2])
        return max((one for found in each(tried, halves) for one in found), key=lambda one: one[:2])


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
    return Ticking(own, 0, source, (own,) if refuted else (own, other), inferred)
