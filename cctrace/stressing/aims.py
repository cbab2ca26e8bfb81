"""Definitions of failure, and a run's margin to it.

A margin below 1 is a failure; a search makes it smaller. Rates are relative to what the path offered at the same
time: capacity removed by a disturbance does not count against the controller.
"""

import math
from dataclasses import dataclass

import numpy as np

from cctrace.columns import longest_run
from cctrace.stressing.trial import Course
from cctrace.units import format_share, format_time


@dataclass(frozen=True)
class Aim:
    """A kind of failure.

    Attributes
    ----------
    kind : {"floor", "stall", "delay", "starve", "state"}
    floor : float
        For floor and stall a share of what the path offered, for starve of the competitor's half of that.
    window_s : float
        How long the failure has to last.
    stall_s : float
        For stall: how long after the last disturbance no window reaches the floor.
    delay_s : float
        For delay: a mean RTT above this is too long.
    state : str
        For state: the one that the controller should leave.

    Examples
    --------
    >>> Aim("delay", delay_s=0.5).kind
    'delay'
    """

    kind: str = "floor"
    floor: float = 0.1
    window_s: float = 0.8
    stall_s: float = 10.0
    delay_s: float = math.inf
    state: str = ""

    @property
    def text(self) -> str:
        """What a failing controller does."""
        long = format_time(self.window_s * 1e9)
        return {
            "floor": f"gets less than {format_share(self.floor)} of what the path offers for {long}",
            "stall": f"still gets less than {format_share(self.floor)} of the path {format_time(self.stall_s * 1e9)} "
            "after the last disturbance",
            "delay": f"has a mean RTT of more than {format_time(self.delay_s * 1e9)} for {long}",
            "starve": f"leaves its competitor less than {format_share(self.floor)} of half the path for {long}",
            "state": f"stays in {self.state} for {long}",
        }[self.kind]

    def margin(self, course: Course, end_s: float) -> float:
        """Return how far a run is from failing; below 1 it fails. The history ends at `end_s`."""
        step_s = float(course.time_s[1] - course.time_s[0])
        width = max(1, round(self.window_s / step_s))
        if self.kind == "delay":
            windows = np.lib.stride_tricks.sliding_window_view(course.rtt_s, min(width, len(course.rtt_s)))
            worst = windows[~np.isnan(windows).any(axis=1)].mean(axis=1).max(initial=0.0)
            return self.delay_s / worst if worst > 0 else math.inf
        if self.kind == "state":
            longest = longest_run([mode.partition(" ")[0] == self.state for mode in course.modes]) * step_s
            return self.window_s / longest if longest > 0 else math.inf
        counters = (course.delivered[-1 if self.kind == "starve" else 0], course.offered)
        got, offered = (counter[width:] - counter[:-width] for counter in counters)
        shares = np.divide(got, offered, out=np.full(len(got), np.inf), where=offered > 0.5 * np.median(offered))
        if self.kind == "stall":
            tail = shares[course.time_s[: len(shares)] >= end_s]
            recovered = np.flatnonzero(tail >= self.floor)
            took_s = (recovered[0] if len(recovered) else len(tail) + width) * step_s
            return self.stall_s / took_s if took_s > 0 else math.inf
        return float(shares.min(initial=math.inf)) / self.floor * (2 if self.kind == "starve" else 1)
