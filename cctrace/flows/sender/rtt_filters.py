"""RTT: smoothing, retransmission timeout and the windowed minimum, as the Linux sender keeps them.

Which segments give a sample is decided in `acks.py` (Karn's rule, SACKed segments, time stamps where nothing
unretransmitted was acknowledged), how it enters the estimators in `tcp.rtt`.

Sources: RFC 6298; [Linux] tcp_update_rtt_min, lib/win_minmax.c.
"""

from cctrace.schema import U32_MAX
from cctrace.tcp.rtt import rtt_estimator, timeout_us

MIN_RTT_WINDOW_US = 300_000_000  # sysctl tcp_min_rtt_wlen


def smooth(tp, rtt_us):
    """Enter one sample into srtt, mdev and rttvar, and set the timeout [Linux] tcp_rtt_estimator, tcp_set_rto."""
    round_over = tp.srtt_us8 == 0 or tp.snd_una > tp.rtt_seq
    tp.srtt_us8, tp.mdev_us4, tp.mdev_max_us4, tp.rttvar_us4 = rtt_estimator(
        tp.srtt_us8, tp.mdev_us4, tp.mdev_max_us4, tp.rttvar_us4, rtt_us, round_over
    )
    if round_over:
        tp.rtt_seq = tp.snd_nxt
    tp.rto_us = timeout_us(tp.srtt_us8, tp.rttvar_us4, 1_000_000 // tp.hz)


def reset_min(tp, t, value):
    """Start the windowed minimum afresh with one sample."""
    tp.tcp_min_rtt_at_us = t
    tp.min1_rtt_at_us = t
    tp.min2_rtt_at_us = t
    tp.tcp_min_rtt_us = value
    tp.min1_rtt_us = value
    tp.min2_rtt_us = value


def update_min(tp, rtt_us, maybe_delayed):
    """Enter one sample into the minimum of the last 300 s, kept as the best three of sub-windows [Linux] win_minmax."""
    if maybe_delayed and rtt_us > tp.tcp_min_rtt_us:
        return  # a delayed ACK of a lone segment would one day become the minimum
    t = tp.now_us
    value = rtt_us
    if rtt_us <= 0:
        value, tp.ticks_matter = 1_000_000 // tp.hz, 1
    if value <= tp.tcp_min_rtt_us or tp.tcp_min_rtt_us == U32_MAX or t - tp.min2_rtt_at_us > MIN_RTT_WINDOW_US:
        reset_min(tp, t, value)
        return
    if value <= tp.min1_rtt_us:
        tp.min1_rtt_us, tp.min1_rtt_at_us = value, t
        tp.min2_rtt_us, tp.min2_rtt_at_us = value, t
    elif value <= tp.min2_rtt_us:
        tp.min2_rtt_us, tp.min2_rtt_at_us = value, t
    age = t - tp.tcp_min_rtt_at_us
    if age > MIN_RTT_WINDOW_US:
        tp.tcp_min_rtt_us, tp.tcp_min_rtt_at_us = tp.min1_rtt_us, tp.min1_rtt_at_us
        tp.min1_rtt_us, tp.min1_rtt_at_us = tp.min2_rtt_us, tp.min2_rtt_at_us
        tp.min2_rtt_us, tp.min2_rtt_at_us = value, t
        if t - tp.tcp_min_rtt_at_us > MIN_RTT_WINDOW_US:
            tp.tcp_min_rtt_us, tp.tcp_min_rtt_at_us = tp.min1_rtt_us, tp.min1_rtt_at_us
            tp.min1_rtt_us, tp.min1_rtt_at_us = tp.min2_rtt_us, tp.min2_rtt_at_us
            tp.min2_rtt_us, tp.min2_rtt_at_us = value, t
    elif tp.min1_rtt_at_us == tp.tcp_min_rtt_at_us and age > MIN_RTT_WINDOW_US // 4:
        tp.min1_rtt_us, tp.min1_rtt_at_us = value, t
        tp.min2_rtt_us, tp.min2_rtt_at_us = value, t
    elif tp.min2_rtt_at_us == tp.min1_rtt_at_us and age > MIN_RTT_WINDOW_US // 2:
        tp.min2_rtt_us, tp.min2_rtt_at_us = value, t
