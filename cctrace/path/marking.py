"""ECN marks reported by ACKs, with the queueing delay of the packets.

    marking = marking_of(flow)
    marking.wait_us         queueing delay of the newest segment that an ACK delivers
    marking.marked          how many of its segments were marked, where `is_known`

Accurate feedback counts every mark. Classic feedback reports only the first mark of an echo: until the sender
responds, every ACK has ECE set, whether its segments were marked or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cctrace.path import constants as const
from cctrace.path.arrays import Bools, Floats, Ints
from cctrace.schema import EVENT_CODES

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence


@dataclass(frozen=True)
class Marking:
    """One row per ACK that delivers data and gives an RTT, in order; n rows."""

    time_s: Floats  # arrival time, seconds since the flow's first packet; shape (n,)
    wait_us: Floats  # RTT minus the minimum RTT; shape (n,)
    # packets, marked: segments delivered, and those of them that were marked; with classic feedback the one that an
    # echo proves; shape (n,)
    packets: Ints
    marked: Ints
    # false while classic feedback repeats a mark: whether these segments were marked is unknown; shape (n,)
    is_known: Bools
    is_l4s: bool = False  # most packets were sent as ECT(1)

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """Packets and marks of each row, 0 where unknown."""
        return np.where(self.is_known, self.packets, 0.0), np.where(self.is_known, self.marked, 0.0)

    def joined(self, part: Ints) -> Marking:
        """Return neighbouring rows of a part as one; rows with marks remain, and known and unknown ones separate."""
        begins = np.ones(len(self), bool)
        has_marks = self.counts[1] > 0
        changes = (np.diff(part) != 0) | (np.diff(self.is_known.astype(np.int8)) != 0)
        begins[1:] = changes | has_marks[:-1] | has_marks[1:]
        first = np.flatnonzero(begins)
        packets, marked = (np.add.reduceat(column, first) for column in (self.packets, self.marked))
        rows = np.append(first[1:], len(self)) - 1
        return Marking(self.time_s[rows], self.wait_us[rows], packets, marked, self.is_known[rows], self.is_l4s)

    def grouped(self) -> Marking:
        """Return it with a few thousand rows."""
        return self.joined(np.arange(len(self)) // max(len(self) // const.GROUPS, 1))

    def until(self, marks: int) -> Marking:
        """Return the rows up to this number of marks."""
        rows = slice(int(np.searchsorted(np.cumsum(self.counts[1]), marks)) + 1)
        packets, marked = self.packets[rows], self.marked[rows]
        return Marking(self.time_s[rows], self.wait_us[rows], packets, marked, self.is_known[rows], self.is_l4s)

    def __len__(self) -> int:
        return len(self.time_s)


def marking_of(path: PathEvidence) -> Marking:
    """Return the marks reported by a flow's ACKs.

    Raises `StreamError` if the capture lacks the data or the acknowledgements.
    """
    flow = path.capture.flow(path.index)
    rows = flow.events.rows
    before = int(rows["delivered_ce"][0]) if len(rows) else 0
    rows = rows[(rows["event"] == EVENT_CODES["on_ack"]) & (rows["rs_acked_sacked"] > 0)]
    packets = rows["rs_acked_sacked"].astype(np.int64)
    marked = np.diff(rows["delivered_ce"].astype(np.int64), prepend=before)
    is_known = np.ones(len(rows), bool)
    if flow.ecn.feedback == "classic":
        echo = marked > 0
        is_known = ~(echo & np.concatenate([[False], echo[:-1]]))
        marked = (echo & is_known).astype(np.int64)
        packets = np.where(marked > 0, 1, packets)  # one of them was marked, the others perhaps
    marked = np.minimum(marked, packets)
    time_s = (rows["time_ns"] - path.transmissions.start_ns) / 1e9
    wait_us = np.maximum(rows["rs_rtt_us"] - path.least_rtt_us, 0.0)
    has_rtt = rows["rs_rtt_us"] >= 0
    has_rtt[has_rtt] = (packets[has_rtt] > 1) | (wait_us[has_rtt] < smoothed(wait_us[has_rtt]) + const.DELAYED_ACK_US)
    is_l4s = flow.ecn.sent["ect1"] > flow.ecn.sent["ect0"]
    return Marking(time_s[has_rtt], wait_us[has_rtt], packets[has_rtt], marked[has_rtt], is_known[has_rtt], is_l4s)


def smoothed(wait_us: Floats) -> Floats:
    """Return running medians of five, without single packets delayed by jitter or a delayed ACK."""
    if not len(wait_us):
        return wait_us
    return np.median(np.lib.stride_tricks.sliding_window_view(np.pad(wait_us, 2, mode="edge"), 5), axis=1)
