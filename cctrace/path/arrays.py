"""Helpers for arrays: last and single occurrences, order, robust deviation, events apart, medians of parts."""

import itertools

import numpy as np

from cctrace.columns import Bools, Floats, Ints


def last_of_each(values: Ints) -> Ints:
    """Return the places of the last occurrence of each value, ascending.

    >>> last_of_each(np.array([4, 4, 7, 4, 9]))
    array([2, 3, 4])
    """
    return np.sort(len(values) - 1 - np.unique(values[::-1], return_index=True)[1])


def occur_once(values: Ints) -> Bools:
    """Return which values occur once; `np.unique` with its inverse would take five columns of memory.

    >>> occur_once(np.array([4, 7, 4, 9])).tolist()
    [False, True, False, True]
    """
    ordered = np.sort(values)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    del ordered
    if not len(again):
        return np.ones(len(values), bool)
    found: Bools = again[np.searchsorted(again[:-1], values)] != values
    return found


def in_order(arrived: Ints | Floats) -> Bools:
    """Return which of the packets, given when they arrived, overtook none of those before them.

    >>> in_order(np.array([1, 4, 2, 4, 5])).tolist()
    [True, True, False, True, True]
    """
    found: Bools = arrived >= np.maximum.accumulate(arrived)
    return found


def central_sd(values: Floats) -> float:
    """Return half of what the central 68 % span: the standard deviation of normal values, whatever the tails.

    >>> round(central_sd(np.random.default_rng(1).normal(5.0, 2.0, 10_000)), 1)
    2.0
    """
    low, high = np.quantile(values, [0.16, 0.84])
    return float(high - low) / 2


def events_apart(times: Floats, least: float) -> int:
    """Return the number of events: see `first_of_events`."""
    return len(first_of_events(times, least))


def first_of_events(times: Floats, least: float) -> Ints:
    """Return where events begin: each includes all times up to `least` after its first.

    >>> first_of_events(np.array([0.0, 2.0, 5.0, 6.0, 9.0]), 5.0)
    array([0, 3])
    """
    place, found = 0, []
    while place < len(times):
        found.append(place)
        place = max(int(np.searchsorted(times, times[place] + least, "right")), place + 1)
    return np.array(found, np.int64)


class Parts:
    """The parts of an array, one after another: medians and quantiles as NumPy's of each, in a tenth of the time.

    `count`: how many values each part has, none of them 0.

    >>> Parts(np.array([5.0, 1.0, 3.0, 2.0, 8.0]), np.array([3, 2])).medians
    array([3., 5.])
    """

    def __init__(self, values: Floats, count: Ints) -> None:
        self.count, self._ordered = count, values.copy()
        edges = np.append(0, np.cumsum(count))
        self._begin = edges[:-1]
        for begin, end in itertools.pairwise(edges.tolist()):
            self._ordered[begin:end].sort()

    @property
    def least(self) -> Floats:
        """The least value of each part."""
        return self._ordered[self._begin]

    @property
    def medians(self) -> Floats:
        """The median of each part."""
        low, high = (self._ordered[self._begin + (self.count - odd) // 2] for odd in (1, 0))
        return (low + high) / 2

    def quantiles(self, share: float) -> Floats:
        """Return a quantile of each part, interpolated and rounded as by ``np.quantile``."""
        place = (self.count - 1) * share
        below = place.astype(np.int64)
        low, high = (self._ordered[self._begin + np.minimum(k, self.count - 1)] for k in (below, below + 1))
        part = place - below
        return np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))
