"""Jitter compensation of the BDP, as the paper of BBRv2+ describes it, for BBR and BBRv2 as well.

With jitter, the least RTT is far below the usual one, so bw * min_rtt is too small a window and starves the flow.
Algorithm 3 adds the jitter to the delay once it is large:

    jitter > mu * min_rtt:    BDP = bw * (min_rtt + jitter)        jitter = maximum of mdev over 4 rounds
    otherwise:                BDP = bw * min_rtt

Sources: [Yang22] section 4.4, Algorithm 3, and section 1: "can also be applied to BBR and BBRv2".

Left open there, and chosen here:

* jitter is "the RTT variation maintained by TCP": mdev, which `ss` prints as rttvar, as in the authors' module;
* the BDP is compensated wherever the parent uses it (window, flight targets, PROBE_RTT of BBRv2), as the algorithm
  returns "the BDP estimation"; the module adds to the window alone, 2 * jitter * max_bw after quantisation;
* a round for the maximum is the parent's packet-timed round.

Differs from its parent in: `bdp_rtt_us`, and `on_ack` tracks the jitter.
"""

from typing import TYPE_CHECKING, Any

from cctrace.cc.ack import Ack
from cctrace.cc.base import LinuxController, Param, ints
from cctrace.cc.bbr2 import BBR2
from cctrace.cc.bbr2019 import BBR2019
from cctrace.cc.cmath import u32
from cctrace.cc.filters import running_max

JITTER_WIN = 4  # rounds
COMPENSATION = {"mu": Param(0.5, 0.0, 10.0, "jitter that calls for compensation, min_rtt [Yang22] section 4.4")}


if TYPE_CHECKING:

    class Parent(LinuxController):
        """The interface of the two BBRs it is mixed into."""

        mu: float  # a parameter
        min_rtt_us: int
        round_start: Any  # 0 or 1, as its source declares it

        def on_ack(self, ack: Ack) -> None:
            """Decide."""
else:
    Parent = object


class JitterCompensation(Parent):
    """Adds the jitter of the last four rounds to the delay of the BDP; see the module's docstring."""

    jitter_v = ints(3)
    jitter_t = ints(3)
    jitter_round: int = 0

    def on_ack(self, ack: Ack) -> None:
        """Note the jitter before the parent decides [Yang22] Table 1, Max_4RTT(jitter)."""
        running_max(self.jitter_v, self.jitter_t, JITTER_WIN, self.jitter_round, ack.mdev_us4 >> 2)
        super().on_ack(ack)
        if self.round_start:
            self.jitter_round = u32(self.jitter_round + 1)

    def bdp_rtt_us(self) -> int:
        """Return min_rtt, plus the jitter where that exceeds `mu` of it [Yang22] Algorithm 3."""
        if self.jitter_v[0] > self.mu * self.min_rtt_us:
            return u32(self.min_rtt_us + self.jitter_v[0])
        return self.min_rtt_us


class BBR2019Comp(JitterCompensation, BBR2019):
    """BBR of Linux 5.4 with its BDP compensated for jitter."""

    params = BBR2019.params | COMPENSATION


class BBR2Comp(JitterCompensation, BBR2):
    """BBRv2 with its BDP compensated for jitter."""

    params = BBR2.params | COMPENSATION
