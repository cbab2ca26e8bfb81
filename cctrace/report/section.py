"""The page's section about one flow: text, and the frames that the script draws into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.counterfactual.effects import effect_words
from cctrace.diagnosis.findings import shares
from cctrace.display import escape
from cctrace.plot.limits import LIMITS, limit_words
from cctrace.plot.packets import KIND_WORDS, KINDS
from cctrace.plot.panels import PHASE_COLOURS
from cctrace.plot.states import STATE_COLOURS
from cctrace.report.effects import effects_card, whatif_card
from cctrace.report.elements import card, figures, remarks, table
from cctrace.report.forecast import forecast_section
from cctrace.report.reverse import reverse_card
from cctrace.units import format_share

if TYPE_CHECKING:
    from cctrace.diagnosis.findings import Event, Verdict
    from cctrace.plot.packets import Received, Sent
    from cctrace.plot.panels import Panel, Phases, Series
    from cctrace.plot.states import Lane
    from cctrace.report.page import FlowSection


_AGREEMENT = """<p class="soft">“= kernel”: the share of the kernel's polls, after the first second, at which the
replayed controller held the same value: bw and min_rtt within 1 %, cwnd within 2 segments, the gain exactly, one poll
early or late.</p>"""
_MAX_EVENTS = 200
_LIKELY = 0.005  # least probability of a candidate that is listed
# Key of what the time-sequence graph shows -> its legend entry; `sequence.js` draws them.
_LAYERS = {
    "new": "segments",
    "fast": "retransmitted",
    "probe": "tail-loss probe",
    "timeout": "after RTO",
    "unexplained": "unexplained",
    "unclassified": "unclassified",
    "ack": "acknowledged",
    "window": "window edge",
    "sack": "SACK",
}
_ALWAYS = ("new", "ack", "window")


def flow_section(i: int, flow: FlowSection) -> str:
    """Return the HTML of one flow's section."""
    compared = any(name.endswith("= kernel") for name, _ in flow.figures)
    aside = "" if flow.taken_at == "sender" else f"captured at: {flow.taken_at}"
    panels = "\n".join(_panel(f"flow{i}-{panel.name}", panel, aside) for panel in flow.panels)
    return f"""<section id="flow{i}-section">
<h2 id="flow{i}">{escape(flow.title)}</h2>
{_headline(flow)}
{figures(flow.figures)}
{_toolbar(f"flow{i}", bool(flow.panels or flow.limits or flow.lanes))}
{_strip(f"flow{i}", flow)}
{_verdicts(flow.verdicts, flow.verdict)}
{effects_card(flow.effects, flow.verdicts)}
{whatif_card(flow.whatif)}
{_candidates(flow)}
{forecast_section(flow.forecast)}
{_AGREEMENT if compared else ""}
{remarks(map(prose, flow.notes))}
{_sequence(f"flow{i}", aside, flow.packets, flow.packet_files) if flow.packets is not None else ""}
{_phase_legend(flow.phases, flow.events)}
{panels}
{reverse_card(flow)}
</section>"""


def _headline(flow: FlowSection) -> str:
    """Return the verdict: the cause in a few words, the sentence, and what would help."""
    if not flow.verdict:
        return ""
    cause = f"<strong>{escape(flow.cause[:1].upper() + flow.cause[1:])}.</strong> " if flow.cause else ""
    effect = flow.verdicts[0].effect if flow.verdicts else None
    without = f"<br><small>Simulated {escape(effect_words(effect))}.</small>" if effect else ""
    return f'<p class="verdict">{cause}{prose(flow.verdict)}{without}</p>'


def prose(text: str) -> str:
    """Return a text as HTML, what stands between backticks as code.

    >>> prose("run `cctrace whatif a<b`")
    'run <code>cctrace whatif a&lt;b</code>'
    """
    return _CODE.sub(r"<code>\1</code>", escape(text))


_CODE = re.compile("`([^`]+)`")


def comparison_section(comparison: FlowSection) -> str:
    """Return the HTML of the panels that show flows side by side."""
    panels = "\n".join(_panel(f"comparison-{panel.name}", panel, "") for panel in comparison.panels)
    return f"""<section id="comparison-section">
<h2 id="comparison">{escape(comparison.title)}</h2>
{remarks(map(prose, comparison.notes))}
{_toolbar("comparison")}
{panels}
</section>"""


def _verdicts(verdicts: Sequence[Verdict], headline: str) -> str:
    if not any(verdict.advice or verdict.refuted_by for verdict in verdicts) and len(verdicts) < 2:
        return ""
    items = "".join(
        f"<li><strong>{escape(verdict.name.replace('_', ' '))}</strong> "
        f'<span class="soft">confidence {format_share(verdict.is_there)}, {verdict.start_s:.3g} to '
        f"{verdict.end_s:.3g} s</span><br>{'' if verdict.line in headline else prose(verdict.line)}"
        + (f' <span class="soft">Refuted by: {prose(verdict.refuted_by)}</span>' if verdict.refuted_by else "")
        + "</li>"
        for verdict in verdicts
    )
    label = "How certain this is, and what would refute it"
    if len(verdicts) > 1:
        label += ", and one more verdict" if len(verdicts) == 2 else f", and {len(verdicts) - 1} more verdicts"
    return card(label, f"<ol>{items}</ol>")


def _candidates(flow: FlowSection) -> str:
    """Return the possible senders, folded: a separate question."""
    likely = [(name, probability) for name, probability in flow.candidates if probability >= _LIKELY]
    if not likely:
        return ""
    rows = ((escape(name), format_share(share)) for name, share in likely)
    body = table("narrow", ("Controller", "Probability"), rows) + f'<p class="soft">{escape(flow.identified)}</p>'
    return card(f"Which congestion control sent it: {escape(flow.sender)}", body)


def _phase_legend(phases: Phases, events: Sequence[Event]) -> str:
    present = {name for _, _, name in phases.spans}
    chips = [
        f'<span><i class="p-{name.replace(" ", "-")}"></i>{escape(name)}</span>'
        for name in PHASE_COLOURS
        if name in present
    ]
    chips += [f"<span><i></i>{escape(name)}</span>" for name in sorted(present - set(PHASE_COLOURS))]
    if phases.thin:
        chips.append("<span>(phases of PROBE_BW a few pixels wide appear when zoomed in)</span>")
    background = f"Background: {''.join(chips)}" if chips else ""
    marks = f"<span>{_EVENT}</span>" if events else ""
    return f'<p class="phases">{background}{marks}</p>' if background or marks else ""


_EVENT = '<b class="event">▲</b> below a graph: an event; the list of events says what happened'


_SAVE = """<span class="save"><button type="button" data-save="png" title="Save the picture">PNG</button>
<button type="button" data-save="csv" title="Save the numbers in view">CSV</button></span>"""


def _toolbar(identifier: str, is_shown: bool = True) -> str:
    """Return the buttons that zoom; hidden where nothing can be zoomed."""
    buttons = "".join(
        f'<button type="button" data-do="{what}" aria-label="{name}" title="{name}">{mark}</button>'
        for what, name, mark in (
            ("left", "Earlier", "←"),
            ("right", "Later", "→"),
            ("in", "Zoom in", "+"),
            ("out", "Zoom out", "−"),
            ("all", "Show everything", "Show all"),
        )
    )
    state = "" if is_shown else " hidden"
    return (
        f'<div class="toolbar" id="{identifier}-toolbar"{state}>{buttons}<span class="span soft" role="status"></span>'
        f'<a class="view" href="#{identifier}" hidden>Link to this view</a></div>'
    )


def _strip(identifier: str, flow: FlowSection) -> str:
    if not flow.limits and not flow.events and not flow.lanes:
        return ""
    chips = "".join(
        f'<span><i class="l-{name if name in LIMITS else "unknown"}"></i>{escape(limit_words(name))} '
        f"{format_share(share)}</span>"
        for name, share in shares(flow.limits).items()
    )
    chips += '<span><b class="event">▼</b> an event: the list below says what happened</span>' if flow.events else ""
    rows = "".join(
        f'<li><button type="button" data-from="{event.start_s:.9g}" data-to="{event.end_s:.9g}">{event.start_s:.4f} s'
        f"</button> <strong>{escape(event.name.replace('_', ' '))}</strong> {escape(event.text)}</li>"
        for event in flow.events[:_MAX_EVENTS]
    )
    more = len(flow.events) - _MAX_EVENTS
    rows += f"<li>and {more} more, marked on the time axis</li>" if more > 0 else ""
    events = (
        f'<details class="events"><summary>Events ({len(flow.events)}): each leads to its moment</summary>'
        f'<ol tabindex="0" aria-label="Events">{rows}'
        "</ol></details>"
        if flow.events
        else ""
    )
    return f"""<figure class="card strip" id="{identifier}-strip">
{_SAVE}
<h3>{"What limited it, its states, and what happened" if flow.limits else "States, and what happened"}</h3>
<p class="phases">{chips}</p>
{_states(flow.lanes)}
<canvas tabindex="0" role="img" aria-label="Limits, states and events over time; the lists
below have the same"></canvas>
<div class="readout" aria-live="polite"></div>
{events}
<details class="behind"><summary>Limits and states in view, as a table</summary><div tabindex="0" role="group"
aria-label="Limits and states in view"></div></details>
</figure>"""


def _states(lanes: Iterable[Lane]) -> str:
    """Return the legend of the state colours, one line per timeline."""
    lines, order = [], list(STATE_COLOURS)
    for lane in lanes:
        names = {name for _, _, name in lane.phases.spans}
        kinds = [(f"s-{name.replace(' ', '-')}", name) for name in order if name in names]
        kinds += [("other", name) for name in sorted(names - STATE_COLOURS.keys())]
        chips = "".join(f'<span><i class="{kind}"></i>{escape(name)}</span>' for kind, name in kinds)
        lines.append(f'<p class="phases">{escape(_LANES.get(lane.label, lane.label))}: {chips}</p>')
    return "\n".join(lines)


_LANES = {"mode": "Mode of the replayed controller", "TCP": "TCP’s state", "ECN": "Marks that ACKs report"}


def _packet_files(files: Sequence[dict[str, Any]]) -> str:
    """Return where the packets are that do not fit into the page."""
    if not files:
        return ""
    count = sum(file["sent"] + file["received"] for file in files)
    return (
        f'<p class="soft">Its {count:,} packets are in {len(files)} files beside this page '
        f"({escape(files[0]['src'])} …), which are read as you zoom in; until then the extremes of short spans of "
        "time stand for them. "
        '<span class="packet-files" role="status"></span></p>'
    )


def _sequence(
    identifier: str, aside: str, packets: tuple[Sent, Received], packet_files: Sequence[dict[str, Any]] = ()
) -> str:
    sent, received = packets
    present = {KINDS[kind] for kind in np.unique(sent.kind)} | set(_ALWAYS)
    present |= {"sack"} if received.blocks.any() else set()
    legend = "".join(
        f'<button type="button" aria-pressed="true" data-layer="{key}" title="{escape(KIND_WORDS.get(key, name))}">'
        f'<i class="mark k-{key}"></i>{escape(name)}</button>'
        for key, name in _LAYERS.items()
        if key in present
    )
    return f"""<figure class="card sequence" id="{identifier}-sequence">
{_SAVE}
<h3>Time–sequence graph: every packet{_aside(aside)}</h3>
<p class="soft">A bar is a segment, from its first to its last byte; below the bars climbs the line of what was
acknowledged, above them the edge of the receiver's window. Zoom in until single packets part; point at one to read its
frame number, time and contents. Where retransmissions are too many to tell apart they are counted in the lanes below
the graph.</p>
{_packet_files(packet_files)}
<div class="legend">{legend}<button type="button" class="relative" aria-pressed="false">above the ACK line</button>
</div>
<div class="plot"><canvas tabindex="0" role="img" aria-label="Sequence numbers over time; the table below lists the
packets in view"></canvas><canvas class="overlay" aria-hidden="true"></canvas><div class="tip" hidden></div></div>
<div class="readout" aria-live="polite"></div>
<details class="behind"><summary>Packets in view, as a table</summary><div tabindex="0" role="group"
aria-label="Packets in view"></div></details>
</figure>"""


def _aside(aside: str) -> str:
    return f' <span class="aside">{escape(aside)}</span>' if aside else ""


def _panel(identifier: str, panel: Panel, aside: str) -> str:
    legend = "".join(
        f'<button type="button" aria-pressed="true">{_swatch(series)}{escape(series.label)}</button>'
        for series in panel.series
    )
    return f"""<figure class="card" id="{escape(identifier)}">
{_SAVE}
<h3>{escape(panel.title)}{_aside(aside)}</h3>
<p class="soft">{escape(panel.explanation)}</p>
<div class="legend">{legend}</div>
<div class="plot"><canvas tabindex="0" role="img" aria-label="{escape(panel.title)}: {escape(panel.axis)} over time; the
table below has the numbers"></canvas><canvas class="overlay" aria-hidden="true"></canvas></div>
<div class="readout" aria-live="polite"></div>
<details class="behind"><summary>Numbers in view, as a table</summary><div tabindex="0" role="group"
aria-label="{escape(panel.title)}, numbers"></div></details>
</figure>"""


def _swatch(series: Series) -> str:
    colour = f"c-{series.colour}"
    if series.kind == "points":
        mark = f'<circle cx="11" cy="6" r="3" class="{colour}"/>'
    else:
        dash = ' stroke-dasharray="4 3"' if series.dashed else ""
        mark = f'<line x1="1" y1="6" x2="21" y2="6" class="{colour}" stroke-width="2.2"{dash}/>'
    return f'<svg width="22" height="12" aria-hidden="true">{mark}</svg>'
