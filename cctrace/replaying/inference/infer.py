"""What a replay needs and no capture contains: random numbers, ticks, whether the socket paced, some parameters.

    `cycle`   BBR v1: the phase in which the gain cycle begins (prandom_u32_max in bbr_reset_probe_bw_mode)
    `probes`  BBRv2, v2+, v3: the wait before each probe for bandwidth
    `paced`   BBRv2, v2+, v3: ``ecn_enable``, ``gso_max_bytes``; CUBIC, Reno: whether the socket paces
    `ticks`   CUBIC: HZ and the phase of jiffies (of BBRs: `hz`)

All are inferred alike: hypotheses are run over the same rows (`Follower.trials`, `Follower.scan`, `Follower.score`),
and the one that makes the recorded sends likeliest (`engine.likelihood`) is kept. The state that the kernel logged is
not used, since the replay will be compared with it.

A value that the replay already has (a running gain cycle, a tick rate) is changed only if the likelihood ratio exceeds
the number of hypotheses / FALSE_ALARM: by Markov's inequality, a correct value is then changed with a probability of at
most FALSE_ALARM, if the likelihood describes the sender.
"""

import itertools
import math
import weakref
from collections.abc import Container
from typing import Any, NamedTuple

from cctrace.flows.events import Events
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Edit, Script
from cctrace.replaying.inference.cycle import Cycle
from cctrace.replaying.inference.hypotheses import FALSE_ALARM, Inferred, Progress
from cctrace.replaying.inference.hz import TickTest, WrongTicksError
from cctrace.replaying.inference.paced import gso_choices, likely_gso, likely_paced, may_heed_marks
from cctrace.replaying.inference.probes import Probes
from cctrace.replaying.inference.ticks import CONFIG_HZ, likeliest_ticks

_inferred_of: weakref.WeakKeyDictionary[Events, dict[tuple[object, ...], Inferred]] = weakref.WeakKeyDictionary()


class Given(NamedTuple):
    """What an inference is given, and what is asked of it."""

    expiry: int = -1  # row at which BBR v1's minimum RTT expires, whatever its age in the replay (`midflow`); -1: none
    hz_known: bool = True  # whether the follower's HZ is more than a guess
    params: Container[str] = ()  # names of parameters that are known; "paced" and "ecn_enable" are inferred otherwise
    # What was inferred while the flow was handed over to fq. It is taken over, unless the sends show super-packets of
    # another kernel, or a call needs a draw in another row.
    handover: Script | None = None
    tick_test: TickTest | None = None  # tests the ticks of a BBR's kernel on the way
    draws: bool = True  # whether random numbers are needed; if not, only what does not depend on them is inferred
    to_end: bool = True  # whether the follower must be left at its end


NOTHING = Given()


def infer(follower: Follower, given: Given = NOTHING) -> Inferred:
    """Run a compiled follower, at row 0, over all its rows, and infer the values that no capture contains.

    Results are cached for each event stream, as identification, the test for fq, and the replay ask for the same.
    """
    if given.handover is not None or follower.is_marked or not given.draws:
        return _infer_all(follower, given)
    known = _inferred_of.setdefault(follower.events, {})
    hz_known = given.hz_known or follower.cls.has_on_ack
    key = follower.key, given.expiry, hz_known, "paced" in given.params, "ecn_enable" in given.params
    if key not in known:
        known[key] = _infer_all(follower, given)
    elif given.to_end:
        follower.play(known[key].script)
    return known[key]


def _infer_all(follower: Follower, given: Given) -> Inferred:
    """Infer the length of super-packets and, if CE marks were counted, ``ecn_enable``; with the draws under each."""
    if "ecn_enable" in given.params or not may_heed_marks(follower):
        gso = likely_gso(follower)
        if gso is not None:
            follower.set_gso(gso)
        if not given.draws:
            return Inferred(Script([], [], follower.params["hz"], gso_max_bytes=gso), [], math.nan)
        before = follower.save()
        if given.handover is not None and given.handover.gso_max_bytes == gso:
            if follower.play(given.handover):
                return Inferred(given.handover, [], math.nan)
            follower.restore(before)
        inferred = _infer_draws(follower, given, gso)
        row = -1 if given.expiry >= 0 else _missing_probe_rtt(follower, inferred)
        return inferred if row < 0 else _with_expiry(follower, before, inferred, given._replace(expiry=row), gso)
    before, tried = follower.save(), []
    for enabled, gso in itertools.product((0, 1), gso_choices(follower)):
        follower.set_parameter("ecn_enable", enabled)
        follower.set_gso(gso)
        inferred = _infer_draws(follower, given._replace(tick_test=None, to_end=True), gso)
        inferred = inferred._replace(script=inferred.script._replace(ecn_enable=enabled))
        follower.restore(before)
        likelihood = float(follower.score(inferred.script, [len(follower.rows)], cx.TIMED_SENDS)[0])
        follower.restore(before)
        tried.append((likelihood, inferred))
    _, best = max(tried, key=lambda pair: pair[0])
    follower.play(best.script)
    return best


def _missing_probe_rtt(follower: Follower, inferred: Inferred) -> int:
    """Return the row at which the sends show a PROBE_RTT of BBR v1 that the replay lacks; -1 if there is none.

    It is looked for only through fq, where RTT samples have errors. Without fq they are exact, and whether an equal RTT
    renews the minimum tells BBR of 2019 from that of 2022.
    """
    if not follower.cls.phase_choices or not follower.events.meta.get("through_fq", False):
        return -1
    drawn = [phase.row for phase in inferred.phases if phase.choice is not None]
    return midflow.unexpected(follower.events, drawn, follower.params)


def _with_expiry(
    follower: Follower, before: tuple[Any, ...], without: Inferred, given: Given, gso: int | None
) -> Inferred:
    """Return what is inferred if BBR v1's minimum RTT expires at ``given.expiry``; `without` unless clearly likelier.

    `before`: the follower's state at row 0.
    """
    follower.restore(before)
    expired = _infer_draws(follower, given._replace(tick_test=None, to_end=True), gso)
    likelihoods = []
    for inferred in (without, expired):
        follower.restore(before)
        likelihoods.append(float(follower.score(inferred.script, [len(follower.rows)])[0]))
    best = expired if likelihoods[1] - likelihoods[0] > math.log(1 / FALSE_ALARM) else without
    follower.restore(before)
    follower.play(best.script)
    return best


def _infer_draws(follower: Follower, given: Given, gso: int | None) -> Inferred:
    """Infer draws, ticks and whether the socket paced; `gso`: the ``gso_max_bytes`` inferred before, if any."""
    cls = follower.cls
    hz, tick_us = follower.params["hz"], int(follower.tcp.tick_us)
    inference: Cycle | Probes | None = None
    paced = None
    if "paced" not in given.params and follower.may_pace and len(follower.sends):
        paced = likely_paced(follower)
        follower.set_paced(paced)
    if not cls.has_on_ack and follower.counts_ticks:
        rates = (hz,) if given.hz_known else (hz, *(rate for rate in CONFIG_HZ if rate != hz))
        hz, tick_us = likeliest_ticks(follower, rates)
        follower.set_ticks(hz, tick_us)
    elif len(follower.sends) and cls.phase_choices:
        inference = Cycle(follower, given.expiry)
    elif len(follower.sends) and cls.probe_draws:
        inference = Probes(follower)

    def script(edits: list[Edit]) -> Script:
        return Script(follower.draws[: follower.drawn].tolist(), edits, hz, tick_us, paced, gso)

    if inference is None:
        while (given.to_end or follower.may_draw) and follower.run() < len(follower.rows):
            follower.draw([0])
        return Inferred(script([]), [], math.nan)
    tick_test = given.tick_test
    if tick_test is not None:
        if tick_test.progress is not None:
            _take_over(follower, inference, tick_test.progress)
        inference.tick_test = lambda of: tick_test.so_far(follower, script(of.edits), of.visited, of.last_probe_rtt)
    try:
        inference.run()
        if inference.tick_test is not None:
            inference.tick_test(inference)
    except WrongTicksError as wrong:
        assert tick_test is not None
        tick_test.progress = inference.progress_before(wrong.row, script(inference.edits))
        raise
    in_step = inference.in_step / inference.compared if inference.compared else math.nan
    return Inferred(script(inference.edits), inference.phases, in_step)


def _take_over(follower: Follower, inference: Cycle | Probes, progress: Progress) -> None:
    """Go to where an inference with other ticks had come, with its results, if the same calls take draws until then."""
    before = follower.save()
    ticks = {"hz": follower.params["hz"], "tick_us": int(follower.tcp.tick_us)}
    if follower.play(progress.script._replace(**ticks), progress.row):
        inference.phases, inference.edits = progress.phases, list(progress.script.edits)
        inference.compared, inference.in_step = progress.compared, progress.in_step
    else:
        follower.restore(before)
