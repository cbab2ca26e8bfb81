"""The analyses of flows as a table for people, as objects for programs, as Parquet and as the page."""

from pathlib import Path

import pandas as pd

from cctrace.plot.flow import flow_panels, flow_phases
from cctrace.report.page import FlowSection, Report, write
from cctrace.units import format_rate, format_share, format_size, format_time

COLUMNS = ("Flow", "Sent", "Goodput", "RTT min", "RTT median", "RTT p95", "Retransmitted", "Controller")
_SECTIONS = 24  # flows drawn on one page; all are in the table and in the Parquet files


def table_row(analysis):
    """Return a flow's cells under `COLUMNS`, as texts."""
    row = analysis.row
    return [
        analysis.title,
        format_size(row["bytes_sent"]),
        format_rate(row["goodput_bps"]),
        *(_rtt(row[f"rtt_{which}_us"]) for which in ("min", "median", "p95")),
        format_share(analysis.retransmitted_share),
        analysis.controller or "unknown",
    ]


def as_object(analysis):
    """Return a flow as a dict for JSON: the keys of `cctrace flows`, and what the analysis adds."""
    known = {key: None if value is pd.NA else value for key, value in analysis.row.items() if key != "warnings"}
    return known | {
        "file": analysis.file,
        "retransmitted_share": analysis.retransmitted_share,
        "controller": analysis.controller,
        "warnings": analysis.notes,
    }


def write_report(analyses, folder, say=lambda text: None):
    """Write report.html and the tables of an analysis.

    Parameters
    ----------
    analyses : list of FlowAnalysis
    folder : path-like
        Made if it does not exist. The tables of an earlier report are removed.
    say : callable
        Receives what is being done, for display.

    Returns
    -------
    pathlib.Path
        Of report.html. Beside it: flows.parquet, and per flow flowN-events.parquet and, where the kernel's counters
        were given, flowN-tcpinfo.parquet.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    say("writing tables")
    for stale in folder.glob("flow[0-9]*-*.parquet"):
        stale.unlink()
    pd.DataFrame([as_object(analysis) for analysis in analyses]).to_parquet(folder / "flows.parquet")
    for i, analysis in enumerate(analyses):
        for name, table in _tables(analysis).items():
            table.to_parquet(folder / f"flow{i}-{name}.parquet")
    say("drawing")
    page = folder / "report.html"
    write(_report(analyses), page)
    return page


def _tables(analysis):
    view = analysis.view
    if view is None:
        return {}
    tables = {"events": pd.DataFrame(view.events), "model": view.model, "tcpinfo": view.kernel}
    return {name: table for name, table in tables.items() if table is not None}


def _report(analyses):
    files = list(dict.fromkeys(analysis.file for analysis in analyses))
    notes = []
    if len(analyses) > _SECTIONS:
        notes.append(f"Drawn below: the first {_SECTIONS} of {len(analyses)} flows; the tables hold all of them.")
    return Report(
        title=f"TCP flow {analyses[0].title}" if len(analyses) == 1 else f"{len(analyses)} TCP flows",
        source=" · ".join(files),
        columns=list(COLUMNS),
        rows=[table_row(analysis) for analysis in analyses],
        flows=[_section(analysis) for analysis in analyses[:_SECTIONS]],
        notes=notes,
    )


def _section(analysis):
    if analysis.view is None:
        return None
    view, row = analysis.view, analysis.row
    figures = [
        *zip(COLUMNS[1:], table_row(analysis)[1:], strict=True),
        ("Duration", format_time(row["duration_s"] * 1e9)),
    ]
    return FlowSection(
        title=f"{analysis.title}  ({Path(analysis.file).name})",
        figures=figures,
        panels=flow_panels(view),
        phases=flow_phases(view),
        duration_s=float(view.seconds(view.events)[-1]),
        notes=analysis.notes,
    )


def _rtt(value_us):
    return "unknown" if pd.isna(value_us) else format_time(value_us * 1000)
