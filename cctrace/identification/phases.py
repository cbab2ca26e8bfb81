"""Third stage: the phases in which a BBR probed, by a hidden Markov model of each generation's gain cycle.

A replay whose gain cycle is out of step explains less than that of another controller that hardly probes. The
phases are therefore summed over: each candidate's cycle is a Markov chain over stages of its phases, whose mean
durations come from its code, in minimum RTTs,

    v1      UP 1.25 -> DOWN 0.75 -> six of 1.0                                         8 RTTs
    v2, v3  UP 1.25 -> DOWN (0.75; 0.91) -> CRUISE -> REFILL                           2.5 s, or rounds as segments
    v2+     CRUISE -> REFILL -> PRE_UP 1.1 -> GUARD -> UP 1.25 or DOWN_SLIGHTLY 0.9    9.5 rounds and the tries

The rate of each half round trip is compared with the replay's bandwidth estimate (`by_bandwidth`), and with the
typical rate around that time (`by_level`), which does not depend on the replay. Errors are Laplace, from the
resolution of time stamps (1 ms) and super-packets, scaled by the likeliest of a few factors, because jitter
increases them. Where cwnd limits the sender, mostly in blocks whose flight equals the candidate's window, sends are
ACK-clocked in any phase.

Sources: [Linux618] net/ipv4/tcp_bbr.c; `cctrace.cc`'s bbr2, bbr2plus, bbr3.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cctrace.cc import controller as resolve
from cctrace.cc.bbr1_model import CYCLE_LEN
from cctrace.columns import Bools, Floats, Ints
from cctrace.identification import constants as const
from cctrace.identification.halves import HalfRounds
from cctrace.identification.sends import Replay, SenderRecord

FACTORS = np.array([0.7, 1.0, 1.5, 2.2, 3.5, 5.5])  # of the errors; the likeliest one is used
OTHERS = ((2, 1), (1, 2), (2, 2))  # unknown senders' cycles: gains further from 1, phases shorter, by these factors


class Phase(NamedTuple):
    """One phase of a gain cycle: mean duration in minimum RTTs, stages, probabilities of the next phases."""

    gain: float
    rtts: float
    stages: int
    following: dict[int, float]


class Chain:
    """Phases of a gain cycle as a Markov chain: the gain of each stage, shape (n,), and `step`, the probabilities of
    the stages a quarter of a minimum RTT later, shape (n, n).
    """

    def __init__(self, phases: list[Phase]) -> None:
        stages = [phase.stages for phase in phases]
        first = np.cumsum([0, *stages])
        self.gains = np.repeat([phase.gain for phase in phases], stages)
        rates = np.zeros((first[-1], first[-1]))
        for k, phase in enumerate(phases):
            rate = phase.stages / phase.rtts
            for stage in range(first[k], first[k + 1]):
                rates[stage, stage] -= rate
                if stage + 1 < first[k + 1]:
                    rates[stage, stage + 1] += rate
                else:
                    for other, probability in phase.following.items():
                        rates[stage, first[other]] += rate * probability
        from scipy.linalg import expm  # imported late: it takes a thirtieth of a second

        self.step: Floats = expm(rates / const.STEPS_PER_RTT)


def chain(name: str, min_rtt_us: float, flight: float, further: float = 1.0, often: float = 1.0) -> Chain:
    """Return the `Chain` of a candidate's gain cycle on a path of `flight` segments.

    `further`, `often`: for an unknown sender: factors of the gains' distance from 1, and of the frequency of phases.
    """
    phases = _phases(name, min_rtt_us, flight)
    return Chain([phase._replace(gain=1 + further * (phase.gain - 1), rtts=phase.rtts / often) for phase in phases])


def _phases(name: str, min_rtt_us: float, flight: float) -> list[Phase]:
    cls, _ = resolve(name)
    if cls.phase_choices:
        rest = [Phase(1.0, 1.05, 3, {(k + 1) % 8: 1.0}) for k in range(2, 8)]
        return [Phase(1.25, 1.3, 2, {1: 1.0}), Phase(0.75, 0.8, 2, {2: 1.0}), *rest]
    up, down = (cls.params[n].default for n in ("up_pacing_gain", "down_pacing_gain"))
    if "pre_up_pacing_gain" in cls.params:
        pre_up, slightly = (cls.params[n].default for n in ("pre_up_pacing_gain", "down_slightly_pacing_gain"))
        return [
            Phase(up, 1.5, 2, {6: 0.7, 1: 0.3}),
            Phase(down, 1.5, 2, {2: 1.0}),
            Phase(1.0, 9.5, 8, {3: 1.0}),
            Phase(1.0, 1.0, 3, {4: 1.0}),
            Phase(pre_up, 1.0, 3, {5: 1.0}),
            Phase(1.0, 1.0, 3, {7: 0.6, 0: 0.4}),
            Phase(1.0, 1.0, 3, {1: 0.6, 0: 0.4}),
            Phase(slightly, 1.5, 2, {2: 1.0}),
        ]
    long = 1.5 if "bw_probe_pif_gain" in cls.params else 3.0  # v3 probes and drains for longer
    wait_us = cls.params["bw_probe_base_us"].default + cls.params["bw_probe_rand_us"].default / 2
    rounds = 1.05 * min(cls.params["bw_probe_max_rounds"].default, max(flight, 4))
    wait = max(min(wait_us / min_rtt_us, rounds) - 3, 1.0)
    probe = [Phase(up, long, 2, {1: 1.0}), Phase(down, long, 2, {2: 1.0})]
    return [*probe, Phase(1.0, wait, 6, {3: 1.0}), Phase(1.0, 1.0, 3, {0: 1.0})]


class Rates:
    """The sending rate in each block, and its likelihood under a chain."""

    def __init__(self, halves: HalfRounds, min_rtt_us: float) -> None:
        self.halves, self.min_rtt_us = halves, max(min_rtt_us, 1.0)
        time_us, sent = halves.time_us[halves.edges], np.maximum(halves.sent, 1)
        self.length_us, self.middle_us = np.diff(time_us), (time_us[1:] + time_us[:-1]) / 2
        self.rate = np.log(sent / self.length_us * 1e6)  # segments/s
        errors = const.STAMP_ERROR_US / self.length_us, const.ONE_SEGMENT / sent, const.MIN_RATE_ERROR
        self.error = np.sqrt(errors[0] ** 2 + errors[1] ** 2 + errors[2] ** 2)
        self.acked = np.log(np.maximum(halves.acked, 0.5) / self.length_us * 1e6)
        self.held = np.where(halves.open_share > 0.99, const.HELD_SHARE, const.MAX_WRONG_SHARE)
        self.flight = float(np.median(halves.flight)) if len(halves.flight) else 1.0
        self.steps = np.maximum(np.round(const.STEPS_PER_RTT * self.length_us / self.min_rtt_us), 1).astype(int)

    def first(self, bandwidths: Iterable[Floats]) -> int:
        """Return the block in which PROBE_BW starts in most replays, at most half way through."""
        acks = [int(np.flatnonzero(np.isfinite(bw))[0]) for bw in bandwidths]
        block = int(np.searchsorted(self.halves.edges, np.median(acks)))
        return block if block <= len(self.rate) // 2 else len(self.rate) // const.START_SHARE

    def level(self) -> Floats:
        """Return the log of the typical rate around each block."""
        reach = 1.5 * CYCLE_LEN * max(self.min_rtt_us, const.LEAST_RTT_US)
        first, last = (np.searchsorted(self.middle_us, self.middle_us + side * reach) for side in (-1, 1))
        return _medians(self.rate, first, last)

    def bandwidth(self, bw: Floats) -> Floats:
        """Return the log of the bandwidth in each block, from that after each ACK, segments/s (NaN: unknown)."""
        known = np.flatnonzero(np.isfinite(bw) & (bw > 0))
        bandwidth = bw[known[np.clip(np.searchsorted(known, np.arange(len(bw)), side="right") - 1, 0, None)]]
        edges = self.halves.edges
        return np.asarray(np.log(_medians(bandwidth, edges[:-1], edges[1:] + 1)))

    def full(self, cwnd: Floats) -> Bools:
        """Return in which blocks the data in flight filled a window, given at each ACK."""
        window = self.halves.block_means(cwnd[self.halves.acks])
        flight = self.halves.flights
        return flight > (1 - const.WINDOW_HOLDS) * window - 2 * const.ONE_SEGMENT

    def likelihoods(self, cycle: Chain, usual: Floats, full: Bools, start: int) -> Floats:
        """Return the log likelihood of the rates from block `start` on, for each of several reference rates.

        `usual`: shape (m, blocks), log reference rates. `full`: where the sender was probably cwnd-limited.
        """
        levels, which = np.unique(np.log(cycle.gains), return_inverse=True)
        scale = self.error * FACTORS[:, None]  # factor, block
        weight = np.where(full, const.PREDOMINANT_SHARE, self.held)
        clocked = weight * _laplace(self.rate - self.acked, scale) + const.STRAY_SHARE / 2
        by_phase = _laplace((self.rate - usual)[:, None, :, None] - levels, scale[:, :, None])
        # reference, factor, block, level
        dense = (1 - weight - const.STRAY_SHARE)[:, None] * by_phase + clocked[:, :, None]
        dense = np.where(self.halves.busy[:, None], dense, 1.0)  # an application that pauses says nothing of gains
        moves: dict[int, Floats] = {}
        stage = np.full((len(usual), len(FACTORS), len(cycle.gains)), 1 / len(cycle.gains))
        total = np.zeros(stage.shape[:2])
        for k in range(start, len(self.rate)):
            steps = int(self.steps[k])
            if steps not in moves:
                moves[steps] = np.linalg.matrix_power(cycle.step, steps)
            stage = (stage @ moves[steps]) * dense[:, :, k, which]
            share = stage.sum(axis=2)
            total += np.log(share)
            stage /= share[:, :, None]
        return np.asarray(total.max(axis=1))


def _medians(values: Floats, first: Ints, last: Ints) -> Floats:
    """Return the medians of ``values[first[k]:last[k]]``, sorted together, which is faster than a call for each."""
    lengths = last - first
    begins = np.cumsum(lengths) - lengths
    number = np.repeat(np.arange(len(first)), lengths)
    part = values[np.arange(lengths.sum()) + np.repeat(first - begins, lengths)]
    part = part[np.lexsort((part, number))]
    return (part[begins + (lengths - 1) // 2] + part[begins + lengths // 2]) / 2


def _laplace(off: Floats, scale: Floats) -> Floats:
    return np.asarray(np.exp(-np.abs(off) / scale) / (2 * scale))


class Cycles(NamedTuple):
    """Likelihoods of a record under the candidates' gain cycles."""

    # by_bandwidth, by_level: log likelihood of the rates under each candidate with a gain cycle; empty if there are too
    # few
    by_bandwidth: dict[str, float]
    by_level: dict[str, float]
    rates: Rates | None = None
    start: int = 0  # the block in which PROBE_BW starts


def cycles_of(record: SenderRecord, replays: list[Replay]) -> Cycles:
    """Score the gain cycles of the candidates that have one and whose replay reaches PROBE_BW."""
    cyclic, halves = [replay for replay in replays if np.isfinite(replay.bw).any()], record.halves
    if len(halves) < const.MIN_FOR_CYCLE or not cyclic or halves.steady:
        return Cycles({}, {})
    rates = Rates(halves, float(np.min(record.events.at("tcp_min_rtt_us", halves.acks))))
    start, level = rates.first(replay.bw for replay in cyclic), rates.level()
    by_bandwidth, by_level = {}, {}
    for replay in cyclic:
        cycle = chain(replay.name, rates.min_rtt_us, rates.flight)
        usual = np.array([rates.bandwidth(replay.bw), level])
        both = rates.likelihoods(cycle, usual, rates.full(replay.cwnd), start)
        by_bandwidth[replay.name], by_level[replay.name] = both.tolist()
    return Cycles(by_bandwidth, by_level, rates, start)


def other_cycle(cycles: Cycles, replay: Replay) -> float:
    """Return the log odds against a candidate, 0 or more: how much better a modified cycle explains the rates.

    Modified: gains twice as far from 1, or phases half as long, relative to both the candidate's bandwidth and the
    typical rate.
    """
    rates, name = cycles.rates, replay.name
    if rates is None or name not in cycles.by_level:
        return 0.0
    usual, full = np.array([rates.bandwidth(replay.bw), rates.level()]), rates.full(replay.cwnd)
    own = np.array([cycles.by_bandwidth[name], cycles.by_level[name]])
    others = [chain(name, rates.min_rtt_us, rates.flight, *by) for by in OTHERS]
    better = max(float(np.min(rates.likelihoods(other, usual, full, cycles.start) - own)) for other in others)
    return min(const.POLLS_TEMPER * max(better - const.OTHER_USUAL, 0.0), const.MAX_AGAINST)
