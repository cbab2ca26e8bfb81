"""`cctrace whatif`: the performance of another controller, or over another path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cctrace.cli.arguments import (
    AQM,
    FOLDER,
    changed,
    controller_option,
    controllers_option,
    jitter_text,
    options,
    paths,
    queue_size,
    trust_option,
)
from cctrace.cli.common import command_options, echo, print_json, progress, reading_options
from cctrace.cli.fit import over_flows
from cctrace.counterfactual import constants as const
from cctrace.errors import ArgumentError
from cctrace.refusals import Refusal
from cctrace.units import parse_rate_bps, parse_share, parse_size_bytes, parse_time_ns

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow

_CHANGED = "or x and a factor"


def _size(text: str, name: str) -> int | None:
    return parse_size_bytes(text, name=name)


def _app(text: str, name: str) -> None:
    from cctrace.sim.sender import Sender

    Sender("reno", app=text)


@click.command(short_help="How would another controller have performed?")
@options(
    paths("files", "FILE..."),
    controllers_option("--cc", "--controller", "candidates", help="Controllers to simulate: cubic6,bbr2,obbr:mu=0.5"),
    controller_option("--own", help="The flows' own controller; default: as identified."),
    click.option("--rate", type=changed("rate", parse_rate_bps),
                 help=f"Another bottleneck rate: 40Mbit, {_CHANGED}: x2."),
    click.option("--rtt", type=changed("time", parse_time_ns), help=f"Another base RTT: 20ms, {_CHANGED}."),
    click.option("--buffer", type=changed("size", queue_size),
                 help=f"Another queue: 200kB, 2bdp, 100packets, {_CHANGED}: x2."),
    click.option("--jitter", type=changed("kind:…", jitter_text, zero=True),
                 help=f"Other jitter: none, normal:sd=2ms, {_CHANGED}: x0.5."),
    click.option("--loss", type=changed("share", parse_share, zero=True), help=f"Another random loss: 2%, {_CHANGED}."),
    click.option("--aqm", type=AQM,
                 help="Another discipline of the queue: droptail, codel, fq_codel, red, pie, dualpi2."),
    click.option("--rwnd", type=changed("size", _size),
                 help=f"Another receive window: 4MB, {_CHANGED} of the largest seen: x4."),
    click.option("--app", type=changed("kind:…", _app),
                 help="Another application: bulk, chunks:size=100kB,every=500ms, requests:..."),
    click.option("--pacing", type=changed("rate", parse_rate_bps, none=True),
                 help=f"Another SO_MAX_PACING_RATE: none, 8Mbit, {_CHANGED}: x2."),
    click.option("--send-buffer", type=changed("size", _size, none=True),
                 help=f"Another SO_SNDBUF: none, 64kB, {_CHANGED}: x2."),
    click.option("--fq/--no-fq", default=None, help="With the fq qdisc at the sender, or without."),
    click.option("--flow", "index", type=int, metavar="N", help="Only this connection, as numbered by cctrace flows."),
    click.option("-o", "--output", "folder", type=FOLDER, help="Write the report of cctrace analyze with the answers."),
    click.option("--draws", type=click.IntRange(const.MIN_DRAWS, const.MAX_DRAWS), default=const.DRAWS,
                 help="Number of paths drawn from the fit's uncertainty."),
    click.option("--seed", default=1, help="Seed of these draws."),
)  # fmt: skip
@reading_options
@trust_option
@command_options()
def whatif(
    files: tuple[str, ...],
    candidates: list[str],
    own: str | None,
    index: int | None,
    draws: int,
    seed: int,
    folder: str | None,
    reading: dict[str, Any],
    as_json: bool,
    **changes: Any,
) -> None:
    """Infer the path of every bulk flow of captures, and simulate other controllers, or a changed path, over it.

    The flow's own controller is simulated first: only if that reproduces the recording are the other figures
    reliable. Intervals are 90 %.

    With --json: a list with one object per flow: flow (as cctrace flows), recorded, own, original (the own
    controller over the inferred path), reproduces (true or false), candidates {name: ...}, each with goodput_bps,
    rtt_mean_us and retransmitted_share as {"value", "low", "high"}; differences {name: ...}: the same against
    original, goodput and RTT relative; changed, not_excluded. An uninformative flow has "refused" with the reason.

    With -o: also the report of cctrace analyze, with a section on these results for every flow.
    """
    changes = {name: value for name, value in changes.items() if value is not None}
    if not candidates and not changes:
        raise ArgumentError("give --cc NAME,... or a change of the path (--buffer x2): else there is nothing to ask")

    def question(flow: Flow, update: Callable[[str], None]) -> Any:
        from cctrace.counterfactual.whatif import whatif as ask  # slow to import: report mistakes first

        return ask(flow, candidates, own=own, draws=draws, seed=seed, progress=update, **changes)

    if folder and index is not None:
        raise ArgumentError("--flow and -o: the report is of all bulk flows; leave out one of the two")
    if not folder:
        over_flows(question, files, reading, as_json, index)
        return
    _with_report(question, files, folder, reading, as_json)


def _with_report(question: Any, files: tuple[str, ...], folder: str, reading: Any, as_json: bool) -> None:
    """Print the answers, and write the report that has them."""
    from cctrace.analysis.analyze import analyze
    from cctrace.report.overview import keeper, write_report

    with progress("loading") as update:
        analyses = analyze(files, progress=update, what_if=question, keep=keeper(), effects=False, **reading)
        page = write_report(analyses, folder, update)
    if as_json:
        print_json(
            [{"flow": analysis.row} | (analysis.whatif.to_dict() if analysis.whatif else {}) for analysis in analyses]
        )
    for analysis in [] if as_json else analyses:
        found = analysis.whatif
        text = found.summary() if found and not isinstance(found, Refusal) else f"refused: {found}"
        echo(analysis.title)
        echo("\n".join(f"  {line}" for line in text.splitlines()))
    echo(f"report: {page}", err=as_json)
