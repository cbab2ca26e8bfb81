"""Compiled statistics of both directions of every connection, packet by packet, for the table of connections.

Per direction it keeps the highest sequence number, the holes below it (data captured out of order), and the send
times of outstanding data; no scoreboard. Nothing is kept per packet, so a capture may come in parts of any size.
"""

import math

import numpy as np

from cctrace.flows.state import HOLES, OPTION_BYTES, SAMPLE_BITS, STAMP_TICKS_US
from cctrace.io.captures.packets import OPT_BAD, OPT_COPY, OPT_TIMESTAMPS
from cctrace.tcp.ecn import ace_of
from cctrace.tcp.flags import ACK, FIN, PSH, RST, SYN
from cctrace.tcp.sequence import unwrap

LONGEST_TICK_NS = max(STAMP_TICKS_US) * 1000


def _room(me, pool, used, behind):
    """Make room for one more segment outstanding and, `behind` the highest or beyond it, for one more hole.

    Room is taken from the end of the pool, twice as much as before; returns what is used of it, or -1 if it is full.
    """
    if me.tail - me.head == me.width:
        width = max(4, 2 * me.width)
        if used + width > pool.shape[0]:
            return np.int64(-1)
        for j in range(me.head, me.tail):
            pool[used + (j & (width - 1)), 0] = pool[me.ring + (j & (me.width - 1)), 0]
            pool[used + (j & (width - 1)), 1] = pool[me.ring + (j & (me.width - 1)), 1]
        me.ring, me.width = used, width
        used += width
    if behind and me.holes == me.room and me.room < HOLES:
        room = max(4, 2 * me.room)
        if used + room > pool.shape[0]:
            return np.int64(-1)
        for h in range(me.holes):
            for k in range(4):
                pool[used + h, k] = pool[me.gaps + h, k]
        me.gaps, me.room = used, room
        used += room
    return used


def _begin(opener, stamped, mss, is_known, now):
    """Process the first packet of a connection."""
    opener.begin_ns = now
    opener.opening = stamped
    opener.mss = mss
    if not is_known:
        opener.mss = mss - OPTION_BYTES * stamped if mss > 0 else 1460


def _note_stamps(me, peer, tsval, tsecr, size, now):
    """Measure how long an endpoint takes to echo a stamp that passed here, and track the clock of data's stamps."""
    # Round-trip time to this endpoint: until it echoes a value that passed here.
    if me.timed and ((tsecr - me.timed_val) & 0xFFFFFFFF) < 0x80000000:
        me.timed = 0
        took = now - me.timed_ns
        if me.typical_ns:
            took = (7 * me.typical_ns + min(took, 2 * me.typical_ns)) >> 3  # pauses are not part of it
        me.typical_ns = max(1, took)
        if me.echo_ns == 0 or now - me.timed_ns < me.echo_ns:
            me.echo_ns = max(1, now - me.timed_ns)
        if size and (me.echo_data_ns == 0 or now - me.timed_ns < me.echo_data_ns):
            me.echo_data_ns = max(1, now - me.timed_ns)
    is_newer = ((tsval - peer.timed_val) & 0xFFFFFFFF) - 1 < 0x7FFFFFFF  # the first one is, whatever it is
    if not peer.timed and (is_newer or peer.timed_ns == 0):
        peer.timed = 1
        peer.timed_val, peer.timed_ns = tsval, now
    if size:
        x = now // 1000 - tsval * 1000
        if me.ts_count == 0:
            me.ts_first, me.ts_first_ns = tsval, now
            me.ts_phase_us = x
        me.ts_phase_us = min(me.ts_phase_us, x)
        me.ts_last, me.ts_last_ns = tsval, now
        me.ts_count += 1


def _note_syn(me, opener, fl, seq, options, mss, is_known, at):
    """Process a SYN: initial sequence number, options, ECN."""
    if opener.opening and not options & OPT_TIMESTAMPS:  # both ends have to offer them [RFC 7323]
        opener.opening = 0
        if not is_known and mss > 0:
            opener.mss = mss
    if not me.has_origin:
        me.origin = seq
        me.has_origin = 1
        me.snd_nxt = 1
    me.syn = 1
    me.syn_count += 1
    me.syn_ack = 1 if fl & ACK else 0
    me.syn_ns = at
    me.syn_whole = 0 if options & OPT_BAD else 1
    me.ecn_syn = ace_of(fl)


def _note_fin(me, pool, seq, size, at):
    """Process a FIN: it is acknowledged like a byte, and gives an RTT as well."""
    if not size:
        end = unwrap(seq, me.origin, me.snd_nxt) + 1
        last = me.ring + ((me.tail - 1) & (me.width - 1))
        if not me.fin and end == me.snd_nxt + 1:
            pool[me.ring + (me.tail & (me.width - 1)), 0] = end
            pool[me.ring + (me.tail & (me.width - 1)), 1] = at
            me.tail += 1
        elif me.tail > me.head and pool[last, 0] == end:
            pool[last, 1] = -1
    me.fins += 1
    me.fin = 1


def _add_hole(me, pool, low, high, now, stamp):
    """Record a hole, bytes not captured so far, and the stamp of newer data; the caller has made room."""
    pool[me.gaps + me.holes, 0] = low
    pool[me.gaps + me.holes, 1] = high
    pool[me.gaps + me.holes, 2] = now
    pool[me.gaps + me.holes, 3] = stamp
    me.holes += 1


def _extend_below(me, pool, a, b, now, stamp):
    """Process data that begin below all before them; return how many of their bytes lie below."""
    older = min(b, me.lowest) - a if me.data_packets > 1 and not me.syn else np.int64(0)
    if older > 0 and b < me.lowest and me.holes < HOLES:
        _add_hole(me, pool, b, me.lowest, now, stamp)
    me.lowest = a
    return older


def _fill(me, pool, a, b, now):
    """Process data below the highest; return how many bytes of holes they fill, and when the oldest one began.

    Also returns the time stamp of the newer data that began it; -1 without.
    """
    late = max(0, min(b, me.late_high) - max(a, me.late_low))
    if late:
        me.uncaptured_bytes -= late
        me.late_low = min(b, me.late_high)
    filled, since, newer, h = late, now, np.int64(-1), 0
    while h < me.holes:
        low, high = pool[me.gaps + h, 0], pool[me.gaps + h, 1]
        overlap = min(b, high) - max(a, low)
        if overlap <= 0:
            h += 1
            continue
        filled += overlap
        if pool[me.gaps + h, 2] < since:
            since, newer = pool[me.gaps + h, 2], pool[me.gaps + h, 3]
        if a > low and b < high and me.holes < HOLES:
            _add_hole(me, pool, b, high, pool[me.gaps + h, 2], pool[me.gaps + h, 3])
            pool[me.gaps + h, 1] = a
        elif a > low:
            pool[me.gaps + h, 1] = a
        elif b < high:
            pool[me.gaps + h, 0] = b
        else:
            me.holes -= 1
            pool[me.gaps + h, 0] = pool[me.gaps + me.holes, 0]
            pool[me.gaps + h, 1] = pool[me.gaps + me.holes, 1]
            pool[me.gaps + h, 2] = pool[me.gaps + me.holes, 2]
            pool[me.gaps + h, 3] = pool[me.gaps + me.holes, 3]
            continue
        h += 1
    return filled, since, newer


def _first_ending(me, pool, edge):
    """Return the first of what is outstanding that ends at `edge` or beyond."""
    low, high = me.head, me.tail
    while low < high:
        mid = (low + high) >> 1
        if pool[me.ring + (mid & (me.width - 1)), 0] >= edge:
            high = mid
        else:
            low = mid + 1
    return low


def _forget_times(me, pool, a, b):
    """Apply Karn's rule: retransmitted data [a, b) give no RTT."""
    low = _first_ending(me, pool, a + 1)
    while low < me.tail and pool[me.ring + (low & (me.width - 1)), 0] - 1 < b:
        pool[me.ring + (low & (me.width - 1)), 1] = -1
        low += 1


def _note_data(me, pool, seq, size, fl, mss, at, now, stamp):
    """Process the data of a packet: how much of it is new, fills a hole, or was captured before.

    `stamp`: its time stamp, -1 without.
    """
    me.data_packets += 1
    me.largest = max(me.largest, size)
    if size != me.gcd and (not fl & (PSH | FIN) or size > 1460):
        me.gcd = math.gcd(me.gcd, size)
    a = unwrap(seq, me.origin, me.snd_nxt) + (1 if fl & SYN else 0)
    b = a + size
    count = 1 if size <= mss else (size + mss - 1) // mss
    me.sent += count
    is_retransmission = False
    new = b - max(a, me.snd_nxt)
    older = np.int64(0)
    if me.data_packets == 1 or a < me.lowest:
        older = _extend_below(me, pool, a, b, now, stamp)
    if a > me.snd_nxt:
        if me.holes < HOLES:
            _add_hole(me, pool, me.snd_nxt, a, now, stamp)
        else:
            me.cut += 1
    elif a < me.snd_nxt:
        filled, since, newer = _fill(me, pool, a, b, now)
        filled += older  # bytes shown for the first time
        if filled:
            me.out_of_order += 1
            me.distinct_bytes += filled
            # An RTT after newer data it is a repair: the original was lost before the capture point. But what bears an
            # earlier time stamp than these was sent before them, and came late; so did what bears the same, unless an
            # RTT may pass within one tick of the stamps.
            usual = me.typical_ns + me.rtt_ns
            after = (stamp - newer) & 0xFFFFFFFF
            may_repair = stamp < 0 or newer < 0 or ((after or usual < LONGEST_TICK_NS) and after < 0x80000000)
            if usual and (now - since) * 5 >= usual * 4 and may_repair:
                me.refilled += count
        elif size > 1 or b > me.snd_nxt:
            is_retransmission = True
            me.retransmitted += count
        else:
            me.single += 1
    if new > 0:
        me.distinct_bytes += new
        me.snd_nxt = b
    if new > 0 and not is_retransmission:
        pool[me.ring + (me.tail & (me.width - 1)), 0] = b
        pool[me.ring + (me.tail & (me.width - 1)), 1] = at
        me.tail += 1
    elif is_retransmission:
        _forget_times(me, pool, a, b)


def _note_ack(peer, pool, ack, edge, at):
    """Process an ACK and the right edge of its first SACK block (-1: none); return the RTT sample, ns, or -1."""
    a = unwrap(ack, peer.origin, peer.max_ack)
    if not peer.has_ack:
        peer.has_ack = 1
        peer.first_ack = a
        peer.max_ack = min(a, 0)
    sample = np.int64(-1)
    if peer.max_ack < 1 and a >= 1 and peer.syn_count == 1 and peer.syn_ns:
        sample = at - peer.syn_ns
    if a > peer.max_ack:
        if a > peer.snd_nxt + 1:  # one more is a FIN or a probe of the window
            peer.uncaptured_bytes += a - peer.snd_nxt
            if peer.late_high != peer.snd_nxt:
                peer.late_low = peer.snd_nxt
            peer.late_high = a
            peer.snd_nxt = a
        clean = True
        while peer.head < peer.tail and pool[peer.ring + (peer.head & (peer.width - 1)), 0] <= a:
            sent = pool[peer.ring + (peer.head & (peer.width - 1)), 1]
            if sent <= 0:
                clean = False
            sample = at - sent
            peer.head += 1
        if not clean:
            sample = -1
        peer.max_ack = a
    if edge >= 0 and sample < 0:
        edge = unwrap(edge, peer.origin, peer.max_ack)
        if edge > peer.max_ack:
            low = _first_ending(peer, pool, edge)
            if low < peer.tail and pool[peer.ring + (low & (peer.width - 1)), 0] == edge:
                sent = pool[peer.ring + (low & (peer.width - 1)), 1]
                if sent > 0:
                    sample = at - sent
                    pool[peer.ring + (low & (peer.width - 1)), 1] = -2
    return sample


def walk(packets, start, mss, is_known, sides, pool, used, samples, now):
    """Process the packets from row `start` on, as far as the pool has room.

    `packets`: the columns in the order of `table.COLUMNS`, and the right edges of all SACK blocks. `mss` per
    connection: segment size or, unless it `is_known`, the smaller MSS option of the SYNs so far (-1 unknown). `sides`:
    `state.SIDE` records, shape (2, at least connections), updated; fields of both directions are in the first. `pool`:
    rings of (end, send time, -, -) of outstanding data, and (low, high, since when, stamp) of the holes. `samples`
    receives RTT samples: (2 * connection + direction) << SAMPLE_BITS | microseconds. `now`: time of the previous
    packet, ns; time does not step back.

    Returns (next row, used part of the pool, samples, time of the last packet).
    """
    time_ns, conn, direction, flags, seq, ack, payload, tsval, tsecr, options, sack_row, sack_count, right = packets
    rows, n = time_ns.size, 0
    for q in range(start, rows):
        c, d = conn[q], direction[q]
        me = sides[d, c]
        if options[q] & OPT_COPY:
            me.copies += 1
            continue
        peer = sides[1 - d, c]
        fl = flags[q]
        size = np.int64(payload[q])
        if size or fl & FIN:
            behind = me.has_origin and unwrap(seq[q], me.origin, me.snd_nxt) != me.snd_nxt
            if me.tail - me.head == me.width or behind:
                taken = _room(me, pool, used, behind)
                if taken < 0:
                    return q, used, n, now
                used = taken
        # RTTs are differences of the stamps themselves: where those step back, `now` stands still. 0 is no stamp.
        at = time_ns[q]
        now = max(now, at)
        stamped = options[q] & OPT_TIMESTAMPS
        opener = sides[0, c]
        if opener.packets == 0 and sides[1, c].packets == 0:
            _begin(opener, stamped, mss[c], is_known, now)
        me.packets += 1
        me.last_ns = now
        if not fl & SYN and me.opened_ns == 0:
            me.opened_ns = at
        if stamped:
            _note_stamps(me, peer, np.int64(tsval[q]), np.int64(tsecr[q]), size, now)
        if fl & SYN:
            _note_syn(me, opener, np.int64(fl), np.int64(seq[q]), np.int64(options[q]), mss[c], is_known, at)
        elif not fl & RST:
            ace = ace_of(np.int64(fl))
            me.ecn_bits |= ace
            if me.ace_first == 0:
                me.ace_first = 1 + ace
        if size or fl & FIN:
            if not me.has_origin:
                me.origin = (np.int64(seq[q]) - 1) & 0xFFFFFFFF
                me.has_origin = 1
                me.snd_nxt = 1
            if fl & FIN:
                _note_fin(me, pool, seq[q], size, at)
        if size:
            _note_data(me, pool, seq[q], size, fl, opener.mss, at, now, np.int64(tsval[q]) if stamped else np.int64(-1))
        if fl & ACK:
            if me.ack_span == 0:
                me.ack_base = ack[q]
            me.ack_span = max(me.ack_span, 1 + unwrap(ack[q], me.ack_base, max(0, me.ack_span - 1)))
        if fl & ACK and peer.has_origin:
            edge = np.int64(right[sack_row[q]]) if sack_count[q] else np.int64(-1)
            sample = _note_ack(peer, pool, ack[q], edge, at)
            if sample >= 0 and at:
                peer.rtt_ns = max(1, min(sample, peer.rtt_ns) if peer.rtt_ns else sample)
                samples[n] = ((2 * np.int64(c) + 1 - d) << SAMPLE_BITS) | min(sample // 1000, (1 << SAMPLE_BITS) - 1)
                n += 1
    return rows, used, n, now


def put_by_side(samples, place, out):
    """Put samples behind the others of their side; `place`: where the next one of each side goes."""
    for i in range(samples.size):
        side = samples[i] >> SAMPLE_BITS
        out[place[side]] = samples[i]
        place[side] += 1
