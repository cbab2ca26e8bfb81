"""Selection of a flow's polled connection by its RTTs, if neither addresses nor progress identify it.

The history of a smoothed RTT is characteristic: two flows through one queue have similar RTTs, but rarely the same
at one time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cctrace.display import endpoint
from cctrace.errors import ArgumentError

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow
    from cctrace.flows.offset import Alignment
    from cctrace.io.counters.tcpinfo import TcpInfo

ABOUT_NS = 20_000_000  # pollers running `ss` in a shell take their time this much before or after the kernel's answer
SAME = 0.005  # of the RTT, or SAME_US: what is printed in milliseconds is rounded
SAME_US = 2
LEAST = 0.25  # share of agreeing polls below which the RTTs are another flow's


def alike(flow: Flow, polls: TcpInfo) -> float:
    """Return the share of polls close to which the flow's own smoothed RTT equals the polled one; 0 without any."""
    known = np.flatnonzero((polls["rtt"] > 0) & (polls["time_ns"] > 0))
    known = known[np.argsort(polls["time_ns"][known], kind="stable")]
    if not len(known):
        return 0.0
    rtt = polls["rtt"][known]
    moments = np.column_stack([polls["time_ns"][known] - ABOUT_NS, polls["time_after_ns"][known] + ABOUT_NS])
    states = flow.answers(moments)
    near = np.abs(states["rtt"] - rtt[states["poll"]]) <= np.maximum(SAME * rtt[states["poll"]], SAME_US)
    return len(np.unique(states["poll"][near])) / len(known)


def most_alike(flow: Flow, found: list[tuple[TcpInfo, Alignment]]) -> tuple[TcpInfo, Alignment]:
    """Return the (polls, `Alignment`) whose RTTs are the flow's. Raises `ArgumentError` if none are."""
    shares = [alike(flow, polls) for polls, _ in found]
    best = int(np.argmax(shares))
    if shares[best] < LEAST:
        src, sport, dst, dport = flow.key
        raise ArgumentError(
            f"{found[0][0].source}: none of {len(found)} connections without addresses has the RTTs of "
            f"{endpoint(src, sport)} -> {endpoint(dst, dport)}"
        )
    return found[best]
