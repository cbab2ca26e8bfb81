"""Facts about losses, from packets: backlog at each lost packet, RTTs before, position in the burst."""

from typing import NamedTuple

import numpy as np

from cctrace.cc.linux import PACING_SHIFT
from cctrace.columns import Bools, Floats, Ints
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.groups import Bursts, LossBacklogs, Losses, Retransmissions
from cctrace.diagnosis.record import Record
from cctrace.path.arrays import last_of_each
from cctrace.path.bottleneck import deviation
from cctrace.path.constants import ABOVE_FULL_PACKETS, CHANCE_OF_ALL, CHANCE_PROBABILITY, COMMON_GAIN, MAX_EARLY_SHARE
from cctrace.path.losses import Backlogs, decided_ns, proportion
from cctrace.path.own_queue import base_rtt_us, idle_us, mean_rank, ranks
from cctrace.path.queue import Steps, constant
from cctrace.path.sent import SentPackets, backlog_at
from cctrace.path.transmissions import Transmissions
from cctrace.special import special
from cctrace.tcp.wire import PACKET_BYTES


def losses(record: Record, is_shared: bool = False, in_turn: bool = False) -> Losses | None:
    """Return the losses and, if the queue is known, the backlogs that they met; None without losses.

    `is_shared`: whether other flows of the capture fill the queue, too. `in_turn`: whether a fair queue serves the
    flow's own one in turn with theirs, at a rate that changes as they come and go.
    """
    lost = int(record.path.lost.sum())
    if not lost:
        return None
    queue = _queue(record, is_shared, in_turn)
    backlogs = None if queue is None else _loss_backlogs(record, queue)
    if queue is not None and len(queue.steps.rate) > 1 and backlogs is not None and not backlogs.overflow_losses:
        # Where the time of a step is wrong, part of the queue seems to be a longer path, or to be missing.
        backlogs = None if record.path.traffic.route is not None or _fell_sooner(record, queue.steps) else backlogs
    rank, episodes = before_losses(record, record.path.lost)
    known, at = record.path.rtt_us[np.isfinite(record.path.rtt_us)], record.path.sent_s[record.path.lost]
    if backlogs is not None and backlogs.waits_us[3] > known.max():
        backlogs = None  # no packet that passed waited for so long: that was not the queue
    return Losses(
        lost=lost,
        sent=len(record.table),
        loss_share=lost / len(record.table),
        span=(float(at.min()), float(at.max())),
        rtt_rank=rank,
        episodes=episodes,
        room_us=float(np.quantile(known, 0.995)) - record.path.least_rtt_us,
        least_rtt_us=record.path.least_rtt_us,
        is_gathered=lambda: _gathered(record, record.path.lost),
        backlogs=backlogs,
        was_empty=was_empty(record),
    )


def _fell_sooner(record: Record, steps: Steps) -> bool:
    """Return whether the delivered rate fell before a step that explains the delays: few of a drop's packets have one.

    Until then, the queue of the old rate is shorter than what the lost packets met.
    """
    falls_s = steps.start_us[1:][np.diff(steps.rate) < 0] / 1e6
    window_s = float(np.diff(record.path.delivered[0][:2]).sum())
    at_s = np.array([change.at_s for change in record.path.rate_changes if change.fell])
    nearest = falls_s[np.abs(falls_s - at_s[:, None]).argmin(axis=1)] if len(falls_s) and len(at_s) else at_s
    return bool(np.any(nearest > at_s + window_s))


class Server(NamedTuple):
    """The packets that pass a queue, its rate, the RTT without it, and the tokens that let some pass at once."""

    sent: SentPackets
    steps: Steps
    base_us: float
    bucket_bytes: float = 0.0


def own_queue(record: Record) -> Server:
    """Return the flow's own queue at a constant rate; with what was in it as a capture began in mid-connection."""
    bottleneck, sent, steps = record.path.require_bottleneck, record.path.sent, _shown_by_drops(record)
    if steps is not None:
        return Server(sent, steps, base_rtt_us(sent, steps))
    if not record.flow.facts["complete"]:
        sent = sent.behind(bottleneck.waited_us * bottleneck.rate)
    return Server(sent, constant(bottleneck.rate), bottleneck.base_us, bottleneck.bucket_bytes)


def _shown_by_drops(record: Record) -> Steps | None:
    """Return the rate at which a short queue had no room for what was lost, where jitter hides it from the delays.

    Where these prefer another rate by COMMON_GAIN or more, they show it.
    """
    dropper = record.dropper
    if dropper is None or not dropper.is_queue or not dropper.rate.value or record.path.companions:
        return None
    steps, other = constant(dropper.rate.value), constant(record.path.require_bottleneck.rate)
    cost, least = (deviation(record.path.sent, each) for each in (steps, other))
    return steps if cost - least < COMMON_GAIN * least else None


def was_empty(record: Record) -> bool:
    """Return whether the queue was empty at some time, so that its length is known: else some of it never showed."""
    bottleneck = record.path.require_bottleneck
    idle = idle_us(record.path, record.path.sent, constant(bottleneck.rate))
    return idle > const.EQUAL_WITHIN * bottleneck.base_us


def _queue(record: Record, is_shared: bool, in_turn: bool) -> Server | None:
    """Return the queue that a flow's packets met; None if its rate is unknown."""
    if in_turn:
        sent, steps = record.path.sent, record.path.steps
    elif not is_shared and not record.path.rate_changes:
        is_known = record.path.require_bottleneck.is_measured or (
            record.dropper is not None and record.dropper.is_queue
        )
        return own_queue(record) if is_known else None
    else:
        sent, steps = record.path.traffic[:2]
        if not is_shared and len(steps.rate) == 1:
            return None  # when the rate changed does not show
    return Server(sent, steps, base_rtt_us(sent, steps))


def _loss_backlogs(record: Record, queue: Server) -> LossBacklogs:
    at = backlogs_in(record, queue)
    full = at.overflow if _drops_at_its_longest(at) else np.zeros(len(at.lost), bool)
    few = record.path.lost.sum() < const.MIN_OBSERVATIONS  # too few to tell overflows from other losses
    # Losses while a shaper's tokens let packets pass belong to another queue.
    other = record.path.lost if few else record.path.lost & ~full & (at.deficit_bytes >= at.bucket_bytes)
    overflow_losses, other_losses = int(full.sum()), int(other.sum())
    sent = len(record.table) - overflow_losses
    low, high = proportion(other_losses, sent)
    rank, episodes = before_losses(record, other) if other_losses else (0.5, 1)
    part = np.searchsorted(queue.steps.start_us, record.path.sent_us[record.path.lost], side="right") - 1
    rate = float(np.median(queue.steps.rate[part]))  # the usual one when packets were lost, bytes/us
    buffer = float(np.median(at.backlog_bytes[full if overflow_losses else record.path.lost])) + at.packet_bytes
    waits = np.quantile(at.backlog_bytes[other], [0.1, 0.5, 0.9]) if other_losses else np.full(3, np.nan)
    return LossBacklogs(
        overflow_losses=overflow_losses,
        overflow_episodes=at.episodes(full),
        other_losses=other_losses,
        other_episodes=at.episodes(other),
        other_share=other_losses / sent,
        share_low=low,
        share_high=high,
        chance=at.chance_of(other),
        rtt_rank=rank,
        rtt_episodes=episodes,
        buffer_bytes=buffer,
        buffer_bdp=buffer / (rate * queue.base_us),
        # Too short a queue to be managed, or one that holds the flow's packets once tokens run out.
        is_managed_length=(at.longest_bytes > const.MANAGED_PACKETS * PACKET_BYTES or at.early_share >= MAX_EARLY_SHARE)
        and (few or not queue.bucket_bytes),
        early_share=at.early_share,
        avoids_short=bool(
            at.backlog_bytes[record.path.lost].min() < const.PREDOMINANT_SHARE * at.longest_bytes - 3 * PACKET_BYTES
        ),
        waits_us=tuple((np.append(waits, at.longest_bytes) / rate).tolist()),
        is_gathered=lambda: _gathered(record, other),
    )


def backlogs_in(record: Record, queue: Server) -> Backlogs:
    """Return the backlogs that a flow's packets met in a queue."""
    table, size = record.table, float(np.median(record.table.wire_bytes))
    # The last packets may yet have been lost, and then were not in the queue.
    settled = ~record.path.lost & (table.sent_ns <= decided_ns(table))
    passed, arrived_bytes = settled if settled.any() else ~record.path.lost, record.path.arrived_bytes
    at = (
        record.path.sent_us,
        record.path.lost,
        passed,
        arrived_bytes,
        size,
        queue.base_us,
        queue.bucket_bytes,
        _behind(table),
    )
    return Backlogs(queue.sent, queue.steps, *at)


def _drops_at_its_longest(at: Backlogs) -> bool:
    """Return whether the queue was full as it dropped packets, unlike RED, which drops early."""
    if not at.overflow.any() or at.early_share >= MAX_EARLY_SHARE:
        return False
    short = at.longest_bytes - float(np.median((at.backlog_bytes + at.behind_bytes)[at.overflow]))
    if short >= max((1 - const.PREDOMINANT_SHARE) * at.longest_bytes, 3 * at.packet_bytes):
        return False
    # Random losses, too, may be of packets that met a long queue: then as many others passed one as long.
    passed = np.sum(at.passed & (at.backlog_bytes > at.longest_bytes - short + ABOVE_FULL_PACKETS * at.packet_bytes))
    alone = (
        np.sum(at.lost & ~at.overflow) < const.MIN_OBSERVATIONS
    )  # else the first of some "overflows" are random losses
    if alone and passed > const.PASSED_PER_DROP * (1 + at.overflow.sum()):
        return False
    many = at.episodes(at.overflow)  # where most packets meet the longest queue, so do most random losses
    return many < const.MIN_OBSERVATIONS or at.chance_of(at.overflow) < CHANCE_OF_ALL


def _behind(table: Transmissions) -> Ints:
    """Return the bytes that follow each segment within its captured packet."""
    total = np.cumsum(table.wire_bytes)
    last = np.append(np.flatnonzero(np.diff(table.sent_ns)), len(table) - 1)
    return total[last[np.searchsorted(last, np.arange(len(table)))]] - total


def _gathered(record: Record, lost: Bools) -> bool:
    """Return whether losses cluster in time more than random ones would."""
    per_rtt = max(int(len(lost) * record.path.least_rtt_us / 1e6 / max(record.duration_s, 1e-6)), 1)
    place = np.unique(np.flatnonzero(lost) // per_rtt)  # round trips (of packets sent) with losses
    rounds = -(-len(lost) // per_rtt)
    if len(place) < min(const.MIN_OBSERVATIONS, rounds / 2):
        return int(lost.sum()) >= const.MIN_OBSERVATIONS * len(place)
    at, before = (place + 0.5) / rounds, np.arange(len(place)) / len(place)
    distance = max(float(np.max(before + 1 / len(place) - at)), float(np.max(at - before)))
    # Kolmogorov's test, as twice Smirnov's; scipy.stats takes long to import.
    return bool(2 * special.smirnov(len(place), distance) < CHANCE_PROBABILITY)


def before_losses(record: Record, lost: Bools) -> tuple[float, int]:
    """Return the mean rank of the RTTs before losses, and the number of losses an RTT apart.

    These count alike, however many packets were lost at once: a link that fails for an instant says as much as one
    packet that a full queue dropped.
    """
    known, before = rtts_before(record, lost)
    event = np.append(0, np.cumsum(np.diff(record.path.sent_s[lost]) > record.path.least_rtt_us / 1e6))
    rank = np.bincount(event, ranks(known, before)) / np.bincount(event)
    return float(rank.mean()), len(rank)


def rtts_before(record: Record, lost: Bools) -> tuple[Floats, Floats]:
    """Return the RTTs of a flow, and of them the last one before each loss, us.

    A delayed ACK counts with its last segment: where a loss delays the ACK of the one before, its RTT is long for that.
    """
    rtt = record.path.rtt_us
    known = np.flatnonzero(np.isfinite(rtt))
    known = known[last_of_each(record.table.ack_row[known])]
    return rtt[known], rtt[known[np.maximum(np.searchsorted(known, np.flatnonzero(lost)) - 1, 0)]]


def bursts(record: Record) -> Bursts | None:
    """Return the bursts with lost ends; None if the capture does not show bursts, or losses are too few."""
    if record.path.lost.sum() < const.MIN_FOR_PATTERN or record.flow.taken_at not in ("sender", "unknown"):
        return None
    burst, ahead = _bursts(record)
    lost = np.flatnonzero(record.path.lost)
    lost = lost[np.unique(burst[lost], return_index=True)[1]]  # the first loss of each burst
    del burst  # of a million packets it has 8 MB
    steps = constant(record.path.require_bottleneck.rate)
    backlog_bytes = backlog_at(record.path.sent, steps, record.path.sent_us[lost])
    quantum = max(2 * float(np.median(record.table.wire_bytes)), 2.0**-PACING_SHIFT * record.goodput_bps / 8)
    typical, rank = float(np.median(ahead[lost])), mean_rank(ahead, ahead[lost])
    filled = float(np.median(ahead[lost] / np.maximum(backlog_bytes, ahead[lost] + 1)))
    many, at = len(lost), record.path.sent_s[record.path.lost]
    if not record.path.require_bottleneck.is_measured:  # the rate is only a guess: require repeated overflow
        apart_s = np.diff(record.path.sent_s[lost], prepend=-np.inf)
        many = int((apart_s > const.SEPARATE_RTTS * record.path.median_rtt_us / 1e6).sum())
    count, span = int(record.path.lost.sum()), (float(at.min()), float(at.max()))
    return Bursts(typical, quantum, filled, many, rank, count, count / len(record.table), span)


def _bursts(record: Record) -> tuple[Ints, Floats]:
    """Return each transmission's burst number, and the bytes of the burst sent before it."""
    table, rate = record.table, record.path.require_bottleneck.rate
    begins = np.diff(record.path.sent_us, prepend=-np.inf) > const.BURST_GAP_SHARE * table.wire_bytes / rate
    burst = np.cumsum(begins) - 1
    ahead: Floats = np.cumsum(table.wire_bytes) - table.wire_bytes
    ahead -= ahead[np.flatnonzero(begins)][burst]
    return burst, ahead


def retransmissions(record: Record) -> Retransmissions | None:
    """Return the retransmitted segments."""
    spurious = record.flow.retransmission_log["spurious"]
    sent, many = (int(record.flow.row[name]) for name in ("segments_sent", "retransmitted_segments"))
    if not sent:
        return None
    beyond = record.flow.taken_at in ("receiver", "middle") and not record.path.lost.any()
    return Retransmissions(many / sent, many, sent, min(int(spurious.sum()), many), beyond)
