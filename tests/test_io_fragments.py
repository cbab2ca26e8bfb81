"""TCP packets in IP fragments: one row each, with the payload of the whole, as far as the capture holds it."""

import io
import itertools
import random
import struct

import pytest
from wire import ipv4, ipv6, pcap, tcp

from cctrace.io import read_file, stream

T0 = 1_795_190_736_000_000_000


def read(packets, **kwargs):
    return read_file(io.BytesIO(pcap([(T0 + i, p) for i, p in enumerate(packets)], 101)), **kwargs)


def fragments4(segment, cuts, ident=9, **ends):
    """Return the IPv4 fragments of a segment that is cut at these multiples of 8."""
    cuts = [0, *cuts, len(segment)]
    pieces = [(a, segment[a:b]) for a, b in itertools.pairwise(cuts)]
    more = [0x2000] * (len(pieces) - 1) + [0]
    return [ipv4(p, ident=ident, fragment=m | a // 8, **ends) for (a, p), m in zip(pieces, more, strict=True)]


def fragments6(segment, cuts, ident=9):
    cuts = [0, *cuts, len(segment)]
    pieces = [(a, segment[a:b]) for a, b in itertools.pairwise(cuts)]
    more = [1] * (len(pieces) - 1) + [0]
    heads = [struct.pack("!BBHI", 6, 0, a | m, ident) for (a, _), m in zip(pieces, more, strict=True)]
    return [ipv6(head + p, next_header=44) for head, (_, p) in zip(heads, pieces, strict=True)]


@pytest.mark.parametrize("cut", [fragments4, fragments6])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_fragments_in_any_order_are_one_row_with_the_payload_of_the_whole(cut, order):
    pieces = cut(tcp(seq=50, payload=bytes(1003)), [24, 512])
    packets = read([pieces[i] for i in order])
    assert packets["payload"].tolist() == [1003]
    assert packets["ip_len"].tolist() == [len(pieces[0]) - 24 + 1023]
    assert (packets.counters["first_fragments"], packets.counters["later_fragments"]) == (0, 2)
    assert packets.warnings == []


@pytest.mark.parametrize("missing", [1, 2])
def test_a_datagram_with_a_fragment_missing_keeps_the_payload_of_the_first_and_is_told(missing):
    pieces = fragments4(tcp(payload=bytes(1000)), [64, 512])
    del pieces[missing]
    packets = read(pieces)
    assert packets["payload"].tolist() == [44]
    assert packets.counters["first_fragments"] == 1
    assert any("1 packet lacks the payload of IP fragments" in w for w in packets.warnings)


def test_fragments_without_their_first_one_are_only_counted():
    whole = ipv4(tcp(sport=5))
    packets = read([*fragments4(tcp(payload=bytes(1000)), [64, 512])[1:], whole])
    assert (len(packets), packets.counters["later_fragments"]) == (1, 2)


def test_a_fragment_that_comes_twice_does_not_stand_for_a_missing_one():
    pieces = fragments4(tcp(payload=bytes(1004)), [512])
    last = ipv4(bytes(256), ident=9, fragment=0x2000 | 512 // 8)
    assert read([pieces[0], last, last])["payload"].tolist() == [492]
    assert read([pieces[0], pieces[1], pieces[1]])["payload"].tolist() == [1004]


def test_mirrored_fragments_leave_the_original_whole():
    pieces = fragments4(tcp(payload=bytes(1000)), [512])
    packets = read([p for p in pieces for _ in range(2)])
    assert packets["payload"][0] == 1000
    assert (packets["options"] >> 6 & 1).tolist() == [0, 1]


def test_fragments_of_several_datagrams_are_told_apart():
    rng = random.Random(1)
    sizes = [rng.randrange(100, 3000) for _ in range(20)]
    segments = [tcp(sport=i + 1, payload=bytes(size)) for i, size in enumerate(sizes)]
    pieces = [p for i, s in enumerate(segments) for p in fragments4(s, [40, 80], ident=i, src=f"10.0.0.{i % 3 + 1}")]
    rng.shuffle(pieces)
    packets = read(pieces)
    ports = packets.connections["sport"][packets["conn"]]
    assert {int(p): int(n) for p, n in zip(ports, packets["payload"], strict=True)} == {
        i + 1: size for i, size in enumerate(sizes)
    }


def test_a_number_used_again_is_another_datagram():
    first, again = (fragments4(tcp(seq=seq, payload=bytes(size)), [64]) for seq, size in ((1, 500), (501, 700)))
    assert read([*first, *again])["payload"].tolist() == [500, 700]


def test_acks_of_a_whole_datagram_do_not_claim_lost_data():
    pieces = fragments4(tcp(1, 2, seq=100, payload=bytes(1000)), [64])
    ack = ipv4(tcp(2, 1, seq=7, ack=1100), "10.0.0.2", "10.0.0.1")
    assert read([*pieces, ack]).counters["unseen_acks"] == 0


def test_more_open_datagrams_than_are_remembered_lose_no_row():
    pieces = [fragments4(tcp(sport=i + 1, payload=bytes(500)), [64], ident=i) for i in range(300)]
    packets = read([p[0] for p in pieces] + [p[1] for p in pieces])
    assert len(packets) == 300
    assert packets.counters["first_fragments"] == 300 - (packets["payload"] == 500).sum()


def test_a_datagram_across_two_parts_of_a_stream_is_told_as_incomplete():
    pieces = fragments4(tcp(payload=bytes(1000)), [64])
    between = [ipv4(tcp(sport=9, payload=bytes(200)))] * 40_000
    records = [(T0 + i, p) for i, p in enumerate([pieces[0], *between, pieces[1]])]
    parts = list(stream(io.BytesIO(pcap(records, 101)), chunk=10))
    assert len(parts) > 1
    assert parts[0]["payload"][0] == 44
    assert parts[-1].counters["first_fragments"] == 1


@pytest.mark.parametrize("cut", [8, 16, 24])
def test_a_first_fragment_too_small_for_the_tcp_header_counts_as_fragment(cut):
    pieces = fragments4(tcp(options=b"\1" * 8, payload=bytes(90)), [cut])
    packets = read([*pieces, ipv4(tcp(sport=5))])
    assert (len(packets), packets.counters["later_fragments"], packets.counters["malformed"]) == (1, 2, 0)
