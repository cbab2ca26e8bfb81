"""TCP Prague as L4STeam's kernels of April 2020 had it, which detects a classic AQM and then falls back.

Model:  every ACK       credit + (segments acked - segments marked) / cwnd
        marks           credit - cwnd * max(alpha, c) / 2, at most once a round (state CWR); alpha starts at 1
        a round         c += lg(mean deviation of the RTT / 750 us) / 2 + max(lg(queueing delay / 2 ms), 0) / 2
        losses          credit - cwnd / 2

cwnd follows its credit by one segment an ACK and never goes below 2. c is 0 until the sum exceeds 8, then 5/8 of the
excess, which counts up to 1. It estimates how likely marks are those of a classic AQM, whose queue is longer and varies
more: against DualPI2 at 5 Mbit/s, where a packet takes 2.4 ms, it errs and Prague behaves as Reno.

Sources: [Prague06] net/ipv4/tcp_prague.c; its predecessor [Prague05]; [Briscoe19].   Differs from prague in:

* an integer window and its credit instead of a fractional window; no rate of its own, no smaller packets; alpha in
  2**-20, starts at 1; the fallback; no independence of the RTT unless `rtt_transition` asks for it; growth also while
  the stack's own pacing timer, and not cwnd, holds the sender back.

The parameters here default to the module's of that April: with them, and with what its kernel does to ACE
(`cctrace.flows.ecn.misses_marks`), the class explains L4STeam's captures (docs/ecn.md). The version published later,
0.6, has prague_ecn_fallback 0, prague_rtt_transition 500, and growth only where cwnd is the limit (`internal_pacing`
0); the vectors are from that version. Quirks: RTTs count in 128 us where they slow the increase; an increase in slow
start leaves the credit; the gains of smoothed RTT and deviation depend on ssthresh and are 2**-18 until it is known;
the minimum RTT here never expires (there after 300 s).
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param
from cctrace.cc.cmath import u32
from cctrace.cc.linux import MTU_HEADERS, USEC_PER_SEC, before
from cctrace.cc.prague import CWND_UNIT, MIN_CWND, ONE_CWND, SHIFT_G, Prague

ALPHA_BITS = 20
MAX_ALPHA = 1 << ALPHA_BITS
MAX_SRTT_BITS = 18
MDEV_CARRY = 741_455  # 2**(19 + 0.5)
ROUNDING = 1 << MAX_SRTT_BITS
WEIGHT = 1  # both logarithms count half
VARIES_LG = 10_014_683 >> WEIGHT  # lg(750), of 2**20
QUEUES_LG = 11_498_458 >> WEIGHT  # lg(2000)
L4S = 16 << (ALPHA_BITS - WEIGHT)  # up to which the sum says: an AQM for L4S
CLASSIC = L4S + MAX_ALPHA
MAX_CLASSIC = CLASSIC + L4S
NO_ECN_FALLBACK, FALLS_BACK = 0, 1
RTT_UNIT = 7  # RTTs for their independence are in 128 us
MAX_SCALED_RTT = 100_000  # of that unit: meant as 100 ms, it excludes none


def floor_lg(value: int) -> int:
    """Return the position of the highest bit of a positive number [Linux61] ilog2."""
    bits = 0
    while value > 1:
        value = value >> 1
        bits = bits + 1
    return bits


class Prague2020(Prague):
    """TCP Prague of L4STeam's 5.4-rc3; see the module's header."""

    params = {name: Prague.params[name] for name in ("hz", "burst_shift", "rtt_target_us")} | {
        "rtt_transition": Prague.params["rtt_transition"]._replace(default=1 << 20),
        "ecn_fallback": Param(1, 0, 2, "1: falls back behind a classic AQM, 2: only detects it (prague_ecn_fallback)"),
        "internal_pacing": Param(1, 0, 1, "1: also grows while the stack's pacing timer limits; 0: fq paces, or 0.6"),
    }
    golden_names = {
        "s_cwnd_cnt": "credit",
        "s_loss_cwnd_cnt": "loss_credit",
        "s_g_srtt_shift": "srtt_shift",
        "s_srtt_pace_us": "smoothed_rtt",
        "s_mdev_pace_us": "deviation",
        "s_rest_mdev_us": "rest_of_deviation",
        "s_rest_depth_us": "rest_of_queue",
    }

    credit: int = 0  # [Prague06] cwnd_cnt: segments, 2**-20, by which cwnd is to change
    loss_credit: int = 0
    srtt_shift: int = MAX_SRTT_BITS
    smoothed_rtt: int = 0  # us * 2**srtt_shift
    deviation: int = 0  # us * 2**(srtt_shift + 1)
    min_rtt_us: int = -1
    rest_of_deviation: int = MDEV_CARRY
    rest_of_queue: int = MDEV_CARRY >> 1
    classic_ecn: int = 0

    def init(self, ack: Ack) -> None:
        """[Prague06] prague_init."""
        if ack.srtt_us8 > 0:
            self.update_pacing_rate(ack)
        self.max_tso_burst = 1
        self.alpha_stamp = ack.now_us
        self.upscaled_alpha = MAX_ALPHA << SHIFT_G
        self.saw_ce = 1 if ack.delivered_ce > 0 else 0
        self.marks_before = ack.delivered_ce
        self.smoothed_rtt = (ack.srtt_us8 >> 3) << self.srtt_shift
        self.deviation = 1 << (self.srtt_shift + 1)
        self.new_round(ack)

    def pkts_acked(self, ack: Ack) -> None:
        """Smooth the RTT [Prague06] prague_rtt_estimator."""
        if ack.rs_rtt_us < 0:
            return
        if self.min_rtt_us < 0 or ack.rs_rtt_us < self.min_rtt_us:
            self.min_rtt_us = ack.rs_rtt_us
        if self.smoothed_rtt == 0:
            self.smoothed_rtt = max(1, ack.rs_rtt_us << self.srtt_shift)
            self.deviation = 1 << (self.srtt_shift + 1)
            return
        error = ack.rs_rtt_us - (self.smoothed_rtt >> self.srtt_shift)
        self.smoothed_rtt = max(1, self.smoothed_rtt + error)
        self.deviation = self.deviation + abs(error) - (self.deviation >> (self.srtt_shift + 1))

    def on_ack(self, ack: Ack) -> None:
        """[Prague06] prague_cong_control."""
        self.update_cwnd(ack)
        if self.round_elapsed(ack):
            self.update_alpha(ack)
        self.update_pacing_rate(ack)

    def update_cwnd(self, ack: Ack) -> None:
        """Grow by what was not marked; cwnd follows [Prague06] prague_update_cwnd."""
        marks = u32(ack.delivered_ce - self.marks_before)
        self.marks_before = ack.delivered_ce
        acked = ack.rs_acked_sacked - marks
        if marks > 0:
            self.saw_ce = 1
        if acked > 0 and self.in_loss == 0 and self.is_cwnd_limited(ack):
            if self.in_slow_start():
                acked = self.slow_start(acked)
                if acked == 0:
                    self.set_increase(ack)
                    return
            increase = (acked * self.ai_ack_increase + (self.snd_cwnd >> 1)) // max(self.snd_cwnd, 1)
            self.credit = self.credit + max(acked, increase)
        self.follow(ack)

    def follow(self, ack: Ack) -> None:
        """Take cwnd a segment along [Prague06] the end of prague_update_cwnd."""
        if self.credit <= -ONE_CWND:
            self.credit = self.credit + ONE_CWND
            self.snd_cwnd = self.snd_cwnd - 1
            if self.snd_cwnd < MIN_CWND:
                self.snd_cwnd = MIN_CWND
                self.credit = 0
            self.snd_ssthresh = self.snd_cwnd
            self.set_increase(ack)
        elif self.credit >= ONE_CWND:
            self.credit = self.credit - ONE_CWND
            self.snd_cwnd = self.snd_cwnd + 1
            self.set_increase(ack)

    def is_cwnd_limited(self, ack: Ack) -> bool:
        """Whether cwnd may grow: in slow start twice what was used exceeds it, as in `cubic` [Linux415] same name.

        With a pacing timer of the stack's own also if data are waiting [Prague05] prague_update_cwnd.
        """
        if self.internal_pacing == 1 and self.app_limited == 0:
            return True
        if self.in_slow_start():
            return self.snd_cwnd < 2 * ack.max_packets_out
        return ack.is_cwnd_limited != 0

    def is_rtt_independent(self) -> bool:
        """[Prague06] prague_is_rtt_indep."""
        return self.rtt_target_us >> RTT_UNIT > 0 and not self.in_slow_start() and self.round >= self.rtt_transition

    def is_within_target(self, ack: Ack, stamp: int) -> bool:
        """Whether less than a target RTT has passed, which is rounded to its unit [Prague06] RTT2US."""
        return self.is_rtt_independent() and self.since(ack, stamp) < self.rtt_target_us >> RTT_UNIT << RTT_UNIT

    def round_elapsed(self, ack: Ack) -> bool:
        """[Prague06] prague_should_update_ewma."""
        return not before(u32(ack.snd_una), self.next_seq) and not self.is_within_target(ack, self.alpha_stamp)

    def set_increase(self, ack: Ack) -> None:
        """Slow the increase on paths shorter than the target [Prague06] prague_ai_ack_increase."""
        rtt, target = ack.srtt_us8 >> 3 >> RTT_UNIT, self.rtt_target_us >> RTT_UNIT
        self.ai_ack_increase = ONE_CWND
        if self.round >= self.rtt_transition and 0 < rtt < target and rtt <= MAX_SCALED_RTT:
            divisor = target * target
            self.ai_ack_increase = ((rtt << CWND_UNIT) * rtt + (divisor >> 1)) // divisor

    def update_alpha(self, ack: Ack) -> None:
        """Update alpha with a round's share of marks [Prague06] prague_update_alpha."""
        if self.saw_ce == 1:
            if self.ecn_fallback != NO_ECN_FALLBACK:
                self.detect_classic_aqm()
            alpha = self.upscaled_alpha - (self.upscaled_alpha >> SHIFT_G)
            marks = u32(ack.delivered_ce - self.old_delivered_ce)
            alpha = alpha + (marks << ALPHA_BITS) // max(1, u32(ack.delivered - self.old_delivered))
            self.upscaled_alpha = min(MAX_ALPHA << SHIFT_G, alpha)
            self.alpha_stamp = ack.now_us
        self.new_round(ack)

    def detect_classic_aqm(self) -> None:
        """Add a round's evidence; what logarithms lose is carried [Prague06] prague_classic_ecn_detection."""
        rtt_us = self.smoothed_rtt >> self.srtt_shift
        if rtt_us == 0 or self.min_rtt_us < 0:
            return
        mdev_shift = self.srtt_shift + 1
        rounding = ROUNDING >> (MAX_SRTT_BITS - self.srtt_shift)
        scaled = (self.deviation >> mdev_shift) * self.rest_of_deviation + rounding
        lg = max(floor_lg(scaled), mdev_shift) - mdev_shift
        self.rest_of_deviation = u32(scaled >> lg)
        found = self.classic_ecn + (lg << (ALPHA_BITS - WEIGHT)) - VARIES_LG
        if rtt_us > self.min_rtt_us:
            scaled = (rtt_us - self.min_rtt_us) * self.rest_of_queue + (rounding >> 1)
            lg = max(floor_lg(scaled), self.srtt_shift) - self.srtt_shift
            self.rest_of_queue = u32(scaled >> lg)
            found = found + max((lg << (ALPHA_BITS - WEIGHT)) - QUEUES_LG, 0)
        self.classic_ecn = min(max(found, 0), MAX_CLASSIC)

    def update_pacing_rate(self, ack: Ack) -> None:
        """[Prague06] prague_update_pacing_rate."""
        mtu = ack.mss + MTU_HEADERS
        rate = (USEC_PER_SEC << 3) * mtu
        if self.snd_cwnd < self.snd_ssthresh // 2:
            rate = rate << 1
        if ack.srtt_us8 > 0:
            rate = rate // ack.srtt_us8
        self.pacing_rate = rate * max(self.snd_cwnd, self.packets_in_flight(ack))
        self.max_tso_burst = max(1, u32((self.pacing_rate // mtu) >> self.burst_shift))

    def enter_cwr(self, ack: Ack) -> None:
        """Shrink by half of alpha, or more behind a classic AQM [Prague06] prague_enter_cwr."""
        if self.is_within_target(ack, self.cwr_stamp):
            return
        self.cwr_stamp = ack.now_us
        alpha = self.upscaled_alpha >> SHIFT_G
        if self.ecn_fallback == FALLS_BACK and self.classic_ecn > L4S:
            classic = min(self.classic_ecn, CLASSIC) - L4S
            alpha = max(alpha, (classic >> 1) + (classic >> 3))
        self.credit = self.credit - ((alpha * (self.snd_cwnd << CWND_UNIT) + MAX_ALPHA) >> (ALPHA_BITS + 1))

    def enter_loss(self, ack: Ack) -> None:
        """Halve [Prague06] prague_enter_loss."""
        self.loss_cwnd = self.snd_cwnd
        self.loss_credit = self.credit
        self.credit = self.credit - ((self.snd_cwnd << (CWND_UNIT - 1)) + (self.credit >> 1))
        self.in_loss = 1
        self.set_increase(ack)

    def ssthresh(self, ack: Ack) -> int:
        """Leave ssthresh; longer rounds smooth RTT and deviation more slowly [Prague06] prague_ssthresh."""
        bits = floor_lg(self.snd_ssthresh)
        shift = min(bits + (bits >> 1) + 1, MAX_SRTT_BITS)
        more, less = max(shift - self.srtt_shift, 0), max(self.srtt_shift - shift, 0)
        self.srtt_shift = shift
        self.smoothed_rtt = self.smoothed_rtt << more >> less
        self.deviation = self.deviation << more >> less
        self.rest_of_queue = u32(self.rest_of_queue << more) >> less
        self.rest_of_deviation = u32(self.rest_of_deviation << more) >> less
        return self.snd_ssthresh

    def undo_cwnd(self, ack: Ack) -> int:
        """[Prague06] prague_cwnd_undo."""
        self.credit = self.credit + self.credit - self.loss_credit
        return max(self.loss_cwnd, self.snd_cwnd)
