"""BBR as released in Linux 4.9 to 4.12 (2016): Kumar's BBR2016, and the parent of every BBR here.

Model:  every ACK updates  bw = max(delivery rate, 10 rounds)  and  min_rtt = min(RTT, 10 s);
        pace at pacing_gain * bw,  keep at most cwnd_gain * bw * min_rtt + 3 bursts in flight.

        STARTUP --(bw plateau, 3 rounds)--> DRAIN --(inflight <= BDP)--> PROBE_BW
           ^                                                              |    ^
           |                              (min_rtt not refreshed for 10 s) v    | (200 ms and a round at 4 packets)
           +-----------------(pipe never filled)---------------------- PROBE_RTT

    state      pacing_gain                       cwnd_gain
    STARTUP    2/ln 2 = 739/256: doubles a round  the same
    DRAIN      88/256: its inverse                739/256
    PROBE_BW   5/4, 3/4, 1, 1, 1, 1, 1, 1         2: tolerates delayed and stretched ACKs
    PROBE_RTT  1                                  1, and cwnd <= 4

Loss matters in three places only: in the first round of a recovery cwnd follows what is delivered; the end of the
recovery restores the cwnd from before; and losses may reveal a token-bucket policer. Estimates, rates and policer are
in `bbr1_model`.

Quirks of the release, kept:

* an RTT equal to min_rtt renews it, so on a path of constant RTT it never expires and PROBE_RTT never comes;
* next_rtt_delivered starts at 0, so the first sample already ends a round;
* an ACK that delivers nothing leaves cwnd unchanged, in PROBE_RTT too, whose cap has to wait for the next ACK;
* prior_cwnd is saved after the mode became PROBE_RTT, so the larger of two windows returns afterwards;
* a timeout clears full_bw but not the counter of its rounds, and an undo restores nothing;
* without an RTT sample the target is the initial window, without the three bursts;
* the policer's clock is jiffies, so its rates depend on HZ.

Units, as in the kernel: bw in segments/us << 24, gains << 8, RTTs us, stamps in jiffies (u32, wrapping), windows in
segments. No cap of snd_cwnd or of the pacing rate is modelled (the kernel's defaults are unlimited).

Sources: [Linux412] net/ipv4/tcp_bbr.c, tcp_output.c tcp_tso_autosize(), skbuff.h skb_mstamp; [Cardwell16].
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param
from cctrace.cc.bbr1_model import (
    CYCLE_LEN,
    DRAIN,
    GAIN_SCALE,
    GAIN_UNIT,
    MAX_GAIN,
    PROBE_BW,
    PROBE_RTT,
    STARTUP,
    BBR1Model,
)
from cctrace.cc.cmath import s32, u32
from cctrace.cc.linux import (
    CA_LOSS,
    CA_RECOVERY,
    EVENT_TX_START,
    TCP_INFINITE_SSTHRESH,
    TCP_INIT_CWND,
    USEC_PER_SEC,
    before,
    in_256ths,
    jiffies_to_usecs,
    msecs_to_jiffies,
)

CYCLE_RAND = 7  # a cycle starts anywhere but in its draining phase, so that flows do not probe together


class BBR2016(BBR1Model):
    """BBR of Linux 4.12; see the module's header. Parameters are the constants of the source, without `bbr_`."""

    params = BBR1Model.params | {
        "drain_gain": Param(88 / 256, 1 / 256, 1.0, "pacing gain of DRAIN: empties in a round what STARTUP queued"),
        "cwnd_gain": Param(2.0, 1 / 256, MAX_GAIN, "cwnd gain of PROBE_BW, BDP", "bbr_cwnd_gain"),
        "up_pacing_gain": Param(1.25, 1.0, MAX_GAIN, "pacing gain of the first phase of PROBE_BW: asks for more"),
        "down_pacing_gain": Param(0.75, 1 / 256, 1.0, "of the second: gives back what that queued; then six of 1"),
        "min_rtt_win_sec": Param(10, 1, 86_400, "window of min_rtt, after which PROBE_RTT comes, s"),
        "probe_rtt_mode_ms": Param(200, 0, 60_000, "stay in PROBE_RTT once flight is down to cwnd_min_target, ms"),
        "cwnd_min_target": Param(4, 2, 1000, "least cwnd, that of PROBE_RTT, segments: two ACKs of two"),
        "full_bw_thresh": Param(1.25, 1.0, MAX_GAIN, "growth of bw in a round that shows the pipe not yet full"),
        "full_bw_cnt": Param(3, 1, 7, "rounds of less growth that end STARTUP", "bbr_full_bw_cnt"),
    }
    phase_choices = CYCLE_RAND
    pacing_overhead_bytes = 66  # sk_pacing counts whole packets
    states = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT")
    transitions = {
        ("STARTUP", "DRAIN"): "bw grew less than 25 % in 3 rounds",
        ("STARTUP", "PROBE_BW"): "the same, with no queue to drain",
        ("DRAIN", "PROBE_BW"): "in flight <= BDP",
        ("STARTUP", "PROBE_RTT"): "min_rtt older than 10 s",
        ("DRAIN", "PROBE_RTT"): "min_rtt older than 10 s",
        ("PROBE_BW", "PROBE_RTT"): "min_rtt older than 10 s",
        ("PROBE_RTT", "PROBE_BW"): "200 ms and a round with at most 4 packets",
        ("PROBE_RTT", "STARTUP"): "the same, but the pipe was never full",
    }

    cwnd_gain: int = 0
    # STARTUP's plateau.
    full_bw: int = 0
    full_bw_cnt: int = 0
    full_bw_reached: int = 0
    # PROBE_BW's cycle; two clocks, because the kernel of the time stamped both us (u32) and jiffies.
    cycle_idx: int = 0
    cycle_mstamp: int = 0
    cycle_jiffies: int = 0
    # PROBE_RTT.
    probe_rtt_done_stamp: int = 0
    probe_rtt_round_done: int = 0
    idle_restart: int = 0
    # Recovery.
    prior_cwnd: int = 0
    prev_ca_state: int = 0
    restore_cwnd: int = 0

    # ---- entry points ----------------------------------------------------------------------------------------------

    def init(self, ack: Ack) -> None:
        """Pace at high_gain * cwnd / srtt; the rest starts at 0 [Linux412] bbr_init."""
        self.min_rtt_us = ack.tcp_min_rtt_us
        self.min_rtt_stamp = ack.jiffies
        self.init_pacing_rate(ack)
        self.reset_lt_bw_sampling(ack)
        self.enter_startup(ack)

    def on_ack(self, ack: Ack) -> None:
        """Update the model, then decide [Linux412] bbr_main."""
        self.update_model(ack)
        bw = self.bw()
        self.set_pacing_rate(ack, bw, self.pacing_gain)
        self.set_tso_segs_goal(ack)
        self.set_cwnd(ack, bw)

    def update_model(self, ack: Ack) -> None:
        """Learn from one ACK, in this order [Linux412] bbr_update_model."""
        self.update_bw(ack)
        self.update_cycle_phase(ack)
        self.check_full_bw_reached(ack)
        self.check_drain(ack)
        self.update_min_rtt(ack)

    def ssthresh(self, ack: Ack) -> int:
        """Remember cwnd; BBR itself has no use for ssthresh [Linux412] bbr_ssthresh."""
        self.save_cwnd()
        return TCP_INFINITE_SSTHRESH

    def undo_cwnd(self, ack: Ack) -> int:
        """Nothing was cut, so nothing is undone [Linux412] bbr_undo_cwnd."""
        return self.snd_cwnd

    def set_state(self, ack: Ack) -> None:
        """Treat a timeout as the end of a round with a loss [Linux412] bbr_set_state."""
        if ack.arg == CA_LOSS:
            self.prev_ca_state = CA_LOSS
            self.full_bw = 0
            self.round_start = 1
            self.lt_bw_sampling(ack, 1, 0)

    def cwnd_event(self, ack: Ack) -> None:
        """Resume from idle at the estimated bw, without a burst [Linux412] bbr_cwnd_event."""
        if ack.arg == EVENT_TX_START and self.app_limited != 0:
            self.restart_from_idle(ack)

    def restart_from_idle(self, ack: Ack) -> None:
        """First transmission with nothing in flight after the application paused [Linux412] bbr_cwnd_event."""
        self.idle_restart = 1
        if self.mode == PROBE_BW:
            self.set_pacing_rate(ack, self.bw(), GAIN_UNIT)

    # ---- decisions -------------------------------------------------------------------------------------------------

    def save_cwnd(self) -> None:
        """Remember the last cwnd that neither recovery nor PROBE_RTT had cut [Linux412] bbr_save_cwnd."""
        if self.prev_ca_state < CA_RECOVERY and self.mode != PROBE_RTT:
            self.prior_cwnd = self.snd_cwnd
        else:
            self.prior_cwnd = max(self.prior_cwnd, self.snd_cwnd)

    def recover_or_restore(self, ack: Ack) -> int:
        """Return cwnd after the rules of recovery; sets `packet_conservation`.

        [Linux412] bbr_set_cwnd_to_recover_or_restore: in the first round send as much as is delivered, then
        slow-start; afterwards return to the cwnd before recovery.
        """
        cwnd = self.snd_cwnd
        if ack.rs_losses > 0:
            cwnd = max(s32(cwnd - ack.rs_losses), 1)
        if ack.ca_state == CA_RECOVERY and self.prev_ca_state != CA_RECOVERY:
            self.packet_conservation = 1
            self.next_rtt_delivered = ack.delivered  # the round starts now
            cwnd = u32(self.packets_in_flight(ack) + ack.rs_acked_sacked)
        elif self.prev_ca_state >= CA_RECOVERY and ack.ca_state < CA_RECOVERY:
            self.restore_cwnd = 1
            self.packet_conservation = 0
        self.prev_ca_state = ack.ca_state
        if self.restore_cwnd != 0:
            cwnd = max(cwnd, self.prior_cwnd)
            self.restore_cwnd = 0
        if self.packet_conservation != 0:
            cwnd = max(cwnd, u32(self.packets_in_flight(ack) + ack.rs_acked_sacked))
        return cwnd

    def set_cwnd(self, ack: Ack, bw: int) -> None:
        """Grow towards the target by what was acked, snap down to it once the pipe is full [Linux412] bbr_set_cwnd."""
        if ack.rs_acked_sacked == 0:
            return  # so PROBE_RTT's cap has to wait for the next ACK as well
        cwnd = self.recover_or_restore(ack)
        if self.packet_conservation == 0:
            cwnd = self.grow_cwnd(ack, cwnd, self.target_cwnd(ack, bw))
        self.snd_cwnd = cwnd
        if self.mode == PROBE_RTT:
            self.snd_cwnd = min(cwnd, self.cwnd_min_target)

    def target_cwnd(self, ack: Ack, bw: int) -> int:
        """Segments that cwnd heads for [Linux412] bbr_target_cwnd."""
        return self.inflight(ack, bw, self.cwnd_gain)

    def grow_cwnd(self, ack: Ack, cwnd: int, target: int) -> int:
        """Slow-start towards `target`; cut cwnd only if the pipe is full [Linux412] bbr_set_cwnd."""
        if self.full_bw_reached != 0:
            cwnd = min(u32(cwnd + ack.rs_acked_sacked), target)
        elif cwnd < target or ack.delivered < TCP_INIT_CWND:
            cwnd = u32(cwnd + ack.rs_acked_sacked)
        return max(cwnd, self.cwnd_min_target)

    # ---- PROBE_BW --------------------------------------------------------------------------------------------------

    def update_cycle_phase(self, ack: Ack) -> None:
        """Cycle the gain; at a policer's rate there is nothing to probe [Linux412] bbr_update_cycle_phase."""
        if self.mode == PROBE_BW and self.lt_use_bw == 0 and self.is_next_cycle_phase(ack):
            self.advance_cycle_phase(ack)

    def is_next_cycle_phase(self, ack: Ack) -> bool:
        """Whether this phase has lasted a min_rtt, or drained its queue [Linux412] bbr_is_next_cycle_phase."""
        is_full_length = self.phase_length_us(ack) > self.min_rtt_us
        if self.pacing_gain == GAIN_UNIT:
            return is_full_length
        in_flight = self.in_flight_at_departure(ack, ack.rs_prior_in_flight)
        bw = self.max_bw()
        if self.pacing_gain > GAIN_UNIT:
            # Probing needs the time and the queue; losses say that the path does not hold more.
            return is_full_length and (ack.rs_losses != 0 or in_flight >= self.inflight(ack, bw, self.pacing_gain))
        return is_full_length or in_flight <= self.inflight(ack, bw, GAIN_UNIT)

    def phase_length_us(self, ack: Ack) -> int:
        """Time since the phase began [Linux412] skb_mstamp_us_delta.

        The us stamps are 32 bits: jiffies step in where their difference is not positive or too long to trust.
        """
        elapsed = s32(ack.delivered_mstamp_us - self.cycle_mstamp)
        ticks = u32(self.delivered_jiffies(ack) - self.cycle_jiffies)
        if elapsed <= 0 or ticks >= 0x7FFFFFFF // (USEC_PER_SEC // self.hz):
            elapsed = jiffies_to_usecs(ticks, self.hz)
        return u32(elapsed)

    def in_flight_at_departure(self, ack: Ack, in_flight: int) -> int:
        """What counts as in flight; later releases subtract what pacing still holds back."""
        return in_flight

    def advance_cycle_phase(self, ack: Ack) -> None:
        """Enter the next phase [Linux412] bbr_advance_cycle_phase."""
        self.cycle_idx = (self.cycle_idx + 1) & (CYCLE_LEN - 1)
        self.stamp_cycle(ack)
        self.pacing_gain = self.phase_pacing_gain()

    def phase_pacing_gain(self) -> int:
        """Ask for more for one min_rtt, give back what that queued in the next, cruise for six; << 8."""
        if self.cycle_idx > 1:
            return GAIN_UNIT
        return in_256ths(self.up_pacing_gain if self.cycle_idx == 0 else self.down_pacing_gain)

    def stamp_cycle(self, ack: Ack) -> None:
        """Note when the phase began, in both clocks."""
        self.cycle_mstamp = u32(ack.delivered_mstamp_us)
        self.cycle_jiffies = self.delivered_jiffies(ack)

    # ---- modes -----------------------------------------------------------------------------------------------------

    def enter_startup(self, ack: Ack) -> None:
        """[Linux412] bbr_reset_startup_mode."""
        self.mode = STARTUP
        self.pacing_gain = in_256ths(self.high_gain)
        self.cwnd_gain = in_256ths(self.high_gain)

    def enter_drain(self, ack: Ack) -> None:
        """[Linux412] bbr_check_drain."""
        self.mode = DRAIN
        self.pacing_gain = in_256ths(self.drain_gain)
        self.cwnd_gain = in_256ths(self.high_gain)  # the queue drains by pacing, not by starving the window

    def enter_probe_bw(self, ack: Ack) -> None:
        """Begin the gain cycle at a random phase [Linux412] bbr_reset_probe_bw_mode."""
        self.mode = PROBE_BW
        self.pacing_gain = GAIN_UNIT
        self.cwnd_gain = in_256ths(self.bbr_cwnd_gain)
        self.cycle_idx = CYCLE_LEN - 1 - self.random_below(ack, CYCLE_RAND)
        self.advance_cycle_phase(ack)

    def enter_probe_rtt(self, ack: Ack) -> None:
        """[Linux412] bbr_update_min_rtt."""
        self.mode = PROBE_RTT
        self.pacing_gain = GAIN_UNIT
        self.cwnd_gain = GAIN_UNIT

    def leave_probe_rtt(self, ack: Ack) -> None:
        """Return to PROBE_BW, or to STARTUP if the pipe was never full [Linux412] bbr_reset_mode."""
        if self.full_bw_reached == 0:
            self.enter_startup(ack)
        else:
            self.enter_probe_bw(ack)

    def check_full_bw_reached(self, ack: Ack) -> None:
        """Count rounds without 25 % more bw: three mean the pipe is full [Linux412] bbr_check_full_bw_reached.

        Three, because the receive window needs one round to grow, one to be filled and one to show.
        """
        if self.full_bw_reached != 0 or self.round_start == 0 or ack.rs_is_app_limited != 0:
            return
        bw = self.max_bw()
        if bw >= (self.full_bw * in_256ths(self.full_bw_thresh)) >> GAIN_SCALE:
            self.full_bw = bw
            self.full_bw_cnt = 0
            return
        self.full_bw_cnt = self.full_bw_cnt + 1
        if self.full_bw_cnt >= self.bbr_full_bw_cnt:
            self.full_bw_reached = 1

    def check_drain(self, ack: Ack) -> None:
        """Leave STARTUP when the pipe is full, DRAIN when the queue is gone [Linux412] bbr_check_drain."""
        if self.mode == STARTUP and self.full_bw_reached != 0:
            self.enter_drain(ack)
        if self.mode == DRAIN:
            in_flight = self.in_flight_at_departure(ack, self.packets_in_flight(ack))
            if in_flight <= self.inflight(ack, self.max_bw(), GAIN_UNIT):
                self.enter_probe_bw(ack)

    # ---- min_rtt and PROBE_RTT -------------------------------------------------------------------------------------

    def update_min_rtt(self, ack: Ack) -> None:
        """Keep the minimum RTT of 10 s, and dip to 4 packets when none renewed it [Linux412] bbr_update_min_rtt."""
        expired = before(self.min_rtt_stamp + self.min_rtt_win_sec * self.hz, ack.jiffies)
        if self.takes_rtt(ack, expired):
            self.min_rtt_us = u32(ack.rs_rtt_us)
            self.min_rtt_stamp = ack.jiffies
        if expired and self.idle_restart == 0 and self.mode != PROBE_RTT:
            # Saved after the mode has changed, so as the larger of cwnd and the last good one.
            self.enter_probe_rtt(ack)
            self.save_cwnd()
            self.probe_rtt_done_stamp = 0
        if self.mode == PROBE_RTT:
            self.run_probe_rtt(ack)
        self.end_idle_restart(ack)

    def takes_rtt(self, ack: Ack, expired: bool) -> bool:
        """Whether this RTT becomes min_rtt; an equal one renews it, so a steady path never dips."""
        return ack.rs_rtt_us >= 0 and (ack.rs_rtt_us <= self.min_rtt_us or expired)

    def run_probe_rtt(self, ack: Ack) -> None:
        """Time 200 ms and one round from when 4 packets are left [Linux412] bbr_update_min_rtt."""
        # Delivery rates of this mode say nothing about the path: have them marked app-limited.
        self.app_limited = u32(ack.delivered + self.packets_in_flight(ack))
        if self.app_limited == 0:
            self.app_limited = 1
        if self.probe_rtt_done_stamp == 0:
            if self.packets_in_flight(ack) <= self.cwnd_min_target:
                self.probe_rtt_done_stamp = u32(ack.jiffies + msecs_to_jiffies(self.probe_rtt_mode_ms, self.hz))
                self.probe_rtt_round_done = 0
                self.next_rtt_delivered = ack.delivered
            return
        if self.round_start != 0:
            self.probe_rtt_round_done = 1
        if self.probe_rtt_round_done != 0:
            self.check_probe_rtt_done(ack)

    def check_probe_rtt_done(self, ack: Ack) -> None:
        """Leave PROBE_RTT once its time is up; cwnd returns with the next ACK."""
        if before(self.probe_rtt_done_stamp, ack.jiffies):
            self.min_rtt_stamp = ack.jiffies
            self.restore_cwnd = 1
            self.leave_probe_rtt(ack)

    def end_idle_restart(self, ack: Ack) -> None:
        """Any ACK ends it."""
        self.idle_restart = 0
