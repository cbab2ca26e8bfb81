"""Active queue management: RED, PIE, CoDel and DualPI2 as in Linux, in its fixed point.

Function names are the kernel's ([Linux618] include/net/red.h, net/sched/sch_red.c, sch_pie.c, sch_dualpi2.c,
include/net/codel_impl.h). Differences: RED's average does not age while the queue is idle, as below a token bucket,
which never finds RED's queue empty; DualPI2's probability is a real number.
"""

import numpy as np

from cctrace.lang.memory import words
from cctrace.sim.core.bottleneck import drop, mark
from cctrace.sim.core.rng import PATH_STREAM, random_bits, uniform
from cctrace.sim.core.structs import CE, ECT_1, PIE, RED, STEPS, flows, lanes, transmissions

PIE_MAX_PROB = (1 << 56) - 1  # MAX_PROB, U64_MAX >> BITS_PER_BYTE
PIE_TICK_SHIFT = 6  # PSCHED_SHIFT: its times are in 64 ns
PIE_TICKS_PER_S = 15_625_000
PIE_BURST_TICKS = 150_000_000 >> PIE_TICK_SHIFT
PIE_LONG_TICKS = 250_000_000 >> PIE_TICK_SHIFT
CODEL_SHIFT = 16  # REC_INV_SQRT_BITS
CLASSIC, LOW_LATENCY = 0, 1  # DualPI2's queues


def drops_early(w, q, f, order):
    """Whether an arriving packet is dropped early; it is marked instead if that is allowed."""
    if q.kind == RED:
        return red_action(w, q) and not (q.ecn == 1 and mark(f, order))
    if q.kind == PIE and pie_drop_early(w, q):
        return not (q.ecn == 1 and q.pie_prob <= PIE_MAX_PROB // 10 and mark(f, order))
    return False


def update(w, q, now):
    """Update the probability as often as due by `now`."""
    while q.update_ns > 0 and q.next_update <= now:
        if q.kind == PIE:
            pie_calculate_probability(w, q)
        else:
            calculate_probability(w, q, q.next_update)
        q.next_update += q.update_ns


# --- RED ------------------------------------------------------------------------------------------------------------


def red_action(w, q):
    """red_calc_qavg and red_action: whether to mark or drop."""
    q.red_avg += w.queue_bytes - (q.red_avg >> q.red_wlog)
    if q.red_avg < q.red_min << q.red_wlog:
        q.red_count = -1
        return False
    if q.red_avg >= q.red_max << q.red_wlog:
        q.red_count = -1
        return True
    q.red_count += 1
    if q.red_count > 0 and ((q.red_avg - (q.red_min << q.red_wlog)) >> q.red_wlog) * q.red_count >= q.red_random:
        q.red_count = 0
        q.red_random = random_bits(w, PATH_STREAM, 32) // q.red_step
        return True
    if q.red_count == 0:
        q.red_random = random_bits(w, PATH_STREAM, 32) // q.red_step
    return False


# --- PIE ------------------------------------------------------------------------------------------------------------


def pie_drop_early(w, q):
    """Whether to mark or drop a packet that arrives."""
    if q.pie_burst > 0 or (q.pie_delay < q.pie_target // 2 and q.pie_prob < PIE_MAX_PROB // 5):
        return False
    if w.queue_bytes < 2 * q.mtu:
        return False
    q.pie_accumulated = 0 if q.pie_prob == 0 else q.pie_accumulated + q.pie_prob
    if q.pie_accumulated < PIE_MAX_PROB // 100 * 85:
        return False
    if q.pie_accumulated >= PIE_MAX_PROB // 2 * 17:
        return True
    if random_bits(w, PATH_STREAM, 56) < q.pie_prob:
        q.pie_accumulated = 0
        return True
    return False


def pie_process_dequeue(w, q, now):
    """Account for the delay of the packet that leaves the queue, which waited since `q.at`."""
    ticks = now >> PIE_TICK_SHIFT
    q.pie_delay = ticks - (q.at >> PIE_TICK_SHIFT) if w.queue_bytes > 0 else 0
    since = ticks - q.pie_left if q.pie_left > 0 else 0
    q.pie_left = ticks
    q.pie_burst = max(q.pie_burst - since, 0)


def pie_calculate_probability(w, q):
    """Every `update_ns`."""
    delay, before = q.pie_delay, q.pie_delay_before
    alpha = (q.pie_alpha * (PIE_MAX_PROB // PIE_TICKS_PER_S)) >> 4
    beta = (q.pie_beta * (PIE_MAX_PROB // PIE_TICKS_PER_S)) >> 4
    if q.pie_prob < PIE_MAX_PROB // 10:
        alpha >>= 1
        beta >>= 1
        power = 100
        while power <= 1_000_000 and q.pie_prob < PIE_MAX_PROB // power:
            alpha >>= 2
            beta >>= 2
            power *= 10
    delta = alpha * (delay - q.pie_target) + beta * (delay - before)
    if delta > PIE_MAX_PROB // 50 and q.pie_prob >= PIE_MAX_PROB // 10:
        delta = PIE_MAX_PROB // 100 * 2
    if delay > PIE_LONG_TICKS:
        delta += PIE_MAX_PROB // 50
    q.pie_prob = max(q.pie_prob + delta, 0)
    if delay == 0 and before == 0 and w.queue_bytes == 0:
        q.pie_prob -= q.pie_prob // 64
    if q.pie_prob == 0 and delay < q.pie_target // 2 and before < q.pie_target // 2:
        pie_vars_init(q)
    q.pie_delay_before = delay


def pie_vars_init(q):
    """Restart the measurement, and with it the burst allowance."""
    q.pie_burst = PIE_BURST_TICKS
    q.pie_left = q.pie_accumulated = 0


# --- CoDel ----------------------------------------------------------------------------------------------------------


def codel_should_drop(w, q, lane, now):
    """Whether the queue has been too long for an interval, when the packet that waited since `q.at` leaves it."""
    if now - q.at < q.target_ns or w.queue_bytes <= q.mtu:
        lane.first_above = 0
        return False
    if lane.first_above == 0:
        lane.first_above = now + q.interval_ns
        return False
    return now > lane.first_above


def codel_newton_step(lane):
    """codel_Newton_step: 1 / sqrt(count), in 16 bits."""
    value = (3 << 32) - lane.count * lane.inv_sqrt * lane.inv_sqrt
    if value <= 0:  # an overflow in the kernel, after it has dropped a batch of a full queue
        lane.inv_sqrt = np.int64(65_535.0 / np.sqrt(lane.count))
    else:
        lane.inv_sqrt = (((value >> 2) * lane.inv_sqrt) >> 15 >> CODEL_SHIFT) & 0xFFFF


def codel_control_law(q, lane, at):
    """When the next packet is to be marked or dropped."""
    return at + ((q.interval_ns * lane.inv_sqrt) >> CODEL_SHIFT)


def codel_dequeue(w, q, lane, now):
    """Take the next packet that CoDel leaves in a queue; return whether there is one."""
    there = pop(w, q, lane)
    if not there:
        lane.dropping = 0
        return False
    drop = codel_should_drop(w, q, lane, now)
    if lane.dropping == 1 and not drop:
        lane.dropping = 0
    elif lane.dropping == 1:
        while there and lane.dropping == 1 and now >= lane.drop_next:
            lane.count += 1
            codel_newton_step(lane)
            if marked(w, q):
                lane.drop_next = codel_control_law(q, lane, lane.drop_next)
                return True
            there = drop_and_pop(w, q, lane)
            if there and codel_should_drop(w, q, lane, now):
                lane.drop_next = codel_control_law(q, lane, lane.drop_next)
            else:
                lane.dropping = 0
    elif drop:
        if not marked(w, q):
            there = drop_and_pop(w, q, lane)
            if there:
                codel_should_drop(w, q, lane, now)
        begin_dropping(q, lane, now)
    if there and 0 < q.ce_threshold_ns < now - q.at:
        mark(flows(w.flows)[q.flow], q.order)
    return there


def begin_dropping(q, lane, now):
    """codel_dequeue: resume the previous drop rate if it is recent."""
    lane.dropping = 1
    delta = lane.count - lane.last_count
    if delta > 1 and now - lane.drop_next < 16 * q.interval_ns:
        lane.count = delta
        codel_newton_step(lane)
    else:
        lane.count = 1
        lane.inv_sqrt = 0xFFFF
    lane.last_count = lane.count
    lane.drop_next = codel_control_law(q, lane, now)


def marked(w, q):
    """Mark the current packet if allowed; return whether it is."""
    return q.ecn == 1 and mark(flows(w.flows)[q.flow], q.order)


def drop_and_pop(w, q, lane):
    """Drop the current packet and take the next; return whether there is one."""
    drop(flows(w.flows)[q.flow], q.order)
    return pop(w, q, lane)


def pop(w, q, lane):
    """Take the first packet of a queue (`q.flow`, `q.order`, `q.at`); return whether there is one."""
    if lane.head == lane.tail:
        return False
    place = lane.head & w.q_mask
    q.flow, q.order, q.at = words(lane.flow)[place], words(lane.order)[place], words(lane.at)[place]
    lane.head += 1
    size = flows(w.flows)[q.flow].wire_bytes
    lane.bytes -= size
    w.queue_bytes -= size
    q.packets -= 1
    return True


# --- DualPI2 --------------------------------------------------------------------------------------------------------


def dualpi2_skb_classify(w, q, f, order):
    """Classify a packet: ECT(1) and CE go to the low-latency queue; note whether its step applies: skb_apply_step."""
    tx = transmissions(f.tx)[order & f.mask]
    if tx.marks & (ECT_1 | CE) == 0:
        return CLASSIC
    low = lanes(w.lanes)[LOW_LATENCY]
    if low.tail - low.head >= q.min_qlen_step:
        tx.marks |= STEPS
    return LOW_LATENCY


def calculate_probability(w, q, now):
    """The base probability, from the longer of both queues' delays."""
    delay = 0
    for k in range(2):
        lane = lanes(w.lanes)[k]
        if lane.head < lane.tail:
            delay = max(delay, now - words(lane.at)[lane.head & w.q_mask])
    change = q.pi2_alpha_Hz * (delay - q.target_ns) / 1e9 + q.pi2_beta_Hz * (delay - q.pi2_delay) / 1e9
    q.pi2_delay = delay
    q.pi2_prob = min(max(q.pi2_prob + change, 0.0), 1.0)


def roll(w, probability):
    """dualpi2_roll."""
    return uniform(w, PATH_STREAM) < probability


def must_drop(w, q, which):
    """Mark the current packet, or return that it is to be dropped."""
    if w.queue_bytes < 2 * q.mtu:
        return False
    coupled = q.pi2_prob * q.coupling
    overload = coupled > 1.0
    f = flows(w.flows)[q.flow]
    if which == CLASSIC:
        return roll(w, q.pi2_prob) and roll(w, q.pi2_prob) and (overload or not mark(f, q.order))
    if overload:
        if roll(w, q.pi2_prob) and roll(w, q.pi2_prob):
            return True
        mark(f, q.order)
    elif roll(w, coupled):
        mark(f, q.order)
    return False


def dualpi2_dequeue(w, q, now):
    """dualpi2_qdisc_dequeue: low latency first, except for a tenth of the bytes; return whether there is a packet."""
    classic, low = lanes(w.lanes)[CLASSIC], lanes(w.lanes)[LOW_LATENCY]
    while True:
        waits, hurries = classic.head < classic.tail, low.head < low.tail
        which, credit = CLASSIC, 0
        if hurries and (not waits or q.credit <= 0):
            which = LOW_LATENCY
            pop(w, q, low)
            credit = q.classic_weight if waits else 0
        elif waits:
            pop(w, q, classic)
            credit = q.classic_weight - 100 if hurries else 0
        else:
            q.credit = q.first_credit
            return False
        f = flows(w.flows)[q.flow]
        if must_drop(w, q, which):
            drop(f, q.order)
            continue
        if now - q.at > q.step_ns and transmissions(f.tx)[q.order & f.mask].marks & STEPS > 0:
            mark(f, q.order)
        q.credit += credit * f.wire_bytes
        return True
