"""Packets that `io.captures.fast_path` decodes give the same rows as packets decoded one by one in full."""

import gzip
import io
import random
import struct
import warnings
from typing import Any

import numpy as np
import pytest
from wire import (
    block,
    enhanced,
    ethernet,
    interface,
    ipv4,
    ipv6,
    obsolete,
    option,
    pcap,
    section,
    simple,
    tcp,
    tcp_options,
)  # fmt: skip

from cctrace import schema
from cctrace.errors import Truncated
from cctrace.io import layout, read_file, stream
from cctrace.io.captures import pieces
from cctrace.io.captures.fast_path import fast_path
from cctrace.io.captures.packets import joined
from cctrace.lang.machine import Machine

T0 = 1_795_190_736_401_848_537
ENDS = (("10.0.0.1", 40000, "10.0.0.2", 443), ("10.0.0.2", 443, "10.0.0.1", 40000), ("10.9.9.9", 1, "10.0.0.2", 443))


def segment(rng, seq, link):
    """A frame for the fast path, or one that differs in one thing."""
    odd = rng.choice(["nothing"] * 30 + ["flags", "options", "cut", "length", "fragment", "version", "sack", "longer",
                      "protocol", "header", "ip options", "ECN", "seq", "ack", "truncated"])  # fmt: skip
    way = rng.choice((0, 0, 1)) if rng.random() < 0.97 else 2
    src, sport, dst, dport = ENDS[way]
    stamps = (seq[way] >> 4, seq[1 - way % 2] >> 5) if rng.random() < 0.8 else None
    options = tcp_options(timestamps=stamps, sacks=[(9000, 9999)] if odd == "sack" else ())
    options = {"options": rng.randbytes(12), "ECN": options + bytes([172, 11]) + rng.randbytes(9)}.get(odd, options)
    size = rng.choice((0, 0, 1, 1448))
    start = seq[way] + (rng.choice((-3000, 5000)) if odd == "seq" else 0)
    flags = rng.choice((2, 4, 17, 18, 20) if odd == "flags" else (16, 24, 80, 144))
    head = tcp(
        sport, dport, start % 2**32, (seq[1 - way % 2] + (7000 if odd == "ack" else 0)) % 2**32,
        flags, rng.randrange(65536), options,
    )  # fmt: skip
    if odd == "header":
        head = head[:12] + bytes([rng.choice((0x40, 0x60, 0x90, 0xF0))]) + head[13:]
    seq[way] += size if odd != "seq" else 0
    kept = rng.choice((0, size))  # a capture that cuts packets, or not
    length = 20 + 4 * (odd == "ip options") + len(head) + size
    packet = ipv4(
        head + bytes(kept), src, dst, 17 if odd == "protocol" else 6, ident=rng.choice((0, 7, rng.randrange(65536))),
        tos=rng.randrange(256), fragment={"fragment": 0x2000}.get(odd, 0x4000), ttl=rng.randrange(1, 256),
        options=b"\1" * 4 if odd == "ip options" else b"",
        length={"length": 0, "longer": 60000, "truncated": 30}.get(odd, length),
    )  # fmt: skip
    packet = ipv6(head) if odd == "version" else packet
    frame = {1: ethernet, 113: lambda p: bytes(14) + b"\x08\x00" + p}.get(link, lambda p: p)(packet)
    whole = len(frame) + size - kept
    return frame[: rng.randrange(len(frame))] if odd == "cut" else frame, whole


def packets(seed, count, link):
    """Return records, most of them for the fast path, some captured twice and some earlier than those before."""
    rng, seq, now, records = random.Random(seed), [2**32 - 200_000, 1000, 5], T0, []
    for _ in range(count):
        records.append((now, *segment(rng, seq, link)))
        if rng.random() < 0.02:
            records.append((now + 1, *records[-1][1:]))  # captured twice
        now += rng.choice((0, 10_000, 10_000, 10_000, -20_000 if rng.random() < 0.05 else 300))
    return records


def capture(seed, count=3000, link=101, **options):
    return pcap(packets(seed, count, link), link, **options)


OTHER_BLOCKS = ["statistics", "obsolete", "simple", "options", "unknown", "of the other", "clipped", "undescribed"]
OTHER_BLOCKS += ["section", "interface", "late", "unaligned"]


def capture_in_blocks(seed, link, resolution=9, big=False, early_s=0):
    """The same in a pcapng: of two interfaces, the second in another unit, with blocks of all other kinds between."""
    rng, units = random.Random(seed), {9: 1, 6: 1000}.get(resolution, 1)
    offset = option(14, struct.pack(">q" if big else "<q", early_s), big)
    interfaces = [
        interface(link, big, options=option(9, bytes([resolution]), big) + offset),
        interface(113 if link == 1 else 1, big),
    ]
    out = section(big) + b"".join(interfaces)
    for now, frame, whole in packets(seed, 3000, link):
        other = rng.choice(["none"] * 60 + OTHER_BLOCKS)
        ticks = (now - early_s * 10**9) // units
        data = enhanced(ticks, frame, big=big, original=whole)
        if other == "statistics":
            data += block(5, struct.pack(">III" if big else "<III", 0, 0, 0) + option(5, bytes(8), big), big)
        elif other == "section":
            data = section(big) + b"".join(interfaces) + data
        elif other == "interface":
            data += interface(link, big)
        elif other in ("obsolete", "simple"):
            data = obsolete(ticks, frame, big=big) if other == "obsolete" else simple(frame, big, whole)
        elif other == "options":
            data = enhanced(ticks, frame, big=big, original=whole, options=option(1, b"a comment", big))
        elif other == "unknown":
            data += block(0xBAD, rng.randbytes(40), big)
        elif other in ("of the other", "undescribed"):
            data = enhanced(now // 1000, frame, 1 if other == "of the other" else 2**31, big, whole)
        elif other == "clipped":
            body = bytearray(data)
            body[20:24] = struct.pack(">I" if big else "<I", 1 << 31)
            data = bytes(body)
        elif other == "late":
            data = enhanced(rng.randrange(2**64), frame, big=big, original=whole)
        elif other == "unaligned":
            data = enhanced(ticks, frame + b"\1" * rng.randrange(4), big=big, original=whole + 3)
        out += data
    return out


def same(found, wanted):
    for name in found.columns:
        assert np.array_equal(found[name], wanted[name]), name
    for table, other in ((found.sacks, wanted.sacks), (found.connections, wanted.connections)):
        assert all(np.array_equal(table[name], other[name]) for name in other)
    assert found.counters == wanted.counters
    assert [w.partition(": ")[2] for w in found.warnings] == [w.partition(": ")[2] for w in wanted.warnings]


FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"big": True},
    {"unit_ns": 1000},
    {"header": 24, "unit_ns": 1000},
    {"version": (2, 3)},
)


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("link", [1, 101, 113])
def test_a_file_gives_the_rows_of_a_stream_whose_frames_are_decoded_in_full(tmp_path, form, link):
    data = capture(form + 10 * link, link=link, **FORMS[form])
    (tmp_path / "in.pcap").write_bytes(data)
    wanted = read_file(io.BytesIO(data))  # cannot be read twice: frames are looked at for QUIC, and none is left out
    assert len(wanted) > 1000
    same(read_file(tmp_path / "in.pcap"), wanted)
    same(joined(stream(tmp_path / "in.pcap", 50)), wanted)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("resolution", [9, 6, 12, 0xA0])
@pytest.mark.parametrize(("link", "early_s"), [(1, 0), (101, -1000), (101, 10**6)])
def test_a_file_of_blocks_gives_the_rows_of_a_stream_whose_frames_are_decoded_in_full(
    tmp_path, big, resolution, link, early_s
):
    data = capture_in_blocks(resolution + link, link, resolution, big, early_s)
    (tmp_path / "in.pcapng").write_bytes(data)
    wanted = read_file(io.BytesIO(data))
    assert len(wanted) > 1000
    same(read_file(tmp_path / "in.pcapng"), wanted)
    same(joined(stream(tmp_path / "in.pcapng", 50)), wanted)
    with gzip.open(tmp_path / "in.gz", "wb") as file:
        file.write(data)
    same(read_file(tmp_path / "in.gz"), wanted)


@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_run_of_packets_for_the_fast_path_is_decoded_in_one_call(in_blocks):
    options = tcp_options(timestamps=(1, 2))
    ways = [ENDS[k % 2] for k in range(50)]
    frames = [ipv4(tcp(sport, dport, 7, 9, options=options), src, dst) for src, sport, dst, dport in ways]
    records = pcap([(T0 + k, frame) for k, frame in enumerate(frames)], 101)[24:]
    blocks = b"".join(enhanced(T0 + k, frame, 1) for k, frame in enumerate(frames))
    data, rules = (blocks, (1, 0, 28, 0, 1 << 24)) if in_blocks else (records, (0, 0, 16, 0, 1 << 24))
    interfaces = np.array([[101, layout.MULTIPLY, 1, 0, 0]] * (2 if in_blocks else 1))
    b = np.frombuffer(data, np.uint8)
    rows = tuple(np.zeros(60, c.dtype) for c in schema.PACKETS)
    c = np.full((1, layout.CONN_FIELDS), -1, np.int64)
    c[0, : layout.PORTS + 1] = 0, 0x0A000001, 0, 0x0A000002, 4 << 32 | 40000 << 16 | 443
    c[0, layout.RING_POS : layout.RING] = 0
    counters = np.zeros(len(layout.COUNTERS), np.int64)
    given = b, 0, len(b), np.array(rules), interfaces, rows, 0, 60, -1, c, 0, counters
    assert Machine(fast_path)(*given) == (len(b), 50)
    assert rows[2][:50].tolist() == [0, 1] * 25


def test_a_record_larger_than_the_buffer_is_read_as_far_as_its_headers(tmp_path):
    large = ipv4(tcp(options=tcp_options(timestamps=(1, 2))) + bytes(40_000))
    records = [(T0 + i, large + bytes(i % 7 * pieces.PIECE), 70_000) for i in range(40)]
    data = pcap(records, 101)
    (tmp_path / "in.pcap").write_bytes(data)
    same(read_file(tmp_path / "in.pcap"), read_file(io.BytesIO(data)))


def warning_of(file, damaged):
    """Return what is told of a damaged file, of which the same is read as from a stream of its bytes."""
    file.write_bytes(damaged)
    with pytest.warns(Truncated) as told:
        found = read_file(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Truncated)
        same(found, read_file(io.BytesIO(damaged)))
    return str(told[0].message)


@pytest.mark.parametrize("damage", ["cut", "short", "length", "trailer", "order", "interface"])
def test_what_precedes_damage_in_a_file_of_blocks_is_read_and_its_place_is_told(tmp_path, damage):
    data = capture_in_blocks(5, 1)
    tails = {
        "cut": enhanced(1, bytes(60))[:-5], "short": b"\6\0\0\0", "length": struct.pack("<III", 6, 1 << 31, 0),
        "trailer": enhanced(1, bytes(60))[:-1] + b"\1", "order": section()[:8] + b"\0" * 20,
        "interface": struct.pack("<III", 1, 13, 0),
    }  # fmt: skip
    whole = data + tails[damage]
    assert f"block at offset {len(data)}" in warning_of(tmp_path / "in.pcapng", whole)


@pytest.mark.parametrize("damage", ["cut", "length"])
def test_what_precedes_damage_is_read_and_its_place_is_told(tmp_path, damage):
    data = capture(5)
    whole = data + struct.pack("<IIII", 1, 1, 1 << 31, 60) if damage == "length" else data[:-5]
    told = warning_of(tmp_path / "in.pcap", whole)
    assert damage == "cut" or f"record at offset {len(data)} claims more" in told


def test_a_brief_stream_lacks_the_details_only(tmp_path):
    (tmp_path / "in.pcap").write_bytes(capture(6))
    brief, whole = joined(stream(tmp_path / "in.pcap", 100, brief=True)), read_file(tmp_path / "in.pcap")
    assert set(brief.columns) == {c.name for c in schema.PACKETS} - set(layout.DETAILS)
    same(brief, whole)
