"""Which losses are the queue's and which are chance: by the backlog that each lost packet met.

The backlog at the bottleneck is computed from what was sent (`bottleneck`). A drop-tail queue drops where it is full
and nowhere else, chance drops anywhere. So what is lost with the queue less than half as long as it ever was is chance,
at a share that holds for the long queue too; what is lost in excess of it there is congestion, and the backlog those
packets met is the buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.estimates import Estimate
from cctrace.path.arrays import Bools, Floats
from cctrace.path.bottleneck import Steps, backlog
from cctrace.path.constants import (
    ABOVE_FULL,
    BURSTY,
    CHANCE,
    CODEL_TARGET_US,
    LEAST_CODEL,
    LEAST_DROPS,
    LEAST_EARLY,
    NEAR_TARGET,
    PASSING,
    SAME_OVERFLOW_US,
    SURE_BACKLOG,
)
from cctrace.path.transmissions import LOST
from cctrace.special import special

if TYPE_CHECKING:
    from cctrace.path.bottleneck import Sent
    from cctrace.path.transmissions import Transmissions


class Losses(NamedTuple):
    """Losses of a flow by cause.

    Attributes
    ----------
    share : Estimate
        Chance of a packet to be lost at random.
    burst : (Estimate, Estimate) or None
        Gilbert-Elliott: chance of entering and of leaving the state in which everything is lost; None: Bernoulli.
    congestive : int
        Packets that the full queue dropped.
    random : float
        Packets that chance dropped.
    buffer_bytes : Estimate
        Size of the queue; without congestive drops only bounded from below, by the longest backlog.
    aqm : str or None
        "droptail", "codel", "early" (likelier the longer the queue, as RED and PIE drop), "other"; None: too few drops.
    """

    share: Estimate
    burst: tuple | None
    congestive: int
    random: float
    buffer_bytes: Estimate
    aqm: str | None


def backlog_met(flow: Sent, steps: Steps, time_us: Floats) -> Floats:
    """Return the bytes in the queue at the given times, before what came then."""
    level = backlog(flow.sent_us, flow.wire_bytes, steps)
    before = np.searchsorted(flow.sent_us, time_us, "right") - 1
    served = steps.served(time_us) - steps.served(flow.sent_us[np.maximum(before, 0)])
    return np.where(before >= 0, np.maximum(level[np.maximum(before, 0)] - served, 0.0), 0.0)


def losses_of(
    table: Transmissions, flow: Sent, steps: Steps, policed: Bools | None = None, rate_error: float = 0.0
) -> Losses:
    """Return the `Losses` of a flow.

    Parameters
    ----------
    table : Transmissions
    flow : Sent
        What passes the bottleneck: of this flow, and of those that share it.
    steps : Steps
    policed : ndarray of bool, optional
        Which transmissions a policer dropped before the queue.
    rate_error : float
        Standard error of the logarithm of the rate.
    """
    rows = np.ones(len(table), bool) if policed is None else ~policed
    rows &= table.sent_ns <= decided_ns(table)
    time_us = (table.sent_ns[rows] - table.start_ns) / 1e3
    met, lost = backlog_met(flow, steps, time_us), table.state[rows] == LOST
    longest = float(met[~lost].max()) if (~lost).any() else 0.0
    high = met > longest / 2
    congestive = overflows(lost, met, high, longest, time_us)
    size = float(np.median(table.wire_bytes))
    buffer, aqm, clear = Estimate(None, max(longest, size), None), None, ~congestive
    wait_us = np.maximum(steps.when(steps.served(time_us) + met) - time_us, 0.0)
    if congestive.sum() >= LEAST_DROPS:
        shifted = backlog_met(flow, Steps(steps.start_us, steps.rate * 1.0001), time_us[congestive])
        slope = float(np.median(np.abs(shifted - met[congestive]))) / 1e-4
        found, droptail = _buffer(met[congestive], time_us[congestive], size, slope * rate_error)
        # A full queue lets nothing pass: if much did where packets were dropped, something else drops.
        passing = np.sum(~lost & (met > np.median(met[congestive]) + ABOVE_FULL * size))
        droptail &= bool(passing <= PASSING * (1 + congestive.sum()))
        aqm = "droptail" if droptail else "other"
        if passing <= PASSING * (1 + congestive.sum()):
            buffer = found
        # Where the queue had room for a packet, chance alone drops.
        room = np.quantile(met[congestive], 0.05) - size if droptail else longest / 2
        clear = (met < max(room, longest / 2)) & ~(high & _near(time_us, time_us[congestive]))
    if aqm != "droptail" and _codel(lost, wait_us, time_us):
        aqm, congestive, clear = "codel", lost, wait_us < NEAR_TARGET * CODEL_TARGET_US
    elif aqm != "droptail" and _early(lost, met):
        aqm = "early"
    random = lost & ~congestive
    count, n = int((lost & clear).sum()), int(clear.sum())
    (low, most), all_lost = proportion(count, n), proportion(int(lost.sum()), len(lost))[1]
    value = count / max(n, 1)
    share = Estimate(value, low, max(min(most, all_lost), value))  # few met no queue: no more than if all was chance
    return Losses(share, _bursts(random, share.sides()[0]), int(congestive.sum()), int(random.sum()), buffer, aqm)


def _codel(lost: Bools, wait_us: Floats, time_us: Floats) -> bool:
    """Return whether CoDel drops [RFC8289]: single packets, none that waited less than 5 ms though many packets did."""
    if lost.sum() < LEAST_CODEL:
        return False
    long = wait_us >= NEAR_TARGET * CODEL_TARGET_US
    unlikely = long.mean() ** lost.sum() < CHANCE and np.mean(long[lost]) >= 0.98
    spacing = np.diff(time_us[lost])
    return bool(unlikely and np.mean(spacing > CODEL_TARGET_US) >= 0.95)


def _early(lost: Bools, met: Floats) -> bool:
    """Return whether packets are lost the likelier the longer the queue, over all its lengths and not at one."""
    if lost.sum() < LEAST_EARLY:
        return False
    half = met < np.quantile(met[lost], 0.9)  # whatever happens at the longest queue
    if lost[half].sum() < LEAST_EARLY / 2 or np.ptp(met[half]) <= 0:
        return False
    among, dropped = np.sort(met[half]), met[half & lost]
    rank = (np.searchsorted(among, dropped, "left") + np.searchsorted(among, dropped, "right") + 1) / 2
    score = (rank.mean() / len(among) - 0.5) * np.sqrt(12 * len(dropped))
    return bool(special.ndtr(-score) < CHANCE)


def decided_ns(table: Transmissions) -> float:
    """Return the time (ns) up to which it is known of what was sent whether it was lost: two RTTs before the end."""
    return table.sent_ns[-1] - 2e3 * float(np.nanquantile(table.rtt_us, 0.9))


def _buffer(met: Floats, time_us: Floats, size: float, error: float) -> tuple[Estimate, bool]:
    """Return the buffer's size, and whether what was dropped met one length of the queue.

    A queue that holds N packets of one size drops when N are in it, of which a part has left: backlogs met lie between
    N - 1 and N packets, and a buffer of bytes has room for less than N + 1.
    """
    low, middle, high, top = np.quantile(met, [0.16, 0.5, 0.84, 0.95])
    spread = (high - low) / 2
    wander = np.sqrt(max(spread**2 - (0.34 * size) ** 2, 0.0)) / np.sqrt(_episodes(time_us))
    error = float(np.hypot(error, wander))
    if error < SURE_BACKLOG * size:
        top = np.ceil(top / size - 3 * SURE_BACKLOG / 10) * size
    value = max(top + size / 2, size)
    half = 0.475 * size if error < SURE_BACKLOG * size else 1.96 * np.hypot(error, 0.4 * size)
    droptail = bool(spread < 0.15 * middle + size)
    return Estimate(float(value), float(max(value - half, size)), float(value + half)), droptail


def overflows(
    lost: Bools,
    met: Floats,
    high: Bools,
    longest: float,
    time_us: Floats,
) -> Bools:
    """Return which losses are the queue's: those near its longest, if more are there than chance would have it."""
    chance = lost[~high].mean() if (~high).any() else 0.0
    expected = chance * high.sum()
    excess = lost[high].sum() - expected
    none = np.zeros(len(lost), bool)
    if excess < max(LEAST_DROPS, 4 * np.sqrt(expected)):
        return none
    # Where a full queue drops, the share of lost packets rises steeply: take those beyond the rise.
    levels = np.linspace(0.5, 0.98, 25) * longest
    beyond = np.array([lost[met >= level].sum() for level in levels])
    tried = np.array([(met >= level).sum() for level in levels])
    keeps = beyond - chance * tried >= 0.85 * excess
    level = levels[np.flatnonzero(keeps)[-1]] if keeps.any() else levels[0]
    full = lost & (met >= level)
    # What goes soon before or after with a long queue is the same overflow, of which others' packets hid a part.
    return full | (lost & high & _near(time_us, time_us[full]))


def _near(time_us: Floats, at: Floats) -> Bools:
    """Return which times are near one of some others."""
    place = np.clip(np.searchsorted(at, time_us), 1, len(at) - 1) if len(at) > 1 else np.zeros(len(time_us), int)
    return np.minimum(np.abs(time_us - at[place]), np.abs(time_us - at[place - 1])) < SAME_OVERFLOW_US


def proportion(count: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion ([Brown01]_: Jeffreys')."""
    low = float(special.betaincinv(count + 0.5, n - count + 0.5, 0.025)) if count else 0.0
    return low, float(special.betaincinv(count + 0.5, max(n - count, 0) + 0.5, 0.975))


def _episodes(times_us: Floats, apart_us: float = 200_000.0) -> int:
    return 1 + int(np.sum(np.diff(times_us) > apart_us))


def _bursts(random: Bools, share: float) -> tuple[Estimate, Estimate] | None:
    """Return the chances of a Gilbert-Elliott process, or None where losses do not come in bursts."""
    after = random[1:][random[:-1]]
    if len(after) < 20 or after.mean() < BURSTY * share:
        return None
    if special.bdtrc(float(after.sum() - 1), len(after), share) > 1e-4:
        return None
    leave = 1 - after.mean()
    entered = int((random[1:] & ~random[:-1]).sum())
    enter = entered / max(int((~random[:-1]).sum()), 1)
    low, high = proportion(int((~after).sum()), len(after))
    return (
        Estimate(enter, *proportion(entered, int((~random[:-1]).sum()))),
        Estimate(float(leave), low, high),
    )
