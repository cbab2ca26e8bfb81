"""ECN of one connection: negotiation, ECN-capable packets, marks, and tampering.

    flow.ecn.feedback        none, classic, accurate (AccECN), or unknown
    flow.ecn.sent            the sender's data packets by codepoint
    flow.ecn.frame()         deliveries and marks over time
    flow.ecn.tampering       changes of these fields that no sender, receiver or queue makes, in sentences

Sources: [RFC3168]; [RFC8257]; [RFC9768] §3.1.2, §3.2.2 (broken middleboxes: §3.2.2.3, §3.2.2.4); [RFC9331] (ECT(1)
is L4S).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.columns import frame_of
from cctrace.display import Jsonable, Summarized
from cctrace.errors import StreamError
from cctrace.io.captures.packets import OPT_ACCURATE_ECN, OPT_COPY
from cctrace.io.layout import NO_COUNTER
from cctrace.schema import LINUX_EVENTS
from cctrace.tcp.ecn import ACCURATE_ECN, ACE_MASK, ACE_START, CE_ON_SYN, CLASSIC_ECN, ECHO, NO_ECN, agreed
from cctrace.tcp.flags import RST, SYN
from cctrace.units import format_count, format_share, format_size

if TYPE_CHECKING:
    import pandas as pd

    from cctrace.columns import Bools, Columns, Floats, Ints, Values
    from cctrace.flows.events import Events
    from cctrace.flows.flow import Flow
    from cctrace.io.captures.packets import Packets
    from cctrace.io.counters.tcpinfo import TcpInfo

FEEDBACK = {NO_ECN: "none", CLASSIC_ECN: "classic", ACCURATE_ECN: "accurate"}
UNKNOWN = "unknown"
NOT_ECT, ECT1, ECT0, CE = range(4)  # the low two bits of the TOS byte
CODEPOINTS = ("not_ect", "ect1", "ect0", "ce")
NAMES = ("Not-ECT", "ECT(1)", "ECT(0)", "CE")
# Codepoint on arrival of the previous packet, as reported by AE, CWR and ECE of a SYN-ACK, or of the ACK that answers
# one.
_ARRIVED = {2: NOT_ECT, 3: ECT1, 4: ECT0, 6: CE}
_AGREED = np.array([[agreed(asked, answered) for answered in range(8)] for asked in range(8)])
_ACCURATE_BIT = 4  # AE, which only AccECN sets
COUNTER_MASK = 0xFFFFFF  # of the AccECN option
_COUNTERS = {
    "ect0": ("ecn_e0_bytes", 1),
    "ce": ("ecn_ce_bytes", 0),
    "ect1": ("ecn_e1_bytes", 1),
}  # columns, first values
_MISSES_MARKS = re.compile(r"5\.4\.0-rc.*-prague-")  # `uname -r`
FEW = 3  # packets: tolerance for rare faults such as a flipped bit, or a SYN retransmitted without ECN
BINS = 100
ALPHA_GAIN = 1 / 16  # g of DCTCP and Prague


class _Acks:
    """What a flow's ACKs report, computed on demand because an analysis keeps the `Ecn` of several flows.

    `events`: of the flow, None if its capture lacks one direction. `before`: marks counted before its first row.
    """

    def __init__(self, events: Events | None, before: int, start_ns: int) -> None:
        self._events, self._before, self._start_ns = events, before, start_ns

    def _column(self, name: str) -> Ints:
        if self._events is None:
            return np.zeros(0, np.int64)
        rows = np.flatnonzero(self._events["event"] == LINUX_EVENTS["on_ack"])
        return self._events.at(name, rows).astype(np.int64)

    @property
    def time_s(self) -> Floats:
        """Their times, seconds since the flow's first packet."""
        return (self._column("time_ns") - self._start_ns) / 1e9

    @property
    def delivered(self) -> Ints:
        """Segments delivered by each."""
        return self._column("delivered") - 1

    @property
    def marked(self) -> Ints:
        """Segments reported as marked by each."""
        return self._column("delivered_ce") - self._before

    @property
    def beyond(self) -> Ints:
        """By how much more the count of marks grew with each than that of deliveries."""
        return np.diff(self.marked, prepend=0) - self._column("rs_acked_sacked")

    @property
    def alpha(self) -> Floats:
        """DCTCP's average of the share of marks at each."""
        return alpha_of(self.delivered, self.marked, self._column("rs_prior_delivered") - 1)


@dataclass(frozen=True, repr=False)
class Ecn(Summarized, Jsonable):
    """ECN of one connection, as captured.

    Attributes
    ----------
    feedback : str
        ``none``, ``classic`` [RFC3168]_ or ``accurate`` (AccECN); ``unknown`` if neither the handshake nor later
        packets reveal it.
    seen_handshake : bool
        Both SYNs were captured.
    sent : dict of str to int
        The sender's data packets by IP codepoint at the capture point: ``not_ect``, ``ect1``, ``ect0``, ``ce``.
    delivered, delivered_ce : int
        Segments delivered, and those of them reported as marked, as the sender's kernel counts them.
    received_bytes : dict of str to int, or None
        Bytes received by codepoint (``ect0``, ``ce``, ``ect1``), from AccECN options; None without these.
    tampering : list of str
        Changes of these fields that no sender, receiver or queue makes.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> flow.ecn.feedback, flow.ecn.sent["not_ect"]
    ('none', 5976)
    """

    card_title = "ECN"

    feedback: str
    seen_handshake: bool
    sent: dict[str, int]
    delivered: int
    delivered_ce: int
    received_bytes: dict[str, int] | None = None
    tampering: list[str] = field(default_factory=list)
    _acks: _Acks = field(default_factory=lambda: _Acks(None, 0, 0))

    @property
    def ce_share(self) -> float:
        """Share of delivered segments that were marked."""
        return self.delivered_ce / self.delivered if self.delivered else float("nan")

    @property
    def in_words(self) -> str:
        """The feedback, and the share of marks if counted, for tables; empty without ECN."""
        if self.feedback not in ("classic", "accurate"):
            return ""
        if self.feedback == "classic":
            return "classic, marked" if self.delivered_ce else "classic, no marks"
        return f"AccECN, {format_share(self.ce_share)} marked" if self.delivered else "AccECN"

    def summary(self) -> str:
        """Return the result as text."""
        how = "" if self.seen_handshake else " (by what followed: the handshake was not captured)"
        packets = ", ".join(
            f"{format_count(self.sent[name])} {text}" for name, text in zip(CODEPOINTS, NAMES, strict=True)
        )
        lines = [f"ECN feedback: {self.feedback}{how}", f"packets of data: {packets}"]
        if self.feedback in ("classic", "accurate"):
            share = format_share(self.ce_share) if self.delivered else "none"
            lines.append(f"marked, as the receiver reports: {format_count(self.delivered_ce)} segments ({share})")
        if self.received_bytes is not None:
            handshake = ", ".join(
                f"{format_size(count)} {NAMES[CODEPOINTS.index(n)]}" for n, count in self.received_bytes.items()
            )
            lines.append(f"received, as the receiver counts bytes: {handshake}")
        return "\n".join(lines + self.tampering)

    def frame(self, bins: int = BINS) -> pd.DataFrame:
        """Return deliveries and marks over time.

        Returns
        -------
        DataFrame
            ``time_s`` (centre of each bin, s), ``delivered`` and ``delivered_ce`` (segments), ``ce_share`` (NaN
            without deliveries), and ``alpha`` at the end of the bin: DCTCP's and Prague's moving average, with gain
            1/16, of the share of marks per round trip [RFC8257]_ §3.3; NaN with classic feedback, which does not
            count marks.
        """
        time_s, delivered, marked = self._acks.time_s, self._acks.delivered, self._acks.marked
        alpha = self._acks.alpha if self.feedback == FEEDBACK[ACCURATE_ECN] else np.full(len(time_s), np.nan)
        edges = np.linspace(0.0, float(time_s[-1]) if len(time_s) else 0.0, bins + 1)
        last = np.searchsorted(time_s, edges, side="right")
        got, ce = (np.diff(np.concatenate([[0], column])[last]) for column in (delivered, marked))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(got > 0, ce / got, np.nan)
        middle = (edges[1:] + edges[:-1]) / 2
        at_end = np.concatenate([[np.nan], alpha])[last[1:]]
        columns = {"time_s": middle, "delivered": got, "delivered_ce": ce, "ce_share": share, "alpha": at_end}
        return frame_of(columns)

    def to_dict(self) -> dict[str, Any]:
        """Return plain objects, ready for json."""
        names = ("feedback", "seen_handshake", "sent", "delivered", "delivered_ce", "received_bytes", "tampering")
        return {name: getattr(self, name) for name in (*names, "in_words")}


def feedback(mine: Values, other: Values) -> tuple[Values, Values, Bools]:
    """Return the receivers' kind of ECN feedback, their initial counts, and whether the SYNs reveal it.

    Without both SYNs, packets do: only AccECN sets AE, and only classic ECN leaves it clear when ECE is set. A
    field that arrives cleared (the first is 0) reports nothing [RFC9768] §3.2.2.3, §3.2.2.4.

    `mine`, `other`: `state.SIDE` records of senders and receivers. The kind is `NO_ECN`, `CLASSIC_ECN` or
    `ACCURATE_ECN`. The initial count is tp->delivered_ce at the first row of the table of connections; in mid-flow it
    is chosen such that the first ACE field is no change.
    """
    handshake = (mine["syn"] > 0) & (other["syn"] > 0)
    first = np.where(mine["syn_ack"] > 0, other["ecn_syn"], mine["ecn_syn"])
    second = np.where(mine["syn_ack"] > 0, mine["ecn_syn"], other["ecn_syn"])
    ace = other["ace_first"] - 1  # -1: nothing followed
    is_accurate = (mine["ecn_bits"] | other["ecn_bits"]) & _ACCURATE_BIT != 0
    behaves = np.where(is_accurate, ACCURATE_ECN, np.where(other["ecn_bits"] & ECHO != 0, CLASSIC_ECN, NO_ECN))
    mode = np.where(handshake, _AGREED[first, second], behaves)
    mode = np.where(handshake & (mode == ACCURATE_ECN) & (ace == 0), NO_ECN, mode)
    # It reports the codepoint on arrival of the sender's SYN or SYN-ACK.
    answer = np.where(mine["syn_ack"] > 0, ace, second)
    before = np.where(handshake, answer == CE_ON_SYN, (ace - ACE_START) & ACE_MASK)
    return mode, np.where((mode == ACCURATE_ECN) & (ace >= 0), before, 0).astype(np.int64), handshake


def misses_marks(counters: TcpInfo | None) -> bool:
    """Return whether the sender's kernel, as its counters state it, misses marks by its header prediction.

    L4STeam's kernels of 2020 treat an ACK with the flags that they expect, ACE included, as one without marks. They
    expect the ACE that was due when the window last changed, so once in eight marks the next ACK counts two. Nor do
    they assume that ACE wrapped where an ACK delivers more than seven segments.
    """
    kernel = counters.connections[0].get("kernel", "") if counters is not None else ""
    return _MISSES_MARKS.match(str(kernel)) is not None


def may_miss_marks(flow: Flow) -> bool:
    """Whether a flow with marks may be that of a kernel that misses them, for all that is stated: see `misses_marks`.

    Those kernels do not use the AccECN option.
    """
    stated = flow.tcpinfo is not None and "kernel" in flow.tcpinfo.connections[0]
    return flow.ecn.feedback == "accurate" and flow.ecn.delivered_ce > 0 and not flow.ecn.received_bytes and not stated


def feedback_name(mode: int, handshake: bool) -> str:
    """Return the feedback as `Ecn.feedback` has it."""
    return UNKNOWN if mode == NO_ECN and not handshake else FEEDBACK[int(mode)]


def feedback_of(flow: Flow) -> str:
    """Return `Ecn.feedback` of a flow of a capture."""
    mode, _, handshake = feedback(*(side[None] for side in _sides(flow)))
    return feedback_name(int(mode[0]), bool(handshake[0]))


def _sides(flow: Flow) -> tuple[Any, Any]:
    """Return the table's `state.SIDE` records of the sender and the receiver."""
    c = flow.capture.connections
    sender = int(c.sender[flow.index])
    return c.sides[flow.index, sender], c.sides[flow.index, 1 - sender]


def ecn_of(flow: Flow) -> Ecn:
    """Return the `Ecn` of a flow of a capture."""
    c, packets = flow.capture.connections, flow.capture.packets
    sender = int(c.sender[flow.index])
    mine, other = _sides(flow)
    mode, before, handshake = (column[0] for column in feedback(mine[None], other[None]))
    rows = c.rows_of(flow.index)
    rows = rows[packets["options"][rows] & OPT_COPY == 0]
    columns = {name: packets[name][rows] for name in ("direction", "flags", "tos", "payload")}
    sent = (columns["direction"] == sender) & (columns["payload"] > 0)
    count = np.bincount(columns["tos"][sent] & CE, minlength=4).tolist()
    try:
        events = flow.events
    except StreamError:
        events = None
    acks = _Acks(events, int(before), int(flow.row["start_ns"]))
    found = [*_of_handshake(mine, other, columns, sender, bool(handshake))]
    if handshake and not _AGREED[_asked_answered(mine, other)] and count[CE] > FEW:
        found.append(
            f"{count[CE]} packets of data carry CE though no ECN was agreed on: something rewrites the TOS byte."
        )
    found += _of_path(flow, int(mode), count, acks)
    received = _received(packets, rows[columns["direction"] != sender], bool(handshake))
    if received is not None and int(mode) == ACCURATE_ECN:
        found += _of_bytes(count, received)
    del rows, columns, sent  # of a million packets 20 MB, before as many are made
    ecn = dict(zip(CODEPOINTS, count, strict=True))
    delivered, marked = _last(acks.delivered), _last(acks.marked)
    return Ecn(
        feedback_name(int(mode), bool(handshake)), bool(handshake), ecn, delivered, marked, received, found, acks
    )


def _asked_answered(mine: Any, other: Any) -> tuple[int, int]:
    """Return AE, CWR and ECE of the SYN and of the SYN-ACK."""
    first, second = (other, mine) if mine["syn_ack"] else (mine, other)
    return int(first["ecn_syn"]), int(second["ecn_syn"])


def _last(counts: Ints) -> int:
    return int(counts[-1]) if len(counts) else 0


def alpha_of(delivered: Values, marked: Values, prior_delivered: Values) -> Values:
    """Return DCTCP's average of the share of marks at each ACK [RFC8257] §3.3; 1 at the start.

    `delivered`, `marked`: shape (n,), cumulative segments by each ACK. `prior_delivered`: shape (n,), deliveries when
    the newest segment of each ACK was sent: a round ends when that reaches the deliveries at its start. Returns ndarray
    of float, shape (n,).
    """
    alpha, value, first = np.ones(len(delivered)), 1.0, 0
    reached = np.maximum.accumulate(prior_delivered)
    while first < len(delivered):
        end = max(int(np.searchsorted(reached, delivered[first])), first + 1)
        if end >= len(delivered):
            alpha[first:] = value
            break
        alpha[first:end] = value
        got = delivered[end] - delivered[first]
        share = (marked[end] - marked[first]) / got if got > 0 else 0.0
        value += ALPHA_GAIN * (min(share, 1.0) - value)
        first = end
    return alpha


def _of_handshake(mine: Any, other: Any, columns: Columns, sender: int, handshake: bool) -> Iterator[str]:
    """Yield evidence in the handshake of tampering by the path or an end."""
    asked, answered = _asked_answered(mine, other)
    if not handshake or asked == 0:
        return
    if answered == ACE_MASK and asked:
        yield "The SYN-ACK reflects flags of the SYN that it should answer: no ECN [RFC 9768, table 2]."
    if _AGREED[asked, answered] != ACCURATE_ECN:
        return
    client = 1 - sender if mine["syn_ack"] else sender
    ace = [int(side["ace_first"]) - 1 for side in ((other, mine) if mine["syn_ack"] else (mine, other))]
    if 0 in ace:
        whose = "client's" if ace[0] == 0 else "server's"
        yield f"The {whose} AccECN field arrives cleared: the path takes it for reserved bits, and ECN is off."
    is_syn = (columns["flags"] & SYN != 0) & (columns["flags"] & RST == 0)
    for what, who, code in (("SYN", client, answered), ("SYN-ACK", 1 - client, ace[0])):
        seen = columns["tos"][is_syn & (columns["direction"] == who)] & CE
        if len(seen) != 1 or code not in _ARRIVED:
            continue
        left, arrived = int(seen[0]), _ARRIVED[code]
        if left != arrived and not (arrived == CE and left != NOT_ECT):
            yield f"The {what} passed here as {NAMES[left]} and arrived as {NAMES[arrived]}: the path rewrites ECN."


def _received(packets: Packets, rows: Values, handshake: bool) -> dict[str, int] | None:
    """Return the bytes that the packets of `rows` report as received, by codepoint; None without AccECN options."""
    rows = rows[packets["options"][rows] & OPT_ACCURATE_ECN != 0]
    if not len(rows):
        return None
    received = {}
    for name, (column, start) in _COUNTERS.items():
        values = packets[column][rows].astype(np.int64)
        values = values[values != NO_COUNTER]
        grown = np.diff(values, prepend=start if handshake else values[:1]) & COUNTER_MASK
        received[name] = int(grown[grown <= COUNTER_MASK >> 1].sum())  # an overtaken one decreases
    return received


def _of_bytes(count: list[int], received: dict[str, int]) -> Iterator[str]:
    """Yield evidence in the receiver's byte counts of tampering by the path."""
    for codepoint, name, other in ((ECT1, "ect1", "ect0"), (ECT0, "ect0", "ect1")):
        if count[codepoint] <= FEW or received[name] or count[3 - codepoint] > FEW:
            continue
        if received[other]:
            yield f"Data that passed here as {NAMES[codepoint]} arrived as {NAMES[3 - codepoint]}: the path changes it."
        elif not received["ce"]:
            yield f"Data that passed here as {NAMES[codepoint]} arrived without it: the path clears the field."


def _of_path(flow: Flow, mode: int, count: list[int], acks: _Acks) -> Iterator[str]:
    """Yield evidence in data packets and their feedback of tampering by the path."""
    if mode == NO_ECN:
        return
    marked, beyond = _last(acks.marked), int((acks.beyond > 0).sum())
    capable, is_beyond = sum(count[1:]), flow.taken_at in ("middle", "receiver")
    if capable <= FEW < count[NOT_ECT] and marked > FEW:
        yield f"The receiver reports {marked} marks, of packets that passed here as Not-ECT: something sets CE."
    elif capable <= FEW < count[NOT_ECT] and is_beyond:
        yield (
            "ECN was agreed on, and packets of data pass here as Not-ECT: the path clears the field, or the sender "
            "does not use it."
        )
    if min(count[ECT0], count[ECT1]) > FEW and is_beyond:
        yield f"Data pass here as ECT(0) ({count[ECT0]}) and as ECT(1) ({count[ECT1]}): the path changes them."
    if beyond > FEW and mode == ACCURATE_ECN and not flow.is_missing_marks:  # otherwise some are counted late
        yield f"The receiver's counter of marks grew {beyond} times by more than was delivered: it ran back."
