"""What must not change an answer: another epoch, IPv6 for IPv4, a capture in parts, every packet recorded twice.

What must change it in proportion: half the speed. And captures at both ends of a flow agree.
"""

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


def slowed(header, packets, file):
    """Return the capture as of hosts and a path at half the speed: time stamps of packets and of TCP advance doubly."""
    start_ns = packets[0][0] * 10**9 + packets[0][1]
    changed = []
    for seconds, fraction, length, data in packets:
        time_ns = 2 * (seconds * 10**9 + fraction) - start_ns
        tcp = 4 * (data[0] & 15)
        at, end, data = tcp + 20, tcp + 4 * (data[tcp + 12] >> 4), bytearray(data)
        while at < end:
            if data[at] == 8:  # [RFC7323] 3.2
                doubled = (2 * stamp & 0xFFFFFFFF for stamp in struct.unpack_from(">II", data, at + 2))
                struct.pack_into(">II", data, at + 2, *doubled)
            at += data[at + 1] if data[at] > 1 else 1
        changed.append([time_ns // 10**9, time_ns % 10**9, length, bytes(data)])
    return write(file, header, changed)


@pytest.fixture(scope="module", params=["cubic6", "bbr2022"])
def captures(request, tmp_path_factory):
    """The captures at both ends of a flow."""
    path = cct.Path(rate="8Mbit", rtt="30ms", buffer="1bdp", loss="0.3%")
    sim = cct.simulate(path, request.param, "4s", 3, packets=True)
    folder = tmp_path_factory.mktemp(request.param)
    for side in ("sender", "receiver"):
        sim.to_pcap(folder / f"{side}.pcap", side=side)
    return request.param, folder / "sender.pcap", folder / "receiver.pcap"


@pytest.fixture(scope="module")
def capture(captures):
    return captures[1]


def answers(flow):
    """Return what is said of a flow: its row, its path, and what it was held back by."""
    fitted = cct.fit.path(flow).estimates
    verdicts = [(verdict.name, verdict.text) for verdict in cct.diagnose(flow).verdicts]
    row = {name: flow.row[name] for name in ("bytes_sent", "segments_sent", "retransmitted_segments", "goodput_bps")}
    return {"row": row, "verdicts": verdicts} | {
        name: fitted[name] for name in ("rate_bps", "base_rtt_us", "buffer_bytes", "loss", "jitter", "undetermined")
    }


@pytest.mark.parametrize("change", [later, of_ipv6, in_parts, twice])
def test_a_flow_its_path_and_its_causes_are_the_same(change, capture, tmp_path):
    before = answers(cct.read(capture).flow(0))
    assert before["row"]["retransmitted_segments"] > 5
    assert before["verdicts"]
    assert answers(cct.read(change(*packets_of(capture), tmp_path / "changed.pcap")).flow(0)) == before


@pytest.mark.parametrize("change", [later, of_ipv6, in_parts, twice])
def test_who_sent_a_flow_is_the_same(change, captures, tmp_path):
    name, capture, _ = captures
    before = cct.identify(cct.read(capture).flow(0))
    assert name in before.group  # `unknown` twice would show nothing
    changed = cct.read(change(*packets_of(capture), tmp_path / "changed.pcap"))
    assert len(changed) == 1
    after = cct.identify(changed.flow(0))
    assert after.candidates == before.candidates
    assert after.reason == before.reason


def test_half_the_speed_halves_the_rate_and_doubles_the_rtt(capture, tmp_path):
    before = answers(cct.read(capture).flow(0))
    after = answers(cct.read(slowed(*packets_of(capture), tmp_path / "changed.pcap")).flow(0))
    assert after["rate_bps"][0]["value"] == pytest.approx(before["rate_bps"][0]["value"] / 2, rel=1e-6)
    assert after["base_rtt_us"].value == pytest.approx(2 * before["base_rtt_us"].value, rel=1e-6)
    assert after["buffer_bytes"].value == before["buffer_bytes"].value
    assert after["buffer_bytes"].low == pytest.approx(before["buffer_bytes"].low, rel=1e-3)
    assert after["loss"]["share"].value == pytest.approx(before["loss"]["share"].value, rel=0.02)  # a tail's RTTs count
    assert after["row"].pop("goodput_bps") == pytest.approx(before["row"].pop("goodput_bps") / 2, rel=1e-3)
    assert after["row"] == before["row"]
    assert [name for name, _ in after["verdicts"]] == [name for name, _ in before["verdicts"]]


def test_both_ends_agree_on_rate_base_rtt_goodput_and_sender(captures):
    name, *files = captures
    here, there = (cct.read(file).flow(0) for file in files)
    assert (here.taken_at, there.taken_at) == ("sender", "receiver")
    sent, arrived = answers(here), answers(there)
    assert sent["rate_bps"][0]["low"] < arrived["rate_bps"][0]["value"] < sent["rate_bps"][0]["high"]
    assert sent["base_rtt_us"].low < arrived["base_rtt_us"].value < sent["base_rtt_us"].high
    # The receiver's capture ends with ACKs that were still on their way to the sender: half an RTT of them.
    sent_bytes, arrived_bytes = (end.row["goodput_bps"] * end.row["duration_s"] / 8 for end in (here, there))
    assert 0 <= arrived_bytes - sent_bytes <= sent["rate_bps"][0]["high"] / 8 * sent["base_rtt_us"].high / 2e6
    assert name in cct.identify(here).group
    assert name in cct.identify(there).group
    lost = sent["row"]["segments_sent"] - arrived["row"]["segments_sent"]
    assert 0 < lost <= sent["row"]["retransmitted_segments"] + 60  # lost, or in flight at the end: 2 BDP at most
