"""`cctrace reproduce`: figures of papers, and which of their claims hold."""

import contextlib
import os
from typing import Any

import click

from cctrace.arguments import MAX_WORKERS
from cctrace.cli.arguments import FILE
from cctrace.cli.common import command_options, echo, print_json, print_table, progress
from cctrace.errors import ArgumentError, MissingError
from cctrace.files import write_text

_MAX_ROWS = 60  # of a table on the screen; --output writes all


@click.command(short_help="Figures of papers, and which of their claims hold.")
@click.argument("paper", required=False)
@click.argument("figure", required=False)
@click.option("--list", "listed", is_flag=True, help="Name the papers and their figures, and stop.")
@click.option("--quick", is_flag=True, help="Few and short runs: seconds instead of minutes; marks may differ.")
@click.option("--fresh", is_flag=True, help="Recompute results that are kept on disk.")
@click.option("--workers", type=click.IntRange(1, MAX_WORKERS), default=None, help="Processes; default: one per core.")
@click.option("--trace", "traces", multiple=True, type=FILE, help="Your own link trace, where a figure takes them.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False), metavar="DIR", help="Write tables (CSV) and plots (PNG)."
)
@command_options()
def reproduce(paper: str | None, figure: str | None, listed: bool, output: str, as_json: bool, **options: Any) -> None:
    """Run a figure of a PAPER, or all of them, and print the results and which of the paper's claims hold.

    Results are kept on disk, named by code and parameters: an interrupted run resumes, and known results are reused.
    """
    from cctrace import papers
    from cctrace.lang.threads import cores
    from cctrace.papers.claims import SETTLES, summary

    if listed:
        _print_list(papers, paper, as_json)
        return
    if paper is None:
        raise ArgumentError(f"which paper? There are: {', '.join(papers.papers())}")
    names = list(papers.figures(paper)) if figure is None else [papers.find(paper, figure).name]
    if options["traces"]:
        names = _with_traces(papers, paper, names if figure is not None else None)
    else:
        del options["traces"]
    options["workers"] = options["workers"] or cores()
    found: list[Any] = []
    with progress("reproducing") as update:
        for name in names:
            (made,) = papers.reproduce(paper, name, progress=update, **options)
            found += made.claims
            if not as_json:
                _print_figure(made, output)
            if output is not None:
                _write(made, paper, output)
    if output is not None:
        _write_sizes(found, paper, output)
    if as_json:
        print_json([{"paper_name": paper, "quick": options["quick"]} | claim.to_dict() for claim in found])
        return
    echo(f"\n{summary(found)}")
    if any(claim.failed for claim in found):
        echo(f"what would settle the rest: {SETTLES[paper]}")


def _with_traces(papers: Any, paper: str, names: list[str] | None) -> list[str]:
    """Return those figures that take link traces, of the named or of all."""
    able = [name for name, one in papers.figures(paper).items() if "traces" in one.parameters]
    wrong = [name for name in names or () if name not in able]
    if wrong or not able:
        raise ArgumentError(f"--trace: figures of {paper} that take link traces: {', '.join(able) or 'none'}")
    return names or able


def _print_list(papers: Any, paper: str | None, as_json: bool) -> None:
    there = papers.papers() if paper is None else {paper: ""}
    found = [
        {"paper": name, "figure": one.name, "title": one.title}
        for name in there
        for one in papers.figures(name).values()
    ]
    if as_json:
        print_json(found)
        return
    print_table(("paper", "figure", "title"), [tuple(row.values()) for row in found])


def _print_figure(made: Any, output: str) -> None:
    table = made.shown()
    echo(f"\nFigure {made.figure.name}: {made.figure.title}")
    rows = [tuple(row) for row in table.itertuples(index=False)]
    print_table(list(table.columns), rows[:_MAX_ROWS])
    if len(rows) > _MAX_ROWS:
        where = "" if output else "; --output DIR writes all"
        echo(f"… {len(rows) - _MAX_ROWS} more rows{where}")
    for claim in made.claims:
        of = "; ".join(filter(None, [claim.part, claim.reading, "ours" if claim.ours else ""]))
        echo(f"\n[{claim.mark}] {claim.figure}: {claim.claim}{f' ({of})' if of else ''}")
        echo(f"    paper: {claim.paper}")
        echo(f"    here:  {claim.here}")
        if claim.recording:
            echo(f"    recording: {claim.recording}")
        if claim.failed:
            echo(f"    not fulfilled: {'; '.join(claim.failed)}")


def _write(made: Any, paper: str | None, output: str) -> None:
    os.makedirs(output, exist_ok=True)
    stem = os.path.join(output, f"{paper}_{made.figure.name}")
    plain = [name for name in made.runs if not made.runs[name].map(lambda value: isinstance(value, dict)).any()]
    write_text(f"{stem}_runs.csv", made.runs[plain].to_csv(index=False))
    write_text(f"{stem}.csv", made.table.to_csv(index=False))

    with contextlib.suppress(MissingError):  # matplotlib is an extra; the tables are written all the same
        made.plot().savefig(f"{stem}.png", dpi=110)


def _write_sizes(found: list[Any], paper: str, output: str) -> None:
    """Draw the paper's numbers beside those of all figures that were made."""
    with contextlib.suppress(MissingError):
        from cctrace.papers.sizes import sizes

        drawn = sizes(found, f"{paper}: the numbers of the paper, and ours")
        if drawn is not None:
            drawn.savefig(os.path.join(output, f"{paper}_sizes.png"), dpi=110)
