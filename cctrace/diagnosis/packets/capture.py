"""Facts about the capture, from packets: artefacts (order, clock, queues before it, copies, gaps), and where it was
taken.
"""

import numpy as np

from cctrace.columns import Ints
from cctrace.diagnosis import constants as const
from cctrace.diagnosis.facts import Artefact, Elsewhere
from cctrace.diagnosis.findings import between
from cctrace.diagnosis.record import Record
from cctrace.flows.flow import Flow
from cctrace.flows.vantage import REACTION_NS
from cctrace.io.captures.packets import FAR_BACK_NS, OPT_COPY
from cctrace.path.stamps import clock_set, held_us, stamps_of
from cctrace.tcp.flags import ACK, RST, SYN
from cctrace.tcp.sequence import unwrapped
from cctrace.units import format_time


def artefact(record: Record) -> Artefact | None:
    """Return the capture's artefact that spoils most, if it has any."""
    return _order(record) or _clock(record) or _copies(record) or _held(record) or _missing(record)


def elsewhere(flow: Flow) -> Elsewhere | None:
    """Return the distance of the capture point from the sender, if longer than the sender's own reaction time."""
    if not is_elsewhere(flow):
        return None
    quality = flow.quality()
    return Elsewhere(float(quality["sender_side_us"]), quality["taken_at_confidence"] == "measured")


def is_elsewhere(flow: Flow) -> bool:
    """Return whether the capture point is further from the sender than the sender's own reaction time."""
    return bool(flow.capture.connections.sender_side_ns[flow.index] > REACTION_NS)


def _order(record: Record) -> Artefact | None:
    """Return that the file's records are not in the order of their times, as after appending one file to another.

    Not so if a clock was set: sorted by time, what was captured after that mixes with what was captured before.
    """
    packets = record.flow.capture.packets
    rows = record.flow.capture.connections.rows_of(record.flow.index)
    rows = rows[packets["options"][rows] & OPT_COPY == 0]
    time_ns = packets["time_ns"][rows]
    back_ns = np.maximum.accumulate(time_ns) - time_ns
    if not back_ns.any():
        return None
    gained = _reversals(record.flow, rows) - _reversals(record.flow, rows[np.argsort(time_ns, kind="stable")])
    share = max(gained, int(np.count_nonzero(back_ns >= FAR_BACK_NS))) / len(rows)
    if gained < 0 or share < const.NEGLIGIBLE_SHARE:
        return None
    return Artefact(
        "order", const.MEASURED_CONFIDENCE, {"misplaced_share": share, "back_us": float(back_ns.max() / 1000)}
    )


def _reversals(flow: Flow, rows: Ints) -> int:
    """Return how many packets, in this order, have a lower number than an earlier one of their end."""
    packets, found = flow.capture.packets, 0
    flags, payload = packets["flags"][rows], packets["payload"][rows]
    sent = packets["direction"][rows] == flow.capture.connections.sender[flow.index]
    is_data, is_ack = sent & (payload > 0), ~sent & (flags & (ACK | SYN | RST) == ACK)
    for name, wanted in (("seq", is_data), ("ack", is_ack)):
        numbers = packets[name][rows[wanted]]
        if len(numbers):
            place = unwrapped(numbers, int(numbers[0]))
            found += int(np.count_nonzero(place < np.maximum.accumulate(place)))
    return found


def _clock(record: Record) -> Artefact | None:
    """Return that the capture's clock was set while it ran."""
    found = clock_set(record.flow)
    if found is None:
        return None
    at_s, by_us, shown_by = found
    words: dict[str, float | str] = {"way": "forward" if by_us > 0 else "back", "set_by_us": abs(by_us)}
    words |= {"shown_by": shown_by} if shown_by else {}
    return Artefact("clock", const.MEASURED_CONFIDENCE, {"at_s": at_s, "clock_set_us": by_us}, words)


def _held(record: Record) -> Artefact | None:
    """Return that packets are held between the sender's TCP and the capture point: a shaper on the interface itself."""
    if is_elsewhere(record.flow) or record.flow.taken_at == "receiver":
        return None
    stamps, rtt_us = stamps_of(record.flow), record.flow.row["rtt_median_us"]
    longest_us = held_us(stamps)
    if not longest_us >= 2 * stamps.tick_us + const.HELD_US or longest_us < const.RTT_RISE * (rtt_us or 0):
        return None
    return Artefact(
        "held", const.MEASURED_CONFIDENCE, {"held_us": longest_us, "captured_rtt_us": rtt_us, "tick_us": stamps.tick_us}
    )


def _copies(record: Record) -> Artefact | None:
    """Return that the capture has duplicates that it takes for retransmissions."""
    segments = max(record.flow.row["segments_sent"], 1)
    copies, repeated = record.flow.capture.packets.counters.get("duplicates", 0), 0.0
    if record.flow.row["retransmitted_segments"] < const.HEAVY_SHARE * segments:
        return None
    if copies:
        repeated = record.flow.quality()["unexplained_retransmissions"] / segments
    by_id = _same_id(record.flow)
    if max(repeated, by_id) < const.HEAVY_SHARE:
        return None
    numbers = {"repeated_share": max(repeated, by_id), "copies": copies}
    return Artefact("copies", const.MEASURED_CONFIDENCE, numbers, {"by_id": by_id >= repeated})


def _same_id(flow: Flow) -> float:
    """Return the share of the data packets that equal an earlier one up to their IP ID, which a retransmission changes.

    Two interfaces with a queue between them, or two files that were merged, show a packet again long after the few
    among which a decoder looks for copies.
    """
    packets, rows = flow.capture.packets, flow.capture.connections.rows_of(flow.index)
    mine = (packets["direction"][rows] == flow.capture.connections.sender[flow.index]) & (packets["payload"][rows] > 0)
    rows = rows[mine & (packets["options"][rows] & OPT_COPY == 0)]
    columns = [packets[name][rows] for name in ("seq", "ip_id", "ack", "tsval", "payload")]
    order = np.lexsort(columns)
    again = np.all([np.diff(column[order].astype(np.int64)) == 0 for column in columns], axis=0)
    many, used = int(np.count_nonzero(again)), len(np.unique(columns[1]))
    if 2 * used < min(len(rows) - many, 1 << 16):  # none, as in IPv6, or a constant
        return 0.0
    return float(many / max(len(rows), 1))


def _missing(record: Record) -> Artefact | None:
    """Return that acknowledged data were not captured."""
    uncaptured = record.flow.quality()["uncaptured_segments"]
    missing = uncaptured / max(uncaptured + record.flow.row["segments_sent"], 1)
    if missing <= const.NEGLIGIBLE_SHARE:
        return None
    sure = between(const.DOUBTFUL_CONFIDENCE, const.MAX_CONFIDENCE, missing)
    return Artefact("", sure, {"uncaptured_share": missing, "uncaptured_segments": uncaptured})


def too_short(record: Record) -> str:
    """Return why the capture does not characterise the path, or ""."""
    if record.flow.taken_at == "unknown":
        return "Where it was captured cannot be determined"
    if record.duration_s * 1e6 < const.SEPARATE_RTTS * record.path.median_rtt_us:
        lasted, rtt = format_time(record.duration_s * 1e9), format_time(record.path.median_rtt_us * 1000)
        return f"A capture of {lasted} cannot tell what happens in RTTs of {rtt}"
    return ""
