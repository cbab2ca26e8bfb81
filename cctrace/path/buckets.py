r"""Policers: token buckets that drop what exceeds them.

A policer of rate r and bucket B acts like a drop-tail queue without waiting. Its *deficit* V, the tokens missing from
the bucket, grows with every packet that passes and falls at r; a packet is dropped if V plus its size exceeds B. V thus
follows Lindley's recursion over the packets that passed, and r and B are the values that best separate the deficits met
by lost and by passed packets: at another rate, V drifts between losses. A queue would have delayed packets by V / r, a
policer does not; nor does a shaper (`path.shapers`) until V exceeds B.

Bytes are those of `cctrace.Path` (payload plus 66 per segment). Which bytes a router counts cannot be inferred from
full-sized segments, where layers differ by a constant factor; the policer of the captures of `benchmarks/fit.py
policers` counts Ethernet frames with their check sequence (1518 instead of 1514).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cctrace.columns import Bools, Floats, Ints
from cctrace.estimates import Z95, Estimate
from cctrace.path import constants as const
from cctrace.path.arrays import Parts, events_apart, first_of_events
from cctrace.path.lindley import deficits_at, losses_by_deficit
from cctrace.path.minimise import least_of
from cctrace.path.queue import backlog, constant
from cctrace.path.transmissions import LOST, Transmissions
from cctrace.special import special
from cctrace.tcp.wire import PACKET_BYTES


class Bucket(NamedTuple):
    """A token bucket: a policer's or a shaper's."""

    rate: Estimate  # bytes/us
    size_bytes: Estimate
    explained: np.ndarray | None  # bool per transmission: losses that an empty bucket explains; None of a shaper
    is_queue: bool = False  # whether packets wait for tokens: a short queue drops as an empty bucket does

    def as_estimates(self) -> dict[str, Estimate]:
        """Return {"rate_bps", "bucket_bytes"}."""
        return {"rate_bps": self.rate.scaled(8e6), "bucket_bytes": self.size_bytes}


@dataclass(frozen=True)
class _Arrivals:
    """All packets that reached a policer, in order of sending."""

    time_us: Floats
    size: Floats  # bytes
    lost: Bools
    rtt_us: float  # losses closer than this are one event

    def deficits(self, rate: float) -> Floats:
        """Return the deficit at each packet, itself included, bytes; only packets that passed take tokens."""
        passed = ~self.lost
        time, size = self.time_us[passed], self.size[passed]
        at_passed = backlog(time, size, constant(rate))
        deficit_bytes = np.empty(len(self.lost))
        deficit_bytes[passed] = at_passed
        before = np.searchsorted(time, self.time_us[self.lost], "right") - 1
        since_us = self.time_us[self.lost] - time[np.maximum(before, 0)]
        remaining = np.where(before >= 0, np.maximum(at_passed[np.maximum(before, 0)] - since_us * rate, 0.0), 0.0)
        deficit_bytes[self.lost] = remaining + self.size[self.lost]
        return deficit_bytes

    def judge(self, rate: float, bucket: float, near: float) -> _Hypothesis:
        """Return how much likelier the losses are with this bucket: packets that find it empty are lost, few others.

        `rate`: bytes/us. `bucket`: bytes. `near`: see `_Hypothesis`. Within a few packets of an empty bucket, every
        packet's worth of deficit has a loss probability of its own; beyond, packets should not pass.
        """
        zones = int(const.EMPTY_PACKETS + const.OVER_PACKETS) + 2
        counts = np.zeros(2 + 2 * zones, np.int64)
        number = int(self._columns[2].sum())
        counts[:2] = number, max(len(self.lost) - number, 1)
        packets = float(PACKET_BYTES), const.EMPTY_PACKETS, const.POLICED_SHARE, const.OVER_PACKETS
        tried = float(rate), float(bucket), float(near)
        if not losses_by_deficit(*self._columns, *tried, *packets, const.MAX_SPARED_SHARE, counts):
            return _Hypothesis(rate, bucket, near, -np.inf)
        lost, among = counts[2 : 2 + zones], counts[2 + zones :]
        used = int(np.flatnonzero(among)[-1]) + 1
        gain = _log_likelihood(lost[:used], among[:used]) - _log_likelihood(lost.sum(), among.sum())
        return _Hypothesis(rate, bucket, near, gain)

    def corrected_deficits(self, best: _Hypothesis) -> Floats:
        """Return the deficit at each packet, itself included, corrected at the losses that a bucket explains."""
        deficit_bytes = np.empty(len(self.lost))
        deficits_at(*self._columns, float(best.rate), float(best.bucket), float(best.near), deficit_bytes)
        return deficit_bytes

    @functools.cached_property
    def _columns(self) -> tuple[Floats, Floats, np.ndarray]:
        """Times, sizes and losses, as compiled code takes them."""
        return self.time_us.astype(float), self.size.astype(float), self.lost.astype(np.int64)

    @functools.cached_property
    def first_losses(self) -> np.ndarray:
        """Rows of the losses whose deficits say how large the bucket is."""
        lost = np.flatnonzero(self.lost)
        return lost[self.time_us[lost] < self.time_us[lost[0]] + const.FIRST_LOSSES_US][: const.FIRST_LOSSES]

    def first_deficits(self, rate: float) -> Floats:
        """Return the deficits at `first_losses`, which later packets do not change."""
        end = int(np.searchsorted(self.time_us, self.time_us[self.first_losses[-1]], "right"))
        end = max(end, int(np.argmin(self.lost)) + 1)  # at least one packet passed
        beginning = _Arrivals(self.time_us[:end], self.size[:end], self.lost[:end], self.rtt_us)
        return beginning.deficits(rate)[self.first_losses]

    def event_deficits(self, rate: float) -> Floats:
        """Return the deficits at the first losses of all loss events."""
        lost = np.flatnonzero(self.lost)
        return self.deficits(rate)[lost[first_of_events(self.time_us[lost], self.rtt_us)]]

    @functools.cached_property
    def apart(self) -> float:
        """Number of loss events per loss: those within an RTT are one."""
        return events_apart(self.time_us[self.lost], self.rtt_us) / np.count_nonzero(self.lost)

    def misjudged(self, rate: float) -> int:
        """Return the number of packets on the wrong side of the best deficit threshold between lost and passed."""
        deficit_bytes = self.deficits(rate)
        lost = self.lost[np.argsort(deficit_bytes, kind="stable")]
        below = np.concatenate([[0], np.cumsum(lost)])  # lost at a smaller deficit
        above = np.concatenate([[0], np.cumsum(~lost)])
        return int((below + above[-1] - above).min())


def policer_of(tables: list[Transmissions], start_ns: int, base_us: float) -> Bucket | None:
    """Return the policer, a `Bucket` or None, that explains the losses of a flow and of others (`tables`) behind it."""
    found = dropper_of(tables, start_ns, base_us)
    return None if found is None or found.is_queue else found


def dropper_of(tables: list[Transmissions], start_ns: int, base_us: float) -> Bucket | None:
    """Return the policer, or the short queue, that explains the losses of a flow and of others behind it; or None."""
    packet, *columns = zip(*map(_dropped_as_one, tables), strict=True)
    sent_ns, size, lost = map(np.concatenate, columns)
    order = np.argsort(sent_ns, kind="stable")
    arrivals = _Arrivals((sent_ns[order] - start_ns) / 1e3, size[order], lost[order], base_us)
    lost, ends = arrivals.lost, np.cumsum([len(sent) for sent in columns[0]])
    place = [row[of] for row, of in zip(np.split(np.argsort(order), ends[:-1]), packet, strict=True)]  # of each segment
    if lost.sum() < const.MIN_POLICED or _queued(tables[0], base_us):
        return None
    best = max(
        (_best_near(arrivals, rate) for rate in _candidates(arrivals)), key=lambda found: found.gain, default=None
    )
    if best is None or best.gain * arrivals.apart < const.POLICED_GAIN:  # losses within an RTT count once
        return None
    deficit_bytes = arrivals.corrected_deficits(best)
    at_loss = deficit_bytes[lost]
    explained = (at_loss - best.bucket) / PACKET_BYTES > -const.EMPTY_PACKETS
    if _any_rate_does(arrivals, best.rate):
        return None
    confirmed_ns = start_ns + 1e3 * np.median(arrivals.time_us[lost][explained])
    own_waited = _delayed(tables[0], deficit_bytes[place[0]], best)
    # A flow that came when a queue was full never saw it empty: others' delays may show it, until the deficits are no
    # longer confirmed by losses, as flows outside the capture, or too many to be followed, may have taken tokens later.
    others = zip(tables[1:], place[1:], strict=True)
    is_queue = own_waited or any(_delayed(table, deficit_bytes[rows], best, confirmed_ns) for table, rows in others)
    if own_waited is None and not is_queue:
        return None
    if not is_queue and best.bucket < 2 * _acked_at_once(tables[0]):
        return None  # most of a queue of that size would come and go between two ACKs: delays do not show it
    low, high = _likely_rates(arrivals, best)
    rate, bucket = best.rate, best.bucket
    errors = _errors(arrivals, best.rate, at_loss[explained])
    own = tables[0].state == LOST
    is_explained = np.zeros(len(order), bool)
    is_explained[np.flatnonzero(lost)[explained]] = True
    mask = own & is_explained[place[0]]
    size_bytes = Estimate.around(bucket, max(errors[1], PACKET_BYTES / 2), PACKET_BYTES)
    _, least, most = Estimate.around(rate, max(errors[0], 5e-4 * rate)).sides()
    return Bucket(Estimate(rate, min(least, low), max(most, high)), size_bytes, mask, bool(is_queue))


def _dropped_as_one(table: Transmissions) -> tuple[Ints, Ints, Floats, Bools]:
    """Return the number of the packet that took or lost each segment; and of the packets times, bytes, whether lost.

    A policer on the sender's host meets super-packets, which pass or are dropped as a whole; one behind the network
    interface, or a queue that divides them, loses parts of some.
    """
    number = np.cumsum(np.diff(table.packet, prepend=-1) != 0) - 1
    many, lost = np.bincount(number), np.bincount(number, table.state == LOST)
    hit = (many > 1) & (lost > 0)
    if (lost[hit] < many[hit]).sum() >= const.MAX_SPARED_SHARE * hit.sum():
        number = np.arange(len(table))
    begin = np.unique(number, return_index=True)[1]
    return number, table.sent_ns[begin], np.add.reduceat(table.wire_bytes, begin), table.state[begin] == LOST


def _log_likelihood(lost: ArrayLike, among: ArrayLike) -> float:
    """Return the log likelihood of `lost` of `among` packets in each group, at the group's own loss probability."""
    lost, among = np.asarray(lost, float), np.asarray(among, float)
    share = lost / np.maximum(among, 1.0)
    return float(np.sum(special.xlogy(lost, share) + special.xlogy(among - lost, 1 - share)))


def _acked_at_once(table: Transmissions) -> float:
    """Return the mean bytes acknowledged by an ACK, weighted by bytes."""
    got = np.bincount(table.ack_row[table.ack_row >= 0])
    return float(np.average(got, weights=got)) * table.mss if got.any() else 0.0


def _any_rate_does(arrivals: _Arrivals, rate: float) -> bool:
    """Return whether a tenth of a rate and ten times as much separate lost from passed packets equally well.

    Then the losses depend on bursts alone, as in a short queue. The tolerance is the Poisson scatter of the number of
    misjudged packets.
    """
    most = arrivals.misjudged(rate)
    most += Z95 * np.sqrt(max(most, 1.0))
    return all(arrivals.misjudged(rate * np.exp(side * const.MAX_PLATEAU)) <= most for side in (-1, 1))


def _likely_rates(arrivals: _Arrivals, best: _Hypothesis) -> tuple[float, float]:
    """Return the lowest and the highest rate under which the losses are about as likely as under the best one.

    A bucket of a few packets refills within milliseconds, so that losses hardly depend on its rate.
    """
    least, bounds = best.gain - const.PROFILE_DROP, []

    def is_likely(rate: float) -> bool:
        return arrivals.judge(rate, best.bucket, best.near).gain >= least

    for side in (-1, 1):
        inside, step = 0.0, 1e-4
        while step < const.MAX_PLATEAU and is_likely(best.rate * np.exp(side * step)):
            inside, step = step, 2 * step
        outside = min(step, const.MAX_PLATEAU)
        while outside - inside > max(1e-5, 0.02 * outside):
            middle = (inside + outside) / 2
            if is_likely(best.rate * np.exp(side * middle)):
                inside = middle
            else:
                outside = middle
        bounds.append(best.rate * np.exp(side * inside))
    return bounds[0], bounds[1]


def _queued(table: Transmissions, base_us: float) -> bool:
    """Return whether packets sent around the losses waited: then a queue dropped them, not a policer.

    All losses within an RTT count once: the many at a flow's start may overflow a queue elsewhere. Jitter delays
    packets before losses as it does all others. The last packet before a loss may have waited for a delayed ACK that
    the lost one would have released: then the next packet did, and the one before met no queue.
    """
    known = np.flatnonzero(np.isfinite(table.rtt_us) & ~table.retransmitted)
    lost = np.flatnonzero(table.state == LOST)
    if not len(lost) or not len(known):
        return True
    lost = lost[np.unique(_rounds(table, base_us)[lost], return_index=True)[1]]
    place, jitter_us = np.searchsorted(known, lost), _jitter_us(table, base_us)
    before, last = (known[np.maximum(place - back, 0)] for back in (2, 1))
    after = known[np.minimum(place, len(known) - 1)]
    waited, later = table.rtt_us[last] - base_us, (table.sent_ns[after] - table.sent_ns[last]) / 1e3
    queue_us = max(5e3, 0.2 * base_us)
    for_ack = (table.rtt_us[before] - base_us <= queue_us) & (later > 0) & (later <= waited + jitter_us)
    return float(np.median(np.where(for_ack, waited - later, waited))) > queue_us + jitter_us


def _rounds(table: Transmissions, base_us: float) -> np.ndarray:
    """Return the number of the base RTT in which each packet was sent; a clock slower than the path shows 0."""
    return (table.sent_ns / max(base_us * 1e3, 1.0)).astype(np.int64)


def _jitter_us(table: Transmissions, base_us: float) -> float:
    """Return by how much RTTs typically exceed the least one of the same round: queues change more slowly."""
    known = np.isfinite(table.rtt_us) & ~table.retransmitted
    number = _rounds(table, base_us)[known]
    begin = np.flatnonzero(np.diff(number, prepend=number[:1] - 1))
    of_round = Parts(table.rtt_us[known], np.diff(begin, append=len(number)))
    return float(np.median(of_round.medians - of_round.least))


class _Hypothesis(NamedTuple):
    """A policer, and how well it explains the losses; see `_Arrivals.judge`."""

    rate: float  # bytes/us
    bucket: float  # bytes
    near: float  # bytes by which the deficit at a loss may fall short of the bucket, to be corrected to it
    # log likelihood of the losses in excess of random loss; minus infinity if the bucket explains too few of them, or
    # should have dropped too many of the passed packets
    gain: float


def _best_near(arrivals: _Arrivals, rate: float) -> _Hypothesis:
    """Return the likeliest policer of about this rate.

    The first losses say best how large the bucket is, unless it was partly empty when the flow began. Then corrected
    deficits leave open how large; those at the right rate never exceed it.
    """
    first = _refined(arrivals, _judged(arrivals, rate, arrivals.first_deficits(rate)))
    later = _refined(arrivals, _judged(arrivals, rate, arrivals.event_deficits(rate)))
    later = _refined(arrivals, _judged(arrivals, later.rate, arrivals.event_deficits(later.rate)))
    return later if later.gain > first.gain + const.POLICED_GAIN else first


def _refined(arrivals: _Arrivals, about: _Hypothesis) -> _Hypothesis:
    """Return the policer with the likeliest rate near that of another one with the same bucket."""

    def unlikely(rate: float) -> float:
        return -arrivals.judge(rate, about.bucket, about.near).gain

    by = np.exp(const.RATE_GRID)
    return arrivals.judge(least_of(unlikely, about.rate / by, about.rate * by, 41, 1e-5)[0], about.bucket, about.near)


def _judged(arrivals: _Arrivals, rate: float, at_losses: Floats) -> _Hypothesis:
    """Return the likeliest policer of a rate; its bucket is one of the deficits at losses, which it explains.

    Correcting the deficit at every loss with a bucket half empty, or only if it is nearly empty, are both tried: a
    miscounted packet (a duplicate, or one of a flow outside the capture) is thus forgotten at the next loss.
    """
    sizes = np.unique(np.quantile(at_losses, (0.1, 0.3, 0.5, 0.7, 0.9)) - PACKET_BYTES / 2)
    tried = [(float(size), near) for size in sizes for near in (const.EMPTY_PACKETS * PACKET_BYTES, size / 2)]
    return max((arrivals.judge(rate, *bucket) for bucket in tried), key=lambda found: found.gain)


def _candidates(arrivals: _Arrivals) -> list[float]:
    """Return candidate rates: the best of a coarse grid, those near where losses agree, and from bytes between them."""
    mean = arrivals.size[~arrivals.lost].sum() / (arrivals.time_us[-1] - arrivals.time_us[0])
    grid = mean * np.exp(np.arange(-2 * const.RATE_GRID, const.MAX_ABOVE_MEAN, const.RATE_GRID))
    gains = np.array([_judged(arrivals, rate, arrivals.first_deficits(rate)).gain for rate in grid])
    best = [float(grid[k]) for k in np.argsort(-gains, kind="stable")[: const.BEST_RATES] if np.isfinite(gains[k])]
    found = best + [_level_rate(arrivals, rate) for rate in best]
    for span_us in (5e5, 2e6, 8e6):
        passed, span = _between(arrivals, span_us)
        if len(span) >= const.MIN_POLICED:
            found.append(_common_rate(passed, span))
    return found


def _level_rate(arrivals: _Arrivals, about: float) -> float:
    """Return the rate at which most of the first losses met the same deficit, which a wrong rate spreads."""

    def off(rate: float) -> float:
        deficit_bytes = arrivals.first_deficits(rate)
        return float(np.mean(np.log1p(np.abs(deficit_bytes - np.median(deficit_bytes)) / PACKET_BYTES)))

    return least_of(off, about / np.exp(const.RATE_GRID), about * np.exp(const.RATE_GRID), 41, 1e-5)[0]


def _common_rate(passed: Floats, span: Floats) -> float:
    """Return the rate that explains most of the bytes that passed between losses to within a packet."""

    def off(rate: float) -> float:
        return float(np.mean(np.log1p(np.abs(passed - rate * span) / PACKET_BYTES)))

    low, high = np.quantile(passed / span, [0.05, 0.98])
    return least_of(off, max(low, 1e-9), high * 1.01, 400, 1e-5)[0]


def _between(arrivals: _Arrivals, span_us: float) -> tuple[Floats, Floats]:
    """Return the bytes passed between losses at least this far apart, and the time between them."""
    losses = np.flatnonzero(arrivals.lost)
    passed = np.concatenate([[0.0], np.cumsum(np.where(arrivals.lost, 0.0, arrivals.size))])
    time = arrivals.time_us[losses]
    later = np.searchsorted(time, time + span_us)
    inside = later < len(losses)
    a, b = losses[inside], losses[later[inside]]
    return passed[b] - passed[a], arrivals.time_us[b] - arrivals.time_us[a]


def _delayed(table: Transmissions, deficit_bytes: Floats, best: _Hypothesis, end_ns: float = np.inf) -> bool | None:
    """Return whether packets waited while the bucket was short of tokens, as they would in a queue; None if unknown.

    In a queue RTTs increase by all of the time that makes up the deficit, behind a policer by none: the slope says
    which is nearer, between the medians of larger and smaller deficits, since delayed ACKs are outliers. Jitter delays
    packets whatever the deficit. What a shaper's tokens let pass does not wait: deficits beyond half a bucket count, if
    it holds enough packets for several.
    """
    known = np.isfinite(table.rtt_us) & ~table.retransmitted & (table.sent_ns <= end_ns)
    wait, rtt_us, full = deficit_bytes[known] / best.rate, table.rtt_us[known], best.bucket / best.rate
    for least in (full / 2, 0.0):
        middle = (least + full) / 2
        parts = (wait > middle, (wait > least) & (wait <= middle))
        if min(np.count_nonzero(part) for part in parts) >= 10:
            (long, after), (short, before) = ((np.median(wait[part]), np.median(rtt_us[part])) for part in parts)
            return bool(after - before > (long - short) / 2)
    return None


def _errors(arrivals: _Arrivals, best: float, at_loss: Floats) -> tuple[float, float]:
    """Return standard errors of rate and bucket: scatter of rates over parts of the flow, of deficits at losses.

    `best`: the rate. `at_loss`: deficits at the explained losses.
    """
    passed, span = _between(arrivals, 2e6)
    rates = passed / np.maximum(span, 1.0)
    near = np.abs(rates / best - 1) < 0.05
    parts = [np.median(part) for part in np.array_split(rates[near], const.POLICED_PARTS) if len(part)]
    rate = float(np.std(parts) / np.sqrt(len(parts))) if len(parts) > 2 else 0.02 * best
    return rate, float(np.std(np.clip(at_loss, *np.quantile(at_loss, [0.05, 0.95])))) / 2
