"""Whether a flow was sent through fq, and the sender's view if so, inferred from departure times.

A paced sender either waits for its own timer, or hands packets to fq with their departure times, and fq waits. Both
space packets alike. But packets handed over early leave at the rate of the hand-over: when the rate changes, a
sender with a timer follows at once, one with fq two super-packets later. Both are therefore replayed over the
beginning of the flow, with each controller that may have sent it, and scored by departure times
(`likelihood.timed_send`), as in `paced` for controllers that set no rate. If no controller explains the sends, or
pacing held back too few of them (but the application or its send buffer did), the result is open, unless attached
counters of packets in flight decide: these include what waits in fq.

The hand-over depends on cwnd and pacing rate, which the controller computes from samples of what was handed over:
both run in one pass (`one_pass`). Unrecorded values, such as random draws, are inferred from the resulting stream,
which may require another pass.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller, checked_params
from cctrace.cc.linux import CA_DISORDER
from cctrace.flows.events import Events
from cctrace.flows.flow import Flow
from cctrace.flows.handover import PATIENCE_NS
from cctrace.flows.state import DIRECTLY, LATE_TIMER, THROUGH_FQ
from cctrace.io.tcpinfo import TcpInfo
from cctrace.lang.fields import fields_of
from cctrace.replaying import book as bk
from cctrace.replaying import one_pass
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import FALSE_ALARM
from cctrace.replaying.infer import infer
from cctrace.replaying.intervals import blocks
from cctrace.replaying.led import led_by, note_led
from cctrace.replaying.paced import EXPLAINED, TEMPER, behind_fq, socket_limit, under_limit
from cctrace.replaying.script import Script
from cctrace.replaying.senders import Sender, registered, senders_of
from cctrace.replaying.stack import ON_ACK
from cctrace.replaying.timed import Timed, timed
from cctrace.replaying.waiting import SOON_NS

BELIEVED = 1.0  # least log likelihood of a send, for the presumed sender to be accepted
# Log likelihood of a send when its own sender is replayed. Where ACKs wait in a busy host's backlog, its rate follows
# them late, too, but less regularly than through fq.
OWN_SENDER_FITS = 1.75
FAR_BETTER = 1.0  # log likelihood of a send: no backlog mimics fq that closely
CLOSE = 1.5  # log likelihood of a send by which fq mostly makes the true sender look worse than another, at most
# Packets used, and rounds of reconstruction and replay: slow start, in which rates change with every ACK, and more if
# that is not decisive.
STAGES = (5_000, 3), (25_000, 6)
LEAST_BLOCK_US = 20_000  # sends of a round trip, or of this time, are correlated: n sends count as sqrt(n)
PAUSE_BLOCKS = 2  # blocks: applications pause for longer; space in a full send buffer returns within a round trip
MOST_ROUNDS = 12  # of passes and inference; usually two or three suffice
# Rows of all rounds together, unless fewer than LEAST_ROUNDS would remain: a round takes 4 us a row.
MOST_ROWS, LEAST_ROUNDS = 4_000_000, 3
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


class Passage(NamedTuple):
    """Whether a flow was sent through fq."""

    through_fq: bool | None  # None if unknown
    controller: Sender | None  # the controller that explains the sends best; None if none does
    # log likelihood ratio of fq to the sender's own timer, under that controller; NaN if departure times are
    # uninformative
    likelihood: float
    alike: tuple[Sender, ...] = ()  # others that explain the beginning, and how it passed, as their own sends


UNKNOWN = Passage(None, None, math.nan)


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
    return _converged(flow.at_hz(hz).by_echoes(), f"{name}:hz={hz}")[0] if name else at_hand_over(flow, cls)


def handed_over_with(handed: Flow, cls: type[Controller], marks: NDArray[np.uint8]) -> Flow:
    """Return a flow of the sender's view, handed over anew where it is known which packets were application-limited."""
    name = registered(cls)
    if not handed.through_fq or name is None:
        return handed
    return _converged(handed.paced_by(DIRECTLY).by_echoes(), name, marks=marks)[0]


def _handed_over(flow: Flow, sender: Sender, others: Sequence[Sender]) -> Flow:
    """Return the flow as a sender hands it to fq or, unless that explains all of it, as the likeliest of `others`.

    On a path of many packets the beginning is slow start alone, in which CUBIC and Reno send alike. Echoes date the
    hand-overs only now: any flow's fit fq, as they let go nothing before it left.
    """
    flow = flow.by_echoes()
    handed, played = _converged(flow, sender)
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
    handed = _converged(flow.by_echoes(), sender)[0]
    better = right(handed)
    sure = TEMPER * abs(better - plain) > math.log(1 / FALSE_ALARM) and 2 * max(plain, better) > len(times)
    return (handed if better > plain else directly) if sure else flow


def forget(flow: Flow) -> None:
    """Drop a flow's view at the hand-over, with its events."""
    _found.pop(flow, None)


def passage(flow: Flow, believed: type[Controller] | None = None, alone: bool = False) -> Passage:
    """Return the `Passage` of a captured flow: whether it was sent through fq, by the best controller.

    `alone`: no other than the presumed one is tried.
    """
    if not _may_tell(flow):
        return UNKNOWN
    known = (name,) if (name := registered(believed)) else ()
    passed, senders = UNKNOWN, () if alone else senders_of(flow.first(STAGES[0][0]))
    for stage, (packets, rounds) in enumerate(STAGES):
        beginning = flow.first(packets)
        # Shown by later marks.
        heeding = [one for one in senders_of(beginning) if one == "dctcp" and one not in senders and not alone]
        passed, senders = _passage(beginning, known, (*senders, *heeding), rounds, stage == 0)
        if passed.through_fq is not None or passed.likelihood <= 0:
            break
    return passed


def leans_to_fq(flow: Flow, sender: type[Controller]) -> bool:
    """Return whether fq is likelier than not, for what must be counted in one way or the other: a sure answer or not.

    `sender`: identified since; where it was unknown, another may have seemed likelier and left fq open.
    """
    passed = passage(flow, sender)
    return passed.likelihood > 0 if passed.through_fq is None else passed.through_fq


def _passage(
    beginning: Flow, known: tuple[Sender, ...], senders: tuple[Sender, ...], rounds: int, is_start: bool
) -> tuple[Passage, tuple[Sender, ...]]:
    """Return the `Passage` of a beginning, and those of `senders` that more of the flow may show to have sent it."""
    passed = UNKNOWN
    for some, enough in ((known, BELIEVED), (senders, EXPLAINED)):
        if not some:
            continue
        plain = {one: _play(beginning, one, _block_us(beginning)) for one in some}
        likeliest = max(played.mean for played in plain.values())
        close = [one for one in some if plain[one].mean > likeliest - CLOSE]
        compared = {one: _compare(beginning, one, plain[one], rounds) for one in close}
        explained = max(found[0] for found in compared.values())
        if is_start and explained <= OWN_SENDER_FITS:
            # fq may make the true sender look far worse than others
            hidden = [one for one in some if one not in close]
            hidden = [one for one in hidden if _converged(beginning, one, plain[one], 1)[1].mean > explained]
            compared |= {one: _compare(beginning, one, plain[one], rounds) for one in hidden}
        explained, passed = max(compared.values(), key=lambda found: found[0])
        if some is senders:
            senders = tuple(compared)
        if explained > enough:
            fits = [one for mean, one in compared.values() if mean > OWN_SENDER_FITS and one is not passed]
            alike = [one.controller for one in fits if one.controller and one.through_fq == passed.through_fq]
            return passed._replace(alike=tuple(alike)), senders
    return Passage(None, None, passed.likelihood), senders


def _may_tell(flow: Flow) -> bool:
    """Return whether departure times tell: they are the sender's, and a round trip outlasts a host's delays."""
    if not flow.facts["complete"] or flow.taken_at != "sender" or "start_ns" in flow.facts["inferred"]:
        return False
    enough = np.count_nonzero(flow.events.sends["begins"]) >= FEW_SENDS
    return bool(enough) and int(flow.events["tcp_min_rtt_us"][-1]) * 1000 > PATIENCE_NS


def _compare(flow: Flow, controller: Sender, plain: _Played, rounds: int) -> tuple[float, Passage]:
    """Return how well a controller explains the sends, and the `Passage` if it is the sender's."""
    _, through = _converged(flow, controller, plain, 1)
    ratio = TEMPER * _evidence(plain, plain, through)
    far_worse = through.mean <= plain.mean - FAR_BETTER
    # A late timer is no alternative then.
    if plain.mean > BELIEVED and far_worse and ratio < -math.log(1 / FALSE_ALARM):
        return plain.mean, Passage(False, controller, ratio)
    late = _play(flow.paced_by(LATE_TIMER, plain.decided), controller, _block_us(flow))
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


def _evidence(plain: _Played, timer: _Played, through: _Played) -> float:
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


class _Played(NamedTuple):
    """A replay, by blocks of time with sends."""

    likelihood: np.ndarray  # mean log likelihood of a send in each block
    sent: np.ndarray  # number of super-packets sent in it
    number: np.ndarray  # block number, from the first row on
    held: np.ndarray  # whether only pacing and cwnd limited the sender in it (bool)
    paced: np.ndarray  # super-packets in it that pacing delayed, or would have
    rates: np.ndarray  # lowest and highest pacing rate in it; shape (blocks, 2)
    decided: np.ndarray  # the controller's decisions, for `Flow.paced_by`, without the length of super-packets
    cls: type[Controller]
    asked: dict[str, Any]  # its parameters, as asked for
    params: dict[str, Any]  # and as inferred
    script: Script  # unrecorded values
    timed: Timed  # and by time

    @property
    def mean(self) -> float:
        """Mean log likelihood of a send."""
        return float(np.mean(self.likelihood)) if len(self.likelihood) else -math.inf


def _block_us(flow: Flow) -> int:
    return max(int(flow.events["tcp_min_rtt_us"][-1]), LEAST_BLOCK_US)


def _play(flow: Flow, controller: Sender, block_us: int, marks: NDArray[np.uint8] | None = None) -> _Played:
    """Replay a controller over a flow, `_Played`; a socket that hands packets to fq paces, whatever its controller."""
    events, (cls, given) = flow.events, resolve(controller)
    given = {"hz": flow.hz} | given if "hz" in cls.params else given
    if flow.through_fq:
        given = behind_fq(cls) | given
    given = given | ({"paced": 1} if flow.through_fq is not None and "paced" in cls.params else {})  # by fq or a timer
    params = checked_params(cls, under_limit(cls, socket_limit(flow)) | given)
    record = ("pacing_rate", "snd_cwnd", *(("mode",) if "mode" in fields_of(cls) else ()))
    follower = Follower(events, events.sends, cls, params, record, marks=marks)
    begin = follower.save()
    hz_known = flow.is_beginning or "hz" not in flow.facts["inferred"]  # few ticks are uninformative
    script = infer(follower, -1, hz_known, given, led=led_by(flow, cls, params)).script
    follower.restore(begin)
    stops, sent = blocks(events, block_us)
    likelihood = follower.score(script, stops, bk.TIMED_SENDS)
    recorded = follower.recorded
    probing = recorded["mode"] == cls.states.index("PROBE_RTT") if "mode" in recorded else False
    rate = recorded["pacing_rate"].clip(min=0) if cls.sets_pacing_rate or follower.params.get("paced", 0) else 0
    columns = np.broadcast_arrays(events["time_ns"], rate, recorded["snd_cwnd"], probing)
    decided = np.column_stack(columns).astype(np.int64, copy=False)
    some = sent > 0
    now_us, firsts = np.asarray(events.now_us), np.append(0, stops[:-1])
    number = (now_us[stops - 1] - now_us[0]) // block_us
    rates = np.column_stack([bound.reduceat(decided[:, 1], firsts) for bound in (np.minimum, np.maximum)])
    held, paced = _held(events, decided, stops, PAUSE_BLOCKS * block_us * 1000)
    evidence = likelihood[some] / sent[some], sent[some], number[some], held[some], paced[some], rates[some]
    return _Played(*evidence, decided, cls, params, follower.params, script, timed(script, follower))


def _held(
    events: Events, decided: NDArray[np.int64], stops: NDArray[np.int64], pause_ns: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return what limited the sender in each block, which ends at a row of `stops`.

    A super-packet sent later than its predecessor's length at the pacing rate explains, although cwnd had room before
    the last ACK, had not been written yet, or waited for the receive window. One sent no later was delayed by pacing,
    or would have been. Nothing waited before what follows a pause of `pause_ns` or longer.

    Returns whether only pacing and cwnd limited the sender, and how many super-packets pacing delayed.
    """
    sends = events.sends
    begins = np.flatnonzero(sends["begins"])
    rows, tx_ns = sends["row"][begins], sends["tx_ns"][begins]
    size = np.add.reduceat(sends["payload"].astype(np.int64), begins)
    segments = np.add.reduceat(sends["segments"].astype(np.int64), begins)
    rate_Bps = decided[np.maximum(rows - 1, 0), 1]
    length_ns = np.where(rate_Bps > 0, size * 1_000_000_000 // np.maximum(rate_Bps, 1), 0)
    due_ns = np.append(0, length_ns)[: len(rows)]
    gap_ns = np.diff(tx_ns, prepend=tx_ns[:1])
    acks = np.append(0, np.flatnonzero(events["event"] == ON_ACK))
    last = acks[np.maximum(np.searchsorted(acks, rows) - 1, 0)]
    room = decided[np.maximum(last - 1, 0), 2] - events["rs_prior_in_flight"][last]
    idle = (gap_ns > 2 * due_ns + SOON_NS) & (gap_ns < pause_ns)
    idle &= (room >= segments) & (events["ca_state"][last] <= CA_DISORDER)
    paced = (due_ns > 0) & (gap_ns <= due_ns + PATIENCE_NS)
    before = np.searchsorted(rows, stops)
    idle, paced = (np.diff(np.append(0, np.cumsum(some))[before], prepend=0) for some in (idle, paced))
    return idle == 0, paced


def _converged(
    flow: Flow,
    controller: Sender,
    played: _Played | None = None,
    rounds: int = MOST_ROUNDS,
    marks: NDArray[np.uint8] | None = None,
) -> tuple[Flow, _Played]:
    """Return a flow as a controller hands it to fq, and its replay: the fixpoint, or the likeliest iteration."""
    block_us, seen = _block_us(flow), set[bytes]()
    played = played or _play(flow, controller, block_us, marks)
    best = played.decided, played
    for number in range(min(rounds, max(MOST_ROWS // len(flow.events), LEAST_ROUNDS))):
        decided, script = one_pass.hand_over(flow, played.cls, played.params, played.timed, marks)
        if (digest := hashlib.sha256(decided.data).digest()) in seen:
            break  # what follows would repeat what followed then
        seen.add(digest)
        handed = flow.paced_by(THROUGH_FQ, decided)
        if script is not None:
            note_led(handed, played.cls, played.asked, script, played.script)
        played = _play(handed, controller, block_us, marks)
        if script is not None or np.array_equal(played.decided, decided[:, :4]):
            return handed, played
        if number == 0 or played.mean > best[1].mean:  # the first replaces the flow as captured, whatever it explains
            best = decided, played
        del handed  # its stream takes as much memory as all else
    return flow.paced_by(THROUGH_FQ, best[0]), best[1]
