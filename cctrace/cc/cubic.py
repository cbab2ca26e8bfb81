"""CUBIC as released in Linux 4.15 (2018), with HyStart before its rework.

Model:  W(t) = 0.4 (t - K)^3 + W_max,   K = cbrt((W_max - cwnd) / 0.4)      [RFC9438] Eqs. 1, 2
        heading for W(t + min RTT); never slower than Reno would be with the same backoff; at most 1.5-fold a round
        loss:  ssthresh = 0.7 cwnd;  W_max = cwnd, or 0.85 cwnd where W_max falls (fast convergence)

        SLOW_START --(HyStart, or a loss)--> CONGESTION_AVOIDANCE
             ^                                 |
             +----(timeout: all forgotten)-----+

From a cwnd of 16 on, HyStart ends slow start before a loss, on either of two signs: the ACKs of one round arrive at
most 2 ms apart for more than half the minimum RTT, or the lowest of the round's first 8 RTT samples exceeds the minimum
RTT by an eighth (at least 4 ms, at most 16).

Quirks of the release, kept:

* the cube root is a table and one Newton step, within 0.2 % on average;
* the curve is followed once per tick at most, so growth depends on HZ;
* HyStart judges a round by its first 8 samples alone, and its clock has a resolution of 1 ms at best;
* RTT samples within a second after a reduction are ignored, for the minimum RTT too;
* after idleness an epoch may start in the future; times are unsigned, so that is taken for a point far along the curve.

Units, as in the kernel: time of the curve in 1/1024 s, delays in ms << 3, the clock in ms.

Sources: [Linux415] net/ipv4/tcp_cubic.c; [RFC9438]; [Ha08] (CUBIC); [Ha11] (HyStart).
Differs from reno: everything above; the window limit of slow start is judged by packets out alone.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param
from cctrace.cc.cmath import idiv, s32, u32, u64, u64_div, u64_lt, u64_shr
from cctrace.cc.linux import CA_LOSS, EVENT_TX_START, USEC_PER_MSEC, before, msecs_to_jiffies
from cctrace.cc.reno import Reno

BETA_SCALE = 1024
BIC_HZ = 10  # the curve's clock ticks 2**10 times a second
CUBE_UNIT = 1 << (10 + 3 * BIC_HZ)  # over C * 1024: 1/C in the curve's units
MAX_CNT_UNKNOWN = 20  # before the first loss grow by 5 % a round at least

HYSTART_LOW_WINDOW = 16  # segments
HYSTART_MIN_SAMPLES = 8
HYSTART_ACK_DELTA_MS = 2
HYSTART_TRAIN = 1
HYSTART_DELAY = 2
HYSTART_DELAY_MIN = 4 << 3  # ms << 3
HYSTART_DELAY_MAX = 16 << 3

# cbrt of 0..63 on a scale of 64, offset by 10 to save a bit; some entries were tuned by hand for the least error of
# the iteration that follows, so the table cannot be recomputed [Linux415] cubic_root.
CBRT_TABLE = (
    0, 54, 54, 54, 118, 118, 118, 118, 123, 129, 134, 138, 143, 147, 151, 156,
    157, 161, 164, 168, 170, 173, 176, 179, 181, 185, 187, 190, 192, 194, 197, 199,
    200, 202, 204, 206, 209, 211, 213, 215, 217, 219, 221, 222, 224, 225, 227, 229,
    231, 232, 234, 236, 237, 239, 240, 242, 244, 245, 246, 248, 250, 251, 252, 254,
)  # fmt: skip


def bit_length(x: int) -> int:
    """Position of the highest set bit of a u64, counted from 1; 0 for 0 [Linux415] fls64."""
    bits = 0
    while x != 0:
        x = u64_shr(x, 1)
        bits += 1
    return bits


def cubic_root(a: int) -> int:
    """Cube root of a u64 by table and one Newton step, within 0.2 % on average [Linux415] cubic_root.

    >>> cubic_root(10**9)
    1000
    """
    bits = bit_length(a)
    if bits < 7:
        return (CBRT_TABLE[a] + 35) >> 6
    third = ((bits * 84) >> 8) - 1
    x = ((CBRT_TABLE[u64_shr(a, third * 3)] + 10) << third) >> 6
    x = u32(2 * x + u32(u64_div(a, x * (x - 1))))
    return u32(x * 341) >> 10


class Cubic(Reno):
    """CUBIC of Linux 4.15; see the module's header. Parameters are those of the module (beta there in 1024ths)."""

    params = Reno.params | {
        "beta": Param(717 / BETA_SCALE, 1 / BETA_SCALE, 1023 / BETA_SCALE, "cwnd after a loss, of what it was before"),
        "bic_scale": Param(41, 1, 1024, "C of the curve, 10/1024 segments/s^3: 0.4"),
        "fast_convergence": Param(1, 0, 1, "1: where the plateau falls, fall below it"),
        "tcp_friendliness": Param(1, 0, 1, "1: never slower than Reno would be"),
        "hystart": Param(1, 0, 1, "1: leave slow start before the loss"),
    }

    cnt: int = 0  # segments to be acked for one increment of cwnd
    last_max_cwnd: int = 0  # W_max, segments
    last_cwnd: int = 0
    last_time: int = 0  # jiffies
    bic_origin_point: int = 0  # the plateau, segments
    bic_K: int = 0  # time to the plateau, 1/1024 s
    delay_min: int = 0  # least RTT, ms << 3
    epoch_start: int = 0  # jiffies; 0: begin a new epoch
    ack_cnt: int = 0
    tcp_cwnd: int = 0  # what Reno would have
    found: int = 0
    # HyStart's round.
    round_start: int = 0
    last_ack: int = 0
    end_seq: int = 0
    sample_cnt: int = 0
    curr_rtt: int = 0

    # ---- entry points ----------------------------------------------------------------------------------------------

    def init(self, ack: Ack) -> None:
        """[Linux415] bictcp_init."""
        self.reset()
        self.start_hystart_round(ack)

    def cong_avoid(self, ack: Ack) -> None:
        """Slow start to ssthresh, then along the curve [Linux415] bictcp_cong_avoid."""
        if self.in_slow_start() and self.is_cwnd_limited(ack) and before(self.end_seq, ack.ack):
            self.start_hystart_round(ack)
        super().cong_avoid(ack)

    def avoid_congestion(self, ack: Ack, acked: int) -> None:
        """Grow as the curve says [Linux415] bictcp_cong_avoid."""
        self.update_cnt(ack, acked)
        self.additive_increase(self.cnt, acked)

    def ssthresh(self, ack: Ack) -> int:
        """End the epoch; give way faster where the plateau falls [Linux415] bictcp_recalc_ssthresh."""
        self.epoch_start = 0
        beta = self.beta_1024ths()
        # [RFC9438] §4.7: W_max = cwnd * (1 + beta_cubic) / 2
        if self.snd_cwnd < self.last_max_cwnd and self.fast_convergence != 0:
            self.last_max_cwnd = u32(self.snd_cwnd * (BETA_SCALE + beta)) // (2 * BETA_SCALE)
        else:
            self.last_max_cwnd = self.snd_cwnd  # W_max = cwnd
        # §4.6: ssthresh = flight_size * beta_cubic, here of cwnd
        return max(u32(self.snd_cwnd * beta) // BETA_SCALE, 2)

    def beta_1024ths(self) -> int:
        """Fixed point of the module."""
        return int(self.beta * BETA_SCALE)

    def set_state(self, ack: Ack) -> None:
        """A timeout forgets the path [Linux415] bictcp_state."""
        if ack.arg == CA_LOSS:
            self.reset()
            self.start_hystart_round(ack)

    def cwnd_event(self, ack: Ack) -> None:
        """Idle time does not count on the curve [Linux415] bictcp_cwnd_event."""
        if ack.arg != EVENT_TX_START:
            return
        idle = s32(ack.jiffies - ack.lsndtime)
        if self.epoch_start != 0 and idle > 0:
            self.epoch_start = u32(self.epoch_start + idle)
            if before(ack.jiffies, self.epoch_start):
                self.epoch_start = ack.jiffies

    def pkts_acked(self, ack: Ack) -> None:
        """Track the minimum RTT and run HyStart [Linux415] bictcp_acked."""
        if ack.rs_rtt_us < 0:
            return
        # Samples within a second after a recovery are ignored.
        if self.epoch_start != 0 and s32(ack.jiffies - self.epoch_start) < self.hz:
            return
        delay = max(self.delay_of(ack.rs_rtt_us), 1)
        if self.delay_min == 0 or self.delay_min > delay:
            self.delay_min = delay
        if self.hystart != 0:
            self.run_hystart(ack, delay)

    # ---- window ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """[Linux415] bictcp_reset."""
        self.cnt = 0
        self.last_max_cwnd = 0
        self.last_cwnd = 0
        self.last_time = 0
        self.bic_origin_point = 0
        self.bic_K = 0
        self.delay_min = 0
        self.epoch_start = 0
        self.ack_cnt = 0
        self.tcp_cwnd = 0
        self.found = 0

    def is_cwnd_limited(self, ack: Ack) -> bool:
        """Slow start may run ahead to twice what was used; else ask the stack [Linux415] tcp_is_cwnd_limited."""
        if self.in_slow_start():
            return self.snd_cwnd < 2 * ack.max_packets_out
        return ack.is_cwnd_limited != 0

    def delay_of(self, rtt_us: int) -> int:
        """RTT in the unit of `delay_min` [Linux415] bictcp_acked."""
        return u32(idiv(s32(rtt_us << 3), USEC_PER_MSEC))

    def delay_min_jiffies(self) -> int:
        """Minimum RTT in ticks, rounded up [Linux415] msecs_to_jiffies."""
        return msecs_to_jiffies(self.delay_min >> 3, self.hz)

    def update_cnt(self, ack: Ack, acked: int) -> None:
        """Set `cnt`, the segments to be acked for one increment [Linux415] bictcp_update."""
        cwnd = self.snd_cwnd
        self.ack_cnt = u32(self.ack_cnt + acked)
        if self.last_cwnd == cwnd and s32(ack.jiffies - self.last_time) <= self.hz // 32:
            return
        # The curve is followed once per tick at most; a reduction (epoch_start 0) forces it.
        if self.epoch_start == 0 or ack.jiffies != self.last_time:
            self.follow_curve(ack, acked, cwnd)
        self.keep_up_with_reno(cwnd)
        self.cnt = max(self.cnt, 2)

    def follow_curve(self, ack: Ack, acked: int, cwnd: int) -> None:
        """Reach in one round where the curve will be in a minimum RTT [Linux415] bictcp_update, [RFC9438] §4.4."""
        self.last_cwnd = cwnd
        self.last_time = ack.jiffies
        if self.epoch_start == 0:
            self.start_epoch(ack, acked, cwnd)
        target = self.target(ack)
        if target > cwnd:
            self.cnt = cwnd // (target - cwnd)  # cwnd grows by (target - cwnd) / cwnd for each segment ACKed
        else:
            self.cnt = u32(100 * cwnd)
        if self.last_max_cwnd == 0 and self.cnt > MAX_CNT_UNKNOWN:
            self.cnt = MAX_CNT_UNKNOWN

    def start_epoch(self, ack: Ack, acked: int, cwnd: int) -> None:
        """Put the curve's plateau where the last loss was, or here if we are above [Linux415] bictcp_update."""
        self.epoch_start = ack.jiffies
        self.ack_cnt = acked
        self.tcp_cwnd = cwnd
        if self.last_max_cwnd <= cwnd:
            self.bic_K = 0
            self.bic_origin_point = cwnd
        else:
            # [RFC9438] Eq. 2: K = cubic_root((W_max - cwnd_epoch) / C)
            self.bic_K = cubic_root(u64(CUBE_UNIT // (10 * self.bic_scale) * (self.last_max_cwnd - cwnd)))
            self.bic_origin_point = self.last_max_cwnd

    def target(self, ack: Ack) -> int:
        """W(t + minimum RTT) [Linux415] bictcp_update, [RFC9438] Eq. 1: W_cubic(t) = C * (t - K)^3 + W_max."""
        ticks = s32(ack.jiffies - self.epoch_start) + self.delay_min_jiffies()
        t = u64_div(u64(ticks << BIC_HZ), self.hz)  # unsigned: an epoch in the future lies very far ahead
        is_below = u64_lt(t, self.bic_K)
        distance = u64(t - self.bic_K)
        if is_below:
            distance = self.bic_K - t
        cube = u64(u64(u64(10 * self.bic_scale * distance) * distance) * distance)
        delta = u32(u64_shr(cube, 10 + 3 * BIC_HZ))
        if is_below:
            return u32(self.bic_origin_point - delta)
        return u32(self.bic_origin_point + delta)

    def keep_up_with_reno(self, cwnd: int) -> None:
        """Estimate Reno's window, and grow as fast if it is larger [Linux415] bictcp_update; [RFC9438] §4.3, Eq. 4."""
        if self.tcp_friendliness == 0:
            return
        beta = self.beta_1024ths()
        beta_reno = 8 * (BETA_SCALE + beta) // 3 // (BETA_SCALE - beta)  # 8 times Reno's window per its increment
        per_increment = max(u32(cwnd * beta_reno) >> 3, 1)
        if self.ack_cnt > per_increment:
            increments = (self.ack_cnt - 1) // per_increment  # in the kernel a loop
            self.ack_cnt = self.ack_cnt - increments * per_increment
            self.tcp_cwnd = u32(self.tcp_cwnd + increments)  # W_est = W_est + alpha_cubic * (segments_acked / cwnd)
        if self.tcp_cwnd > cwnd:
            self.cnt = min(self.cnt, cwnd // (self.tcp_cwnd - cwnd))

    # ---- HyStart ---------------------------------------------------------------------------------------------------

    def clock(self, ack: Ack) -> int:
        """Milliseconds: jiffies where they are as fine, else wall time [Linux415] bictcp_clock."""
        if self.hz == 1000:
            return ack.jiffies
        return u32(ack.now_us // USEC_PER_MSEC)

    def start_hystart_round(self, ack: Ack) -> None:
        """A round ends when what was sent by now is acked [Linux415] bictcp_hystart_reset."""
        self.round_start = self.clock(ack)
        self.last_ack = self.round_start
        self.end_seq = u32(ack.snd_nxt)
        self.curr_rtt = 0
        self.sample_cnt = 0

    def run_hystart(self, ack: Ack, delay: int) -> None:
        """Look for the two signs; set ssthresh here on either [Linux415] hystart_update."""
        if not self.in_slow_start() or self.snd_cwnd < HYSTART_LOW_WINDOW or self.found != 0:
            return
        now = self.clock(ack)
        if s32(now - self.last_ack) <= HYSTART_ACK_DELTA_MS:
            self.last_ack = now
            if u32(now - self.round_start) > self.delay_min >> 4:
                self.leave_slow_start(HYSTART_TRAIN)
        if self.sample_cnt < HYSTART_MIN_SAMPLES:
            if self.curr_rtt == 0 or self.curr_rtt > delay:
                self.curr_rtt = delay
            self.sample_cnt = self.sample_cnt + 1
        elif self.curr_rtt > u32(self.delay_min + min(max(self.delay_min >> 3, HYSTART_DELAY_MIN), HYSTART_DELAY_MAX)):
            self.leave_slow_start(HYSTART_DELAY)

    def leave_slow_start(self, sign: int) -> None:
        """Note which sign it was [Linux415] hystart_update."""
        self.found = self.found | sign
        self.snd_ssthresh = self.snd_cwnd
