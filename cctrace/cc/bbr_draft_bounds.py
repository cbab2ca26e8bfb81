"""What losses do in the IETF's BBR draft: the bounds, what is saved for an undo, and what an undo restores.

    while probing (Startup, REFILL, UP)          otherwise (Drain, DOWN, CRUISE, ProbeRTT), once per loss round
    more than 2 % of a flight lost:              bw_shortterm, inflight_shortterm := max(delivered, 0.7 * itself)
        inflight_longterm := flight that the
        lost packet was sent into                both are unset again when the next probe begins
    else, in UP: inflight_longterm grows by 1, 2, 4, ... segments a round

A *loss round* runs from the delivery of what was sent after the last one ended; the first loss in it restarts it.

Sources: [BBRdraft] sections 5.3.3.9, 5.5.10, 5.5.11 and 5.6.4.4.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.bbr2_bounds import ACKS_INIT, ACKS_PROBE_FEEDBACK, ACKS_PROBE_STARTING, ACKS_PROBE_STOPPING
from cctrace.cc.bbr2_model import PROBE_BW, PROBE_RTT, STARTUP, UNSET, UP
from cctrace.cc.bbr_draft_model import UNSET_BW, BBRDraftModel
from cctrace.cc.linux import CA_OPEN, CA_RECOVERY

NO_STATE = -1  # the draft's None, of undo_state
UNDO_UP = UP + 4  # undo_state: places of `states`


class BBRDraftBounds(BBRDraftModel):
    """The draft's reaction to losses; parameters and states are those of `bbr_draft.BBRDraft`."""

    bw_latest: float = 0.0
    inflight_latest: int = 0
    is_loss_in_round: bool = False
    loss_round_start: bool = False
    loss_round_delivered: int = 0
    ack_phase: int = ACKS_INIT
    is_bw_probe_sample: bool = False
    bw_probe_up_acked: int = 0
    probe_up_acked_per_inc: int = UNSET
    bw_probe_up_rounds: int = 0
    prev_probe_too_high: bool = False
    prev_probe_precautionary: bool = False
    undo_state: int = NO_STATE
    undo_bw_shortterm: float = 0.0
    undo_inflight_shortterm: int = 0
    undo_inflight_longterm: int = 0
    undo_saved: bool = False  # for the recovery that is under way

    # --- 5.5.10 losses ------------------------------------------------------------------------------------------------
    def is_inflight_too_high(
        self, lost: int, tx_in_flight: int
    ) -> bool:  # 5.5.10.2 IsInflightTooHigh; selective ACKs are taken for given
        """Whether more than 2 % of a flight was lost."""
        return lost > tx_in_flight * self.loss_thresh

    def inflight_at_loss(self, lost: int, tx_in_flight: int, size: int) -> int:  # 5.5.10.2 InflightAtLoss
        """At what flight, within a lost packet of `size` segments, losses crossed the threshold."""
        inflight_prev = tx_in_flight - size
        lost_prev = lost - size
        lost_prefix = (self.loss_thresh * inflight_prev - lost_prev) / (1.0 - self.loss_thresh)
        return max(int(inflight_prev + lost_prefix), 0)

    def update_latest_delivery_signals(self, ack: Ack) -> None:  # 5.5.10.3 UpdateLatestDeliverySignals
        """Raise the round's best rate and volume; see whether a loss round ends."""
        self.loss_round_start = False
        self.bw_latest = max(self.bw_latest, self.delivery_rate)
        self.inflight_latest = max(self.inflight_latest, ack.rs_delivered)
        if ack.rs_delivered >= 0 and ack.rs_prior_delivered >= self.loss_round_delivered:
            self.loss_round_delivered = ack.delivered
            self.loss_round_start = True

    def advance_latest_delivery_signals(self, ack: Ack) -> None:  # 5.5.10.3 AdvanceLatestDeliverySignals
        """Begin a new loss round with this sample."""
        if self.loss_round_start:
            self.bw_latest = self.delivery_rate
            self.inflight_latest = max(ack.rs_delivered, 0)

    def reset_congestion_signals(self) -> None:  # 5.5.10.3 ResetCongestionSignals
        """Forget the signals of a probe before adapting to others."""
        self.is_loss_in_round = False
        self.bw_latest = 0.0
        self.inflight_latest = 0

    def update_congestion_signals(self, ack: Ack) -> None:  # 5.5.10.3 UpdateCongestionSignals
        """Take in the bandwidth; once a loss round adapt to what was lost in it."""
        self.update_max_bw(ack)
        if not self.loss_round_start:
            return
        self.adapt_lower_bounds_from_congestion()
        self.is_loss_in_round = False

    def adapt_lower_bounds_from_congestion(self) -> None:  # 5.5.10.3 AdaptLowerBoundsFromCongestion
        """Loss while not probing cuts the short-term model."""
        if self.is_probing_bw():
            return
        if self.is_loss_in_round:
            self.init_lower_bounds()
            self.loss_lower_bounds()

    def init_lower_bounds(self) -> None:  # 5.5.10.3 InitLowerBounds
        """The first congestion of this cycle starts from the long-term model."""
        if self.bw_shortterm == UNSET_BW:
            self.bw_shortterm = self.max_bw
        if self.inflight_shortterm == UNSET:
            self.inflight_shortterm = self.snd_cwnd

    def loss_lower_bounds(self) -> None:  # 5.5.10.3 LossLowerBounds
        """Cut to 0.7, but not below what the path has just delivered."""
        self.bw_shortterm = max(self.bw_latest, self.loss_beta * self.bw_shortterm)
        self.inflight_shortterm = max(self.inflight_latest, int(self.loss_beta * self.inflight_shortterm))

    def reset_short_term_model(self) -> None:  # 5.5.10.3 ResetShortTermModel
        """Unset the short-term bounds."""
        self.bw_shortterm = UNSET_BW
        self.inflight_shortterm = UNSET

    # --- 5.3.3.9 the long-term model ----------------------------------------------------------------------------------
    def raise_inflight_longterm_slope(self) -> None:  # 5.3.3.9 RaiseInflightLongtermSlope
        """Double the growth of inflight_longterm with every round of UP."""
        growth_this_round = 1 << self.bw_probe_up_rounds
        self.bw_probe_up_rounds = min(self.bw_probe_up_rounds + 1, 30)
        self.probe_up_acked_per_inc = max(self.snd_cwnd // growth_this_round, 1)

    def probe_inflight_longterm_upward(self, ack: Ack) -> None:  # 5.3.3.9 ProbeInflightLongtermUpward
        """Raise inflight_longterm by a segment per probe_up_acked_per_inc ACKed, if it is what limits."""
        if ack.is_cwnd_limited == 0 or self.snd_cwnd < self.inflight_longterm:
            return
        self.bw_probe_up_acked += ack.rs_acked_sacked
        if self.bw_probe_up_acked >= self.probe_up_acked_per_inc:
            delta = self.bw_probe_up_acked // self.probe_up_acked_per_inc
            self.bw_probe_up_acked -= delta * self.probe_up_acked_per_inc
            self.inflight_longterm += delta
        if self.round_start:
            self.raise_inflight_longterm_slope()

    def adapt_long_term_model(self, ack: Ack) -> bool:  # 5.3.3.9 AdaptLongTermModel
        """Move inflight_longterm by what probing showed; return whether a new probe began."""
        if self.ack_phase == ACKS_PROBE_STARTING and self.round_start:
            self.ack_phase = ACKS_PROBE_FEEDBACK
        if self.ack_phase == ACKS_PROBE_STOPPING and self.round_start:
            self.is_bw_probe_sample = False
            self.ack_phase = ACKS_INIT
            if self.is_in_a_probe_bw_state() and ack.rs_is_app_limited == 0:
                self.advance_max_bw_filter()
            if self.is_in_a_probe_bw_state() and self.prev_probe_precautionary and not self.prev_probe_too_high:
                self.start_probe_bw_refill(ack)
                return True
        if not self.is_inflight_too_high(ack.rs_lost, ack.rs_tx_in_flight):
            if self.inflight_longterm == UNSET:
                return False
            if ack.rs_tx_in_flight > self.inflight_longterm:
                self.inflight_longterm = ack.rs_tx_in_flight
            if self.mode == PROBE_BW and self.cycle_idx == UP:
                self.probe_inflight_longterm_upward(ack)
        return False

    # --- 5.5.10.2, 5.5.11, 5.6.4.4 losses and recovery ----------------------------------------------------------------
    def skb_marked_lost(self, ack: Ack) -> None:  # 5.5.10.2 HandleLostPacket
        """Was the lost packet one of a probe that went too far?"""
        self.note_loss(ack)
        if not self.is_bw_probe_sample:
            return
        lost = ack.lost - ack.skb_tx_lost
        if self.is_inflight_too_high(lost, ack.skb_tx_in_flight):
            tx_in_flight = self.inflight_at_loss(lost, ack.skb_tx_in_flight, ack.skb_segments)
            self.handle_inflight_too_high(ack, tx_in_flight, ack.skb_tx_app_limited)

    def note_loss(self, ack: Ack) -> None:  # 5.5.10.2 NoteLoss
        """The first loss of a round begins the loss round; that of a recovery may come within one."""
        if not self.is_loss_in_round:
            self.loss_round_delivered = ack.delivered
        if not self.is_loss_in_round or not self.undo_saved:
            self.save_state_upon_loss(ack)
        self.is_loss_in_round = True

    def target_inflight(self) -> float:  # 5.3.3.8.3 TargetInflight
        """One BDP, unless congestion has cut cwnd below it."""
        return min(self.bdp, self.snd_cwnd)

    def handle_inflight_too_high(
        self, ack: Ack, tx_in_flight: int, is_app_limited: int
    ) -> None:  # 5.5.10.2 HandleInflightTooHigh
        """A probe went too far: bound the flight, once per probe."""
        self.prev_probe_too_high = True
        self.is_bw_probe_sample = False
        if is_app_limited == 0:
            self.inflight_longterm = max(tx_in_flight, int(self.target_inflight() * self.loss_beta))
        if self.mode == PROBE_BW and self.cycle_idx == UP:
            self.undo_state = UNDO_UP
            self.start_probe_bw_down(ack)

    def save_state_upon_loss(self, ack: Ack) -> None:  # 5.5.11.1 SaveStateUponLoss
        """Save what an undo restores, once per recovery; see the module's docstring."""
        self.save_cwnd(ack)
        if self.undo_saved:
            return
        self.undo_saved = True
        self.undo_state = NO_STATE
        self.undo_bw_shortterm = self.bw_shortterm
        self.undo_inflight_shortterm = self.inflight_shortterm
        self.undo_inflight_longterm = self.inflight_longterm

    def ssthresh(self, ack: Ack) -> int:  # 5.6.4.4 OnEnterRTO, OnEnterFastRecovery
        """Recovery begins; ssthresh itself is not used."""
        self.save_cwnd(ack)
        self.save_state_upon_loss(ack)
        return self.snd_ssthresh

    def set_state(self, ack: Ack) -> None:  # 5.6.4.4, the end of a recovery
        """Losses are repaired: back to the window before them."""
        if ack.arg == CA_OPEN and self.in_loss_recovery(ack):
            self.restore_cwnd()
        if ack.arg < CA_RECOVERY:
            self.undo_saved = False

    def undo_cwnd(self, ack: Ack) -> int:  # 5.5.11.2 HandleSpuriousLossDetection
        """The losses were none: back to the state and the bounds before them."""
        self.restore_cwnd()
        self.is_loss_in_round = False
        self.reset_full_bw()
        self.bw_shortterm = max(self.bw_shortterm, self.undo_bw_shortterm)
        self.inflight_shortterm = max(self.inflight_shortterm, self.undo_inflight_shortterm)
        self.inflight_longterm = max(self.inflight_longterm, self.undo_inflight_longterm)
        is_up = self.mode == PROBE_BW and self.cycle_idx == UP
        if self.undo_state == STARTUP and self.mode != STARTUP:
            self.full_bw_reached = False
            if self.mode != PROBE_RTT:
                self.enter_startup()
        elif self.undo_state == UNDO_UP and not is_up and self.mode != PROBE_RTT:
            self.start_probe_bw_refill(ack)
        self.undo_state = NO_STATE
        self.undo_saved = False
        return self.snd_cwnd

    # --- what the class that has the states does ----------------------------------------------------------------------
    def reset_full_bw(self) -> None:
        """Restart the search for a plateau."""

    def enter_startup(self) -> None:
        """The losses that ended Startup were none."""

    def start_probe_bw_refill(self, ack: Ack) -> None:
        """Probe for bandwidth."""

    def start_probe_bw_down(self, ack: Ack) -> None:
        """The probe went too far."""
