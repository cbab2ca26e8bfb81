"""Compiled controllers: one C function per class, named by its content, kept in the cache.

    methods --(lang.lower)--> LLVM --> call(event, state, ack)

`Compiled.address` is a C function ``int64 call(int64 event, int64 state, int64 ack)``, the same signature for every
controller. `state` is the address of a record of `Compiled.state_dtype`, `ack` the address of a record of all columns
of `schema.LINUX_VIEW` or `schema.QUIC_VIEW` as int64 in the order of the schema. It returns what the entry point
returned (0 if nothing); storing that in ssthresh or cwnd is the caller's part (`RETURN_STORED_IN`), and so is asking
`Compiled.check` now and then whether a call failed (division by zero, an index out of bounds).

Compiled code computes exactly what Python does. What could differ is refused: a value of another kind than the
field's, and arithmetic that mixes C floats with other numbers (NumPy rounds those to single precision, C would not).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import NamedTuple

import numpy as np

from cctrace import schema
from cctrace.cc import asking
from cctrace.cc.base import Controller, find_method, param_fields
from cctrace.columns import Ints, Values
from cctrace.errors import CompileError
from cctrace.lang import cache, objects
from cctrace.lang.definitions import where_of
from cctrace.lang.emit import Record, Scalar, described
from cctrace.lang.entry import places
from cctrace.lang.expressions import Expressions
from cctrace.lang.fields import EVENTS, RETURNED, VIEW_COLUMNS, ack_dtype, fields_of, record_dtype
from cctrace.lang.fingerprint import Fingerprint
from cctrace.lang.lower import Module
from cctrace.lang.machine import failure
from cctrace.lang.rows import run_rows

# What the stack does with a returned value: it stores it in this field of the controller.
RETURN_STORED_IN = {"ssthresh": "snd_ssthresh", "undo_cwnd": "snd_cwnd"}
_CARRIED = {"linux": tuple(schema.LINUX_CARRIED.values()), "quic": tuple(schema.QUIC_CARRIED.values())}

_compiled: dict[type, Compiled] = {}
_MAX_COMPILED = 256  # classes; a notebook that keeps making new ones need not keep them all
_making = threading.Lock()  # so that no two threads compile the same class


def compiled(cls: type[Controller]) -> Compiled:
    """Return the `Compiled` form of a class, anew if its names were reassigned; `CompileError` if it has none."""
    code = _compiled.get(cls)
    if code is not None and code.fingerprint.holds():
        return code
    with _making:
        code, fingerprint = _compiled.get(cls), fingerprint_of(cls)
        if code is None or code.key != fingerprint.text():
            code = _compiled[cls] = Compiled(cls, fingerprint)
            if len(_compiled) > _MAX_COMPILED:
                del _compiled[next(iter(_compiled))]
        code.fingerprint = fingerprint
    return code


def fingerprint_of(cls: type[Controller]) -> Fingerprint:
    """Return the `Fingerprint` of a controller class: its fields, its view, its methods and what they call."""
    found = Fingerprint()
    fields = [(name, field.kind, field.length) for name, field in fields_of(cls).items()]
    found.note(fields, list(param_fields(cls)), VIEW_COLUMNS.get(cls.view), EVENTS.get(cls.view), cls.interpreted_only)
    for owner in cls.__mro__:
        found.watch_all(vars(owner))
        for name, value in vars(owner).items():
            if callable(value) or name in EVENTS.get(cls.view, ()):
                code = getattr(value, "__code__", None)
                found.note(owner.__name__, name, found.function(value) if code else repr(type(value)))
    return found


class Compiled:
    """A compiled controller class.

    `address`: of the C function ``int64 call(int64 event, int64 state, int64 ack)``. `state_dtype`, `ack_dtype`:
    records of the state and of all columns of the view. `columns`: the columns that the controller can read, in the
    order of the schema. `entries`: of each entry point, whether it returns a value, and which columns it can read.
    """

    def __init__(self, cls: type[Controller], fingerprint: Fingerprint) -> None:
        self.cls, self.key, self.fingerprint = cls, fingerprint.text(), fingerprint
        self.state_dtype, self.ack_dtype = record_dtype(cls), ack_dtype(cls)
        self._functions = fingerprint.functions
        description, code = cache.obtain(cls.__name__, self.key, lambda: _build(cls, fingerprint.functions))
        self.entries = {event: Entry(*entry) for event, entry in description["entries"].items()}
        self._sites = description["sites"]
        self.columns = _columns(cls, self.entries)
        self.address, self._row, failed = objects.link(code, "call", "row", "failed")
        self._failed = ctypes.c_int64.from_address(failed)

    def new_state(self, **params: float) -> Values:
        """Return the state after the class's constructor: a record array of shape (1,)."""
        controller = self.cls(**params)
        state = np.zeros(1, self.state_dtype)
        state[0] = (*(getattr(controller, name) for name in fields_of(self.cls)), 0)
        return state

    def run(
        self,
        row: int,
        stop: int,
        columns: Sequence[Values],
        carried: Sequence[Values | None],
        slots: Ints,
        recorded: Ints,
        out: Ints,
    ) -> None:
        """Call rows [row, stop) of a view.

        `columns`: the view's `event`, then those named by `columns`. `carried`: the view's carried fields (None: none).
        `slots`: the state as int64. After each row, ``out[k, row]`` is ``slots[recorded[k]]``.
        """
        slot = {name: offset // 8 for name, (_, offset, *_) in (self.state_dtype.fields or {}).items()}
        stored = [
            slot[field] if event in self.entries and self.entries[event].returns else -1
            for event, field in RETURN_STORED_IN.items()
        ]
        observed = [
            (column.ctypes.data, slot[field])
            for column, field in zip(carried, _CARRIED[self.cls.view], strict=True)
            if column is not None
        ]
        place = np.array([0, *(column.ctypes.data for column in columns[1:])], np.int64)
        code = (self._row, slots.ctypes.data, place.ctypes.data, slot[RETURNED], *stored)
        run_rows(code, row, stop, columns[0], place, np.array(observed, np.int64).reshape(-1, 2), slots, recorded, out)
        self.check()

    def check(self) -> None:
        """Raise ZeroDivisionError or IndexError, with file and line, if a call has failed since the last check.

        An exception of a Python function that the code called (`cc.asking`) takes precedence.
        """
        asking.raise_kept()
        status, self._failed.value = self._failed.value, 0
        if status:
            raise failure(self._sites[status - 1], self._functions)


class Entry(NamedTuple):
    """An entry point: whether it returns a value, the columns it can read."""

    returns: bool
    columns: Sequence[str]


class _Body(Expressions):
    """The function ``call`` of a module, which ``row`` calls, too."""

    def __init__(self, module: Module, cls: type[Controller]) -> None:
        super().__init__()
        self.module, self.needs, self.cls = module, module.needs, cls
        self.entries: dict[str, Entry] = {}
        state, ack = (self.op(f"inttoptr i64 %{name} to ptr") for name in ("state", "ack"))
        self.state, self.ack = Record(record_dtype(cls), state), Record(ack_dtype(cls), ack)

    def text(self) -> str:
        """Return the LLVM text, which dispatches on the event's code."""
        dtype, pointer = self.field(self.state, "draws")
        self.store(dtype, pointer, Scalar("int", "0"))
        codes = {
            event: code for event, code in EVENTS[self.cls.view].items() if callable(getattr(self.cls, event, None))
        }
        ways = " ".join(f"i64 {code}, label %{event}" for event, code in codes.items())
        self.do(f"switch i64 %event, label %none [{ways}]")
        self.is_open = False
        for event in codes:
            self.label(event)
            self.do(f"ret i64 {self.returned(event).text}")
            self.is_open = False
        self.label("none")
        self.do("ret i64 0")
        self.is_open = False
        # The first failure is kept until `check`; the call returns 0.
        self.label("exit")
        status, earlier = self.op("load i64, ptr %status"), self.op("load i64, ptr @failed")
        none = self.op(f"icmp eq i64 {earlier}, 0")
        self.do(f"store i64 {self.op(f'select i1 {none}, i64 {status}, i64 {earlier}')}, ptr @failed")
        self.do("ret i64 0")
        head = "@failed = global i64 0\ndefine i64 @call(i64 %event, i64 %state, i64 %ack) noinline {\nentry:"
        return "\n".join([head, "  %status = alloca i64", *self.allocas, *self.lines, "}"])

    def returned(self, event: str) -> Scalar:
        """Call an entry point; returns its result as an integer, and notes what it is in `entries`."""
        owner, function = find_method(self.cls, event)
        if not isinstance(function, FunctionType):
            raise CompileError(f"{owner.__name__}.{event} is not a plain method")
        self.where = where_of(function)
        if (parameters := function.__code__.co_argcount) != 2:
            self.refuse(f"{event} takes self and ack, not {parameters} arguments")
        args = [self.state, self.ack]
        lowered = self.module.function(function, args, owner)
        result = self.call(lowered, args)
        columns = [name for name in VIEW_COLUMNS[self.cls.view] if name in lowered.columns]
        self.entries[event] = Entry(result is not None, columns)
        if result is None:
            return Scalar("int", "0")
        if not isinstance(result, Scalar) or result.kind not in ("int", "bool"):
            self.refuse(f"{event} returns {described(result)}; entry points return integers")
        return self.convert(result, "int")


def _row_text(cls: type[Controller], entries: Mapping[str, Entry]) -> str:
    """Return the function that calls the entry point of an event for row ``place[0]`` of columns at ``place[1:]``."""
    names = VIEW_COLUMNS[cls.view]
    place = {name: k for k, name in enumerate(_columns(cls, entries), 1)}
    ways = " ".join(f"i64 {EVENTS[cls.view][event]}, label %{event}" for event in entries)
    lines = [
        "define i64 @row(i64 %event, i64 %state, i64 %place) {",
        f"  %acks = alloca [{len(names)} x i64]",
        "  %ack = ptrtoint ptr %acks to i64",
        "  %places = inttoptr i64 %place to ptr",
        "  %row = load i64, ptr %places",
        f"  switch i64 %event, label %filled [{ways}]",
    ]
    for event, entry in entries.items():
        lines.append(f"{event}:")
        for name in entry.columns:
            v = f"%{event}.{name}"
            lines += [
                f"  {v}.at = getelementptr i64, ptr %places, i64 {place[name]}",
                f"  {v}.column = load ptr, ptr {v}.at",
                f"  {v}.from = getelementptr i64, ptr {v}.column, i64 %row",
                f"  {v} = load i64, ptr {v}.from",
                f"  {v}.to = getelementptr i64, ptr %acks, i64 {names.index(name)}",
                f"  store i64 {v}, ptr {v}.to",
            ]
        lines.append("  br label %filled")
    lines += ["filled:", "  %returned = call i64 @call(i64 %event, i64 %state, i64 %ack)", "  ret i64 %returned", "}"]
    return "\n".join(lines)


def _columns(cls: type[Controller], entries: Mapping[str, Entry]) -> tuple[str, ...]:
    read = set().union(*(entry.columns for entry in entries.values()))
    return tuple(c for c in VIEW_COLUMNS[cls.view] if c in read)


def _build(cls: type[Controller], functions: list[FunctionType]) -> cache.Made:
    if cls.interpreted_only:
        raise CompileError(f"{cls.__name__} cannot be compiled: {cls.interpreted_only}; use mode='interpreted'")
    module = Module(True, {}, {}, cls)
    body = _Body(module, cls)
    module.texts += [body.text(), _row_text(cls, body.entries)]
    return {"entries": body.entries, "sites": places(module.sites, functions)}, objects.object_code(module.text())
