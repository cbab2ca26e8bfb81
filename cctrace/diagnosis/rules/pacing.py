"""Bursts that overflow what a paced flow of the same rate would not: poor pacing."""

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.rules.quality import too_short
from cctrace.path.bottleneck import constant
from cctrace.path.losses import backlog_met
from cctrace.path.own_queue import mean_rank
from cctrace.units import format_share, format_size

TOGETHER = 0.5  # of a packet's time in service, within which the next must leave, for both to be of one burst
QUANTUM_S = 0.001  # of its rate, that a pacing sender lets out at a time [Linux] tcp_tso_autosize
LARGE = 2  # times that, from which on a burst is none of a pacing sender's
FILLS = 0.8  # of the queue that lost packets met, that their own burst had put there
LATE = 0.7  # mean rank of the place in the burst of what was lost
FEWEST = 10  # losses
OFTEN = 5  # bursts that lost something
EPISODE_RTTS = 4  # within which losses are of one overflow
EXPLAINED = {"competition", "fair_queueing", "policer"}


def verdicts(record, limits, found):
    """Return `poor_pacing`, if bursts lose their ends in a queue that they filled themselves."""
    names = {verdict.name for verdict in found if verdict.confidence >= 0.6}
    few = record.lost.sum() < FEWEST or record.bottleneck is None or too_short(record)
    if few or names & EXPLAINED or record.flow.taken_at not in ("sender", "unknown"):
        return []
    burst, before, met = _bursts(record)
    lost = np.flatnonzero(record.lost)
    lost = lost[np.unique(burst[lost], return_index=True)[1]]  # the first of each burst
    quantum = max(2 * float(np.median(record.table.wire_bytes)), QUANTUM_S * record.goodput_bps / 8)
    typical, rank = float(np.median(before[lost])), mean_rank(before, before[lost])
    filled = float(np.median(before[lost] / np.maximum(met[lost], before[lost] + 1)))
    many = len(lost)
    if not record.bottleneck.seen:  # a rate that is no more than a guess: what overflows time and again only
        apart = np.diff(record.sent_s[lost], prepend=-np.inf) > EPISODE_RTTS * record.median_rtt_us / 1e6
        many = int(apart.sum())
    if typical < LARGE * quantum or rank < LATE or filled < FILLS or many < OFTEN:
        return []
    return [_verdict(record, {"before": typical, "quantum": quantum, "rank": rank, "filled": filled, "many": many})]


def _bursts(record):
    """Return of every transmission the number of its burst, and what of that left before it and what it met, bytes."""
    table, rate = record.table, record.bottleneck.rate
    sent_us = record.sent_s * 1e6
    begins = np.diff(sent_us, prepend=-np.inf) > TOGETHER * table.wire_bytes / rate
    burst = np.cumsum(begins) - 1
    total = np.cumsum(table.wire_bytes) - table.wire_bytes
    return burst, total - total[np.flatnonzero(begins)][burst], backlog_met(record.fluid, constant(rate), sent_us)


def _verdict(record, told):
    lost = int(record.lost.sum())
    share = lost / len(record.table)
    return Verdict(
        "poor_pacing",
        float(np.clip(0.5 + (told["rank"] - 0.5), 0.6, 0.95)),
        float(record.sent_s[record.lost].min()),
        float(record.sent_s[record.lost].max()),
        {
            "burst_bytes": told["before"],
            "paced_bytes": told["quantum"],
            "own_share_of_queue": told["filled"],
            "bursts_with_losses": told["many"],
            "rank_in_burst": told["rank"],
            "lost": lost,
        },
        f"Bursts overflow the queue: what was lost ({format_share(share)}) left behind {format_size(told['before'])} "
        f"of its own burst, typically, sent faster than twice the bottleneck's rate, which made up "
        f"{format_share(told['filled'])} of the queue it met; a sender that paces lets out "
        f"{format_size(told['quantum'])} at a time.",
        "Pace (the fq qdisc, or BBR's own timer), with smaller bursts; a window-based sender cannot where ACKs come in "
        "batches.",
        "Losses at the beginnings of bursts, or of packets that left alone.",
    )
