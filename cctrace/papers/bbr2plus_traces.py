"""BBRv2+, Figs. 22 and 23: cellular and Wi-Fi paths, stationary and moving.

The paper replays 20 traces of its own over Mahimahi, 1.5 MB of buffer (section 5.7). They are not published, so its
25 % cannot be reproduced as such. Run instead: the path presets of `models/` (rates drawn with the statistics of
others' cellular logs and traces) and a user's own traces: ``traces=["my.trace"]``, or ``--trace my.trace``.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath

import pandas as pd

from cctrace import plot
from cctrace.papers.bbr2plus import BBR, BBR2, CUBIC, FORMS, SEEDS, Yang22, run_of
from cctrace.papers.claims import Claim, Stated
from cctrace.papers.figure import Drawn, Fields, Formula, Reproduction, drawing
from cctrace.papers.normalised import SCATTERED, normalised, over_runs
from cctrace.papers.runs import Run
from cctrace.papers.traces import of_preset, over_trace, own, rates_of, read_trace

STATIONARY = ("5g_static1", "5g_static2", "lte_tmobile", "lte_verizon")
MOVING = ("5g_car1", "5g_car2", "lte_att_driving")
OWN = "own traces"
BUFFER = "1500000B"
CLOSE_STILL = "stationary, BBR, BBRv2 and BBRv2+ are close; CUBIC has slightly more, and much more delay"
ORDER_MOVING = "moving, BBR has the most throughput and BBRv2+ the second most, BBR with more delay"


def _paths(p: Fields) -> list[tuple[str, str, int, Fields]]:
    """Return [(scenario, name, seed, fields of Path)]."""
    if p["traces"]:
        link = {"rate": None, "rtt": "40ms", "loss": "0%", "buffer": BUFFER}
        return [(OWN, FilePath(file).name, seed, own(file, **link)) for file in p["traces"] for seed in p["seeds"]]
    return [
        (scenario, name, seed, of_preset(name, seed) | {"buffer": BUFFER})
        for scenario in ("stationary", "moving")
        for name in p[scenario]
        for seed in p["seeds"]
    ]


class Fig23(Yang22):
    """Normalised throughput and delay, stationary and moving."""

    measured = SCATTERED
    drawn = drawing("ellipses", "system", panel_by="scenario")

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """One run per system, path and seed."""
        out, samples = [], {"sample": "200ms", "keep": ["time_s", "delivered_segments", "queue_delay_us"]}
        for system, (scenario, name, seed, fields) in itertools.product(p["systems"], _paths(p)):
            run = run_of([system], seed, p["duration"], fields, **samples)
            labels = {"system": system, "scenario": scenario, "path": name, "seed": seed}
            out.append((labels, replace(run, function=over_trace) if "trace" in fields else run))
        return out

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """Normalise on every path and seed."""
        return normalised(frame, "path", "seed")

    def lined(self, made: Reproduction) -> pd.DataFrame:
        """The table with spreads."""
        return over_runs(made.table)

    def claims(self, made: Reproduction) -> Iterator[Claim]:
        """Section 5.7."""
        for scenario in made.each("scenario"):
            rate, delay = (made.means(c, "system", scenario=scenario) for c in ("throughput", "delay"))
            for plus in FORMS:
                if plus in rate and scenario == "stationary":
                    yield _stationary(plus, rate, delay)
                elif plus in rate:
                    yield from _moving(plus, rate, delay, scenario)
        yield Stated(
            "23",
            "Orca has the lowest throughput on stationary paths, and neither throughput nor delay on moving ones",
            "lowest throughput",
        ).judged(
            {},
            "not run: no weights of its policy are to be had, and cctrace ships none; with a policy of your "
            "own the controller `orca` runs",
        )


Means = dict[str, float]  # by system


def _stationary(plus: str, rate: Means, delay: Means) -> Claim:
    three = [rate[s] for s in (BBR, BBR2, plus)]
    return Stated("23a", CLOSE_STILL, "very close; CUBIC slightly better at high delay").judged(
        {
            "throughputs within 10 %": max(three) - min(three) <= 0.1,
            "CUBIC has the most throughput": rate[CUBIC] >= max(three),
            "CUBIC has at least twice the delay": delay[CUBIC] >= 2 * max(delay[s] for s in (BBR, BBR2, plus)),
        },
        _both(rate, delay, (CUBIC, BBR, BBR2, plus)),
        reading=plus,
    )


def _moving(plus: str, rate: Means, delay: Means, scenario: str) -> Iterator[Claim]:
    gain = 100 * (rate[plus] / rate[BBR2] - 1)
    order = sorted((s for s in rate if s in (CUBIC, BBR, BBR2, plus)), key=lambda s: -rate[s])
    yield Stated(
        "23b", "moving, BBRv2+ has 25 % more throughput than BBRv2 at a comparable delay", "+25 %, on private traces"
    ).judged(
        {"more throughput": gain > 0, "delay at most 1.5 times BBRv2's": delay[plus] <= 1.5 * delay[BBR2]},
        f"{gain:+.0f} % of the normalised throughput, delay {delay[plus] / delay[BBR2]:.2f} of BBRv2's",
        {"% more": (25.0, gain)},
        reading=f"{plus}; {scenario}",
    )
    yield Stated("23b", ORDER_MOVING, "BBR, BBRv2+, then the others").judged(
        {
            "BBR first": order[0] == BBR,
            "BBRv2+ second": order[1] == plus,
            "BBR with more delay than BBRv2+": delay[BBR] > delay[plus],
        },
        _both(rate, delay, (CUBIC, BBR, BBR2, plus)),
        reading=f"{plus}; {scenario}",
    )


def _both(rate: Means, delay: Means, systems: tuple[str, ...]) -> str:
    return ", ".join(f"{s} {rate[s]:.2f} at {delay[s]:.1f}" for s in systems) + " (normalised throughput at delay)"


class Fig22(Formula, Yang22):
    """Examples of the paths."""

    def derived(self, frame: pd.DataFrame, p: Fields) -> pd.DataFrame:
        """The rates of the first seed, second by second."""
        if p["traces"]:
            drawn = {FilePath(file).name: rates_of(read_trace(file)) for file in p["traces"]}
        else:
            names = (*p["stationary"], *p["moving"])
            drawn = {name: of_preset(name, 1)["rate"] for name in names}
        rows = [
            {"path": name, "time_s": t, "rate_mbps": float(rate) / 1e6, "seed": 1}
            for name, steps in drawn.items()
            for t, rate in steps
        ]
        return pd.DataFrame(rows)

    def plot(self, made: Reproduction) -> Drawn:
        """A panel per path."""
        series = {
            str(name): [(rows.time_s.to_numpy(), rows.rate_mbps.to_numpy(), "rate", {"step": True})]
            for name, rows in made.runs.groupby("path", sort=False)
        }
        return plot.over_time(series, title=self.heading(made), ylabel="Mbit/s", columns=3)


_SETS = {"stationary": STATIONARY, "moving": MOVING, "traces": ()}
FIGURES = [
    Fig22("22", "examples of the paths of Fig. 23", _SETS, {"stationary": STATIONARY[:1], "moving": MOVING[:1]},
          ("path", "time_s")),
    Fig23("23", "throughput and delay over cellular paths",
          _SETS | {"systems": (CUBIC, BBR, BBR2, *FORMS), "seeds": SEEDS, "duration": "120s"},
          {"stationary": STATIONARY[2:3], "moving": MOVING[2:], "seeds": (1,), "duration": "20s"},
          ("system", "scenario")),
]  # fmt: skip
