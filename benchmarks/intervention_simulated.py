"""Simulate the recordings of `benchmarks.intervention_bases` that a simulator can make: truth that costs a second.

    python -m benchmarks.intervention_simulated list.json DIR [--rates 0.35]

DIR has the layout that `benchmarks.interventions` reads. There are no counters, no other AQM than CoDel, and the
simulator errs as the one that predicts does: what is fitted to such truth is judged on kernels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path as File
from typing import Any

import cctrace as cct
from benchmarks.intervention_bases import WINDOW_PER_RCVBUF
from cctrace.counterfactual.figures import FIGURES
from cctrace.errors import ArgumentError
from cctrace.sim.jitter import Jitter

FIRST_SPORT = 50_000  # of `Simulation.to_pcap`
CONTROLLERS = {("bbr", "linux-bbr3"): "bbr3", ("bbr", "linux-bbr1"): "bbr2022", ("cubic", ""): "cubic6"}
EARLY_SHARES = 1000  # delays of which an empirical jitter draws one


def scaled(one: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return a scenario with rates and sizes times a factor: the same in BDPs, with fewer packets."""

    def times(value: Any) -> Any:
        return type(value)(value * factor)

    found = one | {name: times(one[name]) for name in ("rate", "buffer", "rcvbuf") if name in one}
    if "steps" in one:
        found["steps"] = [[start, times(rate)] for start, rate in one["steps"]]
    if "policer" in one:
        found["policer"] = {name: times(value) for name, value in one["policer"].items()}
    names = ("sndbuf", "chunk_bytes", "max_pacing_rate")
    found["flows"] = [flow | {name: times(flow[name]) for name in names if name in flow} for flow in one["flows"]]
    return found


def path_of(one: dict[str, Any]) -> cct.Path:
    """Return the path of a scenario."""
    forward_us, back_us = one["fwd_delay"], one["rev_delay"]
    rate = [(start, rate * 1e6) for start, rate in one["steps"]] if "steps" in one else one["rate"] * 1e6
    fields: dict[str, Any] = {"rate": rate, "rtt": f"{forward_us + back_us}us", "buffer": f"{one['buffer']}B"}
    fields["loss"] = f"{100 * one.get('loss', 0.0)}%"
    fields["aqm"] = "droptail" if one["qdisc"] == "droptail" else "codel"
    if "policer" in one:
        fields["policer"] = f"{one['policer']['rate']}Mbit", f"{one['policer']['burst']}B"
    if "jitter_us" in one:
        fields["jitter"] = Jitter("normal", sd=f"{one['jitter_us']}us")
    if "reorder" in one:  # netem sends this share at once
        early = round(one["reorder"] * EARLY_SHARES)
        late = [1e3 * forward_us] * (EARLY_SHARES - early)
        fields["rtt"] = f"{back_us}us"
        fields["jitter"] = Jitter("empirical", samples_ns=[0.0] * early + late, reorder=True)
    return cct.Path(**fields)


def senders_of(one: dict[str, Any]) -> list[cct.Sender]:
    """Return the senders of a scenario."""
    found = []
    for flow in one["flows"]:
        cc = flow["cc"] if flow["cc"] == "reno" else CONTROLLERS.get((flow["cc"], one["kernel_image"]), "cubic6")
        options: dict[str, Any] = {"start": f"{flow['start']}s", "ack_every": 2, "kernel": "6.12", "hz": 250}
        options["fq"] = one.get("fq", False)
        if flow.get("mode") == "chunks":
            options["app"] = f"chunks:size={flow['chunk_bytes']}B,every={flow['chunk_interval']}s"
        if "sndbuf" in flow:
            options["send_buffer"] = f"{flow['sndbuf']}B"
        if "max_pacing_rate" in flow:
            options["max_pacing_rate"] = f"{8 * flow['max_pacing_rate']}bit"
        if "rcvbuf" in one:
            options["rwnd"] = f"{WINDOW_PER_RCVBUF * one['rcvbuf']:.0f}B"
        found.append(cct.Sender(cc, **options))
    return found


def write(one: dict[str, Any], folder: File) -> None:
    """Simulate a scenario and write what a recording of it would be; of an intervention only what comes of it."""
    into, is_own = folder / one["name"], not one["intervention"]
    into.mkdir(parents=True, exist_ok=True)
    run = cct.simulate(path_of(one), senders_of(one), f"{one['seconds']}s", one["seed"] % 1_000_003, packets=is_own)
    if is_own:
        run.to_pcap(into / "sender.pcap.zst")
    figures = {name: float(run.flows[column].iloc[0]) for name, column in FIGURES.items()}
    (into / "figures.json").write_text(json.dumps(figures))
    for k, flow in enumerate(one["flows"]):
        flow["sport"] = FIRST_SPORT + k
    (into / "scenario.json").write_text(json.dumps({"name": one["name"], "parameters": one}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", type=File)
    parser.add_argument("folder", type=File)
    parser.add_argument("--rates", type=float, default=1.0, help="times those of the list")
    options = parser.parse_args()
    for one in json.loads(options.list.read_text()):
        if not one["intervention"].keys() & {"cc"} and not (options.folder / one["name"] / "scenario.json").exists():
            try:
                write(scaled(one, options.rates), options.folder)
            except ArgumentError as error:  # a window of less than two segments
                print(f"{one['name']}: not simulated: {error}")


if __name__ == "__main__":
    main()
