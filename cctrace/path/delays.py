r"""The uncongested RTT: delays beyond the bottleneck's queue, for every packet that reveals them.

The flow's own packets determine its queue at the bottleneck (`bottleneck`). The rest of the RTT is propagation,
jitter, and any backlog that the flow did not cause: other flows, a stalled host. Such a backlog lasts until the
queue empties, so it shows as periods whose median exceeds the lowest ones by more than the scatter within a period.
These periods are excluded, so that a growing queue is not mistaken for jitter. Controller states are not needed:
PROBE_RTT, starts and pauses count because they empty the queue.

A delay varies before the bottleneck's queue, or behind it. A queue spaces what leaves it by its service time, whatever
came before:

    jitter behind the queue     t_k = q_k + J_k                            any spacing; packets catch up with others
    jitter before the queue     t_k = max(s_k + J_k, t_{k-1}) + service    no two ACKs closer than the service time

So if delays vary and ACKs are never closer, the variation is before the queue. How many would have come closer follows
from packets that left far apart, whose delays differ as often wherever the variation is. Delays that vary before a
queue show only in packets that found it empty; for the others they are bounded from above.
"""

import functools
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from cctrace.columns import Bools, Floats, Ints, distinct, give_back, rows_of_spans
from cctrace.display import Card, Carded
from cctrace.errors import FitError
from cctrace.estimates import Estimate
from cctrace.path import constants as const
from cctrace.path.arrays import Parts
from cctrace.path.blocks import block_length, block_means, block_sizes, correlation_time, student
from cctrace.path.blocks import effective_samples as effective
from cctrace.path.queue import Steps
from cctrace.path.sent import SentPackets
from cctrace.path.transmissions import Transmissions
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import format_share


@dataclass(frozen=True)
class Delays(Carded):
    """Delays beyond the bottleneck, in order of their ACKs; times in us since the flow's first packet.

    Attributes
    ----------
    departed_us : ndarray
        When each packet left the bottleneck.
    delay_us : ndarray
        From then until the ACK: RTT minus queueing and serialisation.
    queue_us : ndarray
        Queueing and serialisation delay at the bottleneck.
    group : ndarray of int
        Packets reported by the same ACK.
    gap_us : ndarray
        Per group: time since the previous ACK.
    burst : ndarray of bool
        Whether a packet is the first of a burst.
    rows : ndarray of int
        Rows of the packets in the `SentPackets` of the bottleneck's traffic.
    reordered_share : float
        Share of packets that arrived after a packet sent later.
    quiet_share : float
        Share of the samples that were kept, because no foreign backlog was found before them.
    tie_us : float
        Arrivals closer than this are simultaneous.
    steps : Steps
        The bottleneck's rate.
    table : Transmissions
    place : str or None
        Where the delay varies: ``"before"`` the bottleneck's queue, ``"behind"`` it (the way back included), or None if
        that does not show. Of delays that vary before it, `departed_us` is when a packet was sent, `queue_us` the
        serialisation behind it alone, and `gap_us` the time that the queue was empty: other packets may have waited, so
        that their delays are upper bounds.

    Examples
    --------
    >>> import cctrace as cct
    >>> path = cct.Path(rate="20Mbit", rtt="40ms", buffer="1bdp")
    >>> delays = cct.fit.uncongested_rtt(cct.simulate(path, ["cubic6"], "3s", seed=1, packets=True))
    >>> round(float(delays.delay_us.mean()))
    40000
    """

    departed_us: np.ndarray
    delay_us: np.ndarray
    queue_us: np.ndarray
    group: np.ndarray
    gap_us: np.ndarray
    burst: np.ndarray
    rows: np.ndarray
    reordered_share: float
    quiet_share: float
    tie_us: float
    steps: Steps
    table: Transmissions
    place: str | None = None

    def __len__(self) -> int:
        return len(self.delay_us)

    @functools.cached_property
    def event(self) -> Bools:
        """Per group: whether it arrived on its own, not right behind the previous group."""
        return self.gap_us > self.tie_us

    @functools.cached_property
    def last(self) -> Ints:
        """Rows of the last packet of every group: the one that triggered the ACK."""
        return np.append(np.flatnonzero(np.diff(self.group)), len(self.group) - 1)

    @functools.cached_property
    def reveals(self) -> Bools:
        """Per group: whether its RTT is without queue: behind jitter, only of packets that found the queue empty."""
        some = self.place == "before" and self.event.any()
        return self.event if some else np.ones(len(self.gap_us), bool)

    @property
    def packet_us(self) -> float:
        """Serialisation time of a full packet at the bottleneck, us."""
        return PACKET_BYTES / float(np.median(self.steps.rate))

    @property
    def rtt_us(self) -> Floats:
        """The uncongested RTTs, one per ACK, in order; us. Where not `reveals`, with a queue."""
        return self.delay_us[self.last]

    @property
    def slack_us(self) -> Floats:
        """Per group: what makes its delays upper bounds, us, where it came within `tie_us` of the previous one."""
        return np.where(self.event, 0.0, self.tie_us - np.maximum(self.gap_us, 0.0))

    @property
    def segments_per_ack(self) -> float:
        """How many segments an ACK covers, where segments arrived apart."""
        sizes = np.bincount(self.group)[self.event]
        return float(np.mean(np.minimum(sizes, 2))) if len(sizes) else 1.0

    def steady(self, stretch_us: float) -> tuple[Self, float]:
        """Return the delays minus the wander of period medians, and the standard deviation of that wander, us."""
        value = self.rtt_us
        stretch = np.unique((self.departed_us[self.last] / stretch_us).astype(np.int64), return_inverse=True)[1]
        medians = Parts(value[np.argsort(stretch, kind="stable")], np.bincount(stretch)).medians
        off = (medians - np.median(medians))[stretch]
        gap = self.gap_us - np.diff(off, prepend=off[0])
        return replace(self, delay_us=self.delay_us - off[self.group], gap_us=gap), float(np.std(medians))

    @functools.cached_property
    def effective_samples(self) -> float:
        """Effective number of independent RTTs."""
        return effective(self.rtt_us[self.reveals])

    @functools.cached_property
    def block_length(self) -> int:
        """Samples per block of the block bootstrap."""
        return block_length(self.rtt_us)

    @functools.cached_property
    def mean_us(self) -> Estimate:
        """RTT_UCAV, the mean RTT without queue, an `Estimate`; robust against stalls (0.5 % winsorised at each end)."""
        return mean_of(self.rtt_us[self.reveals])

    @functools.cached_property
    def median_us(self) -> tuple[float, float]:
        """Median RTT without queue, and its standard error, from means of blocks of the middle 90 %."""
        rtt = self.rtt_us[self.reveals]
        means = block_means(np.clip(rtt, *np.quantile(rtt, [0.05, 0.95])), max(len(rtt) // 20, 1))
        return float(np.median(rtt)), means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else 0.0

    @functools.cached_property
    def correlation_time_us(self) -> Estimate:
        """Autocorrelation time of the RTTs without queue (`blocks.correlation_time`); unknown of fewer than three."""
        departed, free = self.departed_us[self.last], self.reveals
        step_us = float((departed[-1] - departed[0]) / max(free.sum() - 1, 1))
        return correlation_time(self.rtt_us[free], step_us) if free.sum() > 2 else Estimate(None)

    def _card(self) -> Card:
        figures: list[tuple[str, object]] = [
            ("packets", f"{len(self)}, worth {self.effective_samples:.0f} independent ones"),
            ("mean", f"{self.mean_us.text('{:.0f}')} us"),
            ("arrived out of order", format_share(self.reordered_share)),
            ("without others' packets in the queue", format_share(self.quiet_share)),
        ]
        return "RTTs without queue", figures, []

    def __repr__(self) -> str:
        worth = f"{self.effective_samples:.0f} effective"
        return f"<Delays: {len(self)} packets, mean {self.mean_us.text('{:.0f}')} us, {worth}>"


def mean_of(series: Floats) -> Estimate:
    """Return the mean of dependent samples, an `Estimate`; 0.5 % at each end are winsorised.

    The error comes from block means (blocks three times as long as the bootstrap's, at least 10 of them) and
    Student's t distribution, as blocks may be few.
    """
    low, high = np.quantile(series, [0.005, 0.995])
    winsorised = np.clip(series, low, high)
    means = block_means(winsorised, block_sizes(winsorised, least=10))
    if len(means) < 2:
        return Estimate(float(winsorised.mean()))
    error = means.std(ddof=1) / np.sqrt(len(means)) * student(len(means) - 1)
    return Estimate.around(winsorised.mean(), error)


def delays_of(
    table: Transmissions, flow: SentPackets, steps: Steps, bucket_bytes: float = 0.0, is_shared: bool = False
) -> Delays:
    """Return the `Delays` of the packets through a bottleneck of known rate; see `cctrace.fit.uncongested_rtt`.

    `is_shared`: `flow` has the packets of others, too. Where the delays vary does not show then: ACKs farther apart
    than this flow's packets take to serve may have others' between them, whose order in the queue is not known, either.
    """
    flow.put_away()
    give_back(len(table))
    departed = flow.departures(steps, bucket_bytes)
    rows, reordered_share = _acked_once(flow)
    packet_us = PACKET_BYTES / float(np.median(steps.rate))
    burst = np.diff(flow.sent_us, prepend=-np.inf) > max(const.TIE_SHARE * packet_us, 20.0)
    group = np.cumsum(np.diff(flow.row[rows], prepend=-1) != 0) - 1
    rows, group = _without_timer(flow, departed, rows, group)
    gap = _gaps(table, flow, rows[np.append(True, np.diff(group) != 0)])
    overtaken = reordered_share > const.REORDERED_SHARE
    rows, group, gap, held_us = _promptly_acked(flow, rows, group, gap, overtaken)
    delay = flow.acked_us[rows] - departed[rows] - held_us
    tie = tie_us(gap, packet_us)
    short = (departed - flow.sent_us)[rows] <= const.SHORT_QUEUE_PACKETS * packet_us
    quiet = _quiet(departed[rows], delay, group, short, is_ordered=not overtaken and bool(np.median(gap) <= tie))
    give_back(len(table))
    # Keep the packets reported by one ACK together.
    keep = quiet[group]
    rows, quiet_share = rows[keep], keep.mean()
    group, gap_us = renumbered(group[keep]), gap[quiet]
    if len(group) < const.LEAST_RTTS:
        raise FitError(
            f"only {len(group)} RTTs were taken without a queue of others before them; at least {const.LEAST_RTTS} are "
            "needed, so capture a pause, a start, or BBR's PROBE_RTT"
        )
    found = Delays(
        departed[rows], delay[keep], (departed - flow.sent_us)[rows], group, gap_us, burst[rows], rows, reordered_share,
        float(quiet_share), tie, steps, table,
    )  # fmt: skip
    return found if bucket_bytes or is_shared else placed(found, flow)


def _acked_once(flow: SentPackets) -> tuple[Ints, float]:
    """Return the rows of first transmissions with known RTTs, by their ACKs, and the share that later ones overtook."""
    rows = flow.acked[flow.first[flow.acked]]
    if not len(rows):
        raise FitError("no ACK is for a single packet: each one's RTT is hidden by those sent with it")
    acked_us = flow.acked_us[rows]
    reordered_share = float((acked_us < np.maximum.accumulate(acked_us) - 1.0).mean())
    return rows[np.argsort(flow.row[rows], kind="stable")], reordered_share


def _promptly_acked(
    flow: SentPackets, rows: Ints, group: Ints, gap: Floats, overtaken: bool
) -> tuple[Ints, Ints, Floats, Floats]:
    """Return the rows, groups and gaps of packets reported without delay; by how much SACKs may be held back, us.

    Where packets overtake others, late ones are reported at once, those before them are not: all are used then.
    """
    prompt = flow.prompt[rows]
    if overtaken:
        return rows, group, gap, np.where(prompt, 0.0, np.minimum(gap[group], const.HELD_US) / 2)
    if len(left := distinct(group[prompt])) >= const.LEAST_RTTS:  # compressed SACKs report arrivals late
        return rows[prompt], renumbered(group[prompt]), gap[left], np.zeros(1)
    return rows, group, gap, np.zeros(1)


def _gaps(table: Transmissions, flow: SentPackets, rows: Ints) -> Floats:
    """Return the time from the previous ACK to the ACK that reported each of these rows, us."""
    acked = np.flatnonzero(table.ack_row >= 0)
    acks, where = np.unique(table.ack_row[acked], return_index=True)
    time_us = (table.acked_ns[acked[where]] - table.start_ns) / 1e3
    at = np.searchsorted(acks, flow.row[rows])
    return np.where(at > 0, time_us[at] - time_us[np.maximum(at - 1, 0)], np.inf)


def _without_timer(flow: SentPackets, departed: Floats, rows: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Drop single segments whose ACK waited for the delayed-ACK timer [RFC1122] 4.2.3.2."""
    alone = np.bincount(group)[group] == 1
    delay = flow.acked_us[rows] - departed[rows]
    # No second segment followed in time to trigger the ACK.
    idle_us = np.append(flow.sent_us[1:], np.inf)[rows] - flow.sent_us[rows]
    waited = alone & (delay > np.median(delay) + const.ACK_TIMER_US) & (idle_us > const.ACK_TIMER_US)
    return rows[~waited], renumbered(group[~waited])


def _quiet(departed: Floats, delay: Floats, group: Ints, short: Bools, is_ordered: bool) -> Bools:
    """Return per group whether its period contains no backlog but the flow's own.

    `short`: whether a packet met hardly any queue of its own. `is_ordered`: whether most catch up with the one before.
    """
    last = np.append(np.flatnonzero(np.diff(group)), len(group) - 1)
    value, number = delay[last], (departed[last] / const.WINDOW_US).astype(np.int64)
    own, left = short[last], departed[last] if is_ordered else departed[:0]
    stretch = renumbered(np.maximum.accumulate(number))
    parts = Parts(value, np.bincount(stretch))
    medians, spreads, counts = parts.medians, (parts.quantiles(0.84) - parts.quantiles(0.16)) / 2, parts.count
    del departed, last, number, parts  # of a million packets they have 28 MB
    many = counts >= 8
    if many.sum() < 3:
        return np.ones(group[-1] + 1, bool)
    # Scatter of period medians expected from the samples' autocorrelation within periods.
    within = value - medians[stretch]
    within = np.clip(within, *np.quantile(within, [0.005, 0.995]))
    worth = max(effective(within if many.all() else within[many[stretch]]) / many.sum(), 1.0)
    spread = float(np.median(spreads[many]))
    # Take the minimum where the flow's own queue was short at any rate; a few medians may be low by chance.
    some = np.bincount(stretch, own).astype(np.int64) >= 4
    own &= some[stretch]
    tried = Parts(value[own], np.bincount(stretch[own], minlength=len(some))[some])
    middle, count = (tried.medians, tried.count) if some.sum() >= 3 else (medians[many], counts[many])
    mean_size = len(value) / len(counts)
    surely = middle + 2.5 * spread / np.sqrt(np.maximum(worth * count / mean_size, 1.0))
    lowest = np.argsort(surely, kind="stable")
    base = float(middle[lowest[min(max(1, int(0.02 * len(middle))), len(middle) - 1)]])
    margin = const.WANDER_ERRORS * 1.25 * spread / np.sqrt(worth) + 2.5 * spread + 300.0
    # On an order-preserving path, isolated packets see less delay than packets that wait for each other.
    waiting = _waiting_us(left, value[own] - np.repeat(middle, count)) if is_ordered and some.sum() >= 3 else 0.0
    return ((medians <= base + margin + waiting) & (medians >= base - margin))[stretch]


def _waiting_us(departed: Floats, isolated: Floats) -> float:
    """Return the median delay of packets that keep their order if each draws one of the `isolated` delays, us."""
    drawn = np.random.default_rng(0).choice(isolated, len(departed))
    return float(np.median(np.maximum.accumulate(departed + drawn) - departed))


def renumbered(ascending: Ints) -> Ints:
    """Number the distinct values of an ascending array from 0, without gaps.

    >>> renumbered(np.array([4, 4, 7, 9, 9]))
    array([0, 0, 1, 2, 2])
    """
    return np.cumsum(np.diff(ascending, prepend=ascending[:1]) != 0)


def placed(delays: Delays, flow: SentPackets) -> Delays:
    """Return the delays with their `place`; those that vary before the queue, with what they then mean."""
    rows, last = delays.rows, delays.rows[delays.last]
    service_us, prompt = _service_us(delays, flow.row[last]), flow.prompt[last]
    place = _place(delays, service_us, prompt)
    if place != "before":
        return replace(delays, place=place)
    # Those that one ACK reports left the queue one after the other, the last one with the ACK.
    count = np.bincount(delays.group)
    behind = rows_of_spans(0, count)
    ahead_us = (1 - behind / count[delays.group]) * service_us[delays.group]
    sent_us, gap_us, free = flow.sent_us[rows], delays.gap_us - service_us, prompt
    if delays.reordered_share > const.REORDERED_SHARE:  # the delay after a long own queue is not the longest of many
        free = free & (delays.queue_us[delays.last] <= const.SHORT_QUEUE_PACKETS * delays.packet_us)
    return replace(
        delays,
        place=place,
        departed_us=sent_us + ahead_us,
        delay_us=flow.acked_us[rows] - sent_us - ahead_us,
        queue_us=ahead_us,
        gap_us=np.where(free, gap_us, 0.0),
        tie_us=tie_us(np.abs(gap_us), delays.packet_us),
    )


def _service_us(delays: Delays, acks: Ints) -> Floats:
    """Return per group how long the bottleneck served what its ACK, one of `acks`, reported, us."""
    table = delays.table
    acked = table.ack_row >= 0
    size = np.bincount(table.ack_row[acked], table.wire_bytes[acked])[acks]
    at = np.searchsorted(delays.steps.start_us, delays.departed_us[delays.last], "right") - 1
    return size / delays.steps.rate[np.maximum(at, 0)]


def _place(delays: Delays, service_us: Floats, prompt: Bools) -> str | None:
    last = delays.last
    departed, delay, gap = delays.departed_us[last], delays.delay_us[last], delays.gap_us[1:]
    service, apart = service_us[1:], np.diff(departed)
    neighbours = prompt[:-1] & prompt[1:] & (np.abs(np.diff(departed + delay) - gap) < 1.0)
    if neighbours.sum() < const.LEAST_RTTS:
        return None
    closer = gap[neighbours] < const.CLOSER_SPACING * service[neighbours]
    if closer.mean() >= const.MIN_CLOSER_SHARE:
        return "behind"
    least, most = (times * service for times in const.APART_SERVICE_TIMES)
    loose = neighbours & (apart > least) & (apart < most)
    if not loose.any():
        return None
    fell = np.diff(delay)[loose] < (const.CLOSER_SPACING - 1) * service[loose]
    share = neighbours.sum() * min(float(np.mean(service[neighbours]) / np.mean(apart[loose])), 1.0) / loose.sum()
    due = fell.sum() * share
    # How unlikely it is that none came closer, at the rate of those that fell, which a few of them hardly determine;
    # for many it is exp(-due).
    surprise = fell.sum() * np.log1p(share)
    return "before" if surprise >= const.MIN_CLOSER and closer.sum() <= const.MAX_CLOSER_SHARE * due else None


def tie_us(gap: Floats, packet_us: float) -> float:
    """Return the largest spacing of packets that left a later queue together, taken from the closest arrivals."""
    close = gap[gap < const.TIE_SHARE * packet_us]
    return float(min(max(3 * np.quantile(close, 0.75), 1.0) if len(close) else 1.0, const.TIE_SHARE * packet_us))
