"""The path model and the control laws of the IETF's BBR draft; its state machine is `bbr_draft`.

    bandwidth   max_bw                best delivery rate of this and the previous probing cycle (bytes/s)
                bw_shortterm          what recent losses allow; unset while probing
    delay       min_rtt_us            least RTT of 10 s
    volume      inflight_longterm     largest flight that a probe found tolerable; unset until one went too far
                inflight_shortterm    flight that recent losses allow; unset while probing

    bw = min(max_bw, bw_shortterm)    BDP = bw * min_rtt
    pacing rate = pacing_gain * bw * 0.99    cwnd = cwnd_gain * BDP + extra_acked, within the bounds of the state

A method per function of the draft, named as there and with its section; what the draft reads from RS and C comes from
`ack`. Rates are bytes/s, volumes segments (C.SMSS is one segment): a BDP is rounded up to them.

Sources: [BBRdraft] sections 5.2, 5.5 and 5.6.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import LinuxController, Param, ints
from cctrace.cc.bbr2_model import CRUISE, PROBE_BW, PROBE_RTT, REFILL, STARTUP, UNSET, UP
from cctrace.cc.filters import running_max
from cctrace.cc.linux import CA_RECOVERY, USEC_PER_MSEC, USEC_PER_SEC

UNSET_BW = 1e18  # bytes/s: the draft's Infinity


def whole_segments(volume: float) -> int:
    """Return a volume rounded up to segments."""
    segments = int(volume)
    return segments + 1 if volume > segments else segments


class BBRDraftModel(LinuxController):
    """The draft's measurements and the quantities derived from them."""

    params = LinuxController.params | {
        "startup_pacing_gain": Param(2.77, 1.0, 8.0, "BBR.StartupPacingGain, 4 ln 2 [BBRdraft] 2.5"),
        "startup_cwnd_gain": Param(2.0, 1.0, 8.0, "BBR.DefaultCwndGain, in Startup and Drain [BBRdraft] 2.6"),
        "drain_pacing_gain": Param(0.5, 0.0, 4.0, "BBR.DrainPacingGain [BBRdraft] 2.5"),
        "drain_rounds": Param(3, 0, 255, "longest stay in Drain, rounds [BBRdraft] 5.3.2"),
        "up_pacing_gain": Param(1.25, 0.0, 4.0, "pacing gain of ProbeBW_UP [BBRdraft] 5.6.1"),
        "down_pacing_gain": Param(0.9, 0.0, 4.0, "pacing gain of ProbeBW_DOWN [BBRdraft] 5.6.1"),
        "probe_bw_cwnd_gain": Param(2.0, 0.0, 8.0, "cwnd gain of ProbeBW, but for UP [BBRdraft] 5.6.1"),
        "up_cwnd_gain": Param(2.25, 0.0, 8.0, "cwnd gain of ProbeBW_UP [BBRdraft] 5.6.1"),
        "probe_rtt_cwnd_gain": Param(0.5, 0.0, 1.0, "BBR.ProbeRTTCwndGain [BBRdraft] 2.17.2"),
        "probe_rtt_win_ms": Param(5000, 1, 60000, "BBR.ProbeRTTInterval, ms [BBRdraft] 2.17.2"),
        "probe_rtt_ms": Param(200, 0, 60000, "BBR.ProbeRTTDuration, ms [BBRdraft] 2.17.2"),
        "min_rtt_win_sec": Param(10, 1, 3600, "BBR.MinRTTFilterLen, s [BBRdraft] 2.17.1"),
        "full_bw_thresh": Param(1.25, 1.0, 8.0, "growth of the delivery rate that is no plateau [BBRdraft] 5.3.1.2"),
        "full_bw_rounds": Param(3, 1, 255, "rounds of less growth that are one [BBRdraft] 5.3.1.2"),
        "full_loss_cnt": Param(6, 1, 255, "BBRStartupFullLossCnt, lost ranges of a round [BBRdraft] 5.3.1.3"),
        "loss_thresh": Param(0.02, 0.0, 0.99, "BBR.LossThresh [BBRdraft] 2.9"),
        "loss_beta": Param(0.7, 0.0, 1.0, "BBR.Beta: what a round of losses leaves of a bound [BBRdraft] 2.9"),
        "inflight_headroom": Param(0.15, 0.0, 1.0, "BBR.Headroom [BBRdraft] 2.9"),
        "min_pipe_cwnd": Param(4, 1, 64, "BBR.MinPipeCwnd, segments [BBRdraft] 2.9"),
        "pacing_margin_percent": Param(1, 0, 99, "BBR.PacingMarginPercent [BBRdraft] 2.5"),
        "extra_acked_rounds": Param(10, 1, 255, "BBR.ExtraAckedFilterLen, rounds [BBRdraft] 2.13"),
        "offload_quanta": Param(3, 0, 16, "send quanta in the offload budget of TCP [BBRdraft] 5.5.8"),
        "bw_probe_max_rounds": Param(63, 1, 255, "longest wait for a probe, rounds [BBRdraft] 5.3.3.8.3"),
        "bw_probe_base_us": Param(
            2_000_000, 0, 60_000_000, "shortest wait for a probe by the clock, us [BBRdraft] same"
        ),
        "bw_probe_rand_us": Param(1_000_000, 1, 60_000_000, "random addition to that wait, us [BBRdraft] same"),
    }
    model_based = True
    slow_burst_segments = 2  # 5.6.3: C.send_quantum is at least two C.SMSS

    mode: int = STARTUP
    cycle_idx: int = UP
    # The rate sample of this ACK (RS)
    delivery_rate: float = 0.0
    # 2.8 rounds
    round_count: int = 0
    round_start: bool = False
    next_round_delivered: int = 0
    rounds_since_probe: int = 0  # the draft's rounds_since_probe_up
    idle_restart: bool = False
    # 2.10, 2.12 the model
    bw: float = 0.0
    max_bw: float = 0.0
    max_bw_before: float = 0.0  # max_bw_filter: best of the previous cycle
    max_bw_now: float = 0.0  # and of this one
    bw_shortterm: float = UNSET_BW
    bdp: float = 0.0  # segments
    min_rtt_us: int = UNSET
    min_rtt_stamp: int = 0
    probe_rtt_min_delay: int = UNSET
    probe_rtt_min_stamp: int = 0
    probe_rtt_expired: bool = False
    inflight_longterm: int = UNSET
    inflight_shortterm: int = UNSET
    max_inflight: int = 0
    offload_budget: int = 0
    send_quantum: int = 0  # bytes
    # 2.13 aggregation
    extra_acked: int = 0
    extra_acked_v = ints(3)
    extra_acked_t = ints(3)
    extra_acked_delivered: int = 0
    extra_acked_interval_start: int = 0
    # 2.14 the pipe
    full_bw_reached: bool = False
    # Control
    pacing_gain: float = 1.0
    cwnd_gain: float = 2.0
    initial_cwnd: int = 0
    prior_cwnd: int = 0

    # --- what the state says ------------------------------------------------------------------------------------------
    def is_in_a_probe_bw_state(self) -> bool:  # 5.3.3.9 IsInAProbeBWState
        """Whether BBR.state is one of the four of ProbeBW."""
        return self.mode == PROBE_BW

    def is_probing_bw(self) -> bool:  # 5.3.3.9 IsProbingBW
        """Whether a loss now is a result of our own probing."""
        return self.mode == STARTUP or (self.mode == PROBE_BW and (self.cycle_idx == REFILL or self.cycle_idx == UP))

    def in_loss_recovery(self, ack: Ack) -> bool:  # 5.6.4.4 InLossRecovery
        """Whether the transport repairs losses."""
        return ack.ca_state >= CA_RECOVERY

    # --- 5.5.1 rounds -------------------------------------------------------------------------------------------------
    def init_round_counting(self) -> None:  # 5.5.1 InitRoundCounting
        """The first sample starts a round."""
        self.next_round_delivered = 0
        self.round_start = False
        self.round_count = 0

    def update_round(self, ack: Ack) -> None:  # 5.5.1 UpdateRound
        """Notice that a packet-timed round trip has passed."""
        self.round_start = False
        if ack.rs_delivered >= 0 and ack.rs_prior_delivered >= self.next_round_delivered:
            self.start_round(ack)
            self.round_count += 1
            self.rounds_since_probe += 1
            self.round_start = True

    def start_round(self, ack: Ack) -> None:  # 5.5.1 StartRound
        """The round ends when what is sent from now on is delivered."""
        self.next_round_delivered = ack.delivered

    # --- 5.5.2 to 5.5.7 bandwidth and delay ---------------------------------------------------------------------------
    def generate_rate_sample(self, ack: Ack) -> None:  # 4.1 GenerateRateSample: the stack's, in bytes/s
        """Take the delivery rate of the packet that has just been ACKed; 0 where there is none."""
        self.delivery_rate = 0.0
        if ack.rs_interval_us > 0 and ack.rs_delivered > 0:
            self.delivery_rate = ack.rs_delivered * ack.mss * float(USEC_PER_SEC) / ack.rs_interval_us

    def update_max_bw(self, ack: Ack) -> None:  # 5.5.5 UpdateMaxBw
        """Let the sample raise this cycle's maximum; app-limited ones only if they are no lower."""
        self.update_round(ack)
        if self.delivery_rate > 0.0 and (self.delivery_rate >= self.max_bw or ack.rs_is_app_limited == 0):
            self.max_bw_now = max(self.max_bw_now, self.delivery_rate)
            self.max_bw = max(self.max_bw_before, self.max_bw_now)

    def advance_max_bw_filter(self) -> None:  # 5.5.6 AdvanceMaxBwFilter
        """Forget the cycle before last: the window is two cycles."""
        self.max_bw_before = self.max_bw_now
        self.max_bw_now = 0.0

    def update_min_rtt(self, ack: Ack) -> None:  # 5.3.4.3 UpdateMinRTT
        """Track the least RTT of 5 s, which times ProbeRTT, and that of 10 s."""
        now = ack.now_us
        self.probe_rtt_expired = now > self.probe_rtt_min_stamp + self.probe_rtt_win_ms * USEC_PER_MSEC
        if ack.rs_rtt_us >= 0 and (ack.rs_rtt_us < self.probe_rtt_min_delay or self.probe_rtt_expired):
            self.probe_rtt_min_delay = ack.rs_rtt_us
            self.probe_rtt_min_stamp = now
        min_rtt_expired = now > self.min_rtt_stamp + self.min_rtt_win_sec * USEC_PER_SEC
        if self.probe_rtt_min_delay < self.min_rtt_us or min_rtt_expired:
            self.min_rtt_us = self.probe_rtt_min_delay
            self.min_rtt_stamp = self.probe_rtt_min_stamp

    # --- 5.5.9 aggregation --------------------------------------------------------------------------------------------
    def update_ack_aggregation(self, ack: Ack) -> None:  # 5.5.9 UpdateACKAggregation
        """Track how far ACKs run ahead of the bandwidth: maximum of one round in Startup, of ten afterwards."""
        interval_us = ack.now_us - self.extra_acked_interval_start
        expected = self.bw * interval_us / (float(USEC_PER_SEC) * ack.mss)
        if self.extra_acked_delivered <= expected:
            self.extra_acked_delivered = 0
            self.extra_acked_interval_start = ack.now_us
            expected = 0.0
        self.extra_acked_delivered += ack.rs_acked_sacked
        extra = min(max(int(self.extra_acked_delivered - expected), 0), self.snd_cwnd)
        filter_len = 1
        if self.full_bw_reached:
            filter_len = self.extra_acked_rounds
        self.extra_acked = running_max(self.extra_acked_v, self.extra_acked_t, filter_len, self.round_count, extra)

    # --- 5.6.2, 5.6.3 pacing ------------------------------------------------------------------------------------------
    def bound_bw_for_model(self) -> None:  # 5.5.10.3 BoundBWForModel
        """The bandwidth to use is the maximum, unless recent losses say less."""
        self.bw = min(self.max_bw, self.bw_shortterm)

    def init_pacing_rate(self, ack: Ack) -> None:  # 5.6.2 InitPacingRate
        """Pace the first window over the RTT, or over 1 ms while none is known."""
        srtt_us = USEC_PER_MSEC
        if ack.srtt_us8 > 0:
            srtt_us = max(ack.srtt_us8 >> 3, 1)
        nominal_bandwidth = self.initial_cwnd * ack.mss * float(USEC_PER_SEC) / srtt_us
        self.pacing_rate = int(self.startup_pacing_gain * nominal_bandwidth)

    def set_pacing_rate_with_gain(self, pacing_gain: float) -> None:  # 5.6.2 SetPacingRateWithGain
        """Pace at `pacing_gain` times the bandwidth, less 1 %; until the pipe was full only ever faster."""
        rate = int(pacing_gain * self.bw * (100 - self.pacing_margin_percent) / 100)
        if self.full_bw_reached or rate > self.pacing_rate:
            self.pacing_rate = max(rate, 1)

    def set_pacing_rate(self) -> None:  # 5.6.2 SetPacingRate
        """Pace by the gain of the state."""
        self.set_pacing_rate_with_gain(self.pacing_gain)

    def set_send_quantum(self, ack: Ack) -> None:  # 5.6.3 SetSendQuantum
        """Bursts of 1 ms, from 2 segments to 64 kB; the stack builds them so by itself."""
        self.send_quantum = max(min(self.pacing_rate // 1000, 64 * 1024), 2 * ack.mss)

    # --- 5.6.4 cwnd ---------------------------------------------------------------------------------------------------
    def bdp_multiple(self, ack: Ack, bw: float, gain: float) -> int:  # 5.6.4.2 BDPMultiple
        """`gain` times the flight that `bw` fills the path with; the initial window while no RTT is known."""
        if self.min_rtt_us == UNSET:
            return self.initial_cwnd
        self.bdp = self.bw * self.min_rtt_us / (float(USEC_PER_SEC) * ack.mss)
        return whole_segments(gain * bw * self.min_rtt_us / (float(USEC_PER_SEC) * ack.mss))

    def update_offload_budget(self, ack: Ack) -> None:  # 5.5.8 UpdateOffloadBudget
        """Three quanta for TCP: in the queueing discipline, being cut into segments, not yet acknowledged."""
        self.offload_budget = self.offload_quanta * whole_segments(self.send_quantum / ack.mss)

    def quantization_budget(self, ack: Ack, inflight_cap: int) -> int:  # 5.6.4.2 QuantizationBudget
        """Room for offload, at least four segments, and two more in UP."""
        self.update_offload_budget(ack)
        cap = max(inflight_cap, self.offload_budget, self.min_pipe_cwnd)
        if self.mode == PROBE_BW and self.cycle_idx == UP:
            cap += 2
        return cap

    def inflight(self, ack: Ack, bw: float, gain: float) -> int:  # 5.6.4.2 Inflight
        """Flight to aim at for `gain` BDPs."""
        return self.quantization_budget(ack, self.bdp_multiple(ack, bw, gain))

    def update_max_inflight(self, ack: Ack) -> None:  # 5.6.4.2 UpdateMaxInflight
        """The window that the model wants."""
        inflight_cap = self.bdp_multiple(ack, self.bw, self.cwnd_gain) + self.extra_acked
        self.max_inflight = self.quantization_budget(ack, inflight_cap)

    def save_cwnd(self, ack: Ack) -> None:  # 5.6.4.4 SaveCwnd
        """Remember the last window that neither recovery nor ProbeRTT had modulated."""
        if not self.in_loss_recovery(ack) and self.mode != PROBE_RTT:
            self.prior_cwnd = self.snd_cwnd
        else:
            self.prior_cwnd = max(self.prior_cwnd, self.snd_cwnd)

    def restore_cwnd(self) -> None:  # 5.6.4.4 RestoreCwnd
        """Return to that window."""
        self.snd_cwnd = max(self.snd_cwnd, self.prior_cwnd)

    def probe_rtt_cwnd(self, ack: Ack) -> int:  # 5.6.4.5 ProbeRTTCwnd
        """Half a BDP, at least four segments."""
        return max(self.bdp_multiple(ack, self.bw, self.probe_rtt_cwnd_gain), self.min_pipe_cwnd)

    def bound_cwnd_for_probe_rtt(self, ack: Ack) -> None:  # 5.6.4.5 BoundCwndForProbeRTT
        """Drain the queue in ProbeRTT."""
        if self.mode == PROBE_RTT:
            self.snd_cwnd = min(self.snd_cwnd, self.probe_rtt_cwnd(ack))

    def set_cwnd(self, ack: Ack) -> None:  # 5.6.4.6 SetCwnd
        """Grow by what was acknowledged up to max_inflight; cut down to it only once the pipe was full."""
        self.update_max_inflight(ack)
        if self.full_bw_reached:
            self.snd_cwnd = min(self.snd_cwnd + ack.rs_acked_sacked, self.max_inflight)
        elif self.snd_cwnd < self.max_inflight or ack.delivered < self.initial_cwnd:
            self.snd_cwnd = self.snd_cwnd + ack.rs_acked_sacked
        self.snd_cwnd = max(self.snd_cwnd, self.min_pipe_cwnd)
        self.bound_cwnd_for_probe_rtt(ack)
        self.bound_cwnd_for_model()

    def inflight_with_headroom(self) -> int:  # 5.3.3.9 InflightWithHeadroom
        """inflight_longterm less 15 %, left to other flows."""
        if self.inflight_longterm == UNSET:
            return UNSET
        headroom = max(1, int(self.inflight_headroom * self.inflight_longterm))
        return max(self.inflight_longterm - headroom, self.min_pipe_cwnd)

    def bound_cwnd_for_model(self) -> None:  # 5.6.4.7 BoundCwndForModel
        """Keep cwnd within the volume cap of the state."""
        cap = UNSET
        if self.mode == PROBE_BW and self.cycle_idx != CRUISE:
            cap = self.inflight_longterm
        elif self.mode == PROBE_RTT or self.mode == PROBE_BW:
            cap = self.inflight_with_headroom()
        cap = max(min(cap, self.inflight_shortterm), self.min_pipe_cwnd)
        self.snd_cwnd = min(self.snd_cwnd, cap)
