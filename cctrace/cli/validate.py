"""`cctrace validate`: agreement of the reconstruction with the kernel's tcp_info."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cctrace.cli.arguments import paths
from cctrace.cli.common import command_options, print_json, print_table, progress


@click.command(short_help="Compare reconstructed flows with the kernel's tcp_info.")
@paths("recordings", "RECORDING...", folders=True)
@command_options()
def validate(recordings: tuple[str, ...], as_json: bool) -> int:
    """Compare the reconstruction from sender.pcap with tcpinfo.csv, for each recording (a folder).

    If the sender's controller is known, it is replayed, and its state compared as well. A missed target is marked
    in the table; it is not an error.
    """
    from cctrace.analysis import validate as validation

    results = []
    with progress("validating") as show:
        for folder in recordings:
            show(str(folder))
            results += [(Path(folder).name, agreement) for agreement in validation.validate(folder)]
    if as_json:
        print_json([{"recording": name, **agreement.to_dict()} for name, agreement in results])
    else:
        print_table(
            ("recording", "flow", "polls", "in stalls", "figure", "agrees %", "needs %", ""),
            [row for name, agreement in results for row in _rows(name, agreement)],
        )
    return 0


def _rows(name: str, agreement: Any) -> Iterator[tuple[Any, ...]]:
    for figure in agreement.figures:
        share, need = f"{100 * figure.share:.2f}", f"{100 * figure.need:g}" if figure.need else ""
        verdict = "" if figure.met else "missed"
        yield name, agreement.flow.key[1], figure.polls, agreement.set_aside, figure.name, share, need, verdict
