"""A likelihood over one or two parameters of a controller: its maximum and its width.

Each point is a replay; the function has steps, plateaus and cliffs. It is therefore searched by a grid and by
halving steps, without assuming smoothness. Points lie in [0, 1] on each axis, which is linear or geometric in the
value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cctrace.cc.base import Controller
from cctrace.columns import Floats
from cctrace.display import Progress
from cctrace.errors import ArgumentError
from cctrace.fit.constants import FINEST_STEP, GEOMETRIC_RANGE, MAX_GRIDS, MAX_PEAKS, MIN_PROFILE_POINTS

Point = tuple[float, ...]  # position on each axis

FIRST_GRID = {1: 33, 2: 13}  # points on each axis
CLOSER = {1: 8, 2: 2}  # refinement factor
EDGE = {1: 0.01, 2: 0.05}  # tolerance of an interval's ends, of its length


class Axis(NamedTuple):
    """A parameter and its range; `least` is the first positive value of a geometric axis from 0, None: linear."""

    name: str
    low: float
    high: float
    is_integer: bool
    least: float | None

    @classmethod
    def of(
        cls, controller: type[Controller], called: str, name: str, between: tuple[float, float] | None = None
    ) -> Axis:
        """Return the axis of a controller's parameter, over the allowed range or `between` two values."""
        if name not in controller.params:
            raise ArgumentError(f"{called} has no parameter {name!r} (it has: {', '.join(controller.params)})")
        param = controller.params[name]
        low, high = (param.low, param.high) if between is None else between
        if not param.low <= low < high <= param.high:
            raise ArgumentError(f"{name}=({low!r}, {high!r}) is not a range within [{param.low}, {param.high}]")
        scale = min(value for value in (low, param.default) if value > 0) if low >= 0 and param.default > 0 else 0
        least = None
        if low >= 0 and scale and high / scale > GEOMETRIC_RANGE:
            least = low if low > 0 else scale / GEOMETRIC_RANGE
        return cls(name, low, high, isinstance(param.default, int), least)

    def value(self, place: float) -> float:
        """Return the value at a place in [0, 1]."""
        if self.least is None:
            value = self.low + (self.high - self.low) * place
        elif place <= 0:
            value = self.low
        else:
            value = self.least * (self.high / self.least) ** place
        return min(max(round(value), self.low), self.high) if self.is_integer else float(value)

    def place(self, value: float) -> float:
        """Return the place of a value."""
        if self.least is None:
            return (value - self.low) / (self.high - self.low)
        return float(np.log(value / self.least) / np.log(self.high / self.least)) if value > self.least else 0.0


class Surface:
    """Scores over points: `scores` of every point evaluated so far, and `best`, the likeliest of them.

    `replay`: takes {name: value}, returns the score of each interval of the flow.
    """

    def __init__(self, axes: Iterable[Axis], replay: Callable[[dict[str, float]], Floats]) -> None:
        self.axes, self.replay = list(axes), replay
        self.scores: dict[Point, Floats] = {}
        self._known: dict[tuple[float, ...], Floats] = {}  # by value, which several points may share

    def values(self, point: Point) -> tuple[float, ...]:
        """Return the values at a point."""
        return tuple(axis.value(place) for axis, place in zip(self.axes, point, strict=True))

    def at(self, point: Point) -> float:
        """Return the summed score of a point."""
        if point not in self.scores:
            values = self.values(point)
            if values not in self._known:
                self._known[values] = self.replay({a.name: v for a, v in zip(self.axes, values, strict=True)})
            self.scores[point] = self._known[values]
        return float(self.scores[point].sum())

    @property
    def best(self) -> Point:
        """The likeliest point so far, the first of equals."""
        return max(self.scores, key=self.at)

    def maximise(self, progress: Progress, explained: float) -> Point:
        """Find the maximum, refining the grid until the mean score of its best point exceeds `explained`."""
        number = FIRST_GRID[len(self.axes)]
        for _ in range(MAX_GRIDS):
            grid = np.linspace(0, 1, number).tolist()
            for k, point in enumerate(itertools.product(*[grid] * len(self.axes))):
                if k % 16 == 0:
                    progress(f"grid of {number ** len(self.axes)} values, {k} tried")
                self.at(point)
            if np.mean(self.scores[self.best]) > explained:
                break
            number = 2 * number - 1
        progress("climbing")
        step = 1 / (number - 1)
        closer = [self._closer(peak, step) for peak in self._peaks(step)]
        self._climb(max(closer, key=self.at), step / CLOSER[len(self.axes)] / 2)
        return self.best

    def _closer(self, point: Point, step: float) -> Point:
        """Return the likeliest point of a finer grid around one: peaks may be narrower than the grid."""
        times, free = CLOSER[len(self.axes)], range(len(self.axes))
        moves = itertools.product([k * step / times for k in range(1 - times, times)], repeat=len(self.axes))
        return max([self._moved(point, free, move) for move in moves], key=self.at)

    def _peaks(self, step: float) -> list[Point]:
        """Return the likeliest points no two of which are neighbours."""
        peaks: list[Point] = []
        for point in sorted(self.scores, key=self.at, reverse=True):
            if all(max(abs(a - b) for a, b in zip(point, other, strict=True)) > 1.5 * step for other in peaks):
                peaks.append(point)
            if len(peaks) == MAX_PEAKS:
                break
        return peaks

    def _climb(self, point: Point, step: float, fixed: int | None = None, finest: float = FINEST_STEP) -> Point:
        """Return the likeliest point near one, by ever smaller steps along the axes except a fixed one."""
        free = [k for k in range(len(self.axes)) if k != fixed]
        while step > finest:
            steps = [move for move in itertools.product((-step, 0, step), repeat=len(free)) if any(move)]
            near = [self._moved(point, free, move) for move in steps]
            highest = max(near, key=self.at)
            if self.at(highest) > self.at(point):
                point = highest
            else:
                step /= 2
        return point

    def _moved(self, point: Point, free: Iterable[int], move: Iterable[float]) -> Point:
        moved = list(point)
        for k, by in zip(free, move, strict=True):
            moved[k] = min(max(moved[k] + by, 0.0), 1.0)
        return tuple(moved)

    def plateau(self, k: int) -> float:
        """Return the middle of the values along axis `k` that are exactly as likely as the best."""
        most = self.at(self.best)
        equal = [self.values(point)[k] for point in self.scores if self.at(point) >= most - 1e-9]
        middle = (min(equal) + max(equal)) / 2
        return round(middle) if self.axes[k].is_integer else float(middle)

    def interval(self, k: int, accepts: Callable[[Floats, Floats], bool]) -> tuple[float | None, float | None]:
        """Return the smallest and largest accepted value along axis `k`, with the others optimised; None: no bound.

        For integers these are accepted values themselves; if only one remains, as of a switch, it is both.

        `accepts`: takes the scores of the best point and of another.
        """
        best = self.scores[self.best]

        def accepted(place: float) -> bool:
            return accepts(best, self.scores[self._profile(k, place)])

        inside = [point[k] for point in self.scores if accepts(best, self.scores[point])]
        low, high = (self._edge(k, accepted, inside, upwards) for upwards in (False, True))
        if self.axes[k].is_integer and (low == self.axes[k].high or high == self.axes[k].low):
            return (high, high) if low is None else (low, low)
        return low, high

    def _profile(self, k: int, place: float) -> Point:
        """Return the likeliest point at this position on axis `k`."""
        if len(self.axes) == 1:
            self.at((place,))
            return (place,)
        nearest = sorted(self.scores, key=lambda point: abs(point[k] - place))[:MIN_PROFILE_POINTS]
        starts = {(*point[:k], place, *point[k + 1 :]) for point in (self.best, max(nearest, key=self.at))}
        start = max(sorted(starts), key=self.at)
        return self._climb(start, 1 / 64, k, 1 / 1024)

    def _edge(self, k: int, accepted: Callable[[float], bool], inside: Sequence[float], upwards: bool) -> float | None:
        """Return the nearest value beyond which none is accepted (for integers the last accepted one), or None."""
        edge = max(inside) if upwards else min(inside)
        limit = 1.0 if upwards else 0.0
        if edge == limit or accepted(limit):
            return None
        step = max(max(inside) - min(inside), 1e-3) / 2
        outside = limit
        while abs(limit - edge) > step:
            tried = edge + step if upwards else edge - step
            if not accepted(tried):
                outside = tried
                break
            edge, step = tried, 2 * step
        while abs(outside - edge) > max(EDGE[len(self.axes)] * abs(edge - self.best[k]), FINEST_STEP / 10):
            middle = (edge + outside) / 2
            if accepted(middle):
                edge = middle
            else:
                outside = middle
        return self.axes[k].value(edge if self.axes[k].is_integer else outside)
