"""Tick rate of the kernel of a recorded BBR, from its sends.

BBR times PROBE_RTT and the age of its minimum RTT in jiffies: at HZ = 250 the window of PROBE_RTT opens and closes up
to 4 ms later than at 1000, and what follows moves with it. Both rates are replayed with their own hidden draws, and
the other one is believed only if it makes the sends clearly likelier (`hypotheses.FALSE_ALARM`), whatever the phase of
the ticks. Where PROBE_RTT never came, or hardly shows, the sends refute neither.
"""

import math
from collections.abc import Container
from typing import Any, NamedTuple

from cctrace.cc.base import Controller
from cctrace.flows.flow import Flow
from cctrace.flows.source import Streamed
from cctrace.replaying import book as bk
from cctrace.replaying import midflow
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import FALSE_ALARM
from cctrace.replaying.infer import infer
from cctrace.replaying.script import Script
from cctrace.replaying.through_fq import handed_over_at
from cctrace.replaying.ticks import CONFIG_HZ

RATES = CONFIG_HZ[:2]  # of nearly all kernels; 100 and 300 mostly end PROBE_RTT with the same ACK as 250
SURE = math.log(1 / FALSE_ALARM)
APART_US = 1000  # between the phases of the ticks that are tried before a rate is refuted


class Ticking(NamedTuple):
    """The likeliest ticks, the stream that their sender made, and the rates that are not refuted."""

    hz: int
    tick_us: int
    source: Streamed
    possible: tuple[int, ...]


def likeliest_hz(
    source: Streamed,
    captured: Flow | None,
    cls: type[Controller],
    params: dict[str, Any],
    script: Script,
    given: Container[str],
) -> Ticking:
    """Return with which ticks a BBR explains the sends of a flow best.

    `captured`: the flow as captured if it was sent through fq: at another HZ its sender hands it over otherwise.
    `params`: with the HZ at which `script` was inferred, which is kept unless another is clearly likelier. `given`: see
    `infer`.
    """

    def follower(stream: Streamed, rate: int, tick_us: int = 0) -> Follower:
        made = Follower(stream.events, stream.events.sends, cls, params | {"hz": rate}, ())
        made.set_ticks(rate, tick_us)
        return made

    def score(stream: Streamed, tried: Script) -> float:
        one = follower(stream, tried.hz)
        return float(one.score(tried, [len(one.rows)], bk.TIMED_SENDS)[0])

    def inferred(stream: Streamed, rate: int, tick_us: int) -> float:
        one = follower(stream, rate, tick_us)
        return score(stream, infer(one, midflow.expiry(stream.events, cls), True, given).script)

    def best_phase(stream: Streamed, rate: int) -> tuple[float, int]:
        phases_us = range(APART_US // 2, 1_000_000 // rate, APART_US)
        return max((inferred(stream, rate, tick_us), tick_us) for tick_us in phases_us)

    own = params["hz"]
    other = next(rate for rate in RATES if rate != own)
    likelihood = score(source, script._replace(hz=own))
    if score(source, script._replace(hz=other)) == likelihood:  # the ticks decided nothing
        return Ticking(own, 0, source, (own, other))
    stream = handed_over_at(captured, cls, other) if captured is not None else source
    # Streams differ by more than the ticks: one rate must do better than the other over either.
    rivals = [inferred(one, other, 0) for one in ((stream,) if stream is source else (stream, source))]
    if min(rivals) > likelihood + SURE:
        shifted, tick_us = best_phase(source, own)
        if min(rivals) > shifted + SURE:
            return Ticking(other, 0, stream, (other,))
        return Ticking(own, tick_us if shifted > likelihood + SURE else 0, source, (own, other))
    refuted = max(rivals) < likelihood - SURE and best_phase(stream, other)[0] < likelihood - SURE
    return Ticking(own, 0, source, (own,) if refuted else (own, other))
