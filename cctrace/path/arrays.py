"""Names of numpy's arrays for annotations, and a helper."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def last_of_each(values: Ints) -> Ints:
    """Return the places of the last occurrence of each value, ascending.

    >>> last_of_each(np.array([4, 4, 7, 4, 9]))
    array([2, 3, 4])
    """
    return np.sort(len(values) - 1 - np.unique(values[::-1], return_index=True)[1])


def renumbered(ascending: Ints) -> Ints:
    """Number the distinct values of an ascending array from 0, without gaps.

    >>> renumbered(np.array([4, 4, 7, 9, 9]))
    array([0, 0, 1, 2, 2])
    """
    return np.cumsum(np.diff(ascending, prepend=ascending[:1]) != 0)
