"""The card about the reverse direction of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cctrace.display import escape
from cctrace.units import format_size, format_time

if TYPE_CHECKING:
    from cctrace.report.page import FlowSection


_SEEN = {
    "sender": "Captured at the bulk sender: these are the times that this host took to answer, without the path.",
    "receiver": "Captured at the receiver of the bulk data: these are RTTs of the path, as that end sees them.",
}
_ELSEWHERE = "They reach from where it was captured to the bulk sender and back."


def reverse_card(flow: FlowSection) -> str:
    """Return a folded card: bytes, packets, response times; empty if the direction is unknown."""
    found = flow.reverse
    if not found:
        return ""
    figures = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in _figures(found))
    times = f'<p class="soft">{_SEEN.get(flow.taken_at, _ELSEWHERE)}</p>' if _timed(found) else ""
    return (
        f'<details class="card reverse"><summary>The other direction: {escape(_carried(found))}</summary>'
        f'<dl class="figures">{figures}</dl>{times}</details>'
    )


def _carried(found: dict[str, Any]) -> str:
    """Return in words what the other end sent."""
    if not found["data_packets"]:
        return f"{found['packets']:,} packets, acknowledgements only"
    messages = "one message" if found["messages"] == 1 else f"{found['messages']:,} messages"
    return f"{found['packets']:,} packets, {format_size(found['payload_bytes'])} of data in {messages}"


def _timed(found: dict[str, Any]) -> bool:
    return bool(found["answered_us"] or found["echoed_us"])


def _figures(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("Packets", f"{found['packets']:,}"), ("Pure ACKs", f"{found['pure_acks']:,}")]
    if found["bytes_per_ack"]:
        rows.append(("Data per pure ACK", format_size(found["bytes_per_ack"])))
    if found["data_packets"]:
        rows += [
            ("Data", format_size(found["payload_bytes"])),
            ("Packets with data", f"{found['data_packets']:,}"),
            ("Retransmitted", f"{found['retransmitted_packets']:,}"),
        ]
    marks = (("With SACK", "sack_packets"), ("Window of 0", "zero_windows"), ("ECN echo", "ece_packets"))
    rows += [(name, f"{found[key]:,}") for name, key in marks if found[key]]
    for name, key in (("Data acknowledged after", "answered_us"), ("Time stamps echoed after", "echoed_us")):
        for which, us in (found[key] or {}).items():
            rows.append((f"{name}, {which}", format_time(us * 1e3)))
    return rows
