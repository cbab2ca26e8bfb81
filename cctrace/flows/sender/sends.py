"""Sends: the retransmission queue, and what limited the sender; `reasons` says why a segment is retransmitted.

Sources: [Linux] tcp_write_xmit, tcp_event_new_data_sent, tcp_retransmit_skb, tcp_cwnd_validate.
"""

from cctrace.cc.linux import CA_RECOVERY, EVENT_CWND_RESTART, EVENT_TX_START
from cctrace.flows import state
from cctrace.flows.sender import ratesample, skbs, timers
from cctrace.flows.sender import scoreboard as sb
from cctrace.flows.sender.acks import clear
from cctrace.flows.sender.emitting import data_segs_out, emit
from cctrace.schema import CLOCK_START_US, CWND_EVENT
from cctrace.tcp.pacing import SK_GSO_MAX_SIZE, next_departure
from cctrace.tcp.rate import app_limited_until
from cctrace.tcp.window import note_usage

LATEST_US = 100_000  # after newer data; before any RTT is known, only a timeout retransmits


def send_syn(tp, seg, tx_us, ts, is_answer):
    """The sender's SYN, which is a segment of its own, or its SYN-ACK, which is not kept in the queue."""
    if is_answer:
        tp.synack_us = -1 if tp.snd_nxt else tx_us  # sent twice, it gives no RTT
        tp.snd_nxt = 1
        return
    tp.syns += 1
    if tp.tail == tp.head:
        append(tp, seg, 1, tx_us, ts, 1)
        seg[0].tx_delivered_us = 0
    else:
        seg[tp.head & (seg.size - 1)].flags |= state.EVER_RETRANS
        tp.total_retrans += 1


def append(tp, seg, end_seq, tx_us, ts, in_flight):
    """Append the segment from snd_nxt to `end_seq` to the retransmission queue; the caller has made room."""
    s = seg[tp.tail & (seg.size - 1)]
    s.seq = tp.snd_nxt
    s.end_seq = end_seq
    s.skb_end = end_seq
    s.flags = 0
    s.tx_us = tx_us
    s.ts = ts
    s.skip = tp.tail + 1
    ratesample.on_sent(tp, s, in_flight)
    sb.list_append(tp, seg, tp.tail)
    tp.tail += 1
    tp.packets_out += 1
    tp.snd_nxt = end_seq
    if tp.blur_us and tp.cwr_seq < 0 and tp.ca_state == CA_RECOVERY and tx_us - tp.reduced_us <= tp.blur_us:
        tp.high_seq = end_seq  # it may precede the recovery, which would otherwise seem to end too early


def before_send(tp, rs, out):
    """Signal a start from idle to the controller; record and return whether the pipe had run empty."""
    clear(rs)
    rs.ack = tp.snd_una
    flying = sb.in_flight(tp)
    limited = tp.queue_empty and tp.lost_out <= tp.retrans_out and tp.wmem_alloc == 0  # fq is empty, too
    if limited:
        tp.app_limited = app_limited_until(tp.delivered, flying)
    tp.queue_empty = 0
    if tp.packets_out == 0 and tp.lsndtime_us:
        timers.note_left(tp, tp.lsndtime_us + tp.rto_us - tp.now_us)
        if tp.now_us - tp.lsndtime_us > tp.rto_us:
            emit(out, tp, rs, CWND_EVENT, EVENT_CWND_RESTART)
    if flying == 0:
        emit(out, tp, rs, CWND_EVENT, EVENT_TX_START)
    return limited


def full_skb(tp):
    """Return the bytes of an skb that a write of much data fills [Linux] tcp_xmit_size_goal."""
    return SK_GSO_MAX_SIZE // tp.mss * tp.mss


def left_of_skb(tp, seq):
    """Return the bytes from `seq` to the end of its skb, where a long write has filled one after the other."""
    full = full_skb(tp)
    return full - (seq - tp.skb_end) % full if tp.skb_end else full


def note_sent(tp, sent, ns, payload, begins, is_retransmission, limited, ends):
    """Write one row of `schema.SENDS`; the caller has made room."""
    s = sent[tp.sent - tp.taken_sends]
    tp.sent += 1
    s.time_ns = ns
    s.tx_ns = tp.group_ns
    s.row = tp.rows
    s.payload = payload
    s.segments = (payload + tp.mss - 1) // tp.mss
    s.in_flight = sb.in_flight(tp)
    s.packets_out = tp.packets_out
    s.snd_nxt = tp.snd_nxt
    s.begins = 1 if begins else 0
    s.retransmitted = 1 if is_retransmission else 0
    s.app_limited = 1 if limited else 0
    s.ends_write = 1 if ends else 0
    s.fills_window = 1 if window_binds(tp) else 0
    s.skb_left = (left_of_skb(tp, tp.snd_nxt) + tp.mss - 1) // tp.mss if tp.skb_end else 0


def validate_cwnd(tp, waiting):
    """Record, after all sends of one call of the stack, what limited it [Linux] tcp_cwnd_validate.

    Data that is `waiting` was written since, but cwnd had too little room for its super-packet: [Linux]
    tcp_tso_should_defer.
    """
    if not tp.unvalidated and not waiting:
        return
    tp.unvalidated = 0
    limited = 0 if (tp.queue_empty and not waiting) or tp.rwnd_since_us else 1
    stale = tp.snd_una >= tp.cwnd_usage_seq
    if note_usage(limited != 0, stale, tp.is_cwnd_limited != 0, tp.packets_out, tp.max_packets_out):
        tp.is_cwnd_limited = limited
        tp.max_packets_out = tp.packets_out
        tp.cwnd_usage_seq = tp.snd_nxt


def is_by_timer(tp):
    """Return whether a send is too long after the latest ACK to have been released by it."""
    return tp.now_us - tp.last_ack_us > tp.answer_us


def note_pacing(tp):
    """Learn from a new send whether sends follow ACKs or a pacing timer, and the timer's spacing."""
    if tp.rwnd_since_us == 0 and tp.lsndtime_us:
        tp.paced += ((1024 if is_by_timer(tp) else 0) - tp.paced) >> 3
        tp.send_gap_us = tp.now_us - tp.lsndtime_us


def pace(tp, payload, begins):
    """Compute when pacing releases the next super-packet, after `payload` more bytes [Linux]
    tcp_update_skb_after_send.

    A super-packet that `begins` later than pacing allowed gets that time back, up to half of its own; not what it
    waited in fq beyond the estimate, which was wrong then.
    """
    if begins:
        tp.skb_ns = tp.group_ns  # nothing leaves before its time, so an estimate beyond it was wrong
        asked_ns = tp.clock_ns - tp.start_ns + CLOCK_START_US * 1000 if tp.hands_over else tp.skb_ns
        tp.late_ns = max(0, min(asked_ns, tp.skb_ns) - tp.wstamp_ns)
        tp.skb_bytes = 0
    tp.skb_bytes += payload
    stamp_next(tp)


def stamp_next(tp):
    """Compute when pacing releases what follows the present super-packet, at the present rate.

    A controller that hears of a start from idle may change the rate before TCP does so [Linux] __tcp_transmit_skb.
    """
    segments = data_segs_out(tp)
    tp.wstamp_ns = next_departure(tp.skb_ns - tp.late_ns, tp.skb_ns, tp.skb_bytes, tp.rate_Bps, segments)


def paced_until_us(tp):
    """Return when the pacing timer ends: by the replay's rate, or the last two sends' spacing."""
    if tp.hands_over:  # to a queue that waits instead
        return tp.now_us
    if tp.rate_Bps > 0:
        return max(tp.now_us, tp.wstamp_ns // 1000)
    return tp.now_us + (tp.send_gap_us if tp.paced > state.PACED else 0)


def window_left(tp):
    """Return how many bytes the receive window has left; negative if it shrank."""
    return tp.snd_una + tp.snd_wnd - tp.snd_nxt


def is_shut(tp):
    """Return whether the window has no room for a segment, of half of it at most [Linux] tcp_bound_to_half_wnd."""
    return window_left(tp) < min(tp.mss, max(1, tp.max_window >> 1))


def window_binds(tp):
    """Return whether the receive window could hold the next super-packet back [Linux] tcp_tso_should_defer.

    It does if it does not hold another one of the usual size, unless what is left is a third of the whole window. With
    nothing outstanding no ACK will make room: what fits leaves, down to a segment [Linux] tcp_snd_wnd_test.
    """
    if tp.packets_out == 0:
        return is_shut(tp)
    return window_left(tp) < max(tp.mss, min(tp.max_burst * tp.mss, tp.snd_wnd // 3))


def note_burst(tp, segments):
    """Learn, at the end of a super-packet, its size; return whether cwnd cut it short.

    One that the receive window cuts reaches its edge [Linux] tcp_mss_split_point, or the last full segment while a
    small one is unacknowledged [Linux] tcp_minshall_check. One that is shorter than its predecessors, and leaves
    more of the window, was cut by cwnd, and so is the next: [Linux] tcp_write_xmit tests cwnd before the window.
    Only paced senders show that: an ACK-clocked one may not have processed the last ACKs before its send.
    """
    left = window_left(tp)
    at_edge = left <= 0 or (left < tp.mss and tp.small_end > tp.snd_una)
    cut = tp.cwnd == 0 and tp.paced > state.PACED and segments < min(tp.last_burst, tp.prior_burst) and not at_edge
    tp.max_burst = max(segments, tp.max_burst - (tp.max_burst >> 3))
    tp.prior_burst = tp.last_burst
    tp.last_burst = segments
    return cut


def ends_write(tp, end, begin):
    """Return whether a short segment [begin, end) is the last one of a write, which empties the queue.

    The edge of the window cuts a super-packet anywhere ([Linux] tcp_mss_split_point, tso_fragment), and what remains of
    it ends with a short segment, too: where whole segments from before the cut would have ended.
    """
    if end == tp.snd_una + tp.snd_wnd:
        if tp.edge_seq == 0:
            tp.edge_seq = begin
        return False
    if tp.edge_seq == 0:
        return True
    remains = (end - tp.edge_seq) % tp.mss == 0
    tp.edge_seq = 0
    return not remains


def account_window(tp, cut):
    """Start or stop the clock of receive-window limitation after a send [Linux] tcp_write_xmit.

    A paced sender checks only when its timer has expired. If cwnd, now known to the segment, would not have allowed
    more than the window before this send, cwnd was the limit.
    """
    stop_window_clock(tp)
    reach = window_left(tp) + sb.in_flight(tp) * tp.mss
    if cut and sb.in_flight(tp) * tp.mss < tp.credit_reach:
        tp.rwnd_limited_us -= tp.credit_us
    if tp.group_psh:
        tp.credit_us = 0
    if not tp.queue_empty and not cut and window_binds(tp) and (tp.cwnd == 0 or sb.in_flight(tp) < tp.cwnd):
        tp.rwnd_since_us = paced_until_us(tp)
        tp.rwnd_reach = reach


def stop_window_clock(tp):
    """The receive window does not limit the sender any more [Linux] tcp_chrono_stop."""
    if tp.rwnd_since_us:
        waited_us = max(0, tp.now_us - tp.rwnd_since_us)
        tp.rwnd_limited_us += waited_us
        tp.rwnd_since_us, tp.rwnd_until_us = 0, tp.now_us
        if waited_us > tp.answer_us:  # not between the segments of one super-packet
            tp.credit_us = waited_us
            tp.credit_reach = tp.rwnd_reach


def note_shut(tp):
    """Record, after an ACK, since when the window has been closed with nothing outstanding."""
    if tp.packets_out or not is_shut(tp):
        tp.shut_us = 0
    elif tp.shut_us == 0:
        tp.shut_us = tp.now_us


def wait_since_shut(tp):
    """Data turn out to wait for the window: the wait counts as outstanding time, too [Linux] tcp_chrono_start."""
    if tp.shut_us and tp.rwnd_since_us == 0:
        tp.rwnd_since_us = tp.shut_us
        if tp.busy_since_us == 0:
            tp.busy_since_us = tp.shut_us


def is_window_probe(tp, a, payload):
    """Return whether a packet probes the closed window with nothing outstanding.

    Linux sends an acknowledged byte, or none, from before it [Linux] tcp_xmit_probe_skb; others the next byte,
    which does not fit. Senders probe only with data in the queue.
    """
    if tp.packets_out or payload > 1 or not is_shut(tp):
        return False
    return a == tp.snd_una - 1 or (payload == 1 and a == tp.snd_nxt and window_left(tp) <= 0)


def note_window_probe(tp, b):
    """Process a window probe; the byte before `b` may be new, and counts as sent once it is acknowledged."""
    wait_since_shut(tp)
    tp.probe_end = b


def retransmit(tp, seg, rs, out, log, i, tx_us, ts, why, joins):
    """Process the retransmission of segment `i` [Linux] tcp_retransmit_skb; a tail-loss probe is not counted as out.

    It `joins` the segment before it if both may have been sent as one: they are, if they were one super-packet.
    """
    s = seg[i & (seg.size - 1)]
    tp.total_retrans += 1
    tp.bytes_retrans += s.end_seq - s.seq
    sb.note(tp, log, s.seq, s.end_seq, why)
    if s.flags & state.SACKED:
        return  # sent before the SACK was processed; nothing depends on it any more
    flying = sb.in_flight(tp)
    if flying == 0:
        clear(rs)
        rs.ack = tp.snd_una
        emit(out, tp, rs, CWND_EVENT, EVENT_TX_START)
    s.tx_us = tx_us
    s.ts = ts
    begins = not joins or i != tp.retrans_next or s.skb_end != tp.retrans_end
    if begins:
        skbs.fragment(tp, seg, i)
        tp.retrans_first, tp.retrans_end, tp.retrans_flying = i, s.skb_end, flying
    tp.retrans_next = i + 1
    if i + 1 < tp.tail:
        skbs.fragment(tp, seg, i + 1)
    ratesample.on_sent(tp, s, flying + 1)
    sb.list_append(tp, seg, i)
    for k in range(max(tp.retrans_first, tp.head), i + 1):
        one = seg[k & (seg.size - 1)]
        one.skb_end = s.end_seq
        one.tx_in_flight = one.tx_in_flight_v2 = tp.retrans_flying + tp.retrans_next - tp.retrans_first
    s.flags |= state.EVER_RETRANS
    tp.lsndtime_us = tp.now_us
    if why == state.PROBE:
        timers.on_probe(tp, 1)
        return
    if not s.flags & state.RETRANS:
        s.flags |= state.RETRANS
        tp.retrans_out += 1
    if tp.retrans_stamp == 0:
        tp.retrans_stamp = ts if ts else 1  # the kernel has its stamp even if none is sent
    tp.undo_retrans = max(0, tp.undo_retrans) + 1
    if i == tp.head and tp.reo_first_us == 0:
        timers.restart(tp)


def show_late(tp, a, b):
    """Return whether [a, b) is data captured after its ACK: time stamps of two queues cross."""
    arrived_late = min(b, tp.late_high) - max(a, tp.late_low)
    if arrived_late <= 0:
        return False
    tp.uncaptured = max(0, tp.uncaptured - (arrived_late + tp.mss - 1) // tp.mss)
    tp.late_low = min(b, tp.late_high)
    return True


def show_reordered(tp, seg, a, b):
    """Treat [a, b) as the first transmission of data that newer data had revealed, if it is; return whether.

    Nothing is retransmitted within half an RTT: the capture, or the path to it, changed the order.
    """
    first = sb.find(tp, seg, max(a, tp.snd_una))
    i = first
    while i < tp.tail and seg[i & (seg.size - 1)].seq < b:
        s = seg[i & (seg.size - 1)]
        if s.flags & (state.UNCAPTURED | state.SACKED | state.LOST | state.RETRANS) != state.UNCAPTURED:
            return False
        if tp.now_us - s.tx_us >= min(tp.tcp_min_rtt_us >> 1, LATEST_US):
            return False
        i += 1
    for j in range(first, i):
        seg[j & (seg.size - 1)].flags &= ~(state.UNCAPTURED | state.EVER_RETRANS)
        tp.uncaptured -= 1
    return i > first


def fill_uncaptured(tp, seg, upto):
    """Add the segments up to `upto` that must have been sent although the capture lacks them."""
    while upto > tp.snd_nxt:
        is_probe = tp.probe_end == tp.snd_nxt + 1
        size = 1 if is_probe else min(tp.mss, upto - tp.snd_nxt)
        append(tp, seg, tp.snd_nxt + size, tp.now_us, 0, sb.in_flight(tp) + 1)
        s = seg[(tp.tail - 1) & (seg.size - 1)]
        s.flags |= state.UNCAPTURED | state.EVER_RETRANS  # no RTT and no rate sample may come of it
        if tp.blur_us and tp.ca_state == CA_RECOVERY and s.seq == tp.high_seq:  # lost: its departure time is unknown
            tp.high_seq = s.end_seq
        s.tx_delivered_us = 0
        tp.uncaptured += 0 if is_probe else 1
