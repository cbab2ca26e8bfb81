"""What is known of a flow before any cause is named: the same facts, from packets, from polls, or from a single look.

Rules read nothing else. A group of facts that a record does not have is None; a number that it lacks is NaN, which no
comparison holds for: a rule whose facts are missing says nothing. The names of the numbers are those of a verdict's
evidence, units last. Builders: `packets.facts_of`, `polls.facts_of`, `look.facts_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Finding
from cctrace.diagnosis.groups import (
    NAN,
    AckBatches,
    AckBunches,
    AckCounts,
    Before,
    Bursts,
    EvenSends,
    HeldWindow,
    Idle,
    Inflated,
    Instant,
    Jitter,
    Losses,
    Marks,
    MinRtt,
    Pauses,
    Policer,
    Queue,
    RateChanges,
    ReceiverWindow,
    Reordering,
    Samples,
    SendBuffer,
    SentAgain,
    Shaper,
    Sharing,
    SocketLimit,
    Span,
    Stalls,
    Start,
    Turns,
    Writes,
)
from cctrace.units import format_time

PACKETS, POLLS, SINGLE_POLL = "packets", "polls", "single poll"


@dataclass(frozen=True)
class Artefact:
    """What the capture spoils: in which form, and how sure that is."""

    form: str
    confidence: float
    numbers: dict[str, float]
    words: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Elsewhere:
    """How far from the sender, there and back, a capture was taken."""

    sender_side_us: float
    is_measured: bool


@dataclass(frozen=True)
class Facts:
    """Everything that rules may ask of a flow."""

    kind: str
    end_s: float
    goodput_bps: float
    is_model_based: bool = False  # the controller is known to build a model of the path, as BBR does
    why_nothing: str = ""  # why the record tells nothing of the path
    is_blind: bool = False  # nothing can be asked of it but what the capture spoils
    despite: str = ""  # what speaks against every cause, where none is found
    has_polls: bool = False  # of counters, not packets
    has_ecn: bool = False  # the ends agreed on it
    rtt_us: float = NAN  # typically
    least_rtt_us: float = NAN
    window: ReceiverWindow | None = None
    pauses: Pauses | None = None
    start: Start | None = None
    socket_limit: SocketLimit | None = None
    even_sends: EvenSends | None = None
    idle: Idle | None = None
    writes: Writes | None = None
    send_buffer: SendBuffer | None = None
    instant: Instant | None = None
    samples: Samples | None = None
    stalls: Stalls | None = None
    sharing: Sharing | None = None
    turns: Turns | None = None
    rates: RateChanges | None = None
    queue: Queue | None = None
    before: Before | None = None
    shaper: Shaper | None = None
    policer: Policer | None = None
    held_window: HeldWindow | None = None
    losses: Losses | None = None
    marks: Marks | None = None
    bursts: Bursts | None = None
    sent_again: SentAgain | None = None
    reordering: Reordering | None = None
    min_rtt: MinRtt | None = None
    jitter: Jitter | None = None
    inflated: Inflated | None = None
    bunches: AckBunches | None = None
    batches: AckBatches | None = None
    ack_counts: AckCounts | None = None
    artefacts: tuple[Artefact, ...] = ()
    elsewhere: Elsewhere | None = None

    @property
    def span(self) -> Span:
        """The whole time."""
        return 0.0, self.end_s

    def finding(self, name: str, sure: float, known: object, form: str = "", span: Span | None = None) -> Finding:
        """Return what a rule has found: a cause, how sure, and the numbers of a group of facts, or of a dict."""
        facts: dict[str, Any] = known if isinstance(known, dict) else vars(known)
        numbers = {key: value for key, value in facts.items() if _is_number(value)}
        common = {"answers_losses": not self.is_model_based, "goodput_bps": self.goodput_bps, "per_rtt": self.per_rtt}
        span = span or facts.get("span") or self.span
        return Finding(name, float(sure), span, numbers, common | facts, form)

    @property
    def per_rtt(self) -> str:
        """The words "per RTT of 40 ms"; without a number where the record's clock is too coarse for one."""
        return f"per RTT of {format_time(self.rtt_us * 1000)}" if self.rtt_us >= const.LEAST_RTT_US else "per RTT"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
