"""Why a segment is retransmitted.

A retransmission that loss detection did not request, or for which cwnd has no room, is explained by the timer that must
have fired: RACK's, the tail-loss probe's or the retransmission timer's. If none fits, it is `UNEXPLAINED`, and the
segment is considered lost.

Sources: [Linux] tcp_retransmit_skb, tcp_send_loss_probe, tcp_retransmit_timer.
"""

from cctrace.cc.linux import CA_CWR, CA_LOSS, CA_RECOVERY
from cctrace.flows import state
from cctrace.flows.sender import recovery, sends, timers
from cctrace.flows.sender import scoreboard as sb
from cctrace.flows.sender.acks import clear


def explain(tp, seg, rs, out, i):
    """Determine why the kernel retransmits segment `i`, updating the state; return the reason."""
    s = seg[i & (seg.size - 1)]
    clear(rs)
    rs.ack = tp.snd_una
    first_us = tp.reo_first_us
    if s.flags & state.SACKED or (s.flags & state.LOST and not s.flags & state.RETRANS):
        may_time_out = i == tp.head and tp.ca_state == CA_RECOVERY and first_us == 0 and is_held_by_cwnd(tp)
        if may_time_out and timers.is_timeout(tp, seg):
            return time_out(tp, seg, rs, out)
        return state.TIMEOUT if tp.ca_state == CA_LOSS else state.FAST
    if first_us and tp.now_us >= first_us:
        recovery.reordering_timeout(tp, seg, rs, out)
        if s.flags & state.LOST and not s.flags & state.RETRANS:
            timers.note_tick(tp, first_us, tp.now_us)
            return state.FAST
    last = i == tp.tail - 1 and not s.flags & state.RETRANS
    if last and tp.sack_ok and tp.ca_state <= CA_CWR and tp.tlp_high_seq == 0 and timers.is_probe_due(tp):
        return state.PROBE
    if i == tp.head and timers.is_timeout(tp, seg):
        return time_out(tp, seg, rs, out)
    sb.mark_skb_lost(tp, seg, i, rs, out)
    if tp.ca_state < CA_RECOVERY:
        recovery.enter_recovery(tp, seg, rs, out, False)
    return state.UNEXPLAINED


def is_held_by_cwnd(tp):
    """Return whether cwnd has no room for what is lost: no ACK has just come, and pacing allowed it at the last one.

    Until the next ACK only a timer makes room [Linux] tcp_xmit_retransmit_queue.
    """
    return sends.is_by_timer(tp) and tp.last_ack_us - tp.lsndtime_us > tp.send_gap_us


def time_out(tp, seg, rs, out):
    """The retransmission timer sends the head again; return that reason."""
    recovery.enter_loss(tp, seg, rs, out)
    timers.on_timeout(tp)
    return state.TIMEOUT
