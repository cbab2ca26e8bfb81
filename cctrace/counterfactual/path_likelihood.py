"""Likelihood of a recording under a path: goodput, RTTs and retransmission times, compared with simulations.

    trajectory_of(rtts, table)          the recording, on a time grid
    simulated_trajectories(runs)        simulated runs, on the same grid
    deviance(recorded, runs)            -2 log likelihood of the recording, given the runs
    likeliest_path(model, ...)          which explanation of the losses makes the recording likeliest
    uncaptured_competitor(model, ...)   a flow outside the capture, if only that explains the recording

Explanations of the losses (`fit.rivals`) predict different behaviour of the flow's own controller: random losses come
at any time, those of a full queue when it is long, with different goodput and RTTs. What-ifs use the explanation with
the greatest likelihood. Each feature of a trajectory is taken as independent and normal, with the mean and variance of
a few runs, and the variance that simulations of a known path show against recordings (SPREAD).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cctrace.columns import Floats, Ints
from cctrace.counterfactual import constants as const
from cctrace.counterfactual.figures import SHARE_TOLERANCE
from cctrace.fit.rivals import AS_INFERRED, rivals_of
from cctrace.path.transmissions import DELIVERED
from cctrace.sim.batch import Run, batch
from cctrace.sim.sender import Sender

if TYPE_CHECKING:
    from cctrace.counterfactual.flow_model import FlowModel
    from cctrace.diagnosis.diagnose import Diagnosis
    from cctrace.fit.fitted_path import FittedPath
    from cctrace.path.evidence import PathEvidence
    from cctrace.path.transmissions import Transmissions

AS_DROPTAIL = ("other", "early")  # values of `aqm` in a fit that cannot be simulated
COMPETITORS = ("cubic6", "bbr2022")  # hypothetical competitors outside the capture
# Error of simulations over a known path, beside chance: standard deviation of each feature (logarithms, or shares of
# the time).
SPREAD = {
    "goodput": 0.03,
    "rtt": 0.04,
    "retransmitted": 0.2,
    "episodes": 0.2,
    "short_rtt": 0.05,
    "long_rtt": 0.05,
    "when": 0.1,
    "course": 0.03,
}


@dataclass(frozen=True)
class Trajectory:
    """A flow over time: values at the end of each step of the grid (`constants.GRID_S`)."""

    # segments so far
    delivered: Floats
    sent: Floats
    retransmitted: Floats
    rtt_us: Floats  # smoothed RTT
    rtt_mean_us: float  # mean of all RTT samples

    def features(self) -> dict[str, float]:
        """Return the features of one trajectory; `deviance` adds two that compare it with others."""
        rtts_us = self.rtt_us[self.rtt_us > 0]
        short, long = np.log(np.quantile(rtts_us, [0.1, 0.9])) if len(rtts_us) else (np.nan, np.nan)
        return {
            "goodput": float(np.log(max(self.delivered[-1], 1.0))),
            "rtt": float(np.log(self.rtt_mean_us)),
            "retransmitted": float(np.log(self.retransmitted[-1] / max(self.sent[-1], 1.0) + SHARE_TOLERANCE)),
            "episodes": float(np.log1p(np.count_nonzero(np.diff(self.retransmitted, prepend=0.0)))),
            "short_rtt": float(short),
            "long_rtt": float(long),
        }


def trajectory_of(rtts: Mapping[str, Ints], table: Transmissions) -> Trajectory:
    """Return the `Trajectory` of a captured flow; `rtts`: its ``rtt_samples``."""
    acked = np.sort(table.acked_ns[table.state == DELIVERED])
    end_s = (int(table.acked_ns.max()) - table.start_ns) / 1e9
    at_ns = table.start_ns + (np.arange(1, int(end_s / const.GRID_S) + 1) * const.GRID_S * 1e9).astype(np.int64)

    def so_far(times_ns: Ints) -> Floats:
        return np.searchsorted(times_ns, at_ns, side="right").astype(float)

    rtt_us, taken_ns = rtts["rtt_us"], rtts["time_ns"]
    total = np.concatenate([[0.0], np.cumsum(rtt_us)])
    last = np.searchsorted(taken_ns, at_ns, side="right")
    first = np.maximum(last - const.LAST_RTTS, 0)
    smoothed = (total[last] - total[first]) / np.maximum(last - first, 1)
    retransmitted = np.sort(table.sent_ns[table.retransmitted])
    return Trajectory(so_far(acked), so_far(table.sent_ns), so_far(retransmitted), smoothed, float(rtt_us.mean()))


def simulated_trajectories(runs: Sequence[Run]) -> list[Trajectory]:
    """Return the `Trajectory` of the first flow of each run, from its start on, which is a multiple of `GRID_S`."""
    names = ("delivered_segments", "sent_segments", "retransmitted_segments", "srtt_us")
    trajectories = []
    outcomes = batch([run._replace(sample=f"{const.GRID_S}s") for run in runs])
    for run, outcome in zip(runs, outcomes, strict=True):
        samples = outcome.samples[round(run.senders[0].start_ns / 1e9 / const.GRID_S) + 1 :]
        delivered, sent, retransmitted, srtt_us = (np.array([row[name][0] for row in samples], float) for name in names)
        mean_us = float(outcome.flows[0]["rtt_mean_us"])
        trajectories.append(Trajectory(delivered, sent, retransmitted, srtt_us, mean_us))
    return trajectories


def deviance(recorded: Trajectory, runs: Sequence[Trajectory]) -> float:
    """Return -2 log likelihood (up to a constant) of a recording, given runs over a path that may be its own."""
    total = 0.0
    simulated = [run.features() for run in runs]
    for name, value in recorded.features().items():
        values = np.array([features[name] for features in simulated])
        total += _normal_deviance(value - values.mean(), values.var(ddof=1), SPREAD[name])
    losses = _distance(recorded.retransmitted, [run.retransmitted for run in runs])
    progress = _distance(recorded.delivered, [run.delivered for run in runs])
    return total + _normal_deviance(*losses, SPREAD["when"]) + _normal_deviance(*progress, SPREAD["course"])


def _normal_deviance(error: float, variance: float, spread: float) -> float:
    """Return -2 log likelihood of an error, up to a constant that depends on `spread` only."""
    variance = variance + spread**2
    return float(error**2 / variance + np.log(variance / spread**2))


def _distance(recorded: Floats, runs: Sequence[Floats]) -> tuple[float, float]:
    """Return the mean distance of a cumulative count from that of runs, as a share of its end, and its variance."""
    if recorded[-1] <= 0 or any(run[-1] <= 0 for run in runs):
        return 0.0, 0.0
    length = min(len(recorded), *(len(run) for run in runs))
    shares = np.array([counts[:length] / counts[length - 1] for counts in (recorded, *runs)])
    mean = shares[1:].mean(axis=0)
    between_runs = np.abs(shares[1:] - mean).mean(axis=1)
    return float(np.abs(shares[0] - mean).mean()), float(np.mean(between_runs**2))


def deviances(model: FlowModel, recorded: Trajectory, evidence: PathEvidence) -> dict[str, tuple[FittedPath, float]]:
    """Return {explanation: (path, `deviance`)} of every explanation of the losses; deviance 0 if none is simulated.

    A send buffer is fitted to simulations over the path, later: without it, simulations do not tell paths apart.
    """
    rivals = rivals_of(model.path, evidence)
    if len(rivals) == 1 or model.controller is None or model.host_limits.send_buffer_bytes:
        return {name: (path, 0.0) for name, path in rivals.items()}
    senders = (_sender(model), *model.other_senders)
    runs = [_runs(path, senders, model) for path in rivals.values()]
    scored = zip(rivals.items(), _deviances(recorded, runs), strict=True)
    return {name: (path, deviance) for (name, path), deviance in scored}


def _sender(model: FlowModel) -> Sender:
    assert model.controller is not None
    options = model.ack_policies[0] | model.host_limits.sender_options({}) | {"start": f"{model.head_start_s:.1f}s"}
    return Sender(model.controller, hz=model.hz, **options)


def _runs(path: FittedPath, senders: tuple[Sender, ...], model: FlowModel) -> list[Run]:
    duration = f"{model.simulated_s:.3f}s"
    return [Run(drawn, senders, duration, seed) for seed, drawn in enumerate(path.draws(const.RUNS_PER_PATH, 1))]


def _deviances(recorded: Trajectory, explanations: Sequence[list[Run]]) -> list[float]:
    """Return the `deviance` of the recording under each explanation; all their runs are one batch."""
    trajectories = simulated_trajectories([run for runs in explanations for run in runs])
    return [
        deviance(recorded, trajectories[k * const.RUNS_PER_PATH : (k + 1) * const.RUNS_PER_PATH])
        for k in range(len(explanations))
    ]


def uncaptured_competitor(model: FlowModel, recorded: Trajectory, diagnosis: Diagnosis) -> Sender | None:
    """Return a competitor outside the capture if the recording is clearly likelier with it.

    A drop of the rate and a new competitor leave the flow the same rate. A drop leaves delays that the flow's own
    data explain at the lower rate; if there is additional queueing, two kinds of competitor are simulated from the
    time of the drop.
    """
    if model.controller is None or model.other_senders or model.path.estimates["cross_traffic"]["kind"] != "unknown":
        return None
    if model.host_limits.send_buffer_bytes:  # fitted later, to simulations of a path that must be known by then
        return None
    changes = [verdict.evidence for verdict in diagnosis.verdicts if verdict.name == "rate_change"]
    drops_s = [evidence["at_s"] for evidence in changes if "at_s" in evidence]
    if not drops_s and "congestive_loss" not in diagnosis.causes:
        return None
    start = f"{drops_s[0] if drops_s else 0.0:.3f}s"
    rivals = [Sender(cc, start=start, ack_every=2) for cc in COMPETITORS]
    sender = _sender(model)
    runs = [_runs(model.path, senders, model) for senders in ((sender,), *((sender, rival) for rival in rivals))]
    alone, *with_rival = _deviances(recorded, runs)
    best = int(np.argmin(with_rival))
    return rivals[best] if alone - with_rival[best] > const.MIN_DEVIANCE_GAIN else None


def likeliest_path(model: FlowModel, recorded: Trajectory, evidence: PathEvidence) -> FittedPath:
    """Return the path with the greatest likelihood; the inferred one if that is as good.

    An inferred path with an AQM that cannot be simulated ("other") is simulated without, and replaced by any
    likelier one.
    """
    explanations = deviances(model, recorded, evidence)
    path, least_deviance = min(explanations.values(), key=lambda explanation: explanation[1])
    gain = explanations[AS_INFERRED][1] - least_deviance
    required = 0.0 if model.path.estimates["aqm"] in AS_DROPTAIL else const.MIN_DEVIANCE_GAIN
    return path if gain > required else model.path
