"""Sources of flows: simulated dumbbells of a bin, or counters of recorded flows."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from cctrace.arguments import as_list, check_argument, check_progress, whole
from cctrace.display import Progress, silent
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.learn.agent import COLUMNS, Agent
from cctrace.sim.path import Path
from cctrace.sim.sender import MAX_MSS
from cctrace.sim.simulate import simulate
from cctrace.tcp.wire import HEADER_BYTES, MSS_BYTES

MIN_MBPS, LEAST_RTT_MS = 0.5, 10.0  # for bins that begin at zero
WIDEST = 10.0  # times its lower bound: the part of a bin that is drawn; it may be a hundred times as wide, or open
GIGABIT, WIDEST_GIGABIT = 1000.0, 1.2  # Mbit/s from which simulations take long, and the part drawn is narrower
FLOWS = (1, 2, 4)
QUEUE_BDP = (0.5, 2.0)  # the paper's Fig. 2 has 1.6 to 8 BDP of its one flow, its text speaks of shallow buffers
# Of a simulation. After 60 RTTs the losses of STARTUP's overshoot alone are still 3 to 5 % of all segments, where Eq. 6
# falls steeply: they would decide a dumbbell's utility.
MIN_S, LEAST_RTTS = 6.0, 200
MIN_BYTES = 20e6  # that a flow's share of the link carries: beta acts in PROBE_BW alone, not on STARTUP's losses
MAX_BDP_BYTES = 32e6  # of a flow, to which RTTs are limited: half of the largest window of a simulated receiver
BDP_SEGMENTS = 250  # where more would fit, segments are larger, like the super-packets that a host hands over
WIDE_WINDOW = "512MB"  # of receivers of larger segments: how a window grows is modelled for Ethernet's

Bounds = tuple[float, float | None]


class Place(Protocol):
    """Where flows of a bin come from: `Environment`, or what a test puts in its place."""

    def flows(self, k: int, beta: float, **params: float) -> pd.DataFrame:
        """Return the statistics of flows with these parameters."""


@dataclass(frozen=True)
class Environment:
    """Dumbbells drawn from a bin: link, base RTT, queue and number of flows are those of a seed.

    The same seed gives the same dumbbells whatever the parameters tried, so that they are compared on the same ground.
    Rates, RTTs and queues of those with as many flows are spread evenly (a Latin hypercube): few dumbbells cover the
    bin, and another seed's are like them.

    Parameters
    ----------
    min_rtt_ms, rate_mbps : (float, float or None)
        The bin; the rate is that of a flow, the link's is as many times that as there are flows.
    paths : int
        Dumbbells per trial.
    seed : int
    bdp_segments : float
        Segments are as large as Ethernet's while a flow's BDP has no more of them, and larger beyond; infinite: never.

    Examples
    --------
    >>> flows = Environment(min_rtt_ms=(0, 50), rate_mbps=(3, 10), paths=1).flows(k=4, beta=0.45)
    >>> list(flows.columns)
    ['min_rtt_us', 'bw_bps', 'goodput_bps', 'lost_share', 'beta', 'k']
    """

    min_rtt_ms: Bounds
    rate_mbps: Bounds
    paths: int = 9
    seed: int = 1
    bdp_segments: float = BDP_SEGMENTS

    def flows(self, k: int, beta: float, **params: float) -> pd.DataFrame:
        """Return the statistics of flows with these parameters, a DataFrame as `Agent.observe` takes it.

        >>> found = Environment((0, 50), (3, 10), paths=1).flows(4, 0.45)
        >>> len(found), bool(found.goodput_bps.between(1e6, 10e6).all())
        (1, True)
        """
        rng = np.random.default_rng([self.seed, *_rounded(self.min_rtt_ms), *_rounded(self.rate_mbps)])
        given = ",".join(f"{name}={value}" for name, value in ({"beta": beta, "k": k} | params).items())
        rows = []
        for number, (flows, *places) in enumerate(_spread(rng, self.paths)):
            rate = _within(places[0], self.rate_mbps, MIN_MBPS)
            rtt_ms = _within(places[1], self.min_rtt_ms, LEAST_RTT_MS)
            queue = np.exp(np.interp(places[2], (0, 1), np.log(QUEUE_BDP)))
            rtt_ms = min(rtt_ms, MAX_BDP_BYTES / (rate * 125))
            mss = segment_bytes(rate * rtt_ms * 125, self.bdp_segments)
            path = Path(
                rate=f"{rate * flows:.4f}Mbit", rtt=f"{rtt_ms:.3f}ms", buffer=_buffer(rate * flows, rtt_ms, queue, mss)
            )
            seconds = max(MIN_S, LEAST_RTTS * rtt_ms / 1e3, MIN_BYTES * 8e-6 / rate)
            larger: dict[str, Any] = {} if mss == MSS_BYTES else {"mss": mss, "rwnd": WIDE_WINDOW}
            sim = simulate(path, [f"bbrx:{given}"] * flows, f"{seconds:.3f}s", 100 * self.seed + number, **larger)
            rows += [
                (rtt_ms * 1e3, rate * 1e6, flow.goodput_bps, flow.retransmit_ratio, beta, k)
                for flow in sim.flows.itertuples()
            ]
        return pd.DataFrame(rows, columns=COLUMNS)


def _rounded(bounds: Bounds) -> list[int]:
    return [0 if side is None else int(side) for side in bounds]


def _spread(rng: np.random.Generator, paths: int) -> Iterator[tuple[Any, ...]]:
    """Return (flows, three numbers from 0 to 1) of every dumbbell, those of as many flows spread evenly."""
    flows = [FLOWS[k % len(FLOWS)] for k in range(paths)]
    places = np.zeros((paths, 3))
    for count in FLOWS:
        rows = [k for k in range(paths) if flows[k] == count]
        for axis in range(3):
            places[rows, axis] = (rng.permutation(len(rows)) + rng.uniform(size=len(rows))) / max(len(rows), 1)
    return zip(flows, *places.T, strict=True)


def _within(place: float, bounds: Bounds, least: float) -> float:
    """Return a value of a bin, by its place from 0 to 1 in the logarithm."""
    low = max(bounds[0], least)
    widest = low * (WIDEST_GIGABIT if low >= GIGABIT else WIDEST)
    high = widest if bounds[1] is None else min(bounds[1], widest)
    return float(np.exp(np.interp(place, (0, 1), np.log([low, 0.999 * high]))))


def segment_bytes(bdp_bytes: float, most: float) -> int:
    """Return the data bytes of a segment, `most` of which make a BDP, from Ethernet's to half a burst.

    >>> segment_bytes(100e3, 250), segment_bytes(2e6, 250), segment_bytes(2e6, float("inf"))
    (1448, 7934, 1448)
    """
    return int(min(max(bdp_bytes / most - HEADER_BYTES, MSS_BYTES), MAX_MSS))


def _buffer(rate_mbps: float, rtt_ms: float, bdp: float, mss: int) -> str:
    return f"{max(bdp * rate_mbps * rtt_ms * 125, 10 * (mss + HEADER_BYTES)):.0f}B"


def simulated(
    agent: Agent,
    seed: int = 1,
    bins: Sequence[int] | None = None,
    progress: Progress = silent,
    save: str | os.PathLike[str] | None = None,
    place_of: Callable[..., Place] = Environment,
) -> Agent:
    """Let an agent learn from simulated flows until its bins have elected.

    Parameters
    ----------
    agent : Agent
        Changed in place; one that was interrupted goes on.
    seed : int
    bins : sequence of int, optional
        Only these.
    progress : callable
        Receives a line on each trial.
    save : path, optional
        Where the agent is kept after every trial.
    place_of : callable
        Makes the place of a bin: takes what `Environment` takes, has its `flows`.

    Raises
    ------
    ArgumentError
        If there is no such bin.

    Returns
    -------
    Agent
        The one that was given.

    Examples
    --------
    A place whose flows tell the best parameters at once, instead of simulations that take minutes:

    >>> import pandas as pd
    >>> from cctrace.learn.agent import Agent
    >>> class Place:
    ...     def __init__(self, *bounds, **options):
    ...         pass
    ...     def flows(self, k, beta, **params):
    ...         row = {"min_rtt_us": 20e3, "bw_bps": 2e6, "lost_share": 0.0, "beta": beta, "k": k}
    ...         return pd.DataFrame([row | {"goodput_bps": 2e6 - 1e6 * (beta - 0.7) ** 2}])
    >>> agent = simulated(Agent(flows=1), bins=[0], place_of=Place)
    >>> round(agent.searches[0].elected()[1], 1)
    0.7
    """
    check_progress(progress)
    check_argument(isinstance(agent, Agent), "agent", agent, "an Agent, to be changed in place")
    seed = whole("seed", seed)
    wanted = range(len(agent.bins)) if bins is None else as_list(bins)
    given = {} if agent.gamma == 1.0 else {"gamma": agent.gamma}
    for number in wanted:
        whole("bins", number, 0, len(agent.bins) - 1)
        search = agent.searches[number]
        place = place_of(*agent.bins[number], paths=_paths_for(agent.flows), seed=seed)
        while (trial := search.wanted()) is not None:
            k, beta = trial
            progress(f"bin {number + 1} of {len(agent.bins)}, trial {len(search.tried) + 1}: k {k}, beta {beta:g}")
            agent.waiting[number] = []  # a trial of one seed starts again, it is not continued
            agent.observe(place.flows(k, beta, **given).head(agent.flows))
            if save is not None:
                agent.save(save)
    return agent


def _paths_for(flows: int) -> int:
    """Return how many dumbbells together have at least this many flows.

    >>> [_paths_for(flows) for flows in (1, 4, 24)]
    [1, 3, 11]
    """
    totals = itertools.accumulate(itertools.cycle(FLOWS))
    return next(paths for paths, total in enumerate(totals, 1) if total >= flows)


def statistics(table: TcpInfo, beta: float, k: int) -> pd.DataFrame:
    """Return the statistics of recorded flows from the kernel's counters, as `Agent.observe` takes them.

    Parameters
    ----------
    table : TcpInfo
        Polls of flows that ran with `beta` and `k`; the last poll of each counts.
    beta : float
    k : int

    Returns
    -------
    DataFrame
        The connections that sent data, sent segments again or not, and had a min_rtt and a rate.

    Examples
    --------
    >>> import cctrace as cct
    >>> table = cct.read(cct.datasets.path("jitter_bbr_sd2ms", "tcpinfo.csv.zst"))
    >>> round(statistics(table, beta=0.45, k=4)["goodput_bps"][0] / 1e6)
    38
    """
    rows = []
    for index in range(len(table.connections)):
        polls = table.select(index).frame()
        last, first = polls.iloc[-1], polls.iloc[0]
        rate = polls["bbr_bw_Bps"] if polls["bbr_bw_Bps"].notna().any() else polls["delivery_rate_Bps"]
        goodput = 8e9 * (last["bytes_acked"] - first["bytes_acked"]) / max(last["time_ns"] - first["time_ns"], 1)
        lost = last["total_retrans"] / max(last["data_segs_out"], 1)
        rows.append((last["min_rtt"], 8.0 * rate.max(), goodput, lost, beta, k))
    return pd.DataFrame(rows, columns=COLUMNS).dropna().astype(float)
