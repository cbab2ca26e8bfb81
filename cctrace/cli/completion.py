"""Shell completion beyond commands and options: files, folders, and names of controllers.

eval "$(_CCTRACE_COMPLETE=bash_source cctrace)"       in ~/.bashrc; zsh_source, fish_source elsewhere
"""

from collections.abc import Iterator

import click
from click.shell_completion import CompletionItem

_FILES = {"FILE", "FILE...", "FILE|DIR...", "CAPTURE", "INPUT...", "[COUNTERS]...", "RECORDING...", "VECTOR..."}
_UNNAMED = {"source", "target", "a", "b", "file", "files"}  # arguments whose names say that they are files
_CONTROLLERS = {"controller", "controllers", "names", "candidates", "own", "others", "cc"}


class _Text(click.types.StringParamType):
    """A text of which the shell completes what `kind` says; click's own texts complete nothing, not even files."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(self, context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        """Return what may follow; of several controllers, NAME,NAME, the last is completed."""
        if self.kind != "controller":
            return [CompletionItem(begun, type=self.kind)]
        from cctrace.cc import REGISTRY

        before, comma, last = begun.rpartition(",")
        return [CompletionItem(f"{before}{comma}{name}") for name in sorted(REGISTRY) if name.startswith(last)]


def parameters(command: click.Command) -> Iterator[click.Parameter]:
    """Yield the parameters of a command and of those below it."""
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from parameters(below)


def complete(command: click.Command) -> None:
    """Let the shell complete every text of a command, and of those below it, that is a file, folder or controller."""
    for one in parameters(command):
        if one.type is not click.STRING:
            continue
        if one.metavar in _FILES or (isinstance(one, click.Argument) and one.metavar is None and one.name in _UNNAMED):
            one.type = _Text("file")
        elif one.metavar == "DIR":
            one.type = _Text("dir")
        elif one.name in _CONTROLLERS:
            one.type = _Text("controller")
