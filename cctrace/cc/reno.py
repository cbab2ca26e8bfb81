"""Reno of RFC 5681 as Linux does it (6.1 and later); the stack's own window arithmetic, which CUBIC shares.

Model:  slow start:            +1 segment per segment acked, up to ssthresh
        congestion avoidance:  +1 segment per window acked
        loss:                  ssthresh = cwnd / 2, at least 2

        SLOW_START --(cwnd = ssthresh)--> CONGESTION_AVOIDANCE
             ^                                 |
             +----(timeout: cwnd = 1)----------+

The window grows only while it limits the sender. In Recovery and CWR the stack itself sets cwnd (proportional rate
reduction, RFC 6937) and does not call controllers without `on_ack`.

It sets no pacing rate, but the socket may still pace, at the rate that the stack derives from cwnd and RTT: under the
fq qdisc, with SO_MAX_PACING_RATE, or because BBR was selected before. The parameter `paced` stands for the kernel's
sk_pacing_status.

Sources: [RFC5681] §3.1; [Linux61] net/ipv4/tcp_cong.c tcp_reno_*, tcp_slow_start(), tcp_cong_avoid_ai();
include/net/tcp.h tcp_is_cwnd_limited().
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import MAX_PACING_RATE, LinuxController, Param
from cctrace.cc.cmath import u32


class Reno(LinuxController):
    """Reno of Linux 6.1; see the module's header."""

    sets_pacing_rate = False
    slow_burst_segments = 2  # sysctl tcp_min_tso_segs
    params = LinuxController.params | {
        "paced": Param(0, 0, 1, "1: the socket paces (sk_pacing_status), as under fq or SO_MAX_PACING_RATE"),
        "max_pacing_rate": MAX_PACING_RATE,
    }
    states = ("SLOW_START", "CONGESTION_AVOIDANCE")
    transitions = {
        ("SLOW_START", "CONGESTION_AVOIDANCE"): "cwnd reached ssthresh, or a loss set ssthresh",
        ("CONGESTION_AVOIDANCE", "SLOW_START"): "a timeout cut cwnd to 1",
    }

    def cong_avoid(self, ack: Ack) -> None:
        """Grow cwnd by `ack.arg` acked segments [Linux61] tcp_reno_cong_avoid."""
        if not self.is_cwnd_limited(ack):
            return
        acked = ack.arg
        if self.in_slow_start():
            acked = self.slow_start(acked)
            if acked == 0:
                return
        self.avoid_congestion(ack, acked)

    def avoid_congestion(self, ack: Ack, acked: int) -> None:
        """One segment per window acked [Linux61] tcp_reno_cong_avoid."""
        self.additive_increase(self.snd_cwnd, acked)

    def ssthresh(self, ack: Ack) -> int:
        """Half of cwnd, at least 2 [RFC5681] Eq. 4, [Linux61] tcp_reno_ssthresh (cwnd stands for FlightSize)."""
        return max(self.snd_cwnd >> 1, 2)

    def undo_cwnd(self, ack: Ack) -> int:
        """Return to cwnd as it was when the spurious recovery began [Linux61] tcp_reno_undo_cwnd."""
        return max(self.snd_cwnd, ack.prior_cwnd_tp)

    def additive_increase(self, segments_per_increment: int, acked: int) -> None:
        """Grow by one for every `segments_per_increment` acked [Linux61] tcp_cong_avoid_ai.

        Credit that accumulated while an increment cost more is applied once, gently.
        """
        if self.snd_cwnd_cnt >= segments_per_increment:
            self.snd_cwnd_cnt = 0
            self.snd_cwnd = u32(self.snd_cwnd + 1)
        self.snd_cwnd_cnt = u32(self.snd_cwnd_cnt + acked)
        if self.snd_cwnd_cnt >= segments_per_increment:
            growth = self.snd_cwnd_cnt // segments_per_increment
            self.snd_cwnd_cnt = u32(self.snd_cwnd_cnt - growth * segments_per_increment)
            self.snd_cwnd = u32(self.snd_cwnd + growth)
