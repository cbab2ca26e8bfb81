"""Time stamps of both ends [RFC7323] as a check of the capture: a queue before the capture point, a clock that was set.

A packet is stamped when its sender's TCP makes it, and timed when it passes the capture point. The difference is
constant, up to the stamp's resolution, unless packets were held in between. Only a step of the capture's own clock
changes it for both ends at once, by the same amount.
"""

from typing import NamedTuple

import numpy as np

from cctrace.columns import Floats, Ints
from cctrace.flows.capture import stamp_tick_us
from cctrace.flows.flow import Flow
from cctrace.io.captures.packets import OPT_COPY, OPT_TIMESTAMPS
from cctrace.path import constants as const
from cctrace.tcp.flags import ACK, RST, SYN
from cctrace.tcp.rtt import RTO_MAX_US
from cctrace.tcp.sequence import unwrapped


class Stamps(NamedTuple):
    """Packets of one end: capture times, stamps and the stamps' resolution, us, and numbers in the connection."""

    time_us: np.ndarray
    stamp_us: np.ndarray
    tick_us: int
    place: Ints = np.zeros(0, np.int64)


def stamps_of(flow: Flow, of_sender: bool = True) -> Stamps:
    """Return the `Stamps` of a flow's sender or receiver, on the capture's clock."""
    capture, index = flow.capture, flow.index
    table, packets = capture.connections, capture.packets
    side = int(table.sender[index]) if of_sender else 1 - int(table.sender[index])
    rows = table.rows_of(index)
    start = packets["time_ns"][rows[:1]]
    stamped = packets["options"][rows] & (OPT_TIMESTAMPS | OPT_COPY) == OPT_TIMESTAMPS
    place = np.flatnonzero((packets["direction"][rows] == side) & stamped)
    rows = rows[place]
    tick = int(stamp_tick_us(table.sides[index, side][None])[0])
    if not len(rows):
        return Stamps(np.zeros(0), np.zeros(0), tick, place)
    ticks = packets["tsval"][rows].astype(np.int64)
    ticks -= ticks[0]
    ticks &= 0xFFFFFFFF
    ticks[ticks >= 1 << 31] -= 1 << 32
    return Stamps((packets["time_ns"][rows] - start) / 1e3, ticks * float(tick), tick, place)


def held_us(stamps: Stamps) -> float:
    """Return how long packets were typically held between stamp and capture, us; 0 if unknown.

    This is the median height above the line below all points: clocks may drift apart by `CLOCK_SKEW`. If a line of any
    slope fits perfectly, the stamps come from a clock of unknown rate and are useless here.

    >>> time = np.arange(0, 10e6, 1e4)
    >>> stamp = time // 1000 * 1000
    >>> bool(held_us(Stamps(time, stamp, 1000)) < 1000)  # stamped when captured
    True
    >>> queue = np.where(time > 1e5, 30e3, 0.0)  # delay added by a shaper's queue
    >>> 20e3 < held_us(Stamps(time, (time - queue) // 1000 * 1000, 1000)) < 32e3
    True
    """
    time, above = stamps.time_us, stamps.time_us - stamps.stamp_us
    if len(time) < const.MIN_STAMPS or time[-1] <= time[0]:
        return 0.0
    place = (time - time[0]) / (time[-1] - time[0])
    most = const.CLOCK_SKEW * (time[-1] - time[0])
    free = min(_above(place, above, drift) for drift in (above[-1] - above[0], *_lower_slopes(place, above)))
    if free < 2 * stamps.tick_us:
        return 0.0
    return min(_above(place, above, drift) for drift in np.linspace(-most, most, 41))


def _above(place: Floats, above: Floats, drift: float) -> float:
    """Return the median height above the line of this drift that lies below all points."""
    left = above - drift * place
    return float(np.median(left) - left.min())


def _lower_slopes(place: Floats, above: Floats) -> list[float]:
    """Return slopes of lines through the minima of the first and the last parts of the flow."""
    slopes = []
    for share in (0.02, 0.1, 0.3):
        first, last = above[place <= share], above[place >= 1 - share]
        if len(first) and len(last):
            slopes.append((last.min() - first.min()) / (1 - share))
    return slopes


class ClockSet(NamedTuple):
    """When the capture's clock was set, by how much, and what shows it: "" for the time stamps of both ends."""

    at_s: float
    by_us: float
    shown_by: str = ""


def clock_set(flow: Flow) -> ClockSet | None:
    """Return that the capture's clock was set, or None: forward by 20 ms, or back.

    A forward step leaves a silence after which the stamps of both ends lag by as much; a backward step leaves records
    older than their predecessors in the file, and stamps that lag by less. Without stamps, the order of data and ACKs
    shows steps that are long enough.
    """
    odd, spacing, at_s = _gaps(flow)
    chosen = np.argsort(-np.abs(spacing))[: const.MAX_GAPS]
    places = []
    for k in chosen:
        undone = odd[-spacing * np.sign(spacing[k]) > abs(spacing[k]) / 2]
        behind = undone[undone > odd[k]]
        places.append((int(undone[undone < odd[k]].max(initial=-1)), int(odd[k]), int(behind.min(initial=_LAST))))
    ends = [stamps_of(flow, of_sender) for of_sender in (True, False)] if places else []
    for k, place in zip(chosen, places, strict=True):
        by = [_later(stamps, *place) for stamps in ends]
        least = min(by, key=abs)
        agree = max(abs(one - least) for one in by) < max(5 * max(one.tick_us for one in ends), 0.1 * abs(least))
        if agree and abs(least) > abs(spacing[k]) / 2:
            return ClockSet(float(at_s[k]), least)
        if shown_by := _impossible(flow, int(odd[k]), float(spacing[k])):
            return ClockSet(float(at_s[k]), float(spacing[k]), shown_by)
    return None


_LAST = np.iinfo(np.int64).max  # beyond all packets


def _gaps(flow: Flow) -> tuple[Ints, Floats, Floats]:
    """Return the packets after which a step of the clock may be, time to the next one, us, and their times, s."""
    time = flow.capture.packets["time_ns"][flow.capture.connections.rows_of(flow.index)].astype(np.int64)
    spacing = np.diff(time) / 1e3
    odd = np.flatnonzero((spacing >= const.CLOCK_SET_US) | (spacing <= -const.CLOCK_BACK_US))
    return odd, spacing[odd], (time[odd] - time[:1]) / 1e9


def _impossible(flow: Flow, k: int, silence_us: float) -> str:
    """Return why the times of a connection's packets `k` and `k` + 1, so far apart, cannot both be right, or "".

    The sender's timer sends again what is in flight, at most `RTO_MAX_US` after the last packet: a longer silence
    cannot end with the ACK of such data. Nor can an ACK come before data that it acknowledges.
    """
    if 0 <= silence_us <= RTO_MAX_US:
        return ""
    packets, side = flow.capture.packets, flow.capture.connections.sender[flow.index]
    rows = flow.capture.connections.rows_of(flow.index)
    times, direction = packets["time_ns"][rows].astype(np.int64), packets["direction"][rows]
    acks = np.flatnonzero((direction != side) & (packets["flags"][rows] & (ACK | SYN | RST) == ACK))
    so_far = int(np.searchsorted(acks, k, side="right"))
    data = np.flatnonzero((direction == side) & (packets["payload"][rows] > 0))
    data = data[: np.searchsorted(data, acks[so_far])] if 0 < so_far < len(acks) else data[:0]
    is_before = data <= k
    if not is_before.any():
        return ""
    base = int(packets["seq"][rows[data[0]]])
    begins = unwrapped(packets["seq"][rows[data]], base)
    ends = begins + packets["payload"][rows[data]]
    acked = unwrapped(packets["ack"][rows[acks[: so_far + 1]]], base)
    una, ack, sent = acked[:-1].max(), acked[-1], ends[is_before].max()
    if not una < ack <= sent:
        return ""
    if silence_us > 0:
        again = (begins < sent) & ~is_before
        return "" if again.any() else "data were in flight, and no retransmission timer waits that long"
    sent_ns = times[data[is_before & (ends > una) & (ends <= ack)]]
    is_early = len(sent_ns) and sent_ns.min() > times[acks[so_far]] + 1000 * const.CLOCK_BACK_US
    return "an ACK came before the data that it acknowledges" if is_early else ""


def _later(stamps: Stamps, first: int, place: int, last: int) -> float:
    """Return how much more the stamps lag after a packet of the connection than before, us; 0 if that is no step.

    Medians are compared, since a stalled host catches up, of stamps between two steps the other way, after `first` and
    `last`. It is no step if too few stamps are known, or if the lag grows on both sides: then the stamps' clock ticks
    at another rate than assumed.
    """
    begin, split, end = np.searchsorted(stamps.place, (first, place, last), side="right").tolist()
    before, after = (
        stamps.time_us[part] - stamps.stamp_us[part]
        for part in (
            slice(max(split - const.STAMPS_FAR, begin), split),
            slice(split, min(split + const.STAMPS_FAR, end)),
        )
    )
    near = const.STAMPS_NEAR
    if min(len(before), len(after)) < near:
        return 0.0
    step = float(np.median(after) - np.median(before))
    in_all = np.median(after[-near:]) - np.median(before[:near])
    return step if abs(in_all) < 1.5 * abs(step) else 0.0
