"""Reconstruction of SACKs that a capture lacks, from retransmissions and their times.

Some captures lack TCP options (truncated, rewritten, generated from a table), although their senders received SACKs
and acted on them. For a capture taken at the sender they can be reconstructed:

    lost                   every transmission of a segment but the one that had time to arrive before it was
                           acknowledged
    arrived                all others, in order of departure: the path is assumed not to reorder
    an ACK that advances   follows the arrival of everything up to the segment that it asks for
    a duplicate            follows arrivals beyond a hole: of those that had time to arrive, as many as each other
                           duplicate of its burst (receivers merge simultaneous arrivals, or delay ACKs); and at least
                           as many as the sender must have learned of before its retransmissions

Everything above the acknowledgement is then reported by SACK blocks, the latest first. Reordering and ACK losses
are not detected: `Flow.quality` shows afterwards whether the reconstruction explains the sender.

Sources: RFC 2018; [Linux618] net/ipv4/tcp_input.c tcp_sack_new_ofo_skb, __tcp_ack_snd_check.
"""

import numpy as np

from cctrace.columns import Columns, Ints, Values
from cctrace.flows.arrivals import Receiver, arrived_of, segments_of
from cctrace.flows.capture import Capture
from cctrace.flows.flow import Flow
from cctrace.io.captures.packets import OPT_SACK, Packets
from cctrace.tcp.flags import ACK, SYN
from cctrace.tcp.sequence import unwrapped

BURST_NS = 2_000_000  # lateness of ACKs; arrivals within count as simultaneous
OFTEN = 0.98  # of the ACKs, that define the path's capability
AT_ONCE = 0.5  # segments that the path could deliver between two ACKs of a burst
MIN_SPAN_NS = 10_000_000  # least span (or a round trip) for the path's rate
SOON = 0.5  # of the minimum RTT, within which a retransmission answers an ACK
REORDERING = 0.25  # of the minimum RTT, by which later segments may overtake [RFC 8985]
DUPLICATES = 3  # segments beyond a hole, from which it is considered lost [RFC 6675]


def restored(flow: Flow) -> Flow:
    """Return a flow whose ACKs carry SACKs for what arrived.

    `flow`: captured at its sender, without SACKs. Returns a flow of a capture of this connection alone; the flow
    itself if no ACK gives its RTT.

    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> restored(flow).row["segments_sent"] == flow.row["segments_sent"]
    True
    """
    capture, p = flow.capture, flow.capture.params([flow.index])[0]
    rows = capture.connections.rows_of(flow.index)
    columns = {name: column[rows] for name, column in capture.packets.columns.items()}
    columns["time_ns"] = capture.connections.clock[rows]
    mine = columns["direction"] == p["sender"]
    tx_ns, begin, end = segments_of(columns, mine, p)
    acks = np.flatnonzero(~mine & (columns["flags"] & ACK > 0) & (columns["flags"] & SYN == 0))
    if not len(acks) or not isinstance(flow.row["rtt_min_us"], int):  # None without a sample
        return flow
    acked = unwrapped(columns["ack"][acks], int(p["isn"]))
    rtt_ns = int(flow.row["rtt_min_us"]) * 1000
    arrived = arrived_of(tx_ns, begin, end, columns["time_ns"][acks], acked, rtt_ns)
    ack_ns = columns["time_ns"][acks]
    pace = _pace(tx_ns, end, ack_ns, acked, int(p["mss"]), rtt_ns)
    receiver = _Receiver(tx_ns[arrived], begin[arrived], end[arrived], rtt_ns, *pace)
    blocks = receiver.all_blocks(ack_ns, acked, *_answers(tx_ns, begin, ack_ns, SOON * rtt_ns))
    return _with_blocks(flow, columns, acks, blocks, int(p["isn"]))


def _pace(tx_ns: Values, end: Values, ack_ns: Values, acked: Values, mss: int, rtt_ns: float) -> tuple[float, float]:
    """Return the path's rate in segments per ns, and its burst size, where it delivers in order."""
    highest = np.maximum.accumulate(end)[np.maximum(np.searchsorted(tx_ns, ack_ns, side="right") - 1, 0)]
    new = np.diff(acked, prepend=acked[:1])
    # Until this is acknowledged, holes are being filled.
    repairs = np.maximum.accumulate(np.where(new <= 0, highest, 0))
    came = np.cumsum(np.where(acked > repairs, np.maximum(new, 0), 0) / max(mss, 1))
    span_ns = max(rtt_ns, MIN_SPAN_NS)
    found = []
    for within_ns in (span_ns, BURST_NS):
        before = np.searchsorted(ack_ns, ack_ns - within_ns, side="left") - 1
        found.append(float(np.quantile(came - np.where(before >= 0, came[before], 0), OFTEN)))
    return found[0] / span_ns, max(found[1], DUPLICATES)


def _answers(tx_ns: Values, begin: Values, ack_ns: Values, soon_ns: float) -> tuple[Ints, Ints]:
    """Return the last segment retransmitted just after each ACK (-1: none), and its previous departure time."""
    upon = np.searchsorted(ack_ns, tx_ns, side="right") - 1
    soon = (upon >= 0) & (tx_ns - ack_ns[upon] <= soon_ns)
    last, left_ns = np.full(len(ack_ns), -1), np.zeros(len(ack_ns), np.int64)
    before: dict[int, int] = {}
    for k, (segment, now_ns) in enumerate(zip(begin.tolist(), tx_ns.tolist(), strict=True)):
        if soon[k] and segment in before and segment > last[upon[k]]:
            last[upon[k]], left_ns[upon[k]] = segment, before[segment]
        before[segment] = now_ns
    return last, left_ns


class _Receiver(Receiver):
    """State of the receiver as its ACKs arrive.

    `tx_ns`, `begin`, `end`: of the segments that arrived, in this order. `rtt_ns`: minimum RTT. `rate`, `burst`: the
    path's rate, segments per ns, and burst size.
    """

    def __init__(self, tx_ns: Values, begin: Values, end: Values, rtt_ns: float, rate: float, burst: float) -> None:
        super().__init__(tx_ns, begin, end)
        self.size = max((e - b for _, b, e in self.arrivals), default=1)
        self.rtt_ns = rtt_ns
        self.rate, self.burst = rate, burst
        self.room, self.now_ns = 0.0, 0  # segments that the path may have delivered since the last one
        self.recovers = -1  # until this is acknowledged, the sender needs no further DUPLICATES

    def all_blocks(
        self, ack_ns: Values, acked: Values, answers: Values, left_ns: Values
    ) -> list[list[tuple[int, int]]]:
        """Return the SACK blocks of each ACK, lists of (start, end).

        `ack_ns`, `acked`: arrival times and acknowledgement numbers of the ACKs. `answers`, `left_ns`: the last
        segment retransmitted upon each, -1 for none; its previous departure time.
        """
        found: list[list[tuple[int, int]]] = []
        rest = np.flatnonzero(np.diff(ack_ns) * self.rate >= AT_ONCE) + 1
        ends = np.append(rest, len(ack_ns))[np.searchsorted(rest, np.arange(len(ack_ns)), side="right")]
        for k, (now_ns, number, answer) in enumerate(
            zip(ack_ns.tolist(), acked.tolist(), answers.tolist(), strict=True)
        ):
            if number < self.acked:
                found.append([])
                continue
            new = self.rate * (now_ns - self.now_ns)
            self.room = min(new + (self.room if new < AT_ONCE else 0.0), self.burst)
            self.now_ns = now_ns
            if number > self.acked:
                self.advance(number)
            else:
                burst = acked[k : ends[k]]
                self._repeat(now_ns, int(ack_ns[ends[k] - 1]), int(np.sum(burst == number)))
            if answer >= self.has:
                self._receive_report(now_ns, answer, int(left_ns[k]))
            found.append(self.report())
        return found

    def _repeat(self, now_ns: int, until_ns: int, duplicates: int) -> None:
        """Process one of several duplicates of a burst: at least one segment beyond a hole, if it can have arrived."""
        since_ns = until_ns + BURST_NS - self.rtt_ns
        most = self.room + self.rate * (until_ns - now_ns) + 0.5
        come = 0
        while come + 1 <= most and self.is_beyond(come) and self.arrivals[self.next + come][0] <= since_ns:
            come += 1
        for _ in range(max(-(-come // duplicates), 1)):
            if self.is_beyond() and self.arrivals[self.next][0] <= since_ns:
                self.take()

    def take(self) -> None:
        """Take the next arrival, of those that the path may have delivered."""
        super().take()
        self.room = max(self.room - 1, 0.0)

    def _receive_report(self, now_ns: int, segment: int, left_ns: int) -> None:
        """Add the arrivals that the sender must have learned of to retransmit a segment."""
        since_ns = now_ns + BURST_NS - self.rtt_ns
        while not self._is_lost(segment, left_ns) and self.is_beyond() and self.arrivals[self.next][0] <= since_ns:
            self.take()
        if self.acked >= self.recovers and self.next:
            self.recovers = max(end for _, end, _ in self.beyond) if self.beyond else segment

    def _is_lost(self, segment: int, left_ns: int) -> bool:
        """Whether the reports let the sender consider a segment lost [RFC 6675, RFC 8985]."""
        beyond = sum(max(end - max(begin, segment), 0) for begin, end, _ in self.beyond)
        recovers = self.acked < self.recovers
        late = self.arrivals[self.next - 1][0] >= left_ns + REORDERING * self.rtt_ns if self.next else False
        return beyond >= (1 if recovers or late else DUPLICATES) * self.size


def _with_blocks(flow: Flow, columns: Columns, acks: Values, blocks: list[list[tuple[int, int]]], isn: int) -> Flow:
    """Return the flow of a capture in which the ACKs have these blocks."""
    count = np.array([len(each) for each in blocks], np.int64)
    edges = np.array([edge for each in blocks for edge in each], np.int64).reshape(-1, 2)
    sacks = {name: ((edges[:, k] + isn) & 0xFFFFFFFF).astype(np.uint32) for k, name in enumerate(("left", "right"))}
    first = np.cumsum(count) - count
    columns = columns | {name: columns[name].copy() for name in ("sack_row", "sack_count", "options", "conn")}
    # Blocks of other packets, such as those for data in the other direction, are not in the new table.
    columns["sack_row"][:], columns["sack_count"][:] = -1, 0
    columns["sack_row"][acks] = np.where(count > 0, first, -1)
    columns["sack_count"][acks] = count
    columns["options"][acks] |= np.where(count > 0, OPT_SACK, 0).astype(columns["options"].dtype)
    columns["conn"][:] = 0
    old = flow.capture.packets
    connections = {name: column[flow.index : flow.index + 1].copy() for name, column in old.connections.items()}
    connections["sack_ok"][:] = 1
    packets = Packets(columns, sacks, connections, old.counters, old.warnings, old.source)
    return Capture(packets, flow.capture.hz if flow.capture.hz_given else None).flow(0)
