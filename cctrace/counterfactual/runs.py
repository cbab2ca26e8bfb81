"""Simulations of a what-if: first the flow's own controller, as a check, then others over the same drawn paths.

Paths are drawn from the uncertainty of the fit; question k over path j has the random numbers of the original over
path j, so that differences between the two are due to the question alone. One `Runs` answers all questions about a
flow:

    runs = Runs(model, draws, seed)
    runs.original, runs.reproduces      the flow's own controller over the inferred path; whether it is as recorded
    runs.ask({"bbr3": Question(...)})   others over the same paths with the same random numbers; or changed paths
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from cctrace.cc import controller
from cctrace.columns import Bools, Columns
from cctrace.counterfactual import constants as const
from cctrace.counterfactual.figures import (
    FIGURES,
    SHARE,
    TOLERANCE,
    bounds,
    difference,
    estimated,
    is_reproduced,
    miss_beyond_interval,
    to_log_scale,
)
from cctrace.counterfactual.flow_model import Controller, FlowModel
from cctrace.counterfactual.host_limits import OPTIONS, HostLimits
from cctrace.counterfactual.path_changes import alike, changed
from cctrace.diagnosis.constants import GOODPUT_CHANGES
from cctrace.display import Progress, silent
from cctrace.errors import ArgumentError, FitError
from cctrace.estimates import Estimate
from cctrace.fit.constants import BOUND_REACH
from cctrace.fit.fitted_path import FittedPath
from cctrace.sim.batch import Run, batch
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.tcp.wire import PACKET_BYTES

# Linux of both hosts, in turn by seed: a capture seldom shows the release, and how that cuts super-packets may decide
# on which of two courses a flow over a short queue settles.
RELEASES = "6.18", "6.12"
Figures = dict[str, Estimate]
SHORTENED = "what a flow that always had data would meet later: a million segments of it, or 20 s, are simulated"


@dataclass(frozen=True)
class Question:
    """A controller over the drawn paths, with changes of the paths and hosts."""

    controller: Controller
    # changes as `HostLimits.sender_options` takes them, and options of a `cctrace.Sender`
    hosts: Mapping[str, Any] = field(default_factory=dict)
    change: Callable[[Path], Path] = lambda path: path  # a drawn path -> the path to simulate
    is_alone: bool = False  # whether the other flows are removed

    @classmethod
    def of(cls, controller: Controller, changes: Mapping[str, Any]) -> Question:
        """Return the question for changes in `whatif`'s syntax."""
        hosts = {key: value for key, value in changes.items() if key in OPTIONS}
        path = {key: value for key, value in changes.items() if key not in OPTIONS}
        return cls(controller, hosts, lambda drawn: changed(drawn, path)) if changes else cls(controller)


class Answer(NamedTuple):
    """Figures of a question, and their difference to the original's (None without a known controller)."""

    figures: Figures
    difference: Figures | None


class Runs:
    """Runs of a flow's model over paths drawn from the fit's uncertainty.

    `draws`: number of paths. `tries`: if chance decides the own controller's goodput, draw this many times as many
    paths and keep those closest to the recording: 1 predicts the next such flow, larger values concern the recorded
    one.

    Attributes are `paths` (as drawn), `original` ({figure: Estimate} of the flow's own controller, None if that is
    unknown), `reproduces` (whether that matches the recording, within the bounds of predictions, or within 90 % of
    the scatter of runs of the same controller over one path) and `not_excluded` (the model's, and `SHORTENED` if that
    happened).
    """

    def __init__(self, model: FlowModel, draws: int, seed: int, progress: Progress = silent, tries: int = 1) -> None:
        self.model, self._progress, self._draw_factor = model, progress, tries
        self.paths = [self._simulable(path) for path in plausible_paths(model.path, draws, seed)]
        self._seeds = [seed + k for k in range(draws)]
        self._host_limits, self._ack_policy = model.host_limits, model.ack_policies[0]
        self.original: Figures | None = None
        self.reproduces = False
        self.not_excluded = list(model.not_excluded)
        self._original_runs: Columns | None = None
        self._misfit: dict[str, float] = {}
        if model.controller:
            self._check(model.controller)

    def _simulable(self, path: Path) -> Path:
        """Return a path whose queue marks as the recorded one did, without phase effects.

        Before a short queue without any jitter, ties repeat in every round trip, and who wins them decides a flow's
        course; the interrupts of real hosts break them.
        """
        path = changed(path, self.model.marking) if self.model.marking else path
        is_exact = path.jitter is None and not path.jitters_before and not path.policer
        is_short = path.buffer_bytes < const.SHORT_QUEUE * PACKET_BYTES
        return changed(path, {"jitter": f"normal:sd={const.INTERRUPT_US}us"}) if is_exact and is_short else path

    def _check(self, own: Controller) -> None:
        """Run the flow's own controller over the draws, and repeatedly over one path for the effect of chance alone."""
        recorded = self.model.recorded
        if len(self.model.ack_policies) > 1:
            self._ack_policy = self._fitted_ack_policy(own)
        if self._host_limits.send_buffer_bytes:
            self._host_limits = self._fitted_send_buffer(own)
        (self._original_runs,) = self._simulate(self.paths, [Question(own)])
        self.original = original = estimated(self._original_runs, {})
        wrong = [name for name in FIGURES if not is_reproduced(name, bounds(original[name])[0], recorded[name])]
        if wrong:
            (repeated,) = self._simulate([self._simulable(self.model.path)] * len(self.paths), [Question(own)])
            chance = estimated(repeated, {})
            wrong = [name for name in wrong if not bounds(chance[name])[1] <= recorded[name] <= bounds(chance[name])[2]]
        self.reproduces = not wrong
        if self._draw_factor > 1 and (wrong or self._varies_by_chance()) and self._keep_nearest(own, bool(wrong)):
            self.reproduces = True
            self.original = original = estimated(self._original_runs, {})
        self._misfit = {name: miss_beyond_interval(name, original[name], recorded[name]) for name in FIGURES}

    @property
    def misfit(self) -> float:
        """By how much the original missed goodput and RTT of the recording, beyond its intervals (logarithms)."""
        return self._misfit["goodput_bps"] + self._misfit["rtt_mean_us"]

    def _varies_by_chance(self) -> bool:
        """Return whether the original's goodput differs materially between draws."""
        assert self._original_runs is not None
        return float(np.log(self._original_runs["goodput_bps"]).std(ddof=1)) > GOODPUT_CHANGES

    def _keep_nearest(self, own: Controller, is_doubted: bool) -> bool:
        """Draw more paths and random numbers, and keep those whose original is closest to the recording.

        Return whether they were kept; if `is_doubted`, they are only if the figures of all match the recording. The
        effect of a cause depends on the random events of the recorded flow: one that happened to lose less than average
        gains less without losses. And if chance decides between two courses, no interval describes both.
        """
        assert self._original_runs is not None
        draws, first = len(self.paths), self._seeds[0]
        paths = [self._simulable(path) for path in plausible_paths(self.model.path, draws * self._draw_factor, first)]
        seeds = [first + k for k in range(len(paths))]
        known = draws if all(map(alike, paths, self.paths)) else 0  # draws may depend on their number
        (more,) = self._simulate(paths[known:], [Question(own)], seeds[known:])
        runs = {name: np.concatenate([self._original_runs[name][:known], values]) for name, values in more.items()}
        is_wrong = ~self._are_reproduced(runs) if is_doubted else np.zeros(len(paths), bool)
        if np.count_nonzero(~is_wrong) < draws:
            return False
        errors = [
            (to_log_scale(name, values) - to_log_scale(name, self.model.recorded[name])) / np.log1p(TOLERANCE[name])
            for name, values in runs.items()
            if name in TOLERANCE
        ]
        kept = np.sort(np.lexsort((np.hypot(*errors), is_wrong))[:draws])
        self.paths, self._seeds = [paths[k] for k in kept], [seeds[k] for k in kept]
        self._original_runs = {name: values[kept] for name, values in runs.items()}
        return True

    def _are_reproduced(self, runs: Columns) -> Bools:
        """Return in which runs all figures match the recording."""
        wanted = self.model.recorded
        return np.all(
            [[is_reproduced(name, value, wanted[name]) for value in values] for name, values in runs.items()], axis=0
        )

    def _fitted_ack_policy(self, own: Controller) -> dict[str, Any]:
        """Return the ACK policy whose goodput and RTT are closest to the recording."""
        plain = dict.fromkeys({name for acks in self.model.ack_policies for name in acks})
        tried = self._simulate(
            [self._simulable(self.model.path)], [Question(own, plain | acks) for acks in self.model.ack_policies]
        )
        return self.model.ack_policies[int(np.argmin([self._misfit_of(runs) for runs in tried]))]

    def _fitted_send_buffer(self, own: Controller) -> HostLimits:
        """Return the send buffer (and fq, if unknown) whose goodput and RTT match the recording."""
        most_bytes = float(self._host_limits.send_buffer_bytes or 0.0)
        tried: dict[tuple[bool, float], float] = {}  # {(fq, bytes): misfit}
        for fq in (False, True) if self._host_limits.fq is None else (self._host_limits.fq,):
            low, high = np.log(most_bytes / const.BUFFER_REACH_TIMES), np.log(most_bytes)
            for _ in range(const.BUFFER_ROUNDS):
                log_sizes, step = np.linspace(low, high, const.BUFFER_TRIALS, retstep=True)
                asked = [Question(own, {"send_buffer": f"{np.exp(size):.0f}B", "fq": fq}) for size in log_sizes]
                misfits = [self._misfit_of(runs) for runs in self._simulate([self._simulable(self.model.path)], asked)]
                best = float(log_sizes[int(np.argmin(misfits))])
                tried[fq, float(np.exp(best))] = min(misfits)
                low, high = best - step, best + step
        fq, size = min(tried, key=tried.__getitem__)
        return replace(self._host_limits, send_buffer_bytes=size, fq=fq)

    def _misfit_of(self, runs: Columns) -> float:
        """Return the distance of a run's goodput and RTT from the recording."""
        names = ("goodput_bps", "rtt_mean_us")
        return sum(float(abs(np.log(runs[name][0] / self.model.recorded[name]))) for name in names)

    def ask(self, questions: Mapping[str, Question]) -> dict[str, Answer]:
        """Return {name: Answer} of questions, all over the same paths with the same random numbers."""
        others = {name: question for name, question in questions.items() if not self.is_original(question)}
        runs = dict(zip(others, self._simulate(self.paths, list(others.values())), strict=True))
        if self._original_runs is not None:
            runs = dict.fromkeys(questions, self._original_runs) | runs
        return {name: self._answer(runs[name], question) for name, question in questions.items()}

    def is_original(self, question: Question) -> bool:
        """Return whether a question changes nothing: the recording is reproduced without what it would remove."""
        own = self.model.controller
        if self._original_runs is None or own is None or self.senders(question) != self.senders(Question(own)):
            return False
        return all(alike(question.change(path), path) for path in self.paths)

    def _answer(self, runs: Columns, question: Question) -> Answer:
        answer = Answer(
            estimated(runs, self._misfit),
            None if self._original_runs is None else difference(runs, self._original_runs, self._misfit),
        )
        for figures in answer:
            if figures:
                self._open_bounds(figures, runs, question)
        return answer

    def _open_bounds(self, answer: Figures, runs: Columns, question: Question) -> None:
        """Remove interval bounds that the capture does not support."""
        hosts, bounded = question.hosts, self.model.path.estimates["undetermined"]
        limited = self._host_limits.sender_options(hosts).keys() & {"app", "max_pacing_rate", "send_buffer"}
        # Behind a policer, a lack of data cannot be observed; nor a policer of a paced flow, which never lacks tokens.
        has_policer, is_paced = self.model.path.policer is not None, self._host_limits.pacing_bps is not None
        is_freed = has_policer and question.change(self.paths[0]).policer is None
        may_lack = self._host_limits.may_lack_data or (is_freed and self._host_limits.app is None)
        may_lack &= hosts.get("app") != "bulk"  # data are available at all times
        may_lack |= is_paced and "pacing" in hosts and not has_policer and "rate" not in bounded
        if may_lack and self._delivers_more(runs):
            answer["goodput_bps"] = answer["goodput_bps"]._replace(low=None)
            answer["rtt_mean_us"] = answer["rtt_mean_us"]._replace(low=None)
        if "rate" in bounded and (not limited or hosts.get("app") == "bulk"):
            # A path that was never filled may be faster.
            answer["goodput_bps"] = answer["goodput_bps"]._replace(high=None)
        if not self.model.losses_captured:
            answer[SHARE] = answer[SHARE]._replace(high=None)
        if "buffer" in bounded and self._grows_with_buffer(runs):
            answer["rtt_mean_us"] = answer["rtt_mean_us"]._replace(high=None)

    def _grows_with_buffer(self, runs: Columns) -> bool:
        """Return whether RTTs are longer over larger buffers: in all runs, or in those that fill the path.

        Where losses or chance keep a run's queue empty, its buffer does not matter.
        """
        goodput, by_buffer = runs["goodput_bps"], np.argsort([path.buffer_bytes for path in self.paths], kind="stable")
        fills = by_buffer[goodput[by_buffer] > (1 - TOLERANCE["goodput_bps"]) * goodput.max()]
        for rtt_us in (runs["rtt_mean_us"][rows] for rows in (by_buffer, fills)):
            half = len(rtt_us) // 2
            if half and np.median(rtt_us[half:]) > const.OPEN_ENDED_TIMES * np.median(rtt_us[:half]):
                return True
        return False

    def _delivers_more(self, runs: Columns) -> bool:
        """Return whether more is delivered than by the flow's own controller over the inferred path."""
        if self._original_runs is None:
            return False
        return bool(np.median(np.log(runs["goodput_bps"] / self._original_runs["goodput_bps"])) > GOODPUT_CHANGES)

    def senders(self, question: Question) -> list[Sender]:
        """Return a question's sender, and the other flows'."""
        given = {name: value for name, value in question.hosts.items() if name not in OPTIONS}
        ecn = self.model.ecn if controller(question.controller)[0].view != "quic" else False  # QUIC stacks ignore ECN
        common = {"hz": self.model.hz, "ecn": ecn, "start": f"{self.model.head_start_s:.1f}s"}
        options = {**self._ack_policy, **common, **self._host_limits.sender_options(question.hosts), **given}
        return [Sender(question.controller, **options), *(() if question.is_alone else self.model.other_senders)]

    def _simulated_s(self, question: Question, path: Path) -> float:
        """Return how long the flow is simulated: as long as it lasted, or less if it is to have data at all times.

        A connection that was idle for hours would otherwise fill the path for hours; see `SHORTENED`.
        """
        if question.hosts.get("app") != "bulk":
            return self.model.duration_s
        enough_s = const.MAX_SEGMENTS * PACKET_BYTES * 8 / question.change(path).max_rate_bps()
        return min(max(enough_s, const.LONGEST_S), self.model.duration_s)

    def _simulate(
        self, paths: Sequence[Path], questions: Sequence[Question], seeds: Sequence[int] | None = None
    ) -> list[Columns]:
        """Return {figure: value per path} of each question; all runs form one batch."""
        if not questions:
            return []
        rows = []
        seeds = self._seeds if seeds is None else seeds
        flow_s = np.array([[self._simulated_s(question, path) for path in paths] for question in questions])
        if (flow_s < self.model.duration_s).any() and SHORTENED not in self.not_excluded:
            self.not_excluded.append(SHORTENED)
        try:
            runs = [
                Run(
                    question.change(path),
                    (replace(first, kernel=RELEASES[seed % 2]), *_with_rtts_drawn(others, path, seed)),
                    f"{self.model.head_start_s + duration_s:.3f}s",
                    seed,
                )
                for question, durations_s in zip(questions, flow_s, strict=True)
                for first, *others in [self.senders(question)]
                for path, seed, duration_s in zip(paths, seeds, durations_s, strict=False)
            ]
            for k, outcome in enumerate(batch(runs), 1):
                self._progress(f"simulation {k} of {len(runs)} over the inferred path")
                rows.append([float(outcome.flows[0][column]) for column in FIGURES.values()])
        except ArgumentError as error:
            raise FitError(f"the inferred path cannot be simulated: {error}") from None
        figures = np.array(rows).reshape(len(questions), len(paths), len(FIGURES))
        figures[..., 0] *= (self.model.head_start_s + flow_s) / flow_s  # goodput from the flow's own start on
        if not np.isfinite(figures).all() or (figures[..., :2] <= 0).any():
            raise FitError("over the inferred path nothing is delivered")
        return [dict(zip(FIGURES, of_question.T, strict=True)) for of_question in figures]


def _with_rtts_drawn(others: Sequence[Sender], path: Path, seed: int) -> list[Sender]:
    """Return the other flows with RTTs that differ at random by up to the transmission time of a packet.

    They are not known more precisely, and such a difference decides whose packets a full queue drops, and thereby the
    flows' shares.
    """
    packet_us = PACKET_BYTES * 8e6 / path.max_rate_bps()
    errors_us = np.random.default_rng(seed).uniform(-packet_us, packet_us, len(others))
    return [
        sender if sender.rtt_ns is None else replace(sender, rtt=f"{max(sender.rtt_ns / 1e3 + error_us, 1.0):.1f}us")
        for sender, error_us in zip(others, errors_us, strict=True)
    ]


def plausible_paths(path: FittedPath, draws: int, seed: int) -> list[Path]:
    """Return paths drawn from a fit's uncertainty.

    A queue that never overflowed may hold up to ten bandwidth-delay products, or ten times its longest backlog if
    that is more: a flow without a queue does not reveal its size. Its sizes are drawn evenly in the logarithm, both
    ends included: half of a queue that its backlog just filled overflows, half of any longer one may not.
    """
    paths = path.draws(draws, seed)
    least_bytes = path.estimates["buffer_bytes"].low
    if "buffer" not in path.estimates["undetermined"] or not least_bytes:
        return paths
    bdp_bytes = path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    reach = max(BOUND_REACH, const.MAX_BDP * bdp_bytes / least_bytes)
    powers = np.random.default_rng(seed).permutation(np.linspace(0.0, 1.0, draws))
    sizes = [f"{least_bytes * reach**power:.0f}B" for power in powers]
    return [changed(drawn, {"buffer": size}) for drawn, size in zip(paths, sizes, strict=True)]
