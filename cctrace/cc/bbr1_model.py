"""The path model of BBR v1: rounds, bandwidth, BDP, the rate and window that follow, a policer. Base of `bbr2016`.

    bw        maximum of the delivery rate over `bw_rtts` rounds; app-limited samples count only if they raise it
    min_rtt   set by `bbr2016`, which decides when to measure it
    lt_bw     rate of a token-bucket policer, if two long-term ("lt") intervals agree on it

A round ends when a segment is delivered that was sent after the last round's end. An lt interval is 4 to 16 rounds
long and runs from loss to loss, that is from empty bucket to empty bucket, with at least 20 % lost:

    no sampling --(loss)--> interval --(loss)--> interval --(same rate)--> lt_bw for 48 rounds of PROBE_BW
         ^                     |  (application-limited, or no closing loss: forget)                |
         +---------------------+-----------------------------------------------------------------+

Units, as in the kernel: bw in segments/us << 24, gains << 8, RTTs us, stamps in jiffies (u32, wrapping).

Sources: [Linux412] net/ipv4/tcp_bbr.c; [Cardwell16].
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import MAX_PACING_RATE, LinuxController, Param, ints
from cctrace.cc.cmath import U32_MAX, s32, u32, u64, u64_lt, u64_shr
from cctrace.cc.filters import running_max
from cctrace.cc.linux import (
    GSO_MAX_SIZE,
    MAX_TCP_HEADER,
    MTU_HEADERS,
    PACING_SHIFT,
    TCP_INIT_CWND,
    USEC_PER_MSEC,
    USEC_PER_SEC,
    before,
    in_256ths,
    jiffies_at,
    jiffies_to_usecs,
    socket_rate,
)

STARTUP = 0
DRAIN = 1
PROBE_BW = 2
PROBE_RTT = 3

BW_SCALE = 24  # bw fits a u32 from 715 bit/s to 3 Tbit/s
BW_UNIT = 1 << BW_SCALE
GAIN_SCALE = 8
GAIN_UNIT = 1 << GAIN_SCALE

MAX_GAIN = 1023 / 256  # bit fields of ten bits
CYCLE_LEN = 8  # phases of PROBE_BW
MIN_TSO_RATE_BPS = 1_200_000  # bits/s; below it a burst is one segment
TSO_SEGS_MAX = 0x7F

LT_MIN_ROUNDS = 4
LT_LOSS_THRESH = 50  # /256: 20 % of what was delivered
LT_BW_RATIO = GAIN_UNIT // 8  # /256: two intervals agree within 1/8 ...
LT_BW_DIFF = 4000 // 8  # ... or 4 kbit/s (in bytes/s)
LT_USE_ROUNDS = 48


class BBR1Model(LinuxController):
    """Path model of BBR v1; see the module's header."""

    model_based = True
    params = LinuxController.params | {
        "bw_rtts": Param(CYCLE_LEN + 2, 1, 1000, "window of the bandwidth filter, rounds"),
        "high_gain": Param(739 / 256, 1.0, MAX_GAIN, "gains of STARTUP: 2/ln 2 is the least that doubles the rate"),
        "max_pacing_rate": MAX_PACING_RATE,
    }

    golden_names = {
        "s_bw": "bw_v[0]",
        "s_bw1": "bw_v[1]",
        "s_bw2": "bw_v[2]",
        "s_bw0_t": "bw_t[0]",
        "s_bw1_t": "bw_t[1]",
        "s_bw2_t": "bw_t[2]",
        "s_round_count": "rtt_cnt",
    }

    mode: int = STARTUP
    pacing_gain: int = 0
    # The model of the path.
    bw_v = ints(3)
    bw_t = ints(3)
    min_rtt_us: int = 0
    min_rtt_stamp: int = 0
    # Rounds: one ends when a segment sent after the end of the last one is delivered.
    rtt_cnt: int = 0
    round_start: int = 0
    next_rtt_delivered: int = 0
    packet_conservation: int = 0  # at most until the round ends
    tso_segs_goal: int = 0
    # Policer.
    lt_is_sampling: int = 0
    lt_rtt_cnt: int = 0
    lt_use_bw: int = 0
    lt_bw: int = 0
    lt_last_delivered: int = 0
    lt_last_stamp: int = 0
    lt_last_lost: int = 0

    # ---- estimates ---------------------------------------------------------------------------------------------------

    def max_bw(self) -> int:
        """Windowed maximum of the delivery rate [Linux412] bbr_max_bw."""
        return self.bw_v[0]

    def bw(self) -> int:
        """Estimate in use: the policer's rate, if there seems to be one [Linux412] bbr_bw."""
        if self.lt_use_bw != 0:
            return self.lt_bw
        return self.max_bw()

    def rate_bytes_per_sec(self, ack: Ack, rate: int, gain: int) -> int:
        """Convert segments/us << 24 to bytes/s [Linux412] bbr_rate_bytes_per_sec.

        Counts headers as bytes to be paced; the product wraps at 64 bits above about 200 Gbit/s * gain.
        """
        scaled = (rate * (ack.mss + MTU_HEADERS) * gain) >> GAIN_SCALE
        return u64_shr(u64(scaled * USEC_PER_SEC), BW_SCALE)

    def bdp(self, bw: int, gain: int) -> int:
        """Segments of gain * bw * min_rtt, rounded up; the initial window without an RTT [Linux412] bbr_target_cwnd."""
        if self.min_rtt_us == U32_MAX:
            return TCP_INIT_CWND
        scaled = u64_shr(u64(u64(bw * self.bdp_rtt_us()) * gain), GAIN_SCALE)
        return u32((scaled + BW_UNIT - 1) >> BW_SCALE)

    def bdp_rtt_us(self) -> int:
        """Delay of the bandwidth-delay product: the least RTT; `compensation` adds jitter."""
        return self.min_rtt_us

    def delivered_jiffies(self, ack: Ack) -> int:
        """Tick of the last delivery, 0 before the first [Linux412] tp->delivered_mstamp.stamp_jiffies."""
        if ack.delivered_mstamp_us == 0:
            return 0
        return jiffies_at(ack.jiffies, ack.now_us, ack.delivered_mstamp_us, self.hz)

    # ---- rates and windows -----------------------------------------------------------------------------------------

    def init_pacing_rate(self, ack: Ack) -> None:
        """Pace the initial window over the handshake's RTT, or 1 ms if it is unknown [Linux412] bbr_init."""
        rtt_us = ack.srtt_us8 >> 3
        if rtt_us == 0:
            rtt_us = USEC_PER_MSEC
        bw = u32(self.snd_cwnd * BW_UNIT // rtt_us)
        # An unset rate is ~0, above every other: without this STARTUP would never lower it.
        self.pacing_rate = 0
        self.set_pacing_rate(ack, bw, in_256ths(self.high_gain))

    def set_pacing_rate(self, ack: Ack, bw: int, gain: int) -> None:
        """Pace at gain * bw; in STARTUP never slower than before [Linux412] bbr_set_pacing_rate."""
        rate = socket_rate(self.rate_bytes_per_sec(ack, bw, gain), self.max_pacing_rate)
        if self.mode != STARTUP or u64_lt(self.pacing_rate, rate):
            self.pacing_rate = rate

    def tso_segs(self, ack: Ack) -> int:
        """Segments of one burst: about 1 ms at the pacing rate [Linux412] tcp_tso_autosize."""
        min_segs = 2
        if u64_lt(self.pacing_rate, MIN_TSO_RATE_BPS >> 3):
            min_segs = 1
        size = min(u64_shr(self.pacing_rate, PACING_SHIFT), GSO_MAX_SIZE - 1 - MAX_TCP_HEADER)
        return min(max(size // ack.mss, min_segs), TSO_SEGS_MAX)

    def set_tso_segs_goal(self, ack: Ack) -> None:
        """Keep the burst size until the next ACK [Linux412] bbr_set_tso_segs_goal."""
        self.tso_segs_goal = self.tso_segs(ack)

    def quantization_budget(self, ack: Ack, cwnd: int) -> int:
        """Add three bursts (qdisc, sender's and receiver's offload) and make it even, for delayed ACKs."""
        cwnd = u32(cwnd + 3 * self.tso_segs_goal)
        return u32(cwnd + 1) & ~1

    def inflight(self, ack: Ack, bw: int, gain: int) -> int:
        """Segments in flight that make gain * BDP [Linux412] bbr_target_cwnd."""
        if self.min_rtt_us == U32_MAX:
            return TCP_INIT_CWND  # unlike later releases, without a budget
        return self.quantization_budget(ack, self.bdp(bw, gain))

    # ---- bandwidth -------------------------------------------------------------------------------------------------

    def update_bw(self, ack: Ack) -> None:
        """Count rounds and feed the bandwidth filter [Linux412] bbr_update_bw."""
        self.round_start = 0
        if ack.rs_delivered < 0 or ack.rs_interval_us <= 0:
            return
        if not before(ack.rs_prior_delivered, self.next_rtt_delivered):
            self.next_rtt_delivered = ack.delivered
            self.rtt_cnt = u32(self.rtt_cnt + 1)
            self.round_start = 1
            self.packet_conservation = 0
        self.lt_bw_sampling(ack, ack.rs_losses, ack.rs_is_app_limited)
        bw = self.delivery_rate(ack)
        # An app-limited sample shows the application, not the path: it counts only when it raises the estimate.
        if ack.rs_is_app_limited == 0 or bw >= self.bw_v[0]:
            running_max(self.bw_v, self.bw_t, self.bw_rtts, self.rtt_cnt, u32(bw))

    def delivery_rate(self, ack: Ack) -> int:
        """Segments/us << 24; do_div() takes the interval as a u32."""
        return ack.rs_delivered * BW_UNIT // u32(ack.rs_interval_us)

    # ---- policer ---------------------------------------------------------------------------------------------------

    def lt_bw_sampling(self, ack: Ack, losses: int, is_app_limited: int) -> None:
        """Look for a token-bucket policer: an interval is 4 to 16 rounds from loss to loss, with 20 % lost.

        [Linux412] bbr_lt_bw_sampling. Starting and ending at a loss means starting and ending with an empty bucket.
        """
        if self.lt_use_bw != 0:
            self.count_lt_rounds(ack)
            return
        if self.lt_is_sampling == 0:
            if losses == 0:
                return
            self.reset_lt_bw_sampling_interval(ack)
            self.lt_is_sampling = 1
        if is_app_limited != 0:
            self.reset_lt_bw_sampling(ack)
            return
        if self.round_start != 0:
            self.lt_rtt_cnt = self.lt_rtt_cnt + 1
        if self.lt_rtt_cnt < LT_MIN_ROUNDS:
            return
        if self.lt_rtt_cnt > 4 * LT_MIN_ROUNDS:
            self.reset_lt_bw_sampling(ack)
            return
        if losses == 0:
            return
        lost = u32(ack.lost - self.lt_last_lost)
        delivered = u32(ack.delivered - self.lt_last_delivered)
        if delivered == 0 or u32(lost << GAIN_SCALE) < u32(LT_LOSS_THRESH * delivered):
            return
        self.close_lt_interval(ack, delivered)

    def count_lt_rounds(self, ack: Ack) -> None:
        """Obey the policer's rate for 48 rounds of PROBE_BW, then look again [Linux412] bbr_lt_bw_sampling."""
        if self.mode == PROBE_BW and self.round_start != 0:
            self.lt_rtt_cnt = self.lt_rtt_cnt + 1
            if self.lt_rtt_cnt >= LT_USE_ROUNDS:
                self.reset_lt_bw_sampling(ack)
                self.enter_probe_bw(ack)

    def enter_probe_bw(self, ack: Ack) -> None:
        """Restart the gain cycle, in classes that have one."""

    def close_lt_interval(self, ack: Ack, delivered: int) -> None:
        """Compute the interval's rate; its length is known in jiffies only [Linux412] bbr_lt_bw_sampling."""
        ticks = s32(self.delivered_jiffies(ack) - self.lt_last_stamp)
        if ticks < 1:
            return
        interval_us = s32(jiffies_to_usecs(ticks, self.hz))
        if interval_us < 1:  # wrapped: far too long
            self.reset_lt_bw_sampling(ack)
            return
        self.lt_bw_interval_done(ack, u32(delivered * BW_UNIT // interval_us))

    def lt_bw_interval_done(self, ack: Ack, bw: int) -> None:
        """Two intervals of the same rate are a policer [Linux412] bbr_lt_bw_interval_done."""
        if self.lt_bw != 0:
            difference = u32(abs(s32(bw - self.lt_bw)))
            if (
                u32(difference * GAIN_UNIT) <= u32(LT_BW_RATIO * self.lt_bw)
                or self.rate_bytes_per_sec(ack, difference, GAIN_UNIT) <= LT_BW_DIFF
            ):
                self.lt_bw = u32(bw + self.lt_bw) >> 1
                self.lt_use_bw = 1
                self.pacing_gain = GAIN_UNIT
                self.lt_rtt_cnt = 0
                return
        self.lt_bw = bw
        self.reset_lt_bw_sampling_interval(ack)

    def reset_lt_bw_sampling(self, ack: Ack) -> None:
        """Forget the policer [Linux412] bbr_reset_lt_bw_sampling."""
        self.lt_bw = 0
        self.lt_use_bw = 0
        self.lt_is_sampling = 0
        self.reset_lt_bw_sampling_interval(ack)

    def reset_lt_bw_sampling_interval(self, ack: Ack) -> None:
        """Start a new interval here [Linux412] bbr_reset_lt_bw_sampling_interval."""
        self.lt_last_stamp = self.lt_stamp(ack)
        self.lt_last_delivered = ack.delivered
        self.lt_last_lost = ack.lost
        self.lt_rtt_cnt = 0

    def lt_stamp(self, ack: Ack) -> int:
        """Clock of the long-term intervals: jiffies."""
        return self.delivered_jiffies(ack)
