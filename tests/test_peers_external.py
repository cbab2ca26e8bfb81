"""Every connection counted as tcptrace and tshark count it, or differing for a reason that is named."""

import shutil

import pytest
from test_io_pcap import T0
from wire import ethernet, ipv4, pcap, tcp

from benchmarks import peers
from cctrace import datasets

pytestmark = pytest.mark.external
FORTH, BACK = {"src": "10.0.0.1", "dst": "10.0.0.2"}, {"src": "10.0.0.2", "dst": "10.0.0.1"}
ISN, PEER = 1000, 5000


def a(seq, payload=b"", flags=16, ident=0, ack=PEER + 1):
    return ipv4(tcp(1, 80, ISN + seq, ack, flags, payload=payload), ident=ident, **FORTH)


def b(ack, flags=16, ident=0, window=500):
    return ipv4(tcp(80, 1, PEER + 1, ISN + ack, flags, window=window), ident=ident, **BACK)


SYNS = [
    ipv4(tcp(1, 80, ISN, 0, 2), ident=1, **FORTH),
    ipv4(tcp(80, 1, PEER, ISN + 1, 18), ident=1, **BACK),
    a(1, ident=2),
]
X = bytes(100)
# What is captured after the handshake, and the classes that its differences may have.
TALKS = {
    "plain": ([a(1, X, ident=3), b(101)], set()),
    "sent again": ([a(1, X, ident=3), a(101, X, ident=4), b(1), a(1, X, ident=5), b(201)], set()),
    "syn again": ([SYNS[0][:4] + b"\0\x09" + SYNS[0][6:], a(1, X, ident=3), b(101)], {"syn again"}),
    "fin again": ([a(1, X, ident=3), b(101), a(101, flags=17, ident=4), a(101, flags=17, ident=5)], {"fin again"}),
    "copy": ([a(1, X, ident=3), a(1, X, ident=3), b(101)], {"copy"}),
    "keep-alive": ([a(1, X, ident=3), b(101), a(100, b"x", ident=4), b(101, ident=9)], {"one byte"}),
    "window probe": ([a(1, X, ident=3), b(101, window=0), a(101, b"x", ident=4), b(101, window=0, ident=8),
                      a(101, b"x", ident=5), b(101, window=0, ident=9)], {"one byte"}),
    "order": ([a(101, X, ident=4), a(1, X, ident=3), b(201)], {"late"}),
    "ack first": ([b(101), a(1, X, ident=3)], {"acked"}),
}  # fmt: skip


@pytest.mark.skipif(not shutil.which("tshark") or not shutil.which("tcptrace"), reason="needs tshark and tcptrace")
@pytest.mark.parametrize("name", TALKS)
def test_what_is_counted_otherwise_has_its_reason(name, tmp_path):
    packets, classes = TALKS[name]
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap([(T0 + i * 30_000_000, ethernet(p)) for i, p in enumerate([*SYNS, *packets])]))
    connections, _, found = peers.compare(path, tmp_path)
    assert connections == 1
    assert {why for _, why in found} <= classes


@pytest.mark.skipif(not shutil.which("tshark") or not shutil.which("tcptrace"), reason="needs tshark and tcptrace")
@pytest.mark.parametrize("name", ["loss_cubic_1pct"])
def test_a_shipped_recording_differs_in_nothing_unexplained(name, tmp_path):
    _, _, found = peers.compare(datasets.path(name, "sender.pcap.zst"), tmp_path)
    assert all(why for _, why in found)
