"""pcap files of every dialect and link type, decoded field by field against dpkt and against what was put in."""

import bz2
import gc
import gzip
import io
import lzma
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
import weakref

import dpkt
import numpy as np
import pytest
from wire import ethernet, ethertype, ipv4, ipv6, pcap, read, tcp, tcp_options

from cctrace import schema
from cctrace.errors import FormatError, Truncated
from cctrace.io import read_file, stream
from cctrace.io.captures import pcap as reader
from cctrace.io.captures.chunks import Chunks

T0 = 1_795_190_736_401_848_537  # odd nanoseconds: a float64 would lose them


def conversation(count=200, seed=1):
    """IP packets of a few connections with all kinds of options, flags and lengths."""
    rng = random.Random(seed)
    packets = []
    for i in range(count):
        options = tcp_options(
            mss=rng.choice((None, 1460, 536)),
            wscale=rng.choice((None, 0, 14)),
            sack_ok=rng.random() < 0.3,
            timestamps=rng.choice((None, (rng.getrandbits(32), rng.getrandbits(32)))),
            sacks=[(rng.getrandbits(32), rng.getrandbits(32)) for _ in range(rng.choice((0, 0, 1)))],
        )
        segment = tcp(
            sport=40000 + i % 3, dport=443, seq=rng.getrandbits(32), ack=rng.getrandbits(32), flags=rng.getrandbits(8),
            window=rng.getrandbits(16), options=options, payload=bytes(rng.randrange(0, 1400)),
        )  # fmt: skip
        if rng.random() < 0.5:
            packets.append(ipv4(segment, ident=rng.getrandbits(16), tos=rng.getrandbits(8), ttl=rng.randrange(1, 256)))
        else:
            packets.append(ipv6(segment, traffic_class=rng.getrandbits(8), hops=rng.randrange(1, 256)))
    return packets


def expect_dpkt(packets, ip_packets):
    """Assert that every column equals what dpkt decodes from the same IP packets."""
    assert len(packets) == len(ip_packets)
    for i, raw in enumerate(ip_packets):
        ip = dpkt.ip.IP(raw) if raw[0] >> 4 == 4 else dpkt.ip6.IP6(raw)
        segment = ip.data
        v4 = isinstance(ip, dpkt.ip.IP)
        options = dict(dpkt.tcp.parse_opts(segment.opts))
        stamps = struct.unpack("!II", options[8]) if 8 in options else (0, 0)
        k = packets["conn"][i]
        ends = [(packets.connections[a][k], packets.connections[p][k]) for a, p in (("src", "sport"), ("dst", "dport"))]
        source = ends[packets["direction"][i]]
        family = socket.AF_INET if v4 else socket.AF_INET6
        assert source == (socket.inet_ntop(family, ip.src), segment.sport)
        expected = {
            "flags": segment.flags & 0x1FF,
            "seq": segment.seq,
            "ack": segment.ack,
            "window": segment.win,
            "payload": len(segment.data),
            "ip_len": ip.len if v4 else ip.plen + 40,
            "tos": ip.tos if v4 else ip.fc,
            "ttl": ip.ttl if v4 else ip.hlim,
            "ip_id": ip.id if v4 else 0,
            "tsval": stamps[0],
            "tsecr": stamps[1],
            "options": sum(bit for kind, bit in ((8, 1), (5, 2), (2, 4), (3, 8), (4, 16)) if kind in options),
            "sack_count": (len(options[5]) // 8) if 5 in options else 0,
        }
        got = {name: int(packets[name][i]) for name in expected}
        assert got == expected, f"packet {i}"
        if 5 in options:
            first = packets["sack_row"][i]
            blocks = struct.unpack(f"!{len(options[5]) // 4}I", options[5])
            assert (packets.sacks["left"][first], packets.sacks["right"][first]) == blocks[:2]


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(("unit_ns", "header"), [(1000, 16), (1, 16), (1000, 24)])
def test_every_dialect_gives_the_fields_that_dpkt_gives(big, unit_ns, header):
    ips = conversation()
    records = [(T0 + i * 1_000_001, ethernet(p)) for i, p in enumerate(ips)]
    packets = read(pcap(records, 1, big, unit_ns, header))
    expect_dpkt(packets, ips)
    assert packets["time_ns"].tolist() == [t - t % unit_ns for t, _ in records]


LINKS = {
    "ethernet": (1, ethernet),
    "vlan": (1, lambda p: ethernet(p, [0x8100])),
    "vlan stack": (1, lambda p: ethernet(p, [0x88A8, 0x8100, 0x9100])),
    "mpls": (1, lambda p: ethernet(b"\x00\x01\x00\x40\x00\x02\x01\x40" + p, kind=0x8847)),
    "mpls pseudowire": (1, lambda p: ethernet(b"\x00\x01\x01\x40\0\0\0\0" + ethernet(p), kind=0x8847)),
    "pppoe": (1, lambda p: ethernet(b"\x11\0\0\1" + struct.pack("!H", len(p) + 2) + _ppp(p), kind=0x8864)),
    "snap": (1, lambda p: _snap(p)),
    "raw 101": (101, lambda p: p),
    "raw 12": (12, lambda p: p),
    "raw 14": (14, lambda p: p),
    "cooked v1": (113, lambda p: b"\0" * 14 + struct.pack("!H", ethertype(p)) + p),
    "cooked v2": (276, lambda p: struct.pack("!H", ethertype(p)) + b"\0" * 18 + p),
    "null, little-endian": (0, lambda p: struct.pack("<I", 2 if p[0] >> 4 == 4 else 30) + p),
    "null, big-endian": (0, lambda p: struct.pack(">I", 2 if p[0] >> 4 == 4 else 24) + p),
    "loop": (108, lambda p: struct.pack(">I", 2 if p[0] >> 4 == 4 else 28) + p),
    "ppp": (9, lambda p: b"\xff\3" + _ppp(p)),
    "ppp without framing": (9, lambda p: _ppp(p)),
    "ppp, short protocol": (9, lambda p: _ppp(p)[1:]),
    "ppp hdlc": (50, lambda p: b"\xff\3" + _ppp(p)),
    "ip over infiniband": (242, lambda p: bytes(40) + struct.pack("!HH", ethertype(p), 0) + p),
    "cisco hdlc": (104, lambda p: b"\x0f\0" + struct.pack("!H", ethertype(p)) + p),
    "null, windows": (0, lambda p: struct.pack("<I", 2 if p[0] >> 4 == 4 else 23) + p),
    "pppoe, short protocol": (1, lambda p: ethernet(b"\x11\0\0\1\0\0" + _ppp(p)[1:], kind=0x8864)),
    "provider backbone": (1, lambda p: ethernet(b"\0\0\0\7" + ethernet(p), kind=0x88E7)),
    "fabric path": (1, lambda p: ethernet(b"\0\0" + ethernet(p), kind=0x8903)),
    "vn-tag": (1, lambda p: ethernet(bytes(4) + _typed(p), kind=0x8926)),
    "e-tag": (1, lambda p: ethernet(bytes(6) + _typed(p), kind=0x893F)),
    "ppp with direction": (204, lambda p: b"\1\xff\3" + _ppp(p)),
    "pppd": (166, lambda p: b"\1\3" + _ppp(p)),
    "802.11": (105, lambda p: _wireless(p)),
    "802.11, quality of service": (105, lambda p: _wireless(p, control=0x88)),
    "802.11, four addresses, high throughput": (105, lambda p: _wireless(p, control=0x88, flags=0x83)),
    "radiotap": (127, lambda p: struct.pack("<BBHI4x", 0, 0, 12, 4) + _wireless(p)),
    "radiotap, header padded": (
        127,
        lambda p: struct.pack("<BBHII4xQB7x", 0, 0, 32, 1 << 31 | 3, 0, 0, 0x20) + _padded(p),
    ),
    "prism": (119, lambda p: struct.pack("<II136x", 0x44, 144) + _wireless(p)),
    "avs": (163, lambda p: struct.pack(">II", 0x80211001, 64) + bytes(56) + _wireless(p)),
    "ppi": (192, lambda p: struct.pack("<BBHI", 0, 0, 8, 105) + _wireless(p)),
    "ppi of ethernet": (192, lambda p: struct.pack("<BBHI4x", 0, 0, 12, 1) + ethernet(p)),
    "pktap": (258, lambda p: struct.pack("<III96x", 108, 1, 1) + ethernet(p)),
    "pktap of null": (258, lambda p: struct.pack("<III96x", 108, 1, 0) + b"\2\0\0\0" + p),
    "nflog": (239, lambda p: b"\2\0\0\1" + struct.pack("<HHIHH4s", 8, 1, 0, 7, 10, b"eth\0") + _attribute("<", p)),
    "nflog, big-endian": (239, lambda p: b"\2\0\0\1" + _attribute(">", p)),
    "enc": (109, lambda p: struct.pack("<I8x", 2 if p[0] >> 4 == 4 else 24) + p),
    "pflog": (117, lambda p: bytes((61, 2 if p[0] >> 4 == 4 else 24)) + bytes(62) + p),
    "ipnet": (226, lambda p: bytes(24) + p),
    "switch tag": (281, lambda p: bytes(16) + _typed(p)),
    "switch tag with ethertype": (285, lambda p: bytes(12) + b"\xda\xda" + bytes(6) + _typed(p)),
    "switch tag ahead": (282, lambda p: bytes(4) + ethernet(p)),
    "link type with checksum bits": (1 | 0x24000000, lambda p: ethernet(p) + b"sum!"),
}


def _snap(packet):
    body = b"\xaa\xaa\3\0\0\0" + struct.pack("!H", ethertype(packet)) + packet
    return ethernet(body, kind=min(len(body), 1500))


def _typed(packet):
    return struct.pack("!H", ethertype(packet)) + packet


def _wireless(packet, control=8, flags=1, pad=b""):
    header = bytes([control, flags]) + bytes(22 + 6 * (flags & 3 == 3) + 2 * (control >> 7) + 4 * (flags >> 7))
    return header + pad + b"\xaa\xaa\3\0\0\0" + _typed(packet)


def _padded(packet):
    return _wireless(packet, control=0x88, pad=b"\0\0")


def _attribute(order, packet):
    return struct.pack(order + "HH", 4 + len(packet), 9) + packet


def _ppp(packet):
    return (b"\x00\x21" if packet[0] >> 4 == 4 else b"\x00\x57") + packet


@pytest.mark.parametrize("name", LINKS)
def test_every_link_type_leads_to_the_same_fields(name):
    link, wrap = LINKS[name]
    ips = conversation(40)
    expect_dpkt(read(pcap([(T0 + i, wrap(p)) for i, p in enumerate(ips)], link)), ips)


@pytest.mark.parametrize(("link", "version"), [(228, 4), (229, 6)])
def test_link_types_of_one_ip_version(link, version):
    ips = [p for p in conversation(40) if p[0] >> 4 == version]
    expect_dpkt(read(pcap([(T0, p) for p in ips], link)), ips)


def test_length_zero_means_the_length_of_the_record():
    segment = tcp(payload=bytes(60_000))
    frames = [ethernet(ipv4(segment, length=0)), ethernet(ipv6(segment, length=0))]
    packets = read(pcap([(T0, f[:120], len(f)) for f in frames]))
    assert packets["payload"].tolist() == [60_000, 60_000]
    assert packets["ip_len"].tolist() == [60_040, 60_060]
    assert packets.counters["zero_ip_length"] == 2


def test_a_header_that_claims_more_than_its_frame_had_is_believed_and_told():
    packets = read(pcap([(T0, ethernet(ipv4(tcp(), length=1040)))]))
    assert packets["payload"].tolist() == [1000]
    assert packets.counters["beyond_wire"] == 1
    assert any("1 packet claims more bytes" in w for w in packets.warnings)


def test_big_tcp_takes_its_length_from_the_jumbo_option():
    segment = tcp(payload=bytes(200_000))
    hop_by_hop = struct.pack("!BBBBI", 6, 0, 0xC2, 4, len(segment) + 8)
    frame = ethernet(ipv6(hop_by_hop + segment, next_header=0, length=0))
    packets = read(pcap([(T0, frame[:128], 999)]))
    assert packets["payload"].tolist() == [200_000]


def test_ip_options_and_extension_headers_are_walked():
    segment = tcp(payload=b"x" * 9)
    ahead = struct.pack("!BB6x", 43, 0) + struct.pack("!BB14x", 60, 1) + struct.pack("!BB6x", 51, 0)
    chain = ahead + struct.pack("!BB10x", 6, 1) + segment
    packets = read(pcap([(T0, ipv4(segment, options=b"\x01" * 12)), (T0, ipv6(chain, next_header=0))], 101))
    assert packets["payload"].tolist() == [9, 9]


def test_ethernet_padding_is_no_payload():
    frame = ethernet(ipv4(tcp(), length=40)) + b"\xff" * 6
    assert read(pcap([(T0, frame)]))["payload"].tolist() == [0]


@pytest.mark.parametrize("keep", range(55))
def test_a_snaplen_anywhere_leaves_what_is_readable(keep):
    options = tcp_options(timestamps=(11, 22)) + tcp_options(sacks=[(5, 6)])
    frame = ethernet(ipv4(tcp(seq=77, options=options, payload=bytes(500)), ttl=9))
    whole = ethernet(ipv4(tcp(sport=5)))
    packets = read(pcap([(T0, frame[:keep], len(frame)), (T0, whole)]))
    if keep < 14 + 20 + 16:
        assert len(packets) == 1
        assert packets.counters["cut_headers"] == 1
    else:
        assert packets["seq"].tolist() == [77, 1]
        assert packets["payload"].tolist() == [500, 0]
        assert packets["options"][0] == 128  # nothing of the options was captured whole
        assert packets.counters["cut_options"] == 1


def test_options_cut_by_the_snaplen_keep_those_before_the_cut():
    options = tcp_options(timestamps=(11, 22)) + tcp_options(sacks=[(5, 6)])
    frame = ethernet(ipv4(tcp(options=options, payload=bytes(500))))
    packets = read(pcap([(T0, frame[: 14 + 20 + 20 + 13], len(frame))]))
    assert (packets["tsval"][0], packets["options"][0]) == (11, 128 | 1)


def test_of_sack_blocks_cut_by_the_snaplen_the_whole_ones_are_kept():
    options = tcp_options(timestamps=(11, 22)) + tcp_options(sacks=[(5, 6), (8, 9)])
    frame = ethernet(ipv4(tcp(options=options)))
    packets = read(pcap([(T0, frame[: 14 + 20 + 20 + 12 + 4 + 10], len(frame))]))
    assert (packets["options"][0], packets["sack_count"][0]) == (128 | 2 | 1, 1)
    assert (packets.sacks["left"][0], packets.sacks["right"][0]) == (5, 6)


@pytest.mark.parametrize(
    "bad", [b"\x08\x00\0\0", b"\x08\x01\0\0", b"\x05\xff\0\0", b"\x08\x0b\0\0", b"\x05\x09" + b"\0" * 10]
)
def test_malformed_options_are_marked_and_end_the_parse(bad):
    packets = read(pcap([(T0, ipv4(tcp(options=bad)))], 101))
    assert packets["options"].tolist() == [128]


def test_each_frame_is_a_row_or_is_counted_once():
    frames = [
        ethernet(ipv4(tcp())),
        ethernet(b"\0" * 28, kind=0x0806),
        ethernet(ipv4(b"\0" * 8, protocol=17)),
        ethernet(ipv4(ipv4(tcp()), protocol=4)),
        ethernet(ipv4(tcp()[:12] + b"\x40" + tcp()[13:])),
        ethernet(b"\x41" + ipv4(tcp())[1:]),
        ethernet(b"\x75" + ipv4(tcp())[1:], kind=0x800),
    ]
    counters = read(pcap([(T0, f) for f in frames])).counters
    assert counters["frames"] == 7
    assert counters["malformed"] == 3
    assert [counters[name] for name in ("non_ip", "non_tcp", "tunnelled")] == [1, 1, 1]


def test_time_stamps_that_step_back_are_counted_and_kept():
    packets = read(pcap([(T0, ipv4(tcp())), (T0 - 40_000, ipv4(tcp(seq=9))), (T0 + 5, ipv4(tcp(seq=10)))], 101))
    assert packets["time_ns"].tolist() == [T0, T0 - 40_000, T0 + 5]
    assert (packets.counters["back_steps"], packets.counters["back_step_ns"]) == (1, 40_000)
    assert packets.sorted_by_time()["seq"].tolist() == [9, 1, 10]


@pytest.mark.parametrize(("back_ns", "warned"), [(40_000, False), (2_000_000, True)])
def test_stamps_that_step_back_by_microseconds_are_a_note_and_by_milliseconds_a_warning(back_ns, warned):
    packets = read(pcap([(T0, ipv4(tcp())), (T0 - back_ns, ipv4(tcp(seq=9)))], 101))
    told = "time stamps step back 1 time, by at most"
    assert [told in text for text in packets.warnings] == [True] * warned
    assert [told in text for text in packets.notes] == [True] * (not warned)


def test_copies_from_a_mirror_port_are_marked_and_retransmissions_are_not():
    one, two = ipv4(tcp(payload=b"a"), ident=1), ipv4(tcp(seq=2, payload=b"b"), ident=2)
    hop = ipv4(tcp(payload=b"a"), ident=1, ttl=63)
    again = ipv4(tcp(payload=b"a"), ident=3)
    packets = read(pcap([(T0 + i, f) for i, f in enumerate((one, two, hop, two, again))], 101))
    assert (packets["options"] >> 6 & 1).tolist() == [0, 0, 1, 1, 0]
    assert packets.counters["duplicates"] == 2


def test_acks_of_data_that_the_capture_lost_are_counted():
    forth, back = {"src": "1.1.1.1", "dst": "2.2.2.2"}, {"src": "2.2.2.2", "dst": "1.1.1.1"}
    ips = [ipv4(tcp(1, 2, seq=100, payload=bytes(50)), **forth)]
    ips += [ipv4(tcp(2, 1, ack=ack), ident=i, **back) for i, ack in enumerate((150, 400, 400))]
    packets = read(pcap([(T0, p) for p in ips], 101))
    assert (packets.counters["unseen_acks"], packets.counters["unseen_bytes"]) == (1, 250)


def test_connections_know_what_both_syns_said():
    syn = tcp(5, 6, seq=1, flags=2, options=tcp_options(mss=1460, wscale=7, sack_ok=True))
    reply = tcp(6, 5, seq=9, flags=18, options=tcp_options(mss=1400, wscale=2, sack_ok=True))
    other = tcp(7, 6, flags=2)
    ips = [ipv4(syn), ipv4(reply, "10.0.0.2", "10.0.0.1"), ipv4(other)]
    packets = read(pcap([(T0, p) for p in ips], 101))
    row = {name: packets.connections[name].tolist() for name in schema.names(schema.CONNECTIONS)}
    assert row["src"] == ["10.0.0.1", "10.0.0.1"]
    assert (row["mss_a"], row["mss_b"]) == ([1460, -1], [1400, -1])
    assert (row["wscale_a"], row["wscale_b"], row["sack_ok"]) == ([7, -1], [2, -1], [1, 0])
    assert packets["direction"].tolist() == [0, 1, 0]


def test_reused_ports_are_a_new_connection_and_a_repeated_syn_is_not():
    syn, again, fin = tcp(seq=1, flags=2), tcp(seq=1, flags=2), tcp(seq=2, flags=17)
    new = tcp(seq=5000, flags=2)
    packets = read(pcap([(T0 + i, ipv4(p, ident=i)) for i, p in enumerate((syn, again, fin, new))], 101))
    assert packets["conn"].tolist() == [0, 0, 0, 1]


def test_thousands_of_connections_are_told_apart():
    ips = [ipv4(tcp(sport=i % 60_000 + 1), src=f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}") for i in range(5000)]
    packets = read(pcap([(T0, p) for p in ips + ips[::-1]], 101))
    assert packets["conn"].tolist() == [*range(5000), *reversed(range(5000))]
    assert packets.connections["src"][300] == "10.0.1.44"


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress, "zstd", "lz4", "two members"])
def test_compressed_files_read_as_plain_ones(compress):
    data = pcap([(T0 + i, p) for i, p in enumerate(conversation(300))], 101)
    if compress == "zstd":
        zstandard = pytest.importorskip("zstandard")
        packed = zstandard.compress(data)
    elif compress == "lz4":
        packed = pytest.importorskip("lz4.frame").compress(data)
    elif compress == "two members":
        packed = gzip.compress(data[:1000]) + gzip.compress(data[1000:]) + b"\0" * 512
    else:
        packed = compress(data)
    plain, other = read(data), read(packed)
    for name in plain.columns:
        assert np.array_equal(plain[name], other[name])


def test_records_across_chunk_borders_are_whole(monkeypatch):
    original = Chunks.__init__
    monkeypatch.setattr(Chunks, "__init__", lambda self, source, chunk: original(self, source, 1000))
    ips = conversation(200)
    expect_dpkt(read(pcap([(T0, p) for p in ips], 101)), ips)


def test_a_file_that_ends_anywhere_yields_what_precedes_the_end():
    records = [(T0 + i, p) for i, p in enumerate(conversation(6))]
    data = pcap(records, 101)
    ends = np.cumsum([24, *(16 + len(p) for _, p in records)])
    for size in range(1, len(data), 7):
        whole = int(np.sum(ends <= size)) - 1
        if whole < 1:
            with pytest.raises(FormatError, match=r"24 header bytes|no packets|not a format"):
                _quietly(data[:size])
        elif size in ends:
            assert len(read(data[:size])) == whole
        else:
            with pytest.warns(Truncated, match=f"record at offset {ends[whole]};"):
                assert len(read(data[:size])) == whole


def _quietly(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(data)


def test_a_truncated_gzip_yields_what_precedes_the_end():
    packed = gzip.compress(pcap([(T0, p) for p in conversation(300)], 101))
    with pytest.warns(Truncated, match="gzip stream ends early"):
        assert 0 < len(read(packed[: len(packed) // 2])) < 300


def test_an_absurd_length_field_stops_the_reading_and_names_its_offset():
    data = pcap([(T0, ipv4(tcp()))], 101) + struct.pack("<IIII", 1, 1, 0xFFFFFFFF, 0xFFFFFFFF) + bytes(100)
    with pytest.warns(Truncated, match="offset 80 claims more than"):
        assert len(read(data)) == 1


def test_a_decompression_bomb_is_refused_until_the_limit_is_raised():
    data = pcap([(T0, ipv4(tcp()))], 101) + bytes(3 << 20)
    with pytest.raises(FormatError, match="limit"):
        read(gzip.compress(data), limit=1 << 20)
    assert len(read(gzip.compress(data), limit=1 << 23)) == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"hello, world\n", "not a format"),
        (gzip.compress(b"", mtime=0), "empty"),
        (pcap([])[:4], "4 of the 24 header bytes"),
        (pcap([]), "no packets"),
        (pcap([], version=(7, 1)), "version 7.1 at offset 4"),
        (pcap([(T0, ethernet(b"\0" * 28, kind=0x806))]), "no TCP packets among 1 frames .not IP 1"),
        (
            pcap([(T0, ethernet(ipv4(tcp())))], 147),
            "unknown link 1.; frames of link type 147 .USER0. are skipped; decoded are .*RAW",
        ),
        (pcap([(T0, _wireless(ipv4(tcp()), flags=0x41))], 105), "unknown link 1"),
        (pcap([(T0, b"\x80" + bytes(60))], 105), "not IP 1"),
    ],
)
def test_what_is_no_capture_is_refused_in_one_line(data, words, tmp_path):
    path = tmp_path / "odd.pcap"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=words) as error:
        read_file(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_format_that_is_not_the_files_is_refused():
    with pytest.raises(FormatError, match="not a pcap: starts with bytes 0a 0d"):
        read(b"\x0a\x0d\x0d\x0a" + bytes(30), format="pcap")


def test_a_missing_file_is_named():
    with pytest.raises(FormatError, match=r"/nowhere/x\.pcap: No such file"):
        read_file("/nowhere/x.pcap")


def test_standard_input_is_read(tmp_path):
    code = "from cctrace.io import read_file; print(len(read_file('-')))"
    data = pcap([(T0, p) for p in conversation(20)], 101)
    run = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert run.stdout.split() == [b"20"]


def test_columns_have_the_dtypes_of_the_schema_and_cost_less_than_120_bytes_a_packet():
    packets = read(pcap([(T0, p) for p in conversation(5000)], 101))
    assert {name: column.dtype for name, column in packets.columns.items()} == {
        c.name: np.dtype(c.dtype) for c in schema.PACKETS
    }
    assert sum(a.nbytes for a in (*packets.columns.values(), *packets.sacks.values())) <= 120 * len(packets)
    assert list(packets.frame().columns) == list(schema.names(schema.PACKETS))


@pytest.mark.parametrize("read_all", [read, lambda data: list(stream(io.BytesIO(data), 1000))])
def test_columns_are_freed_with_their_packets(read_all):
    data = pcap([(T0, p) for p in conversation(5000)], 101)
    gc.disable()  # only cycles wait for the collector
    try:
        packets = read_all(data)
        last = packets[-1] if isinstance(packets, list) else packets
        kept = [weakref.ref(column) for column in (*last.columns.values(), *last.sacks.values())]
        del packets, last
        assert not any(column() is not None for column in kept)
    finally:
        gc.enable()


@pytest.mark.slow
def test_random_damage_never_reads_out_of_bounds(tmp_path):
    """The decoders, compiled with bounds checks, over damaged files (a process of its own: the flag is global)."""
    code = """
import io, random, sys, warnings
sys.path.insert(0, 'tests')
warnings.simplefilter('ignore')
from test_io_pcap import LINKS, conversation, pcap, read, T0
from cctrace.errors import FormatError
for seed in range(400):
    rng = random.Random(seed)
    link, wrap = LINKS[rng.choice(list(LINKS))]
    data = bytearray(pcap([(T0, wrap(p)[: rng.randrange(120)], 1500) for p in conversation(30, seed)], link))
    for _ in range(rng.randrange(40)):
        data[rng.randrange(24, len(data))] = rng.getrandbits(8)
    try:
        read(bytes(data), decapsulate='all')
    except FormatError:
        pass
"""
    environment = os.environ | {"CCTRACE_MACHINE": "checked", "CCTRACE_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_the_reader_is_found_by_content_not_by_name():
    assert reader.sniff(pcap([])[:24])
    assert not reader.sniff(b"\x0a\x0d\x0d\x0a")


def test_urls_are_read_through_fsspec():
    fsspec = pytest.importorskip("fsspec")
    ips = conversation(20)
    with fsspec.open("memory://captures/a.pcap", "wb") as file:
        file.write(pcap([(T0, p) for p in ips], 101))
    expect_dpkt(read_file("memory://captures/a.pcap"), ips)
    with pytest.raises(FormatError, match="memory://captures/none"):
        read_file("memory://captures/none")


def test_what_is_no_longer_wanted_is_no_longer_read(tmp_path):
    """A reader that is given up (an error, the first packets suffice) leaves no thread behind."""
    short = pcap([(T0, p) for p in conversation(100)], 101)
    (tmp_path / "long.pcap").write_bytes(short + short[24:] * 5000)
    before = threading.active_count()
    parts = stream(tmp_path / "long.pcap", 10)
    next(parts)
    parts.close()
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_a_later_fragment_without_payload_belongs_to_no_datagram():
    ips = conversation(1)
    empty = bytearray(ips[0][:20])
    empty[2:4], empty[6:8] = (20).to_bytes(2, "big"), (1).to_bytes(2, "big")
    packets = read(pcap([(T0, bytes(empty)), (T0, ips[0])], 101))
    assert (packets.counters["later_fragments"], packets.counters["first_fragments"]) == (1, 0)


def test_warnings_count_in_the_singular_and_say_long_times_in_units():
    one = read(pcap([(T0, ipv4(tcp())), (T0 - 7200 * 10**9, ipv4(tcp(seq=9)))], 101))
    assert any("time stamps step back 1 time, by at most 7,200 s: sort the records" in text for text in one.warnings)
    copy = ipv4(tcp(payload=b"a"), ident=1)
    twice = read(pcap([(T0, copy), (T0 + 1000, copy)], 101))
    assert any("1 packet was captured twice" in text for text in twice.warnings)
