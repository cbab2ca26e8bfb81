"""A user's own link traces in the figures that take them: ``--trace FILE``.

The content of a file is among the arguments of a run, so that another file of the same name is another run.
"""

import hashlib
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from cctrace import presets
from cctrace.errors import ArgumentError
from cctrace.io import read_file
from cctrace.io.linktrace import LinkTrace
from cctrace.papers.measure import simulation
from cctrace.sim.traces import REPEATED_NS, trace_steps

OF_FILE = ("content", "rtt_column", "burst", "feed")  # arguments of a run that are not fields of `Path`


def of_preset(name: str, seed: int, seconds: int = 120) -> dict[str, Any]:
    """Return the fields that a preset of `models/` sets in a `Path`, as JSON has them.

    >>> of_preset("5g_car1", 1)["rate"][0][0]
    0
    """
    fields = {key: value for key, value in presets.path_fields(name, seed, seconds).items() if value is not None}
    return fields | {"rate": [list(step) for step in fields["rate"]]}


def scaled(steps: list, mbps: float) -> list[list]:
    """Return steps of a rate, each a second long, scaled to a mean.

    >>> scaled([[0, 1e6], [1, 3e6]], 4)
    [[0, 2000000.0], [1, 6000000.0]]
    """
    factor = 1e6 * mbps / float(np.mean([bps for _, bps in steps]))
    return [[at, bps * factor] for at, bps in steps]


def own(file: str | FilePath, **fields: Any) -> dict[str, Any]:
    """Return the fields of a path over a trace, as `over_trace` takes them.

    `fields`: of `Path`; ``rtt_column``, the column of the file whose milliseconds are the RTT over time; ``burst``,
    with which the rate is that of a token bucket, and ``feed``, the rate before it.
    """
    content = hashlib.sha256(FilePath(file).read_bytes()).hexdigest()
    return {"trace": str(FilePath(file).resolve()), "content": content} | fields


def read_trace(file: str | FilePath) -> LinkTrace:
    """Read a Mahimahi trace or UCC log. Raises `ArgumentError` if the file is not a trace of a link."""
    trace = read_file(file)
    if not isinstance(trace, LinkTrace):
        raise ArgumentError(f"traces: {file} is neither a Mahimahi trace nor a UCC log")
    return trace


def over_trace(path: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """Measure over a user's trace, as `measure.simulation` does."""
    trace = read_trace(path["trace"])
    if "rtt_column" in path:
        trace.path_columns["rtt"] = (path["rtt_column"], 1e6)
    fields = {name: value for name, value in path.items() if name not in OF_FILE}
    link = {"trace": trace} if "burst" not in path else _behind_bucket(trace, path["feed"], path["burst"])
    return simulation({name: value for name, value in fields.items() if name != "trace"} | link, **arguments)


def _behind_bucket(trace: LinkTrace, feed: str, burst: str) -> dict[str, Any]:
    """Return the fields of a path whose token bucket has a trace's rate, and its RTT over time if the trace has one."""
    steps, _ = trace_steps(trace)
    times, rates = steps["rate"]
    seconds = [(int(ns) / 1e9, float(bps)) for ns, bps in zip(times, rates, strict=True)]
    seconds.append((max(seconds[-1][0], REPEATED_NS / 1e9) + 1, next(bps for _, bps in seconds if bps > 0)))
    link: dict[str, Any] = {"rate": feed, "shaper": (seconds, burst)}
    if "rtt" in steps:
        link["rtt"] = [(int(ns) / 1e9, f"{value}ns") for ns, value in zip(*steps["rtt"], strict=True)]
    return link


def rates_of(trace: LinkTrace) -> list[tuple[float, float]]:
    """Return [(second, bit/s)] of a trace, as the figures draw it: once a second."""
    at, rates = trace.rate(1000)
    return [(float(ns) / 1e9, float(rate)) for ns, rate in zip(at, rates, strict=True)]
