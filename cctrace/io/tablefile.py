"""Tables of columns on disk, as Parquet, without loss.

A table is columns of one length plus metadata; the metadata travels as JSON under the key `cctrace`, whose `kind` says
what the table is: packets, tcp_info, link, events. Who knows the kind checks the values (`validation`).
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from cctrace import __version__
from cctrace.errors import FormatError
from cctrace.extras import needed
from cctrace.files import replacing
from cctrace.io.source import Source, reads
from cctrace.schema import MISSING

Meta = dict[str, Any] | Callable[[], dict[str, Any]]
_KEY = b"cctrace"


def save(path: str | os.PathLike[str], kind: str, parts: Iterable[Mapping[str, Any]], meta: Meta) -> int:
    """Write a table.

    `kind`: what the table holds; `load` returns it. `parts`: the columns, in one piece or several. int64 columns must
    not use `MISSING` for anything but missing. `meta`: anything that JSON can hold; a callable is called after the last
    part. Returns the number of rows.
    """
    pa = needed("pyarrow", "parquet")
    pq = needed("pyarrow.parquet", "parquet")

    writer, rows = None, 0
    with contextlib.ExitStack() as opened:
        for columns in parts:
            table = pa.table({name: _arrow(column) for name, column in columns.items()})
            if writer is None:
                part = opened.enter_context(replacing(path))
                file = opened.enter_context(open(part, "wb"))  # pyarrow takes only names that are UTF-8
                writer = opened.enter_context(pq.ParquetWriter(file, table.schema, compression="zstd"))
            writer.write_table(table.cast(writer.schema))
            rows += len(table)
        if writer:
            about = {"kind": kind, "version": __version__, "meta": meta() if callable(meta) else meta}
            writer.add_key_value_metadata({_KEY.decode(): json.dumps(about, default=_plain)})
    return rows


@reads("a table that cctrace wrote")
def load(source: Source) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return (kind, columns, meta) of a table written by `save`; missing values as `save` got them.

    The values are unchecked: callers, who know the kind, pass them to `validation`.

    Raises `FormatError`: not Parquet, damaged, not written by cctrace, or it claims more than a file of its size holds.
    """
    pa = needed("pyarrow", "parquet")
    pq = needed("pyarrow.parquet", "parquet")

    name, data = source.name, source.rest()
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            metadata = file.metadata.metadata or {}
            source.refuse_bomb(_claimed_bytes(file.metadata), len(data))
            table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{name}: damaged Parquet: {str(error).splitlines()[0]}") from None
    if _KEY not in metadata:
        raise FormatError(f"{name}: this Parquet was not written by cctrace; found {', '.join(table.column_names[:8])}")
    about = json.loads(metadata[_KEY])
    return about["kind"], {n: _numpy(table[n].combine_chunks()) for n in table.column_names}, about["meta"]


def _claimed_bytes(metadata: Any) -> int:
    """Return about how many bytes a table takes in memory: runs of one value take almost none in the file."""
    lists = sum(
        metadata.row_group(group).column(k).num_values
        for group in range(metadata.num_row_groups)
        for k in range(metadata.num_columns)
    )
    return 8 * lists


def _arrow(column: Any) -> Any:
    pa = needed("pyarrow", "parquet")

    if not isinstance(column, np.ndarray):
        return column
    if column.dtype == np.int64:
        gap = column == MISSING
        return pa.array(column, mask=gap if gap.any() else None)
    return pa.array(column.tolist()) if column.dtype == object else pa.array(column)


def _numpy(array: Any) -> Any:
    pa = needed("pyarrow", "parquet")

    if pa.types.is_list(array.type):
        return array
    if pa.types.is_int64(array.type):
        return array.fill_null(MISSING).to_numpy(zero_copy_only=False)
    if pa.types.is_string(array.type) or pa.types.is_null(array.type):
        return np.array(array.to_pylist(), object)
    return array.to_numpy(zero_copy_only=False)


def _plain(value: object) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
