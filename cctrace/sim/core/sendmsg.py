"""Writes of the application, profile `linux`: until the socket is full or all data are written.

Function names are the kernel's ([Linux612] net/ipv4/tcp.c).
"""

from cctrace.lang.memory import words
from cctrace.sim.core import write_queue
from cctrace.sim.core.calls import in_flight
from cctrace.sim.core.fq import truesize
from cctrace.sim.core.output import push_new, push_one
from cctrace.sim.core.rings import grow, is_full
from cctrace.sim.core.structs import LINUX, NEVER
from cctrace.sim.core.view import APP_LIMITED, CWND
from cctrace.tcp.rate import WRITE_BYTES, app_limited_until


def write(w, f, now):
    """Write while allowed. If reading the clock takes a process time, sends come later."""
    f.write_at = NEVER
    if not write_queue.is_writeable(f):  # what left since it was woken was cut into skbs, whose overhead counts
        write_queue.wait_for_space(f, now)
        return
    now = read_clock(w, f, now)
    f.in_process = 1
    while f.written < f.app_end:
        sendmsg(w, f, min(WRITE_BYTES, f.app_end - f.written), now)
        if f.written < f.app_end and not write_queue.is_writeable(f):
            write_queue.wait_for_space(f, now)
            break
    f.in_process = 0


def read_clock(w, f, now):
    """tcp_mstamp_refresh: return the time after the process has read the clock."""
    now += w.clock_read_ns
    f.now_us = now // 1000
    return now


def sendmsg(w, f, left, now):
    """tcp_sendmsg_locked: as much of `left` bytes as the buffer takes."""
    check_app_limited(w, f)
    goal = write_queue.size_goal(f)
    begun = f.written
    while left > 0:
        if not has_room(f, goal):
            if f.wmem_queued >= f.sndbuf:
                f.nospace = 1  # what is pushed now may already let the buffer grow
                break
            if is_full(f.mask, f.wq_head, f.wq_tail):
                grow(f)
            words(f.wq_ends)[f.wq_tail & f.mask] = f.written << 1
            f.wq_tail += 1
            f.wmem_queued += write_queue.overhead(f)
        place = (f.wq_tail - 1) & f.mask
        copy = min(left, goal - tail_bytes(f))
        pushed = words(f.wq_ends)[place] & 1 if f.written > begun else 0
        f.written += copy
        f.wmem_queued += copy
        left -= copy
        words(f.wq_ends)[place] = f.written << 1 | pushed
        write_queue.count_unsent(f)
        if left > 0 and f.written - f.pushed_seq > f.max_window >> 1:  # forced_push
            mark_push(f)
            now = read_clock(w, f, now)
            push_new(w, f, 0, now, False, False)
        elif left > 0 and f.wq_tail - f.wq_head == 1:
            now = read_clock(w, f, now)
            push_one(w, f, now)
    if f.written > begun:
        mark_push(f)
        if autocorks(f, goal):
            f.tsq_throttled = 1
        else:
            push_new(w, f, 0, read_clock(w, f, now), False, left == 0)


def autocorks(f, goal):
    """tcp_should_autocork: a small skb waits for what the device still holds, and may be filled until then."""
    size = tail_bytes(f)
    return f.fq == 1 and 0 < size < goal and f.una < f.nxt and f.wmem_alloc > truesize(f, size)


def has_room(f, goal):
    """Whether the last skb is still to be sent and not full."""
    return f.wq_tail > f.wq_head and tail_bytes(f) < goal


def tail_bytes(f):
    """Bytes in the last skb of the write queue."""
    if f.wq_tail - f.wq_head > 1:
        return min(write_queue.unsent(f), f.written - write_queue.write_end(f, f.wq_tail - 2))
    return write_queue.unsent(f)


def mark_push(f):
    """tcp_mark_push: the last skb carries PSH."""
    if f.wq_tail > f.wq_head:
        words(f.wq_ends)[(f.wq_tail - 1) & f.mask] |= 1
    f.pushed_seq = f.written


def check_app_limited(w, f):
    """tcp_rate_check_app_limited: the sender had no data, in fq neither, where window and recovery allowed a send."""
    idle = write_queue.unsent(f) < f.mss and f.wmem_alloc == 0 if f.profile == LINUX else f.nxt >= f.write_seq
    if idle and in_flight(f) < words(f.state)[CWND] and f.lost_out <= f.retrans_out:
        words(f.state)[APP_LIMITED] = app_limited_until(f.delivered, in_flight(f))
