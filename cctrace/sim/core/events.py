"""Which event is next: of a flow, and of all flows."""

from cctrace.lang.memory import words
from cctrace.sim.core.structs import NEVER, QUIC, acks, coming, flows


def next_time(w, f):
    """Return the time of the flow's next event."""
    t = min(min(min(f.pace_at, f.rto_at), min(f.delack_at, f.dack_at)), min(f.app_at, f.write_at))
    if f.profile == QUIC:
        t = min(t, min(f.push_at, f.probe_at))
    if f.fq == 1 or w.one_host == 1:
        t = min(min(t, f.left_at), min(f.fq_at, f.tsq_at))
    if f.before > 0 and f.way_head < f.way_tail:
        t = min(t, coming(f.way)[f.way_head & f.mask].ns)
    if f.arr_head < f.arr_tail:
        t = min(t, coming(f.arr)[f.arr_head & f.mask].ns)
    if f.ack_head < f.ack_queued:
        t = min(t, acks(f.ack)[f.ack_head & f.ack_mask].ns)
    if w.shared == 1 and f.ack_queued < f.ack_tail:
        t = min(t, acks(f.ack)[f.ack_queued & f.ack_mask].ns)
    return t


def schedule(w, f):
    """Enter the time of the flow's next event into the tournament; return the flow with the earliest, its index."""
    f.next_ns = next_time(w, f)
    return enter(w, f)


def enter(w, f):
    """Enter the flow's time into the tournament; return the flow with the earliest, its index.

    Of two that meet the earlier one wins, of equal times the flow with the lower index: a key has both. No branch
    depends on who wins, which cannot be predicted.
    """
    if w.n == 1:
        return 0
    keys = words(w.tournament)
    at = w.entrants + f.index
    key = key_of(w, f)
    keys[at] = key
    while at > 1:
        key = min(key, keys[at ^ 1])
        at >>= 1
        keys[at] = key
    return key & (w.entrants - 1)


def enter_all(w):
    """Enter the times of all flows; return the flow with the earliest."""
    keys = words(w.tournament)
    for i in range(w.n):
        keys[w.entrants + i] = key_of(w, flows(w.flows)[i])
    at = w.entrants - 1
    while at > 0:
        keys[at] = min(keys[2 * at], keys[2 * at + 1])
        at -= 1
    return keys[1] & (w.entrants - 1)


def key_of(w, f):
    """What the flow's next event is compared by."""
    return min(f.next_ns, w.last_key_ns) * w.entrants + f.index


def runner_up(w, f):
    """Return the earliest key of all other flows: as long as the flow's is earlier, nobody need enter anything."""
    keys = words(w.tournament)
    at, key = w.entrants + f.index, NEVER
    while at > 1:
        key = min(key, keys[at ^ 1])
        at >>= 1
    return key
