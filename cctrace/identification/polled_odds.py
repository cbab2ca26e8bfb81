"""Log odds of a candidate given counters, reduced by windows and rates that it cannot produce.

Polls give cwnd and ssthresh exactly, but not at the instant of a loss:

    reductions   ssthresh afterwards over cwnd at the previous poll: the candidate's factor (squared, if two reductions
                 fell between the polls), or somewhat more, as cwnd grew until the loss
    growth       increments of cwnd relative to Reno's: one per cwnd of segments delivered. Reno's equal that; CUBIC is
                 never much slower (RFC 9438, 4.3), and may be faster

A BBR paces by the delivery rate, which is similar for any sender, so an unknown sender's rate is close to it, too.
But

    gains        a rate is one of the candidate's gains times the bandwidth; a mixture of arbitrary gains and the
                 bandwidth itself, half of the time each, must not explain the polls better
    unchanged    a BBR probes every eight round trips (v1; or after 48, once it takes losses for a policer's) or after 3
                 s at the latest, and updates its bandwidth: its rate does not stay the same to 2 in 1000 for much
                 longer while it is used
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cctrace.cc.linux import TCP_INFINITE_SSTHRESH
from cctrace.columns import Floats, Ints, Values
from cctrace.identification import constants as const
from cctrace.identification.flights import V1_WAIT_RTTS

if TYPE_CHECKING:
    from cctrace.identification.polls import Polls

# Range of growth relative to Reno's, by candidate.
GROWTH = {"reno": (0.6, 1.5), "cubic": (0.3, np.inf), "cubic6": (0.3, np.inf)}


def wrong_reductions(polls: Polls, factor: float) -> tuple[int, float]:
    """Return how many reductions the polls contain, and the share of them with a wrong factor.

    `factor`: by which the candidate multiplies its window.
    """
    off = []
    for before, after in _neighbours(polls):
        old, new = polls.ssthresh[before], polls.ssthresh[after]
        slow_start = polls.is_open[before] and polls.cwnd[before] < old
        if new == old or old >= TCP_INFINITE_SSTHRESH or slow_start:
            continue
        log_share = np.log(new / max(polls.cwnd[before], old))  # a recovery ends at ssthresh
        round_to = const.FINEST_SCALE + 1 / new
        once, twice = np.log(factor), 2 * np.log(factor)
        off.append(min(max(log_share - by, by - const.WRONG_WINDOW - log_share) - round_to for by in (once, twice)))
    return len(off), float(np.mean(np.array(off) > const.OTHER_FACTOR)) if off else 0.0


def growth(polls: Polls) -> tuple[float, float]:
    """Return Reno's increments of cwnd between reductions, and the growth of cwnd as a share of them."""
    grown = expected = 0.0
    for before, after in _neighbours(polls):
        same = polls.ssthresh[before] == polls.ssthresh[after] <= polls.cwnd[before]
        # Reduced to the same ssthresh, or undone.
        jump = abs(polls.cwnd[after] / polls.cwnd[before] - 1) > const.WRONG_WINDOW
        delivered = polls.delivered[after] - polls.delivered[before]
        took_us = (polls.time_ns[after] - polls.time_ns[before]) / 1000
        limited = delivered * polls.rtt_us[after] >= const.PREDOMINANT_SHARE * polls.cwnd[before] * took_us
        limited &= bool(polls.full[before] or polls.full[after])
        if same and limited and not jump and polls.is_open[before] and polls.is_open[after]:
            grown += polls.cwnd[after] - polls.cwnd[before]
            expected += delivered / polls.cwnd[before]
    return expected, grown / expected if expected else 1.0


def window_odds_against(polls: Polls, name: str, factor: float) -> float:
    """Return the reduction of an unpaced candidate's log odds due to the windows' reductions and growth.

    `name`: of the candidate. `factor`: by which it multiplies its window.
    """
    cuts, wrong = wrong_reductions(polls, factor)
    total = 0.0
    if cuts >= 2:
        beyond = max(wrong - const.MAX_WRONG_SHARE, 0.0) / (1 - const.MAX_WRONG_SHARE)
        total = const.WEIGHT * min(cuts, const.MIN_FOR_PATTERN) * beyond
    increments, share = growth(polls)
    if increments >= const.MIN_INCREMENTS:
        least, most = GROWTH[name]
        share = max(share, const.FINEST_SCALE)
        # Between frequent reductions, growth is not visible.
        rare = max(1 - const.CUTS_BLUR * cuts / int(np.sum(polls.use)), 0.0)
        off = max(np.log(least) - np.log(share), np.log(share) - np.log(most), 0.0)
        total += rare * const.STRONG_WEIGHT * off
    return float(total)


def other_gains(explained: Floats, ratio: Floats, error: float) -> float:
    """Return the reduction of the log odds if arbitrary gains explain the rates better than the candidate's.

    `explained`: log likelihood of each poll's rate under the candidate. `ratio`: log of each rate over the candidate's
    bandwidth; NaN unknown. `error`: of these.
    """
    known = np.isfinite(ratio)
    usual = np.exp(-np.abs(ratio[known]) / error) / (2 * error)
    free = np.log(0.5 * usual + 0.5 * const.BACKGROUND_DENSITY)
    return float(min(const.GAIN_WEIGHT * max(np.sum(free - explained[known]), 0.0), const.MAX_AGAINST))


def unchanged(time_ns: Ints, rate_Bps: Floats, delivered: Floats, rtt_us: Floats, is_v1: bool) -> float:
    """Return the reduction of the log odds if the pacing rate stays constant for too long.

    `time_ns`, `rate_Bps`, `delivered`, `rtt_us`: of all polls: pacing rate (0 or less: unknown), cumulative bytes
    delivered, round-trip time. `is_v1`: whether the candidate probes every eight round trips.
    """
    longest = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        used = np.diff(delivered) > 0.5 * rate_Bps[1:] * np.diff(time_ns) / 1e9
        changes = ~(np.abs(np.diff(np.log(rate_Bps))) < const.SAME_RATE_SHARE) | ~used
    begins: Values = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(rate_Bps)]])
    for begin, end in itertools.pairwise(begins):
        if end - begin > 1:
            longest = max(longest, int(time_ns[end - 1] - time_ns[begin]))
    least_ns: float = const.LONGEST_NS
    if is_v1:
        least_ns = max(const.V1_LONGEST_NS, V1_WAIT_RTTS * float(np.nanmedian(rtt_us)) * 1e3)
    return float(min(const.DECISIVE_WEIGHT * np.log(max(longest / least_ns, 1.0)), const.MAX_AGAINST))


def _neighbours(polls: Polls) -> Iterator[tuple[int, int]]:
    """Yield pairs of consecutive polls."""
    use = np.flatnonzero(polls.use)
    yield from zip(use[:-1][np.diff(use) == 1].tolist(), use[1:][np.diff(use) == 1].tolist(), strict=True)
