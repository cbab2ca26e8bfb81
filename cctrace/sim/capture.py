"""A simulated TCP connection as a capture, as by tcpdump at the sender's or the receiver's host.

The simulation records when segments left and arrived, and when ACKs did (`sim.core.tap`). The contents of an ACK follow
from the arrivals before it, so a receiver's scoreboard is kept here: cumulative ACK, at most three SACK blocks,
newest first [RFC2018], a duplicate as the first of them [RFC2883], the time stamp to echo [RFC7323].
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cctrace import schema
from cctrace.arguments import check_choice, flag, whole
from cctrace.columns import Ints, Values
from cctrace.errors import ArgumentError
from cctrace.io.captures.packets import OPT_MSS, OPT_SACK, OPT_SACK_PERMITTED, OPT_TIMESTAMPS, OPT_WINDOW_SCALE, Packets
from cctrace.io.layout import NO_COUNTER
from cctrace.sim.core import structs
from cctrace.sim.core.receiver import MAX_BLOCKS
from cctrace.tcp.ecn import ACCURATE_ECN, ACE_START

Row = tuple[int, ...]  # values of _COLUMNS
Blocks = Sequence[tuple[int, int]]  # left and right edges
# Time stamp, ECE or AccECN's counter, window, ACK, time stamp echoed, SACK blocks
Acknowledged = tuple[int, int, int, int, int, Blocks]
SIDES = ("sender", "receiver")
SYN_FLAG, PSH_FLAG, ACK_FLAG, ECE_FLAG, CWR_FLAG, AE_FLAG = 2, 8, 16, 64, 128, 256
HEADER_BYTES = 20 + 32  # IPv4, TCP with time stamps
PORT = 5201
_OF_SYN = OPT_TIMESTAMPS | OPT_MSS | OPT_WINDOW_SCALE | OPT_SACK_PERMITTED
_COLUMNS = ("time_ns", "direction", "flags", "seq", "ack", "window", "payload", "tos", "tsval", "tsecr", "options")


class Ends(NamedTuple):
    """Records of one flow; `rows` are those of `sim.core.tap`, None for QUIC."""

    rows: Ints | None
    mss: int
    window_bytes: int  # the largest
    forward_ns: int
    reverse_ns: int
    clock_ns: int  # where the receiver's millisecond begins, before the simulation's
    ecn: int  # its feedback


def ends(f: Any, pieces: Sequence[Ints]) -> Ends:
    """Return the `Ends` of a FLOW record."""
    rows = np.concatenate(pieces) if pieces else None
    return Ends(rows, int(f.mss), int(f.rwnd * f.mss), int(f.fwd_ns), int(f.rev_ns), int(f.rcv_clock_ns), int(f.ecn))


def packets(flows: Sequence[Ends], side: str, which: int | None, tso: bool = False) -> Packets:
    """Return the `Packets` of flows (all, or number `which`) of a simulation, as captured at one side."""
    check_choice("side", side, SIDES)
    if which is not None and not 0 <= whole("flow", which) < len(flows):
        raise ArgumentError(f"flow={which!r}: the simulation has {len(flows)}, counted from 0")
    numbers = range(len(flows)) if which is None else [which]
    for k in numbers:
        if flows[k].rows is None:
            raise ArgumentError(f"flow {k} is QUIC, and its packets no TCP; name a TCP flow with flow=")
    if flag("tso", tso) and side != "sender":
        raise ArgumentError(f"tso={tso!r}: only the sender's own host sees super-packets, not side={side!r}")
    return _packets({k: flows[k] for k in numbers}, side, tso)


def _packets(flows: dict[int, Ends], side: str, tso: bool) -> Packets:
    """Return the `Packets` of {number: Ends} as captured at one side."""
    rows, blocks, conns = [], [], []
    for conn, flow in enumerate(flows.values()):
        mine, its_blocks = _Wire(flow, side, tso).packets()
        rows += mine
        blocks += its_blocks
        conns += [conn] * len(mine)
    columns = schema.empty(schema.PACKETS, len(rows))
    for name, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True):
        columns[name][:] = values
    counts = np.array([len(b) for b in blocks])
    columns["conn"][:] = conns
    columns["sack_count"][:] = counts
    columns["sack_row"][:] = np.where(counts > 0, np.cumsum(counts) - counts, -1)
    columns["options"] |= np.where(counts > 0, OPT_SACK, 0).astype(np.uint8)
    of_syn = (columns["flags"] & SYN_FLAG) > 0
    columns["ip_len"][:] = HEADER_BYTES + columns["payload"] + np.where(counts > 0, 4 + 8 * counts, 0) + 8 * of_syn
    columns["ttl"][:] = 64
    for name in ("ecn_e0_bytes", "ecn_ce_bytes", "ecn_e1_bytes"):
        columns[name][:] = NO_COUNTER
    edges = np.array([edge for each in blocks for edge in each], np.int64).reshape(-1, 2) & 0xFFFFFFFF
    sacks = {"left": edges[:, 0].astype(np.uint32), "right": edges[:, 1].astype(np.uint32)}
    packets = Packets(columns, sacks, _connections(flows)).sorted_by_time()
    packets["frame"][:] = np.arange(1, len(packets) + 1)
    return packets


def _connections(flows: dict[int, Ends]) -> dict[str, Values]:
    table = schema.empty(schema.CONNECTIONS, len(flows))
    for conn, (k, flow) in enumerate(flows.items()):
        table["src"][conn], table["sport"][conn] = f"10.0.{k // 250}.{k % 250 + 1}", 50_000 + k % 10_000
        table["dst"][conn], table["dport"][conn] = "10.1.0.1", PORT
        table["mss_a"][conn] = table["mss_b"][conn] = flow.mss + 12  # the option counts the time stamps
        table["wscale_a"][conn] = table["wscale_b"][conn] = _wscale(flow)
        table["sack_ok"][conn] = 1
    return table


def _wscale(flow: Ends) -> int:
    return min(max(flow.window_bytes.bit_length() - 16, 0), 14)


def _ace(counter: int) -> int:
    """Return the flags that hold a counter of three bits [RFC9768] 3.2.1."""
    return (AE_FLAG if counter & 4 else 0) | (CWR_FLAG if counter & 2 else 0) | (ECE_FLAG if counter & 1 else 0)


class _Wire:
    """Converts the records of one flow to the packets that pass one side."""

    def __init__(self, flow: Ends, side: str, tso: bool) -> None:
        self.flow, self.at_sender, self.tso = flow, side == "sender", tso
        self.accurate = flow.ecn == ACCURATE_ECN
        self.following: tuple[int, int, int] | None = (
            None  # (time, segment, rows) that would belong to the super-packet in the last row
        )
        self.rows: list[Row] = []
        self.blocks: list[Blocks] = []
        # (time stamp ms, segment, marks, time stamp echoed) of each transmission
        self.sent: list[tuple[int, int, int, int]] = []
        self.acks: list[Acknowledged] = []  # contents of each ACK
        self.begins = [0]  # of each segment and of the next, bytes
        self.receiver = _Receiver(self.begins)
        self.heard_ms = 0  # the newest time stamp of the receiver that the sender knows

    def packets(self) -> tuple[list[Row], list[Blocks]]:
        """Return [values of _COLUMNS] and [[(left, right)]], a row per packet."""
        syn_ns = 0
        handshake_acked = self.at_sender
        assert self.flow.rows is not None  # refused by `packets`
        for now, noted, value in self.flow.rows.tolist():
            what, marks = noted & 7, noted >> 3
            if what == structs.TAP_SYN:
                syn_ns = now
            elif what == structs.TAP_SYN_ACK:
                self.handshake(syn_ns, now)
                acked_ns = now + self.flow.forward_ns
            elif what == structs.TAP_SENT:
                echo_ms, marks = marks >> structs.TAP_ECHO, marks & (1 << structs.TAP_ECHO) - 1
                lacks, marks = marks >> structs.TAP_LACKS, marks & (1 << structs.TAP_LACKS) - 1
                if value + 1 == len(self.begins):
                    self.begins.append(self.begins[value] + self.flow.mss - lacks)
                self.sent.append((now // 1_000_000, value, marks, echo_ms or self.heard_ms))
                if self.at_sender:
                    self.data(now, *self.sent[-1])
            elif what in (structs.TAP_ARRIVED, structs.TAP_DISCARDED):
                stamp_ms, segment, was, echo_ms = self.sent[value]
                if not handshake_acked:  # it came before the data, whatever the path did to them since
                    flags = ACK_FLAG | (CWR_FLAG if self.accurate else 0)
                    self.add(min(acked_ns, now), 0, flags, 1, 1, acked_ns // 1_000_000)
                    handshake_acked = True
                if what == structs.TAP_ARRIVED:
                    self.receiver.take(stamp_ms, segment)
                else:
                    self.receiver.refuse(segment)
                if not self.at_sender:
                    self.data(now, stamp_ms, segment, was | marks, echo_ms)
            elif what == structs.TAP_ACK:
                stamp_ms = (now + self.flow.clock_ns) // 1_000_000 - (marks >> 3)  # see `receiver.send_ack`
                self.acks.append((stamp_ms, marks & 7, value, *self.receiver.acknowledge()))
                if not self.at_sender:
                    self.ack(now, self.acks[-1])
            elif what == structs.TAP_ACK_ARRIVED:
                ack = self.acks[value - 1]  # numbered from 1
                self.heard_ms = max(self.heard_ms, ack[0])
                if self.at_sender:
                    self.ack(now, ack)
        return self.rows, self.blocks

    def handshake(self, syn_ns: int, now: int) -> None:
        """SYN, SYN/ACK and, at the sender, the ACK of it; the receiver's answer left it `reverse_ns` before it came."""
        answer_ns = now - self.flow.reverse_ns
        asks, answers = (ECE_FLAG | CWR_FLAG, ECE_FLAG) if self.flow.ecn else (0, 0)
        if self.accurate:  # [RFC9768] 3.1: the SYN asks for AccECN, neither it nor the answer was ECN-capable
            asks, answers = AE_FLAG | CWR_FLAG | ECE_FLAG, CWR_FLAG
        first, second = (syn_ns, now) if self.at_sender else (answer_ns, answer_ns)
        syn_ms, self.heard_ms = syn_ns // 1_000_000, (answer_ns + self.flow.clock_ns) // 1_000_000
        self.receiver.stamp_ms = syn_ms
        self.add(first, 0, SYN_FLAG | asks, 0, 0, syn_ms, 0, options=_OF_SYN)
        self.add(second, 1, SYN_FLAG | ACK_FLAG | answers, 0, 1, self.heard_ms, syn_ms, options=_OF_SYN)
        if self.at_sender:
            self.add(now, 0, ACK_FLAG | (CWR_FLAG if self.accurate else 0), 1, 1, now // 1_000_000)

    def data(self, now: int, stamp_ms: int, segment: int, marks: int, echo_ms: int) -> None:
        """A data segment passes; what it echoes is what its sender had heard when it left."""
        flags = ACK_FLAG | (CWR_FLAG if marks & structs.REDUCED else 0) | (PSH_FLAG if marks & structs.PUSHED else 0)
        flags |= _ace(ACE_START) if self.accurate else 0  # no ACK was marked
        first = self.begins[segment]
        size = self.begins[segment + 1] - first
        tos = 3 if marks & structs.CE else 1 if marks & structs.ECT_1 else 2 if marks & structs.ECT else 0
        if self.tso:
            joins = self.following == (now, segment, len(self.rows))  # an ACK of the same instant ends a super-packet
            self.following = None if flags & PSH_FLAG else (now, segment + 1, len(self.rows) + (not joins))
            if joins:
                *before, _ = row = self.rows[-1]
                before[_COLUMNS.index("flags")] |= flags
                before[_COLUMNS.index("payload")] += size
                self.rows[-1] = (*before, row[-1])
                return
        self.add(now, 0, flags, 1 + first, 1, stamp_ms, echo_ms, payload=size, tos=tos)

    def ack(self, now: int, ack: Acknowledged) -> None:
        """An ACK passes."""
        stamp_ms, echo, window, expected, echo_ms, blocks = ack
        flags = ACK_FLAG | (_ace(echo) if self.accurate else ECE_FLAG if echo else 0)
        window = -(-window >> _wscale(self.flow))  # rounded up, as by the kernel
        self.add(now, 1, flags, 1, expected, stamp_ms, echo_ms, window=window, blocks=blocks)

    def add(
        self,
        now: int,
        direction: int,
        flags: int,
        seq: int,
        ack: int,
        stamp_ms: int,
        echo_ms: int | None = None,
        payload: int = 0,
        tos: int = 0,
        options: int = OPT_TIMESTAMPS,
        window: int | None = None,
        blocks: Blocks = (),
    ) -> None:
        """Append a packet; a sender echoes the latest time stamp received."""
        echo_ms = self.heard_ms if echo_ms is None else echo_ms
        window = min(self.flow.window_bytes if window is None else window, 0xFFFF)
        seq, ack = seq & 0xFFFFFFFF, ack & 0xFFFFFFFF
        stamps = (stamp_ms & 0xFFFFFFFF, echo_ms & 0xFFFFFFFF)
        self.rows.append((now, direction, flags, seq, ack, window, payload, tos, *stamps, options))
        self.blocks.append(blocks)


class _Receiver:
    """Arrivals as a TCP receiver reports them; edges in segments, which start at `begins` (bytes)."""

    def __init__(self, begins: list[int]) -> None:
        self.begins = begins
        self.expected = self.acked = 0
        self.stamp_ms = 0
        self.beyond: list[tuple[int, int]] = []  # [left, right) in order of their last change, newest first
        self.duplicate: int | None = None

    def take(self, stamp_ms: int, segment: int) -> None:
        """A segment arrives."""
        self.duplicate = None  # one not yet reported by an ACK is forgotten, as by tcp_data_queue
        if self.acked - 1 <= segment <= self.acked and stamp_ms >= self.stamp_ms:
            self.stamp_ms = stamp_ms
        if segment < self.expected or any(left <= segment < right for left, right in self.beyond):
            self.duplicate = segment
            return
        touching = [block for block in self.beyond if block[0] <= segment + 1 and segment <= block[1]]
        self.beyond = [block for block in self.beyond if block not in touching]
        left = min([segment, *(block[0] for block in touching)])
        right = max([segment + 1, *(block[1] for block in touching)])
        if left == self.expected:
            self.expected = right
        else:
            self.beyond.insert(0, (left, right))

    def refuse(self, segment: int) -> None:
        """A segment is too old by its time stamp; one that was received before is reported all the same."""
        if segment < self.expected:
            self.duplicate = segment

    def acknowledge(self) -> tuple[int, int, Blocks]:
        """Return (acknowledgement number, time stamp to echo, blocks in sequence numbers)."""
        blocks = [] if self.duplicate is None else [(self.duplicate, self.duplicate + 1)]
        blocks = (blocks + self.beyond)[:MAX_BLOCKS]
        self.acked, self.duplicate = self.expected, None
        edges = [(1 + self.begins[left], 1 + self.begins[right]) for left, right in blocks]
        return 1 + self.begins[self.expected], self.stamp_ms, edges
