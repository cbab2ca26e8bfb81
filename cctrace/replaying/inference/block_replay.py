"""A controller replayed over a flow, by blocks of time: how likely it makes departure times, what limited the sender.

`through_fq` compares such replays of a flow as captured and as handed over to fq.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller, checked_params
from cctrace.cc.linux import CA_DISORDER
from cctrace.columns import Bools, Ints
from cctrace.flows.events import Events
from cctrace.flows.flow import Flow
from cctrace.flows.sender.handover import PATIENCE_NS
from cctrace.lang.fields import fields_of
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.script import Script
from cctrace.replaying.engine.waiting import SOON_NS
from cctrace.replaying.inference.handover_scripts import known_script
from cctrace.replaying.inference.infer import Given, infer
from cctrace.replaying.inference.paced import behind_fq, socket_limit, under_limit
from cctrace.replaying.inference.timed import Timed, timed
from cctrace.replaying.intervals import blocks
from cctrace.replaying.senders import Sender
from cctrace.schema import ON_ACK

MIN_BLOCK_US = 20_000  # a block is a round trip, or this; its sends are correlated: n of them count as sqrt(n)
PAUSE_BLOCKS = 2  # blocks; only applications pause for longer, as a full send buffer has room after a round trip


class BlockReplay(NamedTuple):
    """A replay by blocks of time; the first six have a value for each block with sends."""

    likelihood: np.ndarray  # mean log likelihood of a send
    sent: np.ndarray  # super-packets sent
    number: np.ndarray  # of the block, from the first row on
    held: np.ndarray  # whether only pacing and cwnd limited the sender (bool)
    paced: np.ndarray  # super-packets that pacing delayed, or would have delayed
    rates: np.ndarray  # lowest and highest pacing rate, bytes/s; shape (blocks, 2)
    decided: np.ndarray  # the controller's decisions, for `Flow.paced_by`, without the length of super-packets
    cls: type[Controller]
    asked: dict[str, Any]  # parameters as asked for
    params: dict[str, Any]  # parameters as inferred
    script: Script  # what was inferred
    timed: Timed  # the same by time

    @property
    def mean(self) -> float:
        """Mean log likelihood of a send."""
        return float(np.mean(self.likelihood)) if len(self.likelihood) else -math.inf


def block_us(flow: Flow) -> int:
    """Return the length of a block, us: the minimum RTT, at least MIN_BLOCK_US."""
    return max(flow.events.last("tcp_min_rtt_us"), MIN_BLOCK_US)


def replay_in_blocks(
    flow: Flow, controller: Sender, each_us: int, marks: NDArray[np.uint8] | None = None, is_scored: bool = True
) -> BlockReplay:
    """Replay a controller over a flow, in blocks of `each_us`; a socket that hands packets to fq paces.

    `marks`: which packets were application-limited, if that is known. `is_scored`: whether the blocks are needed; if
    not, a controller whose draws are inferred while it hands packets over (`one_pass`) is not replayed here, and only
    the parameters with which it begins are inferred.
    """
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
    draws = is_scored or not cls.probe_draws
    handover = known_script(flow, cls, params)
    script = infer(follower, Given(-1, hz_known, given, handover, draws=draws, to_end=False)).script
    if not draws:
        none = np.zeros(0)
        inferred = cls, params, follower.params, script, timed(script, follower)
        return BlockReplay(none, none, none, none, none, none, np.zeros((0, 4), np.int64), *inferred)
    follower.restore(begin)
    stops, sent = blocks(events, each_us)
    likelihood = follower.score(script, stops, cx.TIMED_SENDS)
    recorded = follower.recorded
    probing = recorded["mode"] == cls.states.index("PROBE_RTT") if "mode" in recorded else False
    rate = recorded["pacing_rate"].clip(min=0) if cls.sets_pacing_rate or follower.params.get("paced", 0) else 0
    columns = np.broadcast_arrays(events["time_ns"], rate, recorded["snd_cwnd"], probing)
    decided = np.column_stack(columns).astype(np.int64, copy=False)
    some = sent > 0
    now_us, firsts = np.asarray(events.now_us), np.append(0, stops[:-1])
    number = (now_us[stops - 1] - now_us[0]) // each_us
    rates = np.column_stack([bound.reduceat(decided[:, 1], firsts) for bound in (np.minimum, np.maximum)])
    held, paced = _held(events, decided, stops, PAUSE_BLOCKS * each_us * 1000)
    evidence = likelihood[some] / sent[some], sent[some], number[some], held[some], paced[some], rates[some]
    return BlockReplay(*evidence, decided, cls, params, follower.params, script, timed(script, follower))


def _held(events: Events, decided: Ints, stops: Ints, pause_ns: int) -> tuple[Bools, Ints]:
    """Return whether only pacing and cwnd limited the sender in each block, and how many super-packets pacing delayed.

    A block ends at a row of `stops`. A super-packet that was sent later than pacing allows, although cwnd had room
    before the last ACK, had not been written yet, or waited for the receive window. One that was sent no later was
    delayed by pacing, or would have been. A pause of `pause_ns` or longer is the application's, and says nothing.
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
    room = decided[np.maximum(last - 1, 0), 2] - events.at("rs_prior_in_flight", last)
    idle = (gap_ns > 2 * due_ns + SOON_NS) & (gap_ns < pause_ns)
    idle &= (room >= segments) & (events.at("ca_state", last) <= CA_DISORDER)
    paced = (due_ns > 0) & (gap_ns <= due_ns + PATIENCE_NS)
    before = np.searchsorted(rows, stops)
    idle, paced = (np.diff(np.append(0, np.cumsum(some))[before], prepend=0) for some in (idle, paced))
    return idle == 0, paced
