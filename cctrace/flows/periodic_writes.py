"""Periodic writes of one size, inferred to the byte from what TCP sends of them.

A segment that is not full ends all that was written, so what was sent by then is a multiple of the writes' size. Two
such ends hardly share a large divisor by chance. Small writes rarely leave a pause: the short end of each waits for the
ACK of an earlier one (tcp_nagle_test), or for the next write.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Bools, Floats, Ints, Values

LATE = 0.05  # of the period, by which a write may be off its tick; of the writes, that may be late
MIN_ENDS = 2  # with the flow's start, a size that three ends in a row share
MOST = 100  # writes that show the period, and sizes, that are tried
NOTHING_DUE = np.zeros((0, 2), np.int64)  # as of `Writes.due`, where no writes are known


class Writes(NamedTuple):
    """Writes of `size` bytes, one every `every_ns`: one came after `sent` bytes, `tick_ns` after the first packet."""

    size: int
    every_ns: float
    tick_ns: float
    sent: int

    def due(self, sends: NDArray[np.void]) -> Ints:
        """Return when each write came by `schema.SENDS`, capture clock, and where its data end: unwrapped `snd_nxt`.

        What left a little before its tick had been written, too; nothing was before the first packet. Empty where
        writes are more than packets: hardly any packet waits for its write there, and a file could claim any number.
        """
        new = sends["retransmitted"] == 0
        time_ns, total = sends["time_ns"][new].astype(np.int64), np.cumsum(sends["payload"][new].astype(np.int64))
        if total[-1] > self.size * len(total):
            return NOTHING_DUE
        before = np.arange(-(-self.sent % self.size), total[-1], self.size)
        left_ns = time_ns[np.searchsorted(total, before, side="right")]
        due_ns = time_ns[0] + (self.tick_ns + (before - self.sent) // self.size * self.every_ns).astype(np.int64)
        due = np.column_stack([np.clip(due_ns, time_ns[0], left_ns), 1 + before + self.size])
        due[-1, 1] = sends["snd_nxt"].max()
        return due


def writes_on_clock(sends: Mapping[str, Values], mss: int) -> Writes | None:
    """Return the clock of writes of one size, even if few of them found the queue empty; None if there is none."""
    new = sends["retransmitted"] == 0
    payload = sends["payload"][new].astype(np.int64)
    partly = np.flatnonzero(payload[:-1] != mss)  # a division for each of a long flow's packets would take longer
    partly = partly[payload[partly] % mss != 0]
    if len(partly) < MIN_ENDS:
        return None
    time_ns, total = sends["time_ns"][new], np.cumsum(payload)
    time_ns = time_ns - time_ns[:1]
    ends, begins_ns = total[partly], time_ns[partly + 1]
    best: tuple[float, int, int] = (0.5, 0, 0)  # share of the ends, ticks, bytes
    found = None
    for size, end in shared_sizes(ends, mss):
        whole = (ends - end) % size == 0
        if (share := float(np.mean(whole))) < best[0]:
            continue
        for one, ticks in clocks(size, ends[whole], begins_ns[whole], time_ns, total).items():
            if (share, ticks, size) > best:
                best, found = (share, ticks, size), one
    return found and settled(found, time_ns, total)


def shared_sizes(ends: Ints, mss: int) -> Iterator[tuple[int, int]]:
    """Yield (size, an end of a write) for the commonest sizes of a segment or more that three ends in a row share.

    Writes of one size share it again and again, others by chance: a file of many ends must not have all of them tried.
    """
    apart = np.diff(ends, prepend=0)
    shared = np.gcd(apart[:-1], apart[1:])
    sizes, counts = np.unique(shared[shared >= mss], return_counts=True)
    for size in sizes[np.argsort(-counts, kind="stable")[:MOST]].tolist():
        yield size, int(ends[np.flatnonzero(shared == size)[-1]])


def clocks(size: int, ends: Ints, begins_ns: Ints, time_ns: Ints, total: Ints) -> dict[Writes, int]:
    """Return {clock: writes on it, three or more} of writes of a size, which began at some times.

    `ends`: the bytes sent before each. The start of the flow, or of its data, is a tick, too. Nothing is sent before
    it is written, and nothing that is written leaves a pause, unless a full send buffer made a write wait: at a
    constant rate, writes made when the last is done are equally far apart, too.
    """
    done = time_ns[np.searchsorted(total, ends)]
    found, turns = {}, (ends - ends[0]) // size
    turn = np.ceil((total - ends[0]) / size) - 1  # of the write whose data were sent
    places = np.unique(np.linspace(0, len(turns) - 1, MOST + 1).astype(int))
    for k, later in itertools.pairwise(places):
        every = float((begins_ns[later] - begins_ns[k]) / (turns[later] - turns[k]))
        late = LATE * every
        tick = begins_ns[k] - turns[k] * every  # at turn 0
        first = tick - ends[0] / size * every  # of the flow's first write
        ticks = int(np.sum(np.abs(begins_ns - tick - turns * every) < late)) + int(-late < first < time_ns[0] + late)
        early = time_ns < tick + turn * every - late
        overdue = float(np.mean(done > tick + turns * every + late))
        if ticks > max(2, len(turns) / 2) and not early.any() and overdue <= LATE:
            found[Writes(size, every, tick, int(ends[0]))] = ticks
    return found


def settled(writes: Writes, time_ns: Ints, total: Ints) -> Writes:
    """Return the clock to which most of what left about its ticks comes nearest.

    Through fq, and behind other data, writes leave late: sides of the hull below them may be its period.
    """
    turn, first = np.unique(np.ceil((total - writes.sent) / writes.size).astype(np.int64) - 1, return_index=True)
    left_ns = time_ns[first]
    on_tick = np.abs(left_ns - writes.tick_ns - turn * writes.every_ns) < LATE * writes.every_ns
    turn, left_ns = turn[on_tick], left_ns[on_tick]
    hull: list[tuple[int, int]] = []
    for x, y in zip(turn.tolist(), left_ns.tolist(), strict=True):
        while len(hull) > 1 and _is_above(hull[-1], hull[-2], (x, y)):
            hull.pop()
        hull.append((x, y))
    periods = [writes.every_ns, *((later[1] - one[1]) / (later[0] - one[0]) for one, later in itertools.pairwise(hull))]
    every = min(periods, key=lambda every: np.ptp(shortest_half(np.sort(left_ns - turn * every))))
    off = left_ns - turn * every
    near = np.isin(off, shortest_half(np.sort(off)))
    if np.ptp(turn[near]) > 0:
        every += float(np.polyfit(turn[near], off[near], 1)[0])
    values = np.sort(left_ns - turn * every)
    while len(values) > 2:
        values = shortest_half(values)
    return writes._replace(every_ns=every, tick_ns=float(values[0]))


def shortest_half(values: Floats) -> Floats:
    """Return the half of ascending values that lie closest together."""
    half = (len(values) + 1) // 2
    first = int(np.argmin(values[half - 1 :] - values[: len(values) - half + 1]))
    return values[first : first + half]


def _is_above(point: tuple[int, int], left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether a point is not below the line from one to its left to one to its right."""
    return (point[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (point[0] - left[0])


def found_nothing(sends: NDArray[np.void], mss: int, writes: Writes) -> Bools:
    """Return which sends (`schema.SENDS`) the kernel calls application-limited [Linux618] tcp_rate_check_app_limited.

    They left only once their write came, and less than a segment was waiting before it.
    """
    new = sends["retransmitted"] == 0
    payload = np.where(new, sends["payload"], 0).astype(np.int64)
    before = np.cumsum(payload) - payload - writes.sent
    due_ns = writes.tick_ns + np.ceil(before / writes.size) * writes.every_ns
    waited = -before % writes.size
    earlier_ns = np.append(-np.inf, sends["time_ns"][:-1] - sends["time_ns"][:1])
    return new & (sends["begins"] != 0) & (waited < np.minimum(payload, mss)) & (earlier_ns < due_ns)
