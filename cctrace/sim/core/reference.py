"""The TCP sender of the golden vectors (profile `reference`): scoreboard, loss detection, recovery, timeout.

Function names are the kernel's where the step is the kernel's. A segment is lost when three later transmissions were
delivered; no tail-loss probe, no reordering timer; SACK with perfect knowledge of which transmission arrived. Segments
are numbered from 0; byte 1 + mss * n is the first of segment n.
"""

import numpy as np

from cctrace.cc.linux import CA_DISORDER, CA_LOSS, CA_OPEN, CA_RECOVERY, EVENT_LOSS
from cctrace.lang.memory import words
from cctrace.schema import CWND_EVENT, PKTS_ACKED
from cctrace.sim.core import reduction
from cctrace.sim.core.calls import call, current_ssthresh, in_flight, set_state
from cctrace.sim.core.output import push
from cctrace.sim.core.rtx_timer import arm, current_rto, rearm_rto
from cctrace.sim.core.samples import rate_gen, rate_skb_delivered, start_rate_sample, update_rtt
from cctrace.sim.core.structs import (
    EVER_RETRANS,
    LOST,
    NEVER,
    RETRANS,
    RTO_TIMER,
    SACKED,
    acks,
    segments,
    transmissions,
)
from cctrace.sim.core.view import CWND, CWND_CNT


def process_ack(w, f, now):
    """tcp_ack."""
    log_to = acks(f.ack)[f.ack_head & f.ack_mask].log
    f.ack_head += 1
    start_rate_sample(f)
    prior_delivered, prior_lost, prior_una = f.delivered, f.lost, f.una
    log_from = f.log_seen
    for k in range(log_from, log_to):
        take_delivery(f, words(f.log)[k & f.ack_mask])
    f.log_seen = log_to
    while f.una < f.nxt and segments(f.seg)[f.una & f.mask].marks & SACKED:
        f.una += 1
        f.sacked_out -= 1
    f.retrans_scan = max(f.retrans_scan, f.una)
    clean_rtx_queue(f, log_from, log_to, prior_una, now)
    if f.una > prior_una:
        call(w, f, PKTS_ACKED, f.una - prior_una, now)
        f.backoff = f.retransmits = 0
        rearm_rto(f, now)
    leave_recovery(w, f, f.una > prior_una, now)
    prior_retrans = f.retrans_out
    detect_losses(w, f, now)
    if f.ca_state < CA_RECOVERY or (f.ca_state == CA_LOSS and f.retrans_out < prior_retrans):
        fastretrans_alert(w, f, now)
    rate_gen(f, f.delivered - prior_delivered, f.lost - prior_lost)
    reduction.cong_control(w, f, f.delivered - prior_delivered, f.una > prior_una, now)
    push(w, f, now)


def take_delivery(f, order):
    """One transmission reached the receiver: scoreboard and rate sample; returns the segment, -1 if it was known."""
    index = transmissions(f.tx)[order & f.mask].seg
    seg = segments(f.seg)[index & f.mask]
    if index < f.una or seg.marks & SACKED:
        return -1
    if order != seg.order:
        f.undo_proof = 1  # an earlier transmission arrived: the last one was not needed
    rate_skb_delivered(f, seg, order if order == seg.order else seg.order)
    if seg.marks & LOST:
        f.lost_out -= 1
    if seg.marks & RETRANS:
        f.retrans_out -= 1
    seg.marks = (seg.marks & ~(LOST | RETRANS)) | SACKED
    f.sacked_out += 1
    f.delivered += 1
    if order > f.d1:
        f.d3 = f.d2
        f.d2 = f.d1
        f.d1 = order
    elif order > f.d2:
        f.d3 = f.d2
        f.d2 = order
    elif order > f.d3:
        f.d3 = order
    return index


def clean_rtx_queue(f, log_from, log_to, prior_una, now):
    """The RTT part of tcp_clean_rtx_queue: first and last segment acknowledged, cumulatively or by SACK."""
    first = last = sack_first = sack_last = np.int64(-1)
    low, high = np.int64(NEVER), np.int64(-1)
    retrans_acked = False
    for k in range(log_from, log_to):
        order = words(f.log)[k & f.ack_mask]
        index = transmissions(f.tx)[order & f.mask].seg
        seg = segments(f.seg)[index & f.mask]
        if index < prior_una:
            continue
        if seg.marks & EVER_RETRANS:
            retrans_acked = retrans_acked or index < f.una
        elif index < f.una:
            if index < low:
                low = index
                first = seg.sent_ns
            if index > high:
                high = index
                last = seg.sent_ns
        else:
            if sack_first < 0:
                sack_first = seg.sent_ns
            sack_last = seg.sent_ns
    if retrans_acked:
        first = np.int64(-1)
    update_rtt(f, first, last, sack_first, sack_last, 0, now)


def detect_losses(w, f, now):
    """Mark every transmission lost that three later ones have overtaken."""
    while f.tx_head < f.d3:
        index = transmissions(f.tx)[f.tx_head & f.mask].seg
        if index >= f.una:
            seg = segments(f.seg)[index & f.mask]
            if seg.order == f.tx_head and not seg.marks & SACKED:
                reduction.mark_lost(w, f, index, now)
        f.tx_head += 1


def leave_recovery(w, f, advanced, now):
    """The first part of tcp_fastretrans_alert, before losses are marked: leave or undo the recovery states."""
    if f.ca_state < CA_RECOVERY:
        return
    proof = f.undo_proof == 1 and f.undo_marker >= 0
    if proof and (f.una >= f.high_seq or (f.ca_state == CA_LOSS and advanced)):
        reduction.undo_cwnd_reduction(w, f, True, now)
        f.retransmits = 0
        set_state(w, f, CA_OPEN, now)
    elif f.una >= f.high_seq:
        f.undo_marker = -1 if f.ca_state == CA_LOSS else f.undo_marker
        leaving = f.ca_state
        set_state(w, f, CA_OPEN, now)
        if leaving == CA_RECOVERY:
            reduction.end_cwnd_reduction(w, f, now)
        f.undo_marker = -1


def fastretrans_alert(w, f, now):
    """The second part: enter Disorder or Recovery."""
    if f.lost_out > 0:
        reduction.enter_recovery(w, f, now)
    else:
        state = CA_DISORDER if f.sacked_out > 0 else CA_OPEN
        if state != f.ca_state:
            set_state(w, f, state, now)


def on_rto(w, f, now):
    """tcp_retransmit_timer and tcp_enter_loss: everything outstanding is lost, one segment may go."""
    f.n_rto += 1
    again = f.ca_state == CA_LOSS and f.retransmits > 0
    for index in range(f.una, f.nxt):
        seg = segments(f.seg)[index & f.mask]
        if not seg.marks & SACKED:
            reduction.mark_lost(w, f, index, now)
    if f.ca_state <= CA_DISORDER or f.una >= f.high_seq or (f.ca_state == CA_LOSS and not again):
        f.prior_ssthresh = current_ssthresh(w, f)
        f.prior_cwnd = words(f.state)[CWND]
        reduction.reduce_ssthresh(w, f, now)
        call(w, f, CWND_EVENT, EVENT_LOSS, now)
        reduction.init_undo(f)
    f.tx_head = f.tx_next
    words(f.state)[CWND] = in_flight(f) + 1
    words(f.state)[CWND_CNT] = 0
    set_state(w, f, CA_LOSS, now)
    f.high_seq = f.nxt
    f.retransmits += 1
    f.backoff = min(f.backoff + 1, 15)
    f.wstamp_ns = min(f.wstamp_ns, now)
    push(w, f, now)
    arm(f, RTO_TIMER, current_rto(f), now)
