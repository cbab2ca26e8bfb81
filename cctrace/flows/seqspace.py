"""Sequence space: unwrapped numbers and the packets of each connection.

Sequence numbers are 32-bit and wrap; here they are relative to the connection (the SYN is 0, the first byte of payload
1) and grow without bound.
"""

import numpy as np
from numba import njit


@njit
def unwrap(seq, base, near):
    """Return `seq - base` (32-bit numbers) unwrapped to the value closest to `near`.

    Examples
    --------
    >>> unwrap(5, 0xFFFFFFFF, 0)
    6
    """
    offset = (np.int64(seq) - base - near) & 0xFFFFFFFF
    return near + offset - ((offset >> 31) << 32)


@njit(cache=True, nogil=True)
def group(conn, connections):
    """Return the packets' rows grouped by connection, in file order within each, and where each group starts.

    Parameters
    ----------
    conn : ndarray of int, shape (packets,)
    connections : int

    Returns
    -------
    order : ndarray of int64, shape (packets,)
    first : ndarray of int64, shape (connections + 1,)
    """
    first = np.zeros(connections + 1, np.int64)
    for c in conn:
        first[c + 1] += 1
    for c in range(connections):
        first[c + 1] += first[c]
    place = first[:-1].copy()
    order = np.empty(conn.size, np.int64)
    for k in range(conn.size):
        c = conn[k]
        order[place[c]] = k
        place[c] += 1
    return order, first
