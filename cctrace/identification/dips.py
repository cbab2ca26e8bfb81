"""PROBE_RTT, by which a BBR shows itself: in a flow that a fixed rate holds all the time, and where a queue stays.

Where an SO_MAX_PACING_RATE prevents every probe for bandwidth, and no queue builds up, windows say nothing. But a BBR's
minimum RTT expires, and it lowers its window for 200 ms (`replaying.engine.midflow.probe_rtts`):

    v1      to four segments, at most every 10 s; never while RTTs are refreshed by equal ones (before Linux 5.18)
    v2, v3  to half a BDP, every 5 s, or later if jitter brought a smaller RTT

No other sender does this. Each dip speaks for the candidate that makes it, against an unknown sender, too; and those
that are missing, but one, against v2 and v3.

With any limit, a BBR whose RTT stays above its minimum for that long drains its queue, and the path's. A window that
keeps a queue for longer is another sender's (`overdue`).
"""

import numpy as np

from cctrace.cc.base import Controller
from cctrace.columns import Floats, Ints
from cctrace.flows.events import Events
from cctrace.identification import constants as const
from cctrace.identification.halves import HalfRounds
from cctrace.replaying.engine.midflow import FLOOR_SEGMENTS, HELD_US, LOW, level_of, lifetime_us, probe_rtts

LONG = 4 * FLOOR_SEGMENTS  # of shorter flights, a half is too close to what an ACK changes


def against(events: Events, halves: HalfRounds, cls: type[Controller]) -> float:
    """Return the log odds against a candidate, below 0 for it, from the dips of a flow that a fixed rate holds."""
    if not cls.model_based:
        return 0.0
    params = {name: parameter.default for name, parameter in cls.params.items()}
    usual = float(np.median(halves.flight))
    to_half = not cls.phase_choices
    level = float(FLOOR_SEGMENTS)
    if to_half:  # of a BDP, without what is in a queue, as behind a send buffer
        min_rtt_us = events.at("tcp_min_rtt_us", halves.acks).min()
        level = max(float(np.median(halves.rates(halves.sent_so_far))) * min_rtt_us / 2, level)
    due = probe_rtts(events, params)
    are_candidates = np.abs(_levels(halves, due) - level) <= const.WRONG_WINDOW * usual + const.ONE_SEGMENT
    odds = -const.STRONG_WEIGHT * int(are_candidates.sum())
    if to_half and usual >= LONG:
        each_us = 1000 * params["probe_rtt_win_ms"] + HELD_US
        expected = int((halves.time_us[-1] - halves.time_us[0]) / each_us) - 1
        odds += const.WEIGHT * max(expected - len(due), 0)
    return min(max(odds, -const.MAX_AGAINST), const.MAX_AGAINST)


def _levels(halves: HalfRounds, rows: Ints) -> Floats:
    """Return the data in flight in the dips that begin at some rows, segments; bunches of ACKs let it fall further."""
    begins = np.searchsorted(halves.acks, rows)
    ends = np.searchsorted(halves.time_us, halves.time_us[begins] + HELD_US + 2 * halves.rtt_us[begins])
    return np.array([np.quantile(halves.flight[a : b + 1], 0.25) for a, b in zip(begins, ends, strict=True)])


def overdue(halves: HalfRounds, rtt_us: Floats, cls: type[Controller]) -> float:
    """Return the log odds, 0 or more, against a BBR whose minimum RTT expired without a dip of the flight.

    `rtt_us`: at each ACK; 0 for none. An RTT nearer to the minimum than the errors of two time stamps may have
    refreshed it; jitter is none, since the sender saw it, too. Of flights of eight segments, half is the floor, and
    jitter makes as much; of shorter ones than sixteen, half is too close to what an ACK changes. A pause of the
    application when the dip is due hides it.
    """
    flight, to_half = np.median(halves.flight), not cls.phase_choices
    if len(halves) < const.MIN_FOR_CYCLE or flight <= 2 * FLOOR_SEGMENTS or (to_half and flight < LONG):
        return 0.0
    valid_us = lifetime_us({name: parameter.default for name, parameter in cls.params.items()})
    edges = halves.edges
    lowest = np.minimum.reduceat(np.where(rtt_us > 0, rtt_us, np.inf)[: edges[-1]], edges[:-1])
    level = level_of(halves.flight, halves.time_us, float(np.median(halves.rtt_us)))
    falls = np.minimum.reduceat(level[: edges[-1]], edges[:-1])
    least, since, missing, k = np.inf, 0, 0, 0
    while k < len(lowest):
        low = float(lowest[k])
        if low <= least + 2 * const.STAMP_ERROR_US:
            least, since = min(least, low), k
        elif halves.time_us[edges[k + 1]] - halves.time_us[edges[since + 1]] > const.WAITS_LATE_TIMES * valid_us:
            usual = np.median(level[edges[since + 1] : edges[k + 1] + 1])
            fallen = np.flatnonzero(falls[since + 1 : k + 1] <= LOW * usual)
            if len(fallen):  # the new minimum is of the dip, or later
                k = since + 1 + int(fallen[0])
                least = float(lowest[k])
            else:
                due = np.searchsorted(halves.time_us[edges[1:]], halves.time_us[edges[since + 1]] + valid_us)
                missing += not halves.ran_out[due : k + 1].any()
            since = k
        k += 1
    return min(const.STRONG_WEIGHT * missing, const.MAX_AGAINST)
