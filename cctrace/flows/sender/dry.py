"""When the write queue of an unpaced sender was empty, as ACKs show after which it sent nothing.

A sender that cwnd limits sends at once when an ACK makes room, unless the room is too little for a super-packet
[Linux618] tcp_tso_should_defer. If nothing is sent after ACKs for a super-packet or more, although the receive window
is open, the write queue was empty: the application waited for an ACK to make room in its send buffer, or had written
nothing. Data that are not sent just after an ACK say nothing, as they may have waited for a timer.
"""

import numpy as np

from cctrace.cc.linux import CA_DISORDER, MIN_TSO_SEGS, TCP_INFINITE_SSTHRESH, stack_pacing_rate
from cctrace.flows.state import PACED
from cctrace.tcp.flags import PSH
from cctrace.tcp.pacing import SK_GSO_MAX_SIZE, TSO_WIN_DIVISOR, near_peer_bytes, tso_autosize
from cctrace.tcp.sequence import unwrap

SAME_LOOP_NS = 5_000  # within which the next super-packet of the same loop follows


def runs_dry(tp, p, sequence, k, packets):
    """Return whether the write queue is empty after the send at place `k`, as what follows it shows.

    If it was empty, an unpaced sender later sends at once what all these ACKs allow, more than one super-packet, where
    a timer releases one at a time. If a short segment comes first, it waited for tcp_nagle_test or had not been
    written, as cwnd would have let it go at the first ACK; either way less than a segment was unsent, which is what
    counts [Linux618] tcp_rate_check_app_limited.
    """
    time_ns, direction, flags, _, ack, window, payload, _, _, _, _, sack_count, _ = packets
    if tp.hands_over or tp.paced > PACED or tp.ca_state > CA_DISORDER or tp.srtt_us8 == 0:
        return False
    wanted, una, asked_ns, last_ns = 0, tp.snd_una, np.int64(0), np.int64(0)
    soon_ns, sent, super_packets = 1000 * (tp.answer_us + 1), np.int64(0), 0
    for j in range(k + 1, sequence.size):
        q = sequence[j]
        if direction[q] == p.sender and payload[q] > 0:
            if asked_ns == 0 or time_ns[q] - asked_ns <= soon_ns or time_ns[q] - last_ns > soon_ns:
                return False
            if sent == 0 and payload[q] < tp.mss:
                return True
            sent += payload[q]
            if sent > wanted and super_packets > 0:
                return True
            super_packets += 1 if flags[q] & PSH or payload[q] > tp.mss else 0
            last_ns, soon_ns = time_ns[q], np.int64(SAME_LOOP_NS)
        elif direction[q] != p.sender and asked_ns > 0 and sent == 0:
            last_ns = time_ns[q]
        elif direction[q] != p.sender and asked_ns == 0:
            if sack_count[q] > 0:
                return False
            wanted = longest_wait(tp) * tp.mss if wanted == 0 else wanted
            una = max(una, unwrap(ack[q], p.isn, una))
            if una - tp.snd_una >= wanted:
                wide = np.int64(window[q]) << p.wscale
                if una + wide - tp.snd_nxt < max(tp.mss, min(wanted, wide // TSO_WIN_DIVISOR)):
                    return False
                asked_ns = last_ns = time_ns[q]
    return False


def longest_wait(tp):
    """Return the segments for which cwnd must have room, at most, before the sender sends: a super-packet."""
    rate_Bps = stack_pacing_rate(tp.mss, tp.packets_out, TCP_INFINITE_SSTHRESH, tp.packets_out, tp.srtt_us8)
    made = tso_autosize(rate_Bps, near_peer_bytes(SK_GSO_MAX_SIZE, tp.tcp_min_rtt_us), tp.mss, MIN_TSO_SEGS)
    longest = max(made, tp.max_burst)
    return min(longest, (tp.packets_out + longest) // TSO_WIN_DIVISOR + 1)
