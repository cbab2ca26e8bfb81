"""Offset of two clocks: the value that most interval constraints allow, and its uncertainty; see `align`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cctrace.columns import Ints, Values
from cctrace.units import format_percent

SLACKS_NS = (0, 100_000, 1_000_000)  # tolerance for the difference between two records of one instant
LATE_NS = (10_000_000, 30_000_000)  # tolerance for pollers that take their time stamp before the query
ENOUGH = 0.9  # share of the polls that must fit before less slack is preferred to a better fit
FEW = 5  # polls with distinct values; fewer say nothing about a connection's identity
_NEAR = 0.99  # offsets with at least this share of the best count are equally likely
_DRIFT_PPM = 200  # more than two working clocks differ
_BLOCKS = 8
_SEEDS = 5


@dataclass(frozen=True)
class Alignment:
    """Relation of the polls' clock to the capture's."""

    offset_ns: int  # added to the times of the polls; 0 if equal clocks explain them as well as any other offset
    uncertainty_ns: int  # the true offset is within this of the estimate; -1 unknown
    estimate_ns: int  # the offset that explains most polls, at the first of them
    # drift_ppm, drift_uncertainty_ppm: how much faster the capture's clock ran, parts per million; 0 if not significant
    drift_ppm: float
    drift_uncertainty_ppm: float
    # share of the polls that the offset explains: the confidence. NaN if no counter gives the connection's progress,
    # and equal clocks are assumed.
    agreement: float
    polls: int  # polls that could be compared with the capture

    @property
    def text(self) -> str:
        """Return one line with the correction and its uncertainty."""
        if np.isnan(self.agreement):
            return "clocks assumed equal: these counters do not show how far the connection had come"
        sure = f"± {_duration(self.uncertainty_ns, self.uncertainty_ns)}, "
        sure += f"{format_percent(self.agreement)} of {self.polls} polls agree"
        drift = ""
        if self.drift_ppm:
            drift = f", drifting by {self.drift_ppm:.1f} ± {self.drift_uncertainty_ppm:.1f} ppm"
        if not self.offset_ns and not self.drift_ppm:
            return f"clocks agree ({sure})"
        return (
            f"counters moved by {_duration(self.offset_ns, self.uncertainty_ns)} to the capture's clock{drift} ({sure})"
        )


def _duration(ns: int, like_ns: int) -> str:
    """Return a duration as text, with the digits that an uncertainty of `like_ns` leaves it."""
    unit, name = (1e9, "s") if abs(ns) >= 1e10 else (1e6, "ms")
    digits = max(0, 1 - int(np.floor(np.log10(max(like_ns, 1) / unit))))
    return f"{ns / unit:.{digits}f} {name}"


def search(
    time_ns: Ints, reached: Values, start: Values, end: Values, value: Values, complete: bool
) -> Alignment | None:
    """Return the `Alignment` of polls with ACKs, or None if no poll has a value that the capture contains."""
    if len(time_ns) < 2 or not len(value):
        return None
    before = [0] if complete else _bytes_before(time_ns, reached, start, end, value)
    slacks = _slacks(start, end)
    found = [_offset(*bounds, slacks) for c in before if (bounds := _bounds(time_ns, reached, start, end, value - c))]
    if not found:
        return None
    best = max(found, key=lambda one: one.agreement)
    # Indistinguishable offsets are within the uncertainty; equal clocks are likelier than any other pair.
    lowest = min(one.estimate_ns - one.uncertainty_ns for one in found)
    highest = max(one.estimate_ns + one.uncertainty_ns for one in found)
    middle = (lowest + highest) // 2
    same = any(one.offset_ns == 0 and not one.drift_ppm for one in found)
    return replace(
        best, offset_ns=0 if same else middle, estimate_ns=middle, uncertainty_ns=-(-(highest - lowest) // 2)
    )


def _bounds(
    time_ns: Ints, reached: Values, start: Values, end: Values, value: Values
) -> tuple[Values, Values, Values] | None:
    """Return (poll time, lowest and highest offset) for the polls whose value starts and ends in the capture."""
    k = np.searchsorted(reached, value, side="right") - 1
    between = (k >= 0) & (k < len(reached) - 1)
    if not between.any():
        return None
    k = k[between]
    return start[between], time_ns[k] - end[between], time_ns[k + 1] - start[between]


def _slacks(start: Values, end: Values) -> tuple[int, ...]:
    """Return the tolerated differences of polls and capture, ascending."""
    if np.median(end - start) > 0:
        return SLACKS_NS
    whole_seconds = len(start) > 1 and not np.any(start % 1_000_000_000)
    return (*SLACKS_NS, *LATE_NS, *((1_000_000_000,) if whole_seconds else ()))


def _offset(when: Values, low: Values, high: Values, slacks: Sequence[int]) -> Alignment:
    """Return the `Alignment` that most intervals [low, high] of offsets allow."""
    span = int(when.max() - when.min())
    zone = span * _DRIFT_PPM // 2_000_000 + SLACKS_NS[2]
    middle, *_ = _overlap(low, high, zone)
    slope, error = _drift(when, low - middle, high - middle, zone, slacks)
    best = _fit(when, low, high, 0.0, 0.0, slacks)
    if slope:
        sloped = _fit(when, low, high, slope, error, slacks)
        if sloped.uncertainty_ns < best.uncertainty_ns or sloped.agreement > best.agreement + 0.01:
            return sloped
    return best


def _fit(when: Values, low: Values, high: Values, slope: float, error: float, slacks: Sequence[int]) -> Alignment:
    """Return the alignment for a given drift, with the smallest tolerance that fits."""
    bend = np.rint((when - when.min()) * slope).astype(np.int64)
    low, high = low - bend, high - bend
    for slack in slacks:
        offset, reach, count = _overlap(low, high, slack)
        if count >= ENOUGH * len(low):
            break
    agree = np.count_nonzero((low <= slack) & (high >= -slack))
    same_clock = not slope and agree >= _NEAR * count
    ppm = slope * 1e6
    return Alignment(0 if same_clock else offset, reach + slack, offset, ppm, error * 1e6, count / len(low), len(low))


def _overlap(low: Values, high: Values, slack: int) -> tuple[int, int, int]:
    """Return (offset, half-width of the maximum, count) where most intervals overlap."""
    edges = np.concatenate([low - slack, high + slack])
    change = np.concatenate([np.ones(len(low), np.int64), -np.ones(len(low), np.int64)])
    order = np.lexsort((-change, edges))  # an interval still holds at its end
    edges, held = edges[order], np.cumsum(change[order])
    top = int(held.argmax())
    good = held >= max(1, int(_NEAR * held[top]))
    first = top - int(np.argmin(good[: top + 1][::-1])) + 1 if not good[: top + 1].all() else 0
    last = top + int(np.argmin(good[top:])) if not good[top:].all() else len(edges) - 1
    begin, end = int(edges[first]), int(edges[last])
    return (begin + end) // 2, (end - begin + 1) // 2, int(held[top])


def _drift(when: Values, low: Values, high: Values, zone: int, slacks: Sequence[int]) -> tuple[float, float]:
    """Return (slope, its standard error) of a line through the offsets of blocks of polls; 0 if not significant."""
    near = np.flatnonzero((low <= zone) & (high >= -zone))
    if len(near) < 4 * _BLOCKS:
        return 0.0, 0.0
    near = near[np.argsort(when[near], kind="stable")]
    rows = []
    for block in np.array_split(near, _BLOCKS):
        for slack in (*slacks, zone):
            offset, reach, count = _overlap(low[block], high[block], slack)
            if count >= ENOUGH * len(block):
                break
        rows.append((float(when[block].mean() - when.min()), offset, reach + slack))
    x, y, reach = np.array(rows).T
    weight = 1 / np.maximum(reach, 1_000.0) ** 2
    centre = np.average(x, weights=weight)
    spread = np.sum(weight * (x - centre) ** 2)
    slope = np.sum(weight * (x - centre) * y) / spread
    residual = y - np.average(y, weights=weight) - slope * (x - centre)
    error = np.sqrt(max(1.0, np.sum(weight * residual**2) / (_BLOCKS - 2)) / spread)
    return (slope, error) if 4 * error < abs(slope) < _DRIFT_PPM / 1e6 else (0.0, 0.0)


def _bytes_before(time_ns: Ints, reached: Values, start: Values, end: Values, value: Values) -> list[int]:
    """Return the likeliest numbers of bytes acknowledged before a capture that starts in mid-flow."""
    some = slice(None, None, 1 + len(value) // 400)
    start, end, value = start[some], end[some], value[some]
    middle = (start + end) // 2
    step = max(10_000_000, int(np.ptp(middle)) // 4000)
    best = []
    for seed in _likely_shifts(time_ns, reached, middle, value, step):
        shift = seed
        for reach in (20 * step, 4 * step, step):  # around the best of the last
            candidates = _bytes_at(time_ns, reached, middle, value, shift, reach)
            counts = _counts(time_ns, reached, start, end, value, candidates)
            if not counts:
                break
            slack, count, _, shift = max(counts)
            best += [one for one in counts if one[0] == slack and one[1] >= _NEAR * count]
        if seed == 0 and best and max(best)[0] == 0:  # equal clocks leave nothing to explain
            break
    if not best:
        return []
    slack, most = max(best)[:2]
    return sorted({candidate for s, count, candidate, _ in best if s == slack and count >= _NEAR * most})


def _likely_shifts(time_ns: Ints, reached: Values, middle: Values, value: Values, step: int) -> Iterator[int]:
    """Yield rough clock offsets, likeliest first: zero, then those at which the two progress curves run in parallel.

    The more polls an offset puts within the capture, the more it explains.
    """
    if _spread(time_ns, reached, middle, value, 0) is not None:
        yield 0
    shifts = range(int(time_ns[0] - middle[-1]), int(time_ns[-1] - middle[0]), step)
    spreads = sorted(
        (s, shift) for shift in shifts if (s := _spread(time_ns, reached, middle, value, shift)) is not None
    )
    taken: list[int] = []
    for _, shift in spreads:
        if all(abs(shift - other) > 10 * step for other in taken):
            taken.append(shift)
            yield shift
        if len(taken) == _SEEDS:
            return


def _bytes_at(time_ns: Ints, reached: Values, middle: Values, value: Values, shift: int, reach: int) -> set[int]:
    """Return the byte counts before the capture that some polls allow, for a clock offset near `shift`."""
    inside = np.flatnonzero((middle + shift > time_ns[0]) & (middle + shift < time_ns[-1]))
    out: set[int] = set()
    for i in inside[[len(inside) // 4, len(inside) // 2]] if len(inside) else ():
        first, last = np.searchsorted(time_ns, [middle[i] + shift - reach, middle[i] + shift + reach])
        near = value[i] - reached[max(first - 1, 0) : last]
        out.update(near[:: 1 + len(near) // 400].tolist())
    return out


def _counts(
    time_ns: Ints, reached: Values, start: Values, end: Values, value: Values, candidates: set[int]
) -> list[tuple[int, int, int, int]]:
    """Return (minus the slack, how many polls agree, candidate, offset) for each candidate; the largest is the best."""
    out = []
    for candidate in candidates:
        bounds = _bounds(time_ns, reached, start, end, value - candidate)
        if bounds and len(bounds[0]) >= max(FEW, len(value) // 10):
            for slack in (*SLACKS_NS, *LATE_NS):
                offset, _, count = _overlap(*bounds[1:], slack)
                if count >= ENOUGH * len(bounds[0]):
                    out.append((-slack, count, candidate, offset))
                    break
    return out


def _spread(time_ns: Ints, reached: Values, middle: Values, value: Values, shift: int) -> float | None:
    """Return the scatter between polls and capture after removing the median; None without overlap."""
    at = middle + shift
    inside = (at > time_ns[0]) & (at < time_ns[-1])
    if np.count_nonzero(inside) < max(FEW, len(at) // 10):
        return None
    residuals = value[inside] - np.interp(at[inside] - time_ns[0], time_ns - time_ns[0], reached)
    return float(np.median(np.abs(residuals - np.median(residuals)))) / float(np.mean(inside)) ** 2
