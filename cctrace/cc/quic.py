"""Constants and C arithmetic that the congestion controls of oBBR's nginx-quic stack share.

The stack's clock ticks in milliseconds, everything it counts is in bytes, rates are bytes/s in a u32. It sends packets
of 1252 bytes from a 3 ms timer and never has more than 10 MiB in flight, whatever window its controller computes.

Sources: [oBBR-src] bpq233/oBBR, nginx-quic/src/event/quic: ngx_event_quic_connection.h, ngx_event_quic_ack.c.
"""

from cctrace.cc.cmath import f32, u32

MSS = 1252  # bytes, NGX_QUIC_MSS
INITIAL_WINDOW = 32 * MSS
MIN_WINDOW = 4 * MSS  # four packets, so that a delayed ACK cannot stall the flow
MSEC_PER_SEC = 1000
MAX_ACK_DELAY_MS = 25  # of a receiver that sets none [RFC9000] 18.2
PERSISTENT_CONGESTION = 3  # probe timeouts, kPersistentCongestionThreshold [RFC9002] 7.6.1
RTT_UNKNOWN = 0x7FFFFFFF  # ms, "no RTT sample yet"


def float_to_u32(x: float | f32) -> int:
    """Convert a nonnegative C float or double below 2**63 to a uint32_t as x86-64 compilers do: truncate, then wrap."""
    return u32(int(x))


def delivery_rate(delivered: int, interval_ms: int) -> int:
    """Rate of a sample in bytes/s, a u32; the source divides doubles in this order. `interval_ms` is nonzero."""
    return float_to_u32(1.0 * delivered / interval_ms * MSEC_PER_SEC)
