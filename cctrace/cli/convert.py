"""`cctrace convert`: captures, counters and link traces as Parquet, CSV or pcap; a flow as qlog."""

from typing import Any

import click

from cctrace.cli.arguments import FILE, MAX_ROWS, chosen_flow, controller_option, flow_option, options, trust_option
from cctrace.cli.common import command_options, echo, print_json, progress, reading_options, warn
from cctrace.errors import ArgumentError

_QLOG = ("qlog", "sqlog")


@click.command(short_help="Write a capture or counters as Parquet, CSV, pcap or qlog.")
@options(
    click.argument("source", type=FILE),
    click.argument("target", type=click.Path()),
    click.option("--to", metavar="FORMAT", help="parquet, csv, pcap or qlog; default: by TARGET's extension."),
    click.option("--chunk", default=1_000_000, metavar="N", type=click.IntRange(1, MAX_ROWS),
                 help="Packets of a capture held in memory at a time."),
    flow_option,
    controller_option(help="qlog: the controller to replay; default: the flow's own, as identified."),
)  # fmt: skip
@reading_options
@trust_option
@command_options()
def convert(
    source: str,
    target: str,
    to: str | None,
    chunk: int,
    index: int | None,
    controller: str | None,
    reading: dict[str, Any],
    as_json: bool,
) -> None:
    """Convert anything that cctrace reads.

    Parquet keeps everything and can be read back; CSV is for people; pcap (captures only) is for other tools: raw IP
    without payload, nanoseconds. SOURCE may be "-", a URL or a quoted pattern of rotated captures.

    qlog (TARGET ends in .sqlog or .qlog) holds one flow of a capture as its sender's log, which qvis draws: packets,
    RTTs, cwnd, bytes in flight, pacing rate and congestion states.
    """
    from cctrace.io.write import TARGETS

    kind = to or target.rpartition(".")[2].lower()
    if kind not in (*TARGETS, *_QLOG):
        named = f"--to {to}" if to else f"{target}: the extension names no format, and there is no --to"
        raise ArgumentError(f"{named}; allowed: {', '.join(TARGETS)}, qlog")
    if kind in _QLOG:
        done = _to_qlog(source, target, index, controller, reading)
    else:
        done = _to_table(source, target, to, chunk, (index, controller), reading)
    for warning in done["warnings"]:
        warn(warning)
    if as_json:
        print_json({"source": source} | done)
    else:
        echo(f"{target}: {done['rows']} {'events' if done['to'] == 'qlog' else 'rows'}, {done['to']}")


def _to_table(
    source: str, target: str, to: str | None, chunk: int, of_qlog: tuple[object, object], options: dict[str, Any]
) -> dict[str, Any]:
    from cctrace.io.write import convert as run

    if of_qlog != (None, None):
        raise ArgumentError("--flow, --controller: only a qlog is of one flow; leave them out, or give --to qlog")
    with progress(f"converting {source}"):
        return run(source, target, to, chunk, **options)


def _to_qlog(
    source: str, target: str, index: int | None, controller: str | None, options: dict[str, Any]
) -> dict[str, Any]:
    from cctrace.exporting.qlog import write_qlog
    from cctrace.flows.capture import read

    with progress(f"reading {source}") as update:
        data = read(source, **options)
        flow = chosen_flow(data, index, source)
        update(f"writing {target}")
        rows = write_qlog(flow, target, controller)
    return {"rows": rows, "target": target, "to": "qlog", "flow": flow.index, "warnings": data.warnings}
