"""Beyond the papers: starvation by delay variation that only one of two flows has, beside Kumar's collapse of one flow.

[Arun22]: a controller that holds its delay within a range delta_max once it has converged can be starved by delay
variation D that is not due to congestion, when D exceeds twice that range: the flow that meets the variation cannot
tell it from queueing, and gives way to one that does not meet it.

Here two flows of the same controller share 40 Mbit/s and 40 ms; the ACKs of one leave in slots of D, which delays them
by 0 to D and never hurries them. delta_max is what the controller holds alone: 95th percentile of its queueing delay.
Slots are one such variation, not the adversary of the proof: what does not starve here may starve elsewhere.
`collapse` varies the jitter of a single flow's path instead, for all controllers: order kept or not.
"""

import numpy as np

from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.runs import Run

CONTROLLERS = (
    "bbr2016", "bbr2019", "bbr2022", "bbr2", "bbr2plus", "bbr2plus_paper", "bbr3", "bbrx", "cubic6", "reno", "quic_bbr",
    "obbr",
)  # fmt: skip
LOSS_BASED = ("cubic6", "reno", "cubic")
SLOTS_MS = (0, 1, 2, 5, 10, 20, 40, 80)
PATH = {"rate": "40Mbit", "rtt": "40ms", "buffer": "4bdp"}
STARVED = 5.0  # times less than the other


class Starvation(Figure):
    """Throughput of two flows, of which one's ACKs are delayed by up to D."""

    def runs(self, p):
        """Two flows for every D, and one alone, which tells the range that the controller holds."""
        out = []
        for cc in p["cc"]:
            for seed in p["seeds"]:
                for slot in p["slots_ms"]:
                    late = {"cc": cc} | ({"ack_slot": f"{slot}ms"} if slot else {})
                    run = {"path": PATH, "flows": [late, {"cc": cc}], "duration": p["duration"], "seed": seed}
                    out.append(({"cc": cc, "slot_ms": float(slot), "seed": seed}, Run(run)))
                alone = {"path": PATH, "flows": [{"cc": cc}], "duration": p["duration"], "seed": seed}
                out.append(({"cc": cc, "slot_ms": np.nan, "seed": seed}, Run(alone)))
        return out

    def row(self, labels, result, p):
        """Both throughputs after the start, their ratio, the queue."""
        flows = result["flows"]
        rates = [flow["tail_goodput_bps"] / 1e6 for flow in flows]
        return {
            "late_mbps": rates[0],
            "other_mbps": rates[1] if len(rates) > 1 else np.nan,
            "ratio": rates[1] / max(rates[0], 1e-3) if len(rates) > 1 else np.nan,
            "queue_p95_ms": (flows[0]["tail_queue_delay_p95_us"] or 0.0) / 1e3,
        }

    def derived(self, frame, p):
        """Give each row the range that its controller holds alone, and leave those runs out."""
        alone = frame[frame.slot_ms.isna()].groupby("cc").queue_p95_ms.mean()
        pairs = frame[frame.slot_ms.notna()].reset_index(drop=True)
        held = pairs.cc.map(alone)
        return pairs.assign(range_ms=held, over_range=pairs.slot_ms / (2 * held.clip(lower=0.1)))

    def claims(self, made):
        """Arun's bound, for the controllers that hold a range of delay, and for the others."""
        table, out = made.table, []
        for group, names in (
            ("delay-convergent", [cc for cc in dict.fromkeys(table.cc) if cc not in LOSS_BASED]),
            ("loss-based", [cc for cc in dict.fromkeys(table.cc) if cc in LOSS_BASED]),
        ):
            rows = table[table.cc.isin(names)]
            worse = np.maximum(rows.ratio, 1 / rows.ratio)
            below, above = worse[rows.over_range < 1], worse[rows.over_range > 1]
            starved = sorted(set(rows.cc[(worse >= STARVED) & (rows.over_range > 1)]))
            most = rows.assign(worse=worse).groupby("cc", sort=False).worse.max()
            out.append(
                judge(
                    "starvation",
                    f"delay variation of more than twice the range that a controller holds can starve it ({group})",
                    {
                        f"beyond, some flow gets {STARVED:g} times less than the other": bool((above >= STARVED).any()),
                        "within, none does": bool(not (below >= STARVED).any()),
                    },
                    paper="possible beyond, for every delay-convergent controller",
                    here="largest ratio of the throughputs: "
                    + ", ".join(f"{cc} {x:.1f}" for cc, x in most.items())
                    + (f"; starved: {', '.join(starved)}" if starved else "; none starved"),
                    mechanism="slots leave the least RTT as it is and hand over ACKs in clumps: a window that is set "
                    "by min_rtt and not by the mean covers less of the longer loop, unless clumps count (extra_acked)",
                )
            )
        return out

    def plot(self, made):
        """Throughputs over D."""
        from cctrace.plot import lines

        panels = [("late_mbps", "flow with slots (Mbit/s)"), ("other_mbps", "the other (Mbit/s)")]
        title = "Beyond: delay variation that only one of two flows has"
        return lines(made.table, "slot_ms", panels, "cc", title=title, xlabel="D, slot of the ACKs (ms)")


class Collapse(Figure):
    """One flow over jitter, for every controller: Kumar's question asked of all."""

    def runs(self, p):
        """One run per controller, order, jitter and seed."""
        out = []
        for cc in p["cc"]:
            for order, tail in (("in order", ""), ("reordering", ",reorder")):
                for sd in p["sd_ms"]:
                    path = PATH | ({"jitter": f"normal:sd={round(1000 * sd)}us{tail}"} if sd else {})
                    for seed in p["seeds"]:
                        run = {"path": path, "flows": [{"cc": cc}], "duration": p["duration"], "seed": seed}
                        out.append(({"cc": cc, "order": order, "sd_ms": sd, "seed": seed}, Run(run)))
        return out

    def row(self, labels, result, p):
        """Throughput."""
        return {"mbps": result["flows"][0]["goodput_bps"] / 1e6}

    def claims(self, made):
        """Section V of Kumar: the problem is that of all controllers that want to sit at the BDP."""
        out = []
        for order in ("in order", "reordering"):
            rows = made.table[made.table.order == order]
            high = rows[rows.sd_ms == rows.sd_ms.max()].set_index("cc").mbps
            bbr = [cc for cc in high.index if cc not in LOSS_BASED]
            down = [cc for cc in bbr if high[cc] < 20]
            out.append(
                judge(
                    "V",
                    f"whatever aims at the BDP through least RTT and bandwidth collapses under jitter ({order})",
                    {
                        "all below half the link at the highest jitter": len(down) == len(bbr),
                        "most of them": len(down) > len(bbr) / 2,
                        "the loss-based ones not": all(high[cc] >= 20 for cc in high.index if cc in LOSS_BASED),
                    },
                    paper="argued in the conclusion, not tested",
                    here=", ".join(f"{cc} {x:.1f}" for cc, x in high.items())
                    + f" Mbit/s at {rows.sd_ms.max():g} ms of 40",
                    mechanism="in order it is BBR's min filter alone; where packets overtake, losses that are none cut "
                    "CUBIC's and Reno's windows as well",
                )
            )
        return out

    def plot(self, made):
        """Throughput over the jitter."""
        from cctrace.plot import lines

        panels = [("mbps", "throughput (Mbit/s)")]
        title, xlabel = "Beyond: jitter and all controllers, 40 Mbit/s, 40 ms", "standard deviation of the delay (ms)"
        return lines(made.table, "sd_ms", panels, "cc", panel_by="order", title=title, xlabel=xlabel)


_QUICK_CC = {"cc": ("bbr2019", "bbr2plus", "cubic6")}
FIGURES = [
    Starvation(
        "starvation",
        "two flows, the ACKs of one in slots",
        {"cc": CONTROLLERS, "slots_ms": SLOTS_MS, "seeds": (1, 2, 3), "duration": "60s"},
        _QUICK_CC | {"slots_ms": (0, 20), "seeds": (1,), "duration": "8s"},
        ("cc", "slot_ms"),
    ),
    Collapse(
        "collapse",
        "one flow over jitter, every controller",
        {"cc": CONTROLLERS, "sd_ms": (0.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0), "seeds": (1, 2, 3), "duration": "30s"},
        _QUICK_CC | {"sd_ms": (0.0, 16.0), "seeds": (1,), "duration": "6s"},
        ("cc", "order", "sd_ms"),
    ),
]
