"""What the stack itself derives from the congestion window, whatever the controller.

Sources: [Linux61] include/net/tcp.h tcp_current_ssthresh; net/ipv4/tcp_output.c tcp_cwnd_validate, tcp_cwnd_restart.
"""

from cctrace.cc.linux import CA_CWR, CA_RECOVERY


def ssthresh_before(ca_state: int, ssthresh: int, cwnd: int) -> int:
    """Return the ssthresh that a reduction saves: at least 3/4 of cwnd, unless one is under way [Linux61]."""
    if ca_state != CA_CWR and ca_state != CA_RECOVERY:
        return max(ssthresh, (cwnd >> 1) + (cwnd >> 2))
    return ssthresh


def note_usage(limited: bool, stale: bool, is_cwnd_limited: bool, packets_out: int, max_packets_out: int) -> bool:
    """Return whether a send is recorded as the fullest of its window [Linux61] tcp_cwnd_validate.

    It is if cwnd limited it, if the previous record has been acknowledged (`stale`), or if more is outstanding than
    before in a window that cwnd did not limit.
    """
    return limited or stale or (not is_cwnd_limited and packets_out > max_packets_out)


def cwnd_after_idle(cwnd: int, idle: int, rto: int, initial: int) -> int:
    """Return cwnd after `idle`, halved for every `rto` of it, down to the `initial` one [Linux61] tcp_cwnd_restart."""
    lowest = min(initial, cwnd)
    idle -= rto
    while idle > 0 and cwnd > lowest:
        cwnd >>= 1
        idle -= rto
    return max(cwnd, lowest)
