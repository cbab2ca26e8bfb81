"""Tunnels are counted, and looked into on request."""

import io
import struct

import numpy as np
import pytest
from test_io_pcap import T0, conversation, expect_dpkt
from wire import ethernet, ethertype, ipv4, ipv6, pcap, tcp

from cctrace.errors import ArgumentError, FormatError
from cctrace.io import read_file, stream


def udp(payload, port):
    return struct.pack("!HHHH", 5555, port, 8 + len(payload), 0) + payload


def gre(packet, flags=0, kind=None):
    fields = b"\0" * 4 * sum(bool(flags & bit) for bit in (0x8000, 0x2000, 0x1000))
    return struct.pack("!HH", flags, kind or ethertype(packet)) + fields + packet


def geneve(packet, options=b"", kind=None):
    return struct.pack("!BBH4x", len(options) // 4, 0, kind or ethertype(packet)) + options + packet


TUNNELS = {
    "ipip": lambda p: ipv4(p, protocol=4 if p[0] >> 4 == 4 else 41),
    "ipip over IPv6": lambda p: ipv6(p, next_header=4 if p[0] >> 4 == 4 else 41),
    "gre": lambda p: ipv4(gre(p), protocol=47),
    "gre with checksum, key and number": lambda p: ipv4(gre(p, 0xB000), protocol=47),
    "gre of ethernet": lambda p: ipv4(gre(ethernet(p), kind=0x6558), protocol=47),
    "gre: erspan II": lambda p: ipv4(gre(b"\x10" + bytes(7) + ethernet(p), 0x1000, 0x88BE), protocol=47),
    "gre: wccp": lambda p: ipv4(gre(bytes(4) + p, kind=0x883E), protocol=47),
    "vxlan": lambda p: ipv4(udp(b"\x08\0\0\0\0\0\1\0" + ethernet(p, [0x8100]), 4789), protocol=17),
    "geneve": lambda p: ipv6(udp(geneve(ethernet(p), b"\1" * 12, 0x6558), 6081), next_header=17),
    "geneve of ip": lambda p: ipv4(udp(geneve(p), 6081), protocol=17),
}


@pytest.mark.parametrize("name", TUNNELS)
def test_inner_packets_give_the_fields_that_dpkt_gives(name):
    ips = conversation(30)
    data = pcap([(T0, ethernet(TUNNELS[name](p))) for p in ips])
    expect_dpkt(read_file(io.BytesIO(data), decapsulate=name.split()[0].strip(":")), ips)
    with pytest.raises(FormatError, match=r"tunnelled 30.; decapsulate="):
        read_file(io.BytesIO(data))


def test_tunnels_within_tunnels_are_followed():
    ips = conversation(10)
    nested = [TUNNELS["gre"](TUNNELS["vxlan"](TUNNELS["ipip"](p))) for p in ips]
    expect_dpkt(read_file(io.BytesIO(pcap([(T0, p) for p in nested], 101)), decapsulate="all"), ips)


def test_the_inner_length_is_bounded_by_the_outer_packet():
    inner = ipv4(tcp(payload=bytes(300)), length=0)
    data = pcap([(T0, ethernet(TUNNELS["gre"](inner)) + bytes(50))])
    assert read_file(io.BytesIO(data), decapsulate="gre")["payload"].tolist() == [300]


def test_an_unknown_tunnel_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ArgumentError, match="decapsulate='l2tp' is not one of ipip, gre"):
        read_file(io.BytesIO(pcap([])), decapsulate="l2tp")


def test_parts_of_a_stream_add_up_to_the_whole(monkeypatch):
    ips = conversation(3000)
    data = pcap([(T0 + i, p) for i, p in enumerate(ips)], 101)
    monkeypatch.setattr("cctrace.io.captures.pcap.frames_of.__defaults__", (5000,))
    whole, parts = read_file(io.BytesIO(data)), list(stream(io.BytesIO(data), chunk=100))
    assert len(parts) > 10
    for name in set(whole.columns) - {"sack_row"}:
        assert np.array_equal(np.concatenate([p[name] for p in parts]), whole[name]), name
    blocks = np.concatenate([p.sacks["left"][p["sack_row"][p["sack_count"] > 0]] for p in parts])
    assert np.array_equal(blocks, whole.sacks["left"][whole["sack_row"][whole["sack_count"] > 0]])
    assert parts[-1].counters == whole.counters
