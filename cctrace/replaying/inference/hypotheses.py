"""Common parts of a replay's inferences: results, significance, and what is run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from cctrace.columns import Ints
from cctrace.lang.machine import Machine
from cctrace.replaying.engine.script import Edit, Script

if TYPE_CHECKING:
    from cctrace.replaying.engine.follow import Follower
    from cctrace.replaying.inference.one_pass import Leader

# What an inference runs; the rows of a `Leader` are packets.
Subject: TypeAlias = "Follower | Leader"
LONGEST = 0xFFFFFFFF  # raw draw of the longest wait
FALSE_ALARM = 1e-3  # probability of changing something correct, see `infer`
ALIKE = 2  # decimals of log likelihoods: less is no evidence, and sums of the same terms may differ


class Phase(NamedTuple):
    """One inference: row, value and its log likelihood.

    `choice` is the drawn value (the phase; the wait in us), or None if a running cycle was shifted by `shift`
    minimum RTTs.
    """

    row: int
    choice: int | None
    likelihood: float
    shift: float = 0.0


class Inferred(NamedTuple):
    """Inferred values: how to replay them, what they are, and the share of gain cycles in step (NaN: none seen).

    `possible_hz`: tick rates of a BBR's kernel that the sends do not refute, the one replayed first; empty where it was
    given.
    """

    script: Script
    phases: list[Phase]
    in_step: float
    possible_hz: tuple[int, ...] = ()

    @classmethod
    def nothing(cls) -> Inferred:
        """Return the result for a replay without hidden values."""
        return cls(Script([], []), [], math.nan)


class State(NamedTuple):
    """Slots and stack of a replay before a row."""

    row: int
    slots: Ints
    stack: Ints


class Known(NamedTuple):
    """What an inference found before a row: how to come there, the values, how many cycles were judged, and right."""

    row: int
    script: Script
    found: list[Phase]
    judged: int = 0
    right: int = 0


def equally_likely(tried: Mapping[int, float]) -> list[int]:
    """Return the likeliest rows or choices, in order: several if the sends do not distinguish them."""
    most = round(max(tried.values()), ALIKE)
    near = most - 2 * 10**-ALIKE  # to round takes longer than to compare
    return sorted(one for one, likelihood in tried.items() if likelihood > near and round(likelihood, ALIKE) == most)


def peaks(tried: Mapping[int, float]) -> list[list[int]]:
    """Return the rows whose likelihood exceeds both neighbours', the highest first; several if they are equal."""
    alike = [list(rows) for _, rows in itertools.groupby(sorted(tried), lambda row: round(tried[row], ALIKE))]
    height = [-np.inf, *(tried[rows[0]] for rows in alike), -np.inf]
    found = [rows for k, rows in enumerate(alike, 1) if height[k - 1] < height[k] > height[k + 1]]
    return sorted(found, key=lambda rows: tried[rows[0]], reverse=True)


def likeliest(tried: Mapping[int, float]) -> int:
    """Return the likeliest row or choice; of several that the sends do not distinguish, the middle one."""
    alike = equally_likely(tried)
    return alike[len(alike) // 2]


def raw_draw(choice: int, choices: int) -> int:
    """Return a 32-bit draw that prandom_u32_max(choices) maps to `choice`."""
    return ((2 * choice + 1) << 31) // choices


class Inference:
    """A follower, and the values inferred along the way."""

    def __init__(self, follower: Subject) -> None:
        self.follower = follower
        self.now_us = np.asarray(follower.now_us)
        self.found: list[Phase] = []
        self.edits: list[Edit] = []
        self.judged, self.right = 0, 0
        # Of ticks, see `drawing`. It must not refer to this: a cycle would keep the follower and its tables.
        self.judge: Callable[[Inference], bool] | None = None
        self.dipped = 0  # row of the last draw that ends PROBE_RTT
        self.passed: list[State] = []  # on the way, as long as ticks are judged
        self._notes: list[Known] = []

    def drawing(self) -> None:
        """The next call draws: judge the ticks by what is inferred up to here, once PROBE_RTT has come."""
        if self.judge is not None:
            if self.follower.get("mode") == self.follower.cls.states.index("PROBE_RTT"):
                self.dipped = self.follower.row
            if self.dipped and self.judge(self):
                self.judge = None

    def note(self, judged: int = 0, right: int = 0) -> None:
        """Note what is known here, from where an inference with other ticks may go on."""
        self._notes.append(Known(self.follower.row, Script([], []), [], judged, right))
        if self.judge is not None:
            self.passed.append(State(*self.follower.save()[:3]))

    def before(self, row: int, script: Script) -> Known | None:
        """Return the last note before a row, with what has been inferred up to it."""
        here = next((note for note in reversed(self._notes) if note.row <= row), None)
        if here is None:
            return None
        draws, edits = ([one for one in ones if one[0] < here.row] for ones in (script.draws, script.edits))
        found = [phase for phase in self.found if phase.row < here.row]
        return here._replace(script=script._replace(draws=draws, edits=edits), found=found)

    def after(self, span_us: float, row: int | None = None) -> int:
        """Return the first row later than `span_us` from a row (default: now), at least the next, at most the end."""
        row = self.follower.row if row is None else row
        end = int(self.now_us.searchsorted(self.now_us[row] + span_us))
        return min(max(end, row + 1), len(self.now_us))

    def rounds_after(self, rounds: int, rtt_us: int, row: int) -> int:
        """Return the first row so many round trips after a row; a pause counts as one: no probe continues."""
        return _rounds_after(self.now_us, row, rtt_us, rounds * rtt_us)


def rounds_after(now_us: Ints, row: int, rtt_us: int, span_us: int) -> int:
    """Return the first row `span_us` after a row, where no time between rows counts for more than `rtt_us`."""
    passed_us, row = 0, row + 1
    while row < now_us.size:
        passed_us += min(now_us[row] - now_us[row - 1], rtt_us)
        if passed_us >= span_us:
            return row
        row += 1
    return now_us.size  # also after the last row


_rounds_after = Machine(rounds_after)
