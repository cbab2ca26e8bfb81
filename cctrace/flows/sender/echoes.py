"""What the echoes of time stamps say about the hand-over to fq.

TCP writes the latest time stamp that it has received (`ts_recent`) into a packet when it hands it over. What waits in
fq therefore echoes an older ACK than the last one captured before it leaves: it was handed over after the ACK whose
time stamp it echoes, and before the next one with a newer time stamp. This holds whatever else decided: cwnd, TCP Small
Queues, a timer, the application, or a ksoftirqd that did not let TCP continue [Linux61] tcp_wfree.

ACKs of one millisecond carry the same time stamp, so among these the other rules decide.

Sources: RFC 7323 section 4; [Linux61] net/ipv4/tcp_output.c tcp_established_options, net/ipv4/tcp_input.c
tcp_replace_ts_recent.
"""

import numpy as np

from cctrace.flows.sender.handover import next_data
from cctrace.io.captures.packets import OPT_TIMESTAMPS
from cctrace.tcp.flags import ACK
from cctrace.tcp.sequence import is_newer
from cctrace.tcp.small_queue import is_throttled

LARGER = 2  # times what TCP Small Queues allow at the replayed rate, which may be too low


def is_early(tp, p, option, echo):
    """Return whether a packet cannot be handed over yet: it echoes what the sender has not received."""
    return p.echoes != 0 and option & OPT_TIMESTAMPS != 0 and tp.ts_recent != 0 and is_newer(echo, tp.ts_recent)


def is_overdue(tp, p, option, echo, stamp, size):
    """Return whether a packet was handed over before an ACK with time stamp `stamp` was processed (0: none)."""
    if p.echoes == 0 or stamp == 0 or not option & OPT_TIMESTAMPS or not is_newer(stamp, echo):
        return False
    return tp.rate_Bps <= 0 or not is_throttled(tp.wmem_alloc, size, LARGER * tp.rate_Bps, True, 2)


def stamp_before(tp, p, sequence, k, packets):
    """Return the time stamp of the ACK at place `k` if it is newer than the next data's echo, 0 otherwise."""
    _, direction, flags, _, _, _, payload, tsval, tsecr, options, _, _, _ = packets
    q = sequence[k]
    if p.echoes == 0 or direction[q] == p.sender or not flags[q] & ACK or not options[q] & OPT_TIMESTAMPS:
        return np.int64(0)
    first = next_data(p, sequence, max(k + 1, tp.next_to_hand_over), direction, payload)
    if first == sequence.size or not options[sequence[first]] & OPT_TIMESTAMPS:
        return np.int64(0)
    stamp = np.int64(tsval[q])
    return stamp if is_newer(stamp, np.int64(tsecr[sequence[first]])) else np.int64(0)
