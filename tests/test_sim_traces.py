"""Links that change over time, from files: what a log says of rate, RTT and loss is what a path has and papers run."""

import json

import numpy as np
import pytest

import cctrace as cct
from cctrace import papers
from cctrace.cli import main
from cctrace.errors import ArgumentError, FormatError
from cctrace.sim.traces import read_steps

HEADER = "Timestamp,State,DL_bitrate,UL_bitrate,PINGAVG,PINGMIN,PINGMAX,PINGSTDEV,PINGLOSS"


@pytest.fixture
def log(tmp_path):
    """Twenty seconds of 8 Mbit/s; pings at 5 s and 12 s."""
    pings = {5: "70,60,90,5,0", 12: "120,110,140,5,20"}
    rows = [f"2020.02.13_13.57.{s:02d},D,8000,0,{pings.get(s, '-,-,-,-,-')}" for s in range(20)]
    file = tmp_path / "log.csv"
    file.write_text("\n".join([HEADER, *rows, ""]))
    return file


def test_pings_of_a_log_are_rtt_and_loss_until_the_next_and_repeat_with_it(log):
    path = cct.Path(trace=str(log), buffer="30kB")
    times, rtts = path.rtt_steps()
    assert (times[:4] / 1e9).tolist() == [0, 12, 20, 32]  # the first ping holds from the beginning
    assert (rtts[:4] / 1e6).tolist() == [60, 110, 60, 110]
    fields = path.world_fields()
    assert (fields["loss_ns"][:3] / 1e9).tolist() == [0, 12, 20]
    assert fields["loss_values"][:3].tolist() == [0, 0.2, 0]
    assert path.rtt_ns == 60_000_000


def test_a_simulation_over_a_log_has_its_rtt_and_loss_and_says_where_they_are_from(log):
    sim = cct.simulate(cct.Path(trace=str(log), buffer="4bdp"), "bbr2022", "20s", sample="1s")
    line = sim.timeline.set_index("time_s")
    assert 60e3 < line.srtt_us[6:11].mean() < 95e3
    assert line.srtt_us[15:].min() > 110e3
    assert line.retransmitted_segments[11] < 20 < line.retransmitted_segments[20]
    assert ["ping_min_ms" in sim.notes[0], "ping_loss_pct" in sim.notes[1]] == [True, True]


def test_what_is_given_goes_before_what_a_log_says(log):
    path = cct.Path(trace=str(log), rtt="25ms", loss="0%")
    assert path.rtt_steps()[1].tolist() == [25_000_000]
    assert path.world_fields()["loss_values"].tolist() == [0]
    assert path.notes() == []


@pytest.mark.parametrize("ping", ["70,x,90,5,0", "70,-3,90,5,0", "70,0,90,5,0"], ids=["text", "negative", "zero"])
def test_pings_that_are_none_are_told_and_not_used(log, ping):
    log.write_text(log.read_text().replace("70,60,90,5,0", ping))
    trace = cct.read(log)
    assert any("ping_min_ms holds impossible values of rtt" in warning for warning in trace.warnings)
    assert set(trace.path_columns) == {"loss"}
    assert cct.Path(trace=trace).rtt_ns == 40_000_000


def test_a_column_without_numbers_has_no_steps(log):
    trace = cct.read(log)
    with pytest.raises(ArgumentError, match="column='State'"):
        trace.steps("State")


def test_steps_from_a_file_may_have_rtt_and_loss(tmp_path, capsys):
    file = tmp_path / "steps.txt"
    file.write_text("# s Mbit/s ms %\n0 20 30 0\n1.5 20 90 2\n")
    path = cct.Path(**read_steps(file))
    assert path.rtt_steps()[1].tolist() == [30_000_000, 90_000_000]
    assert path.world_fields()["loss_values"].tolist() == [0, 0.02]
    command = ["simulate", "--rate-steps", str(file), "--cc", "cubic", "--duration", "3s", "--json"]
    rtts = []
    for more in ([], ["--rtt", "10ms", "--loss", "0%"]):
        assert main([*command, *more]) == 0
        rtts.append(json.loads(capsys.readouterr().out)["flows"][0]["tail_rtt_mean_us"])
    assert rtts[0] > 60e3 > 40e3 > rtts[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 20 30\n1 5\n", "line 2: 2 numbers, the first line has 3"),
        ("0\n", "line 1: '0' is not"),
        ("0 1 2 3 4\n", "line 1"),
        ("# none\n", "no line"),
    ],
    ids=["fewer", "one", "five", "empty"],
)
def test_lines_that_are_no_steps_are_named(tmp_path, text, says):
    (tmp_path / "steps").write_text(text)
    with pytest.raises(FormatError, match=says):
        read_steps(tmp_path / "steps")


def test_table_1_of_obbr_is_made_of_a_users_log(log, shelf, capsys):
    log.write_text(log.read_text().replace("2020.02.13_13.57.", "2019.12.14_10.16."))  # begins 30 s before car2
    (made,) = papers.reproduce("obbr", "10", traces=[log])
    row = made.table.iloc[0]
    assert (row.trace, row.rate_mbps, row.seconds) == ("log.csv", 8.0, 20)
    assert row.rtt_ms == pytest.approx((12 * 70 + 8 * 120) / 20)  # PINGAVG, each until the next
    assert made.claims == []
    assert len(made.plot().axes) == 2  # rate and RTT
    log.write_text(log.read_text().replace("10.16.", "10.17.").replace("10.17.00", "10.16.30"))
    assert main(["reproduce", "obbr", "10", "--trace", str(log), "--json"]) == 0
    (claim,) = json.loads(capsys.readouterr().out)
    assert (claim["claim"], claim["mark"]) == ("bandwidth, RTT and duration of car2", "not held")


def test_fig_11_of_obbr_runs_over_a_users_log_for_its_length(log, shelf):
    (made,) = papers.reproduce("obbr", "11", quick=True, traces=[log], systems=("BBR", "CUBIC"), own_s=60.0)
    assert made.runs[["trace", "system"]].to_numpy().tolist() == [["log.csv", "BBR"], ["log.csv", "CUBIC"]]
    assert made.runs.goodput_mbps.between(4, 8).all()
    ((_, run),) = papers.find("obbr", "11").runs(made.parameters | {"systems": ("BBR",)})
    assert run.arguments["duration"] == "20s"
    assert run.arguments["path"]["buffer"] == f"{round(0.5 * 8e6 / 8 * 0.09 * 1.024)}B"  # tc's KB has 1024 bytes
    assert run.arguments["path"]["loss"] == "0%"
    assert run.arguments["path"]["burst"] == "102400B"  # as in all of the paper's experiments that use tc
    assert np.isclose(made.runs.queue_ms, 0).sum() == 0


def test_fig_22_of_bbr2plus_draws_a_users_log(log):
    (made,) = papers.reproduce("bbr2plus", "22", traces=[log])
    assert made.table.path.unique().tolist() == ["log.csv"]
    assert made.table.rate_mbps.tolist() == pytest.approx([8.0] * 20)


def test_a_file_that_is_no_trace_is_named(tmp_path, capsys):
    assert main(["reproduce", "obbr", "11", "--trace", str(tmp_path / "nowhere.csv")]) == 2
    assert "nowhere.csv" in capsys.readouterr().err
    capture = cct.datasets.path("single_bbr_1bdp") / "sender.pcap.zst"
    assert main(["reproduce", "obbr", "10", "--trace", str(capture)]) == 2
    assert "neither a Mahimahi trace nor a UCC log" in capsys.readouterr().err
