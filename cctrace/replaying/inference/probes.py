"""The random waits of BBR v2, v2+ and v3 before they probe for bandwidth, inferred from the sends.

bbr2_pick_probe_wait draws a wait in rounds and one by the clock; the probe begins (cycle_idx REFILL) at the ACK that
ends either. So instead of draws, the ACKs at which the wait may have ended are tried: the few at which a number of
rounds ends it, and those at which the clock may. If these are many, first some that are half an RTT apart, so that no
probe goes unnoticed between two, and then those within a round trip of the likeliest. Each ACK is a branch of a run
that never probes, and runs until the probe shows in the sends (`Follower.scan`).
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cctrace.columns import Ints, Values
from cctrace.replaying.engine.follow import MOST, Follower
from cctrace.replaying.engine.script import Best, Passed
from cctrace.replaying.inference.hypotheses import (
    DECIMALS,
    LARGEST_DRAW,
    Inference,
    Phase,
    Subject,
    equally_likely,
    peaks,
    raw_draw,
)
from cctrace.replaying.inference.startup import stay_in_startup
from cctrace.replaying.inference.waits import LedWaits, Waits

NEVER = {"rounds_since_probe": -(1 << 20), "probe_wait_us": 1 << 40, "probe_wait_round": 1 << 20}  # wait without end
AT_ONCE = {"rounds_since_probe": 1 << 21}  # end of the wait at the next ACK
RENEWED = "probe_rtt_min_stamp"  # when the minimum RTT was renewed that PROBE_RTT is to measure anew
REFILL = 3  # cycle_idx in which a probe of v2, v2+ and v3 begins
PROBING = REFILL, 0  # and UP, in which it goes on
MARGIN_US = 100_000  # beyond the longest wait
PROBE_RTTS = 5  # round trips after the wait until a probe shows in the sends
LIMITED_PROBE_RTTS = 4 * PROBE_RTTS  # the same at a pacing limit
LEAST_FIRST = 16  # ACKs that are tried first, at least; half an RTT apart if that is more
MANY_ACKS = 128  # of more, only some are tried: the search for these costs as much as trying half as many
NEAR_ACKS = 32  # on each side of the likeliest ACK that are tried, too
PEAKS, LOWER = 2, 0.5  # likeliest ACKs half an RTT apart around which others are tried; the second's ratio to the first


class Renewal(NamedTuple):
    """A renewal of the minimum RTT that the replay lacks."""

    row: int  # before which it is made
    stamp: int  # when the kernel made it, jiffies


class Probes(Inference):
    """Inference of waits along a replay of BBR v2, v2+ or v3; `renewals` of the minimum RTT are made on the way."""

    def __init__(self, follower: Subject, renewals: Sequence[Renewal] = ()) -> None:
        super().__init__(follower)
        self.renewals = list(renewals)
        params = follower.params
        kinds = [params[n] if isinstance(n, str) else n for n in follower.cls.probe_draws]
        self.clock = kinds.index(0)
        self.base_us, self.random_us = params["bw_probe_base_us"], max(params["bw_probe_rand_us"], 1)
        values = [[LARGEST_DRAW] if n == 0 else [raw_draw(k, n) for k in range(n)] for n in kinds]
        self.numbers = list(itertools.product(*values))
        self.never = {name: value for name, value in NEVER.items() if name in follower.fields}
        waits = self.numbers, self.clock, self.never
        self.waits = Waits(follower, *waits) if isinstance(follower, Follower) else LedWaits(follower, *waits)
        self.acks = np.flatnonzero(follower.is_ack)
        self.acks_us = self.now_us[self.acks]
        self.saved: list[Passed] = []  # states that the search passed, see `Follower.passed`
        self.total = 0.0  # log likelihood of the sends before this row, for scans that begin here
        self.end = 0  # row up to which the last scan ran
        self.likeliest_row = 0  # so far; at first the last possible one, whose branch is the shortest

    def run(self) -> None:
        """Run to the end with the likeliest waits."""
        follower = self.follower
        if not follower.row:
            stay_in_startup(self)
        while follower.row < len(follower.rows):
            stop = max(self.renewals[0].row, follower.row) if self.renewals else len(follower.rows)
            if follower.row < stop and follower.run(stop) < stop:
                self.save_progress()
                self.before_draw()
                self.choose_wait()
            elif self.renewals:
                follower.set(RENEWED, self.renewals.pop(0).stamp)

    def choose_wait(self) -> None:
        """Choose the draw of the next call, by the ACK that ended the wait."""
        numbers, phase = self.likeliest_wait()
        self.follower.draw(numbers)
        self.follower.run(self.follower.row + 1)
        self.waits.skip()
        if phase is not None:
            self.phases.append(phase)

    def likeliest_wait(self) -> tuple[tuple[int, ...], Phase | None]:
        """Return the random numbers of the likeliest wait, and the wait; None if only one is possible."""
        follower, row = self.follower, self.follower.row
        numbers, first, last, longest = self.choices()
        cut_off = last not in numbers  # PROBE_RTT, or the end of the flow, comes before the end of the longest wait
        if len(numbers) + cut_off < 2 and last <= first:
            return longest, None
        before, self.saved, self.likeliest_row = follower.save(), [], last
        follower.draw(self.numbers[-1])
        follower.run(row + 1)
        rtt_us = max(int(follower.get("min_rtt_us")), 1)
        rows = set(numbers) | (self.search(first, last, rtt_us) if last > first else set())
        self.total = self.return_to(min(rows)) if rows else 0.0
        tried = self.scan(rows, rtt_us) if rows else {}
        while tried and last > first:  # the likeliest may be one at which rounds end the wait, whose neighbours are new
            best = max(tried, key=tried.__getitem__)
            if not (near := self.near(best, max(first, follower.row), min(last, self.end - 1)) - set(tried)):
                break
            tried |= self.scan(near, rtt_us, beside=tried)
        alike = equally_likely(tried) if tried else []
        if len(alike) > 1 and follower.params.get("max_pacing_rate", 0):
            # At a pacing limit a probe shows only when the bandwidth filter forgets what let DOWN pace at the limit.
            longer = self.scan(alike, rtt_us, LIMITED_PROBE_RTTS)
            most, longer_most = tried[alike[0]], max(longer.values())
            tried |= {end: most + likelihood - longer_most for end, likelihood in longer.items()}
        self.total = 0.0
        longest_us = self.base_us + self.random_us - 1
        by_rounds = [end for end in numbers if self.now_us[end] - self.now_us[row] <= longest_us]
        if cut_off:
            tried[last], numbers[last] = 0.0, longest
        follower.restore(before)
        best = self.likeliest(tried, max(int(longest_us - self.now_us[last] + self.now_us[row]), 0) if cut_off else 0)
        # Among rows that the sends do not distinguish, prefer those at which rounds end the wait.
        best = next((end for end in by_rounds if round(tried[end] - tried[best], DECIMALS) == 0), best)
        chosen = numbers.get(best) or self.timed(row, best, max(numbers) if numbers else None, numbers)
        wait_us = int(self.now_us[best] - self.now_us[row])
        return chosen, Phase(row, wait_us, tried[best])

    def likeliest(self, tried: Mapping[int, float], beyond_us: int = 0) -> int:
        """Return the likeliest row; of several that the sends do not distinguish, that of the median wait.

        By the clock, all waits are equally likely, and one ends at the next ACK. So an ACK is as likely as the gap
        before it is long, or as the span since the row before that was tried. `beyond_us`: what is left of the longest
        wait at the last row, which stands for all later ones.
        """
        rows, ends = equally_likely(tried), sorted(tried)
        places = np.minimum(self.acks.searchsorted(ends), len(self.acks) - 1)
        before = np.maximum(np.minimum(np.append(places[0], places[:-1]), places - 1), 0)
        spans = self.acks_us[places] - self.acks_us[before] + 1
        spans[-1] += beyond_us
        waits = np.cumsum(spans[np.searchsorted(ends, rows)])
        return rows[int(waits.searchsorted(waits[-1] / 2, "right"))]

    def choices(self) -> tuple[dict[int, tuple[int, ...]], int, int, tuple[int, ...]]:
        """Return {row: random numbers} of those at which rounds end the wait; the first and the last row at which the
        clock may; and the numbers of the longest wait.
        """
        follower = self.follower
        horizon = self.after(self.base_us + self.random_us + MARGIN_US)
        ends, watched = self.waits.ends(horizon, ("cycle_idx", REFILL))
        longest = self.numbers[int(np.argmax(ends[: len(self.numbers)]))]
        # On the shortest paths the call that draws also ends the wait; `scan` can try no row before the next.
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

        All are run to the same row, so many `rounds` after the last of them, as they must explain the same sends.
        `beside`: ratios found before, for which that row was the same. Ratios that do not reach the part `lower` of the
        best one are upper bounds.
        """
        follower = self.follower
        starts = np.unique(np.maximum(np.array(list(starts)), follower.row))
        # Queues of a probe or a drop of the rate make a round trip longer, and within one nothing shows.
        longest_us = max(rtt_us, follower.srtt_us(starts))
        end = self.end if beside else self.rounds_after(rounds, longest_us, int(starts[-1]))
        self.end = end
        base = {} if follower.get("rounds_since_probe") < 0 else self.never
        tried: dict[int, float] = {}
        reached = max(beside.values()) if beside else -np.inf
        for some in (starts[k : k + MOST] for k in range(0, len(starts), MOST)):
            best = Best(self.likeliest_row, reached, lower)
            likelihood = follower.scan(some, end, base, AT_ONCE, self.total, best)
            tried |= dict(zip(some.tolist(), likelihood.tolist(), strict=True))
            reached = max(reached, float(likelihood.max()))
        self.likeliest_row = max(tried, key=tried.__getitem__)
        return tried

    def search(self, first: int, last: int, rtt_us: int) -> set[int]:
        """Return the rows of the ACKs from `first` to the one after `last`; of many, those around the likeliest.

        At which ACK a probe begins decides which losses cut inflight_hi and, when cwnd limits, the time of each later
        send: one ACK may explain all of them, and its neighbours none. So all ACKs within a round trip are tried,
        evenly thinned out if they are many; `likeliest_wait` adds those beside the best. The one after `last` is
        included because the kernel's round may have begun an ACK later than the replay's.
        """
        places = self.acks.searchsorted([first, last + 1])
        rows = self.acks[places[0] : places[1] + 1]
        if len(rows) > MANY_ACKS:
            first_us, last_us = int(self.now_us[first]), int(self.now_us[last])
            step_us = max(min(rtt_us // 2, (last_us - first_us) // LEAST_FIRST), 1)
            here = self.follower.save()
            self.total = self.return_to(first)
            coarse = self.scan(self.ack_rows(np.arange(first_us, last_us + step_us, step_us)), rtt_us, lower=LOWER)
            self.saved, maxima = [*self.saved, *self.follower.passed()], peaks(coarse)
            self.follower.restore(here)
            best = coarse[maxima[0][0]]
            # All may be less likely than never probing (below 0): half an RTT of error moves all sends of a flight.
            high = [peak for peak in maxima[:PEAKS] if coarse[peak[0]] > min(LOWER * best, best / LOWER)]
            beside = np.unique(np.concatenate([rows[:0], *(self.around(peak, rtt_us) for peak in high)]))
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
        rows = self.acks[max(place - NEAR_ACKS, 0) : place + NEAR_ACKS + 1]
        return set(rows[(rows >= first) & (rows <= last)].tolist())

    def return_to(self, row: int) -> float:
        """Go to the latest state up to a row that the search passed, if any; return the log likelihood until there."""
        here = self.follower.save()
        for state, total in [*reversed(self.saved), *self.waits.passed(row)]:
            if state[0] <= row:
                self.follower.restore(state)
                if self.follower.get("rounds_since_probe") < 0:  # still `NEVER`: nothing was drawn on the way
                    return total
        self.follower.restore(here)
        return 0.0

    def ack_rows(self, times_us: Values) -> list[int]:
        """Return the rows of the first ACKs at or after some times."""
        places = np.searchsorted(self.acks_us, times_us)
        return sorted(set(self.acks[np.minimum(places, len(self.acks) - 1)].tolist()))

    def timed(self, row: int, end: int, latest: int | None, numbers: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the random numbers of a wait that the clock ends at row `end`, drawn at `row`.

        The wait ends halfway between the ACK before and that one, so that in a simulation, whose ACKs come a
        microsecond sooner or later, the same ACK ends it. `latest`: the last row of `numbers`, if any.
        """
        before = self.now_us[self.acks[max(int(np.searchsorted(self.acks, end)) - 1, 0)]]
        wait_us = int(min((before + self.now_us[end]) // 2, self.now_us[end] - 1) - self.now_us[row])
        raw = -(-(max(wait_us - self.base_us, 0) << 32) // self.random_us)
        others = numbers[latest] if latest is not None else self.numbers[-1]
        return (*others[: self.clock], min(raw, LARGEST_DRAW), *others[self.clock + 1 :])
