"""`cctrace convert`: captures, counters and link traces as Parquet, CSV or pcap."""

from __future__ import annotations

import click

from cctrace.cli.arguments import MOST_ROWS, file_argument
from cctrace.cli.common import command_options, echo, print_json, progress, reading_options, warn


@click.command(short_help="Write a capture or counters as Parquet, CSV or pcap.")
@file_argument("source")
@click.argument("target")
@click.option("--to", metavar="FORMAT", help="parquet, csv or pcap; default: the ending of TARGET.")
@click.option(
    "--chunk",
    default=1_000_000,
    show_default=True,
    metavar="N",
    type=click.IntRange(1, MOST_ROWS),
    help="Packets of a capture held in memory at a time.",
)
@reading_options
@command_options()
def convert(
    source: str, target: str, to: str | None, chunk: int, limit: int | None, decapsulate: tuple[str, ...], as_json: bool
) -> None:
    """Convert anything that cctrace reads.

    Parquet keeps everything and can be read back; CSV is for people; pcap (captures only) is for other tools: raw IP
    without payload, nanoseconds. SOURCE may be "-", a URL or a quoted pattern of rotated captures.
    """
    from cctrace.io.write import convert as run

    with progress(f"converting {source}"):
        done = run(source, target, to, chunk, limit=limit, decapsulate=decapsulate)
    for warning in done["warnings"]:
        warn(warning)
    if as_json:
        print_json({"source": source} | done)
    else:
        echo(f"{target}: {done['rows']} rows, {done['to']}")
