"""A limit of the sender's pacing rate: as the kernel's counters tell it, or as packets that leave evenly show it."""

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.limits import shares, startup_end_s
from cctrace.diagnosis.socket_limit import ADVICE, REFUTED, is_at, socket_limit
from cctrace.tcp.wire import HEADER_BYTES
from cctrace.units import format_rate, format_share

MOST = 0.5  # of the time
EVEN = 0.9  # share of the time in which packets left at one rate
ALIKE = 0.1  # within which rates are one
TOGETHER = 8  # bursts at most whose rate is taken together: timers of a busy host are late by some
PARTS = 4  # of an RTT, at least, that are looked at one by one: a window that is spent pauses once in each
FEWEST = 100  # bursts
PACKETS = 4  # that leave together, or are acknowledged together
PARTLY = 0.1  # of the segments, which are not full
SPARE = 0.95  # of the rate that the path carried at other times


def verdicts_of_socket(record):
    """Return `pacing_limited`, if the kernel's counters tell of a limit that the sends were at, and no queue stood."""
    polls = record.flow.tcpinfo
    if polls is None or "max_pacing_rate" not in polls.columns | polls.extra:
        return []
    limit, share = socket_limit(polls["pacing_rate_Bps"].astype(float), polls["max_pacing_rate"].astype(float))
    _, rate, _ = record.delivered
    if share < MOST or not len(rate) or not is_at(float(np.median(rate)) * 1e6, limit) or _is_queued(record):
        return []
    more = _had_more(record, limit / 1e6)
    carried = f", though the path carried {format_rate(record.bottleneck.rate * 8e6)}" if more else ""
    text = (
        f"Its socket's pacing limit (SO_MAX_PACING_RATE) held it to {format_rate(8 * limit)}: it paced at that limit "
        f"for {format_share(share)} of the time, and no queue stood{carried}."
    )
    return [_verdict(record, 0.95, limit * 8, share, text, REFUTED)]


def verdicts_of_sends(record, limits):
    """Return what limited a flow whose packets left evenly, below the path's rate, and never waited, if they did.

    A sender whose data wait sends whole segments; what leaves as evenly in parts of them was written so.
    """
    rate, even = even_rate(record)
    bottleneck = record.bottleneck
    at_the_paths = bottleneck.seen and rate >= SPARE * bottleneck.rate
    if even < EVEN or record.lost.any() or _is_queued(record) or at_the_paths:
        return []
    share, sizes = shares(limits), record.table.wire_bytes[~record.table.again] - HEADER_BYTES
    carried = f", and the path carried {format_rate(bottleneck.rate * 8e6)}" if bottleneck.seen else ""
    told = (
        f"packets left evenly at {format_rate(rate * 8e6)} (on the wire) for {format_share(even)} of the time, no "
        f"queue grew, nothing was lost{carried}"
    )
    partly = float((sizes < record.table.mss).mean())
    if partly > PARTLY:
        return [_written(record, told, partly, rate * 8e6)]
    text = f"Something paced it: {told}. A limit of its pacing rate does that, or an application that writes as evenly."
    refuted = "Counters (`ss -tin`, given with --tcpinfo) without a limit (`pacing_rate A/B`)."
    by_timer = share.get("pacing", 0.0) > share.get("cwnd", 0.0)
    return [_verdict(record, 0.65 if by_timer else 0.55, rate * 8e6, even, text, refuted)]


def _written(record, told, partly, rate_bps):
    return Verdict(
        "application_limited",
        0.7,
        0.0,
        record.duration_s,
        {"rate_bps": rate_bps, "partly_filled_share": partly, "goodput_bps": record.goodput_bps},
        f"The application limited it: {told}, and {format_share(partly)} of the segments were not full, as those of a "
        "sender are that has no more to send.",
        "Have the application write earlier or more at a time; the network could carry more.",
        "Data that waits in the socket (notsent_bytes of ss) while nothing leaves.",
    )


def even_rate(record):
    """Return (rate in bytes/us, share of the time at it) of what left after the start; (nan, 0.0) of too few bursts."""
    bursts = record.bursts
    later = bursts.time_s > startup_end_s(record)
    time, size = bursts.time_s[later], bursts.segments[later] * (record.table.mss + HEADER_BYTES)
    if len(time) < FEWEST or not time[-1] > time[0]:
        return np.nan, 0.0
    apart = float(np.median(np.diff(time)))
    many = int(np.clip(record.median_rtt_us / 1e6 / PARTS / max(apart, 1e-9), 1, TOGETHER))
    edges = time[::many]
    gap, got = np.diff(edges), np.add.reduceat(size, np.arange(0, len(size), many))[: len(edges) - 1]
    rate = got / np.maximum(gap * 1e6, 1e-3)
    order = np.argsort(rate)
    middle = float(rate[order][np.searchsorted(np.cumsum(gap[order]), gap.sum() / 2)])
    return middle, float(gap[np.abs(rate / middle - 1) < ALIKE].sum() / gap.sum())


def _is_queued(record):
    """Return whether more than what leaves or arrives together typically waited at the bottleneck."""
    bottleneck = record.bottleneck
    if bottleneck is None or not bottleneck.seen:
        return False
    return float(np.median(bottleneck.queue_us)) * bottleneck.rate > PACKETS * (record.table.mss + HEADER_BYTES)


def _had_more(record, rate):
    return record.bottleneck is not None and record.bottleneck.seen and rate < SPARE * record.bottleneck.rate


def _verdict(record, sure, limit_bps, share, text, refuted):
    evidence = {"limit_bps": limit_bps, "limited_share": share, "goodput_bps": record.goodput_bps}
    return Verdict("pacing_limited", sure, 0.0, record.duration_s, evidence, text, ADVICE, refuted)
