"""Simulations of a what-if: first the flow's own controller, as a check, then others over the same drawn paths.

One `Runs` answers all questions about a flow:

    runs = Runs(scene, draws, seed)
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
from cctrace.counterfactual.figures import FIGURES, NEAR, SHARE, difference, estimated, log, missed, near, sides
from cctrace.counterfactual.held_back import OPTIONS, HeldBack
from cctrace.counterfactual.questions import alike, changed
from cctrace.counterfactual.scene import Controller, Scene
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

# Linux of both hosts, in turn by seed: a capture shows the release too seldom, and how it cuts super-packets
# may decide on which of two courses a flow over a short queue settles.
RELEASES = "6.18", "6.12"
Figures = dict[str, Estimate]
SHORTENED = "what a flow that always had data would meet later: a million segments of it, or 20 s, are simulated"


@dataclass(frozen=True)
class Question:
    """A controller over the drawn paths, with changes of the paths and hosts."""

    controller: Controller
    # changes of `HeldBack.options`, and options of a `cctrace.Sender`
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
    differ: Figures | None


class Runs:
    """Runs over paths drawn from a scene's uncertainty.

    `draws`: number of paths. `tries`: if chance decides the own controller's goodput, draw this many times as many
    paths and keep those closest to the recording: 1 predicts the next such flow, larger values concern the recorded
    one.

    Attributes are `paths` (as drawn), `original` ({figure: Estimate} of the flow's own controller, None if that is
    unknown), `reproduces`: whether that matches the recording, within the bounds of predictions, or within 90 % of
    the scatter of runs of the same controller over one path; and `not_excluded`: the scene's, and for how long a flow
    was simulated that was to have data at all times, if that is less than it lasted.
    """

    def __init__(self, scene: Scene, draws: int, seed: int, progress: Progress = silent, tries: int = 1) -> None:
        self.scene, self._progress, self._tries = scene, progress, tries
        self.paths = [self._prepared(path) for path in plausible(scene.path, draws, seed)]
        self._seeds = [seed + k for k in range(draws)]
        self._held, self._acks = scene.held, scene.acks[0]
        self.original: Figures | None = None
        self.reproduces = False
        self.not_excluded = list(scene.not_excluded)
        self._own: Columns | None = None
        self._misfit: dict[str, float] = {}
        if scene.own:
            self._check(scene.own)

    def _prepared(self, path: Path) -> Path:
        """Return a path whose queue marks as the recorded one did, without phase effects.

        In front of a short queue that never varies, ties repeat with every round trip, and who wins them decides a
        flow's course; the interrupts of real hosts break them.
        """
        path = changed(path, self.scene.marking) if self.scene.marking else path
        is_exact = path.jitter is None and not path.jitters_before and not path.policer and not path.shaper
        short = path.buffer_bytes < const.SHORT_QUEUE * PACKET_BYTES
        return changed(path, {"jitter": f"normal:sd={const.INTERRUPT_US}us"}) if is_exact and short else path

    def _check(self, own: Controller) -> None:
        """Run the flow's own controller over the draws, and repeatedly over one path for the effect of chance alone."""
        recorded = self.scene.recorded
        if len(self.scene.acks) > 1:
            self._acks = self._likeliest_acks(own)
        if self._held.send_buffer_bytes:
            self._held = self._with_send_buffer(own)
        (self._own,) = self._over(self.paths, [Question(own)])
        self.original = original = estimated(self._own, {})
        off = [name for name in FIGURES if not near(name, sides(original[name])[0], recorded[name])]
        if off:
            (again,) = self._over([self._prepared(self.scene.path)] * len(self.paths), [Question(own)])
            chance = estimated(again, {})
            off = [name for name in off if not sides(chance[name])[1] <= recorded[name] <= sides(chance[name])[2]]
        self.reproduces = not off
        if self._tries > 1 and (off or self._is_by_chance()) and self._keep_nearest(own, bool(off)):
            self.reproduces = True
            self.original = original = estimated(self._own, {})
        self._misfit = {name: missed(name, original[name], recorded[name]) for name in FIGURES}

    @property
    def misfit(self) -> float:
        """By how much the original missed goodput and RTT of the recording, beyond its intervals (logarithms)."""
        return self._misfit["goodput_bps"] + self._misfit["rtt_mean_us"]

    def _is_by_chance(self) -> bool:
        """Return whether the original's goodput differs materially between draws."""
        assert self._own is not None
        return float(np.log(self._own["goodput_bps"]).std(ddof=1)) > GOODPUT_CHANGES

    def _keep_nearest(self, own: Controller, is_doubted: bool) -> bool:
        """Draw more paths and random numbers, and keep those whose original is closest to the recording.

        Return whether they are kept: if `is_doubted`, only if all of them have the figures of the recording.
        Chance may decide between two courses, so that no interval describes them.

        The effect of a cause on the recorded flow depends on its random events: a flow that happened to lose less
        than average gains less without losses.
        """
        assert self._own is not None
        draws, first = len(self.paths), self._seeds[0]
        paths = [self._prepared(path) for path in plausible(self.scene.path, draws * self._tries, first)]
        seeds = [first + k for k in range(len(paths))]
        known = draws if all(map(alike, paths, self.paths)) else 0  # the first of them, unless they depend on how many
        (more,) = self._over(paths[known:], [Question(own)], seeds[known:])
        runs = {name: np.concatenate([self._own[name][:known], values]) for name, values in more.items()}
        unlike = ~self._alike(runs) if is_doubted else np.zeros(len(paths), bool)
        if np.count_nonzero(~unlike) < draws:
            return False
        off = [
            (log(name, values) - log(name, self.scene.recorded[name])) / np.log1p(NEAR[name])
            for name, values in runs.items()
            if name in NEAR
        ]
        kept = np.sort(np.lexsort((np.hypot(*off), unlike))[:draws])
        self.paths, self._seeds = [paths[k] for k in kept], [seeds[k] for k in kept]
        self._own = {name: values[kept] for name, values in runs.items()}
        return True

    def _alike(self, runs: Columns) -> Bools:
        """Return which runs have all figures of the recording."""
        wanted = self.scene.recorded
        return np.all([[near(name, one, wanted[name]) for one in values] for name, values in runs.items()], axis=0)

    def _likeliest_acks(self, own: Controller) -> dict[str, Any]:
        """Return the ACK policy whose goodput and RTT are closest to the recording."""
        plain = dict.fromkeys({name for acks in self.scene.acks for name in acks})
        tried = self._over([self._prepared(self.scene.path)], [Question(own, plain | acks) for acks in self.scene.acks])
        return self.scene.acks[int(np.argmin([self._unlike(runs) for runs in tried]))]

    def _with_send_buffer(self, own: Controller) -> HeldBack:
        """Return the send buffer (and fq, if unknown) whose goodput and RTT match the recording."""
        most = float(self._held.send_buffer_bytes or 0.0)
        tried: dict[tuple[bool, float], float] = {}
        for fq in (False, True) if self._held.fq is None else (self._held.fq,):
            low, high = np.log(most / const.BUFFER_REACH), np.log(most)
            for _ in range(const.BUFFER_ROUNDS):
                sizes, step = np.linspace(low, high, const.BUFFER_TRIALS, retstep=True)
                asked = [Question(own, {"send_buffer": f"{np.exp(size):.0f}B", "fq": fq}) for size in sizes]
                unlike = [self._unlike(runs) for runs in self._over([self._prepared(self.scene.path)], asked)]
                best = float(sizes[int(np.argmin(unlike))])
                tried[fq, float(np.exp(best))] = min(unlike)
                low, high = best - step, best + step
        fq, size = min(tried, key=lambda one: tried[one])
        return replace(self._held, send_buffer_bytes=size, fq=fq)

    def _unlike(self, runs: Columns) -> float:
        """Return the distance of a run's goodput and RTT from the recording."""
        names = ("goodput_bps", "rtt_mean_us")
        return sum(float(abs(np.log(runs[name][0] / self.scene.recorded[name]))) for name in names)

    def ask(self, questions: Mapping[str, Question]) -> dict[str, Answer]:
        """Return {name: Answer} of questions, all over the same paths with the same random numbers."""
        others = {name: question for name, question in questions.items() if not self.is_original(question)}
        runs = dict(zip(others, self._over(self.paths, list(others.values())), strict=True))
        if self._own is not None:
            runs = dict.fromkeys(questions, self._own) | runs
        return {name: self._answer(runs[name], question) for name, question in questions.items()}

    def is_original(self, question: Question) -> bool:
        """Return whether a question changes nothing: the recording is reproduced without what it would remove."""
        own = self.scene.own
        if self._own is None or own is None or self.senders(question) != self.senders(Question(own)):
            return False
        return all(alike(question.change(path), path) for path in self.paths)

    def _answer(self, runs: Columns, question: Question) -> Answer:
        figures = estimated(runs, self._misfit)
        differ = None if self._own is None else difference(runs, self._own, self._misfit)
        for found in (figures, differ or {}):
            self._unbound(found, runs, question)
        return Answer(figures, differ)

    def _unbound(self, answer: Figures, runs: Columns, question: Question) -> None:
        """Remove interval bounds that the capture does not support."""
        if not answer:
            return
        hosts, bounded = question.hosts, self.scene.path.estimates["undetermined"]
        limited = self._held.options(hosts).keys() & {"app", "max_pacing_rate", "send_buffer"}
        # Behind a policer, a lack of data cannot be observed; nor a policer of a paced flow, which never lacks tokens.
        has_policer, is_paced = self.scene.path.policer is not None, self._held.pacing_bps is not None
        is_freed = has_policer and question.change(self.paths[0]).policer is None
        may_lack = self._held.may_lack_data or (is_freed and self._held.app is None)
        may_lack &= hosts.get("app") != "bulk"  # data are available at all times
        may_lack |= is_paced and "pacing" in hosts and not has_policer and "rate" not in bounded
        if may_lack and self._is_more(runs):
            answer["goodput_bps"] = answer["goodput_bps"]._replace(low=None)
            answer["rtt_mean_us"] = answer["rtt_mean_us"]._replace(low=None)
        if "rate" in bounded and (not limited or hosts.get("app") == "bulk"):
            # A path that was never filled may be faster.
            answer["goodput_bps"] = answer["goodput_bps"]._replace(high=None)
        if not self.scene.complete:
            answer[SHARE] = answer[SHARE]._replace(high=None)
        if "buffer" in bounded and self._grows_with_buffer(runs):
            answer["rtt_mean_us"] = answer["rtt_mean_us"]._replace(high=None)

    def _grows_with_buffer(self, runs: Columns) -> bool:
        """Return whether longer queues have longer RTTs, or would have if no drawn loss, or chance, kept them empty."""
        goodput, longer = runs["goodput_bps"], np.argsort([path.buffer_bytes for path in self.paths], kind="stable")
        fills = longer[goodput[longer] > (1 - NEAR["goodput_bps"]) * goodput.max()]
        for rtt in (runs["rtt_mean_us"][kept] for kept in (longer, fills)):
            half = len(rtt) // 2
            if half and np.median(rtt[half:]) > const.OPEN_ENDED * np.median(rtt[:half]):
                return True
        return False

    def _is_more(self, runs: Columns) -> bool:
        """Return whether more is delivered than by the flow's own controller over the inferred path."""
        if self._own is None:
            return False
        return bool(np.median(np.log(runs["goodput_bps"] / self._own["goodput_bps"])) > GOODPUT_CHANGES)

    def senders(self, question: Question) -> list[Sender]:
        """Return a question's sender, and the other flows'."""
        hosts = {name: value for name, value in question.hosts.items() if name not in OPTIONS}
        ecn = self.scene.ecn if controller(question.controller)[0].view != "quic" else False  # no such stack has it
        ours = {"hz": self.scene.hz, "ecn": ecn, "start": f"{self.scene.ahead_s:.1f}s"}
        options = {**self._acks, **ours, **self._held.options(question.hosts), **hosts}
        return [Sender(question.controller, **options), *(() if question.is_alone else self.scene.others)]

    def _flow_s(self, question: Question, path: Path) -> float:
        """Return how long the flow is simulated: as long as it lasted, or less if it is to have data at all times.

        A connection that was idle for hours would otherwise fill the path for hours; see `SHORTENED`.
        """
        if question.hosts.get("app") != "bulk":
            return self.scene.duration_s
        enough_s = const.MAX_SEGMENTS * PACKET_BYTES * 8 / question.change(path).max_rate_bps()
        return min(max(enough_s, const.LONGEST_S), self.scene.duration_s)

    def _over(
        self, paths: Sequence[Path], questions: Sequence[Question], seeds: Sequence[int] | None = None
    ) -> list[Columns]:
        """Return {figure: value per path} of each question; all runs form one batch."""
        if not questions:
            return []
        rows = []
        seeds = self._seeds if seeds is None else seeds
        flow_s = np.array([[self._flow_s(question, path) for path in paths] for question in questions])
        if (flow_s < self.scene.duration_s).any() and SHORTENED not in self.not_excluded:
            self.not_excluded.append(SHORTENED)
        try:
            runs = [
                Run(
                    question.change(path),
                    (replace(first, kernel=RELEASES[seed % 2]), *_as_known(others, path, seed)),
                    f"{self.scene.ahead_s + lasting_s:.3f}s",
                    seed,
                )
                for question, lasting in zip(questions, flow_s, strict=True)
                for first, *others in [self.senders(question)]
                for path, seed, lasting_s in zip(paths, seeds, lasting, strict=False)
            ]
            for k, outcome in enumerate(batch(runs), 1):
                self._progress(f"simulation {k} of {len(runs)} over the inferred path")
                rows.append([float(outcome.flows[0][column]) for column in FIGURES.values()])
        except ArgumentError as error:
            raise FitError(f"the inferred path cannot be simulated: {error}") from None
        figures = np.array(rows).reshape(len(questions), len(paths), len(FIGURES))
        figures[..., 0] *= (self.scene.ahead_s + flow_s) / flow_s  # goodput while the flow is there
        if not np.isfinite(figures).all() or (figures[..., :2] <= 0).any():
            raise FitError("over the inferred path nothing is delivered")
        return [dict(zip(FIGURES, of_one.T, strict=True)) for of_one in figures]


def _as_known(others: Sequence[Sender], path: Path, seed: int) -> list[Sender]:
    """Return the other flows with RTTs drawn from what is known of them: to a packet's time at the bottleneck.

    So much decides whose packets a full queue drops, and thereby the shares of a run.
    """
    reach_us = PACKET_BYTES * 8e6 / path.max_rate_bps()
    off_us = np.random.default_rng(seed).uniform(-reach_us, reach_us, len(others))
    return [
        one if one.rtt_ns is None else replace(one, rtt=f"{max(one.rtt_ns / 1e3 + off, 1.0):.1f}us")
        for one, off in zip(others, off_us, strict=True)
    ]


def plausible(path: FittedPath, draws: int, seed: int) -> list[Path]:
    """Return paths drawn from a fit's uncertainty.

    A queue that never overflowed may hold up to ten bandwidth-delay products, or ten times its longest backlog if
    that is more: a flow without a queue does not reveal its size. Its sizes are drawn evenly in the logarithm, both
    ends included: half of a queue that its backlog just filled overflows, half of any longer one may not.
    """
    paths = path.draws(draws, seed)
    least = path.estimates["buffer_bytes"].low
    if "buffer" not in path.estimates["undetermined"] or not least:
        return paths
    bdp = path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    reach = max(BOUND_REACH, const.MAX_BDP * bdp / least)
    powers = np.random.default_rng(seed).permutation(np.linspace(0.0, 1.0, draws))
    return [changed(one, {"buffer": f"{least * reach**power:.0f}B"}) for one, power in zip(paths, powers, strict=True)]
