"""How often the intervals of `fit.path` hold the truth, on simulated flows over random paths.

    python -m benchmarks.fit_path coverage [--runs 500] [--first 100000] [--jobs 1] [--details]
    python -m benchmarks.fit_path exact [--runs 50]

`coverage` draws a path for every seed (see `drawn`), simulates a flow, fits, and asks where in each estimate's
distribution the truth lies: the probability-integral transform, which is uniform where intervals of every level hold as
often as they say. It is judged by the band within which the transform of as many uniform numbers stays in 95 of 100
such benchmarks (Kolmogorov and Smirnov), and by the share of 95 % intervals that hold the truth, with its own interval.
What the fit calls undetermined is counted, and its bound is held against the truth. Seeds below 100000 were used in
development, and the default begins above. `exact` does the same without any jitter: nothing is random there but loss,
and the errors themselves are printed.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from scipy import stats

import cctrace as cct
from cctrace.estimates import Z95
from cctrace.fit.draws import EVEN, is_logarithmic

QUANTITIES = ("rate", "base RTT", "buffer", "loss", "jitter sd")


def share_below(even, estimate, truth, u=0.5):
    """Return the share of the estimate's distribution below a number: the inverse of `at_share`.

    `u` (0 to 1) is the position within the step if the number is an atom of the distribution.
    """
    value, low, high = estimate.sides()
    if even:
        return float(np.clip((1 - EVEN) / 2 + EVEN * (truth - low) / (high - low), 0, 1))
    if truth < value and is_logarithmic(estimate):
        width, off = np.log(value / low), np.log(truth / value) if truth > 0 else -np.inf
    elif is_logarithmic(estimate):
        width, off = np.log(high / value), np.log(truth / value)
    else:
        width, off = (value - low if truth < value else high - value), truth - value
    if width <= 0:
        return float(u / 2 if truth < value else 0.5 + u / 2) if off == 0 else float(off > 0)
    return float(stats.norm.cdf(Z95 * off / width))


def drawn(seed, exact=False):
    """Return a random path, the controller that sends over it, and the truth of each quantity.

    5 to 60 Mbit/s, 20 to 150 ms, 0.3 to 8 BDP; loss none or 0.1 to 2 % (even in its logarithm); jitter from the 10 us
    of a host to 5 % of the RTT (even in its logarithm), normal or gamma, per packet or in slots.
    """
    rng = np.random.default_rng(seed)
    rate, rtt, bdp = rng.uniform(5, 60), rng.uniform(20, 150), np.exp(rng.uniform(np.log(0.3), np.log(8)))
    loss = 0.0 if rng.random() < 0.3 else float(np.exp(rng.uniform(np.log(1e-3), np.log(2e-2))))
    sd = float(np.exp(rng.uniform(np.log(0.01), np.log(0.05 * rtt))))
    kind = rng.choice(["normal", "gamma"])
    per = rng.choice(["packet", "packet", "slot"])
    mean = 2 * sd if kind == "gamma" else 0.0
    text = f"{kind}:sd={sd:.6f}ms,per={'packet' if per == 'packet' else f'slot:{rng.uniform(2, 20):.3f}ms'}"
    path = cct.Path(
        rate=f"{rate:.6f}Mbit",
        rtt=f"{rtt:.6f}ms",
        buffer=f"{bdp:.4f}bdp",
        loss=f"{100 * loss:.6f}%",
        jitter=None if exact else text + (f",mean={mean:.6f}ms" if mean else ""),
    )
    service_ns = int(1514 * 8e3 / round(rate, 6))  # the simulator counts whole nanoseconds
    truth = {
        "rate": 1514 * 8e9 / service_ns,
        "base RTT": 1e3 * (rtt + (0.0 if exact else mean)),
        "buffer": path.buffer_bytes,
        "loss": loss,
        "jitter sd": 0.0 if exact else 1e3 * sd,
    }
    return path, str(rng.choice(["bbr2022", "cubic6"])), truth


def run(seed, exact=False):
    """Return (what was drawn, {quantity: (share of the estimate's distribution below the truth, value, truth)})."""
    path, controller, truth = drawn(seed, exact)
    sim = cct.simulate(path, controller, "12s", seed, packets=True, ack_every=2)
    said = f"{seed}: {controller}, {path.rate}, {path.rtt}, {path.buffer}, loss {path.loss}, jitter {path.jitter}"
    began = time.process_time()
    try:
        e = cct.fit.path(sim).estimates
    except cct.fit.FitError as refusal:
        return f"{said}: refused: {refusal}", {}
    row, jitter = e["rate_bps"][0], e["jitter"]
    found = {
        "rate": cct.fit.Estimate(row["value"], row["low"], row["high"]),
        "base RTT": e["base_rtt_us"],
        "buffer": e["buffer_bytes"],
        "loss": e["loss"]["share"],
    }
    if jitter is not None and truth["jitter sd"]:
        found["jitter sd"] = jitter["sd_us"]
    # Where chance can give a number only in steps, the truth lies anywhere within its step.
    u = np.random.default_rng(seed).random()
    shares = {}
    for name, estimate in found.items():
        below = None if estimate.high is None else share_below(name == "buffer", estimate, truth[name], u)
        shares[name] = (below, estimate, truth[name])
    process = jitter and jitter["process"]
    return f"{said}: {len(e['rate_bps'])} rate(s), {process}, {time.process_time() - began:.1f} s", shares


def told(shares):
    """Return the result of one run as text."""
    parts = []
    for name, (below, estimate, truth) in shares.items():
        if below is None:
            bound = estimate.low
            parts.append(f"{name} over {bound:.4g}{'' if truth >= 0.999 * bound else f' WRONG: {truth:.4g}'}")
        else:
            error = f"{100 * (estimate.value / truth - 1):+.3g} %" if truth else f"{estimate.value:.3g}"
            parts.append(f"{name} {error} ({below:.3f}{'' if 0.025 <= below <= 0.975 else ' OUT'})")
    return ", ".join(parts)


def judged(name, shares):
    """Return what the runs say of one quantity, as a line of the table."""
    bounds = [(estimate.low, truth) for below, estimate, truth in shares if below is None]
    rows = [(below, estimate, truth) for below, estimate, truth in shares if below is not None and truth > 0]
    wrong = sum(truth < 0.999 * low for low, truth in bounds)
    open_ = f"undetermined in {len(bounds)}" + (f", bound wrong in {wrong}" if bounds else "")
    if not rows:
        return f"{name}: {open_}"
    transform = np.array([below for below, _, _ in rows])
    errors = np.array([abs(estimate.value / truth - 1) for _, estimate, truth in rows])
    n, held = len(rows), int(np.sum((transform >= 0.025) & (transform <= 0.975)))
    low, high = stats.beta.ppf([0.025, 0.975], [held, held + 1], [n - held + 1, max(n - held, 0.5)])
    distance, band = stats.kstest(transform, "uniform").statistic, stats.kstwo.ppf(0.95, n)
    bins = np.histogram(transform, bins=10, range=(0, 1))[0]
    verdict = "within" if distance <= band else "OUTSIDE"
    return (
        f"{name}: {n} runs, 95 % intervals hold {100 * held / n:.1f} % ({100 * low:.0f} to {100 * high:.0f}); "
        f"transform {distance:.3f} from uniform, band {band:.3f}: {verdict}; tenths "
        f"{' '.join(map(str, bins))}; error median {100 * np.median(errors):.3g} %, p90 "
        f"{100 * np.quantile(errors, 0.9):.3g} %; {open_}"
    )


def coverage(options, exact=False):
    """Print one line per quantity, and with ``--details`` one per run before them."""
    seeds = range(options.first, options.first + options.runs)
    collected = {name: [] for name in QUANTITIES}
    refused = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for said, shares in pool.map(run, seeds, [exact] * len(seeds)):
            refused += not shares
            for name, result in shares.items():
                collected[name].append(result)
            if options.details:
                print(f"{said}: {told(shares)}", flush=True)
    print(f"{options.runs} runs from seed {options.first}, {refused} refused")
    for name, shares in collected.items():
        if shares:
            print(judged(name, shares))
    none = [estimate.low for _, estimate, truth in collected["loss"] if truth == 0]
    if none:
        print(f"loss: {np.sum(np.array(none) <= 0)} of {len(none)} intervals of paths without any begin at none")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["coverage", "exact"])
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--first", type=int, default=100_000, help="first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--details", action="store_true")
    options = parser.parse_args()
    coverage(options, exact=options.command == "exact")


if __name__ == "__main__":
    main()
