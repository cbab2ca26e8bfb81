"""BBR-S as the oBBR paper describes it, on the QUIC stack that the paper built it in.

Model:  that of `bbr_s_paper` (docs there), in place of Linux's BBR on the BBR of nginx-quic (`quic_bbr`).

        modes: as in quic_bbr.

Left open by the description, and chosen here as in `bbr_s_paper`, besides:

* the BDP of the window is of the percentile too, as everything that BBR uses bw for.

Sources: [Bi23] section 5.1, of [Vargas21]; [ngx_bbr].
Differs from quic_bbr in: update_bandwidth (adds take_sample), max_bw,
target_cwnd (the percentile for the BDP too). Differs from the released `bbr_s` as `bbr_s_paper` does.
"""

from cctrace.cc import percentile_bw
from cctrace.cc.ack import Ack
from cctrace.cc.cmath import f32, u32
from cctrace.cc.percentile_bw import PercentileBw
from cctrace.cc.quic import INITIAL_WINDOW, MIN_WINDOW, MSEC_PER_SEC, RTT_UNKNOWN, delivery_rate, float_to_u32
from cctrace.cc.quic_bbr import QuicBBR


class QuicBBRSPaper(PercentileBw, QuicBBR):
    """The percentile of BBR-S on the BBR of nginx-quic; see the module's header."""

    params = QuicBBR.params | percentile_bw.PARAMS

    def max_bw(self) -> int:  # [Bi23] §5.1
        """Return the percentile, bytes/s."""
        self.bw = self.percentile_bw
        return self.bw

    def update_bandwidth(self, ack: Ack) -> None:  # [Bi23] §5.1
        """Count rounds as BBR does, and take the sample into the percentile."""
        super().update_bandwidth(ack)
        if ack.smp_interval_ms == 0:
            return
        bw = delivery_rate(ack.smp_delivered, ack.smp_interval_ms)
        if not ack.smp_is_app_limited or bw >= self.percentile_bw:
            self.take_sample(bw, self.round_cnt, self.bw_rtts)

    def target_cwnd(self, gain: f32) -> int:  # [ngx_bbr] ngx_bbr_target_cwnd, of the percentile
        """Return `gain` times the BDP in bytes, at least 4 packets."""
        if self.min_rtt_ms == RTT_UNKNOWN:
            return INITIAL_WINDOW
        bdp = u32(max(self.min_rtt_ms, 1) * self.percentile_bw // MSEC_PER_SEC)
        return max(float_to_u32(f32(gain * f32(bdp))), MIN_WINDOW)
