"""Whether a flow was sent through fq, and the sender's view if so, inferred from departure times.

A paced sender either waits for its own timer, or hands packets to fq with their departure times, and fq waits. Both
space packets alike. But packets handed over early leave at the rate of the hand-over: when the rate changes, a
sender with a timer follows at once, one with fq two super-packets later. Both are therefore replayed over the
beginning of the flow, with each controller that may have sent it, and scored by departure times
(`likelihood.timed_send`), as in `paced` for controllers that set no rate. If no controller explains the sends, or
pacing held back too few of them (but the application or its send buffer did), it was fq if stale echoes show a queue
before the tap (`echoed`). Otherwise the result is open, unless attached counters of packets in flight decide: these
include what waits in fq.

The hand-over depends on cwnd and pacing rate, which the controller computes from samples of what was handed over:
both run in one pass (`one_pass`). Unrecorded values, such as random draws, are inferred from the resulting stream,
which may require another pass.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.base import Controller
from cctrace.flows.flow import Flow
from cctrace.flows.sender.handover import PATIENCE_NS
from cctrace.flows.state import DIRECTLY, LATE_TIMER, THROUGH_FQ
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.replaying.engine.stream import stream_of
from cctrace.replaying.inference.block_replay import BlockReplay, block_us, play
from cctrace.replaying.inference.echoed import waits_in_queue
from cctrace.replaying.inference.handover_scripts import remember_script
from cctrace.replaying.inference.hypotheses import FALSE_ALARM
from cctrace.replaying.inference.paced import EXPLAINED, TEMPER
from cctrace.replaying.inference.renewals import hand_over
from cctrace.replaying.senders import Sender, registered, senders_of

T = TypeVar("T")
BELIEVED = 1.0  # least log likelihood of a send, for the presumed sender to be accepted
# Log likelihood of a send when its own sender is replayed. Where ACKs wait in a busy host's backlog, its rate follows
# them late, too, but less regularly than through fq.
OWN_SENDER_FITS = 1.75
FAR_BETTER = 1.0  # log likelihood of a send: no backlog mimics fq that closely
CLOSE = 1.5  # log likelihood of a send by which fq mostly makes the true sender look worse than another, at most
# Packets used, and rounds of reconstruction and replay: slow start, in which rates change with every ACK, and more if
# that is not decisive.
STAGES = (5_000, 3), (25_000, 6)
MAX_ROUNDS = 12  # of passes and inference; usually two or three suffice
# Rows of all rounds together, unless fewer than MIN_ROUNDS would remain: a round takes 4 us a row.
MAX_ROWS, MIN_ROUNDS = 4_000_000, 3
RIGHT = 0.95  # of the polls, at which packets in flight are right without fq, if there was none
FEW_SENDS = 50  # super-packets; fewer are uninformative
SENT_THROUGH_FQ = (
    "sent through fq (the tap is behind this qdisc): what TCP had handed to it counts as sent from then on"
)
FQ_IN_WORDS: dict[bool | None, str] = {
    True: "fq (its tap is behind the qdisc)",
    False: "no fq",
    None: "not known whether fq",
}
_found: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {Flow: the sender's view}
_asked: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {Flow: names of the senders that it was asked for}
_compared: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {Flow: {packets: `_Compared`}}


class Passage(NamedTuple):
    """Whether a flow was sent through fq."""

    through_fq: bool | None  # None if unknown
    controller: Sender | None  # the controller that explains the sends best; None if none does
    # log likelihood ratio of fq to the sender's own timer, under that controller; NaN if departure times are
    # uninformative
    likelihood: float
    alike: tuple[Sender, ...] = ()  # others that explain the beginning, and how it passed, as their own sends


UNKNOWN = Passage(None, None, math.nan)


class _Compared(NamedTuple):
    """What is known of senders over a beginning, which is asked again once one is identified: see `_passage`."""

    plain: dict[Sender, float]  # mean log likelihood of a send, as captured
    through: dict[Sender, float]  # and after a round of the hand-over to fq
    passages: dict[Sender, tuple[float, Passage]]


def at_hand_over(flow: Flow, believed: type[Controller] | None = None) -> Flow:
    """Return a captured flow in its sender's view: packets sent through fq count from their hand-over by TCP.

    `believed`: the presumed Linux controller; others are tried if it does not explain the sends, or is a user's class,
    which may not compile. The flow's ``through_fq`` has the result; unless that is True, events are those of `flow`.
    What was open for other senders is asked again for one that was identified since.
    """
    if flow.through_fq is not None:
        return flow
    name = registered(believed)
    asked = _asked.setdefault(flow, set())
    again = flow in _found and _found[flow].through_fq is None and name is not None and name not in asked
    if flow not in _found or again:
        asked.add(name)
        passed = passage(flow, believed, alone=again)
        sender = passed.controller or registered(believed)
        if passed.through_fq and sender is not None:
            _found[flow] = _handed_over(flow, sender, passed.alike)
        else:
            _found[flow] = flow if passed.through_fq is None else flow.paced_by(DIRECTLY)
            if flow.tcpinfo is not None and sender is not None and _may_tell(flow):
                _found[flow] = _as_counted(_found[flow], sender, flow.tcpinfo)
    return _found[flow]


def handed_over_at(flow: Flow, cls: type[Controller], hz: int) -> Flow:
    """Return a captured flow sent through fq as a controller hands it over whose kernel has so many ticks a second."""
    name = registered(cls)
    if name is None:
        return at_hand_over(flow, cls)
    return _converged(flow.at_hz(hz).by_echoes(), f"{name}:hz={hz}", judged=False)[0]


def handed_over_with(handed: Flow, cls: type[Controller], marks: NDArray[np.uint8]) -> Flow:
    """Return a flow of the sender's view, handed over anew where it is known which packets were application-limited."""
    name = registered(cls)
    if not handed.through_fq or name is None:
        return handed
    return _converged(handed.paced_by(DIRECTLY).by_echoes(), name, marks=marks, judged=False)[0]


def _handed_over(flow: Flow, sender: Sender, others: Sequence[Sender]) -> Flow:
    """Return the flow as a sender hands it to fq or, unless that explains all of it, as the likeliest of `others`.

    On a path of many packets the beginning is slow start alone, in which CUBIC and Reno send alike. Echoes date the
    hand-overs only now: any flow's fit fq, as they let go nothing before it left.
    """
    flow = flow.by_echoes()
    handed, played = _converged(flow, sender, judged=bool(others))
    for one in others:
        if played.mean > OWN_SENDER_FITS:
            break
        other = _converged(flow, one)
        if other[1].mean > played.mean:
            handed, played = other
    return handed


def _as_counted(flow: Flow, sender: Sender, polls: TcpInfo) -> Flow:
    """Return the flow, which departures do not take for one through fq, as counters of packets in flight have it.

    `tcpi_unacked` includes what waits in fq, which the capture shows later. Polls at which both ways are right, or
    neither, say nothing; neighbours are correlated.
    """
    begun = polls["time_ns"] > flow.row["start_ns"]
    times = np.column_stack([polls["time_ns"] - 1, polls["time_after_ns"]])[begun]
    unacked = polls["unacked"][begun]

    def right(way: Flow) -> int:
        states = way.answers(times)
        return len(np.unique(states["poll"][states["unacked"] == unacked[states["poll"]]]))

    directly = flow.paced_by(DIRECTLY)
    plain = right(directly)
    if flow.through_fq is False and plain >= RIGHT * len(times):
        return flow
    handed = _converged(flow.by_echoes(), sender, judged=False)[0]
    better = right(handed)
    sure = TEMPER * abs(better - plain) > math.log(1 / FALSE_ALARM) and 2 * max(plain, better) > len(times)
    return (handed if better > plain else directly) if sure else flow


def forget(flow: Flow) -> None:
    """Drop a flow's view at the hand-over, with its events."""
    _found.pop(flow, None)
    _compared.pop(flow, None)


def passage(flow: Flow, believed: type[Controller] | None = None, alone: bool = False) -> Passage:
    """Return the `Passage` of a captured flow: whether it was sent through fq, by the best controller.

    `alone`: no other than the presumed one is tried.
    """
    if not _may_tell(flow):
        return UNKNOWN
    known = (name,) if (name := registered(believed)) else ()
    beginning = flow.first(STAGES[0][0])
    passed, senders = UNKNOWN, () if alone else senders_of(beginning)
    for stage, (packets, rounds) in enumerate(STAGES):
        beginning = flow.first(packets) if stage else beginning
        # Shown by later marks.
        heeding = [one for one in senders_of(beginning) if one == "dctcp" and one not in senders and not alone]
        compared = _compared.setdefault(flow, {}).setdefault(packets, _Compared({}, {}, {}))
        passed, senders = _passage(beginning, known, (*senders, *heeding), rounds, stage == 0, compared)
        if passed.through_fq is not None or passed.likelihood <= 0:
            break
    if passed.through_fq is None and not alone and waits_in_queue(flow):
        return _queued(beginning.by_echoes(), known, senders, rounds)
    return passed


def _queued(beginning: Flow, known: tuple[Sender, ...], senders: tuple[Sender, ...], rounds: int) -> Passage:
    """Return the `Passage` through fq by the sender that explains the beginning best, dated by its echoes."""
    means = {one: _converged(beginning, one, rounds=rounds)[1].mean for one in known}
    if max(means.values(), default=-math.inf) <= BELIEVED:
        means |= {one: _converged(beginning, one, rounds=rounds)[1].mean for one in senders if one not in known}
    best = max(means, key=means.__getitem__)
    alike = (one for one, mean in means.items() if mean > OWN_SENDER_FITS and one != best)
    return Passage(True, best, math.inf, tuple(alike))


def leans_to_fq(flow: Flow, sender: type[Controller]) -> bool:
    """Return whether fq is likelier than not, for what must be counted in one way or the other: a sure answer or not.

    `sender`: identified since; where it was unknown, another may have seemed likelier and left fq open.
    """
    passed = passage(flow, sender)
    return passed.likelihood > 0 if passed.through_fq is None else passed.through_fq


def _once(function: Callable[[Sender], T], known: dict[Sender, T] | None = None) -> Callable[[Sender], T]:
    """Return a function that computes its result for a sender once; `known`: of earlier ones."""
    found: dict[Sender, T] = {} if known is None else known

    def once(one: Sender) -> T:
        if one not in found:
            found[one] = function(one)
        return found[one]

    return once


def _passage(
    beginning: Flow,
    known: tuple[Sender, ...],
    senders: tuple[Sender, ...],
    rounds: int,
    is_start: bool,
    compared: _Compared,
) -> tuple[Passage, tuple[Sender, ...]]:
    """Return the `Passage` of a beginning, and those of `senders` that more of the flow may show to have sent it."""
    passed = UNKNOWN
    stream = stream_of(beginning.events, beginning.events.sends)  # noqa: F841 - kept for all replays
    plain = _once(lambda one: play(beginning, one, block_us(beginning)))
    through = _once(lambda one: _converged(beginning, one, plain(one), 1)[1])
    mean = _once(lambda one: plain(one).mean, compared.plain)
    mean_through = _once(lambda one: through(one).mean, compared.through)
    comparison = _once(lambda one: _compare(beginning, one, plain(one), through(one), rounds), compared.passages)
    for some, enough in ((known, BELIEVED), (senders, EXPLAINED)):
        if not some:
            continue
        likeliest = max(mean(one) for one in some)
        close = [one for one in some if mean(one) > likeliest - CLOSE]
        passages = {one: comparison(one) for one in close}
        explained = max(found[0] for found in passages.values())
        if is_start and explained <= OWN_SENDER_FITS:
            # fq may make the true sender look far worse than others
            hidden = [one for one in some if one not in close and mean_through(one) > explained]
            passages |= {one: comparison(one) for one in hidden}
        explained, passed = max(passages.values(), key=lambda found: found[0])
        if some is senders:
            senders = tuple(passages)
        if explained > enough:
            fits = [one for mean, one in passages.values() if mean > OWN_SENDER_FITS and one is not passed]
            alike = [one.controller for one in fits if one.controller and one.through_fq == passed.through_fq]
            return passed._replace(alike=tuple(alike)), senders
    return Passage(None, None, passed.likelihood), senders


def _may_tell(flow: Flow) -> bool:
    """Return whether departure times can show it: they are the sender's, and a round trip outlasts a host's delays."""
    if not flow.facts["complete"] or flow.taken_at != "sender" or "start_ns" in flow.facts["inferred"]:
        return False
    enough = np.count_nonzero(flow.events.sends["begins"]) >= FEW_SENDS
    return bool(enough) and flow.events.last("tcp_min_rtt_us") * 1000 > PATIENCE_NS


def _compare(
    flow: Flow, controller: Sender, plain: BlockReplay, through: BlockReplay, rounds: int
) -> tuple[float, Passage]:
    """Return how well a controller explains the sends, and the `Passage` if it is the sender's.

    `through`: its replay after the first of so many rounds of the hand-over to fq.
    """
    ratio = TEMPER * _evidence(plain, plain, through)
    far_worse = through.mean <= plain.mean - FAR_BETTER
    # A late timer is no alternative then.
    if plain.mean > BELIEVED and far_worse and ratio < -math.log(1 / FALSE_ALARM):
        return plain.mean, Passage(False, controller, ratio)
    late = play(flow.paced_by(LATE_TIMER, plain.decided), controller, block_us(flow))
    timer = max(plain, late, key=lambda one: one.mean)
    if through.mean > timer.mean - FAR_BETTER:  # otherwise no further round makes up for it
        through = _converged(flow, controller, through, rounds - 1)[1]
    ratio = TEMPER * _evidence(plain, timer, through)
    sure = abs(ratio) > math.log(1 / FALSE_ALARM)
    far_better = through.mean - timer.mean > FAR_BETTER
    if ratio > 0:
        sure &= through.mean > OWN_SENDER_FITS or far_better
    elif ratio == 0:  # nearly every block had another limit, whose timing may be wrong, but not by as much
        sure = through.mean > OWN_SENDER_FITS and far_better
    return max(timer.mean, through.mean), Passage(ratio >= 0 if sure else None, controller, ratio)


def _evidence(plain: BlockReplay, timer: BlockReplay, through: BlockReplay) -> float:
    """Return the log likelihood ratio of fq to a timer, over the blocks in which pacing limited the sender.

    Only sends that pacing delays, or would delay, leave at other times through fq; n such sends count as sqrt(n).
    Blocks limited by the application, its send buffer or the receive window do not count, nor do the next blocks,
    which are paced by the rate that BBR sampled from them. What follows a long pause does. Consecutive blocks of
    one rate count as one, because an error of the replayed rate lasts.
    """
    held = plain.number[plain.held]
    held = held[np.isin(held - 1, held) | ~np.isin(held - 1, plain.number)]
    number, of_timer, of_through = np.intersect1d(timer.number, through.number, return_indices=True)
    counts = np.isin(number, held)
    of_timer, of_through = of_timer[counts], of_through[counts]
    sent = through.paced[of_through]
    if sent.sum() < FEW_SENDS:
        return 0.0
    better = through.likelihood[of_through] - timer.likelihood[of_timer]
    rates = np.column_stack([timer.rates[of_timer], through.rates[of_through]])
    steady = np.append(0, np.cumsum(np.any(np.diff(rates, axis=0) != 0, axis=1)))
    return float(np.sum(np.bincount(steady, sent * better) / np.sqrt(np.maximum(np.bincount(steady, sent), 1))))


def _converged(
    flow: Flow,
    controller: Sender,
    played: BlockReplay | None = None,
    rounds: int = MAX_ROUNDS,
    marks: NDArray[np.uint8] | None = None,
    judged: bool = True,
) -> tuple[Flow, BlockReplay]:
    """Return a flow as a controller hands it to fq, and its replay: the fixpoint, or the likeliest iteration.

    `judged`: whether the replay is asked for; a pass that infers all draws itself needs none.
    """
    each_us, seen = block_us(flow), set[bytes]()
    played = played or play(flow, controller, each_us, marks, judged)
    best = played.decided, played
    for number in range(min(rounds, max(MAX_ROWS // len(flow.events), MIN_ROUNDS))):
        decided, script = hand_over(flow, played.cls, played.params, played.timed, marks)
        if (digest := hashlib.sha256(decided.data).digest()) in seen:
            break  # what follows would repeat what followed then
        seen.add(digest)
        handed = flow.paced_by(THROUGH_FQ, decided)
        if script is not None:
            remember_script(handed, played.cls, played.asked, script, played.script)
            if not judged:
                return handed, played
        played = play(handed, controller, each_us, marks)
        if script is not None or np.array_equal(played.decided, decided[:, :4]):
            return handed, played
        if number == 0 or played.mean > best[1].mean:  # the first replaces the flow as captured, whatever it explains
            best = decided, played
        del handed  # its stream takes as much memory as all else
    return flow.paced_by(THROUGH_FQ, best[0]), best[1]
