"""A capture with QUIC says so, lists its connections, and names qlog as the way in."""

import io
import struct

import pytest
from test_io_pcap import T0
from wire import ethernet, ipv4, ipv6, pcap, tcp

from cctrace import cli
from cctrace.errors import FormatError
from cctrace.io import read_file, stream


def udp(payload, sport=5000, dport=443):
    return struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload


def initial(version=1, size=1200):
    return (b"\xc3" + struct.pack("!IB", version, 8) + bytes(8)).ljust(size, b"\1")


SHORT = b"\x41" + bytes(99)
FORTH, BACK = {"src": "10.0.0.1", "dst": "10.0.0.2"}, {"src": "10.0.0.2", "dst": "10.0.0.1"}


def capture(packets):
    return pcap([(T0 + i, ethernet(packet)) for i, packet in enumerate(packets)])


def talk(version=1):
    there = [ipv4(udp(payload), protocol=17, **FORTH) for payload in (initial(version), SHORT)]
    return [*there, *[ipv4(udp(SHORT, 443, 5000), protocol=17, **BACK)] * 3]


@pytest.mark.parametrize(
    ("version", "name"),
    [(1, "v1"), (0x6B3343CF, "v2"), (0xFF00001D, "draft-29"), (0x51303530, "Q050"), (0xFACEB002, "mvfst")],
)
def test_a_capture_of_quic_alone_names_its_connections_and_qlog(version, name, tmp_path, capsys):
    path = tmp_path / "x.pcap"
    path.write_bytes(capture(talk(version)))
    assert cli.main(["flows", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"QUIC (UDP): 10.0.0.1:5000 → 10.0.0.2:443 ({name}, 5 packets, 1.6 kB)" in told
    assert "qlog" in told
    assert told.count("\n") == 1


def test_quic_beside_tcp_is_a_warning(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(capture([ipv4(tcp(payload=b"x")), *talk()]))
    packets = read_file(path)
    assert len(packets) == 1
    assert any("QUIC (UDP)" in text for text in packets.warnings)


def test_quic_is_named_where_a_capture_can_be_read_only_once(monkeypatch):
    data = capture([ipv4(tcp(payload=b"x")), *talk()])
    assert any("QUIC (UDP)" in text for text in read_file(io.BytesIO(data)).warnings)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert any("5 packets" in text for text in read_file("-").warnings)
    with pytest.raises(FormatError, match=r"QUIC \(UDP\)"):
        read_file(io.BytesIO(capture(talk())))
    with pytest.raises(FormatError, match=r"QUIC \(UDP\)"):
        next(stream(io.BytesIO(capture(talk())), chunk=1))


@pytest.mark.parametrize("once", [False, True])
def test_quic_is_named_in_the_last_part_of_a_capture_read_in_parts(once, tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(capture([*[ipv4(tcp(payload=b"x", seq=i)) for i in range(1, 5)], *talk()]))
    parts = list(stream(io.BytesIO(path.read_bytes()) if once else path, chunk=2))
    assert sum(map(len, parts)) == 4
    assert any("QUIC (UDP)" in text for text in parts[-1].warnings)


def test_quic_over_ipv6_is_found(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(capture([ipv6(udp(initial()), next_header=17)]))
    with pytest.raises(FormatError, match=r"QUIC \(UDP\): \[fd00::1\]:5000"):
        read_file(path)


@pytest.mark.parametrize("payload", [b"\x16\xfe\xfd" + bytes(60), initial(0x16030100), b"\xc3\0\0", b""])
def test_other_datagrams_are_no_quic(payload, tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(capture([ipv4(udp(payload), protocol=17)]))
    with pytest.raises(FormatError) as refused:
        read_file(path)
    assert "QUIC" not in str(refused.value)


def test_what_cannot_be_read_again_is_not_looked_into():
    with pytest.raises(FormatError, match="no TCP packets"):
        read_file(io.BytesIO(capture(talk())))


@pytest.mark.parametrize(("link", "name"), [(7, "ARCNET"), (178, "JUNIPER_ETHER"), (197, "ERF")])
def test_link_types_that_are_not_decoded_are_named(link, name):
    with pytest.raises(FormatError, match=name):
        read_file(io.BytesIO(pcap([(T0, bytes(60))], link)))
