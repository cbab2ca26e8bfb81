"""How long the sender's stack takes between capture and TCP, measured on how fast it answers.

A capture stamps an ACK before TCP reads the clock for it, and a segment after TCP stamped it. Neither time is in a
capture, but their sum nearly is: data that an ACK releases are captured that much later, plus what `tcp_ack` computes
in between. The quickest tenth of such answers is taken for the sum; half of it counts before an ACK is handled, half
after a segment was stamped. A capture whose clock stands still between ACK and answer (a simulated one, or one of
milliseconds) shows neither: nothing is added to its times.

Source: [Linux] tcp_rcv_established and tcp_write_xmit, both of which read the clock; net/core/dev.c for the captures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAME_SKB_NS = 50_000  # a slow machine takes 15 us between two segments of a super-packet
SPREAD = 40  # times the typical gap between them

TYPICAL_NS = 6_000  # of a machine that is awake, where too few answers tell
SLOWEST_NS = 12_000  # a longer one is the pacing timer's or the application's, not the stack's
ANSWER = 10  # times what the stack takes: what leaves later was released by something else
QUICK_SHARE = 0.1
ENOUGH = 100
FEW = 3  # answers in no time at all are no chance,
AT_ONCE_SHARE = 0.2  # if they are more than a few of the quick ones: clocks that step back make some equal
NO_TIME_NS = 1_000  # no stack is as fast: if most answers are, it is the clock that all but stood still


def reaction_ns(time_ns: NDArray[np.int64], sent: NDArray[Any], data: NDArray[np.bool_]) -> int:
    """Return the time from the capture of an ACK to that of the data it releases, ns.

    `time_ns`, shape (n,): of a connection's packets, ascending, captured at the sender. `sent`, `data`, shape (n,):
    whether the sender sent each packet, and whether it has payload.
    """
    answer = np.flatnonzero(~sent[:-1] & (sent & data)[1:])
    took_ns = time_ns[answer + 1] - time_ns[answer]
    took_ns = took_ns[(took_ns >= 0) & (took_ns < ANSWER * TYPICAL_NS)]
    at_once = np.count_nonzero(took_ns == 0)
    soon = np.count_nonzero((took_ns > 0) & (took_ns < TYPICAL_NS))
    if at_once >= max(FEW, AT_ONCE_SHARE * soon):
        return 0
    if len(took_ns) >= FEW and np.median(took_ns) < NO_TIME_NS:
        return 0
    if len(took_ns) < ENOUGH:
        return TYPICAL_NS
    return int(min(np.quantile(took_ns, QUICK_SHARE), SLOWEST_NS))


def same_skb_ns(time_ns: NDArray[np.int64], payload: NDArray[Any], psh: NDArray[np.bool_]) -> int:
    """Return how soon a segment follows another of its super-packet at the latest, ns.

    Segments without PSH that are followed by more at once belong to a super-packet; their gaps are short, and alike.

    `time_ns`, shape (n,): of a connection's packets, ascending, captured at the sender. `payload`, shape (n,): of what
    the sender sent, bytes; 0 of all else.
    """
    gaps_ns = np.diff(time_ns)[(payload[:-1] > 0) & (payload[1:] > 0) & ~psh[:-1]]
    gaps_ns = gaps_ns[gaps_ns < SAME_SKB_NS]
    if len(gaps_ns) < FEW:
        return SAME_SKB_NS
    resolution_ns = 1 if np.any(time_ns % 1000) else 1000
    return int(min(SPREAD * np.median(gaps_ns) + resolution_ns, SAME_SKB_NS))
