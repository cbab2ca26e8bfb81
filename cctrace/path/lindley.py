"""Compiled: residual delays of a flow at one bottleneck rate, which `bottleneck` and `buckets` evaluate hundreds of
times.

Sums of logarithms are computed as logarithms of products, one for dozens of delays.
"""

import math

from cctrace.lang.machine import Machine

_LARGEST = 1e280  # of a product, before one more factor
IDLE = -1e300  # start of a busy period before the first packet


def left(came, before, total, acked, timed, rate, out, begin, end, start):
    """Compute the residual delay of the `timed` packets: acknowledgement minus departure from a queue of one rate.

    `came`, `before`, `total`: arrival time of each packet, us, and cumulative bytes before and after it. `acked`: when
    it was acknowledged, us. `timed`: rows of packets, ascending. `rate`: bytes per us. `out`: receives one value per
    row of `timed`, from `begin` to before `end`. `start`: when the busy period before them began, were all its work
    one packet; returns that of the last one. From the first row on it is `IDLE`.
    """
    row = timed[begin - 1] + 1 if begin > 0 else 0
    for k in range(begin, end):
        latest = -1e300  # of the packets since the last timed one: a chain of maxima of its own is faster
        while row <= timed[k]:
            latest = max(latest, came[row] - before[row] / rate)
            row += 1
        start = max(start, latest)
        out[k] = acked[timed[k]] - start - total[timed[k]] / rate
    return start


def deviating(came, before, total, acked, timed, rate, size, small, most, out, room):
    """Return the mean of log(1 + |x - median| / small) over the residual delays of `left`.

    `size`: number of delays per median; those after the last full `size` are ignored. `most`: if the mean exceeds
    this, the result is infinity. `out`, `room`: scratch, at least as long as `timed`.
    """
    count = len(timed) // size * size
    found, start = 0.0, IDLE
    for window in range(count // size):
        begin, end = window * size, window * size + size
        start = left(came, before, total, acked, timed, rate, out, begin, end, start)
        room[0:size] = out[begin:end]
        found += logs(out, begin, end, middle(room, size), small, most * count - found)
        if found > most * count:
            return math.inf
    return found / count


def shaped(came, before, total, acked, rows, rate, share, least, small, most, out, room):
    """Return the mean of log(1 + |x| / small) over the residual delays behind a token bucket of one rate; infinity for
    a rate without a bucket.

    Arguments as for `left` (`rows` for `timed`) and `deviating`. `share`: the bucket's size is the delay by which
    packets at this quantile arrive earlier than from a queue. `least`: base RTT, us.
    """
    count = len(rows)
    left(came, before, total, acked, rows, rate, out, 0, count, IDLE)
    room[0:count] = out[0:count]
    bucket_us = least - quantile(room, count, share)
    if not bucket_us > 0:
        return math.inf
    for k in range(count):
        row = rows[k]
        # Packets leave this much earlier than from a queue, but not before they arrive.
        out[k] = min(out[k] + bucket_us, acked[row] - came[row]) - least
    found = logs(out, 0, count, 0.0, small, most * count) / count
    return math.inf if found > most else found


def drained(time, size, lost, rate, bucket, near, out):
    """Note the deficit of a token bucket that each packet met, itself included; a loss near its size corrects it.

    `time`, `size`: when each packet came, us, and its bytes. `lost`: whether it was lost. `rate`, `bucket`: bytes per
    us, and bytes. `near`: bytes by which the deficit may be short of the bucket where that is said to be empty:
    packets that were miscounted are forgotten then. What was lost with more tokens left had passed, and was lost
    elsewhere. `out`: receives a number per packet.
    """
    level, before = 0.0, time[0]
    for k in range(len(time)):
        level = max(level - (time[k] - before) * rate, 0.0) + size[k]
        before = time[k]
        out[k] = level
        if lost[k]:
            level = corrected(level, size[k], bucket, near)


def corrected(level, size, bucket, near):
    """Return the deficit behind a lost packet that met `level`, see `drained`."""
    if level > bucket - near:
        return min(max(level, bucket) - size, bucket)  # what is dropped takes no tokens, and lacked some
    return level


def emptied(time, size, lost, rate, bucket, near, packet, empty, share, over, spared, counts):
    """Count packets and losses by the deficits of `drained`, in packets beyond the bucket's size; return whether the
    bucket can have dropped the losses.

    It cannot if less than `share` of the losses are within `empty` packets of its size, or more than `spared` of the
    passed packets beyond `over`: most buckets are refused after a few packets. `counts`: numbers of losses and of
    passed packets, then twice as many zones as there are, of a packet each, from below -`empty` to beyond `over`:
    losses, and all packets.
    """
    zones = (len(counts) - 2) // 2
    level, before = 0.0, time[0]
    unexplained = passed = 0
    for k in range(len(time)):
        level = max(level - (time[k] - before) * rate, 0.0) + size[k]
        before = time[k]
        beyond = (level - bucket) / packet
        zone = min(max(math.floor(beyond) + int(empty) + 1, 0), zones - 1)
        counts[2 + zones + zone] += 1
        if lost[k]:
            counts[2 + zone] += 1
            if not beyond > -empty:
                unexplained += 1
                if (counts[0] - unexplained) / counts[0] < share:
                    return 0
            level = corrected(level, size[k], bucket, near)
        elif beyond > over:
            passed += 1
            if passed / counts[1] > spared:
                return 0
    return 1


def logs(values, begin, end, centre, small, most):
    """Return the sum of log(1 + |x - centre| / small) over part of an array, or what exceeds `most` of it."""
    found, product = 0.0, 1.0
    for k in range(begin, end):
        product *= 1.0 + abs(values[k] - centre) / small
        if product > _LARGEST:
            found += math.log(product)
            if found > most:
                return found
            product = 1.0
    return found + math.log(product)


def middle(values, count):
    """Return the median of the first `count` values of an array, which is reordered."""
    half = count // 2
    high = ranked(values, count, half)
    if count % 2:
        return high
    low = values[0]
    for k in range(half):
        low = max(low, values[k])
    return (low + high) / 2


def quantile(values, count, share):
    """Return a quantile of the first `count` values of an array, which is reordered; as `numpy.quantile`."""
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
    """Return the value of a given rank among the first `count`, partitioning them around it."""
    low, high = 0, count
    while high - low > 1:
        first, last = min(values[low], values[high - 1]), max(values[low], values[high - 1])
        pivot = max(first, min(last, values[(low + high) // 2]))
        less = low  # no branch depends on a value, because half of the guesses of the processor would be wrong
        for k in range(low, high):
            value = values[k]
            values[k] = values[less]
            values[less] = value
            less += value < pivot
        if rank < less:
            high = less
            continue
        low = less
        for k in range(less, high):
            value = values[k]
            values[k] = values[low]
            values[low] = value
            low += value <= pivot
        if rank < low:
            break
    return values[rank]


residual_delays = Machine(left)
deviation_by_queue = Machine(deviating)
deviation_by_bucket = Machine(shaped)
deficits_at = Machine(drained)
losses_by_deficit = Machine(emptied)
