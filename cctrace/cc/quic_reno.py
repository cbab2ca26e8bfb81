"""NewReno for QUIC, the congestion control that RFC 9002 specifies (and nginx-quic's own, before oBBR's changes).

Model:  slow start             cwnd += acked
        congestion avoidance   cwnd += max_datagram_size * acked / cwnd
        loss                   cwnd = ssthresh = cwnd/2, once per round

            SLOW_START --(loss)--> RECOVERY --(packet sent in it acknowledged)--> AVOIDANCE --(loss)--> RECOVERY
            any --(persistent congestion: cwnd = 2 packets)--> SLOW_START

Left open by the RFC, and chosen here: the packet size is that of this stack, 1252 bytes; an
ACK's bytes count as one acknowledgement of the packet that gave the rate sample (the newest), whose send time says
whether it belongs to the recovery period; the window does not grow when that packet was sent application-limited
(section 7.8); pacing is N = 1.25 times cwnd over the smoothed RTT (section 7.7), which begins with kInitialRtt (section
5.3, appendix A.2). ECN is not in the QUIC view, so CE marks do not appear.

Sources: [RFC9002] section 7, appendix B.   Differs from its parent in everything: it is written afresh.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param, QuicController
from cctrace.cc.cmath import U32_MAX
from cctrace.cc.quic import MSEC_PER_SEC, MSS

SLOW_START = 0
RECOVERY = 1
AVOIDANCE = 2

INITIAL_PACKETS = 10
INITIAL_BYTES = 14720
MIN_PACKETS = 2
LOSS_REDUCTION = 2  # kLossReductionFactor 0.5
PACING_NUMERATOR = 5  # N = 5/4
PACING_DENOMINATOR = 4
INITIAL_RTT_MS = 333


class QuicReno(QuicController):
    """NewReno of RFC 9002."""

    params = QuicController.params | {"max_datagram_size": Param(MSS, 1200, 65527, "packet size, bytes [RFC9002] B.2")}
    states = ("SLOW_START", "RECOVERY", "AVOIDANCE")
    transitions = {
        ("SLOW_START", "RECOVERY"): "loss",
        ("SLOW_START", "AVOIDANCE"): "window reached ssthresh, after persistent congestion",
        ("RECOVERY", "AVOIDANCE"): "a packet sent in recovery was acknowledged",
        ("RECOVERY", "SLOW_START"): "persistent congestion",
        ("AVOIDANCE", "RECOVERY"): "loss",
        ("AVOIDANCE", "SLOW_START"): "persistent congestion",
    }

    mode: int = SLOW_START
    ssthresh: int = U32_MAX  # bytes
    recovery_start_time: int = 0  # ms, 0: none

    def init(self, ack: Ack) -> None:  # [RFC9002] 7.2
        """Connection established: ten packets, limited to 14720 bytes or two packets."""
        size = self.max_datagram_size
        self.cwnd = min(INITIAL_PACKETS * size, max(INITIAL_BYTES, MIN_PACKETS * size))
        self.pace(ack)

    def on_ack(self, ack: Ack) -> None:  # [RFC9002] B.5 OnPacketAcked
        """Grow the window, unless it was not used or losses are being repaired."""
        if ack.smp_is_app_limited == 0 and not self.in_recovery(ack.smp_po_sent_time):
            self.grow(ack.smp_acked)
        self.pace(ack)

    def grow(self, acked: int) -> None:  # [RFC9002] 7.3.1, 7.3.3
        """Double the window each round, or add a packet each round."""
        if self.cwnd < self.ssthresh:
            self.mode = SLOW_START
            self.cwnd = self.cwnd + acked
        else:
            self.mode = AVOIDANCE
            self.cwnd = self.cwnd + self.max_datagram_size * acked // self.cwnd

    def on_lost(self, ack: Ack) -> None:  # [RFC9002] B.6 OnCongestionEvent
        """Halve the window, once per recovery period; `arg` is the lost packet's send time."""
        if self.in_recovery(ack.arg):
            return
        self.mode = RECOVERY
        self.recovery_start_time = ack.now_ms
        self.ssthresh = self.cwnd // LOSS_REDUCTION
        self.cwnd = max(self.ssthresh, MIN_PACKETS * self.max_datagram_size)
        self.pace(ack)

    def reset_cwnd(self, ack: Ack) -> None:  # [RFC9002] 7.6.2, B.8
        """Persistent congestion: start over from two packets."""
        self.mode = SLOW_START
        self.cwnd = MIN_PACKETS * self.max_datagram_size
        self.recovery_start_time = 0
        self.pace(ack)

    def in_recovery(self, sent_ms: int) -> bool:  # [RFC9002] B.5 InCongestionRecovery
        """Whether a packet sent at `sent_ms` belongs to the recovery period."""
        return sent_ms <= self.recovery_start_time

    def pace(self, ack: Ack) -> None:  # [RFC9002] 7.7
        """Spread the window over four fifths of the smoothed RTT."""
        rtt = INITIAL_RTT_MS
        if ack.smp_srtt_ms > 0:
            rtt = ack.smp_srtt_ms
        self.pacing_rate = PACING_NUMERATOR * self.cwnd * MSEC_PER_SEC // (PACING_DENOMINATOR * rtt)
