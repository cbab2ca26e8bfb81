"""How long the sender's stack takes between capture and TCP, measured on how fast it answers.

A capture stamps an ACK before TCP reads the clock for it, and a segment after TCP stamped it. Neither time is in a
capture, but their sum nearly is: data that an ACK releases are captured that much later, plus what `tcp_ack` computes
in between. The quickest tenth of such answers is taken for the sum; half of it counts before an ACK is handled, half
after a segment was stamped.

Source: [Linux] tcp_rcv_established and tcp_write_xmit, both of which read the clock; net/core/dev.c for the captures.
"""

import numpy as np

TYPICAL_NS = 6_000  # of a machine that is awake, where too few answers tell
SLOWEST_NS = 12_000  # a longer one is the pacing timer's or the application's, not the stack's
ANSWER_NS = 60_000  # later, something else released the data
QUICK_SHARE = 0.1
ENOUGH = 100


def reaction_ns(time_ns, sent, data):
    """Return the time from the capture of an ACK to that of the data it releases, ns.

    Parameters
    ----------
    time_ns : ndarray of int64, shape (n,)
        Of a connection's packets, ascending, captured at the sender.
    sent, data : ndarray of bool, shape (n,)
        Whether the sender sent each packet, and whether it has payload.
    """
    answer = np.flatnonzero(~sent[:-1] & (sent & data)[1:])
    took_ns = time_ns[answer + 1] - time_ns[answer]
    took_ns = took_ns[(took_ns > 0) & (took_ns < ANSWER_NS)]
    if len(took_ns) < ENOUGH:
        return TYPICAL_NS
    return int(min(np.quantile(took_ns, QUICK_SHARE), SLOWEST_NS))
