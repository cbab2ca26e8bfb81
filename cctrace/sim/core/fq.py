"""The fq qdisc at the sender, where super-packets wait until their departure time, and TCP small queues.

With fq, TCP hands a super-packet over as soon as window and TSQ allow, stamped with its earliest departure time; fq
releases it then, by a timer that may be ten microseconds late. Each departure lets TCP hand over more. TCP's own
state follows the hand-over, a capture follows fq. [Linux612] net/sched/sch_fq.c, tcp_output.c.
"""

from cctrace.lang.memory import words
from cctrace.sim.core.bottleneck import (
    MAX_LATE_NS,
    POLL_LATEST_NS,
    POLL_SOONEST_NS,
    first_departure,
    instant_near,
    may_wake_poll,
    step_up,
)
from cctrace.sim.core.entry import forward
from cctrace.sim.core.positions import length
from cctrace.sim.core.structs import (
    LINUX_6_1,
    NEVER,
    NOT_GIVEN,
    POLLS,
    SENDS,
    SKB_END,
    SKB_LAST,
    segments,
    transmissions,
)
from cctrace.sim.core.tap import tap_sent
from cctrace.sim.core.view import PACING
from cctrace.sim.core.write_queue import overhead
from cctrace.tcp.small_queue import TIMER_SLACK_NS, is_throttled


def has_small_queues(w, f):
    """Whether what TCP handed over counts: without fq it leaves at once, and only where no time passes meanwhile it
    still counts as TCP sends the next.
    """
    return f.fq == 1 or w.one_host == 1


def truesize(f, size):
    """Memory of an skb of so many bytes."""
    return overhead(f) + size


def pacing_rate(f):
    """sk_pacing_rate: what the controller asks for, up to SO_MAX_PACING_RATE."""
    rate = words(f.state)[PACING]
    return min(rate, f.max_rate) if f.max_rate > 0 and rate > 0 else rate


def throttled(f, size, again):
    """tcp_small_queue_check: whether an skb of `size` bytes must wait; TCP continues when others have left."""
    rate_Bps = max(pacing_rate(f), 0)
    if not is_throttled(f.wmem_alloc, truesize(f, size), rate_Bps, again, 1 if few_outstanding(f) else 2):
        return False
    f.tsq_throttled = 1
    return True


def few_outstanding(f):
    """tcp_rtx_queue_empty_or_single_skb."""
    index = f.una
    while index < f.nxt and not segments(f.seg)[index & f.mask].marks & SKB_END:
        index += 1
    return index + 1 >= f.nxt


def hand_over(w, f, count, now):
    """fq_enqueue: the last `count` transmissions are a super-packet; what is due leaves. Without fq, all has left.

    Its memory is freed as the next host takes it from this CPU's backlog (ip_rcv_core), or by the device's interrupt:
    at once if a process sends, else not before what the present softirq does for TCP has ended.
    """
    first = transmissions(f.tx)[(f.tx_next - count) & f.mask].seg
    memory = truesize(f, length(f, first, count))
    if f.fq == 0:
        if f.in_process == 0:
            memory += (count - 1) * overhead(f) if f.cuts_skbs == 1 else 0
            f.wmem_alloc += memory
            f.wmem_leaving += memory
        return
    transmissions(f.tx)[(f.tx_next - 1) & f.mask].marks |= SKB_LAST
    f.wmem_alloc += memory
    f.wmem_leaving += dequeue(w, f, now)
    if f.in_process == 1:
        free_left(w, f, now)
    watch(w, f)


def release(w, f, now):
    """fq's timer: all that is due leaves; the timer waits for the next.

    netem's timer for an ACK of the same interrupt has no slack, so it fires first, and the ACK is received before the
    next host takes what left.
    """
    f.wmem_leaving += dequeue(w, f, now)
    if w.one_host == 1 and f.wmem_leaving > 0:
        f.left_at = now + 1  # after an ACK of the same instant, noted a ns later
    else:
        free_left(w, f, now)
    watch(w, f)


def dequeue(w, f, now):
    """fq_dequeue: what is due leaves; return its memory, which grows where software cuts it (skb_segment)."""
    freed = 0
    while f.fq_next < f.tx_next and transmissions(f.tx)[f.fq_next & f.mask].ns <= now:
        size = 0
        first = f.fq_next
        last = 0
        while last == 0:
            place = f.fq_next & f.mask
            tap_sent(f, now, f.fq_next)
            forward(w, f, f.fq_next, now)
            size += length(f, transmissions(f.tx)[place].seg)
            last = transmissions(f.tx)[place].marks & SKB_LAST
            f.fq_next += 1
        more = (f.fq_next - first - 1) * overhead(f) if f.cuts_skbs == 1 else 0
        f.wmem_alloc += more
        freed += truesize(f, size) + more
    return freed


def free_left(w, f, now):
    """tcp_wfree, for all that left: TCP may go on."""
    if f.wmem_leaving == 0:
        return
    f.wmem_alloc -= f.wmem_leaving
    interrupt = now if f.left_at == NEVER else f.left_at - 1
    f.wmem_leaving, f.left_at = 0, NEVER
    if f.tsq_throttled == 1 and not (f.wmem_alloc > 0 and leaves_rest(w, f, interrupt)):
        f.tsq_throttled = 0
        f.tsq_at = now + w.one_host  # a tasklet: an ACK of the same instant, noted a ns later, is received before it


def leaves_rest(w, f, now):
    """Whether the interrupt at `now` also wakes a process that polls: if not prescribed, the first since a poll is due.

    What is left of the softirq is then ksoftirqd's (__do_softirq, until Linux 6.5 whatever asks for it next, later
    where the interrupt is a tick), in which tcp_wfree does not let TCP go on while fq holds more.
    """
    if words(w.instants)[POLLS] < words(w.instants)[POLLS + 1]:
        return instant_near(w, now + w.timer_step_ns, 0, POLLS) < NEVER
    if f.kernel != LINUX_6_1 or not may_wake_poll(w, now):
        return False
    due, step = now - now % w.poll_ns + POLL_SOONEST_NS, w.timer_step_ns
    earliest = first_departure(w, due)
    for kind in range(NOT_GIVEN):
        earliest = min(earliest, instant_near(w, due + step, POLL_LATEST_NS, kind))
    return earliest + step > now


def watch(w, f):
    """qdisc_watchdog_schedule_range_ns: at the end of the slack, or with an interrupt of the same host within it."""
    if f.fq_next == f.tx_next:
        f.fq_at = f.fq_due_ns = f.fq_soft_ns = NEVER
        return
    due = transmissions(f.tx)[f.fq_next & f.mask].ns
    if due == f.fq_due_ns:
        return
    f.fq_due_ns = f.fq_soft_ns = due
    if w.one_host == 0:
        f.fq_at = due + TIMER_SLACK_NS
        return
    f.fq_at = instant_near(w, due, TIMER_SLACK_NS + MAX_LATE_NS, SENDS)
    if f.fq_at < NEVER:
        f.fq_at = f.fq_soft_ns = max(f.fq_at, due)  # a recorded instant may be a clock step early
    else:
        f.fq_at = min(step_up(w, due + TIMER_SLACK_NS, NOT_GIVEN), max(first_departure(w, due), due))
