"""BBRv2+, Figs. 8 and 9: random losses, and what alpha and beta of BBRv2(alpha, beta) do.

40 Mbit/s, 40 ms; Fig. 8 with 32 BDP of buffer, Fig. 9 without random losses over the buffer (section 3.4). The length
of the runs is not in the text: 60 s.
"""

from cctrace.papers.bbr2plus import (
    BBR,
    BBR2,
    BBR2_20,
    BBR2_20_0,
    CUBIC,
    PLUS,
    PLUS_20,
    PLUS_PAPER,
    SEEDS,
    flow,
    listed,
    run_of,
)
from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.tcp.wire import WIRE_PER_PAYLOAD

LINK_MBPS = 40 / WIRE_PER_PAYLOAD


class Fig8(Figure):
    """Throughput over the random loss rate."""

    def runs(self, p):
        """One run per system, loss rate and seed."""
        return [
            (
                {"system": system, "loss_pct": loss, "seed": seed},
                run_of([system], seed, p["duration"], {"buffer": "32bdp", "loss": f"{loss}%"}),
            )
            for system in p["systems"]
            for loss in p["losses_pct"]
            for seed in p["seeds"]
        ]

    def row(self, labels, result, p):
        """Throughput."""
        return {"mbps": result["flows"][0]["goodput_bps"] / 1e6}

    def claims(self, made):
        """Section 3.4."""

        def at(system, loss):
            return made.value("mbps", system=system, loss_pct=loss)

        losses, base = made.column("mbps", "loss_pct", system=BBR)
        free = made.column("mbps", "loss_pct", system=BBR2_20_0)[1]
        bounded = made.column("mbps", "loss_pct", system=BBR2_20)[1]
        high = (losses >= 5) & (losses <= 20)
        return [
            judge(
                "8",
                "BBRv2 drops after 2 % of random loss, to nearly nothing at 10 %",
                {
                    "at least 80 % of the link at 1 %": at(BBR2, 1.0) >= 0.8 * LINK_MBPS,
                    "at most half of that at 5 %": at(BBR2, 5.0) <= 0.5 * at(BBR2, 1.0),
                    "at most 10 % of the link at 10 %": at(BBR2, 10.0) <= 0.1 * LINK_MBPS,
                },
                paper="significant drop after 2 %, near zero at 10 %",
                here=f"{listed(made.column('mbps', 'loss_pct', system=BBR2)[1], '{:.1f}')} Mbit/s at "
                f"{listed(losses, '{:g}')} %",
                mechanism="every probe meets more than alpha, so inflight_hi falls with each",
                recording="Linux 6.18, bbr at 1 %: the recording loss_bbr_1pct keeps the link",
            ),
            judge(
                "8",
                "BBRv2(20 %, 0.3) has about half of the maximum at 10 %",
                {
                    "25 to 75 % of the link": 0.25 <= at(BBR2_20, 10.0) / LINK_MBPS <= 0.75,
                    "more than BBRv2": at(BBR2_20, 10.0) > at(BBR2, 10.0),
                },
                paper="about half of 40 Mbit/s",
                here=f"{at(BBR2_20, 10.0):.1f} Mbit/s",
                numbers=(20.0, at(BBR2_20, 10.0)),
                mechanism="inflight_hi stays, but beta cuts inflight_lo and bw_lo with every round that loses",
            ),
            judge(
                "8",
                "without beta, BBRv2(20 %, 0) is like BBR and better than BBRv2(20 %, 0.3)",
                {
                    "within 20 % of BBR from 5 to 20 % of loss": bool((abs(free / base - 1)[high] <= 0.2).all()),
                    "better than with beta there": bool((free > bounded)[high].all()),
                },
                paper="similar to BBR",
                here=f"{listed(free[high], '{:.1f}')} against BBR's {listed(base[high], '{:.1f}')} and with beta "
                f"{listed(bounded[high], '{:.1f}')} Mbit/s at {listed(losses[high], '{:g}')} %",
                mechanism="below alpha nothing answers a loss then",
            ),
        ]

    def plot(self, made):
        """Throughput over the loss rate."""
        from cctrace.plot import lines

        title, label = f"BBRv2+, Fig. 8: {self.title}", [("mbps", "throughput (Mbit/s)")]
        return lines(made.table, "loss_pct", label, "system", columns=1, title=title, xlabel="random loss (%)")


class Fig9(Figure):
    """Retransmissions over alpha."""

    def runs(self, p):
        """One run per alpha, buffer and seed."""
        return [
            (
                {"buffer_bdp": buffer, "alpha_pct": alpha, "seed": seed},
                run_of(
                    [flow(BBR2) | {"cc": f"bbr2:loss_thresh={alpha / 100:g}"}],
                    seed,
                    p["duration"],
                    {"buffer": f"{buffer}bdp"},
                ),
            )
            for buffer in p["buffers_bdp"]
            for alpha in p["alphas_pct"]
            for seed in p["seeds"]
        ]

    def row(self, labels, result, p):
        """Retransmissions, in the run and in its last two thirds (without STARTUP)."""
        flow_ = result["flows"][0]
        return {
            "retransmitted_pct": 100 * flow_["retransmit_ratio"],
            "tail_retransmitted_pct": 100 * (flow_["tail_retransmit_ratio"] or 0.0),
        }

    def claims(self, made):
        """Section 3.4."""
        buffers = sorted(made.table.buffer_bdp.unique())
        curves = {b: made.column("retransmitted_pct", "alpha_pct", buffer_bdp=b) for b in buffers}
        turns = {b: _turn(*curve) for b, curve in curves.items()}
        lossy = [b for b in buffers if b < 2]
        known = [turns[b] for b in lossy if turns[b] is not None]
        deep = curves[buffers[-1]][1]
        alphas = listed(curves[lossy[0]][0], "{:g}")
        return [
            judge(
                "9",
                "retransmissions rise once alpha exceeds a point that depends on the buffer",
                {
                    "they rise at every buffer below 2 BDP": len(known) == len(lossy),
                    "at different alphas": len(set(known)) > 1,
                },
                paper="a turning point per buffer",
                here="; ".join(f"{b:g} BDP {listed(curves[b][1])} %" for b in lossy) + f" at alpha {alphas} %",
                mechanism="what rises is STARTUP, which losses above alpha end; a probe later loses some ten packets "
                "whatever alpha, because it lasts a round",
            ),
            judge(
                "9",
                "at 2 BDP there are none, whatever alpha",
                {"below 0.1 % at every alpha": bool((deep < 0.1).all())},
                paper="eliminated",
                here=f"at most {deep.max():.3f} % at {buffers[-1]:g} BDP",
                mechanism="flight is capped at two BDPs, which path and buffer hold",
            ),
        ]

    def plot(self, made):
        """Retransmissions over alpha, a line per buffer."""
        from cctrace.plot import lines

        table = made.table.assign(buffer=made.table.buffer_bdp.map("{:g} BDP".format))
        panels = [("retransmitted_pct", "retransmitted (%)"), ("tail_retransmitted_pct", "…in the last two thirds (%)")]
        return lines(table, "alpha_pct", panels, "buffer", title=f"BBRv2+, Fig. 9: {self.title}", xlabel="alpha (%)")


def _turn(alphas, values):
    """Return the first alpha from which a fifth more is retransmitted than at the smallest, or None."""
    more = values > 1.2 * values[0]
    return float(alphas[more][0]) if more.any() else None


FIGURES = [
    Fig8(
        "8",
        "throughput over random losses",
        {
            "systems": (BBR, BBR2, BBR2_20, BBR2_20_0, CUBIC, PLUS, PLUS_20, PLUS_PAPER),
            "losses_pct": (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0),
            "seeds": SEEDS,
            "duration": "60s",
        },
        {"losses_pct": (1.0, 5.0, 10.0), "seeds": (1,), "duration": "6s"},
        ("system", "loss_pct"),
    ),
    Fig9(
        "9",
        "retransmissions of BBRv2(alpha, 0.3)",
        {
            "buffers_bdp": (0.2, 0.5, 1.0, 1.5, 2.0),
            "alphas_pct": (2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0),
            "seeds": SEEDS,
            "duration": "60s",
        },
        {"buffers_bdp": (0.2, 1.0, 2.0), "alphas_pct": (2.0, 20.0), "seeds": (1,), "duration": "6s"},
        ("buffer_bdp", "alpha_pct"),
    ),
]
