"""How near BBRx's learning agent comes to an exhaustive search, and at what price; on flows neither of them saw.

    python -m benchmarks.learn [--bins 0,5,9] [--seeds 5] [--flows 96] [--slope 100] [--keep flows.jsonl]

Per bin of Table I: a grid of 30 betas and 5 values of k elects what is best on training flows, the agent what its
trials say, CMA-ES (if installed) what it finds with as many trials as the agent. All are compared by their mean utility
on held-out flows, beside the published values of the bin. The grid's k from 6 on, which are far below, are run with a
quarter of the flows; the agent's price is counted against a grid without that. Flows are kept in a file, so that what
was interrupted goes on, and another slope costs little.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from cctrace import presets
from cctrace.analytic.pilaw import mean_utility
from cctrace.cc.bbrx import table_values
from cctrace.learn import Agent, Environment, simulated

BETAS, KS = np.round(np.arange(1, 31) * 0.05, 2), range(4, 9)
SCREENED_K, SCREEN = 6, 4  # from this k on, so many times fewer flows
HELD_OUT, HELD = 1000, 8  # seeds from here on, so many, are of flows that nobody learned from
COLUMNS = ("min_rtt_us", "bw_bps", "goodput_bps", "lost_share", "beta", "k")


@dataclass(frozen=True)
class Kept(Environment):
    """An environment whose flows are kept in a file."""

    known = {}
    file = None

    @classmethod
    def open(cls, file):
        cls.file = file
        for line in Path(file).read_text(encoding="utf-8").splitlines() if file and Path(file).exists() else ():
            key, rows = json.loads(line)
            cls.known[json.dumps(key)] = rows

    def flows(self, k, beta):
        """Return the flows of a trial, from the file if they are there."""
        key = [self.min_rtt_ms, self.rate_mbps, self.paths, self.seed, k, float(beta)]
        if (text := json.dumps(key)) not in self.known:
            rows = super().flows(k, float(beta))
            self.known[text] = rows[list(COLUMNS)].round(7).to_numpy().tolist()
            if self.file:
                with open(self.file, "a", encoding="utf-8") as out:
                    out.write(json.dumps([key, self.known[text]]) + "\n")
        return pd.DataFrame(self.known[text], columns=COLUMNS)


def utility_of(place, k, beta, slope):
    flows = place.flows(k, beta)
    return float(mean_utility(flows.goodput_bps / 1e6, flows.lost_share, slope))


def by_grid(bounds, paths, slope):
    """Return the (k, beta) that is best on the training flows of seed 0."""
    whole, part = Kept(*bounds, paths, 0), Kept(*bounds, max(paths // SCREEN, 3), 0)
    grid = {(k, b): utility_of(whole if k < SCREENED_K else part, k, b, slope) for k in KS for b in BETAS}
    best = max((point for point in grid if point[0] < SCREENED_K), key=grid.get)
    screened = {point: value for point, value in grid.items() if point[0] >= SCREENED_K}
    if max(screened.values()) > utility_of(part, *best, slope):  # not that far below: run it whole
        return max([best, max(screened, key=screened.get)], key=lambda point: utility_of(whole, *point, slope))
    return best


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
        points = [(4 + min(int(4 * x[1] + 0.5), 4), round(float(x[0]), 4)) for x in asked]
        values = [utility_of(place, *point, slope) for point in points]
        search.tell(asked, [-value for value in values])
        tried += list(zip(values, points, strict=True))
    return max(tried)[1]


def bin_table(number, cell, published, options):
    """Print what each search elects in a bin, and what that is worth on held-out flows."""
    bounds = tuple(cell["min_rtt_ms"]), tuple(cell["rate_mbps"])
    flows = options.flows
    paths = 1 + flows * 3 // 7
    held = [Kept(*bounds, paths, HELD_OUT + seed) for seed in range(HELD)]
    began = time.process_time()

    def on_held(k, beta):
        return np.array([utility_of(place, k, beta, options.slope) for place in held])

    grid = by_grid(bounds, paths, options.slope)
    best = on_held(*grid)

    def say(who, k, beta, more=""):
        got = on_held(k, beta)
        spread = 100 * (got - best).std(ddof=1) / np.sqrt(HELD) / abs(best.mean())
        ratio = 100 * (got.mean() - best.mean()) / abs(best.mean())
        print(f"{number:2d} {who:14s} k {k} beta {beta:.2f} {got.mean():9.3f} {ratio:+6.1f} ± {spread:.1f} %{more}")

    print(f"bin {number}, RTT {bounds[0]} ms, rate {bounds[1]} Mbit/s")
    say("grid", *grid)
    say("published", *published)
    tried = []
    for seed in range(1, options.seeds + 1):
        agent = simulated(Agent(flows, options.slope), seed, [number], place_of=Kept)
        tried.append(len(agent.searches[number].tried))
        say(f"agent, seed {seed}", *agent.searches[number].elected(), f", {tried[-1]} trials")
    found = by_cma(Kept(*bounds, paths, 1), options.slope, max(tried))
    if found is not None:
        say("CMA-ES", *found)
    print(f"   {time.process_time() - began:.0f} s of CPU time", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bins", default=",".join(map(str, range(12))))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--flows", type=int, default=96)
    parser.add_argument("--slope", type=float, default=100.0)
    parser.add_argument("--keep", metavar="FILE")
    options = parser.parse_args()
    Kept.open(options.keep)
    published = [(k, beta) for beta, k in zip(*table_values("bbrx_table1"), strict=True)]
    cells = presets.bins("bbrx_table1")
    for number in map(int, options.bins.split(",")):
        bin_table(number, cells[number], published[number], options)


if __name__ == "__main__":
    main()
