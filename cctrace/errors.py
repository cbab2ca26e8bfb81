"""The errors and warnings of cctrace: one line that says what, where and what to do."""

import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_PACKAGE = os.path.dirname(__file__) + os.sep


class CctraceError(Exception):
    """Base of every error that a user's input can cause; the CLI prints it as one line and exits with 2.

    Examples
    --------
    >>> import cctrace as cct
    >>> try:
    ...     cct.read("no-such.pcap")
    ... except CctraceError as error:
    ...     print(error)
    no-such.pcap: No such file or directory
    """


class FormatError(CctraceError):
    """A file is not what it should be; names file, offset and reason.

    Examples
    --------
    >>> import io
    >>> import cctrace as cct
    >>> try:
    ...     cct.read(io.BytesIO(b"GET / HTTP/1.1"))
    ... except FormatError as error:
    ...     print(error)
    <stream>: not a format that cctrace reads (starts with bytes 47 45 54 20 2f 20 48 54)
    """


class ArgumentError(CctraceError, ValueError):
    """An argument is wrong; names the argument, its value and what is allowed.

    Examples
    --------
    >>> import cctrace as cct
    >>> try:
    ...     cct.Path(rate="fast", rtt="40ms")
    ... except ArgumentError as error:
    ...     print(error)
    rate='fast' is not a rate; write it with its unit, for example 40Mbit, 1.5Gbit/s, 5MB/s
    """


class StreamError(CctraceError):
    """An event stream lacks a column, or holds a value that no controller can work with; names it.

    Examples
    --------
    >>> from cctrace.flows.views import View
    >>> try:
    ...     View("linux", [0, 1], {"now_us": [1.5, 2.0]})
    ... except StreamError as error:
    ...     print(error)
    column 'now_us', row 0: 1.5 is not an integer
    """


class CompileError(CctraceError):
    """A controller class or a function cannot be compiled; names file, line and reason.

    Examples
    --------
    >>> from cctrace.lang.compile import compiled
    >>> from cctrace.cc.base import LinuxController
    >>> class Recursive(LinuxController):
    ...     interpreted_only = "it calls itself"
    >>> try:
    ...     compiled(Recursive)
    ... except CompileError as error:
    ...     print(error)
    Recursive cannot be compiled: it calls itself; use mode='interpreted'
    """


class MissingError(CctraceError, ImportError):
    """An optional package is not installed; says how to install it.

    Examples
    --------
    >>> from cctrace.extras import needed
    >>> try:
    ...     needed("no_such_package", "plot")
    ... except MissingError as error:
    ...     print(str(error).partition(":")[0])
    this needs no_such_package, which is not installed
    """


class CctraceWarning(UserWarning):
    """Base of the warnings about data that could be read only in part.

    Examples
    --------
    >>> issubclass(Truncated, CctraceWarning), issubclass(PartFailed, CctraceWarning)
    (True, True)
    """


class Truncated(CctraceWarning):
    """A file ends early; everything before the end was read.

    Examples
    --------
    >>> import io, warnings
    >>> import cctrace as cct
    >>> data = cct.datasets.path("web_server", "sender.pcap.zst").read_bytes()
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     packets = cct.read(io.BytesIO(data[: len(data) // 2])).packets
    >>> caught[0].category.__name__, len(packets) > 0
    ('Truncated', True)
    """


class PartFailed(CctraceWarning):
    """A part of an analysis met an error of cctrace itself; the result lacks that part. `--debug` raises it.

    Examples
    --------
    >>> issubclass(PartFailed, CctraceWarning)
    True
    """


def warn_caller(text: str, category: type[CctraceWarning]) -> None:
    """Issue a warning that names the user's line, not one of cctrace (from Python 3.12: `skip_file_prefixes`).

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_caller("capture.pcap: ends early", Truncated)
    >>> str(caught[0].message)
    'capture.pcap: ends early'
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, level)


class FitError(CctraceError, ValueError):
    """The data do not determine the fitted quantity; the message says what would be needed.

    Examples
    --------
    >>> import cctrace as cct
    >>> path = cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp")
    >>> short = cct.simulate(path, [cct.Sender("cubic6", app="bulk:size=20kB")], "1s", seed=1, packets=True)
    >>> try:
    ...     cct.fit.path(short)
    ... except FitError as error:
    ...     print(error)
    only 14 RTTs are known; at least 100 are needed, so capture a longer flow
    """


@contextmanager
def own_code(what: str) -> Iterator[None]:
    """Run a controller that a user may have written: what it raises becomes an `ArgumentError` that begins with `what`.

    >>> with own_code("mine"):
    ...     1 / 0
    Traceback (most recent call last):
    cctrace.errors.ArgumentError: mine raised ZeroDivisionError: division by zero
    """
    try:
        yield
    except CctraceError:
        raise
    except Exception as error:  # whatever the class does
        raise ArgumentError(f"{what} raised {type(error).__name__}: {error}") from error


def one_line(error: BaseException) -> str:
    """Return an exception as one line: an error caused by the input as it is, any other as an internal error.

    >>> one_line(FormatError("a.pcap: the file is empty")), one_line(FileNotFoundError(2, "No such file", "b.pcap"))
    ('a.pcap: the file is empty', 'b.pcap: No such file')
    >>> one_line(KeyError("rtt"))
    "internal error, KeyError: 'rtt' (--debug shows where)"
    """
    text = " ".join(str(error).split())
    if isinstance(error, CctraceError):
        return text
    if isinstance(error, OSError) and error.strerror:  # not a bug: the disk is full, the network is down
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if isinstance(error, MemoryError):  # the machine's, or a limit (ulimit -v)
        return f"not enough memory for this: {text or 'an allocation failed'}"
    return f"internal error, {type(error).__name__}: {text} (--debug shows where)"


def suggestion(name: str, known: Iterable[str], most: int = 1, likeness: float = 0.6) -> str:
    """Return what an unknown name may have meant, as the end of a sentence; nothing if no known name is like it.

    >>> suggestion("cubik", ["bbr", "cubic"]), suggestion("x", ["bbr", "cubic"])
    ("; did you mean 'cubic'?", '')
    """
    import difflib

    near = difflib.get_close_matches(name, list(known), n=most, cutoff=likeness)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def check_keys(where: str, table: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Raise `ArgumentError` if a table of a TOML file has a key that means nothing there."""
    allowed = list(allowed)
    for key in table:
        if key not in allowed:
            raise ArgumentError(
                f"{where}: {key}={table[key]!r}: {key} is not one of {', '.join(allowed)}{suggestion(key, allowed)}"
            )
