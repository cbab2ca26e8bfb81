"""Latency between capture point and TCP in the sender's stack, inferred from its response times.

A capture stamps an ACK before TCP reads the clock for it, and a segment after TCP has stamped it. Only the sum of
both delays is observable: data released by an ACK are captured that much later, plus the computation in `tcp_ack`.
The fastest tenth of such responses gives the sum; half of it is added before ACKs and half after segments. A
capture whose clock does not advance between ACK and response (simulated, or with milliseconds) shows neither, and
its times are not corrected. The handshake shows that, too: no timer, window or application delays the answer to a SYN,
whereas a paced sender may hardly ever respond to an ACK.

Sources: [Linux] tcp_rcv_established and tcp_write_xmit, both of which read the clock; tcp_conn_request and
tcp_rcv_synsent_state_process, which answer a SYN at once; net/core/dev.c for the captures.
"""

import numpy as np

from cctrace.columns import Bools, Ints, Values

SAME_SKB_NS = 50_000  # a slow machine takes 15 us between two segments of a super-packet
SPREAD = 40  # times the typical gap between them

TYPICAL_NS = 6_000  # of an active machine, if there are too few responses
SLOWEST_NS = 12_000  # longer times are due to the pacing timer or the application, not the stack
ANSWER = 10  # times the stack's latency: later sends were released by something else
QUICK_SHARE = 0.1
ENOUGH = 100
FEW = 3  # instantaneous responses that are no coincidence,
AT_ONCE_SHARE = 0.2  # if they are more than a few of the fast ones: clock steps back make some equal
# Quick responses that tell whether any is instantaneous: ACKs clock the start of a flow. Later, more and more paced
# segments follow an ACK by chance.
EARLY = 2_000
NO_TIME_NS = 1_000  # faster than any stack: if most responses are, the clock hardly advanced


def reaction_ns(time_ns: Ints, sent: Values, data: Bools, syn: Bools) -> int:
    """Return the time from the capture of an ACK to that of the data that it releases, ns.

    `time_ns`, shape (n,): of a connection's packets, ascending, captured at the sender. `sent`, `data`, `syn`, shape
    (n,): whether the sender sent each packet, whether it has payload, and whether SYN is set.
    """
    greeted = np.flatnonzero((~sent & syn)[:-1] & sent[1:])
    if np.any(time_ns[greeted + 1] == time_ns[greeted]):
        return 0
    answer = np.flatnonzero(~sent[:-1] & (sent & data)[1:])
    took_ns = time_ns[answer + 1] - time_ns[answer]
    took_ns = took_ns[(took_ns >= 0) & (took_ns < ANSWER * TYPICAL_NS)]
    early_ns = took_ns[:EARLY]
    at_once = np.count_nonzero(early_ns == 0)
    soon = np.count_nonzero((early_ns > 0) & (early_ns < TYPICAL_NS))
    if at_once >= max(FEW, AT_ONCE_SHARE * soon):
        return 0
    if len(took_ns) >= FEW and np.median(took_ns) < NO_TIME_NS:
        return 0
    if len(took_ns) < ENOUGH:
        return TYPICAL_NS
    return int(min(np.quantile(took_ns, QUICK_SHARE), SLOWEST_NS))


def same_skb_ns(time_ns: Ints, payload: Values, psh: Bools) -> int:
    """Return the largest gap between segments of one super-packet, ns.

    Segments without PSH that are followed by more at once belong to a super-packet; their gaps are short, and similar.

    `time_ns`, shape (n,): of a connection's packets, ascending, captured at the sender. `payload`, shape (n,): of
    the sender's packets, bytes; 0 of all others.
    """
    gaps_ns = np.diff(time_ns)[(payload[:-1] > 0) & (payload[1:] > 0) & ~psh[:-1]]
    gaps_ns = gaps_ns[gaps_ns < SAME_SKB_NS]
    if len(gaps_ns) < FEW:
        return SAME_SKB_NS
    resolution_ns = 1 if np.any(time_ns % 1000) else 1000
    return int(min(SPREAD * np.median(gaps_ns) + resolution_ns, SAME_SKB_NS))
