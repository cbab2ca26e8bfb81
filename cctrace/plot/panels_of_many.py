"""The panels that compare flows of one capture: throughput and delay of each."""

from collections.abc import Mapping

import numpy as np

from cctrace.analysis.flow_view import FlowView
from cctrace.columns import Values
from cctrace.plot.panels import Panel, Series

COMPARED = 8  # flows, as many as there are colours that are distinguishable with colour blindness
_SPANS = 300  # time bins over which a rate is taken
_SHORTEST_S = 0.1


def comparison_panels(views: Mapping[str, FlowView], aligned: bool = False) -> tuple[list[Panel], int, float]:
    """Return the panels that compare flows, the zero of their time axis (ns since the epoch), and their duration, s.

    `views`: by the name that the legend shows; at most `COMPARED`. `aligned`: lay them over each other as if all had
    begun at once; else the axis begins with the first flow.
    """
    start_ns = min(view.start_ns for view in views.values())
    starts = {name: view.start_ns if aligned else start_ns for name, view in views.items()}
    duration_s = max(int(view.events["time_ns"][-1]) - starts[name] for name, view in views.items()) / 1e9
    edges = np.linspace(0, duration_s, max(2, min(_SPANS, int(duration_s / _SHORTEST_S)) + 1))
    rates = {name: _rate(view, starts[name], edges, np.nan if aligned else 0.0) for name, view in views.items()}
    together = np.nansum(list(rates.values()), axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {name: 100 * rate / together for name, rate in rates.items()}
    queues = {name: _queue(view, starts[name]) for name, view in views.items()}
    lasts = f"over spans of {1000 * (edges[1] - edges[0]):.0f} ms"
    panels = [
        _panel(
            "goodput",
            "Goodput of each flow",
            f"How fast data were acknowledged, {lasts}.",
            "Goodput (Mbit/s)",
            {name: (edges[:-1], rate) for name, rate in rates.items()},
        ),
        _panel(
            "shares",
            "Shares",
            f"Each flow's share of the goodput of all of them, {lasts}.",
            "Share (%)",
            {name: (edges[:-1], share) for name, share in shares.items()},
        ),
        _panel(
            "queue",
            "Queueing delay of each flow",
            "Smoothed RTT above the lowest one of the same flow. Flows that share a bottleneck see the same "
            "queue; a flow whose lowest RTT already includes a queue shows less of it.",
            "RTT above the lowest (ms)",
            queues,
        ),
    ]
    return panels, start_ns, duration_s


def _panel(name: str, title: str, explanation: str, axis: str, curves: Mapping[str, tuple[Values, Values]]) -> Panel:
    series = [
        Series(label, time_s, values, f"flow{i}", "steps") for i, (label, (time_s, values)) in enumerate(curves.items())
    ]
    return Panel(name, title, explanation, axis, series)


def _rate(view: FlowView, start_ns: int, edges: Values, ended: float) -> Values:
    """Return the rate at which data were acknowledged between the edges (s), Mbit/s; `ended` after the flow."""
    time_s = (view.events["time_ns"] - start_ns) / 1e9
    acked = np.interp(edges, time_s, view.events["snd_una"].astype(np.float64))
    return np.where(edges[:-1] < time_s[-1], np.diff(acked) * 8e-6 / np.diff(edges), ended)


def _queue(view: FlowView, start_ns: int) -> tuple[Values, Values]:
    acks = view.acks
    known = acks["srtt_us8"] > 0
    samples = acks["rs_rtt_us"][acks["rs_rtt_us"] > 0]
    lowest_ms = samples.min() / 1e3 if len(samples) else np.nan
    return (acks["time_ns"][known] - start_ns) / 1e9, acks["srtt_us8"][known] / 8e3 - lowest_ms
