"""What must not change an answer: another epoch, IPv6 for IPv4, a capture in parts, every packet recorded twice."""

import struct
import zipfile

import pytest

import cctrace as cct

GLOBAL_HEADER = 24  # bytes; what is simulated is written as raw IP
PREFIX = 0x20010DB8 << 96  # 2001:db8::/96, before an IPv4 address


def packets_of(file):
    """Return the global header of a pcap file, and its packets: [[seconds, fraction, length on the wire, bytes]]."""
    data = file.read_bytes()
    at, packets = GLOBAL_HEADER, []
    while at < len(data):
        seconds, fraction, kept, length = struct.unpack_from("<IIII", data, at)
        packets.append([seconds, fraction, length, data[at + 16 : at + 16 + kept]])
        at += 16 + kept
    return data[:GLOBAL_HEADER], packets


def write(file, header, packets):
    records = (struct.pack("<IIII", s, f, len(data), length) + data for s, f, length, data in packets)
    file.write_bytes(header + b"".join(records))
    return file


def later(header, packets, file):
    """Return the capture as taken 3,000 days later."""
    return write(file, header, [[s + 3000 * 86_400, *rest] for s, *rest in packets])


def of_ipv6(header, packets, file):
    """Return the capture with IPv6 headers instead of those of IPv4, TCP as it was."""
    changed = []
    for seconds, fraction, length, data in packets:
        own = 4 * (data[0] & 15)
        total = struct.unpack_from(">H", data, 2)[0]
        ends = b"".join((PREFIX + int.from_bytes(data[at : at + 4], "big")).to_bytes(16, "big") for at in (12, 16))
        new = struct.pack(">IHBB", 6 << 28, total - own, 6, data[8]) + ends
        changed.append([seconds, fraction, length + 40 - own, new + data[own:]])
    return write(file, header, changed)


def in_parts(header, packets, file):
    """Return the capture cut in two, in an archive that has the later part first."""
    half = len(packets) // 2
    with zipfile.ZipFile(file.with_suffix(".zip"), "w") as archive:
        for name, part in (("a", packets[half:]), ("b", packets[:half])):
            archive.write(write(file.with_name(f"{name}.pcap"), header, part), f"{name}.pcap")
    return file.with_suffix(".zip")


def twice(header, packets, file):
    """Return the capture with every packet recorded twice, as where a mirror port sends both directions' copies.

    What is simulated has no IP ID; here each has its own, as Linux numbers the packets of a connection.
    """
    numbered = [
        [*rest, data[:4] + struct.pack(">H", 1 + number % 65_535) + data[6:]]
        for number, (*rest, data) in enumerate(packets)
    ]
    return write(file, header, [one for packet in numbered for one in (packet, packet)])


@pytest.fixture(scope="module", params=["cubic6", "bbr2022"])
def capture(request, tmp_path_factory):
    path = cct.Path(rate="8Mbit", rtt="30ms", buffer="1bdp", loss="0.3%")
    sim = cct.simulate(path, request.param, "4s", 3, packets=True)
    file = tmp_path_factory.mktemp(request.param) / "as_taken.pcap"
    sim.to_pcap(file)
    return file


@pytest.mark.parametrize("change", [later, of_ipv6, in_parts])
def test_who_sent_a_flow_is_the_same(change, capture, tmp_path):
    before = cct.identify(cct.read(capture).flow(0))
    changed = cct.read(change(*packets_of(capture), tmp_path / "changed.pcap"))
    assert len(changed) == 1
    after = cct.identify(changed.flow(0))
    assert after.candidates == before.candidates
    assert after.reason == before.reason


def test_copies_of_packets_leave_who_sent_them_as_it_was(capture, tmp_path):
    before = cct.identify(cct.read(capture).flow(0))
    after = cct.identify(cct.read(twice(*packets_of(capture), tmp_path / "changed.pcap")).flow(0))
    assert after.candidates == before.candidates
    assert after.reason == before.reason
