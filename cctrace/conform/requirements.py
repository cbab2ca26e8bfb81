"""Requirements of a specification, as rows of a table: a sentence, and a predicate over the columns of a trace."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cctrace.arguments import check_choice
from cctrace.cc.base import Counterpart
from cctrace.columns import Bools, Floats, Values
from cctrace.conform.trace import Trace

if TYPE_CHECKING:
    from cctrace.conform.cases import Case
    from cctrace.conform.runner import Cell

MUST, SHOULD, EXAMPLE = "MUST", "SHOULD", "example"
SPECS = ("bbr", "cubic", "reno", "prr", "quic", "rack", "hystart")  # each in a module of its name


class Found(NamedTuple):
    """Result of a predicate in one trace.

    `exercised` rows that it applies to, the first `row` that contradicts it (None: none), the value there and the
    specified one, and when that was, from the beginning of the trace.
    """

    exercised: int
    row: int | None = None
    value: str = ""
    expected: str = ""
    time_s: float | None = None


class Requirement(NamedTuple):
    """One row of a specification; `needs` names columns that `check` does not read but that must be there, too."""

    id: str
    section: str
    level: str
    sentence: str
    check: Callable[[Trace], Found]
    needs: tuple[str, ...] = ()


class Spec(NamedTuple):
    """A specification: what it requires of a controller's calls, and what of that a capture (`wire`) or a `log` shows.

    `families` are the names that `identify` gives to controllers that claim to follow it (none: the specification is of
    the stack, not of the controller); `differs` says where a controller is known to decide otherwise by intent; `stack`
    ("linux" or "quic") says whose calls they read. `cases` are results on every path of `cells`.
    """

    name: str
    title: str
    requirements: tuple[Requirement, ...]
    families: tuple[str, ...]
    wire: tuple[Requirement, ...] = ()
    differs: Mapping[str, tuple[Counterpart, ...]] = {}
    stack: str = "linux"
    log: tuple[Requirement, ...] = ()
    cells: tuple[Cell, ...] = ()
    cases: Sequence[Case] = ()


def spec_of(name: str) -> Spec:
    """Return a specification.

    Raises `ArgumentError` if there is no such specification, and lists those there are.

    >>> spec_of("bbr").title
    'draft-ietf-ccwg-bbr-06 (BBRv3)'
    """
    check_choice("spec", name, SPECS)
    found: Spec = importlib.import_module(f"cctrace.conform.{name}").SPEC
    return found


class Table:
    """A list of requirements, filled by decorated predicates in their order in the file."""

    def __init__(self) -> None:
        self.rows: list[Requirement] = []

    def __call__(
        self, name: str, section: str, sentence: str, *needs: str, level: str = MUST
    ) -> Callable[[Callable[[Trace], Found]], Callable[[Trace], Found]]:
        """Add the decorated predicate."""

        def add(check: Callable[[Trace], Found]) -> Callable[[Trace], Found]:
            self.rows.append(Requirement(name, section, level, sentence, check, needs))
            return check

        return add


class Named(NamedTuple):
    """A column of codes and the name of each, for the message of a single row."""

    codes: Values
    names: tuple[str, ...]


def all_of(
    where: ArrayLike, holds: ArrayLike, value: ArrayLike | Named, expected: ArrayLike | Named, relation: str = ""
) -> Found:
    """Return what holds in all rows of a mask.

    `where`, `holds`: shape (n,), the rows that exercise the requirement, and those that satisfy it. `value`,
    `expected`: shown of the first row that does not; numbers, names, or a text. `relation`: between them, for example
    ``"at most"``.
    """
    where = np.asarray(where, bool)
    bad = np.flatnonzero(where & ~np.asarray(holds, bool))
    count = int(where.sum())
    if not len(bad):
        return Found(count)
    row = int(bad[0])
    return Found(count, row, _shown(value, row), f"{relation} {_shown(expected, row)}".strip())


def equal(where: ArrayLike, value: ArrayLike, expected: ArrayLike, rel: float = 0.0, within: float = 0.0) -> Found:
    """Return whether a column equals another in all rows of a mask, to within a share and an amount."""

    def near(one: Values, other: Values) -> Values:
        with np.errstate(invalid="ignore"):
            return (np.abs(one - other) <= _slack(other, rel, within)) | (one == other)

    return _compared(where, value, expected, near)


def at_most(where: ArrayLike, value: ArrayLike, bound: ArrayLike, rel: float = 0.0, within: float = 0.0) -> Found:
    """Return whether a column stays at or below another in all rows of a mask."""
    return _compared(where, value, bound, lambda one, other: one <= other + _slack(other, rel, within), "at most")


def at_least(where: ArrayLike, value: ArrayLike, bound: ArrayLike, rel: float = 0.0, within: float = 0.0) -> Found:
    """Return whether a column stays at or above another in all rows of a mask."""
    return _compared(where, value, bound, lambda one, other: one >= other - _slack(other, rel, within), "at least")


def of_parts(length: int, parts: Iterable[tuple[Any, Any, Any]]) -> tuple[Bools, Floats, Floats]:
    """Return parts of a trace, (rows, their values, their bounds), as a mask of all its rows and two columns."""
    where, value, bound = np.zeros(length, bool), np.zeros(length), np.zeros(length)
    for rows, values, bounds in parts:
        where[rows], value[rows], bound[rows] = True, values, bounds
    return where, value, bound


def _compared(
    where: ArrayLike, value: ArrayLike, other: ArrayLike, holds: Callable[[Values, Values], Values], relation: str = ""
) -> Found:
    """Return whether a relation of two columns holds; computed for the rows of the mask only."""
    mask = np.asarray(where, bool)
    rows = np.flatnonzero(mask)
    one, two = (np.broadcast_to(np.asarray(column, float), mask.shape)[rows] for column in (value, other))
    found = all_of(np.ones(len(rows), bool), holds(one, two), one, two, relation)
    return found if found.row is None else found._replace(row=int(rows[found.row]))


def _slack(bound: Values, rel: float, within: float) -> Values | float:
    """Return the tolerance of a bound: an amount, and a share of its magnitude unless it is infinite."""
    return within + rel * np.where(np.isfinite(bound), np.abs(bound), 0.0) if rel else within


def _shown(values: Any, row: int) -> str:
    """Return a value of a row as text."""
    if isinstance(values, str):
        return values
    if isinstance(values, Named):
        return values.names[int(values.codes[row])]
    array: Values = np.asarray(values)
    return f"{float(array[row] if array.ndim else array[()]):.6g}"
