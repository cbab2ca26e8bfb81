"""What the commands take as arguments, checked before anything is imported that takes time.

A mistake is said at once: the argument, its value, what is allowed.
"""

import difflib
import os

import click

from cctrace.errors import ArgumentError

_PATTERN = "*?["


def paths(name, metavar, folders=False):
    """Declare an argument of one or more files ("-", URLs and quoted patterns are files too), or `folders`."""

    def checked(context, option, values):
        for value in values:
            check_file(value, folders)
        return values

    return click.argument(name, metavar=metavar, nargs=-1, required=True, callback=checked)


def file_option(*names, **more):
    """Declare an option that takes a file, or several with ``multiple=True``."""

    def checked(context, option, value):
        for file in value if isinstance(value, tuple) else [value]:
            if file is not None:
                check_file(file, called=names[0])
        return value

    return click.option(*names, callback=checked, **more)


def check_file(file, folders=False, called=""):
    """Refuse what is no file: one that does not exist, and a folder where none is wanted.

    Raises
    ------
    ArgumentError
        Names the argument, and a file of a similar name if there is one.
    """
    file = os.fspath(file)
    if file == "-" or "://" in file or (any(mark in file for mark in _PATTERN) and not os.path.exists(file)):
        return
    called = f"{called} {file}" if called else file
    if os.path.isdir(file) and not folders:
        raise ArgumentError(f"{called} is a folder: give a file (or several, a pattern without quotes)")
    if not os.path.exists(file):
        folder, name = os.path.split(file)
        near = difflib.get_close_matches(name, _entries(folder or "."), n=1)
        hint = f"; did you mean {os.path.join(folder, near[0])}?" if near else ""
        raise ArgumentError(f"{called}: no such file{' or folder' if folders else ''}{hint}")


def _entries(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def controller_option(*names, **more):
    """Declare an option that names a controller; the command receives the registered name."""

    def checked(context, option, text):
        return None if text is None else controller_name(text, names[0])

    return click.option(*names, callback=checked, **more)


def controller_name(text, called):
    """Return the registered name of what a user calls a controller; parameters stay where they are.

    Raises
    ------
    ArgumentError
        If there is none of that name; calls the argument `called` and suggests the nearest.
    """
    from cctrace.cc import canonical

    try:
        return canonical(text)
    except ArgumentError as error:
        raise ArgumentError(f"{called} {text}: {error}") from None


def time_option(*names, **more):
    """Declare an option that takes a duration such as 40ms, or 0; the command receives the text."""

    def checked(context, option, text):
        from cctrace.units import parse_time_ns

        if text not in (None, "0"):
            parse_time_ns(text, names[0])
        return text

    return click.option(*names, callback=checked, metavar="TIME", **more)


def rate_option(*names, **more):
    """Declare an option that takes a rate such as 40Mbit; the command receives the text."""

    def checked(context, option, text):
        from cctrace.units import parse_rate_bps

        if text is not None:
            parse_rate_bps(text, names[0])
        return text

    return click.option(*names, callback=checked, metavar="RATE", **more)
