"""Facts about the ends, from packets: windows, writes, silences, evenly paced sends, attached counters."""

from typing import NamedTuple

import numpy as np

from cctrace.cc.bbr2 import BBR2
from cctrace.columns import Floats
from cctrace.diagnosis import constants as const
from cctrace.diagnosis import groups
from cctrace.diagnosis.common import is_at, socket_limit
from cctrace.diagnosis.findings import Limit, shares
from cctrace.diagnosis.limits import startup_end_s, written
from cctrace.diagnosis.packets.writes import clocked_writes
from cctrace.diagnosis.record import Record
from cctrace.path.transmissions import DELIVERED
from cctrace.tcp.pacing import UNPACED_SEGMENTS
from cctrace.tcp.wire import HEADER_BYTES

# Between two probes of BBRv2 and v3, which send faster than usual only then and at the start.
LONGEST_WAIT_S = (BBR2.params["bw_probe_base_us"].default + BBR2.params["bw_probe_rand_us"].default) / 1e6


def receiver_window(record: Record) -> groups.ReceiverWindow | None:
    """Return how the receive window limited the flow; None for a flow without data."""
    busy_us, held_us = record.flow.account
    if not busy_us > 0:
        return None
    shut, flying = record.window_shut_s, record.acks["rs_prior_in_flight"]
    own = float(np.diff(shut)[:, 0].sum()) if len(shut) else 0.0
    return groups.ReceiverWindow(
        receiver_share=max(held_us / busy_us, min(own * 1e6 / busy_us, 1.0), record.window_full_share),
        window_bytes=float(np.median(flying)) * record.table.mss if len(flying) else 0.0,
        advertised_bytes=float(record.largest_window_bytes) or groups.NAN,
        rtt_us=record.path.median_rtt_us,
        unread_share=record.unread_share,
        span=(float(shut[0, 0]), float(shut[-1, 1])) if len(shut) else None,
    )


def receiver_pauses(record: Record) -> groups.ReceiverPauses | None:
    """Return when the receiver closed its window; None if never."""
    zero = record.zero_window_s
    if not len(zero):
        return None
    shut_s = float(sum(end - begin for begin, end in record.closed_windows_s))
    return groups.ReceiverPauses(len(record.closed_windows_s), shut_s, (float(zero[0]), float(zero[-1])))


def short_transfer(record: Record, limits: list[Limit]) -> groups.ShortTransfer | None:
    """Return the start of a flow without losses, if it was captured."""
    rounds, share = len(record.rounds[0]), shares(limits)
    if record.path.lost.any() or not rounds or not record.flow.facts["complete"]:
        return None
    stood = share.get("application", 0.0) > const.MOST_OF_TIME or share.get("rto_stall", 0.0) >= const.MUCH_OF_TIME
    growing = startup_end_s(record) >= const.MOST_OF_TIME * record.duration_s and not stood
    sent = float(record.flow.row["bytes_sent"])
    return groups.ShortTransfer(rounds, sent, record.path.median_rtt_us, growing, is_complete=True)


def send_buffer(record: Record, limits: list[Limit]) -> groups.SendBuffer | None:
    """Return the send buffer's state from the kernel's counters, if attached."""
    polls = record.flow.tcpinfo
    if polls is None:
        return None
    busy_us, full_us = polls["busy_time_us"], polls["sndbuf_limited_us"]
    if not (busy_us > 0).any() or not (full_us >= 0).any():
        return None
    idle_share = 1 - float(busy_us.max()) / 1e6 / max(record.duration_s, 1e-9)
    waited_share = max(shares(limits).get("application", 0.0) - idle_share, 0.0)
    return groups.SendBuffer(float(full_us.max() / busy_us.max()), waited_share)


def stalls(record: Record, limits: list[Limit]) -> groups.Stalls | None:
    """Return the periods without ACKs that the retransmission timer ended."""
    times = record.timeouts_s
    share = shares(limits).get("rto_stall", 0.0)
    if not len(times):
        return None
    unheard = record.flow.facts["complete"] and not (record.table.state == DELIVERED).any()
    nothing = float(record.table.mss) if unheard else groups.NAN
    return groups.Stalls(
        share, len(times), int(record.path.lost.sum()), (float(times.min()), float(times.max())), nothing
    )


def idle(record: Record, limits: list[Limit], buffer: groups.SendBuffer | None) -> groups.Idle:
    """Return the share of the time without data to send."""
    share = shares(limits).get("application", 0.0)
    if buffer is not None and buffer.send_buffer_share >= const.NEGLIGIBLE_SHARE:
        share -= buffer.waited_share  # the kernel knows which data waited for buffer space
    return groups.Idle(share, record.goodput_bps, *(clocked_writes(record, limits) or ()))


def writes(record: Record, share: float) -> groups.Writes | None:
    """Return the data in flight at writes; None if it varies, or if writes are too rare to matter.

    An application writes on a timer or after a response: an ACK just before is then a coincidence, or nothing is in
    flight. A full send buffer lets it write when ACKs have freed part of it, a fixed time after an ACK, whenever
    that arrives. If ACKs themselves arrive on a clock, the two cases look alike.
    """
    if share < const.MUCH_OF_TIME:
        return None
    bursts = record.bursts
    wrote = np.searchsorted(bursts.time_s, written(record)[:, 1])
    if len(wrote) < const.MIN_FOR_PATTERN:
        return None
    place = np.maximum(bursts.place[wrote], 0)
    left = record.acks["packets_out"][place].astype(float)
    gap = np.diff(record.ack_s, prepend=-np.inf)[place]
    since = bursts.since_s[wrote]
    apart, after = (np.subtract(*np.quantile(x, [0.75, 0.25])) for x in (np.diff(bursts.time_s[wrote]), since))
    # No application timer follows ACKs by the same microseconds every time.
    prompt = max(3 * record.took_s, const.PROMPT_S)
    answers = (since < gap / 4) | (since <= prompt)  # jitter merges ACKs: a quarter of their gap then means nothing
    by_ack = np.quantile(since, const.PREDOMINANT_SHARE) <= min(prompt, np.median(gap) / const.CHANCE_TIMES)
    level, most = float(np.median(left)), float(np.quantile(record.acks["rs_prior_in_flight"], 0.9))
    same = np.abs(left - level) <= max(2.0, const.EQUAL_WITHIN * most)
    alike = (
        const.MOST_OF_TIME if by_ack else const.PREDOMINANT_SHARE
    )  # jitter frees parts of a full buffer of several sizes
    if not level > 0 or answers.mean() < const.PREDOMINANT_SHARE or same.mean() < alike:
        return None
    by_acks, mss = bool(by_ack or apart > const.CLEARLY_TIMES * max(after, const.PROMPT_S)), record.table.mss
    return groups.Writes(level, level * mss, most * mss, by_acks)


def app_limited_samples(record: Record, limits: list[Limit]) -> groups.AppLimitedSamples | None:
    """Return the share of bandwidth samples that contain a pause of the application."""
    sampled = record.acks["rs_interval_us"] > 0
    idle_s = np.array([(limit.start_s, limit.end_s) for limit in limits if limit.name == "application"]).reshape(-1, 2)
    if not sampled.any() or not len(idle_s):
        return None
    end = record.ack_s[sampled]
    begin = end - record.acks["rs_interval_us"][sampled] / 1e6
    later = np.append(idle_s[:, 0], np.inf)[np.searchsorted(idle_s[:, 1], begin, side="right")]
    limited = float(((later < end) | (record.acks["rs_is_app_limited"][sampled] != 0)).mean())
    return groups.AppLimitedSamples(limited, shares(limits).get("application", 0.0))


def of_socket(record: Record) -> groups.SocketLimit | None:
    """Return the socket's pacing limit from the kernel's counters, if attached."""
    polls = record.flow.tcpinfo
    if polls is None or "max_pacing_rate" not in polls.columns | polls.extra:
        return None
    limit, share = socket_limit(polls["pacing_rate_Bps"].astype(float), polls["max_pacing_rate"].astype(float))
    _, rate, _ = record.path.delivered
    at_it = len(rate) > 0 and is_at(float(np.median(rate)) * 1e6, limit)
    bottleneck = record.path.bottleneck
    if bottleneck is None:  # too few RTTs are known to show a queue
        return None
    has_more = bottleneck.is_measured and limit / 1e6 < const.SPARE_RATE * bottleneck.rate
    carried = bottleneck.rate * 8e6 if has_more else groups.NAN
    return groups.SocketLimit(limit * 8, share, record.goodput_bps, at_it, _is_queued(record), carried)


def even_sends(record: Record, limits: list[Limit]) -> groups.EvenSends | None:
    """Return how evenly packets were sent, if below the path's rate and without a queue."""
    if _is_queued(record):
        return None
    even, bottleneck = even_rate(record), record.path.require_bottleneck
    if bottleneck.is_measured and even.rate >= const.SPARE_RATE * bottleneck.rate:
        return None
    sizes, mss = record.table.wire_bytes[~record.table.retransmitted] - HEADER_BYTES, record.table.mss
    may_probe = record.flow.facts["complete"] or record.duration_s > LONGEST_WAIT_S
    payload, window = even.rate * mss / (mss + HEADER_BYTES), record.largest_window_bytes
    rtt_us = record.path.median_rtt_us  # 0 on a clock slower than the path
    return groups.EvenSends(
        rate_bps=even.rate * 8e6,
        limit_bps=payload * 8e6,
        even_share=even.share,
        partly_filled_share=float((sizes < mss).mean()),
        goodput_bps=record.goodput_bps,
        by_timer_share=even.by_timer_share,
        carried_bps=bottleneck.rate * 8e6 if bottleneck.is_measured else groups.NAN,
        faster_rtts=even.faster_s * 1e6 / rtt_us if may_probe and rtt_us else groups.NAN,
        lost_share=float(record.path.lost.mean()),
        window_share=payload * record.path.least_rtt_us / window if window else groups.NAN,
    )


class EvenRate(NamedTuple):
    """The commonest sending rate."""

    rate: float = np.nan  # bytes/us, on the wire
    share: float = 0.0  # of the time at it
    by_timer_share: float = 0.0  # of that time, not released by ACKs
    faster_s: float = 0.0  # longest time above it


def even_rate(record: Record) -> EvenRate:
    """Return the rate at which a flow sent for longest; NaN with too few bursts.

    A limited socket sends at its limit whenever window and controller allow it, also at the start (but for its first
    segments, which Linux does not pace). With losses or competitors that may be less than half of the time.
    """
    bursts = record.bursts
    later = np.cumsum(bursts.segments) > bursts.segments + UNPACED_SEGMENTS
    time, size = bursts.time_s[later], bursts.segments[later] * (record.table.mss + HEADER_BYTES)
    if len(time) < const.MIN_PACKETS or not time[-1] > time[0]:
        return EvenRate()
    apart = float(np.median(np.diff(time)))
    many = int(
        np.clip(record.path.median_rtt_us / 1e6 / const.PARTS_OF_RTT / max(apart, 1e-9), 1, const.BURSTS_TOGETHER)
    )
    first = np.arange(0, len(time), many)
    gap, got = np.diff(time[first]), np.add.reduceat(size, first)[:-1]
    rate = got / np.maximum(gap * 1e6, 1e-3)
    common = _commonest(rate, gap)
    of_common = rate / common - 1
    at_it, above = np.abs(of_common) < const.STEADY_SCATTER, of_common >= const.STEADY_SCATTER
    runs = np.add.reduceat(np.where(above, gap, 0.0), np.flatnonzero(np.diff(above, prepend=not above[0])))
    by_timer = np.add.reduceat(~record.released[later][1:], first[:-1], dtype=float) / many
    even_us = float(gap[at_it].sum())
    share, timed = even_us / float(gap.sum()), float((gap * by_timer)[at_it].sum()) / even_us
    return EvenRate(common, share, timed, float(runs.max()))


def _commonest(values: Floats, lasted: Floats) -> float:
    """Return the median of the values within `EQUAL_WITHIN` of each other that lasted longest."""
    order = np.argsort(values)
    sorted_, until = values[order], np.append(0.0, np.cumsum(lasted[order]))
    begin = np.searchsorted(sorted_, (1 - const.EQUAL_WITHIN) * sorted_)
    end = int(np.argmax(until[1:] - until[begin])) + 1
    start = int(begin[end - 1])
    return float(sorted_[np.searchsorted(until[1:], (until[start] + until[end]) / 2)])


def _is_queued(record: Record) -> bool:
    """Return whether more than the packets of one burst or ACK typically waited at the bottleneck."""
    bottleneck = record.path.require_bottleneck
    if not bottleneck.is_measured:
        return False
    waiting_bytes = float(np.median(bottleneck.queue_us)) * bottleneck.rate
    return waiting_bytes > const.PACKETS_TOGETHER * (record.table.mss + HEADER_BYTES)
