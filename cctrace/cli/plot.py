"""`cctrace plot`: figures for papers, in files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from cctrace.cli.arguments import FILE, TIME_NS, Text, check_folder, chosen_flow, flow_option, paths
from cctrace.cli.common import command_options, echo, print_json, print_table, progress
from cctrace.display import connection
from cctrace.errors import ArgumentError
from cctrace.files import replacing

if TYPE_CHECKING:
    import numpy as np

_EXTENSIONS = (".pdf", ".svg", ".png")
_QUANTILES = {"min": 0.0, "p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
_GRAPHS = ("time-sequence", "segment-sizes", "throughput", "rtt", "windows", "ladder")
_OF_A_PART = ("time-sequence", "ladder")


def _check_drawing(file: str, called: str) -> None:
    if not file.endswith(_EXTENSIONS):
        raise ArgumentError(f"{called} {file}: the extension must be one of {', '.join(_EXTENSIONS)}")
    check_folder(os.path.dirname(file) or ".", called)


def save(drawing: Any, file: str) -> None:
    """Write a figure; its folder is made if there is none."""
    os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
    with replacing(file) as part:
        drawing.savefig(part, dpi=150, format=file.rpartition(".")[2])


_DRAWING = Text("file", _check_drawing, completed="file")
_written = click.option("-o", "--output", required=True, type=_DRAWING, help="Where to draw: FILE.pdf, .svg or .png.")
_title = click.option("--title", default="", metavar="TEXT", show_default=False, help="Title of the figure.")


@click.group(short_help="Figures for papers: distributions over many runs, graphs of a flow.")
def plot() -> None:
    """Draw into a file: vector graphics (.pdf, .svg) or a bitmap (.png)."""


def _over_runs(name: str, help: str) -> click.Command:
    @plot.command(name, short_help=help)
    @click.argument("quantity")
    @paths("inputs", "INPUT...", folders=True)
    @_written
    @click.option("--by", metavar="GROUP", help="controller, file, folder, flow, src or dst; of a corpus any column.")
    @click.option("--log", is_flag=True, help="Logarithmic axis of values.")
    @_title
    @command_options()
    def command(
        quantity: str, inputs: tuple[str, ...], output: str, by: str | None, log: bool, title: str, as_json: bool
    ) -> None:
        from cctrace import plot as plots
        from cctrace.plot.of_runs import axis_label

        with progress("reading"):
            found = plots.samples(inputs[0] if len(inputs) == 1 else list(inputs), quantity, by)
            label = axis_label(quantity)
            options = {"xlabel": label} if name == "cdf" else {"ylabel": label}
            save(getattr(plots, name)(found, title=title, log=log, **options), output)
        rows = [_summary(group, values) for group, values in found.items()]
        if as_json:
            print_json({"quantity": quantity, "axis": label, "file": output, "groups": rows})
            return
        cells = [[row["group"], row["count"], *(f"{row[key]:.4g}" for key in _QUANTILES)] for row in rows]
        print_table(("group", "count", *_QUANTILES), cells, label)
        echo(f"drawn: {output}")

    command.help = f"""{help}

    QUANTITY is goodput, rtt_min, rtt_median, rtt_p95, retransmitted, duration or sent (one value per flow), rtt or
    queue, the RTT above the flow's lowest (every sample), or, of a corpus, any column with numbers. INPUT is captures,
    folders of captures, patterns in quotes, or the folder of a corpus; of captures, flows of at least 100 kB count.

    \b
    cctrace plot {name} rtt captures/ -o rtt.pdf
    cctrace plot {name} goodput results/ --by controller -o goodput.pdf

    With --json: quantity, axis, file and groups, each with count, min, p5, p25, median, p75, p95 and max.
    """
    return command


def _summary(group: str, values: np.ndarray) -> dict[str, Any]:
    import numpy as np

    known = values[np.isfinite(values)]
    at = np.quantile(known, list(_QUANTILES.values())) if len(known) else [np.nan] * len(_QUANTILES)
    return {"group": group, "count": len(known)} | dict(zip(_QUANTILES, map(float, at), strict=True))


_over_runs("cdf", "Cumulative distributions of a quantity over many flows.")
_over_runs("boxes", "A quantity of many flows as boxes: median, quartiles, 5 and 95 %.")


@plot.command(short_help="A graph of one flow: time-sequence, throughput, ladder, and others.")
@click.argument("graph", type=click.Choice(_GRAPHS))
@click.argument("file", type=FILE)
@_written
@flow_option
@click.option(
    "--from", "start_ns", type=TIME_NS, help="Start of a time-sequence graph or a ladder, since the first packet."
)
@click.option("--to", "end_ns", type=TIME_NS, help="End of a time-sequence graph.")
@click.option("--packets", default=40, type=click.IntRange(1, 1_000_000), help="Number of packets in a ladder.")
@_title
@command_options(json=False)
def flow(
    graph: str,
    file: str,
    output: str,
    index: int | None,
    start_ns: int | None,
    end_ns: int | None,
    packets: int,
    title: str,
) -> None:
    """Draw a GRAPH of a flow of the capture FILE, as tcptrace and Wireshark do.

    \b
    cctrace plot flow time-sequence capture.pcap --from 4.2s --to 4.4s -o sequence.pdf
    cctrace plot flow ladder capture.pcap -o ladder.pdf
    """
    from cctrace import plot as plots
    from cctrace.flows.capture import read

    low, high = (None if time_ns is None else time_ns / 1e9 for time_ns in (start_ns, end_ns))
    if (low is not None and graph not in _OF_A_PART) or (high is not None and graph != "time-sequence"):
        raise ArgumentError(f"--from, --to: {graph} is drawn of the whole flow")
    with progress(f"reading {file}"):
        drawn = chosen_flow(read(file), index, file)
        options: dict[str, dict[str, Any]] = {
            "ladder": {"start_s": low or 0.0, "packets": packets},
            "time-sequence": {"start_s": low, "end_s": high},
        }
        draw = getattr(plots, graph.replace("-", "_"))
        save(draw(drawn, title=title, **options.get(graph, {})), output)
    echo(f"drawn: {output}, of flow {drawn.index}: {connection(*drawn.key)}")
