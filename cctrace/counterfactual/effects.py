"""The cost of each cause of a diagnosis: a flow's model simulated with and without it, over the same random draws.

    found = effects_of(flow, diagnosis, "cubic6")
    found.causes["random_loss"].effect          goodput and RTT without random loss, relative to those with it
    found.joined(diagnosis, goal="goodput")     the diagnosis, with its verdicts ordered by effect

`counterfactual.candidates` selects the causes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.cc import called
from cctrace.counterfactual import constants as effort
from cctrace.counterfactual.candidates import (
    A_FULL_QUEUE,
    ACKS_AS_DUE,
    doubtful_verdicts,
    host_limit_verdicts,
    removals,
)
from cctrace.counterfactual.figures import FIGURES, SHARE, frame_of, in_words
from cctrace.counterfactual.flow_model import model_of
from cctrace.counterfactual.polled_flow_model import model_of_polls
from cctrace.counterfactual.runs import Question, Runs
from cctrace.counterfactual.whatif import cells
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.catalogue import CAUSES
from cctrace.diagnosis.findings import Effect, Finding, Verdict, shares
from cctrace.diagnosis.order import by_effect, is_remedy, matters, verdict_of
from cctrace.display import Jsonable, Progress, Summarized, plain, silent
from cctrace.errors import FitError
from cctrace.estimates import Estimate, outermost
from cctrace.flows.counters import CounterFlow
from cctrace.flows.flow import Flow

if TYPE_CHECKING:
    import pandas as pd

    from cctrace.counterfactual.candidates import Removals
    from cctrace.counterfactual.flow_model import Controller, FlowModel
    from cctrace.counterfactual.interventions import Intervention
    from cctrace.diagnosis.diagnose import Diagnosis

    Figures = dict[str, Estimate]

OF_ACKS = {"ack_thinning", "ack_aggregation", "ack_compression"}  # causes on the way of the ACKs
NO_MORE_DATA = "an application that had little more to send than it sent: what delayed its data would hide that"
# Each of these alone can determine a flow's rate.
LIMITS = {
    "receiver_limited",
    "window_limited",
    "send_buffer_limited",
    "application_limited",
    "pacing_limited",
    "policer",
    "random_loss",
}


@dataclass(frozen=True)
class Without:
    """A removed cause: figures of the flow's own controller without it, and their difference to those with it.

    Attributes
    ----------
    figures : dict of str to Estimate
        Of the flow's own controller without the cause: ``goodput_bps``, ``rtt_mean_us``, ``retransmitted_share``.
    effect : Effect
        Their difference to those with it.
    """

    figures: Figures
    effect: Effect


def effect_words(effect: Effect) -> str:
    """Return an effect in words.

    >>> from cctrace.estimates import Estimate90
    >>> ratio, same = Estimate90(3.2, 2.9, None), Estimate90(1.0, 0.99, 1.01)
    >>> effect_words(Effect("no policer", ratio, same, Estimate90(-0.01, -0.012, -0.008)))
    'with no policer: 3.2 times the goodput (2.9 or more), about the same RTT (-1 to +1 %), 1 point fewer retransmissions (0.8 to 1.2)'
    """  # noqa: E501
    goodput, rtt = effect.goodput.shifted(-1), effect.rtt.shifted(-1)
    differ = {"goodput_bps": goodput, "rtt_mean_us": rtt, SHARE: effect.retransmitted}
    text = f"with {effect.without}: {in_words(differ)}"
    if effect.without_both is None:
        return text
    both = in_words(differ | {"goodput_bps": effect.without_both.shifted(-1)}).split(",")[0]
    return f"{text}; then limited by {CAUSES[effect.then].words}, and without that, too, {both}"


@dataclass(frozen=True, repr=False)
class Effects(Summarized, Jsonable):
    """Effects of removing each cause.

    Attributes
    ----------
    recorded : dict of str to float
        ``goodput_bps``, ``rtt_mean_us`` and ``retransmitted_share`` (0 to 1) of the flow as captured.
    own : str
        The sender's controller, or its candidates.
    original : dict of str to Estimate
        The same figures of `own` over the inferred path: `Estimate`, 90 % prediction intervals.
    causes : dict of str to Without
        By cause.
    unanswered : dict of str to str
        Causes whose effect is unknown, and why.
    added : list of Verdict
        Causes that no verdict names: from the time accounting, or relevant although others explain as much.
    not_excluded : list of str
        What the capture cannot exclude, in words.
    unlike : str
        "", or why verdicts get no numbers: the inferred path does not reproduce the recording. `causes` then only
        order the verdicts.
    """

    card_title = "What each cause cost"

    recorded: dict[str, float]
    own: str
    original: Figures
    causes: dict[str, Without]
    unanswered: dict[str, str]
    added: list[Verdict]
    not_excluded: list[str]
    unlike: str = ""

    def ordered(self, verdicts: Sequence[Verdict]) -> Effects:
        """Return the same effects, ordered as the verdicts."""
        causes = {verdict.name: self.causes[verdict.name] for verdict in verdicts if verdict.name in self.causes}
        return replace(self, causes=causes)

    def joined(self, diagnosis: Diagnosis, goal: str = "goodput") -> Diagnosis:
        """Return the diagnosis with the effect of each verdict, ordered by the effects on a goal."""
        named = {verdict.name for verdict in self.added}
        if "shallow_buffer" in named:
            named.add("congestive_loss")
        verdicts = self.added + [verdict for verdict in diagnosis.verdicts if verdict.name not in named]
        verdicts = [self._with_effect(verdict) for verdict in verdicts]
        if not self.unlike:
            return diagnosis.reordered([_calibrated(verdict) for verdict in by_effect(verdicts, goal)])
        # A cause without an effect over a path that is wrong may have one over the true path: do not say it has none.
        # And effects in a single queue for all flows say nothing of a fair queue.
        is_served_in_turn = any(verdict.name == "fair_queueing" for verdict in verdicts)
        verdicts = [
            verdict if matters(verdict) and not is_served_in_turn else replace(verdict, effect=None)
            for verdict in verdicts
        ]
        verdicts = by_effect(verdicts, goal)
        return diagnosis.reordered([replace(verdict, effect=None) for verdict in verdicts])

    def _with_effect(self, verdict: Verdict) -> Verdict:
        if (without := self.causes.get(verdict.name)) is not None:
            return replace(verdict, effect=without.effect)
        why = self.unanswered.get(verdict.name, "")
        if self.unlike and why == ACKS_AS_DUE:  # a path that is not the recorded one does not explain its ACKs
            why = ""
        most = const.UNSURE_CONFIDENCE if why in (A_FULL_QUEUE, ACKS_AS_DUE) else 1.0
        return replace(verdict, no_effect=why, confidence=min(verdict.confidence, most))

    def rows(self) -> list[tuple[str, Figures]]:
        """Return (words, {figure: Estimate}) of the recording, the original, and each different removal."""
        rows = [("recorded", {name: Estimate(value) for name, value in self.recorded.items()})]
        rows.append((f"{self.own} simulated", self.original))
        removed = [(f"with {without.effect.without}", without.figures) for without in self.causes.values()]
        return rows + [row for i, row in enumerate(removed) if row not in removed[:i]]

    def frame(self) -> pd.DataFrame:
        """Return a DataFrame: a row per cause, value and interval of the effect on each figure."""
        return frame_of((cause, without.effect.figures) for cause, without in self.causes.items())

    def summary(self) -> str:
        """Return the effects as text."""
        lines = [effect_words(without.effect) for without in self.causes.values()]
        lines += [f"{cause.replace('_', ' ')}: {why}" for cause, why in self.unanswered.items() if why]
        return "\n".join(lines + [f"not excluded: {text}" for text in self.not_excluded])

    def to_dict(self) -> dict[str, Any]:
        """Return the effects as plain objects."""
        recorded = {name: Estimate(value, value, value) for name, value in self.recorded.items()}
        figures = {cause: without.figures for cause, without in self.causes.items()}
        text = {"own": self.own, "original": self.original, "without": figures, "unanswered": self.unanswered}
        return plain({"recorded": recorded} | text | {"not_excluded": self.not_excluded})


def effects_of(
    flow: Flow | CounterFlow,
    diagnosis: Diagnosis,
    own: Controller | Sequence[Controller],
    *,
    draws: int | None = None,
    progress: Progress = silent,
) -> Effects:
    """Return the effects of removing each cause of a flow's diagnosis.

    `own`: the sender's controller, or its candidates, the likeliest first: intervals then cover the results of all
    candidates that reproduce the recording. If none does, the effects for the closest one only order the verdicts, with
    intervals widened by its error. `draws`: number of paths drawn from the fit's uncertainty; 8 by default, or fewer
    for a flow of many segments. Raises `FitError` if the path cannot be inferred, or would take too long to simulate;
    `StreamError` if the capture lacks one direction.
    """
    segments = float(np.nan_to_num(flow.row["segments_sent"]))
    if draws is None and segments > effort.MAX_SEGMENTS and isinstance(flow, Flow):
        raise FitError(f"{segments:.0f} segments would take long to simulate: `cctrace whatif` asks single questions")
    draws = draws or int(
        np.clip(effort.SEGMENTS_PER_QUESTION // max(segments, 1), effort.MIN_EFFECT_DRAWS, effort.EFFECT_DRAWS)
    )
    if diagnosis.cause == "capture_artefact":
        raise FitError("the capture is unreliable, and so would be a path inferred from it")
    senders = [own] if isinstance(own, str | type) else list(own)
    if isinstance(flow, CounterFlow):
        model = model_of_polls(flow, senders[0], diagnosis)
    else:
        model = model_of(flow, senders[0], diagnosis, progress, quick=True)
    tries = effort.DRAW_FACTOR if isinstance(flow, Flow) else 1  # polls do not reveal a flow's chance events
    models = [replace(model, controller=sender) for sender in senders]
    kept, unlike = _reproducing(models, diagnosis, draws, tries, progress)
    model = kept[0].model
    added, doubtful = host_limit_verdicts(model, diagnosis), doubtful_verdicts(model, diagnosis)
    asked, unanswered = removals(diagnosis.verdicts + added + doubtful, model)
    for cause in asked.keys() & OF_ACKS:
        if all(runs.is_original(_question(runs, *asked[cause])) for runs in kept):
            unanswered[cause] = ACKS_AS_DUE
            del asked[cause]
    causes = _with_next_limit(_simulated_without(asked, kept), asked, kept)
    relevant = _relevant(doubtful, causes)
    for name in {verdict.name for verdict in doubtful} - {verdict.name for verdict in relevant}:
        causes.pop(name, None)
        unanswered.pop(name, None)
    most = const.UNSURE_CONFIDENCE if unlike else 1.0
    added += [replace(verdict, confidence=min(verdict.confidence, most)) for verdict in relevant]
    causes, added = with_shallow_buffer(causes, added, asked)
    names = " or ".join(called(runs.model.controller or "") for runs in kept)
    doubt = f"that a controller other than {names} sent it: which one did is unknown"
    not_excluded = [*kept[0].not_excluded, *([doubt] if len(senders) > 1 else [])]
    if model.host_limits.app is None and any(
        (without.effect.goodput.value or 0) > 1 + const.GOODPUT_CHANGES for without in causes.values()
    ):
        not_excluded.append(NO_MORE_DATA)
    return Effects(model.recorded, names, kept[0].original or {}, causes, unanswered, added, not_excluded, unlike)


def _relevant(doubtful: Sequence[Verdict], causes: Mapping[str, Without]) -> list[Verdict]:
    """Return those doubtful verdicts whose cause limits the flow next, or matters by its effect."""
    effects = {cause: without.effect for cause, without in causes.items()}
    next_limits = {effect.then for effect in effects.values()}
    return [
        verdict
        for verdict in doubtful
        if (effect := effects.get(verdict.name)) is not None
        and (verdict.name in next_limits or matters(replace(verdict, effect=effect)))
    ]


def _simulated_without(asked: Removals, kept: Sequence[Runs]) -> dict[str, Without]:
    """Return the figures without each cause, with intervals that cover the results of all `kept` runs."""
    answers = [runs.ask({cause: _question(runs, *removal) for cause, removal in asked.items()}) for runs in kept]
    return {
        cause: Without(
            _spanning([answer[cause].figures for answer in answers]),
            _effect(removal, _spanning([answer[cause].difference or {} for answer in answers])),
        )
        for cause, (removal, _) in asked.items()
    }


def _reproducing(
    models: Sequence[FlowModel], diagnosis: Diagnosis, draws: int, tries: int, progress: Progress
) -> tuple[list[Runs], str]:
    """Return the runs of those models that reproduce the recording; if none does, of those with a send buffer.

    Linux keeps segments that arrived out of order in the send buffer until the gap is filled: a buffer that suffices
    otherwise may delay every recovery, and the flow seems to lack data only then. If no run with a send buffer
    reproduces the recording, either, the closest run without one is returned, and in words how it differs. `tries`:
    see `Runs`; it is 1 for polls, which do not show such delays.
    """
    tried = [Runs(model, draws, 1, progress, tries) for model in models]
    kept = [runs for runs in tried if runs.reproduces]
    if not kept and tries > 1 and _may_lack_room(models[0], diagnosis):
        recorded = models[0].recorded
        in_flight_bytes = recorded["goodput_bps"] / 8e6 * recorded["rtt_mean_us"]
        for model in models:
            limits = replace(model.host_limits, send_buffer_bytes=in_flight_bytes, may_lack_data=False)
            runs = Runs(replace(model, host_limits=limits), draws, 1, progress, tries)
            kept += [runs] if runs.reproduces else []
    if kept:
        return kept, ""
    closest = min(tried, key=lambda runs: runs.misfit)
    return [closest], _mismatch_words(models[0], closest.original or {})


def _may_lack_room(model: FlowModel, diagnosis: Diagnosis) -> bool:
    """Return whether the send buffer may have delayed recoveries.

    It may if a flow that had some, alone on its path and without another limit at the hosts, waited for data.
    """
    if not model.recorded[SHARE]:
        return False
    limited = model.host_limits.sender_options({"rwnd": "none", "fq": None})
    waited = shares(diagnosis.limits).get("application", 0.0) >= const.NEGLIGIBLE_SHARE
    return waited and not limited and not model.other_senders


def _with_next_limit(causes: dict[str, Without], asked: Removals, kept: Sequence[Runs]) -> dict[str, Without]:
    """Return the causes with what limits the flow next, once the costliest one is removed.

    If two limits are about equally strong, removing only one changes little, and each hides the other: both then
    state the effect of their joint removal, too.
    """
    first, *others = sorted(causes.keys() & LIMITS, key=lambda name: -(causes[name].effect.goodput.value or 0)) or [""]
    if not others:
        return causes
    removal, verdict = asked[first]
    joined = {name: removal.combined_with(*asked[name]) for name in others}
    answers = [runs.ask({name: _question(runs, joined[name], verdict) for name in others}) for runs in kept]
    differences = {name: _spanning([answer[name].difference or {} for answer in answers]) for name in others}
    both = {name: _effect(removal, differences[name]).goodput for name in others}
    then = max(others, key=lambda name: both[name].value or 0)
    alone = causes[first].effect.goodput
    if not _is_above(both[then], alone.value):
        return causes
    hidden = {} if (alone.value or 0) > 1 + const.GOODPUT_CHANGES else {then: first}
    next_limit = {first: then} | hidden
    return causes | {
        name: replace(causes[name], effect=replace(causes[name].effect, then=other, without_both=both[then]))
        for name, other in next_limit.items()
    }


def with_shallow_buffer(
    causes: dict[str, Without], added: list[Verdict], asked: Removals
) -> tuple[dict[str, Without], list[Verdict]]:
    """Return causes and added verdicts with a full queue below one BDP as `shallow_buffer`, if a larger one helps."""
    full = causes.get("congestive_loss")
    if full is None:
        return causes, added
    verdict = replace(asked["congestive_loss"][1], effect=full.effect)
    # One BDP keeps a path full while a window is halved.
    if verdict.evidence.get("buffer_bdp", math.inf) >= 1 or not is_remedy(verdict):
        return causes, added
    span = verdict.start_s, verdict.end_s
    short = verdict_of(Finding("shallow_buffer", verdict.confidence, span, verdict.evidence, form="by_effect"))
    short = replace(short, confidence=verdict.confidence)  # calibrated already
    added = [other for other in added if other.name != verdict.name]
    return {short.name if name == verdict.name else name: without for name, without in causes.items()}, [*added, short]


def _is_above(ratio: Estimate, other: float | None) -> bool:
    """Return whether a goodput ratio, or an upper bound, is likely to exceed another one materially."""
    if ratio.value is None or other is None:
        return False
    return math.log(ratio.value / other) >= const.GOODPUT_CHANGES and (ratio.low is None or ratio.low > other)


def _spanning(several: Sequence[Figures]) -> Figures:
    """Return the first figures, with intervals widened to cover all."""
    widened: Figures = {}
    for name, first in several[0].items():
        lows, highs = ([getattr(figures[name], end) for figures in several] for end in ("low", "high"))
        widened[name] = first._replace(low=outermost(min, lows), high=outermost(max, highs))
    return widened


def _mismatch_words(model: FlowModel, original: Figures) -> str:
    """Return in words how the original's figures differ from the recording."""
    recorded = cells({name: Estimate(value) for name, value in model.recorded.items()})
    # Without a known controller, there is no original, and nothing to compare.
    rows = zip(("goodput", "RTT", "retransmissions"), cells(original), recorded, strict=False)
    pairs = "; ".join(f"{figure} {got} simulated, {wanted} recorded" for figure, got, wanted in rows)
    return f"the inferred path does not reproduce the recording ({pairs}), so that no number would mean anything"


def _calibrated(verdict: Verdict) -> Verdict:
    """Return a verdict with the probability of its effect as confidence, and the rule's confidence as `presence`."""
    if verdict.effect is None:
        return verdict
    return replace(verdict, confidence=verdict.effect.confidence, presence=verdict.confidence)


def _question(runs: Runs, removal: Intervention, verdict: Verdict) -> Question:
    """Return what a removal asks of runs: the flow's own controller without the cause."""
    own = runs.model.controller or ""
    return Question(own, removal.hosts, lambda path: removal.change(path, verdict), removal.is_alone)


def _effect(removal: Intervention, differ: Figures) -> Effect:
    goodput, rtt = (differ[name].shifted(1) for name in list(FIGURES)[:2])
    return Effect(removal.description, goodput, rtt._replace(high=None) if removal.is_longer else rtt, differ[SHARE])
