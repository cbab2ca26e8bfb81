"""Columns of integers kept packed: their values are made anew when they are asked for.

A block of rows keeps the runs of equal values, or all values, as differences from the least one in as few bytes as hold
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cctrace.columns import Values

BLOCK = 1 << 15  # rows
_WIDTHS = (np.uint8, np.uint16, np.uint32)


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
    >>> list(columns), columns["ttl"].tolist()
    (['seq', 'ttl'], [64, 64])
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
    """A column of a block: the least value, what is to be added to it, and where that changes; None: nowhere."""

    least: Any
    more: Values | None
    begins: NDArray[np.uint16] | None

    @classmethod
    def of(cls, values: Values) -> Block:
        """Pack integers."""
        least, most = values.min(), values.max()
        if least == most:
            return cls(least, None, None)
        span = int(most) - int(least)
        width = next((width for width in _WIDTHS if span <= np.iinfo(width).max), None)
        begins = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
        size = np.dtype(width or values.dtype).itemsize
        in_runs = len(begins) * (size + 2) < len(values) * size
        kept = values[begins] if in_runs else values
        if width is None:
            least, kept = values.dtype.type(0), kept.copy()
        else:
            kept = (kept - least).astype(width)
        return cls(least, kept, begins.astype(np.uint16) if in_runs else None)

    def write(self, out: Values) -> None:
        """Write the values."""
        if self.more is None:
            out[:] = self.least
            return
        more = self.more
        if self.begins is not None:
            ends = np.append(self.begins[1:], len(out)).astype(np.int64)
            more = np.repeat(more, ends - self.begins)
        np.add(more, self.least, out=out, casting="unsafe")
