"""BBRv2+ as released (yangfurong/BBRv2plus), a BBRv2 that lets delay guide its probing.

Model:  before probing with 1.25 it *tries* with 1.1 for a round; only if the smoothed RTT did not grow does it go UP.
        The try is cheap, so it comes every 8..11 rounds instead of every 2..3 s. When the RTT of a round exceeds the
        recent minimum by 10 % without our probing, bandwidth has dropped: the old maximum is forgotten at once.

        PROBE_BW:
                                             +--(min RTT grew < 2 %)--+
                                             v                        |
        REFILL --(1 round)--> PRE_UP 1.1 -> GUARD 1.0 --(srtt ok)--> UP 1.25 --(1.25 BDP)--> POST_UP 1.0
           ^                                 | (srtt grew > 2 %)     | (loss, or at inflight_hi)  | (RTT grew)
           |                                 v                       v                            |
           +--(8..11 rounds)-- CRUISE <-- DOWN_SLIGHTLY 0.9       DOWN 0.75 <---------------------+
                                 ^------------(flight <= BDP)--------+

        Two modes: when the least RTT of CRUISE stayed 10 % too high twice in a row, a loss-based flow is filling the
        queue, and the flow restarts from STARTUP as BBRv2; four cruises within 5 % bring BBRv2+ back.
        BDP compensation: when jitter (mdev) exceeded 0.4 min_rtt in the last 4 rounds, cwnd grows by 2 * bw * jitter.

Where the paper says something else, `bbr2plus_paper` follows the paper.

Quirks of the release, kept:

* the loss threshold stays at BBRv2's 2 % (the paper evaluates 20 %);
* `last_round_srtt` keeps the first RTT sample of the connection: the routine that would move it on is skipped whenever
  a round starts (short-circuit ||), so GUARD compares with that first RTT;
* `ever_measured_mrtt` follows the latest RTT (the condition `rtt_cnt % 1500` is true in all but every 1500th round), so
  the margins of falling back scale with the current RTT;
* the margin of GUARD and POST_UP is 2 %, but at most 2000 us;
* POST_UP compares the round before last, which holds the minimum of UP;
* `probe_wait_round` counts rounds of CRUISE only; the filter moves on in CRUISE and DOWN, or after 25 rounds, and no
  longer at the end of each probe;
* compensation is added after quantisation and scales max_bw, not bw, but inflight_lo/hi still cap it; its factor is
  2.885 until the first DRAIN ends;
* falling back sets mode STARTUP and then, in the same call, phase CRUISE; a fast-path ACK skips the delay tracking;
* a timeout sets inflight_lo to prior_cwnd alone, as v2alpha did in 2019.

Sources: [BBRv2plus] github.com/yangfurong/BBRv2plus, tcp_bbr2plus.c, on v2alpha of 2019-11-22; [Yang22] section 4.
Differs from bbr2 in: the phases and their gains, when the bandwidth filter moves on, the wait before a probe, the two
modes, the compensation of cwnd.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param, ints
from cctrace.cc.bbr2 import BBR2, BW_PROBE_RAND_ROUNDS
from cctrace.cc.bbr2_model import (
    BBR_SCALE,
    BBR_UNIT,
    BW_SCALE,
    CRUISE,
    DOWN,
    DOWN_SLIGHTLY,
    GUARD,
    POST_UP,
    PRE_UP,
    PROBE_BW,
    STARTUP,
    UNSET,
    in_256ths,
)
from cctrace.cc.cmath import u32, u64, u64_shr
from cctrace.cc.filters import reset_filter, running_max, running_min

RC_MIN_RTT_WIN = 4  # rounds
JITTER_WIN = 4  # rounds
JITTER_FACTOR = 2 * BBR_UNIT  # compensation as a multiple of the jitter
JITTER_FACTOR_STARTUP = 739  # /256, until the first DRAIN ends


class BBR2Plus(BBR2):
    """BBRv2+, decision for decision as its authors' module; see the module's docstring.

    Parameters are the release's module parameters; fractions and gains are plain numbers (0.02 is 2 %).
    """

    params = BBR2.params | {
        "pre_up_pacing_gain": Param(1.1, 0.0, 1023 / 256, "pacing gain of the try"),
        "down_slightly_pacing_gain": Param(0.9, 0.0, 1023 / 256, "pacing gain that drains a failed try"),
        "probe_cycle_base": Param(8, 0, 1024, "shortest wait for a try, rounds of CRUISE"),
        "probe_cycle_random": Param(4, 1, 1024, "random addition to that wait, rounds (exclusive)"),
        "preup_rtt_thresh": Param(0.02, 0.0, 0.2, "growth of srtt that makes a try fail"),
        "probe_again_thresh": Param(0.02, 0.0, 2.0, "growth of the round's least RTT that ends probing"),
        "rtt_error_us": Param(2000, 0, 10000, "most that these two allow, us"),
        "advance_rtt_thresh": Param(1.1, 1.0, 4.0, "round's least RTT over the recent one: bandwidth has dropped"),
        "advance_rounds": Param(25, 0, 200, "rounds after which the bandwidth filter moves on anyway"),
        "rtt_comp_on": Param(1, 0, 1, "compensate the BDP for jitter"),
        "jitter_thresh": Param(0.4, 0.0, 1.0, "jitter that calls for compensation, min_rtt (mu)"),
        "switch_to_bbr2_thresh": Param(2, 0, 20, "cruises with a queue before falling back; 0 never (eta 1)"),
        "switch_to_bbr2p_thresh": Param(4, 0, 20, "cruises without before returning (eta 2)"),
        "switch_rtt_high": Param(0.1, 0.0, 5.0, "RTT excess that counts as a queue (lambda 1 - 1)"),
        "switch_rtt_low": Param(0.05, 0.0, 5.0, "RTT excess that counts as none (lambda 2 - 1)"),
    }
    probe_draws = (BW_PROBE_RAND_ROUNDS, "probe_cycle_random", 0)
    golden_names = {
        "s_p_rc_min_rtt": "rc_min_rtt_v[0]",
        "s_p_rc_min_rtt1": "rc_min_rtt_v[1]",
        "s_p_rc_min_rtt2": "rc_min_rtt_v[2]",
        "s_p_max_jitter": "max_jitter_v[0]",
        "s_p_max_jitter1": "max_jitter_v[1]",
        "s_p_max_jitter2": "max_jitter_v[2]",
        "s_p_ever_mrtt": "ever_measured_mrtt",
        "s_p_last_round_srtt": "last_round_srtt_us",
        "s_p_curr_round_srtt": "curr_round_srtt_us",
        "s_p_last_round_min_rtt": "last_round_min_rtt_us",
        "s_p_curr_round_min_rtt": "curr_round_min_rtt_us",
    }
    states = (*BBR2.states, "PRE_UP", "GUARD", "POST_UP", "DOWN_SLIGHTLY")
    transitions = BBR2.transitions | {
        ("PROBE_BW", "STARTUP"): "fallen back to BBRv2: 2 cruises with RTT 10 % too high",
        ("REFILL", "UP"): "one round, as BBRv2",
        ("REFILL", "PRE_UP"): "one round",
        ("PRE_UP", "GUARD"): "one round",
        ("GUARD", "UP"): "one round in which RTT grew less than 2 %",
        ("GUARD", "DOWN_SLIGHTLY"): "one round in which RTT grew more",
        ("UP", "POST_UP"): "in flight 1.25 BDP",
        ("UP", "DOWN"): "in flight back at inflight_hi, or too much loss; as BBRv2 also in flight 1.25 BDP",
        ("POST_UP", "UP"): "one round, RTT grew less than 2 % while probing",
        ("POST_UP", "DOWN"): "one round, RTT grew more",
        ("DOWN_SLIGHTLY", "CRUISE"): "in flight <= BDP and <= inflight_hi less headroom",
        ("DOWN_SLIGHTLY", "REFILL"): "the wait is over, or the cautious probe before did no harm",
    }

    fast_conv_on: bool = False  # as BBRv2+, not fallen back to BBRv2
    rc_min_rtt_v = ints(3)  # least RTT of the last rounds, by round
    rc_min_rtt_t = ints(3)
    max_jitter_v = ints(3)
    max_jitter_t = ints(3)
    ever_measured_mrtt: int = 0
    rtt_comp_thresh: int = 0  # factor of the compensation now, 256ths
    last_round_srtt_us: int = 0
    curr_round_srtt_us: int = 0
    last_round_min_rtt_us: int = 0
    curr_round_min_rtt_us: int = 0
    mrtt_in_cruise: int = 0
    last_mrtt_in_cruise: int = 0
    cruise_round_of_mrtt_change: int = 0
    srtt_rnd_cnt: int = 0
    mrtt_before_probe: int = 0
    rtt_cnt: int = 0  # rounds
    probe_wait_round: int = 0
    rounds_since_adv: int = 0

    def init(self, ack: Ack) -> None:
        """[BBRv2plus] bbr2_init, bbr2plus_init."""
        super().init(ack)
        self.fast_conv_on = True
        self.rtt_comp_thresh = JITTER_FACTOR_STARTUP
        reset_filter(self.rc_min_rtt_v, self.rc_min_rtt_t, 0, UNSET)
        reset_filter(self.max_jitter_v, self.max_jitter_t, 0, 0)
        self.last_round_srtt_us = UNSET
        self.curr_round_srtt_us = UNSET
        self.last_round_min_rtt_us = UNSET
        self.curr_round_min_rtt_us = UNSET
        self.mrtt_before_probe = UNSET
        self.mrtt_in_cruise = UNSET  # last_mrtt_in_cruise stays 0
        self.ever_measured_mrtt = UNSET

    # --- delay ------------------------------------------------------------------------------------------------------
    def update_round(self, ack: Ack) -> None:
        """Count rounds and note the RTTs that the two modes compare [BBRv2plus] bbr2_main."""
        super().update_round(ack)
        cruising = self.mode == PROBE_BW and self.cycle_idx == CRUISE
        if self.round_start:
            self.rtt_cnt = u32(self.rtt_cnt + 1)
            self.rounds_since_adv = u32(self.rounds_since_adv + 1)
            if cruising:
                self.probe_wait_round -= 1
        if ack.rs_rtt_us > 0:
            if cruising:
                self.mrtt_in_cruise = min(self.mrtt_in_cruise, ack.rs_rtt_us)
            if self.rtt_cnt % 1500 or ack.rs_rtt_us < self.ever_measured_mrtt:
                self.ever_measured_mrtt = u32(ack.rs_rtt_us)

    def update_control(self, ack: Ack) -> None:
        """Track the rounds' RTTs, then set the controls [BBRv2plus] bbr2_main."""
        if self.fast_conv_on and ack.rs_rtt_us > 0:
            self.update_round_rtts(u32(ack.rs_rtt_us))
        super().update_control(ack)

    def update_round_rtts(self, rtt_us: int) -> None:
        """Least and smoothed RTT of this round and of the last [BBRv2plus] bbr2p_update_rtt.

        The smoothed RTT never moves on to the next round; see the quirks in the module's docstring.
        """
        if self.curr_round_min_rtt_us == UNSET:
            self.curr_round_min_rtt_us = rtt_us
            self.last_round_min_rtt_us = rtt_us
            running_min(self.rc_min_rtt_v, self.rc_min_rtt_t, RC_MIN_RTT_WIN, self.rtt_cnt, rtt_us)
            self.curr_round_srtt_us = rtt_us
            self.last_round_srtt_us = rtt_us
            if self.round_start:
                self.srtt_rnd_cnt += 1
        elif self.round_start:
            round_min = self.curr_round_min_rtt_us
            running_min(self.rc_min_rtt_v, self.rc_min_rtt_t, RC_MIN_RTT_WIN, self.rtt_cnt, round_min)
            self.last_round_min_rtt_us = round_min
            self.curr_round_min_rtt_us = rtt_us
            self.srtt_rnd_cnt = 0
        else:
            self.curr_round_min_rtt_us = min(self.curr_round_min_rtt_us, rtt_us)
            self.curr_round_srtt_us = u32(7 * self.curr_round_srtt_us + rtt_us) >> 3

    # --- bandwidth filter -------------------------------------------------------------------------------------------
    def take_bw_sample(self, ack: Ack) -> None:
        """A new maximum postpones the forced advance [BBRv2plus] bbr2_update_congestion_signals."""
        super().take_bw_sample(ack)
        if self.sample_bw >= self.max_bw():
            self.rounds_since_adv = 0

    def end_bw_cycle(self) -> None:
        """Only as BBRv2 does the end of a probe advance the filter [BBRv2plus] bbr2_adapt_upper_bounds."""
        if not self.fast_conv_on:
            super().end_bw_cycle()

    def try_to_advance_bw_filter(self) -> None:
        """Algorithm 1 [Yang22]: forget the old maximum when RTT grew [BBRv2plus] bbr2p_try_to_advance_bw_filter."""
        thresh = u32((self.rc_min_rtt_v[0] * in_256ths(self.advance_rtt_thresh)) >> BBR_SCALE)
        grew = self.curr_round_min_rtt_us != UNSET and self.curr_round_min_rtt_us > thresh
        if grew or self.rounds_since_adv >= self.advance_rounds:
            self.advance_bw_hi_filter()
            self.rounds_since_adv = 0

    # --- PROBE_BW ---------------------------------------------------------------------------------------------------
    def is_probing_bandwidth(self) -> bool:
        """All phases but CRUISE and the two that drain [BBRv2plus] bbr2_is_probing_bandwidth."""
        draining = self.cycle_idx == DOWN or self.cycle_idx == DOWN_SLIGHTLY
        return self.mode == STARTUP or (self.mode == PROBE_BW and not draining and self.cycle_idx != CRUISE)

    def phase_pacing_gain(self) -> int:
        """[BBRv2plus] bbr_pacing_gain[]."""
        if self.cycle_idx == PRE_UP:
            return in_256ths(self.pre_up_pacing_gain)
        if self.cycle_idx == DOWN_SLIGHTLY:
            return in_256ths(self.down_slightly_pacing_gain)
        return super().phase_pacing_gain()

    def run_phase(self, ack: Ack, inflight: int) -> None:
        """The three phases that wait for a round [BBRv2plus] bbr2_update_cycle_phase."""
        if self.cycle_idx == PRE_UP or self.cycle_idx == GUARD or self.cycle_idx == POST_UP:
            if self.round_start:
                self.end_round_phase(ack)
        else:
            super().run_phase(ack, inflight)

    def end_round_phase(self, ack: Ack) -> None:
        """Judge a try or a probe by the RTTs of its round [BBRv2plus] bbr2_update_cycle_phase."""
        if self.cycle_idx == PRE_UP:
            self.set_cycle_idx(GUARD)
        elif self.cycle_idx == GUARD and not self.is_try_ok():
            self.start_bw_probe_down_slightly(ack)
        elif self.cycle_idx == POST_UP and not self.is_probe_ok():
            self.start_bw_probe_down(ack)
        else:
            self.bw_probe_samples = True
            self.start_bw_probe_up(ack)

    def with_margin(self, rtt_us: int, fraction: float) -> int:
        """An RTT and its tolerance, u32 [BBRv2plus] bbr2p_go_probe_up."""
        return u32(rtt_us + min(u32(rtt_us * in_256ths(fraction)) >> BBR_SCALE, self.rtt_error_us))

    def is_try_ok(self) -> bool:
        """Whether srtt has not grown over the first RTT [BBRv2plus] bbr2p_go_probe_up."""
        return self.curr_round_srtt_us <= self.with_margin(self.last_round_srtt_us, self.preup_rtt_thresh)

    def is_probe_ok(self) -> bool:
        """Whether UP has built no queue, so that there may be more [BBRv2plus] bbr2_update_cycle_phase, POST_UP."""
        return self.last_round_min_rtt_us <= self.with_margin(self.mrtt_before_probe, self.probe_again_thresh)

    def cruise(self, ack: Ack) -> None:
        """[BBRv2plus] bbr2_update_cycle_phase, CRUISE."""
        if self.fast_conv_on and self.round_start:
            self.try_to_advance_bw_filter()
        super().cruise(ack)

    def refill(self, ack: Ack) -> None:
        """Try before probing [BBRv2plus] bbr2_update_cycle_phase, REFILL."""
        if not self.fast_conv_on:
            super().refill(ack)
        elif self.round_start:
            self.set_cycle_idx(PRE_UP)

    def probe_up(self, ack: Ack, inflight: int) -> None:
        """Having filled 1.25 BDP, wait for the round that shows its effect [BBRv2plus] same, UP."""
        if self.fast_conv_on and not self.is_probe_risky(inflight):
            if self.is_probe_done(ack, inflight):
                self.start_bw_probe_post_up(ack)
        else:
            super().probe_up(ack, inflight)

    def probe_down(self, ack: Ack, inflight: int) -> None:
        """[BBRv2plus] bbr2_update_cycle_phase, DOWN and DOWN_SLIGHTLY."""
        if self.fast_conv_on and self.round_start:
            self.try_to_advance_bw_filter()
        super().probe_down(ack, inflight)

    def is_probe_wait_over(self, ack: Ack) -> bool:
        """[BBRv2plus] bbr2p_should_probe_more."""
        return self.probe_wait_round <= 0 if self.fast_conv_on else super().is_probe_wait_over(ack)

    def pick_probe_wait(self, ack: Ack) -> None:
        """Three draws; each mode uses two [BBRv2plus] bbr2_pick_probe_wait."""
        self.rounds_since_probe = self.random_below(ack, BW_PROBE_RAND_ROUNDS)
        self.probe_wait_round = self.probe_cycle_base + self.random_below(ack, self.probe_cycle_random)
        self.probe_wait_us = self.bw_probe_base_us + self.random_below(ack, self.bw_probe_rand_us)

    def start_bw_probe_up(self, ack: Ack) -> None:
        """[BBRv2plus] bbr2_start_bw_probe_up."""
        super().start_bw_probe_up(ack)
        self.mrtt_before_probe = self.curr_round_min_rtt_us

    def start_bw_probe_post_up(self, ack: Ack) -> None:
        """[BBRv2plus] bbr2p_start_bw_probe_post_up."""
        self.next_rtt_delivered = ack.delivered
        self.set_cycle_idx(POST_UP)

    def start_bw_probe_down_slightly(self, ack: Ack) -> None:
        """[BBRv2plus] bbr2p_start_bw_probe_down_slightly."""
        self.begin_cycle(ack)
        self.set_cycle_idx(DOWN_SLIGHTLY)

    def start_bw_probe_cruise(self, ack: Ack) -> None:
        """Note the RTTs of the cruise before, then cruise [BBRv2plus] bbr2_start_bw_probe_cruise."""
        self.begin_cruise()
        super().start_bw_probe_cruise(ack)

    def begin_cruise(self) -> None:
        """The last cruise is over: choose the mode by it [BBRv2plus] bbr2_start_bw_probe_cruise."""
        known = self.mrtt_in_cruise != UNSET and self.last_mrtt_in_cruise != UNSET
        if self.switch_to_bbr2_thresh > 0 and known:
            self.choose_mode()
        self.last_mrtt_in_cruise = self.mrtt_in_cruise
        self.mrtt_in_cruise = UNSET

    # --- two modes --------------------------------------------------------------------------------------------------
    def choose_mode(self) -> None:
        """Algorithm 2 [Yang22]: fall back to BBRv2 or return [BBRv2plus] bbr2_start_bw_probe_cruise."""
        if self.fast_conv_on:
            margin = (self.ever_measured_mrtt * in_256ths(self.switch_rtt_high)) >> BBR_SCALE
            thresh = min(u32(self.last_mrtt_in_cruise + margin), u32(self.min_rtt_us + margin))
            if self.count_cruise(self.mrtt_in_cruise > thresh) >= self.switch_to_bbr2_thresh:
                self.fall_back()
        else:
            margin = (self.ever_measured_mrtt * in_256ths(self.switch_rtt_low)) >> BBR_SCALE
            thresh = u32(self.min_rtt_us + margin)
            if self.count_cruise(self.mrtt_in_cruise <= thresh) >= self.switch_to_bbr2p_thresh:
                self.fast_conv_on = True
                self.cruise_round_of_mrtt_change = 0

    def count_cruise(self, suggests_change: bool) -> int:
        """Cruises in a row that suggest changing the mode."""
        self.cruise_round_of_mrtt_change = self.cruise_round_of_mrtt_change + 1 if suggests_change else 0
        return self.cruise_round_of_mrtt_change

    def fall_back(self) -> None:
        """Become BBRv2 and regain by STARTUP what was yielded [BBRv2plus] bbr2_start_bw_probe_cruise."""
        self.fast_conv_on = False
        self.cruise_round_of_mrtt_change = 0
        self.mrtt_in_cruise = UNSET
        self.mode = STARTUP
        self.full_bw_cnt = 0
        self.full_bw_reached = False
        self.full_bw = 0

    # --- compensation -----------------------------------------------------------------------------------------------
    def enter_probe_bw(self, ack: Ack) -> None:
        """[BBRv2plus] bbr2_check_drain."""
        self.rtt_comp_thresh = JITTER_FACTOR
        super().enter_probe_bw(ack)

    def find_target_cwnd(self, ack: Ack, bw: int, gain: int) -> int:
        """Add what jitter hides of the BDP [BBRv2plus] bbr_set_cwnd."""
        target = self.model_target_cwnd(ack, bw, gain)
        return u32(target + self.compensate_cwnd(ack)) if self.rtt_comp_on else target

    def compensate_cwnd(self, ack: Ack) -> int:
        """Algorithm 3 [Yang22], as a window: segments that arrive during the jitter [BBRv2plus] of the same name."""
        if self.rtt_cnt > 0:
            running_max(self.max_jitter_v, self.max_jitter_t, JITTER_WIN, self.rtt_cnt, ack.mdev_us4 >> 2)
        jitter_us = self.max_jitter_v[0]
        if jitter_us <= u32((self.min_rtt_us * in_256ths(self.jitter_thresh)) >> BBR_SCALE):
            return 0
        extra_us = u32(jitter_us * self.rtt_comp_thresh) >> BBR_SCALE
        return u32(u64_shr(u64(self.max_bw() * extra_us), BW_SCALE))

    # --- timeouts ---------------------------------------------------------------------------------------------------
    def cwnd_before_timeout(self) -> int:
        """[BBRv2plus] bbr2_set_state."""
        return self.prior_cwnd
