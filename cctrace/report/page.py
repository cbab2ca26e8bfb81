"""One HTML page that explains a capture, complete in itself: it opens offline and refers to nothing outside.

The page holds the panels of `cctrace.plot` thinned to what a screen can show, a style sheet and a small script that
draws them. What comes from the user's files is escaped, and a content security policy forbids the page any network.
"""

import base64
import json
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import numpy as np

import cctrace
from cctrace.plot.panels import COLOURS, PHASE_COLOURS, Panel, Phases, decimate

_HERE = Path(__file__).parent
# Spans of time that a series is thinned to: about three zoom steps deeper than the pixels of a wide screen.
_BUCKETS = 3000
_BUCKETS_OF_MANY_FLOWS = 800
_MANY_FLOWS = 4
_AGREEMENT = """<p class="soft">“= kernel”: the share of the kernel's polls, after the first second, at which the
replayed controller held the same value: bw and min_rtt within 1 %, cwnd within 2 segments, the gain exactly, one poll
early or late.</p>"""


@dataclass(frozen=True)
class FlowSection:
    """What the page says about one flow.

    Parameters
    ----------
    title : str
    figures : list of (str, str)
        Label and value of the headline numbers.
    panels : list of Panel
    phases : Phases
    duration_s : float
        Right end of the time axis.
    verdict : str
        One sentence that says why the flow behaved as it did.
    notes : list of str
        Sentences shown above the panels: what limits what the reader may conclude.
    time_axis : str
        Label of the time axis.
    """

    title: str
    figures: list[tuple[str, str]]
    panels: list[Panel]
    phases: Phases
    duration_s: float
    verdict: str = ""
    notes: list[str] = field(default_factory=list)
    time_axis: str = "Time since the first packet (s)"


@dataclass(frozen=True)
class Report:
    """The whole page.

    Parameters
    ----------
    title : str
    source : str
        Where the data come from, one line.
    columns : list of str
        Head of the overview table.
    rows : list of list of str
        Its cells, one row per flow.
    flows : list of FlowSection or None
        The flows' sections, in the order of the rows; None, or a shorter list, where there is none.
    notes : list of str
    """

    title: str
    source: str
    columns: list[str]
    rows: list[list[str]]
    flows: list[FlowSection | None]
    notes: list[str] = field(default_factory=list)


def write(report, file):
    """Write the page.

    Parameters
    ----------
    report : Report
    file : path-like

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    Path(file).write_text(render(report), encoding="utf-8")


def render(report):
    """Return the page as one string of HTML."""
    flows = {i: flow for i, flow in enumerate(report.flows) if flow is not None}
    buckets = _BUCKETS if len(flows) < _MANY_FLOWS else _BUCKETS_OF_MANY_FLOWS
    data = {"flows": [_flow_data(i, flow, buckets) for i, flow in flows.items()]}
    sections = "\n".join(_section(i, flow) for i, flow in flows.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{escape(report.title)}</title>
<style>
{(_HERE / "report.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header><div>
<h1>{escape(report.title)}</h1>
<p class="soft">{escape(report.source)}</p>
</div></header>
<main>
<div class="card scroll">
{_table(report, flows)}
</div>
{_notes(report.notes)}
<noscript><p class="card warning">The plots are drawn by a script inside this page; it needs JavaScript, not a network.
</p></noscript>
{sections}
</main>
<footer>Written by cctrace {escape(cctrace.__version__)}. Plots: drag across to zoom all panels of a flow,
double-click to show everything again, point to read values, click a legend entry to hide it; with the keyboard,
+ and &minus; zoom, the arrow keys move, 0 shows everything. Each curve keeps the extremes of the spans it was thinned
to.</footer>
<script type="application/json" id="data">{_safe_json(data)}</script>
<script>
{(_HERE / "plot.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _safe_json(data):
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _table(report, flows):
    head = "".join(f"<th>{escape(name)}</th>" for name in report.columns)
    body = []
    for i, row in enumerate(report.rows):
        cells = [escape(cell) for cell in row]
        if i in flows:
            cells[0] = f'<a href="#flow{i}">{cells[0]}</a>'
        named = zip(report.columns, cells, strict=True)
        body.append("<tr>" + "".join(f'<td data-label="{escape(name)}">{cell}</td>' for name, cell in named) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n" + "\n".join(body) + "\n</tbody></table>"


def _notes(notes):
    return "\n".join(f'<p class="card warning">{escape(note)}</p>' for note in notes)


def _section(i, flow):
    figures = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in flow.figures)
    panels = "\n".join(_panel(f"flow{i}-{panel.name}", panel) for panel in flow.panels)
    verdict = f'<p class="verdict">{escape(flow.verdict)}</p>' if flow.verdict else ""
    compared = any(name.endswith("= kernel") for name, _ in flow.figures)
    return f"""<section>
<h2 id="flow{i}">{escape(flow.title)}</h2>
{verdict}
<dl class="figures">{figures}</dl>
{_AGREEMENT if compared else ""}
{_phase_legend(flow.phases)}
{_remarks(flow.notes)}
{panels}
</section>"""


def _remarks(notes):
    """Return what a reader should know, in small print: a page of warnings is one that nobody reads."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="remarks">{items}</ul>' if notes else ""


def _phase_legend(phases):
    present = {name for _, _, name in phases.spans}
    chips = [
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in PHASE_COLOURS.items()
        if name in present
    ]
    chips += [
        f'<span><i style="background:#fff"></i>{escape(name)}</span>' for name in sorted(present - set(PHASE_COLOURS))
    ]
    if phases.thin:
        chips.append("<span>(phases of PROBE_BW a few pixels wide appear when zoomed in)</span>")
    return f'<p class="phases">Background: {"".join(chips)}</p>' if chips else ""


def _panel(identifier, panel):
    legend = "".join(
        f'<button type="button" aria-pressed="true">{_swatch(series)}{escape(series.label)}</button>'
        for series in panel.series
    )
    return f"""<figure class="card" id="{escape(identifier)}" style="margin-inline:0">
<h3>{escape(panel.title)}</h3>
<p class="soft">{escape(panel.explanation)}</p>
<div class="legend">{legend}<button type="button" class="reset" hidden>Show all</button></div>
<canvas tabindex="0" role="img" aria-label="{escape(panel.title)}: {escape(panel.axis)} over time"></canvas>
<div class="readout"></div>
</figure>"""


def _swatch(series):
    colour = COLOURS[series.colour]
    if series.kind == "points":
        mark = f'<circle cx="11" cy="6" r="3" fill="{colour}"/>'
    else:
        dash = ' stroke-dasharray="4 3"' if series.dashed else ""
        mark = f'<line x1="1" y1="6" x2="21" y2="6" stroke="{colour}" stroke-width="2.2"{dash}/>'
    return f'<svg width="22" height="12" aria-hidden="true">{mark}</svg>'


def _flow_data(i, flow, buckets):
    return {
        "duration_s": flow.duration_s,
        "time_axis": flow.time_axis,
        "phases": {"spans": flow.phases.spans, "colours": PHASE_COLOURS},
        "panels": [_panel_data(f"flow{i}-{panel.name}", panel, buckets) for panel in flow.panels],
    }


def _panel_data(identifier, panel, buckets):
    series = []
    for one in panel.series:
        time_s, values = decimate(one.time_s, one.value, buckets)
        series.append(
            {
                "label": one.label,
                "colour": COLOURS[one.colour],
                "kind": one.kind,
                "dashed": one.dashed,
                "x": _base64_float32(time_s),
                "y": _base64_float32(values),
            }
        )
    return {
        "id": identifier,
        "axis": panel.axis,
        "from_zero": panel.from_zero,
        "upper_limit": panel.upper_limit,
        "series": series,
    }


def _base64_float32(values):
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")
