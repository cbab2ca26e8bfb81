"""Validates values from files before compiled code uses them.

Compiled code does not check whether a connection number has a connection: a wrong one would make it read and write
anywhere. `io.captures.decode` builds the columns of a capture itself, from bytes whose every offset it checks, so
these are trusted. Tables stored in a file as tables are not: packets and event streams in Parquet pass `checked`,
which refuses the file; counters of any format pass `plausible`, which drops the value with a warning.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from cctrace import schema
from cctrace.arguments import short_repr
from cctrace.columns import Values
from cctrace.errors import FormatError
from cctrace.schema import Column


def checked(table: Sequence[Column], columns: Mapping[str, ArrayLike], source: str) -> dict[str, Values]:
    """Return the columns of a table from a file, with their dtypes, after checking every value.

    `columns`: may hold others as well. `source`: name of the file. Raises `FormatError`: a column is missing, has
    another length, holds something other than integers (or text), or a value outside of its bounds `within`; names the
    file, the column and the first such row.
    """
    if lacking := [column.name for column in table if column.name not in columns]:
        raise FormatError(f"{source}: lacks the columns {', '.join(lacking)}")
    found = {column.name: _column(column, np.asarray(columns[column.name]), source) for column in table}
    lengths = {name: len(values) for name, values in found.items()}
    if len(set(lengths.values())) > 1:
        raise FormatError(f"{source}: columns of different lengths: {lengths}")
    return found


def _column(column: Column, values: Values, source: str) -> Values:
    """Return one column, typed; see `checked`."""
    if values.ndim != 1:
        raise FormatError(f"{source}: column {column.name!r} is not a list of numbers")
    if column.dtype == "O":
        wrong = [row for row, value in enumerate(values.tolist()) if not isinstance(value, str)]
        if wrong:
            raise FormatError(
                f"{source}: column {column.name!r}, row {wrong[0]}: {short_repr(values[wrong[0]])} is not text"
            )
        return values.astype(object)
    if values.size and values.dtype.kind not in "iub":
        raise FormatError(f"{source}: column {column.name!r} holds {values.dtype}, where integers are needed")
    low, high = column.bounds
    if values.size and (values.min() < low or values.max() > high):
        row = int(np.flatnonzero((values < low) | (values > high))[0])
        raise FormatError(
            f"{source}: column {column.name!r}, row {row}: {values[row]} is not within {low} to {high}: damaged, or "
            "not written by cctrace"
        )
    return values.astype(column.dtype, copy=False)


def packets(
    columns: Mapping[str, ArrayLike], sacks: Mapping[str, ArrayLike], connections: Mapping[str, ArrayLike], source: str
) -> tuple[dict[str, Values], dict[str, Values], dict[str, Values]]:
    """Return the three tables of packets, checked, with every row number inside the table it points into.

    `columns`, `sacks`, `connections`: as for `Packets`. Raises `FormatError` as `checked` does, naming the `source`.
    """
    columns = checked(schema.PACKETS, columns, source)
    sacks = checked(schema.SACKS, sacks, source)
    connections = checked(schema.CONNECTIONS, connections, source)
    if not len(columns["conn"]):
        raise FormatError(f"{source}: no packets in the file")
    known, last = len(connections["src"]), int(columns["conn"].max())
    if last >= known:
        raise FormatError(f"{source}: packets of connection {last}, but the table of connections has {known} rows")
    begin, blocks = columns["sack_row"].astype(np.int64), columns["sack_count"].astype(np.int64)
    if np.any((blocks > 0) & ((begin < 0) | (begin + blocks > len(sacks["left"])))):
        raise FormatError(f"{source}: packets have SACK blocks that the table of {len(sacks['left'])} blocks does not")
    return columns, sacks, connections


def plausible(columns: dict[str, Values], missing: int, counts: Iterable[str] = ()) -> list[str]:
    """Replace values that no kernel can have reported by `missing`, in place.

    `columns`: those of `schema.TCP_INFO`, and perhaps others. `missing`: stands for a missing value. `counts`: which of
    the others are never negative. Returns list of str: one line for each such column.
    """
    lines = []
    bounds = {column.name: column.bounds for column in schema.TCP_INFO}
    bounds |= dict.fromkeys(counts, (0, int(np.iinfo(np.int64).max)))
    for name, (low, high) in bounds.items():
        values = columns[name]
        wrong = ((values < low) & (values != missing)) | (values > high)
        if wrong.any():
            lines.append(f"{int(wrong.sum())} values of {name} are not within {low} to {high}: treated as missing")
            values[wrong] = missing
    return lines
