"""Columns of integers kept packed: their values are made anew when they are asked for.

A block of rows keeps all values, or those of its runs of equal ones, as differences in as few bytes as hold them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from cctrace.columns import Values

BLOCK = 1 << 15  # rows
_TRIED = 64  # values that mostly show whether there are more than two
_WIDTHS = tuple(map(np.dtype, ("u1", "u2", "u4", "u8")))


class Packed(NamedTuple):
    """A column.

    >>> column = Packed.of(np.array([7, 7, 9]))
    >>> len(column.blocks), column.part(1, 3).tolist()
    (1, [7, 9])
    """

    blocks: list[Block]
    dtype: np.dtype[Any]
    rows: int

    @classmethod
    def of(cls, values: Values) -> Packed:
        """Pack integers."""
        parts = (values[begin : begin + BLOCK] for begin in range(0, len(values), BLOCK))
        return cls([Block.of(np.ascontiguousarray(part)) for part in parts], values.dtype, len(values))

    @classmethod
    def of_records(cls, records: Values, names: Collection[str]) -> dict[str, Packed]:
        """Pack columns of records, all of a block while it is in the processor's cache."""
        columns = {name: cls([], records.dtype[name], len(records)) for name in names}
        for begin in range(0, len(records), BLOCK):
            block = records[begin : begin + BLOCK]
            for name, column in columns.items():
                column.blocks.append(Block.of(np.ascontiguousarray(block[name])))
        return columns

    def part(self, begin: int, end: int) -> Values:
        """Return the values of the rows from `begin` to before `end`."""
        first = begin - begin % BLOCK
        values = np.empty(min(-(-end // BLOCK) * BLOCK, self.rows) - first, self.dtype)
        for at in range(first, end, BLOCK):
            self.blocks[at // BLOCK].write(values[at - first : at - first + BLOCK])
        return values[begin - first : end - first]


class Columns(Mapping[str, "Values"]):
    """Columns of one length, of which those of integers may be packed.

    >>> columns = Columns({"seq": np.array([1, 1449]), "ttl": np.array([64, 64])})
    >>> columns.pack(["ttl"])
    >>> list(columns), columns["ttl"].tolist(), columns.first("ttl", 1).tolist()
    (['seq', 'ttl'], [64, 64], [64])
    """

    def __init__(self, columns: Mapping[str, Values]) -> None:
        self._kept: dict[str, Values | Packed] = dict(columns)

    def __getitem__(self, name: str) -> Values:
        found = self._kept[name]
        return found.part(0, found.rows) if isinstance(found, Packed) else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def first(self, name: str, rows: int) -> Values:
        """Return the first rows of a column."""
        found = self._kept[name]
        return found.part(0, min(rows, found.rows)) if isinstance(found, Packed) else found[:rows]

    @property
    def rows(self) -> int:
        """How long each column is."""
        found = next(iter(self._kept.values()))
        return found.rows if isinstance(found, Packed) else len(found)

    def pack(self, names: Collection[str]) -> None:
        """Pack the named columns."""
        for name in names:
            if not isinstance(found := self._kept[name], Packed):
                self._kept[name] = Packed.of(found)

    def replace(self, columns: Mapping[str, Values]) -> None:
        """Exchange columns; those that were packed are packed anew."""
        packed = [name for name in columns if isinstance(self._kept[name], Packed)]
        self._kept |= columns
        self.pack(packed)


class Block(NamedTuple):
    """A column of a block: its values, or those of its runs and how long each is."""

    numbers: Numbers
    lengths: Values | None

    @classmethod
    def of(cls, values: Values) -> Block:
        """Pack integers."""
        every = Numbers.of(values)
        if not every.nbytes:
            return cls(every, None)
        begins = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
        if len(begins) >= every.nbytes:  # the length of a run takes a byte or more
            return cls(every, None)
        lengths = np.diff(begins, append=len(values))
        runs, lengths = Numbers.of(values[begins]), lengths.astype(np.min_scalar_type(lengths.max()))
        return cls(runs, lengths) if runs.nbytes + lengths.nbytes < every.nbytes else cls(every, None)

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return self.numbers.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    def write(self, out: Values) -> None:
        """Write the values."""
        if self.lengths is None:
            self.numbers.write(out)
        else:
            values = np.empty(len(self.lengths), out.dtype)
            self.numbers.write(values)
            out[:] = np.repeat(values, self.lengths)


class Numbers(NamedTuple):
    """Integers in as few bytes as hold their differences from the least one, or from one to the next; bits if only two.

    >>> [Numbers.of(np.array(values)).nbytes for values in ([7, 7, 7], [9, 1, 9], [1, 3, 2], [0, 1000, 2001])]
    [0, 1, 3, 2]
    """

    first: int  # the least one, or with `step` the first one
    step: int | None  # the least difference from one to the next; None: `more` counts from `first`
    unit: int  # what each bit of `more` stands for; 0: these are no bits
    more: Values | None  # beyond `first`, or beyond `step` from the one before; None: nothing

    @classmethod
    def of(cls, values: Values) -> Numbers:
        """Pack integers."""
        least, most = int(values.min()), int(values.max())
        if least == most:
            return cls(least, None, 0, None)
        if _are(values[:_TRIED], least, most) and _are(values, least, most):
            return cls(least, None, most - least, np.packbits(values == most))
        dtype = _narrowest(most - least)
        if dtype.itemsize > 1:
            steps = np.diff(values.astype(np.int64, copy=False))
            step, largest = int(steps.min()), int(steps.max())
            narrower = _narrowest(largest - step)
            if step == largest:
                return cls(int(values[0]), step, 0, None)
            if narrower.itemsize < dtype.itemsize:
                return cls(int(values[0]), step, 0, (steps - step).astype(narrower))
        return cls(least, None, 0, (values - values.dtype.type(least)).astype(dtype))

    @property
    def nbytes(self) -> int:
        """What they take."""
        return 0 if self.more is None else self.more.nbytes

    def write(self, out: Values) -> None:
        """Write the values."""
        if self.step is not None:
            values = np.empty(len(out), np.int64)
            values[0], values[1:] = self.first, self.step
            if self.more is not None:
                values[1:] += self.more
            np.cumsum(values, out=values)
            out[:] = values
        elif self.more is None:
            out[:] = self.first
        elif self.unit:
            both = np.array([self.first, self.first + self.unit], out.dtype)
            np.take(both, np.unpackbits(self.more, count=len(out)), out=out)
        else:
            np.add(self.more.astype(out.dtype, copy=False), out.dtype.type(self.first), out=out)


def _are(values: Values, one: int, other: int) -> bool:
    """Return whether all values are one of two."""
    return np.count_nonzero(values == one) + np.count_nonzero(values == other) == len(values)


def _narrowest(span: int) -> np.dtype[Any]:
    """Return the narrowest unsigned integers that hold 0 to `span`."""
    return next((dtype for dtype in _WIDTHS if span <= np.iinfo(dtype).max), _WIDTHS[-1])
