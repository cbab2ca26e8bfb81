"""The traffic through a flow's bottleneck, and its rate: alone or with other flows, over one or several routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cctrace.path.bottleneck import Sent, Steps, constant, constant_rate
from cctrace.path.neighbours import merged, on_clock
from cctrace.path.route import Route, on_one_route, route_steps
from cctrace.path.steps import rate_steps

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence


class Through(NamedTuple):
    """The traffic through a bottleneck."""

    sent: Sent  # this flow's packets and those of flows that share its queue, corrected for route changes
    steps: Steps  # the bottleneck's rate over time
    others: tuple[int, ...]  # indices of the other flows that share it
    route: Route | None  # when the base RTT changed; None if it did not


def through_bottleneck(path: PathEvidence) -> Through:
    """Return the `Through` of a flow's bottleneck."""
    if path.shared is not None and path.shared.is_common:
        start_ns, others = path.transmissions.start_ns, path.shared.flows
        joined = merged([path.sent, *(on_clock(path.companions[k], start_ns) for k in others)])
        return Through(joined, constant(constant_rate(joined)[0]), others, None)
    route = route_steps(path.sent, path.steps)
    if len(route.start_us) == 1:
        return Through(path.sent, path.steps, (), None)
    flow = on_one_route(path.sent, path.steps, route)
    return Through(flow, rate_steps(flow)[0], (), route)
