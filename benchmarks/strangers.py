"""Senders that are no candidate of `cctrace identify`, to simulate: who of them is called "unknown"?

After the principles of controllers that exist, and some that do not. `KNOWN` were looked at when the rules of
`identification/flights.py` were made; `KEPT` were kept apart until they were done.

    KNOWN   Scalable   one per cent a window, gives way by an eighth (Kelly 2003)
            Delay      two to four segments in the queue (Vegas, Brakmo 1995)
            bbrx       probes without a cycle (`cctrace.cc.bbrx`)
            Constant   paces at eight tenths of what it was delivered in its first second
            Gentle     half a segment a round, keeps 0.8 of its window
            Steep      three segments a round, keeps 0.8 of its window
            Quick      BBR whose cycle has four phases: 1.5, 0.5, 1, 1
    KEPT    Westwood   after losses what it was delivered in a minimum RTT (Casetti 2002)
            Hamilton   grows with the square of the time since a loss, keeps the share of RTTs (H-TCP, Leith 2004)
            Illinois   steps and factors by the delay (Liu 2006)
            RateAimd   a paced rate: up by a segment a round, down by a sixth on growing delay or losses
            Copa       a paced window whose rate aims at 1 / (delta x queueing delay) (Arun 2018)
            bbr2-other BBRv2 with other gains: 1.5 and 0.5, twice its window
"""

from cctrace.cc.base import LinuxController
from cctrace.cc.bbr2022 import BBR2022
from cctrace.cc.reno import Reno

NEVER_US = 0x7FFFFFFF


class Rule(Reno):
    """Reno's slow start; a subclass says how its window grows after it: `avoid(ack, acked segments)`."""

    def cong_avoid(self, ack):
        if not self.is_cwnd_limited(ack):
            return
        acked = ack.arg
        if self.in_slow_start():
            acked = self.slow_start(acked)
            if acked == 0:
                return
        self.avoid(ack, acked)


class Scalable(Rule):
    """Grows by 1 % per window and falls by an eighth."""

    def avoid(self, ack, acked):
        self.additive_increase(min(self.snd_cwnd, 100), acked)

    def ssthresh(self, ack):
        return max(self.snd_cwnd - (self.snd_cwnd >> 3), 2)


class Delay(Reno):
    """Keeps two to four segments in the queue."""

    base_us: int = NEVER_US
    least_us: int = NEVER_US
    round_end: int = 0

    def pkts_acked(self, ack):
        if ack.rs_rtt_us > 0:
            self.base_us = min(self.base_us, ack.rs_rtt_us)
            self.least_us = min(self.least_us, ack.rs_rtt_us)

    def cong_avoid(self, ack):
        if ack.snd_una < self.round_end or self.least_us == NEVER_US:
            if self.in_slow_start():
                self.slow_start(ack.arg)
            return
        self.round_end = ack.snd_nxt
        queued = self.snd_cwnd * (self.least_us - self.base_us) // self.least_us
        self.least_us = NEVER_US
        if self.in_slow_start():
            if queued > 1:
                self.snd_ssthresh = min(self.snd_ssthresh, max(self.snd_cwnd - 1, 2))
            else:
                self.slow_start(ack.arg)
        elif queued > 4:
            self.snd_cwnd = max(self.snd_cwnd - 1, 2)
        elif queued < 2:
            self.snd_cwnd = self.snd_cwnd + 1


class Gentle(Rule):
    """Half a segment a round, keeps 0.8 of its window."""

    def avoid(self, ack, acked):
        self.additive_increase(2 * self.snd_cwnd, acked)

    def ssthresh(self, ack):
        return max(self.snd_cwnd * 4 // 5, 2)


class Steep(Rule):
    """Three segments a round, keeps 0.8 of its window."""

    def avoid(self, ack, acked):
        self.additive_increase(max(self.snd_cwnd // 3, 1), acked)

    def ssthresh(self, ack):
        return max(self.snd_cwnd * 4 // 5, 2)


class Constant(LinuxController):
    """Paces at eight tenths of what it was delivered in its first second; losses mean nothing."""

    began_us: int = 0
    most: float = 0.0  # segments/us
    settled: bool = False

    def on_ack(self, ack):
        if self.began_us == 0:
            self.began_us = ack.now_us
        if ack.rs_interval_us > 0 and ack.rs_delivered > 0 and not self.settled:
            self.most = max(self.most, ack.rs_delivered / ack.rs_interval_us)
        if ack.now_us - self.began_us < 1_000_000:
            self.snd_cwnd = self.snd_cwnd + ack.rs_acked_sacked
            self.pacing_rate = int(2 * self.most * ack.mss * 1_000_000) + 100_000
        else:
            self.settled = True
            self.pacing_rate = max(int(0.8 * self.most * ack.mss * 1_000_000), 1000)
            self.snd_cwnd = max(int(self.most * ack.srtt_us8 / 8 * 3), 10)


class Quick(BBR2022):
    """BBR whose cycle has four phases: 1.5, 0.5, 1, 1."""

    def update_gains(self):
        super().update_gains()
        if self.mode == 2:
            phase = self.cycle_idx % 4
            if phase == 0:
                self.pacing_gain = 384
            elif phase == 1:
                self.pacing_gain = 128
            else:
                self.pacing_gain = 256


class Westwood(Reno):
    """After losses, what it was delivered in a minimum RTT."""

    least_us: int = NEVER_US
    rate: float = 0.0
    since_us: int = 0
    counted: int = 0

    def pkts_acked(self, ack):
        if ack.rs_rtt_us > 0:
            self.least_us = min(self.least_us, ack.rs_rtt_us)
        if ack.now_us - self.since_us > max(ack.srtt_us8 // 8, 50_000):
            if self.since_us > 0:
                rate = (ack.delivered - self.counted) / (ack.now_us - self.since_us)
                self.rate = rate if self.rate == 0.0 else 0.875 * self.rate + 0.125 * rate
            self.since_us = ack.now_us
            self.counted = ack.delivered

    def ssthresh(self, ack):
        if self.least_us == NEVER_US:
            return max(self.snd_cwnd >> 1, 2)
        return max(int(self.rate * self.least_us), 2)


class Hamilton(Rule):
    """Grows with the square of the time since the last loss, keeps the share of minimum and maximum RTT."""

    least_us: int = NEVER_US
    most_us: int = 0
    lost_us: int = 0
    credit: float = 0.0

    def pkts_acked(self, ack):
        if self.lost_us == 0:
            self.lost_us = ack.now_us
        if ack.rs_rtt_us > 0:
            self.least_us = min(self.least_us, ack.rs_rtt_us)
            self.most_us = max(self.most_us, ack.rs_rtt_us)

    def kept(self):
        if self.most_us == 0:
            return 0.5
        return min(max(self.least_us / self.most_us, 0.5), 0.8)

    def avoid(self, ack, acked):
        late = (ack.now_us - self.lost_us) / 1e6 - 1.0
        step = 1.0
        if late > 0:
            step = 1.0 + 10.0 * late + late * late / 4.0
        step = 2.0 * (1.0 - self.kept()) * step
        self.credit = self.credit + max(step, 1.0) * acked / self.snd_cwnd
        whole = int(self.credit)
        self.credit = self.credit - whole
        self.snd_cwnd = self.snd_cwnd + whole

    def ssthresh(self, ack):
        kept = self.kept()
        self.lost_us = ack.now_us
        self.most_us = 0
        return max(int(self.snd_cwnd * kept), 2)


class Illinois(Reno):
    """Steps from 10 down to 0.3 segments a round, and factors of 1/8 to 1/2, by the queueing delay."""

    least_us: int = NEVER_US
    most_us: int = 0
    total_us: int = 0
    samples: int = 0
    round_end: int = 0
    step: float = 1.0
    cut: float = 0.5
    credit: float = 0.0

    def pkts_acked(self, ack):
        if ack.rs_rtt_us > 0:
            self.least_us = min(self.least_us, ack.rs_rtt_us)
            self.most_us = max(self.most_us, ack.rs_rtt_us)
            self.total_us = self.total_us + ack.rs_rtt_us
            self.samples = self.samples + 1

    def adapt(self, ack):
        if ack.snd_una < self.round_end or self.samples == 0:
            return
        self.round_end = ack.snd_nxt
        delay = self.total_us / self.samples - self.least_us
        self.total_us = 0
        self.samples = 0
        widest = max(self.most_us - self.least_us, 1)
        low = 0.01 * widest
        if delay <= low:
            self.step = 10.0
        else:
            share = (delay - low) / max(widest - low, 1.0)
            self.step = 10.0 * 0.3 / (0.3 + share * (10.0 - 0.3))
        self.cut = min(max(0.125 + (delay - 0.1 * widest) / (0.7 * widest) * 0.375, 0.125), 0.5)

    def cong_avoid(self, ack):
        self.adapt(ack)
        if not self.is_cwnd_limited(ack):
            return
        acked = ack.arg
        if self.in_slow_start():
            acked = self.slow_start(acked)
            if acked == 0:
                return
        self.credit = self.credit + self.step * acked / self.snd_cwnd
        whole = int(self.credit)
        self.credit = self.credit - whole
        self.snd_cwnd = self.snd_cwnd + whole

    def ssthresh(self, ack):
        return max(int(self.snd_cwnd * (1.0 - self.cut)), 2)


class RateAimd(LinuxController):
    """A paced rate: up by a segment a round, down by a sixth on growing delay or losses, once a round."""

    least_us: int = NEVER_US
    rate: float = 0.0  # segments/us
    round_end: int = 0
    lost_before: int = 0
    start: bool = True

    def on_ack(self, ack):
        rtt_us = max(ack.srtt_us8 // 8, 1)
        if ack.rs_rtt_us > 0:
            self.least_us = min(self.least_us, ack.rs_rtt_us)
        if self.rate == 0.0:
            self.rate = 10.0 / rtt_us
        if ack.snd_una >= self.round_end:
            self.round_end = ack.snd_nxt
            bad = ack.lost > self.lost_before or rtt_us > 1.3 * self.least_us
            self.lost_before = ack.lost
            if bad:
                self.start = False
                self.rate = self.rate * 5.0 / 6.0
            elif self.start:
                self.rate = self.rate * 1.8
            else:
                self.rate = self.rate + 1.0 / rtt_us
        self.rate = max(self.rate, 2.0 / rtt_us)
        self.pacing_rate = int(self.rate * ack.mss * 1_000_000)
        self.snd_cwnd = max(int(2.0 * self.rate * rtt_us), 4)


class Copa(LinuxController):
    """A paced window whose rate aims at 1 / (0.5 x queueing delay)."""

    least_us: int = NEVER_US
    credit: float = 10.0
    speed: float = 1.0
    up: bool = True
    round_end: int = 0
    begun: float = 10.0
    start: bool = True

    def on_ack(self, ack):
        rtt_us = max(ack.srtt_us8 // 8, 1)
        if ack.rs_rtt_us > 0:
            self.least_us = min(self.least_us, ack.rs_rtt_us)
            rtt_us = ack.rs_rtt_us
        queued = max(rtt_us - self.least_us, 1)
        below = self.credit / rtt_us < 2.0 / queued
        acked = max(ack.rs_acked_sacked, 0)
        if self.start and below:
            self.credit = self.credit + acked
        elif below:
            self.credit = self.credit + self.speed * acked / (0.5 * self.credit)
        else:
            self.start = False
            self.credit = self.credit - self.speed * acked / (0.5 * self.credit)
        self.credit = max(self.credit, 4.0)
        if ack.snd_una >= self.round_end:
            self.round_end = ack.snd_nxt
            upwards = self.credit > self.begun
            self.speed = min(self.speed * 2.0, 16.0) if upwards == self.up else 1.0
            self.up = upwards
            self.begun = self.credit
        self.snd_cwnd = int(self.credit)
        self.pacing_rate = int(2.0 * self.credit * ack.mss * 1_000_000 / max(ack.srtt_us8 // 8, 1))


KNOWN = {
    "Scalable": Scalable,
    "Delay": Delay,
    "bbrx": "bbrx",
    "Constant": Constant,
    "Gentle": Gentle,
    "Steep": Steep,
    "Quick": Quick,
}
KEPT = {
    "Westwood": Westwood,
    "Hamilton": Hamilton,
    "Illinois": Illinois,
    "RateAimd": RateAimd,
    "Copa": Copa,
    "bbr2-other": "bbr2:up_pacing_gain=1.5,down_pacing_gain=0.5,probe_bw_cwnd_gain=3.0",
}
STRANGERS = KNOWN | KEPT
