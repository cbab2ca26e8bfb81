"""Sends of a simulated TCP sender: retransmissions, new data, bursts, pacing, the retransmission timer."""

from cctrace.cc.linux import CA_CWR, CA_RECOVERY, EVENT_TX_START
from cctrace.lang.memory import words
from cctrace.schema import CWND_EVENT
from cctrace.sim.core.bottleneck import step_up
from cctrace.sim.core.calls import call, in_flight, mstamp
from cctrace.sim.core.entry import forward
from cctrace.sim.core.fq import hand_over, has_small_queues, pacing_rate, throttled
from cctrace.sim.core.positions import length, note_length
from cctrace.sim.core.receive_window import window_bytes, window_left
from cctrace.sim.core.rings import make_room
from cctrace.sim.core.rtx_timer import arm, current_rto, probes, rearm_rto, schedule_loss_probe
from cctrace.sim.core.samples import rate_skb_sent
from cctrace.sim.core.skbs import fragment, join_skbs, share_in_flight, skb_of
from cctrace.sim.core.structs import (
    ECHO,
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
    SENDS,
    SKB_END,
    SKB_PUSHED,
    segments,
    transmissions,
)
from cctrace.sim.core.tap import tap_sent
from cctrace.sim.core.view import CWND
from cctrace.sim.core.write_queue import check_space, cut_head, end_skb, grow_skb, note_sent, pushes, unsent
from cctrace.tcp import pacing
from cctrace.tcp.window import note_usage

MAX_BURST = 127  # segments of a burst (bbr_tso_segs_goal), which matters with segments below 514 bytes


def push(w, f, now):
    """tcp_tsq_write: retransmissions first, then new data."""
    sent = retransmit(w, f, now)
    push_new(w, f, 0 if f.profile == LINUX else sent, now)


def retransmit(w, f, now):
    """tcp_xmit_retransmit_queue: send lost segments as far as window and pacing allow; return their number."""
    sent = 0
    if f.lost_out <= f.retrans_out:
        return sent
    longest = tso_segments(w, f) if f.profile == LINUX else 1
    while f.lost_out > f.retrans_out and in_flight(f) < words(f.state)[CWND]:
        if must_wait(w, f, now):
            break
        index = next_lost(w, f)
        if index < 0:
            break
        head = index == f.una
        prior = f.wstamp_ns
        burst = lost_together(f, index, min(longest, words(f.state)[CWND] - in_flight(f)))
        if has_small_queues(w, f) and throttled(f, length(f, index, skb_of(f, index)[1] - index), 1):
            break  # by the whole skb: tcp_fragment cuts the burst from it later
        retransmit_skb(w, f, index, burst, now)
        f.retrans_again -= max(min(burst, f.retrans_seen - index), 0)
        update_pacing(w, f, burst, length(f, index, burst), prior, now)
        sent += burst
        if f.profile == LINUX and head and (f.timer != REORDERING_TIMER or f.rto_at == NEVER):
            arm(f, RTO_TIMER, current_rto(f), now)
    return sent


def lost_together(f, index, most):
    """How many lost segments from `index` on belong to one skb, which is retransmitted as one: at most `most`."""
    count = 1
    while count < most and not segments(f.seg)[(index + count - 1) & f.mask].marks & SKB_END:
        if segments(f.seg)[(index + count) & f.mask].marks & (LOST | RETRANS) != LOST:
            break
        count += 1
    return count


def retransmit_skb(w, f, index, burst, now, probe=False):
    """__tcp_retransmit_skb: `burst` segments; the last carries PSH if there are several, or as its skb does."""
    if f.profile == LINUX:
        f.burst_id += 1
    for k in range(index, index + burst - 1):
        transmit(w, f, k, 0, now)
    last = index + burst - 1
    pushed = segments(f.seg)[last & f.mask].marks & SKB_PUSHED or (burst > 1 and f.profile == LINUX)
    transmit(w, f, last, PUSHED if pushed else 0, now, probe)
    if f.profile == LINUX:
        join_skbs(f, index, last + 1, in_flight(f))
        end_skb(f, last)
    if has_small_queues(w, f):
        hand_over(w, f, burst, now)


def transmit_new(w, f, burst, size, now):
    """Send a super-packet of new data, an skb of Linux's.

    Its last segment carries PSH; sent again alone, only if its skb does.
    """
    pushed = f.profile == LINUX and pushes(f, size)
    f.burst_id += 1
    ends = f.nxt + burst
    while f.nxt < ends - 1:
        transmit(w, f, f.nxt, 0, now)
    transmit(w, f, f.nxt, PUSHED if pushed or burst > 1 else 0, now, False, burst * f.mss - size)
    if pushed:
        segments(f.seg)[(f.nxt - 1) & f.mask].marks |= SKB_PUSHED
    if f.profile == LINUX:
        share_in_flight(f, burst, in_flight(f))
        note_sent(f)
        if has_small_queues(w, f):
            hand_over(w, f, burst, now)
        check_space(f, now)


def push_new(w, f, sent, now, once=False, nagle=True, probe=False):
    """tcp_write_xmit: new data, as far as window, pacing and application allow; `once` sends one burst
    unconditionally, and a `probe` a segment beyond the window (`push_one`).

    Without `nagle` a partial segment is sent even if another is outstanding (TCP_NAGLE_PUSH).
    """
    limited = False
    while f.nxt < f.write_seq:
        if f.profile == LINUX and must_wait(w, f, now):  # whatever the windows say: its timer is set
            break
        quota = max(words(f.state)[CWND] - in_flight(f), 1 if probe else 0)
        if quota == 0:
            break
        if f.profile != LINUX and (window_bytes(f) < f.mss or must_wait(w, f, now)):
            break
        longest = tso_segments(w, f)
        if f.profile == LINUX:
            size, limited = next_bytes(w, f, quota, longest, once, nagle, now)
            if size == 0:
                break
            burst = (size + f.mss - 1) // f.mss
        else:
            burst = window_left(f, min(min(longest, quota), f.write_seq - f.nxt))
            size = burst * f.mss
        prior = f.wstamp_ns
        transmit_new(w, f, burst, size, now)
        update_pacing(w, f, burst, size, prior, now)
        sent += burst
        if once:
            break
    limited = limited or in_flight(f) >= words(f.state)[CWND]
    if f.profile == LINUX:
        if sent > 0 or limited:
            validate_cwnd(f, limited)
        if sent > 0 and not probe:
            schedule_loss_probe(f, False, now)
    elif sent > 0:
        note_limit(f, limited)


def next_bytes(w, f, quota, longest, once, nagle, now):
    """Return how much of the next skb, bytes, Linux sends now, 0 if it waits; and whether it waits for cwnd to grow."""
    most = min(longest, quota)
    held = grow_skb(f, most * f.mss)
    if window_bytes(f) < min(held, f.mss):  # tcp_snd_wnd_test: one segment of the skb
        return 0, False
    if not once and defers(w, f, quota, longest, held, now):
        return 0, quota * f.mss < min(window_bytes(f), held + 1)
    most = min(most, max(words(f.state)[CWND] >> 1, 1))  # tcp_cwnd_test: at least two bursts in flight
    size = split_point(f, held, most, nagle and not once)
    if size > 0 and has_small_queues(w, f) and throttled(f, size, 0):
        cut_head(f, size)
        return 0, False
    return size, False


def push_one(w, f, now):
    """tcp_push_one: start sending what was just written."""
    push_new(w, f, 0, now, True)


def split_point(f, held, most, nagle):
    """tcp_mss_split_point, tcp_nagle_check: how much of an skb of `held` bytes is sent, in at most so many segments.

    Bytes beyond a multiple of the MSS, left by the end of a write or the window's edge, wait with `nagle` while
    such a segment is outstanding [Minshall].
    """
    size, window = min(held, most * f.mss), window_bytes(f)
    last = held >= unsent(f)
    if not last and size <= window and (held <= f.mss or most * f.mss <= window):
        return size
    size = min(size, window)
    return size - size % f.mss if nagle and f.small_sent > f.una else size


def defers(w, f, quota, longest, held, now):
    """tcp_tso_should_defer: whether an skb of `held` bytes waits for the next ACK, for a longer burst."""
    window = window_bytes(f)
    room = min(quota * f.mss, window)
    if held <= f.mss or f.una == f.nxt or f.ca_state >= CA_RECOVERY:
        return False
    if room >= held and f.wq_tail - f.wq_head > 1:
        return False  # all of it is sent, and nothing will be added
    third = min(words(f.state)[CWND] * f.mss, window + length(f, f.una, f.nxt - f.una)) // 3
    age_ns = now - segments(f.seg)[f.una & f.mask].sent_ns
    return pacing.waits_for_ack(room, longest * f.mss, third, now - f.wstamp_ns, age_ns, f.srtt * 125)


def validate_cwnd(f, limited):
    """tcp_cwnd_validate: that the window limited a flow holds until what was then sent is acknowledged."""
    flight = f.nxt - f.una
    if note_usage(limited, f.una >= f.max_packets_seq, f.is_cwnd_limited != 0, flight, f.max_packets_out):
        f.is_cwnd_limited = limited
        f.max_packets_out = flight
        f.max_packets_seq = f.nxt


def note_limit(f, limited):
    """tcp_cwnd_validate of the golden vectors' stack, after a send: one that cwnd did not limit ends what held."""
    if not limited:
        f.is_cwnd_limited = 0
    elif f.nxt - f.una > f.max_packets_out or f.una >= f.max_packets_seq:
        f.is_cwnd_limited = 1
        f.max_packets_out = f.nxt - f.una
        f.max_packets_seq = f.nxt


def next_lost(w, f):
    """Return the first segment that is lost and not retransmitted, -1 if there is none; see `reduction.look_again`."""
    if f.retrans_again == 0:
        f.retrans_scan = max(f.retrans_scan, f.retrans_seen)
    while f.retrans_scan < f.nxt:
        marks = segments(f.seg)[f.retrans_scan & f.mask].marks
        if marks & LOST and not marks & RETRANS:
            return f.retrans_scan
        f.retrans_scan += 1
    return -1


def transmit(w, f, index, marks, now, probe=False, lacks=0):
    """__tcp_transmit_skb for one segment: stamps, rate-sample marks, pacing clock, then the path.

    New data are short of a full segment by `lacks` bytes. A tail-loss probe is not among the retransmissions that a
    D-SACK or an ACK must answer (tcp_send_loss_probe).
    """
    f.wstamp_ns = max(f.wstamp_ns, now)
    if in_flight(f) == 0:
        call(w, f, CWND_EVENT, EVENT_TX_START, now)
    if f.tx_next >= f.tx_full:
        make_room(w, f)
    seg = segments(f.seg)[index & f.mask]
    order = f.tx_next
    f.tx_next += 1
    transmissions(f.tx)[order & f.mask].seg = index
    transmissions(f.tx)[order & f.mask].marks = marks | f.heard_ms << ECHO
    if f.ecn > 0:
        set_ecn(f, order, index)
    if index < f.nxt:
        note_retransmission(f, seg, index, probe)
    else:
        seg.marks = 0
    seg.order = order
    seg.skb_end = index + 1
    seg.sent_ns = f.wstamp_ns
    transmissions(f.tx)[order & f.mask].ns = f.wstamp_ns
    rate_skb_sent(w, f, seg, mstamp(f.wstamp_ns))
    if index == f.nxt:
        note_length(f, lacks)
        f.nxt += 1
        if (f.rto_at == NEVER or f.timer == PROBE_TIMER) and not probes(f):  # else `push_new` sets the timer
            rearm_rto(f, now)
    if f.profile != LINUX:  # else its super-packet gets it, once all of it was sent
        seg.tx_in_flight = in_flight(f)
    if f.ca_state == CA_RECOVERY or f.ca_state == CA_CWR:
        f.prr_out += 1
    f.lsndtime_us = f.now_us
    f.data_segs_out += 1
    f.n_sent += 1
    if f.fq == 0:
        tap_sent(f, now, order)
        forward(w, f, order, now)


def note_retransmission(f, seg, index, probe):
    """tcp_retransmit_skb: a segment sent again is a super-packet of its own until it is joined with others."""
    fragment(f, index)
    if index + 1 < f.nxt:
        fragment(f, index + 1)
    seg.marks |= EVER_RETRANS
    f.n_retx += 1
    if probe:
        return
    f.retrans_out += 0 if seg.marks & RETRANS else 1  # after an undo, a timeout may find it still outstanding
    seg.marks |= RETRANS
    f.undo_retrans = max(f.undo_retrans, 0) + 1
    if f.retrans_stamp == 0:
        f.retrans_stamp = f.wstamp_ns // 1_000_000


def set_ecn(f, order, index):
    """tcp_ecn_send: new data is ECN-capable, and tells of a reduction; other data if the controller asks."""
    if index == f.nxt:
        transmissions(f.tx)[order & f.mask].marks |= f.ect_marks | (REDUCED if f.queue_cwr == 1 else 0)
        f.queue_cwr = 0
    elif f.ect_always == 1:
        transmissions(f.tx)[order & f.mask].marks |= f.ect_marks


def update_pacing(w, f, segments, size, prior_wstamp, now):
    """tcp_update_skb_after_send."""
    if f.paced == 1:
        size += segments * f.pace_overhead
        f.wstamp_ns = pacing.next_departure(prior_wstamp, now, size, pacing_rate(f), f.data_segs_out)


def tso_segments(w, f):
    """tcp_tso_segs, or bbr_tso_segs of BBRv2 and v3, with which alone the reference stack's bursts go by min_rtt.

    A controller may say itself how long a burst is (prague_tso_segs).
    """
    if f.burst_slot > 0:
        return min(words(f.state)[f.burst_slot], MAX_BURST)
    rate = pacing_rate(f)
    if f.paced == 0 and f.profile != LINUX:
        return 1
    if rate <= 0:
        return 1 if f.paced == 1 else pacing.SK_GSO_MAX_SIZE // f.mss  # none known yet is no limit
    more = 0
    if f.min_rtt_slot > 0:
        more = pacing.near_peer_bytes(f.gso_max, words(f.state)[f.min_rtt_slot])
    elif f.profile == LINUX:
        more = pacing.near_peer_bytes(pacing.SK_GSO_MAX_SIZE, f.min_rtt)
    least = pacing.bbr_min_tso_segs(rate) if f.paced == 1 and f.slow_burst == 1 else pacing.MIN_TSO_SEGS
    return min(pacing.tso_autosize(rate, more, f.mss, least), MAX_BURST)


def must_wait(w, f, now):
    """tcp_pacing_check: arm the pacing timer if the next departure is in the future."""
    if f.paced == 0 or f.fq == 1 or f.wstamp_ns <= now:
        return False
    at = step_up(w, f.wstamp_ns, SENDS)
    f.pace_at = at if at > now else f.wstamp_ns  # a recorded instant a step too early would be waited for for ever
    return True
