"""BBRv2+, Figs. 11, 15, 16 and 17: a rate that changes in steps.

Figs. 11 and 15: 40 ms, +-5 Mbit/s every 2 s, 32 BDP of buffer, sampled every 100 ms (sections 3.5, 5.2). The first
rate, the span and which BDP is meant are not in the text: 5 to 50 Mbit/s and back, the BDP of the highest rate; beside
it the BDP of the lowest, and the whole shifted by 50 Mbit/s.

Figs. 16 and 17: five traces with steps, 1.5 MB of buffer, 20 ms, no loss; the traces are not published: five are drawn
here, rates of 6 to 48 Mbit/s held for 5 s. The delay may be one way (Mahimahi's option) or both: both are run.
"""

import random

import numpy as np
import pandas as pd

from cctrace.cc.bbr2_model import BW_UNIT
from cctrace.papers.bbr2plus import BBR, BBR2, CUBIC, PLUS, PLUS_20, PLUS_PAPER, SEEDS, SINGLE_PAPER, listed, run_of
from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.normalised import normalised, over_runs, scattered
from cctrace.tcp.wire import PACKET_BYTES

STEP_S, STEP_MBPS, STEPS = 2, 5, 10
CASES = {"5 to 50": (5, 50), "5 to 50, buffer of 5": (5, 5), "55 to 100": (55, 100)}  # lowest rate, rate of the BDP
V1 = ("bw_v",)
V2 = ("bw_hi0", "bw_hi1")


def staircase(direction, lowest_mbps):
    """Return [(second, rate)] of ten steps up or down, from or to `lowest_mbps`."""
    rates = [lowest_mbps + STEP_MBPS * k for k in range(STEPS)]
    return [[STEP_S * k, f"{r}Mbit"] for k, r in enumerate(rates if direction == "up" else rates[::-1])]


class _Staircase(Figure):
    """Utilisation and queue on the way up and on the way down."""

    def runs(self, p):
        """One run per system, direction, lowest rate and seed."""
        out = []
        for system in p["systems"]:
            for case in p["cases"]:
                lowest, rate = CASES[case]
                for direction in ("up", "down"):
                    steps = staircase(direction, lowest)
                    buffer = round(32 * rate * 1e6 / 8 * 0.04)
                    for seed in p["seeds"]:
                        labels = {"system": system, "direction": direction, "case": case, "seed": seed}
                        run = run_of(
                            [system],
                            seed,
                            f"{STEP_S * STEPS}s",
                            {"rate": steps, "buffer": f"{buffer}B"},
                            sample="100ms",
                            watch=list(V1 if system == BBR else V2),
                            keep=["time_s", "delivered_segments", "queue_delay_us", *(V1 if system == BBR else V2)],
                        )
                        out.append((labels, run))
        return out

    def row(self, labels, result, p):
        """Utilisation, queueing delay, and the samples for the plot."""
        flow, line = result["flows"][0], result["timeline"][0]
        queue_ms = np.array(line["queue_delay_us"], float) / 1e3
        return {
            "utilisation": result["link"]["utilisation"],
            "queue_ms": flow["queue_delay_mean_us"] / 1e3,
            "queue_p95_ms": flow["queue_delay_p95_us"] / 1e3,
            "line": _samples(line, queue_ms),
        }

    def plot(self, made):
        """The estimate, the link's rate and the queue over time, a panel per system and direction (first seed)."""
        from cctrace.plot import over_time

        case, seed = made.runs.case.iloc[0], made.runs.seed.min()
        lowest, series = CASES[case][0], {}
        for row in made.runs[(made.runs.case == case) & (made.runs.seed == seed)].to_dict("records"):
            steps = staircase(row["direction"], lowest)
            at = [*(s[0] for s in steps), STEP_S * STEPS]
            rate = [float(s[1].removesuffix("Mbit")) for s in steps]
            line = row["line"]
            series[f"{row['system']}, {row['direction']}"] = [
                (at, [*rate, rate[-1]], "link", {"step": True, "colour": "#2e8b57"}),
                (line["time_s"], line["bw_mbps"], "bandwidth estimate", {"colour": "#b3541e"}),
                (line["time_s"], line["queue_ms"], "queueing delay", {"right": True, "colour": "#333333"}),
            ]
        title = f"BBRv2+, Fig. {self.name}: {self.title}"
        return over_time(series, title=title, ylabel="Mbit/s", right="queue (ms)")


def _samples(line, queue_ms):
    """Return what is drawn of one run: times, estimate on the wire, queue."""
    best = np.max([np.array(line[name], float) for name in (*V1, *V2) if name in line], axis=0)
    return {
        "time_s": line["time_s"],
        "bw_mbps": (best / BW_UNIT * PACKET_BYTES * 8).tolist(),
        "queue_ms": queue_ms.tolist(),
    }


def _said(made, column, direction, case, form):
    return ", ".join(
        f"{system} {form.format(made.value(column, system=system, direction=direction, case=case))}"
        for system in dict.fromkeys(made.table.system)
    )


class Fig11(_Staircase):
    """BBR and BBRv2."""

    def claims(self, made):
        """Section 3.5."""
        out = []
        for case in dict.fromkeys(made.table.case):
            at = {"case": case}
            used = {s: made.value("utilisation", system=s, direction="up", **at) for s in (BBR, BBR2)}
            queue = {s: made.value("queue_ms", system=s, direction="down", **at) for s in (BBR, BBR2)}
            out.append(
                judge(
                    "11",
                    f"BBRv2 answers changes of the rate less well than BBR ({case} Mbit/s)",
                    {
                        "uses less of the link on the way up": used[BBR2] < used[BBR] - 0.02,
                        "queues more on the way down": queue[BBR2] > queue[BBR],
                    },
                    paper="low utilisation, long queueing delay",
                    here=f"up: {_said(made, 'utilisation', 'up', case, '{:.0%}')}; down: "
                    f"{_said(made, 'queue_ms', 'down', case, '{:.0f} ms')}",
                    mechanism="it probes every 2 to 3 s (at most 63 rounds), and forgets a maximum after two probes",
                    recording="Linux 6.18, bbr from 20 to 5 Mbit/s: RTT 160 to 171 ms (docs/simulation.md)",
                )
            )
        return out


class Fig15(_Staircase):
    """BBRv2+."""

    def claims(self, made):
        """Section 5.2, for every form."""
        out = []
        for case in dict.fromkeys(made.table.case):
            rows = made.table[made.table.case == case].pivot_table(
                ["utilisation", "queue_ms"], index="system", columns="direction"
            )
            up, q_up, down = rows["utilisation", "up"], rows["queue_ms", "up"], rows["queue_ms", "down"]
            for plus in (PLUS, PLUS_20, PLUS_PAPER, SINGLE_PAPER):
                from_ = f"{plus}; {case} Mbit/s"
                out += [
                    judge(
                        "15a",
                        f"BBRv2+ takes up new bandwidth as quickly as BBR, with less queue ({from_})",
                        {
                            "at least 95 % of BBR's utilisation": up[plus] >= 0.95 * up[BBR],
                            "more than BBRv2's": up[plus] > up[BBR2],
                            "less queue than BBR": q_up[plus] < q_up[BBR],
                        },
                        paper="as quick as BBR, lower delay",
                        here=f"utilisation {up[plus]:.0%}, BBR {up[BBR]:.0%}, BBRv2 {up[BBR2]:.0%}; queue "
                        f"{q_up[plus]:.1f} against {q_up[BBR]:.1f} ms",
                        mechanism=_WHY_UP[plus],
                    ),
                    judge(
                        "15b",
                        f"BBRv2+ follows a falling rate much faster than BBR and BBRv2 ({from_})",
                        {
                            "less queue than BBR": down[plus] < down[BBR],
                            "less queue than BBRv2": down[plus] < down[BBR2],
                            "at most half of either": down[plus] <= min(down[BBR], down[BBR2]) / 2,
                        },
                        paper="much faster, lower delay",
                        here=f"queue {down[plus]:.1f} ms, BBR {down[BBR]:.0f}, BBRv2 {down[BBR2]:.0f} ms",
                        mechanism=_WHY[plus],
                    ),
                ]
        return out


_WHY_UP = {
    PLUS: "each probe is compared with the round just before it. A queue that has grown to the window's cap of two BDPs"
    " cannot grow further, so every probe looks harmless: the module goes from UP to POST_UP and back over a standing "
    "queue of a BDP until PROBE_RTT (watch `cycle_idx`)",
    PLUS_20: "as released: alpha plays no part without losses",
    PLUS_PAPER: "it probes again only while the round's least RTT stays within 2 % of that before the probe; what it "
    "lacks in utilisation the dual mode costs: its own queue makes it fall back to BBRv2 (see the form without)",
    SINGLE_PAPER: "without the dual mode it never probes as seldom as BBRv2",
}
_WHY = {
    PLUS: "a round well above the recent minima expires a bandwidth, and so does every 25th round",
    PLUS_20: "as released: alpha plays no part without losses",
    PLUS_PAPER: "Algorithm 1: every round above 1.1 RTprop expires a bandwidth, until the queue is gone",
    SINGLE_PAPER: "Algorithm 1, as with the dual mode",
}


class Fig17(Figure):
    """Normalised throughput and queueing delay over traces with steps."""

    def runs(self, p):
        """One run per system, trace and meaning of the delay."""
        return [
            (
                {"system": system, "rtt_ms": rtt, "trace": trace, "seed": trace},
                run_of(
                    [system],
                    trace,
                    p["duration"],
                    {"rate": random_steps(trace), "rtt": f"{rtt}ms", "buffer": "1500000B"},
                    sample="100ms",
                    keep=["time_s", "delivered_segments", "queue_delay_us"],
                ),
            )
            for system in p["systems"]
            for rtt in p["rtts_ms"]
            for trace in p["drawn"]
        ]

    def row(self, labels, result, p):
        """Throughput, queueing delay, their spread over time."""
        return scattered(result)

    def derived(self, frame, p):
        """Normalise on each trace, as the paper does."""
        return pd.concat([normalised(part) for _, part in frame.groupby("rtt_ms")], ignore_index=True)

    def claims(self, made):
        """Section 5.2."""
        out = []
        for rtt in sorted(made.table.rtt_ms.unique()):
            for plus in (PLUS, PLUS_20, PLUS_PAPER):
                rate = {s: made.value("throughput", system=s, rtt_ms=rtt) for s in (BBR, BBR2, plus)}
                delay = {s: made.value("delay", system=s, rtt_ms=rtt) for s in (BBR, BBR2, plus)}
                out.append(
                    judge(
                        "17",
                        "BBRv2+ has more throughput and less delay than BBRv2, less delay and slightly less throughput "
                        f"than BBR ({plus}; RTT {rtt:g} ms)",
                        {
                            "more throughput than BBRv2": rate[plus] > rate[BBR2],
                            "less delay than BBRv2": delay[plus] < delay[BBR2],
                            "less delay than BBR": delay[plus] < delay[BBR],
                            "0 to 10 % less throughput than BBR": 0 <= rate[BBR] - rate[plus] <= 0.1,
                        },
                        paper="both, on five traces of the authors",
                        here=f"throughput {listed(rate.values())}, delay {listed(delay.values(), '{:.1f}')} of "
                        f"{'/'.join(rate)} (normalised)",
                        mechanism="the traces are ours, drawn from the text's description",
                    )
                )
        return out

    def plot(self, made):
        """Ellipses, a panel per meaning of the delay."""
        from cctrace.plot import ellipses

        rows = over_runs(made.table).assign(rtt=made.table.rtt_ms.map("RTT {:g} ms".format))
        return ellipses(rows, "system", panel_by="rtt", title=f"BBRv2+, Fig. 17: {self.title}")


def random_steps(seed, seconds=60, every=5):
    """Return [(second, rate)] of a trace with steps: 6 to 48 Mbit/s, no rate twice in a row."""
    chance, rates, last = random.Random(seed), [], None
    for second in range(0, seconds, every):
        last = chance.choice([r for r in (6, 12, 18, 24, 30, 36, 42, 48) if r != last])
        rates.append([second, f"{last}Mbit"])
    return rates


class Fig16(Figure):
    """The traces of Fig. 17."""

    def runs(self, p):
        """Nothing is simulated."""
        return []

    def derived(self, frame, p):
        """The rates, second by second."""
        return pd.DataFrame(
            [
                {"trace": trace, "time_s": t, "mbps": float(rate.removesuffix("Mbit")), "seed": trace}
                for trace in p["drawn"]
                for t, rate in random_steps(trace)
            ]
        )

    def plot(self, made):
        """A panel per trace."""
        from cctrace.plot import over_time

        series = {}
        for trace, rows in made.runs.groupby("trace"):
            at, rate = [*rows.time_s, 60], [*rows.mbps, rows.mbps.iloc[-1]]
            series[f"trace {trace}"] = [(at, rate, "rate", {"step": True})]
        return over_time(series, title="BBRv2+, Fig. 16: traces with steps, drawn here", ylabel="Mbit/s", columns=3)


_SYSTEMS = (BBR, BBR2, PLUS, PLUS_20, PLUS_PAPER)
_QUICK = {"seeds": (1,), "cases": ("5 to 50",)}
_BY = ("system", "direction", "case")
FIGURES = [
    Fig11(
        "11",
        "a rate that rises or falls: BBR and BBRv2",
        {"systems": _SYSTEMS[:2], "cases": tuple(CASES), "seeds": SEEDS},
        _QUICK,
        _BY,
    ),
    Fig15(
        "15",
        "a rate that rises or falls: BBRv2+",
        {"systems": (*_SYSTEMS, SINGLE_PAPER), "cases": tuple(CASES), "seeds": SEEDS},
        _QUICK,
        _BY,
    ),
    Fig16("16", "traces with steps", {"drawn": (1, 2, 3, 4, 5)}, {}, ("trace", "time_s")),
    Fig17(
        "17",
        "throughput and delay over traces with steps",
        {"systems": (CUBIC, *_SYSTEMS), "rtts_ms": (20, 40), "drawn": (1, 2, 3, 4, 5), "duration": "60s"},
        {"rtts_ms": (40,), "drawn": (1, 2), "duration": "20s"},
        ("system", "rtt_ms"),
    ),
]
