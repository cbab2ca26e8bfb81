"""The reverse direction of a connection: packets of the bulk data's receiver, and response times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cctrace.columns import Bools, Columns, Ints, Values
from cctrace.flows.ecn import feedback_of
from cctrace.io.captures.packets import OPT_COPY, OPT_TIMESTAMPS
from cctrace.tcp.ecn import ACE_MASK, ACE_SHIFT, ECHO
from cctrace.tcp.flags import ACK, FIN, RST, SYN
from cctrace.tcp.sequence import unwrapped

if TYPE_CHECKING:
    from cctrace.flows.flow import Flow


def reverse(flow: Flow) -> dict[str, Any]:
    """Return statistics of the other end's packets.

    Parameters
    ----------
    flow : Flow
        Of a capture.

    Returns
    -------
    dict
        ``packets``; of these ``data_packets`` with ``payload_bytes`` (each byte once) and
        ``retransmitted_packets``; ``messages``: how often it started to send data after data of the bulk sender, or
        first; ``pure_acks``, and ``bytes_per_ack``, payload that the bulk sender sent per pure ACK;
        ``sack_packets``, ``zero_windows`` and ``ece_packets``, which carry SACK blocks, a window of 0, and ECE or
        new marks (AccECN); ``answered_us``: ``min``, ``median`` and ``p95`` of the time from data to their
        acknowledgement, without retransmitted data [RFC6298]_; ``echoed_us``: the same from each new time stamp to
        the packet that echoes it [RFC7323]_. Both are None without samples. They are round trips from the capture
        point to the bulk sender: at the receiver that end's RTTs, at the sender this host's response times.

    Examples
    --------
    >>> import cctrace as cct
    >>> flow = cct.read(cct.datasets.path("loss_cubic_1pct", "sender.pcap.zst")).flow(0)
    >>> back = reverse(flow)
    >>> back["packets"] > back["pure_acks"] > 1000, back["payload_bytes"]
    (True, 0)
    """
    capture = flow.capture
    _, rows, _ = capture.at_the_sender(np.array([flow.index]))
    rows = np.sort(rows)
    packets = capture.packets
    forth = packets["direction"][rows] == capture.connections.sender[flow.index]
    copy = packets["options"][rows] & OPT_COPY != 0
    sides = forth[(packets["payload"][rows] > 0) & ~copy]
    theirs, mine = rows[~forth & ~copy], rows[forth & ~copy]
    del rows, forth, copy  # of a million packets they have 10 MB
    back, ahead = ({name: packets[name][side] for name in _COLUMNS} for side in (theirs, mine))
    carries = back["payload"] > 0
    seq, new, answered_ns = _answers(back, ahead, carries)
    pure = ~carries & (back["flags"] & (SYN | FIN | RST) == 0) & (back["flags"] & ACK != 0)
    handshake = back["flags"] & (SYN | RST) != 0
    begins = ~sides & np.concatenate(([True], sides[:-1]))[: len(sides)]
    count = int(pure.sum())
    return {
        "packets": len(back["flags"]),
        "data_packets": int(carries.sum()),
        "payload_bytes": int(seq),
        "retransmitted_packets": int((~new).sum()),
        "messages": int(begins.sum()),
        "pure_acks": count,
        "bytes_per_ack": float(flow.row["bytes_sent"] / count) if count else None,
        "sack_packets": int((back["sack_count"] > 0).sum()),
        "zero_windows": int(((back["window"] == 0) & ~handshake).sum()),
        "ece_packets": _report_marks(back["flags"][~handshake], feedback_of(flow)),
        "answered_us": _quantiles_us(answered_ns),
        "echoed_us": _quantiles_us(_echoes(back, ahead)),
    }


_COLUMNS = ("time_ns", "payload", "flags", "seq", "ack", "window", "sack_count", "options", "tsval",
            "tsecr")  # fmt: skip


def _report_marks(flags: Values, feedback: str) -> int:
    """Return how many packets echo a mark or, with AccECN, change the count of marks."""
    ace = (flags >> ACE_SHIFT) & ACE_MASK
    return int((ace[1:] != ace[:-1]).sum() if feedback == "accurate" else (ace & ECHO != 0).sum())


def _answers(back: Columns, ahead: Columns, carries: Bools) -> tuple[Any, ...]:
    """Return the payload bytes, each once; whether each data packet is new; and the times until new ones' ACKs."""
    if not carries.any():
        return 0, np.zeros(0, bool), np.zeros(0, np.int64)
    time_ns, size = back["time_ns"][carries], back["payload"][carries].astype(np.int64)
    base = int(back["seq"][carries][0])
    start = unwrapped(back["seq"][carries], base)
    end = start + size
    before = np.maximum.accumulate(np.concatenate(([start.min()], end)))[:-1]
    new = end > before
    has_ack = ahead["flags"] & ACK != 0
    acked = np.maximum.accumulate(unwrapped(ahead["ack"][has_ack], base)) if has_ack.any() else np.zeros(0, np.int64)
    first, last = np.maximum(start, before)[new], end[new]  # both ascend: what is new begins where the known ends
    retransmitted = np.zeros(len(last) + 1, np.int64)
    np.add.at(retransmitted, np.searchsorted(last, start[~new], side="right"), 1)
    np.add.at(retransmitted, np.searchsorted(first, end[~new]), -1)
    once = np.cumsum(retransmitted[:-1]) <= 0
    by = np.searchsorted(acked, last[once])
    found = by < len(acked)
    waited = ahead["time_ns"][has_ack][by[found]] - time_ns[new][once][found]
    return int((last - first).sum()), new, waited[waited >= 0]


def _echoes(back: Columns, ahead: Columns) -> Ints:
    """Return the times from each new time stamp to the first packet that echoes it, ns."""
    stamped, echoing = (side["options"] & OPT_TIMESTAMPS != 0 for side in (back, ahead))
    echoing &= ahead["tsecr"] != 0  # a SYN has nothing to echo
    if not stamped.any() or not echoing.any():
        return np.zeros(0, np.int64)
    base = int(back["tsval"][stamped][0])
    value = unwrapped(back["tsval"][stamped], base)
    new = value > np.maximum.accumulate(np.concatenate(([-1], value)))[:-1]
    echo = np.maximum.accumulate(unwrapped(ahead["tsecr"][echoing], base))
    by = np.searchsorted(echo, value[new])
    found = np.flatnonzero(by < len(echo))
    found = found[echo[by[found]] == value[new][found]]  # else a later one was echoed in its place
    waited = ahead["time_ns"][echoing][by[found]] - back["time_ns"][stamped][new][found]
    return waited[waited >= 0]


def _quantiles_us(waited_ns: Values) -> dict[str, float] | None:
    if not len(waited_ns):
        return None
    least, median, p95 = np.quantile(waited_ns / 1e3, (0, 0.5, 0.95))
    return {"min": float(least), "median": float(median), "p95": float(p95)}
