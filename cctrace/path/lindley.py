"""Compiled: what the queue at one rate leaves of a flow's delays, asked for hundreds of rates (`bottleneck`)."""

from cctrace.lang.machine import Machine


def left(came, before, total, told, shown, rate, out):
    """Note of the packets that are shown by how much they arrived later than they had left a queue of one rate.

    Parameters
    ----------
    came, before, total : ndarray of float64
        When each packet came, us, how many bytes came before it, and with it.
    told : ndarray of float64
        When it arrived, us.
    shown : ndarray of int64
        Rows of packets, ascending.
    rate : float
        Bytes per us.
    out : ndarray of float64
        Receives a number for each of `shown`.
    """
    start, row = -1e300, 0  # when the busy period would have begun, were all its work one packet
    for k in range(len(shown)):
        while row <= shown[k]:
            start = max(start, came[row] - before[row] / rate)
            row += 1
        out[k] = told[shown[k]] - start - total[shown[k]] / rate


left_by_queue = Machine(left)
