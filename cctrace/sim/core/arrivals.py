"""Arrivals at the receivers: as events, or processed as soon as it is known when they will be."""

from cctrace.sim.core.delay import insert
from cctrace.sim.core.receiver import delack_timer, receive, send_ack
from cctrace.sim.core.structs import NEVER, TBF, coming, flows, legs


def arrive(w, f, order, at):
    """A transmission arrives at `at`, unless that is NEVER: it is taken at once if nothing can come in between."""
    if at == NEVER:
        return
    f.arr_tail += 1
    if at <= f.ahead_ns:  # none waits, since what is on its way stays in order
        f.arr_head += 1
        take_ahead(w, f, order, at)
    else:
        insert(f.arr, f.mask, f.arr_head, f.arr_tail - 1, order, at)


def take_all(w, f, until_ns):
    """If nothing can come in between, process the arrivals until an instant now, and later ones once they are known."""
    f.ahead_ns = min(until_ns, NEVER - 1) if may_take_ahead(w, f) else 0
    while f.arr_head < f.arr_tail and coming(f.arr)[f.arr_head & f.mask].ns <= f.ahead_ns:
        at = coming(f.arr)[f.arr_head & f.mask].ns
        take_ahead(w, f, next_arrival(f), at)


def next_arrival(f):
    """Take the next transmission that arrives from those on their way."""
    order = coming(f.arr)[f.arr_head & f.mask].order
    f.arr_head += 1
    return order


def take_ahead(w, f, order, at):
    """Process an arrival before its time, which spares an event; timers that are due before it go first."""
    take_timers(w, f, at)
    receive(w, f, order, at)


def take_timers(w, f, at):
    """Let the receiver's timers that are due before an instant fire."""
    while min(f.delack_at, f.dack_at) < at:
        if f.dack_at <= f.delack_at:
            delack_timer(w, f, f.dack_at)
        else:
            send_ack(w, f, f.delack_at)


def may_take_ahead(w, f):
    """Whether arrivals can be processed as soon as it is known when they will be: once they leave the queue.

    Nothing that happens until then must matter to the receiver, and nobody see what it does before its time: what is
    on its way stays in order, ACKs draw no random numbers, and the end of `run` (`ahead_ns`) is not passed.
    """
    return f.ack_late_ns == 0 and is_undisturbed(w, f)


def is_undisturbed(w, f):
    """Whether nothing else forbids to process a flow's arrivals before their time."""
    for i in range(w.n):
        if flows(w.flows)[i].awaited > 0:
            return False
    leg = legs(f.behind)[0]
    if f.tap_size > 0 or leg.steps > 1 or leg.reorder == 1:
        return False
    return w.one_host == 0 and w.shared == 0 and w.shaping != TBF and w.ack_loss == 0.0
