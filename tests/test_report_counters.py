"""Counters without a capture tell of their connections what a capture would, as far as polls can."""

import io
import itertools
import json

import numpy as np
import pandas as pd
import pytest

from cctrace import cli, datasets
from cctrace.analysis.flow_analysis import _modes as bbr_modes
from cctrace.flows.counters import CounterFlow
from cctrace.flows.table import of_file
from cctrace.io import read_file
from cctrace.plot.panels_of_counters import counter_panels, counter_phases
from cctrace.report.section import _toolbar

T0 = 1_700_000_000


def counters(text, index=0):
    return CounterFlow(read_file(io.BytesIO(text.encode())), index)


@pytest.mark.parametrize("name", ["loss_cubic_1pct", "single_bbr_1bdp", "jitter_bbr_sd2ms"])
def test_polls_tell_the_volume_retransmissions_goodput_and_rtt_of_the_capture(name):
    row = CounterFlow(read_file(datasets.path(name, "tcpinfo.csv.zst")), 0).row
    (seen,) = of_file(datasets.path(name, "sender.pcap.zst")).rows()
    assert row["bytes_sent"] == pytest.approx(seen["bytes_sent"], rel=0.01)  # the last poll may come before the end
    assert row["retransmitted_segments"] == pytest.approx(seen["retransmitted_segments"], abs=2)
    assert row["packets"] == pytest.approx(seen["packets"], rel=0.01)
    assert row["goodput_bps"] == pytest.approx(seen["goodput_bps"], rel=0.03)
    assert row["rtt_min_us"] == pytest.approx(seen["rtt_min_us"], rel=0.02)
    assert row["rtt_median_us"] == pytest.approx(seen["rtt_median_us"], rel=0.1)  # smoothed against samples


def test_the_modes_of_bbr_become_a_timeline_without_gaps():
    bbr = CounterFlow(read_file(datasets.path("single_bbr_1bdp", "tcpinfo.csv.zst")), 0)
    spans = bbr_modes(bbr)
    named = [span["mode"] for span in spans if span["mode"]]
    assert named[:3] == ["STARTUP", "DRAIN", "PROBE_BW"]
    assert "PROBE_RTT" in named
    assert all(one["end_s"] == other["start_s"] for one, other in itertools.pairwise(spans))
    assert {"PROBE_BW up", "PROBE_BW down"} <= {name for _, _, name in counter_phases(bbr).spans}
    cubic = CounterFlow(read_file(datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")), 0)
    assert bbr_modes(cubic) == []
    assert counter_phases(cubic).spans == []


def test_goodput_is_over_the_time_in_which_data_arrived():
    acked = [1, 1, 1_000_001, 2_000_001, 2_000_001, 2_000_001]
    rows = "".join(f"{T0 + i}000000000,{value}\n" for i, value in enumerate(acked))
    row = counters("time_ns,tcpi_bytes_acked\n" + rows).row
    assert row["goodput_bps"] == 8_000_000
    assert row["duration_s"] == 5
    assert np.isnan(row["rtt_min_us"])
    assert np.isnan(row["retransmitted_segments"])


def test_a_single_poll_has_no_goodput():
    row = counters(f"time_ns,tcpi_bytes_acked,tcpi_rtt\n{T0}000000000,500001,1000\n").row
    assert np.isnan(row["goodput_bps"])
    assert (row["bytes_sent"], row["rtt_median_us"], row["duration_s"]) == (500_001, 1000, 0)


def test_the_intervals_of_iperf3_add_up():
    streams = [
        {
            "streams": [
                {"socket": 5, "start": i, "end": i + 1, "seconds": 1.0, "bytes": 1_000_000, "retransmits": i, "rtt": 9}
            ]
        }
        for i in range(4)
    ]
    start = {"connected": [{"socket": 5, "local_host": "10.0.0.1", "local_port": 1, "remote_host": "10.0.0.2",
                            "remote_port": 5201}], "timestamp": {"timesecs": T0}}  # fmt: skip
    row = counters(json.dumps({"start": start, "intervals": streams, "end": {}})).row
    assert row["goodput_bps"] == pytest.approx(8_000_000)
    assert (row["bytes_sent"], row["retransmitted_segments"]) == (4_000_000, 6)


def test_a_qlog_tells_goodput_from_its_acknowledged_packets_each_once():
    def packet(number):
        header = {"packet_type": "1RTT", "packet_number": number}
        return {"time": number, "name": "transport:packet_sent", "data": {"header": header, "raw": {"length": 1000}}}

    def ack(time, first, last):
        frames = [{"frame_type": "ack", "acked_ranges": [[first, last]]}]
        header = {"packet_type": "1RTT", "packet_number": 0}
        return {"time": time, "name": "transport:packet_received", "data": {"header": header, "frames": frames}}

    metrics = {"time": 25, "name": "recovery:metrics_updated", "data": {"smoothed_rtt": 20.0, "min_rtt": 19.0}}
    events = [*map(packet, range(10)), ack(20, 0, 3), metrics, ack(1020, 0, 8)]
    row = counters(json.dumps({"qlog_version": "0.3", "traces": [{"events": events}]})).row
    assert row["goodput_bps"] == pytest.approx(5 * 1000 * 8)
    assert (row["packets"], row["segments_sent"], row["bytes_sent"], row["rtt_min_us"]) == (12, 10, 9000, 19_000)


def test_analyze_prints_and_draws_counters_alone(tmp_path, capsys):
    file = datasets.path("single_bbr_1bdp", "tcpinfo.csv.zst")
    assert cli.main(["analyze", str(file), "-o", str(tmp_path), "--json"]) == 0
    output = capsys.readouterr()
    (flow,) = json.loads(output.out)
    assert (flow["controller"], flow["replayed"]) == ("bbr", None)
    assert flow["bbr_modes"][1]["mode"] == "STARTUP"
    assert "without a capture" in output.err
    page = (tmp_path / "report.html").read_text()
    for panel in counter_panels(CounterFlow(read_file(file), 0)):
        assert f"flow0-{panel.name}" in page
    assert "PROBE_RTT" in page
    assert len(pd.read_parquet(tmp_path / "flow0-tcpinfo.parquet")) > 100


def test_analyze_replays_a_controller_over_counters_if_asked_to(tmp_path, capsys):
    file = datasets.path("single_bbr_1bdp", "tcpinfo.csv.zst")
    assert cli.main(["analyze", str(file), "-o", str(tmp_path), "--controller", "bbr2022", "--json"]) == 0
    output = capsys.readouterr()
    (flow,) = json.loads(output.out)
    assert (flow["controller"], flow["replayed"]) == ("bbr", "bbr2022")
    assert flow["agreement"]["bw_5%"] > 0.9
    assert "coarse event stream" in output.err
    assert "bandwidth (replay)" in (tmp_path / "report.html").read_text()
    assert {path.name for path in tmp_path.glob("flow0-*")} == {
        f"flow0-{table}.parquet" for table in ("tcpinfo", "events", "replay", "agreement")
    }


def test_tcp_probe_tells_progress_and_flight_by_sequence_numbers_that_wrap():
    lines = [
        f" x-1 [0] .... {i}.5: tcp_probe: src=10.0.0.1:1 dest=10.0.0.2:2 mark=0 data_len=0 "
        f"snd_nxt=0x{(0xFFFFF000 + 1_000_000 * i + 14480) & 0xFFFFFFFF:x} "
        f"snd_una=0x{(0xFFFFF000 + 1_000_000 * i) & 0xFFFFFFFF:x} snd_cwnd=10 ssthresh=9 snd_wnd=9 srtt=40000 rcv_wnd=9"
        for i in range(4)
    ]
    flow = counters("\n".join(lines))
    row = flow.row
    assert row["goodput_bps"] == 8_000_000
    assert row["bytes_sent"] == 3_000_000
    assert flow.outstanding().tolist() == [10] * 4
    assert len(flow.events.of("on_ack")) == 75  # one per round trip of 40 ms


def test_before_the_first_sample_there_is_no_rtt_of_zero():
    rows = "".join(f"{T0 + i}000000000,{1000 * i + 1},{rtt},40000\n" for i, rtt in enumerate((0, 0, 20_000, 21_000)))
    table = counters("time_ns,tcpi_bytes_acked,bbr_min_rtt_us,tcpi_rtt\n" + rows)
    panel = next(one for one in counter_panels(table) if one.name == "rtt")
    drawn = next(series for series in panel.series if series.label == "min_rtt (BBR)")
    assert np.isnan(drawn.value[:2]).all()
    assert drawn.value[2:].tolist() == [20.0, 21.0]


def test_gigabytes_are_called_so():
    poll = "# {}\nESTAB 0 0 10.0.0.1:80 10.0.0.2:99\n\tcubic rtt:20/1 mss:1448 cwnd:10 bytes_acked:{}\n"
    of = counters("".join(poll.format(T0 + k, k * 2 * 10**9) for k in range(1, 4)))
    (progress,) = (panel for panel in counter_panels(of) if panel.name == "progress")
    assert progress.axis == "Acknowledged (GB)"
    assert progress.upper_limit == pytest.approx(6.0, rel=0.5)


def test_a_flow_without_anything_over_time_has_no_buttons_that_zoom():
    assert '<div class="toolbar" id="flow0-toolbar" hidden>' in _toolbar("flow0", is_shown=False)
    assert '<div class="toolbar" id="flow0-toolbar">' in _toolbar("flow0")
