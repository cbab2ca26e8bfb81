"""Which losses they were: chance, a full queue's (a shallow one's), an active queue management's."""

import numpy as np
from scipy import special

from cctrace.diagnosis.findings import Verdict
from cctrace.path.bottleneck import constant
from cctrace.path.losses import backlog_met, decided_ns, overflows, proportion
from cctrace.path.own_queue import mean_rank
from cctrace.tcp.wire import PACKET_BYTES
from cctrace.units import format_number, format_share, format_size, format_time

FEWEST = 5  # losses, for anything to be said of their cause
SURE = 3.0  # standard errors
UNLIKELY = 1e-3
MOSTLY = 0.9  # share of the losses that a full queue explains, for the rest not to be asked about
MANAGED = 10  # packets of queue at the least, for an active queue management to be told from a short buffer
BY_OTHERS = 0.8  # mean rank of the RTTs before losses, where the flow's own queue says nothing: others' queue
AT_RTT = 0.9  # mean rank of the RTTs before losses that a full queue makes
AT_FULL = 0.8  # of the longest backlog
PASSED = 2  # packets per dropped one, at most, that a full queue let pass although it was longer
PROBE_GAIN = 1.25  # pacing gain of BBR while it probes [Linux61] bbr_pacing_gain


def verdicts(record, limits, found):
    """Return the verdicts on losses that hold; none where others of the capture fill the queue, or a policer drops."""
    lost = int(record.lost.sum())
    explained = any(verdict.name in ("competition", "fair_queueing", "policer") for verdict in found)
    if not lost or record.bottleneck is None or explained:
        return []
    placed = record.bottleneck.seen and not record.changes
    if lost < FEWEST:
        return _few(record, lost) if placed else []
    out = _placed(record, lost) if placed else _unplaced(record, lost)
    bursts = any(verdict.name == "poor_pacing" for verdict in found)  # what they lose is neither chance's nor managed
    return [verdict for verdict in out if not bursts or verdict.name not in ("random_loss", "aqm")]


class _Met:
    """What lost packets met in the queue that this flow put there."""

    def __init__(self, record):
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
        full = short < max((1 - AT_FULL) * self.longest, 3 * packet)
        passed = np.sum(settled & (self.met > self.longest - short + packet))
        full &= bool(passed <= PASSED * (1 + overflow.sum()))
        self.overflow = overflow if full else np.zeros(len(overflow), bool)
        self.rest = self.lost & ~self.overflow & judged

    def episodes(self, which):
        """Return how many of these losses are apart by an RTT: what chance may do is counted by them."""
        found, end = 0, -np.inf
        for at in self.at_us[which].tolist():
            if at > end:
                found, end = found + 1, at + self.base_us
        return found

    def by_chance(self):
        """Return how likely it is, by chance, that what did not overflow left the short backlogs alone so much."""
        met, n = self.met[self.rest], self.episodes(self.rest)
        if not n:
            return 1.0
        found = 1.0
        for quantile in (0.1, 0.25, 0.5):
            share = float((self.met < np.quantile(met, quantile)).mean())
            found = min(found, float(special.bdtr(np.floor(quantile * n), n, share)) if share > quantile else 1.0)
        return found


def _behind(table):
    """Return how much of what was captured as one packet follows each segment of it, bytes."""
    total = np.cumsum(table.wire_bytes)
    last = np.append(np.flatnonzero(np.diff(table.sent_ns)), len(table) - 1)
    return total[last[np.searchsorted(last, np.arange(len(table)))]] - total


def _few(record, lost):
    """Two losses may show an active queue management: chance seldom hits long queues alone, a full one no shorter."""
    met = _Met(record)
    short = met.met[record.lost].min() < AT_FULL * met.longest - 3 * PACKET_BYTES
    managed = short and met.longest > MANAGED * PACKET_BYTES and met.episodes(record.lost) > 1
    met.rest = record.lost
    return [_aqm(record, met, lost)] if managed and met.by_chance() < UNLIKELY else []


def _placed(record, lost):
    met = _Met(record)
    rest, full = int(met.rest.sum()), int(met.overflow.sum())
    out = []
    # A full queue drops many at a time; chance that cuts the window as often is as much of a cause.
    often = rest >= (1 - MOSTLY) * lost or met.episodes(met.rest) >= met.episodes(met.overflow)
    if rest >= FEWEST and often:
        rank, episodes = _before(record, met.rest)
        # Too short a queue to be managed, or one that holds what the link's own has left when tokens run out.
        plain = met.longest < MANAGED * PACKET_BYTES or bool(record.bottleneck.bucket_bytes)
        if met.by_chance() < UNLIKELY and plain:
            met.overflow, full = met.lost, lost
        elif met.by_chance() < UNLIKELY:
            out.append(_aqm(record, met, rest))
        elif _gathered(record, met.rest) or ((rank - 0.5) * np.sqrt(12 * episodes) > SURE and rank > BY_OTHERS):
            out.append(_full_queue(record, rest, rank))
        else:
            out.append(_random(record, met, rest))
    if full >= FEWEST:
        overflow = _overflow(record, met)
        out = [verdict for verdict in out if verdict.name != overflow.name] + [overflow]
    return out


def _unplaced(record, lost):
    """Losses of a flow whose queue did not show: chance, if nothing speaks against it."""
    rank, episodes = _before(record, record.lost)
    together = rank > AT_RTT and lost >= 2 * FEWEST * episodes  # chance does not lose so many at one time
    if together or _gathered(record, record.lost) or abs(rank - 0.5) * np.sqrt(12 * episodes) > SURE:
        return [_full_queue(record, lost, rank)] if rank > 0.5 else []
    share = lost / len(record.table)
    return [_chance(record, share, lost, 0.4 + 0.4 * min(episodes / 30, 1), {"rtt_rank": rank})]


def _gathered(record, lost):
    """Return whether losses came at some times rather than over the whole flow, as chance would spread them."""
    per_rtt = max(int(len(lost) * record.least_rtt_us / 1e6 / max(record.duration_s, 1e-6)), 1)
    place = np.unique(np.flatnonzero(lost) // per_rtt)  # round trips (of packets sent) that lost something
    rounds = -(-len(lost) // per_rtt)
    if len(place) < min(FEWEST, rounds / 2):
        return int(lost.sum()) >= FEWEST * len(place)
    from scipy import stats  # late: it takes a third of a second, and only losses need it

    return bool(stats.kstest((place + 0.5) / rounds, "uniform").pvalue < UNLIKELY)


def _before(record, lost):
    """Return the mean rank of the RTTs before losses among all, and how many losses are apart by an RTT."""
    rtt = record.rtt_us
    known = np.flatnonzero(np.isfinite(rtt))
    before = known[np.maximum(np.searchsorted(known, np.flatnonzero(lost)) - 1, 0)]
    episodes = 1 + int(np.sum(np.diff(record.sent_s[lost]) > record.least_rtt_us / 1e6))
    return mean_rank(rtt[known], rtt[before]), episodes


def _full_queue(record, lost, rank):
    known = record.rtt_us[np.isfinite(record.rtt_us)]
    room_us = float(np.quantile(known, 0.995)) - record.least_rtt_us
    if room_us < (PROBE_GAIN - 1) * record.least_rtt_us:
        return _shallow(
            record,
            0.75,
            {"buffer_us": room_us, "buffer_bdp": room_us / record.least_rtt_us, "lost": lost, "rtt_rank": rank},
            format_time(room_us * 1000),
        )
    return Verdict(
        "congestive_loss",
        0.6,
        float(record.sent_s[record.lost].min()),
        float(record.sent_s[record.lost].max()),
        {"lost": lost, "rtt_rank": rank},
        f"{lost} packets were lost when RTTs were long, or together: a full queue dropped them, which this flow's own "
        "data do not explain.",
        "Look for who else uses the path: this capture does not show them.",
        "Losses after short RTTs, at any time.",
    )


def _chance(record, share, random, confidence, evidence):
    held = (
        "; every one of them cuts the window of a controller that takes losses for congestion"
        if not record.is_model_based
        else ""
    )
    return Verdict(
        "random_loss",
        confidence,
        float(record.sent_s[record.lost].min()),
        float(record.sent_s[record.lost].max()),
        {"loss_share": share, "lost": random} | evidence,
        f"Losses by chance: {format_share(share)} of the packets, whether the queue was long or empty{held}.",
        "Look for a bad link (wireless, cable, duplex)"
        + ("." if record.is_model_based else "; BBR or another model-based controller loses less rate to it."),
        "Losses that come only when the queue is long.",
    )


def _random(record, met, random):
    n = len(record.table) - int(met.overflow.sum())
    low, high = (float(value) for value in proportion(random, n))
    evidence = {"share_low": low, "share_high": high, "congestive": int(met.overflow.sum()), "chance": met.by_chance()}
    often = met.episodes(met.rest) >= FEWEST  # what was lost together is one event
    return _chance(record, random / n, random, (0.97 if random >= 20 else 0.8) if often else 0.45, evidence)


def _overflow(record, met):
    dropped = int(met.overflow.sum())
    buffer = float(np.median(met.met[met.overflow])) + float(np.median(record.table.wire_bytes))
    ratio = buffer / met.bdp
    evidence = {"buffer_bytes": buffer, "buffer_bdp": ratio, "lost": dropped}
    least = PROBE_GAIN - 1
    if ratio < least:
        sure = float(np.clip(0.95 - 0.4 * max(0.0, ratio / least - 0.8) / 0.2, 0.55, 0.95))
        return _shallow(record, sure, evidence, format_size(buffer))
    return Verdict(
        "congestive_loss",
        0.9,
        *_span(record),
        evidence,
        f"A full queue of {format_size(buffer)} ({format_number(ratio, 2)} bandwidth-delay products) dropped {dropped} "
        "packets.",
        "That is how a loss-based controller finds the rate; an AQM with ECN would do it without losses.",
        "Losses while the queue was short.",
    )


def _shallow(record, sure, evidence, size):
    return Verdict(
        "shallow_buffer",
        sure,
        *_span(record),
        evidence,
        f"The buffer is shallow: {size}, {format_number(evidence['buffer_bdp'], 2)} bandwidth-delay products, less "
        f"than the {PROBE_GAIN - 1:g} by which BBR exceeds the rate when it probes; it dropped {evidence['lost']} "
        f"packets ({format_share(evidence['lost'] / len(record.table))}).",
        "A larger buffer at the bottleneck, pacing without bursts, or a controller that heeds losses (BBRv3, oBBR).",
        "Backlogs longer than that without a loss.",
    )


def _span(record):
    lost = record.sent_s[record.lost]
    return float(lost.min()), float(lost.max())


def _aqm(record, met, lost):
    wait_us = met.met[met.rest] / record.bottleneck.rate
    low, middle, high = (float(value) for value in np.quantile(wait_us, [0.1, 0.5, 0.9]))
    longest = met.longest / record.bottleneck.rate
    return Verdict(
        "aqm",
        float(np.clip(0.6 - np.log10(met.by_chance() + 1e-12) / 20, 0.6, 0.95)),
        *_span(record),
        {"lost": lost, "wait_us_p10": low, "wait_us_p50": middle, "wait_us_p90": high, "longest_wait_us": longest},
        f"An active queue management dropped {lost} packets: with {format_time(1e3 * low)} to "
        f"{format_time(1e3 * high)} of queue, not with an empty one, while others passed that met "
        f"{format_time(1e3 * longest)}.",
        "Nothing to repair; with ECN on both ends it would mark instead of drop.",
        "Losses at one length of the queue only (a full buffer), or with an empty one (chance).",
    )
