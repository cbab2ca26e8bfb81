"""Facts about losses, from packets: backlog at each lost packet, RTTs before, position in the burst."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cctrace.cc.linux import PACING_SHIFT
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.groups import Bursts, Losses, Met, Retransmissions
from cctrace.diagnosis.record import Record
from cctrace.path.arrays import last_of_each
from cctrace.path.constants import ABOVE_FULL, CHANCE, CHANCE_OF_ALL, EARLY
from cctrace.path.losses import arrived_before, by_chance, decided_ns, early_share, overflows, proportion
from cctrace.path.own_queue import base_rtt_us, mean_rank, ranks
from cctrace.path.queue import Steps, constant
from cctrace.path.sent import Sent, backlog_met
from cctrace.path.transmissions import Transmissions
from cctrace.special import special
from cctrace.tcp.wire import PACKET_BYTES


def losses(record: Record, is_shared: bool = False, in_turn: bool = False) -> Losses | None:
    """Return the losses and, if the queue is known, the backlogs that they met; None without losses.

    `is_shared`: whether other flows of the capture fill the queue, too. `in_turn`: whether a fair queue serves the
    flow's own one in turn with theirs, at a rate that changes as they come and go.
    """
    lost = int(record.lost.sum())
    if not lost:
        return None
    queue = _queue(record, is_shared, in_turn)
    met = None if queue is None else _met(record, queue)
    if queue is not None and len(queue.steps.rate) > 1 and met is not None and not met.overflowed:
        # Where the time of a step is wrong, part of the queue seems to be a longer path.
        met = met if record.path.through.route is None else None
    rank, episodes = before_losses(record, record.lost)
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
        met=met,
    )


class Server(NamedTuple):
    """The packets that pass a queue, its rate, the RTT without it, and the tokens that let some pass at once."""

    sent: Sent
    steps: Steps
    base_us: float
    bucket_bytes: float = 0.0


def own_queue(record: Record) -> Server:
    """Return the flow's own queue at a constant rate."""
    bottleneck = record.bottleneck
    return Server(record.path.sent, constant(bottleneck.rate), bottleneck.base_us, bottleneck.bucket_bytes)


def _queue(record: Record, is_shared: bool, in_turn: bool) -> Server | None:
    """Return the queue that a flow's packets met; None if its rate is unknown."""
    if in_turn:
        sent, steps = record.path.sent, record.path.steps
    elif not is_shared and not record.changes:
        return own_queue(record) if record.bottleneck.is_measured else None
    else:
        sent, steps = record.path.through[:2]
        if not is_shared and len(steps.rate) == 1:
            return None  # when the rate changed does not show
    return Server(sent, steps, base_rtt_us(sent, steps))


def _met(record: Record, queue: Server) -> Met:
    met = BacklogsMet(record, queue)
    few = record.lost.sum() < const.FEWEST
    short = bool(met.met[record.lost].min() < const.MOSTLY * met.longest - 3 * PACKET_BYTES)
    if few:  # too few to tell overflows from other losses
        met.rest = record.lost
    rest, full = int(met.rest.sum()), int(met.overflow.sum())
    sent = len(record.table) - full
    low, high = (float(value) for value in proportion(rest, sent))
    rank, episodes = before_losses(record, met.rest) if rest else (0.5, 1)
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
        chance=by_chance(met.ahead, met.ahead[met.rest], met.episodes(met.rest)),
        rtt_rank=rank,
        rtt_episodes=episodes,
        buffer_bytes=buffer,
        buffer_bdp=buffer / met.bdp,
        # Too short a queue to be managed, or one that holds the flow's packets once tokens run out.
        is_managed_length=(met.longest > const.MANAGED_PACKETS * PACKET_BYTES or met.early >= EARLY)
        and (few or not queue.bucket_bytes),
        early_share=met.early,
        avoids_short=short,
        waits_us=tuple((np.append(waits, met.longest) / met.rate).tolist()),
        is_gathered=lambda: _gathered(record, met.rest),
    )


class BacklogsMet:
    """Backlogs that packets met in a queue, and which of the lost ones it had no room for.

    With an element per packet: `at_us`, when it was sent; `lost`; `met`, the backlog, and `ahead`, what of it had
    arrived before (bytes); `overflow`, lost as the queue was full; `rest`, lost otherwise. `rate`: the usual one when
    packets were lost, bytes/us. `longest`: backlog of a packet that was not lost, bytes. `early`: see `early_share`.
    """

    def __init__(self, record: Record, queue: Server) -> None:
        self.at_us, self.lost = record.sent_us, record.lost
        # Packets covered by a shaper's tokens do not wait; losses meanwhile belong to another queue.
        deficit = backlog_met(queue.sent, queue.steps, self.at_us)
        self.met = np.maximum(deficit - queue.bucket_bytes, 0.0)
        self.ahead = arrived_before(self.met, self.at_us, record.path.arrived_bytes)
        judged = deficit >= queue.bucket_bytes
        part = np.searchsorted(queue.steps.start_us, self.at_us[self.lost], side="right") - 1
        self.base_us, self.rate = queue.base_us, float(np.median(queue.steps.rate[part]))
        self.bdp = self.rate * self.base_us
        # The last packets may yet have been lost, and then were not in the queue.
        settled = ~self.lost & (record.table.sent_ns <= decided_ns(record.table))
        self.longest = float(self.met[settled if settled.any() else ~self.lost].max())
        packet = float(np.median(record.table.wire_bytes))
        # A queue at the sender's host takes (or drops) super-packets as a unit: the last segment must have room, too.
        met = np.where(judged, self.met + _behind(record.table), 0.0)
        overflow = overflows(self.lost, met, met > self.longest / 2, self.longest, self.at_us, packet)
        self.early = early_share(overflow, self.lost, self.met, self.at_us, self.base_us, packet)
        short = self.longest - float(np.median(met[overflow])) if overflow.any() else np.inf
        # Random losses, too, may be of packets that met a long queue: then as many others passed one as long.
        passed = int(np.sum(settled & (self.met > self.longest - short + ABOVE_FULL * packet)))
        full = self._drops_at_its_longest(overflow, short, passed, packet)
        self.overflow = overflow if full else np.zeros(len(overflow), bool)
        self.rest = self.lost & ~self.overflow & judged

    def _drops_at_its_longest(self, overflow: NDArray[np.bool_], short: float, passed: int, packet: float) -> bool:
        """Return whether the queue dropped these packets as it was full, unlike RED, which drops early.

        They met a backlog `short` bytes below the longest, more than which `passed` others met. `packet`: bytes.
        """
        if not (short < max((1 - const.MOSTLY) * self.longest, 3 * packet) and self.early < EARLY):
            return False
        alone = np.sum(self.lost & ~overflow) < const.FEWEST  # else the first of some "overflows" are random losses
        if alone and passed > const.PASSED * (1 + overflow.sum()):
            return False
        many = self.episodes(overflow)  # where most packets meet the longest queue, so do most random losses
        return bool(many < const.FEWEST or by_chance(self.ahead, self.ahead[overflow], many) < CHANCE_OF_ALL)

    def episodes(self, which: NDArray[np.bool_]) -> int:
        """Return the number of these losses that are an RTT apart, the unit for chance."""
        found, end = 0, -np.inf
        for at in self.at_us[which].tolist():
            if at > end:
                found, end = found + 1, at + self.base_us
        return found


def _behind(table: Transmissions) -> NDArray[np.int64]:
    """Return the bytes that follow each segment within its captured packet."""
    total = np.cumsum(table.wire_bytes)
    last = np.append(np.flatnonzero(np.diff(table.sent_ns)), len(table) - 1)
    return total[last[np.searchsorted(last, np.arange(len(table)))]] - total


def _gathered(record: Record, lost: NDArray[np.bool_]) -> bool:
    """Return whether losses cluster in time more than random ones would."""
    per_rtt = max(int(len(lost) * record.least_rtt_us / 1e6 / max(record.duration_s, 1e-6)), 1)
    place = np.unique(np.flatnonzero(lost) // per_rtt)  # round trips (of packets sent) with losses
    rounds = -(-len(lost) // per_rtt)
    if len(place) < min(const.FEWEST, rounds / 2):
        return int(lost.sum()) >= const.FEWEST * len(place)
    at, before = (place + 0.5) / rounds, np.arange(len(place)) / len(place)
    distance = max(float(np.max(before + 1 / len(place) - at)), float(np.max(at - before)))
    # Kolmogorov's test, as twice Smirnov's; scipy.stats takes long to import.
    return bool(2 * special.smirnov(len(place), distance) < CHANCE)


def before_losses(record: Record, lost: NDArray[np.bool_]) -> tuple[float, int]:
    """Return the mean rank of the RTTs before losses, and the number of losses an RTT apart.

    These count alike, however many packets were lost at once: a link that fails for an instant says as much as one
    packet that a full queue dropped. A delayed ACK counts with its last segment: where a loss delays the ACK of the one
    before, its RTT is long for that.
    """
    rtt = record.rtt_us
    known = np.flatnonzero(np.isfinite(rtt))
    known = known[last_of_each(record.table.ack_row[known])]
    before = known[np.maximum(np.searchsorted(known, np.flatnonzero(lost)) - 1, 0)]
    event = np.append(0, np.cumsum(np.diff(record.sent_s[lost]) > record.least_rtt_us / 1e6))
    rank = np.bincount(event, ranks(rtt[known], rtt[before])) / np.bincount(event)
    return float(rank.mean()), len(rank)


def bursts(record: Record) -> Bursts | None:
    """Return the bursts with lost ends; None if the capture does not show bursts, or losses are too few."""
    if record.lost.sum() < const.FEW or record.flow.taken_at not in ("sender", "unknown"):
        return None
    burst, ahead, met = _bursts(record)
    lost = np.flatnonzero(record.lost)
    lost = lost[np.unique(burst[lost], return_index=True)[1]]  # the first loss of each burst
    quantum = max(2 * float(np.median(record.table.wire_bytes)), 2.0**-PACING_SHIFT * record.goodput_bps / 8)
    typical, rank = float(np.median(ahead[lost])), mean_rank(ahead.astype(float), ahead[lost].astype(float))
    filled = float(np.median(ahead[lost] / np.maximum(met[lost], ahead[lost] + 1)))
    many, at = len(lost), record.sent_s[record.lost]
    if not record.bottleneck.is_measured:  # the rate is only a guess: require repeated overflow
        apart = np.diff(record.sent_s[lost], prepend=-np.inf) > const.SEPARATE_RTTS * record.median_rtt_us / 1e6
        many = int(apart.sum())
    count, span = int(record.lost.sum()), (float(at.min()), float(at.max()))
    return Bursts(typical, quantum, filled, many, rank, count, count / len(record.table), span)


def _bursts(record: Record) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return each transmission's burst number, and the bytes of the burst sent before it and the backlog it met."""
    table, rate = record.table, record.bottleneck.rate
    begins = np.diff(record.sent_us, prepend=-np.inf) > const.IN_A_BURST * table.wire_bytes / rate
    burst = np.cumsum(begins) - 1
    total = np.cumsum(table.wire_bytes) - table.wire_bytes
    return (
        burst,
        total - total[np.flatnonzero(begins)][burst],
        backlog_met(record.path.sent, constant(rate), record.sent_us),
    )


def retransmissions(record: Record) -> Retransmissions | None:
    """Return the retransmitted segments."""
    spurious = record.flow.retransmission_log["spurious"]
    sent, many = int(record.flow.row["segments_sent"]), len(spurious)
    if not sent:
        return None
    elsewhere = record.flow.taken_at in ("receiver", "middle")
    if elsewhere:  # the log holds what was overtaken on the way, too
        many = int(record.flow.row["retransmitted_segments"])
    beyond = elsewhere and not record.lost.any()
    return Retransmissions(many / sent, many, sent, min(int(spurious.sum()), many), beyond)
