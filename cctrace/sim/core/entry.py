"""Entry of transmissions into the path: past losses and the policer, into the queue."""

from cctrace.lang.memory import words
from cctrace.sim.core import bottleneck
from cctrace.sim.core.arrivals import arrive
from cctrace.sim.core.delay import forward_delay, in_order, leg_delay, set_out
from cctrace.sim.core.managed import admit
from cctrace.sim.core.positions import packet_bytes
from cctrace.sim.core.structs import (
    ARRIVALS,
    GETS_LOST,
    LOST_BEHIND,
    LOST_IN_QUEUE,
    NEVER,
    NO_DATA,
    NOT_GIVEN,
    TBF,
    acks,
    coming,
    flows,
    legs,
    told,
    transmissions,
)


def forward(w, f, order, now):
    """Put transmission `order` on the path."""
    if f.before > 0:
        set_out(w, f, order, now)
    else:
        enter(w, f, order, now)


def reach_queue(w, f, now):
    """The next transmission that is on its way to the queue gets there."""
    order = coming(f.way)[f.way_head & f.mask].order
    f.way_head += 1
    enter(w, f, order, now)


def enter(w, f, order, now):
    """Transmission `order` reaches the bottleneck: lost, queued, shaped, marked, delayed."""
    if w.loss_behind == 0 and bottleneck.random_loss(w, now):
        f.drops_random += 1
        return
    if w.police == 1:
        w.tokens = min(float(w.police_bucket), w.tokens + (now - w.police_at) / 1e9 * w.token_rate_Bps)
        w.police_at = now
        if w.tokens < f.wire_bytes:
            f.drops_queue += 1
            return
        w.tokens -= f.wire_bytes
    given = bottleneck.given_loss(f, order) if f.losses_given == 1 else 0
    if given == LOST_BEHIND:
        transmissions(f.tx)[order & f.mask].marks |= GETS_LOST
    if w.aqm > 0:
        admit(w, f, order, given, now)
        return
    if w.shaping == TBF:
        bottleneck.ask_again(w, now)
    size = packet_bytes(f, order)
    full = is_full(w, now, size)
    if f.losses_given == 1:
        full = given == LOST_IN_QUEUE
    if full:
        f.drops_queue += 1
        return
    start = start_of(w, now, size)
    end = bottleneck.service_end(w, start, size)
    if end == NEVER:
        f.drops_queue += 1
        return
    if w.ecn_threshold > 0 and w.queue_bytes >= w.ecn_threshold:
        bottleneck.mark(f, order)
    bottleneck.serve(w, end, size, order * w.n + f.index)
    arrive(w, f, order, bottleneck.leave(w, f, order, now, start, end))


def is_full(w, now, size):
    """Whether the queue has no room for a packet now.

    What has left is taken off the queue's books when that matters: how much has at a time cannot be predicted, which
    costs a mispredicted branch a packet.
    """
    if w.only_room == 1 and w.queue_bytes + size <= w.buffer_bytes:
        return False
    return bottleneck.queue_now(w, now) + size > w.buffer_bytes or 0 < w.buffer_packets <= bottleneck.queued_packets(w)


def only_room_matters(w):
    """Whether the queue's books serve only to tell whether a packet has room."""
    for i in range(w.n):
        if flows(w.flows)[i].losses_given == 1:
            return False
    return w.one_host == 0 and w.ecn_threshold == 0 and w.buffer_packets == 0 and w.shaping != TBF


def start_of(w, now, size):
    """When a packet that comes to the queue now enters service; takes its tokens."""
    start = max(now, w.free_at)
    if w.shaping == TBF:
        start += bottleneck.shaper_wait(w, start, size)
    return start


def queue_ack(w, f, now):
    """The next ACK on its way back reaches the queue, if data and ACKs share it."""
    if w.shaping == TBF:
        bottleneck.ask_again(w, now)
    full = is_full(w, now, f.ack_bytes)
    end = NEVER
    if not full:
        start = start_of(w, now, f.ack_bytes)
        end = bottleneck.service_end(w, start, f.ack_bytes)
    if end == NEVER:
        drop_ack(f)
        return
    bottleneck.serve(w, end, f.ack_bytes, bottleneck.which_ack(f.ack_queued * w.n + f.index))
    acks(f.ack)[f.ack_queued & f.ack_mask].ns = end
    f.ack_queued += 1


def drop_ack(f):
    """Take the ACK that has just reached the queue out of the ring; those behind it move up."""
    for k in range(f.ack_queued, f.ack_tail - 1):
        into, following = acks(f.ack)[k & f.ack_mask], acks(f.ack)[(k + 1) & f.ack_mask]
        into.ns, into.log = following.ns, following.log
        here, there = told(f.told)[k & f.ack_mask], told(f.told)[(k + 1) & f.ack_mask]
        here.echo, here.stamp, here.dup = there.echo, there.stamp, there.dup
        here.ece, here.right, here.id = there.ece, there.right, there.id
    f.ack_tail -= 1


def forward_bare(w, f, options, now):
    """Put a packet without data on the path, which loses no handshake packets; return when it arrives.

    `options` is the number of bytes by which its options exceed those of a data segment.
    """
    if f.before > 0 or w.aqm > 0:  # too small to count where it is not known yet what else will be queued then
        if f.before > 0:
            now += leg_delay(w, f, legs(f.before)[0], now)
        leaves = max(now, w.free_at)
        return leaves + forward_delay(w, f, leaves)
    size = f.wire_bytes - f.mss + options
    start = start_of(w, now, size)
    end = bottleneck.service_end(w, start, size)
    if end == NEVER:
        return NEVER
    if not is_full(w, now, size):
        bottleneck.serve(w, end, size, NO_DATA)
    w.free_at = end
    left = bottleneck.step_up(w, end, NOT_GIVEN)
    leg = legs(f.behind)[0]
    if f.delays_given > 0:
        return in_order(leg, left + words(f.delays)[0 if options > 0 else 1])
    at = left + forward_delay(w, f, left)
    return bottleneck.reach(w, leg, at) if leg.apart_ns > 0 else bottleneck.step_up(w, at, ARRIVALS)
