"""Throughput over time is what the packets carried, bin by bin; times that users see count from the flow's start."""

import numpy as np
import pytest

import cctrace as cct
from cctrace.analysis.flow_view import FlowView
from cctrace.errors import ArgumentError
from cctrace.flows.counters import CounterFlow
from cctrace.plot.packets import packets_of
from cctrace.plot.panels_of_counters import counter_panels
from cctrace.plot.panels_of_flow import flow_panels
from tests.test_report import lossy_talk


@pytest.fixture(scope="module")
def flow():
    folder = cct.datasets.path("loss_cubic_1pct")
    return cct.read(folder / "sender.pcap.zst").flow(0).attach(cct.read(folder / "tcpinfo.csv.zst"))


@pytest.mark.parametrize("bin_s", [None, 0.25, 3.0])
def test_bins_hold_what_the_packets_carried(flow, bin_s):
    table = flow.throughput(bin_s)
    sent, received = packets_of(flow)
    edges = np.append(table["time_s"], table["time_s"].iloc[-1] + table["span_s"].iloc[-1])
    assert edges[-1] == pytest.approx(flow.row["duration_s"])
    times = (sent.time_ns - flow.row["start_ns"]) / 1e9
    for k, row in enumerate(table.itertuples()):
        within = (times > edges[k]) & (times <= edges[k + 1])
        assert row.sent_bps * row.span_s / 8 == pytest.approx(sent.size[within].sum(), abs=1e-3)
    assert (table["acked_bps"] * table["span_s"]).sum() / 8 == pytest.approx(received.ack.max() - 1, abs=1e-3)
    usual = 1.0 if bin_s is None else bin_s
    assert table["span_s"].iloc[:-1].to_numpy() == pytest.approx(usual)
    assert 0.5 * usual <= table["span_s"].iloc[-1] <= 1.5 * usual


def test_a_segment_sent_again_counts_as_sent_twice_and_acknowledged_once():
    table = lossy_talk().capture().flow(0).throughput(1.0)
    assert len(table) == 1
    bytes_of = (table[["sent_bps", "acked_bps"]].iloc[0] * table["span_s"].iloc[0] / 8).round(3).tolist()
    assert bytes_of == [8 * 1448, 7 * 1448]


@pytest.mark.parametrize("bin_s", [0, -1.0, 1e-9, float("nan"), "x"])
def test_bins_of_no_use_are_refused(flow, bin_s):
    with pytest.raises(ArgumentError, match=f"bin_s={bin_s!r}: must be above 0, in seconds"):
        flow.throughput(bin_s)


def test_counters_tell_the_rate_between_polls(flow):
    counters = CounterFlow(cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")), 0)
    table = counters.throughput()
    acked = counters.values("bytes_acked")
    assert (table["acked_bps"] * table["span_s"]).sum() / 8 == pytest.approx(np.nanmax(acked) - acked[0])
    assert "throughput" in [panel.name for panel in counter_panels(counters)]


def test_every_table_of_a_flow_counts_seconds_from_its_first_packet(flow):
    first_ns = int(flow.row["start_ns"])
    run = cct.replay(flow, "cubic6")
    of_run = run.decisions, run.frame(), run.compare().frame()
    for table in (flow.events.frame(), flow.rtt, flow.sends, flow.retransmissions, *of_run):
        time_ns = table["time_ns"].to_numpy(np.int64)
        assert np.array_equal(table["time_s"], (time_ns - first_ns) / 1e9)
        assert np.array_equal(flow.seconds(table["time_ns"]), table["time_s"])
        assert 0 <= table["time_s"].iloc[0] < 1 < table["time_s"].iloc[-1] < 22
    counters = CounterFlow(cct.read(cct.datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")), 0)
    assert counters.rtt["time_s"].iloc[-1] == counters.seconds(counters.rtt["time_ns"])[-1]


def test_the_drawn_throughput_has_bins_that_can_be_read(flow):
    view = FlowView.of(flow)
    assert view.throughput["span_s"][0] == pytest.approx(0.2)  # 21 s in 200 bins or fewer: 1, 2 or 5 of a decade
    panel = next(panel for panel in flow_panels(view) if panel.name == "throughput")
    assert [series.label for series in panel.series] == ["sent, with retransmissions", "acknowledged"]
    assert panel.series[0].time_s[-1] == pytest.approx(flow.row["duration_s"])
    assert "in each 200 ms" in panel.explanation
