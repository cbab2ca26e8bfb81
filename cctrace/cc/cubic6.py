"""CUBIC of today's Linux: HyStart as corrected in 6.14 and in the stable releases that backported the correction.

Model, states and window are those of `cubic`; HyStart counts in microseconds:

    sign 1   ACKs at most 2 ms apart for longer than the minimum RTT + the time of a burst (at most 1 ms);
             half of that where the sender does not pace
    sign 2   the least RTT of the round exceeds the minimum RTT by an eighth (4 to 16 ms), from the 9th sample on

Sources: [Linux614] net/ipv4/tcp_cubic.c, include/net/tcp.h.   Differs from cubic:

* delays and HyStart's clock are us; the train's threshold allows for pacing and bursts;
* the round's least RTT goes on falling after the 8th sample, so that one late sample does not end slow start;
* a round ends with the ACK that passes its end, even below 16 segments and while cwnd is not the limit;
* the stack remembers for a round trip that cwnd was the limit.

The last two of these are a correction of 6.14 that stable releases backported: Debian's 6.12.117 has it too. A kernel's
version therefore says little, and `identify` goes by behaviour.

No golden vectors exist. In recordings of 6.18 and 6.12.117, of sockets that pace (`paced`, see reno) and of others,
slow start ends where this class ends it.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.cmath import U32_MAX, s32, u32, u64_div
from cctrace.cc.cubic import HYSTART_DELAY, HYSTART_LOW_WINDOW, HYSTART_MIN_SAMPLES, HYSTART_TRAIN, Cubic
from cctrace.cc.linux import GSO_MAX_SIZE, USEC_PER_MSEC, USEC_PER_SEC, before, stack_pacing_rate
from cctrace.cc.reno import Reno

HYSTART_ACK_DELTA_US = 2000
HYSTART_DELAY_MIN_US = 4000
HYSTART_DELAY_MAX_US = 16000
UNSET_RATE = -1  # ~0UL: where nothing set or observed the pacing rate, it is computed as the stack would


class Cubic6(Cubic):
    """CUBIC of today's Linux; see the module's header."""

    prior_srtt8: int = 0  # smoothed RTT at the ACK before, us << 3

    cong_avoid = Reno.cong_avoid
    is_cwnd_limited = Reno.is_cwnd_limited

    def delay_of(self, rtt_us: int) -> int:
        """Microseconds."""
        return u32(rtt_us)

    def delay_min_jiffies(self) -> int:
        """Minimum RTT in ticks, rounded up [Linux614] usecs_to_jiffies."""
        return (self.delay_min * self.hz + USEC_PER_SEC - 1) // USEC_PER_SEC

    def clock(self, ack: Ack) -> int:
        """Microseconds [Linux614] bictcp_clock_us."""
        return u32(ack.now_us)

    def start_hystart_round(self, ack: Ack) -> None:
        """[Linux614] bictcp_hystart_reset."""
        super().start_hystart_round(ack)
        self.curr_rtt = U32_MAX

    def pkts_acked(self, ack: Ack) -> None:
        """[Linux614] cubictcp_acked; sk_pacing_rate is still that of the ACK before."""
        super().pkts_acked(ack)
        self.prior_srtt8 = ack.srtt_us8

    def burst_us(self, ack: Ack) -> int:
        """Time of four of the largest bursts at the pacing rate, at most 1 ms [Linux614] hystart_ack_delay."""
        rate = self.pacing_rate
        if rate == UNSET_RATE and self.prior_srtt8 != 0:
            rate = stack_pacing_rate(ack.mss, self.snd_cwnd, self.snd_ssthresh, ack.packets_out, self.prior_srtt8)
        if rate == 0:
            return 0
        return min(u64_div(GSO_MAX_SIZE * 4 * USEC_PER_SEC, rate), USEC_PER_MSEC)

    def run_hystart(self, ack: Ack, delay: int) -> None:
        """Look for the two signs [Linux614] hystart_update."""
        if self.found != 0 or not self.in_slow_start():
            return
        if before(self.end_seq, ack.snd_una):
            self.start_hystart_round(ack)
        if self.snd_cwnd < HYSTART_LOW_WINDOW:
            return
        now = self.clock(ack)
        if s32(now - self.last_ack) <= HYSTART_ACK_DELTA_US:
            self.last_ack = now
            threshold = u32(self.delay_min + self.burst_us(ack))
            if self.paced == 0:
                threshold = threshold >> 1
            if u32(now - self.round_start) > threshold:
                self.leave_slow_start(HYSTART_TRAIN)
        self.curr_rtt = min(self.curr_rtt, delay)
        margin = min(max(self.delay_min >> 3, HYSTART_DELAY_MIN_US), HYSTART_DELAY_MAX_US)
        if self.sample_cnt < HYSTART_MIN_SAMPLES:
            self.sample_cnt = self.sample_cnt + 1
        elif self.curr_rtt > u32(self.delay_min + margin):
            self.leave_slow_start(HYSTART_DELAY)
