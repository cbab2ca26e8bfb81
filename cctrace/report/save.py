"""Tables as files: Parquet, or compressed CSV without pyarrow; neither needs pandas.

A table of events has millions of cells. Integers are converted to text by compiled code; of other values, each run
of equal ones is converted once.
"""

import gzip
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from cctrace.columns import Values
from cctrace.extras import is_installed
from cctrace.files import replacing
from cctrace.report.arrow import arrow_tables, parts_of
from cctrace.report.cells import LONGEST, write_rows

Table: TypeAlias = "Mapping[str, Values | Sequence[Any]]"
_BLOCK = 8192  # rows whose text is made at a time
_QUOTED = frozenset(',"\r\n')


def save(table: Table, folder: Path, name: str, nullable: Collection[str] = ()) -> Path:
    """Write a table to ``folder/name.parquet``, without pyarrow to ``folder/name.csv.gz``; return the path.

    `nullable`: columns of int64 which may be `MISSING`. Raises `OSError` if it cannot be written.
    """
    if is_installed("pyarrow"):
        import pyarrow.parquet as pq

        path = folder / f"{name}.parquet"
        parts = arrow_tables(table, nullable)
        part: Any = next(parts)
        # pyarrow takes only names that are UTF-8, but any file that is open.
        with replacing(path) as file, open(file, "wb") as raw, pq.ParquetWriter(raw, part.schema) as writer:
            while part is not None:
                writer.write_table(part)
                part = None  # before the next one is made
                part = next(parts, None)
        return path
    path = folder / f"{name}.csv.gz"
    with replacing(path) as file, open(file, "wb") as packed, gzip.GzipFile(path.stem, "wb", 1, packed) as out:
        for part in csv_parts(table):
            out.write(part)
    return path


def csv_parts(table: Table) -> Iterator[bytes]:
    """Yield a table of two columns or more as CSV with a header, as ``frame.to_csv(index=False)`` writes it.

    >>> table = {"snd_una": np.array([1, 1, 1449]), "mode": ["STARTUP", None, 'a "b", c']}
    >>> print(b"".join(csv_parts(table)).decode(), end="")
    snd_una,mode
    1,STARTUP
    1,
    1449,"a ""b"", c"
    """
    yield (",".join(map(_quoted, table)) + "\n").encode()
    for _, part in parts_of(table):
        yield from _rows(part)


def _rows(table: Table) -> Iterator[bytes]:
    columns = [_numbers(values) for values in table.values()]
    rows = len(columns[0][0]) if columns else 0
    texts = [text for _, text in columns]
    begins = np.cumsum([0, *(len(text) for text in texts)])
    is_text = np.array([bool(text) for text in texts])
    pool = list(itertools.chain.from_iterable(texts))
    ends = np.cumsum([0, *map(len, pool)])
    room = np.frombuffer(b"".join(pool) or b" ", np.uint8)
    widest = [max(map(len, text)) if text else LONGEST for text in texts]
    out = np.empty(min(rows, _BLOCK) * (sum(widest) + len(widest)), np.uint8)
    for start in range(0, rows, _BLOCK):
        block = np.array([numbers[start : start + _BLOCK] for numbers, _ in columns], np.int64)
        block += np.where(is_text, begins[:-1], 0)[:, None]
        yield out[: write_rows(block, is_text, ends, room, out)].tobytes()


def _numbers(values: Values | Sequence[Any]) -> tuple[Values, list[bytes]]:
    """Return integers and no texts; or the texts of runs of equal values, and each value's index into them."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != np.uint64:
        return values, []
    if isinstance(values, np.ndarray) and values.dtype != object:
        first = np.append(True, values[1:] != values[:-1])[: len(values)]
        return np.cumsum(first) - 1, [_text(value) for value in values[first].tolist()]
    first_of_runs = [k for k, value in enumerate(values) if not k or value is not values[k - 1]]  # lists have no hash
    places = np.repeat(np.arange(len(first_of_runs)), np.diff([*first_of_runs, len(values)]))
    return places, [_text(values[k]) for k in first_of_runs]


def _text(value: Any) -> bytes:
    missing = value is None or type(value).__name__ == "NAType" or value != value
    return b"" if missing else _quoted(str(value)).encode()


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.intersection(text) else text
