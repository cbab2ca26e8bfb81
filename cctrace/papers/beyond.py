"""Beyond the papers: starvation by delay variation of one of two flows, and Kumar's collapse of one flow.

[Arun22]: a controller that keeps its delay within a range delta_max once it has converged can be starved by delay
variation D not caused by congestion, if D exceeds twice that range: the flow that experiences the variation cannot
distinguish it from queueing, and yields to the one that does not.

Here two flows of the same controller share 40 Mbit/s and 40 ms; the ACKs of one leave in slots of D, which delays
them by 0 to D. delta_max is what the controller keeps alone: the 95th percentile of its queueing delay. Slots are
one such variation, not the adversary of the proof: a controller that does not starve here may starve elsewhere.
`collapse` varies the jitter of a single flow's path instead, for all controllers, in order and reordering.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cctrace.cc import is_model_based
from cctrace.papers.claims import Claim, Stated, by_name
from cctrace.papers.figure import Fields, Figure, Reproduction, drawing
from cctrace.papers.runs import Result, Run

CONTROLLERS = (
    "bbr2016", "bbr2019", "bbr2022", "bbr2", "bbr2plus", "bbr2plus_paper", "bbr3", "bbrx", "cubic6", "reno", "quic_bbr",
    "obbr",
)  # fmt: skip
SLOTS_MS = (0, 1, 2, 5, 10, 20, 40, 80)
PATH = {"rate": "40Mbit", "rtt": "40ms", "buffer": "4bdp"}
ORDERS = {"in order": "", "reordering": ",reorder"}
STARVED = 5.0  # times less than the other


class Arun22(Figure):
    """A figure beyond the papers."""

    paper = "Beyond"


def _run(senders: list[Fields], path: Fields, seed: int, duration: str) -> Run:
    return Run({"path": path, "flows": senders, "duration": duration, "seed": seed})


class Starvation(Arun22):
    """Throughput of two flows, of which one's ACKs are delayed by up to D."""

    drawn = drawing("lines", "slot_ms",
                    [("late_mbps", "flow with slots (Mbit/s)"), ("other_mbps", "the other (Mbit/s)")], "cc",
                    xlabel="D, slot of the ACKs (ms)")  # fmt: skip

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """Two flows for every D, and one alone, which gives the range that the controller holds."""
        out = []
        for cc in p["cc"]:
            for seed in p["seeds"]:
                for slot in p["slots_ms"]:
                    senders = [{"cc": cc} | ({"ack_slot": f"{slot}ms"} if slot else {}), {"cc": cc}]
                    labels = {"cc": cc, "slot_ms": float(slot), "seed": seed}
                    out.append((labels, _run(senders, PATH, seed, p["duration"])))
                alone = _run([{"cc": cc}], PATH, seed, p["duration"])
                out.append(({"cc": cc, "slot_ms": np.nan, "seed": seed}, alone))
        return out

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Both throughputs after the start, their ratio, the queue."""
        flows = result["flows"]
        rates = [flow["tail_goodput_bps"] / 1e6 for flow in flows]
        return {
            "late_mbps": rates[0],
            "other_mbps": rates[1] if len(rates) > 1 else np.nan,
            "ratio": rates[1] / max(rates[0], 1e-3) if len(rates) > 1 else np.nan,
            "queue_p95_ms": (flows[0]["tail_queue_delay_p95_us"] or 0.0) / 1e3,
        }

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """Give each row the range that its controller keeps alone, and drop the runs alone."""
        alone = frame[frame.slot_ms.isna()].groupby("cc").queue_p95_ms.mean()
        pairs = frame[frame.slot_ms.notna()].reset_index(drop=True)
        range_ms = pairs.cc.map(alone)
        return pairs.assign(range_ms=range_ms, over_range=pairs.slot_ms / (2 * range_ms.clip(lower=0.1)))

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Arun's bound, for the controllers that keep a range of delay, and for the others."""
        table = made.table
        for group, modelled in (("delay-convergent", True), ("loss-based", False)):
            rows = table[table.cc.map(is_model_based) == modelled]
            worse = np.maximum(rows.ratio, 1 / rows.ratio)
            below, above = worse[rows.over_range < 1], worse[rows.over_range > 1]
            starved = sorted(set(rows.cc[(worse >= STARVED) & (rows.over_range > 1)]))
            most = rows.assign(worse=worse).groupby("cc", sort=False).worse.max()
            yield Stated(
                "starvation",
                "delay variation of more than twice the range that a controller holds can starve it",
                "possible beyond, for every delay-convergent controller",
            ).judged(
                {
                    f"beyond, some flow gets {STARVED:g} times less than the other": (above >= STARVED).any(),
                    "within, none does": not (below >= STARVED).any(),
                },
                f"largest ratio of the throughputs: {by_name(most.to_dict(), '{:.1f}')}"
                + (f"; starved: {', '.join(starved)}" if starved else "; none starved"),
                part=group,
            )


class Collapse(Arun22):
    """One flow over jitter, for every controller: Kumar's experiment with all of them."""

    varied = {"cc": "cc", "order": "orders", "sd_ms": "sd_ms"}
    measured = ("goodput_mbps",)
    drawn = drawing("lines", "sd_ms", [("goodput_mbps", "throughput (Mbit/s)")], "cc", panel_by="order",
                    xlabel="standard deviation of the delay (ms)")  # fmt: skip

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        jitter = f"normal:sd={round(1000 * at['sd_ms'])}us{ORDERS[at['order']]}"
        path = PATH | ({"jitter": jitter} if at["sd_ms"] else {})
        return _run([{"cc": at["cc"]}], path, at["seed"], p["duration"])

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section V of Kumar: the problem is that of all controllers that want to sit at the BDP."""
        for order in made.each("order"):
            rows = made.rows(order=order)
            high = rows[rows.sd_ms == rows.sd_ms.max()].set_index("cc").goodput_mbps
            bbr = [cc for cc in high.index if is_model_based(cc)]
            down = [cc for cc in bbr if high[cc] < 20]
            yield Stated(
                "V",
                "whatever aims at the BDP through least RTT and bandwidth collapses under jitter",
                "argued in the conclusion, not tested",
            ).judged(
                {
                    "all below half the link at the highest jitter": len(down) == len(bbr),
                    "the loss-based ones not": all(high[cc] >= 20 for cc in high.index if cc not in bbr),
                },
                ", ".join(f"{cc} {x:.1f}" for cc, x in high.items()) + f" Mbit/s at {rows.sd_ms.max():g} ms of 40",
                reading=order,
            )


_QUICK_CC = {"cc": ("bbr2019", "bbr2plus", "cubic6")}
FIGURES = [
    Starvation("starvation", "two flows, the ACKs of one in slots",
               {"cc": CONTROLLERS, "slots_ms": SLOTS_MS, "seeds": (1, 2, 3), "duration": "60s"},
               _QUICK_CC | {"slots_ms": (0, 20), "seeds": (1,), "duration": "8s"}, ("cc", "slot_ms")),
    Collapse("collapse", "one flow over jitter, every controller",
             {"cc": CONTROLLERS, "orders": tuple(ORDERS), "sd_ms": (0.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0),
              "seeds": (1, 2, 3), "duration": "30s"},
             _QUICK_CC | {"sd_ms": (0.0, 16.0), "seeds": (1,), "duration": "6s"}),
]  # fmt: skip
