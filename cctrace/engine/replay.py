"""Replay: a stream of calls through a controller, interpreted or compiled, with identical numbers.

`replay` is the façade; `Player` is the machine beneath it: a position in a view, the controller's state, and
`Player.run`, which can stop at any row, or before the first call that draws a random number, so that a caller can
choose the draw (`Player.set_draw`), try it, and take it back (`Player.save`, `Player.restore`).

Within a row: the observed values of what the stack also writes (`View.carried`) are set on the controller, `draws` is
zeroed, the entry point is called if the class defines it, outputs are recorded, and the stack does with the returned
value what it does: `ssthresh` stores it in snd_ssthresh, `undo_cwnd` in snd_cwnd.
"""

import copy
from itertools import islice

import numpy as np

from cctrace import schema
from cctrace.cc import controller as resolve
from cctrace.cc.base import ArrayField, declared_fields, f32
from cctrace.errors import ArgumentError, CompileError, StreamError

# Where the stack stores a returned value.
RETURN_STORED_IN = {"ssthresh": "snd_ssthresh", "undo_cwnd": "snd_cwnd"}
MODES = ("interpreted",)
_CHUNK = 16_384  # rows turned into Python integers at a time


class Player:
    """A controller at a row of a view.

    Parameters
    ----------
    view : View
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
    recorded : dict of str to ndarray, shape (n,)
        What was asked for, after each call that has been made.

    Raises
    ------
    ArgumentError
        If the controller, a parameter, the mode or a name to record is unknown.
    StreamError
        If the controller is of the other stack, or reads a column that the view lacks.
    """

    def __init__(self, view, controller, *, mode="interpreted", record=(), **params):
        if mode not in MODES:
            raise ArgumentError(f"mode={mode!r} is not one of {', '.join(MODES)}")
        cls, given = resolve(controller)
        self.view = view.view(cls.view)
        self.cls = cls
        self.row = 0
        self.recorded = {name: np.zeros(len(view), dtype=_dtype(cls, name)) for name in record}
        self._draws = None
        self._machine = Interpreted(cls, given | params, self.view)

    def run(self, stop=None, stop_at_draw=False):
        """Call rows from `row` up to `stop` (default: all); return the next row.

        With `stop_at_draw` it stops *before* the first call that draws a random number: the state is as that call
        would find it. Set the draw and run on without `stop_at_draw` for one row.
        """
        stop = len(self.view) if stop is None else min(stop, len(self.view))
        self.row = self._machine.run(self.row, stop, self.recorded, stop_at_draw)
        return self.row

    def set_draw(self, row, value, which=0):
        """Make `value` the raw random number number `which` of the call at `row`; the view itself is not changed."""
        if self._draws is None:
            self._draws = {f"rand{k}": self.view.columns[f"rand{k}"].copy() for k in range(4)}
            self._machine.replace_columns(self._draws)
        self._draws[f"rand{which}"][row] = value

    def save(self):
        """Return the position and the state, for `restore`."""
        return self.row, self._machine.save()

    def restore(self, saved):
        """Go back to where `save` was called; rows recorded since then are overwritten by the next `run`."""
        self.row, state = saved
        self._machine.restore(state)

    @property
    def state(self):
        """The current state: {field: value}, arrays as lists."""
        return self._machine.state()


class Interpreted:
    """The class itself, called row by row."""

    def __init__(self, cls, params, view):
        self.controller = cls(**params)
        self.view = view
        self.columns = dict(view.columns)

    def replace_columns(self, columns):
        """Read these columns instead of the view's."""
        self.columns |= columns

    def save(self):
        """Return a copy of the state."""
        return copy.deepcopy(vars(self.controller))

    def restore(self, state):
        """Take a copy of a saved state."""
        vars(self.controller).update(copy.deepcopy(state))

    def state(self):
        """Return {field: value}."""
        return {name: getattr(self.controller, name) for name in declared_fields(type(self.controller))}

    def run(self, row, stop, recorded, stop_at_draw):
        """Call rows [row, stop); see `Player.run`."""
        controller = self.controller
        calls = {code: getattr(controller, name, None) for name, code in schema.EVENT_CODES.items()}
        stored = {schema.EVENT_CODES[event]: field for event, field in RETURN_STORED_IN.items()}
        carried = tuple(self.view.carried)
        read = _reader(controller, tuple(recorded))
        while row < stop:
            first, last = row, min(row + _CHUNK, stop)
            rows = []
            for code, ack, values in self._rows(first, last):
                before = self.save() if stop_at_draw else None
                for field, value in zip(carried, values, strict=True):
                    setattr(controller, field, value)
                controller.draws = 0
                call = calls[code]
                result = call(ack) if call else None
                if stop_at_draw and controller.draws:
                    self.restore(before)
                    stop = row
                    break
                rows.append(read(0 if result is None else result))
                if code in stored and result is not None:
                    setattr(controller, stored[code], result)
                row += 1
            for (name, column), values in zip(recorded.items(), zip(*rows, strict=True), strict=False):
                column[first:row] = _typed(type(controller), name, values, column.dtype)
        return row

    def _rows(self, first, last):
        """Yield (event, ack, carried values) of each row, in Python integers."""
        ack = _ack_type(type(self.controller), self.columns)
        acks = map(ack._make, zip(*(c[first:last].tolist() for c in self.columns.values()), strict=True))
        carried = [c[first:last].tolist() for c in self.view.carried.values()]
        values = zip(*carried, strict=True) if carried else iter(lambda: (), None)
        events = self.view.event[first:last].tolist()
        return zip(events, acks, islice(values, last - first), strict=True)


def _ack_type(cls, columns):
    """Return the named tuple that a controller reads; a column it lacks is a clear error."""
    from collections import namedtuple

    class Ack(namedtuple("Ack", columns)):
        __slots__ = ()

        def __getattr__(self, name):
            if name in schema.names(schema.LINUX_VIEW if cls.view == "linux" else schema.QUIC_VIEW):
                raise StreamError(f"{cls.__name__} reads column {name!r}, which this stream lacks")
            raise CompileError(f"{cls.__name__} reads ack.{name}, which is no column of the {cls.view} view")

    return Ack


def _reader(controller, record):
    """Return a function of the returned value that gives the recorded values, in order."""
    if not record:
        return lambda result: ()
    parts = ", ".join("result" if name == "o_ret" else f"controller.{name}" for name in record)
    return eval(f"lambda result: ({parts},)", {"controller": controller})  # names were checked by _dtype


def _dtype(cls, name):
    """Return the dtype in which a field, an element of an array field or ``o_ret`` is recorded."""
    if name == "o_ret":
        return np.dtype(np.int64)
    field, bracket, index = name.partition("[")
    fields = declared_fields(cls) | {p: row.default for p, row in cls.params.items()}
    value = fields.get(field)
    if isinstance(value, ArrayField) and index[:-1].isdigit() and int(index[:-1]) < value.length and index[-1] == "]":
        value = value.fill
    elif value is None or bracket or isinstance(value, ArrayField):
        raise ArgumentError(f"{cls.__name__} has no scalar field {name!r} to record (it has: {', '.join(fields)})")
    return np.dtype(type(value)) if isinstance(value, bool | f32 | float) else np.dtype(np.int64)


def _typed(cls, name, values, dtype):
    """Return the values as an array of the dtype; refuse what would lose its fraction."""
    array = np.array(values)
    if dtype.kind in "ib" and array.dtype.kind not in "ib":
        raise CompileError(f"{cls.__name__}.{name} holds an int, not {array.dtype}")
    return array.astype(dtype)
