"""A wrong argument of a plot is named, with its value and what is allowed."""

import re

import pandas as pd
import pytest

import cctrace as cct
from cctrace import plot
from cctrace.analytic import Collapse
from cctrace.errors import ArgumentError

FLOW = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
TABLE = pd.DataFrame({"cc": ["bbr"], "x": [1.0], "y": [2.0]})
COLLAPSE = Collapse(mean_us=5000, sd_us=500, floor_us=75)


@pytest.mark.parametrize(
    ("draw", "named"),
    [
        (lambda: plot.throughput(FLOW, "1s"), "span_s='1s' must be a number of seconds above 0"),
        (lambda: plot.throughput(FLOW, 0), "span_s=0 must be"),
        (lambda: plot.ladder(FLOW, start_s=float("nan")), "start_s=nan must be a number"),
        (lambda: plot.ladder(FLOW, packets=1.5), "packets=1.5 must be an integer from 1 to 200"),
        (lambda: plot.time_sequence(FLOW, end_s="2s"), "end_s='2s' must be a number"),
        (lambda: plot.states(FLOW, start_s=[]), "start_s=[] must be a number"),
        (lambda: plot.rtt(FLOW, over=2), "over=2 is not one of time, sequence"),
        (lambda: plot.queue_ratio("2", [1]), "gain='2' must be a number above 0"),
        (lambda: plot.queue_ratio(2.0, [1, None]), "ratios=None must be numbers above 0"),
        (lambda: plot.collapse_surface(None, [1], [1]), "model=None must be a cctrace.analytic.Collapse"),
        (lambda: plot.collapse_surface(COLLAPSE, "a", [1]), "sd_us='a' must be numbers of microseconds"),
        (lambda: plot.bars(None, "x", "y", "cc"), "table=None must be a DataFrame of one or more rows"),
        (lambda: plot.heatmap(TABLE[:0], "x", "y", "cc"), "must be a DataFrame of one or more rows"),
        (lambda: plot.ellipses(TABLE, "who"), "table has no column 'who'"),
        (lambda: plot.lines(TABLE, "x", ["y"], "cc"), "panels=['y'] must be a list of (column, label)"),
        (lambda: plot.lines(TABLE, "x", [("y", "Y")], "cc", columns=0), "columns=0 must be an integer from 1"),
        (lambda: plot.over_time({}), "series={} must be a dict"),
        (lambda: plot.figure([]), "panels=[] must be one or more of what flow_panels returns"),
        (lambda: plot.flow_panels(FLOW), "must be a FlowView"),
        (lambda: plot.flow_phases(FLOW), "must be a FlowView"),
    ],
)
def test_a_wrong_argument_is_named(draw, named):
    with pytest.raises(ArgumentError, match=re.escape(named)):
        draw()


OF_A_FLOW = [
    plot.segment_sizes, plot.throughput, plot.rtt, plot.windows, plot.ladder, plot.time_sequence, plot.states,
    plot.plot_flow,
]  # fmt: skip


@pytest.mark.parametrize("draw", OF_A_FLOW)
def test_what_is_no_flow_is_told_what_is_needed(draw):
    with pytest.raises(ArgumentError, match="give a flow of a capture, or a simulation with packets=True"):
        draw("capture.pcap")


def test_a_simulated_flow_is_drawn_as_a_captured_one():
    run = cct.simulate(cct.Path(rate="5Mbit", rtt="20ms", buffer="2bdp"), "cubic6", "1s", packets=True)
    assert plot.throughput(run).axes[0].lines
