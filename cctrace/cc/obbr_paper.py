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

from cctrace.cc.base import Param, ints
from cctrace.cc.bbr1_model import GAIN_UNIT, PROBE_BW, PROBE_RTT
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.cmath import U32_MAX, s32, u32
from cctrace.cc.filters import reset_filter, running_max
from cctrace.cc.linux import USEC_PER_MSEC

MAX_SAMPLES = 200
LOW_BW = 0.75  # of bw
HIGH_RTT_MARGIN = 0.5  # of min_rtt, above g_max
UNACKED_WEIGHT = 10
PROBE_CAP = 1.25  # the cap must not undo the probe's pacing gain

WATCHING = 0
FIRST_INTERVAL = 1
SECOND_INTERVAL = 2


class OBBRPaper(BBR2016):
    """oBBR on Linux BBR; see the module's header."""

    params = {name: row for name, row in BBR2016.params.items() if name != "cwnd_gain"} | {
        "mu": Param(0.5, 0.0, 1.0, "share of a shallow buffer that the flow may fill [Bi23] §4.1"),
        "g_max": Param(2.0, 1.0, 10.0, "largest cap, BDP [Bi23] §4.1"),
        "alpha": Param(0.01, 0.0, 1.0, "recovery of the cap, BDP per BDP acknowledged [Bi23] §4.1"),
        "k": Param(30, 1, MAX_SAMPLES, "samples in a row that show a bandwidth drop [Bi23] §4.2"),
        "interval_ms": Param(200, 1, 60_000, "T, interval of a score, ms [Bi23] §4.2"),
    }

    bbr_cwnd_gain: float = 2.0  # g replaces it
    g: float = 0.0  # the cap, BDP; 0 before the first ACK
    latest_rtt_us: int = 0
    recent_bw = ints(MAX_SAMPLES)  # ring of the last k samples of PROBE_BW
    recent_place: int = 0
    recent_count: int = 0
    low_bw_count: int = 0  # consecutive
    high_rtt_count: int = 0
    # Scores.
    trial: int = WATCHING
    old_bw: int = 0
    interval_start_us: int = 0
    sent_before: int = 0  # segments sent, and delivered, before the interval
    delivered_before: int = 0
    score: int = 0  # of the last interval
    previous_score: int = 0  # of the one before it
    scores: int = 0  # intervals scored, up to 2
    score_before_update: int = 0  # sum of two

    def update_model(self, ack):  # [Bi23] §4
        """Learn what BBR learns, then adapt the cap and look for a bandwidth drop."""
        super().update_model(ack)
        if ack.rs_rtt_us >= 0:
            self.latest_rtt_us = ack.rs_rtt_us
        self.adapt_cap(ack)
        self.score_intervals(ack)
        if self.mode == PROBE_BW:
            self.note_samples(ack)
            self.check_bw_drop()
            cap = max(self.g, PROBE_CAP) if self.pacing_gain > GAIN_UNIT else self.g
            self.cwnd_gain = int(cap * GAIN_UNIT)

    def adapt_cap(self, ack):  # [Bi23] §4.1
        """Scale g to a shallow buffer on loss, let it recover otherwise."""
        if self.g == 0.0:
            self.g = self.g_max
        if self.min_rtt_us == U32_MAX or self.min_rtt_us == 0:
            return
        if ack.rs_losses > 0:
            queueing = (self.latest_rtt_us - self.min_rtt_us) / self.min_rtt_us  # buffer over BDP
            if 1.0 + queueing < self.g:
                self.g = min(1.0 + self.mu * max(queueing, 0.0), self.g_max)
            return
        if self.g < self.g_max:
            bdp = max(self.bdp(self.max_bw(), GAIN_UNIT), 1)
            self.g = min(self.g + self.alpha * ack.rs_acked_sacked / bdp, self.g_max)

    # ---- bandwidth drops -------------------------------------------------------------------------------------------

    def note_samples(self, ack):  # [Bi23] §4.2
        """Count low bandwidth samples and high RTTs."""
        if ack.rs_rtt_us >= 0:
            high = ack.rs_rtt_us > (self.g_max + HIGH_RTT_MARGIN) * self.min_rtt_us
            self.high_rtt_count = self.high_rtt_count + 1 if high else 0
        if ack.rs_delivered < 0 or ack.rs_interval_us <= 0 or ack.rs_is_app_limited != 0:
            return
        bw = u32(self.delivery_rate(ack))
        self.low_bw_count = self.low_bw_count + 1 if bw < LOW_BW * self.max_bw() else 0
        self.recent_bw[self.recent_place] = bw
        self.recent_place = self.recent_place + 1 if self.recent_place + 1 < self.k else 0
        self.recent_count = min(self.recent_count + 1, self.k)

    def check_bw_drop(self):  # [Bi23] §4.2
        """Let bw fall to the mean of the last k samples, for a trial of two intervals."""
        suspected = self.low_bw_count >= self.k or self.high_rtt_count >= self.k
        if not suspected or self.trial != WATCHING or self.recent_count < self.k:
            return
        self.old_bw = self.max_bw()
        reset_filter(self.bw_v, self.bw_t, self.rtt_cnt, self.mean_recent_bw())
        self.low_bw_count = 0
        self.high_rtt_count = 0
        if self.scores == 2:
            self.score_before_update = self.score + self.previous_score
            self.trial = FIRST_INTERVAL
            self.interval_start_us = 0

    def mean_recent_bw(self):
        """Return the mean of the last k samples."""
        total = 0
        for i in range(self.k):
            total = total + self.recent_bw[i]
        return total // self.k

    def score_intervals(self, ack):  # [Bi23] §4.2
        """Score U over each interval; at the end of a trial keep or revert bw."""
        sent = u32(ack.delivered + ack.lost + self.packets_in_flight(ack))
        if self.interval_start_us != 0 and self.mode != PROBE_RTT:
            if ack.now_us - self.interval_start_us < self.interval_ms * USEC_PER_MSEC:
                return
            delivered = s32(ack.delivered - self.delivered_before)
            unacked = s32(sent - self.sent_before) - delivered
            self.previous_score = self.score
            self.score = delivered - UNACKED_WEIGHT * unacked
            self.scores = min(self.scores + 1, 2)
            self.advance_trial()
        self.interval_start_us = ack.now_us
        self.sent_before = sent
        self.delivered_before = ack.delivered

    def advance_trial(self):  # [Bi23] §4.2
        """After the second interval return to the old bw if the flow fared better with it."""
        if self.trial == FIRST_INTERVAL:
            self.trial = SECOND_INTERVAL
        elif self.trial == SECOND_INTERVAL:
            self.trial = WATCHING
            if self.score + self.previous_score < self.score_before_update:
                running_max(self.bw_v, self.bw_t, self.bw_rtts, self.rtt_cnt, self.old_bw)
