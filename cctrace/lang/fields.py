"""The fields of a controller class: their kinds, the record that holds them compiled, the checks of debug mode.

Four kinds: ``int`` (int64), ``float`` (float64), ``f32`` (C float), ``bool``. A kind comes from the declaration and is
exact: a float stored in an int field would keep its fraction interpreted and lose it compiled, so both refuse it, in
the same words (`mistyped`).
"""

import functools
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from cctrace import schema
from cctrace.cc.base import ArrayField, Controller, declared_fields, param_fields
from cctrace.cc.cmath import f32
from cctrace.errors import ArgumentError, CompileError
from cctrace.lang.memory import record_of

EVENTS = {"linux": schema.LINUX_EVENTS, "quic": schema.QUIC_EVENTS}
VIEW_COLUMNS = {"linux": schema.names(schema.LINUX_VIEW), "quic": schema.names(schema.QUIC_VIEW)}
_ACKS = {view: record_of(*names) for view, names in VIEW_COLUMNS.items()}
MODES = ("compiled", "interpreted", "debug")  # of running a controller; debug checks what is assigned to fields
RETURNED = "o_ret"  # the value that the last call returned; recordable like a field
DTYPES = {"int": np.int64, "float": np.float64, "f32": np.float32, "bool": np.bool_}
Known: TypeAlias = Mapping[tuple[str, ...] | None, Mapping[str, int]]  # {names of a record's fields: values of some}
Naturals: TypeAlias = Mapping[tuple[str, ...] | None, Sequence[str]]  # {such names: those from 0 to 2**62 - 1}
_KIND_OF_TYPE = {int: "int", float: "float", f32: "f32", bool: "bool", np.bool_: "bool"}
_ANNOTATIONS = {"int": "int", "float": "float", "f32": "f32", "float32": "f32", "bool": "bool"}


class Field(NamedTuple):
    """A field or parameter: kind, number of elements (0: not an array), value at the start."""

    kind: str
    length: int
    default: Any


def kind_of(value: object) -> str:
    """Return the kind of a Python value, or the name of its type if it has none."""
    return _KIND_OF_TYPE.get(type(value), type(value).__name__)


def accepts(kind: str, got: str) -> bool:
    """Return whether a field of `kind` takes a value of kind `got`: only its own; True and False are integers, too."""
    return kind == got or (kind == "int" and got == "bool")


def mistyped(where: str, name: str, kind: str, got: str) -> CompileError:
    """Return the error for a value of kind `got` assigned to a field, the same interpreted and compiled."""
    what = f"field {name!r}" if name else "an element of an array field"
    return CompileError(f"{where}: {what} is declared {kind}, but {got} is assigned to it")


def fields_of(cls: type[Controller]) -> dict[str, Field]:
    """Return {name: Field} of a class, state before parameters; `CompileError` for a default of another kind."""
    return dict(_fields_of(cls))  # type: ignore[arg-type]  # mypy holds that classes have no hash


@functools.lru_cache(maxsize=256)
def _fields_of(cls: type[Controller]) -> dict[str, Field]:
    annotations: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        annotations |= inspect.get_annotations(base)
    fields = {}
    for name, default in declared_fields(cls).items():
        length, value = (default.length, default.fill) if isinstance(default, ArrayField) else (0, default)
        kind = kind_of(value[0] if isinstance(value, tuple) else value)
        declared = annotations.get(name, kind)
        declared = _ANNOTATIONS.get(getattr(declared, "__name__", declared), str(declared))
        if kind not in DTYPES or (kind != declared and not length):
            raise CompileError(f"{cls.__name__}.{name} is declared {declared}, but its default {value!r} is {kind}")
        fields[name] = Field(kind, length, value)
    params = {field: cls.params[name].default for field, name in param_fields(cls).items()}
    return fields | {field: Field(kind_of(default), 0, default) for field, default in params.items()}


def record_dtype(cls: type[Controller]) -> np.dtype:
    """Return the structured dtype of a controller's state: every field starts an 8-byte slot; `RETURNED` is last."""
    return _record_dtype(cls)  # type: ignore[arg-type]  # as in `fields_of`


@functools.lru_cache(maxsize=256)
def _record_dtype(cls: type[Controller]) -> np.dtype:
    names, formats, offsets, end = [], [], [], 0
    for name, field in {**fields_of(cls), RETURNED: Field("int", 0, 0)}.items():
        dtype = np.dtype(DTYPES[field.kind])
        names.append(name)
        formats.append((dtype, (field.length,)) if field.length else dtype)
        offsets.append(end)
        end += -(-dtype.itemsize * max(field.length, 1) // 8) * 8
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end})


def ack_dtype(cls: type[Controller]) -> np.dtype:
    """Return the record of all columns of the view that a controller class reads."""
    return _ACKS[cls.view]


def recordable(cls: type[Controller], name: str) -> tuple[int, np.dtype]:
    """Return (offset, dtype) of a field, an element ``bw_v[0]`` or ``o_ret``; `ArgumentError` if there is none."""
    fields = fields_of(cls)
    field, bracket, index = name.partition("[")
    found, places = fields.get(field), cast(Any, record_dtype(cls).fields)
    if name == RETURNED or (found and not bracket and not found.length):
        dtype, offset = places[field]
        return offset, dtype
    if found and index.endswith("]") and index[:-1].isdigit() and int(index[:-1]) < found.length:
        dtype = np.dtype(DTYPES[found.kind])
        return places[field][1] + int(index[:-1]) * dtype.itemsize, dtype
    known = ", ".join(f"{n}[0..{f.length - 1}]" if f.length else n for n, f in fields.items())
    raise ArgumentError(f"{cls.__name__} has no field {name!r} to record (it has: {known})")


def debug_class(cls: type[Controller]) -> type[Controller]:
    """Return a subclass of a controller that checks the kind and range of every value assigned to a field."""
    fields = fields_of(cls)

    def check(self: Controller, name: str, value: Any) -> None:
        where = _caller()
        if name not in fields:
            raise CompileError(f"{where}: {cls.__name__} has no field {name!r}; declare it in the class")
        kind, length, _ = fields[name]
        if length and isinstance(value, list):
            value = _CheckedList(value, kind)
        else:
            _check(where, name, kind, value)
        object.__setattr__(self, name, value)

    return type(cls.__name__, (cls,), {"__setattr__": check, "__module__": cls.__module__, "__doc__": cls.__doc__})


class _CheckedList(list[Any]):
    """An array field in debug mode."""

    def __init__(self, values: list[Any], kind: str) -> None:
        super().__init__(values)
        self.kind = kind

    def __setitem__(self, index: Any, value: Any) -> None:
        _check(_caller(), "", self.kind, value)
        super().__setitem__(index, value)


def _check(where: str, name: str, kind: str, value: Any) -> None:
    got = kind_of(value)
    if not accepts(kind, got):
        raise mistyped(where, name, kind, got)
    if kind == "int" and not -(1 << 63) <= value < 1 << 63:
        raise mistyped(where, name, "int (64 bits)", f"{value}, which only u64() or u32() can bring into range,")


def _caller() -> str:
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
