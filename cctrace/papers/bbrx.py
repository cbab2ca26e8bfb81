"""Chung et al., *BBRx* (NetDev 0x12, 2018): Figs. 2 to 4; `bbrx_learned` compares Table I with what the agent learns.

Fig. 2: k = 6, one flow, 5 Mbit/s, 25 ms, queues of 40 to 200 ms. Fig. 3: six flows; the text names 15 Mbit/s, 25 ms
and "over 100 ms"; the other rates and the queue are chosen here, and varied. Fig. 4 is a live LTE network: path
presets instead, beta = 0.5 and k = 6 as in section IV, against BBR of Linux 4.15 (`bbr2016`).

Utility: Eq. 6, slope 100 (PCC Allegro's; the paper has none). Stability margins: the linear loop of
`cctrace.analytic.pilaw` with the RTT at its target, k/4 Rmin, and a rate that is set once per epoch of Rmin. Its
delay is then beta (k/4 + 1/2) of an epoch, independent of rate and Rmin, so linear margins cannot explain what Fig.
3 shows of either. Of Fig. 4's network the text gives 80 Mbit/s and more: in addition to the presets, one whose
rates are scaled to a mean of 115 is run, with its buffer and with one that holds all of BBR's start-up.

Sources: [Chung18].
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from cctrace import plot
from cctrace.analytic import pilaw
from cctrace.papers.claims import Claim, judge, listed
from cctrace.papers.figure import Drawn, Fields, Figure, Reproduction, drawing, measures
from cctrace.papers.runs import Result, Run
from cctrace.papers.traces import of_preset, scaled
from cctrace.tcp.wire import MSS_BYTES
from cctrace.units import parse_time_ns

K = 6
HOLD = 0.5  # epochs, the mean age of a rate that is set once in each (`pilaw.loop_gain`)
BETAS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
QUEUES_MS = (40, 80, 120, 160, 200)
FLAT = 0.02  # of the best utility: a beta this close belongs to its range
SEEDS = (1, 2, 3)
SYSTEMS = {"BBRx": f"bbrx:beta=0.5,k={K}", "BBR": "bbr2016"}  # of Fig. 4


STARTED_S = 3.0  # of Fig. 4's runs: by then start-up is over
SCALED_MBPS = 115.0
SCALED = {"LTE at 115 Mbit/s": {}, "LTE at 115 Mbit/s, 6 MB of buffer": {"buffer": "6MB"}}  # changes of the path


def lte(name: str, seed: int) -> Fields:
    """Return the fields of `Path` of an LTE preset, or of what is `SCALED`.

    >>> lte("LTE at 115 Mbit/s, 6 MB of buffer", 1)["buffer"]
    '6MB'
    """
    fields = of_preset("lte_tmobile" if name in SCALED else name, seed)
    return fields | {"rate": scaled(fields["rate"], SCALED_MBPS)} | SCALED[name] if name in SCALED else fields


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
            "mbps": float(rates.mean()),
            "lost_pct": 100 * float(lost.mean()),
            **measures(flows[0], "queue_ms"),
            "phase_margin_deg": float(phase),
            "gain_margin": float(gain),
        }


class Fig2(_Utility):
    """One flow, the queue's length varied."""

    varied = {"queue_limit_ms": "queues_ms", "beta": "betas"}
    drawn = drawing(
        "lines",
        "beta",
        [
            ("utility", "utility (Mbit/s)", {"top": 5.5}),
            ("lost_pct", "retransmitted (%)"),
            ("queue_ms", "queue (ms)"),
            ("phase_margin_deg", "phase margin (degrees)", {"zero": False}),
        ],
        "queue",
        xlabel="beta",
    )

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
        yield judge(
            "2",
            "with a small beta BBRx is BBR, and loses utility to overflows as the buffer gets shorter",
            {
                "less utility in the shortest queue than in the longest": least[queues[0]] < 0.98 * least[queues[-1]],
                "and 2 % less than the best beta there": least[queues[0]] < 0.98 * best[queues[0]],
            },
            paper="lower utility",
            here=f"{listed(least.values())} at beta {betas[0]:g}, queues {listed(queues, '{:g}')} ms; best "
            f"{listed(best.values())}",
        )
        yield judge(
            "2",
            "beyond beta 0.6 the utility decreases",
            {"at the largest beta 2 % below the best": all(last[q] < 0.98 * best[q] for q in queues)},
            paper="decreases, unstable",
            here=f"{listed(last.values())} at beta {betas[-1]:g}, best {listed(best.values())}",
        )
        yield judge(
            "2",
            "the range from 0.2 to 0.6 is stable and flat",
            {
                f"all within {FLAT:.0%} of the best": all(
                    (curve[q][1][middle] >= (1 - FLAT) * best[q]).all() for q in queues
                )
            },
            paper="[0.2, 0.6]",
            here=", ".join("{:g} ms [{:g}, {:g}]".format(q, *flat_range(*curve[q])) for q in queues)
            + f"; phase margin {listed(pilaw.margins(np.array([0.2, 0.6]), 1.0, K / 4, HOLD)[0], '{:.0f}')} degrees",
        )


class Fig3(_Utility):
    """Six flows over rates and RTTs."""

    varied = {"mbps_link": "rates_mbps", "rtt_ms": "rtts_ms", "queue_limit_ms": "queues_ms", "beta": "betas"}
    drawn = drawing(
        "lines", "beta", [("share", "utility / (C/6)", {"zero": False})], "rtt", panel_by="panel", xlabel="beta"
    )

    def run(self, at: Fields, p: Fields) -> Run:
        """Six flows."""
        link = (at["mbps_link"], at["rtt_ms"], at["queue_limit_ms"])
        return run_of(at["beta"], 6, *link, at["seed"], p["duration_s"])

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """Utility over the link's share, a panel per rate, a line per RTT; the middle queue."""
        table = made.rows(queue_limit_ms=self.queue_ms(made))
        return table.assign(
            rtt=table.rtt_ms.map("{:g} ms".format),
            panel=table.mbps_link.map("{:g} Mbit/s".format),
            share=6 * table.utility / table.mbps_link,
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
                    *made.column("utility", "beta", mbps_link=rate, rtt_ms=rtt, queue_limit_ms=queue)
                )
                for rate in sorted(made.each("mbps_link"))
                for rtt in sorted(made.each("rtt_ms"))
            }
            rates, rtts = sorted({k[0] for k in ranges}), sorted({k[1] for k in ranges})
            (low0, high0), (low1, high1) = ranges[rates[0], rtts[0]], ranges[rates[0], rtts[-1]]
            fast = ranges[rates[-1], rtts[0]]
            yield judge(
                "3a",
                "at 15 Mbit/s the range shrinks and moves left to [0.2, 0.4] as Rmin grows over 100 ms",
                {"narrower": high1 - low1 < high0 - low0, "its middle lower": low1 + high1 < low0 + high0},
                paper="[0.2, 0.4]",
                here=_ranges(ranges, rates[:1], rtts),
                reading=f"queue {queue} ms",
            )
            yield judge(
                "3",
                "at 25 ms the range is wide, and moves right to [0.5, 0.7] as C grows",
                {
                    "0.2 wide at each rate": all(ranges[r, rtts[0]][1] - ranges[r, rtts[0]][0] >= 0.2 for r in rates),
                    "its middle higher at the highest rate": sum(fast) > low0 + high0,
                },
                paper="[0.5, 0.7]",
                here=_ranges(ranges, rates, rtts[:1]),
                reading=f"queue {queue} ms",
            )


def _ranges(ranges: dict[tuple[float, float], tuple[float, float]], rates: list, rtts: list) -> str:
    return ", ".join("{:g} Mbit/s {:g} ms [{:g}, {:g}]".format(c, r, *ranges[c, r]) for c in rates for r in rtts)


class Fig4(Chung18):
    """BBRx and BBR over LTE path presets."""

    varied = {"path": "paths", "system": "systems"}

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        arguments = {"path": lte(at["path"], at["seed"]), "flows": [{"cc": SYSTEMS[at["system"]]}], "seed": at["seed"]}
        kept = ["time_s", "in_flight_segments", "srtt_us", "queue_delay_us"]
        return Run(arguments | {"duration": f"{p['duration_s']:g}s", "sample": "50ms", "keep": kept})

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Throughput, RTT, retransmissions, and the peaks of start-up."""
        flow, line = result["flows"][0], result["timeline"][0]
        base_ms = parse_time_ns(lte(labels["path"], labels["seed"])["rtt"]) / 1e6
        first = np.array(line["time_s"]) < STARTED_S
        return measures(flow, "mbps", "retransmitted_pct") | {
            "rtt_ms": flow["rtt_mean_us"] / 1e3,
            "rtt_p95_ms": flow["rtt_p95_us"] / 1e3,
            "peak_mb": float(np.array(line["in_flight_segments"])[first].max() * MSS_BYTES / 1e6),
            "peak_rtt_ms": base_ms + float(np.array(line["queue_delay_us"])[first].max() / 1e3),
            "line": line,
        }

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section IV, over the presets and over what is scaled."""
        presets = made.table[~made.table.path.isin(SCALED)]
        for name, rows in [("presets", presets), *((name, made.rows(path=name)) for name in SCALED)]:
            if not len(rows):
                continue
            mean = rows.groupby("system")[["mbps", "rtt_ms", "retransmitted_pct", "peak_mb", "peak_rtt_ms"]].mean()
            gain = mean.mbps["BBRx"] / mean.mbps["BBR"]
            yield judge(
                "4",
                "BBRx has more throughput than BBR at a lower RTT and without retransmissions",
                {
                    "more throughput": gain > 1,
                    "lower RTT": mean.rtt_ms["BBRx"] < mean.rtt_ms["BBR"],
                    "fewer retransmissions": mean.retransmitted_pct["BBRx"] < mean.retransmitted_pct["BBR"],
                },
                paper="110.2 against 92.6 Mbit/s, a single trial over a live LTE network",
                here=f"{mean.mbps['BBRx']:.1f} against {mean.mbps['BBR']:.1f} Mbit/s, RTT {mean.rtt_ms['BBRx']:.0f} "
                f"and {mean.rtt_ms['BBR']:.0f} ms, {listed(mean.retransmitted_pct)} % retransmitted (BBR/BBRx)",
                sizes={"times": (110.2 / 92.6, gain)},
                reading=name,
            )
            if name in SCALED:
                yield from _starting(mean, name)

    def plot(self, made: Reproduction) -> Drawn:
        """In flight and smoothed RTT over time, a panel per path and system (first seed)."""
        series = {}
        for row in made.first_seed():
            line = row["line"]
            series[f"{row['path']}, {row['system']}"] = [
                (line["time_s"], [1.448 * n for n in line["in_flight_segments"]], "in flight", {"colour": "#1f6fb2"}),
                (line["time_s"], [v / 1e3 for v in line["srtt_us"]], "srtt", {"right": True, "colour": "#333333"}),
            ]
        return plot.over_time(series, title=self.heading(made), ylabel="KB", right="srtt (ms)")


def _starting(mean: pd.DataFrame, name: str) -> Iterator[Claim]:
    """Section IV on how both start."""
    peak, spike = mean.peak_mb, mean.peak_rtt_ms
    yield judge(
        "4a",
        "BBR's start-up grows to more than 3 MB",
        {},
        paper="> 3 MB",
        here=f"{peak['BBR']:.2f} MB in flight, BBRx {peak['BBRx']:.2f}",
        sizes={"MB": (3.0, peak["BBR"])},
        reading=name,
    )
    yield judge(
        "4b",
        "the end of BBR's start-up makes RTTs of up to 350 ms",
        {},
        paper="350 ms",
        here=f"{spike['BBR']:.0f} ms, BBRx {spike['BBRx']:.0f}",
        sizes={"ms": (350.0, spike["BBR"])},
        reading=name,
    )
    yield judge(
        "4",
        "BBRx leaves its start-up gracefully, BBR with a burst",
        {"a tenth less in flight": peak["BBRx"] <= 0.9 * peak["BBR"], "shorter RTTs": spike["BBRx"] < spike["BBR"]},
        paper="no burst of duplicate ACKs",
        here=f"{peak['BBRx']:.2f} against {peak['BBR']:.2f} MB, {spike['BBRx']:.0f} against {spike['BBR']:.0f} ms",
        reading=name,
    )


FIGURES = [
    Fig2(
        "2",
        "utility over beta, queues of 40 to 200 ms",
        {"queues_ms": QUEUES_MS, "betas": BETAS, "seeds": SEEDS, "duration_s": 60.0},
        {"queues_ms": (40, 200), "betas": BETAS[::2], "seeds": (1,), "duration_s": 20.0},
    ),
    Fig3(
        "3",
        "utility over beta, six flows",
        {
            "rates_mbps": (15, 50, 100),
            "rtts_ms": (25, 50, 100, 200),
            "queues_ms": (40, 100, 200),
            "betas": BETAS,
            "seeds": SEEDS,
            "duration_s": 30.0,
        },
        {
            "rates_mbps": (15, 50),
            "rtts_ms": (25, 200),
            "queues_ms": (100,),
            "betas": (0.1, 0.3, 0.5, 0.7, 0.9),
            "seeds": (1,),
            "duration_s": 10.0,
        },
    ),
    Fig4(
        "4",
        "BBRx and BBR over LTE presets",
        {
            "paths": ("lte_tmobile", "lte_verizon", "lte_att_driving", *SCALED),
            "systems": tuple(SYSTEMS),
            "seeds": SEEDS,
            "duration_s": 60.0,
        },
        {"paths": ("lte_tmobile", *SCALED), "seeds": (1,), "duration_s": 10.0},
        ("system", "path"),
    ),
]
