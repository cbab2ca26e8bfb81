"""Sequence space: unwrapped numbers, and the packets of each connection.

Sequence numbers are 32-bit and wrap; here they are relative to the connection (the SYN is 0, the first byte of
payload 1) and grow without bound.
"""

from typing import Any

import numpy as np

from cctrace.columns import Ints, Values
from cctrace.lang.machine import Machine
from cctrace.tcp import sequence


def unwrapped(numbers: Values, mine: Values, base: int) -> Ints:
    """Return sequence numbers of the sender relative to `base`, growing without bound; 0 for other packets."""
    out = np.zeros(len(numbers), np.int64)
    out[mine] = sequence.unwrapped(numbers[mine], base)
    return out


def group(conn: Values, connections: int) -> tuple[Ints, Ints]:
    """Return the packets' rows grouped by connection, in file order within each, and where each group starts.

    `order` has the shape of `conn`; `first` has one value more than there are connections.
    """
    first = np.zeros(connections + 1, np.int64)
    order = np.empty(conn.size, np.int64)
    _put_in_order(np.ascontiguousarray(conn), first, first.copy(), order)
    return order, first


def put_in_order(conn: Any, first: Any, place: Any, order: Any) -> None:
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
