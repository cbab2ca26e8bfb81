"""Sequence space: unwrapped numbers, the packets of each connection, the sender's clock and segment size.

Sequence numbers are 32-bit and wrap; here they are relative to the connection (the SYN is 0, the first byte of payload
1) and grow without bound.
"""

import numpy as np
from numba import njit

COMMON_MSS = (1448, 1460, 1428, 1440, 1388, 1400, 1348, 1360, 1220, 1208, 8948, 8960, 8928, 8940, 536, 524, 1380, 1368)


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


def segment_size(largest, gcd, syn_mss):
    """Return the payload of a full segment and whether that is certain.

    Parameters
    ----------
    largest : int
        Largest payload of a captured packet, bytes.
    gcd : int
        Greatest common divisor of the payloads of packets without PSH, and of super-packets; 0 unknown.
    syn_mss : int
        Smaller of the two MSS options less what the TCP options of every segment take; -1 without a SYN.

    Returns
    -------
    (int, bool)
    """
    if syn_mss > 0:
        # The path may have allowed less than the MSS: then packets are never as large.
        return (largest, True) if 0 < largest < syn_mss and gcd == largest else (syn_mss, True)
    if largest <= 0:
        return 1448, False
    if largest <= 1460 or gcd == largest:
        return largest, largest in COMMON_MSS
    for mss in COMMON_MSS:
        if gcd and gcd % mss == 0:
            return mss, True
    return 1448, False
