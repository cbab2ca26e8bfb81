"""Facts that packets and polls give in the same way: shared rates, a socket's pacing limit, a growing window."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cctrace.columns import Floats
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.findings import Limit, shares
from cctrace.diagnosis.groups import GrowingWindow, Sharing, Span


def sharing_of(mine_bps: float, rates_bps: Mapping[Any, float], span: Span, **known: Any) -> Sharing:
    """Return the `Sharing` of a flow with others of these rates, by name."""
    total, best = sum(rates_bps.values()), max(rates_bps, key=lambda name: rates_bps[name])
    flows, share = 1 + len(rates_bps), mine_bps / (mine_bps + total)
    return Sharing(flows, share, mine_bps, total, best, rates_bps[best], span, **known)


def socket_limit(pacing_Bps: Floats, most_Bps: Floats) -> tuple[float, float]:
    """Return (SO_MAX_PACING_RATE in bytes/s, share of the polls in which the socket paced at it); (nan, 0.0) if none.

    `pacing_Bps`, `most_Bps`: ``tcpi_pacing_rate`` and ``tcpi_max_pacing_rate`` of every poll; not positive if unknown
    or unlimited.

    >>> socket_limit(np.array([594e3, 600e3, 150e3, 600e3]), np.full(4, 600e3))
    (600000.0, 0.75)
    """
    limited = (most_Bps > 0) & (pacing_Bps > 0)
    if not limited.any():
        return np.nan, 0.0
    at_it = limited & (pacing_Bps >= (1 - const.STEADY_SCATTER) * most_Bps)
    return float(np.median(most_Bps[limited])), float(at_it.sum() / (pacing_Bps > 0).sum())


def is_at(rate_Bps: float, limit_Bps: float) -> bool:
    """Return whether a rate equals a limit, whichever headers either includes."""
    return abs(rate_Bps - limit_Bps) <= const.STEADY_SCATTER * limit_Bps


def growth(
    windows: Floats, rounds: float, mss: float, began_s: float, lost: float, limits: list[Limit]
) -> GrowingWindow | None:
    """Return how windows after slow start grew; None if they hardly did, or not for long enough.

    `windows`: segments, in order of time; `rounds`: how many round trips they cover. `began_s`: when slow start had
    ended. `lost`: until then.
    """
    if min(len(windows), rounds) < const.MIN_FOR_SHARES:
        return None
    low, high = (
        float(windows[part].max()) for part in (slice(const.MIN_OBSERVATIONS), slice(-const.MIN_OBSERVATIONS, None))
    )
    if not high >= (1 + const.STEADY_SCATTER) * low:
        return None
    share = shares(limits)
    return GrowingWindow(
        began_s=began_s,
        lost_at_start=lost,
        first_bytes=low * mss,
        last_bytes=high * mss,
        per_rtt_segments=(high - low) / (rounds * (1 - const.MIN_OBSERVATIONS / len(windows))),
        cwnd_share=share.get("cwnd", 0.0) / max(1 - share.get("startup", 0.0), 1e-9),
    )
