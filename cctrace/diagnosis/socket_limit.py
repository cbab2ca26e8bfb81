"""A socket's limit of its pacing rate (SO_MAX_PACING_RATE), as the kernel's counters tell it."""

import numpy as np

AT_LIMIT = 0.9  # of the limit, from which on a rate is at it: BBR paces 1 % below its estimate
HEADERS = 1.1  # times the limit: TCP's own timer counts payload, the fq qdisc whole packets
ADVICE = (
    "Raise the limit or remove it: an application sets it (SO_MAX_PACING_RATE, iperf3 --fq-rate), or `maxrate` of the "
    "fq qdisc, or a cap of the cloud's or the container's network. The path could carry more."
)
REFUTED = "A pacing rate below the limit (`pacing_rate A/B` of ss: A at the time, B the limit)."


def socket_limit(pacing_Bps, most_Bps):
    """Return (SO_MAX_PACING_RATE in bytes/s, share of the polls in which the socket paced at it); (nan, 0.0) if none.

    Parameters
    ----------
    pacing_Bps, most_Bps : ndarray
        ``tcpi_pacing_rate`` and ``tcpi_max_pacing_rate`` of every poll; what is unknown, or no limit, is not positive.

    Examples
    --------
    >>> socket_limit(np.array([594e3, 600e3, 150e3, 600e3]), np.full(4, 600e3))
    (600000.0, 0.75)
    """
    limited = (most_Bps > 0) & (pacing_Bps > 0)
    if not limited.any():
        return np.nan, 0.0
    at_it = limited & (pacing_Bps >= AT_LIMIT * most_Bps)
    return float(np.median(most_Bps[limited])), float(at_it.sum() / (pacing_Bps > 0).sum())


def is_at(rate_Bps, limit_Bps):
    """Return whether a rate is that of a limit, whichever headers either counts."""
    return AT_LIMIT * limit_Bps <= rate_Bps <= HEADERS * limit_Bps
