"""Several tables of polls as one, such as the members of an archive."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cctrace.columns import Values
from cctrace.io.counters.tcpinfo import TcpInfo
from cctrace.schema import ENDS, MISSING


def merged(tables: Sequence[TcpInfo], source: str) -> TcpInfo:
    """Return several `TcpInfo` as one; connections with the same addresses and ports are merged.

    `tables`: at least one. `source`: name of their common source.
    """
    known: dict[tuple[Any, ...], int] = {}
    connections: list[dict[str, Any]] = []
    numbers = []
    for table in tables:
        mine = []
        for known_as in table.connections:
            key = tuple(known_as.get(name) for name in ENDS)
            at = known.get(key) if key[0] is not None else None
            if at is None:
                at = len(connections)
                connections.append(dict(known_as))
                known[key] = at
            mine.append(at)
        numbers.append(np.array(mine, np.int64))
    sizes = [len(table) for table in tables]
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns}
    names = dict.fromkeys(name for table in tables for name in table.extra)
    extra = {name: _joined([table.extra.get(name) for table in tables], sizes) for name in names}
    connection = np.concatenate([of[table.connection] for of, table in zip(numbers, tables, strict=True)])
    kinds = {table.format for table in tables}
    warnings = [text for table in tables for text in table.warnings]
    kind = kinds.pop() if len(kinds) == 1 else "several"
    joint = TcpInfo(columns, extra, connection, connections, source, kind, warnings)
    logged = [(of, table.events) for of, table in zip(numbers, tables, strict=True) if table.events is not None]
    if logged:
        joint.events = joined = {name: np.concatenate([log[name] for _, log in logged]) for name in logged[0][1]}
        joined["connection"] = np.concatenate([of[events["connection"]] for of, events in logged])
    return joint


def _joined(parts: Sequence[Values | None], sizes: Sequence[int]) -> Values:
    """Return the parts of an extra column as one; where a table lacks it, its rows are missing."""
    present = [part for part in parts if part is not None]
    kind = np.result_type(*present) if all(part.dtype.kind in "if" for part in present) else np.dtype(object)
    none = {"i": MISSING, "f": np.nan}.get(kind.kind)
    full = (np.full(size, none, kind) if part is None else part for part, size in zip(parts, sizes, strict=True))
    return np.concatenate([_as_kind(part, kind) for part in full])


def _as_kind(part: Values, kind: np.dtype[Any]) -> Values:
    """Return a column as another type; what is missing stays missing."""
    if part.dtype == kind or part.dtype.kind != "i":
        return part.astype(kind)
    gap = part == MISSING
    out = part.astype(kind)
    out[gap] = np.nan if kind.kind == "f" else None
    return out
