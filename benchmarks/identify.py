"""How often `cctrace identify` names the sender of a flow, and how far its probabilities can be trusted.

    python -m benchmarks.identify [--flows 2] [--duration 8s]       simulated flows of every candidate, random paths
    python -m benchmarks.identify --seen-from receiver ss ...       the same flows, as their receivers or `ss` saw them
    python -m benchmarks.identify --recordings FOLDER...            recordings, whose scenario.json or counters name it
    python -m benchmarks.identify --nebby FOLDER [--half 0]         Nebby's captures, the sender after __ in their names

The paths are those of `benchmarks/replay_simulated.py` (5 to 60 Mbit/s, 10 to 100 ms, clean, random loss, jitter), in
turn with every segment and every second one acknowledged, in captures with and without super-packets; HZ is not told.
Also simulated: controllers that are no candidate (`benchmarks/strangers.py`; "unknown" is right; `RELATIVES`, which
differ from a candidate in a step or two, are shown apart: to be taken for it is no mistake).

Printed: the table of confusion (a flow counts for the candidate that sent it if that is in the group named), how many
candidates the groups have, and how far the probabilities of the groups hold: flows in ten bins by that probability, in
each of them its mean, the share right and how many; their expected calibration error is the mean of the difference.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import cctrace as cct
from benchmarks.polls import ss_text
from benchmarks.replay_simulated import CONDITIONS, random_case
from benchmarks.strangers import STRANGERS
from cctrace.cc import KERNEL_NAMES
from cctrace.errors import StreamError
from cctrace.identification.identify import CANDIDATES, UNKNOWN, identify
from cctrace.identification.named import controller_name
from cctrace.identification.named import sender as sender_by_counters

RELATIVES = ("cubic_paced", "bbr_s_paper", "obbr_paper", "b3r_paper", "bbr2plus_paper")
BINS = 10
# What a flow can hardly tell apart: decisions that differ where little happens.
FAMILIES = {name: "v1" if name in ("bbr2016", "bbr2019", "bbr2022") else name.rstrip("6") for name in CANDIDATES}


def simulation(name, number, seed, duration, trace=False):
    """Return random path number `number` of `replay_simulated`, and its simulation with a flow that `name` sent."""
    case = random_case(CONDITIONS[number % len(CONDITIONS)], seed, number, duration)
    sent_by = cct.Sender(STRANGERS.get(name, name), **case.flow, ack_every=1 + number % 2)
    return case, cct.simulate(
        cct.Path(**case.path), [sent_by], duration, 1000 * seed + number, packets=not trace, trace=trace
    )


def simulated(name, number, seed, duration, folder, side="sender"):
    """Return a flow that controller `name` sent over random path `number`, as a capture."""
    _, sim = simulation(name, number, seed, duration)
    file = Path(folder) / f"{side}.pcap"
    sim.to_pcap(file, side=side, tso=side == "sender" and number // 2 % 2 == 1)
    return cct.read(file).flow(0)


def from_ss(name, number, seed, duration, folder, bbr_fields=True):
    """Return who is identified from what `ss` prints of that flow every 100 ms."""
    return identify(polled(name, number, seed, duration, folder, bbr_fields))


def polled(name, number, seed, duration, folder, bbr_fields=True, every_ms=100):
    """Return that flow as counters."""
    case, sim = simulation(name, number, seed, duration, trace=True)
    file = Path(folder) / "ss.txt"
    text = ss_text(STRANGERS.get(name, name), sim, case.flow["hz"], bbr_fields, every_ms * 1_000_000)
    file.write_text(text, encoding="utf-8")
    return cct.read(file).flow(0)


NEBBY = {"bbr": ("bbr2016", "bbr2019", "bbr2022"), "cubic": ("cubic", "cubic6"), "reno": ("reno",)}


def nebby(folder, half=None):
    """Print who is named for each of Nebby's captures (every second one: `half`), and how often that is right."""
    counts = Counter()
    for k, file in enumerate(sorted(Path(folder).glob("*__*.pcap*"))):
        if half is not None and k % 2 != half:
            continue
        sender = file.name.split("__")[1].split(".")[0]
        capture = cct.read(file)
        group = identify(capture.flow(int(capture.flows["bytes_sent"].argmax()))).group
        good = bool(set(group) & set(NEBBY.get(sender, (UNKNOWN,))))
        kind = sender if sender in NEBBY else "others"
        counts[kind, good] += 1
        print(f"{file.name.split('.')[0]:32}{' or '.join(group):36}{'' if good else 'WRONG'}", flush=True)
    for kind in (*NEBBY, "others"):
        print(f"{kind:8}{counts[kind, True]} of {counts[kind, True] + counts[kind, False]} right")


FILES = {"sender": "sender.pcap*", "receiver": "receiver.pcap*", "ss": "tcpinfo.csv*"}


def recorded(folder, side="sender"):
    """Yield (source port, flow, name of its sender) of a recording's bulk flows, as they look from a side.

    The counters name the sender, where they are recorded, else scenario.json does.
    """
    folder = Path(folder)
    flows = json.loads((folder / "scenario.json").read_text(encoding="utf-8"))["parameters"]["flows"]
    names = [KERNEL_NAMES[one["cc"]] for one in flows]
    table = next((cct.read(file) for file in folder.glob(FILES["ss"])), None)
    polled = [table.flow(k) for k in range(len(table.connections))] if table is not None else []
    for k, one in enumerate(polled):
        _, names[k] = sender_by_counters(one.polls, controller_name(one.polls) or flows[k]["cc"])
    ports = [one.get("sport", 0) for one in flows]
    if side == "ss":
        yield from zip(ports, polled, names, strict=True)
        return
    for flow in (flow for file in folder.glob(FILES[side]) for flow in cct.read(file).bulk()):
        port = flow.key[1]
        yield port, flow, names[ports.index(port) if port in ports else 0]


def recordings_in(folder):
    """Return a folder that is a recording, or the recordings in it."""
    found = sorted(file.parent for file in [*Path(folder).glob("scenario.json"), *Path(folder).glob("*/scenario.json")])
    if not found:
        raise SystemExit(f"{folder}: no recording (scenario.json) here or in a folder of it")
    return found


def of_recordings(folders, side):
    """Print who is named for each flow of recordings, as seen from a side, and how often that is right."""
    results = []
    for folder in (recording for given in folders for recording in recordings_in(given)):
        for port, flow, name in recorded(folder, side):
            try:
                results.append(judge(flow, name))
            except StreamError as error:
                results.append((name, (f"refused: {error}",), 1.0, 0.0))
            sent_by, group, together, seconds = results[-1]
            mark = "" if right(results[-1]) else "  WRONG"
            found = f"{' or '.join(group)} {together:.3f}"
            print(f"{Path(folder).name:32}{port:6} {sent_by:9}{found:40}{seconds:6.1f} s{mark}", flush=True)
    report(f"recordings, from {side}", results)


def judge(flow, name):
    """Return (name, group, probability of the group, seconds) for a flow that `name` sent."""
    found = identify(flow)
    together = sum(probability for one, probability in found.candidates if one in found.group)
    return name, found.group, together, found.seconds


def right(result):
    name, group, *_ = result
    return name in group or (group == (UNKNOWN,) and name in STRANGERS)


def reliability(results):
    """Return, for each tenth of probability with any result, (results, their mean probability, share of them right)."""
    share = np.array([right(result) for result in results], float)
    probability = np.array([result[2] for result in results])
    bins = np.minimum((probability * BINS).astype(int), BINS - 1)
    return [(int(np.sum(bins == k)), probability[bins == k].mean(), share[bins == k].mean()) for k in np.unique(bins)]


def calibration_error(results):
    """Return the expected calibration error of (right, probability) over `results`."""
    return float(sum(count * abs(good - said) for count, said, good in reliability(results)) / len(results))


def group_size(results):
    """Return how many candidates the groups have that name any, the mean, and the share that is of one family."""
    named = [group for _, group, *_ in results if group != (UNKNOWN,)]
    if not named:
        return np.nan, np.nan
    return np.mean([len(group) for group in named]), np.mean(
        [len({FAMILIES[one] for one in group}) == 1 for group in named]
    )


def table(results):
    """Print who was named for whom."""
    for name in dict.fromkeys(result[0] for result in results):
        named = Counter(" or ".join(group) for sender, group, *_ in results if sender == name)
        print(f"  {name:15}" + ", ".join(f"{group} {count}" for group, count in named.most_common()))


def report(title, results, named=True):
    if not results:
        return
    good = sum(map(right, results))
    print(f"{title}: {good} of {len(results)} right, calibration error {calibration_error(results):.3f}", flush=True)
    if not named:
        return
    size, alone = group_size(results)
    print(f"  groups of {size:.2f} candidates, {alone:.0%} of them of one family (v1, CUBIC, or one candidate)")
    print("  said, right: " + ", ".join(f"{said:.2f} {good:.2f} ({many})" for many, said, good in reliability(results)))
    slowest = max(result[3] for result in results)
    print(f"  {np.median([result[3] for result in results]):.2f} s each, at most {slowest:.2f} s")
    table(results)


def all_of(names, side, given, folder):
    """Return the results of all paths for those of the controllers that are asked for."""
    results = []
    for name in names:
        if given.only and name not in given.only:
            continue
        for number in range(given.flows):
            where = (name, number, given.seed, given.duration, folder)
            flow = polled(*where, every_ms=given.every_ms) if side == "ss" else simulated(*where, side=side)
            results.append(judge(flow, name))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flows", type=int, default=2, help="random paths for every controller")
    parser.add_argument("--duration", default="8s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the controllers simulated")
    parser.add_argument("--seen-from", nargs="+", default=["sender"], choices=("sender", "receiver", "ss"))
    parser.add_argument("--every-ms", type=int, default=100, help="how often `ss` looks")
    parser.add_argument("--nebby", metavar="FOLDER", help="Nebby's captures, and nothing simulated")
    parser.add_argument("--half", type=int, choices=(0, 1), help="every second of them only")
    parser.add_argument("--recordings", nargs="+", default=[], metavar="FOLDER", help="these, and nothing simulated")
    given = parser.parse_args()
    began = time.process_time()
    if given.recordings:
        for side in given.seen_from:
            of_recordings(given.recordings, side)
        return 0
    if given.nebby:
        nebby(given.nebby, given.half)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for side in given.seen_from:
            found = {names: all_of(names, side, given, folder) for names in (CANDIDATES, (*STRANGERS,), RELATIVES)}
            report(f"from {side}, candidates", found[CANDIDATES])
            report(f"from {side}, strangers", found[(*STRANGERS,)])
            report(f"from {side}, all", found[CANDIDATES] + found[(*STRANGERS,)], named=False)
            if found[RELATIVES]:
                print("relatives, neither right nor wrong:")
                table(found[RELATIVES])
    print(f"{time.process_time() - began:.0f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
