"""The application's writes, on a clock or into a buffer of fixed size (SO_SNDBUF), re-enacted beside the sends.

The kernel marks what it sends as application-limited if the application found less than a segment unsent, and room in
cwnd, when it wrote. A capture shows no writes, but they can be computed, as `cctrace.sim.core.write_queue` and
`sendmsg` do: on a clock they come when they are due; and an application that always has data writes as soon as a third
of its buffer is free, until it is full, whose memory follows from what was sent and acknowledged, if its size is known.
What was sent before it had been written refutes a size. Plain functions, compiled by `writes`.

Positions are bytes of the sequence space. [Linux612] net/ipv4/tcp.c tcp_sendmsg_locked; net/core/stream.c.
"""

from cctrace.replaying.engine.context import APP_LIMITED, MANY, WAITS
from cctrace.tcp.rate import WRITE_BYTES, app_limited_after, app_limited_until
from cctrace.tcp.sequence import first_not_below
from cctrace.tcp.small_queue import is_throttled

SOON_NS = 5_000  # within which what is due has left
SURE = 8  # super-packets that left before they were written, beside one in `ONE_IN`, do not refute a size

# Columns of an event: an ACK and what leaves with it, or what leaves upon a timer.
# fmt: off
(
    ACKS, UNA, DELIVERED, FLIGHT, MISSING, CWND, GOAL, PUSH_BYTES, PROBING, TIME_NS, BLOCK, BLOCKS_END, SKB, SKBS_END,
    RATE_BPS, EVENT_SIZE,
) = range(16)
# Columns of a super-packet that was sent.
END, BEGIN, IS_NEW, FIRST, LAST, SEGMENTS, LEFT_NS, SENT_NS, SKB_SIZE = range(9)
# The socket: positions, memory, the mark, how many of each list, what was found.
(
    SND_BUF, WRITTEN, NXT, AT_UNA, MEMORY, PUSHED, LIMIT, IN_FLIGHT, QUEUED, KEPT, SACKS, NOW_NS, LEAVES_NS, MSS,
    OVERHEAD, BY_ACKS, LATE, DONE, NEXT_SIZE, ONE_IN, TOO_LATE, HAS, NEXT_DUE, LOST, SOCKET_SIZE,
) = range(25)
# fmt: on


def cut(m, ends, at):
    """An skb of the retransmission queue ends at a position, if the list has room, as it has for any real sender's."""
    k = first_not_below(ends, m[KEPT], at)
    if at > m[AT_UNA] and (k == m[KEPT] or ends[k] != at) and m[KEPT] < ends.size:
        for j in range(m[KEPT], k, -1):
            ends[j] = ends[j - 1]
        ends[k] = at
        m[KEPT] += 1
        m[MEMORY] += m[OVERHEAD]


def join(m, ends, at):
    """No skb ends at a position any more."""
    k = first_not_below(ends, m[KEPT], at)
    if k < m[KEPT] and ends[k] == at:
        for j in range(k, m[KEPT] - 1):
            ends[j] = ends[j + 1]
        m[KEPT] -= 1
        m[MEMORY] -= m[OVERHEAD]


def drop(m, count, ends, at):
    """No skb of a queue ends before a position any more, nor there. `count`: where the socket has their number."""
    gone = 0
    while gone < m[count] and ends[gone] <= at:
        gone += 1
    for j in range(gone, m[count]):
        ends[j - gone] = ends[j]
    m[count] -= gone
    m[MEMORY] -= gone * m[OVERHEAD]


def acknowledge(m, ends, sacked, una):
    """tcp_clean_rtx_queue."""
    if una <= m[AT_UNA]:
        return
    m[MEMORY] -= una - m[AT_UNA]
    m[AT_UNA] = una
    drop(m, KEPT, ends, una)
    kept = 0
    for j in range(m[SACKS]):
        if sacked[j, 1] > una:
            sacked[kept, 0], sacked[kept, 1] = sacked[j, 0], sacked[j, 1]
            kept += 1
    m[SACKS] = kept


def is_sacked(m, sacked, at):
    """Whether the byte at a position is SACKed."""
    found = False
    for j in range(m[SACKS]):
        found = found or sacked[j, 0] <= at < sacked[j, 1]
    return found


def sack(m, ends, sacked, left, right):
    """tcp_sacktag_walk: what a block SACKs anew is cut from its skbs, and joined with SACKed neighbours."""
    at = max(left, m[AT_UNA])
    right = min(right, m[NXT])
    while at < right:
        stop, covered = right, False
        for j in range(m[SACKS]):
            if sacked[j, 0] <= at < sacked[j, 1]:
                covered, stop = True, min(sacked[j, 1], right)
            elif at < sacked[j, 0] < stop and not covered:
                stop = sacked[j, 0]
        if not covered:
            take_block(m, ends, sacked, at, stop)
        at = stop


def take_block(m, ends, sacked, left, right):
    """Take in a range that is SACKed for the first time."""
    if left > m[AT_UNA]:
        if is_sacked(m, sacked, left - 1):
            join(m, ends, left)
        else:
            cut(m, ends, left)
    k = first_not_below(ends, m[KEPT], left + 1)
    while k < m[KEPT] and ends[k] < right:
        join(m, ends, ends[k])
    if right < m[NXT] and is_sacked(m, sacked, right):
        join(m, ends, right)
    else:
        cut(m, ends, right)
    if m[SACKS] < sacked.shape[0]:
        sacked[m[SACKS], 0], sacked[m[SACKS], 1] = left, right
        m[SACKS] += 1
    merge(m, sacked)


def merge(m, sacked):
    """Join the ranges that touch the newest one with it."""
    last = m[SACKS] - 1
    j = 0
    while j < last:
        if sacked[j, 0] <= sacked[last, 1] and sacked[last, 0] <= sacked[j, 1]:
            sacked[last, 0], sacked[last, 1] = min(sacked[j, 0], sacked[last, 0]), max(sacked[j, 1], sacked[last, 1])
            for i in range(j, last):
                sacked[i, 0], sacked[i, 1] = sacked[i + 1, 0], sacked[i + 1, 1]
            last -= 1
        else:
            j += 1
    m[SACKS] = last + 1


def may_write(m):
    """The application has more, and sk_stream_is_writeable: a third of the buffer is free. Else a larger might be."""
    if m[HAS] <= m[WRITTEN]:
        return False
    needed = m[MEMORY] + (m[MEMORY] >> 1)
    if needed <= m[SND_BUF] and m[MEMORY] < m[SND_BUF]:
        return True
    m[NEXT_SIZE] = min(m[NEXT_SIZE], max(needed, m[MEMORY] + 1))
    return False


def tail_bytes(m, queue):
    """Bytes in the last skb of the write queue."""
    return m[WRITTEN] - (queue[m[QUEUED] - 2] if m[QUEUED] > 1 else m[NXT])


def check_app_limited(m, event):
    """tcp_rate_check_app_limited: less than a segment is unsent, nothing is in fq, window and recovery allow a send."""
    idle = m[WRITTEN] - m[NXT] < m[MSS] and m[LEAVES_NS] < m[NOW_NS]
    if idle and m[IN_FLIGHT] < event[CWND] and m[LOST] <= 0:
        m[LIMIT] = app_limited_until(event[DELIVERED], m[IN_FLIGHT])


def leave(m, skb, queue, ends, marks):
    """A super-packet was sent."""
    if skb[IS_NEW] != 0:
        drop(m, QUEUED, queue, skb[END])
        m[NXT] = skb[END]
    else:
        cut(m, ends, skb[BEGIN])
    cut(m, ends, skb[END])
    for k in range(skb[FIRST], skb[LAST]):
        marks[k] = MANY << WAITS | (APP_LIMITED if m[LIMIT] != 0 else 0)
    m[IN_FLIGHT] += skb[SEGMENTS]
    m[LOST] -= skb[SEGMENTS] if skb[IS_NEW] == 0 else 0
    m[LEAVES_NS] = skb[LEFT_NS]
    m[DONE] += 1


def is_held(m, event, skbs, at, begun):
    """tcp_small_queue_check: whether a super-packet waits until others have left fq.

    What leaves at once is freed at once if a process sends, else when the softirq ends, from `begun` on.
    """
    queued, k = 0, at - 1
    while k >= 0 and skbs[k, LEFT_NS] >= m[NOW_NS] and (skbs[k, LEFT_NS] > m[NOW_NS] + SOON_NS or k >= begun):
        queued += skbs[k, END] - skbs[k, BEGIN] + m[OVERHEAD]
        k -= 1
    truesize = skbs[at, END] - skbs[at, BEGIN] + m[OVERHEAD]
    return is_throttled(queued, truesize, event[RATE_BPS], skbs[at, IS_NEW] == 0, m[KEPT])


def hold(m, event, skb, queue):
    """What waits for others to leave fq became an skb of its own, as far as cwnd has room [Linux612] tcp_write_xmit.

    It was split off (tso_fragment), or took from the next one what it lacked (tcp_grow_skb, since 6.10).
    """
    at = min(skb[END], m[NXT] + (event[CWND] - m[IN_FLIGHT]) * m[MSS])
    if skb[IS_NEW] == 0 or at <= m[NXT]:
        return
    drop(m, QUEUED, queue, at)
    if m[QUEUED] < queue.size:
        for j in range(m[QUEUED], 0, -1):
            queue[j] = queue[j - 1]
        queue[0] = at
        m[QUEUED] += 1
        m[MEMORY] += m[OVERHEAD]


def may_wait(m, event, skb):
    """Whether fq may hold already what leaves it later: the view, which knows of no writes, hands it over later."""
    return skb[LEFT_NS] > m[NOW_NS] and m[IN_FLIGHT] + skb[SEGMENTS] <= event[CWND]


def push(m, event, skbs, at, until, most, writes, queue, ends, marks):
    """Let what was sent leave, at most so many super-packets, as far as it has been written; return the next one."""
    sent, begun = 0, until if writes else at
    while at < skbs.shape[0] and sent < most and (skbs[at, IS_NEW] == 0 or skbs[at, END] <= m[WRITTEN]):
        if is_held(m, event, skbs, at, begun):
            hold(m, event, skbs[at], queue)
            return at
        if at >= until and not (writes and may_wait(m, event, skbs[at])):
            return at
        leave(m, skbs[at], queue, ends, marks)
        at += 1
        sent += 1
    return at


def write(m, event, skbs, at, until, queue, ends, marks):
    """The application writes until its buffer is full; return the first super-packet that has not left by then."""
    going = True
    while going:
        check_app_limited(m, event)
        left, begun, has_room = min(WRITE_BYTES, m[HAS] - m[WRITTEN]), m[WRITTEN], True
        while left > 0 and has_room:
            if m[QUEUED] == 0 or tail_bytes(m, queue) >= event[GOAL]:
                has_room = m[MEMORY] < m[SND_BUF] and m[QUEUED] < queue.size
                if has_room:
                    queue[m[QUEUED]] = m[WRITTEN]
                    m[QUEUED] += 1
                    m[MEMORY] += m[OVERHEAD]
                else:
                    m[NEXT_SIZE] = min(m[NEXT_SIZE], m[MEMORY] + 1)
            if has_room:
                copied = min(left, event[GOAL] - tail_bytes(m, queue))
                m[WRITTEN] += copied
                m[MEMORY] += copied
                left -= copied
                queue[m[QUEUED] - 1] = m[WRITTEN]
                if left > 0 and m[WRITTEN] - m[PUSHED] > event[PUSH_BYTES]:  # forced_push
                    m[PUSHED] = m[WRITTEN]
                    at = push(m, event, skbs, at, until, until, True, queue, ends, marks)
                elif left > 0 and m[QUEUED] == 1:  # tcp_push_one
                    at = push(m, event, skbs, at, until, 1, True, queue, ends, marks)
        if m[WRITTEN] > begun:
            m[PUSHED] = m[WRITTEN]
            at = push(m, event, skbs, at, until, until, True, queue, ends, marks)
        going = m[WRITTEN] > begun and may_write(m)
    return at


def admit(m, skb, queue):
    """A super-packet left that cannot have been written: the size is wrong, or something before was."""
    m[LATE] += 1
    missing = skb[END] - m[WRITTEN]
    if m[QUEUED] == 0:
        queue[0], m[QUEUED] = m[WRITTEN], 1
        m[MEMORY] += m[OVERHEAD]
    m[WRITTEN] = queue[m[QUEUED] - 1] = skb[END]
    m[MEMORY] += missing


def write_due(m, due, event, skbs, at, by_ns, queue, ends, marks):
    """The application writes what is `due` by a time; return the first super-packet that has not left by then."""
    while m[NEXT_DUE] < due.shape[0] and due[m[NEXT_DUE], 0] <= by_ns:
        m[NOW_NS], m[HAS] = due[m[NEXT_DUE], 0], due[m[NEXT_DUE], 1]
        m[NEXT_DUE] += 1
        if may_write(m):
            at = write(m, event, skbs, at, at, queue, ends, marks)
    return at


def happen(m, due, event, skbs, blocks, queue, ends, sacked, marks):
    """One event: the ACK is processed, what was written leaves, and the application writes if it can.

    What fq let go much later may have been handed over later than the view says, which knows of no writes.
    """
    m[NOW_NS] = event[TIME_NS]
    at, until = m[DONE], event[SKBS_END]
    if event[ACKS] != 0:
        for k in range(event[BLOCK], event[BLOCKS_END]):
            sack(m, ends, sacked, blocks[k, 0], blocks[k, 1])
        m[LIMIT] = app_limited_after(m[LIMIT], event[DELIVERED])
        acknowledge(m, ends, sacked, event[UNA])
        m[IN_FLIGHT], m[LOST] = event[FLIGHT], event[MISSING]
        for k in range(at, event[SKB]):
            m[IN_FLIGHT] -= skbs[k, SEGMENTS]
        for k in range(event[SKB], at):
            m[IN_FLIGHT] += skbs[k, SEGMENTS]
        if event[PROBING] != 0:  # bbr_update_min_rtt
            m[LIMIT] = app_limited_until(event[DELIVERED], m[IN_FLIGHT])
    at = push(m, event, skbs, at, until, until, False, queue, ends, marks)
    if may_write(m) and (at < until or m[WRITTEN] > 1):
        at = write(m, event, skbs, at, until, queue, ends, marks)
    while at < until:
        if skbs[at, IS_NEW] != 0 and skbs[at, END] > m[WRITTEN]:
            at = write_due(m, due, event, skbs, at, skbs[at, SENT_NS], queue, ends, marks)
            if at >= until:
                return
        if skbs[at, IS_NEW] != 0 and skbs[at, END] > m[WRITTEN]:
            if skbs[at, LEFT_NS] > m[NOW_NS] + SOON_NS:
                return
            admit(m, skbs[at], queue)
        leave(m, skbs[at], queue, ends, marks)
        at += 1
        if may_write(m):
            at = write(m, event, skbs, at, until, queue, ends, marks)
        else:  # nor does the next one leave yet, but it may have become an skb of its own
            at = push(m, event, skbs, at, at, 1, False, queue, ends, marks)


def run(m, due, happened, queue, room, marks):
    """All events, or until the size is refuted, or explains no more than another one (`TOO_LATE`)."""
    events, skbs, blocks = happened
    ends, sacked = room
    for k in range(events.shape[0]):
        waiting, done = (m[WRITTEN] - m[NXT] + m[MSS] - 1) // m[MSS], m[DONE]
        if k > 0:
            write_due(m, due, events[k - 1], skbs, m[DONE], events[k, TIME_NS], queue, ends, marks)
        if m[BY_ACKS] != 0 and events[k, ACKS] != 0 and k > 0 and m[WRITTEN] > 1:
            m[NOW_NS] = events[k, TIME_NS]
            check_app_limited(m, events[k - 1])
        happen(m, due, events[k], skbs, blocks, queue, ends, sacked, marks)
        if 0 < done < m[DONE]:
            last = skbs[done - 1, LAST] - 1
            marks[last] = min(waiting, MANY) << WAITS | (marks[last] & APP_LIMITED)
        if m[LATE] > SURE + m[DONE] // m[ONE_IN] or m[LATE] >= m[TOO_LATE]:
            return
