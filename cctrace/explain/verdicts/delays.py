"""Delay that is no queue of the flow's own: jitter and what it does to BBR's min_rtt, reordering, the ways of ACKs."""

import numpy as np

from cctrace.explain.findings import Verdict
from cctrace.explain.limits import shares
from cctrace.explain.verdicts.quality import too_short
from cctrace.fit.transmissions import WIRE_BYTES
from cctrace.units import format_rate, format_share, format_time

FILTER_S = 10.0  # of BBR's min_rtt [Linux61] bbr_min_rtt_win_sec
FULL = 0.95  # of the bottleneck's rate: no collapse, whatever min_rtt says
SHORT_PROBES = 0.6  # of the mean RTT: min_rtts of 3/5 let probes end before half of what they sent is back
TAIL = 10.0  # standard deviations of jitter that a least RTT of some seconds may lie below the mean
EARLY_US = 20.0  # by which an arrival must precede that of an earlier packet
REORDERED = 0.002
REORDERED_LEAST = 10
BATCH = 0.15  # of the base RTT, for which the bottleneck would take for what ACKs tell of at once
DELAYED_ACK = 2.0  # segments per ACK at most [RFC5681] 4.2
REGULAR = 0.35  # standard deviation over mean of the time between batches that a clock makes
SKIPPED = 0.05  # of the time between batches, by which whole multiples of it may be missed
FEWEST_ODD = 3  # batches that must differ, for their times and sizes to tell
JITTERED = 0.05  # of the RTT without queue: delays that vary by so much within one put packets together
INFLATED = 1.25


def verdicts(record, limits, found):
    """Return the verdicts of this family that hold."""
    names = {verdict.name for verdict in found if verdict.confidence >= 0.6}
    if record.bottleneck is None or too_short(record) or names & {"slow_start_only"}:
        return []
    ends = names & {"receiver_limited", "application_limited", "send_buffer_limited"}
    out = []
    if not names & {"competition", "fair_queueing", "rate_change", "stale_bandwidth"} and not ends and not record.is_loss_based:
        out += _collapse(record, limits)
    out += _reordering(record)
    if not any(verdict.name == "reordering" for verdict in out):
        out += _acks(record, names, out)
    out += _jitter(record, out)
    out += _inflated(record)
    return out


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
    sure = 0.9 if record.is_model_based else 0.75
    yield Verdict(
        "collapse",
        sure if share < 0.45 else sure - 0.15 if share < 0.5 else sure - 0.25,
        0.0,
        record.duration_s,
        {"min_rtt_us": least, "uncongested_rtt_us": mean, "jitter_sd_us": spread, "used_share": record.use},
        f"minRTT collapse: jitter (sd {format_time(spread * 1000)}) makes the least RTT "
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


def _acks(record, names, out):
    """How acknowledgements come: in batches by the clock, or too few."""
    acks = record.acks
    got = np.diff(acks["delivered"].astype(np.int64), prepend=int(acks["delivered"][0]) if len(acks) else 0)
    calm = (acks["ca_state"] == 0) & (got > 0)
    if calm.sum() < 50:
        return
    time, size, base_s = record.ack_s[calm], got[calm].astype(float), record.bottleneck.base_us / 1e6
    begins = np.concatenate([[True], np.diff(time) > base_s / 20])
    total = np.bincount(np.cumsum(begins) - 1, size)  # of a batch: what comes within a twentieth of an RTT
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(time)) - 1
    silence, quiet, after = np.diff(time[first]), time[first[1:]] - time[last[:-1]], total[1:]
    moving = silence < 1.5 * base_s
    if moving.sum() >= 20:
        silence, quiet, after = silence[moving], quiet[moving], after[moving]
        pause, carried = float(np.average(silence, weights=after)), float(np.average(after, weights=after))
        serial_s = carried * (record.table.mss + WIRE_BYTES) / record.bottleneck.rate / 1e6
        if not record.bottleneck.seen:
            serial_s = pause
        lasted = float(np.average(time[last] - time[first], weights=total))
        apart = max(lasted, pause - np.average(quiet, weights=after)) < 0.5 * pause  # mostly nothing comes
        long = carried >= 4 and min(pause, serial_s) > BATCH * base_s
        if apart and long and _varies(silence, after) < REGULAR and _by_clock(silence, after):
            yield _aggregation(record, pause, carried)
            return
    per_ack, packets = float(size.mean()), _segments_per_packet(record)
    mean, spread = record.uncongested
    jittered = spread > JITTERED * mean and calm.sum() / begins.sum() >= 2  # bursts are answered once
    if per_ack > 1.5 * max(DELAYED_ACK, packets) and not jittered:
        yield _thinning(record, per_ack, size, packets)


def _by_clock(silence, size):
    """Return whether batches come at fixed times, with what there is, rather than when there is a fixed amount.

    What differs tells: a small batch at its time, or one that was left out (none had come: twice the time, or thrice)
    speak for a clock; a batch of the usual size that came late speaks for an amount. Where nothing differs, the one
    that varies less is the fixed one.
    """
    time, much = silence / np.median(silence), size / np.median(size)
    same_time, same_size = np.abs(time - 1) < 0.2, np.abs(much - 1) < 0.2
    late, skipped = same_size & (time > 1.2), np.abs(time - np.round(time)) < SKIPPED
    clock, amount = (same_time & (much < 0.8)).sum() + (late & skipped).sum(), (late & ~skipped).sum()
    if max(clock, amount) < FEWEST_ODD:
        clock, amount = np.std(np.log(size[same_size])), np.std(np.log(time[same_time]))
    return bool(clock >= amount)


def _varies(values, weights):
    """Return the standard deviation over the mean, weighted."""
    mean = np.average(values, weights=weights)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=weights)) / mean)


def _segments_per_packet(record):
    """Return the segments that arrive together since the sender's device cut them: of a captured packet, typically."""
    sends = record.events.sends
    return float(np.median(sends["segments"])) if len(sends) else 1.0


def _aggregation(record, pause, carried):
    share = pause * 1e6 / record.bottleneck.base_us
    return Verdict(
        "ack_aggregation",
        float(np.clip(0.7 + 0.5 * (share - BATCH), 0.6, 0.95)),
        0.0,
        record.duration_s,
        {"interval_us": pause * 1e6, "segments_per_batch": carried, "base_rtt_us": record.bottleneck.base_us},
        f"ACKs come in batches: every {format_time(pause * 1e9)} ({format_share(share)} of the base RTT) for some "
        f"{carried:.0f} segments at a time, as of a radio or a receiver that waits.",
        "A window with room for a batch more (BBR of 2019 and later adds it); less aggregation on the last hop.",
        "ACKs that come evenly, as the bottleneck delivers.",
    )


def _thinning(record, per_ack, size, packets):
    return Verdict(
        "ack_thinning",
        float(np.clip(0.5 + 0.1 * (per_ack - DELAYED_ACK), 0.5, 0.9)),
        0.0,
        record.duration_s,
        {"segments_per_ack": per_ack, "segments_per_ack_p95": float(np.quantile(size, 0.95)), "per_packet": packets},
        f"ACKs are few: one for {per_ack:.1f} segments on average, where receivers answer every second: something "
        "drops or merges them, or the receiver delays them.",
        "Pacing hides the bursts that this makes; look at ACK filters of the uplink, at GRO and at the receiver.",
        "ACKs for every second segment in a capture at the receiver.",
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
