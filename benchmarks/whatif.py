"""How well one recording of a path predicts what another controller does there, beside an oracle, baselines, the floor.

    python -m benchmarks.whatif recordings --captures DIR [--only REGEX] [--draws 12]
    python -m benchmarks.whatif simulated [--runs 300] [--seed 1]
    python -m benchmarks.whatif simulator
    python -m benchmarks.whatif floor
    python -m benchmarks.whatif held --captures DIR [--own truth] [--only REGEX]
    python -m benchmarks.whatif truth --captures DIR > benchmarks/whatif_lab.json

`held` asks about flows that something at the hosts held back, over recordings of real kernels in virtual time
(docs/whatif.md): BASE.own predicts BASE.other (another controller, the same application, limit and path) and BASE.free
(the same controller without what held it back), where these exist.

DIR holds recordings of the lab named PATH_CONTROLLER_rREPEAT (see docs/whatif.md for how they were made). Every first
repeat predicts the other controllers' recordings of its path. `oracle` simulates the true path, `unchanged` says that
the other controller gets what this one got, `trace` replays the recorded delivery rate as the link's, and `floor` is
how well the first repeat predicts the second of the same controller. Intervals are of a bootstrap over paths.
`simulated` asks of simulated flows of all variants over random paths what others would have done there. `simulator`
prints how far simulations of known paths are from the quiet lab's recordings (`SIMULATOR` of
counterfactual.figures). `truth` writes what the recordings in DIR showed, without the captures; `floor` compares
repeats, and the oracle, from that.
"""

import argparse
import json
import re
import time
from pathlib import Path as FilePath

import numpy as np
import pandas as pd

import cctrace as cct
from cctrace.counterfactual.figures import FIGURES, is_reproduced, recorded_figures
from cctrace.path.transmissions import DELIVERED, transmissions

WIRE = 1514 / 1500  # the lab's links carry bare IP packets, cct.Path counts Ethernet frames
KERNEL = {"bbr": "bbr2022", "cubic": "cubic6", "reno": "reno"}
NAME = re.compile(r"(.+)_(bbr|cubic|reno)_r(\d+)")
TOLERANCE = {"goodput_bps": 0.10, "rtt_mean_us": 0.20}


def true_path(p):
    """Return the `cct.Path` that the lab's emulator was set to."""
    base_us, jitter = p["fwd_delay"] + p["rev_delay"], None
    if drawn := p.get("fwd_jitter"):
        kind, _, values = drawn.partition(":")
        a, b = (float(value) for value in values.split(",")[:2])
        if kind == "normal":
            base_us, jitter = base_us + a, f"normal:sd={b / 1e3}ms"
        else:
            jitter = f"gamma:sd={a**0.5 * b / 1e3}ms,mean={a * b / 1e3}ms"
    return cct.Path(
        rate=f"{p['rate'] * WIRE}Mbit",
        rtt=f"{base_us}us",
        buffer=f"{p['buffer'] * WIRE:.0f}B",
        jitter=jitter,
        loss=f"{100 * p.get('loss', 0.0)}%",
    )


def error(name, got, want):
    """Return an error in the figure's own terms: relative, and of shares in points."""
    return abs(got - want) if name == "retransmitted_share" else abs(got / want - 1)


def good(name, got, want, repeats):
    """Return whether a prediction is as near as the project asks, or as the two repeats are to each other."""
    if error(name, got, want) <= abs(repeats[0] - repeats[1]) / (1 if name == "retransmitted_share" else want):
        return True
    if name in TOLERANCE:
        return error(name, got, want) <= TOLERANCE[name]
    return abs(got - want) <= 0.003 or max(got, want) <= 2 * min(got, want)


def over(path, name, seconds, seeds=4):
    """Return the figures of a controller over a path, the median of some seeds."""
    runs = [cct.simulate(path, name, f"{seconds:.2f}s", seed, ack_every=2) for seed in range(1, seeds + 1)]
    return {figure: float(np.median([run.flows[column].iloc[0] for run in runs])) for figure, column in FIGURES.items()}


def as_trace(table, p):
    """Return the recorded delivery rate as the rate of a link, in steps of 100 ms: the baseline that is biased."""
    got = table.state == DELIVERED
    slot = (table.acked_ns[got] - table.start_ns) // 100_000_000
    rates = np.bincount(slot, table.wire_bytes[got]) * 80.0
    least = float(np.nanmin(table.rtt_us))
    steps = [(k / 10, float(max(rate, 1e4))) for k, rate in enumerate(rates)]
    return cct.Path(rate=steps, rtt=f"{least:.0f}us", buffer=f"{p['buffer'] * WIRE:.0f}B")


def load(folder):
    """Return (path's name, controller, repeat, parameters, flow, figures) of a recording."""
    p = json.loads((folder / "scenario.json").read_text())["parameters"]
    flow = cct.read(str(folder / "sender.pcap.zst")).bulk()[0]
    table = transmissions(flow)
    return p, flow, table, recorded_figures(flow.rtt_samples["rtt_us"], table)


def recordings(options):
    """Print the errors of every directed prediction between controllers of one path."""
    found = {}
    for folder in sorted(options.captures.iterdir()):
        name = NAME.fullmatch(folder.name)
        if name and re.search(options.only, folder.name) and (folder / "sender.pcap.zst").exists():
            found.setdefault(name[1], {})[name[2], int(name[3])] = load(folder)
    rows = []
    for path, runs in found.items():
        if len(runs) < 6:
            print(f"{path}: {len(runs)} of 6 recordings, left out")
            continue
        rows += _predictions(path, runs, options)
    if not rows:
        raise SystemExit(f"{options.captures}: no path of six recordings, named PATH.CONTROLLER.REPETITION")
    table = pd.DataFrame(rows)
    table.to_csv(options.output, index=False) if options.output else None
    report(table)


def _predictions(path, runs, options):
    """Yield a row per directed prediction and figure of one path."""
    for source in KERNEL:
        p, flow, table, own = runs[source, 1]
        targets = [target for target in KERNEL if target != source]
        seconds = (int(table.acked_ns.max()) - table.start_ns) / 1e9
        began = time.process_time()
        answer = None
        try:
            answer = cct.whatif(flow, [KERNEL[target] for target in targets], draws=options.draws)
        except (cct.fit.FitError, cct.errors.StreamError) as refusal:
            print(f"{path} {source}: refused: {refusal}", flush=True)
        took = time.process_time() - began
        link = as_trace(table, p)
        for target in targets:
            name = KERNEL[target]
            oracle, trace = over(true_path(p), name, seconds), over(link, name, seconds)
            first, second = runs[target, 1][3], runs[target, 2][3]
            for figure in FIGURES:
                want = first[figure]
                row = {"path": path, "source": source, "target": target, "figure": figure, "recorded": want}
                row |= {"repeat": second[figure], "oracle": oracle[figure], "trace": trace[figure]}
                row |= {"unchanged": own[figure], "seconds": took, "answered": answer is not None}
                if answer is not None:
                    got = answer.candidates[name][figure]
                    row |= {"whatif": got.value, "low": got.low, "high": got.high, "reproduces": answer.reproduces}
                    row |= {"own": answer.own}
                yield row


def report(table):
    answered = table[table["answered"]]
    print(f"{len(table) // 3} directed predictions, {len(answered) // 3} answered, of {table.path.nunique()} paths")
    parts = [*answered.groupby("figure", sort=False)]
    parts += [(figure, rows[rows.high.notna()]) for figure, rows in parts if rows.high.isna().any()]
    for figure, rows in parts:
        if len(rows) < len(answered) // len(FIGURES):
            print(f"of the {len(rows)} that the capture bounds on both sides:")
        columns = ("whatif", "oracle", "unchanged", "trace", "repeat")
        errors = {
            c: np.array([error(figure, g, w) for g, w in zip(rows[c], rows.recorded, strict=True)]) for c in columns
        }
        texts = [f"{'floor' if c == 'repeat' else c} {_scale(figure, e.mean())}" for c, e in errors.items()]
        print(f"{figure}: mean error {', '.join(texts)}")
        for other in ("oracle", "unchanged", "trace"):
            low, middle, high = ratio(rows.path.to_numpy(), errors["whatif"], errors[other])
            print(f"    what-if / {other}: {middle:.2f} ({low:.2f} to {high:.2f})")
        near = [good(figure, r.whatif, r.recorded, (r.recorded, r.repeat)) for r in rows.itertuples()]
        top = rows.high.fillna(np.inf)
        held = (rows.low.fillna(-np.inf) <= rows.recorded) & (rows.recorded <= top)
        print(f"    within tolerance {100 * np.mean(near):.0f} %, 90 % intervals hold {100 * held.mean():.0f} %")
    trusted = answered.drop_duplicates(["path", "source"])
    print(
        f"own controller reproduced: {trusted.reproduces.sum()} of {len(trusted)}; "
        f"CPU {trusted.seconds.mean():.1f} s each"
    )


def _scale(figure, value):
    return f"{100 * value:.2f} points" if figure == "retransmitted_share" else f"{100 * value:.1f} %"


def ratio(paths, mine, theirs, draws=1000):
    """Return the ratio of mean errors and its 95 % interval, resampled by path."""
    names, rng = np.unique(paths), np.random.default_rng(1)
    sums = np.array([[mine[paths == name].sum(), theirs[paths == name].sum()] for name in names])
    picked = sums[rng.integers(0, len(names), (draws, len(names)))].sum(axis=1)
    low, high = np.quantile(picked[:, 0] / picked[:, 1], [0.025, 0.975])
    return low, sums[:, 0].sum() / sums[:, 1].sum(), high


# --- simulated -------------------------------------------------------------------------------------------------------
VARIANTS = (
    "bbr2016", "bbr2019", "bbr2022", "bbr2", "bbr2plus", "bbr3", "cubic", "cubic6", "reno", "bbrx", "bbr_s_paper",
    "b3r_paper", "obbr_paper",
)  # fmt: skip


def random_path(rng):
    """Draw a path as the lab's are drawn."""
    rtt_ms = float(np.exp(rng.uniform(np.log(20), np.log(150))))
    jitter = rng.choice([0.0, 0.0, rng.uniform(0, 0.15)]) * rtt_ms
    return cct.Path(
        rate=f"{np.exp(rng.uniform(np.log(5), np.log(60))):.3f}Mbit",
        rtt=f"{rtt_ms:.3f}ms",
        buffer=f"{np.exp(rng.uniform(np.log(0.3), np.log(8))):.3f}bdp",
        loss=f"{100 * rng.choice([0.0, 0.0, 0.0005 * 40 ** rng.uniform()]):.4f}%",
        jitter=f"normal:sd={jitter:.3f}ms" if jitter else None,
    )


def simulated(options):
    """Print how often what-if of a simulated flow meets what another variant does over the true path."""
    met, held, bounded = ({name: [] for name in FIGURES} for _ in range(3))
    for run in range(options.runs):
        rng = np.random.default_rng([options.seed, run])
        path, (source, target) = random_path(rng), rng.choice(VARIANTS, 2, replace=False)
        sim = cct.simulate(path, str(source), "20s", run, packets=True, ack_every=2)
        try:
            answer = cct.whatif(sim, [str(target)], own=str(source), draws=options.draws)
        except cct.fit.FitError as refusal:
            print(f"run {run}, {source} to {target}: refused: {refusal}", flush=True)
            continue
        want = over(path, str(target), 20.0)
        for name, tolerance in (("goodput_bps", 0.05), ("rtt_mean_us", 0.10), ("retransmitted_share", None)):
            got = answer.candidates[target][name]
            met[name].append(
                error(name, got.value, want[name]) <= tolerance
                if tolerance
                else good(name, got.value, want[name], (want[name],) * 2)
            )
            held[name].append(got.low <= want[name] <= (got.high if got.high is not None else np.inf))
            bounded[name] += [] if got.high is None else [met[name][-1]]
            if not met[name][-1]:
                print(f"run {run}, {source} to {target}: {name} {got.text()} for {want[name]:.4g}", flush=True)
    for name in FIGURES:
        print(
            f"{name}: {sum(met[name])} of {len(met[name])} within tolerance, 90 % intervals hold {sum(held[name])}; "
            f"of those that are bounded on both sides {sum(bounded[name])} of {len(bounded[name])}"
        )


# --- held back at the hosts ------------------------------------------------------------------------------------------
WITHOUT = {
    "chunks": {"app": "bulk"},
    "pacing": {"pacing": "none"},
    "sndbuf": {"send_buffer": "none"},
    "fq": {"fq": False},
}
WHAT_HELD = re.compile(r"[^-]+-(\w+)")


def sent_by(p):
    """Return the variant that sent the first flow of a scenario of the lab in virtual time."""
    cc = p["flows"][0]["cc"]
    return {"bbr": "bbr3" if "bbr3" in p["kernel_image"] else "bbr2022", "cubic": "cubic6"}.get(cc, cc)


def held(options):
    """Print every prediction for flows that something at the hosts held back, and how many are within tolerance."""
    rows, refused = [], 0
    for folder in sorted(options.captures.glob("*.own")):
        if not re.search(options.only, folder.name):
            continue
        p, flow, _, _ = load(folder)
        kind = WHAT_HELD.match(folder.name)[1]
        own = sent_by(p) if options.own == "truth" else None
        for tag in ("other", "free"):
            other = folder.with_name(folder.name.replace(".own", f".{tag}"))
            if not other.exists():
                continue
            q, _, _, want = load(other)
            name, changes = (sent_by(q), {}) if tag == "other" else (sent_by(p), WITHOUT[kind])
            try:
                answer = cct.whatif(flow, [name], own=own, draws=options.draws, **changes)
            except (cct.fit.FitError, cct.errors.CctraceError) as refusal:
                print(f"{folder.name} {tag}: refused: {refusal}", flush=True)
                refused += 1
                continue
            got = answer.candidates[name]
            rows += [
                {"flow": folder.name, "asked": tag, "figure": figure, "reproduces": answer.reproduces}
                | {"got": got[figure].value, "low": got[figure].low, "high": got[figure].high, "want": want[figure]}
                for figure in FIGURES
            ]
            print(
                f"{folder.name} {tag}, {name}: "
                + ", ".join(f"{row['got']:.4g} for {row['want']:.4g}" for row in rows[-3:])
            )
    if not rows:
        raise SystemExit(f"{options.captures}: no recordings NAME-HELD.own with NAME-HELD.other or .free answered")
    table = pd.DataFrame(rows)
    table["near"] = [is_reproduced(row.figure, row.got, row.want) for row in table.itertuples()]
    top = table.high.astype(float).fillna(np.inf)
    table["inside"] = (table.low.astype(float).fillna(-np.inf) <= table.want) & (table.want <= top)
    print(f"{refused} refused")
    for part in ("all", "reproduces"):
        kept = table if part == "all" else table[table.reproduces]
        counts = kept.groupby(["asked", "figure"], sort=False)[["near", "inside"]].agg(["sum", "count"])
        print(f"{part}:\n{counts.to_string()}")


# --- the simulator itself --------------------------------------------------------------------------------------------
def simulator(options):
    """Print the errors of simulations of known paths against the quiet lab's recordings, on the scale of intervals."""
    from benchmarks.recorded import compare_recordings, recorded

    rows = []
    for name, recordings_, _ in recorded(None, options.only):
        for flow in compare_recordings(recordings_, 5):
            sent = np.mean([row["flows"][0]["segments_sent"] for row in recordings_])
            mine, theirs = ({k: np.mean(v) for k, v in flow[side].items()} for side in ("mine", "theirs"))
            again = [side["retransmitted"] / sent + 0.003 for side in (mine, theirs)]
            row = [np.log(mine[k] / theirs[k]) for k in ("goodput_mbps", "rtt_ms")] + [np.log(again[0] / again[1])]
            print(f"{name} {flow['cc']}: " + ", ".join(f"{value:+.3f}" for value in row), flush=True)
            rows.append(row)
    robust = 1.4826 * np.median(np.abs(rows), axis=0)
    print(
        "goodput, RTT, share sent again: standard deviation (1.48 times the median error) "
        + ", ".join(f"{value:.3f}" for value in robust)
    )


# --- what the recordings showed ------------------------------------------------------------------------------------
TRUTH = FilePath(__file__).with_name("whatif_lab.json")
ABOUT = (
    "Made by the project with its own lab: Linux 6.18 senders and receivers in network namespaces over an emulator of "
    "the path (rate in Mbit/s and buffer in bytes of IP packets, delays in us, loss a share, jitter in us after the "
    "bottleneck, order kept), 20 s of bulk, two repeats of BBR, CUBIC and Reno on each of 40 paths drawn at random. "
    "Figures as recorded_figures has them (explain). stalls_over_4ms: intervals of 10 ms in which the emulator "
    "was late by more. Written by benchmarks/whatif.py truth."
)
PATH_KEYS = ("rate", "buffer", "fwd_delay", "rev_delay", "loss", "fwd_jitter")


def truth(options):
    """Print as JSON what every recording showed, and the path it was made over."""
    rows = []
    for folder in sorted(options.captures.iterdir()):
        if (name := NAME.fullmatch(folder.name)) and (folder / "sender.pcap.zst").exists():
            p, _, table, figures = load(folder)
            run = json.loads((folder / "scenario.json").read_text())["run"]
            row = {"path": name[1], "cc": name[2], "repeat": int(name[3])} | {key: p.get(key) for key in PATH_KEYS}
            row |= {"seconds": round((int(table.acked_ns.max()) - table.start_ns) / 1e9, 2)}
            row |= {key: round(value, 6) for key, value in figures.items()}
            rows.append(row | {"stalls_over_4ms": run["emulator_stalls"]["intervals_over_4ms"]})
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    print(f'{{"about": {json.dumps(ABOUT)},\n "recordings": [\n{lines}\n ]}}')


def floor(options):
    """Print how well a repeat, and a simulation of the true path, predict a recording of the same controller."""
    rows = pd.DataFrame(json.loads(TRUTH.read_text())["recordings"]).replace({np.nan: None})
    errors = []
    for (_, cc), two in rows.groupby(["path", "cc"]):
        first, second = two.sort_values("repeat").to_dict("records")
        given = {key: first[key] for key in PATH_KEYS if first[key] is not None}
        oracle = over(true_path(given), KERNEL[cc], first["seconds"])
        for name in FIGURES:
            pair = error(name, second[name], first[name]), error(name, oracle[name], first[name])
            errors.append({"figure": name, "cc": cc, "repeat": pair[0], "oracle": pair[1]})
    table = pd.DataFrame(errors).groupby(["figure", "cc"], sort=False).agg(["median", "mean"])
    print(f"{len(rows)} recordings of {rows.path.nunique()} paths; errors relative, of shares in parts of one")
    print(table.to_string(float_format=lambda value: f"{value:.4f}"))


COMMANDS = {
    "held": held,
    "recordings": recordings,
    "simulated": simulated,
    "simulator": simulator,
    "truth": truth,
    "floor": floor,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("--captures", type=FilePath)
    parser.add_argument("--only", default="", help="regular expression of the recordings' names")
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--own", choices=["identified", "truth"], default="identified")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=FilePath, help="write every prediction as CSV")
    options = parser.parse_args()
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
