"""`cctrace conform`: check a controller or a recorded flow against a specification."""

import os
from typing import Any

import click

from cctrace.cli.arguments import (
    NEW_FILE,
    check_file,
    check_flow,
    chosen_flow,
    controller_name,
    flow_option,
    trust_option,
)
from cctrace.cli.check import SCENARIO
from cctrace.cli.common import command_options, echo, print_json, print_table, progress, reading_options
from cctrace.errors import ArgumentError
from cctrace.files import write_text


@click.command(short_help="Check a controller or a flow against its specification.")
@click.argument("subject", metavar="CONTROLLER|FILE", type=click.Path())
@click.option(
    "--spec", required=True, metavar="NAME", help="The specification: bbr, cubic, reno, prr, quic, rack, hystart."
)
@flow_option
@click.option("--seed", default=1, help="Seed of the simulated cases.")
@click.option("--all", "every", is_flag=True, help="Also list requirements that hold or were not exercised.")
@click.option("--junit", "junit_file", type=NEW_FILE, help="Write JUnit XML for continuous integration.")
@reading_options
@trust_option
@command_options()
def conform(
    subject: str,
    spec: str,
    index: int | None,
    seed: int,
    every: bool,
    junit_file: str | None,
    reading: dict[str, Any],
    as_json: bool,
) -> int:
    """Check every requirement of a specification in simulated cases of a controller, or in a recorded flow.

    CONTROLLER is a name, or FILE.py:CLASS; FILE a capture, a qlog, or a scenario (FILE.toml, as `cctrace stress` writes
    it) to simulate. The exit status is 1 if a requirement is violated and the violation is not listed as intended.
    """
    from cctrace.conform import run, spec_of

    try:
        spec_of(spec)  # report a mistake before the slow part
    except ArgumentError as error:
        raise ArgumentError(f"--{error}") from None
    with progress(f"conform {subject}") as show:
        # No controller's name has a suffix; its parameters, or the class of a file, follow a colon.
        is_file = os.path.isfile(subject) or (":" not in subject and os.path.splitext(subject)[1] != "")
        what: Any = _recorded(subject, index, reading) if is_file else None
        subject = controller_name(subject, "CONTROLLER") if what is None else what
        found = run(subject, spec, seed=seed, sender=index or 0, progress=show)
    if junit_file:
        write_text(junit_file, found.to_junit())
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


def _recorded(file: str, index: int | None, reading: dict[str, Any]) -> Any:
    """Return the flow of a capture or of a qlog, or the scenario, that a file holds."""
    from cctrace.flows.capture import read
    from cctrace.flows.counters import CounterTable

    check_file(file)
    if file.endswith(SCENARIO):
        from cctrace.sim.scenario import Scenario

        scenario = Scenario.read(file)
        check_flow(index or 0, len(scenario.senders), file)
        for sender in scenario.senders:
            controller_name(str(sender.cc), "cc")
        return scenario
    data = read(file, **reading)
    if isinstance(data, CounterTable) and data.events is not None:  # a qlog, most often of one connection
        if index is not None:
            check_flow(index, len(data.connections), file)
        return data.flow(index or 0)
    return chosen_flow(data, index, file)
