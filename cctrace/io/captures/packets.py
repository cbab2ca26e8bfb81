"""`Packets`: the TCP packets of one capture as columns, its connections, and what was skipped and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cctrace import schema
from cctrace.blocks import Columns
from cctrace.columns import Bools, Values, rows_of_spans
from cctrace.display import Framed
from cctrace.units import format_counted, format_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pandas as pd

# Bits of the column `options`: TCP options; OPT_COPY: captured twice (mirror port); OPT_BAD: options malformed or cut.
OPT_TIMESTAMPS, OPT_SACK, OPT_MSS, OPT_WINDOW_SCALE = 1, 2, 4, 8
OPT_SACK_PERMITTED, OPT_ACCURATE_ECN, OPT_COPY, OPT_BAD = 16, 32, 64, 128

FAR_BACK_NS = 1_000_000  # several CPUs that feed one capture ring make stamps step back by microseconds: harmless


def back_steps(counters: Mapping[str, int]) -> str:
    """Return a sentence on how often time stamps step back, and how far."""
    times = format_counted(counters["back_steps"], "time", "times")
    return f"time stamps step back {times}, by at most {format_time(counters['back_step_ns'])}"


class Packets(Framed):
    """The TCP packets of a capture.

    Attributes
    ----------
    columns : mapping of str to ndarray, shape (packets,)
        The columns of `schema.PACKETS`; also `packets["seq"]`.
    sacks : dict of str to ndarray
        The SACK blocks (`schema.SACKS`); a packet's are rows `sack_row` to `sack_row + sack_count`.
    connections : dict of str to ndarray, shape (connections,)
        The connection table (`schema.CONNECTIONS`); column `conn` indexes it.
    counters : dict of str to int
        Frames that were not decoded, and rows that are unusual, by reason; the names are those of `layout.COUNTERS`.
    warnings : list of str
        One line per property of the capture that affects the numbers.
    source : str
        Name of the file.
    """

    def __init__(
        self,
        columns: Mapping[str, Values],
        sacks: dict[str, Values],
        connections: dict[str, Values],
        counters: Mapping[str, int] | None = None,
        warnings: Sequence[str] = (),
        source: str = "",
    ) -> None:
        self.columns, self.sacks, self.connections = columns, sacks, connections
        self.counters = dict(counters or {})
        self.warnings = list(warnings)
        self.source = source

    def __len__(self) -> int:
        return self.columns.rows if isinstance(self.columns, Columns) else len(self.columns["time_ns"])

    def __getitem__(self, name: str) -> Values:
        return self.columns[name]

    def first(self, name: str, rows: int) -> Values:
        """Return the first rows of a column, without the others if they are packed."""
        return self.columns.first(name, rows) if isinstance(self.columns, Columns) else self.columns[name][:rows]

    def __repr__(self) -> str:
        connections = format_counted(len(self.connections["sport"]), "connection", "connections")
        return f"<Packets {self.source}: {format_counted(len(self), 'packet', 'packets')}, {connections}>"

    def pack(self, names: Collection[str]) -> None:
        """Keep columns packed: from then on they are made whenever they are asked for, 5 ns a value."""
        columns = self.columns if isinstance(self.columns, Columns) else Columns(self.columns)
        columns.pack(names)
        self.columns = columns

    def replace(self, columns: Mapping[str, Values]) -> None:
        """Exchange columns; those that are kept packed stay so."""
        if isinstance(self.columns, Columns):
            self.columns.replace(columns)
        else:
            self.columns = {**self.columns, **columns}

    @property
    def is_packed(self) -> bool:
        """Whether some columns are kept packed."""
        return isinstance(self.columns, Columns)

    def frame(self) -> pd.DataFrame:
        """Return the packets as a pandas DataFrame, one row each, columns of `schema.PACKETS` (no copy)."""
        import pandas as pd

        return pd.DataFrame({c.name: self.columns[c.name] for c in schema.PACKETS}, copy=False)

    @property
    def notes(self) -> list[str]:
        """Remarks about the file that do not affect the numbers, a list of sentences; see also `warnings`."""
        small = 0 < self.counters.get("back_step_ns", 0) < FAR_BACK_NS
        return [f"{back_steps(self.counters)}: several CPUs fed the capture"] if small else []

    def sorted_by_time(self) -> Packets:
        """Return the packets in the order of their time stamps (stable); the same object if they are in order.

        Several CPUs feeding one capture ring make stamps step back by microseconds; see `counters["back_steps"]`.
        """
        time_ns = self.columns["time_ns"]
        if np.all(time_ns[1:] >= time_ns[:-1]):
            return self
        order = np.argsort(time_ns, kind="stable")
        columns = {name: column[order] for name, column in self.columns.items()}
        return Packets(columns, self.sacks, self.connections, self.counters, self.warnings, self.source)

    def select(self, wanted: Bools) -> Packets:
        """Return the packets of some connections; the connection table stays complete.

        `wanted` has a value for each connection, or more.
        """
        rows = np.flatnonzero(wanted[self.columns["conn"]])
        columns = {name: column[rows] for name, column in self.columns.items()}
        count = columns["sack_count"].astype(np.int64)
        blocks = rows_of_spans(columns["sack_row"], count)
        columns["sack_row"] = np.where(count > 0, np.cumsum(count) - count, -1).astype(columns["sack_row"].dtype)
        sacks = {name: column[blocks] for name, column in self.sacks.items()}
        return Packets(columns, sacks, self.connections, self.counters, self.warnings, self.source)


def joined(parts: Iterable[Packets]) -> Packets:
    """Return successive parts of one capture, as `io.stream` yields them, as one `Packets`."""
    parts = list(parts)
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    before = np.cumsum([0] + [len(part.sacks["left"]) for part in parts[:-1]])
    shift = np.where(columns["sack_count"] > 0, np.repeat(before, [len(part) for part in parts]), 0)
    columns["sack_row"] += shift.astype(columns["sack_row"].dtype)
    sacks = {name: np.concatenate([part.sacks[name] for part in parts]) for name in parts[0].sacks}
    last = parts[-1]
    return Packets(columns, sacks, last.connections, last.counters, last.warnings, last.source)
