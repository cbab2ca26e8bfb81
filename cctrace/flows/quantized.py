"""Smoothing of progress that a counter reports in large chunks.

An application that fills the socket's buffer writes whenever a third of it is free. Counted by such writes
(iperf3), the intervals of a steady flow hold zero, one or two chunks, and rates derived from them are wrong by a
factor of two. The data sent lie between the counter and one chunk less; the shortest path through that tube, the
taut string, varies its rate least.
"""

import numpy as np

from cctrace.columns import Values

NEAR = 0.05  # of a chunk: largest deviation of intervals from integers, as the last write is partial
MOST = 0.5  # of the intervals; chunks grow with the buffer, and may be split between two intervals
SEVERAL = 0.02  # of the intervals hold one chunk, and as many another number: otherwise smoothing is unnecessary


def chunk(sizes: Values) -> float:
    """Return the chunk size of which intervals are multiples, NaN if there is none.

    >>> chunk(np.array([0, 1000, 1003, 2010, 998, 1001]))
    1001.0
    >>> chunk(np.array([0, 1000, 1500, 1700, 600]))
    nan
    """
    full = sizes[sizes > 0]
    if len(full) < len(sizes) / 2:  # an application that pauses
        return np.nan
    typical = float(np.sort(full)[(len(full) - 1) // 2])
    for step in (typical, typical / 2, typical / 3):
        count = np.rint(sizes / step)
        is_multiple = np.abs(sizes - count * step) <= NEAR * step
        if is_multiple.mean() >= MOST and SEVERAL <= np.mean(count[is_multiple] == 1) <= 1 - SEVERAL:
            return step
    return np.nan


def smooth(x: Values, counted: Values) -> Values:
    """Return the smoothest progress that `counted` can be the chunk-wise count of; `counted` itself without chunks.

    `x`, shape (n,): times, ascending. `counted`, shape (n,): the counter, exact at its first and last value.
    """
    step = chunk(np.diff(counted)) if len(counted) > 2 else np.nan
    if np.isnan(step):
        return counted
    high = counted.astype(float)
    low = np.maximum(high - step, high[0])
    low[-1] = high[-1]
    bends = _taut(np.asarray(x - x[0], float), low, high)
    at, values = zip(*bends, strict=True)
    return np.rint(np.interp(x - x[0], (x - x[0])[list(at)], values)).astype(np.int64)


def _taut(x: Values, low: Values, high: Values) -> list[tuple[int, float]]:
    """Return the vertices of the shortest path through the tube from `low` to `high`, as (index, value)."""
    at, value, bends = 0, high[0], [(0, high[0])]
    last = len(x) - 1
    while at < last:
        most, least, at_most, at_least = np.inf, -np.inf, last, last
        bend = (last, high[last])
        for i in range(at + 1, last + 1):
            up, down = (high[i] - value) / (x[i] - x[at]), (low[i] - value) / (x[i] - x[at])
            if down > most:
                bend = (at_most, high[at_most])
                break
            if up < least:
                bend = (at_least, low[at_least])
                break
            if up <= most:
                most, at_most = up, i
            if down >= least:
                least, at_least = down, i
        at, value = bend
        bends.append(bend)
    return bends
