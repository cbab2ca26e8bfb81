"""Formats that people have: flent, siftr, JSON of tcp_info, tables with N/A; and what is refused with a command."""

import gzip
import io
import json
import struct

import numpy as np
import pytest
from wire import read

import cctrace
from cctrace.errors import FormatError
from cctrace.io.counters.tcpinfo import MISSING

T0 = 1_700_000_000


# --- flent -----------------------------------------------------------------------------------------------------------
def flent(entries):
    meta = {
        "BATCH_NAME": None,
        "NAME": "tcp_1up",
        "KERNEL_RELEASE": "6.1.0",
        "SERIES_META": {"TCP upload": {"TCP_MSS": 1448, "CONG_CONTROL": "bbr"}},
    }
    raw = {"Ping (ms) ICMP": [{"t": T0, "val": 3.0}], "TCP upload": entries}
    return gzip.compress(json.dumps({"metadata": meta, "raw_values": raw, "results": {}, "version": 4}).encode())


def test_flents_sockets_are_flows():
    entries = []
    for i in range(20):
        look = {"tcp_cwnd": 20.0, "tcp_rtt": 40.5, "tcp_rtt_var": 2.0, "tcp_pacing_rate": 8.0, "tcp_bbr_mrtt": 39.5,
                "tcp_bbr_bw": 8.0, "tcp_bbr_pacing_gain": 1.25, "tcp_bbr_cwnd_gain": 2}  # fmt: skip
        entries += [{"t": T0 + 0.2 * i + 0.1} | look, {"t": T0 + 0.2 * i + 0.2, "dur": 0.2, "val": 8.0}]
    table = cctrace.read(io.BytesIO(flent(entries)))
    assert table.connections == [{"flow_id": "TCP upload", "cc": "bbr", "kernel": "6.1.0"}]
    flow = table.flow(0)
    assert flow.rtt_us().tolist() == [40_500] * 40
    assert flow.polls["snd_cwnd"].tolist() == [20, MISSING] * 20  # it may have changed when the throughput was counted
    assert flow.polls["pacing_rate_Bps"][0] == 1_000_000
    assert flow.polls["bbr_pacing_gain"][0] == 320
    assert flow.row["bytes_sent"] == 20 * 200_000
    assert flow.row["goodput_bps"] == pytest.approx(8e6, rel=0.02)
    assert len(flow.events)


def test_a_flent_run_without_sockets_says_what_to_do():
    with pytest.raises(FormatError, match="--socket-stats"):
        read(flent([{"t": T0, "val": 1.0, "dur": 0.2}]))


# --- siftr -----------------------------------------------------------------------------------------------------------
NEW = "enable_time_secs=1700000000\tenable_time_usecs=5\tsiftrver=1.3.0\tsysname=FreeBSD\tsysver=1400000\tipmode=4\n"
OLD = NEW.replace("siftrver=1.3.0", "siftrver=1.2.6\thz=1000\ttcp_rtt_scale=32")
VALUES = "1073725440,14480,2,65535,65700,6,9,4,1448,{rtt},1,525,{rto},33580,0,65700,0,2896,0,{flow},1"


@pytest.mark.parametrize("old", [False, True])
def test_siftr_of_both_ages_means_the_same(old):
    mark = "0x8a7c1d2e," if old else ""
    values = VALUES.format(rtt=1296 if old else 40_500, rto=240 if old else 240_000, flow=7)
    lines = [f"{kind},{mark}{T0 + i}.000250,10.0.0.1,5001,10.0.0.2,40000,{values}\n" for i, kind in enumerate("oio")]
    table = read((OLD if old else NEW) + "".join(lines) + "disable_time_secs=1700000009\tnum_inbound_tcp_pkts=3\n")
    assert table.connections == [{"src": "10.0.0.1", "sport": 5001, "dst": "10.0.0.2", "dport": 40_000}]
    assert table["time_ns"].tolist() == [(T0 + i) * 10**9 + 250_000 for i in range(3)]
    told = {name: int(table[name][0]) for name in ("rtt", "rto", "snd_cwnd", "unacked", "snd_mss", "state", "snd_wnd")}
    assert told == {
        "rtt": 40_500,
        "rto": 240_000,
        "snd_cwnd": 10,
        "unacked": 2,
        "snd_mss": 1448,
        "state": 1,
        "snd_wnd": 65_535,
    }
    assert table["snd_ssthresh"][0] == 1073725440 // 1448
    assert table["direction"].tolist() == ["o", "i", "o"]
    assert table.warnings == []


def test_siftr_lines_that_are_cut_are_counted():
    line = f"o,{T0}.5,10.0.0.1,5001,10.0.0.2,40000,{VALUES.format(rtt=1, rto=1, flow=7)}\n"
    table = read(NEW + line + line[:20])
    assert len(table) == 1
    assert any("1 lines are truncated" in text for text in table.warnings)
    with pytest.raises(FormatError, match="no packets in this siftr log"):
        read(NEW)


# --- JSON and tables -------------------------------------------------------------------------------------------------
POLL = {"time": f"{T0}.5", "saddr": "10.0.0.1", "sport": 443, "daddr": "10.0.0.2", "dport": "40000"}
SPELLINGS = {
    "flat": {"rtt": 40_500, "snd_cwnd": 10, "cc": "bbr"},
    "kernel's": {"tcpi_rtt": 40_500, "tcpi_snd_cwnd": 10, "cc": "bbr"},
    "nginx": {"tcpinfo_rtt": "40500", "tcpinfo_snd_cwnd": "10", "request": "GET /", "tcpinfo_rttvar": "-", "cc": "bbr"},
    "nested": {"tcp_info": {"Rtt": 40_500, "SndCwnd": 10}, "cc": "bbr"},
}


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("name", SPELLINGS)
def test_json_of_tcp_info_in_any_spelling_is_polls(name, lines):
    rows = [POLL | {"time": f"{T0 + i}.5"} | SPELLINGS[name] for i in range(3)]
    table = read("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows))
    assert table.connections == [{"src": "10.0.0.1", "sport": 443, "dst": "10.0.0.2", "dport": 40_000, "cc": "bbr"}]
    assert table["time_ns"].tolist() == [(T0 + i) * 10**9 + 500_000_000 for i in range(3)]
    assert (table["rtt"].tolist(), table["snd_cwnd"].tolist()) == ([40_500] * 3, [10] * 3)
    assert (table["rttvar"] == MISSING).all()


def test_records_without_fields_of_tcp_info_are_counted_and_others_refused():
    table = read(json.dumps({"rtt": 5, "snd_cwnd": 7, "time": T0}) + "\n" + json.dumps({"level": "info"}) + "\nnoise\n")
    assert len(table) == 1
    assert any("2 records" in text for text in table.warnings)
    with pytest.raises(FormatError, match="not a format"):
        read(json.dumps({"level": "info", "rtt": 3}))


@pytest.mark.parametrize("none", ["N/A", "-", "nan", "NULL".lower(), ""])
def test_what_a_table_does_not_know_is_missing(none):
    table = read(f"time_ns,tcpi_rtt,tcpi_snd_cwnd,note\n{T0}000000000,{none},5,x\n{T0}100000000,7,{none},\n")
    assert table["rtt"].tolist() == [MISSING, 7]
    assert table["snd_cwnd"].tolist() == [5, MISSING]


# --- refused, with the command that helps ----------------------------------------------------------------------------
ERF = b"".join(struct.pack("<QBB", (T0 + i) << 32, 2, 4) + struct.pack(">HHH", 64, 0, 60) + bytes(48) for i in range(4))
ETL = struct.pack("<18I", 65_536, *range(17)) + b"\x02\x00\x02\xc0" + bytes(200)
REFUSED = {
    "tshark -T json": (b'[\n  {\n    "_index": "packets-2024-01-01"}]', "tshark -r"),
    "tshark -T ek": (b'{"index":{"_index":"packets-2024-01-01"}}\n{"timestamp":"1"}', "tshark -r"),
    "tshark -T pdml": (b'<?xml version="1.0"?>\n<?xml-stylesheet href="x"?>\n<!-- x -->\n<pdml', "tshark -r"),
    "tcpdump": (b"12:00:00.000001 IP 10.0.0.1.5 > 10.0.0.2.80: Flags [S], seq 1, length 0\n", "tcpdump -w"),
    "tcpdump -i any": (b"2024-01-01 12:00:00.000001 eth0  In  IP6 ::1.5 > ::2.80: Flags [.]\n", "tcpdump -w"),
    "ETL": (ETL, "etl2pcapng"),
    "ERF": (ERF, "editcap"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_capture_is_refused_with_the_command_that_makes_one(name):
    data, command = REFUSED[name]
    with pytest.raises(FormatError, match=command) as refused:
        read(data)
    assert "\n" not in str(refused.value)
    assert "starts with bytes" not in str(refused.value)


def test_throughput_of_flent_is_no_sample_of_the_socket():
    entries = [{"t": T0, "tcp_rtt": 10.0}, {"t": T0 + 1, "val": 8.0, "dur": 1.0}]
    table = read(flent(entries))
    assert table["rtt"].tolist() == [10_000, MISSING]
    assert np.nansum(table.extra["interval_bytes"]) == 1_000_000
