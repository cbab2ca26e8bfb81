"""Arrays and functions by address, so that code passes single words about, the same interpreted and compiled.

    words(address)[k]                   an array of int64; `naturals`: uint64, `reals`: float64, `ArrayAt(dtype)`: any
    call(address, event, state, ack)    a function of three words that returns one, like `Compiled.address`

Compiled, an address is a pointer. Interpreted, an array is looked up among those that `place` has seen (by where it
begins), a function among those that `callback` has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_arrays: dict[int, np.ndarray] = {}
_functions: dict[int, Callable[[int, int, int], int]] = {}
_numbers = itertools.count(1)


def place(array: NDArray[Any]) -> int:
    """Remember a C-contiguous array; returns its address. `forget` it when nobody uses it any more."""
    address = array.ctypes.data
    _arrays[address] = array
    return address


def callback(function: Callable[[int, int, int], int]) -> int:
    """Remember a Python function ``(event, state, ack) -> int``; returns what stands for its address, interpreted."""
    address = -next(_numbers)
    _functions[address] = function
    return address


def forget(addresses: Iterable[int]) -> None:
    """Drop arrays and functions that `place` and `callback` remembered."""
    for address in addresses:
        _arrays.pop(address, None)
        _functions.pop(address, None)


class ArrayAt:
    """Gives the array at an address, its elements of `dtype`; its length is the caller's business."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)

    def __call__(self, address: int) -> Any:
        """Return the array that begins at `address`."""
        array = _arrays[address]
        return array if array.dtype == self.dtype else array.view(self.dtype)


words = ArrayAt(np.int64)
naturals = ArrayAt(np.uint64)
reals = ArrayAt(np.float64)


def call(address: int, event: int, state: int, ack: int) -> int:
    """Call the function at `address`: int64 f(int64, int64, int64)."""
    return _functions[address](event, state, ack)
