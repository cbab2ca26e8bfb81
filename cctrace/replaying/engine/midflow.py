"""When the minimum RTT of a recorded BBR expired, as its PROBE_RTTs show.

In a capture from the middle of a connection, BBR's minimum RTT predates the capture, and its age is unknown. But
PROBE_RTT is visible: for 200 ms BBR v1 keeps at most four segments in flight, v2 and v3 half a BDP. The first one is
taken as the time at which the minimum expired; from then on the replay has its own. PROBE_RTTs are also found where the
replay's minimum RTT is uncertain: in captures taken elsewhere than at the sender (`probe_rtts`), and through fq
(`unexpected`).

Sources: [Linux61] net/ipv4/tcp_bbr.c bbr_update_min_rtt.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.cc.linux import USEC_PER_SEC
from cctrace.columns import Ints, Values, runs_of_true
from cctrace.replaying.engine.loop import LONG_AGO
from cctrace.schema import JIFFIES_START, LINUX_EVENTS

if TYPE_CHECKING:
    from cctrace.cc.base import Controller
    from cctrace.flows.events import Events
    from cctrace.replaying.engine.follow import Follower

FLOOR_SEGMENTS = 4  # bbr_cwnd_min_target
HELD_US = 200_000  # bbr_probe_rtt_mode_ms
MIN_ACKS = 100  # of a flow in which PROBE_RTT is looked for
MEDIANS = 2000  # of the data in flight before an ACK, that are computed at most
EARLY_US = 200_000  # by which a PROBE_RTT may seem early, as its start is an estimate
TIE_US = 10  # error of RTT samples through fq: TCP's departure time is a few us before the captured one
LOW = 0.65  # the data in flight in PROBE_RTT, in multiples of the usual ones, at most
RECOVERED = 1.5  # those after it, in multiples of those in it, at least
_dip_rows: weakref.WeakKeyDictionary[Events, Ints] = weakref.WeakKeyDictionary()  # {Events: result of `_dips`}


def expiry(events: Events, cls: type[Controller]) -> int:
    """Return the row at which the minimum RTT of a capture from mid-flow expires, -1 for none."""
    return -1 if events.meta["complete"] or not cls.phase_choices else probe_rtt_row(events)


def probe_rtt_row(events: Events) -> int:
    """Return the row of the ACK at which the recorded sender first entered PROBE_RTT; -1 if it never did."""
    return next(iter(floors(events)), (-1, -1))[0]


def floors(events: Events) -> list[tuple[int, int]]:
    """Return the rows of the ACKs at which the recorded sender entered PROBE_RTT and left it, as BBR v1 does.

    The data in flight fall without sends to four segments, and these are replaced as they are acknowledged.
    """
    ack = np.flatnonzero(events["event"] == LINUX_EVENTS["on_ack"])
    flight, now_us, found = events.at("rs_prior_in_flight", ack).astype(np.int64), events.now_us[ack], []
    for begin, end in zip(*runs_of_true(flight <= FLOOR_SEGMENTS), strict=True):
        full = np.median(flight[begin:end]) == FLOOR_SEGMENTS  # the window is used: the application has more to send
        if begin and full and now_us[end - 1] - now_us[begin] >= HELD_US - HELD_US // 10:
            while begin and flight[begin - 1] > flight[begin]:  # nothing was sent since
                begin -= 1
            found.append((int(ack[begin]), int(ack[end - 1])))
    return found


def unexpected(events: Events, drawn: Sequence[int], params: Mapping[str, Any]) -> int:
    """Return the row at which the recorded sender entered the first PROBE_RTT that a replay of BBR v1 lacks; or -1.

    `drawn`: rows at which the replay drew a phase, as it does when it leaves PROBE_RTT. It lacks a PROBE_RTT of the
    sender if none of these is within a round trip, or 200 ms, of its end. The reason may be an RTT sample within TIE_US
    of the minimum, which renewed it in the kernel but not in the replay, or the other way round: then PROBE_RTT follows
    that sample after the lifetime of the minimum (from `params`).
    """
    now_us, lifetime = np.asarray(events.now_us), lifetime_us(params)
    left_us = now_us[np.array(drawn, np.int64)]
    sampled = np.append(0, np.flatnonzero(events["event"] == LINUX_EVENTS["on_ack"]))
    rtt_us = events.at("rs_rtt_us", sampled).astype(np.int64)
    rtt_us[0] = events.meta["handshake_rtt_us"]  # the first minimum
    for begin, end in floors(events):
        near_us = max(int(events.at("srtt_us8", np.array([end]))[0]) >> 3, HELD_US)
        if (np.abs(left_us - now_us[end]) <= near_us).any():
            continue
        first, last = np.searchsorted(now_us[sampled], now_us[begin] - lifetime - [EARLY_US, 0])
        least_us = min((one for one in rtt_us[:last].tolist() if one >= 0), default=0)
        if (np.abs(rtt_us[first:last] - least_us) <= TIE_US).any():
            return begin
    return -1


def probe_rtts(events: Events, params: Mapping[str, Any]) -> Ints:
    """Return the rows of the ACKs at which the recorded sender appears to have entered PROBE_RTT, ascending.

    The data in flight fall to a low level without sends, to four segments in BBR v1 and half a BDP in v2 and v3, stay
    there for 200 ms, and recover. PROBE_RTTs are at least the lifetime of the minimum RTT (from `params`) apart from
    each other and from the start; what comes sooner has another cause, such as DRAIN.
    """
    window_us = lifetime_us(params)
    now_us = np.asarray(events.now_us)
    since_us = now_us[0] if events.meta["complete"] else -window_us
    if now_us.max(initial=since_us) - since_us <= window_us - EARLY_US:  # too short: most beginnings are
        return np.zeros(0, np.int64)
    if events not in _dip_rows:
        _dip_rows[events] = _dips(events)
    found = []
    for row in _dip_rows[events].tolist():
        if now_us[row] - since_us > window_us - EARLY_US:
            found.append(row)
            since_us = now_us[row]
    return np.array(found, np.int64)


def lifetime_us(params: Mapping[str, Any]) -> int:
    """Return for how long a BBR's minimum RTT is valid, us, from its parameters; 0 for other controllers."""
    return int(1000 * params.get("probe_rtt_win_ms", params.get("min_rtt_win_sec", 0) * 1000))


def _dips(events: Events) -> Ints:
    ack = np.flatnonzero(events["event"] == LINUX_EVENTS["on_ack"])
    if len(ack) < MIN_ACKS:
        return np.zeros(0, np.int64)
    flight, now_us = events.at("rs_prior_in_flight", ack).astype(np.int64), np.asarray(events.now_us)[ack]
    round_us = int(np.median(events.at("srtt_us8", ack))) >> 3
    held = level_of(flight, now_us, round_us)
    before = np.searchsorted(now_us, now_us - max(4 * round_us, 2 * HELD_US))
    step = max(len(ack) // MEDIANS, 1)
    usual = np.repeat([np.median(held[before[k] : k + 1]) for k in range(0, len(ack), step)], step)[: len(ack)]
    found = []
    for begin, end in zip(*runs_of_true(held <= LOW * usual), strict=True):
        if now_us[end - 1] - now_us[begin] < HELD_US * 3 // 4 or end >= len(ack) - 1:
            continue
        floor = flight[begin:end][now_us[begin:end] >= now_us[end - 1] - HELD_US // 2]
        after = flight[end : np.searchsorted(now_us, now_us[end] + 3 * round_us)]
        level = np.median(floor)
        spread = np.subtract(*np.quantile(floor, [0.75, 0.25]))  # before its last round trip, in which it recovers
        if level < 2 or spread > max(4, level / 2) or not len(after) or after.max() < RECOVERED * level:
            continue
        while begin and flight[begin - 1] > flight[begin]:  # nothing was sent since
            begin -= 1
        found.append(int(ack[begin]))
    return np.array(found, np.int64)


def level_of(flight: Values, now_us: Values, round_us: float) -> Values:
    """Return, for each ACK, the lowest maximum of the data in flight over any round trip around it.

    With a small send buffer the data in flight fall by a half before each write, within every round trip; this ignores
    such falls.
    """
    here, round_us = np.arange(len(flight)), max(round_us, 1)
    most = _largest(flight, np.searchsorted(now_us, now_us - round_us, side="right"), here)
    return -_largest(-most, here, np.searchsorted(now_us, now_us + round_us) - 1)


def _largest(values: Values, first: Ints, last: Ints) -> Values:
    """Return the maxima of ``values[first[k] : last[k] + 1]``."""
    level = np.log2(last - first + 1).astype(int)
    found = np.empty_like(values)
    for j in range(level.max() + 1):  # `values` are the maxima of 2**j
        some = level == j
        found[some] = np.maximum(values[first[some]], values[last[some] + 1 - 2**j])
        values = np.maximum(values[: -(2**j)], values[2**j :])
    return found


def age(follower: Follower) -> int:
    """Return what to add to ``min_rtt_stamp`` so that BBR v1's minimum RTT expires at its next ACK."""
    ticks = JIFFIES_START + int(follower.now_us[follower.row]) * follower.params["hz"] // USEC_PER_SEC
    return ticks - LONG_AGO - int(follower.get("min_rtt_stamp"))
