"""The values of one column converted to one type: integers, numbers, or text; a value that does not fit is missing.

A damaged or odd value never makes a file unreadable and never disappears silently: it becomes missing, and a
warning says how many there are and shows the first.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cctrace.display import shortened, visible

INT64 = np.iinfo(np.int64)
_LARGEST = 1 << 64  # integers; and floats within this range, which do not become infinite
_LONGEST = 40  # characters of a value in a warning


@dataclass(frozen=True)
class LeftOut:
    """Values of a column that became missing because they are not of its type."""

    count: int
    first: object

    def __str__(self) -> str:
        first = shortened(visible(repr(self.first)), _LONGEST)
        return f"{self.count} values are not 64-bit numbers ({first}); treated as missing"


def settled(values: Sequence[Any], is_number: bool = False) -> tuple[list[Any], LeftOut | None]:
    """Return values as numbers and None, or as texts and None; and what was left out, None if nothing was.

    `values`: anything that a file may hold; None is missing. `is_number`: whether the name of the column says that it
    holds numbers; otherwise it does if at least half of its values are.

    >>> settled([7, "7x", None])
    ([7, None, None], LeftOut(count=1, first='7x'))
    >>> settled(["ESTAB", ["a", 1], None])
    (['ESTAB', '["a", 1]', None], None)
    """
    known = [value for value in values if value is not None]
    odd = [value for value in known if not _is_number(value)]
    if is_number or 2 * len(odd) <= len(known):
        numbers = [value if value is not None and _is_number(value) else None for value in values]
        return numbers, LeftOut(len(odd), odd[0]) if odd else None
    return [None if value is None else as_text(value) for value in values], None


def _is_number(value: object) -> bool:
    if isinstance(value, float | np.floating):
        return math.isnan(value) or abs(float(value)) < _LARGEST
    return isinstance(value, int | np.integer) and INT64.min < int(value) < _LARGEST


def as_text(value: object) -> str:
    """Return a value as text that can be shown and stored; a list or an object as JSON."""
    if isinstance(value, str):
        return visible(value)
    return visible(json.dumps(value, default=str) if isinstance(value, list | dict) else value)
