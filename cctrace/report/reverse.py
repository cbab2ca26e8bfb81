"""The card about the reverse direction of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cctrace.report.elements import card, figures
from cctrace.units import format_size, format_time

if TYPE_CHECKING:
    from cctrace.report.page import FlowSection


_TIMES = {
    "sender": "Captured at the bulk sender: these are the times that this host took to answer, without the path.",
    "receiver": "Captured at the receiver of the bulk data: these are RTTs of the path, as that end sees them.",
}
_ELSEWHERE = "They reach from where it was captured to the bulk sender and back."


def reverse_card(flow: FlowSection) -> str:
    """Return a folded card: bytes, packets, response times; empty if the direction is unknown."""
    reverse = flow.reverse
    if not reverse:
        return ""
    carried = "acknowledgements only"
    if reverse["data_packets"]:
        messages = "one message" if reverse["messages"] == 1 else f"{reverse['messages']:,} messages"
        carried = f"{format_size(reverse['payload_bytes'])} of data in {messages}"
    is_timed = reverse["answered_us"] or reverse["echoed_us"]
    times = f'<p class="soft">{_TIMES.get(flow.taken_at, _ELSEWHERE)}</p>' if is_timed else ""
    return card(
        f"The other direction: {reverse['packets']:,} packets, {carried}", figures(_figures(reverse)) + times, "reverse"
    )


def _figures(reverse: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("Packets", f"{reverse['packets']:,}"), ("Pure ACKs", f"{reverse['pure_acks']:,}")]
    if reverse["bytes_per_ack"]:
        rows.append(("Data per pure ACK", format_size(reverse["bytes_per_ack"])))
    if reverse["data_packets"]:
        rows += [
            ("Data", format_size(reverse["payload_bytes"])),
            ("Packets with data", f"{reverse['data_packets']:,}"),
            ("Retransmitted", f"{reverse['retransmitted_packets']:,}"),
        ]
    marks = (("With SACK", "sack_packets"), ("Window of 0", "zero_windows"), ("ECN echo", "ece_packets"))
    rows += [(name, f"{reverse[key]:,}") for name, key in marks if reverse[key]]
    for name, key in (("Data acknowledged after", "answered_us"), ("Time stamps echoed after", "echoed_us")):
        for which, us in (reverse[key] or {}).items():
            rows.append((f"{name}, {which}", format_time(us * 1e3)))
    return rows
