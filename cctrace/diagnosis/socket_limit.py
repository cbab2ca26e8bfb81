"""A socket's pacing limit (SO_MAX_PACING_RATE), from the kernel's counters."""

import numpy as np
from numpy.typing import NDArray

from cctrace.diagnosis import constants as const


def socket_limit(pacing_Bps: NDArray[np.float64], most_Bps: NDArray[np.float64]) -> tuple[float, float]:
    """Return (SO_MAX_PACING_RATE in bytes/s, share of the polls in which the socket paced at it); (nan, 0.0) if none.

    `pacing_Bps`, `most_Bps`: ``tcpi_pacing_rate`` and ``tcpi_max_pacing_rate`` of every poll; not positive if unknown
    or unlimited.

    >>> socket_limit(np.array([594e3, 600e3, 150e3, 600e3]), np.full(4, 600e3))
    (600000.0, 0.75)
    """
    limited = (most_Bps > 0) & (pacing_Bps > 0)
    if not limited.any():
        return np.nan, 0.0
    at_it = limited & (pacing_Bps >= (1 - const.STEADY) * most_Bps)
    return float(np.median(most_Bps[limited])), float(at_it.sum() / (pacing_Bps > 0).sum())


def is_at(rate_Bps: float, limit_Bps: float) -> bool:
    """Return whether a rate equals a limit, whichever headers either includes."""
    return abs(rate_Bps - limit_Bps) <= const.STEADY * limit_Bps
