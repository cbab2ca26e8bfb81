"""Likelihood of a recording under a path: goodput, RTTs and retransmission times, compared with simulations.

    course_of(rtts, table)              the recording, on a time grid
    uncaptured_competitor(scene, ...)   a flow outside the capture, if only that explains the recording
    courses(runs)                       simulated runs, on the same grid
    unlikeness(recorded, runs)          -2 log likelihood of the recording, given the runs

Rival explanations of a recording (`fit.rivals`) predict different behaviour of the flow's own controller: random
losses come at any time, those of a full queue when it is long, with different goodput and RTTs. What-ifs use the
explanation with the greatest likelihood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cctrace.columns import Floats, Ints
from cctrace.counterfactual import constants as const
from cctrace.counterfactual.figures import NEAR_POINTS
from cctrace.fit.rivals import AS_INFERRED, rivals_of
from cctrace.path.transmissions import DELIVERED
from cctrace.sim.batch import Run, batch
from cctrace.sim.sender import Sender

if TYPE_CHECKING:
    from cctrace.counterfactual.scene import Scene
    from cctrace.diagnosis.diagnose import Diagnosis
    from cctrace.fit.fitted_path import FittedPath
    from cctrace.path.evidence import PathEvidence
    from cctrace.path.transmissions import Transmissions

AS_DROPTAIL = ("other", "early")  # values of `aqm` in a fit that cannot be simulated
COMPETITORS = ("cubic6", "bbr2022")  # hypothetical competitors outside the capture
# Distance of a run over the true path from a recording in excess of chance: standard deviations of the features below.
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
class Course:
    """A flow over time, on a grid."""

    # cumulative segments
    delivered: Floats
    sent: Floats
    retransmitted: Floats
    rtt_us: Floats  # smoothed RTT
    rtt_mean_us: float  # mean of all samples

    def features(self) -> dict[str, float]:
        """Return the features that need no comparison with another course."""
        known = self.rtt_us[self.rtt_us > 0]
        short, long = np.log(np.quantile(known, [0.1, 0.9])) if len(known) else (np.nan, np.nan)
        return {
            "goodput": float(np.log(max(self.delivered[-1], 1.0))),
            "rtt": float(np.log(self.rtt_mean_us)),
            "retransmitted": float(np.log(self.retransmitted[-1] / max(self.sent[-1], 1.0) + NEAR_POINTS)),
            "episodes": float(np.log1p(np.count_nonzero(np.diff(self.retransmitted, prepend=0.0)))),
            "short_rtt": float(short),
            "long_rtt": float(long),
        }


def course_of(rtts: Mapping[str, Ints], table: Transmissions) -> Course:
    """Return the `Course` of a captured flow; `rtts`: its ``rtt_samples``."""
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
    again = np.sort(table.sent_ns[table.retransmitted])
    return Course(so_far(acked), so_far(table.sent_ns), so_far(again), smoothed, float(rtt_us.mean()))


def courses(runs: Sequence[Run]) -> list[Course]:
    """Return the `Course` of the first flow of each run, from its start on, which is a multiple of `GRID_S`."""
    found = []
    outcomes = batch([run._replace(sample=f"{const.GRID_S}s") for run in runs])
    for run, outcome in zip(runs, outcomes, strict=True):
        names = ("delivered_segments", "sent_segments", "retransmitted_segments", "srtt_us")
        samples = outcome.samples[round(run.senders[0].start_ns / 1e9 / const.GRID_S) + 1 :]
        columns = (np.array([one[name][0] for one in samples], float) for name in names)
        delivered, sent, again, smoothed = columns
        found.append(Course(delivered, sent, again, smoothed, float(outcome.flows[0]["rtt_mean_us"])))
    return found


def unlikeness(recorded: Course, runs: Sequence[Course]) -> float:
    """Return -2 log likelihood (up to a constant) of a recording, given runs over a path that may be its own."""
    total = 0.0
    mine, theirs = recorded.features(), [run.features() for run in runs]
    for name, value in mine.items():
        values = np.array([features[name] for features in theirs])
        total += _distance(value - values.mean(), values.var(ddof=1), SPREAD[name])
    again = _apart(recorded.retransmitted, [run.retransmitted for run in runs])
    course = _apart(recorded.delivered, [run.delivered for run in runs])
    return total + _distance(*again, SPREAD["when"]) + _distance(*course, SPREAD["course"])


def _distance(off: float, variance: float, spread: float) -> float:
    variance = variance + spread**2
    return float(off**2 / variance + np.log(variance / spread**2))


def _apart(mine: Floats, runs: Sequence[Floats]) -> tuple[float, float]:
    """Return how much earlier counts are reached than in runs, as a share of the time, and its variance."""
    if mine[-1] <= 0 or any(run[-1] <= 0 for run in runs):
        return 0.0, 0.0
    length = min(len(mine), *(len(run) for run in runs))
    shares = np.array([one[:length] / one[length - 1] for one in (mine, *runs)])
    middle = shares[1:].mean(axis=0)
    between = np.abs(shares[1:] - middle).mean(axis=1)
    return float(np.abs(shares[0] - middle).mean()), float(np.mean(between**2))


def weighed(scene: Scene, recorded: Course, evidence: PathEvidence) -> dict[str, tuple[FittedPath, float]]:
    """Return every path that may explain a recording with its `unlikeness`; 0 if there are no rivals.

    Simulations say nothing if the send buffer is still to be fitted over one of these paths.
    """
    rivals = rivals_of(scene.path, evidence)
    if len(rivals) == 1 or scene.own is None or scene.held.send_buffer_bytes:
        return {name: (path, 0.0) for name, path in rivals.items()}
    senders = (_own(scene), *scene.others)
    runs = [_runs(path, senders, scene) for path in rivals.values()]
    return {
        name: (path, unlike) for (name, path), unlike in zip(rivals.items(), _each_unlike(recorded, runs), strict=True)
    }


def _own(scene: Scene) -> Sender:
    assert scene.own is not None
    options = scene.acks[0] | scene.held.options({}) | {"start": f"{scene.ahead_s:.1f}s"}
    return Sender(scene.own, hz=scene.hz, **options)


def _runs(path: FittedPath, senders: tuple[Sender, ...], scene: Scene) -> list[Run]:
    duration = f"{scene.simulated_s:.3f}s"
    return [Run(one, senders, duration, k) for k, one in enumerate(path.draws(const.RUNS, 1))]


def _each_unlike(recorded: Course, explanations: Sequence[list[Run]]) -> list[float]:
    """Return the `unlikeness` of what was recorded under each explanation; all their runs are one batch."""
    found = courses([run for runs in explanations for run in runs])
    return [unlikeness(recorded, found[k * const.RUNS : (k + 1) * const.RUNS]) for k in range(len(explanations))]


def uncaptured_competitor(scene: Scene, recorded: Course, diagnosis: Diagnosis) -> Sender | None:
    """Return a competitor outside the capture if the recording is clearly likelier with it.

    A drop of the rate and a new competitor leave the flow the same rate. A drop leaves delays that the flow's own
    data explain at the lower rate; if there is additional queueing, two kinds of competitor are simulated from the
    time of the drop.
    """
    if scene.own is None or scene.others or scene.path.estimates["cross_traffic"]["kind"] != "unknown":
        return None
    if scene.held.send_buffer_bytes:  # its size is fitted later, to simulations of a path that must be known then
        return None
    fell = [one for one in diagnosis.verdicts if one.name == "rate_change" and "at_s" in one.evidence]
    if not fell and not any(one.name == "congestive_loss" for one in diagnosis.verdicts):
        return None
    begin = f"{fell[0].evidence['at_s'] if fell else 0.0:.3f}s"
    rivals = [Sender(cc, start=begin, ack_every=2) for cc in COMPETITORS]
    senders = [(_own(scene),), *((_own(scene), rival) for rival in rivals)]
    runs = [_runs(scene.path, those, scene) for those in senders]
    alone, *beside = _each_unlike(recorded, runs)
    best = int(np.argmin(beside))
    return rivals[best] if alone - beside[best] > const.CLEARLY else None


def likeliest(scene: Scene, recorded: Course, evidence: PathEvidence) -> FittedPath:
    """Return the path with the greatest likelihood; the inferred one if that is as good.

    An inferred path with an AQM that cannot be simulated ("other") is simulated without, and replaced by any
    likelier one.
    """
    found = weighed(scene, recorded, evidence)
    name = min(found, key=lambda name: found[name][1])
    better = found[AS_INFERRED][1] - found[name][1]
    least = 0.0 if scene.path.estimates["aqm"] in AS_DROPTAIL else const.CLEARLY
    return found[name][0] if better > least else scene.path
