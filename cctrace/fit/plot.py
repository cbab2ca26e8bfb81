"""Figure of a fitted path: deliveries, delays and the backlog at losses, with the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cctrace.errors import ArgumentError
from cctrace.extras import needed
from cctrace.path.bottleneck import backlog_met, delivered_rate, departures
from cctrace.path.transmissions import LOST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cctrace.fit.components import Components
    from cctrace.fit.fitted_path import FittedPath
    from cctrace.path.bottleneck import Sent
    from cctrace.path.transmissions import Transmissions

MOST_POINTS = 6_000
SEEN_COLOUR, FIT_COLOUR, LOST_COLOUR = "#9aa5b1", "#1f5fa8", "#c0392b"


def figure(path: FittedPath) -> Figure:
    """Return the figure; see `FittedPath.plot`."""
    if not hasattr(path, "_parts"):
        raise ArgumentError("this path was read from JSON: only what `cctrace.fit.fitted_path` returned can be drawn")
    table, flow, parts = vars(path)["_parts"]
    drawing = needed("matplotlib.figure", "plot").Figure(figsize=(10, 8), layout="constrained")
    rates, delays, queue = drawing.subplots(3, 1, sharex=True)
    _rates(rates, path, flow)
    _delays(delays, flow, parts)
    _queue(queue, path, table, flow, parts)
    queue.set_xlabel("time (s)")
    for axes in (rates, delays, queue):
        axes.grid(alpha=0.3)
        axes.legend(loc="upper right", fontsize="small")
    drawing.suptitle(path.summary().splitlines()[0])
    return drawing


def _rates(axes: Axes, path: FittedPath, flow: Sent) -> None:
    middle, rate, _ = delivered_rate(flow, max(100_000.0, flow.least_rtt_us))
    axes.plot(middle / 1e6, rate * 8, color=SEEN_COLOUR, label="delivered")
    rows = path.estimates["rate_bps"]
    starts = [row["start_s"] for row in rows]
    values = [(row["value"] if row["value"] is not None else row["low"]) / 1e6 for row in rows]
    bounded = "rate" in path.estimates["unseen"]
    label = "bottleneck, at least" if bounded else "bottleneck"
    axes.step([*starts, middle[-1] / 1e6], [*values, values[-1]], where="post", color=FIT_COLOUR, label=label)
    axes.set_ylim(0, 1.25 * max(*values, float(np.max(rate)) * 8))
    axes.set_ylabel("Mbit/s")


def _delays(axes: Axes, flow: Sent, parts: Components) -> None:
    rows = flow.acked[:: max(len(flow.acked) // MOST_POINTS, 1)]
    time = flow.sent_us[rows] / 1e6
    own = departures(flow.sent_us, flow.wire_bytes, parts.steps)[rows] - flow.sent_us[rows]
    axes.plot(time, flow.rtt_us[rows] / 1e3, ".", markersize=2, color=SEEN_COLOUR, label="RTT")
    if parts.delays is not None:
        base = parts.base().number
        axes.plot(time, (own + base) / 1e3, color=FIT_COLOUR, linewidth=0.8, label="its queue and the base RTT")
        axes.axhline(base / 1e3, color=FIT_COLOUR, linestyle="--", linewidth=0.8, label="base RTT")
    axes.set_ylim(0, 1.1 * float(np.quantile(flow.rtt_us[rows], 0.999)) / 1e3)
    axes.set_ylabel("ms")


def _queue(axes: Axes, path: FittedPath, table: Transmissions, flow: Sent, parts: Components) -> None:
    time_us = (table.sent_ns - table.start_ns) / 1e3
    met, lost = backlog_met(flow, parts.steps, time_us) / 1e3, table.state == LOST
    rows = np.arange(0, len(met), max(len(met) // MOST_POINTS, 1))
    axes.plot(time_us[rows] / 1e6, met[rows], color=SEEN_COLOUR, linewidth=0.8, label="backlog")
    axes.plot(time_us[lost] / 1e6, met[lost], "x", markersize=4, color=LOST_COLOUR, label="met by lost packets")
    buffer = path.estimates["buffer_bytes"]
    if buffer.value is not None:
        axes.axhline(buffer.value / 1e3, color=FIT_COLOUR, linestyle="--", label="buffer")
    axes.set_ylim(0, 1.15 * max(float(met[: int(0.98 * len(met))].max()), (buffer.value or 0) / 1e3, 1.0))
    axes.set_ylabel("kB in the queue")
