"""oBBR, Figs. 2 and 3: the share of the buffer that BBR's packets take, Q_r(p; g, R), and what two flows do.

Fig. 3: a BBR and a CUBIC flow over 20 Mbit/s, 40 ms, 7 minutes after the first 60 s; g = 2 and g = 1 over R, g at
R = 16. The values of R and g on the axes are not in the text but for 0.5, 1 and 16: powers of two, and steps of a
quarter. g is `cwnd_gain` of PROBE_BW. With bursts of 100 KB, one BDP here, the bucket itself lets much pass: without it
runs as well.
"""

import numpy as np
import pandas as pd

from cctrace.analytic import share
from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.obbr import SEEDS, bdp_bytes, link, listed, run_of
from cctrace.tcp.wire import QUIC_MSS_BYTES

MBPS, RTT_MS, WHOLE_S, SKIPPED_S = 20, 40, 480.0, 60.0
PANELS = {
    "g 2 over R": [(2.0, r) for r in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)],
    "g 1 over R": [(1.0, r) for r in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)],
    "g at R 16": [(g, 16.0) for g in (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)],
}


class Fig2(Figure):
    """Q_r over p: the formula."""

    def runs(self, p):
        """Nothing is simulated."""
        return []

    def derived(self, frame, p):
        """The curves, and where each meets 1 - p."""
        at = np.linspace(0.0, 1.0, p["points"])
        return pd.DataFrame(
            [
                {"g": g, "ratio": ratio, "p": x, "occupied": y, "remaining": 1 - x, "seed": 1}
                for g in p["gains"]
                for ratio in p["ratios"]
                for x, y in zip(at, share.occupied_ratio(at, g, ratio), strict=True)
            ]
        )

    def claims(self, made):
        """Section 3.1."""
        deep = 1 - float(share.loss_based_share(2, 16))
        points = {r: 1 - float(share.loss_based_share(2, r)) for r in (0.5, 1, 2, 4, 8, 16)}
        met = _crossing(made.table[(made.table.g == 2) & (made.table.ratio == 16)])
        one = made.table[made.table.g == 1]
        return [
            judge(
                "2",
                "with g 2 and R 16 the BBR flow occupies almost half of the buffer",
                {"0.45 to 0.55": 0.45 <= deep <= 0.55, "the curve meets 1 - p there": abs(met - deep) < 0.03},
                paper="almost half",
                here=f"{deep:.3f} where the curves meet",
                numbers=(0.5, deep),
            ),
            judge(
                "2",
                "a shallower buffer is more occupied by BBR; at 1 BDP nothing is left for loss-based flows",
                {"rises as R falls": bool(np.all(np.diff(list(points.values())) <= 0)), "all at R 1": points[1] == 1.0},
                paper="all at R 1",
                here=", ".join(f"R {r:g}: {v:.2f}" for r, v in points.items()),
            ),
            judge(
                "2",
                "with g 1 it cannot compete, however large the buffer",
                {
                    "below what is left for all p": bool((one.occupied <= one.remaining + 1e-12).all()),
                    "the same for all R": bool(
                        np.allclose(one.groupby("p").occupied.max(), one.groupby("p").occupied.min())
                    ),
                },
                paper="below 1 - p everywhere",
                here=f"p (1 - p): at most {one.occupied.max():.2f}; R drops out of the formula",
            ),
        ]

    def plot(self, made):
        """Curves over p, a panel per g, with 1 - p."""
        from cctrace.plot import lines

        table = made.table.assign(
            line="R " + made.table.ratio.map("{:g}".format), panel="g = " + made.table.g.map("{:g}".format)
        )
        rest = table[table.ratio == table.ratio.iloc[0]].assign(line="1 - p")
        rest = rest.assign(occupied=rest.remaining)
        panels = [("occupied", "share of the buffer", {"top": 1.5})]
        title = f"oBBR, Fig. 2: {self.title}"
        return lines(pd.concat([table, rest]), "p", panels, "line", panel_by="panel", title=title, xlabel="p")


def _crossing(curve):
    """Return 1 - p at the first p > 0 at which a curve reaches 1 - p."""
    curve = curve.sort_values("p")
    there = curve[curve.occupied >= curve.remaining - 1e-9]
    return 1 - float(there.p.iloc[0]) if len(there) else 0.0


class Fig3(Figure):
    """Shares of a BBR and a CUBIC flow, measured and as the model has them."""

    def runs(self, p):
        """One pair per panel, g, R, bottleneck and seed."""
        out = []
        for panel in p["panels"]:
            for g, ratio in PANELS[panel]:
                if p["ratios"] is not None and (ratio not in p["ratios"] or g not in p["gains"]):
                    continue
                for bottleneck in p["bottlenecks"]:
                    path = link(MBPS, RTT_MS, ratio * bdp_bytes(MBPS, RTT_MS))
                    if bottleneck == "no burst":
                        path = {name: v for name, v in path.items() if name != "shaper"} | {"rate": f"{MBPS}Mbit"}
                    for seed in p["seeds"]:
                        labels = {"panel": panel, "g": g, "ratio": ratio, "bottleneck": bottleneck, "seed": seed}
                        keep = {"sample": "1s", "keep": ["time_s", "delivered_segments"]}
                        run = run_of([f"quic_bbr:cwnd_gain={g:g}", "CUBIC"], path, seed, p["duration_s"], **keep)
                        out.append((labels, run))
        return out

    def row(self, labels, result, p):
        """Goodput of both after the beginning, BBR's share, its losses, and the model's point."""
        rates = []
        for line in result["timeline"]:
            at, got = np.array(line["time_s"]), np.array(line["delivered_segments"])
            first = int(np.searchsorted(at, p["skipped_s"]))
            rates.append((got[-1] - got[first]) * QUIC_MSS_BYTES * 8 / 1e6 / (at[-1] - at[first]))
        return {
            "bbr_mbps": rates[0],
            "cubic_mbps": rates[1],
            "bbr_share": rates[0] / sum(rates),
            "retransmitted_pct": 100 * result["flows"][0]["retransmit_ratio"],
            "paper_point": (labels["ratio"] - labels["g"] + 1) / (labels["g"] * labels["ratio"]),
            "model_share": 1 - float(share.loss_based_share(labels["g"], labels["ratio"])),
        }

    def claims(self, made):
        """Section 3.1, experimental verification."""
        out = []
        for bottleneck in dict.fromkeys(made.table.bottleneck):
            out += _competition(made, bottleneck)
        return out

    def plot(self, made):
        """BBR's share beside the model's, a panel per panel of the paper."""
        from cctrace.plot import lines

        table = made.table.assign(at=np.where(made.table.panel == "g at R 16", made.table.g, np.log2(made.table.ratio)))
        model = table[table.bottleneck == table.bottleneck.iloc[0]].assign(bottleneck="model, 1 - p*")
        model = model.assign(bbr_share=model.model_share, bbr_share_sd=0.0)
        both = pd.concat([table, model])
        panels, x = [("bbr_share", "BBR's share of the goodput")], "log2 R; g in the third"
        return lines(both, "at", panels, "bottleneck", panel_by="panel", title=f"oBBR, Fig. 3: {self.title}", xlabel=x)


def _competition(made, bottleneck):
    """The claims for one bottleneck, as far as its panels were run."""
    out, at = [], {"bottleneck": bottleneck}
    ratios, two = made.column("bbr_share", "ratio", panel="g 2 over R", **at)
    if len(ratios) > 1:
        bound = made.column("model_share", "ratio", panel="g 2 over R", **at)[1]
        lost = made.column("retransmitted_pct", "ratio", panel="g 2 over R", **at)[1]
        out += [
            judge(
                "3",
                f"with g 2 BBR's share falls as R grows, and stays below the converge point ({bottleneck})",
                {
                    "less in the deepest buffer than in the shallowest": two[-1] < two[0],
                    "never rises by more than 0.05": bool((np.diff(two) < 0.05).all()),
                    "not above 1 - p* (by 0.02)": bool((two <= bound + 0.02).all()),
                },
                paper="falls, below the red lines",
                here=f"{listed(two)} at R {listed(ratios, '{:g}')}; model {listed(bound)}",
                mechanism="the red lines are given as (R - g + 1)/(gR), which is p*, CUBIC's; BBR's is 1 - p*",
            ),
            judge(
                "3",
                f"at R 0.5 BBR dominates, and loses 13.36 % ({bottleneck})",
                {"nine tenths of the goodput": two[0] >= 0.9, "10 to 17 % lost": 10 <= lost[0] <= 17},
                paper="13.36 %",
                here=f"{two[0]:.0%} of the goodput at R {ratios[0]:g}, {lost[0]:.2f} % sent again",
                numbers=(13.36, float(lost[0])),
            ),
        ]
    ratios, one = made.column("bbr_share", "ratio", panel="g 1 over R", **at)
    if len(ratios):
        out.append(
            judge(
                "3",
                f"with g 1 CUBIC has almost everything, however large the buffer ({bottleneck})",
                {
                    "BBR at most a quarter everywhere": one.max() <= 0.25,
                    "at most a tenth in the mean": one.mean() <= 0.1,
                },
                paper="almost all bandwidth is CUBIC's",
                here=f"BBR's share {listed(one)} at R {listed(ratios, '{:g}')}",
            )
        )
    gains, deep = made.column("bbr_share", "g", panel="g at R 16", **at)
    if len(gains) > 1:
        out.append(
            judge(
                "3",
                f"at R 16 BBR's share grows with g ({bottleneck})",
                {
                    "more with the largest": deep[-1] > deep[0],
                    "never falls by more than 0.05": bool((np.diff(deep) > -0.05).all()),
                },
                paper="more goodput with increasing g",
                here=f"{listed(deep)} at g {listed(gains, '{:g}')}",
            )
        )
    return out


_BOTTLENECKS = ("burst 100 KB", "no burst")
FIGURES = [
    Fig2(
        "2",
        "Q_r over p for g 2 and 1 (formula)",
        {"gains": (2.0, 1.0), "ratios": (1.0, 2.0, 4.0, 16.0), "points": 101},
        {"points": 51},
        ("g", "ratio", "p"),
    ),
    Fig3(
        "3",
        "a BBR and a CUBIC flow, over R and g",
        {
            "panels": tuple(PANELS),
            "bottlenecks": _BOTTLENECKS,
            "seeds": SEEDS,
            "duration_s": WHOLE_S,
            "skipped_s": SKIPPED_S,
            "gains": None,
            "ratios": None,
        },
        {"gains": (1.0, 2.0), "ratios": (0.5, 16.0), "seeds": (1,), "duration_s": 40.0, "skipped_s": 10.0},
        ("panel", "g", "ratio", "bottleneck"),
    ),
]
