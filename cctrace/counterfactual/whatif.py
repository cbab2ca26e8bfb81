"""What if another controller had sent this flow, or its path had been different?

    1. infer     the path, by `fit.path`, with draws from its uncertainty; the sender, by `identify`
    2. check     simulate the flow's own controller over these paths: is the recording reproduced?
    3. predict   simulate the candidates over the same draws with the same random numbers (common random numbers)

Other flows that share the bottleneck in the capture are simulated, not replayed: they react. What the capture
cannot exclude is listed in `WhatIf.not_excluded` and opens the interval on one side.

    flow_model      the recording: path, sender, host limits, competing flows
    path_changes    changes of the path; `diagnosis.remedies` derives them from a diagnosis
    runs            the simulations
    figures         figures and their intervals
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cctrace.arguments import as_list, check_progress, whole
from cctrace.cc import called
from cctrace.cc import controller as resolve
from cctrace.counterfactual import constants as const
from cctrace.counterfactual.figures import FIGURES, frame_of, in_words
from cctrace.counterfactual.flow_model import model_of
from cctrace.counterfactual.path_changes import check_changes
from cctrace.counterfactual.runs import Question, Runs
from cctrace.diagnosis import remedies
from cctrace.display import Jsonable, Progress, Summarized, plain, silent
from cctrace.errors import ArgumentError
from cctrace.estimates import Estimate, ranged
from cctrace.path.transmissions import as_flow
from cctrace.units import format_rate, format_share, format_time

if TYPE_CHECKING:
    import pandas as pd

    from cctrace.counterfactual.flow_model import Controller
    from cctrace.diagnosis.diagnose import Diagnosis
    from cctrace.fit.fitted_path import FittedPath
    from cctrace.flows.flow import Flow
    from cctrace.sim.result import Simulation

    Figures = dict[str, Estimate]


@dataclasses.dataclass(frozen=True, repr=False)
class WhatIf(Summarized, Jsonable):
    """Result of a what-if.

    Attributes
    ----------
    recorded : dict
        ``goodput_bps``, ``rtt_mean_us`` and ``retransmitted_share`` of the flow as captured.
    own : str or None
        The sender's controller; None if unknown.
    original : dict or None
        The same figures of `own` over the inferred path: `Estimate`, 90 % prediction intervals.
    reproduces : bool
        Whether these match the recording: within 10 % of the goodput, 20 % of the mean RTT, a factor of 2 or 0.3
        points of the retransmitted share; or within the scatter of runs over one path. If not, the inferred path is
        wrong, and the candidates' figures are not advice.
    candidates : dict
        {name: figures}.
    differences : dict
        {name: figures}: difference of a candidate to the original over the same paths with the same random numbers;
        goodput and RTT relative (0.1: a tenth more), the retransmitted share absolute. Empty without `own`.
    path : FittedPath
        The inferred path.
    changed : dict
        Changes of the path, as given.
    not_excluded : list of str
        What the capture cannot exclude, in words.

    Examples
    --------
    >>> import cctrace as cct
    >>> path = cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp", loss="1%")
    >>> sim = cct.simulate(path, ["cubic6"], "4s", seed=1, packets=True)
    >>> answer = cct.whatif(sim, ["reno"], draws=3)
    >>> list(answer.candidates), sorted(answer.candidates["reno"])
    (['reno'], ['goodput_bps', 'retransmitted_share', 'rtt_mean_us'])
    """

    card_title = "What would have happened"

    recorded: dict[str, float]
    own: str | None
    original: Figures | None
    reproduces: bool
    candidates: dict[str, Figures]
    differences: dict[str, Figures]
    path: FittedPath
    changed: dict[str, Any]
    not_excluded: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the output of `cctrace whatif --json` for a flow."""
        named = ("recorded", "own", "original", "reproduces", "candidates", "differences", "changed", "not_excluded")
        recorded = {name: Estimate(value, value, value) for name, value in self.recorded.items()}
        return plain({name: getattr(self, name) for name in named} | {"recorded": recorded})

    def rows(self) -> list[tuple[str, Figures]]:
        """Return (sender, {figure: Estimate}) of the recording, the original, and every candidate."""
        rows = [("recorded", {name: Estimate(value) for name, value in self.recorded.items()})]
        if self.original:
            rows.append((f"{self.own} simulated", self.original))
        return rows + list(self.candidates.items())

    def frame(self) -> pd.DataFrame:
        """Return the answer as a DataFrame: a row per sender, value and interval of each figure."""
        return frame_of((sender, {name: figures[name] for name in FIGURES}) for sender, figures in self.rows())

    def advice(self) -> dict[str, str]:
        """Return a sentence per candidate on what would change; "" if the inferred path is not trusted."""
        if not self.reproduces:
            return dict.fromkeys(self.candidates, "")
        return {name: in_words(differ) for name, differ in self.differences.items()}

    def lines(self) -> list[str]:
        """Return a summary: a line per candidate, or the reason why there is no advice."""
        lines = [f"what if {name}: {text}" for name, text in self.advice().items() if text]
        return lines or [f"what if: {self.trust()}"]

    def trust(self) -> str:
        """Return in words whether the figures can be trusted."""
        if self.reproduces:
            return "the inferred path reproduces the recording"
        if self.original:
            return "the inferred path does NOT reproduce the recording: the figures above are no advice"
        return "which controller sent this flow is unknown, so nothing shows that the path is understood: no advice"

    def summary(self) -> str:
        """Return the result as text; a candidate that is the flow's own, over the same path, has no line of its own."""
        same = self.own if self.original and not self.changed else None
        lines = [_line(name, figures) for name, figures in self.rows() if name != same]
        lines.append(self.trust())
        lines += [f"{name}: {text}" for name, text in self.advice().items() if text and name != same]
        return "\n".join(lines + [f"not excluded: {text}" for text in self.not_excluded])


def whatif(
    flow: Flow | Simulation,
    candidates: Controller | Sequence[Controller] = (),
    *,
    own: Controller | None = None,
    draws: int = const.DRAWS,
    seed: int = 1,
    progress: Progress = silent,
    **changes: Any,
) -> WhatIf:
    """Simulate other controllers, or another path, in place of a captured flow's.

    Parameters
    ----------
    flow : Flow or Simulation
        Of a capture (or of a simulation with ``packets=True``).
    candidates : str, class or sequence of these
        Controllers, by name or your own classes; of a changed path by default the flow's own.
    own : str or class, optional
        The sender's controller; by default identified.
    draws : int
        Number of paths drawn from the fit's uncertainty; each is a run per candidate.
    seed : int
        The same seed gives the same numbers.
    progress : callable
        Receives lines of progress.
    **changes
        Of the path: ``rate``, ``rtt``, ``buffer``, ``jitter``, ``loss``, ``aqm``, as `Path` takes them, or ``"x2"``
        for a factor. Of the hosts: ``rwnd``, the receive window, ``"2MB"``, or ``"x4"`` for a multiple of the
        largest seen; ``app``, as `cctrace.Sender` takes it; ``pacing`` (SO_MAX_PACING_RATE) and ``send_buffer``
        (SO_SNDBUF), ``"none"``, a value or a factor; ``fq``, True or False. Everything else stays as in the flow.

    Raises
    ------
    ArgumentError
        For an unknown controller or change.
    FitError
        If the path cannot be inferred, or if the application limited the flow and its writes show no pattern.
    StreamError
        If the capture lacks one direction.

    Returns
    -------
    WhatIf
        `frame()` has a row for the recording and one per candidate: goodput, mean RTT and retransmitted share, with
        90 % intervals.

    Examples
    --------
    >>> import cctrace as cct
    >>> path = cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp", loss="1%")
    >>> sim = cct.simulate(path, ["cubic6"], "4s", seed=1, packets=True)
    >>> answer = whatif(sim, ["bbr3"], draws=3)
    >>> goodput = answer.frame()["goodput_bps"]
    >>> list(goodput.index), bool(goodput["bbr3"] > 2 * goodput["recorded"])
    (['recorded', 'cubic6 simulated', 'bbr3'], True)
    """
    candidates = as_list(candidates)
    for spec in [*candidates, *([] if own is None else [own])]:
        resolve(spec)
    names = [called(spec) for spec in candidates]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ArgumentError(f"candidates: {twice[0]!r} is given twice; each needs a name of its own")
    if not candidates and not changes:
        raise ArgumentError(f"candidates={candidates}: name a controller, or a change of the path, such as buffer='x2'")
    check_changes(changes)
    draws, seed = whole("draws", draws, const.MIN_DRAWS, const.MAX_DRAWS), whole("seed", seed)
    check_progress(progress)
    model = model_of(as_flow(flow), own, None, progress)
    asked = candidates or ([model.controller] if model.controller and changes else [])
    runs = Runs(model, draws, seed, progress)
    return answer(runs, {called(spec): (spec, changes) for spec in asked}, changes)


def what_would_help(flow: Flow, diagnosis: Diagnosis, own: Controller | None, progress: Progress) -> WhatIf:
    """Return the effect of following a diagnosis's advice: the answers to `remedies.questions`.

    `own`: the sender's controller; None: identify it. Raises `FitError` and `StreamError` as `whatif` does.
    """
    model = model_of(flow, own, diagnosis, progress)
    return answer(Runs(model, const.DRAWS, 1, progress), remedies.questions(diagnosis, model.controller))


def answer(
    runs: Runs, questions: Mapping[str, tuple[Controller, dict[str, Any]]], changes: Mapping[str, Any] | None = None
) -> WhatIf:
    """Return the `WhatIf` of a model's runs.

    `questions`: name of the answer: controller and changes of the path. `changes`: common changes of all questions.
    """
    answers = runs.ask({name: Question.of(*asked) for name, asked in questions.items()})
    candidates = {name: answer.figures for name, answer in answers.items()}
    differences = {name: answer.difference for name, answer in answers.items() if answer.difference}
    model = runs.model
    own = None if model.controller is None else called(model.controller)
    checked = model.recorded, own, runs.original, runs.reproduces
    return WhatIf(*checked, candidates, differences, model.path, dict(changes or {}), runs.not_excluded)


def cells(figures: Figures) -> list[str]:
    """Return goodput, mean RTT and retransmitted share as text, each with its interval.

    >>> share = Estimate(0.01, 0.0, 0.02)
    >>> cells({"goodput_bps": Estimate(9e6, 8e6), "rtt_mean_us": Estimate(4e4), "retransmitted_share": share})
    ['9 Mbit/s (8 Mbit/s or more)', '40 ms', '1 % (0 % to 2 %)']
    """
    forms = (format_rate, lambda us: format_time(us * 1e3), format_share)
    texts = []
    for form, name in zip(forms, FIGURES, strict=True):
        _, *ends = figures[name]
        texts.append(ranged(form(figures[name].number), *(None if end is None else form(end) for end in ends)))
    return texts


def _line(name: str, figures: Figures) -> str:
    goodput, rtt, share = cells(figures)
    return f"{name:24s} {goodput}, RTT {rtt}, {share} retransmitted"
