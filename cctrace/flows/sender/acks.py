"""Processing of an ACK at the sender: window, SACK blocks, cumulative acknowledgement, RTT, recovery, rate sample.

The order of the steps, and of the calls written to the event stream, is the kernel's.

Sources: [Linux] tcp_ack, tcp_sacktag_write_queue, tcp_clean_rtx_queue, tcp_ack_update_rtt.
"""

import numpy as np

from cctrace.cc.linux import CA_CWR, CA_LOSS, CA_RECOVERY
from cctrace.flows.sender import ratesample, recovery, reno_sacks, rtt_filters, timers
from cctrace.flows.sender import scoreboard as sb
from cctrace.flows.sender.emitting import emit
from cctrace.flows.state import DSACK, EVER_RETRANS, LOST, RETRANS, RS, SACKED
from cctrace.io.layout import NO_COUNTER
from cctrace.lang.memory import SetFields
from cctrace.schema import CONG_AVOID, ON_ACK, PKTS_ACKED
from cctrace.tcp.ecn import ACCURATE_ECN, ACE_MASK, ACE_START, CLASSIC_ECN, ECHO, newly_marked
from cctrace.tcp.rack import DEFAULT_REORDERING

# Start a new ACK, or none, for calls between ACKs.
_UNKNOWN = ("delivered", "interval_us", "rtt_us", "lost", "delivered_ce", "send")
clear = SetFields(**dict.fromkeys(RS.names or (), 0) | dict.fromkeys(_UNKNOWN, -1))


def update_window(tp, ack, ack_seq, window):
    """Update the advertised window; return whether the ACK counts as an update [Linux] tcp_ack_update_window."""
    tp.has_new_window = 0
    if ack > tp.snd_una or ack_seq > tp.snd_wl1 or (ack_seq == tp.snd_wl1 and (window > tp.snd_wnd or window == 0)):
        tp.snd_wl1 = ack_seq
        if tp.snd_wnd != window:
            tp.has_new_window = 1
            tp.expected_ace = (ACE_START + tp.delivered_ce) & ACE_MASK
        tp.snd_wnd = window
        tp.max_window = max(tp.max_window, window)
        return True
    return False


def sacktag(tp, seg, rs, log, blocks, count, prior_una):
    """Tag the queue with an ACK's SACK blocks [Linux] tcp_sacktag_write_queue."""
    rs.reord = tp.snd_nxt
    dup = False
    left, right = blocks[0, 0], blocks[0, 1]
    if left < rs.ack or (count > 1 and right <= blocks[1, 1] and left >= blocks[1, 0]):
        segments = sb.dsack_seen(tp, rs, left, right)
        if segments:
            dup = True
            sb.note(tp, log, left, right, DSACK)
            if tp.has_undo and tp.undo_retrans > 0 and right <= prior_una and right > tp.undo_marker:
                tp.undo_retrans = max(0, tp.undo_retrans - segments)
    if rs.ack < prior_una - tp.max_window or tp.packets_out == 0:
        return
    used = 0
    dup_left, dup_right = np.int64(0), np.int64(0)
    for i in range(count):
        is_dup = dup and i == 0
        left, right = blocks[i, 0], blocks[i, 1]
        if not sb.is_block_valid(tp, is_dup, left, right) or right <= prior_una:
            continue
        if is_dup:
            dup_left, dup_right = left, right
        at = used  # keep the blocks in sequence order
        while at > 0 and blocks[at - 1, 0] > left:
            blocks[at, 0] = blocks[at - 1, 0]
            blocks[at, 1] = blocks[at - 1, 1]
            at -= 1
        blocks[at, 0] = left
        blocks[at, 1] = right
        used += 1
    sb.tag_again(tp, seg, rs, dup_left, dup_right)
    for i in range(used):
        sb.tag_block(tp, seg, rs, blocks[i, 0], blocks[i, 1], dup_left, dup_right)
    if tp.ca_state != CA_LOSS or tp.has_undo:
        sb.check_reordering(tp, rs.reord)


def update_rtt(tp, rs, seq_rtt, sack_rtt, ca_rtt):
    """Select the RTT sample of an ACK and update the estimators [Linux] tcp_ack_update_rtt."""
    if seq_rtt < 0:
        seq_rtt = sack_rtt
    if seq_rtt < 0 and tp.ts_ok and tp.tsecr != 0 and rs.flag & (sb.DATA_ACKED | sb.SYN_ACKED):
        # Everything acknowledged was retransmitted: use the echoed time stamp, at its own resolution.
        delta = ((tp.now_us + tp.ts_offset_us) // tp.ts_tick_us - tp.tsecr) & 0xFFFFFFFF
        if delta < 0x7FFFFFFF // tp.ts_tick_us:
            seq_rtt = max(1, delta) * tp.ts_tick_us
            ca_rtt = seq_rtt
    rs.rtt_us = ca_rtt
    if seq_rtt < 0:
        return False
    rtt_filters.update_min(tp, ca_rtt, rs.flag & sb.MAYBE_DELAYED != 0)
    rtt_filters.smooth(tp, seq_rtt)
    return True


def is_spurious(tp, s):
    """Return whether the ACK echoes a time before this segment's retransmission [Linux] tcp_skb_spurious_retrans."""
    return s.flags & (RETRANS | EVER_RETRANS) != 0 and recovery.echo_before(tp, s.ts)


def take_rtt(tp, rs, first_us, last_us, lone):
    """Take the RTTs of the segments that the ACK removed (sent from `first_us` to `last_us`) and of those it SACKs.

    Returns (whether the RTT was updated, that of the first SACKed segment or -1).
    """
    seq_rtt, sack_rtt, ca_rtt = -1, -1, -1
    if first_us and not rs.flag & sb.RETRANS_ACKED:
        seq_rtt = tp.now_us - first_us
        ca_rtt = tp.now_us - last_us
        if lone and rs.prior_delivered + 1 == tp.delivered and not rs.flag & (sb.ALERT | sb.SYN_ACKED):
            rs.flag |= sb.MAYBE_DELAYED
    if rs.first_sack_us:
        sack_rtt = tp.now_us - rs.first_sack_us
        ca_rtt = tp.now_us - rs.last_sack_us
    return update_rtt(tp, rs, seq_rtt, sack_rtt, ca_rtt), sack_rtt


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
        if flags & (RETRANS | EVER_RETRANS):
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
            sb.count_delivered(tp, 1, ece)
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

    lone = acked == 1 and prior_sacked == 0 and tp.snd_una - prior_una < tp.mss
    updated, sack_rtt = take_rtt(tp, rs, first_us, last_us, lone)
    if rs.flag & (sb.DATA_ACKED | sb.SYN_ACKED):
        rs.flag |= sb.SET_TIMER
        if not tp.sack_ok:
            reno_sacks.remove_reno_sacks(tp, acked, ece)
            if rs.flag & sb.RETRANS_ACKED:
                rs.flag &= ~sb.ORIG_SACK_ACKED
        elif reord < prior_fack:
            sb.check_reordering(tp, reord)
    elif remains and updated and sack_rtt >= 0 and sack_rtt > tp.now_us - seg[tp.head & mask].tx_us:
        rs.flag |= sb.SET_TIMER
    emit(out, tp, rs, PKTS_ACKED, acked)
    return acked


def newly_marked_bytes(tp):
    """Return the growth of the receiver's 24-bit count of bytes with CE; -1 if unknown."""
    if tp.ce_reported == NO_COUNTER:
        return -1
    grown = (tp.ce_reported - tp.ce_bytes) & 0xFFFFFF
    known = tp.ce_bytes >= 0 and grown < 0x800000  # otherwise the first one, or a decrease
    if tp.ce_bytes < 0 or known:
        tp.ce_bytes = tp.ce_reported
    return grown if known else -1


def count_marks(tp, rs, ace, delivered):
    """Process the marks that an ACK with accurate feedback reports [Linux618] tcp_accecn_process.

    An ACK that acknowledges nothing new may have been overtaken: its counter is old.
    """
    progress = rs.flag & (sb.DATA_ACKED | sb.DATA_SACKED) != 0 or tp.ts_newer != 0
    if tp.ecn != ACCURATE_ECN or ace < 0 or not progress or rs.flag & sb.SYN_ACKED:
        return
    if tp.misses_marks and not tp.has_new_window and ace == tp.expected_ace and not rs.flag & sb.DATA_SACKED:
        return  # header prediction, see `ecn.misses_marks`
    ce_bytes = 0 if tp.misses_marks else newly_marked_bytes(tp)
    marked = newly_marked(ace, tp.delivered_ce, delivered, ce_bytes, tp.mss)
    if marked > 0:
        tp.delivered_ce += marked
        rs.flag |= sb.F_ECE


def on_ack(tp, seg, rs, out, log, blocks, count, ack, ack_seq, window, has_data, ace):
    """Process one ACK, whose AE, CWR and ECE are `ace` (-1: those of a SYN) [Linux] tcp_ack."""
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
            sacktag(tp, seg, rs, log, blocks, count, prior_una)
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
        sacktag(tp, seg, rs, log, blocks, count, prior_una)
    if tp.ecn == CLASSIC_ECN and ace >= 0 and ace & ECHO:
        rs.flag |= sb.F_ECE
    if rs.sack_delivered:
        sb.count_delivered(tp, rs.sack_delivered, rs.flag & sb.F_ECE)
    if prior_packets == 0:
        count_marks(tp, rs, ace, tp.delivered - prior_delivered)
        if rs.flag & sb.DSACKING:
            recovery.fastretrans_alert(tp, seg, rs, out, prior_una, 0)
        if tp.tlp_high_seq:
            recovery.process_tlp_ack(tp, seg, rs, out)
        return
    clean_queue(tp, seg, rs, out, prior_una, prior_fack)
    sb.update_reordering_steps(tp, rs)
    count_marks(tp, rs, ace, tp.delivered - prior_delivered)
    if tp.tlp_high_seq:
        recovery.process_tlp_ack(tp, seg, rs, out)
    if not rs.flag & sb.NOT_DUP or rs.flag & sb.ALERT or tp.ca_state != 0:
        dupacks = 0 if rs.flag & (sb.UNA_ADVANCED | sb.NOT_DUP | sb.DSACKING) else 1
        recovery.fastretrans_alert(tp, seg, rs, out, prior_una, dupacks)
    if rs.flag & sb.SET_TIMER:
        timers.on_progress(tp, seg)
    delivered = tp.delivered - prior_delivered
    rs.is_ack_delayed = 1 if rs.flag & sb.MAYBE_DELAYED else 0
    ratesample.generate(tp, rs, delivered, tp.lost - prior_lost)
    emit(out, tp, rs, ON_ACK, 0)
    progress = sb.DATA_ACKED
    if tp.reordering > DEFAULT_REORDERING:
        progress |= sb.SYN_ACKED | sb.DATA_SACKED
    if tp.ca_state != CA_CWR and tp.ca_state != CA_RECOVERY and rs.flag & progress:
        emit(out, tp, rs, CONG_AVOID, delivered)
