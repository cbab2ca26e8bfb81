"""The timeline of both ends, packet by packet, as tcptrace and Wireshark's flow graph draw it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import number, whole
from cctrace.display import endpoint
from cctrace.errors import ArgumentError
from cctrace.path.transmissions import as_flow
from cctrace.plot.figure import one_panel
from cctrace.plot.packets import KINDS, RETRANSMISSIONS, Received, Sent, packets_of
from cctrace.plot.panels import COLOURS
from cctrace.tcp.flags import FIN, RST, SYN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cctrace.flows.flow import Flow

_MOST = 200
_SLOPE = 0.45  # of a row: an arrow leaves before it arrives
_FLAGS = ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"))


def ladder(flow: Flow, start_s: float = 0.0, packets: int = 40, *, title: str = "") -> Figure:
    """Draw packets as arrows between the two ends, a row each, with their times and frame numbers.

    The level end of an arrow is the capture's; the other end is drawn, not measured.

    Parameters
    ----------
    flow : Flow
    start_s : float
        From here on, seconds since the first packet.
    packets : int
        How many, 200 at most.
    title : str, optional

    Raises
    ------
    ArgumentError
        If there is no packet from then on, or `packets` is out of range.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> len(ladder(flow, packets=12).axes[0].patches)
    12
    """
    flow = as_flow(flow)
    rows = _rows(flow, number("start_s", start_s), whole("packets", packets, 1, _MOST))
    if not rows:
        raise ArgumentError(f"start_s={start_s}: no packet from then on; the flow has {flow.row['duration_s']:.3g} s")
    drawing, axes = one_panel((7.6, 0.8 + 0.24 * len(rows)), title)
    from matplotlib.patches import FancyArrowPatch  # late: `one_panel` says how to install it

    axes.vlines([0, 1], -1, len(rows), color="#444", lw=1.2)
    src, sport, dst, dport = flow.key
    for x, host, port in ((0, src, sport), (1, dst, dport)):
        axes.text(x, -1.2, endpoint(host, port), ha="center", va="bottom", fontsize=9, fontweight="bold")
    at_receiver = flow.taken_at == "receiver"
    for y, (forth, time_s, frame, text, colour) in enumerate(rows):
        leaves = forth != at_receiver  # where the capture was taken
        start, end = (y, y + _SLOPE) if leaves else (y - _SLOPE, y)
        tail, head = ((0, start), (1, end)) if forth else ((1, start), (0, end))
        style: dict[str, Any] = {"arrowstyle": "-|>", "color": colour, "lw": 1.1, "shrinkA": 0, "shrinkB": 0}
        axes.add_patch(FancyArrowPatch(tail, head, mutation_scale=9, **style))
        beside: dict[str, Any] = {"va": "bottom" if leaves else "top", "ha": "center", "fontsize": 7.5, "color": colour}
        axes.text(0.5, (start + end) / 2 + (-0.1 if leaves else 0.1), text, **beside)
        axes.text(-0.03, y, f"{time_s:.6f} s", ha="right", va="center", fontsize=7.5)
        axes.text(1.03, y, f"frame {frame}" if frame else "", ha="left", va="center", fontsize=7.5, color="#555")
    axes.set(xlim=(-0.28, 1.22), ylim=(len(rows) + 0.3, -2.0))
    axes.axis("off")
    return drawing


def _rows(flow: Flow, start_s: float, packets: int) -> list[tuple[bool, float, int, str, str]]:
    """Return (from the sender, seconds, frame, words, colour) of packets in the order of time."""
    start_ns = flow.row["start_ns"]
    low_ns = start_ns + round(start_s * 1e9)
    found = []
    sent, received = packets_of(flow)
    sides: list[tuple[Sent | Received, Callable[[Any, int], tuple[str, str]]]]
    sides = [(sent, _of_sent), (received, _of_received)]
    for side, described in sides:
        order = np.argsort(side.time_ns, kind="stable")
        for i in order[np.searchsorted(side.time_ns[order], low_ns) :][:packets]:
            words, colour = described(side, int(i))
            found.append((int(side.time_ns[i]), side is received, int(side.frame[i]), words, colour))
    found.sort(key=lambda one: one[:2])
    return [
        (not back, (time_ns - start_ns) / 1e9, frame, words, colour)
        for time_ns, back, frame, words, colour in found[:packets]
    ]


def _flags(flags: int) -> list[str]:
    return [name for bit, name in _FLAGS if flags & bit]


def _of_sent(sent: Any, i: int) -> tuple[str, str]:
    kind = KINDS[sent.kind[i]]
    meaning, word = RETRANSMISSIONS.get(kind, ("observed", ""))
    size, seq = int(sent.size[i]), int(sent.seq[i])
    parts = [*_flags(sent.flags[i]), f"{seq:,} to {seq + size:,} ({size:,} B)" if size else "no data", word]
    return ", ".join(part for part in parts if part), COLOURS[meaning]


def _of_received(received: Any, i: int) -> tuple[str, str]:
    ack = int(received.ack[i])
    first = int(received.blocks[:i].sum())
    parts = [*_flags(received.flags[i]), f"ACK {ack:,}" if ack >= 0 else "no ACK"]
    if received.window[i] >= 0:
        parts.append(f"window {int(received.window[i]):,}")
    for k in range(first, first + int(received.blocks[i])):
        parts.append(f"SACK {int(received.left[k]):,} to {int(received.right[k]):,}")
    return ", ".join(parts), COLOURS["estimate"]
