"""Compiled: reassembles the length of fragmented datagrams, so that their TCP payload is counted in full.

A fragmented datagram becomes one row, that of its first fragment, which alone has the TCP header; the others add
payload. `gather` marks the bytes that each fragment covers, in units of 8, in one of a ring of rows; once none is
missing, the packet gets the length of the whole datagram. One that times out, or leaves the ring, keeps its own length.

Sources: RFC 791 §3.2, RFC 8200 §4.5.
"""

from cctrace.io.captures.link import be16, be32, be64, u8
from cctrace.io.layout import DATAGRAM_NS, DATAGRAM_ROW, DATAGRAM_SIZE, DATAGRAM_UNITS, FRAGMENT_MAP

_TIMEOUT_NS = 30_000_000_000  # Linux's timeout


def _place(g, a, b, c, d, e, now) -> int:
    """Return the row of `g` for the datagram with this key, a new one if need be; g[0, 0] counts the rows given out."""
    for i in range(1, len(g)):
        if g[i, 0] == a and g[i, 1] == b and g[i, 2] == c and g[i, 3] == d and g[i, 4] == e:
            if abs(now - g[i, DATAGRAM_NS]) < _TIMEOUT_NS:
                return i
            g[i, 4] = -1
    i = 1 + g[0, 0] % (len(g) - 1)
    g[0, 0] += 1
    for j in range(g.shape[1]):
        g[i, j] = 0
    g[i, 0], g[i, 1], g[i, 2], g[i, 3], g[i, 4] = a, b, c, d, e
    g[i, DATAGRAM_NS], g[i, DATAGRAM_ROW], g[i, DATAGRAM_SIZE] = now, -1, -1
    return i


def gather(b, ip, p, size, g, now) -> int:
    """Add the fragment of `size` bytes at p, IP header at ip; return its datagram's row of `g`, 0 for none."""
    if u8(b, ip) >> 4 == 4:
        word = be16(b, ip + 6)
        start, more, version = 8 * (word & 0x1FFF), word & 0x2000, 4
        key = be32(b, ip + 12), be32(b, ip + 16), 0, 0, be16(b, ip + 4)
    else:
        word = be16(b, p - 6)
        start, more, version = word & 0xFFF8, word & 1, 6
        key = be64(b, ip + 8), be64(b, ip + 16), be64(b, ip + 24), be64(b, ip + 32), be32(b, p - 4)
        if u8(b, p - 8) != 6:  # further extension headers inside the first fragment
            return 0
    if start + size > 65535 or size <= 0:
        return 0
    i = _place(g, key[0], key[1], key[2], key[3], key[4] << 4 | version, now)
    if not more:
        g[i, DATAGRAM_SIZE] = start + size
    for unit in range(start >> 3, (start + size + 7) >> 3):
        word, bit = FRAGMENT_MAP + (unit >> 5), 1 << (unit & 31)
        if not g[i, word] & bit:
            g[i, word] |= bit
            g[i, DATAGRAM_UNITS] += 1
    return i


def is_whole(g, i) -> bool:
    """Return whether a datagram (0: none) has the row of its first fragment and all of its other fragments."""
    known = i > 0 and g[i, DATAGRAM_ROW] >= 0 and g[i, DATAGRAM_SIZE] >= 0
    return known and g[i, DATAGRAM_UNITS] == (g[i, DATAGRAM_SIZE] + 7) >> 3
