"""Re-enactment of the application's writes and the socket's send buffer (SO_SNDBUF), beside the recorded sends.

The kernel marks what it sends as application-limited if, at a write, less than a segment is unsent and cwnd has room
(tcp_rate_check_app_limited). A capture shows no writes, but they can be computed, as `cctrace.sim.core.write_queue` and
`sendmsg` do in simulations. Periodic writes come when they are due. An application that always has data writes as soon
as a third of the send buffer is free, until it is full; if the size of the buffer is given, how full it is follows from
what was sent and acknowledged. Data that were sent before they had been written refute a size (`writes`).

Plain functions. Positions are bytes of the sequence space. `sk` is the socket; `write_queue` and `rtx_queue` have the
end of each of their skbs; `sacked` the SACKed ranges; `marks` is filled as in `engine.context`.

Sources: [Linux612] net/ipv4/tcp.c tcp_sendmsg_locked; net/ipv4/tcp_output.c tcp_write_xmit; net/core/stream.c.
"""

from cctrace.lang.memory import record_of
from cctrace.replaying.engine.context import APP_LIMITED, MANY, WAITS
from cctrace.tcp.rate import WRITE_BYTES, app_limited_after, app_limited_until
from cctrace.tcp.sequence import first_not_below
from cctrace.tcp.small_queue import is_throttled

SOON_NS = 5_000  # within which packets leave that are due
FEW = 64  # one in so many super-packets may seem to leave before it was written; with right sizes one in 245 did
SURE = 8  # more that may, before they refute a size


# An event: an ACK and the super-packets that leave with it, or those that leave at a timer.
EVENT = record_of(
    "is_ack time_ns snd_una delivered packets_in_flight snd_cwnd pacing_rate_Bps in_probe_rtt",
    "lost_not_resent",  # segments marked lost and not sent again
    "size_goal",  # bytes up to which tcp_sendmsg fills an skb
    "half_max_window",  # half the largest receive window so far (forced_push)
    "first_block end_block",  # its first SACK block, and the one after its last
    "first_skb end_skb",  # the same of its super-packets
)
# A super-packet that was sent.
SKB = record_of(
    "seq end_seq segments is_new",
    "first_packet end_packet",  # its first one, and the one after its last
    "left_fq_ns",  # when it left fq, 0 without fq
    "sent_ns",  # when TCP sent it
)
# The socket: fields of struct sock and tcp_sock by their names, and what the computation needs besides.
SOCKET = record_of(
    "sndbuf write_seq snd_nxt snd_una wmem_queued pushed_seq app_limited packets_in_flight mss now_ns",
    "write_queue_len",  # skbs in the write queue
    "rtx_queue_len",  # of the retransmission queue
    "sacked_ranges",  # number of them
    "fq_empty_ns",  # when the last super-packet leaves fq
    "skb_overhead",  # bytes that an skb takes besides its data
    "checks_at_acks",  # whether each ACK checks for application-limited, too (BBRv2 and v3)
    "late_skbs",  # super-packets that left before they were written
    "sent_skbs",  # super-packets that have left
    "next_sndbuf",  # the next greater size of the buffer with which a comparison would have turned out otherwise
    "max_late_skbs",  # number of late ones from which on the run stops
    "app_end_seq",  # position up to which the application has data
    "next_due",  # number of the next periodic write
    "lost_not_resent",  # segments marked lost and not sent again
    "sndbuf_per_cwnd",  # bytes of the buffer for each segment of cwnd (tcp_sndbuf_expand), 0 if it does not grow
    "dry_writes",  # times that the last super-packet before a write was cut short, because no more had been written
)


def insert(ends, count, k, at):
    """Insert an skb that ends at a position as number `k` of a queue of `count`, which has room."""
    for j in range(count, k, -1):
        ends[j] = ends[j - 1]
    ends[k] = at


def cut(sk, rtx_queue, at):
    """Let an skb of the retransmission queue end at a position. The list has room for any real sender's."""
    k = first_not_below(rtx_queue, sk.rtx_queue_len, at)
    if at > sk.snd_una and (k == sk.rtx_queue_len or rtx_queue[k] != at) and sk.rtx_queue_len < rtx_queue.size:
        insert(rtx_queue, sk.rtx_queue_len, k, at)
        sk.rtx_queue_len += 1
        sk.wmem_queued += sk.skb_overhead


def join(sk, rtx_queue, at):
    """Let no skb of the retransmission queue end at a position: it is joined with the next."""
    k = first_not_below(rtx_queue, sk.rtx_queue_len, at)
    if k < sk.rtx_queue_len and rtx_queue[k] == at:
        for j in range(k, sk.rtx_queue_len - 1):
            rtx_queue[j] = rtx_queue[j + 1]
        sk.rtx_queue_len -= 1
        sk.wmem_queued -= sk.skb_overhead


def drop(ends, count, at):
    """Drop those of a queue's `count` skbs that end up to a position; return how many."""
    gone = 0
    while gone < count and ends[gone] <= at:
        gone += 1
    for j in range(gone, count):
        ends[j - gone] = ends[j]
    return gone


def drop_written(sk, write_queue, at):
    """Drop the skbs of the write queue that end up to a position."""
    gone = drop(write_queue, sk.write_queue_len, at)
    sk.write_queue_len -= gone
    sk.wmem_queued -= gone * sk.skb_overhead


def acknowledge(sk, rtx_queue, sacked, una):
    """Process snd_una: tcp_clean_rtx_queue."""
    if una <= sk.snd_una:
        return
    sk.wmem_queued -= una - sk.snd_una
    sk.snd_una = una
    gone = drop(rtx_queue, sk.rtx_queue_len, una)
    sk.rtx_queue_len -= gone
    sk.wmem_queued -= gone * sk.skb_overhead
    kept = 0
    for j in range(sk.sacked_ranges):
        if sacked[j, 1] > una:
            sacked[kept, 0], sacked[kept, 1] = sacked[j, 0], sacked[j, 1]
            kept += 1
    sk.sacked_ranges = kept


def is_sacked(sk, sacked, at):
    """Whether the byte at a position is SACKed."""
    found = False
    for j in range(sk.sacked_ranges):
        found = found or sacked[j, 0] <= at < sacked[j, 1]
    return found


def sack(sk, rtx_queue, sacked, left, right):
    """Process a SACK block, tcp_sacktag_walk: newly SACKed data are cut from skbs and joined with SACKed neighbours."""
    at = max(left, sk.snd_una)
    right = min(right, sk.snd_nxt)
    while at < right:
        stop, covered = right, False
        for j in range(sk.sacked_ranges):
            if sacked[j, 0] <= at < sacked[j, 1]:
                covered, stop = True, min(sacked[j, 1], right)
            elif at < sacked[j, 0] < stop and not covered:
                stop = sacked[j, 0]
        if not covered:
            take_block(sk, rtx_queue, sacked, at, stop)
        at = stop


def take_block(sk, rtx_queue, sacked, left, right):
    """Process a range that is SACKed for the first time."""
    if left > sk.snd_una:
        if is_sacked(sk, sacked, left - 1):
            join(sk, rtx_queue, left)
        else:
            cut(sk, rtx_queue, left)
    k = first_not_below(rtx_queue, sk.rtx_queue_len, left + 1)
    while k < sk.rtx_queue_len and rtx_queue[k] < right:
        join(sk, rtx_queue, rtx_queue[k])
    if right < sk.snd_nxt and is_sacked(sk, sacked, right):
        join(sk, rtx_queue, right)
    else:
        cut(sk, rtx_queue, right)
    if sk.sacked_ranges < sacked.shape[0]:
        sacked[sk.sacked_ranges, 0], sacked[sk.sacked_ranges, 1] = left, right
        sk.sacked_ranges += 1
    merge(sk, sacked)


def merge(sk, sacked):
    """Merge the newest SACKed range with those that it touches."""
    last = sk.sacked_ranges - 1
    j = 0
    while j < last:
        if sacked[j, 0] <= sacked[last, 1] and sacked[last, 0] <= sacked[j, 1]:
            sacked[last, 0], sacked[last, 1] = min(sacked[j, 0], sacked[last, 0]), max(sacked[j, 1], sacked[last, 1])
            for i in range(j, last):
                sacked[i, 0], sacked[i, 1] = sacked[i + 1, 0], sacked[i + 1, 1]
            last -= 1
        else:
            j += 1
    sk.sacked_ranges = last + 1


def may_write(sk):
    """Whether the application has data, and a third of the buffer is free (sk_stream_is_writeable).

    If too little is free, `next_sndbuf` notes the size with which there would have been enough.
    """
    if sk.app_end_seq <= sk.write_seq:
        return False
    needed = sk.wmem_queued + (sk.wmem_queued >> 1)
    if needed <= sk.sndbuf and sk.wmem_queued < sk.sndbuf:
        return True
    sk.next_sndbuf = min(sk.next_sndbuf, max(needed, sk.wmem_queued + 1))
    return False


def tail_bytes(sk, write_queue):
    """Bytes in the last skb of the write queue."""
    return sk.write_seq - (write_queue[sk.write_queue_len - 2] if sk.write_queue_len > 1 else sk.snd_nxt)


def check_app_limited(sk, event):
    """tcp_rate_check_app_limited: less than a segment is unsent, fq is empty, cwnd has room, nothing lost is unsent."""
    idle = sk.write_seq - sk.snd_nxt < sk.mss and sk.fq_empty_ns < sk.now_ns
    if idle and sk.packets_in_flight < event.snd_cwnd and sk.lost_not_resent <= 0:
        sk.app_limited = app_limited_until(event.delivered, sk.packets_in_flight)


def leave(sk, skb, write_queue, rtx_queue, marks):
    """Send a super-packet."""
    if skb.is_new != 0:
        drop_written(sk, write_queue, skb.end_seq)
        sk.snd_nxt = skb.end_seq
    else:
        cut(sk, rtx_queue, skb.seq)
    cut(sk, rtx_queue, skb.end_seq)
    for k in range(skb.first_packet, skb.end_packet):
        marks[k] = MANY << WAITS | (APP_LIMITED if sk.app_limited != 0 else 0)
    sk.packets_in_flight += skb.segments
    sk.lost_not_resent -= skb.segments if skb.is_new == 0 else 0
    sk.fq_empty_ns = skb.left_fq_ns
    sk.sent_skbs += 1


def is_held(sk, event, skbs, at, begun):
    """Whether TCP Small Queues hold super-packet `at` until others have left fq (tcp_small_queue_check).

    Those that leave at once are freed at once if a process sends them; in a softirq, those from `begun` on are freed
    only when it ends.
    """
    queued, k = 0, at - 1
    while k >= 0 and skbs[k].left_fq_ns >= sk.now_ns and (skbs[k].left_fq_ns > sk.now_ns + SOON_NS or k >= begun):
        queued += skbs[k].end_seq - skbs[k].seq + sk.skb_overhead
        k -= 1
    truesize = skbs[at].end_seq - skbs[at].seq + sk.skb_overhead
    return is_throttled(queued, truesize, event.pacing_rate_Bps, skbs[at].is_new == 0, sk.rtx_queue_len)


def hold(sk, event, skb, write_queue):
    """Make a held super-packet an skb of its own, as far as cwnd has room [Linux612] tcp_write_xmit.

    It was split off from a longer skb (tso_fragment), or took from the next one (tcp_grow_skb, since 6.10).
    """
    at = min(skb.end_seq, sk.snd_nxt + (event.snd_cwnd - sk.packets_in_flight) * sk.mss)
    if skb.is_new == 0 or at <= sk.snd_nxt:
        return
    drop_written(sk, write_queue, at)
    if sk.write_queue_len < write_queue.size:
        insert(write_queue, sk.write_queue_len, 0, at)
        sk.write_queue_len += 1
        sk.wmem_queued += sk.skb_overhead


def push(sk, event, skbs, at, until, most, writes, write_queue, rtx_queue, marks):
    """Send super-packets that have been written, at most `most`; return the next one."""
    sent, begun = 0, until if writes else at
    while at < skbs.size and sent < most and (skbs[at].is_new == 0 or skbs[at].end_seq <= sk.write_seq):
        if is_held(sk, event, skbs, at, begun):
            hold(sk, event, skbs[at], write_queue)
            return at
        has_room = sk.packets_in_flight + skbs[at].segments <= event.snd_cwnd
        if at >= until and not (writes and has_room and skbs[at].left_fq_ns > sk.now_ns):
            return at  # one that leaves later may be in fq already, as the re-enactment of the sender knows no writes
        leave(sk, skbs[at], write_queue, rtx_queue, marks)
        at += 1
        sent += 1
    return at


def write(sk, event, skbs, at, until, write_queue, rtx_queue, marks):
    """Let the application write until its buffer is full (tcp_sendmsg_locked); return the next super-packet."""
    going = True
    while going:
        check_app_limited(sk, event)
        left, begun, has_room = min(WRITE_BYTES, sk.app_end_seq - sk.write_seq), sk.write_seq, True
        while left > 0 and has_room:
            if sk.write_queue_len == 0 or tail_bytes(sk, write_queue) >= event.size_goal:
                has_room = sk.wmem_queued < sk.sndbuf and sk.write_queue_len < write_queue.size
                if has_room:
                    write_queue[sk.write_queue_len] = sk.write_seq
                    sk.write_queue_len += 1
                    sk.wmem_queued += sk.skb_overhead
                else:
                    sk.next_sndbuf = min(sk.next_sndbuf, sk.wmem_queued + 1)
            if has_room:
                copied = min(left, event.size_goal - tail_bytes(sk, write_queue))
                sk.write_seq += copied
                sk.wmem_queued += copied
                left -= copied
                write_queue[sk.write_queue_len - 1] = sk.write_seq
                if left > 0 and sk.write_seq - sk.pushed_seq > event.half_max_window:  # forced_push
                    sk.pushed_seq = sk.write_seq
                    at = push(sk, event, skbs, at, until, until, True, write_queue, rtx_queue, marks)
                elif left > 0 and sk.write_queue_len == 1:  # tcp_push_one
                    at = push(sk, event, skbs, at, until, 1, True, write_queue, rtx_queue, marks)
        if sk.write_seq > begun:
            sk.pushed_seq = sk.write_seq
            at = push(sk, event, skbs, at, until, until, True, write_queue, rtx_queue, marks)
        going = sk.write_seq > begun and may_write(sk)
    return at


def admit(sk, skb, write_queue):
    """Let a super-packet be written that left too early: the size is wrong, or an error was made before."""
    sk.late_skbs += 1
    missing = skb.end_seq - sk.write_seq
    if sk.write_queue_len == 0:
        write_queue[0], sk.write_queue_len = sk.write_seq, 1
        sk.wmem_queued += sk.skb_overhead
    sk.write_seq = write_queue[sk.write_queue_len - 1] = skb.end_seq
    sk.wmem_queued += missing


def write_due(sk, due, event, skbs, at, by_ns, write_queue, rtx_queue, marks):
    """Let the application write what is `due` by a time; return the next super-packet to leave."""
    while sk.next_due < due.shape[0] and due[sk.next_due, 0] <= by_ns:
        sk.now_ns, sk.app_end_seq = due[sk.next_due, 0], due[sk.next_due, 1]
        sk.next_due += 1
        if may_write(sk):
            until = at  # what leaves at once may be sent between two skbs (tcp_push_one)
            while until < skbs.size and skbs[until].sent_ns <= sk.now_ns + SOON_NS:
                until += 1
            at = write(sk, event, skbs, at, until, write_queue, rtx_queue, marks)
    return at


def happen(sk, due, event, skbs, blocks, write_queue, rtx_queue, sacked, marks):
    """Process an event: take the ACK, send what has been written, and let the application write if it can.

    A super-packet that left fq much later may have been handed over later than at the event, as the re-enactment knows
    of no writes.
    """
    sk.now_ns = event.time_ns
    at, until = sk.sent_skbs, event.end_skb
    if event.is_ack != 0:
        for k in range(event.first_block, event.end_block):
            sack(sk, rtx_queue, sacked, blocks[k, 0], blocks[k, 1])
        sk.app_limited = app_limited_after(sk.app_limited, event.delivered)
        acknowledge(sk, rtx_queue, sacked, event.snd_una)
        sk.packets_in_flight, sk.lost_not_resent = event.packets_in_flight, event.lost_not_resent
        for k in range(at, event.first_skb):
            sk.packets_in_flight -= skbs[k].segments
        for k in range(event.first_skb, at):
            sk.packets_in_flight += skbs[k].segments
        if event.in_probe_rtt != 0:  # bbr_update_min_rtt
            sk.app_limited = app_limited_until(event.delivered, sk.packets_in_flight)
    at = push(sk, event, skbs, at, until, until, False, write_queue, rtx_queue, marks)
    if event.is_ack != 0 and sk.app_end_seq > sk.write_seq and sk.packets_in_flight < event.snd_cwnd:  # tcp_check_space
        sk.sndbuf = max(sk.sndbuf, sk.sndbuf_per_cwnd * event.snd_cwnd)
    if may_write(sk) and (at < until or sk.write_seq > 1):
        sk.dry_writes += 1 if event.first_skb < at < until and sk.write_seq - sk.snd_nxt < sk.mss else 0
        at = write(sk, event, skbs, at, until, write_queue, rtx_queue, marks)
    while at < until:
        if skbs[at].is_new != 0 and skbs[at].end_seq > sk.write_seq:
            at = write_due(sk, due, event, skbs, at, skbs[at].sent_ns, write_queue, rtx_queue, marks)
            if at >= until:
                return
        if skbs[at].is_new != 0 and skbs[at].end_seq > sk.write_seq:
            if skbs[at].left_fq_ns > sk.now_ns + SOON_NS:
                return
            admit(sk, skbs[at], write_queue)
        leave(sk, skbs[at], write_queue, rtx_queue, marks)
        at += 1
        if may_write(sk):
            at = write(sk, event, skbs, at, until, write_queue, rtx_queue, marks)
        else:  # the next one does not leave yet, but it may become an skb of its own
            at = push(sk, event, skbs, at, at, 1, False, write_queue, rtx_queue, marks)


def run(sockets, due, happened, write_queue, room, marks):
    """Process all events; stop where the size of the buffer is refuted, or has `max_late_skbs` late super-packets."""
    sk = sockets[0]
    events, skbs, blocks = happened
    rtx_queue, sacked = room
    for k in range(events.size):
        waiting, done = (sk.write_seq - sk.snd_nxt + sk.mss - 1) // sk.mss, sk.sent_skbs
        if k > 0:
            write_due(sk, due, events[k - 1], skbs, sk.sent_skbs, events[k].time_ns, write_queue, rtx_queue, marks)
        if sk.checks_at_acks != 0 and events[k].is_ack != 0 and k > 0 and sk.write_seq > 1:
            sk.now_ns = events[k].time_ns
            check_app_limited(sk, events[k - 1])
        happen(sk, due, events[k], skbs, blocks, write_queue, rtx_queue, sacked, marks)
        if 0 < done < sk.sent_skbs:
            last = skbs[done - 1].end_packet - 1
            marks[last] = min(waiting, MANY) << WAITS | (marks[last] & APP_LIMITED)
        if sk.late_skbs > SURE + sk.sent_skbs // FEW or sk.late_skbs >= sk.max_late_skbs:
            return
