"""Delivery-rate samples: the segment an ACK's sample is taken from, its interval, and the application limit.

Sources: draft-cheng-iccrg-delivery-rate-estimation; [Linux61] net/ipv4/tcp_rate.c.
"""

WRITE_BYTES = 1 << 18  # that an application which always has data writes at a time


def rate_interval_us(send_us: int, ack_us: int, min_rtt_us: int) -> int:
    """Return the interval of a sample, the longer of sends and ACKs; -1 if below any RTT [Linux61] tcp_rate_gen.

    ACKs may be compressed, and a spurious retransmission appears to be acknowledged at once.
    """
    interval_us = max(send_us, ack_us)
    return interval_us if interval_us >= min_rtt_us else -1


def app_limited_until(delivered: int, in_flight: int) -> int:
    """Return the mark set when the application left the pipe unfilled [Linux61] tcp_rate_check_app_limited.

    Samples of segments sent from now until `delivered` reaches the mark are app-limited; 0 means that none is.
    """
    return max(1, delivered + in_flight)


def app_limited_after(app_limited: int, delivered: int) -> int:
    """Return the mark after an ACK: 0 once `delivered` has passed it [Linux61] tcp_rate_gen."""
    return 0 if delivered > app_limited else app_limited
