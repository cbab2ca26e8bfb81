"""From results in traces to verdicts: the first violation of every requirement is kept."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cctrace.cc.base import Controller
from cctrace.conform.requirements import EXAMPLE, Found, Requirement, Spec
from cctrace.conform.result import CONFORMS, NOT_EXERCISED, VIOLATES, Verdict
from cctrace.conform.trace import NoColumnError, Trace


def look(requirement: Requirement, r: Trace) -> Found | None:
    """Return what a requirement finds in a trace, None if the trace lacks a column that it reads or needs."""
    try:
        return dated(requirement.check(r), r) if r.has(*requirement.needs) else None
    except NoColumnError:
        return None


def dated(found: Found, r: Trace | None) -> Found:
    """Return what was found in a trace, with the time of its row."""
    return found if r is None or found.row is None else found._replace(time_s=float(r.time_s[found.row]))


def intended(subject: str | type[Controller], spec: Spec) -> dict[str, str]:
    """Return {requirement: intended difference of the subject, and the function of its source}."""
    rows = spec.differs.get(subject, ()) if isinstance(subject, str) else ()
    return {id: f"{row.there}, {row.function}" for row in rows for id in row.requirements}


class Tally:
    """What was found of each requirement and example so far; `by_intent`: {id: why the subject deviates by design}."""

    def __init__(self, requirements: Iterable[Requirement], by_intent: Mapping[str, str]) -> None:
        self.by_intent = by_intent
        self.rows = {
            row.id: Verdict(row.id, row.section, row.level, row.sentence, NOT_EXERCISED) for row in requirements
        }

    def example(self, id: str, sentence: str) -> None:
        """Begin the row of an example."""
        self.rows[id] = Verdict(id, id, EXAMPLE, sentence, NOT_EXERCISED, where="no path brings it about")

    def examine(self, requirements: Iterable[Requirement], r: Trace, where: str) -> None:
        """Add what some requirements find in a trace."""
        for requirement in requirements:
            began = time.perf_counter()
            self.add(requirement.id, look(requirement, r), where, time.perf_counter() - began)

    def add(self, id: str, found: Found | None, where: str, seconds: float = 0.0) -> None:
        """Add what was found at `where`; None if the record does not show what the requirement needs."""
        row = self.rows[id]
        if found is None:
            if row.verdict == NOT_EXERCISED:
                self.rows[id] = replace(row, where="the record does not show it")
            return
        row = replace(row, exercised=row.exercised + found.exercised, seconds=row.seconds + seconds)
        if found.row is not None and row.verdict != VIOLATES:
            row = replace(row, verdict=VIOLATES, where=where, by_intent=self.by_intent.get(id, ""))
            row = replace(row, row=found.row, time_s=found.time_s, value=found.value, expected=found.expected)
        elif found.exercised and row.verdict == NOT_EXERCISED:
            row = replace(row, verdict=CONFORMS, where="")
        self.rows[id] = row

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return the rows."""
        return tuple(self.rows.values())
