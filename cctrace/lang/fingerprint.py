"""What compiled code depends on, as text: bytecode and the values of names; not paths, line numbers or comments.

Two installations get the same text, and so do two versions of a function that differ only in their docstring. The
compiler itself, the sources in this folder, is part of it.
"""

import builtins
import sys
import types
import zlib
from collections.abc import Mapping
from functools import lru_cache
from itertools import repeat
from operator import is_
from pathlib import Path
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from cctrace.cc import asking, cmath
from cctrace.lang.memory import ArrayAt, FieldsAtOnce, RecordOf

_ABSENT = object()
_BUILTINS = frozenset(vars(builtins))  # hidden by a global of the same name
_PLAIN = (bool, int, float, np.generic, tuple)
_OURS = "cctrace.lang."  # its special functions (`memory.words`, …) are part of the compiler


class Fingerprint:
    """Collects what functions depend on, and the functions, in the order in which they are first reached."""

    def __init__(self) -> None:
        self.functions: list[FunctionType] = []
        self._numbers: dict[FunctionType, int] = {}
        self._lines: list[str] = []
        self._codes: list[tuple[FunctionType, types.CodeType, tuple[Any, ...] | None]] = []
        self._names: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}  # namespaces, and what was read there
        self._cells: list[tuple[types.CellType, Any]] = []
        self._sizes: list[tuple[Mapping[str, Any], int]] = []

    def holds(self) -> bool:
        """Return whether everything that was read is still the same object; 150 times faster than reading it again."""
        if any(len(namespace) != size for namespace, size in self._sizes):
            return False
        for function, code, defaults in self._codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return False
        for namespace, known in self._names.values():
            if not all(map(is_, map(namespace.get, known, repeat(_ABSENT)), known.values())):
                return False
        return all(cell.cell_contents is value for cell, value in self._cells)

    def watch_all(self, namespace: Mapping[str, Any]) -> None:
        """Make `holds` check all names of a namespace, new ones included."""
        self._sizes.append((namespace, len(namespace)))
        self.watch(namespace, *namespace)

    def watch(self, namespace: Mapping[str, Any], *names: str) -> None:
        """Make `holds` check these names of a namespace."""
        _, known = self._names.setdefault(id(namespace), (namespace, {}))
        known |= {name: namespace.get(name, _ABSENT) for name in names}

    def text(self) -> str:
        """Return what was collected."""
        return "\n".join([f"Python {sys.version_info[:2]}, compiler {compiler():08x}", *self._lines])

    def note(self, *things: object) -> None:
        """Add values by their `repr`."""
        self._lines.append(repr(things))

    def function(self, function: FunctionType) -> int:
        """Add a function and all that it may call; returns its number."""
        if function in self._numbers:
            return self._numbers[function]
        number = self._numbers[function] = len(self.functions)
        self.functions.append(function)
        code = function.__code__
        self._codes.append((function, code, function.__defaults__))
        said, names = _said(function)
        space = function.__globals__
        self.watch(space, *[name for name in names if name in space or name in _BUILTINS])
        values = {name: self._thing(space[name], function) for name in names if name in space}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._cells.append((cell, cell.cell_contents))
            values[name] = self._thing(cell.cell_contents, function)
        self._lines.append(f"{number} {said} {function.__defaults__} {values}")
        return number

    def _thing(self, value: object, user: FunctionType) -> Any:
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, types.FunctionType):
            if value.__module__.startswith(_OURS) or value.__module__ in (cmath.__name__, asking.__name__):
                return value.__name__
            return f"function {self.function(value)}"
        if isinstance(value, ArrayAt | RecordOf):
            return f"{type(value).__name__} {dtype_text(value.dtype)}"
        if isinstance(value, FieldsAtOnce):
            return f"{type(value).__name__} {vars(value)}"
        if isinstance(value, types.ModuleType):  # those of its names that the function uses
            if value.__name__.partition(".")[0] in ("math", "numpy") or value.__name__.startswith(_OURS):
                return value.__name__
            used = [n for n in user.__code__.co_names if n in vars(value)]
            self.watch(vars(value), *used)
            return {
                n: self._thing(vars(value)[n], user) for n in used if not isinstance(vars(value)[n], types.ModuleType)
            }
        return getattr(value, "__qualname__", type(value).__name__)


_texts: WeakKeyDictionary[FunctionType, tuple[types.CodeType, str, list[str]]] = WeakKeyDictionary()


def _said(function: FunctionType) -> tuple[str, list[str]]:
    """Return what a function's code says, and the names that it reads elsewhere; kept, as many machines share it."""
    code = function.__code__
    kept = _texts.get(function)
    if kept is None or kept[0] is not code:
        constants = [
            None if c is function.__doc__ else c.co_code.hex() if isinstance(c, types.CodeType) else repr(c)
            for c in code.co_consts
        ]
        what = function.__name__, code.co_code.hex(), constants, code.co_argcount, code.co_varnames, code.co_names
        kept = _texts[function] = code, repr(what), sorted({*code.co_names} - {*code.co_freevars})
    return kept[1:]


@lru_cache(maxsize=1024)
def dtype_text(dtype: np.dtype) -> str:
    """Return a dtype as text, kept: for a record of many fields NumPy takes a millisecond to write it."""
    return str(dtype)


@lru_cache(maxsize=1)
def compiler() -> int:
    """Return a checksum of the compiler's own sources."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return zlib.crc32(b"".join(path.read_bytes() for path in sources))
