"""Columns as an Arrow table, for Parquet.

`pyarrow.array` and `pyarrow.scalar` import pandas, a third of a second, to recognise its types. Built from buffers, a
table needs no pandas.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cctrace.columns import Held, Values
from cctrace.extras import needed
from cctrace.flows.packed import EventColumns
from cctrace.schema import MISSING

ROWS = 1 << 17  # of a part: its copies take some 30 MB


def arrow_tables(columns: Mapping[str, Any], nullable: Collection[str] = ()) -> Iterator[Any]:
    """Yield a table in parts of at most `ROWS` rows, as `pyarrow.Table`s of one schema.

    A part's columns are copied, so a table of millions of events is never held twice. The values are those of
    `cctrace.columns.frame_of`.

    `columns`: arrays of numpy, or lists of plain objects: records (dict), lists, texts, numbers, None. `nullable`:
    columns whose values may be `MISSING` where they are int64: such a value is null. pandas reads them as Int64.

    >>> (table,) = arrow_tables({"snd_cwnd": np.array([10, MISSING])}, nullable=["snd_cwnd"])
    >>> table["snd_cwnd"].to_pylist()
    [10, None]
    """
    pa = needed("pyarrow", "parquet")
    # The type of a column of other objects than texts follows from all of them.
    first = columns.part(0, 1) if isinstance(columns, Held | EventColumns) else columns
    others = [name for name, values in first.items() if not _is_numeric(values)]
    runs = columns.runs if isinstance(columns, Held) else {}
    objects = {
        name: _of_objects(pa, columns[name])
        for name in others
        if not _is_flat(runs[name].value if name in runs else columns[name])
    }
    integers = [name for name in columns if name in nullable and name not in objects]
    described = [
        {"name": name, "field_name": name, "pandas_type": "int64", "numpy_type": "Int64", "metadata": None}
        for name in integers
        if first[name].dtype == np.int64
    ]
    # https://pandas.pydata.org/docs/development/developer.html: what pandas needs to read a column as it was
    about = {"index_columns": [], "column_indexes": [], "columns": described, "pandas_version": "1.0"}
    metadata = {"pandas": json.dumps(about)} if described else None
    for begin, part in parts_of(columns):
        arrays = [
            objects[name].slice(begin, ROWS) if name in objects else _of_flat(pa, part[name], name in nullable)
            for name in columns
        ]
        del part  # before the next one is made, as are the arrays
        yield pa.Table.from_arrays(arrays, names=list(columns), metadata=metadata)
        del arrays


def parts_of(columns: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the first row and the columns of each part of at most `ROWS` rows; with no rows there is one part."""
    if isinstance(columns, Held | EventColumns):
        for begin in range(0, columns.count or 1, ROWS):
            yield begin, columns.part(begin, begin + ROWS)
        return
    for begin in range(0, max(map(len, columns.values()), default=0) or 1, ROWS):
        yield begin, {name: values[begin : begin + ROWS] for name, values in columns.items()}


def _is_numeric(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in "biuf"


def _is_flat(values: Any) -> bool:
    """Whether a column is an array of numbers, or of texts."""
    is_of_objects = isinstance(values, np.ndarray) and values.dtype == object
    return _is_numeric(values) or (is_of_objects and set(map(type, values)) == {str})


def _of_flat(pa: Any, values: Values, nullable: bool) -> Any:
    if values.dtype == object:
        return _of_texts(pa, values, np.ones(len(values), bool))
    known = np.ones(len(values), bool)
    if values.dtype.kind == "f":
        known = ~np.isnan(values)
    elif nullable and values.dtype == np.int64:
        known = values != MISSING
    if values.dtype == bool:
        return _flat(pa, pa.bool_(), known, np.packbits(values, bitorder="little"))
    return _flat(pa, pa.from_numpy_dtype(values.dtype), known, np.ascontiguousarray(values))


def _flat(pa: Any, kind: Any, known: Any, *buffers: Any, children: Sequence[Any] = ()) -> Any:
    """Return an array of a type, null where a value is not `known`."""
    valid = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(known), [valid, *map(pa.py_buffer, buffers)], children=list(children))


def _of_objects(pa: Any, values: Sequence[Any] | Values) -> Any:
    """Return plain objects of one kind as an array; numbers of which some are float or beyond 64 bits become float."""
    values = list(values)
    if any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = set(map(type, values)) - {type(None)}
    known = np.array([value is not None for value in values], bool)
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {dict}:
        return _of_records(pa, values, known)
    if kinds <= {list, tuple}:
        inner = _of_objects(pa, [one for value in values if value is not None for one in value])
        offsets = _offsets([len(value) for value in _filled(values, ())])
        return _flat(pa, pa.list_(inner.type), known, offsets, children=[inner])
    beyond = any(isinstance(value, int) and abs(value) > sys.float_info.max for value in values)
    # A token of `ss` that is a number in some polls only, or an integer of JSON that no type of Parquet holds.
    if (str in kinds or beyond) and kinds <= {str, bool, int, float}:
        values = [None if value is None else str(value) for value in values]
        return _of_texts(pa, np.array(values, object), known)
    if kinds == {bool}:
        return _flat(pa, pa.bool_(), known, np.packbits(_filled(values, False), bitorder="little"))
    if kinds <= {int, float}:
        filled = _filled(values, 0)
        is_whole = float not in kinds and min(filled) >= -(1 << 63) and max(filled) < 1 << 63
        numbers = np.array(filled, np.int64 if is_whole else float)
        return _flat(pa, pa.from_numpy_dtype(numbers.dtype), known & ~np.isnan(numbers), numbers)
    raise TypeError(f"a column of {', '.join(sorted(kind.__name__ for kind in kinds))} has no type in Parquet")


def _of_texts(pa: Any, column: Values, known: Any) -> Any:
    """Return texts, or None, as an array; most of a long table repeat the one before."""
    begins = np.flatnonzero(np.append(True, column[1:] != column[:-1])[: len(column)])
    times = np.diff(np.append(begins, len(column)))
    texts = [value.encode() for value in _filled(column[begins].tolist(), "")]
    joined = b"".join(text * count for text, count in zip(texts, times.tolist(), strict=True))
    return _flat(pa, pa.string(), known, _offsets(np.repeat([len(text) for text in texts], times)), joined)


def _of_records(pa: Any, values: list[Any], known: Any) -> Any:
    names = list(dict.fromkeys(name for value in values if value is not None for name in value))
    children = [_of_objects(pa, [None if value is None else value.get(name) for value in values]) for name in names]
    kind = pa.struct([(name, child.type) for name, child in zip(names, children, strict=True)])
    return _flat(pa, kind, known, children=children)


def _filled(values: Sequence[Any], missing: Any) -> list[Any]:
    return [missing if value is None else value for value in values]


def _offsets(lengths: ArrayLike) -> Any:
    return np.append(0, np.cumsum(lengths)).astype(np.int32)
