"""When TCP handed super-packets to fq, of which a capture behind this queue only shows when fq released them.

With fq, TCP does not wait for pacing. It stamps a packet with its departure time (`tcp_wstamp_ns`), hands it to the
queue and counts it as sent; fq holds it until then. The capture point is behind the queue, so the sender's state when
it sent a packet (data delivered, in flight) belongs to an earlier time than the captured one. TCP hands over data

    when an ACK arrives, and when a packet leaves fq while the next one is held back by TCP Small Queues,
    as long as cwnd and the receive window have room and the data waiting in fq do not exceed `tcp.small_queue`.

Packets leave in the order of hand-over. A packet that leaves later than pacing explains had not been handed over
before: the application had not written it, and TCP handed it over when it left.

Sources: [Linux61] net/ipv4/tcp_output.c tcp_write_xmit, tcp_tsq_write, __tcp_transmit_skb; net/sched/sch_fq.c.
"""

import numpy as np

from cctrace.cc.linux import CA_RECOVERY, GSO_MAX_SIZE_5_19, MIN_TSO_SEGS
from cctrace.flows.sender import scoreboard as sb
from cctrace.flows.sender.emitting import data_segs_out
from cctrace.flows.sender.sends import full_skb, left_of_skb
from cctrace.flows.state import LATE_TIMER, LOST, NEVER, RETRANS, SACKED, THROUGH_FQ
from cctrace.schema import CLOCK_START_US, U32_MAX
from cctrace.tcp.flags import PSH
from cctrace.tcp.pacing import TSO_WIN_DIVISOR, UNPACED_SEGMENTS, near_peer_bytes, tso_autosize, waits_for_ack
from cctrace.tcp.sequence import unwrap
from cctrace.tcp.small_queue import TIMER_SLACK_NS, is_throttled

HELD_PACKETS = 256  # more than wait in a small queue, with the ACKs between them
# By how much a packet may be later than pacing allows, besides a gap, as the replayed rate may be wrong.
PATIENCE_NS = 50_000
TASKLET_NS = 2_000  # from a departure until TCP continues, before which a process that the same interrupt woke may run
AT_ONCE_NS = 1_000  # within which no timer is involved: a few readings of a clock in steps of 256 ns
SAME_PASS_NS = 300  # within which packets are processed in one pass of softirqs; a clock may have steps of 256 ns
LATEST_NS = TIMER_SLACK_NS + SAME_PASS_NS  # by which fq's timer may be late
DOUBTFUL = 32  # super-packets for which the replayed rate is in doubt, after one that left too early
FEW_GROWN = 2  # segments that tcp_grow_skb takes from the next skb, at most, if an ACK makes room for two to four
MAX_SURE = 4  # short super-packets at one place of an skb, after which more are no further evidence that it ends there


def handled_ns(p, time_ns, is_sent):
    """Return when the stack processes a packet: for the sender's own, when it was captured."""
    return time_ns if is_sent else time_ns + p.ack_delay_ns


def next_data(p, sequence, first, direction, payload):
    """Return the first place from `first` on with data of the sender, the sequence's end if there are none near."""
    for j in range(first, min(sequence.size, first + HELD_PACKETS)):
        if direction[sequence[j]] == p.sender and payload[sequence[j]] > 0:
            return j
    return sequence.size


def super_packet(p, sequence, first, time_ns, direction, flags, seq, payload):
    """Return the last place of the super-packet whose data begin at place `first`, and its payload from there on.

    Its segments follow each other at once, and the last of several has PSH [Linux61] __tcp_transmit_skb.
    """
    q = sequence[first]
    last, size = first, np.int64(payload[q])
    j = first + 1
    while j < min(sequence.size, first + HELD_PACKETS) and not flags[sequence[last]] & PSH:
        q, before = sequence[j], sequence[last]
        if direction[q] == p.sender and payload[q] > 0:
            follows = (np.int64(seq[before]) + np.int64(payload[before])) & U32_MAX == np.int64(seq[q])
            if not follows or time_ns[q] - time_ns[before] >= p.same_skb_ns:
                return last, size
            last = j
            size += np.int64(payload[q])
        j += 1
    return last, size


def paced_until_ns(tp):
    """Return the earliest departure time of the next super-packet, capture clock, if the pacing rate is known."""
    return tp.wstamp_ns + tp.start_ns - CLOCK_START_US * 1000


def due_ns(tp):
    """Return when pacing releases the next super-packet, capture clock: by the replayed rate, else by the last gap."""
    if tp.rate_Bps > 0:
        return max(tp.clock_ns, paced_until_ns(tp))
    return max(tp.clock_ns, tp.group_end_ns + tp.gap_ns)


def waited_in_timer(tp, p, ns):
    """Return how late fq's timer released a packet that left at `ns`: at most its slack and a step of the clock.

    A packet that is due at its hand-over leaves at once, without the timer [Linux61] net/sched/sch_fq.c fq_dequeue. So
    do the first ones of a connection, which are not paced; if they seem late, the application wrote them later.
    """
    if p.fq == THROUGH_FQ and data_segs_out(tp) < UNPACED_SEGMENTS:
        return 0
    due = tp.clock_ns
    if p.fq == LATE_TIMER:
        due = tp.start_ns + (tp.last_ack_us - CLOCK_START_US) * 1000
    if tp.rate_Bps > 0:
        paced_ns = paced_until_ns(tp)
        if p.fq == THROUGH_FQ and paced_ns <= due and ns - due <= AT_ONCE_NS:
            return 0
        due = max(due, paced_ns)
    if p.fq == THROUGH_FQ and not tp.left_together and ns - tp.clock_ns > AT_ONCE_NS:
        return timer_late_ns(tp, ns - due)
    return min(max(ns - due, 0), LATEST_NS)


def timer_late_ns(tp, late_ns):
    """Return the lateness of a packet that fq's timer released; `late_ns` by the replayed rate.

    The timer fires at the end of its slack, unless another interrupt comes before [Linux61] hrtimer_interrupt. A packet
    that left before it was due shows that the replayed rate is too low; for the next DOUBTFUL ones the usual lateness
    is taken instead.
    """
    whole = late_ns >= TIMER_SLACK_NS - SAME_PASS_NS
    tp.whole_slacks += 1 if whole else -1
    tp.doubtful_rates = DOUBTFUL if late_ns < -SAME_PASS_NS else max(tp.doubtful_rates - 1, 0)
    late_ns = min(max(late_ns, 0), LATEST_NS)
    if whole:
        tp.usual_late_ns = late_ns
    return tp.usual_late_ns if tp.whole_slacks > 0 and tp.doubtful_rates > 0 else late_ns


def waits_in_fq(tp, ns):
    """Return whether data written at `ns` wait in fq; if not, their departure is a better estimate of the write."""
    return tp.hands_over and (tp.wmem_alloc > 0 or paced_until_ns(tp) > ns)


def may_wait_ns(tp):
    """Return how much longer than pacing explains a packet may wait in fq: a super-packet's time, as rates have errors.

    If fq is empty and the packet is due, it leaves at once: one that left later had not been handed over [Linux61]
    sch_fq.c fq_dequeue.
    """
    if tp.rate_Bps <= 0:
        return tp.gap_ns
    if tp.wmem_alloc == 0 and paced_until_ns(tp) <= tp.clock_ns:
        return 0
    return max(tp.gap_ns, tp.skb_bytes * 1_000_000_000 // tp.rate_Bps)


def leaves_with_ack(p, sequence, k, first, time_ns, direction):
    """Return whether an ACK after place `k`, not fq's timer, releases the packet at place `first`, at once."""
    j = first - 1
    while j > k and direction[sequence[j]] == p.sender:
        j -= 1
    return j > k and time_ns[sequence[first]] - handled_ns(p, time_ns[sequence[j]], False) <= AT_ONCE_NS


def longest(tp, rate_Bps):
    """Return the bytes of the longest super-packet at a pacing rate of any kernel; `tp.tso_segs` is this one's."""
    return tso_autosize(rate_Bps, near_peer_bytes(GSO_MAX_SIZE_5_19, tp.tcp_min_rtt_us), tp.mss, MIN_TSO_SEGS) * tp.mss


def written_by_now(tp, due):
    """Return up to which position the application has written, if it is known when its writes were `due`."""
    while tp.next_due < due.shape[0] and due[tp.next_due, 0] <= tp.clock_ns:
        tp.next_due += 1
    if due.shape[0] == 0:
        return NEVER
    return due[tp.next_due - 1, 1] if tp.next_due > 0 else np.int64(0)


def is_too_short(tp, seg, size, written):
    """Return whether TCP would have made a longer super-packet than `size` now, or waited for more room in cwnd.

    A super-packet has what rate and cwnd allow of the data that are `written`, but for a short end, which may wait. One
    that was split off when TCP Small Queues held it back keeps its size.
    """
    full, left = tp.tso_segs * tp.mss, left_of_skb(tp, tp.snd_nxt)
    room = (tp.cwnd - sb.in_flight(tp)) * tp.mss
    made = min(full, room, written // tp.mss * tp.mss)
    if tp.cut_seq == tp.snd_nxt or left == size or left < size == made:  # an skb ends, or grows into the room
        return False
    ends = size % tp.mss != 0  # it ends a write, and may wait for room, too, unless it is one segment
    if full <= size or tp.ca_state >= CA_RECOVERY or (ends and (size < tp.mss or tp.head == tp.tail)):
        return False
    if not ends and (size < made or tp.head == tp.tail):
        return size < made and 2 * size != made  # two of half the size: an skb ends between them
    third = min(tp.cwnd * tp.mss, tp.snd_wnd) // TSO_WIN_DIVISOR
    age_ns = (tp.now_us - seg[tp.head & (seg.size - 1)].tx_us) * 1000
    return waits_for_ack(room, full, third, tp.now_us * 1000 - tp.wstamp_ns, age_ns, tp.srtt_us8 * 125)


def ends_skb(tp, p, sequence, last, end, size, packets):
    """Return whether the end of its skb cut a super-packet that ends at place `last`: the next one is longer.

    If TCP had handed it over later, at a lower rate, the next one would be as short.
    """
    time_ns, direction, flags, seq, _, _, payload, _, _, _, _, _, _ = packets
    first = next_data(p, sequence, last + 1, direction, payload)
    if first == sequence.size or unwrap(seq[sequence[first]], p.isn, tp.snd_nxt) != end:
        return False
    _, longer = super_packet(p, sequence, first, time_ns, direction, flags, seq, payload)
    return longer > size


def may_hand_over(tp, seg, ns, a, b, flag, with_ack):
    """Return whether TCP hands over, now, the super-packet [a, b) that left at `ns` [Linux61] tcp_write_xmit.

    tcp_tso_should_defer need not be asked: had TCP waited for more room, the super-packet would have been longer.
    `flag`: the flags of its last segment. `with_ack`: whether it left when a later ACK came, whose interrupt runs a
    timer that is about to fire.
    """
    size = b - a
    if size <= tp.mss and flag & PSH:
        tp.skb_end, tp.skb_sure = b, MAX_SURE
    late_ns = ns - due_ns(tp)
    if late_ns > may_wait_ns(tp) + PATIENCE_NS or (with_ack and late_ns > LATEST_NS):
        return False
    segments, whole = (size + tp.mss - 1) // tp.mss, size
    is_retransmission = a < tp.snd_nxt
    if is_retransmission:
        s = seg[sb.find(tp, seg, a) & (seg.size - 1)]
        if a < tp.snd_una or s.flags & (SACKED | LOST | RETRANS) != LOST:
            return False
        segments, whole = 1, s.skb_end - a
    elif b > tp.snd_una + tp.snd_wnd:
        return False
    room = tp.cwnd - sb.in_flight(tp) if tp.cwnd else segments
    if room <= 0:
        return False
    skbs = 0 if tp.head == tp.tail else 1 if is_single(tp, seg) else 2
    # tcp_write_xmit splits new data for the present rate before this check, and tcp_grow_skb adds to what had to wait;
    # of a lost skb, tcp_retransmit_skb splits off what is sent after it.
    most = tp.tso_segs * tp.mss if tp.tso_segs > 0 else longest(tp, tp.rate_Bps)
    made = whole if is_retransmission or tp.rate_Bps <= 0 else min(size, most, room * tp.mss)
    if is_throttled(tp.wmem_alloc, tp.skb_overhead + made, max(tp.rate_Bps, 0), is_retransmission, skbs):
        tp.tsq_throttled, tp.cut_seq = 1, a
        return False
    return segments <= room


def note_made(tp, a, size, since_ns):
    """Note the hand-over of a super-packet that begins at `a` and leaves `since_ns` after the packet before it.

    From sizes, learn where the skbs of a long write end: where a super-packet is shorter than both its neighbours (the
    one that ends at `a`). Since Linux 6.10 such a one may take a little of the next skb to fill the room in cwnd
    (tcp_grow_skb), so the earlier of two places counts. Other short ones rarely end twice at the same place of an skb,
    and do not outweigh a place at which many ended.
    """
    tp.left_together = 1 if since_ns <= AT_ONCE_NS else 0
    if a < tp.snd_nxt:
        return
    if tp.handed_bytes < min(tp.prior_handed_bytes, size) and tp.ca_state < CA_RECOVERY:
        full, few = full_skb(tp), FEW_GROWN * tp.mss
        past = (a - tp.skb_end) % full
        if tp.skb_end == 0 or past > few:
            apart = (a - tp.short_end + few) % full - few
            if apart <= few:
                tp.skb_sure -= 1
            if apart <= few and tp.skb_sure < 0:
                tp.skb_end, tp.skb_sure = a - max(apart, 0), 0
        else:
            tp.skb_sure = min(tp.skb_sure + 1, MAX_SURE)
        tp.short_end = a
    tp.prior_handed_bytes, tp.handed_bytes = tp.handed_bytes, size


def is_ack_first(p, sequence, k, time_ns, direction):
    """Return whether an ACK is processed before TCP continues because the packet at place `k` has left.

    TCP continues in a tasklet, which runs after packets are received [Linux61] include/linux/interrupt.h
    NET_RX_SOFTIRQ.
    """
    until_ns = time_ns[sequence[k]] + SAME_PASS_NS
    for j in range(k + 1, sequence.size):
        if time_ns[sequence[j]] > until_ns:
            return False
        if direction[sequence[j]] != p.sender:
            return True
    return False


def is_single(tp, seg):
    """Return whether the outstanding data are a single super-packet."""
    mask = seg.size - 1
    return seg[tp.head & mask].skb_end == seg[(tp.tail - 1) & mask].skb_end


def leave(tp, payload, is_last):
    """Remove a segment that leaves fq; return whether TCP, which waited for its super-packet to leave, continues."""
    tp.wmem_alloc -= payload
    if not is_last:
        return False
    tp.wmem_alloc -= tp.skb_overhead
    waited = tp.tsq_throttled != 0
    tp.tsq_throttled = 0
    return waited
