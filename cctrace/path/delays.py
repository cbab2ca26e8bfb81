r"""What a path adds to packets beyond the queue: the RTT without congestion, of every packet that shows it.

The queue at the bottleneck follows from what the flow itself sent (`bottleneck`); what is left of an RTT is
propagation, jitter, and whatever stood in the queue that the flow did not put there: other flows, a host that stalled.
That backlog stays until the queue empties, and then it is gone: it shows as stretches of time whose median lies above
the least by more than delays vary within one. Such stretches are left out, so that a growing queue is not taken for
jitter. No list of states is needed: PROBE_RTT, starts and pauses count because they leave the queue empty, whoever the
controller.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.display import Carded
from cctrace.errors import FitError
from cctrace.estimates import Estimate
from cctrace.path.arrays import Bools, Floats, Ints
from cctrace.path.blocks import block_length, block_means, block_sizes, student
from cctrace.path.blocks import effective_samples as effective
from cctrace.path.bottleneck import Steps, departures
from cctrace.path.constants import ACK_TIMER_US, HELD_US, LEAST_RTTS, REORDERED, SHORT_QUEUE, TIE, WANDER, WINDOW_US
from cctrace.path.transmissions import Transmissions
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import format_share

if TYPE_CHECKING:
    from cctrace.path.bottleneck import Sent


@dataclass(frozen=True)
class Delays(Carded):
    """Delays beyond the bottleneck, in the order of their ACKs; times in us since the first packet of the flow.

    Attributes
    ----------
    departed_us : ndarray
        When each packet had left the bottleneck.
    delay_us : ndarray
        From then until the ACK: what the RTT is without queue and serialisation.
    queue_us : ndarray
        What it waited and was served at the bottleneck.
    group : ndarray of int
        Packets that one ACK told of.
    gap_us : ndarray
        Per group: how much later its ACK came than the one before.
    burst : ndarray of bool
        Whether a packet is the first of a burst of the sender.
    reordered_share : float
        Share of packets that arrived after one that was sent later.
    quiet_share : float
        Share of the samples that were not left out because more than the flow's own queue stood before them.
    tie_us : float
        Arrivals closer than that came together.
    steps : Steps
        The bottleneck's rate.
    table : Transmissions

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
    reordered_share: float
    quiet_share: float
    tie_us: float
    steps: Steps
    table: Transmissions

    def __len__(self) -> int:
        return len(self.delay_us)

    @functools.cached_property
    def event(self) -> Bools:
        """Per group: whether it came by itself, and not right behind the group before."""
        return self.gap_us > self.tie_us

    @functools.cached_property
    def last(self) -> Ints:
        """Rows of the last packet of every group: the one whose arrival the ACK answered."""
        return np.append(np.flatnonzero(np.diff(self.group)), len(self.group) - 1)

    @property
    def packet_us(self) -> float:
        """Time that a full packet takes at the bottleneck, us."""
        return PACKET_BYTES / float(np.median(self.steps.rate))

    @property
    def rtt_us(self) -> Floats:
        """The uncongested RTTs, one per ACK, in order; us."""
        return self.delay_us[self.last]

    @property
    def segments_per_ack(self) -> float:
        """How many segments an ACK covers where they came apart."""
        sizes = np.bincount(self.group)[self.event]
        return float(np.mean(np.minimum(sizes, 2))) if len(sizes) else 1.0

    def steady(self, stretch_us: Any) -> Any:
        """Return the delays less what moves the medians of stretches of time, and the sd of that, us."""
        value = self.rtt_us
        stretch = np.unique((self.departed_us[self.last] / stretch_us).astype(np.int64), return_inverse=True)[1]
        order = np.argsort(stretch, kind="stable")
        parts = np.split(value[order], np.flatnonzero(np.diff(stretch[order])) + 1)
        medians = np.array([np.median(part) for part in parts])
        off = (medians - np.median(medians))[stretch]
        gap = self.gap_us - np.diff(off, prepend=off[0])
        return replace(self, delay_us=self.delay_us - off[self.group], gap_us=gap), float(np.std(medians))

    @functools.cached_property
    def effective_samples(self) -> float:
        """How many independent RTTs these are worth."""
        return effective(self.rtt_us)

    @functools.cached_property
    def block_length(self) -> Any:
        """Samples per block of the block bootstrap."""
        return block_length(self.rtt_us)

    @functools.cached_property
    def mean_us(self) -> Estimate:
        """RTT_UCAV, the mean RTT without queue, an `Estimate`; robust against stalls (0.5 % at each end trimmed)."""
        return mean_of(self.rtt_us)

    def _card(self) -> tuple[str, list[tuple[str, object]], list[str]]:
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
    """Return the mean of dependent samples, an `Estimate`; 0.5 % at each end are cut to the next.

    The error is that of the means of blocks (three times as long as the bootstrap's, at least 10 of them), of Student's
    distribution: there may be few.
    """
    low, high = np.quantile(series, [0.005, 0.995])
    kept = np.clip(series, low, high)
    means = block_means(kept, block_sizes(kept, least=10))
    if len(means) < 2:
        return Estimate(float(kept.mean()))
    error = means.std(ddof=1) / np.sqrt(len(means)) * student(len(means) - 1)
    return Estimate.around(kept.mean(), error)


def require_rtts(flow: Sent) -> None:
    """Refuse a `Sent` of which too few RTTs are known with a `FitError` that says what would be needed."""
    if len(flow.known) < LEAST_RTTS:
        raise FitError(
            f"only {len(flow.known)} RTTs are known; at least {LEAST_RTTS} are needed, so capture a longer flow"
        )


def delays_of(table: Transmissions, flow: Sent, steps: Steps, bucket_bytes: float = 0.0) -> Delays:
    """Return the `Delays` of what went through a bottleneck of known rate; see `cctrace.fit.uncongested_rtt`."""
    departed = departures(flow.sent_us, flow.wire_bytes, steps, bucket_bytes)
    rows = flow.known[flow.first[flow.known]]
    if not len(rows):
        raise FitError("no ACK tells of single packets: each one's RTT is hidden by those sent with it")
    rows = rows[np.argsort(flow.row[rows], kind="stable")]
    in_order = np.sort(rows)
    inverted = flow.told_us[in_order] < np.maximum.accumulate(flow.told_us[in_order]) - 1.0
    packet_us = PACKET_BYTES / float(np.median(steps.rate))
    burst = np.diff(flow.sent_us, prepend=-np.inf) > max(TIE * packet_us, 20.0)
    group = np.cumsum(np.diff(flow.row[rows], prepend=-1) != 0) - 1
    rows, group = _without_timer(flow, departed, rows, group)
    gap = _gaps(table, flow, rows[np.append(True, np.diff(group) != 0)])
    prompt, held_us = flow.prompt[rows], np.zeros(len(rows))
    overtaken = inverted.mean() > REORDERED
    if overtaken:  # who comes late is told of at once, who comes before is not: all count, held ones by half
        held_us = np.where(prompt, 0.0, np.minimum(gap[group], HELD_US) / 2)
    elif len(np.unique(group[prompt])) >= LEAST_RTTS:  # SACKs that a timer held back tell of arrivals late
        rows, gap = rows[prompt], gap[np.unique(group[prompt])]
        group, held_us = np.unique(group[prompt], return_inverse=True)[1].reshape(-1), held_us[prompt]
    delay = flow.told_us[rows] - departed[rows] - held_us
    quiet = _quiet(departed[rows], delay, group, (departed - flow.sent_us)[rows] <= SHORT_QUEUE * packet_us)
    # Whole groups, so that what one ACK told of stays together.
    keep = quiet[group]
    rows, kept = rows[keep], keep.mean()
    group = np.unique(group[keep], return_inverse=True)[1].reshape(-1)
    if len(group) < LEAST_RTTS:
        raise FitError(
            f"only {len(group)} RTTs were taken without a queue of others before them; at least {LEAST_RTTS} are "
            "needed, so capture a pause, a start, or BBR's PROBE_RTT"
        )
    return Delays(
        departed[rows],
        delay[keep],
        (departed - flow.sent_us)[rows],
        group,
        gap[quiet],
        burst[rows],
        float(inverted.mean()),
        float(kept),
        _tie_us(gap, packet_us),
        steps,
        table,
    )


def _gaps(table: Transmissions, flow: Sent, rows: Ints) -> Floats:
    """Return how much later the ACKs that told of these rows came than the ones before them, of whatever they told."""
    acked = np.flatnonzero(table.ack_row >= 0)
    acks, where = np.unique(table.ack_row[acked], return_index=True)
    time_us = (table.told_ns[acked[where]] - table.start_ns) / 1e3
    at = np.searchsorted(acks, flow.row[rows])
    return np.where(at > 0, time_us[at] - time_us[np.maximum(at - 1, 0)], np.inf)


def _tie_us(gap: Floats, packet_us: float) -> float:
    """Return how close arrivals come that left a queue of the path together: as the closest do, in this capture."""
    close = gap[gap < TIE * packet_us]
    return float(min(max(3 * np.quantile(close, 0.75), 1.0) if len(close) else 1.0, TIE * packet_us))


def _without_timer(flow: Sent, departed: Floats, rows: Ints, group: Ints) -> tuple[Ints, Ints]:
    """Leave out single segments whose ACK waited for the receiver's timer [RFC1122] 4.2.3.2."""
    alone = np.bincount(group)[group] == 1
    delay = flow.told_us[rows] - departed[rows]
    # After it nothing was sent for so long that a second segment could have called for the ACK.
    next_sent = np.append(flow.sent_us[1:], np.inf)[rows]
    waited = alone & (delay > np.median(delay) + ACK_TIMER_US) & (next_sent - flow.sent_us[rows] > ACK_TIMER_US)
    return rows[~waited], np.unique(group[~waited], return_inverse=True)[1].reshape(-1)


def _quiet(departed: Floats, delay: Floats, group: Ints, short: Bools) -> Bools:
    """Return per group whether its stretch of time shows no more than the flow's own queue."""
    last = np.append(np.flatnonzero(np.diff(group)), len(group) - 1)
    time, value = departed[last], delay[last]
    stretch = np.maximum.accumulate((time / WINDOW_US).astype(np.int64) - int(time.min() / WINDOW_US))
    stretch = np.unique(stretch, return_inverse=True)[1].reshape(-1)
    edges = np.append(np.flatnonzero(np.diff(stretch, prepend=-1)), len(stretch))
    parts = [value[a:b] for a, b in itertools.pairwise(edges)]
    medians = np.array([np.median(part) for part in parts])
    spreads = np.array([np.subtract(*np.quantile(part, [0.84, 0.16])) / 2 for part in parts])
    many = np.array([len(part) for part in parts]) >= 8
    if many.sum() < 3:
        return np.ones(group[-1] + 1, bool)
    # How far medians of stretches wander of themselves: by the samples in one that are worth an independent one.
    within = np.clip(value - medians[stretch], *np.quantile(value - medians[stretch], [0.005, 0.995]))
    worth = max(effective(within[many[stretch]]) / many.sum(), 1.0)
    spread = float(np.median(spreads[many]))
    # The least are looked for where the flow's own queue was short, whatever its rate; a few may be low by chance.
    shorts = [part[own] for part, own in zip(parts, np.split(short[last], edges[1:-1]), strict=True)]
    mean_size = len(value) / len(parts)

    def surely(part: Floats) -> float:
        return np.median(part) + 2.5 * spread / np.sqrt(max(worth * len(part) / mean_size, 1.0))

    tried = [part for part in shorts if len(part) >= 4]
    if len(tried) < 3:
        tried = [part for part in parts if len(part) >= 8]
    tried.sort(key=surely)
    base = float(np.median(tried[min(max(1, int(0.02 * len(tried))), len(tried) - 1)]))
    # On a path that keeps order packets far apart see less delay than packets that wait for each other.
    margin = WANDER * 1.25 * spread / np.sqrt(worth) + 2.5 * spread + 300.0
    return ((medians <= base + margin) & (medians >= base - margin))[stretch]
