"""Chung et al., *BBRx*: Table I beside what the agent of `cctrace.learn` elects, and the slope that the paper omits.

Figure `table`: the table that ships, models/bbrx_learned.json, beside Table I: both run on the same held-out flows of
every bin. Figure `learned`: in every bin the agent learns afresh from a few flows, and what it elects runs beside the
published (k, beta), too. Figure `slope`: the same flows judged by sigmoids of other slopes (Eq. 6 names none).

Of Table I the cells of the row [0, 50) ms are merged, and so read as beta 0.75 and k 4 in all of its columns.

Sources: [Chung18].
"""

import numpy as np
import pandas as pd

from cctrace import learn, presets
from cctrace.analytic import pilaw
from cctrace.cc.bbrx import table_values
from cctrace.papers.bbrx import flat_range, listed
from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.runs import Run

HELD_OUT = 1000  # seeds from here on are of flows that no agent learned from
SHIPPED = "bbrx_learned"  # of models/
SEEDS = (1, 2, 3)
BETAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4)
SLOPES = (20, 50, 100, 200, 400)
ROOMS = ("learn", "analytic/pilaw.py")


def bin_name(number):
    """Return how a bin is written.

    >>> bin_name(4), bin_name(11)
    ('50 to 100 ms, 0 to 3 Mbit/s', 'from 100 ms, from 1000 Mbit/s')
    """
    cell = presets.bins("bbrx_table1")[number]
    rtts, rates = (
        f"from {low}" if high is None else f"{low} to {high}" for low, high in (cell["min_rtt_ms"], cell["rate_mbps"])
    )
    return f"{rtts} ms, {rates} Mbit/s"


def _place(number, paths, seed):
    """Return the dumbbells of a bin."""
    cell = presets.bins("bbrx_table1")[number]
    return learn.Environment(tuple(cell["min_rtt_ms"]), tuple(cell["rate_mbps"]), paths=paths, seed=seed)


def learned(number, flows, paths, seed):
    """Let an agent learn a bin, and return utilities of the published and of its beta on flows that it never saw."""
    agent = learn.simulated(learn.Agent(flows=flows), seed, [number])
    betas, ks = table_values("bbrx_table1")
    found = agent.table()["bins"][number]
    out = {"trials": len(agent.searches[number].tried), "beta": found["beta"], "k": found["k"]}
    out |= {"published_beta": float(betas[number]), "published_k": int(ks[number])}
    for name, (k, beta) in {
        "published": (int(ks[number]), float(betas[number])),
        "learned": (found["k"], found["beta"]),
    }.items():
        rows = _place(number, paths, HELD_OUT + seed).flows(k, beta)
        out[name] = float(pilaw.mean_utility(rows.goodput_bps.to_numpy() / 1e6, rows.lost_share.to_numpy()))
    return out


def trial(number, k, beta, paths, seed):
    """Return throughput (Mbit/s) and lost share of the flows of one trial."""
    rows = _place(number, paths, seed).flows(k, beta)
    return {"mbps": [float(x) / 1e6 for x in rows.goodput_bps], "lost": [float(x) for x in rows.lost_share]}


def _run(function, **arguments):
    return Run(arguments, function, ("bbrx",), ROOMS)


class Shipped(Figure):
    """Table I's utility beside that of the learned table, bin by bin."""

    def runs(self, p):
        """A trial per bin, table and seed of held-out flows."""
        return [
            (
                {"bin": bin_name(number), "table": name, "seed": seed},
                _run(trial, number=number, k=ks[number], beta=betas[number], paths=p["paths"], seed=HELD_OUT + seed),
            )
            for name in ("bbrx_table1", SHIPPED)
            for betas, ks in [table_values(name)]
            for number in p["bins"]
            for seed in p["seeds"]
        ]

    def row(self, labels, result, p):
        """The mean utility of the flows."""
        return {"utility": float(pilaw.mean_utility(np.array(result["mbps"]), np.array(result["lost"])))}

    def derived(self, frame, p):
        """A row per bin and seed: both utilities, and the learned one's gain."""
        both = frame.pivot_table("utility", ["bin", "seed"], "table", sort=False).reset_index()
        both = both.rename(columns={"bbrx_table1": "published", SHIPPED: "learned"}).rename_axis(columns=None)
        values = {name: dict(zip(map(bin_name, range(12)), zip(*table_values(name), strict=True), strict=True))
                  for name in ("bbrx_table1", SHIPPED)}  # fmt: skip
        for ending, name in (("published_", "bbrx_table1"), ("", SHIPPED)):
            both[f"{ending}beta"] = [values[name][number][0] for number in both.bin]
            both[f"{ending}k"] = [values[name][number][1] for number in both.bin]
        return both.assign(gain_pct=100 * (both.learned - both.published) / both.published.abs())

    def claims(self, made):
        """Is the published beta as good as the one that ships?"""
        return [
            judge(
                "Table I",
                f"the published beta {row['published_beta']:g} is as good as that of the learned table ({row['bin']})",
                {"the learned one is at most 2 % better on held-out flows": row["gain_pct"] <= 2},
                paper=f"beta {row['published_beta']:g}, k {row['published_k']:g}, recommended from measurements",
                here=f"published {row['published']:.3g}, learned {row['learned']:.3g}, {row['gain_pct']:+.1f} % "
                f"(95 %: {row['gain_pct'] - half:+.1f} to {row['gain_pct'] + half:+.1f}; beta {row['beta']:.2f}, "
                f"k {row['k']:.0f}; {row['seeds']} seeds of held-out flows)",
                numbers=(row["published"], row["learned"]),
            )
            for row in made.table.to_dict("records")
            for half in [half_interval(row["gain_pct_sd"], row["seeds"])]
        ]

    def plot(self, made):
        """The gain with its interval, in every bin."""
        from cctrace.plot import bars

        halves = [half_interval(sd, n) for sd, n in zip(made.table.gain_pct_sd, made.table.seeds, strict=True)]
        table = made.table.assign(table="learned", gain_pct_sd=halves)
        title = "BBRx: utility with the learned table, against that with Table I (95 %)"
        return bars(table, "bin", "gain_pct", "table", title=title, ylabel="gain on held-out flows (%)")


def half_interval(sd, count, share=0.95):
    """Return half the width of the interval of a mean (Student's t); no width for a single value.

    >>> round(half_interval(1.0, 4), 2), half_interval(1.0, 1)
    (1.59, 0.0)
    """
    from scipy.stats import t

    return 0.0 if count < 2 else float(t.ppf((1 + share) / 2, count - 1) * sd / np.sqrt(count))


class Learned(Figure):
    """Table I's beta beside the agent's, bin by bin."""

    def runs(self, p):
        """An agent per bin and seed."""
        return [
            (
                {"bin": bin_name(number), "seed": seed},
                _run(learned, number=number, flows=p["flows"], paths=p["paths"], seed=seed),
            )
            for number in p["bins"]
            for seed in p["seeds"]
        ]

    def row(self, labels, result, p):
        """What was elected, and both utilities."""
        names = ("published_beta", "published_k", "beta", "k", "trials", "published", "learned")
        gain = 100 * (result["learned"] - result["published"]) / abs(result["published"])
        return {name: float(result[name]) for name in names} | {"gain_pct": gain}

    def claims(self, made):
        """Is the published beta as good as a learned one?"""
        return [
            judge(
                "Table I",
                f"the published beta {row['published_beta']:g} is as good as a learned one ({row['bin']})",
                {"a learned one is at most 2 % better on held-out flows": row["gain_pct"] <= 2},
                paper=f"beta {row['published_beta']:g}, k {row['published_k']:g}, recommended from measurements",
                here=f"published {row['published']:.3g}, learned {row['learned']:.3g}, {row['gain_pct']:+.1f} ± "
                f"{row['gain_pct_sd']:.1f} % (beta {row['beta']:.2f} ± {row['beta_sd']:.2f}, k {row['k']:.1f}, "
                f"{row['trials']:.0f} trials; {row['seeds']} seeds)",
                numbers=(row["published"], row["learned"]),
            )
            for row in made.table.to_dict("records")
        ]

    def plot(self, made):
        """What learning gains over the published beta, in every bin."""
        from cctrace.plot import bars

        table = made.table.assign(table="learned")
        title = "BBRx: utility at the learned beta, against that at Table I's"
        return bars(table, "bin", "gain_pct", "table", title=title, ylabel="gain on held-out flows (%)")


class Slope(Figure):
    """Utility over beta for sigmoids of several slopes: the same flows, judged otherwise."""

    def runs(self, p):
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

    def row(self, labels, result, p):
        """The flows."""
        return {"flows": result}

    def derived(self, frame, p):
        """A row per slope, and utilities as shares of the best of their slope, bin and seed."""
        rows = []
        for row in frame.to_dict("records"):
            flows = row.pop("flows")
            mbps, lost = np.array(flows["mbps"]), np.array(flows["lost"])
            rows += [
                row | {"slope": slope, "utility": float(pilaw.mean_utility(mbps, lost, slope))} for slope in p["slopes"]
            ]
        frame = pd.DataFrame(rows)
        best = frame.groupby(["bin", "slope", "seed"]).utility.transform("max")
        return frame.assign(share=frame.utility / best)

    def claims(self, made):
        """Does what is elected depend on a slope that the paper does not give?"""
        out = []
        for name in dict.fromkeys(made.table.bin):
            ranges, best = {}, {}
            for slope in made.parameters["slopes"]:
                betas, values = made.column("utility", "beta", bin=name, slope=slope)
                ranges[slope], best[slope] = flat_range(betas, values), float(betas[np.argmax(values)])
            low, high = max(r[0] for r in ranges.values()), min(r[1] for r in ranges.values())
            out.append(
                judge(
                    "Eq. 6",
                    f"the sigmoid's slope does not move the best beta ({name})",
                    {
                        "one beta is within 2 % of the best of every slope": low <= high,
                        "and so are all the best": all(low <= beta <= high for beta in best.values()),
                    },
                    paper="Sigmoid(p - 0.05), no slope; PCC Allegro has 100",
                    here=f"best beta {listed(best.values(), '{:g}')} at slopes {listed(best, '{:g}')}; ranges "
                    + ", ".join("[{:g}, {:g}]".format(*r) for r in ranges.values()),
                )
            )
        return out

    def plot(self, made):
        """Shares of the best utility over beta, a line per slope, a panel per bin."""
        from cctrace.plot import lines

        table = made.table.assign(line=made.table.slope.map("slope {:g}".format))
        panels = [("share", "utility / best", {"zero": False})]
        title = f"BBRx: {self.title}"
        return lines(table, "beta", panels, "line", panel_by="bin", title=title, xlabel="beta")


FIGURES = [
    Learned(
        "learned",
        "Table I's beta against the learning agent's",
        {"bins": tuple(range(12)), "flows": 24, "paths": 22, "seeds": SEEDS[:2]},
        {"bins": (5,), "flows": 5, "paths": 6, "seeds": (1,)},
        ("bin",),
    ),
    Slope(
        "slope",
        "utility over beta by the sigmoid's slope, k = 4",
        {"bins": (1, 5, 9), "betas": BETAS, "slopes": SLOPES, "paths": 42, "seeds": SEEDS[:2]},
        {"bins": (5,), "betas": BETAS[::3], "slopes": SLOPES[::2], "paths": 3, "seeds": (1,)},
        ("bin", "slope", "beta"),
    ),
    Shipped(
        "table",
        "Table I against the learned table that ships",
        {"bins": tuple(range(12)), "paths": 11, "seeds": tuple(range(10))},
        {"bins": (1, 5), "paths": 3, "seeds": (0, 1)},
        ("bin",),
    ),
]
