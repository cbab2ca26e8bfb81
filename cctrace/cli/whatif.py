"""`cctrace whatif`: what another controller, or another path, would have done."""

import click

from cctrace.cli.arguments import paths
from cctrace.cli.common import command_options, reading_options
from cctrace.cli.fit import over_flows
from cctrace.cli.simulate import split_controllers

_CHANGED = "or x and a factor"


@click.command(short_help="What would another controller have done with these flows?")
@paths("files", "FILE...")
@click.option("--cc", default="", metavar="NAME,...", help="Controllers to ask about: cubic6,bbr2,obbr:mu=0.5")
@click.option("--own", metavar="NAME", help="The controller that sent the flows; default: as cctrace identify finds.")
@click.option("--rate", metavar="RATE", help=f"Another bottleneck: 40Mbit, {_CHANGED}: x2.")
@click.option("--rtt", metavar="TIME", help=f"Another base RTT: 20ms, {_CHANGED}.")
@click.option("--buffer", metavar="SIZE", help=f"Another queue: 200kB, 2bdp, 100packets, {_CHANGED}: x2.")
@click.option("--jitter", metavar="KIND:...", help=f"Other jitter: none, normal:sd=2ms, {_CHANGED}: x0.5.")
@click.option("--loss", metavar="SHARE", help=f"Another random loss: 2%, {_CHANGED}.")
@click.option("--draws", default=12, show_default=True, help="Paths drawn from what the capture leaves open.")
@click.option("--seed", default=1, show_default=True)
@reading_options
@command_options()
def whatif(files, cc, own, draws, seed, limit, decapsulate, as_json, **changes):
    """Infer the path of every bulk flow of captures, and simulate other controllers, or a changed path, over it.

    First the flow's own controller is simulated: only if what was recorded comes out again is the path understood, and
    are the other figures advice. Intervals are of 90 %.

    With --json: a list with one object per flow: flow (as cctrace flows), recorded, own, original (the own controller
    over the inferred path), reproduces (true or false), candidates {name: ...}, each with goodput_bps, rtt_mean_us and
    retransmitted_share as {"value", "low", "high"}; changed, unseen. A flow that does not tell has "refused" with the
    reason.
    """
    from cctrace.cc import controller
    from cctrace.errors import ArgumentError
    from cctrace.explain.whatif import whatif as ask

    candidates = split_controllers(cc) if cc else []
    changes = {name: value for name, value in changes.items() if value is not None}
    if not candidates and not changes:
        raise ArgumentError("give --cc NAME,... or a change of the path (--buffer x2): else there is nothing to ask")
    for name in candidates:
        controller(name)
    over_flows(
        lambda flow, say: ask(flow, candidates, own=own, draws=draws, seed=seed, say=say, **changes),
        files,
        {"limit": limit, "decapsulate": decapsulate},
        as_json,
    )
