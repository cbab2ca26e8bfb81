"""`cctrace flows`: the connections of captures."""

import itertools
import shutil
import sys
import textwrap

import click

from cctrace.cli.arguments import paths
from cctrace.cli.common import (
    command_options,
    end,
    lines_of,
    print_json_list,
    print_table,
    progress,
    reading_options,
    warn,
)


@click.command(short_help="List the connections of captures.")
@paths("files", "FILE...")
@reading_options
@command_options()
def flows(files, limit, decapsulate, as_json):
    """List the connections of captures: who sent, how much, how fast, how often again, and the RTT.

    Each FILE is a capture of its own; a pattern in quotes ('trace.pcap*') is one capture in several files, joined in
    the order of time.

    An endpoint that sent more payload comes first. With --json: a list with one object per connection; a value that
    the capture does not show is null.
    """
    from cctrace.flows.table import of_file

    tables = []
    with progress("reading") as say:
        for file in files:
            say(f"reading {file}")
            connections = of_file(file, limit=limit, decapsulate=decapsulate)
            for warning in connections.packets.warnings:
                warn(warning)
            tables.append(connections)
    rows = itertools.chain.from_iterable(connections.each_row() for connections in tables)
    if as_json:
        print_json_list(rows)
        return
    numbered = itertools.chain.from_iterable(enumerate(connections.each_row()) for connections in tables)
    for block in iter(lambda: list(itertools.islice(numbered, _BLOCK)), []):
        _print(block)


_BLOCK = 10_000  # rows of a table: a flood of SYNs has millions
_COLUMNS = ["flow", "sender", "receiver", "packets", "sent", "goodput", "retransmitted", "RTT min", "median", "p95"]
_COLUMNS += ["duration", "warnings"]
_SHORT = ["packets", "sent", "goodput", "again", "RTT min", "median", "p95", "duration"]  # for 80 columns


def _print(block):
    cells = [_cells(number, row) for number, row in block]
    width = shutil.get_terminal_size().columns
    lines = lines_of(_COLUMNS, cells)
    if not sys.stdout.isatty() or max(map(len, lines)) <= width:
        print_table(_COLUMNS, cells)
        return
    # Too wide for the terminal: the ends and what there is to know in lines of their own.
    figures = lines_of(_SHORT, [row[3:-1] for row in cells])
    room = width - 2  # of the indent
    head, *figures = (line if len(line) <= room else line[: room - 1] + "…" for line in figures)
    click.secho(f"  {head}", bold=True)
    for (number, sender, receiver, *_, warnings), line in zip(cells, figures, strict=True):
        mark = f"{number}: "
        ends = f"{mark}{sender} -> {receiver}"
        click.echo(ends if len(ends) <= width else f"{mark}{sender}\n{' ' * (len(mark) - 3)}-> {receiver}")
        click.echo(f"  {line}")
        if warnings:
            click.echo(textwrap.fill(warnings, width, initial_indent="  ", subsequent_indent="  "))


def _cells(number, row):
    from cctrace.units import format_rate, format_size, format_time

    def rtt(value):
        return "unknown" if value is None or value != value else format_time(value * 1000)

    return (
        number,
        end(row["src"], row["sport"]),
        end(row["dst"], row["dport"]),
        row["packets"],
        format_size(row["bytes_sent"]),
        format_rate(row["goodput_bps"]),
        row["retransmitted_segments"],
        *(rtt(row[f"rtt_{which}_us"]) for which in ("min", "median", "p95")),
        format_time(row["duration_s"] * 1e9),
        "; ".join(row["warnings"]),
    )
