"""Runs of a figure: named by code and arguments, kept on disk, continued after an interruption.

A result is a file ``papers/<key>.json`` in the directory of the one cache (`cctrace.lang.cache`: $CCTRACE_CACHE,
else ~/.cache/cctrace). The key is a hash of the function that measures (its module, without comments), its
arguments, the simulator's sources, and for each controller of everything that its compiled code depends on. A stale
result is therefore never found, figures that share runs share results, and a change in one controller leaves the
runs of others valid.
"""

import ast
import hashlib
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from cctrace.cc import controller
from cctrace.lang.cache import cache_dir
from cctrace.lang.compile import fingerprint_of
from cctrace.lang.processes import processes
from cctrace.papers import measure

Result = dict[str, Any]  # plain values, as JSON has them
_ENGINE = ("sim", "tcp", "units.py", "schema.py")  # of the package: what a simulation is made of, besides controllers
_ROOT = FilePath(__file__).parent.parent


@dataclass(frozen=True)
class Run:
    """One thing to measure."""

    arguments: dict[str, Any]  # of `function`; plain values, as JSON has them
    # of a module; returns plain values. Default: `cctrace.papers.measure.simulation`.
    function: Callable[..., Result] = measure.simulation
    controllers: tuple[str, ...] = ()  # whose code the result depends on; default those of ``arguments["flows"]``
    sources: tuple[str, ...] = ()  # of the package, that it depends on beside the simulator: ``("streaming",)``

    @property
    def key(self) -> str:
        """A text that names the result: two runs of the same key have the same numbers."""
        names = self.controllers or tuple(flow["cc"] for flow in self.arguments.get("flows", ()))
        parts = [
            json.dumps(self.arguments, sort_keys=True),
            f"{self.function.__module__}.{self.function.__qualname__}",
            _module(self.function.__module__),
            _package_sources(_ENGINE),
            *([_package_sources(self.sources)] if self.sources else []),
            *(_controller(name.partition(":")[0]) for name in names),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def __call__(self) -> Result:
        """Measure."""
        return self.function(**self.arguments)


def run_all(
    runs: Sequence[Run], workers: int = 1, on_run: Callable[[int, int], object] | None = None, fresh: bool = False
) -> list[Result]:
    """Return the results of runs, in their order: from the disk where they are there, else made and kept.

    `workers`: processes. `on_run`: called with (runs done, runs in all). `fresh`: make all of them again.
    """
    keys = [run.key for run in runs]
    known = {} if fresh else {key: result for key in dict.fromkeys(keys) if (result := _load(key)) is not None}
    missing = {key: run for key, run in zip(keys, runs, strict=True) if key not in known}
    total = len(set(keys))

    def keep(key: str, result: Result) -> None:
        # A new result must equal the one read next time, to the last digit.
        known[key] = json.loads(json.dumps(result))
        _save(key, result)
        if on_run:
            on_run(len(known), total)

    if on_run:
        on_run(len(known), total)
    if workers > 1 and len(missing) > 1:
        with processes(workers) as pool:
            running = {pool.submit(run): key for key, run in missing.items()}
            for future in as_completed(running):
                keep(running[future], future.result())
    else:
        for key, run in missing.items():
            keep(key, run())
    return [known[key] for key in keys]


def store() -> FilePath:
    """Return the directory of the results."""
    directory = cache_dir() / "papers"
    directory.mkdir(exist_ok=True)
    return directory


def _load(key: str) -> Result | None:
    """Return a result, or None; a damaged file counts as none."""
    try:
        line, _, text = (store() / f"{key}.json").read_text(encoding="utf-8").partition("\n")
        return json.loads(text) if int(line) == zlib.crc32(text.encode()) else None
    except (OSError, ValueError):
        return None


def _save(key: str, result: Result) -> None:
    body = json.dumps(result)
    handle, aside = tempfile.mkstemp(dir=store(), suffix=".tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f"{zlib.crc32(body.encode())}\n{body}")
    os.replace(aside, store() / f"{key}.json")


@lru_cache(maxsize=64)
def _module(name: str) -> str:
    return _sources([FilePath(str(sys.modules[name].__file__))])


@lru_cache(maxsize=8)
def _package_sources(names: tuple[str, ...]) -> str:
    files: list[FilePath] = []
    for name in names:
        place = _ROOT / name
        files += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return _sources(files)


@lru_cache(maxsize=256)
def _controller(name: str) -> str:
    return hashlib.sha256(fingerprint_of(controller(name)[0]).text().encode()).hexdigest()


_TYPING = frozenset({"__future__", "collections.abc", "numpy.typing", "typing"})


class _WithoutWords(ast.NodeTransformer):
    """Drop what does not change a result: docstrings, annotations of functions, imports that only annotations need."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            first.value.value = ""
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module in _TYPING else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return None
        return self.generic_visit(node)


def _sources(files: Iterable[FilePath]) -> str:
    """Return a hash of what files do: comments, docstrings, annotations and layout do not count."""
    known = hashlib.sha256()
    for file in files:
        tree = _WithoutWords().visit(ast.parse(file.read_text(encoding="utf-8")))
        known.update(f"{file.name}\n{ast.dump(tree)}\n".encode())
    return known.hexdigest()
