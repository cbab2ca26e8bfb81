"""Polls collected by column: 8 bytes per integer, where a dict per poll takes some kilobytes."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any

import numpy as np

from cctrace.columns import Values
from cctrace.io.counters import cells
from cctrace.schema import MISSING, U64_MAX

# Fields that hold a time, in ns: how many a unit has.
TIMES = {"time_ns": 1, "nsecs": 1, "time_us": 1000, "time_ms": 10**6, "time_s": 10**9}
MAX_FIELDS = 1000  # of a poll; struct tcp_info has 70. A table with as many columns as rows would be quadratic


class PollColumns:
    """A table that grows by a poll at a time; fields that a poll lacks, and None, are missing.

    >>> table = PollColumns([{"rtt": 40}, {"rtt": 41, "cc": "bbr"}])
    >>> {name: values.tolist() for name, values in table.arrays().items()}
    {'rtt': [40, 41], 'cc': [None, 'bbr']}
    """

    def __init__(self, polls: Iterable[Mapping[Any, Any]] = ()) -> None:
        self.rows = 0
        self._columns: dict[Any, array[int] | list[Any]] = {}  # a list where an array cannot hold all values
        for poll in polls:
            self.append(poll)

    def __len__(self) -> int:
        return self.rows

    def append(self, poll: Mapping[Any, Any]) -> None:
        """Add a poll."""
        for name, value in poll.items():
            column = self._columns.get(name)
            if column is None:
                column = self._new(name)
            if len(column) < self.rows:
                self._fill(column)
            if isinstance(column, list):
                column.append(value)
            elif value is None:
                column.append(MISSING)
            elif type(value) is int and MISSING < value <= cells.INT64.max:
                column.append(value)
            else:
                known = [None if number == MISSING else number for number in column]
                self._columns[name] = [*known, value]
        self.rows += 1

    def _new(self, name: Any) -> array[int]:
        if len(self._columns) == MAX_FIELDS:
            raise ValueError(f"over {MAX_FIELDS} different fields, which no source has")
        column = self._columns[name] = array("q")
        return column

    def _fill(self, column: array[int] | list[Any]) -> None:
        lacks = self.rows - len(column)
        if isinstance(column, list):
            column.extend(repeat(None, lacks))
        else:
            column.extend(repeat(MISSING, lacks))

    def replace_missing(self, values: Mapping[Any, int]) -> None:
        """Replace what is missing from columns by a value for each, which also makes columns that no poll had."""
        for name, value in values.items():
            column = self._columns.get(name)
            if column is None:
                column = self._new(name)
            self._fill(column)
            if isinstance(column, list):
                column[:] = [value if one is None else one for one in column]
            else:
                numbers = np.frombuffer(column, np.int64)
                numbers[numbers == MISSING] = value

    def __contains__(self, name: Any) -> bool:
        return name in self._columns

    def arrays(self) -> dict[Any, Values]:
        """Return the columns; see `column_of`."""
        for column in self._columns.values():
            self._fill(column)
        return {
            name: column_of(values) if isinstance(values, list) else np.frombuffer(values, np.int64).copy()
            for name, values in self._columns.items()
        }


def column_of(values: list[Any]) -> Values:
    """Return values, None where missing, as a column of int64, else uint64, else float64, else object."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, bool}:
        known = [value for value in values if value is not None]
        if max(known, default=0) > U64_MAX or min(known, default=0) <= MISSING:
            return np.array(values, object)
        if max(known, default=0) > cells.INT64.max:
            return np.array([U64_MAX if value is None or value < 0 else value for value in values], np.uint64)
        return np.array([MISSING if value is None else value for value in values], np.int64)
    if kinds <= {int, float}:
        with contextlib.suppress(OverflowError):  # an integer that no float holds
            return np.array([np.nan if value is None else float(value) for value in values])
    out = np.empty(len(values), object)  # element by element: np.array would make a table of lists
    out[:] = values
    return out
