"""BBR version 2 as oBBR's authors carried it over to nginx-quic.

Model:  bw = min(max of two probe cycles, bw_lo);  in flight between inflight_lo and inflight_hi;
        loss above 2 % while probing lowers inflight_hi, a loss round while not probing takes 30 % off the lower bounds.

            STARTUP --(plateau or losses)--> DRAIN --(inflight <= BDP)--> PROBE_BW:
                                                                           DOWN --> CRUISE --> REFILL --> UP --> DOWN
            every state --(probe RTT older than 2.5 s)--> PROBE_RTT --(200 ms at 0.75 BDP)--> PROBE_BW (CRUISE)

It follows google/bbr's v2alpha, with a millisecond clock, bytes, float gains and without ECN, undo or fast path.

Quirks, kept because decisions depend on them (more in `quic_bbr2_model`, the path model):

* before the first RTT sample the pacing rate assumes an RTT of 1 s (`quic_bbr`: 1 ms).
* the minimum RTT window is 2.5 s, as long as the PROBE_RTT interval (v2alpha: 10 s and 5 s), so every PROBE_RTT
  replaces min_rtt.
* `prior_cwnd` is saved after the mode became PROBE_RTT, so it never shrinks there.

Sources: [ngx_bbr2] bpq233/oBBR nginx-quic/src/event/quic/ngx_bbr2.c, commit b2a8c25 (`-C BBRv2`); [Cardwell22].
Differs from its parent in everything: it is written afresh. What it shares with `quic_bbr` is in `quic_bbr_common`.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.bbr1_model import DRAIN, PROBE_BW, PROBE_RTT, STARTUP
from cctrace.cc.bbr2_bounds import ACKS_PROBE_STARTING, ACKS_PROBE_STOPPING, ACKS_REFILLING
from cctrace.cc.bbr2_model import CRUISE, DOWN, REFILL, UNSET, UP
from cctrace.cc.cmath import f32, u32
from cctrace.cc.quic import INITIAL_WINDOW, MIN_WINDOW, RTT_UNKNOWN, delivery_rate, float_to_u32
from cctrace.cc.quic_bbr2_model import QuicBBR2Model
from cctrace.cc.quic_bbr_common import IN_RECOVERY, NOT_IN_RECOVERY

PHASE_GAINS = (1.25, 0.75, 1.0, 1.0)  # of UP, DOWN, CRUISE, REFILL
LOSS = 2  # a third `recovery_mode`, after persistent congestion

MIN_RTT_WINDOW_MS = 2500
PROBE_RTT_WINDOW_MS = 2500
PROBE_RTT_MS = 200
HIGH_GAIN = f32(2.885)
STARTUP_GAIN_ON_LOSS = f32(1.5)
STARTUP_CWND_GAIN = f32(2.0)
DRAIN_GAIN = f32(0.75)
CWND_GAIN = f32(2.0)
PROBE_UP_GAIN = f32(1.25)
PROBE_RTT_CWND_GAIN = f32(0.75)
FULL_LOSS_EVENTS = 8  # losses in a round that may end STARTUP
MAX_LOSS_EVENTS = 15
PACING_MARGIN = f32(0.01)
UNKNOWN_RTT_MS = 1000
# Probing for bandwidth: after 2 to 3 s, or as many rounds as Reno would take to grow by a BDP, at most 63.
PROBE_RANDOM_ROUNDS = 2
PROBE_BASE_MS = 2000
PROBE_RANDOM_MS = 1000


class QuicBBR2(QuicBBR2Model):
    """BBRv2 of oBBR's nginx-quic (`-C BBRv2`)."""

    # Modes by `mode`, then the phases of PROBE_BW by `cycle_idx`: `states[4 + cycle_idx]`.
    states = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT", "UP", "DOWN", "CRUISE", "REFILL")
    transitions = {
        ("STARTUP", "DRAIN"): "bandwidth grew by less than 25 % in 3 rounds, or loss too high",
        ("STARTUP", "PROBE_BW"): "the same, with no more than the BDP in flight",
        ("STARTUP", "PROBE_RTT"): "no new minimum RTT for 2.5 s",
        ("DRAIN", "PROBE_BW"): "in flight at most the BDP",
        ("DRAIN", "PROBE_RTT"): "no new minimum RTT for 2.5 s",
        ("PROBE_BW", "PROBE_RTT"): "no new minimum RTT for 2.5 s",
        ("PROBE_RTT", "PROBE_BW"): "200 ms and a round at 0.75 BDP over, the pipe was full before; to CRUISE",
        ("PROBE_RTT", "STARTUP"): "200 ms and a round at 0.75 BDP over, the pipe was never full",
        ("REFILL", "UP"): "one round",
        ("UP", "DOWN"): "in flight 1.25 BDP or back at inflight_hi, or too much loss",
        ("UP", "CRUISE"): "the same, with no queue to drain",
        ("UP", "REFILL"): "the same, with a window so small that Reno would probe at once",
        ("DOWN", "CRUISE"): "in flight at most the BDP and inflight_hi less headroom",
        ("DOWN", "REFILL"): "the wait is over, or the cautious probe before did no harm",
        ("CRUISE", "REFILL"): "the wait is over, or the cautious probe before did no harm",
    }
    probe_rtt_min_ms: int = 0
    probe_rtt_min_ms_stamp: int = 0
    loss_events_in_round: int = 0
    cycle_start_stamp: int = 0
    probe_wait_ms: int = 0
    loss_start_time: int = 0

    def init(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_init
        """Connection established."""
        rtt = ack.smp_srtt_ms if ack.smp_srtt_ms else RTT_UNKNOWN
        self.min_rtt = rtt
        self.min_rtt_stamp = ack.now_ms
        self.probe_rtt_min_ms = rtt
        self.probe_rtt_min_ms_stamp = ack.now_ms
        self.extra_ack_stamp = ack.now_ms
        self.cwnd = INITIAL_WINDOW
        self.enter_startup()
        self.init_pacing_rate(ack.smp_srtt_ms)

    def on_ack(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_on_ack
        """Take in an ACK that gave a rate sample."""
        self.update_round_start(ack)
        bw = delivery_rate(ack.smp_delivered, ack.smp_interval_ms) if ack.smp_interval_ms else 0
        self.update_congestion_signals(ack, bw)
        self.update_ack_aggregation(ack)
        self.check_loss_too_high_in_startup(ack)
        self.check_full_bw_reached(ack)
        self.check_drain(ack)
        self.update_cycle_phase(ack)
        self.update_min_rtt(ack)
        self.update_recovery_mode(ack)
        self.update_startup_gain()
        self.set_pacing_rate(ack.smp_srtt_ms)
        self.set_cwnd(ack)
        self.bound_cwnd_for_inflight_model()

    # -- states --------------------------------------------------------------------------------------------------------
    def enter_startup(self) -> None:  # [ngx_bbr2] ngx_bbr2_enter_startup
        """Double the rate each round."""
        self.mode = STARTUP
        self.pacing_gain = HIGH_GAIN
        self.cwnd_gain = STARTUP_CWND_GAIN

    def check_loss_too_high_in_startup(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_check_loss_too_high_in_startup
        """End STARTUP on heavy loss."""
        if self.full_bw_reached:
            return
        if ack.smp_loss and self.loss_events_in_round < MAX_LOSS_EVENTS:
            self.loss_events_in_round = self.loss_events_in_round + 1
        if not self.loss_round_start:
            return
        many = self.recovery_mode == IN_RECOVERY and self.loss_events_in_round >= FULL_LOSS_EVENTS
        if many and self.is_inflight_too_high(ack):
            self.full_bw_reached = True
            self.inflight_hi = self.inflight(self.max_bw(), f32(1.0))
            return
        self.loss_events_in_round = 0

    def check_drain(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_check_drain
        """Leave STARTUP for DRAIN, and DRAIN for PROBE_BW."""
        if self.mode == STARTUP and self.full_bw_reached:
            self.mode = DRAIN
            self.pacing_gain = DRAIN_GAIN
            self.cwnd_gain = STARTUP_CWND_GAIN
            self.reset_congestion_signals()
        if self.mode == DRAIN and ack.smp_in_flight <= self.inflight(self.max_bw(), f32(1.0)):
            self.enter_probe_down(ack, ack.smp_now, ack.smp_total_acked)

    def update_cycle_phase(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_update_cycle_phase
        """Walk through the phases of PROBE_BW."""
        if not self.full_bw_reached or self.adapt_upper_bounds(ack) or self.mode != PROBE_BW:
            return
        if self.cycle_idx == CRUISE:
            self.check_time_to_probe_bw(ack)
        elif self.cycle_idx == REFILL:
            if self.round_start:  # a round of ACKs has shown the pipe full
                self.bw_probe_samples = True
                self.enter_probe_up(ack)
        elif self.cycle_idx == UP:
            self.check_probe_up_done(ack)
        elif not self.check_time_to_probe_bw(ack) and self.is_time_to_cruise(ack.smp_prior_inflight):
            self.enter_probe_cruise()

    def check_time_to_probe_bw(self, ack: Ack) -> bool:  # [ngx_bbr2] ngx_bbr2_check_time_to_probe_bw
        """Start a probe when the wait is over, or when Reno would have grown by a BDP; return whether it did."""
        if self.has_elapsed_in_phase(ack, self.probe_wait_ms) or self.is_reno_coexistence_probe_time():
            self.enter_probe_refill(ack)
            return True
        return False

    def has_elapsed_in_phase(self, ack: Ack, interval_ms: int) -> bool:  # [ngx_bbr2] ngx_bbr2_has_elapsed_in_phase
        """Whether the phase is older than `interval_ms`."""
        return ack.smp_now > interval_ms + self.cycle_start_stamp

    def check_probe_up_done(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_update_cycle_phase
        """End UP at a bound that was too high before, or when a queue has formed."""
        if self.prev_probe_too_high and ack.smp_prior_inflight >= self.inflight_hi:
            self.stopped_risky_probe = True
        elif not (
            self.has_elapsed_in_phase(ack, self.min_rtt)
            and ack.smp_prior_inflight >= self.inflight(self.max_bw(), PROBE_UP_GAIN)
        ):
            return
        self.prev_probe_too_high = False
        self.enter_probe_down(ack, ack.smp_now, ack.smp_total_acked)

    def enter_phase(self, phase: int) -> None:  # [ngx_bbr2] ngx_bbr2_set_cycle_idx
        """Take on the gains of a phase of PROBE_BW."""
        self.cycle_idx = phase
        self.cwnd_gain = CWND_GAIN
        self.pacing_gain = f32(PHASE_GAINS[phase])

    def enter_probe_down(self, ack: Ack, now_ms: int, total_acked: int) -> None:  # [ngx_bbr2] ngx_bbr2_enter_probe_down
        """Drain, and choose when to probe next."""
        self.mode = PROBE_BW
        self.reset_congestion_signals()
        self.bw_probe_up_cnt = UNSET
        self.rounds_since_probe = self.draw(ack) % PROBE_RANDOM_ROUNDS
        self.probe_wait_ms = PROBE_BASE_MS + self.draw(ack) % PROBE_RANDOM_MS
        self.cycle_start_stamp = now_ms
        self.ack_phase = ACKS_PROBE_STOPPING
        self.next_round_delivered = u32(total_acked)
        self.enter_phase(DOWN)

    def enter_probe_cruise(self) -> None:  # [ngx_bbr2] ngx_bbr2_enter_probe_cruise
        """Send at the estimated bandwidth."""
        if self.inflight_lo != UNSET:
            self.inflight_lo = min(self.inflight_lo, self.inflight_hi)
        self.enter_phase(CRUISE)

    def enter_probe_refill(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_enter_probe_refill
        """Fill the pipe before probing."""
        self.reset_lower_bounds()
        self.bw_probe_up_rounds = 0
        self.bw_probe_up_acks = 0
        self.stopped_risky_probe = False
        self.ack_phase = ACKS_REFILLING
        self.next_round_delivered = u32(ack.smp_total_acked)
        self.enter_phase(REFILL)

    def enter_probe_up(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_enter_probe_up
        """Push in-flight data up."""
        self.ack_phase = ACKS_PROBE_STARTING
        self.next_round_delivered = u32(ack.smp_total_acked)
        self.cycle_start_stamp = ack.smp_now
        self.raise_inflight_hi_slope()
        self.enter_phase(UP)

    # -- minimum RTT ---------------------------------------------------------------------------------------------------
    def update_min_rtt(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_update_min_rtt
        """Keep the minimum RTT; when no smaller one came for 2.5 s, go and look for it."""
        expired = ack.smp_now > self.probe_rtt_min_ms_stamp + PROBE_RTT_WINDOW_MS
        if ack.smp_rtt_ms <= self.probe_rtt_min_ms or expired:
            self.probe_rtt_min_ms = ack.smp_rtt_ms
            self.probe_rtt_min_ms_stamp = ack.smp_now
        if self.probe_rtt_min_ms <= self.min_rtt or ack.smp_now > self.min_rtt_stamp + MIN_RTT_WINDOW_MS:
            self.min_rtt = self.probe_rtt_min_ms
            self.min_rtt_stamp = self.probe_rtt_min_ms_stamp
        if expired and not self.idle_restart and self.mode != PROBE_RTT:
            self.mode = PROBE_RTT
            self.pacing_gain = f32(1.0)
            self.cwnd_gain = f32(1.0)
            self.save_cwnd()  # quirk: after the mode changed
            self.probe_rtt_round_done_stamp = 0
            self.ack_phase = ACKS_PROBE_STOPPING
        if self.mode == PROBE_RTT:
            self.stay_in_probe_rtt(ack)
        if ack.smp_delivered > 0:
            self.idle_restart = False

    def stay_in_probe_rtt(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_update_min_rtt
        """Wait until in-flight data have fallen, and then 200 ms and a round."""
        self.mark_app_limited(ack)
        if self.probe_rtt_round_done_stamp == 0:
            if ack.smp_in_flight <= self.probe_rtt_cwnd():
                self.probe_rtt_round_done_stamp = ack.smp_now + PROBE_RTT_MS
                self.probe_rtt_round_done = False
                self.next_round_delivered = u32(ack.smp_total_acked)
            return
        if self.round_start:
            self.probe_rtt_round_done = True
        if self.probe_rtt_round_done:
            self.check_probe_rtt_done(ack, ack.smp_now, ack.smp_total_acked)

    def check_probe_rtt_done(
        self, ack: Ack, now_ms: int, total_acked: int
    ) -> None:  # [ngx_bbr2] ngx_bbr2_check_probe_rtt_done
        """Go back to work once the time is over."""
        if self.probe_rtt_round_done_stamp == 0 or now_ms < self.probe_rtt_round_done_stamp:
            return
        self.probe_rtt_min_ms_stamp = now_ms
        self.cwnd = max(self.cwnd, self.prior_cwnd)
        self.reset_lower_bounds()
        if self.full_bw_reached:
            self.enter_probe_down(ack, now_ms, total_acked)
            self.enter_probe_cruise()
        else:
            self.enter_startup()

    def probe_rtt_cwnd(self) -> int:  # [ngx_bbr2] ngx_bbr2_probe_rtt_cwnd
        """Return the window of PROBE_RTT, bytes."""
        return max(MIN_WINDOW, self.inflight(self.current_bw(), PROBE_RTT_CWND_GAIN))

    # -- recovery ------------------------------------------------------------------------------------------------------
    def on_lost(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_on_lost
        """Remember a loss; `arg` is the lost packet's send time."""
        self.loss_in_round = True
        if self.recovery_mode != LOSS and ack.arg > self.recovery_start_time:
            self.recovery_start_time = ack.now_ms

    def update_recovery_mode(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_update_recovery_mode
        """Leave LOSS and RECOVERY when a packet sent after their start is ACKed."""
        if ack.smp_po_sent_time > self.loss_start_time and self.recovery_mode == LOSS:
            self.recovery_mode = NOT_IN_RECOVERY
            self.cwnd = max(self.cwnd, self.prior_cwnd)
            return
        sent_before_loss = ack.smp_po_sent_time <= self.recovery_start_time
        if sent_before_loss and self.recovery_mode == NOT_IN_RECOVERY:
            self.recovery_mode = IN_RECOVERY
            self.save_cwnd()
        elif not sent_before_loss and self.recovery_mode == IN_RECOVERY:
            self.recovery_mode = NOT_IN_RECOVERY
            self.recovery_start_time = 0

    def update_startup_gain(self) -> None:  # [ngx_bbr2] ngx_bbr2_update_pacing_gain_for_loss_recovery
        """Grow more slowly in STARTUP while losses are being repaired."""
        if self.mode != STARTUP:
            return
        if self.recovery_mode == IN_RECOVERY:
            self.pacing_gain = STARTUP_GAIN_ON_LOSS
        elif self.recovery_mode == NOT_IN_RECOVERY:
            self.pacing_gain = HIGH_GAIN

    def reset_cwnd(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_reset_cwnd
        """Persistent congestion: start over from 4 packets."""
        self.save_cwnd()
        self.cwnd = MIN_WINDOW
        self.recovery_mode = LOSS
        self.full_bw = 0
        self.loss_start_time = ack.now_ms
        if not self.is_probing_bandwidth() and self.inflight_lo == UNSET:
            self.inflight_lo = self.prior_cwnd
        self.recovery_start_time = 0

    # -- outputs -------------------------------------------------------------------------------------------------------
    def unknown_rtt_ms(self) -> int:
        """What stands for the RTT before the first sample."""
        return UNKNOWN_RTT_MS

    def pace_at(self, gain: f32) -> None:  # [ngx_bbr2] _ngx_bbr2_set_pacing_rate_helper
        """Set the pacing rate; before the pipe is full it only grows, unless losses are being repaired."""
        rate = float_to_u32(float(f32(f32(self.current_bw()) * gain)) * (1.0 - float(PACING_MARGIN)))
        if self.full_bw_reached or rate > self.pacing_rate or self.recovery_mode == IN_RECOVERY:
            self.pacing_rate = rate

    def restart_from_idle(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_restart_from_idle
        """As the parent; silence is no aggregation (`arg`: delivered so far)."""
        self.extra_ack_stamp = ack.now_ms
        self.epoch_ack = 0
        super().restart_from_idle(ack)

    def set_cwnd(self, ack: Ack) -> None:  # [ngx_bbr2] ngx_bbr2_set_cwnd
        """Move the window towards its target by what was ACKed."""
        if ack.smp_acked != 0:
            target = u32(self.inflight(self.current_bw(), self.cwnd_gain) + self.ack_aggregation_cwnd())
            grown = u32(self.cwnd + ack.smp_acked)
            if self.full_bw_reached:
                self.cwnd = min(target, grown)
            elif self.cwnd < target or self.cwnd < 2 * INITIAL_WINDOW:
                self.cwnd = grown
            self.cwnd = max(self.cwnd, MIN_WINDOW)
        if self.mode == PROBE_RTT:
            self.cwnd = min(self.cwnd, self.probe_rtt_cwnd())

    def bound_cwnd_for_inflight_model(self) -> None:  # [ngx_bbr2] ngx_bbr2_bound_cwnd_for_inflight_model
        """Keep the window within the bounds that probing and losses have set."""
        cap = UNSET
        if self.mode == PROBE_BW and self.cycle_idx != CRUISE:
            cap = self.inflight_hi
        elif self.mode == PROBE_RTT or self.mode == PROBE_BW:
            cap = self.inflight_with_headroom()
        self.cwnd = min(max(min(cap, self.inflight_lo), MIN_WINDOW), self.cwnd)
