"""A seeded search for a history on which a controller fails, and its minimisation.

Evolutionary search: histories with the smallest margins (`aims`) are mutated and combined; without improvement for
long, the search restarts. A failure is minimised by delta debugging [Zeller02]: parts are removed, shortened and
moved earlier as long as it still fails with every one of several seeds.
"""

import math
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from cctrace.display import Progress, silent
from cctrace.lang.threads import cores
from cctrace.stressing.aims import Aim
from cctrace.stressing.history import Bounds, Disturbance, History, bounded, crossed, drawn, mutated
from cctrace.stressing.trial import Setting, run

CLEAR = 0.8  # largest margin of a finding: at the edge, a real kernel's timers may turn 10 % of a link into 13 %
SEEDS = (1, 2, 3)  # with all of which a finding fails: BBR draws where in its gain cycle it begins
POPULATION = 30
PATIENCE = 600  # runs without improvement, after which the search starts afresh
FRESH, CROSSED = 0.1, 0.3  # shares of children that are drawn anew, and that have two parents
_TOURNAMENT = 3  # histories chosen at random, the best of which becomes a parent

Scored = tuple[float, tuple[int, float, float], int, History]  # margin, size, number, history: the first is the best


@dataclass(frozen=True)
class Problem:
    """The search problem: sender, path, failure and bounds."""

    setting: Setting
    aim: Aim
    bounds: Bounds

    def margin(self, history: History, seeds: tuple[int, ...] = SEEDS) -> float:
        """Return the largest margin of several seeds; only the first is tried where that does not fail."""
        worst = -math.inf
        for seed in seeds:
            course = run(self.setting, history, seed, modes=self.aim.kind == "state")
            worst = max(worst, self.aim.margin(course, history.end_s))
            if worst >= CLEAR:
                break
        return worst


def search(
    problem: Problem, seed: int, most: int, seconds: float = math.inf, progress: Progress = silent
) -> tuple[float, History, int]:
    """Search until a history fails clearly, `most` histories were tried, or `seconds` have passed.

    Returns the smallest margin found, the history that has it, and how many histories were tried.
    """
    rng, began = random.Random(seed), time.monotonic()
    empty = History()
    best: tuple[float, History] = (problem.margin(empty), empty)
    living: list[Scored] = []
    tried, improved, here = 1, 1, math.inf
    with ThreadPoolExecutor(cores()) as pool:
        while best[0] >= CLEAR and tried < most and time.monotonic() - began < seconds:
            children = _children(rng, problem.bounds, living)[: most - tried]
            for history, margin in zip(children, pool.map(problem.margin, children), strict=True):
                tried += 1
                living.append((margin, history.size, tried, history))
            living = sorted(living)[:POPULATION]
            if living[0][0] < here:
                here, improved = living[0][0], tried
                best = min(best, (here, living[0][3]), key=lambda scored: scored[0])
            elif tried - improved > PATIENCE:
                living, here, improved = [], math.inf, tried
            progress(f"{tried} histories tried, smallest margin {best[0]:.3g} ({CLEAR:g} is a failure)")
    return *best, tried


def _children(rng: random.Random, bounds: Bounds, living: list[Scored]) -> list[History]:
    """Return the histories to try next."""
    if not living:
        return [drawn(rng, bounds) for _ in range(2 * POPULATION)]

    def parent() -> History:
        return min(rng.sample(living, min(_TOURNAMENT, len(living))))[3]

    children = []
    for _ in range(POPULATION):
        chance = rng.random()
        if chance < FRESH:
            children.append(drawn(rng, bounds))
        elif chance < CROSSED:
            children.append(crossed(rng, bounds, parent(), parent()))
        else:
            children.append(mutated(rng, bounds, parent()))
    return children


def minimised(problem: Problem, history: History, progress: Progress = silent) -> History:
    """Return the smallest history that still fails and is reached by leaving out and shortening."""
    tried, better = 0, True
    while better:
        better = False
        for smaller in _smaller(history, problem.bounds):
            if smaller.size >= history.size:
                continue
            tried += 1
            if problem.margin(smaller) < CLEAR:
                history, better = smaller, True
                progress(f"reducing what was found: {history.size[0]} parts, {tried} runs")
                break
    return history


def _smaller(history: History, bounds: Bounds) -> Iterator[History]:
    """Yield smaller histories, those that save most first."""
    parts = history.disturbances
    if history.app is not None:
        yield replace(history, app=None)
    if history.hold_s:
        yield replace(history, hold_s=0.0)
    for k in range(len(parts)):
        yield replace(history, disturbances=parts[:k] + parts[k + 1 :])
    for change in _CHANGES:
        for k, part in enumerate(parts):
            changed = bounded(change(part), bounds)
            yield replace(history, disturbances=(*parts[:k], changed, *parts[k + 1 :]))
    for earlier_s in (2.0, 1.0, 0.5, 0.1):
        if parts and parts[0].at_s >= earlier_s:
            moved = (part._replace(at_s=round(part.at_s - earlier_s, 6)) for part in parts)
            yield replace(history, disturbances=tuple(moved))


_CHANGES: tuple[Callable[[Disturbance], Disturbance], ...] = (
    lambda part: part._replace(times=max(1, part.times // 2)),
    lambda part: part._replace(times=max(1, part.times - 1)),
    lambda part: part._replace(at_s=part.at_s + part.every_s, times=max(1, part.times - 1)),
    lambda part: part._replace(for_s=part.for_s / 2),
    lambda part: part._replace(for_s=part.for_s * 0.8),
    lambda part: part._replace(every_s=part.every_s * 0.8),
)
