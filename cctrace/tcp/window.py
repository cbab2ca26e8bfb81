"""What the stack itself derives from the congestion window, whatever the controller.

Sources: [Linux61] include/net/tcp.h tcp_current_ssthresh; net/ipv4/tcp_input.c tcp_update_pacing_rate;
net/ipv4/tcp_output.c tcp_cwnd_validate, tcp_cwnd_restart.
"""

from cctrace.cc.linux import CA_CWR, CA_RECOVERY, TCP_INIT_CWND

PACING_SS_RATIO, PACING_CA_RATIO = 200, 120  # sysctls tcp_pacing_ss_ratio, tcp_pacing_ca_ratio: percent of cwnd / srtt
RATE_SCALE = 1_000_000 // 100 << 3  # from bytes and percent over srtt8 to bytes/s


def ssthresh_before(ca_state: int, ssthresh: int, cwnd: int) -> int:
    """Return the ssthresh that a reduction saves: at least 3/4 of cwnd, unless one is under way [Linux61]."""
    if ca_state != CA_CWR and ca_state != CA_RECOVERY:
        return max(ssthresh, (cwnd >> 1) + (cwnd >> 2))
    return ssthresh


def stack_pacing_rate(mss: int, cwnd: int, ssthresh: int, packets_out: int, srtt8: int, most_Bps: int = 0) -> int:
    """Return the pacing rate of a controller that sets none, bytes/s [Linux61] tcp_update_pacing_rate.

    It sizes bursts, and spaces them where the socket paces. `most_Bps` is SO_MAX_PACING_RATE, 0 for none.
    """
    percent = PACING_SS_RATIO if cwnd < ssthresh // 2 else PACING_CA_RATIO
    rate = mss * RATE_SCALE * percent * max(cwnd, packets_out)
    if srtt8 > 0:
        rate = rate // srtt8
    return min(rate, most_Bps) if most_Bps > 0 else rate


def note_usage(limited: bool, stale: bool, is_cwnd_limited: bool, packets_out: int, max_packets_out: int) -> bool:
    """Return whether a send is recorded as the fullest of its window [Linux61] tcp_cwnd_validate.

    It is if cwnd limited it, if the previous record has been acknowledged (`stale`), or if more is outstanding than
    before in a window that cwnd did not limit.
    """
    return limited or stale or (not is_cwnd_limited and packets_out > max_packets_out)


def cwnd_after_idle(cwnd: int, idle: int, rto: int) -> int:
    """Return cwnd after a pause, halved for every timeout it lasted, down to the initial window [Linux61]
    tcp_cwnd_restart.

    `idle` and `rto` are in the same unit of time.
    """
    lowest = min(TCP_INIT_CWND, cwnd)
    idle -= rto
    while idle > 0 and cwnd > lowest:
        cwnd >>= 1
        idle -= rto
    return max(cwnd, lowest)
