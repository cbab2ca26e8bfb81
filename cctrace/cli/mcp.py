"""`cctrace mcp`: a server of the Model Context Protocol, for agents."""

import click

from cctrace.cli.arguments import time_option
from cctrace.cli.common import command_options
from cctrace.units import parse_time_ns


@click.command(short_help="Serve agents that query captures (Model Context Protocol).")
@click.option("--root", default=".", metavar="DIR", help="Read files below this folder only.")
@time_option("--time-limit", default="120s", positive=True, help="That an answer may take.")
@command_options(json=False)
def mcp(root: str, time_limit: str) -> None:
    """Serve the tools of cctrace to an agent, on standard input and output.

    Tools list captures and flows, explain a flow and its limits over time, list events and packets, replay its
    controller's state at a time, identify the controller, fit the path, answer what-ifs, simulate and draw. Only
    files below DIR are read, and nothing is written. Needs the extra "mcp".

    \b
    claude mcp add cctrace -- cctrace mcp --root ~/captures
    """
    from cctrace.extras import needed

    needed("mcp", "mcp")
    from cctrace.mcp.server import serve

    serve(root, parse_time_ns(time_limit) / 1e9)
