"""The parts of an analysis, each on its own: one that fails leaves the others standing.

    attempt("the forecast of minRTT collapse", fit, flow)      what `fit(flow)` returns, or a `Refusal`

Where the data do not tell what a part asks of them it raises a `CctraceError`, and the refusal carries its reason. Any
other exception is an error of cctrace: a `PartFailed` warning announces it (the command line's `--debug` turns that
into an error with its traceback), and the analysis goes on without the part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from cctrace.errors import CctraceError, PartFailed

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


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

    def __str__(self) -> str:
        return self.reason

    @property
    def note(self) -> str:
        """One line for the notes of an analysis."""
        return f"there is no {self.part}: {self.reason}"

    def to_dict(self) -> dict[str, str]:
        """Return what is written as JSON in place of the result."""
        return {"refused": self.reason}


def attempt(
    part: str, function: Callable[_Given, _Result], *arguments: _Given.args, **options: _Given.kwargs
) -> _Result | Refusal:
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


@dataclass
class Notes:
    """What a reader of an analysis should know; parts without a result are noted, each reason once."""

    lines: list[str] = field(default_factory=list)

    def result(
        self, part: str, function: Callable[_Given, _Result], *arguments: _Given.args, **options: _Given.kwargs
    ) -> _Result | None:
        """Return what a function returns; None, with a note that says why, of a part that has no result."""
        found = attempt(part, function, *arguments, **options)
        if not isinstance(found, Refusal):
            return found
        if not any(found.reason in line for line in self.lines):
            self.lines.append(found.note)
        return None
