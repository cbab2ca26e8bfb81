"""Facts of a flow, from which rules infer causes: the same from packets, polls, or a single poll.

Rules read nothing else. A group of facts that a record lacks is None; a number that it lacks is NaN, for which
every comparison is false: a rule without its facts stays silent. The names of the numbers are those of a verdict's
evidence, units last. Builders: `packets.facts_of`, `polled_facts.facts_of`, `single_poll.facts_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from cctrace.diagnosis import groups
from cctrace.diagnosis.findings import Finding
from cctrace.units import format_time

PACKETS, POLLS, SINGLE_POLL = "packets", "polls", "single poll"
BOUNDED_BY_LOSSES = {"bbr2", "bbr3"}  # models of the path that bound the data in flight where 2 % are lost


class Artefact(NamedTuple):
    """A capture artefact: the key (of `Cause.forms`) of the sentence that describes it, and the confidence."""

    form: str
    confidence: float
    numbers: dict[str, float]
    words: Mapping[str, float | str] = MappingProxyType({})


class Elsewhere(NamedTuple):
    """Distance of the capture point from the sender, as round-trip time."""

    sender_side_us: float
    is_measured: bool


class AckPath(NamedTuple):
    """The share of what RTTs vary by that arises after the receiver has sent its ACKs, and their rate meanwhile."""

    return_share: float
    acks_per_s: float
    risen_us: float  # from the shortest tenth of the RTTs to the longest


@dataclass(frozen=True)
class Facts:
    """All facts available to rules."""

    kind: str
    end_s: float
    goodput_bps: float
    is_model_based: bool = False  # the controller is known to model the path, as BBR does
    controller: str | None = None  # its name in the kernel, if known
    why_nothing: str = ""  # why the record does not characterise the path
    is_blind: bool = False  # no rule applies but that of the capture's artefact
    despite: str = ""  # evidence against every cause, if none is found
    has_polls: bool = False  # from counters, not packets
    has_counters: bool = False  # the kernel's, besides packets
    has_ecn: bool = False  # negotiated
    lacks_scale: bool = False  # the capture cut the scale of the receive window: whether that is a limit is not known
    lacks_sacks: bool = False  # the capture cut all SACK blocks: which packets were lost, and when, is a guess
    rtt_us: float = groups.NAN  # typical
    least_rtt_us: float = groups.NAN
    window: groups.ReceiverWindow | None = None
    receiver_pauses: groups.ReceiverPauses | None = None
    short_transfer: groups.ShortTransfer | None = None
    socket_limit: groups.SocketLimit | None = None
    even_sends: groups.EvenSends | None = None
    idle: groups.Idle | None = None
    writes: groups.Writes | None = None
    send_buffer: groups.SendBuffer | None = None
    single_poll_use: groups.SinglePollUse | None = None
    app_limited_samples: groups.AppLimitedSamples | None = None
    stalls: groups.Stalls | None = None
    sharing: groups.Sharing | None = None
    fair_queueing: groups.FairQueueing | None = None
    rates: groups.RateChanges | None = None
    queue: groups.Queue | None = None
    was_empty: bool = True  # the queue, at some time; if not, it is longer, and the base RTT shorter, than RTTs show
    first_rtts: groups.FirstRtts | None = None
    shaper: groups.Shaper | None = None
    policer: groups.Policer | None = None
    largest_flights: groups.LargestFlights | None = None
    growing_window: groups.GrowingWindow | None = None
    losses: groups.Losses | None = None
    ecn_marks: groups.EcnMarks | None = None
    bursts: groups.Bursts | None = None
    retransmissions: groups.Retransmissions | None = None
    reordering: groups.Reordering | None = None
    min_rtt: groups.MinRtt | None = None
    jitter: groups.Jitter | None = None
    inflated_min_rtt: groups.InflatedMinRtt | None = None
    bunches: groups.AckBunches | None = None
    batches: groups.AckBatches | None = None
    ack_counts: groups.AckCounts | None = None
    ack_path: AckPath | None = None
    artefact: Artefact | None = None
    elsewhere: Elsewhere | None = None

    @property
    def span(self) -> groups.Span:
        """The entire time of the flow."""
        return 0.0, self.end_s

    def finding(
        self,
        name: str,
        sure: float,
        known: NamedTuple | dict[str, Any],
        form: str = "",
        span: groups.Span | None = None,
    ) -> Finding:
        """Return a rule's finding: cause, confidence, and the numbers of a group of facts or a dict."""
        facts: dict[str, Any] = known if isinstance(known, dict) else known._asdict()
        numbers = {key: value for key, value in facts.items() if _is_number(value)}
        common: dict[str, Any] = {"answers_losses": not self.is_model_based, "heeds_losses": self.heeds_losses}
        common |= {"goodput_bps": self.goodput_bps, "per_rtt": self.per_rtt}
        span = span or facts.get("span") or self.span
        return Finding(name, float(sure), span, numbers, common | facts, form)

    @property
    def heeds_losses(self) -> bool:
        """Whether the controller is known to give way to losses: by its nature, or from a share of them on."""
        return self.controller is not None and (not self.is_model_based or self.controller in BOUNDED_BY_LOSSES)

    @property
    def per_rtt(self) -> str:
        """The words "per RTT of 40 ms"; without a number if the record's clock is too coarse."""
        return f"per RTT of {format_time(self.rtt_us * 1000)}" if self.rtt_us > 0 else "per RTT"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
