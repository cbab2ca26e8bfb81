"""Congestive and random losses, distinguished by the backlog that each lost packet met.

The backlog at the bottleneck is computed from the packets sent (`bottleneck`). A drop-tail queue drops only when it
is full; random loss is independent of the queue. Losses while the queue is less than half its longest are therefore
random, and give the random-loss share; losses in excess of that share at a long queue are congestive, and the
backlog that they met is the buffer.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cctrace.columns import Bools, Floats, Ints
from cctrace.estimates import Z95, Estimate
from cctrace.path import constants as const
from cctrace.path.arrays import events_apart, first_of_events
from cctrace.path.queue import Steps
from cctrace.path.sent import SentPackets, backlog_at
from cctrace.path.transmissions import LOST, WAITING, Transmissions
from cctrace.special import special

if TYPE_CHECKING:
    from cctrace.path.evidence import PathEvidence


@dataclass(frozen=True, eq=False)
class Backlogs:
    """The length of a queue when each transmission arrived at it, and which of the lost ones it had no room for."""

    sent: SentPackets  # the traffic through the queue
    steps: Steps  # its rate
    time_us: Floats  # of the transmission
    lost: Bools
    passed: Bools  # known to have passed the queue
    arrived_bytes: Floats  # that it added to the queue
    packet_bytes: float
    rtt_us: float  # without the queue
    bucket_bytes: float = 0.0  # tokens that let as much pass at once, without waiting
    behind_bytes: Floats | Ints | float = (
        0.0  # bytes that follow it in a super-packet, which is queued or dropped as a unit
    )

    @functools.cached_property
    def deficit_bytes(self) -> Floats:
        """Bytes sent beyond the rate, with what arrived at the same instant, themselves included."""
        return backlog_at(self.sent, self.steps, self.time_us)

    @functools.cached_property
    def backlog_bytes(self) -> Floats:
        """Bytes in the queue: the deficit without what the tokens let pass."""
        return np.maximum(self.deficit_bytes - self.bucket_bytes, 0.0)

    @functools.cached_property
    def ahead_bytes(self) -> Floats:
        """Bytes in the queue that had arrived before each transmission."""
        return arrived_before(self.backlog_bytes, self.time_us, self.arrived_bytes)

    @property
    def wait_us(self) -> Floats:
        """Time until the bottleneck has sent the backlog, us."""
        return np.maximum(self.steps.when(self.steps.served(self.time_us) + self.backlog_bytes) - self.time_us, 0.0)

    def error(self, rate_errors: Floats) -> float:
        """Return the error of the backlogs that the overflows met, bytes, from those of the logarithms of the rates."""
        at_us = self.time_us[self.overflow]
        faster = Steps(self.steps.start_us, self.steps.rate * 1.0001)
        slopes = np.abs(backlog_at(self.sent, faster, at_us) - self.deficit_bytes[self.overflow]) / 1e-4
        step = np.searchsorted(self.steps.start_us[1:], at_us, side="right")
        return float(np.median(slopes * rate_errors[step]))

    @functools.cached_property
    def longest_bytes(self) -> float:
        """The longest backlog at a packet that passed."""
        return float(self.backlog_bytes[self.passed].max(initial=0.0))

    @functools.cached_property
    def most_ahead_bytes(self) -> float:
        """The most bytes ahead of a packet that passed."""
        return float(self.ahead_bytes[self.passed].max(initial=0.0))

    @functools.cached_property
    def long(self) -> Bools:
        """Which packets had more than half of `most_ahead_bytes` before them."""
        return self.ahead_bytes > self.most_ahead_bytes / 2

    @functools.cached_property
    def overflow(self) -> Bools:
        """Which losses seem to overflow the queue."""
        ahead = np.where(self.deficit_bytes >= self.bucket_bytes, self.ahead_bytes + self.behind_bytes, 0.0)
        return overflows(self.lost, ahead, self.long, self.most_ahead_bytes, self.time_us, self.packet_bytes)

    @functools.cached_property
    def early_share(self) -> float:
        """The share of overflows that began before the queue was longest, unlike those of a full queue."""
        return early_share(self.overflow, self.lost, self.backlog_bytes, self.time_us, self.rtt_us, self.packet_bytes)

    @functools.cached_property
    def chance(self) -> float:
        """The probability that losses by chance alone avoid short queues as much as these."""
        apart = np.diff(self.time_us[self.lost], prepend=-np.inf) > self.rtt_us
        return by_chance(self.ahead_bytes, self.ahead_bytes[self.lost], int(np.count_nonzero(apart)))

    def chance_of(self, which: Bools) -> float:
        """Return the probability that random losses avoid short queues as much as `which` losses do.

        Of those within an RTT the first counts: however many a full queue drops at a time, they are one event.
        """
        first = first_of_events(self.time_us[which], self.rtt_us)
        return by_chance(self.ahead_bytes, self.ahead_bytes[which][first], len(first))

    def episodes(self, which: Bools) -> int:
        """Return the number of these losses that are an RTT apart, the unit for chance."""
        return events_apart(self.time_us[which], self.rtt_us)


def backlogs_of(evidence: PathEvidence, steps: Steps) -> Backlogs:
    """Return the backlogs met at a bottleneck of this rate, without what a policer dropped before the queue."""
    table, policer = evidence.transmissions, evidence.policer
    policed = None if policer is None else policer.explained
    rows = np.ones(len(table), bool) if policed is None else ~policed
    rows &= table.sent_ns <= decided_ns(table)
    time_us = (table.sent_ns[rows] - table.start_ns) / 1e3
    lost, packet_bytes, rtt_us = (
        table.state[rows] == LOST,
        float(np.median(table.wire_bytes)),
        float(np.nanmin(table.rtt_us)),
    )
    return Backlogs(
        evidence.traffic.sent, steps, time_us, lost, ~lost, evidence.arrived_bytes[rows], packet_bytes, rtt_us
    )


def arrived_before(backlog_bytes: Floats, time_us: Floats, arrived_bytes: Floats) -> Floats:
    """Return the part of each backlog that had arrived before the packet: without it and what followed at its instant.

    Lost and other packets are compared by these: `backlog_bytes` includes a packet that passed, but not one that found
    no room, which matters in a queue of two packets.
    """
    total = np.cumsum(arrived_bytes)
    last = total[np.searchsorted(time_us, time_us, side="right") - 1]
    return np.maximum(backlog_bytes - (last - total + arrived_bytes), 0.0)


class Losses(NamedTuple):
    """Losses of a flow by cause."""

    share: Estimate  # probability of random loss
    burst: tuple | None  # Gilbert-Elliott: probabilities of entering and leaving the loss state; None: Bernoulli
    congestive: int  # packets dropped by a full queue
    random: float  # packets lost at random
    buffer_bytes: Estimate  # size of the queue; without congestive drops only a lower bound, the longest backlog
    # "droptail", "codel", "early" (drop probability grows with the queue, as in RED and PIE), "other"; None: too few
    # drops
    aqm: str | None


def losses_of(evidence: PathEvidence, steps: Steps, rate_errors: Floats) -> Losses:
    """Return the `Losses` of a flow over a bottleneck of these rates, with the standard errors of their logarithms."""
    at = evidence.backlogs if steps is evidence.traffic.steps else backlogs_of(evidence, steps)
    time_us, lost, packet_bytes = at.time_us, at.lost, at.packet_bytes
    backlog_bytes, longest_bytes = at.backlog_bytes, at.longest_bytes
    congestive = at.overflow
    tokens_bytes = evidence.tokens_bytes  # what a bucket lets pass at once is in no buffer
    least_bytes = max(longest_bytes - tokens_bytes, packet_bytes)
    buffer, aqm, clear = Estimate(None, least_bytes, None), None, ~congestive
    wait_us = at.wait_us
    if congestive.sum() >= const.MIN_DROPS:
        met_bytes = np.maximum(backlog_bytes[congestive] - tokens_bytes, 0.0)
        found, droptail = _buffer(met_bytes, time_us[congestive], packet_bytes, at.error(rate_errors))
        # A full queue passes nothing: if many packets passed where others were dropped, something else drops.
        passing = np.sum(
            ~lost & (backlog_bytes > np.median(backlog_bytes[congestive]) + const.ABOVE_FULL_PACKETS * packet_bytes)
        )
        full = (
            bool(passing <= const.MAX_PASSING_PACKETS * (1 + congestive.sum()))
            and evidence.backlogs.early_share < const.MAX_EARLY_SHARE
        )
        droptail &= full
        aqm = "droptail" if droptail else "other"
        buffer = found if full else buffer
        # Losses are random where the queue had room: a full one of N packets had N - 1 to N of them ahead.
        least, middle = np.quantile(at.ahead_bytes[congestive], [0.05, 0.5])
        room = max(least - packet_bytes, (middle - packet_bytes) / 2) if droptail else longest_bytes / 2
        clear = (at.ahead_bytes < room) & ~_near(time_us, congestive, at.long)
    if aqm != "droptail" and _codel(lost, wait_us, time_us, at):
        aqm, congestive, clear = "codel", lost, wait_us < const.NEAR_TARGET * const.CODEL_TARGET_US
    elif aqm != "droptail" and _early(lost, backlog_bytes):
        aqm = "early"
    random = lost & ~congestive
    count, n = int((lost & clear).sum()), int(clear.sum())
    (low, most), all_lost = proportion(count, n), proportion(int(lost.sum()), len(lost))[1]
    value = count / max(n, 1)
    share = Estimate(value, low, max(min(most, all_lost), value))  # at most as if all losses were random
    return Losses(share, _bursts(random, share.sides()[0]), int(congestive.sum()), int(random.sum()), buffer, aqm)


def early_share(
    dropped: Bools, lost: Bools, backlog_bytes: Floats, time_us: Floats, rtt_us: float, packet_bytes: float
) -> float:
    """Return the share of overflows (drops an RTT apart) whose first drop did not meet the longest queue.

    A full queue drops what arrives last, at its longest. CoDel drops what leaves, after others had arrived behind it;
    RED and PIE drop at random. Queues are compared within an RTT only, as errors of the rate add up in a backlog.
    Also 1 if the queue went on growing by a third after two drops, or the only one, with hardly any other losses; 0 for
    fewer than three overflows. The smallest ones are left out, as many drops as losses elsewhere predict here.

    `dropped`: which of the `lost` packets seem to overflow. `packet_bytes`: of one packet.
    """
    at = np.flatnonzero(dropped)
    begins = np.flatnonzero(np.diff(time_us[at], prepend=-np.inf) > rtt_us)
    first = at[begins]
    time, backlog, many = time_us[~lost], backlog_bytes[~lost], const.MIN_CODEL
    bursts = np.split(at, begins)[1:]
    size = np.array([len(burst) for burst in bursts])
    others = np.count_nonzero(lost & ~dropped) / len(lost)
    predicted = others * np.count_nonzero(backlog_bytes >= backlog_bytes[at].min()) if len(at) else 0.0
    by_size = np.argsort(size, kind="stable")
    overflowed = np.ones(len(first), bool)
    overflowed[by_size[np.cumsum(size[by_size]) <= predicted]] = False
    early = grown = 0
    for k, drops, is_overflow in zip(first.tolist(), bursts, overflowed, strict=True):
        begin, now, end = np.searchsorted(time, (time_us[k] - rtt_us, time_us[k], time_us[k] + rtt_us))
        behind = k - np.searchsorted(time_us, time_us[k])  # dropped at its instant before it
        longer_before = backlog[begin:now] > backlog_bytes[k] + max(behind, 0.5) * packet_bytes
        early += int(is_overflow and np.count_nonzero(longer_before) >= many)
        longer = backlog_bytes[k] / const.QUEUE_END_SHARE + packet_bytes
        # A random loss may precede the drops of a full queue.
        grown += int(np.count_nonzero(backlog[now:end] > longer) >= many and backlog_bytes[drops[:2][-1]] <= longer)
    if 2 * grown >= max(len(first), 1) and np.count_nonzero(lost & ~dropped) < many:
        return 1.0
    return early / max(int(np.count_nonzero(overflowed)), 1) if len(first) > 2 else 0.0


def _codel(lost: Bools, wait_us: Floats, time_us: Floats, at: Backlogs) -> bool:
    """Return whether CoDel drops [RFC8289]: single packets, none queued for less than 5 ms although many were.

    Where hardly any packet waits so briefly, CoDel shows by its clock: it drops one packet at a time, never two close
    together, unlike chance, and of the longer queues, as `Backlogs.chance` says.
    """
    if lost.sum() < const.MIN_CODEL:
        return False
    long, spacing = wait_us >= const.NEAR_TARGET * const.CODEL_TARGET_US, np.diff(time_us[lost])
    if np.mean(long[lost]) < 0.98 or np.mean(spacing > const.CODEL_TARGET_US) < 0.95:
        return False
    if long.mean() ** lost.sum() < const.CHANCE_PROBABILITY:
        return True
    # That random losses in this time are all so far apart, by the distribution of their least spacing.
    apart = max(1 - spacing.min() * len(spacing) / max(np.ptp(time_us), 1.0), 0.0) ** len(spacing)
    return bool(apart < const.CHANCE_PROBABILITY and at.chance < const.CHANCE_PROBABILITY)


def _early(lost: Bools, backlog_bytes: Floats) -> bool:
    """Return whether the loss probability grows with the queue over its entire range, not just at one length."""
    if lost.sum() < const.MIN_EARLY:
        return False
    half = backlog_bytes < np.quantile(backlog_bytes[lost], 0.9)  # ignore the longest queues
    if lost[half].sum() < const.MIN_EARLY / 2 or np.ptp(backlog_bytes[half]) <= 0:
        return False
    among, dropped = np.sort(backlog_bytes[half]), backlog_bytes[half & lost]
    rank = (np.searchsorted(among, dropped, "left") + np.searchsorted(among, dropped, "right") + 1) / 2
    score = (rank.mean() / len(among) - 0.5) * np.sqrt(12 * len(dropped))
    return bool(special.ndtr(-score) < const.CHANCE_PROBABILITY)


def decided_ns(table: Transmissions) -> float:
    """Return the time (ns) until which the fate of transmissions is known: if data wait at the end, two RTTs before."""
    waiting = bool((table.state == WAITING).any())
    return table.sent_ns[-1] - (2e3 * float(np.nanquantile(table.rtt_us, 0.9)) if waiting else 0.0)


def _buffer(backlog_bytes: Floats, time_us: Floats, packet_bytes: float, error: float) -> tuple[Estimate, bool]:
    """Return the buffer's size, and whether all drops met the same queue length.

    A queue of N equal packets drops when it holds N, one of which is partly sent: the backlogs met lie between N -
    1 and N packets, and a buffer in bytes has room for less than N + 1.
    """
    low, middle, high, top = np.quantile(backlog_bytes, [0.16, 0.5, 0.84, 0.95])
    spread = (high - low) / 2
    episodes = 1 + np.sum(np.diff(time_us) > 200_000.0)
    wander = np.sqrt(max(spread**2 - (0.34 * packet_bytes) ** 2, 0.0)) / np.sqrt(episodes)
    error = float(np.hypot(error, wander))
    if error < const.SURE_BACKLOG * packet_bytes:
        top = np.ceil(top / packet_bytes - 3 * const.SURE_BACKLOG / 10) * packet_bytes
    value = max(top + packet_bytes / 2, packet_bytes)
    half = (
        0.475 * packet_bytes if error < const.SURE_BACKLOG * packet_bytes else Z95 * np.hypot(error, 0.4 * packet_bytes)
    )
    droptail = bool(spread < 0.15 * middle + packet_bytes)
    # What may be wrong by all of itself is known from below only, by the packet that fits.
    high_end = float(value + half) if half < value else None
    return Estimate(float(value), float(max(value - half, packet_bytes)), high_end), droptail


def overflows(
    lost: Bools, backlog_bytes: Floats, high: Bools, longest_bytes: float, time_us: Floats, packet_bytes: float
) -> Bools:
    """Return which losses are congestive: those near the longest queue, if there are more than random loss predicts.

    A queue of a few packets drops only near its end: if its upper half does not show it, the last quarter may.
    `packet_bytes`: of one packet.
    """
    chance = lost[~high].mean() if (~high).any() else 0.0
    expected = chance * high.sum()
    excess = lost[high].sum() - expected
    none = np.zeros(len(lost), bool)
    if excess < max(const.MIN_DROPS, 4 * np.sqrt(expected)):
        high = backlog_bytes > const.QUEUE_END_SHARE * longest_bytes
        chance = lost[~high].mean() if (~high).any() else 0.0
        expected, count = chance * high.sum(), lost[high].sum()
        excess = count - expected
        if excess < const.MIN_DROPS or special.pdtrc(count - 1, expected) > const.CHANCE_AT_THE_END:
            return none
    # The loss share rises steeply where a full queue drops: take the losses beyond the rise.
    levels = np.linspace(0.5, 0.98, 25) * longest_bytes
    beyond = np.array([lost[backlog_bytes >= level].sum() for level in levels])
    tried = np.array([(backlog_bytes >= level).sum() for level in levels])
    keeps = beyond - chance * tried >= 0.85 * excess
    level = levels[np.flatnonzero(keeps)[-1]] if keeps.any() else levels[0]
    # A full queue holds up to a packet less than at its longest.
    full = lost & (
        backlog_bytes >= min(level, max(longest_bytes - packet_bytes, const.QUEUE_END_SHARE * longest_bytes))
    )
    # Losses at a long queue shortly before or after belong to the same overflow, part of which other flows' packets
    # hid.
    return full | _near(time_us, full, lost & high)


def _near(time_us: Floats, others: Bools, which: Bools) -> Bools:
    """Return `which` times are close to any of the `others`."""
    at, found, near = time_us[others], np.zeros(len(time_us), bool), time_us[which]
    place = np.clip(np.searchsorted(at, near), 1, len(at) - 1) if len(at) > 1 else np.zeros(len(near), int)
    found[which] = np.minimum(np.abs(near - at[place]), np.abs(near - at[place - 1])) < const.SAME_OVERFLOW_US
    return found


def by_chance(backlog_bytes: Floats, lost: Floats, episodes: int) -> float:
    """Return the probability that random losses avoid short queues as much as these by chance.

    `backlog_bytes`: backlogs ahead of all packets; `lost`: of the lost ones, of which `episodes` are independent.
    """
    found = 1.0
    for quantile in (0.1, 0.25, 0.5) if episodes else ():
        share = float((backlog_bytes < np.quantile(lost, quantile)).mean())
        within = float(special.bdtr(np.floor(quantile * episodes), episodes, share)) if share > quantile else 1.0
        found = min(found, within)
    return found


def proportion(count: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion ([Brown01]_: Jeffreys)."""
    low = float(special.betaincinv(count + 0.5, n - count + 0.5, 0.025)) if count else 0.0
    return low, float(special.betaincinv(count + 0.5, max(n - count, 0) + 0.5, 0.975))


def _bursts(random: Bools, share: float) -> tuple[Estimate, Estimate] | None:
    """Return the transition probabilities of a Gilbert-Elliott process, or None if losses are not bursty."""
    after = random[1:][random[:-1]]
    if len(after) < 20 or after.mean() < const.BURSTY_TIMES * share:
        return None
    if special.bdtrc(float(after.sum() - 1), len(after), share) > 1e-4:
        return None
    leave = 1 - after.mean()
    entered = int((random[1:] & ~random[:-1]).sum())
    enter = entered / max(int((~random[:-1]).sum()), 1)
    low, high = proportion(int((~after).sum()), len(after))
    return Estimate(enter, *proportion(entered, int((~random[:-1]).sum()))), Estimate(float(leave), low, high)
