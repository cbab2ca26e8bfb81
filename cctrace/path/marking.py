"""ECN marks of a flow's packets, with the queueing delay of the packets.

    marking = marking_of(evidence_of(flow))
    marking.wait_us         queueing delay of a packet, or of the newest segment that an ACK delivers
    marking.marked          how many segments were marked, where `is_known`

A capture behind the queue shows which packets carry CE. Elsewhere ACKs report marks: accurate feedback counts every
one; classic feedback reports only the first mark of an echo: until the sender responds, every ACK has ECE set, whether
its segments were marked or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cctrace.columns import Bools, Floats, Ints
from cctrace.flows.ecn import CE
from cctrace.flows.events import AckRows
from cctrace.path import constants as const
from cctrace.tcp.wire import PACKET_BYTES

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow
    from cctrace.path.evidence import PathEvidence


@dataclass(frozen=True)
class Marking:
    """One row per packet seen behind the queue, or per ACK that delivers data and gives an RTT, in order; n rows."""

    time_s: Floats  # arrival time, seconds since the flow's first packet; shape (n,)
    wait_us: Floats  # delay minus the minimum delay; shape (n,)
    # packets, marked: segments delivered, and those of them that were marked; with classic feedback the one that an
    # echo proves; shape (n,)
    packets: Ints
    marked: Ints
    # false while classic feedback repeats a mark: whether these segments were marked is unknown; shape (n,)
    is_known: Bools
    is_l4s: bool = False  # most packets were sent as ECT(1)
    error_us: float = 0.0  # by how much the delays may differ from those by which the queue marked

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """Packets and marks of each row, 0 where unknown."""
        return np.where(self.is_known, self.packets, 0.0), np.where(self.is_known, self.marked, 0.0)

    def joined(self, part: Ints) -> Marking:
        """Return it with the rows of each part merged; rows with marks, and known and unknown ones, stay separate."""
        begins = np.ones(len(self), bool)
        has_marks = self.counts[1] > 0
        changes = (np.diff(part) != 0) | (np.diff(self.is_known.astype(np.int8)) != 0)
        begins[1:] = changes | has_marks[:-1] | has_marks[1:]
        first = np.flatnonzero(begins)
        packets, marked = (np.add.reduceat(column, first) for column in (self.packets, self.marked))
        return replace(self.rows(np.append(first[1:], len(self)) - 1), packets=packets, marked=marked)

    def grouped(self) -> Marking:
        """Return it with a few thousand rows."""
        return self.joined(np.arange(len(self)) // max(len(self) // const.ACK_GROUPS, 1))

    def until(self, marks: int) -> Marking:
        """Return the rows up to this number of marks."""
        return self.rows(slice(int(np.searchsorted(np.cumsum(self.counts[1]), marks)) + 1))

    def rows(self, which: Ints | Bools | slice) -> Marking:
        """Return some of the rows."""
        columns = ("time_s", "wait_us", "packets", "marked", "is_known")
        return replace(self, **{name: getattr(self, name)[which] for name in columns})

    def __len__(self) -> int:
        return len(self.time_s)


def marking_of(path: PathEvidence) -> Marking:
    """Return the marks that a flow's packets carry, or that its ACKs report if the packets were captured before.

    Raises `StreamError` if the capture lacks the data or the acknowledgements.
    """
    found, carried = _reported(path), _carried(path)
    # Otherwise a queue behind the capture point marked them.
    if carried is not None and carried.marked.sum() >= const.MARKS_CARRIED * found.counts[1].sum():
        found = carried
    return replace(found, error_us=_error_us(path, found.wait_us))


def _error_us(path: PathEvidence, wait_us: Floats) -> float:
    """Return the error of single delays: the transmission time of a packet, and the scatter of the delays.

    A queue counts the packet itself, the one being sent, or neither, in bytes or by the time that the packet spent in
    it, while the minimum delay includes one transmission; an ACK of two segments gives the RTT of one of them.
    """
    packet_us = 0.0 if path.bottleneck is None else PACKET_BYTES / path.bottleneck.rate
    scatter_us = float(np.median(np.abs(wait_us - smoothed(wait_us)))) if len(wait_us) else 0.0
    return packet_us + scatter_us


def _carried(path: PathEvidence) -> Marking | None:
    """Return the marks on packets captured behind a queue; None at the sender."""
    flow, table = path.capture.flow(path.index), path.transmissions
    if flow.taken_at == "sender":
        return None
    marked = (path.capture.packets["tos"][table.packet] & CE == CE).astype(np.int64)
    seen_ns = path.capture.connections.clock[table.packet]
    # The time stamps of a retransmission are no later than those of what was lost.
    rows = np.flatnonzero(~table.retransmitted)
    rows = rows[np.argsort(seen_ns[rows], kind="stable")]
    delay_us = (seen_ns - table.sent_ns)[rows] / 1e3
    time_s, packets = (seen_ns[rows] - table.start_ns) / 1e9, np.ones(len(rows), np.int64)
    return Marking(time_s, delay_us - delay_us.min(), packets, marked[rows], packets > 0, _is_l4s(flow))


def _reported(path: PathEvidence) -> Marking:
    """Return the marks reported by a flow's ACKs: by those that give an RTT, but for delayed ACKs of one segment."""
    flow = path.capture.flow(path.index)
    acks = AckRows(flow.events)
    delivers = acks["rs_acked_sacked"] > 0
    packets, rtt_us = acks["rs_acked_sacked"][delivers].astype(np.int64), acks["rs_rtt_us"][delivers]
    counted, before = acks["delivered_ce"][delivers].astype(np.int64), flow.events["delivered_ce"][:1].astype(np.int64)
    marked, is_known = np.diff(counted, prepend=before), np.ones(len(counted), bool)
    if flow.ecn.feedback == "classic":
        has_echo = marked > 0
        is_known[1:] = ~(has_echo[1:] & has_echo[:-1])
        marked = (has_echo & is_known).astype(np.int64)
        packets = np.where(marked > 0, 1, packets)  # one of them was marked, the others perhaps
    time_s = (acks["time_ns"][delivers] - path.transmissions.start_ns) / 1e9
    wait_us = np.maximum(rtt_us - path.least_rtt_us, 0.0)
    found = Marking(time_s, wait_us, packets, np.minimum(marked, packets), is_known, _is_l4s(flow))
    found = found.rows(rtt_us >= 0)
    return found.rows((found.packets > 1) | (found.wait_us < smoothed(found.wait_us) + const.DELAYED_ACK_US))


def _is_l4s(flow: Flow) -> bool:
    return bool(flow.ecn.sent["ect1"] > flow.ecn.sent["ect0"])


def smoothed(wait_us: Floats) -> Floats:
    """Return running medians of five, without single packets delayed by jitter or a delayed ACK."""
    if not len(wait_us):
        return wait_us
    return np.median(np.lib.stride_tricks.sliding_window_view(np.pad(wait_us, 2, mode="edge"), 5), axis=1)
