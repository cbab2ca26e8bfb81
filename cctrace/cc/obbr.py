"""oBBR as released: QUIC BBR whose in-flight cap g follows the buffer, and whose bandwidth estimate may fall at once.

Model:  on loss      g = min(1 + mu * (RTT - min_rtt)/min_rtt, 2.05)     (a full buffer holds (RTT - min_rtt) * bw)
        otherwise    g = min(g + 0.01 * acked/BDP, 2.05)
        bandwidth dropped?  loss and (30 samples in a row < 0.75 bw, or more than 30 RTTs in a row > 2.5 min_rtt)
                     -> after two more monitor intervals of 200 ms  bw = mean of the last 30 samples
                     -> two intervals later the old bw again, if U = delivered - 10*unacked was better with it

        experiment `cc`:  -1 idle --(drop suspected)--> 0 --> 1 --(bw := mean)--> 2 --> 3 --(keep or return)--> idle
                                                      every arrow is one interval of 200 ms

        modes: as in quic_bbr.

Quirks, kept because decisions depend on them:

* g_max is the double 2.05 (paper: 2), stored in a float that is a little *smaller*. The test "g < g_max", meant to
  spare the unrestricted flow, is therefore true at g_max as well: the window is always clamped to g * BDP, without the
  three bursts that quic_bbr allows.
* RTT - min_rtt is unsigned: an RTT below min_rtt gives the largest g, not one below 1. (min_rtt is updated after this.)
* a loss can raise g (the paper only lowers it); g also grows in PROBE_RTT, where it starts at 1.
* g falls from 2.885 to 2.05 within STARTUP once 10 % of the data were lost; every exit of PROBE_RTT sets it to 2.
* an interval that PROBE_RTT interrupts starts again (`change_sc`), so an experiment can last longer.
* the suspicion needs a loss in the same ACK; the paper does not ask for one.
* scores are C ints: they wrap beyond 2 GB.

Sources: [ngx_bbr] bpq233/oBBR nginx-quic/src/event/quic/ngx_bbr.c, commit 3ae3fc9 (`-C oBBR mu`); [Bi23] §4.
Differs from quic_bbr in: on_ack (adds adapt_gain, detect_bw_drop, run_experiment), inflight_gain, bound_cwnd.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param
from cctrace.cc.cmath import f32, s32, u32, u64_lt
from cctrace.cc.filters import reset_filter, running_max
from cctrace.cc.quic_bbr import MAX_DOWN_SAMPLES, NOT_IN_RECOVERY, OBBR_COLUMNS, STARTUP, QuicBBR

PROBE_GAIN = 1.25  # lower bound of g while the pacing gain probes for bandwidth
GAIN_STEP = 0.01  # alpha: share of the BDP that g regains per BDP acknowledged
RECENT_LOSS_MS = 3000
INTERVAL_MS = 200  # T
DROP_SAMPLES = 30  # k
STARTUP_LOSS_PERCENT = 10.0
IDLE = -1
TWO_64 = 18446744073709551616.0


class OBBR(QuicBBR):
    """oBBR of oBBR's nginx-quic (`-C oBBR`)."""

    params = QuicBBR.params | {
        "mu": Param(0.5, 0.0, 1.001, "share of a shallow buffer that the flow may fill [Bi23] §4.1"),
        "g_max": Param(2.05, 1.0, 10.0, "largest cap, BDP; a constant of the module (C double)"),
    }

    mu: float  # parameters
    g_max: float

    golden_absent = {c: why for c, why in QuicBBR.golden_absent.items() if c not in OBBR_COLUMNS}

    up_rtt: int = 0  # consecutive RTTs above 2.5 min_rtt
    cc: int = IDLE  # step of the bandwidth-drop experiment
    score: int = 0  # utility of the last interval, bytes
    score1: int = 0  # ... of the two before the update of bw
    score2: int = 0
    score3: int = 0  # ... and of the two after it
    score4: int = 0
    score_time: int = 0  # ms, start of the interval
    bw_back: int = 0  # bytes/s, the estimate to return to
    re_timer: int = -1_000_000  # ms, when it was last returned to
    first_sent: int = 0  # bytes sent before the interval
    first_delivered: int = 0  # bytes delivered before it

    def on_ack(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_update_cc_mode: before bw and min_rtt know of this ACK
        """Adapt the cap and look for a bandwidth drop, then run BBR."""
        if not self.is_clean_startup(ack):
            self.adapt_gain(ack)
            self.detect_bw_drop(ack)
            if self.change_sc:
                self.change_sc = False
                self.start_interval(ack)
            if u64_lt(INTERVAL_MS, ack.now_ms - self.score_time):
                self.end_interval(ack)
                self.start_interval(ack)
        super().on_ack(ack)

    def is_clean_startup(self, ack: Ack) -> bool:
        """Whether STARTUP has lost less than 10 % so far; a connection that delivered nothing counts as lossy."""
        if self.mode != STARTUP or ack.smp_total_acked == 0:
            return False
        return ack.smp_total_loss * 100.0 / ack.smp_total_acked < STARTUP_LOSS_PERCENT

    def adapt_gain(self, ack: Ack) -> None:  # [Bi23] §4.1
        """Scale g to the buffer on loss, let it recover otherwise."""
        if ack.smp_loss != 0 and self.min_rtt_ms != 0:
            queueing_ms = float(ack.smp_rtt_ms - self.min_rtt_ms)
            if queueing_ms < 0.0:
                queueing_ms = queueing_ms + TWO_64  # unsigned in C
            self.cwnd_gain = f32(min(1.0 + self.mu * queueing_ms / self.min_rtt_ms, self.g_max))
        elif self.recovery_mode == NOT_IN_RECOVERY:
            step = GAIN_STEP * ack.smp_acked / self.target_cwnd(f32(1.0))
            self.cwnd_gain = f32(min(float(self.cwnd_gain) + step, self.g_max))

    def detect_bw_drop(self, ack: Ack) -> None:  # [Bi23] §4.2
        """Start an experiment if samples or RTTs say that the bandwidth fell, and a loss agrees."""
        if ack.smp_rtt_ms > 2.5 * self.min_rtt_ms:
            self.up_rtt = self.up_rtt + 1
        else:
            self.up_rtt = 0
        suspected = self.bw_down_cnt >= DROP_SAMPLES or self.up_rtt > DROP_SAMPLES
        if ack.smp_loss != 0 and suspected and self.cc == IDLE:
            self.cc = 0
            self.change_sc = True

    def start_interval(self, ack: Ack) -> None:
        """Begin a monitor interval."""
        self.first_sent = s32(ack.cg_po_sent)
        self.first_delivered = s32(ack.cg_delivered)
        self.score_time = ack.now_ms

    def end_interval(self, ack: Ack) -> None:
        """Score the interval that ends, and take the experiment one step further."""
        sent = s32(ack.cg_po_sent - self.first_sent)
        delivered = s32(ack.cg_delivered - self.first_delivered)
        self.score = s32(delivered - 10 * (sent - delivered))
        if self.cc == IDLE:
            return
        if self.cc < 2:
            self.score1 = self.score2
            self.score2 = self.score
            if self.cc == 1:
                self.lower_bw()
        else:
            self.score3 = self.score4
            self.score4 = self.score
            if self.cc == 3:
                self.judge_bw(ack)
                self.cc = IDLE
                return
        self.cc = self.cc + 1

    def lower_bw(self) -> None:
        """Let the estimate fall to the mean of the last samples."""
        total = 0
        for i in range(MAX_DOWN_SAMPLES):
            total = u32(total + self.max_down[i])
        self.bw_back = s32(self.bw)
        reset_filter(self.bw_v, self.bw_t, self.round_cnt, total // MAX_DOWN_SAMPLES)
        self.up_rtt = 0
        self.bw_down_cnt = 0

    def judge_bw(self, ack: Ack) -> None:
        """Return to the old estimate if the flow fared better with it, at most once in 10 min_rtt."""
        worse = self.score3 + self.score4 < self.score1 + self.score2
        if worse and u64_lt(10 * self.min_rtt_ms, ack.now_ms - self.re_timer):
            running_max(self.bw_v, self.bw_t, self.bw_rtts, self.round_cnt, u32(self.bw_back))
            self.re_timer = s32(ack.now_ms)

    def inflight_gain(self, ack: Ack) -> f32:  # [ngx_bbr] ngx_bbr_set_cwnd
        """Return g, raised while PROBE_BW (or STARTUP) probes, most of all when losses are 3 s past."""
        gain = self.cwnd_gain
        if self.pacing_gain > f32(1.0):
            gain = f32(max(PROBE_GAIN, float(gain)))
            if u64_lt(RECENT_LOSS_MS, ack.now_ms - ack.loss_timer):
                gain = f32(max(self.g_max, float(gain)))
        return gain

    def bound_cwnd(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_set_cwnd
        """Clamp the window to g * BDP."""
        if float(self.cwnd_gain) < self.g_max:
            self.cwnd = min(self.cwnd, self.target_cwnd(self.inflight_gain(ack)))
        super().bound_cwnd(ack)
