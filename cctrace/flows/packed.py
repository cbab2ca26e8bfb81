"""The rows of an event stream in two tables, calls and the states that they share; packed once no replay reads them.

An ACK makes two or three calls, which differ in an eighth of their columns (`state.CALL`); the rest is kept once.
Packed, a stream takes a third of that: most columns change with each ACK or less often, by little. A block of rows
keeps of each the runs of equal values, or all values, as differences from the least one in as few bytes as hold them. A
column is made when it is asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cctrace.columns import Values
from cctrace.flows.state import CALL, EVENT, STATE

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

BLOCK = 1 << 15  # rows
_WIDTHS = (np.uint8, np.uint16, np.uint32)
_CALLS = frozenset(CALL.names or ())


class EventColumns(Mapping[str, Values]):
    """The columns of an event stream, shared by all who read them, until and after they are packed.

    `calls`, `states`: records of `state.CALL` and `state.STATE`; `of` ascends.

    >>> rows = np.zeros(3, EVENT)
    >>> rows["time_ns"], rows["event"] = [7, 7, 9], [1, 2, 3]
    >>> stream = EventColumns.of(rows)
    >>> stream.pack()
    >>> stream["time_ns"].tolist(), bool((stream.rows == rows).all()), stream.part(1, 3)["event"].tolist()
    ([7, 7, 9], True, [2, 3])
    """

    def __init__(self, calls: Values, states: Values) -> None:
        self.count = len(calls)
        self._tables: tuple[Values, Values] | None = (calls, states)
        self._blocks: dict[str, list[_Block]] = {}
        self._size = len(states)

    @classmethod
    def of(cls, rows: Values) -> EventColumns:
        """Return the stream of records of `state.EVENT`."""
        calls, states = np.empty(len(rows), CALL), np.empty(len(rows), STATE)
        for name in EVENT.names or ():
            (calls if name in _CALLS else states)[name] = rows[name]
        calls["of"] = np.arange(len(rows))
        return cls(calls, states)

    def first(self, rows: int) -> EventColumns:
        """Return the first rows."""
        calls, states = self.tables
        return EventColumns(calls[:rows], states[: int(calls["of"][:rows].max(initial=0)) + 1])

    @property
    def is_packed(self) -> bool:
        """Whether the rows are kept packed."""
        return self._tables is None

    @property
    def tables(self) -> tuple[Values, Values]:
        """Calls and states; of a packed stream they are made anew."""
        if self._tables is not None:
            return self._tables
        calls, states = np.empty(self.count, CALL), np.empty(self._size, STATE)
        for table in (calls, states):
            for name in set(table.dtype.names or ()) - {"of"}:
                table[name] = self._column(name, 0, len(table), len(table))
        calls["of"] = np.repeat(np.arange(self._size), self._shared)
        return calls, states

    @property
    def rows(self) -> Values:
        """Records of `state.EVENT`, made anew."""
        found = np.empty(self.count, EVENT)
        for name, values in self.items():
            found[name] = values
        return found

    def __getitem__(self, name: str) -> Values:
        if self._tables is None:
            count = self.count if name in _CALLS else self._size
            values = self._column(name, 0, count, count)
        else:
            calls, states = self._tables
            values = (calls if name in _CALLS else states)[name]
        return values if name in _CALLS else np.repeat(values, self._shared)

    @functools.cached_property
    def _shared(self) -> Values:
        """How many rows share each state. To repeat states takes a tenth of the time of gathering them by number."""
        shared = np.bincount(self.tables[0]["of"], minlength=self._size)
        return shared.astype(np.min_scalar_type(shared.max(initial=0)))

    def __iter__(self) -> Iterator[str]:
        return iter(EVENT.names or ())

    def __len__(self) -> int:
        return len(EVENT.names or ())

    def at(self, name: str, rows: ArrayLike) -> Values:
        """Return a column's values at some rows, by their numbers or a mask."""
        rows = np.asarray(rows)
        if name in _CALLS or self._tables is None:
            return self[name][rows]
        calls, states = self._tables
        return states[name][calls["of"][rows]]

    def part(self, begin: int, end: int) -> dict[str, Values]:
        """Return the columns of the rows from `begin` to before `end`."""
        end = min(end, self.count)
        if self._tables is not None:
            calls, states = self._tables
            calls = calls[begin:end]
            return {name: calls[name] if name in _CALLS else states[name][calls["of"]] for name in self}
        of = self._states_of(begin, end)
        first, last = (int(of[0]), int(of[-1]) + 1) if len(of) else (0, 0)
        found = {}
        for name in self:
            if name in _CALLS:
                found[name] = self._column(name, begin, end, self.count)
            else:
                found[name] = self._column(name, first, last, self._size)[of - first]
        return found

    def pack(self) -> None:
        """Keep the rows packed."""
        if self._tables is None:
            return
        for table in self._tables:
            for name in table.dtype.names or ():
                parts = (table[name][begin : begin + BLOCK] for begin in range(0, len(table), BLOCK))
                if name != "of":
                    self._blocks[name] = [_Block.of(np.ascontiguousarray(part)) for part in parts]
        _ = self._shared  # which is found by the numbers of the states
        self._tables = None

    def _states_of(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the numbers of the states of some rows of a packed stream."""
        ends = np.cumsum(self._shared, dtype=np.int64)
        first, last = np.searchsorted(ends, [begin, max(end - 1, begin)], "right")
        to = np.clip(ends[first : last + 1], begin, end)
        return np.repeat(np.arange(first, first + len(to)), to - np.append(begin, to)[:-1])

    def _column(self, name: str, begin: int, end: int, count: int) -> Values:
        """Return a part of a packed column of a table of `count` records."""
        first = begin - begin % BLOCK
        values = np.empty(min(-(-end // BLOCK) * BLOCK, count) - first, EVENT[name])
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
