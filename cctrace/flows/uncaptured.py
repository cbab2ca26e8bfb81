"""Data missing from a capture: bytes that were acknowledged but not captured.

A gap in the sequence numbers is not necessarily the capture's loss. At a receiver, or on the way, it is a loss on
the path until the retransmission; and a capture that starts in mid-flow cannot contain what was in flight then.
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
    """Return how many payload bytes of a connection's sender were acknowledged but not captured.

    `index`: of the connection. `rtt_ns`: a round trip, within which everything in flight at the start of the
    capture has been acknowledged; NaN unknown.
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
    if not table.sides[index, sender]["syn"]:  # data in flight at the start of the capture do not count
        early = table.clock[rows] <= table.clock[rows[0]] + np.nan_to_num(rtt_ns, nan=1e9)
        least = int(max(1, near[early].max(initial=1), acked[early].max(initial=1)))
    data = mine & (packets["payload"][rows] > 0)
    order = np.argsort(begin[data], kind="stable")
    begin, end = begin[data][order], np.maximum.accumulate(np.maximum(end[data][order], least))
    before = np.append(least, end)  # everything up to here was captured, or does not count
    until = np.append(begin, np.int64(acked.max(initial=0)))
    gaps = np.minimum(until, acked.max(initial=0)) - before
    return int(gaps[gaps > SINGLE].sum())
