"""Inputs of `closedloop`: a link with jitter, and the constants of the BBR that sends over it."""

from dataclasses import dataclass
from typing import NamedTuple

from cctrace.analytic.distributions import Delay
from cctrace.analytic.domain import MSS_BYTES, PACKET_BYTES, checked, positive
from cctrace.arguments import check_choice

DRAWS = ("packet", "burst", "slot")


@dataclass(frozen=True)
class Link:
    """A bottleneck with jitter behind it, or before it."""

    rate_bps: float  # link rate, bits on the wire
    delay: Delay  # one-way plus return delay without queue, microseconds: `logsf`, `ppf`, `mean`
    # "packet", "burst" or "slot": one draw per packet, per burst of the sender (TSO), or per `slot_us` (slow jitter)
    draws: str = "packet"
    ordered: bool = True  # the path preserves the packets' order
    slot_us: float = 5000.0
    ack_every: int = 1  # segments per ACK of an in-order receiver
    wire_bytes: int = PACKET_BYTES
    mss: int = MSS_BYTES
    # correlation of successive draws (`dependence.ordered_log_cdf`). A jitter that wanders with correlation time T is
    # draws="slot" with short slots and rho = exp(-slot_us / T).
    rho: float = 0.0
    before: bool = False  # the jitter is on the way to the bottleneck's queue, not behind it

    def __post_init__(self) -> None:
        positive("rate_bps", self.rate_bps), positive("slot_us", self.slot_us)
        checked("rho", self.rho, 0, 1, open_high=True)
        check_choice("draws", self.draws, DRAWS)

    @property
    def capacity(self) -> float:
        """Packets per microsecond."""
        return self.rate_bps / 8e6 / self.wire_bytes


class Constants(NamedTuple):
    """The constants of a BBR version that the model needs."""

    cwnd_gain: float = 2.0
    pacing_margin: float = 0.99  # pacing rate over bandwidth estimate, both in payload
    paces_wire_bytes: bool = False  # 4.12: the estimate counts payload, the pacer whole packets
    quanta_added: bool = True  # three bursts are added to the BDP; from v2 on they are a lower bound of the window
    aggregation: bool = True  # extra_acked
    compensation: bool = False  # BBRv2+: twice the jitter where it exceeds 0.4 min_rtt
    filter_rounds: float = 10.0
    probe_rtt_share: float = 0.0  # of the BDP kept in PROBE_RTT; 0: four packets
    probe_rtt_every_s: float = 10.0
    knows: str = ""  # the paper's oracles: "bandwidth" (cbe) or "rtt" (cmrt)


SENDERS = {
    "bbr2016": Constants(pacing_margin=1.0, paces_wire_bytes=True, aggregation=False),
    "bbr2019": Constants(),
    "bbr2022": Constants(),
    # Two probing cycles of about 63 rounds (coexistence with Reno) keep the maximum.
    "bbr2": Constants(quanta_added=False, filter_rounds=100, probe_rtt_share=0.5, probe_rtt_every_s=5),
    "bbr2plus": Constants(
        quanta_added=False, filter_rounds=100, probe_rtt_share=0.5, probe_rtt_every_s=5, compensation=True
    ),
    "bbr3": Constants(quanta_added=False, filter_rounds=100, probe_rtt_share=0.5, probe_rtt_every_s=5),
}
SENDERS["bbr2016_cbe"] = SENDERS["bbr2016"]._replace(knows="bandwidth")
SENDERS["bbr2016_cmrt"] = SENDERS["bbr2016"]._replace(knows="rtt")


def burst_segments(path: Link, rate: float) -> int:
    """Segments per burst at a pacing rate (packets per microsecond): about 1 ms, at most 64 KB, at least 2.

    [Linux412] tcp_tso_autosize, bbr_tso_segs_goal.
    """
    bytes_per_ms = min(rate * path.mss * 1e6 / 1024, 65536 - 1 - 320)
    return max(int(bytes_per_ms / path.mss), 1 if rate * path.mss * 8 < 1.2 else 2)


def draw_interval_us(path: Link, rate: float) -> float:
    """Time between two draws that a flow of `rate` meets."""
    each = {"packet": 1.0, "burst": burst_segments(path, rate)}
    return path.slot_us if path.draws == "slot" else each[path.draws] / rate


def decay_share(path: Link, rate: float) -> float:
    """By how much of the time between two packets a delay decays on an order-preserving path.

    Behind the queue a packet waits for its predecessor to arrive; in a queue that the jitter fills, it also waits for
    the predecessor's service, which takes rate/capacity of that time.
    """
    return 1 - rate / path.capacity if path.before else 1.0


def pacing_share(path: Link, sender: Constants) -> float:
    """Pacing rate over bandwidth estimate, in packets."""
    return sender.pacing_margin * (path.mss / path.wire_bytes if sender.paces_wire_bytes else 1.0)
