"""Hold the analytic models against closed-loop runs.

    python -m benchmarks.predict [TABLE.csv ...] [--recordings DIR ...]

Prints, per table and scenario, the predicted probability of collapse next to the observed share of collapsed runs; AUC
and Brier score of the model and of the paper's i.i.d. form (10,000 samples, no queue), and the best that any function
of the scenario could reach, because near the threshold the seed decides; predicted and observed thresholds; for buffer
sharing the three models' errors inside and outside their domains. Tables: see benchmarks/closed_loop/README.md; by
default the released code's runs, then the fine grid of `benchmarks/collapse_grid.py`.
The recordings are those listed in closed_loop/recordings.csv, or with --recordings the folders of a recording lab: the
label is goodput below half the link for 5 s or more.
"""

import argparse
import json
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize, stats

from cctrace.analytic import share
from cctrace.analytic.closedloop import collapse_probability, domain, threshold
from cctrace.analytic.collapse import Collapse
from cctrace.analytic.distributions import TruncatedNormal
from cctrace.analytic.jittered import SENDERS, Link
from cctrace.errors import ArgumentError

HERE = Path(__file__).parent / "closed_loop"
SCENARIO = re.compile(
    r"(?P<kind>(?P<before>pre)?(?P<reo>reo)?(?:jit)?(?P<link>kumar|40|(?P<mbps>\d+)x(?P<rtt_ms>\d+))(?P<draws>[bc]?))_(?P<sd>[\d.]+)$"
)
DRAWS = {"": "packet", "b": "burst", "c": "slot"}
V1 = ("bbr2016", "bbr2019", "bbr2022")
THRESHOLDS = ("bbr2016", "bbr2022", "bbr2", "bbr3")  # of which there are fine grids


def link_of(kind, sd_ms):
    found = SCENARIO.match(f"{kind}_0")
    fast = found["link"] == "kumar"
    mbps, rtt_ms = (int(found["mbps"]), int(found["rtt_ms"])) if found["mbps"] else (1000, 5) if fast else (40, 40)
    return Link(
        rate_bps=mbps * 1e6,
        delay=TruncatedNormal(rtt_ms * 1000, max(sd_ms, 1e-3) * 1000),
        draws=DRAWS[found["draws"]],
        ordered=not found["reo"],
        ack_every=2 if fast and not found["reo"] else 1,
        before=bool(found["before"]),
    )


def paper_probability(link):
    return float(Collapse(mean_us=link.delay.mean_us, sd_us=link.delay.sd_us).probability())


def predictions(table):
    """One row per (algorithm, scenario): observed share of collapsed runs, the model's probability, the paper's."""
    rows = []
    for (algorithm, scenario), runs in table.groupby(["algorithm", "scenario"]):
        found = SCENARIO.match(scenario)
        if found is None or algorithm not in SENDERS:
            continue
        link, sender = link_of(found["kind"], float(found["sd"])), SENDERS[algorithm]
        rows.append(
            {
                "algorithm": algorithm,
                "kind": found["kind"],
                "sd_ms": float(found["sd"]),
                "runs": len(runs),
                "collapsed": (runs.collapse == "yes").mean(),
                "model": collapse_probability(link, sender),
                "paper": paper_probability(link),
                "domain": domain(link, sender).text,
            }
        )
    return pd.DataFrame(rows).sort_values(["algorithm", "kind", "sd_ms"])


def auc(probability, collapsed, runs):
    """Probability that a collapsed run was given a higher figure than another, ties one half."""
    yes, no = collapsed * runs, (1 - collapsed) * runs
    wins = np.sign(np.subtract.outer(probability, probability)) / 2 + 0.5
    return (wins * np.multiply.outer(yes, no)).sum() / (yes.sum() * no.sum())


def brier(probability, collapsed, runs):
    return np.average(collapsed * (1 - probability) ** 2 + (1 - collapsed) * probability**2, weights=runs)


def scores(rows):
    """AUC and Brier score of both forms, and of the observed shares themselves, which no prediction can beat."""
    collapsed, runs = (rows[name].to_numpy(float) for name in ("collapsed", "runs"))
    columns = {"model": rows.model, "paper": rows.paper, "best possible": rows.collapsed}
    figures = {name: column.to_numpy(float) for name, column in columns.items()}
    return "   ".join(
        f"{name}: AUC {auc(p, collapsed, runs):.3f} Brier {brier(p, collapsed, runs):.3f}"
        for name, p in figures.items()
    )


def observed_threshold(rows):
    """Where the observed share of collapsed runs crosses one half, as (below, there, above); isotonic in sd."""
    share_collapsed = optimize.isotonic_regression(rows.collapsed, weights=rows.runs).x
    sd = rows.sd_ms.to_numpy()
    if share_collapsed[0] >= 0.5 or share_collapsed[-1] < 0.5:
        return None
    i = int(np.argmax(share_collapsed >= 0.5))
    crossing = np.interp(0.5, share_collapsed[i - 1 : i + 1], sd[i - 1 : i + 1])
    return sd[i - 1], crossing, sd[i]


def near_threshold(rows, factor=1.3):
    """Keep the scenarios whose jitter lies within `factor` of their kind's observed threshold."""
    kept = [rows.iloc[:0]]
    for _, group in rows.groupby("kind"):
        if seen := observed_threshold(group):
            kept.append(group[np.abs(np.log(np.maximum(group.sd_ms, 1e-9) / seen[1])) <= np.log(factor)])
    return pd.concat(kept)


def report_thresholds(rows):
    print(f"\n{'threshold, ms':24} {'observed':>26} {'model':>14} {'paper':>14}")
    for (algorithm, kind), group in rows[rows.algorithm.isin(THRESHOLDS)].groupby(["algorithm", "kind"]):
        seen, name = observed_threshold(group), f"{algorithm}, {kind}"
        mean = link_of(kind, 1).delay.mean_us
        try:
            model = threshold(lambda sd, kind=kind: link_of(kind, sd), SENDERS[algorithm], mean / 5e4, mean / 1e3)
        except ArgumentError:
            model = np.nan
        paper = float(Collapse(mean_us=mean).threshold("sd_us")) / 1000
        if seen is None:
            text = f"not crossed up to {group.sd_ms.max():g}"
            print(f"{name:24} {text:>26} {model:9.2f}      {paper:9.2f}")
            continue
        low, middle, high = seen
        if high > 1.3 * low:  # too coarse to say where the crossing is
            text, verdicts = f"{low:g} to {high:g}", ["in" if low < v < high else "out" for v in (model, paper)]
        else:
            text, verdicts = f"{middle:.2f}", [f"{value / middle - 1:+.0%}" for value in (model, paper)]
        print(f"{name:24} {text:>26} {model:9.2f} {verdicts[0]:>4} {paper:9.2f} {verdicts[1]:>4}")


def report_collapse(name, tables):
    rows = predictions(pd.concat([pd.read_csv(table) for table in tables]))
    print(f"\n{name}")
    print(rows.drop(columns="domain").round(3).to_string(index=False))
    groups = {"bbr2016": ("bbr2016",), "v1 (2016, 2019, 2022)": V1, "all": tuple(rows.algorithm.unique())}
    for name, algorithms in groups.items():
        chosen = rows[rows.algorithm.isin(algorithms)]
        if name != "bbr2016" and len(chosen) == (rows.algorithm == "bbr2016").sum():
            continue
        parts = {"all rows": chosen, "inside": chosen[chosen.domain == "inside"]}
        if name == "bbr2016":
            parts["near"] = near_threshold(chosen)
        for part, selected in parts.items():
            if 0 < selected.collapsed.sum() < len(selected):
                print(f"{name:22} {part:9} {len(selected):4} scenarios   {scores(selected)}")
    report_thresholds(rows)


# --- buffer share -----------------------------------------------------------------------------------------------------
def report_share(table):
    runs = pd.read_csv(table)
    ratio = runs.scenario.str.extract(r"_[BR]([\d.]+)$")[0].astype(float)
    where = (
        runs.scenario.str.split("_")
        .str[0]
        .map({"p1j": (40, 120), "p1jd2": (40, 120), "p4j": (100, 180), "p3tj": (20, 480)})
    )
    runs = runs.assign(ratio=ratio, rate=where.str[0], seconds=where.str[1])
    keys = ["scenario", "algorithm", "ratio", "rate", "seconds", "bbr_flows", "loss_based_flows"]
    print(f"\n{'scenario':34} {'observed':>8} {'Q_r':>7} {'Ware':>7} {'Mishra':>14}  inside the domain of")
    worst = {}
    for key, group in runs.groupby(keys):
        scenario, algorithm, x, rate, seconds, n, m = key
        seen = group.bbr_share.mean()
        low, high = map(float, share.mishra_bounds(x, m))
        guesses = {
            "Q_r": (1 - float(share.loss_based_share(2, x)), share.share_domain(x, n, m)),
            "Ware": (
                float(share.ware_bbr_share(x, 0.04, rate * 1e6 / 8 / 1514, n, seconds)),
                share.ware_domain(x, 0.04, seconds, n, m),
            ),
            "Mishra": ((low + high) / 2, share.mishra_domain(x, n, m, "quic" if "quic" in algorithm else "linux")),
        }
        inside = [name for name, (_, where_) in guesses.items() if where_.inside]
        for name in inside:
            worst.setdefault(name, []).append(abs(guesses[name][0] - seen))
        figures = f"{guesses['Q_r'][0]:7.3f} {guesses['Ware'][0]:7.3f} {low:7.3f}-{high:.3f}"
        print(f"{scenario:34} {seen:8.3f} {figures}  {', '.join(inside) or '-'}")
    for name, errors in worst.items():
        print(f"{name:8} inside its domain: {len(errors)} scenarios, largest error {max(errors):.3f}")


# --- recordings -------------------------------------------------------------------------------------------------------
def recorded_row(folder):
    """Return a row as of recordings.csv from a folder of the recording lab, or None where it is no BBR with jitter."""
    parameters = json.loads((folder / "scenario.json").read_text())["parameters"]
    jitter = parameters.get("fwd_jitter") or parameters.get("rev_jitter") or ""
    kind, _, numbers = jitter.partition(":")
    if parameters["flows"][0]["cc"] != "bbr" or kind not in ("normal", "gamma"):
        return None
    values, base = [float(v) for v in numbers.split(",")], parameters["fwd_delay"] + parameters["rev_delay"]
    if kind == "gamma":  # shape, scale
        mean, sd, floor = base + values[0] * values[1], values[0] ** 0.5 * values[1], base
    else:
        mean, sd, floor = base + values[0], values[1], base + values[2]
    return {
        "recording": folder.name,
        "rate_mbps": parameters["rate"],
        "rtt_ms": mean / 1e3,
        "jitter": kind,
        "jitter_sd_ms": sd / 1e3,
        "floor_ms": floor / 1e3,
        "reorders": "yes" if parameters.get("fwd_reorder") else "no",
        "lowest_5s_mbps": lowest_goodput_mbps(folder),
    }


def lowest_goodput_mbps(folder, seconds=5):
    """Return the goodput of the worst `seconds`, from the counters of tcp_info."""
    info = pd.read_csv(folder / "tcpinfo.csv.zst", usecols=["time_ns", "tcpi_bytes_acked"])
    t = (info.time_ns - info.time_ns.iloc[0]).to_numpy() / 1e9
    at = np.arange(0, t[-1] - seconds, 0.1)
    acked = info.tcpi_bytes_acked.to_numpy(float)
    return (np.interp(at + seconds, t, acked) - np.interp(at, t, acked)).min() * 8e-6 / seconds


def recorded_link(row):
    """Return the link of a row of recordings.csv; one draw per packet, delayed ACKs."""
    mean, sd, floor = row.rtt_ms * 1e3, row.jitter_sd_ms * 1e3, row.floor_ms * 1e3
    if row.jitter == "gamma":
        delay = stats.gamma(((mean - floor) / sd) ** 2, loc=floor, scale=sd**2 / (mean - floor))
    else:
        delay = TruncatedNormal(mean, sd, floor)
    return Link(row.rate_mbps * 1e6, delay, "packet", row.reorders == "no", ack_every=2, wire_bytes=1500)


def report_recordings(table):
    print(
        f"\n{'recording':36} {'5 s minimum':>12} {'collapsed':>9} {'model':>7} {'called':>7} {'paper':>7} {'called':>7}"
    )
    right = np.zeros(2, int)
    jittered = table[table.jitter_sd_ms > 0]
    for row in jittered.itertuples():
        link, collapsed = recorded_link(row), row.lowest_5s_mbps < row.rate_mbps / 2
        model = collapse_probability(link, SENDERS["bbr2022"])  # what Linux 6.18 has
        paper = float(Collapse(link.delay).probability())
        called = [(p >= 0.5) == collapsed for p in (model, paper)]
        right += called
        verdicts = ["right" if each else "WRONG" for each in called]
        print(
            f"{row.recording:36} {row.lowest_5s_mbps:7.1f} Mb/s {collapsed!s:>9} "
            f"{model:7.3f} {verdicts[0]:>7} {paper:7.3f} {verdicts[1]:>7}"
        )
    print(f"recordings called right: model {right[0]} of {len(jittered)}, paper {right[1]} of {len(jittered)}")


def report_speed():
    delta = np.linspace(0, 3000, 10_000)
    shapes = {"normal": Collapse(mean_us=5000, floor_us=75), "gamma": Collapse(stats.gamma(16, loc=1000, scale=250))}
    for name, model in shapes.items():
        began = time.perf_counter()
        model.threshold("sd_us", queue_delay_us=delta)
        print(f"10,000 thresholds of the paper's form, {name}: {time.perf_counter() - began:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--recordings", nargs="*", type=Path)
    arguments = parser.parse_args()
    if arguments.tables:
        report_collapse("given runs", arguments.tables)
    else:
        report_collapse("the released code's runs", [HERE / "jitter.csv", HERE / "reorder.csv"])
        report_collapse("fine grid", [HERE / "grid.csv"])
    report_share(HERE / "competition.csv")
    recorded = pd.read_csv(HERE / "recordings.csv")
    if arguments.recordings:
        recorded = pd.DataFrame([row for folder in arguments.recordings if (row := recorded_row(folder))])
    report_recordings(recorded)
    report_speed()


if __name__ == "__main__":
    main()
