"""The command line: one file per command, which imports its modules on execution, so that --help is immediate.

Every user error is one line, "cctrace: what, where, what to do", on stderr with exit status 2; so is an internal
error, whose traceback `--debug` shows. Warnings about partly unreadable data are lines on stderr, too.
"""

import atexit
import contextlib
import gc
import io
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

import cctrace
from cctrace.cli.common import begin_run, command_options, echo, interruptible, show_traceback, warn
from cctrace.errors import CctraceWarning, PartFailed, one_line

_NAMES = (
    "analyze", "annotate", "check", "conform", "convert", "corpus", "diff", "fit", "flows", "identify", "learn", "mcp",
    "plot", "predict", "replay", "reproduce", "simulate", "stream", "stress", "sweep", "validate", "variants", "verify",
    "whatif", "wireshark",
)  # fmt: skip
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
_COLLECTED = 100_000  # objects; with Python's 700, cycles are sought during imports: a fifteenth of `analyze`


class _Commands(Mapping[str, click.Command]):
    """The commands by name; each is imported when it is asked for, so that none waits for the others."""

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)

    def __getitem__(self, name: str) -> click.Command:
        if name not in _NAMES:
            raise KeyError(name)
        return getattr(import_module(f"cctrace.cli.{name}"), name)


_commands: Any = _Commands()  # click asks for a MutableMapping, and only reads it


@click.group(commands=_commands, context_settings=_SETTINGS)
@click.version_option(cctrace.__version__, message="cctrace %(version)s")
@command_options(json=False)
def commands() -> None:
    """Explain, replay and predict TCP congestion control from captures and kernel counters."""


_status: list[int] = []  # of the command that ends this process


def run() -> NoReturn:
    """Run the command of this process, and end it with its exit status.

    What was registered for the exit is done, but objects are not freed one by one: that is a twentieth of `analyze`.
    """
    _status.append(main())
    sys.exit(_status[0])


@atexit.register  # before the others, which Python therefore calls sooner
def _leave() -> None:
    if not _status or sys.gettrace() or sys.getprofile():  # a debugger or profiler waits for the end
        return
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(_status[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0 done, 1 the check it ran found something, 2 error.

    `arguments`: without the program's name; default: those of this process.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in arguments
    begin_run(debug)
    gc.set_threshold(_COLLECTED)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # what a terminal cannot show, such as the arrow in Latin-1
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for small matrices, more threads only take time from ours
    warnings.showwarning = _show_warning
    warnings.simplefilter("always", CctraceWarning)
    if debug:
        warnings.simplefilter("error", PartFailed)
    try:
        with interruptible() as interrupts:
            status = commands.main(arguments, prog_name="cctrace", standalone_mode=False)
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message())
        return 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except (BrokenPipeError, SystemExit) as end:  # the reader (head, less) has seen enough; click then exits with 1
        if isinstance(end, SystemExit) and end.code != 1:
            raise  # after completing a command line
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if interrupts:  # a library took the interrupt for a failure of its own
            return _complain("interrupted", 130)
        show_traceback(error)
        return _complain(_one_line(error), 2)
    return status if isinstance(status, int) else 0


def _one_line(error: Exception) -> str:
    if isinstance(error, click.UsageError) and error.ctx:
        return f"{error.format_message()} (see {error.ctx.command_path} --help)"
    if isinstance(error, click.ClickException):
        return error.format_message()
    own = sys.modules.get("cctrace.cc.own")  # imported by the commands that run controllers
    return (own and own.raised(error)) or one_line(error)


def _complain(message: str, status: int) -> int:
    echo(f"cctrace: {message}", err=True)
    return status


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    warn(message if issubclass(category, CctraceWarning) else f"{os.path.basename(filename)}:{lineno}: {message}")
