"""What a single look at a connection's counters tells of what limits it: `ss -ti` pasted once.

Asked in this order: is the receiver's window full, has the application nothing to send, is cwnd full, does the kernel's
account of the time so far name the receiver or the send buffer. A look is an instant: nothing moves in it.
"""

import numpy as np

from cctrace.units import format_rate, format_share, format_size, format_time

WINDOW_FULL = 0.9  # of the receiver's window in flight; the rest is less than a burst
CWND_FULL = 0.9
MOST = 0.5  # of the time so far


def window_used(flow):
    """Return which part of the receiver's window was in flight, typically (median of the polls); NaN unknown."""
    window = flow.values("snd_wnd")
    used = flow.outstanding() * flow.values("snd_mss") / np.where(window > 0, window, np.nan)
    return float(min(1.0, np.nanmedian(used))) if not np.isnan(used).all() else np.nan


def look(flow):
    """Return (cause, sentence, figures) of the last poll of a `CounterFlow`; None if it tells nothing."""
    polls = [name for name in ("unacked", "busy_time_us", "snd_cwnd", "delivery_rate_Bps") if _last(flow, name) >= 0]
    if not polls:
        return None
    busy, unacked, cwnd = (_last(flow, name) for name in ("busy_time_us", "unacked", "snd_cwnd"))
    figures = {
        "receiver_share": _last(flow, "rwnd_limited_us") / busy if busy > 0 else np.nan,
        "send_buffer_share": _last(flow, "sndbuf_limited_us") / busy if busy > 0 else np.nan,
        "window_used": window_used(flow),
        "cwnd_used": unacked / cwnd if cwnd > 0 else np.nan,
        "delivery_rate_Bps": _last(flow, "delivery_rate_Bps"),
        "rtt_us": _last(flow, "rtt"),
        "min_rtt_us": _last(flow, "min_rtt"),
        "retransmitted_share": _last(flow, "total_retrans") / _last(flow, "data_segs_out"),
    }
    cause, told = _cause(flow, figures)
    return (
        cause,
        f"At this look {told}; {_rest(figures)}. (One look: nothing tells how it was before or after.)",
        figures,
    )


def _cause(flow, figures):
    idle = _last(flow, "unacked") == 0 and not _last(flow, "notsent_bytes") > 0
    if figures["window_used"] >= WINDOW_FULL:
        window = format_size(_last(flow, "snd_wnd"))
        return (
            "receiver",
            f"the receiver's window was full: {format_share(figures['window_used'])} of {window} in flight",
        )
    if figures["receiver_share"] >= MOST:
        return "receiver", "the receiver's window had held it back for most of its time"
    if idle or _last(flow, "delivery_rate_app_limited") == 1 or figures["send_buffer_share"] >= MOST:
        return "application", "the application sent less than it could have"
    if figures["cwnd_used"] >= CWND_FULL:
        return "path", f"its congestion window was full, {_last(flow, 'snd_cwnd'):.0f} segments: the path set the pace"
    return "unknown", "neither a window nor the application was the limit"


def _rest(figures):
    told = []
    if figures["delivery_rate_Bps"] > 0:
        told.append(f"it delivered {format_rate(figures['delivery_rate_Bps'] * 8)}")
    if figures["rtt_us"] > 0:
        told.append(f"RTT {format_time(figures['rtt_us'] * 1000)}")
    if figures["min_rtt_us"] > 0:
        told.append(f"at least {format_time(figures['min_rtt_us'] * 1000)}")
    if figures["receiver_share"] >= 0:
        shares = (format_share(np.nan_to_num(figures[name])) for name in ("receiver_share", "send_buffer_share"))
        told.append("so far {} of its time held back by the receiver's window and {} by its own buffer".format(*shares))
    return ", ".join(told) or "no more is told"


def _last(flow, name):
    """Return a column's value at the last poll, NaN unknown."""
    return float(flow.values(name)[-1]) if len(flow.polls) else np.nan
