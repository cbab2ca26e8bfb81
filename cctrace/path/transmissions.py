"""Every transmission of a segment: when it left, and when and how the sender learned its fate.

The event stream has one row per controller call; path analysis needs one row per packet. Super-packets are split into
segments. Times are the sender's: captures taken elsewhere are corrected as in the re-enactment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cctrace.arguments import short_repr
from cctrace.columns import Bools, Floats, Ints, Values, give_back, rows_of_spans
from cctrace.errors import ArgumentError, StreamError
from cctrace.flows.seqspace import unwrapped
from cctrace.io.captures.packets import OPT_COPY
from cctrace.lang.machine import Machine
from cctrace.path.constants import MIN_ACK_RTTS
from cctrace.path.match import AT_ONCE, DELIVERED, FILLS, LOST, NEEDLESS, WAITING, match
from cctrace.tcp.flags import ACK, PSH, SYN
from cctrace.tcp.sequence import unwrap
from cctrace.tcp.wire import HEADER_BYTES

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow
    from cctrace.io.captures.packets import Packets
    from cctrace.sim.result import Simulation

__all__ = ["DELIVERED", "LOST", "NEEDLESS", "WAITING", "Transmissions", "transmissions"]

_match = Machine(match)


@dataclass(frozen=True)
class Transmissions:
    """One row per transmission, in order of sending; n rows."""

    sent_ns: np.ndarray  # capture clock (int64)
    acked_ns: np.ndarray  # when an ACK or SACK reported the delivery; -1 if none did (int64)
    ack_row: np.ndarray  # packet number of that ACK (the same for everything that it reported); -1 none (int32)
    wire_bytes: np.ndarray  # payload plus 66 bytes of headers, as in `cctrace.Path` (float)
    seq: np.ndarray  # first byte, unwrapped; the first byte of the flow is 1 (int64)
    # WAITING at the end of the capture, DELIVERED, LOST, or NEEDLESS (a copy of data that had arrived) (int8)
    state: np.ndarray
    retransmitted: np.ndarray  # it is a retransmission (bool)
    # whether `acked_ns` follows the arrival directly: reported by an in-order ACK or a SACK, not by an ACK that filled
    # a hole (bool)
    exact: np.ndarray
    # whether the receiver reported it without delay, not in a compressed SACK (held back by up to a millisecond). A
    # delayed ACK reports the last of its segments without delay. (bool)
    prompt: np.ndarray
    push: np.ndarray  # last segment of a write of the application or the stack (bool)
    packet: np.ndarray  # its row in the capture's table of packets (int32)
    start_ns: int  # first packet of the flow; times in results are relative to it
    mss: int
    handshake_us: float  # RTT of the sender's SYN, or SYN/ACK; NaN if sent again, or not captured at the sender

    def __len__(self) -> int:
        return len(self.sent_ns)

    def first(self, rows: int) -> Transmissions:
        """Return the first `rows` transmissions."""
        columns: dict[str, Any] = {
            name: value[:rows] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, **columns)

    @property
    def rtt_us(self) -> Floats:
        """Time until an ACK reported the delivery, us; NaN if none did, or only later."""
        known = (self.state == DELIVERED) & self.exact
        return np.where(known, (self.acked_ns - self.sent_ns) / 1e3, np.nan)


def as_flow(source: Flow | Simulation, index: int = 0) -> Flow:
    """Return `source`, or the captured flow of a simulation with ``packets=True``; `ArgumentError` for others."""
    from cctrace.flows.flow import Flow
    from cctrace.sim.result import Simulation

    if isinstance(source, Flow):
        return source
    if isinstance(source, Simulation):
        return source.capture(index).flow(0)
    raise ArgumentError(
        f"{short_repr(source)}: single packets are needed: give a flow of a capture, or a simulation with "
        "packets=True; counters alone do not have them"
    )


def transmissions(source: Flow | Simulation) -> Transmissions:
    """Return the `Transmissions` of a flow; computed once, and cached with its capture.

    `source`: of a simulation (``packets=True``) the first flow. Raises `ArgumentError` if it is neither. Raises
    `StreamError` if the capture lacks the data or the acknowledgements.
    """
    flow = as_flow(source)
    kept, key = flow.capture._kept, (Transmissions, flow.index)
    if key not in kept:
        kept[key] = _of(flow)
        give_back(len(kept[key]))
    return kept[key]


def _of(flow: Flow) -> Transmissions:
    flow.require_both_directions()
    capture, index = flow.capture, flow.index
    table, packets = capture.connections, capture.packets
    time_ns, rows, mine = capture.seen_by_sender(index)
    once = packets["options"][rows] & OPT_COPY == 0
    time_ns, rows, mine = time_ns[once], rows[once], mine[once]
    sides = table.sides[index]
    sender, mss = int(table.sender[index]), int(table.mss[index])
    seq = unwrapped(packets["seq"][rows], mine, int(sides[sender]["origin"]))
    payload = packets["payload"][rows].astype(np.int64)
    data = mine & (payload > 0)
    if not data.any():
        raise StreamError(f"{packets.source}: connection {index}: no data")
    time_ns = np.maximum.accumulate(time_ns)
    acks = _acknowledged(packets, rows, mine, seq, int(sides[sender]["origin"]))
    segments = _segments(data, seq, payload, packets["flags"][rows], mss)
    # Elsewhere the sender's times are inferred, from the RTTs of data.
    at_sender = table.sender_side_ns[index] == 0
    handshake_us = _handshake_us(time_ns, mine, packets["flags"][rows]) if at_sender else math.nan
    del once, mine, data, seq, payload  # of a million packets each long column has 8 MB
    rows = rows.astype(np.int32)
    fates = _fates(time_ns, segments, acks)
    del acks
    return _table(time_ns, rows, segments, fates, mss, handshake_us)


def _handshake_us(time_ns: Ints, mine: Bools, flags: Values) -> float:
    """Return `Transmissions.handshake_us`."""
    asked = np.flatnonzero(mine & (flags & SYN > 0))
    answered = np.flatnonzero(~mine & (flags & ACK > 0))
    if len(asked) != 1 or not len(answered := answered[answered > asked]):
        return math.nan
    return float(time_ns[answered[0]] - time_ns[asked[0]]) / 1e3


def _acknowledged(packets: Packets, rows: Ints, mine: Bools, seq: Ints, base: int) -> tuple[Ints, ...]:
    """Return ack (-1 none), left, right, sack_row and sack_count, unwrapped relative to the data sent so far.

    Of a capture that begins during a recovery, ACKs ask for data before the first byte (0 here), and SACK what follows.
    """
    near = np.maximum.accumulate(np.where(mine, seq, 0))
    acks = ~mine & (packets["flags"][rows] & (ACK | SYN) == ACK)

    def closest(numbers: Values, near: Ints) -> Ints:
        return unwrap(numbers.astype(np.int64), base, near)

    ack = np.where(acks, np.maximum(closest(packets["ack"][rows], near), 0), -1)
    count = np.where(acks, packets["sack_count"][rows], 0).astype(np.int64)
    place = rows_of_spans(packets["sack_row"][rows], count)
    left, right = (closest(packets.sacks[side][place], np.repeat(near, count)) for side in ("left", "right"))
    return ack, left, right, np.cumsum(count) - count, count


class _Segments(NamedTuple):
    """What super-packets consist of: of each packet its first segment (-1 none) and their number; of each segment its
    packet, first byte and bytes, and whether it is the last one of a write.
    """

    first: Ints
    pieces: Ints
    packet: Ints
    start: Ints
    size: Ints
    push: Bools


def _segments(data: Bools, seq: Ints, payload: Ints, flags: Values, mss: int) -> _Segments:
    at = np.flatnonzero(data)
    many = np.maximum(1, -(-payload[at] // mss))
    first, pieces = np.full(len(data), -1, np.int64), np.zeros(len(data), np.int64)
    first[at], pieces[at] = np.cumsum(many) - many, many
    packet = np.repeat(at, many)
    nth = np.arange(len(packet)) - first[packet]
    push = ((flags[packet] & PSH) > 0) & (nth == pieces[packet] - 1)
    start, size = seq[packet] + nth * mss, np.minimum(payload[packet] - nth * mss, mss)
    return _Segments(first, pieces, packet, start, size, push)


class _Fates(NamedTuple):
    """What `match` finds: of each segment the transmission before it, state, time and packet of the report; of each
    packet how it reported.
    """

    before: Ints
    state: Ints
    reported: Ints
    ack_row: Ints
    promptness: Ints


def _fates(time_ns: Ints, segments: _Segments, acks: tuple[Ints, ...]) -> _Fates:
    """Match segments with ACKs, which are those of `_acknowledged`."""
    first, pieces, packet, start, size, _ = segments
    ack, left, right, sack_row, sack_count = acks
    starts, segment_of = np.unique(start, return_inverse=True)
    ends = np.zeros(len(starts), np.int64)
    np.maximum.at(ends, segment_of, start + size)
    # A segment within a longer one ends no later than its successor.
    ends = np.ascontiguousarray(np.minimum.accumulate(ends[::-1])[::-1])
    rows = tuple(np.ascontiguousarray(c, np.int64) for c in (time_ns, first, pieces, ack, sack_row, sack_count))
    left, right = (np.ascontiguousarray(c, np.int64) for c in (left, right))
    segment_of = np.ascontiguousarray(segment_of.reshape(-1), np.int64)
    found = _run(rows, (left, right), starts, ends, 0, segment_of)
    single = (np.bincount(segment_of)[segment_of] == 1) & (found.state == DELIVERED)
    if single.any():  # an ACK sooner after a retransmission than the minimum RTT acknowledges an earlier copy
        least_ns = int(MIN_ACK_RTTS * (found.reported - time_ns[packet])[single].min())
        del found  # before as many are made anew
        found = _run(rows, (left, right), starts, ends, least_ns, segment_of)
    return found


def _table(
    time_ns: Ints, rows: Values, segments: _Segments, fates: _Fates, mss: int, handshake_us: float
) -> Transmissions:
    state, ack_row = fates.state, fates.ack_row
    again = fates.before >= 0
    return Transmissions(
        sent_ns=time_ns[segments.packet],
        acked_ns=np.where(state == DELIVERED, fates.reported, -1),
        ack_row=ack_row.astype(np.int32),
        wire_bytes=(segments.size + HEADER_BYTES).astype(float),
        seq=segments.start,
        state=state.astype(np.int8),
        retransmitted=again,
        exact=_exact(state, ack_row, again, len(time_ns)),
        prompt=_prompt(state, ack_row, fates.promptness),
        push=segments.push,
        packet=rows[segments.packet],
        start_ns=int(time_ns[0]),
        mss=mss,
        handshake_us=handshake_us,
    )


def _run(
    rows: tuple[Ints, ...], sacks: tuple[Ints, Ints], starts: Ints, ends: Ints, least_ns: int, segment_of: Ints
) -> _Fates:
    n, promptness = len(segment_of), np.zeros(len(rows[0]), np.int64)
    latest, after = np.full(len(starts), -1, np.int64), np.arange(len(starts) + 1)
    before, ack_row, reported, state = (np.full(n, value, np.int64) for value in (-1, -1, 0, WAITING))
    _match(rows, sacks, starts, ends, least_ns, segment_of, latest, before, state, reported, ack_row, after, promptness)
    return _Fates(before, state, reported, ack_row, promptness)


def _exact(state: Ints, ack_row: Ints, again: Bools, packets: int) -> Bools:
    """Return which rows were reported on arrival: an ACK triggered by a retransmission reports other segments late."""
    filled = np.zeros(packets, bool)
    filled[ack_row[(state == DELIVERED) & again]] = True
    return (state == DELIVERED) & (again | ~filled[ack_row])


def _prompt(state: Ints, ack_row: Ints, promptness: Ints) -> Bools:
    """Return which rows were reported without delay; for an ACK that fills a hole, only if it reports nothing else."""
    delivered = state == DELIVERED
    alone = np.bincount(ack_row[delivered], minlength=len(promptness)) == 1
    how = promptness[np.maximum(ack_row, 0)]
    return delivered & ((how == AT_ONCE) | ((how == FILLS) & alone[np.maximum(ack_row, 0)]))
