"""`cctrace corpus`: any number of captures, on this machine or on a Dask cluster."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from cctrace.arguments import MAX_WORKERS
from cctrace.cli.arguments import NAMES, POSITIVE_TIME_NS, SIZE_BYTES, Text, check_file, check_folder, options
from cctrace.cli.common import command_options, echo, print_json, print_table, progress, warn

if TYPE_CHECKING:
    import pandas as pd


@click.group(short_help="Analyse any number of captures, here or on a cluster.")
def corpus() -> None:
    """From one capture to a million: run, then compact, info, report; or `cct.corpus.open(DIR)` in Python."""


def _check_output(folder: str, called: str) -> None:
    if "://" not in folder:
        check_folder(folder, called)


_INPUT = Text("input", lambda name, _: check_file(name.removeprefix("@"), not name.startswith("@")), completed="file")
_OUTPUT = Text("dir", _check_output, completed="dir")
_CORPUS = Text("dir", lambda folder, _: check_file(folder, folders=True), completed="dir")


@corpus.command(short_help="Analyse captures; resume an interrupted run.")
@options(
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, type=_INPUT),
    click.option("-o", "--output", required=True, type=_OUTPUT, help="Folder or URL for the tables."),
    click.option("--tasks", default="flows,explain",
                 help="Tasks: flows, explain, identify, fit, replay=NAME, whatif=NAME+NAME."),
    click.option("--what-if", "candidates", type=NAMES, metavar="NAME,...",
                 help="Also simulate these controllers over each flow's path."),
    click.option("--workers", type=click.IntRange(1, MAX_WORKERS), metavar="N",
                 help="Processes on this machine; default: one per core."),
    click.option("--scheduler", metavar="ADDRESS",
                 help="Dask scheduler whose workers to use, for example tcp://host:8786."),
    click.option("--counters", multiple=True, metavar="RULE",
                 help="Which counters belong to a capture: ours, mlab, none, or CAPTURE:COUNTERS such as "
                      "'{name}:{name}.ss.txt'; may be given more than once; default: ours and mlab."),
    click.option("--source", metavar="REGEX",
                 help="Its group in a capture's name is the `source`; default: M-Lab's host."),
    click.option("--memory", type=SIZE_BYTES, default="4GB", help="Memory that one capture may take."),
    click.option("--time", "lasting_ns", type=POSITIVE_TIME_NS, default="600s",
                 help="CPU time that one capture may take."),
    click.option("--limit", type=SIZE_BYTES,
                 help="Largest size that a compressed file may unpack to, for example 20GB."),
)  # fmt: skip
@command_options()
def run(
    inputs: tuple[str, ...], output: str, tasks: str, candidates: str | None, as_json: bool, **options: Any
) -> None:
    """Analyse every INPUT: captures, archives of them (tar, ZIP), counters, folders, patterns, URLs, lists (@FILE).

    Tables are Parquet datasets in DIR, one folder each: captures, errors, flows, verdicts, limits, events, controllers
    (identify), paths and collapse (fit), replays, whatifs. A capture that cannot be analysed becomes a row of errors.
    To resume after an interruption, run the same command again; it does nothing when nothing is left.

    With --json: captures, errors, packets, seconds (of this run), errors_by_kind, captures_per_second, already.
    """
    from cctrace import corpus as corpora  # slow to import: report mistakes first

    options["seconds"] = options.pop("lasting_ns") / 1e9
    if not options["counters"]:
        del options["counters"]
    if candidates:
        tasks = f"{tasks},whatif={candidates.replace(',', '+')}"
    with progress("listing") as update:
        summary = corpora.run(inputs, output, tasks, progress=update, **options)
    for warning in summary.warnings:
        warn(warning)
    if as_json:
        print_json(summary.to_dict())
    else:
        _print(summary, output)


def _print(summary: Any, output: str) -> None:
    rate = f" ({summary.captures / summary.seconds:,.1f} captures/s)" if summary.captures else ""
    rows = [("captures", f"{summary.captures:,}"), ("packets", f"{summary.packets:,}")]
    rows += [(f"errors: {kind}", f"{count:,}") for kind, count in sorted(summary.errors.items())]
    rows += [("time", f"{summary.seconds:,.1f} s{rate}")]
    rows += [("inputs done before", f"{summary.already:,}")] if summary.already else []
    print_table(("", "this run"), rows)
    echo(f"tables: {output}")


@corpus.command(short_help="Merge small parts into large ones.")
@click.argument("folder", metavar="DIR", type=_CORPUS)
@command_options()
def compact(folder: str, as_json: bool) -> None:
    """Merge the parts of every table in DIR into sorted parts of 64 to 128 MB; the rows do not change.

    Equal corpora are identical afterwards, except `_run` and `manifest`. With --json: before and after, numbers of
    parts.
    """
    from cctrace import corpus as corpora

    with progress("compacting") as update:
        result = corpora.compact(folder, update)
    if as_json:
        print_json(result)
    else:
        echo(f"{result['before']} parts are now {result['after']}")


@corpus.command(short_help="Summarise a corpus.")
@click.argument("folder", metavar="DIR", type=_CORPUS)
@click.option("--by", metavar="COLUMN", help="Group by a column: source, date, network, controller.")
@command_options()
def info(folder: str, by: str | None, as_json: bool) -> None:
    """Summarise the corpus in DIR: verdicts, controllers, collapse, errors, each per group.

    With --json: captures, packets, errors, and a list of rows for verdicts, controllers, collapse, whatif and
    errors_by_kind, as far as the tasks that fill them ran.
    """
    from cctrace import corpus as corpora

    with progress("reading"):
        opened = corpora.open(folder)
        result = opened.overview(by)
    if as_json:
        print_json({name: one if isinstance(one, int) else one.to_dict("records") for name, one in result.items()})
        return
    numbers = [(name, f"{one:,}") for name, one in result.items() if isinstance(one, int)]
    print_table(("", "corpus"), numbers)
    for name, frame in result.items():
        if not isinstance(frame, int) and len(frame):
            frame = _with_causes(frame)
            echo()
            print_table(
                list(frame.columns), [[_text(cell) for cell in row] for row in frame.itertuples(index=False)], name
            )
    if "controllers" not in opened.tables:
        echo()
        echo("controllers: only as counters name them; a run with --tasks flows,explain,identify identifies them")


def _with_causes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of verdicts with the cause in plain words beside each; others as they are."""
    from cctrace.diagnosis.catalogue import CAUSES

    if "verdict" not in frame:
        return frame
    place = list(frame.columns).index("verdict") + 1
    frame = frame.copy()
    frame.insert(place, "cause", frame["verdict"].map(lambda name: CAUSES[name].words if name in CAUSES else ""))
    return frame


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return str(value)


@corpus.command(short_help="Write a page over the corpus, and pages of flows.")
@options(
    click.argument("folder", metavar="DIR", type=_CORPUS),
    click.option("-o", "--output", type=click.Path(), metavar="DIR",
                 help="Where the pages go; default: DIR/report, of a URL ./report."),
    click.option("--by", default="source", metavar="COLUMN", help="Group by source, date or network."),
    click.option("--flows", "pages", default=20, type=click.IntRange(0, 10_000), metavar="N",
                 help="Flows that get a page of their own."),
)  # fmt: skip
@command_options(json=False)
def report(folder: str, output: str | None, by: str, pages: int) -> None:
    """Write index.html over the corpus in DIR: distributions, a table to sort and search, and pages of single flows.

    The pages are drawn from the captures, which must still be where they were.
    """
    from cctrace import corpus as corpora
    from cctrace.report.corpus import write_pages

    with progress("reading") as update:
        page = write_pages(corpora.open(folder), output, by, pages, update)
    echo(f"report: {page}")
