"""Random delays of hosts whose clocks are not exact: drawn from one stream, in the order of time.

What is drawn at an instant depends on nothing but the order, so what is due within a short time is drawn at once
(`windows`).
"""

import numpy as np

from cctrace.sim.core.events import enter, enter_all, key_of, runner_up
from cctrace.sim.core.rng import LATE_STREAM, uniform
from cctrace.sim.core.structs import CONNECTING, NEVER, QUIC, acks, flows


def lateness(w, most_ns):
    """Draw a delay (ns) below the largest."""
    return np.int64(uniform(w, LATE_STREAM) * most_ns)


def push_lateness(w, f):
    """How late a QUIC sender's next push timer fires (ns), which keeps exactly timed flows from phase-locking."""
    drawn, f.push_drawn = f.push_drawn, 0
    return drawn - 1 if drawn > 0 else lateness(w, f.q_late_ns)


def next_draw(f, until_ns):
    """When the flow draws next, of what is known until an instant: as its receiver sends an ACK, or as QUIC pushes."""
    at = NEVER
    if f.profile == QUIC and f.q_late_ns > 0 and f.push_drawn == 0:
        at = f.app_at if f.app_stage == CONNECTING else f.push_at
        at = at if at <= until_ns else NEVER
    return min(at, acks(f.ack)[f.ack_queued & f.ack_mask].ns - f.rev_ns) if f.ack_queued < f.ack_tail else at


def draw_next(w, f):
    """Make that draw; ACKs come first."""
    if f.ack_queued < f.ack_tail and acks(f.ack)[f.ack_queued & f.ack_mask].ns - f.rev_ns == f.next_ns:
        ack = acks(f.ack)[f.ack_queued & f.ack_mask]
        ack.ns = f.last_ack = max(ack.ns + lateness(w, f.ack_late_ns), f.last_ack)
        f.ack_queued += 1
    else:
        f.push_drawn = 1 + lateness(w, f.q_late_ns)


def draw_all(w, until_ns):
    """Make the draws of all flows until an instant, for which the tournament has the times of draws meanwhile."""
    table = flows(w.flows)
    for i in range(w.n):
        table[i].next_ns = next_draw(table[i], until_ns)
    first = enter_all(w)
    while table[first].next_ns < NEVER:
        f = table[first]
        others = runner_up(w, f)
        while f.next_ns < NEVER and key_of(w, f) < others:  # often several: packets of a burst arrive together
            draw_next(w, f)
            f.next_ns = next_draw(f, until_ns)
        first = enter(w, f)
