"""Check expectations of captures, counters, simulations, or a folder of files."""

from __future__ import annotations

import fnmatch
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cctrace.arguments import check_progress
from cctrace.checking.expectations import FIGURES, OF_ALL, Expectation, Given, Term, read, selects
from cctrace.checking.figures import conformity_of, controller_of, measured, verdict_of
from cctrace.checking.subjects import Subject, subjects_of
from cctrace.display import Jsonable, Progress, Summarized, silent
from cctrace.errors import ArgumentError, CctraceError
from cctrace.flows.large import bulk_rows
from cctrace.junit import Case, junit

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("file", "flow", "key", "expected", "found", "holds")
_NAMED = 4  # flows that an error names


class Check(NamedTuple):
    """One expectation of one flow, or of several together, with its result."""

    file: str  # origin of the flow
    flow: str  # the connection, or several together
    key: str  # name of the expectation
    expected: str
    found: str  # or why that is unknown
    holds: bool
    value: float | None = None  # the figure found: bit/s, ns or a share; None for names, and if unknown
    seconds: float = 0.0  # time taken


@dataclass(frozen=True, repr=False)
class Checked(Summarized, Jsonable):
    """Results of a check.

    Attributes
    ----------
    checks : tuple of Check
        In the order of the files, the expectations and the flows.

    Examples
    --------
    >>> import cctrace as cct
    >>> sim = cct.simulate(cct.Path(rate="20Mbit", rtt="40ms"), ["cubic6"], "4s", seed=1)
    >>> checked = cct.check(sim, {"goodput": ">= 10Mbit"})
    >>> checked.holds, [one.key for one in checked.checks]
    (True, ['goodput'])
    """

    card_title = "Expectations"

    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether all expectations hold."""
        return all(check.holds for check in self.checks)

    @property
    def failures(self) -> list[Check]:
        """The expectations that do not hold."""
        return [check for check in self.checks if not check.holds]

    def summary(self) -> str:
        """Return as text how many hold, and which do not."""
        lines = [f"{one.file}: {one.flow}: {one.key} {one.expected}: {one.found}" for one in self.failures]
        return "\n".join([f"{len(self.checks) - len(lines)} of {len(self.checks)} expectations hold", *lines])

    def frame(self) -> pd.DataFrame:
        """Return a table, one row per check."""
        import pandas as pd

        return pd.DataFrame(self.checks, columns=Check._fields)

    def to_dict(self) -> dict[str, Any]:
        """Return ``holds`` and the list ``checks``, of dicts."""
        checks = [one._asdict() for one in self.checks]
        for one in checks:
            one["value"] = one["value"] if one["value"] is not None and math.isfinite(one["value"]) else None
        return {"holds": self.holds, "checks": checks}

    def to_junit(self) -> str:
        """Return JUnit XML, a test case per check."""
        return junit(
            "cctrace check",
            [
                Case(
                    f"{one.file}: {one.flow}: {one.key} {one.expected}",
                    one.seconds,
                    None if one.holds else f"expected {one.key} {one.expected}, found {one.found}",
                )
                for one in self.checks
            ],
        )


def check(source: Any, expectations: Given, progress: Progress = silent) -> Checked:
    """Check expectations of flows.

    Parameters
    ----------
    source : path, Capture, CounterTable, Flow, CounterFlow, Simulation, or a sequence of these
        A folder stands for the captures in it and below.
    expectations : path, dict or sequence of dict
        A TOML file, or its contents; docs/check.md has the keys.
    progress : callable
        Receives lines of progress.

    Returns
    -------
    Checked
        If a record does not contain what an expectation needs, it does not hold, and `Check.found` says why.

    Raises
    ------
    FormatError
        If a file cannot be read.
    ArgumentError
        If an expectation is invalid, or refers to missing flows or files.

    Examples
    --------
    >>> import cctrace as cct
    >>> capture = cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")
    >>> checked = cct.check(capture, {"goodput": ">= 2Mbit", "rtt_p95": "<= 60ms", "retransmitted": "<= 0.5%"})
    >>> checked.holds, [(one.key, one.found) for one in checked.failures]
    (False, [('retransmitted', '0.954 %')])
    """
    check_progress(progress)
    return check_all(source, read(expectations), progress)


def check_all(source: Any, wanted: Sequence[Expectation], progress: Progress) -> Checked:
    """Check parsed expectations; see `check`."""
    used = [False] * len(wanted)
    checks: list[Check] = []
    for name, one in _sources(source):
        applied = [k for k, expectation in enumerate(wanted) if name is None or _is_of(expectation, name)]
        if not applied:
            continue
        progress(f"checking {name or 'what was given'}")
        subjects = subjects_of(one, name)
        for k in applied:
            used[k] = True
            checks += _checks(wanted[k], subjects)
    for expectation, was_used in zip(wanted, used, strict=True):
        if not was_used:
            raise ArgumentError(f"files={expectation.files!r}: no file of this name")
    return Checked(tuple(checks))


def _sources(source: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield (name, source), a folder as its captures; an object that is not a file has no name."""
    if isinstance(source, list | tuple):
        for one in source:
            yield from _sources(one)
        return
    if not isinstance(source, str | os.PathLike):
        yield None, source
        return
    if not os.path.isdir(source):
        yield os.fspath(source), source
        return
    from cctrace.report.index import captures_in

    found = captures_in(Path(source))
    if not found:
        raise ArgumentError(f"{os.fspath(source)}: no captures in this folder")
    for file in found:
        yield str(file.relative_to(source)), file


def _is_of(expectation: Expectation, name: str) -> bool:
    return any(fnmatch.fnmatchcase(part, expectation.files) for part in (name, os.path.basename(name)))


def _checks(expectation: Expectation, subjects: list[Subject]) -> Iterator[Check]:
    """Yield the results of an expectation for the selected flows of one file."""
    selected = _selected(expectation.flows, subjects)
    for term in expectation.asked:
        groups = [selected] if term.key in OF_ALL else [[subject] for subject in selected]
        for group in groups:
            began = time.perf_counter()
            title = group[0].title if len(group) == 1 else f"{len(group)} flows"
            found, holds, value = _found(term, group)
            seconds = time.perf_counter() - began
            yield Check(group[0].file, title, term.key, term.text, found, holds, value, seconds)


def _selected(which: str, subjects: list[Subject]) -> list[Subject]:
    """Return the selected flows of a file. Raises `ArgumentError` if there is none; names those that exist."""
    if which in ("largest", "all"):
        rows = bulk_rows([subject.row["bytes_sent"] for subject in subjects])
        found = [subjects[row] for row in (rows if which == "all" else rows[:1])]
    else:
        found = [subject for subject in subjects if selects(which, subject.ends)]
    if found:
        return found
    if not subjects:
        raise ArgumentError("there is no TCP connection in the capture")
    there = ", ".join(subject.title for subject in subjects[:_NAMED])
    more = f" and {len(subjects) - _NAMED} more" if len(subjects) > _NAMED else ""
    raise ArgumentError(f"flows={which!r}: {subjects[0].file} has no such flow; it has {there}{more}")


def _found(term: Term, group: Sequence[Subject]) -> tuple[str, bool, float | None]:
    """Return the text found, whether it meets the expectation, and the figure."""
    try:
        if term.key in FIGURES:
            value = measured(term.key, group)
            return FIGURES[term.key].form(value), term.holds(value), value
        if term.key == "controller":
            holds, text = controller_of(group[0], term.names)
        elif term.key == "conform":
            holds, text = conformity_of(group[0], term.names)
        else:
            holds, text = verdict_of(group[0], term.names, term.key == "verdict")
        return text, holds, None
    except CctraceError as error:
        return f"unknown: {' '.join(str(error).split())}", False, None
