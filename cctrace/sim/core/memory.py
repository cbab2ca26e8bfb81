"""Where a simulation's arrays lie: records hold addresses, so that compiled functions pass two pointers, not arrays.

Interpreted, an address is looked up among the arrays that `place` has seen; compiled, `build` turns it into a pointer.
"""

import numpy as np

_arrays = {}


def place(array):
    """Remember a contiguous array; returns its address. `forget` it when the simulation ends."""
    address = array.ctypes.data
    _arrays[address] = array
    return address


def forget(addresses):
    """Drop arrays that `place` remembered."""
    for address in addresses:
        _arrays.pop(address, None)


def words(address):
    """The int64 array at `address`."""
    return _arrays[address]


def naturals(address):
    """The uint64 array at `address`."""
    return _arrays[address].view(np.uint64)


def reals(address):
    """The float64 array at `address`."""
    return _arrays[address]


def segments(address):
    """The SEGMENT records at `address`."""
    return _arrays[address]


def flows(address):
    """The FLOW records at `address`."""
    return _arrays[address]
