"""`cctrace replay`: what a controller would have decided on recorded ACKs."""

from pathlib import Path
from typing import Any

import click

from cctrace.cli.arguments import FILE, NEW_FILE, Text, check_flow, controller_option, options, trust_option
from cctrace.cli.common import command_options, echo, print_json, print_table, progress, warn
from cctrace.display import connection
from cctrace.errors import ArgumentError
from cctrace.extras import needed
from cctrace.units import format_share


def _check_picture(file: str, called: str) -> None:
    if Path(file).suffix not in (".html", ".png", ".svg", ".pdf"):
        raise ArgumentError(f"{called} {file}: the extension must be one of .html, .png, .svg or .pdf")
    NEW_FILE.check(file, called)


def _check_table(file: str, called: str) -> None:
    NEW_FILE.check(file, called)
    if Path(file).suffix != ".parquet":
        raise ArgumentError(f"{called} {file}: the extension must be .parquet")


@click.command(short_help="Replay a controller over recorded ACKs.")
@options(
    click.argument("source", type=FILE),
    controller_option(required=True,
                      help="The controller, for example bbr3 or obbr:mu=0.75; `cctrace variants` lists them."),
    click.option("--flow", "index", type=int, metavar="N",
                 help="Which connection of a capture or of counters, as numbered by cctrace flows; default: the "
                      "one that sent most, if possible among those whose counters name the controller."),
    click.option("--tcpinfo", type=FILE, help="The kernel's counters of a capture's flow, to compare with."),
    click.option("-o", "--output", type=Text("file", _check_table, completed="file"),
                 help="Write the decisions, one row per call, to FILE.parquet."),
    click.option("--plot", type=Text("file", _check_picture, completed="file"),
                 help="Draw the flow and what the controller decided: FILE.html, or .png, .svg, .pdf."),
    click.option("--interpreted", is_flag=True, help="Run the controller as a Python class, not compiled."),
)  # fmt: skip
@trust_option
@command_options()
def replay(
    source: str,
    controller: str,
    index: int | None,
    tcpinfo: str | None,
    output: str,
    plot: str | None,
    interpreted: bool,
    as_json: bool,
) -> None:
    """Replay a controller over a capture's flow, counters alone (ss, NDT7, iperf3, qlog, ...) or a golden vector.

    This is a shadow run: what the controller would have decided on these ACKs, not what would have happened. For
    counters, ACKs are interpolated between the polls; docs/counters.md has the accuracy.
    """
    from cctrace.flows.flow import Flow

    vector = Path(source).suffix == ".parquet"
    if vector and tcpinfo:
        raise ArgumentError("--tcpinfo belongs to a capture, and a golden vector is none")
    with progress(f"reading {source}") as update:
        stream, chosen = (source, "") if vector else _flow(source, index, tcpinfo, controller)
        from cctrace.replaying.run import replay as run

        update(f"replaying {controller}")
        mode = "interpreted" if interpreted else "compiled"
        result = run(stream, controller, mode=mode, record=_drawn(stream, controller) if plot else None)
        if plot:
            update(f"drawing {plot}")
            _draw(stream, result, controller, source, plot)
    if output:
        needed("pyarrow", "parquet")
        result.to_parquet(output)
    for warning in result.warnings:
        warn(warning)
    agreement = None if vector else _agreement(result)
    last = {} if result.decisions.empty else result.decisions.iloc[-1].to_dict()
    words = [*([("chosen", chosen)] if chosen else []), *_words(result, last)]
    if as_json:
        summary = {"controller": controller, "params": result.params, "calls": len(result.decisions)}
        found = {"last": last, "words": dict(words), "agreement": agreement, "warnings": result.warnings}
        found |= {"through_fq": result.source.through_fq if isinstance(result.source, Flow) else None}
        print_json({"source": source} | summary | found)
        return
    print_table(("after the last call", controller), words)
    if agreement:
        echo()
        known = {name: value for name, value in agreement.items() if value == value}
        rows = [(_figure(name), value if name == "polls" else format_share(value)) for name, value in known.items()]
        print_table(("agreement with the kernel", "share of polls"), rows)


def _flow(source: str, index: int | None, tcpinfo: str | None, controller: str) -> tuple[Any, Any]:
    """Return the requested flow, and why this one if none was named."""
    from cctrace.flows.capture import Capture, read
    from cctrace.flows.counters import CounterTable
    from cctrace.flows.flow import Flow

    data = read(source)
    if not isinstance(data, Capture | CounterTable):
        raise ArgumentError(f"{source}: holds neither packets nor counters of connections")
    chosen, count = "", len(data if isinstance(data, Capture) else data.connections)
    if index is None:
        index, chosen = _choice(data, controller)
        chosen = chosen if count > 1 else ""
    check_flow(index, count, source)
    flow = data.flow(index)
    if tcpinfo:
        if not isinstance(flow, Flow):
            raise ArgumentError(f"{source}: holds counters, not packets; --tcpinfo belongs to a capture")
        flow = flow.attach(read(tcpinfo))
        aligned = flow.alignment
        if aligned and (aligned.offset_ns or aligned.drift_ppm):
            warn(aligned.text)
    return flow, chosen


def _choice(data: Any, controller: str) -> tuple[int, str]:
    """Return the index of the flow to replay over, and why: the largest, if possible of those with this controller."""
    from cctrace.cc import kernel_name
    from cctrace.flows.capture import Capture
    from cctrace.flows.large import largest_row
    from cctrace.identification.named import controller_name

    sent, kernels = data.flows["bytes_sent"].to_numpy(float), kernel_name(controller.partition(":")[0])
    names = [] if isinstance(data, Capture) else [controller_name(data.select(i)) for i in range(len(sent))]
    of = [i for i, name in enumerate(names) if name == kernels]
    if not of:
        return largest_row(sent), f"flow {largest_row(sent)}: it sent most of {len(sent)}"
    index = of[largest_row(sent[of])]
    return index, f"flow {index}: it sent most of the {len(of)} whose counters name {kernels}"


def _drawn(stream: Any, controller: str) -> list[str]:
    """Return the fields to record for a picture; refuse a source that cannot be drawn."""
    from cctrace.cc import controller as resolve
    from cctrace.flows.flow import Flow
    from cctrace.replaying.model import model_fields

    cls = resolve(controller)[0]
    if not isinstance(stream, Flow) or cls.view != "linux":
        raise ArgumentError("--plot draws flows of captures under Linux controllers; leave it out")
    return model_fields(cls)


def _draw(flow: Any, result: Any, controller: str, source: str, file: str) -> None:
    """Write the picture of a replay: the report page, or what matplotlib writes."""
    suffix = Path(file).suffix
    if suffix == ".html":
        from cctrace.analysis.flow_analysis import FlowAnalysis
        from cctrace.analysis.flow_view import FlowView
        from cctrace.report.overview import report_of
        from cctrace.report.page import write

        view = FlowView.of(flow, result)
        write(report_of([FlowAnalysis(source, flow.row, replayed=controller, view=view, flow=flow)]), file)
        return
    from cctrace.plot import plot_flow

    plot_flow(flow, result).savefig(file)


def _words(result: Any, last: Any) -> list[tuple[str, str]]:
    """Return what the controller held after the last call, as (name, text)."""
    from cctrace.flows.flow import Flow
    from cctrace.flows.source import flow_of
    from cctrace.replaying.inference.through_fq import FQ_IN_WORDS
    from cctrace.replaying.words import in_words, time_in_words

    if not last:
        return [("calls", "none")]
    flow = flow_of(result.source)
    mss = flow.facts.get("mss") if flow else None
    times = result.decisions["time_ns"]
    found = [("calls", f"{len(times)}"), ("last call", str(last["event"]))]
    if flow and None not in flow.key:
        found.insert(0, ("flow", connection(*flow.key)))
    if flow:
        found.append(("time", time_in_words(times.iloc[-1], times.iloc[0])))
    if isinstance(flow, Flow):
        found.append(("sent through", FQ_IN_WORDS[flow.through_fq]))
    return found + in_words(result.controller, result.state, mss)


def _agreement(result: Any) -> Any:
    """Return the agreement with the counters of the flow, None if there are none that this controller has, too."""
    from cctrace.flows.source import flow_of

    flow = flow_of(result.source)
    if flow is None or flow.tcpinfo is None or result.controller.view != "linux":
        return None
    comparison = result.compare()
    return comparison.to_dict() if comparison.quantities else None


def _figure(name: str) -> str:
    """Return the key of a figure of `Comparison.to_dict` in words.

    >>> _figure("bw_1%"), _figure("cwnd_2"), _figure("pacing_gain")
    ('bw within 1 %', 'cwnd within 2 segments', 'pacing gain equal')
    """
    if name in ("polls", "locked"):
        return {"polls": "polls", "locked": "gain cycles in step with the sends"}[name]
    if name.startswith("inflight"):
        return f"{name} equal"
    quantity, _, within = name.rpartition("_")
    if within.endswith("%"):
        return f"{quantity} within {within[:-1]} %"
    return f"{quantity} within {within} segments" if within.isdigit() else f"{name.replace('_', ' ')} equal"
