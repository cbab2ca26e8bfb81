"""Hold the analytic models against closed-loop runs.

    python benchmarks/predict.py [TABLE.csv ...] [--recordings DIR ...]

Prints, per scenario, the predicted probability of collapse next to the observed share of collapsed runs; AUC and Brier
score of the model and of the paper's i.i.d. form (10,000 samples, no queue); predicted and observed thresholds; for
buffer sharing the three models' errors inside and outside their domains. Tables: see benchmarks/closed_loop/README.md.
With --recordings, also the folders of a recording lab: the label is goodput below half the link for 5 s or more.
"""

import argparse
import json
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from cctrace.analytic import share
from cctrace.analytic.closedloop import SENDERS, collapse_probability, domain, threshold
from cctrace.analytic.closedloop import Path as Link
from cctrace.analytic.collapse import Collapse
from cctrace.analytic.distributions import TruncatedNormal
from cctrace.errors import ArgumentError

HERE = Path(__file__).parent / "closed_loop"
SCENARIO = re.compile(r"(?P<kind>(?P<reo>reo)?(?P<link>jit40|kumar|40)(?P<draws>[bc]?))_(?P<sd>[\d.]+)$")
DRAWS = {"": "packet", "b": "burst", "c": "slot"}
V1 = ("bbr2016", "bbr2019", "bbr2022")


def link_of(kind, sd_ms):
    found = SCENARIO.match(f"{kind}_0")
    fast = found["link"] == "kumar"
    return Link(
        rate_bps=1e9 if fast else 40e6,
        delay=TruncatedNormal(5000 if fast else 40_000, max(sd_ms, 1e-3) * 1000),
        draws=DRAWS[found["draws"]],
        ordered=not found["reo"],
        ack_every=2 if fast and not found["reo"] else 1,
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
    columns = [rows[name].to_numpy(float) for name in ("collapsed", "runs")]
    out = {}
    for name in ("model", "paper"):
        p = rows[name].to_numpy(float)
        out[name] = f"AUC {auc(p, *columns):.3f}  Brier {brier(p, *columns):.3f}"
    return out


def observed_threshold(rows):
    """Where the observed share of collapsed runs crosses one half, as (low, high) around it; isotonic in sd."""
    share_collapsed = np.maximum.accumulate(rows.collapsed.to_numpy())
    sd = rows.sd_ms.to_numpy()
    if share_collapsed[0] >= 0.5 or share_collapsed[-1] < 0.5:
        return None
    i = int(np.argmax(share_collapsed >= 0.5))
    crossing = np.interp(0.5, share_collapsed[i - 1 : i + 1], sd[i - 1 : i + 1])
    return sd[i - 1], crossing, sd[i]


def report_thresholds(rows):
    print(f"\n{'bbr2016 threshold, ms':24} {'observed':>26} {'model':>14} {'paper':>14}")
    for kind, group in rows[rows.algorithm == "bbr2016"].groupby("kind"):
        seen = observed_threshold(group)
        mean = link_of(kind, 1).delay.mean_us
        try:
            model = threshold(lambda sd, kind=kind: link_of(kind, sd), SENDERS["bbr2016"], mean / 5e4, mean / 1e3)
        except ArgumentError:
            model = np.nan
        paper = float(Collapse(mean_us=mean).threshold("sd_us")) / 1000
        if seen is None:
            text = f"not crossed up to {group.sd_ms.max():g}"
            print(f"{kind:24} {text:>26} {model:9.2f}      {paper:9.2f}")
            continue
        low, middle, high = seen
        if high > 1.3 * low:  # too coarse to say where the crossing is
            text, verdicts = f"{low:g} to {high:g}", ["in" if low < v < high else "out" for v in (model, paper)]
        else:
            text, verdicts = f"{middle:.2f}", [f"{value / middle - 1:+.0%}" for value in (model, paper)]
        print(f"{kind:24} {text:>26} {model:9.2f} {verdicts[0]:>4} {paper:9.2f} {verdicts[1]:>4}")


def report_collapse(tables):
    rows = predictions(pd.concat([pd.read_csv(table) for table in tables]))
    print(rows.drop(columns="domain").round(3).to_string(index=False))
    groups = {"bbr2016": ("bbr2016",), "v1 (2016, 2019, 2022)": V1, "all": tuple(rows.algorithm.unique())}
    for name, algorithms in groups.items():
        chosen = rows[rows.algorithm.isin(algorithms)]
        for part, selected in (("all rows", chosen), ("inside", chosen[chosen.domain == "inside"])):
            if 0 < selected.collapsed.sum() < len(selected):
                print(f"{name:24} {part:9} {len(selected):4} scenarios", scores(selected))
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
def recorded_link(parameters):
    """Return the link of a lab recording, or None where it has no jitter on the data path."""
    jitter = parameters.get("fwd_jitter") or parameters.get("rev_jitter") or ""
    kind, _, numbers = jitter.partition(":")
    values = [float(v) for v in numbers.split(",")] if numbers else []
    base = parameters["fwd_delay"] + parameters["rev_delay"]
    if kind == "normal" and values[1] > 0:
        delay = TruncatedNormal(base + values[0], values[1], base + values[2])
    elif kind == "gamma":
        delay = stats.gamma(values[0], loc=base, scale=values[1])
    else:
        return None
    ordered = not parameters.get("fwd_reorder", False)
    return Link(parameters["rate"] * 1e6, delay, "packet", ordered, ack_every=2, wire_bytes=1500)


def recorded_collapse(folder, rate_bps):
    """Return whether goodput stays below half the link for 5 s, from the counters of tcp_info."""
    info = pd.read_csv(folder / "tcpinfo.csv.zst", usecols=["time_ns", "tcpi_bytes_acked"])
    t = (info.time_ns - info.time_ns.iloc[0]).to_numpy() / 1e9
    at = np.arange(0, t[-1] - 5, 0.1)
    acked = info.tcpi_bytes_acked.to_numpy(float)
    goodput = (np.interp(at + 5, t, acked) - np.interp(at, t, acked)) * 8 / 5
    return bool((goodput < rate_bps / 2).any()), goodput.min()


def report_recordings(folders):
    print(
        f"\n{'recording':36} {'5 s minimum':>12} {'collapsed':>9} {'model':>7} {'called':>7} {'paper':>7} {'called':>7}"
    )
    sender = SENDERS["bbr2022"]
    for folder in map(Path, folders):
        parameters = json.loads((folder / "scenario.json").read_text())["parameters"]
        link = recorded_link(parameters)
        if link is None or parameters["flows"][0]["cc"] != "bbr":
            continue
        collapsed, lowest = recorded_collapse(folder, link.rate_bps)
        model = collapse_probability(link, sender)
        paper = float(Collapse(link.delay).probability())
        verdicts = ["right" if (p >= 0.5) == collapsed else "wrong" for p in (model, paper)]
        print(
            f"{folder.name:36} {lowest / 1e6:7.1f} Mb/s {collapsed!s:>9} "
            f"{model:7.3f} {verdicts[0]:>7} {paper:7.3f} {verdicts[1]:>7}"
        )


def report_speed():
    began = time.perf_counter()
    Collapse(mean_us=5000, floor_us=75).threshold("sd_us", queue_delay_us=np.linspace(0, 3000, 10_000))
    print(f"\n10,000 thresholds of the paper's form: {time.perf_counter() - began:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=[HERE / "jitter.csv", HERE / "reorder.csv"])
    parser.add_argument("--recordings", nargs="*", default=[])
    arguments = parser.parse_args()
    report_collapse(arguments.tables)
    report_share(HERE / "competition.csv")
    report_recordings(arguments.recordings)
    report_speed()


if __name__ == "__main__":
    main()
