"""pcapng: sections, interfaces, every kind of packet block, and damage."""

import io
import struct

import dpkt
import numpy as np
import pytest
from test_io_pcap import T0, conversation, expect_dpkt
from wire import block, enhanced, ethernet, interface, ipv4, obsolete, option, pcap, read, section, simple, tcp

from cctrace.errors import FormatError, Truncated
from cctrace.io import read_file


@pytest.mark.parametrize("big", [False, True])
def test_enhanced_packets_give_the_fields_that_dpkt_gives(big):
    ips = conversation(100)
    data = section(big) + interface(1, big) + b"".join(enhanced(i, ethernet(p), big=big) for i, p in enumerate(ips))
    packets = read(data)
    expect_dpkt(packets, ips)
    assert packets["time_ns"].tolist() == [1000 * i for i in range(100)]


def test_what_dpkt_writes_is_read():
    ips, file = conversation(20), io.BytesIO()
    writer = dpkt.pcapng.Writer(file)
    for i, p in enumerate(ips):
        writer.writepkt(ethernet(p), ts=1000.5 + i)
    packets = read(file.getvalue())
    expect_dpkt(packets, ips)
    assert packets["time_ns"].tolist() == [1_000_500_000_000 + i * 10**9 for i in range(20)]


RESOLUTIONS = [
    (0, 1),
    (3, 10**3),
    (6, 10**6),
    (9, 10**9),
    (12, 10**12),
    (0x80, 1),
    (0x8A, 2**10),
    (10, 10**10),  # by now in need of all 64 bits
    (0xA0, 2**32),
    (0xA1, 2**33),
    (0xBE, 2**62),
]


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(("code", "per_second"), RESOLUTIONS)
def test_every_resolution_gives_nanoseconds(code, per_second, big):
    ns = T0 if per_second < 2**40 and code != 12 else 1_500_000_001
    units = ns * per_second // 10**9
    tsresol = option(9, bytes([code]), big)
    packets = read(section(big) + interface(101, big, options=tsresol) + enhanced(units, ipv4(tcp()), big=big))
    exact = units * 10**9 / per_second if per_second > 10**9 else units * 10**9 // per_second
    assert abs(int(packets["time_ns"][0]) - exact) <= 1


def test_the_offset_of_an_interface_is_added():
    options = option(9, b"\x09") + option(14, struct.pack("<q", -5)) + option(0, b"")
    packets = read(section() + interface(101, options=options) + enhanced(T0, ipv4(tcp())))
    assert packets["time_ns"].tolist() == [T0 - 5 * 10**9]


def test_sections_of_either_order_have_interfaces_of_their_own():
    one = section() + interface(1) + interface(101, options=option(9, b"\x09"))
    one += enhanced(7, ethernet(ipv4(tcp(seq=1)))) + enhanced(7, ipv4(tcp(seq=2)), iface=1)
    two = section(True) + interface(101, True) + enhanced(8, ipv4(tcp(seq=3)), big=True)
    packets = read(one + two + section())
    assert packets["seq"].tolist() == [1, 2, 3]
    assert packets["time_ns"].tolist() == [7000, 7, 8000]


@pytest.mark.parametrize("big", [False, True])
def test_simple_and_obsolete_packet_blocks(big):
    frame = ipv4(tcp(payload=bytes(99)))
    data = section(big) + interface(12, big) + interface(101, big, snaplen=60)
    packets = read(data + obsolete(9, frame, 1, big) + simple(frame[:80], big, original=len(frame)))
    assert packets["payload"].tolist() == [99, 99]
    assert packets["time_ns"].tolist() == [9000, 0]
    assert any("1 packets have no time stamp" in w for w in packets.warnings)


def test_unknown_blocks_and_options_are_passed_over():
    odd = block(4, bytes(40)) + block(0x80000001, b"secret" * 9) + block(0xBAD, b"")
    data = section() + odd + interface(101, options=option(2, b"eth0") + option(0x8001, b"?"))
    data += odd + enhanced(1, ipv4(tcp()), options=option(1, b"comment")) + odd
    packets = read(data)
    assert len(packets) == 1
    assert packets.warnings == []


def test_what_the_capture_dropped_is_told():
    options = option(4, struct.pack("<Q", 10)) + option(5, struct.pack("<Q", 7)) + option(7, struct.pack("<Q", 5))
    data = section() + interface(101) + enhanced(1, ipv4(tcp())) + block(5, struct.pack("<III", 0, 0, 0) + options)
    assert any("12 packets were dropped while capturing" in w for w in read(data).warnings)


def test_packets_of_an_undescribed_interface_are_counted():
    packets = read(section() + interface(101) + enhanced(1, ipv4(tcp())) + enhanced(1, ipv4(tcp()), iface=5))
    assert len(packets) == 1
    assert any("1 packets name an interface" in w for w in packets.warnings)
    with pytest.raises(FormatError, match="unknown link 1"):
        read(section() + enhanced(1, ipv4(tcp())))


def test_a_million_interfaces_and_a_million_options_end_in_time():
    data = section() + interface(1) * 100_000 + interface(101, options=option(7, b"") * 1_000_000)
    assert len(read(data + enhanced(1, ipv4(tcp()), iface=100_000))) == 1


@pytest.mark.filterwarnings("ignore::cctrace.errors.Truncated")
def test_a_file_that_ends_anywhere_yields_what_precedes_the_end():
    blocks = [section(), interface(101), *(enhanced(i, p) for i, p in enumerate(conversation(5)))]
    data, ends = b"".join(blocks), np.cumsum([len(b) for b in blocks])
    for size in range(4, len(data), 5):
        packets = max(0, int(np.sum(ends <= size)) - 2)
        if not packets:
            with pytest.raises(FormatError):
                read(data[:size])
        elif size in ends:
            assert len(read(data[:size])) == packets
        else:
            with pytest.warns(Truncated, match=f"block at offset {ends[packets + 1]};"):
                assert len(read(data[:size])) == packets


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (struct.pack("<II", 6, 0xFFFFFFFF) + bytes(40), "claims 4294967295 bytes"),
        (struct.pack("<II", 6, 0) + bytes(40), "claims 0 bytes"),
        (enhanced(1, ipv4(tcp()))[:-4] + b"\1\0\0\0", "trailing length differs"),
        (interface()[:-4] + b"\1\0\0\0", "trailing length differs"),
        (section()[:8] + bytes(20), "unknown byte-order magic"),
    ],
)
def test_damage_stops_the_reading_and_names_its_offset(bad, words):
    good = section() + interface(101) + enhanced(1, ipv4(tcp()))
    with pytest.warns(Truncated, match=f"block at offset {len(good)} .*{words}"):
        assert len(read(good + bad + good)) == 1


def test_option_lengths_that_leave_their_block_are_told():
    broken = interface(101, options=struct.pack("<HH", 9, 500))
    packets = read(section() + broken + enhanced(1, ipv4(tcp())))
    assert any("option 9 of 500 bytes exceeds the block" in w for w in packets.warnings)


def test_a_packet_longer_than_its_block_is_cut_there():
    body = struct.pack("<5I", 0, 0, 1, 5000, 5000) + ipv4(tcp(payload=b"abcd"))
    packets = read(section() + interface(101) + block(6, body))
    assert packets["payload"].tolist() == [4]
    assert any("claim more bytes than they hold" in w for w in packets.warnings)


def test_captures_of_any_kind_are_joined_in_the_order_of_time(tmp_path):
    late = section() + interface(101, options=option(9, b"\x09")) + enhanced(T0 + 10**9, ipv4(tcp(seq=3)))
    (tmp_path / "cap.0").write_bytes(late)
    (tmp_path / "cap.1").write_bytes(pcap([(T0, ipv4(tcp(seq=1))), (T0 + 1, ipv4(tcp(seq=2)))], 101))
    for source in (str(tmp_path / "cap.*"), [tmp_path / "cap.0", tmp_path / "cap.1"]):
        packets = read_file(source)
        assert packets["seq"].tolist() == [1, 2, 3]
        assert packets["conn"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(("high", "low"), [(0xFFFFFFFF, 0xE1DFAC69), (0x7FFFFFFF, 0), (0x00600000, 0)])
def test_impossible_time_stamps_are_told_and_become_none(high, low):
    packets = read(section() + interface(101) + enhanced(high << 32 | low, ipv4(tcp())) + enhanced(9, ipv4(tcp(seq=2))))
    assert packets["time_ns"].tolist() == [0, 9000]
    assert packets.counters["back_steps"] == 0
    assert any("1 packets have impossible time stamps" in w for w in packets.warnings)


def test_an_offset_to_before_1970_is_impossible():
    packets = read(section() + interface(101, options=option(14, struct.pack("<q", -5))) + enhanced(9, ipv4(tcp())))
    assert packets["time_ns"].tolist() == [0]
    assert any("impossible" in w for w in packets.warnings)


def test_interfaces_whose_link_type_is_not_decoded_are_told_once():
    packets = read(section() + interface(189) + interface(189) + interface(101) + enhanced(9, ipv4(tcp()), iface=2))
    assert sum("link type 189 (USB_LINUX) are skipped" in w for w in packets.warnings) == 1


@pytest.mark.parametrize("as_file", [True, False])
def test_any_number_of_interfaces_is_read_and_few_warnings_say_what_is_odd_about_them(as_file, tmp_path):
    """Each warning about another link type names all that are decoded: 40,000 of them would fill 50 MB."""
    wrong = option(9, bytes([99]))
    many = b"".join(interface(1000 + i, options=wrong if i % 2 else b"") for i in range(40_000))
    data = section() + many + interface(101) + enhanced(9, ipv4(tcp()), iface=40_000)
    (tmp_path / "many.pcapng").write_bytes(data)
    packets = read_file(tmp_path / "many.pcapng") if as_file else read(data)
    assert packets["time_ns"].tolist() == [9000]
    assert len(packets.warnings) == 12
    assert sum("and more " in warning for warning in packets.warnings) == 2
