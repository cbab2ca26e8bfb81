"""Which packets deserve a comment, and what it says: our own words and numbers, nothing that a file holds."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cctrace.columns import Bools, Values
from cctrace.diagnosis.findings import LIMITS
from cctrace.io.captures.annotated import Comment
from cctrace.plot.packets import KINDS, NEW
from cctrace.schema import CA_STATES
from cctrace.units import format_counted, format_rate, format_time
from cctrace.wireshark.columns import UNKNOWN, PacketColumns

PACING_STEP = 0.01  # by which the pacing rate has to change to be worth a comment
# What `cctrace.resent` holds for each of KINDS, and what the comment says of it.
RESENT = {
    "fast": ("RACK", "retransmitted: RACK marked it lost"),
    "probe": ("TLP", "retransmitted: tail-loss probe (TLP)"),
    "timeout": ("RTO", "retransmitted: the retransmission timer had fired (RTO)"),
    "unexplained": ("unexplained", "retransmitted: no rule of Linux TCP explains it"),
    "unclassified": ("unclassified", "retransmitted, or captured out of order: not classified"),
}
WITHOUT_SACK = ("dupacks", "retransmitted: duplicate ACKs marked it lost (no SACK)")
LIMIT_WORDS = {
    "rto_stall": "waiting for the retransmission timer",
    "receive_window": "the receive window",
    "send_buffer": "the send buffer",
    "application": "the application",
    "probe_rtt": "PROBE_RTT",
    "recovery": "repair of losses",
    "marks": "a window cut after ECN marks",
    "startup": "the start, in which the window grows",
    "cwnd": "the congestion window (cwnd-limited)",
    "pacing": "the pacing timer",
    "unknown": "nothing that the capture shows",
}


def resent(columns: PacketColumns) -> dict[int, tuple[str, str]]:
    """Return the short name and the words of every kind of retransmission, by its index in `KINDS`."""
    found = {i: RESENT[name] for i, name in enumerate(KINDS) if i != NEW}
    return found if columns.sack else found | {KINDS.index("fast"): WITHOUT_SACK}


def comments_of(columns: PacketColumns) -> Iterator[Comment]:
    """Yield the comments on the packets of a flow, in file order.

    Data has one where it was retransmitted, where it fills the receive window (the first of a run), and where another
    limit begins; an ACK where the controller's state, cwnd or pacing rate, or TCP's own state, changed.
    """
    c, ack = columns, ~columns.sent
    begins = _changes(c.limit) & (c.limit != UNKNOWN)
    full = (c.window_left == 0) & c.data
    edge = full & ~_before(c.data, full, False)
    state, tcp = _at(ack, c.state), _at(ack, c.tcp_state)
    steps = np.log(np.maximum(c.pacing_rate_bps, 1)) // np.log1p(PACING_STEP)
    numbers = _at(ack, c.cwnd) | _at(ack, steps)
    retransmitted = (c.kind != NEW) & c.data
    words, decided = resent(c), c.cwnd != UNKNOWN
    before, tcp_before = (_before(ack, column, UNKNOWN) for column in (c.state, c.tcp_state))
    for i in np.flatnonzero(begins | edge | state | tcp | (numbers & decided) | retransmitted).tolist():
        parts = []
        if retransmitted[i]:
            parts.append(
                words[int(c.kind[i])][1] + ("; spurious: a D-SACK reported a duplicate" if c.spurious[i] else "")
            )
        if edge[i]:
            parts.append("window edge: it fills the receive window")
        if begins[i]:
            parts.append(f"limited from here by {LIMIT_WORDS[LIMITS[c.limit[i]]]}")
        if state[i] and c.state[i] != UNKNOWN:
            was = f" (before: {c.states[before[i]]})" if before[i] != UNKNOWN else ""
            parts.append(f"{c.states[c.state[i]]} begins{was}")
        if tcp[i] and c.tcp_state[i] != UNKNOWN:
            was = f" (before: {CA_STATES[tcp_before[i]]})" if tcp_before[i] != UNKNOWN else ""
            parts.append(f"TCP state {CA_STATES[c.tcp_state[i]]}{was}")
        if (state[i] or numbers[i]) and decided[i]:
            parts.append(_figures(c, i))
        if parts:
            yield Comment(int(c.frame[i]), "; ".join(parts))


def _figures(c: PacketColumns, i: int) -> str:
    found = [f"cwnd {format_counted(int(c.cwnd[i]), 'segment', 'segments')}, in flight {c.inflight[i]}"]
    if c.pacing_rate_bps[i] > 0:
        found.append(f"pacing {format_rate(float(c.pacing_rate_bps[i]))}")
    if c.min_rtt_us[i] > 0:
        found.append(f"min_rtt {format_time(float(c.min_rtt_us[i]) * 1000)}")
    if c.states:
        found.append(c.states[c.state[i]])
    return ", ".join(found)


def _changes(values: NDArray[np.generic]) -> Bools:
    """Return where a value differs from the one before; the first one does."""
    return np.concatenate([[True], values[1:] != values[:-1]]) if len(values) else np.zeros(0, bool)


def _at(where: Bools, values: NDArray[np.generic]) -> Bools:
    """Return where a value differs from the one before, among the rows `where`."""
    found = np.zeros(len(values), bool)
    found[where] = _changes(values[where])
    return found


def _before(where: Bools, values: Values, first: int) -> Values:
    """Return the value before each row, among the rows `where`; `first` before the first of them."""
    found = np.full_like(values, first)
    found[where] = np.append(np.asarray([first], values.dtype), values[where])[:-1]
    return found
