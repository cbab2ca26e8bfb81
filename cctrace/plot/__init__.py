"""Plots of flows, replays and simulations (content in `panels…`, drawn by `figure`), of tables, and as in papers."""

from cctrace.plot.figure import figure, plot_flow
from cctrace.plot.of_flow import one_way_delays, rtt, segment_sizes, throughput, windows
from cctrace.plot.of_ladder import ladder
from cctrace.plot.of_papers import collapse_surface, queue_ratio, time_sequence
from cctrace.plot.of_runs import samples
from cctrace.plot.of_samples import boxes, cdf, qq
from cctrace.plot.of_tables import bars, ellipses, heatmap, lines, over_time
from cctrace.plot.panels_of_flow import flow_panels, flow_phases
from cctrace.plot.states import states

__all__ = ["bars", "boxes", "cdf", "collapse_surface", "ellipses", "figure", "flow_panels", "flow_phases", "heatmap",
           "ladder", "lines", "one_way_delays", "over_time", "plot_flow", "qq", "queue_ratio", "rtt", "samples",
           "segment_sizes", "states", "throughput", "time_sequence", "windows"]  # fmt: skip
