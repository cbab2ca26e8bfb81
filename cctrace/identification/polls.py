"""Whose counters are these? What each candidate would have made of a connection, poll by poll.

    pacing rate    a sender that paces: one of its gains times the bandwidth (the counters' own if they tell it, else
                   the largest delivery rate of late); one that does not: `tcp_update_pacing_rate` of cwnd and RTT
    ssthresh       after a reduction, against what the candidate makes of the window at the poll before
    cwnd           between reductions, against the candidate's own growth, replayed over the coarse event stream
    PROBE_RTT      four segments (v1) or half a BDP (v2, v3) in flight for two tenths of a second

The name of the congestion control is not looked at, nor whether the counters tell BBR's fields at all.

Sources: [Linux618] net/ipv4/tcp_input.c tcp_update_pacing_rate; the constants of the controllers are `cctrace.cc`'s.
"""

from typing import NamedTuple

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.cc.base import checked_params
from cctrace.cc.linux import TCP_INFINITE_SSTHRESH
from cctrace.errors import StreamError
from cctrace.identification.polled_odds import foreign_log_odds
from cctrace.identification.polled_rates import other_gains, unchanged
from cctrace.identification.trajectory import likelihoods
from cctrace.io.tcpinfo import MISSING
from cctrace.replaying.follow import Follower
from cctrace.schema import LINUX_EVENTS

# {pacing gain: share of the time}, roughly: a few polls tell which gains there are, many how common each is.
_V1 = {1.0: 0.70, 1.25: 0.12, 0.75: 0.12, 2.887: 0.05, 0.3466: 0.01}
_V2 = {1.0: 0.82, 1.25: 0.07, 0.75: 0.05, 2.887: 0.05, 0.3466: 0.01}
_V2PLUS = {1.0: 0.64, 1.25: 0.05, 0.75: 0.05, 1.1: 0.10, 0.9: 0.10, 2.887: 0.05, 0.3466: 0.01}
_V3 = {1.0: 0.82, 1.25: 0.07, 0.906: 0.05, 2.773: 0.05, 0.3438: 0.01}
GAINS = {"bbr2016": _V1, "bbr2019": _V1, "bbr2022": _V1, "bbr2": _V2, "bbr2plus": _V2PLUS, "bbr3": _V3}
UNPACED_RATIOS = {1.2: 0.9, 2.0: 0.1}  # sysctl_tcp_pacing_ca_ratio and _ss_ratio
MARGIN = 0.99  # bbr_pacing_margin_percent, since Linux 4.20
HEADERS = 52  # bytes of a segment that the rates of 4.12 count beside the MSS
TOLD, GUESSED = 0.004, 0.08  # errors of the rate, as a share, if the counters tell the bandwidth, and if not
STRAY = 0.03  # of the polls fit no gain
ANY = 0.2  # density of what nothing predicts, per unit of a logarithm
FEW_POLLS = 10
TEMPER = 0.1  # polls that follow each other are not independent
BW_POLLS = 10  # among which the largest delivery rate stands for the bandwidth
FACTORS = {"cubic": 717 / 1024, "cubic6": 717 / 1024, "reno": 0.5}  # of a reduction
CUT, CUT_STRAY = 0.05, 0.1  # error of ssthresh, as a share: cwnd grows between the poll and the loss
OFTEN_NS = 200_000_000  # between polls; if more, windows may have been reduced more than twice meanwhile
DROP = 0.9  # share of the window before, below which it was reduced
FAR = 0.2  # a window so far from the replay's is set right
PROBE_SEGMENTS = 4  # bbr_cwnd_min_target
HALF = (0.35, 0.65)  # of a BDP: cwnd in the PROBE_RTT of v2 and v3
SEEN, UNSEEN = 0.5, 0.05  # likelihood of such a window where the candidate has it, where it has not
USUAL_TOLD, USUAL, USUAL_WINDOW = 0.0065, 0.1, 0.15
PER_CUT = 4.0  # by which times as much windows are usually off where every poll shows a reduction
BEFOREHAND, WEIGHT, TOLD_WEIGHT = 2.0, 2.0, 6.0  # log odds, and per unit of a logarithm of how far off
TOLD_BEFOREHAND = 1.2
FEW_CUTS, USUAL_CUT, CUT_WEIGHT, MOST_CUT = 3, 0.15, 20.0, 4.0


class Evidence(NamedTuple):
    """What counters say of a candidate.

    Attributes
    ----------
    sends : ndarray
        Log likelihood of each poll.
    scale : float
        How far its windows, or its rates, usually are off, as a share.
    cut : float
        The same of ssthresh after reductions; 0 where there are too few to tell, or the candidate paces.
    usual : float
        The `scale` that is not unusual for a sender that is a candidate.
    told : bool
        Whether the counters tell the bandwidth by which the candidate paces.
    foreign : float
        Log odds against the candidate: by its reductions and growth (`identify_polled_fit`), or, if it paces, by its
        rates (`identify_polled_rates`).
    paced : bool
        Whether the socket paces although the candidate does not: it has an SO_MAX_PACING_RATE.
    """

    sends: np.ndarray
    scale: float
    cut: float
    usual: float
    told: bool
    foreign: float = 0.0
    paced: bool = False


class _Polls:
    """The polls between which the connection goes on."""

    def __init__(self, flow):
        self.flow = flow
        self.time_ns = flow.polls["time_ns"]
        apart = np.diff(self.time_ns[self.time_ns != MISSING])
        apart_ns = np.median(apart) if len(apart) else 0
        self.often = min(OFTEN_NS / max(float(apart_ns), 1.0), 1.0)  # how much what happens between polls tells
        value = flow.values
        self.cwnd, self.ssthresh, self.rate = value("snd_cwnd"), value("snd_ssthresh"), value("pacing_rate_Bps")
        self.rtt_us, self.mss = flow.rtt_us(), value("snd_mss")
        delivered = value("delivered")
        if np.isnan(delivered).all():
            delivered = value("bytes_acked") / self.mss
        self.delivered = np.nan_to_num(delivered)
        moved = np.diff(delivered, prepend=np.nan) > 0
        self.use = (self.time_ns != MISSING) & (self.cwnd > 0) & (self.rtt_us > 0) & moved
        self.ssthresh = np.where(self.ssthresh > 0, self.ssthresh, TCP_INFINITE_SSTHRESH)
        self.open = np.nan_to_num(value("lost")) + np.nan_to_num(value("retrans")) == 0
        told = value("bbr_bw_Bps")
        self.told = bool((told > 0).any())
        self.bw = told if self.told else _largest_of_late(value("delivery_rate_Bps"))
        self.min_rtt_us = np.fmin(value("min_rtt"), self.rtt_us)
        self.paced = bool((value("max_pacing_rate") > 0).any())

    def __len__(self):
        return int(self.use.sum())


def _largest_of_late(rates):
    rates = np.nan_to_num(rates)
    late = [np.max(rates[max(k - BW_POLLS, 0) : k + 1]) for k in range(len(rates))]
    return np.where(np.array(late) > 0, late, np.nan)


def examine(flow, candidates):
    """Return {candidate: Evidence} of a connection's counters.

    Raises
    ------
    StreamError
        If they do not tell cwnd, RTT and progress of at least FEW_POLLS polls.
    """
    polls = _Polls(flow)
    if len(polls) < FEW_POLLS:
        raise StreamError(
            f"{flow.polls.source}: {len(polls)} polls tell cwnd, RTT and progress; identify needs {FEW_POLLS} or more"
        )
    return {name: _evidence(polls, name) for name in candidates}


def _evidence(polls, name):
    rate, ratio, off = _pacing(polls, name)
    if name in GAINS:
        use, is_v1 = polls.use, GAINS[name] is _V1
        each = (rate + _probe_rtt(polls, name) + np.log(ANY))[use]
        foreign = other_gains(rate[use], ratio[use], TOLD if polls.told else GUESSED)
        delivered = polls.delivered * polls.mss
        if not polls.paced:  # else the socket's limit is the rate
            foreign += polls.often * unchanged(polls.time_ns, polls.rate, delivered, polls.rtt_us, is_v1)
        return Evidence(each, off, 0.0, USUAL_TOLD if polls.told else USUAL, polls.told, foreign)
    window, scale, wrong, cuts = _windows(polls, name)
    usual = USUAL_WINDOW * (1 + PER_CUT * cuts / len(polls))
    foreign = foreign_log_odds(polls, name, FACTORS[name]) * polls.often
    return Evidence(
        (rate + window)[polls.use], scale, wrong * polls.often, usual / polls.often, False, foreign, polls.paced
    )


def _pacing(polls, name):
    """Return the log likelihood of each poll's pacing rate, the log of that rate over the bandwidth, and by which share
    rates usually miss the nearest gain.
    """
    if not (polls.rate > 0).any():
        return np.zeros(len(polls.rate)), np.full(len(polls.rate), np.nan), np.nan
    if name in GAINS:
        gains, error = GAINS[name], TOLD if polls.told else GUESSED
        unit = polls.bw * ((polls.mss + HEADERS) / polls.mss if name == "bbr2016" else MARGIN)
    else:
        gains, error = UNPACED_RATIOS, TOLD
        unit = polls.cwnd * polls.mss / polls.rtt_us * 1e6
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(polls.rate / unit)
    apart = np.abs(ratio[:, None] - np.log(list(gains)))
    density = (1 - STRAY) * np.sum(np.array(list(gains.values())) * np.exp(-apart / error) / (2 * error), axis=1)
    known = np.isfinite(ratio)
    least = np.min(apart, axis=1)[known & polls.use]
    off = float(np.median(least)) if len(least) else np.nan
    return np.where(known, np.log(np.where(known, density, 0) + STRAY * ANY), np.log(ANY)), ratio, max(off, TOLD)


def _probe_rtt(polls, name):
    """Return what windows as small as those of PROBE_RTT say."""
    bdp = polls.bw * polls.min_rtt_us / 1e6 / polls.mss
    v1 = GAINS[name] is _V1
    four = (polls.cwnd <= PROBE_SEGMENTS) & (bdp > 3 * PROBE_SEGMENTS)
    half = (polls.cwnd > HALF[0] * bdp) & (polls.cwnd < HALF[1] * bdp) & polls.open
    return np.where(four, np.log(SEEN if v1 else UNSEEN), 0) + np.where(half, np.log(UNSEEN if v1 else SEEN), 0)


def _windows(polls, name):
    """Return the log likelihood of each poll's windows, how far off they and reductions are, and the reductions."""
    cls, given = resolve(name)
    events = polls.flow.events
    follower = Follower(events, None, cls, checked_params(cls, given | ({"hz": 250} if "hz" in cls.params else {})))
    time_ns = events.rows["time_ns"]
    cuts = np.flatnonzero(events.rows["event"] == LINUX_EVENTS["ssthresh"])
    off, cut = np.full(len(polls.cwnd), np.nan), np.full(len(polls.cwnd), np.nan)
    last = None
    for k in np.flatnonzero(polls.use):
        stop = int(np.searchsorted(time_ns, polls.time_ns[k], side="right"))
        for row in cuts[(cuts >= follower.row) & (cuts < stop)]:
            follower.run(int(row))
            if last is not None:
                follower.set("snd_cwnd", int(polls.cwnd[last]))
        follower.run(stop)
        cwnd = follower.get("snd_cwnd")
        slow_start = polls.cwnd[k] < polls.ssthresh[k]
        reduced = last is not None and not slow_start and _reduced(polls, last, k)
        if reduced and polls.open[last] and polls.ssthresh[k] < polls.cwnd[last]:
            left = np.log(polls.ssthresh[k] / polls.cwnd[last])
            cut[k] = min(
                (left - times * np.log(FACTORS[name]) for times in (1, 2)), key=abs
            )  # perhaps twice since then
        elif polls.open[k] and not slow_start and not reduced and last is not None and polls.open[last]:
            off[k] = np.log(max(cwnd, 1) / polls.cwnd[k])
        if slow_start or reduced or not polls.open[k] or abs(np.log(max(cwnd, 1) / polls.cwnd[k])) > FAR:
            follower.set("snd_cwnd", int(polls.cwnd[k]))
            follower.set("snd_ssthresh", int(polls.ssthresh[k]))
        last = k
    return _score(off, cut)


def _reduced(polls, last, k):
    """Whether cwnd was reduced between two polls: another ssthresh, or the same one again."""
    return polls.ssthresh[k] != polls.ssthresh[last] or polls.cwnd[k] < DROP * polls.cwnd[last]


def _score(off, cut):
    """Return the log likelihoods of what windows and reductions are off, both scales, and how many reductions."""
    total = np.full(len(off), np.log(ANY))
    seen = np.isfinite(off)
    total[seen], scale = likelihoods(off[seen])
    cuts = np.isfinite(cut)
    off_by = np.abs(cut[cuts])
    total[cuts] = np.log((1 - CUT_STRAY) * np.exp(-off_by / CUT) / (2 * CUT) + CUT_STRAY * ANY)
    wrong = float(np.median(off_by)) if np.sum(cuts) >= FEW_CUTS else 0.0
    return total, scale, wrong, int(np.sum(cuts))


def evidence(found):
    """Return the log of what the counters say for each candidate: {candidate: Evidence} to {candidate: number}.

    Among those that do not pace, reductions and growth count, too.
    """
    least = min((one.foreign for name, one in found.items() if name not in GAINS), default=0.0)
    return {
        name: TEMPER * float(np.sum(one.sends)) - (0.0 if name in GAINS else one.foreign - least)
        for name, one in found.items()
    }


def known_log_odds(best):
    """Return the log odds that the best candidate made the counters, against that a stranger did."""
    if not np.isfinite(best.scale):
        return 0.0
    before, weight = (TOLD_BEFOREHAND, TOLD_WEIGHT) if best.told else (BEFOREHAND, WEIGHT)
    known = before + weight * float(np.log(best.usual / max(best.scale, TOLD)))
    return known - min(CUT_WEIGHT * max(best.cut - USUAL_CUT, 0.0), MOST_CUT) - best.foreign
