"""Arguments of the commands, validated before slow imports, and completed by the shell.

An error is reported at once: argument, value, what is allowed. The shell completes commands and options, and the texts
that are files, folders or names of controllers:

    eval "$(_CCTRACE_COMPLETE=bash_source cctrace)"       in ~/.bashrc; zsh_source, fish_source elsewhere
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from cctrace.errors import ArgumentError, suggestion
from cctrace.units import parse_factor, parse_rate_bps, parse_share, parse_size_bytes, parse_time_ns

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow
    from cctrace.sim.jitter import Jitter

Decorator = Callable[[Any], Any]
_PATTERN = "*?["
MAX_ROWS = 100_000_000  # packets held at a time: 6 GB of columns
_TRUST = "cctrace.trust"  # in a command's context: whether files may be run, and which the user has allowed


def options(*declared: Decorator) -> Decorator:
    """Return the decorator that adds options and arguments to a command, in the order of a table of them."""
    return lambda function: functools.reduce(lambda command, declare: declare(command), reversed(declared), function)


class Text(click.ParamType):
    """A text that `check(text, called)` may refuse; the command receives the text, or its value if it `is_parsed`.

    `called`: the option, "" of an argument. `completed`: "file", "dir", "controller", or "" for nothing.
    """

    def __init__(
        self, name: str, check: Callable[[str, str], Any], is_parsed: bool = False, completed: str = ""
    ) -> None:
        self.name, self.check, self._is_parsed, self._completed = name, check, is_parsed, completed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text or its value, as `click.ParamType` asks."""
        names = param.opts if isinstance(param, click.Option) else [""]
        parsed = self.check(value, next((name for name in names if name.startswith("--")), names[0]))
        return parsed if self._is_parsed else value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return what may follow; of several controllers, NAME,NAME, the last is completed."""
        if self._completed != "controller":
            return [CompletionItem(incomplete, type=self._completed)] if self._completed else []
        from cctrace.cc import REGISTRY

        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{name}") for name in sorted(REGISTRY) if name.startswith(last)]


def readable(folders: bool = False, besides: str = "none") -> Text:
    """Return the type of a file that cctrace reads ("-", URLs and quoted patterns are files too), or of `folders`.

    Files whose names end in `besides` need not be of a format that `cctrace.read` knows.
    """

    def check(file: str, called: str) -> None:
        check_file(file, folders)
        if os.path.isfile(file) and not file.endswith(besides):
            from cctrace.io import is_capture

            is_capture(file)  # `FormatError` if the format is unknown, before what reads it is imported

    return Text("file", check, completed="file")


def paths(name: str, metavar: str, **more: Any) -> Decorator:
    """Declare an argument of one or more files, each as `readable(**more)`."""
    return click.argument(name, metavar=metavar, nargs=-1, required=True, type=readable(**more))


def check_file(file: str, folders: bool = False, called: str = "") -> None:
    """Refuse what is not a file: a path to nothing, a device, a named pipe, and a folder where none is wanted.

    Raises `ArgumentError`, which names the argument, and a file of a similar name if there is one.
    """
    file = os.fspath(file)
    if file == "-" or "://" in file or (any(mark in file for mark in _PATTERN) and not os.path.exists(file)):
        return
    called = f"{called} {file}" if called else file
    if os.path.isdir(file) and not folders:
        raise ArgumentError(f"{called} is a folder: give a file (or several, a pattern without quotes)")
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):
        from cctrace.io.source import is_device, is_named_pipe

        if is_device(file):  # unlike a pipe it may never end
            raise ArgumentError(f"{called} is a device: give a file")
        if is_named_pipe(file):  # to open it would wait for its writer, who may never come
            raise ArgumentError(
                f"{called} is a named pipe: give a file, or read the pipe as standard input: - < {file}"
            )
    if os.path.islink(file) and not os.path.exists(file):
        raise ArgumentError(f"{called} is a link that leads to no file")
    if not os.path.exists(file):
        folder, name = os.path.split(file)
        try:
            near = suggestion(name, os.listdir(folder or "."))
        except OSError:
            near = ""
        raise ArgumentError(f"{called}: no such file{' or folder' if folders else ''}{near}")


def check_flow(index: int, connections: int, source: str) -> None:
    """Refuse a --flow that the source does not have. Raises `ArgumentError`."""
    if not 0 <= index < connections:
        allowed = "0" if connections == 1 else f"0 to {connections - 1} (cctrace flows lists them)"
        raise ArgumentError(f"--flow {index}: {source} has no such connection; allowed: {allowed}")


flow_option = click.option(
    "--flow",
    "index",
    type=int,
    metavar="N",
    help="Which connection, as numbered by cctrace flows; default: the largest.",
)


def chosen_flow(data: Any, index: int | None, source: str) -> Flow:
    """Return the flow that `--flow` names, or the one that sent most.

    `data`: what `cctrace.read` returned. Raises `ArgumentError` unless that is a capture, and has the connection.
    """
    from cctrace.flows.capture import Capture
    from cctrace.flows.large import largest_row

    if not isinstance(data, Capture):
        raise ArgumentError(f"{source}: holds no packets; a capture is needed")
    index = largest_row(data.flows["bytes_sent"]) if index is None else index
    check_flow(index, len(data), source)
    return data.flow(index)


def controller_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that names a controller, --controller by default; the command receives the registered name."""
    return click.option(*(names or ("--controller", "--cc", "controller")), type=CONTROLLER, **more)


def controller_name(text: str, called: str) -> str:
    """Return the registered name of what a user calls a controller; parameters stay where they are.

    ``FILE.py:CLASS`` is loaded, if the command has --trust and the user allows it.

    Raises `ArgumentError` if there is no such controller; calls the argument `called` and suggests the nearest.
    """
    from cctrace.cc import canonical, own

    called = called or "CONTROLLER"
    try:
        if (file := own.file_of(text)) and _TRUST in click.get_current_context().meta:
            _allow(text, file, called)
            own.load(text)
        return canonical(text)
    except ArgumentError as error:
        raise ArgumentError(f"{called} {text}: {error}") from None


def trust_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--trust`` to a command whose controllers may be classes in files of one's own."""

    def keep(context: click.Context, option: click.Parameter, given: bool) -> None:
        context.meta[_TRUST] = given, set()

    return click.option(
        "-y",
        "--trust",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=keep,
        help="Run the file of a controller FILE.py:CLASS without asking.",
    )(function)


def _allow(text: str, file: str, called: str) -> None:
    """Return if the user allows a file to be run."""
    check_file(file)
    if ":" not in text.removeprefix(file):
        raise ArgumentError(f"name the class in it, too: {file}:CLASS")
    given, allowed = click.get_current_context().meta[_TRUST]
    if given or file in allowed:
        return
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        raise ArgumentError(
            f"this runs {file} as a program, with all your rights; add --trust if you know what is in it"
        )
    if not click.confirm(f"{called}: {file} is a program, and will run with all your rights. Run it?", err=True):
        raise ArgumentError("it was not run")
    allowed.add(file)


def split_controllers(text: str) -> list[str]:
    """Split ``bbr2022,obbr:mu=0.5,beta=1``: a piece PARAM=VALUE belongs to the controller before it.

    >>> split_controllers("bbr2022,obbr:mu=0.5,cubic")
    ['bbr2022', 'obbr:mu=0.5', 'cubic']
    >>> split_controllers("bbr2:loss_thresh=0.2,beta=0.3")
    ['bbr2:loss_thresh=0.2,beta=0.3']
    """
    names: list[str] = []
    for piece in text.split(","):
        if names and "=" in piece and ":" not in piece:
            names[-1] += f",{piece}"
        else:
            names.append(piece.strip())
    return names


def _time_ns(text: str, called: str) -> int:
    return 0 if text == "0" else parse_time_ns(text, called)


def _positive_time_ns(text: str, called: str) -> int:
    if time_ns := parse_time_ns(text, called):
        return time_ns
    raise ArgumentError(f"{called} {text}: a duration above 0 is needed, for example 40ms, 1.5s, 2min")


def _size_bytes(text: str, called: str) -> int:
    if size := parse_size_bytes(text, name=called):
        return size
    raise ArgumentError(f"{called} {text}: at least one byte")


def jitter_text(text: str, called: str) -> Jitter | None:
    """Return the jitter that a text describes or names, None of "none"; an `ArgumentError` names `called`."""
    from cctrace import presets
    from cctrace.sim.jitter import Jitter

    try:
        return None if text == "none" else Jitter.parse(text if ":" in text else presets.jitter_text(text))
    except ArgumentError as error:
        raise ArgumentError(f"{called} {text}: {error}") from None


def queue_size(text: str, called: str) -> None:
    """Check what a queue may be: 200kB, 2bdp, 100packets.

    How many bytes a BDP has is not known here: the path refuses a queue of less than a packet once it is.

    Raises `ArgumentError`.
    """
    from cctrace.sim.path import Path
    from cctrace.sim.path_arguments import MAX_BPS

    try:
        Path(rate=MAX_BPS, buffer=text)
    except ArgumentError as error:
        raise ArgumentError(f"{called} {text}: {error}") from None


def _aqm(text: str, called: str) -> None:
    if text != "droptail":
        from cctrace.sim.aqm import Aqm

        try:
            Aqm.parse(text)
        except ArgumentError as error:
            raise ArgumentError(f"--{error}") from None


def _written(file: str, called: str) -> None:
    """Refuse a folder, and a file in a folder that is not there."""
    if os.path.isdir(file):
        raise ArgumentError(f"{called} {file} is a folder: give a file")
    folder = os.path.dirname(os.path.abspath(file))
    if not os.path.isdir(folder):
        raise ArgumentError(f"{called} {file}: there is no folder {folder}")


def check_folder(folder: str, called: str) -> None:
    """Raise `ArgumentError` for a folder that cannot be written to; one that does not exist yet can be made."""
    there = os.path.abspath(folder)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise ArgumentError(f"{called} {folder}: {there} is a file; give a folder")
    try:
        with tempfile.TemporaryDirectory(dir=there):
            pass
    except OSError as error:
        raise ArgumentError(f"{called} {folder}: nothing can be written in {there}: {error.strerror}") from None


# Texts that are checked; paths and simulations parse them.
CAPTURE = readable()
FILE = Text("file", lambda file, called: check_file(file, called=called), completed="file")
NEW_FILE = Text("file", _written, completed="file")
FOLDER = Text("dir", check_folder, completed="dir")
TIME = Text("time", _time_ns)
POSITIVE_TIME = Text("time", _positive_time_ns)
RATE = Text("rate", parse_rate_bps)
SHARE = Text("share", parse_share)
JITTER = Text("kind:…", jitter_text)
QUEUE = Text("size", queue_size)
NAMES = Text("name,…", lambda text, called: None, completed="controller")
AQM = Text("name[:param=value,…]", _aqm)
# Texts that become values: a controller's name, ns, bit/s, parts of one, bytes.
CONTROLLER = Text("name", controller_name, is_parsed=True, completed="controller")
TIME_NS = Text("time", _time_ns, is_parsed=True)
POSITIVE_TIME_NS = Text("time", _positive_time_ns, is_parsed=True)
RATE_BPS = Text("rate", parse_rate_bps, is_parsed=True)
PARSED_SHARE = Text("share", parse_share, is_parsed=True)
SIZE_BYTES = Text("size", _size_bytes, is_parsed=True)


def buffer_option(**more: Any) -> Decorator:
    """Declare the option of a queue's size; the command receives the text."""
    return click.option("--buffer", type=QUEUE, default="1bdp", **more)


tcpinfo_option = click.option(
    "--tcpinfo", multiple=True, type=FILE, help="The kernel's counters of these flows; may be given more than once."
)


def changed(name: str, parse: Callable[[str, str], Any], zero: bool = False, none: bool = False) -> Text:
    """Return the type of an option that takes another value, `parse(text, called)` or "none", or x and a factor."""

    def check(text: str, called: str) -> None:
        factor = parse_factor(text, called)
        if factor == 0 and not zero:
            raise ArgumentError(f"{called} {text}: a factor above 0 is needed, for example x0.5 or x2")
        if factor is None and not (none and text == "none"):
            parse(text, called)

    return Text(name, check)


def controllers_option(*names: str, **more: Any) -> Decorator:
    """Declare a repeatable option of controllers, ``bbr2022,cubic6``; the command receives a list."""
    kind = Text(
        "name,…",
        lambda text, called: [controller_name(name, called) for name in split_controllers(text)],
        is_parsed=True,
        completed="controller",
    )

    def joined(context: click.Context, option: click.Parameter, given: tuple[list[str], ...]) -> list[str]:
        return [name for names in given for name in names]

    return click.option(*names, type=kind, multiple=True, callback=joined, **more)
