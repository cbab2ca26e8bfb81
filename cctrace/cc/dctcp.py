"""DCTCP as released in Linux: Reno whose window shrinks by the share of marked packets.

Model:  once a round    alpha = (1 - g) * alpha + g * F       F: share of the round's packets that were marked, g = 1/16
        marks           ssthresh = cwnd * (1 - alpha / 2), at least 2; at most once a round (state CWR)
        losses          ssthresh = cwnd / 2, as Reno

        SLOW_START --(cwnd = ssthresh)--> CONGESTION_AVOIDANCE
             ^                                 |
             +----(timeout: cwnd = 1)----------+

alpha counts in 1024ths and starts at 1, so that the first mark halves the window. It needs a receiver that echoes marks
packet by packet, or AccECN: one with classic ECN repeats each echo for a round trip, which drives alpha to 1. Without
ECN it is Reno.

Sources: [Linux61] net/ipv4/tcp_dctcp.c; [RFC8257].   Differs from reno in:

* the reaction to marks, and the window restored after a spurious loss: the one before the last loss or mark.

Quirks: alpha below 16 (of 1024) falls to 0 in one round without marks. alpha is updated after the current ACK has been
counted, as in Debian's 6.12.117; older kernels updated it before (tcp_in_ack_event), which moves a few segments between
rounds.
"""

from cctrace.cc.ack import Ack
from cctrace.cc.base import Param
from cctrace.cc.cmath import u32
from cctrace.cc.linux import CA_RECOVERY, EVENT_LOSS, before
from cctrace.cc.reno import Reno

MAX_ALPHA_SHIFT = 10  # alpha is in 1024ths
MAX_ALPHA = 1 << MAX_ALPHA_SHIFT


class DCTCP(Reno):
    """DCTCP of Linux; see the module's header."""

    ecn_echo = "echoed"
    params = Reno.params | {
        "shift_g": Param(4, 0, 10, "gain of the average of marks, 1/2**g (dctcp_shift_g)"),
        "alpha_on_init": Param(MAX_ALPHA, 0, MAX_ALPHA, "alpha of a new connection, 1024ths (dctcp_alpha_on_init)"),
    }

    has_ecn: bool = False  # else dctcp_reno
    dctcp_alpha: int = 0  # 1024ths
    old_delivered: int = 0  # when the round began
    old_delivered_ce: int = 0
    next_seq: int = 0  # whose acknowledgement ends the round
    loss_cwnd: int = 0

    def init(self, ack: Ack) -> None:
        """[Linux61] dctcp_init."""
        self.has_ecn = ack.ecn_ok != 0
        if not self.has_ecn:
            return
        self.dctcp_alpha = min(self.alpha_on_init, MAX_ALPHA)
        self.loss_cwnd = 0
        self.start_round(ack)

    def start_round(self, ack: Ack) -> None:
        """[Linux61] dctcp_reset."""
        self.next_seq = u32(ack.snd_nxt)
        self.old_delivered = ack.delivered
        self.old_delivered_ce = ack.delivered_ce

    def pkts_acked(self, ack: Ack) -> None:
        """Update alpha if a round has ended: the kernel's in_ack_event [Linux61] dctcp_update_alpha."""
        if self.has_ecn and not before(u32(ack.snd_una), self.next_seq):
            delivered_ce = u32(ack.delivered_ce - self.old_delivered_ce)
            self.average(u32(ack.delivered - self.old_delivered), delivered_ce)
            self.start_round(ack)

    def average(self, delivered: int, delivered_ce: int) -> None:
        """Update alpha with a round's share of marks."""
        alpha = self.dctcp_alpha
        decay = alpha >> self.shift_g
        if decay == 0:
            decay = alpha
        alpha = alpha - decay
        if delivered_ce != 0:
            share = u32(delivered_ce << (MAX_ALPHA_SHIFT - self.shift_g)) // max(1, delivered)
            alpha = min(u32(alpha + share), MAX_ALPHA)
        self.dctcp_alpha = alpha

    def ssthresh(self, ack: Ack) -> int:
        """Shrink by half of alpha [Linux61] dctcp_ssthresh."""
        if not self.has_ecn:
            return max(self.snd_cwnd >> 1, 2)
        self.loss_cwnd = self.snd_cwnd
        return max(u32(self.snd_cwnd - (u32(self.snd_cwnd * self.dctcp_alpha) >> (MAX_ALPHA_SHIFT + 1))), 2)

    def set_state(self, ack: Ack) -> None:
        """A loss halves the window, whatever alpha is [Linux61] dctcp_state."""
        if self.has_ecn and ack.arg == CA_RECOVERY and ack.ca_state != CA_RECOVERY:
            self.react_to_loss()

    def cwnd_event(self, ack: Ack) -> None:
        """So does a timeout [Linux61] dctcp_cwnd_event; marks on received data change only its ACKs."""
        if self.has_ecn and ack.arg == EVENT_LOSS:
            self.react_to_loss()

    def react_to_loss(self) -> None:
        """[Linux61] dctcp_react_to_loss."""
        self.loss_cwnd = self.snd_cwnd
        self.snd_ssthresh = max(self.snd_cwnd >> 1, 2)

    def undo_cwnd(self, ack: Ack) -> int:
        """[Linux61] dctcp_cwnd_undo."""
        if not self.has_ecn:
            return max(self.snd_cwnd, ack.prior_cwnd_tp)
        return max(self.snd_cwnd, self.loss_cwnd)
