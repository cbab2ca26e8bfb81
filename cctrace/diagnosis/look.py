"""What a single look at a connection's counters tells of what limits it: `ss -ti` pasted once, or the last poll.

Asked in this order: is the receiver's window full, does the kernel's account of the time so far name the receiver or
the send buffer, was it over before it left slow start, were packets reordered or lost on a path without a queue, is
BBR's min_rtt far below the RTT by jitter, did the application let the path wait, is there a queue or a full cwnd. A
look is an instant: nothing moves in it, and only what the kernel counted since the beginning tells of before.
"""

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.socket_limit import ADVICE, is_at, socket_limit
from cctrace.units import format_rate, format_share, format_size, format_time

WINDOW_FULL = 0.9  # of the receiver's window in flight; the rest is less than a burst
CWND_FULL = 0.9
MOST = 0.5  # of the time so far
LOSSY = 0.005  # segments sent again
REORDERED = 0.002  # times that reordering was seen, per segment
QUEUED = 1.1  # times the least RTT, below which there is no queue
QUEUE = 1.25  # and above which there is one
TAIL = 10.0  # mean deviations that a least RTT may lie below the RTT by jitter
USED = 0.8  # of the estimated rate
SHORT_RTTS = 16
FEWEST = 10  # segments sent again
AMPLE = 2.0  # times the window that losses allow
START = 4.0  # bandwidth-delay products that a start may lose
DELAYED_US = 40_000  # of a delayed ACK [Linux] TCP_DELACK_MIN
MOST_CONNECTIONS = 100
BULK = 0.02  # of its bytes, that another connection must have sent to count


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
        "rate_bps": 8 * max(_last(flow, "bbr_bw_Bps"), _last(flow, "delivery_rate_Bps"), key=np.nan_to_num),
        "busy_rate_bps": _last(flow, "bytes_acked") * 8e6 / busy if busy > 0 else np.nan,
        "rtt_us": _last(flow, "rtt"),
        "min_rtt_us": _last(flow, "min_rtt"),
        "retransmitted_share": _last(flow, "total_retrans") / sent if sent > 0 else np.nan,
        "reordered_share": _last(flow, "reord_seen") / sent if sent > 0 else np.nan,
    }
    window = _last(flow, "snd_wnd")
    took = figures["busy_rate_bps"] / 8e6 * figures["rtt_us"]
    figures["window_average"] = min(1.0, took / window) if window > 0 else np.nan
    name, confidence, told, advice = _cause(flow, figures)
    text = f"At this look {told}; {_rest(figures)}. (One look: nothing tells how it was before or after.)"
    return Verdict(name, confidence, 0.0, 0.0, figures, text, advice, "A second look, some seconds later.")


def _cause(flow, figures):
    """Return (name, confidence, what is told, advice)."""
    for ask in (_ends, _path):
        if found := ask(flow, figures):
            return found
    if _idle(flow) or _last(flow, "delivery_rate_app_limited") == 1:
        return "application_limited", 0.4, *_WAITED
    return "unknown", 0.0, "neither a window nor the application was the limit", "Look again, or capture."


def _ends(flow, figures):
    bigger = "A larger receive buffer would help, another congestion control would not."
    if figures["window_used"] >= WINDOW_FULL:
        used, window = format_share(figures["window_used"]), format_size(_last(flow, "snd_wnd"))
        return "receiver_limited", 0.8, f"the receiver's window was full: {used} of {window} in flight", bigger
    if figures["window_average"] >= WINDOW_FULL and figures["receiver_share"] > 0:
        used, window = format_share(figures["window_average"]), format_size(_last(flow, "snd_wnd"))
        return "receiver_limited", 0.6, f"its rate on average took {used} of the receiver's {window} per RTT", bigger
    if figures["receiver_share"] >= MOST:
        return "receiver_limited", 0.9, "the receiver's window had held it back for most of its time", bigger
    if figures["send_buffer_share"] >= MOST:
        told = "its own send buffer had been full for most of its time"
        return "send_buffer_limited", 0.9, told, "A larger send buffer would help."
    limit, paced = socket_limit(flow.values("pacing_rate_Bps")[-1:], flow.values("max_pacing_rate")[-1:])
    if paced and is_at(max(figures["delivery_rate_Bps"], figures["busy_rate_bps"] / 8, key=np.nan_to_num), limit):
        told = f"it paced at the limit of its socket (SO_MAX_PACING_RATE), {format_rate(8 * limit)}, and got as much"
        return "pacing_limited", 0.8, told, ADVICE
    round_trips = _last(flow, "busy_time_us") / figures["min_rtt_us"] if figures["min_rtt_us"] > 0 else np.nan
    if _idle(flow) and round_trips < SHORT_RTTS and not _last(flow, "total_retrans") > 0:
        told = f"it had sent for no more than {round_trips:.0f} round trips, without a loss: still in slow start"
        return "slow_start_only", 0.6, told, "Fewer round trips would help: a connection that is kept open."
    return None


def _path(flow, figures):
    rtt, least, share = figures["rtt_us"], figures["min_rtt_us"], figures["retransmitted_share"]
    beside = _beside(flow)
    if beside:
        figures |= {"flows": 1 + len(beside), "their_rate_bps": sum(beside)}
        told = f"{len(beside)} more of this table had data at the same time, {format_rate(sum(beside))} in all"
        sure = 0.5 if flow.connection.get("dst") else 0.4  # whether they went the same way is not told
        return "competition", sure, told, "A fair queue at the bottleneck (fq_codel, cake) would share evenly."
    if figures["reordered_share"] >= REORDERED and _last(flow, "reord_seen") >= 10:
        told = f"the kernel had seen reordering {_last(flow, 'reord_seen'):.0f} times"
        return "reordering", 0.8, told, "Find the parallel links or per-packet balancing."
    # At the end of a transfer the last ACK was delayed, which an eighth of goes into the smoothed RTT.
    if rtt < QUEUED * least + (DELAYED_US / 8 if _idle(flow) else 0) and _by_loss(flow, figures):
        told = f"{format_share(share)} of the segments had been sent again, without a queue"
        return "random_loss", 0.45, told, "Look for a bad link."
    model, used = _last(flow, "bbr_min_rtt_us"), figures["busy_rate_bps"] / (figures["rate_bps"] or np.nan)
    if model > 0 and 2 * model < rtt < model + TAIL * _last(flow, "rttvar") and used < USED:
        told = "BBR's min_rtt was less than half the RTT, by jitter: a minRTT collapse"
        return "collapse", 0.5, told, "A controller that does not take the least RTT for the path's."
    waiting = _idle(flow) or _last(flow, "delivery_rate_app_limited") == 1
    if used < MOST and (waiting or (model > 0 and figures["cwnd_used"] < MOST)):
        return "application_limited", 0.6, *_WAITED
    if rtt > QUEUE * least or (waiting and model > 0 and used >= USED):
        return (
            "path_full",
            0.5,
            "it had what its path gave: there was a queue, or it had its own estimate of the rate",
            "",
        )
    if figures["cwnd_used"] >= CWND_FULL:
        told = f"its congestion window was full, {_last(flow, 'snd_cwnd'):.0f} segments: the path set the pace"
        return "path_full", 0.5, told, ""
    if _idle(flow) and _last(flow, "total_retrans") >= FEWEST:
        told = f"it had sent {_last(flow, 'total_retrans'):.0f} segments again: at times it had filled its path"
        return "path_full", 0.4, told, ""
    return None


def _by_loss(flow, figures):
    """Return whether as much was lost, evenly, as explains the rate; what a full queue drops at once is far more.

    Of a controller that takes losses for congestion the window on average is then that of [Mathis97], sqrt(1.5 / p);
    BBR's start may overflow a queue by some of its bandwidth-delay products.
    """
    share, lost, mss = figures["retransmitted_share"], _last(flow, "total_retrans"), _last(flow, "snd_mss") or np.nan
    if _last(flow, "bbr_bw_Bps") > 0:
        return share >= LOSSY and lost > START * _last(flow, "bbr_bw_Bps") * figures["min_rtt_us"] / 1e6 / mss
    window = figures["busy_rate_bps"] / 8e6 * figures["rtt_us"] / mss
    known = np.isfinite(window)
    return lost >= FEWEST and (window < AMPLE * np.sqrt(1.5 / share) if known else share >= LOSSY)


def _beside(flow):
    """Return the rates (bit/s) of connections of the table, to the same host as far as told, with data at the time."""
    from cctrace.flows.counters import CounterFlow

    table, mine, found = getattr(flow, "table", None), flow.connection, []
    if table is None:
        return found
    busy, sent = _last(flow, "busy_time_us"), _last(flow, "bytes_acked")
    for index, known in enumerate(table.connections[:MOST_CONNECTIONS]):
        other = CounterFlow(table, index) if known.get("dst") == mine.get("dst") and known is not mine else None
        if other is None or not len(other.polls):
            continue
        its_busy, its = _last(other, "busy_time_us"), _last(other, "bytes_acked")
        apart_us = abs(_last(flow, "time_ns") - _last(other, "time_ns")) / 1e3
        if its > BULK * sent and min(busy, its_busy) > 0 and not apart_us > max(busy, its_busy) / 2:
            found.append(its * 8e6 / its_busy)
    return found


_WAITED = ("the application sent less than it could have", "Have the application write earlier or more at a time.")


def _idle(flow):
    return _last(flow, "unacked") == 0 and not _last(flow, "notsent_bytes") > 0


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
