"""BBRv2+ as its paper describes it (Computer Networks 206, 2022), where the authors' module does something else.

Model and phases are those of `bbr2plus`; its PRE_UP and GUARD are the paper's ProbeTry, its POST_UP the paper's "end of
ProbeUp". With MinRTT the least RTT of a round, and RTprop = min_rtt:

    ProbeTry    succeeds if  MinRTT_curr <= gamma * MinRTT_prev,          gamma = 1.02
    ProbeUp     again if     MinRTT_curr <= gamma * MinRTT_before_probe
    Algorithm 1 once per round of ProbeCruise and ProbeDown:
                MinRTT_curr > theta * RTprop  =>  the oldest bandwidth expires,        theta = 1.1 of [1.05, 1.15]
    Algorithm 2 at the end of ProbeCruise:
                MinRTT_cruise > lambda_1 * RTprop, eta_1 times in a row   =>  BBRv2, from Startup    1.1, 2
                MinRTT_cruise <= lambda_2 * RTprop, eta_2 times in a row  =>  BBRv2+                 1.05, 4
    Algorithm 3 jitter > mu * RTprop  =>  BDP = bw * (RTprop + jitter),   mu = 0.5 (`compensation`)
    Losses      above alpha = 20 % of a probe set inflight_hi (section 5.1), beta = 0.3

Parameters have the paper's names; alpha is BBRv2's `loss_thresh`, and `eta1=0` is the variant without the dual mode
(Fig. 19a).

Left open by the paper, and chosen here:

* a round is the packet-timed round of BBRv2, and MinRTT_curr at its end is complete; so judged, a try compares the
  round that shows PRE_UP's packets with the one before. Its *first* packet meets no queue of the try's own making, so
  the minimum grows only where a queue already stood: on an empty path tries seldom fail, UP comes, and POST_UP ends
  it. (The module compares smoothed RTTs, which do grow; the paper's Fig. 15a shows its tries fail. `smoothed_tries=1`
  reads the paper so: the smoothed RTT at the end of one round beside that at the end of the round before);
* when "the end of ProbeUp" is judged: after POST_UP, as in the module, because only then ACKs of the packets of UP
  have come; MinRTT_curr is reset on entering POST_UP, lest the round before UP decide;
* the end of a probe still advances the bandwidth filter as in BBRv2: Algorithm 1 is only an addition to it. The module
  has instead a forced advance after 25 rounds;
* waiting "approximately 8 rounds" is the module's 8..11 rounds of CRUISE; the Reno-like limit of BBRv2 stays;
* restarting from Startup also forgets bw_lo and inflight_lo, or the bandwidth yielded could not be regained; a cruise
  that PROBE_RTT cuts short is not judged;
* a try that fails drains at 0.9, the gain the text gives; other gains are those of BBRv2.

Sources: [Yang22] sections 4.2 to 4.4, 5.1, Table 1.
Differs from bbr2plus in: what a try and a probe compare (minima, no 2000 us cap), what expires bandwidth, what and when
the two modes compare (RTprop alone, at the end of the cruise), compensation within the BDP, alpha, mu.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param
from cctrace.cc.bbr2 import BBR2
from cctrace.cc.bbr2_model import CRUISE, PROBE_BW, UNSET
from cctrace.cc.bbr2plus import BBR2Plus
from cctrace.cc.compensation import COMPENSATION, JitterCompensation

NO_RTT_YET = UNSET - 1  # of a round; UNSET means none of the connection

_KEPT = (*BBR2.params, "pre_up_pacing_gain", "down_slightly_pacing_gain", "probe_cycle_base", "probe_cycle_random")


class BBR2PlusPaper(JitterCompensation, BBR2Plus):
    """BBRv2+ as in its paper; the module's docstring lists what the paper leaves open."""

    params = {name: BBR2Plus.params[name] for name in _KEPT} | {
        "loss_thresh": Param(0.2, 0.0, 1.0, "loss rate of a probe that went too far: alpha [Yang22] section 5.1"),
        "gamma": Param(1.02, 1.0, 10.0, "growth of MinRTT that fails a try or ends probing [Yang22] section 4.2"),
        "smoothed_tries": Param(0, 0, 1, "tries compare smoothed RTTs, as the module means to"),
        "theta": Param(1.1, 1.0, 10.0, "MinRTT over RTprop that expires bandwidth [Yang22] Algorithm 1"),
        "lambda1": Param(1.1, 1.0, 10.0, "MinRTT of a cruise over RTprop: a queue is kept full [Yang22] Algorithm 2"),
        "lambda2": Param(1.05, 1.0, 10.0, "MinRTT of a cruise over RTprop: no longer [Yang22] Algorithm 2"),
        "eta1": Param(2, 0, 1000, "such cruises in a row that switch to BBRv2; 0 no dual mode [Yang22] Algorithm 2"),
        "eta2": Param(4, 1, 1000, "such cruises in a row that switch back [Yang22] Algorithm 2"),
        **COMPENSATION,
    }

    # --- section 4.2: ProbeTry, ProbeUp, Algorithm 1 ----------------------------------------------------------------
    def update_round_rtts(self, rtt_us: int) -> None:
        """Let the smoothed RTT move on with the round: in the module it stays the connection's first."""
        if self.round_start:
            self.last_round_srtt_us = self.curr_round_srtt_us
        super().update_round_rtts(rtt_us)

    def is_try_ok(self) -> bool:
        """Whether the try's round shows no more queue than the round before [Yang22] section 4.2."""
        if self.smoothed_tries:
            return self.curr_round_srtt_us <= self.gamma * self.last_round_srtt_us
        return self.curr_round_min_rtt_us <= self.gamma * self.last_round_min_rtt_us

    def is_probe_ok(self) -> bool:
        """Whether probing has built no queue, so that there may be more [Yang22] section 4.2."""
        return self.curr_round_min_rtt_us <= self.gamma * self.mrtt_before_probe

    def start_bw_probe_post_up(self, ack: Ack) -> None:
        """The RTTs that show the probe come from now on."""
        super().start_bw_probe_post_up(ack)
        self.last_round_min_rtt_us = self.curr_round_min_rtt_us
        self.curr_round_min_rtt_us = NO_RTT_YET

    def try_to_advance_bw_filter(self) -> None:
        """A round well above RTprop: the bandwidth has dropped [Yang22] Algorithm 1."""
        known = self.curr_round_min_rtt_us < NO_RTT_YET
        if known and self.curr_round_min_rtt_us > self.theta * self.min_rtt_us:
            self.advance_bw_hi_filter()

    def end_bw_cycle(self) -> None:
        """As BBRv2 in both modes: Algorithm 1 comes on top."""
        self.advance_bw_hi_filter()

    # --- section 4.3: dual mode -------------------------------------------------------------------------------------
    def start_bw_probe_refill(self, ack: Ack, bw_probe_up_rounds: int) -> None:
        """A cruise ends here: choose the mode, and probe unless that means a restart [Yang22] Algorithm 2."""
        if self.cycle_idx == CRUISE and self.eta1 > 0 and self.mrtt_in_cruise != UNSET:
            self.choose_mode()
        if self.mode == PROBE_BW:
            super().start_bw_probe_refill(ack, bw_probe_up_rounds)

    def begin_cruise(self) -> None:
        """Measure this cruise afresh."""
        self.mrtt_in_cruise = UNSET

    def choose_mode(self) -> None:
        """Compare the cruise's least RTT with RTprop [Yang22] Algorithm 2."""
        if self.fast_conv_on:
            filling = self.mrtt_in_cruise > self.lambda1 * self.min_rtt_us
            if self.count_cruise(filling) >= self.eta1:
                self.fall_back()
        else:
            empty = self.mrtt_in_cruise <= self.lambda2 * self.min_rtt_us
            if self.count_cruise(empty) >= self.eta2:
                self.fast_conv_on = True
                self.cruise_round_of_mrtt_change = 0

    def fall_back(self) -> None:
        """Restart from Startup with nothing that would hold it back [Yang22] Algorithm 2, line 9."""
        super().fall_back()
        self.reset_lower_bounds()

    # --- section 4.4: compensation ----------------------------------------------------------------------------------
    def find_target_cwnd(self, ack: Ack, bw: int, gain: int) -> int:
        """The BDP is compensated already, by `bdp_rtt_us` [Yang22] Algorithm 3."""
        return self.model_target_cwnd(ack, bw, gain)
