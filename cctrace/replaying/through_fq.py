"""Was a flow sent through fq, and what did its sender know then? Found out from when packets left.

A paced sender either waits for a timer of its own, or hands its packets to fq with the time at which each may leave,
and fq waits. Both space packets alike. But what is handed over early leaves at the rate of then: when the rate changes,
a sender with a timer follows at once, one with fq two super-packets later. So each is replayed over what the flow shows
first, under the controllers that may have sent it, and scored by when things left (`likelihood.timed_send`), as
`paced` does it for controllers that set no rate. If none of them explains the sends, or pacing held too few of them
(the application or its send buffer did), it is not known.

When TCP handed over depends on cwnd and pacing rate, which the controller decides upon the samples of what was
handed over: both run in one pass (`one_pass`). What no record shows, such as numbers that the controller drew, is
inferred from the stream that came out, which may call for another pass.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from cctrace.cc import KERNEL_NAMES, REGISTRY
from cctrace.cc import controller as resolve
from cctrace.cc.base import checked_params
from cctrace.cc.linux import CA_DISORDER
from cctrace.flows.handover import PATIENCE_NS
from cctrace.flows.state import DIRECTLY, LATE_TIMER, THROUGH_FQ
from cctrace.lang.fields import fields_of
from cctrace.replaying import book as bk
from cctrace.replaying import one_pass
from cctrace.replaying.follow import Follower
from cctrace.replaying.hypotheses import FALSE_ALARM
from cctrace.replaying.infer import infer
from cctrace.replaying.intervals import blocks
from cctrace.replaying.paced import EXPLAINED, TEMPER
from cctrace.replaying.stack import ON_ACK
from cctrace.replaying.waiting import SOON_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cctrace.cc.base import Controller
    from cctrace.flows.events import Events
    from cctrace.flows.flow import Flow

# One of each family whose sends differ: BBR before Linux 4.20 paces 1 % faster than today's; DCTCP and Prague send as
# Reno.
SENDERS = (*(name for name in KERNEL_NAMES.values() if name not in ("dctcp", "prague")), "bbr2016")
BELIEVED = 1.0  # log likelihood of a send, at least, that the controller which is believed to have sent it explains
# Log likelihood of a send whose own sender is replayed. Where ACKs wait in the backlog of a busy host, its rate follows
# them late, too, but not as regularly as through fq.
OWN_SENDER_FITS = 1.75
FAR_BETTER = 1.0  # log likelihood of a send: no backlog makes a sender look as much more like one with fq
CLOSE = 1.5  # log likelihood of a send by which fq may be what makes the sender's own look worse than another's
# Packets that are looked at, and rounds of reconstruction and replay: slow start, in which rates change with every ACK,
# and more if that does not tell.
STAGES = (5_000, 3), (25_000, 6)
LEAST_BLOCK_US = 20_000  # what is sent in a round trip, or so long, says much the same: n sends count as sqrt(n)
PAUSE_BLOCKS = 2  # blocks: an application pauses for longer; room in a full send buffer comes within a round trip
MOST_ROUNDS = 12  # of passes and inference; usually two or three change anything
FEW_SENDS = 50  # super-packets; fewer tell nothing
WAITING = 3  # gaps between super-packets, for which the next ones wait in fq
SENT_THROUGH_FQ = (
    "sent through fq (the tap is behind this qdisc): what TCP had handed to it counts as sent from then on"
)
Sender: TypeAlias = "str | type[Controller]"
FQ_IN_WORDS: dict[bool | None, str] = {
    True: "fq (its tap is behind the qdisc)",
    False: "no fq",
    None: "not known whether fq",
}
_found: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # {Flow: as its sender saw it}


class Passage(NamedTuple):
    """Whether a flow was sent through fq.

    Attributes
    ----------
    through_fq : bool or None
        None where it is not known.
    controller : str, type or None
        What explains best what was sent; None if nothing does.
    likelihood : float
        Log of the likelihood ratio of fq to a timer of the sender's own, of what explains it best; NaN where the times
        of sends cannot tell.
    """

    through_fq: bool | None
    controller: Sender | None
    likelihood: float


UNKNOWN = Passage(None, None, math.nan)


def at_hand_over(flow: Flow, believed: type[Controller] | None = None) -> Flow:
    """Return a captured flow as its sender saw it: what left through fq counts from when TCP handed it over.

    Parameters
    ----------
    flow : Flow
    believed : type, optional
        The Linux controller that is believed to have sent it; others are tried if it does not explain well what left,
        or is a class of the user's own, which may not compile.

    Returns
    -------
    Flow
        Its ``through_fq`` says what was found; events are those of `flow` if that is not True.
    """
    if flow.through_fq is not None:
        return flow
    if flow not in _found:
        passed = passage(flow, believed)
        if passed.through_fq and passed.controller is not None:
            _found[flow] = _converged(flow, passed.controller)[0]
        else:
            _found[flow] = flow if passed.through_fq is None else flow.paced_by(DIRECTLY)
    return _found[flow]


def passage(flow: Flow, believed: type[Controller] | None = None) -> Passage:
    """Return whether a captured flow was sent through fq, by the controller that explains best what left: `Passage`."""
    if not _may_tell(flow):
        return UNKNOWN
    passed = UNKNOWN
    for packets, rounds in STAGES:
        passed = _passage(flow.first(packets), believed, rounds)
        if passed.through_fq is not None or passed.likelihood <= 0:
            break
    return passed


def _passage(beginning: Flow, believed: type[Controller] | None, rounds: int) -> Passage:
    place = believed and f"{believed.__module__}:{believed.__qualname__}"
    known = tuple(name for name, registered in REGISTRY.items() if registered == place)
    passed = UNKNOWN
    for senders, enough in ((known, BELIEVED), (SENDERS, EXPLAINED)) if known else ((SENDERS, EXPLAINED),):
        plain = {one: _play(beginning, one, _block_us(beginning)) for one in senders}
        likeliest = max(played.mean for played in plain.values())
        close = [one for one in senders if plain[one].mean > likeliest - CLOSE]
        explained, passed = max(
            (_compare(beginning, one, plain[one], rounds) for one in close), key=lambda compared: compared[0]
        )
        if explained > enough:
            return passed
    return Passage(None, None, passed.likelihood)


def _may_tell(flow: Flow) -> bool:
    """Return whether the times of sends can tell: they are the sender's, and round trips outlast what waits in fq."""
    if not flow.facts["complete"] or flow.taken_at != "sender" or "start_ns" in flow.facts["inferred"]:
        return False
    events = flow.events
    begins_ns = events.sends["tx_ns"][events.sends["begins"] != 0]
    if len(begins_ns) < FEW_SENDS:
        return False
    return int(events["tcp_min_rtt_us"][-1]) > WAITING * np.median(np.diff(begins_ns)) / 1000


def _compare(flow: Flow, controller: Sender, plain: _Played, rounds: int) -> tuple[float, Passage]:
    """Return how well a controller explains what left, and the `Passage` if it is the sender's."""
    _, through = _converged(flow, controller, plain, 1)
    ratio = TEMPER * _evidence(plain, plain, through)
    far_worse = through.mean <= plain.mean - FAR_BETTER
    if plain.mean > BELIEVED and far_worse and ratio < -math.log(1 / FALSE_ALARM):  # a late timer tells nothing else
        return plain.mean, Passage(False, controller, ratio)
    late = _play(flow.paced_by(LATE_TIMER, plain.decided), controller, _block_us(flow))
    timer = max(plain, late, key=lambda one: one.mean)
    if through.mean > timer.mean - FAR_BETTER:  # else no further round makes up for it
        through = _converged(flow, controller, through, rounds - 1)[1]
    ratio = TEMPER * _evidence(plain, timer, through)
    sure = abs(ratio) > math.log(1 / FALSE_ALARM)
    far_better = through.mean - timer.mean > FAR_BETTER
    if ratio > 0:
        sure &= through.mean > OWN_SENDER_FITS or far_better
    elif ratio == 0:  # something else held nearly every block; times of those may be wrong, but not by as much
        sure = through.mean > OWN_SENDER_FITS and far_better
    return max(timer.mean, through.mean), Passage(ratio >= 0 if sure else None, controller, ratio)


def _evidence(plain: _Played, timer: _Played, through: _Played) -> float:
    """Return the log of the likelihood ratio of fq to a timer, over the blocks in which pacing held the sender.

    Only what pacing holds, or would hold, leaves at another time through fq; n such sends count as sqrt(n). Where the
    application, its send buffer or the receive window held the sender, times tell of those, and so does the rate that
    BBR sampled from what left then, which paces the next round trip: neither block counts. What follows a long pause
    does. Blocks of one rate that follow each other count as one, because a rate that a replay has wrong is wrong for as
    long as it lasts.
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
    """A replay, by blocks of time in which anything was sent.

    Attributes
    ----------
    likelihood : ndarray
        Mean log likelihood of a send in each block.
    sent : ndarray
        Super-packets that leave in it.
    number : ndarray
        Which block it is, from the first row on.
    held : ndarray of bool
        Whether nothing but pacing and cwnd held the sender in it.
    paced : ndarray
        Super-packets in it that pacing held back, or would have.
    rates : ndarray, shape (blocks, 2)
        Lowest and highest pacing rate in it.
    decided : ndarray
        What the controller decided, for `Flow.paced_by`.
    cls, params
        The controller's class, and its parameters.
    script : one_pass.Timed
        What no record shows.
    """

    likelihood: np.ndarray
    sent: np.ndarray
    number: np.ndarray
    held: np.ndarray
    paced: np.ndarray
    rates: np.ndarray
    decided: np.ndarray
    cls: type[Controller]
    params: dict[str, Any]
    script: one_pass.Timed

    @property
    def mean(self) -> float:
        """Mean log likelihood of a send."""
        return float(np.mean(self.likelihood)) if len(self.likelihood) else -math.inf


def _block_us(flow: Flow) -> int:
    return max(int(flow.events["tcp_min_rtt_us"][-1]), LEAST_BLOCK_US)


def _play(flow: Flow, controller: Sender, block_us: int) -> _Played:
    """Replay a controller over a flow, `_Played`; a socket that hands packets to fq paces, whatever its controller."""
    events, (cls, given) = flow.events, resolve(controller)
    given = {"hz": flow.hz} | given if "hz" in cls.params else given
    if flow.through_fq is not None and "paced" in cls.params:
        given = given | {"paced": 1}  # by fq or by a timer
    params = checked_params(cls, given)
    record = ("pacing_rate", "snd_cwnd", *(("mode",) if "mode" in fields_of(cls) else ()))
    follower = Follower(events, events.sends, cls, params, record)
    begin = follower.save()
    hz_known = flow.is_beginning or "hz" not in flow.facts["inferred"]  # few ticks tell little
    script = infer(follower, -1, hz_known, "paced" in given).script
    follower.restore(begin)
    stops, sent = blocks(events, block_us)
    likelihood = follower.score(script, stops, bk.TIMED_SENDS)
    recorded = follower.recorded
    probing = recorded["mode"] == cls.states.index("PROBE_RTT") if "mode" in recorded else False
    paces = cls.sets_pacing_rate or bool(follower.params.get("paced", 0))
    rate = recorded["pacing_rate"].clip(min=0) if paces else 0
    columns = np.broadcast_arrays(events["time_ns"], rate, recorded["snd_cwnd"], probing)
    decided = np.column_stack(columns).astype(np.int64)
    some = sent > 0
    now_us, firsts = np.asarray(events.now_us), np.append(0, stops[:-1])
    number = (now_us[stops - 1] - now_us[0]) // block_us
    rates = np.column_stack([bound.reduceat(decided[:, 1], firsts) for bound in (np.minimum, np.maximum)])
    held, paced = _held(events, decided, stops, PAUSE_BLOCKS * block_us * 1000)
    evidence = likelihood[some] / sent[some], sent[some], number[some], held[some], paced[some], rates[some]
    return _Played(*evidence, decided, cls, params, one_pass.timed(script, follower))


def _held(
    events: Events, decided: NDArray[np.int64], stops: NDArray[np.int64], pause_ns: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return for each block, which ends at a row of `stops`, what held the sender in it.

    A super-packet that left later than its predecessor's length at the pacing rate explains, although cwnd had room
    before the last ACK, had not been written yet, or waited for the receive window. One that left no later than that
    was held by pacing, or would have been. Before what follows a pause of `pause_ns` or longer nothing waited.

    Returns
    -------
    held : ndarray of bool
        Whether nothing but pacing and cwnd held the sender.
    paced : ndarray
        Number of super-packets that pacing held.
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
    flow: Flow, controller: Sender, played: _Played | None = None, rounds: int = MOST_ROUNDS
) -> tuple[Flow, _Played]:
    """Return a flow as handed to fq by what a controller decides, and its replay: the fixpoint, or the likeliest."""
    block_us = _block_us(flow)
    played = played or _play(flow, controller, block_us)
    found = []
    for _ in range(rounds):
        decided = one_pass.hand_over(flow, played.cls, played.params, played.script)
        handed = flow.paced_by(THROUGH_FQ, decided)
        played = _play(handed, controller, block_us)
        found.append((handed, played))
        if played.cls.probe_draws or np.array_equal(played.decided, decided):
            return found[-1]
    return max(found, key=lambda one: one[1].mean)
