"""Windowed maximum (or minimum) in constant space, as all Linux congestion controls keep it (Kathleen Nichols' filter).

Three samples are kept, each the best since the one before it was taken, spread over the window:

    s[0] the maximum   |---- s[0] ----|---- s[1] ----|-- s[2] --|  now
                       t[0]        >= W/4         >= W/2

When the maximum leaves the window the runner-up succeeds it, so the answer is nearly always the true windowed maximum
and never older than the window. The filter is *approximate* on purpose: a runner-up is only looked for after a quarter
of the window. Bandwidth estimates of BBR carry this behaviour, so every comparison is that of the source.

A filter is a pair of array fields of a controller, ``bw_v = ints(3)`` (values) and ``bw_t = ints(3)`` (times), both
u32; the functions change them in place. Times wrap modulo 2**32.

Sources: [Linux61] lib/win_minmax.c.
"""

from cctrace.cc.cmath import u32


def reset_filter(values: list[int], times: list[int], now: int, sample: int) -> int:
    """Forget everything but `sample`, taken at `now`; return it [Linux61] minmax_reset()."""
    for i in range(3):
        values[i] = sample
        times[i] = now
    return sample


def running_max(values: list[int], times: list[int], window: int, now: int, sample: int) -> int:
    """Take a sample and return the windowed maximum [Linux61] minmax_running_max().

    `values`, `times`: the filter, best sample first; changed in place. `window`: length of the window, in the unit of
    `now`. `now`, `sample`: u32 time and value.

    >>> values, times = [0, 0, 0], [0, 0, 0]
    >>> [running_max(values, times, 10, t, v) for t, v in enumerate([5, 9, 7, 7, 7])]
    [5, 9, 9, 9, 9]
    >>> running_max(values, times, 10, 12, 3)  # the 9 of time 1 is older than 10
    7
    """
    if sample >= values[0] or u32(now - times[2]) > window:  # a new maximum, or nothing left in the window
        return reset_filter(values, times, now, sample)
    if sample >= values[1]:
        set_sample(values, times, 2, now, sample)
        set_sample(values, times, 1, now, sample)
    elif sample >= values[2]:
        set_sample(values, times, 2, now, sample)
    return age_filter(values, times, window, now, sample)


def running_min(values: list[int], times: list[int], window: int, now: int, sample: int) -> int:
    """Take a sample and return the windowed minimum; the filter as in `running_max` [Linux61] minmax_running_min().

    >>> values, times = [9, 9, 9], [0, 0, 0]
    >>> [running_min(values, times, 10, t, v) for t, v in enumerate([5, 3, 7, 7, 7])]
    [5, 3, 3, 3, 3]
    """
    if sample <= values[0] or u32(now - times[2]) > window:  # a new minimum, or nothing left in the window
        return reset_filter(values, times, now, sample)
    if sample <= values[1]:
        set_sample(values, times, 2, now, sample)
        set_sample(values, times, 1, now, sample)
    elif sample <= values[2]:
        set_sample(values, times, 2, now, sample)
    return age_filter(values, times, window, now, sample)


def age_filter(values: list[int], times: list[int], window: int, now: int, sample: int) -> int:
    """Let the passing of time promote runners-up; return the best [Linux61] minmax_subwin_update()."""
    age = u32(now - times[0])
    if age > window:
        drop_best(values, times, now, sample)
        # The runner-up can be too old as well; the third cannot, or the filter would have been reset.
        if u32(now - times[0]) > window:
            drop_best(values, times, now, sample)
    elif times[1] == times[0] and age > window // 4:  # no runner-up for a quarter of the window
        set_sample(values, times, 2, now, sample)
        set_sample(values, times, 1, now, sample)
    elif times[2] == times[1] and age > window // 2:  # no third for half of it
        set_sample(values, times, 2, now, sample)
    return values[0]


def drop_best(values: list[int], times: list[int], now: int, sample: int) -> None:
    """Promote the runners-up by one place and append the newest sample."""
    set_sample(values, times, 0, times[1], values[1])
    set_sample(values, times, 1, times[2], values[2])
    set_sample(values, times, 2, now, sample)


def set_sample(values: list[int], times: list[int], place: int, now: int, sample: int) -> None:
    """Write one of the three samples."""
    values[place] = sample
    times[place] = now


def place_of(ascending: list[int], count: int, sample: int) -> int:
    """Return the first of the `count` places whose sample is not smaller than `sample`; the last if there is none."""
    low = 0
    high = count - 1
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < sample:
            low = middle + 1
        else:
            high = middle
    return low
