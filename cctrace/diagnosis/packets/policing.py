"""Facts about a policer, from packets: a token bucket that drops excess packets of this and other flows.

`path.buckets` infers rate and size of the bucket from when packets were lost. A short queue at that rate would drop
the same ones; unlike a policer, it delays packets before it drops them.
"""

import numpy as np

from cctrace.columns import Bools
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.groups import Policer
from cctrace.diagnosis.packets.losses import before_losses, rtts_before
from cctrace.diagnosis.record import Record
from cctrace.path.bottleneck import deviation
from cctrace.path.constants import COMMON_GAIN, LOSS_RANK, RATE_DIFFERS
from cctrace.path.queue import constant


def policer(record: Record) -> Policer | None:
    """Return the token bucket that explains the losses, if one does."""
    bucket = record.dropper
    if bucket is None or bucket.explained is None:
        return None
    rate, size = bucket.rate.value or 0.0, bucket.size_bytes.value or 0.0
    if (
        not rate
        or (bucket.is_queue and not _waited_behind(record, rate))
        or _is_the_links(record, rate)
        or _queue_dropped(record, size / rate)
    ):
        return None
    lost, times = record.path.lost[: len(bucket.explained)], record.path.sent_s[record.path.lost]
    explained = float(bucket.explained[lost].mean())
    was_full, span = bool(record.flow.facts["complete"]), (float(times.min()), float(times.max()))
    return Policer(rate * 8e6, size, was_full, explained, int(lost.sum()), span, _elsewhere(record, bucket.explained))


def _elsewhere(record: Record, explained: Bools) -> int:
    """Return the number of losses with tokens left that are no part of an episode in which the bucket was empty.

    Those within it cut the window once, with the others. They may be the bucket's, too: its size is less sure where a
    short queue behind it drops what has taken tokens.
    """
    lost = record.path.lost[: len(explained)]
    sent_s = record.path.sent_s[: len(explained)]
    at, policed = sent_s[lost & ~explained], sent_s[lost & explained]
    if not len(policed):
        return len(at)
    after = np.searchsorted(policed, at)
    near = np.minimum(
        np.abs(at - policed[np.maximum(after - 1, 0)]), np.abs(policed[np.minimum(after, len(policed) - 1)] - at)
    )
    return int(np.sum(near > const.EPISODE_RTTS * record.path.median_rtt_us / 1e6))


def _waited_behind(record: Record, rate: float) -> bool:
    """Return whether packets that seem to have waited for tokens waited behind the policer instead, at a faster link.

    A burst that spends the tokens also queues at a link of hardly twice the policer's rate, for about half as long as
    it would wait for the tokens. One rate of the link then explains the delays, and that of the tokens does not.
    """
    path, bottleneck = record.path, record.path.require_bottleneck
    if path.rate_changes or path.companions or not bottleneck.explained > COMMON_GAIN:
        return False
    if not bottleneck.rate > RATE_DIFFERS * rate:
        return False
    behind, before = (deviation(path.sent, constant(each)) for each in (bottleneck.rate, rate))
    return behind < (1 - COMMON_GAIN) * before


def _is_the_links(record: Record, rate: float) -> bool:
    """Return whether packets waited in a queue served at this rate: then the queue drops, not a policer.

    A full queue drops as an empty bucket does, but nothing waits behind a policer at its rate.
    """
    shared, bottleneck = record.path.shared, record.path.require_bottleneck
    alone = bottleneck.rate if bottleneck.explained > COMMON_GAIN else np.nan
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
    return episodes >= const.MIN_OBSERVATIONS and rank > LOSS_RANK and waited_us > full_us / 2
