"""Plots of flows, replays and simulations: `panels` says what is drawn, `flow` about one flow, `figure` draws it."""

from cctrace.plot.figure import figure, plot_flow
from cctrace.plot.panels_of_flow import flow_panels, flow_phases

__all__ = ["figure", "flow_panels", "flow_phases", "plot_flow"]
