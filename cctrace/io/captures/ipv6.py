"""Compiled: the extension headers of IPv6. Sources: RFC 8200, 2675 (jumbograms), 4302 (AH)."""

from cctrace.io.captures.link import be16, be32, u8
from cctrace.io.layout import CUT_HEADERS


def jumbo_length(b, p, end) -> int:
    """Return the IPv6 payload length of a jumbogram from its hop-by-hop header at p, or 0 [RFC 2675]."""
    if p + 2 > end:
        return 0
    stop = min(end, p + 8 + 8 * u8(b, p + 1))
    p += 2
    while p + 6 <= stop:
        if u8(b, p) == 0xC2 and u8(b, p + 1) == 4:
            return be32(b, p + 2)
        p += 1 if u8(b, p) == 0 else 2 + u8(b, p + 1)
    return 0


def skip_extensions(b, p, end, protocol) -> tuple[int, int, int]:
    """Walk IPv6 extension headers from p: (protocol, offset, fragment: 0 none, 1 first of several, 2 later)."""
    fragment = 0
    while True:
        if protocol == 0 or protocol == 43 or protocol == 60 or protocol == 135 or protocol == 139 or protocol == 140:
            if p + 2 > end:
                return -1 - CUT_HEADERS, p, fragment
            protocol = u8(b, p)
            p += 8 + 8 * u8(b, p + 1)
        elif protocol == 51:  # AH counts 4-byte units
            if p + 2 > end:
                return -1 - CUT_HEADERS, p, fragment
            protocol = u8(b, p)
            p += 8 + 4 * u8(b, p + 1)
        elif protocol == 44:
            if p + 8 > end:
                return -1 - CUT_HEADERS, p, fragment
            word = be16(b, p + 2)
            protocol = u8(b, p)
            p += 8
            if word >> 3:
                return protocol, p, 2
            if word & 1:
                fragment = 1
        else:
            return protocol, p, fragment
