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

from cctrace.cc import percentile_bw
from cctrace.cc.ack import Ack
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.cmath import u32
from cctrace.cc.percentile_bw import PercentileBw


class BBRSPaper(PercentileBw, BBR2016):
    """BBR-S on Linux BBR; see the module's header."""

    params = BBR2016.params | percentile_bw.PARAMS

    def max_bw(self) -> int:  # [Bi23] §5.1
        """Return the percentile, in segments/us << 24."""
        return self.percentile_bw

    def update_bw(self, ack: Ack) -> None:  # [Bi23] §5.1
        """Count rounds as BBR does, and take the sample into the percentile."""
        super().update_bw(ack)
        if ack.rs_delivered < 0 or ack.rs_interval_us <= 0:
            return
        bw = u32(self.delivery_rate(ack))
        if ack.rs_is_app_limited == 0 or bw >= self.percentile_bw:
            self.take_sample(bw, self.rtt_cnt, self.bw_rtts)
