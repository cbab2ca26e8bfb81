"""The simulations of a what-if: the flow's own controller first, as the check, then others over the same drawn paths.

runs = Runs(scene, draws, seed)
runs.original, runs.reproduces      the flow's own controller over the inferred path: is that what was recorded?
runs.ask("bbr3", {})                another controller over the same paths with the same chance; or another path
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cctrace.cc import called
from cctrace.counterfactual.figures import FIGURES, SHARE, difference, estimated, missed, near, sides
from cctrace.counterfactual.held_back import OPTIONS, HeldBack
from cctrace.counterfactual.questions import changed
from cctrace.errors import ArgumentError, FitError
from cctrace.fit.constants import UNSEEN_REACH
from cctrace.sim.batch import Run, batch
from cctrace.sim.sender import Sender

if TYPE_CHECKING:
    from cctrace.counterfactual.scene import Controller, Scene
    from cctrace.estimates import Estimate
    from cctrace.fit.fitted_path import FittedPath
    from cctrace.sim.path import Path

    Figures = dict[str, Estimate]
    Values = dict[str, NDArray[np.float64]]

OPEN_ENDED = 1.1  # times the RTT over the shorter half of unseen queues: longer ones would make it longer still
MOST_BDP = 10.0  # buffers that paths have, at most or so
BUFFER_REACH = 4.0  # times less than was in flight on average, down to which sizes of the send buffer are tried
BUFFER_TRIALS, BUFFER_ROUNDS = 8, 3  # sizes, evenly in the logarithm; and each round between the neighbours of the best


class Runs:
    """The runs over the paths that a scene leaves open.

    Parameters
    ----------
    scene : Scene
    draws : int
        Paths that are drawn.
    seed : int
    progress : callable
        Receives lines of progress.

    Attributes
    ----------
    original : dict of str to Estimate, or None
        {figure: Estimate} of the flow's own controller; None if that is unknown.
    reproduces : bool
        Whether that is what was recorded: as near as predictions are asked to be, or as the runs of the same controller
        over one path are to each other (90 % of them).
    """

    def __init__(
        self, scene: Scene, draws: int, seed: int, progress: Callable[[str], object] = lambda line: None
    ) -> None:
        self.scene, self._progress, self._seed = scene, progress, seed
        self._paths = plausible(scene.path, draws, seed)
        self._held = scene.held
        self.original: Figures | None = None
        self.reproduces = False
        self._own: Values | None = None
        self._misfit: dict[str, float] = {}
        if scene.own:
            self._check(scene.own)

    def _check(self, own: Controller) -> None:
        """Run the flow's own controller: over the draws, and over one path, for what chance alone changes."""
        recorded = self.scene.recorded
        if self._held.send_buffer_bytes:
            self._held = self._with_send_buffer(own)
        self._own = self._over(self._paths, own, {})
        self.original = estimated(self._own, {})
        chance = estimated(self._over([self.scene.path] * len(self._paths), own, {}), {})
        self.reproduces = all(
            near(name, sides(self.original[name])[0], recorded[name])
            or sides(chance[name])[1] <= recorded[name] <= sides(chance[name])[2]
            for name in FIGURES
        )
        self._misfit = {name: missed(name, self.original[name], recorded[name]) for name in FIGURES}

    def _with_send_buffer(self, own: Controller) -> HeldBack:
        """Return the send buffer (and fq, where that is unknown) with which goodput and RTT are as recorded."""
        most = float(self._held.send_buffer_bytes or 0.0)
        tried: dict[tuple[bool, float], float] = {}
        for fq in (False, True) if self._held.fq is None else (self._held.fq,):
            low, high = np.log(most / BUFFER_REACH), np.log(most)
            for _ in range(BUFFER_ROUNDS):
                sizes, step = np.linspace(low, high, BUFFER_TRIALS, retstep=True)
                unlike = self._unlike(own, [{"send_buffer": f"{np.exp(size):.0f}B", "fq": fq} for size in sizes])
                best = float(sizes[int(np.argmin(unlike))])
                tried[fq, float(np.exp(best))] = min(unlike)
                low, high = best - step, best + step
        fq, size = min(tried, key=lambda one: tried[one])
        return replace(self._held, send_buffer_bytes=size, fq=fq)

    def _unlike(self, own: Controller, each: Sequence[dict[str, Any]]) -> list[float]:
        """Return how far goodput and RTT of the own controller are from what was recorded, for each set of changes."""
        runs = self._made([self._run(self.scene.path, own, changes, self._seed) for changes in each], own)
        names = ("goodput_bps", "rtt_mean_us")
        off = [np.abs(np.log(runs[name] / self.scene.recorded[name])) for name in names]
        return [float(sum(one)) for one in zip(*off, strict=True)]

    def ask(self, name: Controller, changes: dict[str, Any]) -> tuple[Figures, Figures | None]:
        """Return the figures of a controller over the path, changed, and by how much they differ from the original's.

        Parameters
        ----------
        name : str or class
        changes : dict
            As `whatif` takes them.

        Returns
        -------
        dict of str to Estimate
        dict of str to Estimate or None
            None without a known controller of its own.
        """
        asked = self._own is None or name != self.scene.own or changes
        runs = self._over(self._paths, name, changes) if asked or self._own is None else self._own
        figures = estimated(runs, self._misfit)
        differ = None if self._own is None else difference(runs, self._own, self._misfit)
        for answer in (figures, differ or {}):
            self._unbound(answer, runs, changes)
        return figures, differ

    def _unbound(self, answer: Figures, runs: Values, changes: dict[str, Any]) -> None:
        """Take the bounds away that the capture does not give."""
        if not answer:
            return
        bounded = self.scene.path.estimates["unseen"]
        limited = self._held.options(changes).keys() & {"app", "max_pacing_rate", "send_buffer"}
        if "rate" in bounded and (not limited or changes.get("app") == "bulk"):
            answer["goodput_bps"] = answer["goodput_bps"]._replace(high=None)  # a path that never filled may be faster
        if not self.scene.complete:
            answer[SHARE] = answer[SHARE]._replace(high=None)
        if "buffer" in bounded:
            rtt = runs["rtt_mean_us"][np.argsort([path.buffer_bytes for path in self._paths], kind="stable")]
            half = len(rtt) // 2
            if np.median(rtt[half:]) > OPEN_ENDED * np.median(rtt[:half]):
                answer["rtt_mean_us"] = answer["rtt_mean_us"]._replace(high=None)

    def _over(self, paths: Sequence[Path], name: Controller, changes: dict[str, Any]) -> Values:
        """Return {figure: value per path} of a controller over paths, changed."""
        return self._made([self._run(path, name, changes, self._seed + k) for k, path in enumerate(paths)], name)

    def _run(self, path: Path, name: Controller, changes: dict[str, Any], seed: int) -> Run:
        """Return the run of a controller over a path, changed."""
        scene = self.scene
        sender = Sender(name, ack_every=scene.ack_every, hz=scene.hz, **self._held.options(changes))
        changes = {key: value for key, value in changes.items() if key not in OPTIONS}
        return Run(changed(path, changes), (sender, *scene.others), scene.duration, seed)

    def _made(self, runs: Sequence[Run], name: Controller) -> Values:
        """Return {figure: value per run}."""
        rows = []
        try:
            for k, outcome in enumerate(batch(runs), 1):
                self._progress(f"{called(name)} over the inferred path: {k} of {len(runs)}")
                rows.append([float(outcome.flows[0][column]) for column in FIGURES.values()])
        except ArgumentError as error:
            raise FitError(f"the inferred path cannot be simulated: {error}") from None
        return dict(zip(FIGURES, np.array(rows).T, strict=True))


def plausible(path: FittedPath, draws: int, seed: int) -> list[Path]:
    """Return paths drawn from what a fit leaves open.

    A queue that never overflowed may be as long as ten bandwidth-delay products, if that is more than ten times its
    longest backlog: a flow that never made a queue says nothing of its length.
    """
    paths = path.draws(draws, seed)
    least = path.estimates["buffer_bytes"].low
    bdp = path.max_rate_bps() / 8 * path.rtt_ns / 1e9
    if "buffer" not in path.estimates["unseen"] or not least or MOST_BDP * bdp <= UNSEEN_REACH * least:
        return paths
    power = np.log(MOST_BDP * bdp / least) / np.log(UNSEEN_REACH)
    return [changed(one, {"buffer": f"{least * (one.buffer_bytes / least) ** power:.0f}B"}) for one in paths]
