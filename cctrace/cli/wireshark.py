"""`cctrace wireshark`: the plug-in that shows the output of `cctrace annotate`."""

import os

import click

from cctrace.cli.arguments import FOLDER
from cctrace.cli.common import command_options, echo, print_json


@click.command(short_help="Install the plug-in that shows annotations in Wireshark.")
@click.option("--install", "wanted", is_flag=True, help="Copy the plug-in into the folder.")
@click.option("--folder", type=FOLDER, help="Folder of plug-ins; default: Wireshark's personal one.")
@command_options()
def wireshark(wanted: bool, folder: str | None, as_json: bool) -> None:
    """Print where Wireshark's plug-in of cctrace belongs, and install it there.

    It shows the results of `cctrace annotate` for each packet as fields (cctrace.state, cctrace.cwnd, …), which
    filters and columns can use.
    """
    from cctrace.wireshark.install import PLUGIN, install, plugin_folder

    target = os.path.join(folder or plugin_folder(), PLUGIN.name)
    if wanted:
        install(os.path.dirname(target))
    there = os.path.isfile(target)
    if as_json:
        print_json({"plugin": target, "installed": there})
    elif there:
        echo(f"installed: {target}")
    else:
        echo(f"not installed: {target} (--install puts it there)")
