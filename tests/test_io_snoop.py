"""snoop files of Solaris, and the names of the formats that are not read."""

import struct

import pytest
from test_io_pcap import T0, conversation, expect_dpkt
from wire import ethernet, ipv4, read, tcp

from cctrace.errors import FormatError, Truncated


def snoop(records, link=4, version=2):
    """Return a snoop file; records are (time_ns, frame) or (time_ns, captured bytes, original length)."""
    out = b"snoop\0\0\0" + struct.pack(">II", version, link)
    for time_ns, frame, *original in records:
        pad = -len(frame) % 4
        stamp = time_ns // 10**9, time_ns % 10**9 // 1000
        length = original[0] if original else len(frame)
        out += struct.pack(">IIIIII", length, len(frame), 24 + len(frame) + pad, 0, *stamp) + frame + bytes(pad)
    return out


def test_snoop_gives_the_fields_that_dpkt_gives():
    ips = conversation(50)
    packets = read(snoop([(T0 + i * 1000, ethernet(p)) for i, p in enumerate(ips)]))
    expect_dpkt(packets, ips)
    assert packets["time_ns"].tolist() == [(T0 + i * 1000) // 1000 * 1000 for i in range(50)]


def test_snoop_frames_cut_by_the_capture_keep_their_length():
    frame = ethernet(ipv4(tcp(payload=bytes(1000)), length=0))
    assert read(snoop([(T0, frame[:61], len(frame))]))["payload"].tolist() == [1000]


def test_a_damaged_snoop_gives_what_precedes_the_damage():
    data = snoop([(T0, ethernet(ipv4(tcp())))] * 2)
    with pytest.warns(Truncated, match="offset 96"):
        assert len(read(data[:-5])) == 1
    with pytest.warns(Truncated, match="record at offset 96 has contradictory lengths"):
        assert len(read(data[:100] + b"\xff" * 8 + data[108:])) == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (snoop([], version=3), "snoop version 3 at offset 8"),
        (snoop([], link=26), "snoop data link 26 at offset 12 is not decoded; allowed are 0, 4, 8"),
        (snoop([])[:10], "ends inside the 16 header bytes"),
        (snoop([]), "no packets in the file"),
        (b"GMBU" + bytes(100), "Network Monitor, no format that cctrace reads; editcap -F pcap"),
        (b"PK\3\4" + bytes(100), "a ZIP archive that cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(data, words):
    with pytest.raises(FormatError, match=words):
        read(data)
