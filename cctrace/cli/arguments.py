"""Arguments of the commands, validated before slow imports.

An error is reported at once: argument, value, what is allowed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cctrace.errors import ArgumentError
from cctrace.units import parse_factor, parse_rate_bps, parse_share, parse_time_ns

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow
    from cctrace.sim.jitter import Jitter

Decorator = Callable[[Any], Any]
_PATTERN = "*?["
MOST_WORKERS = 1024  # processes of one machine
MOST_ROWS = 100_000_000  # packets held at a time: 6 GB of columns


def paths(name: str, metavar: str, folders: bool = False, besides: str = "none") -> Decorator:
    """Declare an argument of one or more files ("-", URLs and quoted patterns are files too), or `folders`.

    Files whose names end in `besides` need not be of a format that `cctrace.read` knows.
    """

    def checked(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Any:
        for value in values:
            check_file(value, folders)
            if os.path.isfile(value) and not value.endswith(besides):
                check_format(value)
        return values

    return click.argument(name, metavar=metavar, nargs=-1, required=True, callback=checked)


def file_argument(name: str) -> Decorator:
    """Declare an argument of one file."""

    def checked(context: click.Context, option: click.Parameter, file: str) -> str:
        check_file(file)
        return file

    return click.argument(name, callback=checked)


def file_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that takes a file, or several with ``multiple=True``."""

    def checked(context: click.Context, option: click.Parameter, value: Any) -> Any:
        for file in value if isinstance(value, tuple) else [value]:
            if file is not None:
                check_file(file, called=names[0])
        return value

    return click.option(*names, callback=checked, **more)


_COUNTERS = "The kernel's counters of these flows; may be given more than once."
tcpinfo_option = file_option("--tcpinfo", multiple=True, metavar="FILE", help=_COUNTERS)


def check_file(file: str, folders: bool = False, called: str = "") -> None:
    """Refuse what is no file: one that does not exist, a device, and a folder where none is wanted.

    Raises `ArgumentError`, which names the argument, and a file of a similar name if there is one.
    """
    file = os.fspath(file)
    if file == "-" or "://" in file or (any(mark in file for mark in _PATTERN) and not os.path.exists(file)):
        return
    called = f"{called} {file}" if called else file
    if os.path.isdir(file) and not folders:
        raise ArgumentError(f"{called} is a folder: give a file (or several, a pattern without quotes)")
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):
        from cctrace.io.source import is_device

        if is_device(file):  # unlike a pipe it may never end
            raise ArgumentError(f"{called} is a device: give a file")
    if not os.path.exists(file):
        import difflib

        folder, name = os.path.split(file)
        near = difflib.get_close_matches(name, _entries(folder or "."), n=1)
        hint = f"; did you mean {os.path.join(folder, near[0])}?" if near else ""
        raise ArgumentError(f"{called}: no such file{' or folder' if folders else ''}{hint}")


def check_format(file: str) -> None:
    """Refuse a file of no known format, before what reads it is imported.

    Raises `FormatError`.
    """
    from cctrace.io import is_capture

    is_capture(file)


def check_flow(index: int, connections: int, source: str) -> None:
    """Refuse a --flow that the source does not have.

    Raises `ArgumentError`.
    """
    if not 0 <= index < connections:
        allowed = "0" if connections == 1 else f"0 to {connections - 1} (cctrace flows lists them)"
        raise ArgumentError(f"--flow {index}: {source} has no such connection; allowed: {allowed}")


def largest(bytes_sent: Any) -> int:
    """Return the index of the connection that sent most; the first if none is known to have sent anything."""
    import numpy as np

    sent = np.nan_to_num(np.asarray(bytes_sent, float), nan=-1.0)
    return int(sent.argmax()) if len(sent) else 0


flow_option = click.option(
    "--flow", "index", type=int, metavar="N", help="Which connection, as numbered by flows; default: the largest."
)


def chosen_flow(data: Any, index: int | None, source: str) -> Flow:
    """Return the flow that `--flow` names, or the one that sent most.

    `data`: what `cctrace.read` returned. Raises `ArgumentError` unless that is a capture, and has the connection.
    """
    from cctrace.flows.capture import Capture

    if not isinstance(data, Capture):
        raise ArgumentError(f"{source}: holds no packets; a capture is needed")
    index = largest(data.flows["bytes_sent"]) if index is None else index
    check_flow(index, len(data), source)
    return data.flow(index)


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def controller_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that names a controller, --controller by default; the command receives the registered name."""
    names = names or ("--controller", "--cc", "controller")

    def checked(context: click.Context, option: click.Parameter, text: str | None) -> Any:
        return None if text is None else controller_name(text, names[0])

    return click.option(*names, callback=checked, **{"metavar": "NAME"} | more)


def controller_name(text: str, called: str) -> str:
    """Return the registered name of what a user calls a controller; parameters stay where they are.

    ``FILE.py:CLASS`` is loaded, if the command has --trust and the user allows it.

    Raises `ArgumentError` if there is none of that name; calls the argument `called` and suggests the nearest.
    """
    from cctrace.cc import canonical, own

    try:
        if (file := own.file_of(text)) and _TRUST in click.get_current_context().meta:
            _allow(text, file, called)
            own.load(text)
        return canonical(text)
    except ArgumentError as error:
        raise ArgumentError(f"{called} {text}: {error}") from None


_TRUST = "cctrace.trust"  # in a command's context: whether files may be run, and which the user has allowed


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
        help="Run the files of --cc FILE.py:CLASS without asking.",
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


def _checked_option(check: Callable[[str, str], object], *names: str, **more: Any) -> Decorator:
    """Declare an option whose text `check(text, name)` may refuse; the command receives the text."""

    def checked(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
        if text is not None:
            check(text, names[0])
        return text

    return click.option(*names, callback=checked, **more)


def time_option(*names: str, positive: bool = False, **more: Any) -> Decorator:
    """Declare an option that takes a duration such as 40ms, or 0 unless `positive`; the command receives the text."""

    def check(text: str, called: str) -> None:
        if (positive or text != "0") and not parse_time_ns(text, called) and positive:
            raise ArgumentError(f"{called} {text}: a duration above 0 is needed, for example 40ms, 1.5s, 2min")

    return _checked_option(check, *names, metavar="TIME", **more)


def rate_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that takes a rate such as 40Mbit; the command receives the text."""
    return _checked_option(parse_rate_bps, *names, metavar="RATE", **more)


def share_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that takes a share such as 2% or 0.02; the command receives the text."""
    return _checked_option(parse_share, *names, metavar="SHARE", **more)


def jitter_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that takes a jitter, or the name of a shipped one; the command receives the text."""
    return _checked_option(lambda text, called: text == "none" or jitter_text(text, called), *names, **more)


def jitter_text(text: str, called: str) -> Jitter:
    """Return the jitter that a text describes; calls the argument `called` where it describes none."""
    from cctrace import presets
    from cctrace.sim.jitter import Jitter

    try:
        return Jitter.parse(text if ":" in text else presets.jitter_text(text))
    except ArgumentError as error:
        raise ArgumentError(f"{called} {text}: {error}") from None


def controllers_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that names controllers, NAME,...; the command receives a list of registered names."""

    def checked(context: click.Context, option: click.Parameter, text: str | None) -> Any:
        return [controller_name(name, names[0]) for name in split_controllers(text)] if text else []

    return click.option(*names, callback=checked, **more)


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


def queue_size(text: str, called: str) -> None:
    """Check what a queue may be: 200kB, 2bdp, 100packets.

    How many bytes a BDP has is not known here: the path refuses a queue of less than a packet once it is.

    Raises `ArgumentError`.
    """
    from cctrace.sim.path import MOST_BPS, Path

    try:
        Path(rate=MOST_BPS, buffer=text)
    except ArgumentError as error:
        raise ArgumentError(f"{called} {text}: {error}") from None


def aqm_option(**more: Any) -> Decorator:
    """Declare --aqm, which takes the discipline of a queue; the command receives the text."""

    def check(text: str, called: str) -> None:
        if text != "droptail":
            from cctrace.sim.aqm import Aqm

            Aqm.parse(text)

    return _checked_option(check, "--aqm", metavar="NAME[:PARAM=VALUE,…]", **more)


def change_option(name: str, parse: Callable[[str, str], Any], zero: bool = False, **more: Any) -> Decorator:
    """Declare an option that takes another value, `parse(text, name)`, or x and a factor; the command gets the text."""

    def check(text: str, called: str) -> None:
        factor = parse_factor(text, called)
        if factor == 0 and not zero:
            raise ArgumentError(f"{called} {text}: a factor above 0 is needed, for example x0.5 or x2")
        if factor is None:
            parse(text, called)

    return _checked_option(check, name, **more)


def buffer_option(**more: Any) -> Decorator:
    """Declare the option of a queue's size; the command receives the text."""
    return _checked_option(queue_size, "--buffer", default="1bdp", metavar="SIZE", **more)


def output_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that names a file to write, in a folder that is there; the command receives the name."""

    def check(file: str, called: str) -> None:
        folder = os.path.dirname(os.path.abspath(file))
        if not os.path.isdir(folder):
            raise ArgumentError(f"{names[-1]} {file}: there is no folder {folder}")

    return _checked_option(check, *names, metavar="FILE", **more)


def folder_option(*names: str, **more: Any) -> Decorator:
    """Declare an option that names a folder to write into, made if it is not there; it must be possible to."""
    called = names[-2] if names[-1].isidentifier() else names[-1]
    return _checked_option(lambda folder, _: check_folder(folder, called), *names, metavar="DIR", **more)


def check_folder(folder: str, called: str) -> None:
    """Refuse a folder that could not be written to, before what takes time.

    Raises `ArgumentError`.
    """
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
