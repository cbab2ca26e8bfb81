"""The sender's TCP, re-enacted: one pass over a connection's packets that keeps the state its kernel kept.

What the kernel *decided* is seen in the packets (what it sent and when); what it *knew* is computed from the ACKs by
the kernel's own rules. Where the two meet, the packets win: a retransmission of a segment that the rules have not
marked lost is explained by the timer that must have fired (RACK's, the tail-loss probe's, the retransmission timer's),
and if none fits it is counted in `forced`.

Time: a packet counts from when the stack handled it. Packets are taken in file order and the clock never runs
backwards: a record that carries an older time than its predecessor was queued (or its CPU stalled) before the stack
saw it. An ACK is handled `ack_delay_ns` after its time stamp, a segment was stamped by TCP `tx_delay_ns` before its.

Sources: [Linux] tcp_ack, tcp_clean_rtx_queue, tcp_ack_update_rtt, tcp_retransmit_skb, tcp_cwnd_validate.
"""

import numpy as np
from numba import njit

from cctrace import schema
from cctrace.flows import ratesample, recovery, rtt
from cctrace.flows import scoreboard as sb
from cctrace.flows.seqspace import unwrap
from cctrace.flows.state import (
    ACK,
    CLOCK_START_US,
    CWND_RESTART,
    CWR,
    ECE,
    EVENT,
    EVER,
    FIN,
    LOST,
    OPT_TIMESTAMPS,
    PSH,
    RECOVERY,
    RETRANS,
    RS,
    RST,
    SACKED,
    SEG,
    SNAP,
    SYN,
    TP,
    TX_START,
    UNSEEN,
    stamp,
)

INIT = schema.LINUX_EVENTS["init"]
ON_ACK = schema.LINUX_EVENTS["on_ack"]
CWND_EVENT = schema.LINUX_EVENTS["cwnd_event"]
PKTS_ACKED = schema.LINUX_EVENTS["pkts_acked"]
CONG_AVOID = schema.LINUX_EVENTS["cong_avoid"]
U32_MAX = schema.U32_MAX
FIRST_RING = 64

# Segments of one send share the kernel's time stamp. A segment without PSH that is followed this soon by the next one
# is not the last of its super-packet (the kernel sets PSH on the last segment of each); after PSH, the next
# super-packet of the same loop follows within a few microseconds.
SAME_PACKET_NS = 50_000
SAME_LOOP_NS = 5_000
ANSWER_US = 60  # a send this soon after an ACK was released by it


@njit
def clear(rs):
    """Start a new ACK (or none: calls between ACKs)."""
    rs.flag = 0
    rs.first_sack_us = 0
    rs.last_sack_us = 0
    rs.sack_delivered = 0
    rs.prior_delivered = 0
    rs.prior_delivered_us = 0
    rs.prior_ce = 0
    rs.prior_lost = 0
    rs.tx_in_flight = 0
    rs.is_app_limited = 0
    rs.is_retrans = 0
    rs.last_end_seq = 0
    rs.snd_interval_us = 0
    rs.delivered = -1
    rs.interval_us = -1
    rs.rtt_us = -1
    rs.losses = 0
    rs.acked_sacked = 0
    rs.prior_in_flight = 0
    rs.is_ack_delayed = 0
    rs.acking_tlp = 0
    rs.lost = -1
    rs.delivered_ce = -1


# -- ACKs -------------------------------------------------------------------------------------------------------------
@njit
def update_window(tp, ack, ack_seq, window):
    """Take over the advertised window; return whether the ACK counts as an update [Linux] tcp_ack_update_window."""
    if ack > tp.snd_una or ack_seq > tp.snd_wl1 or (ack_seq == tp.snd_wl1 and (window > tp.snd_wnd or window == 0)):
        tp.snd_wl1 = ack_seq
        tp.snd_wnd = window
        tp.max_window = max(tp.max_window, window)
        return True
    return False


@njit
def sacktag(tp, seg, rs, blocks, count, prior_una):
    """Tag the queue with an ACK's SACK blocks [Linux] tcp_sacktag_write_queue."""
    rs.reord = tp.snd_nxt
    dup = False
    left, right = blocks[0, 0], blocks[0, 1]
    if left < rs.ack or (count > 1 and right <= blocks[1, 1] and left >= blocks[1, 0]):
        segments = sb.dsack_seen(tp, rs, left, right)
        if segments:
            dup = True
            if tp.has_undo and tp.undo_retrans > 0 and right <= prior_una and right > tp.undo_marker:
                tp.undo_retrans = max(0, tp.undo_retrans - segments)
    if rs.ack < prior_una - tp.max_window or tp.packets_out == 0:
        return
    used = 0
    dup_at = -1
    for i in range(count):
        is_dup = dup and i == 0
        left, right = blocks[i, 0], blocks[i, 1]
        if not sb.is_block_valid(tp, is_dup, left, right) or right <= prior_una:
            continue
        at = used  # keep the blocks in sequence order
        while at > 0 and blocks[at - 1, 0] > left:
            blocks[at, 0] = blocks[at - 1, 0]
            blocks[at, 1] = blocks[at - 1, 1]
            if dup_at == at - 1:
                dup_at = at
            at -= 1
        blocks[at, 0] = left
        blocks[at, 1] = right
        if is_dup:
            dup_at = at
        used += 1
    for i in range(used):
        sb.tag_block(tp, seg, rs, blocks[i, 0], blocks[i, 1], i == dup_at)
    if tp.ca_state != 4 or tp.has_undo:
        sb.check_reordering(tp, rs.reord)


@njit
def update_rtt(tp, rs, seq_rtt, sack_rtt, ca_rtt):
    """Choose and enter the RTT sample of an ACK [Linux] tcp_ack_update_rtt."""
    if seq_rtt < 0:
        seq_rtt = sack_rtt
    if seq_rtt < 0 and tp.ts_ok and tp.tsecr != 0 and rs.flag & (sb.DATA_ACKED | sb.SYN_ACKED):
        # Everything acknowledged was retransmitted: only the echoed time stamp tells, at its own resolution.
        delta = ((tp.now_us + tp.ts_offset_us) // tp.ts_tick_us - tp.tsecr) & 0xFFFFFFFF
        if delta < 0x7FFFFFFF // tp.ts_tick_us:
            seq_rtt = max(1, delta) * tp.ts_tick_us
            ca_rtt = seq_rtt
    rs.rtt_us = ca_rtt
    if seq_rtt < 0:
        return False
    rtt.update_min(tp, ca_rtt, rs.flag & sb.MAYBE_DELAYED != 0)
    rtt.smooth(tp, seq_rtt)
    rtt.set_rto(tp)
    return True


@njit
def is_spurious(tp, s):
    """Return whether the ACK echoes a time before this segment's retransmission [Linux] tcp_skb_spurious_retrans."""
    return s.flags & (RETRANS | EVER) != 0 and recovery.echo_before(tp, s.ts)


@njit
def clean_queue(tp, seg, rs, out, prior_una, prior_fack):
    """Remove what the ACK covers and take its RTT [Linux] tcp_clean_rtx_queue; return the segments removed."""
    mask = seg.size - 1
    prior_sacked = tp.sacked_out
    reord = tp.snd_nxt
    ece = rs.flag & sb.F_ECE != 0
    first_us, last_us = 0, 0
    acked = 0
    i = tp.head
    while i < tp.tail:
        s = seg[i & mask]
        if s.end_seq > tp.snd_una:
            break
        flags = s.flags
        end_seq = s.end_seq if s.skb_end <= tp.snd_una or flags & SACKED else s.skb_end
        if flags & (RETRANS | EVER):
            if flags & RETRANS:
                tp.retrans_out -= 1
            rs.flag |= sb.RETRANS_ACKED
        elif not flags & SACKED:
            last_us = s.tx_us
            if first_us == 0:
                first_us = last_us
            reord = min(reord, s.seq)
            if s.end_seq <= tp.high_seq:
                rs.flag |= sb.ORIG_SACK_ACKED
        if flags & SACKED:
            tp.sacked_out -= 1
        elif tp.sack_ok:
            recovery.count_delivered(tp, 1, ece)
            if not is_spurious(tp, s):
                sb.rack_advance(tp, flags, end_seq, s.tx_us)
        if flags & LOST:
            tp.lost_out -= 1
        tp.packets_out -= 1
        acked += 1
        ratesample.on_delivered(tp, rs, s, end_seq)
        rs.flag |= sb.SYN_ACKED if s.seq == 0 else sb.DATA_ACKED
        sb.list_remove(tp, seg, i)
        i += 1
    tp.head = i
    remains = tp.head < tp.tail
    if remains and seg[tp.head & mask].flags & SACKED:
        rs.flag |= sb.RENEGING

    seq_rtt, sack_rtt, ca_rtt = -1, -1, -1
    if first_us and not rs.flag & sb.RETRANS_ACKED:
        seq_rtt = tp.now_us - first_us
        ca_rtt = tp.now_us - last_us
        lone = acked == 1 and prior_sacked == 0 and tp.snd_una - prior_una < tp.mss
        alert = sb.DATA_SACKED | sb.F_ECE | sb.SYN_ACKED
        if lone and rs.prior_delivered + 1 == tp.delivered and not rs.flag & alert:
            rs.flag |= sb.MAYBE_DELAYED
    if rs.first_sack_us:
        sack_rtt = tp.now_us - rs.first_sack_us
        ca_rtt = tp.now_us - rs.last_sack_us
    updated = update_rtt(tp, rs, seq_rtt, sack_rtt, ca_rtt)
    if rs.flag & (sb.DATA_ACKED | sb.SYN_ACKED):
        rs.flag |= sb.SET_TIMER
        if not tp.sack_ok:
            recovery.remove_reno_sacks(tp, acked, ece)
            if rs.flag & sb.RETRANS_ACKED:
                rs.flag &= ~sb.ORIG_SACK_ACKED
        elif reord < prior_fack:
            sb.check_reordering(tp, reord)
    elif remains and updated and sack_rtt >= 0 and sack_rtt > tp.now_us - seg[tp.head & mask].tx_us:
        rs.flag |= sb.SET_TIMER
    sb.emit(out, tp, rs, PKTS_ACKED, acked)
    return acked


@njit
def on_ack(tp, seg, rs, out, blocks, count, ack, ack_seq, window, has_data, ece):
    """Process one ACK [Linux] tcp_ack."""
    clear(rs)
    rs.ack = ack
    prior_una = tp.snd_una
    prior_packets = tp.packets_out
    prior_delivered = tp.delivered
    prior_lost = tp.lost
    if ack < prior_una:
        if ack < prior_una - tp.max_window:
            return
        if count:
            sacktag(tp, seg, rs, blocks, count, prior_una)
            recovery.fastretrans_alert(tp, seg, rs, out, prior_una, 0)
        return
    if ack > prior_una:
        rs.flag |= sb.UNA_ADVANCED
        tp.retransmits = 0
    prior_fack = prior_una
    if tp.sack_ok and tp.sacked_out:
        prior_fack = tp.high_sack
    rs.prior_in_flight = sb.in_flight(tp)
    if has_data:
        rs.flag |= sb.DATA
    if update_window(tp, ack, ack_seq, window):
        rs.flag |= sb.WIN_UPDATE
    tp.bytes_acked += ack - tp.snd_una
    tp.snd_una = ack
    if count:
        sacktag(tp, seg, rs, blocks, count, prior_una)
    if ece and tp.ecn_ok:
        rs.flag |= sb.F_ECE
    if rs.sack_delivered:
        recovery.count_delivered(tp, rs.sack_delivered, rs.flag & sb.F_ECE)
    if prior_packets == 0:
        if rs.flag & sb.DSACKING:
            recovery.fastretrans_alert(tp, seg, rs, out, prior_una, 0)
        if tp.tlp_high_seq:
            recovery.process_tlp_ack(tp, seg, rs, out)
        return
    clean_queue(tp, seg, rs, out, prior_una, prior_fack)
    sb.update_reordering_steps(tp, rs)
    if tp.tlp_high_seq:
        recovery.process_tlp_ack(tp, seg, rs, out)
    if not rs.flag & sb.NOT_DUP or rs.flag & (sb.DATA_SACKED | sb.F_ECE) or tp.ca_state != 0:
        dupacks = 0 if rs.flag & (sb.UNA_ADVANCED | sb.NOT_DUP | sb.DSACKING) else 1
        recovery.fastretrans_alert(tp, seg, rs, out, prior_una, dupacks)
    if rs.flag & sb.SET_TIMER:
        tp.armed_us = tp.now_us
        tp.reo_first_us = 0
    delivered = tp.delivered - prior_delivered
    rs.is_ack_delayed = 1 if rs.flag & sb.MAYBE_DELAYED else 0
    ratesample.generate(tp, rs, delivered, tp.lost - prior_lost)
    sb.emit(out, tp, rs, ON_ACK, 0)
    progress = sb.DATA_ACKED
    if tp.reordering > sb.REORDERING:
        progress |= sb.SYN_ACKED | sb.DATA_SACKED
    if tp.ca_state != CWR and tp.ca_state != RECOVERY and rs.flag & progress:
        sb.emit(out, tp, rs, CONG_AVOID, delivered)


# -- sends ------------------------------------------------------------------------------------------------------------
@njit
def grown(tp, seg):
    """Return a ring twice as large with the same outstanding segments."""
    larger = np.zeros(seg.size * 2, seg.dtype)
    for i in range(tp.head, tp.tail):
        larger[i & (larger.size - 1)] = seg[i & (seg.size - 1)]
    return larger


@njit
def add_segment(tp, seg, seq, end_seq, tx_us, ts, in_flight):
    """Append one segment to the retransmission queue and note its send."""
    s = seg[tp.tail & (seg.size - 1)]
    s.seq = seq
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


@njit
def before_send(tp, rs, out):
    """Tell the controller of a start from idle, and note that the application had left the pipe empty."""
    clear(rs)
    rs.ack = tp.snd_una
    flying = sb.in_flight(tp)
    if tp.queue_empty and tp.lost_out <= tp.retrans_out:
        tp.app_limited = max(1, tp.delivered + flying)
    tp.queue_empty = 0
    if tp.packets_out == 0 and tp.lsnd_us and tp.now_us - tp.lsnd_us > tp.rto_us:
        sb.emit(out, tp, rs, CWND_EVENT, CWND_RESTART)
    if flying == 0:
        sb.emit(out, tp, rs, CWND_EVENT, TX_START)


@njit
def after_send(tp):
    """Account for what limited the send [Linux] tcp_cwnd_validate, tcp_chrono."""
    limited = 0 if tp.queue_empty or tp.rwnd_since_us else 1
    stale = tp.snd_una >= tp.cwnd_usage_seq
    if stale or limited or (not tp.is_cwnd_limited and tp.packets_out > tp.max_packets_out):
        tp.is_cwnd_limited = limited
        tp.max_packets_out = tp.packets_out
        tp.cwnd_usage_seq = tp.snd_nxt


@njit
def note_pacing(tp):
    """Learn, from a new send, whether sends follow ACKs or a pacing timer, and how far apart the timer puts them."""
    if tp.rwnd_since_us == 0 and tp.lsnd_us:
        by_timer = tp.now_us - tp.last_ack_us > ANSWER_US
        tp.paced += ((1024 if by_timer else 0) - tp.paced) >> 3
        tp.send_gap_us = tp.now_us - tp.lsnd_us


@njit
def account_window(tp):
    """Start or stop the clock of receive-window limitation after a send [Linux] tcp_write_xmit, tcp_tso_should_defer.

    What is left of the window limits the sender if it does not hold another super-packet of the usual size, unless it
    is a third of the whole window. A paced sender asks only when its timer has run out.
    """
    if tp.rwnd_since_us:
        tp.rwnd_us += max(0, tp.now_us - tp.rwnd_since_us)
        tp.rwnd_since_us = 0
    left = tp.snd_una + tp.snd_wnd - tp.snd_nxt
    if not tp.queue_empty and left < max(tp.mss, min(tp.burst * tp.mss, tp.snd_wnd // 3)):
        tp.rwnd_since_us = tp.now_us + (tp.send_gap_us if tp.paced > 512 else 0)


@njit
def retransmit(tp, seg, rs, out, i, tx_us, ts, probe):
    """Note the retransmission of segment `i` [Linux] tcp_retransmit_skb; a tail-loss probe is not counted as out."""
    s = seg[i & (seg.size - 1)]
    tp.total_retrans += 1
    tp.bytes_retrans += s.end_seq - s.seq
    if s.flags & SACKED:
        return  # sent before the SACK was processed; nothing depends on it any more
    flying = sb.in_flight(tp)
    if flying == 0:
        clear(rs)
        rs.ack = tp.snd_una
        sb.emit(out, tp, rs, CWND_EVENT, TX_START)
    s.tx_us = tx_us
    s.ts = ts
    ratesample.on_sent(tp, s, flying + 1)
    sb.list_append(tp, seg, i)
    s.flags |= EVER
    tp.lsnd_us = tp.now_us
    if probe:
        tp.tlps += 1
        tp.tlp_retrans = 1
        tp.tlp_high_seq = tp.snd_nxt
        tp.armed_us = tp.now_us
        return
    if not s.flags & RETRANS:
        s.flags |= RETRANS
        tp.retrans_out += 1
    if tp.retrans_stamp == 0:
        tp.retrans_stamp = ts
    tp.undo_retrans = max(0, tp.undo_retrans) + 1
    if i == tp.head and tp.reo_first_us == 0:
        tp.armed_us = tp.now_us


@njit
def explain(tp, seg, rs, out, i):
    """Find out why the kernel retransmits segment `i`, bringing the state there. Return whether it is a probe."""
    s = seg[i & (seg.size - 1)]
    if s.flags & SACKED or (s.flags & LOST and not s.flags & RETRANS):
        return False
    clear(rs)
    rs.ack = tp.snd_una
    if tp.reo_first_us and tp.now_us >= tp.reo_first_us:
        recovery.reordering_timeout(tp, seg, rs, out)
        if s.flags & LOST and not s.flags & RETRANS:
            return False
    waited = tp.now_us - tp.armed_us
    last = i == tp.tail - 1 and not s.flags & RETRANS
    if last and tp.sack_ok and tp.ca_state <= CWR and tp.tlp_high_seq == 0 and waited >= (tp.srtt8 >> 3):
        return True
    if i == tp.head and waited >= tp.rto_us - (tp.rto_us >> 2):
        recovery.enter_loss(tp, seg, rs, out)
        tp.armed_us = tp.now_us
        return False
    tp.forced += 1
    sb.mark_lost(tp, seg, i, rs, out)
    sb.list_remove(tp, seg, i)
    if tp.ca_state < RECOVERY:
        recovery.enter_recovery(tp, seg, rs, out, False)
    return False


# -- the pass ---------------------------------------------------------------------------------------------------------
@njit
def start(tp, p, start_ns):
    """Reset `tp` for the connection with parameters `p`."""
    tp.mss = p.mss
    tp.hz = p.hz
    tp.rto_min_us = 200_000
    tp.rto_us = 1_000_000
    tp.sack_ok = p.sack_ok
    tp.ts_ok = p.ts_ok
    tp.ecn_ok = p.ecn_ok
    tp.ts_offset_us = p.ts_offset_us
    tp.ts_tick_us = p.ts_tick_us
    tp.list_head = -1
    tp.list_tail = -1
    tp.reordering = sb.REORDERING
    tp.reo_steps = 1
    tp.undo_retrans = -1
    tp.rate_app_limited = 1
    tp.queue_empty = 1
    tp.now_us = CLOCK_START_US
    tp.clock_ns = start_ns
    rtt.reset_min(tp, CLOCK_START_US, U32_MAX)


@njit
def set_clock(tp, ns, start_ns):
    """Advance the clock to `ns`; it never runs backwards."""
    if ns > tp.clock_ns:
        tp.clock_ns = ns
        tp.now_us = (ns - start_ns) // 1000 + CLOCK_START_US


@njit
def fill_unseen(tp, seg, upto):
    """Add segments that must have been sent although the capture lacks them."""
    tp.unseen += 1
    size = min(tp.mss, upto - tp.snd_nxt)
    add_segment(tp, seg, tp.snd_nxt, tp.snd_nxt + size, tp.now_us, 0, sb.in_flight(tp) + 1)
    s = seg[(tp.tail - 1) & (seg.size - 1)]
    s.flags |= UNSEEN | EVER  # no RTT and no rate sample may come of it
    s.tx_delivered_us = 0


@njit
def snapshot(tp, snap, row, poll):
    """Write what TCP_INFO would answer in the present state."""
    r = snap[row]
    r.poll = poll
    r.time_ns = tp.clock_ns
    r.ca_state = tp.ca_state
    r.unacked = tp.packets_out
    r.sacked = tp.sacked_out
    r.lost = tp.lost_out
    r.retrans = tp.retrans_out
    r.rtt = tp.srtt8 >> 3
    r.rttvar = tp.mdev4 >> 2
    r.min_rtt = tp.min0
    r.rto = tp.rto_us
    r.total_retrans = tp.total_retrans
    r.bytes_acked = tp.bytes_acked
    r.bytes_sent = tp.bytes_sent
    r.bytes_retrans = tp.bytes_retrans
    r.delivered = tp.delivered
    r.delivered_ce = tp.delivered_ce
    r.rate_delivered = tp.rate_delivered
    r.rate_interval_us = tp.rate_interval_us
    r.delivery_rate_app_limited = tp.rate_app_limited
    r.busy_time_us = tp.busy_us
    r.rwnd_limited_us = tp.rwnd_us
    r.reordering = tp.reordering
    r.reord_seen = tp.reord_seen
    r.dsack_dups = tp.dsack_dups


def _pass(key):
    """Build the compiled pass; `key` becomes part of its cache entry."""

    @njit(cache=True)
    def run(packets, sacks, order, first, params, polls):
        """Re-enact the connections; see `reenact`."""
        _ = key
        out = np.empty(max(256, order.size + order.size // 2), EVENT)
        snap = np.zeros(polls.shape[0] * 2 + 16, SNAP)
        ends = np.zeros(params.size, np.int64)
        finals = np.zeros(params.size, TP)
        rs = np.zeros(1, RS)[0]
        blocks = np.zeros((4, 2), np.int64)
        time_ns, direction, flags, seq, ack, window, payload, tsval, tsecr, options, sack_row, sack_count = packets
        left, right = sacks
        rows = 0
        snaps = 0
        poll = 0
        for c in range(params.size):
            p = params[c]
            tp = finals[c]
            tp.rows = rows
            seg = np.zeros(FIRST_RING, SEG)
            start(tp, p, p.start_ns)
            established = False
            if not p.has_syn:
                tp.snd_una = 1
                tp.snd_nxt = 1
                tp.delivered = 1
                tp.rtt_seq = 1
                tp.queue_empty = 0
            synack_us = 0
            group_us = 0
            group_first = 0
            group_end_ns = -(1 << 62)
            group_psh = False
            for k in range(first[c], first[c + 1]):
                q = order[k]
                fl = flags[q]
                mine = direction[q] == p.sender
                # Rows and ring must suffice for whatever this packet causes.
                need = tp.rows + tp.packets_out + 16 + payload[q] // max(1, p.mss)
                if need + 64 > out.size:
                    larger = np.empty(max(out.size * 2, need + 256), EVENT)
                    larger[: tp.rows] = out[: tp.rows]
                    out = larger
                event_ns = time_ns[q]
                if not mine:
                    event_ns += p.ack_delay_ns
                while poll < polls.shape[0] and polls[poll, 1] < tp.clock_ns:
                    poll += 1
                later = poll
                while later < polls.shape[0] and polls[later, 0] < event_ns:
                    if snaps == snap.size:
                        wider = np.zeros(snap.size * 2, SNAP)
                        wider[:snaps] = snap
                        snap = wider
                    snapshot(tp, snap, snaps, later)
                    if tp.busy_since_us:
                        at = max(tp.clock_ns, polls[later, 0])
                        snap[snaps].busy_time_us += (at - p.start_ns) // 1000 + CLOCK_START_US - tp.busy_since_us
                    if tp.rwnd_since_us:
                        at = max(tp.clock_ns, polls[later, 0])
                        waited = (at - p.start_ns) // 1000 + CLOCK_START_US - tp.rwnd_since_us
                        snap[snaps].rwnd_limited_us += max(0, waited)
                    snaps += 1
                    later += 1
                if tp.reo_first_us:
                    due = (tp.reo_last_us - CLOCK_START_US) * 1000 + p.start_ns
                    if due < event_ns:
                        set_clock(tp, due, p.start_ns)
                        clear(rs)
                        rs.ack = tp.snd_una
                        recovery.reordering_timeout(tp, seg, rs, out)
                set_clock(tp, event_ns, p.start_ns)
                if fl & RST:
                    continue
                if mine:
                    if fl & SYN:
                        if fl & ACK:
                            synack_us = (
                                0 if synack_us else (time_ns[q] - p.tx_delay_ns - p.start_ns) // 1000 + CLOCK_START_US
                            )
                            if tp.snd_nxt > 0:
                                synack_us = -1
                            tp.snd_nxt = 1
                            continue
                        if tp.tail == tp.head:
                            tx_us = (time_ns[q] - p.tx_delay_ns - p.start_ns) // 1000 + CLOCK_START_US
                            add_segment(tp, seg, 0, 1, tx_us, tsval[q], 1)
                            seg[0].tx_delivered_us = 0
                        else:
                            seg[tp.head & (seg.size - 1)].flags |= EVER
                            tp.total_retrans += 1
                        continue
                    size = np.int64(payload[q])
                    if fl & FIN:
                        size += 1
                    if size == 0:
                        continue
                    if not established:
                        if p.has_syn:
                            continue
                        established = True
                        clear(rs)
                        sb.emit(out, tp, rs, INIT, 0)
                    a = unwrap(seq[q], p.isn, tp.snd_nxt)
                    b = a + size
                    tp.bytes_sent += payload[q]
                    same = time_ns[q] - group_end_ns
                    together = same >= 0 and same < (SAME_LOOP_NS if group_psh else SAME_PACKET_NS)
                    if not together:
                        group_us = (time_ns[q] - p.tx_delay_ns - p.start_ns) // 1000 + CLOCK_START_US
                    if not together or group_psh or a != tp.snd_nxt:
                        group_first = tp.tail
                    group_end_ns = time_ns[q]
                    group_psh = fl & PSH != 0
                    if a < tp.snd_nxt:
                        if b <= tp.snd_una:
                            if payload[q] > 1:
                                count = (payload[q] + p.mss - 1) // p.mss
                                tp.total_retrans += count
                                tp.bytes_retrans += payload[q]
                            continue
                        i = sb.find(tp, seg, max(a, tp.snd_una))
                        probe = explain(tp, seg, rs, out, i)
                        upto = min(b, tp.snd_nxt)
                        while i < tp.tail and seg[i & (seg.size - 1)].seq < upto:
                            retransmit(tp, seg, rs, out, i, group_us, tsval[q], probe)
                            i += 1
                        a = upto
                        if a >= b:
                            continue
                        group_first = tp.tail
                    while a > tp.snd_nxt:
                        if tp.tail - tp.head == seg.size:
                            seg = grown(tp, seg)
                        fill_unseen(tp, seg, a)
                    if tp.packets_out == 0 and tp.now_us - tp.lsnd_us > 200 and not tp.rwnd_since_us and p.has_syn:
                        tp.queue_empty = 1
                    if not together:
                        note_pacing(tp)
                        before_send(tp, rs, out)
                    if tp.busy_since_us == 0:
                        tp.busy_since_us = tp.now_us
                    flying = sb.in_flight(tp) + (b - a + p.mss - 1) // p.mss
                    while a < b:
                        if tp.tail - tp.head == seg.size:
                            seg = grown(tp, seg)
                        end = min(a + p.mss, b)
                        if b - end == 1 and fl & FIN:
                            end = b
                        add_segment(tp, seg, a, end, group_us, tsval[q], flying)
                        a = end
                    if group_psh:
                        tp.burst = max(tp.tail - group_first, tp.burst - (tp.burst >> 3))
                    for i in range(max(group_first, tp.head), tp.tail):
                        s = seg[i & (seg.size - 1)]
                        s.skb_end = b
                        s.tx_in_flight = flying
                    tp.lsnd_us = tp.now_us
                    # A short last segment empties the queue, unless it was cut at the edge of the window.
                    if (fl & (PSH | FIN)) and payload[q] % p.mss != 0 and b != tp.snd_una + tp.snd_wnd:
                        tp.queue_empty = 1
                    account_window(tp)
                    after_send(tp)
                    continue
                # An ACK from the receiver.
                scale = 0 if fl & SYN else p.wscale
                if not fl & ACK:
                    tp.snd_wl1 = 0
                    continue
                tp.tsecr = tsecr[q] if options[q] & OPT_TIMESTAMPS else 0
                a = unwrap(ack[q], p.isn, tp.snd_una)
                ack_seq = unwrap(seq[q], p.peer_isn, tp.snd_wl1)
                win = np.int64(window[q]) << scale
                if p.passive and not established:
                    established = True
                    tp.snd_una = 1
                    tp.snd_nxt = 1
                    tp.delivered = 1
                    tp.snd_wnd = win
                    tp.max_window = win
                    tp.snd_wl1 = ack_seq
                    clear(rs)
                    if synack_us > 0:
                        rs.flag |= sb.SYN_ACKED
                        rtt_us = tp.now_us - synack_us
                        update_rtt(tp, rs, rtt_us, -1, rtt_us)
                    clear(rs)
                    rs.ack = a
                    sb.emit(out, tp, rs, INIT, 0)
                    if a <= 1:
                        continue
                while a > tp.snd_nxt:
                    if tp.tail - tp.head == seg.size:
                        seg = grown(tp, seg)
                    fill_unseen(tp, seg, a)
                count = min(np.int64(sack_count[q]), 4)
                for i in range(count):
                    blocks[i, 0] = unwrap(left[sack_row[q] + i], p.isn, tp.snd_una)
                    blocks[i, 1] = unwrap(right[sack_row[q] + i], p.isn, tp.snd_una)
                before = tp.rows
                tp.last_ack_us = tp.now_us
                on_ack(tp, seg, rs, out, blocks, count, a, ack_seq, win, payload[q] > 0, fl & (ECE | SYN) == ECE)
                if not established:
                    tp.rows = before  # the controller is set up when the handshake is complete
                    if fl & SYN or not p.has_syn:
                        established = True
                        clear(rs)
                        rs.ack = a
                        sb.emit(out, tp, rs, INIT, 0)
                if tp.packets_out == 0 and tp.busy_since_us:
                    tp.busy_us += tp.now_us - tp.busy_since_us
                    tp.busy_since_us = 0
            rows = tp.rows
            ends[c] = rows
        return out[:rows], ends, snap[:snaps], finals

    return run


run = _pass(stamp())
