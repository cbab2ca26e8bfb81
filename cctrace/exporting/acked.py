"""Which packets each ACK acknowledges for the first time, as the ACK frames of QUIC name them.

TCP acknowledges bytes, and a byte may have been sent several times. Data counts as acknowledged by the latest
packet that carried it: a packet whose bytes were all retransmitted is never acknowledged, like QUIC's lost packets.
"""

from bisect import bisect_left
from collections.abc import Sequence

Range = tuple[int, int]  # first and last, both included


class Acked:
    """Tracks what was sent and which of it is acknowledged.

    >>> account = Acked()
    >>> for number in range(4):
    ...     account.sent(number, 1 + 100 * number, 101 + 100 * number)
    >>> account.acked(101, [(201, 401)])
    [(0, 0), (2, 3)]
    >>> account.sent(4, 101, 201)
    >>> account.acked(401, [])
    [(4, 4)]
    """

    def __init__(self) -> None:
        self._begin: list[int] = []  # of new data, ascending, with its end and number; -1 once acknowledged or replaced
        self._end: list[int] = []
        self._number: list[int] = []
        self._first = 0  # of new data that is not cumulatively acknowledged
        self._retransmissions: list[tuple[int, int, int]] = []  # retransmissions: begin, end, number
        self._reached: dict[int, int] = {}  # left edge of a SACK block -> new data examined so far

    def sent(self, number: int, begin: int, end: int) -> None:
        """Note a packet with the bytes `begin` to `end`, the latter excluded."""
        if not self._end or begin >= self._end[-1]:
            self._begin.append(begin)
            self._end.append(end)
            self._number.append(number)
            return
        at = bisect_left(self._begin, begin)
        while at < len(self._begin) and self._end[at] <= end:
            self._number[at] = -1
            at += 1
        self._retransmissions = [one for one in self._retransmissions if not (begin <= one[0] and one[1] <= end)]
        self._retransmissions.append((begin, end, number))

    def acked(self, cumulative: int, blocks: Sequence[tuple[int, int]]) -> list[Range]:
        """Return the packets that an ACK acknowledges for the first time, as ranges in ascending order.

        `cumulative`: the first byte that it does not acknowledge. `blocks`: its SACK blocks.
        """
        found: list[int] = []
        self._first = self._take(self._first, cumulative, found)
        for left, right in blocks:
            if right > cumulative:
                at = max(self._reached.get(left, 0), self._first, bisect_left(self._begin, left))
                self._reached[left] = self._take(at, right, found)
        if self._retransmissions:
            covered = [(0, cumulative), *blocks]
            for one in self._retransmissions:
                if any(left <= one[0] and one[1] <= right for left, right in covered):
                    found.append(one[2])
            taken = set(found)
            self._retransmissions = [one for one in self._retransmissions if one[2] not in taken]
        return _ranges(sorted(found))

    def _take(self, at: int, end: int, found: list[int]) -> int:
        """Take the new data from the place `at` that ends by `end`; return the place after it."""
        while at < len(self._end) and self._end[at] <= end:
            if self._number[at] >= 0:
                found.append(self._number[at])
                self._number[at] = -1
            at += 1
        return at


def _ranges(numbers: list[int]) -> list[Range]:
    found: list[Range] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
