"""oBBR as its paper describes it, on the QUIC stack that the paper built it in.

Model:  that of `obbr_paper` (docs there), in place of Linux's BBR on the BBR of nginx-quic (`quic_bbr`).

        modes: as in quic_bbr.

It differs from `quic_bbr`, `quic_bbr_s_paper` and `quic_b3r_paper` only in its law, from `obbr_paper` only in the
stack.

Left open by the paper, and chosen here as in `obbr_paper`, besides:

* "acked in T" and "not acked in T" are in bytes: what was delivered; what was lost or is in flight besides;
* RTT is the sample of the same ACK, in whole milliseconds as all of this stack.

Sources: [Bi23] sections 4.1, 4.2, 5.1; [ngx_bbr].
Differs from quic_bbr in: update_model (adds the law), inflight_gain; from the released `obbr` as `obbr_paper` does.
"""

from cctrace.cc import obbr_law
from cctrace.cc.ack import Ack
from cctrace.cc.cmath import f32, u32
from cctrace.cc.filters import reset_filter, running_max
from cctrace.cc.obbr_law import OBBRLaw
from cctrace.cc.quic import RTT_UNKNOWN, delivery_rate
from cctrace.cc.quic_bbr import PROBE_BW, PROBE_RTT, QuicBBR


class QuicOBBRPaper(OBBRLaw, QuicBBR):
    """oBBR's law on the BBR of nginx-quic; see the module's header."""

    params = {name: row for name, row in QuicBBR.params.items() if name != "cwnd_gain"} | obbr_law.PARAMS

    bbr_cwnd_gain: float = 2.0  # g replaces it

    def update_model(self, ack: Ack) -> None:  # [Bi23] §4
        """Learn what BBR learns, then adapt the cap and look for a bandwidth drop."""
        super().update_model(ack)
        min_rtt_ms = 0 if self.min_rtt_ms == RTT_UNKNOWN else self.min_rtt_ms
        self.adapt_cap(ack.smp_loss, ack.smp_acked, self.target_cwnd(f32(1.0)), ack.smp_rtt_ms, min_rtt_ms)
        sent = u32(ack.cg_delivered + ack.smp_total_loss + ack.cg_in_flight)
        interval_ms = self.interval_ms if self.mode != PROBE_RTT else 0
        if self.score_interval(ack.now_ms, interval_ms, sent, ack.cg_delivered):
            running_max(self.bw_v, self.bw_t, self.bw_rtts, self.round_cnt, self.old_bw)
        if self.mode == PROBE_BW:
            self.note_rtt(ack.smp_rtt_ms, self.min_rtt_ms)
            if ack.smp_interval_ms != 0 and not ack.smp_is_app_limited:
                self.note_rate(delivery_rate(ack.smp_delivered, ack.smp_interval_ms), self.max_bw())
            if self.bw_fell():
                self.begin_trial(self.max_bw())
                reset_filter(self.bw_v, self.bw_t, self.round_cnt, self.mean_recent_bw())

    def inflight_gain(self, ack: Ack) -> f32:  # [Bi23] §4.1
        """Return g in PROBE_BW, what BBR allows elsewhere."""
        if self.mode == PROBE_BW:
            return f32(self.cap(bool(self.pacing_gain > f32(1.0))))
        return super().inflight_gain(ack)
