"""Parts of a diagnosis: limits over time, events, findings, and verdicts, which are findings in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cctrace.diagnosis import constants as const
from cctrace.display import Jsonable, Public
from cctrace.estimates import Z90, Estimate

# What limits a flow at an instant; a short interval is named by the first of these that held for most of it.
LIMITS = (
    "rto_stall",  # no ACKs until the retransmission timer fires
    "receive_window",  # the receive window is full
    "send_buffer",  # the send buffer is full of data in flight: the application cannot write
    "application",  # no data to send
    "probe_rtt",  # BBR probes for the minimum RTT with four segments (v1) or half a BDP (v2, v3) in flight
    "recovery",  # loss recovery
    "marks",  # window reduction after marks (ECN)
    "startup",  # slow start, or BBR's STARTUP
    "cwnd",  # the congestion window is full: sends are ACK-clocked
    "pacing",  # sends are released by the pacing timer
    "unknown",  # the record does not reveal it
)
# Causes at the ends of the connection.
ENDS = {"receiver_limited", "application_limited", "slow_start_only", "send_buffer_limited", "pacing_limited"}


@dataclass(frozen=True)
class Limit(Public):
    """What limited a flow for some time; a flow's limits follow each other without gaps.

    Attributes
    ----------
    name : str
        One of `LIMITS`.
    start_s : float
        Seconds since the first packet; of counters, since the first poll.
    end_s : float
        The same.
    """

    name: str
    start_s: float
    end_s: float


def shares(limits: Iterable[Limit]) -> dict[str, float]:
    """Return {name: share of the time} of limits, largest first."""
    lasted = [(limit.name, limit.end_s - limit.start_s) for limit in limits]
    total = sum(time for _, time in lasted) or 1.0
    found: dict[str, float] = {}
    for name, time in lasted:
        found[name] = found.get(name, 0.0) + time / total
    return dict(sorted(found.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Event(Public):
    """Something that happened at a time.

    Attributes
    ----------
    name : str
        ``rate_change``, ``rtt_change``, ``loss_episode``, ``marks``, ``stall``, ``timeout``, ``route_change``,
        ``zero_window``, ``idle`` or ``burst``.
    start_s : float
        Seconds since the first packet.
    end_s : float
        The same; equal to `start_s` for an instant.
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
    """A cause that a rule has found; `order.verdict` puts it into words."""

    name: str  # of the cause
    confidence: float  # 0 to 1, before calibration
    span: tuple[float, float]  # when it held, seconds since the first packet
    numbers: dict[str, float]  # its evidence, units in the names
    words: dict[str, Any] = field(default_factory=dict)  # additional words of the sentence
    form: str = ""  # which of the cause's sentences applies, if there are several

    def saying(self, **words: Any) -> Finding:
        """Return the finding with additional words for its sentence."""
        return replace(self, words=self.words | words)


def between(least: float, most: float, strength: float) -> float:
    """Return the confidence between two grades (`constants`) for evidence of a strength from 0 to 1."""
    return least + (most - least) * min(max(strength, 0.0), 1.0)


def partly(share: float) -> float:
    """Return the confidence in a limit that held for a share of the time, when that is all that is known."""
    return between(0.0, const.LIKELY_CONFIDENCE, share)


@dataclass(frozen=True)
class Effect(Public):
    """Effect of removing a cause, from simulation; 90 % intervals.

    Attributes
    ----------
    without : str
        The difference, following "with".
    goodput, rtt : Estimate
        Goodput and mean RTT without the cause, relative to those with it.
    retransmitted : Estimate
        Change of the share of retransmissions (-0.01: one point lower).
    then : str
        The next limit: the cause whose removal, too, would change goodput again; "" if there is none.
    without_both : Estimate, optional
        Goodput without both, relative to that with both.

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
    def figures(self) -> dict[str, Estimate]:
        """The estimates by name."""
        return {"goodput": self.goodput, "rtt": self.rtt, "retransmitted": self.retransmitted}

    @property
    def is_bounded(self) -> bool:
        """Whether the capture gives only a bound of the goodput or the RTT."""
        return None in (*self.goodput, *self.rtt)

    @property
    def confidence(self) -> float:
        """Probability that removing the cause has the stated effect.

        Correct means a goodput within 10 % and a mean RTT within 15 % of those of the same flow without the cause;
        for a one-sided interval, a value within the bound.
        """
        parts = zip((self.goodput, self.rtt), const.EFFECT_NEAR, strict=True)
        return math.prod(_within(estimate, near) for estimate, near in parts)


def _within(ratio: Estimate, near: float) -> float:
    """Return the probability that the true ratio is within the share `near` of an estimate with a 90 % interval.

    If one side of the interval is open: that it is not further beyond the other side. Without an interval: 1.

    Errors in units of what an interval says follow Student's distribution with two degrees of freedom: tails as heavy
    as that are paths that are wrong, whatever their interval.
    """
    value, low, high = (None if side is None else math.log(max(side, 1e-9)) for side in ratio)
    off = math.log1p(near)
    if low is not None and high is not None:
        return _inside(off, (high - low) / 2)
    bound = low if high is None else high
    if value is None or bound is None:
        return 1.0
    reach = abs(bound - value)
    return (1 + _inside(reach + off, reach)) / 2


def _inside(off: float, reach: float) -> float:
    """Return the probability of an error of at most `off`, if 90 % were said to be within `reach`."""
    return off / math.hypot(off, math.sqrt(2) * const.MISSES_TIMES * reach / Z90)


@dataclass(frozen=True)
class Verdict(Public, Jsonable):
    """A cause of a flow's behaviour.

    Attributes
    ----------
    name : str
        ``receiver_limited``, ``random_loss``, ... (docs/explain.md lists them); ``unknown``: the record does not
        reveal it.
    confidence : float
        With an effect, the probability that removing the cause has that effect; otherwise the rule's confidence
        that the cause is present; 0 to 1.
    start_s, end_s : float
        When it held, seconds since the first packet.
    evidence : dict of str to float
        Its evidence, units in the names.
    text : str
        One plain sentence.
    advice : str
        What would help.
    refuted_by : str
        What would refute it.
    effect : Effect or None
        Effect of removing it; None if not computed, or unknown.
    no_effect : str
        Why it is unknown.
    presence : float, optional
        The rule's confidence that the cause is present, if `confidence` is that of the effect.

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
        """The rule's confidence that the cause is present, 0 to 1."""
        return self.confidence if self.presence is None else self.presence

    @property
    def line(self) -> str:
        """The sentence and the advice."""
        return f"{self.text} {self.advice}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain objects; ``bounded``: only a bound of its effect is known."""
        effect = self.effect
        known = effect and {
            "without": effect.without,
            **{name: figure.to_dict() for name, figure in effect.figures.items()},
            "then": effect.then,
            "without_both": effect.without_both and effect.without_both.to_dict(),
        }
        return asdict(self) | {
            "presence": self.is_there,
            "effect": known,
            "bounded": effect is not None and effect.is_bounded,
        }


class Findings:
    """What the rules have found so far: the causes, and which of them are sure enough to explain other evidence."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    @property
    def names(self) -> set[str]:
        """The causes found."""
        return {finding.name for finding in self.findings}

    @property
    def sure(self) -> set[str]:
        """Causes that explain others' evidence."""
        return {finding.name for finding in self.findings if finding.confidence >= const.EXPLAINING_CONFIDENCE}
