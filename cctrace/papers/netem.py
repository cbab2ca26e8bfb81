"""How netem draws a normal delay: from a table of 4096 quantiles, of which the first is cut at minus four deviations.

Negative delays become zero. The first entry limits how low a delay can be: one packet in 4096 gets it.

Source: iproute2, netem/normal.c (entry n is the quantile of (4 n + 1/2) / 16384, in 8192nds of a deviation, 16 bits).
"""

from functools import lru_cache
from typing import Any

from cctrace.special import special

ENTRIES, STEPS = 4096, 16384
SCALE, LEAST, MOST = 8192, -32768, 32767


def table(mean_us: float, sd_us: float, reorder: bool) -> dict[str, Any]:
    """Return the fields of a `cctrace.Jitter` that draws such delays.

    >>> drawn = table(5000.0, 1000.0, True)["samples_ns"]
    >>> len(drawn), drawn[0], drawn[1], drawn[2048]
    (4096, 1000000, 1544556, 5000122)
    """
    delays = [round(max(mean_us + sd_us * z, 0.0) * 1e3) for z in quantiles()]
    return {"kind": "empirical", "samples_ns": delays, "reorder": reorder}


@lru_cache(maxsize=1)
def quantiles() -> list[float]:
    """Return the table, in deviations."""
    known = (round(SCALE * float(special.ndtri((4 * n + 0.5) / STEPS))) for n in range(ENTRIES))
    return [min(max(value, LEAST), MOST) / SCALE for value in known]
