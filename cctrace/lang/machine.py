"""Plain functions as machine code: ``Machine(function)`` compiles a function and all it calls, once.

A plain Python function of numbers, numpy arrays and records runs interpreted when it is called directly, and as machine
code when it is called through a `Machine`:

    def total(table, until):                      # module cctrace/room/kernel.py
        sum_ = 0
        for i in range(until):
            sum_ += words(table[i].column)[0]     # `cctrace.lang.memory`: an array by its address
        return sum_

    compiled_total = Machine(total)               # compiles nothing yet
    compiled_total(table, 10) == total(table, 10)

Arguments are int64 numbers, C-contiguous arrays and tuples of arrays; the machine compiles once for each combination of
dtypes. Called directly, it is given arrays of records as `with_fields` returns them. The function returns an integer, a
tuple of integers, or nothing.

In such functions:

* numbers are int64, uint64, float64, float32 and bool; ``np.int64(...)``, ``float(...)`` and the like convert; a
  variable keeps one type;
* a record is passed about and changed in place: ``f.cwnd += 1``; likewise elements of an array, ``a[i]``, ``a[i, k]``,
  ``a[i:j] = b[k:l]``;
* memory that is known by its address only is reached with `cctrace.lang.memory`: ``words(w.buffer)[k]``; other compiled
  code (a controller's `Compiled.address`) is called with ``call(address, event, state, ack)``;
* an array of int64 that is copied and compared as a whole is a record elsewhere: ``RecordOf(dtype)(array).field``;
  many fields of records are compared, copied or set at once by `SameFields`, `CopyFields` and `SetFields`;
* module-level functions of any module may be called, module-level numbers and tuples of numbers are constants;
* an index is not checked: it lies within the array (a negative one counts from the end);
* nothing is allocated; there are no strings, lists, exceptions, closures or * arguments.

The environment variable CCTRACE_MACHINE, set before a module is imported, helps to find mistakes: ``checked`` compiles
code that checks every index where the length is known (IndexError, with file and line) and every field declared natural
(ValueError), ``interpreted`` compiles none.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from cctrace.lang import cache, objects
from cctrace.lang.fingerprint import Fingerprint, dtype_text
from cctrace.lang.memory import address_of, with_fields

_MODE = os.environ.get("CCTRACE_MACHINE", "")
INTERPRETED = _MODE == "interpreted"  # then nothing compiled may be handed to a function that is not


class Prepared:
    """An argument that is passed to a `Machine` again and again: the words that it becomes are computed once."""

    def __init__(self, arg: Any) -> None:
        self.arg = arg
        self.kinds, self.words = _flat((arg,))

    def __reduce__(self) -> tuple[type[Prepared], tuple[Any]]:
        return Prepared, (self.arg,)  # a copy's arrays lie elsewhere


def _plain(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(arg.arg if isinstance(arg, Prepared) else arg for arg in args)


def named(arg: Any) -> Any:
    """Return an argument with the fields of its records as attributes, as a compiled function has them."""
    if isinstance(arg, tuple):
        return tuple(map(named, arg))
    return with_fields(arg) if isinstance(arg, np.ndarray) and arg.dtype.names else arg


def _interpreted(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call a function as Python runs it; integers wrap in silence, as compiled."""
    with np.errstate(over="ignore"):
        return function(*named(_plain(args)))


class Machine:
    """The compiled form of a plain function.

    `function`: see the module's text for what it may contain. `known`: for a dtype of records, fields that have this
    value in all of them whenever this machine is called, which spares the code for other values; `naturals`: fields
    that are integers of 64 bits from 0 to 2**62 - 1, which spares rounding down. Raises `CompileError` at the first
    call if the function cannot be compiled, or writes to a field that is known; names file, line and reason.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        known: Mapping[np.dtype, Mapping[str, int]] | None = None,
        naturals: Mapping[np.dtype, Sequence[str]] | None = None,
    ) -> None:
        self.function: Any = function  # a plain one: its code and names are read
        self.known = {dtype.names: dict(values) for dtype, values in (known or {}).items()}
        self.naturals = {dtype.names: tuple(names) for dtype, names in (naturals or {}).items()}
        self._lock = threading.Lock()
        self._entries: dict[tuple[Any, ...], _Entry] = {}

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function; it does not hold the interpreter's lock.

        Raises `TypeError` if an array is not C-contiguous. Raises `ZeroDivisionError` where the function divides by
        zero; names file and line.
        """
        if INTERPRETED:
            return _interpreted(self.function, args)
        kinds, words = _flat(args)
        return self._known(args, kinds)(words)

    def _known(self, args: tuple[Any, ...], kinds: list[Any]) -> _Entry:
        entry = self._entries.get(tuple(kinds))
        if entry is None:
            with self._lock:
                entry = self._entries.get(tuple(kinds)) or self._entry(_plain(args), kinds)
                self._entries[tuple(kinds)] = entry
        return entry

    def bind(self, *args: Any) -> Callable[[], Any]:
        """Return a function without arguments that calls with these arrays, by reference; it keeps them."""
        if INTERPRETED:
            return lambda: _interpreted(self.function, args)
        kinds, words = _flat(args)
        entry = self._known(args, kinds)

        def call(kept: tuple[Any, ...] = args) -> Any:
            return entry(words)

        return call

    def _entry(self, args: tuple[Any, ...], kinds: list[Any]) -> _Entry:
        fingerprint = Fingerprint()
        fingerprint.function(self.function)
        key = f"{fingerprint.text()}\n{[dtype_text(k) if isinstance(k, np.dtype) else str(k) for k in kinds]!r} {_MODE}"
        if self.known:
            key += repr([sorted(values.items()) for values in self.known.values()])
        if self.naturals:
            key += repr([*self.naturals.values()])
        description, code = cache.obtain(self.function.__name__, key, lambda: _build(self, args, fingerprint.functions))
        (address,) = objects.link(code, "entry")
        return _Entry(address, description, fingerprint.functions)


_FLOAT, _WORD = struct.Struct("<d"), struct.Struct("<q")


def _as_float(word: int) -> float:
    return _FLOAT.unpack(_WORD.pack(word))[0]


class _Entry:
    """Compiled code for arguments of certain kinds."""

    def __init__(self, address: int, description: dict[str, Any], functions: list[FunctionType]) -> None:
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * (description["words"] + 1))(address)
        self._kinds, self._shape = description["results"], description["shape"]
        self._sites, self._functions = description["sites"], functions
        self._out = ctypes.c_int64 * max(1, len(self._kinds))

    def __call__(self, words: list[int]) -> Any:
        out = self._out()
        status = self._call(ctypes.addressof(out), *words)
        if status:
            raise failure(self._sites[status - 1], self._functions)
        values = [_RESULT[kind](word) for kind, word in zip(self._kinds, out, strict=False)]
        return tuple(values) if self._shape == "several" else values[0] if values else None


_RESULT: dict[str, Callable[[int], Any]] = {
    "int": int,
    "uint": lambda word: word & (2**64 - 1),
    "bool": bool,
    "float": _as_float,
    "f32": _as_float,
}


def _build(machine: Machine, args: Sequence[Any], functions: list[FunctionType]) -> cache.Made:
    """Return what the cache keeps of a machine for arguments like these; without it, the compiler is not imported."""
    from cctrace.lang.entry import build

    return build(machine.function, args, functions, _MODE == "checked", machine.known, machine.naturals)


def failure(site: tuple[str, int, int], functions: Sequence[FunctionType]) -> Exception:
    """Return the exception for a place where compiled code failed."""
    kind, number, line = site
    code = functions[number].__code__
    error = {"division by zero": ZeroDivisionError, "index out of bounds": IndexError}.get(kind, ValueError)
    return error(f"{code.co_filename}:{code.co_firstlineno + line}: {kind}")


def _flat(args: tuple[Any, ...]) -> tuple[list[Any], list[int]]:
    """Return what the arguments are, and the words that they become."""
    kinds: list[Any] = []
    words: list[int] = []
    for arg in args:
        _flatten(arg, kinds, words)
    return kinds, words


def _flatten(arg: Any, kinds: list[Any], words: list[int]) -> None:
    """Append what an argument is, and the words that it becomes."""
    if isinstance(arg, np.ndarray):
        flags, shape = arg.flags, arg.shape
        if not (flags.carray or (flags.c_contiguous and flags.aligned)):
            raise TypeError("a compiled function takes C-contiguous, aligned arrays only")
        kinds += (arg.dtype, len(shape))
        words += (address_of(arg), *shape)
    elif isinstance(arg, Prepared):
        kinds += arg.kinds
        words += arg.words
    elif isinstance(arg, tuple):
        kinds.append(len(arg))
        for one in arg:
            _flatten(one, kinds, words)
    elif isinstance(arg, float):
        kinds.append(float)
        words += _WORD.unpack(_FLOAT.pack(arg))
    else:
        kinds.append(int)
        words.append(int(arg))
