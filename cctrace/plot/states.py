"""States over time: the replayed controller's mode, the loss-recovery state of the sender's TCP, and marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cctrace.analysis.flow_view import FlowView
from cctrace.arguments import number, text_of
from cctrace.columns import Table, Values
from cctrace.errors import ArgumentError
from cctrace.path.transmissions import as_flow
from cctrace.plot.figure import TIME, blank, draw
from cctrace.plot.panels import Phases
from cctrace.plot.panels_of_flow import flow_panels
from cctrace.schema import CA_STATES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cctrace.flows.flow import Flow
    from cctrace.replaying.run import Run

# State -> its colour on a light page and on a dark one: Okabe and Ito's, distinguishable with colour blindness.
STATE_COLOURS = {
    "STARTUP": ("#e69f00", "#e0a83a"),
    "DRAIN": ("#999999", "#8a94a0"),
    "PROBE_BW": ("#f2f5f8", "#2a323b"),
    "PROBE_BW up": ("#009e73", "#3cc795"),
    "PROBE_BW down": ("#cc79a7", "#e08fc0"),
    "PROBE_RTT": ("#56b4e9", "#56b4e9"),
    "slow start": ("#e69f00", "#e0a83a"),
    "congestion avoidance": ("#f2f5f8", "#2a323b"),
    "Open": ("#f2f5f8", "#2a323b"),
    "Disorder": ("#f0e442", "#d9cf4a"),
    "CWR": ("#0072b2", "#4aa3da"),
    "Recovery": ("#d55e00", "#f08a4b"),
    "Loss": ("#7a0019", "#ff6b81"),
    "no marks": ("#f2f5f8", "#2a323b"),
    "marks": ("#009e73", "#3cc795"),
}
OTHER = ("#c7ccd4", "#5b6875")  # states of controllers that are not listed


class Lane(NamedTuple):
    """A row of a timeline: its label and its states."""

    label: str
    phases: Phases


def modes_of(model: Table) -> Values:
    """Return a replayed controller's mode after each call: its phase, or else slow start or congestion avoidance."""
    if "phase" in model:
        return model["phase"]
    return np.where(model["cwnd_segments"] < model["ssthresh_segments"], "slow start", "congestion avoidance")


def lanes(view: FlowView) -> list[Lane]:
    """Return the timelines of a flow: the replayed controller's mode, if there is a replay, TCP's state, and marks."""
    found = []
    if view.model is not None and len(view.model["time_ns"]):
        time_s, state = view.steps(*(("phase",) if "phase" in view.model else ("cwnd_segments", "ssthresh_segments")))
        found.append(Lane("mode", Phases.from_names(time_s, modes_of(state))))
    after = view.events["ca_state"][1:]  # noted before each call
    if len(after):
        rows = np.unique(np.concatenate([[0], np.flatnonzero(np.diff(after)) + 1, [len(after) - 1]]))
        names = np.array(CA_STATES, object)[np.minimum(after[rows], len(CA_STATES) - 1)]
        found.append(Lane("TCP", Phases.from_names(view.seconds({"time_ns": view.events.at("time_ns", rows)}), names)))
    acks = view.acks
    if view.ecn is not None and len(acks):
        is_marked = np.diff(acks["delivered_ce"].astype(np.int64), append=acks["delivered_ce"][-1:]) > 0
        names = np.where(is_marked, "marks", "no marks")
        found.append(Lane("ECN", Phases.from_names(view.ack_s, names)))
    return found


def states(
    flow: Flow, run: Run | None = None, start_s: float | None = None, end_s: float | None = None, *, title: str = ""
) -> Figure:
    """Draw a replayed controller's modes and gains over time, and TCP's states of loss recovery.

    Parameters
    ----------
    flow : Flow
    run : Run, optional
        A replay of this flow with ``record="all"``.
    start_s, end_s : float, optional
        The part to draw, seconds since the first packet; default: all.
    title : str, optional

    Raises
    ------
    ArgumentError
        If the part is empty.
    StreamError
        If the flow cannot be reconstructed from its capture.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("single_bbr_1bdp", "sender.pcap.zst")).flow(0)
    >>> drawing = states(flow, cct.replay(flow, "bbr2022", record="all"), 0, 5)
    >>> drawing.axes[-1].get_xlabel()
    'Time since the first packet (s)'
    """
    view = FlowView.of(as_flow(flow), run)
    rows = lanes(view)
    low = 0.0 if start_s is None else number("start_s", start_s)
    high = _end(rows) if end_s is None else number("end_s", end_s)
    if not low < high:
        raise ArgumentError(f"start_s={start_s}, end_s={end_s}: nothing lies between; it ends at {_end(rows):.3f} s")
    gains = [panel for panel in flow_panels(view) if panel.name == "gains"]
    aside = "" if view.taken_at == "sender" else f"captured at: {view.taken_at}; times are estimates"
    drawing = blank((9.0, 0.9 + 0.5 * len(rows) + 2.2 * len(gains)), text_of("title", title, aside))
    ratios = {"height_ratios": [0.5 * len(rows) + 0.3] + [2.2] * len(gains)}
    axes = drawing.subplots(1 + len(gains), sharex=True, squeeze=False, gridspec_kw=ratios)[:, 0]
    for k, (_, phases) in enumerate(rows):
        _bars(axes[0], k, phases, low, high)
    axes[0].set_yticks(range(len(rows)), [label for label, _ in rows])
    axes[0].set(ylim=(len(rows) - 0.4, -0.6), xlim=(low, high))
    axes[0].spines[["top", "right", "left"]].set_visible(False)
    _legend(axes[0], rows, low, high)
    for axis, panel in zip(axes[1:], gains, strict=True):
        draw(axis, panel)
        axis.set_xlim(low, high)
    axes[-1].set_xlabel(TIME)
    return drawing


def _end(rows: Any) -> float:
    return max((phases.spans[-1][1] for _, phases in rows if phases.spans), default=0.0)


def _bars(axes: Axes, k: int, phases: Phases, low: float, high: float) -> None:
    """Draw the states of a lane, all of one name in one call."""
    spans_of: dict[str, list] = {}
    for start, end, name in phases.spans:
        if end > low and start < high:
            spans_of.setdefault(name, []).append((start, end - start))
    for name, spans in spans_of.items():
        axes.broken_barh(
            spans, (k - 0.35, 0.7), facecolor=STATE_COLOURS.get(name, OTHER)[0], edgecolor="#52606d", lw=0.2
        )


def _legend(axes: Axes, rows: Any, low: float, high: float) -> None:
    from matplotlib.patches import Patch

    names = dict.fromkeys(n for _, phases in rows for a, b, n in phases.spans if b > low and a < high)
    patches = [
        Patch(facecolor=STATE_COLOURS.get(name, OTHER)[0], edgecolor="#52606d", lw=0.4, label=name) for name in names
    ]
    axes.legend(handles=patches, loc="lower left", bbox_to_anchor=(0, 1), ncols=7, frameon=False, fontsize=8)
