"""Whether the simulator's goodput, retransmissions and RTT under chance are the kernel's, over several seeds of each.

    python -m benchmarks.kernel_chance DIR... [--seeds 5]

DIR is a recording of the lab that runs Linux in virtual time, or a folder of such; those that differ in their seed
alone, called NAME_1, NAME_2, …, are one row. The simulation draws its own losses, jitter and BBR's random numbers; a
bottleneck whose rate changes is simulated as the token bucket that the lab then has. Printed are the means of both,
their ratio with its standard error, and how many of the kernel's values lie in the range of the simulated ones, half a
per cent allowed; last, how many do so in all recordings, and how many of the simulated values lie in the range of the
other seeds: what to expect of a kernel that is the simulation.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path as FilePath

import numpy as np
from numpy.typing import NDArray

import cctrace as cct
from benchmarks.kernel_equality import recordings
from benchmarks.kernel_lab import MSS, Recording

MARGIN = 0.005  # of a figure, beyond the range: where chance decides nothing, all seeds give the same
FIGURES = ("goodput Mbit/s", "sent again", "RTT ms")


def recorded(folder: FilePath, recording: Recording) -> tuple[float, int, float]:
    """Return goodput (new data sent), segments sent again and mean RTT of the whole time that the flow was to send."""
    offsets, _ = recording.until(recording.seconds)
    new = len(np.unique(offsets))
    events = cct.read(str(next(folder.glob("sender.pcap*")))).flow(0).events.frame()
    rtt_us = events.rs_rtt_us[(events.rs_rtt_us > 0) & (events.event == "on_ack")]
    return new * MSS * 8e-6 / recording.seconds, len(offsets) - new, float(rtt_us.mean()) / 1e3


def simulated(recording: Recording, seed: int) -> tuple[float, int, float]:
    """Return the same of a simulation whose losses and draws are the seed's."""
    offsets, _, rtt_us = recording.by_chance(seed)
    new = len(np.unique(offsets))
    return new * MSS * 8e-6 / recording.seconds, len(offsets) - new, rtt_us / 1e3


def spread(values: NDArray[np.float64]) -> float:
    """Return the standard error of a mean, relative to it; NaN of a single value."""
    return float(values.std(ddof=1) / max(values.mean(), 1e-9) / len(values) ** 0.5) if len(values) > 1 else np.nan


def is_within(value: float, values: NDArray[np.float64]) -> bool:
    """Return whether a value lies in the range of others."""
    return bool(values.min() * (1 - MARGIN) <= value <= values.max() * (1 + MARGIN))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=FilePath)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="regular expression of names")
    options = parser.parse_args()
    rows = defaultdict(list)
    for folder in recordings(options.folders):
        if re.search(options.only, folder.name):
            rows[re.sub(r"_\d+$", "", folder.name)].append(folder)
    total, within, own = 0, np.zeros(len(FIGURES), int), np.zeros(len(FIGURES))
    for name, folders in rows.items():
        read = [Recording.read(folder, inferring=False) for folder in folders]
        kernel = np.array([recorded(folder, r) for folder, r in zip(folders, read, strict=True)])
        mine = np.array([simulated(read[0], seed) for seed in range(1, options.seeds + 1)])
        print(name)
        total += len(folders)
        for k, figure in enumerate(FIGURES):
            theirs, ours = kernel[:, k], mine[:, k]
            ratio = theirs.mean() / max(ours.mean(), 1e-9)
            error = ratio * np.hypot(*(spread(theirs), spread(ours)))
            held = sum(is_within(value, ours) for value in theirs)
            print(
                f"  {figure:15s} kernel {theirs.mean():9.3f} ({theirs.min():.3f} to {theirs.max():.3f}), simulated "
                f"{ours.mean():9.3f} ({ours.min():.3f} to {ours.max():.3f}), ratio {ratio:.3f} ± {error:.3f}, "
                f"{held} of {len(theirs)} in the range",
                flush=True,
            )
            within[k] += held
            own[k] += len(theirs) * np.mean([is_within(ours[j], np.delete(ours, j)) for j in range(len(ours))])
    for figure, held, expected in zip(FIGURES, within, own, strict=True):
        print(
            f"{figure:15s} {held} of {total} recordings in the range of {options.seeds} simulated seeds; "
            f"of these, in the range of the others {expected / total:.0%}"
        )


if __name__ == "__main__":
    main()
