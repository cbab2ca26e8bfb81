"""Compiled: how well one bottleneck rate, or token bucket, explains a flow; searches ask hundreds of times.

Sums of logarithms are computed as logarithms of products, one for dozens of delays.
"""

import math

from cctrace.lang.machine import Machine

_LARGEST = 1e280  # of a product, before one more factor
IDLE = -1e300  # start of a busy period before the first packet


def residuals(sent_us, bytes_before, last, bytes_after, acked_us, rows, rate, out, begin, end, start) -> int:
    """Compute the residual delays of packets: acknowledgement minus departure from a queue of one rate, us.

    `sent_us`, `bytes_before`: when packets arrived at the queue, and the bytes sent before them; of several packets of
    one instant, the first is enough. `bytes_after`, `acked_us`: the bytes up to each packet, and when it was
    acknowledged. `rows`: the packets asked for, ascending; `last`: the last arrival up to each of them. `rate`: bytes
    per us. `out`: receives one value per row, from `begin` to before `end`. `start`: when the busy period before them
    would have begun as a single packet; that of the last one is returned. From the first row on it is `IDLE`.
    """
    at = last[begin - 1] + 1 if begin > 0 else 0
    for k in range(begin, end):
        latest = -1e300  # of the packets since the row before: a chain of maxima of its own is faster
        while at <= last[k]:
            latest = max(latest, sent_us[at] - bytes_before[at] / rate)
            at += 1
        start = max(start, latest)
        out[k - begin] = acked_us[rows[k]] - start - bytes_after[rows[k]] / rate
    return start


def residuals_of_steps(
    sent_us, bytes_before, last, bytes_after, acked_us, rows, start_us, rates, served, per_us, us_per, out
) -> None:
    """Compute the `residuals` of all `rows` behind a queue of several rates, with the digits of `queue.departures`.

    `start_us`, `rates`: when each rate begins, and the rates. `served`: the bytes that a busy server has sent by then.
    `per_us`, `us_per`: the slopes in between, bytes per us and us per byte.
    """
    final = len(rates) - 1
    arrival = arriving = leaving = 0
    ahead = -1e300  # the most that a server that is always busy has sent beyond what had arrived
    for k in range(len(rows)):
        while arrival <= last[k]:
            at = sent_us[arrival]
            while arriving < final and at >= start_us[arriving + 1]:
                arriving += 1
            if at < 0:
                clock = rates[0] * at
            elif arriving == final:
                clock = served[final] + rates[final] * (at - start_us[final])
            else:
                clock = per_us[arriving] * (at - start_us[arriving]) + served[arriving]
            ahead = max(ahead, clock - bytes_before[arrival])
            arrival += 1
        behind = bytes_after[rows[k]] + ahead
        while leaving < final and behind >= served[leaving + 1]:
            leaving += 1
        if behind < 0:
            left_us = behind / rates[0]
        elif leaving == final:
            left_us = start_us[final] + (behind - served[final]) / rates[final]
        else:
            left_us = us_per[leaving] * (behind - served[leaving]) + start_us[leaving]
        out[k] = acked_us[rows[k]] - left_us


def queue_deviation(
    sent_us, bytes_before, last, bytes_after, acked_us, rows, rate, size, scale_us, limit, out, scratch
) -> float:
    """Return the mean of log(1 + |x - median| / scale_us) over the `residuals`, or infinity if it exceeds `limit`.

    `size`: number of residuals per median; those after the last full `size` are ignored. `out`, `scratch`: at least as
    long as that.
    """
    count = len(rows) // size * size
    found, start = 0.0, IDLE
    for window in range(count // size):
        begin, end = window * size, window * size + size
        start = residuals(sent_us, bytes_before, last, bytes_after, acked_us, rows, rate, out, begin, end, start)
        scratch[0:size] = out[0:size]
        found += sum_of_logs(out, size, median(scratch, size), scale_us, limit * count - found)
        if found > limit * count:
            return math.inf
    return found / count


def distances(values, size, scale, out, scratch) -> None:
    """Compute |x - median| / scale of all values, each `size` of them from their own median.

    `out`: as long as `values`, a multiple of `size`; `scratch`: `size` long.
    """
    for window in range(len(values) // size):
        begin, end = window * size, window * size + size
        scratch[0:size] = values[begin:end]
        middle = median(scratch, size)
        for k in range(begin, end):
            out[k] = abs(values[k] - middle) / scale


def bucket_deviation(
    sent_us, bytes_before, last, bytes_after, acked_us, rows, rate, share, base_us, scale_us, limit, out, scratch
) -> float:
    """Return the mean of log(1 + |x| / scale_us) over the residual delays behind a token bucket of one rate.

    Infinity for a rate without a bucket, or beyond `limit`. `share`: the bucket's size is the time by which packets at
    this quantile arrive earlier than from a queue. `base_us`: RTT without queue. The others: see `queue_deviation`.
    """
    count = len(rows)
    residuals(sent_us, bytes_before, last, bytes_after, acked_us, rows, rate, out, 0, count, IDLE)
    scratch[0:count] = out[0:count]
    bucket_us = base_us - quantile(scratch, count, share)
    if not bucket_us > 0:
        return math.inf
    return spread_behind(sent_us, last, acked_us, rows, bucket_us, base_us, scale_us, limit, out)


def shaped_deviation(
    sent_us, bytes_before, last, bytes_after, acked_us, rows, rate, bucket_us, base_us, scale_us, limit, out
) -> float:
    """Return `bucket_deviation` for a bucket of `bucket_us` at this rate."""
    residuals(sent_us, bytes_before, last, bytes_after, acked_us, rows, rate, out, 0, len(rows), IDLE)
    return spread_behind(sent_us, last, acked_us, rows, bucket_us, base_us, scale_us, limit, out)


def spread_behind(sent_us, last, acked_us, rows, bucket_us, base_us, scale_us, limit, out) -> float:
    """Return `bucket_deviation` from the `residuals` in `out`, which are overwritten."""
    count = len(rows)
    for k in range(count):
        # Packets leave this much earlier than from a queue, but not before they arrive.
        out[k] = min(out[k] + bucket_us, acked_us[rows[k]] - sent_us[last[k]]) - base_us
    found = sum_of_logs(out, count, 0.0, scale_us, limit * count) / count
    return math.inf if found > limit else found


def deficits(sent_us, size, lost, rate, bucket, near, out) -> None:
    """Compute the deficit of a token bucket that each packet met, itself included, bytes; a loss near the bucket's size
    corrects it.

    `size`: bytes of each packet; `lost`: whether it was lost. `rate`, `bucket`: bytes per us, and bytes. `near`: how
    many bytes short of the bucket's size a deficit may be for a loss to say that the bucket was empty: miscounted
    packets are forgotten there. What was lost with more tokens left had passed, and was lost elsewhere. `out`:
    receives a number per packet.
    """
    level, before_us = 0.0, sent_us[0]
    for k in range(len(sent_us)):
        level = max(level - (sent_us[k] - before_us) * rate, 0.0) + size[k]
        before_us = sent_us[k]
        out[k] = level
        if lost[k]:
            level = after_loss(level, size[k], bucket, near)


def after_loss(level, size, bucket, near) -> float:
    """Return the deficit behind a lost packet that met `level`, see `deficits`."""
    if level > bucket - near:
        return min(max(level, bucket) - size, bucket)  # what is dropped takes no tokens, and lacked some
    return level


def count_by_deficit(
    sent_us, size, lost, rate, bucket, near, packet, empty_packets, least_share, over_packets, most_share, counts
) -> int:
    """Count losses and packets by their `deficits`, in packets beyond the bucket's size; return whether the bucket can
    have dropped the losses.

    It cannot if less than `least_share` of the losses are within `empty_packets` of its size, or more than `most_share`
    of the passed packets beyond `over_packets`: most buckets are refused after a few packets. `packet`: bytes of one.
    `counts`: the numbers of losses and of passed packets; then two counts for each zone of a packet's width, from below
    -`empty_packets` to beyond `over_packets`: the losses of all zones, then the packets of all zones.
    """
    zones = (len(counts) - 2) // 2
    level, before_us = 0.0, sent_us[0]
    unexplained = passed = 0
    for k in range(len(sent_us)):
        level = max(level - (sent_us[k] - before_us) * rate, 0.0) + size[k]
        before_us = sent_us[k]
        beyond = (level - bucket) / packet
        zone = min(max(math.floor(beyond) + int(empty_packets) + 1, 0), zones - 1)
        counts[2 + zones + zone] += 1
        if lost[k]:
            counts[2 + zone] += 1
            if not beyond > -empty_packets:
                unexplained += 1
                if (counts[0] - unexplained) / counts[0] < least_share:
                    return 0
            level = after_loss(level, size[k], bucket, near)
        elif beyond > over_packets:
            passed += 1
            if passed / counts[1] > most_share:
                return 0
    return 1


def in_turn(sent_us, wire_bytes, flow, rate, last, leaves, out) -> None:
    """Compute when each packet of flow 0 leaves a fair queue.

    `sent_us`, `wire_bytes`, `flow`: of all flows' packets, in order of sending. `rate`: of the link, bytes per us.
    `last`: zeros, one for each flow, for the virtual time at which its last packet leaves; `leaves`: as long as `out`,
    for that of each packet of flow 0. `out`: receives the times, us.
    """
    now, virtual = sent_us[0], 0.0
    came = gone = k = 0
    while gone < len(out):
        until = sent_us[k] if k < len(sent_us) else math.inf
        waiting, soonest = 0, math.inf
        for other in range(len(last)):
            if last[other] > virtual:
                waiting += 1
                soonest = min(soonest, last[other])
        if waiting:
            after = min(virtual + (until - now) * rate / waiting, soonest)
            while gone < came and leaves[gone] <= after:
                out[gone] = now + (leaves[gone] - virtual) * waiting / rate
                gone += 1
            if after == soonest:  # a flow has no more packets: the others are served faster
                now += (after - virtual) * waiting / rate
                virtual = after
                continue
            virtual = after
        now = until
        if k < len(sent_us):
            last[flow[k]] = max(last[flow[k]], virtual) + wire_bytes[k]
            if flow[k] == 0:
                leaves[came] = last[0]
                came += 1
            k += 1


def sum_of_logs(values, count, centre, scale, limit) -> float:
    """Return the sum of log(1 + |x - centre| / scale) over the first `count` values, or a part of it beyond `limit`."""
    found, product = 0.0, 1.0
    for k in range(count):
        product *= 1.0 + abs(values[k] - centre) / scale
        if product > _LARGEST:
            found += math.log(product)
            if found > limit:
                return found
            product = 1.0
    return found + math.log(product)


def median(values, count) -> float:
    """Return the median of the first `count` values of an array, which is reordered."""
    half = count // 2
    high = select(values, count, half)
    if count % 2:
        return high
    low = values[0]
    for k in range(half):
        low = max(low, values[k])
    return (low + high) / 2


def quantile(values, count, share) -> float:
    """Return a quantile of the first `count` values of an array, which is reordered; as `numpy.quantile`."""
    place = share * (count - 1)
    below = int(place)
    low = select(values, count, below)
    if below + 1 == count:
        return low
    high = values[below + 1]
    for k in range(below + 1, count):
        high = min(high, values[k])
    return low + (high - low) * (place - below)


def select(values, count, rank) -> float:
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


residual_delays = Machine(residuals)
residual_delays_by_steps = Machine(residuals_of_steps)
distances_from_medians = Machine(distances)
deviation_by_queue = Machine(queue_deviation)
deviation_by_bucket = Machine(bucket_deviation)
deviation_of_shaped = Machine(shaped_deviation)
deficits_at = Machine(deficits)
losses_by_deficit = Machine(count_by_deficit)
served_in_turn = Machine(in_turn)
