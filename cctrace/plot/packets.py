"""The packets of one connection as a time-sequence graph draws them: sent, and received."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Bools, Ints, Values, rows_of_spans
from cctrace.flows.flow import Flow
from cctrace.io.captures.packets import OPT_COPY
from cctrace.tcp.flags import ACK, RST, SYN
from cctrace.tcp.sequence import unwrap, unwrapped

# What a segment of the sender is, and its words; `Sent.kind` is the index. The first are those of
# `Flow.retransmissions`.
KIND_WORDS = {
    "new": "new data",
    "fast": "retransmission: loss detection marked it",
    "probe": "retransmission: tail-loss probe",
    "timeout": "retransmission: after a timeout (RTO)",
    "unexplained": "retransmission: no rule of Linux TCP explains it",
    "unclassified": "retransmitted or captured out of order",
}
KINDS = tuple(KIND_WORDS)
# How plots draw them: kind -> meaning of the colour (a key of `panels.COLOURS`), label.
RETRANSMISSIONS = {
    "fast": ("lost", "retransmitted"),
    "probe": ("window", "tail-loss probe"),
    "timeout": ("kernel", "after a timeout"),
    "unexplained": ("limit", "unexplained"),
    "unclassified": ("limit", "unclassified"),
}
NEW, UNCLASSIFIED = 0, 5


@dataclass(frozen=True)
class Sent:
    """Packets of the bulk sender, in file order."""

    time_ns: np.ndarray  # as captured, nanoseconds since the epoch (int64)
    frame: np.ndarray  # number in the capture, from 1; 0 unknown (uint32)
    # seq, size: first byte (unwrapped; the SYN is 0, the first byte of payload 1) and payload, bytes (int64)
    seq: np.ndarray
    size: np.ndarray
    kind: np.ndarray  # index into `KINDS` (uint8)
    spurious: np.ndarray  # a D-SACK reported it as a duplicate later on (bool)
    flags: np.ndarray  # of TCP (uint16)

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True)
class Received:
    """Packets of the receiver, in file order."""

    # time_ns, frame, flags: as of `Sent`
    time_ns: np.ndarray
    frame: np.ndarray
    flags: np.ndarray
    ack: np.ndarray  # cumulative acknowledgement, unwrapped, bytes; -1 where the packet carries none (int64)
    window: np.ndarray  # receive window, bytes; -1 where its scale is not known (int64)
    size: np.ndarray  # payload that the receiver sent itself, bytes (int64)
    blocks: np.ndarray  # number of SACK blocks of each packet (int64)
    # left, right: their edges, unwrapped, bytes; shape (blocks.sum(),) (int64)
    left: np.ndarray
    right: np.ndarray

    def __len__(self) -> int:
        return len(self.time_ns)


Side = TypeVar("Side", Sent, Received)


def rows_of(side: Side, rows: NDArray[np.intp]) -> Side:
    """Return some packets of a side, by their rows; SACK blocks go with their packets."""
    columns = {name: getattr(side, name) for name in side.__dataclass_fields__}
    if not isinstance(side, Received):
        return type(side)(**{name: column[rows] for name, column in columns.items()})
    blocks = rows_of_spans((np.cumsum(side.blocks) - side.blocks)[rows], side.blocks[rows])
    return type(side)(**{n: c[blocks if n in ("left", "right") else rows] for n, c in columns.items()})


def in_time(side: Side) -> Side:
    """Return the packets in the order of time: several CPUs feeding one capture may disorder it by microseconds."""
    in_order = (side.time_ns[1:] >= side.time_ns[:-1]).all()
    return side if in_order else rows_of(side, np.argsort(side.time_ns, kind="stable"))


def in_file_order(flow: Flow) -> tuple[Ints, Ints, Bools]:
    """Return times (ns) at the sender, rows and directions (True: sent) of the packets, as `packets_of` orders them."""
    time_ns, rows, forth = flow.capture.seen_by_sender(flow.index)
    order = np.argsort(rows, kind="stable")
    return time_ns[order], rows[order], forth[order]


def packets_of(flow: Flow) -> tuple[Sent, Received]:
    """Return every captured packet of a flow; `StreamError` if it cannot be reconstructed from its capture."""
    capture, facts = flow.capture, flow.facts
    packets = capture.packets
    at_sender, rows, forth = capture.seen_by_sender(flow.index)
    seq = _unwrapped(packets["seq"][rows], packets["flags"][rows], forth, facts["isn"])
    kind, spurious = _kinds(flow, at_sender[forth], seq[forth], rows[forth])
    order = np.argsort(rows, kind="stable")  # of the file, not of the sender
    mine = order[forth[order]]
    place = np.cumsum(forth) - 1
    sent = Sent(
        packets["time_ns"][rows[mine]],
        packets["frame"][rows[mine]],
        seq[mine],
        packets["payload"][rows[mine]].astype(np.int64),
        kind[place[mine]],
        spurious[place[mine]],
        packets["flags"][rows[mine]],
    )
    theirs = order[~forth[order]]
    del at_sender, order, mine, place, kind, spurious  # of a million packets each long column has 8 MB
    rows, seq = rows[theirs], seq[theirs]
    return sent, _received(flow, rows, seq)


def _unwrapped(seq: Values, flags: Values, forth: Values, isn: int) -> Values:
    """Return the sender's sequence numbers without wraps; for the packets of the other side the latest one so far."""
    counts = forth & (flags & RST == 0)  # a reset may carry any sequence number
    latest = np.concatenate(([0], unwrapped(seq[counts], isn)))[np.cumsum(counts)]
    return np.where(forth, unwrap(seq, isn, latest), latest)


def _kinds(flow: Flow, time_ns: Values, seq: Values, rows: Values) -> tuple[NDArray[np.uint8], Bools]:
    """Return kind and spuriousness of the sender's packets, in the order in which it sent them."""
    size = flow.capture.packets["payload"][rows].astype(np.int64)
    end, kind, spurious = seq + size, np.zeros(len(seq), np.uint8), np.zeros(len(seq), bool)
    highest = np.maximum.accumulate(np.concatenate(([0], end)))[:-1]
    copy = flow.capture.packets["options"][rows] & OPT_COPY != 0
    kind[(size > 0) & ((end <= highest) | copy)] = UNCLASSIFIED
    log = flow.retransmission_log
    why, wanted = log["why"] + 1, log["seq"]
    at = np.searchsorted(time_ns, log["time_ns"])
    open_ = np.arange(len(wanted))
    while len(open_):  # packets of the same time follow each other
        open_ = open_[at[open_] < len(seq)]
        open_ = open_[time_ns[at[open_]] == log["time_ns"][open_]]
        row = at[open_]
        hit = (seq[row] <= wanted[open_]) & (wanted[open_] < end[row]) & ~copy[row]
        kind[row[hit]], spurious[row[hit]] = why[open_[hit]], log["spurious"][open_[hit]]
        open_ = open_[~hit]
        at[open_] += 1
    return kind, spurious


def _received(flow: Flow, rows: Values, near: Values) -> Received:
    """Return the `Received` of the packets in `rows`, given the latest sequence number sent before each."""
    packets, facts = flow.capture.packets, flow.facts
    flags = packets["flags"][rows]
    ack = np.where(flags & ACK != 0, unwrap(packets["ack"][rows], facts["isn"], near), -1)
    scale = np.where(flags & SYN != 0, 0, facts["wscale"])
    window = packets["window"][rows].astype(np.int64) << scale
    if "wscale" in facts["inferred"]:
        window = np.full(len(rows), -1)
    blocks = packets["sack_count"][rows].astype(np.int64)
    which = rows_of_spans(packets["sack_row"][rows], blocks)
    base = np.repeat(near, blocks)
    left, right = (unwrap(packets.sacks[side][which], facts["isn"], base) for side in ("left", "right"))
    size = packets["payload"][rows].astype(np.int64)
    return Received(packets["time_ns"][rows], packets["frame"][rows], flags, ack, window, size, blocks, left, right)
