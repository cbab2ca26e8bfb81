"""The pass behind `transmissions`, compiled: which ACK told of which transmission.

Segments are taken apart at their sequence numbers; `unit` is the segment at each start, found by binary search. What
an ACK or a SACK block covers is found without looking at it again: `after` jumps over what is delivered already.
"""

import numpy as np

WAITING, DELIVERED, LOST, NEEDLESS = 0, 1, 2, 3  # state of a transmission
LATE, AT_ONCE, FILLS = 0, 1, 2  # an ACK that may have waited, that did not, that filled a hole and tells of others late
PROMPT = 3  # ACKs of disorder that a Linux receiver sends at once, before it compresses SACKs (tcp_fastretrans_thresh)


def _find(starts, seq):
    """Return the first row of `starts` that is not below `seq`."""
    low, high = 0, starts.shape[0]
    while low < high:
        middle = (low + high) // 2
        if starts[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low


def _undelivered(after, i):
    """Return the first segment from i on that is not delivered."""
    root = i
    while after[root] != root:
        root = after[root]
    while after[i] != root:
        after[i], i = root, after[i]
    return root


def match(packets, sacks, starts, ends, least_ns, unit, latest, before, state, reported, ack_row, after, when):
    """Walk through a connection's packets in order and note for every transmission how it ended.

    Parameters
    ----------
    packets : tuple of ndarray of int64
        time_ns, transmission (number of the first that a packet holds, -1 for an ACK), how many it holds, ack
        (unwrapped, -1 none), sack_row, sack_count.
    sacks : tuple of two ndarray of int64
        left and right, unwrapped.
    starts, ends : ndarray of int64
        Segments, ascending.
    least_ns : int
        No transmission is acknowledged sooner: what seems to be was an earlier one.
    unit : ndarray of int64
        Segment of each transmission.
    latest : ndarray of int64
        Of each segment its latest transmission; -1 at first.
    before, state, told, ack_row : ndarray of int64
        Per transmission, written: the one before of the same segment (-1), how it ended, when the sender learned so,
        and in which packet.
    after : ndarray of int64
        Union-find over the segments, one longer than they: the identity at first.
    when : ndarray of int64
        Per packet, written: whether the receiver sent this ACK as soon as what it tells of had arrived.
    """
    time_ns, first, count, ack, sack_row, sack_count = packets
    left, right = sacks
    una, highest, repeats = np.int64(0), np.int64(0), np.int64(0)
    for row in range(time_ns.shape[0]):
        now = time_ns[row]
        if first[row] >= 0:
            for k in range(first[row], first[row] + count[row]):
                segment = unit[k]
                before[k], latest[segment] = latest[segment], k
                reported[k] = now  # when it was sent, until it ends
            continue
        if ack[row] < 0:
            continue
        moves = ack[row] > una
        # An ACK that moves on while a hole is left is the first of those of the next hole.
        repeats = repeats + 1 if not moves else 1 if highest > ack[row] else 0
        when[row] = (FILLS if highest > una else AT_ONCE) if moves else (AT_ONCE if repeats <= PROMPT else LATE)
        covered, una = una, max(una, ack[row])
        for b in range(sack_row[row] - 1, sack_row[row] + sack_count[row]):
            if b < sack_row[row]:  # what the ACK itself covers
                low, high = covered, una
            else:
                low, high = left[b], right[b]
                inside = b == sack_row[row] and sack_count[row] > 1 and low >= left[b + 1] and high <= right[b + 1]
                if high <= una or inside:
                    _needless(_find(starts, low), _find(ends, high + 1), latest, before, state)
                    continue
                highest = max(highest, high)
            if high > low:
                _cover(
                    _find(starts, low),
                    _find(ends, high + 1),
                    now,
                    row,
                    least_ns,
                    latest,
                    before,
                    state,
                    reported,
                    ack_row,
                    after,
                )
    return (una,)


def _cover(i, stop, now, row, least_ns, latest, before, state, reported, ack_row, after):
    """The receiver has the segments from i up to `stop`."""
    i = _undelivered(after, i)
    while i < stop:
        k = latest[i]
        # The latest transmission that can have arrived. Earlier ones were lost, and later ones too, unless a D-SACK
        # says that they came for nothing.
        while k >= 0 and before[k] >= 0 and now - reported[k] < least_ns:
            state[k] = LOST
            k = before[k]
        if k >= 0:
            state[k], reported[k], ack_row[k] = DELIVERED, now, row
            k = before[k]
            while k >= 0:
                if state[k] == WAITING:
                    state[k] = LOST
                k = before[k]
        after[i] = i + 1
        i = _undelivered(after, i)


def _needless(i, stop, latest, before, state):
    """A D-SACK: the receiver had the segments from i up to `stop` twice, so the one thought lost came after all."""
    for segment in range(i, stop):
        k = latest[segment]
        while k >= 0 and state[k] != LOST:
            k = before[k]
        if k >= 0:
            state[k] = NEEDLESS
