"""What no candidate would do, seen in the flights alone: to hold still for too long, to rise in straight lines.

A replay follows the record: the bandwidth of a BBR is what was delivered, whoever sent it, so a stranger is explained
well for as long as nothing happens. Two things a candidate that paces cannot do, whatever the path:

    still      the longest time for which what was in flight stayed the same: a BBR probes every eight round trips
               (v1; or after 48, where it takes losses for a policer's), or after 2 to 3 s or 63 round trips at the
               latest (v2, v3), and a probe shows in the flight; unless its window of two BDP holds v1 back
    straight   the share of flights between losses that rise in a straight line, as those of a window do that grows
               by so much a round trip: a BBR's stay where they are, or jump when it probes

(Cycles of a BBR with other gains: `identify_phases.Phases.other_cycle`.) What each adds to the log odds of a stranger
is set on simulated flows of the candidates and of the strangers that `benchmarks/strangers.py` calls known (seed 71);
how well it does on others: docs/identify.md.
"""

from collections import deque

import numpy as np

SAME = 0.025  # of the flight, that it may vary by on either side
SAME_SEGMENTS = 1.0
FIRST = 8  # share of the blocks that belong to the start
V1_WAIT_RTTS = 56.0  # usual ones: a cycle, or bbr_lt_bw_max_rtts of 48 at what it takes for a policer's rate
LEAST_FLIGHT = 24  # segments, twice the BDP where its window of two holds v1 back
WAIT_RTTS, WAIT_US = 72.0, 3_300_000.0  # minimum ones: BBRv2's and v3's bbr_is_time_to_probe
HELD, HELD_SEGMENTS = 0.07, 2.0  # below the window, by which it does not hold a flight
QUEUED = 1.3  # minimum RTTs: v1's window is two BDP
LONG = 3.0  # times the usual length of a block: the application sent nothing
STILL_WEIGHT, MOST_STILL = 12.0, 8.0  # log odds per unit of a logarithm, beyond the longest wait
FEW_BLOCKS, RISE, STRAIGHT = 6, 1.5, 0.08  # of an epoch; segments; deviation from the line, of its rise
STRAIGHT_SHARE, STRAIGHT_WEIGHT, FEW_EPOCHS = 0.4, 10.0, 3


def longest_still_us(blocks, window=None):
    """Return for how long at most what was in flight hardly changed, without the start, us.

    Parameters
    ----------
    blocks : identify_trajectory.Blocks
    window : ndarray, optional
        Of a candidate, in each block, segments: flights that it holds back do not count.
    """
    if not len(blocks):
        return 0.0
    first = len(blocks) // FIRST
    flight = blocks.each(blocks.flight)[first:]
    edges_us = blocks.time_us[blocks.edges][first:]
    lengths = np.diff(blocks.time_us[blocks.edges])
    counts = (blocks.busy & (lengths < LONG * np.median(lengths)))[first:]
    if window is not None:
        counts &= flight < (1 - HELD) * window[first:] - HELD_SEGMENTS
    longest, begin = 0.0, 0
    least, most = deque(), deque()  # numbers of blocks, whose flights rise and fall
    for k, value in enumerate(flight.tolist()):
        if not counts[k]:
            begin = k + 1
            least.clear()
            most.clear()
            continue
        while least and flight[least[-1]] >= value:
            least.pop()
        while most and flight[most[-1]] <= value:
            most.pop()
        least.append(k)
        most.append(k)
        while flight[most[0]] * (1 - 2 * SAME) - SAME_SEGMENTS > flight[least[0]]:
            begin += 1
            for numbers in (least, most):
                if numbers[0] < begin:
                    numbers.popleft()
        longest = max(longest, edges_us[k + 1] - edges_us[begin])
    return float(longest)


def straight_rises(blocks):
    """Return how many stretches between losses are long enough to tell, and which share of them rises straight.

    Parameters
    ----------
    blocks : identify_trajectory.Blocks
    """
    reduced = np.searchsorted(blocks.acks, blocks.reductions)
    whole, flight = blocks.each(blocks.open) == 1, blocks.each(blocks.flight)
    edges_s = blocks.time_us[blocks.edges] / 1e6
    middle = (edges_s[1:] + edges_s[:-1]) / 2
    epochs = seen = straight = 0
    for begin, end in zip(reduced, np.append(reduced, len(blocks.acks))[1:], strict=True):
        inside = np.flatnonzero((blocks.edges[:-1] >= begin) & (blocks.edges[1:] <= end) & whole)
        if len(inside) < FEW_BLOCKS:
            continue
        slope, start = np.polyfit(middle[inside], flight[inside], 1)
        rise = slope * (middle[inside[-1]] - middle[inside[0]])
        off = np.mean(np.abs(flight[inside] - start - slope * middle[inside]))
        epochs += 1
        seen += len(inside)
        straight += len(inside) * bool(rise > RISE and off < STRAIGHT * rise)
    return epochs, straight / max(seen, 1)


def paced_log_odds(blocks, still_us, min_rtt_us, usual_rtt_us, is_v1):
    """Return what speaks against a candidate that paces, log odds of 0 or more.

    Parameters
    ----------
    blocks : identify_trajectory.Blocks
    still_us : float
        See `longest_still_us`.
    min_rtt_us, usual_rtt_us : float
    is_v1 : bool
        Whether it probes every eight round trips.
    """
    wait_us = V1_WAIT_RTTS * usual_rtt_us if is_v1 else min(WAIT_RTTS * min_rtt_us, WAIT_US)
    shows = np.median(np.diff(blocks.time_us[blocks.edges])) < 2 * min_rtt_us  # else a probe is shorter than a block
    shows &= not is_v1 or np.median(blocks.flight) >= LEAST_FLIGHT  # else its probe is of a segment or two
    still = STILL_WEIGHT * np.log(max(still_us / max(wait_us, 1.0), 1.0)) if shows else 0.0
    epochs, share = straight_rises(blocks)
    straight = STRAIGHT_WEIGHT * max(share - STRAIGHT_SHARE, 0.0) * min(epochs / FEW_EPOCHS, 1.0)
    return float(min(still, MOST_STILL) + straight)
