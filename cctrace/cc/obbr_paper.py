"""oBBR as its paper describes it, on Linux BBR: the in-flight cap g follows the buffer, bw may fall at once.

Model:  the window's cap is g * BDP instead of 2 * BDP (section 4.1):

            loss, RTT/min_rtt < g     g = min(1 + mu * (RTT - min_rtt)/min_rtt, g_max)     the buffer is shallow
            every other ACK           g = min(g + alpha * acked/BDP, g_max)
            while PROBE_BW probes     at least 1.25

        bw falls to the mean of the last k samples (section 4.2) after k samples in a row below 0.75 bw, or k RTTs in a
        row above (g_max + 0.5) min_rtt. U = delivered - 10 * unacked is scored over intervals T; if its mean over 2T
        after the update is below that over 2T before, the old bw returns.

        watching --(k low samples or k high RTTs: bw := mean)--> 1st interval --> 2nd interval
           ^                                                                          |
           +------------------------------(keep or revert)----------------------------+

        modes: as in bbr2016.

Parameters as in section 5.1: k = 30, T = 200 ms, alpha = 0.01, g_max = 2, mu = 0.5, 0.75 or 1.

Left open by the paper, and chosen here:

* its parent: "BBR" is that of [Cardwell16] in every property it names (no ACK aggregation, no pacing margin), so
  bbr2016.
* when g applies: it replaces the cwnd_gain that is "set to 2 in practice", that of PROBE_BW. It is kept up to date in
  every mode. The parent's allowance of three bursts is added to g * BDP.
* RTT is the latest sample, min_rtt that after the same ACK; an ACK with loss does not also grow g.
* samples and RTTs count in PROBE_BW only, where they are not low (high) by design; app-limited samples not at all.
* "acked in T" and "not acked in T" are in segments: what was delivered, and what was sent less what was delivered (so
  what came into flight or was lost). An interval ends with the first ACK after T; PROBE_RTT restarts it.
* bw is updated at once. Without two intervals before it there is nothing to compare, and the update stands.
* reverting lets the old bw enter the filter as a new sample, so a still higher one stays; no update is tried meanwhile.

Sources: [Bi23] sections 4.1, 4.2, 5.1.   Differs from bbr2016 in: update_model (adds the above). Differs from the
released `obbr` in: g_max 2 (2.05); a loss never raises g; a drop needs no loss; bw falls at once, not after two more
intervals; bursts on top of g * BDP; STARTUP keeps its gain; g survives PROBE_RTT.
"""

from cctrace.cc import obbr_law
from cctrace.cc.ack import Ack
from cctrace.cc.bbr1_model import GAIN_UNIT, PROBE_BW, PROBE_RTT
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.cmath import U32_MAX, u32
from cctrace.cc.filters import reset_filter, running_max
from cctrace.cc.linux import USEC_PER_MSEC
from cctrace.cc.obbr_law import OBBRLaw


class OBBRPaper(OBBRLaw, BBR2016):
    """oBBR on Linux BBR; see the module's header."""

    params = {name: row for name, row in BBR2016.params.items() if name != "cwnd_gain"} | obbr_law.PARAMS

    bbr_cwnd_gain: float = 2.0  # g replaces it
    latest_rtt_us: int = 0

    def update_model(self, ack: Ack) -> None:  # [Bi23] §4
        """Learn what BBR learns, then adapt the cap and look for a bandwidth drop."""
        super().update_model(ack)
        if ack.rs_rtt_us >= 0:
            self.latest_rtt_us = ack.rs_rtt_us
        min_rtt_us = 0 if self.min_rtt_us == U32_MAX else self.min_rtt_us
        bdp = self.bdp(self.max_bw(), GAIN_UNIT) if min_rtt_us != 0 else 1
        self.adapt_cap(ack.rs_losses, ack.rs_acked_sacked, bdp, self.latest_rtt_us, min_rtt_us)
        sent = u32(ack.delivered + ack.lost + self.packets_in_flight(ack))
        interval_us = self.interval_ms * USEC_PER_MSEC if self.mode != PROBE_RTT else 0
        if self.score_interval(ack.now_us, interval_us, sent, ack.delivered):
            running_max(self.bw_v, self.bw_t, self.bw_rtts, self.rtt_cnt, self.old_bw)
        if self.mode == PROBE_BW:
            self.note_samples(ack)
            if self.bw_fell():
                self.begin_trial(self.max_bw())
                reset_filter(self.bw_v, self.bw_t, self.rtt_cnt, self.mean_recent_bw())
            self.cwnd_gain = int(self.cap(self.pacing_gain > GAIN_UNIT) * GAIN_UNIT)

    def note_samples(self, ack: Ack) -> None:  # [Bi23] §4.2
        """Count low bandwidth samples and high RTTs."""
        if ack.rs_rtt_us >= 0:
            self.note_rtt(ack.rs_rtt_us, self.min_rtt_us)
        if ack.rs_delivered < 0 or ack.rs_interval_us <= 0 or ack.rs_is_app_limited != 0:
            return
        self.note_rate(u32(self.delivery_rate(ack)), self.max_bw())
