"""`cctrace sweep`: many simulations over a grid, kept in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cctrace.arguments import MAX_WORKERS
from cctrace.cli.arguments import (
    NAMES,
    POSITIVE_TIME,
    RATE,
    TIME,
    buffer_option,
    controller_name,
    options,
    trust_option,
)
from cctrace.cli.common import command_options, print_json, print_table, progress
from cctrace.errors import ArgumentError
from cctrace.files import write_text
from cctrace.units import format_percent

if TYPE_CHECKING:
    import pandas as pd

_MEASURED = ("goodput_bps", "retransmit_ratio", "rtt_mean_us", "queue_delay_mean_us")


@click.command(short_help="Many simulations over a grid of paths, controllers and seeds.")
@options(
    click.option("--cc", multiple=True, required=True, type=NAMES, metavar="NAME[+NAME…]",
                 help="Flows that share the path; repeatable."),
    click.option("--vary", multiple=True, metavar='"NAME=VALUE VALUE…"',
                 help='A field of Path or Sender and its values, separated by blanks; repeatable: "buffer=1bdp 4bdp".'),
    click.option("--rate", type=RATE, help="Bottleneck rate on the wire, if it is not varied."),
    click.option("--rtt", type=TIME, default="40ms", help="Base RTT, if it is not varied."),
    buffer_option(help="Queue, if it is not varied."),
    click.option("--seeds", default=5, type=click.IntRange(1, 10_000),
                 help="Runs of each combination, with seeds 1 to this."),
    click.option("--duration", type=POSITIVE_TIME, default="60s", help="Simulated time of a run."),
    click.option("--file", type=click.Path(), metavar="FILE",
                 help="Keep results here, one line each; an interrupted sweep resumes."),
    click.option("--csv", type=click.Path(), metavar="FILE", help="Write a row per run and flow."),
    click.option("--workers", type=click.IntRange(1, MAX_WORKERS), default=None,
                 help="Processes; default: one per core."),
)  # fmt: skip
@trust_option
@command_options()
def sweep(
    cc: Any, vary: tuple[str, ...], rate: str | None, seeds: int, csv: str | None, as_json: bool, **options: Any
) -> None:
    """Simulate every combination of controllers, settings and seeds; print mean and spread over the seeds.

    \b
    cctrace sweep --rate 40Mbit --cc bbr2022 --cc bbr2022+cubic6 --vary "buffer=0.5bdp 2bdp 8bdp" --seeds 3
    """
    for name in cc:
        for each in name.split("+"):
            controller_name(each, "--cc")
    from cctrace.sim.path import Path
    from cctrace.sim.sweep import sweep as run

    axes: dict[str, Any] = dict(_axis(text) for text in vary)
    if not (rate or "rate" in axes):
        raise ArgumentError('give --rate, or vary it: --vary "rate=10Mbit 40Mbit"')
    path = Path(rate=rate or axes.get("rate", [None])[0], rtt=options.pop("rtt"), buffer=options.pop("buffer"))
    for name in axes.keys() & {"path", "cc", "seeds", "progress", *options}:
        raise ArgumentError(f"--vary {name}: name a field of the path or of a sender, such as buffer or rwnd")
    flows = [tuple(name.split("+")) if "+" in name else name for name in cc]
    with progress("sweeping") as update:
        found = run(path, flows, range(1, seeds + 1), progress=update, **options, **axes)
    columns = [name for name in found if "flow" in found[name].dims]
    frame = found[columns].to_dataframe().reset_index().dropna(subset=["goodput_bps"])
    if csv is not None:
        write_text(csv, frame.to_csv(index=False))
    rows = _summary(frame, ["cc", *axes, "flow"])
    if as_json:
        print_json(rows)
        return
    cells = [
        (
            *(row[name] for name in ("cc", *axes, "flow")),
            f"{row['goodput_bps'] / 1e6:.3f} ± {row['goodput_bps_sd'] / 1e6:.3f} Mbit/s",
            format_percent(row["retransmit_ratio"], 4),
            f"{row['rtt_mean_us'] / 1e3:.2f} ms",
            f"{row['queue_delay_mean_us'] / 1e3:.2f} ms",
        )
        for row in rows
    ]
    heads = ("cc", *axes, "flow", "goodput", "retransmitted", "RTT", "queue")
    print_table(heads, cells, title=f"{seeds} seeds, {options['duration']}")


def _axis(text: str) -> tuple[str, list[Any]]:
    """Split ``buffer=1bdp 2bdp`` into a name and its values: whole numbers, ``true`` and ``false``, or texts."""
    name, equals, values = text.partition("=")
    switch = {"true": True, "false": False}
    found = [int(value) if value.isdecimal() else switch.get(value.lower(), value) for value in values.split()]
    if not equals or not name.strip() or not found:
        raise ArgumentError(f'--vary {text!r}: write it as "buffer=1bdp 2bdp"')
    return name.strip(), found


def _summary(frame: pd.DataFrame, by: list[str]) -> list[dict[str, Any]]:
    """Return a row per combination: means of the seeds, and their standard deviations."""
    rows = []
    for values, part in frame.groupby(by, sort=False):
        row = dict(zip(by, values, strict=True)) | {"seeds": len(part)}
        for name in _MEASURED:
            row |= {name: part[name].mean(), f"{name}_sd": part[name].std(ddof=1) if len(part) > 1 else 0.0}
        rows.append(row)
    return rows
