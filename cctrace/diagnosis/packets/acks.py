"""Facts about ACKs, from packets: bunched or queued on the way back, batched by a clock, or too few."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Bools, Floats, Ints
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import AckPath
from cctrace.diagnosis.groups import AckBatches, AckBunches, AckCounts
from cctrace.diagnosis.record import Record
from cctrace.fit.constants import JITTERY_SHARE
from cctrace.path.constants import MIN_ACKS
from cctrace.tcp.flags import SYN
from cctrace.tcp.wire import HEADER_BYTES


def ack_bunches(record: Record) -> AckBunches | None:
    """Return the ACKs sent one by one, by their time stamps, that arrived together."""
    time, stamp_us = _stamped(record)
    if len(time) < MIN_ACKS:
        return None
    arrived_us, sent_us = np.diff(time) / 1e3, np.diff(stamp_us)
    tick_us = float(np.min(sent_us[sent_us > 0], initial=np.inf))
    flowing = arrived_us < record.path.least_rtt_us
    if not flowing.any():
        return None
    first = np.flatnonzero(np.append(True, arrived_us > const.BUNCH_SPAN_SHARE * np.mean(arrived_us[flowing])))
    del arrived_us, sent_us, flowing  # of a million packets they have 17 MB
    many = np.diff(first, append=len(time))
    first, many = first[many >= const.BUNCH_ACKS], many[many >= const.BUNCH_ACKS]
    last = first + many - 1
    came, took = (time[last] - time[first]) / 1e3, stamp_us[last] - stamp_us[first]
    bunch = (took >= const.CLEARLY_TIMES * tick_us) & (came < const.BUNCH_SPAN_SHARE * took)
    if not bunch.any():
        return None
    begin, end = record.seconds(time[[first[bunch][0], last[bunch][-1]]]).tolist()
    share, size = float(many[bunch].sum() / len(time)), float(np.median(many[bunch]))
    return AckBunches(share, size, float(np.median(took[bunch])), float(np.median(came[bunch])), (begin, end))


def ack_path(record: Record) -> AckPath | None:
    """Return what a queue of ACKs adds to the RTTs; None if no queue of one rate stands on the return path.

    An RTT ends with the ACK's way back, which begins with its time stamp: the slope of that part against the RTTs is
    the return path's share of their variation. The receiver's clock may drift, and jitter spares some ACKs of a window:
    minima count. A queue lets ACKs out at its rate, jitter bunches them.
    """
    (time, stamp_us), path = _stamped(record), record.path
    known = np.isfinite(path.rtt_us)
    window_us = path.least_rtt_us / const.PARTS_OF_RTT
    if len(time) < MIN_ACKS or not window_us > 0 or record.flow.taken_at != "sender":
        return None
    came_us, tick_us = (time - record.start_ns) / 1e3, float(np.diff(np.unique(stamp_us)).min())
    reported_us = (record.table.acked_ns[known] - record.start_ns) / 1e3
    back_us, many = _least(came_us, came_us - stamp_us, window_us, record.duration_s)
    rtt_us, _ = _least(reported_us, path.rtt_us[known], window_us, record.duration_s)
    both = np.flatnonzero(np.isfinite(back_us) & np.isfinite(rtt_us))
    if len(both) < const.MIN_FOR_SHARES:
        return None
    low, middle, high = np.quantile(rtt_us[both], [0.1, 0.5, 0.9])
    if not high - low > const.RTT_RISE * path.least_rtt_us + 2 * tick_us:
        return None
    terms = np.column_stack([np.ones(len(both)), both / len(rtt_us), rtt_us[both]])
    share = float(np.linalg.lstsq(terms, back_us[both], rcond=None)[0][2])
    queued = many[both[rtt_us[both] > middle]]
    usual = float(np.median(queued)) if len(queued) else 0.0
    if share < const.MOST_OF_TIME or not np.median(np.abs(queued - usual)) <= const.STEADY_SCATTER * usual:
        return None
    return AckPath(min(share, 1.0), usual / window_us * 1e6, float(high - low))


def _least(time_us: Floats, values: Floats, window_us: float, end_s: float) -> tuple[Floats, Ints]:
    """Return the least value of each window (infinite without any), and how many values it has."""
    windows = int(end_s * 1e6 / window_us) + 1
    place = np.clip((time_us / window_us).astype(np.int64), 0, windows - 1)
    least = np.full(windows, np.inf)
    np.minimum.at(least, place, values)
    return least, np.bincount(place, minlength=windows)


def _stamped(record: Record) -> tuple[Ints, Floats]:
    """Return (time in ns, time stamp in us) of the ACKs that carry one, in order; empty if the clock does not fit."""
    (time_ns, rows, mine), packets = record.captured, record.flow.capture.packets
    from_receiver = ~mine & (packets["payload"][rows] == 0)
    from_receiver &= (packets["tsval"][rows] > 0) & ((packets["flags"][rows] & SYN) == 0)
    time, stamp = time_ns[from_receiver], packets["tsval"][rows][from_receiver].astype(np.int64)
    if len(time) < 2 or time[-1] <= time[0] or stamp[-1] <= stamp[0]:
        return time[:0], stamp[:0]
    per_s = (stamp[-1] - stamp[0]) * 1e9 / (time[-1] - time[0])
    usual = min((100, 250, 300, 1000), key=lambda hz: abs(np.log(per_s / hz)))
    fits = abs(per_s / usual - 1) < 0.1
    return (time, stamp * (1e6 / usual)) if fits else (time[:0], stamp[:0])


class _Arrivals(NamedTuple):
    """Timely ACKs that acknowledge data: time (s), number of segments, and where batches start."""

    time_s: Floats
    segments: Floats
    begins: Bools


def _arrivals(record: Record) -> _Arrivals | None:
    acks = record.acks
    got = np.diff(acks["delivered"].astype(np.int64), prepend=int(acks["delivered"][0]) if len(acks) else 0)
    calm = (acks["ca_state"] == 0) & (got > 0)
    if calm.sum() < MIN_ACKS:
        return None
    time = record.ack_s[calm]
    # ACKs within a twentieth of an RTT form a batch.
    apart = np.diff(time) > record.path.require_bottleneck.base_us / 20e6
    return _Arrivals(time, got[calm].astype(float), np.concatenate([[True], apart]))


def ack_batches(record: Record) -> AckBatches | None:
    """Return the clocked batches of ACKs."""
    arrivals = _arrivals(record)
    if arrivals is None:
        return None
    (time, size, begins), bottleneck = arrivals, record.path.require_bottleneck
    base_s = bottleneck.base_us / 1e6
    total = np.bincount(np.cumsum(begins) - 1, size)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(time)) - 1
    silence, quiet, after = np.diff(time[first]), time[first[1:]] - time[last[:-1]], total[1:]
    moving = silence < 1.5 * base_s
    if moving.sum() < 20:
        return None
    silence, quiet, after = silence[moving], quiet[moving], after[moving]
    pause, carried = float(np.average(silence, weights=after)), float(np.average(after, weights=after))
    serial_s = carried * (record.table.mss + HEADER_BYTES) / bottleneck.rate / 1e6
    if not bottleneck.is_measured:
        serial_s = pause
    lasted = float(np.average(time[last] - time[first], weights=total))
    apart = max(lasted, pause - np.average(quiet, weights=after)) < 0.5 * pause  # silent for most of the time
    long = carried >= 4 and min(pause, serial_s) > const.BATCH_RTTS * base_s
    if not (apart and long and _varies(silence, after) < const.MAX_INTERVAL_VARIATION and _by_clock(silence, after)):
        return None
    return AckBatches(pause * 1e6, carried, bottleneck.base_us)


def ack_counts(record: Record) -> AckCounts | None:
    """Return the number of segments per ACK."""
    arrivals = _arrivals(record)
    if arrivals is None:
        return None
    time, size, begins = arrivals
    mean, spread = record.path.uncongested
    # Jitter merges packets, which a receiver acknowledges at once: ACKs closer than the bottleneck's packet spacing.
    packet_us = (record.table.mss + HEADER_BYTES) / record.path.require_bottleneck.rate
    close = np.mean(np.diff(time) * 1e6 < packet_us) > const.NOTABLE_SHARE
    jittered = bool(spread > JITTERY_SHARE * mean and (close or len(time) / begins.sum() >= 2))
    segments = record.events.sent["segments"]
    per_packet = float(np.mean(segments)) if len(segments) else 1.0  # segments that the sender's NIC cuts from one
    return AckCounts(float(size.mean()), float(np.quantile(size, 0.95)), per_packet, jittered)


def _by_clock(silence: Floats, size: NDArray[np.number[Any]]) -> bool:
    """Return whether batches are sent at fixed times with whatever has arrived, not whenever a fixed amount has.

    Exceptions decide: a small batch at its regular time, or a skipped one (twice or thrice the interval), indicates
    a clock; a batch of the usual size that is late, an amount. Without exceptions, the less variable of the two is
    the fixed one.
    """
    time, much = silence / np.median(silence), size / np.median(size)
    same_time, same_size = np.abs(time - 1) < 0.2, np.abs(much - 1) < 0.2
    late, skipped = same_size & (time > 1.2), np.abs(time - np.round(time)) < const.EQUAL_WITHIN
    clock, amount = (same_time & (much < 0.8)).sum() + (late & skipped).sum(), (late & ~skipped).sum()
    if max(clock, amount) < const.BUNCH_ACKS:
        clock, amount = np.std(np.log(size[same_size])), np.std(np.log(time[same_time]))
    return bool(clock >= amount)


def _varies(values: Floats, weights: NDArray[np.number[Any]]) -> float:
    """Return the weighted coefficient of variation."""
    mean = np.average(values, weights=weights)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=weights)) / mean)
