"""What a single look at a connection's counters tells of what limits it: `ss -ti` pasted once, or the last poll.

Asked in this order: is the receiver's window full, does the kernel's account of the time so far name the receiver or
the send buffer, has the application nothing to send, were packets reordered or lost on a path without a queue, is cwnd
full. A look is an instant: nothing moves in it, and only what the kernel counted since the beginning tells of before.
"""

import numpy as np

from cctrace.explain.findings import Verdict
from cctrace.units import format_rate, format_share, format_size, format_time

WINDOW_FULL = 0.9  # of the receiver's window in flight; the rest is less than a burst
CWND_FULL = 0.9
MOST = 0.5  # of the time so far
LOSSY = 0.005  # segments sent again: above it loss-based controllers are far below most paths' rates
REORDERED = 0.002  # times that reordering was seen, per segment
QUEUED = 1.1  # times the least RTT


def window_used(flow):
    """Return which part of the receiver's window was in flight, typically (median of the polls); NaN unknown."""
    window = flow.values("snd_wnd")
    used = flow.outstanding() * flow.values("snd_mss") / np.where(window > 0, window, np.nan)
    return float(min(1.0, np.nanmedian(used))) if not np.isnan(used).all() else np.nan


def look(flow):
    """Return the `Verdict` of the last poll of a `CounterFlow`; None if it tells nothing."""
    polls = [name for name in ("unacked", "busy_time_us", "snd_cwnd", "delivery_rate_Bps") if _last(flow, name) >= 0]
    if not polls:
        return None
    busy, unacked, cwnd = (_last(flow, name) for name in ("busy_time_us", "unacked", "snd_cwnd"))
    sent = _last(flow, "data_segs_out")
    figures = {
        "receiver_share": _last(flow, "rwnd_limited_us") / busy if busy > 0 else np.nan,
        "send_buffer_share": _last(flow, "sndbuf_limited_us") / busy if busy > 0 else np.nan,
        "window_used": window_used(flow),
        "cwnd_used": unacked / cwnd if cwnd > 0 else np.nan,
        "delivery_rate_Bps": _last(flow, "delivery_rate_Bps"),
        "rtt_us": _last(flow, "rtt"),
        "min_rtt_us": _last(flow, "min_rtt"),
        "retransmitted_share": _last(flow, "total_retrans") / sent if sent > 0 else np.nan,
        "reordered_share": _last(flow, "reord_seen") / sent if sent > 0 else np.nan,
    }
    name, confidence, told, advice = _cause(flow, figures)
    text = f"At this look {told}; {_rest(figures)}. (One look: nothing tells how it was before or after.)"
    return Verdict(name, confidence, 0.0, 0.0, figures, text, advice, "A second look, some seconds later.")


def _cause(flow, figures):
    """Return (name, confidence, what is told, advice)."""
    idle = _last(flow, "unacked") == 0 and not _last(flow, "notsent_bytes") > 0
    bigger = "A larger receive buffer would help, another congestion control would not."
    if figures["window_used"] >= WINDOW_FULL:
        used, window = format_share(figures["window_used"]), format_size(_last(flow, "snd_wnd"))
        return "receiver_limited", 0.8, f"the receiver's window was full: {used} of {window} in flight", bigger
    if figures["receiver_share"] >= MOST:
        return "receiver_limited", 0.9, "the receiver's window had held it back for most of its time", bigger
    if figures["send_buffer_share"] >= MOST:
        told = "its own send buffer had been full for most of its time"
        return "send_buffer_limited", 0.9, told, "A larger send buffer would help."
    if idle or _last(flow, "delivery_rate_app_limited") == 1:
        told = "the application sent less than it could have"
        return "application_limited", 0.6, told, "Have the application write earlier or more at a time."
    if figures["reordered_share"] >= REORDERED and _last(flow, "reord_seen") >= 10:
        told = f"the kernel had seen reordering {_last(flow, 'reord_seen'):.0f} times"
        return "reordering", 0.8, told, "Find the parallel links or per-packet balancing."
    if figures["retransmitted_share"] >= LOSSY and figures["rtt_us"] < QUEUED * figures["min_rtt_us"]:
        told = f"{format_share(figures['retransmitted_share'])} of the segments had been sent again, without a queue"
        return "random_loss", 0.5, told, "Look for a bad link."
    if figures["cwnd_used"] >= CWND_FULL:
        told = f"its congestion window was full, {_last(flow, 'snd_cwnd'):.0f} segments: the path set the pace"
        return "path_full", 0.5, told, ""
    return "unknown", 0.0, "neither a window nor the application was the limit", "Look again, or capture."


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
