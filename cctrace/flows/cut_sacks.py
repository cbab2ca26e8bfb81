"""Completion of SACK blocks that the capture cut, from the first one and from what was retransmitted.

The first block of an ACK holds the segment that has just arrived [RFC 2018]. Everything sent before that segment had
arrived, too, or was lost; the sender's retransmissions show which (`arrivals.arrived_of`). From that follow the blocks
that the receiver reported. They are trusted if the first one equals the captured one and their number agrees with the
length of the header, which would rarely be so on a path that reorders.

Without them, data that arrived while the receiver held ACKs back ([Linux618] net/ipv4/tcp_input.c __tcp_ack_snd_check)
would seem to arrive after the data that follow them, as on a path that reorders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.columns import Columns, Ints, Values
from cctrace.flows.arrivals import BLOCKS, Receiver, arrived_of, segments_of
from cctrace.flows.cut_options import blocks_sent
from cctrace.io.captures.packets import OPT_SACK
from cctrace.tcp.flags import ACK, SYN
from cctrace.tcp.sequence import unwrapped

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow

Blocks = list[tuple[int, int]]


class _Acks(NamedTuple):
    """ACKs to the sender: their rows, times, numbers (unwrapped), first blocks (0, 0: none), and blocks they had."""

    rows: Ints
    time_ns: Ints
    number: Ints
    left: Ints
    right: Ints
    blocks: Ints
    held: Ints  # that were captured


def complete(flow: Flow) -> None:
    """Give the cut ACKs to a flow's sender their missing SACK blocks, in the columns of its capture.

    Nothing changes for a capture taken elsewhere, for what reordering or an unknown RTT leaves open, and without cuts.
    """
    capture, packets = flow.capture, flow.capture.packets
    if not packets.counters.get("cut_options", 0) or flow.taken_at != "sender":
        return
    p, rtt_us = capture.params([flow.index])[0], flow.row["rtt_min_us"]
    rows = capture.connections.rows_of(flow.index)
    columns = {name: packets[name][rows] for name in ("direction", "flags", "seq", "ack", "payload")}
    columns["time_ns"] = capture.connections.clock[rows]
    mine = columns["direction"] == p["sender"]
    acks = _acks(flow, columns, rows, np.flatnonzero(~mine & (columns["flags"] & (ACK | SYN) == ACK)), int(p["isn"]))
    if not (acks.held < acks.blocks).any() or not acks.held.any() or not isinstance(rtt_us, int):
        return
    tx_ns, begin, end = segments_of(columns, mine, p)
    came = arrived_of(tx_ns, begin, end, acks.time_ns, acks.number, rtt_us * 1000.0)
    if found := _blocks(acks, tx_ns[came], begin[came], end[came]):
        _write(flow, found, int(p["isn"]))


def _acks(flow: Flow, columns: Columns, rows: Ints, places: Ints, isn: int) -> _Acks:
    packets, mine = flow.capture.packets, rows[places]
    held, first = packets["sack_count"][mine].astype(np.int64), np.maximum(packets["sack_row"][mine], 0)
    number = unwrapped(columns["ack"][places], isn)

    def edge(side: str) -> Ints:
        edges = packets.sacks[side] if len(packets.sacks[side]) else np.zeros(1, np.int64)
        ahead = (edges[np.where(held > 0, first, 0)].astype(np.int64) - columns["ack"][places]) & 0xFFFFFFFF
        return np.where(held > 0, number + ahead - ((ahead >> 31) << 32), 0)

    time_ns = columns["time_ns"][places]
    return _Acks(mine, time_ns, number, edge("left"), edge("right"), blocks_sent(flow, mine), held)


def _blocks(acks: _Acks, tx_ns: Values, begin: Values, end: Values) -> dict[int, Blocks]:
    """Return {row: its blocks} of the cut ACKs whose blocks are certain."""
    receiver, found = Receiver(tx_ns, begin, end), dict[int, Blocks]()
    order = np.argsort(begin, kind="stable")
    place = begin[order]
    most = min(int(acks.blocks.max()), BLOCKS)
    for row, _, number, left, right, blocks, held in zip(*(column.tolist() for column in acks), strict=True):
        if number < receiver.acked:
            continue
        if number > receiver.acked:
            receiver.advance(number)
        if right > number:
            inside = order[np.searchsorted(place, left) : np.searchsorted(place, right)]
            while receiver.next <= inside.max(initial=-1):
                receiver.take()
        if held == 0:
            continue
        duplicate = [(left, right)] if right <= number else []  # which the first block reports [RFC 2883]
        beyond = [(one[0], one[1]) for one in receiver.beyond][: most - len(duplicate)]
        if held < blocks == len(duplicate) + len(beyond) and (duplicate or beyond[0] == (left, right)):
            found[row] = duplicate + beyond
    return found


def _write(flow: Flow, found: dict[int, Blocks], isn: int) -> None:
    packets = flow.capture.packets
    rows, count = np.array(list(found), np.int64), np.array([len(one) for one in found.values()], np.int64)
    edges = np.array([edge for one in found.values() for edge in one], np.int64).reshape(-1, 2)
    first = len(packets.sacks["left"]) + np.cumsum(count) - count
    for k, side in enumerate(("left", "right")):
        new = ((edges[:, k] + isn) & 0xFFFFFFFF).astype(packets.sacks[side].dtype)
        packets.sacks[side] = np.concatenate([packets.sacks[side], new])
    columns = {name: packets[name].copy() for name in ("sack_row", "sack_count", "options")}
    columns["sack_row"][rows], columns["sack_count"][rows] = first, count
    columns["options"][rows] |= OPT_SACK
    packets.replace(columns)
