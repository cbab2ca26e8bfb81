"""Clock offset between a connection's polls and its capture, inferred from the connection's progress.

A counter of acknowledged bytes grows with every ACK, at times that the capture shows. Each poll [p, q] with value v
bounds the offset d of the two clocks (capture minus poller), because v was current at some time within the poll:

    t(v) - q  <=  d  <=  t(next value) - p            t(v): arrival of the ACK that reached v

The offset is where most of these intervals overlap; the width of the overlap is its uncertainty. A value occurs
only once in a connection, so offsets of hours (time zones) are found like microseconds.

    polls of no width     a poller that takes one time stamp queries at an unknown delay: slack is added until most fit
    drift                 the same per block of polls; a line through the blocks if its slope is significant
    capture in mid-flow   the number of bytes before the capture is unknown: it is fitted together with the offset
    capture far away      ACKs may have reached the sender at any later time, while time stamps give the departure of
                          data to a millisecond: if ACKs explain too little, the bytes sent are used instead
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.display import endpoint
from cctrace.errors import ArgumentError
from cctrace.flows.offset import FEW, Alignment, search
from cctrace.flows.rtt_match import most_alike
from cctrace.io.counters.tcpinfo import MISSING, TcpInfo
from cctrace.tcp.flags import ACK
from cctrace.tcp.sequence import unwrapped
from cctrace.units import format_percent

if TYPE_CHECKING:
    from cctrace.columns import Ints, Values
    from cctrace.flows.flow import Flow

LEAST = 0.7  # below this share of agreement the polls are another connection's


def _may_be(flow: Flow, known: Mapping[str, Any]) -> bool:
    """Return whether a connection with an unnamed end may be `flow`."""
    if known.get("src") is not None:
        return False
    return known.get("dst", flow.key[2]) == flow.key[2] and known.get("dport", flow.key[3]) == flow.key[3]


def is_of_receiver(flow: Flow, tcpinfo: TcpInfo) -> bool:
    """Return whether polls come from the other end of a flow's connection, its receiver's kernel."""
    src, sport, dst, dport = flow.key
    return any(
        (known.get("src"), known.get("sport"), known.get("dst"), known.get("dport")) == (dst, dport, src, sport)
        for known in tcpinfo.connections
    )


def matching(flow: Flow, tcpinfo: TcpInfo) -> tuple[TcpInfo, Alignment]:
    """Return the polls of `tcpinfo` that belong to `flow`, on its clock, and their `Alignment`."""
    src, sport, dst, dport = flow.key
    for index, known in enumerate(tcpinfo.connections):
        if (known.get("src"), known.get("sport"), known.get("dst"), known.get("dport")) == (src, sport, dst, dport):
            return align(flow, tcpinfo.select(index))
    # Sources without endpoint names: the polls whose progress is this flow's.
    anonymous = [index for index, known in enumerate(tcpinfo.connections) if _may_be(flow, known)]
    if not anonymous:
        sender, receiver = endpoint(src, sport), endpoint(dst, dport)
        if is_of_receiver(flow, tcpinfo):
            raise ArgumentError(f"{tcpinfo.source}: these are the receiver's sockets ({receiver} -> {sender})")
        raise ArgumentError(f"no polls of {sender} -> {receiver} in {tcpinfo.source}")
    found, refused = [], []
    for index in anonymous:
        try:
            found.append(align(flow, tcpinfo.select(index)))
        except ArgumentError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    if len(anonymous) > 1 and all(np.isnan(alignment.agreement) for _, alignment in found):
        return most_alike(flow, found)
    return best_alignment(found)


def align(flow: Flow, polls: TcpInfo) -> tuple[TcpInfo, Alignment]:
    """Return the polls on the capture's clock, and the `Alignment`.

    `polls`: of one connection. Raises `ArgumentError` if the polls cannot be of this connection, or none of them
    has a state that the capture contains.
    """
    src, sport, dst, dport = flow.key
    name = f"{polls.source}: connection of {endpoint(src, sport)} -> {endpoint(dst, dport)}"
    acks = acknowledged(flow)
    value = _progress(polls, flow)
    known = np.flatnonzero((value != MISSING) & (polls["time_ns"] != MISSING))
    if not len(known):
        return _unaligned(flow, polls, name)
    start, end = polls["time_ns"][known], polls["time_after_ns"][known]
    complete = bool(flow.capture.params([flow.index])["has_syn"][0])
    found = search(*acks, start, end, value[known], complete)
    if _has_gone_far(flow) and (found is None or found.agreement < LEAST):
        value = _sent_by(polls)
        counted = known[value[known] != MISSING]
        times = polls["time_ns"][counted], polls["time_after_ns"][counted]
        by_sends = search(*first_sent(flow), *times, value[counted], complete)
        found = max((one for one in (found, by_sends) if one), key=lambda one: one.agreement, default=None)
    if found is None:
        moving = len(np.unique(value[known])) >= FEW
        if moving:
            raise ArgumentError(f"{name}: no poll shows a state of the connection that the capture shows")
        return _unaligned(flow, polls, name)
    if found.agreement < LEAST:
        raise ArgumentError(
            f"{name}: these polls are of another connection: no offset of the clocks explains more than "
            f"{format_percent(found.agreement)} of {found.polls} polls"
        )
    return _moved(polls, found, int(start[0])), found


def best_alignment(found: list[tuple[TcpInfo, Alignment]]) -> tuple[TcpInfo, Alignment]:
    """Return the likeliest of (polls, `Alignment`) of several connections with one flow.

    Equal clocks come first, then the number of agreeing polls, then the uncertainty: flows of equal size differ in
    pace.
    """
    likely = [pair for pair in found if pair[1].offset_ns == 0] or found
    agreeing = [np.nan_to_num(one.agreement) * one.polls for _, one in likely]
    best = [pair for pair, count in zip(likely, agreeing, strict=True) if count >= max(agreeing) / 2]
    return min(best, key=lambda pair: pair[1].uncertainty_ns)


def acknowledged(flow: Flow) -> tuple[Ints, Ints]:
    """Return (time_ns, bytes acknowledged from then on) at the sender's TCP, each int64, both ascending.

    Counted as the kernel counts `bytes_acked`: a SYN that the sender sent first is one byte. If the capture starts
    in mid-flow, from there.
    """
    packets, c, i = flow.capture.packets, flow.capture.connections, flow.index
    rows = c.rows_of(i)
    rows = rows[(packets["direction"][rows] != c.sender[i]) & (packets["flags"][rows] & ACK != 0)]
    p = flow.capture.params([i])[0]
    steps = np.diff(packets["ack"][rows], prepend=np.uint32(p["isn"])).view(np.int32).astype(np.int64)
    reached = np.maximum.accumulate(np.cumsum(steps)) - bool(p["passive"])
    away = int(c.sender_side_ns[i])
    time_ns = c.clock[rows] + away - away // 2
    first = np.flatnonzero(np.diff(reached, prepend=-1) > 0)
    return np.maximum.accumulate(time_ns[first]), reached[first]


def first_sent(flow: Flow) -> tuple[Ints, Ints]:
    """Return (time_ns, bytes sent from then on) at the sender's TCP, each int64, both ascending.

    Each byte counts once. If the capture starts in mid-flow, from there.
    """
    packets = flow.capture.packets
    time_ns, rows, mine = flow.capture.seen_by_sender(flow.index)
    data = mine & (packets["payload"][rows] > 0)
    time_ns, rows = time_ns[data], rows[data]
    p = flow.capture.params([flow.index])[0]
    ends = packets["seq"][rows] + packets["payload"][rows].astype(np.uint32)
    reached = np.maximum.accumulate(unwrapped(ends, int(p["isn"]) + 1))
    first = np.flatnonzero(np.diff(reached, prepend=0) > 0)
    return np.maximum.accumulate(time_ns[first]), reached[first]


def _has_gone_far(flow: Flow) -> bool:
    """Return whether the capture was taken elsewhere, with time stamps that give the departure times."""
    side = flow.capture.connections
    return bool(side.sender_side_ns[flow.index]) and bool(flow.capture.params([flow.index])["ts_ok"][0])


def _sent_by(polls: TcpInfo) -> Values:
    """Return the bytes sent for the first time by each poll, MISSING where unknown."""
    known = (polls["bytes_sent"] != MISSING) & (polls["bytes_retrans"] != MISSING)
    return np.where(known, polls["bytes_sent"] - polls["bytes_retrans"], MISSING)


def _progress(polls: TcpInfo, flow: Flow) -> Values:
    """Return the bytes acknowledged at each poll, MISSING where unknown."""
    if np.any(polls["bytes_acked"] != MISSING):
        return polls["bytes_acked"]
    if "snd_una" in polls.extra:  # tcp_probe: sequence numbers as sent
        isn = int(flow.capture.params([flow.index])["isn"][0])
        return (polls["snd_una"].astype(np.int64) - isn) & 0xFFFFFFFF
    return np.full(len(polls), MISSING)


def _unaligned(flow: Flow, polls: TcpInfo, name: str) -> tuple[TcpInfo, Alignment]:
    """Return the polls unchanged, if their times are within the capture's."""
    begin = flow.row["start_ns"]
    end = begin + int(flow.row["duration_s"] * 1e9)
    inside = (polls["time_ns"] >= begin) & (polls["time_ns"] <= end + 1_000_000_000)
    if not inside.any():
        raise ArgumentError(f"{name}: no poll lies within the time of the capture, and no counter gives the offset")
    return polls, Alignment(0, -1, 0, 0.0, 0.0, float("nan"), 0)


def _moved(polls: TcpInfo, alignment: Alignment, first_ns: int) -> TcpInfo:
    if not alignment.offset_ns and not alignment.drift_ppm:
        return polls
    columns = dict(polls.columns)
    for name in ("time_ns", "time_after_ns"):
        stamps = columns[name]
        bend = np.rint((stamps - first_ns) * (alignment.drift_ppm / 1e6)).astype(np.int64)
        columns[name] = np.where(stamps == MISSING, MISSING, stamps + alignment.offset_ns + bend)
    return TcpInfo(
        columns, polls.extra, polls.connection, polls.connections, polls.source, polls.format, polls.warnings
    )
