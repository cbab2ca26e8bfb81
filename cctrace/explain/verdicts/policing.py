"""Policers: token buckets that drop what exceeds them, of this flow and of others of the capture (`fit.buckets`)."""

import numpy as np

from cctrace.explain.findings import Verdict
from cctrace.explain.own_queue import mean_rank
from cctrace.fit.buckets import policer_of
from cctrace.fit.transmissions import LOST
from cctrace.units import format_rate, format_share, format_size

AMONG = (
    20_000,
    60_000,
)  # transmissions of a flow in which a policer is looked for; the first that hold `ENOUGH` losses
ENOUGH = 100
FEWEST = 15
EPISODES, LONGEST = 5, 0.9  # episodes of loss, and the mean rank of the RTTs before, that tell of a queue


def verdicts(record, limits, found):
    """Return `policer`, if a token bucket explains the losses."""
    if record.lost.sum() < FEWEST or record.bottleneck is None:
        return []
    table = record.table
    most = next((rows for rows in AMONG if record.lost[:rows].sum() >= ENOUGH), AMONG[-1])
    end_ns = table.sent_ns[min(most, len(table)) - 1]
    tables = [table.first(most)]
    tables += [other.first(int(np.searchsorted(other.sent_ns, end_ns))) for other in record.companions.values()]
    rtt = record.rtt_us[np.isfinite(record.rtt_us)]
    if (tables[0].state == LOST).sum() < FEWEST:
        return []
    bucket = policer_of([table for table in tables if len(table)], record.start_ns, float(np.quantile(rtt, 0.05)))
    return [] if bucket is None or _queue_dropped(record) else [_verdict(record, tables[0], bucket)]


def _queue_dropped(record):
    """Return whether losses followed the longest RTTs, time and again: then a short queue dropped, no policer."""
    known = np.flatnonzero(np.isfinite(record.rtt_us))
    lost = np.flatnonzero(record.lost)
    before = known[np.maximum(np.searchsorted(known, lost) - 1, 0)]
    episodes = 1 + int(np.sum(np.diff(record.sent_s[lost]) > record.least_rtt_us / 1e6))
    return episodes >= EPISODES and mean_rank(record.rtt_us[known], record.rtt_us[before]) > LONGEST


def _verdict(record, table, bucket):
    rate, size = bucket.rate.value * 8e6, bucket.size_bytes.value
    lost = table.state == LOST
    explained = float(bucket.explained[lost].mean())
    times = record.sent_s[record.lost]
    return Verdict(
        "policer",
        float(np.clip(explained, 0.5, 0.98)),
        float(times.min()),
        float(times.max()),
        {"rate_bps": rate, "bucket_bytes": size, "explained_share": explained, "lost": int(lost.sum())},
        f"A policer dropped what exceeded {format_rate(rate)} (token bucket of about {format_size(size)}): "
        f"{format_share(explained)} of {int(lost.sum())} losses met an empty bucket, and packets did not wait.",
        "Pace below that rate (a rate-based controller, SO_MAX_PACING_RATE), or have the operator shape instead.",
        "Losses while tokens were left, or delays that grew before them.",
    )
