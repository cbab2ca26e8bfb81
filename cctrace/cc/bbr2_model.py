"""The path model of BBRv2: what it measures, what it bounds, and the rate and window it derives.

Three quantities describe the path, each with an optimistic long-term and a cautious short-term side:

    bandwidth   bw_hi[0..1]   best delivery rate of this and the previous probing cycle  (packets/us << 24)
                bw_lo         rate that recent losses allow; unset (~0) while probing
    delay       min_rtt_us    least RTT of 10 s, refreshed by PROBE_RTT every 5 s
    volume      inflight_hi   largest flight that a probe found tolerable; unset until a probe went too far
                inflight_lo   flight that recent losses or ECN marks allow; unset while probing

    bw = min(max(bw_hi), bw_lo)       BDP = bw * min_rtt
    pacing rate = pacing_gain * bw * 0.99       cwnd = min(cwnd_gain * BDP + aggregation, bound of the phase)

Gains and fractions are parameters here (0.02 means 2 %) and 256ths in the source, into which `in_256ths` truncates them
at each use. `bbr2_bounds` moves the bounds, and `bbr2` has the state machine that drives both; `bbr3` and `bbr2plus`
override single steps of the three.

Sources: [BBRv2alpha] google/bbr, branch v2alpha, net/ipv4/tcp_bbr2.c. Function names in comments are that file's.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import MAX_PACING_RATE, LinuxController, Param
from cctrace.cc.bbr1_model import BW_SCALE, BW_UNIT, PROBE_BW, PROBE_RTT, STARTUP
from cctrace.cc.bbr1_model import GAIN_SCALE as BBR_SCALE
from cctrace.cc.bbr1_model import GAIN_UNIT as BBR_UNIT
from cctrace.cc.cmath import U32_MAX, s32, u16, u32, u64, u64_lt, u64_shr
from cctrace.cc.linux import (
    GSO_MAX_SIZE,
    GSO_MAX_SIZE_5_19,
    MAX_TCP_HEADER,
    NSEC_PER_USEC,
    PACING_SHIFT,
    USEC_PER_MSEC,
    before,
    in_256ths,
    socket_rate,
)

# Phases of PROBE_BW (cycle_idx); from PRE_UP on those of BBRv2+.
UP = 0
DOWN = 1
CRUISE = 2
REFILL = 3
PRE_UP = 4
GUARD = 5
POST_UP = 6
DOWN_SLIGHTLY = 7

UNSET = U32_MAX
CWND_MIN_TARGET = 4  # segments: two ACKs of two segments each keep the pipe moving
PACING_MARGIN_PERCENT = 1  # pace a little below the estimate, so that queues drain
MIN_TSO_RATE = 1_200_000 >> 3  # bytes/s: below it bursts of one segment
TSO_RTT_SHIFT = 9  # halve the burst allowance for every 512 us of min_rtt
EXTRA_ACKED_GAIN = BBR_UNIT
EXTRA_ACKED_WIN_RTTS = 5
EXTRA_ACKED_MAX_US = 100_000
ACK_EPOCH_ACKED_RESET = 1 << 20


def in_8_bits(fraction: float) -> int:
    """256ths of a fraction in a bit field of eight bits, which holds at most 255: 1.0 means 255/256."""
    return min(255, int(fraction * BBR_UNIT))


def bw_to_pacing_rate(bw: int, mss: int, gain: int) -> int:
    """Bytes/s at `gain` 256ths of `bw`, less the margin; a u64 that may wrap [BBRv2alpha] bbr_bw_to_pacing_rate."""
    rate = u64_shr(u64(bw * mss * gain), BBR_SCALE)
    rate = u64_shr(u64(rate * (10_000 * (100 - PACING_MARGIN_PERCENT))), BW_SCALE)
    return max(rate, 1)


def ilog2(x: int) -> int:
    """Index of the highest set bit, -1 for 0 [Linux61] ilog2()."""
    bit = -1
    while x > 0:
        x >>= 1
        bit += 1
    return bit


class BBR2Model(LinuxController):
    """Measurements and control laws that BBRv2, BBRv2+ and BBRv3 share.

    Parameters are the release's module parameters; fractions and gains are plain numbers (0.02 is 2 %).
    """

    params = LinuxController.params | {
        "startup_pacing_gain": Param(739 / 256, 1.0, 2047 / 256, "pacing gain of STARTUP, 2/ln 2"),
        "startup_cwnd_gain": Param(739 / 256, 1.0, 2047 / 256, "cwnd gain of STARTUP and DRAIN"),
        "drain_pacing_gain": Param(88 / 256, 0.0, 1023 / 256, "pacing gain of DRAIN, ln 2 / 2"),
        "up_pacing_gain": Param(1.25, 0.0, 1023 / 256, "pacing gain of PROBE_BW UP"),
        "down_pacing_gain": Param(0.75, 0.0, 1023 / 256, "pacing gain of PROBE_BW DOWN"),
        "probe_bw_cwnd_gain": Param(2.0, 0.0, 2047 / 256, "cwnd gain of PROBE_BW"),
        "probe_rtt_cwnd_gain": Param(0.5, 0.0, 1.0, "cwnd in PROBE_RTT, BDP"),
        "probe_rtt_win_ms": Param(5000, 1, 16383, "age of the least RTT that starts PROBE_RTT, ms"),
        "min_rtt_win_sec": Param(10, 1, 31, "window of min_rtt, s"),
        "loss_thresh": Param(0.02, 0.0, 1.0, "loss rate of a probe that went too far: alpha of BBRv2(alpha, beta)"),
        "beta": Param(0.3, 0.0, 1.0, "cut of the bounds on loss: beta of BBRv2(alpha, beta)"),
        "inflight_headroom": Param(0.15, 0.0, 1.0, "share of inflight_hi left free while cruising"),
        "full_loss_cnt": Param(8, 1, 15, "loss events in a round that end STARTUP"),
        "bw_probe_pif_gain": Param(1.25, 0.0, 511 / 256, "flight that ends PROBE_BW UP, BDP"),
        "bw_probe_max_rounds": Param(63, 0, 255, "longest wait for a probe, rounds"),
        "bw_probe_base_us": Param(2_000_000, 0, (1 << 26) - 1, "shortest wait for a probe by the clock, us"),
        "bw_probe_rand_us": Param(1_000_000, 0, (1 << 26) - 1, "random addition to that wait, us"),
        "ecn_enable": Param(0, 0, 1, "1: CE marks come from a shallow threshold, so respond as DCTCP"),
        "ecn_max_rtt_us": Param(5000, 0, 524287, "longest min_rtt at which ECN is used, us; 0 any"),
        "ecn_reprobe_gain": Param(0.0, 0.0, 511 / 256, "first growth when marks cease, of inflight_hi; 0 off"),
        "max_pacing_rate": MAX_PACING_RATE,
        "gso_max_bytes": Param(
            GSO_MAX_SIZE,
            GSO_MAX_SIZE,
            GSO_MAX_SIZE_5_19,
            "GSO_MAX_SIZE, burst at a min_rtt of 0; 524280 since Linux 5.19",
        ),
    }
    model_based = True
    bursts_by_min_rtt = True

    mode: int = STARTUP
    cycle_idx: int = UP
    sample_bw: int = 0  # bandwidth of this ACK's rate sample (ctx.sample_bw)
    # Filters
    bw_hi0: int = 0  # previous cycle's maximum
    bw_hi1: int = 0  # this cycle's
    bw_lo: int = 0
    min_rtt_us: int = 0
    min_rtt_stamp: int = 0
    probe_rtt_min_us: int = 0  # least RTT of 5 s, which times PROBE_RTT
    probe_rtt_min_stamp: int = 0
    has_seen_rtt: bool = False
    # Volume
    inflight_lo: int = 0
    inflight_hi: int = 0
    # Rounds
    round_start: bool = False
    next_rtt_delivered: int = 0
    rounds_since_probe: int = 0
    # ACK aggregation
    extra_acked0: int = 0
    extra_acked1: int = 0
    extra_acked_win_idx: int = 0
    extra_acked_win_rtts: int = 0
    ack_epoch_acked: int = 0
    ack_epoch_mstamp: int = 0
    # Control
    pacing_gain: int = 0  # 256ths
    cwnd_gain: int = 0
    init_cwnd: int = 0
    target_cwnd: int = 0
    # STARTUP's plateau
    full_bw: int = 0
    full_bw_cnt: int = 0
    full_bw_reached: bool = False
    try_fast_path: bool = False

    # --- what the model says ----------------------------------------------------------------------------------------
    def max_bw(self) -> int:
        """Best bandwidth of the last one to two probing cycles [BBRv2alpha] bbr_max_bw."""
        return max(self.bw_hi0, self.bw_hi1)

    def bw(self) -> int:
        """Bandwidth to pace at: the maximum, unless recent losses say less [BBRv2alpha] bbr_bw."""
        return min(self.max_bw(), self.bw_lo)

    def bdp(self, bw: int, gain: int) -> int:
        """Segments that fill the path, rounded up; the initial window while no RTT is known [BBRv2alpha] bbr_bdp."""
        if self.min_rtt_us == UNSET:
            return self.init_cwnd
        scaled = u64_shr(u64(u64(bw * self.bdp_rtt_us()) * gain), BBR_SCALE)
        return u32((scaled + BW_UNIT - 1) >> BW_SCALE)

    def bdp_rtt_us(self) -> int:
        """Delay of the bandwidth-delay product: the least RTT; `compensation` adds jitter."""
        return self.min_rtt_us

    def min_tso_segs(self) -> int:
        """Least burst, in segments [BBRv2alpha] bbr_min_tso_segs."""
        return 1 if u64_lt(self.pacing_rate, MIN_TSO_RATE) else 2

    def tso_segs_goal(self, ack: Ack) -> int:
        """Burst that the stack should build: 1 ms at the pacing rate, more on short paths [BBRv2alpha] bbr_tso_segs."""
        size = u64_shr(self.pacing_rate, PACING_SHIFT)
        halvings = self.min_rtt_us >> TSO_RTT_SHIFT
        if halvings < 32:
            size += self.gso_max_bytes >> halvings
        size = min(u32(size), self.gso_max_bytes - 1 - MAX_TCP_HEADER)
        return max(size // ack.mss, self.min_tso_segs())

    def quantization_budget(self, ack: Ack, cwnd: int) -> int:
        """Room for three bursts and a minimum of four segments [BBRv2alpha] bbr_quantization_budget."""
        cwnd = max(cwnd, 3 * self.tso_segs_goal(ack), CWND_MIN_TARGET)
        if self.mode == PROBE_BW and self.cycle_idx == UP:
            cwnd += 2  # so that probing exceeds even a tiny BDP
        return u32(cwnd)

    def inflight(self, ack: Ack, bw: int, gain: int) -> int:
        """Flight to aim at for `gain` 256ths of the BDP [BBRv2alpha] bbr_inflight."""
        return self.quantization_budget(ack, self.bdp(bw, gain))

    def target_inflight(self, ack: Ack) -> int:
        """One BDP, unless congestion has cut cwnd below it [BBRv2alpha] bbr2_target_inflight."""
        return min(self.inflight(ack, self.bw(), BBR_UNIT), self.snd_cwnd)

    def packets_in_net_at_edt(self, ack: Ack, inflight_now: int) -> int:
        """Flight when the next segment may leave, after the pacing gap [BBRv2alpha] bbr_packets_in_net_at_edt."""
        interval_us = (max(ack.wstamp_ns, ack.clock_ns) - ack.clock_ns) // NSEC_PER_USEC
        delivered = u32(u64_shr(u64(self.bw() * interval_us), BW_SCALE))
        if self.pacing_gain > BBR_UNIT:
            inflight_now = u32(inflight_now + self.tso_segs_goal(ack))  # the segment itself counts when growing
        return max(inflight_now - delivered, 0)

    def probe_rtt_cwnd(self) -> int:
        """Window of PROBE_RTT: half a BDP, at least four segments [BBRv2alpha] bbr_probe_rtt_cwnd."""
        return max(CWND_MIN_TARGET, self.bdp(self.bw(), in_8_bits(self.probe_rtt_cwnd_gain)))

    def inflight_with_headroom(self) -> int:
        """`inflight_hi` less 15 %, left to other flows [BBRv2alpha] bbr2_inflight_with_headroom."""
        if self.inflight_hi == UNSET:
            return UNSET
        headroom = max((self.inflight_hi * in_8_bits(self.inflight_headroom)) >> BBR_SCALE, 1)
        return max(s32(self.inflight_hi - headroom), CWND_MIN_TARGET)  # compared signed in the source

    # --- measurements -----------------------------------------------------------------------------------------------
    def update_round(self, ack: Ack) -> None:
        """Notice that a packet-timed round trip has passed [BBRv2alpha] bbr_update_round_start, bbr2_main."""
        self.round_start = False
        if ack.rs_interval_us > 0 and not before(ack.rs_prior_delivered, self.next_rtt_delivered):
            self.next_rtt_delivered = ack.delivered
            self.round_start = True
            self.rounds_since_probe = min(self.rounds_since_probe + 1, 0xFF)
            self.update_ecn_alpha(ack)

    def update_ecn_alpha(self, ack: Ack) -> None:
        """Called once a round; `bbr2_bounds` heeds ECN here."""

    def calculate_bw_sample(self, ack: Ack) -> None:
        """Delivery rate of this sample, rounded up [BBRv2alpha] bbr_calculate_bw_sample."""
        self.sample_bw = 0
        if ack.rs_interval_us > 0 and ack.rs_delivered >= 0:
            self.sample_bw = u32((ack.rs_delivered * BW_UNIT + ack.rs_interval_us - 1) // ack.rs_interval_us)

    def take_bw_sample(self, ack: Ack) -> None:
        """Let the sample raise this cycle's maximum; app-limited ones only if higher [BBRv2alpha] bbr2_take_bw_hi."""
        if not ack.rs_is_app_limited or self.sample_bw >= self.max_bw():
            self.bw_hi1 = max(self.sample_bw, self.bw_hi1)

    def advance_bw_hi_filter(self) -> None:
        """Forget the cycle before last, unless this one has seen nothing [BBRv2alpha] bbr2_advance_bw_hi_filter."""
        if self.bw_hi1:
            self.bw_hi0 = self.bw_hi1
            self.bw_hi1 = 0

    def update_ack_aggregation(self, ack: Ack) -> None:
        """Track how far ACKs run ahead of the bandwidth, in bursts [BBRv2alpha] bbr_update_ack_aggregation."""
        if ack.rs_acked_sacked == 0 or ack.rs_delivered < 0 or ack.rs_interval_us <= 0:
            return
        if self.round_start:
            self.extra_acked_win_rtts = min(0x1F, self.extra_acked_win_rtts + 1)
            if self.extra_acked_win_rtts >= (EXTRA_ACKED_WIN_RTTS if self.full_bw_reached else 1):
                self.extra_acked_win_rtts = 0
                self.extra_acked_win_idx = 1 - self.extra_acked_win_idx
                self.set_extra_acked(0)
        epoch_us = u32(max(ack.delivered_mstamp_us - self.ack_epoch_mstamp, 0))
        expected_acked = u32(u64_shr(u64(self.bw() * epoch_us), BW_SCALE))
        acked = self.ack_epoch_acked + ack.rs_acked_sacked
        if self.ack_epoch_acked <= expected_acked or acked >= ACK_EPOCH_ACKED_RESET:
            self.ack_epoch_mstamp = ack.delivered_mstamp_us
            acked = ack.rs_acked_sacked
            expected_acked = 0
        self.ack_epoch_acked = min(0xFFFFF, acked)
        extra_acked = min(u32(self.ack_epoch_acked - expected_acked), self.snd_cwnd)
        if extra_acked > (self.extra_acked1 if self.extra_acked_win_idx else self.extra_acked0):
            self.set_extra_acked(u16(extra_acked))

    def set_extra_acked(self, extra_acked: int) -> None:
        """Write the current half of the two-window filter [BBRv2alpha] bbr_update_ack_aggregation."""
        if self.extra_acked_win_idx:
            self.extra_acked1 = extra_acked
        else:
            self.extra_acked0 = extra_acked

    # --- control ----------------------------------------------------------------------------------------------------
    def init_pacing_rate_from_rtt(self, ack: Ack) -> None:
        """Pace the first window over the RTT, or over 1 ms if none [BBRv2alpha] bbr_init_pacing_rate_from_rtt."""
        rtt_us = USEC_PER_MSEC
        if ack.srtt_us8:
            rtt_us = max(ack.srtt_us8 >> 3, 1)
            self.has_seen_rtt = True
        bw = u32(self.snd_cwnd * BW_UNIT // rtt_us)
        rate = bw_to_pacing_rate(bw, ack.mss, in_256ths(self.startup_pacing_gain))
        self.pacing_rate = socket_rate(rate, self.max_pacing_rate)

    def set_pacing_rate(self, ack: Ack, bw: int, gain: int) -> None:
        """Pace at `gain` times `bw`; never slower until the pipe is full [BBRv2alpha] bbr_set_pacing_rate."""
        rate = socket_rate(bw_to_pacing_rate(bw, ack.mss, gain), self.max_pacing_rate)
        if not self.has_seen_rtt and ack.srtt_us8:
            self.init_pacing_rate_from_rtt(ack)
        if self.full_bw_reached or u64_lt(self.pacing_rate, rate):
            self.pacing_rate = rate

    def ack_aggregation_cwnd(self) -> int:
        """Extra window for bursts of ACKs, at most 100 ms of them [BBRv2alpha] bbr_ack_aggregation_cwnd."""
        extra_acked = (EXTRA_ACKED_GAIN * max(self.extra_acked0, self.extra_acked1)) >> BBR_SCALE
        return min(extra_acked, (self.bw() * EXTRA_ACKED_MAX_US) >> BW_SCALE)

    def find_target_cwnd(self, ack: Ack, bw: int, gain: int) -> int:
        """Window to grow to [BBRv2alpha] bbr_set_cwnd."""
        return self.model_target_cwnd(ack, bw, gain)

    def model_target_cwnd(self, ack: Ack, bw: int, gain: int) -> int:
        """Window that the model wants: BDP and aggregation, quantised [BBRv2alpha] bbr_set_cwnd."""
        return self.quantization_budget(ack, u32(self.bdp(bw, gain) + self.ack_aggregation_cwnd()))

    def set_cwnd(self, ack: Ack, bw: int, gain: int) -> None:
        """Grow by what was acknowledged up to the target, or snap down to it [BBRv2alpha] bbr_set_cwnd."""
        cwnd = self.snd_cwnd
        if ack.rs_acked_sacked:
            target = self.find_target_cwnd(ack, bw, gain)
            self.target_cwnd = target
            self.try_fast_path = False
            if self.full_bw_reached:  # only then the target is trusted enough to cut down to it
                cwnd = u32(cwnd + ack.rs_acked_sacked)
                if cwnd >= target:
                    cwnd = target
                    self.try_fast_path = True
            elif cwnd < target or cwnd < 2 * self.init_cwnd:
                cwnd = u32(cwnd + ack.rs_acked_sacked)
            else:
                self.try_fast_path = True
            cwnd = max(cwnd, CWND_MIN_TARGET)
        if self.mode == PROBE_RTT:
            cwnd = min(cwnd, self.probe_rtt_cwnd())
        self.snd_cwnd = cwnd

    def bound_cwnd(self) -> None:
        """Keep cwnd within the bound of the phase [BBRv2alpha] bbr2_bound_cwnd_for_inflight_model."""
        cap = UNSET
        if self.mode == PROBE_BW and self.cycle_idx != CRUISE:
            cap = self.inflight_hi
        elif self.mode == PROBE_RTT or self.mode == PROBE_BW:
            cap = self.inflight_with_headroom()
        cap = max(min(cap, self.inflight_lo), CWND_MIN_TARGET)
        self.snd_cwnd = min(cap, self.snd_cwnd)
