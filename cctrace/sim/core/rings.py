"""The rings of a flow, sized by the data in flight, so that a run's working set stays in the cache.

A ring's memory holds several times what path and buffer do, but only its beginning is used: `mask` bounds how much, and
follows what is in use, which is counted only when the rings may be full or are much too large. Fewer ACKs than packets
are under way, and few arrivals wait to be reported: their rings are smaller, bounded by `ack_mask`.
"""

from cctrace.lang.memory import words
from cctrace.sim.core import structs

SEGMENT_WORDS, TRANSMISSION_WORDS, COMING_WORDS, ACK_WORDS, TOLD_WORDS = (
    dtype.itemsize // 8 for dtype in (structs.SEGMENT, structs.TRANSMISSION, structs.COMING, structs.ACK, structs.TOLD)
)
RINGS = {  # words of an entry
    "seg": SEGMENT_WORDS, "tx": TRANSMISSION_WORDS, "resend": 1, "way": COMING_WORDS, "arr": COMING_WORDS,
    "log": 1, "got": 1, "ack": ACK_WORDS, "told": TOLD_WORDS, "wq_ends": 1, "lacks": 1,
}  # fmt: skip
OFTEN = 128  # transmissions at least from one count to the next


def make_room(w, f):
    """Before a transmission that may find no room: count what is in use, and use more or less memory."""
    used = in_use(w, f)
    while used > 3 * (f.mask >> 2) and grow(f):
        pass
    while used < f.mask >> 2 and f.mask > f.least_mask:
        resize(f, f.mask >> 1)
    reported = max(f.ack_tail - f.ack_head, f.log_next - f.log_seen)
    if reported < f.ack_mask >> 2 and f.ack_mask > f.least_mask >> 1:
        resize_acks(f, f.ack_mask >> 1)
    room = f.mask - 1 - used if f.mask < f.most_mask else f.mask >> 1
    f.tx_full = f.tx_next + min(room, 4 * used + OFTEN)


def in_use(w, f):
    """How many entries of a ring are in use, at most."""
    order, segment = oldest(w, f), f.rcv_read
    if f.nxt - f.small_sent <= f.mask:  # the receiver asks for the lengths of duplicates, too
        for k in range(order, f.tx_next):
            segment = min(segment, structs.transmissions(f.tx)[k & f.mask].seg)
    used = max(f.tx_next - order + f.resend_tail - f.resend_head, f.nxt - segment)
    arriving = f.tx_next - order if w.n_lanes > 0 else f.arr_tail - f.arr_head + f.way_tail - f.way_head
    return max(used, max(arriving, f.wq_tail - f.wq_head + 1))


def oldest(w, f):
    """The first transmission that sender, path or receiver still refer to."""
    found = f.tx_next
    if f.profile != structs.LINUX:
        found = f.tx_head
        for k in range(f.log_seen, f.log_next):
            found = min(found, words(f.log)[k & f.ack_mask])
    if f.fq == 1:
        found = min(found, f.fq_next)
    if f.profile != structs.QUIC:
        for index in range(f.una, f.nxt):  # of those never sent again the first is the oldest
            found = min(found, structs.segments(f.seg)[index & f.mask].order)
            if not structs.segments(f.seg)[index & f.mask].marks & structs.EVER_RETRANS:
                break
    for k in range(f.arr_head, f.arr_tail):
        found = min(found, structs.coming(f.arr)[k & f.mask].order)
    for k in range(f.way_head, f.way_tail):
        found = min(found, structs.coming(f.way)[k & f.mask].order)
    for which in range(w.n_lanes):
        lane = structs.lanes(w.lanes)[which]
        for k in range(lane.head, lane.tail):
            if words(lane.flow)[k & w.q_mask] == f.index:
                found = min(found, words(lane.order)[k & w.q_mask])
    return found


def is_full(mask, head, tail):
    """Whether a ring that is in use from `head` to `tail` is about to have no room."""
    return tail - head >= mask - 1


def grow(f):
    """Use twice the memory; returns whether there is as much."""
    if f.mask == f.most_mask:
        return False
    resize(f, 2 * f.mask + 1)
    return True


def resize(f, mask):
    """Move the entries of all rings but those of ACKs to their places for another `mask`."""
    everything = -1 - min(mask, f.mask)
    end = f.tx_next if f.profile == structs.QUIC else f.nxt
    move(f.mask, mask, f.seg, end + everything, end, SEGMENT_WORDS)
    move(f.mask, mask, f.tx, f.tx_next + everything, f.tx_next, TRANSMISSION_WORDS)
    move(f.mask, mask, f.resend, f.resend_head, f.resend_tail, 1)
    move(f.mask, mask, f.way, f.way_head, f.way_tail, COMING_WORDS)
    move(f.mask, mask, f.arr, f.arr_head, f.arr_tail, COMING_WORDS)
    move(f.mask, mask, f.got, f.rcv_read, f.rcv_high, 1)
    move(f.mask, mask, f.wq_ends, f.wq_head, f.wq_tail, 1)
    move(f.mask, mask, f.lacks, f.nxt + 1 + everything, min(f.nxt + 1, f.small_sent), 1)
    f.mask = mask


def grow_acks(f):
    """Use twice the memory for ACKs, if there is as much."""
    if f.ack_mask < f.most_mask:
        resize_acks(f, 2 * f.ack_mask + 1)


def resize_acks(f, mask):
    """Move ACKs, and what they report, to their places for another `mask`."""
    since = min(f.log_seen, f.log_next - 2)  # QUIC's receiver looks at the last one again
    move(f.ack_mask, mask, f.log, since, f.log_next, 1)
    move(f.ack_mask, mask, f.ack, f.ack_head, f.ack_tail, ACK_WORDS)
    move(f.ack_mask, mask, f.told, f.ack_head, f.ack_tail, TOLD_WORDS)
    f.ack_mask = mask


def move(before, mask, ring, head, tail, width):
    """Move what is in use of a ring, entries of `width` words; what it leaves is zero, as `got` needs it.

    Of the places for the smaller mask each entry has one: either is its own, or that of no other one.
    """
    for k in range(max(head, 0), tail):
        old, new = (k & before) * width, (k & mask) * width
        if old != new:
            for j in range(width):
                words(ring)[new + j] = words(ring)[old + j]
                words(ring)[old + j] = 0
