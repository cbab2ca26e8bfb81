"""Which losses are the queue's and which are chance: by the backlog that each lost packet met.

The backlog at the bottleneck is computed from what was sent (`bottleneck`). A drop-tail queue drops where it is full
and nowhere else, chance drops anywhere. So what is lost with the queue less than half as long as it ever was is chance,
at a share that holds for the long queue too; what is lost in excess of it there is congestion, and the backlog those
packets met is the buffer.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from cctrace.fit.results import Estimate
from cctrace.fit.transmissions import LOST

LEAST_DROPS = 3
SAME_US = 100_000.0
BURSTY = 3.0  # times likelier to lose a packet after a lost one from which on losses come in bursts


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
    droptail : bool or None
        Whether congestive drops happened at one length of the queue; None without enough of them.
    """

    share: Estimate
    burst: tuple | None
    congestive: int
    random: float
    buffer_bytes: Estimate
    droptail: bool | None


def backlog_met(flow, steps, time_us):
    """Return the bytes in the queue at the given times, before what came then."""
    from cctrace.fit.bottleneck import backlog

    level = backlog(flow.sent_us, flow.wire_bytes, steps)
    before = np.searchsorted(flow.sent_us, time_us, "right") - 1
    served = steps.served(time_us) - steps.served(flow.sent_us[np.maximum(before, 0)])
    return np.where(before >= 0, np.maximum(level[np.maximum(before, 0)] - served, 0.0), 0.0)


def losses_of(table, flow, steps, policed=None):
    """Return the `Losses` of a flow.

    Parameters
    ----------
    table : Transmissions
    flow : Sent
        What passes the bottleneck: of this flow, and of those that share it.
    steps : Steps
    policed : ndarray of bool, optional
        Which transmissions a policer dropped before the queue.
    """
    rows = np.ones(len(table), bool) if policed is None else ~policed
    time_us = (table.sent_ns[rows] - table.start_ns) / 1e3
    met, lost = backlog_met(flow, steps, time_us), table.state[rows] == LOST
    longest = float(met[~lost].max()) if (~lost).any() else 0.0
    high = met > longest / 2
    congestive = _congestive(lost, met, high, longest, time_us)
    random = lost & ~congestive
    count, n = int(random.sum()), int((~congestive).sum())
    low, upper = _proportion(count, n)
    share = Estimate(count / max(n, 1), low, upper)
    size = float(np.median(table.wire_bytes))
    dropped = met[congestive] + size  # the packet in service counts until it has left
    if congestive.sum() >= LEAST_DROPS:
        quantiles = np.quantile(dropped, [0.16, 0.5, 0.84])
        spread = (quantiles[2] - quantiles[0]) / 2
        error = max(spread / np.sqrt(max(_episodes(time_us[congestive]), 1)), size / 2)
        buffer = Estimate.around(quantiles[1], error, size)
        droptail = bool(spread < 0.15 * quantiles[1] + size)
    else:
        buffer, droptail = Estimate(None, longest + size, None), None
    return Losses(share, _bursts(random, share.value), int(congestive.sum()), count, buffer, droptail)


def _congestive(lost, met, high, longest, time_us):
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
    at = time_us[full]
    place = np.clip(np.searchsorted(at, time_us), 1, len(at) - 1) if len(at) > 1 else np.zeros(len(met), int)
    near = np.minimum(np.abs(time_us - at[place]), np.abs(time_us - at[place - 1])) < SAME_US
    return full | (lost & high & near)


def _proportion(count, n):
    """Return the exact 95 % interval of a proportion (Clopper and Pearson)."""
    low = float(stats.beta.ppf(0.025, count, n - count + 1)) if count else 0.0
    return low, float(stats.beta.ppf(0.975, count + 1, max(n - count, 0.5)))


def _episodes(times_us, apart_us=200_000.0):
    return 1 + int(np.sum(np.diff(times_us) > apart_us))


def _bursts(random, share):
    """Return the chances of a Gilbert-Elliott process, or None where losses do not come in bursts."""
    after = random[1:][random[:-1]]
    if len(after) < 20 or after.mean() < BURSTY * share:
        return None
    if stats.binom.sf(after.sum() - 1, len(after), share) > 1e-4:
        return None
    leave = 1 - after.mean()
    entered = int((random[1:] & ~random[:-1]).sum())
    enter = entered / max(int((~random[:-1]).sum()), 1)
    low, high = _proportion(int((~after).sum()), len(after))
    return (
        Estimate(enter, *_proportion(entered, int((~random[:-1]).sum()))),
        Estimate(float(leave), low, high),
    )
