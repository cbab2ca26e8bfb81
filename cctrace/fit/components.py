"""Joint estimation of a path's rate, delays and jitter, which depend on each other."""

import contextlib
import threading
from typing import Any, NamedTuple

import numpy as np

from cctrace.columns import Floats, give_back
from cctrace.display import Progress, silent
from cctrace.errors import FitError
from cctrace.estimates import Z95, Estimate
from cctrace.fit import constants as const
from cctrace.fit.draws import DRAWN
from cctrace.fit.families import FAMILIES
from cctrace.fit.filled import explains_delays
from cctrace.fit.jitter import Jitter
from cctrace.fit.joint import Joint, joint
from cctrace.fit.process import process_of
from cctrace.path.arrays import central_sd
from cctrace.path.bottleneck import lever, rate_errors
from cctrace.path.constants import PAIR_EXACT
from cctrace.path.delays import Delays, delays_of
from cctrace.path.evidence import PathEvidence
from cctrace.path.pairs import pair_rate
from cctrace.path.queue import Steps, constant
from cctrace.path.sent import SentPackets, delivered_rate


class Components(NamedTuple):
    """Mutually consistent rate, delays and jitter; see `components_of`."""

    steps: Steps
    errors: Floats  # standard errors of the logs of the rates
    delays: Delays | None
    jitter: Jitter | None
    joint: Joint | None
    drift_us: float  # change of the base RTT with the rate's error
    least_rtt_us: float
    tokens_bytes: float  # that pass at once when no queue stands

    @property
    def _overtaking_us(self) -> Floats | None:
        """Quantiles of the delays on a reordering path, if they follow no simulated family.

        All packets of an ACK have the delay of its last one, but a packet that overtakes others has an ACK of its
        own.
        """
        delays, jitter = self.delays, self.jitter
        if delays is None or jitter is None or jitter.process_.name != "reorder" or jitter.distribution_ in DRAWN:
            return None
        if delays.place == "before":
            return None  # with the queue
        drawn = np.repeat(delays.rtt_us, np.bincount(delays.group))
        return np.quantile(drawn, (np.arange(const.DELAY_QUANTILES) + 0.5) / const.DELAY_QUANTILES)

    def rates(self, flow: SentPackets) -> tuple[list[dict[str, float | None]], bool]:
        """Return the rows of ``rate_bps``, and whether they are a bound: without a queue, the delivered rate is one."""
        bounds = None if self.joint is None else self.joint.bounds
        if bounds and self.jitter is not None and self.jitter.is_refuted(const.MAX_FIT_DISTANCE):
            bounds = None, None  # they rest on the shape of the jitter
        open_ended = bounds is not None and bounds[1] is None
        if len(self.steps.rate) == 1 and (
            not self._is_queued(flow) or self.errors[0] > const.MAX_RATE_ERROR or open_ended
        ):
            _, rate, _ = delivered_rate(flow, max(200_000.0, flow.least_rtt_us))
            fastest = float(np.quantile(rate[rate > 0], 0.99)) * 8e6
            low = bounds[0] * 8e6 if bounds and bounds[0] else fastest
            return [{"start_s": 0.0, "value": max(fastest, low), "low": low, "high": None}], True
        rows: list[dict[str, float | None]] = []
        for start, value, error in zip(self.steps.start_us, self.steps.rate * 8e6, self.errors, strict=True):
            # The bound is for a period that does not determine the rate.
            error = min(np.hypot(error, PAIR_EXACT), np.log(const.BOUND_REACH) / Z95)
            estimate = Estimate.by_factor(value, error)
            if bounds:
                estimate = Estimate(value, *(side * 8e6 if side else None for side in bounds))
            rows.append({"start_s": float(start / 1e6), **estimate.to_dict()})
        return rows, False

    def _is_queued(self, flow: SentPackets) -> bool:
        """Return whether a queue at this rate explains any of the delays."""
        if self.joint is not None:
            return self.joint.bounds is None or None not in self.joint.bounds
        return explains_delays(flow, self.steps)

    def base(self) -> Estimate:
        """Return the mean RTT without queue and serialisation, the jitter's mean included."""
        if self.delays is None:
            return Estimate(None, None, self.least_rtt_us)
        # The third row from the end is the base RTT's, as in `correlation`. With an error as large as the value itself,
        # the likelihood hardly determines the jitter's mean.
        if self.joint is not None and (variance := self.joint.covariance[-3, -3]) < self.joint.mean_us**2:
            value, error = self.joint.mean_us, np.sqrt(variance)
        elif (overtaking_us := self._overtaking_us) is not None:
            value, error = float(overtaking_us.mean()), np.hypot(self.delays.mean_us.error, self.drift_us)
        elif self.jitter is not None and self.jitter.process_.name != "unknown":
            value, error = self.jitter.delay_us_.number, np.hypot(self.jitter.delay_us_.error, self.drift_us)
        else:
            value, scatter = self.delays.median_us
            error = max(np.hypot(scatter, self.drift_us), const.RESOLUTION_US)
        return Estimate.around(max(value, 0.0), error, 0.0)  # RTTs on a coarse clock may be shorter than serialisation

    def correlation(self) -> dict[str, list[list[float]] | list[str]] | None:
        """Return the correlation of the errors: {names, matrix}, or None if they were not estimated jointly."""
        if self.joint is None:
            return None
        rates = [f"rate_bps.{k}" for k in range(len(self.steps.rate))]
        names = [*rates, "base_rtt_us", "jitter.sd_us", "jitter.mean_us"]
        error = np.sqrt(np.maximum(np.diag(self.joint.covariance), 1e-300))
        matrix = np.clip(self.joint.covariance / error / error[:, None], -1, 1)
        np.fill_diagonal(matrix, 1.0)
        return {"names": names, "matrix": matrix.round(4).tolist()}

    def as_jitter(self) -> dict[str, Any] | None:
        """Return the estimates of the jitter."""
        if self.jitter is None:
            return None
        delays = None if self.jitter.process_.name == "unknown" else self.delays
        estimates = self.jitter.as_estimates() | {"place": None if delays is None else delays.place}
        base = self.base()
        estimates["floor_us"] = floor_us(self.least_rtt_us if base.value is None else base.value, self.least_rtt_us)
        if estimates["distribution"] not in DRAWN:
            # On a reordering path every delay is a draw: few packets are early, and must remain few.
            quantiles = self._overtaking_us
            if quantiles is None:
                quantiles = self.jitter.predict((np.arange(200) + 0.5) / 200)
            estimates["quantiles_us"] = (quantiles - quantiles[0]).round(2).tolist()
        if self.joint is None:
            return estimates
        k, spread = len(self.steps.rate), np.sqrt(np.diag(self.joint.covariance))
        estimates["sd_us"], estimates["delay_us"] = Estimate.by_factor(self.joint.sd_us, spread[k + 1]), self.base()
        if self.jitter.mean_us_.value:
            estimates["mean_us"] = Estimate.by_factor(self.joint.above_minimum_us, spread[k + 2])
        return estimates


def floor_us(base_us: float, least_rtt_us: float) -> float:
    """Return the RTT that no jitter shortens, us: half of the RTT without a queue, unless shorter ones were seen.

    Jitter on the data's way leaves the ACKs', and a packet arrives after it was sent at the earliest.
    """
    return min(base_us / 2, least_rtt_us)


def components_of(path: PathEvidence, quick: bool) -> Components:
    """Return mutually consistent rate, delays and jitter.

    `quick`: use `quick_jitter` and a `joint` fit with as few draws; neither if the residual delays are too small to
    reveal a process and a queue stood long enough to determine the rate.
    """
    flow, shaper = path.traffic.sent, path.shaper
    steps = path.traffic.steps if shaper is None else constant(shaper.rate.number)
    alone = shaper is None and not path.traffic.others
    delays = jitter = joint_fit = None
    families: tuple[str, ...] = tuple(FAMILIES)
    for _ in range(const.MAX_ROUNDS):
        new_delays, new_jitter = _delays_and_jitter(path, flow, steps, families, quick)
        delays = delays if new_delays is None else new_delays
        jitter = jitter if new_jitter is None else new_jitter
        if new_delays is None or new_jitter is None or not (alone and _allows_joint(new_delays, new_jitter)):
            break
        joint_fit = joint(flow, new_delays, new_jitter, quick, path.tokens_bytes)
        queue_decides = lever(flow, steps) > const.STANDING_SDS * new_jitter.sd_us_.number
        if joint_fit is not None and joint_fit.bounds and queue_decides:
            joint_fit = None  # a queue stood long enough for the delays to determine the rate, whatever the jitter
        if joint_fit is None:
            break
        moved = np.abs(np.log(joint_fit.steps.rate / steps.rate)).max()
        steps, families = joint_fit.steps, (joint_fit.family,)
        is_one_sided = quick and joint_fit.bounds is not None and None in joint_fit.bounds  # at any other rate
        if is_one_sided or (moved < const.RATE_CHANGE and joint_fit.family == new_jitter.distribution_):
            break
    k = len(steps.rate)
    paired = pair_rate(flow) if k == 1 else None
    if joint_fit is not None:
        errors = np.sqrt(np.diag(joint_fit.covariance)[:k])
    elif paired is not None and paired[0] == steps.rate[0]:
        errors = np.array([paired[1]])
    else:
        errors = rate_errors(flow, steps)
    drift = 0.0
    if delays is not None and delays.place != "before" and joint_fit is None:
        drift = _drift(flow, steps, errors, delays, path.tokens_bytes)
    least_us = float(np.nanmin(path.transmissions.rtt_us))
    return Components(steps, errors, delays, jitter, joint_fit, drift, least_us, path.tokens_bytes)


def _delays_and_jitter(
    path: PathEvidence, flow: SentPackets, steps: Steps, families: tuple[str, ...], quick: bool
) -> tuple[Delays | None, Jitter | None]:
    """Return the delays at a rate, and their jitter; None for what the flow does not determine, or needs no fit."""
    delays = None
    with contextlib.suppress(FitError):
        at = path.tokens_bytes
        is_cached = flow is path.sent and steps is path.steps and not at
        is_shared = bool(path.traffic.others)
        delays = path.delays if is_cached else delays_of(path.transmissions, flow, steps, at, is_shared)
        if quick and _is_uninformative(delays, lever(flow, steps)):
            return delays, None
        if quick and families == tuple(FAMILIES):
            return delays, quick_jitter(path, delays)
        events = const.MAX_EVENTS // const.QUICK_DIVISOR if quick else const.MAX_EVENTS
        return delays, Jitter(families, events=events).fit(delays)
    return delays, None


def _allows_joint(delays: Delays, jitter: Jitter) -> bool:
    """Return whether `joint` describes such jitter: drawn per packet, behind a queue reached as packets were sent."""
    ordered = jitter.process_.name in ("packet", "unknown") and delays.reordered_share == 0
    return ordered and delays.place != "before" and jitter.sd_us_.number >= const.RESOLUTION_US


def _is_uninformative(delays: Delays, lever_us: float) -> bool:
    """Return whether residual delays are too small to reveal their process, and the queue alone determines the rate."""
    give_back(len(delays.table))
    return lever_us > const.STANDING_SDS * central_sd(delays.rtt_us) and process_of(delays).name == "unknown"


def _drift(flow: SentPackets, steps: Steps, errors: Floats, delays: Delays, bucket: float) -> float:
    """Return the change of the median delay with one standard error of the rates."""
    # Without a queue the rate has no upper bound: a hundred times as high is as good as infinite.
    higher = steps.rate * np.exp(np.minimum(errors, np.log(100.0)))
    up = flow.departures(Steps(steps.start_us, higher), bucket)
    at = flow.departures(steps, bucket)
    return float(np.median(np.abs(up - at)[delays.rows]))


QUICK_FAMILIES = ("normal", "gamma", "lognormal")
_fitting = threading.Lock()  # whoever needs the same fit meanwhile waits for it


def quick_jitter(path: PathEvidence, delays: Delays, progress: Progress = silent) -> Jitter:
    """Return a fit of fewer families to fewer draws, with a fifth of the work; the path's own is cached.

    Raises `FitError` if the delays do not determine the jitter.
    """
    with _fitting:
        fitted_to, jitter = path.cache.get(quick_jitter, (None, None))
        if fitted_to is not delays:
            jitter = Jitter(QUICK_FAMILIES, events=const.MAX_EVENTS // const.QUICK_DIVISOR).fit(delays, progress)
            path.cache[quick_jitter] = delays, jitter
        return jitter
