"""How flows of known rates share what they got together."""

from collections.abc import Mapping
from typing import Any

from cctrace.diagnosis.groups import Sharing, Span


def sharing_of(mine_bps: float, rates_bps: Mapping[Any, float], span: Span, **known: Any) -> Sharing:
    """Return the `Sharing` of a flow with others of these rates, by name."""
    total, best = sum(rates_bps.values()), max(rates_bps, key=lambda name: rates_bps[name])
    flows, share = 1 + len(rates_bps), mine_bps / (mine_bps + total)
    return Sharing(flows, share, mine_bps, total, best, rates_bps[best], span, **known)
