"""Which segments arrived at a receiver, and the SACK blocks with which it reports them [RFC 2018]."""

from typing import Any

import numpy as np

from cctrace.columns import Bools, Columns, Values, rows_of_spans
from cctrace.tcp.sequence import unwrapped

BLOCKS = 4  # per ACK
NO_TIME = 0.8  # of the minimum RTT, in which no retransmission is answered


def segments_of(columns: Columns, mine: Values, p: Any) -> tuple[Values, ...]:
    """Return each segment's departure time, start and end; super-packets are split."""
    sent = np.flatnonzero(mine & (columns["payload"] > 0))
    first, payload = unwrapped(columns["seq"][sent], int(p["isn"])), columns["payload"][sent].astype(np.int64)
    mss = max(int(p["mss"]), 1)
    count = -(-payload // mss)
    begin = np.repeat(first, count) + rows_of_spans(0, count) * mss
    return np.repeat(columns["time_ns"][sent], count), begin, np.minimum(begin + mss, np.repeat(first + payload, count))


def arrived_of(tx_ns: Values, begin: Values, end: Values, ack_ns: Values, acked: Values, rtt_ns: float) -> Bools:
    """Return which transmissions arrived: of each segment only the last one that its ACK can have answered."""
    highest = np.maximum.accumulate(acked) if len(acked) else acked
    at = np.searchsorted(highest, end)
    until = np.append(ack_ns, np.iinfo(np.int64).max)[at]
    arrived = np.ones(len(tx_ns), bool)
    last: dict[int, int] = {}
    for k, (segment, left, answer) in enumerate(zip(begin.tolist(), tx_ns.tolist(), until.tolist(), strict=True)):
        before = last.get(segment)
        if before is not None and answer - left > NO_TIME * rtt_ns:
            arrived[before] = False
        if before is None or answer - left > NO_TIME * rtt_ns:
            last[segment] = k
    return arrived


class Receiver:
    """What a receiver holds, after some of the segments that arrived.

    `tx_ns`, `begin`, `end`: of the segments that arrived, in this order.
    """

    def __init__(self, tx_ns: Values, begin: Values, end: Values) -> None:
        self.arrivals = list(zip(tx_ns.tolist(), begin.tolist(), end.tolist(), strict=True))
        # Least start of each arrival and those after it: none fills what was sent before the capture began.
        self.least = np.minimum.accumulate(np.asarray(begin)[::-1])[::-1].tolist()
        self.next, self.acked = 0, -1
        self.has = 1  # all up to here; the SYN is 0
        # [start, end, whether an ACK has reported it] of data above, the latest first
        self.beyond: list[list[int]] = []

    def advance(self, acked: int) -> None:
        """Take the arrivals without which not everything up to `acked` would have arrived."""
        while self.has < acked and self.next < len(self.arrivals) and self.least[self.next] < acked:
            self.take()
        self.has = self.acked = acked
        self._clear()

    def report(self) -> list[tuple[int, int]]:
        """Return the SACK blocks of an ACK: those not yet reported first, and of these the latest."""
        blocks = sorted(self.beyond, key=lambda block: block[2])[:BLOCKS]
        for block in blocks:
            block[2] = True
        return [(begin, end) for begin, end, _ in blocks]

    def is_beyond(self, ahead: int = 0) -> bool:
        """Whether there is another arrival, beyond a hole."""
        at = self.next + ahead
        return at < len(self.arrivals) and self.arrivals[at][1] > self.has

    def take(self) -> None:
        """Take the next arrival."""
        _, begin, end = self.arrivals[self.next]
        self.next += 1
        if begin > self.has:
            self._put([begin, end, False])
        else:
            self.has = max(self.has, end)
            self._clear()

    def _put(self, block: list[int]) -> None:
        """Merge a segment with its neighbours; the block that grew last comes first."""
        rest = []
        for other in self.beyond:
            if other[0] <= block[1] and block[0] <= other[1]:
                block = [min(block[0], other[0]), max(block[1], other[1]), False]
            else:
                rest.append(other)
        self.beyond = [block, *rest]

    def _clear(self) -> None:
        """Forget the blocks above a filled hole."""
        while True:
            reached = [block for block in self.beyond if block[0] <= self.has]
            if not reached:
                return
            self.has = max(self.has, *(block[1] for block in reached))
            self.beyond = [block for block in self.beyond if block[0] > self.has]
