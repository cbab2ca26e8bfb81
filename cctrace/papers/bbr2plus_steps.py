"""BBRv2+, Figs. 11, 15, 16 and 17: a rate that changes in steps.

Figs. 11 and 15: 40 ms, +-5 Mbit/s every 2 s, 32 BDP of buffer, sampled every 100 ms (sections 3.5, 5.2). The text
gives neither the first rate, nor the span, nor which rate's BDP is meant. Run: 5 to 50 Mbit/s and back with the BDP
of the highest rate; the same with the BDP of the lowest; and all rates 50 Mbit/s higher.

Figs. 16 and 17: five traces with steps, 1.5 MB of buffer, 20 ms, no loss; the traces are not published: five are drawn
here, rates of 6 to 48 Mbit/s held for 5 s. The delay may be one way (Mahimahi's option) or both: both are run.
"""

import random
from collections.abc import Iterator

import numpy as np
import pandas as pd

from cctrace import plot
from cctrace.cc.bbr2_model import BW_UNIT
from cctrace.papers.bbr2plus import BBR, BBR2, CUBIC, FORMS, SEEDS, SINGLE_PAPER, TRYING, Yang22, run_of
from cctrace.papers.claims import Claim, Stated, by_name, listed
from cctrace.papers.figure import Drawn, Fields, Formula, Reproduction, drawing, measures
from cctrace.papers.normalised import SCATTERED, normalised, over_runs
from cctrace.papers.runs import Result, Run
from cctrace.tcp.wire import PACKET_BYTES

STEP_S, STEP_MBPS, STEPS = 2, 5, 10
CASES = {"5 to 50": (5, 50), "5 to 50, buffer of 5": (5, 5), "55 to 100": (55, 100)}  # lowest rate, rate of the BDP
V1 = ("bw_v",)
V2 = ("bw_hi0", "bw_hi1")


def staircase(direction: str, lowest_mbps: int) -> list[list]:
    """Return [(second, rate)] of ten steps up or down, from or to `lowest_mbps`."""
    rates = [lowest_mbps + STEP_MBPS * k for k in range(STEPS)]
    return [[STEP_S * k, f"{r}Mbit"] for k, r in enumerate(rates if direction == "up" else rates[::-1])]


class _Staircase(Yang22):
    """Utilisation and queue on the way up and on the way down."""

    varied = {"system": "systems", "case": "cases", "direction": "directions"}

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        lowest, rate = CASES[at["case"]]
        path = {"rate": staircase(at["direction"], lowest), "buffer": f"{round(32 * rate * 1e6 / 8 * 0.04)}B"}
        watch = list(V1 if at["system"] == BBR else V2)
        keep = ["time_s", "delivered_segments", "queue_delay_us", *watch]
        seconds = f"{STEP_S * STEPS}s"
        return run_of([at["system"]], at["seed"], seconds, path, sample="100ms", watch=watch, keep=keep)

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """Utilisation, queueing delay, and the samples for the plot: times, estimate on the wire, queue."""
        delays, line = measures(result["flows"][0], "queue_ms", "queue_p95_ms"), result["timeline"][0]
        best = np.max([np.array(line[name], float) for name in (*V1, *V2) if name in line], axis=0)
        samples = {
            "time_s": line["time_s"],
            "bw_mbps": (best / BW_UNIT * PACKET_BYTES * 8).tolist(),
            "queue_ms": [us / 1e3 for us in line["queue_delay_us"]],
        }
        return {"utilisation": result["link"]["utilisation"]} | delays | {"line": samples}

    def plot(self, made: Reproduction) -> Drawn:
        """The estimate, the link's rate and the queue over time, a panel per system and direction (first seed)."""
        case, series = made.runs.case.iloc[0], {}
        lowest = CASES[case][0]
        for row in made.first_seed(case=case):
            steps = staircase(row["direction"], lowest)
            at = [*(s[0] for s in steps), STEP_S * STEPS]
            rate = [float(s[1].removesuffix("Mbit")) for s in steps]
            line = row["line"]
            series[f"{row['system']}, {row['direction']}"] = [
                (at, [*rate, rate[-1]], "link", {"step": True, "colour": "#2e8b57"}),
                (line["time_s"], line["bw_mbps"], "bandwidth estimate", {"colour": "#b3541e"}),
                (line["time_s"], line["queue_ms"], "queueing delay", {"right": True, "colour": "#333333"}),
            ]
        return plot.over_time(series, title=self.heading(made), ylabel="Mbit/s", right="queue (ms)")


class Fig11(_Staircase):
    """BBR and BBRv2."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 3.5."""
        for case in made.each("case"):
            used = made.means("utilisation", "system", direction="up", case=case)
            queue = made.means("queue_ms", "system", direction="down", case=case)
            yield Stated(
                "11", "BBRv2 answers changes of the rate less well than BBR", "low utilisation, long queueing delay"
            ).judged(
                {
                    "uses less of the link on the way up": used[BBR2] < used[BBR] - 0.02,
                    "queues more on the way down": queue[BBR2] > queue[BBR],
                },
                f"up: {by_name(used, '{:.0%}')}; down: {by_name(queue, '{:.0f} ms')}",
                reading=f"{case} Mbit/s",
                recording="Linux 6.18, bbr from 20 to 5 Mbit/s: RTT 160 to 171 ms (docs/simulation.md)",
            )


class Fig15(_Staircase):
    """BBRv2+."""

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2, for every form."""
        for case in made.each("case"):
            up, q_up, down = (
                made.means(column, "system", direction=direction, case=case)
                for column, direction in (("utilisation", "up"), ("queue_ms", "up"), ("queue_ms", "down"))
            )
            for plus in (*TRYING, SINGLE_PAPER):
                from_ = f"{plus}; {case} Mbit/s"
                yield Stated(
                    "15a",
                    "BBRv2+ takes up new bandwidth as quickly as BBR, with less queue",
                    "as quick as BBR, lower delay",
                ).judged(
                    {
                        "at least 95 % of BBR's utilisation": up[plus] >= 0.95 * up[BBR],
                        "more than BBRv2's": up[plus] > up[BBR2],
                        "less queue than BBR": q_up[plus] < q_up[BBR],
                    },
                    f"utilisation {up[plus]:.0%}, BBR {up[BBR]:.0%}, BBRv2 {up[BBR2]:.0%}; queue "
                    f"{q_up[plus]:.1f} against {q_up[BBR]:.1f} ms",
                    reading=from_,
                )
                yield Stated(
                    "15b", "BBRv2+ follows a falling rate much faster than BBR and BBRv2", "much faster, lower delay"
                ).judged(
                    {"at most half of either": down[plus] <= min(down[BBR], down[BBR2]) / 2},
                    f"queue {down[plus]:.1f} ms, BBR {down[BBR]:.0f}, BBRv2 {down[BBR2]:.0f} ms",
                    reading=from_,
                )


class Fig17(Yang22):
    """Normalised throughput and queueing delay over traces with steps, a panel per meaning of the delay."""

    varied = {"system": "systems", "rtt_ms": "rtts_ms", "seed": "drawn"}  # a seed is a trace
    measured = SCATTERED
    drawn = drawing("ellipses", "system", panel_by="rtt")

    def run(self, at: Fields, p: Fields) -> Run:
        """One flow."""
        path = {"rate": random_steps(at["seed"]), "rtt": f"{at['rtt_ms']}ms", "buffer": "1500000B"}
        keep = ["time_s", "delivered_segments", "queue_delay_us"]
        return run_of([at["system"]], at["seed"], p["duration"], path, sample="100ms", keep=keep)

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """Normalise on each trace, as the paper does."""
        return normalised(frame.sort_values("rtt_ms", kind="stable", ignore_index=True), "rtt_ms", "seed")

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2."""
        for rtt in sorted(made.each("rtt_ms")):
            for plus in FORMS:
                rate, delay = (
                    {s: made.value(column, system=s, rtt_ms=rtt) for s in (BBR, BBR2, plus)}
                    for column in ("throughput", "delay")
                )
                yield Stated(
                    "17",
                    "BBRv2+ has more throughput and less delay than BBRv2, less delay and slightly less throughput "
                    "than BBR",
                    "both, on five traces of the authors",
                ).judged(
                    {
                        "more throughput than BBRv2": rate[plus] > rate[BBR2],
                        "less delay than BBRv2": delay[plus] < delay[BBR2],
                        "less delay than BBR": delay[plus] < delay[BBR],
                        "0 to 10 % less throughput than BBR": 0 <= rate[BBR] - rate[plus] <= 0.1,
                    },
                    f"throughput {listed(rate.values())}, delay {listed(delay.values(), '{:.1f}')} of "
                    f"{'/'.join(rate)} (normalised)",
                    reading=f"{plus}; RTT {rtt:g} ms",
                )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """The table with spreads and names of the panels."""
        return over_runs(made.table).assign(rtt=made.table.rtt_ms.map("RTT {:g} ms".format))


def random_steps(seed: int) -> list[list]:
    """Return [(second, rate)] of a minute with a step every 5 s: 6 to 48 Mbit/s, no rate twice in a row."""
    chance, rates, last = random.Random(seed), [], 0
    for second in range(0, 60, 5):
        last = chance.choice([r for r in (6, 12, 18, 24, 30, 36, 42, 48) if r != last])
        rates.append([second, f"{last}Mbit"])
    return rates


class Fig16(Formula, Yang22):
    """The traces of Fig. 17."""

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """The rates, second by second."""
        return pd.DataFrame(
            [
                {"trace": trace, "time_s": t, "rate_mbps": float(rate.removesuffix("Mbit")), "seed": trace}
                for trace in p["drawn"]
                for t, rate in random_steps(trace)
            ]
        )

    def plot(self, made: Reproduction) -> Drawn:
        """A panel per trace."""
        series = {}
        for trace, rows in made.runs.groupby("trace"):
            at, rate = [*rows.time_s, 60], [*rows.rate_mbps, rows.rate_mbps.iloc[-1]]
            series[f"trace {trace}"] = [(at, rate, "rate", {"step": True})]
        return plot.over_time(series, title=self.heading(made), ylabel="Mbit/s", columns=3)


_SYSTEMS = (BBR, BBR2, *FORMS)
_QUICK = {"seeds": (1,), "cases": ("5 to 50",)}
_FULL = {"cases": tuple(CASES), "directions": ("up", "down"), "seeds": SEEDS}
FIGURES = [
    Fig11("11", "a rate that rises or falls: BBR and BBRv2", _FULL | {"systems": _SYSTEMS[:2]}, _QUICK),
    Fig15("15", "a rate that rises or falls: BBRv2+", _FULL | {"systems": (BBR, BBR2, *TRYING, SINGLE_PAPER)}, _QUICK),
    Fig16("16", "traces with steps, drawn here", {"drawn": (1, 2, 3, 4, 5)}, {}, ("trace", "time_s")),
    Fig17("17", "throughput and delay over traces with steps",
          {"systems": (CUBIC, *_SYSTEMS), "rtts_ms": (20, 40), "drawn": (1, 2, 3, 4, 5), "duration": "60s"},
          {"rtts_ms": (40,), "drawn": (1, 2), "duration": "20s"}, ("system", "rtt_ms")),
]  # fmt: skip
