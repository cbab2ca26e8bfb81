"""Where a kernel's run lies among simulated ones with draws of their own (`kernel_equality --chance`).

A kernel that the simulation equals is one more seed. So the place of its figure among those of many seeds is uniform
between 0 and 1, over many recordings; a bias would move it. One more seed of the simulation is judged in the same way,
as a control. The range of five seeds, from least to largest, holds another draw of the same quantity in 4 of 6 cases,
whatever it is; where a path was recorded with six seeds or more, how often the range of five kernels holds another one.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path as FilePath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import cctrace as cct
from benchmarks.kernel_lab import MSS, Recording

FEW = 5  # seeds, whose range is looked at
MARGIN = 0.005  # of a figure, beyond the range: where chance decides nothing, all seeds give the same
CENTRAL = (0.9, 0.95)
FIGURES = ("goodput", "sent again", "RTT")


class Flow(NamedTuple):
    """Figures of a recording, and of simulations of its path: a row for each seed."""

    group: str  # controller and what is left to chance
    path: str  # all parameters but the seed
    kernel: NDArray[np.float64]
    simulated: NDArray[np.float64]

    def control(self) -> "Flow":
        """Return the last simulation in the kernel's place."""
        return self._replace(kernel=self.simulated[-1], simulated=self.simulated[:-1])

    def judged(self) -> "Flow":
        """Return the same without the last simulation, so that kernel and control are judged by the same."""
        return self._replace(simulated=self.simulated[:-1])


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


def flow_of(folder: FilePath, recording: Recording, seeds: int) -> Flow:
    """Simulate the path of a recording with `seeds` seeds, of which no other recording has one, and with a control."""
    p = recording.parameters
    chance = [name for name, key in (("loss", "loss"), ("jitter", "jitter_us")) if p.get(key)]
    path = json.dumps({key: value for key, value in p.items() if key not in ("seed", "name")}, sort_keys=True)
    first = p["seed"] * (seeds + 1)
    mine = np.array([simulated(recording, seed) for seed in range(first, first + seeds + 1)])
    group = f"{recording.controller.partition(':')[0]}, {' and '.join(chance) or 'no chance'}"
    return Flow(group, path, np.array(recorded(folder, recording), float), mine)


def places(flows: list[Flow], figure: int) -> NDArray[np.float64]:
    """Return where each flow's figure lies among the simulated ones, from 0 to 1; equal ones are ordered by lot."""
    lots = np.random.default_rng(figure).random(len(flows))
    found = []
    for flow, lot in zip(flows, lots, strict=True):
        value, others = flow.kernel[figure], flow.simulated[:, figure]
        found.append((np.sum(others < value) + lot * (np.sum(others == value) + 1)) / (len(others) + 1))
    return np.array(found)


def scores(flows: list[Flow], figure: int) -> NDArray[np.float64]:
    """Return by how many standard deviations of the simulated figures each flow's differs from their mean."""
    mean, sd = (np.array([f(flow.simulated[:, figure]) for flow in flows]) for f in (np.mean, np.std))
    differ = [np.ptp(flow.simulated[:, figure]) > 0 for flow in flows]
    return (np.array([flow.kernel[figure] for flow in flows]) - mean)[differ] / sd[differ]


def two_sided(found: NDArray[np.float64]) -> float:
    """Return the two-sided probability that uniform places have a mean as far from a half."""
    return float(2 * stats.norm.sf(abs(found.mean() - 0.5) * (12 * len(found)) ** 0.5))


def is_within(value: float, values: NDArray[np.float64]) -> bool:
    """Return whether a value lies in the range of others."""
    return bool(values.min() * (1 - MARGIN) <= value <= values.max() * (1 + MARGIN))


def share(hits: int, count: int) -> str:
    """Return a share with its 95 % interval (exact binomial)."""
    low, high = stats.binomtest(hits, count).proportion_ci()
    return f"{hits} of {count} ({hits / count:.0%}; {low:.0%} to {high:.0%})"


def describe(title: str, flows: list[Flow]) -> None:
    """Print where flows lie among simulated ones, and whether as one more seed would."""
    print(title)
    for k, figure in enumerate(FIGURES):
        found, z = places(flows, k), scores(flows, k)
        inside = [share(int(np.sum(np.abs(found - 0.5) <= part / 2)), len(found)) for part in CENTRAL]
        print(
            f"  {figure:10s} in the central 90 %: {inside[0]}, 95 %: {inside[1]}; mean z {z.mean():+.2f} ± "
            f"{z.std(ddof=1) / len(z) ** 0.5:.2f}; uniform: p = {stats.kstest(found, 'uniform').pvalue:.2f}"
        )


def by_controller(flows: list[Flow]) -> None:
    """Print the mean place for each controller and each kind of chance, with its two-sided probability."""
    groups = defaultdict(list)
    for flow in flows:
        groups[flow.group].append(flow)
    print("mean place, 0.5 expected (p, two-sided)")
    least = 1.0
    for group, members in sorted(groups.items()):
        cells = []
        for k, figure in enumerate(FIGURES):
            found = places(members, k)
            least = min(least, p := two_sided(found))
            cells.append(f"{figure} {found.mean():.2f} ({p:.2f})")
        print(f"  {group:18s} {len(members):3d} flows: {', '.join(cells)}")
    tests = len(groups) * len(FIGURES)
    by_chance = 1 - (1 - least) ** tests
    print(f"  the least of {tests} is {least:.4f}; by chance one as small is found with p = {by_chance:.2f}")


def in_range_of_few(flows: list[Flow]) -> NDArray[np.bool_]:
    """Return for each flow and figure whether the range of the first few simulated seeds holds it."""
    return np.array([[is_within(f.kernel[k], f.simulated[:FEW, k]) for k in range(len(FIGURES))] for f in flows])


def kernels_among_kernels(flows: list[Flow]) -> list[list[bool]]:
    """Return for each figure, of each recording of a path and each few others of it, whether their range holds it."""
    paths = defaultdict(list)
    for flow in flows:
        paths[flow.path].append(flow.kernel)
    held: list[list[bool]] = [[] for _ in FIGURES]
    for kernels in paths.values():
        for j, kernel in enumerate(kernels):
            for others in combinations(kernels[:j] + kernels[j + 1 :], FEW):
                for k, values in enumerate(np.transpose(others)):
                    held[k].append(is_within(kernel[k], values))
    return held


def report(given: Iterable[tuple[FilePath, Recording]], seeds: int) -> None:
    """Judge recordings (`Recording.read` without inferring), each as one more seed of `seeds` simulated ones."""
    flows = []
    for folder, recording in given:
        flows.append(flow := flow_of(folder, recording, seeds))
        mine = flow.judged().simulated
        cells = [
            f"{name} {flow.kernel[k]:.3f} for {mine[:, k].mean():.3f} ± {mine[:, k].std(ddof=1):.3f}"
            for k, name in enumerate(FIGURES)
        ]
        print(f"{recording.name:26s} {', '.join(cells)}", flush=True)
    kernels, controls = [f.judged() for f in flows], [f.control() for f in flows]
    describe(f"the kernel among {seeds} simulated seeds:", kernels)
    describe("control, one more simulated seed:", controls)
    by_controller(kernels)
    print(f"in the range of {FEW} seeds (expected {(FEW - 1) / (FEW + 1):.0%}, and more where chance decides little)")
    for k, figure in enumerate(FIGURES):
        theirs, control = (in_range_of_few(each)[:, k] for each in (kernels, controls))
        held = kernels_among_kernels(flows)[k]
        among = f"{sum(held)} of {len(held)} ({sum(held) / max(len(held), 1):.0%})"
        bound = f", kernels in that of {FEW} kernels {among}" if held else ""
        print(f"  {figure:10s} kernels {share(theirs.sum(), len(theirs))}, controls {control.mean():.0%}{bound}")
