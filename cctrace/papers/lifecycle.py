"""Life cycles of BBR, BBRv2 and BBRv2+, which the papers draw as state machines: phases, their lengths and gains.

A flow runs alone; its phase, gain and window are read every 5 ms. The numbers that a paper gives with its diagram
(a gain, a length, a share of the time) are compared with those of the run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cctrace.columns import runs_of_true
from cctrace.io.counters.tcpinfo import BBR_MODES
from cctrace.papers.claims import Claim, Stated, by_name
from cctrace.papers.figure import Fields, Figure, drawing
from cctrace.papers.figure import Reproduction as Made
from cctrace.papers.runs import Result, Run

STEP_MS = 5
WATCHED = ("mode", "cycle_idx")
COLUMNS = ("time_s", *WATCHED, "pacing_gain", "cwnd_segments", "in_flight_segments", "inflight_hi_segments")
V1 = ("probing", "draining", *["cruising"] * 6)  # the eight phases of PROBE_BW, by `cycle_idx`
V2 = ("UP", "DOWN", "CRUISE", "REFILL", "PRE_UP", "GUARD", "POST_UP", "DOWN_SLIGHTLY")
GAIN, VISIT, SHARE, CWND, BOUND = "pacing_gain", "visit_ms", "share_pct", "cwnd_segments", "in_flight_over_hi"
EXACT = 0.02  # tolerance of a gain (in 256ths in the kernel): 1/8 of the smallest difference that matters here
STARTS = {("STARTUP", GAIN): 2 / np.log(2), ("DRAIN", GAIN): np.log(2) / 2}
RTT_PROBE = {("PROBE_RTT", VISIT): 200.0, ("PROBE_RTT", CWND): 4.0}
EIGHTHS = {("probing", SHARE): 12.5, ("draining", SHARE): 12.5, ("cruising", SHARE): 75.0} | {
    ("probing", GAIN): 1.25, ("draining", GAIN): 0.75, ("cruising", GAIN): 1.0
}  # fmt: skip
Numbers = Mapping[tuple[str, str], float]  # (phase, column): what the paper says


@dataclass
class Lifecycle(Figure):
    """A state machine's phases as a flow passes through them."""

    by: tuple[str, ...] = ("system", "phase")
    # name of a flow: its run of seed 1, and the names of its phases of PROBE_BW
    systems: Mapping[str, tuple[Run, tuple[str, ...]]] = field(default_factory=dict)
    # (Where the paper says it, the statement): the flows by which it is judged, each a reading, and its numbers
    statements: Mapping[tuple[str, str], tuple[tuple[str, ...], Numbers]] = field(default_factory=dict)

    drawn = drawing("bars", "phase", SHARE, "system", ylabel="share of the time after STARTUP (%)")

    def runs(self, p: Fields) -> list[tuple[Fields, Run]]:
        """A run per flow and seed."""
        watched = {"sample": f"{STEP_MS}ms", "watch": list(WATCHED), "keep": list(COLUMNS), "duration": p["duration"]}
        return [
            ({"system": name, "seed": seed}, Run(run.arguments | watched | {"seed": seed}))
            for name, (run, _) in self.systems.items()
            for seed in p["seeds"]
        ]

    def row(self, labels: Fields, result: Result, p: Fields) -> list[Fields]:
        """A row per phase."""
        return list(phases(result["timeline"][0], self.systems[labels["system"]][1]))

    def claims(self, made: Made) -> Iterator[Claim]:
        """Compare the run with the numbers of the paper's diagram."""
        for (where, text), (systems, numbers) in self.statements.items():
            for system in systems:
                got = {
                    f"{phase} {column}": (paper, made.value(column, system=system, phase=phase))
                    for (phase, column), paper in numbers.items()
                }
                yield Stated(where, text, by_name({name: pair[0] for name, pair in got.items()}, "{:.3g}")).judged(
                    {
                        f"{name} {paper:.3g}": abs(here / paper - 1) <= EXACT
                        for name, (paper, here) in got.items()
                        if name.endswith(GAIN)
                    },
                    by_name({name: pair[1] for name, pair in got.items() if np.isfinite(pair[1])}, "{:.3g}"),
                    {name: pair for name, pair in got.items() if not name.endswith(GAIN)},
                    reading=system if len(systems) > 1 else "",
                )


def phases(line: Mapping[str, list[Any]], names: tuple[str, ...]) -> Iterator[Fields]:
    """Return each phase of a flow: share of the time after STARTUP, length of a visit, gain, windows.

    >>> line = {"mode": [0, 2, 2, 2], "cycle_idx": [0, 0, 1, 1], "pacing_gain": [2.9, 1.25, 0.75, 0.75]}
    >>> line |= {name: [4, 4, 4, 4] for name in ("cwnd_segments", "in_flight_segments", "inflight_hi_segments")}
    >>> [(str(phase["phase"]), phase["visit_ms"]) for phase in phases(line, V1)]
    [('STARTUP', 5.0), ('probing', 5.0), ('draining', 10.0)]
    """
    mode, idx = (np.array(line[name], int) for name in WATCHED)
    gain, cwnd, flight, bound = (
        np.array(line[name], float) for name in ("pacing_gain", "cwnd_segments", "in_flight_segments", COLUMNS[-1])
    )
    at = np.array([names[i] if BBR_MODES[m] == "PROBE_BW" else BBR_MODES[m] for m, i in zip(mode, idx, strict=True)])
    after = (mode != 0).sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        used = np.where(bound > 0, flight / bound, np.nan)
    for phase in dict.fromkeys(at):
        there = at == phase
        begins, ends = runs_of_true(there)
        yield {
            "phase": phase,
            SHARE: 100 * there.sum() / after if phase != "STARTUP" else 0.0,
            VISIT: STEP_MS * float(np.median(ends - begins)),
            GAIN: float(np.median(gain[there])),
            CWND: float(np.median(cwnd[there])),
            BOUND: float(np.nanmedian(used[there])) if np.isfinite(used[there]).any() else 0.0,
        }
