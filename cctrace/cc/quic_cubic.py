"""CUBIC as oBBR's authors wrote it for nginx-quic.

Model:  after a loss    W_max = cwnd,  cwnd = 0.7 cwnd,  K = cbrt((W_max - cwnd)/C)
        then            cwnd = W_max + C (t - K)^3,  at least what Reno would have, at most half of what was ACKed more

            SLOW_START --(loss)--> RECOVERY --(packet sent after the loss ACKed)--> AVOIDANCE --(loss)--> RECOVERY

Quirks, kept because decisions depend on them:

* the time is scaled by `<< 10 / 1000`, which C reads as `<< 0`: t is in milliseconds where K is in 1/1024 s. K is
  reached 2.4 % later than meant.
* the cube overflows 64 bits when |t - K| exceeds about 33 s, and W_max minus it can wrap: what follows is chance.
* the Reno window grows by MSS^2/W per *ACK*, not per packet acknowledged.
* there is no HyStart, and slow start ends at ssthresh only, which the first loss sets.
* t counts from the first ACK after the loss; min_rtt is that of the sampled packets, and is added to it.

The controller sets a window only. The stack paces CUBIC at 2 * cwnd/srtt in slow start, 1.2 * cwnd/srtt after; the
golden vectors show no pacing rate for it, so neither does this class.

Sources: [ngx_cubic] bpq233/oBBR nginx-quic/src/event/quic/cubic.c, commit b2a8c25 (`-C CUBIC`); [RFC9438].
Differs from its parent in everything: it is written afresh (bytes and milliseconds; `cubic` is the kernel's).
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import QuicController
from cctrace.cc.cmath import U32_MAX, u64, u64_lt, u64_shr
from cctrace.cc.quic import INITIAL_WINDOW, MIN_WINDOW, MSS

SLOW_START = 0
RECOVERY = 1
AVOIDANCE = 2

BETA = 718  # of 1024: 0.7
BETA_SCALE = 1024
C = 410  # of 1024: 0.4
CUBE_SHIFT = 40
CUBE_FACTOR = (1 << CUBE_SHIFT) // C // MSS
ROOT_MAX = 10_000.0  # the cube root is searched between 0 and here
ROOT_TOLERANCE = 1e-4


class QuicCubic(QuicController):
    """CUBIC of oBBR's nginx-quic (`-C CUBIC`)."""

    sets_pacing_rate = False
    states = ("SLOW_START", "RECOVERY", "AVOIDANCE")
    transitions = {
        ("SLOW_START", "RECOVERY"): "loss",
        ("SLOW_START", "AVOIDANCE"): "window reached ssthresh, after persistent congestion",
        ("RECOVERY", "AVOIDANCE"): "a packet sent after the loss was acknowledged",
        ("RECOVERY", "SLOW_START"): "the same, after persistent congestion",
        ("AVOIDANCE", "RECOVERY"): "loss",
        ("AVOIDANCE", "SLOW_START"): "persistent congestion",
    }
    golden_names = {
        "sc_last_max": "last_max_cwnd",
        "sc_origin": "bic_origin_point",
        "sc_K": "bic_k",
        "sc_epoch": "epoch_start",
        "sc_rec_start": "recovery_start",
    }

    mode: int = SLOW_START
    tcp_cwnd: int = INITIAL_WINDOW  # Reno's window, bytes
    last_max_cwnd: int = INITIAL_WINDOW  # W_max
    ssthresh: int = U32_MAX
    bic_origin_point: int = 0
    bic_k: int = 0  # 1/1024 s, compared with milliseconds
    epoch_start: int = 0  # ms, 0: at the next ACK
    min_rtt: int = 0  # ms
    recovery_start: int = 0  # ms

    def init(self, ack: Ack) -> None:  # [ngx_cubic] CubicInit
        """Connection established."""
        self.cwnd = INITIAL_WINDOW

    def on_ack(self, ack: Ack) -> None:  # [ngx_cubic] CubicOnAck
        """Grow the window."""
        rtt = ack.now_ms - ack.smp_po_sent_time
        if self.min_rtt == 0 or u64_lt(rtt, self.min_rtt):
            self.min_rtt = rtt
        if ack.smp_po_sent_time <= self.recovery_start:
            return
        if self.cwnd < self.ssthresh:
            self.mode = SLOW_START
            self.tcp_cwnd = self.tcp_cwnd + ack.smp_acked
            self.cwnd = self.cwnd + ack.smp_acked
        else:
            self.mode = AVOIDANCE
            self.tcp_cwnd = self.tcp_cwnd + MSS * MSS // self.tcp_cwnd
            self.follow_cubic(ack)

    def follow_cubic(self, ack: Ack) -> None:  # [ngx_cubic] CubicUpdate
        """Set the window to the cubic function of the time since the loss."""
        if self.epoch_start == 0:
            self.start_epoch(ack.now_ms)
        t = ack.now_ms + self.min_rtt - self.epoch_start
        early = u64_lt(t, self.bic_k)
        offset = self.bic_k - t if early else t - self.bic_k
        delta = u64_shr(u64(u64(C * MSS * offset) * u64(offset * offset)), CUBE_SHIFT)
        target = self.bic_origin_point - delta if early else self.bic_origin_point + delta
        fastest = self.cwnd + ack.smp_acked // 2
        if u64_lt(fastest, target):
            target = fastest
        self.cwnd = max(self.tcp_cwnd, target)

    def start_epoch(self, now_ms: int) -> None:  # [ngx_cubic] CubicUpdate
        """Choose the origin of the cubic function and K, the time to reach it."""
        self.epoch_start = now_ms
        if self.cwnd >= self.last_max_cwnd:
            self.bic_k = 0
            self.bic_origin_point = self.cwnd
            return
        cube = float(CUBE_FACTOR * (self.last_max_cwnd - self.cwnd))
        low = 0.0
        high = ROOT_MAX
        while high - low > ROOT_TOLERANCE:
            middle = (low + high) / 2
            if middle * middle * middle < cube:
                low = middle
            else:
                high = middle
        self.bic_k = int(low)
        self.bic_origin_point = self.last_max_cwnd

    def on_lost(self, ack: Ack) -> None:  # [ngx_cubic] CubicOnLost
        """Reduce the window once per round; `arg` is the lost packet's send time."""
        if ack.arg <= self.recovery_start:
            return
        self.mode = RECOVERY
        self.recovery_start = ack.now_ms
        self.epoch_start = 0
        if self.cwnd < self.last_max_cwnd:  # fast convergence: W_max did not come back, so leave room for others
            self.last_max_cwnd = self.cwnd * (BETA_SCALE + BETA) // (2 * BETA_SCALE)
        else:
            self.last_max_cwnd = self.cwnd
        self.cwnd = max(self.cwnd * BETA // BETA_SCALE, MIN_WINDOW)
        self.tcp_cwnd = self.cwnd
        self.ssthresh = self.cwnd

    def reset_cwnd(self, ack: Ack) -> None:  # [ngx_cubic] CubicReset
        """Persistent congestion: start over from 4 packets."""
        self.epoch_start = 0
        self.cwnd = MIN_WINDOW
        self.tcp_cwnd = MIN_WINDOW
        self.last_max_cwnd = MIN_WINDOW
