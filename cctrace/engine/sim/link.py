"""The path: random loss, bottleneck queue, jitter, and the receiver with its ACK policy.

The bottleneck is a FIFO, so a packet's departure is known when it arrives: ``free_at`` is when the server finishes what
is queued, and the ring ``q_ns``/``q_bytes`` holds the departures that have not happened yet (packet in service
included), which is all that drop-tail needs to know.
"""

import math

import numpy as np

from cctrace.engine.sim.chance import JITTER_STREAM, LOSS_STREAM, gamma, normal, uniform
from cctrace.engine.sim.layout import (
    EMPIRICAL,
    GAMMA,
    LINUX,
    LOGNORMAL,
    NEVER,
    NO_JITTER,
    PER_BURST,
    PER_SLOT,
    QUIC,
)
from cctrace.engine.sim.memory import reals, words
from cctrace.engine.sim.tally import count


def service_end(w, start_ns, size):
    """Return when `size` bytes put into service at `start_ns` have left, on a piecewise constant rate."""
    left = float(size)
    now = start_ns
    last = w.steps - 1
    while w.step < last and words(w.steps_ns)[w.step + 1] <= now:
        w.step += 1
    step = w.step
    while True:
        rate = reals(w.steps_Bps)[step]
        end = words(w.steps_ns)[step + 1] if step < last else NEVER
        if rate > 0.0:
            done = now + np.int64(left * 1e9 / rate)
            if done <= end:
                return done
            left -= rate * (end - now) / 1e9
        elif end == NEVER:
            return NEVER
        now = end
        step += 1


def queue_now(w, now):
    """Forget what has departed by `now`; return the bytes that wait or are in service."""
    while w.q_head != w.q_tail and words(w.q_ns)[w.q_head] <= now:
        w.queue_bytes -= words(w.q_bytes)[w.q_head]
        w.q_head = (w.q_head + 1) & w.q_mask
    return w.queue_bytes


def random_loss(w):
    """Gilbert-Elliott loss: p to the bad state, r back, loss 1-h there, 1-k in the good one; Bernoulli with h = k."""
    if w.loss_p == 0.0 and w.loss_k == 1.0:
        return False
    if w.loss_p > 0.0:
        u = uniform(w, LOSS_STREAM)
        if w.loss_state == 0 and u < w.loss_p:
            w.loss_state = 1
        elif w.loss_state == 1 and u < w.loss_r:
            w.loss_state = 0
    keep = w.loss_h if w.loss_state == 1 else w.loss_k
    return uniform(w, LOSS_STREAM) >= keep


def codel_drops(w, dequeue_ns, sojourn):
    """CoDel's decision on the packet that leaves the queue at `dequeue_ns` after waiting `sojourn` [RFC8289] §5."""
    if sojourn < w.aqm_target_ns:
        w.codel_first_above = 0
        w.codel_dropping = 0
        return False
    if w.codel_first_above == 0:
        w.codel_first_above = dequeue_ns + w.aqm_interval_ns
        return False
    if w.codel_dropping == 1:
        if dequeue_ns < w.codel_drop_next:
            return False
        w.codel_count += 1
        w.codel_drop_next += np.int64(w.aqm_interval_ns / np.sqrt(w.codel_count))
        return True
    if dequeue_ns < w.codel_first_above:
        return False
    w.codel_dropping = 1
    delta = w.codel_count - w.codel_last_count
    recent = dequeue_ns - w.codel_drop_next < 16 * w.aqm_interval_ns
    w.codel_count = delta if recent and delta > 1 else 1
    w.codel_last_count = w.codel_count
    w.codel_drop_next = dequeue_ns + np.int64(w.aqm_interval_ns / np.sqrt(w.codel_count))
    return True


def draw_jitter(w, f, now):
    """Return the jitter (ns) of a packet leaving the bottleneck at `now`; one draw per packet, burst or time slot."""
    if w.jitter_kind == NO_JITTER:
        return 0
    key = 0
    if w.jitter_per == PER_BURST:
        key = f.burst_id + 1
    elif w.jitter_per == PER_SLOT:
        key = now // w.jitter_slot_ns + 1
    if key == 0 or key != f.jitter_id:
        f.jitter_id = key
        f.jitter_ns = np.int64(jitter_value(w, f))
    return f.jitter_ns


def jitter_value(w, f):
    """One draw (ns) of the jitter; below its floor it is drawn again. Successive normal numbers correlate by rho."""
    if w.jitter_kind == EMPIRICAL:
        return reals(w.jitter_table)[np.int64(uniform(w, JITTER_STREAM) * w.jitter_samples)]
    if w.jitter_kind == GAMMA:
        return gamma(w, JITTER_STREAM, w.jitter_a) * w.jitter_b + w.jitter_floor
    while True:
        z = normal(w, JITTER_STREAM)
        if w.jitter_rho > 0.0:
            z = w.jitter_rho * f.jitter_z + math.sqrt(1.0 - w.jitter_rho * w.jitter_rho) * z
            f.jitter_z = z
        value = w.jitter_a + w.jitter_b * z
        if w.jitter_kind == LOGNORMAL:
            return math.exp(value) + w.jitter_floor
        if value >= w.jitter_floor:
            return value


def forward(w, f, order, now):
    """Put transmission `order` on the path: lost, queued, delayed."""
    if random_loss(w):
        f.drops_random += 1
        return
    queued = queue_now(w, now)
    if w.police == 1:
        w.tokens = min(float(w.police_bucket), w.tokens + (now - w.police_at) / 1e9 * w.token_rate_Bps)
        w.police_at = now
        if w.tokens < f.wire_bytes:
            f.drops_queue += 1
            return
        w.tokens -= f.wire_bytes
    if queued + f.wire_bytes > w.buffer_bytes:
        f.drops_queue += 1
        return
    start = max(now, w.free_at)
    if w.aqm == 1 and codel_drops(w, start, start - now):
        f.drops_queue += 1
        return
    end = service_end(w, start, f.wire_bytes)
    if end == NEVER:
        f.drops_queue += 1
        return
    w.busy_ns += end - start
    w.free_at = end
    words(w.q_ns)[w.q_tail] = end
    words(w.q_bytes)[w.q_tail] = f.wire_bytes
    w.q_tail = (w.q_tail + 1) & w.q_mask
    w.queue_bytes += f.wire_bytes
    f.qdelay_sum_ns += start - now
    f.qdelay_count += 1
    count(f.queue_tally, start - now)
    arrive(w, f, order, end + f.fwd_ns + draw_jitter(w, f, end))


def arrive(w, f, order, at):
    """Insert an arrival at the receiver in time order (an order-preserving path delays it behind its predecessor)."""
    if f.reorder == 0:
        at = max(at, f.last_arrival)
    f.last_arrival = max(at, f.last_arrival)
    k = f.arr_tail
    while k > f.arr_head and words(f.arr_ns)[(k - 1) & f.mask] > at:
        words(f.arr_ns)[k & f.mask] = words(f.arr_ns)[(k - 1) & f.mask]
        words(f.arr_order)[k & f.mask] = words(f.arr_order)[(k - 1) & f.mask]
        k -= 1
    words(f.arr_ns)[k & f.mask] = at
    words(f.arr_order)[k & f.mask] = order
    f.arr_tail += 1


def receive(w, f, now):
    """The receiver takes the next arrival: log it, and acknowledge as its policy says [RFC5681] §4.2."""
    order = words(f.arr_order)[f.arr_head & f.mask]
    f.arr_head += 1
    words(f.log_order)[f.log_next & f.mask] = order
    f.log_next += 1
    segment = words(f.tx_seg)[order & f.mask]
    in_order = segment == f.rcv_nxt
    if f.profile == LINUX:
        note_stamp(f, order, segment)
    mark_received(w, f, segment)
    at_once = not in_order and f.profile != QUIC  # the QUIC receiver counts packets only
    if f.profile == LINUX:
        at_once = at_once or f.rcv_high > f.rcv_nxt
        f.unacked_data = 0 if at_once else f.unacked_data + 1
    elif not at_once:  # the golden vectors' receivers count these across the ACKs that disorder causes
        f.unacked_data += 1
    if f.ack_slot_ns > 0:  # aggregation: ACKs leave at the end of the slot
        if f.delack_at == NEVER:
            f.delack_at = (now // f.ack_slot_ns + 1) * f.ack_slot_ns
    elif f.unacked_data >= f.ack_every:
        f.unacked_data = 0
        send_ack(w, f, now)
    elif at_once:
        send_ack(w, f, now)
    elif f.delack_at == NEVER:
        f.delack_at = now + f.delack_ns


def note_stamp(f, order, segment):
    """The time stamp to echo is that of the segment that last moved the left edge [RFC7323] §4.3."""
    stamp_ms = words(f.tx_ns)[order & f.mask] // 1_000_000
    if segment <= f.rcv_acked and stamp_ms >= f.ts_recent_ms:
        f.ts_recent_ms = stamp_ms


def mark_received(w, f, segment):
    """Keep the receiver's window: a bit per segment beyond rcv_nxt."""
    if segment < f.rcv_nxt or words(f.got)[segment & f.mask] == 1:
        f.rcv_duplicate = segment + 1
        return
    f.goodput_segs += 1
    words(f.got)[segment & f.mask] = 1
    f.rcv_high = max(f.rcv_high, segment + 1)
    while words(f.got)[f.rcv_nxt & f.mask] == 1:
        words(f.got)[f.rcv_nxt & f.mask] = 0
        f.rcv_nxt += 1


def send_ack(w, f, now):
    """Acknowledge everything received so far; the ACK may be lost or delayed on its way."""
    f.delack_at = NEVER
    duplicate = f.rcv_duplicate
    f.rcv_duplicate = 0
    f.rcv_acked = f.rcv_nxt
    loss = w.ack_loss
    if loss > 0.0 and uniform(w, LOSS_STREAM) < loss:
        return
    at = max(now + f.rev_ns, f.last_ack)
    f.last_ack = at
    words(f.ack_ns)[f.ack_tail & f.mask] = at
    words(f.ack_log)[f.ack_tail & f.mask] = f.log_next
    words(f.ack_echo)[f.ack_tail & f.mask] = f.ts_recent_ms
    words(f.ack_dup)[f.ack_tail & f.mask] = duplicate
    f.ack_tail += 1
