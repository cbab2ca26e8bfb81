"""Panels as a matplotlib figure, for notebooks and papers."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.analysis.flow_view import FlowView
from cctrace.arguments import check_argument, short_repr, text_of
from cctrace.display import connection
from cctrace.errors import ArgumentError
from cctrace.extras import needed
from cctrace.path.transmissions import as_flow
from cctrace.plot.packets import packets_of
from cctrace.plot.panels import COLOURS, PHASE_COLOURS, Panel, Phases, decimate
from cctrace.plot.panels_of_flow import flow_panels, flow_phases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

    from cctrace.flows.flow import Flow
    from cctrace.replaying.run import Run
    from cctrace.sim.result import Simulation

TIME = "Time since the first packet (s)"
BUCKETS = 2000  # spans of time that a series is thinned to: more than a printed page resolves
_PANEL_INCHES = (10.0, 2.6)
_ENTRIES = 4  # of a legend, side by side


def plot_flow(flow: Flow | Simulation, run: Run | None = None, *, index: int = 0) -> Figure:
    """Draw a captured or simulated flow: progress, RTT, data in flight, rates.

    Parameters
    ----------
    flow : Flow or Simulation
        With the kernel's counters attached, their curves are drawn too. A simulation must have kept its packets
        (``simulate(..., packets=True)``); it is drawn as a capture at the sender shows it.
    run : Run, optional
        A replay of this flow with ``record="all"`` or with counters attached: adds what the controller decided.
    index : int
        Which flow of a simulation.

    Raises
    ------
    ArgumentError
        If the simulation kept no packets, or has no such flow.
    StreamError
        If the flow cannot be reconstructed from its capture.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> [axes.get_title(loc="left") for axes in plot_flow(flow).axes][:2]
    ['Progress: sequence numbers over time', 'Throughput over time']
    """
    one = as_flow(flow, index)
    view = FlowView.of(one, run)
    aside = "" if view.taken_at == "sender" else f"   (captured at: {view.taken_at}; times are estimates)"
    title = f"{connection(*one.key)}{aside}"
    return figure(flow_panels(view, packets_of(one)), flow_phases(view), title)


@functools.cache
def _notebook_figure() -> Any:
    """Return `Figure` with the display methods that IPython calls; matplotlib's own has none outside of pyplot."""
    needed("matplotlib.figure", "plot")
    from matplotlib.figure import Figure

    class Drawing(Figure):
        """A figure that a notebook displays directly."""

        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png")
            return picture.getvalue()

    return Drawing


def check_curves(series: object) -> None:
    """Refuse what are no panels of curves, (time_s, values, label, options), as `over_time` takes them.

    >>> check_curves({"first": [([0.0, 1.0], [10.0], "bbr3", {})]})
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: series['first'][0] must have as many values (1) as times (2)
    """
    check_argument(isinstance(series, dict) and series, "series", series, "a dict: title of a panel to its curves")
    for name, curves in series.items():  # type: ignore[attr-defined]
        place = f"series[{short_repr(name)}]"
        check_argument(isinstance(curves, list | tuple), place, curves, "a list of curves")
        for k, curve in enumerate(curves):
            is_curve = isinstance(curve, list | tuple) and len(curve) == 4 and isinstance(curve[3], Mapping)
            check_argument(is_curve, f"{place}[{k}]", curve, "(time_s, values, label, options)")
            times, values = np.size(curve[0]), np.size(curve[1])
            if times != values:
                raise ArgumentError(f"{place}[{k}] must have as many values ({values}) as times ({times})")


def blank(inches: tuple[float, float], title: str = "") -> Figure:
    """Return an empty figure of a size, with a title; a notebook displays it, and pyplot does not register it."""
    drawing = _notebook_figure()(figsize=inches, layout="constrained")
    if text_of("title", title):
        drawing.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return drawing


def one_panel(inches: tuple[float, float], title: str) -> tuple[Figure, Axes]:
    """Return a `blank` figure, and the axes that fill it."""
    drawing = blank(inches, title)
    return drawing, drawing.subplots()


def title_of(title: str, flow: Flow) -> str:
    """Return a given title; without one, where a flow was captured, "" at the sender."""
    return text_of("title", title, "" if flow.taken_at == "sender" else f"captured at: {flow.taken_at}")


def log_axis(axis: XAxis | YAxis) -> None:
    """Make an axis logarithmic, with its numbers written out: powers of ten run into each other on a short axis."""
    from matplotlib.ticker import LogFormatter  # late: `one_panel` says how to install it

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))  # decades with some, with all of its numbers


def finish(axes: Axes, **legend: Any) -> None:
    """Style axes as in all plots: a faint grid, no frame at the top and right; and a legend, if given its options."""
    axes.grid(color="#e4e8ed", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        readable = {"framealpha": 0.8, "edgecolor": "none", "fontsize": 8}  # where curves run below it
        axes.legend(**readable | legend)


def figure(panels: Sequence[Panel], phases: Phases | None = None, title: str = "") -> Figure:
    """Draw panels above each other over one time axis.

    The figure is not registered with pyplot: nothing is kept alive by drawing it. A notebook shows it without any magic
    command.

    Parameters
    ----------
    panels : sequence of Panel
        As `flow_panels` returns them.
    phases : Phases, optional
        Of the replayed controller, shaded behind every panel.
    title : str

    Examples
    --------
    The goodput and RTT of a flow, and no other panel:

    >>> import cctrace as cct
    >>> from cctrace.analysis.flow_view import FlowView
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> panels = flow_panels(FlowView.of(flow))
    >>> len(figure(panels[:2]).axes)
    2
    """
    holds = isinstance(panels, Sequence) and panels and all(isinstance(panel, Panel) for panel in panels)
    check_argument(holds, "panels", panels, "one or more of what flow_panels returns")
    check_argument(phases is None or isinstance(phases, Phases), "phases", phases, "what flow_phases returns")
    width, height = _PANEL_INCHES
    drawing = blank((width, height * len(panels) + 0.6), title)
    for axes, panel in zip(drawing.subplots(len(panels), sharex=True, squeeze=False)[:, 0], panels, strict=True):
        draw(axes, panel, phases)
    drawing.axes[-1].set_xlabel(TIME)
    return drawing


def draw(axes: Axes, panel: Panel, phases: Phases | None = None) -> None:
    """Draw one panel into given matplotlib axes; the legend stands above, where it covers no data."""
    phases = phases or Phases()
    hidden = "PROBE_BW " if phases.thin else None
    for start, end, name in phases.spans:
        if name in PHASE_COLOURS and not (hidden and name.startswith(hidden)):
            axes.axvspan(start, end, color=PHASE_COLOURS[name], lw=0, zorder=0)
    for series in panel.series:
        time_s, values = decimate(series.time_s, series.value, BUCKETS)
        style: dict[str, Any] = {"color": COLOURS[series.colour], "label": series.label, "lw": 1.1}
        if series.kind == "points":
            style |= {"ls": "none", "marker": ".", "ms": 2, "alpha": 0.6}
        elif series.dashed:
            style |= {"ls": "--"}
        if series.kind == "steps":
            style |= {"drawstyle": "steps-post"}
        axes.plot(time_s, values, **style)
    if panel.from_zero or not all(series.stretches for series in panel.series):
        axes.set_ylim(0, panel.upper_limit)
    axes.set_ylabel(panel.axis)
    rows = -(-len(panel.series) // _ENTRIES)
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold", pad=8 + 13 * rows)
    finish(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=_ENTRIES, markerscale=4, borderpad=0.1)
    axes.margins(x=0.005)
