"""The corpus of link types, dialects and blocks, field by field against tshark."""

import shutil
import subprocess

import numpy as np
import pytest
from test_io_pcap import LINKS, T0, conversation
from test_io_tunnels import TUNNELS
from wire import enhanced, ethernet, interface, ipv4, ipv6, option, pcap, section, tcp

from cctrace.io import read_file

pytestmark = [
    pytest.mark.external,
    pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed"),
]
FIELDS = {
    "seq": "tcp.seq_raw", "ack": "tcp.ack_raw", "payload": "tcp.len", "window": "tcp.window_size_value",
    "flags": "tcp.flags", "tsval": "tcp.options.timestamp.tsval", "tsecr": "tcp.options.timestamp.tsecr",
}  # fmt: skip


def tshark(path):
    """Return {column: values}; the innermost TCP header's, tunnels looked into."""
    options = [
        "-n",
        "-o",
        "ip.defragment:FALSE",
        "-Y",
        "tcp",
        "-T",
        "fields",
        "-E",
        "occurrence=l",
        "-E",
        "separator=;",
    ]
    names = ["frame.time_epoch", *FIELDS.values()]
    command = ["tshark", *options, "-r", str(path), *(x for name in names for x in ("-e", name))]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(";") for line in out.splitlines()]
    columns = dict(zip(["time_ns", *FIELDS], zip(*rows, strict=True), strict=True))
    times = [int(t.partition(".")[0]) * 10**9 + int(t.partition(".")[2].ljust(9, "0")) for t in columns.pop("time_ns")]
    return {"time_ns": times} | {name: [int(v or "0", 0) for v in column] for name, column in columns.items()}


def agree(path, **options):
    packets, theirs = read_file(path, **options), tshark(path)
    for name, values in theirs.items():
        assert np.array_equal(packets[name], values), name


# What tshark 4.0 takes otherwise or does not read at all; test_io_pcap holds these against dpkt, behind the link layer.
NOT_TSHARKS = {
    "null, windows",  # IPv6 is 23 on Windows: tshark sees IPX
    "pppoe, short protocol",
    "fabric path",  # tshark takes the last four bytes for a checksum
    "nflog, big-endian",  # of a capturing host of the other byte order
    "ipnet",
    *("pppd", "switch tag", "switch tag with ethertype", "switch tag ahead"),  # link types it does not support
}


@pytest.mark.parametrize("name", [name for name in LINKS if name not in NOT_TSHARKS])
def test_every_link_type_agrees_with_tshark(name, tmp_path):
    link, wrap = LINKS[name]
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([(T0 + i * 7, wrap(p)) for i, p in enumerate(conversation(40))], link))
    agree(path)


@pytest.mark.parametrize("name", TUNNELS)
def test_every_tunnel_agrees_with_tshark(name, tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([(T0, ethernet(TUNNELS[name](p))) for p in conversation(40)]))
    agree(path, decapsulate="all")


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(("unit_ns", "header"), [(1000, 16), (1, 16), (1000, 24)])
def test_every_dialect_agrees_with_tshark(big, unit_ns, header, tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([(T0 + i * 7, ethernet(p)) for i, p in enumerate(conversation(40))], 1, big, unit_ns, header))
    agree(path)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("resolution", [6, 9, 0x94])
def test_pcapng_agrees_with_tshark(big, resolution, tmp_path):
    path = tmp_path / "x.pcapng"
    options = option(9, bytes([resolution]), big) + option(0, b"", big)
    packets = b"".join(enhanced(10**15 + i * 77, p, big=big) for i, p in enumerate(conversation(40)))
    path.write_bytes(section(big) + interface(101, big, options=options) + packets)
    agree(path)


def test_ecn_fields_of_both_headers_agree_with_tshark(tmp_path):
    path, every = tmp_path / "x.pcap", [(ace, codepoint) for ace in range(8) for codepoint in range(4)]
    frames = [ethernet(ipv4(tcp(seq=i, flags=16 | ace << 6), ident=i, tos=cp)) for i, (ace, cp) in enumerate(every, 1)]
    frames += [ethernet(ipv6(tcp(seq=99 + i, flags=16 | a << 6), traffic_class=c)) for i, (a, c) in enumerate(every)]
    path.write_bytes(pcap([(T0 + i, frame) for i, frame in enumerate(frames)]))
    agree(path)
    command = ["tshark", "-n", "-r", str(path), "-T", "fields"]
    command += ["-e", "ip.dsfield.ecn", "-e", "ipv6.tclass.ecn"]
    told = [int(v) for v in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]
    assert (read_file(path)["tos"] & 3).tolist() == told == [cp for _, cp in every] * 2
