"""The scale of the receive window where a capture lacks a SYN, inferred from data that fill the window.

A sender never exceeds the window's edge, and one that the window limits fills it to within a segment whenever it sends
[RFC9293] 3.8.6, after every ACK or, for room for a super-packet, after several ([Linux] tcp_tso_should_defer). So the
smallest scale with which all data fit is the receiver's if they reach the edge again and again, though other limits may
hold at other times: data that something else limits come that close only by chance, and as often a little before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cctrace.flows.seqspace import unwrapped
from cctrace.io.captures.packets import OPT_COPY
from cctrace.tcp.flags import ACK, RST, SYN
from cctrace.tcp.sequence import unwrap

if TYPE_CHECKING:
    from cctrace.flows.capture import Capture

MAX_WSCALE = 14  # larger values count as this [RFC 7323] 2.3
MIN_ACKS = 50  # that released data up to the edge: after a few, data that something else limits may reach it, too


def shown_scale(capture: Capture, index: int) -> int | None:
    """Return the scale of the window offered to a connection's sender, or None if its data do not show it."""
    table, packets = capture.connections, capture.packets
    _, rows, _ = capture.seen_by_sender(index)
    rows = rows[packets["options"][rows] & OPT_COPY == 0]
    mine, payload = packets["direction"][rows] == table.sender[index], packets["payload"][rows]
    data, flags = mine & (payload > 0), packets["flags"][rows]
    at = np.flatnonzero(~mine & (flags & (ACK | SYN | RST) == ACK))
    if len(at) < MIN_ACKS or not data.any():
        return None
    base = int(table.sides[index, table.sender[index]]["origin"])
    sent = np.maximum.accumulate(np.where(data, unwrapped(packets["seq"][rows], mine, base) + payload, 0))
    acked = unwrap(packets["ack"][rows[at]].astype(np.int64), base, sent[at])
    window, sent = packets["window"][rows[at]].astype(np.int64), sent[np.append(at[1:], len(rows)) - 1]
    released = np.diff(sent, prepend=0) > 0
    segment = min(int(table.mss[index]), float(np.median(payload[data])))
    for scale in range(MAX_WSCALE + 1):
        left = np.maximum.accumulate(acked + (window << scale)) - sent
        if left.min() >= 0:
            at_edge = np.count_nonzero(left[released] < segment)
            near, before = np.histogram(left[released], [0, 2 * segment, 4 * segment])[0]  # data leave in pairs or more
            return scale if at_edge >= MIN_ACKS and near > before else None
    return None
