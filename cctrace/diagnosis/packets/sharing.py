"""Facts about other flows, from packets: whether they share this flow's queue, or a fair queue serves all in turn.

Either a queue of all flows' packets explains this flow's delays better than one of its own (`path.neighbours`), or all
flows have equal rates whenever they have data, or a simulated fair queue explains the delays better than both. Where no
queue explains the delays, as behind a return path that releases ACKs on a clock, rates with a steady sum show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cctrace.columns import Floats
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.common import sharing_of
from cctrace.diagnosis.groups import FairQueueing, Sharing
from cctrace.diagnosis.record import Record
from cctrace.display import endpoint
from cctrace.path.bottleneck import deviation
from cctrace.path.constants import COMMON_GAIN
from cctrace.path.fair import fair_queue
from cctrace.path.neighbours import SharedQueue
from cctrace.path.own_queue import acked_evenly
from cctrace.path.queue import constant
from cctrace.path.sent import SentPackets


def others(record: Record) -> dict[str, FairQueueing | Sharing]:
    """Return the facts of flows served in turn, or of a shared queue; nothing for neither."""
    if not record.path.companions or record.path.coarse is None:
        return {}
    shared = record.path.shared
    if shared is None:
        return {}
    found = _fair_queue_fit(record, shared.gain)
    if found is not None and (found.has_own_queue or _other_is_fairly_queued(record)):
        return {"fair_queueing": _fair_queueing(record, found)}
    sharing = (_sharing(record, shared) if shared.is_common else None) or _by_sum(record)
    return {} if sharing is None else {"sharing": sharing}


def _by_sum(record: Record) -> Sharing | None:
    """Return the rates of flows that add up to a steady one, and whose RTTs move together; None if they do not.

    It is for delays that no queue explains. One flow leaves what another takes only where they share a bottleneck.
    """
    if record.path.require_bottleneck.explained > COMMON_GAIN:
        return None
    parts, (begin, end) = record.path.sent_by_flow, _overlap(record)
    edges = np.arange(1e6 * begin, 1e6 * end + 1.0, _window_us([*parts.values()]))
    if len(edges) <= const.MIN_FOR_SHARES:
        return None
    rates = np.array([_rates(part, edges) for part in parts.values()])
    total, means = rates.sum(axis=0), rates.mean(axis=1)
    is_steady = np.std(total) < const.STEADY_SCATTER * total.mean() and means.min() > 0
    if not is_steady or not _correlation(rates[0], total - rates[0]) < -const.RTTS_ALIKE:
        return None
    own, *others = (_mean_rtts(part, edges) for part in parts.values())
    alike = min(_correlation(own, other) for other in others)
    if not alike > const.RTTS_ALIKE:
        return None
    mine_bps, *their_bps = (means * 8e6).tolist()
    by_flow = dict(zip(record.path.companions, their_bps, strict=True))
    link_bps = float(np.median(total)) * 8e6
    return _named(record, sharing_of(mine_bps, by_flow, (begin, end), link_bps=link_bps, rtt_correlation=alike))


def _mean_rtts(part: SentPackets, edges: Floats) -> Floats:
    """Return a flow's mean RTT in each window, us; NaN without any."""
    place = np.searchsorted(edges, part.sent_us[part.timed], side="right") - 1
    inside = (place >= 0) & (place < len(edges) - 1)
    rtt_us = (part.acked_us - part.sent_us)[part.timed][inside]
    many, total = (np.bincount(place[inside], weights, len(edges) - 1) for weights in (None, rtt_us))
    return np.where(many > 0, total / np.maximum(many, 1), np.nan)


def _correlation(one: Floats, other: Floats) -> float:
    """Return the correlation of two series where both are known; 0 if they hardly are, or do not vary."""
    known = np.isfinite(one) & np.isfinite(other)
    if known.sum() < const.MIN_FOR_SHARES or min(np.std(one[known]), np.std(other[known])) == 0:
        return 0.0
    return float(np.corrcoef(one[known], other[known])[0, 1])


def _fair_queueing(record: Record, found: _FairQueueFit) -> FairQueueing:
    return FairQueueing(
        flows=1 + len(record.path.companions),
        share=found.share,
        share_deviation=found.spread,
        link_bps=found.rate * 8e6,
        deviation=found.deviation,
        solo_bps=found.solo * 8e6,
        is_own=found.has_own_queue,
        span=_overlap(record),
    )


def _sharing(record: Record, shared: SharedQueue) -> Sharing | None:
    """Return the rates of flows that filled the link together; None if most of this flow's data met a half-empty link.

    A flow that sends little into a link that others leave empty does not compete, whatever queue explains its
    delays.
    """
    parts = [record.path.sent_by_flow[k] for k in (record.flow.index, *shared.flows)]
    begin, end = (1e6 * at_s for at_s in _overlap(record))
    window_us = _window_us(parts)
    edges = np.arange(begin, end + 1.0, window_us)
    if len(edges) < 2:
        return None
    rates = np.array([_rates(part, edges) for part in parts])
    mine, filled = rates[0], rates.sum(axis=0) >= const.LARGE_SHARE * shared.rate
    if not mine.any() or mine[filled].sum() < const.MOST_OF_TIME * mine.sum():
        return None
    mine_bps, *their_bps = (rates.mean(axis=1) * 8e6).tolist()
    by_flow = dict(zip(shared.flows, their_bps, strict=True))
    link_bps, gain = shared.rate * 8e6, float(shared.gain)
    return _named(record, sharing_of(mine_bps, by_flow, _overlap(record), link_bps=link_bps, explained_better_by=gain))


def _named(record: Record, found: Sharing) -> Sharing:
    """Return the sharing with the endpoint of the fastest other flow in place of its index."""
    columns = record.flow.capture.columns
    return found._replace(best=endpoint(columns["src"][found.best], columns["sport"][found.best]))


def _window_us(parts: Sequence[SentPackets]) -> float:
    """Return the length of the windows in which rates of flows are compared: 0.1 s, or the longest least RTT."""
    return max([100_000.0, *(part.least_rtt_us for part in parts if len(part.acked))])


class _FairQueueFit(NamedTuple):
    """How well a fair queue, which serves flows in turn, explains this flow's rate and delays."""

    rate: float  # of the link, bytes/us
    solo: float  # of this flow while it was alone, bytes/us; 0: never
    share: float  # of this flow while others had data
    spread: float  # relative scatter of the shares
    deviation: float  # of the delays from those of a fair queue, or of a queue of its own
    deviation_common: float  # the same from those of one queue for all

    @property
    def has_own_queue(self) -> bool:
        """Whether a queue of its own explains the flow's delays, and a common one does not."""
        return self.deviation < (1 - COMMON_GAIN) * self.deviation_common


def _other_is_fairly_queued(record: Record) -> bool:
    """Return whether the largest companion's delays are those of its own queue, served in turn.

    An AQM that drops much of this flow's own queue leaves delays that no queue explains.
    """
    sent = record.flow.capture.columns["bytes_sent"]
    other = Record(record.flow.capture.flow(max(record.path.companions, key=lambda k: int(sent[k]))))
    if other.path.coarse is None or record.flow.index not in other.path.companions:
        return False
    shared = other.path.shared
    found = None if shared is None else _fair_queue_fit(other, shared.gain)
    return found is not None and found.has_own_queue


def _fair_queue_fit(record: Record, gain: float) -> _FairQueueFit | None:
    """Return the fit if all flows had equal rates whenever they had data, or a fair queue explains the delays.

    Behind a fair queue, too, rates may be unequal: a flow that backs off leaves some of its share to the others.
    """
    own, *others = record.path.sent_by_flow.values()
    window_us = _window_us((own, *others))
    edges = np.arange(0.0, own.sent_us[-1] + window_us, window_us)
    if len(edges) < const.MIN_FOR_SHARES:
        return None
    rates = np.array([_rates(part, edges) for part in (own, *others)])
    busy = rates > 0
    many, total = busy.sum(axis=0), rates.sum(axis=0)
    # In a window in which a flow starts or ends it had data for only part of the time.
    inside = np.all(busy == np.roll(busy, 1, axis=1), axis=0) & np.all(busy == np.roll(busy, -1, axis=1), axis=0)
    full = inside & busy[0] & (many > 1)
    if full.sum() < const.MIN_FOR_SHARES:
        return None
    parts = rates[:, full] / total[full] * many[full]
    off = np.abs(np.where(busy[:, full], parts, 1.0) - 1)
    spread = float(np.quantile(off.max(axis=0), 0.75))
    alone = deviation(own, constant(record.path.require_bottleneck.rate))
    common = alone * (1 - gain)
    link, in_turn = fair_queue(own, others, float(np.quantile(total[full], 0.9)))
    if spread > const.STEADY_SCATTER and in_turn >= (1 - COMMON_GAIN) * min(alone, common):
        return None
    solo = rates[0, inside & busy[0] & (many == 1)]
    return _FairQueueFit(
        link,
        float(np.median(solo)) if len(solo) >= const.MIN_FOR_SHARES / 4 else 0.0,
        float(np.median(rates[0, full] / total[full])),
        spread,
        min(alone, in_turn),
        common,
    )


def _rates(part: SentPackets, edges: Floats) -> Floats:
    """Return a flow's deliveries in windows, bytes/us; 0 for none."""
    if not len(part.acked):
        return np.zeros(len(edges) - 1)
    is_busy = np.histogram(part.acked_us[part.acked], edges)[0] > 0
    return np.where(is_busy, acked_evenly(part, edges) / (edges[1] - edges[0]), 0.0)


def _overlap(record: Record) -> tuple[float, float]:
    others = record.path.companions.values()
    begin = max(0.0, min((table.start_ns - record.start_ns) / 1e9 for table in others))
    end = max(float(record.seconds(table.sent_ns[-1:])[0]) for table in others)
    return begin, min(end, record.duration_s)
