"""Two captures of one connection joined: one-way delays of every segment and ACK, and which ones the path lost.

A packet is recognised on the other side by its sequence and acknowledgement numbers and its IPv4 identification, which
tells a retransmission from the original; without identification (IPv6) by its TCP time stamp and, among equals, order.
Super-packets are taken apart into segments, whose identifications count up.
"""

import numpy as np
import pandas as pd

from cctrace.errors import ArgumentError


def join(sender, receiver):
    """Join a flow captured at the sender with the same flow captured at the receiver.

    Parameters
    ----------
    sender, receiver : Flow

    Returns
    -------
    segments, acks : DataFrame
        One row per transmission by the sender, and by the receiver: ``time_ns`` (when it left, clock of that side),
        ``seq`` (`ack` for ACKs; 32-bit, as sent), ``delay_us`` (arrival on the other capture's clock less departure,
        NaN if lost) and ``lost``. Only departures within the time that both captures cover.
        The delays contain the difference of the two clocks; ``segments.attrs["clock_offset_us"]`` estimates it
        (receiver minus sender) as if the two smallest delays were equal.

    Raises
    ------
    ArgumentError
        If the two captures do not show the same connection.
    """
    if sender.key != receiver.key:
        raise ArgumentError(f"not the same connection: {sender.key} and {receiver.key}")
    tables = []
    for data in (True, False):
        here, there = (sender, receiver) if data else (receiver, sender)
        tables.append(_match(_transmissions(here, data), _transmissions(there, data), data))
    segments, acks = tables
    if not segments["delay_us"].notna().any():
        raise ArgumentError(f"no segment of {sender.key} is in both captures")
    offset = (segments["delay_us"].min() - acks["delay_us"].min()) / 2 if acks["delay_us"].notna().any() else np.nan
    segments.attrs["clock_offset_us"] = acks.attrs["clock_offset_us"] = float(offset)
    return segments, acks


def _transmissions(flow, data):
    """Return one row per segment that one side sent, super-packets taken apart."""
    packets, c = flow.capture.packets, flow.capture.connections
    rows = c.order[c.first[flow.index] : c.first[flow.index + 1]]
    mine = packets["direction"][rows] == (c.sender[flow.index] if data else 1 - c.sender[flow.index])
    rows = rows[mine & ((packets["payload"][rows] > 0) == data)]
    mss = int(c.mss[flow.index])
    count = np.maximum(1, -(-packets["payload"][rows].astype(np.int64) // mss))
    at = np.repeat(rows, count)
    nth = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
    table = pd.DataFrame(
        {
            "time_ns": packets["time_ns"][at],
            "seq": (packets["seq"][at].astype(np.int64) + nth * mss) & 0xFFFFFFFF,
            "ack": packets["ack"][at].astype(np.int64),
            "ip_id": (packets["ip_id"][at].astype(np.int64) + nth) & 0xFFFF,
            "tsval": packets["tsval"][at].astype(np.int64),
        }
    )
    table["nth"] = table.groupby(["seq", "ack", "ip_id", "tsval"]).cumcount()
    return table


def _match(left, right, data):
    """Return `left` with the delay until each row appears in `right`."""
    keys = ["seq", "ack", "ip_id", "tsval", "nth"]
    both = left.merge(right[[*keys, "time_ns"]], on=keys, how="left", suffixes=("", "_there"))
    arrived = both["time_ns_there"].notna()
    # Differences are taken as integers: epoch nanoseconds do not fit a float.
    there = both["time_ns_there"].astype("Int64").fillna(0).to_numpy(np.int64)
    delay = np.where(arrived, (there - both["time_ns"].to_numpy(np.int64)) / 1000, np.nan)
    out = pd.DataFrame({"time_ns": both["time_ns"], "seq" if data else "ack": both["seq" if data else "ack"]})
    out["delay_us"] = delay
    out["lost"] = ~arrived
    covered = np.flatnonzero(arrived)
    return out.iloc[covered[0] : covered[-1] + 1].reset_index(drop=True) if len(covered) else out.iloc[:0]
