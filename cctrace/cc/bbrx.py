"""BBRx: BBR that also answers to the RTT, by a proportional-integral law (Chung et al., NetDev 0x12, 2018).

Model:  r = gamma C - (beta / delta) C (R - k/4 Rmin),   delta = Rmin                              [Chung18] Eqs. 4, 5

C is BBR's bandwidth estimate, R the latest RTT, Rmin BBR's min_rtt. C times the time by which the RTT exceeds its
target k/4 Rmin is the surplus queue; the rate gives way by the share beta of it per min_rtt. States as in `bbr2016`.
On entering STARTUP and PROBE_BW the flow reads beta from the bin of Table I that its C and Rmin fall in:

    Rmin \\ C, Mbit/s    [0,3)   [3,10)   [10,1k)   [1k,...)
    [0,50) ms            0.75    0.75     0.75      0.75       (the paper's text shows the first cell; taken as merged)
    [50,100) ms          0.45    0.45     0.75      0.75
    [100,...) ms         0.25    0.45     0.75      0.75       k = 4 everywhere

Sources: [Chung18]; there is no released code, its kernel was 4.15.
Differs from bbr2016: the pacing rate follows r in place of C. beta = 0 and gamma = 1 is bbr2016, decision by decision.

Left open by the paper, and chosen here:

* gain cycling: kept, the pacing gain multiplies r;
* cwnd: BBR's, from C (Eq. 4 speaks of the rate alone);
* R: the latest RTT sample, as measured (no smoothing); without one, or without min_rtt, r = gamma C;
* STARTUP: BBR's rule that the rate does not fall there is kept, so the law slows its rise and does not cut;
* a floor: the law goes negative where R - k/4 Rmin exceeds Rmin / beta; r is kept at C * 88/256 at least, BBR's own
  slowest rate (DRAIN), so that samples go on coming;
* above gamma C: allowed while R is below its target (k > 4), as Eq. 5 says;
* a bin is looked up with the values at that moment; before the first RTT with [0,50) ms.

The learning agent that retunes a bin sets `beta` (and `k`), which then hold in every bin.
"""

from cctrace import presets
from cctrace.cc.base import Param
from cctrace.cc.bbr1_model import BW_UNIT, GAIN_UNIT
from cctrace.cc.bbr2016 import BBR2016, DRAIN_GAIN
from cctrace.cc.cmath import U32_MAX

# Table I, rows of Rmin by columns of C; a cell that is lost is taken as its row's first.
_BETAS = [cell["beta"] for cell in presets.load("bbrx_table1")["bins"]]
TABLE_BETA = tuple(_BETAS[k - k % 4] if beta is None else beta for k, beta in enumerate(_BETAS))
FLOOR = DRAIN_GAIN / GAIN_UNIT


class BBRx(BBR2016):
    """BBR with a PI law on the RTT; see the module's header."""

    params = BBR2016.params | {
        "gamma": Param(1.0, 0.5, 1.0, "target utilisation [Chung18] Eq. 4 (the paper uses 1 and 0.98)"),
        "beta": Param(-1.0, -1.0, 2.0, "queue control constant [Chung18] Eq. 4; below 0: from Table I"),
        "k": Param(4, 4, 40, "target RTT in quarters of min_rtt [Chung18] Eq. 5"),
    }

    latest_rtt_us: int = -1
    bin_beta: float = 0.0  # in force since the last entry into STARTUP or PROBE_BW

    def on_ack(self, ack):
        """Note the latest RTT, then as the parent."""
        if ack.rs_rtt_us >= 0:
            self.latest_rtt_us = ack.rs_rtt_us
        super().on_ack(ack)

    def set_pacing_rate(self, ack, bw, gain):
        """Pace at gain * r [Chung18] Eq. 5."""
        super().set_pacing_rate(ack, int(bw * self.law()), gain)

    def law(self):
        """Return r / C [Chung18] Eq. 5."""
        if self.latest_rtt_us < 0 or self.min_rtt_us == 0 or self.min_rtt_us == U32_MAX:
            return self.gamma
        surplus = (self.latest_rtt_us - 0.25 * self.k * self.min_rtt_us) / self.min_rtt_us
        return max(self.gamma - self.bin_beta * surplus, FLOOR)

    def enter_startup(self, ack):
        """As the parent, with the bin read anew."""
        super().enter_startup(ack)
        self.read_table(ack)

    def enter_probe_bw(self, ack):
        """As the parent, with the bin read anew."""
        super().enter_probe_bw(ack)
        self.read_table(ack)

    def read_table(self, ack):
        """Look up beta for this path [Chung18] Table I."""
        if self.beta >= 0.0:
            self.bin_beta = self.beta
            return
        mbps = self.max_bw() * ack.mss * 8 / BW_UNIT  # segments/us: Mbit/s follow at once
        column = int(mbps >= 3) + int(mbps >= 10) + int(mbps >= 1000)
        row = 0
        if self.min_rtt_us != U32_MAX:
            row = int(self.min_rtt_us >= 50_000) + int(self.min_rtt_us >= 100_000)
        self.bin_beta = TABLE_BETA[4 * row + column]
