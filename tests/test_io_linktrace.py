"""Link traces: Mahimahi's traces and logs, the UCC 5G logs."""

import numpy as np
import pytest
from wire import read

from cctrace import cli
from cctrace.errors import ArgumentError, FormatError

HEADER = "Timestamp,Longitude,Speed,NetworkMode,DL_bitrate,UL_bitrate,PINGAVG"


def test_each_line_of_a_mahimahi_trace_is_1500_bytes():
    trace = read("0\n0\n5\n10\n")
    assert trace["time_ms"].tolist() == [0, 0, 5, 10]
    assert trace.end_ns == 10_000_000
    assert trace.mean_rate_bps == pytest.approx(4 * 1500 * 8 / 0.010)
    starts, rates = trace.rate(5)
    assert starts.tolist() == [0, 5_000_000]
    assert rates.tolist() == [3000 * 8 / 0.005, 3000 * 8 / 0.005]


def test_a_mahimahi_log_gives_its_events_on_its_own_clock():
    log = "# mahimahi mm-link (downlink) [x] > y\n# base timestamp: 1000\n"
    log += "1000 # 1504\n1001 + 1504\n1002 - 1504 7\n1003 d 2 3008\n"
    trace = read(log)
    assert trace.format == "mahimahi-log"
    assert trace["time_ms"].tolist() == [0, 1, 2, 3]
    assert trace["kind"].tolist() == ["#", "+", "-", "d"]
    assert np.isnan(trace["delay_ms"]).tolist() == [True, True, False, True]
    assert (trace["delay_ms"][2], trace["packets"][3], trace["bytes"][3]) == (7, 2, 3008)
    assert trace.mean_rate_bps == pytest.approx(1504 * 8 / 0.003)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\n2\nx\n", "line 3: 'x'"),
        ("5\n4\n", "line 2: time goes backwards, to 4 ms"),
        ("0\n0\n", "no length"),
        ("# a\n", "no opp"),
    ],
)
def test_damage_to_a_trace_is_named(text, words):
    with pytest.raises(FormatError, match=words):
        read(text, format="mahimahi")


def test_ucc_logs_keep_units_gaps_and_missing_values():
    rows = [
        "2020.02.13_13.57.29,-8.39,0,5G,100,7,-",
        "2020.02.13_13.57.29,-8.39,0,5G,200,-,-",
        "2020.02.13_13.57.31,-8.39,1,LTE,300,7,55",
    ]
    trace = read("\n".join([HEADER, *rows]))
    second = 10**9
    start = trace["time_ns"][0]
    assert (trace["time_ns"] - start).tolist() == [0, second // 2, 2 * second]
    assert trace["dl_bps"].tolist() == [100_000, 200_000, 300_000]
    assert np.isnan(trace["ping_avg_ms"]).tolist() == [True, True, False]
    assert trace["NetworkMode"].tolist() == ["5G", "5G", "LTE"]
    assert trace.end_ns == 3 * second
    assert trace.capacity[1].sum() * 8 == pytest.approx(100_000 * 0.5 + 200_000 * 1.5 + 300_000 * 1)


def test_long_gaps_of_a_ucc_log_are_told():
    rows = ["2020.02.13_13.57.29,-8.39,0,5G,100,7,-", "2020.02.13_13.58.29,-8.39,0,5G,200,-,-"]
    assert any("longest 60 s" in w for w in read("\n".join([HEADER, *rows])).warnings)


@pytest.mark.parametrize(("cell", "words"), [("2020-02-13", "line 2: '2020-02-13'"), ("2020.02.13_25.57.29", "line 2")])
def test_damage_to_a_ucc_log_is_named(cell, words):
    with pytest.raises(FormatError, match=words):
        read(f"{HEADER}\n{cell},-8.39,0,5G,100,7,-\n")


def test_bins_have_a_length():
    with pytest.raises(ArgumentError, match="bin_ms=0"):
        read("0\n5\n").rate(0)


def test_who_analyses_a_link_trace_is_told_what_it_is_for(tmp_path, capsys):
    (tmp_path / "link.down").write_text("".join(f"{ms}\n" for ms in range(1, 2000)))
    assert cli.main(["analyze", str(tmp_path / "link.down"), "-o", str(tmp_path / "out")]) == 2
    assert "a link's trace: give it to cctrace simulate --trace" in capsys.readouterr().err
