"""Re-enactment of the sender's TCP: one pass over a connection's packets that keeps the kernel's state.

The kernel's *decisions* are visible in the packets (what it sent and when); its *knowledge* is computed from the
ACKs by the kernel's own rules (`acks.py`, `scoreboard.py`, `recovery.py`, `rtt_filters.py`, `ratesample.py`). Where
the two conflict, the packets win: see `reasons.explain`.

Time: a packet counts from when the stack processed it. Packets are taken in file order and the clock never runs
backwards: a record with an older time than its predecessor was queued (or its CPU stalled) before the stack saw it.
An ACK is processed `ack_delay_ns` after its time stamp; TCP stamped a segment `tx_delay_ns` before its.
"""

import numpy as np

from cctrace.flows.sender import reasons, recovery, rtt_filters, sends, timers
from cctrace.flows.sender import scoreboard as sb
from cctrace.flows.sender.acks import clear, on_ack, update_rtt
from cctrace.flows.sender.dry import SAME_LOOP_NS
from cctrace.flows.sender.emitting import emit
from cctrace.flows.sender.handover import waited_in_timer
from cctrace.flows.state import DIRECTLY, PACED, PARAM, SNAP, THROUGH_FQ, TP
from cctrace.lang.memory import CopyFields
from cctrace.schema import CLOCK_START_US, INIT, U32_MAX
from cctrace.tcp.ecn import ace_of
from cctrace.tcp.flags import CWR, FIN, PSH, SYN
from cctrace.tcp.rack import DEFAULT_REORDERING
from cctrace.tcp.rate import app_limited_until
from cctrace.tcp.rtt import FIRST_TIMEOUT_US
from cctrace.tcp.small_queue import SKB_OVERHEAD_BYTES

HELD_UP_US = 100_000  # no CPU sleeps for longer between the stamp and the transmission
SELDOM = 64  # of 1024
HELD_ACKS = 64  # more than arrive while one super-packet is sent
MAX_LONGER = 4  # times the usual gap: longer gaps are not between waiting packets
IDLE_US = 200  # a pipe empty for this long was left empty by the application


# What a connection's parameters say that its state has, too.
copy_parameters = CopyFields(*(name for name in TP.names or () if name in (PARAM.names or ())))
# What TCP_INFO answers; its other fields are computed.
copy_info = CopyFields(
    *(name for name in SNAP.names or () if name in (TP.names or ())),
    unacked="packets_out",
    sacked="sacked_out",
    lost="lost_out",
    retrans="retrans_out",
    time_ns="clock_ns",
    min_rtt="tcp_min_rtt_us",
    rto="rto_us",
    delivery_rate_app_limited="rate_app_limited",
)


def start(tp, p):
    """Reset `tp` for the connection with parameters `p`."""
    copy_parameters(tp, p)
    tp.rto_us = FIRST_TIMEOUT_US
    tp.expected_ace = -1
    tp.ce_bytes = 0 if p.has_syn else -1
    tp.hands_over = 1 if p.fq == THROUGH_FQ else 0
    tp.paced = 1024 if tp.hands_over else 0
    tp.skb_overhead = SKB_OVERHEAD_BYTES
    tp.list_head = -1
    tp.list_tail = -1
    tp.reordering = DEFAULT_REORDERING
    tp.reo_steps = 1
    tp.undo_retrans = -1
    tp.rate_app_limited = 1
    tp.next_app_limited = -1
    tp.queue_empty = 1
    tp.now_us = CLOCK_START_US
    tp.clock_ns = p.start_ns
    tp.group_end_ns = p.start_ns - (1 << 60)
    rtt_filters.reset_min(tp, CLOCK_START_US, U32_MAX)
    if not p.has_syn:
        tp.snd_una = 1
        tp.snd_nxt = 1
        tp.delivered = 1
        tp.rtt_seq = 1
        tp.queue_empty = 0
        tp.snd_wnd = U32_MAX  # unknown until the first ACK


def clock_us(ns, start_ns):
    """Return capture time `ns` on the connection's own clock."""
    return (ns - start_ns) // 1000 + CLOCK_START_US


def set_clock(tp, ns, start_ns):
    """Advance the clock to `ns`; it never runs backwards."""
    if ns > tp.clock_ns:
        tp.clock_ns = ns
        tp.now_us = clock_us(ns, start_ns)


def snapshot(tp, snap, row, poll):
    """Write TCP_INFO's answer in the current state."""
    r = snap[row]
    copy_info(r, tp)
    r.poll = poll
    r.rtt = tp.srtt_us8 >> 3
    r.rttvar = tp.mdev_us4 >> 2


def answer(tp, snap, at, polls, until_ns, start_ns):
    """Write the current state, which holds until `until_ns`, for every poll that it overlaps."""
    while at.poll < polls.shape[0] and polls[at.poll, 1] < tp.clock_ns:
        at.poll += 1
    i = at.poll
    while i < polls.shape[0] and polls[i, 0] < until_ns:
        snapshot(tp, snap, at.answered, i)
        at_us = clock_us(max(tp.clock_ns, polls[i, 0]), start_ns)
        if tp.busy_since_us:
            snap[at.answered].busy_time_us += at_us - tp.busy_since_us
        if tp.rwnd_since_us:
            snap[at.answered].rwnd_limited_us += max(0, at_us - tp.rwnd_since_us)
        at.answered += 1
        i += 1


def most_answers(polls, poll, until_ns):
    """Return how many polls, from number `poll` on, a state that lasts until `until_ns` can overlap."""
    i = poll
    while i < polls.shape[0] and polls[i, 0] < until_ns:
        i += 1
    return i - poll


def establish(tp, rs, out, ack):
    """The handshake is complete (or the capture begins): the controller is set up."""
    tp.established = 1
    clear(rs)
    rs.ack = ack
    emit(out, tp, rs, INIT, 0)


def past_tick(tp, us, ts):
    """Return how far `us` lies after the end of the tick of time stamp `ts`, us; 0 if it does not.

    TCP stamps a segment and takes its time at once: a segment captured later was held up in between, unless most
    are, because that clock drifts away from the capture's.
    """
    if not tp.ts_ok or tp.ts_tick_us > 1000 or tp.ts_late > SELDOM:  # coarser ticks are those of another clock
        return 0
    reads = us + tp.ts_offset_us
    ticks = (reads // tp.ts_tick_us - ts) & U32_MAX
    if ticks == 0 or ticks * tp.ts_tick_us > HELD_UP_US:
        return 0
    return reads - (reads // tp.ts_tick_us - ticks + 1) * tp.ts_tick_us + 1


def continues(tp, ns, ts):
    """Return whether a segment belongs to the super-packet before it [Linux] tcp_write_xmit.

    A segment without PSH that is followed this soon is not the last of its super-packet (the kernel sets PSH on the
    last segment of each); nor is one followed by a segment that was held up since the same tick. fq holds nothing up:
    its timer may be late, by less than what parts two super-packets.
    """
    since = ns - tp.group_end_ns
    if tp.group_psh or since < 0:
        return False
    return since < tp.same_skb_ns or (
        not tp.hands_over and ts == tp.group_ts and past_tick(tp, clock_us(ns, tp.start_ns), ts) > 0
    )


def same_loop_ns(tp):
    """Return how soon the next super-packet of a loop follows; at once where the segments of one do."""
    return min(SAME_LOOP_NS, tp.same_skb_ns)


def bring_forward(tp, p, order, k, time_ns, direction, payload, tsval):
    """Move the next data before the ACKs from place `k` of `order` on, if they were sent before these were processed.

    Either no ACK could have been processed by then, or the data belong to a super-packet being sent: the pacing
    timer's CPU held the socket.
    """
    ack_ns = time_ns[order[k]]
    last = min(order.size, k + HELD_ACKS)
    j = k + 1
    while (
        j < last
        and direction[order[j]] != p.sender
        and (not tp.group_psh or time_ns[order[j]] < ack_ns + same_loop_ns(tp))
    ):
        j += 1
    if j == last or direction[order[j]] != p.sender or payload[order[j]] == 0:
        return
    data = order[j]
    if time_ns[data] < ack_ns + p.ack_delay_ns or continues(tp, time_ns[data], tsval[data]):
        for i in range(j, k, -1):
            order[i] = order[i - 1]
        order[k] = data


def is_answered(p, order, k, time_ns, direction, payload):
    """Return whether the next packet is data released by the ACK at place `k`; no application is as fast."""
    if k + 1 == order.size or direction[order[k + 1]] != p.sender or payload[order[k + 1]] == 0:
        return False
    return time_ns[order[k + 1]] - time_ns[order[k]] <= 2 * (p.ack_delay_ns + p.tx_delay_ns)


def stamp_group(tp, p, ns, ts):
    """Set the time that TCP gave to the super-packet starting at `ns`: within its time stamp's tick."""
    if p.fq != DIRECTLY:
        ns -= waited_in_timer(tp, p, ns)
    tp.group_us = clock_us(ns - p.tx_delay_ns, p.start_ns)
    tp.group_ts = ts
    behind = (tp.group_us + tp.ts_offset_us) // tp.ts_tick_us - ts & U32_MAX
    tp.ts_late += ((1024 if 0 < behind < U32_MAX // 2 else 0) - tp.ts_late) >> 5
    past_us = past_tick(tp, tp.group_us, ts)
    tp.group_us -= past_us
    tp.group_ns = ns - p.tx_delay_ns - p.start_ns + (CLOCK_START_US - past_us) * 1000


def retransmit(tp, seg, rs, out, log, a, b, ts, begins):
    """The sender retransmits [a, b), all outstanding; it may be more of a super-packet, unless it `begins` one."""
    i = sb.find(tp, seg, a)
    why = reasons.explain(tp, seg, rs, out, i)
    while i < tp.tail and seg[i & (seg.size - 1)].seq < b:
        sends.retransmit(tp, seg, rs, out, log, i, tp.group_us, ts, why, not begins)
        begins = False
        i += 1


def join_group(tp, p, ns, a, payload, fl, ts):
    """Add a packet that begins at `a` to the group of those sent together, or begin another.

    Returns (ns since the packet before, whether it was sent together with that, whether it begins a super-packet).
    """
    since = ns - tp.group_end_ns
    together = since >= 0 and since < same_loop_ns(tp) if tp.group_psh else continues(tp, ns, ts)
    if not together:
        stamp_group(tp, p, ns, ts)
    if not together or tp.group_psh or a != tp.snd_nxt:
        tp.group_first = tp.tail
    begins = not together or tp.group_psh != 0
    if p.fq == THROUGH_FQ and begins and 0 < since < tp.tcp_min_rtt_us * 1000:  # pacing takes no round trip
        tp.gap_ns += (min(since, MAX_LONGER * tp.gap_ns) - tp.gap_ns) >> 2 if tp.gap_ns else since
    sends.pace(tp, payload, begins)
    tp.group_end_ns = ns
    tp.group_psh = 1 if fl & PSH else 0
    return since, together, begins


def send(tp, seg, rs, out, log, sent, p, ns, a, b, payload, fl, ts):
    """The sender transmits [a, b): new data, old data, or both."""
    since, together, begins = join_group(tp, p, ns, a, payload, fl, ts)
    tp.bytes_sent += payload
    is_retransmission = a < tp.snd_nxt
    if is_retransmission:
        late = sends.show_late(tp, a, b)
        if b <= tp.snd_una:
            if payload > 1 and not late:  # sent before the ACK that covers it was processed; one byte: a keep-alive
                tp.total_retrans += (payload + p.mss - 1) // p.mss
                tp.bytes_retrans += payload
            sends.note_sent(tp, sent, ns, payload, begins, True, False, False)
            return
        if tp.snd_una < tp.snd_nxt and not sends.show_reordered(tp, seg, a, min(b, tp.snd_nxt)):
            retransmit(tp, seg, rs, out, log, max(a, tp.snd_una), min(b, tp.snd_nxt), ts, begins)
        a = min(b, tp.snd_nxt)
        if a == b:
            if tp.cwnd:
                sends.account_window(tp, False)
            sends.note_sent(tp, sent, ns, payload, begins, True, False, False)
            return
        tp.group_first = tp.tail
    sends.fill_uncaptured(tp, seg, a)
    recovery.note_new_data(tp, a, fl & CWR != 0 and not is_retransmission)
    if not together and since > tp.same_skb_ns and (tp.paced > PACED or tp.queue_empty):
        sends.validate_cwnd(tp, False)  # only a timer or another write releases more before the next ACK
    idle_us = tp.now_us - max(tp.lsndtime_us, tp.rwnd_until_us)  # nothing was written for so long
    if tp.packets_out == 0 and idle_us > IDLE_US and not (tp.rwnd_since_us or tp.was_released) and p.has_syn:
        tp.queue_empty = 1
    probing = not together and sends.is_by_timer(tp) and timers.is_new_probe(tp, b - a)
    was_empty = tp.packets_out == 0
    limited = False
    if not together:
        if p.fq != THROUGH_FQ:
            sends.note_pacing(tp)
        limited = sends.before_send(tp, rs, out)
    if tp.busy_since_us == 0:
        tp.busy_since_us = tp.now_us
    flying = sb.in_flight(tp) + (b - a + p.mss - 1) // p.mss
    while tp.snd_nxt < b:
        end = min(tp.snd_nxt + p.mss, b)
        if b - end == 1 and fl & FIN:
            end = b  # a FIN takes a sequence number but no segment of its own
        sends.append(tp, seg, end, tp.group_us, ts, flying)
    tp.small_end = b if payload % p.mss != 0 else tp.small_end
    cut = sends.note_burst(tp, tp.tail - tp.group_first) if tp.group_psh else False
    for i in range(max(tp.group_first, tp.head), tp.tail):
        s = seg[i & (seg.size - 1)]
        s.skb_end = b
        s.tx_in_flight = flying
        s.tx_in_flight_v2 = flying
    tp.lsndtime_us = tp.now_us
    if probing:
        timers.on_probe(tp, 0)
    else:
        timers.on_new_data(tp, seg, was_empty)
    ends = payload % p.mss != 0 and sends.ends_write(tp, b, b - payload % p.mss) and fl & (PSH | FIN) != 0
    tp.queue_empty = 1 if ends else tp.queue_empty
    sends.account_window(tp, cut)
    tp.unvalidated = 1
    sends.note_sent(tp, sent, ns, payload, begins, is_retransmission, limited, ends)


def accept(tp, rs, out, ack, ack_seq, window):
    """The ACK that completes a handshake which the receiver of the data began [Linux] tcp_rcv_state_process."""
    tp.snd_una = 1
    tp.snd_nxt = 1
    tp.delivered = 1
    tp.snd_wnd = window
    tp.max_window = window
    tp.snd_wl1 = ack_seq
    if tp.synack_us > 0:
        clear(rs)
        rs.flag |= sb.SYN_ACKED
        rtt_us = tp.now_us - tp.synack_us
        update_rtt(tp, rs, rtt_us, -1, rtt_us)
    establish(tp, rs, out, ack)


def receive(tp, seg, rs, out, log, p, blocks, count, a, ack_seq, window, has_data, fl, waiting):
    """The sender receives an ACK, which releases `waiting` data."""
    if p.passive and not tp.established:
        accept(tp, rs, out, a, ack_seq, window)
        if a <= 1:
            return
    if a > tp.snd_nxt:
        tp.late_low = tp.late_low if tp.late_high == tp.snd_nxt else tp.snd_nxt
        tp.late_high = a
        sends.fill_uncaptured(tp, seg, a)
    before = tp.rows
    tp.last_ack_us = tp.now_us
    tp.was_released = 1 if waiting and not has_data else 0  # an application may respond to data at once
    if waiting:
        sends.wait_since_shut(tp)
    sends.validate_cwnd(tp, waiting)
    ace = -1 if fl & SYN else ace_of(np.int64(fl))
    on_ack(tp, seg, rs, out, log, blocks, count, a, ack_seq, window, has_data, ace)
    if tp.probing_rtt:  # so that rates of four packets in flight do not count [Linux] bbr_update_min_rtt
        tp.app_limited = app_limited_until(tp.delivered, sb.in_flight(tp))
    if tp.cwnd:
        sends.account_window(tp, False)
    elif not sends.window_binds(tp):
        sends.stop_window_clock(tp)  # data not sent now wait for cwnd, the pacing timer or the application
    if not tp.established:
        tp.rows = before  # the controller is set up when the handshake is complete
        if fl & SYN or not p.has_syn:
            establish(tp, rs, out, a)
    sends.note_shut(tp)
    if tp.packets_out == 0 and tp.busy_since_us and not tp.rwnd_since_us:  # data that wait for the window keep it busy
        tp.busy_time_us += tp.now_us - tp.busy_since_us
        tp.busy_since_us = 0
