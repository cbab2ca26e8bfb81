"""What ACKs report of marks (ECN), beside the queue that the packets had met.

    marking = marking_of(flow)
    marking.wait_us         what the newest segment that an ACK delivers had waited
    marking.marked          how many segments of it were marked, where `is_known`

Accurate feedback counts every mark. Classic feedback shows the first one of an echo only: until the sender has
answered, every ACK has ECE, whatever its segments met.
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
    """One row per ACK that delivers something and gives an RTT, in order; n of them.

    Attributes
    ----------
    time_s : ndarray of float, shape (n,)
        When it came, seconds since the flow's first packet.
    wait_us : ndarray of float, shape (n,)
        Its RTT above the least one.
    packets, marked : ndarray of int64, shape (n,)
        Segments it delivers, and those of them that were marked.
    is_known : ndarray of bool, shape (n,)
        False while classic feedback repeats a mark: whether these segments were marked is unknown.
    """

    time_s: Floats
    wait_us: Floats
    packets: Ints
    marked: Ints
    is_known: Bools
    is_l4s: bool = False  # most packets left as ECT(1)

    @property
    def counts(self) -> tuple[Floats, Floats]:
        """Packets and marks of each row, 0 where these are not known."""
        return np.where(self.is_known, self.packets, 0.0), np.where(self.is_known, self.marked, 0.0)

    def __len__(self) -> int:
        return len(self.time_s)


def marking_of(path: PathEvidence) -> Marking:
    """Return what the ACKs of a flow report of marks.

    Raises
    ------
    StreamError
        If the capture lacks the data or the acknowledgements.
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
    marked = np.minimum(marked, packets)
    time_s = (rows["time_ns"] - path.transmissions.start_ns) / 1e9
    wait_us = np.maximum(rows["rs_rtt_us"] - path.least_rtt_us, 0.0)
    told = rows["rs_rtt_us"] >= 0
    told[told] = (packets[told] > 1) | (wait_us[told] < smoothed(wait_us[told]) + const.DELAYED_ACK_US)
    is_l4s = flow.ecn.sent["ect1"] > flow.ecn.sent["ect0"]
    return Marking(time_s[told], wait_us[told], packets[told], marked[told], is_known[told], is_l4s)


def smoothed(wait_us: Floats) -> Floats:
    """Return waits without what single packets have by jitter or a delayed ACK: medians of five."""
    if not len(wait_us):
        return wait_us
    return np.median(np.lib.stride_tricks.sliding_window_view(np.pad(wait_us, 2, mode="edge"), 5), axis=1)
