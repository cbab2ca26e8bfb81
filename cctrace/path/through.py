"""What went through a flow's bottleneck, and at which rate: alone or with others, over one route or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cctrace.path.bottleneck import Sent, Steps, constant, constant_rate
from cctrace.path.neighbours import merged, on_clock
from cctrace.path.route import Route, on_one_route, route_steps
from cctrace.path.steps import rate_steps

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence


class Through(NamedTuple):
    """What went through a bottleneck.

    Attributes
    ----------
    sent : Sent
        Of this flow and of those that share its queue, as it would have been had the route not changed.
    steps : Steps
        The bottleneck's rate over time.
    others : tuple of int
        Which other flows of the capture share it.
    route : Route or None
        When the base RTT changed; None if it did not.
    """

    sent: Sent
    steps: Steps
    others: tuple[int, ...]
    route: Route | None


def through_bottleneck(path: PathEvidence) -> Through:
    """Return what went `Through` the bottleneck of a flow."""
    if path.shared is not None and path.shared.is_common:
        start_ns, others = path.transmissions.start_ns, path.shared.flows
        joined = merged([path.sent, *(on_clock(path.companions[k], start_ns) for k in others)])
        return Through(joined, constant(constant_rate(joined)[0]), others, None)
    route = route_steps(path.sent, path.steps)
    if len(route.start_us) == 1:
        return Through(path.sent, path.steps, (), None)
    flow = on_one_route(path.sent, path.steps, route)
    return Through(flow, rate_steps(flow)[0], (), route)
