"""Building blocks of a specification's cases: experiments with a runner, and what must happen in them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cctrace.columns import Values
from cctrace.conform.bbr_names import CRUISE, DOWN, PROBE_RTT, REFILL, UP
from cctrace.conform.bbr_oracle import enters, leaves, moves
from cctrace.conform.requirements import Found
from cctrace.conform.runner import Runner
from cctrace.conform.trace import Trace

NOTHING = Found(0)
PROBE_BW = (DOWN, CRUISE, REFILL, UP)


class Outcome(NamedTuple):
    """Result of a case: the trace of its run (None: it is impossible), and the result of its aim."""

    trace: Trace | None
    found: Found


IMPOSSIBLE = Outcome(None, NOTHING)
Experiment = Callable[..., Outcome]


class Case(NamedTuple):
    """A named experiment: `run` returns its `Outcome` with a runner."""

    id: str
    title: str
    run: Callable[[Runner], Outcome]


class Cases:
    """A list of cases, filled by decorated experiments in their order in the file."""

    def __init__(self) -> None:
        self.rows: list[Case] = []

    def __call__(
        self, name: str, title: str, *, at: int | None = None, least_bdp: float = 0.0, column: str = ""
    ) -> Callable[[Experiment], Experiment]:
        """Add the decorated experiment.

        It is impossible where the path holds fewer than `least_bdp` segments, where the controller has no `column` of
        the model, and where a plain run never enters the state `at`; otherwise the time of entry (s) is its second
        argument.
        """

        def add(experiment: Experiment) -> Experiment:
            def run(runner: Runner) -> Outcome:
                if runner.cell.bdp < least_bdp or (column and not runner.plain.has(column)):
                    return IMPOSSIBLE
                if at is None:
                    return experiment(runner)
                at_s = entered(runner.plain, at)
                return IMPOSSIBLE if at_s is None else experiment(runner, at_s)

            self.rows.append(Case(name, title, run))
            return experiment

        return add


def entered(r: Trace, state: int, after_s: float = 0.0, source: int | None = None) -> float | None:
    """Return when (s) a state is first entered (from state `source`), None if never."""
    if not r.has("state"):
        return None
    rows = (enters(r, state) if source is None else moves(r, source, state)) & (r.time_s >= after_s)
    return float(r.time_s[np.argmax(rows)]) if rows.any() else None


def counted(r: Trace, rows: Values, missing: str = "", expected: str = "") -> Outcome:
    """Return how many rows exercise what a case is for; if there are none, and there must be, what is `missing`."""
    count = int(np.count_nonzero(rows))
    return Outcome(r, Found(1, len(r) - 1, missing, expected) if missing and not count else Found(count))


def happened(r: Trace, rows: Values, expected: str) -> Found:
    """Return that something happened at least once."""
    count = int(np.count_nonzero(rows))
    return Found(count) if count else Found(1, max(len(r) - 1, 0), "not by the end of the run", expected)


def combined(*found: Found) -> Found:
    """Return the first contradiction of several, or that all hold."""
    bad = next((f for f in found if f.row is not None), None)
    if bad:
        return bad
    return Found(sum(f.exercised for f in found)) if all(f.exercised for f in found) else NOTHING


def left(r: Trace, state: int, rows: Values, expected: str, after_s: float = 0.0) -> Found:
    """Return that a state was left as expected; nothing if ProbeRTT cut every stay short, or if there was none."""
    later = r.time_s >= after_s
    inside, cut, out = later & (r.after["state"] == state), later & moves(r, state, PROBE_RTT), later & leaves(r, state)
    if not rows.any() and (not inside.any() or (cut.any() and not (out & ~cut).any())):
        return NOTHING
    return happened(r, rows, expected)


def between(r: Trace, row: int, value: float, low: float, high: float, what: str) -> Found:
    """Return whether a figure lies between two others."""
    if low <= value <= high:
        return Found(1)
    return Found(1, row, f"{what} {value:.4g}", f"{low:.4g} to {high:.4g}")


def app(runner: Runner, share: float) -> dict[str, Any]:
    """Return a sender whose application writes that share of the rate, in small pieces of full segments."""
    cell = runner.cell
    every = max(cell.rtt_s / 8, 2 * cell.mss / (share * cell.payload_Bps))
    segments = -(-int(share * cell.payload_Bps * every) // cell.mss)
    return {"app": f"chunks:size={segments * cell.mss}B,every={every * 1e6:.0f}us"}


def burst(runner: Runner, at_s: float, share: str, rtts: float) -> list[tuple[float, str]]:
    """Return steps of loss: a share from `at_s` on, for `rtts` RTTs."""
    return [(0, "0%"), (round(at_s, 6), share), (round(at_s + rtts * runner.cell.rtt_s, 6), "0%")]


def changed_rate(runner: Runner, at_s: float, factor: float) -> dict[str, Any]:
    """Return a path whose rate changes by a factor at `at_s`."""
    return {"rate": [(0, runner.cell.rate), (round(at_s, 6), f"{runner.cell.rate_bps * factor:.0f}bit")]}


def overtaking(runner: Runner, at_s: float, rtts: float) -> dict[str, Any]:
    """Return a path on which packets overtake each other from `at_s` on, for `rtts` RTTs."""
    rtt = runner.cell.rtt_s
    mixed = f"normal:sd={rtt * 0.3e6:.0f}us,reorder"
    return {"jitter": [(0, "none"), (round(at_s, 6), mixed), (round(at_s + rtts * rtt, 6), "none")]}


def queue_of_one_bdp(runner: Runner) -> dict[str, Any]:
    """Return a path whose buffer holds a BDP, or some packets."""
    return {"buffer": f"{int(max(runner.cell.rate_bps / 8 * runner.cell.rtt_s, 12_000))}B"}
