"""oBBR, Figs. 2 and 3: the share of the buffer that BBR's packets take, Q_r(p; g, R), and two flows that show it.

Fig. 3: a BBR and a CUBIC flow over 20 Mbit/s, 40 ms, 7 minutes after the first 60 s; g = 2 and g = 1 over R, g at R
= 16. Of the values of R and g on the axes the text names only 0.5, 1 and 16: run are powers of two, and steps of a
quarter. g is `cwnd_gain` of PROBE_BW.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cctrace.analytic import share
from cctrace.papers import obbr as ob
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Formula, Reproduction, drawing
from cctrace.papers.lifecycle import EIGHTHS, RTT_PROBE, STARTS, V1, Lifecycle
from cctrace.papers.runs import Result, Run
from cctrace.tcp.wire import QUIC_MSS_BYTES

MBPS, RTT_MS, WHOLE_S, SKIPPED_S = 20, 40, 480.0, 60.0
OVER_R2, OVER_R1, OVER_G = "g 2 over R", "g 1 over R", "g at R 16"
RATIOS, GAINS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0), (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)
PAIRS = [{"panel": panel, "g": g, "ratio": r} for panel, g in ((OVER_R2, 2.0), (OVER_R1, 1.0)) for r in RATIOS]
PAIRS += [{"panel": OVER_G, "g": g, "ratio": 16.0} for g in GAINS]


class Fig2(Formula, ob.Bi23):
    """Q_r over p: the formula."""

    drawn = drawing(
        "lines", "p", [("occupied", "share of the buffer", {"top": 1.5})], "line", panel_by="panel", xlabel="p"
    )

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
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

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.1."""
        deep = 1 - float(share.loss_based_share(2, 16))
        points = {r: 1 - float(share.loss_based_share(2, r)) for r in (0.5, 1, 2, 4, 8, 16)}
        curve = made.rows(g=2, ratio=16).sort_values("p")
        crossing = (
            1 - curve.p[curve.occupied >= curve.remaining - 1e-9].min()
        )  # at the first p at which it reaches 1 - p
        one = made.rows(g=1)
        yield Stated("2", "with g 2 and R 16 the BBR flow occupies almost half of the buffer", "almost half").judged(
            {"the curve meets 1 - p there": abs(crossing - deep) < 0.03},
            f"{deep:.3f} where the curves meet",
            {"share": (0.5, deep)},
        )
        yield Stated(
            "2",
            "a shallower buffer is more occupied by BBR; at 1 BDP nothing is left for loss-based flows",
            "all at R 1",
        ).judged(
            {"rises as R falls": np.all(np.diff(list(points.values())) <= 0), "all at R 1": points[1] == 1.0},
            ", ".join(f"R {r:g}: {v:.2f}" for r, v in points.items()),
        )
        q, c, rtt = (2.0 * 4000, 20.0, 400.0)  # any buffer, rate and RTT
        p, g = (grid.ravel() for grid in np.meshgrid(np.linspace(0, 1, 21), [1.0, 1.5, 2.0]))
        queued = g * (p * q / c + rtt) * (1 - p) * c - (1 - p) * c * rtt
        apart = np.abs(queued / q - [share.occupied_ratio(x, y, q / (c * rtt)) for x, y in zip(p, g, strict=True)])
        yield Stated(
            "Eq. 1", "what is in flight less the flow's BDP, over the buffer, is Q_r", "gp(1 - p) + (g - 1)(1 - p)/R"
        ).judged({"equal for all p and g": apart.max() < 1e-12}, f"largest difference {apart.max():.1g}")
        yield Stated("2", "with g 1 it cannot compete, however large the buffer", "below 1 - p everywhere").judged(
            {
                "below what is left for all p": (one.occupied <= one.remaining + 1e-12).all(),
                "the same for all R": np.allclose(one.groupby("p").occupied.max(), one.groupby("p").occupied.min()),
            },
            f"p (1 - p): at most {one.occupied.max():.2f}; R drops out of the formula",
        )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """Curves over p, a panel per g, with 1 - p."""
        table = made.table.assign(
            line="R " + made.table.ratio.map("{:g}".format), panel="g = " + made.table.g.map("{:g}".format)
        )
        rest = table[table.ratio == table.ratio.iloc[0]]
        return pd.concat([table, rest.assign(line="1 - p", occupied=rest.remaining)])


class Fig3(ob.Bi23):
    """Shares of a BBR and a CUBIC flow, measured and modelled."""

    varied = {"pair": "pairs", "client": "clients"}
    drawn = drawing("lines", "at", [("bbr_share", "BBR's share of the goodput")], "client", panel_by="panel",
                    xlabel="log2 R; g in the third")  # fmt: skip

    def run(self, at: Fields, p: Fields) -> Run:
        """A flow of BBR with g and one of CUBIC."""
        bbr = f"quic_bbr:cwnd_gain={at['g']:g}"
        path = ob.link(MBPS, RTT_MS, at["ratio"] * ob.bdp_bytes(MBPS, RTT_MS), client=at["client"])
        samples = {"sample": "1s", "keep": ["time_s", "delivered_segments"]}
        return ob.run_of([bbr, ob.CUBIC], path, at["seed"], p["duration_s"], ob.acks(at["client"], RTT_MS), **samples)

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
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
            "retransmitted_pct": ob.retransmitted_pct(result["flows"][:1]),
            "paper_point": (labels["ratio"] - labels["g"] + 1) / (labels["g"] * labels["ratio"]),
            "model_share": 1 - float(share.loss_based_share(labels["g"], labels["ratio"])),
        }

    def of_client(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.1, experimental verification, as far as the panels were run."""
        ratios, two = made.column("bbr_share", "ratio", panel=OVER_R2)
        if len(ratios) > 1:
            bound = made.column("model_share", "ratio", panel=OVER_R2)[1]
            yield Stated(
                "3",
                "with g 2 BBR's share falls as R grows, and stays below the converge point",
                "falls, below the red lines",
            ).judged(
                {
                    "less in the deepest buffer than in the shallowest": two[-1] < two[0],
                    "never rises by more than 0.05": (np.diff(two) < 0.05).all(),
                    "not above 1 - p* (by 0.02)": (two <= bound + 0.02).all(),
                },
                f"{listed(two)} at R {listed(ratios, '{:g}')}; model {listed(bound)}",
            )
        got, lost = (made.value(column, panel=OVER_R2, ratio=0.5) for column in ("bbr_share", "retransmitted_pct"))
        if np.isfinite(got):
            yield Stated("3", "at R 0.5 BBR dominates, and loses 13.36 %", "13.36 %").judged(
                {"nine tenths of the goodput": got >= 0.9},
                f"{got:.0%} of the goodput, {ob.loss_ratio_pct(lost):.2f} % lost",
                {"lost (%)": (13.36, ob.loss_ratio_pct(lost))},
            )
        ratios, one = made.column("bbr_share", "ratio", panel=OVER_R1)
        if len(ratios):
            yield Stated(
                "3", "with g 1 CUBIC has almost everything, however large the buffer", "almost all bandwidth is CUBIC's"
            ).judged(
                {"BBR at most a tenth everywhere": one.max() <= 0.1},
                f"BBR's share {listed(one)} at R {listed(ratios, '{:g}')}",
            )
        gains, deep = made.column("bbr_share", "g", panel=OVER_G)
        if len(gains) > 1:
            yield Stated("3", "at R 16 BBR's share grows with g", "more goodput with increasing g").judged(
                {
                    "more with the largest": deep[-1] > deep[0],
                    "never falls by more than 0.05": (np.diff(deep) > -0.05).all(),
                },
                f"{listed(deep)} at g {listed(gains, '{:g}')}",
            )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """BBR's share beside the model's, a panel per panel of the paper."""
        table = made.table.assign(at=np.where(made.table.panel == OVER_G, made.table.g, np.log2(made.table.ratio)))
        model = table[table.client == ob.LOOPBACK].assign(client="model, 1 - p*")
        return pd.concat([table, model.assign(bbr_share=model.model_share, bbr_share_sd=0.0)])


FIGURES = [
    Lifecycle("1", "life cycle of BBR in nginx-quic", {"seeds": ob.SEEDS[:2], "duration": "40s"},
              {"seeds": (1,), "duration": "13s"},
              systems={ob.BBR: (ob.run_of([ob.BBR], ob.link(MBPS, RTT_MS, 2 * ob.bdp_bytes(MBPS, RTT_MS)), 1, 60.0),
                                V1)},
              statements={("1", "STARTUP at 2/ln 2, DRAIN at ln 2/2, then 1.25, 0.75 and six phases at 1"):
                              ((ob.BBR,), STARTS | EIGHTHS),
                          ("1", "PROBE_RTT: four packets"): ((ob.BBR,),
                                                             {key: n for key, n in RTT_PROBE.items() if n == 4})}),
    Fig2("2", "Q_r over p for g 2 and 1 (formula)",
         {"gains": (2.0, 1.0), "ratios": (1.0, 2.0, 4.0, 16.0), "points": 101}, {"points": 51}, ("g", "ratio", "p")),
    Fig3("3", "a BBR and a CUBIC flow, over R and g",
         {"pairs": PAIRS, "clients": ob.CLIENTS, "seeds": ob.OF_LAB, "duration_s": WHOLE_S, "skipped_s": SKIPPED_S},
         {"pairs": [at for at in PAIRS if at["ratio"] in (0.5, 16.0) and at["g"] in (1.0, 2.0)], "seeds": (1,),
          "duration_s": 40.0, "skipped_s": 10.0},
         ("panel", "g", "ratio", "client")),
]  # fmt: skip
