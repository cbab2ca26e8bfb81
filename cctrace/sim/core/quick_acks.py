"""When a Linux receiver that delays ACKs sends them at once (quick ACKs), and how long it delays others (`ato`).

Function names are the kernel's ([Linux612] tcp_input.c, tcp.h).
"""

from cctrace.sim.core.positions import begins
from cctrace.sim.core.structs import MAX_QUICK_ACKS
from cctrace.tcp.rtt import RTO_MIN_US


def note_pause(f, now):
    """tcp_event_data_recv: the delay of ACKs follows from the times between data (`ato`, in ticks).

    The first data, and the first after a pause longer than the receiver's timeout, are acknowledged at once.
    """
    least = ato_min(f)
    if f.ato == 0:
        f.ato = least
        f.quick_acks = max(f.quick_acks, first_quick_acks(f))
    elif now - f.rcv_last_ns < (least // 2 - 1) * f.tick_us * 1000:  # saves divisions
        f.ato = (f.ato >> 1) + least // 2
    else:
        rto = ticks_of(f, f.rcv_first_rtt + max(2 * f.rcv_first_rtt, RTO_MIN_US))
        since = jiffies(f, now) - jiffies(f, f.rcv_last_ns)
        if since <= least // 2:
            f.ato = (f.ato >> 1) + least // 2
        elif since < f.ato:
            f.ato = min(min((f.ato >> 1) + since, rto), f.hz // 5)
        elif since > rto:
            f.quick_acks = max(f.quick_acks, first_quick_acks(f))
    f.rcv_last_ns = now


def quick(f, segment):
    """Whether a Linux receiver that delays ACKs acknowledges the arrival at once (tcp_in_quickack_mode).

    It does so for the first 16 ACKs of a connection, after a pause (`note_pause`), after a duplicate
    (tcp_send_dupack) and while its window opens (tcp_grow_window).
    """
    if segment < f.rcv_nxt and f.rcv_duplicate > 0:
        enter_quickack_mode(f)
    return f.quick_acks > 0


def enter_quickack_mode(f):
    """tcp_enter_quickack_mode, after a duplicate."""
    f.quick_acks = max(f.quick_acks, first_quick_acks(f))
    f.ato = ato_min(f)


def leave_quickack_mode(f):
    """tcp_dec_quickack_mode: of ACKs that data caused; those of reading do not count."""
    f.quick_acks -= 1
    if f.quick_acks == 0:
        f.ato = ato_min(f)


def first_quick_acks(f):
    """tcp_incr_quickack: half the window's segments, from 2 to 16."""
    return min(max(min((f.rcv_right - begins(f, f.rcv_acked)) // f.mss, f.rwnd) // 2, 2), MAX_QUICK_ACKS)


def jiffies(f, now):
    """Ticks of a host's clock."""
    return now * f.hz // 1_000_000_000


def ticks_of(f, us):
    """usecs_to_jiffies: rounded up."""
    return (us * f.hz + 999_999) // 1_000_000


def ato_min(f):
    """TCP_ATO_MIN, in ticks."""
    return f.hz // 25
