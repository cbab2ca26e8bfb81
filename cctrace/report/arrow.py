"""Columns as an Arrow table, for Parquet.

`pyarrow.array` and `pyarrow.scalar` import pandas, a third of a second, to recognise its types. Built from buffers, a
table needs no pandas.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cctrace.extras import needed
from cctrace.schema import MISSING


def arrow_table(columns: Mapping[str, Any], nullable: Collection[str] = ()) -> Any:
    """Return a `pyarrow.Table`, whose values are those of `cctrace.columns.frame_of`.

    `columns`: arrays of numpy, or lists of plain objects: records (dict), lists, texts, numbers, None. `nullable`:
    columns whose values may be `MISSING` where they are int64: such a value is null. pandas reads them as Int64.

    >>> arrow_table({"snd_cwnd": np.array([10, MISSING])}, nullable=["snd_cwnd"])["snd_cwnd"].to_pylist()
    [10, None]
    """
    pa = needed("pyarrow", "parquet")
    arrays = {name: _array(pa, values, name in nullable) for name, values in columns.items()}
    table = pa.Table.from_arrays(list(arrays.values()), names=list(arrays))
    told = [
        {"name": name, "field_name": name, "pandas_type": "int64", "numpy_type": "Int64", "metadata": None}
        for name in columns
        if name in nullable and pa.types.is_int64(arrays[name].type)
    ]
    # https://pandas.pydata.org/docs/development/developer.html: what pandas needs to read a column as it was
    about = {"index_columns": [], "column_indexes": [], "columns": told, "pandas_version": "1.0"}
    return table.replace_schema_metadata({"pandas": json.dumps(about)} if told else None)


def _array(pa: Any, values: Any, nullable: bool) -> Any:
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
        return _of_objects(pa, list(values))
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


def _of_objects(pa: Any, values: list[Any]) -> Any:
    """Return plain objects of one kind as an array; numbers of which some are float become float."""
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
        return _flat(pa, pa.list_(inner.type), known, _offsets(map(len, _filled(values, ()))), children=[inner])
    if kinds == {str}:
        encoded = {value: value.encode() for value in set(_filled(values, ""))}
        texts = [encoded[value] for value in _filled(values, "")]
        return _flat(pa, pa.string(), known, _offsets(map(len, texts)), b"".join(texts))
    if kinds == {bool}:
        return _flat(pa, pa.bool_(), known, np.packbits(_filled(values, False), bitorder="little"))
    if kinds <= {int, float}:
        numbers = np.array(_filled(values, 0), float if float in kinds else np.int64)
        return _flat(pa, pa.from_numpy_dtype(numbers.dtype), known & ~np.isnan(numbers), numbers)
    raise TypeError(f"a column of {', '.join(sorted(kind.__name__ for kind in kinds))} has no type in Parquet")


def _of_records(pa: Any, values: list[Any], known: Any) -> Any:
    names = list(dict.fromkeys(name for value in values if value is not None for name in value))
    children = [_of_objects(pa, [None if value is None else value.get(name) for value in values]) for name in names]
    kind = pa.struct([(name, child.type) for name, child in zip(names, children, strict=True)])
    return _flat(pa, kind, known, children=children)


def _filled(values: Sequence[Any], missing: Any) -> list[Any]:
    return [missing if value is None else value for value in values]


def _offsets(lengths: Iterable[int]) -> Any:
    return np.cumsum([0, *lengths]).astype(np.int32)
