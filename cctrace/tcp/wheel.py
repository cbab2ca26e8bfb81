"""When a timer of the kernel fires: its wheel counts in ticks, the coarser the longer the timer, and rounds up.

A timer never fires early, and the current tick does not count: one that is due in n ticks fires with the tick after
the n-th. One of 63 ticks or more (252 ms at HZ = 250) waits for the next multiple of 8 ticks, one of 504 for a
multiple of 64, and so on.

Source: [Linux61] kernel/time/timer.c calc_wheel_index.
"""

from cctrace.cc.linux import NSEC_PER_SEC

FINEST_TICKS = 63  # from here on timers are rounded to 8 ticks (LVL_START(1))
LEVEL_SHIFT = 3  # each coarser level counts in 8 times as many ticks (LVL_CLK_SHIFT)
LEVELS = 8  # LVL_DEPTH with HZ <= 100; a ninth for higher HZ begins after days


def wheel_tick(now_ticks: int, expires_ticks: int) -> int:
    """Return the tick with which a timer fires that was set at tick `now_ticks` to expire at `expires_ticks`."""
    level = 0
    while level < LEVELS - 1 and expires_ticks - now_ticks >= FINEST_TICKS << LEVEL_SHIFT * level:
        level += 1
    shift = LEVEL_SHIFT * level
    return ((expires_ticks >> shift) + 1) << shift


def fires_ns(now_ns: int, wait_ticks: int, hz: int) -> int:
    """Return when a timer fires that is set at `now_ns` for `wait_ticks`, ns by a clock whose ticks begin at 0."""
    now_ticks = now_ns * hz // NSEC_PER_SEC
    tick = wheel_tick(now_ticks, now_ticks + wait_ticks)
    tick_ns = NSEC_PER_SEC // hz
    if tick_ns * hz == NSEC_PER_SEC:  # saves a division of large numbers, several times an ACK
        return tick * tick_ns
    return -(-tick * NSEC_PER_SEC // hz)
