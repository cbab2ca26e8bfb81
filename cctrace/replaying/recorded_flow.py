"""Replay of a Linux controller over a flow's recorded events, with what they do not record inferred from the sends."""

import functools
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.arguments import check_choice
from cctrace.cc.base import Controller, checked_params
from cctrace.flows.events import Events
from cctrace.flows.flow import Flow
from cctrace.flows.source import Streamed, flow_of
from cctrace.flows.state import DIRECTLY
from cctrace.lang.fields import MODES
from cctrace.lang.threads import Guess
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine import midflow
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.stream import Stream, stream_of
from cctrace.replaying.inference.handover_scripts import known_script
from cctrace.replaying.inference.hypotheses import Inferred
from cctrace.replaying.inference.hz import Ticking, TickTest, WrongTicksError
from cctrace.replaying.inference.infer import Given, infer
from cctrace.replaying.inference.paced import behind_fq, socket_limit, under_limit
from cctrace.replaying.inference.through_fq import at_hand_over, handed_over_at


def replay_events(
    source: Streamed,
    cls: type[Controller],
    params: dict[str, Any],
    record: Sequence[str],
    mode: str,
    hz_known: bool,
    given: set[str],
) -> tuple[Streamed, Follower, Inferred]:
    """Replay a Linux controller over a recorded flow, or over one known from counters.

    `params`: all of its parameters, of which `given` are known; `hz_known`: whether ``hz`` is more than a guess.
    Returns the stream that was replayed (a flow sent through fq as TCP handed it over, at the HZ of its sender), the
    follower at its end, and the inferred values.

    A limit of the socket is found here, in another thread if there is a second core, while the flow's beginning tells
    whether it was sent through fq, which needs no limit of the whole flow.
    """
    check_choice("mode", mode, MODES)
    asked = _Asked(cls, params, record, mode, hz_known, given)
    if not isinstance(source, Flow):
        return _replay_sent(source, None, _limited(source, asked))
    with (
        Guess(functools.partial(_prepared, source, source.events, asked)) as prepared,
        Guess(functools.partial(_replay_prepared, source, prepared)) as directly,
    ):
        prepared.begin()
        handed = at_hand_over(source, cls, directly if mode == "compiled" else None)
        if not handed.through_fq:
            sent, follower, inferred = directly.result()
            if handed is not source and isinstance(sent, Flow):  # the same, now known to be sent without fq
                sent = handed if sent is source else sent.paced_by(DIRECTLY)
            return sent, follower, inferred
    asked = _limited(source, asked)
    settled = {name: value for name, value in behind_fq(cls).items() if name not in asked.given}
    asked = asked._replace(params=asked.params | settled, given=asked.given | set(settled))
    return _replay_sent(handed, source if handed is not source else None, asked)


class _Asked(NamedTuple):
    """What is replayed over a flow: arguments of `replay_events`."""

    cls: type[Controller]
    params: dict[str, Any]
    record: Sequence[str]
    mode: str
    hz_known: bool
    given: set[str]


def _limited(source: Streamed, asked: _Asked) -> _Asked:
    """Return what is asked, with the parameters that a limit of the socket's pacing rate settles."""
    cls, given = asked.cls, asked.given
    limit = under_limit(cls, socket_limit(flow_of(source)))
    params = asked.params | {name: value for name, value in limit.items() if name not in given}
    return asked._replace(params=checked_params(cls, params), given=given | set(limit))


def _prepared(source: Flow, events: Events, asked: _Asked) -> tuple[_Asked, Stream]:
    """Return what is asked, with the limit, and the stream of a flow as captured, which are needed for its replay."""
    limited, stream = _limited(source, asked), stream_of(events, events.sends)
    if asked.cls.phase_choices or asked.cls.probe_draws:
        stream.now_us  # noqa: B018 - made once, and kept
    return limited, stream


def _replay_prepared(source: Flow, prepared: Guess[tuple[_Asked, Stream]]) -> tuple[Streamed, Follower, Inferred]:
    """Replay a flow as captured; the stream is kept meanwhile."""
    asked, _stream = prepared.result()
    return _replay_sent(source, None, asked)


def _replay_sent(source: Streamed, captured: Flow | None, asked: _Asked) -> tuple[Streamed, Follower, Inferred]:
    """Replay as `replay_events` does, a flow in its sender's view; `captured`: as captured, if sent through fq."""
    cls, params, record, mode, hz_known, given = asked
    if hz_known or cls.interpreted_only or not (cls.phase_choices or cls.probe_draws):
        return source, *follow(source, cls, params, record, mode, hz_known, given)
    tick_test: TickTest | None = TickTest(source, captured, cls)
    ticking, found = Ticking(params["hz"], 0, ()), None
    while found is None:
        try:
            found = follow(
                source, cls, params, record, mode, False, given, tick_us=ticking.tick_us, tick_test=tick_test
            )
            better = tick_test.at_end(found[0], found[1].script) if tick_test is not None else ticking
        except WrongTicksError as wrong:
            better = wrong.ticking
        if (better.hz, better.tick_us) != ticking[:2]:
            found = None  # with what it recorded
            if better.hz != params["hz"] and isinstance(source, Flow):
                rows = source.events.stream
                source = handed_over_at(captured, cls, better.hz) if captured is not None else source.at_hz(better.hz)
                tick_test = tick_test if source.events.stream is rows else None
            params = params | {"hz": better.hz}
        ticking = better
    follower, inferred = found
    return source, follower, inferred._replace(possible_hz=ticking.possible)


def follow(
    source: Streamed,
    cls: type[Controller],
    params: dict[str, Any],
    record: Sequence[str],
    mode: str = "compiled",
    hz_known: bool = True,
    given: Container[str] = (),
    marks: NDArray[np.uint8] | None = None,
    tick_us: int = 0,
    tick_test: TickTest | None = None,
) -> tuple[Follower, Inferred]:
    """Replay a Linux controller over a recorded flow, or over one known from counters; return it at its end.

    The second result is the inferred values. `marks`: which packets were application-limited, if that is known.
    `tick_us`: offset of the kernel's ticks from the connection's clock. `tick_test`: see `Given`. Inference uses
    compiled code in every mode, so that an interpreted run makes each call once; for a class that cannot be compiled,
    nothing is inferred.
    """
    events = source.events
    hidden = cls.phase_choices or cls.probe_draws or not cls.has_on_ack
    inferred = Inferred.nothing()
    if mode == "compiled" or (hidden and not cls.interpreted_only):
        recorded = record if mode == "compiled" else ()
        follower = Follower(events, events.sends, cls, params, recorded, in_runs=True, marks=marks)
        if tick_us:
            follower.set_ticks(params["hz"], tick_us)
        handover = known_script(source, cls, params) if marks is None and not tick_us else None
        inferred = infer(follower, Given(midflow.expiry(events, cls), hz_known, given, handover, tick_test))
    if mode != "compiled":
        follower = Follower(events, events.sends, cls, params, record, mode, in_runs=True, marks=marks)
        follower.play(inferred.script)
    if follower.row < len(follower.rows):
        raise RuntimeError(f"row {follower.row} draws a random number that was not inferred for it")
    if follower.ctx[cx.GUESSED] or (follower.may_draw and not len(follower.sends)):
        follower.warnings.append(f"{cls.__name__} draws random numbers, which nothing here shows: they are 0")
    return follower, inferred
