"""CUBIC with pacing, the baseline of the oBBR paper.

Model:  the window of `cubic6`;  pacing_rate = ratio * cwnd / srtt,  ratio = 2 in slow start, 1.2 afterwards [Bi23] §5.1

The ratio is 2 so that the window can double within a round, and 1.2 so that pacing smooths without becoming the limit.

Sources: [Bi23] (oBBR) §5.1.   Differs from cubic6: sets the pacing rate; HyStart knows that the socket paces.

Left open by the paper, and chosen here: the rate is renewed on every ACK, whether or not the window may grow. Before
the first RTT sample the sender is not paced. The authors built it in nginx's QUIC; the law is the same, the window here
is Linux's. (Linux itself has these two ratios, but switches to 1.2 at half of ssthresh, and takes the larger of cwnd
and packets out.)
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param
from cctrace.cc.cubic6 import Cubic6
from cctrace.cc.linux import USEC_PER_SEC


class CubicPaced(Cubic6):
    """CUBIC that paces; see the module's header."""

    sets_pacing_rate = True
    params = {name: row for name, row in Cubic6.params.items() if name != "max_pacing_rate"} | {
        "paced": Cubic6.params["paced"]._replace(default=1),
        "slow_start_ratio": Param(2.0, 1.0, 10.0, "pacing rate over cwnd/srtt in slow start [Bi23] §5.1"),
        "avoidance_ratio": Param(1.2, 1.0, 10.0, "pacing rate over cwnd/srtt afterwards [Bi23] §5.1"),
    }

    def pkts_acked(self, ack: Ack) -> None:
        """HyStart, then the rate: in a recovery too."""
        super().pkts_acked(ack)
        self.set_pacing_rate(ack)

    def cong_avoid(self, ack: Ack) -> None:
        """Grow, then pace the new window."""
        super().cong_avoid(ack)
        self.set_pacing_rate(ack)

    def set_pacing_rate(self, ack: Ack) -> None:
        """Bytes/s, payload [Bi23] §5.1."""
        if ack.srtt_us8 == 0:
            return
        ratio = self.avoidance_ratio
        if self.in_slow_start():
            ratio = self.slow_start_ratio
        self.pacing_rate = int(ratio * (self.snd_cwnd * ack.mss * USEC_PER_SEC * 8) / ack.srtt_us8)
