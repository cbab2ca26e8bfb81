"""Bytes of a packet on the wire (Ethernet frames without preamble and check sequence, as in captures), and of ACKs."""

from cctrace.cc import quic

MSS_BYTES = 1448  # payload of a full segment over Ethernet: an MTU of 1500, IPv4 (20) and TCP with time stamps (32)
HEADER_BYTES = 66  # of each TCP segment: Ethernet (14), IPv4 (20), TCP with time stamps (32)
PACKET_BYTES = MSS_BYTES + HEADER_BYTES  # 1514, a full frame
DELAYED_ACK_SEGMENTS = 2  # that a receiver may have before it acknowledges [RFC1122] 4.2.3.2, [RFC5681] 4.2
LONE_ACK_US = 40_000  # for which a lone segment's ACK is delayed at least [Linux61] TCP_DELACK_MIN
WIRE_PER_PAYLOAD = PACKET_BYTES / MSS_BYTES
QUIC_MSS_BYTES = quic.MSS  # payload of a packet of the QUIC stack whose controllers cctrace has
QUIC_HEADER_BYTES = 42  # of each of its packets: Ethernet (14), IPv4 (20), UDP (8)
QUIC_PACKET_BYTES = QUIC_MSS_BYTES + QUIC_HEADER_BYTES  # 1294
QUIC_ACK_BYTES = 48  # of a client's ACK besides: short header with nginx's connection ID of 20, frame (~10), tag (16)
