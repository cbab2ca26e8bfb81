"""An nginx-like QUIC sender around a controller: millisecond clock, 3 ms push timer, RFC 9002 loss detection.

It follows the stack that oBBR's authors changed: packets are numbered in sending order, lost data are retransmitted
in new packets behind a queue, an ACK never triggers a send (the push timer does), and pacing is a byte budget that
the push timer refills. Record n of `seg` is packet n here; `tx[n].seg` is the piece of data that it carries, -1 for
a probe.
"""

from cctrace.cc.quic import MAX_ACK_DELAY_MS, PERSISTENT_CONGESTION
from cctrace.cc.quic_reno import INITIAL_RTT_MS
from cctrace.lang.memory import words
from cctrace.schema import INIT, ON_ACK, ON_LOST, RESET_CWND, RESTART_FROM_IDLE
from cctrace.sim.core import view
from cctrace.sim.core.bridge import call_cc
from cctrace.sim.core.calls import is_traced, trace_call
from cctrace.sim.core.entry import forward
from cctrace.sim.core.histogram import count
from cctrace.sim.core.lateness import push_lateness
from cctrace.sim.core.rings import make_room
from cctrace.sim.core.structs import LOST, NEVER, SACKED, acks, segments, transmissions

MAX_WINDOW = 10 * 1024 * 1024
FIRST_WINDOW = 131_054  # twice the default max_udp_payload_size: in force until the first ACK sets the window
PACKET_THRESHOLD = 3
PUSH_MS = 3
MAX_BURST_PACKETS = 10
MS = 1_000_000


def q_call(w, f, event, arg, now):
    """Call the flow's controller."""
    view.fill_quic_view(w, f, arg, now)
    if is_traced(f, event):
        trace_call(f, event, w.quic_view, view.QUIC_SLOTS, view.QUIC_COLUMNS)
    result = call_cc(w, f, event)
    if words(f.state)[view.DRAWS] > 0:
        view.replace_used(w, f, w.quic_view, view.Q_RAND, view.QUIC_BITS)
    return result


def q_start(w, f, now):
    """Connection established."""
    f.q_window = FIRST_WINDOW
    f.q_avg_rtt = INITIAL_RTT_MS
    f.q_rttvar = INITIAL_RTT_MS // 2
    f.q_min_rtt = -1
    f.q_largest_ack = -1
    f.q_budget = MAX_BURST_PACKETS * f.mss
    f.q_start_ms = now // MS
    q_call(w, f, INIT, 0, now)
    f.push_at = now


# --- pacing ---------------------------------------------------------------------------------------------------------


def pacing_rate(w, f):
    """Bytes/s: the controller's own rate; a window-based one's is 2 windows per RTT in slow start, then 1.2."""
    if f.paced == 1:
        return max(words(f.state)[view.Q_PACING], 1)
    rate = f.q_window * 1000 // max(f.q_avg_rtt, 1)  # an RTT below a millisecond reads 0
    if words(f.state)[view.Q_CWND] < words(f.state)[f.q_ssthresh_slot]:
        return max(2 * rate, 1)
    return max(rate * 12 // 10, 1)


def pacing_budget(w, f, now_ms):
    """Bytes that may be sent now: the remainder plus what time has added, at most 6 ms' worth or 10 packets."""
    rate = pacing_rate(w, f)
    burst = max(MAX_BURST_PACKETS * f.mss, 2 * PUSH_MS * rate // 1000)
    if f.q_last_sent == 0:
        return burst
    return min(f.q_budget + (now_ms - f.q_last_sent) * rate // 1000, burst)


def push_delay(w, f):
    """Milliseconds until the next packet fits the budget, 0 if it fits now."""
    if f.q_budget >= f.mss:
        return 0
    f.q_pending = f.mss - f.q_budget
    return max(f.q_pending * 1000 // pacing_rate(w, f), PUSH_MS)


def q_push(w, f, now):
    """The push timer: send what window, budget and application allow."""
    now_ms = now // MS
    f.push_at = NEVER
    if f.q_in_flight == 0 and f.smp_is_app_limited == 1:
        q_call(w, f, RESTART_FROM_IDLE, f.q_delivered, now)
    f.q_budget = max(pacing_budget(w, f, now_ms), f.q_budget + f.q_pending)
    f.q_pending = 0
    f.q_last_sent = now_ms
    sent = 0
    while f.q_in_flight < f.q_window or now_ms - f.q_limit_timer > 1000:
        f.q_limit_timer = now_ms
        delay = push_delay(w, f)
        if delay > 0:
            f.push_at = (now_ms + delay) * MS
            break
        if f.resend_head == f.resend_tail and f.nxt * f.mss >= f.app_end:
            if f.q_window - f.q_in_flight >= f.mss:
                words(f.state)[view.Q_APP_LIMITED] = max(f.q_delivered + f.q_in_flight, 1)
                f.q_budget = MAX_BURST_PACKETS * f.mss
                f.q_last_sent = now_ms
            break
        q_send(w, f, next_piece(w, f), now)
        sent += 1
        f.q_budget = max(pacing_budget(w, f, now_ms) - f.mss, 0)
    if f.push_at == NEVER:
        f.push_at = (now_ms + PUSH_MS) * MS
    if f.q_late_ns > 0:
        f.push_at += push_lateness(w, f)
    if sent > 0:
        f.burst_id += 1
        set_lost_timer(w, f, now_ms)


def next_piece(w, f):
    """The next piece of data to send: new data first, then what was lost, in the order of the frame queue."""
    if f.resend_head < f.resend_tail:
        piece = words(f.resend)[f.resend_head & f.mask]
        f.resend_head += 1
        f.n_retx += 1
        return piece
    f.nxt += 1
    return f.nxt - 1


def q_send(w, f, piece, now):
    """Send one packet and store the delivery state with it."""
    now_ms = now // MS
    if f.tx_next >= f.tx_full:
        make_room(w, f)
    order = f.tx_next
    f.tx_next += 1
    transmissions(f.tx)[order & f.mask].seg = piece
    if f.q_in_flight == 0:
        f.q_delivered_ms = now_ms
        f.q_first_sent_ms = now_ms
    p = segments(f.seg)[order & f.mask]
    p.marks = 0
    p.sent_ns = now
    p.q_po_sent = f.q_send
    p.tx_first_mstamp = f.q_first_sent_ms
    p.tx_delivered_mstamp = f.q_delivered_ms
    p.tx_delivered = f.q_delivered
    p.tx_app_limited = 1 if words(f.state)[view.Q_APP_LIMITED] > 0 else 0
    p.q_tx_lost = f.q_lost
    p.q_tx_in_flight = f.q_in_flight + f.mss
    f.q_in_flight += f.mss
    f.q_send += f.mss if piece >= 0 else 0  # the stack counts no probes
    f.n_sent += 1
    forward(w, f, order, now)


# --- ACKs -----------------------------------------------------------------------------------------------------------


def q_process_ack(w, f, now):
    """An ACK frame: deliveries, RTT, losses, rate sample, controller."""
    now_ms = now // MS
    log_to = acks(f.ack)[f.ack_head & f.ack_mask].log
    f.ack_head += 1
    f.q_prior_in_flight = f.q_in_flight
    f.q_prior_delivered = f.q_delivered
    newest = f.q_largest_ack
    oldest_ms, newest_ms = NEVER, -1
    for k in range(f.log_seen, log_to):
        order = words(f.log)[k & f.ack_mask]
        if order < f.tx_head or segments(f.seg)[order & f.mask].marks & (SACKED | LOST):
            continue  # declared lost before: its record is gone
        p = segments(f.seg)[order & f.mask]
        p.marks |= SACKED
        f.q_in_flight -= f.mss
        f.pto_count = 0
        update_sample(w, f, p, now_ms)
        newest = max(newest, order)
        oldest_ms = min(oldest_ms, p.sent_ns // MS)
        newest_ms = max(newest_ms, p.sent_ns // MS)
    f.log_seen = log_to
    if newest > f.q_largest_ack:
        f.q_largest_ack = newest
        rtt_sample(f, now_ms, now_ms - segments(f.seg)[newest & f.mask].sent_ns // MS)
    q_detect_lost(w, f, oldest_ms, newest_ms, now)
    if generate_sample(w, f, now_ms):
        q_call(w, f, ON_ACK, 0, now)
    f.q_window = min(MAX_WINDOW, words(f.state)[view.Q_CWND])


def rtt_sample(f, now_ms, latest):
    """RFC 9002 §5 in whole milliseconds; ACK delay is not reported by this receiver."""
    f.q_latest_rtt = latest
    f.rtt_sum_us += latest * 1000
    f.rtt_count += 1
    count(f.rtt_tally, latest * 1000)
    if f.q_min_rtt < 0:
        f.q_min_rtt = latest
        f.q_avg_rtt = latest
        f.q_rttvar = latest // 2
        f.q_first_rtt_ms = now_ms
        return
    f.q_min_rtt = min(f.q_min_rtt, latest)
    f.q_avg_rtt += (latest >> 3) - (f.q_avg_rtt >> 3)
    f.q_rttvar += (abs(f.q_avg_rtt - latest) >> 2) - (f.q_rttvar >> 2)


def update_sample(w, f, p, now_ms):
    """A packet was acknowledged: the one sent after the most deliveries makes the sample, until a newer one comes."""
    f.q_delivered += f.mss
    f.q_delivered_ms = now_ms
    if f.smp_initialized == 1 and p.tx_delivered <= f.smp_prior_delivered:
        return
    f.smp_initialized = 1
    f.smp_prior_lost = p.q_tx_lost
    f.smp_tx_in_flight = p.q_tx_in_flight
    f.smp_prior_delivered = p.tx_delivered
    f.smp_prior_ms = p.tx_delivered_mstamp
    f.smp_is_app_limited = p.tx_app_limited
    f.smp_send_elapsed = p.sent_ns // MS - p.tx_first_mstamp
    f.smp_ack_elapsed = now_ms - p.tx_delivered_mstamp
    f.q_first_sent_ms = p.sent_ns // MS
    f.q_po_sent = p.q_po_sent
    f.smp_po_sent_time = p.sent_ns // MS


def generate_sample(w, f, now_ms):
    """Complete the rate sample; returns whether there is one (its interval is at least the minimum RTT)."""
    if words(f.state)[view.Q_APP_LIMITED] > 0 and f.q_delivered > words(f.state)[view.Q_APP_LIMITED]:
        words(f.state)[view.Q_APP_LIMITED] = 0
    if f.smp_initialized == 0 or f.smp_prior_ms == 0:
        return False
    f.smp_acked = f.q_delivered - f.q_prior_delivered
    f.smp_interval_ms = max(f.smp_ack_elapsed, f.smp_send_elapsed)
    f.smp_delivered = f.q_delivered - f.smp_prior_delivered
    f.smp_lost_pkts = f.q_lost - f.smp_prior_lost
    if f.smp_interval_ms < f.q_min_rtt:
        f.smp_interval_ms = 0
        return False
    f.smp_now = now_ms
    f.smp_rtt_ms = f.q_latest_rtt
    f.smp_srtt_ms = f.q_avg_rtt
    f.smp_min_rtt_ms = f.q_min_rtt
    f.smp_in_flight = f.q_in_flight
    f.smp_prior_inflight = f.q_prior_in_flight
    f.smp_total_acked = f.q_delivered
    return True


# --- losses ---------------------------------------------------------------------------------------------------------


def lost_threshold(f):
    """RFC 9002 §6.1.2: 9/8 of the larger of latest and average RTT, ms."""
    threshold = max(f.q_latest_rtt, f.q_avg_rtt)
    return max(threshold + (threshold >> 3), 1)


def skip_known(w, f):
    """Move the head of the sent list past what was acknowledged or declared lost."""
    while f.tx_head < f.tx_next and segments(f.seg)[f.tx_head & f.mask].marks & (SACKED | LOST):
        f.tx_head += 1


def q_detect_lost(w, f, acked_oldest_ms, acked_newest_ms, now):
    """Packets 3 behind the largest acknowledged, or older than 9/8 RTT, are lost [RFC9002] §6.1, §7.6."""
    now_ms = now // MS
    threshold = lost_threshold(f)
    count = 0
    oldest_ms, newest_ms = NEVER, -1
    f.smp_loss = 0
    skip_known(w, f)
    while f.tx_head < f.tx_next and f.tx_head <= f.q_largest_ack:
        p = segments(f.seg)[f.tx_head & f.mask]
        sent_ms = p.sent_ns // MS
        if sent_ms + threshold > now_ms and f.q_largest_ack - f.tx_head < PACKET_THRESHOLD:
            break
        if sent_ms > f.q_first_rtt_ms:
            oldest_ms = min(oldest_ms, sent_ms)
            newest_ms = max(newest_ms, sent_ms)
            count += 1
        declare_lost(w, f, f.tx_head, now)
        skip_known(w, f)
    acked = acked_newest_ms >= 0
    if acked and count >= 2 and (acked_newest_ms < oldest_ms or acked_oldest_ms > newest_ms):
        limit = PERSISTENT_CONGESTION * (f.q_avg_rtt + max(4 * f.q_rttvar, 1) + MAX_ACK_DELAY_MS)
        if newest_ms - oldest_ms > limit:
            q_call(w, f, RESET_CWND, 0, now)
    set_lost_timer(w, f, now_ms)


def declare_lost(w, f, order, now):
    """Declare one packet lost: the controller is called before it leaves in_flight; its data are queued again."""
    p = segments(f.seg)[order & f.mask]
    f.q_loss_ms = now // MS
    f.smp_loss += f.mss
    f.smp_total_loss += f.mss
    f.q_lost += f.mss
    f.lost += 1
    q_call(w, f, ON_LOST, p.sent_ns // MS, now)
    p.marks |= LOST
    f.q_in_flight -= f.mss
    piece = transmissions(f.tx)[order & f.mask].seg
    if piece >= 0:
        words(f.resend)[f.resend_tail & f.mask] = piece
        f.resend_tail += 1


def set_lost_timer(w, f, now_ms):
    """RFC 9002 appendix A.8: the loss timer if something waits for it, else the probe timeout."""
    skip_known(w, f)
    f.probe_at = NEVER
    if f.tx_head >= f.tx_next:
        return
    if f.tx_head <= f.q_largest_ack:
        wait = segments(f.seg)[f.tx_head & f.mask].sent_ns // MS + lost_threshold(f)
        late = f.q_largest_ack - f.tx_head >= PACKET_THRESHOLD
        f.probe_kind = 0
        f.probe_at = now_ms * MS if late else max(wait, now_ms) * MS
        return
    duration = (f.q_avg_rtt + max(4 * f.q_rttvar, 1)) << f.pto_count
    if f.q_in_flight > 0:
        duration += MAX_ACK_DELAY_MS << f.pto_count
    f.probe_kind = 1
    f.probe_at = max(segments(f.seg)[(f.tx_next - 1) & f.mask].sent_ns // MS + duration, now_ms) * MS


def q_probe(w, f, now):
    """The loss timer: time-threshold losses, or a probe timeout's two packets."""
    f.probe_at = NEVER
    if f.probe_kind == 0:
        q_detect_lost(w, f, NEVER, -1, now)
        return
    f.n_rto += 1
    f.pto_count = min(f.pto_count + 1, 10)
    for _ in range(2):
        q_send(w, f, -1, now)
    set_lost_timer(w, f, now // MS)
