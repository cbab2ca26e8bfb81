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
from cctrace.io.captures.tracking import fingerprint, is_copy, track
from cctrace.schema import MAX_PACKET

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


def _joins(c, k, s_hi, s_lo, d_hi, d_lo, forth, back):
    """Return whether connection k has these endpoints, in its own order and in the other; without a branch."""
    a_hi, a_lo, b_hi, b_lo = c[k, layout.SRC_HI], c[k, layout.SRC_LO], c[k, layout.DST_HI], c[k, layout.DST_LO]
    ports = c[k, layout.PORTS]
    one = (ports ^ forth) | (a_lo ^ s_lo) | (b_lo ^ d_lo) | (a_hi ^ s_hi) | (b_hi ^ d_hi)
    two = (ports ^ back) | (a_lo ^ d_lo) | (b_lo ^ s_lo) | (a_hi ^ d_hi) | (b_hi ^ s_hi)
    return one == 0, two == 0


def _find(c, table, key, s_hi, s_lo, d_hi, d_lo, forth, back, sport, dport):
    """Look a connection up, in either direction: (slot of the table, connection or -1, direction)."""
    slot = (_mix(_endpoint(key, s_hi, s_lo, sport)) + _mix(_endpoint(key, d_hi, d_lo, dport))) & (len(table) - 1)
    while table[slot] >= 0:
        k = table[slot]
        a_hi, a_lo, b_hi, b_lo = c[k, layout.SRC_HI], c[k, layout.SRC_LO], c[k, layout.DST_HI], c[k, layout.DST_LO]
        ports = c[k, layout.PORTS]
        if ports == forth and a_lo == s_lo and b_lo == d_lo and a_hi == s_hi and b_hi == d_hi:
            return slot, k, 0
        if ports == back and a_lo == d_lo and b_lo == s_lo and a_hi == d_hi and b_hi == s_hi:
            return slot, k, 1
        slot = (slot + 1) & (len(table) - 1)
    return slot, np.int64(-1), 0


def _open_connection(c, k, s_hi, s_lo, d_hi, d_lo, ports, time_ns):
    c[k, layout.SRC_HI], c[k, layout.SRC_LO], c[k, layout.DST_HI], c[k, layout.DST_LO] = s_hi, s_lo, d_hi, d_lo
    c[k, layout.PORTS], c[k, layout.CLOSED], c[k, layout.CONN_LAST_NS] = ports, 0, time_ns
    for i in range(layout.ISN, layout.RING_POS):
        c[k, i] = -1
    for i in range(layout.RING_POS, layout.CONN_FIELDS):
        c[k, i] = 0


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


def _options(b, q, stop, header_end, left, right, s, c, k, d, is_syn):
    """Decode the TCP options from q to stop, where the header or what was captured of it ends.

    Of SACK blocks that the capture cut, those that are whole count: the first reports what has just arrived [RFC 2018].

    Returns (bits seen, time stamp value, echo, next free SACK row, well-formed, where an AccECN option is or 0).
    """
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
    return have, tsval, tsecr, s, True, counters_at


def _ecn_counter(b, at, which):
    """Return a counter of the AccECN option at `at`: 0 ECT(0), 1 CE, 2 ECT(1); NO_COUNTER if it is not in it [RFC9768].

    Kind 172 has them in this order, kind 174 in the reverse; the last ones may be left out.
    """
    place = at + 2 + 3 * (which if u8(b, at) == 172 else 2 - which)
    if at == 0 or place + 3 > at + u8(b, at + 1):
        return np.int64(layout.NO_COUNTER)
    return (u8(b, place) << 16) | be16(b, place + 1)


def _join(g, i, r, keep, c, counters):
    """Set a row's payload to that of the whole datagram once all of its fragments were captured."""
    if not is_whole(g, i):
        return
    row, more = g[i, layout.DATAGRAM_ROW], g[i, layout.DATAGRAM_SIZE] - g[i, layout.DATAGRAM_FIRST]
    _, conn, direction, flags, seq, _, _, payload, ip_len, _, _, _, _, _, _, _, _, _, _, _, _ = r
    payload[row] += more
    ip_len[row & keep] += more
    counters[layout.FIRST_FRAGMENTS] -= 1
    seq_end = np.int64(seq[row]) + payload[row] + (flags[row] & 1) + (flags[row] >> 1 & 1)
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
    left, right = sacks
    slot, k, d = np.int64(0), np.int64(-1), 0
    while f < count and n < room:
        i = f & NEAR
        p, end, now = offset[i], offset[i] + caplen[i], stamp[i]
        frame_end, kind = p + wirelen[i], link[i]
        wire_end = frame_end
        f += 1
        if now and now < counters[layout.LAST_NS]:
            counters[layout.BACK_STEPS] += 1
            counters[layout.BACK_STEP_NS] = max(counters[layout.BACK_STEP_NS], counters[layout.LAST_NS] - now)
        counters[layout.FRAMES] += 1
        if now:  # 0: the record has no time stamp
            counters[layout.LAST_NS] = now

        # Link and network layer, through tunnels on request.
        ip = ip_header(b, p, end, kind)
        while True:
            if ip < 0:
                protocol = ip
                break
            ip &= NEAR
            protocol, p, wire_end, fragment, zero = _ip(b, ip, end, wire_end)
            end = min(end, wire_end)
            if protocol < 0 or protocol == 6 or fragment == 2:
                break
            inner = inner_header(b, p, end, protocol, tunnels)
            if inner == 0:
                break
            ip = inner
        if protocol < 0:
            counters[-1 - protocol] += 1
            continue
        if protocol != 6:
            counters[layout.NON_TCP] += 1
            continue
        if fragment == 2:
            counters[layout.LATER_FRAGMENTS] += 1
            _join(g, gather(b, ip, p, wire_end - p, g, now), r, keep, c, counters)
            continue

        # TCP header: sixteen bytes hold all columns but the options.
        ip, p = ip & NEAR, p & NEAR
        if p + 16 > end:
            counters[
                layout.CUT_HEADERS if p + 16 <= wire_end else (layout.LATER_FRAGMENTS if fragment else layout.MALFORMED)
            ] += 1
            continue
        header = 4 * (u8(b, p + 12) >> 4)
        if header < 20 or p + header > wire_end or wire_end - p > MAX_PACKET:
            counters[layout.LATER_FRAGMENTS if header >= 20 and fragment else layout.MALFORMED] += 1
            continue
        sport, dport, seq_no, ack_no = be16(b, p), be16(b, p + 2), be32(b, p + 4), be32(b, p + 8)
        bits, win = be16(b, p + 12) & 0x1FF, be16(b, p + 14)
        is_syn = bits & 2 != 0
        payload_len = wire_end - p - header
        if u8(b, ip) >> 4 == 4:
            version, s_hi, d_hi = 4, np.int64(0), np.int64(0)
            s_lo, d_lo = be32(b, ip + 12), be32(b, ip + 16)
            service, hops, packet_id = u8(b, ip + 1), u8(b, ip + 8), be16(b, ip + 4)
        else:
            version, s_hi, s_lo = 6, be64(b, ip + 8), be64(b, ip + 16)
            d_hi, d_lo = be64(b, ip + 24), be64(b, ip + 32)
            service, hops, packet_id = (be16(b, ip) >> 4) & 255, u8(b, ip + 7), np.int64(0)

        # Connection: reused ports start a new one. A SYN of another number is proof, one where the capture had none yet
        # may have been overtaken by what followed it.
        forth, back = (version << 32) | (sport << 16) | dport, (version << 32) | (dport << 16) | sport
        is_forth, is_back = _joins(c, max(k, 0), s_hi, s_lo, d_hi, d_lo, forth, back)
        if k >= 0 and is_forth | is_back:  # mostly the connection of the packet before
            d = 0 if is_forth else 1
        else:
            slot, k, d = _find(c, table, key, s_hi, s_lo, d_hi, d_lo, forth, back, sport, dport)
        is_reuse = k >= 0 and bits & 18 == 2 and c[k, layout.ISN + d] != seq_no
        if is_reuse and c[k, layout.ISN + d] < 0:
            is_reuse = c[k, layout.CLOSED] or now - c[k, layout.CONN_LAST_NS] > REUSE_SILENCE_NS
        if k < 0 or is_reuse:
            k, d = n, 0
            _open_connection(c, k, s_hi, s_lo, d_hi, d_lo, forth, now)
            table[slot] = k
            n += 1
        k &= NEAR
        c[k, layout.CONN_LAST_NS] = now
        if is_syn:
            c[k, layout.ISN + d], c[k, layout.SACK_OK + d] = seq_no, 0
        if bits & 5:
            c[k, layout.CLOSED] = 1

        first = s
        have, value, echo, s, good, counted = _options(
            b, p + 20, min(end, p + header), p + header, left, right, s, c, k, d, is_syn
        )
        if not good or p + header > end:
            have |= packets.OPT_BAD
            counters[layout.CUT_OPTIONS] += 1
            if is_syn and not have & packets.OPT_SACK_PERMITTED:
                c[k, layout.SACK_OK + d] = -1
        counters[layout.ZERO_IP_LENGTH] += zero
        counters[layout.BEYOND_WIRE] += wire_end > frame_end

        # Mirror ports deliver packets twice. An IP ID distinguishes a copy from a retransmission; without one, only
        # time stamps on what occupies sequence numbers do.
        if packet_id or (have & packets.OPT_TIMESTAMPS and (payload_len or bits & 3)):
            print_ = fingerprint(seq_no, ack_no, value, echo, packet_id, bits, win, payload_len)
            if is_copy(c, k, d, print_, now, packet_id):
                have |= packets.OPT_COPY
                counters[layout.DUPLICATES] += 1
        track(
            c, k, d, seq_no, (seq_no + payload_len + (bits & 1) + is_syn) & 0xFFFFFFFF, ack_no, bits & 16 != 0, counters
        )

        at = row & NEAR
        time_ns[at], conn[at], direction[at], flags[at] = now, k, d, bits
        seq[at], ack[at], payload[at] = seq_no, ack_no, payload_len
        tsval[at], tsecr[at], options[at] = value, echo, have
        sack_row[at], sack_count[at] = (first if s > first else -1), s - first
        at &= keep
        window[at], ip_len[at], tos[at], ttl[at], ip_id[at] = win, wire_end - ip, service, hops, packet_id
        frame[at] = counters[layout.FRAMES]
        ecn_e0[at], ecn_ce[at], ecn_e1[at] = layout.NO_COUNTER, layout.NO_COUNTER, layout.NO_COUNTER
        if counted:
            ecn_e0[at], ecn_ce[at] = _ecn_counter(b, counted, 0), _ecn_counter(b, counted, 1)
            ecn_e1[at] = _ecn_counter(b, counted, 2)
        if fragment and not have & packets.OPT_COPY:
            counters[layout.FIRST_FRAGMENTS] += 1
            whole = gather(b, ip, p, wire_end - p, g, now)
            if whole:
                g[whole, layout.DATAGRAM_ROW], g[whole, layout.DATAGRAM_FIRST] = row, wire_end - p
                _join(g, whole, r, keep, c, counters)
        row += 1
    return f, row, s, n


def find_all(c, table, key, others, n, found, flipped):
    """Look `n` other connections up: which of `c` has the endpoints of each, or -1, and whether the other way round."""
    for j in range(n):
        ports = others[j, layout.PORTS]
        a_hi, a_lo = others[j, layout.SRC_HI], others[j, layout.SRC_LO]
        b_hi, b_lo = others[j, layout.DST_HI], others[j, layout.DST_LO]
        sport, dport = (ports >> 16) & 65535, ports & 65535
        back = (ports >> 32 << 32) | (dport << 16) | sport
        _, found[j], flipped[j] = _find(c, table, key, a_hi, a_lo, b_hi, b_lo, ports, back, sport, dport)


def rehash(c, n, table, key):
    """Fill an empty table with the connections, the latest of each pair of endpoints only; returns (connections,)."""
    for k in range(n):
        ports = c[k, layout.PORTS]
        a_hi, a_lo, b_hi, b_lo = c[k, layout.SRC_HI], c[k, layout.SRC_LO], c[k, layout.DST_HI], c[k, layout.DST_LO]
        sport, dport = (ports >> 16) & 65535, ports & 65535
        back = (ports >> 32 << 32) | (dport << 16) | sport
        slot, _, _ = _find(c, table, key, a_hi, a_lo, b_hi, b_lo, ports, back, sport, dport)
        table[slot] = k
    return (n,)
