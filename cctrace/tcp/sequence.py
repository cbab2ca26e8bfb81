"""Arithmetic of 32-bit sequence numbers, which wrap [RFC 9293 §3.4]: offsets from a base that grow without bound."""

from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Ints


@overload
def unwrap(seq: int | np.integer, base: int, near: int) -> np.int64: ...
@overload
def unwrap(seq: NDArray[np.integer], base: int, near: Any) -> Ints: ...
def unwrap(seq: Any, base: int, near: Any) -> Any:
    """Return `seq - base` (32-bit numbers) unwrapped to the value closest to `near`; compiled into the reconstruction.

    >>> int(unwrap(5, 0xFFFFFFFF, 0))
    6
    """
    offset = (np.int64(seq) - base - near) & 0xFFFFFFFF
    return near + offset - ((offset >> 31) << 32)


def is_newer(one: Any, other: Any) -> Any:
    """Return whether a 32-bit number, of a time stamp for instance, is later than another [RFC7323] 5.2.

    >>> is_newer(5, 0xFFFFFFFF), is_newer(5, 5), is_newer(0xFFFFFFFF, 5)
    (True, False, False)
    """
    return 0 < ((one - other) & 0xFFFFFFFF) < 0x80000000


def first_not_below(ascending: Any, count: Any, position: Any) -> Any:
    """Return the first of `count` ascending positions that is not below another one, or `count`.

    >>> first_not_below([1, 1449, 2897], 3, 1449), first_not_below([1, 1449, 2897], 3, 2898)
    (1, 3)
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < position:
            low = middle + 1
        else:
            high = middle
    return low


def unwrapped(numbers: NDArray[np.uint32], base: int) -> Ints:
    """Return 32-bit numbers as offsets from `base`: an array of int64, each within 2 GiB of the one before.

    >>> unwrapped(np.array([0xFFFFFFFF, 5, 3], np.uint32), 0xFFFFFFFF).tolist()
    [0, 6, 4]
    """
    offsets = numbers.astype(np.int64) - base
    steps = np.diff(offsets, prepend=np.int64(0))
    return np.cumsum(((steps + (1 << 31)) & 0xFFFFFFFF) - (1 << 31))
