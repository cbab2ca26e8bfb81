"""Panels show what the tables hold, in readable units, and thinning them loses no extreme."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cctrace
from cctrace import datasets
from cctrace.analysis.flow_view import FlowView
from cctrace.errors import ArgumentError
from cctrace.flows.packed import EventColumns
from cctrace.plot import figure, flow_panels, flow_phases
from cctrace.plot.panels import COLOURS, Panel, Phases, Series, decimate
from cctrace.plot.panels_of_flow import delivery_rate_bps
from cctrace.plot.states import lanes, states
from tests.build_view import MSS, RATE_BPS, flow_view


def panel_of(view, name):
    return next(panel for panel in flow_panels(view) if panel.name == name)


def series_of(panel, label):
    return next(series for series in panel.series if series.label.startswith(label))


def test_a_replayed_flow_with_kernel_data_has_all_panels_and_a_captured_one_those_it_has_data_for():
    assert [p.name for p in flow_panels(flow_view())] == ["progress", "rtt", "in_flight", "rates", "gains"]
    bare = flow_panels(flow_view(model=False, kernel=False))
    assert [p.name for p in bare] == ["progress", "rtt", "in_flight", "rates"]
    assert not any("replay" in s.label or "kernel" in s.label for p in bare for s in p.series)


def test_values_are_in_the_unit_the_axis_names():
    view = flow_view()
    assert panel_of(view, "rtt").axis == "RTT (ms)"
    assert series_of(panel_of(view, "rtt"), "RTT samples").value.min() == 40.0
    rates = panel_of(view, "rates")
    assert rates.axis == "Rate (Mbit/s)"
    assert series_of(rates, "bandwidth estimate").value[0] == RATE_BPS / 1e6
    assert series_of(rates, "pacing rate (replay)").value[-1] == 1.25 * RATE_BPS / 1e6
    in_flight = panel_of(view, "in_flight")
    assert in_flight.axis == "In flight (kB)"
    assert series_of(in_flight, "in flight").value[5] == 35 * MSS / 1e3
    assert series_of(in_flight, "cwnd (kernel)").value[5] == 70 * MSS / 1e3
    assert series_of(in_flight, "BDP").value[-1] == pytest.approx(RATE_BPS / 8 * 0.04 / 1e3)
    assert panel_of(view, "progress").axis == "Sequence number (MB)"


def test_times_keep_microseconds_although_epoch_nanoseconds_do_not_fit_a_float():
    view = flow_view()
    steps = np.diff(panel_of(view, "progress").series[0].time_s)
    assert steps == pytest.approx(np.full(len(steps), 2 / 1999), abs=1e-8)


def test_what_the_kernel_or_the_controller_does_not_know_yet_is_not_drawn():
    view = flow_view()
    assert np.isnan(series_of(panel_of(view, "rtt"), "min_rtt (kernel)").value[0])
    assert np.isnan(series_of(panel_of(view, "rates"), "pacing rate (replay)").value[0])
    assert np.isnan(delivery_rate_bps(view.acks)[::10]).all()


def test_the_flows_own_bdp_stands_in_where_no_controller_estimates_one():
    bdp = series_of(panel_of(flow_view(model=False), "in_flight"), "BDP (95 %").value
    assert bdp == pytest.approx([RATE_BPS / 8 * 0.04 / 1e3] * 2, rel=1e-3)


def test_a_flow_without_any_sample_can_still_be_drawn():
    view = flow_view(model=False, kernel=False)
    events = view.events.rows
    for column, missing in {"rs_rtt_us": -1, "rs_interval_us": -1, "rs_delivered": -1, "srtt_us8": 0}.items():
        events[column] = missing
    panels = flow_panels(replace(view, events=EventColumns.of(events), retransmissions=None))
    assert not np.isfinite(series_of(panels[1], "RTT samples").value).any()
    figure(panels)


def test_phases_are_joined_and_last_until_the_next_begins():
    spans = flow_phases(flow_view()).spans
    assert [name for *_, name in spans] == ["STARTUP", "DRAIN", "PROBE_BW"]
    assert spans[0][0] == 0
    assert all(end == start for (_, end, _), (start, _, _) in itertools.pairwise(spans))
    assert spans[-1][1] == pytest.approx(2.0)
    assert flow_phases(flow_view(model=False)).spans == []
    assert Phases.from_names(np.zeros(0), []).spans == []


def test_a_few_absurd_samples_do_not_flatten_a_panel():
    samples = np.full(10_000, 10.0)
    samples[:5] = 5000.0
    panel = Panel("p", "", "", "", [Series("s", np.arange(10_000.0), samples, "observed", "points")])
    assert panel.upper_limit < 11
    line = replace(panel, series=[replace(panel.series[0], kind="line")])
    assert line.upper_limit > 5000


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), max_size=400), st.integers(1, 20))
def test_thinning_keeps_the_ends_and_every_spans_extremes(values, buckets):
    values = np.array(values)
    time_s = np.linspace(0, 1, len(values))
    thin_time, thin = decimate(time_s, values, buckets)
    kept = np.isfinite(values)
    assert len(thin) <= max(4 * buckets, 0) or len(thin) == kept.sum()
    assert (np.diff(thin_time) >= 0).all()
    if kept.any():
        assert (thin.min(), thin.max()) == (values[kept].min(), values[kept].max())
        assert (thin_time[0], thin_time[-1]) == (time_s[kept][0], time_s[kept][-1])


def test_a_spike_of_one_sample_among_a_million_survives_thinning():
    values = np.zeros(1_000_000)
    values[123_457] = 1.0
    time_s, thin = decimate(np.arange(1e6), values, 500)
    assert time_s[thin == 1.0].tolist() == [123_457.0]


def test_every_series_has_a_colour_with_a_meaning():
    assert {s.colour for p in flow_panels(flow_view()) for s in p.series} <= set(COLOURS)


def test_the_figure_has_one_axes_per_panel_with_title_unit_and_legend(tmp_path):
    view = flow_view()
    drawing = figure(flow_panels(view), flow_phases(view), "10.0.0.1:1 → 10.0.0.2:2")
    assert len(drawing.axes) == 5
    for axes, panel in zip(drawing.axes, flow_panels(view), strict=True):
        assert axes.get_ylabel() == panel.axis
        assert [text.get_text() for text in axes.get_legend().get_texts()] == [s.label for s in panel.series]
    drawing.savefig(tmp_path / "figure.png", dpi=40)
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def cubic():
    flow = cctrace.read(datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    return flow.attach(cctrace.read(datasets.path("loss_cubic_1pct", "tcpinfo.csv.zst")))


def test_retransmissions_are_the_packets_the_recorder_dropped(cubic):
    """The recorder wrote down which packet it dropped; each was sent again, once, and nothing else was."""
    drops = pd.read_csv(datasets.path("loss_cubic_1pct", "drops.csv.zst"))
    sent_again = cubic.retransmissions
    isn = cubic.facts["isn"]
    assert sorted(sent_again["seq"]) == sorted((drops["tcp_seq"] - isn) % 2**32)
    assert (sent_again["time_ns"] > drops["time_ns"].min()).all()


def test_retransmissions_are_found_across_the_wrap_of_sequence_numbers(cubic):
    shifted = copy.copy(cubic.capture.packets)
    shifted.columns = dict(shifted.columns)
    rows = shifted["direction"] == cubic.capture.connections.sender[0]
    by = np.uint32(2**32 - 1_000_000 - cubic.facts["isn"])  # wraps after 1 MB
    shifted.columns["seq"] = np.where(rows, shifted["seq"] + by, shifted["seq"])
    shifted.columns["ack"] = np.where(rows, shifted["ack"], shifted["ack"] + by)
    shifted.sacks = {name: edge + by for name, edge in shifted.sacks.items()}
    assert cctrace.Capture(shifted).flow(0).retransmissions["seq"].tolist() == cubic.retransmissions["seq"].tolist()


def test_a_flow_is_drawn_in_one_call(cubic):
    drawing = cctrace.plot_flow(cubic)
    assert drawing.get_suptitle() == "10.99.0.1:40001 → 10.99.0.2:5001"
    titles = [axes.get_title(loc="left").partition(":")[0] for axes in drawing.axes]
    assert titles[:3] == ["Progress", "Throughput over time", "Round-trip time"]
    assert len(titles) == 5


def test_a_notebook_shows_a_figure_without_any_magic():
    """IPython asks an object for its picture; to matplotlib's own figures it has no answer before pyplot is set up."""
    png = figure(flow_panels(flow_view()), flow_phases(flow_view()), "a flow")._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 10_000


def test_states_over_time_are_the_controllers_modes_and_tcps(cubic):
    mode, tcp = lanes(FlowView.of(cubic, cctrace.replay(cubic, "cubic", record="all")))
    assert (mode.label, tcp.label) == ("mode", "TCP")
    assert [name for _, _, name in mode.phases.spans][:2] == ["slow start", "congestion avoidance"]
    events = cubic.events.rows
    last = (int(events["time_ns"][-1]) - int(cubic.row["start_ns"])) / 1e9
    recovering = sum(end - start for start, end, name in tcp.phases.spans if name == "Recovery")
    between = np.diff(events["time_ns"].astype(np.int64))[events["ca_state"][1:] == 3]
    assert recovering == pytest.approx(between.sum() / 1e9, rel=0.05)
    assert 0 < recovering < last
    assert {name for _, _, name in tcp.phases.spans} == {"Open", "Disorder", "Recovery"}


def test_states_are_drawn_with_gains_where_there_are_any_and_a_part_must_hold_something(cubic):
    flow = cctrace.read(datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0)
    drawn = states(flow, cctrace.replay(flow, "bbr", record="all"), 0, 3)
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["mode", "TCP"]
    assert [line.get_label() for line in drawn.axes[1].lines] == ["pacing gain (replay)", "cwnd gain (replay)"]
    assert len(states(cubic).axes) == 1
    with pytest.raises(ArgumentError, match="start_s=30, end_s=None: nothing lies between"):
        states(cubic, start_s=30)


def test_marks_are_a_lane_and_a_panel_with_alpha_where_they_are_counted_and_neither_without_marks():
    path = cctrace.Path(rate="10Mbit", rtt="20ms", buffer="4bdp", ecn_threshold="12kB")
    shown = {}
    for ecn in (False, "classic", "accurate"):
        sim = cctrace.simulate(path, cctrace.Sender("reno", ecn=ecn), "4s", seed=1, packets=True)
        flow = sim.capture().flow(0)
        view = FlowView.of(flow)
        panel = next((one for one in flow_panels(view) if one.name == "marks"), None)
        lane = {one.label: one.phases.spans for one in lanes(view)}.get("ECN")
        shown[ecn] = panel and [series.label for series in panel.series]
        assert (lane is None) == (panel is None) == (not ecn)
        if lane is not None:
            reported = sum(name == "marks" for _, _, name in lane)
            assert 0 < reported <= flow.ecn.delivered_ce
    assert shown == {
        False: None,
        "classic": ["acknowledged with ECE"],
        "accurate": ["marked", "alpha (DCTCP’s average)"],
    }
