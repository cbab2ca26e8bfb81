"""Quality of a captured flow: what the capture lacks, and what was assumed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cctrace.flows.uncaptured import uncaptured_bytes
from cctrace.flows.vantage import CONFIDENCE, PLACES

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow

DAY_S = 86_400
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
        "time_steps_back": int(flow.capture.packets.counters.get("back_steps", 0)),
        "inferred": flow.facts["inferred"],
        "warnings": [*flow.row["warnings"], *flow.capture.warnings],
    }


def _uncaptured_segments(flow: Flow, made_up: int) -> int:
    """Return how many of these segments the sender sent during the capture."""
    rtt_us = flow.row["rtt_median_us"]  # None without a sample
    rtt_ns = 1e3 * rtt_us if isinstance(rtt_us, int) else math.nan
    lacking = uncaptured_bytes(flow.capture, flow.index, rtt_ns)
    return min(made_up, -(-lacking // int(flow.capture.connections.mss[flow.index])))
