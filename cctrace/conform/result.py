"""Verdicts, and the `Conformity` that collects them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cctrace.display import Gridded, Jsonable
from cctrace.junit import Case as JunitCase
from cctrace.junit import junit

if TYPE_CHECKING:
    import pandas as pd

CONFORMS, VIOLATES, NOT_EXERCISED = "conforms", "violates", "not exercised"


@dataclass(frozen=True)
class Verdict:
    """Result for one requirement or example, over all runs.

    Attributes
    ----------
    id, section, level, sentence : str
        Of the requirement; the level is "MUST", "SHOULD" or "example".
    verdict : {"conforms", "violates", "not exercised"}
    exercised : int
        Calls or packets that it applied to.
    where : str
        Case and path of the first violation, or the reason why it was not exercised.
    row, time_s : int, float or None
        Of the first violation: which call (of a capture: packet), and seconds from the beginning.
    value, expected : str
        The value there, and the specified one.
    by_intent : str
        Why this controller is known to differ here, "" if it is not.
    seconds : float
        Run time.

    Examples
    --------
    >>> verdict = Verdict("cubic-beta", "4.6", "SHOULD", "A loss multiplies cwnd by .7.", "conforms", exercised=12)
    >>> verdict.fails, verdict.exercised
    (False, 12)
    """

    id: str
    section: str
    level: str
    sentence: str
    verdict: str
    exercised: int = 0
    where: str = ""
    row: int | None = None
    time_s: float | None = None
    value: str = ""
    expected: str = ""
    by_intent: str = ""
    seconds: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether it is violated, and not known to differ by intent."""
        return self.verdict == VIOLATES and not self.by_intent

    def text(self) -> str:
        """Return the verdict in words, one line."""
        if self.verdict != VIOLATES:
            return self.verdict if not self.where else f"{self.verdict}: {self.where}"
        at = "" if self.row is None else f" at call {self.row}, {self.time_s:.6g} s"
        known = f" (by intent: {self.by_intent})" if self.by_intent else ""
        return f"violates{at} in {self.where}: {self.value}, expected {self.expected}{known}"


@dataclass(frozen=True, repr=False)
class Conformity(Gridded, Jsonable):
    """How a controller or a recorded flow follows a specification.

    Attributes
    ----------
    subject, spec, title : str
    verdicts : tuple of Verdict
        A row per requirement, in the order of the specification, then its examples.
    notes : tuple of str
        Caveats: flows left out, what the record does not show.

    Examples
    --------
    >>> import cctrace.conform
    >>> found = cctrace.conform.run("quic_reno", "quic")
    >>> found.conforms, [verdict.id for verdict in found.verdicts if verdict.fails]
    (True, [])
    """

    subject: str
    spec: str
    title: str
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Conformity of {self.subject} to {self.spec}: {self._counted()}>"

    @property
    def conforms(self) -> bool:
        """Whether nothing fails."""
        return not any(verdict.fails for verdict in self.verdicts)

    def _counted(self) -> str:
        counts = {kind: sum(v.verdict == kind for v in self.verdicts) for kind in (CONFORMS, VIOLATES, NOT_EXERCISED)}
        intended = sum(v.verdict == VIOLATES and bool(v.by_intent) for v in self.verdicts)
        known = f" ({intended} by intent)" if intended else ""
        return f"{counts[CONFORMS]} conform, {counts[VIOLATES]} violated{known}, {counts[NOT_EXERCISED]} not exercised"

    def _grid(self) -> tuple[str, tuple[str, ...], list[tuple[object, ...]], list[str]]:
        rows: list[tuple[object, ...]] = [(v.id, v.section, v.level, v.text()) for v in self.verdicts]
        title = f"{self.subject}: {self.title}: {self._counted()}"
        return title, ("requirement", "section", "level", "verdict"), rows, list(self.notes)

    def frame(self) -> pd.DataFrame:
        """Return a table: a row per requirement, a column per field of `Verdict`."""
        import pandas as pd

        return pd.DataFrame([asdict(verdict) for verdict in self.verdicts])

    def to_dict(self) -> dict[str, Any]:
        """Return plain objects."""
        return asdict(self) | {"conforms": self.conforms}

    def to_junit(self) -> str:
        """Return JUnit XML: what differs by intent and what was not exercised is skipped."""
        return junit(f"{self.subject} {self.spec}", [_junit_case(verdict) for verdict in self.verdicts])


def _junit_case(verdict: Verdict) -> JunitCase:
    name = f"{verdict.id} [{verdict.level} {verdict.section}]"
    if verdict.fails:
        return JunitCase(name, verdict.seconds, failure=f"{verdict.text()}\n{verdict.sentence}")
    if verdict.verdict == CONFORMS:
        return JunitCase(name, verdict.seconds)
    return JunitCase(name, verdict.seconds, skipped=verdict.text())
