"""BBR with one estimate replaced by its true value: Kumar's two repairs of the minRTT collapse (IFIP Networking 2019).

    cbe    "correct bandwidth estimate": the bottleneck's rate is given; min_rtt is estimated and may still collapse
    cmrt   "correct minimum RTT": the uncongested average RTT is given; the bandwidth is estimated

Everything else, states included, is the parent's: `bbr2016` or `bbr2019`, and, beyond the paper, `bbr2` or `bbr3`.
Neither can be deployed: they are oracles, which show which of the two estimates causes a collapse, and how far a repair
could reach (Fig. 8).

Sources: [Kumar19] §IV. The paper gives no code.

Left open by the paper, and chosen here:

* cbe: the given rate replaces the maximum filter wherever it is read, also where BBR judges whether the pipe is full
  (so STARTUP ends after its first four rounds), and a policer's rate; the filter itself goes on measuring;
* cmrt: the given RTT replaces min_rtt after every ACK. A sample not above it renews its stamp, so with jitter around
  the average PROBE_RTT hardly happens; without jitter BBR is what the parent is;
* the rate is given as payload, as BBR counts: 1 Gbit/s of 1514-byte frames with 1448 bytes each are 119.55 MB/s.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import LinuxController, Param
from cctrace.cc.bbr1_model import BW_UNIT
from cctrace.cc.bbr2 import BBR2
from cctrace.cc.bbr3 import BBR3
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.bbr2019 import BBR2019
from cctrace.cc.linux import USEC_PER_SEC

TRUE_BW = {"true_bw_Bps": Param(119_550_000, 1_000, 10**11, "payload rate of the bottleneck, bytes/s [Kumar19] §IV")}
TRUE_RTT = {"true_rtt_us": Param(5_000, 1, 10**8, "uncongested average RTT, us [Kumar19] RTT_UCAV")}


class CorrectBandwidth(LinuxController):
    """Uses the given rate as the estimate; converts it with the `mss` of the last ACK."""

    true_bw_Bps: int  # a parameter
    mss: int = 1448

    def init(self, ack: Ack) -> None:
        """Note the segment size first: the parent may ask for the rate."""
        self.mss = ack.mss
        super().init(ack)

    def on_ack(self, ack: Ack) -> None:
        """As the parent, for this segment size."""
        self.mss = ack.mss
        super().on_ack(ack)  # type: ignore[misc]  # the parent's

    def max_bw(self) -> int:
        """The true bandwidth, in segments/us << 24."""
        return max(self.true_bw_Bps * BW_UNIT // (self.mss * USEC_PER_SEC), 1)

    def bw(self) -> int:
        """The true bandwidth, policer or not."""
        return self.max_bw()


class CorrectMinRtt(LinuxController):
    """Uses the given RTT as min_rtt."""

    true_rtt_us: int  # a parameter
    min_rtt_us: int  # the parent's

    def init(self, ack: Ack) -> None:
        """The true RTT from the start."""
        super().init(ack)
        self.min_rtt_us = self.true_rtt_us

    def update_min_rtt(self, ack: Ack) -> None:
        """As the parent, then discard its measurement."""
        super().update_min_rtt(ack)  # type: ignore[misc]  # the parent's
        self.min_rtt_us = self.true_rtt_us


class BBR2016Cbe(CorrectBandwidth, BBR2016):
    """BBR of 2016 with the bottleneck's rate given."""

    params = BBR2016.params | TRUE_BW


class BBR2016Cmrt(CorrectMinRtt, BBR2016):
    """BBR of 2016 with the uncongested average RTT given."""

    params = BBR2016.params | TRUE_RTT


class BBR2019Cbe(CorrectBandwidth, BBR2019):
    """BBR of 2019 with the bottleneck's rate given."""

    params = BBR2019.params | TRUE_BW


class BBR2019Cmrt(CorrectMinRtt, BBR2019):
    """BBR of 2019 with the uncongested average RTT given."""

    params = BBR2019.params | TRUE_RTT


class BBR2Cbe(CorrectBandwidth, BBR2):
    """BBRv2 with the bottleneck's rate given."""

    params = BBR2.params | TRUE_BW


class BBR2Cmrt(CorrectMinRtt, BBR2):
    """BBRv2 with the uncongested average RTT given."""

    params = BBR2.params | TRUE_RTT


class BBR3Cbe(CorrectBandwidth, BBR3):
    """BBRv3 with the bottleneck's rate given."""

    params = BBR3.params | TRUE_BW


class BBR3Cmrt(CorrectMinRtt, BBR3):
    """BBRv3 with the uncongested average RTT given."""

    params = BBR3.params | TRUE_RTT
