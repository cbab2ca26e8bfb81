"""How loss and ECN marks bound bandwidth and flight in BBRv2.

    while probing (STARTUP, REFILL, UP)          otherwise (DRAIN, DOWN, CRUISE, PROBE_RTT), once per loss round
    more than 2 % of a flight lost, or           loss:   bw_lo, inflight_lo := max(delivered, (1 - beta) * itself)
    half of a sample marked:                     marks:  inflight_lo := (1 - alpha / 3) * itself
        inflight_hi := flight that the                   alpha: marked share of a round, averaged over 16 rounds
        lost segment was sent into               both are unset again when the next probe begins
    else, in UP: inflight_hi grows by 1, 2, 4, ... segments a round

A *loss round* runs from the delivery of what was sent after the last one ended; the first loss in it restarts it, so
that what the path delivered is measured over the full round of loss. Bounds and window are saved on entering recovery,
for the case that the losses prove spurious.

Sources: [BBRv2alpha] google/bbr, branch v2alpha, net/ipv4/tcp_bbr2.c. Function names in comments are that file's.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.bbr2_model import (
    BBR_SCALE,
    BBR_UNIT,
    PROBE_BW,
    PROBE_RTT,
    REFILL,
    STARTUP,
    UNSET,
    UP,
    BBR2Model,
    in_8_bits,
)
from cctrace.cc.cmath import s32, u32
from cctrace.cc.linux import CA_LOSS, CA_OPEN, CA_RECOVERY, before

# What the current ACKs indicate about a probe for bandwidth (ack_phase) [BBRv2alpha] enum bbr_ack_phase
ACKS_INIT = 0  # nothing
ACKS_REFILLING = 1  # the pipe being refilled
ACKS_PROBE_STARTING = 2  # not yet the flight sent while probing
ACKS_PROBE_FEEDBACK = 3  # that flight
ACKS_PROBE_STOPPING = 4  # the last of it

ECN_ALPHA_GAIN = BBR_UNIT // 16
ECN_FACTOR = BBR_UNIT // 3
ECN_THRESH = BBR_UNIT // 2
FULL_ECN_CNT = 2  # rounds


class BBR2Bounds(BBR2Model):
    """Reaction to loss and ECN, of BBRv2 and its descendants; parameters and phases are those of `bbr2.BBR2`."""

    ack_phase: int = ACKS_INIT
    inflight_latest: int = 0  # best delivery of the loss round
    bw_latest: int = 0
    loss_round_delivered: int = 0
    loss_round_start: bool = False
    loss_in_round: bool = False
    loss_in_cycle: bool = False
    # Growth of inflight_hi
    bw_probe_up_cnt: int = 0  # ACKed segments per segment of growth
    bw_probe_up_acks: int = 0
    bw_probe_up_rounds: int = 0
    bw_probe_samples: bool = False  # samples tell of a probe that has not yet been answered
    prev_probe_too_high: bool = False
    stopped_risky_probe: bool = False
    # Recovery: the last good window, and the bounds that an undo restores
    prev_ca_state: int = CA_OPEN
    prior_cwnd: int = 0
    undo_bw_lo: int = 0
    undo_inflight_lo: int = 0
    undo_inflight_hi: int = 0
    # ECN
    ecn_in_round: bool = False
    ecn_in_cycle: bool = False
    ecn_eligible: bool = False
    ecn_alpha: int = 0  # 256ths
    startup_ecn_rounds: int = 0
    alpha_last_delivered: int = 0
    alpha_last_delivered_ce: int = 0
    seen_delivered_ce: int = 0  # shows whether this ACK carried ECE, which the view does not contain

    # --- what a sample says -------------------------------------------------------------------------------------------
    def is_probing_bandwidth(self) -> bool:
        """Whether a loss now is a result of our own probing [BBRv2alpha] bbr2_is_probing_bandwidth."""
        return self.mode == STARTUP or (self.mode == PROBE_BW and (self.cycle_idx == REFILL or self.cycle_idx == UP))

    def is_inflight_too_high(self, lost: int, tx_in_flight: int, delivered: int, delivered_ce: int) -> bool:
        """More than 2 % lost, or half or more marked, over a sample [BBRv2alpha] bbr2_is_inflight_too_high."""
        if lost > 0 and tx_in_flight and lost > (tx_in_flight * in_8_bits(self.loss_thresh)) >> BBR_SCALE:
            return True
        return self.is_ce_too_high(delivered, delivered_ce)

    def is_ce_too_high(self, delivered: int, delivered_ce: int) -> bool:
        """Half or more of a sample marked [BBRv2alpha] bbr2_is_inflight_too_high."""
        marked = delivered_ce > 0 and delivered > 0 and self.ecn_eligible
        return marked and delivered_ce >= (delivered * ECN_THRESH) >> BBR_SCALE

    def inflight_hi_from_lost_skb(self, lost: int, tx_in_flight: int, segments: int) -> int:
        """Flight at which the loss rate crossed the threshold [BBRv2alpha] bbr2_inflight_hi_from_lost_skb.

        Solves (lost_prev + x) / (inflight_prev + x) = loss_thresh for the prefix x of the lost `segments`.
        """
        inflight_prev = s32(tx_in_flight - segments)
        lost_prev = s32(lost - segments)
        if inflight_prev < 0 or lost_prev < 0:
            return UNSET
        loss_thresh = in_8_bits(self.loss_thresh)
        budget = (inflight_prev * loss_thresh + BBR_UNIT - 1) >> BBR_SCALE
        prefix = ((budget - lost_prev) << BBR_SCALE) // (BBR_UNIT - loss_thresh) if lost_prev < budget else 0
        return u32(inflight_prev + prefix)

    # --- loss rounds --------------------------------------------------------------------------------------------------
    def update_congestion_signals(self, ack: Ack) -> None:
        """Track delivery and loss per round, adapt at its end [BBRv2alpha] bbr2_update_congestion_signals."""
        self.update_latest_delivery_signals(ack)
        self.adapt_to_congestion(ack)
        self.advance_latest_delivery_signals(ack)

    def update_latest_delivery_signals(self, ack: Ack) -> None:
        """Raise the round's best rate and volume; see whether a loss round ends [BBRv2alpha] same."""
        self.loss_round_start = False
        if ack.rs_interval_us <= 0 or ack.rs_acked_sacked == 0:
            return
        self.bw_latest = max(self.bw_latest, self.sample_bw)
        self.inflight_latest = max(self.inflight_latest, u32(ack.rs_delivered))
        if not before(ack.rs_prior_delivered, self.loss_round_delivered):
            self.loss_round_delivered = ack.delivered
            self.loss_round_start = True

    def adapt_to_congestion(self, ack: Ack) -> None:
        """Take the sample into the bandwidth filter; at the end of a loss round cut the bounds [BBRv2alpha] same."""
        if ack.rs_interval_us <= 0 or ack.rs_acked_sacked == 0:
            return
        self.take_bw_sample(ack)
        self.loss_in_round = self.loss_in_round or ack.rs_losses > 0
        if self.loss_round_start:
            self.adapt_lower_bounds()
            self.loss_in_round = False
            self.ecn_in_round = False

    def advance_latest_delivery_signals(self, ack: Ack) -> None:
        """Begin a new loss round with this sample [BBRv2alpha] same."""
        if self.loss_round_start:
            self.bw_latest = self.sample_bw
            self.inflight_latest = u32(ack.rs_delivered)

    def reset_congestion_signals(self) -> None:
        """Forget the signals of a probe before adapting to others [BBRv2alpha] bbr2_reset_congestion_signals."""
        self.loss_in_round = False
        self.ecn_in_round = False
        self.loss_in_cycle = False
        self.ecn_in_cycle = False
        self.bw_latest = 0
        self.inflight_latest = 0

    def note_loss(self, ack: Ack) -> None:
        """Mark this round and cycle as lossy; the loss round starts here [BBRv2alpha] bbr2_skb_marked_lost."""
        if not self.loss_in_round:
            self.loss_round_delivered = ack.delivered
        self.loss_in_round = True
        self.loss_in_cycle = True

    # --- the short-term bounds ----------------------------------------------------------------------------------------
    def adapt_lower_bounds(self) -> None:
        """Cut bw_lo and inflight_lo by beta on loss, inflight_lo by marks [BBRv2alpha] bbr2_adapt_lower_bounds."""
        if self.is_probing_bandwidth():
            return
        ecn_inflight_lo = UNSET
        if self.ecn_in_round and self.ecn_eligible:
            if self.inflight_lo == UNSET:
                self.inflight_lo = self.snd_cwnd
            ecn_inflight_lo = (self.inflight_lo * self.ecn_cut()) >> BBR_SCALE
        if self.loss_in_round:
            if self.bw_lo == UNSET:
                self.bw_lo = self.max_bw()
            if self.inflight_lo == UNSET:
                self.inflight_lo = self.snd_cwnd
            # Never below what the path has just delivered, which it can evidently carry.
            self.bw_lo = max(self.bw_latest, self.less_beta(self.bw_lo))
            self.inflight_lo = max(self.inflight_latest, self.less_beta(self.inflight_lo))
        self.inflight_lo = min(self.inflight_lo, ecn_inflight_lo)

    def less_beta(self, x: int) -> int:
        """(1 - beta) * x, a u32."""
        return u32((x * (BBR_UNIT - in_8_bits(self.beta))) >> BBR_SCALE)

    def ecn_cut(self) -> int:
        """1 - alpha/3 in 256ths: what one round of marks leaves of the flight [BBRv2alpha] bbr2_adapt_lower_bounds."""
        return BBR_UNIT - ((self.ecn_alpha * ECN_FACTOR) >> BBR_SCALE)

    def reset_lower_bounds(self) -> None:
        """Unset the short-term bounds before probing [BBRv2alpha] bbr2_reset_lower_bounds."""
        self.bw_lo = UNSET
        self.inflight_lo = UNSET

    # --- the long-term bound ------------------------------------------------------------------------------------------
    def adapt_upper_bounds(self, ack: Ack) -> bool:
        """Move inflight_hi by what probing showed; return whether a new probe began [BBRv2alpha] of that name."""
        if self.ack_phase == ACKS_PROBE_STARTING and self.round_start:
            self.ack_phase = ACKS_PROBE_FEEDBACK
        if self.ack_phase == ACKS_PROBE_STOPPING and self.round_start:
            self.bw_probe_samples = False
            self.ack_phase = ACKS_INIT
            # This cycle's best sample has just been taken: the moment to forget the cycle before last.
            if self.mode == PROBE_BW and not ack.rs_is_app_limited:
                self.end_bw_cycle()
            # The probe stopped at inflight_hi out of caution and did no harm: probe again, and beyond.
            if self.mode == PROBE_BW and self.stopped_risky_probe and not self.prev_probe_too_high:
                self.start_bw_probe_refill(ack, 0)
                return True
        if self.is_inflight_too_high(ack.rs_lost, ack.rs_tx_in_flight, ack.rs_delivered, ack.rs_delivered_ce):
            if self.bw_probe_samples:
                self.handle_inflight_too_high(ack, ack.rs_tx_in_flight, ack.rs_is_app_limited)
        elif self.inflight_hi != UNSET:
            self.inflight_hi = max(self.inflight_hi, ack.rs_tx_in_flight)  # proven safe, in whatever phase
            if self.mode == PROBE_BW and self.cycle_idx == UP:
                self.probe_inflight_hi_upward(ack)
        return False

    def end_bw_cycle(self) -> None:
        """The bandwidth filter moves on once per cycle [BBRv2alpha] bbr2_adapt_upper_bounds."""
        self.advance_bw_hi_filter()

    def handle_inflight_too_high(self, ack: Ack, tx_in_flight: int, is_app_limited: int) -> None:
        """A probe went too far: bound the flight, once per probe [BBRv2alpha] bbr2_handle_inflight_too_high."""
        self.prev_probe_too_high = True
        self.bw_probe_samples = False
        if not is_app_limited:
            self.inflight_hi = max(tx_in_flight, self.less_beta(self.target_inflight(ack)))
        if self.mode == PROBE_BW and self.cycle_idx == UP:
            self.start_bw_probe_down(ack)

    def start_bw_probe_refill(self, ack: Ack, bw_probe_up_rounds: int) -> None:
        """The bound was too low: refill the pipe and probe on. The class that has the phases defines this."""

    def start_bw_probe_down(self, ack: Ack) -> None:
        """The bound was found: drain. The class that has the phases defines this."""

    def handle_queue_too_high_in_startup(self, ack: Ack) -> None:
        """Loss or marks end STARTUP: the pipe is full and the BDP is the bound [BBRv2alpha] of the same name."""
        self.full_bw_reached = True
        self.inflight_hi = self.inflight(ack, self.max_bw(), BBR_UNIT)

    def raise_inflight_hi_slope(self) -> None:
        """Double the growth of inflight_hi with every round of UP [BBRv2alpha] bbr2_raise_inflight_hi_slope."""
        growth = 1 << self.bw_probe_up_rounds
        self.bw_probe_up_rounds = min(self.bw_probe_up_rounds + 1, 30)
        self.bw_probe_up_cnt = max(self.snd_cwnd // growth, 1)

    def probe_inflight_hi_upward(self, ack: Ack) -> None:
        """Raise inflight_hi by one per bw_probe_up_cnt ACKed [BBRv2alpha] bbr2_probe_inflight_hi_upward."""
        if not ack.is_cwnd_limited or self.snd_cwnd < self.inflight_hi:
            self.bw_probe_up_acks = 0  # it does not limit us: no credit for later
            return
        self.grow_inflight_hi(ack)
        if self.round_start:
            self.raise_inflight_hi_slope()

    def grow_inflight_hi(self, ack: Ack) -> int:
        """Spend the ACKs counted, return by how much it grew [BBRv2alpha] bbr2_probe_inflight_hi_upward."""
        acks = u32(self.bw_probe_up_acks + ack.rs_acked_sacked)
        growth = acks // self.bw_probe_up_cnt
        self.bw_probe_up_acks = acks - growth * self.bw_probe_up_cnt
        self.inflight_hi = u32(self.inflight_hi + growth)
        return growth

    def skb_marked_lost(self, ack: Ack) -> None:
        """A super-packet is marked lost: was it one of a probe that went too far? [BBRv2alpha] bbr2_skb_marked_lost."""
        self.note_loss(ack)
        if not self.bw_probe_samples or not ack.skb_tx_has_mstamp:
            return
        lost = s32(ack.lost - ack.skb_tx_lost)
        if self.is_inflight_too_high(lost, ack.skb_tx_in_flight, 0, 0):
            tx_in_flight = self.inflight_hi_from_lost_skb(lost, ack.skb_tx_in_flight, ack.skb_segments)
            self.handle_inflight_too_high(ack, tx_in_flight, ack.skb_tx_app_limited)

    # --- recovery -----------------------------------------------------------------------------------------------------
    def save_cwnd(self) -> None:
        """Remember the last good window [BBRv2alpha] bbr_save_cwnd."""
        if self.prev_ca_state < CA_RECOVERY and self.mode != PROBE_RTT:
            self.prior_cwnd = self.snd_cwnd
        else:
            self.prior_cwnd = max(self.prior_cwnd, self.snd_cwnd)

    def ssthresh(self, ack: Ack) -> int:
        """Entering recovery: save what an undo would restore; ssthresh itself is unused [BBRv2alpha] bbr2_ssthresh."""
        self.save_cwnd()
        self.undo_bw_lo = self.bw_lo
        self.undo_inflight_lo = self.inflight_lo
        self.undo_inflight_hi = self.inflight_hi
        return self.snd_ssthresh

    def undo_cwnd(self, ack: Ack) -> int:
        """The losses were none: back to the bounds before them [BBRv2alpha] bbr2_undo_cwnd."""
        self.full_bw = 0
        self.full_bw_cnt = 0
        self.loss_in_round = False
        self.bw_lo = max(self.bw_lo, self.undo_bw_lo)
        self.inflight_lo = max(self.inflight_lo, self.undo_inflight_lo)
        self.inflight_hi = max(self.inflight_hi, self.undo_inflight_hi)
        return self.prior_cwnd

    def set_state(self, ack: Ack) -> None:
        """React to a timeout and to its end [BBRv2alpha] bbr2_set_state."""
        if ack.arg == CA_LOSS:
            self.prev_ca_state = CA_LOSS
            self.full_bw = 0
            if not self.is_probing_bandwidth() and self.inflight_lo == UNSET:
                self.inflight_lo = self.cwnd_before_timeout()
        elif self.prev_ca_state == CA_LOSS:
            self.snd_cwnd = max(self.snd_cwnd, self.prior_cwnd)
            self.try_fast_path = False

    def cwnd_before_timeout(self) -> int:
        """Window that the timeout is about to cut [BBRv2alpha] bbr2_set_state."""
        return max(self.snd_cwnd, self.prior_cwnd)

    # --- ECN ----------------------------------------------------------------------------------------------------------
    def update_ece(self, ack: Ack) -> None:
        """Note an ACK with ECE: what such an ACK delivers counts as delivered_ce [BBRv2alpha] rs.is_ece."""
        self.ecn_in_round = self.ecn_in_round or ack.delivered_ce != self.seen_delivered_ce
        self.seen_delivered_ce = ack.delivered_ce

    def update_ecn_alpha(self, ack: Ack) -> None:
        """Average the share of CE marks per round, as DCTCP does [BBRv2alpha] bbr2_update_ecn_alpha."""
        delivered = s32(ack.delivered - self.alpha_last_delivered)
        delivered_ce = s32(ack.delivered_ce - self.alpha_last_delivered_ce)
        if delivered <= 0 or delivered_ce < 0:
            return
        if self.can_use_ecn(ack) and self.is_ecn_path():
            self.ecn_eligible = True
        self.mix_ecn_alpha(ack, (delivered_ce << BBR_SCALE) // delivered)

    def can_use_ecn(self, ack: Ack) -> bool:
        """Whether marks mean a shallow threshold [BBRv2alpha] ecn_enable."""
        return self.ecn_enable != 0

    def is_ecn_path(self) -> bool:
        """Whether the path is short enough for shallow-threshold ECN; 0 means any [BBRv2alpha] ecn_max_rtt_us."""
        return self.ecn_max_rtt_us == 0 or self.min_rtt_us <= self.ecn_max_rtt_us

    def mix_ecn_alpha(self, ack: Ack, ce_ratio: int) -> None:
        """Average a round's marks in; two rounds of half or more end STARTUP [BBRv2alpha] bbr2_update_ecn_alpha."""
        alpha = ((BBR_UNIT - ECN_ALPHA_GAIN) * self.ecn_alpha) >> BBR_SCALE
        self.ecn_alpha = min(alpha + ((ECN_ALPHA_GAIN * ce_ratio) >> BBR_SCALE), BBR_UNIT)
        self.alpha_last_delivered = ack.delivered
        self.alpha_last_delivered_ce = ack.delivered_ce
        if self.full_bw_reached or not self.ecn_eligible:
            return
        self.startup_ecn_rounds = self.startup_ecn_rounds + 1 if ce_ratio >= ECN_THRESH else 0
        if self.startup_ecn_rounds >= FULL_ECN_CNT:
            self.handle_queue_too_high_in_startup(ack)
