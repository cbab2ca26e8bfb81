"""The congestion state machine of the sender: entering, leaving and undoing CWR, Recovery and Loss.

        Open <--> Disorder            SACKs or duplicate ACKs, nothing judged lost
          |          |
          | ECE      | a segment is lost              timeout (from any state)
          v          v                                      |
         CWR ---> Recovery ---(high_seq acknowledged)--> Open <--- Loss

Every call a congestion control would have received is written to the event stream where the kernel makes it.

Sources: [Linux] tcp_input.c: tcp_fastretrans_alert and below, tcp_enter_loss; RFC 5682 (F-RTO); RFC 3522 (Eifel).
"""

from cctrace.cc import linux
from cctrace.flows.sender import scoreboard as sb
from cctrace.flows.sender import skbs, timers
from cctrace.flows.sender.emitting import emit
from cctrace.flows.sender.reno_sacks import add_reno_sack
from cctrace.flows.state import EVER_RETRANS, LOST, SACKED
from cctrace.schema import CWND_EVENT, SET_STATE, SSTHRESH, UNDO_CWND
from cctrace.tcp.ecn import CLASSIC_ECN
from cctrace.tcp.probe import TIMEOUT_MIN_US
from cctrace.tcp.rack import DEFAULT_REORDERING, REO_WND_PERSIST
from cctrace.tcp.rtt import whole_ticks
from cctrace.tcp.undo import FRTO_SEND_NEW, FRTO_SPURIOUS, FRTO_WAIT, frto_finding, original_arrived, was_needless


def set_state(tp, rs, out, state):
    """Change the congestion state, calling the controller first."""
    emit(out, tp, rs, SET_STATE, state)
    tp.ca_state = state


def any_retrans_done(tp, seg):
    """Return whether retransmissions are out, or the head was ever retransmitted."""
    if tp.retrans_out:
        return True
    return tp.head < tp.tail and seg[tp.head & (seg.size - 1)].flags & EVER_RETRANS != 0


def echo_before(tp, stamp):
    """Return whether this ACK echoes a time stamp older than `stamp` [Linux] tcp_tsopt_ecr_before."""
    return tp.ts_ok != 0 and tp.tsecr != 0 and ((tp.tsecr - stamp) & 0xFFFFFFFF) > 0x7FFFFFFF


def packet_delayed(tp):
    """Return whether the ACK answers an original sent before the first retransmission (Eifel)."""
    may_reopen = tp.sack_ok != 0 or tp.snd_una < tp.high_seq
    return original_arrived(tp.retrans_stamp, echo_before(tp, tp.retrans_stamp), may_reopen)


def may_undo(tp):
    """Return whether the reduction has proved spurious."""
    return was_needless(tp.has_undo != 0, tp.undo_retrans, packet_delayed(tp))


def init_undo(tp):
    """Store the start of recovery, so that it can be undone."""
    tp.has_undo = 1
    tp.undo_marker = tp.snd_una
    tp.undo_retrans = tp.retrans_out
    if tp.tlp_high_seq and tp.tlp_retrans:
        tp.undo_retrans += 1
    if tp.undo_retrans == 0:
        tp.undo_retrans = -1  # 0 would mean "all retransmissions were needless"


def undo(tp, seg, rs, out, unmark):
    """Undo a cwnd reduction [Linux] tcp_undo_cwnd_reduction."""
    if unmark:
        mask = seg.size - 1
        for i in range(tp.head, tp.tail):
            seg[i & mask].flags &= ~LOST
        tp.lost_out = 0
    if tp.may_undo_cwnd:
        emit(out, tp, rs, UNDO_CWND, 0)
    tp.has_undo = 0
    tp.rack_advanced = 1


def init_reduction(tp, rs, out):
    """Start reducing cwnd: the controller sets ssthresh [Linux] tcp_init_cwnd_reduction."""
    early = tp.cwr_seq >= tp.snd_una  # that of an older one has been acknowledged
    tp.high_seq = tp.cwr_seq if early else tp.snd_nxt
    tp.cwr_seq = 0 if early else -1
    tp.reduced_us = tp.now_us
    tp.tlp_high_seq = 0
    emit(out, tp, rs, SSTHRESH, 0)


def note_new_data(tp, seq, cwr):
    """Take from the CWR flag of new data where the latest reduction began: its first new data carry it.

    `seq`: where the data begin. `cwr`: whether they carry it [Linux] tcp_ecn_send. This is exact where departure times
    are estimates, or those from fq: by these, the reduction's ACK may precede data that were sent before it. CWR would
    end too early, and the echo, which goes on until the receiver has this packet, would cause a second reduction.
    """
    if tp.ecn != CLASSIC_ECN:
        return
    if cwr:
        if tp.cwr_seq < 0 and tp.ca_state >= linux.CA_CWR:
            tp.high_seq = seq
        tp.cwr_seq = 0 if tp.cwr_seq < 0 else seq
    elif tp.cwr_seq < 0 and tp.now_us - tp.reduced_us > tp.srtt_us8 >> 4:
        tp.cwr_seq = 0  # its packet was lost before the capture point


def end_reduction(tp, rs, out):
    """Finish reducing cwnd; only controllers without cong_control are called."""
    emit(out, tp, rs, CWND_EVENT, linux.EVENT_COMPLETE_CWR)


def enter_recovery(tp, seg, rs, out, ece):
    """Enter fast recovery."""
    if not any_retrans_done(tp, seg):
        tp.retrans_stamp = 0
    tp.may_undo_cwnd = 0
    init_undo(tp)
    if tp.ca_state != linux.CA_CWR and tp.ca_state != linux.CA_RECOVERY:
        if not ece:
            tp.may_undo_cwnd = 1
        init_reduction(tp, rs, out)
    set_state(tp, rs, out, linux.CA_RECOVERY)


def enter_cwr(tp, rs, out):
    """React to an ECN echo."""
    tp.may_undo_cwnd = 0
    if tp.ca_state < linux.CA_CWR:
        tp.has_undo = 0
        init_reduction(tp, rs, out)
        set_state(tp, rs, out, linux.CA_CWR)


def enter_loss(tp, seg, rs, out):
    """The retransmission timer fired [Linux] tcp_enter_loss."""
    mask = seg.size - 1
    new_recovery = tp.ca_state < linux.CA_RECOVERY
    reneging = tp.head < tp.tail and seg[tp.head & mask].flags & SACKED
    if reneging:  # the receiver dropped what it had SACKed: forget all SACKs
        tp.sacked_out = 0
        tp.is_reneg = 1
    elif not tp.sack_ok:
        tp.sacked_out = 0
    i = tp.head
    while i < tp.tail:
        first, end = skbs.skb_of(tp, seg, i)
        if reneging:
            for k in range(first, end):
                seg[k & mask].flags &= ~SACKED
        if reneging or i == tp.head or tp.rack_rtt_us - (tp.now_us - seg[i & mask].tx_us) <= 0:  # not sent too recently
            sb.mark_lost(tp, seg, i, rs, out)
        i = end
    first = tp.ca_state <= linux.CA_DISORDER or tp.high_seq <= tp.snd_una
    if first or (tp.ca_state == linux.CA_LOSS and tp.retransmits == 0):
        tp.may_undo_cwnd = 1
        emit(out, tp, rs, SSTHRESH, 0)
        emit(out, tp, rs, CWND_EVENT, linux.EVENT_LOSS)
        init_undo(tp)
    if tp.ca_state <= linux.CA_DISORDER and tp.sacked_out >= DEFAULT_REORDERING:
        tp.reordering = min(tp.reordering, DEFAULT_REORDERING)
    set_state(tp, rs, out, linux.CA_LOSS)
    tp.high_seq = tp.snd_nxt
    tp.tlp_high_seq = 0
    tp.frto = 1 if new_recovery or tp.retransmits else 0
    tp.retransmits += 1


def try_keep_open(tp, seg, rs, out):
    """Choose between Open and Disorder."""
    left = tp.sacked_out + tp.lost_out
    state = linux.CA_DISORDER if left or any_retrans_done(tp, seg) else linux.CA_OPEN
    if tp.ca_state != state:
        set_state(tp, rs, out, state)
        tp.high_seq = tp.snd_nxt


def try_to_open(tp, seg, rs, out, flag):
    """Leave recovery if nothing is left of it."""
    if not any_retrans_done(tp, seg):
        tp.retrans_stamp = 0
    if flag & sb.F_ECE:
        enter_cwr(tp, rs, out)
    if tp.ca_state != linux.CA_CWR:
        try_keep_open(tp, seg, rs, out)


def preventing_reopen(tp, seg):
    """Without SACK, hold the state until something above high_seq is acknowledged (RFC 2582)."""
    if tp.snd_una == tp.high_seq and not tp.sack_ok:
        if not any_retrans_done(tp, seg):
            tp.retrans_stamp = 0
        return True
    return False


def try_undo_recovery(tp, seg, rs, out):
    """Recovery is over; undo it if it was spurious. Return whether the state must be held."""
    if may_undo(tp):
        undo(tp, seg, rs, out, False)
    elif tp.reo_persist:
        tp.reo_persist -= 1
    if preventing_reopen(tp, seg):
        return True
    set_state(tp, rs, out, linux.CA_OPEN)
    tp.is_reneg = 0
    return False


def try_undo_dsack(tp, seg, rs, out):
    """Undo because D-SACKs reported every retransmission as needless."""
    if tp.has_undo and tp.undo_retrans == 0:
        tp.reo_persist = min(REO_WND_PERSIST, tp.reo_persist + 1)
        undo(tp, seg, rs, out, False)
        return True
    return False


def try_undo_loss(tp, seg, rs, out, frto):
    """Undo a spurious timeout."""
    if frto or may_undo(tp):
        undo(tp, seg, rs, out, True)
        tp.retransmits = 0
        if preventing_reopen(tp, seg):
            return True
        if frto or tp.sack_ok:
            set_state(tp, rs, out, linux.CA_OPEN)
            tp.is_reneg = 0
        return True
    return False


def try_undo_partial(tp, seg, rs, out, prior_una):
    """Process a partial ACK in Recovery due to a delayed original. Return whether to leave all unchanged."""
    if tp.has_undo and packet_delayed(tp):
        sb.check_reordering(tp, prior_una)
        if tp.retrans_out:
            return True
        if not any_retrans_done(tp, seg):
            tp.retrans_stamp = 0
        undo(tp, seg, rs, out, True)
        try_keep_open(tp, seg, rs, out)
    return False


def process_loss(tp, seg, rs, out, flag, dupacks):
    """Handle an ACK in Loss: undo, F-RTO, or done [Linux] tcp_process_loss."""
    recovered = tp.snd_una >= tp.high_seq
    if flag & sb.UNA_ADVANCED and try_undo_loss(tp, seg, rs, out, False):
        return
    if tp.frto:
        finding = frto_finding(
            flag & sb.ORIG_SACK_ACKED != 0,
            tp.snd_nxt > tp.high_seq,
            flag & sb.DATA_SACKED != 0 or dupacks != 0,
            flag & sb.UNA_ADVANCED != 0,
            recovered,
            not tp.queue_empty and tp.snd_una + tp.snd_wnd > tp.snd_nxt,
        )
        if finding == FRTO_SPURIOUS:
            try_undo_loss(tp, seg, rs, out, True)
            return
        if finding >= FRTO_SEND_NEW:
            tp.high_seq = tp.snd_nxt
        if finding == FRTO_SEND_NEW:
            return
        if finding != FRTO_WAIT:
            tp.frto = 0
    if recovered:
        try_undo_recovery(tp, seg, rs, out)
        return
    if not tp.sack_ok:
        if tp.snd_nxt > tp.high_seq and dupacks:
            add_reno_sack(tp, dupacks, flag & sb.F_ECE)
        elif flag & sb.UNA_ADVANCED:
            tp.sacked_out = 0


def identify_loss(tp, seg, rs, out):
    """Let RACK (or, without SACK, NewReno) mark losses, and arm its timer [Linux] tcp_identify_packet_loss."""
    if tp.head == tp.tail:
        return
    if not tp.sack_ok:
        advanced = rs.flag & sb.UNA_ADVANCED
        dup = tp.ca_state < linux.CA_RECOVERY and tp.sacked_out >= tp.reordering
        if (dup or (tp.ca_state == linux.CA_RECOVERY and advanced)) and not seg[tp.head & (seg.size - 1)].flags & LOST:
            if tp.head + 1 < tp.tail:
                skbs.fragment(tp, seg, tp.head + 1)
            sb.mark_lost(tp, seg, tp.head, rs, out)
        return
    prior = tp.retrans_out
    if tp.rack_advanced:
        tp.rack_advanced = 0
        wait = sb.rack_detect(tp, seg, rs, out)
        if wait:
            arm_reordering_timer(tp, wait)
            rs.flag &= ~sb.SET_TIMER
    if prior > tp.retrans_out:
        rs.flag |= sb.LOST_RETRANS


def arm_reordering_timer(tp, wait_us):
    """Arm RACK's timer: it fires at a tick, after the full wait; see `timers.tick_by`.

    A timer never fires early: [Linux] kernel/time/timer.c calc_index, `tcp.wheel`.
    """
    tp.reo_first_us = tp.now_us + whole_ticks(wait_us + TIMEOUT_MIN_US, 1_000_000 // tp.hz)
    tp.probe_us = 0


def reordering_timeout(tp, seg, rs, out):
    """RACK's timer fired: mark segments past their deadline [Linux] tcp_rack_reo_timeout."""
    tp.reo_first_us = 0
    prior = sb.in_flight(tp)
    sb.rack_detect(tp, seg, rs, out)
    if sb.in_flight(tp) != prior and tp.ca_state != linux.CA_RECOVERY:
        enter_recovery(tp, seg, rs, out, False)
    timers.resume_timeout(tp, seg)


def fastretrans_alert(tp, seg, rs, out, prior_una, dupacks):
    """Run the state machine for one dubious ACK [Linux] tcp_fastretrans_alert."""
    flag = rs.flag
    ece = flag & sb.F_ECE != 0
    if tp.packets_out == 0 and tp.sacked_out:
        tp.sacked_out = 0
    if ece:
        tp.may_undo_cwnd = 0
    if flag & sb.RENEGING and flag & sb.UNA_ADVANCED:
        rs.flag &= ~sb.SET_TIMER
        return

    if tp.ca_state == linux.CA_OPEN:
        tp.retrans_stamp = 0
    elif tp.snd_una >= tp.high_seq:
        if tp.ca_state == linux.CA_CWR:
            if tp.snd_una != tp.high_seq:
                end_reduction(tp, rs, out)
                set_state(tp, rs, out, linux.CA_OPEN)
        elif tp.ca_state == linux.CA_RECOVERY:
            if not tp.sack_ok:
                tp.sacked_out = 0
            if try_undo_recovery(tp, seg, rs, out):
                return
            end_reduction(tp, rs, out)

    if tp.ca_state == linux.CA_RECOVERY:
        if not flag & sb.UNA_ADVANCED:
            if not tp.sack_ok:
                add_reno_sack(tp, dupacks, ece)
        elif try_undo_partial(tp, seg, rs, out, prior_una):
            return
        if try_undo_dsack(tp, seg, rs, out):
            try_to_open(tp, seg, rs, out, flag)
        identify_loss(tp, seg, rs, out)
        if tp.ca_state != linux.CA_RECOVERY and tp.lost_out:
            enter_recovery(tp, seg, rs, out, ece)
        return
    if tp.ca_state == linux.CA_LOSS:
        process_loss(tp, seg, rs, out, flag, dupacks)
        identify_loss(tp, seg, rs, out)
        if not (tp.ca_state == linux.CA_OPEN or rs.flag & sb.LOST_RETRANS):
            return
    if not tp.sack_ok:
        if flag & sb.UNA_ADVANCED:
            tp.sacked_out = 0
        add_reno_sack(tp, dupacks, ece)
    if tp.ca_state <= linux.CA_DISORDER:
        try_undo_dsack(tp, seg, rs, out)
    identify_loss(tp, seg, rs, out)
    if tp.lost_out == 0:
        try_to_open(tp, seg, rs, out, flag)
    else:
        enter_recovery(tp, seg, rs, out, ece)


def process_tlp_ack(tp, seg, rs, out):
    """End a tail-loss-probe episode [Linux] tcp_process_tlp_ack."""
    flag = rs.flag
    if rs.ack < tp.tlp_high_seq:
        return
    rs.is_acking_tlp_retrans = tp.tlp_retrans
    if not tp.tlp_retrans or flag & sb.DSACK_TLP:
        tp.tlp_high_seq = 0
    elif rs.ack > tp.tlp_high_seq:  # the probe repaired a loss
        emit(out, tp, rs, CWND_EVENT, linux.EVENT_TLP_RECOVERY)
        init_reduction(tp, rs, out)
        set_state(tp, rs, out, linux.CA_CWR)
        end_reduction(tp, rs, out)
        try_keep_open(tp, seg, rs, out)
    elif not flag & (sb.UNA_ADVANCED | sb.NOT_DUP | sb.DATA_SACKED):
        tp.tlp_high_seq = 0
