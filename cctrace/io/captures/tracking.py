"""Compiled: per direction of a connection, the latest packets (to find copies) and the highest sequence number."""

import numpy as np

from cctrace.io import layout
from cctrace.io.captures.packets import OPT_COPY, OPT_TIMESTAMPS
from cctrace.tcp.flags import ACK, FIN, SYN

# Weights of a packet's words in its fingerprint: the products of a sum do not wait for each other, as mixing would.
_PRINT = (0x3F58476D1CE4E5B9, 0x14D049BB133111EB, 0x1E3779B97F4A7C15, 0x2545F4914F6CDD1D)
_DUPLICATE_NS = 1_000_000_000  # a copy follows its original within this time
_RING = layout.RING_SIZE - 1  # of a power of 2


def s32(x) -> int:
    """Return the lower 32 bits as a signed number: the distance of two sequence numbers."""
    return ((x + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def numbered(flags) -> int:
    """Return how many sequence numbers the flags of a segment occupy: SYN and FIN one each."""
    return (flags & FIN) + ((flags & SYN) >> 1)


def fingerprint(seq, ack, value, echo, packet_id, bits, window, payload) -> int:
    """Return a number that a packet shares with its copies, but hardly ever with another packet."""
    print_ = ((seq << 32) | ack) * _PRINT[0] + ((value << 32) | echo) * _PRINT[1]
    return print_ + (packet_id << 32 | bits << 16 | window) * _PRINT[2] + payload * _PRINT[3]


def is_copy(c, k, d, print_, time_ns, has_id) -> bool:
    """Return whether a packet with this fingerprint passed a moment ago; remember it.

    Without an IP ID a quick retransmission may look the same, but never follows its original directly.
    """
    ring, stamps = layout.RING + d * layout.RING_SIZE, layout.RING_NS + d * layout.RING_SIZE
    at = c[k, layout.RING_POS + d] & _RING
    alike = 0
    for i in range(layout.RING_SIZE):
        alike |= c[k, ring + i] == print_
    if alike:
        latest = (at - 1) & _RING
        for i in range(0 if has_id else latest, layout.RING_SIZE if has_id else latest + 1):
            if c[k, ring + i] == print_ and time_ns - c[k, stamps + i] < _DUPLICATE_NS:
                return True
    c[k, ring + at], c[k, stamps + at], c[k, layout.RING_POS + d] = print_, time_ns, (at + 1) & _RING
    return False


def _show_late(c, k, d, seq, seq_end, counters) -> None:
    """Subtract data that arrive after their ACK from those that the capture lacks: time stamps of two queues cross."""
    low, high = (c[k, layout.LATE + d] >> 32) & 0xFFFFFFFF, c[k, layout.LATE + d] & 0xFFFFFFFF
    size, start, end = (high - low) & 0xFFFFFFFF, max(0, s32(seq - low)), s32(seq_end - low)
    end = min(end, size)
    if end <= start:
        return
    counters[layout.UNSEEN_BYTES] -= end - start
    counters[layout.UNSEEN_ACKS] += (1 if start > 0 else 0) - (1 if end == size else 0)
    c[k, layout.LATE + d] = -1 if end == size else (((low + end) & 0xFFFFFFFF) << 32) | high


def track(c, k, d, seq, seq_end, ack, has_ack, counters) -> None:
    """Track the highest sequence number captured per direction; count ACKs of data that the capture lacks."""
    if has_ack and c[k, layout.SND_MAX + 1 - d] >= 0:
        ahead = s32(ack - c[k, layout.SND_MAX + 1 - d])
        if ahead > 0:
            low = c[k, layout.SND_MAX + 1 - d]
            if c[k, layout.LATE + 1 - d] != -1 and c[k, layout.LATE + 1 - d] & 0xFFFFFFFF == low:
                low = (c[k, layout.LATE + 1 - d] >> 32) & 0xFFFFFFFF
            else:
                counters[layout.UNSEEN_ACKS] += 1
            counters[layout.UNSEEN_BYTES] += ahead
            c[k, layout.LATE + 1 - d] = (low << 32) | ack
            c[k, layout.SND_MAX + 1 - d] = ack
    if c[k, layout.LATE + d] != -1:
        _show_late(c, k, d, seq, seq_end, counters)
    if c[k, layout.SND_MAX + d] < 0 or s32(seq_end - c[k, layout.SND_MAX + d]) > 0:
        c[k, layout.SND_MAX + d] = seq_end


def follow(c, k, d, time_ns, segment, have, counters) -> int:
    """Track a segment; return `OPT_COPY` if it was captured twice, by a mirror port, otherwise 0.

    `segment`: sequence and ACK number, flags, window, payload, time stamp, its echo, IP ID; `have`: its options. An IP
    ID distinguishes a copy from a retransmission; without one, only time stamps on what occupies sequence numbers do.
    """
    seq, ack, bits, window, size, value, echo, packet_id = segment
    copied = 0
    if packet_id or (have & OPT_TIMESTAMPS and (size or bits & (SYN | FIN))):
        print_ = fingerprint(seq, ack, value, echo, packet_id, bits, window, size)
        if is_copy(c, k, d, print_, time_ns, packet_id):
            copied = OPT_COPY
            counters[layout.DUPLICATES] += 1
    track(c, k, d, seq, (seq + size + numbered(bits)) & 0xFFFFFFFF, ack, bits & ACK != 0, counters)
    return copied


def track_again(r, rows, place, c, counters) -> None:
    """Let rows `follow` once more; `place`: which row of `c` is that of their connection."""
    (
        time_ns, conn, direction, flags, seq, ack, window, payload, _, _, _, ip_id, tsval, tsecr, options,
        _, _, _, _, _, _,
    ) = r  # fmt: skip
    for n in range(rows.size):
        i = rows[n]
        segment = (
            np.int64(seq[i]), np.int64(ack[i]), np.int64(flags[i]), np.int64(window[i]), np.int64(payload[i]),
            np.int64(tsval[i]), np.int64(tsecr[i]), np.int64(ip_id[i]),
        )  # fmt: skip
        have = np.int64(options[i]) & ~OPT_COPY
        options[i] = have | follow(c, place[conn[i]], np.int64(direction[i]), time_ns[i], segment, have, counters)
