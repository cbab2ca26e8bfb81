"""Compiled: finds the frames in the records of a pcap or snoop file and in the packet blocks of a pcapng."""

import numpy as np

from cctrace.io import layout
from cctrace.io.captures.link import OFFSET
from cctrace.lang.memory import big64, little64
from cctrace.schema import LATEST_NS

_WORD = 0xFFFFFFFF


def _u32(b, p, big):
    p &= OFFSET
    if big:
        return (np.int64(b[p]) << 24) | (np.int64(b[p + 1]) << 16) | (np.int64(b[p + 2]) << 8) | np.int64(b[p + 3])
    return (np.int64(b[p + 3]) << 24) | (np.int64(b[p + 2]) << 16) | (np.int64(b[p + 1]) << 8) | np.int64(b[p])


def words(b, p, big):
    """Return the four words at p: of a record's header, seconds, fraction, captured and original length."""
    p &= OFFSET
    if big:
        one, two = big64(b, p), big64(b, p + 8)
        return one >> 32 & _WORD, one & _WORD, two >> 32 & _WORD, two & _WORD
    one, two = little64(b, p), little64(b, p + 8)
    return one & _WORD, one >> 32 & _WORD, two & _WORD, two >> 32 & _WORD


def record(b, pos, big, unit_ns, header, largest):
    """Return (time stamp or -1: too large, captured and original bytes, position of the next one) of a record."""
    second, part, captured, original = words(b, pos, big)
    now = second * 1_000_000_000 + part * unit_ns
    return now if captured <= largest else np.int64(-1), captured, original, pos + header + captured


def enhanced(b, pos, end, big, largest, which, unit_ns, most, offset_ns):
    """Return the same as `record` for an enhanced packet block of interface `which`; -1 for any other block, too.

    Its time stamps count units of `unit_ns`, at most `most` of them, from `offset_ns` on.
    """
    kind, length, interface, high = words(b, pos, big)
    low, captured, original, _ = words(b, pos + 16, big)
    units, following = (high << 32) | low, pos + length
    if kind != layout.ENHANCED or interface != which or length > largest or length & 3 or captured + 32 > length:
        return np.int64(-1), captured, original, following
    if units < 0 or units > most or following > end or words(b, following - 16, big)[3] != length:
        return np.int64(-1), captured, original, following
    now = units * unit_ns + offset_ns
    return now if now <= LATEST_NS else np.int64(-1), captured, original, following


def find_records(b, pos, end, big, unit_ns, header, swap, largest, most, offset, caplen, wirelen, time_ns):
    """Find the complete records of b[pos:end], `most` at most.

    Returns (records found, position after them, status). `swap` the two lengths: 0 never, 1 always, 2 where they are
    impossible otherwise (ancient versions).
    """
    n = 0
    while n < most and pos + header <= end:
        second, part, captured, original = words(b, pos, big)
        if swap == 1 or (swap == 2 and captured > original):
            captured, original = original, captured
        if captured > largest:
            return n, pos, layout.BAD_LENGTH
        if pos + header + captured > end:
            break
        time_ns[n] = second * 1_000_000_000 + part * unit_ns
        offset[n], caplen[n], wirelen[n] = pos + header, captured, max(captured, original)
        n += 1
        pos += header + captured
    return n, pos, layout.USED_UP


def find_snoop(b, pos, end, largest, offset, caplen, wirelen, time_ns):
    """Find the complete records of b[pos:end] of a snoop file; returns (records found, position after them, status)."""
    n = 0
    while n < len(offset) and pos + 24 <= end:
        original, captured, length = _u32(b, pos, True), _u32(b, pos + 4, True), _u32(b, pos + 8, True)
        if length < 24 or captured > length - 24 or length > largest:
            return n, pos, layout.BAD_LENGTH
        if pos + length > end:
            break
        time_ns[n] = _u32(b, pos + 16, True) * 1_000_000_000 + _u32(b, pos + 20, True) * 1000
        offset[n], caplen[n], wirelen[n] = pos + 24, captured, max(captured, original)
        n += 1
        pos += length
    return n, pos, layout.USED_UP


def _nanoseconds(high, low, interface):
    """Return a time stamp of an interface in nanoseconds since the epoch, -1 if that is outside of 1970 to 2116."""
    units, factor = (high << 32) | low, interface[layout.FACTOR]
    half = (high << 31) | (low >> 1)  # where all 64 bits are in use, `units` is negative
    if interface[layout.MODE] == layout.MULTIPLY:
        if units < 0 or units > LATEST_NS // factor:
            return np.int64(-1)
        ns = units * factor
    elif interface[layout.MODE] == layout.DIVIDE:
        ns = half // (factor >> 1)
    else:
        rest, bits, seconds = units & ((1 << factor) - 1), factor, half >> (factor - 1)
        if seconds > LATEST_NS // 1_000_000_000:
            return np.int64(-1)
        if bits > 32:  # bits below 2**-32 s are less than a nanosecond, and would overflow
            rest, bits = rest >> (bits - 32), 32
        ns = seconds * 1_000_000_000 + ((rest * 1_000_000_000) >> bits)
    ns += interface[layout.OFFSET_NS]
    return np.int64(-1) if ns > LATEST_NS else max(ns, -1)


def find_packets(b, pos, end, big, interfaces, largest, most, offset, caplen, wirelen, time_ns, link, counts):
    """Find the packets of the complete blocks of b[pos:end], `most` at most.

    Returns (packets found, position after them, status).
    """
    n = 0
    while n < most and pos + 12 <= end:
        kind, length = _u32(b, pos, big), _u32(b, pos + 4, big)
        if kind == layout.SECTION:
            return n, pos, layout.STATE
        padded = (length + 3) & ~3
        if length < 12 or length > largest:
            return n, pos, layout.BAD_LENGTH
        if pos + padded > end:
            break
        if _u32(b, pos + padded - 4, big) != length:
            return n, pos, layout.BAD_TRAILER
        if kind in (layout.INTERFACE, layout.STATISTICS):
            return n, pos, layout.STATE
        body, stop = pos + 8, pos + padded - 4
        if kind in (layout.ENHANCED, layout.PACKET) and length >= 32:
            interface, high, low = _u32(b, body, big), _u32(b, body + 4, big), _u32(b, body + 8, big)
            captured, original, start = _u32(b, body + 12, big), _u32(b, body + 16, big), body + 20
            if kind == layout.PACKET:  # two bytes of its own count drops
                interface = interface >> 16 if big else interface & 0xFFFF
        elif kind == layout.SIMPLE and length >= 16:
            interface, high, low = 0, 0, 0
            original, start = _u32(b, body, big), body + 4
            captured = min(original, stop - start)
            if len(interfaces) and interfaces[0, layout.SNAPLEN]:
                captured = min(captured, interfaces[0, layout.SNAPLEN])
            counts[layout.TIMELESS] += 1
        else:
            pos += padded
            continue
        if captured > stop - start:
            captured = stop - start
            counts[layout.CLIPPED] += 1
        offset[n], caplen[n], wirelen[n], time_ns[n], link[n] = start, captured, max(captured, original), 0, -1
        if interface < len(interfaces):
            link[n] = interfaces[interface, layout.LINK]
            if kind != layout.SIMPLE:
                time_ns[n] = _nanoseconds(high, low, interfaces[interface])
                if time_ns[n] < 0:
                    counts[layout.ERRATIC] += 1
                    time_ns[n] = 0
        else:
            counts[layout.UNDEFINED] += 1
        n += 1
        pos += padded
    return n, pos, layout.USED_UP
