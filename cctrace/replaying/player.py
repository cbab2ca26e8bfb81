"""A controller called with every row of a view: of golden vectors, of QUIC senders, of users' tables.

For each row: the observed values of what the stack also writes (`View.carried`) are set on the controller, `draws`
is zeroed, the entry point is called if the class defines it, outputs are recorded, and the stack handles the
returned value: `ssthresh` stores it in snd_ssthresh, `undo_cwnd` in snd_cwnd.

A view has all that a call reads; a recorded flow has events, between which a Linux stack must act, and `follow` is
the engine for it. One for both would drive views through a stack that QUIC lacks, at six times the time of an
interpreted call (docs/design.md).
"""

import itertools
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from cctrace import schema
from cctrace.arguments import check_choice
from cctrace.cc import controller as resolve
from cctrace.cc.base import Controller
from cctrace.columns import Values
from cctrace.errors import CompileError, StreamError
from cctrace.flows.views import CARRIED, View
from cctrace.lang.compile import EVENTS, RETURN_STORED_IN
from cctrace.lang.fields import MODES, RETURNED, debug_class, mistyped, recordable
from cctrace.replaying.engine.calls import CompiledCalls, recorded_in, slots_of, state_of

_CHUNK = 16_384  # rows converted to Python integers at a time


class Player:
    """A controller at a row of a view, which has been called with all rows before.

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
        The next row.
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
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("jitter_bbr_sd2ms", "sender.pcap.zst")).flow(0)
    >>> player = Player(flow.view("quic"), "quic_bbr", record=["pacing_gain"])
    >>> player.run(1000), player.run() == len(player.view)
    (1000, True)
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
        check_choice("mode", mode, MODES)
        cls, given = resolve(controller)
        machine = _Compiled if mode == "compiled" else _Interpreted
        self.view = view.view(cls.view)
        self.row = 0
        self.controller = cls
        self._machine = machine(debug_class(cls) if mode == "debug" else cls, given | params, self.view, list(record))
        self.warnings = self._machine.warnings

    def run(self, stop: int | None = None) -> int:
        """Call rows from `row` up to `stop` (default: all); return the next row."""
        stop = len(self.view) if stop is None else min(stop, len(self.view))
        if stop > self.row:
            self._machine.run(self.row, stop)
            self.row = stop
        return self.row

    @property
    def recorded(self) -> dict[str, Values]:
        """The recorded values after each call so far: {name: array of shape (n,)}."""
        return self._machine.recorded

    @property
    def state(self) -> dict[str, Any]:
        """The current state: {field: value}, arrays as lists, parameters not included."""
        return state_of(self._machine.get, self.controller)


class _Compiled(CompiledCalls):
    """The compiled class, called by a compiled loop over the rows (`lang.rows`)."""

    def __init__(self, cls: type[Controller], params: dict[str, Any], view: View, record: Sequence[str]) -> None:
        super().__init__(cls, params)
        missing = [name for name in self.code.columns if name not in view.columns]
        if missing:
            raise _lacks(cls, missing[0])
        self.warnings = [
            f"{cls.__name__} reads {n!r}, which nobody observed" for n in self.code.columns if n in view.unknown
        ]
        self.view = view
        self.columns: list[Values] = [view.event, *(view.columns[name] for name in self.code.columns)]
        self.places = {name: recordable(cls, name) for name in record}
        # One row per recorded slot, in different cache lines for the reason given in `views.staggered`.
        self.out = np.zeros((len(record), len(view) + -len(view) % 512 + 24), dtype=np.int64)

    @property
    def recorded(self) -> dict[str, Values]:
        """{name: column}."""
        return recorded_in(self.out[:, : len(self.view)], self.places)

    def run(self, row: int, stop: int) -> None:
        """Call rows [row, stop)."""
        carried = [self.view.carried.get(field) for field in CARRIED[self.view.kind].values()]
        self.code.run(row, stop, self.columns, carried, self.slots, slots_of(self.places), self.out)


class _Interpreted:
    """The class itself, called row by row."""

    def __init__(self, cls: type[Controller], params: dict[str, Any], view: View, record: Sequence[str]) -> None:
        self.controller = cls(**params)
        self.view = view
        self.recorded = {name: np.zeros(len(view), recordable(cls, name)[1]) for name in record}
        self.warnings: list[str] = []

    def get(self, name: str) -> Any:
        """Return the value of a field."""
        return getattr(self.controller, name)

    def run(self, row: int, stop: int) -> None:
        """Call rows [row, stop)."""
        for first in range(row, stop, _CHUNK):
            self._chunk(first, min(first + _CHUNK, stop))

    def _chunk(self, first: int, last: int) -> None:
        controller, rows = self.controller, []
        calls = {code: getattr(controller, name, None) for name, code in EVENTS[controller.view].items()}
        stored = {schema.EVENT_CODES[event]: field for event, field in RETURN_STORED_IN.items()}
        carried, read = tuple(self.view.carried), _reader(controller, tuple(self.recorded))
        for code, ack, values in self._rows(first, last):
            for field, value in zip(carried, values, strict=True):
                setattr(controller, field, value)
            controller.draws = 0
            call = calls.get(code)
            returned = call(ack) if call else None
            rows.append(read(0 if returned is None else returned))
            if code in stored and returned is not None:
                setattr(controller, stored[code], returned)
        for (name, column), values in zip(self.recorded.items(), zip(*rows, strict=True), strict=False):
            column[first:last] = _typed(type(controller), name, values, column.dtype)

    def _rows(self, first: int, last: int) -> Iterator[tuple[int, Any, tuple[int, ...]]]:
        """Yield (event, ack, carried values) of each row, in Python integers."""
        ack = _ack_type(type(self.controller), self.view.columns)
        acks = map(ack._make, zip(*(c[first:last].tolist() for c in self.view.columns.values()), strict=True))
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


def _reader(controller: Controller, record: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function of the returned value that gives the values to record, in order."""
    parts = ["returned" if name == RETURNED else f"controller.{name}" for name in record]  # checked by `recordable`
    return eval(f"lambda returned: ({''.join(part + ', ' for part in parts)})", {"controller": controller})


def _typed(cls: type[Controller], name: str, values: Any, dtype: np.dtype) -> Values:
    """Return the values as an array of the dtype; raise if that would lose a fraction."""
    array = np.array(values)
    if dtype.kind in "ib" and array.dtype.kind not in "ib":
        raise mistyped(cls.__name__, name, "int", "float")
    return array.astype(dtype)
