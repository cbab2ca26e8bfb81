"""In which phases did a BBR probe? A hidden Markov model of each generation's gain cycle, on the rate of what was sent.

A replay whose gain cycle runs out of step explains less than one of a stranger that hardly probes. So the phases are
summed over instead: each candidate's cycle is a Markov chain over stages of its phases, whose mean durations are those
of its code, in minimum RTTs,

    v1      UP 1.25 -> DOWN 0.75 -> six of 1.0                                    8 RTTs
    v2, v3  UP 1.25 -> DOWN (0.75; 0.91) -> CRUISE -> REFILL                      2.5 s, or as many rounds as segments
    v2+     CRUISE -> REFILL -> PRE_UP 1.1 -> GUARD -> UP 1.25 or DOWN_SLIGHTLY 0.9      9.5 rounds and the tries

and what is seen is the rate of each block of half a round trip, against the bandwidth that the candidate's replay
holds (`by_bandwidth`), and against the usual rate around that time (`by_level`), which no replay can get wrong. Errors
are Laplace, of what a time stamp of 1 ms and a super-packet leave open, times the likeliest of a few factors. A rate
may fall short of its phase's where cwnd held the sender back.

Sources: [Linux618] net/ipv4/tcp_bbr.c; `cctrace.cc`'s bbr2, bbr2plus, bbr3.
"""

import itertools

import numpy as np

from cctrace.cc import controller as resolve

CRUISE_GAIN = 1.0
PROBE_ROUNDS = 63  # bw_probe_max_rounds
WAIT_US = 2_500_000  # bw_probe_base_us and half of bw_probe_rand_us
STAMP_US = 500.0  # by which the length of a block may err
SEGMENTS, FINEST = 1.0, 0.01  # by which its count may err, and what remains
FACTORS = np.array([0.7, 1.0, 1.5, 2.2])
STRAY = 0.03  # of the blocks may be off by anything
HELD, HELD_IN_RECOVERY = 0.08, 0.4  # of the blocks cwnd may have held back
HELD_BY = 0.3  # usual share by which
PER_RTT = 4  # steps of a minimum RTT in which durations are counted
LEVEL_RTTS = 12  # on either side, the rates among which the median is usual
LEAST_RTT_US = 10_000
FEW = 10  # blocks that tell nothing
OTHERS = ((2, 1), (1, 2), (2, 2))  # times as far from 1 and as often: cycles of strangers
OTHER_USUAL, OTHER_WEIGHT, MOST_OTHER = 8.0, 0.1, 8.0  # log likelihood ratio of one's own; log odds per unit of it
LATE = 8  # share of the blocks that are left out where PROBE_BW begins too late


class Chain:
    """Phases of a gain cycle as a Markov chain.

    Attributes
    ----------
    gains : ndarray, shape (n,)
        Of each stage.
    step : ndarray, shape (n, n)
        Probabilities of the stages a quarter of a minimum RTT later.
    """

    def __init__(self, phases):
        # Of each phase: gain, mean duration in minimum RTTs, stages, {next phase: probability}.
        first = np.cumsum([0, *(stages for _, _, stages, _ in phases)])
        self.gains = np.repeat([gain for gain, *_ in phases], [stages for _, _, stages, _ in phases])
        rates = np.zeros((first[-1], first[-1]))
        for k, (_, duration, stages, following) in enumerate(phases):
            rate = stages / duration
            for stage in range(first[k], first[k + 1]):
                rates[stage, stage] -= rate
                if stage + 1 < first[k + 1]:
                    rates[stage, stage + 1] += rate
                else:
                    for other, probability in following.items():
                        rates[stage, first[other]] += rate * probability
        self.step = _exponential(rates / PER_RTT)


def _exponential(matrix, halvings=6, terms=12):
    """Return the exponential of a small matrix, by its series."""
    part = matrix / 2**halvings
    total = term = np.eye(len(matrix))
    for k in range(1, terms):
        term = term @ part / k
        total = total + term
    return np.linalg.matrix_power(total, 2**halvings)


def chain(name, min_rtt_us, flight, further=1.0, often=1.0):
    """Return the `Chain` of a candidate's gain cycle on a path of `flight` segments.

    Parameters
    ----------
    name : str
    min_rtt_us, flight : float
    further, often : float
        For a stranger: gains are so many times as far from 1, and phases so many times shorter.
    """
    phases = _phases(name, min_rtt_us, flight)
    return Chain([(1 + further * (gain - 1), rtts / often, stages, then) for gain, rtts, stages, then in phases])


def _phases(name, min_rtt_us, flight):
    cls, _ = resolve(name)
    if cls.phase_choices:
        rest = [(CRUISE_GAIN, 1.05, 3, {(k + 1) % 8: 1.0}) for k in range(2, 8)]
        return [(1.25, 1.3, 2, {1: 1.0}), (0.75, 0.8, 2, {2: 1.0}), *rest]
    up, down = (cls.params[n].default for n in ("up_pacing_gain", "down_pacing_gain"))
    refill = (CRUISE_GAIN, 1.0, 3)
    if "pre_up_pacing_gain" in cls.params:
        pre_up, slightly = (cls.params[n].default for n in ("pre_up_pacing_gain", "down_slightly_pacing_gain"))
        return [
            (up, 1.5, 2, {6: 0.7, 1: 0.3}),
            (down, 1.5, 2, {2: 1.0}),
            (CRUISE_GAIN, 9.5, 8, {3: 1.0}),
            (*refill, {4: 1.0}),
            (pre_up, 1.0, 3, {5: 1.0}),
            (CRUISE_GAIN, 1.0, 3, {7: 0.6, 0: 0.4}),
            (CRUISE_GAIN, 1.0, 3, {1: 0.6, 0: 0.4}),
            (slightly, 1.5, 2, {2: 1.0}),
        ]
    long = 1.5 if "bw_probe_pif_gain" in cls.params else 3.0  # v3 probes and drains for longer
    wait = max(min(WAIT_US / min_rtt_us, 1.05 * min(PROBE_ROUNDS, max(flight, 4))) - 3, 1.0)
    return [
        (up, long, 2, {1: 1.0}),
        (down, long, 2, {2: 1.0}),
        (CRUISE_GAIN, wait, 6, {3: 1.0}),
        (*refill, {0: 1.0}),
    ]


class Rates:
    """The rate of what was sent in each block, and how well a chain explains it.

    Parameters
    ----------
    blocks : identify_trajectory.Blocks
    min_rtt_us : float
    """

    def __init__(self, blocks, min_rtt_us):
        self.blocks, self.min_rtt_us = blocks, max(min_rtt_us, 1.0)
        time_us = blocks.time_us[blocks.edges]
        self.length_us, self.middle_us = np.diff(time_us), (time_us[1:] + time_us[:-1]) / 2
        self.rate = np.log(np.maximum(blocks.sent, 1) / self.length_us * 1e6)  # segments/s
        self.error = np.sqrt(
            (STAMP_US / self.length_us) ** 2 + (SEGMENTS / np.maximum(blocks.sent, 1)) ** 2 + FINEST**2
        )
        self.held = np.where(blocks.each(blocks.open) > 0.99, HELD, HELD_IN_RECOVERY)
        self.flight = float(np.median(blocks.flight)) if len(blocks.flight) else 1.0
        self.steps = np.maximum(np.round(PER_RTT * self.length_us / self.min_rtt_us), 1).astype(int)

    def first(self, bandwidths):
        """Return the number of the block with which PROBE_BW begins in most replays, at the latest half way."""
        acks = [int(np.flatnonzero(np.isfinite(bw))[0]) for bw in bandwidths]
        block = int(np.searchsorted(self.blocks.edges, np.median(acks)))
        return block if block <= len(self.rate) // 2 else len(self.rate) // LATE

    def level(self):
        """Return the log of the usual rate around each block."""
        reach = LEVEL_RTTS * max(self.min_rtt_us, LEAST_RTT_US)
        first, last = (np.searchsorted(self.middle_us, self.middle_us + side * reach) for side in (-1, 1))
        return np.array([np.median(self.rate[a:b]) for a, b in zip(first, last, strict=True)])

    def bandwidth(self, bw):
        """Return the log of the bandwidth in each block, of that after each ACK, segments/s (NaN: not yet known)."""
        edges = self.blocks.edges
        known = np.flatnonzero(np.isfinite(bw) & (bw > 0))
        held = bw[known[np.clip(np.searchsorted(known, np.arange(len(bw)), side="right") - 1, 0, None)]]
        return np.log([np.median(held[a : b + 1]) for a, b in itertools.pairwise(edges)])

    def likelihood(self, chain, usual, start):
        """Return the log likelihood of the rates of all blocks from number `start` on, the usual rate's log given."""
        levels, which = np.unique(np.log(chain.gains), return_inverse=True)
        off = (self.rate - usual)[:, None] - levels
        held = self.held[:, None]
        short = np.where(off < 0, np.exp(np.minimum(off, 0) / HELD_BY) / HELD_BY, 0)
        rest = held * short + STRAY / 2
        scale = self.error[:, None, None] * FACTORS[:, None]  # block, factor, level
        dense = (1 - held - STRAY)[:, :, None] * np.exp(-np.abs(off)[:, None, :] / scale) / (2 * scale)
        dense += rest[:, None, :]
        moves = {}
        stage = np.full((len(FACTORS), len(chain.gains)), 1 / len(chain.gains))
        total = np.zeros(len(FACTORS))
        for k in range(start, len(self.rate)):
            steps = int(self.steps[k])
            if steps not in moves:
                moves[steps] = np.linalg.matrix_power(chain.step, steps)
            stage = (stage @ moves[steps]) * dense[k][:, which]
            share = stage.sum(axis=1)
            total += np.log(share)
            stage /= share[:, None]
        return float(total.max())


class Phases:
    """How well the gain cycles of candidates explain a flow, against the best of them.

    Parameters
    ----------
    shown : identify_evidence.Shown
    found : {str: identify_evidence.Evidence}

    Attributes
    ----------
    by_bandwidth, by_level : {str: float}
        Log likelihood ratio of each candidate with a gain cycle to the best one; empty where too little shows.
    """

    def __init__(self, shown, found):
        self.by_bandwidth, self.by_level = {}, {}
        self._own, self._seen = {}, None
        cycles = {name: one.bw for name, one in found.items() if np.isfinite(one.bw).any()}
        if len(shown.halves) < FEW or not cycles:
            return
        acks = shown.halves.acks
        rates = Rates(shown.halves, float(np.min(shown.events.rows["tcp_min_rtt_us"][acks])))
        start = rates.first(cycles.values())
        level, by_chain = rates.level(), {}
        for name, bw in cycles.items():
            cycle = chain(name, rates.min_rtt_us, rates.flight)
            alike = (*cycle.gains, cycle.step.trace())  # v1's generations share theirs
            if alike not in by_chain:
                by_chain[alike] = rates.likelihood(cycle, level, start)
            self.by_level[name] = by_chain[alike]
            self.by_bandwidth[name] = rates.likelihood(cycle, rates.bandwidth(bw), start)
        self._seen = rates, start, level, cycles
        self._own = {name: (self.by_level[name], self.by_bandwidth[name]) for name in cycles}
        for ratios in (self.by_bandwidth, self.by_level):
            best = max(ratios.values())
            ratios.update({name: value - best for name, value in ratios.items()})

    def other_cycle(self, name):
        """Return the log odds against a candidate, 0 or more: how much better a cycle like its own explains the rates.

        A stranger's: gains twice as far from 1, or phases half as long, against the candidate's bandwidth as well as
        against the usual rate.
        """
        if name not in self._own:
            return 0.0
        rates, start, level, cycles = self._seen
        bandwidth = rates.bandwidth(cycles[name])
        better = 0.0
        for further, often in OTHERS:
            other = chain(name, rates.min_rtt_us, rates.flight, further, often)
            gained = [
                rates.likelihood(other, usual, start) - own
                for usual, own in zip((level, bandwidth), self._own[name], strict=True)
            ]
            better = max(better, min(gained))
        return min(OTHER_WEIGHT * max(better - OTHER_USUAL, 0.0), MOST_OTHER)
