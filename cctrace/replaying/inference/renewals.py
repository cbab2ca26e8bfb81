"""The hand-over of a flow to fq, and when the kernel of BBRv2 or v3 renewed its minimum RTT before a PROBE_RTT.

A sample within microseconds of the minimum may have renewed it or not, which no capture of a host with such delays
shows, and PROBE_RTT comes a lifetime of the minimum later. But PROBE_RTT itself is seen (`midflow.probe_rtts`). Where
the replay lacks one that such a sample explains, the sample renews the minimum, if the sends are clearly likelier so.
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
    """Return a controller's decisions over a flow sent through fq, as `Flow.paced_by` takes them, and what it inferred.

    See `Leader` for the arguments. `script` has the unrecorded values, except when BBRv2 and v3 probe, which the
    pass infers: it depends on when BBR fills the pipe, and thus on what is handed over.
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
    """Return the pass of a flow in which PROBE_RTT comes where it is seen, if the sends are clearly likelier so."""
    renewals: list[Renewal] = []
    likelihood = None
    dips = flow.events["time_ns"][midflow.probe_rtts(flow.events, leader.params)]
    times_ns = np.append(leader.decided[:1, 0], dips)  # the handshake's RTT is the first minimum
    for last_us, dip_us in itertools.pairwise(leader.clock_us(times_ns).tolist()):
        renewal = _renewal(leader, last_us, dip_us)
        if renewal is None:
            continue
        likelihood = _likelihood(leader, lead) if likelihood is None else likelihood
        other = lead(sorted([*renewals, renewal]))
        better = _likelihood(other, lead)
        if better - likelihood > math.log(1 / FALSE_ALARM):
            leader, likelihood, renewals = other, better, sorted([*renewals, renewal])
    return leader


def _renewal(leader: Leader, last_us: int, dip_us: int) -> Renewal | None:
    """Return the renewal that lets PROBE_RTT come where it is seen, next after `last_us`.

    None if it does, or if no RTT sample explains it.
    """
    time_us, life_us = leader.clock_us(leader.decided[:, 0]), midflow.lifetime_us(leader.params)
    begins, ends = (time_us[np.minimum(rows, len(time_us) - 1)] for rows in runs_of_true(leader.decided[:, 3] != 0))
    near_us = max(midflow.HELD_US, int(leader.srtt_us(int(leader.now_us.searchsorted(dip_us)) - 1)))
    wrong = (begins > last_us + near_us) & (begins < dip_us - near_us)
    if not wrong.any() and (np.abs(begins - dip_us) <= near_us).any():
        return None
    before_us = max(ends[np.abs(begins - last_us) <= near_us], default=last_us)
    sampled_us, rtt_us = leader.samples()
    some = (sampled_us > before_us) & (sampled_us < dip_us) & (rtt_us >= 0)
    ties = some & (rtt_us <= np.min(rtt_us[some], initial=1 << 40) + midflow.TIE_US)
    renewed_us = np.append(sampled_us[ties], before_us)
    renewed = int(renewed_us[np.abs(renewed_us - dip_us + life_us).argmin()])
    if abs(renewed - dip_us + life_us) > midflow.EARLY_US:
        return None
    return Renewal(_place(leader.now_us, begins[begins > before_us], renewed, life_us), _ticks(leader, renewed))


def _place(now_us: Ints, begins: Ints, renewed_us: int, life_us: int) -> int:
    """Return the packet before which the minimum counts as renewed at `renewed_us`.

    It is the next one, or that of a PROBE_RTT that came too early; where the replay renewed it later than the kernel,
    that which follows this.
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
    """Return the log likelihood of all sends with what a pass inferred."""
    time_ns, script = leader.decided[:, 0], leader.script
    draws = np.array(script.draws, np.int64).reshape(-1, 5)
    draws[:, 0] = time_ns[np.minimum(draws[:, 0], len(time_ns) - 1)]
    made = ((int(time_ns[one.row]), leader.control.slot(one.field), one.value) for one in script.edits)
    edits = np.fromiter(itertools.chain.from_iterable(made), np.int64).reshape(-1, 3)
    again = lead((), Timed(draws, edits, script.hz, script.tick_us, script.paced))
    return again.score(len(again.rows), cx.PACED_SENDS)
