"""RACK: a segment sent well before one that was delivered is lost [RFC8985].

The reordering window is how much later the segment may still arrive: a quarter of min_rtt, and a quarter more for
each round trip with a D-SACK, for 16 recoveries, but never more than the smoothed RTT. Until reordering has been
observed, it is 0 in recovery and once three segments are SACKed.

Source: [Linux61] net/ipv4/tcp_recovery.c.
"""

from cctrace.cc.linux import CA_RECOVERY

DEFAULT_REORDERING = 3  # sysctl tcp_reordering
MAX_REORDERING = 300  # sysctl tcp_max_reordering
REO_WND_PERSIST = 16  # recoveries for which a widened window lasts (TCP_RACK_RECOVERY_THRESH)
MAX_REO_WND_STEPS = 0xFF


def rack_reo_wnd_us(
    reord_seen: int, ca_state: int, sacked_out: int, reordering: int, min_rtt_us: int, reo_wnd_steps: int, srtt8: int
) -> int:
    """Return the reordering window, us [Linux61] tcp_rack_reo_wnd."""
    if reord_seen == 0 and (ca_state >= CA_RECOVERY or sacked_out >= reordering):
        return 0
    return min((min_rtt_us >> 2) * reo_wnd_steps, srtt8 >> 3)


def rack_update_reo_wnd(
    dsack_seen: int, prior_delivered: int, delivered: int, steps: int, persist: int, last_delivered: int
) -> tuple[int, int, int]:
    """Return reo_wnd_steps, reo_wnd_persist and last_delivered after an ACK [Linux61] tcp_rack_update_reo_wnd.

    A D-SACK widens the window, but not if the segment of this ACK's rate sample was sent (with `prior_delivered`)
    before it was last widened (at `last_delivered`): the D-SACK then belongs to the same round trip. The caller clears
    `dsack_seen`.
    """
    if dsack_seen and prior_delivered >= last_delivered:
        return min(MAX_REO_WND_STEPS, steps + 1), REO_WND_PERSIST, delivered
    return 1 if persist == 0 else steps, persist, last_delivered


def rack_is_original(rtt_us: int, min_rtt_us: int, was_retransmitted: bool) -> bool:
    """Return whether the original was delivered, the retransmission being too recent [Linux61] tcp_rack_advance."""
    return was_retransmitted and rtt_us < min_rtt_us
