"""Arrivals at receivers that draw random numbers, processed flow by flow for a short time ahead.

In the order of time, flows would take turns, which costs more than the work itself: an event for each arrival, and
memory that has to return to the cache.
"""

from cctrace.sim.core.arrivals import is_undisturbed, next_arrival, take_ahead, take_timers
from cctrace.sim.core.events import enter_all, next_time
from cctrace.sim.core.lateness import draw_all
from cctrace.sim.core.quic_sender import MS, PUSH_MS
from cctrace.sim.core.structs import NO_JITTER, QUIC, coming, flows, legs

LONGEST_NS = 6_000_000  # 0.97 of the time of 2 ms, and no window can be longer than a packet's way to the receiver
QUIC_NS = (PUSH_MS - 1) * MS  # a sender of QUIC draws at a push; the next comes later than this, as it counts whole ms


def window_ns(w):
    """Return for how long ahead arrivals can be processed, because all are known; 0 if it is not worth it, or wrong."""
    longest, late = LONGEST_NS, 0
    for i in range(w.n):
        f = flows(w.flows)[i]
        leg = legs(f.behind)[0]
        if f.profile == QUIC:
            longest = min(longest, QUIC_NS)
        if f.ack_late_ns > 0:
            late += f.ack_late_ns
            if leg.kind != NO_JITTER or not is_undisturbed(w, f):
                return 0
            longest = min(longest, leg.base_ns + leg.shift_ns - 1)
    # An ACK is late by up to a packet's service time: in their sum, each flow has a packet on average.
    return longest if 0 < late <= longest else 0


def take_window(w, until_ns):
    """Process what arrives until an instant; return the flow with the next event."""
    table = flows(w.flows)
    for i in range(w.n):
        f = table[i]
        if f.ack_late_ns > 0:
            while f.arr_head < f.arr_tail and coming(f.arr)[f.arr_head & f.mask].ns <= until_ns:
                at = coming(f.arr)[f.arr_head & f.mask].ns
                take_ahead(w, f, next_arrival(f), at)
            take_timers(w, f, until_ns + 1)
    draw_all(w, until_ns)
    w.taken_ns = until_ns
    for i in range(w.n):
        table[i].next_ns = next_time(w, table[i])
    return enter_all(w)
