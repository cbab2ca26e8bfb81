"""Compiled: finds the IP header of a frame, through link layers and tunnels; reads fields of 1 to 8 bytes.

Each function returns the offset of an IP header or -1 - the counter that says why there is none.

Sources: RFC 3032 (MPLS), 2784/2890 (GRE), 7348 (VXLAN), 8926 (GENEVE); tcpdump.org's list of link types.
"""

import numpy as np

from cctrace.io.layout import CUT_HEADERS, MALFORMED, NON_IP, TUNNELLED, UNKNOWN_LINK
from cctrace.lang.memory import big64

# Offsets are never negative; this mask says so, which avoids Python's negative indices and lets LLVM fuse the bytes of
# a field into one load: twice as fast. Of what has passed NEAR, fields close by need no further masking.
OFFSET, NEAR = (1 << 62) - 1, (1 << 40) - 1


def u8(b, p):
    """Return the byte at offset p of the buffer b."""
    return np.int64(b[p & OFFSET])


def be16(b, p):
    """Return the 16-bit number at offset p of the buffer b."""
    p &= OFFSET
    return (np.int64(b[p]) << 8) | np.int64(b[p + 1])


def be32(b, p):
    """Return the 32-bit number at offset p of the buffer b."""
    p &= OFFSET
    return (np.int64(b[p]) << 24) | (np.int64(b[p + 1]) << 16) | (np.int64(b[p + 2]) << 8) | np.int64(b[p + 3])


def be64(b, p):
    """Return the 64-bit number, as signed, at offset p of the buffer b."""
    return big64(b, p & OFFSET)


def _le16(b, p):
    p &= OFFSET
    return np.int64(b[p]) | (np.int64(b[p + 1]) << 8)


def _after_ppp_protocol(b, p, end):
    """Return the offset of the IP header behind a PPP protocol number at p, of two bytes or one, or -1 - reason."""
    if p + 2 > end:
        return -1 - CUT_HEADERS
    short = u8(b, p) & 1
    protocol = u8(b, p) if short else be16(b, p)
    p += 1 if short else 2
    return p if protocol == 0x21 or protocol == 0x57 else -1 - NON_IP


def _below_labels(b, p, end):
    """Return the offset behind the MPLS labels at p, down to the bottom of the stack, or -1 - reason."""
    bottom = 0
    while not bottom:
        if p + 5 > end:
            return -1 - CUT_HEADERS
        bottom = u8(b, p + 2) & 1
        p += 4
    return p


def _after_llc(b, p, end):
    """Return (EtherType, offset of its payload) behind an IEEE 802.2 header at p.

    Without an EtherType: (0, offset of the IP header or -1 - reason).
    """
    if p + 8 > end:
        return 0, -1 - CUT_HEADERS
    if u8(b, p) == 0xAA and u8(b, p + 1) == 0xAA and u8(b, p + 2) == 3:
        kind = be16(b, p + 6)
        return (kind, p + 8) if kind >= 0x600 else (0, -1 - NON_IP)
    return 0, p + 3 if u8(b, p) == 6 and u8(b, p + 1) == 6 and u8(b, p + 2) == 3 else -1 - NON_IP


def _after_ethertype(b, p, end, kind):
    """Return the offset of the IP header behind an EtherType whose payload starts at p, or -1 - reason."""
    while True:
        if kind == 0x0800 or kind == 0x86DD:
            return p
        if kind == 0x8100 or kind == 0x88A8 or kind == 0x9100 or kind == 0x9200:  # VLAN tags
            if p + 4 > end:
                return -1 - CUT_HEADERS
            kind = be16(b, p + 2)
            p += 4
        elif kind == 0x8847 or kind == 0x8848:  # MPLS: labels to the bottom of the stack, then a guess by nibble
            p = _below_labels(b, p, end)
            if p < 0:
                return p
            nibble = u8(b, p) >> 4
            if nibble == 4 or nibble == 6:
                return p
            if nibble == 0:  # pseudowire control word, then Ethernet
                p += 4
            kind = 0x6558
        elif kind == 0x6558:  # Ethernet inside
            if p + 14 > end:
                return -1 - CUT_HEADERS
            kind = be16(b, p + 12)
            p += 14
        elif kind == 0x8864:  # PPPoE session
            return _after_ppp_protocol(b, p + 6, end)
        elif kind == 0x8926 or kind == 0x892F or kind == 0x893F or kind == 0x8909:  # VN-, HSR, E-, Cisco's group tag
            p += 4 if kind == 0x8926 or kind == 0x892F else 6
            if p + 2 > end:
                return -1 - CUT_HEADERS
            kind, p = be16(b, p), p + 2
        elif kind == 0x8903:  # FabricPath: a tag of four bytes, of which two are the type, then Ethernet
            kind, p = 0x6558, p + 2
        elif kind == 0x88E7:  # the service tag of 802.1ah, then Ethernet
            kind, p = 0x6558, p + 4
        elif kind < 0x600:  # a length: IEEE 802.2, of which SNAP and plain IP matter
            kind, p = _after_llc(b, p, end)
            if kind < 0x600:
                return p
        else:
            return -1 - NON_IP


def _after_ppp(b, p, end):
    """Return the offset of the IP header in a PPP frame, with or without HDLC framing, or -1 - reason."""
    if p + 4 > end:
        return -1 - CUT_HEADERS
    if u8(b, p) == 0xFF and u8(b, p + 1) == 3:
        p += 2
    elif (u8(b, p) == 0x0F or u8(b, p) == 0x8F) and u8(b, p + 1) == 0:  # Cisco HDLC carries an EtherType
        return _after_ethertype(b, p + 4, end, be16(b, p + 2))
    if be16(b, p) == 0x281 or be16(b, p) == 0x283:
        return _after_ethertype(b, p + 2, end, 0x8847)
    return _after_ppp_protocol(b, p, end)


def _after_wireless(b, p, end, padded):
    """Return the offset of the IP header in an 802.11 frame, or -1 - reason; `padded`: its header to a multiple of 4.

    Encrypted frames, and those that carry several packets at once (A-MSDU), count as not decodable.
    """
    if p + 24 > end:
        return -1 - CUT_HEADERS
    control, flags = u8(b, p), u8(b, p + 1)
    if control & 0x4C != 0x08:  # no data frame, or one without data
        return -1 - NON_IP
    size = 30 if flags & 3 == 3 else 24  # a fourth address between access points
    if control & 0x80:  # quality of service, high throughput
        if p + size + 2 > end:
            return -1 - CUT_HEADERS
        flags |= 0x40 if u8(b, p + size) & 0x80 else 0
        size += 6 if flags & 0x80 else 2
    if flags & 0x40:
        return -1 - UNKNOWN_LINK
    return _after_ethertype(b, p + ((size + 3) & ~3 if padded else size), end, 0)


def _after_radiotap(b, p, end):
    """Return the offset of the IP header in an 802.11 frame behind a radiotap header, or -1 - reason."""
    if p + 8 > end or p + _le16(b, p + 2) > end:
        return -1 - CUT_HEADERS
    stop, fields, at = p + _le16(b, p + 2), u8(b, p + 4), 8
    while u8(b, p + at - 1) & 0x80 and p + at + 4 <= stop:  # more words that say which fields there are
        at += 4
    if fields & 1:  # the clock, aligned
        at = ((at + 7) & ~7) + 8
    return _after_wireless(b, stop, end, fields & 2 and p + at < stop and u8(b, p + at) & 0x20)


def _after_nflog(b, p, end):
    """Return the offset of the IP header in a record of the netfilter log, or -1 - reason."""
    p += 4
    while p + 4 <= end:  # attributes in the byte order of the machine that logged: length, kind
        little = _le16(b, p + 2) < 256
        length, kind = (_le16(b, p), _le16(b, p + 2)) if little else (be16(b, p), be16(b, p + 2))
        if kind == 9:  # the packet
            return p + 4
        if length < 4:
            return -1 - MALFORMED
        p += (length + 3) & ~3
    return -1 - CUT_HEADERS


def _rare(b, p, end, link):
    """Return what `ip_header` returns, for rare link types."""
    if p + 12 > end:
        return -1 - CUT_HEADERS
    if link == 258 or link == 192:  # PKTAP, PPI: a header that names the link type of what follows
        size, link = _le16(b, p if link == 258 else p + 2), _le16(b, p + 8 if link == 258 else p + 4)
        p += size
        if p + 14 > end:
            return -1 - CUT_HEADERS
        if link == 1:
            return _after_ethertype(b, p + 14, end, be16(b, p + 12))
        if link == 0 or link == 12 or link == 101:
            return p + 4 if link == 0 else p
    if link == 105:  # IEEE802_11
        return _after_wireless(b, p, end, 0)
    if link == 127:  # IEEE802_11_RADIOTAP
        return _after_radiotap(b, p, end)
    if link == 119 or link == 163:  # IEEE802_11_PRISM, IEEE802_11_AVS; the latter also comes under the former's number
        return _after_wireless(b, p + (be32(b, p + 4) if u8(b, p) == 0x80 else 144), end, 0)
    if link == 239:  # NFLOG
        return _after_nflog(b, p, end)
    if link == 109:  # ENC
        return p + 12
    if link == 117:  # PFLOG
        return p + ((u8(b, p) + 3) & ~3)
    if link == 226:  # IPNET
        return p + 24
    if link == 166:  # PPP_PPPD
        return _after_ppp_protocol(b, p + 2, end)
    if link == 204:  # PPP_WITH_DIR
        return _after_ppp(b, p + 1, end)
    if link == 281 or link == 284 or link == 285:  # DSA_TAG_BRCM, DSA_TAG_DSA, DSA_TAG_EDSA: a switch's tag
        p += 20 if link == 285 else 16
        return _after_ethertype(b, p + 2, end, be16(b, p)) if p + 2 <= end else -1 - CUT_HEADERS
    if link == 282:  # DSA_TAG_BRCM_PREPEND
        return _after_ethertype(b, p + 4, end, 0x6558)
    return -1 - UNKNOWN_LINK


def ip_header(b, p, end, link):
    """Return the offset of the IP header of a frame that starts at p, or -1 - reason. Numbers: LINKTYPE_*."""
    if link == 1:  # ETHERNET
        if p + 14 > end:
            return -1 - CUT_HEADERS
        return _after_ethertype(b, p + 14, end, be16(b, p + 12))
    if link == 101 or link == 12 or link == 14 or link == 228 or link == 229:  # RAW, IPV4, IPV6
        return p
    if link == 276:  # LINUX_SLL2
        if p + 20 > end:
            return -1 - CUT_HEADERS
        return _after_ethertype(b, p + 20, end, be16(b, p))
    if link == 113:  # LINUX_SLL
        if p + 16 > end:
            return -1 - CUT_HEADERS
        return _after_ethertype(b, p + 16, end, be16(b, p + 14))
    if link == 0 or link == 108:  # NULL (the capturing host's order), LOOP (network order): an address family
        if p + 4 > end:
            return -1 - CUT_HEADERS
        family = max(u8(b, p), u8(b, p + 3))
        known = family == 2 or family == 10 or family == 23 or family == 24 or family == 28 or family == 30
        return p + 4 if known else -1 - NON_IP
    if link == 9 or link == 50:  # PPP, PPP_HDLC
        return _after_ppp(b, p, end)
    if link == 51:  # PPP_ETHER
        return _after_ethertype(b, p, end, 0x8864)
    if link == 104:  # C_HDLC
        if p + 4 > end:
            return -1 - CUT_HEADERS
        return _after_ethertype(b, p + 4, end, be16(b, p + 2))
    if link == 242:  # IPOIB
        if p + 44 > end:
            return -1 - CUT_HEADERS
        return _after_ethertype(b, p + 44, end, be16(b, p + 40))
    if link == 100 or link == 11:  # ATM_RFC1483
        return _after_ethertype(b, p, end, 0)
    if link == 10:  # FDDI
        return _after_ethertype(b, p + 13, end, 0)
    return _rare(b, p, end, link)


def inner_header(b, p, end, protocol, tunnels):
    """Return the offset of the inner IP header of a tunnel packet, 0 if it is none, or -1 - reason."""
    if protocol == 4 or protocol == 41:
        return p if tunnels & 1 else -1 - TUNNELLED
    if protocol == 47:
        if not tunnels & 2:
            return -1 - TUNNELLED
        if p + 4 > end:
            return -1 - CUT_HEADERS
        flags, kind = be16(b, p), be16(b, p + 2)
        p += 4
        p += 4 if flags & 0xC000 else 0  # checksum or (long gone) routing
        p += 4 if flags & 0x2000 else 0  # key
        p += 4 if flags & 0x1000 else 0  # sequence number
        p += 4 if flags & 0x0007 == 1 and flags & 0x0080 else 0  # PPTP's acknowledgement
        if kind == 0x883E:  # redirected by WCCP: a header of four bytes, then IP
            return p + 4
        if kind == 0x880B:
            return _after_ppp(b, p, end)
        if kind == 0x88BE:  # ERSPAN: type I has no header of its own, type II eight bytes
            return _after_ethertype(b, p + (8 if flags & 0x1000 else 0), end, 0x6558)
        if kind == 0x22EB:  # ERSPAN type III
            return _after_ethertype(b, p + 12, end, 0x6558)
        return _after_ethertype(b, p, end, kind)
    if protocol == 17 and p + 8 <= end:
        port = be16(b, p + 2)
        if port == 4789 or port == 8472:
            return _after_ethertype(b, p + 16, end, 0x6558) if tunnels & 4 else -1 - TUNNELLED
        if port == 6081:
            if not tunnels & 8:
                return -1 - TUNNELLED
            if p + 16 > end:
                return -1 - CUT_HEADERS
            return _after_ethertype(b, p + 16 + 4 * (u8(b, p + 8) & 63), end, be16(b, p + 10))
    return 0
