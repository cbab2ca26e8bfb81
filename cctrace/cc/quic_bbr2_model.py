"""The path model of BBRv2 in oBBR's nginx-quic; the state machine is in `quic_bbr2`.

Model:  bandwidth   bw = min(max(bw_hi), bw_lo);   bw_hi: maxima of the last two probe cycles
        volume      inflight_lo <= in flight <= inflight_hi, in bytes
        losses      a loss round while not probing:  bw_lo, inflight_lo = max(what was delivered, 0.7 of themselves)
        aggregation extra_ack = acked in an epoch - bw * elapsed,  maximum over 5 to 10 rounds

inflight_hi grows while a probe finds room: by 1, 2, 4, ... packets in successive rounds.

Quirks, kept because decisions depend on them: both lower bounds and the BDP pass through floats and lose all but 24
bits, even where the maximum of two integers is taken (the maximum of a float and an integer is a float in C); an epoch
of aggregation ends after 2**20 bytes, where the kernel's constant counts packets.

Sources: [ngx_bbr2] bpq233/oBBR nginx-quic/src/event/quic/ngx_bbr2.c, commit b2a8c25; [Cardwell22].
Differs from its parent in everything: it is written afresh.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import ints
from cctrace.cc.bbr1_model import PROBE_BW, STARTUP
from cctrace.cc.bbr2_bounds import ACKS_INIT, ACKS_PROBE_FEEDBACK, ACKS_PROBE_STARTING, ACKS_PROBE_STOPPING
from cctrace.cc.bbr2_model import REFILL, UNSET, UP
from cctrace.cc.cmath import f32, u32
from cctrace.cc.quic import INITIAL_WINDOW, MIN_WINDOW, MSEC_PER_SEC, MSS, RTT_UNKNOWN, float_to_u32
from cctrace.cc.quic_bbr_common import QuicBBRCommon

LOSS_THRESH = f32(0.02)
BETA = f32(0.3)  # the cut
HEADROOM = f32(0.15)
PROBE_MAX_ROUNDS = 63
EXTRA_ACK_WINDOW_ROUNDS = 5
EXTRA_ACK_WINDOW_ROUNDS_STARTUP = 1
EXTRA_ACK_MAX_S = f32(0.1)
EPOCH_ACK_RESET = 1 << 20  # bytes (the kernel's constant counts packets)
EPOCH_ACK_MAX = 0xFFFFF * MSS


class QuicBBR2Model(QuicBBRCommon):
    """The path model of nginx-quic's BBRv2."""

    golden_names = {
        "s2_bw_hi0": "bw_hi[0]",
        "s2_bw_hi1": "bw_hi[1]",
        "s2_extra_ack0": "extra_ack[0]",
        "s2_extra_ack1": "extra_ack[1]",
    }

    bw_hi = ints(2)  # maxima of the previous and of this probe cycle, bytes/s
    bw_lo: int = UNSET
    bw_latest: int = 0  # maximum of this loss round
    inflight_hi: int = UNSET  # bytes
    inflight_lo: int = UNSET
    inflight_latest: int = 0
    min_rtt: int = 0  # ms
    # Rounds, and rounds that end with the ACK of what was sent after a loss.
    rounds_since_probe: int = 0  # u8
    loss_round_delivered: int = 1  # skips the first round
    loss_round_start: bool = False
    loss_in_round: bool = False
    # A probe and its answer.
    ack_phase: int = ACKS_INIT
    bw_probe_samples: bool = False  # samples tell of a probe that has not yet been answered
    prev_probe_too_high: bool = False
    stopped_risky_probe: bool = False
    # Growth of inflight_hi.
    bw_probe_up_cnt: int = UNSET  # packets ACKed per packet that inflight_hi grows
    bw_probe_up_acks: int = 0
    bw_probe_up_rounds: int = 0
    # Aggregation.
    extra_ack = ints(2)  # ACKed beyond what bw explains: maxima of two windows of rounds, bytes
    extra_ack_idx: int = 0
    extra_ack_round_rtt: int = 0
    extra_ack_stamp: int = 0
    epoch_ack: int = 0

    # -- signals -------------------------------------------------------------------------------------------------------
    def update_round_start(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_update_round_start
        """Count rounds."""
        self.round_start = ack.smp_interval_ms != 0 and self.next_round_delivered <= ack.smp_prior_delivered
        if self.round_start:
            self.next_round_delivered = u32(ack.smp_total_acked)
            self.rounds_since_probe = min(self.rounds_since_probe + 1, 0xFF)
            self.round_cnt = u32(self.round_cnt + 1)

    def update_congestion_signals(self, ack: Ack, bw: int) -> None:  # [ngx_bbr2] ngx_bbr2_update_congestion_signals
        """Take the sample `bw` and the losses; once per loss round let them lower the bounds."""
        self.loss_round_start = False
        if ack.smp_interval_ms == 0 or ack.smp_acked == 0:
            return
        if not ack.smp_is_app_limited or bw >= self.max_bw():
            self.bw_hi[1] = max(self.bw_hi[1], bw)
        if ack.smp_loss > 0:
            self.loss_in_round = True
        self.bw_latest = max(self.bw_latest, bw)
        self.inflight_latest = max(self.inflight_latest, ack.smp_delivered)
        if ack.smp_prior_delivered < self.loss_round_delivered:
            return
        self.loss_round_delivered = u32(ack.smp_total_acked)
        self.loss_round_start = True
        self.adapt_lower_bounds()
        self.loss_in_round = False
        self.bw_latest = bw
        self.inflight_latest = ack.smp_delivered

    def adapt_lower_bounds(self) -> None:  # [ngx_bbr2] ngx_bbr2_adapt_lower_bounds
        """After a round with loss cut the lower bounds by 30 %, not below what was just delivered."""
        if self.is_probing_bandwidth() or not self.loss_in_round:
            return
        if self.bw_lo == UNSET:
            self.bw_lo = self.max_bw()
        if self.inflight_lo == UNSET:
            self.inflight_lo = self.cwnd
        kept = f32(f32(1.0) - BETA)
        self.bw_lo = float_to_u32(max(f32(self.bw_latest), f32(kept * f32(self.bw_lo))))
        self.inflight_lo = float_to_u32(max(f32(self.inflight_latest), f32(kept * f32(self.inflight_lo))))

    def is_probing_bandwidth(self) -> bool:  # [ngx_bbr2] ngx_bbr2_is_probing_bandwidth
        """Whether more than the estimated bandwidth is being sent, or about to be."""
        probing_up = self.cycle_idx == REFILL or self.cycle_idx == UP
        return self.mode == STARTUP or (self.mode == PROBE_BW and probing_up)

    def reset_congestion_signals(self) -> None:  # [ngx_bbr2] ngx_bbr2_reset_congestion_signals
        """Forget the current loss round."""
        self.loss_in_round = False
        self.bw_latest = 0
        self.inflight_latest = 0

    def update_ack_aggregation(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_update_ack_aggregation
        """Measure how far ACKs run ahead of the bandwidth estimate."""
        if ack.smp_interval_ms == 0 or ack.smp_acked == 0:
            return
        if self.round_start:
            self.extra_ack_round_rtt = self.extra_ack_round_rtt + 1
            window = EXTRA_ACK_WINDOW_ROUNDS if self.full_bw_reached else EXTRA_ACK_WINDOW_ROUNDS_STARTUP
            if self.extra_ack_round_rtt >= window:
                self.extra_ack_round_rtt = 0
                self.extra_ack_idx = 1 - self.extra_ack_idx
                self.extra_ack[self.extra_ack_idx] = 0
        expected = u32(self.current_bw() * u32(ack.smp_now - self.extra_ack_stamp) // MSEC_PER_SEC)
        if self.epoch_ack <= expected or u32(self.epoch_ack + ack.smp_acked) >= EPOCH_ACK_RESET:
            self.epoch_ack = 0
            self.extra_ack_stamp = ack.smp_now
            expected = 0
        self.epoch_ack = min(EPOCH_ACK_MAX, u32(self.epoch_ack + ack.smp_acked))
        extra = min(self.epoch_ack - expected, self.cwnd)
        self.extra_ack[self.extra_ack_idx] = max(self.extra_ack[self.extra_ack_idx], extra)

    def ack_aggregation_cwnd(self) -> int:  # [ngx_bbr2] ngx_bbr2_ack_aggregation_cwnd
        """Return the allowance for aggregated ACKs, at most 100 ms of bandwidth, bytes."""
        most = float_to_u32(f32(f32(self.current_bw()) * EXTRA_ACK_MAX_S))
        return min(max(self.extra_ack[0], self.extra_ack[1]), most)

    def reset_lower_bounds(self) -> None:  # [ngx_bbr2] ngx_bbr2_reset_lower_bounds
        """Forget what losses taught."""
        self.bw_lo = UNSET
        self.inflight_lo = UNSET

    # -- bandwidth and volume ------------------------------------------------------------------------------------------
    def max_bw(self) -> int:  # [ngx_bbr2] ngx_bbr2_max_bw
        """Return the upper bound of the bandwidth, bytes/s."""
        return max(self.bw_hi[0], self.bw_hi[1])

    def current_bw(self) -> int:  # [ngx_bbr2] ngx_bbr2_bw
        """Return the bandwidth estimate, bytes/s, and show it in `bw`."""
        self.bw = min(self.max_bw(), self.bw_lo)
        return self.bw

    def inflight(self, bw: int, gain: f32) -> int:  # [ngx_bbr2] ngx_bbr2_inflight
        """Return `gain` times the BDP of `bw` in bytes, through a float even for a gain of 1."""
        if self.min_rtt == RTT_UNKNOWN:
            return INITIAL_WINDOW
        return float_to_u32(f32(f32(self.min_rtt * bw // MSEC_PER_SEC) * gain))

    def target_inflight(self) -> int:  # [ngx_bbr2] ngx_bbr2_target_inflight
        """Return the bytes in flight that the model aims at."""
        return min(self.inflight(self.current_bw(), f32(1.0)), self.cwnd)

    def inflight_with_headroom(self) -> int:  # [ngx_bbr2] ngx_bbr2_inflight_with_headroom
        """Return inflight_hi less 15 %, for other flows to enter."""
        if self.inflight_hi == UNSET:
            return UNSET
        headroom = max(float_to_u32(f32(f32(self.inflight_hi) * HEADROOM)), MSS)
        return max(self.inflight_hi - headroom, MIN_WINDOW)

    def is_reno_coexistence_probe_time(self) -> bool:  # [ngx_bbr2] ngx_bbr2_is_reno_coexistence_probe_time
        """Whether as many rounds passed as there are packets in flight."""
        return self.rounds_since_probe >= min(PROBE_MAX_ROUNDS, self.target_inflight() // MSS)

    def is_time_to_cruise(self, inflight: int) -> bool:  # [ngx_bbr2] ngx_bbr2_check_time_to_cruise
        """Whether the queue is drained and headroom is left."""
        return inflight <= self.inflight_with_headroom() and inflight <= self.inflight(self.max_bw(), f32(1.0))

    def is_inflight_too_high(self, ack: Ack) -> bool:  # [ngx_bbr2] ngx_bbr2_is_inflight_too_high
        """Whether more than 2 % of what was in flight at the sampled packet's send was lost since."""
        if ack.smp_lost_pkts > 0 and ack.smp_tx_in_flight:
            return ack.smp_lost_pkts > float_to_u32(f32(f32(u32(ack.smp_tx_in_flight)) * LOSS_THRESH))
        return False

    def adapt_upper_bounds(self, ack: Ack) -> bool:  # [ngx_bbr2] ngx_bbr2_adapt_upper_bounds
        """Adapt inflight_hi to the result of the probe; return whether the phase changed to REFILL."""
        if self.ack_phase == ACKS_PROBE_STARTING and self.round_start:
            self.ack_phase = ACKS_PROBE_FEEDBACK
        if self.ack_phase == ACKS_PROBE_STOPPING and self.round_start:
            self.bw_probe_samples = False
            self.ack_phase = ACKS_INIT
            if self.mode == PROBE_BW and not ack.smp_is_app_limited:
                self.advance_bw_hi_filter()
            # The last probe stopped at inflight_hi without loss: go further at once.
            if self.mode == PROBE_BW and self.stopped_risky_probe and not self.prev_probe_too_high:
                self.enter_probe_refill(ack)
                return True
        if self.is_inflight_too_high(ack):
            if self.bw_probe_samples:
                self.handle_inflight_too_high(ack)
        elif self.inflight_hi != UNSET:
            if ack.smp_tx_in_flight > self.inflight_hi:
                self.inflight_hi = u32(ack.smp_tx_in_flight)
            if self.mode == PROBE_BW and self.cycle_idx == UP:
                self.probe_inflight_hi_upward(ack)
        return False

    def handle_inflight_too_high(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_handle_inflight_too_high
        """Take what was in flight as the upper bound and end the probe."""
        self.prev_probe_too_high = True
        self.bw_probe_samples = False
        if not ack.smp_is_app_limited:
            floor = self.target_inflight() * (1.0 - float(BETA))
            self.inflight_hi = float_to_u32(max(float(ack.smp_tx_in_flight), floor))
        if self.mode == PROBE_BW and self.cycle_idx == UP:
            self.enter_probe_down(ack, ack.smp_now, ack.smp_total_acked)

    def enter_probe_refill(self, ack: Ack) -> None:
        """The bound was too low: refill the pipe and probe on, in the class that has the phases."""

    def enter_probe_down(self, ack: Ack, now_ms: int, total_acked: int) -> None:
        """The bound was found: drain, in the class that has the phases."""

    def advance_bw_hi_filter(self) -> None:  # [ngx_bbr2] ngx_bbr2_advance_bw_hi_filter
        """Forget the bandwidth of the cycle before last."""
        if self.bw_hi[1]:
            self.bw_hi[0] = self.bw_hi[1]
            self.bw_hi[1] = 0

    def probe_inflight_hi_upward(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_probe_inflight_hi_upward
        """Raise inflight_hi by ever larger steps, while the window is what limits."""
        if self.cwnd - ack.smp_prior_inflight >= MSS or self.inflight_hi > self.cwnd:
            self.bw_probe_up_acks = 0
            return
        self.bw_probe_up_acks = u32(self.bw_probe_up_acks + ack.smp_acked // MSS)
        if self.bw_probe_up_acks >= self.bw_probe_up_cnt:
            delta = self.bw_probe_up_acks // self.bw_probe_up_cnt
            self.bw_probe_up_acks = self.bw_probe_up_acks - delta * self.bw_probe_up_cnt
            self.inflight_hi = u32(self.inflight_hi + delta * MSS)
        if self.round_start:
            self.raise_inflight_hi_slope()

    def raise_inflight_hi_slope(self) -> None:  # [ngx_bbr2] ngx_bbr2_raise_inflight_hi_slope
        """Double the growth per round."""
        growth = 1 << self.bw_probe_up_rounds
        self.bw_probe_up_rounds = min(self.bw_probe_up_rounds + 1, 30)
        self.bw_probe_up_cnt = max(self.cwnd // MSS // growth, 1)
