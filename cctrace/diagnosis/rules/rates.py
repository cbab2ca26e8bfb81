"""The path's rate: full, changed, too long believed in; the queue that filling it made; a window nobody explains."""

import itertools

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.limits import shares
from cctrace.diagnosis.rules.paced import verdicts_of_sends
from cctrace.diagnosis.rules.quality import too_short
from cctrace.path.own_queue import rolling_max
from cctrace.tcp.wire import HEADER_BYTES
from cctrace.units import format_rate, format_share, format_size, format_time

FULL = 0.9  # of the bottleneck's rate
QUEUED = 1.25  # times the uncongested RTT: so much more than a BDP in flight must wait in a queue
BLOATED = 2.0  # base RTTs of queue of its own, typically: more than any window of two BDPs makes
BEFORE = 1.5  # times the least RTT, that the first packets took
STEADY = 0.03  # by which the largest in flight of rounds may differ that something fixed holds
STEADY_RATE = 0.12  # median deviation, relative, of the rate of a link that has one
STEPPED = 0.7  # share of the time with one rate or another, for which a link's rate changes in steps
BW_ROUNDS = 10  # of BBR's bandwidth filter [Linux61] bbr_bw_rtts
ENDS = {"receiver_limited", "application_limited", "slow_start_only", "send_buffer_limited", "pacing_limited"}


def verdicts(record, limits, found):
    """Return the verdicts of this family that hold."""
    names = {verdict.name for verdict in found if verdict.confidence >= 0.6}
    if record.bottleneck is None or too_short(record) or names & ENDS:
        return []
    out = []
    if not names & {"competition", "fair_queueing", "policer"}:
        if paced := verdicts_of_sends(record, limits):
            return paced
        out += _changes(record, limits)
    if "competition" not in names:
        out += [*_bloat(record), *_before(record)]
    if "fair_queueing" not in names:  # more than its part, while others had nothing to send, is no bucket's
        out += _shaped(record)
    out += _full(record, {*names, *(verdict.name for verdict in out)})
    if not out and not names and not record.lost.any():
        out += _window(record)
    return out


# ---------------------------------------------------------------------------------------------------------------------
def _changes(record, limits):
    changes, varied = record.changes, record.path.rate_range_bps
    if changes and not (varied and _between(record, changes) < STEPPED):
        drops = [change for change in changes if change.after_bps < change.before_bps]
        if drops and (record.is_model_based or (record.controller is None and _paced(limits))):
            yield from _stale(record, max(drops, key=lambda change: change.before_bps / change.after_bps))
        first = changes[0]
        verb = "fell" if first.after_bps < first.before_bps else "rose"
        more = f"; {len(changes) - 1} more changes follow" if len(changes) > 2 else ""
        more = "; one more change follows" if len(changes) == 2 else more
        yield Verdict(
            "rate_change",
            0.9,
            first.at_s,
            changes[-1].at_s,
            {"at_s": first.at_s, "before_bps": first.before_bps, "after_bps": first.after_bps, "changes": len(changes)},
            f"The path's rate {verb} from {format_rate(first.before_bps)} to {format_rate(first.after_bps)} at "
            f"{first.at_s:.1f} s{more}.",
            "Ask what changed there (a radio, a route, others' traffic): no controller can keep a "
            "rate that is not there.",
            "The old rate delivered later while a queue stood.",
        )
        return
    if varied and not _lasting(record.bottleneck):  # tokens that come back are no other rate
        low, high = varied
        yield Verdict(
            "rate_change",
            0.7,
            0.0,
            record.duration_s,
            {"rate_p10_bps": low, "rate_p90_bps": high, "rtt_us": record.median_rtt_us},
            f"The path's rate varied between {format_rate(low)} and {format_rate(high)} while a queue stood before it "
            f"(RTTs of typically {format_time(record.median_rtt_us * 1000)}, at least "
            f"{format_time(record.least_rtt_us * 1000)}): a radio, or what others left of it.",
            "A queue that is kept short (fq_codel, cake) would keep the delay low while the rate varies.",
            "A constant rate that explains the delays.",
        )


def _lasting(bottleneck):
    """Return whether there is a token bucket that outlasts an RTT."""
    return bottleneck.bucket_bytes > bottleneck.rate * bottleneck.base_us


def _between(record, changes):
    """Return which share of the time lies in stretches of one rate, of those that end or begin at a change."""
    edges = [0.0, *(change.at_s for change in changes), changes[-1].until_s]
    inside = 0.0
    for begin, end in itertools.pairwise(edges):
        rate = record.delivered[1][(record.delivered[0] > begin) & (record.delivered[0] < end) & record.standing]
        if len(rate) and np.median(np.abs(rate / np.median(rate) - 1)) < STEADY_RATE:
            inside += end - begin
    return inside / max(record.duration_s, 1e-9)


def _paced(limits):
    share = shares(limits)
    return share.get("pacing", 0.0) > 2 * share.get("cwnd", 0.0)


def stale_seconds(record, change):
    """Return for how long after a drop the maximum of ten rounds' rate samples exceeded the new rate by a tenth."""
    acks = record.acks
    sampled = (acks["rs_interval_us"] > 0) & (acks["rs_delivered"] > 0)
    wire = record.table.mss + HEADER_BYTES
    rate = acks["rs_delivered"][sampled] * (wire * 8e6) / acks["rs_interval_us"][sampled]
    rounds = np.searchsorted(record.rounds[0], record.ack_s[sampled], side="right")
    most = np.zeros(int(rounds.max()) + 1 if len(rounds) else 1)
    np.maximum.at(most, rounds, rate)
    estimate = rolling_max(most, BW_ROUNDS)[rounds]
    time = record.ack_s[sampled]
    after = (time > change.at_s) & (estimate > 1.1 * change.after_bps)
    inside = after & (time < change.until_s)
    return float(time[inside].max() - change.at_s) if inside.any() else 0.0


def _stale(record, change):
    stale = stale_seconds(record, change)
    inside = (record.sent_s > change.at_s) & (record.sent_s < change.at_s + max(stale, 1.0) + 1.0)
    rtt = record.rtt_us[inside]
    longest = float(np.nanmax(rtt)) if np.isfinite(rtt).any() else np.nan
    if stale < 3 * record.median_rtt_us / 1e6:
        return
    lost = int(record.lost[inside].sum())
    yield Verdict(
        "stale_bandwidth",
        0.9 if record.is_model_based else 0.7,
        change.at_s,
        change.at_s + stale,
        {
            "at_s": change.at_s,
            "before_bps": change.before_bps,
            "after_bps": change.after_bps,
            "stale_s": stale,
            "longest_rtt_us": longest,
            "lost": lost,
        },
        f"At {change.at_s:.1f} s the path's rate fell from {format_rate(change.before_bps)} to "
        f"{format_rate(change.after_bps)}, and the bandwidth estimate (a maximum over ten round trips) was stale for "
        f"{stale:.1f} s: RTTs reached {format_time(longest * 1000)}, {lost} packets were lost.",
        "A controller that forgets faster (oBBR, BBRv3 after losses), or a shorter queue at the bottleneck.",
        "Sending that fell to the new rate within a round trip.",
    )


def _bloat(record):
    bottleneck = record.bottleneck
    queue = float(np.median(bottleneck.queue_us))
    if bottleneck.shown <= 0.1 or queue < BLOATED * bottleneck.base_us:
        return
    yield Verdict(
        "self_induced_queue",
        float(np.clip(0.6 + 0.4 * min(bottleneck.shown, 1.0), 0.6, 0.98)),
        0.0,
        record.duration_s,
        {
            "queue_us": queue,
            "base_rtt_us": bottleneck.base_us,
            "rate_bps": bottleneck.rate * 8e6,
            "queue_bytes": queue * bottleneck.rate,
        },
        f"It filled a deep buffer itself: {format_time(queue * 1000)} of queue of its own, typically, on a base RTT of "
        f"{format_time(bottleneck.base_us * 1000)} ({format_size(queue * bottleneck.rate)} at "
        f"{format_rate(bottleneck.rate * 8e6)}).",
        "An AQM at the bottleneck (fq_codel, cake)"
        + ("." if record.is_model_based else ", or a controller that keeps queues short (BBR)."),
        "RTTs that stay as long while little is in flight.",
    )


def _before(record):
    """Others' queue, which stood before the flow had sent anything to speak of."""
    bottleneck = record.bottleneck
    early = bottleneck.sent_us < bottleneck.sent_us[0] + 2 * bottleneck.base_us
    if early.sum() < 5 or not record.flow.facts["complete"]:
        return
    first, own = float(np.median(bottleneck.rest_us[early])), float(np.median(bottleneck.queue_us[early]))
    least, spread = record.uncongested  # of stretches: jitter is in it
    if first < BEFORE * least + 3 * spread or own > (first - least) / 2:
        return
    yield Verdict(
        "congested_before",
        0.7,
        0.0,
        record.duration_s,
        {"first_rtt_us": first, "least_rtt_us": least, "own_queue_us": own},
        f"Its path was congested before it began: its first packets took {format_time(first * 1000)} with hardly a "
        f"queue of their own, later ones as little as {format_time(least * 1000)}.",
        "Look for who else uses the path: this capture does not show them.",
        "First RTTs as short as any later.",
    )


def _shaped(record):
    """A token bucket that let the beginnings of bursts pass at once."""
    bottleneck = record.bottleneck
    if not bottleneck.bucket_bytes or record.changes:
        return
    rate, size = bottleneck.rate * 8e6, bottleneck.bucket_bytes
    yield Verdict(
        "shaper",
        0.8,
        0.0,
        record.duration_s,
        {"rate_bps": rate, "bucket_bytes": size, "bucket_rtts": size / (bottleneck.rate * bottleneck.base_us)},
        f"A shaper delays what exceeds {format_rate(rate)}: the first {format_size(size)} after a pause pass at once "
        "(a token bucket).",
        "Nothing to repair; a rate measured in the first moments is not the rate.",
        "Bursts after a pause that are delayed from the first packet on.",
    )


def _full(record, names):
    bottleneck = record.bottleneck
    mean, spread = record.uncongested
    evidence = {
        "rate_bps": bottleneck.rate * 8e6,
        "used_share": record.use,
        "base_rtt_us": bottleneck.base_us,
        "queue_us": float(np.median(bottleneck.queue_us)),
        "queued_share": float(record.standing.mean()) if len(record.standing) else 0.0,
        "lost": int(record.lost.sum()),
    }
    if bottleneck.seen and record.use >= FULL:
        sure = 0.6 + 0.35 * min(1.0, max(bottleneck.shown, 0.0) / 0.2)
        text = (
            f"It had what its path gave: {format_rate(record.goodput_bps)}, "
            f"{format_share(min(record.use, 1.0))} of the "
            f"bottleneck's {format_rate(bottleneck.rate * 8e6)} (on the wire) while it sent, with "
            f"{format_time(evidence['queue_us'] * 1000)} of queue, typically, on a base RTT of "
            f"{format_time(mean * 1000)}."
        )
    elif record.median_rtt_us > QUEUED * mean_base(record) + 3 * spread and not names & {"competition", "rate_change"}:
        sure = 0.6
        text = (
            f"Its path was full: RTTs of typically {format_time(record.median_rtt_us * 1000)}, at least "
            f"{format_time(record.least_rtt_us * 1000)}, so that more was in flight than the path holds, and the rate "
            f"({format_rate(record.goodput_bps)}) did not follow."
        )
    else:
        return
    yield Verdict(
        "path_full",
        sure,
        0.0,
        record.duration_s,
        evidence,
        text,
        "More rate takes a faster path, or less traffic beside it.",
        "Times in which more in flight delivered more.",
    )


def mean_base(record):
    """Return the least RTT that is no outlier: what the tenth of a per cent is below, us."""
    known = record.rtt_us[np.isfinite(record.rtt_us)]
    return float(np.quantile(known, 0.001)) if len(known) else np.nan


def _window(record):
    """A steady amount in flight that no loss, queue or receiver explains."""
    start, _, most = record.rounds
    later = most[start > min(2.0, 0.3 * record.duration_s)]
    if len(later) < 20:
        return
    typical = float(np.median(later))
    spread = float(np.median(np.abs(later - typical))) / max(typical, 1.0)
    if spread > STEADY:
        return
    size = typical * record.table.mss
    yield Verdict(
        "window_limited",
        0.7,
        0.0,
        record.duration_s,
        {"window_bytes": size, "rtt_us": record.median_rtt_us, "spread": spread},
        f"Something held its window at {format_size(size)}: so much {record.per_rtt}, "
        "round after round, without loss, queue or a full receive window.",
        "A larger send buffer, or a higher limit of the window or of the pacing rate; "
        + ("the kernel's counters name none of these." if record.flow.tcpinfo else "the kernel's counters would tell."),
        "A window that grows while nothing is lost.",
    )
