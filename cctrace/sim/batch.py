"""Batches of short runs on all cores of one process, as what-ifs, fits and forecasts need.

    runs = [Run(path, (Sender("bbr2022"),), "20s", seed) for seed in range(12)]
    goodputs = [outcome.flows[0]["goodput_bps"] for outcome in batch(runs)]

Each run equals that of `simulate` with the same arguments, digit for digit, for any number of cores. Threads take
the runs in turn: the event loop is compiled and releases the interpreter's lock, so the Python part of a run (a
millisecond or two) overlaps with the others' loops.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from cctrace.errors import ArgumentError
from cctrace.lang.threads import cores
from cctrace.sim.core.world import FIRST_NS, World
from cctrace.sim.path import Path
from cctrace.sim.result import counters, link_figures, rows_of, tail_start_ns
from cctrace.sim.runner import Runner
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import counts_of, stops
from cctrace.units import parse_time_ns


class Run(NamedTuple):
    """The arguments of a `simulate`."""

    path: Path
    senders: tuple[Sender, ...]
    duration: str
    seed: int
    sample: str = ""


class Outcome(NamedTuple):
    """Figures of a run."""

    flows: list[dict[str, Any]]  # the rows of `Simulation.flows`
    link: dict[str, float]  # `Simulation.link`
    # {column of `Simulation.timeline`: ndarray, one value per flow} at each instant, if `Run.sample` requests them:
    # cumulative deliveries, sends and retransmissions, and the smoothed RTT
    samples: list[dict[str, Any]]


def batch(runs: Sequence[Run], workers: int | None = None) -> Iterator[Outcome]:
    """Make runs on all cores; yield the `Outcome` of each, in order.

    `workers`: threads; default one per available core. Raises `ArgumentError` if a run cannot be made: that of the
    first such run, in its turn.
    """
    workers = min(workers or cores(), len(runs))
    if workers <= 1:
        yield from map(outcome_of, runs)
        return
    stop = threading.Event()
    pool = ThreadPoolExecutor(workers)
    try:
        for future in [pool.submit(outcome_of, run, stop) for run in runs]:
            yield future.result()
    finally:  # on Ctrl-C, too, runs end within a fraction of a second
        stop.set()
        pool.shutdown(cancel_futures=True)


def outcome_of(run: Run, stop: threading.Event | None = None) -> Outcome:
    """Return the `Outcome` of one run; `stop` ends it early, with an error."""
    duration_ns = parse_time_ns(run.duration, "duration")
    if duration_ns <= 0:
        raise ArgumentError(f"duration={run.duration!r} must be positive")
    world = World(run.path, run.senders, run.seed, True, len(run.senders) == 1 or run.path.has_jitter)
    try:
        runner = Runner(world, "compiled", trace=False, packets=False, stop=stop, is_fixed=True)
        first, samples = None, []
        tail_ns, sample_ns = tail_start_ns(duration_ns), parse_time_ns(run.sample, "sample") if run.sample else 0
        for at_ns in stops(duration_ns, tail_ns, sample_ns):
            runner.to(FIRST_NS + at_ns)
            if at_ns == tail_ns:
                first = counters(world)
            if sample_ns and at_ns % sample_ns == 0:
                samples.append(counts_of(world.columns))
        totals = counters(world)
        flows = rows_of(run.senders, world, first, totals, duration_ns)
        return Outcome(flows, link_figures(world, totals, run.path, duration_ns), samples)
    finally:
        world.close()
