"""Sequence space: unwrapped numbers and the packets of each connection.

Sequence numbers are 32-bit and wrap; here they are relative to the connection (the SYN is 0, the first byte of payload
1) and grow without bound.
"""

import numpy as np

from cctrace.lang.machine import Machine


def unwrap(seq, base, near):
    """Return `seq - base` (32-bit numbers) unwrapped to the value closest to `near`.

    Examples
    --------
    >>> int(unwrap(5, 0xFFFFFFFF, 0))
    6
    """
    offset = (np.int64(seq) - base - near) & 0xFFFFFFFF
    return near + offset - ((offset >> 31) << 32)


def unwrapped(numbers, mine, base):
    """Return sequence numbers of the sender relative to `base`, growing without bound; 0 for other packets."""
    relative = (numbers.astype(np.int64) - base) & 0xFFFFFFFF
    values = relative[mine]
    if len(values):
        steps = np.diff(values, prepend=values[:1])
        wraps = np.cumsum((steps < -(1 << 31)).astype(np.int64) - (steps > (1 << 31)))
        values = values + (wraps << 32)
    out = np.zeros(len(numbers), np.int64)
    out[mine] = values
    return out


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
    order = np.empty(conn.size, np.int64)
    _put_in_order(np.ascontiguousarray(conn), first, first.copy(), order)
    return order, first


def put_in_order(conn, first, place, order):
    """Fill `order` and `first`; `place` is a second one like `first`, to work with."""
    for k in range(conn.size):
        first[conn[k] + 1] += 1
    for c in range(first.size - 1):
        first[c + 1] += first[c]
        place[c + 1] = first[c + 1]
    for k in range(conn.size):
        c = conn[k]
        order[place[c]] = k
        place[c] += 1


_put_in_order = Machine(put_in_order)
