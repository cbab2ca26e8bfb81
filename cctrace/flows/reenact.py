"""The pass over the packets of connections that re-enacts their senders by `sender`, in tables that grow.

The compiled part allocates nothing: where a table lacks room for what the next packet can cause, it stops and says so.
"""

import numpy as np

from cctrace.flows import recovery
from cctrace.flows.acks import clear
from cctrace.flows.handover import TASKLET_NS, leave, may_hand_over, next_data, super_packet
from cctrace.flows.sends import is_window_probe, note_window_probe
from cctrace.flows.state import (
    ACK,
    CLOCK_START_US,
    EVENT,
    FIN,
    LOG,
    OPT_COPY,
    OPT_TIMESTAMPS,
    PASS,
    RS,
    RST,
    SEG,
    SENT,
    SNAP,
    SYN,
    THROUGH_FQ,
    TP,
)
from cctrace.flows.tcp_sender import (
    answer,
    bring_forward,
    clock_us,
    establish,
    is_answered,
    most_answers,
    receive,
    send,
    send_syn,
    set_clock,
    start,
)
from cctrace.lang.machine import Machine
from cctrace.tcp.sequence import unwrap
from cctrace.tcp.small_queue import skb_truesize

FIRST_RING = 64
MARGIN = 64  # rows that one packet can cause besides those for each outstanding segment
HANDED_SEGMENTS = 256  # that TCP hands to fq at a time: two of the largest super-packets, or an initial window
# What may be missing between two packets of a connection. A number further ahead belongs to no data of it; and a file
# of a kilobyte must not make up a gigabyte of segments, however small it says they are.
BELIEVABLE_GAP = 1 << 28  # bytes
MOST_UNSEEN = 1 << 18  # segments outstanding or missing in all: 380 MB of 1448
UNSEEN_PER_PACKET = 64  # and so many more for each packet that was captured: a super-packet of 64 kB
NOTHING, OUT, RETRANSMISSIONS, SENDS, ANSWERS, RING = range(-1, 5)  # the tables that can lack room


def reenact(packets, sacks, order, first, params, polls, decided, place, tables):
    """Re-enact the connections from where `place`, a PASS record, is; see `run`.

    Returns the number of the table that lacks room, NOTHING if all is done. Nothing was done yet of the packet at which
    it stops, so it goes on from there once the table is larger.
    """
    out, log, sent, snap, seg, ends, finals, blocks, scratch = tables
    time_ns, direction, flags, seq, ack, window, payload, tsval, tsecr, options, sack_row, sack_count = packets
    left, right = sacks
    rs = scratch[0]
    at = place[0]
    while at.connection < params.size:
        c = at.connection
        p = params[c]
        tp = finals[c]
        if at.packet < 0:
            if c:
                tp.rows, tp.logged, tp.sent = ends[c - 1, 0], ends[c - 1, 1], ends[c - 1, 2]
            start(tp, p, p.start_ns)
            at.packet = 0
        sequence = order[first[c] : first[c + 1]]
        for k in range(at.packet, sequence.size):
            if p.fq != THROUGH_FQ and tp.paced > 512 and direction[sequence[k]] != p.sender:
                bring_forward(tp, p, sequence, k, time_ns, direction, payload, tsval)
            q = sequence[k]
            if options[q] & OPT_COPY:
                continue
            fl = flags[q]
            mine = direction[q] == p.sender
            size = np.int64(payload[q])
            if mine:
                ahead = unwrap(seq[q], p.isn, tp.snd_nxt) + size - tp.snd_nxt
            elif not fl & ACK:
                ahead = 0
            else:
                ahead = unwrap(ack[q], p.isn, tp.snd_una) - tp.snd_nxt
            if not is_believable(tp, p.mss, ahead, ahead - size if mine else ahead, k):
                tp.ignored += 1
                continue
            # Make sure of room for whatever this packet can cause.
            event_ns = time_ns[q] if mine else time_ns[q] + p.ack_delay_ns
            new = max(0, ahead) // max(1, p.mss) + 3 + (HANDED_SEGMENTS if p.fq == THROUGH_FQ else 0)
            rows = MARGIN + 3 * (tp.packets_out + new)
            lacks = NOTHING
            if tp.rows + rows > out.size:
                lacks, at.needed = OUT, tp.rows + rows
            elif tp.logged + rows > log.size:
                lacks, at.needed = RETRANSMISSIONS, tp.logged + rows
            elif tp.sent + new > sent.size:
                lacks, at.needed = SENDS, tp.sent + new
            elif tp.tail - tp.head + new > seg.size:
                lacks, at.needed = RING, tp.tail - tp.head + new
            elif at.taken + 3 * most_answers(polls, at.poll, event_ns + TASKLET_NS) > snap.size:
                lacks, at.needed = ANSWERS, at.taken + 3 * most_answers(polls, at.poll, event_ns + TASKLET_NS)
            if lacks != NOTHING:
                at.packet = k
                return lacks
            if tp.reo_first_us:
                due = (tp.reo_last_us - CLOCK_START_US) * 1000 + p.start_ns
                if due < event_ns:
                    answer(tp, snap, at, polls, due, p.start_ns)
                    set_clock(tp, due, p.start_ns)
                    clear(rs)
                    rs.ack = tp.snd_una
                    recovery.reordering_timeout(tp, seg, rs, out)
            answer(tp, snap, at, polls, event_ns, p.start_ns)
            set_clock(tp, event_ns, p.start_ns)
            while at.decision < decided.shape[0] and decided[at.decision, 0] <= event_ns:
                tp.rate_Bps, tp.cwnd = decided[at.decision, 1], decided[at.decision, 2]
                tp.probing_rtt = decided[at.decision, 3]
                at.decision += 1
            if fl & RST:
                continue
            if mine and k < tp.handed and size > 0:
                last, _ = super_packet(p, sequence, k, time_ns, direction, flags, seq, payload)
                if leave(tp, size, last == k):
                    answer(tp, snap, at, polls, event_ns + TASKLET_NS, p.start_ns)
                    hand_over(tp, seg, rs, out, log, sent, p, sequence, k, packets)
                continue
            if mine and fl & SYN:
                send_syn(tp, seg, clock_us(time_ns[q] - p.tx_delay_ns, p.start_ns), tsval[q], fl & ACK != 0)
            elif mine:
                a = unwrap(seq[q], p.isn, tp.snd_nxt)
                if not fl & FIN and tp.established and is_window_probe(tp, a, size):
                    note_window_probe(tp, a + size)
                    continue
                size += 1 if fl & FIN else 0
                if size == 0 or (p.has_syn and not tp.established):
                    continue
                if not tp.established:
                    establish(tp, rs, out, 1)
                data = np.int64(payload[q])
                send(tp, seg, rs, out, log, sent, p, time_ns[q], a, a + size, data, fl, tsval[q])
                if p.fq == THROUGH_FQ:
                    last, _ = super_packet(p, sequence, k, time_ns, direction, flags, seq, payload)
                    if last == k:
                        hand_over(tp, seg, rs, out, log, sent, p, sequence, k, packets)
            elif fl & ACK:
                a = unwrap(ack[q], p.isn, tp.snd_una)
                tp.tsecr = tsecr[q] if options[q] & OPT_TIMESTAMPS else 0
                count = min(np.int64(sack_count[q]), 4)
                for i in range(count):
                    blocks[i, 0] = unwrap(left[sack_row[q] + i], p.isn, tp.snd_una)
                    blocks[i, 1] = unwrap(right[sack_row[q] + i], p.isn, tp.snd_una)
                ack_seq = unwrap(seq[q], p.peer_isn, tp.snd_wl1)
                wide = np.int64(window[q]) << (0 if fl & SYN else p.wscale)
                waiting = is_answered(p, sequence, k, time_ns, direction, payload)
                receive(tp, seg, rs, out, log, p, blocks, count, a, ack_seq, wide, size > 0, fl, waiting)
                if p.fq == THROUGH_FQ:
                    hand_over(tp, seg, rs, out, log, sent, p, sequence, k, packets)
        ends[c, 0], ends[c, 1], ends[c, 2] = tp.rows, tp.logged, tp.sent
        at.connection += 1
        at.packet = -1
    return NOTHING


def is_believable(tp, mss, ahead, missing, packets):
    """Whether a number so many bytes ahead, so many of them missing, belongs to a connection of so many packets."""
    if ahead > BELIEVABLE_GAP:
        return False
    segments = missing // max(1, mss)
    if segments <= 0:
        return True
    most = MOST_UNSEEN + UNSEEN_PER_PACKET * packets
    return tp.packets_out + segments <= MOST_UNSEEN and tp.unseen + segments <= most


def hand_over(tp, seg, rs, out, log, sent, p, sequence, k, packets):
    """Send what TCP hands to fq now, behind the packet at place `k`: it leaves later; see `handover`."""
    time_ns, direction, flags, seq, _, _, payload, tsval, _, _, _, _ = packets
    room = HANDED_SEGMENTS - 1
    while tp.established:
        first = next_data(p, sequence, max(k + 1, tp.handed), direction, payload)
        if first == sequence.size:
            return
        last, size = super_packet(p, sequence, first, time_ns, direction, flags, seq, payload)
        q = sequence[first]
        a = unwrap(seq[q], p.isn, tp.snd_nxt)
        room -= size // max(1, p.mss) + 1
        if a > tp.snd_nxt or room < 0 or not may_hand_over(tp, seg, time_ns[q], a, a + size, size):
            return
        for j in range(first, last + 1):
            q = sequence[j]
            data = np.int64(payload[q])
            if direction[q] == p.sender and data > 0:
                end = a + data + (1 if flags[q] & FIN else 0)
                send(tp, seg, rs, out, log, sent, p, time_ns[q], a, end, data, flags[q], tsval[q])
                a += data
        tp.handed = last + 1
        tp.queued += skb_truesize(size)


_reenact = Machine(reenact)


def run(packets, sacks, order, first, params, polls, decided):
    """Re-enact the connections; see `Capture.reenact`."""
    growing = [
        np.empty(max(256, order.size + order.size // 2), EVENT),
        np.empty(256, LOG),
        np.empty(max(256, order.size // 2), SENT),
        np.zeros(polls.shape[0] * 2 + 16, SNAP),
        np.zeros(FIRST_RING, SEG),  # the next connection's segments overwrite the last one's
    ]
    ends, finals = np.zeros((params.size, 3), np.int64), np.zeros(params.size, TP)
    rest = ends, finals, np.zeros((4, 2), np.int64), np.zeros(1, RS)
    at = np.zeros(1, PASS)
    at["packet"] = -1
    order = order.copy()  # packets are brought forward in it
    given = packets, sacks, order, first, params, polls, decided, at
    while (lacks := _reenact(*given, (*growing, *rest))) != NOTHING:
        needed, tp = int(at["needed"][0]), finals[at["connection"][0]]
        if lacks == RING:
            growing[RING] = larger_ring(growing[RING], int(tp["head"]), int(tp["tail"]), needed)
        else:
            growing[lacks] = larger(growing[lacks], needed)
    out, log, sent, snap, _ = growing
    rows, logged, departed = ends[-1] if params.size else (0, 0, 0)
    return out[:rows], log[:logged], sent[:departed], ends, snap[: at["taken"][0]], finals


def larger(table, needed):
    """Return a table of at least `needed` records, twice as many as before, that begins with the same ones."""
    found = np.zeros(max(table.size * 2, needed), table.dtype)
    found[: table.size] = table
    return found


def larger_ring(ring, head, tail, needed):
    """Return a ring of at least `needed` records with those from `head` to `tail`."""
    size = ring.size
    while size < needed:
        size *= 2
    found, places = np.zeros(size, ring.dtype), np.arange(head, tail)
    found[places & (size - 1)] = ring[places & (ring.size - 1)]
    return found
