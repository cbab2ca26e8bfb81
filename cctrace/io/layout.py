"""Constants that the compiled decoders share with the Python around them: counters, connection fields, limits."""

from typing import Literal

# What `decode_frames` counts. The first group are the reasons why a frame does not become a row.
COUNTERS = (
    "unknown_link",  # a link type that cctrace cannot decode, or encrypted or aggregated 802.11
    "non_ip",  # ARP, LLDP, ...
    "non_tcp",  # IP, but not TCP (UDP, ICMP, ESP, ...)
    "tunnelled",  # inside IPIP, GRE, VXLAN or GENEVE, decapsulation not requested
    "later_fragments",  # IP fragments without a complete TCP header; their payload counts with the row of the first one
    "cut_headers",  # the capture cut the frame before the TCP header was complete
    "malformed",  # a header contradicts itself
    # Rows, and what is unusual about them.
    "frames",
    "first_fragments",  # rows whose `payload` lacks the bytes of fragments that were not captured
    "cut_options",  # rows whose TCP options are malformed or not completely captured
    "beyond_wire",  # rows whose IP header claims more bytes than the frame had; the header counts
    "zero_ip_length",  # rows whose length comes from the capture record (TSO, BIG TCP)
    "back_steps",  # frames stamped earlier than the one before
    "back_step_ns",  # ... by at most this much
    "duplicates",  # rows that repeat an earlier packet bit by bit (mirror ports)
    "unseen_acks",  # ACKs, or runs of them, of data that is not in the capture
    "unseen_bytes",  # ... and how many bytes that is
    "last_ns",  # time of the latest frame: state, not a count
)
SKIPPED = COUNTERS[:7]
(
    UNKNOWN_LINK, NON_IP, NON_TCP, TUNNELLED, LATER_FRAGMENTS, CUT_HEADERS, MALFORMED, FRAMES, FIRST_FRAGMENTS,
    CUT_OPTIONS, BEYOND_WIRE, ZERO_IP_LENGTH, BACK_STEPS, BACK_STEP_NS, DUPLICATES, UNSEEN_ACKS, UNSEEN_BYTES, LAST_NS,
) = range(len(COUNTERS))  # fmt: skip

# Link types that `link.py` decodes, by their numbers in capture files; tcpdump.org's list calls them LINKTYPE_*.
LINK_TYPES = {
    0: "NULL", 1: "ETHERNET", 9: "PPP", 10: "FDDI", 11: "ATM_RFC1483", 12: "RAW", 14: "RAW", 50: "PPP_HDLC",
    51: "PPP_ETHER", 100: "ATM_RFC1483", 101: "RAW", 104: "C_HDLC", 105: "IEEE802_11", 108: "LOOP", 109: "ENC",
    113: "LINUX_SLL", 117: "PFLOG", 119: "IEEE802_11_PRISM", 127: "IEEE802_11_RADIOTAP", 163: "IEEE802_11_AVS",
    166: "PPP_PPPD", 192: "PPI", 204: "PPP_WITH_DIR", 226: "IPNET", 228: "IPV4", 229: "IPV6", 239: "NFLOG",
    242: "IPOIB", 258: "PKTAP", 276: "LINUX_SLL2", 281: "DSA_TAG_BRCM", 282: "DSA_TAG_BRCM_PREPEND",
    284: "DSA_TAG_DSA", 285: "DSA_TAG_EDSA",
}  # fmt: skip

# Other link types of captures, so that the warning can name them.
UNDECODED = {
    3: "AX25", 6: "IEEE802_5, Token Ring", 7: "ARCNET_BSD", 129: "ARCNET_LINUX", 107: "FRELAY, Frame Relay",
    122: "IP_OVER_FC", 130: "JUNIPER_MLPPP", 131: "JUNIPER_MLFR", 132: "JUNIPER_ES", 133: "JUNIPER_GGSN",
    134: "JUNIPER_MFR", 135: "JUNIPER_ATM2", 136: "JUNIPER_SERVICES", 137: "JUNIPER_ATM1", 178: "JUNIPER_ETHER",
    179: "JUNIPER_PPP", 180: "JUNIPER_FRELAY", 181: "JUNIPER_CHDLC", 194: "JUNIPER_ISM", 197: "ERF", 147: "USER0",
    148: "USER1", 187: "BLUETOOTH_HCI_H4", 189: "USB_LINUX", 195: "IEEE802_15_4", 220: "USB_LINUX_MMAPPED",
    227: "CAN_SOCKETCAN", 249: "USBPCAP", 253: "NETLINK", 272: "NORDIC_BLE",
}  # fmt: skip

# Columns that a list of connections does not need.
DETAILS = ("window", "ip_len", "tos", "ttl", "ip_id", "frame", "ecn_e0_bytes", "ecn_ce_bytes", "ecn_e1_bytes")
NO_COUNTER = 0xFFFFFFFF  # of the AccECN option, where that lacks it
RING_SIZE = 4  # latest packets per direction that are searched for copies

# The state of a connection: one row of an int64 matrix (several arrays would cost a reference count per access).
# From ISN on there is one field per direction; the rings hold fingerprints and times of the latest packets.
SRC_HI, SRC_LO, DST_HI, DST_LO, PORTS, CLOSED, CONN_LAST_NS, _, ISN, _, SND_MAX, _, MSS, _, WSCALE, _, SACK_OK, _ = (
    range(18)
)
LATE = 18  # data acknowledged before the capture showed it: first and last number + 1, of 32 bits each, or -1
RING_POS, RING, RING_NS = 20, 22, 22 + 2 * RING_SIZE
CONN_FIELDS = RING_NS + 2 * RING_SIZE

# Datagrams with fragments in the capture: rows 1 on of an int64 matrix. Five fields are the key, then: start time, row
# of the packet (-1: none), its own bytes, bytes of the complete datagram (-1: unknown), units received, and a map of
# those.
DATAGRAM_NS, DATAGRAM_ROW, DATAGRAM_FIRST, DATAGRAM_SIZE, DATAGRAM_UNITS, FRAGMENT_MAP = range(5, 11)
DATAGRAMS, DATAGRAM_FIELDS = 65, FRAGMENT_MAP + 65536 // 8 // 32

ByteOrder = Literal["little", "big"]  # of a pcap, or of a section of a pcapng

# Blocks of a pcapng, and why `find_packets` returned: the bytes or the arrays are used up, a block for Python, damage.
SECTION, INTERFACE, PACKET, SIMPLE, STATISTICS, ENHANCED = 0x0A0D0D0A, 1, 2, 3, 5, 6
SECTION_BYTES = SECTION.to_bytes(4, "little")  # the same in both byte orders
BYTE_ORDERS: dict[bytes, ByteOrder] = {b"\x4d\x3c\x2b\x1a": "little", b"\x1a\x2b\x3c\x4d": "big"}
MAX_BLOCK = 1 << 24
USED_UP, STATE, BAD_LENGTH, BAD_TRAILER = range(4)
# Columns of its interface matrix. Time stamps become nanoseconds by factor (MULTIPLY), divisor (DIVIDE) or shift.
LINK, MODE, FACTOR, OFFSET_NS, SNAPLEN = range(5)
MULTIPLY, DIVIDE, SHIFT = range(3)
# How packets are found in a file: in blocks or records, big-endian, bytes before the frame in a record or an enhanced
# packet block, whether the lengths are swapped (`find_records`), the largest length that is believed.
RULES = BLOCKS, BIG, HEADER, SWAP, LARGEST = range(5)
# What `find_packets` counts.
CLIPPED, UNDEFINED, TIMELESS, ERRATIC = range(4)
