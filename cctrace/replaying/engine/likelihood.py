"""How likely the recorded sends are under a replayed controller: log likelihoods of departure times and sizes.

A super-packet is due when the one before it has been paced (its length over the pacing rate, `stack.pace_skb`) and cwnd
has room; if the replayed cwnd was full, at the ACK that made room (`stack.cwnd_was_full`). (ACKs arrive at the
bottleneck's rate, so what they release would otherwise look paced at a gain of 1.) It is late if something else held it
back, or if the timer or the CPU was late; it is early only by an error of the replayed rate. The density of its
lateness is

    EXACT / (2 s) exp(-|late| / s)  +  ROUGH / (2 S) exp(-|late| / S)  +  HELD length / (length + late)^2   if late > 0
                                                                          EARLY / length                    if late < 0

with the errors of a good timer (s) and of a bad one (S). Its size should be that of tcp_tso_autosize, or less if cwnd
cut it. Sends beyond the replayed cwnd are unlikely. Likelihoods are only compared between hypotheses over the same
sends, so constant factors cancel. The contribution of a send is bounded, so that a few outliers decide nothing. Plain
functions, with the arguments that `loop` describes.

Sources: [Linux618] net/ipv4/tcp_output.c tcp_tso_autosize, tcp_pacing_check, tcp_cwnd_test.
"""

import math

import numpy as np

from cctrace.cc.linux import CA_DISORDER
from cctrace.replaying.engine import stack as sk
from cctrace.tcp.pacing import TSO_WIN_DIVISOR, waits_for_ack

EXACT, ROUGH, HELD, EARLY = 0.62, 0.25, 0.10, 0.03  # shares of the sends that are explained in each way
ANSWER_NS = 100_000  # after an ACK, within which it may have released a send
EXACT_US, ROUGH_US = 20.0, 200.0  # mean errors of a good and of a bad timer
BEYOND_CWND = 0.05  # likelihood of a send beyond cwnd, relative to one within
AS_LONG, SHORTER, LONGER = 0.7, 0.25, 0.05  # likelihood of a super-packet's size, relative to autosizing
LOG_AS_LONG = math.log(AS_LONG)  # computed once, as most super-packets have that size
UNIT_US = 1000.0  # unit of the densities of time
WHATEVER = 1e-4  # density of any time, per UNIT_US: bounds the weight of outliers
OTHER_LIMIT = 2  # `stack.cwnd_was_full`: the recorded sender waited for the receive window or for the application
LONGEST = 45  # segments of a super-packet, at most
NOT_FULL = 0.1 / 0.9  # likelihood that a cwnd-limited sender misses cwnd by up to NEAR segments, relative to filling it
FAR_FROM_FULL = 0.01 / 0.9  # the same of missing it by more, or exceeding it
NEAR = 2
# Ratio of pacing rates in two hypotheses, at most: of the gains of BBR v1's cycle, 5/4 and 3/4, with half a
# super-packet's time recovered after a late one.
RATES_APART = 4
ALMOST_FULL = 0.01  # likelihood that the super-packet of an unpaced sender misses cwnd by 1 to NEAR segments


def paced_send(sends, k, slots, tcp, own_min_rtt, slow_burst, time_error):
    """Log likelihood of the super-packet that begins with send `k`; for the last three, see `context`."""
    rate = slots[sk.PACING]
    send = sends[k]
    if rate <= 0 or tcp.wstamp_ns <= tcp.skb_ns:
        return 0.0
    length_us = (tcp.wstamp_ns - tcp.skb_ns) / 1000.0
    due_ns = tcp.wstamp_ns
    held = tcp.cwnd_was_full != 0 or waited_for_window(sends, k) or send.retransmitted != 0
    if held and send.tx_ns - tcp.acked_ns <= ANSWER_NS * time_error:
        due_ns = max(due_ns, tcp.acked_ns)
    late_us = (send.tx_ns - due_ns) / 1000.0
    exact_us, rough_us = EXACT_US * time_error, ROUGH_US * time_error
    density = EXACT / (2 * exact_us) * math.exp(-abs(late_us) / exact_us)
    density += ROUGH / (2 * rough_us) * math.exp(-abs(late_us) / rough_us)
    if late_us > 0:
        density += HELD * length_us / ((length_us + late_us) * (length_us + late_us))
    else:
        density += EARLY / length_us
    total = math.log(density)
    if send.retransmitted != 0:
        return total
    room = slots[sk.CWND] - (np.int64(send.in_flight) - np.int64(send.segments))
    if room <= 0:
        total += math.log(BEYOND_CWND)
    if time_error > 1:
        return total
    expected = sk.usual_burst(slots, tcp, own_min_rtt, slow_burst)
    if 0 < room < expected:  # what cwnd cuts is as long as it allows
        expected = room
    return total + size_likelihood(segments_of(sends, k), expected)


def paced_send_bound(send, tcp, time_error):
    """Upper bound of `paced_send` for a super-packet in any trial with at most RATES_APART times the rate.

    Whatever the rate, the time since the super-packet before it is the length of that plus its own lateness. If an ACK
    released it, its lateness is the time since the ACK, whatever the length.
    """
    length_us = (tcp.wstamp_ns - tcp.skb_ns) / 1000.0
    if length_us <= 0:
        return 0.0
    exact_us, rough_us = EXACT_US * time_error, ROUGH_US * time_error
    exact, rough, short = EXACT / (2 * exact_us), ROUGH / (2 * rough_us), HELD * RATES_APART / length_us
    since_us, acked_us = (send.tx_ns - tcp.skb_ns) / 1000.0, (send.tx_ns - tcp.acked_ns) / 1000.0
    density = exact + rough + (min(HELD / since_us, short) if since_us > 0 else short)
    if acked_us * 1000 <= ANSWER_NS * time_error:
        acked_us = max(acked_us, 0.0)  # exp(-x) <= 1 / (1 + x)
        density = max(density, exact / (1 + acked_us / exact_us) + rough / (1 + acked_us / rough_us) + short)
    most = math.log(density)
    return most if send.retransmitted != 0 or time_error > 1 else most + LOG_AS_LONG


def any_send(sends, k, slots, tcp, gap_us, srtt_us8, own_min_rtt, slow_burst):
    """Log likelihood of the super-packet that begins with send `k`, under any controller, paced or not.

    It is due when pacing allows it and, if the replayed cwnd was full, not before the ACK that made room. An unpaced
    sender sends at once whatever cwnd allows, but for what TCP defers. Densities are on one scale, so that controllers
    and flows can be compared; the scale of unexplained lateness is `gap_us`, the median time between the flow's
    super-packets.
    """
    send = sends[k]
    if is_written(send, tcp) or is_by_timer(sends, k, tcp.acked_ns, srtt_us8):
        return 0.0
    # If nothing was sent after several ACKs, although pacing and cwnd allowed it, the last one made room in the send
    # buffer. A retransmission waited for the ACK that showed its loss.
    other = tcp.cwnd_was_full == OTHER_LIMIT or waited_for_window(sends, k)
    held = tcp.cwnd_was_full != 0 or other or tcp.unanswered_acks >= sk.FEW_UNANSWERED or send.retransmitted != 0
    total = send_time(send.tx_ns, held, slots, tcp, gap_us)
    if send.retransmitted != 0 or tcp.ca_state > CA_DISORDER or other:
        return total
    room = slots[sk.CWND] - (np.int64(send.in_flight) - np.int64(send.segments))
    segments = segments_of(sends, k)
    expected = sk.usual_burst(slots, tcp, own_min_rtt, slow_burst)
    if slots[sk.PACING] <= 0:
        filled = segments == room or is_rest_deferred(sends, k, room - segments, expected, srtt_us8, slots, tcp)
        if filled and segments > expected:  # several super-packets that left together
            return total + LOG_AS_LONG
        if not filled and abs(segments - room) <= NEAR:
            return total + math.log(ALMOST_FULL)
    if room <= 0:
        return total + math.log(BEYOND_CWND / LONGEST)
    return total + size_likelihood(segments, min(room, expected))


def waited_for_window(sends, k):
    """Whether the receive window may have held back what begins with send `k`, so that an ACK released it [Linux618]
    tcp_snd_wnd_test, tcp_tso_should_defer.
    """
    return k > 0 and sends[k - 1].fills_window != 0


def is_written(send, tcp):
    """Whether the application determined when a super-packet left, and its size."""
    return send.app_limited != 0 or (send.ends_write != 0 and send.payload < tcp.mss)


def is_by_timer(sends, k, acked_ns, srtt_us8):
    """Whether a timer of TCP's (RTO, tail-loss probe) sent `k`, whatever the controller.

    No ACK has come, and nothing was sent, for longer than a round trip. A tail-loss probe comes after two, and may be a
    new segment, even if cwnd has no room [Linux618] tcp_send_loss_probe.
    """
    if k == 0:
        return False
    send, srtt_ns = sends[k], np.int64(srtt_us8) * 125
    silent_ns = send.tx_ns - max(acked_ns, np.int64(sends[k - 1].tx_ns))
    if send.retransmitted != 0:
        return silent_ns > srtt_ns
    return silent_ns > 2 * srtt_ns and send.in_flight > send.segments and segments_of(sends, k) == 1


def is_rest_deferred(sends, k, rest, expected, srtt_us8, slots, tcp):
    """Whether TCP defers the `rest` segments for which cwnd has room after the super-packet of send `k` [Linux618]
    tcp_tso_should_defer.
    """
    oldest = sk.oldest_outstanding(sends, k, tcp)
    age_ns = sends[k].tx_ns - sends[oldest].tx_ns
    mss = tcp.mss
    third = slots[sk.CWND] * mss // TSO_WIN_DIVISOR
    return rest > 0 and waits_for_ack(rest * mss, expected * mss, third, np.int64(0), age_ns, np.int64(srtt_us8) * 125)


def send_time(tx_ns, held, slots, tcp, gap_us):
    """Log likelihood of a super-packet's departure time, as in `any_send`; `held`: not due before the last ACK."""
    paced = slots[sk.PACING] > 0 and tcp.wstamp_ns > tcp.skb_ns
    due_ns = tcp.wstamp_ns if paced else tcp.skb_ns
    if held:
        due_ns = max(due_ns, tcp.acked_ns)
    off_us = abs(tx_ns - due_ns) / 1000.0
    density = EXACT / (2 * EXACT_US) * math.exp(-off_us / EXACT_US)
    density += ROUGH / (2 * ROUGH_US) * math.exp(-off_us / ROUGH_US)
    density += (HELD if tx_ns > due_ns else EARLY) * gap_us / ((gap_us + off_us) * (gap_us + off_us))
    return math.log(density * UNIT_US + WHATEVER)


def timed_send(sends, k, slots, tcp, gap_us):
    """Log likelihood of a super-packet's departure time, and of its room in cwnd, whatever its size."""
    send = sends[k]
    other = tcp.cwnd_was_full == OTHER_LIMIT or waited_for_window(sends, k)
    total = send_time(send.tx_ns, tcp.cwnd_was_full != 0 or other, slots, tcp, gap_us)
    open_window = send.retransmitted == 0 and tcp.ca_state <= CA_DISORDER and not other
    if open_window and np.int64(send.in_flight) - np.int64(send.segments) >= slots[sk.CWND]:
        total += math.log(BEYOND_CWND)
    return total


def segments_of(sends, k):
    """Return the number of segments of the super-packet that begins with send `k`."""
    segments = 0
    last = k
    while last < sends.size and (last == k or sends[last].begins == 0):
        segments += np.int64(sends[last].segments)
        last += 1
    return segments


def size_likelihood(segments, expected):
    """Log likelihood of a super-packet's number of segments, if the stack would have made one of `expected`."""
    if segments == expected:
        return LOG_AS_LONG
    return math.log(SHORTER / expected) if segments < expected else math.log(LONGER / LONGEST)


def full_flight(row, cwnd):
    """Log likelihood of the data in flight before an ACK, for a cwnd-limited sender."""
    if row.ca_state > CA_DISORDER or row.is_cwnd_limited == 0 or row.rs_prior_in_flight == cwnd:
        return 0.0
    short = cwnd - np.int64(row.rs_prior_in_flight)  # less than a super-packet may wait; one too many is unexplained
    return math.log(NOT_FULL) if 0 < short <= NEAR else math.log(FAR_FROM_FULL)
