"""Figures of fits: a path with its flow, jitter, and the collapse that it may cause; matplotlib is imported on use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.errors import ArgumentError
from cctrace.extras import needed
from cctrace.fit.goodness import SHARES, product_limit
from cctrace.path.sent import backlog_at, delivered_rate
from cctrace.path.transmissions import LOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cctrace.fit.collapse import Collapse
    from cctrace.fit.components import Components
    from cctrace.fit.fitted_path import FittedPath
    from cctrace.fit.jitter import Jitter
    from cctrace.path.sent import SentPackets
    from cctrace.path.transmissions import Transmissions

LIMITS = 0.25, 3.0  # of the threshold (or of the sds tried), on the sd axis
STEPS = 9
SURFACE_S = "21s"
MAX_POINTS = 6_000
SEEN_COLOUR, FIT_COLOUR, LOST_COLOUR = "#9aa5b1", "#1f5fa8", "#c0392b"


def path_figure(path: FittedPath) -> Figure:
    """Return the figure; see `FittedPath.plot`."""
    if not hasattr(path, "_parts"):
        raise ArgumentError("this path was read from JSON: only what `cctrace.fit.path` returned can be drawn")
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


def _rates(axes: Axes, path: FittedPath, flow: SentPackets) -> None:
    middle, rate, _ = delivered_rate(flow, max(100_000.0, flow.least_rtt_us))
    axes.plot(middle / 1e6, rate * 8, color=SEEN_COLOUR, label="delivered")
    rows = path.estimates["rate_bps"]
    starts = [row["start_s"] for row in rows]
    values = [(row["value"] if row["value"] is not None else row["low"]) / 1e6 for row in rows]
    bounded = "rate" in path.estimates["undetermined"]
    label = "bottleneck, at least" if bounded else "bottleneck"
    axes.step([*starts, middle[-1] / 1e6], [*values, values[-1]], where="post", color=FIT_COLOUR, label=label)
    axes.set_ylim(0, 1.25 * max(*values, float(np.max(rate)) * 8))
    axes.set_ylabel("Mbit/s")


def _delays(axes: Axes, flow: SentPackets, parts: Components) -> None:
    rows = flow.acked[:: max(len(flow.acked) // MAX_POINTS, 1)]
    time = flow.sent_us[rows] / 1e6
    queue_us = flow.departures(parts.steps, parts.tokens_bytes)[rows] - flow.sent_us[rows]
    axes.plot(time, flow.rtt_us[rows] / 1e3, ".", markersize=2, color=SEEN_COLOUR, label="RTT")
    if parts.delays is not None:
        base = parts.base().number
        axes.plot(time, (queue_us + base) / 1e3, color=FIT_COLOUR, linewidth=0.8, label="its queue and the base RTT")
        axes.axhline(base / 1e3, color=FIT_COLOUR, linestyle="--", linewidth=0.8, label="base RTT")
    axes.set_ylim(0, 1.1 * float(np.quantile(flow.rtt_us[rows], 0.999)) / 1e3)
    axes.set_ylabel("ms")


def _queue(axes: Axes, path: FittedPath, table: Transmissions, flow: SentPackets, parts: Components) -> None:
    time_us = (table.sent_ns - table.start_ns) / 1e3
    met = np.maximum(backlog_at(flow, parts.steps, time_us) - parts.tokens_bytes, 0.0) / 1e3
    lost = table.state == LOST
    rows = np.arange(0, len(met), max(len(met) // MAX_POINTS, 1))
    axes.plot(time_us[rows] / 1e6, met[rows], color=SEEN_COLOUR, linewidth=0.8, label="backlog")
    axes.plot(time_us[lost] / 1e6, met[lost], "x", markersize=4, color=LOST_COLOUR, label="met by lost packets")
    buffer = path.estimates["buffer_bytes"]
    if buffer.value is not None:
        axes.axhline(buffer.value / 1e3, color=FIT_COLOUR, linestyle="--", label="buffer")
    axes.set_ylim(0, 1.15 * max(float(met[: int(0.98 * len(met))].max()), (buffer.value or 0) / 1e3, 1.0))
    axes.set_ylabel("kB in the queue")


def _axes(axes: Any, count: int) -> Any:
    plt = needed("matplotlib.pyplot", "plot")
    if axes is None:
        return plt.subplots(1, count, figsize=(4.6 * count, 3.8), layout="constrained")[1]
    return axes


def distribution(fit: Jitter, axes: Sequence[Axes] | None) -> tuple[Axes, Axes]:
    """Draw the distribution of the draws with the fit (left), and a quantile-quantile plot (right).

    `fit`: with the delays that it was fitted to: not read from JSON. Raises `ArgumentError` if the delays are missing,
    or matplotlib is not installed.
    """
    if not hasattr(fit, "_data"):
        raise ArgumentError("a Jitter read from JSON has no delays to draw; draw it where it was fitted")
    left, right = _axes(axes, 2)
    observed = product_limit(fit._data, fit._reverse_hazard)[0] / 1e3
    fitted = fit.predict(SHARES) / 1e3
    left.step(observed, SHARES, where="mid", color="#888888", label="draws, without a family")
    left.plot(fitted, SHARES, color="#c0392b", label=f"{fit.distribution_}, sd {fit.sd_us_.number / 1e3:.3g} ms")
    left.set(xlabel="delay without queue (ms)", ylabel="share of draws below", ylim=(0, 1))
    left.legend(loc="lower right", fontsize=8, frameon=False)
    # The draws say nothing below the smallest observed one.
    inner = (observed > observed[0] + 1e-6) & (SHARES[-1] > SHARES)
    right.plot(fitted[inner], observed[inner], ".", ms=3, color="#2b6a8f")
    ends = [min(fitted[inner][0], observed[inner][0]), max(fitted[-2], observed[-2])]
    right.plot(ends, ends, lw=0.8, color="#888888")
    right.set(xlabel=f"quantiles of the {fit.distribution_} (ms)", ylabel="quantiles of the draws (ms)")
    test = fit.goodness_
    if test is not None:
        title = f"distance of residuals {test.distance:.3f}, p = {test.probability:.2g}"
        right.set_title(title, fontsize=9)
    left.set_title(f"process: {fit.process_.name}", fontsize=9)
    return left, right


def surface(fit: Collapse, controller: str | None = None, axes: Axes | None = None) -> Axes:
    """Draw the share of the link that `controller` gets over jitter sd and delay, with the flow's own point.

    Each of the 81 cells is a run of 21 s; all of them take a few seconds.

    `controller`: by default the first one of the forecast.
    """
    axes = _axes(axes, 1)
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    controller = controller or fit.controllers[0]
    if controller not in fit.forecasts_:
        raise ArgumentError(f"controller is {controller!r}; the forecast is about {', '.join(fit.forecasts_)}")
    forecast = fit.forecasts_[controller]
    threshold = forecast.threshold_sd_us
    middle = next(side for side in threshold if side)
    now = fit.sd_us_.number
    least = min(LIMITS[0] * middle, 0.7 * now) if now > 0.02 * middle else LIMITS[0] * middle
    sds = np.geomspace(least, LIMITS[1] * middle, STEPS)
    delays = fit.base_us_ * np.geomspace(0.5, 2.0, STEPS)
    share = np.array([[fit.share(sd, controller, base, SURFACE_S) for sd in sds] for base in delays])
    mesh = axes.pcolormesh(sds / 1e3, delays / 1e3, share, vmin=0, vmax=1, cmap="RdYlBu", shading="nearest")
    axes.contour(sds / 1e3, delays / 1e3, share, levels=[0.5], colors="k", linewidths=1)
    axes.plot(max(now, sds[0]) / 1e3, fit.base_us_ / 1e3, "*", ms=14, color="k", clip_on=False, label="this flow")
    sides = [side for side in (threshold.low, threshold.high) if side is not None]
    if threshold.value is not None and len(sides) == 2:
        axes.plot(
            np.array(sides) / 1e3, [fit.base_us_ / 1e3] * 2, lw=2.5, color="k", alpha=0.6, label="threshold, 95 %"
        )
    axes.set(xscale="log", yscale="log", xlabel="sd of the jitter (ms)", ylabel="RTT without queue and jitter (ms)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_title(f"{controller}, {fit.rate_bps_.number / 1e6:.3g} Mbit/s, jitter per {fit.process_}", fontsize=9)
    axes.legend(loc="upper left", fontsize=8)
    axes.figure.colorbar(mesh, ax=axes, label="share of the link")
    return axes
