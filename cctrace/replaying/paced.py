"""What the socket and the kernel add to a controller's pacing: SO_MAX_PACING_RATE, pacing without a rate, long bursts.

`socket_limit` takes the first from attached counters; departure times at the sender decide the others.

Under fq, with SO_MAX_PACING_RATE, or after a BBR, the stack paces Reno and CUBIC, at twice cwnd / RTT in slow start
and 1.2 times later [Linux618] tcp_update_pacing_rate; otherwise they send at once what an ACK makes room for. Both
are replayed from the start, and scored by departure times and room in cwnd (`likelihood.timed_send`; not by
super-packet sizes, which depend on more than this). Intervals of 0.2 s count once. If the recorded sender ran
another controller, neither explains the sends, and the result is open (`likely_paced`). `likely_gso` compares the
two sizes of bursts that a BBRv2 has on kernels before and after Linux 5.19.
"""

import math

import numpy as np

from cctrace.cc.base import Controller
from cctrace.flows.source import FlowSource
from cctrace.replaying import book as bk
from cctrace.replaying.follow import BLUR_ELSEWHERE, Follower
from cctrace.replaying.hypotheses import FALSE_ALARM, LONGEST
from cctrace.replaying.intervals import blocks
from cctrace.replaying.script import Script
from cctrace.tcp.pacing import near_peer_bytes

TEMPER = 0.5  # successive intervals are correlated
MOST_ROWS = 60_000  # of the stream
EXPLAINED = -0.5  # mean log likelihood of a send: some +2 for the sender's own controller, -1 and far less for others


def socket_limit(flow: FlowSource | None, cls: type[Controller]) -> dict[str, int]:
    """Return the parameters of `cls` that attached counters with an SO_MAX_PACING_RATE settle: it paces, up to this."""
    info = flow.tcpinfo if flow else None
    limits = None if info is None else (info.columns | info.extra).get("max_pacing_rate")
    known = np.zeros(0) if limits is None else np.unique(limits[limits > 0])
    found = {"paced": 1} if len(known) else {}
    if len(known) == 1 and "max_pacing_rate" in cls.params:
        found["max_pacing_rate"] = min(int(known[0]), int(cls.params["max_pacing_rate"].high))
    return {name: value for name, value in found.items() if name in cls.params}


def likely_paced(follower: Follower) -> int:
    """Return 1 if a pacing socket explains the sends, and clearly better than one that does not, else 0.

    `follower`: compiled, at row 0, of a controller that sets no pacing rate; it is left there.
    """
    stops, sent = blocks(follower.events)
    looked = int(np.sum(stops <= MOST_ROWS))
    if not looked or follower.book[bk.BLUR] >= BLUR_ELSEWHERE:
        return 0  # estimated times are not informative
    stops, sent = stops[:looked], np.maximum(sent[:looked], 1)
    before, given = follower.save(), follower.params["paced"]
    likelihood = []
    for paced in (0, 1):
        likelihood.append(follower.score(Script([], [], paced=paced), stops, bk.TIMED_SENDS) / sent)
        follower.restore(before)
    follower.set_paced(given)
    better = TEMPER * float(np.sum(likelihood[1] - likelihood[0]))
    return int(better > math.log(1 / FALSE_ALARM) and float(np.mean(likelihood[1])) > EXPLAINED)


def may_heed_marks(follower: Follower) -> bool:
    """Whether ``ecn_enable`` makes a difference to a BBRv2 or v3: marks were counted on a path short enough for it."""
    rows = follower.events
    if "ecn_enable" not in follower.cls.params or not len(follower.sends) or not np.ptp(rows["delivered_ce"]):
        return False
    longest_us = follower.params["ecn_max_rtt_us"]
    return bool(longest_us == 0 or rows["tcp_min_rtt_us"].min() <= longest_us)


def likely_gso(follower: Follower) -> int | None:
    """Return the ``gso_max_bytes`` of a BBRv2 by its sends up to its second random draw; None: as given.

    The release took GSO_MAX_SIZE for 64 kB; ported to Linux 5.19 and later, it has longer super-packets over short
    paths, and with them larger windows. `follower` is at row 0, where it is left.
    """
    param, rtts_us = follower.cls.params.get("gso_max_bytes"), follower.events["tcp_min_rtt_us"]
    if param is None or follower.params["gso_max_bytes"] == param.high or not len(follower.sends):
        return None
    if near_peer_bytes(int(param.high), int(rtts_us[-1])) == 0:
        return None
    before, given = follower.save(), int(follower.params["gso_max_bytes"])
    scripts, ends = [], []
    for value in (given, int(param.high)):
        follower.set_gso(value)
        follower.run()
        follower.draw([LONGEST] * len(follower.cls.probe_draws))
        ends.append(follower.run())
        scripts.append(Script(follower.draws[: follower.drawn].tolist(), [], gso_max_bytes=value))
        follower.restore(before)
    likelihood = []
    for script in scripts:
        likelihood.append(float(follower.score(script, [min(ends)], bk.TIMED_SENDS)[0]))
        follower.restore(before)
    follower.set_gso(given)
    return int(param.high) if likelihood[1] > likelihood[0] else None
