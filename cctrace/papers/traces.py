"""A user's own link traces in the figures that take them: ``--trace FILE``.

The content of a file is among the arguments of a run, so that another file of the same name is another run.
"""

import hashlib
from pathlib import Path as FilePath

from cctrace.io import read_file
from cctrace.papers.measure import simulation
from cctrace.sim.traces import REPEATED_NS, trace_steps

OF_FILE = ("content", "rtt_column", "burst", "feed")  # arguments of a run that are no fields of `Path`


def own(file, **fields):
    """Return the fields of a path over a trace, as `over_trace` takes them.

    Parameters
    ----------
    file : str or path
    **fields
        Of `Path`; ``rtt_column``, the column of the file whose milliseconds are the RTT over time; ``burst``, with
        which the rate is that of a token bucket, and ``feed``, the rate before it.
    """
    content = hashlib.sha256(FilePath(file).read_bytes()).hexdigest()
    return {"trace": str(FilePath(file).resolve()), "content": content} | fields


def over_trace(path, **arguments):
    """Measure over a user's trace, as `measure.simulation` does."""
    trace = read_file(path["trace"])
    if "rtt_column" in path:
        trace.path_columns["rtt"] = (path["rtt_column"], 1e6)
    fields = {name: value for name, value in path.items() if name not in OF_FILE}
    link = {"trace": trace} if "burst" not in path else _behind_bucket(trace, path["feed"], path["burst"])
    return simulation({name: value for name, value in fields.items() if name != "trace"} | link, **arguments)


def _behind_bucket(trace, feed, burst):
    """Return the fields of a path whose token bucket has a trace's rate; its RTT over time too, where it has one."""
    steps, _ = trace_steps(trace)
    times, rates = steps["rate"]
    rates = [(int(ns) / 1e9, float(bps)) for ns, bps in zip(times, rates, strict=True)]
    rates.append((max(rates[-1][0], REPEATED_NS / 1e9) + 1, next(bps for _, bps in rates if bps > 0)))
    link = {"rate": feed, "shaper": (rates, burst)}
    if "rtt" in steps:
        link["rtt"] = [(int(ns) / 1e9, f"{value}ns") for ns, value in zip(*steps["rtt"], strict=True)]
    return link


def rates_of(trace):
    """Return [(second, bit/s)] of a trace, as the figures draw it: once a second."""
    at, rates = trace.rate(1000)
    return [(float(ns) / 1e9, float(rate)) for ns, rate in zip(at, rates, strict=True)]
