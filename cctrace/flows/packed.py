"""The rows of an event stream, packed once no replay reads them: an eighth of their memory.

Most columns change with each ACK or less often, by little. A block of rows keeps of each the runs of equal values, or
all values, as differences from the least one in as few bytes as hold them. A column is made when it is asked for, which
takes less time than to gather it from records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cctrace.columns import Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 15  # rows
_WIDTHS = (np.uint8, np.uint16, np.uint32)


class Stream(Mapping[str, Values]):
    """Records by column, shared by all who read them, until and after they are packed.

    >>> rows = np.array([(7, 1), (7, 2), (9, 3)], [("time_ns", "i8"), ("event", "u1")])
    >>> stream = Stream(rows)
    >>> stream.pack()
    >>> stream["time_ns"].tolist(), bool((stream.rows == rows).all()), stream.part(1, 3)["event"].tolist()
    ([7, 7, 9], True, [2, 3])
    """

    def __init__(self, rows: Values) -> None:
        self.dtype, self.count = rows.dtype, len(rows)
        self._rows: Values | None = rows
        self._blocks: dict[str, list[_Block]] = {}

    @property
    def is_packed(self) -> bool:
        """Whether the rows are kept packed."""
        return self._rows is None

    @property
    def rows(self) -> Values:
        """The records; of a packed stream they are made anew."""
        if self._rows is not None:
            return self._rows
        found = np.empty(self.count, self.dtype)
        for begin in range(0, self.count, BLOCK):
            for name, blocks in self._blocks.items():
                blocks[begin // BLOCK].write(found[name][begin : begin + BLOCK])
        return found

    def __getitem__(self, name: str) -> Values:
        if self._rows is not None:
            return self._rows[name]
        return self._column(name, 0, self.count)

    def __iter__(self) -> Iterator[str]:
        return iter(self.dtype.names or ())

    def __len__(self) -> int:
        return len(self.dtype.names or ())

    def part(self, begin: int, end: int) -> dict[str, Values]:
        """Return the columns of the rows from `begin` to before `end`."""
        end = min(end, self.count)
        if self._rows is not None:
            return {name: self._rows[name][begin:end] for name in self}
        return {name: self._column(name, begin, end) for name in self}

    def pack(self) -> None:
        """Keep the rows packed."""
        if self._rows is None:
            return
        self._blocks = {name: [] for name in self}
        for begin in range(0, self.count, BLOCK):
            block = self._rows[begin : begin + BLOCK]
            for name, blocks in self._blocks.items():
                blocks.append(_Block.of(np.ascontiguousarray(block[name])))
        self._rows = None

    def _column(self, name: str, begin: int, end: int) -> Values:
        dtype: np.dtype[Any] = self.dtype[name]
        first = begin - begin % BLOCK
        values = np.empty(min(-(-end // BLOCK) * BLOCK, self.count) - first, dtype)
        for at in range(first, end, BLOCK):
            self._blocks[name][at // BLOCK].write(values[at - first : at - first + BLOCK])
        return values[begin - first : end - first]


class _Block(NamedTuple):
    """A column of a block: the least value, what is to be added to it, and where that changes; None: nowhere."""

    least: Any
    more: Values | None
    begins: NDArray[np.uint16] | None

    @classmethod
    def of(cls, values: Values) -> _Block:
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
