"""A controller at a row of a view: run it to any row, restore it, choose its random draws.

For each row: the observed values of what the stack also writes (`View.carried`) are set on the controller, `draws`
is zeroed, the entry point is called if the class defines it, outputs are recorded, and the stack handles the
returned value: `ssthresh` stores it in snd_ssthresh, `undo_cwnd` in snd_cwnd. `follow` handles recorded flows.
"""

import copy
import itertools
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cctrace import schema
from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller, param_fields
from cctrace.errors import CompileError, StreamError
from cctrace.flows.views import CARRIED, View
from cctrace.lang.compile import EVENTS, RETURN_STORED_IN, compiled
from cctrace.lang.fields import RETURNED, check_mode, debug_class, fields_of, mistyped, recordable

_CHUNK = 16_384  # rows converted to Python integers at a time


class Player:
    """A controller at a row of a view.

    Parameters
    ----------
    controller : str or type
        See `cctrace.cc.controller`.
    mode : "compiled", "interpreted" or "debug"
        Debug is interpreted, with the type and range of every assignment checked.
    record : sequence of str
        What to record after every call: fields, elements of array fields (``"bw_v[0]"``), ``"o_ret"``.
    **params
        Parameters of the controller.

    Attributes
    ----------
    row : int
        The next row to be called.
    controller : type
        The class that is called.
    warnings : list of str

    Raises
    ------
    ArgumentError
        If the controller, a parameter, the mode or a name to record is unknown.
    StreamError
        If the controller is of the other stack, or reads a column that the view lacks.

    Examples
    --------
    Run some rows, and restore the state:

    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0)
    >>> player = Player(flow.view("quic"), "quic_bbr", record=["pacing_gain"])
    >>> row = player.run(1000)
    >>> before = player.save()
    >>> _ = player.run(5000)
    >>> player.restore(before)
    >>> player.row == row
    True
    """

    def __init__(
        self,
        view: View,
        controller: str | type[Controller],
        *,
        mode: str = "compiled",
        record: Sequence[str] = (),
        **params: Any,
    ) -> None:
        check_mode(mode)
        cls, given = resolve(controller)
        machine = CompiledMachine if mode == "compiled" else InterpretedMachine
        self.view = view.view(cls.view)
        self.row = 0
        self.controller = cls
        self._draws: dict[str, NDArray[np.int64]] = {}
        self._machine = machine(debug_class(cls) if mode == "debug" else cls, given | params, self.view, list(record))
        self.warnings = self._machine.warnings

    def run(self, stop: int | None = None, stop_at_draw: bool = False) -> int:
        """Call rows from `row` up to `stop` (default: all); return the next row.

        With `stop_at_draw` it stops *before* the first call that draws a random number. Set the draw, then run one
        row without `stop_at_draw`.
        """
        stop = len(self.view) if stop is None else min(stop, len(self.view))
        self.row = self._machine.run(self.row, stop, stop_at_draw)
        return self.row

    def set_draw(self, row: int, value: int, which: int = 0) -> None:
        """Set raw random number `which` of the call at `row` to `value`; the view itself is not changed."""
        if not self._draws:
            self._draws = {f"rand{k}": self.view.columns[f"rand{k}"].copy() for k in range(4)}
            self._machine.replace_columns(self._draws)
        self._draws[f"rand{which}"][row] = value

    def save(self) -> tuple[int, Any]:
        """Return the position and the state, for `restore`."""
        return self.row, self._machine.save()

    def restore(self, saved: tuple[int, Any]) -> None:
        """Go back to where `save` was called; rows recorded since then are overwritten by the next `run`."""
        self.row, state = saved
        self._machine.restore(state)

    @property
    def recorded(self) -> dict[str, NDArray[Any]]:
        """The recorded values after each call so far: {name: array of shape (n,)}."""
        return self._machine.recorded()

    @property
    def state(self) -> dict[str, Any]:
        """The current state: {field: value}, arrays as lists, parameters not included."""
        return self._machine.state()


class CompiledMachine:
    """The compiled class; its state is a record."""

    def __init__(self, cls: type[Controller], params: dict[str, Any], view: View, record: Sequence[str]) -> None:
        self.code = compiled(cls)
        self.records = self.code.new_state(**params)
        self.slots = self.records.view(np.int64)
        self.before = np.zeros_like(self.slots)
        missing = [name for name in self.code.columns if name not in view.columns]
        if missing:
            raise _lacks(cls, missing[0])
        self.warnings = _warnings(cls, self.code.columns, view.unknown)
        self.view = view
        self.columns: list[NDArray[Any]] = [view.event, *(view.columns[name] for name in self.code.columns)]
        carried = [view.carried.get(field) for field in CARRIED[view.kind].values()]
        self.carried = np.array([0 if c is None else c.ctypes.data for c in carried], dtype=np.int64)
        self.record = {name: recordable(cls, name) for name in record}
        self.wanted = np.array([offset // 8 for offset, _ in self.record.values()], dtype=np.int64)
        # One row per recorded slot, in different cache lines for the reason given in `views.staggered`.
        self.out = np.zeros((len(record), len(view) + -len(view) % 512 + 24), dtype=np.int64)

    def recorded(self) -> dict[str, NDArray[Any]]:
        """Return {name: column}: the low or high part of the recorded slots, as their dtype."""
        return {
            name: slots[: len(self.view)].view(dtype)[offset % 8 // dtype.itemsize :: 8 // dtype.itemsize]
            for slots, (name, (offset, dtype)) in zip(self.out, self.record.items(), strict=True)
        }

    def replace_columns(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Read these columns instead of the view's."""
        for place, name in enumerate(self.code.columns, 1):
            self.columns[place] = columns.get(name, self.columns[place])

    def save(self) -> Any:
        """Return a copy of the state."""
        return self.records.copy()

    def restore(self, state: Any) -> None:
        """Take a copy of a saved state."""
        self.records[:] = state

    def state(self) -> dict[str, Any]:
        """Return {field: value}."""
        return {
            name: self.records[name][0].tolist()
            for name in fields_of(self.code.cls)
            if name not in param_fields(self.code.cls)
        }

    def run(self, row: int, stop: int, stop_at_draw: bool) -> int:
        """Call rows [row, stop); see `Player.run`."""
        addresses = np.array([column.ctypes.data for column in self.columns], dtype=np.int64)
        states = (self.records, self.slots, self.before)
        return self.code.run(row, stop, stop_at_draw, addresses, self.carried, *states, self.wanted, self.out)


class InterpretedMachine:
    """The class itself, called row by row."""

    def __init__(self, cls: type[Controller], params: dict[str, Any], view: View, record: Sequence[str]) -> None:
        self.controller = cls(**params)
        self.view = view
        self.columns = dict(view.columns)
        self.columns_recorded = {name: np.zeros(len(view), recordable(cls, name)[1]) for name in record}
        self.warnings: list[str] = []

    def recorded(self) -> dict[str, NDArray[Any]]:
        """Return {name: column}."""
        return self.columns_recorded

    def replace_columns(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Read these columns instead of the view's."""
        self.columns |= columns

    def save(self) -> Any:
        """Return a copy of the state."""
        return copy.deepcopy(vars(self.controller))

    def restore(self, state: Any) -> None:
        """Take a copy of a saved state."""
        vars(self.controller).update(copy.deepcopy(state))

    def state(self) -> dict[str, Any]:
        """Return {field: value}."""
        cls = type(self.controller)
        return {name: getattr(self.controller, name) for name in fields_of(cls) if name not in param_fields(cls)}

    def run(self, row: int, stop: int, stop_at_draw: bool) -> int:
        """Call rows [row, stop); see `Player.run`."""
        while row < stop:
            last = min(row + _CHUNK, stop)
            row, drew = self._chunk(row, last, stop_at_draw)
            if drew:
                break
        return row

    def _chunk(self, first: int, last: int, stop_at_draw: bool) -> tuple[int, bool]:
        controller, rows = self.controller, []
        calls = {code: getattr(controller, name, None) for name, code in EVENTS[controller.view].items()}
        stored = {schema.EVENT_CODES[event]: field for event, field in RETURN_STORED_IN.items()}
        carried, read = tuple(self.view.carried), _reader(controller, tuple(self.columns_recorded))
        drew = False
        for code, ack, values in self._rows(first, last):
            before = self.save() if stop_at_draw else None
            for field, value in zip(carried, values, strict=True):
                setattr(controller, field, value)
            controller.draws = 0
            call = calls.get(code)
            returned = call(ack) if call else None
            if stop_at_draw and controller.draws:
                self.restore(before)
                drew = True
                break
            rows.append(read(0 if returned is None else returned))
            if code in stored and returned is not None:
                setattr(controller, stored[code], returned)
        for (name, column), values in zip(self.columns_recorded.items(), zip(*rows, strict=True), strict=False):
            column[first : first + len(rows)] = _typed(type(controller), name, values, column.dtype)
        return first + len(rows), drew

    def _rows(self, first: int, last: int) -> Iterator[tuple[int, Any, tuple[int, ...]]]:
        """Yield (event, ack, carried values) of each row, in Python integers."""
        ack = _ack_type(type(self.controller), self.columns)
        acks = map(ack._make, zip(*(c[first:last].tolist() for c in self.columns.values()), strict=True))
        carried = [c[first:last].tolist() for c in self.view.carried.values()]
        values = zip(*carried, strict=True) if carried else itertools.repeat((), last - first)
        return zip(self.view.event[first:last].tolist(), acks, values, strict=True)


def _ack_type(cls: type[Controller], columns: Iterable[str]) -> Any:
    """Return the named tuple that a controller reads; a column that is not there is a clear error."""

    class Ack(namedtuple("Ack", columns)):  # type: ignore[misc]  # its fields are those of the view
        __slots__ = ()

        def __getattr__(self, name: str) -> None:
            if name in schema.names(schema.LINUX_VIEW if cls.view == "linux" else schema.QUIC_VIEW):
                raise _lacks(cls, name)
            raise CompileError(f"{cls.__name__} reads ack.{name}, which is no column of the {cls.view} view")

    return Ack


def _lacks(cls: type[Controller], column: str) -> StreamError:
    return StreamError(f"{cls.__name__} reads column {column!r}, which this stream lacks")


def _warnings(cls: type[Controller], columns: Iterable[str], unknown: Iterable[str]) -> list[str]:
    return [f"{cls.__name__} reads {name!r}, which nobody observed" for name in columns if name in unknown]


def _reader(controller: Controller, record: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function of the returned value that gives the values to record, in order."""
    parts = ["returned" if name == RETURNED else f"controller.{name}" for name in record]  # checked by `recordable`
    return eval(f"lambda returned: ({''.join(part + ', ' for part in parts)})", {"controller": controller})


def _typed(cls: type[Controller], name: str, values: Any, dtype: np.dtype) -> NDArray[Any]:
    """Return the values as an array of the dtype; raise if that would lose a fraction."""
    array = np.array(values)
    if dtype.kind in "ib" and array.dtype.kind not in "ib":
        raise mistyped(cls.__name__, name, "int", "float")
    return array.astype(dtype)
