"""Graphs of one flow show what the capture holds: sizes, rates, RTTs, windows, delays, packets one by one."""

import numpy as np
import pytest

import cctrace as cct
from cctrace import datasets, plot
from cctrace.analysis.flow_view import FlowView
from cctrace.cli import main
from cctrace.errors import ArgumentError
from cctrace.plot.packets import packets_of
from tests.test_report import lossy_talk

RECORDING = "loss_cubic_1pct"


def line(axes, label):
    return next(one for one in axes.lines if one.get_label() == label)


def test_every_size_is_counted_as_often_as_it_was_sent():
    talk = lossy_talk().capture().flow(0)
    over_time, often = plot.segment_sizes(talk).axes
    sizes = packets_of(talk)[0].size
    ends = {int(segment[0][1]): int(segment[1][0]) for segment in often.collections[0].get_segments()}
    assert ends == {size: int((sizes == size).sum()) for size in np.unique(sizes[sizes > 0])}
    assert len(line(over_time, "retransmitted").get_ydata()) == 1


def test_the_throughput_is_the_mean_of_what_came_within_the_span(flow):
    (axes,) = plot.throughput(flow, 2.0).axes
    sent, received = packets_of(flow)
    time_s = (sent.time_ns - flow.row["start_ns"]) / 1e9
    drawn = line(axes, "sent, with retransmissions")
    for k in (30, 400, 999):
        at = drawn.get_xdata()[k]
        inside = (time_s <= at) & (time_s >= max(at - 2.0, 0))
        assert drawn.get_ydata()[k] == pytest.approx(8e-6 * sent.size[inside].sum() / min(at, 2.0))
    whole = line(axes, "acknowledged, since the start").get_ydata()[-1]
    assert whole == pytest.approx(8e-6 * (received.ack.max() - 1) / flow.row["duration_s"], rel=0.01)
    with pytest.raises(ArgumentError, match="span_s=0 must be a number of seconds above 0"):
        plot.throughput(flow, 0)


@pytest.mark.parametrize("over", ["time", "sequence"])
def test_rtts_reach_from_the_least_to_the_largest(flow, over):
    (points,) = plot.rtt(flow, over).axes[0].lines
    samples = flow.rtt["rtt_us"] / 1e3
    assert (points.get_ydata().min(), points.get_ydata().max()) == (samples.min(), samples.max())
    assert points.get_xdata()[-1] == pytest.approx(21.348 if over == "time" else 8.5707, rel=0.01)
    with pytest.raises(ArgumentError, match="over='packets' is not one of time, sequence"):
        plot.rtt(flow, "packets")


def test_bytes_out_are_those_sent_and_not_acknowledged():
    talk = lossy_talk().capture().flow(0)
    (axes,) = plot.windows(talk).axes
    assert line(axes, "bytes out").get_ydata().max() == pytest.approx(5 * 1.448)
    assert line(axes, "receive window").get_ydata().max() == pytest.approx(packets_of(talk)[1].window.max() / 1e3)


def test_delays_of_both_ways_are_half_of_the_rtt_on_a_symmetric_path(flow):
    other = cct.read(datasets.path(RECORDING, "receiver.pcap.zst")).flow(0)
    segments, acks = plot.one_way_delays(flow, other).axes[0].lines
    assert np.median(segments.get_ydata()) == pytest.approx(20.3, abs=0.5)
    assert np.median(acks.get_ydata()) == pytest.approx(20.3, abs=0.5)


def test_a_ladder_has_an_arrow_per_packet_from_the_end_that_sent_it():
    talk = lossy_talk().capture().flow(0)
    (axes,) = plot.ladder(talk, packets=16).axes
    texts = [text.get_text() for text in axes.texts]
    assert len(axes.patches) == 16
    assert [text for text in texts if text.startswith("frame")] == [f"frame {k}" for k in range(1, 17)]
    assert "1,449 to 2,897 (1,448 B), retransmitted" in texts
    assert sum("SACK" in text for text in texts) == 3
    with pytest.raises(ArgumentError, match="packets=0 must be an integer from 1 to 200"):
        plot.ladder(talk, packets=0)
    with pytest.raises(ArgumentError, match="start_s=9: no packet from then on"):
        plot.ladder(talk, 9)


def test_equal_quantiles_lie_on_the_diagonal():
    values = np.random.default_rng(1).normal(size=4000)
    (axes,) = plot.qq({"a": values, "b": values + 1}, against="a").axes
    drawn = line(axes, "b")
    assert drawn.get_ydata() == pytest.approx(drawn.get_xdata() + 1)
    from scipy import stats

    drawn = line(plot.qq({"a": values}, against=stats.norm()).axes[0], "a")
    assert np.abs(drawn.get_ydata() - drawn.get_xdata()).max() < 0.3
    with pytest.raises(ArgumentError, match="against='c': one of two or more groups; there are a, b"):
        plot.qq({"a": values, "b": values}, against="c")


def test_the_command_draws_a_graph_of_a_part_and_refuses_what_has_none(tmp_path, capsys):
    file, drawn = str(datasets.path(RECORDING, "sender.pcap.zst")), tmp_path / "drawn.svg"
    assert main(["plot", "flow", "time-sequence", file, "--from", "2s", "--to", "2.2s", "-o", str(drawn)]) == 0
    assert drawn.read_text().startswith("<?xml")
    assert main(["plot", "flow", "windows", file, "--from", "2s", "-o", str(drawn)]) == 2
    assert "--from, --to: windows is drawn of the whole flow" in capsys.readouterr().err


def test_a_simulation_is_drawn_as_a_capture_of_it_would_be():
    path = cct.Path(rate="10Mbit", rtt="20ms")
    sim = cct.simulate(path, ["reno", "cubic6"], "2s", seed=1, packets=True)
    drawn, captured = cct.plot_flow(sim, index=1), cct.plot_flow(sim.capture().flow(1))
    assert [axes.get_title(loc="left") for axes in drawn.axes] == [a.get_title(loc="left") for a in captured.axes]
    assert np.array_equal(drawn.axes[1].lines[0].get_ydata(), captured.axes[1].lines[0].get_ydata())
    with pytest.raises(ArgumentError, match="flow=2: the simulation has 2"):
        cct.plot_flow(sim, index=2)
    with pytest.raises(ArgumentError, match=r"kept no packets; run simulate\(..., packets=True\)"):
        cct.plot_flow(cct.simulate(path, "reno", "1s"))


def test_a_replay_that_recorded_too_little_is_refused_with_what_to_record(flow):
    with pytest.raises(ArgumentError, match=r'did not record lt_use_bw.*replay with record="all"'):
        cct.plot_flow(flow, cct.replay(flow, "bbr2022"))


def test_the_lines_among_the_data_in_flight_are_told_apart_by_colour():
    flow = cct.read(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst")).flow(0)
    run = cct.replay(flow, "bbr2022", record="all")
    (panel,) = [one for one in plot.flow_panels(FlowView.of(flow, run), packets_of(flow)) if one.name == "in_flight"]
    colours = {one.label.partition(" (")[0]: one.colour for one in panel.series}
    assert {"BDP", "receive window", "cwnd", "in flight"} <= set(colours)
    assert len(set(colours.values())) == len(colours)
