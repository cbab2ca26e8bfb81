"""`cctrace stress`: search for the shortest path history on which a controller fails."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from cctrace.cli.arguments import (
    CONTROLLER,
    FOLDER,
    PARSED_SHARE,
    POSITIVE_TIME_NS,
    RATE_BPS,
    Text,
    buffer_option,
    controller_option,
    options,
    trust_option,
)
from cctrace.cli.common import command_options, echo, print_json, print_text, progress
from cctrace.errors import ArgumentError
from cctrace.stressing.history import KINDS, RUNS
from cctrace.units import parse_share

if TYPE_CHECKING:
    from cctrace.stressing.stress import Finding

FOUND = 1  # exit status
_AIMS = ("floor", "stall", "delay", "starve", "state")
SAMPLES = 10  # of the flow's course within a window


def _kinds(text: str, called: str) -> tuple[str, ...]:
    kinds = tuple(part.strip() for part in text.split(","))
    for kind in kinds:
        if kind not in KINDS:
            raise ArgumentError(f"{called} {text}: {kind!r} is not one of {', '.join(KINDS)}")
    return kinds


def _above_0(text: str, called: str) -> float:
    share = parse_share(text, called)
    if share <= 0:
        raise ArgumentError(f"{called} {text} must be above 0 %")
    return share


_POSITIVE_SHARE = Text("share", _above_0, is_parsed=True)


@click.command(short_help="Search for a path history on which a controller fails.")
@options(
    click.argument("cc", metavar="CONTROLLER", type=CONTROLLER),
    click.option("--aim", type=click.Choice(_AIMS), default="floor", help="Kind of failure, see above."),
    click.option("--floor", type=PARSED_SHARE, default="10%",
                 help="Share of what the path offers (starve: of half of it)."),
    click.option("--window", type=POSITIVE_TIME_NS, help="How long the failure must last.  [default: 20 RTTs]"),
    click.option("--stall", type=POSITIVE_TIME_NS, default="10s",
                 help="With --aim stall: how long after the last disturbance."),
    click.option("--delay", type=POSITIVE_TIME_NS, help="With --aim delay: the RTT that is too long."),
    click.option("--state", metavar="NAME", help="With --aim state: the state to leave, for example PROBE_RTT."),
    click.option("--rate", type=RATE_BPS, default="10Mbit", help="Bottleneck rate without disturbances."),
    click.option("--rtt", type=POSITIVE_TIME_NS, default="40ms", help="Base RTT without disturbances."),
    buffer_option(help="Queue: 200kB, 2bdp, 100packets."),
    controller_option("--against", help="A competitor; default: none, with --aim starve cubic6."),
    click.option("--vary", "kinds", type=Text("text", _kinds, is_parsed=True), default=",".join(KINDS),
                 help="What may be disturbed."),
    click.option("--least-rate", type=_POSITIVE_SHARE, default="10%",
                 help="Least share of the rate that a disturbance leaves."),
    click.option("--least-loss", type=_POSITIVE_SHARE, default="1%",
                 help="Least share of the packets that a burst of loss takes."),
    click.option("--disturbed", type=_POSITIVE_SHARE, default="20%",
                 help="Share of the time that disturbances may take."),
    click.option("--longest", type=POSITIVE_TIME_NS, default="500ms", help="Longest disturbance."),
    click.option("--until", type=POSITIVE_TIME_NS, default="10s", help="When the last disturbance must be over."),
    click.option("--duration", type=POSITIVE_TIME_NS, default="20s", help="Duration of a run."),
    click.option("--findings", default=1, type=click.IntRange(1, 100), help="Number of findings to look for."),
    click.option("--runs", default=RUNS, type=click.IntRange(1, 10_000_000), help="Number of histories to try."),
    click.option("--time", type=POSITIVE_TIME_NS, default="10min", help="Longest time of a search."),
    click.option("--seed", default=1, type=click.IntRange(0), help="Seed of the search."),
    click.option("-o", "--output", "folder", type=FOLDER, default="cctrace-stress", help="Folder for the findings."),
)  # fmt: skip
@trust_option
@command_options()
def stress(cc: str, folder: str, as_json: bool, **options: Any) -> int:
    """Search for the shortest history of a path on which a controller fails; exit status 1 if one is found.

    \b
    floor    gets less than a share of what the path offers, for --window
    stall    still does so --stall after the last disturbance is over
    delay    has a mean RTT above --delay, for --window
    starve   leaves a competitor less than a share of half the path, for --window
    state    does not leave --state for --window

    Disturbances change the rate, the RTT or the loss for a while, once or periodically; ACKs may be held, and the
    application may pause. A finding is minimised, must fail with several seeds, and is written to
    DIR/finding-K.toml for `cctrace simulate --scenario`; if the lab of kernels (docs/lab.md) can repeat it, a
    scenario of the lab is written beside it.
    """
    kind = options["aim"]
    if kind in ("delay", "state") and options[kind] is None:
        raise ArgumentError(f"--aim {kind} needs --{kind}")
    from cctrace.stressing.stress import stress as search

    setting, aim, bounds = _parts(cc, options)
    with progress("searching (the first run on a machine compiles the simulation, some seconds)") as update:
        found = search(
            setting,
            aim,
            bounds,
            findings=options["findings"],
            runs=options["runs"],
            seconds=options["time"] / 1e9,
            seed=options["seed"],
            progress=update,
        )
    files = [_write(finding, folder, k) for k, finding in enumerate(found.findings, 1)]
    if as_json:
        print_json(found.to_dict() | {"files": files})
    else:
        for line in found.summary().splitlines():
            print_text(line)
        for file in files:
            echo(f"cctrace simulate --scenario {file}")
    return FOUND if found.findings else 0


def _parts(cc: str, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return Setting, Aim and Bounds of a command's options."""
    from cctrace.stressing.aims import Aim
    from cctrace.stressing.history import Bounds
    from cctrace.stressing.trial import Setting

    rtt_ns = options["rtt"]
    window_s = (options["window"] or 20 * rtt_ns) / 1e9
    duration_s, until_s = options["duration"] / 1e9, options["until"] / 1e9
    if window_s >= duration_s or until_s >= duration_s:
        raise ArgumentError(f"--duration {duration_s:g}s must be longer than --window and --until")
    aim = Aim(
        options["aim"],
        options["floor"],
        window_s,
        options["stall"] / 1e9,
        options["delay"] / 1e9 if options["delay"] else float("inf"),
        options["state"] or "",
    )
    against = options["against"] or ("cubic6" if options["aim"] == "starve" else None)
    setting = Setting(cc, options["rate"], rtt_ns, options["buffer"], against, duration_s, sample_s=window_s / SAMPLES)
    bounds = Bounds(
        options["kinds"],
        until_s,
        (options["least_rate"], 1.0),
        losses=(options["least_loss"], 1.0),
        longest_s=options["longest"] / 1e9,
        share=options["disturbed"],
    )
    if aim.kind == "state":
        _check_state(cc, aim.state)
    return setting, aim, bounds


def _check_state(cc: str, state: str) -> None:
    from cctrace.cc import controller
    from cctrace.sim.state import state_names

    names = state_names(controller(cc)[0])
    if state not in names:
        raise ArgumentError(f"--state {state}: {cc} has no such state; there are {', '.join(names) or 'none'}")


def _write(finding: Finding, folder: str, number: int) -> str:
    """Write a finding, and a scenario of the lab if that can repeat it; return the file."""
    from cctrace.stressing.lab import lab_scenario

    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, f"finding-{number}.toml")
    finding.save(file)
    try:
        scenario = lab_scenario(finding, f"finding-{number}")
    except ArgumentError:  # the lab cannot repeat it
        return file
    with open(os.path.join(folder, f"finding-{number}.lab.json"), "w", encoding="utf-8") as out:
        json.dump(scenario, out, indent=1)
    return file
