"""Diagnosis: what limited a flow over time, what happened to it, and the causes with their evidence.

    diagnose(flow)      flow: of a capture, or of counters alone

    limits      what limited the flow at each time                      diagnosis.limits, diagnosis.polled
    events      what happened when, in sentences with numbers           diagnosis.events, diagnosis.polled
    facts       the same from packets, polls, or a single poll          diagnosis.packets, polled_facts, single_poll
    rules       which causes follow from these facts                    diagnosis.rules
    verdicts    the causes in words, most important first               diagnosis.catalogue, diagnosis.order

A verdict comes with its evidence and with what would refute it. `unknown` is a verdict, too: the first one of a
flow whose record is uninformative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cctrace.arguments import check_argument
from cctrace.diagnosis import packets, polled, polled_facts, single_poll
from cctrace.diagnosis.events import events_of
from cctrace.diagnosis.facts import Facts
from cctrace.diagnosis.findings import Event, Limit, Verdict
from cctrace.diagnosis.limits import limits_of
from cctrace.diagnosis.order import cause_words, verdict_of
from cctrace.diagnosis.packets.capture import is_elsewhere
from cctrace.diagnosis.record import Record
from cctrace.diagnosis.remedies import with_commands
from cctrace.diagnosis.rules import explained_away, judge
from cctrace.display import Summarized
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.counters import CounterFlow
from cctrace.flows.cut_options import LACKS_SACKS
from cctrace.flows.flow import Flow
from cctrace.refusals import Attempt
from cctrace.replaying.run import Run

FROM_POLLS = "(From polls, not packets: shorter events do not show.)"
ELSEWHERE = "(Captured elsewhere than at the sender: times are estimates.)"
CUT = f"(Causes of losses, and changes of the rate, are less sure: {LACKS_SACKS}.)"


@dataclass(frozen=True, repr=False)
class Diagnosis(Summarized):
    """Why a flow behaved as it did.

    Attributes
    ----------
    cause : str
        Name of the first verdict.
    verdict : str
        Its sentence and its advice.
    figures : dict
        Its evidence.
    coarse : bool
        Whether it rests on polls of counters, not on packets: shares and minima are those of means.
    limits : list of Limit
        What limited the flow when; from the first second to the last, without a gap.
    events : list of Event
        In order of time.
    verdicts : list of Verdict
        Most important first; at least one.
    lacks : list of str
        What could not be evaluated, and why.
    explained_away : list of Verdict
        Causes that may hold in addition, but whose evidence the verdicts explain.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> found = cct.diagnose(flow)
    >>> found.cause, found.limits[0].name
    ('random_loss', 'startup')
    """

    card_title = "Diagnosis"

    cause: str
    verdict: str
    figures: dict[str, float]
    coarse: bool = False
    limits: list[Limit] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    explained_away: list[Verdict] = field(default_factory=list)

    @property
    def in_words(self) -> str:
        """The cause in a few plain words, for tables."""
        return cause_words(self.cause, self.verdicts[0].is_there)

    @property
    def causes(self) -> list[str]:
        """The names of the verdicts."""
        return [one.name for one in self.verdicts]

    def summary(self) -> str:
        """Return the verdicts as text, most important first, with their confidence."""
        lines = [f"{one.name} (confidence {one.confidence:.2g}): {one.line}" for one in self.verdicts]
        return "\n".join([*lines, f"{len(self.limits)} spans of limits, {len(self.events)} events"])

    def reordered(self, verdicts: list[Verdict]) -> Diagnosis:
        """Return the diagnosis with reordered verdicts; the first one becomes its cause."""
        note, first = self.verdict.removeprefix(self.verdicts[0].line), verdicts[0]
        verdict = f"{first.line}{note}"
        return replace(self, cause=first.name, verdict=verdict, figures=first.evidence, verdicts=verdicts)

    @classmethod
    def of(
        cls,
        limits: list[Limit],
        events: list[Event],
        verdicts: list[Verdict],
        coarse: bool = False,
        note: str = "",
        lacks: Sequence[str] = (),
    ) -> Diagnosis:
        """Return the diagnosis of these findings; `note` follows its sentence."""
        first = verdicts[0]
        text = f"{first.line} {note}".strip()
        return cls(first.name, text, first.evidence, coarse, limits, events, verdicts, list(lacks))


def diagnose(flow: Flow | CounterFlow, controller: str | None = None, run: Run | None = None) -> Diagnosis:
    """Return the `Diagnosis` of a flow.

    Parameters
    ----------
    flow : Flow or CounterFlow
        Other flows of the same capture are taken into account.
    controller : str, optional
        The kernel's name of its congestion control, if known.
    run : Run, optional
        Its replay over this flow: whether its socket paced, heeded marks, and waited for the receive window.

    Raises
    ------
    ArgumentError
        If it is neither.
    StreamError
        If a capture lacks the data or the acknowledgements, or counters are uninformative.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> diagnose(flow).verdicts[0].name
    'random_loss'
    """
    check_argument(controller is None or isinstance(controller, str), "controller", controller, "a name")
    check_argument(run is None or isinstance(run, Run), "run", run, "what cctrace.replay returned")
    if isinstance(flow, CounterFlow):
        return _of_counters(flow, controller)
    if not isinstance(flow, Flow):
        raise ArgumentError(f"cannot diagnose {type(flow).__name__!r}: use a flow of a capture or of counters")
    return of_record(Record(flow, controller, run))


def of_record(record: Record) -> Diagnosis:
    """Return the `Diagnosis` of a captured flow."""
    lacks: list[str] = []
    limits = [Limit("unknown", 0.0, record.duration_s)]
    events: list[Event] = []
    with Attempt("account of what limited it when", lacks):
        limits = limits_of(record)
    with Attempt("list of events", lacks):
        events = events_of(record)
    facts = packets.facts_of(record, limits, lacks)
    findings = judge(facts)
    verdicts = with_commands([verdict_of(finding) for finding in findings], record.flow, record.controller)
    beside = [verdict_of(finding) for finding in explained_away(facts, findings)]
    note = " ".join([ELSEWHERE] * is_elsewhere(record.flow) + [CUT] * facts.lacks_sacks)
    return replace(Diagnosis.of(limits, events, verdicts, note=note, lacks=lacks), explained_away=beside)


def _verdicts(facts: Facts) -> list[Verdict]:
    return [verdict_of(finding) for finding in judge(facts)]


def _of_counters(flow: CounterFlow, controller: str | None) -> Diagnosis:
    if flow.is_timed and len(flow.polls) > 1 and len(flow.acked()[1]) > 1:
        polls = polled.Polls(flow, controller)
        limits = polled.limits_of(polls)
        verdicts = _verdicts(polled_facts.facts_of(polls, limits))
        return Diagnosis.of(limits, polled.events_of(polls), verdicts, coarse=True, note=FROM_POLLS)
    poll = single_poll.SinglePoll(flow, controller)
    if poll.tells_nothing:
        raise StreamError(f"{flow.polls.source}: the counters do not show what limited this connection")
    duration = float(np.nan_to_num(flow.row["duration_s"]))
    limits = [Limit("unknown", 0.0, duration)]
    return Diagnosis.of(limits, [], _verdicts(single_poll.facts_of(poll)), coarse=True, note=poll.note)
