"""How near to the truth fits come, and how often their intervals hold it; one command per claim.

    python -m benchmarks.fit recordings [--captures DIR] [--only REGEX] [--seeds 3]
    python -m benchmarks.fit policers --captures DIR
    python -m benchmarks.fit coverage [--runs 200]

`recordings` compares `fit.path` with what the emulator of each recording was set to, and simulates the flow's own
controller over the fitted path. By default the recordings that ship with cctrace; DIR holds others of the same lab.
`coverage` draws delays and series of which the truth is known; that of paths is `benchmarks/fit_path.py`.
"""

import argparse
import json
import re
import time
from pathlib import Path as FilePath

import numpy as np
import pandas as pd

import cctrace as cct
from cctrace.cc import KERNEL_NAMES

WIRE = 1514 / 1500  # the lab's links carry bare IP packets, cct.Path counts Ethernet frames


# --- recordings ------------------------------------------------------------------------------------------------------
def truth(scenario):
    """Return what the emulator did, in the terms of `cct.Path`: rates, base RTT (jitter included), sd, process."""
    p = scenario["parameters"]
    base, sd, process = p["fwd_delay"] + p["rev_delay"], None, None
    for way, side in (("fwd", "forward"), ("rev", "reverse")):
        if p.get(f"{way}_jitter"):
            drawn = scenario["run"]["pathem"][side]["jitter_us"]
            base, sd = base + drawn["mean"], drawn["sd"]
            process = ("reorder" if p.get(f"{way}_reorder") else "packet") if sd > 0 else None
    steps = p.get("steps", [[0, p["rate"]]])
    return {
        "rate_bps": [(t, mbit * 1e6 * WIRE) for t, mbit in steps],
        "base_rtt_us": base,
        "buffer_bytes": p["buffer"] * WIRE,
        "loss": p.get("loss", 0.0),
        "sd_us": sd or 0.0,
        "process": process,
    }


def off(got, want):
    return 100 * (got / want - 1)


def judged(estimates, want):
    """Return {quantity: (text, met)} of a fitted path against the truth; tolerances are those of the issue."""
    found = {}
    rows = estimates["rate_bps"]
    if "rate" in estimates["undetermined"]:
        found["rate"] = ("undetermined", rows[0]["low"] <= 1.02 * want["rate_bps"][0][1])
    elif len(rows) == len(want["rate_bps"]):
        errors = [off(row["value"], rate) for row, (_, rate) in zip(rows, want["rate_bps"], strict=True)]
        worst = max(errors, key=abs)
        found["rate"] = (f"{worst:+.2f} %", abs(worst) <= 2)
        late = [row["start_s"] - at for row, (at, _) in zip(rows, want["rate_bps"], strict=True)][1:]
        if late:
            allowed = want["base_rtt_us"] / 1e6 + 0.2
            found["steps"] = (f"{max(late, key=abs):+.2f} s", max(map(abs, late)) <= allowed)
    else:
        found["rate"] = (f"{len(rows)} steps for {len(want['rate_bps'])}", False)
    base = off(estimates["base_rtt_us"].value, want["base_rtt_us"])
    found["base"] = (f"{base:+.2f} %", abs(base) <= 1)
    buffer = estimates["buffer_bytes"]
    if buffer.value is None:
        found["buffer"] = (f"over {buffer.low:.0f}", buffer.low <= 1.05 * want["buffer_bytes"])
    else:
        error = off(buffer.value, want["buffer_bytes"])
        found["buffer"] = (f"{error:+.1f} %", abs(error) <= 15)
    share = estimates["loss"]["share"].value
    near = abs(share - want["loss"]) <= max(0.2 * want["loss"], 0.001)
    found["loss"] = (f"{100 * share:.2f} % of {100 * want['loss']:.2f}", near)
    if want["process"]:
        jitter = estimates["jitter"] or {"sd_us": cct.fit.Estimate(0.0), "process": None}
        error = off(jitter["sd_us"].value, want["sd_us"])
        found["sd"] = (f"{error:+.1f} %", abs(error) <= 15)
        found["process"] = (str(jitter["process"]), jitter["process"] == want["process"])
    return found


def resimulated(fitted, scenario, flow, seeds):
    """Return {quantity: (text, met)} of the flow's own controller over the fitted path against what was recorded."""
    p = scenario["parameters"]
    (mine,) = [f for f in p["flows"] if f["dport"] == flow.key[3]]
    polls = pd.read_csv(flow.capture.packets.source.replace("sender.pcap.zst", "tcpinfo.csv.zst"))
    until = scenario["start_realtime_ns"] + mine["stop"] * 1e9
    polls = polls[(polls.flow_id == mine["id"]) & (polls.time_ns < until)]
    recorded = {
        "goodput": float(np.mean(scenario["check"]["flows"][str(mine["dport"])]["goodput_per_s_mbps"])),
        "rtt": float(polls.tcpi_rtt[polls.tcpi_rtt > 0].mean()) / 1e3,
        "again": float(polls.tcpi_total_retrans.max() / polls.tcpi_data_segs_out.max()),
    }
    runs = []
    for seed in range(1, seeds + 1):
        sender = cct.Sender(KERNEL_NAMES[mine["cc"]], ack_every=2, hz=250)
        sim = cct.simulate(fitted, sender, f"{p['seconds']}s", seed, sample="50ms")
        srtt = sim.timeline.srtt_us[sim.timeline.srtt_us > 0].mean() / 1e3
        runs.append((sim.flows.goodput_bps[0] / 1e6, srtt, sim.flows.retransmit_ratio[0]))
    goodput, rtt, again = np.mean(runs, axis=0)
    return {
        "goodput again": (f"{off(goodput, recorded['goodput']):+.1f} %", abs(off(goodput, recorded["goodput"])) <= 5),
        "rtt again": (f"{off(rtt, recorded['rtt']):+.1f} %", abs(off(rtt, recorded["rtt"])) <= 10),
        "retransmitted again": (
            f"{100 * again:.2f} % for {100 * recorded['again']:.2f}",
            abs(again - recorded["again"]) <= max(0.3 * recorded["again"], 0.003),
        ),
    }


def recordings(options):
    root = options.captures or cct.datasets.path("single_bbr_1bdp").parent
    met, total = {}, {}
    for folder in sorted(root.glob("*/scenario.json")):
        scenario = json.loads(folder.read_text())
        p = scenario["parameters"]
        if p.get("topo") != "tun" or "mahimahi" in p or not re.search(options.only, p["name"]):
            continue
        for flow in cct.read(str(folder.parent / "sender.pcap.zst")).bulk():
            began = time.process_time()
            try:
                fitted = cct.fit.path(flow)
            except cct.fit.FitError as refusal:
                print(f"{p['name']} {flow.key[3]}: refused: {refusal}")
                continue
            took = time.process_time() - began
            want = truth(scenario)
            want["base_rtt_us"] += p.get("flow_delay", {}).get(str(flow.key[3]), 0)
            found = judged(fitted.estimates, want)
            bulk = "mode" not in p["flows"][0] and not any(
                name in p for name in ("rcvbuf", "rev_jitter", "capture_delay")
            )
            if options.seeds and bulk and len(p["flows"]) == 1:
                found |= resimulated(fitted, scenario, flow, options.seeds)
            for name, (_, good) in found.items():
                met[name], total[name] = met.get(name, 0) + bool(good), total.get(name, 0) + 1
            texts = (f"{name} {text}{'' if good else ' MISS'}" for name, (text, good) in found.items())
            print(f"{p['name']} {flow.key[3]}: {took:.1f} s, {', '.join(texts)}", flush=True)
    print("within tolerance: " + ", ".join(f"{name} {met[name]} of {total[name]}" for name in total))


# --- policers --------------------------------------------------------------------------------------------------------
FRAME = 1518 / 1514  # the router of these captures counts Ethernet frames with their check sequence


def policers(options):
    """Print policed rate and bucket of every capture of DIR (truth in its name) against the truth."""
    rates, buckets, found, policed, false = [], [], 0, 0, 0
    for file in sorted(options.captures.glob("*.pcap*")):
        named = {key: int(value) for key, value in re.findall(r"-([PS](?:CIR|BC))=(\d+)", file.name)}
        flow = cct.read(str(file)).bulk()[0]
        policer = cct.fit.path(flow).estimates["policer"]
        if "PCIR" not in named:
            false += policer is not None
            continue
        policed += 1
        if policer is None:
            print(f"{named}: no policer found")
            continue
        found += 1
        rates.append(abs(off(policer["rate_bps"].value * FRAME, named["PCIR"])))
        text = f"rate {off(policer['rate_bps'].value * FRAME, named['PCIR']):+.2f} %"
        if "PBC" in named:
            buckets.append(abs(off(policer["bucket_bytes"].value * FRAME, named["PBC"])))
            text += f", bucket {off(policer['bucket_bytes'].value * FRAME, named['PBC']):+.1f} %"
        print(f"{named}: {text}", flush=True)
    good = np.sum(np.array(buckets) <= 15)
    print(
        f"found {found} of {policed} policers, {false} false alarms; rate error median {np.median(rates):.2f} %, "
        f"p90 {np.quantile(rates, 0.9):.2f} %; bucket within 15 % for {good} of {len(buckets)}"
    )


# --- coverage --------------------------------------------------------------------------------------------------------
def ordered_delays(rng, n, sd, together):
    """Return `Censored` delays of an order-preserving path as a flow of 300 us a packet sees them."""
    from cctrace.fit.censored import Censored

    departed = np.arange(n) * 300.0
    arrived = np.maximum.accumulate(departed + rng.normal(20_000, sd, n))
    told = arrived[together - 1 :: together]
    group = np.arange(len(told) * together) // together
    return Censored(told[group] - departed[: len(group)], group, np.diff(told, prepend=-1) > 1e-6)


def coverage(options):
    """Print how often 95 % intervals of the cheap estimators hold the truth, and their bias at 10,000 samples."""
    cases = {
        "Jitter sd, independent normal": lambda rng: (
            cct.fit.Jitter(["normal"]).fit(rng.normal(2e4, 1e3, 10_000)),
            1e3,
        ),
        "Jitter sd, independent gamma": lambda rng: (
            cct.fit.Jitter(["gamma"]).fit(1e4 + rng.gamma(2, 1e3, 10_000)),
            1e3 * np.sqrt(2),
        ),
        "Jitter sd, order kept": lambda rng: (_fitted(ordered_delays(rng, 10_000, 2e3, 1)), 2e3),
        "Jitter sd, order kept, delayed ACKs": lambda rng: (_fitted(ordered_delays(rng, 10_000, 2e3, 2)), 2e3),
    }
    for name, case in cases.items():
        if not re.search(options.only, name):
            continue
        held, values = 0, []
        for run in range(options.runs):
            fit, sd = case(np.random.default_rng(run))
            held += fit.sd_us_.low <= sd <= fit.sd_us_.high
            values.append(fit.sd_us_.value / sd)
        print(
            f"{name}: interval holds the truth in {100 * held / options.runs:.1f} % of {options.runs} runs, "
            f"bias {100 * (np.mean(values) - 1):+.2f} %",
            flush=True,
        )


def _fitted(data):
    return cct.fit.Jitter(["normal"])._fit(data, len(data.event))


COMMANDS = {"recordings": recordings, "policers": policers, "coverage": coverage}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--captures", type=FilePath)
    parser.add_argument("--only", default="", help="regular expression of the rows to run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
