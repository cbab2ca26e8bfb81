"""The rings of a flow, sized by the data in flight, so that a run's working set stays in the cache.

A flow starts with small rings and moves into larger ones, up to several times path and buffer. The number of
transmissions still referred to is only counted when the rings may be full, about once per turn of the ring.
"""

from cctrace.lang.memory import words
from cctrace.sim.core.structs import LINUX, NEVER, QUIC, SEGMENT, lanes, segments

# A row of a flow's table of rings: entries of each, then the address of each, then that of the next row (0: none).
RINGS = (
    "seg", "tx_seg", "tx_ns", "tx_marks", "tx_echo", "resend", "way_ns", "way_order", "arr_ns", "arr_order",
    "log_order", "got", "ack_ns", "ack_log", "ack_echo", "ack_stamp", "ack_dup", "ack_ece", "ack_right", "ack_id",
    "wq_ends", "lacks",
)  # fmt: skip
SIZE, NEXT_ROW = 0, len(RINGS) + 1
SEGMENT_WORDS = SEGMENT.itemsize // 8


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
        found = min(found, words(f.arr_order)[k & f.mask])
    for k in range(f.way_head, f.way_tail):
        found = min(found, words(f.way_order)[k & f.mask])
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
    f.tx_seg = moved(f, row, 2, f.tx_seg, f.tx_next, 1)
    f.tx_ns = moved(f, row, 3, f.tx_ns, f.tx_next, 1)
    f.tx_marks = moved(f, row, 4, f.tx_marks, f.tx_next, 1)
    f.tx_echo = moved(f, row, 5, f.tx_echo, f.tx_next, 1)
    f.resend = moved(f, row, 6, f.resend, f.resend_tail, 1)
    f.way_ns = moved(f, row, 7, f.way_ns, f.way_tail, 1)
    f.way_order = moved(f, row, 8, f.way_order, f.way_tail, 1)
    f.arr_ns = moved(f, row, 9, f.arr_ns, f.arr_tail, 1)
    f.arr_order = moved(f, row, 10, f.arr_order, f.arr_tail, 1)
    f.log_order = moved(f, row, 11, f.log_order, f.log_next, 1)
    f.got = moved(f, row, 12, f.got, f.rcv_high, 1)
    f.ack_ns = moved(f, row, 13, f.ack_ns, f.ack_tail, 1)
    f.ack_log = moved(f, row, 14, f.ack_log, f.ack_tail, 1)
    f.ack_echo = moved(f, row, 15, f.ack_echo, f.ack_tail, 1)
    f.ack_stamp = moved(f, row, 16, f.ack_stamp, f.ack_tail, 1)
    f.ack_dup = moved(f, row, 17, f.ack_dup, f.ack_tail, 1)
    f.ack_ece = moved(f, row, 18, f.ack_ece, f.ack_tail, 1)
    f.ack_right = moved(f, row, 19, f.ack_right, f.ack_tail, 1)
    f.ack_id = moved(f, row, 20, f.ack_id, f.ack_tail, 1)
    f.wq_ends = moved(f, row, 21, f.wq_ends, f.wq_tail, 1)
    f.lacks = moved(f, row, 22, f.lacks, f.nxt + 1, 1)
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
