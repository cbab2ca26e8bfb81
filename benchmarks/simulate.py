"""How true and how fast the simulation is; one command per claim.

    python -m benchmarks.simulate closed-loop --vectors DIR [--only REGEX] [--seeds 5] [--own]
    python -m benchmarks.simulate competition --vectors DIR
    python -m benchmarks.simulate reordering  --vectors DIR
    python -m benchmarks.simulate recordings  [--captures DIR]
    python -m benchmarks.simulate speed

DIR holds the golden vectors' summaries (`closed_loop_summary.csv`, ...) or recordings of the real stack (by default
what recordings of a quiet lab showed, `quiet_lab.json`). Each command prints the rows that miss their tolerance and the
share that meets it; the tolerances are those of the issue that asked for the simulation.
"""

import argparse
import json
import re
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path as FilePath

import numpy as np
import pandas as pd

from benchmarks.recorded import compare_recordings, recorded, stalls, within
from cctrace.sim.batch import Run, batch, cores
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

SHORT_RUNS, ROUNDS = 48, 9  # of a batch, half a second of one core; of the batches measured in turn
JITTER_PER = {"": "packet", "b": "burst", "c": "slot:5ms"}


def controller_name(variant):
    """`obbr_mu0.5` -> `obbr:mu=0.5`; bbr2l20 is bbr2 with a loss threshold of 20 %."""
    if variant == "bbr2l20":
        return "bbr2:loss_thresh=0.2"
    return re.sub(r"^obbr_mu", "obbr:mu=", variant)


# --- single flows ---------------------------------------------------------------------------------------------------


def closed_loop_scenario(name):
    """Return (Path arguments, duration, Sender arguments) of a row of closed_loop_summary.csv, None for another."""
    if name.startswith("pre"):  # the same with the jitter before the queue
        path, *rest = closed_loop_scenario(name.removeprefix("pre"))
        jitter = path.pop("jitter")
        return path | {"jitter_before": jitter}, *rest
    kind, _, rest = name.partition("_")
    forty = {"rate": "40Mbit", "rtt": "40ms"}
    if kind in ("clean", "cleanda"):
        return forty | {"buffer": f"{rest}bdp"}, "40s", {"ack_every": 2 if kind == "cleanda" else 1}
    if kind == "slow":
        return {"rate": "5Mbit", "rtt": "40ms", "buffer": f"{rest}bdp"}, "60s", {}
    if kind == "shal":
        return {"rate": "100Mbit", "rtt": "40ms", "buffer": "0.25bdp", "loss": f"{rest}%"}, "40s", {}
    if kind == "loss":
        return forty | {"buffer": "16bdp", "loss": f"{rest}%"}, "40s", {}
    if found := re.fullmatch(r"(kumar|jit40|reokumar|reo40)([bc]?)", kind):
        jitter = f"normal:sd={rest}ms,per={JITTER_PER[found[2]]}" + (",reorder" if kind.startswith("reo") else "")
        random = {"jitter": jitter} if float(rest) > 0 else {}
        if "kumar" in kind:
            return {"rate": "1Gbit", "rtt": "5ms", "buffer": "10bdp"} | random, "30s", {"ack_every": 2}
        return forty | {"buffer": "8bdp"} | random, "60s", {}
    if found := re.fullmatch(r"(jit|reo)(\d+)x(\d+)([bc]?)", kind):
        jitter = f"normal:sd={rest}ms,per={JITTER_PER[found[4]]}" + (",reorder" if found[1] == "reo" else "")
        return {"rate": f"{found[2]}Mbit", "rtt": f"{found[3]}ms", "buffer": "8bdp", "jitter": jitter}, "60s", {}
    if kind == "step":
        before, after = rest.split("_")
        return {"rate": [(0, f"{before}Mbit"), (10, f"{after}Mbit")], "rtt": "100ms", "buffer": "200kB"}, "40s", {}
    if kind == "gen":
        rate, rtt, size, loss = rest.split("_")
        return {"rate": f"{rate}Mbit", "rtt": f"{rtt}ms", "buffer": f"{size}kB", "loss": f"{loss}%"}, "60s", {}
    if kind == "osc":
        rates = [(t, "40Mbit" if t % 20 == 0 else "10Mbit") for t in range(0, 60, 10)]
        return {"rate": rates, "rtt": "100ms", "buffer": "300kB"}, "60s", {}
    if kind == "blackout":
        rates = [(0, "10Mbit")]
        for start, end in ((5, 8), (15, 15.6), (22, 27)):
            rates += [(start, "10kbit"), (end, "10Mbit")]
        return {"rate": rates, "rtt": "40ms", "buffer": "8bdp"}, "40s", {}
    return None


def run_single(scenario, variant, seed, profile):
    path, duration, flow = closed_loop_scenario(scenario)
    sim = simulate(Path(**path), controller_name(variant), duration, seed, profile=profile, **flow)
    return sim.flows.iloc[0]


def three_errors(mine, theirs):
    """Return three standard errors of the difference of two means over seeds."""
    return 3 * np.sqrt(theirs.var(ddof=1) / len(theirs) + mine.var(ddof=1) / len(mine))


def differences(runs, rows):
    """Return (differences of goodput, retransmissions, queue; those of them that are beyond 3 standard errors).

    `runs` and `rows` have the columns of `FIGURES`, one row per seed. For goodput alone the issue allows the errors.
    """
    strict, beyond = [], []
    for name, (absolute, relative) in FIGURES.items():
        got, expected = runs[name].mean(), rows[name].mean()
        error = three_errors(runs[name], rows[name])
        if not within(got, expected, max(absolute, error if name == "goodput" else 0), relative):
            strict.append(name)
        if not within(got, expected, max(absolute, error), relative):
            beyond.append(name)
    return strict, beyond


# Tolerances of the issue: absolute (Mbit/s, share, ms), relative.
FIGURES = {"goodput": (0, 0.03), "retransmitted": (0.003, 0.15), "queue": (1.0, 0.1)}
# Columns of the table that a run of the same seed should have to the packet, and what `Simulation.flows` calls them.
COUNTS = {"n_sent": "sent", "n_retx": "retransmitted", "drops_queue": "dropped", "drops_random": "lost"}


def closed_loop_runs(scenario, variant, seeds):
    """Return a table with the columns of `FIGURES` and `COUNTS`, a row per seed."""
    each = [run_single(scenario, variant, s, "reference") for s in seeds]
    return pd.DataFrame(
        {
            "goodput": [r.goodput_bps / 1e6 for r in each],
            "retransmitted": [r.retransmit_ratio for r in each],
            "queue": [r.tail_queue_delay_mean_us / 1e3 for r in each],
        }
        | {column: [r[name] for r in each] for column, name in COUNTS.items()},
        index=pd.Index(seeds, name="seed"),
    )


def closed_loop(options):
    summary = pd.read_csv(options.vectors / "closed_loop_summary.csv")
    summary = summary.rename(columns=dict(zip(("thr_mbps", "retx_ratio", "qdelay_mean_ms"), FIGURES, strict=True)))
    met = total = noisy = alike = compared_runs = 0
    for (variant, scenario), rows in summary.groupby(["algorithm", "scenario"]):
        if closed_loop_scenario(scenario) is None or not re.search(options.only, f"{variant}/{scenario}"):
            continue
        runs = closed_loop_runs(scenario, variant, range(1, options.seeds + 1))
        if options.own:
            rows = closed_loop_runs(scenario, variant, range(options.seeds + 1, 2 * options.seeds + 1)).reset_index()
        same_seeds = runs[list(COUNTS)].eq(rows.set_index("seed")[list(COUNTS)]).loc[runs.index.intersection(rows.seed)]
        alike, compared_runs = alike + same_seeds.all(axis=1).sum(), compared_runs + len(same_seeds)
        misses, beyond = differences(runs, rows)
        met, total, noisy = met + (not misses), total + 1, noisy + bool(misses and not beyond)
        if misses:
            compared = "  ".join(f"{name} {runs[name].mean():.4g} {rows[name].mean():.4g}" for name in FIGURES)
            print(
                f"{variant:12s} {scenario:20s} {compared}  {' '.join(misses)}{'' if beyond else ' (noise)'}", flush=True
            )
    print(
        f"closed loop: {met} of {total} pairs (variant, scenario) met, {noisy} more within 3 standard errors; "
        f"{alike} of {compared_runs} runs of equal seeds sent, retransmitted and lost the same numbers of packets"
    )


# --- several flows --------------------------------------------------------------------------------------------------


def competition_scenario(name):
    """Return (Path arguments, duration in s, start of the tail in s, Sender arguments) of a row of the summary."""
    kind, _, rest = name.partition("_")
    size = float(re.search(r"_[BR]([\d.]+)$", name)[1])
    path = {"rate": "40Mbit", "rtt": "40ms", "buffer": f"{size}bdp"}
    duration = 180
    if kind.startswith("p2"):
        path["buffer"] = f"{size * 40e6 / 8 * 0.15:.0f}B"
    elif kind.startswith(("p3", "x6")):
        rate, rtt, duration = ("100Mbit", "40ms", 180) if "fig8" in rest else ("40Mbit", "100ms", 180)
        if "fig3" in rest or kind.startswith("x6"):
            rate, rtt, duration = "20Mbit", "40ms", 540
        path = {"rate": rate, "rtt": rtt, "buffer": f"{size}bdp"}
    elif kind.startswith("p4"):
        path["rate"], duration = "100Mbit", 240
    elif kind == "p1long":
        duration = 600
    flow = {}
    if kind.endswith(("j", "jd2")) and not kind.endswith("tj"):
        path["jitter"] = "normal:sd=0.04ms" if kind == "p4j" else "normal:sd=0.1ms"
    if kind.endswith("tj"):
        flow["push_late"] = "1ms"
    if kind.endswith("d2"):
        flow["ack_every"] = 2
    return path, duration, 60, flow


def run_competition(scenario, rows, seed):
    """Return share and retransmit ratio of each flow over the tail.

    The table rounds starts to milliseconds. What it rounds away decides on which step of the other's 3 ms timer a QUIC
    flow sends, so it is drawn.
    """
    path, duration, tail, common = competition_scenario(scenario)
    lost_ms = np.random.default_rng(seed).uniform(0, 1, len(rows)) - 0.5
    starts = np.maximum(rows.start_s + lost_ms / 1e3, 0)
    flows = [
        Sender(controller_name(r.algorithm), start=f"{start:.6f}s", rtt=f"{r.base_rtt_ms}ms")
        for r, start in zip(rows.itertuples(), starts, strict=True)
    ]
    sim = simulate(Path(**path), flows, f"{duration}s", seed, sample=f"{tail}s", profile="reference", **common)
    wide = sim.timeline.pivot_table(index="time_s", columns="flow")
    counted = wide.iloc[-1] - wide.loc[float(tail)]
    sizes = counted["delivered_segments"]
    return (sizes / sizes.sum()).to_numpy(), (counted["retransmitted_segments"] / counted["sent_segments"]).to_numpy()


def competition(options):
    summary = pd.read_csv(options.vectors / "competition_summary.csv")
    met = total = 0
    for scenario, rows in summary.groupby("scenario"):
        if not re.search(options.only, scenario):
            continue
        by_seed = [g for _, g in rows.groupby("seed")]
        runs = [run_competition(scenario, by_seed[k % len(by_seed)], k + 1) for k in range(options.seeds)]
        names = by_seed[0].algorithm.to_numpy()
        rtts = by_seed[0].base_rtt_ms.to_numpy()
        for key in dict.fromkeys(zip(names, rtts, strict=True)):
            mine = (names == key[0]) & (rtts == key[1])
            want = rows[(rows.algorithm == key[0]) & (rows.base_rtt_ms == key[1])]
            share = np.mean([r[0][mine] for r in runs])
            lost = np.mean([r[1][mine] for r in runs])
            good = within(share, want.share.mean(), 0.07, 0) and within(lost, want.retx_ratio.mean(), 0.005, 0.2)
            met, total = met + good, total + 1
            if not good:
                print(
                    f"{scenario:42s} {key[0]:12s} {key[1]:4d} ms  share {share:.3f} {want.share.mean():.3f}  "
                    f"retransmitted {lost:.4f} {want.retx_ratio.mean():.4f}",
                    flush=True,
                )
    print(f"competition: {met} of {total} (scenario, flow) pairs within tolerance")


# --- reordering -----------------------------------------------------------------------------------------------------


def reordering(options):
    summary = pd.read_csv(options.vectors / "reorder_summary.csv")
    met = total = 0
    for (scenario, variant), rows in summary.groupby(["scenario", "algorithm"]):
        if not re.search(options.only, f"{variant}/{scenario}"):
            continue
        runs = pd.DataFrame([run_single(scenario, variant, s, "linux") for s in range(1, options.seeds + 1)])
        goodput, expected = runs.goodput_bps.mean() / 1e6, rows.goodput_mbps.mean()
        link = 1000 if "kumar" in scenario else 40
        good = within(goodput, expected, 0.05 * link, 0.15)
        met, total = met + good, total + 1
        print(
            f"{variant:10s} {scenario:14s} goodput {goodput:8.2f} {expected:8.2f} Mbit/s  retransmitted "
            f"{runs.retransmit_ratio.mean():.4f} {rows.retx_ratio.mean():.4f}{'' if good else '  MISS'}",
            flush=True,
        )
    print(f"reordering: {met} of {total} (variant, scenario) pairs within tolerance")


# --- recordings of the real stack -----------------------------------------------------------------------------------


def mean_and_range(values, digits):
    text = f"{np.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def recordings(options):
    met = total = 0
    for name, rows, folder in recorded(options.captures, options.only):
        stalled = ()
        if folder is not None and not options.undisturbed:
            stalled = stalls(folder, json.loads((folder / "scenario.json").read_text())["start_realtime_ns"])
        for flow in compare_recordings(rows, options.seeds, stalled):
            met, total = met + (not flow["misses"]), total + 1
            print(f"{name} {flow['cc']}, {len(rows)} recorded", *(f"MISS {miss}" for miss in flow["misses"]))
            for figure, digits in (("goodput_mbps", 2), ("rtt_ms", 1), ("retransmitted", 0)):
                pair = (mean_and_range(flow[side][figure], digits) for side in ("mine", "theirs"))
                print(f"    {figure:14s} {next(pair):32s} recorded {next(pair)}", flush=True)
    print(f"recordings: {met} of {total} flows within tolerance")


# --- speed ----------------------------------------------------------------------------------------------------------


def speed(options):
    fast = Path(rate="1Gbit", rtt="20ms", buffer="2bdp")
    mixed = [Sender(cc, start=f"{k / 20}s") for k, cc in enumerate(["bbr2022", "cubic", "bbr2", "quic_bbr"] * 5)]
    for title, flows, profile in (
        ("one bbr2022 flow, reference", "bbr2022", "reference"),
        ("one bbr2022 flow, linux", "bbr2022", "linux"),
        ("20 mixed flows, reference", mixed, "reference"),
        ("20 mixed flows, linux", mixed, "linux"),
    ):
        simulate(fast, flows, "10ms", profile=profile)  # compiles
        began = time.thread_time()  # OpenBLAS's threads, which spin once created, have up to a third of the process's
        sent = simulate(fast, flows, "20s", profile=profile).flows.sent.sum()
        print(f"{title:30s} {sent / (time.thread_time() - began) / 1e6:6.2f} million packets/s of CPU time")
    count = cores()
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:  # processes share nothing: what the cores can do

        def apart():
            return sum(pool.map(rate_of_short_runs, [1] * count, [time.time() + 0.1] * count))

        ways = (lambda: rate_of_short_runs(1), lambda: rate_of_short_runs(count), apart)
        rates = np.array([[rate() for rate in ways] for _ in range(1 + ROUNDS)])[1:]  # the first round compiles
    medians, times = np.median(rates, axis=0), np.median(rates / rates[:, :1], axis=0)
    print(f"{f'{SHORT_RUNS} short runs on one core':30s} {medians[0]:6.2f} million packets/s on the clock")
    for title, median, more in zip((f"on {count} cores", f"in {count} processes"), medians[1:], times[1:], strict=True):
        print(f"{f'{SHORT_RUNS} short runs {title}':30s} {median:6.2f} ({more:.2f} times as many)")


def rate_of_short_runs(workers, began=0.0):
    """Return how many million packets a second a batch sends: draws of a path, 20 s of each; from a time on."""
    paths = [
        Path(rate=f"{40 + k % 12}Mbit", rtt="40ms", buffer="2bdp", jitter="normal:sd=1ms") for k in range(SHORT_RUNS)
    ]
    runs = [Run(path, (Sender("bbr2022", ack_every=2),), "20s", seed) for seed, path in enumerate(paths)]
    time.sleep(max(began - time.time(), 0))
    began = time.perf_counter()
    sent = sum(outcome.flows[0]["sent"] for outcome in batch(runs, workers))
    return sent / (time.perf_counter() - began) / 1e6


COMMANDS = {
    "closed-loop": closed_loop,
    "competition": competition,
    "reordering": reordering,
    "recordings": recordings,
    "speed": speed,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--vectors", type=FilePath)
    parser.add_argument("--captures", type=FilePath)
    parser.add_argument("--only", default="", help="regular expression of the rows to run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--own", action="store_true", help="closed-loop: against as many runs of our own with other seeds"
    )
    parser.add_argument("--undisturbed", action="store_true", help="recordings: leave out the stalls of the lab's host")
    options = parser.parse_args()
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
