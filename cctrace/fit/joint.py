r"""Joint fit of rate and jitter, for independent per-packet jitter on an order-preserving path.

A packet that waits for its predecessor looks queued, so the rate of least deviation is too low where the queue is
short and jitter is large. The likelihood of `families` includes that wait; with delays :math:`t_k - d_i(C)` it is a
likelihood of the rate C, too. Errors come from the block sandwich. Where the delays barely determine the rate, its
profile likelihood (over the jitter's parameters) gives the interval: values within 1.92 of the maximum, widened by
the sandwich.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from cctrace.columns import Bools, Floats, Ints
from cctrace.fit import constants as const
from cctrace.fit.censored import Censored
from cctrace.fit.families import FAMILIES, Family
from cctrace.fit.jitter import Jitter
from cctrace.fit.nelder_mead import nelder_mead
from cctrace.path.blocks import block_sizes, blocked
from cctrace.path.constants import PROFILE_DROP
from cctrace.path.delays import Delays
from cctrace.path.queue import Steps
from cctrace.path.sent import SentPackets
from cctrace.special import special


class Joint(NamedTuple):
    """Result of the joint fit."""

    steps: Steps  # at the maximum
    covariance: np.ndarray  # of the log rates, the mean delay (us), the log sd, and the log mean above the minimum
    # mean_us, sd_us, above_minimum_us: at the maximum
    mean_us: float
    sd_us: float
    above_minimum_us: float
    # 95 % interval of the rate if asymmetric; an end is None if the rate is unbounded on that side
    bounds: tuple[float | None, float | None] | None
    family: str  # distribution of the jitter


def joint(flow: SentPackets, delays: Delays, jitter: Jitter, quick: bool, bucket_bytes: float = 0.0) -> Joint | None:
    """Return the `Joint` fit of rates and jitter, started at those given; None if it does not improve on them.

    `jitter`: fitted to the delays. `quick`: use fewer ACKs and only the family of `jitter`. `bucket_bytes`: of a token
    bucket that serves the queue.
    """
    if len(delays.steps.rate) > const.MAX_JOINT_STEPS or jitter.distribution_ not in FAMILIES:
        return None
    groups = const.MAX_GROUPS // const.QUICK_DIVISOR if quick else const.MAX_GROUPS
    model = _Model(flow, delays, jitter, groups, bucket_bytes)
    theta = np.concatenate([jitter._best.p, np.log(delays.steps.rate)])
    theta, least = model.maximised(theta)
    if not np.isfinite(least):
        return None
    errors = model.errors(theta)
    if not quick and errors is not None and model.k == 1 and errors[0][-1, -1] > const.KNOWN_RATE**2:
        model, theta = _likeliest_family(model, theta, least, jitter)
        errors = model.errors(theta)
    if errors is None:
        return None
    covariance, by_curvature = errors
    bounds = None
    if model.k == 1 and not covariance[-1, -1] < const.RATE_CHANGE**2:
        theta, bounds = _profile_interval(model, theta, covariance[-1, -1] / by_curvature[-1, -1])
        errors = model.errors(theta)
        if errors is None:
            return None
        covariance = errors[0]
    gradient = model.gradient(theta)
    moved = np.zeros((model.k + 3, len(theta)))
    moved[: model.k, len(theta) - model.k :] = np.eye(model.k)
    moved[model.k :, : gradient.shape[1]] = gradient
    mean, log_sd, log_above_minimum = model.moments(theta)
    steps, spread = Steps(delays.steps.start_us, np.exp(theta[-model.k :])), moved @ covariance @ moved.T
    if not np.all(np.isfinite(spread)):  # moments that do not exist for the parameters next to the likeliest ones
        return None
    return Joint(steps, spread, mean, np.exp(log_sd), np.exp(log_above_minimum), bounds, model.family.name)


def _likeliest_family(model: _Model, theta: Floats, least: float, jitter: Jitter) -> tuple[_Model, Floats]:
    """Return model and maximum of the likeliest family with a free rate: at a wrong rate, another may be likelier."""
    best = (model, theta, 2 * (len(theta) - least))
    near = [name for name, aic in jitter.aic_.items() if aic < const.RIVAL_AIC and name in FAMILIES]
    rivals = [name for name in near if name != jitter.distribution_]
    for name in rivals[: const.MAX_RIVALS]:
        rival = model.with_family(FAMILIES[name])
        p = rival.data(theta).fit(rival.family, stalls=bool(jitter.stalls_ > 1e-6)).p
        at_maximum, value = rival.maximised(np.append(p, theta[-1]))
        aic = 2 * (len(at_maximum) - value)
        if np.isfinite(value) and aic < best[2] - max(const.AIC_TIE, const.AIC_TIE_SHARE * abs(best[2])):
            best = (rival, at_maximum, aic)
    return best[:2]


class _Model:
    """Likelihood of `theta`: the family's parameters, the log-odds of stalls, and the logs of the `k` rates."""

    def __init__(self, flow: SentPackets, delays: Delays, jitter: Jitter, groups: int, bucket_bytes: float) -> None:
        self.flow, self.family, self.bucket_bytes = flow, FAMILIES[jitter.distribution_], bucket_bytes
        kept = _spread_blocks(len(delays.event), groups)
        of_kept = kept[delays.group]
        self.rows, self.event = delays.rows[of_kept], delays.event[kept]
        self.acked_us = (flow.acked_us[delays.rows] + delays.slack_us[delays.group])[of_kept]
        self.group = np.unique(delays.group[of_kept], return_inverse=True)[1].reshape(-1)
        self.start_us, self.k = delays.steps.start_us, len(delays.steps.rate)
        self.sd = jitter.sd_us_.number
        self.rate_steps = self._rate_steps(delays.steps)
        self._data: dict[bytes, Censored] = {}  # by the log rates, at which differentiation evaluates repeatedly

    def with_family(self, family: Family) -> _Model:
        """Return the model with another family."""
        other = copy.copy(self)
        other.family = family
        return other

    @property
    def parameter_steps(self) -> Floats:
        """Step of each element of `theta` for numerical derivatives."""
        count = len(self.family.guess(0.0, 1.0, 1.0))
        return np.concatenate([[max(0.03 * self.sd, 1e-3)], np.full(count, 0.03), self.rate_steps])

    def _rate_steps(self, steps: Steps) -> Floats:
        """Return by how much to change the log of each rate: departures then move by a part of the jitter."""
        h = np.zeros(self.k)
        base = self._departed(np.log(steps.rate))
        for k in range(self.k):
            logs = np.log(steps.rate)
            logs[k] += 1e-4
            reach = np.quantile(np.abs(self._departed(logs) - base), 0.95) / 1e-4
            h[k] = np.clip(0.03 * self.sd / max(reach, 1e-3), 1e-9, 0.01)
        return h

    def _departed(self, logs: Floats) -> Floats:
        return self.flow.departures(Steps(self.start_us, np.exp(logs)), self.bucket_bytes)[self.rows]

    def data(self, theta: Floats) -> Censored:
        logs = theta[-self.k :]
        data = self._data.get(logs.tobytes())
        if data is None:
            data = self._data[logs.tobytes()] = Censored(self.acked_us - self._departed(logs), self.group, self.event)
            if len(self._data) > const.KEPT_RATES:
                del self._data[next(iter(self._data))]
        return data

    def _impossible(self, data: Censored, theta: Floats) -> bool:
        if self.family.has_minimum and not 0 <= theta[0] < data.low:
            return True
        with np.errstate(all="ignore"):
            mean, sd = self.family.moments(theta[: -self.k - 1]) if np.all(np.abs(theta[1:]) < 40) else (0.0, 0.0)
        return not (mean > 0 and self.sd / const.MAX_TIMES < sd < self.sd * const.MAX_TIMES)

    def log_likelihoods(self, theta: Floats) -> Floats:
        """Return log L per group."""
        data, p = self.data(theta), theta[: -self.k]
        with np.errstate(all="ignore"):
            values = data.per_group(self.family, p[:-1], const.MAX_STALL_SHARE * special.expit(p[-1]))
        return np.maximum(np.nan_to_num(values, nan=const.MIN_LOG), const.MIN_LOG)

    def log_likelihood(self, theta: Floats, data: Censored | None = None) -> float:
        """Return log L."""
        data, p = data or self.data(theta), theta[: -self.k]
        if self._impossible(data, theta):
            return -np.inf
        with np.errstate(all="ignore"):
            value = data.log_likelihood(self.family, p[:-1], const.MAX_STALL_SHARE * special.expit(p[-1]))
        return value if np.isfinite(value) and abs(value) < 1e12 else -np.inf

    def free_parameters(self, theta: Floats) -> Ints:
        """Return which parameters are free: stalls only if there are any."""
        free = np.ones(len(theta), bool)
        free[-self.k - 1] = theta[-self.k - 1] > const.NO_STALLS
        return np.flatnonzero(free)

    def scores(self, theta: Floats, free: Ints) -> Floats:
        """Return the derivatives of log L per group, a column for each of the free parameters."""
        return self._derivatives(self.log_likelihoods, theta, free)

    def _derivatives(self, of: Callable[[Floats], Floats], theta: Floats, which: Iterable[int]) -> Floats:
        columns = []
        for i in which:
            shift = np.zeros(len(theta))
            shift[i] = step = self.parameter_steps[i]
            columns.append((of(theta + shift) - of(theta - shift)) / (2 * step))
        return np.column_stack(columns)

    def maximised(self, theta: Floats) -> tuple[Floats, float]:
        """Return the maximum and log L there: steps by the scores' outer product, halved until log L increases."""
        at = self.log_likelihood(theta)
        free = self.free_parameters(theta)
        for _ in range(const.MAX_MOVES):
            scores = self.scores(theta, free)
            if not np.all(np.isfinite(scores)):
                break
            move = np.zeros(len(theta))
            scale = np.sqrt(np.maximum(np.sum(scores**2, axis=0), 1e-300))
            scores = scores / scale
            move[free] = np.linalg.lstsq(scores.T @ scores, scores.sum(axis=0), rcond=1e-8)[0] / scale
            if not np.all(np.isfinite(move)):
                break
            farthest = np.abs(move[-self.k :]).max()
            move /= max(farthest / const.MAX_MOVE, 1.0)
            for _ in range(12):
                value = self.log_likelihood(theta + move)
                if value > at:
                    break
                move /= 2
            if not value > at:
                break
            theta, gain, at = theta + move, value - at, value
            if gain < 0.01:
                break
        return theta, at

    def errors(self, theta: Floats) -> tuple[Floats, Floats] | None:
        """Return the covariance from the block sandwich and from the curvature alone; None if singular."""
        free = self.free_parameters(theta)
        scores = self.scores(theta, free)
        n, h = len(free), self.parameter_steps[free]
        curvature = np.zeros((n, n))
        for j, i in enumerate(free):
            shift = np.zeros(len(theta))
            shift[i] = self.parameter_steps[i]
            up, down = (self.scores(theta + sign * shift, free).sum(axis=0) for sign in (1, -1))
            curvature[j] = (down - up) / (2 * h[j])
        curvature = (curvature + curvature.T) / 2
        if not (np.all(np.isfinite(scores)) and np.all(np.isfinite(curvature))):
            return None
        bread = _inverse(curvature)
        if bread is None:  # second differences may drown in the tables' grain
            bread = _inverse(scores.T @ scores)
        if bread is None:
            return None
        size = max(block_sizes(np.abs(column)) for column in scores.T)
        blocks = blocked(scores, size)
        count = len(blocks)
        meat = blocks.T @ blocks * count / max(count - n, 1)
        sandwich = bread @ meat @ bread
        # With few informative blocks the sandwich may be too small.
        short = np.sqrt(np.maximum(np.diag(bread) / np.maximum(np.diag(sandwich), 1e-300), 1.0))
        wide, plain = np.zeros((2, len(theta), len(theta)))
        place = np.ix_(free, free)
        wide[place], plain[place] = sandwich * short * short[:, None], bread
        return wide, plain

    def at_rate(self, theta: Floats, log_rate: float) -> tuple[Floats, float]:
        """Return theta with the likeliest jitter at a rate, and log L."""
        theta = theta.copy()
        theta[-1] = log_rate
        data, free = self.data(theta), self.free_parameters(theta)[:-1]
        steps = np.where(free == 0, self.sd / 5, 0.1)

        def cost(q: Floats) -> float:
            full = theta.copy()
            full[free] = q
            return min(-self.log_likelihood(full, data), 1e15)

        start = theta[free]
        if self.family.has_minimum and not start[0] < data.low:
            start[0] = max(data.low - self.sd / 10, 0.0)
        simplex = np.vstack([start, start + np.diag(steps)])
        theta[free], least = nelder_mead(cost, simplex, 0.01, 1e-2, 300)
        return theta, -least

    def moments(self, theta: Floats) -> Floats:
        p = theta[: -self.k]
        mean, sd = self.family.moments(p[:-1])
        return np.array([mean, np.log(sd), np.log(max(mean - p[0], 1e-9)) if self.family.has_minimum else 0.0])

    def gradient(self, theta: Floats) -> Floats:
        """Return the derivatives of `moments`, a column for each of the family's parameters."""
        return self._derivatives(self.moments, theta, range(len(theta) - self.k - 1))


def _inverse(matrix: Floats) -> Floats | None:
    """Return the inverse of a positive definite matrix, or None of another."""
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    if np.any(np.diag(matrix) <= 0):
        return None
    values, vectors = np.linalg.eigh(matrix * scale * scale[:, None])
    return (vectors / values) @ vectors.T * scale * scale[:, None] if values.min() > const.MIN_EIGENVALUE else None


def _spread_blocks(groups: int, most: int) -> Bools:
    """Return which groups are used: evenly spread blocks."""
    if groups <= most:
        return np.ones(groups, bool)
    pieces = np.arange(groups) // const.BLOCK_GROUPS
    edges = np.floor(np.arange(pieces[-1] + 2) * most / groups)
    return (np.diff(edges) > 0)[pieces]


def _profile_interval(model: _Model, theta: Floats, stretch: float) -> tuple[Floats, tuple[float | None, float | None]]:
    """Return the maximum over all rates, and the interval where the profile is within `PROFILE_DROP` of it."""
    middle = theta[-1]
    far = const.PROFILE_REACH * (np.arange(1, const.PROFILE_POINTS + 1) / const.PROFILE_POINTS) ** 1.5
    tried = {middle: (theta, model.log_likelihood(theta))}
    for side in (-1, 1):
        at = theta
        for step in far:
            at, value = model.at_rate(at, middle + side * step)
            tried[middle + side * step] = (at, value)
            if value < max(pair[1] for pair in tried.values()) - const.PROFILE_DEPTH * max(stretch, 1.0):
                break
    logs = np.array(sorted(tried))
    values = np.array([tried[log][1] for log in logs])
    best = int(np.argmax(values))
    theta, top = model.maximised(tried[logs[best]][0])
    logs, values = np.append(logs, theta[-1]), np.append(values, max(top, values[best]))
    order = np.argsort(logs)
    logs, less = logs[order], (values.max() - values[order]) / stretch
    peak = int(np.argmin(less))
    ends = _crossing(logs[: peak + 1][::-1], less[: peak + 1][::-1]), _crossing(logs[peak:], less[peak:])
    low, high = (None if end is None else float(np.exp(end)) for end in ends)
    return theta, (low, high)


def _crossing(logs: Floats, less: Floats) -> float | None:
    """Return where `less` first exceeds `PROFILE_DROP`, going outwards; None if it does not."""
    beyond = np.flatnonzero(less > PROFILE_DROP)
    if not len(beyond):
        return None
    k = beyond[0]
    if k == 0:
        return float(logs[0])
    # The root of the deviance is nearly linear.
    a, b, c = np.sqrt(np.maximum([less[k - 1], PROFILE_DROP, less[k]], 0.0))
    return float(logs[k - 1] + (logs[k] - logs[k - 1]) * (b - a) / (c - a))
