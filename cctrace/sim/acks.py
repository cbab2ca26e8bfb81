"""ACK policies of TCP and QUIC receivers, by name.

A QUIC receiver acknowledges late packets and gaps in the packet numbers at once ([RFC9000] §13.2.1), otherwise
every second ack-eliciting packet, or after max_ack_delay (§13.2.2). Chromium does so for its first 100 packets,
then decimates: up to ten packets wait, for a quarter of the minimum RTT; after a gap the first four are
acknowledged at once.

Sources: [RFC9000]; [quiche] quic_received_packet_manager.cc (MaybeUpdateAckTimeout), quic_constants.h.
"""

import re
from typing import NamedTuple

from cctrace.arguments import short_repr
from cctrace.cc.quic import MAX_ACK_DELAY_MS
from cctrace.errors import ArgumentError
from cctrace.tcp.wire import LONE_ACK_US

DELAYED = 2  # segments per ACK of a Linux receiver, whose timers are `delack_timer`'s
LONE_NS = LONE_ACK_US * 1000
MAX_ACK_DELAY_NS = MAX_ACK_DELAY_MS * 1_000_000  # Chromium's kDefaultMaxAckDelayTimeMs, too
MIN_DECIMATED_NS = 1_000_000  # kAlarmGranularity
MAX_EVERY = 10_000
_EVERY = re.compile(r"every:(\d+)", re.ASCII)


class AckPolicy(NamedTuple):
    """A receiver's ACK policy."""

    every: int = 1  # packets per ACK
    delay_ns: int = LONE_NS  # how long fewer of them wait
    # QUIC: packets acknowledged at once after a gap; 0 is the receiver of `every:N`, which keeps its count across ACKs
    # of timers
    after_gap: int = 0
    decimated_from: int = 0  # packets received before decimation, 0 for none
    decimated_every: int = 1  # packets per ACK from then on
    decimated_share: float = 0.0  # how long fewer of them wait then: a share of the minimum RTT, at most `delay_ns`

    def decimated_ns(self, rtt_ns: int) -> int:
        """Return how long packets wait in decimation over a path of this minimum RTT.

        >>> ACK_POLICIES["chromium"].decimated_ns(40_000_000)
        10000000
        """
        return min(self.delay_ns, max(round(self.decimated_share * rtt_ns), MIN_DECIMATED_NS))


ACK_POLICIES = {
    "linux": AckPolicy(DELAYED),
    "rfc9000": AckPolicy(2, MAX_ACK_DELAY_NS, 1),
    "chromium": AckPolicy(2, MAX_ACK_DELAY_NS, 4, 100, 10, 0.25),
}
OF_QUIC = ("rfc9000", "chromium")


def ack_policy(name: str, quic: bool) -> AckPolicy:
    """Return the policy of a name: one of `ACK_POLICIES`, or ``"every:10"``.

    Raises `ArgumentError` if there is none, or if it belongs to the other stack (QUIC or TCP).

    >>> ack_policy("every:10", quic=True).every, ack_policy("chromium", quic=True).decimated_every
    (10, 10)
    """
    counted = _EVERY.fullmatch(name) if isinstance(name, str) else None
    if counted and 1 <= int(counted[1]) <= MAX_EVERY:
        return AckPolicy(int(counted[1]))
    if counted or not isinstance(name, str) or name not in ACK_POLICIES:
        raise ArgumentError(
            f"ack={short_repr(name)}: use {', '.join(ACK_POLICIES)} or every:N, N from 1 to {MAX_EVERY}"
        )
    if (name in OF_QUIC) != quic:
        other, own = ("TCP", ", ".join(OF_QUIC)) if quic else ("QUIC", "linux")
        raise ArgumentError(f"ack={name!r} is a policy of {other} receivers; use {own} or every:N")
    return ACK_POLICIES[name]
