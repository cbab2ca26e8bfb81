"""BBRv2+, Figs. 3 and 14 and Table 1: the two testbeds and the variables of BBRv2+, as runs show them.

The paper draws the testbeds (Mininet with netem, Mahimahi) and lists the variables, and states nothing about them that
could fail. What is checked here is ours: that a flow measures the path which a figure sets (Fig. 3), that a link which
replays a trace delivers its opportunities (Fig. 14), and that the variables move as the text says (Table 1).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from cctrace.io.linktrace import LinkTrace
from cctrace.io.mahimahi import OPPORTUNITY_BYTES
from cctrace.papers import measure
from cctrace.papers.bbr2plus import CUBIC, PLUS_PAPER, Yang22, flow, run_of
from cctrace.papers.bbr2plus_traces import BUFFER
from cctrace.papers.claims import Claim, Stated
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.runs import Result, Run
from cctrace.papers.traces import of_preset
from cctrace.tcp.wire import PACKET_BYTES, WIRE_PER_PAYLOAD

EXACT = 0.03
# Table 1 and Algorithms 1 to 3: the variable, and the field of `bbr2plus_paper`.
TABLE1 = {
    "MinRTT, this round (ms)": "curr_round_min_rtt_us",
    "MinRTT, round before (ms)": "last_round_min_rtt_us",
    "MinRTT before probe (ms)": "mrtt_before_probe",
    "MinRTT of cruise (ms)": "mrtt_in_cruise",
    "RTprop (ms)": "min_rtt_us",
    "cruises with the buffer filled or empty": "cruise_round_of_mrtt_change",
    "in BBRv2+'s ProbeBW": "fast_conv_on",
}
UNSET_US = 2**31  # fields of the module that have no value yet are above


class Fig3(Yang22):
    """The Mininet testbed: rate, RTT and queue that a flow of CUBIC finds, beside those that are set."""

    varied = {"path": "paths"}
    drawn = drawing("bars", "path", "share", "of", ylabel="found / set")

    def run(self, at: Fields, p: Fields) -> Run:
        """A flow that fills the buffer."""
        rate, rtt, buffer = at["path"].split(", ")
        fields = {"rate": rate, "rtt": rtt, "buffer": buffer}
        keep = ["queue_delay_us", "srtt_us"]
        return run_of([CUBIC], at["seed"], p["duration"], fields, sample="5ms", keep=keep)

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Found over set: goodput, least smoothed RTT, longest queue."""
        rate, rtt, buffer = labels["path"].split(", ")
        mbps, ms = float(rate.removesuffix("Mbit")), float(rtt.removesuffix("ms"))
        line = result["timeline"][0]
        found = np.array([v for v in line["srtt_us"] if v])
        return {
            "rate": result["flows"][0]["goodput_bps"] * WIRE_PER_PAYLOAD / 1e6 / mbps,
            "rtt": float(found.min()) / 1e3 / ms,
            "queue": max(line["queue_delay_us"]) / 1e6 * mbps * 1e6 / 8 / (float(buffer.removesuffix("kB")) * 1e3),
        }

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A row per path and quantity."""
        return made.table.melt("path", ["rate", "rtt", "queue"], "of", "share")

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Whether the path is what it says."""
        rows = made.table
        yield Stated(
            "3", "flows find the rate, the RTT and the queue that are set", "netem's rate, delay and limit"
        ).judged(
            {
                "at least nine tenths of the rate": rows["rate"].between(0.9, 1).all(),
                "the RTT to 3 %": rows["rtt"].between(1, 1 + EXACT).all(),
                "the queue to 3 %": rows["queue"].between(1 - EXACT, 1 + EXACT).all(),
            },
            "; ".join(f"{r.path}: {r.rate:.3f}, {r.rtt:.3f}, {r.queue:.3f}" for r in rows.itertuples()),
            ours=True,
        )


def over_opportunities(path: Fields, seconds: int, **arguments: Any) -> Result:
    """Measure over a Mahimahi trace that has the rates of a preset, and return the opportunities of each second, too.

    `path`: fields of `cctrace.Path` with ``rate`` in steps.
    """
    at, bps = np.array([float(t) for t, _ in path["rate"]]), np.array([float(rate) for _, rate in path["rate"]])
    due = np.cumsum(bps[np.searchsorted(at, np.arange(0, seconds, 1e-3), side="right") - 1] / 8e3) // OPPORTUNITY_BYTES
    times = np.repeat(np.arange(1, len(due) + 1), np.diff(due, prepend=0).astype(int)) * 1_000_000
    capacity = np.full(len(times), float(OPPORTUNITY_BYTES))
    trace = LinkTrace({"time_ms": times / 1e6}, (times, capacity), times[-1], format="mahimahi")
    fields = {name: value for name, value in path.items() if name != "rate"}
    result = measure.simulation(fields | {"rate": None, "trace": trace}, duration=f"{seconds}s", **arguments)
    return result | {"opportunities": np.bincount(times // 10**9, minlength=seconds)[:seconds].tolist()}


class Fig14(Yang22):
    """The Mahimahi testbed: what a link that replays a trace delivers, second by second."""

    drawn = drawing(
        "lines", "time_s", [("delivered_mbps", "delivered (Mbit/s)"), ("trace_mbps", "trace (Mbit/s)")], "path"
    )

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """A flow of CUBIC, which has no queue empty for long, per preset."""
        out = []
        for name in p["presets"]:
            path = of_preset(name, 1) | {"buffer": BUFFER, "loss": "0%"}
            arguments = {"path": path, "seconds": p["seconds"], "flows": [flow(CUBIC)], "seed": 1}
            samples = {"sample": "1s", "keep": ["time_s", "delivered_segments", "queue_delay_us"]}
            out.append(({"path": name, "seed": 1}, Run(arguments | samples, over_opportunities)))
        return out

    def row(self, labels: Fields, result: Result, p: Fields) -> list[Fields]:
        """A row per second."""
        line, free = result["timeline"][0], np.array(result["opportunities"]) * OPPORTUNITY_BYTES * 8 / 1e6
        mbps = np.diff(line["delivered_segments"], prepend=0) * PACKET_BYTES * 8 / 1e6
        columns = {
            "time_s": line["time_s"],
            "delivered_mbps": mbps,
            "trace_mbps": free,
            "backlogged": np.greater(line["queue_delay_us"], 0).astype(float),
        }
        seconds = range(1, min(len(mbps), len(free)))
        return [{name: values[k] for name, values in columns.items()} for k in seconds]

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Whether the trace is replayed."""
        for name in made.each("path"):
            rows = made.runs[made.runs.path == name]
            full = rows[rows.backlogged == 1]
            share = full.delivered_mbps.sum() / full.trace_mbps.sum()
            yield Stated(
                "14", "a link that replays a trace delivers its opportunities while packets wait", "Mahimahi"
            ).judged(
                {"within a tenth": abs(share - 1) <= 0.1},
                f"{share:.3f} of them in {len(full)} seconds with a queue",
                part=name,
                ours=True,
            )


class Table1(Yang22):
    """The state variables of BBRv2+ over a flow that has CUBIC beside it from half of the run on."""

    drawn = drawing("bars", "variable", "median", "phase", ylabel="median")

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """A flow of the paper's form, alone and then beside CUBIC."""
        half = f"{p['seconds'] / 2:g}s"
        flows = [flow(PLUS_PAPER), flow(CUBIC, start=half)]
        watched = list(TABLE1.values())
        run = run_of(flows, 1, f"{p['seconds']}s", {"buffer": "8bdp"}, sample="20ms", watch=watched)
        return [({"seed": 1}, Run(run.arguments | {"keep": ["time_s", *watched]}))]

    def row(self, labels: Fields, result: Result, p: Fields) -> list[Fields]:
        """Least, median and greatest value of each variable, alone and beside CUBIC."""
        line, rows = result["timeline"][0], []
        beside = np.array(line["time_s"]) >= p["seconds"] / 2
        for variable, name in TABLE1.items():
            values = np.array(line[name], float)
            values = np.where(values < UNSET_US, values, np.nan) / (1e3 if "(ms)" in variable else 1)
            for phase, there in (("alone", ~beside), ("beside CUBIC", beside)):
                percentiles = np.nanpercentile(values[there], (0, 50, 100))
                found = dict(zip(("least", "median", "greatest"), percentiles, strict=True))
                rows.append({"variable": variable, "phase": phase, "field": name} | found)
        return rows

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Whether the variables do what Algorithm 2 makes of them."""
        mean = made.means("median", "phase", variable="in BBRv2+'s ProbeBW")
        cruise = made.means("median", "phase", variable="MinRTT of cruise (ms)")
        yield Stated(
            "Table 1", "beside CUBIC the cruises' MinRTT grows, and BBRv2's ProbeBW is used", "Algorithm 2"
        ).judged(
            {
                "MinRTT of cruise above 1.1 RTprop": cruise["beside CUBIC"] > 1.1 * cruise["alone"],
                "BBRv2+'s alone": mean["alone"] == 1,
                "BBRv2's beside CUBIC": mean["beside CUBIC"] == 0,
            },
            f"MinRTT of cruise {cruise['alone']:.1f} ms alone, {cruise['beside CUBIC']:.1f} beside CUBIC",
            ours=True,
        )


FIGURES = [
    Fig3("3", "the Mininet testbed: what a flow finds of what is set",
         {"paths": ("40Mbit, 40ms, 200kB", "10Mbit, 5ms, 100kB", "100Mbit, 50ms, 1000kB"), "seeds": (1,),
          "duration": "30s"},
         {"paths": ("40Mbit, 40ms, 200kB",), "duration": "10s"}),
    Fig14("14", "the Mahimahi testbed: what a link that replays a trace delivers",
          {"presets": ("lte_tmobile", "lte_att_driving"), "seconds": 60},
          {"presets": ("lte_tmobile",), "seconds": 15}, ("path", "time_s")),
    Table1("table1", "variables of BBRv2+", {"seconds": 60}, {"seconds": 30}, ("variable", "phase", "field")),
]  # fmt: skip
