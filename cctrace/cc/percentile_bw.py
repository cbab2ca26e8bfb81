"""The law of BBR-S as the oBBR paper describes it, on any stack: a percentile of the samples of some rounds.

Mixed into a BBR: `bbr_s_paper` (Linux, bbr2016) and `quic_bbr_s_paper` (nginx-quic, as the paper built it). What the
description leaves open: see `bbr_s_paper`.

Sources: [Bi23] section 5.1, of [Vargas21].
"""

from cctrace.cc.base import Param, ints
from cctrace.cc.cmath import u32
from cctrace.cc.filters import place_of

MAX_SAMPLES = 256

PARAMS = {"percentile": Param(85.0, 1.0, 100.0, "rank of the estimate among the samples, %")}


class PercentileBw:
    """The latest samples in order of time and of size; see the module's header."""

    percentile: float  # a parameter
    percentile_bw: int = 0  # the estimate
    ring_bw = ints(MAX_SAMPLES)  # samples in order of time
    ring_round = ints(MAX_SAMPLES)  # ... and their rounds
    first: int = 0  # place of the oldest
    count: int = 0
    sorted_bw = ints(MAX_SAMPLES)  # the same, ascending

    def take_sample(self, bw: int, now: int, rounds: int) -> None:
        """Drop samples older than `rounds`, add `bw` of the round `now`, and update the percentile."""
        while self.count > 0 and (self.count == MAX_SAMPLES or u32(now - self.ring_round[self.first]) > rounds):
            self.drop_oldest()
        place = (self.first + self.count) % MAX_SAMPLES
        self.ring_bw[place] = bw
        self.ring_round[place] = now
        self.insert_sorted(bw)
        rank = int(self.count * self.percentile / 100.0)
        if rank * 100.0 < self.count * self.percentile:  # round up
            rank = rank + 1
        self.percentile_bw = self.sorted_bw[max(rank, 1) - 1]

    def drop_oldest(self) -> None:
        """Take the oldest sample out of both orders."""
        place = place_of(self.sorted_bw, self.count, self.ring_bw[self.first])
        self.first = (self.first + 1) % MAX_SAMPLES
        self.count = self.count - 1
        while place < self.count:
            self.sorted_bw[place] = self.sorted_bw[place + 1]
            place = place + 1

    def insert_sorted(self, bw: int) -> None:
        """Add a sample to the ascending order."""
        place = self.count
        while place > 0 and self.sorted_bw[place - 1] > bw:
            self.sorted_bw[place] = self.sorted_bw[place - 1]
            place = place - 1
        self.sorted_bw[place] = bw
        self.count = self.count + 1
