"""When a tail-loss probe is due [RFC8985] section 7.2; [Linux61] net/ipv4/tcp_output.c tcp_schedule_loss_probe."""

from cctrace.tcp.rtt import FIRST_TIMEOUT_US, RTO_MIN_US

TIMEOUT_MIN_US = 2_000  # TCP_TIMEOUT_MIN: added to a timer so that it does not fire at once


def probe_timeout_us(srtt8: int, packets_out: int, rto_left_us: int) -> int:
    """Return after how long a tail-loss probe is sent, us [Linux61] tcp_schedule_loss_probe.

    Two RTTs and TIMEOUT_MIN_US, or, for a single segment, whose ACK may be delayed, the minimum timeout; but no
    later than the retransmission timeout, `rto_left_us` from now (0 and below: it has passed).
    """
    wait_us = FIRST_TIMEOUT_US
    if srtt8 > 0:
        wait_us = (srtt8 >> 2) + (RTO_MIN_US if packets_out == 1 else TIMEOUT_MIN_US)
    return min(wait_us, rto_left_us) if rto_left_us > 0 else wait_us
