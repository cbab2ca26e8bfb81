"""Losses, window reductions, and their undo: common to the simulated TCP senders.

Function names are the kernel's ([Linux61] tcp_input.c).
"""

from cctrace.cc.linux import CA_CWR, CA_RECOVERY, EVENT_COMPLETE_CWR, TCP_INFINITE_SSTHRESH, stack_pacing_rate
from cctrace.lang.memory import words
from cctrace.schema import CONG_AVOID, CWND_EVENT, ON_ACK, SKB_MARKED_LOST, UNDO_CWND
from cctrace.schema import SSTHRESH as SSTHRESH_CALL
from cctrace.sim.core import calls
from cctrace.sim.core.skbs import skb_of
from cctrace.sim.core.structs import LINUX, LOST, RETRANS, SACKED, segments
from cctrace.sim.core.view import CWND, CWND_CNT, PACING, SSTHRESH
from cctrace.tcp.ecn import ACCURATE_ECN
from cctrace.tcp.prr import prr_cwnd
from cctrace.tcp.rack import DEFAULT_REORDERING


def mark_lost(w, f, index, now):
    """tcp_mark_skb_lost, of the super-packet of a segment, and the controllers' skb_marked_lost."""
    if segments(f.seg)[index & f.mask].marks & (LOST | RETRANS) == LOST:
        return
    first, end = skb_of(f, index)
    for k in range(first, end):
        seg = segments(f.seg)[k & f.mask]
        if seg.marks & RETRANS and (seg.marks & LOST or f.profile != LINUX):
            seg.marks &= ~RETRANS  # the retransmission was lost too
            f.retrans_out -= 1
        if not seg.marks & LOST:
            seg.marks |= LOST
            f.lost_out += 1
    f.lost += end - first
    look_again(f, first, end)
    calls.call(w, f, SKB_MARKED_LOST, first, now)


def look_again(f, first, end):
    """Segments are lost: the search for what to retransmit goes back to them.

    Of those before `retrans_seen`, where it had come to, at most `retrans_again` are lost and not retransmitted. Once
    these are sent, it goes on from there: it need not look at the window again for each retransmission that is lost.
    """
    if f.retrans_scan >= f.retrans_seen:
        f.retrans_seen, f.retrans_again = f.retrans_scan, 0
    f.retrans_again += max(min(end, f.retrans_seen) - first, 0)
    f.retrans_scan = min(f.retrans_scan, first)


def enter_recovery(w, f, now):
    """tcp_enter_recovery."""
    init_undo(f)
    if f.ca_state != CA_CWR:
        f.prior_ssthresh = 0 if f.ece else calls.current_ssthresh(w, f)
        init_cwnd_reduction(w, f, now)
    calls.set_state(w, f, CA_RECOVERY, now)


def init_undo(f):
    """tcp_init_undo: retransmissions under way, a tail-loss probe among them, may be answered by a D-SACK too."""
    f.undo_marker = f.una
    f.undo_proof = 0
    f.undo_retrans = f.retrans_out + (1 if f.tlp_high_seq > 0 and f.tlp_retrans == 1 else 0)
    if f.undo_retrans == 0:
        f.undo_retrans = -1


def init_cwnd_reduction(w, f, now):
    """tcp_init_cwnd_reduction."""
    f.high_seq = f.nxt
    f.tlp_high_seq = 0
    words(f.state)[CWND_CNT] = 0
    f.prior_cwnd = words(f.state)[CWND]
    f.prr_delivered = 0
    f.prr_out = 0
    f.queue_cwr = 1 if f.ecn > 0 and f.ecn != ACCURATE_ECN else 0
    reduce_ssthresh(w, f, now)


def reduce_ssthresh(w, f, now):
    """The controller sets its new ssthresh."""
    words(f.state)[SSTHRESH] = calls.call(w, f, SSTHRESH_CALL, 0, now)


def end_cwnd_reduction(w, f, now):
    """tcp_end_cwnd_reduction: window-based controllers only."""
    if f.has_on_ack == 1:
        return
    if words(f.state)[SSTHRESH] < TCP_INFINITE_SSTHRESH and (f.ca_state == CA_CWR or f.undo_marker >= 0):
        words(f.state)[CWND] = words(f.state)[SSTHRESH]
    calls.call(w, f, CWND_EVENT, EVENT_COMPLETE_CWR, now)


def undo_cwnd_reduction(w, f, unmark, now):
    """tcp_undo_cwnd_reduction: the reduction was spurious."""
    f.n_undo += 1
    if unmark:
        for index in range(f.una, f.nxt):
            seg = segments(f.seg)[index & f.mask]
            if f.profile != LINUX and not seg.marks & SACKED:  # Linux keeps what was once lost off RACK's list
                f.tx_head = min(f.tx_head, seg.order)
            if seg.marks & LOST:
                seg.marks &= ~LOST
                f.lost_out -= 1
    if f.prior_ssthresh > 0:  # else ECN marks asked for a reduction, too
        words(f.state)[CWND] = calls.call(w, f, UNDO_CWND, 0, now)
        if f.prior_ssthresh > words(f.state)[SSTHRESH]:
            words(f.state)[SSTHRESH] = f.prior_ssthresh
            f.queue_cwr = 0
    f.undo_marker = -1
    f.undo_proof = 0
    f.rack_advanced = 1  # look at what was unmarked again
    f.rack_seen = -1


def cong_control(w, f, newly_delivered, advanced, now):
    """tcp_cong_control: the controller itself, or proportional rate reduction and cong_avoid."""
    if f.has_on_ack == 1:
        calls.call(w, f, ON_ACK, 0, now)
        return
    if f.ca_state == CA_RECOVERY or f.ca_state == CA_CWR:
        cwnd_reduction(w, f, newly_delivered, advanced, now)
    elif advanced or (f.reordering > DEFAULT_REORDERING and newly_delivered > 0):  # tcp_may_raise_cwnd
        calls.call(w, f, CONG_AVOID, newly_delivered, now)
    update_pacing_rate(w, f)


def update_pacing_rate(w, f):
    """tcp_update_pacing_rate."""
    cwnd, ssthresh = words(f.state)[CWND], words(f.state)[SSTHRESH]
    words(f.state)[PACING] = stack_pacing_rate(f.mss, cwnd, ssthresh, f.nxt - f.una, f.srtt, f.max_rate)


def cwnd_reduction(w, f, newly_delivered, advanced, now):
    """tcp_cwnd_reduction: proportional rate reduction [RFC6937]."""
    if newly_delivered <= 0 or f.prior_cwnd == 0:
        return
    f.prr_delivered += newly_delivered
    undisturbed = advanced and f.rs_losses == 0
    catch_up = undisturbed or f.profile == LINUX
    words(f.state)[CWND] = prr_cwnd(
        words(f.state)[SSTHRESH],
        calls.in_flight(f),
        f.prior_cwnd,
        f.prr_delivered,
        f.prr_out,
        newly_delivered,
        undisturbed,
        catch_up,
    )
