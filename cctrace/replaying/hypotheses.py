"""What inferring anything for a replay needs: what was found, how sure to be, and where to look next."""

import math
from typing import NamedTuple

import numpy as np

from cctrace.replaying.follow import Script

FALSE_ALARM = 1e-3  # probability with which something that is right is changed, see `infer`


class Phase(NamedTuple):
    """One inference: at which row, what, its log likelihood and that of the next best.

    `choice` is what was drawn (the phase; the wait in us), or None where a running cycle was shifted by `shift` minimum
    RTTs.
    """

    row: int
    choice: int | None
    likelihood: float
    runner_up: float
    shift: float = 0.0


class Inferred(NamedTuple):
    """What was found out: how to replay it, what it was, and the share of gain cycles in step (NaN: none seen)."""

    script: Script
    phases: list
    in_step: float

    @classmethod
    def nothing(cls):
        """Return that of a replay in which nothing was hidden."""
        return cls(Script([], []), [], math.nan)


def raw_draw(choice, choices):
    """Return a 32-bit draw that prandom_u32_max(choices) maps to `choice`."""
    return ((2 * choice + 1) << 31) // choices


class Inference:
    """A follower, and what was found out on its way."""

    def __init__(self, follower):
        self.follower = follower
        self.now_us = np.asarray(follower.now_us)
        self.found, self.edits = [], []
        self.judged, self.right = 0, 0

    def after(self, span_us, row=None):
        """Return the first row later than `span_us` from a row (default: now), at least the next, at most the end."""
        row = self.follower.row if row is None else row
        end = int(np.searchsorted(self.now_us, self.now_us[row] + span_us))
        return min(max(end, row + 1), len(self.now_us))
