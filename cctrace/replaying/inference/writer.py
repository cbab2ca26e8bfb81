"""Re-enactment of the application's writes and the socket's send buffer (SO_SNDBUF), beside the recorded sends.

The kernel marks what it sends as application-limited if, at a write, less than a segment is unsent and cwnd has room
(tcp_rate_check_app_limited). A capture shows no writes, but they can be computed, as `cctrace.sim.core.write_queue` and
`sendmsg` do in simulations. Periodic writes come when they are due. An application that always has data writes as soon
as a third of the send buffer is free, until it is full; if the size of the buffer is given, how full it is follows from
what was sent and acknowledged. Data that were sent before they had been written refute a size (`writes`).

Plain functions. Positions are bytes of the sequence space. `m` is the socket; `queue` has the end of each skb of the
write queue, `ends` of the retransmission queue; `sacked` the SACKed ranges; `marks` is filled as in `engine.context`.

Sources: [Linux612] net/ipv4/tcp.c tcp_sendmsg_locked; net/ipv4/tcp_output.c tcp_write_xmit; net/core/stream.c.
"""

from cctrace.replaying.engine.context import APP_LIMITED, MANY, WAITS
from cctrace.tcp.rate import WRITE_BYTES, app_limited_after, app_limited_until
from cctrace.tcp.sequence import first_not_below
from cctrace.tcp.small_queue import is_throttled

SOON_NS = 5_000  # within which packets leave that are due
SURE = 8  # super-packets that left before they were written, beyond one in `ONE_IN`, that do not refute a size yet

# Columns of an event: an ACK and the super-packets that leave with it, or those that leave at a timer.
(
    ACKS,  # whether it is an ACK
    UNA,  # tp->snd_una
    DELIVERED,  # tp->delivered
    FLIGHT,  # tcp_packets_in_flight
    MISSING,  # segments marked lost and not sent again
    CWND,
    GOAL,  # bytes up to which tcp_sendmsg fills an skb (size_goal)
    PUSH_BYTES,  # half the largest receive window so far (forced_push)
    PROBING,  # whether BBR is in PROBE_RTT
    TIME_NS,
    BLOCK,  # first of its SACK blocks
    BLOCKS_END,  # after the last one
    SKB,  # first of its super-packets
    SKBS_END,  # after the last one
    RATE_BPS,  # sk->sk_pacing_rate
    EVENT_SIZE,
) = range(16)
# Columns of a super-packet that was sent.
(
    END,
    BEGIN,
    IS_NEW,
    FIRST,  # its packets
    LAST,  # after the last one
    SEGMENTS,
    LEFT_NS,  # when it left fq, 0 without fq
    SENT_NS,  # when TCP sent it
    SKB_SIZE,
) = range(9)
# The socket.
(
    SND_BUF,  # sk->sk_sndbuf
    WRITTEN,  # tp->write_seq
    NXT,  # tp->snd_nxt
    AT_UNA,  # tp->snd_una
    MEMORY,  # sk->sk_wmem_queued
    PUSHED,  # tp->pushed_seq
    LIMIT,  # tp->app_limited
    IN_FLIGHT,  # tcp_packets_in_flight
    QUEUED,  # number of skbs in the write queue
    KEPT,  # and in the retransmission queue
    SACKS,  # number of SACKed ranges
    NOW_NS,
    LEAVES_NS,  # when the last super-packet leaves fq
    MSS,
    OVERHEAD,  # bytes that an skb takes besides its data
    BY_ACKS,  # whether each ACK checks for application-limited, too (BBRv2 and v3)
    LATE,  # super-packets that left before they were written
    DONE,  # super-packets that have left
    NEXT_SIZE,  # the next greater size of the buffer with which a comparison would have turned out otherwise
    ONE_IN,  # of so many super-packets, one may be LATE
    TOO_LATE,  # number of LATE ones from which on the run stops
    HAS,  # position up to which the application has data
    NEXT_DUE,  # next of the periodic writes
    LOST,  # segments marked lost and not sent again
    PER_CWND,  # bytes of the buffer for each segment of cwnd (tcp_sndbuf_expand), 0 if it does not grow
    DRY,  # times that the last super-packet before a write was cut short, because no more had been written
    SOCKET_SIZE,
) = range(27)


def cut(m, ends, at):
    """Let an skb of the retransmission queue end at a position. The list has room for any real sender's."""
    k = first_not_below(ends, m[KEPT], at)
    if at > m[AT_UNA] and (k == m[KEPT] or ends[k] != at) and m[KEPT] < ends.size:
        for j in range(m[KEPT], k, -1):
            ends[j] = ends[j - 1]
        ends[k] = at
        m[KEPT] += 1
        m[MEMORY] += m[OVERHEAD]


def join(m, ends, at):
    """Let no skb of the retransmission queue end at a position: it is joined with the next."""
    k = first_not_below(ends, m[KEPT], at)
    if k < m[KEPT] and ends[k] == at:
        for j in range(k, m[KEPT] - 1):
            ends[j] = ends[j + 1]
        m[KEPT] -= 1
        m[MEMORY] -= m[OVERHEAD]


def drop(m, count, ends, at):
    """Drop the skbs of a queue that end up to a position. `count`: QUEUED or KEPT."""
    gone = 0
    while gone < m[count] and ends[gone] <= at:
        gone += 1
    for j in range(gone, m[count]):
        ends[j - gone] = ends[j]
    m[count] -= gone
    m[MEMORY] -= gone * m[OVERHEAD]


def acknowledge(m, ends, sacked, una):
    """Process snd_una: tcp_clean_rtx_queue."""
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
    """Process a SACK block, tcp_sacktag_walk: newly SACKed data are cut from skbs and joined with SACKed neighbours."""
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
    """Process a range that is SACKed for the first time."""
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
    """Merge the newest SACKed range with those that it touches."""
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
    """Whether the application has data and a third of the buffer is free (sk_stream_is_writeable); notes NEXT_SIZE."""
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
    """tcp_rate_check_app_limited: less than a segment is unsent, fq is empty, cwnd has room, nothing lost is unsent."""
    idle = m[WRITTEN] - m[NXT] < m[MSS] and m[LEAVES_NS] < m[NOW_NS]
    if idle and m[IN_FLIGHT] < event[CWND] and m[LOST] <= 0:
        m[LIMIT] = app_limited_until(event[DELIVERED], m[IN_FLIGHT])


def leave(m, skb, queue, ends, marks):
    """Send a super-packet."""
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
    """Whether TCP Small Queues hold super-packet `at` until others have left fq (tcp_small_queue_check).

    Those that leave at once are freed at once if a process sends them; in a softirq, those from `begun` on are freed
    only when it ends.
    """
    queued, k = 0, at - 1
    while k >= 0 and skbs[k, LEFT_NS] >= m[NOW_NS] and (skbs[k, LEFT_NS] > m[NOW_NS] + SOON_NS or k >= begun):
        queued += skbs[k, END] - skbs[k, BEGIN] + m[OVERHEAD]
        k -= 1
    truesize = skbs[at, END] - skbs[at, BEGIN] + m[OVERHEAD]
    return is_throttled(queued, truesize, event[RATE_BPS], skbs[at, IS_NEW] == 0, m[KEPT])


def hold(m, event, skb, queue):
    """Make a held super-packet an skb of its own, as far as cwnd has room [Linux612] tcp_write_xmit.

    It was split off from a longer skb (tso_fragment), or took from the next one (tcp_grow_skb, since 6.10).
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
    """Whether a super-packet that leaves later may be in fq already: the re-enactment knows of no writes."""
    return skb[LEFT_NS] > m[NOW_NS] and m[IN_FLIGHT] + skb[SEGMENTS] <= event[CWND]


def push(m, event, skbs, at, until, most, writes, queue, ends, marks):
    """Send super-packets that have been written, at most `most`; return the next one."""
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
    """Let the application write until its buffer is full (tcp_sendmsg_locked); return the next super-packet."""
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
    """Let a super-packet be written that left too early: the size is wrong, or an error was made before."""
    m[LATE] += 1
    missing = skb[END] - m[WRITTEN]
    if m[QUEUED] == 0:
        queue[0], m[QUEUED] = m[WRITTEN], 1
        m[MEMORY] += m[OVERHEAD]
    m[WRITTEN] = queue[m[QUEUED] - 1] = skb[END]
    m[MEMORY] += missing


def write_due(m, due, event, skbs, at, by_ns, queue, ends, marks):
    """Let the application write what is `due` by a time; return the next super-packet to leave."""
    while m[NEXT_DUE] < due.shape[0] and due[m[NEXT_DUE], 0] <= by_ns:
        m[NOW_NS], m[HAS] = due[m[NEXT_DUE], 0], due[m[NEXT_DUE], 1]
        m[NEXT_DUE] += 1
        if may_write(m):
            until = at  # what leaves at once may be sent between two skbs (tcp_push_one)
            while until < skbs.shape[0] and skbs[until, SENT_NS] <= m[NOW_NS] + SOON_NS:
                until += 1
            at = write(m, event, skbs, at, until, queue, ends, marks)
    return at


def happen(m, due, event, skbs, blocks, queue, ends, sacked, marks):
    """Process an event: take the ACK, send what has been written, and let the application write if it can.

    A super-packet that left fq much later may have been handed over later than at the event, as the re-enactment knows
    of no writes.
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
    if event[ACKS] != 0 and m[HAS] > m[WRITTEN] and m[IN_FLIGHT] < event[CWND]:  # tcp_check_space
        m[SND_BUF] = max(m[SND_BUF], m[PER_CWND] * event[CWND])
    if may_write(m) and (at < until or m[WRITTEN] > 1):
        m[DRY] += 1 if event[SKB] < at < until and m[WRITTEN] - m[NXT] < m[MSS] else 0
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
        else:  # the next one does not leave yet, but it may become an skb of its own
            at = push(m, event, skbs, at, at, 1, False, queue, ends, marks)


def run(m, due, happened, queue, room, marks):
    """Process all events; stop where the size of the buffer is refuted, or worse than another one (TOO_LATE)."""
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
