"""Usual packets, decoded by `io.usual`, give the same rows as packets decoded one by one in full."""

import io
import random
import struct
import warnings
from typing import Any

import numpy as np
import pytest
from wire import ethernet, ipv4, ipv6, pcap, tcp, tcp_options

from cctrace import schema
from cctrace.errors import Truncated
from cctrace.io import layout, pieces, read_file, stream
from cctrace.io.packets import joined
from cctrace.io.usual import usual
from cctrace.lang.machine import Machine

T0 = 1_795_190_736_401_848_537
ENDS = (("10.0.0.1", 40000, "10.0.0.2", 443), ("10.0.0.2", 443, "10.0.0.1", 40000), ("10.9.9.9", 1, "10.0.0.2", 443))


def segment(rng, seq, link):
    """A frame that is usual, or differs in one thing."""
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


def capture(seed, count=3000, link=101, **options):
    rng, seq, now, records = random.Random(seed), [2**32 - 200_000, 1000, 5], T0, []
    for _ in range(count):
        records.append((now, *segment(rng, seq, link)))
        if rng.random() < 0.02:
            records.append((now + 1, *records[-1][1:]))  # captured twice
        now += rng.choice((0, 10_000, 10_000, 10_000, -20_000 if rng.random() < 0.05 else 300))
    return pcap(records, link, **options)


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


def test_a_run_of_usual_packets_is_decoded_in_one_call():
    options = tcp_options(timestamps=(1, 2))
    ways = [ENDS[k % 2] for k in range(50)]
    frames = [ipv4(tcp(sport, dport, 7, 9, options=options), src, dst) for src, sport, dst, dport in ways]
    b = np.frombuffer(pcap([(T0 + k, frame) for k, frame in enumerate(frames)], 101), np.uint8)
    rows = tuple(np.zeros(60, c.dtype) for c in schema.PACKETS)
    c = np.full((1, layout.CONN_FIELDS), -1, np.int64)
    c[0, : layout.PORTS + 1] = 0, 0x0A000001, 0, 0x0A000002, 4 << 32 | 40000 << 16 | 443
    c[0, layout.RING_POS : layout.RING] = 0
    counters = np.zeros(len(layout.COUNTERS), np.int64)
    given = b, 24, len(b), False, 1, 16, 1 << 24, 101, rows, 0, 60, -1, c, 0, counters
    assert Machine(usual)(*given) == (len(b), 50)
    assert rows[2][:50].tolist() == [0, 1] * 25


def test_a_record_larger_than_the_buffer_is_read_as_far_as_its_headers(tmp_path):
    large = ipv4(tcp(options=tcp_options(timestamps=(1, 2))) + bytes(40_000))
    records = [(T0 + i, large + bytes(i % 7 * pieces.PIECE), 70_000) for i in range(40)]
    data = pcap(records, 101)
    (tmp_path / "in.pcap").write_bytes(data)
    same(read_file(tmp_path / "in.pcap"), read_file(io.BytesIO(data)))


@pytest.mark.parametrize("damage", ["cut", "length"])
def test_what_precedes_damage_is_read_and_its_place_is_told(tmp_path, damage):
    data = capture(5)
    whole = data + struct.pack("<IIII", 1, 1, 1 << 31, 60) if damage == "length" else data[:-5]
    (tmp_path / "in.pcap").write_bytes(whole)
    with pytest.warns(Truncated) as told:
        found = read_file(tmp_path / "in.pcap")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Truncated)
        same(found, read_file(io.BytesIO(whole)))
    assert damage == "cut" or f"record at offset {len(data)} claims more" in str(told[0].message)


def test_a_brief_stream_lacks_the_details_only(tmp_path):
    (tmp_path / "in.pcap").write_bytes(capture(6))
    brief, whole = joined(stream(tmp_path / "in.pcap", 100, brief=True)), read_file(tmp_path / "in.pcap")
    assert set(brief.columns) == {c.name for c in schema.PACKETS} - set(layout.DETAILS)
    same(brief, whole)
