"""How the socket and the kernel pace, from counters or departure times: limit, pacing of CUBIC and Reno, super-packets.

`socket_limit`: SO_MAX_PACING_RATE, from attached counters or else from departure times.

`likely_paced`: whether the stack paces a controller that sets no rate. It does under fq, with SO_MAX_PACING_RATE, or
after a BBR on the same socket: at twice cwnd / RTT in slow start and 1.2 times later [Linux618] tcp_update_pacing_rate.
Otherwise what an ACK makes room for is sent at once. Both are replayed from the start and scored by departure times and
room in cwnd (`likelihood.timed_send`), not by sizes of super-packets, which depend on more than this. Sends between two
calls count together, and n calls in 0.2 s after which both differ as sqrt(n): where the receive window limits a sender
after a short slow start, pacing shows in that alone. If the recorded sender ran another controller, neither explains
the sends, and the answer is 0.

`likely_gso`: which of two lengths the super-packets of a BBRv2 have, of kernels before and after Linux 5.19.

`may_heed_marks`: whether ``ecn_enable`` of a BBRv2 or v3 can make a difference.
"""

import math
import weakref
from typing import Any

import numpy as np

from cctrace.cc.base import Controller
from cctrace.columns import Floats, Ints
from cctrace.flows.events import Events
from cctrace.flows.flow import Flow
from cctrace.flows.source import FlowSource
from cctrace.lang.machine import Machine
from cctrace.replaying.engine import context as cx
from cctrace.replaying.engine.follow import Follower
from cctrace.replaying.engine.new_context import TIME_ERROR_ELSEWHERE
from cctrace.replaying.engine.script import Script
from cctrace.replaying.engine.waiting import answers_acks, own_sends, shows_no_timer
from cctrace.replaying.inference.hypotheses import FALSE_ALARM, LARGEST_DRAW
from cctrace.replaying.intervals import stops_until
from cctrace.tcp.pacing import UNPACED_SEGMENTS, near_peer_bytes

TEMPER = 0.5  # successive intervals are correlated
MAX_ROWS = 60_000  # of the stream that are replayed
# Super-packets over which a rate is measured: after a late one, the next may follow half its length sooner [Linux618]
# tcp_update_skb_after_send.
TOGETHER = 8
SAME_RATE = 0.005  # relative error of such a rate, as the timer is late
FEW = 0.02  # share of super-packets, or of packets, that may be exceptions
MARGIN = (
    0.02  # relative; twice a BBR's pacing margin, so that a rate within it is the limit or the bandwidth measured at it
)
_evident: weakref.WeakKeyDictionary[Events, int | None] = weakref.WeakKeyDictionary()  # results of `_evident_limit`
EXPLAINED = -0.5  # mean log likelihood of a send: some +2 for the sender's own controller, -1 and far less for others


def socket_limit(flow: FlowSource | None) -> int | None:
    """Return the SO_MAX_PACING_RATE of a flow's socket, bytes/s, from attached counters or else from its sends.

    0 if the counters give several; None for no limit, or none that the sends show.
    """
    info = flow.tcpinfo if flow else None
    limits = None if info is None else (info.columns | info.extra).get("max_pacing_rate")
    if limits is None:
        if not isinstance(flow, Flow):
            return None
        if flow.events not in _evident:
            _evident[flow.events] = _evident_limit(flow)
        return _evident[flow.events]
    known = np.unique(limits[limits > 0])
    if not len(known):
        return None
    return int(known[0]) if len(known) == 1 else 0


def under_limit(cls: type[Controller], limit_Bps: int | None) -> dict[str, int]:
    """Return the parameters of `cls` that `socket_limit` settles: it paces, up to this rate."""
    if limit_Bps is None:
        return {}
    high = int(cls.params["max_pacing_rate"].high) if "max_pacing_rate" in cls.params else 0
    found = {"paced": 1, "max_pacing_rate": min(limit_Bps, high)}
    return {name: value for name, value in found.items() if name in cls.params}


def behind_fq(cls: type[Controller]) -> dict[str, int]:
    """Return the parameters of `cls` that hand-over to fq settles: the socket paces, but by no timer of the stack."""
    return {name: value for name, value in {"paced": 1, "internal_pacing": 0}.items() if name in cls.params}


def _evident_limit(flow: Flow) -> int | None:
    """Return the rate that no send of a flow exceeds and most have, bytes/s; None if there is none.

    Without a limit, a BBR exceeds its usual rate in STARTUP, by 2.77 times, and in each probe. ACKs that come at the
    bottleneck's rate release data at that rate, but just after the ACKs, and twice as fast in slow start.
    """
    if not flow.facts["complete"] or flow.taken_at != "sender" or "start_ns" in flow.facts["inferred"]:
        return None
    events, sends = flow.events, flow.events.sends
    answers = answers_acks(events, sends)
    bytes_before, tx_ns = np.zeros((2, len(answers)), np.int64)
    number, partly = _find_paced(sends, max(events.meta["mss"], 1), bytes_before, tx_ns)
    if number < 2 * TOGETHER or partly / len(sends) > FEW:
        return None  # short ends of writes: the rate is then the application's
    bytes_before, tx_ns, answers = bytes_before[:number], tx_ns[:number], answers[len(answers) - number :]
    took_ns = tx_ns[TOGETHER:] - tx_ns[:-TOGETHER]
    if took_ns.sum() <= 0:
        return None  # the clock was set back by more than the flow lasted
    rate_Bps = _rates(bytes_before, tx_ns, TOGETHER)
    # Most flows have no limit, which shows without sorting: the greatest rate exceeds most rates by more than MARGIN.
    exceeded = rate_Bps * ((1 + MARGIN) * (1 + 1 / TOGETHER)) < (1 - 1e-9) * rate_Bps.max()
    if took_ns.min() >= 0 and 2 * took_ns[exceeded].sum() >= took_ns.sum():
        return None
    order = np.argsort(rate_Bps)
    usual_Bps = rate_Bps[order][np.searchsorted(np.cumsum(took_ns[order]), took_ns.sum() / 2)]
    at_it = np.abs(rate_Bps / usual_Bps - 1) < MARGIN
    # A BBR is at its limit only while it probes, and a percent below it otherwise. Short super-packets seem faster.
    highest = np.sort(rate_Bps[at_it])[::-1]
    few = max(2 * TOGETHER, round(FEW * len(rate_Bps)))
    several = highest[few:] > (1 - SAME_RATE) * highest[:-few]
    if not several.any() or 2 * took_ns[at_it].sum() < took_ns.sum():
        return None
    first = int(np.argmax(several))
    top_Bps = highest[first]
    # The rates of a BBR that measured nearly the limit are within SAME_RATE of it; those that fq paces scatter less.
    scatter = min(2 * (1 - highest[first + few] / top_Bps), SAME_RATE)
    limit_Bps = float(np.median(highest[np.abs(highest / top_Bps - 1) <= scatter]))
    if rate_Bps.max() > limit_Bps * (1 + 1 / TOGETHER):
        return None
    # Without a queue ACKs return at the limit, too, each just before a send; earlier sends show what clocks them.
    slower = int(np.argmax(rate_Bps > (1 - MARGIN) * limit_Bps))
    if np.mean(answers[: slower if slower >= 2 * TOGETHER else len(answers)]) > 1 / 2:
        return None
    together = TOGETHER
    while number > 4 * together:  # over more super-packets lateness matters less; errors add up in a replay
        together *= 2
        longer_Bps = _rates(bytes_before, tx_ns, together)
        near = np.abs(longer_Bps / limit_Bps - 1) < SAME_RATE * TOGETHER / together
        if 2 * np.count_nonzero(near) < np.count_nonzero(at_it):
            break  # the flow was not at its limit for as long as this
        limit_Bps = float(np.median(longer_Bps[near]))
    return round(limit_Bps)


def find_paced(sends: Any, mss: int, bytes_before: Ints, tx_ns: Ints) -> tuple[int, int]:
    """Fill in when each super-packet left, and the bytes sent before it, but for the first ones, which are not paced.

    Returns how many there are, and how many packets end in less than a segment.
    """
    sent, segments = np.int64(0), np.int64(0)
    number, partly = 0, 0
    for k in range(sends.size):
        send = sends[k]
        payload = np.int64(send.payload)
        segments += np.int64(send.segments)
        if send.begins != 0 and segments > UNPACED_SEGMENTS:
            bytes_before[number], tx_ns[number] = sent, send.tx_ns
            number += 1
        if payload != mss and payload % mss != 0:
            partly += 1
        sent += payload
    return number, partly


_find_paced = Machine(find_paced)


def _rates(bytes_before: Ints, tx_ns: Ints, together: int) -> Floats:
    """Return the rate of each run of so many successive super-packets, bytes/s."""
    took_ns = np.maximum(tx_ns[together:] - tx_ns[:-together], 1)
    return (bytes_before[together:] - bytes_before[:-together]) / took_ns * 1e9


def likely_paced(follower: Follower) -> int:
    """Return 1 if pacing by the stack explains the sends, and clearly better than no pacing, else 0.

    If each send follows an ACK at once, there was no pacing timer; pacing would only excuse a window that is not full.

    `follower`: compiled, at row 0, of a controller that sets no pacing rate; it is left there.
    """
    stops = stops_until(follower.events, MAX_ROWS)
    if not len(stops) or follower.ctx[cx.TIME_ERROR] >= TIME_ERROR_ELSEWHERE:
        return 0  # estimated times are not informative
    if shows_no_timer(follower.events, follower.sends):
        return 0
    own = own_sends(follower.events, follower.sends)  # the application timed the others
    rows, sent = np.unique(follower.sends["row"][own], return_counts=True)
    rows, sent = rows[rows < stops[-1]], sent[rows < stops[-1]]
    if not len(rows):
        return 0
    before, given = follower.save(), follower.params["paced"]
    likelihood = []
    for paced in (0, 1):
        likelihood.append(follower.score(Script([], [], paced=paced), rows + 1, cx.OWN_SENDS))
        follower.restore(before)
    follower.set_paced(given)
    interval = np.searchsorted(stops, rows, side="right")
    number, better = np.bincount(interval, sent), likelihood[1] - likelihood[0]
    differing = np.maximum(np.bincount(interval, better != 0), 1)
    ratio = TEMPER * float(np.sum(np.bincount(interval, better) / np.sqrt(differing)))
    mean = np.bincount(interval, likelihood[1])[number > 0] / number[number > 0]
    return int(ratio > math.log(1 / FALSE_ALARM) and float(np.mean(mean)) > EXPLAINED)


def may_heed_marks(follower: Follower) -> bool:
    """Whether ``ecn_enable`` of a BBRv2 or v3 makes a difference: marks were counted, and the path is short enough."""
    rows = follower.events
    if "ecn_enable" not in follower.cls.params or not len(follower.sends):
        return False
    first, last = rows.at("delivered_ce", [0, -1])  # a counter
    if first == last:
        return False
    longest_us = follower.params["ecn_max_rtt_us"]
    return bool(longest_us == 0 or rows["tcp_min_rtt_us"].min() <= longest_us)


def gso_choices(follower: Follower) -> tuple[int, ...]:
    """Return the values of ``gso_max_bytes`` that a BBRv2 may have had, beginning with that of its parameters.

    When it was released GSO_MAX_SIZE was 64 kB. On Linux 5.19 and later it is more, which makes super-packets over
    short paths longer, and windows larger.
    """
    param = follower.cls.params.get("gso_max_bytes")
    if param is None or not len(follower.sends):
        return ()
    given, most = int(follower.params["gso_max_bytes"]), int(param.high)
    near = given != most and near_peer_bytes(most, follower.events.last("tcp_min_rtt_us"))
    return (given, most) if near else (given,)


def likely_gso(follower: Follower) -> int | None:
    """Return the ``gso_max_bytes`` of a BBRv2, by times and sizes of its sends up to the second draw; None: as given.

    `follower` is at row 0, where it is left.
    """
    choices = gso_choices(follower)
    if len(choices) < 2:
        return None
    before, scripts, ends = follower.save(), [], []
    for value in choices:
        follower.set_gso(value)
        follower.run()
        follower.draw([LARGEST_DRAW] * len(follower.cls.probe_draws))
        ends.append(follower.run())
        scripts.append(Script(follower.draws[: follower.drawn].tolist(), [], gso_max_bytes=value))
        follower.restore(before)
    likelihood = []
    for script in scripts:
        likelihood.append(float(follower.score(script, [min(ends)], cx.PACED_SENDS)[0]))
        follower.restore(before)
    follower.set_gso(choices[0])
    return choices[1] if likelihood[1] > likelihood[0] else None
