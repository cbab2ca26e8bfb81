"""`cctrace replay`: what a controller would have decided on recorded ACKs."""

from pathlib import Path

import click

from cctrace.cli.arguments import check_file, check_flow, controller_option, file_option, output_option
from cctrace.cli.common import command_options, end, print_json, print_table, progress, warn
from cctrace.extras import needed


def _picture(context, option, file):
    from cctrace.errors import ArgumentError

    if file is not None and Path(file).suffix not in (".html", ".png", ".svg", ".pdf"):
        raise ArgumentError(f"--plot {file}: its ending says the format: .html, .png, .svg or .pdf")
    return file


@click.command(short_help="What a controller decides on recorded ACKs.")
@click.argument("source", callback=lambda context, option, file: check_file(file) or file)
@controller_option(
    "--controller",
    "--cc",
    "controller",
    required=True,
    metavar="NAME",
    help="For example bbr3 or obbr:mu=0.75; see variants.",
)
@click.option(
    "--flow",
    "index",
    type=int,
    metavar="N",
    help="Which connection of a capture or of counters, as numbered by cctrace flows; default: the one that sent most.",
)
@file_option("--tcpinfo", metavar="FILE", help="The kernel's counters of a capture's flow, to compare with.")
@output_option("-o", "--output", help="Write the decisions, one row per call, as Parquet.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    callback=_picture,
    help="Draw the flow and what the controller decided: FILE.html, or .png, .svg, .pdf.",
)
@click.option("--interpreted", is_flag=True, help="Run the controller as a Python class, not compiled.")
@command_options()
def replay(source, controller, index, tcpinfo, output, plot, interpreted, as_json):
    """Replay a controller over a capture's flow, counters alone (ss, NDT7, iperf3, qlog, ...) or a golden vector.

    This is a shadow run: what the controller would have decided on these ACKs, not what would have happened. Of
    counters the ACKs are made up between the polls: see docs/counters.md for how near that comes.
    """
    from cctrace.errors import ArgumentError

    vector = Path(source).suffix == ".parquet"
    if vector and tcpinfo:
        raise ArgumentError("--tcpinfo belongs to a capture, and a golden vector is none")
    with progress(f"reading {source}") as say:
        stream = source if vector else _flow(source, index, tcpinfo)
        from cctrace.replaying.run import replay as run

        say(f"replaying {controller}")
        mode = "interpreted" if interpreted else "compiled"
        result = run(stream, controller, mode=mode, record=_drawn(stream, controller) if plot else None)
        if plot:
            say(f"drawing {plot}")
            _draw(stream, result, controller, source, plot)
    if output:
        needed("pyarrow", "parquet")
        result.decisions.to_parquet(output)
    for warning in result.warnings:
        warn(warning)
    agreement = None if vector else _agreement(result)
    last = {} if result.decisions.empty else result.decisions.iloc[-1].to_dict()
    words = _words(result, last)
    if as_json:
        summary = {"controller": controller, "params": result.params, "calls": len(result.decisions)}
        found = {"last": last, "words": dict(words), "agreement": agreement, "warnings": result.warnings}
        print_json({"source": source} | summary | found)
        return
    print_table(("after the last call", controller), words)
    if agreement:
        click.echo()
        print_table(("agreement with the kernel", "share of polls"), _shares(agreement))


def _flow(source, index, tcpinfo):
    import numpy as np

    from cctrace.errors import ArgumentError
    from cctrace.flows.capture import Capture, read
    from cctrace.flows.counters import CounterTable

    data = read(source)
    if not isinstance(data, Capture | CounterTable):
        raise ArgumentError(f"{source}: holds neither packets nor counters of connections")
    if tcpinfo and isinstance(data, CounterTable):
        raise ArgumentError(f"{source}: holds counters, not packets; --tcpinfo belongs to a capture")
    if index is None:
        sent = data.flows["bytes_sent"].to_numpy(float)
        index = 0 if np.isnan(sent).all() else int(np.nanargmax(sent))
    check_flow(index, len(data if isinstance(data, Capture) else data.connections), source)
    flow = data.flow(index)
    if tcpinfo:
        flow = flow.attach(read(tcpinfo))
        if flow.alignment.offset_ns or flow.alignment.drift_ppm:
            warn(flow.alignment.text)
    return flow


def _drawn(stream, controller):
    """Return what has to be recorded for a picture; refuse what there is none of."""
    from cctrace.cc import controller as resolve
    from cctrace.errors import ArgumentError
    from cctrace.flows.flow import Flow
    from cctrace.replaying.model import model_fields

    cls = resolve(controller)[0]
    if not isinstance(stream, Flow) or cls.view != "linux":
        raise ArgumentError("--plot draws flows of captures under Linux controllers; leave it out")
    return model_fields(cls)


def _draw(flow, result, controller, source, file):
    """Write the picture of a replay: the report page, or what matplotlib writes."""
    suffix = Path(file).suffix
    if suffix == ".html":
        from cctrace.explain.analyze import FlowAnalysis
        from cctrace.explain.flow_view import FlowView
        from cctrace.report.overview import report_of
        from cctrace.report.page import write

        view = FlowView.of(flow, result)
        write(report_of([FlowAnalysis(source, flow.summary, replayed=controller, view=view, flow=flow)]), file)
        return
    from cctrace.plot import plot_flow

    plot_flow(flow, result).savefig(file)


def _words(result, last):
    """Return what the controller held at the end, as (name, text)."""
    from cctrace.replaying.words import in_words, time_in_words

    if not last:
        return [("calls", "none")]
    mss = getattr(result.source, "facts", {}).get("mss")
    times = result.decisions["time_ns"]
    found = [("calls", f"{len(times)}"), ("last call", str(last["event"]))]
    src, sport, dst, dport = getattr(result.source, "key", (None,) * 4)
    if src is not None and dst is not None:
        found.insert(0, ("flow", f"{end(src, sport)} → {end(dst, dport)}"))
    if hasattr(result.source, "facts"):
        found.append(("time", time_in_words(times.iloc[-1], times.iloc[0])))
    return found + in_words(result.controller, result.state, mss)


def _agreement(result):
    """Return the agreement with the counters of the flow, None if there are none that this controller has, too."""
    if getattr(result.source, "tcpinfo", None) is None:
        return None
    comparison = result.compare()
    return comparison.summary() if comparison.quantities else None


def _shares(agreement):
    from cctrace.units import format_share

    known = {name: value for name, value in agreement.items() if value == value}
    return [(_figure(name), value if name == "polls" else format_share(value)) for name, value in known.items()]


def _figure(name):
    """Return the key of a figure of `Comparison.summary` in words.

    >>> _figure("bw_1%"), _figure("cwnd_2"), _figure("pacing_gain")
    ('bw within 1 %', 'cwnd within 2 segments', 'pacing gain equal')
    """
    if name in ("polls", "locked"):
        return {"polls": "polls", "locked": "gain cycles in step with the sends"}[name]
    quantity, _, within = name.rpartition("_")
    if within.endswith("%"):
        return f"{quantity} within {within[:-1]} %"
    return f"{quantity} within {within} segments" if within.isdigit() else f"{name.replace('_', ' ')} equal"
