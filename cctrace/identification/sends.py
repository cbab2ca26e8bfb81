"""What a replay of a candidate says of a captured flow: how likely the sends were, and what it would have in flight.

`examine` replays one candidate over what a flow shows of its first MOST_ROWS rows: enough to tell, and bounded in time.
"""

from typing import NamedTuple

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.cc.base import checked_params
from cctrace.cc.bbr2_model import BBR_UNIT as GAIN_UNIT
from cctrace.cc.bbr2_model import PROBE_BW
from cctrace.flows.events import Events
from cctrace.flows.missing_sacks import restored
from cctrace.identification import strangers as strange
from cctrace.identification import trajectory
from cctrace.identification.flights import Astray, astray, fullest, limited
from cctrace.replaying import midflow, reductions
from cctrace.replaying.follow import Follower
from cctrace.replaying.infer import infer
from cctrace.replaying.intervals import blocks
from cctrace.replaying.scores import UNKNOWN_LOG
from cctrace.replaying.ticks import CONFIG_HZ

MOST_ROWS = 150_000  # of the event stream
MOSTLY = 0.95  # of the blocks explained: where it is less, another HZ may explain the rest
UNEXPLAINED = 0.2  # of the retransmissions: then the SACKs are missing, by which the sender had found its losses
FEW_AGAIN = 5


class Shown(NamedTuple):
    """What a flow shows.

    Attributes
    ----------
    events : Events
    hz : int
        Of the sender's kernel.
    hz_known : bool
    exact : bool
        Whether the times at which segments left are the sender's own, and its losses as it found them.
    rebuilt : bool
        Whether the SACKs had to be put back (`flows.missing_sacks`).
    stops, sent : ndarray
        Blocks of 0.2 s and the super-packets in each, see `scores.blocks`.
    halves : trajectory.Blocks
        Blocks of half a round trip.
    """

    events: Events
    hz: int
    hz_known: bool
    exact: bool
    rebuilt: bool
    stops: np.ndarray
    sent: np.ndarray
    halves: trajectory.Blocks


class Evidence(NamedTuple):
    """What a replay says.

    Attributes
    ----------
    sends : ndarray
        Mean log likelihood of the sends of each 0.2 s that has any; empty where they are not exact.
    halves : ndarray
        Log likelihood of each half round trip.
    scale : float
        How far the flights and rates usually were off, as a share.
    after : float
        The same after reductions of cwnd, the median; NaN where there is none, or the candidate paces.
    reductions : int
        How many that is the median of.
    paces : bool
        Whether the candidate sets a pacing rate.
    bw : ndarray
        Bandwidth after each ACK, segments/s, NaN before the first PROBE_BW; empty for one without a gain cycle.
    astray : Astray or None
        How often the window was wrong; None where the candidate paces, or the flights are estimates.
    ticks : bool
        Whether its window depends on the kernel's ticks.
    paced : bool
        Whether the socket paces although the candidate does not.
    foreign : float
        Log odds against it by what it cannot do (`identify_strange`); 0 where it does not pace, or times are exact.
    """

    sends: np.ndarray
    halves: np.ndarray
    scale: float
    after: float
    reductions: int
    paces: bool
    bw: np.ndarray
    astray: Astray | None = None
    ticks: bool = False
    paced: bool = False
    foreign: float = 0.0


def shown(flow, most=MOST_ROWS):
    """Return what the first `most` rows of a captured flow's events show of its sender, `Shown`."""
    blind, rebuilt = _is_blind(flow), False
    if blind and "start_ns" not in flow.facts["inferred"]:
        told = restored(flow)
        blind = _is_blind(told)
        flow, rebuilt = (flow, False) if blind else (told, True)
    inferred = flow.facts["inferred"]
    exact = "start_ns" not in inferred and not blind
    events = flow.events
    if rebuilt:  # nor are there the time stamps by which the sender took some of its RTTs
        events = Events(events.rows, events.meta | {"inferred": (*inferred, "min_rtt")}, events.sends)
    return _shown(events, most, flow.hz, "hz" not in inferred, exact, rebuilt)


def first(shown, most):
    """Return what the first `most` rows show, `Shown`."""
    return _shown(shown.events, most, shown.hz, shown.hz_known, shown.exact, shown.rebuilt)


def _shown(events, most, *known):
    if len(events) > most:
        events = Events(events.rows[:most], events.meta, events.sends[events.sends["row"] < most])
    return Shown(events, *known, *blocks(events), trajectory.Blocks(events))


def _is_blind(flow):
    """Whether the SACKs are missing by which the sender had found its losses."""
    unexplained = flow.quality()["unexplained_retransmissions"]
    return unexplained >= FEW_AGAIN and unexplained > UNEXPLAINED * int(flow.summary["retransmitted_segments"])


def examine(shown, name):
    """Replay a candidate over what a flow shows; return its `Evidence`.

    Where the sender's HZ is a guess, and a candidate explains a part of the flow only, it is tried with others.
    """
    cls, given = resolve(name)
    evidence, asked = _replayed(shown, cls, given, shown.hz, shown.hz_known)
    explained = evidence.sends > UNKNOWN_LOG
    if not asked or not len(explained) or not np.mean(evidence.sends) > UNKNOWN_LOG or np.mean(explained) >= MOSTLY:
        return evidence
    others = [_replayed(shown, cls, given, hz, True)[0] for hz in CONFIG_HZ if hz != shown.hz]
    return max([evidence, *others], key=lambda one: np.sum(one.sends))


def _replayed(shown, cls, given, hz, hz_known):
    """Return the evidence of one replay, and whether its HZ is a guess that counts."""
    events, sent = shown.events, shown.sent
    params = checked_params(cls, given | ({"hz": hz} if "hz" in cls.params else {}))
    follower = Follower(events, events.sends, cls, params)
    expiry = -1 if events.meta["complete"] or not cls.phase_choices else midflow.probe_rtt_row(events)
    script = infer(follower, expiry, hz_known, "paced" in given).script
    paced = follower.may_pace and follower.params["paced"] != 0
    paces = hasattr(cls, "on_ack")
    record = ("snd_cwnd", "pacing_rate", *(("pacing_gain", "mode") if paces else ("snd_ssthresh",)))
    again = Follower(events, events.sends, cls, params, record=record)
    sends, wrong = np.zeros(0), None
    if not shown.exact:
        trajectory.play(again, script, shown.halves)
    else:
        if follower.counts_ticks and not paces:
            told = limited(shown.halves) & fullest(shown.halves) if paced else limited(shown.halves)
            acks = shown.halves.acks[told]
            first_ones = reductions.AT_FIRST if shown.rebuilt else 0  # else HyStart tells old CUBIC from new
            script = reductions.set_right(again, script, shown.halves.reductions.tolist(), acks, first_ones)
            again = Follower(events, events.sends, cls, params, record=record)
        sends = again.score(script, shown.stops)[sent > 0] / sent[sent > 0]
        if not paces:
            windows = (again.recorded[name] for name in ("snd_cwnd", "snd_ssthresh"))
            wrong = astray(shown.halves, events.rows, *windows, paced)
    cwnd, pacing = (again.recorded[name].astype(float) for name in ("snd_cwnd", "pacing_rate"))
    over = shown.halves.over(cwnd, pacing, cls.pacing_overhead_bytes)
    halves, scale = trajectory.likelihoods(over[shown.halves.busy])
    after, reduced = (np.nan, 0) if paces else shown.halves.after_reductions(over)
    guessed = not hz_known and follower.counts_ticks and paces  # else `infer` has found it
    bw = _bandwidth(again.recorded, shown, cls) if paces else np.zeros(0)
    foreign = _foreign(shown, cls, cwnd) if paces and not shown.exact else 0.0
    return Evidence(
        sends, halves, scale, after, reduced, paces, bw, wrong, follower.counts_ticks, paced, foreign
    ), guessed


def _foreign(shown, cls, cwnd):
    """Return the log odds against a candidate that paces, by what flights do that its own would not."""
    blocks, is_v1 = shown.halves, bool(cls.phase_choices)
    if not len(blocks):
        return 0.0
    rows = shown.events.rows[blocks.acks]
    min_rtt_us = float(np.min(rows["tcp_min_rtt_us"]))
    queued = rows["srtt_us8"] / 8 > strange.QUEUED * min_rtt_us
    window = blocks.each(np.where(queued, cwnd[blocks.acks], np.inf)) if is_v1 else None
    usual_rtt_us = float(np.median(rows["srtt_us8"])) / 8
    still_us = strange.longest_still_us(blocks, window)
    return strange.paced_log_odds(blocks, still_us, min_rtt_us, usual_rtt_us, is_v1)


def _bandwidth(recorded, shown, cls):
    """Return what a BBR took for the bandwidth after each ACK, segments/s; NaN before its first PROBE_BW."""
    rate, gain, mode = (
        recorded[name][shown.halves.acks].astype(float) for name in ("pacing_rate", "pacing_gain", "mode")
    )
    bw = rate / np.maximum(gain / GAIN_UNIT, 1 / GAIN_UNIT) / (shown.halves.mss + cls.pacing_overhead_bytes)
    return np.where(np.maximum.accumulate(mode == PROBE_BW), bw, np.nan)


def super_packet(sends):
    """Return the usual number of segments of a super-packet."""
    begins = np.flatnonzero(sends["begins"] != 0)
    return max(float(np.median(np.add.reduceat(sends["segments"].astype(float), begins))), 1.0) if len(begins) else 1.0
