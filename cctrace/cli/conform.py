"""`cctrace conform`: a controller against a specification."""

from __future__ import annotations

import click

from cctrace.cli.arguments import controller_name, output_option, trust_option
from cctrace.cli.common import command_options, echo, print_json, print_table, progress


@click.command(short_help="Check a controller against its specification.")
@click.argument("subject", metavar="CONTROLLER")
@click.option("--spec", required=True, metavar="NAME", help="The specification: bbr.")
@click.option("--seed", default=1, show_default=True, help="Of the simulations.")
@click.option("--all", "every", is_flag=True, help="List what conforms and what was not exercised, too.")
@output_option("--junit", "junit_file", help="Write JUnit XML for continuous integration.")
@trust_option
@command_options()
def conform(
    subject: str,
    spec: str,
    seed: int,
    every: bool,
    junit_file: str | None,
    as_json: bool,
) -> int:
    """Look at every requirement of a specification in simulated cases of a controller.

    CONTROLLER is a name, or FILE.py:CLASS. The exit status is 1 if a requirement is violated that the
    controller is not known to differ in by intent.
    """
    from cctrace.conform import run, spec_of

    spec_of(spec)  # a mistake is said before what takes time
    with progress(f"conform {subject}") as show:
        found = run(controller_name(subject, "CONTROLLER"), spec, seed=seed, progress=show)
    if junit_file:
        with open(junit_file, "w", encoding="utf-8") as file:
            file.write(found.to_junit())
    if as_json:
        print_json(found.to_dict())
        return 0 if found.conforms else 1
    title, columns, _, notes = found._grid()
    rows = [(v.id, v.section, v.level, v.text()) for v in found.verdicts if every or v.verdict == "violates"]
    echo(title)
    if rows:
        print_table(columns, rows)
    for note in notes:
        echo(f"note: {note}", err=True)
    return 0 if found.conforms else 1
