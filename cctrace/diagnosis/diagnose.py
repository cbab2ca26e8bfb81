"""Why a flow behaved as it did: what limited it when, what happened, and the verdicts with their evidence.

    diagnose(flow)      flow: of a capture, or of counters alone

    limits      an account of the whole time                            diagnosis.limits
    events      what happened when, in sentences with numbers           diagnosis.events
    verdicts    the causes, most important first                        diagnosis.rules, one module per family
    polls       all of it from counters alone                           diagnosis.polled, polled_verdicts;
                of a single look                                        diagnosis.look

What a verdict rests on is its evidence; what would show that it is wrong is said with it. `unknown` is a verdict too:
the first of a flow of which the record tells nothing.
"""

from dataclasses import dataclass, field

import numpy as np

from cctrace.diagnosis import polled, polled_verdicts
from cctrace.diagnosis.events import events_of
from cctrace.diagnosis.findings import Event, Limit, Verdict
from cctrace.diagnosis.limits import limits_of
from cctrace.diagnosis.look import look
from cctrace.diagnosis.record import Record
from cctrace.diagnosis.remedies import with_commands
from cctrace.diagnosis.rules import judge
from cctrace.diagnosis.rules.order import cause_words
from cctrace.diagnosis.rules.quality import is_elsewhere
from cctrace.display import Summarized
from cctrace.errors import ArgumentError, StreamError
from cctrace.refusals import Refusal, attempt
from cctrace.units import format_rate

FROM_POLLS = "(From polls, not packets: shorter events do not show.)"
ELSEWHERE = "(Captured elsewhere than at the sender: times are estimates.)"


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
        It rests on polls of counters, not on packets: shares and minima are those of means.
    limits : list of Limit
        What limited the flow when; from the first second to the last, without a gap.
    events : list of Event
        In the order of time.
    verdicts : list of Verdict
        Most important first; at least one.
    lacks : list of str
        What could not be asked, and why.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> found = cct.diagnose(flow)
    >>> found.cause, found.limits[0].name
    ('random_loss', 'startup')
    """

    shown_as = "Diagnosis"

    cause: str
    verdict: str
    figures: dict
    coarse: bool = False
    limits: list[Limit] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)

    @property
    def in_words(self):
        """The cause in a few plain words, as tables have it."""
        return cause_words(self.cause, self.verdicts[0].confidence)

    def summary(self):
        """Return the verdicts as text, the most important first, with how sure each is."""
        lines = [f"{one.name} (confidence {one.confidence:.2g}): {one.line}" for one in self.verdicts]
        return "\n".join([*lines, f"{len(self.limits)} spans of limits, {len(self.events)} events"])

    @classmethod
    def of(cls, limits, events, verdicts, coarse=False, note="", lacks=()):
        """Return the diagnosis of these findings; `note` follows its sentence."""
        first, said = verdicts[0], [refusal.note for refusal in lacks]
        return cls(first.name, f"{first.line} {note}".strip(), first.evidence, coarse, limits, events, verdicts, said)


def diagnose(flow, controller=None, paced=False):
    """Return the `Diagnosis` of a flow.

    Parameters
    ----------
    flow : Flow or CounterFlow
        Other flows of the same capture are judged with it.
    controller : str, optional
        The kernel's name of its congestion control, if known.
    paced : bool
        Whether its socket is known to pace although that sets no rate (`Identification.paced`).

    Raises
    ------
    ArgumentError
        If it is neither.
    StreamError
        If a capture lacks the data or the acknowledgements; if counters tell nothing.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> diagnose(flow).verdicts[0].name
    'random_loss'
    """
    if hasattr(flow, "polls"):
        return _of_counters(flow, controller)
    if not hasattr(flow, "capture"):
        raise ArgumentError(f"cannot diagnose {type(flow).__name__!r}: use a flow of a capture or of counters")
    record = Record(flow, controller, paced)
    lacks: list[Refusal] = []

    def found(part, function, *given, instead):
        result = attempt(part, function, *given)
        if isinstance(result, Refusal):
            lacks.append(result)
            return instead
        return result

    limits = found(
        "account of what limited it when", limits_of, record, instead=[Limit("unknown", 0.0, record.duration_s)]
    )
    events = found("list of events", events_of, record, instead=[])
    note = ELSEWHERE if is_elsewhere(flow) else ""
    verdicts = with_commands(judge(record, limits, found), flow, controller)
    return Diagnosis.of(limits, events, verdicts, note=note, lacks=lacks)


def _of_counters(flow, controller):
    """Return the diagnosis of polls: of several in time, or of a single look."""
    polls = polled.Polls(flow, controller)
    timed = flow.is_timed and len(flow.polls) > 1
    if timed and len(flow.acked()[1]) > 1:
        limits = polled.limits_of(polls)
        verdicts = polled_verdicts.judge(polls, limits)
        events = polled.events_of(polls)
        if not verdicts:
            rate = format_rate(flow.summary["goodput_bps"])
            told = f"Nothing in these counters tells what limited it to {rate}."
            verdicts = [Verdict("unknown", 0.0, 0.0, polls.end, {}, told, "A capture at the sender would tell.")]
        return Diagnosis.of(limits, events, verdicts, coarse=True, note=FROM_POLLS)
    found = look(flow)
    if found is None:
        raise StreamError(f"{flow.polls.source}: the counters tell nothing of what limited this connection")
    duration = float(np.nan_to_num(flow.summary["duration_s"]))
    return Diagnosis.of([Limit("unknown", 0.0, duration)], [], [found], coarse=True)
