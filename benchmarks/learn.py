"""How near BBRx's learning agent comes to an exhaustive search, and at what price; on flows neither of them saw.

    python benchmarks/learn.py [--bins 0,5,9] [--seeds 5] [--flows 96] [--slope 100] [--no-grid]

Per bin of Table I: the grid of 30 betas and 5 values of k elects what is best on training flows, the agent what its
trials say, CMA-ES (if installed) what it finds with as many trials as the agent. All are compared by their mean utility
on held-out flows, beside the published values of the bin.
"""

import argparse
import time

import numpy as np

from cctrace import presets
from cctrace.analytic.pilaw import mean_utility
from cctrace.cc.bbrx import table_values
from cctrace.learn import Agent, Environment, simulated

BETAS, KS = np.round(np.arange(1, 31) * 0.05, 2), range(4, 9)
HELD_OUT = 1000  # seeds from here on are of flows that nobody learned from


def utility_of(place, k, beta, slope):
    flows = place.flows(k, float(beta))
    return float(mean_utility(flows.goodput_bps / 1e6, flows.lost_share, slope))


def by_cma(place, slope, trials):
    """Return the (k, beta) that CMA-ES elects with as many trials, None without the package."""
    try:
        import cma
    except ImportError:
        return None
    search = cma.CMAEvolutionStrategy([0.45, 0.0], 0.3, {"seed": 1, "verbose": -9, "bounds": [[0.05, 0.0], [1.5, 1.0]]})
    tried = []
    while len(tried) < trials:
        asked = search.ask()
        points = [(4 + min(int(4 * x[1] + 0.5), 4), float(x[0])) for x in asked]
        values = [utility_of(place, *point, slope) for point in points]
        search.tell(asked, [-value for value in values])
        tried += list(zip(values, points, strict=True))
    return max(tried)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", default=",".join(map(str, range(12))))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--flows", type=int, default=96)
    parser.add_argument("--slope", type=float, default=100.0)
    parser.add_argument("--no-grid", action="store_true")
    options = parser.parse_args()
    published = list(zip(*table_values("bbrx_table1"), strict=True))
    cells = presets.bins("bbrx_table1")
    for number in map(int, options.bins.split(",")):
        bounds = tuple(cells[number]["min_rtt_ms"]), tuple(cells[number]["rate_mbps"])
        paths = 1 + options.flows * 3 // 7
        held = [Environment(*bounds, paths, HELD_OUT + seed) for seed in range(2)]
        began = time.process_time()

        def on_held(k, beta, held=held):
            return np.mean([utility_of(place, k, beta, options.slope) for place in held])

        beta, k = published[number]
        print(f"bin {number}, RTT {bounds[0]} ms, rate {bounds[1]} Mbit/s")
        print(f"    published: k {k} beta {beta}: {on_held(k, beta):.3f} held out", flush=True)
        best = None
        if not options.no_grid:
            place = Environment(*bounds, paths, 0)
            grid = {(k, b): utility_of(place, k, b, options.slope) for k in KS for b in BETAS}
            k, beta = max(grid, key=grid.get)
            best = on_held(k, beta)
            print(f"    grid: k {k} beta {beta}: {best:.3f} held out, {len(grid)} trials", flush=True)
        for seed in range(1, options.seeds + 1):
            agent = simulated(Agent(options.flows, options.slope), seed, [number])
            k, beta = agent.searches[number].elected()
            got = on_held(k, beta)
            trials = len(agent.searches[number].tried)
            near = "" if best is None else f", {100 * (got / best - 1):+.1f} % of the grid's"
            print(f"    agent, seed {seed}: k {k} beta {beta:.2f}: {got:.3f}{near}, {trials} trials", flush=True)
        found = by_cma(Environment(*bounds, paths, 1), options.slope, trials)
        if found is not None:
            print(f"    CMA-ES: k {found[0]} beta {found[1]:.2f}: {on_held(*found):.3f}")
        print(f"    {time.process_time() - began:.0f} s of CPU time", flush=True)


if __name__ == "__main__":
    main()
