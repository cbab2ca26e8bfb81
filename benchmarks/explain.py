"""How often the first verdict of `cctrace analyze` is the cause: recordings, simulated flows, policers, counters.

    python -m benchmarks.explain recordings --captures DIR      lab recordings, whose scenario.json has the cause
    python -m benchmarks.explain simulated --flows 2000         variants x causes, paths drawn at random
    python -m benchmarks.explain policers --captures DIR        captures whose names tell policers (PCIR, PBC)
    python -m benchmarks.explain counters --captures DIR        tcp_info alone: every 10 ms, 100 ms, 1 s, one final look

Printed: the table of confusion (cause against first verdict), false alarms on clean paths, and how far confidence can
be trusted: verdicts in bins of confidence, and the share of them that is right. Causes, and the names that are right
for each, are those of `benchmarks/explain_cases.py`.
"""

import argparse
import json
import re
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

import cctrace as cct
from benchmarks.explain_cases import BESIDE, CAUSES, RIGHT, random_case, simulated_flow
from cctrace.errors import CctraceError


# --- simulated flows -------------------------------------------------------------------------------------------------
def simulated(args):
    """Judge simulated flows."""
    tally = Tally()
    causes = args.causes or CAUSES
    for number in range(args.flows):
        cause = causes[number % len(causes)]
        try:
            flow, controller = simulated_flow(cause, args.first + number, args.seed)
            found = cct.diagnose(flow, controller)
        except CctraceError as error:
            tally.add(cause, f"({type(error).__name__})", 0.0, f"{number}: {error}")
            continue
        first = found.verdicts[0]
        if cause in BESIDE:
            first = next((verdict for verdict in found.verdicts if verdict.name in RIGHT[cause]), first)
        path, flows, duration = random_case(cause, args.first + number, args.seed)
        tally.add(
            cause,
            first.name,
            first.confidence,
            f"#{args.first + number} {flows} {path} {duration}: {[v.name for v in found.verdicts]}",
        )
    tally.show(args)


LOSSY = 0.005
DEEP = 2.0  # bandwidth-delay products: a loss-based controller may keep two base RTTs of queue in more


# --- recordings ------------------------------------------------------------------------------------------------------
def causes_of(scenario, flow):
    """Return the causes that a recording's parameters name for one of its flows; the first names its row.

    A recording of one cause says so itself (`cause`); of others the parameters tell.

    The verdict is right if it is right for one of them. Random loss is the only one where it alone would keep a
    loss-based controller below the rate, by the window of [Mathis97] (sqrt(1.5 / p)); for BBR, from half a per cent on.
    """
    p, bulk = scenario["parameters"], flow.get("mode")
    if "cause" in p:
        return [p["cause"]]
    for cause, holds in (
        ("application_limited", bulk == "chunks"),
        ("slow_start_only", bulk == "bytes"),
        ("receiver_limited", p.get("rcvbuf")),
        ("competition", len(p["flows"]) > 1),
        ("rate_drop", p.get("steps")),
        ("variable_link", p.get("mahimahi")),
        (
            "random_loss",
            p.get("loss") and (p["loss"] >= LOSSY if flow["cc"] == "bbr" else _by_loss_bps(p) < p["rate"] * 1e6),
        ),
    ):
        if holds:
            return [cause]
    jitter = [("jitter", p.get("fwd_jitter") or p.get("fwd_reorder")), ("ack_jitter", p.get("rev_jitter"))]
    found = [cause for cause, holds in jitter if holds] + ["slight_loss"] * bool(p.get("loss"))
    deep = flow["cc"] != "bbr" and p["buffer"] > DEEP * p["rate"] * (p["fwd_delay"] + p["rev_delay"]) / 8
    return [*found, *(["deep_buffer"] if deep else []), *([] if found or deep else ["path_full"])]


def right_of(causes):
    """Return the names of verdicts that are right for one of these causes."""
    return set().union(*(RIGHT[cause] for cause in causes))


def _by_loss_bps(p):
    return 1448 * 8e6 * np.sqrt(1.5 / p["loss"]) / (p["fwd_delay"] + p["rev_delay"])


def calibration(told):
    """Return [(from, to, mean confidence, share that is right, how many)] of (confidence, right), and the ECE.

    The expected calibration error is the mean of the bins' distance of confidence and share, weighted by how many.
    """
    sure, good = np.array([pair[0] for pair in told]), np.array([pair[1] for pair in told], bool)
    place = np.minimum((sure * 10 + 1e-9).astype(int), 9)
    bins = [
        (k / 10, (k + 1) / 10, float(sure[place == k].mean()), float(good[place == k].mean()), int((place == k).sum()))
        for k in np.unique(place)
    ]
    error = sum(abs(mean - share) * many for _, _, mean, share, many in bins) / max(len(sure), 1)
    return [(low, high, round(mean, 10), share, many) for low, high, mean, share, many in bins], error


def slope(told):
    """Return by what the logarithmic odds of (confidence, right) above a half would have to be multiplied."""
    sure, good = np.array([pair for pair in told if 0.5 < pair[0] < 1]).reshape(-1, 2).T
    odds, tried = np.log(sure / (1 - sure)), np.arange(0.2, 4, 0.05)
    return float(max(tried, key=lambda by: -np.log1p(np.exp(np.where(good > 0, -1, 1) * by * odds)).sum()))


class Tally:
    """First verdicts by cause, and how sure they were."""

    def __init__(self):
        self.table, self.sure, self.wrong = defaultdict(Counter), [], []

    def add(self, cause, name, confidence, where, right=None):
        """Count a first verdict."""
        good = name in (RIGHT[cause] if right is None else right)
        self.table[cause][name] += 1
        self.sure.append((confidence, good))
        if not good:
            self.wrong.append(f"{cause} -> {name} ({confidence:.2f}): {where}")

    def show(self, args):
        """Print the tables."""
        right = sum(good for _, good in self.sure)
        if args.json:
            print(
                json.dumps(
                    {
                        "right": right,
                        "of": len(self.sure),
                        "calibration_error": calibration(self.sure)[1],
                        "table": {k: dict(v) for k, v in self.table.items()},
                    }
                )
            )
            return
        for cause, names in self.table.items():
            print(f"{cause:20s} " + ", ".join(f"{name} {count}" for name, count in names.most_common()))
        print(f"right: {right} of {len(self.sure)} ({right / max(len(self.sure), 1):.1%})")
        bins, error = calibration(self.sure)
        for low, high, mean, good, many in bins:
            print(f"confidence {low:.1f} to {high:.1f} (mean {mean:.2f}): {good:.0%} of {many} right")
        print(
            f"expected calibration error: {error:.3f}; likeliest slope of the logarithmic odds: {slope(self.sure):.2f}"
        )
        for line in self.wrong:
            print(line)


def recordings(args):
    """Judge the lab's recordings."""
    tally = Tally()
    for folder in sorted(Path(args.captures).glob(args.only)):
        if not (folder / "scenario.json").exists():
            continue
        scenario = json.loads((folder / "scenario.json").read_text())
        if not all("sport" in known for known in scenario["parameters"]["flows"]):
            continue  # not the lab's
        capture = cct.read(next(folder.glob("sender.pcap*")))
        for known in scenario["parameters"]["flows"]:
            index = int(np.flatnonzero(capture.flows["sport"] == known["sport"])[0])
            causes = causes_of(scenario, known)
            began = time.process_time()
            found = cct.diagnose(capture.flow(index), known["cc"] if args.named else None)
            first = found.verdicts[0]
            if args.verbose:
                names = [f"{v.name} {v.confidence:.2f}" for v in found.verdicts]
                print(
                    f"{folder.name} {known['cc']}: {causes} | {', '.join(names)} ({time.process_time() - began:.2f} s)"
                )
                print(f"    {first.line}")
            tally.add(causes[0], first.name, first.confidence, folder.name, right_of(causes))
    tally.show(args)


def policers(args):
    """Judge captures whose names tell the policer's rate (PCIR) or the shaper's (SCIR), as the public ones do."""
    found, small, false, shaped = Counter(), Counter(), 0, 0
    for file in sorted(Path(args.captures).glob("*.pcap*")):
        named = {key: int(value) for key, value in re.findall(r"-([PS](?:CIR|BC))=(\d+)", file.name)}
        verdicts, lost = [], 0
        for flow in cct.read(str(file)).bulk():
            try:
                verdicts.append(cct.diagnose(flow).verdicts[0])
            except CctraceError:
                continue
            lost += flow.row["retransmitted_segments"]
        told = any(verdict.name == "policer" for verdict in verdicts)
        if args.verbose:
            names = [(verdict.name, round(verdict.confidence, 2)) for verdict in verdicts]
            print(f"{named}, {lost} sent again: {names}", flush=True)
        if "PCIR" not in named:
            shaped, false = shaped + 1, false + told
        elif lost:
            (small if named.get("PBC") == 8000 else found)[told] += 1
    print(f"policed, losses: {found[True]} of {found.total()}; buckets of 8 kB: {small[True]} of {small.total()}")
    print(f"shaped: {false} false alarms of {shaped}")


def counters(args):
    """Judge recordings by their tcp_info alone, thinned to longer distances, and by the last poll."""
    from cctrace.flows.counters import CounterFlow

    distances = {"10 ms": 1, "100 ms": 10, "1 s": 100, "last poll": 0}
    for name, every in distances.items():
        if args.every and name not in args.every:
            continue
        tally = Tally()
        for folder in sorted(Path(args.captures).glob(args.only)):
            if not (folder / "scenario.json").exists():
                continue
            scenario = json.loads((folder / "scenario.json").read_text())
            table = cct.read(folder / "tcpinfo.csv.zst")
            for index, known in enumerate(scenario["parameters"]["flows"]):
                flow = CounterFlow(_thinned(table, every), index)
                found = cct.diagnose(flow)
                first = found.verdicts[0]
                if args.verbose:
                    print(
                        f"{name} {folder.name}: "
                        f"{[(v.name, round(v.confidence, 2)) for v in found.verdicts]} {first.text}"
                    )
                causes = causes_of(scenario, known)
                tally.add(causes[0], first.name, first.confidence, folder.name, right_of(causes))
        print(f"--- tcp_info every {name}" if every else "--- one look at the end")
        tally.show(args)


def _thinned(table, every):
    """Return a table with every n-th poll of each connection (and its last established one); 0: only that."""
    import copy

    thin = copy.copy(table)
    keep = np.zeros(len(table), bool)
    ids = table.connection
    for index in np.unique(ids):
        mine = np.flatnonzero((ids == index) & (table["state"] == 1))
        if len(mine):
            keep[mine[-1:]] = True
            if every:
                keep[mine[::every]] = True
    thin.columns = {name: column[keep] for name, column in table.columns.items()}
    thin.extra = {name: column[keep] for name, column in table.extra.items()}
    thin.connection = ids[keep]
    return thin


def main():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("recordings", "simulated", "policers", "counters"))
    parser.add_argument("--captures", metavar="DIR")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="recordings, counters: folders of such names")
    parser.add_argument("--flows", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first simulated flow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--causes", nargs="*", choices=CAUSES)
    parser.add_argument("--every", nargs="*", metavar="TIME", help="counters: of 10 ms, 100 ms, 1 s, last poll")
    parser.add_argument("--named", action="store_true", help="tell the controller's name")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    globals()[args.what](args)


if __name__ == "__main__":
    main()
