"""BBR 2016 on a host without the fq qdisc: until Linux 4.13 only fq paced, so that cwnd alone holds its packets back.

The rate that BBR asks for still sizes its bursts [Linux412] tcp_tso_autosize.
"""

from typing import Any

from cctrace.cc.ack import Ack
from cctrace.cc.bbr2016 import BBR2016
from cctrace.cc.oracles import BBR2016Cmrt
from cctrace.papers import measure

NO_LIMIT = -1  # ~0UL


class Unpaced(BBR2016):
    """BBR 2016, whose pacing rate nothing heeds."""

    asked: int = 0  # the rate that sizes bursts, bytes/s

    def set_pacing_rate(self, ack: Ack, bw: int, gain: int) -> None:
        """As the parent, for bursts; no limit for the stack."""
        self.pacing_rate = self.asked
        super().set_pacing_rate(ack, bw, gain)
        self.asked = self.pacing_rate
        self.pacing_rate = NO_LIMIT

    def tso_segs(self, ack: Ack) -> int:
        """As the parent, at the requested rate."""
        self.pacing_rate = self.asked
        segments = super().tso_segs(ack)
        self.pacing_rate = NO_LIMIT
        return segments


class UnpacedCmrt(Unpaced, BBR2016Cmrt):
    """The same with the RTT given."""


UNPACED = {"bbr2016": Unpaced, "bbr2016_cmrt": UnpacedCmrt}


def simulation(flows: list[dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    """Return what `measure.simulation` does of the same flows, unpaced."""
    return measure.simulation(flows=[flow | {"cc": UNPACED[flow["cc"]]} for flow in flows], **arguments)
