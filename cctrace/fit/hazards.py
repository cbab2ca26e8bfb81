"""Compiled sums over thousands of delays, which a jitter fit evaluates hundreds of times (`families`)."""

from cctrace.lang.machine import Machine


def sums(hazard, cell, part, rest, begin, out) -> None:
    """Sum a function of the delay over the delays of each group, in order.

    `hazard`: the function on a grid. `cell`, `part`, `rest`: per delay the grid point below it, the fraction of the
    way to the next one, and one minus that. `begin`: first delay of each group. `out`: receives the sums.
    """
    stop = len(cell)
    for k in range(len(begin) - 1, -1, -1):
        total = 0.0
        for i in range(begin[k], stop):
            total += hazard[cell[i]] * rest[i] + hazard[cell[i] + 1] * part[i]
        out[k] = total
        stop = begin[k]


sums_of_groups = Machine(sums)
