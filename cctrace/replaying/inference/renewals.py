"""The hand-over of a flow to fq by its controller, with the PROBE_RTTs of BBRv2 and v3 where the sends show them.

PROBE_RTT comes when the minimum RTT is probe_rtt_win_ms old (bbr_update_min_rtt). Whether a sample within microseconds
of the minimum renewed it cannot be told from a capture in which RTT samples have such errors. But PROBE_RTT itself is
seen (`midflow.probe_rtts`). If the replay lacks one that such a renewal explains, the renewal is made, provided that it
makes the sends clearly likelier.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.base import Controller
from cctrace.cc.linux import USEC_PER_SEC
from cctrace.columns import Ints, runs_of_true
from cctrace.flows.flow import Flow
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.script import Script
from cctrace.replaying.inference.hypotheses import FALSE_ALARM
from cctrace.replaying.inference.one_pass import Leader
from cctrace.replaying.inference.probes import RENEWED, Probes, Renewal
from cctrace.replaying.inference.timed import Timed
from cctrace.schema import JIFFIES_START


def hand_over(
    flow: Flow,
    cls: type[Controller],
    params: dict[str, Any],
    script: Timed,
    marks: NDArray[np.uint8] | None = None,
) -> tuple[NDArray[np.int64], Script | None]:
    """Return a controller's decisions over a flow through fq, as `Flow.paced_by` takes them, and what was inferred.

    See `Leader` for the arguments. The draws of BBR v1 are those of `script`. Those of BBRv2 and v3 are inferred in the
    pass, as they depend on when BBR fills the pipe, and thus on what is handed over.
    """
    if not cls.probe_draws:
        leader = Leader(flow, cls, params, script, marks)
        leader.run()
        return leader.decided, None

    def lead(renewals: Sequence[Renewal], timed: Timed | None = None) -> Leader:
        leader = Leader(flow, cls, params, timed, marks)
        if timed is None:
            Probes(leader, renewals).run()
        return leader

    leader = lead(())
    if RENEWED in leader.fields:
        leader = _renewed(flow, leader, lead)
    return leader.decided, leader.script


def _renewed(flow: Flow, leader: Leader, lead: Callable[..., Leader]) -> Leader:
    """Return a pass with further renewals of the minimum RTT, those that make the sends clearly likelier."""
    renewals: list[Renewal] = []
    likelihood = None
    seen_ns = flow.events["time_ns"][midflow.probe_rtts(flow.events, leader.params)]
    times_ns = np.append(leader.decided[:1, 0], seen_ns)  # the handshake's RTT is the first minimum
    for last_us, seen_us in itertools.pairwise(leader.clock_us(times_ns).tolist()):
        renewal = _renewal(leader, last_us, seen_us)
        if renewal is None:
            continue
        likelihood = _likelihood(leader, lead) if likelihood is None else likelihood
        other = lead(sorted([*renewals, renewal]))
        better = _likelihood(other, lead)
        if better - likelihood > math.log(1 / FALSE_ALARM):
            leader, likelihood, renewals = other, better, sorted([*renewals, renewal])
    return leader


def _renewal(leader: Leader, last_us: int, seen_us: int) -> Renewal | None:
    """Return the renewal after the PROBE_RTT at `last_us` that lets the next come where it is seen, at `seen_us`.

    None if it comes there anyway, or if no RTT sample explains it.
    """
    time_us, life_us = leader.clock_us(leader.decided[:, 0]), midflow.lifetime_us(leader.params)
    begins, ends = (time_us[np.minimum(rows, len(time_us) - 1)] for rows in runs_of_true(leader.decided[:, 3] != 0))
    near_us = max(midflow.HELD_US, int(leader.srtt_us(int(leader.now_us.searchsorted(seen_us)) - 1)))
    wrong = (begins > last_us + near_us) & (begins < seen_us - near_us)
    if not wrong.any() and (np.abs(begins - seen_us) <= near_us).any():
        return None
    before_us = max(ends[np.abs(begins - last_us) <= near_us], default=last_us)
    sampled_us, rtt_us = leader.samples()
    some = (sampled_us > before_us) & (sampled_us < seen_us) & (rtt_us >= 0)
    ties = some & (rtt_us <= np.min(rtt_us[some], initial=1 << 40) + midflow.TIE_US)
    renewed_us = np.append(sampled_us[ties], before_us)
    renewed = int(renewed_us[np.abs(renewed_us - seen_us + life_us).argmin()])
    if abs(renewed - seen_us + life_us) > midflow.EARLY_US:
        return None
    return Renewal(_place(leader.now_us, begins[begins > before_us], renewed, life_us), _ticks(leader, renewed))


def _place(now_us: Ints, begins: Ints, renewed_us: int, life_us: int) -> int:
    """Return the packet before which the renewal at `renewed_us` is made in the replay.

    That is the next packet; or the one at which a PROBE_RTT begins too early; or, if the replay renewed the minimum
    later than the kernel, the one after that.
    """
    wrong = next(iter(begins.tolist()), None)
    if wrong is None:
        return int(now_us.searchsorted(renewed_us + life_us))
    if wrong <= renewed_us + life_us:
        return int(min(now_us.searchsorted(renewed_us, "right"), now_us.searchsorted(wrong)))
    return int(now_us.searchsorted(wrong - life_us + 1, "right"))


def _ticks(leader: Leader, time_us: int) -> int:
    return JIFFIES_START + time_us * leader.params["hz"] // USEC_PER_SEC


def _likelihood(leader: Leader, lead: Callable[..., Leader]) -> float:
    """Return the log likelihood of all sends with the values that a pass inferred."""
    time_ns, script = leader.decided[:, 0], leader.script
    draws = np.array(script.draws, np.int64).reshape(-1, 5)
    draws[:, 0] = time_ns[np.minimum(draws[:, 0], len(time_ns) - 1)]
    made = ((int(time_ns[one.row]), leader.control.slot(one.field), one.value) for one in script.edits)
    edits = np.fromiter(itertools.chain.from_iterable(made), np.int64).reshape(-1, 3)
    again = lead((), Timed(draws, edits, script.hz, script.tick_us, script.paced))
    return again.score(len(again.rows), cx.PACED_SENDS)
