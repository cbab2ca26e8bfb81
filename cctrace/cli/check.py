"""`cctrace check`: check expectations of captures, counters, or a folder of them."""

import click

from cctrace.cli.arguments import FILE, NEW_FILE, paths
from cctrace.cli.common import command_options, echo, print_json, print_table, progress
from cctrace.files import write_text

SCENARIO = ".toml"  # suffix of scenarios, `checking.subjects.SCENARIO`, which is slow to import
DOES_NOT_HOLD = 1  # exit status


@click.command(short_help="Check captures and simulations against expectations, for continuous integration.")
@paths("files", "FILE|DIR...", folders=True, besides=SCENARIO)
@click.option("--expect", "expectations", required=True, type=FILE, help="TOML file with the expectations.")
@click.option("--junit", type=NEW_FILE, help="Write JUnit XML, a test case per expectation and flow.")
@command_options()
def check(files: tuple[str, ...], expectations: str, junit: str | None, as_json: bool) -> int:
    """Check the flows of captures, counters or simulations against expectations; exit status 1 if one does not hold.

    \b
    flows = "largest"             or all, ADDRESS, ADDRESS:PORT, :PORT
    goodput = ">= 35Mbit"         rtt_p95, retransmitted, jain, converged: the same with <= or >=
    controller = "bbr"            the kernel's name or a variant
    verdict = ["path_full"]       the first verdict is one of these
    no_verdict = ["random_loss"]  no likely verdict is one of these
    [[expect]]                    more expectations, of other flows, or of some files of a folder
    files = "single_*"

    A folder stands for the captures in it and below, a scenario (FILE.toml, see `cctrace simulate --scenario`) for
    its simulation. An expectation does not hold if the record lacks the data to evaluate it.
    """
    from cctrace.checking.expectations import read

    wanted = read(expectations)
    from cctrace.checking.check import COLUMNS, check_all  # slow to import: report mistakes first

    with progress("loading") as update:
        checked = check_all(files, wanted, update)
    if junit is not None:
        write_text(junit, checked.to_junit())
    if as_json:
        print_json(checked.to_dict())
    else:
        rows = [(*one[:5], "yes" if one.holds else "NO") for one in checked.checks]
        print_table(COLUMNS, rows, heading=(2, lambda row: f"{row[0]}: {row[1]}"))
        echo(checked.summary().partition("\n")[0])
    return 0 if checked.holds else DOES_NOT_HOLD
