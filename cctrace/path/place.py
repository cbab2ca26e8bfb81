r"""Where a path's delay varies: before the bottleneck's queue, or behind it.

A queue spaces what leaves it by its service time, whatever came before:

    jitter behind the queue     t_k = q_k + J_k                            any spacing; packets catch up with others
    jitter before the queue     t_k = max(s_k + J_k, t_{k-1}) + service    no two ACKs closer than the service time

So if delays vary and ACKs are never closer, the variation is before the queue. The number that would have come closer
follows from packets that left far apart, whose delays differ as often wherever the variation is. Delays that vary
before a queue show only in packets that found it empty; of the others they are bounded from above.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cctrace.columns import rows_of_spans
from cctrace.path.arrays import Bools, Floats, Ints
from cctrace.path.bottleneck import Sent
from cctrace.path.constants import (
    APART,
    CLOSER,
    LEAST_CLOSER,
    LEAST_RTTS,
    NONE_CLOSER,
    REORDERED,
    SHORT_QUEUE,
    SOME_CLOSER,
    TIE,
)

if TYPE_CHECKING:
    from cctrace.path.delays import Delays


def placed(delays: "Delays", flow: Sent, rows: Ints) -> "Delays":
    """Return the delays with their `place`; those that vary before the queue, with what they then mean.

    `rows`: of `flow`, one for each delay.
    """
    service_us = _service_us(delays, flow, rows)
    prompt = flow.prompt[rows][delays.last]
    place = _place(delays, service_us, prompt)
    if place != "before":
        return replace(delays, place=place)
    # Those that one ACK reports left the queue one after the other, the last one with the ACK.
    count = np.bincount(delays.group)
    behind = rows_of_spans(0, count)
    ahead_us = (1 - behind / count[delays.group]) * service_us[delays.group]
    sent_us, gap_us, free = flow.sent_us[rows], delays.gap_us - service_us, prompt
    if delays.reordered_share > REORDERED:  # a delay longer than the flow's own queue is not the longest of many
        free = free & (delays.queue_us[delays.last] <= SHORT_QUEUE * delays.packet_us)
    return replace(
        delays,
        place=place,
        departed_us=sent_us + ahead_us,
        delay_us=flow.acked_us[rows] - sent_us - ahead_us,
        queue_us=ahead_us,
        gap_us=np.where(free, gap_us, 0.0),
        tie_us=tie_us(np.abs(gap_us), delays.packet_us),
    )


def _service_us(delays: "Delays", flow: Sent, rows: Ints) -> Floats:
    """Return per group how long the bottleneck served what its ACK reported, us."""
    table = delays.table
    acked = table.ack_row >= 0
    size = np.bincount(table.ack_row[acked], table.wire_bytes[acked])[flow.row[rows][delays.last]]
    at = np.searchsorted(delays.steps.start_us, delays.departed_us[delays.last], "right") - 1
    return size / delays.steps.rate[np.maximum(at, 0)]


def _place(delays: "Delays", service_us: Floats, prompt: Bools) -> str | None:
    last = delays.last
    departed, delay, gap = delays.departed_us[last], delays.delay_us[last], delays.gap_us[1:]
    service, apart = service_us[1:], np.diff(departed)
    neighbours = prompt[:-1] & prompt[1:] & (np.abs(np.diff(departed + delay) - gap) < 1.0)
    if neighbours.sum() < LEAST_RTTS:
        return None
    closer = gap[neighbours] < CLOSER * service[neighbours]
    if closer.mean() >= SOME_CLOSER:
        return "behind"
    loose = neighbours & (apart > APART[0] * service) & (apart < APART[1] * service)
    if not loose.any():
        return None
    fell = np.diff(delay)[loose] < (CLOSER - 1) * service[loose]
    due = neighbours.sum() * fell.mean() * min(float(np.mean(service[neighbours]) / np.mean(apart[loose])), 1.0)
    return "before" if due >= LEAST_CLOSER and closer.sum() <= NONE_CLOSER * due else None


def tie_us(gap: Floats, packet_us: float) -> float:
    """Return the largest spacing of packets that left a later queue together, taken from the closest arrivals."""
    close = gap[gap < TIE * packet_us]
    return float(min(max(3 * np.quantile(close, 0.75), 1.0) if len(close) else 1.0, TIE * packet_us))
