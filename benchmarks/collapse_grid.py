"""Make the fine grid of closed loops that `benchmarks/predict.py` holds the collapse model against.

    python -m benchmarks.collapse_grid [FILE]
    python -m benchmarks.collapse_grid --cc bbr2,bbr3 --only reo --seeds 4 benchmarks/closed_loop/grid_later.csv
    python -m benchmarks.collapse_grid --cc bbr2,bbr3 --wide --seeds 12 benchmarks/closed_loop/grid_later_order.csv
    python -m benchmarks.collapse_grid --cc bbr2016,bbr2022 --only pre --seeds 4 benchmarks/closed_loop/grid_before.csv
    python -m benchmarks.collapse_grid --cc bbr2,bbr3 --only prereo --seeds 4 FILE          # grid_before_later.csv

Simulates bbr2016, or others, with every kind of jitter at four links, and reordering at a fifth, at standard deviations
from far below to far above bbr2016's threshold, several seeds each (under ten minutes of one core), and writes
benchmarks/closed_loop/grid.csv or FILE.
The paths, durations and the label are those of the golden vectors' summary: wire throughput after the first third below
half the rate. The stack is that of the vectors, except under reordering, which it takes for loss: there it is Linux's.
"""

import argparse
import itertools
from pathlib import Path as FilePath

import numpy as np
import pandas as pd

from benchmarks.simulate import closed_loop_scenario, run_single
from cctrace import units

# Middle of each grid, ms: about where half of the runs collapse in a coarse look.
MIDDLE_MS = {
    "jit40": 11.5,
    "jit40b": 12,
    "jit40c": 12,
    "reo40": 6.5,
    "kumar": 1.95,
    "kumarb": 1.65,
    "kumarc": 1.35,
    "reokumar": 0.88,
    "jit50x20": 5.7,
    "jit50x20b": 5.5,
    "jit50x20c": 5,
    "reo50x20": 3.6,
    "jit20x100": 33,
    "jit20x100b": 34,
    "jit20x100c": 36,
    "reo20x100": 18,
    "reo100x10": 1.8,
}
# Jitter before the queue, with --only pre: the model's domain ends at packets that draw alone.
BEFORE_MS = {
    "prejit40": 12.5,
    "prejit50x20": 7,
    "prejit20x100": 33,
    "prejit100x10": 3.2,
    "prejit60x30": 7.5,
    "prejit30x60": 17.7,
    "prejit20x40": 12.4,
    "prejit40x80": 20,
    "prejit10x50": 19.7,  # few packets in flight, and many: where the model ends
    "prejit10x30": 16.1,
    "prejit100x40": 9.3,
    "prejit50x100": 27,
    "prereo40": 6.5,
    "prereo50x20": 3.5,
    "prereo20x100": 17,
    "prereo100x10": 1.8,
}
AROUND = np.geomspace(1 / 1.6, 1.6, 13)
# With --wide: mean RTTs, of which jitters are shares. BBRv2 and BBRv3 in order lose half of the link over that range.
WIDE_MS = {"jit40": 40, "kumar": 5, "jit50x20": 20, "jit20x100": 100, "jit100x10": 10}
SHARES = np.geomspace(0.25, 1.1, 9)
WIRE_PER_PAYLOAD = 1514 / 1448


def runs(cc, kind, sd_ms, seeds):
    """Yield the rows of one scenario."""
    scenario = f"{kind}_{sd_ms:g}"
    path, _, _ = closed_loop_scenario(scenario)
    half = units.parse_rate_bps(path["rate"], "rate") / 2
    for seed in seeds:
        flow = run_single(scenario, cc, seed, "linux" if "reo" in kind else "reference")
        throughput = flow.tail_goodput_bps * WIRE_PER_PAYLOAD
        yield {
            "algorithm": cc,
            "scenario": scenario,
            "seed": seed,
            "collapse": "yes" if throughput < half else "no",
            "thr_tail_mbps": round(flow.tail_goodput_bps / 1e6, 3),
            "retx_ratio": round(flow.retransmit_ratio, 5),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", default=FilePath(__file__).parent / "closed_loop" / "grid.csv")
    parser.add_argument("--cc", default="bbr2016", help="controllers, with commas between them")
    parser.add_argument("--only", default="", help="kinds of path that begin so")
    parser.add_argument("--wide", action="store_true", help="jitters from a quarter to all of the mean RTT, in order")
    parser.add_argument("--seeds", type=int, help="per jitter (default: 12 at 1 Gbit/s, else 24)")
    options = parser.parse_args()
    rows, middles = [], BEFORE_MS if options.only.startswith("pre") else MIDDLE_MS
    middles, around = (WIDE_MS, SHARES) if options.wide else (middles, AROUND)
    for cc, (kind, middle) in itertools.product(options.cc.split(","), middles.items()):
        if not kind.startswith(options.only):
            continue
        seeds = range(1, 1 + (options.seeds or (12 if "kumar" in kind else 24)))
        for sd_ms in middle * around:
            scenario = list(runs(cc, kind, float(f"{sd_ms:.3g}"), seeds))
            rows += scenario
            collapsed = sum(row["collapse"] == "yes" for row in scenario)
            print(f"{cc:8} {scenario[0]['scenario']:16} collapsed {collapsed:2} of {len(scenario)}", flush=True)
    pd.DataFrame(rows).to_csv(options.file, index=False)


if __name__ == "__main__":
    main()
