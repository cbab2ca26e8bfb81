"""The window with which a recorded sender began, and the one to which idle times let it fall.

Sources: [Linux618] net/ipv4/tcp_input.c tcp_init_cwnd, tcp_init_transfer; include/net/tcp.h
tcp_slow_start_after_idle_check; net/ipv4/tcp_output.c tcp_cwnd_restart.
"""

import weakref

import numpy as np

from cctrace import schema
from cctrace.cc.linux import EVENT_CWND_RESTART, TCP_INIT_CWND
from cctrace.columns import Values
from cctrace.flows.events import Events
from cctrace.flows.state import SLOWEST_HZ
from cctrace.tcp.rtt import RTO_MIN_US
from cctrace.tcp.window import cwnd_after_idle

NO_RESTART = 0
_restarts: weakref.WeakKeyDictionary[Events, int] = weakref.WeakKeyDictionary()


def route_window(events: Events) -> int:
    """Return the initial window of a sender's route: ten segments, or more if the first flight had more."""
    known = events.meta["complete"] and "start_ns" not in events.meta.get("inferred", ())  # no estimates of flights
    return max(TCP_INIT_CWND, events.meta.get("initial_cwnd", -1)) if known else TCP_INIT_CWND


def first_window(events: Events, usual: int) -> int:
    """Return the initial window, `usual` where a capture shows no other [Linux618] tcp_init_transfer.

    After two lost SYNs it is one segment.
    """
    if events.meta["complete"] and events.meta.get("lost_syns", 0) > 1:
        return 1
    return usual if (window := route_window(events)) == TCP_INIT_CWND else window


def restart_window(events: Events, sends: Values | None) -> int:
    """Return the window to which idle times let cwnd fall; NO_RESTART if sysctl tcp_slow_start_after_idle is off.

    It is off if more leaves after idle times, before the first ACK, than a restarted window allows: at most twice the
    largest flight before, halved for every timeout.
    """
    if events not in _restarts:
        window = route_window(events)
        _restarts[events] = NO_RESTART if sends is not None and _keeps_window(events, sends, window) else window
    return _restarts[events]


def _keeps_window(events: Events, sends: Values, window: int) -> bool:
    """Return whether more idle times left cwnd as it was than lowered it, of those that show it.

    A burst that goes on with the first ACK had filled cwnd. Ticks are taken for the longest that kernels have.
    """
    rows = events.of("cwnd_event")
    rows = rows[events.at("arg", rows) == EVENT_CWND_RESTART]
    if not len(rows) or not len(sends):
        return False
    acks = events.of("on_ack")
    answers = np.append(acks, len(events) - 1)[np.searchsorted(acks, rows)]
    begins, ends = (np.searchsorted(sends["row"], at, side="right") for at in (rows, answers))
    most = np.maximum.accumulate(sends["in_flight"])
    now_us, acked_us = (
        (events.at("time_ns", at) - events.meta["start_ns"]) // 1000 + schema.CLOCK_START_US for at in (rows, answers)
    )
    tick_us = 1_000_000 // SLOWEST_HZ
    idle_us = now_us - events.at("lsndtime_us", rows) - tick_us
    srtt_us = events.at("srtt_us8", rows) >> 3
    rto_us = srtt_us + np.maximum(events.at("rttvar_us4", rows), RTO_MIN_US) + tick_us
    kept, fell = 0, 0
    columns = (begins, ends, idle_us, rto_us, (acked_us + srtt_us) * 1000)
    for begin, end, idle, rto, soon_ns in zip(*(column.tolist() for column in columns), strict=True):
        if 0 < begin < end:
            allowed = cwnd_after_idle(2 * int(most[begin - 1]), idle, rto, window)
            more = sends["in_flight"][end - 1] > max(allowed, window)
            kept += more
            fell += not more and end < len(sends) and sends["tx_ns"][end] < soon_ns
    return bool(kept > fell)
