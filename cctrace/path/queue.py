"""A queue served at a piecewise constant rate: when packets leave it, and how much waits in it.

A packet leaves at max(its arrival, the departure before) + its size / rate (Lindley's recursion). In bytes that a busy
server has sent, arrivals and departures are cumulative sums and maxima.

Times are microseconds since the flow's first packet; rates are bytes per microsecond on the wire.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cctrace.columns import Floats


class Steps(NamedTuple):
    """A piecewise constant rate: rate[k] bytes/us from start_us[k] on; start_us[0] is 0.

    The first rate holds before 0 as well, when flows that share the bottleneck may have begun.
    """

    start_us: np.ndarray
    rate: np.ndarray

    def served(self, time_us: Floats) -> Floats:
        """Return the bytes that a busy server has sent since time 0; negative before."""
        if len(self.rate) == 1:
            return time_us * self.rate[0]
        outside = self.rate[-1] * np.maximum(time_us - self.start_us[-1], 0) + self.rate[0] * np.minimum(time_us, 0)
        return np.interp(time_us, self.start_us, self.served_at_starts) + outside

    def when(self, served_bytes: Floats) -> Floats:
        """Return when a busy server has sent so many bytes: the inverse of `served`."""
        if len(self.rate) == 1:
            return served_bytes / self.rate[0]
        at_starts = self.served_at_starts
        inside = np.interp(served_bytes, at_starts, self.start_us)
        after = np.maximum(served_bytes - at_starts[-1], 0) / self.rate[-1]
        return inside + after + np.minimum(served_bytes, 0) / self.rate[0]

    def with_rate(self, k: int, rate: float) -> Steps:
        """Return them with another `k`-th rate, bytes/us."""
        return self._replace(rate=np.where(np.arange(len(self.rate)) == k, rate, self.rate))

    @property
    def served_at_starts(self) -> Floats:
        """The bytes that a busy server has sent when each rate begins."""
        return np.concatenate([[0.0], np.cumsum(np.diff(self.start_us) * self.rate[:-1])])


def constant(rate: float) -> Steps:
    """Return the `Steps` of a constant rate."""
    return Steps(np.zeros(1), np.array([float(rate)]))


def departures(sent_us: Floats, wire_bytes: Floats, steps: Steps, bucket_bytes: float = 0.0) -> Floats:
    """Return when each packet leaves a queue served at `steps`.

    `sent_us`, `wire_bytes`: arrivals, ascending. `bucket_bytes`: size of a token bucket at that rate, which passes
    bursts after a pause.
    """
    clock, behind = work_done(sent_us, wire_bytes, steps)
    return left_at(sent_us, clock, behind, steps, bucket_bytes)


def work_done(sent_us: Floats, wire_bytes: Floats, steps: Steps) -> tuple[Floats, Floats]:
    """Return the bytes that a busy server has sent when each packet arrives, and when it has left."""
    clock = steps.served(sent_us)
    total = np.cumsum(wire_bytes)
    idle = total - wire_bytes
    np.subtract(clock, idle, out=idle)  # in place, as of a million packets each column has 8 MB
    total += np.maximum.accumulate(idle)
    return clock, total


def left_at(sent_us: Floats, clock: Floats, behind: Floats, steps: Steps, bucket_bytes: float) -> Floats:
    """Return `departures` from the results of `work_done`."""
    if bucket_bytes:
        return np.where(behind - bucket_bytes > clock, steps.when(behind - bucket_bytes), sent_us)
    return steps.when(behind)


def backlog(sent_us: Floats, wire_bytes: Floats, steps: Steps) -> Floats:
    """Return the bytes in the queue just after each arrival, itself included."""
    clock, behind = work_done(sent_us, wire_bytes, steps)
    behind -= clock
    return behind
