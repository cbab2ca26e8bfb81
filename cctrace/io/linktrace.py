"""`LinkTrace`: the rate of a link over time, from emulators and measurement campaigns, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cctrace.arguments import number
from cctrace.columns import frame_of
from cctrace.errors import ArgumentError
from cctrace.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from cctrace.columns import Floats, Ints, Values


class LinkTrace:
    """A recorded link.

    Attributes
    ----------
    columns : dict of str to ndarray
        The columns of the source, units in the names; missing numbers are NaN.
    capacity : tuple of (ndarray of int64, ndarray of float64)
        Times in ns since the start of the trace, and the bytes that the link could carry (or carried) from each time
        to the next.
    end_ns : int
        Length of the trace, ns; Mahimahi repeats a trace after it.
    source, format : str
    warnings : list of str
    path_columns : dict of str to (str, float)
        ``rtt`` and ``loss``, where the source has them: the column, and its unit in ns or as a share.
    """

    def __init__(
        self,
        columns: dict[str, Values],
        capacity: tuple[Ints, Floats],
        end_ns: int,
        source: str = "",
        format: str = "",
        warnings: Sequence[str] = (),
        path_columns: Mapping[str, tuple[str, float]] | None = None,
    ) -> None:
        self.columns, self.capacity, self.end_ns = columns, capacity, int(end_ns)
        self.source, self.format, self.warnings = source, format, list(warnings)
        self.path_columns = dict(path_columns or {})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Values:
        return self.columns[name]

    def __repr__(self) -> str:
        rate = format_rate(self.mean_rate_bps)
        return f"<LinkTrace {self.source}: {len(self)} rows, {self.end_ns / 1e9:g} s, {rate}>"

    @property
    def mean_rate_bps(self) -> float:
        """Mean rate over the trace, bit/s."""
        return float(self.capacity[1].sum()) * 8e9 / self.end_ns if self.end_ns else float("nan")

    def rate(self, bin_ms: float = 100) -> tuple[Ints, Floats]:
        """Return (start of each bin in ns, mean rate in it in bit/s).

        >>> chances = np.array([0, 10**6]), np.array([1500.0, 1500.0])
        >>> trace = LinkTrace({"time_ms": np.array([0, 1])}, chances, end_ns=2 * 10**6)
        >>> trace.rate(1)[1].tolist()
        [12000000.0, 12000000.0]
        """
        width = round(number("bin_ms", bin_ms, "a number of milliseconds above 0", above=0) * 1e6)
        edges = np.arange(0, self.end_ns + width, width)
        sums, _ = np.histogram(self.capacity[0], bins=edges, weights=self.capacity[1])
        return edges[:-1], sums * 8e9 / np.diff(np.minimum(edges, self.end_ns)).clip(1)

    def steps(self, column: str) -> tuple[Ints, Floats]:
        """Return (ns from the start, values) of a column where it has numbers; the first holds from the beginning.

        Raises `ArgumentError` if there is no such column, or no number in it.
        """
        values = self.columns.get(column)
        if values is None or values.dtype == object or not (there := np.isfinite(values)).any():
            raise ArgumentError(f"column={column!r}: {self.source} has no numbers of that name")
        times = (self.columns["time_ns"] - self.columns["time_ns"][0])[there]
        times[0] = 0
        return times, values[there]

    def frame(self) -> pd.DataFrame:
        """Return the columns as a pandas DataFrame."""
        return frame_of(self.columns)
