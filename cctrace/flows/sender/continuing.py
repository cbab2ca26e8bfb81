"""What TCP does between the packets of a re-enactment: RACK's timer fires, and data are handed over to fq.

TCP hands over data when an ACK arrives or a packet leaves (`handover`), when RACK's timer marks losses, and at times
that only echoed time stamps show (`echoes`).

Sources: [Linux61] net/ipv4/tcp_output.c tcp_write_xmit, tcp_xmit_retransmit_queue; net/ipv4/tcp_recovery.c
tcp_rack_reo_timeout.
"""

import numpy as np

from cctrace.flows import state
from cctrace.flows.sender import echoes, handover, recovery, tcp_sender, timers
from cctrace.flows.sender import scoreboard as sb
from cctrace.flows.sender.acks import clear
from cctrace.flows.sender.sends import stamp_next
from cctrace.schema import CLOCK_START_US, CWND_EVENT
from cctrace.tcp.flags import FIN
from cctrace.tcp.sequence import unwrap
from cctrace.tcp.small_queue import SKB_OVERHEAD_BYTES

BEFORE = 2  # `at.may_hand_over`: before the next packet, not after the last one
HANDED_SEGMENTS = 256  # that TCP hands to fq at a time, at most: two of the largest super-packets, or an initial window


def decide(tp, decided, i):
    """Apply the controller's decision at row `i` of `decided`."""
    tp.rate_Bps, tp.cwnd, tp.probing_rtt, tp.tso_segs = decided[i, 1], decided[i, 2], decided[i, 3], decided[i, 4]
    tp.skb_overhead = decided[i, 5] if decided[i, 5] > 0 else SKB_OVERHEAD_BYTES


def mark(tp, hints):
    """Record whether a replay, if any, marks the next packet as application-limited."""
    marked, _ = hints
    if tp.sent < marked.size:
        tp.next_app_limited = np.int64(marked[tp.sent])


def precede(tp, seg, rs, out, snap, p, at, sequence, k, packets, polls, hints):
    """Process what happened before the packet at place `k`: RACK's timer, writes, and hand-overs shown by echoes.

    `at.may_hand_over` is BEFORE if TCP may have handed over data then.
    """
    _, due = hints
    time_ns, direction, _, seq, _, _, payload, _, _, _, _, _, _ = packets
    q = sequence[k]
    event_ns = handover.handled_ns(p, time_ns[q], direction[q] == p.sender)
    at.stamp = 0
    if p.fq == state.THROUGH_FQ:
        at.stamp = echoes.stamp_before(tp, p, sequence, k, packets)
    if tp.reo_first_us:
        if tcp_sender.clock_us(event_ns, p.start_ns) >= tp.reo_first_us - 1_000_000 // tp.hz:
            tp.ticks_matter = 1
        if at.stamp != 0 and tp.reo_first_us <= tcp_sender.clock_us(event_ns, p.start_ns):
            q = sequence[handover.next_data(p, sequence, max(k + 1, tp.next_to_hand_over), direction, payload)]
            if shows_timer(tp, seg, unwrap(seq[q], p.isn, tp.snd_nxt)):
                timers.note_tick(tp, tp.reo_first_us, tcp_sender.clock_us(event_ns, p.start_ns))
        fires_ns = (timers.tick_by(tp, tp.reo_first_us) - CLOCK_START_US) * 1000 + p.start_ns
        if fires_ns < event_ns:
            tcp_sender.answer(tp, snap, at, polls, fires_ns, p.start_ns)
            tcp_sender.set_clock(tp, fires_ns, p.start_ns)
            clear(rs)
            rs.ack = tp.snd_una
            recovery.reordering_timeout(tp, seg, rs, out)
            at.may_hand_over = BEFORE if p.fq == state.THROUGH_FQ else 0
    due_ns = due[tp.next_due, 0] if tp.next_due < due.shape[0] else state.NEVER
    if tp.clock_ns < due_ns < event_ns and handover.waits_in_fq(tp, due_ns):
        tcp_sender.answer(tp, snap, at, polls, due_ns, p.start_ns)
        tcp_sender.set_clock(tp, due_ns, p.start_ns)
        at.stamp = at.stamp if at.stamp != 0 else np.int64(-1)
    if at.stamp != 0:
        at.may_hand_over = BEFORE


def shows_timer(tp, seg, a):
    """Return whether data at `a`, handed over by now, are a retransmission that only RACK's timer can have caused."""
    if not tp.snd_una <= a < tp.snd_nxt:
        return False
    return seg[sb.find(tp, seg, a) & (seg.size - 1)].flags & (state.SACKED | state.LOST | state.RETRANS) == 0


def continue_sending(tp, seg, rs, out, log, sent, p, at, sequence, k, packets, decided, hints):
    """TCP may hand over data after the packet at place `k`, with what the controller has decided."""
    if at.awaits_decisions == 0 and decided.shape[0] > 0:
        decide(tp, decided, min(tp.rows, decided.shape[0]) - 1)
    calls, _, _ = out
    if tp.rows > tp.taken_rows and calls[tp.rows - tp.taken_rows - 1].event == CWND_EVENT:
        stamp_next(tp)
    stamp = at.stamp if at.may_hand_over == BEFORE else -1
    at.may_hand_over = 0
    hand_over(tp, seg, rs, out, log, sent, p, sequence, k, packets, hints, stamp)


def hand_over(tp, seg, rs, out, log, sent, p, sequence, k, packets, hints, stamp):
    """Send what TCP hands to fq now, after the packet at place `k`: it leaves later; see `handover`.

    `stamp`: -1, or the time stamp of an ACK: then only retransmissions, and what echoes date before that ACK.
    """
    time_ns, direction, flags, seq, _, _, payload, tsval, tsecr, options, _, _, _ = packets
    _, due = hints
    written = handover.written_by_now(tp, due)
    room = HANDED_SEGMENTS - 1
    while tp.established:
        first = handover.next_data(p, sequence, max(k + 1, tp.next_to_hand_over), direction, payload)
        if first == sequence.size:
            return
        last, size = handover.super_packet(p, sequence, first, time_ns, direction, flags, seq, payload)
        q = sequence[first]
        a = unwrap(seq[q], p.isn, tp.snd_nxt)
        room -= size // max(1, p.mss) + 1
        if a > tp.snd_nxt or a + size > written or room < 0 or echoes.is_early(tp, p, options[q], np.int64(tsecr[q])):
            return
        with_ack = handover.leaves_with_ack(p, sequence, k, first, time_ns, direction)
        may = handover.may_hand_over(tp, seg, time_ns[q], a, a + size, flags[sequence[last]], with_ack)
        overdue = stamp >= 0 and echoes.is_overdue(tp, p, options[q], np.int64(tsecr[q]), stamp, size)
        if stamp >= 0:
            may = overdue or (may and a < tp.snd_nxt)
        if not may:
            return
        short = not overdue and a == tp.snd_nxt and handover.is_too_short(tp, seg, size, written - a)
        if short and not handover.ends_skb(tp, p, sequence, last, a + size, size, packets):
            return
        is_retransmission = a < tp.snd_nxt
        handover.note_made(tp, a, size, time_ns[q] - time_ns[sequence[first - 1]])
        for j in range(first, last + 1):
            q = sequence[j]
            data = np.int64(payload[q])
            if direction[q] == p.sender and data > 0:
                end = a + data + (1 if flags[q] & FIN else 0)
                mark(tp, hints)
                tcp_sender.send(tp, seg, rs, out, log, sent, p, time_ns[q], a, end, data, flags[q], tsval[q])
                a += data
        tp.next_to_hand_over = last + 1
        tp.wmem_alloc += tp.skb_overhead + size
        if tp.queue_empty and not is_retransmission:
            return  # a write has ended: had more been written, no segment would be short
