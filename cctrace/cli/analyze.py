"""`cctrace analyze`: explain every bulk flow of captures, and write a report."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from cctrace.arguments import MAX_WORKERS
from cctrace.cli.arguments import FOLDER, controller_option, options, paths, tcpinfo_option, trust_option
from cctrace.cli.common import (
    command_options,
    echo,
    print_json,
    print_table,
    print_text,
    progress,
    reading_options,
    show_traceback,
    warn,
)
from cctrace.diagnosis import GOALS
from cctrace.display import endpoint
from cctrace.errors import ArgumentError
from cctrace.refusals import Refusal
from cctrace.units import format_rate, format_share

if TYPE_CHECKING:
    from pathlib import Path

    from cctrace.analysis.flow_analysis import FlowAnalysis
    from cctrace.diagnosis.findings import Verdict

_OFTEN = 3  # flows for which the same is said one by one
FAILED = 2  # exit status where a capture among many could not be analysed
FURTHER, LIKELY = 3, 0.5  # verdicts printed after the first, and how sure they must be
_TOGETHER = 8  # files on one page


@click.command(short_help="Explain every bulk flow of captures; write a report.")
@options(
    paths("files", "FILE|DIR...", folders=True),
    tcpinfo_option,
    controller_option(help="Replay this controller over every flow; default: the one named by counters, none without "
                           "a capture."),
    click.option("-o", "--output", "folder", type=FOLDER, default="cctrace-report",
                 help="Folder for report.html and the tables."),
    click.option("--what-if", is_flag=True, help="Quantify the advice by simulation (some seconds a flow)."),
    click.option("--effects/--no-effects", default=True,
                 help="Simulate the cost of each cause, and order the causes by it; --no-effects is faster."),
    click.option("--goal", type=click.Choice(GOALS), default=GOALS[0], help="What the causes are ordered by first."),
    click.option("--workers", type=click.IntRange(1, MAX_WORKERS), metavar="N",
                 help="Processes that share the flows if they are many; default: one per core."),
)  # fmt: skip
@reading_options
@trust_option
@command_options()
def analyze(
    files: tuple[str, ...],
    tcpinfo: tuple[str, ...],
    controller: str | None,
    folder: str,
    what_if: bool,
    reading: dict[str, Any],
    as_json: bool,
    **options: Any,
) -> int:
    """Explain every bulk flow of captures taken at the sender, or of counters alone (ss, NDT7, iperf3, qlog, ...).

    Prints why each flow behaved as it did, and a table (with --json, a list with one object per flow), and writes
    DIR/report.html, which opens offline, with the tables as Parquet beside it.

    A folder stands for all captures in it and below. These, and more than eight files, each get a report of their
    own, and DIR/report.html lists them. A capture that cannot be analysed is a warning, a line on that page and
    exit status 2; the others are still analysed.
    """
    from cctrace.columns import share_heap

    share_heap()
    listed = (len(files) > _TOGETHER and not tcpinfo) or any(map(os.path.isdir, files))
    options |= reading
    if listed:
        return _index(_files(files), controller, folder, options | {"what_if": what_if}, as_json)
    from cctrace.analysis.analyze import analyze as run
    from cctrace.report.overview import cause_counts, keeper, table, write_report

    with progress("loading") as update:
        analyses = run(files, tcpinfo, controller, update, what_if, keeper(), **options)
        page = write_report(analyses, folder, update, options["workers"])
    for note in _notes(analyses):
        warn(note)
    if as_json:
        print_json([analysis.to_dict() for analysis in analyses])
    else:
        for analysis in analyses:
            for line in _verdicts(analysis):
                print_text(line)
        columns, rows = table(analyses)
        print_table(
            columns,
            rows,
            heading=(2, lambda row: f"{row[0]}: {row[1]}" if row[1] else row[0]),
            short={"Retransmitted": "Resent"},
        )
        if counts := cause_counts(analyses):
            echo(counts)
    echo(f"report: {page}", err=as_json)
    return 0


def _notes(analyses: list[FlowAnalysis]) -> Iterator[str]:
    """Return the notes on the data; a note on many flows of a file appears once, with their number."""
    notes = collections.Counter((analysis.file, note) for analysis in analyses for note in set(analysis.notes))
    for analysis in analyses:
        for note in analysis.notes:
            if analysis.file in note:
                yield note
            elif (many := notes[analysis.file, note]) > _OFTEN:
                yield f"{analysis.file}: {many} flows: {note}"
            else:
                yield f"{analysis.title}: {note}"


def _verdicts(analysis: FlowAnalysis) -> list[str]:
    """Return the lines on one flow: its first verdict with advice, and the next ones in brief."""
    if analysis.diagnosis is None:
        return []
    first, *others = analysis.diagnosis.verdicts
    further = [verdict for verdict in others if verdict.is_there >= LIKELY][:FURTHER]
    effect = _effect(first)
    also, printed = [], {effect}
    for verdict in further:  # causes that only one change removes have the same effect, which is said once
        its = _effect(verdict)
        also.append(f"    also: {verdict.text} {'' if its in printed else its[:1].upper() + its[1:]}".rstrip())
        printed.add(its)
    found = analysis.whatif
    asked = [f"what if: {found}"] if isinstance(found, Refusal) else found.lines() if found else []
    helps = [f"    {line}" for line in [effect, *asked] if line]
    return [f"{analysis.title}: {analysis.diagnosis.verdict}", *helps, *also]


def _effect(verdict: Verdict) -> str:
    """Return the sentence on the effect of removing a cause, empty if unknown."""
    from cctrace.counterfactual.effects import effect_words

    return "" if verdict.effect is None else f"{effect_words(verdict.effect)}."


def _files(given: Iterable[str]) -> list[str | Path]:
    """Return the files, with the captures in a folder for the folder."""
    from cctrace.report.index import captures_in

    found: list[str | Path] = [one for file in given for one in (captures_in(file) if os.path.isdir(file) else [file])]
    if not found:
        raise ArgumentError(f"{' '.join(given)}: no captures in this folder")
    return found


def _index(files: list[str | Path], controller: str | None, folder: str, options: dict[str, Any], as_json: bool) -> int:
    """Write the reports and the list of them; return the exit status."""
    from cctrace.report.index import write_index

    with progress("loading") as update:
        page, objects, notes = write_index(files, folder, controller, update, show_traceback, **options)
    for note in notes:
        warn(note)
    if as_json:
        print_json(objects)
    else:
        from cctrace.diagnosis.order import cause_words

        rows = [
            (
                one["report"].rpartition("/")[0],
                endpoint(one["src"], one["sport"]),
                cause_words(one["verdicts"][0]["name"], one["verdicts"][0]["presence"]) if one["verdicts"] else "",
                format_rate(one["goodput_bps"]),
                format_share(one["retransmitted_share"]),
            )
            for one in objects
        ]
        columns = ("capture", "sender", "cause", "goodput", "retransmitted")
        print_table(columns, rows, heading=(2, lambda row: f"{row[0]}: {row[1]}"))
    echo(f"report: {page}", err=as_json)
    return FAILED if notes else 0
