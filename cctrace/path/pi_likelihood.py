"""Likelihood of marks under PIE and DualPI2, whose marking probability is a hidden state.

The controller updates its probability from the queue delay, which RTTs reveal; its initial value and the accumulated
error of the delays are unknown. For each of several targets a particle filter [Gordon93] tracks many values at once:
each is weighted by the marks that it explains, and unlikely ones are resampled. The sum of the logarithms of the mean
weights is the log likelihood.
"""

from collections.abc import Callable

import numpy as np

from cctrace.columns import Floats, Ints
from cctrace.path import constants as const
from cctrace.path.marking import Marking

Controller = Callable[[Floats, Floats, float, float], Floats]


def pie_log_likelihood(marking: Marking) -> tuple[Floats, Floats]:
    """Return the log likelihood of the marks under PIE, for each of several targets (us)."""
    return _filtered(marking, _pie, power=1, is_spread=True)


def dualpi2_log_likelihood(marking: Marking) -> tuple[Floats, Floats]:
    """Return the log likelihood of classic packets' marks under DualPI2, for each of several targets (us)."""
    return _filtered(marking, _pi2, power=2, is_spread=False)


def _filtered(marking: Marking, controller: Controller, power: int, is_spread: bool) -> tuple[Floats, Floats]:
    ticks = np.arange(marking.time_s[0], marking.time_s[-1] + const.PI_TICK_S, const.PI_TICK_S)
    left = np.clip(np.searchsorted(marking.time_s, ticks, side="right") - 1, 0, None)
    waits = marking.wait_us[left] / 1e6
    runs = marking.joined(_tick(marking, ticks))
    marked, tick = runs.counts[1], _tick(runs, ticks)
    random = np.random.default_rng(0)
    targets = np.geomspace(*const.PI_TARGETS_S, const.PI_TARGETS)[:, None]
    shape = (const.PI_TARGETS, const.PARTICLES)
    chance = np.zeros(shape)  # of half of them, which begin with the queue
    chance[:, shape[1] // 2 :] = np.geomspace(*const.FIRST_CHANCES, shape[1] - shape[1] // 2) ** (1 / power)
    weight, since, score = np.full(shape, 1 / shape[1]), np.zeros(shape), np.zeros(shape[0])
    first = np.searchsorted(tick, np.arange(len(ticks) + 1))
    before = waits[0]
    for i, wait in enumerate(waits):
        noise = np.exp(const.PI_DRIFT * random.standard_normal(shape))
        chance = np.clip((chance + controller(chance, targets, wait, before)) * noise, 0.0, 1.0)
        before = wait
        part = np.clip(chance**power, const.RAREST_MARK, 1 - const.RAREST_MARK)
        is_open = (wait >= targets / 2) | (chance >= const.PIE_SHORT) if is_spread else np.ones(shape, bool)
        is_marking = is_open & (chance <= const.PIE_MAX_MARKED) if is_spread else is_open
        hits = 0.0
        for run in range(first[i], first[i + 1]):
            n, k = runs.packets[run], marked[run]
            may = is_marking * n
            if is_spread:
                after = since + np.where(is_open, part * n, 0.0)
                may = np.clip(np.where(is_marking, (after - const.PIE_MIN_SUM) / part, 0.0), 0.0, n)
                since = after
            if not runs.is_known[run]:
                hit = random.random(shape) < 1 - (1 - part) ** may
                since = np.where(hit, part * n * random.random(shape), since)
                continue
            weight = weight * _run_chance(part, may, n, k)
            since, hits = (np.zeros(shape), hits + k) if k else (since, hits)
        if hits or i % const.RESAMPLING_UPDATES == 0:
            total = weight.sum(axis=1, keepdims=True)
            score += np.log(np.maximum(total[:, 0], 1e-300))
            chance, since, weight = _resampled(chance, since, weight / np.maximum(total, 1e-300), random)
    return score + np.log(np.maximum(weight.sum(axis=1), 1e-300)), targets[:, 0] * 1e6


def _tick(marking: Marking, ticks: Floats) -> Ints:
    """Return the last update before each packet arrived at the queue, one queueing delay before it left."""
    tick = np.searchsorted(ticks, marking.time_s - marking.wait_us / 1e6, side="right") - 1
    return np.maximum.accumulate(np.maximum(tick, 0))


def _run_chance(part: Floats, may: Floats, packets: float, marked: float) -> Floats:
    """Return the probability of the marks in a run of packets, of which the last `may` can be marked."""
    rare = const.PIE_SOONER * part
    unmarked = np.maximum(may - marked, 0.0)
    chance: Floats = (1 - part) ** unmarked * (1 - rare) ** (packets - marked - unmarked)
    return chance * np.where(may > 0, part, rare) ** marked if marked else chance


def _resampled(
    chance: Floats, since: Floats, weight: Floats, random: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Return particles drawn in proportion to their weights."""
    rows, many = weight.shape
    steps = (np.arange(many) + random.random()) / many
    total = np.cumsum(weight, axis=1)
    total /= np.maximum(total[:, -1:], 1e-300)
    picked = np.minimum((total[:, None, :] < steps[None, :, None]).sum(axis=2), many - 1)
    row = np.arange(rows)[:, None]
    return chance[row, picked], since[row, picked], np.full((rows, many), 1 / many)


def _pie(chance: Floats, targets: Floats, wait: float, before: float) -> Floats:
    """Return PIE's change of the probability: pie_calculate_probability."""
    scale = np.where(chance < 0.1, 0.5, 1.0) * 0.25 ** (chance[..., None] < const.PIE_SCALES).sum(axis=-1)
    change: Floats = scale * (const.PIE_ALPHA_HZ * (wait - targets) + const.PIE_BETA_HZ * (wait - before))
    change = np.where((change > const.PIE_MAX) & (chance >= 0.1), const.PIE_MAX, change)
    return change + (const.PIE_MAX if wait > const.PIE_LONG_S else 0.0)


def _pi2(chance: Floats, targets: Floats, wait: float, before: float) -> Floats:
    """Return DualPI2's change of the probability: calculate_probability."""
    change: Floats = const.PI2_ALPHA_HZ * (wait - targets) + const.PI2_BETA_HZ * (wait - before) + 0.0 * chance
    return change
