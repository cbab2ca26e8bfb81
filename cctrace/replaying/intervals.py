"""Time intervals whose correlated sends count once."""

import numpy as np

from cctrace.columns import Ints, Values, distinct
from cctrace.flows.events import Events

BLOCK_US = 200_000


def firsts_of_intervals(times: Values, step: float) -> Ints:
    """Return the first row of each interval of `step`, from the first time on; ascending times.

    As ``np.unique(np.searchsorted(times, np.arange(times[0], times[-1], step)))``, but its cost grows with the rows
    only: a pause of years (a clock that was set) costs no more than one of a second.

    >>> firsts_of_intervals(np.array([0, 1, 5, 9, 10**18]), 4)
    array([0, 2, 3, 4])
    """
    if not len(times):
        return np.zeros(0, np.int64)
    number = distinct((times - times[0]) // step)
    number = distinct(np.sort(np.concatenate([number, number + 1, np.maximum(number - 1, 0)])))
    edges = times[0] + number * ((times[0] + step) - times[0])  # as `arange` rounds
    return distinct(np.append(0, np.searchsorted(times, edges[edges < times[-1]])))


def blocks(events: Events, block_us: int = BLOCK_US) -> tuple[Ints, Ints]:
    """Return the row that ends each interval of `block_us`, and the number of super-packets sent in it."""
    now_us = np.asarray(events.now_us)
    stops = np.append(firsts_of_intervals(now_us, block_us)[1:], len(now_us))
    sends = events.sends
    return stops, np.diff(np.searchsorted(sends["row"][sends["begins"] != 0], stops), prepend=0)


def stops_until(events: Events, row: int) -> Ints:
    """Return the rows that end intervals of `BLOCK_US`, as `blocks` does, up to a row; later ones are not read."""
    if row + 2 > len(events):
        stops, _ = blocks(events)
    else:
        now_us = (events.stream.column("time_ns", 0, row + 2) - events.meta["start_ns"]) // 1000
        stops = firsts_of_intervals(np.append(now_us, now_us[-1] + 1), BLOCK_US)[1:]
    return stops[stops <= row]
