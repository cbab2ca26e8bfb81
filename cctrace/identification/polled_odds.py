"""Could counters be an unpaced candidate's at all? Its reductions, and how fast it grows between them.

Polls tell cwnd and ssthresh exactly, only not at the instant of a loss:

    reductions   ssthresh after it, against cwnd at the poll before: the candidate's factor (twice, if two fell between
                 the polls), or somewhat more, by what cwnd grew until the loss
    growth       cwnd's increments, against Reno's: one for each cwnd of segments delivered. Reno's own are that; CUBIC
                 is never much slower (RFC 9438, 4.3), and may be faster

A Scalable TCP gives way by an eighth, a Vegas hardly grows. What either is off by takes from the log odds.
"""

import numpy as np

from cctrace.cc.linux import TCP_INFINITE_SSTHRESH

GREW, ROUNDING = 0.12, 0.02  # logarithms: cwnd between a poll and a loss; what factors are off by
WRONG = 0.05  # logarithm, beyond both: another factor
SOME_WRONG, PER_CUT, MANY_CUTS = 0.4, 2.0, 6  # share of reductions of one's own that may look wrong; log odds of each
FEW_CUTS = 2
OFTEN = 4.0  # times as many polls as reductions, or fewer: growth tells nothing
LIMITED = 0.8  # of cwnd a round trip delivers, where cwnd limits the sender
JUMP = 0.15  # of cwnd, between two polls
INCREMENTS = 20.0  # Reno's, from which on growth tells
SLOW, SLOWEST, PER_GROWTH = {"reno": (0.6, 1.5), "cubic": (0.3, np.inf), "cubic6": (0.3, np.inf)}, 0.02, 6.0


def wrong_reductions(polls, factor):
    """Return of how many reductions the polls tell, and at which share of them the factor was another one.

    Parameters
    ----------
    polls : identify_counters polls
        With `cwnd`, `ssthresh` (segments), `open` and `use`.
    factor : float
        By which the candidate multiplies its window.
    """
    off = []
    for before, after in _neighbours(polls):
        old, new = polls.ssthresh[before], polls.ssthresh[after]
        slow_start = polls.open[before] and polls.cwnd[before] < old
        if new == old or old >= TCP_INFINITE_SSTHRESH or slow_start:
            continue
        kept = np.log(new / max(polls.cwnd[before], old))  # a recovery ends at ssthresh
        round_to = ROUNDING + 1 / new
        off.append(min(max(kept - n * np.log(factor), n * np.log(factor) - GREW - kept) - round_to for n in (1, 2)))
    return len(off), float(np.mean(np.array(off) > WRONG)) if off else 0.0


def growth(polls):
    """Return Reno's increments of cwnd between reductions, and the share of them that cwnd really grew."""
    grown = expected = 0.0
    for before, after in _neighbours(polls):
        same = polls.ssthresh[before] == polls.ssthresh[after] <= polls.cwnd[before]
        jump = abs(polls.cwnd[after] / polls.cwnd[before] - 1) > JUMP  # reduced to the same ssthresh, or undone
        delivered = polls.delivered[after] - polls.delivered[before]
        took_us = (polls.time_ns[after] - polls.time_ns[before]) / 1000
        limited = delivered * polls.rtt_us[after] >= LIMITED * polls.cwnd[before] * took_us
        if same and limited and not jump and polls.open[before] and polls.open[after]:
            grown += polls.cwnd[after] - polls.cwnd[before]
            expected += delivered / polls.cwnd[before]
    return expected, grown / expected if expected else 1.0


def foreign_log_odds(polls, name, factor):
    """Return what an unpaced candidate's reductions and growth take off the log odds that it made the counters.

    Parameters
    ----------
    polls : identify_counters polls
    name : str
        Of the candidate.
    factor : float
        By which it multiplies its window.
    """
    cuts, wrong = wrong_reductions(polls, factor)
    total = (
        PER_CUT * min(cuts, MANY_CUTS) * max(wrong - SOME_WRONG, 0.0) / (1 - SOME_WRONG) if cuts >= FEW_CUTS else 0.0
    )
    increments, share = growth(polls)
    if increments >= INCREMENTS:
        least, most = SLOW[name]
        share = max(share, SLOWEST)
        rare = max(1 - OFTEN * cuts / int(np.sum(polls.use)), 0.0)  # between frequent reductions growth does not show
        total += rare * PER_GROWTH * max(np.log(least) - np.log(share), np.log(share) - np.log(most), 0.0)
    return float(total)


def _neighbours(polls):
    """Yield the numbers of polls that follow each other."""
    use = np.flatnonzero(polls.use)
    yield from zip(use[:-1][np.diff(use) == 1].tolist(), use[1:][np.diff(use) == 1].tolist(), strict=True)
