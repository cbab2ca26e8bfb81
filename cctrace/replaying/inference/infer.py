"""Inference of unrecorded inputs of a replay: random draws, tick phase, whether the socket paced or heeded marks.

The phase of BBR v1's gain cycle (`cycle`), the waits of v2, v2+ and v3 (`probes`), whether these heed marks, CUBIC's
ticks (`ticks`) and the pacing of sockets whose controller sets no rate (`paced`) are inferred alike: hypotheses are run
over the same rows (`Follower.trials`, `Follower.scan`, `Follower.score`), and the one that makes the sends likeliest
(`likelihood`) is kept. The kernel's logged state is not used, since the replay will be compared with it.

A running gain cycle or tick is changed if the likelihood ratio exceeds hypotheses / FALSE_ALARM: by Markov's
inequality, a correct one is then changed with a probability of at most FALSE_ALARM, as far as the likelihood is the
sender's.
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
from cctrace.replaying.engine.stack import TICK_US
from cctrace.replaying.inference.cycle import Cycle
from cctrace.replaying.inference.hypotheses import FALSE_ALARM, Inferred, Known
from cctrace.replaying.inference.hz import Judge, WrongTicksError
from cctrace.replaying.inference.paced import gso_choices, likely_gso, likely_paced, may_heed_marks
from cctrace.replaying.inference.probes import Probes
from cctrace.replaying.inference.ticks import CONFIG_HZ, likeliest_ticks

_inferred_of: weakref.WeakKeyDictionary[Events, dict[tuple[object, ...], Inferred]] = weakref.WeakKeyDictionary()


class Given(NamedTuple):
    """What an inference is given, and what is asked of it."""

    expiry: int = -1  # row at which the minimum RTT expires, whatever its age in the replay (`midflow`); -1 for none
    hz_known: bool = True  # whether the follower's HZ is more than a guess
    params: Container[str] = ()  # names of parameters that are known; "paced" and "ecn_enable" are inferred otherwise
    # What was inferred while the flow was handed over to fq. It stands, unless its super-packets turn out to be of
    # another kernel's, or a draw comes in another row than then.
    led: Script | None = None
    judge: Judge | None = None  # says what the ticks are; raises where they are others, and keeps what stands
    draws: bool = True  # whether random numbers are asked for; otherwise nothing is run that does not depend on them
    to_end: bool = True  # whether the follower is to be left at its end, in a run of its own if need be


NOTHING = Given()


def infer(follower: Follower, given: Given = NOTHING) -> Inferred:
    """Run a compiled follower, at row 0, over all its rows, inferring unrecorded values on the way.

    What was inferred before of the same events is replayed: identification, fq, HZ and the replay itself ask alike.
    """
    if given.led is not None or follower.is_marked or not given.draws:
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
    """Infer the length of bursts and, where marks were counted, whether they were heeded, with the draws of each."""
    if "ecn_enable" in given.params or not may_heed_marks(follower):
        gso = likely_gso(follower)
        if gso is not None:
            follower.set_gso(gso)
        if not given.draws:
            return Inferred(Script([], [], follower.params["hz"], gso_max_bytes=gso), [], math.nan)
        before = follower.save()
        if given.led is not None and given.led.gso_max_bytes == gso:
            if follower.play(given.led):
                return Inferred(given.led, [], math.nan)
            follower.restore(before)
        found = _infer_draws(follower, given, gso)
        row = -1 if given.expiry >= 0 else _unexpected(follower, found)
        return found if row < 0 else _expired(follower, before, found, given._replace(expiry=row), gso)
    before, tried = follower.save(), []
    for enabled, gso in itertools.product((0, 1), gso_choices(follower)):
        follower.set_parameter("ecn_enable", enabled)
        follower.set_gso(gso)
        inferred = _infer_draws(follower, given._replace(judge=None, to_end=True), gso)
        inferred = inferred._replace(script=inferred.script._replace(ecn_enable=enabled))
        follower.restore(before)
        likelihood = float(follower.score(inferred.script, [len(follower.rows)], cx.TIMED_SENDS)[0])
        follower.restore(before)
        tried.append((likelihood, inferred))
    best = max(tried, key=lambda one: one[0])[1]
    follower.play(best.script)
    return best


def _unexpected(follower: Follower, found: Inferred) -> int:
    """Return where the sends show a PROBE_RTT of BBR v1 that what was inferred lacks; -1 if nowhere.

    Only through fq: without it RTT samples are exact, and how ties are broken tells BBR of 2019 from that of 2022.
    """
    if not follower.cls.phase_choices or not follower.events.meta.get("through_fq", False):
        return -1
    drawn = [one.row for one in found.phases if one.choice is not None]
    return midflow.unexpected(follower.events, drawn, follower.params)


def _expired(follower: Follower, before: tuple[Any, ...], found: Inferred, given: Given, gso: int | None) -> Inferred:
    """Return what is inferred if BBR v1's minimum RTT expired where `given`, if that is clearly likelier than `found`.

    `before`: the follower's state at row 0.
    """
    follower.restore(before)
    expired = _infer_draws(follower, given._replace(judge=None, to_end=True), gso)
    likelihoods = []
    for one in (found, expired):
        follower.restore(before)
        likelihoods.append(float(follower.score(one.script, [len(follower.rows)])[0]))
    best = expired if likelihoods[1] - likelihoods[0] > math.log(1 / FALSE_ALARM) else found
    follower.restore(before)
    follower.play(best.script)
    return best


def _infer_draws(follower: Follower, given: Given, gso: int | None) -> Inferred:
    """Infer draws, ticks and whether the socket paced, with bursts as set (`gso`)."""
    cls = follower.cls
    hz, tick_us = follower.params["hz"], int(follower.stack[TICK_US])
    work: Cycle | Probes | None = None
    paced = None
    if "paced" not in given.params and follower.may_pace and len(follower.sends):
        paced = likely_paced(follower)
        follower.set_paced(paced)
    if not cls.has_on_ack and follower.counts_ticks:
        rates = (hz,) if given.hz_known else (hz, *(rate for rate in CONFIG_HZ if rate != hz))
        hz, tick_us = likeliest_ticks(follower, rates)
        follower.set_ticks(hz, tick_us)
    elif len(follower.sends) and cls.phase_choices:
        work = Cycle(follower, given.expiry)
    elif len(follower.sends) and cls.probe_draws:
        work = Probes(follower)

    def script(edits: list[Edit]) -> Script:
        return Script(follower.draws[: follower.drawn].tolist(), edits, hz, tick_us, paced, gso)

    if work is None:
        while (given.to_end or follower.may_draw) and follower.run() < len(follower.rows):
            follower.draw([0])
        return Inferred(script([]), [], math.nan)
    judge = given.judge
    if judge is not None:
        if judge.known is not None:
            _take_over(follower, work, judge.known)
        work.judge = lambda of: judge.so_far(follower, script(of.edits), of.passed, of.dipped)
    try:
        work.run()
        if work.judge is not None:
            work.judge(work)
    except WrongTicksError as wrong:
        assert judge is not None
        judge.known = work.before(wrong.row, script(work.edits))
        raise
    in_step = work.right / work.judged if work.judged else math.nan
    return Inferred(script(work.edits), work.found, in_step)


def _take_over(follower: Follower, work: Cycle | Probes, known: Known) -> None:
    """Go to where an inference with other ticks had come, with what it found, if calls draw numbers there as then."""
    before = follower.save()
    if follower.play(known.script._replace(hz=follower.params["hz"], tick_us=int(follower.stack[TICK_US])), known.row):
        work.found, work.edits = known.found, list(known.script.edits)
        work.judged, work.right = known.judged, known.right
    else:
        follower.restore(before)
