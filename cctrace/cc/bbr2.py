"""BBRv2 as released (google/bbr, branch v2alpha).

Model:  the path is known by bandwidth, round-trip propagation delay and, new in v2, the flight it tolerates: loss or
        CE marks above a threshold while probing set a long-term bound inflight_hi, and loss at other times cuts the
        short-term bounds inflight_lo and bw_lo by beta. `bbr2_model` has the path model, `bbr2_bounds` what loss and
        marks do to it, `bbr2_probe_rtt` how the least RTT is measured, this file the state machine.

      STARTUP --(bw plateau of 3 rounds, or 8 losses at > 2 %, or 2 rounds marked)--> DRAIN
                                                                                        | (flight <= BDP)
        +------------------------------------ PROBE_BW ---------------------------------v------------+
        |  REFILL --(1 round)--> UP --(flight at inflight_hi, or 1.25 BDP, or too much loss)--> DOWN  |
        |    ^                                                                                  |     |
        |    +--(2..3 s, or as many rounds as a Reno flow would take)-- CRUISE <--(flight <= BDP)     |
        +---------------------------------------------------------------------------------------------+
              |  ^ to CRUISE (to STARTUP while the pipe was not yet full)
              v  | (200 ms and a round at half a BDP)
           PROBE_RTT       from any state, when no lower-or-equal RTT was seen for 5 s

DOWN also goes to REFILL directly when the wait is over, or when the probe before had stopped at inflight_hi and turned
out harmless. `loss_thresh` and `beta` are the alpha and beta of BBRv2(alpha, beta) in [Yang22] section 3.4.

Quirks of the release, kept:

* next_rtt_delivered starts at 0, so the first sample already starts a round;
* "no RTT yet" is ~0, and the initial window then serves as BDP;
* a timeout clears full_bw but not the counter of its rounds;
* the switches cwnd_tso_budget, drain_to_target, extra_acked_in_startup, undo and fast_path have their defaults (on);
* ECN is off unless `ecn_enable`: the release cannot negotiate it.

Sources: [BBRv2alpha] google/bbr, branch v2alpha, net/ipv4/tcp_bbr2.c; [Yang22] section 2.
Differs from BBR (bbr2019) in nearly every step, so it is written afresh:
* the bandwidth filter spans two cycles instead of ten rounds;
* it probes on a clock of 2..3 s instead of every eighth RTT;
* PROBE_RTT comes every 5 s and keeps half a BDP, instead of every 10 s and four packets;
* it responds to loss and ECN, and has no long-term (policer) sampling.
"""

from typing import ClassVar

from cctrace.cc.ack import Ack
from cctrace.cc.bbr1_model import DRAIN, PROBE_BW, PROBE_RTT, STARTUP
from cctrace.cc.bbr2_bounds import ACKS_PROBE_STARTING, ACKS_PROBE_STOPPING, ACKS_REFILLING
from cctrace.cc.bbr2_model import BBR_SCALE, BBR_UNIT, CRUISE, DOWN, REFILL, UNSET, UP, ilog2, in_256ths
from cctrace.cc.bbr2_probe_rtt import BBR2ProbeRtt
from cctrace.cc.cmath import u32
from cctrace.cc.linux import (
    CA_OPEN,
    CA_RECOVERY,
    EVENT_ECN_IS_CE,
    EVENT_ECN_NO_CE,
    EVENT_TX_START,
    TCP_INFINITE_SSTHRESH,
)

FULL_BW_THRESH = BBR_UNIT * 5 // 4
FULL_BW_CNT = 3  # rounds: window tuning by the receiver, filling it, seeing it
BW_PROBE_RAND_ROUNDS = 2


class BBR2(BBR2ProbeRtt):
    """BBRv2, decision for decision as the v2alpha branch; see the module's docstring."""

    probe_draws: ClassVar[tuple[int | str, ...]] = (BW_PROBE_RAND_ROUNDS, 0)
    app_limited_by_acks = True
    parts_as_v2 = True
    # Modes by `mode`, then the phases of PROBE_BW by `cycle_idx`: `states[4 + cycle_idx]`.
    states: ClassVar[tuple[str, ...]] = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT", "UP", "DOWN", "CRUISE", "REFILL")
    transitions = {
        ("STARTUP", "DRAIN"): "bw grew less than 25 % in 3 rounds, or too much loss or too many marks",
        ("STARTUP", "PROBE_BW"): "the same, with no queue to drain",
        ("DRAIN", "PROBE_BW"): "in flight <= BDP",
        ("STARTUP", "PROBE_RTT"): "least RTT older than 5 s",
        ("DRAIN", "PROBE_RTT"): "least RTT older than 5 s",
        ("PROBE_BW", "PROBE_RTT"): "least RTT older than 5 s",
        ("PROBE_RTT", "PROBE_BW"): "200 ms and a round at half a BDP; to CRUISE",
        ("PROBE_RTT", "STARTUP"): "the same, but the pipe was never full",
        ("REFILL", "UP"): "one round",
        ("UP", "DOWN"): "in flight 1.25 BDP or back at inflight_hi, or too much loss or too many marks",
        ("UP", "CRUISE"): "the same, with no queue to drain",
        ("UP", "REFILL"): "the same, with a window so small that Reno would probe every round",
        ("DOWN", "CRUISE"): "in flight <= BDP and <= inflight_hi less headroom",
        ("DOWN", "REFILL"): "the wait is over, or the cautious probe before did no harm",
        ("CRUISE", "REFILL"): "the wait is over, or the cautious probe before did no harm",
    }

    cycle_mstamp: int = 0
    probe_wait_us: int = 0
    packet_conservation: int = 0  # declared by the release, never used
    loss_events_in_round: int = 0
    ce_state: int = 0  # of received data

    def init(self, ack: Ack) -> None:
        """Start in STARTUP, paced for the initial window [BBRv2alpha] bbr_init, bbr2_init."""
        self.init_cwnd = min(0x7F, self.snd_cwnd)
        self.prior_cwnd = ack.prior_cwnd_tp
        self.snd_ssthresh = TCP_INFINITE_SSTHRESH
        self.probe_rtt_min_us = ack.tcp_min_rtt_us
        self.probe_rtt_min_stamp = ack.jiffies
        self.min_rtt_us = ack.tcp_min_rtt_us
        self.min_rtt_stamp = ack.jiffies
        self.init_pacing_rate_from_rtt(ack)
        self.ack_epoch_mstamp = ack.now_us
        self.loss_round_delivered = u32(ack.delivered + 1)
        self.reset_lower_bounds()
        self.inflight_hi = UNSET
        self.bw_probe_up_cnt = UNSET
        self.ecn_alpha = BBR_UNIT  # so that a path congested from the start is answered at once
        self.seen_delivered_ce = ack.delivered_ce

    def on_ack(self, ack: Ack) -> None:
        """Update the model and then the controls [BBRv2alpha] bbr2_main."""
        self.update_round(ack)
        self.update_ece(ack)
        self.calculate_bw_sample(ack)
        if not self.run_fast_path(ack):
            self.update_control(ack)
        self.finish_ack(ack)

    def finish_ack(self, ack: Ack) -> None:
        """Store what the next ACK is compared with [BBRv2alpha] bbr2_main."""
        self.prev_ca_state = ack.ca_state
        self.loss_in_cycle = self.loss_in_cycle or ack.rs_lost > 0
        self.ecn_in_cycle = self.ecn_in_cycle or ack.rs_delivered_ce > 0

    def run_fast_path(self, ack: Ack) -> bool:
        """Update the model; skip most of it while app-limited samples tell nothing [BBRv2alpha] bbr2_fast_path.

        Returns whether the controls can stay as they are.
        """
        app_limited = self.try_fast_path and ack.rs_is_app_limited != 0 and self.sample_bw < self.max_bw()
        if not app_limited or self.loss_in_round or self.ecn_in_round:
            self.update_model(ack)
            return False
        mode = self.mode
        min_rtt_us = self.min_rtt_us
        self.update_state(ack)
        return self.mode == mode and self.min_rtt_us == min_rtt_us and self.try_fast_path

    def update_model(self, ack: Ack) -> None:
        """Take in the sample, then move through the states [BBRv2alpha] bbr2_update_model."""
        self.update_congestion_signals(ack)
        self.update_ack_aggregation(ack)
        self.check_loss_too_high_in_startup(ack)
        self.check_full_bw_reached(ack)
        self.update_state(ack)

    def update_state(self, ack: Ack) -> None:
        """Leave DRAIN, go through PROBE_BW, enter or leave PROBE_RTT."""
        self.check_drain(ack)
        self.update_cycle_phase(ack)
        self.update_min_rtt(ack)

    def update_control(self, ack: Ack) -> None:
        """Set gains, pacing rate and cwnd [BBRv2alpha] bbr2_main."""
        self.update_gains()
        bw = self.bw()
        self.set_pacing_rate(ack, bw, self.pacing_gain)
        self.set_cwnd(ack, bw, self.cwnd_gain)
        self.bound_cwnd()

    def update_gains(self) -> None:
        """Gains of the mode and phase [BBRv2alpha] bbr_update_gains."""
        if self.mode == STARTUP:
            self.pacing_gain = in_256ths(self.startup_pacing_gain)
            self.cwnd_gain = in_256ths(self.startup_cwnd_gain)
        elif self.mode == DRAIN:
            self.pacing_gain = in_256ths(self.drain_pacing_gain)
            self.cwnd_gain = in_256ths(self.startup_cwnd_gain)
        elif self.mode == PROBE_BW:
            self.pacing_gain = self.phase_pacing_gain()
            self.cwnd_gain = in_256ths(self.probe_bw_cwnd_gain)
        else:
            self.pacing_gain = BBR_UNIT
            self.cwnd_gain = BBR_UNIT

    def phase_pacing_gain(self) -> int:
        """Pacing gain of the phase of PROBE_BW, 256ths [BBRv2alpha] bbr_pacing_gain[]."""
        if self.cycle_idx == UP:
            return in_256ths(self.up_pacing_gain)
        if self.cycle_idx == DOWN:
            return in_256ths(self.down_pacing_gain)
        return BBR_UNIT

    # --- STARTUP and DRAIN ------------------------------------------------------------------------------------------
    def check_loss_too_high_in_startup(self, ack: Ack) -> None:
        """End STARTUP after a recovery round with many and heavy losses [BBRv2alpha] bbr2_check_loss_too_high."""
        if self.full_bw_reached:
            return
        if ack.rs_losses and self.loss_events_in_round < 0xF:
            self.loss_events_in_round += 1
        if not self.loss_round_start:
            return
        many = ack.ca_state == CA_RECOVERY and self.loss_events_in_round >= self.full_loss_cnt
        if many and self.is_inflight_too_high(ack.rs_lost, ack.rs_tx_in_flight, ack.rs_delivered, ack.rs_delivered_ce):
            self.handle_queue_too_high_in_startup(ack)  # the counter stays, as in the source
        else:
            self.loss_events_in_round = 0

    def check_full_bw_reached(self, ack: Ack) -> None:
        """Three rounds without 25 % more bandwidth: the pipe is full [BBRv2alpha] bbr_check_full_bw_reached."""
        if self.full_bw_reached or not self.round_start or ack.rs_is_app_limited:
            return
        if self.max_bw() >= u32((self.full_bw * FULL_BW_THRESH) >> BBR_SCALE):
            self.full_bw = self.max_bw()
            self.full_bw_cnt = 0
            return
        self.full_bw_cnt += 1
        self.full_bw_reached = self.full_bw_cnt >= FULL_BW_CNT

    def check_drain(self, ack: Ack) -> None:
        """Enter DRAIN with a full pipe, leave it once the queue is gone [BBRv2alpha] bbr2_check_drain."""
        if self.mode == STARTUP and self.full_bw_reached:
            self.mode = DRAIN
            self.snd_ssthresh = self.inflight(ack, self.max_bw(), BBR_UNIT)  # for observers only
            self.reset_congestion_signals()
        if self.mode == DRAIN:
            in_net = self.packets_in_net_at_edt(ack, self.packets_in_flight(ack))
            if in_net <= self.inflight(ack, self.max_bw(), BBR_UNIT):
                self.enter_probe_bw(ack)

    def enter_probe_bw(self, ack: Ack) -> None:
        """Begin with DOWN: the queue of STARTUP has just drained [BBRv2alpha] bbr2_check_drain."""
        self.mode = PROBE_BW
        self.start_bw_probe_down(ack)

    # --- PROBE_BW ---------------------------------------------------------------------------------------------------
    def update_cycle_phase(self, ack: Ack) -> None:
        """Adapt inflight_hi, then see whether the phase is over [BBRv2alpha] bbr2_update_cycle_phase."""
        if not self.full_bw_reached or self.adapt_upper_bounds(ack) or self.mode != PROBE_BW:
            return
        inflight = self.packets_in_net_at_edt(ack, ack.rs_prior_in_flight)
        self.run_phase(ack, inflight)

    def run_phase(self, ack: Ack, inflight: int) -> None:
        """Run the current phase [BBRv2alpha] bbr2_update_cycle_phase."""
        if self.cycle_idx == CRUISE:
            self.cruise(ack)
        elif self.cycle_idx == REFILL:
            self.refill(ack)
        elif self.cycle_idx == UP:
            self.probe_up(ack, inflight)
        else:
            self.probe_down(ack, inflight)

    def cruise(self, ack: Ack) -> None:
        """Pace at the estimate and wait [BBRv2alpha] bbr2_update_cycle_phase, CRUISE."""
        self.check_time_to_probe_bw(ack)

    def refill(self, ack: Ack) -> None:
        """Fill the pipe for one round, so that UP does not probe an empty one [BBRv2alpha] same, REFILL."""
        if self.round_start:
            self.bw_probe_samples = True
            self.start_bw_probe_up(ack)

    def probe_up(self, ack: Ack, inflight: int) -> None:
        """Push until inflight_hi or 1.25 BDP is reached; losses stop it elsewhere [BBRv2alpha] same, UP."""
        risky = self.is_probe_risky(inflight)
        if risky:
            self.stopped_risky_probe = True
        if risky or self.is_probe_done(ack, inflight):
            self.prev_probe_too_high = False
            self.start_bw_probe_down(ack)

    def is_probe_risky(self, inflight: int) -> bool:
        """Whether the flight is back where the probe before went too far [BBRv2alpha] same, UP."""
        return self.prev_probe_too_high and inflight >= self.inflight_hi

    def is_probe_done(self, ack: Ack, inflight: int) -> bool:
        """Whether UP has lasted a min_rtt and built a queue of a quarter BDP [BBRv2alpha] same, UP."""
        if not self.has_elapsed_in_phase(ack, self.min_rtt_us):
            return False
        return inflight >= self.inflight(ack, self.max_bw(), in_256ths(self.bw_probe_pif_gain))

    def probe_down(self, ack: Ack, inflight: int) -> None:
        """Drain to the lesser of BDP and inflight_hi with headroom [BBRv2alpha] same, DOWN."""
        if not self.check_time_to_probe_bw(ack) and self.is_time_to_cruise(ack, inflight):
            self.start_bw_probe_cruise(ack)

    def is_time_to_cruise(self, ack: Ack, inflight: int) -> bool:
        """Whether the queue is gone and headroom left [BBRv2alpha] bbr2_check_time_to_cruise."""
        return inflight <= self.inflight_with_headroom() and inflight <= self.inflight(ack, self.max_bw(), BBR_UNIT)

    def check_time_to_probe_bw(self, ack: Ack) -> bool:
        """Start a probe if its time has come; return whether [BBRv2alpha] bbr2_check_time_to_probe_bw."""
        marks_ceased = self.ecn_eligible and self.ecn_in_cycle and not self.loss_in_cycle and ack.ca_state == CA_OPEN
        if self.ecn_reprobe_gain > 0.0 and marks_ceased:  # look quickly whether the cross traffic has gone
            growth = (self.inflight_hi * in_256ths(self.ecn_reprobe_gain)) >> BBR_SCALE
            self.start_bw_probe_refill(ack, ilog2(growth) & 0x1F)
            return True
        if self.is_probe_wait_over(ack) or self.is_reno_coexistence_probe_time(ack):
            self.start_bw_probe_refill(ack, 0)
            return True
        return False

    def is_probe_wait_over(self, ack: Ack) -> bool:
        """Whether the random 2..3 s have passed [BBRv2alpha] bbr2_check_time_to_probe_bw."""
        return self.has_elapsed_in_phase(ack, self.probe_wait_us)

    def has_elapsed_in_phase(self, ack: Ack, interval_us: int) -> bool:
        """Whether the phase is older than this [BBRv2alpha] bbr2_has_elapsed_in_phase."""
        return ack.now_us > self.cycle_mstamp + interval_us

    def is_reno_coexistence_probe_time(self, ack: Ack) -> bool:
        """Whether a Reno flow of our flight would have lost again [BBRv2alpha] bbr2_is_reno_coexistence_probe_time."""
        return self.rounds_since_probe >= min(self.bw_probe_max_rounds, self.target_inflight(ack))

    def pick_probe_wait(self, ack: Ack) -> None:
        """Draw the wait in rounds and by the clock, against synchronised flows [BBRv2alpha] bbr2_pick_probe_wait."""
        self.rounds_since_probe = self.random_below(ack, BW_PROBE_RAND_ROUNDS)
        self.probe_wait_us = self.bw_probe_base_us + self.random_below(ack, self.bw_probe_rand_us)

    def set_cycle_idx(self, cycle_idx: int) -> None:
        """Enter a phase; its window and rate are yet to be computed [BBRv2alpha] bbr2_set_cycle_idx."""
        self.cycle_idx = cycle_idx
        self.try_fast_path = False

    def start_bw_probe_refill(self, ack: Ack, bw_probe_up_rounds: int) -> None:
        """[BBRv2alpha] bbr2_start_bw_probe_refill."""
        self.reset_lower_bounds()
        self.bw_probe_up_rounds = bw_probe_up_rounds
        self.bw_probe_up_acks = 0
        self.stopped_risky_probe = False
        self.ack_phase = ACKS_REFILLING
        self.next_rtt_delivered = ack.delivered
        self.set_cycle_idx(REFILL)

    def start_bw_probe_up(self, ack: Ack) -> None:
        """[BBRv2alpha] bbr2_start_bw_probe_up."""
        self.ack_phase = ACKS_PROBE_STARTING
        self.next_rtt_delivered = ack.delivered
        self.cycle_mstamp = ack.now_us
        self.set_cycle_idx(UP)
        self.raise_inflight_hi_slope()

    def start_bw_probe_down(self, ack: Ack) -> None:
        """Begin a cycle: draw its wait, start its clock [BBRv2alpha] bbr2_start_bw_probe_down."""
        self.begin_cycle(ack)
        self.set_cycle_idx(DOWN)

    def begin_cycle(self, ack: Ack) -> None:
        """What every draining phase starts with [BBRv2alpha] bbr2_start_bw_probe_down."""
        self.reset_congestion_signals()
        self.bw_probe_up_cnt = UNSET  # inflight_hi grows no more
        self.pick_probe_wait(ack)
        self.cycle_mstamp = ack.now_us
        self.ack_phase = ACKS_PROBE_STOPPING
        self.next_rtt_delivered = ack.delivered

    def start_bw_probe_cruise(self, ack: Ack) -> None:
        """[BBRv2alpha] bbr2_start_bw_probe_cruise."""
        if self.inflight_lo != UNSET:
            self.inflight_lo = min(self.inflight_lo, self.inflight_hi)
        self.set_cycle_idx(CRUISE)

    def enter_probe_bw_after_dip(self, ack: Ack) -> None:
        """Schedule a new cycle and skip its DOWN [BBRv2alpha] bbr2_exit_probe_rtt."""
        self.mode = PROBE_BW
        self.start_bw_probe_down(ack)
        self.start_bw_probe_cruise(ack)

    # --- restart from idle ------------------------------------------------------------------------------------------
    def cwnd_event(self, ack: Ack) -> None:
        """Restart from idle; ECN of received data [BBRv2alpha] bbr_cwnd_event."""
        if ack.arg == EVENT_TX_START and self.app_limited:
            self.idle_restart = True
            self.ack_epoch_mstamp = ack.now_us
            self.ack_epoch_acked = 0
            if self.mode == PROBE_BW:
                self.set_pacing_rate(ack, self.bw(), BBR_UNIT)
            elif self.mode == PROBE_RTT:
                self.check_probe_rtt_done(ack)
        elif (ack.arg == EVENT_ECN_IS_CE or ack.arg == EVENT_ECN_NO_CE) and self.can_use_ecn(ack):
            self.ce_state = 1 if ack.arg == EVENT_ECN_IS_CE else 0  # the receiver then acknowledges at once
