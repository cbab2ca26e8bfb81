"""Whether the simulator sends what the kernel sent: every segment, in order, at the same time.

    python -m benchmarks.kernel_equality DIR... [--seconds 20] [--as-inferred] [--show 8] [--within 100us]
    python -m benchmarks.kernel_equality --lab
    python -m benchmarks.kernel_equality --chance DIR... [--seeds 40]

DIR is a recording of the lab that runs Linux in virtual time, or a folder of such (`kernel_lab`). The path is built
from scenario.json; where chance had a say the simulation is told what it decided: the transmissions that were lost, and
how jitter delayed each, from receiver.pcap, BBR's random draws, as a replay infers them, and by how much (4 us at most)
the interrupt of each timer was late, from the times of the packets in both captures. `--own-clock` leaves the last to
an imitation of the lab's clock. Printed is the share of transmissions that both sent, in the same order and within 100
us, and where the two part. There what no record shows exactly is tried anew: how long BBR v2 and v3 waited, and where
in its 256 ns the lab's own clock was (`--as-inferred`: it is not). `--lab` compares recordings kept in
benchmarks/kernel_lab.npz.
`--chance` tells the simulation nothing of what chance decided, and asks whether the kernel's goodput, retransmissions
and RTT are those of one more seed (`kernel_chance`).
"""

import argparse
import bisect
import re
from pathlib import Path as FilePath

import numpy as np

from benchmarks import kernel_chance
from benchmarks.kernel_lab import MSS, TIMER_STEP_NS, Recording, keep, kept, recordings
from cctrace.cc import controller
from cctrace.replaying.inference.hypotheses import LARGEST_DRAW, raw_draw
from cctrace.sim.core.view import DRAWN
from cctrace.units import parse_time_ns

ALIKE = "100us"
LAB = FilePath(__file__).with_name("kernel_lab.npz")
WAITS_US = (64000, 32000, 16000, 8000, 4000, 2000, 1000, 500, 250)  # by which a wait may be longer or shorter
DRAW_PER_US = (1 << 32) / 1e6  # of the clock's part of a wait, which is up to a second long
NEARLY_ALL = 0.999  # alike: nothing more is tried
FEW = 10  # that differ do not end what is alike
RECENT = 2  # draws, of those used when the two part, that are tried anew
LOOK_S = 2.0  # beyond that, by which they are judged


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


def together(mine, theirs, within_ns):
    """Return how many segments the two sent alike from the start, up to the tenth that differs."""
    size = min(len(mine[0]), len(theirs[0]))
    apart = (mine[0][:size] != theirs[0][:size]) | (np.abs(mine[1][:size] - theirs[1][:size]) > within_ns)
    places = np.flatnonzero(apart)
    return int(places[FEW - 1]) if len(places) >= FEW else size


def refine(recording, seconds, within_ns):
    """Find what a replay cannot tell exactly: BBR's draws, and the phase of the lab's clock.

    Where the simulation parts from the recording, the draws used last are tried anew, and kept if both go on together
    for longer; if none helps, so is the clock. The kernel may have drawn more often than the replay.
    """
    theirs = recording.until(seconds)
    alike = together(recording.simulated(seconds), theirs, within_ns)
    while alike < len(theirs[0]):
        parts_s = theirs[1][alike] / 1e9
        if recording.draws and recording.used(parts_s) == len(recording.draws):
            recording.draws += DRAWN * [raw_draw(0, count) if count else LARGEST_DRAW for count in kinds_of(recording)]
            alike = together(recording.simulated(seconds), theirs, within_ns)
            continue
        until_s = min(parts_s + LOOK_S, seconds)
        best = alike, None
        for values, k, value in choices(recording, recording.used(parts_s)):
            kept, values[k] = values[k], value
            longer = together(recording.simulated(until_s), theirs, within_ns)
            values[k] = kept
            if longer > best[0]:
                best = longer, (values, k, value)
        if best[1] is None:
            return
        values, k, value = best[1]
        values[k] = value
        alike = together(recording.simulated(seconds), theirs, within_ns)


def kinds_of(recording):
    """Return among how many values each number of one draw chooses; 0 for a time."""
    cls = controller(recording.controller)[0]
    return cls.probe_draws or (cls.phase_choices,)


def choices(recording, used):
    """Yield (values, place, another value to try) of the last draws used, and of the clock's phase."""
    kinds, draws = kinds_of(recording), recording.draws
    for k in range(max(used - RECENT * len(kinds), 0), min(used, len(draws))):
        count = kinds[k % len(kinds)]
        for n in range(count):
            if raw_draw(n, count) != draws[k]:
                yield draws, k, raw_draw(n, count)
        for shift_us in WAITS_US if count == 0 and draws[k] < LARGEST_DRAW else ():
            for sign in (-1, 1):
                yield draws, k, int(np.clip(draws[k] + sign * shift_us * DRAW_PER_US, 0, LARGEST_DRAW))
    for phase_ns in range(0, TIMER_STEP_NS, 64):
        yield recording.phase_ns, 0, phase_ns


def show(mine, theirs, at, rows):
    """Print what both sent around transmission `at` of theirs."""
    print("      n  | kernel: segment     ms | simulated: segment     ms")
    for k in range(max(at - rows, 0), at + rows):
        cells = [f"{o[k] / MSS:10.2f} {t[k] / 1e6:12.4f}" if k < len(o) else 23 * " " for o, t in (theirs, mine)]
        print(f"  {k:7d} | {cells[0]} | {cells[1]}{'   <-' if k == at else ''}")


def report(recording, seconds, options):
    """Compare a recording with its simulation, and print the result."""
    within_ns = parse_time_ns(options.within, "within")
    if options.own_clock:
        recording.instants = ()
    theirs = recording.until(seconds)
    mine = recording.simulated(seconds)
    share, apart = compare(mine, theirs, within_ns)
    refined = ""
    if not options.as_inferred and share < NEARLY_ALL:
        inferred, before = list(recording.draws), (share, apart, mine)
        refine(recording, seconds, within_ns)
        changed = sum(a != b for a, b in zip(inferred, recording.draws, strict=False))
        mine = recording.simulated(seconds)
        share, apart = compare(mine, theirs, within_ns)
        refined = f"; as inferred {100 * before[0]:.2f} %, {changed} of {len(inferred)} draws changed"
        if share < before[0]:  # together for longer at first, and then apart for good
            share, apart, mine = before
            refined = "; as inferred"
    again = [len(o) - len(np.unique(o)) for o, _ in (theirs, mine)]
    when = f"; first apart: {apart[0]} at {theirs[1][apart[0]] / 1e9:.6f} s" if len(apart) else ""
    sent = f"{len(theirs[0])} sent, simulated {len(mine[0])}, again {again[0]} and {again[1]}"
    print(f"{recording.name:24s} {100 * share:6.2f} %  {sent}{when}{refined}", flush=True)
    if options.show and len(apart):
        show(mine, theirs, int(apart[0]), options.show)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=FilePath)
    parser.add_argument("--lab", action="store_true")
    parser.add_argument("--chance", action="store_true", help="compare figures with those of other draws")
    parser.add_argument("--seeds", type=int, default=40, help="of --chance")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each recording")
    parser.add_argument("--show", type=int, default=0, help="transmissions to show around the first that differs")
    parser.add_argument("--within", default=ALIKE)
    parser.add_argument("--only", default="", help="regular expression of names")
    parser.add_argument("--own-clock", action="store_true", help="do not tell when interrupts were served")
    parser.add_argument("--as-inferred", action="store_true", help="keep what a replay infers of the draws")
    parser.add_argument("--keep", type=FilePath, help="write what was compared, for --lab")
    options = parser.parse_args()
    for recording, seconds in kept(LAB).values() if options.lab else ():
        report(recording, seconds, options)
    folders = [folder for folder in recordings(options.folders) if re.search(options.only, folder.name)]
    if options.chance:
        kernel_chance.report([(folder, Recording.read(folder, inferring=False)) for folder in folders], options.seeds)
        return
    compared = []
    for folder in folders:
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
