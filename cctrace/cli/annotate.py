"""`cctrace annotate`: a capture for Wireshark, with comments on its packets."""

from __future__ import annotations

import click

from cctrace.cli.arguments import controller_option, file_argument, output_option, tcpinfo_option, trust_option
from cctrace.cli.common import command_options, print_json, print_text, progress, reading_options, warn


@click.command(short_help="Write a capture with comments and fields for Wireshark.")
@file_argument("file")
@output_option("-o", "--output", required=True, help="The pcapng to write; FILE.cctrace.tsv is written beside it.")
@tcpinfo_option
@controller_option(
    "--controller",
    "--cc",
    "controller",
    metavar="NAME",
    help="Replay this controller; default: the one that sent each flow, as cctrace identify finds.",
)
@reading_options
@trust_option
@command_options()
def annotate(
    file: str,
    output: str,
    tcpinfo: tuple[str, ...],
    controller: str | None,
    limit: int | None,
    decapsulate: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the packets of a capture again, byte for byte, as a pcapng with comments.

    Data is commented where it was sent again (and why), where it fills the receive window, and where another limit
    begins; ACKs where cwnd, the pacing rate or a state changed. The file's own comment has the verdicts. What holds at
    every packet of the bulk flows is in FILE.cctrace.tsv, which the plug-in of `cctrace wireshark --install` shows as
    fields: cctrace.state, cctrace.cwnd, cctrace.limit and others.
    """
    from cctrace.wireshark.annotate import annotate as run

    with progress(f"reading {file}") as update:
        found = run(file, output, tcpinfo, controller, update, limit=limit, decapsulate=decapsulate)
    for note in found.notes:
        warn(note)
    if as_json:
        print_json({"source": file} | found.to_dict())
        return
    for line in found.summary().splitlines():
        print_text(line)
