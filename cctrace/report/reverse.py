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
    found = flow.reverse
    if not found:
        return ""
    carried = "acknowledgements only"
    if found["data_packets"]:
        messages = "one message" if found["messages"] == 1 else f"{found['messages']:,} messages"
        carried = f"{format_size(found['payload_bytes'])} of data in {messages}"
    is_timed = found["answered_us"] or found["echoed_us"]
    times = f'<p class="soft">{_TIMES.get(flow.taken_at, _ELSEWHERE)}</p>' if is_timed else ""
    return card(
        f"The other direction: {found['packets']:,} packets, {carried}", figures(_figures(found)) + times, "reverse"
    )


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
