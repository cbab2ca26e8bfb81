"""The round-trip time as the sender keeps it: smoothed, with its deviation, and the timeout that follows.

`srtt8` is the smoothed RTT times 8; `mdev4`, `mdev_max4` and `rttvar4` are deviations times 4, us, as in the kernel
(srtt_us, mdev_us, mdev_max_us, rttvar_us). `mdev4` follows every sample; `mdev_max4` is its maximum over a round
trip; `rttvar4` rises to that at once and decays towards it once per round trip, so that a short quiet spell does
not shorten the timeout.

Sources: RFC 6298; [Linux61] net/ipv4/tcp_input.c tcp_rtt_estimator, tcp_set_rto; include/net/tcp.h tcp_bound_rto.
"""

RTO_MIN_US = 200_000  # TCP_RTO_MIN
RTO_MAX_US = 120_000_000  # TCP_RTO_MAX
FIRST_TIMEOUT_US = 1_000_000  # TCP_TIMEOUT_INIT: before the first RTT sample


def rtt_estimator(
    srtt8: int, mdev4: int, mdev_max4: int, rttvar4: int, rtt_us: int, round_over: bool
) -> tuple[int, int, int, int]:
    """Return srtt8, mdev4, mdev_max4 and rttvar4 after a sample [Linux61] tcp_rtt_estimator.

    `srtt8` is 0 before the first sample. `round_over`: snd_una has passed the snd_nxt of the round trip's beginning
    (rtt_seq). The caller then begins another round trip, as after the first sample.
    """
    if srtt8 == 0:
        rttvar4 = max(rtt_us << 1, RTO_MIN_US)
        return max(1, rtt_us << 3), rtt_us << 1, rttvar4, rttvar4
    error = rtt_us - (srtt8 >> 3)
    srtt8 = max(1, srtt8 + error)
    if error < 0:
        error = -error - (mdev4 >> 2)
        if error > 0:
            error >>= 3  # a falling RTT must not raise the deviation, and with it the timeout, at full speed
    else:
        error -= mdev4 >> 2
    mdev4 += error
    if mdev4 > mdev_max4:
        mdev_max4 = mdev4
        rttvar4 = max(rttvar4, mdev_max4)
    if round_over:
        if mdev_max4 < rttvar4:
            rttvar4 -= (rttvar4 - mdev_max4) >> 2
        mdev_max4 = RTO_MIN_US
    return srtt8, mdev4, mdev_max4, rttvar4


def whole_ticks(us: int, tick_us: int) -> int:
    """Return the smallest multiple of the kernel's tick that is at least `us`: its timers count in ticks."""
    return (us + tick_us - 1) // tick_us * tick_us


def timeout_us(srtt8: int, rttvar4: int, tick_us: int) -> int:
    """Return the retransmission timeout without backoff, us [Linux61] tcp_set_rto, tcp_bound_rto."""
    return min(whole_ticks((srtt8 >> 3) + rttvar4, tick_us), RTO_MAX_US)
