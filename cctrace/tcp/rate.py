"""Delivery-rate samples: which segment makes an ACK's sample, over which interval, and what the application limited.

Sources: draft-cheng-iccrg-delivery-rate-estimation; [Linux61] net/ipv4/tcp_rate.c.
"""


def rate_interval_us(send_us: int, ack_us: int, min_rtt_us: int) -> int:
    """Return the interval of a sample: the longer of sends and ACKs; -1 if no RTT is as short [Linux61] tcp_rate_gen.

    ACKs may come compressed, and a spurious retransmission seems to be acknowledged at once.
    """
    interval_us = max(send_us, ack_us)
    return interval_us if interval_us >= min_rtt_us else -1


def app_limited_until(delivered: int, in_flight: int) -> int:
    """Return the mark that is set when the application left the pipe unfilled [Linux61] tcp_rate_check_app_limited.

    Samples of what is sent from now until so much is delivered are limited by the application; 0 means that none is.
    """
    return max(1, delivered + in_flight)


def app_limited_after(app_limited: int, delivered: int) -> int:
    """Return the mark after an ACK: 0 once all that it spans is delivered [Linux61] tcp_rate_gen."""
    return 0 if delivered > app_limited else app_limited
