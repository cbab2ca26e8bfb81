"""Observed draws of jitter: of packets, or of the slots or bursts that share one."""

import numpy as np

from cctrace.columns import Ints
from cctrace.errors import FitError
from cctrace.fit.censored import Censored
from cctrace.fit.constants import BLOCK_GROUPS
from cctrace.fit.process import Process
from cctrace.path.delays import Delays


def observed_draws(delays: Delays, process: Process, most: int) -> Censored:
    """Return the observed draws: of packets, or of the slots or bursts that share one."""
    if process.name == "slot" and process.slot_us is not None:
        return _of_units(delays, _slots(delays, process.slot_us.number))
    if process.name == "burst":
        return _of_units(delays, np.cumsum(delays.burst))
    if process.name == "reorder":
        # Before a queue, those that found it empty: when the others came is bounded on both sides.
        delay = delays.delay_us if delays.place != "before" else delays.rtt_us[delays.event]
        if not len(delay):
            raise FitError("no packet found the queue empty: how the delays before it vary is not visible")
        return _thinned(Censored.independent(delay), most)
    value = delays.delay_us + delays.slack_us[delays.group]
    return _thinned(Censored(value, delays.group, delays.event, gap_us=delays.gap_us, clock_us=delays.packet_us), most)


def _slots(delays: Delays, slot_us: float) -> Ints:
    """Return the slot of every packet: the grid on which the delays change."""
    departed, rtt = delays.departed_us[delays.last], delays.rtt_us
    both = delays.event[1:] & delays.event[:-1] & (np.abs(np.diff(rtt)) > delays.tie_us)
    middle = (departed[1:] + departed[:-1])[both] / 2
    phase = np.angle(np.exp(2j * np.pi * middle / slot_us).sum()) / (2 * np.pi) * slot_us  # 0 if none reveals it
    return np.floor((delays.departed_us - phase) / slot_us).astype(np.int64)


def _of_units(delays: Delays, unit: Ints) -> Censored:
    """Return one delay per slot or burst: observed by its packets, or bounded by the last of them."""
    last = delays.last
    unit, value, event = unit[last], delays.rtt_us, delays.event
    new = np.diff(unit, prepend=unit[0] - 1) != 0
    begin = np.flatnonzero(new)
    # A packet that arrives apart from the previous one reveals its draw; the first of a unit may still be queued.
    least = np.minimum.reduceat(np.where(event, value, np.inf), begin)
    bound = np.minimum.reduceat(value, begin)
    is_observed = np.isfinite(least)
    delay = np.where(is_observed, least, bound)
    # What the unit may have waited for: the ACK before that of its first packet that arrived apart.
    first = np.minimum.reduceat(np.where(event, np.arange(len(value)), len(value)), begin)
    gap = np.where(is_observed, delay - value[first % len(value)] + delays.gap_us[first % len(value)], np.inf)
    return Censored(delay, np.arange(len(delay)), is_observed, gap_us=gap, clock_us=delays.packet_us)


def _thinned(data: Censored, most: int) -> Censored:
    """Return evenly spread blocks of the groups of long data."""
    count = int(data.event.sum()) if data.ordered else len(data.event) // 2
    keep = count / most
    if keep <= 1.2:
        return data
    pieces = np.arange(len(data.event)) // BLOCK_GROUPS
    taken = np.floor(np.arange(pieces[-1] + 1) / keep) != np.floor((np.arange(pieces[-1] + 1) - 1) / keep)
    of_group = taken[pieces]
    rows = of_group[data.group]
    group = np.unique(data.group[rows], return_inverse=True)[1].reshape(-1)
    return Censored(
        data.delay_us[rows], group, data.event[of_group], data.ordered, data.gap_us[of_group], data.clock_us
    )
