"""tcp_info as CSV: fields keep their values, missing ones stay missing, damage is named."""

import pytest
from wire import read

from cctrace.errors import FormatError
from cctrace.io.counters.tcpinfo import MISSING

HEADER = "flow_id,time_ns,time_after_ns,tcpi_rtt,tcpi_min_rtt,tcpi_pacing_rate,tcpi_busy_time,tcpi_app_limited_bits"
ROWS = [
    "0,1795190736401848537,1795190736401854885,40000,4294967295,18446744073709551615,5,1,bbr",
    "1,1795190736401848539,1795190736401854886,,39000,1000,6,0,",
]
LAB = "\n".join([HEADER + ",bbr_bw_bytes_per_s,cc", ROWS[0].replace("bbr", "77,bbr"), ROWS[1][:-1] + ",,cubic", ""])


def test_fields_take_their_names_and_units_from_the_schema():
    info = read(LAB)
    assert info["time_ns"].tolist() == [1795190736401848537, 1795190736401848539]
    assert info["busy_time_us"].tolist() == [5, 6]
    assert info["bbr_bw_Bps"].tolist() == [77, MISSING]
    assert info["delivery_rate_app_limited"].tolist() == [1, 0]


def test_what_the_kernel_or_the_file_does_not_know_is_missing():
    info = read(LAB)
    assert info["rtt"].tolist() == [40000, MISSING]
    assert info["min_rtt"].tolist() == [MISSING, 39000]  # 2^32 - 1: no sample yet
    assert info["pacing_rate_Bps"].tolist() == [MISSING, 1000]  # 2^64 - 1: unlimited
    assert info["snd_cwnd"].tolist() == [MISSING, MISSING]
    assert info.frame()["rtt"].isna().tolist() == [False, True]


def test_connections_are_told_apart_by_their_keys():
    info = read(LAB)
    assert info.connections == [{"flow_id": 0, "cc": "bbr"}, {"flow_id": 1, "cc": "cubic"}]
    assert info.select(1)["min_rtt"].tolist() == [39000]


def test_unknown_fields_are_kept():
    info = read("time_ns,tcpi_rtt,tcpi_new_thing,note\n1,2,3,hello\n")
    assert info.extra["new_thing"].tolist() == [3]
    assert info.extra["note"].tolist() == ["hello"]


def test_a_line_cut_off_by_the_end_of_the_file_is_left_out_and_named():
    info = read(LAB + "0,17951")
    assert len(info) == 2
    assert "line 4 is cut off after 2 of 10 fields" in info.warnings[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time_ns,tcpi_rtt\n", "no rows"),
        ("time_ns,tcpi_rtt\n1,x\n", "line 2, column rtt: 'x'"),
        ("time_ns,tcpi_rtt\n1\n2,3\n", "line 2 has 1 fields"),
    ],
)
def test_damage_is_named_with_line_and_column(text, words):
    with pytest.raises(FormatError, match=words):
        read(text)
