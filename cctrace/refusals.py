"""Independent parts of an analysis: one that fails does not affect the others.

    with Attempt("forecast of minRTT collapse") as part:
        return fit(flow)
    return part.refusal

If the data do not determine a result, its function raises a `CctraceError`, and the `Refusal` carries the reason.
Any other exception is an error of cctrace: a `PartFailed` warning announces it (the command line's `--debug` turns
that into an error with its traceback), and the analysis continues without the part.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from cctrace.display import Jsonable
from cctrace.errors import CctraceError, PartFailed, warn_caller

KILLED = "the process that analysed it was ended, by the system if memory was short"


@dataclass(frozen=True)
class Refusal(Jsonable):
    """Why a part of an analysis has no result.

    Attributes
    ----------
    part : str
        What was attempted.
    reason : str
        One line.

    Examples
    --------
    >>> refusal = Refusal("fitted path", "only 14 RTTs are known")
    >>> str(refusal), refusal.note
    ('only 14 RTTs are known', 'there is no fitted path: only 14 RTTs are known')
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


class Attempt:
    """A context that ends at the first exception, which becomes its `refusal`; that is None if there is none.

    `part`: what the statements find out, as a noun: "replay", "forecast of minRTT collapse". `notes`: receive a note of
    a refusal; not, with `once`, if another one gives the same reason.

    >>> from cctrace.errors import FitError
    >>> with Attempt("forecast") as forecast:
    ...     raise FitError("the flow never filled its path")
    >>> forecast.refusal
    Refusal(part='forecast', reason='the flow never filled its path')
    """

    def __init__(self, part: str, notes: list[str] | None = None, once: bool = False) -> None:
        self.part = part
        self._notes, self._once = notes, once
        self.refusal: Refusal | None = None

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        reason = " ".join(str(error).split())
        if not isinstance(error, CctraceError):
            reason = f"internal error, {type(error).__name__}: {reason}"
            rest = "(--debug shows where); the rest of the analysis goes on"
            warn_caller(f"{self.part}: {reason} {rest}", PartFailed)
        self.refusal = Refusal(self.part, reason)
        if self._notes is not None and not (self._once and any(reason in line for line in self._notes)):
            self._notes.append(self.refusal.note)
        return True

    @property
    def refused(self) -> Refusal:
        """The refusal, after an attempt that failed."""
        assert self.refusal is not None, f"{self.part} did not fail"
        return self.refusal
