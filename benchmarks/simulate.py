"""How true and how fast the simulation is; one command per claim.

    python benchmarks/simulate.py closed-loop --vectors DIR [--only REGEX] [--seeds 5]
    python benchmarks/simulate.py competition --vectors DIR
    python benchmarks/simulate.py reordering  --vectors DIR
    python benchmarks/simulate.py recordings  --captures DIR
    python benchmarks/simulate.py speed

DIR holds the golden vectors' summaries (`closed_loop_summary.csv`, ...) or the recordings of the real stack. Each
command prints the rows that miss their tolerance and the share that meets it; the tolerances are those of the issue
that asked for the simulation.
"""

import argparse
import json
import re
import time
from pathlib import Path as FilePath

import numpy as np
import pandas as pd

from cctrace.engine.path import Path
from cctrace.engine.sim.flow import Flow
from cctrace.engine.simulate import simulate

JITTER_PER = {"": "packet", "b": "burst", "c": "slot:5ms"}


def controller_name(variant):
    """`obbr_mu0.5` -> `obbr:mu=0.5`; bbr2l20 is bbr2 with a loss threshold of 20 %."""
    if variant == "bbr2l20":
        return "bbr2:loss_thresh=0.2"
    return re.sub(r"^obbr_mu", "obbr:mu=", variant)


# --- single flows ---------------------------------------------------------------------------------------------------


def closed_loop_scenario(name):
    """Return (Path arguments, duration, Flow arguments) of a row of closed_loop_summary.csv, None if it is another."""
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


def within(got, expected, absolute, relative):
    return abs(got - expected) <= max(absolute, relative * abs(expected))


def three_errors(mine, theirs):
    """Return three standard errors of the difference of two means over seeds."""
    return 3 * np.sqrt(theirs.var(ddof=1) / len(theirs) + mine.var(ddof=1) / len(mine))


def closed_loop(options):
    summary = pd.read_csv(options.vectors / "closed_loop_summary.csv")
    met = total = noisy = 0
    for (variant, scenario), rows in summary.groupby(["algorithm", "scenario"]):
        if closed_loop_scenario(scenario) is None or not re.search(options.only, f"{variant}/{scenario}"):
            continue
        runs = pd.DataFrame([run_single(scenario, variant, s, "reference") for s in range(1, options.seeds + 1)])
        goodput, expected = runs.goodput_bps.mean() / 1e6, rows.thr_mbps.mean()
        error = three_errors(runs.goodput_bps / 1e6, rows.thr_mbps)
        lost, expected_lost = runs.retransmit_ratio.mean(), rows.retx_ratio.mean()
        queue, expected_queue = runs.tail_queue_delay_mean_us.mean() / 1e3, rows.qdelay_mean_ms.mean()
        misses = [
            name
            for name, ok in (
                ("goodput", within(goodput, expected, error, 0.03)),
                ("retransmissions", within(lost, expected_lost, 0.003, 0.15)),
                ("queue", within(queue, expected_queue, 1.0, 0.1)),
            )
            if not ok
        ]
        noise = (
            abs(goodput - expected) <= max(error, 0.03 * expected)
            and within(lost, expected_lost, max(0.003, three_errors(runs.retransmit_ratio, rows.retx_ratio)), 0.15)
            and within(
                queue,
                expected_queue,
                max(1, three_errors(runs.tail_queue_delay_mean_us / 1e3, rows.qdelay_mean_ms)),
                0.1,
            )
        )
        met, total, noisy = met + (not misses), total + 1, noisy + bool(misses and noise)
        if misses:
            print(
                f"{variant:12s} {scenario:20s} goodput {goodput:8.2f} {expected:8.2f} Mbit/s  retransmitted {lost:.4f} "
                f"{expected_lost:.4f}  queue {queue:7.2f} {expected_queue:7.2f} ms  {' '.join(misses)}"
                f"{' (noise)' if noise else ''}",
                flush=True,
            )
    print(f"closed loop: {met} of {total} pairs (variant, scenario) met, {noisy} more within 3 standard errors")


# --- several flows --------------------------------------------------------------------------------------------------


def competition_scenario(name):
    """Return (Path arguments, duration in s, start of the tail in s, Flow arguments) of a row of the summary."""
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
    """Return share and retransmit ratio of each flow over the tail."""
    path, duration, tail, common = competition_scenario(scenario)
    flows = [
        Flow(controller_name(r.algorithm), start=f"{r.start_s}s", rtt=f"{r.base_rtt_ms}ms") for r in rows.itertuples()
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
        by_seed = [g for _, g in rows.groupby("seed")][: options.seeds]
        runs = [run_competition(scenario, g, int(g.seed.iloc[0])) for g in by_seed]
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

WIRE = 1514 / 1500  # the lab's links carry bare IP packets, the simulation's Ethernet frames
KERNEL_NAMES = {"bbr": "bbr2022", "cubic": "cubic6", "reno": "reno"}


def recorded_scenario(parameters):
    """Return (Path, list of Flow, duration) of a recording made by the lab; None if it shows something else."""
    names = ("rev_jitter", "mahimahi", "rcvbuf", "burst")
    if any(name in parameters for name in names) or "applimited" in parameters["name"]:
        return None
    if "short_flows" in parameters["name"] or "midcapture" in parameters["name"]:
        return None
    forward_us, reverse_us = parameters["fwd_delay"], parameters["rev_delay"]
    jitter = None
    if "fwd_jitter" in parameters:
        kind, _, numbers = parameters["fwd_jitter"].partition(":")
        first, second = map(float, numbers.split(",")[:2])
        order = ",reorder" if parameters.get("fwd_reorder") else ""
        if kind == "normal":
            forward_us += first
            jitter = f"normal:sd={second}us{order}" if second else None
        else:
            jitter = f"gamma:mean={first * second}us,sd={first**0.5 * second}us{order}"
    rate = parameters.get("steps", [[0, parameters["rate"]]])
    path = Path(
        rate=[(t, mbit * 1e6 * WIRE) for t, mbit in rate],
        rtt=f"{forward_us + reverse_us}us",
        reverse=f"{reverse_us}us",
        buffer=f"{parameters['buffer'] * WIRE:.0f}B",
        jitter=jitter,
        loss=f"{100 * parameters.get('loss', 0)}%",
    )
    extra_us = parameters.get("flow_delay", {})
    flows = [
        Flow(
            KERNEL_NAMES[flow["cc"]],
            start=f"{flow['start']}s",
            rtt=f"{forward_us + reverse_us + extra_us.get(str(flow['dport']), 0)}us",
            ack_every=2,
            hz=250,
        )
        for flow in parameters["flows"]
    ]
    return path, flows, f"{parameters['seconds']}s"


def recordings(options):
    met = total = 0
    for file in sorted(options.captures.glob("*/scenario.json")):
        scenario = json.loads(file.read_text())
        found = recorded_scenario(scenario["parameters"])
        if found is None or not re.search(options.only, file.parent.name):
            continue
        path, flows, duration = found
        runs = [simulate(path, flows, duration, s, sample="10ms") for s in range(1, options.seeds + 1)]
        for k, flow in enumerate(scenario["parameters"]["flows"]):
            kernel, seen = scenario["check"]["tcpinfo"][str(k)], scenario["check"]["flows"][str(flow["dport"])]
            each = [run.flows.goodput_bps[k] / 1e6 for run in runs]
            goodput, recorded = np.mean(each), np.mean(seen["goodput_per_s_mbps"])
            srtt = np.mean(
                [run.timeline[(run.timeline.flow == k) & (run.timeline.srtt_us > 0)].srtt_us.mean() for run in runs]
            )
            lost = np.mean([run.flows.retransmitted[k] for run in runs])
            checks = {
                "goodput": within(goodput, recorded, 0, 0.05),
                "RTT": within(srtt, kernel["srtt_us_mean"], 0, 0.10),
                "retransmissions": within(lost, kernel["total_retrans"], 5, 0.25),
            }
            met, total = met + all(checks.values()), total + 1
            misses = " ".join(name for name, good in checks.items() if not good)
            print(
                f"{file.parent.name:32s} {flow['cc']:6s} "
                f"goodput {goodput:6.2f} ({min(each):.1f} to {max(each):.1f}) {recorded:6.2f} Mbit/s  "
                f"RTT {srtt / 1e3:7.2f} {kernel['srtt_us_mean'] / 1e3:7.2f} ms  "
                f"retransmitted {lost:7.1f} {kernel['total_retrans']:5d}  {misses}",
                flush=True,
            )
    print(f"recordings: {met} of {total} flows within tolerance")


# --- speed ----------------------------------------------------------------------------------------------------------


def speed(options):
    fast = Path(rate="1Gbit", rtt="20ms", buffer="2bdp")
    mixed = [Flow(cc, start=f"{k / 20}s") for k, cc in enumerate(["bbr2022", "cubic", "bbr2", "quic_bbr"] * 5)]
    for title, flows, profile in (
        ("one bbr2022 flow, reference", "bbr2022", "reference"),
        ("one bbr2022 flow, linux", "bbr2022", "linux"),
        ("20 mixed flows, reference", mixed, "reference"),
        ("20 mixed flows, linux", mixed, "linux"),
    ):
        simulate(fast, flows, "10ms", profile=profile)  # compiles
        began = time.process_time()
        sent = simulate(fast, flows, "20s", profile=profile).flows.sent.sum()
        print(f"{title:30s} {sent / (time.process_time() - began) / 1e6:6.2f} million packets/s of CPU time")


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
    options = parser.parse_args()
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
