"""Chung et al., *BBRx* (NetDev 0x12, 2018): Figs. 2 and 3; `bbrx_learned` compares Table I with what the agent learns.

Fig. 2: k = 6, one flow, 5 Mbit/s, 25 ms, queues of 40 to 200 ms. Fig. 3: six flows; the text names 15 Mbit/s, 25 ms
and "over 100 ms"; the other rates and the queue are chosen here, and varied. Fig. 4 is in `bbrx_lte`.

Utility: Eq. 6, slope 100 (PCC Allegro's; the paper has none). Stability margins: the linear loop of
`cctrace.analytic.pilaw` with the RTT at its target, k/4 Rmin, and a rate that is set once per epoch of Rmin. Its
delay is then beta (k/4 + 1/2) of an epoch, independent of rate and Rmin, so linear margins cannot explain what Fig.
3 shows of either.

Sources: [Chung18].
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cctrace.analytic import pilaw
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Figure, Reproduction, drawing, measures
from cctrace.papers.runs import Result, Run
from cctrace.papers.varied import AS_CHOSEN

K = 6
HOLD = 0.5  # epochs, the mean age of a rate that is set once in each (`pilaw.loop_gain`)
BETAS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
QUEUES_MS = (40, 80, 120, 160, 200)
FLAT = 0.02  # of the best utility: a beta this close belongs to its range
SEEDS = (1, 2, 3)


class Chung18(Figure):
    """A figure of this paper."""

    paper = "BBRx"


def flat_range(betas: ArrayLike, utilities: ArrayLike) -> tuple[float, float]:
    """Return the lowest and the highest beta around the best whose utility is within `FLAT` of it.

    >>> flat_range([0.1, 0.2, 0.3, 0.4], [1.0, 2.0, 1.99, 1.0])
    (0.2, 0.3)
    """
    betas, utilities = np.asarray(betas, float), np.asarray(utilities, float)
    best = int(np.argmax(utilities))
    poor = np.flatnonzero(utilities < utilities[best] - FLAT * abs(utilities[best]))
    after = int(np.searchsorted(poor, best))
    low = poor[after - 1] + 1 if after else 0
    high = poor[after] - 1 if after < len(poor) else len(betas) - 1
    return float(betas[low]), float(betas[high])


def run_of(
    beta: float, flows: int, rate_mbps: float, rtt_ms: float, queue_ms: float, seed: int, duration_s: float
) -> Run:
    """Return the `Run` of some flows of BBRx over a dumbbell."""
    path = {"rate": f"{rate_mbps}Mbit", "rtt": f"{rtt_ms}ms", "buffer": f"{round(rate_mbps * queue_ms * 125)}B"}
    senders = [{"cc": f"bbrx:beta={beta},k={K}"}] * flows
    return Run({"path": path, "flows": senders, "duration": f"{duration_s:g}s", "seed": seed})


class _Utility(Chung18):
    """Utility over beta."""

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Mean utility over the flows, what it is made of, and the linear loop's margins."""
        flows = result["flows"]
        rates = np.array([flow["goodput_bps"] / 1e6 for flow in flows])
        lost = np.array([flow["retransmit_ratio"] for flow in flows])
        delta = labels.get("rtt_ms", 25) / 1e3
        phase, gain = pilaw.margins(labels["beta"], delta, K / 4 * delta, HOLD)
        return {
            "utility": float(pilaw.mean_utility(rates, lost)),
            "goodput_mbps": float(rates.mean()),
            "lost_pct": 100 * float(lost.mean()),
            **measures(flows[0], "queue_ms"),
            "phase_margin_deg": float(phase),
            "gain_margin": float(gain),
        }


class Fig2(_Utility):
    """One flow, the queue's length varied."""

    OVERFLOWS = "with a small beta BBRx is BBR, and loses utility to overflows as the buffer gets shorter"

    varied = {"queue_limit_ms": "queues_ms", "beta": "betas"}
    drawn = drawing("lines", "beta",
                    [("utility", "utility (Mbit/s)", {"top": 5.5}), ("lost_pct", "retransmitted (%)"),
                     ("queue_ms", "queue (ms)"), ("phase_margin_deg", "phase margin (degrees)", {"zero": False})],
                    "queue", xlabel="beta")  # fmt: skip

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow over 5 Mbit/s and 25 ms."""
        return run_of(at["beta"], 1, 5, 25, at["queue_limit_ms"], at["seed"], p["duration_s"])

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A line per queue."""
        return made.table.assign(queue=made.table.queue_limit_ms.map("{:g} ms".format))

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section III-A."""
        queues = sorted(made.each("queue_limit_ms"))
        curve = {q: made.column("utility", "beta", queue_limit_ms=q) for q in queues}
        betas = curve[queues[0]][0]
        least, best = {q: c[1][0] for q, c in curve.items()}, {q: c[1].max() for q, c in curve.items()}
        last = {q: c[1][-1] for q, c in curve.items()}
        middle = (betas >= 0.2) & (betas <= 0.6)
        yield Stated("2", self.OVERFLOWS, "lower utility").judged(
            {
                "less utility in the shortest queue than in the longest": least[queues[0]] < 0.98 * least[queues[-1]],
                "and 2 % less than the best beta there": least[queues[0]] < 0.98 * best[queues[0]],
            },
            f"{listed(least.values())} at beta {betas[0]:g}, queues {listed(queues, '{:g}')} ms; best "
            f"{listed(best.values())}",
            reading=AS_CHOSEN,
        )
        yield Stated("2", "beyond beta 0.6 the utility decreases", "decreases, unstable").judged(
            {"at the largest beta 2 % below the best": all(last[q] < 0.98 * best[q] for q in queues)},
            f"{listed(last.values())} at beta {betas[-1]:g}, best {listed(best.values())}",
        )
        yield Stated("2", "the range from 0.2 to 0.6 is stable and flat", "[0.2, 0.6]").judged(
            {
                f"all within {FLAT:.0%} of the best": all(
                    (curve[q][1][middle] >= (1 - FLAT) * best[q]).all() for q in queues
                )
            },
            ", ".join("{:g} ms [{:g}, {:g}]".format(q, *flat_range(*curve[q])) for q in queues)
            + f"; phase margin {listed(pilaw.margins(np.array([0.2, 0.6]), 1.0, K / 4, HOLD)[0], '{:.0f}')} degrees",
        )


class Fig3(_Utility):
    """Six flows over rates and RTTs."""

    RIGHT = "at 25 ms the range is wide, and moves right to [0.5, 0.7] as C grows"
    LEFT = "at 15 Mbit/s the range shrinks and moves left to [0.2, 0.4] as Rmin grows over 100 ms"

    varied = {"rate_mbps": "rates_mbps", "rtt_ms": "rtts_ms", "queue_limit_ms": "queues_ms", "beta": "betas"}
    drawn = drawing(
        "lines", "beta", [("share", "utility / (C/6)", {"zero": False})], "rtt", panel_by="panel", xlabel="beta"
    )

    def run(self, at: Fields, p: Fields) -> Run:
        """Six flows."""
        link = (at["rate_mbps"], at["rtt_ms"], at["queue_limit_ms"])
        return run_of(at["beta"], 6, *link, at["seed"], p["duration_s"])

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """Utility over the link's share, a panel per rate, a line per RTT; the middle queue."""
        table = made.rows(queue_limit_ms=self.queue_ms(made))
        return table.assign(
            rtt=table.rtt_ms.map("{:g} ms".format),
            panel=table.rate_mbps.map("{:g} Mbit/s".format),
            share=6 * table.utility / table.rate_mbps,
        )

    def queue_ms(self, made: Reproduction) -> float:
        """Return the queue that is drawn: the middle one."""
        queues = sorted(made.each("queue_limit_ms"))
        return queues[len(queues) // 2]

    def heading(self, made: Reproduction) -> str:
        """Return the title, with the queue."""
        return f"{super().heading(made)}, queue {self.queue_ms(made)} ms"

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section III-B, for every queue."""
        for queue in sorted(made.each("queue_limit_ms")):
            ranges = {
                (rate, rtt): flat_range(
                    *made.column("utility", "beta", rate_mbps=rate, rtt_ms=rtt, queue_limit_ms=queue)
                )
                for rate in sorted(made.each("rate_mbps"))
                for rtt in sorted(made.each("rtt_ms"))
            }
            rates, rtts = sorted({k[0] for k in ranges}), sorted({k[1] for k in ranges})
            (low0, high0), (low1, high1) = ranges[rates[0], rtts[0]], ranges[rates[0], rtts[-1]]
            fast = ranges[rates[-1], rtts[0]]
            best = made.rows(rate_mbps=rates[0], rtt_ms=rtts[-1], queue_limit_ms=queue).utility.max()
            yield Stated("3a", self.LEFT, "[0.2, 0.4]").judged(
                {
                    "narrower": high1 - low1 < high0 - low0,
                    "its middle lower": low1 + high1 < low0 + high0,
                    "a positive utility there": best > 0,
                },
                _ranges(ranges, rates[:1], rtts),
                {"from": (0.2, low1), "to": (0.4, high1)},
                reading=f"queue {queue} ms",
            )
            yield Stated("3", self.RIGHT, "[0.5, 0.7]").judged(
                {
                    "0.2 wide at each rate": all(ranges[r, rtts[0]][1] - ranges[r, rtts[0]][0] >= 0.2 for r in rates),
                    "its middle higher at the highest rate": sum(fast) > low0 + high0,
                },
                _ranges(ranges, rates, rtts[:1]),
                {"from": (0.5, fast[0]), "to": (0.7, fast[1])},
                reading=f"queue {queue} ms",
            )


def _ranges(ranges: dict[tuple[float, float], tuple[float, float]], rates: list, rtts: list) -> str:
    return ", ".join("{:g} Mbit/s {:g} ms [{:g}, {:g}]".format(c, r, *ranges[c, r]) for c in rates for r in rtts)


FIGURES = [
    Fig2("2", "utility over beta, queues of 40 to 200 ms",
         {"queues_ms": QUEUES_MS, "betas": BETAS, "seeds": SEEDS, "duration_s": 60.0},
         {"queues_ms": (40, 200), "betas": BETAS[::2], "seeds": (1,), "duration_s": 20.0}),
    Fig3("3", "utility over beta, six flows",
         {"rates_mbps": (15, 50, 100), "rtts_ms": (25, 50, 100, 200), "queues_ms": (40, 100, 200), "betas": BETAS,
          "seeds": SEEDS, "duration_s": 30.0},
         {"rates_mbps": (15, 50), "rtts_ms": (25, 200), "queues_ms": (100,), "betas": (0.1, 0.3, 0.5, 0.7, 0.9),
          "seeds": (1,), "duration_s": 10.0}),
]  # fmt: skip
