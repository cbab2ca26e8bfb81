"""Whether a flow was sent through fq, and the sender's view if so, inferred from departure times.

A paced sender either waits for its own timer (tcp_internal_pacing), or hands packets to fq with their departure times,
and fq waits. Both space packets alike. But what was handed over early leaves at the rate of its hand-over: when the
rate changes, a sender with a timer follows at once, one with fq two super-packets later. So both ways are replayed over
the beginning of the flow, with each controller that may have sent it, and compared by departure times
(`likelihood.timed_send`). If no controller explains the sends, or pacing delayed too few of them (because the
application or its send buffer did), it was fq if echoes of time stamps show a queue before the tap (`echoed`).
Otherwise attached counters of packets in flight, which include what waits in fq, may decide; if not, it stays unknown.

The hand-over depends on cwnd and pacing rate, which the controller computes from rate samples of what was handed over:
both run in one pass (`one_pass`). Random draws are inferred from the resulting stream, which may require another pass;
passes are repeated until they agree (`_converged`).
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.base import Controller
from cctrace.flows.flow import Flow
from cctrace.flows.sender.handover import PATIENCE_NS
from cctrace.flows.state import DIRECTLY, LATE_TIMER, THROUGH_FQ
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.lang.threads import Guess
from cctrace.replaying.engine.stream import stream_of
from cctrace.replaying.inference.block_replay import BlockReplay, block_us, replay_in_blocks
from cctrace.replaying.inference.echoed import waits_in_queue
from cctrace.replaying.inference.handover_scripts import remember_script
from cctrace.replaying.inference.hypotheses import FALSE_ALARM
from cctrace.replaying.inference.paced import EXPLAINED, TEMPER, socket_limit
from cctrace.replaying.inference.renewals import hand_over
from cctrace.replaying.senders import Sender, registered, senders_of

T = TypeVar("T")
BELIEVED = 1.0  # mean log likelihood of a send, at least, for the presumed sender to be accepted
# Mean log likelihood of a send if its own controller is replayed. With less, ACKs may have waited in a busy host's
# backlog, so that the rate followed them late, as through fq, but less regularly.
OWN_SENDER_FITS = 1.75
FAR_BETTER = 1.0  # difference of mean log likelihoods: no backlog resembles fq that closely
CLOSE = 1.5  # difference of mean log likelihoods by which the true sender may look worse than another because of fq
# Packets used, and passes: slow start, in which rates change with every ACK, and more if that does not decide.
STAGES = (5_000, 3), (25_000, 6)
MAX_ROUNDS = 12  # passes, each with inference; two or three mostly suffice
# Rows of all passes together, as a pass takes 4 us a row; but at least MIN_ROUNDS passes are made.
MAX_ROWS, MIN_ROUNDS = 4_000_000, 3
RIGHT = 0.95  # share of the polls at which packets in flight are right without fq if there was none
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
    alike: tuple[Sender, ...] = ()  # other controllers that explain the beginning as well, in the same way


UNKNOWN = Passage(None, None, math.nan)


class _Compared(NamedTuple):
    """Results of `_passage` for each sender, kept because it is called again once a sender is identified."""

    plain: dict[Sender, float]  # mean log likelihood of a send, as captured
    through: dict[Sender, float]  # the same after a pass through fq
    passages: dict[Sender, tuple[float, Passage]]


def at_hand_over(flow: Flow, believed: type[Controller] | None = None, directly: Guess[Any] | None = None) -> Flow:
    """Return a captured flow in its sender's view: packets sent through fq count from their hand-over by TCP.

    `believed`: the presumed Linux controller; others are tried if it does not explain the sends, or is a user's class,
    which may not compile. ``through_fq`` of the result tells what was found; unless that is True, its events are those
    of `flow`. If that was None for other senders, it is tried again for one that has been identified since.
    `directly`: what is needed if there was no fq; begun as soon as the flow as captured looks like its own sender.
    """
    if flow.through_fq is not None:
        return flow
    name = registered(believed)
    asked = _asked.setdefault(flow, set())
    again = flow in _found and _found[flow].through_fq is None and name is not None and name not in asked
    if flow not in _found or again:
        asked.add(name)
        passed = passage(flow, believed, again, directly)
        sender = passed.controller or registered(believed)
        if passed.through_fq and sender is not None:
            if directly is not None:
                directly.give_up()
            _found[flow] = _handed_over(flow, sender, passed.alike)
        else:
            _found[flow] = flow if passed.through_fq is None else flow.paced_by(DIRECTLY)
            if flow.tcpinfo is not None and sender is not None and _may_tell(flow):
                _found[flow] = _as_counted(_found[flow], sender, flow.tcpinfo)
    return _found[flow]


def handed_over_at(flow: Flow, cls: type[Controller], hz: int) -> Flow:
    """Return a captured flow sent through fq, as a controller hands it over on a kernel with this HZ."""
    name = registered(cls)
    if name is None:
        return at_hand_over(flow, cls)
    return _converged(flow.at_hz(hz).by_echoes(), f"{name}:hz={hz}", is_scored=False)[0]


def handed_over_with(handed: Flow, cls: type[Controller], marks: NDArray[np.uint8]) -> Flow:
    """Return a flow of the sender's view, handed over anew with known marks of application-limited packets."""
    name = registered(cls)
    if not handed.through_fq or name is None:
        return handed
    return _converged(handed.paced_by(DIRECTLY).by_echoes(), name, marks=marks, is_scored=False)[0]


def _handed_over(flow: Flow, sender: Sender, others: Sequence[Sender]) -> Flow:
    """Return the flow as a sender hands it to fq or, if it does not explain all of it, as the likeliest of `others`.

    On a path of many packets the beginning is slow start alone, in which CUBIC and Reno send alike. Echoes of time
    stamps are used to time hand-overs only here, once fq is known: they fit fq in any flow.
    """
    flow = flow.by_echoes()
    handed, played = _converged(flow, sender, is_scored=bool(others))
    for one in others:
        if played.mean > OWN_SENDER_FITS:
            break
        other = _converged(flow, one)
        if other[1].mean > played.mean:
            handed, played = other
    return handed


def _as_counted(flow: Flow, sender: Sender, polls: TcpInfo) -> Flow:
    """Return the flow through fq or not, as counters of packets in flight tell, if departure times do not show fq.

    `tcpi_unacked` includes what waits in fq, which the capture shows later. Polls at which both ways are right, or
    neither, say nothing; neighbouring polls are correlated.
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
    handed = _converged(flow.by_echoes(), sender, is_scored=False)[0]
    better = right(handed)
    sure = TEMPER * abs(better - plain) > math.log(1 / FALSE_ALARM) and 2 * max(plain, better) > len(times)
    return (handed if better > plain else directly) if sure else flow


def forget(flow: Flow) -> None:
    """Drop a flow's view at the hand-over, with its events."""
    _found.pop(flow, None)
    _compared.pop(flow, None)


def passage(
    flow: Flow, believed: type[Controller] | None = None, alone: bool = False, directly: Guess[Any] | None = None
) -> Passage:
    """Return the `Passage` of a captured flow: whether it was sent through fq, by the best controller.

    `alone`: no other than the presumed one is tried. `directly`: see `at_hand_over`.
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
        passed, senders = _passage(beginning, known, (*senders, *heeding), rounds, stage == 0, compared, directly)
        if passed.through_fq is not None or passed.likelihood <= 0:
            break
    if passed.through_fq is None and not alone and waits_in_queue(flow):
        return _queued(beginning.by_echoes(), known, senders, rounds)
    return passed


def _queued(beginning: Flow, known: tuple[Sender, ...], senders: tuple[Sender, ...], rounds: int) -> Passage:
    """Return the `Passage` through fq by the sender that explains the beginning best, with hand-overs by echoes."""
    means = {one: _converged(beginning, one, rounds=rounds)[1].mean for one in known}
    if max(means.values(), default=-math.inf) <= BELIEVED:
        means |= {one: _converged(beginning, one, rounds=rounds)[1].mean for one in senders if one not in known}
    best = max(means, key=means.__getitem__)
    alike = (one for one, mean in means.items() if mean > OWN_SENDER_FITS and one != best)
    return Passage(True, best, math.inf, tuple(alike))


def leans_to_fq(flow: Flow, sender: type[Controller]) -> bool:
    """Return whether fq is likelier than not, sure or not, for callers that need a decision.

    `sender`: the identified controller; before that, another may have seemed likelier and left the question open.
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
    directly: Guess[Any] | None,
) -> tuple[Passage, tuple[Sender, ...]]:
    """Return the `Passage` of a beginning, and those of `senders` that are still possible with more of the flow."""
    passed = UNKNOWN
    stream = stream_of(beginning.events, beginning.events.sends)  # noqa: F841 - kept for all replays
    plain = _once(lambda one: replay_in_blocks(beginning, one, block_us(beginning)))
    through = _once(lambda one: _converged(beginning, one, plain(one), 1)[1])
    mean = _once(lambda one: plain(one).mean, compared.plain)
    mean_through = _once(lambda one: through(one).mean, compared.through)
    comparison = _once(lambda one: _compare(beginning, one, plain(one), through(one), rounds), compared.passages)
    for some, enough in ((known, BELIEVED), (senders, EXPLAINED)):
        if not some:
            continue
        likeliest = max(mean(one) for one in some)
        if some is known and likeliest > OWN_SENDER_FITS and directly is not None:
            directly.begin()
        close = [one for one in some if mean(one) > likeliest - CLOSE]
        passages = {one: comparison(one) for one in close}
        explained = max(found[0] for found in passages.values())
        if is_start and explained <= OWN_SENDER_FITS:
            # fq may make the true sender look far worse than others, so those are tried that fit well through fq.
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
    """Return whether departure times can tell: they are the sender's, and an RTT is longer than delays in a host."""
    if not flow.facts["complete"] or flow.taken_at != "sender" or "start_ns" in flow.facts["inferred"]:
        return False
    enough = np.count_nonzero(flow.events.sends["begins"]) >= FEW_SENDS
    return bool(enough) and flow.events.last("tcp_min_rtt_us") * 1000 > PATIENCE_NS


def _compare(
    flow: Flow, controller: Sender, plain: BlockReplay, through: BlockReplay, rounds: int
) -> tuple[float, Passage]:
    """Return how well a controller explains the sends, and the `Passage` if it is the sender's.

    `plain`: its replay over the flow as captured. `through`: after the first of `rounds` passes through fq.
    """
    ratio = TEMPER * _evidence(plain, plain, through)
    far_worse = through.mean <= plain.mean - FAR_BETTER
    # Then it does not matter whether a late timer explains the sends still better.
    if plain.mean > BELIEVED and far_worse and ratio < -math.log(1 / FALSE_ALARM):
        return plain.mean, Passage(False, controller, ratio)
    late = replay_in_blocks(flow.paced_by(LATE_TIMER, plain.decided), controller, block_us(flow))
    timer = max(plain, late, key=lambda one: one.mean)
    if through.mean > timer.mean - FAR_BETTER:  # otherwise no further pass makes up for it
        through = _converged(flow, controller, through, rounds - 1)[1]
    ratio = TEMPER * _evidence(plain, timer, through)
    sure = abs(ratio) > math.log(1 / FALSE_ALARM)
    far_better = through.mean - timer.mean > FAR_BETTER
    if ratio > 0:
        fits = through.mean > OWN_SENDER_FITS or far_better
    else:  # 0: pacing limited too few blocks; in the others the timing may be wrong, but not by FAR_BETTER
        fits = ratio < 0 or (through.mean > OWN_SENDER_FITS and far_better)
    if ratio >= 0 and through.mean > max(BELIEVED, timer.mean):
        fits = fits or _is_paced_by_stack(plain, flow)
    sure = fits and (sure or ratio == 0)
    return max(timer.mean, through.mean), Passage(ratio >= 0 if sure else None, controller, ratio)


def _is_paced_by_stack(plain: BlockReplay, flow: Flow) -> bool:
    """Return whether the sends show that the stack paces a controller that sets no rate, below no limit of the socket.

    Then it is fq that asks for pacing ([Linux618] fq_classify), unless a BBR had the same socket before.
    """
    return not plain.cls.sets_pacing_rate and plain.params.get("paced", 0) == 1 and socket_limit(flow) is None


def _evidence(plain: BlockReplay, timer: BlockReplay, through: BlockReplay) -> float:
    """Return the log likelihood ratio of fq to a timer, over the blocks in which pacing limited the sender.

    Only sends that pacing delays, or would delay, leave at other times through fq; n such sends count as sqrt(n).
    Blocks limited by the application, its send buffer or the receive window do not count, nor do the blocks after them,
    which are paced by the rate that BBR sampled in them; those after a long pause do. Consecutive blocks of one rate
    count as one, because an error of the replayed rate lasts.
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
    is_scored: bool = True,
) -> tuple[Flow, BlockReplay]:
    """Return a flow as a controller hands it to fq, and its replay: after as many passes as change it, or the best one.

    `is_scored`: whether the replay's blocks are needed; a pass that infers all draws itself needs no replay before it.
    """
    each_us, seen = block_us(flow), set[bytes]()
    played = played or replay_in_blocks(flow, controller, each_us, marks, is_scored)
    best = played.decided, played
    for number in range(min(rounds, max(MAX_ROWS // len(flow.events), MIN_ROUNDS))):
        decided, script = hand_over(flow, played.cls, played.params, played.timed, marks)
        if (digest := hashlib.sha256(decided.data).digest()) in seen:
            break  # the passes repeat themselves
        seen.add(digest)
        handed = flow.paced_by(THROUGH_FQ, decided)
        if script is not None:
            remember_script(handed, played.cls, played.asked, script, played.script)
            if not is_scored:
                return handed, played
        played = replay_in_blocks(handed, controller, each_us, marks)
        if script is not None or np.array_equal(played.decided, decided[:, :4]):
            return handed, played
        if number == 0 or played.mean > best[1].mean:  # the first one replaces the flow as captured in any case
            best = decided, played
        del handed  # before the next pass, as its stream takes as much memory as all else
    return flow.paced_by(THROUGH_FQ, best[0]), best[1]
