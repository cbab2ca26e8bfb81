"""Facts about a policer, from packets: a token bucket that drops excess packets of this and other flows."""

import numpy as np

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.groups import Policer
from cctrace.diagnosis.packets.losses import before_losses, rtts_before
from cctrace.diagnosis.record import Record
from cctrace.path.buckets import policer_of
from cctrace.path.constants import COMMON, LOSSES_SHOW, MIN_POLICED
from cctrace.path.losses import decided_ns
from cctrace.path.transmissions import LOST


def policer(record: Record) -> Policer | None:
    """Return the token bucket that explains the losses, if one does."""
    if record.path.lost.sum() < MIN_POLICED:
        return None
    table = record.table
    few, many = const.POLICED_SENDS
    most = few if record.path.lost[:few].sum() >= const.MANY else many
    # The fate of the last packets, and hence the deficit that they met, is unknown.
    end_ns = min(table.sent_ns[min(most, len(table)) - 1], decided_ns(table))
    whole = (table, *record.path.companions.values())
    tables = [other.first(int(np.searchsorted(other.sent_ns, end_ns, "right"))) for other in whole]
    rtt = record.path.rtt_us[np.isfinite(record.path.rtt_us)]
    if (tables[0].state == LOST).sum() < MIN_POLICED:
        return None
    bucket = policer_of([table for table in tables if len(table)], record.start_ns, float(np.quantile(rtt, 0.05)))
    if bucket is None or bucket.explained is None:
        return None
    rate, size = bucket.rate.value or 0.0, bucket.size_bytes.value or 0.0
    if not rate or _is_the_links(record, rate) or _queue_dropped(record, size / rate):
        return None
    lost, times = tables[0].state == LOST, record.path.sent_s[record.path.lost]
    explained = float(bucket.explained[lost].mean())
    was_full = bool(record.flow.facts["complete"])
    return Policer(rate * 8e6, size, was_full, explained, int(lost.sum()), (float(times.min()), float(times.max())))


def _is_the_links(record: Record, rate: float) -> bool:
    """Return whether packets waited in a queue served at this rate: then the queue drops, not a policer.

    A full queue drops as an empty bucket does, but nothing waits behind a policer at its rate.
    """
    shared, bottleneck = record.path.shared, record.path.require_bottleneck
    alone = bottleneck.rate if bottleneck.explained > COMMON else np.nan
    rates = [alone, shared.rate] if shared and shared.is_common else [alone]
    return any(abs(one / rate - 1) < const.POLICED_RATE_SAME for one in rates)


def _queue_dropped(record: Record, full_us: float) -> bool:
    """Return whether losses repeatedly followed the longest RTTs: then a short queue drops, not a policer.

    `full_us`: how long a queue of the bucket's size would be at its rate. Packets wait for that where it drops; bursts
    that empty a bucket may queue behind the policer, too, at a faster link.
    """
    rank, episodes = before_losses(record, record.path.lost)
    known, before = rtts_before(record, record.path.lost)
    waited_us = float(np.median(before) - np.quantile(known, 0.05))
    return episodes >= const.FEWEST and rank > LOSSES_SHOW and waited_us > full_us / 2
