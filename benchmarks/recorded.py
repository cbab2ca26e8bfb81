"""Recordings of the real stack beside simulations of the same path and flows; `benchmarks/simulate.py recordings`."""

import json
import re
from dataclasses import replace
from pathlib import Path as FilePath

import numpy as np
import pandas as pd

from cctrace.cc import KERNEL_NAMES
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

WIRE = 1514 / 1500  # the lab's links carry bare IP packets, the simulation's Ethernet frames
QUIET_LAB = FilePath(__file__).with_name("quiet_lab.json")
RECORDED_FIGURES = {"goodput_mbps": (0, 0.05), "rtt_ms": (0, 0.10), "retransmitted": (5, 0.25)}  # absolute, relative


def simulated(scenario):
    """Whether a recording shows bulk flows over a path that `recorded_scenario` describes."""
    parameters = scenario["parameters"]
    if any(name in parameters for name in ("rev_jitter", "mahimahi", "rcvbuf", "burst")):
        return False
    if "fwd_delay" not in parameters:  # several machines
        return False
    return re.search("applimited|short_flows|midcapture", parameters["name"]) is None


def recorded_scenario(parameters):
    """Return (Path, list of Sender, duration) of a recording made by the lab."""
    forward_us, reverse_us = parameters["fwd_delay"], parameters["rev_delay"]
    late_us = parameters["late_us"]  # median; p99 is four times that: a gamma distribution of shape 2
    jitter = f"gamma:mean={1.19 * late_us}us,sd={0.84 * late_us}us"
    if "fwd_jitter" in parameters:
        kind, _, numbers = parameters["fwd_jitter"].partition(":")
        first, second, least = map(float, (numbers + ",0").split(",")[:3])
        order = ",reorder" if parameters.get("fwd_reorder") else ""
        if kind == "normal":
            forward_us += first - least  # below `least` the emulator drew again
            reverse_us += least
            jitter = f"normal:sd={second}us{order}" if second else jitter
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
        Sender(
            KERNEL_NAMES[flow["cc"]],
            start=f"{flow['start']}s",
            rtt=f"{forward_us + reverse_us + extra_us.get(str(flow['dport']), 0)}us",
            ack_every=2,
            hz=250,
        )
        for flow in parameters["flows"]
    ]
    return path, flows, f"{parameters['seconds']}s"


def stalls(folder, start_ns):
    """Return the [beginning, end) of the times at which the emulator delivered nothing, s since the flows' start.

    The lab's host stops its guests now and then. A row of queue.csv says how late a packet was in the 10 ms before it;
    a millisecond and more is taken for a stall that ended with the row.
    """
    rows = pd.read_csv(folder / "queue.csv.gz")
    rows = rows[(rows.late_max_us >= 1000) & (rows.time_ns > start_ns)]
    ends = (rows.time_ns - start_ns) / 1e9
    return np.column_stack([np.maximum(ends - rows.late_max_us / 1e6, 0), ends])


def stalling(path, times):
    """Return the path with stalls: what would arrive during one arrives at its end (in steps of half a millisecond)."""
    forward_ns = path.rtt_ns - path.reverse_ns
    steps = [(0.0, path.rtt_ns)]
    for begin, end in times - forward_ns / 1e9:  # a delay holds from when a packet leaves the queue
        for at in np.arange(max(begin, steps[-1][0] + 1e-6), end, 0.0005):
            steps.append((at, path.rtt_ns + int((end - at) * 1e9)))
        if end > steps[-1][0]:
            steps.append((end, path.rtt_ns))
    return replace(path, rtt=[(at, f"{ns}ns") for at, ns in steps])


def recording(file):
    """Return what a recording shows, for `quiet_lab.json`: its parameters and, per flow, what the kernel counted."""
    scenario = json.loads(file.read_text())
    late_us = scenario["run"]["pathem"]["forward"]["lateness_us"]["p50"]
    parameters, start_ns = scenario["parameters"] | {"late_us": late_us}, scenario["start_realtime_ns"]
    polls = pd.read_csv(file.parent / "tcpinfo.csv.zst")
    flows = []
    for flow in parameters["flows"]:
        kernel = polls[(polls.flow_id == flow["id"]) & (polls.time_ns < start_ns + flow["stop"] * 1e9)]
        per_second = scenario["check"]["flows"][str(flow["dport"])]["goodput_per_s_mbps"]
        flows.append(
            {
                "cc": flow["cc"],
                "goodput_mbps": round(float(np.mean(per_second)), 3),
                "rtt_ms": round(float(kernel.tcpi_rtt[kernel.tcpi_rtt > 0].mean()) / 1e3, 3),
                "retransmitted": int(kernel.tcpi_total_retrans.max()),
                "segments_sent": int(kernel.tcpi_data_segs_out.max()),
            }
        )
    return {
        "name": parameters["name"],
        "recorded": scenario["recorded"],
        "kernel": scenario["kernel"],
        "stalls_over_4ms": scenario["run"]["emulator_stalls"]["intervals_over_4ms"],
        "flows": flows,
        "parameters": parameters,
    }


def recorded(captures, only):
    """Return [(name, recordings of that scenario, folder)]; by default those of the quiet lab, repeats together."""
    if captures is not None:
        files = [f for f in sorted(captures.glob("*/scenario.json")) if re.search(only, f.parent.name)]
        return [(f.parent.name, [recording(f)], f.parent) for f in files if simulated(json.loads(f.read_text()))]
    rows = json.loads(QUIET_LAB.read_text())["recordings"]
    names = [name for name in dict.fromkeys(row["name"] for row in rows) if re.search(only, name)]
    return [(name, [row for row in rows if row["name"] == name], None) for name in names]


def within(got, expected, absolute, relative):
    return abs(got - expected) <= max(absolute, relative * abs(expected))


def compare_recordings(rows, seeds, stalled=()):
    """Simulate a recorded scenario; return a dict per flow: its means, those of the recordings `rows`, what misses."""
    path, flows, duration = recorded_scenario(rows[0]["parameters"])
    if len(stalled):
        path = stalling(path, stalled)
    runs = [simulate(path, flows, duration, s, sample="50ms") for s in range(1, seeds + 1)]
    compared = []
    for k in range(len(flows)):
        timelines = [run.timeline[(run.timeline.flow == k) & (run.timeline.srtt_us > 0)] for run in runs]
        mine = {
            "goodput_mbps": [run.flows.goodput_bps[k] / 1e6 for run in runs],
            "rtt_ms": [timeline.srtt_us.mean() / 1e3 for timeline in timelines],
            "retransmitted": [int(run.flows.retransmitted[k]) for run in runs],
        }
        theirs = {name: [row["flows"][k][name] for row in rows] for name in mine}
        misses = [
            name
            for name, (absolute, relative) in RECORDED_FIGURES.items()
            if not within(np.mean(mine[name]), np.mean(theirs[name]), absolute, relative)
        ]
        compared.append({"cc": rows[0]["flows"][k]["cc"], "mine": mine, "theirs": theirs, "misses": misses})
    return compared
