"""Steps of a bottleneck's rate: when, and from which rate to which.

Candidates are jumps of the delivered rate while a queue stands (`candidate_steps`). Each time and rate is
then moved to where it explains the delays best, and steps that explain nothing are dropped.
"""

import itertools

import numpy as np

from cctrace.columns import Floats
from cctrace.path import constants as const
from cctrace.path.bottleneck import bend, constant_rate, deviation, deviation_of
from cctrace.path.minimise import least_of
from cctrace.path.pairs import pairs_of
from cctrace.path.queue import Steps, constant
from cctrace.path.sent import SentPackets, delivered_rate


def candidate_steps(flow: SentPackets) -> Floats:
    """Return when the delivered rate changes while a queue stands, us, ascending.

    A change is where the medians of five windows before and after differ most, and by more than their scatter.
    """
    low = flow.least_rtt_us
    middle, rate, mean_rtt = delivered_rate(flow, max(const.WINDOW_US, low))
    queue = (mean_rtt > low + max(0.02 * low, 1000.0)) & (rate > 0)
    return jumps(middle[queue], np.log(rate[queue]))


def jumps(times: Floats, values: Floats, reach: int = 5, over_dips: bool = False) -> Floats:
    """Return when the level of a logarithmic series changes, ascending; see `candidate_steps`.

    `over_dips`: also between levels with a dip as long as the windows between them: of deliveries, after the path's
    rate fell, while a sender repairs its losses and waits.
    """
    if len(values) < 2 * reach + 2:
        return np.zeros(0)
    windows = np.lib.stride_tricks.sliding_window_view(values, reach)
    medians = np.median(windows, axis=1)
    wander = np.median(np.abs(windows - medians[:, None]), axis=1)
    jump, size = np.full(len(medians), -1.0), np.zeros(len(medians), np.int64)  # from each window to one `size` later
    for apart in (2 * reach, reach) if over_dips else (reach,):
        before, after = medians[:-apart], medians[apart:]
        clear = np.abs(after - before) > np.maximum(const.RATE_JUMP, 3 * np.maximum(wander[:-apart], wander[apart:]))
        if apart > reach:
            clear &= medians[reach:-reach] < np.minimum(before, after)
        rows = np.flatnonzero(clear)
        jump[rows], size[rows] = np.abs(after - before)[rows], apart
    found: list[float] = []
    while (jump > 0).any() and len(found) < const.MAX_RATE_STEPS:
        k = int(np.argmax(jump))
        # The jump lies between the adjacent windows that differ most.
        near = np.arange(max(k + reach - 2, 1), min(k + size[k] + 3, len(values)))
        at = near[np.argmax(np.abs(values[near] - values[near - 1]))]
        found.append((times[at - 1] + times[at]) / 2)
        jump[max(k - size[k] + 1, 0) : k + size[k]] = -1.0
    return np.unique(found)


def rate_steps(flow: SentPackets, best: tuple[float, float] | None = None) -> tuple[Steps, float]:
    """Return the `Steps` that explain the delays best, and their deviation. `best`: its `constant_rate`, if known."""
    rate, cost = best or constant_rate(flow)
    steps = constant(rate)
    times = candidate_steps(flow)
    trials = [_initial(flow, times)] if len(times) else []
    for trial in [*trials, *_of_pairs(flow)]:
        trial, at = _polished(flow, trial, deviation(flow, trial))
        found = len(trial.rate)
        trial, at = _pruned(flow, trial, at)
        if 1 < len(trial.rate) < found:
            trial, at = _polished(flow, trial, at, 1)
        if _both(flow, trial) < _both(flow, steps) * (1 - const.STEP_GAIN) and bend(flow, trial) < bend(flow, steps):
            return trial, at
    return steps, cost


def _of_pairs(flow: SentPackets) -> list[Steps]:
    """Return the rate steps found by packet pairs, even where no queue ever stood; empty if there are none.

    Where most spacings agree on a rate, they agree on another one after a change.
    """
    acked_us, log_rate = pairs_of(flow)
    size = max(const.MIN_PAIRS, len(log_rate) // const.MAX_PARTS)
    parts = len(log_rate) // size
    if parts < 2 * const.PARTS_REACH + 2:
        return []
    times, logs = (np.median(column[: parts * size].reshape(parts, size), axis=1) for column in (acked_us, log_rate))
    changes = jumps(times, logs, reach=const.PARTS_REACH)
    if not len(changes):
        return []
    part = np.searchsorted(changes, acked_us)
    rates = np.array([np.median(log_rate[part == k]) for k in range(len(changes) + 1)])
    agree = np.mean(np.abs(log_rate - rates[part]) < const.RATE_JUMP)
    return [Steps(np.concatenate([[0.0], changes]), np.exp(rates))] if agree >= const.PAIRS_TELL else []


def _initial(flow: SentPackets, times_us: Floats) -> Steps:
    """Return steps at the given times with the median delivered rate of each."""
    starts = np.concatenate([[0.0], np.sort(times_us)])
    middle, rate, _ = delivered_rate(flow, const.WINDOW_US)
    edges = np.append(starts, np.inf)
    rates = []
    for a, b in itertools.pairwise(edges):
        inside = rate[(middle > a + const.WINDOW_US) & (middle < b) & (rate > 0)]
        rates.append(np.median(inside) if len(inside) else np.median(rate[rate > 0]))
    return Steps(starts, np.array(rates))


def _move_rate(
    flow: SentPackets, steps: Steps, k: int, cost: float, reach: float, tolerance: float = 1e-3
) -> tuple[Steps, float]:
    low, high = steps.rate[k] * (1 - reach), steps.rate[k] * (1 + reach)
    rate, value = least_of(lambda x: deviation(flow, steps.with_rate(k, x)), low, high, 7, tolerance)
    return (steps.with_rate(k, rate), value) if value < cost else (steps, cost)


def _move_time(
    flow: SentPackets, steps: Steps, k: int, cost: float, reach_us: float = 1_200_000.0
) -> tuple[Steps, float]:
    def of(time: float) -> Steps:
        return Steps(np.where(np.arange(len(steps.rate)) == k, time, steps.start_us), steps.rate)

    low = max(steps.start_us[k] - reach_us, steps.start_us[k - 1] + 1e4)
    end = steps.start_us[k + 1] if k + 1 < len(steps.rate) else flow.sent_us[-1]
    high = min(steps.start_us[k] + reach_us, end - 1e4)
    if high <= low:
        return steps, cost
    time, value = least_of(lambda x: _both(flow, of(x)), low, high, 25, 1e-4)
    if value >= _both(flow, steps):
        return steps, cost
    return of(time), deviation(flow, of(time))


def _polished(flow: SentPackets, steps: Steps, cost: float, sweeps: int = 2) -> tuple[Steps, float]:
    for _ in range(sweeps):
        for k in range(len(steps.rate)):
            steps, cost = _move_rate(flow, steps, k, cost, 0.05, 3e-4)
            if k:
                steps, cost = _move_time(flow, steps, k, cost)
    for k in range(len(steps.rate)):
        steps = _last_rate(flow, steps, k)
    return steps, deviation(flow, steps)


def _last_rate(flow: SentPackets, steps: Steps, k: int) -> Steps:
    """Return the steps with the last rate at which delays drift least, as in `constant_rate`."""
    low, high = steps.rate[k] * 0.96, steps.rate[k] * 1.04
    rate, value = least_of(lambda x: _both(flow, steps.with_rate(k, x)), low, high, 41, 1e-5)
    return steps.with_rate(k, rate) if value < _both(flow, steps) else steps


def _both(flow: SentPackets, steps: Steps) -> float:
    """Return the deviations around the running and the overall median: a lasting queue looks like a longer path."""
    left = flow.unexplained(steps)
    return deviation_of(flow, left) + deviation_of(flow, left, all_rows=True)


def _without(flow: SentPackets, steps: Steps, k: int) -> tuple[Steps, float]:
    """Return steps without the `k`-th, and their deviation: the previous rate continues, or the next began earlier.

    If a rate drop cost so many packets that few delays show its time, a still lower rate until the queue has recovered
    explains them as well as the right time does.
    """
    fewer = Steps(np.delete(steps.start_us, k), np.delete(steps.rate, k))
    earlier = Steps(np.delete(steps.start_us, k), np.delete(steps.rate, k - 1))
    found = [_move_rate(flow, fewer, k - 1, deviation(flow, fewer), 0.2), (earlier, deviation(flow, earlier))]
    if k > 1:
        found += [_move_time(flow, trial, k - 1, cost, const.EARLIER_US) for trial, cost in found]
    return min(found, key=lambda trial: _both(flow, trial[0]))


def _pruned(flow: SentPackets, steps: Steps, cost: float) -> tuple[Steps, float]:
    """Drop steps without which the delays are explained as well."""
    k = 1
    while k < len(steps.rate):
        fewer, without = _without(flow, steps, k)
        change = abs(np.log(steps.rate[k] / steps.rate[k - 1]))
        small = change < const.SMALL_STEP
        needless = _both(flow, fewer) < _both(flow, steps) * (1 + (5 if small else 1) * const.STEP_GAIN)
        if change < const.SAME_RATE_SHARE or needless or bend(flow, fewer) <= bend(flow, steps):
            steps, cost = fewer, without
        else:
            k += 1
    return steps, cost
