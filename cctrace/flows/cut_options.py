"""TCP options that the capture cut: how many SACK blocks and time stamps of a connection it lacks.

A header says how long it is even where its options were not captured. Linux fills them with time stamps (12 bytes, in
every packet once negotiated) and up to four SACK blocks (4 bytes, and 8 each), so that the length says how many blocks
an ACK had. A snaplen of 64 bytes cuts both on Ethernet, one of 80 all SACK blocks but the first, one of 96 nothing.

Sources: RFC 2018, 7323; [Linux618] net/ipv4/tcp_output.c tcp_established_options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.columns import Ints
from cctrace.io.captures.packets import OPT_BAD, OPT_TIMESTAMPS
from cctrace.tcp.flags import RST, SYN

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow

IP_BYTES, TCP_BYTES = (20, 40), 20  # of headers without options: IPv4, IPv6
STAMP_BYTES, SACK_BYTES, BLOCK_BYTES = 12, 4, 8
REMEDY = "record with tcpdump -s 128"
LACKS_SACKS = f"the capture's snaplen cut all SACK blocks ({REMEDY})"


class CutOptions(NamedTuple):
    """What the capture lacks of a connection's options."""

    stamps: int = 0  # packets whose time stamps were cut
    blocks: int = 0  # SACK blocks for the sender that were cut
    of_blocks: int = 0  # that it received
    scale: bool = False  # the scale of the receive window, in a captured SYN

    @property
    def lacks_all_blocks(self) -> bool:
        """Whether the sender received SACK blocks, of which the capture holds none."""
        return self.of_blocks > 0 and self.blocks == self.of_blocks

    @property
    def note(self) -> str:
        """What was cut, what is less sure because of it, and what to do: a sentence; empty if nothing was."""
        window = ", and an application that limits may be the receive window, whose scale was cut" if self.scale else ""
        if self.blocks:
            some = f"all {self.of_blocks:,}" if self.lacks_all_blocks else f"{self.blocks:,} of {self.of_blocks:,}"
            what = f"{some} SACK blocks{' and the time stamps' if self.stamps else ''}"
        elif self.stamps:
            what = "the time stamps"
        else:
            return ""
        return f"the capture's snaplen cut {what}: {self._suffers}{window}; {REMEDY}"

    @property
    def _suffers(self) -> str:
        if self.lacks_all_blocks:
            return (
                "which packets were lost, and when the sender knew, is a guess, so that a replay is wrong after the "
                "first loss, and causes of losses, changes of the rate and the version of a BBR are less sure"
            )
        if self.blocks:
            return "a replay is less sure after losses"
        return "a replay is less sure where timers, needless retransmissions or a queue at the sender matter"


def blocks_sent(flow: Flow, rows: Ints) -> Ints:
    """Return how many SACK blocks these packets of a flow had: as captured or, if cut, by the length of the header."""
    packets = flow.capture.packets
    held = packets["sack_count"][rows].astype(np.int64)
    room = _room(flow, rows) - SACK_BYTES - STAMP_BYTES * _is_stamped(flow)
    return np.where(packets["options"][rows] & OPT_BAD > 0, np.maximum(room // BLOCK_BYTES, held), held)


def _room(flow: Flow, rows: Ints) -> Ints:
    """Return the bytes of the options of packets."""
    packets, ip_bytes = flow.capture.packets, IP_BYTES[":" in str(flow.key[0])]
    return packets["ip_len"][rows].astype(np.int64) - packets["payload"][rows] - ip_bytes - TCP_BYTES


def _later(flow: Flow) -> Ints:
    """Return the rows of a flow's packets but its SYNs, and its RSTs: those of a closed socket have no options."""
    rows = flow.capture.connections.rows_of(flow.index)
    return rows[flow.capture.packets["flags"][rows] & (SYN | RST) == 0]


def _is_stamped(flow: Flow) -> bool:
    """Return whether every packet has room for time stamps."""
    return bool((_room(flow, _later(flow)) >= STAMP_BYTES).all())


def cut_options(flow: Flow) -> CutOptions:
    """Return what the capture cut of a flow's options, and what has not been completed (`cut_sacks`)."""
    packets, connections = flow.capture.packets, flow.capture.connections
    if not packets.counters.get("cut_options", 0):
        return CutOptions()
    rows, every = _later(flow), connections.rows_of(flow.index)
    options = packets["options"][rows]
    stamps = int(((options & OPT_BAD > 0) & (options & OPT_TIMESTAMPS == 0)).sum()) if _is_stamped(flow) else 0
    for_sender = rows[packets["direction"][rows] != connections.sender[flow.index]]
    blocks, held = blocks_sent(flow, for_sender), packets["sack_count"][for_sender].astype(np.int64)
    syns = every[packets["flags"][every] & SYN > 0]
    lacks_scale = bool((packets["options"][syns] & OPT_BAD > 0).any()) and not connections.wscale_known[flow.index]
    return CutOptions(stamps, int((blocks - held).sum()), int(blocks.sum()), lacks_scale)
