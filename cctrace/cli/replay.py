"""`cctrace replay`: what a controller would have decided on recorded ACKs."""

from pathlib import Path

import click

from cctrace.cli.common import command_options, print_json, print_table, progress, warn
from cctrace.extras import needed


@click.command(short_help="What a controller decides on recorded ACKs.")
@click.argument("source")
@click.option(
    "--cc",
    "--controller",
    "controller",
    required=True,
    metavar="NAME",
    help="For example bbr3 or obbr:mu=0.75; see variants.",
)
@click.option("--flow", "index", default=0, show_default=True, help="Which connection of a capture or of counters.")
@click.option("--tcpinfo", metavar="FILE", help="The kernel's counters of a capture's flow, to compare with.")
@click.option("-o", "--output", metavar="FILE", help="Write the decisions, one row per call, as Parquet.")
@click.option("--interpreted", is_flag=True, help="Run the controller as a Python class, not compiled.")
@command_options()
def replay(source, controller, index, tcpinfo, output, interpreted, as_json):
    """Replay a controller over a capture's flow, counters alone (ss, NDT7, iperf3, qlog, ...) or a golden vector.

    This is a shadow run: what the controller would have decided on these ACKs, not what would have happened. Of
    counters the ACKs are made up between the polls: see docs/counters.md for how near that comes.
    """
    from cctrace.errors import ArgumentError
    from cctrace.replaying.run import replay as run

    vector = Path(source).suffix == ".parquet"
    if vector and tcpinfo:
        raise ArgumentError("--tcpinfo belongs to a capture, and a golden vector is none")
    if vector and not Path(source).is_file():
        raise ArgumentError(f"{source}: no such golden vector")
    with progress(f"reading {source}") as say:
        stream = source if vector else _flow(source, index, tcpinfo)
        say(f"replaying {controller}")
        result = run(stream, controller, mode="interpreted" if interpreted else "compiled")
    if output:
        needed("pyarrow", "parquet")
        result.decisions.to_parquet(output)
    for warning in result.warnings:
        warn(warning)
    agreement = None if vector else _agreement(result)
    last = {} if result.decisions.empty else result.decisions.iloc[-1].to_dict()
    if as_json:
        summary = {"controller": controller, "params": result.params, "calls": len(result.decisions)}
        print_json({"source": source} | summary | {"last": last, "agreement": agreement, "warnings": result.warnings})
        return
    print_table(("after the last call", controller), list(last.items()))
    if agreement:
        click.echo()
        print_table(("agreement with the kernel", "share of polls"), _shares(agreement))


def _flow(source, index, tcpinfo):
    from cctrace.errors import ArgumentError
    from cctrace.flows.capture import Capture, read
    from cctrace.flows.counters import CounterTable

    data = read(source)
    if not isinstance(data, Capture | CounterTable):
        raise ArgumentError(f"{source}: holds neither packets nor counters of connections")
    if tcpinfo and isinstance(data, CounterTable):
        raise ArgumentError(f"{source}: holds counters, not packets; --tcpinfo belongs to a capture")
    flow = data.flow(index)
    if tcpinfo:
        flow = flow.attach(read(tcpinfo))
        if flow.alignment.offset_ns or flow.alignment.drift_ppm:
            warn(flow.alignment.text)
    return flow


def _agreement(result):
    """Return the agreement with the counters of the flow, None if there are none that this controller has, too."""
    if getattr(result.source, "tcpinfo", None) is None:
        return None
    comparison = result.compare()
    return comparison.summary() if comparison.quantities else None


def _shares(agreement):
    from cctrace.units import format_share

    return [(name, value if name == "polls" else format_share(value)) for name, value in agreement.items()]
