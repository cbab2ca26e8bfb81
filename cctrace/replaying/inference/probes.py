"""Random waits of BBR v2, v2+ and v3 before bandwidth probes, in rounds and by the clock.

A draw only decides upon which ACK the wait ends, so the possible ACKs are tried: the few at which a round count
ends it, and those at which the clock may: in a long time span, those within a round trip of the likeliest instants,
which are half an RTT apart, so that no probe hides between two. Each is a branch of a run that never probes, and lasts
until the probe is visible (`Follower.scan`).
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cctrace.columns import Ints, Values
from cctrace.replaying.engine.follow import MOST, Follower
from cctrace.replaying.engine.script import Best, Passed
from cctrace.replaying.inference.hypotheses import (
    ALIKE,
    LONGEST,
    Inference,
    Phase,
    Subject,
    equally_likely,
    peaks,
    raw_draw,
)
from cctrace.replaying.inference.startup import stay_in_startup
from cctrace.replaying.inference.waits import LedWaits, Waits

NEVER = {"rounds_since_probe": -(1 << 20), "probe_wait_us": 1 << 40, "probe_wait_round": 1 << 20}
AT_ONCE = {"rounds_since_probe": 1 << 21}
RENEWED = "probe_rtt_min_stamp"  # when the minimum RTT was renewed whose expiry calls for PROBE_RTT
REFILL = 3  # cycle_idx in which a probe of v2, v2+ and v3 starts
PROBING = REFILL, 0  # it goes on in UP
MARGIN_US = 100_000  # beyond the longest wait
PROBE_RTTS = 5  # after the wait, until a probe is visible
LONG_LOOK = 4 * PROBE_RTTS  # under a pacing limit, at which a probe shows late
LEAST = 16  # instants that are tried first; half an RTT apart if that is more
MANY_ACKS = 128  # more are searched: for what that costs, half as many can be tried
FEW_ACKS = 32  # on each side of the likeliest that are tried, too
PEAKS, LOWER = 2, 0.5  # that are searched around: of two peaks at half-RTT resolution, the lower may be the higher one


class Renewal(NamedTuple):
    """A renewal of the minimum RTT that the replay lacks: before which row it is made, and when it was, ticks."""

    row: int
    stamp: int


class Probes(Inference):
    """The waits of BBR v2, v2+ and v3; `renewals` of the minimum RTT that are known, ascending."""

    def __init__(self, follower: Subject, renewals: Sequence[Renewal] = ()) -> None:
        super().__init__(follower)
        self.renewals = list(renewals)
        params = follower.params
        kinds = [params[n] if isinstance(n, str) else n for n in follower.cls.probe_draws]
        self.clock = kinds.index(0)
        self.base_us, self.random_us = params["bw_probe_base_us"], max(params["bw_probe_rand_us"], 1)
        values = [[LONGEST] if n == 0 else [raw_draw(k, n) for k in range(n)] for n in kinds]
        self.numbers = list(itertools.product(*values))
        self.never = {name: value for name, value in NEVER.items() if name in follower.fields}
        waits = self.numbers, self.clock, self.never
        self.waits = Waits(follower, *waits) if isinstance(follower, Follower) else LedWaits(follower, *waits)
        self.acks = np.flatnonzero(follower.is_ack)
        self.acks_us = self.now_us[self.acks]
        self.kept: list[Passed] = []  # what the search passed, see `Follower.passed`
        self.total = 0.0  # of scans from here
        self.end = 0  # of the last scan
        self.near_to = 0  # the likeliest row yet; at first the last, as the latest branches are the shortest

    def run(self) -> None:
        """Run to the end with the likeliest waits."""
        follower = self.follower
        if not follower.row:
            stay_in_startup(self)
        while follower.row < len(follower.rows):
            stop = max(self.renewals[0].row, follower.row) if self.renewals else len(follower.rows)
            if follower.row < stop and follower.run(stop) < stop:
                self.note()
                self.drawing()
                self.choose_wait()
            elif self.renewals:
                follower.set(RENEWED, self.renewals.pop(0).stamp)

    def choose_wait(self) -> None:
        """The next call draws a wait: find the ACK that ends it."""
        numbers, phase = self.chosen()
        self.follower.draw(numbers)
        self.follower.run(self.follower.row + 1)
        self.waits.skip()
        if phase is not None:
            self.found.append(phase)

    def chosen(self) -> tuple[tuple[int, ...], Phase | None]:
        """Return the numbers of the wait that the next call draws, and what was found if there is a choice."""
        follower, row = self.follower, self.follower.row
        numbers, first, last, longest = self.choices()
        cut_off = last not in numbers  # PROBE_RTT precedes the end of the longest wait
        if len(numbers) + cut_off < 2 and last <= first:
            return longest, None
        before, self.kept, self.near_to = follower.save(), [], last
        follower.draw(self.numbers[-1])
        follower.run(row + 1)
        rtt_us = max(int(follower.get("min_rtt_us")), 1)
        rows = set(numbers) | (self.search(first, last, rtt_us) if last > first else set())
        self.total = self.return_to(min(rows)) if rows else 0.0
        tried = self.scan(rows, rtt_us) if rows else {}
        while tried and last > first:  # the likeliest may be where rounds end the wait: no search has been there
            best = max(tried, key=tried.__getitem__)
            if not (near := self.near(best, max(first, follower.row), min(last, self.end - 1)) - set(tried)):
                break
            tried |= self.scan(near, rtt_us, beside=tried)
        alike = equally_likely(tried) if tried else []
        if len(alike) > 1 and follower.params.get("max_pacing_rate", 0):
            # There a probe is seen when the bandwidth filter forgets what let DOWN pace at the limit.
            longer = self.scan(alike, rtt_us, LONG_LOOK)
            best_yet, most = tried[alike[0]], max(longer.values())
            tried |= {end: best_yet + likelihood - most for end, likelihood in longer.items()}
        self.total = 0.0
        longest_us = self.base_us + self.random_us - 1
        by_rounds = [end for end in numbers if self.now_us[end] - self.now_us[row] <= longest_us]
        if cut_off:
            tried[last], numbers[last] = 0.0, longest
        follower.restore(before)
        best = self.likeliest(tried, max(int(longest_us - self.now_us[last] + self.now_us[row]), 0) if cut_off else 0)
        # Among rows that the sends do not distinguish, prefer those at which rounds end the wait.
        best = next((end for end in by_rounds if round(tried[end] - tried[best], ALIKE) == 0), best)
        chosen = numbers.get(best) or self.timed(row, best, max(numbers) if numbers else None, numbers)
        wait_us = int(self.now_us[best] - self.now_us[row])
        return chosen, Phase(row, wait_us, tried[best])

    def likeliest(self, tried: Mapping[int, float], beyond_us: int = 0) -> int:
        """Return the likeliest row; of several that the sends do not distinguish, that of the median wait.

        A clock that ends a wait at any time in equal measure leaves the end to the next ACK: to one after a gap, rather
        than to one within a clump. Where no row between two was tried, any may end it. `beyond_us`: what is left of the
        longest wait at the last row, which stands for all of that.
        """
        rows, ends = equally_likely(tried), sorted(tried)
        places = np.minimum(self.acks.searchsorted(ends), len(self.acks) - 1)
        before = np.maximum(np.minimum(np.append(places[0], places[:-1]), places - 1), 0)
        spans = self.acks_us[places] - self.acks_us[before] + 1
        spans[-1] += beyond_us
        waits = np.cumsum(spans[np.searchsorted(ends, rows)])
        return rows[int(waits.searchsorted(waits[-1] / 2, "right"))]

    def choices(self) -> tuple[dict[int, tuple[int, ...]], int, int, tuple[int, ...]]:
        """Return the rows at which round counts end the wait, {row: numbers}, and those at which the clock may.

        The last one is the draw of the longest wait.
        """
        follower = self.follower
        horizon = self.after(self.base_us + self.random_us + MARGIN_US)
        ends, watched = self.waits.ends(horizon, ("cycle_idx", REFILL))
        longest = self.numbers[int(np.argmax(ends[: len(self.numbers)]))]
        # On the shortest paths the call that draws also ends the wait; the next one is the first that `scan` tries.
        *rows, first = np.maximum(ends - 1, follower.row + 1).tolist()
        found = {row: numbers for row, numbers, is_wait in zip(rows, self.numbers, watched, strict=False) if is_wait}
        return found, first if watched[-1] else max(rows), max(rows), longest

    def scan(
        self,
        starts: Any,
        rtt_us: int,
        rounds: int = PROBE_RTTS,
        beside: Mapping[int, float] | None = None,
        lower: float = 1.0,
    ) -> dict[int, float]:
        """Return {row: log likelihood ratio} of a wait that ends at a row to one that does not end.

        All are judged by the last one's sends, over so many `rounds`: with more of a probe in view, later ones would be
        preferred. `beside`: those that were tried before, by whose sends these are judged, too. Only ratios are exact
        that reach the best one's, or its part `lower`: others may be too high.
        """
        follower = self.follower
        starts = np.unique(np.maximum(np.array(list(starts)), follower.row))
        # Include the queue left by a probe or a rate drop: nothing is visible within a round trip.
        longest_us = max(rtt_us, follower.srtt_us(starts))
        end = self.end if beside else self.rounds_after(rounds, longest_us, int(starts[-1]))
        self.end = end
        base = {} if follower.get("rounds_since_probe") < 0 else self.never
        tried: dict[int, float] = {}
        reached = max(beside.values()) if beside else -np.inf
        for some in (starts[k : k + MOST] for k in range(0, len(starts), MOST)):
            best = Best(self.near_to, reached, lower)
            likelihood = follower.scan(some, end, base, AT_ONCE, self.total, best)
            tried |= dict(zip(some.tolist(), likelihood.tolist(), strict=True))
            reached = max(reached, float(likelihood.max()))
        self.near_to = max(tried, key=tried.__getitem__)
        return tried

    def search(self, first: int, last: int, rtt_us: int) -> set[int]:
        """Return the rows of the ACKs from `first` to the one after `last`: if many, around the likeliest instants.

        Upon which ACK a probe begins decides which losses cut inflight_hi and, when cwnd limits, each later send: one
        ACK may explain all of them that its neighbours do not. So all within a round trip are tried, evenly thinned out
        if many; `chosen` adds those beside the likeliest. A kernel whose round began an ACK later waits an ACK longer.
        """
        places = self.acks.searchsorted([first, last + 1])
        rows = self.acks[places[0] : places[1] + 1]
        if len(rows) > MANY_ACKS:
            low, high = int(self.now_us[first]), int(self.now_us[last])
            step = max(min(rtt_us // 2, (high - low) // LEAST), 1)
            here = self.follower.save()
            self.total = self.return_to(first)
            coarse = self.scan(self.ack_rows(np.arange(low, high + step, step)), rtt_us, lower=LOWER)
            self.kept, found_at = [*self.kept, *self.follower.passed()], peaks(coarse)
            self.follower.restore(here)
            best = coarse[found_at[0][0]]
            # Where a wait that is half an RTT wrong lets a long flight leave wrongly, all are below 0: never probing.
            high_ones = [peak for peak in found_at[:PEAKS] if coarse[peak[0]] > min(LOWER * best, best / LOWER)]
            near = [self.around(peak, rtt_us) for peak in high_ones]
            beside = np.unique(np.concatenate([rows[:0], *near]))
            rows = beside[(beside >= rows[0]) & (beside <= rows[-1])]
            rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MANY_ACKS // 2)).astype(int)]
        return set(rows.tolist())

    def around(self, peak: Sequence[int], rtt_us: int) -> Ints:
        """Return the rows of the ACKs up to a round trip before and after equally likely ones."""
        span_us = max(rtt_us, self.follower.srtt_us(peak[-1]))
        times_us = self.now_us[peak[0]] - span_us, self.now_us[peak[-1]] + span_us + 1
        return self.acks[slice(*self.acks_us.searchsorted(times_us))]

    def near(self, row: int, first: int, last: int) -> set[int]:
        """Return the rows in [first, last] of the ACKs around a row."""
        place = int(self.acks.searchsorted(row))
        few = self.acks[max(place - FEW_ACKS, 0) : place + FEW_ACKS + 1]
        return set(few[(few >= first) & (few <= last)].tolist())

    def return_to(self, row: int) -> float:
        """Go to where the search last passed before a row, if it did; return the log likelihood until there."""
        here = self.follower.save()
        for state, total in [*reversed(self.kept), *self.waits.passed(row)]:
            if state[0] <= row:
                self.follower.restore(state)
                if self.follower.get("rounds_since_probe") < 0:  # nothing was drawn on the way
                    return total
        self.follower.restore(here)
        return 0.0

    def ack_rows(self, times_us: Values) -> list[int]:
        """Return the rows of the first ACKs at or after some times."""
        places = np.searchsorted(self.acks_us, times_us)
        return sorted(set(self.acks[np.minimum(places, len(self.acks) - 1)].tolist()))

    def timed(self, row: int, end: int, latest: int | None, numbers: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the numbers of a wait that the clock ends at row `end`: halfway from the ACK before.

        There a simulation, whose ACKs come a microsecond sooner or later, ends it with the same ACK.
        """
        before = self.now_us[self.acks[max(int(np.searchsorted(self.acks, end)) - 1, 0)]]
        wait_us = int(min((before + self.now_us[end]) // 2, self.now_us[end] - 1) - self.now_us[row])
        raw = -(-(max(wait_us - self.base_us, 0) << 32) // self.random_us)
        others = numbers[latest] if latest is not None else self.numbers[-1]
        return (*others[: self.clock], min(raw, LONGEST), *others[self.clock + 1 :])
