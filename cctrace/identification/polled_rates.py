"""Could counters be those of a candidate that paces? Rates that no gain explains, and rates that never change.

The bandwidth by which a BBR paces is what was delivered, whoever sent it, so a stranger's rate is near it, too. But

    gains       a rate is one of the candidate's gains times the bandwidth; were it any gain at all half of the time,
                and the bandwidth itself else, that may not explain the polls better
    unchanged   a BBR probes, every eight round trips (v1; or after 48, once it takes losses for a policer's) or after
                3 s at the latest, and counts what was delivered anew: its rate does not stay the same to 2 in 1000
                for much longer, while it is used

The constants are set on simulated counters of candidates and of known strangers (`benchmarks/strangers.py`, seed 71).
"""

import itertools

import numpy as np

ANY_GAIN = 0.3  # density of any gain, per unit of a logarithm
GAIN_WEIGHT, MOST_GAINS = 0.3, 10.0  # log odds per unit of log likelihood: polls that follow each other hang together
SAME = 0.002
V1_LONGEST_NS, LONGEST_NS = 2_500_000_000, 4_500_000_000  # without a change: one or two probes that no poll has met
POLICED_RTTS = 56  # bbr_lt_bw_max_rtts, and the cycle that follows
USED = 0.5  # of the rate, at least, is delivered
UNCHANGED_WEIGHT, MOST_UNCHANGED = 25.0, 12.0


def other_gains(explained, ratio, error):
    """Return by how much the log odds fall as any gain explains the rates better than the candidate's do.

    Parameters
    ----------
    explained : ndarray
        Log likelihood of each poll's rate under the candidate.
    ratio : ndarray
        Log of each rate over the candidate's bandwidth; NaN unknown.
    error : float
        Of these.
    """
    known = np.isfinite(ratio)
    usual = np.exp(-np.abs(ratio[known]) / error) / (2 * error)
    free = np.log(0.5 * usual + 0.5 * ANY_GAIN)
    return float(min(GAIN_WEIGHT * max(np.sum(free - explained[known]), 0.0), MOST_GAINS))


def unchanged(time_ns, rate, delivered, rtt_us, is_v1):
    """Return by how much the log odds fall as the pacing rate stays the same for too long.

    Parameters
    ----------
    time_ns, rate, delivered, rtt_us : ndarray
        Of all polls: pacing rate, bytes/s (0 or less: unknown), bytes delivered in all, round-trip time.
    is_v1 : bool
        Whether the candidate probes every eight round trips.
    """
    longest = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        used = np.diff(delivered) > USED * rate[1:] * np.diff(time_ns) / 1e9
        changes = ~(np.abs(np.diff(np.log(rate))) < SAME) | ~used
    begins = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(rate)]])
    for begin, end in itertools.pairwise(begins):
        if end - begin > 1:
            longest = max(longest, int(time_ns[end - 1] - time_ns[begin]))
    least = max(V1_LONGEST_NS, POLICED_RTTS * float(np.nanmedian(rtt_us)) * 1e3) if is_v1 else LONGEST_NS
    return float(min(UNCHANGED_WEIGHT * np.log(max(longest / least, 1.0)), MOST_UNCHANGED))
