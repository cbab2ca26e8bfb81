"""The facts of losses, from packets: what each lost packet met in the queue, which RTTs came before, in which burst."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cctrace.diagnosis import constants as const
from cctrace.diagnosis.groups import Bursts, Losses, Met, SentAgain
from cctrace.diagnosis.record import Record
from cctrace.path.bottleneck import constant
from cctrace.path.constants import ABOVE_FULL
from cctrace.path.losses import backlog_met, decided_ns, overflows, proportion
from cctrace.path.own_queue import mean_rank
from cctrace.path.transmissions import Transmissions
from cctrace.special import special
from cctrace.tcp.wire import PACKET_BYTES


def losses(record: Record) -> Losses | None:
    """Return which packets were lost, and what they met where the flow's own queue is known; None if none was."""
    lost = int(record.lost.sum())
    if not lost:
        return None
    placed = record.bottleneck.is_measured and not record.changes
    rank, episodes = _before(record, record.lost)
    known, at = record.rtt_us[np.isfinite(record.rtt_us)], record.sent_s[record.lost]
    return Losses(
        lost=lost,
        sent=len(record.table),
        loss_share=lost / len(record.table),
        span=(float(at.min()), float(at.max())),
        rtt_rank=rank,
        episodes=episodes,
        room_us=float(np.quantile(known, 0.995)) - record.least_rtt_us,
        least_rtt_us=record.least_rtt_us,
        is_gathered=lambda: _gathered(record, record.lost),
        met=_met(record) if placed else None,
    )


def _met(record: Record) -> Met:
    met = _Backlogs(record)
    few = record.lost.sum() < const.LEAST_LOSSES
    short = bool(met.met[record.lost].min() < const.AT_FULL * met.longest - 3 * PACKET_BYTES)
    if few:
        met.rest = record.lost
    rest, full = int(met.rest.sum()), int(met.overflow.sum())
    sent = len(record.table) - full
    low, high = (float(value) for value in proportion(rest, sent))
    rank, episodes = _before(record, met.rest) if rest else (0.5, 1)
    overflowed = met.overflow if full else record.lost
    buffer = float(np.median(met.met[overflowed])) + float(np.median(record.table.wire_bytes))
    waits = np.quantile(met.met[met.rest], [0.1, 0.5, 0.9]) if rest else np.full(3, np.nan)
    return Met(
        overflowed=full,
        overflows=met.episodes(met.overflow),
        rest=rest,
        rests=met.episodes(met.rest),
        rest_share=rest / sent,
        share_low=low,
        share_high=high,
        chance=met.by_chance(),
        rtt_rank=rank,
        rtt_episodes=episodes,
        buffer_bytes=buffer,
        buffer_bdp=buffer / met.bdp,
        # Too short a queue to be managed, or one that holds what the link's own has left when tokens run out.
        is_managed_length=met.longest > const.MANAGED_PACKETS * PACKET_BYTES
        and (few or not record.bottleneck.bucket_bytes),
        avoids_short=short,
        waits_us=tuple((np.append(waits, met.longest) / record.bottleneck.rate).tolist()),
        is_gathered=lambda: _gathered(record, met.rest),
    )


class _Backlogs:
    """What lost packets met in the queue that this flow put there."""

    def __init__(self, record: Record) -> None:
        bottleneck = record.bottleneck
        steps = constant(bottleneck.rate)
        self.at_us, self.lost = record.sent_s * 1e6, record.lost
        # What a shaper's tokens let through at once does not wait; what the link drops meanwhile is another queue's.
        deficit = backlog_met(record.fluid, steps, self.at_us)
        self.met = np.maximum(deficit - bottleneck.bucket_bytes, 0.0)
        judged = deficit >= bottleneck.bucket_bytes
        self.base_us, self.bdp = bottleneck.base_us, bottleneck.rate * bottleneck.base_us
        # What was sent last may yet have been lost, and would not have stood in the queue.
        settled = ~self.lost & (record.table.sent_ns <= decided_ns(record.table))
        self.longest = float(self.met[settled if settled.any() else ~self.lost].max())
        packet = float(np.median(record.table.wire_bytes))
        # A queue of the sender's host takes (and drops) a super-packet whole: its last segment must have room, too.
        met = np.where(judged, self.met + _behind(record.table), 0.0)
        overflow = overflows(self.lost, met, met > self.longest / 2, self.longest, self.at_us)
        short = self.longest - float(np.median(met[overflow])) if overflow.any() else np.inf
        # A full queue drops at its length, which is the longest that anything passed with: it lets nothing pass then,
        # where an early drop (RED) lets much.
        full = short < max((1 - const.AT_FULL) * self.longest, 3 * packet)
        passed = np.sum(settled & (self.met > self.longest - short + ABOVE_FULL * packet))
        full &= bool(passed <= const.PASSED * (1 + overflow.sum()))
        self.overflow = overflow if full else np.zeros(len(overflow), bool)
        self.rest = self.lost & ~self.overflow & judged

    def episodes(self, which: NDArray[np.bool_]) -> int:
        """Return how many of these losses are apart by an RTT: what chance may do is counted by them."""
        found, end = 0, -np.inf
        for at in self.at_us[which].tolist():
            if at > end:
                found, end = found + 1, at + self.base_us
        return found

    def by_chance(self) -> float:
        """Return how likely it is, by chance, that what did not overflow left the short backlogs alone so much."""
        met, n = self.met[self.rest], self.episodes(self.rest)
        if not n:
            return 1.0
        found = 1.0
        for quantile in (0.1, 0.25, 0.5):
            share = float((self.met < np.quantile(met, quantile)).mean())
            found = min(found, float(special.bdtr(np.floor(quantile * n), n, share)) if share > quantile else 1.0)
        return found


def _behind(table: Transmissions) -> NDArray[np.int64]:
    """Return how much of what was captured as one packet follows each segment of it, bytes."""
    total = np.cumsum(table.wire_bytes)
    last = np.append(np.flatnonzero(np.diff(table.sent_ns)), len(table) - 1)
    return total[last[np.searchsorted(last, np.arange(len(table)))]] - total


def _gathered(record: Record, lost: NDArray[np.bool_]) -> bool:
    """Return whether losses came at some times rather than over the whole flow, as chance would spread them."""
    per_rtt = max(int(len(lost) * record.least_rtt_us / 1e6 / max(record.duration_s, 1e-6)), 1)
    place = np.unique(np.flatnonzero(lost) // per_rtt)  # round trips (of packets sent) that lost something
    rounds = -(-len(lost) // per_rtt)
    if len(place) < min(const.LEAST_LOSSES, rounds / 2):
        return int(lost.sum()) >= const.LEAST_LOSSES * len(place)
    at, before = (place + 0.5) / rounds, np.arange(len(place)) / len(place)
    distance = max(float(np.max(before + 1 / len(place) - at)), float(np.max(at - before)))
    # Kolmogorov's test: that both sides are as far off is less likely still. scipy.stats takes long to import.
    return bool(2 * special.smirnov(len(place), distance) < const.UNLIKELY)


def _before(record: Record, lost: NDArray[np.bool_]) -> tuple[float, int]:
    """Return the mean rank of the RTTs before losses among all, and how many losses are apart by an RTT."""
    rtt = record.rtt_us
    known = np.flatnonzero(np.isfinite(rtt))
    before = known[np.maximum(np.searchsorted(known, np.flatnonzero(lost)) - 1, 0)]
    episodes = 1 + int(np.sum(np.diff(record.sent_s[lost]) > record.least_rtt_us / 1e6))
    return mean_rank(rtt[known], rtt[before]), episodes


def bursts(record: Record) -> Bursts | None:
    """Return the bursts whose ends were lost; None of a capture that does not show them, or of too few losses."""
    if record.lost.sum() < const.FEWEST_IN_BURSTS or record.flow.taken_at not in ("sender", "unknown"):
        return None
    burst, ahead, met = _bursts(record)
    lost = np.flatnonzero(record.lost)
    lost = lost[np.unique(burst[lost], return_index=True)[1]]  # the first of each burst
    quantum = max(2 * float(np.median(record.table.wire_bytes)), const.PACED_S * record.goodput_bps / 8)
    typical, rank = float(np.median(ahead[lost])), mean_rank(ahead.astype(float), ahead[lost].astype(float))
    filled = float(np.median(ahead[lost] / np.maximum(met[lost], ahead[lost] + 1)))
    many, at = len(lost), record.sent_s[record.lost]
    if not record.bottleneck.is_measured:  # a rate that is no more than a guess: what overflows time and again only
        apart = np.diff(record.sent_s[lost], prepend=-np.inf) > const.OVERFLOW_RTTS * record.median_rtt_us / 1e6
        many = int(apart.sum())
    count, span = int(record.lost.sum()), (float(at.min()), float(at.max()))
    return Bursts(typical, quantum, filled, many, rank, count, count / len(record.table), span)


def _bursts(record: Record) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return of every transmission the number of its burst, and what of that left ahead it and what it met, bytes."""
    table, rate = record.table, record.bottleneck.rate
    sent_us = record.sent_s * 1e6
    begins = np.diff(sent_us, prepend=-np.inf) > const.IN_A_BURST * table.wire_bytes / rate
    burst = np.cumsum(begins) - 1
    total = np.cumsum(table.wire_bytes) - table.wire_bytes
    return burst, total - total[np.flatnonzero(begins)][burst], backlog_met(record.fluid, constant(rate), sent_us)


def sent_again(record: Record) -> SentAgain | None:
    """Return the segments that were sent again."""
    spurious = record.flow.sent_again["spurious"]
    sent, many = int(record.flow.row["segments_sent"]), len(spurious)
    if not sent:
        return None
    beyond = record.flow.taken_at in ("receiver", "middle") and not record.lost.any()
    return SentAgain(many / sent, many, sent, int(spurious.sum()), beyond)
