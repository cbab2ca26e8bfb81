"""One row per connection: who sent what, how fast, how often again, and the RTT; one linear pass over the packets.

This needs no scoreboard: per direction it keeps the highest sequence number, the holes below it (data the capture shows
out of order), and the send times of what is outstanding. The same pass collects what the re-enactment of the sender
needs to know beforehand (segment size, the phase of the time-stamp clock, where the capture was taken).
"""

import math

import numpy as np
import pandas as pd
from numba import njit

from cctrace.flows.seqspace import group, segment_size, unwrap
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


def _pass(key):
    @njit(cache=True)
    def scan(packets, order, first, mss):
        """Collect the statistics of both directions of every connection.

        Returns sides (connections, 2), segment counts (connections, 2, 2: sent, again), RTT samples (us), the side each
        belongs to, and where each connection's samples start.
        """
        _ = key
        connections = first.size - 1
        time_ns, direction, flags, seq, ack, payload, tsval, tsecr, options, sack_row, sack_count, right = packets
        sides = np.zeros((connections, 2), SIDE)
        segments = np.zeros((connections, 2, 2), np.int64)
        samples = np.empty(1024, np.int64)
        sample_side = np.empty(1024, np.uint8)
        sample_first = np.zeros(connections + 1, np.int64)
        holes = np.zeros((2, HOLES, 2), np.int64)
        ends = np.zeros((2, RING), np.int64)
        times = np.zeros((2, RING), np.int64)
        n = 0
        for c in range(connections):
            for k in range(first[c], first[c + 1]):
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
                    if not fl & (PSH | FIN) or size > 1460:
                        me.gcd = math.gcd(me.gcd, size)
                    a = unwrap(seq[q], me.base, me.snd_nxt)
                    b = a + size
                    count = (size + mss[c, d] - 1) // mss[c, d]
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
                    width = ends.shape[1]
                    if me.tail - me.head == width:
                        wider = np.zeros((2, 2 * width), np.int64)
                        wider_times = np.zeros((2, 2 * width), np.int64)
                        for e in range(2):
                            for j in range(sides[c, e].head, sides[c, e].tail):
                                wider[e, j & (2 * width - 1)] = ends[e, j & (width - 1)]
                                wider_times[e, j & (2 * width - 1)] = times[e, j & (width - 1)]
                        ends, times = wider, wider_times
                        width *= 2
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
                    width = ends.shape[1]
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
                        if n == samples.size:
                            more = np.empty(2 * n, np.int64)
                            more[:n] = samples
                            samples = more
                            more_sides = np.empty(2 * n, np.uint8)
                            more_sides[:n] = sample_side
                            sample_side = more_sides
                        samples[n] = sample // 1000
                        sample_side[n] = 1 - d
                        n += 1
            sample_first[c + 1] = n
        return sides, segments, samples[:n], sample_side[:n], sample_first

    @njit(cache=True)
    def quantiles(samples, side, first, wanted):
        """Return minimum, median and 95th percentile (nearest rank) of each connection's wanted side; -1 without."""
        _ = key
        out = np.full((first.size - 1, 4), -1, np.int64)
        for c in range(first.size - 1):
            mine = samples[first[c] : first[c + 1]][side[first[c] : first[c + 1]] == wanted[c]]
            out[c, 3] = mine.size
            if mine.size:
                mine = np.sort(mine)
                out[c, 0] = mine[0]
                out[c, 1] = mine[(mine.size - 1) // 2]
                out[c, 2] = mine[min(mine.size - 1, (95 * mine.size + 99) // 100 - 1)]
        return out

    return scan, quantiles


_scan, _quantiles = _pass(stamp())


def _columns(packets, clock):
    names = ("direction", "flags", "seq", "ack", "payload", "tsval", "tsecr", "options", "sack_row", "sack_count")
    return (clock, *(packets[name] for name in names), packets.sacks["right"])


class Connections:
    """What one pass tells about every connection.

    Attributes
    ----------
    order, first : ndarray of int64
        Packet rows grouped by connection, see `seqspace.group`.
    clock : ndarray of int64
        The packets' times, made non-decreasing in file order, ns.
    sides : structured ndarray, shape (connections, 2)
        `SIDE` records.
    sender : ndarray of int64, shape (connections,)
        Direction (0 or 1) that carried more distinct payload.
    mss, mss_known : ndarray, shape (connections,)
        Payload of the sender's full segments, and whether that is certain.
    """

    def __init__(self, packets):
        self.packets = packets
        table = packets.connections
        count = len(table["sport"])
        self.clock = np.maximum.accumulate(packets["time_ns"]) if len(packets) else packets["time_ns"]
        self.order, self.first = group(packets["conn"], count)
        syn_mss = np.minimum(table["mss_a"], table["mss_b"]).astype(np.int64)
        opening = packets["options"][self.order[self.first[:-1]]] if count else np.zeros(0, np.uint8)
        syn_mss = np.where(syn_mss > 0, syn_mss - 12 * (opening & OPT_TIMESTAMPS).astype(np.int64), -1)
        guess = np.where(syn_mss > 0, syn_mss, 1460)
        columns = _columns(packets, self.clock)
        scanned = _scan(columns, self.order, self.first, np.column_stack([guess, guess]))
        self.sides = scanned[0]
        distinct = self.sides["distinct_bytes"]
        self.sender = (distinct[:, 1] > distinct[:, 0]).astype(np.int64)
        mine = self.sides[np.arange(count), self.sender]
        sizes = [
            segment_size(largest, gcd, option)
            for largest, gcd, option in zip(
                mine["largest"].tolist(), mine["gcd"].tolist(), syn_mss.tolist(), strict=True
            )
        ]
        self.mss = np.array([s[0] for s in sizes], np.int64).reshape(count)
        self.mss_known = np.array([s[1] for s in sizes], bool).reshape(count)
        if np.any((self.mss != guess) & (mine["largest"] > np.minimum(self.mss, guess))):
            both = np.column_stack([self.mss, self.mss])
            scanned = _scan(columns, self.order, self.first, both)
            self.sides = scanned[0]
        self.segments = scanned[1][np.arange(count), self.sender]
        self.rtt = _quantiles(*scanned[2:], self.sender)

    def __len__(self):
        return len(self.sender)

    def sender_side_ns(self):
        """Return the time from the capture point to the sender and back, ns; 0 where the capture is the sender's own.

        It is the shortest time in which the sender echoed a time stamp that had passed the capture; without them, that
        in which it answered during the handshake. Below 300 us, or a twentieth of the way to the receiver and back, the
        sender's own reaction cannot be told from a path, unless the receiver reacts several times faster.
        """
        rows = np.arange(len(self))
        mine, other = self.sides[rows, self.sender], self.sides[rows, 1 - self.sender]
        answered = np.where(mine["syn_ack"] > 0, mine["syn_ns"], mine["opened_ns"])
        single = (mine["syn_count"] == 1) & (other["syn_count"] == 1)
        handshake = np.where(single, answered - other["syn_ns"], 0)
        there = np.where(mine["echo_ns"] > 0, mine["echo_ns"], np.maximum(handshake, 0))
        far = np.where(self.rtt[:, 3] > 0, np.maximum(self.rtt[:, 0], 1), 0) * 1000
        distant = (there > 300_000) & (there > far // 20)
        return np.where(distant | ((there > 5_000) & (there > 4 * far) & (far > 0)), there, 0)

    def frame(self, warnings):
        """Return the table as a DataFrame; `warnings` holds one list of strings per connection."""
        table, rows = self.packets.connections, np.arange(len(self))
        mine = self.sides[rows, self.sender]
        flip = self.sender == 1
        begin = self.clock[self.order[self.first[:-1]]] if len(self) else np.zeros(0, np.int64)
        end = self.sides["last_ns"].max(axis=1) if len(self) else np.zeros(0, np.int64)
        duration = (end - begin) / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            goodput = np.where(duration > 0, mine["distinct_bytes"] * 8 / duration, np.nan)
        rtt = [pd.array(np.where(self.rtt[:, i] < 0, 0, self.rtt[:, i]), dtype="Int64") for i in range(3)]
        for column in rtt:
            column[self.rtt[:, 3] == 0] = pd.NA
        return pd.DataFrame(
            {
                "src": np.where(flip, table["dst"], table["src"]),
                "sport": np.where(flip, table["dport"], table["sport"]),
                "dst": np.where(flip, table["src"], table["dst"]),
                "dport": np.where(flip, table["sport"], table["dport"]),
                "packets": self.sides["packets"].sum(axis=1),
                "bytes_sent": mine["distinct_bytes"],
                "segments_sent": self.segments[:, 0],
                "retransmitted_segments": self.segments[:, 1],
                "goodput_bps": goodput,
                "rtt_min_us": rtt[0],
                "rtt_median_us": rtt[1],
                "rtt_p95_us": rtt[2],
                "start_ns": begin,
                "duration_s": duration,
                "warnings": warnings,
            }
        )
