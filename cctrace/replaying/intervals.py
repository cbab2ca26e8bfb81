"""Intervals of time that count once each, where what is sent in them says much the same."""

import numpy as np

BLOCK_US = 200_000


def firsts_of_intervals(times, step):
    """Return the row that comes first in each interval of `step`, from the first time on; ascending times.

    As ``np.unique(np.searchsorted(times, np.arange(times[0], times[-1], step)))``, but what it takes grows with the
    rows: a pause of years (a clock that was set) is no longer than one of a second.

    Examples
    --------
    >>> firsts_of_intervals(np.array([0, 1, 5, 9, 10**18]), 4)
    array([0, 2, 3, 4])
    """
    if not len(times):
        return np.zeros(0, np.int64)
    number = (times - times[0]) // step
    number = np.unique(np.concatenate([number, number + 1, np.maximum(number - 1, 0)]))
    edges = times[0] + number * ((times[0] + step) - times[0])  # as `arange` rounds
    return np.unique(np.append(0, np.searchsorted(times, edges[edges < times[-1]])))


def blocks(events, block_us=BLOCK_US):
    """Return the row that ends each interval of `block_us`, and how many super-packets leave in it."""
    now_us = np.asarray(events.now_us)
    stops = np.append(firsts_of_intervals(now_us, block_us)[1:], len(now_us))
    sends = events.sends
    return stops, np.diff(np.searchsorted(sends["row"][sends["begins"] != 0], stops), prepend=0)
