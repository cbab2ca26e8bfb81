"""Whether the simulator sends what the kernel sent: every segment, in order, at the same time.

    python -m benchmarks.kernel_equality DIR... [--seconds 20] [--refine] [--show 8] [--within 100us]
    python -m benchmarks.kernel_equality --lab

DIR is a recording of the lab that runs Linux in virtual time, or a folder of such (`kernel_lab`). The path is built
from scenario.json; where chance had a say the simulation is told what it decided: the transmissions that were lost,
from receiver.pcap, BBR's random draws, as a replay infers them, and by how much (4 us at most) the interrupt of each
timer was late, from the times of the packets in both captures. `--own-clock` leaves the last to an imitation of the
lab's clock. Printed is the share of transmissions that both sent, in the same order and within 100 us, and where the
two part. `--refine` tries what no record shows exactly: how long BBR v2 and v3 waited between two ACKs, and where in
its 256 ns the lab's own clock was. `--lab` compares recordings that are kept in benchmarks/kernel_lab.npz.
"""

import argparse
import bisect
import re
from pathlib import Path as FilePath

import numpy as np

from benchmarks.kernel_lab import MSS, TIMER_STEP_NS, Recording, keep, kept
from cctrace.cc import controller
from cctrace.replaying.hypotheses import raw_draw
from cctrace.units import parse_time_ns

ALIKE = "100us"
LAB = FilePath(__file__).with_name("kernel_lab.npz")
WAITS_US = (64000, 32000, 16000, 8000, 4000, 2000, 1000, 500, 250)  # by which a wait may be longer or shorter
DRAW_PER_US = (1 << 32) / 1e6  # of the clock's part of a wait, which is up to a second long
NEARLY_ALL = 0.999  # alike: nothing more is tried
FEW = 10  # that differ do not end what is alike


def occurrences(offsets):
    """Return how often each offset occurred before."""
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    counts = np.diff(np.append(begins, len(ordered)))
    result = np.empty(len(offsets), np.int64)
    result[order] = np.arange(len(offsets)) - np.repeat(begins, counts)
    return result


def in_order(places):
    """Return which of distinct numbers belong to a longest increasing subsequence."""
    tails, at, before = [], [], np.full(len(places), -1)
    for k, place in enumerate(places.tolist()):
        where = bisect.bisect_left(tails, place)
        if where == len(tails):
            tails.append(place)
            at.append(k)
        else:
            tails[where], at[where] = place, k
        before[k] = at[where - 1] if where else -1
    kept = np.zeros(len(places), bool)
    k = at[-1] if at else -1
    while k >= 0:
        kept[k] = True
        k = before[k]
    return kept


def compare(mine, theirs, within_ns):
    """Return (share alike, indices of those of theirs that are not)."""
    keys = {key: k for k, key in enumerate(zip(mine[0].tolist(), occurrences(mine[0]).tolist(), strict=True))}
    place = np.array(
        [keys.get(key, -1) for key in zip(theirs[0].tolist(), occurrences(theirs[0]).tolist(), strict=True)]
    )
    both = place >= 0
    both[both] = np.abs(mine[1][place[both]] - theirs[1][both]) <= within_ns
    alike = both.copy()
    alike[both] = in_order(place[both])
    share = alike.sum() / max(len(mine[0]), len(theirs[0]), 1)
    return share, np.flatnonzero(~alike)


def length_alike(apart):
    """Return how long the two went together: up to the tenth that differs."""
    return float("inf") if len(apart) < FEW else int(apart[FEW - 1])


def refine(recording, theirs, best, seconds, within_ns):
    """Find what the replay cannot know exactly: how long BBR waited between two ACKs, the phase of the lab's clock.

    Returns the comparison and what was sent with the values that explain most, which the recording keeps.
    """
    for values, k, value in choices(recording):
        if best[0] > NEARLY_ALL:
            break
        kept, values[k] = values[k], value
        mine = recording.simulated(seconds)
        tried = (*compare(mine, theirs, within_ns), mine)
        if (length_alike(tried[1]), tried[0]) > (length_alike(best[1]), best[0]):
            best = tried
        else:
            values[k] = kept
    return best


def choices(recording):
    """Yield (values, place, another value to try) for each number of a recording that is known only roughly."""
    cls = controller(recording.controller)[0]
    kinds = cls.probe_draws or (cls.phase_choices,)
    draws = recording.draws
    for k in range(len(draws)):
        count = kinds[k % len(kinds)]
        for n in range(count):
            yield draws, k, raw_draw(n, count)
        for shift_us in WAITS_US if count == 0 else ():
            for sign in (-1, 1):
                yield draws, k, int(np.clip(draws[k] + sign * shift_us * DRAW_PER_US, 0, 0xFFFFFFFF))
    for phase_ns in range(64, TIMER_STEP_NS, 64):
        yield recording.phase_ns, 0, phase_ns


def show(mine, theirs, at, rows):
    """Print what both sent around transmission `at` of theirs."""
    print("      n  | kernel: segment     ms | simulated: segment     ms")
    for k in range(max(at - rows, 0), at + rows):
        cells = [f"{o[k] / MSS:10.2f} {t[k] / 1e6:12.4f}" if k < len(o) else 23 * " " for o, t in (theirs, mine)]
        print(f"  {k:7d} | {cells[0]} | {cells[1]}{'   <-' if k == at else ''}")


def recordings(folders):
    """Return the folders of the recordings in or below `folders`."""
    found = []
    for folder in folders:
        files = [folder / "scenario.json"] if (folder / "scenario.json").exists() else folder.glob("*/scenario.json")
        found += sorted(file.parent for file in files)
    return found


def report(recording, seconds, options):
    """Compare a recording with its simulation, and print the result."""
    within_ns = parse_time_ns(options.within, "within")
    if options.own_clock:
        recording.instants = ()
    theirs = recording.until(seconds)
    mine = recording.simulated(seconds)
    share, apart = compare(mine, theirs, within_ns)
    if options.refine:
        share, apart, mine = refine(recording, theirs, (share, apart, mine), seconds, within_ns)
    again = [len(o) - len(np.unique(o)) for o, _ in (theirs, mine)]
    when = f"; first apart: {apart[0]} at {theirs[1][apart[0]] / 1e9:.6f} s" if len(apart) else ""
    sent = f"{len(theirs[0])} sent, simulated {len(mine[0])}, again {again[0]} and {again[1]}"
    print(f"{recording.name:24s} {100 * share:6.2f} %  {sent}{when}", flush=True)
    if options.show and len(apart):
        show(mine, theirs, int(apart[0]), options.show)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=FilePath)
    parser.add_argument("--lab", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each recording")
    parser.add_argument("--show", type=int, default=0, help="transmissions to show around the first that differs")
    parser.add_argument("--within", default=ALIKE)
    parser.add_argument("--only", default="", help="regular expression of names")
    parser.add_argument("--own-clock", action="store_true", help="do not tell when interrupts were served")
    parser.add_argument("--refine", action="store_true", help="try what the records do not show exactly")
    parser.add_argument("--keep", type=FilePath, help="write what was compared, for --lab")
    options = parser.parse_args()
    for recording, seconds in kept(LAB).values() if options.lab else ():
        report(recording, seconds, options)
    compared = []
    for folder in recordings(options.folders):
        if not re.search(options.only, folder.name):
            continue
        recording = Recording.read(folder)
        if missing := recording.not_modelled():
            print(f"{recording.name:24s} not compared: {', '.join(missing)}")
            continue
        report(recording, min(options.seconds, recording.seconds), options)
        compared.append(recording)
    if options.keep:
        keep(compared, options.seconds, options.keep)


if __name__ == "__main__":
    main()
