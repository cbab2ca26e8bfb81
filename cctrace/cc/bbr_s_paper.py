"""BBR-S as the oBBR paper describes it, on Linux BBR: a percentile of the bandwidth samples, not their maximum.

Model:  bw = 85th percentile of the samples of the last 10 rounds

            samples of 10 rounds, in order   |o o o o o o o o|o o|    bw is where the bar is: 15 % of them are higher

        modes: as in bbr2016.

A burst that a router lets through, or a compressed train of ACKs, gives a few samples far above the bottleneck's rate.
The maximum keeps each of them for 10 rounds; the percentile needs 15 % of all samples to be that high.

Left open by the description, and chosen here:

* its parent: the "BBR" of the same paper is that of [Cardwell16], so bbr2016.
* "collected samples": those of BBR's own window of 10 rounds, by its own rules (app-limited ones only if they raise the
  estimate), of these the latest 256. On a path with more than 25 ACKs a round the window is therefore shorter.
* the percentile is the nearest rank: the smallest sample that at least 85 % do not exceed.
* it is used for everything that BBR uses bw for (the released `bbr_s` keeps the maximum for the BDP).

Sources: [Bi23] section 5.1, of [Vargas21].   Differs from bbr2016 in: update_bw (adds take_sample), max_bw; from the
released `bbr_s` in: window in rounds, also before 100 samples, also for the BDP, nearest rank.
"""

from cctrace.cc.base import Param, ints
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.cmath import u32

MAX_SAMPLES = 256


class BBRSPaper(BBR2016):
    """BBR-S on Linux BBR; see the module's header."""

    params = BBR2016.params | {"percentile": Param(85.0, 1.0, 100.0, "rank of the estimate among the samples, %")}

    percentile_bw: int = 0  # the estimate
    ring_bw = ints(MAX_SAMPLES)  # samples in order of time
    ring_round = ints(MAX_SAMPLES)  # ... and their rounds
    first: int = 0  # place of the oldest
    count: int = 0
    sorted_bw = ints(MAX_SAMPLES)  # the same, ascending

    def max_bw(self):  # [Bi23] §5.1
        """Return the percentile, in segments/us << 24."""
        return self.percentile_bw

    def update_bw(self, ack):  # [Bi23] §5.1
        """Count rounds as BBR does, and take the sample into the percentile."""
        super().update_bw(ack)
        if ack.rs_delivered < 0 or ack.rs_interval_us <= 0:
            return
        bw = u32(self.delivery_rate(ack))
        if ack.rs_is_app_limited == 0 or bw >= self.percentile_bw:
            self.take_sample(bw)

    def take_sample(self, bw):
        """Drop what has left the window, add `bw`, and look up the rank."""
        while self.count > 0 and (
            self.count == MAX_SAMPLES or u32(self.rtt_cnt - self.ring_round[self.first]) > self.bw_rtts
        ):
            self.drop_oldest()
        place = (self.first + self.count) % MAX_SAMPLES
        self.ring_bw[place] = bw
        self.ring_round[place] = self.rtt_cnt
        self.insert_sorted(bw)
        rank = int(self.count * self.percentile / 100.0)
        if rank * 100.0 < self.count * self.percentile:  # round up
            rank = rank + 1
        self.percentile_bw = self.sorted_bw[max(rank, 1) - 1]

    def drop_oldest(self):
        """Take the oldest sample out of both orders."""
        place = self.place_of(self.ring_bw[self.first])
        self.first = (self.first + 1) % MAX_SAMPLES
        self.count = self.count - 1
        while place < self.count:
            self.sorted_bw[place] = self.sorted_bw[place + 1]
            place = place + 1

    def insert_sorted(self, bw):
        """Add a sample to the ascending order."""
        place = self.count
        while place > 0 and self.sorted_bw[place - 1] > bw:
            self.sorted_bw[place] = self.sorted_bw[place - 1]
            place = place - 1
        self.sorted_bw[place] = bw
        self.count = self.count + 1

    def place_of(self, bw):
        """Return the first place whose sample is not smaller than `bw`."""
        low = 0
        high = self.count - 1
        while low < high:
            middle = (low + high) // 2
            if self.sorted_bw[middle] < bw:
                low = middle + 1
            else:
                high = middle
        return low
