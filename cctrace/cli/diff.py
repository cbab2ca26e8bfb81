"""`cctrace diff`: compare two captures."""

from typing import Any

import click

from cctrace.cli.arguments import CAPTURE, FOLDER
from cctrace.cli.common import command_options, echo, print_json, print_table, progress, reading_options


@click.command(short_help="Compare two captures.")
@click.argument("a", type=CAPTURE)
@click.argument("b", type=CAPTURE)
@click.option("-o", "--output", "folder", type=FOLDER, default="cctrace-diff", help="Folder for report.html.")
@reading_options
@command_options()
def diff(a: str, b: str, folder: str, reading: dict[str, Any], as_json: bool) -> None:
    """Compare the largest flow of capture A with that of B, the second largest with the second, up to four.

    Prints how their figures and limits differ (with --json, a list of pairs with "a", "b" and "differences"), and
    writes DIR/report.html: curves from a common start, and both captures down to the packet.
    """
    from cctrace.analysis.analyze import analyze
    from cctrace.report.compare import differences, in_words, pairs, write_comparison
    from cctrace.report.overview import keeper

    with progress("loading") as update:
        left, right = (analyze([file], progress=update, keep=keeper(), effects=False, **reading) for file in (a, b))
        update("drawing")
        page = write_comparison(left, right, folder)
    found = [(one, other, differences(one, other)) for one, other in pairs(left, right)]
    if as_json:
        print_json([{"a": x.title, "b": y.title, "differences": rows} for x, y, rows in found])
    for one, other, rows in () if as_json else found:
        echo(f"A: {one.title} of {one.file}\nB: {other.title} of {other.file}\n")
        print_table(("figure", "A", "B", "B / A"), [in_words(row) for row in rows])
        for mark, side in (("A", one), ("B", other)):
            if side.diagnosis:
                echo(f"{mark}: {side.diagnosis.verdict}")
        echo()
    echo(f"report: {page}", err=as_json)
