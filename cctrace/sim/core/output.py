"""What a simulated TCP sender sends and when: retransmissions, new data, bursts, pacing, the retransmission timer."""

from cctrace.cc.linux import CA_CWR, CA_RECOVERY, EVENT_TX_START
from cctrace.lang.memory import words
from cctrace.sim.core.bottleneck import forward
from cctrace.sim.core.calls import CWND_EVENT, call, in_flight, mstamp
from cctrace.sim.core.receive_window import window_left
from cctrace.sim.core.rtx_timer import arm, current_rto, rearm_rto, schedule_loss_probe
from cctrace.sim.core.samples import rate_skb_sent
from cctrace.sim.core.structs import (
    ECT,
    EVER_RETRANS,
    LINUX,
    LOST,
    NEVER,
    PROBE_TIMER,
    PUSHED,
    REDUCED,
    REORDERING_TIMER,
    RETRANS,
    RTO_TIMER,
    TAP_SENT,
    segments,
)
from cctrace.sim.core.tap import tap
from cctrace.sim.core.view import CWND, PACING
from cctrace.tcp.pacing import (
    GSO_MAX_SIZE,
    MIN_TSO_SEGS,
    SK_GSO_MAX_SIZE,
    bbr_min_tso_segs,
    near_peer_bytes,
    next_departure,
    tso_autosize,
)
from cctrace.tcp.window import note_usage

SOON_NS = 1_000_000  # of the last write and of the next ACK, for a burst to wait
WRITTEN_SEGMENTS = 45  # of a buffer as a large write fills it (tcp_xmit_size_goal)
MOST_BURST = 127  # segments of a burst (bbr_tso_segs_goal), which matters with segments below 514 bytes


def push(w, f, now):
    """tcp_tsq_write: retransmissions first, then new data."""
    sent = retransmit(w, f, now)
    push_new(w, f, 0 if f.profile == LINUX else sent, now)


def retransmit(w, f, now):
    """tcp_xmit_retransmit_queue: what is lost, as far as window and pacing allow; returns how many segments went."""
    sent = 0
    while f.lost_out > f.retrans_out and in_flight(f) < words(f.state)[CWND]:
        if must_wait(w, f, now):
            break
        index = next_lost(w, f)
        if index < 0:
            break
        head = index == f.una
        prior = f.wstamp_ns
        transmit(w, f, index, 0, now)
        update_pacing(w, f, 1, prior, now)
        sent += 1
        if f.profile == LINUX and head and (f.timer != REORDERING_TIMER or f.rto_at == NEVER):
            arm(f, RTO_TIMER, current_rto(f), now)
    return sent


def push_new(w, f, sent, now):
    """tcp_write_xmit: new data, as far as window, pacing and application allow."""
    limited = False
    while f.nxt < f.app_end and window_left(f) > 0:
        quota = words(f.state)[CWND] - in_flight(f)
        if quota <= 0 or must_wait(w, f, now):
            break
        longest = tso_segments(w, f)
        if f.profile == LINUX:
            if defers(w, f, min(quota, window_left(f)), longest, now):
                limited = quota < window_left(f)
                break
            quota = min(quota, max(words(f.state)[CWND] >> 1, 1))  # tcp_cwnd_test: at least two bursts in flight
        burst = min(min(longest, quota), min(f.app_end - f.nxt, window_left(f)))
        prior = f.wstamp_ns
        f.burst_id += 1
        for _ in range(burst - 1):
            transmit(w, f, f.nxt, 0, now)
        transmit(w, f, f.nxt, PUSHED if burst > 1 else 0, now)
        if f.profile == LINUX:
            share_in_flight(f, burst)
        update_pacing(w, f, burst, prior, now)
        sent += burst
    limited = limited or in_flight(f) >= words(f.state)[CWND]
    if f.profile == LINUX:
        if sent > 0 or limited:
            validate_cwnd(f, limited)
        if sent > 0:
            schedule_loss_probe(f, False, now)
    elif sent > 0:
        if not limited:
            f.is_cwnd_limited = 0
        elif f.nxt - f.una > f.max_packets_out or f.una >= f.max_packets_seq:
            f.is_cwnd_limited = 1
            f.max_packets_out = f.nxt - f.una
            f.max_packets_seq = f.nxt


def share_in_flight(f, burst):
    """tcp_set_tx_in_flight [BBRv2alpha]: a burst is one skb, and all of it counts for each of its segments."""
    for k in range(1, burst):
        segments(f.seg)[(f.nxt - 1 - k) & f.mask].tx_in_flight = in_flight(f)


def defers(w, f, room, longest, now):
    """tcp_tso_should_defer: whether a burst shorter than it might be waits for the next ACK to lengthen it."""
    if room >= longest or f.app_end - f.nxt == 1 or f.una == f.nxt or f.ca_state >= CA_RECOVERY:
        return False
    if room >= WRITTEN_SEGMENTS - f.nxt % WRITTEN_SEGMENTS:
        return False  # the rest of the buffer next to be sent
    if now - f.wstamp_ns > SOON_NS or 3 * room >= min(words(f.state)[CWND], window_left(f) + f.nxt - f.una):
        return False
    srtt_ns = f.srtt * 125
    next_ack = segments(f.seg)[f.una & f.mask].sent_ns + srtt_ns
    return next_ack - now <= min(srtt_ns >> 1, SOON_NS)


def validate_cwnd(f, limited):
    """tcp_cwnd_validate: that the window limited a flow holds until what was then sent is acknowledged."""
    flight = f.nxt - f.una
    if note_usage(limited, f.una >= f.max_packets_seq, f.is_cwnd_limited != 0, flight, f.max_packets_out):
        f.is_cwnd_limited = limited
        f.max_packets_out = flight
        f.max_packets_seq = f.nxt


def next_lost(w, f):
    """Return the first segment that is lost and not retransmitted, -1 if there is none."""
    while f.retrans_scan < f.nxt:
        marks = segments(f.seg)[f.retrans_scan & f.mask].marks
        if marks & LOST and not marks & RETRANS:
            return f.retrans_scan
        f.retrans_scan += 1
    return -1


def transmit(w, f, index, marks, now, probe=False):
    """__tcp_transmit_skb for one segment: stamps, rate-sample marks, pacing clock, then the path.

    A tail-loss probe is not among the retransmissions that a D-SACK or an ACK must answer (tcp_send_loss_probe).
    """
    f.wstamp_ns = max(f.wstamp_ns, now)
    if in_flight(f) == 0:
        call(w, f, CWND_EVENT, EVENT_TX_START, now)
    seg = segments(f.seg)[index & f.mask]
    order = f.tx_next
    f.tx_next += 1
    words(f.tx_seg)[order & f.mask] = index
    words(f.tx_marks)[order & f.mask] = marks
    if f.ecn > 0:
        set_ecn(f, order, index)
    if index < f.nxt:
        seg.marks |= EVER_RETRANS
        f.n_retx += 1
        if not probe:
            note_retransmission(f, seg)
    else:
        seg.marks = 0
    seg.order = order
    seg.sent_ns = f.wstamp_ns
    words(f.tx_ns)[order & f.mask] = f.wstamp_ns
    words(f.tx_echo)[order & f.mask] = f.heard_ms
    rate_skb_sent(w, f, seg, mstamp(f.wstamp_ns))
    if index == f.nxt:
        f.nxt += 1
        if f.rto_at == NEVER or f.timer == PROBE_TIMER:
            rearm_rto(f, now)
    seg.tx_in_flight = in_flight(f)
    if f.ca_state == CA_RECOVERY or f.ca_state == CA_CWR:
        f.prr_out += 1
    f.lsndtime_us = mstamp(now)
    f.data_segs_out += 1
    f.n_sent += 1
    tap(f, now, TAP_SENT, words(f.tx_marks)[order & f.mask], index)
    forward(w, f, order, now)


def note_retransmission(f, seg):
    """tcp_retransmit_skb."""
    f.retrans_out += 0 if seg.marks & RETRANS else 1  # after an undo, a timeout may find it still out
    seg.marks |= RETRANS
    f.undo_retrans = max(f.undo_retrans, 0) + 1
    if f.retrans_stamp == 0:
        f.retrans_stamp = f.wstamp_ns // 1_000_000


def set_ecn(f, order, index):
    """tcp_ecn_send: only new data is ECN-capable, and tells the receiver of a reduction."""
    if index == f.nxt:
        words(f.tx_marks)[order & f.mask] |= ECT | (REDUCED if f.queue_cwr else 0)
        f.queue_cwr = 0


def update_pacing(w, f, segments, prior_wstamp, now):
    """tcp_update_skb_after_send."""
    if f.paced == 1:
        length = segments * (f.mss + f.pace_overhead)
        f.wstamp_ns = next_departure(prior_wstamp, now, length, words(f.state)[PACING], f.data_segs_out)


def tso_segments(w, f):
    """tcp_tso_segs, or bbr_tso_segs of BBRv2 and v3, with which alone the reference stack's bursts go by min_rtt."""
    rate = words(f.state)[PACING]
    if f.paced == 0 and f.profile != LINUX:
        return 1
    if rate <= 0:
        return 1 if f.paced == 1 else SK_GSO_MAX_SIZE // f.mss  # none known yet is no limit
    more = 0
    if f.min_rtt_slot > 0:
        more = near_peer_bytes(GSO_MAX_SIZE, words(f.state)[f.min_rtt_slot])
    elif f.profile == LINUX:
        more = near_peer_bytes(SK_GSO_MAX_SIZE, f.min_rtt)
    least = bbr_min_tso_segs(rate) if f.paced == 1 and f.slow_burst == 1 else MIN_TSO_SEGS
    return min(tso_autosize(rate, more, f.mss, least), MOST_BURST)


def must_wait(w, f, now):
    """tcp_pacing_check: arm the pacing timer if the next departure is in the future."""
    if f.paced == 0 or f.wstamp_ns <= now:
        return False
    f.pace_at = f.wstamp_ns
    return True
