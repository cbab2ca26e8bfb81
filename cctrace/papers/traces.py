"""A user's own link traces in the figures that take them: ``--trace FILE``.

The content of a file is among the arguments of a run, so that another file of the same name is another run.
"""

import hashlib
from pathlib import Path as FilePath

from cctrace.io import read_file
from cctrace.papers.measure import simulation

OF_FILE = ("content", "rtt_column")  # arguments of a run that are no fields of `Path`


def own(file, **fields):
    """Return the fields of a path over a trace, as `over_trace` takes them.

    Parameters
    ----------
    file : str or path
    **fields
        Of `Path`; and ``rtt_column``, the column of the file whose milliseconds are the RTT over time.
    """
    content = hashlib.sha256(FilePath(file).read_bytes()).hexdigest()
    return {"trace": str(FilePath(file).resolve()), "content": content} | fields


def over_trace(path, **arguments):
    """Measure over a user's trace, as `measure.simulation` does."""
    trace = read_file(path["trace"])
    if "rtt_column" in path:
        trace.path_columns["rtt"] = (path["rtt_column"], 1e6)
    fields = {name: value for name, value in path.items() if name not in OF_FILE}
    return simulation(fields | {"trace": trace}, **arguments)


def rates_of(trace):
    """Return [(second, bit/s)] of a trace, as the figures draw it: once a second."""
    at, rates = trace.rate(1000)
    return [(float(ns) / 1e9, float(rate)) for ns, rate in zip(at, rates, strict=True)]
