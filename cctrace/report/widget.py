"""A flow in a notebook, down to the packet: the page's scripts as a widget, with its columns as bytes."""

import functools
import html
import re
from dataclasses import replace
from typing import Any

from cctrace.analysis.flow_view import FlowView
from cctrace.arguments import check_argument
from cctrace.diagnosis.diagnose import Diagnosis
from cctrace.display import connection, escape
from cctrace.extras import needed
from cctrace.flows.flow import Flow
from cctrace.plot.packets import packets_of
from cctrace.replaying.run import Run
from cctrace.report.data import widget_data
from cctrace.report.overview import with_plots
from cctrace.report.page import FlowSection, Report, render, script, style
from cctrace.report.section import flow_section
from cctrace.units import format_counted

_FALLBACK_PACKETS = 30_000  # kept for viewers without a kernel: some 150 kB
_FALLBACK_BYTES = 300_000  # of curves
_FALLBACK_HEIGHT = 700  # pixels


def widget(flow: Flow, run: Run | None = None, diagnosis: Diagnosis | None = None) -> Any:
    """Show a captured flow in a notebook: every packet, zoomed with the mouse, as in a report.

    Drag to zoom; click, then turn the wheel; Shift and drag moves; a double-click shows everything again. Without a
    kernel (a notebook on a web page), a static page of the flow is shown, with up to 30,000 packets.

    Parameters
    ----------
    flow : Flow
        Attached kernel counters are drawn, too.
    run : Run, optional
        A replay of this flow with ``record="all"``: adds the controller's decisions.
    diagnosis : Diagnosis, optional
        From `cctrace.diagnose`: adds the limits over time and the events.

    Returns
    -------
    anywidget.AnyWidget
        Its `span`, (start, end) in seconds since the first packet, is the visible range, and may be set.

    Raises
    ------
    StreamError
        If the flow cannot be reconstructed from its capture.
    MissingError
        Without anywidget (the extra "notebooks").

    Examples
    --------
    >>> import cctrace as cct
    >>> shown = widget(cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0))
    >>> shown.span = (3.0, 3.04)
    >>> shown
    <Widget 10.99.0.1:40001 → 10.99.0.2:5001: 9,381 packets>
    """
    section = section_of(flow, run, diagnosis)
    # In a shadow tree the root is `:host`.
    sheet = re.sub(r":root(\[[^\]]+\]|:not\(\[[^\]]+\]\))", r":host(\1)", style()).replace(":root", ":host")
    return _widget_class()(
        name=f"{section.title}: {format_counted(section.packet_count, 'packet', 'packets')}",
        section=section,
        html=f"<style>{sheet}</style>\n{flow_section(0, section)}",
        data=widget_data("flow0", section),
        span=[0.0, 0.0],
    )


def section_of(flow: Flow, run: Run | None = None, diagnosis: Diagnosis | None = None) -> FlowSection:
    """Return the `FlowSection` of a captured flow, without figures and candidates."""
    check_argument(isinstance(flow, Flow), "flow", flow, "a flow of a capture")
    is_diagnosis = diagnosis is None or isinstance(diagnosis, Diagnosis)
    check_argument(is_diagnosis, "diagnosis", diagnosis, "what cctrace.diagnose returned")
    section = FlowSection(
        title=connection(*flow.key),
        verdict=diagnosis.verdict if diagnosis else "",
        limits=diagnosis.limits if diagnosis else [],
        events=diagnosis.events if diagnosis else [],
    )
    return with_plots(section, FlowView.of(flow, run), packets_of(flow))


def _fallback(section: FlowSection) -> str:
    """Return a page of the flow in a frame, thinned to what a notebook may keep."""
    if section.packet_count > _FALLBACK_PACKETS:
        note = "Single packets are drawn where the notebook's kernel runs."
        section = replace(section, packets=None, notes=[*section.notes, note])
    page = render(Report(section.title, "", [], [], [section]), _FALLBACK_BYTES)
    document = html.escape(page)  # noqa: TID251 (a page, whose texts are escaped)
    return (
        f'<iframe srcdoc="{document}" title="{escape(section.title)}" '
        f'style="width:100%;height:{_FALLBACK_HEIGHT}px;border:0"></iframe>'
    )


@functools.cache
def _widget_class() -> Any:
    """Return the class; anywidget is imported on first use."""
    base: Any = needed("anywidget", "notebooks").AnyWidget
    traitlets = needed("traitlets", "notebooks")

    class Widget(base):
        """A flow in a notebook."""

        _esm = script("widget")
        html = traitlets.Unicode().tag(sync=True)
        data = traitlets.Dict().tag(sync=True)
        span = traitlets.List(traitlets.Float(), minlen=2, maxlen=2).tag(sync=True)
        name = traitlets.Unicode()
        section = traitlets.Any()

        @traitlets.validate("span")
        def _checked(self, proposal: dict[str, Any]) -> list[float]:
            low, high = proposal["value"]
            if low > high:
                raise traitlets.TraitError(f"span={proposal['value']}: (start, end) in seconds, start before end")
            return proposal["value"]

        def __repr__(self) -> str:
            return f"<Widget {self.name}>"

        def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            data, metadata = super()._repr_mimebundle_(**kwargs)
            return data | {"text/html": _fallback(self.section)}, metadata

    return Widget
