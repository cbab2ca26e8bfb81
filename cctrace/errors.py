"""The errors and warnings of cctrace: one line that says what, where and what to do."""


class CctraceError(Exception):
    """Base of every error that a user's input can cause; the CLI prints it as one line and exits with 2."""


class FormatError(CctraceError):
    """A file is not what it should be; names file, offset and reason."""


class ArgumentError(CctraceError, ValueError):
    """An argument is wrong; names the argument, its value and what is allowed."""


class StreamError(CctraceError):
    """An event stream lacks a column, or holds a value, that a controller cannot work with; names it."""


class CompileError(CctraceError):
    """A controller class cannot be flattened; names file, line and reason."""


class MissingError(CctraceError, ImportError):
    """A package is not installed that an extra of cctrace brings; says how to install it."""


class CctraceWarning(UserWarning):
    """Base of the warnings about data that could be read only in part."""


class Truncated(CctraceWarning):
    """A file ends early; what precedes the end was read."""


class FitError(CctraceError, ValueError):
    """The data do not tell what was to be fitted; the message says what would be needed."""
