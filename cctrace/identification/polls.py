"""Identification from counters: the likelihood of each candidate's state changes, poll by poll.

    pacing rate    a sender that paces: one of its gains times the bandwidth (the counters' own or, without it, the
                   largest recent delivery rate); one that does not: `tcp_update_pacing_rate` of cwnd and RTT
    ssthresh       after a reduction, compared with the candidate's function of the window at the previous poll
    cwnd           between reductions, compared with the candidate's own growth, replayed over the coarse event stream
    PROBE_RTT      four segments (v1) or half a BDP (v2, v3) in flight for 200 ms

Neither the congestion control's name nor the presence of BBR's fields is used.

Sources: [Linux618] net/ipv4/tcp_input.c tcp_update_pacing_rate; the constants of the controllers are
`cctrace.cc`'s.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.cc.base import checked_params
from cctrace.cc.bbr2019 import PACING_MARGIN_PERCENT
from cctrace.cc.bbr2022 import BBR2022
from cctrace.cc.linux import MTU_HEADERS, PACING_CA_RATIO, PACING_SS_RATIO, TCP_INFINITE_SSTHRESH
from cctrace.columns import Floats
from cctrace.errors import StreamError
from cctrace.flows.counters import CounterFlow, latest
from cctrace.identification import constants as const
from cctrace.identification.flights import likelihoods
from cctrace.identification.odds import Judgement
from cctrace.identification.polled_odds import other_gains, unchanged, window_odds_against
from cctrace.io.counters.tcpinfo import MISSING
from cctrace.replaying.engine.follow import Follower
from cctrace.schema import LINUX_EVENTS

# {pacing gain: share of the time}, roughly: few polls reveal which gains occur, many how often.
_V1 = {1.0: 0.70, 1.25: 0.12, 0.75: 0.12, 2.887: 0.05, 0.3466: 0.01}
_V2 = {1.0: 0.82, 1.25: 0.07, 0.75: 0.05, 2.887: 0.05, 0.3466: 0.01}
_V2PLUS = {1.0: 0.64, 1.25: 0.05, 0.75: 0.05, 1.1: 0.10, 0.9: 0.10, 2.887: 0.05, 0.3466: 0.01}
_V3 = {1.0: 0.82, 1.25: 0.07, 0.906: 0.05, 2.773: 0.05, 0.3438: 0.01}
GAINS = {"bbr2016": _V1, "bbr2019": _V1, "bbr2022": _V1, "bbr2": _V2, "bbr2plus": _V2PLUS, "bbr3": _V3}
UNPACED_RATIOS = {PACING_CA_RATIO / 100: 0.9, PACING_SS_RATIO / 100: 0.1}
PROBE_SEGMENTS = int(BBR2022.params["cwnd_min_target"].default)
FACTORS = {"cubic": 717 / 1024, "cubic6": 717 / 1024, "reno": 0.5}  # of a reduction


class PolledFit(NamedTuple):
    """How well a candidate explains counters."""

    log_likelihoods: Floats  # of each poll
    scale: float  # typical relative error of its windows or rates; NaN if no poll is informative
    reduction_error: float  # the same of ssthresh after reductions; 0 if there are too few, or if the candidate paces
    usual_scale: float  # expected if the sender is a candidate
    bandwidth_known: bool  # whether the counters give the bandwidth by which the candidate paces
    # log odds against the candidate (`polled_odds`), from its reductions and growth or, if it paces, its rates
    log_odds_against: float = 0.0
    paced: bool = False  # whether the socket paces although the candidate does not: it has an SO_MAX_PACING_RATE


class Polls:
    """The polls between which the connection makes progress."""

    def __init__(self, flow: CounterFlow) -> None:
        self.flow = flow
        self.time_ns = flow.polls["time_ns"]
        intervals = np.diff(self.time_ns[self.time_ns != MISSING])
        interval_ns = float(np.median(intervals)) if len(intervals) else 0.0
        self.often = min(const.MAX_POLL_GAP_NS / max(interval_ns, 1.0), 1.0)  # weight of what happens between polls
        value = flow.values
        self.cwnd, self.ssthresh, self.rate = (
            latest(value(name)) for name in ("snd_cwnd", "snd_ssthresh", "pacing_rate_Bps")
        )
        mss = value("snd_mss")
        self.rtt_us, self.mss = flow.rtt_us(), np.where(mss > 0, mss, np.nan)
        delivered = value("delivered")
        if np.isnan(delivered).all():
            delivered = value("bytes_acked") / self.mss
        self.delivered = np.nan_to_num(delivered)
        moved = np.diff(delivered, prepend=np.nan) > 0
        self.use = (self.time_ns != MISSING) & (self.cwnd > 0) & (self.rtt_us > 0) & moved
        self.ssthresh = np.where(self.ssthresh > 0, self.ssthresh, TCP_INFINITE_SSTHRESH)
        self.is_open = np.nan_to_num(value("lost")) + np.nan_to_num(value("retrans")) == 0
        self.full = ~(flow.outstanding() < const.PREDOMINANT_SHARE * self.cwnd)  # possibly cwnd-limited
        reported = value("bbr_bw_Bps")
        self.bandwidth_known = bool((reported > 0).any())
        self.bw = reported if self.bandwidth_known else _largest_of_late(value("delivery_rate_Bps"))
        self.min_rtt_us = np.fmin(value("min_rtt"), self.rtt_us)
        self.paced = bool((value("max_pacing_rate") > 0).any())

    def __len__(self) -> int:
        return int(self.use.sum())


def _largest_of_late(rates: Floats) -> Floats:
    rates = np.nan_to_num(rates)
    late = np.array([np.max(rates[max(k - const.MIN_FOR_CYCLE, 0) : k + 1]) for k in range(len(rates))])
    return np.where(late > 0, late, np.nan)


def judge_polls(flow: CounterFlow, candidates: Iterable[str]) -> Judgement:
    """Score the candidates by a connection's counters; among unpaced ones, by reductions and growth.

    Raises `StreamError` if they lack cwnd, RTT and progress at `constants.MIN_FOR_CYCLE` polls or more.
    """
    polls = Polls(flow)
    if len(polls) < const.MIN_FOR_CYCLE:
        raise StreamError(
            f"{flow.polls.source}: {len(polls)} polls have cwnd, RTT and progress; "
            f"identify needs {const.MIN_FOR_CYCLE} or more"
        )
    fits = {name: _of_paced(polls, name) if name in GAINS else _of_unpaced(polls, name) for name in candidates}
    least = min((fit.log_odds_against for name, fit in fits.items() if name not in GAINS), default=0.0)
    evidence = {
        name: const.POLLS_TEMPER * float(np.sum(fit.log_likelihoods))
        - (0.0 if name in GAINS else fit.log_odds_against - least)
        for name, fit in fits.items()
    }
    best = max(evidence, key=evidence.__getitem__)
    contributions = {name: fit.log_likelihoods for name, fit in fits.items()}
    paced = {name: fit.paced for name, fit in fits.items()}
    return Judgement("counters", evidence, _known(best, fits[best]), contributions, paced, "nearer than the others")


def _of_paced(polls: Polls, name: str) -> PolledFit:
    rate, ratio, off = _pacing(polls, name)
    log_likelihoods = (rate + _probe_rtt(polls, name) + np.log(const.BACKGROUND_DENSITY))[polls.use]
    error, usual = (
        (const.GAIN_ERROR, const.USUAL_GAIN_ERROR)
        if polls.bandwidth_known
        else (const.GUESSED_GAIN, const.GUESSED_GAIN)
    )
    log_odds_against = other_gains(rate[polls.use], ratio[polls.use], error)
    if not polls.paced:  # otherwise the socket's limit is the rate
        delivered = polls.delivered * polls.mss
        still = unchanged(polls.time_ns, polls.rate, delivered, polls.rtt_us, GAINS[name] is _V1)
        log_odds_against += polls.often * still
    return PolledFit(log_likelihoods, off, 0.0, usual, polls.bandwidth_known, log_odds_against)


def _of_unpaced(polls: Polls, name: str) -> PolledFit:
    rate, _, _ = _pacing(polls, name)
    off, cut = _windows(polls, name)
    window = np.full(len(off), np.log(const.BACKGROUND_DENSITY))
    judged, cuts = np.isfinite(off), np.isfinite(cut)
    window[judged], scale = likelihoods(off[judged])
    wrong = np.abs(cut[cuts])
    stray, error = const.STRAY_SHARE, const.OTHER_FACTOR
    window[cuts] = np.log((1 - stray) * np.exp(-wrong / error) / (2 * error) + stray * const.BACKGROUND_DENSITY)
    usual_wrong = float(np.median(wrong)) if len(wrong) >= const.MIN_OBSERVATIONS else 0.0
    usual = const.WRONG_WINDOW * (1 + const.CUTS_BLUR * len(wrong) / len(polls)) / polls.often
    log_odds_against = window_odds_against(polls, name, FACTORS[name]) * polls.often
    log_likelihoods = (rate + window)[polls.use]
    scale = scale if judged.any() else np.nan
    return PolledFit(log_likelihoods, scale, usual_wrong * polls.often, usual, False, log_odds_against, polls.paced)


def _pacing(polls: Polls, name: str) -> tuple[Floats, Floats, float]:
    """Return the log likelihood of each poll's pacing rate, the log of that rate over the bandwidth, and the typical
    relative distance of rates from the nearest gain.
    """
    if not (polls.rate > 0).any():
        return np.zeros(len(polls.rate)), np.full(len(polls.rate), np.nan), np.nan
    if name in GAINS:
        gains, error = GAINS[name], const.GAIN_ERROR if polls.bandwidth_known else const.GUESSED_GAIN
        unit = polls.bw * (
            (polls.mss + MTU_HEADERS) / polls.mss if name == "bbr2016" else (1 - PACING_MARGIN_PERCENT / 100)
        )
    else:
        gains, error = UNPACED_RATIOS, const.GAIN_ERROR
        unit = polls.cwnd * polls.mss / polls.rtt_us * 1e6
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(polls.rate / unit)
    apart = np.abs(ratio[:, None] - np.log(list(gains)))
    shares = (1 - const.STRAY_SHARE) * np.array(list(gains.values()))
    density = np.sum(shares * np.exp(-apart / error) / (2 * error), axis=1)
    known, stray = np.isfinite(ratio), const.STRAY_SHARE * const.BACKGROUND_DENSITY
    least = np.min(apart, axis=1)[known & polls.use]
    off = float(np.median(least)) if len(least) else np.nan
    log_likelihoods = np.where(known, np.log(np.where(known, density, 0) + stray), np.log(const.BACKGROUND_DENSITY))
    return log_likelihoods, ratio, max(off, const.GAIN_ERROR)


def _probe_rtt(polls: Polls, name: str) -> Floats:
    """Return the log likelihood of windows as small as those of PROBE_RTT."""
    bdp = polls.bw * polls.min_rtt_us / 1e6 / polls.mss
    mine, others = np.log(const.PROBE_RTT_OWN), np.log(const.STRAY_SHARE)
    four_segments, half_a_bdp = (mine, others) if GAINS[name] is _V1 else (others, mine)
    four = (polls.cwnd <= PROBE_SEGMENTS) & (bdp > 3 * PROBE_SEGMENTS)
    half = (np.abs(polls.cwnd - bdp / 2) < const.WRONG_WINDOW * bdp) & polls.is_open
    return np.where(four, four_segments, 0) + np.where(half, half_a_bdp, 0)


def _windows(polls: Polls, name: str) -> tuple[Floats, Floats]:
    """Return the errors of a replay's windows and reductions at each poll, logarithms; NaN unknown.

    A window is judged where the sender may be cwnd-limited, outside slow start and recovery.
    """
    cls, given = resolve(name)
    events = polls.flow.events
    follower = Follower(events, None, cls, checked_params(cls, given | ({"hz": 250} if "hz" in cls.params else {})))
    time_ns = events["time_ns"]
    cuts = np.flatnonzero(events["event"] == LINUX_EVENTS["ssthresh"])
    off, cut = np.full(len(polls.cwnd), np.nan), np.full(len(polls.cwnd), np.nan)
    last: int | None = None
    for k in np.flatnonzero(polls.use).tolist():
        stop = int(np.searchsorted(time_ns, polls.time_ns[k], side="right"))
        for row in cuts[(cuts >= follower.row) & (cuts < stop)]:
            follower.run(int(row))
            if last is not None:
                follower.set("snd_cwnd", int(polls.cwnd[last]))
        follower.run(stop)
        apart = np.log(max(follower.get("snd_cwnd"), 1) / polls.cwnd[k])
        slow_start = polls.cwnd[k] < polls.ssthresh[k]
        reduced = last is not None and not slow_start and _reduced(polls, last, k)
        steady = last is not None and polls.is_open[last]
        if reduced and steady and polls.ssthresh[k] < polls.cwnd[last]:
            log_share, factor = np.log(polls.ssthresh[k] / polls.cwnd[last]), np.log(FACTORS[name])
            cut[k] = min((log_share - times * factor for times in (1, 2)), key=abs)  # possibly twice since then
        elif steady and polls.is_open[k] and not slow_start and not reduced and (polls.full[k] or polls.full[last]):
            off[k] = apart
        if slow_start or reduced or not polls.is_open[k] or abs(apart) > const.WRONG_WINDOW:
            follower.set("snd_cwnd", int(polls.cwnd[k]))
            follower.set("snd_ssthresh", int(polls.ssthresh[k]))
        last = k
    return off, cut


def _reduced(polls: Polls, last: int, k: int) -> bool:
    """Whether cwnd was reduced between two polls: to a new ssthresh, or to the same one again."""
    return bool(polls.ssthresh[k] != polls.ssthresh[last] or polls.cwnd[k] < const.REDUCED_CWND * polls.cwnd[last])


def _known(name: str, best: PolledFit) -> float:
    """Return the log odds that the best candidate, not an unknown sender, produced the counters."""
    if not np.isfinite(best.scale):  # no rates to judge, or no cwnd-limited window
        return 0.0 if name in GAINS else const.PRIOR_LOG_ODDS - best.log_odds_against
    before, weight = (
        (const.PRIOR_LOG_ODDS, const.STRONG_WEIGHT)
        if best.bandwidth_known
        else (const.POLLS_PRIOR_LOG_ODDS, const.WEIGHT)
    )
    log_odds = before + weight * float(np.log(best.usual_scale / max(best.scale, const.GAIN_ERROR)))
    wrong_cut = min(const.DECISIVE_WEIGHT * max(best.reduction_error - const.WRONG_WINDOW, 0.0), const.MAX_AGAINST)
    return log_odds - wrong_cut - best.log_odds_against
