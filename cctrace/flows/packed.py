"""The rows of an event stream: calls, and the states that they share; packed once no replay reads them.

An ACK makes two or three calls, which differ in a few columns (`state.CALL`), and in whether they come after its rate
sample; the rest is kept once, and what mostly stays from one ACK to the next (`state.STEADY`) once until it changes.
Packed, a stream takes a seventh of that, as most columns change with each ACK or less often, by little (`blocks`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cctrace.blocks import BLOCK, Packed
from cctrace.columns import Columns, Ints, Values
from cctrace.flows.state import CALL, EVENT, STATE, STEADY, UNSAMPLED

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_CALLS, _STEADY = frozenset(CALL.names or ()) - {"of"}, frozenset(STEADY.names or ())


class EventColumns(Mapping[str, Values]):
    """The columns of an event stream, shared by all who read them, until and after they are packed.

    `calls`, `states`, `steady`: records of `state.CALL`, `STATE` and `STEADY`; `of` and `steady` ascend.

    >>> rows = np.zeros(3, EVENT)
    >>> rows["time_ns"], rows["event"] = [7, 7, 9], [1, 2, 3]
    >>> stream = EventColumns.of(rows)
    >>> stream.pack()
    >>> stream["time_ns"].tolist(), bool((stream.rows == rows).all()), stream.part(1, 3)["event"].tolist()
    ([7, 7, 9], True, [2, 3])
    """

    def __init__(self, calls: Values, states: Values, steady: Values) -> None:
        self.count, self._calls, self._states, self._steady = len(calls), *map(Records, (calls, states, steady))

    @classmethod
    def of(cls, rows: Values) -> EventColumns:
        """Return the stream of records of `state.EVENT`."""
        calls, states, steady = (np.empty(len(rows), dtype) for dtype in (CALL, STATE, STEADY))
        for name in EVENT.names or ():
            (calls if name in _CALLS else steady if name in _STEADY else states)[name] = rows[name]
        calls["sampled"] = np.any([rows[name] != value for name, value in UNSAMPLED.items()], axis=0)
        calls["of"] = states["steady"] = np.arange(len(rows))
        return cls(calls, states, steady)

    def first(self, rows: int) -> EventColumns:
        """Return the first rows."""
        calls, states, steady = self.tables
        calls = calls[:rows]
        states = states[: int(calls["of"].max(initial=0)) + 1]
        return EventColumns(calls, states, steady[: int(states["steady"].max(initial=0)) + 1])

    @property
    def is_packed(self) -> bool:
        """Whether the rows are kept packed."""
        return self._calls.is_packed

    @property
    def tables(self) -> tuple[Values, Values, Values]:
        """Calls, states, and what of these is steady; of a packed stream they are made anew."""
        calls = self._calls.records
        if self.is_packed:
            calls["of"] = np.repeat(np.arange(len(self._states)), self._shared)
        return calls, self._states.records, self._steady.records

    @property
    def rows(self) -> Values:
        """Records of `state.EVENT`, made anew."""
        found = np.empty(self.count, EVENT)
        for name, values in self.items():
            found[name] = values
        return found

    def __getitem__(self, name: str) -> Values:
        if name in _CALLS:
            return self._calls[name]
        values = np.repeat(self._of_states(name), self._shared)
        if name in UNSAMPLED:
            values[self._calls["sampled"] == 0] = UNSAMPLED[name]
        return values

    @functools.cached_property
    def _shared(self) -> Values:
        """How many rows share each state. To repeat states takes a tenth of the time of gathering them by number."""
        shared = np.zeros(len(self._states), np.uint32)
        for begin in range(0, self.count, BLOCK):  # not at once: counting takes eight bytes a row
            of = self._calls.column("of", begin, begin + BLOCK)
            shared[of[0] : of[-1] + 1] += np.bincount(of - of[0]).astype(np.uint32)
        return shared.astype(np.min_scalar_type(shared.max(initial=0)))

    def __iter__(self) -> Iterator[str]:
        return iter(EVENT.names or ())

    def __len__(self) -> int:
        return len(EVENT.names or ())

    def at(self, name: str, rows: ArrayLike) -> Values:
        """Return a column's values at some rows, by their numbers or a mask."""
        rows = np.asarray(rows)
        return self._calls[name][rows] if name in _CALLS else self.gathered(name, rows, self.states_of(rows))

    def states_of(self, rows: Values) -> Values:
        """Return the numbers of the states of some rows, which `gathered` takes."""
        if self.is_packed:
            return np.repeat(np.arange(len(self._states), dtype=np.uint32), self._shared)[rows]
        return self._calls["of"][rows]

    def gathered(self, name: str, rows: Values, of: Values) -> Values:
        """Return a column's values at some rows, whose states have the numbers `of`."""
        if name in _CALLS:
            return self._calls[name][rows]
        values = self._steady[name][self._states["steady"][of]] if name in _STEADY else self._states[name][of]
        if name in UNSAMPLED:
            values[self._calls["sampled"][rows] == 0] = UNSAMPLED[name]
        return values

    def column(self, name: str, begin: int, end: int) -> Values:
        """Return a column of the rows from `begin` to before `end`."""
        return self[name] if (begin, end) == (0, self.count) else self.part(begin, end, (name,))[name]

    def part(self, begin: int, end: int, names: Collection[str] = EVENT.names or ()) -> Columns:
        """Return columns of the rows from `begin` to before `end`."""
        end = min(end, self.count)
        of = self._states_of(begin, end) if self.is_packed else self._calls["of"][begin:end]
        first, last = (int(of[0]), int(of[-1]) + 1) if len(of) else (0, 0)
        found = {}
        for name in names:
            if name in _CALLS:
                found[name] = self._calls.column(name, begin, end)
            else:
                found[name] = self._of_states(name, first, last)[of - first]
            if name in UNSAMPLED:
                found[name][self._calls.column("sampled", begin, end) == 0] = UNSAMPLED[name]
        return found

    def pack(self) -> None:
        """Keep the rows packed."""
        _ = self._shared  # which is found by the numbers of the states
        self._calls.pack(_CALLS)
        self._states.pack()
        self._steady.pack()

    def _of_states(self, name: str, first: int = 0, last: int | None = None) -> Values:
        last = len(self._states) if last is None else last
        if name not in _STEADY:
            return self._states.column(name, first, last)
        return self._steady[name][self._states.column("steady", first, last)]

    def _states_of(self, begin: int, end: int) -> Ints:
        """Return the numbers of the states of some rows of a packed stream."""
        ends = np.cumsum(self._shared, dtype=np.int64)
        first, last = np.searchsorted(ends, [begin, max(end - 1, begin)], "right")
        to = np.clip(ends[first : last + 1], begin, end)
        return np.repeat(np.arange(first, first + len(to)), to - np.append(begin, to)[:-1])


class Records:
    """Records of numbers, shared by all who read them, until and after they are packed.

    >>> table = Records(np.array([(7, 1), (9, 1)], [("time_ns", "i8"), ("segments", "u4")]))
    >>> table.pack()
    >>> len(table), table["time_ns"].tolist(), table.records.tolist()
    (2, [7, 9], [(7, 1), (9, 1)])
    """

    def __init__(self, records: Values) -> None:
        self._records: Values | None = records
        self._type, self._count = records.dtype, len(records)
        self._packed: dict[str, Packed] = {}
        self._made: Callable[[], Values | None] = _nothing

    def __len__(self) -> int:
        return self._count

    @property
    def is_packed(self) -> bool:
        """Whether they are kept packed."""
        return self._records is None

    @property
    def records(self) -> Values:
        """The records; of packed ones the same array as long as somebody holds it."""
        found = self._made() if self._records is None else self._records
        if found is None:
            found = np.empty(self._count, self._type)
            for name in self._packed:
                found[name] = self[name]
            self._made = weakref.ref(found)
        return found

    def __getitem__(self, name: str) -> Values:
        return self.column(name, 0, self._count)

    def column(self, name: str, begin: int, end: int) -> Values:
        """Return a part of a column."""
        if self._records is not None:
            return self._records[name][begin:end]
        return self._packed[name].part(begin, end)

    def pack(self, names: Collection[str] | None = None) -> None:
        """Keep their columns packed, by default all."""
        if self._records is None:
            return
        self._packed = Packed.of_records(self._records, names or self._type.names or ())
        self._records = None


def _nothing() -> None:
    """Return what a reference to an array that is gone does."""
