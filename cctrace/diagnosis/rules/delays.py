"""Delay that is no queue of the flow's own: jitter and what it does to BBR's min_rtt, reordering, the ways of ACKs."""

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.limits import shares
from cctrace.diagnosis.rules.quality import too_short
from cctrace.diagnosis.rules.returning import JITTERED, returning
from cctrace.units import format_rate, format_share, format_time

FILTER_S = 10.0  # of BBR's min_rtt [Linux61] bbr_min_rtt_win_sec
FULL = 0.95  # of the bottleneck's rate: no collapse, whatever min_rtt says
USED = 0.01  # of the bottleneck's rate: no controller with data to send gets less
PACED = 0.25  # of the time
SHORT_PROBES = 0.6  # of the mean RTT: min_rtts of 3/5 let probes end before half of what they sent is back
TAIL = 10.0  # standard deviations of jitter that a least RTT of some seconds may lie below the mean
EARLY_US = 20.0  # by which an arrival must precede that of an earlier packet
REORDERED = 0.002
REORDERED_LEAST = 10
INFLATED = 1.25


def verdicts(record, limits, found):
    """Return the verdicts of this family that hold."""
    names = {verdict.name for verdict in found if verdict.confidence >= 0.6}
    if record.bottleneck is None or too_short(record) or names & {"slow_start_only"}:
        return []
    ends = names & {"receiver_limited", "application_limited", "send_buffer_limited", "pacing_limited"}
    out = []
    if (
        not names & {"competition", "fair_queueing", "rate_change", "stale_bandwidth"}
        and not ends
        and _acts_as_bbr(record, limits)
    ):
        out += _collapse(record, limits)
    out += _reordering(record)
    paused = names & {"application_limited", "send_buffer_limited"}  # whose ACKs come as what it sent
    if not any(verdict.name == "reordering" for verdict in out) and not paused:
        out += returning(record)
    out += _jitter(record, out)
    out += _inflated(record)
    return out


def _acts_as_bbr(record, limits):
    """Return whether the sender is known to be BBR, or, where nobody is known, paces or probes for the RTT as it does.

    What hardly uses its path is idle, whatever its min_rtt.
    """
    if record.is_loss_based or (record.bottleneck.seen and not record.use >= USED):
        return False
    share = shares(limits)
    return record.is_model_based or share.get("probe_rtt", 0.0) > 0 or share.get("pacing", 0.0) >= PACED


def least_of_filter(record):
    """Return BBR's min_rtt, typically, us: the kernel's where it tells, else the least RTT of ten seconds (median)."""
    polls = record.flow.tcpinfo
    if polls is not None and (polls["bbr_min_rtt_us"] > 0).any():
        told = polls["bbr_min_rtt_us"]
        return float(np.median(told[told > 0]))
    return float(np.median(filtered_min(record)[1]))


def filtered_min(record):
    """Return (time_s, least RTT of the ten seconds before, us), by stretches of a quarter of a second."""
    known = np.isfinite(record.rtt_us)
    time, rtt = record.sent_s[known], record.rtt_us[known]
    place = (time / 0.25).astype(np.int64)
    least = np.full(int(place.max()) + 1, np.inf)
    np.minimum.at(least, place, rtt)
    size = int(FILTER_S / 0.25)
    padded = np.concatenate([np.full(size - 1, np.inf), least])
    filtered = np.lib.stride_tricks.sliding_window_view(padded, size).min(axis=1)
    return np.arange(len(least)) * 0.25, filtered


def _collapse(record, limits):
    bottleneck = record.bottleneck
    mean, spread = record.uncongested
    least = least_of_filter(record)
    by_jitter = mean - least < TAIL * spread and spread > 0.02 * mean
    share, paced = least / mean, shares(limits)
    # A little above a half, probes that last for a min_rtt end before their ACKs are back: no growth without a queue.
    slow = not bottleneck.seen and not record.lost.any() and paced.get("pacing", 0) > paced.get("cwnd", 0)
    if not by_jitter or share > (SHORT_PROBES if slow else 0.5) or (bottleneck.seen and record.use >= FULL):
        return
    rate = bottleneck.rate * 8e6
    of = f" of a path of {format_rate(rate)}" if bottleneck.seen else ""
    sure = 0.9 if record.is_model_based else 0.7
    who = "" if record.is_model_based else " of a sender that paces as BBR does"
    yield Verdict(
        "collapse",
        sure if share < 0.45 else sure - 0.15 if share < 0.5 else sure - 0.25,
        0.0,
        record.duration_s,
        {"min_rtt_us": least, "uncongested_rtt_us": mean, "jitter_sd_us": spread, "used_share": record.use},
        f"minRTT collapse{who}: jitter (sd {format_time(spread * 1000)}) makes the least RTT "
        f"{format_time(least * 1000)}, {'less than' if share < 0.5 else 'hardly more than'} "
        f"half of the {format_time(mean * 1000)} that packets take without a queue, and a window of "
        "two bandwidth-delay "
        f"products of that is too small: {format_rate(record.goodput_bps)}{of}.",
        "A controller that does not take the least RTT for the path's (bbr2_comp, BBRv2+), or CUBIC; less jitter.",
        "A min_rtt above half the mean RTT without queue, or a rate that stays when the window is raised.",
    )


def _reordering(record):
    rtt = record.table.rtt_us
    # Of a segment that was sent more than once nobody knows which one was told of.
    _, segment, times = np.unique(record.table.seq, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(np.isfinite(rtt) & (times[segment.reshape(-1)] == 1))
    if len(rows) < 100:
        return
    told = record.table.told_ns[rows] / 1e3
    first = told - told[0]
    late = first < np.maximum.accumulate(first) - EARLY_US
    count, share = int(late.sum()), float(late.mean())
    again = record.flow.retransmissions
    spurious = int(again["spurious"].sum())
    if count < REORDERED_LEAST or share < REORDERED:
        return
    cost = f", and {spurious} retransmissions were needless" if spurious else ""
    yield Verdict(
        "reordering",
        0.95 if share > 0.01 else 0.7,
        0.0,
        record.duration_s,
        {
            "reordered_share": share,
            "reordered": count,
            "spurious_retransmissions": spurious,
            "lost": int(record.lost.sum()),
        },
        f"The path reorders: {format_share(share)} of the packets arrived after one that was sent later{cost}.",
        "Find the parallel links or per-packet balancing; senders need RACK (Linux since 4.18) to live with it.",
        "SACKs that only ever follow losses.",
    )


def _jitter(record, out):
    mean, spread = record.uncongested
    if (
        spread < JITTERED * mean
        or not record.bottleneck.seen
        or any(verdict.name in ("collapse", "ack_aggregation", "reordering") for verdict in out)
    ):
        return
    yield Verdict(
        "jitter",
        0.6,
        0.0,
        record.duration_s,
        {"jitter_sd_us": spread, "uncongested_rtt_us": mean},
        f"Delays vary by {format_time(spread * 1000)} (standard deviation within an RTT) on "
        f"{format_time(mean * 1000)}, "
        "whatever the flow's own queue.",
        "BBR's min_rtt falls with it: `cctrace fit collapse` tells how far this is from a minRTT collapse.",
        "Delays that follow the flow's own queue.",
    )


def _inflated(record):
    if record.is_loss_based or record.duration_s < 1.5 * FILTER_S:
        return
    time, filtered = filtered_min(record)
    late = filtered[(time > FILTER_S) & np.isfinite(filtered)]
    if not len(late):
        return
    typical = float(np.quantile(late, 0.75))
    base = float(np.quantile(record.rtt_us[np.isfinite(record.rtt_us)], 0.001))
    if not record.is_model_based or typical < INFLATED * base:
        return
    yield Verdict(
        "inflated_min_rtt",
        0.8,
        FILTER_S,
        record.duration_s,
        {"min_rtt_us": typical, "base_rtt_us": base},
        "BBR's min_rtt is inflated: for ten seconds at a time no RTT was below "
        f"{format_time(typical * 1000)}, though the "
        f"path's is {format_time(base * 1000)}: others keep the queue, and the window grows with it.",
        "Flows that empty the queue together (PROBE_RTT of several BBR flows), or a fair queue.",
        "RTTs near the least in every ten seconds.",
    )
