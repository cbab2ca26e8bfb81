"""`cctrace mcp`: a server of the Model Context Protocol, for agents."""

import click

from cctrace.cli.arguments import POSITIVE_TIME_NS
from cctrace.cli.common import command_options
from cctrace.extras import needed


@click.command(short_help="Serve agents that query captures (Model Context Protocol).")
@click.option("--root", default=".", type=click.Path(), metavar="DIR", help="Read files below this folder only.")
@click.option(
    "--time-limit", "limit_ns", default="120s", type=POSITIVE_TIME_NS, help="Longest time that an answer may take."
)
@command_options(json=False)
def mcp(root: str, limit_ns: int) -> None:
    """Serve the tools of cctrace to an agent, on standard input and output.

    Tools list captures and flows, explain a flow and its limits over time, list events and packets, replay its
    controller's state at a time, identify the controller, fit the path, answer what-ifs, simulate and draw. Only
    files below DIR are read, and nothing is written. Needs the extra "mcp".

    \b
    claude mcp add cctrace -- cctrace mcp --root ~/captures
    """
    needed("mcp", "mcp")
    from cctrace.mcp.server import serve

    serve(root, limit_ns / 1e9)
