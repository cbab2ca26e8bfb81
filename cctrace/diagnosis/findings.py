"""What a diagnosis consists of: limits over time, events, findings, and verdicts, which are findings in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cctrace.diagnosis import constants as const
from cctrace.estimates import Estimate

# What limited a flow at an instant; the first of them that held for most of a short stretch of time names it.
LIMITS = (
    "rto_stall",  # nothing comes back, until the retransmission timer fires
    "receive_window",  # the receiver's window keeps data back
    "send_buffer",  # the send buffer is full of what is in flight: more cannot be written
    "application",  # there is nothing to send
    "probe_rtt",  # BBR looks for the least RTT with four segments in flight
    "recovery",  # losses are being repaired
    "marks",  # the window is being cut after marks (ECN)
    "startup",  # slow start, or BBR's STARTUP: the window grows as fast as it may
    "cwnd",  # the congestion window is full: what leaves is released by ACKs
    "pacing",  # what leaves is released by the pacing timer
    "unknown",  # the record does not tell
)


@dataclass(frozen=True)
class Limit:
    """What limited a flow for some time; the limits of a flow follow each other without a gap.

    Attributes
    ----------
    name : str
        One of `LIMITS`.
    start_s, end_s : float
        Seconds since the first packet (of counters: the first poll).
    """

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Event:
    """Something that happened at a time.

    Attributes
    ----------
    name : str
        ``rate_change``, ``rtt_change``, ``loss_episode``, ``marks``, ``stall``, ``timeout``, ``route_change``,
        ``zero_window``, ``idle``, ``burst``.
    start_s, end_s : float
        Seconds since the first packet; equal for an instant.
    text : str
        One sentence, with numbers.
    evidence : dict of str to float
        The same numbers, units in the names.
    """

    name: str
    start_s: float
    end_s: float
    text: str
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """A cause that holds, as a rule has found it; `catalogue.verdict` puts it into words.

    Attributes
    ----------
    name : str
        Of the cause.
    confidence : float
        0 to 1, before it is calibrated.
    span : (float, float)
        When it held, seconds since the first packet.
    numbers : dict of str to float
        What it rests on, units in the names.
    words : dict
        What the sentence has besides.
    form : str
        Which of the cause's sentences is right, if there are several.
    """

    name: str
    confidence: float
    span: tuple[float, float]
    numbers: dict[str, float]
    words: dict[str, Any] = field(default_factory=dict)
    form: str = ""

    def saying(self, **words: Any) -> Finding:
        """Return it with more words for its sentence."""
        return replace(self, words=self.words | words)


@dataclass(frozen=True)
class Effect:
    """What would be different without a cause, by whoever can simulate it; 90 % intervals.

    Attributes
    ----------
    without : str
        What is different, as "with ..." goes on.
    goodput, rtt : Estimate
        Goodput and mean RTT without the cause, as multiples of those with it.
    retransmitted : Estimate
        By how much the share of retransmissions is higher without the cause (-0.01: one point lower).
    """

    without: str
    goodput: Estimate
    rtt: Estimate
    retransmitted: Estimate

    @property
    def is_bounded(self) -> bool:
        """Whether only a bound of the goodput or of the RTT is known, because the capture does not show more."""
        return None in (*self.goodput, *self.rtt)

    @property
    def confidence(self) -> float:
        """How often such effects are right: goodput within 10 %, mean RTT within 15 % of a kernel's own, measured."""
        if self.is_bounded:
            return const.OPEN_SURE
        widest = max(high / max(low, 1e-9) for _, low, high in (self.goodput.sides(), self.rtt.sides()))
        return const.NARROW_SURE if widest <= math.exp(const.NARROW) else const.WIDE_SURE


@dataclass(frozen=True)
class Verdict:
    """Why a flow behaved as it did.

    Attributes
    ----------
    name : str
        ``receiver_limited``, ``random_loss``, ... (docs/explain.md lists them); ``unknown``: the record does not tell.
    confidence : float
        How sure it is, 0 to 1.
    start_s, end_s : float
        When it held, seconds since the first packet.
    evidence : dict of str to float
        What it rests on, units in the names.
    text : str
        One plain sentence.
    advice : str
        What would help.
    refuted_by : str
        What would show that it is wrong.
    effect : Effect or None
        What would be different without it; None if that was not asked, or cannot be told.
    no_effect : str
        Why it cannot be told.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> first = cct.diagnose(flow).verdicts[0]
    >>> first.name, first.confidence > 0.9
    ('random_loss', True)
    """

    name: str
    confidence: float
    start_s: float
    end_s: float
    evidence: dict[str, float]
    text: str
    advice: str = ""
    refuted_by: str = ""
    effect: Effect | None = None
    no_effect: str = ""

    @property
    def line(self) -> str:
        """The sentence and the advice."""
        return f"{self.text} {self.advice}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain objects; ``bounded`` says that of its effect only a bound is known."""
        effect = self.effect
        numbers = ("goodput", "rtt", "retransmitted")
        known = effect and {
            "without": effect.without,
            **{name: getattr(effect, name).to_dict() for name in numbers},
            "confidence": effect.confidence,
        }
        return asdict(self) | {"effect": known, "bounded": effect is not None and effect.is_bounded}
