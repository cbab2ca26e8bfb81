"""`cctrace simulate`: controllers over a simulated path."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cctrace.cli.arguments import FILE, FOLDER, POSITIVE_TIME, controllers_option, options, trust_option
from cctrace.cli.common import command_options, echo, print_json, print_table, progress
from cctrace.cli.path_options import given, path_of, path_options
from cctrace.errors import ArgumentError
from cctrace.units import format_percent

DEFAULT = ParameterSource.DEFAULT
KEYS = (
    "goodput_bps", "retransmit_ratio", "rtt_mean_us", "rtt_p95_us", "queue_delay_mean_us", "queue_delay_p95_us",
)  # fmt: skip
_OF_SCENARIO = ("ack", "ack_every", "ecn", "send_buffer", "profile")  # options that its senders have


@click.command(short_help="Simulate controllers over a path.")
@path_options
@options(
    controllers_option("--cc", "--controller", "controllers",
                       help="A controller per flow: bbr2022,obbr:mu=0.5; needed without --scenario."),
    click.option("--scenario", type=FILE,
                 help="Path, senders, duration and seed in TOML, as `cctrace stress` writes them."),
    click.option("--ack-every", default=1, type=click.IntRange(1, 1000), help="Segments per ACK."),
    click.option("--ack", metavar="POLICY",
                 help="When receivers acknowledge: linux, rfc9000, chromium or every:10, of all flows."),
    click.option("--send-buffer", metavar="SIZE",
                 help="SO_SNDBUF of the applications (profile linux), for example 64kB."),
    click.option("--ecn", is_flag=True, help="Flows negotiate ECN (profile linux)."),
    click.option("--exact", is_flag=True, help="Simulate exact clocks, with which flows may phase-lock."),
    click.option("-o", "--output", "folder", type=FOLDER,
                 help="Explain the TCP flows in DIR/report.html, as cctrace analyze does."),
    click.option("--pcap", type=click.Path(dir_okay=False), metavar="FILE", help="Write the TCP flows as a capture."),
    click.option("--side", type=click.Choice(["sender", "receiver"]), default="sender", help="Where --pcap captures."),
    click.option("--profile", type=click.Choice(["reference", "linux"]), default="linux", help="Stack of the senders."),
    click.option("--duration", type=POSITIVE_TIME, default="60s", help="Simulated time."),
    click.option("--until", metavar="SIZE", help="End as soon as a flow has delivered this much, for example 1GB."),
    click.option("--seed", default=1, help="Seed of all random draws."),
)  # fmt: skip
@trust_option
@command_options()
def simulate(
    controllers: list[str],
    ack_every: int,
    profile: str,
    duration: str,
    until: str | None,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Run one flow per controller over a shared bottleneck, and print each flow's figures.

    The figures are for the entire run, and as tail_* for its last 67 % (not with --until). Profile reference is the
    stack of the golden vectors, linux a current kernel; QUIC controllers always have the QUIC stack.
    """
    from cctrace.cc import controller

    common: dict[str, Any] = {"profile": profile, "ack_every": ack_every, "ecn": options["ecn"]}
    common |= {name: options[name] for name in ("ack", "send_buffer") if options[name] is not None}
    if options["scenario"] is not None:
        path, senders, duration, seed = _scenario(options, controllers, duration, seed)
        common, controllers = {}, [str(sender.cc) for sender in senders]
        profile = senders[0].profile
    elif not controllers:
        raise ArgumentError("give --cc, the controllers of the flows, or --scenario")
    else:
        path, senders = path_of(options, seed), controllers
    from cctrace.sim.simulate import simulate as run  # slow to import: report mistakes first

    folder = options["folder"]
    keep = options["pcap"] is not None or folder is not None
    quic = [name for name in controllers if controller(name)[0].view == "quic"]
    if keep and quic:
        raise ArgumentError(f"--pcap and --output are for TCP, and {quic[0]} is QUIC: leave them out")
    with progress("simulating (the first run on a machine compiles the simulation, some seconds)"):
        sim = run(path, senders, duration, seed, until=until, packets=keep, exact=options["exact"], **common)
        if options["pcap"]:
            sim.to_pcap(options["pcap"], options["side"])
        page = _report(sim, folder, options["side"], controllers) if folder else None
    tail = "tail_" if until is None else ""
    rows = [
        {"cc": row.cc}
        | {prefix + key: getattr(row, prefix + key) for prefix in dict.fromkeys(("", tail)) for key in KEYS}
        for row in sim.flows.itertuples()
    ]
    if page:
        echo(f"report: {page}", err=True)
    if as_json:
        overall = {"duration_s": sim.duration_s, "seed": seed, "profile": profile, "notes": sim.notes}
        print_json({"flows": rows, "link": sim.link} | overall)
        return
    for note in sim.notes:
        echo(f"note: {note}", err=True)
    _print(sim, rows, tail)


def _print(sim: Any, rows: list[dict[str, Any]], tail: str) -> None:
    """Print the table of what each flow got; `tail` begins the names of its figures."""
    from cctrace.analytic.metrics import jain

    print_table(
        ("cc", "goodput", "retransmitted", "RTT", "RTT p95", "queue", "queue p95"),
        [
            (
                row["cc"],
                f"{row[tail + 'goodput_bps'] / 1e6:.3f} Mbit/s",
                format_percent(row[tail + "retransmit_ratio"], 4),
                *(_delay(row[tail + key]) for key in KEYS[2:]),
            )
            for row in rows
        ],
        title=f"{'last 67 % of ' if tail else ''}{sim.duration_s:g} s; fairness "
        f"{jain([row[tail + 'goodput_bps'] for row in rows]):.3f}; utilisation over the whole run "
        f"{format_percent(sim.link['utilisation'], 1)}",
    )


def _delay(us: float) -> str:
    return "none" if math.isnan(us) else f"{us / 1000:.2f} ms"  # none: of a flow of which nothing arrived


def _scenario(options: dict[str, Any], controllers: list[str], duration: str, seed: int) -> Any:
    """Return path, senders, duration and seed of --scenario; --cc, --duration and --seed replace what it has.

    Raises `ArgumentError` if an option is given that the scenario has, or --cc names more controllers than it has
    senders.
    """
    from cctrace.sim.scenario import Scenario

    source = click.get_current_context().get_parameter_source
    own = {*given(options), *(f"--{n.replace('_', '-')}" for n in _OF_SCENARIO if source(n) is not DEFAULT)}
    if own:
        raise ArgumentError(f"{', '.join(sorted(own))}: the scenario's file sets this; change it there")
    found = Scenario.read(options["scenario"])
    if len(controllers) > len(found.senders):
        raise ArgumentError(f"--cc: the scenario has {len(found.senders)} senders, {len(controllers)} are given")
    senders = [replace(sender, cc=cc) for sender, cc in zip(found.senders, controllers, strict=False)]
    senders += found.senders[len(senders) :]
    duration = found.duration if source("duration") is DEFAULT else duration
    return found.path, senders, duration, found.seed if source("seed") is DEFAULT else seed


def _report(sim: Any, folder: str, side: str, controllers: list[str]) -> str:
    """Write the capture that either end would have taken, and the report of it; return the page."""
    from cctrace.analysis.analyze import analyze
    from cctrace.report.overview import write_report

    Path(folder).mkdir(parents=True, exist_ok=True)
    capture = Path(folder) / f"{side}.pcap"
    sim.to_pcap(capture, side)
    # Which controller sent a flow is known; it is replayed where it is the same for all.
    same = controllers[0] if len(set(controllers)) == 1 else None
    return str(write_report(analyze([capture], controller=same, effects=False), folder))
