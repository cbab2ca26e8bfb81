"""The parts of an analysis, each on its own: one that fails leaves the others standing.

    attempt("the forecast of minRTT collapse", fit, flow)      what `fit(flow)` returns, or a `Refusal`

Where the data do not tell what a part asks of them it raises a `CctraceError`, and the refusal carries its reason. Any
other exception is an error of cctrace: a `PartFailed` warning announces it (the command line's `--debug` turns that
into an error with its traceback), and the analysis goes on without the part.
"""

import warnings
from dataclasses import dataclass

from cctrace.errors import CctraceError, PartFailed


@dataclass(frozen=True)
class Refusal:
    """Why a part of an analysis has no result.

    Attributes
    ----------
    part : str
        What was attempted.
    reason : str
        One line.
    """

    part: str
    reason: str

    def __str__(self):
        return self.reason

    @property
    def note(self):
        """One line for the notes of an analysis."""
        return f"there is no {self.part}: {self.reason}"

    def to_dict(self):
        """Return what is written as JSON in place of the result."""
        return {"refused": self.reason}


def attempt(part, function, *arguments, **options):
    """Return what a function returns, or the `Refusal` of a part that has no result.

    Parameters
    ----------
    part : str
        What the function finds out, as a noun: "replay", "forecast of minRTT collapse".
    function : callable
    arguments, options
        Of the function.

    Examples
    --------
    >>> from cctrace.errors import FitError
    >>> def forecast(flow):
    ...     raise FitError("the flow never filled its path")
    >>> attempt("forecast", forecast, None)
    Refusal(part='forecast', reason='the flow never filled its path')
    """
    try:
        return function(*arguments, **options)
    except CctraceError as refusal:
        return Refusal(part, " ".join(str(refusal).split()))
    except Exception as error:
        reason = f"internal error, {type(error).__name__}: {' '.join(str(error).split())}"
        warnings.warn(f"{part}: {reason} (--debug shows where); the rest of the analysis goes on", PartFailed, 2)
        return Refusal(part, reason)
