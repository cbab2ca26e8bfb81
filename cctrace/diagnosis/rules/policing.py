"""Policers: token buckets that drop what exceeds them, of this flow and of others of the capture (`fit.buckets`)."""

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.rules.sharing import COMMON
from cctrace.path.buckets import policer_of
from cctrace.path.losses import decided_ns
from cctrace.path.own_queue import mean_rank
from cctrace.path.transmissions import LOST
from cctrace.units import format_rate, format_share, format_size

AMONG = (
    20_000,
    60_000,
)  # transmissions of a flow in which a policer is looked for; the first that hold `ENOUGH` losses
ENOUGH = 100
FEWEST = 15
SAME = 0.02  # by which rates may differ that are one
SHOWN = 0.1  # share of the delays' deviation that a queue must explain, for its rate to be known
EPISODES, LONGEST = 5, 0.9  # episodes of loss, and the mean rank of the RTTs before, that tell of a queue


def verdicts(record, limits, found):
    """Return `policer`, if a token bucket explains the losses."""
    if record.lost.sum() < FEWEST or record.bottleneck is None:
        return []
    table = record.table
    most = next((rows for rows in AMONG if record.lost[:rows].sum() >= ENOUGH), AMONG[-1])
    # Of what was sent last it is not known whether it was lost, and so not what it met.
    end_ns = min(table.sent_ns[min(most, len(table)) - 1], decided_ns(table))
    whole = (table, *record.companions.values())
    tables = [other.first(int(np.searchsorted(other.sent_ns, end_ns, "right"))) for other in whole]
    rtt = record.rtt_us[np.isfinite(record.rtt_us)]
    if (tables[0].state == LOST).sum() < FEWEST:
        return []
    bucket = policer_of([table for table in tables if len(table)], record.start_ns, float(np.quantile(rtt, 0.05)))
    if bucket is None or _queue_dropped(record) or _is_the_links(record, bucket.rate.value):
        return []
    if bucket.size_bytes.value < 2 * _told_at_once(record):
        return []  # between two ACKs most of a queue of that size would have come and gone: waits do not show
    return [_verdict(record, tables[0], bucket)]


def _told_at_once(record):
    """Return how much an ACK tells of, on average over what was delivered, bytes."""
    got = np.diff(record.acks["delivered"].astype(np.int64))
    return float(np.average(got, weights=got)) * record.table.mss if got.sum() > 0 else 0.0


def _is_the_links(record, rate):
    """Return whether packets waited in a queue that is served at this rate: what it drops is no policer's.

    A full queue drops as an empty bucket does, whatever waits in it; but behind a policer nothing waits at its rate.
    """
    gain, shared = record.path.shared or (0.0, np.nan)
    alone = record.bottleneck.rate if record.bottleneck.shown > SHOWN else np.nan
    return abs(alone / rate - 1) < SAME or (gain > COMMON and abs(shared / rate - 1) < SAME)


def _queue_dropped(record):
    """Return whether losses followed the longest RTTs, time and again: then a short queue dropped, no policer."""
    known = np.flatnonzero(np.isfinite(record.rtt_us))
    lost = np.flatnonzero(record.lost)
    before = known[np.maximum(np.searchsorted(known, lost) - 1, 0)]
    episodes = 1 + int(np.sum(np.diff(record.sent_s[lost]) > record.least_rtt_us / 1e6))
    return episodes >= EPISODES and mean_rank(record.rtt_us[known], record.rtt_us[before]) > LONGEST


def _slower(record):
    """Return what would keep a sender below a rate; one that builds a model of its path is rate-based already."""
    return "SO_MAX_PACING_RATE" if record.is_model_based else "a rate-based controller, SO_MAX_PACING_RATE"


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
        f"Pace below that rate ({_slower(record)}), or have the operator shape instead.",
        "Losses while tokens were left, or delays that grew before them.",
    )
