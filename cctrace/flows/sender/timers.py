"""The sender's timers for probes and timeouts: when the kernel sets them, and whether one may have expired.

A capture shows no timers, only the consequences of their expiry. The pass therefore tracks when the retransmission
timeout that the kernel last set is over (`expires_us`; RTTs measured since do not change it) and when the scheduled
loss probe is due (`probe_us`, 0: none). A probe is one new segment or, without new data, the last one again; while it
is unanswered (`tlp_high_seq`) the next probe timer sends nothing but starts the timeout, counted from the head's send.

Timers fire at ticks, of which the capture does not show the phase. It shows two bounds: a tick lies between the
earliest one at which RACK's timer may have fired and the retransmission that followed; and since Linux 6.4 ticks are
multiples of their period of the clock that also gives time stamps, whose steps the capture shows.

Whether probe and timeout are due is only asked where something was sent that needs a reason. Where neither nearly is
(`note_left`), nor RACK's timer before a packet, another tick rate changes nothing.

Sources: RFC 8985 (RACK-TLP), RFC 6298; [Linux] tcp_schedule_loss_probe, tcp_send_loss_probe, tcp_rearm_rto;
[Linux618] kernel/time/tick-common.c tick_setup_device.
"""

from cctrace.cc.linux import CA_CWR, CA_OPEN
from cctrace.tcp.probe import probe_timeout_us
from cctrace.tcp.rtt import RTO_MAX_US, whole_ticks

NEARLY_US = 30_000  # by less, the same timer ends at rates of `state.SLOWEST_HZ` and more: three times rounded to ticks


def note_left(tp, left_us):
    """Note whether a timer that has `left_us` to go might be over, or not be over, with other ticks."""
    if left_us <= NEARLY_US:
        tp.ticks_matter = 1


def schedule_probe(tp, timeout_left_us):
    """Schedule a loss probe if the state allows one; return whether it does [Linux] tcp_schedule_loss_probe."""
    if not tp.sack_ok or tp.packets_out == 0 or (tp.ca_state != CA_OPEN and tp.ca_state != CA_CWR):
        return False
    wait = probe_timeout_us(tp.srtt_us8, tp.packets_out, timeout_left_us)
    tp.probe_us = tp.now_us + whole_ticks(wait, 1_000_000 // tp.hz)
    return True


def timeout_left(tp, seg):
    """How long until the head of the queue has been out for a retransmission timeout [Linux] tcp_rto_delta_us."""
    left_us = seg[tp.head & (seg.size - 1)].tx_us + tp.rto_us - tp.now_us
    note_left(tp, left_us)
    return left_us


def on_progress(tp, seg):
    """An ACK restarts the timer [Linux] tcp_set_xmit_timer; after another timer's wait the timeout goes on."""
    goes_on = tp.reo_first_us != 0 or tp.probe_us != 0
    tp.expires_us = tp.now_us + tp.rto_us
    tp.reo_first_us = 0
    if not schedule_probe(tp, tp.rto_us):
        tp.probe_us = 0
        if goes_on:
            resume_timeout(tp, seg)


def resume_timeout(tp, seg):
    """The timeout counts from the head's send: another timer was set since [Linux] tcp_rearm_rto."""
    if tp.head < tp.tail:
        tp.expires_us = seg[tp.head & (seg.size - 1)].tx_us + tp.rto_us


def on_new_data(tp, seg, was_empty):
    """New data restart an idle timer, and put off a probe that is due [Linux] tcp_event_new_data_sent."""
    if was_empty:
        tp.expires_us = tp.now_us + tp.rto_us
    schedule_probe(tp, timeout_left(tp, seg))


def restart(tp):
    """Something was sent that restarts the timer as a retransmission timeout."""
    tp.expires_us = tp.now_us + tp.rto_us
    tp.probe_us = 0


def is_probe_due(tp):
    """Return whether the probe timer can have fired; ticks are whole, their phase is not known."""
    if tp.probe_us == 0:
        return False
    note_left(tp, tp.probe_us - tp.now_us)
    return tp.now_us >= tp.probe_us - 1_000_000 // tp.hz


def is_new_probe(tp, size):
    """Return whether `size` new bytes, which no ACK released, are a loss probe: one segment, when it is due."""
    return tp.tlp_high_seq == 0 and tp.packets_out > 0 and size <= tp.mss and is_probe_due(tp)


def on_probe(tp, retransmits):
    """A loss probe was sent: nothing more is until it is answered [Linux] tcp_send_loss_probe."""
    tp.loss_probes += 1
    tp.tlp_retrans = retransmits
    tp.tlp_high_seq = tp.snd_nxt
    restart(tp)


def on_timeout(tp):
    """The retransmission timer fired: it will wait twice as long (RFC 6298)."""
    tp.rto_us = min(2 * tp.rto_us, RTO_MAX_US)
    restart(tp)


def is_timeout(tp, seg):
    """Return whether the retransmission timer can have fired; ticks are whole, and so is the timeout."""
    tick_us = 1_000_000 // tp.hz
    note_left(tp, tp.expires_us - tp.now_us)
    after_probe = tp.tlp_high_seq != 0 and is_probe_due(tp) and timeout_left(tp, seg) <= tick_us
    return after_probe or tp.now_us >= tp.expires_us - 2 * tick_us


def tick_by(tp, first_us):
    """Return when a timer fires that may fire at `first_us` at the earliest: the latest tick that nothing excludes."""
    tick_us = 1_000_000 // tp.hz
    low, high = first_us, first_us + tick_us
    if tp.tick_high_us:
        later = (high - tp.tick_high_us) // tick_us * tick_us
        low, high = max(low, tp.tick_low_us + later), tp.tick_high_us + later
    if tp.ts_ok and tp.ts_tick_us <= tick_us:
        stamped = high - (high + tp.ts_offset_us) % tp.ts_tick_us
        if stamped >= low:
            return stamped
    return (low + high) // 2


def note_tick(tp, first_us, until_us):
    """RACK's timer, which may have fired at `first_us` at the earliest, has fired by `until_us`."""
    tick_us = 1_000_000 // tp.hz
    low, high = first_us, min(until_us, first_us + tick_us)
    if tp.tick_high_us:
        later = (first_us + tick_us - tp.tick_high_us) // tick_us * tick_us
        before, after = max(low, tp.tick_low_us + later), min(high, tp.tick_high_us + later)
        if before <= after:  # otherwise clocks drift
            low, high = before, after
    tp.tick_low_us, tp.tick_high_us = low, high
