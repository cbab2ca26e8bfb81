"""BBR as the IETF specifies it (draft-ietf-ccwg-bbr-06), written as its pseudocode is.

Model:  that of BBRv3. This file has the state machine, `bbr_draft_model` the path model and the control laws,
        `bbr_draft_bounds` the reaction to losses.

      Startup --(bw plateau of 3 rounds, or 6 losses at > 2 %)--> Drain --(flight <= BDP, or 3 rounds)--> DOWN
                                                                                                           |
        ProbeBW:  REFILL --(1 round)--> UP --(bw plateau of 3 rounds, flight at inflight_longterm, loss)--> DOWN
                     ^                                                                                     |
                     +---(2..3 s, or as many rounds as a Reno flow would take)--- CRUISE <--(flight <= BDP)+

        ProbeRTT: from any state, when no lower RTT was seen for 5 s; half a BDP for 200 ms and a round

A method per function of the draft, with the section beside it, on Linux's TCP: C and RS are its counters and rate
samples, SaveStateUponLoss comes with its losses, HandleSpuriousLossDetection with its undo. `bbr_draft_quic` is the
flavour of QUIC.

Left open by the draft, and chosen here:

* NoteLoss saves what an undo restores with every first loss of a loss round, and StartProbeBW_DOWN clears what marks
  the first: of two packets lost in UP the second would overwrite undo_state with None. Here it is saved once per
  recovery, as the sentence of 5.5.11.1 says ("when a loss recovery episode starts").
* BDPMultiple and Inflight are called with and without a bandwidth; without one it is BBR.bw.
* probe_rtt_min_delay and probe_rtt_min_stamp have no initial values: those of min_rtt; loss_round_delivered is 0.
* CheckStartupHighLoss is described in words: lost ranges are counted as Linux does, one per ACK that marks losses.
* A.2 and A.6 ask for full_bw_now and for inflight_longterm where the pseudocode sets neither: the pseudocode holds.
* C.cwnd = C.inflight + 1 upon a timeout is done by Linux's stack.

Sources: [BBRdraft] draft-ietf-ccwg-bbr-06 at 4ce5e87, section 5.
Differs from its parent in everything: it is written afresh. How it differs from Linux's BBRv3 and v2 is listed by
`cctrace variants bbr_draft bbr3` and `cctrace variants bbr_draft bbr2`.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.bbr1_model import DRAIN, PROBE_BW, PROBE_RTT, STARTUP
from cctrace.cc.bbr2_bounds import ACKS_PROBE_STARTING, ACKS_PROBE_STOPPING, ACKS_REFILLING
from cctrace.cc.bbr2_model import CRUISE, DOWN, REFILL, UNSET, UP
from cctrace.cc.bbr_draft_bounds import BBRDraftBounds
from cctrace.cc.bbr_draft_differs import FROM_BBR2, FROM_BBR3
from cctrace.cc.cmath import u32
from cctrace.cc.linux import CA_RECOVERY, EVENT_TX_START, TCP_INFINITE_SSTHRESH, USEC_PER_MSEC


class BBRDraft(BBRDraftBounds):
    """BBR of draft-ietf-ccwg-bbr-06; see the module's docstring."""

    probe_draws = (2, 0)
    counterparts = {"bbr3": FROM_BBR3, "bbr2": FROM_BBR2}
    # Modes by `mode`, then the states of ProbeBW by `cycle_idx`, as of the kernel's BBRv2 and v3.
    states = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT", "UP", "DOWN", "CRUISE", "REFILL")
    transitions = {
        ("STARTUP", "DRAIN"): "bw grew less than 25 % in 3 rounds, or too much loss",
        ("STARTUP", "PROBE_BW"): "the same, with no queue to drain",
        ("DRAIN", "PROBE_BW"): "in flight <= BDP, or after 3 rounds",
        ("STARTUP", "PROBE_RTT"): "least RTT older than 5 s",
        ("DRAIN", "PROBE_RTT"): "least RTT older than 5 s",
        ("PROBE_BW", "PROBE_RTT"): "least RTT older than 5 s",
        ("PROBE_RTT", "PROBE_BW"): "200 ms and a round at half a BDP; to CRUISE",
        ("PROBE_RTT", "STARTUP"): "the same, but the pipe was never full",
        ("DRAIN", "STARTUP"): "the losses that ended STARTUP were none",
        ("PROBE_BW", "STARTUP"): "the losses that ended STARTUP were none",
        ("REFILL", "UP"): "one round",
        ("UP", "DOWN"): "bw plateau of 3 rounds, in flight back at inflight_longterm, or too much loss",
        ("UP", "CRUISE"): "the same, with no queue to drain",
        ("UP", "REFILL"): "the same, with a window so small that Reno would probe every round",
        ("DOWN", "CRUISE"): "in flight <= BDP and <= inflight_longterm less headroom",
        ("DOWN", "REFILL"): "the wait is over, the cautious probe before did no harm, or the losses of UP were none",
        ("CRUISE", "REFILL"): "the same",
    }

    drain_start_round: int = 0
    full_bw: float = 0.0
    full_bw_count: int = 0
    full_bw_now: bool = False
    loss_events_in_round: int = 0
    probe_wait_us: int = 0  # its bw_probe_wait
    cycle_stamp: int = 0
    probe_rtt_done_stamp: int = 0
    probe_rtt_round_done: bool = False

    # --- 5.2 what runs when -------------------------------------------------------------------------------------------
    def init(self, ack: Ack) -> None:  # 5.2.1 OnInit
        """Begin in Startup, paced for the initial window."""
        self.initial_cwnd = self.snd_cwnd
        self.snd_ssthresh = TCP_INFINITE_SSTHRESH
        if ack.srtt_us8 > 0:
            self.min_rtt_us = ack.srtt_us8 >> 3
            self.probe_rtt_min_delay = self.min_rtt_us
        self.min_rtt_stamp = ack.now_us
        self.probe_rtt_min_stamp = ack.now_us
        self.extra_acked_interval_start = ack.now_us
        self.reset_congestion_signals()
        self.reset_short_term_model()
        self.init_round_counting()
        self.reset_full_bw()
        self.init_pacing_rate(ack)
        self.enter_startup()

    def on_ack(self, ack: Ack) -> None:  # 5.2.3 UpdateOnACK
        """Sample, model, control."""
        self.generate_rate_sample(ack)
        self.update_model_and_state(ack)
        self.update_control_parameters(ack)

    def update_model_and_state(self, ack: Ack) -> None:  # 5.2.3 UpdateModelAndState
        """Take in the sample, then move through the states."""
        self.update_latest_delivery_signals(ack)
        self.update_congestion_signals(ack)
        self.update_ack_aggregation(ack)
        self.check_full_bw_reached(ack)
        self.check_startup_done(ack)
        self.check_drain_done(ack)
        self.update_probe_bw_cycle_phase(ack)
        self.update_min_rtt(ack)
        self.check_probe_rtt(ack)
        self.advance_latest_delivery_signals(ack)
        self.bound_bw_for_model()

    def update_control_parameters(self, ack: Ack) -> None:  # 5.2.3 UpdateControlParameters
        """Set pacing rate, send quantum and cwnd."""
        self.set_pacing_rate()
        self.set_send_quantum(ack)
        self.set_cwnd(ack)

    # --- 5.3.1 Startup ------------------------------------------------------------------------------------------------
    def enter_startup(self) -> None:  # 5.3.1.1 EnterStartup
        """Double the sending rate each round."""
        self.mode = STARTUP
        self.pacing_gain = self.startup_pacing_gain
        self.cwnd_gain = self.startup_cwnd_gain

    def check_startup_done(self, ack: Ack) -> None:  # 5.3.1.1 CheckStartupDone
        """A full pipe ends Startup."""
        self.check_startup_high_loss(ack)
        if self.mode == STARTUP and self.full_bw_reached:
            self.enter_drain()

    def reset_full_bw(self) -> None:  # 5.3.1.2 ResetFullBW
        """Restart the search for a plateau."""
        self.full_bw = 0.0
        self.full_bw_count = 0
        self.full_bw_now = False

    def check_full_bw_reached(self, ack: Ack) -> None:  # 5.3.1.2 CheckFullBWReached
        """Three rounds without 25 % more: the pipe is full."""
        if self.full_bw_now or not self.round_start or ack.rs_is_app_limited != 0:
            return
        if self.delivery_rate >= self.full_bw * self.full_bw_thresh:
            self.reset_full_bw()
            self.full_bw = self.delivery_rate
            return
        self.full_bw_count += 1
        self.full_bw_now = self.full_bw_count >= self.full_bw_rounds
        if self.full_bw_now:
            self.full_bw_reached = True

    def check_startup_high_loss(self, ack: Ack) -> None:  # 5.3.1.3 CheckStartupHighLoss
        """Six losses and more than 2 % in a round of recovery: the pipe is full."""
        if self.full_bw_reached:
            return
        if ack.rs_losses > 0:
            self.loss_events_in_round += 1
        if not self.loss_round_start:
            return
        many = ack.ca_state == CA_RECOVERY and self.loss_events_in_round >= self.full_loss_cnt
        if many and self.is_inflight_too_high(ack.rs_lost, ack.rs_tx_in_flight):
            self.undo_state = STARTUP
            self.full_bw_reached = True
            bdp = self.bdp_multiple(ack, self.bw, 1.0)
            self.inflight_longterm = max(bdp, self.inflight_latest)
        self.loss_events_in_round = 0

    # --- 5.3.2 Drain --------------------------------------------------------------------------------------------------
    def enter_drain(self) -> None:  # 5.3.2 EnterDrain
        """Drain the queue of Startup."""
        self.mode = DRAIN
        self.pacing_gain = self.drain_pacing_gain
        self.cwnd_gain = self.startup_cwnd_gain
        self.drain_start_round = self.round_count

    def check_drain_done(self, ack: Ack) -> None:  # 5.3.2 CheckDrainDone
        """The queue is gone, or three rounds were not enough."""
        if self.mode == DRAIN and (
            self.packets_in_flight(ack) <= self.inflight(ack, self.bw, 1.0)
            or self.round_count > self.drain_start_round + self.drain_rounds
        ):
            self.enter_probe_bw(ack)

    # --- 5.3.3 ProbeBW ------------------------------------------------------------------------------------------------
    def enter_probe_bw(self, ack: Ack) -> None:  # 5.3.3.9 EnterProbeBW
        """Begin with DOWN."""
        self.cwnd_gain = self.probe_bw_cwnd_gain
        self.start_probe_bw_down(ack)

    def enter_probe_bw_state(
        self, cycle_idx: int, pacing_gain: float, cwnd_gain: float
    ) -> None:  # 5.6.1, the table of gains
        """Set BBR.state and its gains."""
        self.mode = PROBE_BW
        self.cycle_idx = cycle_idx
        self.pacing_gain = pacing_gain
        self.cwnd_gain = cwnd_gain

    def start_probe_bw_down(self, ack: Ack) -> None:  # 5.3.3.9 StartProbeBW_DOWN
        """Begin a cycle: draw its wait, start its clock, drain."""
        self.reset_congestion_signals()
        self.probe_up_acked_per_inc = UNSET
        self.pick_probe_wait(ack)
        self.cycle_stamp = ack.now_us
        self.ack_phase = ACKS_PROBE_STOPPING
        self.start_round(ack)
        self.enter_probe_bw_state(DOWN, self.down_pacing_gain, self.probe_bw_cwnd_gain)

    def start_probe_bw_cruise(self) -> None:  # 5.3.3.9 StartProbeBW_CRUISE
        """Send at the estimate."""
        self.enter_probe_bw_state(CRUISE, 1.0, self.probe_bw_cwnd_gain)

    def start_probe_bw_refill(self, ack: Ack) -> None:  # 5.3.3.9 StartProbeBW_REFILL
        """Fill the pipe for a round, so that UP does not probe an empty one."""
        self.reset_short_term_model()
        self.bw_probe_up_rounds = 0
        self.bw_probe_up_acked = 0
        self.prev_probe_precautionary = False
        self.ack_phase = ACKS_REFILLING
        self.start_round(ack)
        self.enter_probe_bw_state(REFILL, 1.0, self.probe_bw_cwnd_gain)

    def start_probe_bw_up(self, ack: Ack) -> None:  # 5.3.3.9 StartProbeBW_UP
        """Push, and look for a plateau from the current rate on."""
        self.ack_phase = ACKS_PROBE_STARTING
        self.start_round(ack)
        self.reset_full_bw()
        self.full_bw = self.delivery_rate
        self.enter_probe_bw_state(UP, self.up_pacing_gain, self.up_cwnd_gain)
        self.raise_inflight_longterm_slope()

    def update_probe_bw_cycle_phase(self, ack: Ack) -> None:  # 5.3.3.9 UpdateProbeBWCyclePhase
        """Adapt inflight_longterm, then see whether the state is over."""
        if not self.full_bw_reached or self.adapt_long_term_model(ack) or not self.is_in_a_probe_bw_state():
            return
        if self.cycle_idx == DOWN:
            if not self.is_time_to_probe_bw(ack) and self.is_time_to_cruise(ack):
                self.start_probe_bw_cruise()
        elif self.cycle_idx == CRUISE:
            self.is_time_to_probe_bw(ack)
        elif self.cycle_idx == REFILL:
            if self.round_start:
                self.is_bw_probe_sample = True
                self.start_probe_bw_up(ack)
        elif self.is_time_to_go_down(ack):
            self.prev_probe_too_high = False
            self.start_probe_bw_down(ack)

    def is_time_to_cruise(self, ack: Ack) -> bool:  # 5.3.3.9 IsTimeToCruise
        """Whether the queue is gone and headroom left."""
        inflight = self.packets_in_flight(ack)
        return inflight <= self.inflight_with_headroom() and inflight <= self.inflight(ack, self.max_bw, 1.0)

    def is_time_to_go_down(self, ack: Ack) -> bool:  # 5.3.3.9 IsTimeToGoDown
        """Whether the path is used up, or a probe that was too high is back where it was."""
        if self.prev_probe_too_high and self.packets_in_flight(ack) >= self.inflight_longterm:
            self.prev_probe_precautionary = True
            return True
        if ack.is_cwnd_limited != 0 and self.snd_cwnd >= self.inflight_longterm:
            self.reset_full_bw()
            self.full_bw = self.delivery_rate
            return False
        return self.full_bw_now

    def has_elapsed_in_phase(self, ack: Ack, interval_us: int) -> bool:  # 5.3.3.9 HasElapsedInPhase
        """Whether the cycle is older than this."""
        return ack.now_us > self.cycle_stamp + interval_us

    # --- 5.3.3.8.3 when to probe --------------------------------------------------------------------------------------
    def is_time_to_probe_bw(self, ack: Ack) -> bool:  # 5.3.3.8.3 IsTimeToProbeBW
        """Start a probe if its time has come; return whether."""
        if self.has_elapsed_in_phase(ack, self.probe_wait_us) or self.is_reno_coexistence_probe_time():
            self.start_probe_bw_refill(ack)
            return True
        return False

    def pick_probe_wait(self, ack: Ack) -> None:  # 5.3.3.8.3 PickProbeWait
        """Draw the wait in rounds and by the clock."""
        self.rounds_since_probe = self.random_below(ack, 2)
        self.probe_wait_us = self.bw_probe_base_us + self.random_below(ack, self.bw_probe_rand_us)

    def is_reno_coexistence_probe_time(self) -> bool:  # 5.3.3.8.3 IsRenoCoexistenceProbeTime
        """Whether a Reno flow of our flight would have lost again."""
        return self.rounds_since_probe >= min(self.target_inflight(), self.bw_probe_max_rounds)

    # --- 5.3.4 ProbeRTT -----------------------------------------------------------------------------------------------
    def check_probe_rtt(self, ack: Ack) -> None:  # 5.3.4.3 CheckProbeRTT
        """Enter ProbeRTT when the least RTT of 5 s has expired, unless idleness drained the queue."""
        if self.mode != PROBE_RTT and self.probe_rtt_expired and not self.idle_restart:
            self.enter_probe_rtt()
            self.save_cwnd(ack)
            self.probe_rtt_done_stamp = 0
            self.ack_phase = ACKS_PROBE_STOPPING
            self.start_round(ack)
        if self.mode == PROBE_RTT:
            self.handle_probe_rtt(ack)
        if ack.rs_delivered > 0:
            self.idle_restart = False

    def enter_probe_rtt(self) -> None:  # 5.3.4.3 EnterProbeRTT
        """Half a BDP."""
        self.mode = PROBE_RTT
        self.pacing_gain = 1.0
        self.cwnd_gain = self.probe_rtt_cwnd_gain

    def handle_probe_rtt(self, ack: Ack) -> None:  # 5.3.4.3 HandleProbeRTT
        """Count 200 ms and one round from the moment the flight is down."""
        inflight = self.packets_in_flight(ack)
        self.app_limited = max(u32(ack.delivered + inflight), 1)  # MarkConnectionAppLimited
        if self.probe_rtt_done_stamp == 0 and inflight <= self.probe_rtt_cwnd(ack):
            self.probe_rtt_done_stamp = ack.now_us + self.probe_rtt_ms * USEC_PER_MSEC
            self.probe_rtt_round_done = False
            self.start_round(ack)
        elif self.probe_rtt_done_stamp != 0:
            if self.round_start:
                self.probe_rtt_round_done = True
            if self.probe_rtt_round_done:
                self.check_probe_rtt_done(ack)

    def check_probe_rtt_done(self, ack: Ack) -> None:  # 5.3.4.3 CheckProbeRTTDone
        """The time is over."""
        if self.probe_rtt_done_stamp != 0 and ack.now_us > self.probe_rtt_done_stamp:
            self.probe_rtt_min_stamp = ack.now_us
            self.restore_cwnd()
            self.exit_probe_rtt(ack)

    def exit_probe_rtt(self, ack: Ack) -> None:  # 5.3.4.4 ExitProbeRTT
        """To CRUISE, the flight being low; to Startup if the pipe was never full."""
        self.reset_short_term_model()
        if self.full_bw_reached:
            self.start_probe_bw_down(ack)
            self.start_probe_bw_cruise()
        else:
            self.enter_startup()

    # --- 5.4 restart from idle ----------------------------------------------------------------------------------------
    def cwnd_event(self, ack: Ack) -> None:  # 5.2.2 OnTransmit, as far as it concerns the flow
        """Sending begins with nothing in flight."""
        if ack.arg == EVENT_TX_START:
            self.handle_restart_from_idle(ack)

    def handle_restart_from_idle(self, ack: Ack) -> None:  # 5.4.1 HandleRestartFromIdle
        """Pace at the estimate; idleness counts as an attempt to drain the queue."""
        if self.packets_in_flight(ack) == 0 and self.app_limited != 0:
            self.idle_restart = True
            self.extra_acked_interval_start = ack.now_us
            if self.is_in_a_probe_bw_state():
                self.set_pacing_rate_with_gain(1.0)
            elif self.mode == PROBE_RTT:
                self.check_probe_rtt_done(ack)
