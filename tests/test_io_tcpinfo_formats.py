"""tcp_info as other tools write it: raw structs, M-Lab, NDT7, iperf3, tcp_probe, bpftrace."""

import base64
import json
import socket
import struct

import numpy as np
import pytest
from wire import read

from cctrace.errors import FormatError
from cctrace.io.counters import tcpinfo
from cctrace.io.counters.structs import BBR23_INFO, PHASES, TCP_INFO, decode_bbr
from cctrace.io.counters.tcpinfo import MISSING

T = 1795190736468301000


def raw_info(**fields):
    record = np.zeros(1, TCP_INFO)
    for name, value in fields.items():
        record[name] = value
    return record.tobytes()


# --- struct tcp_info -------------------------------------------------------------------------------------------------
def test_the_layout_is_the_kernels():
    offsets = {"rto": 8, "rtt": 68, "total_retrans": 100, "pacing_rate": 104, "segs_out": 136, "min_rtt": 148,
               "delivery_rate": 160, "busy_time": 168, "delivered": 192, "bytes_sent": 200, "dsack_dups": 216,
               "rcv_ooopack": 224, "snd_wnd": 228, "rehash": 236, "total_rto": 240, "total_rto_time": 244}  # fmt: skip
    assert {name: TCP_INFO.fields[name][1] for name in offsets} == offsets


@pytest.mark.parametrize("length", [104, 120, 160, 168, 192, 224, 232, 248, 280, 400])
def test_structs_of_any_age_give_what_they_cover(length):
    whole = raw_info(
        rtt=40_000, total_retrans=3, min_rtt=7, delivery_rate=9, delivered=5, snd_wnd=11, app_limited_bits=3
    )
    info = read(whole[:length].ljust(length, b"\1"), format="tcp-info-struct")
    covers = {"rtt": 72, "total_retrans": 104, "min_rtt": 152, "delivery_rate_Bps": 168, "delivered": 196}
    values = {"rtt": 40_000, "total_retrans": 3, "min_rtt": 7, "delivery_rate_Bps": 9, "delivered": 5}
    for name, end in covers.items():
        assert info[name].tolist() == [values[name] if length >= end else MISSING], name
    assert info["delivery_rate_app_limited"].tolist() == [1 if length >= 168 else MISSING]
    assert bool(info.warnings) == (length > 280)


def test_a_struct_that_never_existed_is_refused():
    with pytest.raises(FormatError, match="50 bytes"):
        read(bytes(50), format="tcp-info-struct")


def test_a_text_is_no_struct_even_if_told_so():
    with pytest.raises(FormatError, match="at offset 0: tcpi_state 69"):
        read(b"ESTAB 0 0 10.0.0.1:1 10.0.0.2:2 cubic rto:204 rtt:0.5/0.25" * 4, format="tcp-info-struct")


def test_bbr_versions_are_told_apart_by_length_and_version_byte():
    one = struct.pack("<5I", 1, 2, 3, 739, 512)
    assert decode_bbr(one) == {
        "bbr_bw_Bps": 1 + (2 << 32), "bbr_min_rtt_us": 3, "bbr_pacing_gain": 739, "bbr_cwnd_gain": 512,
        "bbr_version": 1,
    }  # fmt: skip
    three = np.zeros(1, BBR23_INFO)
    three["version"], three["phase"], three["bw_hi"], three["mode"] = 3, 4, 77, 2
    assert BBR23_INFO.fields["version"][1] == 39
    got = decode_bbr(three.tobytes())
    assert (got["bbr_version"], got["bbr_phase"], got["bbr_bw_hi_Bps"]) == (3, PHASES.index("PROBE_BW_UP"), 77)
    assert decode_bbr(b"short") == {}


# --- M-Lab -----------------------------------------------------------------------------------------------------------
def snapshot(index, info, bbr=b"", family=socket.AF_INET):
    size = 4 if family == socket.AF_INET else 16
    address = [
        socket.inet_pton(family, a).ljust(16, b"\0") for a in (("1.2.3.4", "5.6.7.8") if size == 4 else ("::1", "::2"))
    ]
    message = struct.pack("!BBBBHH", family, 1, 0, 0, 443, 5000) + address[0] + address[1] + bytes(12)
    message += struct.pack("<5I", 0, 8, 9, 0, 0)
    attributes = [None, None, info, None, b"bbr\0"] + [None] * 11 + [bbr]
    return json.dumps(
        {
            "Timestamp": f"2026-11-20T16:05:36.{468301 + index:06d}Z",
            "RawIDM": base64.b64encode(message).decode(),
            "Attributes": [base64.b64encode(a).decode() if a else None for a in attributes],
        }
    )


META = '{"Timestamp":"0001-01-01T00:00:00Z","Metadata":{"UUID":"x","Sequence":0,"StartTime":"2019-07-01T00:00:12Z"}}'


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_mlab_snapshots(family):
    lines = [META] + [
        snapshot(i, raw_info(rtt=i)[: 168 + 56 * i], struct.pack("<5I", 9, 0, 5, 320, 512), family) for i in (0, 1)
    ]
    info = read("\n".join(lines))
    assert info["time_ns"].tolist() == [T, T + 1000]
    assert info["rtt"].tolist() == [0, 1]
    assert info["bytes_sent"].tolist() == [MISSING, 0]
    assert info.extra["bbr_mode"].tolist() == ["PROBE_BW", "PROBE_BW"]
    src, dst = ("1.2.3.4", "5.6.7.8") if family == socket.AF_INET else ("::1", "::2")
    assert info.connections == [{"src": src, "sport": 443, "dst": dst, "dport": 5000, "cc": "bbr"}]


def test_mlab_lines_that_are_damaged_are_named_and_left_out():
    info = read("\n".join([META, snapshot(0, raw_info(rtt=1)), snapshot(1, raw_info(rtt=2))[:200]]))
    assert info["rtt"].tolist() == [1]
    assert any("line 3 is not a snapshot" in w for w in info.warnings)
    with pytest.raises(FormatError, match="no snapshots"):
        read(META)


NDT7 = {
    "GitShortCommit": "x", "ServerIP": "1.2.3.4", "ServerPort": 443, "ClientIP": "5.6.7.8", "ClientPort": 9,
    "StartTime": "2026-11-20T16:05:36.468301Z",
}  # fmt: skip


@pytest.mark.parametrize(
    ("bbr", "gain"),
    [
        ({"BW": 11, "MinRTT": 22, "PacingGain": 739, "CwndGain": 739}, 739),
        ({"MaxBandwidth": 11, "MinRTT": 22}, MISSING),
    ],
)
def test_ndt7_of_both_years(bbr, gain):
    tcp = {
        "State": 1,
        "RTT": 5,
        "SndCwnd": 6,
        "RWndLimited": 7,
        "MaxPacingRate": -1,
        "AppLimited": 1,
        "ElapsedTime": 1000,
    }
    row = {"BBRInfo": bbr | {"ElapsedTime": 1000}, "TCPInfo": tcp}
    info = read(json.dumps(NDT7 | {"Download": {"StartTime": NDT7["StartTime"], "ServerMeasurements": [row, row]}}))
    assert info["time_ns"].tolist() == [T + 10**6] * 2
    assert [info[n][0] for n in ("rtt", "snd_cwnd", "rwnd_limited_us", "delivery_rate_app_limited")] == [5, 6, 7, 1]
    assert [info[n][0] for n in ("bbr_bw_Bps", "bbr_min_rtt_us", "bbr_pacing_gain")] == [11, 22, gain]
    assert info.extra["max_pacing_rate"].tolist() == [MISSING] * 2
    assert info.connections[0]["sport"] == 443


def test_ndt7_without_measurements_is_an_error():
    with pytest.raises(FormatError, match="no ServerMeasurements"):
        read(json.dumps(NDT7 | {"Download": {"ServerMeasurements": None}}))
    with pytest.raises(FormatError, match="not JSON"):
        read(json.dumps(NDT7)[:-5])


# --- iperf3 ----------------------------------------------------------------------------------------------------------
def iperf3(streaming, count=3, **more):
    connected = [{"socket": 5, "local_host": "1.1.1.1", "local_port": 4, "remote_host": "2.2.2.2", "remote_port": 5201}]
    start = {
        "connected": connected,
        "version": "iperf 3.16",
        "timestamp": {"timesecs": T // 10**9},
        "tcp_mss_default": 1000,
    }
    stream = {
        "socket": 5,
        "seconds": 1,
        "bytes": 10,
        "retransmits": 2,
        "snd_cwnd": 20_000,
        "rtt": 40_000,
        "sender": True,
    }
    intervals = [{"streams": [stream | {"start": i, "end": i + 1.5} | more]} for i in range(count)]
    end = {"sender_tcp_congestion": "bbr"}
    if not streaming:
        return json.dumps({"start": start, "intervals": intervals, "end": end})
    events = [("start", start), *(("interval", i) for i in intervals), ("end", end)]
    return "\n".join(json.dumps({"event": e, "data": d}) for e, d in events)


@pytest.mark.parametrize("streaming", [False, True])
def test_iperf3_of_both_forms(streaming):
    info = read(iperf3(streaming, rttvar=7, reorder=9))
    second = T // 10**9 * 10**9
    assert info["time_ns"].tolist() == [second + 1_500_000_000 + i * 10**9 for i in range(3)]
    assert info["snd_cwnd"].tolist() == [20, 20, 20]
    assert info["total_retrans"].tolist() == [2, 4, 6]
    assert [info[n][0] for n in ("rtt", "rttvar", "reordering")] == [40_000, 7, 9]
    assert info.connections == [{"src": "1.1.1.1", "sport": 4, "dst": "2.2.2.2", "dport": 5201, "cc": "bbr"}]


def test_fields_that_an_old_iperf3_lacks_are_missing():
    info = read(iperf3(False))
    assert info["rttvar"].tolist() == [MISSING] * 3
    assert "snd_wnd" not in info.extra


def test_negative_bytes_of_an_iperf3_interval_are_missing():
    log = json.loads(iperf3(False))
    log["intervals"][1]["streams"][0]["bytes"] = -5000
    info = read(json.dumps(log))
    assert info["interval_bytes"].tolist() == [10, MISSING, 10]
    assert info.warnings == [
        "<stream>: 1 values of interval_bytes are not within 0 to 9223372036854775807: treated as missing"
    ]


def test_a_cut_iperf3_stream_yields_its_whole_lines_and_errors_are_passed_on():
    info = read(iperf3(True)[:-30])
    assert len(info) == 3
    assert any("is not an event" in w for w in info.warnings)
    with pytest.raises(FormatError, match="unable to connect"):
        read(json.dumps({"start": {"connected": []}, "intervals": [], "end": {}, "error": "unable to connect"}))


def test_cut_iperf3_json_yields_its_whole_intervals():
    text = iperf3(False)
    info = read(text[: text.rindex('"snd_cwnd"')])
    assert info["rtt"].tolist() == [40_000, 40_000]
    assert info.connections == [{"src": "1.1.1.1", "sport": 4, "dst": "2.2.2.2", "dport": 5201}]
    assert any("read its 2 whole intervals" in w for w in info.warnings)
    nested = read(text[: text.rindex('{"streams"')] + "[" * 100_000)  # Python's parser gives up with another error
    assert len(nested) == 2
    assert any("read its 2 whole intervals" in w for w in nested.warnings)
    with pytest.raises(FormatError, match="not JSON"):
        read(text[: text.index('"timestamp"')])


def test_a_test_of_udp_is_said_to_be_one():
    start = {"connected": [], "test_start": {"protocol": "UDP"}}
    with pytest.raises(FormatError, match="a test of UDP, of which iperf3 logs no TCP information"):
        read(json.dumps({"start": start, "intervals": [{"streams": [{"socket": 5, "bytes": 10}]}], "end": {}}))


# --- tcp_probe -------------------------------------------------------------------------------------------------------
REST = "snd_nxt=0x10 snd_una=0xf snd_cwnd=10 ssthresh={ssthresh} snd_wnd=64 srtt=40178 rcv_wnd=99"
OLD = "src=10.0.0.1:40001 dest=10.0.0.2:5001 mark=0x0 length=32 " + REST.format(ssthresh=2147483647)
NEW = "family=AF_INET6 src=[fd99::1]:40001 dest=[fd99::2]:5001 mark=0x0 data_len=32 " + REST.format(ssthresh=7)
NEW += " sock_cookie=2a skbaddr=00000000deadbeef skaddr=0000000012345678"


@pytest.mark.parametrize(
    "prefix",
    ["iperf3-1234    [001] ..s3.   123.456789: tcp_probe: ", "swapper     0 [000]   123.456789:   tcp:tcp_probe: "],
)
def test_tcp_probe_of_ftrace_and_perf(prefix):
    info = read("# tracer: nop\n#\n" + "".join(f"  {prefix}{fields}\n" for fields in (OLD, NEW)))
    assert info["time_ns"].tolist() == [123_456_789_000] * 2
    assert info["rtt"].tolist() == [40178, 40178]
    assert info["snd_ssthresh"].tolist() == [2147483647, 7]
    assert info.extra["snd_una"].tolist() == [15, 15]
    assert [c["src"] for c in info.connections] == ["10.0.0.1", "fd99::1"]


def test_garbled_probe_lines_are_counted():
    line = f"  a-1 [0] .... 1.5: tcp_probe: {OLD}\n"
    info = read(line * 2 + line[:80] + "\n")
    assert len(info) == 2
    assert any("1 tcp_probe lines are truncated" in w for w in info.warnings)


# --- CSV of other tools ----------------------------------------------------------------------------------------------
def test_bpftrace_csv_is_read_in_its_own_words():
    text = (
        "Attaching 2 probes...\nnsecs,saddr,lport,daddr,rport,snd_cwnd,srtt_us,note\n5,1.1.1.1,2,3.3.3.3,4,10,400,x\n"
    )
    info = read(text)
    assert [info[n][0] for n in ("time_ns", "snd_cwnd", "rtt")] == [5, 10, 400]
    assert info.connections == [{"src": "1.1.1.1", "sport": 2, "dst": "3.3.3.3", "dport": 4}]
    assert info.extra["note"].tolist() == ["x"]


@pytest.mark.parametrize(
    ("name", "cell", "ns"),
    [("time_us", "7", 7000), ("time_s", "1.25", 1_250_000_000), ("timestamp", f"{T // 10**9}.468301", T),
     ("ts", "2026-11-20T16:05:36.468301Z", T), ("time", str(T), T)],
)  # fmt: skip
def test_times_of_csv_take_their_unit_from_name_or_size(name, cell, ns):
    assert read(f"{name},tcpi_rtt,cwnd\n{cell},1,2\n")["time_ns"].tolist() == [ns]


def test_polls_of_one_connection_are_selected_in_their_order():
    polls = tcpinfo.Polls()
    for k in range(6):
        polls.add({"time_ns": k, "rtt": 10 * k}, ("10.0.0.1", 1000 + k % 3, "10.0.0.2", 80))
    table = tcpinfo.build(polls.rows.arrays(), polls.table, "x", "test")
    assert [table.select(k)["rtt"].tolist() for k in range(3)] == [[0, 30], [10, 40], [20, 50]]
