"""The scoreboard: which segments are outstanding, SACKed, lost or retransmitted, and how RACK judges them lost.

Segments lie in a ring in sequence order (`tp.head` to `tp.tail`, absolute indices) and, while RACK may still judge
them, on a list in order of their latest transmission. A segment is *lost* once one sent well after it is delivered:

    sent before the latest delivered one,  and  now >= its send time + RTT of that one + reordering window

The reordering window is 0 until reordering is seen (then min_rtt/4, widened by D-SACKs) once three segments are SACKed.

Sources: RFC 2018, RFC 2883 (D-SACK), RFC 8985 (RACK-TLP); [Linux] tcp_input.c, tcp_recovery.c.
"""

from cctrace.flows.sender import ratesample, skbs
from cctrace.flows.sender.emitting import write
from cctrace.flows.state import EVER_RETRANS, LISTED, LOST, RETRANS, SACKED, SEG, STEADY
from cctrace.lang.memory import CopyFields
from cctrace.schema import SKB_MARKED_LOST
from cctrace.tcp import rack
from cctrace.tcp.ecn import CLASSIC_ECN

DATA, WIN_UPDATE, DATA_ACKED, RETRANS_ACKED, SYN_ACKED, DATA_SACKED, F_ECE = 1, 2, 4, 8, 16, 32, 64
ORIG_SACK_ACKED, UNA_ADVANCED, DSACKING, DSACK_TLP = 128, 256, 512, 1024
RENEGING, LOST_RETRANS, MAYBE_DELAYED, SET_TIMER = 2048, 4096, 8192, 16384
copy_skb = CopyFields(**{name: name[4:] for name in STEADY.names or () if name[4:] in (SEG.names or ())})
NOT_DUP = DATA | WIN_UPDATE | DATA_ACKED | SYN_ACKED
ALERT = DATA_SACKED | F_ECE | DSACKING


def find(tp, seg, seq):
    """Return the index of the first segment that ends after `seq`, or `tp.tail`."""
    mask = seg.size - 1
    low, high = tp.head, tp.tail
    while low < high:
        mid = (low + high) >> 1
        if seg[mid & mask].end_seq > seq:
            high = mid
        else:
            low = mid + 1
    return low


def list_remove(tp, seg, i):
    """Take segment `i` off the list ordered by transmission."""
    mask = seg.size - 1
    s = seg[i & mask]
    if not s.flags & LISTED:
        return
    s.flags &= ~LISTED
    if s.prev >= 0:
        seg[s.prev & mask].next = s.next
    else:
        tp.list_head = s.next
    if s.next >= 0:
        seg[s.next & mask].prev = s.prev
    else:
        tp.list_tail = s.prev


def list_append(tp, seg, i):
    """Put segment `i`, just (re)transmitted, at the end of the list."""
    list_remove(tp, seg, i)
    mask = seg.size - 1
    s = seg[i & mask]
    s.flags |= LISTED
    s.prev = tp.list_tail
    s.next = -1
    if tp.list_tail >= 0:
        seg[tp.list_tail & mask].next = i
    else:
        tp.list_head = i
    tp.list_tail = i


def sent_after(t1, t2, seq1, seq2):
    """Return whether (t1, seq1) was sent after (t2, seq2) [Linux] tcp_skb_sent_after."""
    return t1 > t2 or (t1 == t2 and seq1 > seq2)


def in_flight(tp):
    """Segments in the network: sent, not (S)ACKed, not lost, plus retransmissions."""
    return tp.packets_out - tp.sacked_out - tp.lost_out + tp.retrans_out


def count_delivered(tp, segments, ece):
    """Add to what was delivered [Linux] tcp_count_delivered."""
    tp.delivered += segments
    if ece and tp.ecn == CLASSIC_ECN:
        tp.delivered_ce += segments


def rack_advance(tp, flags, end_seq, tx_us):
    """Record the delivery of a segment sent at `tx_us` [Linux] tcp_rack_advance."""
    rtt = tp.now_us - tx_us
    if rack.rack_is_original(rtt, tp.tcp_min_rtt_us, flags & (RETRANS | EVER_RETRANS) != 0):
        return
    tp.rack_advanced = 1
    tp.rack_rtt_us = rtt
    if sent_after(tx_us, tp.rack_us, end_seq, tp.rack_end_seq):
        tp.rack_us = tx_us
        tp.rack_end_seq = end_seq


def check_reordering(tp, low_seq):
    """Record that `low_seq`, never retransmitted, arrived after higher data [Linux] tcp_check_sack_reordering."""
    fack = tp.high_sack if tp.sacked_out else tp.snd_una
    if low_seq >= fack:
        return
    metric = fack - low_seq
    if metric > tp.reordering * tp.mss:
        tp.reordering = min((metric + tp.mss - 1) // tp.mss, rack.MAX_REORDERING)
    tp.reord_seen += 1


def dsack_seen(tp, rs, left, right):
    """Count a D-SACK block; return the duplicate segments, 0 if dubious [Linux] tcp_dsack_seen."""
    if left >= right or right - left > tp.max_window:
        return 0
    segments = 1
    if right - left > tp.mss:
        segments = (right - left + tp.mss - 1) // tp.mss
    elif tp.tlp_high_seq and tp.tlp_high_seq == right:
        rs.flag |= DSACK_TLP
    tp.dsack_dups += segments
    if tp.dsack_dups > tp.total_retrans:
        return 0  # more than retransmissions explain: the network duplicates
    if tp.reord_seen and not rs.flag & DSACK_TLP:
        tp.dsack_seen = 1
    rs.flag |= DSACKING
    rs.sack_delivered += segments
    return segments


def is_block_valid(tp, is_dup, left, right):
    """Return whether a SACK block can be about outstanding (or, D-SACK, recent) data [Linux] tcp_is_sackblock_valid."""
    if right > tp.snd_nxt or left >= right:
        return False
    if left > tp.snd_una:
        return True
    if not is_dup or not tp.has_undo or right > tp.snd_una:
        return False
    if left >= tp.undo_marker:
        return True
    return right > tp.undo_marker and left >= right - tp.max_window


def tag(tp, seg, rs, i, is_dup):
    """Tag segment `i` as covered by a SACK block [Linux] tcp_sacktag_one."""
    s = seg[i & (seg.size - 1)]
    if is_dup and s.flags & (RETRANS | EVER_RETRANS):
        if tp.has_undo and tp.undo_retrans > 0 and s.end_seq > tp.undo_marker:
            tp.undo_retrans -= 1
        if s.flags & SACKED:
            rs.reord = min(rs.reord, s.seq)
    if s.end_seq <= tp.snd_una:
        return
    if not s.flags & SACKED:
        rack_advance(tp, s.flags, s.end_seq, s.tx_us)
        if s.flags & RETRANS:
            if s.flags & LOST:  # the retransmission arrived; otherwise it is believed to be still on its way
                s.flags &= ~(LOST | RETRANS)
                tp.lost_out -= 1
                tp.retrans_out -= 1
        else:
            if not s.flags & EVER_RETRANS:
                if tp.sacked_out and s.seq < tp.high_sack:
                    rs.reord = min(rs.reord, s.seq)  # a hole filled by an original: reordering
                if s.end_seq <= tp.high_seq:
                    rs.flag |= ORIG_SACK_ACKED
                if rs.first_sack_us == 0:
                    rs.first_sack_us = s.tx_us
                rs.last_sack_us = s.tx_us
            if s.flags & LOST:
                s.flags &= ~LOST
                tp.lost_out -= 1
        s.flags |= SACKED
        s.skip = i + 1
        rs.flag |= DATA_SACKED
        if tp.sacked_out == 0 or s.end_seq > tp.high_sack:
            tp.high_sack = s.end_seq
        tp.sacked_out += 1
        rs.sack_delivered += 1
    if is_dup and s.flags & RETRANS:
        s.flags &= ~RETRANS
        tp.retrans_out -= 1
    ratesample.on_delivered(tp, rs, s, s.end_seq)
    list_remove(tp, seg, i)


def next_unsacked(tp, seg, i):
    """Return the first segment from `i` on that is not SACKed; runs are remembered so that none is walked twice."""
    mask = seg.size - 1
    j = i
    while j < tp.tail and seg[j & mask].flags & SACKED:
        j = seg[j & mask].skip
    if j > i:
        seg[i & mask].skip = j
    return j


def tag_again(tp, seg, rs, left, right):
    """Tag the segments of a D-SACK block that earlier ACKs had SACKed."""
    i = find(tp, seg, left)
    while i < tp.tail and seg[i & (seg.size - 1)].seq < right:
        s = seg[i & (seg.size - 1)]
        if s.flags & SACKED and s.seq >= left and s.end_seq <= right:
            tag(tp, seg, rs, i, True)
        i += 1


def tag_block(tp, seg, rs, left, right, dup_left, dup_right):
    """Tag the segments that lie fully inside one SACK block; [dup_left, dup_right) is reported as a duplicate."""
    mask = seg.size - 1
    i = find(tp, seg, left)
    if i < tp.tail and seg[i & mask].seq < left:
        i += 1
    while i < tp.tail and seg[i & mask].end_seq <= right:
        s = seg[i & mask]
        if s.flags & SACKED:
            i = next_unsacked(tp, seg, i)
            continue
        is_dup = s.seq >= dup_left and s.end_seq <= dup_right
        skbs.fragment(tp, seg, i)
        skb_end = s.skb_end
        last = i + 1
        while last < tp.tail and seg[last & mask].skb_end == skb_end and seg[last & mask].end_seq <= right:
            last += 1
        if last < tp.tail and seg[last & mask].skb_end == skb_end:
            skbs.take_front(tp, seg, i, last, is_dup)
        while i < last:
            tag(tp, seg, rs, i, is_dup)
            i += 1


def mark_lost(tp, seg, i, rs, out):
    """Mark the super-packet of segment `i` lost, or its retransmission lost again [Linux] tcp_mark_skb_lost."""
    first, end = skbs.skb_of(tp, seg, i)
    marked = 0
    for k in range(first, end):
        s = seg[k & (seg.size - 1)]
        if s.flags & SACKED or s.flags & (LOST | RETRANS) == LOST:
            continue
        marked += 1
        if s.flags & LOST:
            s.flags &= ~RETRANS
            tp.retrans_out -= 1
        else:
            s.flags |= LOST
            tp.lost_out += 1
    if marked == 0:
        return
    tp.lost += marked
    write(out, tp, rs, SKB_MARKED_LOST, 0)
    s = seg[i & (seg.size - 1)]
    _, states, steady = out
    row = steady[tp.steady - 1 - tp.taken_steady]
    row.skb_segments = marked
    copy_skb(row, s)
    row.skb_tx_has_mstamp = 1 if s.tx_delivered_us else 0
    states[tp.states - 1 - tp.taken_states].rs_send = s.tx_send


def rack_detect(tp, seg, rs, out):
    """Mark what RACK judges lost; return the longest time (us) another still has [Linux] tcp_rack_detect_loss."""
    mask = seg.size - 1
    window = rack.rack_reo_wnd_us(
        tp.reord_seen, tp.ca_state, tp.sacked_out, tp.reordering, tp.tcp_min_rtt_us, tp.reo_steps, tp.srtt_us8
    )
    wait = 0
    i = tp.list_head
    while i >= 0:
        s = seg[i & mask]
        following = s.next
        if not s.flags & LOST or s.flags & RETRANS:
            if not sent_after(tp.rack_us, s.tx_us, tp.rack_end_seq, s.skb_end):
                break
            remaining = tp.rack_rtt_us + window - (tp.now_us - s.tx_us)
            if remaining <= 0:
                first, end = skbs.skb_of(tp, seg, i)
                while first <= following and following < end:
                    following = seg[following & mask].next
                mark_skb_lost(tp, seg, i, rs, out)
            else:
                wait = max(wait, remaining)
        i = following
    return wait


def mark_skb_lost(tp, seg, i, rs, out):
    """Mark the super-packet of segment `i` lost, and take it off the list."""
    first, end = skbs.skb_of(tp, seg, i)
    mark_lost(tp, seg, i, rs, out)
    for k in range(first, end):
        list_remove(tp, seg, k)


def update_reordering_steps(tp, rs):
    """Widen the reordering window after a D-SACK, once per round trip [Linux] tcp_rack_update_reo_wnd."""
    if rs.prior_delivered == 0:
        return
    tp.reo_steps, tp.reo_persist, tp.reo_last_delivered = rack.rack_update_reo_wnd(
        tp.dsack_seen, rs.prior_delivered, tp.delivered, tp.reo_steps, tp.reo_persist, tp.reo_last_delivered
    )
    tp.dsack_seen = 0


def note(tp, log, seq, end_seq, why):
    """Write one row of the log of retransmissions; the caller has made room."""
    row = log[tp.logged]
    tp.logged += 1
    row.time_ns = tp.clock_ns
    row.seq = seq
    row.end_seq = end_seq
    row.why = why
