"""Events of a flow: sentences with numbers, in order of time."""

import math
from collections.abc import Iterator

import numpy as np

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Event
from cctrace.diagnosis.limits import merged
from cctrace.diagnosis.packets.marks import reductions_s
from cctrace.diagnosis.packets.rates import longest_rtt_us, stale_seconds
from cctrace.diagnosis.record import Record
from cctrace.path.constants import ROUTE_WINDOWS
from cctrace.tcp.pacing import SK_GSO_MAX_SIZE
from cctrace.tcp.wire import HEADER_BYTES
from cctrace.units import format_rate, format_share, format_size, format_time


def events_of(record: Record) -> list[Event]:
    """Return the list of `Event` of a captured flow, in order of time."""
    found = [*_rates(record), *_losses(record), *_marks(record), *_stalls(record), *_timeouts(record), *_zero(record)]
    found += [*_idle(record), *_routes(record), *_rtts(record), *_bursts(record)]
    return sorted(found, key=lambda event: event.start_s)


def _some(events: list[Event], kind: str) -> list[Event]:
    """Return the `MAX_EVENTS` longest events; the last one says how many there were."""
    if len(events) <= const.MAX_EVENTS:
        return events
    longest = sorted(events, key=lambda event: event.start_s - event.end_s)[: const.MAX_EVENTS]
    end = max(event.end_s for event in events)
    text = f"In all there were {len(events)} of these ({kind}); the {const.MAX_EVENTS} longest are listed."
    return [*longest, Event(events[0].name, end, end, text, {"count": len(events)})]


def _rates(record: Record) -> Iterator[Event]:
    for change in record.path.rate_changes:
        least = "at least " if change.is_least else ""
        before, after = format_rate(change.before_bps), format_rate(change.after_bps)
        rates = f"fell from {least}{before} to {after}" if change.fell else f"rose from {before} to {least}{after}"
        text = f"At {change.at_s:.1f} s the path's rate {rates}"
        evidence = {"before_bps": change.before_bps, "after_bps": change.after_bps}
        if change.fell:
            stale = stale_seconds(record, change)
            longest = longest_rtt_us(record, change.at_s, change.until_s)
            evidence |= {"stale_s": stale, "longest_rtt_us": longest}
            if stale > 0 and not record.is_loss_based:
                text += f"; a bandwidth estimate over ten round trips was stale for {stale:.1f} s"
            if not math.isnan(longest):
                text += f"; RTTs reached {format_time(longest * 1000)}"
        yield Event("rate_change", change.at_s, change.at_s, text + ".", evidence)


def _losses(record: Record) -> list[Event]:
    lost = np.flatnonzero(record.path.lost)
    if not len(lost):
        return []
    at = record.path.sent_s[lost]
    apart = np.diff(at, prepend=-np.inf) > max(const.EPISODE_RTTS * record.path.median_rtt_us / 1e6, 0.02)
    first = np.flatnonzero(apart)
    found = []
    for k, begin in enumerate(first):
        stop = first[k + 1] if k + 1 < len(first) else len(lost)
        n, start, end = int(stop - begin), float(at[begin]), float(at[stop - 1])
        sent = int(np.searchsorted(record.path.sent_s, end, "right") - np.searchsorted(record.path.sent_s, start))
        of = f", {format_share(n / sent)} of what was sent meanwhile" if n > 1 and sent else ""
        text = f"At {start:.1f} s {n} packet{'s were' if n > 1 else ' was'} lost{of}."
        found.append(Event("loss_episode", start, end, text, {"lost": n, "sent": sent}))
    return _some(found, "episodes of loss")


def _marks(record: Record) -> list[Event]:
    """Return window reductions by marks; those of successive round trips form one event."""
    at = reductions_s(record)
    if not len(at):
        return []
    first = np.flatnonzero(np.diff(at, prepend=-np.inf) > const.SEPARATE_RTTS * record.path.median_rtt_us / 1e6)
    found = []
    for begin, stop in zip(first, np.append(first[1:], len(at)), strict=True):
        start, end, cuts = float(at[begin]), float(at[stop - 1]), int(stop - begin)
        how = f"cut the window {cuts} times in {format_time((end - start) * 1e9)}" if cuts > 1 else "cut the window"
        found.append(Event("marks", start, end, f"At {start:.1f} s marks (ECN) {how}.", {"reductions": cuts}))
    return _some(found, "marks that cut the window")


def _stalls(record: Record) -> list[Event]:
    """Return periods without ACKs while data were outstanding."""
    acks, time = record.acks, record.ack_s
    if len(time) < 3:
        return []
    limit = max(const.SEPARATE_RTTS * record.path.median_rtt_us / 1e6, 0.05)
    quiet = (np.diff(time) > limit) & (acks["packets_out"][:-1] > 0)
    found = []
    for k in np.flatnonzero(quiet):
        lasted = float(time[k + 1] - time[k])
        text = f"At {time[k]:.1f} s nothing was heard for {format_time(lasted * 1e9)}, with data outstanding."
        found.append(Event("stall", float(time[k]), float(time[k + 1]), text, {"lasted_s": lasted}))
    return _some(found, "stalls")


def _timeouts(record: Record) -> list[Event]:
    times, opening = record.timeouts_s, record.opened_again_s
    if not len(times):
        return []
    first = times[np.diff(times, prepend=-np.inf) > max(record.path.median_rtt_us / 1e6, 0.2)]
    found = []
    for at in first.tolist():
        what = "the SYN was sent again: the connection was not open"
        if at not in opening:
            what = "the retransmission timer fired"
        found.append(Event("timeout", at, at, f"At {at:.1f} s {what}.", {}))
    return _some(found, "timeouts")


def _zero(record: Record) -> list[Event]:
    found = []
    for begin, end in record.closed_windows_s:
        lasted = end - begin
        text = f"At {begin:.1f} s the receiver shut its window for {format_time(lasted * 1e9)}."
        found.append(Event("zero_window", begin, end, text, {"lasted_s": lasted}))
    return _some(found, "zero windows")


def _idle(record: Record) -> list[Event]:
    gaps = merged(record.empty_s)
    gaps = gaps[gaps[:, 1] < record.duration_s]
    limit = max(const.IDLE_S, 2 * record.path.median_rtt_us / 1e6)
    found = []
    for start, end in gaps[(gaps[:, 1] - gaps[:, 0]) > limit]:
        text = f"At {start:.1f} s there was nothing to send for {format_time((end - start) * 1e9)}."
        found.append(Event("idle", float(start), float(end), text, {"lasted_s": float(end - start)}))
    return _some(found, "idle periods")


def _routes(record: Record) -> list[Event]:
    """Return lasting changes of the minimum RTT beyond its scatter: another route (or a queue that never empties)."""
    bottleneck = record.path.bottleneck
    if bottleneck is None:
        return []
    time, rest = bottleneck.sent_us / 1e6, bottleneck.rest_us
    place = (time / 0.5).astype(np.int64)
    many = np.bincount(place)
    least = np.full(len(many), np.inf)
    np.minimum.at(least, place, rest)
    middles, least = np.flatnonzero(many >= 4) * 0.5, least[many >= 4]
    size = ROUTE_WINDOWS
    if len(least) < 2 * size:
        return []
    windows = np.lib.stride_tricks.sliding_window_view(least, size)
    before, after = windows[:-size], windows[size:]
    # Every window before is below every one after, or above: no queue does that for twice as long.
    up, down = after.min(axis=1) - before.max(axis=1), before.min(axis=1) - after.max(axis=1)
    jump = np.maximum(up, down)
    noise = np.maximum(np.ptp(before, axis=1), np.ptp(after, axis=1))
    clear = (jump > const.RTT_RISE * least.min()) & (jump > 3 * noise)
    found = []
    while clear.any():
        k = int(np.argmax(np.where(clear, jump, -1)))
        old, new = float(np.median(before[k])), float(np.median(after[k]))
        at = float(middles[min(k + size, len(middles) - 1)])
        text = (
            f"At {at:.1f} s the path's own delay changed from {format_time(old * 1000)} to {format_time(new * 1000)}."
        )
        found.append(Event("route_change", at, at, text, {"before_us": old, "after_us": new}))
        clear[max(k - size, 0) : k + size] = False
    return found


def _rtts(record: Record) -> list[Event]:
    """Return when RTTs double or halve for at least a second."""
    middle, rate, rtt = record.path.delivered
    known = np.isfinite(rtt) & (rate > 0)
    time, value = middle[known], rtt[known]
    if len(value) < 4:
        return []
    size = max(int(np.ceil(1.0 / max(np.median(np.diff(time)), 1e-3))), 5)
    if len(value) < 2 * size:
        return []
    medians = np.median(np.lib.stride_tricks.sliding_window_view(value, size), axis=1)
    ratio = np.log(medians[size:] / medians[:-size])
    found, clear = [], np.abs(ratio) > np.log(2.0)
    while clear.any():
        k = int(np.argmax(np.where(clear, np.abs(ratio), -1)))
        at, old, new = float(time[k + size]), float(medians[k]), float(medians[k + size])
        text = (
            f"At {at:.1f} s RTTs {'rose' if new > old else 'fell'} from {format_time(old * 1000)} to "
            f"{format_time(new * 1000)}."
        )
        found.append(Event("rtt_change", at, at, text, {"before_us": old, "after_us": new}))
        clear[max(k - 2 * size, 0) : k + 2 * size] = False
    return _some(found, "changes of the RTT")


def _bursts(record: Record) -> list[Event]:
    """Return bursts sent back to back that exceed a super-packet."""
    sent_ns, bottleneck = record.events.sent["time_ns"], record.path.bottleneck
    if bottleneck is None or len(sent_ns) < 2 or not bottleneck.is_measured:
        return []
    packet_us = (record.table.mss + HEADER_BYTES) / bottleneck.rate
    gap_us = np.diff(sent_ns, prepend=sent_ns[:1]) / 1e3
    begins = gap_us > max(0.2 * packet_us, 20.0)
    begins[0] = True
    first = np.flatnonzero(begins)
    size = np.add.reduceat(record.events.sent["segments"].astype(np.int64), first)
    found = []
    for k in np.flatnonzero(size > SK_GSO_MAX_SIZE // record.table.mss):
        at = float(record.seconds(sent_ns[first[k] : first[k] + 1])[0])
        payload = float(size[k] * record.table.mss)
        text = f"At {at:.1f} s {size[k]} segments ({format_size(payload)}) left back to back."
        # A nanosecond a segment, so that `_some` keeps the largest bursts as the longest events.
        found.append(Event("burst", at, at + float(size[k]) * 1e-9, text, {"segments": int(size[k])}))
    return _some(found, "bursts")
