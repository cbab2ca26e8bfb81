"""From captured frames to columns: link layer, IP and TCP decoded in one compiled pass.

A file format (`pcap.py`, `pcapng.py`) finds the frames in a chunk of bytes: offset, captured and original length, time
and link type of each. `decode_frames`, called by `frames.py`, does the rest for all formats:

    frame --link type--> EtherType (VLAN, MPLS, PPPoE, LLC stripped) --> IPv4 | IPv6 (extension headers walked)
          --tunnels, on request--> inner IP --> TCP header and options --> one row, connection by hash table

Nothing is dropped silently: each frame either becomes a row or counts in exactly one of the skip counters.
Lengths are those of the wire: where the IP header says 0 (TSO, BIG TCP) the length comes from the record.

Sources: RFC 791, 8200, 9293, 7323, 2018, 9768.
"""

import numpy as np

from cctrace.io import layout
from cctrace.io.captures import packets
from cctrace.io.captures.fragments import gather, is_whole
from cctrace.io.captures.ipv6 import jumbo_length, skip_extensions
from cctrace.io.captures.link import NEAR, be16, be32, be64, inner_header, ip_header, u8
from cctrace.io.captures.tracking import follow, numbered, track
from cctrace.schema import MAX_PACKET
from cctrace.tcp.flags import ACK, FIN, RST, SYN

# A connection whose SYN was not captured, silent for this long, ends when a SYN reuses its ports.
REUSE_SILENCE_NS = 240_000_000_000  # 2 MSL [RFC 9293]


def _mix(x):
    x = (x ^ (x >> 29)) * np.int64(0x3F58476D1CE4E5B9)
    return x ^ (x >> 32)


def _endpoint(key, hi, lo, port):
    """Return the keyed hash of an endpoint, so that no crafted capture makes all endpoints collide."""
    x = (lo ^ key[0]) * key[1]
    x = (x ^ (x >> 32) ^ hi ^ (port << 24)) * key[1]
    return x ^ (x >> 29)


def _ends(c, k):
    """Return the endpoints of connection k: the two words of either address, then version and ports."""
    return c[k, layout.SRC_HI], c[k, layout.SRC_LO], c[k, layout.DST_HI], c[k, layout.DST_LO], c[k, layout.PORTS]


def _joins(c, k, ends):
    """Return whether connection k has these endpoints, in its own order and in the other; without a branch."""
    a_hi, a_lo, b_hi, b_lo, ports = _ends(c, k)
    s_hi, s_lo, d_hi, d_lo, forth = ends
    back = (forth >> 32 << 32) | ((forth & 65535) << 16) | (forth >> 16 & 65535)
    one = (ports ^ forth) | (a_lo ^ s_lo) | (b_lo ^ d_lo) | (a_hi ^ s_hi) | (b_hi ^ d_hi)
    two = (ports ^ back) | (a_lo ^ d_lo) | (b_lo ^ s_lo) | (a_hi ^ d_hi) | (b_hi ^ s_hi)
    return one == 0, two == 0


def _find(c, table, key, ends):
    """Look a connection up, in either direction: (slot of the table, connection or -1, direction)."""
    s_hi, s_lo, d_hi, d_lo, ports = ends
    source, target = _endpoint(key, s_hi, s_lo, ports >> 16 & 65535), _endpoint(key, d_hi, d_lo, ports & 65535)
    slot = (_mix(source) + _mix(target)) & (len(table) - 1)
    while table[slot] >= 0:
        is_forth, is_back = _joins(c, table[slot], ends)
        if is_forth | is_back:
            return slot, table[slot], 0 if is_forth else 1
        slot = (slot + 1) & (len(table) - 1)
    return slot, np.int64(-1), 0


def _open_connection(c, k, ends, time_ns):
    c[k, layout.SRC_HI], c[k, layout.SRC_LO], c[k, layout.DST_HI], c[k, layout.DST_LO], c[k, layout.PORTS] = ends
    c[k, layout.CLOSED], c[k, layout.CONN_LAST_NS] = 0, time_ns
    for i in range(layout.ISN, layout.RING_POS):
        c[k, i] = -1
    for i in range(layout.RING_POS, layout.CONN_FIELDS):
        c[k, i] = 0


def _connection(c, table, key, ends, slot, k, n, seq, bits, now):
    """Return the connection of a packet and its direction: (slot of the table, connection, direction, connections).

    `slot`, `k`: those of the packet before, or -1; `n`: how many connections there are. Reused ports start a new one. A
    SYN of another number is proof, one where the capture had none yet may have been overtaken by what followed it.
    """
    is_forth, is_back = _joins(c, max(k, 0), ends)
    if k >= 0 and is_forth | is_back:  # mostly the connection of the packet before
        d = 0 if is_forth else 1
    else:
        slot, k, d = _find(c, table, key, ends)
    is_reuse = k >= 0 and bits & (SYN | ACK) == SYN and c[k, layout.ISN + d] != seq
    if is_reuse and c[k, layout.ISN + d] < 0:
        is_reuse = c[k, layout.CLOSED] or now - c[k, layout.CONN_LAST_NS] > REUSE_SILENCE_NS
    if k < 0 or is_reuse:
        k, d = n, 0
        _open_connection(c, k, ends, now)
        table[slot] = k
        n += 1
    k &= NEAR
    c[k, layout.CONN_LAST_NS] = now
    if bits & SYN:
        c[k, layout.ISN + d], c[k, layout.SACK_OK + d] = seq, 0
    if bits & (FIN | RST):
        c[k, layout.CLOSED] = 1
    return slot, k, d, n


def _ip(b, p, end, wire_end):
    """Decode the IP header at p.

    Returns (protocol or -1 - reason, payload offset, end of the packet on the wire, fragment 0/1/2, length was 0).
    """
    version = u8(b, p) >> 4 if p < end else 0
    if version == 4:
        if p + 20 > end:
            return -1 - layout.CUT_HEADERS, p, wire_end, 0, 0
        header, length = 4 * (u8(b, p) & 15), be16(b, p + 2)
        if header < 20 or (length and length < header):
            return -1 - layout.MALFORMED, p, wire_end, 0, 0
        word = be16(b, p + 6)
        fragment = 2 if word & 0x1FFF else (1 if word & 0x2000 else 0)
        return u8(b, p + 9), p + header, (p + length if length else wire_end), fragment, 1 if length == 0 else 0
    if version == 6:
        if p + 40 > end:
            return -1 - layout.CUT_HEADERS, p, wire_end, 0, 0
        length, protocol = be16(b, p + 4), u8(b, p + 6)
        zero = 1 if length == 0 else 0
        if length == 0 and protocol == 0:
            length = jumbo_length(b, p + 40, end)
        protocol, q, fragment = skip_extensions(b, p + 40, end, protocol)
        return protocol, q, (p + 40 + length if length else wire_end), fragment, zero
    return -1 - (layout.MALFORMED if p < end else layout.CUT_HEADERS), p, wire_end, 0, 0


def _tcp(b, p, end, wire_end, link, tunnels):
    """Find the TCP header of a frame at p, through tunnels on request.

    Returns (offset of the IP header or -1 - reason, of the TCP header, end of what was captured, end on the wire,
    fragment 0/1/2, length was 0).
    """
    ip, fragment, zero = ip_header(b, p, end, link), 0, 0
    while ip >= 0:
        ip &= NEAR
        protocol, p, wire_end, fragment, zero = _ip(b, ip, end, wire_end)
        end = min(end, wire_end)
        if protocol < 0:
            return protocol, p, end, wire_end, fragment, zero
        inner = 0 if protocol == 6 or fragment == 2 else inner_header(b, p, end, protocol, tunnels)
        if inner == 0:
            return ip if protocol == 6 else -1 - layout.NON_TCP, p & NEAR, end, wire_end, fragment, zero
        ip = inner
    return ip, p, end, wire_end, fragment, zero


def _header_bytes(b, p, end, wire_end, fragment):
    """Return the length of the TCP header at p, or -1 - reason; the columns but for the options need 16 bytes of it."""
    if p + 16 > end:
        if p + 16 <= wire_end:
            return -1 - layout.CUT_HEADERS
        return -1 - (layout.LATER_FRAGMENTS if fragment else layout.MALFORMED)
    header = 4 * (u8(b, p + 12) >> 4)
    if header < 20 or p + header > wire_end or wire_end - p > MAX_PACKET:
        return -1 - (layout.LATER_FRAGMENTS if header >= 20 and fragment else layout.MALFORMED)
    return header


def _ip_columns(b, ip, ports):
    """Return what an IP header says of a packet: its `_ends`, type of service, TTL and IP ID (0 in IPv6)."""
    if u8(b, ip) >> 4 == 4:
        ends = np.int64(0), be32(b, ip + 12), np.int64(0), be32(b, ip + 16), 4 << 32 | ports
        return ends, u8(b, ip + 1), u8(b, ip + 8), be16(b, ip + 4)
    ends = be64(b, ip + 8), be64(b, ip + 16), be64(b, ip + 24), be64(b, ip + 32), 6 << 32 | ports
    return ends, (be16(b, ip) >> 4) & 255, u8(b, ip + 7), np.int64(0)


def _options(b, p, header, end, sacks, s, c, k, d, is_syn):
    """Decode the options of the TCP header of `header` bytes at p; what was captured of the packet ends at `end`.

    Of SACK blocks that the capture cut, those that are whole count: the first reports what has just arrived [RFC 2018].

    Returns (bits seen, time stamp value, echo, next free SACK row, whole and well-formed, where an AccECN option is or
    0).
    """
    left, right = sacks
    q, header_end = p + 20, p + header
    stop = min(end, header_end)
    have, tsval, tsecr, counters_at = 0, 0, 0, np.int64(0)
    if q + 12 <= stop and be32(b, q) == 0x0101080A:  # two NOPs and time stamps, as [RFC7323] recommends
        have, tsval, tsecr = packets.OPT_TIMESTAMPS, be32(b, q + 4), be32(b, q + 8)
        q += 12
    while q < stop:
        kind = u8(b, q)
        if kind == 0:
            break
        if kind == 1:
            q += 1
            continue
        length = u8(b, q + 1) if q + 1 < stop else 0
        is_cut = q + length > stop
        if length < 2 or q + length > header_end or (is_cut and kind != 5):
            return have, tsval, tsecr, s, False, counters_at
        if kind == 8 and length == 10:
            tsval, tsecr = be32(b, q + 2), be32(b, q + 6)
            have |= packets.OPT_TIMESTAMPS
        elif kind == 5 and length >= 10 and length % 8 == 2:
            for at in range(q + 2, min(q + length, stop) - 7, 8):
                left[s], right[s] = be32(b, at), be32(b, at + 4)
                s += 1
                have |= packets.OPT_SACK
            if is_cut:
                return have, tsval, tsecr, s, False, counters_at
        elif kind == 2 and length == 4:
            have |= packets.OPT_MSS
            if is_syn:
                c[k, layout.MSS + d] = be16(b, q + 2)
        elif kind == 3 and length == 3:
            have |= packets.OPT_WINDOW_SCALE
            if is_syn:
                c[k, layout.WSCALE + d] = u8(b, q + 2)
        elif kind == 4 and length == 2:
            have |= packets.OPT_SACK_PERMITTED
            if is_syn:
                c[k, layout.SACK_OK + d] = 1
        elif (kind == 172 or kind == 174) and length % 3 == 2 and length <= 11:
            have |= packets.OPT_ACCURATE_ECN
            counters_at = q
        elif kind == 8 or (kind >= 2 and kind <= 5):  # a known option of impossible length
            return have, tsval, tsecr, s, False, counters_at
        q += length
    return have, tsval, tsecr, s, stop == header_end, counters_at


def _ecn_counters(b, at):
    """Return the counters of the AccECN option at `at` (0: none): ECT(0), CE, ECT(1); NO_COUNTER where it lacks one.

    Kind 172 has them in this order, kind 174 in the reverse; the last ones may be left out [RFC9768].
    """
    if at == 0:
        return np.int64(layout.NO_COUNTER), np.int64(layout.NO_COUNTER), np.int64(layout.NO_COUNTER)
    first, second, third = _be24(b, at, 0), _be24(b, at, 1), _be24(b, at, 2)
    return (first, second, third) if u8(b, at) == 172 else (third, second, first)


def _be24(b, at, place):
    """Return the counter at one of the places of an AccECN option, NO_COUNTER if it ends before."""
    p = at + 2 + 3 * place
    if p + 3 > at + u8(b, at + 1):
        return np.int64(layout.NO_COUNTER)
    return (u8(b, p) << 16) | be16(b, p + 1)


def _begin_datagram(b, ip, p, size, now, row, r, keep, c, g, counters):
    """Note that the first fragment of a datagram, `size` bytes at p, is a row; the others may have come before it."""
    i = gather(b, ip, p, size, g, now)
    if i:
        g[i, layout.DATAGRAM_ROW], g[i, layout.DATAGRAM_FIRST] = row, size
        _join(g, i, r, keep, c, counters)


def _count(now, counters):
    """Count a frame, and a time stamp that steps back; 0: the record has no time stamp."""
    counters[layout.FRAMES] += 1
    if now and now < counters[layout.LAST_NS]:
        counters[layout.BACK_STEPS] += 1
        counters[layout.BACK_STEP_NS] = max(counters[layout.BACK_STEP_NS], counters[layout.LAST_NS] - now)
    if now:
        counters[layout.LAST_NS] = now


def _join(g, i, r, keep, c, counters):
    """Set a row's payload to that of the whole datagram once all of its fragments were captured."""
    if not is_whole(g, i):
        return
    row, more = g[i, layout.DATAGRAM_ROW], g[i, layout.DATAGRAM_SIZE] - g[i, layout.DATAGRAM_FIRST]
    _, conn, direction, flags, seq, _, _, payload, ip_len, _, _, _, _, _, _, _, _, _, _, _, _ = r
    payload[row] += more
    ip_len[row & keep] += more
    counters[layout.FIRST_FRAGMENTS] -= 1
    seq_end = np.int64(seq[row]) + payload[row] + numbered(flags[row])
    track(c, conn[row], direction[row], np.int64(seq[row]), seq_end & 0xFFFFFFFF, 0, False, counters)
    g[i, 4] = -1  # a copy, or another datagram with this identification, starts afresh


def decode_frames(
    b, offset, caplen, wirelen, stamp, link, f, count, tunnels, r, row, keep, sacks, s, c, n, table, key, g, counters
):  # fmt: skip
    """Decode frames of the buffer `b` into the columns, from number `f` on.

    Stops before `count` when the connections fill their arrays or half of the hash table. The caller provides room for
    one row and four SACK rows per frame. `r`: the columns, filled up to `row`; `sacks`: those of SACKs, up to `s`.
    `c`: the connections, `n` of them; `k` and `d` are a packet's connection and direction. `keep`: -1, or 0 where the
    columns `layout.DETAILS` are not wanted: then they have one element each. `key` is two odd secret numbers; `g` keeps
    datagrams that came in fragments, see `fragments.py`. Reads stay within b[offset : offset + caplen] of each frame.

    Returns (next frame, rows, SACK rows and connections now in use).
    """
    room = min(len(c), len(table) // 2)
    (
        time_ns, conn, direction, flags, seq, ack, window, payload, ip_len, tos, ttl, ip_id, tsval, tsecr, options,
        sack_row, sack_count, frame, ecn_e0, ecn_ce, ecn_e1,
    ) = r  # fmt: skip
    slot, k, d = np.int64(0), np.int64(-1), 0
    while f < count and n < room:
        i = f & NEAR
        begin, now, frame_end = offset[i], stamp[i], offset[i] + wirelen[i]
        f += 1
        _count(now, counters)
        ip, p, end, wire_end, fragment, zero = _tcp(b, begin, begin + caplen[i], frame_end, link[i], tunnels)
        if ip < 0:
            counters[-1 - ip] += 1
            continue
        if fragment == 2:
            counters[layout.LATER_FRAGMENTS] += 1
            _join(g, gather(b, ip, p, wire_end - p, g, now), r, keep, c, counters)
            continue
        header = _header_bytes(b, p, end, wire_end, fragment)
        if header < 0:
            counters[-1 - header] += 1
            continue
        seq_no, ack_no, bits, win = be32(b, p + 4), be32(b, p + 8), be16(b, p + 12) & 0x1FF, be16(b, p + 14)
        is_syn, payload_len = bits & SYN != 0, wire_end - p - header
        ends, service, hops, packet_id = _ip_columns(b, ip, be32(b, p))
        slot, k, d, n = _connection(c, table, key, ends, slot, k, n, seq_no, bits, now)

        first = s
        have, value, echo, s, good, counted = _options(b, p, header, end, sacks, s, c, k, d, is_syn)
        if not good:
            have |= packets.OPT_BAD
            counters[layout.CUT_OPTIONS] += 1
            if is_syn and not have & packets.OPT_SACK_PERMITTED:
                c[k, layout.SACK_OK + d] = -1
        counters[layout.ZERO_IP_LENGTH] += zero
        counters[layout.BEYOND_WIRE] += wire_end > frame_end

        segment = seq_no, ack_no, bits, win, payload_len, value, echo, packet_id
        have |= follow(c, k, d, now, segment, have, counters)

        at = row & NEAR
        time_ns[at], conn[at], direction[at], flags[at] = now, k, d, bits
        seq[at], ack[at], payload[at] = seq_no, ack_no, payload_len
        tsval[at], tsecr[at], options[at] = value, echo, have
        sack_row[at], sack_count[at] = (first if s > first else -1), s - first
        at &= keep
        window[at], ip_len[at], tos[at], ttl[at], ip_id[at] = win, wire_end - ip, service, hops, packet_id
        frame[at] = counters[layout.FRAMES]
        ecn_e0[at], ecn_ce[at], ecn_e1[at] = _ecn_counters(b, counted)
        if fragment and not have & packets.OPT_COPY:
            counters[layout.FIRST_FRAGMENTS] += 1
            _begin_datagram(b, ip, p, wire_end - p, now, row, r, keep, c, g, counters)
        row += 1
    return f, row, s, n


def find_all(c, table, key, others, n, found, flipped):
    """Look `n` other connections up: which of `c` has the endpoints of each, or -1, and whether the other way round."""
    for j in range(n):
        _, found[j], flipped[j] = _find(c, table, key, _ends(others, j))


def rehash(c, n, table, key):
    """Fill an empty table with the connections, the latest of each pair of endpoints only; returns (connections,)."""
    for k in range(n):
        slot, _, _ = _find(c, table, key, _ends(c, k))
        table[slot] = k
    return (n,)
