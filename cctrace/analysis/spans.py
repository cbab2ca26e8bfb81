"""Time spans in which a state kept its name."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def spans_of(time_s: NDArray[np.float64], names: ArrayLike) -> list[tuple[float, float, str]]:
    """Return (start_s, end_s, name) of equal neighbours joined; each span lasts until the next one begins.

    >>> spans_of(np.array([0.0, 1.0, 2.0]), ["STARTUP", "STARTUP", "DRAIN"])
    [(0.0, 2.0, 'STARTUP'), (2.0, 2.0, 'DRAIN')]
    """
    name_of = np.asarray(names, dtype=object)
    if not len(name_of):
        return []
    starts = np.concatenate(([0], np.flatnonzero(name_of[1:] != name_of[:-1]) + 1))
    ends = np.append(time_s[starts[1:]], time_s[-1])
    return [(float(time_s[a]), float(b), str(name_of[a])) for a, b in zip(starts, ends, strict=True)]
