"""Super-packets of simulated senders: what was in flight when each of their segments was sent."""

from types import SimpleNamespace

import numpy as np
import pytest

from cctrace.lang.memory import forget, place
from cctrace.sim.core import skbs, structs
from cctrace.sim.core.structs import FRESH, SACKED


class Each:
    """The same with a number in every segment, as the kernel's copies of an skb have it (tcp_fragment)."""

    def __init__(self, as_v2):
        self.as_v2, self.end, self.in_flight = as_v2, {}, {}

    def send(self, first, end, in_flight):
        for k in range(first, end):
            self.end[k], self.in_flight[k] = end, in_flight

    def part(self, una, index):
        end, first = self.end[index], index
        while first > una and self.end[first - 1] == end:
            first -= 1
        before = max(self.in_flight[index] - (end - first), 0)
        for k in range(first, end if index > first else first):
            if k < index:
                self.end[k] = index
            if (k < index) != self.as_v2:
                self.in_flight[k] = before + (end - index if self.as_v2 else index - first)

    def shift(self, una, index, until):
        self.part(una, index)
        for k in range(until, self.end[index]):
            self.in_flight[k] = max(self.in_flight[k] - (until - index), 0)
        if until < self.end[index]:
            self.send(index, until, self.in_flight[index])


@pytest.mark.parametrize("as_v2", [False, True])
def test_each_segment_has_what_was_in_flight_when_its_super_packet_was_sent(as_v2):
    random = np.random.default_rng(3)
    for _ in range(300):
        board, each = np.zeros(64, structs.SEGMENT).view(np.recarray), Each(as_v2)
        f = SimpleNamespace(seg=place(board), mask=63, una=0, parts_as_v2=int(as_v2), profile=structs.LINUX)
        sent = 0
        while sent < 40:
            end, in_flight = sent + int(random.integers(1, 12)), int(random.integers(1, 60))
            skbs.join_skbs(f, sent, end, in_flight)
            each.send(sent, end, in_flight)
            sent = end
        while f.una < sent - 2:
            prior, f.una = f.una, int(random.integers(f.una, sent - 1))
            new = [k for k in range(f.una + 1, sent) if random.random() < 0.2 and not board[k].marks & SACKED]
            for k in new:
                board[k].marks |= FRESH
            skbs.part_acked(f, prior)
            for k in new:
                parted(f, each, board, k)
                board[k].marks = SACKED
            assert [skbs.tx_in_flight(f, board[k]) for k in range(prior, sent)] == [
                each.in_flight[k] for k in range(prior, sent)
            ]
            while f.una < sent and board[f.una].marks & SACKED:
                f.una += 1
        forget([f.seg])


def parted(f, each, board, index):
    """Part a segment that is newly SACKed, none of which was lost, from its super-packet."""
    skbs.part_sacked(f, index)
    follows = index > f.una and board[index - 1].marks & SACKED
    if follows and each.end[index - 1] == each.end[index]:
        return
    until = index
    while until < each.end[index] and board[until].marks & FRESH:
        until += 1
    if follows:
        each.shift(f.una, index, until)
    else:
        each.part(f.una, index)
        if until < each.end[index]:
            each.part(f.una, until)
