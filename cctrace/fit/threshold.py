r"""The jitter at which a controller collapses on a path, searched by closed-loop simulation.

A flow that gets less than half of the link counts as collapsed. Its share falls with the jitter's sd, and near the
threshold depends on the seed. The sd is doubled or halved until the share crosses one half, and the bracket is
narrowed. A logistic curve :math:`u(\sigma) = u_0 / (1 + (\sigma / \sigma_{1/2})^{1/w})` through all runs averages
over their noise, and gives the threshold with its standard error.

Every run has its own seed; the same path gives the same threshold.
"""

import importlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cctrace.columns import Floats
from cctrace.estimates import Z95
from cctrace.fit import constants as const
from cctrace.lang.threads import ahead
from cctrace.sim.batch import Run, batch
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.tcp.wire import PACKET_BYTES, WIRE_PER_PAYLOAD


class Threshold(NamedTuple):
    """A threshold of the jitter's sd: value and standard error of its logarithm; without a value only bounds."""

    sd_us: float | None = None
    error: float = 0.0
    spread: float = const.CLOSE_LOG_SD  # scatter of the threshold of one run, of log sd
    least_us: float | None = None
    most_us: float | None = None
    runs: int = 0
    queue_us: float = np.nan  # mean queueing delay of the run nearest below the threshold
    tried: int = 0  # runs at the path's jitter, and how many of them collapsed
    collapsed: int = 0
    trials: tuple[tuple[float, float], ...] = ()  # of each run: the sd, us, and the share of the link


_FIRST_SD = 0.3  # of the largest sd: the first one tried


class _Search:
    """Runs of one controller over `path_of(sd_us)`, with their results."""

    def __init__(
        self, path_of: Callable[[float], Path], sender: Sender, rate_bps: float, segments: int, seed: int
    ) -> None:
        self.path_of, self.sender = path_of, sender
        self.rate_bps, self.seed = rate_bps, seed
        self.duration_s = float(np.clip(segments / const.RUNS / self.per_second, const.SHORTEST_S, const.LONGEST_S))
        self.runs = int(np.clip(segments / (self.duration_s * self.per_second), const.MIN_RUNS, const.RUNS))
        self.log_sds: list[float] = []
        self.share: list[float] = []
        self.queue_us: list[float] = []

    @property
    def trials(self) -> tuple[tuple[float, float], ...]:
        """All runs so far: sd, us, and share of the link."""
        return tuple((float(np.exp(x)), float(share)) for x, share in zip(self.log_sds, self.share, strict=True))

    @property
    def per_second(self) -> float:
        """Segments of a full link."""
        return self.rate_bps / 8 / PACKET_BYTES

    def at(self, *sds_us: float) -> list[float]:
        """Return the share of the link that a flow gets at each sd, from independent runs."""
        duration, seed = f"{self.duration_s:.3f}s", self.seed + len(self.log_sds)
        runs = [Run(self.path_of(sd), (self.sender,), duration, seed + k) for k, sd in enumerate(sds_us)]
        for sd_us, outcome in zip(sds_us, batch(runs), strict=True):
            row = outcome.flows[0]
            self.log_sds.append(np.log(sd_us))
            self.share.append(row["tail_goodput_bps"] * WIRE_PER_PAYLOAD / self.rate_bps)
            self.queue_us.append(float(row["tail_queue_delay_mean_us"]))
        return self.share[len(self.share) - len(sds_us) :]

    def collapses(self, sd_us: float) -> bool:
        """Return whether a flow collapses in a run at this sd."""
        return self.at(sd_us)[0] < 0.5


def simulated_threshold(
    path_of: Callable[[float], Path],
    sender: Sender,
    rate_bps: float,
    most_us: float,
    *,
    now_us: float,
    enough_us: float | None,
    segments: int,
    seed: int,
) -> Threshold:
    """Return the `Threshold` of a sender.

    `path_of`: makes the `cctrace.Path` of a jitter's sd in us, of one rate, with a buffer that never overflows.
    `most_us`: the largest sd. `now_us`: that of the path's jitter; if it is near the threshold, half as many additional
    runs are made there, since with ordered packets and a window that grows with the jitter some seeds collapse and
    others never do. `enough_us`: if `FAR_RUNS` runs at this sd keep half of the link, the threshold is not below, and
    the search ends. `segments`: simulation budget; 11 runs of 21 s are made in any case.
    """
    search = _Search(path_of, sender, rate_bps, segments, seed)
    if enough_us is not None and min(search.at(*[enough_us] * const.FAR_RUNS)) >= 0.5:
        return Threshold(least_us=enough_us, runs=const.FAR_RUNS, queue_us=search.queue_us[0], trials=search.trials)
    search = _Search(path_of, sender, rate_bps, segments, seed)
    low, high = _bracket(search, _FIRST_SD * most_us, most_us)
    if high is None or low is None:
        bound, runs, queue_us = float(np.exp(search.log_sds[-1])), len(search.log_sds), search.queue_us[-1]
        least, most = (bound, None) if high is None else (None, bound)
        at_now = _at_now(search, now_us, bound)
        return Threshold(None, 0.0, const.CLOSE_LOG_SD, least, most, runs, queue_us, *at_now, search.trials)
    with ahead(importlib.import_module, "scipy.optimize"):  # runs leave one core to what the curve needs
        about = _narrowed(search, low, high, most_us)
    x, error, spread = _curve(search, about)
    below = [k for k in range(len(search.log_sds)) if search.share[k] >= 0.5]
    nearest = min(below, key=lambda k: abs(search.log_sds[k] - x), default=0)
    runs, queue_us = len(search.log_sds), search.queue_us[nearest]
    at_now = _at_now(search, now_us, np.exp(x))
    found = Threshold(float(np.exp(x)), error, spread, None, None, runs, queue_us, *at_now, search.trials)
    if x <= np.log(most_us):
        return found
    # Beyond the range: only the lower end of the curve is known.
    return found._replace(sd_us=None, least_us=float(min(np.exp(x - Z95 * error), most_us)))


def _narrowed(search: _Search, low: float, high: float, most_us: float) -> float:
    """Return log sd about the threshold between two others, after the runs that are left: halving, then around it."""
    while high - low > np.log(1.12) and len(search.log_sds) < search.runs - 3:
        middle = (low + high) / 2
        if search.collapses(np.exp(middle)):
            high = middle
        else:
            low = middle
    around, places = 0.06, []
    for _ in range(search.runs - len(search.log_sds)):
        places.append(np.exp(min((low + high) / 2 + around, np.log(most_us))))
        around = -1.5 * around
    search.at(*places)
    return (low + high) / 2


def _at_now(search: _Search, now_us: float, threshold_us: float) -> tuple[int, int]:
    """Return the number of runs at the path's jitter, and how many of them collapsed."""
    if now_us < const.NO_COLLAPSE * threshold_us:
        return 0, 0
    tried = search.runs // 2
    return tried, sum(share < 0.5 for share in search.at(*[now_us] * tried))


def _bracket(search: _Search, start_us: float, most_us: float) -> tuple[float | None, float | None]:
    """Return log sd below and above the threshold; None for a side that was not found."""
    x, most, least = np.log(start_us), np.log(most_us), np.log(most_us) - np.log(1e3)
    collapsed = search.collapses(np.exp(x))
    step = np.log(const.SD_STEP) * (-1 if collapsed else 1)
    while True:
        if x >= most and not collapsed:
            # Chance decides near the threshold: require a second seed to agree.
            if not search.collapses(most_us):
                return x, None
            return most - np.log(const.SD_STEP), most
        if x <= least and collapsed:
            return None, x
        before, x = x, min(max(x + step, least), most)
        now = search.collapses(np.exp(x))
        if now != collapsed:
            return min(before, x), max(before, x)


def _curve(search: _Search, about: float) -> tuple[float, float, float]:
    """Return log threshold, its standard error and a single run's, from a logistic curve through the runs."""
    from scipy import optimize  # imported late: it takes a tenth of a second

    x, share = np.array(search.log_sds), np.array(search.share)
    top = max(float(share.max()), 0.9)
    weight = 1 / np.sqrt(
        1 + ((x - about) / const.CLOSE_LOG_SD) ** 2
    )  # far from the threshold the curve is not logistic

    def off(p: Floats) -> Floats:
        middle, width = p[0], np.exp(p[1])
        curve = top / (1 + np.exp(np.clip((x - middle) / width, -50, 50)) * (2 * top - 1))
        return np.append(weight * (curve - share), 0.1 * (p[1] - np.log(0.12)))

    solution = optimize.least_squares(off, [about, np.log(0.12)], x_scale=[0.1, 1.0], loss="soft_l1", f_scale=0.3)
    middle, width = float(solution.x[0]), float(np.exp(solution.x[1]))
    near = np.abs(x - middle) < max(3 * const.CLOSE_LOG_SD, 2 * width)
    noise = np.sqrt(np.sum((off(solution.x)[:-1] / weight)[near] ** 2) / max(near.sum() - 2, 1))
    slope = (2 * top - 1) / (4 * top * width)  # of the share by log sd, at one half
    error = noise / slope / np.sqrt(max(near.sum(), 1))
    return (
        middle,
        float(np.hypot(min(error, 0.5), const.MIN_SCATTER * (const.RUNS / len(x)) ** 2)),
        float(np.clip(noise / slope, *const.SCATTER_RANGE)),
    )
