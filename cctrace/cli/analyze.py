"""`cctrace analyze`: explain every bulk flow of captures, and write a report."""

import collections
import os

import click

from cctrace.cli.arguments import controller_option, file_option, folder_option, paths
from cctrace.cli.common import command_options, print_json, print_table, progress, reading_options, warn

_OFTEN = 3  # flows for which the same is said one by one
FURTHER, LIKELY = 3, 0.5  # verdicts printed after the first, and how sure they must be


@click.command(short_help="Explain every bulk flow of captures; write a report.")
@paths("files", "FILE|DIR...", folders=True)
@file_option(
    "--tcpinfo",
    multiple=True,
    metavar="FILE",
    help="The kernel's counters of these flows; may be given more than once.",
)
@controller_option(
    "--controller",
    "--cc",
    "controller",
    metavar="NAME",
    help="Replay this controller over every flow; default: the one that the counters name, none without a capture.",
)
@folder_option(
    "-o",
    "--output",
    "folder",
    default="cctrace-report",
    show_default=True,
    help="Folder for report.html and the tables.",
)
@click.option(
    "--what-if", is_flag=True, help="Put numbers to the advice: simulate what it names (some seconds a flow)."
)
@reading_options
@command_options()
def analyze(files, tcpinfo, controller, folder, what_if, limit, decapsulate, as_json):
    """Explain every bulk flow of captures taken at the sender, or of counters alone (ss, NDT7, iperf3, qlog, ...).

    Prints why every flow went as it did, and a table (with --json, a list with one object per flow), and writes
    DIR/report.html, which opens offline, with the tables as Parquet beside it.

    A folder stands for all captures in it and below. They, and more than eight files, each get a report of their own,
    and DIR/report.html lists them.
    """
    listed = (len(files) > _TOGETHER and not tcpinfo) or any(map(os.path.isdir, files))
    if listed:
        files = _files(files)
        options = {"limit": limit, "decapsulate": decapsulate} | ({"what_if": True} if what_if else {})
        _index(files, controller, folder, options, as_json)
        return
    from cctrace.explain.analyze import analyze as run
    from cctrace.report.overview import as_object, keeper, table, write_report

    with progress("loading") as say:
        options = {"limit": limit, "decapsulate": decapsulate}
        analyses = run(files, tcpinfo, controller, say, what_if, keeper(), **options)
        page = write_report(analyses, folder, say)
    for note in _notes(analyses):
        warn(note)
    if as_json:
        print_json([as_object(analysis) for analysis in analyses])
    else:
        for analysis in analyses:
            for line in _verdicts(analysis):
                click.echo(line)
        print_table(*table(analyses))
    click.echo(f"report: {page}", err=as_json)


def _notes(analyses):
    """Return what there is to say about the data; what holds for many flows of a file once, with their number."""
    notes = collections.Counter((analysis.file, note) for analysis in analyses for note in set(analysis.notes))
    for analysis in analyses:
        for note in analysis.notes:
            if analysis.file in note:
                yield note
            elif (many := notes[analysis.file, note]) > _OFTEN:
                yield f"{analysis.file}: {many} flows: {note}"
            else:
                yield f"{analysis.title}: {note}"


def _verdicts(analysis):
    """Return the lines on one flow: its first verdict with advice, and the next ones in short."""
    told = analysis.collapse if isinstance(analysis.collapse, str) else analysis.collapse and analysis.collapse.line()
    forecast = [f"{analysis.title}: minRTT collapse: {told}"] if told else []
    if analysis.diagnosis is None:
        return forecast
    further = [verdict for verdict in analysis.diagnosis.verdicts[1:] if verdict.confidence >= LIKELY][:FURTHER]
    also = (f"    also: {verdict.text}" for verdict in further)
    helps = [f"    {line}" for line in _helps(analysis.whatif)]
    return [f"{analysis.title}: {analysis.diagnosis.verdict}", *helps, *also, *forecast]


def _helps(found):
    """Return the lines on what would help, if that was asked."""
    return [f"what if: {found}"] if isinstance(found, str) else found.lines() if found else []


_TOGETHER = 8  # files on one page


def _files(given):
    """Return the files, with the captures in a folder for the folder."""
    from cctrace.errors import ArgumentError
    from cctrace.report.index import captures_in

    found = [one for file in given for one in (captures_in(file) if os.path.isdir(file) else [file])]
    if not found:
        raise ArgumentError(f"{' '.join(given)}: no captures in there")
    return found


def _index(files, controller, folder, options, as_json):
    from cctrace.report.index import write_index

    with progress("loading") as say:
        page, objects, notes = write_index(files, folder, controller, say, **options)
    for note in notes:
        warn(note)
    if as_json:
        print_json(objects)
    else:
        from cctrace.units import format_rate, format_share

        rows = [
            (
                one["report"].rpartition("/")[0],
                f"{one['src']}:{one['sport']}",
                format_rate(one["goodput_bps"]),
                format_share(one["retransmitted_share"]),
                one["diagnosis"]["cause"] if one["diagnosis"] else "",
            )
            for one in objects
        ]
        print_table(("capture", "sender", "goodput", "retransmitted", "limited by"), rows)
    click.echo(f"report: {page}", err=as_json)
