"""Analyses of flows as a table for people, objects for programs, Parquet files, and the page."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cctrace.analysis.flow_analysis import SIMULATED, FlowAnalysis
from cctrace.analysis.flow_view import FlowView
from cctrace.columns import Table, give_back
from cctrace.display import Progress, silent, visible
from cctrace.errors import StreamError
from cctrace.files import write_text
from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow
from cctrace.identification.sender_text import sender_text
from cctrace.lang.threads import cores
from cctrace.plot.packets import Received, Sent, packets_of
from cctrace.plot.panels_of_counters import counter_panels, counter_phases
from cctrace.plot.panels_of_flow import flow_panels, flow_phases
from cctrace.plot.panels_of_many import COMPARED, comparison_panels
from cctrace.plot.states import lanes
from cctrace.refusals import Attempt, Refusal
from cctrace.replaying.inference.through_fq import FQ_IN_WORDS
from cctrace.report.chunks import CHUNK, PACKETS, SPANS, Packed, pack, with_packets_in_files
from cctrace.report.page import FlowSection, Report, write
from cctrace.report.save import save
from cctrace.units import format_rate, format_rtt, format_share, format_size, format_time

COLUMNS = ("Flow", "Cause", "Sent", "Goodput", "RTT min", "RTT median", "RTT p95", "Retransmitted", "Controller")
AGREEMENT = "Replay = kernel"  # the last column, where there is something to compare
# Share of polls at which the replay and the kernel agree: key of `Comparison.to_dict`, short name, full name.
_FIGURES = (
    ("bw_1%", "bw", "bw = kernel"),
    ("min_rtt_1%", "min_rtt", "min_rtt = kernel"),
    ("pacing_gain", "gain", "gain = kernel"),
    ("cwnd_2", "cwnd", "cwnd = kernel"),
)
_FEW = 8  # flows whose causes are seen at a glance
_MANY = 200  # flows whose tables processes share, each of which has to import pyarrow
_SECTIONS = 24  # flows drawn on one page; all are in the table and in the Parquet files


def table(analyses: Sequence[FlowAnalysis]) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of texts that summarise flows, one row per flow."""
    rows = [row_of(analysis) for analysis in analyses]
    if not any(analysis.agreement for analysis in analyses):
        return [*COLUMNS], rows
    for row, analysis in zip(rows, analyses, strict=True):
        agreement = analysis.agreement or {}
        figures = [f"{short} {format_share(agreement[key])}" for key, short, _ in _FIGURES if key in agreement]
        row.append(", ".join(figures[:3]))
    return [*COLUMNS, AGREEMENT], rows


def cause_counts(analyses: Sequence[FlowAnalysis]) -> str:
    """Return how many flows have each cause, the most frequent first; "" if there are few."""
    causes = Counter(analysis.diagnosis.in_words for analysis in analyses if analysis.diagnosis)
    if causes.total() <= _FEW:
        return ""
    counts = [f"{cause} {count}" for cause, count in causes.most_common()]
    return f"causes of {causes.total()} flows: {' · '.join(counts)}"


def row_of(analysis: FlowAnalysis) -> list[str]:
    """Return the texts of one flow under `COLUMNS`."""
    row, named, replayed = analysis.row, analysis.controller, analysis.replayed
    return [
        analysis.title,
        analysis.diagnosis.in_words if analysis.diagnosis else "",
        format_size(row["bytes_sent"]),
        format_rate(row["goodput_bps"]),
        *(format_rtt(row[f"rtt_{which}_us"]) for which in ("min", "median", "p95")),
        format_share(analysis.retransmitted_share),
        f"{named} (as {replayed})" if named and replayed not in (None, named) else _sender(analysis),
    ]


def _sender(analysis: FlowAnalysis) -> str:
    """Return a flow's sender: named by the counters, otherwise identified."""
    return analysis.controller or sender_text(
        analysis.identification, analysis.diagnosis.causes if analysis.diagnosis else ()
    )


def write_report(
    analyses: Sequence[FlowAnalysis], folder: str | Path, progress: Progress = silent, workers: int | None = None
) -> Path:
    """Write report.html and the tables of an analysis into a folder, made if it does not exist; return the page.

    Beside it: flows.parquet, and per flow flowN-events.parquet; where the kernel's counters were given
    flowN-tcpinfo.parquet; where a controller was replayed flowN-replay.parquet; with both flowN-agreement.parquet;
    where what-if was asked flowN-whatif.parquet. Without pyarrow (the extra "parquet") these are compressed CSV,
    flows.csv.gz and so on. The tables of an earlier report are removed. `workers`: processes that share the tables of
    many flows, default one per core. Raises `OSError` if the folder cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    progress("writing tables")
    for ending in ("parquet", "csv.gz", "html", "js"):
        for stale in folder.glob(f"flow[0-9]*-*.{ending}"):
            stale.unlink()
    page = folder / "report.html"
    rest: Sequence[int] = range(len(analyses))
    workers = workers or cores()
    if len(analyses) >= _MANY and workers > 1:
        rest = _save_in_processes(analyses, folder, workers)
    with ThreadPoolExecutor(1) as pool:  # tables are mostly written by compiled code, which runs beside the drawing
        written = pool.submit(_save_tables, analyses, folder, rest)
        progress("drawing")
        write_pages(report_of(analyses), page)
        give_back()  # what was drawn, while tables are written on
        written.result()
    return page


def _save_in_processes(analyses: Sequence[FlowAnalysis], folder: Path, workers: int) -> list[int]:
    """Write the tables of each flow; return the flows for which the process was ended."""
    from cctrace.lang.processes import BrokenProcessPool, made_in_order

    saved = made_in_order(lambda i: _save_tables_of(analyses[i], folder, i), len(analyses), workers)
    return [i for i, result in enumerate(saved) if isinstance(result, BrokenProcessPool)]


def _save_tables(analyses: Sequence[FlowAnalysis], folder: Path, numbers: Iterable[int]) -> None:
    """Write the table of flows, and the tables of `each` of some."""
    rows = [_storable(analysis.to_dict()) for analysis in analyses]
    names = [name for name in dict.fromkeys(itertools.chain(*rows)) if name not in SIMULATED]
    save({name: [row.get(name) for row in rows] for name in names}, folder, "flows")
    for i in numbers:
        _save_tables_of(analyses[i], folder, i)


def _save_tables_of(analysis: FlowAnalysis, folder: Path, number: int) -> None:
    tables: dict[str, Table] = {}
    with Attempt(f"table of {analysis.title}"):
        tables = _tables(analysis)
    for name, columns in tables.items():
        nullable = set(columns) - {"connection"} if name == "tcpinfo" else ()
        save(columns, folder, f"flow{number}-{name}", nullable)


def _storable(value: Any) -> Any:
    """Return a value as Parquet takes it: None for a record without fields, texts as UTF-8."""
    if isinstance(value, dict):
        return {name: _storable(field) for name, field in value.items()} or None
    if isinstance(value, str):
        return visible(value)
    return [_storable(field) for field in value] if isinstance(value, list) else value


def keeper() -> Callable[[Flow], tuple[Sent, Received] | Packed | None]:
    """Return what keeps the packets of flows of large files, for `analyze`: compressed if they are many."""
    number = itertools.count(1)

    def keep(flow: Flow) -> tuple[Sent, Received] | Packed | None:
        k = next(number)
        if k > _SECTIONS:
            return None
        packets = packets_of(flow)
        few = sum(len(side) for side in packets) <= CHUNK
        return packets if few else pack(packets, int(flow.row["start_ns"]), SPANS // k)

    return keep


def write_pages(report: Report, page: Path) -> None:
    """Write the page and, beside it, the files of packets that are too many for it."""
    give_back()  # of a million packets 90 MB
    stems = [f"flow{i}" for i in range(len(report.flows))]
    sections, packet_files = with_packets_in_files(report.flows, stems)
    give_back()
    write(replace(report, flows=sections), page)
    for name, text in packet_files:
        write_text(page.parent / name, text)


def _tables(analysis: FlowAnalysis) -> dict[str, Table]:
    view = analysis.view
    tables: dict[str, Table | None] = {"agreement": analysis.polled}
    if analysis.counters is not None:
        tables |= {"tcpinfo": analysis.counters.polls.table(), "replay": analysis.modelled}
        with contextlib.suppress(StreamError):  # missing data have been noted already
            records = analysis.counters.events.rows
            tables["events"] = {name: records[name] for name in records.dtype.names or ()}
    if view is not None:
        tables |= {"events": view.events, "tcpinfo": view.kernel, "replay": view.model}
    if analysis.whatif is not None and not isinstance(analysis.whatif, Refusal):
        frame = analysis.whatif.frame()
        tables["whatif"] = {str(name): frame[name].to_numpy() for name in frame}
    return {name: columns for name, columns in tables.items() if columns is not None}


def _lasted(view: FlowView) -> tuple[int, int]:
    """Return when a flow began and ended, ns."""
    return view.start_ns, int(view.events["time_ns"][-1])


def report_of(analyses: Sequence[FlowAnalysis]) -> Report:
    """Return the `Report` of flows."""
    files = list(dict.fromkeys(analysis.file for analysis in analyses))
    notes = []
    if len(analyses) > _SECTIONS:
        notes.append(f"Drawn below: the first {_SECTIONS} of {len(analyses)} flows; the tables hold all of them.")
    others, more = _others(analyses)
    if more:
        notes.append(f"{more} more flows are in no table.")
    columns, rows = table([*analyses, *others])
    drawn = [_section(analysis, notes, len(analyses) == 1) for analysis in analyses[:_SECTIONS]]
    comparison = None
    with Attempt("comparison of the flows", notes):
        comparison = _comparison(analyses)
    return Report(
        title=_title(analyses, len(analyses) + len(others) + more),
        source=" · ".join(files),
        causes=cause_counts(analyses),
        columns=columns,
        rows=rows[: len(analyses)],
        others=rows[len(analyses) :],
        flows=drawn,
        notes=notes,
        comparison=comparison,
    )


_LISTED = 5000  # flows beside those that are explained


def _others(analyses: Sequence[FlowAnalysis]) -> tuple[list[FlowAnalysis], int]:
    """Return the flows of the captures that were not analysed, and how many more there are."""
    known = {(analysis.file, analysis.flow.index) for analysis in analyses if analysis.flow is not None}
    captures = {analysis.file: analysis.flow.capture for analysis in analyses if analysis.flow is not None}
    rows = [
        FlowAnalysis(file, row)
        for file, capture in captures.items()
        for i, row in enumerate(itertools.islice(capture.connections.each_row(), _LISTED + len(known)))
        if (file, i) not in known
    ]
    total = sum(len(capture) for capture in captures.values()) - len(known)
    return rows[:_LISTED], max(0, total - _LISTED)


def _comparison(analyses: Sequence[FlowAnalysis]) -> FlowSection | None:
    """Return the section that shows the largest flows side by side; None for a single one."""
    views = {analysis.title: analysis.view for analysis in analyses if analysis.view is not None}
    if len(views) > 1:
        first, last = _lasted(next(iter(views.values())))  # of the largest: captures of different days share no axis
        spans = {title: _lasted(view) for title, view in views.items()}
        views = {title: view for title, view in views.items() if spans[title][0] <= last and spans[title][1] >= first}
    if len(views) < 2:
        return None
    chosen = dict(list(views.items())[:COMPARED])
    panels, start_ns, duration_s = comparison_panels(chosen)
    notes = [f"The {COMPARED} largest of {len(views)} flows."] if len(views) > COMPARED else []
    return FlowSection("The flows side by side", panels=panels, duration_s=duration_s, notes=notes, start_ns=start_ns)


def _title(analyses: Sequence[FlowAnalysis], total: int) -> str:
    if len(analyses) > 1:
        return f"{len(analyses)} flows" if len(analyses) == total else f"{len(analyses)} of {total} flows"
    counters = analyses[0].counters
    kind = "QUIC" if counters is not None and counters.polls.format == "qlog" else "TCP"
    return f"{kind} {'flow ' if analyses[0].row['src'] else ''}{analyses[0].title}"


def _section(analysis: FlowAnalysis, notes: list[str], is_alone: bool) -> FlowSection | None:
    """Return the section of a flow; None if it cannot be drawn, with a line in `notes`. `is_alone`: on its page."""
    with Attempt(f"section of {analysis.title}", notes):
        if analysis.counters is not None:
            return _section_of_counters(analysis, analysis.counters)
        if analysis.view is not None:
            return _section_of_packets(analysis, analysis.view, is_alone)
    return None


def _section_of_counters(analysis: FlowAnalysis, counters: CounterFlow) -> FlowSection:
    section = replace(
        _in_words(analysis),
        duration_s=float(np.nan_to_num(analysis.row["duration_s"])),
        time_axis="Time since the first poll (s)",
        start_ns=int(counters.start_ns),
    )
    if not counters.is_timed:
        return replace(section, limits=[], events=[])
    return replace(section, panels=counter_panels(counters, analysis.modelled), phases=counter_phases(counters))


def _section_of_packets(analysis: FlowAnalysis, view: FlowView, is_alone: bool) -> FlowSection:
    captured = analysis.packets if analysis.flow is None else packets_of(analysis.flow)
    give_back(analysis.row["packets"])
    packed = captured if isinstance(captured, Packed) else None
    packets = packed.drawn if packed else captured if isinstance(captured, tuple) else None
    del captured
    # As `with_packets_in_files` would, but before plots.
    if is_alone and not packed and packets and sum(map(len, packets)) > PACKETS:
        packed = pack(packets, view.start_ns, SPANS)
        packets = packed.drawn[0], packets[1]  # of which the receive window is drawn
        give_back()
    section = with_plots(_in_words(analysis), view, packets)
    return replace(section, packets=packed.drawn if packed else packets, packed=packed, reverse=view.reverse)


def with_plots(section: FlowSection, view: FlowView, packets: tuple[Sent, Received] | None) -> FlowSection:
    """Return a flow's section with its panels, states, and packets, if available."""
    return replace(
        section,
        panels=flow_panels(view, packets, progress=packets is None),
        phases=flow_phases(view),
        duration_s=float(view.seconds({"time_ns": view.events["time_ns"][-1:]})[0]),
        packets=packets,
        start_ns=view.start_ns,
        taken_at=view.taken_at,
        lanes=lanes(view),
    )


def _in_words(analysis: FlowAnalysis) -> FlowSection:
    row, diagnosis, identification = analysis.row, analysis.diagnosis, analysis.identification
    figures = [
        *zip(COLUMNS[2:-1], row_of(analysis)[2:-1], strict=True),
        ("Duration", "unknown" if np.isnan(row["duration_s"]) else format_time(row["duration_s"] * 1e9)),
    ]
    figures += [("Controller", _sender(analysis))]
    figures += [("Sent through", FQ_IN_WORDS[True])] if analysis.through_fq else []
    figures += [("ECN", analysis.ecn["in_words"])] if analysis.ecn and analysis.ecn["in_words"] else []
    figures += [("Replayed as", analysis.replayed)] if analysis.replayed else []
    agreement = analysis.agreement or {}
    figures += [(name, format_share(agreement[key])) for key, _, name in _FIGURES if key in agreement]
    return FlowSection(
        title=f"{analysis.title}  ({Path(analysis.file).name})",
        figures=figures,
        cause=diagnosis.in_words if diagnosis else "",
        verdict=diagnosis.verdict if diagnosis else "",
        notes=[*analysis.notes, *(analysis.flow.capture.packets.notes if analysis.flow is not None else ())],
        limits=diagnosis.limits if diagnosis else [],
        events=diagnosis.events if diagnosis else [],
        verdicts=diagnosis.verdicts if diagnosis else [],
        candidates=[(candidate.name, candidate.probability) for candidate in identification.candidates]
        if identification
        else [],
        sender=_sender(analysis),
        identified=identification.reason if identification else "",
        whatif=analysis.whatif,
        effects=analysis.effects,
        forecast=analysis.collapse,
    )
