"""`cctrace flows`: the connections of captures."""

import itertools
from typing import Any

import click

from cctrace.cli.arguments import paths
from cctrace.cli.common import command_options, print_json_list, print_table, progress, reading_options, warn
from cctrace.display import endpoint
from cctrace.units import format_rate, format_rtt, format_size, format_time


@click.command(short_help="List the connections of captures.")
@paths("files", "FILE...")
@reading_options
@command_options()
def flows(files: tuple[str, ...], reading: dict[str, Any], as_json: bool) -> None:
    """List the connections of captures: endpoints, bytes, goodput, retransmissions, and RTT.

    Each FILE is a capture of its own; a pattern in quotes ('trace.pcap*') is one capture in several files, joined
    in order of time.

    The endpoint that sent more payload comes first. With --json: a list with one object per connection; unknown
    values are null.
    """
    from cctrace.flows.table import of_file

    tables = []
    with progress("reading") as update:
        for file in files:
            update(f"reading {file}")
            connections = of_file(file, **reading)
            for warning in connections.packets.warnings:
                warn(warning)
            tables.append(connections)
    rows = itertools.chain.from_iterable(connections.each_row() for connections in tables)
    if as_json:
        print_json_list(rows)
        return
    numbered = itertools.chain.from_iterable(enumerate(connections.each_row()) for connections in tables)
    for block in iter(lambda: list(itertools.islice(numbered, _BLOCK)), []):
        cells = [_cells(number, row) for number, row in block]
        print_table(_COLUMNS, cells, heading=(3, lambda row: "{}: {} -> {}".format(*row)), short=_SHORT)


_BLOCK = 10_000  # rows of a table: a flood of SYNs has millions
_COLUMNS = ["flow", "sender", "receiver", "packets", "sent", "goodput", "retransmitted", "RTT min", "median", "p95"]
_COLUMNS += ["duration", "warnings"]
_SHORT = {"retransmitted": "resent"}  # for 80 columns


def _cells(number: int, row: Any) -> tuple[Any, ...]:
    return (
        number,
        endpoint(row["src"], row["sport"]),
        endpoint(row["dst"], row["dport"]),
        row["packets"],
        format_size(row["bytes_sent"]),
        format_rate(row["goodput_bps"]),
        row["retransmitted_segments"],
        *(format_rtt(row[f"rtt_{which}_us"]) for which in ("min", "median", "p95")),
        format_time(row["duration_s"] * 1e9),
        "; ".join(row["warnings"]),
    )
