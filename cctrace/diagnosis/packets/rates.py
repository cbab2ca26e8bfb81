"""Facts about the path's rate and queue, from packets: rate steps, queue, first packets, bucket, window."""

import itertools

import numpy as np

from cctrace.cc.bbr2022 import BBR2022
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.common import growth
from cctrace.diagnosis.findings import Limit, shares
from cctrace.diagnosis.groups import (
    NAN,
    FirstRtts,
    GrowingWindow,
    LargestFlights,
    Queue,
    RateChanges,
    Shaper,
    StaleBandwidth,
)
from cctrace.diagnosis.limits import startup_end_s
from cctrace.diagnosis.packets.capture import is_elsewhere
from cctrace.diagnosis.record import Record
from cctrace.path.changes import Change
from cctrace.path.constants import STEADY_RATE
from cctrace.path.own_queue import rolling_max
from cctrace.tcp.wire import HEADER_BYTES


def rate_changes(record: Record, limits: list[Limit]) -> RateChanges | None:
    """Return the changes of the path's rate; None without."""
    changes, varied = record.path.rate_changes, record.path.rate_range_bps
    if changes and not (varied and _between(record, changes) < const.LARGE_SHARE):
        drops = [change for change in changes if change.after_bps < change.before_bps]
        worst = max(drops, key=lambda change: change.before_bps / change.after_bps, default=None)
        return RateChanges(changes, stale_bandwidth=None if worst is None else _stale_bandwidth(record, worst, limits))
    bottleneck = record.path.require_bottleneck
    lasting = bottleneck.bucket_bytes > bottleneck.rate * bottleneck.base_us
    if varied and not lasting:  # the tokens of a bucket that outlasts an RTT return: that is not a rate change
        low, high = varied
        return RateChanges([], low, high, record.path.median_rtt_us, record.path.least_rtt_us)
    return None


def _between(record: Record, changes: list[Change]) -> float:
    """Return the share of the time in periods of one rate adjacent to a change."""
    edges = [0.0, *(change.at_s for change in changes), changes[-1].until_s]
    inside = 0.0
    for begin, end in itertools.pairwise(edges):
        rate = record.path.delivered[1][
            (record.path.delivered[0] > begin) & (record.path.delivered[0] < end) & record.path.standing
        ]
        if len(rate) and np.median(np.abs(rate / np.median(rate) - 1)) < STEADY_RATE:
            inside += end - begin
    return inside / max(record.duration_s, 1e-9)


def stale_seconds(record: Record, change: Change) -> float:
    """Return how long after a drop the ten-round maximum of rate samples exceeded the new rate by a tenth."""
    acks = record.acks
    sampled = (acks["rs_interval_us"] > 0) & (acks["rs_delivered"] > 0)
    wire = record.table.mss + HEADER_BYTES
    rate = acks["rs_delivered"][sampled] * (wire * 8e6) / acks["rs_interval_us"][sampled]
    rounds = np.searchsorted(record.rounds[0], record.ack_s[sampled], side="right")
    most = np.zeros(int(rounds.max()) + 1 if len(rounds) else 1)
    np.maximum.at(most, rounds, rate)
    estimate = rolling_max(most, int(BBR2022.params["bw_rtts"].default))[rounds]
    time = record.ack_s[sampled]
    after = (time > change.at_s) & (estimate > (1 + const.STEADY_SCATTER) * change.after_bps)
    inside = after & (time < change.until_s)
    return float(time[inside].max() - change.at_s) if inside.any() else 0.0


def longest_rtt_us(record: Record, begin_s: float, end_s: float) -> float:
    """Return the longest RTT of packets sent between two times, us; NaN unknown."""
    rtt = record.path.rtt_us[(record.path.sent_s > begin_s) & (record.path.sent_s < end_s)]
    return float(np.nanmax(rtt)) if np.isfinite(rtt).any() else NAN


def _stale_bandwidth(record: Record, change: Change, limits: list[Limit]) -> StaleBandwidth:
    stale_s, share = stale_seconds(record, change), shares(limits)
    end_s = change.at_s + max(stale_s, 1.0) + 1.0
    inside = (record.path.sent_s > change.at_s) & (record.path.sent_s < end_s)
    return StaleBandwidth(
        at_s=change.at_s,
        before_bps=change.before_bps,
        after_bps=change.after_bps,
        stale_s=stale_s,
        longest_rtt_us=longest_rtt_us(record, change.at_s, end_s),
        lost=int(record.path.lost[inside].sum()),
        is_paced=record.controller is None and share.get("pacing", 0.0) > 2 * share.get("cwnd", 0.0),
    )


def queue(record: Record) -> Queue:
    """Return the RTTs and the bottleneck's queue, as far as known."""
    bottleneck, (mean, spread) = record.path.require_bottleneck, record.path.uncongested
    known = record.path.rtts_in_order_us
    base_us, queue_us = mean, float(np.median(bottleneck.queue_us))
    # The sender takes RTTs of ACKs, and so do the tables; seen from elsewhere, they cover a part of the path only.
    of_acks = {} if is_elsewhere(record.flow) else record.flow.row
    least_us = of_acks.get("rtt_min_us")
    # The first packets of a flow met no queue of their own, nor did a FIN that was sent once all data had arrived: what
    # an RTT exceeds the least by is queue. Counting packets in groups, as `bottleneck` does, adds some.
    if record.flow.facts["complete"] and len(known):
        base_us = max(mean, float(known.min()))
    elif least_us and least_us < 2 * mean - record.path.queued_us:
        base_us = float(least_us)
    if record.flow.facts["complete"] or base_us < mean:
        queue_us = max(float(of_acks.get("rtt_median_us") or record.path.median_rtt_us) - base_us, 0.0)
    return Queue(
        rtt_us=record.path.median_rtt_us,
        least_rtt_us=float(np.quantile(known, 0.001)) if len(known) else NAN,
        base_rtt_us=base_us,
        spread_us=spread,
        rate_bps=bottleneck.rate * 8e6,
        used_share=record.use if bottleneck.is_measured else NAN,
        queue_us=queue_us,
        queued_share=float(record.path.standing.mean()) if len(record.path.standing) else 0.0,
        explained=bottleneck.explained,
        lost=int(record.path.lost.sum()),
    )


def first_rtts(record: Record) -> FirstRtts | None:
    """Return the RTTs of the first packets, if the flow was captured from its start."""
    bottleneck = record.path.require_bottleneck
    early = bottleneck.sent_us < bottleneck.sent_us[0] + 2 * bottleneck.base_us
    if early.sum() < const.MIN_OBSERVATIONS or not record.flow.facts["complete"]:
        return None
    first, own = float(np.median(bottleneck.rest_us[early])), float(np.median(bottleneck.queue_us[early]))
    least, spread = record.path.uncongested  # of periods, including jitter
    return FirstRtts(first, least, own, spread)


def shaper(record: Record) -> Shaper | None:
    """Return the token bucket before the bottleneck's queue, of a path with constant rate."""
    bottleneck = record.path.require_bottleneck
    if not bottleneck.bucket_bytes or record.path.rate_changes:
        return None
    size = bottleneck.bucket_bytes
    return Shaper(bottleneck.rate * 8e6, size, size / (bottleneck.rate * bottleneck.base_us))


def largest_flights(record: Record) -> LargestFlights | None:
    """Return the largest data in flight of later rounds, of a flow without losses."""
    first, _, most = record.rounds
    later = most[first > min(2.0, 0.3 * record.duration_s)]
    if len(later) < const.MIN_FOR_SHARES or record.path.lost.any():
        return None
    typical = float(np.median(later))
    spread = float(np.median(np.abs(later - typical))) / max(typical, 1.0)
    table = record.table
    short = float((table.wire_bytes - HEADER_BYTES < table.mss).mean())
    return LargestFlights(typical * table.mss, record.path.median_rtt_us, spread, bool(record.flow.tcpinfo), short)


def growing_window(record: Record, limits: list[Limit]) -> GrowingWindow | None:
    """Return how the data in flight grew after slow start, if nothing was lost then; else None."""
    first, _, most = record.rounds
    began_s = startup_end_s(record)
    # The losses that end slow start are repaired within a few round trips; the window grows from then on.
    after = first > began_s + const.SEPARATE_RTTS * record.path.median_rtt_us / 1e6
    if not after.any() or (record.path.sent_s[record.path.lost] > first[after][0]).any():
        return None
    lost = float(record.path.lost.sum())
    growing = growth(most[after].astype(float), int(after.sum()), record.table.mss, began_s, lost, limits)
    return growing and growing._replace(saw_start=bool(record.flow.facts["complete"]))
