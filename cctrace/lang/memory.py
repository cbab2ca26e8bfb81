"""Arrays and functions by address, so that compiled and interpreted code alike can pass them as integers.

    words(address)[k]                   an array of int64; `naturals`: uint64, `reals`: float64, `ArrayAt(dtype)`: any
    RecordOf(dtype)(array)              the record that an array of int64 holds
    SameFields("a", "b")(one, other)    whether two records have the same a and b; `CopyFields`, `SetFields`
    call(address, event, state, ack)    a function of three words that returns one, like `Compiled.address`
    big64(array, at), little64(…)       eight bytes of an array of bytes as a signed number, highest or lowest first

Compiled, an address is a pointer. Interpreted, it is looked up among the arrays registered by `place` and the functions
registered by `callback`; other functions are called where they are, as a compiled controller is.
"""

import ctypes
import functools
import itertools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cctrace.columns import Values

_arrays: dict[int, np.ndarray] = {}
_functions: dict[int, Callable[[int, int, int], int]] = {}
_Code = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_numbers = itertools.count(1)
_word_at = ctypes.c_ssize_t.from_address


def place(array: Values) -> int:
    """Register a C-contiguous array and return its address. Release it with `forget`."""
    address = address_of(array)
    _arrays[address] = array
    return address


def address_of(array: Values) -> int:
    """Return the address of an array's data, ten times as fast as ``array.ctypes.data``.

    In NumPy's ABI this pointer follows the header of every Python object (``PyArrayObject_fields``).
    """
    return _word_at(id(array) + object.__basicsize__).value


def callback(function: Callable[[int, int, int], int]) -> int:
    """Register a Python function ``(event, state, ack) -> int`` and return a number in place of its address."""
    address = -next(_numbers)
    _functions[address] = function
    return address


def forget(addresses: Iterable[int]) -> None:
    """Release arrays and functions registered by `place` and `callback`."""
    for address in addresses:
        _arrays.pop(address, None)
        _functions.pop(address, None)


@functools.lru_cache(maxsize=256)
def _records(dtype: np.dtype) -> np.dtype:
    """Return records of this dtype with fields as attributes that hide numpy's: TCP's segments have `flags`, too."""
    fields = {name: property(operator.itemgetter(name), _setter(name)) for name in dtype.names or ()}
    return np.dtype((type("Record", (np.void,), {"__slots__": (), **fields}), dtype))


def _setter(name: str) -> Callable[[Any, Any], None]:
    return lambda record, value: record.__setitem__(name, value)


def record_of(*fields: str, reals: Iterable[str] = ()) -> np.dtype:
    """Return the dtype of records of int64 and, behind them, of float64; a string may name several `fields`."""
    whole = [name for names in fields for name in names.split()]
    return np.dtype([(name, np.int64) for name in whole] + [(name, np.float64) for name in reals])


def with_fields(records: np.ndarray) -> np.ndarray:
    """Return an array of records, the same memory, whose elements have their fields as attributes."""
    return records.view(np.ndarray).view(_records(records.dtype))


class ArrayAt:
    """Return the array at an address, with elements of `dtype`; the caller must know its length."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)

    def __call__(self, address: int) -> Any:
        """Return the array that begins at `address`."""
        array = _arrays[address]
        # Records of one origin share the tuple of names; to compare all fields takes longer than what is done with one.
        is_same = array.dtype.names is self.dtype.names is not None or array.dtype == self.dtype
        return array if is_same else array.view(self.dtype)


class RecordOf:
    """Return the record of `dtype` that an array of int64 holds, in the same memory."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)

    def __call__(self, words: Any) -> Any:
        """Return the record, its fields as attributes."""
        return with_fields(words.view(self.dtype))[0]


class FieldsAtOnce:
    """What is done with many fields of a record in one call."""


class SameFields(FieldsAtOnce):
    """Return whether two records have the same values in these fields; compiled, all are compared without branches."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __call__(self, one: Any, other: Any) -> bool:
        """Return whether they are the same."""
        return all(getattr(one, name) == getattr(other, name) for name in self.names)


class HasFields(FieldsAtOnce):
    """Return whether fields of a record have these constant values; compiled, all are compared without branches."""

    def __init__(self, **values: int) -> None:
        self.values = values

    def __call__(self, record: Any) -> bool:
        """Return whether they have."""
        return all(getattr(record, name) == value for name, value in self.values.items())


class CopyFields(FieldsAtOnce):
    """Give fields of a record the values of another one's: of the same name, or ``target="source"``."""

    def __init__(self, *same: str, **others: str) -> None:
        self.sources = {name: name for name in same} | others

    def __call__(self, record: Any, other: Any) -> None:
        """Copy them, to the first record from the second."""
        for name, source in self.sources.items():
            setattr(record, name, getattr(other, source))


class SetFields(FieldsAtOnce):
    """Set fields of a record to constant integers."""

    def __init__(self, **values: int) -> None:
        self.values = values

    def __call__(self, record: Any) -> None:
        """Set them."""
        for name, value in self.values.items():
            setattr(record, name, value)


words = ArrayAt(np.int64)
naturals = ArrayAt(np.uint64)
reals = ArrayAt(np.float64)


def call(address: int, event: int, state: int, ack: int) -> int:
    """Call the function at `address`: int64 f(int64, int64, int64)."""
    if address < 0:
        return _functions[address](event, state, ack)
    return _Code(int(address))(int(event), int(state), int(ack))


def big64(array: Values, at: int) -> np.int64:
    """Return the eight bytes from `at` on as a signed number, most significant first."""
    return np.int64(int.from_bytes(array[at : at + 8].tobytes(), "big", signed=True))


def little64(array: Values, at: int) -> np.int64:
    """Return the eight bytes from `at` on as a signed number, least significant first."""
    return np.int64(int.from_bytes(array[at : at + 8].tobytes(), "little", signed=True))
