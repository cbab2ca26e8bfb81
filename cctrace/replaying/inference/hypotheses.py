"""What all inferences of a replay share: their results, when one is significant, and the run along which they go."""

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

Subject: TypeAlias = "Follower | Leader"  # what an inference runs; the rows of a `Leader` are packets
LARGEST_DRAW = 0xFFFFFFFF  # raw 32-bit random number; it gives the longest wait
FALSE_ALARM = 1e-3  # probability of changing a correct value, at most; see `infer`
DECIMALS = 2  # of log likelihoods: smaller differences are no evidence, and come from summing in another order


class Phase(NamedTuple):
    """An inferred draw or shift: the row of its call, the value, and the log likelihood of the sends with it.

    `choice` is the value drawn (BBR v1: the phase; BBRv2 and v3: the wait, us), or None if a running gain cycle was
    shifted by `shift` minimum RTTs.
    """

    row: int
    choice: int | None
    likelihood: float
    shift: float = 0.0


class Inferred(NamedTuple):
    """What was inferred for a replay.

    `script`: the values, as a replay takes them. `in_step`: share of the gain cycles that needed no shift, NaN if none
    was compared. `possible_hz`: tick rates of a BBR's kernel that the sends do not refute, the one replayed first;
    empty if it was given.
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


class Progress(NamedTuple):
    """What an inference has found before a row; `compared`, `in_step`: gain cycles, and those that needed no shift."""

    row: int
    script: Script
    phases: list[Phase]
    compared: int = 0
    in_step: int = 0


def equally_likely(tried: Mapping[int, float]) -> list[int]:
    """Return the likeliest rows or choices, ascending: several if the sends do not distinguish them."""
    most = round(max(tried.values()), DECIMALS)
    near = most - 2 * 10**-DECIMALS  # comparing is faster than rounding
    return sorted(key for key, likelihood in tried.items() if likelihood > near and round(likelihood, DECIMALS) == most)


def peaks(tried: Mapping[int, float]) -> list[list[int]]:
    """Return the local maxima of the likelihood, the highest first: for each, its rows, which are equally likely."""
    runs = [list(rows) for _, rows in itertools.groupby(sorted(tried), lambda row: round(tried[row], DECIMALS))]
    height = [-np.inf, *(tried[rows[0]] for rows in runs), -np.inf]
    maxima = [rows for k, rows in enumerate(runs, 1) if height[k - 1] < height[k] > height[k + 1]]
    return sorted(maxima, key=lambda rows: tried[rows[0]], reverse=True)


def likeliest(tried: Mapping[int, float]) -> int:
    """Return the likeliest row or choice; of several that the sends do not distinguish, the middle one."""
    best = equally_likely(tried)
    return best[len(best) // 2]


def raw_draw(choice: int, choices: int) -> int:
    """Return a 32-bit draw that prandom_u32_max(choices) maps to `choice`."""
    return ((2 * choice + 1) << 31) // choices


class Inference:
    """A run of a replay along which draws and corrections are inferred."""

    def __init__(self, follower: Subject) -> None:
        self.follower = follower
        self.now_us = np.asarray(follower.now_us)
        self.phases: list[Phase] = []
        self.edits: list[Edit] = []
        self.compared, self.in_step = 0, 0  # gain cycles, and those that needed no shift
        # Tests the kernel's ticks along the way (`hz`); returns whether that is over. It must not refer to this object:
        # a cycle of references would keep the follower and its tables.
        self.tick_test: Callable[[Inference], bool] | None = None
        self.last_probe_rtt = 0  # row of the last draw that ended PROBE_RTT
        self.visited: list[State] = []  # states on the way, as long as ticks are tested
        self._saved: list[Progress] = []

    def before_draw(self) -> None:
        """Test the ticks by what is inferred so far, once a PROBE_RTT is over; the next call draws."""
        if self.tick_test is not None:
            if self.follower.get("mode") == self.follower.cls.states.index("PROBE_RTT"):
                self.last_probe_rtt = self.follower.row
            if self.last_probe_rtt and self.tick_test(self):
                self.tick_test = None

    def save_progress(self, compared: int = 0, in_step: int = 0) -> None:
        """Save where an inference with other ticks may go on; see `Progress` for the counts."""
        self._saved.append(Progress(self.follower.row, Script([], []), [], compared, in_step))
        if self.tick_test is not None:
            self.visited.append(State(*self.follower.save()[:3]))

    def progress_before(self, row: int, script: Script) -> Progress | None:
        """Return the last saved progress up to a row, with what of `script` and phases was inferred before it."""
        last = next((saved for saved in reversed(self._saved) if saved.row <= row), None)
        if last is None:
            return None
        draws, edits = ([one for one in ones if one[0] < last.row] for ones in (script.draws, script.edits))
        phases = [phase for phase in self.phases if phase.row < last.row]
        return last._replace(script=script._replace(draws=draws, edits=edits), phases=phases)

    def after(self, span_us: float, row: int | None = None) -> int:
        """Return the first row at least `span_us` after a row (default: the current one), and at least the next."""
        row = self.follower.row if row is None else row
        end = int(self.now_us.searchsorted(self.now_us[row] + span_us))
        return min(max(end, row + 1), len(self.now_us))

    def rounds_after(self, rounds: int, rtt_us: int, row: int) -> int:
        """Return the first row so many round trips after a row; a pause counts as one, as nothing is sent in it."""
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
