"""What both versions of BBR in oBBR's nginx-quic decide alike: the base of `quic_bbr` and `quic_bbr2`.

The full pipe is found as in Linux (three rounds without 25 % more bandwidth), the window is paced over the first RTT
until there is an estimate, and recovery and PROBE_RTT save the window that they restore.

Sources: [ngx_bbr], [ngx_bbr2] bpq233/oBBR nginx-quic/src/event/quic/ngx_bbr.c and ngx_bbr2.c.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param, QuicController
from cctrace.cc.bbr1_model import PROBE_BW, PROBE_RTT, STARTUP
from cctrace.cc.cmath import f32, u32
from cctrace.cc.quic import MSEC_PER_SEC, float_to_u32

NOT_IN_RECOVERY = 0
IN_RECOVERY = 1


class QuicBBRCommon(QuicController):
    """The steps that `quic_bbr` and `quic_bbr2` share; the estimates are theirs."""

    model_based = True
    params = QuicController.params | {
        "full_bw_thresh": Param(1.25, 1.0, 10.0, "growth of bw in a round that shows the pipe not yet full"),
        "full_bw_cnt": Param(3, 1, 100, "rounds of less growth that end STARTUP", "bbr_full_bw_cnt"),
    }

    mode: int = STARTUP
    cycle_idx: int = 0
    pacing_gain: f32 = f32(0.0)
    cwnd_gain: f32 = f32(0.0)
    bw: int = 0  # bytes/s: the estimate when it was last asked for
    min_rtt_stamp: int = 0  # ms
    round_cnt: int = 0
    round_start: bool = False
    next_round_delivered: int = 0  # bytes
    full_bw: int = 0  # bytes/s
    full_bw_cnt: int = 0
    full_bw_reached: bool = False
    probe_rtt_round_done_stamp: int = 0  # ms, 0: not yet chosen
    probe_rtt_round_done: bool = False
    recovery_mode: int = NOT_IN_RECOVERY
    recovery_start_time: int = 0  # ms
    prior_cwnd: int = 0  # bytes
    has_srtt: bool = False
    idle_restart: bool = False

    def max_bw(self) -> int:
        """Return the highest bandwidth of late, bytes/s; the subclass measures it."""
        return self.bw

    def check_full_bw_reached(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_check_full_bw_reached
        """Look once a round whether STARTUP still finds more bandwidth."""
        if not self.round_start or self.full_bw_reached or ack.smp_is_app_limited:
            return
        bw = self.max_bw()
        if bw >= float_to_u32(f32(f32(self.full_bw) * f32(self.full_bw_thresh))):
            self.full_bw = bw
            self.full_bw_cnt = 0
            return
        self.full_bw_cnt = self.full_bw_cnt + 1
        self.full_bw_reached = self.full_bw_cnt >= self.bbr_full_bw_cnt

    def mark_app_limited(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_update_min_rtt
        """Rate samples of PROBE_RTT are low because of its small window."""
        pipe = u32(ack.cg_delivered + ack.cg_in_flight)
        self.app_limited = pipe if ack.cg_delivered + ack.cg_in_flight else 1

    def save_cwnd(self) -> None:  # [ngx_bbr] ngx_bbr_save_cwnd
        """Remember the window that recovery or PROBE_RTT will restore."""
        if self.recovery_mode != IN_RECOVERY and self.mode != PROBE_RTT:
            self.prior_cwnd = self.cwnd
        else:
            self.prior_cwnd = max(self.cwnd, self.prior_cwnd)

    def init_pacing_rate(self, srtt_ms: int) -> None:  # [ngx_bbr] ngx_bbr_init_pacing_rate
        """Pace the window over the RTT at the current gain."""
        if srtt_ms:
            self.has_srtt = True
        rate = self.cwnd * MSEC_PER_SEC // (srtt_ms if srtt_ms else self.unknown_rtt_ms())
        self.pacing_rate = float_to_u32(f32(self.pacing_gain * f32(rate)))

    def unknown_rtt_ms(self) -> int:
        """What stands for the RTT before the first sample."""
        return 1

    def set_pacing_rate(self, srtt_ms: int) -> None:  # [ngx_bbr] ngx_bbr_set_pacing_rate
        """Pace at the estimated bandwidth times the gain."""
        if not self.has_srtt and srtt_ms:
            self.init_pacing_rate(srtt_ms)
        self.pace_at(self.pacing_gain)
        if self.pacing_rate == 0:
            self.init_pacing_rate(srtt_ms)

    def pace_at(self, gain: f32) -> None:  # [ngx_bbr] _ngx_bbr_set_pacing_rate_helper
        """Set the pacing rate; before the pipe is full it only grows."""
        rate = float_to_u32(f32(f32(self.max_bw()) * gain))
        if self.full_bw_reached or rate > self.pacing_rate:
            self.pacing_rate = rate

    def restart_from_idle(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_restart_from_idle
        """Sending begins again: pace at the estimate, without a probe's gain."""
        self.idle_restart = True
        if self.mode == PROBE_BW:
            self.pace_at(f32(1.0))
            if self.pacing_rate == 0:
                self.init_pacing_rate(0)  # no RTT is passed on here
        elif self.mode == PROBE_RTT:
            self.check_probe_rtt_done(ack, ack.now_ms, ack.arg)

    def check_probe_rtt_done(self, ack: Ack, now_ms: int, total_acked: int) -> None:
        """End PROBE_RTT once its time is over, in the subclasses."""
