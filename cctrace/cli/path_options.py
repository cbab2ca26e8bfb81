"""The options that describe a modelled path, for the commands that simulate."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cctrace.cli.arguments import AQM, FILE, JITTER, RATE, SHARE, TIME, buffer_option, options
from cctrace.errors import ArgumentError

if TYPE_CHECKING:
    from cctrace.sim.path import Path

path_options = options(
    click.option("--rate", type=RATE, help="Bottleneck rate on the wire, for example 40Mbit."),
    click.option("--path", "preset", metavar="NAME", help="A path that ships with cctrace; other options change it."),
    click.option("--rate-steps", type=FILE, help="Steps: lines `seconds Mbit/s [RTT in ms [loss in %]]`."),
    click.option("--trace", type=FILE, help="Mahimahi trace or UCC log (its RTT and loss too), repeated for an hour."),
    click.option("--rtt", type=TIME, help="Base RTT.  [default: that of the file, if it has one, else 40ms]"),
    click.option("--reverse", type=TIME, default="0ms", help="The part of it that ACKs take: no jitter shortens it."),
    buffer_option(help="Size of the queue: 200kB, 2bdp, 100packets."),
    click.option("--jitter", type=JITTER, default="none",
                 help="Delay variation: normal:sd=10ms,per=packet|burst|slot:5ms[,reorder][,cut]"),
    click.option("--jitter-before", type=JITTER, help="The same, on the way to the queue."),
    click.option("--delay-before", type=TIME,
                 help="The part of the RTT before the queue.  [default: with --jitter-before all]"),
    click.option("--loss", type=SHARE, help="Random loss before the queue.  [default: the file's, else none]"),
    click.option("--ecn-threshold", metavar="SIZE", help="Mark from this queue on: bytes, or BDPs."),
    click.option("--aqm", type=AQM, default="droptail",
                 help="Queue discipline: droptail, codel, fq_codel, red, pie, dualpi2; pie:target=5ms"),
    click.option("--shaper", metavar="RATE,BURST",
                 help="Token bucket that empties the queue: 10Mbit,100kB; with an --aqm perhaps htb: "
                      "10Mbit,1600B,htb; or FILE,BURST, where FILE is as of --rate-steps."),
    click.option("--policer", metavar="RATE,BURST", help="Token bucket that drops what exceeds it: 10Mbit,100kB"),
)  # fmt: skip
_CHOICES = ("preset", "rate", "rate_steps", "trace")
_BUCKETS = ("shaper", "policer")
_FIELDS = ("rtt", "reverse", "buffer", "jitter", "jitter_before", "delay_before", "loss", "aqm", "ecn_threshold")


def path_of(options: Mapping[str, Any], seed: int) -> Path:
    """Return the path that options describe; `ArgumentError` unless it has --rate, --rate-steps, --trace or --path."""
    from cctrace.sim.path import Path
    from cctrace.sim.traces import read_steps

    if sum(options[name] is not None for name in _CHOICES) != 1:
        raise ArgumentError("give one of --rate, --rate-steps, --trace and --path")
    fields = {name: _bucket(name, options[name]) for name in _BUCKETS} | {name: options[name] for name in _FIELDS}
    if options["preset"] is not None:
        context = click.get_current_context()
        given = {n: v for n, v in fields.items() if context.get_parameter_source(n) is not ParameterSource.DEFAULT}
        return Path.preset(options["preset"], seed, **given)
    if options["trace"] is not None:
        return Path(trace=options["trace"], **fields)
    if options["rate_steps"] is None:
        return Path(rate=options["rate"], **fields)
    steps = read_steps(options["rate_steps"])
    return Path(**steps | {name: value for name, value in fields.items() if value is not None})


def given(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options that say which path it is, of those that were given."""
    return [f"--{name.replace('_', '-').replace('preset', 'path')}" for name in _CHOICES if options[name] is not None]


def _bucket(name: str, text: str | None) -> tuple[Any, ...] | None:
    """Split RATE,BURST; a rate that names a file is its steps."""
    from cctrace.sim.traces import read_steps

    if text is None:
        return None
    rate, *rest = (part.strip() for part in text.split(","))
    if not rest:
        raise ArgumentError(f"--{name} {text}: give RATE,BURST, for example 10Mbit,100kB")
    if not os.path.isfile(rate):
        return rate, *rest
    steps = read_steps(rate)
    if set(steps) != {"rate"}:
        raise ArgumentError(f"--{name}: {rate} has columns after the rate; give them by --rate-steps")
    return steps["rate"], *rest
