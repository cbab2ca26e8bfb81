"""Whether larger segments move the optimum: utility over beta of a bin, with Ethernet's segments and with larger ones.

    python -m benchmarks.learn_scaling [--bin 10] [--flows 24] [--seeds 2]

`cctrace.learn.Environment` lets segments grow beyond Ethernet's where more than 250 would make a flow's BDP. Here the
same dumbbells run with segments of 1448 bytes throughout, with 250 and with 100 in a BDP; utilities as shares of the
best of their kind, the mean over the seeds.
"""

import argparse
import time

import numpy as np

from cctrace import presets
from cctrace.analytic.pilaw import mean_utility
from cctrace.learn import Environment

BETAS, KS = (0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.95, 1.2, 1.5), (4, 5)
KINDS = {"Ethernet": float("inf"), "250 in a BDP": 250, "100 in a BDP": 100}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=int, default=10)
    parser.add_argument("--flows", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    cell = presets.bins("bbrx_table1")[options.bin]
    bounds = tuple(cell["min_rtt_ms"]), tuple(cell["rate_mbps"])
    found = {}
    for kind, segments in KINDS.items():
        began = time.process_time()
        utilities = np.zeros((options.seeds, len(KS), len(BETAS)))
        for seed in range(options.seeds):
            place = Environment(*bounds, 1 + options.flows * 3 // 7, seed, segments)
            for row, k in enumerate(KS):
                for column, beta in enumerate(BETAS):
                    flows = place.flows(k, beta)
                    utilities[seed, row, column] = mean_utility(flows.goodput_bps / 1e6, flows.lost_share)
        found[kind] = utilities.mean(axis=0)
        spent = time.process_time() - began
        best = np.unravel_index(found[kind].argmax(), found[kind].shape)
        print(
            f"{kind}: best k {KS[best[0]]} beta {BETAS[best[1]]}, utility {found[kind].max():.2f}; {spent:.0f} s of CPU"
        )
        for row, k in enumerate(KS):
            print(f"  k {k} " + " ".join(f"{share:.3f}" for share in found[kind][row] / found[kind].max()), flush=True)
    whole = found["Ethernet"]
    for kind, utilities in found.items():
        at = np.unravel_index(utilities.argmax(), utilities.shape)
        print(
            f"best of {kind}, with Ethernet's segments: {100 * (whole[at] / whole.max() - 1):+.1f} % of the best there"
        )


if __name__ == "__main__":
    main()
