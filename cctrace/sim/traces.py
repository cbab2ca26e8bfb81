"""Links that change over time, from files: Mahimahi traces, UCC logs, and lists of steps."""

import os
from typing import Any

import numpy as np

from cctrace.arguments import short_repr
from cctrace.columns import Ints, Values
from cctrace.errors import ArgumentError, FormatError
from cctrace.io import read_file
from cctrace.io.linktrace import LinkTrace

Steps = tuple[Ints, Values]  # begin in ns, value

REPEATED_NS = 3_600_000_000_000  # for which the trace of a link is repeated
_MIN_BPS = 1.0  # what is slower stands still
_COLUMNS = ("rate", "rtt", "loss")
_WORDS = {"rtt": ("base RTT", "ms", 1e6), "loss": ("random loss", "%", 0.01)}


def trace_steps(trace: object) -> tuple[dict[str, Steps], dict[str, str]]:
    """Return what a link's trace says of a path, repeated for an hour.

    `trace`: a Mahimahi trace, read in milliseconds, or a UCC log. Returns (start ns, values) by field of `Path`
    (``rate`` in bit/s; ``rtt`` in ns and ``loss`` where the trace has them), and where the latter two come from. Raises
    `ArgumentError` if it is no trace; `FormatError` if its file cannot be read.
    """
    if isinstance(trace, str | os.PathLike):
        trace = read_file(trace)
    if not isinstance(trace, LinkTrace):
        raise ArgumentError(f"trace={short_repr(trace)}: a Mahimahi trace or a UCC log, or its file")
    if trace.format == "ucc5g":
        times, sizes = trace.capacity
        rates = sizes * 8e9 / np.diff(times, append=trace.end_ns)
    else:
        times, rates = trace.rate(1)
    steps = {"rate": _repeated(times, np.where(rates < _MIN_BPS, 0.0, rates), trace.end_ns)}
    origins = {}
    for name, (column, scale) in trace.path_columns.items():
        times, values = trace.steps(column)
        steps[name] = _repeated(times, (values * scale).astype(np.int64 if name == "rtt" else float), trace.end_ns)
        what, unit, size = _WORDS[name]
        low, high = (f"{value * scale / size:g}" for value in (values.min(), values.max()))
        origins[name] = f"{what}: {column} of {trace.source}, {len(values)} values from {low} to {high} {unit}"
    return steps, origins


def _repeated(times: Ints, values: Values, end_ns: int) -> Steps:
    """Return steps over and over for an hour, without those that change nothing."""
    repeats = max(-(-REPEATED_NS // end_ns), 1)
    times = (times + end_ns * np.arange(repeats)[:, None]).ravel()
    values = np.tile(values, repeats)
    changes = np.flatnonzero(np.diff(values, prepend=-1))
    return times[changes].astype(np.int64), values[changes]


def read_steps(file: str | os.PathLike[str]) -> dict[str, list[tuple[float, Any]]]:
    """Read a file of lines ``seconds Mbit/s [RTT in ms [loss in %]]`` (``#`` begins a comment) as fields of `Path`.

    Returns ``rate``, and ``rtt`` and ``loss`` where there are such columns, each as steps that `Path` takes. Raises
    `FormatError` if a line is not two to four numbers, or not as many as the first; names the line.
    """
    rows: list[tuple[float, ...]] = []
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].replace(",", " ").split()
            if not words:
                continue
            try:
                rows.append(tuple(map(float, words)))
            except ValueError:
                rows.append(())
            if not 2 <= len(rows[-1]) <= 4:
                raise FormatError(f"{file}, line {number}: {line.strip()!r} is not `seconds Mbit/s [RTT ms [loss %]]`")
            if len(rows[-1]) != len(rows[0]):
                raise FormatError(f"{file}, line {number}: {len(rows[-1])} numbers, the first line has {len(rows[0])}")
    if not rows:
        raise FormatError(f"{file}: no line `seconds Mbit/s`")
    units = (lambda mbit: mbit * 1e6, "{!r}ms".format, "{!r}%".format)
    return {
        name: [(row[0], unit(row[k])) for row in rows]
        for k, (name, unit) in enumerate(zip(_COLUMNS[: len(rows[0]) - 1], units, strict=False), 1)
    }
