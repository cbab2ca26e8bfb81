"""The rings of a flow, sized by the data in flight, so that a run's working set stays in the cache.

A flow starts with small rings and moves into larger ones, up to several times path and buffer. The number of
transmissions still referred to is only counted when the rings may be full, about once per turn of the ring.
"""

from cctrace.lang.memory import words
from cctrace.sim.core.structs import ACK, COMING, LINUX, NEVER, QUIC, SEGMENT, TRANSMISSION, coming, lanes, segments

# A row of a flow's table of rings: entries of each, then the address of each, then that of the next row (0: none).
SEGMENT_WORDS, TRANSMISSION_WORDS = SEGMENT.itemsize // 8, TRANSMISSION.itemsize // 8
COMING_WORDS, ACK_WORDS = COMING.itemsize // 8, ACK.itemsize // 8
RINGS = {  # words of an entry
    "seg": SEGMENT_WORDS, "tx": TRANSMISSION_WORDS, "resend": 1, "way": COMING_WORDS, "arr": COMING_WORDS,
    "log_order": 1, "got": 1, "ack": ACK_WORDS, "wq_ends": 1, "lacks": 1,
}  # fmt: skip
SIZE, NEXT_ROW = 0, len(RINGS) + 1


def make_room(w, f):
    """Before a transmission that may find no room: count what is in use, and move if that is much."""
    while True:
        used = max(f.tx_next - oldest(w, f) + f.resend_tail - f.resend_head, f.nxt - f.rcv_read)
        if used <= f.mask >> 1 or not grow(f):
            break
    f.tx_full = f.tx_next + f.mask - 1 - used if f.larger_rings > 0 else NEVER


def oldest(w, f):
    """The first transmission that sender, path or receiver still refer to."""
    found = f.tx_next if f.profile == LINUX else f.tx_head
    if f.fq == 1:
        found = min(found, f.fq_next)
    if f.profile != QUIC:
        for index in range(f.una, f.nxt):
            found = min(found, segments(f.seg)[index & f.mask].order)
    for k in range(f.log_seen, f.log_next):
        found = min(found, words(f.log_order)[k & f.mask])
    for k in range(f.arr_head, f.arr_tail):
        found = min(found, coming(f.arr)[k & f.mask].order)
    for k in range(f.way_head, f.way_tail):
        found = min(found, coming(f.way)[k & f.mask].order)
    for which in range(w.n_lanes):
        lane = lanes(w.lanes)[which]
        for k in range(lane.head, lane.tail):
            if words(lane.flow)[k & w.q_mask] == f.index:
                found = min(found, words(lane.order)[k & w.q_mask])
    return found


def is_full(f, head, tail):
    """Whether a ring that is in use from `head` to `tail` is about to have no room."""
    return tail - head >= f.mask - 1


def grow(f):
    """Move into the next larger rings; returns whether there were any."""
    if f.larger_rings == 0:
        return False
    row = words(f.larger_rings)
    f.seg = moved(f, row, 1, f.seg, f.tx_next if f.profile == QUIC else f.nxt, SEGMENT_WORDS)
    f.tx = moved(f, row, 2, f.tx, f.tx_next, TRANSMISSION_WORDS)
    f.resend = moved(f, row, 3, f.resend, f.resend_tail, 1)
    f.way = moved(f, row, 4, f.way, f.way_tail, COMING_WORDS)
    f.arr = moved(f, row, 5, f.arr, f.arr_tail, COMING_WORDS)
    f.log_order = moved(f, row, 6, f.log_order, f.log_next, 1)
    f.got = moved(f, row, 7, f.got, f.rcv_high, 1)
    f.ack = moved(f, row, 8, f.ack, f.ack_tail, ACK_WORDS)
    f.wq_ends = moved(f, row, 9, f.wq_ends, f.wq_tail, 1)
    f.lacks = moved(f, row, 10, f.lacks, f.nxt + 1, 1)
    f.mask = row[SIZE] - 1
    f.larger_rings = row[NEXT_ROW]
    return True


def moved(f, row, ring, address, tail, width):
    """Copy what precedes `tail` in a ring, entries of `width` words, to its place in a row; returns its address."""
    mask = row[SIZE] - 1
    for k in range(max(tail - f.mask - 1, 0), tail):
        for j in range(width):
            words(row[ring])[(k & mask) * width + j] = words(address)[(k & f.mask) * width + j]
    return row[ring]
