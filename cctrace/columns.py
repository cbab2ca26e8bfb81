"""Tables as numpy columns, converted to a DataFrame on request; runs of true values in a column.

pandas takes half a second to import, a quarter of the rest of a flow's analysis.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cctrace.schema import MISSING

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[Any]  # a column
Columns = dict[str, Values]


def frame_of(columns: Mapping[str, Any], nullable: Collection[str] = ()) -> pd.DataFrame:
    """Return columns as a DataFrame.

    `nullable`: columns whose values may be `MISSING` where they are int64: these become Int64, and such a value NA.

    >>> frame_of({"snd_cwnd": np.array([10, MISSING])}, nullable=["snd_cwnd"])["snd_cwnd"].tolist()
    [10, <NA>]
    """
    import pandas as pd

    made: dict[str, Any] = dict(columns)
    for name in nullable:
        values = columns[name]
        if values.dtype == np.int64:
            gap = values == MISSING
            made[name] = pd.arrays.IntegerArray(np.where(gap, 0, values), gap)
    return pd.DataFrame(made)


def runs_of_true(mask: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place where each run of true values begins, and the place behind its last one.

    >>> begins, ends = runs_of_true([True, False, True, True])
    >>> begins.tolist(), ends.tolist()
    ([0, 2], [1, 4])
    """
    edges = np.flatnonzero(np.diff(np.asarray(mask, np.int8), prepend=0, append=0))
    return edges[::2], edges[1::2]


def distinct(ascending: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct values of an ascending array, as ``np.unique``, which would sort or hash them.

    >>> distinct(np.array([4, 4, 7, 9, 9]))
    array([4, 7, 9])
    """
    return ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]


def rows_of_spans(first: ArrayLike, count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of spans, one after another: of each its first row, and how many it has.

    >>> rows_of_spans([7, 20], np.array([3, 2])).tolist(), rows_of_spans(0, np.array([3, 2])).tolist()
    ([7, 8, 9, 20, 21], [0, 1, 2, 0, 1])
    """
    return np.repeat(np.asarray(first, np.int64) - (np.cumsum(count) - count), count) + np.arange(count.sum())


def longest_run(mask: ArrayLike) -> int:
    """Return the length of the longest run of true values, 0 without one.

    >>> longest_run([True, False, True, True])
    2
    """
    begins, ends = runs_of_true(mask)
    return int((ends - begins).max(initial=0))
