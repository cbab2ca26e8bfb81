"""Many simulations: a grid of paths, senders and seeds over all cores, kept on disk so that it can be continued."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from concurrent.futures import as_completed
from dataclasses import fields, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.arguments import MAX_WORKERS, as_list, check_argument, check_progress, path_of, whole
from cctrace.cc import own
from cctrace.display import Progress, silent
from cctrace.errors import ArgumentError, FormatError
from cctrace.lang.processes import processes
from cctrace.lang.threads import cores
from cctrace.sim.path import Path
from cctrace.sim.sender import Sender
from cctrace.sim.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray

    from cctrace.columns import Values

    Result = dict[str, Any]  # as JSON keeps it

_PATH = {field.name for field in fields(Path) if field.init}
_BEGIN = '{"key": "'  # of every line of results
_SENDER = {field.name for field in fields(Sender)} - {"cc"}


def sweep(
    path: Path,
    cc: Any,
    seeds: int | Sequence[int] = range(1, 6),
    *,
    duration: str = "60s",
    file: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress = silent,
    **grid: Any,
) -> xarray.Dataset:
    """Simulate every combination of controllers, seeds and settings.

    Parameters
    ----------
    path : Path
        What the grid does not vary.
    cc : str, or sequence of str or of tuples of str
        Controllers; a tuple is several flows that share the path.
    seeds : int or sequence of int
    duration : str
    file : path, optional
        Results are appended here, a JSON line each; a sweep that finds its file continues where it was interrupted.
    workers : int, optional
        Processes; default one per core.
    progress : callable, optional
        Receives lines of progress.
    **grid
        Fields of `Path` or `Sender` with the list of their values, for example ``buffer=["1bdp", "2bdp"]``; a single
        value holds for all runs.

    Returns
    -------
    xarray.Dataset
        Dimensions ``cc``, those of the grid, ``seed`` and ``flow``; variables are the numeric columns of
        `Simulation.flows`, and ``jain``, ``utilisation`` of the link without the dimension ``flow``.

    Raises
    ------
    ArgumentError
        If a name in the grid is neither a field of Path nor of Sender, or a value is wrong.

    Examples
    --------
    >>> sweep(Path(rate="1Mbit"), "reno", 1, duration="1s", workers=1, loss=["0%", "1%"]).goodput_bps.shape
    (1, 2, 1, 1)
    """
    check_progress(progress)
    check_argument(isinstance(path, Path), "path", path, "a cctrace.Path")
    workers = cores() if workers is None else whole("workers", workers, 1, MAX_WORKERS)
    for name in grid:
        if name not in _PATH | _SENDER:
            raise ArgumentError(f"sweep over {name!r}: not a field of Path ({', '.join(sorted(_PATH))}) or of Sender")
    axes = {"cc": _listed(cc), **{n: v for n, v in grid.items() if isinstance(v, list)}, "seed": _listed(seeds)}
    empty = [name for name, values in axes.items() if not values]
    if empty:
        raise ArgumentError(f"{empty[0]} has no values to sweep over")
    fixed = {name: value for name, value in grid.items() if name not in axes} | {"path": path, "duration": duration}
    tasks = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    for task in tasks:
        _flows_and_path(fixed, task)  # wrong values are found before anything runs
    keys = [_key(fixed, task) for task in tasks]
    results = {} if file is None else _load(path_of("file", file))
    missing = [(key, task) for key, task in zip(keys, tasks, strict=True) if key not in results]
    _simulate_all(fixed, missing, results, file, workers, progress, len(tasks))
    return _dataset(axes, [results[key] for key in keys])


def _listed(values: Any) -> list[Any]:
    return [values] if isinstance(values, tuple) else as_list(values)


def _flows_and_path(fixed: dict[str, Any], task: dict[str, Any]) -> tuple[Path, list[Sender]]:
    """Return (path, flows) of one run."""
    settings = {name: v for name, v in (fixed | task).items() if name not in ("path", "duration", "cc", "seed")}
    path = replace(fixed["path"], **{name: v for name, v in settings.items() if name in _PATH})
    names = task["cc"] if isinstance(task["cc"], tuple) else (task["cc"],)
    common = {name: v for name, v in settings.items() if name in _SENDER and name not in _PATH}
    return path, [Sender(name, **common) for name in names]


def _run(fixed: dict[str, Any], task: dict[str, Any]) -> Result:
    path, flows = _flows_and_path(fixed, task)
    sim = simulate(path, flows, fixed["duration"], task["seed"])
    table = sim.flows.select_dtypes("number")
    return {"flows": {name: table[name].tolist() for name in table}, "link": sim.link}


def _key(fixed: dict[str, Any], task: dict[str, Any]) -> str:
    """A text that names a run: two runs of the same key have the same numbers."""
    text = repr((sorted(fixed.items(), key=lambda item: item[0]), sorted(task.items(), key=lambda item: item[0])))
    names = task["cc"] if isinstance(task["cc"], tuple) else (task["cc"],)
    text += "".join(own.digest(own.parts(name)[0]) for name in names if isinstance(name, str))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _load(file: str | os.PathLike[str]) -> dict[str, Result]:
    """Return the results in a file; the line that an interruption cut off is taken out, and its run made again."""
    file = FilePath(file)
    results: dict[str, Result] = {}
    if not file.exists():
        return results
    *complete, tail = file.read_text(encoding="utf-8", errors="replace").split("\n")
    try:
        for line in complete:
            row = json.loads(line)
            results[row["key"]] = row["result"]
    except (ValueError, KeyError, TypeError):
        raise FormatError(f"{file}, line {len(results) + 1}: not a result of a sweep; name another file") from None
    if tail:
        if not _BEGIN.startswith(tail[: len(_BEGIN)]):
            raise FormatError(f"{file}: not the results of a sweep; name another file")
        file.write_text("".join(f"{line}\n" for line in complete), encoding="utf-8")
    return results


def _simulate_all(
    fixed: dict[str, Any],
    missing: Sequence[tuple[str, dict[str, Any]]],
    results: dict[str, Result],
    file: str | os.PathLike[str] | None,
    workers: int,
    progress: Progress,
    total: int,
) -> None:
    done = total - len(missing)
    progress(f"{done} of {total} simulations")
    if not missing:
        return
    with processes(workers) if workers > 1 and len(missing) > 1 else contextlib.nullcontext() as pool:
        if pool:
            running = {pool.submit(_run, fixed, task): key for key, task in missing}
            finished = ((running[future], future.result()) for future in as_completed(running))
        else:
            finished = ((key, _run(fixed, task)) for key, task in missing)
        for key, result in finished:
            results[key] = result
            if file is not None:
                with open(file, "a", encoding="utf-8") as lines:
                    lines.write(json.dumps({"key": key, "result": result}) + "\n")
            done += 1
            progress(f"{done} of {total} simulations")


def _dataset(axes: dict[str, list[Any]], results: Sequence[Result]) -> xarray.Dataset:
    import xarray

    shape = tuple(len(values) for values in axes.values())
    most = max(len(result["flows"]["goodput_bps"]) for result in results)
    coords = {name: _coordinate(values) for name, values in axes.items()} | {"flow": np.arange(most)}
    variables = {}
    for name in results[0]["flows"]:
        rows = np.full((len(results), most), np.nan)
        for row, result in zip(rows, results, strict=True):
            values = result["flows"][name]
            row[: len(values)] = values
        variables[name] = ((*axes, "flow"), rows.reshape(*shape, most))
    for name in ("jain", "utilisation"):
        values = np.array([result["link"][name] for result in results], float)
        variables[name] = (tuple(axes), values.reshape(shape))
    return xarray.Dataset(variables, coords)


def _coordinate(values: Sequence[Any]) -> Values:
    """Return values as they were given where numpy can hold them, else as text."""
    if all(isinstance(value, int | float | str) for value in values):
        return np.array(values)
    names = ["+".join(v) if isinstance(v, tuple) else getattr(v, "__name__", str(v)) for v in values]
    return np.array(names)
