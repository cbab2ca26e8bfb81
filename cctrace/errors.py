"""The errors and warnings of cctrace: one line that says what, where and what to do."""

from __future__ import annotations


class CctraceError(Exception):
    """Base of every error that a user's input can cause; the CLI prints it as one line and exits with 2."""


class FormatError(CctraceError):
    """A file is not what it should be; names file, offset and reason."""


class ArgumentError(CctraceError, ValueError):
    """An argument is wrong; names the argument, its value and what is allowed."""


class StreamError(CctraceError):
    """An event stream lacks a column, or holds a value that no controller can work with; names it."""


class CompileError(CctraceError):
    """A controller class cannot be flattened; names file, line and reason."""


class MissingError(CctraceError, ImportError):
    """An optional package is not installed; says how to install it."""


class CctraceWarning(UserWarning):
    """Base of the warnings about data that could be read only in part."""


class Truncated(CctraceWarning):
    """A file ends early; everything before the end was read."""


class PartFailed(CctraceWarning):
    """A part of an analysis met an error of cctrace itself; the result lacks that part. `--debug` raises it."""


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


def one_line(error: BaseException) -> str:
    """Return an exception as one line: an error caused by the input as it is, any other as an internal error.

    Examples
    --------
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
