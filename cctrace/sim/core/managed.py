"""A managed queue: packets wait until the link is free, and the next one is selected then.

A drop-tail queue needs none of this: its packets leave in order of arrival (`bottleneck.enter`). The packet on the
link counts as queued, as in a qdisc below a shaper (qdisc_peek_dequeued).
"""

from cctrace.lang.memory import words
from cctrace.sim.core import aqm, structs
from cctrace.sim.core.arrivals import arrive
from cctrace.sim.core.bottleneck import drop, htb_debt, leave, mark, service_end, shaper_wait

MAX_DROPPED = 64  # packets that fq_codel drops from a full queue at a time: drop_batch_size
UNLISTED, NEW, OLD = range(3)


def admit(w, f, order, given, now):
    """Transmission `order` arrives at the queue."""
    q = structs.aqms(w.aqm)[0]
    aqm.update(w, q, now)
    queued = w.queue_bytes
    full = overfull(w, q, f.wire_bytes) and q.kind != structs.FQ_CODEL
    if f.losses_given == 1:
        full = given == structs.LOST_IN_QUEUE
    # RED averages before it looks for room; PIE looks for room first.
    if (full and q.kind != structs.RED) or aqm.drops_early(w, q, f, order) or full:
        drop(f, order)
        q.pie_accumulated = 0
        return
    if w.ecn_threshold > 0 and queued >= w.ecn_threshold:
        mark(f, order)
    which = 0
    if q.kind == structs.FQ_CODEL:
        which = f.index
    elif q.kind == structs.DUALPI2:
        which = aqm.dualpi2_skb_classify(w, q, f, order)
    append(w, q, structs.lanes(w.lanes)[which], f, order, now)
    if q.kind == structs.FQ_CODEL:
        lane = structs.lanes(w.lanes)[which]
        if lane.listed == UNLISTED:
            lane.deficit = q.quantum
            put_last(w, q, which, NEW)
        if overfull(w, q, 0) and f.losses_given == 0:
            drop_of_fattest(w, q)
    if w.serve_at == structs.NEVER:
        serve_next(w, q, now)


def overfull(w, q, size):
    """Whether `size` bytes more, or with 0 what is there, exceed the buffer."""
    more = 1 if size > 0 else 0
    return w.queue_bytes + size > w.buffer_bytes or 0 < w.buffer_packets < q.packets + more


def append(w, q, lane, f, order, now):
    """Put a transmission into a queue."""
    place = lane.tail & w.q_mask
    words(lane.flow)[place], words(lane.order)[place], words(lane.at)[place] = f.index, order, now
    lane.tail += 1
    lane.bytes += f.wire_bytes
    w.queue_bytes += f.wire_bytes
    q.packets += 1


def serve_on(w, now):
    """The link has sent a packet; return the flow of the next, -1 if none waits."""
    q = structs.aqms(w.aqm)[0]
    aqm.update(w, q, now)
    if q.serving > 0:
        w.queue_bytes -= q.serving
        q.packets -= 1
        q.serving = 0
    return serve_next(w, q, now)


def serve_next(w, q, now):
    """Send the next packet, if any; return its flow, or -1."""
    w.serve_at = structs.NEVER
    while take(w, q, now):
        f = structs.flows(w.flows)[q.flow]
        start = now
        if w.shaping == structs.TBF:
            start += shaper_wait(w, start, f.wire_bytes)
        end = service_end(w, start, f.wire_bytes)
        if end == structs.NEVER:
            drop(f, q.order)
            continue
        w.free_at = w.serve_at = end
        if w.shaping == structs.HTB:  # has left the queue; the next one is chosen when its debt is paid
            w.serve_at = max(end, now + htb_debt(w, now, f.wire_bytes))
        else:
            q.serving = f.wire_bytes
            w.queue_bytes += q.serving
            q.packets += 1
        arrive(w, f, q.order, leave(w, f, q.order, q.at, start, end))
        return q.flow
    return -1


def take(w, q, now):
    """Select the packet to send next; return whether there is one."""
    if q.kind == structs.FQ_CODEL:
        return fq_codel_dequeue(w, q, now)
    if q.kind == structs.DUALPI2:
        return aqm.dualpi2_dequeue(w, q, now)
    lane = structs.lanes(w.lanes)[0]
    if q.kind == structs.CODEL:
        return aqm.codel_dequeue(w, q, lane, now)
    if not aqm.pop(w, q, lane):
        return False
    if q.kind == structs.PIE:
        aqm.pie_process_dequeue(w, q, now)
    return True


# --- fq_codel: [Linux618] net/sched/sch_fq_codel.c, [RFC8290]: a queue for each flow ---------------------------------


def fq_codel_dequeue(w, q, now):
    """Deficit round robin, new flows first."""
    while True:
        group = NEW if q.new_first != structs.NO_LANE else OLD
        which = q.new_first if group == NEW else q.old_first
        if which == structs.NO_LANE:
            return False
        lane = structs.lanes(w.lanes)[which]
        if lane.deficit <= 0:
            lane.deficit += q.quantum
            take_first(w, q, group)
            put_last(w, q, which, OLD)
        elif aqm.codel_dequeue(w, q, lane, now):
            lane.deficit -= structs.flows(w.flows)[which].wire_bytes
            return True
        else:
            take_first(w, q, group)
            if group == NEW and q.old_first != structs.NO_LANE:  # so that old ones do not starve
                put_last(w, q, which, OLD)


def take_first(w, q, group):
    """Take the first queue off a list."""
    which = q.new_first if group == NEW else q.old_first
    lane = structs.lanes(w.lanes)[which]
    lane.listed = UNLISTED
    if group == NEW:
        q.new_first = lane.next
    else:
        q.old_first = lane.next


def put_last(w, q, which, group):
    """Put a queue at the end of a list."""
    lane = structs.lanes(w.lanes)[which]
    lane.listed = group
    lane.next = structs.NO_LANE
    first = q.new_first if group == NEW else q.old_first
    if first == structs.NO_LANE:
        if group == NEW:
            q.new_first = which
        else:
            q.old_first = which
        return
    while structs.lanes(w.lanes)[first].next != structs.NO_LANE:
        first = structs.lanes(w.lanes)[first].next
    structs.lanes(w.lanes)[first].next = which


def drop_of_fattest(w, q):
    """fq_codel_drop: half of the longest queue, but at most 64 packets."""
    fattest = 0
    for k in range(1, w.n):
        if structs.lanes(w.lanes)[k].bytes > structs.lanes(w.lanes)[fattest].bytes:
            fattest = k
    lane = structs.lanes(w.lanes)[fattest]
    least = lane.bytes - (lane.bytes >> 1)
    dropped = 0
    while dropped < MAX_DROPPED and (dropped == 0 or lane.bytes > least) and aqm.pop(w, q, lane):
        drop(structs.flows(w.flows)[fattest], q.order)
        dropped += 1
    lane.count += dropped
