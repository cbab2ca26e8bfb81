r"""Second stage: do a replayed candidate's window and pacing rate allow the recorded flights?

For each half round trip,

    over(block) = max( sent / (pacing x time) - 1,  in flight / cwnd - 1 )      0 for the sender's own controller

and only the second term without pacing (not below 0 where something else left the window unfilled: a pause, until as
much was written again, or a receive window). Both are relative to the larger operand, so that they lie in [-1, 1].
Blocks are Laplace-distributed around 0, with the candidate's maximum-likelihood scale, plus a few outliers.

Five more measures detect what no candidate would do:

    wrong_windows  share of ACKs at which an unpaced candidate's window differs from the flow's, where times are exact.
                   A cwnd-limited sender fills its window, and everything that determines the window of Reno or CUBIC
                   is in the record, so its own replay has that window to the segment. Where the socket or the
                   controller (Prague) paces, a timer may keep cwnd from being filled, but not for an entire round trip
    growth         growth of flights between losses that is not that of an unpaced candidate's window, elsewhere
    still          the longest time with constant data in flight: a BBR probes every eight round trips (v1; or after 48,
                   once it takes losses for a policer's), or after 2 to 3 s or 63 round trips at the latest (v2, v3),
                   and a probe changes the flight, unless its window fills, or a pacing limit (`HalfRounds.steady`)
                   holds it
    overdue        a queue that stays for longer than a minimum RTT is valid, without PROBE_RTT (`dips`)
    rises          share of periods between reductions, by losses or not, in which flights rise all the time, as a
                   window does: a BBR's stay constant, and rise or jump when it probes

Sources: [Linux618] net/ipv4/tcp_output.c tcp_write_xmit, tcp_tso_should_defer; tcp_input.c tcp_cwnd_reduction.
"""

import math
from typing import NamedTuple

import numpy as np

from cctrace.cc.bbr1_model import CYCLE_LEN, LT_USE_ROUNDS
from cctrace.cc.bbr2 import BBR2
from cctrace.cc.linux import MIN_TSO_SEGS, PACING_CA_RATIO, PACING_SHIFT
from cctrace.columns import Floats, Ints
from cctrace.flows.events import Events
from cctrace.identification import constants as const
from cctrace.identification import dips
from cctrace.identification.halves import HalfRounds
from cctrace.identification.sends import Replay, SenderRecord
from cctrace.tcp.pacing import SK_GSO_MAX_SIZE, TSO_RTT_LOG, TSO_WIN_DIVISOR

V2 = BBR2.params
NEUTRAL = math.log(
    (1 - const.STRAY_SHARE) * math.exp(-1) / 0.2 + const.STRAY_SHARE / 2
)  # of a flight that is off by a tenth
V1_WAIT_RTTS = float(LT_USE_ROUNDS + CYCLE_LEN)  # a policer's rate, and a cycle


class WrongWindows(NamedTuple):
    """Number of informative ACKs, and the share at which the window is wrong (0 without any)."""

    acks: int
    share: float


class Flights(NamedTuple):
    """Agreement of a replay's windows and rates with a flow."""

    log_likelihoods: Floats  # of each half round trip in which the application had more to send
    scale: float  # typical relative error of flights and rates
    # the median error of windows after reductions; NaN if there is none, or if the candidate paces
    error_after_reductions: float = np.nan
    reductions: int = 0  # number of reductions in that median
    wrong_windows: WrongWindows | None = None  # None if the candidate paces, or the flights are estimates
    # log odds against a candidate, from behaviour that it cannot show, or for it, from what no other one does; 0 where
    # times are exact
    log_odds_against: float = 0.0
    other_reductions: int = 0  # reductions that differ by more than jitter does; 0 where times are exact


def flights_of(record: SenderRecord, replay: Replay) -> Flights:
    """Compare a replay with the flights of its record."""
    halves = record.halves
    over = halves.excess(replay.cwnd, replay.pacing_Bps, replay.cls.pacing_overhead_bytes)
    log_likelihoods, scale = likelihoods(over[halves.busy & (halves.acks[halves.edges[:-1]] >= record.since)])
    limited = record.record_with_dips
    without_dips = dips.against(limited.events, limited.halves, replay.cls) if limited else 0.0
    if replay.paces:
        against = 0.0 if record.exact else without_dips + _paced_log_odds_against(record, replay)
        return Flights(log_likelihoods, scale, log_odds_against=against)
    window = replay.cwnd[np.maximum(halves.acks - 1, 0)]
    apart = halves.flights - halves.block_means(window)
    apart = np.where(over < 0, apart, np.maximum(apart, 0))  # what need not fill a window may be below it
    after, reductions, wrong = after_reductions(halves, over, apart)
    if record.exact:
        return Flights(log_likelihoods, scale, after, reductions, wrong_windows(record, replay))
    # In recovery the replay follows the flight; and a window that need not be filled, as too little was written since a
    # pause, explains anything below it. How far off the candidate is shows elsewhere.
    silent = (halves.open_share <= 0.5) | ((over <= 0) & (halves.block_means(halves.unfilled(window)) > 0.5))
    if np.count_nonzero(halves.busy & ~silent) >= const.FULL_WEIGHT:
        scale = likelihoods(over[halves.busy & ~silent])[1]
    log_likelihoods = np.where(silent[halves.busy], np.minimum(log_likelihoods, NEUTRAL), log_likelihoods)
    log_odds_against = without_dips + growth_log_odds_against(halves, over, apart)
    if halves.grows_at_start and "hystart" not in replay.cls.params and record.events.meta["complete"]:
        log_odds_against += const.MAX_AGAINST  # without HyStart, only a reduction ends slow start
    return Flights(log_likelihoods, scale, after, reductions, None, log_odds_against, wrong)


def likelihoods(over: Floats) -> tuple[Floats, float]:
    """Return each block's log likelihood at the likeliest scale, and that scale (the coarsest without blocks)."""
    if not len(over):
        return np.zeros(0), const.COARSEST_SCALE
    scales = np.geomspace(const.FINEST_SCALE, const.COARSEST_SCALE, 40)
    log_likelihoods = np.log(
        (1 - const.STRAY_SHARE) * np.exp(-np.abs(over)[:, None] / scales) / (2 * scales) + const.STRAY_SHARE / 2
    )
    best = int(np.argmax(log_likelihoods.sum(axis=0)))
    return log_likelihoods[:, best], float(scales[best])


def after_reductions(halves: HalfRounds, over: Floats, apart: Floats) -> tuple[float, int, int]:
    """Return the error of windows after reductions, their number, and how many of them are wrong.

    `apart`: what was in flight beyond the window in each block, segments. The error is the median over the reductions
    whose window before is known, of the mean of the first open blocks, beyond a segment and twice its standard error:
    jitter averages out, a wrong factor does not. Of a single reduction the better block of a round trip counts: a full
    send buffer takes that long to refill after a recovery. It may be off by JITTER_MAX times what jitter typically
    makes of a flight, and by the segment that an estimated departure moves to the other side of an ACK.
    """
    periods = halves.epochs
    known = np.array([False, *(len(inside) >= const.MIN_FOR_PATTERN for inside in periods[:-1])])
    filled = [_filled(inside, over, halves.jitter)[: 2 * const.MIN_AFTER] for inside in periods]
    counts = np.array([k for k, inside in enumerate(filled) if len(inside) >= const.MIN_AFTER], int)
    if not len(counts):
        return np.nan, 0, 0
    first = [filled[k][: const.MIN_AFTER] for k in counts]
    best = np.array([judged[np.argmin(np.abs(over[judged]))] for judged in first])
    segment = const.ONE_SEGMENT / np.maximum(halves.flights[best], 1)
    most = const.JITTER_MAX * halves.jitter + const.AFTER_USUAL + segment
    wrong, typical = int(np.sum(np.abs(over[best]) > most)), 0.0
    if len(judged := counts[known[counts]]):
        errors = np.array([np.mean(apart[filled[k]]) for k in judged])
        sure = abs(float(np.median(errors))) - const.ONE_SEGMENT - 2 * float(np.std(errors)) / math.sqrt(len(errors))
        typical = max(sure, 0.0) / float(np.median([np.mean((halves.flights - apart)[filled[k]]) for k in judged]))
    return typical, len(best), wrong


def _filled(inside: Ints, over: Floats, jitter: float) -> Ints:
    """Return the blocks of a period from where its window is filled, and stays so.

    Paced sends take two round trips to fill it. What goes on to rise is another's window.
    """
    begin = int(np.argmax(over[inside[: 2 * const.MIN_AFTER]])) if len(inside) else 0
    later = np.abs(over[inside[begin : begin + const.MIN_FOR_PATTERN]])
    return inside[begin:] if np.all(later <= const.AFTER_USUAL + jitter) else inside


def growth_log_odds_against(halves: HalfRounds, over: Floats, apart: Floats) -> float:
    """Return the log odds, 0 or more, against an unpaced candidate whose window does not grow as the flights do.

    `over`, `apart`: of each block, from a replay with the right window before each reduction: what is beyond at the end
    of the period after it and was not at its start is growth. Flights may stay below a window for many reasons, but
    exceed it for none. They may grow more slowly only if something else holds them, and then they stop to grow.

    The mean of many periods is sure beyond twice its error (what scatters, or jitter leaves of a straight line's rise),
    a segment, and what half a tick of a time stamp moves; and if it is slower beyond jitter, too, as a delayed flight
    lags behind its window. One period is sure if it differs by more than jitter does: others grow as a candidate for a
    part of a flow (H-TCP's first second after a loss; Westwood but after slow start).
    """
    flight, part = halves.flights, const.MIN_FOR_PATTERN // 2
    growth, surely, most, blocks = [], [0.0], [], 0
    for inside in (_filled(inside, over, halves.jitter) for inside in halves.epochs):
        if len(inside) < const.MIN_FOR_PATTERN:
            continue
        early, middle, late = (float(np.median(flight[third])) for third in np.array_split(inside, 3))
        counts = late - middle > const.GROWING_SHARE * (middle - early)
        segments = float(np.median(apart[inside[-part:]]) - np.median(apart[inside[:part]]))
        if counts or segments > 0:
            surely.append((abs(segments) - const.ONE_SEGMENT) / max(early, late) - const.JITTER_MAX * halves.jitter)
            growth.append(float(np.polyfit(np.linspace(0, 1, len(inside)), apart[inside], 1)[0]))
            most.append(max(early, late))
            blocks += len(inside)
    if not growth:
        return 0.0
    grown, usual = float(np.mean(growth)), float(np.median(most))
    error = max(float(np.std(growth)) / math.sqrt(len(growth)) / usual, halves.jitter * math.sqrt(12 / blocks))
    moved = const.ONE_SEGMENT + const.STAMP_ERROR_US * float(np.median(halves.rates(halves.sent_so_far)))
    off = (abs(grown) - moved) / usual - 2 * error - (halves.jitter if grown < 0 else 0.0)
    errors = (off, max(surely) - const.AFTER_USUAL)
    of_mean, of_one = (min(const.AFTER_WEIGHT * max(error, 0.0), const.MAX_AGAINST) for error in errors)
    return float(max(of_mean * min(len(growth) / const.MIN_OBSERVATIONS, 1.0), of_one))


def awaited(events: Events, rows: Ints, cwnd: Floats, mss: int) -> Floats:
    """Return how many segments an unpaced sender waits for to send a full super-packet.

    `rows`: numbers of rows of `events`. `cwnd`: segments, at each of these rows. `mss`: bytes.
    """
    srtt_us = np.maximum(events.at("srtt_us8", rows) / 8, 1)
    rate = PACING_CA_RATIO / 100 * cwnd * mss / srtt_us * 1e6
    near_peer = SK_GSO_MAX_SIZE >> np.minimum(events.at("tcp_min_rtt_us", rows).astype(np.int64) >> TSO_RTT_LOG, 31)
    made = np.minimum(rate / 2**PACING_SHIFT + near_peer, SK_GSO_MAX_SIZE) // mss
    return np.minimum(np.maximum(made, MIN_TSO_SEGS), np.maximum(cwnd / TSO_WIN_DIVISOR, 1))


def wrong_windows(record: SenderRecord, replay: Replay) -> WrongWindows:
    """Return how often the flights differ from those of a replayed controller without pacing.

    Outside recovery and slow start (in which a window grows faster than it is filled), and where no SO_MAX_PACING_RATE
    leaves it unfilled, a flight must equal cwnd after the previous ACK to within a segment and 2 %, or what senders
    wait for to fill a super-packet. A paced socket's timer leaves it unfilled where it explains the sends. In recovery,
    when proportional rate reduction lowers it, it must not exceed cwnd. Of ACKs within a microsecond, only the first
    counts: a sender may answer all of them after the last.
    """
    halves = record.halves
    if len(halves.acks) < 2:
        return WrongWindows(0, 0.0)
    before = halves.acks[1:] - 1
    window = replay.cwnd[before]
    apart = halves.flight[1:] - window
    by_timer = replay.paced or replay.cls.sets_pacing_rate
    nearest = halves.block_maxima(np.append(-np.inf, apart), blocks=2)[1:] if by_timer else apart
    still_open = halves.limited[1:] & (window >= replay.ssthresh[before])
    if record.limit_Bps:
        still_open &= replay.pacing_Bps[before] < record.limit_Bps
    segment, share = const.ONE_SEGMENT, const.FINEST_SCALE * window
    below = np.maximum(awaited(record.events, before, window, halves.mss) - 1, segment) + share
    below_it = nearest < -below
    if by_timer:
        below_it &= ~halves.unfilled(np.append(0.0, window))[1:]
    if replay.paced and len(replay.sends):
        below_it &= float(np.quantile(replay.sends, const.WORSE_QUANTILE)) - uninformative(halves) <= const.WORSE_FITS
    wrong = still_open & ((apart > segment + share) | below_it)
    repairs = ~halves.outside_recovery[1:]
    wrong |= repairs & (apart > 2 * segment + share)
    judged = (still_open | repairs) & (before >= record.since) & (np.diff(halves.time_us) >= 1.0)
    return WrongWindows(int(judged.sum()), float(np.sum(wrong & judged)) / max(int(judged.sum()), 1))


def uninformative(halves: HalfRounds) -> float:
    """Return the log likelihood of a send that says nothing; of a long super-packet, also its length is unlikely."""
    return const.MEDIAN_LOG_LIKELIHOOD - const.PER_LENGTH * math.log(halves.burst)


def _paced_log_odds_against(record: SenderRecord, replay: Replay) -> float:
    """Return the log odds against a candidate that paces, from flights that it would not produce."""
    halves, is_v1 = record.halves, bool(replay.cls.phase_choices)
    events = record.events
    overdue = dips.overdue(halves, events.at("rs_rtt_us", halves.acks), replay.cls)
    if not len(halves) or halves.steady:
        return overdue
    min_rtt_us = float(np.min(events.at("tcp_min_rtt_us", halves.acks)))
    srtt_us = events.at("srtt_us8", halves.acks) / 8
    # With a queue, v1's window may hold a flight; that of v2 and v3 may without one, at inflight_hi. What ran out of
    # data shows no probe either.
    may_hold = (srtt_us > const.QUEUED_RTTS * min_rtt_us) | (not is_v1)
    window = np.where(halves.ran_out, 0, halves.block_means(np.where(may_hold, replay.cwnd[halves.acks], np.inf)))
    least = const.V1_MIN_FLIGHT if is_v1 else const.MIN_SENT  # a block of shorter ones outlasts a probe
    jitter = 0.0 if is_v1 else halves.jitter  # a probe of v1 lasts a round trip, and may be no larger than jitter
    still = longest_still(halves, waits_us(halves.block_means(srtt_us), is_v1), window, least, jitter)
    return overdue + paced_log_odds(halves, still, min_rtt_us, is_v1)


def waits_us(rtt_us: Floats, is_v1: bool) -> Floats:
    """Return the longest wait of a BBR before it probes, us, given the RTT of each block: it counts round trips."""
    if is_v1:
        return V1_WAIT_RTTS * rtt_us
    longest_us = V2["bw_probe_base_us"].default + V2["bw_probe_rand_us"].default
    return const.WAITS_LATE_TIMES * np.minimum(V2["bw_probe_max_rounds"].default * rtt_us, longest_us)


def longest_still(halves: HalfRounds, wait_us: Floats, window: Floats, least: float = 0, jitter: float = 0) -> float:
    """Return the longest time with nearly constant data in flight, after the start, in multiples of a probe's wait.

    `wait_us`: that wait in each block. `window`: of the candidate, in each block, segments: flights that fill it do
    not count (a queue that a fall of the rate left), nor those of fewer than `least` segments, which show no probe.
    `jitter`: relative, by which it may vary them, too.
    """
    if not len(halves):
        return 0.0
    first = len(halves) // const.START_SHARE
    flight = halves.flights[first:]
    lengths = np.diff(halves.time_us[halves.edges])
    waits = np.append(0.0, np.cumsum((lengths / np.maximum(wait_us, 1.0))[first:]))
    counts = (halves.busy & (lengths < const.PAUSE_BLOCKS * np.median(lengths)))[first:]
    counts &= flight < (1 - const.WINDOW_HOLDS) * window[first:] - 2 * const.ONE_SEGMENT
    counts &= flight >= least  # after a rate step, flights may be shorter than at other times
    longest, begin, same = 0.0, 0, 1 - 2 * const.STILL_SHARE - jitter
    for k in range(len(flight)):
        if not counts[k]:
            begin = k + 1
            continue
        while flight[begin : k + 1].max() * same - const.ONE_SEGMENT > flight[begin : k + 1].min():
            begin += 1
        longest = max(longest, waits[k + 1] - waits[begin])
    return float(longest)


def paced_log_odds(halves: HalfRounds, still: float, min_rtt_us: float, is_v1: bool) -> float:
    """Return the evidence of `longest_still` and rising flights against a candidate that paces, log odds of 0 or more.

    `is_v1`: whether it probes every eight round trips.
    """
    # Otherwise a probe is shorter than a block.
    shows = np.median(np.diff(halves.time_us[halves.edges])) < 2 * min_rtt_us
    shows &= not is_v1 or np.median(halves.flight) >= const.V1_MIN_FLIGHT  # otherwise it probes by a segment or two
    odds = const.DECISIVE_WEIGHT * np.log(max(still, 1.0)) if shows else 0.0
    epochs, share = halves.growing_periods
    grows = const.DECISIVE_WEIGHT * max(share - const.MAX_WRONG_SHARE, 0.0) * min(epochs / const.MIN_OBSERVATIONS, 1.0)
    return float(min(odds, const.MAX_AGAINST) + grows)
