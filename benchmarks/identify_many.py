"""Thousands of flows, each looked at from its sender, its receiver and through `ss`: who is identified, and how surely?

    python -m benchmarks.identify_many RESULTS --seed 911 --paths 223     2,007 flows; goes on where it was stopped
    python -m benchmarks.identify_many RESULTS --kept ...                 strangers that no rule has seen (`KEPT`)
    python -m benchmarks.identify_many RESULTS --recordings FOLDER...     recordings of kernels, nothing simulated
    python -m benchmarks.identify_many RESULTS --report                   the tables of what is there

A path is that of `benchmarks.identify`, number and seed; each of its flows lasts 8 s. RESULTS has a line of JSON for
each flow and side. A flow counts as right if the group named has its sender ("unknown" for a stranger); intervals are
Wilson's, of 95 %. The table of reliability compares the probability of the groups named with the share of them that is
right, by capture point and by what the path does.
"""

import argparse
import datetime
import itertools
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import cctrace as cct
from benchmarks.identify import calibration_error, group_size, judge, recorded, right
from benchmarks.polls import ss_text
from benchmarks.replay_simulated import CONDITIONS, random_case
from benchmarks.strangers import KEPT, KNOWN, STRANGERS
from cctrace.errors import StreamError
from cctrace.identification.identify import CANDIDATES

SIDES = ("sender", "receiver", "ss")
Z = 1.959964
STATED = (0.0, 0.6, 0.9, 0.97, 1.0)  # limits of the classes of probability in the table of reliability


def looked_at(name, number, seed, folder, duration="8s"):
    """Return {side: result} of one simulated flow, see `identify.judge`."""
    case = random_case(CONDITIONS[number % len(CONDITIONS)], seed, number, duration)
    spec = STRANGERS.get(name, name)
    sender = cct.Sender(spec, **case.flow, ack_every=1 + number % 2)
    sim = cct.simulate(cct.Path(**case.path), [sender], duration, 1000 * seed + number, packets=True, trace=True)
    found = {}
    for side in SIDES:
        file = Path(folder) / (side if side == "ss" else f"{side}.pcap")
        if side == "ss":
            file.write_text(ss_text(spec, sim, case.flow["hz"]), encoding="utf-8")
        else:
            sim.to_pcap(file, side=side, tso=side == "sender" and number // 2 % 2 == 1)
        found[side] = judge(cct.read(file).flow(0), name)
    return found


def looked_at_recording(folder):
    """Yield (side, result) of each bulk flow of a recording."""
    for side in SIDES:
        for _, flow, name in recorded(folder, side):
            try:
                yield side, judge(flow, name)
            except StreamError:
                yield side, (name, ("refused",), 1.0, 0.0)


def condition_of(folder):
    """Return in a word what the path or the application of a recording does to its flow."""
    given = json.loads((Path(folder) / "scenario.json").read_text(encoding="utf-8"))["parameters"]
    flow = given["flows"][0]
    words = {"jitter_us": "jitter", "fwd_jitter": "jitter", "loss": "loss", "steps": "step"}
    of_path = [word for key, word in words.items() if given.get(key)]
    of_ends = [word for key, word in (("chunk_bytes", "application"), ("sndbuf", "send buffer")) if flow.get(key)]
    return next(iter([*of_path, *of_ends]), "clean")


def wilson(good, many):
    """Return the interval of 95 % of a share, `good` of `many`."""
    share, spread = good / many, Z**2 / many
    middle = (share + spread / 2) / (1 + spread)
    half = Z * np.sqrt(share * (1 - share) / many + spread / many / 4) / (1 + spread)
    return middle - half, middle + half


def line_of(number, side, condition, result):
    """Return the line of RESULTS for what a flow's side says."""
    name, group, probability, seconds = result
    one = {"name": name, "number": number, "side": side, "condition": condition, "group": group, "p": probability}
    return json.dumps(one | {"seconds": round(seconds, 3)}) + "\n"


def results(file):
    """Return {(name, number, side, condition): result} of a file's lines."""
    lines = map(json.loads, Path(file).read_text(encoding="utf-8").splitlines())
    return {
        (one["name"], one["number"], one["side"], one["condition"]): (
            *(one["name"], tuple(one["group"])),
            *(one["p"], one["seconds"]),
        )
        for one in lines
    }


def reliability_table(found):
    """Print for each side how many of the flows named with a probability, or under a condition, are right."""
    candidates = {key: one for key, one in found.items() if key[0] in CANDIDATES}
    print("| capture | of | flows | stated | right | 95 % interval |\n|---|---|---|---|---|---|")
    for side in SIDES:
        here = {key: one for key, one in candidates.items() if key[2] == side}
        classes = {
            f"stated {low:g} to {high:g}": [one for one in here.values() if low < one[2] <= high]
            for low, high in itertools.pairwise(STATED)
        }
        classes |= {what: [one for key, one in here.items() if key[3] == what] for what in sorted({k[3] for k in here})}
        for title, some in classes.items():
            if some:
                good = sum(map(right, some))
                low, high = wilson(good, len(some))
                shares = f"{np.mean([one[2] for one in some]):.3f} | {good / len(some):.3f}"
                print(f"| {side} | {title} | {len(some)} | {shares} | {low:.2f} to {high:.2f} |")


def report(file):
    """Print how often each side was right, and what was taken for what."""
    found = results(file)
    for side in SIDES:
        for title, names in (("candidates", CANDIDATES), ("strangers known", KNOWN), ("strangers kept", KEPT)):
            some = [one for (name, _, where, _), one in found.items() if where == side and name in names]
            if not some:
                continue
            good = sum(map(right, some))
            low, high = wilson(good, len(some))
            print(
                f"from {side}, {title}: {good} of {len(some)} right, {good / len(some):.2%} ({low:.1%} to {high:.1%}), "
                f"calibration error {calibration_error(some):.3f}, groups of {group_size(some)[0]:.2f}"
            )
            for name in names:
                each = [one for one in some if one[0] == name]
                wrong = [f"{' or '.join(one[1])} {one[2]:.2f}" for one in each if not right(one)]
                if wrong:
                    print(f"  {name}, {len(wrong)} of {len(each)} wrong: " + "; ".join(wrong))
    reliability_table(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", metavar="RESULTS")
    parser.add_argument("--seed", type=int, default=911)
    parser.add_argument("--paths", type=int, default=223)
    parser.add_argument("--kept", action="store_true", help="the strangers that were kept apart")
    parser.add_argument("--known", action="store_true", help="the strangers that rules were made with")
    parser.add_argument("--until", metavar="HH:MM", help="stop then")
    parser.add_argument("--recordings", nargs="+", default=[], metavar="FOLDER", help="these, and nothing simulated")
    parser.add_argument("--report", action="store_true", help="simulate nothing")
    given = parser.parse_args()
    if given.report:
        report(given.results)
        return 0
    Path(given.results).touch()
    if given.recordings:
        with Path(given.results).open("a", encoding="utf-8") as out:
            for folder in given.recordings:
                for side, result in looked_at_recording(folder):
                    out.write(line_of(Path(folder).name, side, condition_of(folder), result))
                out.flush()
        return 0
    done = results(given.results)
    names = KEPT if given.kept else KNOWN if given.known else CANDIDATES
    with tempfile.TemporaryDirectory() as folder, Path(given.results).open("a", encoding="utf-8") as out:
        for number in range(given.paths):
            for name in names:
                condition = CONDITIONS[number % len(CONDITIONS)]
                if (name, number, "ss", condition) in done:
                    continue
                if given.until and f"{datetime.datetime.now():%H:%M}" >= given.until:
                    return 0
                for side, result in looked_at(name, number, given.seed, folder).items():
                    out.write(line_of(number, side, condition, result))
                out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
