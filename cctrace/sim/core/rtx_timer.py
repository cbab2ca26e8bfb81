"""The retransmission timer of a simulated TCP sender, which waits for the RTO, a tail-loss probe or reordering."""

from cctrace.cc.linux import CA_CWR, CA_OPEN
from cctrace.sim.core.calls import mstamp
from cctrace.sim.core.structs import LINUX, NEVER, PROBE_TIMER, RTO_TIMER, segments
from cctrace.tcp.probe import probe_timeout_us
from cctrace.tcp.rtt import RTO_MAX_US
from cctrace.tcp.wheel import fires_ns


def current_rto(f):
    """The timeout with its backoff, us."""
    return min(f.rto_us << f.backoff, RTO_MAX_US)


def arm(f, kind, timeout_us, now):
    """Start the timer; when Linux's fires is worked out once it is due (`is_early`), which most never are."""
    f.timer = kind
    f.rto_at = now + timeout_us * 1000
    f.armed_ns, f.armed_us = now, timeout_us


def is_early(f, now):
    """Whether a timer that is due fires later, as Linux counts in jiffies and rounds up; then `rto_at` is when."""
    if f.profile == LINUX:
        f.rto_at = fires_ns(f.armed_ns, (f.armed_us * f.hz + 999_999) // 1_000_000, f.hz)
    return f.rto_at > now


def rto_left(f):
    """tcp_rto_delta_us: time until the first outstanding segment's timeout, us."""
    sent_us = mstamp(segments(f.seg)[f.una & f.mask].sent_ns)
    return sent_us + current_rto(f) - f.now_us


def rearm_rto(f, now):
    """tcp_rearm_rto: a timer that waited for something shorter leaves what is left of the timeout."""
    if f.nxt == f.una:
        f.rto_at = NEVER
    elif f.rto_at != NEVER and f.timer != RTO_TIMER:
        arm(f, RTO_TIMER, max(rto_left(f), 1), now)
    else:
        arm(f, RTO_TIMER, current_rto(f), now)


def probes(f):
    """Whether the timer waits for a tail-loss probe while data are outstanding."""
    return f.profile == LINUX and (f.ca_state == CA_OPEN or f.ca_state == CA_CWR)


def schedule_loss_probe(f, advancing, now):
    """tcp_schedule_loss_probe [RFC8985] §7.2: in two RTTs, or at the timeout; returns whether it was set."""
    if f.nxt == f.una or not probes(f):
        return False
    left = current_rto(f) if advancing else rto_left(f)
    arm(f, PROBE_TIMER, probe_timeout_us(f.srtt, f.nxt - f.una, left), now)
    return True


def set_xmit_timer(f, now):
    """tcp_set_xmit_timer."""
    if not schedule_loss_probe(f, True, now):
        rearm_rto(f, now)
