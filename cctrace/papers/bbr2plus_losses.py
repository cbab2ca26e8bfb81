"""BBRv2+, Figs. 8 and 9: random losses, and what alpha and beta of BBRv2(alpha, beta) do.

40 Mbit/s, 40 ms; Fig. 8 with 32 BDP of buffer, Fig. 9 without random losses over the buffer (section 3.4). The length
of the runs is not in the text: 60 s.
"""

from collections.abc import Iterator

import pandas as pd
from numpy.typing import NDArray

from cctrace.papers.bbr2plus import BBR, BBR2, BBR2_20, BBR2_20_0, CUBIC, FORMS, LINK_MBPS, SEEDS, Yang22, flow, run_of
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, drawing
from cctrace.papers.runs import Result, Run
from cctrace.papers.varied import AS_CHOSEN

WITHOUT_BETA = "without beta, BBRv2(20 %, 0) is like BBR and better than BBRv2(20 %, 0.3)"


class Fig8(Yang22):
    """Throughput over the random loss rate."""

    varied = {"system": "systems", "loss_pct": "losses_pct"}
    measured = ("goodput_mbps",)
    drawn = drawing(
        "lines", "loss_pct", [("goodput_mbps", "throughput (Mbit/s)")], "system", columns=1, xlabel="random loss (%)"
    )

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        path = {"buffer": "32bdp", "loss": f"{at['loss_pct']}%"}
        return run_of([at["system"]], at["seed"], p["duration"], path)

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.4."""
        mbps = {system: made.means("goodput_mbps", "loss_pct", system=system) for system in made.each("system")}
        losses, base = made.column("goodput_mbps", "loss_pct", system=BBR)
        free = made.column("goodput_mbps", "loss_pct", system=BBR2_20_0)[1]
        bounded = made.column("goodput_mbps", "loss_pct", system=BBR2_20)[1]
        high = (losses >= 5) & (losses <= 20)
        yield Stated(
            "8",
            "BBRv2 drops after 2 % of random loss, to nearly nothing at 10 %",
            "significant drop after 2 %, near zero at 10 %",
        ).judged(
            {
                "at least 80 % of the link at 1 %": mbps[BBR2][1.0] >= 0.8 * LINK_MBPS,
                "at most half of that at 5 %": mbps[BBR2][5.0] <= 0.5 * mbps[BBR2][1.0],
                "at most 10 % of the link at 10 %": mbps[BBR2][10.0] <= 0.1 * LINK_MBPS,
            },
            f"{listed(mbps[BBR2].values(), '{:.1f}')} Mbit/s at {listed(mbps[BBR2], '{:g}')} %",
            recording="Linux 6.18, bbr at 1 %: the recording loss_bbr_1pct keeps the link",
        )
        yield Stated("8", "BBRv2(20 %, 0.3) has about half of the maximum at 10 %", "about half of 40 Mbit/s").judged(
            {"more than BBRv2": mbps[BBR2_20][10.0] > mbps[BBR2][10.0]},
            f"{mbps[BBR2_20][10.0]:.1f} Mbit/s",
            {"Mbit/s": (20.0, mbps[BBR2_20][10.0])},
        )
        yield Stated("8", WITHOUT_BETA, "similar to BBR").judged(
            {
                "within 20 % of BBR from 5 to 20 % of loss": (abs(free / base - 1)[high] <= 0.2).all(),
                "better than with beta there": (free > bounded)[high].all(),
            },
            f"{listed(free[high], '{:.1f}')} against BBR's {listed(base[high], '{:.1f}')} and with beta "
            f"{listed(bounded[high], '{:.1f}')} Mbit/s at {listed(losses[high], '{:g}')} %",
            reading=AS_CHOSEN,
        )


class Fig9(Yang22):
    """Retransmissions over alpha."""

    varied = {"buffer_bdp": "buffers_bdp", "alpha_pct": "alphas_pct"}
    drawn = drawing("lines", "alpha_pct",
                    [("retransmitted_pct", "retransmitted (%)"),
                     ("tail_retransmitted_pct", "…in the last two thirds (%)")], "buffer",
                    xlabel="alpha (%)")  # fmt: skip

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow of BBRv2 with this alpha."""
        sender = flow(BBR2) | {"cc": f"bbr2:loss_thresh={at['alpha_pct'] / 100:g}"}
        return run_of([sender], at["seed"], p["duration"], {"buffer": f"{at['buffer_bdp']}bdp"})

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Retransmissions, in the run and in its last two thirds (without STARTUP)."""
        flow_ = result["flows"][0]
        return {
            "retransmitted_pct": 100 * flow_["retransmit_ratio"],
            "tail_retransmitted_pct": 100 * (flow_["tail_retransmit_ratio"] or 0.0),
        }

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.4."""
        buffers = sorted(made.table.buffer_bdp.unique())
        curves = {b: made.column("retransmitted_pct", "alpha_pct", buffer_bdp=b) for b in buffers}
        turns = {b: _turn(*curve) for b, curve in curves.items()}
        lossy = [b for b in buffers if b < 2]
        known = [turns[b] for b in lossy if turns[b] is not None]
        deep = curves[buffers[-1]][1]
        alphas = listed(curves[lossy[0]][0], "{:g}")
        yield Stated(
            "9",
            "retransmissions rise once alpha exceeds a point that depends on the buffer",
            "a turning point per buffer",
        ).judged(
            {
                "they rise at every buffer below 2 BDP": len(known) == len(lossy),
                "at different alphas": len(set(known)) > 1,
            },
            "; ".join(f"{b:g} BDP {listed(curves[b][1])} %" for b in lossy) + f" at alpha {alphas} %",
        )
        yield Stated("9", "at 2 BDP there are none, whatever alpha", "eliminated").judged(
            {"below 0.1 % at every alpha": (deep < 0.1).all()}, f"at most {deep.max():.3f} % at {buffers[-1]:g} BDP"
        )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A line per buffer."""
        return made.table.assign(buffer=made.table.buffer_bdp.map("{:g} BDP".format))


def _turn(alphas: NDArray, values: NDArray) -> float | None:
    """Return the first alpha from which a fifth more is retransmitted than at the smallest, or None."""
    more = values > 1.2 * values[0]
    return float(alphas[more][0]) if more.any() else None


FIGURES = [
    Fig8("8", "throughput over random losses",
         {"systems": (BBR, BBR2, BBR2_20, BBR2_20_0, CUBIC, *FORMS),
          "losses_pct": (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0), "seeds": SEEDS, "duration": "60s"},
         {"losses_pct": (1.0, 5.0, 10.0), "seeds": (1,), "duration": "6s"}),
    Fig9("9", "retransmissions of BBRv2(alpha, 0.3)",
         {"buffers_bdp": (0.2, 0.5, 1.0, 1.5, 2.0), "alphas_pct": (2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0),
          "seeds": SEEDS, "duration": "60s"},
         {"buffers_bdp": (0.2, 1.0, 2.0), "alphas_pct": (2.0, 20.0), "seeds": (1,), "duration": "6s"}),
]  # fmt: skip
