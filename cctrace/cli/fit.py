"""`cctrace fit`: path properties inferred from captured flows, with intervals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cctrace.cli.arguments import TIME, check_flow, controller_option, options, paths, trust_option
from cctrace.cli.common import command_options, echo, print_json, progress, reading_options, warn
from cctrace.display import connection
from cctrace.errors import ArgumentError, FitError, StreamError

if TYPE_CHECKING:
    from cctrace.flows.capture import Capture
    from cctrace.flows.flow import Flow


@click.group(short_help="Fit models of the path to captured flows, with intervals.")
def fit() -> None:
    """Infer path properties from every bulk flow (100 kB and more) of captures, each with its 95 % interval."""


def _command(name: str, short_help: str) -> Callable[..., Any]:
    """Declare a command that fits something to every bulk flow of captures: `function(flow, update)`, a result."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @fit.command(name, short_help=short_help, help=function.__doc__)
        @paths("files", "FILE...")
        @reading_options
        @command_options()
        def command(files: tuple[str, ...], reading: dict[str, Any], as_json: bool) -> None:
            over_flows(function, files, reading, as_json)

        return command

    return decorate


def over_flows(
    function: Callable[..., Any],
    files: tuple[str, ...],
    options: dict[str, Any],
    as_json: bool,
    which: int | None = None,
) -> None:
    """Print what `function(flow, update)` finds about each bulk flow (or flow `which`), or why it refuses."""
    from cctrace.flows.capture import Capture, read
    from cctrace.flows.large import bulk_or_largest

    objects = []
    with progress("reading") as update:
        for file in files:
            update(f"reading {file}")
            capture = read(file, **options)
            if not isinstance(capture, Capture):
                text = f"{file}: holds no packets, and these are needed: a capture, taken at the sender"
                if len(files) == 1:
                    raise ArgumentError(text)
                warn(text)
                continue
            for warning in capture.warnings:
                warn(warning)
            if which is not None:
                check_flow(which, len(capture), file)
            names = list(capture.flows.columns)
            for flow in bulk_or_largest(capture) if which is None else [capture.flow(which)]:
                update(f"fitting {connection(*flow.key)}")
                row = {"flow": {name: flow.row[name] for name in names}}
                try:
                    found = function(flow, update)
                    objects.append((row | found.to_dict(), found.summary()))
                except (FitError, StreamError) as refusal:
                    objects.append((row | {"refused": str(refusal)}, f"refused: {refusal}"))
    if as_json:
        print_json([found for found, _ in objects])
        return
    for found, text in objects:
        flow = found["flow"]
        echo(connection(flow["src"], flow["sport"], flow["dst"], flow["dport"]))
        echo("\n".join(f"  {line}" for line in text.splitlines()))


@_command("jitter", "Distribution and process of the delay variation.")
def jitter(flow: Flow, update: Callable[[str], None]) -> Any:
    """Fit the path's jitter: distribution, sd, and process (a draw per packet, burst or slot; reordering).

    With --json: a list with one object per flow: flow (as `cctrace flows`), distribution, process, slot_us, sd_us,
    mean_us, and so on; estimates are {"value", "low", "high"}. An uninformative flow has "refused" with the reason.
    """
    from cctrace.fit import Jitter

    return Jitter().fit(flow, update)


@_command("path", "Rate, base RTT, buffer, loss, jitter of the path.")
def path(flow: Flow, update: Callable[[str], None]) -> Any:
    """Fit the path: rate over time, base RTT, buffer, random and congestive loss, jitter, and what remains unknown.

    With --json: a list with one object per flow: flow (as `cctrace flows`), rate_bps (a list of {"start_s",
    "value", "low", "high"}), base_rtt_us, base_rtt_steps (of a route that changed), buffer_bytes, loss, jitter,
    policer, shaper, aqm, acks, cross_traffic, undetermined, correlation; estimates are {"value", "low", "high"}, a
    missing side is null. An uninformative flow has "refused" with the reason.
    """
    from cctrace.fit import path as fitted

    return fitted(flow, update)


@fit.command("collapse", short_help="Would BBR's minRTT collapse on this path?")
@options(
    paths("files", "FILE..."),
    click.option(
        "--floor", type=TIME, help="The RTT that no jitter shortens.  [default: half of the mean, or the shortest seen]"
    ),
)
@reading_options
@command_options()
def collapse(files: tuple[str, ...], floor: str | None, reading: dict[str, Any], as_json: bool) -> None:
    """Fit minRTT collapse: the jitter at which BBR of 2016, 2019 and 2022 would collapse, and the path's jitter.

    With --json: a list with one object per flow: flow (as `cctrace flows`), and per controller (bbr2016, bbr2019,
    bbr2022) threshold_sd_us, sd_us, probability, probability_hour as {"value", "low", "high"}, collapses (yes, no
    or close), and the domain. An uninformative flow has "refused" with the reason.
    """
    from cctrace.fit import Collapse

    over_flows(Collapse(floor=floor).fit, files, reading, as_json)


@fit.command("parameters", short_help="Parameters of the sender's controller.")
@options(
    paths("files", "FILE..."),
    controller_option(required=True, help="Linux controller, as listed by `cctrace variants`."),
    click.option("--parameter", "names", required=True, multiple=True, metavar="NAME[=LOW:HIGH]",
                 help="What to fit, and its range (default: all allowed values); once or twice."),
)  # fmt: skip
@reading_options
@trust_option
@command_options()
def parameters(
    files: tuple[str, ...], controller: str, names: tuple[str, ...], reading: dict[str, Any], as_json: bool
) -> None:
    """Fit parameters of a controller to the flow's sends: which cwnd_gain, beta or loss threshold explains them.

    The capture must have been taken at the sender. With --json: a list with one object per flow: flow (as `cctrace
    flows`), controller, parameters (per name {"value", "low", "high"}; an end that the flow does not bound is null,
    and then so is the value), unidentified (why), correlation (of two), explained (share of the intervals of 0.2
    s). An uninformative flow has "refused" with the reason.
    """
    from cctrace.cc import controller as resolve

    wanted = dict(_range(name) for name in names)
    known = resolve(controller)[0].params
    for name in wanted:
        if name not in known:
            raise ArgumentError(f"--parameter {name}: {controller} has no such parameter; it has {', '.join(known)}")
    from cctrace.fit import Parameters  # slow to import: report mistakes first

    estimator = Parameters(controller, wanted if any(wanted.values()) else list(wanted))
    over_flows(estimator.fit, files, reading, as_json)


def _range(text: str) -> tuple[str, tuple[float, float] | None]:
    """Return (name, None or (low, high)) of NAME[=LOW:HIGH]."""
    name, given, between = text.partition("=")
    if not given:
        return name, None
    low, colon, high = between.partition(":")
    try:
        return name, (float(low), float(high if colon else "?"))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not NAME or NAME=LOW:HIGH", param_hint="--parameter") from None


@_command("share", "How BBR and loss-based flows shared a bottleneck.")
def share(flow: Flow, update: Callable[[str], None]) -> Any:
    """Fit how the flows of a capture shared one bottleneck, and compare with the models' predictions.

    The capture, taken at the sender, needs at least one BBR and one loss-based flow of 1 MB that were active
    together. With --json: a list with one object per flow: flow (as `cctrace flows`), controller, share, and common
    to all: bbr_share, loss_based_share (p), bbr_flows and loss_based_flows (N), gain (g), ratio (R), buffer_bytes,
    rate_bps, base_rtt_us, predicted (of obbr, ware and mishra: bbr_share and the domain). Estimates are {"value",
    "low", "high"}. Uninformative flows have "refused" with the reason.
    """
    return _share_of(flow.capture, update).of(flow.index)


@functools.lru_cache(maxsize=1)
def _share_of(capture: Capture, update: Callable[[str], None]) -> Any:
    from cctrace.fit import Share

    return Share().fit(capture, update)
