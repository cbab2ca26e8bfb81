"""Compiled matching of ACKs and transmissions, for `transmissions`.

Segments begin at distinct sequence numbers; several transmissions may be of one. The segments covered by an ACK or a
SACK block are found by binary search, and without rescanning: `after` skips delivered ones.
"""

import numpy as np

from cctrace.tcp.sequence import first_not_below

WAITING, DELIVERED, LOST, NEEDLESS = 0, 1, 2, 3  # state of a transmission
LATE, AT_ONCE, FILLS = 0, 1, 2  # ACKs: possibly delayed; immediate; filling a hole, which reports other segments late
PROMPT = 3  # duplicate ACKs that a Linux receiver sends before it compresses SACKs (tcp_fastretrans_thresh)


def _undelivered(after, i):
    """Return the first segment from i on that is not delivered."""
    root = i
    while after[root] != root:
        root = after[root]
    while after[i] != root:
        after[i], i = root, after[i]
    return root


def match(
    packets, sacks, starts, ends, least_ns, segment_of, latest, before, state, reported, ack_row, after, promptness
):
    """Process a connection's packets in order and record the fate of every transmission; all arrays are of int64.

    `packets`: time_ns, transmission (number of the first that a packet holds, -1 for an ACK), how many it holds, ack
    (unwrapped, -1 none), sack_row, sack_count. `sacks`: left and right edges, unwrapped. `starts`, `ends`: of the
    segments, ascending. `least_ns`: minimum RTT; an ACK sooner than this belongs to an earlier transmission.
    `segment_of`: of each transmission. `latest`: transmission of each segment, initially -1. `after`: union-find over
    the segments, one element longer, initially the identity.

    Output: `before`, `state`, `reported`, `ack_row` per transmission (the previous one of the same segment or -1, its
    state, when an ACK reported it, and in which packet), and `promptness` per packet: LATE, AT_ONCE or FILLS.
    """
    time_ns, first, count, ack, sack_row, sack_count = packets
    left, right = sacks
    segments = starts.shape[0]
    una, highest, repeats, held = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    lacks_sack = right.shape[0] == 0  # then duplicate ACKs show how many segments the receiver holds
    for row in range(time_ns.shape[0]):
        now = time_ns[row]
        if first[row] >= 0:
            for k in range(first[row], first[row] + count[row]):
                segment = segment_of[k]
                before[k], latest[segment] = latest[segment], k
                reported[k] = now  # departure time, until its state is known
            continue
        if ack[row] < 0:
            continue
        moves = ack[row] > una
        held += 0 if moves else 1
        # An ACK that advances while a hole remains is the first of the next hole's.
        repeats = repeats + 1 if not moves else 1 if highest > ack[row] else 0
        promptness[row] = (FILLS if highest > una else AT_ONCE) if moves else (AT_ONCE if repeats <= PROMPT else LATE)
        covered, una = una, max(una, ack[row])
        for b in range(sack_row[row] - 1, sack_row[row] + sack_count[row]):
            if b < sack_row[row]:  # segments covered by the ACK itself
                low, high = covered, una
            else:
                low, high = left[b], right[b]
                inside = b == sack_row[row] and sack_count[row] > 1 and low >= left[b + 1] and high <= right[b + 1]
                if high <= una or inside:
                    stop = first_not_below(ends, segments, high + 1)
                    _needless(first_not_below(starts, segments, low), stop, latest, before, state)
                    continue
                highest = max(highest, high)
            if high > low:
                begin, stop = first_not_below(starts, segments, low), first_not_below(ends, segments, high + 1)
                held -= _cover(
                    begin, stop, now, row, least_ns, lacks_sack, lacks_sack and held > 0,
                    latest, before, state, reported, ack_row, after,
                )  # fmt: skip
    return (una,)


def _cover(i, stop, now, row, least_ns, lacks_sack, holds, latest, before, state, reported, ack_row, after):
    """Mark the segments from i up to `stop` as delivered; return how many duplicate ACKs that accounts for.

    `lacks_sack`: the receiver sends no SACKs, so no D-SACKs either. `holds`: it had data beyond a hole, which is why it
    acknowledges every arrival at once [RFC5681] 4.2: what one ACK reports beside the segment that filled the hole was
    there before it.
    """
    i, filled, accounted = _undelivered(after, i), np.int64(-1), np.int64(0)
    while i < stop:
        k = latest[i]
        # The latest transmission that can have arrived. Earlier ones were lost, and later ones too, unless a D-SACK
        # reports them as duplicates, or could not.
        while k >= 0 and before[k] >= 0 and (now - reported[k] < least_ns or (holds and 0 <= filled < k)):
            state[k] = NEEDLESS if lacks_sack else LOST
            accounted += 1
            k = before[k]
        accounted += 1 if filled >= 0 else 0
        if k >= 0:
            filled = k if filled < 0 else filled
            state[k], reported[k], ack_row[k] = DELIVERED, now, row
            k = before[k]
            while k >= 0:
                if state[k] == WAITING:
                    state[k] = LOST
                k = before[k]
        after[i] = i + 1
        i = _undelivered(after, i)
    return accounted


def _needless(i, stop, latest, before, state):
    """Process a D-SACK: segments from i up to `stop` arrived twice, so none of their transmissions was lost."""
    for segment in range(i, stop):
        k = latest[segment]
        while k >= 0 and state[k] != LOST:
            k = before[k]
        if k >= 0:
            state[k] = NEEDLESS
