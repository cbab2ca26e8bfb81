"""Plots of flows, replays and simulations (`panels…` say what, `figure` draws it) and of tables (`of_tables`)."""

from cctrace.plot.figure import figure, plot_flow
from cctrace.plot.of_tables import bars, ellipses, heatmap, lines, over_time
from cctrace.plot.panels_of_flow import flow_panels, flow_phases

__all__ = ["bars", "ellipses", "figure", "flow_panels", "flow_phases", "heatmap", "lines", "over_time", "plot_flow"]
