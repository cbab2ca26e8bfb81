"""What went through a flow's bottleneck, and at which rate: alone or with others, over one route or several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.path.bottleneck import Sent, Steps, constant, constant_rate, sent
from cctrace.path.neighbours import merged
from cctrace.path.route import Route, on_one_route, route_steps
from cctrace.path.steps import rate_steps

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence
    from cctrace.path.transmissions import Transmissions

PLATEAU_US = 400_000.0  # windows in which what all flows got is counted
BETTER = 0.85  # times the deviation alone: from there on the queue is common


class Through(NamedTuple):
    """What went through a bottleneck.

    Attributes
    ----------
    sent : Sent
        Of this flow and of those that share its queue, as it would have been had the route not changed.
    steps : Steps
        The bottleneck's rate over time.
    others : int
        How many other flows of the capture share it.
    route : Route or None
        When the base RTT changed; None if it did not.
    """

    sent: Sent
    steps: Steps
    others: int
    route: Route | None


def through_bottleneck(path: PathEvidence) -> Through:
    """Return what went `Through` the bottleneck of a flow."""
    if path.same_ends:
        start_ns = path.transmissions.start_ns
        parts = [path.sent, *(_shifted(each, start_ns) for each in path.same_ends.values())]
        whole = merged(parts)
        rate, cost = constant_rate(whole, _plateau(parts))
        if cost < BETTER * path.constant_rate[1]:
            return Through(whole, constant(rate), len(path.same_ends), None)
    route = route_steps(path.sent, path.steps)
    if len(route.start_us) == 1:
        return Through(path.sent, path.steps, 0, None)
    flow = on_one_route(path.sent, path.steps, route)
    return Through(flow, rate_steps(flow)[0], 0, route)


def _shifted(table: Transmissions, start_ns: int) -> Sent:
    """Return the `Sent` of another flow on the clock of the one that began at `start_ns`."""
    its, shift = sent(table), (table.start_ns - start_ns) / 1e3
    return replace(its, sent_us=its.sent_us + shift, told_us=its.told_us + shift)


def _plateau(parts: list[Sent]) -> tuple[float, float]:
    """Return the bounds of what all flows together got in most windows of `PLATEAU_US`."""
    windows = [np.maximum(part.told_us[part.known] / PLATEAU_US, 0).astype(np.int64) for part in parts]
    total = np.zeros(max(int(window.max(initial=-1)) for window in windows) + 1)
    for window, part in zip(windows, parts, strict=True):
        got = np.bincount(window, part.wire_bytes[part.known]) / PLATEAU_US
        total[: len(got)] += got
    middle = float(np.median(total[total > 0]))
    return middle * 0.97, middle * 1.05
