"""BBRv2+, Figs. 22 and 23: cellular and Wi-Fi paths, stationary and moving.

The paper replays 20 traces of its own over Mahimahi, 1.5 MB of buffer (section 5.7); they are not published, so
neither are the 25 % reproducible as such. Here run the path presets of `models/` (rates drawn from what cellular logs
and traces of other people look like), and a user's own traces: ``traces=["my.trace"]``, or ``--trace my.trace``.
"""

from dataclasses import replace
from pathlib import Path as FilePath

from cctrace import presets
from cctrace.io import read_file
from cctrace.papers.bbr2plus import BBR, BBR2, CUBIC, PLUS, PLUS_20, PLUS_PAPER, SEEDS, run_of
from cctrace.papers.claims import judge
from cctrace.papers.figure import Figure
from cctrace.papers.normalised import normalised, over_runs, scattered
from cctrace.papers.traces import over_trace, own, rates_of

STATIONARY = ("5g_static1", "5g_static2", "lte_tmobile", "lte_verizon")
MOVING = ("5g_car1", "5g_car2", "lte_att_driving")
OWN = "own traces"
BUFFER = "1500000B"


def _paths(p):
    """Return [(scenario, name, seed, fields of Path)]."""
    if p["traces"]:
        return [
            (OWN, FilePath(file).name, seed, own(file, buffer=BUFFER)) for file in p["traces"] for seed in p["seeds"]
        ]
    out = []
    for scenario, names in (("stationary", p["stationary"]), ("moving", p["moving"])):
        for name in names:
            for seed in p["seeds"]:
                fields = presets.path_fields(name, seed) | {"buffer": BUFFER}
                fields["rate"] = [list(step) for step in fields["rate"]]
                out.append((scenario, name, seed, {k: v for k, v in fields.items() if v is not None}))
    return out


def _run(system, seed, duration, fields):
    if "trace" in fields:
        fields = {"rate": None, "rtt": "40ms", "loss": "0%"} | fields
    keep = ["time_s", "delivered_segments", "queue_delay_us"]
    run = run_of([system], seed, duration, fields, sample="200ms", keep=keep)
    return replace(run, function=over_trace) if "trace" in fields else run


class _OverPaths(Figure):
    """Throughput and queueing delay of every system over every path."""

    def runs(self, p):
        """One run per system, path and seed."""
        return [
            (
                {"system": system, "scenario": scenario, "path": name, "seed": seed},
                _run(system, seed, p["duration"], fields),
            )
            for system in p["systems"]
            for scenario, name, seed, fields in _paths(p)
        ]

    def row(self, labels, result, p):
        """Throughput, queueing delay, their spread over time."""
        return scattered(result)

    def derived(self, frame, p):
        """Normalise on every path and seed."""
        return normalised(frame, ["path", "seed"])


class Fig23(_OverPaths):
    """Normalised throughput and delay, stationary and moving."""

    def claims(self, made):
        """Section 5.7."""
        out = []
        for scenario in dict.fromkeys(made.table.scenario):
            rate, delay = (
                {s: made.value(c, system=s, scenario=scenario) for s in dict.fromkeys(made.table.system)}
                for c in ("throughput", "delay")
            )
            for plus in (PLUS, PLUS_20, PLUS_PAPER):
                if plus in rate and scenario == "stationary":
                    out.append(_stationary(plus, rate, delay))
                elif plus in rate:
                    out += _moving(plus, rate, delay, scenario)
        out.append(
            judge(
                "23",
                "Orca has the lowest throughput on stationary paths, and neither throughput nor delay on moving ones",
                {},
                paper="lowest throughput",
                here="not run: no weights of its policy are to be had, and cctrace ships none; with a policy of your "
                "own the controller `orca` runs",
                mechanism="a learned policy is its weights",
            )
        )
        return out

    def plot(self, made):
        """Ellipses, a panel per scenario."""
        from cctrace.plot import ellipses

        return ellipses(over_runs(made.table), "system", panel_by="scenario", title=f"BBRv2+, Fig. 23: {self.title}")


def _stationary(plus, rate, delay):
    three = [rate[s] for s in (BBR, BBR2, plus)]
    return judge(
        "23a",
        f"stationary, BBR, BBRv2 and BBRv2+ are close; CUBIC has slightly more, and much more delay ({plus})",
        {
            "throughputs within 10 %": max(three) - min(three) <= 0.1,
            "CUBIC has the most throughput": rate[CUBIC] >= max(three),
            "CUBIC has at least twice the delay": delay[CUBIC] >= 2 * max(delay[s] for s in (BBR, BBR2, plus)),
        },
        paper="very close; CUBIC slightly better at high delay",
        here=_both(rate, delay, (CUBIC, BBR, BBR2, plus)),
        mechanism="these presets vary more than the paper's stationary traces: a resting phone's 5G has outages too",
    )


def _moving(plus, rate, delay, scenario):
    gain = 100 * (rate[plus] / rate[BBR2] - 1)
    order = sorted((s for s in rate if s in (CUBIC, BBR, BBR2, plus)), key=lambda s: -rate[s])
    return [
        judge(
            "23b",
            f"moving, BBRv2+ has 25 % more throughput than BBRv2 at a comparable delay ({plus}; {scenario})",
            {
                "more throughput": gain > 0,
                "15 to 35 % more": 15 <= gain <= 35,
                "delay at most 1.5 times BBRv2's": delay[plus] <= 1.5 * delay[BBR2],
            },
            paper="+25 %, on private traces",
            here=f"{gain:+.0f} % of the normalised throughput, delay {delay[plus] / delay[BBR2]:.2f} of BBRv2's",
            numbers=(25.0, gain),
            mechanism="the figure rests on the authors' traces, which are not published; these are path presets",
        ),
        judge(
            "23b",
            f"moving, BBR has the most throughput and BBRv2+ the second most, BBR with more delay ({plus}; {scenario})",
            {
                "BBR first": order[0] == BBR,
                "BBRv2+ second": order[1] == plus,
                "BBR with more delay than BBRv2+": delay[BBR] > delay[plus],
            },
            paper="BBR, BBRv2+, then the others",
            here=_both(rate, delay, (CUBIC, BBR, BBR2, plus)),
            mechanism="what fills 1.5 MB loses no throughput to a rate that changes: CUBIC's delay is the price",
        ),
    ]


def _both(rate, delay, systems):
    return ", ".join(f"{s} {rate[s]:.2f} at {delay[s]:.1f}" for s in systems) + " (normalised throughput at delay)"


class Fig22(Figure):
    """Examples of the paths."""

    def runs(self, p):
        """Nothing is simulated."""
        return []

    def derived(self, frame, p):
        """The rates of the first seed, second by second."""
        import pandas as pd

        from cctrace.units import parse_rate_bps

        def mbps(rate):
            return (rate if isinstance(rate, float) else parse_rate_bps(rate, "rate")) / 1e6

        if p["traces"]:
            drawn = {FilePath(file).name: rates_of(read_file(file)) for file in p["traces"]}
        else:
            names = (*p["stationary"], *p["moving"])
            drawn = {name: presets.path_fields(name, 1)["rate"] for name in names}
        rows = [{"path": name, "time_s": t, "mbps": mbps(rate), "seed": 1} for name in drawn for t, rate in drawn[name]]
        return pd.DataFrame(rows)

    def plot(self, made):
        """A panel per path."""
        from cctrace.plot import over_time

        series = {
            name: [(rows.time_s.to_numpy(), rows.mbps.to_numpy(), "rate", {"step": True})]
            for name, rows in made.runs.groupby("path", sort=False)
        }
        return over_time(series, title="BBRv2+, Fig. 22: paths of Fig. 23", ylabel="Mbit/s", columns=3)


_SETS = {"stationary": STATIONARY, "moving": MOVING, "traces": ()}
FIGURES = [
    Fig22("22", "examples of paths", _SETS, {"stationary": STATIONARY[:1], "moving": MOVING[:1]}, ("path", "time_s")),
    Fig23(
        "23",
        "throughput and delay over cellular paths",
        _SETS | {"systems": (CUBIC, BBR, BBR2, PLUS, PLUS_20, PLUS_PAPER), "seeds": SEEDS, "duration": "120s"},
        {"stationary": STATIONARY[2:3], "moving": MOVING[2:], "seeds": (1,), "duration": "20s"},
        ("system", "scenario"),
    ),
]
