"""How netem draws a normal delay: from a table that ends at four deviations; what is negative becomes zero.

Source: iproute2, netem/normal.c and maketable (a table of 16-bit values, 8192 a deviation).
"""

from functools import lru_cache

from scipy import special

SIZE = 1024  # quantiles kept here; iproute2 has 4096
REACH = 4.0  # deviations: 32767 / 8192


def table(mean_us, sd_us, reorder):
    """Return the fields of a `cctrace.Jitter` that draws such delays.

    Examples
    --------
    >>> drawn = table(5000.0, 1500.0, True)
    >>> drawn["samples_ns"][0], max(drawn["samples_ns"])
    (54210, 9945790)
    """
    delays = [round(max(mean_us + sd_us * z, 0.0) * 1e3) for z in _quantiles()]
    return {"kind": "empirical", "samples_ns": delays, "reorder": reorder}


@lru_cache(maxsize=1)
def _quantiles():
    known = [float(special.ndtri((2 * k + 1) / (2 * SIZE))) for k in range(SIZE)]
    return [min(max(z, -REACH), REACH) for z in known]
