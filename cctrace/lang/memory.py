"""Arrays and functions by address, so that code passes single words about, the same interpreted and compiled.

    words(address)[k]                   an array of int64; `naturals`: uint64, `reals`: float64, `array_of`: any
    call(address, event, state, ack)    a function of three words that returns one, like `Compiled.address`

Compiled, an address is a pointer. Interpreted, an array is looked up among those that `place` has seen (by where it
begins), a function among those that `callback` has.
"""

import itertools

import numpy as np

_arrays: dict[int, np.ndarray] = {}
_functions: dict[int, object] = {}
_numbers = itertools.count(1)


def place(array):
    """Remember a C-contiguous array; returns its address. `forget` it when nobody uses it any more."""
    address = array.ctypes.data
    _arrays[address] = array
    return address


def callback(function):
    """Remember a Python function ``(event, state, ack) -> int``; returns what stands for its address, interpreted."""
    address = -next(_numbers)
    _functions[address] = function
    return address


def forget(addresses):
    """Drop arrays and functions that `place` and `callback` remembered."""
    for address in addresses:
        _arrays.pop(address, None)
        _functions.pop(address, None)


def array_of(dtype):
    """Return a function of an address that gives the array of `dtype` there; its length is the caller's business."""

    def array(address):
        return _arrays[address]

    array.dtype = np.dtype(dtype)
    return array


words = array_of(np.int64)
reals = array_of(np.float64)


def naturals(address):
    """The uint64 array at `address`."""
    return _arrays[address].view(np.uint64)


naturals.dtype = np.dtype(np.uint64)


def call(address, event, state, ack):
    """Call the function at `address`: int64 f(int64, int64, int64)."""
    return _functions[address](event, state, ack)
