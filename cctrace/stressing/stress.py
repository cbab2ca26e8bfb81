"""`stress`: the shortest path history on which a controller fails, reduced, and as a file to simulate."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cctrace.arguments import check_argument, check_progress, whole
from cctrace.display import Jsonable, Progress, Summarized, silent
from cctrace.sim.scenario import Scenario
from cctrace.stressing.aims import Aim
from cctrace.stressing.history import RUNS, Bounds, History
from cctrace.stressing.search import CLEAR, SEEDS, Problem, minimised, search
from cctrace.stressing.trial import Setting
from cctrace.units import format_counted, format_rate, format_share, format_time

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Finding(Summarized, Jsonable):
    """A history on which a controller fails, with each of `search.SEEDS`.

    Attributes
    ----------
    history : History
        Minimised: each of its parts is needed.
    problem : Problem
        Sender, path and failure.
    margin : float
        How clearly it fails: below 1, the smaller the clearer (`aims`).

    Examples
    --------
    >>> from cctrace.stressing.trial import Setting
    >>> found = stress(Setting("reno", duration_s=8.0), Aim("floor", window_s=4.0), Bounds(("loss",), until_s=6.0))
    >>> finding = found.findings[0]
    >>> finding.margin < 1, finding.history.end_s <= 6.0
    (True, True)
    """

    card_title = "Failure"

    history: History
    problem: Problem
    margin: float

    @property
    def scenario(self) -> Scenario:
        """The scenario that reproduces it."""
        setting = self.problem.setting
        path, senders = setting.path(self.history), setting.senders(self.history)
        return Scenario(path, senders, f"{setting.duration_s:g}s", SEEDS[0])

    def summary(self) -> str:
        """Return the history, and how the controller fails on it, as text."""
        return "\n".join(
            [f"{self.problem.setting.name} {self.problem.aim.text}", *_lines(self.problem.setting, self.history)]
        )

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the scenario as TOML, for `cctrace simulate --scenario`."""
        self.scenario.write(file, self.summary().splitlines())

    def to_dict(self) -> dict[str, Any]:
        """Return text, margin and history for programs."""
        history = [part._asdict() for part in self.history.disturbances]
        fields = {"text": self.summary(), "margin": self.margin, "disturbances": history}
        return fields | {"hold_s": self.history.hold_s, "app": self.history.app}


def _lines(setting: Setting, history: History) -> list[str]:
    lines = []
    for part in history.disturbances:
        what = {
            "rate": f"the rate is {format_rate(part.value * setting.rate_bps)}",
            "rtt": f"the base RTT is {format_time(part.value * setting.rtt_ns)}",
            "loss": "all data packets are lost"
            if part.value >= 1
            else f"{format_share(part.value)} of data packets are lost",
        }[part.kind]
        again = f", {part.times} times, every {format_time(part.every_s * 1e9)}" if part.times > 1 else ""
        lines.append(f"from {part.at_s:g} s on, for {format_time(part.for_s * 1e9)}: {what}{again}")
    if history.hold_s:
        lines.append(f"ACKs are held until the ends of slots of {format_time(history.hold_s * 1e9)}")
    if history.app is not None:
        written = setting.chunk_bytes(history.app[0])
        lines.append(f"the application writes {written / 1000:.4g} kB at once, every {sum(history.app):g} s")
    return lines or ["without any disturbance"]


@dataclass(frozen=True, repr=False)
class Stressed(Summarized, Jsonable):
    """Result of a search.

    Attributes
    ----------
    findings : tuple of Finding
    tried : int
        Histories that were run.
    nearest : float
        The smallest margin of the searches without a finding; infinite if all found something.
    seconds : float
        Run time.

    Examples
    --------
    >>> from cctrace.stressing.trial import Setting
    >>> found = stress(Setting("reno", duration_s=8.0), Aim("floor", window_s=4.0), Bounds(("loss",), until_s=6.0))
    >>> found.tried > 0, found.nearest
    (True, inf)
    """

    card_title = "Search for failures"

    findings: tuple[Finding, ...]
    tried: int
    nearest: float
    seconds: float

    def summary(self) -> str:
        """Return the result as text."""
        failures = format_counted(len(self.findings), "failure", "failures")
        title = f"{failures} in {format_counted(self.tried, 'history', 'histories')}, {self.seconds:.1f} s"
        near = [] if math.isinf(self.nearest) else [f"nearest to a failure otherwise: margin {self.nearest:.3g}"]
        return "\n".join([title, *near, *(finding.summary() for finding in self.findings)])

    def frame(self) -> pd.DataFrame:
        """Return a table, one row per finding."""
        import pandas as pd

        return pd.DataFrame([finding.to_dict() for finding in self.findings])

    def to_dict(self) -> dict[str, Any]:
        """Return the findings and the figures of the search for programs."""
        nearest = None if math.isinf(self.nearest) else self.nearest
        figures = {"tried": self.tried, "nearest": nearest, "seconds": self.seconds}
        return {"findings": [finding.to_dict() for finding in self.findings]} | figures


def stress(
    setting: Setting,
    aim: Aim,
    bounds: Bounds | None = None,
    *,
    findings: int = 1,
    runs: int = RUNS,
    seconds: float = math.inf,
    seed: int = 1,
    progress: Progress = silent,
) -> Stressed:
    """Search for histories of a path on which a controller fails.

    Parameters
    ----------
    setting : Setting
    aim : Aim
    bounds : Bounds, optional
    findings : int
        How many to look for: each is a search of its own.
    runs : int
        Histories that are tried in a search, those of the reduction not counted.
    seconds : float
        Longest time of a search; the result then depends on the machine.
    seed : int
        The same seed gives the same findings.
    progress : callable
        Receives lines of progress.

    Returns
    -------
    Stressed

    Raises
    ------
    ArgumentError
        If the controller is unknown or cannot be simulated.

    Examples
    --------
    >>> from cctrace.stressing.trial import Setting
    >>> found = stress(Setting("reno", duration_s=8.0), Aim("floor", window_s=4.0), Bounds(("loss",), until_s=6.0))
    >>> print(found.findings[0].summary())  # doctest: +ELLIPSIS
    reno gets less than 10 % of what the path offers for 4 s
    from ... all data packets are lost, ... times, every ...
    """
    check_progress(progress)
    check_argument(isinstance(setting, Setting), "setting", setting, "a cctrace.stressing.trial.Setting")
    check_argument(isinstance(aim, Aim), "aim", aim, "a cctrace.stressing.aims.Aim")
    check_argument(bounds is None or isinstance(bounds, Bounds), "bounds", bounds, "a cctrace.stressing.history.Bounds")
    findings, runs, seed = whole("findings", findings, 1), whole("runs", runs, 1), whole("seed", seed)
    began, tried, nearest = time.monotonic(), 0, math.inf
    distinct: list[Finding] = []
    problem = Problem(setting, aim, bounds or Bounds())
    for k in range(findings):
        margin, history, count = search(problem, seed + k, runs, seconds, progress)
        tried += count
        if margin >= CLEAR:
            nearest = min(nearest, margin)
            continue
        history = minimised(problem, history, progress)
        if all(history != finding.history for finding in distinct):
            distinct.append(Finding(history, problem, problem.margin(history)))
    return Stressed(tuple(distinct), tried, nearest, time.monotonic() - began)
