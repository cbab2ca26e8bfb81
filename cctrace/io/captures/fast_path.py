"""Compiled: a fast path for the packets that most of a capture consists of, in half the instructions of the full one.

Most packets are like the one before: a TCP segment of the same connection behind the same link layer, IPv4 without
options or fragments, no SYN, FIN or RST, and time stamps or no TCP option at all. `fast_path` finds and decodes a run
of these into the same values as `decode.decode_frames`, which gets every other packet.

Sources: RFC 791, 9293, 7323.
"""

import numpy as np

from cctrace.io import layout
from cctrace.io.captures.link import NEAR, be16, be32, be64
from cctrace.io.captures.packets import OPT_COPY, OPT_TIMESTAMPS
from cctrace.io.captures.records import enhanced, record, words
from cctrace.io.captures.tracking import fingerprint, is_copy, s32, track
from cctrace.schema import LATEST_NS
from cctrace.tcp.flags import ACK, FIN, RST, SYN

_IPV4 = 0x0800  # EtherType
# Words of the headers, of which a mask leaves what must have a certain value.
_IP, _IP_MASK = 0x45 << 56, -(1 << 56) | 0x3FFF  # version and header of 20 bytes; neither a fragment nor more to come
_TCP, _TCP_MASK = 6 << 48, 255 << 48  # the protocol
_STAMPED, _BARE, _HEADER_MASK = 8 << 12, 5 << 12, 0xF000 | SYN | FIN | RST  # TCP headers of 32 and 20 bytes
_STAMPS = 0x0101080A  # two NOPs and time stamps, as [RFC7323] recommends


def _before_ip(link):
    """Return how many bytes precede the IP header, the last two being its EtherType; -1 for rarer link types."""
    if link == 101 or link == 12 or link == 14 or link == 228:  # RAW, IPV4
        return 0
    return 14 if link == 1 else (16 if link == 113 else -1)  # ETHERNET, LINUX_SLL


def fast_path(b, pos, end, rules, interfaces, r, row, stop, keep, c, k, counters):
    """Decode packets of connection k in b[pos:end] up to the first that needs `decode_frames`; return (position, row).

    `rules`, `interfaces`: see `pieces.decode_packets`. `stop`: the row before which to stop; up to it, the columns of
    SACK blocks and ECN say already that there are none. The others are those of `decode.decode_frames`.
    """
    (
        time_ns, conn, direction, flags, seq, ack, window, payload, ip_len, tos, ttl, ip_id, tsval, tsecr, options,
        _, _, frame, _, _, _,
    ) = r  # fmt: skip
    blocks, big, header, largest = rules[layout.BLOCKS], rules[layout.BIG], rules[layout.HEADER], rules[layout.LARGEST]
    which = words(b, pos, big)[2] if blocks and pos + header <= end else np.int64(0)
    ports, one, two = c[k, layout.PORTS], c[k, layout.SRC_LO], c[k, layout.DST_LO]
    last, before, frames = counters[layout.LAST_NS], row, counters[layout.FRAMES] - row
    forth, back = (two << 32) | (ports & 0xFFFFFFFF), (one << 32) | ((ports & 0xFFFF) << 16) | (ports >> 16 & 0xFFFF)
    if ports >> 32 != 4 or which >= len(interfaces) or interfaces[which, layout.MODE] != layout.MULTIPLY:
        return pos, row
    unit_ns, offset_ns = interfaces[which, layout.FACTOR], interfaces[which, layout.OFFSET_NS]
    lead, most = _before_ip(interfaces[which, layout.LINK]), LATEST_NS // unit_ns
    if lead < 0:
        return pos, row
    while row < stop and pos + header + lead + 52 <= end:
        if blocks:
            now, captured, original, following = enhanced(b, pos, end, big, largest, which, unit_ns, most, offset_ns)
        else:
            now, captured, original, following = record(b, pos, big, unit_ns, header, largest)
        ip, room = (pos + header + lead) & NEAR, captured - lead
        if following > end or room < 52 or now < last or now == 0:
            break
        if lead and be16(b, ip - 2) != _IPV4:
            break
        first, middle, ends, numbers = be64(b, ip), be64(b, ip + 8), be64(b, ip + 16), be64(b, ip + 24)
        third, fourth, echo = be64(b, ip + 32), be64(b, ip + 40), be32(b, ip + 48)
        source, head = middle & 0xFFFFFFFF, third >> 48 & 0xFFFF
        other, same = (ends ^ forth) | (source ^ one), (ends ^ back) | (source ^ two)
        # Neither direction: without a branch on which of both it is, which cannot be predicted.
        if (first & _IP_MASK) != _IP or (middle & _TCP_MASK) != _TCP or (other | -other) & (same | -same) < 0:
            break
        d, have, headers, value = np.int64(other != 0), OPT_TIMESTAMPS, 52, fourth & 0xFFFFFFFF
        if head & _HEADER_MASK != _STAMPED or fourth >> 32 != _STAMPS:
            if head & _HEADER_MASK != _BARE:
                break
            have, headers, value, echo = 0, 40, np.int64(0), np.int64(0)
        length, packet_id, win, bits = first >> 32 & 0xFFFF, first >> 16 & 0xFFFF, third >> 32 & 0xFFFF, head & 0x1FF
        size, seq_no, ack_no = length - headers, numbers >> 32 & 0xFFFFFFFF, numbers & 0xFFFFFFFF
        if size < 0 or length > max(captured, original) - lead:
            break
        if packet_id or (have and size):
            print_ = fingerprint(seq_no, ack_no, value, echo, packet_id, bits, win, size)
            have, copied = (have | OPT_COPY, 1) if is_copy(c, k, d, print_, now, packet_id) else (have, 0)
            counters[layout.DUPLICATES] += copied
        _track(c, k, d, seq_no, (seq_no + size) & 0xFFFFFFFF, ack_no, bits, counters)
        at, last, pos = row & NEAR, now, following
        time_ns[at], conn[at], direction[at], flags[at] = now, k, d, bits
        seq[at], ack[at], payload[at] = seq_no, ack_no, size
        tsval[at], tsecr[at], options[at] = value, echo, have
        row += 1
        at &= keep
        window[at], ip_len[at], ip_id[at], frame[at] = win, length, packet_id, frames + row
        tos[at], ttl[at] = first >> 48 & 255, middle >> 56 & 255
    if row > before:
        counters[layout.FRAMES], counters[layout.LAST_NS], c[k, layout.CONN_LAST_NS] = frames + row, last, last
    return pos, row


def _track(c, k, d, seq, seq_end, ack, bits, counters):
    """Do what `track` does, in few instructions where every byte acknowledged was captured."""
    top, top_back = c[k, layout.SND_MAX + d], c[k, layout.SND_MAX + 1 - d]
    if c[k, layout.LATE + d] != -1 or (bits & ACK and top_back >= 0 and s32(ack - top_back) > 0):
        track(c, k, d, seq, seq_end, ack, bits & ACK != 0, counters)
    else:  # without a branch, as above
        c[k, layout.SND_MAX + d] = seq_end if (top < 0) | (s32(seq_end - top) > 0) else top
