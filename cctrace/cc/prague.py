"""TCP Prague as released for Linux: DCTCP's answer to marks, adapted to the Internet's RTTs.

Model:  once a round, of 25 ms at least    alpha = (1 - g) * alpha + g * F       F: share of marks, g = 1/16
        marks           window * (1 - alpha / 2), at most once a round (state CWR); the first mark of all halves it
        every ACK       window + increase * (segments acked - segments marked) / window
        losses          window / 2, at most once a recovery

        SLOW_START --(cwnd reached ssthresh, or the window shrank)--> CONGESTION_AVOIDANCE

The window is a fraction (20 bits); cwnd follows it, by one segment an ACK, and never goes below 2. From four rounds
after slow start on the increase shrinks by the square of RTT / 25 ms on shorter paths, so that flows of all RTTs up to
25 ms get the same rate for the same marks. It paces at window / RTT. While the window is at most four packets of 1500
bytes the rate itself grows and shrinks, and sending is 3 % faster in one half of a round and 3 % slower in the other.
It needs AccECN, which it negotiates by itself, and sends ECT(1), by which queues recognise scalable flows. Without
AccECN the kernel uses Reno in its place.

Sources: [Prague07] net/ipv4/tcp_prague.c; [RFC9331].   Differs from dctcp in:

* fractions, the increase also during CWR, pacing, independence of the RTT, the rate instead of the window.

Quirks: the increase counts all segments that an ACK delivers unmarked, also those sent in the last round;
`max(acked, increase)` adds at least 2**-20 of a segment per segment acked; a spurious loss restores the rate, from
which the window follows. Below 1 Mbit/s packets shrink (tcp_sync_mss), parameter `resizes_packets`.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import LinuxController, Param
from cctrace.cc.cmath import u32
from cctrace.cc.linux import CA_CWR, CA_OPEN, CA_RECOVERY, EVENT_LOSS, MTU_HEADERS, USEC_PER_SEC, before

ALPHA_BITS = 24
MAX_ALPHA = 1 << ALPHA_BITS
CWND_UNIT = 20
ONE_CWND = 1 << CWND_UNIT
SHIFT_G = 4
MIN_CWND = 2
MIN_MTU = 150 + MTU_HEADERS
MINIMUM_RATE = 12_500  # bytes/s
MAX_SCALED_RTT8 = 100_000 << 3  # us, in eighths as srtt
MTU_SYS = 1500
RATE_OFFSET, OFFSET_UNIT = 4, 7  # 4/128
HSRTT_SHIFT = 7
RTT2SEC_SHIFT = 23  # of us in eighths, to a second of 2**20 us


def product_shr(a: int, b: int, shift: int) -> int:
    """(a * b) >> shift without an overflow of 64 bits, for b < 2**43 << shift [Linux61] mul_u64_u64_shr."""
    return a * (b >> shift) + ((a * (b & ((1 << shift) - 1))) >> shift)


class Prague(LinuxController):
    """TCP Prague 0.7; see the module's header."""

    sets_pacing_rate = True
    ecn_echo = "accurate"
    ect_1 = True
    params = LinuxController.params | {
        "burst_shift": Param(12, 0, 31, "longest burst, 1/2**n s at the pacing rate (prague_burst_shift)"),
        "rtt_transition": Param(
            4, 0, 1 << 20, "rounds after slow start until RTTs count alike (prague_rtt_transition)"
        ),
        "rtt_target_us": Param(25_000, 1, 1 << 24, "RTT below which rates are alike, us (prague_rtt_target)"),
        "alpha_mode": Param(0, 0, 1, "1: alpha starts at 1; 0: the first mark halves the window (prague_alpha_mode)"),
        "cwnd_mode": Param(2, 0, 2, "0: by window, 1: by rate, 2: by rate where it is small (prague_cwnd_mode)"),
        "cwnd_transit": Param(4, 0, 1 << 10, "what is small, packets of 1500 bytes (prague_cwnd_transit)"),
        "resizes_packets": Param(1, 0, 1, "0: the stack's MSS stays, as in a simulation"),
    }
    states = ("SLOW_START", "CONGESTION_AVOIDANCE")
    transitions = {
        ("SLOW_START", "CONGESTION_AVOIDANCE"): "cwnd reached ssthresh, or shrank",
        ("CONGESTION_AVOIDANCE", "SLOW_START"): "a timeout cut cwnd to 1",
    }
    golden_names = {"s_cwnd_mode": "by_rate"}

    cwr_stamp: int = 0  # us, of the last reduction
    alpha_stamp: int = 0
    upscaled_alpha: int = 0  # alpha * 2**4, of 2**24
    ai_ack_increase: int = 0  # segments per window acked, 2**-20
    mtu_cache: int = 0
    hsrtt_us: int = 0  # smoothed srtt, in eighths, * 2**7
    frac_cwnd: int = 0  # segments, 2**-20
    rate_bytes: int = 0
    loss_rate_bytes: int = 0
    loss_cwnd: int = 0
    max_tso_burst: int = 0
    old_delivered: int = 0
    old_delivered_ce: int = 0
    next_seq: int = 0
    round: int = 0
    saw_ce: int = 0
    by_rate: int = 0  # [Prague07] cwnd_mode of struct prague
    in_loss: int = 0
    mtu: int = 0  # of the packets now, with headers
    marks_before: int = 0  # delivered_ce at the last ACK: the kernel's rs->ece_delta is what came since

    def init(self, ack: Ack) -> None:
        """[Prague07] prague_init."""
        self.mtu = ack.mss + MTU_HEADERS
        self.alpha_stamp = ack.now_us
        self.upscaled_alpha = MAX_ALPHA << SHIFT_G if self.alpha_mode == 1 else 0
        self.frac_cwnd = self.snd_cwnd << CWND_UNIT
        self.rate_bytes = MINIMUM_RATE
        if ack.srtt_us8 > 0:
            packets = max(self.snd_cwnd, self.packets_in_flight(ack))
            self.rate_bytes = max(MINIMUM_RATE, self.packet_rate(ack) * packets)
        self.update_pacing_rate(ack)
        self.saw_ce = 1 if ack.delivered_ce > 0 else 0
        self.marks_before = ack.delivered_ce
        self.mtu_cache = self.mtu
        self.hsrtt_us = ack.srtt_us8 << HSRTT_SHIFT if ack.srtt_us8 > 0 else 8 << HSRTT_SHIFT
        self.by_rate = 1 if self.cwnd_mode == 1 else 0
        self.new_round(ack)

    def on_ack(self, ack: Ack) -> None:
        """[Prague07] prague_cong_control."""
        self.mtu = ack.mss + MTU_HEADERS
        self.update_cwnd(ack)
        if self.round_elapsed(ack):
            self.update_alpha(ack)
        self.update_pacing_rate(ack)
        if self.cwnd_mode == 2:
            self.choose_mode(ack)

    def update_cwnd(self, ack: Ack) -> None:
        """Grow by what was not marked; cwnd follows [Prague07] prague_update_cwnd."""
        acked = ack.rs_acked_sacked
        marks = u32(ack.delivered_ce - self.marks_before)
        self.marks_before = ack.delivered_ce
        if marks > 0:
            if self.saw_ce == 0 and self.alpha_mode == 0:
                self.frac_cwnd = (self.frac_cwnd + 1) >> 1
            self.saw_ce = 1
            acked = acked - marks
        if acked > 0 and self.in_loss == 0 and self.is_cwnd_limited(ack):
            if self.in_slow_start():
                acked = self.slow_start(acked)
                self.frac_cwnd = self.snd_cwnd << CWND_UNIT
                if acked == 0:
                    self.set_increase(ack)
                    return
            self.grow(ack, acked)
        self.follow(ack)

    def grow(self, ack: Ack, acked: int) -> None:
        """[Prague07] the middle of prague_update_cwnd."""
        if self.goes_by_rate():
            rtt = self.virtual_rtt(ack)
            increase = ((acked * MTU_SYS) << RTT2SEC_SHIFT) // rtt
            divisor = self.mtu << RTT2SEC_SHIFT
            window = (self.rate_bytes * rtt + divisor - 1) // divisor
            if window > 0:
                self.rate_bytes = self.rate_bytes + (increase + window // 2) // window
            self.frac_cwnd = max(self.frac_cwnd + acked, self.cwnd_of_rate(ack))
            return
        increase = acked * self.ai_ack_increase
        if self.frac_cwnd > 0:
            increase = ((increase << CWND_UNIT) + self.frac_cwnd // 2) // self.frac_cwnd
        self.frac_cwnd = self.frac_cwnd + max(acked, increase * MTU_SYS // self.mtu)
        self.rate_bytes = max(self.rate_bytes + acked, self.rate_of_cwnd(ack))

    def follow(self, ack: Ack) -> None:
        """Take cwnd a segment closer to the window [Prague07] the end of prague_update_cwnd."""
        wanted = self.whole_cwnd()
        if self.snd_cwnd > wanted:
            self.snd_cwnd = self.snd_cwnd - 1
            self.snd_ssthresh = self.snd_cwnd
            self.set_increase(ack)
        elif self.snd_cwnd < wanted:
            self.snd_cwnd = self.snd_cwnd + 1
            self.set_increase(ack)

    def round_elapsed(self, ack: Ack) -> bool:
        """Whether a round has ended, which may not be shorter than the target [Prague07] prague_should_update_ewma."""
        if before(u32(ack.snd_una), self.next_seq):
            return False
        return not self.is_rtt_independent() or self.since(ack, self.alpha_stamp) >= self.rtt_target_us

    def update_alpha(self, ack: Ack) -> None:
        """Update alpha with a round's share of marks [Prague07] prague_update_alpha."""
        if self.saw_ce == 1:
            alpha = self.upscaled_alpha - (self.upscaled_alpha >> SHIFT_G)
            marks = u32(ack.delivered_ce - self.old_delivered_ce)
            if marks > 0:
                alpha = alpha + (marks << ALPHA_BITS) // max(1, u32(ack.delivered - self.old_delivered))
            self.alpha_stamp = ack.now_us
            self.upscaled_alpha = min(MAX_ALPHA << SHIFT_G, alpha)
            if self.is_rtt_independent() and self.in_loss == 0 and self.resizes_packets == 1:
                self.resize_packets(ack)
        self.hsrtt_us = self.hsrtt_us + ack.srtt_us8 - (self.hsrtt_us >> HSRTT_SHIFT)
        self.new_round(ack)

    def resize_packets(self, ack: Ack) -> None:
        """Make packets so small that there are two in a target RTT [Prague07] within prague_update_alpha."""
        mtu = max(min(self.mtu_cache, u32(self.wanted_mtu(ack))), MIN_MTU)
        if mtu == self.mtu:
            return
        self.frac_cwnd = self.frac_cwnd * self.mtu // mtu
        used = self.mtu
        self.mtu = mtu
        wanted = self.whole_cwnd()
        if self.snd_cwnd != wanted:
            self.snd_cwnd = wanted
            self.snd_ssthresh = u32(u32(self.snd_ssthresh * used) // mtu)
            self.set_increase(ack)

    def wanted_mtu(self, ack: Ack) -> int:
        """[Prague07] prague_pacing_rate_to_max_mtu."""
        if self.goes_by_rate():
            window = product_shr(self.rate_bytes, self.virtual_rtt(ack), RTT2SEC_SHIFT)
        else:
            scaled = self.frac_cwnd
            if ack.srtt_us8 < self.target_rtt8():
                scaled = scaled * self.target_rtt8() // ack.srtt_us8
            window = product_shr(self.mtu, scaled, CWND_UNIT)
        return (window + 1) // 2

    def new_round(self, ack: Ack) -> None:
        """[Prague07] prague_new_round."""
        self.next_seq = u32(ack.snd_nxt)
        self.old_delivered_ce = ack.delivered_ce
        self.old_delivered = ack.delivered
        if not self.in_slow_start():
            self.round = u32(self.round + 1)
            if self.round == 0:
                self.round = self.rtt_transition
        self.set_increase(ack)

    def set_increase(self, ack: Ack) -> None:
        """Slow the increase on paths shorter than the target [Prague07] prague_ai_ack_increase."""
        rtt, target = ack.srtt_us8, self.target_rtt8()
        self.ai_ack_increase = ONE_CWND
        if self.round >= self.rtt_transition and 0 < rtt <= MAX_SCALED_RTT8 and rtt < target:
            divisor = target * target
            self.ai_ack_increase = ((rtt << CWND_UNIT) * rtt + divisor // 2) // divisor

    def update_pacing_rate(self, ack: Ack) -> None:
        """[Prague07] prague_update_pacing_rate."""
        if self.goes_by_rate():
            offset = (RATE_OFFSET * self.rate_bytes) >> OFFSET_UNIT
            second_half = self.since(ack, self.alpha_stamp) >= self.virtual_rtt(ack) >> 4
            rate = self.rate_bytes - offset if second_half else self.rate_bytes + offset
        else:
            packets = max(u32(self.frac_cwnd >> CWND_UNIT), self.packets_in_flight(ack))
            rate = max(self.packet_rate(ack) * packets, MINIMUM_RATE)
            self.rate_bytes = rate
        if self.snd_cwnd < self.snd_ssthresh // 2:
            rate = rate << 1
        self.max_tso_burst = max(1, u32((rate // self.mtu) >> self.burst_shift))
        self.pacing_rate = rate

    def choose_mode(self, ack: Ack) -> None:
        """By rate where the window is small and marks have come [Prague07] the end of prague_cong_control."""
        small = self.snd_cwnd * self.mtu <= self.cwnd_transit * MTU_SYS
        if self.saw_ce == 1 and small:
            self.by_rate = 1
            self.frac_cwnd = self.cwnd_of_rate(ack)
        else:
            self.by_rate = 0
            self.rate_bytes = self.rate_of_cwnd(ack)

    def set_state(self, ack: Ack) -> None:
        """[Prague07] prague_state."""
        if ack.arg == ack.ca_state:
            return
        if ack.arg == CA_RECOVERY:
            self.enter_loss(ack)
        elif ack.arg == CA_CWR:
            self.enter_cwr(ack)
        elif ack.arg == CA_OPEN:
            self.in_loss = 0

    def enter_cwr(self, ack: Ack) -> None:
        """Shrink by half of alpha, once in a target RTT [Prague07] prague_enter_cwr."""
        if self.is_rtt_independent() and self.since(ack, self.cwr_stamp) < self.rtt_target_us:
            return
        self.mtu = ack.mss + MTU_HEADERS
        self.cwr_stamp = ack.now_us
        alpha = self.upscaled_alpha >> SHIFT_G
        if self.goes_by_rate():
            cut = product_shr(alpha, self.rate_bytes, ALPHA_BITS + 1)
            self.rate_bytes = max(self.rate_bytes - cut, MINIMUM_RATE)
            self.frac_cwnd = self.cwnd_of_rate(ack)
        else:
            self.frac_cwnd = self.frac_cwnd - ((alpha * self.frac_cwnd + MAX_ALPHA) >> (ALPHA_BITS + 1))
            self.rate_bytes = self.rate_of_cwnd(ack)

    def enter_loss(self, ack: Ack) -> None:
        """Halve [Prague07] prague_enter_loss."""
        self.mtu = ack.mss + MTU_HEADERS
        self.loss_cwnd = self.snd_cwnd
        self.loss_rate_bytes = self.rate_bytes
        if self.goes_by_rate():
            self.rate_bytes = self.rate_bytes - (self.rate_bytes >> 1)
            self.frac_cwnd = self.cwnd_of_rate(ack)
        else:
            self.frac_cwnd = self.frac_cwnd - (self.frac_cwnd >> 1)
            self.rate_bytes = self.rate_of_cwnd(ack)
        self.in_loss = 1

    def cwnd_event(self, ack: Ack) -> None:
        """[Prague07] prague_cwnd_event."""
        if ack.arg == EVENT_LOSS:
            self.enter_loss(ack)

    def ssthresh(self, ack: Ack) -> int:
        """Leave ssthresh: cwnd is led by the window [Prague07] prague_ssthresh."""
        return self.snd_ssthresh

    def undo_cwnd(self, ack: Ack) -> int:
        """[Prague07] prague_cwnd_undo."""
        self.mtu = ack.mss + MTU_HEADERS
        self.in_loss = 0
        self.rate_bytes = max(self.rate_bytes, self.loss_rate_bytes)
        self.frac_cwnd = self.cwnd_of_rate(ack)
        return max(self.loss_cwnd, self.snd_cwnd)

    def whole_cwnd(self) -> int:
        """The window, rounded up [Prague07] prague_frac_cwnd_to_snd_cwnd."""
        return max(MIN_CWND, u32((self.frac_cwnd + ONE_CWND - 1) >> CWND_UNIT))

    def packet_rate(self, ack: Ack) -> int:
        """Bytes/s of one packet per RTT."""
        rate = (USEC_PER_SEC << 3) * self.mtu
        return rate // ack.srtt_us8 if ack.srtt_us8 > 0 else rate

    def rate_of_cwnd(self, ack: Ack) -> int:
        """[Prague07] prague_frac_cwnd_to_pacing_rate."""
        return max(product_shr(self.packet_rate(ack), self.frac_cwnd, CWND_UNIT), MINIMUM_RATE)

    def cwnd_of_rate(self, ack: Ack) -> int:
        """[Prague07] prague_pacing_rate_to_frac_cwnd."""
        rtt = self.hsrtt_us >> HSRTT_SHIFT
        if rtt == 0:
            rtt = ack.srtt_us8
        return (product_shr(self.rate_bytes, rtt, RTT2SEC_SHIFT - CWND_UNIT) + self.mtu - 1) // self.mtu

    def target_rtt8(self) -> int:
        """The target, in eighths of us [Prague07] prague_target_rtt."""
        return self.rtt_target_us << 3

    def virtual_rtt(self, ack: Ack) -> int:
        """[Prague07] prague_virtual_rtt, in eighths of us."""
        return max(self.target_rtt8(), ack.srtt_us8)

    def since(self, ack: Ack, stamp_us: int) -> int:
        """[Linux61] tcp_stamp_us_delta."""
        return max(ack.now_us - stamp_us, 0)

    def is_rtt_independent(self) -> bool:
        """[Prague07] prague_is_rtt_indep."""
        return not self.in_slow_start() and self.round >= self.rtt_transition

    def goes_by_rate(self) -> bool:
        """Whether the rate is what grows and shrinks."""
        return self.by_rate == 1 and self.is_rtt_independent()
