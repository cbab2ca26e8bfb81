"""Quality of a captured flow: what the capture lacks, and what was assumed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.flows.cut_options import cut_options
from cctrace.flows.seqspace import unwrapped
from cctrace.flows.vantage import CONFIDENCE, PLACES
from cctrace.tcp.flags import ACK, RST, SYN
from cctrace.tcp.sequence import unwrap

if TYPE_CHECKING:
    from cctrace.flows.capture import Capture
    from cctrace.flows.flow import Flow

DAY_S = 86_400
SINGLE = 1  # byte, of a FIN, or of a probe of a shut window: no data that the capture lacks
LONGEST_S = 30 * DAY_S  # longest reconstructed connection; the cost grows with its duration


def not_reconstructed(flow: Flow) -> str:
    """Return why a connection cannot be reconstructed, "" if it can."""
    c = flow.capture.connections
    mine, other = c.sides[flow.index, c.sender[flow.index]], c.sides[flow.index, 1 - c.sender[flow.index]]
    if mine["distinct_bytes"] == 0:
        if max(mine["ack_span"], other["ack_span"]) > 3:  # more than SYN and FIN was acknowledged
            return "only acknowledgements were captured, the data direction is missing"
        return "it has no payload"
    if other["packets"] and not mine["has_ack"]:
        return "no acknowledgement of its data was captured"
    if other["packets"] == 0:
        return "the acknowledgements are missing; capture both directions"
    days = flow.row["duration_s"] / DAY_S
    if flow.row["duration_s"] > LONGEST_S:
        return (
            f"its packets span {days:,.0f} days, and {LONGEST_S // DAY_S} are the most; where a clock was set in "
            "between, cut the capture there"
        )
    return ""


def quality(flow: Flow, unexplained: int, made_up: int) -> dict[str, Any]:
    """Return the result of `Flow.quality`; `made_up` are segments acknowledged but not captured."""
    connections, i = flow.capture.connections, flow.index
    side = connections.sides[i, connections.sender[i]]
    place, confidence, away_ns = (int(column[i]) for column in connections.vantage)
    cut = cut_options(flow)
    return {
        "complete": flow.facts["complete"],
        "taken_at": PLACES[place],
        "taken_at_confidence": CONFIDENCE[confidence],
        "sender_side_us": away_ns // 1000,
        "uncaptured_segments": _uncaptured_segments(flow, made_up) if made_up else 0,
        "out_of_order": int(side["out_of_order"]),
        "unexplained_retransmissions": unexplained,
        "not_counted": {
            "copies": int(side["copies"]),
            "syns": max(0, int(side["syn_count"]) - 1),
            "fins": max(0, int(side["fins"]) - 1),
            "single_bytes": int(side["single"]),
        },
        "options_cut": {"time_stamps": cut.stamps, "sack_blocks": cut.blocks, "of_sack_blocks": cut.of_blocks},
        "time_steps_back": int(flow.capture.packets.counters.get("back_steps", 0)),
        "inferred": flow.facts["inferred"],
        "warnings": [*flow.row["warnings"], *flow.capture.warnings, *filter(None, [cut.note])],
    }


def _uncaptured_segments(flow: Flow, made_up: int) -> int:
    """Return how many of these segments the sender sent during the capture."""
    rtt_us = flow.row["rtt_median_us"]  # None without a sample
    rtt_ns = 1e3 * rtt_us if isinstance(rtt_us, int) else math.nan
    lacking = uncaptured_bytes(flow.capture, flow.index, rtt_ns)
    return min(made_up, -(-lacking // int(flow.capture.connections.mss[flow.index])))


def uncaptured_bytes(capture: Capture, index: int, rtt_ns: float) -> int:
    """Return how many payload bytes of a connection's sender were acknowledged but not captured.

    A gap in the sequence numbers is not necessarily the capture's loss. At a receiver, or on the way, it is a loss on
    the path until the retransmission; and a capture that starts in mid-flow cannot contain what was in flight then.

    `index`: of the connection. `rtt_ns`: a round trip, within which everything in flight at the start of the
    capture has been acknowledged; NaN unknown.
    """
    table, packets = capture.connections, capture.packets
    rows = table.rows_of(index)
    sender = int(table.sender[index])
    base = int(table.sides[index, sender]["origin"])
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
