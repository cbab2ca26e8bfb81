"""The traffic through a flow's bottleneck, and its rate: alone or with other flows, over one or several routes.

Residual delays lie at a constant level plus jitter. A route change, a step of the base RTT, moves it permanently,
while other flows' queues and stalled hosts come and go. Steps are therefore sought in medians over a tenth of a second,
at least a second apart, and kept if the level is stable on both sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.columns import Floats
from cctrace.path import constants as const
from cctrace.path.arrays import Parts, central_sd
from cctrace.path.bottleneck import constant_rate, deviation
from cctrace.path.neighbours import merged, on_clock
from cctrace.path.queue import Steps, constant
from cctrace.path.sent import SentPackets
from cctrace.path.steps import rate_steps

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence


class Route(NamedTuple):
    """When the base RTT changes, us, and its increase over the initial value, us; both arrays start with 0."""

    start_us: np.ndarray
    above_us: np.ndarray


def route_steps(flow: SentPackets, steps: Steps) -> Route:
    """Return the `Route` of a flow. `steps`: rate of the bottleneck."""
    time, level = _levels(flow, steps)
    least = max(const.ROUTE_STEP_US, const.ROUTE_STEP_SHARE * flow.least_rtt_us)
    edges = sorted({0, *_split(level, 0, len(level), least)})[: const.MAX_ROUTES + 1]
    if len(edges) == 1 or not len(level):
        return Route(np.zeros(1), np.zeros(1))
    ends = [*edges[1:], len(level)]
    levels = np.array([np.median(level[a:b]) for a, b in zip(edges, ends, strict=True)])
    departed, rest = _rest(flow, steps)
    starts = [0.0]
    for k, a in enumerate(edges[1:]):
        inside = np.flatnonzero((departed >= time[max(a - 2, 0)]) & (departed <= time[min(a + 1, len(time) - 1)]))
        nearer_before = np.abs(rest[inside] - levels[k]) - np.abs(rest[inside] - levels[k + 1])
        cost = np.cumsum(nearer_before)  # cost of assigning the first k packets to "before"
        starts.append(float(departed[inside[int(np.argmin(cost))]]))
    return Route(np.array(starts), levels - levels[0])


def _levels(flow: SentPackets, steps: Steps) -> tuple[Floats, Floats]:
    """Return times and medians of the residual delays, by window."""
    departed, rest = _rest(flow, steps)
    window = np.maximum.accumulate((departed / const.WINDOW_US).astype(np.int64))
    begin = np.append(0, np.flatnonzero(np.diff(window, prepend=-1))[1:])
    count = np.diff(begin, append=len(window))
    many = count >= const.ROUTE_RTTS
    begin, end = begin[many], (begin + count)[many]
    times = [departed[a:b].mean() for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
    return np.array(times), Parts(rest[np.repeat(many, count)], count[many]).medians


def _rest(flow: SentPackets, steps: Steps) -> tuple[Floats, Floats]:
    """Return when packets left the bottleneck, and their residual delays."""
    departed = flow.departures(steps)[flow.timed]
    return departed, flow.acked_us[flow.timed] - departed


def _split(level: Floats, a: int, b: int, least: float) -> list[int]:
    """Return where the level changes between rows a and b."""
    if b - a < 2 * const.ROUTE_WINDOWS:
        return []
    # Minimise the sum of squares of ranks: a few windows of a stalled host weigh no more than others.
    rank = np.argsort(np.argsort(level[a:b])).astype(float)
    total, n = np.cumsum(rank), np.arange(1, b - a + 1)
    between = (total[:-1] - n[:-1] * rank.mean()) ** 2 / (n[:-1] * (b - a - n[:-1]))
    inside = slice(const.ROUTE_WINDOWS - 1, b - a - const.ROUTE_WINDOWS)
    at = a + const.ROUTE_WINDOWS + int(np.argmax(between[inside]))
    near = level[max(a, at - 3 * const.ROUTE_WINDOWS) : at], level[at : min(b, at + 3 * const.ROUTE_WINDOWS)]
    jump = abs(np.median(near[1]) - np.median(near[0]))
    wander = max(central_sd(side) for side in near)
    if jump < least or wander > const.ROUTE_HOLDS * jump:
        return []
    return [*_split(level, a, at, least), at, *_split(level, at, b, least)]


def on_one_route(flow: SentPackets, steps: Steps, route: Route) -> SentPackets:
    """Return the flow as if the route had not changed."""
    starts, shifts = route
    departed = flow.departures(steps)
    later = shifts[np.searchsorted(starts, departed, "right") - 1]
    acked_us = flow.acked_us - later
    for start in starts[1:]:  # packets of both routes may have waited for each other
        acked_us[np.abs(departed - start) < flow.least_rtt_us] = np.nan
    return replace(flow, acked_us=acked_us)


class Traffic(NamedTuple):
    """The traffic through a bottleneck, and the rate at which that serves it."""

    sent: SentPackets  # this flow's packets and those of flows that share its queue, corrected for route changes
    steps: Steps  # the bottleneck's rate over time
    others: tuple[int, ...]  # indices of the other flows that share it
    route: Route | None  # when the base RTT changed; None if it did not


def traffic_through_bottleneck(path: PathEvidence) -> Traffic:
    """Return the `Traffic` of a flow's bottleneck: with other flows if they share its queue, else over its routes."""
    if path.shared is not None and path.shared.is_common:
        start_ns, others = path.transmissions.start_ns, path.shared.flows
        parts = [path.sent, *(on_clock(path.companions[k], start_ns) for k in others)]
        joined = merged(parts)
        rate = _joint_rate(path, parts, joined)
        if rate * const.RATE_DIFFERS > path.shared.rate:
            return Traffic(joined, constant(rate), others, None)
        # Packets leave further apart than a joint queue would let them: a fair queue serves the flows in turn.
    route = route_steps(path.sent, path.steps)
    if len(route.start_us) == 1:
        return Traffic(path.sent, path.steps, (), None)
    flow = on_one_route(path.sent, path.steps, route)
    return Traffic(flow, rate_steps(flow)[0], (), route)


def _joint_rate(path: PathEvidence, parts: list[SentPackets], joined: SentPackets) -> float:
    """Return the rate of a queue that flows share: that which explains the delays of all between the same hosts best.

    These have one RTT without a queue; the others only fill it. A flow of few packets, often delayed by a receiver's
    timer, shows the rate less exactly than all do. Where its own delays clearly contradict, others' were not those of
    this queue. `parts`: packets of the flow, and of each of the others; `joined`: all, with the flow's own delays.
    """
    own, least = constant_rate(joined)
    ends = list(zip(path.capture.columns["src"], path.capture.columns["dst"], strict=True))
    is_alike = [ends[k] == ends[path.index] for k in path.shared.flows] if path.shared else []
    alike = [part for part, same in zip(parts[1:], is_alike, strict=True) if same]
    rest = [part for part, same in zip(parts[1:], is_alike, strict=True) if not same]
    if not alike:
        return own
    rate = constant_rate(merged([parts[0], *alike, *rest], 1 + len(alike)))[0]
    return rate if deviation(joined, constant(rate)) - least < const.COMMON_GAIN * least else own
