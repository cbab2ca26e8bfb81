"""A self-contained HTML page that explains a capture offline.

The page holds the panels of `cctrace.plot`, every packet, a style sheet and the scripts that draw them. Text from
the user's files is escaped, and the content security policy of `document` forbids the page any network access.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cctrace
from cctrace.diagnosis.findings import Event, Limit, Verdict
from cctrace.display import escape
from cctrace.files import write_text
from cctrace.plot.limits import LIMITS
from cctrace.plot.packets import Received, Sent
from cctrace.plot.panels import COLOUR_PAIRS, PHASE_PAIRS, Panel, Phases
from cctrace.plot.states import STATE_COLOURS, Lane
from cctrace.refusals import Attempt, Refusal
from cctrace.report.data import SERIES_BYTES, page_data
from cctrace.report.document import document
from cctrace.report.section import comparison_section, flow_section

if TYPE_CHECKING:
    from cctrace.counterfactual.effects import Effects
    from cctrace.counterfactual.whatif import WhatIf
    from cctrace.fit.collapse import Collapse
    from cctrace.report.chunks import Packed


_HERE = Path(__file__).parent
_DRAWING = ("decode", "axes", "series", "save", "panel", "packets", "sequence", "strip", "flow")  # as they run


@dataclass(frozen=True)
class FlowSection:
    """Contents of the page for one flow."""

    title: str
    figures: list[tuple[str, str]] = field(default_factory=list)  # label and value of the headline numbers
    panels: list[Panel] = field(default_factory=list)
    phases: Phases = field(default_factory=Phases)
    duration_s: float = 0.0  # right end of the time axis
    cause: str = ""  # in a few words, why the flow behaved as it did
    verdict: str = ""  # the same in a sentence, with advice
    notes: list[str] = field(default_factory=list)  # caveats, shown above the panels
    time_axis: str = "Time since the first packet (s)"  # label of the time axis
    packets: tuple[Sent, Received] | None = None  # every packet, for the time-sequence graph
    start_ns: int = 0  # origin of the time axis, nanoseconds since the epoch
    taken_at: str = "sender"  # place of capture; shown in every figure unless it is the sender
    # limits, events, verdicts: from a `Diagnosis`
    limits: list[Limit] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    # possible controllers of the sender, with their probabilities
    candidates: list[tuple[str, float]] = field(default_factory=list)
    sender: str = ""  # the sender, in a few words
    identified: str = ""  # the evidence for that, a sentence
    whatif: WhatIf | Refusal | None = None  # effect of another controller or path, or why it is unknown
    effects: Effects | Refusal | None = None  # effects of removing each cause, or why they are unknown
    forecast: Collapse | Refusal | None = None  # forecast of BBR's minRTT collapse, or why there is none
    lanes: list[Lane] = field(default_factory=list)  # states over time
    packed: Packed | None = None  # instead of `packets`, if these go to files beside the page
    # names and spans of time of the files with all packets, if `packets` are a selection
    packet_files: list[dict[str, Any]] = field(default_factory=list)
    reverse: dict[str, Any] | None = None  # from `Flow.reverse`

    @property
    def packet_count(self) -> int:
        """Packets on the page itself."""
        return sum(len(side) for side in self.packets or ())


@dataclass(frozen=True)
class Report:
    """The entire page."""

    title: str
    source: str  # origin of the data, one line
    columns: list[str]  # head of the overview table
    rows: list[list[str]]  # its cells, one row per flow
    # the flows' sections, in the order of the rows; None, or a shorter list, for flows without one
    flows: list[FlowSection | None]
    notes: list[str] = field(default_factory=list)
    comparison: FlowSection | None = None  # panels with several flows
    # link targets of the rows of an index, made by `document.link`
    row_links: dict[int, str] = field(default_factory=dict)
    # rows of small flows without a section: folded below the table
    others: list[list[str]] = field(default_factory=list)
    causes: str = ""  # of many flows, counted


def write(report: Report, file: str | Path) -> None:
    """Write the page. Raises `OSError` if the file cannot be written, which is then left as it was."""
    write_text(file, render(report))


def style() -> str:
    """Return the style sheet."""
    return f"{_colours()}\n{_text('report.css')}"


def script(*last: str) -> str:
    """Return the drawing scripts, followed by the named ones."""
    return "".join(_text(f"{name}.js") for name in (*_DRAWING, *last))


def render(report: Report, room: int = SERIES_BYTES) -> str:
    """Return the page as one string of HTML, its curves in `room` bytes."""
    given = {i: flow for i, flow in enumerate(report.flows) if flow is not None}
    sections: dict[int, str] = {}
    refused: list[str] = []
    for i, flow in given.items():
        with Attempt(f"section of {flow.title}", refused):
            sections[i] = flow_section(i, flow)
    flows = {i: given[i] for i in sections}
    above = [comparison_section(report.comparison)] if report.comparison else []
    body = "\n".join([*above, *sections.values()])
    notes = "\n".join(f'<p class="card warning">{escape(note)}</p>' for note in (*report.notes, *refused))
    has_files = any(flow.packet_files for flow in flows.values())
    causes = f'\n<p class="soft">{escape(report.causes)}</p>' if report.causes else ""
    main = f"""<header><div>
<h1>{escape(report.title)}</h1>
<p class="soft">{escape(report.source)}</p>{causes}
<button type="button" id="theme" aria-label="Switch between light and dark">Dark</button>
</div></header>
<main{' class="wide"' if "Verdict" in report.columns else ""}>
{_table(report, flows) if len(report.rows) > 1 or not flows else ""}
{_others(report)}
{notes}
<noscript><p class="card warning">The plots are drawn by a script inside this page; it needs JavaScript, not a network.
</p></noscript>
{body}
</main>
<footer>Written by cctrace {escape(cctrace.__version__)}. <span class="screen">{_HELP}</span></footer>"""
    drawing = script(*(["chunks"] if has_files else []), "table", "main")
    return document(report.title, style(), main, drawing, page_data(flows, report.comparison, room), loads=has_files)


_HELP = """Plots: drag to zoom all panels of a flow (a box zooms both axes); click a plot, then turn the wheel to zoom
at the pointer (with Shift, or over the axis: the vertical one); Shift and drag moves; double-click shows everything
again; a legend entry hides its curve; PNG and CSV save a plot and the numbers in view; the link beside the buttons
leads back to what is in view. Keys on a plot: + and &minus; zoom, arrows move, Shift with the up and down arrows zooms
the vertical axis, comma and full stop go from packet to packet, 0 shows everything."""


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _colours() -> str:
    """Return the style sheet's variables: one name per meaning, with a light and a dark colour."""
    pairs = {f"c-{name}": pair for name, pair in COLOUR_PAIRS.items()}
    pairs |= {f"p-{_key(name)}": pair for name, pair in PHASE_PAIRS.items()}
    pairs |= {f"l-{name}": (light, dark) for name, (_, light, dark) in LIMITS.items()}
    pairs |= {f"s-{_key(name)}": pair for name, pair in STATE_COLOURS.items()}
    light, dark = ("".join(f"--{name}:{pair[side]};" for name, pair in pairs.items()) for side in (0, 1))
    marks = "".join(f".{name}{{--mark:var(--{name})}}" for name in pairs)  # a class each: see `document`
    return (
        f"{marks}\n:root {{ {light} }}\n:root[data-theme=dark] {{ {dark} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {dark} }} }}"
    )


def _key(phase: str) -> str:
    return phase.replace(" ", "-")


_SEARCHED = 8  # flows from which on a search field is useful


def _table(report: Report, flows: Mapping[int, FlowSection]) -> str:
    head = "".join(
        f'<th scope="col" data-label="{escape(name)}" aria-sort="none">'
        f'<button type="button">{escape(name)}</button></th>'
        for name in report.columns
    )
    body = []
    for i, row in enumerate(report.rows):
        cells = [_cell(cell) for cell in row]
        if i in flows or i in report.row_links:
            cells[0] = f'<a href="{escape(report.row_links.get(i, f"#flow{i}"))}">{cells[0]}</a>'
        body.append(_row(report.columns, cells))
    search = (
        '<p class="search"><label>Search <input type="search" id="search" autocomplete="off"></label> '
        '<output id="found" class="soft"></output></p>\n'
        if len(report.rows) >= _SEARCHED
        else ""
    )
    return (
        f'<div class="card">\n{search}<div class="scroll" tabindex="0" role="region" aria-label="Flows">\n'
        f'<table id="flows" class="flows"><thead><tr>{head}</tr></thead><tbody>\n'
        + "\n".join(body)
        + "\n</tbody></table></div></div>"
    )


def _cell(text: str) -> str:
    return escape(text).replace(" %", "&nbsp;%")  # where a cell wraps, a number keeps its unit


def _row(columns: Sequence[str], cells: Iterable[str]) -> str:
    named = zip(columns, cells, strict=True)
    return "<tr>" + "".join(f'<td data-label="{escape(name)}">{cell}</td>' for name, cell in named) + "</tr>"


def _others(report: Report) -> str:
    """Return the flows without a section as a table of their own, folded."""
    if not report.others:
        return ""
    head = "".join(f'<th scope="col" data-label="{escape(name)}">{escape(name)}</th>' for name in report.columns)
    rows = "".join(_row(report.columns, map(_cell, row)) for row in report.others)
    count = f"{len(report.others):,} smaller flow{'s' if len(report.others) > 1 else ''}"
    return (
        f'<details class="card"><summary>{count}</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="Smaller flows"><table class="flows"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        "</div></details>"
    )
