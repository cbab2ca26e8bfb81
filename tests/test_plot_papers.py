"""Figures of papers show the numbers they are given: packets, distributions, boxes, fixed points."""

import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace import plot
from cctrace.errors import ArgumentError
from tests.test_report import lossy_talk


def test_the_time_sequence_graph_has_every_segment_ack_and_block():
    (axes,) = plot.time_sequence(lossy_talk().capture().flow(0)).axes
    drawn = {collection.get_label(): len(collection.get_segments()) for collection in axes.collections}
    assert drawn == {"segments": 9, "retransmitted": 1, "SACK": 3}
    acknowledged = next(line for line in axes.lines if line.get_label() == "acknowledged")
    assert acknowledged.get_ydata()[-1] == pytest.approx(10137 / 1e6)
    assert "window edge" in [line.get_label() for line in axes.lines]


def test_of_a_part_only_its_packets_are_drawn_and_an_empty_one_is_refused():
    flow = lossy_talk().capture().flow(0)
    (axes,) = plot.time_sequence(flow, 0.08, 0.1).axes
    assert [len(c.get_segments()) for c in axes.collections if c.get_label() == "retransmitted"] == [1]
    assert axes.get_xlim()[0] > 0.07
    with pytest.raises(ArgumentError, match=r"start_s=5, end_s=6: no packet there; the flow lasts"):
        plot.time_sequence(flow, 5, 6)


def test_packets_too_many_to_draw_one_by_one_are_drawn_as_what_they_cover(monkeypatch):
    flow = lossy_talk().capture().flow(0)
    (every,) = plot.time_sequence(flow).axes
    monkeypatch.setattr("cctrace.plot.of_papers._MOST", 5)
    monkeypatch.setattr("cctrace.plot.of_papers._SPANS", 3)
    (thinned,) = plot.time_sequence(flow).axes
    bars, covered = (next(c for c in axes.collections if c.get_label() == "segments") for axes in (every, thinned))
    assert len(covered.get_segments()) <= 3 < len(bars.get_segments())
    ends = [np.concatenate(one.get_segments())[:, 1] for one in (bars, covered)]
    assert (ends[0].min(), ends[0].max()) == (ends[1].min(), ends[1].max())


def test_a_cdf_goes_from_none_to_one_and_leaves_out_what_is_not_finite():
    (axes,) = plot.cdf({"a": [3, 1, np.nan, 2], "b": [5.0]}).axes
    line = axes.lines[0]
    assert line.get_xdata().tolist() == [1, 1, 2, 3]
    assert line.get_ydata().tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    with pytest.raises(ArgumentError, match="'b' has no finite values"):
        plot.cdf({"a": [1], "b": [np.nan]})


def test_a_box_has_its_median_and_whiskers_at_the_percentiles():
    values = np.arange(1, 102)
    (axes,) = plot.boxes({"run": values}, ylabel="Goodput (Mbit/s)").axes
    heights = {round(float(y), 3) for line in axes.lines for y in line.get_ydata()}
    assert {51.0, 6.0, 96.0} <= heights
    assert "5 and 95 %" in axes.get_ylabel()


def test_the_fixed_point_lies_on_both_curves():
    (axes,) = plot.queue_ratio(2, [4, 16]).axes
    rest, curve, point = axes.lines[:3]
    (p,), (q,) = point.get_xdata(), point.get_ydata()
    assert p == pytest.approx((4 - 1) / 8)
    assert np.interp(p, curve.get_xdata(), curve.get_ydata()) == pytest.approx(q, abs=1e-3)
    assert np.interp(p, rest.get_xdata(), rest.get_ydata()) == pytest.approx(q)


def test_the_collapse_surface_marks_the_capture_and_where_it_is_one_in_two():
    model = cct.analytic.Collapse(mean_us=5000, sd_us=500, floor_us=75)
    drawing = plot.collapse_surface(model, np.linspace(100, 2000, 30), [0, 500, 1000], here=(656, 0))
    axes = drawing.axes[0]
    assert axes.lines[0].get_xdata() == [0.656]
    edge = np.concatenate([path.vertices for path in axes.collections[1].get_paths()])
    assert edge[np.argmin(edge[:, 1]), 0] == pytest.approx(0.656, abs=0.05)


def test_an_axis_of_whole_numbers_has_no_ticks_between_them():
    table = pd.DataFrame({"flows": [1, 2, 3], "mbps": [9.4, 3.2, 1.1], "cc": "bbr"})
    for axes in plot.lines(table, "flows", [("mbps", "a"), ("mbps", "b")], "cc").axes:
        low, high = axes.get_xlim()
        assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1, 2, 3]
    (axes,) = plot.lines(table.assign(flows=table.flows / 2), "flows", [("mbps", "")], "cc").axes
    assert (axes.get_xticks() % 1 > 0).any()


def test_bars_below_zero_are_seen():
    table = pd.DataFrame({"bin": ["a", "b"], "gain": [-2.0, 1.0], "table": ["learned", "learned"]})
    (axes,) = plot.bars(table, "bin", "gain", "table").axes
    assert axes.get_ylim()[0] < -2.0
    (axes,) = plot.bars(table.assign(gain=1.0), "bin", "gain", "table").axes
    assert axes.get_ylim()[0] == 0.0
