"""How near fitted parameters come to the truth, and how often their intervals hold it.

    python -m benchmarks.fit_parameters [--runs 10] [--seed 1] [--only REGEX] [--seconds 10]     simulated senders
    python -m benchmarks.fit_parameters --recordings FOLDER...          recordings, whose parameters are the kernel's
    python -m benchmarks.fit_parameters hierarchical [--runs 2000]      the pooling, on drawn estimates

Simulated: the parameter is drawn uniformly, the path at random (5 to 60 Mbit/s, 10 to 100 ms, 0.3 to 4 BDP; a third
each clean, with random loss to 1 %, with jitter to a tenth of the RTT), every segment or every second one acknowledged,
captures with and without super-packets; HZ is not told. An interval that is open at one side covers what lies beyond.
"""

import argparse
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import cctrace as cct
from cctrace.errors import FitError

PAIRS = (
    ("bbr2022", "cwnd_gain", 1.1, 2.5),
    ("bbr2022", "up_pacing_gain", 1.05, 1.8),
    ("bbr2", "beta", 0.1, 0.6),
    ("bbr2", "loss_thresh", 0.005, 0.1),
    ("cubic6", "beta", 0.4, 0.9),
    ("bbrx", "beta", 0.1, 0.9),
    ("obbr_paper", "mu", 0.2, 1.0),
)
KERNELS = {"bbr": ("bbr2022", ("cwnd_gain", "up_pacing_gain")), "cubic": ("cubic6", ("beta", "bic_scale"))}


def random_path(rng):
    """Return a `cct.Path` and how its receiver acknowledges."""
    rtt_ms = rng.uniform(10, 100)
    kind = rng.integers(3)
    path = cct.Path(
        rate=f"{rng.uniform(5, 60):.2f}Mbit",
        rtt=f"{rtt_ms:.2f}ms",
        buffer=f"{np.exp(rng.uniform(np.log(0.3), np.log(4))):.2f}bdp",
        loss=f"{rng.uniform(0, 1):.3f}%" if kind == 1 else 0,
        jitter=f"normal:sd={rng.uniform(0.001, 0.1) * rtt_ms:.3f}ms" if kind == 2 else None,
    )
    return path, {"ack_every": int(rng.integers(1, 3))}


def simulated_flow(controller, path, seconds, seed, tso, **common):
    """Return the flow of a simulated sender, as captured at its host."""
    sim = cct.simulate(path, controller, f"{seconds:g}s", seed, packets=True, **common)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sender.pcap"
        sim.to_pcap(file, tso=tso)
        return cct.read(str(file)).flow(0)


def run(pair, seconds, rng):
    """Return (outcome, true value, estimate or None, seconds of CPU) of one simulated sender."""
    controller, name, low, high = pair
    truth = float(rng.uniform(low, high))
    path, common = random_path(rng)
    spec = f"{controller}:{name}={truth:.6f}"
    flow = simulated_flow(spec, path, seconds, int(rng.integers(1 << 30)), bool(rng.integers(2)), **common)
    began = time.process_time()
    try:
        estimate = cct.fit.Parameters(controller, [name]).fit(flow).estimates_[name]
    except FitError as refusal:
        return (
            ("refused" if "identifiable" in str(refusal) else "unexplained"),
            truth,
            None,
            time.process_time() - began,
        )
    held = (estimate.low is None or estimate.low <= truth) and (estimate.high is None or truth <= estimate.high)
    sides = "one side" if None in estimate else "both sides"
    return f"{sides}, {'held' if held else 'missed'}", truth, estimate, time.process_time() - began


def coverage(options):
    """Print a row per pair of controller and parameter."""
    print("| fitted | flows | both sides: held | one side: held | not identifiable | unexplained | median error | p90 "
          "error | median width | CPU s |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for number, pair in enumerate(PAIRS):
        if not re.search(options.only, f"{pair[0]} {pair[1]}"):
            continue
        rng = np.random.default_rng([options.seed, number])
        found = [run(pair, options.seconds, rng) for _ in range(options.runs)]
        counts = Counter(outcome for outcome, *_ in found)
        known = [(t, e) for _, t, e, _ in found if e is not None and None not in e]
        errors = np.array([abs(e.value / t - 1) for t, e in known]) if known else np.array([np.nan])
        widths = np.array([(e.high - e.low) / t for t, e in known]) if known else np.array([np.nan])
        held = {s: (counts[f"{s}, held"], counts[f"{s}, held"] + counts[f"{s}, missed"]) for s in SIDES}
        print(f"| `{pair[0]}` `{pair[1]}` | {options.runs} | " + " | ".join("{} of {}".format(*held[s]) for s in SIDES)
              + f" | {counts['refused']} | {counts['unexplained']} | {np.median(errors):.2%} | "
              f"{np.quantile(errors, 0.9):.2%} | {np.median(widths):.2%} | {np.mean([s for *_, s in found]):.1f} |",
              flush=True)  # fmt: skip


SIDES = ("both sides", "one side")


def recordings(options):
    """Print what is fitted to recordings of Linux 6.18, whose parameters are the released ones."""
    import json

    print("| recording | fitted | released | estimate | held | CPU s |\n|---|---|---|---|---|---|", flush=True)
    for folder in map(Path, options.recordings):
        scenario = json.loads((folder / "scenario.json").read_text(encoding="utf-8"))
        names = {flow["dport"]: flow["cc"] for flow in scenario["parameters"]["flows"]}
        for flow in cct.read(str(next(folder.glob("sender.pcap*")))).bulk(1_000_000):
            controller, fitted = KERNELS.get(names.get(int(flow.row["dport"])), (None, ()))
            for name in fitted:
                released = cct.fit.Parameters(controller, [name]).cls.params[name].default
                began = time.process_time()
                try:
                    estimate = cct.fit.Parameters(controller, [name]).fit(flow).estimates_[name]
                    low, high = (-np.inf if estimate.low is None else estimate.low), (estimate.high or np.inf)
                    said, held = estimate.text(), "yes" if low <= released <= high else "no"
                except FitError as refusal:
                    said, held = str(refusal)[:60], "refused"
                spent = time.process_time() - began
                print(
                    f"| {folder.name} | `{controller}` `{name}` | {released:.4g} | {said} | {held} | {spent:.1f} |",
                    flush=True,
                )


def hierarchical(options):
    """Print how often the intervals of pooled estimates hold: drawn flows, the group's mean and spread known."""
    rng = np.random.default_rng(options.seed)
    print("| flows | sd between, errors | runs | mean held | sd between held | own values held: single | pooled | "
          "error, pooled / single |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for number in (3, 5, 10, 30):
        for tau, least, most in ((0.0, 0.5, 2.0), (1.0, 0.2, 1.0), (1.0, 1.0, 3.0)):
            held, errors = [], []
            for _ in range(options.runs):
                sigma = rng.uniform(least, most, number)
                own = rng.normal(10, tau, number)
                singles = [cct.fit.Estimate.around(v, s) for v, s in zip(rng.normal(own, sigma), sigma, strict=True)]
                pooled = cct.fit.Hierarchical().pool(singles)
                holds = [_holds(pooled.mean_, 10), _holds(pooled.spread_, tau)]
                for estimates in (singles, pooled.flows_):
                    holds.append(np.mean([_holds(e, t) for e, t in zip(estimates, own, strict=True)]))
                    errors.append(np.mean([(e.value - t) ** 2 for e, t in zip(estimates, own, strict=True)]))
                held.append(holds)
            shares = " | ".join(f"{share:.1%}" for share in np.mean(held, axis=0))
            ratio = np.sqrt(np.mean(errors[1::2]) / np.mean(errors[::2]))
            print(
                f"| {number} | {tau:g}, {least:g} to {most:g} | {options.runs} | {shares} | {ratio:.2f} |", flush=True
            )


def _holds(estimate, truth):
    return estimate.low - 1e-12 <= truth <= estimate.high


def main():
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("coverage", "hierarchical"), default="coverage")
    parser.add_argument("--recordings", nargs="+", metavar="FOLDER")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="pairs of controller and parameter that match")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each flow")
    options = parser.parse_args()
    if options.recordings:
        recordings(options)
    elif options.what == "hierarchical":
        options.runs = options.runs or 2000
        hierarchical(options)
    else:
        options.runs = options.runs or 10
        coverage(options)


if __name__ == "__main__":
    main()
