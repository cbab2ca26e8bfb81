"""The TCP sender of current Linux kernels (profile `linux`): ACK processing and timers.

`sack` processes the ACK's report and detects losses, `ca_states` holds the congestion states, `output` sends.
Function names are the kernel's ([Linux618] tcp_input.c, tcp_timer.c, tcp_recovery.c, tcp_output.c).
"""

from cctrace.cc.linux import CA_CWR, CA_DISORDER, CA_LOSS, CA_OPEN, CA_RECOVERY, EVENT_LOSS
from cctrace.lang.memory import words
from cctrace.schema import CWND_EVENT, PKTS_ACKED
from cctrace.sim.core import reduction
from cctrace.sim.core.ca_states import LOST_DATA, NEW_DATA, NOTHING, begin_recovery, linux_alert, try_keep_open
from cctrace.sim.core.calls import call, current_ssthresh, in_flight, mstamp, set_state
from cctrace.sim.core.output import must_wait, push_new, retransmit, retransmit_skb
from cctrace.sim.core.positions import begins
from cctrace.sim.core.receive_window import window_bytes
from cctrace.sim.core.rtx_timer import arm, current_rto, rearm_rto, set_xmit_timer
from cctrace.sim.core.sack import rack_detect_loss, rack_update_reo_wnd, take_report
from cctrace.sim.core.samples import rate_gen, start_rate_sample
from cctrace.sim.core.sendmsg import check_app_limited
from cctrace.sim.core.structs import NEVER, PROBE_TIMER, REORDERING_TIMER, RTO_TIMER, SACKED, acks, segments, told
from cctrace.sim.core.view import CWND, CWND_CNT
from cctrace.sim.core.write_queue import check_space, unsent
from cctrace.tcp.ecn import ACCURATE_ECN
from cctrace.tcp.rack import DEFAULT_REORDERING


def linux_ack(w, f, now):
    """tcp_ack."""
    ack = told(f.told)[f.ack_head & f.ack_mask]
    log_from, log_to = f.log_seen, acks(f.ack)[f.ack_head & f.ack_mask].log
    f.log_seen = log_to
    f.echo_ms = ack.echo
    f.heard_ms = ack.stamp
    f.snd_right = max(f.snd_right, ack.right)
    prior_una = f.una
    duplicate = ack.dup - 1
    echoed = ack.ece
    f.ece = 0 if f.ecn == ACCURATE_ECN else echoed
    f.ack_head += 1
    start_rate_sample(f)
    if f.by_acks == 1:
        check_app_limited(w, f)
    f.orig_sacked = f.rack_waits = 0
    prior_delivered, prior_lost, outstanding = f.delivered, f.lost, f.nxt > f.una
    sacked, restart = take_report(f, log_from, log_to, duplicate, now)
    if f.ecn == ACCURATE_ECN:
        accecn_process(f, echoed)
    advanced = f.una > prior_una
    f.max_window = max(f.max_window, min(f.snd_right - begins(f, f.una), f.rwnd * f.mss))
    rexmit = NOTHING
    if outstanding:
        call(w, f, PKTS_ACKED, f.una - prior_una, now)
        rack_update_reo_wnd(f)
        process_tlp_ack(w, f, duplicate, advanced, sacked, now)
    if not advanced or sacked or duplicate >= 0 or f.ece == 1 or f.ca_state != CA_OPEN:
        rexmit = linux_alert(w, f, prior_una, advanced, sacked, now)
    if outstanding:
        if restart and f.rack_waits == 0:
            set_xmit_timer(f, now)
        rate_gen(f, f.delivered - prior_delivered, f.lost - prior_lost)
        reduction.cong_control(w, f, f.delivered - prior_delivered, advanced, now)
    xmit_recovery(w, f, rexmit, now)
    push_new(w, f, 0, now)
    check_space(f, now)


def accecn_process(f, counted):
    """tcp_accecn_process: the marks that an ACK reports for the first time; the option's counters do not wrap."""
    if counted > f.ce_reported:
        f.delivered_ce += counted - f.ce_reported
        f.ce_reported = counted
        f.ece = 1


def xmit_recovery(w, f, rexmit, now):
    """tcp_xmit_recovery."""
    if rexmit == NEW_DATA:
        push_new(w, f, 0, now)
        if f.nxt > f.high_seq:
            return
        f.frto = 0
        rexmit = LOST_DATA
    if rexmit == LOST_DATA:
        retransmit(w, f, now)


def linux_timer(w, f, now):
    """tcp_write_timer_handler: handle the event that the timer waited for."""
    kind = f.timer
    f.rto_at = NEVER
    f.timer = RTO_TIMER
    if f.by_acks == 1:
        check_app_limited(w, f)
    start_rate_sample(f)
    f.ece = 0
    if kind == REORDERING_TIMER:
        rack_reo_timeout(w, f, now)
    elif kind == PROBE_TIMER:
        send_loss_probe(w, f, now)
    else:
        linux_timeout(w, f, now)


def rack_reo_timeout(w, f, now):
    """tcp_rack_reo_timeout."""
    prior = in_flight(f)
    rack_detect_loss(w, f, now)
    if in_flight(f) != prior:
        if f.ca_state != CA_RECOVERY:
            begin_recovery(w, f, now)
            if f.has_on_ack == 0:
                reduction.cwnd_reduction(w, f, 1, False, now)
        retransmit(w, f, now)
        must_wait(w, f, now)  # so new data follow: tcp_xmit_retransmit_queue asks before it looks at what is next
    if f.rto_at == NEVER:
        rearm_rto(f, now)


def send_loss_probe(w, f, now):
    """tcp_send_loss_probe: new data if there are any, else the last segment again unless it still waits in fq."""
    if f.tlp_high_seq == 0:
        f.tlp_retrans, sent = 0, f.n_sent
        if f.nxt < f.write_seq and window_bytes(f) >= min(unsent(f), f.mss):
            push_new(w, f, 0, now, True, False, True)
        elif f.fq == 0 or segments(f.seg)[(f.nxt - 1) & f.mask].order < f.fq_next:
            retransmit_skb(w, f, f.nxt - 1, 1, now, True)
            f.tlp_retrans = 1
        f.tlp_high_seq = f.nxt if f.n_sent > sent else 0
    rearm_rto(f, now)


def process_tlp_ack(w, f, duplicate, advanced, sacked, now):
    """tcp_process_tlp_ack: a probe that repaired a loss costs a window reduction like any loss."""
    if f.tlp_high_seq == 0 or f.una < f.tlp_high_seq:
        return
    if f.tlp_retrans == 0 or duplicate + 1 == f.tlp_high_seq:
        f.tlp_high_seq = 0
    elif f.una > f.tlp_high_seq:
        reduction.init_cwnd_reduction(w, f, now)
        set_state(w, f, CA_CWR, now)
        reduction.end_cwnd_reduction(w, f, now)
        try_keep_open(w, f, now)
    elif not advanced and not sacked:
        f.tlp_high_seq = 0


def linux_timeout(w, f, now):
    """tcp_retransmit_timer, tcp_enter_loss: all is lost that RACK would not still wait for; one segment is sent."""
    f.n_rto += 1
    new_recovery = f.ca_state < CA_RECOVERY
    for index in range(f.una, f.nxt):
        seg = segments(f.seg)[index & f.mask]
        recent = index > f.una and f.rack_rtt > f.now_us - mstamp(seg.sent_ns)
        if not seg.marks & SACKED and not recent:
            reduction.mark_lost(w, f, index, now)
    if f.ca_state <= CA_DISORDER or f.una >= f.high_seq or (f.ca_state == CA_LOSS and f.retransmits == 0):
        f.prior_ssthresh = current_ssthresh(w, f)
        f.prior_cwnd = words(f.state)[CWND]
        reduction.reduce_ssthresh(w, f, now)
        call(w, f, CWND_EVENT, EVENT_LOSS, now)
        reduction.init_undo(f)
    words(f.state)[CWND] = in_flight(f) + 1
    words(f.state)[CWND_CNT] = 0
    f.queue_cwr = 1 if f.ecn > 0 and f.ecn != ACCURATE_ECN else 0
    if f.ca_state <= CA_DISORDER and f.sacked_out >= DEFAULT_REORDERING:
        f.reordering = min(f.reordering, DEFAULT_REORDERING)
    set_state(w, f, CA_LOSS, now)
    f.high_seq = f.nxt
    f.tlp_high_seq = 0
    f.frto = 1 if new_recovery or f.retransmits > 0 else 0
    f.retransmits += 1
    f.backoff = min(f.backoff + 1, 15)
    retransmit_skb(w, f, f.una, 1, now)
    arm(f, RTO_TIMER, current_rto(f), now)
