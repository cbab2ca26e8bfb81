"""Congestion states of the Linux sender (profile `linux`): entered, left, and undone after spurious losses.

A recovery is spurious if every retransmission was answered by a D-SACK, or if an ACK that moves the left edge
echoes a time stamp from before the first retransmission. The latter takes no round trip: under reordering it ends
most recoveries, and prevents others until the current retransmissions are acknowledged. Segments marked lost are
therefore only retransmitted when `linux_alert` says so. Function names are the kernel's ([Linux618] tcp_input.c).
"""

from cctrace.cc.linux import CA_CWR, CA_DISORDER, CA_LOSS, CA_OPEN, CA_RECOVERY
from cctrace.sim.core.calls import set_state
from cctrace.sim.core.receive_window import window_left
from cctrace.sim.core.reduction import end_cwnd_reduction, enter_recovery, init_cwnd_reduction, undo_cwnd_reduction
from cctrace.sim.core.sack import check_reordering, identify_loss
from cctrace.sim.core.structs import EVER_RETRANS, segments
from cctrace.tcp import undo
from cctrace.tcp.rack import REO_WND_PERSIST

NOTHING, NEW_DATA, LOST_DATA = range(3)  # what an ACK lets go beside new data: REXMIT_NONE, _NEW (F-RTO), _LOST


def linux_alert(w, f, prior_una, advanced, sacked, now):
    """tcp_fastretrans_alert; returns what may be retransmitted."""
    if f.ece == 1:
        f.prior_ssthresh = 0
    if f.ca_state == CA_OPEN:
        f.retrans_stamp = 0
    elif f.una >= f.high_seq:
        if f.ca_state == CA_CWR and f.una != f.high_seq:
            end_cwnd_reduction(w, f, now)
            set_state(w, f, CA_OPEN, now)
        elif f.ca_state == CA_RECOVERY:
            try_undo_recovery(w, f, now)
            end_cwnd_reduction(w, f, now)
    if f.ca_state == CA_RECOVERY:
        return in_recovery(w, f, prior_una, advanced, now)
    rexmit = NOTHING
    if f.ca_state == CA_LOSS:
        rexmit = process_loss(w, f, advanced, sacked, now)
        again = identify_loss(w, f, now)
        if f.ca_state != CA_OPEN and not again:
            return rexmit
    if f.ca_state <= CA_DISORDER:
        try_undo_dsack(w, f, now)
    identify_loss(w, f, now)
    if f.lost_out == 0:
        try_to_open(w, f, now)
        return rexmit
    begin_recovery(w, f, now)
    return LOST_DATA


def in_recovery(w, f, prior_una, advanced, now):
    """The part of tcp_fastretrans_alert for Recovery: undone it may begin again, if there are losses after all."""
    if advanced and try_undo_partial(w, f, prior_una, now):
        return NOTHING
    if try_undo_dsack(w, f, now):
        try_to_open(w, f, now)
    identify_loss(w, f, now)
    if f.ca_state != CA_RECOVERY:
        if f.lost_out == 0:
            return NOTHING
        begin_recovery(w, f, now)
    return LOST_DATA


def begin_recovery(w, f, now):
    """tcp_enter_recovery."""
    cleanup_retrans_stamp(f)
    enter_recovery(w, f, now)


def enter_cwr(w, f, now):
    """tcp_enter_cwr: marks reduce the window like a loss, once per window, and nothing undoes it."""
    f.prior_ssthresh = 0
    if f.ca_state < CA_CWR:
        f.undo_marker = -1
        init_cwnd_reduction(w, f, now)
        set_state(w, f, CA_CWR, now)


def process_loss(w, f, advanced, sacked, now):
    """tcp_process_loss: was the timeout spurious (F-RTO [RFC5682])? Returns what may be retransmitted."""
    recovered = f.una >= f.high_seq
    if advanced and may_undo(f):
        undo_loss(w, f, now)
        return NOTHING
    if f.frto == 1:
        may_send_new = f.nxt < f.write_seq and window_left(f, 1) > 0
        sent_new = f.nxt > f.high_seq
        finding = undo.frto_finding(
            f.orig_sacked == 1, sent_new, sacked or not advanced, advanced, recovered, may_send_new
        )
        if finding == undo.FRTO_SPURIOUS:
            undo_loss(w, f, now)
            return NOTHING
        if finding >= undo.FRTO_SEND_NEW:
            f.high_seq = f.nxt
        if finding == undo.FRTO_SEND_NEW:
            return NEW_DATA
        if finding != undo.FRTO_WAIT:
            f.frto = 0
    if recovered:
        try_undo_recovery(w, f, now)
        return NOTHING
    return LOST_DATA


def undo_loss(w, f, now):
    """tcp_try_undo_loss, when it does."""
    undo_cwnd_reduction(w, f, True, now)
    f.retransmits = 0
    set_state(w, f, CA_OPEN, now)


def packet_delayed(f):
    """tcp_packet_delayed: nothing was retransmitted yet, or the ACK echoes a time stamp from before that."""
    return undo.original_arrived(f.retrans_stamp, 0 < f.echo_ms < f.retrans_stamp, True)


def may_undo(f):
    """tcp_may_undo."""
    return undo.was_needless(f.undo_marker >= 0, f.undo_retrans, packet_delayed(f))


def try_undo_partial(w, f, prior_una, now):
    """tcp_try_undo_partial: a late original filled the hole; returns whether to wait for retransmissions under way."""
    if f.undo_marker < 0 or not packet_delayed(f):
        return False
    check_reordering(f, prior_una)
    if f.retrans_out > 0:
        return True
    cleanup_retrans_stamp(f)
    undo_cwnd_reduction(w, f, True, now)
    try_keep_open(w, f, now)
    return False


def try_undo_dsack(w, f, now):
    """tcp_try_undo_dsack: every retransmission was answered by a D-SACK."""
    if f.undo_marker < 0 or f.undo_retrans != 0:
        return False
    f.reo_wnd_persist = min(REO_WND_PERSIST, f.reo_wnd_persist + 1)
    undo_cwnd_reduction(w, f, False, now)
    return True


def try_undo_recovery(w, f, now):
    """tcp_try_undo_recovery: the end of a recovery, undone if it was not needed."""
    if may_undo(f):
        undo_cwnd_reduction(w, f, False, now)
    elif f.reo_wnd_persist > 0:
        f.reo_wnd_persist -= 1
    set_state(w, f, CA_OPEN, now)


def any_retrans_done(f):
    """tcp_any_retrans_done."""
    return f.retrans_out > 0 or (f.una < f.nxt and segments(f.seg)[f.una & f.mask].marks & EVER_RETRANS > 0)


def cleanup_retrans_stamp(f):
    """tcp_retrans_stamp_cleanup."""
    if not any_retrans_done(f):
        f.retrans_stamp = 0


def try_to_open(w, f, now):
    """tcp_try_to_open."""
    cleanup_retrans_stamp(f)
    if f.ece == 1:
        enter_cwr(w, f, now)
    if f.ca_state != CA_CWR:
        try_keep_open(w, f, now)


def try_keep_open(w, f, now):
    """tcp_try_keep_open."""
    state = CA_DISORDER if f.sacked_out + f.lost_out > 0 or any_retrans_done(f) else CA_OPEN
    if state != f.ca_state:
        set_state(w, f, state, now)
        f.high_seq = f.nxt
