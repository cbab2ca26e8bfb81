"""Tables as files: Parquet, or compressed CSV where pyarrow is not installed.

A table of events has millions of cells of which most repeat a neighbour's. pandas writes them one by one, which takes
longer than the analysis does; here every distinct value becomes text once. The bytes are those that pandas writes.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cctrace.extras import is_installed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


_REPEATS = 2  # times that a value must occur, on average, to be worth looking up
_QUOTED = frozenset(',"\r\n')


def save(frame: pd.DataFrame, folder: Path, name: str) -> Path:
    """Write a table to ``folder/name.parquet``, without pyarrow to ``folder/name.csv.gz``; return the path."""
    if is_installed("pyarrow"):
        path = folder / f"{name}.parquet"
        frame.to_parquet(path)
        return path
    path = folder / f"{name}.csv.gz"
    path.write_bytes(gzip.compress(csv_text(frame).encode(), compresslevel=1))
    return path


def frame_of(records: NDArray[Any]) -> pd.DataFrame:
    """Return records as a table, column by column: pandas would gather those of a kind, which takes nine times as long.

    Examples
    --------
    >>> frame_of(np.array([(1, 2), (3, 4)], [("time_ns", "i8"), ("event", "u1")]))["event"].tolist()
    [2, 4]
    """
    return pd.DataFrame({name: records[name].copy() for name in records.dtype.names or ()}, copy=False)


def csv_text(frame: pd.DataFrame) -> str:
    """Return a table of two columns or more as CSV with a header, as ``frame.to_csv(index=False)`` does.

    Examples
    --------
    >>> print(csv_text(pd.DataFrame({"snd_una": [1, 1, 1449], "mode": ["STARTUP", None, 'a "b", c']})), end="")
    snd_una,mode
    1,STARTUP
    1,
    1449,"a ""b"", c"
    """
    rows = map(",".join, zip(*(_cells(frame[column]) for column in frame), strict=True))
    return "\n".join([",".join(map(_quoted, frame.columns)), *rows, ""])


def _cells(column: pd.Series) -> list[str]:
    whole = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iub"
    text = str if whole else _text  # of whole numbers none is missing or has a comma
    if column.dtype == object:  # of whatever: lists have no hash
        return list(map(text, column.tolist()))
    codes, values = pd.factorize(column)
    if _REPEATS * len(values) > len(column):
        return list(map(text, column.tolist()))
    texts = [*map(text, values.tolist()), ""]  # the last is that of code -1: missing
    return [texts[code] for code in codes.tolist()]


def _text(value: Any) -> str:
    return "" if value is None or value is pd.NA or value != value else _quoted(str(value))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _QUOTED.intersection(text) else text
