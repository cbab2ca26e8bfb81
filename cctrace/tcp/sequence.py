"""Arithmetic of 32-bit sequence numbers, which wrap [RFC 9293 §3.4]: offsets from a base that grow without bound."""

import numpy as np


def unwrap(seq, base, near):
    """Return `seq - base` (32-bit numbers) unwrapped to the value closest to `near`; compiled into the reconstruction.

    Examples
    --------
    >>> int(unwrap(5, 0xFFFFFFFF, 0))
    6
    """
    offset = (np.int64(seq) - base - near) & 0xFFFFFFFF
    return near + offset - ((offset >> 31) << 32)


def unwrapped(numbers, base):
    """Return 32-bit numbers as offsets from `base`: an array of int64, each within 2 GiB of the one before.

    Examples
    --------
    >>> unwrapped(np.array([0xFFFFFFFF, 5, 3], np.uint32), 0xFFFFFFFF).tolist()
    [0, 6, 4]
    """
    steps = np.diff(numbers.astype(np.int64), prepend=base)
    return np.cumsum(((steps + (1 << 31)) & 0xFFFFFFFF) - (1 << 31))
