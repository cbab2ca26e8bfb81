"""RTT: smoothing, retransmission timeout and the windowed minimum, as the Linux sender keeps them.

Which segments give a sample is decided in `sender.py` (Karn's rule, SACKed segments, time stamps where nothing
unretransmitted was acknowledged). Here one sample enters the estimators.

Sources: RFC 6298; [Linux] tcp_rtt_estimator, tcp_set_rto, tcp_update_rtt_min, lib/win_minmax.c.
"""

from numba import njit

from cctrace.schema import U32_MAX

MIN_RTT_WINDOW_US = 300_000_000  # sysctl tcp_min_rtt_wlen
RTO_MAX_US = 120_000_000


@njit
def smooth(tp, rtt_us):
    """Enter one sample into srtt, mdev and rttvar (held as multiples of 1/8 and 1/4 us) [Linux] tcp_rtt_estimator."""
    error = rtt_us
    if tp.srtt8 == 0:
        tp.srtt8 = max(1, rtt_us << 3)
        tp.mdev4 = rtt_us << 1
        tp.rttvar4 = max(tp.mdev4, tp.rto_min_us)
        tp.mdev_max4 = tp.rttvar4
        tp.rtt_seq = tp.snd_nxt
        return
    error -= tp.srtt8 >> 3
    tp.srtt8 = max(1, tp.srtt8 + error)
    if error < 0:
        # A falling RTT enters the deviation with an eighth of the weight: it must not raise the timeout.
        error = -error - (tp.mdev4 >> 2)
        if error > 0:
            error >>= 3
    else:
        error -= tp.mdev4 >> 2
    tp.mdev4 += error
    if tp.mdev4 > tp.mdev_max4:
        tp.mdev_max4 = tp.mdev4
        tp.rttvar4 = max(tp.rttvar4, tp.mdev_max4)
    if tp.snd_una > tp.rtt_seq:  # once per round trip rttvar sinks towards this round's largest deviation
        if tp.mdev_max4 < tp.rttvar4:
            tp.rttvar4 -= (tp.rttvar4 - tp.mdev_max4) >> 2
        tp.rtt_seq = tp.snd_nxt
        tp.mdev_max4 = tp.rto_min_us


@njit
def set_rto(tp):
    """Set the retransmission timeout, which the kernel holds in whole ticks."""
    tick = 1_000_000 // tp.hz
    rto = (tp.srtt8 >> 3) + tp.rttvar4
    tp.rto_us = min((rto + tick - 1) // tick * tick, RTO_MAX_US)


@njit
def reset_min(tp, t, value):
    """Start the windowed minimum afresh with one sample."""
    tp.min0_t = t
    tp.min1_t = t
    tp.min2_t = t
    tp.min0 = value
    tp.min1 = value
    tp.min2 = value


@njit
def update_min(tp, rtt_us, maybe_delayed):
    """Enter one sample into the minimum of the last 300 s, kept as the best three of sub-windows [Linux] win_minmax."""
    if maybe_delayed and rtt_us > tp.min0:
        return  # a delayed ACK of a lone segment would one day become the minimum
    t = tp.now_us
    value = rtt_us if rtt_us > 0 else 1_000_000 // tp.hz
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
