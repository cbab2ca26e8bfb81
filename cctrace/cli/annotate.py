"""`cctrace annotate`: a capture with comments on its packets, for Wireshark."""

from typing import Any

import click

from cctrace.cli.arguments import FILE, NEW_FILE, controller_option, tcpinfo_option, trust_option
from cctrace.cli.common import command_options, print_json, print_text, progress, reading_options, warn


@click.command(short_help="Write a capture with comments and fields for Wireshark.")
@click.argument("file", type=FILE)
@click.option(
    "-o", "--output", type=NEW_FILE, required=True, help="The pcapng to write; FILE.cctrace.tsv is written beside it."
)
@tcpinfo_option
@controller_option(help="Replay this controller; default: each flow's own, as identified.")
@reading_options
@trust_option
@command_options()
def annotate(
    file: str, output: str, tcpinfo: tuple[str, ...], controller: str | None, reading: dict[str, Any], as_json: bool
) -> None:
    """Write the packets of a capture again, byte for byte, as a pcapng with comments.

    Comments mark retransmissions (with the reason), data that fill the receive window, changes of the limit, and
    ACKs at which cwnd, the pacing rate or a state changed. The file's own comment has the verdicts. The state at
    every packet of the bulk flows is in FILE.cctrace.tsv, which the plug-in of `cctrace wireshark --install` shows
    as fields: cctrace.state, cctrace.cwnd, cctrace.limit and others.
    """
    from cctrace.wireshark.annotate import annotate as run

    with progress(f"reading {file}") as update:
        found = run(file, output, tcpinfo, controller, update, **reading)
    for note in found.notes:
        warn(note)
    if as_json:
        print_json({"source": file} | found.to_dict())
        return
    for line in found.summary().splitlines():
        print_text(line)
