"""SACK processing of current Linux kernels (profile `linux`), and RACK loss detection [RFC8985].

An ACK reports segments in numerical order, those beyond the left edge first (SACK), then those below it, as in the
kernel: RACK's RTT is that of the last. For each ACK, the receiver provides the new segments, the echoed time stamp
(ms) and a duplicate (D-SACK), so the sender knows what a SACK scoreboard of unlimited blocks would contain, but not
which transmission of a segment arrived. Function names are the kernel's ([Linux618] tcp_input.c, tcp_recovery.c).
"""

import numpy as np

from cctrace.cc.linux import CA_LOSS
from cctrace.lang.memory import words
from cctrace.sim.core.calls import mstamp
from cctrace.sim.core.positions import length
from cctrace.sim.core.reduction import mark_lost
from cctrace.sim.core.rtx_timer import arm
from cctrace.sim.core.samples import rate_skb_delivered, update_rtt
from cctrace.sim.core.skbs import part_acked, part_sacked
from cctrace.sim.core.structs import (
    EVER_RETRANS,
    FRESH,
    LOST,
    REORDERING_TIMER,
    RETRANS,
    SACKED,
    SKB_END,
    segments,
    transmissions,
)
from cctrace.sim.core.write_queue import account_sacked, overhead
from cctrace.tcp import rack
from cctrace.tcp.probe import TIMEOUT_MIN_US


def take_report(f, log_from, log_to, duplicate, now):
    """tcp_sacktag_write_queue, tcp_clean_rtx_queue; returns (anything SACKed, whether the timer starts anew)."""
    prior_una, prior_fack = f.una, max(f.sack_high, f.una)
    low = take_duplicate(f, duplicate)
    if log_to - log_from > 1:
        sort_report(f, log_from, log_to)
    highest = -1
    for k in range(log_from, log_to):  # in order: what is missing behind a hole is not in the rest of the report
        index = words(f.log)[k & f.ack_mask]
        if index == f.una:
            f.una += 1
            while f.sacked_out > 0 and f.una < f.nxt and segments(f.seg)[f.una & f.mask].marks & SACKED:
                f.una += 1
        elif index > f.una and not segments(f.seg)[index & f.mask].marks & SACKED:
            segments(f.seg)[index & f.mask].marks |= FRESH
            highest = index
    f.retrans_scan = max(f.retrans_scan, f.una)
    prior_sacked = f.sacked_out
    sack_first = sack_last = np.int64(-1)
    if highest >= f.una:
        part_acked(f, prior_una)
        low, sack_first, sack_last = sacktag(f, log_from, log_to, low)
    sacked = f.sacked_out > prior_sacked
    if f.ca_state != CA_LOSS or f.undo_marker >= 0:
        check_reordering(f, low)
    low, first, last = linux_clean_rtx_queue(f, prior_una)
    update_rtt(f, first, last, sack_first, sack_last, f.echo_ms if f.una > prior_una else 0, now)
    if f.una > prior_una:
        if low < prior_fack:
            check_reordering(f, low)
        return sacked, True
    return sacked, 0 <= sack_first < segments(f.seg)[f.una & f.mask].sent_ns


def take_duplicate(f, index):
    """tcp_check_dsack: a duplicate arrived, so a retransmission was not needed; it counts as delivered all the same.

    Returns the segment if its original is known to have come behind later ones, else nxt.
    """
    if index < 0:
        return f.nxt
    if f.undo_marker >= 0 and f.undo_retrans > 0 and index >= f.undo_marker:
        f.undo_retrans -= 1
    if f.reord_seen > 0 and index + 1 != f.tlp_high_seq:
        f.dsack_seen = 1
    f.dsacks += 1
    f.delivered += 1
    f.delivered_ce += f.ece
    if index < f.una:
        return f.nxt
    seg = segments(f.seg)[index & f.mask]
    if seg.marks & RETRANS:
        seg.marks &= ~RETRANS
        f.retrans_out -= 1
    return index if seg.marks & SACKED else f.nxt


def sort_report(f, log_from, log_to):
    """Put what an ACK reports, which the receiver noted as it arrived, into the order of the segments."""
    for k in range(log_from + 1, log_to):
        index = words(f.log)[k & f.ack_mask]
        at = k
        while at > log_from:
            before = words(f.log)[(at - 1) & f.ack_mask]
            if before <= index:
                break
            words(f.log)[at & f.ack_mask] = before
            at -= 1
        words(f.log)[at & f.ack_mask] = index


def sacktag(f, log_from, log_to, low):
    """tcp_sacktag_one for all new SACKs; returns (lowest original behind later ones, first and last time sent)."""
    first = last = np.int64(-1)
    for k in range(log_from, log_to):
        index = words(f.log)[k & f.ack_mask]
        seg = segments(f.seg)[index & f.mask]
        if index < f.una or not seg.marks & FRESH:
            continue
        part_sacked(f, index)
        seg.marks = (seg.marks & ~FRESH) | SACKED
        account_sacked(f, index)
        rack_advance(f, seg, index)
        if not seg.marks & EVER_RETRANS:
            if index < f.sack_high:
                low = min(low, index)
            if index < f.high_seq:
                f.orig_sacked = 1
            if first < 0:
                first = seg.sent_ns
            last = seg.sent_ns
        if seg.marks & LOST:
            seg.marks &= ~LOST
            f.lost_out -= 1
            if seg.marks & RETRANS:  # else both are believed to be out: see undo_loss
                seg.marks &= ~RETRANS
                f.retrans_out -= 1
        f.sack_high = max(f.sack_high, index + 1)
        f.sacked_out += 1
        f.delivered += 1
        f.delivered_ce += f.ece
        rate_skb_delivered(f, seg, seg.order)
    return low, first, last


def linux_clean_rtx_queue(f, prior_una):
    """tcp_clean_rtx_queue: what the ACK covers leaves; returns (lowest original in it, first and last time sent)."""
    first = last = np.int64(-1)
    low = f.nxt
    retransmitted = False
    f.wmem_queued -= length(f, prior_una, f.una - prior_una)  # tcp_trim_head
    for index in range(prior_una, f.una):
        seg = segments(f.seg)[index & f.mask]
        if seg.marks & EVER_RETRANS:
            retransmitted = True
        elif not seg.marks & SACKED:
            if first < 0:
                first = seg.sent_ns
                low = index
            last = seg.sent_ns
            if index < f.high_seq:
                f.orig_sacked = 1
        if seg.marks & SKB_END:
            f.wmem_queued -= overhead(f)  # tcp_rtx_queue_unlink_and_free
        if seg.marks & (RETRANS | LOST):
            f.retrans_out -= seg.marks & RETRANS > 0
            f.lost_out -= seg.marks & LOST > 0
        if seg.marks & SACKED:
            f.sacked_out -= 1
        else:
            f.delivered += 1
            f.delivered_ce += f.ece
            if not spurious_retrans(f, seg):
                rack_advance(f, seg, index)
            rate_skb_delivered(f, seg, seg.order)
    return low, np.int64(-1) if retransmitted else first, last


def spurious_retrans(f, seg):
    """tcp_skb_spurious_retrans: the ACK echoes a time stamp from before the segment's retransmission."""
    return seg.marks & EVER_RETRANS > 0 and 0 < f.echo_ms < seg.sent_ns // 1_000_000


def check_reordering(f, low):
    """tcp_check_sack_reordering: a segment that was never retransmitted arrived behind later ones."""
    distance = max(f.sack_high, f.una) - low
    if distance > 0:
        f.reordering = max(f.reordering, min(distance, rack.MAX_REORDERING))
        f.reord_seen += 1


# --- RACK -----------------------------------------------------------------------------------------------------------


def rack_advance(f, seg, index):
    """tcp_rack_advance: the newest transmission known to have arrived, and its RTT."""
    rtt = f.now_us - mstamp(seg.sent_ns)
    if rack.rack_is_original(rtt, f.min_rtt, seg.marks & EVER_RETRANS > 0):
        return
    f.rack_advanced = 1
    f.rack_rtt = rtt
    if seg.sent_ns > f.rack_ns or (seg.sent_ns == f.rack_ns and index > f.rack_index):
        f.rack_ns = seg.sent_ns
        f.rack_index = index
        f.rack_order = seg.order


def rack_update_reo_wnd(f):
    """tcp_rack_update_reo_wnd: a quarter of min_rtt more for each round with a D-SACK, for 16 recoveries."""
    if f.rs_last_order < 0 or (f.dsack_seen == 0 and f.reo_wnd_steps == 1):  # as most: nothing changes
        return
    f.reo_wnd_steps, f.reo_wnd_persist, f.rack_last_delivered = rack.rack_update_reo_wnd(
        f.dsack_seen, f.rs_prior_delivered, f.delivered, f.reo_wnd_steps, f.reo_wnd_persist, f.rack_last_delivered
    )
    f.dsack_seen = 0


def rack_reo_wnd(f):
    """tcp_rack_reo_wnd, us."""
    return rack.rack_reo_wnd_us(
        f.reord_seen, f.ca_state, f.sacked_out, f.reordering, f.min_rtt, f.reo_wnd_steps, f.srtt
    )


def rack_detect_loss(w, f, now):
    """tcp_rack_detect_loss: what the newest arrival overtook by more than the window is lost.

    Returns the first transmission that may still arrive in time; -1 if there is none.
    """
    limit = f.rack_rtt + rack_reo_wnd(f)
    at_head = True
    for order in range(f.tx_head, f.tx_next):
        if is_settled(f, order):
            if at_head:
                f.tx_head = order + 1
            continue
        at_head = False
        index = transmissions(f.tx)[order & f.mask].seg
        seg = segments(f.seg)[index & f.mask]
        if seg.sent_ns > f.rack_ns or (seg.sent_ns == f.rack_ns and seg.skb_end > f.rack_index):
            break
        if limit > f.now_us - mstamp(seg.sent_ns):
            return order
        mark_lost(w, f, index, now)
    return -1


def is_settled(f, order):
    """Whether a transmission is off RACK's list: acknowledged, SACKed, or lost; or its segment was sent again."""
    index = transmissions(f.tx)[order & f.mask].seg
    seg = segments(f.seg)[index & f.mask]
    return index < f.una or seg.order != order or seg.marks & SACKED > 0 or seg.marks & (LOST | RETRANS) == LOST


def last_overtaken_ns(f, first):
    """Return when the last transmission on RACK's list was sent that the newest arrival overtook; `first` is one.

    Later ones wait longer, so only the last matters, and it is near the newest arrival: under reordering the list has
    hundreds. Of those that were sent together with that arrival, the first decides. Both are looked for from where
    they were last time, as long as that arrival is the newest: what has settled stays so, unless `rack_seen` is reset.
    """
    if f.rack_seen != f.rack_order:
        f.rack_seen = f.rack_before = f.rack_order
        f.rack_beside = f.rack_order + 1
    while f.rack_before > first:
        if not is_settled(f, f.rack_before):
            if sent_ns(f, f.rack_before) < f.rack_ns:
                break
            f.rack_beside = f.rack_before
        f.rack_before -= 1
    while f.rack_beside < f.tx_next and is_settled(f, f.rack_beside):
        f.rack_beside += 1
    seg = segments(f.seg)[transmissions(f.tx)[f.rack_beside & f.mask].seg & f.mask]
    if f.rack_beside < f.tx_next and seg.sent_ns == f.rack_ns and seg.skb_end <= f.rack_index:
        return f.rack_ns
    return sent_ns(f, max(f.rack_before, first))


def sent_ns(f, order):
    """Return when a transmission left that no later one of its segment replaced."""
    return segments(f.seg)[transmissions(f.tx)[order & f.mask].seg & f.mask].sent_ns


def identify_loss(w, f, now):
    """tcp_identify_packet_loss: RACK, and its timer; returns whether a retransmission was lost."""
    if f.nxt == f.una or f.rack_advanced == 0:
        return False
    prior_retrans = f.retrans_out
    f.rack_advanced = 0
    first = rack_detect_loss(w, f, now)
    if first >= 0:
        elapsed = f.now_us - mstamp(last_overtaken_ns(f, first))
        arm(f, REORDERING_TIMER, f.rack_rtt + rack_reo_wnd(f) - elapsed + TIMEOUT_MIN_US, now)
        f.rack_waits = 1
    return f.retrans_out < prior_retrans
