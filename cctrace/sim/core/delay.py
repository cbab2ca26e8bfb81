"""Path sections before and behind the queue: delay, jitter, and packet order."""

import math

import numpy as np

from cctrace.lang.memory import reals, words
from cctrace.sim.core import structs
from cctrace.sim.core.rng import PATH_STREAM, gamma, normal, uniform


def next_delay(leg, now):
    """Apply the step of a leg's delay that holds at `now`: shift of the base delay, and jitter."""
    while leg.step + 1 < leg.steps and words(leg.words)[(leg.step + 1) * structs.DELAY_WORDS] <= now:
        leg.step += 1
    at = leg.step * structs.DELAY_WORDS
    row = words(leg.words)
    leg.shift_ns, leg.reorder, leg.kind, leg.per = row[at + 1], row[at + 2], row[at + 3], row[at + 4]
    leg.slot_ns, leg.table, leg.samples = row[at + 5], row[at + 6], row[at + 7]
    leg.next_ns = row[at + structs.DELAY_WORDS] if leg.step + 1 < leg.steps else structs.NEVER
    real = reals(leg.reals)
    at = leg.step * structs.DELAY_REALS
    leg.rho, leg.a, leg.b, leg.floor = real[at], real[at + 1], real[at + 2], real[at + 3]


def leg_delay(w, f, leg, now):
    """Delay (ns) of a packet that enters a leg at `now`."""
    if now >= leg.next_ns:
        next_delay(leg, now)
    return max(leg.base_ns + leg.shift_ns + draw_jitter(w, f, leg, now), 0)


def forward_delay(w, f, now):
    """Delay (ns) of a packet that leaves the bottleneck at `now`."""
    return leg_delay(w, f, structs.legs(f.behind)[0], now)


def draw_jitter(w, f, leg, now):
    """Return the jitter (ns) of a packet that enters at `now`; one draw per packet, burst or time slot."""
    if leg.kind == structs.NO_JITTER:
        return 0
    key = 0
    if leg.per == structs.PER_BURST:
        key = f.burst_id + 1
    elif leg.per == structs.PER_SLOT:
        key = now // leg.slot_ns + 1
    if key == 0 or key != leg.drawn_for:
        leg.drawn_for = key
        leg.drawn_ns = np.int64(math.floor(jitter_value(w, leg)))
    return leg.drawn_ns


def draw_anew(f):
    """Make the next packet draw its own jitter, even in the same slot."""
    structs.legs(f.behind)[0].drawn_for = 0
    if f.before > 0:
        structs.legs(f.before)[0].drawn_for = 0


def jitter_value(w, leg):
    """One draw (ns) of the jitter; values below its floor are redrawn. Successive normal numbers correlate by rho."""
    if leg.kind == structs.EMPIRICAL:
        return reals(leg.table)[np.int64(uniform(w, PATH_STREAM) * leg.samples)]
    if leg.kind == structs.GAMMA:
        return gamma(w, PATH_STREAM, leg.a) * leg.b + leg.floor
    while True:
        z = normal(w, PATH_STREAM)
        if leg.rho > 0.0:
            z = leg.rho * leg.z + math.sqrt(1.0 - leg.rho * leg.rho) * z
            leg.z = z
        value = leg.a + leg.b * z
        if leg.kind == structs.LOGNORMAL:
            return math.exp(value) + leg.floor
        if value >= leg.floor:
            return value


def in_order(leg, at):
    """When a packet due at `at` reaches the end of a leg, where it may wait for its predecessor."""
    if leg.reorder == 0:
        at = max(at, leg.latest)
    leg.latest = max(at, leg.latest)
    return at


def insert(ring, mask, head, tail, order, at):
    """Insert a packet, by the time it is due, into a ring whose entries from `head` to `tail` are in order of time."""
    k = tail
    packets = structs.coming(ring)
    while k > head and packets[(k - 1) & mask].ns > at:
        packets[k & mask].ns = packets[(k - 1) & mask].ns
        packets[k & mask].order = packets[(k - 1) & mask].order
        k -= 1
    packets[k & mask].ns = at
    packets[k & mask].order = order


def set_out(w, f, order, now):
    """Send a transmission on its way to the queue, which it reaches later."""
    leg = structs.legs(f.before)[0]
    at = in_order(leg, now + leg_delay(w, f, leg, now))
    insert(f.way, f.mask, f.way_head, f.way_tail, order, at)
    f.way_tail += 1
