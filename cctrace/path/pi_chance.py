"""Likelihood of marks under PIE and DualPI2, whose marking probability is a hidden state.

The controller updates its probability from the queue delay, which RTTs reveal; its initial value and the accumulated
error of the delays are unknown. A particle filter [Gordon93] tracks many values at once: each is weighted by the marks
that it explains, and unlikely ones are resampled. The sum of the logarithms of the mean weights is the log likelihood.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cctrace.path import constants as const
from cctrace.path.arrays import Floats
from cctrace.path.marking import Marking

Controller = Callable[[Floats, Floats, float, float], Floats]


def pie_log_likelihood(marking: Marking) -> tuple[Floats, Floats]:
    """Return the log likelihood of the marks under PIE, for each of several targets (us)."""
    return _filtered(marking, _pie, power=1, spread=const.PIE_LEAST_SUM)


def dualpi2_log_likelihood(marking: Marking) -> tuple[Floats, Floats]:
    """Return the log likelihood of classic packets' marks under DualPI2, for each of several targets (us)."""
    return _filtered(marking, _pi2, power=2, spread=0.0)


def _filtered(marking: Marking, controller: Controller, power: int, spread: float) -> tuple[Floats, Floats]:
    time_s = marking.time_s
    ticks = np.arange(time_s[0], min(time_s[-1], time_s[0] + const.LONGEST_S), const.PI_TICK_S)
    waits = np.interp(ticks, time_s, marking.wait_us) / 1e6
    tick_of = np.clip(np.searchsorted(ticks, time_s, side="right") - 1, 0, len(ticks) - 1)
    packets, marked = (np.bincount(tick_of, column, len(ticks)) for column in marking.counts)
    random = np.random.default_rng(0)
    targets = np.geomspace(*const.PI_TARGETS_S, const.PI_TARGETS)[:, None]
    shape = (len(targets), const.PARTICLES)
    chance = np.broadcast_to(np.geomspace(*const.FIRST_CHANCES, shape[1]), shape) ** (1 / power)
    weight, since, score = np.full(shape, 1 / shape[1]), np.zeros(shape), np.zeros(shape[0])
    noise = np.exp(const.PI_DRIFT * random.standard_normal((len(ticks), shape[1])))
    before = waits[0]
    for i, wait in enumerate(waits):
        chance = np.clip((chance + controller(chance, targets, wait, before)) * noise[i], 0.0, 1.0)
        before = wait
        n, k = packets[i], marked[i]
        if n == 0:
            continue
        part = np.clip(chance**power, const.RAREST_MARK, 1 - const.RAREST_MARK)
        if (
            spread
        ):  # [Linux618] pie_drop_early: none for a short queue, or until the probabilities since the last mark add up
            since = since + part * n
            is_early = (since < spread) | ((wait < targets / 2) & (chance < const.PIE_SHORT))
            part = np.where(is_early, const.PIE_SOONER * part, part)
        weight = weight * (part**k * (1 - part) ** (n - k))
        if k:
            since = part * n / 2
        if k or i % const.RESAMPLED == 0:
            total = weight.sum(axis=1, keepdims=True)
            score += np.log(np.maximum(total[:, 0], 1e-300))
            chance, since, weight = _resampled(chance, since, weight / np.maximum(total, 1e-300), random)
    return score + np.log(np.maximum(weight.sum(axis=1), 1e-300)), targets[:, 0] * 1e6


def _resampled(
    chance: Floats, since: Floats, weight: Floats, random: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Return particles resampled by weight, a few of them drawn at random."""
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
    change = np.where((change > const.PIE_MOST) & (chance >= 0.1), const.PIE_MOST, change)
    return change + (const.PIE_MOST if wait > const.PIE_LONG_S else 0.0)


def _pi2(chance: Floats, targets: Floats, wait: float, before: float) -> Floats:
    """Return DualPI2's change of the probability: calculate_probability."""
    change: Floats = const.PI2_ALPHA_HZ * (wait - targets) + const.PI2_BETA_HZ * (wait - before) + 0.0 * chance
    return change
