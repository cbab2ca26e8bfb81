"""What a capture lacks of a flow: bytes that were acknowledged, and that it never shows.

A gap in the sequence numbers is not yet lost by the capture. At a receiver, or on the way, it is what the path has
dropped, until the sender sends it again; and a capture that begins in mid-flow cannot show what was in flight then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cctrace.flows.seqspace import unwrapped
from cctrace.flows.state import ACK, RST, SYN
from cctrace.tcp.sequence import unwrap

if TYPE_CHECKING:
    from cctrace.flows.capture import Capture

SINGLE = 1  # byte, of a FIN, or of a probe of a shut window: no data that the capture lacks


def uncaptured_bytes(capture: Capture, index: int, rtt_ns: float) -> int:
    """Return how many payload bytes of a connection's sender were acknowledged, but never shown.

    `index`: of the connection. `rtt_ns`: a round trip, within which all that was in flight when the capture began has
    been told of; NaN unknown.
    """
    table, packets = capture.connections, capture.packets
    rows = table.order[table.first[index] : table.first[index + 1]]
    sender = int(table.sender[index])
    base = int(table.sides[index, sender]["base"])
    mine = packets["direction"][rows] == sender
    begin = unwrapped(packets["seq"][rows], mine, base)
    end = begin + packets["payload"][rows]
    near = np.maximum.accumulate(np.where(mine, end, 0))
    is_ack = ~mine & ((packets["flags"][rows] & (ACK | SYN | RST)) == ACK)
    acked = np.where(is_ack, unwrap(packets["ack"][rows].astype(np.int64), base, near), 0)
    least = 1
    if not table.sides[index, sender]["syn"]:  # what was in flight when the capture began is not its to show
        early = table.clock[rows] <= table.clock[rows[0]] + np.nan_to_num(rtt_ns, nan=1e9)
        least = int(max(1, near[early].max(initial=1), acked[early].max(initial=1)))
    data = mine & (packets["payload"][rows] > 0)
    order = np.argsort(begin[data], kind="stable")
    begin, end = begin[data][order], np.maximum.accumulate(np.maximum(end[data][order], least))
    before = np.append(least, end)  # all up to here is shown, or is not asked for
    until = np.append(begin, np.int64(acked.max(initial=0)))
    gaps = np.minimum(until, acked.max(initial=0)) - before
    return int(gaps[gaps > SINGLE].sum())
