"""The Linux stack around a controller that is replayed over a recorded flow.

A replay carries the controller's own outputs from call to call; between the calls the stack writes them too:

    ==================  ==============================================================  ============================
    when                what the stack does                                             [Linux618] net/ipv4
    ==================  ==============================================================  ============================
    ssthresh            remembers cwnd and ssthresh for an undo; snd_cwnd_cnt = 0       tcp_init_cwnd_reduction
    set_state Loss      cwnd = in flight + 1; snd_cwnd_cnt = 0                          tcp_enter_loss
    undo_cwnd           ssthresh is at least what it was before the reduction           tcp_undo_cwnd_reduction
    on_ack              app_limited = 0 once the marked data have been delivered        tcp_rate_gen
    a send              no data before it: app_limited = delivered + flight             tcp_rate_check_app_limited
                        flight >= cwnd: is_cwnd_limited (of a paced sender)             tcp_cwnd_validate
    the pacing timer    no room for a super-packet: is_cwnd_limited                     tcp_tso_should_defer
                        its samples are marked while app_limited is set                 tcp_rate_skb_sent
                        the next one departs no earlier than after its length           tcp_update_skb_after_send
    ------------------  --------------------------------------------------------------  ----------------------------
                        only for a controller without on_ack:
    on_ack              in Recovery and CWR: proportional rate reduction                tcp_cwnd_reduction
    set_state Recovery  upon RACK's timer: the same for one segment                     tcp_rack_reo_timeout
    COMPLETE_CWR        cwnd = ssthresh, unless the reduction was undone                tcp_end_cwnd_reduction
    CWND_RESTART        cwnd halves for every RTO idle, down to the initial window      tcp_cwnd_restart
    init, on_ack,       if the socket paces: the rate, by cwnd and RTT                  tcp_update_pacing_rate
    cong_avoid
    ==================  ==============================================================  ============================

Data sent in recovery, in flight and delivered come from the recording; ssthresh is the controller's. Plain functions,
with the arguments that `loop` describes: `slots` begin with the fields that every Linux controller has, `tcp` is the
state below.

Left out: tcp_cwnd_application_limited. It acts an RTO after the last ACK that let cwnd grow, and by then either nothing
is outstanding (CWND_RESTART) or the retransmission timer has fired. An undo that may not restore cwnd (after an ECN
echo) leaves no trace in the event stream; cwnd then ends at ssthresh anyway.

Sources: [Linux618] net/ipv4/tcp_input.c, tcp_output.c, tcp_rate.c, tcp_recovery.c; RFC 6937 (PRR), RFC 2861.
"""

import numpy as np

from cctrace import schema
from cctrace.cc import linux
from cctrace.flows.sender.tcp_sender import IDLE_US
from cctrace.lang.memory import RecordOf, record_of
from cctrace.tcp import pacing
from cctrace.tcp.prr import prr_cwnd
from cctrace.tcp.rate import app_limited_after, app_limited_until
from cctrace.tcp.window import cwnd_after_idle, note_usage, ssthresh_before

# The first slots of every Linux controller's record [cctrace.cc.base] Controller, LinuxController.
DRAWS, CWND, CWND_CNT, SSTHRESH, PACING, APP_LIMITED = range(6)

# The stack's state, beside the controller's, and the replay's position in sends and draws: int64 each.
_FIELDS = (
    "prior_cwnd",  # tp->prior_cwnd
    "prior_ssthresh",  # tp->prior_ssthresh
    "prr_delivered",  # tp->prr_delivered
    "prior_segs_out",  # tp->data_segs_out at the start of the reduction; the increase since then is tp->prr_out
    "snd_una",  # tp->snd_una at the previous call
    "can_undo",  # tp->undo_marker != 0
    "next_send",  # next row of `sends`
    "new_data_end",  # the row of `sends` after the last one with new data
    "next_new_send",  # the next row of `sends` with new data, as far as it has been looked for
    "earlier_row",  # last row of the stream with an earlier time
    "next_draw",  # next row of `draws`
    "data_segs_out",  # tp->data_segs_out
    "wstamp_ns",  # tp->tcp_wstamp_ns
    "skb_ns",  # departure time of the super-packet that is being sent
    "skb_bytes",  # its bytes so far
    "prior_wstamp_ns",  # tp->tcp_wstamp_ns before it: when it was due
    "acked_ns",  # when the last ACK was processed
    "ca_state",  # icsk_ca_state at the previous call
    "hz",  # of the sender's kernel
    "tick_us",  # offset of the kernel's ticks from the connection's clock: jiffies = (time + offset) * HZ
    "min_rtt_us",  # tcp_min_rtt() at the previous call
    "mss",  # tp->mss_cache
    "is_cwnd_limited",  # tp->is_cwnd_limited, of a paced sender
    "max_packets_out",  # tp->max_packets_out
    "cwnd_usage_seq",  # tp->cwnd_usage_seq
    "cwnd_was_full",  # at the last ACK, cwnd had no room for a super-packet
    "silent_since_ack",  # nothing has been sent since the last ACK
    "unanswered_acks",  # ACKs since the last send after which pacing and cwnd allowed one
    "before_drain_us",  # last time at which BBR was not in DRAIN; if data in flight are estimates
    "rate_Bps",  # sk->sk_pacing_rate that the stack sets if the controller sets none; it also sizes super-packets
    "gso_max_bytes",  # bytes by which the super-packets of BBRv2 and v3 would be longer at a min_rtt of 0
    "oldest_send",  # row of `sends` before which all data are acknowledged
    "probe_rtt_us",  # when PROBE_RTT was seen to start, if flights are estimates; 0: no, or its flight was reached
    "next_probe_rtt",  # next of the rows at which PROBE_RTT was seen to start
    "restart_cwnd",  # to which idle times let cwnd fall, see `initial.restart_window`; 0: they do not
    "slots_address",  # address of `slots`
)
STACK_WORDS = len(_FIELDS)
STACK = record_of(*_FIELDS)
tcp_of = RecordOf(STACK)
# Words of a state that are not compared with those of another one, or are changed in a copy.
NEXT_DRAW, TICK_US, SLOTS_ADDRESS = map(_FIELDS.index, ("next_draw", "tick_us", "slots_address"))

ONE_GAIN = 256  # BBR_UNIT
LEAN_SEGMENTS, LEAN_PERCENT = 2, 3  # error of data in flight, in a capture not taken at the sender
LONG_DRAIN = 2  # smoothed RTTs, within which DRAIN empties STARTUP's queue, and PROBE_RTT's cwnd is reached
FEW_UNANSWERED = 3  # ACKs after which nothing was sent; the packets that one or two release may be on their way


def packets_in_flight(ack):
    """Segments believed to be in the network [Linux618] tcp_packets_in_flight."""
    return ack.packets_out - (ack.sacked_out + ack.lost_out) + ack.retrans_out


def flight_of(row):
    """Segments in flight in a state of the stream [Linux618] tcp_packets_in_flight."""
    return np.int64(row.packets_out) - np.int64(row.sacked_out) - np.int64(row.lost_out) + np.int64(row.retrans_out)


def lean(gain, outlasts, ack):
    """Let estimated data in flight end a probe or a drain slightly early: an error might keep them from ending it."""
    in_flight = ack.rs_prior_in_flight
    margin = in_flight if outlasts else LEAN_SEGMENTS + in_flight * LEAN_PERCENT // 100
    if gain > ONE_GAIN:
        ack.rs_prior_in_flight = in_flight + margin
    elif gain < ONE_GAIN:
        ack.rs_prior_in_flight = max(in_flight - margin, 0)


def end_drain(gain, tcp, ack):
    """Limit DRAIN to a few RTTs, as errors of the data in flight may hide that the queue is empty."""
    if 2 * gain > ONE_GAIN:  # only DRAIN sends at less than half the rate
        tcp.before_drain_us = ack.now_us
    elif ack.now_us - tcp.before_drain_us > LONG_DRAIN * ack.srtt_us8 // 8:
        ack.packets_out -= packets_in_flight(ack)


def reach_probe_rtt(starts, done, tcp, ack):
    """Let PROBE_RTT reach its window within a few RTTs: an error of the data in flight must not keep it there for ever.

    `starts`: whether PROBE_RTT starts with this ACK. `done`: when it may end, 0 if the flight was not reached.
    """
    if starts:
        tcp.probe_rtt_us = ack.now_us
    elif tcp.probe_rtt_us != 0 and ack.now_us - tcp.probe_rtt_us > LONG_DRAIN * ack.srtt_us8 // 8:
        tcp.probe_rtt_us = 0
        if done == 0:
            ack.packets_out -= packets_in_flight(ack)


def before_call(event, ack, slots, tcp, reducing):
    """Stack processing before the controller is called."""
    arg = ack.arg
    if event == schema.ON_ACK:
        slots[APP_LIMITED] = app_limited_after(slots[APP_LIMITED], ack.delivered)
        if reducing and (ack.ca_state == linux.CA_CWR or ack.ca_state == linux.CA_RECOVERY):
            advanced = ack.snd_una > tcp.snd_una
            reduce_cwnd(ack, slots, tcp, ack.rs_acked_sacked, ack.rs_losses, advanced)
    elif event == schema.SSTHRESH:
        begin_reduction(ack, slots, tcp)
    elif event == schema.SET_STATE and arg == linux.CA_LOSS:
        slots[CWND] = packets_in_flight(ack) + 1  # one segment to send [Linux618] tcp_enter_loss
        slots[CWND_CNT] = 0
    elif event == schema.CWND_EVENT and arg == linux.EVENT_COMPLETE_CWR and reducing:
        end_reduction(ack, slots, tcp)


def after_call(event, ack, slots, tcp, reducing, hz, returned):
    """Stack processing of the returned value, and afterwards."""
    arg = ack.arg
    if event == schema.SSTHRESH:
        slots[SSTHRESH] = returned
    elif event == schema.UNDO_CWND:  # [Linux618] tcp_undo_cwnd_reduction
        slots[CWND] = returned
        slots[SSTHRESH] = max(slots[SSTHRESH], tcp.prior_ssthresh)
        tcp.can_undo = 0
    elif event == schema.SET_STATE and reducing:
        if arg == linux.CA_CWR:
            tcp.can_undo = 0
        elif arg == linux.CA_RECOVERY:
            tcp.can_undo = 1
            # The only entry into Recovery without an ACK is RACK's timer, which reduces at once.
            if ack.rs_prior_in_flight == 0 and ack.ack == ack.snd_una:
                reduce_cwnd(ack, slots, tcp, 1, 0, False)
    elif event == schema.CWND_EVENT and arg == linux.EVENT_CWND_RESTART and reducing:
        restart_from_idle(ack, slots, tcp, hz)


def update_pacing_rate(event, ack, slots, tcp, paced, most_Bps):
    """Update the rate of a controller that sets none, for a `paced` socket or not [Linux618] tcp_update_pacing_rate."""
    if event in (schema.ON_ACK, schema.CONG_AVOID, schema.INIT):
        cwnd, ssthresh = slots[CWND], slots[SSTHRESH]
        tcp.rate_Bps = linux.stack_pacing_rate(ack.mss, cwnd, ssthresh, ack.packets_out, ack.srtt_us8, most_Bps)
        if paced:
            slots[PACING] = tcp.rate_Bps


def usual_burst(slots, tcp, own_min_rtt, slow_burst):
    """Segments of a super-packet at the current rate [Linux618] tcp_tso_segs; for the last two, see `context`."""
    if own_min_rtt >= 0:
        more = pacing.near_peer_bytes(tcp.gso_max_bytes, slots[own_min_rtt])
    else:
        more = pacing.near_peer_bytes(pacing.SK_GSO_MAX_SIZE, tcp.min_rtt_us)
    rate_Bps = slots[PACING] if slots[PACING] > 0 else tcp.rate_Bps
    least = pacing.bbr_min_tso_segs(rate_Bps) if slow_burst == 1 else linux.MIN_TSO_SEGS
    return pacing.tso_autosize(rate_Bps, more, tcp.mss, least)


def least_burst(slots, tcp, own_min_rtt, slow_burst):
    """Segments for which cwnd must have room before TCP sends any [Linux618] tcp_tso_should_defer."""
    third = (slots[CWND] + pacing.TSO_WIN_DIVISOR - 1) // pacing.TSO_WIN_DIVISOR
    return min(usual_burst(slots, tcp, own_min_rtt, slow_burst), third)


def oldest_outstanding(sends, last, tcp):
    """Return the first of the sends up to `last` whose data are not acknowledged; one after `last` if there is none."""
    k = tcp.oldest_send
    while k <= last and (sends[k].retransmitted != 0 or sends[k].snd_nxt <= tcp.snd_una):
        k += 1
    tcp.oldest_send = k
    return k


def begin_reduction(ack, slots, tcp):
    """Save what an undo restores [Linux618] tcp_enter_recovery, tcp_enter_loss, tcp_init_cwnd_reduction."""
    tcp.prior_ssthresh = ssthresh_before(ack.ca_state, slots[SSTHRESH], slots[CWND])
    tcp.prior_cwnd = slots[CWND]
    slots[CWND_CNT] = 0
    tcp.prr_delivered = 0
    tcp.prior_segs_out = ack.data_segs_out


def reduce_cwnd(ack, slots, tcp, delivered, lost, advanced):
    """Proportional rate reduction, then at most what is delivered [Linux618] tcp_cwnd_reduction."""
    if delivered <= 0 or tcp.prior_cwnd == 0:
        return
    sent = ack.data_segs_out - tcp.prior_segs_out
    tcp.prr_delivered += delivered
    in_flight, undisturbed = packets_in_flight(ack), advanced and lost == 0
    prior, so_far = tcp.prior_cwnd, tcp.prr_delivered
    slots[CWND] = prr_cwnd(slots[SSTHRESH], in_flight, prior, so_far, sent, delivered, undisturbed, True)


def end_reduction(ack, slots, tcp):
    """[Linux618] tcp_end_cwnd_reduction."""
    if slots[SSTHRESH] < linux.TCP_INFINITE_SSTHRESH and (ack.ca_state == linux.CA_CWR or tcp.can_undo != 0):
        slots[CWND] = slots[SSTHRESH]


def restart_from_idle(ack, slots, tcp, hz):
    """Halve cwnd for every RTO of silence after the first, unless that is off [Linux618] tcp_cwnd_restart."""
    if tcp.restart_cwnd == 0:
        return
    slots[SSTHRESH] = ssthresh_before(ack.ca_state, slots[SSTHRESH], slots[CWND])
    rto = (ack.srtt_us8 >> 3) + ack.rttvar_us4
    rto = max((rto * hz + 999_999) // 1_000_000, hz // 5)  # TCP_RTO_MIN is 200 ms
    slots[CWND] = cwnd_after_idle(slots[CWND], ack.jiffies - ack.lsndtime, rto, tcp.restart_cwnd)


def mark_app_limited(send, delivered, slots, tcp, by_acks):
    """Set app_limited if the application had no data before this send [Linux618] tcp_rate_check_app_limited.

    Either the pipe ran empty, or the application waited for room in the send buffer while nothing was sent after ACKs.
    The kernel checks at the next write; `by_acks` (kernels of BBRv2 and v3), also before retransmissions.
    """
    silent = tcp.unanswered_acks >= FEW_UNANSWERED and (by_acks or send.retransmitted == 0)
    if send.app_limited != 0 or silent:
        slots[APP_LIMITED] = app_limited_until(delivered, np.int64(send.in_flight) - np.int64(send.segments))


def waited_for_pacing(sends, k, tcp):
    """Whether pacing let the pipe run empty before send `k`, and not the application.

    That happens below a SO_MAX_PACING_RATE with few segments in flight [Linux618] tcp_pacing_check.
    """
    is_paced = tcp.wstamp_ns > tcp.skb_ns and k > 0
    return is_paced and sends[k - 1].ends_write == 0 and sends[k].tx_ns <= tcp.wstamp_ns + 1000 * IDLE_US


def state_of(rows, i):
    """Return the state of row `i` of the stream, which rows around it may share (`flows.packed`)."""
    calls, states, _ = rows
    return states[calls[i].of]


def mark_app_limited_by_ack(rows, i, sends, hands_over, ack, slots, tcp):
    """Set app_limited if the ACK of row `i` arrives while less than a segment is unsent [BBRv3] tcp_ack.

    tcp_ack checks before it processes the ACK, which may mark more as lost, and not while fq holds packets. The short
    end of a write may be unsent because of pacing, retransmissions that go first, or tcp_nagle_test.
    """
    k = tcp.next_send
    time_ns = state_of(rows, i).time_ns
    if hands_over and k > 0 and sends[k - 1].time_ns >= time_ns:
        return
    last, new = tcp.new_data_end - 1, max(tcp.next_new_send, k)
    while new < sends.size and sends[new].retransmitted != 0:
        new += 1
    tcp.next_new_send = new  # so that retransmissions are skipped only once
    nothing = last >= 0 and sends[last].ends_write != 0
    ends = new < sends.size and sends[new].begins != 0 and sends[new].ends_write != 0
    alone = ends and sends[new].payload < ack.mss
    if not (nothing or alone) or ack.rs_prior_in_flight >= slots[CWND]:
        return
    before = tcp.earlier_row
    sent_since = k > 0 and sends[k - 1].row > before
    prior = state_of(rows, before)
    out = np.int64(sends[k - 1].packets_out) if sent_since else np.int64(prior.packets_out)
    if out - np.int64(prior.sacked_out) <= ack.rs_prior_in_flight:  # all that is lost has been sent again
        delivered = ack.delivered - ack.rs_acked_sacked
        slots[APP_LIMITED] = app_limited_until(delivered, ack.rs_prior_in_flight)


def begin_skb(tx_ns, handed_over_ns, tcp):
    """Begin a super-packet that leaves at `tx_ns`, and set when it was due.

    Nothing leaves before it is due, so a later computed time was wrong. So was an earlier one if TCP had handed the
    packet to fq by then (`handed_over_ns`), which would have let it go.
    """
    tcp.prior_wstamp_ns = tx_ns - max(min(handed_over_ns, tx_ns) - tcp.wstamp_ns, 0)
    tcp.skb_ns = tx_ns
    tcp.skb_bytes = 0


def pace_skb(length, segments, rate_Bps, tcp):
    """Compute when pacing releases the next super-packet, after `length` more bytes of this one."""
    tcp.skb_bytes += length
    tcp.data_segs_out += segments
    prior_ns, skb_ns = tcp.prior_wstamp_ns, tcp.skb_ns
    tcp.wstamp_ns = pacing.next_departure(prior_ns, skb_ns, tcp.skb_bytes, rate_Bps, tcp.data_segs_out)


def validate_cwnd(limited, packets_out, snd_nxt, snd_una, tcp):
    """Record, after a write, whether cwnd limited it [Linux618] tcp_cwnd_validate."""
    was_limited = tcp.is_cwnd_limited != 0
    if note_usage(limited, snd_una >= tcp.cwnd_usage_seq, was_limited, packets_out, tcp.max_packets_out):
        tcp.is_cwnd_limited = 1 if limited else 0
        tcp.max_packets_out = packets_out
        tcp.cwnd_usage_seq = snd_nxt
