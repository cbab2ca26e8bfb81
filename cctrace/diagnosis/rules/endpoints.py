"""Causes at the ends: the receiver's window, the application, the send buffer, a transfer too short; and stalls."""

import numpy as np

from cctrace.diagnosis.findings import Verdict
from cctrace.diagnosis.limits import shares, startup_end_s, written
from cctrace.diagnosis.rules.paced import verdicts_of_socket
from cctrace.units import format_share, format_size, format_time

MOST = 0.5  # of the time
MUCH = 0.25
FEW = 0.1  # of the bandwidth samples
SHORT_ROUNDS = 14  # a start that doubles from ten segments is at 80 MB by then
OFTEN = 10  # writes at least
MOSTLY = 0.8  # share of them
EITHER = 0.6  # of an application, where it may be the send buffer
CLOSER = 4  # times that writes follow ACKs more evenly than each other
TOOK_S = 2e-5  # by which a host's answers differ in any case
CHANCE = 20  # times less than between ACKs, within which an answer to one is no chance
ABOUT = 0.05  # of what is in flight, within which writes find as much of it left


def verdicts(record, limits, found):
    """Return the verdicts of this family that hold."""
    share = shares(limits)
    out = [*_receiver(record), *_slow_start(record, limits), *_send_buffer(record), *_pauses(record)]
    out += _stalls(record, share.get("rto_stall", 0.0))
    if not any(verdict.name == "receiver_limited" for verdict in out):
        out += verdicts_of_socket(record)
    if not any(verdict.name in ("slow_start_only", "pacing_limited") for verdict in out):
        out += [*_application(record, share), *_samples(record, limits, share)]
    return out


def _receiver(record):
    busy_us, held_us = record.flow.account
    shut = record.window_shut_s
    own = float(np.diff(shut)[:, 0].sum()) if len(shut) else 0.0
    if not busy_us > 0:
        return
    share = max(held_us / busy_us, min(own * 1e6 / busy_us, 1.0), record.window_full_share)
    if share < MOST:
        return
    flying = record.acks["rs_prior_in_flight"]
    window = float(np.median(flying)) * record.table.mss if len(flying) else 0.0
    span = (float(shut[0, 0]), float(shut[-1, 1])) if len(shut) else (0.0, record.duration_s)
    yield Verdict(
        "receiver_limited",
        min(0.99, 0.5 + share / 2),
        *span,
        {"receiver_share": share, "window_bytes": window, "rtt_us": record.median_rtt_us},
        f"The receiver's window held it back for {format_share(share)} of the time it had data to send: about "
        f"{format_size(window)} {record.per_rtt}.",
        "A larger receive buffer would help (or a receiver that reads faster); another congestion control would not.",
        "Windows in the ACKs that leave a segment or more free.",
    )


def _application(record, share):
    idle = share.get("application", 0.0)
    waited = [*_send_buffer(record)]
    if waited:  # the kernel knows what waited for room in the buffer, and when there was nothing at all
        idle = min(idle, 1 - float(record.flow.tcpinfo["busy_time_us"].max()) / 1e6 / max(record.duration_s, 1e-9))
    if idle < MUCH:
        return
    level, told = _written_at(record)
    if told and idle >= MOST:  # ACKs in batches make pauses, too, for less of the time
        yield _by_writes(record, idle, level)
        return
    sure = min(0.99, 0.5 + idle / 2) if idle >= MOST else 0.2 + 0.5 * idle
    either = ""
    if level is not None:
        either = (
            f" Or its send buffer was full: data were always written when {level:.0f} segments were left in flight."
        )
        sure = min(sure, EITHER)
    yield Verdict(
        "application_limited",
        sure,
        0.0,
        record.duration_s,
        {"application_share": idle, "goodput_bps": record.goodput_bps},
        f"The application limited it: for {format_share(idle)} of the time it sent less than it could have.{either}",
        "Have the application write earlier or more at a time; the network could carry more.",
        "Data that waits in the socket (notsent_bytes of ss) while nothing leaves.",
    )


def _written_at(record):
    """Return (how many segments were in flight when data were written, None if not as many every time; whether the send
    buffer made it so).

    An application writes when its time has come, or when a reply has: then an ACK just before is chance, or nothing is
    in flight. A full send buffer lets it write when ACKs have freed a part of it: so long after an ACK, whenever that
    comes. Where ACKs themselves come like a clock the two are alike.
    """
    bursts = record.bursts
    wrote = np.searchsorted(bursts.time_s, written(record)[:, 1])
    if len(wrote) < OFTEN:
        return None, False
    place = np.maximum(bursts.place[wrote], 0)
    left = record.acks["packets_out"][place].astype(float)
    gap = np.diff(record.ack_s, prepend=-np.inf)[place]
    since = bursts.since_s[wrote]
    answers = since < gap / 4
    apart, after = (np.subtract(*np.quantile(x, [0.75, 0.25])) for x in (np.diff(bursts.time_s[wrote]), since))
    # No timer of an application falls upon the same microseconds after an ACK every time.
    prompt = max(3 * record.took_s, TOOK_S)
    by_ack = np.quantile(since, MOSTLY) <= prompt < np.median(gap) / CHANCE
    level, most = float(np.median(left)), float(np.quantile(record.acks["rs_prior_in_flight"], 0.9))
    same = np.abs(left - level) <= max(2.0, ABOUT * most)
    if not level > 0 or min(answers.mean(), same.mean()) < MOSTLY:
        return None, False
    return level, bool(by_ack or apart > CLOSER * max(after, TOOK_S))


def _by_writes(record, idle, level):
    size = level * record.table.mss
    most = float(np.quantile(record.acks["rs_prior_in_flight"], 0.9)) * record.table.mss
    return Verdict(
        "send_buffer_limited",
        0.7,
        0.0,
        record.duration_s,
        {"waited_share": idle, "in_flight_at_writes_bytes": size, "in_flight_bytes": most},
        f"Its send buffer held it back: for {format_share(idle)} of the time it waited until ACKs had left only "
        f"{format_size(size)} of some {format_size(most)} in flight, and sent more just after one, time and again.",
        "A larger send buffer would help (net.ipv4.tcp_wmem, SO_SNDBUF unset); the kernel's counters (`ss -tin`, given "
        "with --tcpinfo) would tell for sure.",
        "A kernel that counts no time in sndbuf_limited, or an application that waits for replies.",
    )


def _samples(record, limits, share):
    """Bandwidth samples of a model that tell of the application, not of the path: a pause of it lies in them."""
    sampled = record.acks["rs_interval_us"] > 0
    pauses = np.array([(limit.start_s, limit.end_s) for limit in limits if limit.name == "application"]).reshape(-1, 2)
    if not sampled.any() or not len(pauses):
        return
    end = record.ack_s[sampled]
    begin = end - record.acks["rs_interval_us"][sampled] / 1e6
    later = np.append(pauses[:, 0], np.inf)[np.searchsorted(pauses[:, 1], begin, side="right")]
    limited = float(((later < end) | (record.acks["rs_is_app_limited"][sampled] != 0)).mean())
    if not record.is_model_based or limited <= FEW or share.get("application", 0.0) >= MOST:
        return
    yield Verdict(
        "app_limited_samples",
        0.6,
        0.0,
        record.duration_s,
        {"limited_share": limited},
        f"{format_share(limited)} of its bandwidth samples were taken while the application limited it; the model "
        "takes them only if they are higher than what it has.",
        "Have the application write more at a time, so that the samples are of the path.",
        "Samples without a bubble in flight.",
    )


def _slow_start(record, limits):
    """A transfer that ended while its window still grew."""
    start, _got, _ = record.rounds
    if record.lost.any() or not 1 <= len(start) <= SHORT_ROUNDS:
        return
    share = shares(limits)
    stood = share.get("application", 0.0) > MOST or share.get("rto_stall", 0.0) >= MUCH
    if startup_end_s(record) < MOST * record.duration_s or stood:
        return
    rounds = len(start)
    yield Verdict(
        "slow_start_only",
        0.9 if record.flow.facts["complete"] else 0.6,
        0.0,
        record.duration_s,
        {"rounds": rounds, "bytes": float(record.flow.summary["bytes_sent"]), "rtt_us": record.median_rtt_us},
        f"It was over before it left slow start: {format_size(record.flow.summary['bytes_sent'])} in {rounds} round "
        f"trips of {format_time(record.median_rtt_us * 1000)}, no loss.",
        "Fewer round trips would help: a connection that is kept open, a larger initial window, a nearer server.",
        "Rounds that deliver no more than the round before.",
    )


def _send_buffer(record):
    polls = record.flow.tcpinfo
    if polls is None:
        return
    busy, held = polls["busy_time_us"], polls["sndbuf_limited_us"]
    if not (busy > 0).any() or not (held >= 0).any():
        return
    share = float(held.max() / busy.max())
    if share < MUCH:
        return
    yield Verdict(
        "send_buffer_limited",
        min(0.99, 0.5 + share / 2),
        0.0,
        record.duration_s,
        {"send_buffer_share": share},
        f"Its own send buffer was full for {format_share(share)} of the time it had data to send.",
        "A larger send buffer would help (net.ipv4.tcp_wmem, SO_SNDBUF unset).",
        "A kernel that counts no time in sndbuf_limited.",
    )


def _pauses(record):
    zero = record.zero_window_s
    if not len(zero):
        return
    shut = record.window_shut_s
    near = [pair for pair in shut if np.any((zero >= pair[0] - 1e-3) & (zero <= pair[1]))]
    held = float(sum(stop - begin for begin, stop in near))
    if held < 0.01 * record.duration_s:
        return
    yield Verdict(
        "receiver_pauses",
        0.9,
        float(zero[0]),
        float(zero[-1]),
        {"pauses": len(near), "shut_s": held},
        f"The receiver stopped reading {'once' if len(near) == 1 else f'{len(near)} times'}: its window was shut for "
        f"{format_time(held * 1e9)} in all.",
        "Look at what the receiving application does meanwhile.",
        "ACKs of a window that never falls to nothing.",
    )


def _stalls(record, share):
    """Silences that only the retransmission timer ended."""
    if share < MUCH:
        return
    times = record.timeouts_s
    yield Verdict(
        "stalls",
        min(0.95, 0.45 + share / 2),
        float(times.min()),
        float(times.max()),
        {"stalled_share": share, "timeouts": len(times), "lost": int(record.lost.sum())},
        f"It stood still for {format_share(share)} of the time: nothing was heard until the retransmission timer "
        f"fired, {len(times)} times.",
        "Look for a path that goes away, or that loses ACKs (a handover, a firewall, a full queue on the way back).",
        "ACKs or data, in a capture at the receiver, during these silences.",
    )
