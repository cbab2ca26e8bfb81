"""oBBR, Figs. 10 and 11, Table 1: cellular traces.

Section 5.2.3 replays four logs of an operator in Ireland ([Raca20]), which cctrace does not include. The path
presets `5g_static1` to `5g_car2` draw rates, second by second, from a model fitted to logs of that data set: other
rates for each seed, scaled to the mean of Table 1, from which two minutes of draws may differ by a factor of two. R
is "set to different values", which the text does not name, but the artifact's scripts do. The rate is that of a token
bucket of 100 KB on the loopback device, as in all experiments that use tc.

``traces=["B_2020.02.13_13.57.29.csv", ...]``, or ``--trace FILE``, runs a user's own logs instead, the paper's or
others, until 1 GB is delivered (`obbr_traces`).
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from cctrace import plot
from cctrace.papers import obbr as ob
from cctrace.papers.claims import Claim, Stated, by_name, listed
from cctrace.papers.figure import Drawn, Fields, Formula, Reproduction, drawing, records
from cctrace.papers.obbr_traces import OTHER_R, own_trace, series_of, table1_claims
from cctrace.papers.obbr_traces import TABLE1 as LOGS
from cctrace.papers.runs import Run
from cctrace.papers.traces import of_preset, over_trace, scaled
from cctrace.units import parse_time_ns

TABLE1 = {name: (mbps, rtt) for name, ((mbps, _), (rtt, _), *_) in LOGS.items()}  # mean Mbit/s, ms
RATIOS = {name: ratio for name, (*_, ratio, _) in LOGS.items()}


class Fig11(ob.Bi23):
    """Retransmissions and goodput over path presets that look like the traces."""

    measured = ("goodput_mbps", "retransmitted_pct", "queue_ms")
    drawn = drawing("bars", "trace", "retransmitted_pct", "system", ylabel="retransmitted (%)")

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """One run per system, preset (or trace of one's own) and seed."""
        client = ob.TESTBEDS[ob.LOOPBACK]
        out = []
        for trace, seed in itertools.product(p["presets"], p["seeds"]) if not p["traces"] else ():
            path, ratio = _path(trace, seed), RATIOS[trace]
            for system in p["systems"]:
                labels = {"system": system, "trace": trace, "ratio": ratio, "seed": seed}
                out.append((labels, ob.run_of([system], path, seed, p["duration_s"], client)))
        for own, link in map(own_trace, p["traces"]):  # until 1 GB, the end of the trace, or ``own_s``
            seconds, ratio = min(own["rates"][-1][0] + 1.0, p["own_s"]), RATIOS.get(own["trace"], OTHER_R)
            buffer = f"{round(ratio * ob.bdp_bytes(own['rate_mbps'], own['rtt_ms']) * ob.KB / 1000)}B"
            for seed, system in itertools.product(p["seeds"], p["systems"]):
                run = ob.run_of([system], link | {"buffer": buffer}, seed, seconds, client, until="1GB")
                labels = {"system": system, "trace": own["trace"], "ratio": ratio, "seed": seed}
                out.append((labels, replace(run, function=over_trace)))
        return out

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.2.3."""
        own = bool(made.parameters["traces"])
        lost = made.table.groupby("system", sort=False).retransmitted_pct.mean()
        for form, ending in ob.FORMS.items():
            names = ob.obbrs(ending)
            if not {ob.BBR, ob.BBR2, ob.CUBIC, ob.BBR_S, *names} <= set(lost.index):
                continue
            rows = made.table[made.table.system.isin([ob.BBR, ob.BBR2, ob.CUBIC, ob.BBR_S, *names])]
            best = rows.loc[rows.groupby("trace").goodput_mbps.idxmax()].system
            wins = int(best.isin(names).sum())
            yield Stated(
                "11", "BBRv2 and CUBIC retransmit least, BBR most; oBBR is below BBR-S", "in this order"
            ).judged(
                {
                    "both below every oBBR": max(lost[ob.BBR2], lost[ob.CUBIC]) < min(lost[names]),
                    "BBR above all of these": lost[ob.BBR] >= max(lost[[ob.BBR2, ob.CUBIC, ob.BBR_S, *names]]),
                    "oBBR below BBR-S": max(lost[names]) < lost[ob.BBR_S],
                },
                by_name({s: lost[s] for s in (ob.CUBIC, ob.BBR2, ob.BBR_S, ob.BBR)}, "{:.2f}")
                + f", oBBR {listed(lost[names])} %",
                reading=form,
            )
            yield Stated("11", "oBBR has the highest goodput in three of four traces", "three of four").judged(
                {"in most of the cases": wins > len(best) / 2},
                f"{wins} of {len(best)} {'traces' if own else 'presets'}",
                {"share of the cases": (0.75, wins / len(best))},
                reading=form,
            )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """The table without B3R's paper form (there are twelve colours)."""
        return made.table[made.table.system != ob.B3R + ob.PAPER]


def _path(trace: str, seed: int) -> Fields:
    """Return the fields of `Path` of a preset behind the token bucket."""
    fields = of_preset(f"5g_{trace}", seed)
    steps = scaled(fields["rate"], TABLE1[trace][0])
    steps.append([steps[-1][0] + 1, next(bps for _, bps in steps if bps > 0)])  # a bucket's last rate is positive
    shaped = {"rate": ob.FEED, "shaper": [steps, ob.BURST]}
    buffer = f"{round(RATIOS[trace] * ob.bdp_bytes(*TABLE1[trace]))}B"
    return ob.on_loopback(fields | shaped | {"buffer": buffer}, parse_time_ns(fields["rtt"]) / 1e6)


class Fig10(Formula, ob.Bi23):
    """Table 1 and what the presets draw, or the user's own traces."""

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """Mean and deviation of the rates drawn, by preset and seed."""
        if p["traces"]:
            table1 = {name: float(mbps) for name, (mbps, _) in TABLE1.items()}
            known = (own for own, _ in map(own_trace, p["traces"]))
            return pd.DataFrame([{"table1_mbps": table1.get(own["trace"], np.nan), "seed": 1} | own for own in known])
        rows = []
        for trace in TABLE1:
            for seed in p["seeds"]:
                rates = [bps / 1e6 for _, bps in scaled(of_preset(f"5g_{trace}", seed)["rate"], TABLE1[trace][0])]
                line = {"rate_mbps": float(np.mean(rates)), "deviation_mbps": float(np.std(rates)), "drawn": rates}
                rows.append({"trace": trace, "seed": seed, "table1_mbps": float(TABLE1[trace][0])} | line)
        return pd.DataFrame(rows)

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """How close the user's traces are to Table 1; the presets are scaled to it."""
        if made.parameters["traces"]:
            yield from table1_claims(records(made.runs))

    def plot(self, made: Reproduction) -> Drawn:
        """Rates drawn, a panel per preset (first seed); of one's own traces rate and RTT."""
        if made.parameters["traces"]:
            return plot.over_time(series_of(made.runs), title=self.heading(made), ylabel="Mbit/s", right="RTT (ms)")
        series = {
            row["trace"]: [(range(len(row["drawn"])), row["drawn"], "rate", {"step": True})]
            for row in made.first_seed()
        }
        return plot.over_time(series, title=self.heading(made), ylabel="Mbit/s")


FIGURES = [
    Fig10("10", "cellular paths, and Table 1 (path presets, or --trace)", {"seeds": ob.SEEDS, "traces": ()}, {},
          ("trace",)),
    Fig11("11", "cellular paths",
          {"systems": tuple(ob.SYSTEMS), "presets": tuple(TABLE1), "traces": (), "seeds": ob.SEEDS,
           "duration_s": 120.0, "own_s": 3600.0},
          {"presets": ("static1", "car2"), "seeds": (1,), "duration_s": 15.0, "own_s": 15.0}, ("system", "trace")),
]  # fmt: skip
