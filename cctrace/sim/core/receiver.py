"""The receiver: reassembly, and when it acknowledges.

A receiver acknowledges every n-th segment in order, and disorder at once. Linux (profile `linux`, `ack_every=2`)
compresses the latter since 4.18. While there is a hole, the first three arrivals after each move of the left edge
are acknowledged at once, and so are reports that exceed the SACK blocks that fit. Others wait for a timer of 5 % of
its RTT, at most a millisecond, plus a tenth of a millisecond slack. After a duplicate, up to sixteen ACKs are
immediate.
It refuses packets older, by their time stamp, than what arrived in order: new data overtaken by retransmissions.
Function names are the kernel's ([Linux618] tcp_input.c).
"""

from cctrace.lang.memory import words
from cctrace.sim.acks import DELAYED
from cctrace.sim.core import receive_window, structs
from cctrace.sim.core.bottleneck import has_turn, losing, step_up
from cctrace.sim.core.lateness import lateness
from cctrace.sim.core.positions import begins, lack_before, length
from cctrace.sim.core.quic_receiver import quic_at_once
from cctrace.sim.core.quick_acks import ato_min, enter_quickack_mode, leave_quickack_mode, note_pause, quick, ticks_of
from cctrace.sim.core.rings import grow_acks, is_full
from cctrace.sim.core.rng import PATH_STREAM, uniform
from cctrace.sim.core.sack_blocks import coalesce_blocks, forget_blocks
from cctrace.sim.core.tap import tap
from cctrace.tcp.ecn import ACCURATE_ECN, ACE_START
from cctrace.tcp.rtt import RTO_MIN_US
from cctrace.tcp.wheel import fires_ns

COMPRESSED_NS = 1_000_000  # longest that an ACK is held back: sysctl tcp_comp_sack_delay_ns
COMPRESSION_SLACK_NS = 100_000  # tcp_comp_sack_slack_ns; an idle host's timer fires at its end
PAWS_WINDOW_MS = 1  # TCP_PAWS_WINDOW
KEPT_BLOCKS = 4  # that the receiver remembers, TCP_NUM_SACKS
SENT_BLOCKS = 2  # that an ACK is sure to carry, TCP_SACK_BLOCKS_EXPECTED
MAX_BLOCKS = 3  # that fit into an ACK beside time stamps


def receive(w, f, order, now):
    """Process the arrival of a transmission: log it, and acknowledge according to policy [RFC5681] §4.2."""
    sent = structs.transmissions(f.tx)[order & f.mask]
    segment = sent.seg
    stamp_ms = sent.ns // 1_000_000
    if f.profile == structs.LINUX and stamp_ms < f.ts_recent_ms - PAWS_WINDOW_MS:
        discard_old(w, f, order, segment, now)
        return
    echo_changed = f.ecn > 0 and take_marks(w, f, sent.marks, now)
    if f.profile == structs.LINUX:
        linux_receive(w, f, order, segment, stamp_ms, echo_changed, now)
    else:
        plain_receive(w, f, order, segment, now)
    if f.rcv_read < f.rcv_nxt:
        read(w, f, now)


def read(w, f, now):
    """tcp_recvmsg, by a process that data wake at `now`; it reads the clock (tcp_rcv_space_adjust)."""
    if w.one_host == 1:
        now = has_turn(w, now) + w.clock_read_ns
    receive_window.read(f, now)
    cleanup_rbuf(w, f, now)


def plain_receive(w, f, order, segment, now):
    """A receiver of the golden vectors, TCP's or QUIC's."""
    f.rcv_mstamp = now
    log_arrival(f, order, order, now)
    at_once = segment != f.rcv_nxt
    mark_received(w, f, segment, now)
    if f.profile == structs.QUIC:  # [RFC9000] §13.2.1: a gap in the packet numbers, whatever data they carry
        at_once = quic_at_once(f, order)
        f.unacked_data = 0 if at_once else f.unacked_data + 1
    else:  # the golden vectors' receivers count these across the ACKs that disorder causes
        filled = not at_once and f.rcv_nxt > segment + 1  # a hole, all of it or in part
        f.unacked_data += f.ack_every if filled else 0 if at_once else 1
    if f.ack_slot_ns > 0:
        acknowledge_in_slot(f, now)
    elif f.unacked_data >= f.ack_every:
        f.unacked_data = 0
        send_ack(w, f, now)
    elif at_once:
        send_ack(w, f, now)
    elif f.delack_at == structs.NEVER:
        f.delack_at = now + f.delack_ns


def linux_receive(w, f, order, segment, stamp_ms, echo_changed, now):
    """tcp_data_queue."""
    f.rcv_duplicate = 0
    f.ack_scheduled = 1
    f.rcv_mstamp = now
    if f.rcv_first_rtt == 0:
        f.rcv_first_rtt = (now - f.syn_ack_ns) // 1000  # tcp_synack_rtt_meas
    receive_window.measure_rtt(f, now, structs.transmissions(f.tx)[order & f.mask].marks >> structs.ECHO, segment)
    holes = f.rcv_high > f.rcv_nxt
    in_order = segment == f.rcv_nxt
    logged = f.log_next
    reported = segment > f.rcv_nxt and f.ack_every == DELAYED and note_block(w, f, order, segment, now)
    if in_order and f.ack_every == DELAYED:
        note_pause(f, now)
        f.rcv_pushed |= (
            structs.transmissions(f.tx)[order & f.mask].marks & structs.PUSHED > 0 or length(f, segment) < f.mss
        )
    if f.log_next == logged:
        log_arrival(f, order, segment, now)
    note_stamp(f, stamp_ms, segment)
    mark_received(w, f, segment, now)
    if in_order and f.n_blocks > 0:
        forget_blocks(f)
    at_once = (f.ack_every == DELAYED and quick(f, segment)) or echo_changed
    if not reported:
        acknowledge(w, f, in_order, holes, at_once, now)


def acknowledge(w, f, in_order, holes, at_once, now):
    """__tcp_ack_snd_check, of a segment that may have come `in_order`, where there were `holes` or not."""
    disorder = f.rcv_high > f.rcv_nxt
    if f.ack_slot_ns > 0:
        acknowledge_in_slot(f, now)
    elif not (holes or disorder or at_once) and (in_order or f.ack_every == DELAYED):  # as most: asked first
        f.unacked_data += 1
        if f.unacked_data >= f.ack_every and (f.ack_every != DELAYED or receive_window.keeps_window(f)):
            send_ack(w, f, now)
        elif f.ack_every == DELAYED:
            delay_ack(w, f, now)
        elif f.delack_at == structs.NEVER:
            f.delack_at = now + f.delack_ns
    elif disorder and in_order and f.rcv_nxt - f.rcv_acked > 1 and receive_window.keeps_window(f):
        send_ack(w, f, now)  # not one of the three duplicate ACKs
    elif at_once or not disorder or f.ack_every != DELAYED:
        send_ack(w, f, now)
    else:
        acknowledge_disorder(w, f, now)


def cleanup_rbuf(w, f, now):
    """tcp_cleanup_rbuf: once read, the end of a burst (PSH) and what had no room unread are acknowledged, and so is a
    window that has doubled.
    """
    if f.ack_every != DELAYED or f.profile != structs.LINUX or f.ack_slot_ns > 0:
        return
    due = f.rcv_nxt - f.rcv_acked > 1 or (f.rcv_pushed == 1 and f.rcv_held == 0)
    if (f.rcv_nxt > f.rcv_acked and due) or receive_window.has_doubled(f):
        f.delack_at = f.rcv_mstamp = now


def discard_old(w, f, order, segment, now):
    """tcp_paws_discard, tcp_send_dupack: a time stamp behind the newest in order [RFC7323] §5.

    An original overtaken by a retransmission cannot be distinguished from a packet of an earlier use of its
    sequence numbers.
    """
    tap(f, now, structs.TAP_DISCARDED, structs.transmissions(f.tx)[order & f.mask].marks, order)
    f.n_discarded += 1
    f.n_ce += structs.transmissions(f.tx)[order & f.mask].marks & structs.CE > 0
    if segment < f.rcv_nxt:
        f.rcv_duplicate = segment + 1
        if f.ack_every == DELAYED:
            enter_quickack_mode(f)
    send_ack(w, f, now)


def delay_ack(w, f, now):
    """tcp_send_delayed_ack; the receiver's only RTT sample is that of the handshake."""
    least, ato = ato_min(f), f.ato
    if ato > least:
        ato = min(ato, min(f.hz // 2, max(ticks_of(f, f.rcv_first_rtt), least)))
    ato = min(ato, f.hz // 5 - 1)
    due = fires_ns(now, ato, f.hz)
    if f.dack_pending == 1:
        if f.dack_at <= fires_ns(now, ato >> 2, f.hz):
            send_ack(w, f, now)
            return
        due = min(due, f.dack_at)
    f.dack_pending = 1
    f.dack_at = due


def delack_timer(w, f, now):
    """tcp_delack_timer_handler. An ACK does not stop the timer: it may end the compression of later ones, too."""
    f.dack_at = structs.NEVER
    f.rcv_mstamp = now
    if f.compressed > 0:
        send_ack(w, f, now)
    elif f.dack_pending == 1:
        f.ato = min(min(f.ato << 1, ticks_of(f, f.rcv_first_rtt + max(2 * f.rcv_first_rtt, RTO_MIN_US))), f.hz // 5)
        send_ack(w, f, now)


def acknowledge_disorder(w, f, now):
    """The latter half of __tcp_ack_snd_check: at once or compressed."""
    if f.compressed_at_nxt != f.rcv_nxt:
        f.compressed_at_nxt = f.rcv_nxt
        f.dup_acks = 0
    if f.dup_acks < 3 or f.compressed >= f.comp_sack_nr:
        f.dup_acks += 1
        send_ack(w, f, now)
        return
    f.compressed += 1
    if f.compressed == 1:
        delay = min(min(f.rcv_rtt8, f.rcv_first_rtt << 3) * 125 // 20, COMPRESSED_NS)
        f.delack_at = step_up(w, now + delay + COMPRESSION_SLACK_NS, structs.ANSWERS)
        f.comp_due_ns = now + delay


def acknowledge_in_slot(f, now):
    """Aggregation: ACKs leave at the end of the slot."""
    if f.delack_at == structs.NEVER:
        f.delack_at = (now // f.ack_slot_ns + 1) * f.ack_slot_ns


def log_arrival(f, order, logged, now):
    """Log an arrival, for the next ACK to report: its segment to Linux's sender, the transmission to others."""
    tap(f, now, structs.TAP_ARRIVED, structs.transmissions(f.tx)[order & f.mask].marks, order)
    if is_full(f.ack_mask, f.log_seen, f.log_next):
        grow_acks(f)
    words(f.log)[f.log_next & f.ack_mask] = logged
    f.log_next += 1


def note_block(w, f, order, segment, now):
    """tcp_sack_new_ofo_skb: blocks, last changed first. One that would not fit into a compressed ACK sends it.

    Return whether it did: no other ACK is due then (tcp_ack_snd_check). That ACK reports this segment if it extends a
    block that the ACK carries; one that begins a block, or extends the fourth, waits for the next ACK.
    """
    blocks = words(f.sack_blocks)
    if f.rcv_high <= f.rcv_nxt:
        f.n_blocks = 0
    at = 0
    while at < f.n_blocks and (segment + 1 < blocks[2 * at] or segment > blocks[2 * at + 1]):
        at += 1
    sends = at >= SENT_BLOCKS and f.compressed > 0
    if sends:  # tcp_sack_compress_send_ack
        if at < min(f.n_blocks, MAX_BLOCKS):
            log_arrival(f, order, segment, now)
        send_ack(w, f, now)
    left, right = segment, segment + 1
    if at < f.n_blocks:
        left, right = min(left, blocks[2 * at]), max(right, blocks[2 * at + 1])
    elif f.n_blocks < KEPT_BLOCKS:
        f.n_blocks += 1
    else:
        at -= 1
    while at > 0:
        blocks[2 * at], blocks[2 * at + 1] = blocks[2 * at - 2], blocks[2 * at - 1]
        at -= 1
    blocks[0], blocks[1] = left, right
    coalesce_blocks(f)
    return sends


def take_marks(w, f, marks, now):
    """tcp_ecn_accept_cwr, tcp_ecn_check_ce, dctcp_ece_ack_update; return whether the sender must be informed at once.

    With AccECN a receiver counts marks (tcp_ecn_received_counters), and every ACK has the count.
    """
    f.n_ce += marks & structs.CE > 0
    at_once = marks & structs.REDUCED > 0
    if at_once:
        f.demand_cwr = 0
    marked = 1 if marks & structs.CE else 0
    if f.ecn == ACCURATE_ECN:  # a change is reported at once, and so are two marks [RFC9768] 3.2.2.5.1
        at_once = marked == 1 and (f.ce_state == 0 or f.n_ce - f.ce_acked >= 2)
        f.ce_state = marked
    elif f.ecn == structs.ECHOED_ECN and marks & structs.ECT:
        if marked != f.ce_state:
            if f.unacked_data > 0:
                f.unacked_data = 0
                send_ack(w, f, now)  # what came before is acknowledged as it came
            at_once = True
        f.ce_state = marked
        f.demand_cwr = marked
    elif marked == 1 and f.demand_cwr == 0:
        f.demand_cwr = 1
        at_once = True
    return at_once


def note_stamp(f, stamp_ms, segment):
    """tcp_replace_ts_recent: echoed is the time stamp of the segment that last moved the left edge [RFC7323] §4.3.

    Duplicates from before it are refused (tcp_sequence) and do not count.
    """
    if f.rcv_acked - 1 <= segment <= f.rcv_acked and stamp_ms >= f.ts_recent_ms:
        f.ts_recent_ms = stamp_ms


def mark_received(w, f, segment, now):
    """Keep the receiver's window: a bit per segment beyond rcv_nxt."""
    if segment < f.rcv_nxt or (segment > f.rcv_nxt and words(f.got)[segment & f.mask] > 0):
        f.rcv_duplicate = segment + 1
        return
    if f.profile != structs.LINUX and segment == f.rcv_nxt == f.rcv_high:  # in order, and read at once
        f.goodput_bytes += f.mss
        f.rcv_read = f.rcv_nxt = f.rcv_high = segment + 1
        return
    if f.rcv_copied > 0:
        if segment == f.rcv_nxt:
            receive_window.measure_window_rtt(f, now)
        if f.rcv_ssthresh < receive_window.window_clamp(f):
            receive_window.grow_window(f, receive_window.held_by(f, segment))
    f.goodput_bytes += length(f, segment)
    receive_window.hold(f, segment)
    f.rcv_high = max(f.rcv_high, segment + 1)
    if segment == f.rcv_nxt:
        f.rcv_nxt = receive_window.join_waiting(f, segment)
        f.rcv_lack = lack_before(f, f.rcv_nxt)
    elif f.rcv_copied > 0 and f.kernel == structs.LINUX_6_18:
        receive_window.grow_buffer(f, f.rcv_copied)


def send_ack(w, f, now):
    """Acknowledge everything received so far, stamped with tcp_mstamp, which no timer of compressed SACKs refreshes."""
    f.delack_at = structs.NEVER
    f.n_acks += 1
    f.compressed = 0
    if f.quick_acks > 0 and f.ack_scheduled == 1:
        leave_quickack_mode(f)
    f.dack_pending = f.rcv_pushed = f.ack_scheduled = 0
    if f.profile == structs.LINUX or f.after_gap > 0:
        f.unacked_data = 0
    duplicate = f.rcv_duplicate
    f.rcv_duplicate = 0
    f.rcv_acked = f.rcv_nxt
    right = receive_window.advertise(f)
    f.ce_acked = f.n_ce
    said = f.n_ce if f.ecn == ACCURATE_ECN else f.demand_cwr
    stamp_ms = (f.rcv_mstamp + f.rcv_clock_ns) // 1_000_000
    if f.tap_size > 0:
        age_ms = (now + f.rcv_clock_ns) // 1_000_000 - stamp_ms
        noted = (said + ACE_START if f.ecn == ACCURATE_ECN else said) & 7 | age_ms << 3
        tap(f, now, structs.TAP_ACK, noted, min(right - begins(f, f.rcv_nxt), f.rwnd * f.mss))
    if w.ack_loss > 0.0:
        w.ack_loss_state = losing(w, w.ack_loss_state, w.ack_loss_p, w.ack_loss_r)
        if w.ack_loss_state == 1 and uniform(w, PATH_STREAM) < w.ack_loss:
            return
    set_out_ack(w, f, duplicate, said, right, stamp_ms, now)


def set_out_ack(w, f, duplicate, said, right, stamp_ms, now):
    """Put an ACK on its way back: `said` are the marks that it echoes, `right` is the edge of its window."""
    late = lateness(w, f.ack_late_ns) if f.ack_late_ns > 0 and w.window_ns == 0 else 0
    at = step_up(w, now + f.rev_ns + late, structs.ACKS)
    if is_full(f.ack_mask, f.ack_head, f.ack_tail):
        grow_acks(f)
    ack = structs.acks(f.ack)[f.ack_tail & f.ack_mask]
    ack.log = f.log_next
    told = structs.told(f.told)[f.ack_tail & f.ack_mask]
    if f.tap_size > 0:
        told.id = f.n_acks
    if f.profile == structs.LINUX:
        told.echo = f.ts_recent_ms
        told.stamp = stamp_ms
        told.dup = duplicate
        told.ece = said
        told.right = right
    f.ack_tail += 1
    if f.ack_late_ns > 0 and w.window_ns > 0:
        ack.ns = at  # as yet: see `windows.take_window`
        return
    ack.ns = f.last_ack = max(at, f.last_ack)
    if w.shared == 0:
        f.ack_queued = f.ack_tail
