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
    round_over = tp.srtt8 == 0 or tp.snd_una > tp.rtt_seq
    tp.srtt8, tp.mdev4, tp.mdev_max4, tp.rttvar4 = rtt_estimator(
        tp.srtt8, tp.mdev4, tp.mdev_max4, tp.rttvar4, rtt_us, round_over
    )
    if round_over:
        tp.rtt_seq = tp.snd_nxt
    tp.rto_us = timeout_us(tp.srtt8, tp.rttvar4, 1_000_000 // tp.hz)


def reset_min(tp, t, value):
    """Start the windowed minimum afresh with one sample."""
    tp.min0_t = t
    tp.min1_t = t
    tp.min2_t = t
    tp.min0 = value
    tp.min1 = value
    tp.min2 = value


def update_min(tp, rtt_us, maybe_delayed):
    """Enter one sample into the minimum of the last 300 s, kept as the best three of sub-windows [Linux] win_minmax."""
    if maybe_delayed and rtt_us > tp.min0:
        return  # a delayed ACK of a lone segment would one day become the minimum
    t = tp.now_us
    value = rtt_us
    if rtt_us <= 0:
        value, tp.ticks_matter = 1_000_000 // tp.hz, 1
    if value <= tp.min0 or tp.min0 == U32_MAX or t - tp.min2_t > MIN_RTT_WINDOW_US:
        reset_min(tp, t, value)
        return
    if value <= tp.min1:
        tp.min1, tp.min1_t = value, t
        tp.min2, tp.min2_t = value, t
    elif value <= tp.min2:
        tp.min2, tp.min2_t = value, t
    age = t - tp.min0_t
    if age > MIN_RTT_WINDOW_US:
        tp.min0, tp.min0_t = tp.min1, tp.min1_t
        tp.min1, tp.min1_t = tp.min2, tp.min2_t
        tp.min2, tp.min2_t = value, t
        if t - tp.min0_t > MIN_RTT_WINDOW_US:
            tp.min0, tp.min0_t = tp.min1, tp.min1_t
            tp.min1, tp.min1_t = tp.min2, tp.min2_t
            tp.min2, tp.min2_t = value, t
    elif tp.min1_t == tp.min0_t and age > MIN_RTT_WINDOW_US // 4:
        tp.min1, tp.min1_t = value, t
        tp.min2, tp.min2_t = value, t
    elif tp.min2_t == tp.min1_t and age > MIN_RTT_WINDOW_US // 2:
        tp.min2, tp.min2_t = value, t
