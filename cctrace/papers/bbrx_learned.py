"""Chung et al., *BBRx*: Table I compared with what the agent of `cctrace.learn` chooses, and the slope that the paper
omits.

Figure `table`: the shipped table, models/bbrx_learned.json, and Table I, both run on the same held-out flows of
every bin. Figure `slope`: the same flows evaluated with sigmoids of other slopes (Eq. 6 names none).

In Table I the cells of the row [0, 50) ms are merged, and therefore read as beta 0.75 and k 4 in all of its columns.

Sources: [Chung18].
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from cctrace import learn, presets
from cctrace.analytic import pilaw
from cctrace.cc.bbrx import table_values
from cctrace.papers.bbrx import SEEDS, Chung18, flat_range
from cctrace.papers.claims import Claim, Stated, listed
from cctrace.papers.figure import Fields, Reproduction, drawing, records
from cctrace.papers.runs import Result, Run

HELD_OUT = 1000  # first seed of the flows that no agent learned from
PUBLISHED, SHIPPED = "bbrx_table1", "bbrx_learned"  # of models/
BETAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4)
SLOPES = (20, 50, 100, 200, 400)
SOURCES = ("learn", "analytic/pilaw.py")  # of the package, that results depend on besides controller and simulator


def bin_name(number: int) -> str:
    """Return how a bin is written.

    >>> bin_name(4), bin_name(11)
    ('50 to 100 ms, 0 to 3 Mbit/s', 'from 100 ms, from 1000 Mbit/s')
    """
    cell = presets.bins(PUBLISHED)[number]
    rtts, rates = (
        f"from {low}" if high is None else f"{low} to {high}" for low, high in (cell["min_rtt_ms"], cell["rate_mbps"])
    )
    return f"{rtts} ms, {rates} Mbit/s"


def _place(number: int, paths: int, seed: int) -> learn.Environment:
    """Return the dumbbells of a bin."""
    cell = presets.bins(PUBLISHED)[number]
    return learn.Environment(tuple(cell["min_rtt_ms"]), tuple(cell["rate_mbps"]), paths=paths, seed=seed)


def trial(number: int, k: int, beta: float, paths: int, seed: int) -> Result:
    """Return throughput (Mbit/s) and lost share of the flows of one trial."""
    rows = _place(number, paths, seed).flows(k, beta)
    return {"goodput_mbps": [float(x) / 1e6 for x in rows.goodput_bps], "lost": [float(x) for x in rows.lost_share]}


def _run(function: Callable[..., Result], **arguments: Any) -> Run:
    return Run(arguments, function, ("bbrx",), SOURCES)


class Shipped(Chung18):
    """Table I's utility and that of the learned table, bin by bin."""

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """A trial per bin, table and seed of held-out flows."""
        return [
            (
                {"bin": bin_name(number), "table": name, "seed": seed},
                _run(trial, number=number, k=ks[number], beta=betas[number], paths=p["paths"], seed=HELD_OUT + seed),
            )
            for name in (PUBLISHED, SHIPPED)
            for betas, ks in [table_values(name)]
            for number in p["bins"]
            for seed in p["seeds"]
        ]

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """The mean utility of the flows."""
        return {"utility": float(pilaw.mean_utility(np.array(result["goodput_mbps"]), np.array(result["lost"])))}

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """A row per bin and seed: both utilities, and the learned one's gain."""
        both = frame.pivot_table("utility", ["bin", "seed"], "table", sort=False).reset_index()
        both = both.rename(columns={PUBLISHED: "published", SHIPPED: "learned"}).rename_axis(columns=None)
        values = {name: dict(zip(map(bin_name, range(12)), zip(*table_values(name), strict=True), strict=True))
                  for name in (PUBLISHED, SHIPPED)}  # fmt: skip
        for ending, name in (("published_", PUBLISHED), ("", SHIPPED)):
            both[f"{ending}beta"] = [values[name][number][0] for number in both.bin]
            both[f"{ending}k"] = [values[name][number][1] for number in both.bin]
        return both.assign(gain_pct=100 * (both.learned - both.published) / both.published.abs())

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Is the published beta as good as the shipped one?"""
        for row in records(made.table):
            half = half_interval(row["gain_pct_sd"], row["seeds"])
            interval = f"(95 %: {row['gain_pct'] - half:+.1f} to {row['gain_pct'] + half:+.1f}; "
            details = f"beta {row['beta']:.2f}, k {row['k']:.0f}; {row['seeds']} seeds of held-out flows)"
            yield Stated(
                "Table I",
                "the published beta is as good as that of the learned table",
                f"beta {row['published_beta']:g}, k {row['published_k']:g}, recommended from measurements",
            ).judged(
                {"within 2 % of the learned one on held-out flows": abs(row["gain_pct"]) <= 2},
                f"published {row['published']:.3g}, learned {row['learned']:.3g}, {row['gain_pct']:+.1f} % "
                f"{interval}{details}",
                part=row["bin"],
                ours=True,
            )

    drawn = drawing("bars", "bin", "gain_pct", "table", ylabel="gain on held-out flows (%)")

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """The gain with its interval of 95 %, in every bin."""
        halves = [half_interval(sd, n) for sd, n in zip(made.table.gain_pct_sd, made.table.seeds, strict=True)]
        return made.table.assign(table="learned, 95 %", gain_pct_sd=halves)


def half_interval(sd: float, count: int) -> float:
    """Return half the width of the 95 % interval of a mean (Student's t); 0 for a single value.

    >>> round(half_interval(1.0, 4), 2), half_interval(1.0, 1)
    (1.59, 0.0)
    """
    return 0.0 if count < 2 else float(student.ppf(0.975, count - 1) * sd / np.sqrt(count))


class Slope(Chung18):
    """Utility over beta for sigmoids of several slopes, on the same flows."""

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """A trial per bin, beta and seed."""
        return [
            (
                {"bin": bin_name(number), "beta": beta, "seed": seed},
                _run(trial, number=number, k=4, beta=beta, paths=p["paths"], seed=seed),
            )
            for number in p["bins"]
            for beta in p["betas"]
            for seed in p["seeds"]
        ]

    def row(self, labels: Fields, result: Result, p: Fields) -> Fields:
        """The flows."""
        return {"flows": result}

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """A row per slope, and utilities as shares of the best of their slope, bin and seed."""
        rows = []
        for row in frame.to_dict("records"):
            flows = row.pop("flows")
            mbps, lost = np.array(flows["goodput_mbps"]), np.array(flows["lost"])
            rows += [
                row | {"slope": slope, "utility": float(pilaw.mean_utility(mbps, lost, slope))} for slope in p["slopes"]
            ]
        frame = pd.DataFrame(rows)
        best = frame.groupby(["bin", "slope", "seed"]).utility.transform("max")
        return frame.assign(share=frame.utility / best)

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Does the chosen beta depend on the slope, which the paper does not give?"""
        for name in made.each("bin"):
            ranges, best = {}, {}
            for slope in made.parameters["slopes"]:
                betas, values = made.column("utility", "beta", bin=name, slope=slope)
                ranges[slope], best[slope] = flat_range(betas, values), float(betas[np.argmax(values)])
            low, high = max(r[0] for r in ranges.values()), min(r[1] for r in ranges.values())
            yield Stated(
                "Eq. 6",
                "the sigmoid's slope does not move the best beta",
                "Sigmoid(p - 0.05), no slope; PCC Allegro has 100",
            ).judged(
                {
                    "one beta is within 2 % of the best of every slope": low <= high,
                    "and so are all the best": all(low <= beta <= high for beta in best.values()),
                },
                f"best beta {listed(best.values(), '{:g}')} at slopes {listed(best, '{:g}')}; ranges "
                + ", ".join("[{:g}, {:g}]".format(*r) for r in ranges.values()),
                part=name,
                ours=True,
            )

    drawn = drawing(
        "lines", "beta", [("share", "utility / best", {"zero": False})], "line", panel_by="bin", xlabel="beta"
    )

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """A line per slope."""
        return made.table.assign(line=made.table.slope.map("slope {:g}".format))


FIGURES = [
    Slope("slope", "utility over beta by the sigmoid's slope, k = 4",
          {"bins": (1, 5, 9), "betas": BETAS, "slopes": SLOPES, "paths": 42, "seeds": SEEDS[:2]},
          {"bins": (5,), "betas": BETAS[::3], "slopes": SLOPES[::2], "paths": 3, "seeds": (1,)},
          ("bin", "slope", "beta")),
    Shipped("table", "Table I against the learned table that ships",
            {"bins": tuple(range(12)), "paths": 11, "seeds": tuple(range(10))},
            {"bins": (1, 5), "paths": 3, "seeds": (0, 1)}, ("bin",)),
]  # fmt: skip
