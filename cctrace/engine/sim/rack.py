"""The TCP sender of current Linux kernels (profile `linux`): RACK-TLP [RFC8985], D-SACK and time-stamp undo, F-RTO.

Function names are the kernel's ([Linux61] tcp_input.c, tcp_recovery.c, tcp_output.c). The receiver reports each ACK's
newly received segments, the time stamp it echoes (ms) and a duplicate (D-SACK), so the sender knows what a SACK
scoreboard of unlimited blocks would tell it, and not which transmission of a segment arrived.
"""

from cctrace.engine.sim.layout import EVER_RETRANS, LOST, PROBE_TIMER, REORDERING_TIMER, RETRANS, RTO_TIMER, SACKED
from cctrace.engine.sim.memory import segments, words
from cctrace.engine.sim.output import push, push_new, transmit
from cctrace.engine.sim.samples import rate_gen, rate_skb_delivered, start_rate_sample
from cctrace.engine.sim.sender import (
    clean_rtx_queue,
    cong_control,
    cwnd_reduction,
    end_cwnd_reduction,
    enter_recovery,
    init_cwnd_reduction,
    init_undo,
    mark_lost,
    reduce_ssthresh,
    undo_cwnd_reduction,
)
from cctrace.engine.sim.stack import (
    CWND_EVENT,
    CWR,
    DISORDER,
    EVENT_LOSS,
    LOSS,
    OPEN,
    PKTS_ACKED,
    RECOVERY,
    call,
    current_ssthresh,
    in_flight,
    mstamp,
    set_state,
)
from cctrace.engine.sim.timers import TIMEOUT_MIN_US, arm, current_rto, rearm_rto, set_xmit_timer
from cctrace.engine.sim.view import CWND, CWND_CNT
from cctrace.engine.sim.window import window_left

MAX_REORDERING = 300
DEFAULT_REORDERING = 3
REO_WND_PERSIST = 16  # recoveries for which a widened window lasts


def linux_ack(w, f, now):
    """tcp_ack."""
    place = f.ack_head & f.mask
    log_from, log_to = f.log_seen, words(f.ack_log)[place]
    f.echo_ms = words(f.ack_echo)[place]
    f.snd_right = max(f.snd_right, words(f.ack_right)[place])
    duplicate = words(f.ack_dup)[place] - 1
    f.ece = words(f.ack_ece)[place]
    f.ack_head += 1
    start_rate_sample(f)
    prior_delivered, prior_lost, prior_una, prior_fack = f.delivered, f.lost, f.una, max(f.sack_high, f.una)
    duplicates = take_duplicate(f, duplicate)
    low = f.nxt
    f.orig_sacked = 0
    for k in range(log_from, log_to):
        low = min(low, linux_take(w, f, words(f.log_order)[k & f.mask], prior_fack, now))
    f.log_seen = log_to
    while f.una < f.nxt and segments(f.seg)[f.una & f.mask].marks & SACKED:
        f.una += 1
        f.sacked_out -= 1
    advanced, sacked = f.una > prior_una, f.delivered - prior_delivered - duplicates > f.una - prior_una
    f.retrans_scan = max(f.retrans_scan, f.una)
    echo_rtt = (now // 1_000_000 - f.echo_ms) * 1000 if advanced and f.echo_ms > 0 else -1
    clean_rtx_queue(w, f, log_from, log_to, prior_una, echo_rtt, now)
    if low < prior_fack and (f.ca_state != LOSS or f.undo_marker >= 0):
        check_reordering(f, low)
    if advanced:
        call(w, f, PKTS_ACKED, f.una - prior_una, now)
    rack_update_reo_wnd(f)
    process_tlp_ack(w, f, duplicate, advanced, sacked, now)
    if advanced:
        set_xmit_timer(f, now)
    only_new = False
    if not advanced or sacked or duplicate >= 0 or f.ece == 1 or f.ca_state != OPEN:
        only_new = linux_alert(w, f, prior_una, advanced, sacked, now)
    rate_gen(w, f, f.delivered - prior_delivered, f.lost - prior_lost, now)
    cong_control(w, f, f.delivered - prior_delivered, advanced, now)
    if only_new:
        push_new(w, f, 0, now)
        if f.nxt > f.high_seq:
            return
        f.frto = 0
    push(w, f, now)


def linux_take(w, f, order, prior_fack, now):
    """tcp_sacktag_one: returns the segment if it filled a hole without having been retransmitted, else nxt."""
    index = words(f.tx_seg)[order & f.mask]
    seg = segments(f.seg)[index & f.mask]
    if index < f.una or seg.marks & SACKED:
        return f.nxt
    rate_skb_delivered(w, f, seg, seg.order)
    rack_advance(f, seg, index, now)
    if seg.marks & LOST:
        f.lost_out -= 1
    if seg.marks & RETRANS:
        f.retrans_out -= 1
    seg.marks = (seg.marks & ~(LOST | RETRANS)) | SACKED
    f.sacked_out += 1
    f.delivered += 1
    f.delivered_ce += f.ece
    f.sack_high = max(f.sack_high, index + 1)
    if seg.marks & EVER_RETRANS:
        return f.nxt
    if index < f.high_seq:
        f.orig_sacked = 1
    return index if index < prior_fack else f.nxt


def take_duplicate(f, index):
    """tcp_check_dsack: a duplicate arrived, so a retransmission was not needed; it counts as delivered all the same."""
    if index < 0:
        return 0
    if f.undo_marker >= 0 and f.undo_retrans > 0 and index >= f.undo_marker:
        f.undo_retrans -= 1
    if f.reord_seen > 0 and index + 1 != f.tlp_high_seq:
        f.dsack_seen = 1
    f.dsacks += 1
    f.delivered += 1
    f.delivered_ce += f.ece
    return 1


def check_reordering(f, low):
    """tcp_check_sack_reordering: a segment that was never retransmitted arrived behind later ones."""
    distance = max(f.sack_high, f.una) - low
    f.reordering = max(f.reordering, min(distance, MAX_REORDERING))
    f.reord_seen += 1


# --- RACK -----------------------------------------------------------------------------------------------------------


def rack_advance(f, seg, index, now):
    """tcp_rack_advance: the newest transmission known to have arrived, and its RTT."""
    rtt = mstamp(now) - mstamp(seg.sent_ns)
    if rtt < f.min_rtt and seg.marks & EVER_RETRANS:
        return  # more likely its original
    f.rack_advanced = 1
    f.rack_rtt = rtt
    if seg.sent_ns > f.rack_ns or (seg.sent_ns == f.rack_ns and index > f.rack_index):
        f.rack_ns = seg.sent_ns
        f.rack_index = index


def rack_update_reo_wnd(f):
    """tcp_rack_update_reo_wnd: a quarter of min_rtt more for each round with a D-SACK, for 16 recoveries."""
    if f.rs_last_order < 0:
        return
    if f.rs_prior_delivered < f.rack_last_delivered:
        f.dsack_seen = 0
    if f.dsack_seen == 1:
        f.reo_wnd_steps = min(f.reo_wnd_steps + 1, 255)
        f.dsack_seen = 0
        f.rack_last_delivered = f.delivered
        f.reo_wnd_persist = REO_WND_PERSIST
    elif f.reo_wnd_persist == 0:
        f.reo_wnd_steps = 1


def rack_reo_wnd(f):
    """tcp_rack_reo_wnd, us: no window before reordering was seen, once three segments or a recovery speak for loss."""
    if f.reord_seen == 0 and (f.ca_state >= RECOVERY or f.sacked_out >= f.reordering):
        return 0
    return min((f.min_rtt >> 2) * f.reo_wnd_steps, f.srtt >> 3)


def rack_detect_loss(w, f, now):
    """tcp_rack_detect_loss: what the newest arrival overtook by more than the window is lost; returns what waits."""
    limit = f.rack_rtt + rack_reo_wnd(f)
    wait = 0
    at_head = True
    for order in range(f.tx_head, f.tx_next):
        index = words(f.tx_seg)[order & f.mask]
        seg = segments(f.seg)[index & f.mask]
        settled = index < f.una or seg.order != order or seg.marks & SACKED or seg.marks & (LOST | RETRANS) == LOST
        if settled:
            if at_head:
                f.tx_head = order + 1
            continue
        at_head = False
        if seg.sent_ns > f.rack_ns or (seg.sent_ns == f.rack_ns and index >= f.rack_index):
            break
        left = limit - (mstamp(now) - mstamp(seg.sent_ns))
        if left <= 0:
            mark_lost(w, f, index, now)
        else:
            wait = max(wait, left)
    return wait


def identify_loss(w, f, now):
    """tcp_identify_packet_loss: RACK, and its timer; returns whether a retransmission was lost."""
    if f.nxt == f.una or f.rack_advanced == 0:
        return False
    prior_retrans = f.retrans_out
    f.rack_advanced = 0
    wait = rack_detect_loss(w, f, now)
    if wait > 0:
        arm(f, REORDERING_TIMER, wait + TIMEOUT_MIN_US, now)
    return f.retrans_out < prior_retrans


# --- the states -----------------------------------------------------------------------------------------------------


def linux_alert(w, f, prior_una, advanced, sacked, now):
    """tcp_fastretrans_alert; returns whether only new data may be sent (F-RTO)."""
    only_new = False
    if f.ece == 1:
        f.prior_ssthresh = 0
    if f.ca_state == OPEN:
        f.retrans_stamp = 0
    elif f.una >= f.high_seq:
        if f.ca_state == CWR and f.una != f.high_seq:
            end_cwnd_reduction(w, f, now)
            set_state(w, f, OPEN, now)
        elif f.ca_state == RECOVERY:
            try_undo_recovery(w, f, now)
            end_cwnd_reduction(w, f, now)
    if f.ca_state == RECOVERY:
        if advanced and packet_delayed(f) and f.undo_marker >= 0:
            check_reordering(f, prior_una)
            if f.retrans_out == 0:
                undo_cwnd_reduction(w, f, True, now)
                try_keep_open(w, f, now)
            return False
        if try_undo_dsack(w, f, now):
            try_keep_open(w, f, now)
            return False
        identify_loss(w, f, now)
        return False
    if f.ca_state == LOSS:
        only_new = process_loss(w, f, advanced, sacked, now)
        again = identify_loss(w, f, now)
        if f.ca_state != OPEN and not again:
            return only_new
    elif f.ca_state <= DISORDER:
        try_undo_dsack(w, f, now)
        identify_loss(w, f, now)
    else:
        identify_loss(w, f, now)
    if f.lost_out == 0:
        if not any_retrans_done(f):
            f.retrans_stamp = 0
        if f.ece == 1:
            enter_cwr(w, f, now)
        if f.ca_state != CWR:
            try_keep_open(w, f, now)
        return only_new
    enter_recovery(w, f, now)
    return False


def enter_cwr(w, f, now):
    """tcp_enter_cwr: marks reduce the window like a loss, once per window, and nothing undoes it."""
    f.prior_ssthresh = 0
    if f.ca_state < CWR:
        f.undo_marker = -1
        init_cwnd_reduction(w, f, now)
        set_state(w, f, CWR, now)


def process_loss(w, f, advanced, sacked, now):
    """tcp_process_loss: was the timeout spurious (F-RTO [RFC5682])? Returns whether only new data may be sent."""
    recovered = f.una >= f.high_seq
    if advanced and may_undo(f):
        undo_loss(w, f, now)
        return False
    if f.frto == 1:
        if f.orig_sacked == 1:
            undo_loss(w, f, now)
            return False
        if f.nxt > f.high_seq:
            if sacked or not advanced:
                f.frto = 0
        elif advanced and not recovered:
            f.high_seq = f.nxt
            if f.nxt < f.app_end and window_left(f) > 0:
                return True
            f.frto = 0
    if recovered:
        try_undo_recovery(w, f, now)
    return False


def undo_loss(w, f, now):
    """tcp_try_undo_loss, when it does."""
    undo_cwnd_reduction(w, f, True, now)
    f.retransmits = 0
    set_state(w, f, OPEN, now)


def packet_delayed(f):
    """tcp_packet_delayed: the ACK echoes a time stamp from before the first retransmission."""
    return f.retrans_stamp > 0 and 0 < f.echo_ms < f.retrans_stamp


def may_undo(f):
    """tcp_may_undo."""
    return f.undo_marker >= 0 and (f.undo_retrans == 0 or packet_delayed(f))


def try_undo_dsack(w, f, now):
    """tcp_try_undo_dsack: every retransmission was answered by a D-SACK."""
    if f.undo_marker < 0 or f.undo_retrans != 0:
        return False
    f.reo_wnd_persist = min(REO_WND_PERSIST, f.reo_wnd_persist + 1)
    undo_cwnd_reduction(w, f, False, now)
    return True


def try_undo_recovery(w, f, now):
    """tcp_try_undo_recovery: the end of a recovery, undone if it was not needed."""
    if may_undo(f):
        undo_cwnd_reduction(w, f, False, now)
    elif f.reo_wnd_persist > 0:
        f.reo_wnd_persist -= 1
    set_state(w, f, OPEN, now)


def any_retrans_done(f):
    """tcp_any_retrans_done."""
    return f.retrans_out > 0 or (f.una < f.nxt and segments(f.seg)[f.una & f.mask].marks & EVER_RETRANS > 0)


def try_keep_open(w, f, now):
    """tcp_try_keep_open."""
    state = DISORDER if f.sacked_out + f.lost_out > 0 or any_retrans_done(f) else OPEN
    if state != f.ca_state:
        set_state(w, f, state, now)
        f.high_seq = f.nxt


# --- timers ---------------------------------------------------------------------------------------------------------


def linux_timer(w, f, now):
    """tcp_write_timer_handler: what the timer waited for."""
    kind = f.timer
    f.rto_at = 1 << 62
    f.timer = RTO_TIMER
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
        if f.ca_state != RECOVERY:
            enter_recovery(w, f, now)
            if f.has_on_ack == 0:
                cwnd_reduction(w, f, 1, False, now)
        push(w, f, now)
    if f.rto_at == 1 << 62:
        rearm_rto(f, now)


def send_loss_probe(w, f, now):
    """tcp_send_loss_probe: new data if there are any, else the last segment again."""
    if f.tlp_high_seq == 0:
        new = f.nxt < f.app_end and window_left(f) > 0
        f.tlp_retrans = 0 if new else 1
        transmit(w, f, f.nxt if new else f.nxt - 1, 0, now)
        f.tlp_high_seq = f.nxt
    rearm_rto(f, now)


def process_tlp_ack(w, f, duplicate, advanced, sacked, now):
    """tcp_process_tlp_ack: a probe that repaired a loss costs a window reduction like any loss."""
    if f.tlp_high_seq == 0 or f.una < f.tlp_high_seq:
        return
    if f.tlp_retrans == 0 or duplicate + 1 == f.tlp_high_seq:
        f.tlp_high_seq = 0
    elif f.una > f.tlp_high_seq:
        init_cwnd_reduction(w, f, now)
        set_state(w, f, CWR, now)
        end_cwnd_reduction(w, f, now)
        try_keep_open(w, f, now)
    elif not advanced and not sacked:
        f.tlp_high_seq = 0


def linux_timeout(w, f, now):
    """tcp_retransmit_timer, tcp_enter_loss: lost is what RACK would not still wait for; one segment goes."""
    f.n_rto += 1
    new_recovery = f.ca_state < RECOVERY
    for index in range(f.una, f.nxt):
        seg = segments(f.seg)[index & f.mask]
        recent = index > f.una and f.rack_rtt > mstamp(now) - mstamp(seg.sent_ns)
        if not seg.marks & SACKED and not recent:
            mark_lost(w, f, index, now)
    if f.ca_state <= DISORDER or f.una >= f.high_seq or (f.ca_state == LOSS and f.retransmits == 0):
        f.prior_ssthresh = current_ssthresh(w, f)
        f.prior_cwnd = words(f.state)[CWND]
        reduce_ssthresh(w, f, now)
        call(w, f, CWND_EVENT, EVENT_LOSS, now)
        init_undo(f)
    words(f.state)[CWND] = in_flight(f) + 1
    words(f.state)[CWND_CNT] = 0
    f.queue_cwr = 1 if f.ecn > 0 else 0
    if f.ca_state <= DISORDER and f.sacked_out >= DEFAULT_REORDERING:
        f.reordering = min(f.reordering, DEFAULT_REORDERING)
    set_state(w, f, LOSS, now)
    f.high_seq = f.nxt
    f.frto = 1 if new_recovery or f.retransmits > 0 else 0
    f.retransmits += 1
    f.backoff = min(f.backoff + 1, 15)
    transmit(w, f, f.una, 0, now)
    arm(f, RTO_TIMER, current_rto(f), now)
