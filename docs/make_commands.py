"""The page of the site that has the `--help` of every command; `conf.py` writes it whenever the site is built."""

from collections.abc import Iterator

import click

from cctrace.cli import commands

_TOP = """# Commands

What `--help` prints, command by command. All take `--debug`, which shows where an error comes from, and nearly all
`--json`. Exit status: 0 done, 1 a check found something, 2 an error, which is one line on stderr.

To let the shell complete commands, options, files and names of controllers, add this to `~/.bashrc`
(`zsh_source` to `~/.zshrc`, `fish_source` for fish):

    eval "$(_CCTRACE_COMPLETE=bash_source cctrace)"
"""


def helps(command: click.Command = commands, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Yield (command as typed, its help) of a command and of those below it."""
    context = click.Context(command, parent, info_name=command.name if parent else "cctrace", terminal_width=100)
    yield context.command_path, command.get_help(context)
    for name in sorted(getattr(command, "commands", ())):
        yield from helps(command.commands[name], context)


def page() -> str:
    """Return the page: a section per command."""
    return "\n".join([_TOP, *(f"## {path}\n\n```text\n{text}\n```\n" for path, text in helps())])
