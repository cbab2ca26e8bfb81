"""Tables as numpy columns, converted to a DataFrame on request; runs of equal and of true values in a column.

pandas takes half a second to import, a quarter of the rest of a flow's analysis.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cctrace.schema import MISSING

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[Any]  # a column
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Columns = dict[str, Values]
Table = Mapping[str, Values]  # the same, perhaps `Held`

LONG = 300_000  # rows of a flow from which on memory counts
_ARENA_MAX = -8  # M_ARENA_MAX of <malloc.h>
_HUGE = 1 << 21  # bytes of a huge page
_HAS_HUGE = hasattr(mmap, "MADV_HUGEPAGE")  # Linux


class Runs(NamedTuple):
    """A column as runs of equal values: the row at which each begins, and its value."""

    begins: Ints
    value: Values

    def at(self, rows: Ints) -> Values:
        """Return the values at these rows."""
        return self.value[np.searchsorted(self.begins, rows, side="right") - 1]

    def joined(self) -> Runs:
        """Return these with neighbours of one value as one run."""
        begins = np.append(True, self.value[1:] != self.value[:-1])[: len(self.value)]
        return Runs(self.begins[begins], self.value[begins])


class Held(Mapping[str, Values]):
    """Columns, of which those kept as runs, or `made` by a function of rows (from, to before), are made when asked for.

    >>> held = Held(5, {"time_ns": np.arange(5)}, {"mode": Runs(np.array([0, 3]), np.array([7, 9]))})
    >>> held["mode"].tolist(), held.part(2, 4)["mode"].tolist(), list(held)
    ([7, 7, 7, 9, 9], [7, 9], ['time_ns', 'mode'])
    """

    def __init__(
        self,
        count: int,
        plain: Columns,
        runs: Mapping[str, Runs],
        made: Mapping[str, Callable[[int, int], Values]] = MappingProxyType({}),
    ) -> None:
        self.count, self.plain, self.runs, self.made = count, plain, runs, made

    def __getitem__(self, name: str) -> Values:
        if name in self.made:
            return self.made[name](0, self.count)
        if name in self.plain:
            return self.plain[name]
        begins, values = self.runs[name]
        return np.repeat(values, np.diff(begins, append=self.count))

    def __iter__(self) -> Iterator[str]:
        yield from self.made
        yield from self.plain
        yield from self.runs

    def __len__(self) -> int:
        return len(self.made) + len(self.plain) + len(self.runs)

    def only(self, *names: str) -> Held:
        """Return these with the named columns alone."""
        chosen: Any = ({name: of[name] for name in names if name in of} for of in (self.plain, self.runs, self.made))
        return Held(self.count, *chosen)

    def changes(self, *names: str) -> Ints:
        """Return rows that suffice to draw columns as steps: where one may change or has no value, and the last row.

        >>> held = Held(5, {}, {"bw": Runs(np.array([0, 2]), np.array([np.nan, 7.0]))})
        >>> held.changes("bw").tolist(), held.at("bw", np.array([1, 4])).tolist()
        ([0, 1, 2, 4], [nan, 7.0])
        """
        found = [np.arange(max(self.count - 1, 0), self.count)]
        for name in names:
            if name not in self.runs:
                return np.arange(self.count)
            begins, values = self.runs[name]
            unknown = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
            found.append(rows_of_spans(begins, np.where(unknown, np.diff(begins, append=self.count), 1)))
        return np.unique(np.concatenate(found))

    def at(self, name: str, rows: Ints) -> Values:
        """Return a column's values at these rows."""
        return self.runs[name].at(rows) if name in self.runs else self[name][rows]

    def part(self, begin: int, end: int) -> Held:
        """Return these columns from row `begin` to before row `end`."""
        runs, end = {}, min(end, self.count)
        for name, (begins, values) in self.runs.items():
            first, last = np.searchsorted(begins, [begin, end - 1], side="right")
            runs[name] = Runs(np.maximum(begins[first - 1 : last] - begin, 0), values[first - 1 : last])
        plain = {name: values[begin:end] for name, values in self.plain.items()}
        made = {name: make(begin, max(begin, end)) for name, make in self.made.items()}
        return Held(max(end - begin, 0), made | plain, runs)


def room(rows: int, dtype: DTypeLike) -> Values:
    """Return a column to be filled, a long one in huge pages that are its own; see `cut`.

    Those of `np.empty` begin wherever the one before ended: of ten megabytes, three or four are then in small pages,
    which take five times as long to hand out and to free.
    """
    dtype = np.dtype(dtype)
    size = -(-rows * dtype.itemsize // _HUGE) * _HUGE
    if not _HAS_HUGE or rows * dtype.itemsize < _HUGE // 2:
        return np.empty(rows, dtype)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # of whole huge pages: so aligned
    except OSError as error:  # as `np.empty` says it
        raise MemoryError(f"no memory for a column of {size} bytes") from error
    with contextlib.suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.ndarray(rows, dtype, memory)


def cut(column: Values, rows: int) -> Values:
    """Return the first rows of a column that `room` returned, and give back the memory of the others."""
    if isinstance(column.base, mmap.mmap):
        trim(column, rows)
        return column[:rows]
    column.resize(rows, refcheck=False)
    return column


def trim(column: Values, rows: int) -> None:
    """Give back the memory behind the first rows of a column that `room` returned, if it is in pages of its own."""
    used = -(-rows * column.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    if isinstance(column.base, mmap.mmap) and used < len(column.base):
        column.base.madvise(mmap.MADV_DONTNEED, used, len(column.base) - used)


def give_back(rows: int = LONG + 1) -> None:
    """Give freed memory back to the system where the C library can (glibc); else the process keeps most of it.

    `rows`: of the flow that had it; no more than `LONG` are not worth the time.
    """
    if rows <= LONG:
        return
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def share_heap() -> None:
    """Let threads allocate from heaps that there are already (glibc), and Arrow too: what is freed in one serves all.

    Each thread's own heap keeps the largest that it ever held; of a million packets two threads have 40 MB, and Arrow's
    own has 25 MB for any table. This holds for the whole process from then on, so a command may ask for it, but not a
    library in another's process.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # which Arrow reads when it is imported
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def frame_of(columns: Mapping[str, Any], nullable: Collection[str] = ()) -> pd.DataFrame:
    """Return columns as a DataFrame.

    `nullable`: columns whose values may be `MISSING` where they are int64: these become Int64, and such a value NA.

    >>> frame_of({"snd_cwnd": np.array([10, MISSING])}, nullable=["snd_cwnd"])["snd_cwnd"].tolist()
    [10, <NA>]
    """
    import pandas as pd

    made: dict[str, Any] = dict(columns)
    for name in nullable:
        values = columns[name]
        if values.dtype == np.int64:
            gap = values == MISSING
            made[name] = pd.arrays.IntegerArray(np.where(gap, 0, values), gap)
    return pd.DataFrame(made)


def runs_of_true(mask: ArrayLike) -> tuple[Ints, Ints]:
    """Return the place where each run of true values begins, and the place behind its last one.

    >>> begins, ends = runs_of_true([True, False, True, True])
    >>> begins.tolist(), ends.tolist()
    ([0, 2], [1, 4])
    """
    edges = np.flatnonzero(np.diff(np.asarray(mask, np.int8), prepend=0, append=0))
    return edges[::2], edges[1::2]


def last_true(mask: ArrayLike, before: int = -1) -> Ints:
    """Return for each place the last one up to it where a mask is true; `before` the first of them.

    >>> last_true([False, True, False, True, False]).tolist()
    [-1, 1, 1, 3, 3]
    """
    found = np.arange(len(np.asarray(mask)))
    found[~np.asarray(mask)] = before
    return np.maximum.accumulate(found)


def distinct(ascending: Ints) -> Ints:
    """Return the distinct values of an ascending array, as ``np.unique``, which would sort or hash them.

    >>> distinct(np.array([4, 4, 7, 9, 9]))
    array([4, 7, 9])
    """
    return ascending[np.append(True, ascending[1:] != ascending[:-1])[: len(ascending)]]


def rows_of_spans(first: ArrayLike, count: Ints) -> Ints:
    """Return the rows of spans, one after another: of each its first row, and how many it has.

    >>> rows_of_spans([7, 20], np.array([3, 2])).tolist(), rows_of_spans(0, np.array([3, 2])).tolist()
    ([7, 8, 9, 20, 21], [0, 1, 2, 0, 1])
    """
    return np.repeat(np.asarray(first, np.int64) - (np.cumsum(count) - count), count) + np.arange(count.sum())


def longest_run(mask: ArrayLike) -> int:
    """Return the length of the longest run of true values, 0 without one.

    >>> longest_run([True, False, True, True])
    2
    """
    begins, ends = runs_of_true(mask)
    return int((ends - begins).max(initial=0))


def spans_of(time_s: NDArray[np.float64], names: ArrayLike) -> list[tuple[float, float, str]]:
    """Return (start_s, end_s, name) of equal neighbours joined; each span lasts until the next one begins.

    >>> spans_of(np.array([0.0, 1.0, 2.0]), ["STARTUP", "STARTUP", "DRAIN"])
    [(0.0, 2.0, 'STARTUP'), (2.0, 2.0, 'DRAIN')]
    """
    name_of = np.asarray(names, dtype=object)
    if not len(name_of):
        return []
    starts = np.concatenate(([0], np.flatnonzero(name_of[1:] != name_of[:-1]) + 1))
    ends = np.append(time_s[starts[1:]], time_s[-1])
    return [(float(time_s[a]), float(b), str(name_of[a])) for a, b in zip(starts, ends, strict=True)]
