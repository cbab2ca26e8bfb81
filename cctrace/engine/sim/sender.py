"""A Linux-like TCP sender around a controller: scoreboard, RTT and rate samples, recovery, pacing.

Function names are the kernel's where the step is the kernel's. Profile 0 (`reference`) is the stack of the golden
vectors: a segment is lost when three later transmissions were delivered, no TLP, no reordering timer. Profile 1 (`linux`)
adds RACK-TLP. Segments are numbered from 0; byte 1 + mss * n is the first of segment n.
"""

import numpy as np

from cctrace.engine.sim.bridge import call_cc
from cctrace.engine.sim.layout import EVER_RETRANS, LOST, NEVER, RETRANS, SACKED
from cctrace.engine.sim.link import forward
from cctrace.engine.sim.memory import segments, words
from cctrace.engine.sim.view import APP_LIMITED, CWND, CWND_CNT, PACING, SSTHRESH, fill_linux_view

OPEN, DISORDER, CWR, RECOVERY, LOSS = 0, 1, 2, 3, 4
INIT, ON_ACK, SSTHRESH_CALL, SET_STATE, CWND_EVENT, UNDO_CWND, MARKED_LOST, PKTS_ACKED, CONG_AVOID = range(9)
TX_START, CWND_RESTART, COMPLETE_CWR, EVENT_LOSS = 0, 1, 2, 3
INFINITE_SSTHRESH = 0x7FFFFFFF


def mstamp(now):
    """tcp_mstamp (us) of the simulation time `now` (ns)."""
    return now // 1000


def call(w, f, event, arg, now):
    """Call the flow's controller; return what the entry point returns."""
    fill_linux_view(w, f, event, arg, now)
    return call_cc(w, f, event)


def in_flight(f):
    """tcp_packets_in_flight."""
    return f.nxt - f.una - f.sacked_out - f.lost_out + f.retrans_out


def set_state(w, f, state, now):
    """tcp_set_ca_state: the controller hears of it before it changes."""
    call(w, f, SET_STATE, state, now)
    f.ca_state = state


# --- delivery-rate samples (tcp_rate.c) -----------------------------------------------------------------------------


def rate_skb_sent(w, f, seg, tx_us):
    """tcp_rate_skb_sent: remember, with the segment, the state of delivery at its departure."""
    if f.nxt == f.una:  # a new flight: the clock of delivery starts with it
        f.first_tx_mstamp = tx_us
        f.delivered_mstamp = tx_us
    seg.tx_first_mstamp = f.first_tx_mstamp
    seg.tx_delivered_mstamp = f.delivered_mstamp
    seg.tx_delivered = f.delivered
    seg.tx_delivered_ce = f.delivered_ce
    seg.tx_app_limited = 1 if words(f.state)[APP_LIMITED] != 0 else 0
    seg.tx_lost = f.lost


def rate_skb_delivered(w, f, seg, order):
    """tcp_rate_skb_delivered: the segment sent after the most deliveries makes the sample of this ACK."""
    if f.rs_last_order >= 0 and seg.tx_delivered <= f.rs_prior_delivered:
        return
    f.rs_last_order = order
    f.rs_prior_delivered = seg.tx_delivered
    f.rs_prior_mstamp = seg.tx_delivered_mstamp
    f.rs_prior_delivered_ce = seg.tx_delivered_ce
    f.rs_app_limited = seg.tx_app_limited
    f.rs_retrans = 1 if seg.marks & EVER_RETRANS else 0
    f.rs_tx_in_flight = seg.tx_in_flight
    f.rs_prior_lost = seg.tx_lost
    tx_us = mstamp(seg.sent_ns)
    f.rs_interval = tx_us - seg.tx_first_mstamp
    f.first_tx_mstamp = tx_us


def rate_gen(w, f, newly_delivered, newly_lost, now):
    """tcp_rate_gen: the longer of send and ACK interval, and nothing shorter than min_rtt."""
    if words(f.state)[APP_LIMITED] != 0 and f.delivered > words(f.state)[APP_LIMITED]:
        words(f.state)[APP_LIMITED] = 0
    if newly_delivered > 0:
        f.delivered_mstamp = mstamp(now)
    f.rs_acked_sacked = newly_delivered
    f.rs_losses = newly_lost
    if f.rs_last_order < 0:
        f.rs_delivered = -1
        f.rs_interval = -1
        return
    f.rs_delivered = f.delivered - f.rs_prior_delivered
    f.rs_delivered_ce = f.delivered_ce - f.rs_prior_delivered_ce
    f.rs_lost = f.lost - f.rs_prior_lost
    f.rs_interval = max(f.rs_interval, mstamp(now) - f.rs_prior_mstamp)
    if f.rs_interval < f.min_rtt:
        f.rs_interval = -1


# --- RTT (tcp_input.c) ----------------------------------------------------------------------------------------------


def rtt_estimator(f, rtt_us):
    """tcp_rtt_estimator and tcp_set_rto: srtt << 3, mdev << 2, the largest mdev of a round trip, 200 ms at least."""
    m = max(rtt_us, 1)
    if f.srtt == 0:
        f.srtt = m << 3
        f.mdev = m << 1
        f.rttvar = max(f.mdev, 200_000)
        f.mdev_max = f.rttvar
        f.rtt_seq = f.nxt
    else:
        m -= f.srtt >> 3
        f.srtt += m
        if m < 0:
            m = -m - (f.mdev >> 2)
            if m > 0:
                m >>= 3  # a falling RTT must not raise the deviation at full speed
        else:
            m -= f.mdev >> 2
        f.mdev += m
        if f.mdev > f.mdev_max:
            f.mdev_max = f.mdev
            f.rttvar = max(f.rttvar, f.mdev_max)
        if f.una > f.rtt_seq:
            if f.mdev_max < f.rttvar:
                f.rttvar -= (f.rttvar - f.mdev_max) >> 2
            f.rtt_seq = f.nxt
            f.mdev_max = 200_000
    f.rto_us = min((f.srtt >> 3) + f.rttvar, 120_000_000)


def update_rtt(w, f, first_ns, last_ns, sack_first_ns, sack_last_ns, now):
    """tcp_ack_update_rtt: cumulative samples first, SACKed ones otherwise; -1 is no sample."""
    seq_rtt = mstamp(now) - mstamp(first_ns) if first_ns >= 0 else -1
    ca_rtt = mstamp(now) - mstamp(last_ns) if first_ns >= 0 else -1
    if sack_first_ns >= 0:
        ca_rtt = mstamp(now) - mstamp(sack_last_ns)
        if seq_rtt < 0:
            seq_rtt = mstamp(now) - mstamp(sack_first_ns)
    f.rs_rtt = ca_rtt
    if seq_rtt < 0:
        return
    if ca_rtt <= f.min_rtt or now - f.min_rtt_stamp > 300_000_000_000:
        f.min_rtt = ca_rtt
        f.min_rtt_stamp = now
    rtt_estimator(f, seq_rtt)
    f.backoff = 0
    f.rtt_sum_us += ca_rtt
    f.rtt_count += 1


# --- loss detection -------------------------------------------------------------------------------------------------


def mark_lost(w, f, index, now):
    """tcp_mark_skb_lost, and the controllers' skb_marked_lost."""
    seg = segments(f.seg)[index & f.mask]
    if seg.marks & LOST:
        if not seg.marks & RETRANS:
            return
        seg.marks &= ~RETRANS  # the retransmission was lost too
        f.retrans_out -= 1
    else:
        seg.marks |= LOST
        f.lost_out += 1
    f.lost += 1
    f.retrans_scan = min(f.retrans_scan, index)
    call(w, f, MARKED_LOST, index, now)


def detect_losses(w, f, now):
    """Mark every transmission lost that `dup_thresh` later ones have overtaken."""
    newest = f.d3 if f.dup_thresh == 3 else f.d1
    while f.tx_head < newest:
        index = words(f.tx_seg)[f.tx_head & f.mask]
        if index >= f.una:
            seg = segments(f.seg)[index & f.mask]
            if seg.order == f.tx_head and not seg.marks & SACKED:
                mark_lost(w, f, index, now)
        f.tx_head += 1


# --- the ACK --------------------------------------------------------------------------------------------------------


def start_rate_sample(f):
    """A fresh rate_sample, as tcp_ack does on entry."""
    f.rs_last_order = -1
    f.rs_prior_delivered = 0
    f.rs_prior_mstamp = 0
    f.rs_prior_lost = 0
    f.rs_delivered = 0
    f.rs_lost = 0
    f.rs_losses = 0
    f.rs_acked_sacked = 0
    f.rs_rtt = -1
    f.rs_app_limited = 0
    f.rs_retrans = 0
    f.rs_ack_delayed = 0
    f.rs_tx_in_flight = 0
    f.rs_delivered_ce = 0
    f.rs_interval = 0
    f.rs_prior_in_flight = in_flight(f)


def take_delivery(w, f, order):
    """One transmission reached the receiver: scoreboard and rate sample; returns the segment, -1 if it was known."""
    index = words(f.tx_seg)[order & f.mask]
    seg = segments(f.seg)[index & f.mask]
    if index < f.una or seg.marks & SACKED:
        return -1
    if order != seg.order:
        f.undo_proof = 1  # an earlier transmission arrived: the last one was not needed
    rate_skb_delivered(w, f, seg, order if order == seg.order else seg.order)
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


def process_ack(w, f, now):
    """tcp_ack."""
    log_to = words(f.ack_log)[f.ack_head & f.mask]
    f.ack_head += 1
    start_rate_sample(f)
    prior_delivered, prior_lost, prior_una = f.delivered, f.lost, f.una
    had_sacked = f.sacked_out
    log_from = f.log_seen
    for k in range(log_from, log_to):
        take_delivery(w, f, words(f.log_order)[k & f.mask])
    f.log_seen = log_to
    while f.una < f.nxt and segments(f.seg)[f.una & f.mask].marks & SACKED:
        f.una += 1
        f.sacked_out -= 1
    f.retrans_scan = max(f.retrans_scan, f.una)
    clean_rtx_queue(w, f, log_from, log_to, prior_una, prior_delivered, had_sacked, now)
    if f.delivered > prior_delivered:
        f.delivered_mstamp = mstamp(now)
    detect_losses(w, f, now)
    if f.una > prior_una:
        call(w, f, PKTS_ACKED, f.una - prior_una, now)
        rearm_rto(w, f, now)
    fastretrans_alert(w, f, prior_una, now)
    rate_gen(w, f, f.delivered - prior_delivered, f.lost - prior_lost, now)
    cong_control(w, f, f.delivered - prior_delivered, f.una > prior_una, now)
    if f.una >= f.max_packets_seq:
        f.max_packets_out = f.nxt - f.una
    push(w, f, now)


def clean_rtx_queue(w, f, log_from, log_to, prior_una, prior_delivered, had_sacked, now):
    """The RTT part of tcp_clean_rtx_queue: first and last segment acknowledged, cumulatively or by SACK."""
    first = last = sack_first = sack_last = np.int64(-1)
    low, high = np.int64(NEVER), np.int64(-1)
    retrans_acked = False
    for k in range(log_from, log_to):
        order = words(f.log_order)[k & f.mask]
        index = words(f.tx_seg)[order & f.mask]
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
    one_alone = f.una - prior_una == 1 and had_sacked == 0 and f.rs_prior_delivered + 1 == f.delivered
    if first >= 0 and one_alone and f.rs_tx_in_flight == 1:
        f.rs_ack_delayed = 1
    update_rtt(w, f, first, last, sack_first, sack_last, now)


def fastretrans_alert(w, f, prior_una, now):
    """tcp_fastretrans_alert: enter, leave or undo the recovery states."""
    if f.ca_state >= RECOVERY:
        if f.undo_proof == 1 and f.undo_marker >= 0 and (f.una >= f.high_seq or f.ca_state == LOSS):
            undo(w, f, now)
        elif f.una >= f.high_seq:
            f.undo_marker = -1 if f.ca_state == LOSS else f.undo_marker
            leaving = f.ca_state
            set_state(w, f, OPEN, now)
            if leaving == RECOVERY and f.has_on_ack == 0:
                if f.undo_marker >= 0 and words(f.state)[SSTHRESH] < INFINITE_SSTHRESH:
                    words(f.state)[CWND] = words(f.state)[SSTHRESH]
                call(w, f, CWND_EVENT, COMPLETE_CWR, now)
            f.undo_marker = -1
    if f.ca_state >= RECOVERY:
        return
    if f.lost_out > 0:
        enter_recovery(w, f, now)
    else:
        state = DISORDER if f.sacked_out > 0 else OPEN
        if state != f.ca_state:
            set_state(w, f, state, now)


def enter_recovery(w, f, now):
    """tcp_enter_recovery."""
    f.undo_marker = f.una
    f.undo_proof = 0
    f.prior_ssthresh = current_ssthresh(w, f)
    f.high_seq = f.nxt
    words(f.state)[CWND_CNT] = 0
    f.prior_cwnd = words(f.state)[CWND]
    f.prr_delivered = 0
    f.prr_out = 0
    words(f.state)[SSTHRESH] = call(w, f, SSTHRESH_CALL, 0, now)
    set_state(w, f, RECOVERY, now)


def current_ssthresh(w, f):
    """tcp_current_ssthresh."""
    if f.ca_state == CWR or f.ca_state == RECOVERY:
        return words(f.state)[SSTHRESH]
    return max(words(f.state)[SSTHRESH], (words(f.state)[CWND] >> 1) + (words(f.state)[CWND] >> 2))


def undo(w, f, now):
    """tcp_undo_cwnd_reduction: the reduction was spurious."""
    f.n_undo += 1
    for index in range(f.una, f.nxt):
        seg = segments(f.seg)[index & f.mask]
        if seg.marks & LOST:
            seg.marks &= ~LOST
            f.lost_out -= 1
    cwnd = call(w, f, UNDO_CWND, 0, now)
    words(f.state)[CWND] = cwnd
    if f.prior_ssthresh > words(f.state)[SSTHRESH]:
        words(f.state)[SSTHRESH] = f.prior_ssthresh
    f.undo_marker = -1
    f.undo_proof = 0
    f.retransmits = 0
    set_state(w, f, OPEN, now)


def cong_control(w, f, newly_delivered, advanced, now):
    """tcp_cong_control: the controller itself, or proportional rate reduction and cong_avoid."""
    if f.has_on_ack == 1:
        call(w, f, ON_ACK, 0, now)
    elif f.ca_state == RECOVERY or f.ca_state == CWR:
        cwnd_reduction(w, f, newly_delivered, advanced, now)
    elif advanced or (f.profile == 1 and f.reordering > 3 and newly_delivered > 0):  # tcp_may_raise_cwnd
        call(w, f, CONG_AVOID, newly_delivered, now)


def cwnd_reduction(w, f, newly_delivered, advanced, now):
    """tcp_cwnd_reduction: proportional rate reduction [RFC6937]."""
    if newly_delivered <= 0 or f.prior_cwnd == 0:
        return
    flight = in_flight(f)
    ssthresh = words(f.state)[SSTHRESH]
    delta = ssthresh - flight
    f.prr_delivered += newly_delivered
    if delta < 0:
        sndcnt = (ssthresh * f.prr_delivered + f.prior_cwnd - 1) // f.prior_cwnd - f.prr_out
    elif advanced and f.rs_losses == 0:
        sndcnt = min(delta, max(f.prr_delivered - f.prr_out, newly_delivered) + 1)
    else:
        sndcnt = min(delta, newly_delivered)
    sndcnt = max(sndcnt, 0 if f.prr_out > 0 else 1)
    words(f.state)[CWND] = flight + sndcnt


# --- timers ---------------------------------------------------------------------------------------------------------


def rearm_rto(w, f, now):
    """tcp_rearm_rto."""
    f.rto_at = NEVER if f.nxt == f.una else now + min(f.rto_us << f.backoff, 120_000_000) * 1000


def on_rto(w, f, now):
    """tcp_retransmit_timer and tcp_enter_loss: everything outstanding is lost, one segment may go."""
    f.n_rto += 1
    start_rate_sample(f)
    again = f.ca_state == LOSS and f.retransmits > 0
    for index in range(f.una, f.nxt):
        seg = segments(f.seg)[index & f.mask]
        if not seg.marks & SACKED:
            mark_lost(w, f, index, now)
    if f.ca_state <= DISORDER or f.una >= f.high_seq or (f.ca_state == LOSS and not again):
        f.prior_ssthresh = current_ssthresh(w, f)
        f.prior_cwnd = words(f.state)[CWND]
        words(f.state)[SSTHRESH] = call(w, f, SSTHRESH_CALL, 0, now)
        call(w, f, CWND_EVENT, EVENT_LOSS, now)
        f.undo_marker = f.una
        f.undo_proof = 0
    f.tx_head = f.tx_next
    words(f.state)[CWND] = in_flight(f) + 1
    words(f.state)[CWND_CNT] = 0
    set_state(w, f, LOSS, now)
    f.high_seq = f.nxt
    f.retransmits += 1
    f.backoff = min(f.backoff + 1, 15)
    transmit(w, f, f.una, now)
    f.rto_at = now + min(f.rto_us << f.backoff, 120_000_000) * 1000


# --- sending --------------------------------------------------------------------------------------------------------


def transmit(w, f, index, now):
    """__tcp_transmit_skb for one segment: stamps, rate-sample marks, pacing clock, then the path."""
    f.wstamp_ns = max(f.wstamp_ns, now)
    if in_flight(f) == 0:
        call(w, f, CWND_EVENT, TX_START, now)
    seg = segments(f.seg)[index & f.mask]
    order = f.tx_next
    f.tx_next += 1
    words(f.tx_seg)[order & f.mask] = index
    if index < f.nxt:
        seg.marks |= RETRANS | EVER_RETRANS
        f.retrans_out += 1
        f.n_retx += 1
    else:
        seg.marks = 0
    seg.order = order
    seg.sent_ns = f.wstamp_ns
    rate_skb_sent(w, f, seg, mstamp(f.wstamp_ns))
    if index == f.nxt:
        f.nxt += 1
        if f.rto_at == NEVER:
            rearm_rto(w, f, now)
    seg.tx_in_flight = in_flight(f)
    if f.ca_state == RECOVERY or f.ca_state == CWR:
        f.prr_out += 1
    f.lsndtime_us = mstamp(now)
    f.data_segs_out += 1
    f.n_sent += 1
    forward(w, f, order, now)


def update_pacing(w, f, segments, prior_wstamp, now):
    """tcp_update_skb_after_send: advance the earliest departure time, with credit for time lost to timers."""
    rate = words(f.state)[PACING]
    if f.paced == 0 or rate <= 0 or f.data_segs_out < 10:
        return
    length = segments * (f.mss + f.pace_overhead) * 1_000_000_000 // rate
    f.wstamp_ns += length - min(length // 2, f.wstamp_ns - prior_wstamp)


def tso_segments(w, f):
    """Segments of one burst: a millisecond at the pacing rate, at least two (one below 1.2 Mbit/s)."""
    rate = words(f.state)[PACING]
    if rate <= 0 or f.paced == 0:
        return 1
    return min(max(min(rate >> 10, 65536 - 1 - 320) // f.mss, 1 if rate < 150_000 else 2), 127)


def must_wait(w, f, now):
    """tcp_pacing_check: arm the pacing timer if the next departure is in the future."""
    if f.paced == 0 or f.wstamp_ns <= now:
        return False
    f.pace_at = f.wstamp_ns
    return True


def push(w, f, now):
    """Retransmissions first (tcp_xmit_retransmit_queue), then new data (tcp_write_xmit)."""
    while f.lost_out > f.retrans_out and in_flight(f) < words(f.state)[CWND]:
        if must_wait(w, f, now):
            return
        index = next_lost(w, f)
        if index < 0:
            break
        head = index == f.una
        prior = f.wstamp_ns
        transmit(w, f, index, now)
        update_pacing(w, f, 1, prior, now)
        if head:
            rearm_rto(w, f, now)
    sent = 0
    while f.nxt < f.app_end and f.nxt - f.una < f.rwnd:
        quota = words(f.state)[CWND] - in_flight(f)
        if quota <= 0 or must_wait(w, f, now):
            break
        burst = min(min(tso_segments(w, f), quota), min(f.app_end - f.nxt, f.rwnd - (f.nxt - f.una)))
        prior = f.wstamp_ns
        f.burst_id += 1
        for _ in range(burst):
            transmit(w, f, f.nxt, now)
        update_pacing(w, f, burst, prior, now)
        sent += burst
    if sent > 0:
        f.is_cwnd_limited = 1 if in_flight(f) >= words(f.state)[CWND] else 0
        if f.nxt - f.una > f.max_packets_out or f.una >= f.max_packets_seq:
            f.max_packets_out = f.nxt - f.una
            f.max_packets_seq = f.nxt


def next_lost(w, f):
    """Return the first segment that is lost and not retransmitted, -1 if there is none."""
    while f.retrans_scan < f.nxt:
        marks = segments(f.seg)[f.retrans_scan & f.mask].marks
        if marks & LOST and not marks & RETRANS:
            return f.retrans_scan
        f.retrans_scan += 1
    return -1
