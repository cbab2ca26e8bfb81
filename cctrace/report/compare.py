"""Two captures side by side: figures, curves from a common start, and both in full."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cctrace.analysis.flow_analysis import FlowAnalysis
from cctrace.diagnosis.findings import shares
from cctrace.names import short_names
from cctrace.plot.limits import limit_words
from cctrace.plot.panels_of_many import comparison_panels
from cctrace.report.overview import COLUMNS, report_of, row_of, write_pages
from cctrace.report.page import FlowSection, Report
from cctrace.units import format_rate, format_rtt, format_share, format_size, format_time

_PAIRS = 4  # flows of each capture: its largest
# Key of a flow's row -> words, and the function that formats its value.
FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "bytes_sent": ("sent", format_size),
    "goodput_bps": ("goodput", format_rate),
    "rtt_min_us": ("RTT min", format_rtt),
    "rtt_median_us": ("RTT median", format_rtt),
    "rtt_p95_us": ("RTT p95", format_rtt),
    "retransmitted_share": ("retransmitted", format_share),
    "duration_s": ("duration", lambda s: format_time(s * 1e9)),
}


def pairs(left: Sequence[FlowAnalysis], right: Sequence[FlowAnalysis]) -> list[tuple[FlowAnalysis, FlowAnalysis]]:
    """Return the flows that are compared: the largest of both captures, the second largest, and so on."""
    return list(zip(left, right, strict=False))[:_PAIRS]


def differences(left: FlowAnalysis, right: FlowAnalysis) -> list[dict[str, Any]]:
    """Return how two flows differ.

    Returns list of dict: ``figure`` (as `cctrace flows --json` calls it; ``limit_NAME``: share of the time), ``a``,
    ``b``, ``ratio`` (b over a; None where a is 0 or one of them is unknown).
    """
    sides = [side.to_dict() for side in (left, right)]
    rows = [(name, _number(sides[0][name]), _number(sides[1][name])) for name in FIGURES]
    limits = _limits(left, right)
    for name in dict.fromkeys([*limits[0], *limits[1]]):
        rows.append((f"limit_{name}", float(limits[0].get(name, 0.0)), float(limits[1].get(name, 0.0))))
    return [
        {"figure": name, "a": a, "b": b, "ratio": b / a if a and np.isfinite([a, b]).all() else None}
        for name, a, b in rows
    ]


def in_words(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return a row of `differences` as texts: figure, both values, and their ratio."""
    limit = f"limited by {limit_words(row['figure'].removeprefix('limit_'))}"
    words, form = FIGURES.get(row["figure"], (limit, format_share))
    return words, form(row["a"]), form(row["b"]), "" if row["ratio"] is None else f"{row['ratio']:.3g}"


def _limits(left: FlowAnalysis, right: FlowAnalysis) -> list[dict[str, float]]:
    """Return the shares of the time that limits lasted, of each flow; {} where they are not known."""
    return [shares(side.diagnosis.limits) if side.diagnosis else {} for side in (left, right)]


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def write_comparison(left: Sequence[FlowAnalysis], right: Sequence[FlowAnalysis], folder: str | Path) -> Path:
    """Write a page that shows two captures side by side."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    compared = pairs(left, right)
    chosen = [side for pair in compared for side in pair]
    marks = [f"{mark}{k if len(compared) > 1 else ''}" for k in range(1, len(compared) + 1) for mark in "AB"]
    joint = report_of(chosen)
    flows = [
        section and replace(section, title=f"{mark}: {section.title}")
        for mark, section in zip(marks, joint.flows, strict=True)
    ]
    columns = ["Which", *COLUMNS, "Verdict"]
    rows = [[mark, *row_of(side), side.sentence] for mark, side in zip(marks, chosen, strict=True)]
    report = Report(
        title=" against ".join(_names(left[0].file, right[0].file)),
        source=f"A: {left[0].file} · B: {right[0].file}",
        columns=columns,
        rows=rows,
        flows=flows,
        notes=[note for k, pair in enumerate(compared) for note in _limits_in_words(marks[2 * k : 2 * k + 2], *pair)],
        comparison=_curves(marks, chosen),
    )
    page = folder / "report.html"
    write_pages(report, page)
    return page


def _names(*files: str) -> list[str]:
    """Return the names of two files, with as many folders as distinguish equal names."""
    names = [Path(file).name for file in files]
    return names if len(set(names)) > 1 else short_names(files)


def _curves(marks: Sequence[str], chosen: Sequence[FlowAnalysis]) -> FlowSection | None:
    views = {mark: side.view for mark, side in zip(marks, chosen, strict=True) if side.view is not None}
    if len(views) < 2:
        return None
    panels, duration_s = comparison_panels(views, aligned=True)[::2]
    notes = ["Each flow's time begins with its own first packet: these curves did not happen at the same time."]
    comparable = [panel for panel in panels if panel.name != "shares"]
    return FlowSection("Side by side", panels=comparable, duration_s=duration_s, notes=notes)


def _limits_in_words(marks: Sequence[str], left: FlowAnalysis, right: FlowAnalysis) -> Iterator[str]:
    """Yield one sentence about what limited both flows, if that is known."""
    sides = _limits(left, right)
    if not all(sides):
        return
    yield " ".join(
        f"What limited {mark}: {', '.join(f'{limit_words(n)} {format_share(s)}' for n, s in list(side.items())[:3])}."
        for mark, side in zip(marks, sides, strict=True)
    )
