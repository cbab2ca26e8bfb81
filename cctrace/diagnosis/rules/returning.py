"""The ways of ACKs: bunched by a queue on the way back, sent in batches by a clock, or too few."""

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.flows.state import SYN
from cctrace.tcp.wire import HEADER_BYTES
from cctrace.units import format_share, format_time

BATCH = 0.15  # of the base RTT, for which the bottleneck would take for what ACKs tell of at once
DELAYED_ACK = 2.0  # segments per ACK at most [RFC5681] 4.2
REGULAR = 0.35  # standard deviation over mean of the time between batches that a clock makes
SKIPPED = 0.05  # of the time between batches, by which whole multiples of it may be missed
FEWEST_ODD = 3  # batches that must differ, for their times and sizes to tell
JITTERED = 0.05  # of the RTT without queue: delays that vary by so much within one put packets together
CLOSE = 0.1  # share of the ACKs
BUNCH = 3  # ACKs at least, for a bunch
TIGHT = 0.25  # of the time over which they were sent, within which a bunch comes
TICKS = 4  # of the receiver's clock, over which a bunch was sent at least
BUNCHED = 0.2  # share of the ACKs


def returning(record):
    """Return the verdicts on how ACKs came back."""
    return [*(_compression(record) or _batches(record))]


def _compression(record):
    """ACKs that left the receiver one after another and came together: their time stamps tell."""
    time, stamp_us = _stamped(record)
    if len(time) < 50:
        return []
    arrived_us = np.diff(time) / 1e3
    sent_us = np.diff(stamp_us)
    tick_us = float(np.min(sent_us[sent_us > 0], initial=np.inf))
    flowing = arrived_us < record.least_rtt_us
    if not flowing.any():
        return []
    begins = np.concatenate([[True], arrived_us > TIGHT * np.mean(arrived_us[flowing])])
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(time)) - 1
    many, came, took = last - first + 1, (time[last] - time[first]) / 1e3, stamp_us[last] - stamp_us[first]
    bunch = (many >= BUNCH) & (took >= TICKS * tick_us) & (came < TIGHT * took)
    share = float(many[bunch].sum() / len(time))
    if share < BUNCHED:
        return []
    held, size = float(np.median(took[bunch])), float(np.median(many[bunch]))
    return [
        Verdict(
            "ack_compression",
            float(np.clip(0.6 + share / 2, 0.6, 0.95)),
            *(record.seconds(time[[first[bunch][0], last[bunch][-1]]]).tolist()),
            {
                "bunched_share": share,
                "acks_per_bunch": size,
                "sent_over_us": held,
                "came_within_us": float(np.median(came[bunch])),
            },
            f"ACKs are compressed on the way back: {format_share(share)} of them came in bunches of typically "
            f"{size:.0f} within {format_time(float(np.median(came[bunch])) * 1000)}, which the receiver had sent over "
            f"{format_time(held * 1000)} (its time stamps): a queue on the return path, or its jitter, held them up.",
            "Look for what fills the way back (an upload, Wi-Fi); give ACKs priority there. Pacing hides the bursts.",
            "Time stamps of the ACKs of a bunch that are the same: then the receiver had waited.",
        )
    ]


def _stamped(record):
    """Return (time in ns, time stamp in us) of the ACKs that carry one, in order; empty if the clock does not fit."""
    capture, index = record.flow.capture, record.flow.index
    clock, order, first = capture.at_the_sender(np.array([index]))
    rows, packets = order[first[0] : first[1]], capture.packets
    told = (packets["direction"][rows] != int(capture.connections.sender[index])) & (packets["payload"][rows] == 0)
    told &= (packets["tsval"][rows] > 0) & ((packets["flags"][rows] & SYN) == 0)
    time, stamp = clock[rows][told], packets["tsval"][rows][told].astype(np.int64)
    if len(time) < 2 or time[-1] <= time[0] or stamp[-1] <= stamp[0]:
        return time[:0], stamp[:0]
    per_s = (stamp[-1] - stamp[0]) * 1e9 / (time[-1] - time[0])
    usual = min((100, 250, 300, 1000), key=lambda hz: abs(np.log(per_s / hz)))
    fits = abs(per_s / usual - 1) < 0.1
    return (time, stamp * (1e6 / usual)) if fits else (time[:0], stamp[:0])


def _batches(record):
    """How acknowledgements leave the receiver: in batches by the clock, or too few."""
    acks = record.acks
    got = np.diff(acks["delivered"].astype(np.int64), prepend=int(acks["delivered"][0]) if len(acks) else 0)
    calm = (acks["ca_state"] == 0) & (got > 0)
    if calm.sum() < 50:
        return
    time, size, base_s = record.ack_s[calm], got[calm].astype(float), record.bottleneck.base_us / 1e6
    begins = np.concatenate([[True], np.diff(time) > base_s / 20])
    total = np.bincount(np.cumsum(begins) - 1, size)  # of a batch: what comes within a twentieth of an RTT
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(time)) - 1
    silence, quiet, after = np.diff(time[first]), time[first[1:]] - time[last[:-1]], total[1:]
    moving = silence < 1.5 * base_s
    if moving.sum() >= 20:
        silence, quiet, after = silence[moving], quiet[moving], after[moving]
        pause, carried = float(np.average(silence, weights=after)), float(np.average(after, weights=after))
        serial_s = carried * (record.table.mss + HEADER_BYTES) / record.bottleneck.rate / 1e6
        if not record.bottleneck.seen:
            serial_s = pause
        lasted = float(np.average(time[last] - time[first], weights=total))
        apart = max(lasted, pause - np.average(quiet, weights=after)) < 0.5 * pause  # mostly nothing comes
        long = carried >= 4 and min(pause, serial_s) > BATCH * base_s
        if apart and long and _varies(silence, after) < REGULAR and _by_clock(silence, after):
            yield _aggregation(record, pause, carried)
            return
    per_ack, packets = float(size.mean()), _segments_per_packet(record)
    mean, spread = record.uncongested
    # Jitter puts packets together, which a receiver answers at once: ACKs closer than packets leave the bottleneck.
    close = np.mean(np.diff(time) * 1e6 < (record.table.mss + HEADER_BYTES) / record.bottleneck.rate) > CLOSE
    jittered = spread > JITTERED * mean and (close or calm.sum() / begins.sum() >= 2)
    if per_ack > 1.5 * max(DELAYED_ACK, packets) and not jittered:
        yield _thinning(record, per_ack, size, packets)


def _by_clock(silence, size):
    """Return whether batches come at fixed times, with what there is, rather than when there is a fixed amount.

    What differs tells: a small batch at its time, or one that was left out (none had come: twice the time, or thrice)
    speak for a clock; a batch of the usual size that came late speaks for an amount. Where nothing differs, the one
    that varies less is the fixed one.
    """
    time, much = silence / np.median(silence), size / np.median(size)
    same_time, same_size = np.abs(time - 1) < 0.2, np.abs(much - 1) < 0.2
    late, skipped = same_size & (time > 1.2), np.abs(time - np.round(time)) < SKIPPED
    clock, amount = (same_time & (much < 0.8)).sum() + (late & skipped).sum(), (late & ~skipped).sum()
    if max(clock, amount) < FEWEST_ODD:
        clock, amount = np.std(np.log(size[same_size])), np.std(np.log(time[same_time]))
    return bool(clock >= amount)


def _varies(values, weights):
    """Return the standard deviation over the mean, weighted."""
    mean = np.average(values, weights=weights)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=weights)) / mean)


def _segments_per_packet(record):
    """Return the segments that arrive together since the sender's device cut them: of a captured packet, on average."""
    sends = record.events.sends
    return float(np.mean(sends["segments"])) if len(sends) else 1.0


def _aggregation(record, pause, carried):
    share = pause * 1e6 / record.bottleneck.base_us
    return Verdict(
        "ack_aggregation",
        float(np.clip(0.7 + 0.5 * (share - BATCH), 0.6, 0.95)),
        0.0,
        record.duration_s,
        {"interval_us": pause * 1e6, "segments_per_batch": carried, "base_rtt_us": record.bottleneck.base_us},
        f"ACKs come in batches: every {format_time(pause * 1e9)} ({format_share(share)} of the base RTT) for some "
        f"{carried:.0f} segments at a time, as of a radio or a receiver that waits.",
        "A window with room for a batch more (BBR of 2019 and later adds it); less aggregation on the last hop.",
        "ACKs that come evenly, as the bottleneck delivers.",
    )


def _thinning(record, per_ack, size, packets):
    return Verdict(
        "ack_thinning",
        float(np.clip(0.5 + 0.1 * (per_ack - DELAYED_ACK), 0.5, 0.9)),
        0.0,
        record.duration_s,
        {"segments_per_ack": per_ack, "segments_per_ack_p95": float(np.quantile(size, 0.95)), "per_packet": packets},
        f"ACKs are few: one for {per_ack:.1f} segments on average, where receivers answer every second: something "
        "drops or merges them, or the receiver delays them.",
        "Pacing hides the bursts that this makes; look at ACK filters of the uplink, at GRO and at the receiver.",
        "ACKs for every second segment in a capture at the receiver.",
    )
