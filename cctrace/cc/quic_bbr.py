"""BBR as oBBR's authors wrote it for nginx-quic: the base of `obbr`, `bbr_s` and `b3r`.

Model:  every ACK updates  bw = max(delivery rate, 10 rounds)   and  min_rtt = min(RTT, 10 s);
        pace at pacing_gain * bw,  keep at most cwnd_gain * bw * min_rtt + 3 bursts in flight.

            STARTUP --(bw plateau, 3 rounds)--> DRAIN --(inflight <= BDP)--> PROBE_BW
               ^                                                              |    ^
               |                                            (min_rtt 10 s old) v    | (min(2 srtt, 200 ms) at 4 packets)
               +------------------(pipe never filled)-------------------- PROBE_RTT

PROBE_RTT can be entered from every other state. PROBE_BW walks through eight gains of one min_rtt each: 1.25, 0.75,
then six times 1.

It is BBR version 1 in outline, but not Linux BBR: the clock ticks in milliseconds, gains are single-precision floats,
sizes are bytes, the first window is 32 packets, PROBE_RTT lasts at most 200 ms from its entry (Linux waits until
in-flight data have fallen to 4 packets), min_rtt is refreshed by an *equal* sample, there is no pacing margin, no
policer detection (lt_bw) and no allowance for aggregated ACKs.

Quirks, kept because decisions depend on them:

* `prior_cwnd` is saved after the mode became PROBE_RTT, so it never shrinks there: the window restored afterwards can
  be a larger one from long before.
* an allowance for RTT variation and one for aggregated ACKs are computed and then multiplied by zero. Only the 5-round
  maximum of the RTT (`max_rtt_v`) is left of them; nothing reads it.
* the bookkeeping of oBBR's bandwidth-drop detector (`bw_down_cnt`, `max_down`, `change_sc`) runs in every variant;
  only `obbr` reads it.
* recovery begins with a round of packet conservation, as in Linux, but each further loss *extends* it (`on_lost` moves
  the moment after which a packet must have been sent to end it).

Sources: [ngx_bbr] bpq233/oBBR nginx-quic/src/event/quic/ngx_bbr.c, commit 3ae3fc9 (`-C BBR`); [Cardwell16].
Differs from its parent in everything: it is written afresh (the Linux family starts at `bbr2016`);
`quic_bbr_common` has what the stack's BBRv2 does alike.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param, ints
from cctrace.cc.bbr1_model import DRAIN, PROBE_BW, PROBE_RTT, STARTUP
from cctrace.cc.cmath import f32, u32, u64_lt
from cctrace.cc.filters import running_max
from cctrace.cc.quic import INITIAL_WINDOW, MIN_WINDOW, MSEC_PER_SEC, MSS, RTT_UNKNOWN, delivery_rate, float_to_u32
from cctrace.cc.quic_bbr_common import IN_RECOVERY, NOT_IN_RECOVERY, QuicBBRCommon

MAX_RTT_WINDOW_ROUNDS = 5
MAX_DOWN_SAMPLES = 30

# Burst sizes by pacing rate, bytes/s [ngx_bbr] ngx_bbr_quantum.
SLOW_RATE = 1.2 * 1024 * 1024 / 8
MEDIUM_RATE = 24 * 1024 * 1024 // 8
MAX_BURST = 64 * 1024

# Columns of the family's golden vectors that belong to one variant.
OBBR_COLUMNS = ("s_up_rtt", "g_cc", "g_score", "g_score1", "g_score2", "g_score3", "g_score4", "g_score_time",
                "g_bw_back", "g_re_timer", "g_first_sent", "g_first_delivered")  # fmt: skip
B3R_COLUMNS = ("g_b3r_gum", "g_b3r_timer", "f32_b3r_gain0")
BBR_S_COLUMNS = ("g_bbrs_tot", "g_bbrs_flag")


class QuicBBR(QuicBBRCommon):
    """BBR of oBBR's nginx-quic (`-C BBR`)."""

    # Named as in `bbr2016`, whose constants these are, in single precision.
    params = QuicBBRCommon.params | {
        "high_gain": Param(2.885, 1.0, 10.0, "gains of STARTUP: 2/ln 2 is the least that doubles the rate"),
        "drain_gain": Param(1.0 / 2.885, 0.01, 1.0, "pacing gain of DRAIN: empties in a round what STARTUP queued"),
        "cwnd_gain": Param(2.0, 0.01, 10.0, "window of PROBE_BW, BDP: one for the path, one for ACKs", "bbr_cwnd_gain"),
        "up_pacing_gain": Param(1.25, 1.0, 10.0, "pacing gain of the first phase of PROBE_BW: asks for more"),
        "down_pacing_gain": Param(0.75, 0.01, 1.0, "of the second: gives back what that queued; then six of 1"),
        "bw_rtts": Param(10, 1, 1000, "window of the bandwidth filter, rounds: a whole gain cycle and two"),
        "min_rtt_win_sec": Param(10, 1, 86_400, "window of min_rtt, after which PROBE_RTT comes, s"),
        "probe_rtt_mode_ms": Param(200, 0, 60_000, "longest stay in PROBE_RTT, ms"),
    }

    states = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT")
    transitions = {
        ("STARTUP", "DRAIN"): "bandwidth grew by less than 25 % in 3 rounds",
        ("STARTUP", "PROBE_BW"): "the same, with no more than the BDP in flight",
        ("STARTUP", "PROBE_RTT"): "min_rtt is 10 s old",
        ("DRAIN", "PROBE_BW"): "in flight at most the BDP",
        ("DRAIN", "PROBE_RTT"): "min_rtt is 10 s old",
        ("PROBE_BW", "PROBE_RTT"): "min_rtt is 10 s old",
        ("PROBE_RTT", "PROBE_BW"): "time at 4 packets over, the pipe was full before",
        ("PROBE_RTT", "STARTUP"): "time at 4 packets over, the pipe was never full",
    }
    golden_names = {
        "s_bwf0": "bw_v[0]",
        "s_bwf1": "bw_v[1]",
        "s_bwf2": "bw_v[2]",
        "s_bwf0_t": "bw_t[0]",
        "s_bwf1_t": "bw_t[1]",
        "s_bwf2_t": "bw_t[2]",
        "s_maxrtt0": "max_rtt_v[0]",
    }
    # One C file holds the whole family, so its vectors show the state of all; each of the others declares its own.
    golden_absent = (
        dict.fromkeys(OBBR_COLUMNS, "state of oBBR")
        | dict.fromkeys(B3R_COLUMNS, "state of B3R")
        | dict.fromkeys(BBR_S_COLUMNS, "state of BBR-S")
    )

    bw_v = ints(3)  # windowed maximum of the delivery rate, bytes/s
    bw_t = ints(3)  # ... and the rounds of its samples
    max_rtt_v = ints(3)  # windowed maximum of the RTT, ms (nothing reads it)
    max_rtt_t = ints(3)
    min_rtt_ms: int = 0
    last_cycle_start: int = 0  # ms
    just_enter_recovery: bool = False
    just_exit_recovery: bool = False
    packet_conservation: bool = False
    # Bookkeeping for oBBR.
    bw_down_cnt: int = 0  # consecutive samples below 0.75 bw
    max_down = ints(MAX_DOWN_SAMPLES)  # the last 30 samples of PROBE_BW, bytes/s
    bw_cnt: int = 0  # place of the next one
    change_sc: bool = False  # start a new monitor interval

    def init(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_init
        """Connection established."""
        self.min_rtt_ms = ack.smp_srtt_ms if ack.smp_srtt_ms else RTT_UNKNOWN
        self.min_rtt_stamp = ack.now_ms
        self.cwnd = INITIAL_WINDOW
        self.enter_startup()
        self.init_pacing_rate(ack.smp_srtt_ms)

    def on_ack(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_on_ack
        """Take in an ACK that gave a rate sample."""
        self.update_model(ack)
        self.update_recovery_mode(ack)
        self.set_pacing_rate(ack.smp_srtt_ms)
        self.set_cwnd(ack)

    def update_model(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_on_ack
        """Learn from the ACK, and change the mode."""
        self.update_bandwidth(ack)
        self.update_cycle_phase(ack)
        self.check_full_bw_reached(ack)
        self.check_drain(ack)
        self.update_min_rtt(ack)

    # -- model ---------------------------------------------------------------------------------------------------------
    def update_bandwidth(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_update_bandwidth
        """Count rounds and take the delivery-rate sample."""
        self.round_start = False
        if ack.smp_interval_ms == 0:
            return
        if self.next_round_delivered <= ack.smp_prior_delivered:
            self.next_round_delivered = u32(ack.smp_total_acked)
            self.round_cnt = u32(self.round_cnt + 1)
            self.round_start = True
            self.packet_conservation = False
        bw = delivery_rate(ack.smp_delivered, ack.smp_interval_ms)
        if not ack.smp_is_app_limited and self.mode == PROBE_BW:
            self.note_sample(bw)
        # An app-limited sample says how fast the application wrote, unless it exceeds the estimate.
        if not ack.smp_is_app_limited or bw >= self.max_bw():
            running_max(self.bw_v, self.bw_t, self.bw_rtts, self.round_cnt, bw)
        running_max(self.max_rtt_v, self.max_rtt_t, MAX_RTT_WINDOW_ROUNDS, self.round_cnt, u32(ack.smp_rtt_ms))

    def note_sample(self, bw: int) -> None:  # [ngx_bbr] ngx_bbr_update_bandwidth
        """Remember a PROBE_BW sample, and how many in a row fell short of the estimate."""
        self.max_down[self.bw_cnt] = bw
        self.bw_cnt = (self.bw_cnt + 1) % MAX_DOWN_SAMPLES
        self.bw_down_cnt = self.bw_down_cnt + 1 if bw < self.bw * 0.75 else 0

    def max_bw(self) -> int:  # [ngx_bbr] ngx_bbr_max_bw
        """Return the bandwidth estimate, bytes/s, and show it in `bw`."""
        self.bw = self.bw_v[0]
        return self.bw

    def update_cycle_phase(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_update_cycle_phase
        """Move to the next of the eight gains of PROBE_BW when its time has come."""
        if self.mode == PROBE_BW and self.is_next_cycle_phase(ack):
            self.cycle_idx = (self.cycle_idx + 1) % 8
            self.last_cycle_start = ack.smp_now
            self.pacing_gain = self.cycle_gain()

    def is_next_cycle_phase(self, ack: Ack) -> bool:  # [ngx_bbr] ngx_bbr_is_next_cycle_phase
        """Whether this phase lasted long enough, or reached its aim."""
        full_length = u64_lt(self.min_rtt_ms, ack.smp_now - self.last_cycle_start)
        if self.pacing_gain > f32(1.0):  # until the pipe is filled to the gain, or overflows
            return full_length and (ack.smp_loss != 0 or ack.smp_prior_inflight >= self.target_cwnd(self.pacing_gain))
        if self.pacing_gain < f32(1.0):  # no longer than it takes to drain the queue
            return full_length or ack.smp_prior_inflight <= self.target_cwnd(f32(1.0))
        return full_length

    def cycle_gain(self) -> f32:  # [ngx_bbr] ngx_bbr_get_pacing_gain
        """Return the pacing gain of this phase of PROBE_BW."""
        if self.cycle_idx == 0:
            return f32(self.up_pacing_gain)
        if self.cycle_idx == 1:
            return f32(self.down_pacing_gain)
        return f32(1.0)

    def check_drain(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_check_drain
        """Leave STARTUP for DRAIN, and DRAIN for PROBE_BW."""
        if self.mode == STARTUP and self.full_bw_reached:
            self.mode = DRAIN
            self.pacing_gain = f32(self.drain_gain)
            self.cwnd_gain = f32(self.high_gain)
        if self.mode == DRAIN and ack.smp_in_flight <= self.target_cwnd(f32(1.0)):
            self.enter_probe_bw(ack, ack.smp_now)

    def enter_startup(self) -> None:  # [ngx_bbr] ngx_bbr_enter_startup
        """Double the rate each round."""
        self.mode = STARTUP
        self.pacing_gain = f32(self.high_gain)
        self.cwnd_gain = f32(self.high_gain)

    def enter_probe_bw(self, ack: Ack, now_ms: int) -> None:  # [ngx_bbr] ngx_bbr_enter_probe_bw
        """Start the gain cycle in a random phase other than 0.75 (there is no queue of its own to drain)."""
        self.mode = PROBE_BW
        self.cwnd_gain = f32(self.bbr_cwnd_gain)
        phase = self.draw(ack) % 7
        self.cycle_idx = phase + 1 if phase else 0
        self.pacing_gain = self.cycle_gain()
        self.last_cycle_start = now_ms

    def update_min_rtt(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_update_min_rtt
        """Keep the minimum RTT of 10 s; when it has expired, stand aside to see it again."""
        expired = ack.smp_now > self.min_rtt_stamp + self.min_rtt_win_sec * MSEC_PER_SEC
        if ack.smp_rtt_ms <= self.min_rtt_ms or expired:
            self.min_rtt_ms = ack.smp_rtt_ms
            self.min_rtt_stamp = ack.smp_now
        if expired and self.mode != PROBE_RTT and not self.idle_restart:
            self.mode = PROBE_RTT
            self.pacing_gain = f32(1.0)
            self.cwnd_gain = f32(1.0)
            self.save_cwnd()  # quirk: after the mode changed, so it keeps an older, larger window
            self.probe_rtt_round_done_stamp = 0
        if self.mode == PROBE_RTT:
            self.stay_in_probe_rtt(ack)
        if ack.smp_delivered > 0:
            self.idle_restart = False

    def stay_in_probe_rtt(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_update_min_rtt
        """Wait until the time at 4 packets and one round have passed."""
        self.change_sc = True
        self.mark_app_limited(ack)
        if self.probe_rtt_round_done_stamp == 0:
            self.probe_rtt_round_done_stamp = ack.smp_now + min(2 * ack.smp_srtt_ms, self.probe_rtt_mode_ms)
            self.probe_rtt_round_done = False
            self.next_round_delivered = u32(ack.smp_total_acked)
            return
        if self.round_start:
            self.probe_rtt_round_done = True
        if self.probe_rtt_round_done:
            self.check_probe_rtt_done(ack, ack.smp_now, ack.smp_total_acked)

    def check_probe_rtt_done(
        self, ack: Ack, now_ms: int, total_acked: int
    ) -> None:  # [ngx_bbr] ngx_bbr_check_probe_rtt_done
        """Go back to work once the chosen moment has come."""
        if self.probe_rtt_round_done_stamp == 0 or now_ms < self.probe_rtt_round_done_stamp:
            return
        self.min_rtt_stamp = now_ms  # the next PROBE_RTT is 10 s away
        self.cwnd = max(self.cwnd, self.prior_cwnd)
        if self.full_bw_reached:
            self.enter_probe_bw(ack, now_ms)
        else:
            self.enter_startup()

    # -- recovery ------------------------------------------------------------------------------------------------------
    def on_lost(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_on_lost
        """Remember a loss; every loss moves the end of recovery, so that high random loss does not re-enter it."""
        self.save_cwnd()
        self.recovery_start_time = ack.now_ms

    def update_recovery_mode(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_update_recovery_mode
        """Enter recovery on the first ACK after a loss, leave it when a packet sent after the last loss is ACKed."""
        sent_before_loss = ack.smp_po_sent_time <= self.recovery_start_time
        if sent_before_loss and self.recovery_mode == NOT_IN_RECOVERY:
            self.just_enter_recovery = True
            self.recovery_mode = IN_RECOVERY
        elif not sent_before_loss and self.recovery_mode == IN_RECOVERY:
            self.recovery_mode = NOT_IN_RECOVERY
            self.just_exit_recovery = True
            self.recovery_start_time = 0

    def reset_cwnd(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_reset_cwnd
        """Persistent congestion: start over from 4 packets."""
        self.save_cwnd()
        self.cwnd = MIN_WINDOW
        if self.recovery_mode == IN_RECOVERY:
            self.recovery_mode = NOT_IN_RECOVERY
            self.packet_conservation = False
        self.recovery_start_time = 0

    # -- outputs -------------------------------------------------------------------------------------------------------
    def target_cwnd(self, gain: f32) -> int:  # [ngx_bbr] ngx_bbr_target_cwnd
        """Return `gain` times the BDP in bytes, at least 4 packets."""
        if self.min_rtt_ms == RTT_UNKNOWN:
            return INITIAL_WINDOW
        bdp = u32(max(self.min_rtt_ms, 1) * self.bw_v[0] // MSEC_PER_SEC)
        return max(float_to_u32(f32(gain * f32(bdp))), MIN_WINDOW)

    def burst(self) -> int:  # [ngx_bbr] ngx_bbr_quantum
        """Return the bytes that may be sent back to back."""
        if self.pacing_rate < SLOW_RATE:
            return MSS
        if self.pacing_rate < MEDIUM_RATE:
            return 2 * MSS
        return min(self.pacing_rate // MSEC_PER_SEC, MAX_BURST)

    def inflight_gain(self, ack: Ack) -> f32:  # [ngx_bbr] ngx_bbr_set_cwnd
        """Return the multiple of the BDP that may be in flight."""
        return self.cwnd_gain

    def set_cwnd(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_set_cwnd
        """Move the window towards its target by what was ACKed."""
        if ack.smp_acked != 0:
            target = u32(self.target_cwnd(self.inflight_gain(ack)) + 3 * self.burst())
            self.modulate_cwnd_for_recovery(ack)
            if not self.packet_conservation:
                grown = u32(self.cwnd + ack.smp_acked)
                if self.full_bw_reached:
                    self.cwnd = min(target, grown)
                elif self.cwnd < target or ack.cg_delivered < INITIAL_WINDOW:
                    self.cwnd = grown
            self.bound_cwnd(ack)
        if self.mode == PROBE_RTT:
            self.cwnd = min(self.cwnd, MIN_WINDOW)

    def modulate_cwnd_for_recovery(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_modulate_cwnd_for_recovery
        """Give up what was lost; in the first round of recovery send one packet per packet delivered."""
        if ack.smp_loss > 0:
            self.cwnd = max(self.cwnd - ack.smp_loss, MSS)
        if self.just_enter_recovery:
            self.just_enter_recovery = False
            self.packet_conservation = True
            self.next_round_delivered = u32(ack.smp_total_acked)
            self.cwnd = u32(ack.cg_in_flight + max(ack.smp_acked, MSS))
        elif self.just_exit_recovery:
            self.just_exit_recovery = False
            self.packet_conservation = False
            self.cwnd = max(self.cwnd, self.prior_cwnd)
        if self.packet_conservation:
            self.cwnd = u32(max(self.cwnd, ack.cg_in_flight + ack.smp_acked))

    def bound_cwnd(self, ack: Ack) -> None:  # [ngx_bbr] ngx_bbr_set_cwnd
        """Never fewer than 4 packets."""
        self.cwnd = max(self.cwnd, MIN_WINDOW)
