"""Compiled: what the queue at one rate leaves of a flow's delays, for `bottleneck` and `buckets`, hundreds of times.

Deviations are sums of logarithms, taken of products of their arguments, which takes one logarithm for dozens of delays.
"""

import math

from cctrace.lang.machine import Machine

_LARGEST = 1e280  # of a product, to which one more factor may come


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


def deviating(came, before, total, told, shown, rate, size, small, most, out, room):
    """Return the mean of log(1 + |x - median| / small) over what the queue leaves of the delays.

    Parameters
    ----------
    came, before, total, told, shown, rate
        As for `left`.
    size : int
        Delays of which the median is taken; those after the last full `size` are left out.
    small : float
    most : float
        A mean above that is none of interest: infinity then stands for it.
    out, room : ndarray of float64
        At least as long as `shown`; overwritten.
    """
    left(came, before, total, told, shown, rate, out)
    count = len(shown) // size * size
    found = 0.0
    for window in range(count // size):
        begin, end = window * size, window * size + size
        room[0:size] = out[begin:end]
        found += logs(out, begin, end, middle(room, size), small)
        if found > most * count:
            return math.inf
    return found / count


def shaped(came, before, total, told, known, rate, share, least, small, most, out, room):
    """Return the mean of log(1 + |x| / small) over what a token bucket of one rate leaves of the delays.

    Parameters
    ----------
    came, before, total, told, known, rate
        As for `left`, with `known` for `shown`.
    share : float
        By the quantile of the delays at this share packets come sooner than from a queue: the bucket's size.
    least : float
        Delay of the path alone, us.
    small, most, out, room
        As for `deviating`. Infinity stands for a rate that leaves no bucket, too.
    """
    count = len(known)
    left(came, before, total, told, known, rate, out)
    room[0:count] = out[0:count]
    bucket_us = least - quantile(room, count, share)
    if not bucket_us > 0:
        return math.inf
    for k in range(count):
        row = known[k]
        # Time that packets leave before they would from a queue, unless they came later than that.
        out[k] = min(out[k] + bucket_us, told[row] - came[row]) - least
    found = logs(out, 0, count, 0.0, small) / count
    return math.inf if found > most else found


def logs(values, begin, end, centre, small):
    """Return the sum of log(1 + |x - centre| / small) over a part of an array."""
    found, product = 0.0, 1.0
    for k in range(begin, end):
        product *= 1.0 + abs(values[k] - centre) / small
        if product > _LARGEST:
            found += math.log(product)
            product = 1.0
    return found + math.log(product)


def middle(values, count):
    """Return the median of the first `count` of an array, which is reordered."""
    half = count // 2
    high = ranked(values, count, half)
    if count % 2:
        return high
    low = values[0]
    for k in range(half):
        low = max(low, values[k])
    return (low + high) / 2


def quantile(values, count, share):
    """Return a quantile of the first `count` of an array, which is reordered, as `numpy.quantile` does."""
    place = share * (count - 1)
    below = int(place)
    low = ranked(values, count, below)
    if below + 1 == count:
        return low
    high = values[below + 1]
    for k in range(below + 1, count):
        high = min(high, values[k])
    return low + (high - low) * (place - below)


def ranked(values, count, rank):
    """Return the element of a rank among the first `count`; those before it are then no larger, others no smaller."""
    low, high = 0, count - 1
    while low < high:
        first, last = min(values[low], values[high]), max(values[low], values[high])
        pivot = max(first, min(last, values[(low + high) // 2]))
        less, more = low, high
        while less <= more:
            while values[less] < pivot:
                less += 1
            while values[more] > pivot:
                more -= 1
            if less <= more:
                kept = values[less]
                values[less] = values[more]
                values[more] = kept
                less += 1
                more -= 1
        if rank <= more:
            high = more
        elif rank >= less:
            low = less
        else:
            break
    return values[rank]


left_by_queue = Machine(left)
deviation_by_queue = Machine(deviating)
deviation_by_bucket = Machine(shaped)
