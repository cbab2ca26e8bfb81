"""How near fitted jitter and forecasts of collapse come to the truth; one command per claim.

    python -m benchmarks.fit_jitter collapse [--runs 60] [--controllers bbr2016,bbr2022] [--only REGEX]
    python -m benchmarks.fit_jitter coverage [--runs 2000] [--samples 1000] [--only REGEX]

`collapse` draws paths and kinds of jitter, finds by bisection (four seeds a step, runs of 60 s) the jitter's sd at
which a simulated flow gets half of the link, records 15 s of a flow at 0.2 to 0.8 of that, fits `cct.fit.Collapse` to
it, and compares thresholds.
`coverage` draws delays and series of which the truth is known, and prints how often 95 % intervals hold it, and the
bias.
"""

import argparse
import re
import time
from typing import NamedTuple

import numpy as np
from scipy import signal

import cctrace as cct
from cctrace.fit.censored import Censored
from cctrace.fit.process import slot_length
from cctrace.path.blocks import correlation_time
from cctrace.path.delays import mean_of

WIRE_PER_PAYLOAD = 1514 / 1448
MAX_SHARE = 1.0  # of the mean delay, up to where thresholds are looked for


# --- collapse --------------------------------------------------------------------------------------------------------
class Case(NamedTuple):
    """A path whose jitter may be stretched."""

    rate_mbps: float
    base_ms: float
    family: str
    per: str
    reorder: bool
    shape: float  # gamma: k; lognormal: s
    ack_every: int

    def path(self, sd_ms):
        sort = f"per={self.per}" + (",reorder" if self.reorder else "")
        mean_ms = 0.0  # of a normal jitter
        if self.family == "gamma":
            mean_ms = np.sqrt(self.shape) * sd_ms
        elif self.family == "lognormal":
            mean_ms = sd_ms / np.sqrt(np.expm1(self.shape**2))
        jitter = f"{self.family}:sd={sd_ms:.6f}ms,{sort}" + (f",mean={mean_ms:.6f}ms" if mean_ms else "")
        room = self.rate_mbps * 1e3 / 8 * (self.base_ms + mean_ms) * 10
        return cct.Path(rate=f"{self.rate_mbps}Mbit", rtt=f"{self.base_ms}ms", buffer=f"{room:.0f}B", jitter=jitter)

    def share(self, sd_ms, controller, seeds):
        """Return the mean share of the link that flows get."""
        sender = cct.Sender(controller, ack_every=self.ack_every)
        runs = [cct.simulate(self.path(sd_ms), sender, "60s", int(seed)) for seed in seeds]
        return np.mean([run.flows.tail_goodput_bps[0] for run in runs]) * WIRE_PER_PAYLOAD / self.rate_mbps / 1e6

    def threshold_ms(self, controller, rng):
        """Return the sd at which flows get half of the link, None beyond `MAX_SHARE` of the base."""
        low, high = 0.02 * self.base_ms, MAX_SHARE * self.base_ms
        if self.share(high, controller, rng.integers(1 << 30, size=4)) >= 0.5:
            return None
        while high / low > 1.04:
            middle = np.sqrt(low * high)
            if self.share(middle, controller, rng.integers(1 << 30, size=4)) < 0.5:
                high = middle
            else:
                low = middle
        return float(np.sqrt(low * high))


def drawn(rng):
    """Return a random `Case`."""
    family = rng.choice(["normal", "normal", "gamma", "lognormal"])
    process = rng.choice(["packet", "burst", "slot", "reorder"])
    per = f"slot:{rng.choice([2, 5, 10])}ms" if process == "slot" else "burst" if process == "burst" else "packet"
    shape = {"normal": 0.0, "gamma": rng.choice([1.0, 2.0, 4.0]), "lognormal": rng.uniform(0.4, 0.9)}[family]
    return Case(
        round(float(np.exp(rng.uniform(np.log(8), np.log(80)))), 2),
        round(float(np.exp(rng.uniform(np.log(8), np.log(80)))), 2),
        str(family),
        per,
        process == "reorder",
        float(shape),
        int(rng.choice([1, 2])),
    )


def collapse(options):
    """Print fitted thresholds against those that simulations show."""
    met = {}
    for run in range(options.first, options.first + options.runs):
        rng = np.random.default_rng(run)
        case = drawn(rng)
        name = f"{case.family} {'reorder' if case.reorder else case.per}"
        if not re.search(options.only, name):
            continue
        for controller in options.controllers.split(","):
            want = case.threshold_ms(controller, rng)
            sd_ms = rng.uniform(0.2, 0.8) * (want or 0.5 * case.base_ms)
            sender = cct.Sender(controller, ack_every=case.ack_every)
            flow = cct.simulate(case.path(sd_ms), sender, "15s", int(rng.integers(1 << 30)), packets=True)
            began = time.process_time()
            try:
                fit = cct.fit.Collapse([controller], quick=options.quick).fit(flow)
            except cct.fit.FitError as refusal:
                print(f"run {run} {controller} {name}: refused: {refusal}", flush=True)
                met.setdefault((controller, "refused"), []).append(True)
                continue
            took = time.process_time() - began
            got = fit.forecasts_[controller].threshold_sd_us
            met.setdefault((controller, "said no"), []).append(fit.forecasts_[controller].verdict == "no")
            sd_error = fit.sd_us_.value / 1e3 / sd_ms - 1
            text = (
                f"{name}, {case.rate_mbps:g} Mbit/s, {case.base_ms:g} ms, sd {sd_ms:.2f} ms ({100 * sd_error:+.0f} %)"
            )
            text += f", process {fit.process_}, {took:.1f} s"
            if want is None:
                held = got.high is None or got.high >= MAX_SHARE * case.base_ms * 1e3
                met.setdefault((controller, "none, and said so"), []).append(held)
                print(
                    f"run {run} {controller} {text}: none up to {case.base_ms:g} ms, fitted {got.scaled(1e-3).text()}"
                )
                continue
            value = got.value if got.value is not None else got.low
            error = np.log(value / 1e3 / want)
            held = (got.low or 0) <= want * 1e3 <= (got.high or np.inf)
            met.setdefault((controller, "within 20 %"), []).append(abs(np.expm1(error)) <= 0.2)
            met.setdefault((controller, "interval holds"), []).append(held)
            met.setdefault((controller, "error"), []).append(error)
            print(
                f"run {run} {controller} {text}: threshold {want:.2f} ms, fitted {got.scaled(1e-3).text()} "
                f"({100 * np.expm1(error):+.0f} %){'' if held else ' OUTSIDE'}",
                flush=True,
            )
    for (controller, what), values in met.items():
        if what == "error":
            text = f"median {100 * np.median(np.abs(values)):.1f} %, 90th percentile "
            print(f"{controller}: error {text}{100 * np.quantile(np.abs(values), 0.9):.1f} %")
        else:
            print(f"{controller}: {what} {np.sum(values)} of {len(values)}")


# --- intervals -------------------------------------------------------------------------------------------------------
def autoregressive(rng, n, rho):
    """Return a stationary series of unit variance."""
    noise = rng.standard_normal(n) * np.sqrt(1 - rho**2)
    noise[0] = rng.standard_normal()
    return signal.lfilter([1.0], [1.0, -rho], noise)


def hidden(rng, n, draws, together):
    """Return `Censored` delays of an order-preserving path, as a flow of 300 us a packet sees them."""
    departed = np.arange(n) * 300.0
    arrived = np.maximum.accumulate(departed + draws)
    told = arrived[together - 1 :: together]
    group = np.arange(len(told) * together) // together
    return Censored(told[group] - departed[: len(group)], group, np.diff(told, prepend=-1) > 1e-6)


def _draws(family, **truth):
    def of(rng, n):
        draws = {
            "normal": lambda: rng.normal(2e4, 1e3, n),
            "gamma": lambda: 1e4 + rng.gamma(2, 1e3, n),
            "lognormal": lambda: 1e4 + rng.lognormal(7, 0.6, n),
            "weibull": lambda: 1e4 + 2e3 * rng.weibull(1.5, n),
            "exponential": lambda: 1e4 + rng.exponential(1.5e3, n),
            "empirical": lambda: 1e4 + rng.gamma(2, 1e3, n),
        }[family]()
        fit = cct.fit.Jitter([family]).fit(draws)
        return {"sd": (fit.sd_us_, truth["sd"]), "mean": (fit.delay_us_, truth["mean"])}

    return of


def _hidden(together):
    def of(rng, n):
        fit = cct.fit.Jitter(["normal"])._fit(hidden(rng, n, rng.normal(2e4, 2e3, n), together), n)
        return {"sd": (fit.sd_us_, 2e3), "mean": (fit.delay_us_, 2e4)}

    return of


def _slot(rng, n):
    """Changes at the ends of some slots of 5 ms, each seen up to 300 us late."""
    grid = np.sort(rng.choice(max(n // 2, 100), max(n // 4, 50), replace=False))
    return {"slot": (slot_length(5e3 * grid + rng.uniform(0, 300, len(grid))), 5e3)}


def _mean(rho):
    def of(rng, n):
        return {"mean": (mean_of(2e4 + 1e3 * autoregressive(rng, n, rho)), 2e4)}

    return of


def _correlation(rng, n):
    series = autoregressive(rng, n, 0.9)
    return {"time": (correlation_time(series, 300.0), 300.0 * (0.5 + 0.9 / 0.1))}


CASES = {
    "normal": _draws("normal", sd=1e3, mean=2e4),
    "gamma": _draws("gamma", sd=1e3 * np.sqrt(2), mean=1.2e4),
    "lognormal": _draws("lognormal", sd=np.exp(7.18) * np.sqrt(np.expm1(0.36)), mean=1e4 + np.exp(7.18)),
    "weibull": _draws("weibull", sd=2e3 * 0.612937, mean=1e4 + 2e3 * 0.902745),
    "exponential": _draws("exponential", sd=1.5e3, mean=1.15e4),
    "without a family": _draws("empirical", sd=1e3 * np.sqrt(2), mean=1.2e4),
    "order kept": _hidden(1),
    "order kept, delayed ACKs": _hidden(2),
    "slot of 5 ms": _slot,
    "mean of independent delays": _mean(0.0),
    "mean of correlated delays, 0.9": _mean(0.9),
    "autocorrelation time, 0.9": _correlation,
}


def coverage(options):
    """Print how often 95 % intervals of the cheap estimators hold the truth, and their bias."""
    for name, case in CASES.items():
        if not re.search(options.only, name):
            continue
        found, began = {}, time.process_time()
        for run in range(options.first, options.first + options.runs):
            for what, (estimate, truth) in case(np.random.default_rng([run, 7]), options.samples).items():
                z = (estimate.low <= truth <= estimate.high, estimate.value / truth, truth < estimate.low)
                found.setdefault(what, []).append(z)
        for what, rows in found.items():
            held, ratio, above = np.array(rows, float).T
            print(
                f"{name}, {what}: {100 * held.mean():.1f} % of {len(held)} runs hold the truth "
                f"({100 * above.mean():.1f} % lie above it), bias {100 * (ratio.mean() - 1):+.2f} %, "
                f"{(time.process_time() - began) / len(held) * 1e3:.0f} ms a run",
                flush=True,
            )


COMMANDS = {"collapse": collapse, "coverage": coverage}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--only", default="", help="regular expression of the rows to run")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--samples", type=int, default=1000, help="of a run of coverage")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--controllers", default="bbr2016,bbr2022")
    parser.add_argument("--quick", action="store_true", help="as `cctrace analyze` fits")
    options = parser.parse_args()
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
