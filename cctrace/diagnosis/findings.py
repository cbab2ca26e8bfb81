"""What a diagnosis consists of: limits over time, events, findings, and verdicts, which are findings in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cctrace.diagnosis import constants as const
from cctrace.estimates import Z90, Estimate

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
    then : str
        Which cause limits the flow then: without that, too, goodput would change once more; "" if none does.
    without_both : Estimate, optional
        Goodput without both, as a multiple of that with both.

    Examples
    --------
    >>> from cctrace.estimates import Estimate90
    >>> same = Estimate90(1.0, 0.98, 1.02)
    >>> Effect("no random loss", Estimate90(3.2, 2.9, 3.5), same, Estimate90(-0.01, -0.012, -0.008)).is_bounded
    False
    """

    without: str
    goodput: Estimate
    rtt: Estimate
    retransmitted: Estimate
    then: str = ""
    without_both: Estimate | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether only a bound of the goodput or of the RTT is known, because the capture does not show more."""
        return None in (*self.goodput, *self.rtt)

    @property
    def confidence(self) -> float:
        """How often the removal of a cause changes what such an effect says by as much as it says.

        Right is a goodput within 10 % and a mean RTT within 15 % of those of the same flow without the cause; where one
        side is open, what is not beyond the other one.
        """
        parts = ((self.goodput, const.GOODPUT_NEAR), (self.rtt, const.RTT_NEAR))
        return (1 - const.MISLED) * math.prod(_within(estimate, near) for estimate, near in parts)


def _within(ratio: Estimate, near: float) -> float:
    """Return the probability that a ratio with a 90 % interval is within a share of the truth; 1 where it is open."""
    if None in ratio:
        return 1.0
    _, low, high = ratio.sides()
    said = math.log(high / max(low, 1e-9)) / (2 * Z90)
    return math.erf(math.log1p(near) / math.hypot(const.MISSES_TIMES * said, const.MISSES_LEAST) / math.sqrt(2))


@dataclass(frozen=True)
class Verdict:
    """Why a flow behaved as it did.

    Attributes
    ----------
    name : str
        ``receiver_limited``, ``random_loss``, ... (docs/explain.md lists them); ``unknown``: the record does not tell.
    confidence : float
        Of a verdict with an effect, how often the removal of such a cause changes as much as that says, else how sure
        its rule is that the cause is there; 0 to 1.
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
    presence : float, optional
        How sure its rule is that the cause is there, where `confidence` is that of the effect.

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
    presence: float | None = None

    @property
    def is_there(self) -> float:
        """How sure its rule is that the cause is there, 0 to 1."""
        return self.confidence if self.presence is None else self.presence

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
            "then": effect.then,
            "without_both": effect.without_both and effect.without_both.to_dict(),
        }
        return asdict(self) | {
            "presence": self.is_there,
            "effect": known,
            "bounded": effect is not None and effect.is_bounded,
        }
