"""The AccECN option's counters of bytes [RFC9768] §3.2.3, read from frames, kept in Parquet, and damaged."""

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import ethernet, ipv4, pcap, tcp, tcp_options

from cctrace.io import read_file

NONE = 0xFFFFFFFF
COLUMNS = ("ecn_e0_bytes", "ecn_ce_bytes", "ecn_e1_bytes")
ORDER = {172: COLUMNS, 174: COLUMNS[::-1]}


def option(kind, counters, length=None):
    """Return an AccECN option with these counters, in its own order."""
    body = b"".join(count.to_bytes(3, "big") for count in counters)
    return struct.pack("!BB", kind, 2 + len(body) if length is None else length) + body


def read(*options):
    """Read one segment for each of these options, behind time stamps."""
    stamps = tcp_options(timestamps=(5, 6))
    frames = [ethernet(ipv4(tcp(seq=i, options=stamps + one), ident=i)) for i, one in enumerate(options, 1)]
    return read_file(io.BytesIO(pcap([(10**18 + i, frame) for i, frame in enumerate(frames)])))


def naive(kind, counters):
    """Return {column: counter} as the option has them, NONE where it ends before."""
    return dict.fromkeys(COLUMNS, NONE) | dict(zip(ORDER[kind], counters, strict=False))


@given(st.sampled_from([172, 174]), st.lists(st.integers(0, (1 << 24) - 1), max_size=3))
def test_both_orders_and_every_length_are_read(kind, counters):
    packets = read(option(kind, counters))
    assert packets["options"][0] == 1 | 32
    assert packets["tsval"][0] == 5
    assert {name: int(packets[name][0]) for name in COLUMNS} == naive(kind, counters)


def test_a_segment_without_the_option_has_no_counters():
    packets = read(b"", option(172, (7, 8, 9)))
    assert packets["options"].tolist() == [1, 33]
    assert [packets[name].tolist() for name in COLUMNS] == [[NONE, 7], [NONE, 8], [NONE, 9]]


@pytest.mark.parametrize("length", [3, 4, 6, 12])
def test_an_option_of_another_length_is_none(length):
    body = bytes(length - 2)
    packets = read(struct.pack("!BB", 172, length) + body)
    assert packets["options"][0] & 32 == 0
    assert packets["ecn_ce_bytes"][0] == NONE


def test_an_option_that_is_cut_off_is_malformed():
    packets = read(option(174, (1,), length=11))
    assert packets["options"][0] & 128
    assert packets["ecn_e1_bytes"][0] == NONE


def test_parquet_keeps_the_counters(tmp_path):
    from cctrace.io.parquet import save_table

    packets = read(option(172, (1, 2, 3)), option(174, (4, 5)), b"")
    save_table(packets, tmp_path / "x.parquet")
    again = read_file(tmp_path / "x.parquet")
    assert all(np.array_equal(packets[name], again[name]) for name in (*COLUMNS, "options"))
