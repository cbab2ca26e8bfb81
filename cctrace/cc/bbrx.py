"""BBRx: BBR that also answers to the RTT, by a proportional-integral law (Chung et al., NetDev 0x12, 2018).

Model:  r = gamma C - (beta / delta) C (R - k/4 Rmin),   delta = Rmin                              [Chung18] Eqs. 4, 5

C is BBR's bandwidth estimate, R the latest RTT, Rmin BBR's min_rtt. C times the time by which the RTT exceeds its
target k/4 Rmin is the surplus queue; the rate gives way by the share beta of it per min_rtt. States as in `bbr2016`.
On entering STARTUP and PROBE_BW the flow reads beta from the bin of Table I that its C and Rmin fall in:

    models/bbrx_table1.json: beta from 0.25 (long and slow paths) to 0.75 (short or fast ones), k = 4 everywhere; of the
    first row the paper's text shows one cell, the others are taken as merged with it

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
from cctrace.cc.bbr1_model import BW_UNIT
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.cmath import U32_MAX

# Table I: rows of Rmin by columns of C; a cell that is lost is taken as its row's first.
_BINS = presets.load("bbrx_table1")["bins"]
TABLE_MBPS = tuple(cell["rate_mbps"][0] for cell in _BINS if cell["min_rtt_ms"] == _BINS[0]["min_rtt_ms"])
COLUMNS, ROWS = len(TABLE_MBPS), len(_BINS) // len(TABLE_MBPS)
TABLE_RTT_US = tuple(1000 * cell["min_rtt_ms"][0] for cell in _BINS[::COLUMNS])
TABLE_BETA = tuple(_BINS[k - k % COLUMNS]["beta"] if c["beta"] is None else c["beta"] for k, c in enumerate(_BINS))


class BBRx(BBR2016):
    """BBR with a PI law on the RTT; see the module's header."""

    params = BBR2016.params | {
        "gamma": Param(1.0, 0.5, 1.0, "target utilisation [Chung18] Eq. 4 (the paper uses 1 and 0.98)"),
        "beta": Param(-1.0, -1.0, 2.0, "queue control constant [Chung18] Eq. 4; below 0: from Table I"),
        "k": Param(_BINS[0]["k"], 4, 40, "target RTT in quarters of min_rtt [Chung18] Eq. 5"),
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
        return max(self.gamma - self.bin_beta * surplus, self.drain_gain)

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
        column = 0
        for k in range(1, COLUMNS):
            column = column + int(mbps >= TABLE_MBPS[k])
        row = 0
        if self.min_rtt_us != U32_MAX:
            for k in range(1, ROWS):
                row = row + int(self.min_rtt_us >= TABLE_RTT_US[k])
        self.bin_beta = TABLE_BETA[COLUMNS * row + column]
