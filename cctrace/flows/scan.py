"""The pass behind the table of connections, compiled: statistics of both directions, packet by packet.

Per direction it keeps the highest sequence number, the holes below it (data the capture shows out of order), and the
send times of what is outstanding; no scoreboard. The packets may come in parts: what a part leaves behind is handed to
the next. The loop itself (`_walk`) allocates nothing and so does without reference counting: a sixth of the time.
"""

import math

import numpy as np
from numba import njit

from cctrace.flows.seqspace import unwrap
from cctrace.flows.state import ACK, ECE, FIN, OPT_TIMESTAMPS, PSH, SYN, _i8, stamp

HOLES = 256  # holes remembered per direction; a connection with more at one time counts some data twice
RING = 64

# One per direction of a connection.
SIDE = _i8(
    "packets data_packets data_bytes distinct_bytes base has_base snd_nxt max_ack has_ack first_ack ack_base ack_span "
    "syn syn_ack syn_ns syn_count ecn_syn first_data_ns last_ns largest gcd fin "
    "opened_ns echo_ns asked asked_val asked_ns "
    "ts_count ts_first ts_last ts_first_ns ts_last_ns ts_phase_us out_of_order unseen_bytes head tail holes cut"
)


@njit
def _wider(ends, times, sides):
    """Return rings of twice the width that hold the same."""
    width = ends.shape[1]
    wider, wider_times = np.zeros((2, 2 * width), np.int64), np.zeros((2, 2 * width), np.int64)
    for e in range(2):
        for j in range(sides[e].head, sides[e].tail):
            wider[e, j & (2 * width - 1)] = ends[e, j & (width - 1)]
            wider_times[e, j & (2 * width - 1)] = times[e, j & (width - 1)]
    return wider, wider_times


@njit
def _room(rows, used, more):
    """Return `rows` with room for `more` rows behind the `used` first ones."""
    if used + more <= rows.shape[0]:
        return rows
    wider = np.empty((2 * (used + more), 2), np.int64)
    wider[:used] = rows[:used]
    return wider


@njit
def _longer(values):
    """Return an array of twice the length that begins with these values."""
    longer = np.empty(2 * values.size, np.int64)
    longer[: values.size] = values
    return longer


# A global, not a variable of `_pass`: numba's cache takes a compiled function in a closure for a new one every time.
@njit(nogil=True, _nrt=False)
def _walk(packets, order, start, stop, c, mss, sides, segments, holes, ends, times, samples, sample_side, n):
    """Take in the packets order[k:stop] of connection c as far as the rings and the samples have room.

    Returns how far it came and the number of samples. It allocates nothing: without reference counting it takes
    a fraction of the time.
    """
    time_ns, direction, flags, seq, ack, payload, tsval, tsecr, options, sack_row, sack_count, right = packets
    width = ends.shape[1]
    for k in range(start, stop):
        if n == samples.size or max(sides[c, 0].tail - sides[c, 0].head, sides[c, 1].tail - sides[c, 1].head) == width:
            return k, n
        q = order[k]
        d = direction[q]
        me = sides[c, d]
        peer = sides[c, 1 - d]
        fl = flags[q]
        now = time_ns[q]
        me.packets += 1
        me.last_ns = now
        size = np.int64(payload[q])
        if not fl & SYN and me.opened_ns == 0:
            me.opened_ns = now
        if options[q] & OPT_TIMESTAMPS:
            # How long the way from here to this endpoint and back takes: until it echoes what passed here.
            if me.asked and ((np.int64(tsecr[q]) - me.asked_val) & 0xFFFFFFFF) < 0x80000000:
                me.asked = 0
                if me.echo_ns == 0 or now - me.asked_ns < me.echo_ns:
                    me.echo_ns = max(1, now - me.asked_ns)
            if not peer.asked and ((np.int64(tsval[q]) - peer.asked_val) & 0xFFFFFFFF) - 1 < 0x7FFFFFFF:
                peer.asked = 1
                peer.asked_val, peer.asked_ns = tsval[q], now
        if options[q] & OPT_TIMESTAMPS and size:
            x = now // 1000 - np.int64(tsval[q]) * 1000
            if me.ts_count == 0:
                me.ts_first, me.ts_first_ns = tsval[q], now
                me.ts_phase_us = x
            me.ts_phase_us = min(me.ts_phase_us, x)
            me.ts_last, me.ts_last_ns = tsval[q], now
            me.ts_count += 1
        if fl & SYN:
            if not me.has_base:
                me.base = np.int64(seq[q])
                me.has_base = 1
                me.snd_nxt = 1
            me.syn = 1
            me.syn_count += 1
            me.syn_ack = 1 if fl & ACK else 0
            me.syn_ns = now
            me.ecn_syn = 1 if fl & ECE else 0
        if size or fl & FIN:
            if not me.has_base:
                me.base = (np.int64(seq[q]) - 1) & 0xFFFFFFFF
                me.has_base = 1
                me.snd_nxt = 1
            if fl & FIN:
                me.fin = 1
        if size:
            if me.data_packets == 0:
                me.first_data_ns = now
            me.data_packets += 1
            me.data_bytes += size
            me.largest = max(me.largest, size)
            if size != me.gcd and (not fl & (PSH | FIN) or size > 1460):
                me.gcd = math.gcd(me.gcd, size)
            a = unwrap(seq[q], me.base, me.snd_nxt)
            b = a + size
            count = 1 if size <= mss else (size + mss - 1) // mss
            segments[c, d, 0] += count
            again = False
            new = b - max(a, me.snd_nxt)
            if a > me.snd_nxt:
                if me.holes < HOLES:
                    holes[d, me.holes, 0] = me.snd_nxt
                    holes[d, me.holes, 1] = a
                    me.holes += 1
                else:
                    me.cut += 1
            elif a < me.snd_nxt:
                filled = 0  # bytes that the capture shows for the first time, below the highest
                h = 0
                while h < me.holes:
                    low, high = holes[d, h, 0], holes[d, h, 1]
                    overlap = min(b, high) - max(a, low)
                    if overlap <= 0:
                        h += 1
                        continue
                    filled += overlap
                    if a > low and b < high and me.holes < HOLES:
                        holes[d, me.holes, 0] = b
                        holes[d, me.holes, 1] = high
                        holes[d, h, 1] = a
                        me.holes += 1
                    elif a > low:
                        holes[d, h, 1] = a
                    elif b < high:
                        holes[d, h, 0] = b
                    else:
                        me.holes -= 1
                        holes[d, h, 0] = holes[d, me.holes, 0]
                        holes[d, h, 1] = holes[d, me.holes, 1]
                        continue
                    h += 1
                if filled:
                    me.out_of_order += 1
                    me.distinct_bytes += filled
                elif size > 1 or b > me.snd_nxt:
                    again = True
                    segments[c, d, 1] += count
            if new > 0:
                me.distinct_bytes += new
                me.snd_nxt = b
            if new > 0 and not again:
                ends[d, me.tail & (width - 1)] = b
                times[d, me.tail & (width - 1)] = now
                me.tail += 1
            elif again:  # Karn: nothing sent before b gives an RTT once part of it was sent again
                low, high = me.head, me.tail
                while low < high:
                    mid = (low + high) >> 1
                    if ends[d, mid & (width - 1)] > a:
                        high = mid
                    else:
                        low = mid + 1
                while low < me.tail and ends[d, low & (width - 1)] - 1 < b:
                    times[d, low & (width - 1)] = -1
                    low += 1
        if fl & ACK:
            if me.ack_span == 0:
                me.ack_base = ack[q]
            me.ack_span = max(me.ack_span, 1 + unwrap(ack[q], me.ack_base, max(0, me.ack_span - 1)))
        if fl & ACK and peer.has_base:
            a = unwrap(ack[q], peer.base, peer.max_ack)
            if not peer.has_ack:
                peer.has_ack = 1
                peer.first_ack = a
                peer.max_ack = min(a, 0)
            sample = np.int64(-1)
            if peer.max_ack < 1 and a >= 1 and peer.syn_count == 1:
                sample = now - peer.syn_ns
            if a > peer.max_ack:
                if a > peer.snd_nxt + 1:
                    peer.unseen_bytes += a - peer.snd_nxt - 1
                    peer.snd_nxt = a
                clean = True
                while peer.head < peer.tail and ends[1 - d, peer.head & (width - 1)] <= a:
                    sent = times[1 - d, peer.head & (width - 1)]
                    if sent < 0:
                        clean = False
                    sample = now - sent
                    peer.head += 1
                if not clean:
                    sample = -1
                peer.max_ack = a
            if sack_count[q] and sample < 0:
                edge = unwrap(right[sack_row[q]], peer.base, peer.max_ack)
                if edge > peer.max_ack:
                    low, high = peer.head, peer.tail
                    while low < high:
                        mid = (low + high) >> 1
                        if ends[1 - d, mid & (width - 1)] >= edge:
                            high = mid
                        else:
                            low = mid + 1
                    if low < peer.tail and ends[1 - d, low & (width - 1)] == edge:
                        sent = times[1 - d, low & (width - 1)]
                        if sent >= 0:
                            sample = now - sent
                            times[1 - d, low & (width - 1)] = -2
            if sample >= 0:
                samples[n] = sample // 1000
                sample_side[n] = 2 * c + 1 - d
                n += 1
    return stop, n


def _pass(key):
    @njit(cache=True, nogil=True)
    def scan(packets, order, first, mss, sides, segments, kept, gaps):
        """Go on collecting the statistics of both directions of every connection with one part of the packets.

        Changes sides (connections, 2) and segment counts (connections, 2, 2: sent, again). `kept` holds (end, time) of
        what was outstanding after the part before, `gaps` the holes, (low, high), both in the order of the sides.
        Returns both anew, RTT samples (us), and whose they are (2 * connection + direction).
        """
        _ = key
        connections = first.size - 1
        samples = np.empty(1024, np.int64)
        sample_side = np.empty(1024, np.int64)
        holes = np.zeros((2, HOLES, 2), np.int64)
        ends = np.zeros((2, RING), np.int64)
        times = np.zeros((2, RING), np.int64)
        left = np.empty((kept.shape[0] + RING, 2), np.int64)
        left_gaps = np.empty((gaps.shape[0] + HOLES, 2), np.int64)
        n = taken = taken_gaps = put = put_gaps = 0
        for c in range(connections):
            for d in range(2):
                me = sides[c, d]
                count = me.tail - me.head
                while ends.shape[1] < count:
                    ends, times = _wider(ends, times, sides[c])
                me.head, me.tail = 0, count
                ends[d, :count] = kept[taken : taken + count, 0]
                times[d, :count] = kept[taken : taken + count, 1]
                taken += count
                holes[d, : me.holes] = gaps[taken_gaps : taken_gaps + me.holes]
                taken_gaps += me.holes
            k = first[c]
            while True:
                k, n = _walk(
                    packets,
                    order,
                    k,
                    first[c + 1],
                    c,
                    mss[c],
                    sides,
                    segments,
                    holes,
                    ends,
                    times,
                    samples,
                    sample_side,
                    n,
                )
                if k == first[c + 1]:
                    break
                if n == samples.size:
                    samples, sample_side = _longer(samples), _longer(sample_side)
                else:
                    ends, times = _wider(ends, times, sides[c])
            for d in range(2):
                me = sides[c, d]
                left = _room(left, put, me.tail - me.head)
                for j in range(me.head, me.tail):
                    left[put, 0] = ends[d, j & (ends.shape[1] - 1)]
                    left[put, 1] = times[d, j & (ends.shape[1] - 1)]
                    put += 1
                left_gaps = _room(left_gaps, put_gaps, me.holes)
                left_gaps[put_gaps : put_gaps + me.holes] = holes[d, : me.holes]
                put_gaps += me.holes
        return left[:put].copy(), left_gaps[:put_gaps].copy(), samples[:n].copy(), sample_side[:n].copy()

    @njit(cache=True)
    def quantiles(samples, order, first, wanted):
        """Return minimum, median and 95th percentile (nearest rank) of each wanted side, and how many; -1 without."""
        _ = key
        out = np.full((wanted.size, 4), -1, np.int64)
        for c in range(wanted.size):
            side = 2 * c + wanted[c]
            mine = np.sort(samples[order[first[side] : first[side + 1]]])
            out[c, 3] = mine.size
            if mine.size:
                out[c, 0] = mine[0]
                out[c, 1] = mine[(mine.size - 1) // 2]
                out[c, 2] = mine[min(mine.size - 1, (95 * mine.size + 99) // 100 - 1)]
        return out

    return scan, quantiles


scan, quantiles = _pass(stamp())
