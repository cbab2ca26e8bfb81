"""Plots of tables: what is asked for is drawn, and a missing column is named."""

import numpy as np
import pandas as pd
import pytest

import cctrace as cct
from cctrace.errors import ArgumentError

TABLE = pd.DataFrame(
    {
        "rate": [10, 10, 50, 50] * 2,
        "rtt": [5, 20, 5, 20] * 2,
        "cc": ["a"] * 4 + ["b"] * 4,
        "loss": [0.1, 0.2, 0.3, 0.4, 0.0, -0.1, -0.4, 0.2],
        "loss_sd": [0.01] * 8,
    }
)


def test_a_heatmap_writes_every_number_into_its_square():
    drawing = cct.plot.heatmap(TABLE, "rtt", "rate", "loss", by="cc", centre=0.0)
    panels = drawing.axes[:2]
    assert [axes.get_title() for axes in panels] == ["a", "b"]
    assert [text.get_text() for text in panels[0].texts] == ["0.1", "0.3", "0.2", "0.4"]
    low, high = panels[0].images[0].get_clim()
    assert low == -high  # colours diverge from the centre


def test_lines_share_an_axis_that_shows_all_of_them():
    drawing = cct.plot.lines(TABLE, "rate", [("loss", "loss")], "rtt", panel_by="cc")
    above, below = drawing.axes
    assert above.get_ylim() == below.get_ylim()
    assert above.get_ylim()[1] >= 0.4


def test_ellipses_stand_at_their_means_with_delay_growing_to_the_left():
    rows = pd.DataFrame(
        {
            "cc": ["a", "b"],
            "delay": [1.0, 4.0],
            "throughput": [0.8, 1.0],
            "delay_spread": [0.2, 1.0],
            "throughput_spread": [0.1, 0.1],
            "delay_p95": [2.0, 9.0],
        }
    )
    (axes,) = cct.plot.ellipses(rows).axes
    left, right = axes.get_xlim()
    assert left > right
    means = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_label() in ("a", "b")]
    assert means == [(1.0, 0.8), (4.0, 1.0)]


def test_bars_and_curves_are_drawn_for_every_name():
    assert len(cct.plot.bars(TABLE[TABLE.cc == "a"], "rate", "loss", "rtt").axes[0].patches) == 4
    drawing = cct.plot.over_time(
        {"one": [([0, 1], [1, 2], "x", {})], "two": [([0, 1], [2, 1], "x", {"right": True})]}, right="y"
    )
    assert [axes.get_title() for axes in drawing.axes if axes.get_title()] == ["one", "two"]


def test_a_missing_column_is_named():
    with pytest.raises(ArgumentError, match="table has no column 'lost'; there are: rate, rtt, cc, loss, loss_sd"):
        cct.plot.lines(TABLE, "rate", [("lost", "")], "cc")


def test_several_rows_of_a_bar_are_its_mean_and_spread():
    table = pd.DataFrame({"cc": ["a", "a", "b", "a"], "buffer": [1, 1, 1, 2], "mbps": [9.0, 11.0, 3.0, 5.0]})
    (axes,) = cct.plot.bars(table, "buffer", "mbps", "cc").axes
    heights = [patch.get_height() for patch in axes.patches]
    assert heights[:3] == [10.0, 5.0, 3.0]
    spans = [segment[:, 1] for lines in axes.collections for segment in lines.get_segments() if segment.size]
    low, high = next(span for span in spans if not np.isnan(span).any())
    assert high - low == pytest.approx(2 * np.sqrt(2))  # a standard deviation to either side


def test_a_logarithmic_axis_is_labelled_where_it_was_measured():
    runs = pd.DataFrame({"cc": "bbr", "buffer": [0.5, 1.0, 4.0], "share": [0.9, 0.8, 0.4]})
    drawing = cct.plot.lines(runs, "buffer", [("share", "Share", {"logx": True})], "cc")
    drawing.canvas.draw()  # for matplotlib 3.9 the places of error bars are objects
    assert [label.get_text() for label in drawing.axes[0].get_xticklabels()] == ["0.5", "1", "4"]
